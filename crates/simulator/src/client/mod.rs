//! Simulated clients: what they are, when they come, send and leave.
//!
//! A client knows its own requests and what must come back for each. It knows no pooler: what it asks of the world
//! around it are `Action`s.

mod batches;
pub mod encode;
mod kept;
mod login;
mod names;
mod ready;
mod replies;
mod rows;
mod sharded;
mod typed;
mod workload;

use std::collections::{BTreeMap, VecDeque};

use weir_core::time::{Duration, Time};
use weir_wire::{FrontendTag, write};

use crate::checks::Checks;
use crate::plan::Plan;
use crate::postgres::Belief;
use crate::postgres::held::Held;
use crate::postgres::language::Tag;
use crate::postgres::sharded::Place;
use crate::report::Counts;
use crate::rng::Rng;
use crate::scram::Prover;

use names::Names;
pub use replies::{Exchange, Expect};

/// What a client is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Works, and expects exact replies.
    Session,
    /// Sends one cancel request for another client.
    Canceller { ask: usize, owner: usize, owner_number: u32, request: Vec<u8> },
    /// Asks the console.
    Console,
    /// Sends nonsense, before or after the startup packet; must be shown out.
    Garbage { after_startup: bool },
    /// Comes after the faults: `BEGIN`, waits for the others of its group, `COMMIT`. Must succeed.
    Fresh { group: usize, transactions: bool },
    /// Comes after the faults, too, and asks for rows of a cluster by these keys, one by one. `strict`: it must be answered.
    Keyed { keys: Vec<i64>, pause_us: u64, strict: bool },
}

/// Who a client says it is.
#[derive(Debug, Clone)]
pub struct Identity {
    pub database: String,
    pub user: String,
    pub password: String,
    pub right_password: bool,
    pub parameters: Vec<(&'static str, String)>,
    pub tls: bool,
    pub newest: bool,
}

/// What a client may do, by the settings it works under.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    pub transactions: bool,
    /// Keeps its server from transaction to transaction.
    pub keeps_server: bool,
    /// Whatever it leaves in its session stays its own.
    pub keeps: bool,
    /// Whether that is so of what PostgreSQL does not report is known.
    pub knows_unreported: bool,
    /// It has such a pool from its begin to its end, or none: its statements and what it sets are where it left them.
    pub steady: bool,
    pub think_us: u64,
    /// Leaves when its work is done, so that in session pooling others get its server.
    pub leaves: bool,
    /// How likely it leaves without a word, in a thousand units.
    pub vanish_permille: u64,
    pub fatal_permille: u64,
    pub cancel_permille: u64,
}

impl Habits {
    /// Of who does what is asked of it, and stays to its end.
    pub const PLAIN: Self = Self {
        transactions: true,
        keeps_server: false,
        keeps: false,
        knows_unreported: false,
        steady: false,
        think_us: 0,
        leaves: false,
        vanish_permille: 0,
        fatal_permille: 0,
        cancel_permille: 0,
    };
}

pub enum Phase {
    Away,
    TlsAsked,
    Login {
        prover: Option<Prover>,
        authenticated: bool,
    },
    Working,
    /// Will not come back.
    Gone,
}

pub enum Action {
    Connect,
    Send(Vec<u8>),
    Close,
    /// Sends no more, and reads on.
    End,
    Reset,
    Wake(Time),
    PauseReading(Time),
    Cancel {
        process_id: u32,
        key: Vec<u8>,
        ask: usize,
    },
}

/// What surrounds a client while it acts.
pub struct Stage<'a> {
    pub now: Time,
    pub rng: &'a mut Rng,
    pub checks: &'a mut Checks,
    pub counts: &'a mut Counts,
    /// Nothing may go wrong in this seed.
    pub calm: bool,
    /// No new work is begun.
    pub quiet: bool,
    pub schema_version: u32,
    /// The types of the table in the client's database.
    pub types: u32,
    pub plan: &'a Plan,
    /// Up to then some worker may have looked at no passwords.
    pub trusted_until: Time,
    /// When the newest settings came to hold.
    pub settings_since: Time,
    pub actions: Vec<Action>,
}

/// A statement that some unit has prepared under a name.
struct Prepared {
    /// TimeZone at its Parse.
    zone: String,
    types: Belief,
}

pub struct Client {
    pub index: usize,
    /// A number for each connection, so that one who comes back is another.
    pub number: u32,
    pub role: Role,
    pub identity: Identity,
    pub habits: Habits,
    pub link: Option<usize>,
    pub phase: Phase,
    opened_at: Time,
    /// The longest message of its session.
    longest: u32,
    input: Vec<u8>,
    /// Sent, and not answered in full.
    pub owed: VecDeque<Exchange>,
    /// To be sent.
    script: VecDeque<Exchange>,
    next_send: Time,
    pub last_statement: u32,
    pub units_left: u32,
    /// Session parameters as they must be, in PostgreSQL's spelling.
    model: BTreeMap<&'static str, String>,
    told: BTreeMap<String, String>,
    /// What it holds besides parameters.
    held: Held,
    /// Both as they were when its transaction began.
    before: kept::Session,
    /// What a row of the request in front had of the parameter that the configuration file sets.
    configured: Option<u64>,
    explicit: bool,
    /// Its transaction has failed.
    aborted: bool,
    own: sharded::Own,
    /// What it has written in a cluster's tables.
    rows: BTreeMap<Place, u32>,
    writes: Vec<Tag>,
    prepared: BTreeMap<String, Prepared>,
    names: Names,
    key: Option<(u32, Vec<u8>)>,
    cancel_at: Option<Time>,
    asked_cancel: bool,
    vanish_at: Option<Time>,
    /// The first statement of a request of which it has sent a part, and vanishes.
    sent_in_part: Option<u32>,
    /// Has said that it sends no more.
    ended: bool,
    pub refused: bool,
    /// A fresh client's transaction stands; it goes on when told to.
    pub at_barrier: bool,
    pub released: bool,
    pub served: bool,
}

impl Stage<'_> {
    /// Other settings than at first have come to the workers in this run.
    fn has_reloaded(&self) -> bool {
        self.settings_since > Time(0)
    }
}

impl Client {
    pub fn new(index: usize, role: Role, identity: Identity, habits: Habits, units: u32) -> Self {
        Self {
            index,
            number: 0,
            role,
            identity,
            habits,
            link: None,
            phase: Phase::Away,
            opened_at: Time(0),
            longest: 0,
            input: Vec::new(),
            owed: VecDeque::new(),
            script: VecDeque::new(),
            next_send: Time(0),
            last_statement: 0,
            units_left: units,
            model: BTreeMap::new(),
            told: BTreeMap::new(),
            held: Held::default(),
            before: kept::Session::default(),
            configured: None,
            explicit: false,
            aborted: false,
            own: sharded::Own::default(),
            rows: BTreeMap::new(),
            writes: Vec::new(),
            prepared: BTreeMap::new(),
            names: Names::default(),
            key: None,
            cancel_at: None,
            asked_cancel: false,
            vanish_at: None,
            sent_in_part: None,
            ended: false,
            refused: false,
            at_barrier: false,
            released: false,
            served: false,
        }
    }

    /// It sends this next.
    pub fn note_sent(&mut self, bytes: &[u8]) {
        if matches!(self.phase, Phase::Working) {
            self.longest = self.longest.max(encode::longest(bytes));
        }
    }

    pub fn tag(&mut self) -> Tag {
        self.last_statement += 1;
        Tag { client: self.number, number: self.last_statement }
    }

    /// Waits for something that only others can give.
    pub fn waits(&self) -> bool {
        match self.role {
            _ if self.link.is_none() => false,
            Role::Session | Role::Console => {
                !matches!(self.phase, Phase::Working) || self.awaits() || !self.script.is_empty()
            }
            _ => true,
        }
    }

    /// Something will come, if nothing goes wrong.
    fn awaits(&self) -> bool {
        !self.owed.iter().all(|exchange| exchange.doubtful)
    }

    pub fn logged_in(&self) -> bool {
        self.link.is_some() && matches!(self.phase, Phase::Working)
    }

    /// In words, for a report on who is stuck.
    pub fn describe(&self) -> String {
        let phase = match self.phase {
            Phase::Away => "away",
            Phase::TlsAsked => "asked for TLS",
            Phase::Login { .. } => "in login",
            Phase::Working => "working",
            Phase::Gone => "gone",
        };
        let owed = self.owed.front().map(|exchange| format!("{exchange:?}")).unwrap_or_default();
        let text: String = owed.chars().take(300).collect();
        format!(
            "client {} ({:?}, {}/{}) {phase}, owed {}, to send {}: {text}",
            self.number,
            self.role,
            self.identity.database,
            self.identity.user,
            self.owed.len(),
            self.script.len()
        )
    }

    /// Its time has come to do something.
    pub fn wake(&mut self, stage: &mut Stage) {
        match self.phase {
            Phase::Away if self.link.is_none() && self.may_come(stage) => stage.actions.push(Action::Connect),
            Phase::Working => self.pump(stage),
            _ => {}
        }
    }

    fn may_come(&self, stage: &Stage) -> bool {
        !stage.quiet || matches!(self.role, Role::Fresh { .. } | Role::Keyed { .. } | Role::Canceller { .. })
    }

    /// Nothing may go wrong for it.
    fn is_strict(&self, stage: &Stage) -> bool {
        match self.role {
            Role::Fresh { .. } => true,
            Role::Keyed { strict, .. } => strict,
            _ => stage.calm,
        }
    }

    /// The connection is gone.
    pub fn closed(&mut self, stage: &mut Stage) {
        let expected = match self.role {
            Role::Session if self.ended => self.refused || !self.awaits(),
            Role::Session => self.vanish_at.is_some() || !self.identity.right_password || self.refused,
            Role::Fresh { .. } | Role::Keyed { .. } => self.served,
            _ => true,
        };
        let strict = self.is_strict(stage);
        // What it listens to is told by nobody any more after a reload, and it does not read up to where it could be told that.
        let unheard = self.held.listens() && self.awaits() && stage.has_reloaded();
        if strict && !expected && !unheard {
            stage.checks.fail("closed without cause", self.describe());
        }
        self.leave(stage);
    }

    /// It is in its session and between two transactions.
    pub fn can_hear(&self) -> bool {
        matches!(self.phase, Phase::Working) && self.link.is_some() && !self.explicit && self.owed.is_empty()
    }

    /// Forgets the session; the next one starts from nothing.
    pub fn leave(&mut self, stage: &mut Stage) {
        stage.checks.client_gone(self.number);
        self.link = None;
        self.input.clear();
        self.owed.clear();
        self.script.clear();
        self.prepared.clear();
        self.names.clear();
        self.told.clear();
        self.held = Held::default();
        self.configured = None;
        self.writes.clear();
        self.block_over();
        self.rows.clear();
        self.key = None;
        self.cancel_at = None;
        self.asked_cancel = false;
        self.vanish_at = None;
        self.sent_in_part = None;
        self.ended = false;
        self.refused = false;
        let again = matches!(self.role, Role::Session | Role::Console) && self.units_left > 0;
        self.phase = if again { Phase::Away } else { Phase::Gone };
        if again {
            let pause = stage.rng.spread(300_000);
            stage.actions.push(Action::Wake(stage.now + Duration(pause)));
        }
    }

    /// Sends what may be sent now, and begins new work when the old is done.
    pub(super) fn pump(&mut self, stage: &mut Stage) {
        self.cancel_or_vanish(stage);
        loop {
            if self.link.is_none() || stage.now < self.next_send || stage.checks.violation.is_some() {
                return;
            }
            if !self.awaits() {
                self.close_left_copy();
            }
            let Some(next) = self.script.front() else {
                if self.awaits() || !self.new_work(stage) {
                    return;
                }
                continue;
            };
            if next.wait && self.awaits() {
                return;
            }
            if matches!(&next.requires, Some(name) if !self.prepared.contains_key(name)) {
                self.script.pop_front();
                continue;
            }
            if !self.at_barrier_passed() {
                return;
            }
            self.send_next(stage);
        }
    }

    fn at_barrier_passed(&mut self) -> bool {
        let fresh = matches!(self.role, Role::Fresh { .. });
        let commits = self.script.len() == 1;
        self.at_barrier = fresh && commits && self.explicit;
        !self.at_barrier || self.released
    }

    fn send_next(&mut self, stage: &mut Stage) {
        let Some(mut exchange) = self.script.pop_front() else { return };
        self.fill_in_belief(&mut exchange, stage.types);
        let bytes = std::mem::take(&mut exchange.bytes);
        exchange.longest = encode::longest(&bytes);
        if let Some(after) = exchange.cancel_after_us {
            self.cancel_at = Some(stage.now + Duration(after));
            stage.actions.push(Action::Wake(stage.now + Duration(after)));
        }
        if let Some(pause) = exchange.pause_reading_us {
            stage.actions.push(Action::PauseReading(stage.now + Duration(pause)));
        }
        if let Some(part) = exchange.vanish_after_bytes {
            stage.actions.push(Action::Send(bytes[..part.min(bytes.len())].to_vec()));
            self.sent_in_part = Some(exchange.first);
            return self.vanish_soon(stage);
        }
        self.next_send = stage.now + Duration(exchange.pause_after_us);
        if exchange.pause_after_us > 0 {
            stage.actions.push(Action::Wake(self.next_send));
        }
        exchange.last = self.last_of(&exchange);
        exchange.simple = bytes.first() == Some(&(FrontendTag::Query as u8));
        stage.counts.exchanges += 1;
        stage.checks.sends(self.number, exchange.first, stage.now);
        self.owed.push_back(exchange);
        stage.actions.push(Action::Send(bytes));
        let is_last = self.script.is_empty() && self.units_left == 0 && self.role == Role::Session;
        if is_last && self.owed.iter().all(Exchange::may_be_last) && self.habits.leaves && stage.rng.chance(400) {
            stage.counts.faults.add("client ended its side");
            self.ended = true;
            self.next_send = Time::NEVER;
            stage.actions.push(Action::End);
        }
    }

    /// It sends no more, and leaves without a word.
    fn vanish_soon(&mut self, stage: &mut Stage) {
        let at = stage.now + Duration(stage.rng.below(200_000));
        self.vanish_at = Some(at);
        stage.actions.push(Action::Wake(at));
        self.script.clear();
        self.next_send = Time::NEVER;
    }

    fn feed_copy(&mut self, stage: &mut Stage, mut data: Vec<u8>, ahead: u32) {
        let vanishes = self.role == Role::Session && stage.rng.chance(self.habits.vanish_permille);
        if vanishes {
            // In front of the last message, or anywhere.
            let most = if stage.rng.chance(500) { data.len() - 1 } else { stage.rng.index(data.len()) };
            data.truncate(encode::ends(&data[..most]));
        }
        stage.actions.push(Action::Send(data));
        if vanishes {
            self.sent_in_part = self.owed.front().map(|exchange| exchange.first);
            self.owed.clear();
            return self.vanish_soon(stage);
        }
        self.copy_begins(ahead);
        self.pop();
    }

    fn last_of(&self, exchange: &Exchange) -> u32 {
        exchange.last.max(exchange.first)
    }

    fn cancel_or_vanish(&mut self, stage: &mut Stage) {
        if self.vanish_at.is_some_and(|at| at <= stage.now) && self.link.is_some() {
            stage.counts.faults.add("client vanished");
            let action = if stage.rng.chance(500) { Action::Reset } else { Action::Close };
            stage.actions.push(action);
            return self.leave(stage);
        }
        if self.cancel_at.is_some_and(|at| at <= stage.now) {
            self.cancel_at = None;
            // One that may not be there has the number of what was sent last. Where all is answered, it may hit what is sent meanwhile.
            let known = self.owed.iter().chain(&self.script).map(|exchange| exchange.first);
            let first = known.chain(self.sent_in_part).min();
            let first = first.unwrap_or(self.last_statement + 1);
            if let Some((process_id, key)) = self.key.clone() {
                // A batch may run what an earlier one has left.
                let left = self.names.oldest().filter(|_| self.owed.iter().any(|exchange| exchange.batch));
                let first = left.map_or(first, |left| left.min(first));
                let ask = stage.checks.cancel_asked(self.number, first);
                self.asked_cancel = true;
                stage.counts.cancels_asked += 1;
                stage.actions.push(Action::Cancel { process_id, key, ask });
            }
        }
    }

    /// The highest statement number that was sent.
    pub fn last_sent(&self) -> u32 {
        self.owed.back().map_or(self.last_statement, |exchange| exchange.last)
    }

    /// Begins the next unit of work, or schedules it. False if there is nothing to send now.
    fn new_work(&mut self, stage: &mut Stage) -> bool {
        match self.role {
            Role::Fresh { transactions, .. } if !self.served => {
                self.fresh_unit(transactions);
                true
            }
            Role::Keyed { ref keys, pause_us, .. } if !self.served && self.units_left > 0 => {
                let keys = keys.clone();
                self.units_left = 0;
                self.keyed_unit(stage, &keys, pause_us);
                true
            }
            Role::Session if self.units_left > 0 && !stage.quiet => {
                if self.next_send == Time::NEVER {
                    return false;
                }
                self.units_left -= 1;
                self.unit(stage);
                let think = stage.rng.spread(self.habits.think_us);
                self.next_send = stage.now + Duration(think);
                stage.actions.push(Action::Wake(self.next_send));
                true
            }
            Role::Console if self.units_left > 0 && !stage.quiet => {
                self.units_left -= 1;
                self.console_unit(stage);
                self.next_send = stage.now + Duration(stage.rng.spread(500_000));
                stage.actions.push(Action::Wake(self.next_send));
                true
            }
            Role::Session if self.habits.leaves || stage.quiet && self.units_left > 0 && stage.rng.chance(300) => {
                self.terminate(stage);
                false
            }
            _ => false,
        }
    }

    /// Says goodbye.
    pub fn terminate(&mut self, stage: &mut Stage) {
        if self.link.is_some() {
            let mut bytes = Vec::new();
            write::terminate(&mut bytes);
            // After half a message, Terminate would be taken as its rest.
            if matches!(self.phase, Phase::Working) && !self.ended && self.vanish_at.is_none() && stage.rng.chance(700)
            {
                stage.actions.push(Action::Send(bytes));
            }
            stage.actions.push(Action::Close);
        }
        self.units_left = 0;
        self.leave(stage);
    }
}
