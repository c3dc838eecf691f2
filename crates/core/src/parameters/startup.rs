//! What a client asked for in its startup packet: its session's defaults, which RESET goes back to.
//!
//! PostgreSQL's own session has other defaults, because servers are shared. So what a request takes back to them is read in its
//! text (`resets.rs`), or known by its command tag. At the ReadyForQuery the client has its startup values again, and is told of
//! them as PostgreSQL would tell; a server that stays with the client is brought to them before its next request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use weir_wire::frontend::{BindNames, Target};
use weir_wire::{FrontendTag, TransactionStatus};

use crate::message::Message;
use crate::owed::{Note, Owed, OwedQueue, Request};
use crate::parameters::meanings::{InDoubt, Kind, Meaning, Meanings};
use crate::parameters::resets::{Change, Resets, Unread, goes_on_behind_rollback};
use crate::parameters::resetting::{BatchResets, Names, Noted, Standings};
use crate::parameters::{Parameter, ParameterSet, is_reported_by_all};
use crate::statements::Runs;
use crate::statements::definition::text_of;

/// What PostgreSQL takes for a transaction as it begins (`StartTransaction`, src/backend/access/transam/xact.c at 18).
const TRANSACTION_BEGINS_WITH: [&str; 3] =
    ["default_transaction_deferrable", "default_transaction_isolation", "default_transaction_read_only"];

/// Statements that execute one another.
const EXECUTES_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Startup {
    /// What is not the server's own default, or may be another elsewhere, as PostgreSQL spells it.
    values: ParameterSet,
    /// Texts are read. Where only the application's name is at stake, the command tags are enough.
    reads: bool,
    sending: BatchResets,
    standings: Standings,
    /// Changes of the simple query in front that are complete.
    complete: usize,
    /// Values that the client has again, and its server not yet.
    missing: ParameterSet,
    /// Where names are the server's own.
    statements: Meanings,
    portals: Meanings,
    /// What its packet has set, for the log, once it has a server.
    untold: Vec<String>,
}

/// For its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedStartup {
    values: ParameterSet,
    missing: ParameterSet,
}

impl Startup {
    /// `None`: what its client resets is not carried out yet, or may be taken back.
    pub(crate) fn saved(&self) -> Option<SavedStartup> {
        let at_rest = self.standings.is_empty() && self.complete == 0;
        at_rest.then(|| SavedStartup { values: self.values.own_copy(), missing: self.missing.own_copy() })
    }

    /// `None`: nothing but its packet was to be told.
    pub(crate) fn of_saved(saved: SavedStartup) -> Option<Box<Self>> {
        let is_one = !saved.values.is_empty();
        is_one.then(|| Box::new(Self { missing: saved.missing, ..Self::of(saved.values) }))
    }

    fn of(values: ParameterSet) -> Self {
        let reads = values.iter().any(|value| !value.name.eq_ignore_ascii_case("application_name"));
        Self {
            values,
            reads,
            sending: BatchResets::default(),
            standings: Standings::default(),
            complete: 0,
            missing: ParameterSet::default(),
            statements: Meanings::of(Kind::Statement),
            portals: Meanings::of(Kind::Portal),
            untold: Vec::new(),
        }
    }

    /// `None` where a session has the server's own defaults.
    pub(crate) fn new(
        names: &[(Arc<str>, Arc<str>)],
        session: &ParameterSet,
        defaults: &ParameterSet,
    ) -> Option<Box<Self>> {
        let mut values = ParameterSet::default();
        for wanted in names.iter().filter_map(|(name, _)| session.get(name)) {
            let is_default = defaults.get(&wanted.name).is_some_and(|default| default.value == wanted.value);
            if !(is_default && is_reported_by_all(&wanted.name)) {
                values.set(&wanted.name, &wanted.value, wanted.reported);
            }
        }
        (!values.is_empty()).then(|| Box::new(Self::of(values)))
    }

    /// For `verbose = 2`: its packet is to be told to the log when it gets a server, and then forgotten where nothing else is kept of it (`take_untold`).
    #[cold]
    pub(crate) fn telling(
        startup: Option<Box<Self>>,
        label: &str,
        packet: &[(Arc<str>, Arc<str>)],
        session: &ParameterSet,
    ) -> Option<Box<Self>> {
        let untold: Vec<_> = described(packet, session).iter().map(|line| format!("{label} {line}")).collect();
        if untold.is_empty() {
            return startup;
        }
        let startup = startup.unwrap_or_else(|| Box::new(Self::of(ParameterSet::default())));
        Some(Box::new(Self { untold, ..*startup }))
    }

    #[inline]
    pub(crate) fn is_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    #[cold]
    pub(crate) fn take_untold(startup: &mut Option<Box<Self>>) -> Vec<String> {
        let untold = startup.as_mut().map_or_else(Vec::new, |startup| std::mem::take(&mut startup.untold));
        startup.take_if(|startup| startup.values.is_empty());
        untold
    }

    /// Whether the texts of its requests have to be there as a whole.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    /// Its server reports others than those before.
    pub(crate) fn reported_as(&mut self, session: &ParameterSet) {
        for values in [&mut self.values, &mut self.missing] {
            *values = values.reported_as(session);
        }
    }

    /// It goes to another worker: what two share, both would count.
    pub(crate) fn part(&mut self) {
        self.values = self.values.own_copy();
        self.missing = self.missing.own_copy();
    }

    /// The server is another client's: names are gone with it.
    #[inline]
    pub(crate) fn unlinked(&mut self) {
        if self.reads {
            self.statements.forget();
            self.portals.forget();
        }
    }

    /// A statement was given its own name on the server that the client keeps.
    pub(crate) fn has_own_name(&mut self, name: &[u8], text: &[u8]) {
        if let Some(resets) = Resets::of_statement(text)
            && let Some(meaning) = self.statements.sends(name, Some(resets), 0)
        {
            self.statements.carried_out(meaning);
        }
    }

    /// DEALLOCATE ALL or DISCARD ALL, which leave the unnamed statement (`DropAllPreparedStatements`, src/backend/commands/prepare.c).
    pub(crate) fn deallocated_all(&mut self) {
        self.statements.gone();
    }

    /// A request is on its way to the server. `bound`: what the statement resets that it binds; `tracks`: names are ours. Whether
    /// the next one waits for its replies.
    pub(crate) fn sent(
        &mut self,
        message: &Message<'_>,
        bound: Option<Arc<Resets>>,
        tracks: bool,
        owed: &mut OwedQueue,
    ) -> bool {
        let batch = owed.batch();
        match message.tag {
            FrontendTag::Query => return self.sent_query(message.body(), owed),
            FrontendTag::Sync | FrontendTag::FunctionCall => return self.sending.ends(),
            FrontendTag::Parse if !tracks => {
                let (name, resets) = parsed(message);
                note(owed, Request::Parse, || self.statements.sends(name, resets, batch));
            }
            FrontendTag::Bind => {
                let Some(names) = BindNames::parse(message.body()) else { return false };
                note(owed, Request::Bind, || self.portals.sends(names.portal, bound, batch));
            }
            FrontendTag::Close => match Target::parse(message.body()) {
                Ok(Target::Portal(name)) => note(owed, Request::Close, || self.portals.sends(name, None, batch)),
                Ok(Target::Statement(name)) if !tracks => {
                    note(owed, Request::Close, || self.statements.sends(name, None, batch));
                }
                _ => {}
            },
            FrontendTag::Execute => {
                let resets = self.executes(message.body(), batch).ok().flatten();
                let resets_own = |resets: &Arc<Resets>| self.values.iter().any(|value| resets.resets(&value.name));
                self.sending.executes(!self.standings.is_empty() || resets.as_ref().is_some_and(resets_own));
                if let Some(resets) = resets {
                    if matches!(resets.get(0), Some(Change::Reset(_) | Change::ResetAll)) {
                        // In session mode nothing else tells.
                        owed.executes(Runs::Within);
                    }
                    note_resets(owed, Request::Execute, resets);
                }
            }
            _ => {}
        }
        false
    }

    /// It ends a batch in front of it too.
    fn sent_query(&mut self, body: &[u8], owed: &mut OwedQueue) -> bool {
        let ends = self.sending.ends() || self.standings.are_undoable();
        let read = |text| self.read(text, !self.standings.is_empty(), owed.batch());
        match body.strip_suffix(b"\0").ok_or(Unread).and_then(read) {
            Ok(None) => ends,
            Ok(Some(resets)) => {
                note_resets(owed, Request::Query, resets);
                true
            }
            // Whatever is sent behind it waits for what its replies tell.
            Err(Unread) => true,
        }
    }

    /// What an Execute resets.
    pub(crate) fn executes(&self, body: &[u8], batch: u64) -> Result<Option<Arc<Resets>>, InDoubt> {
        let portal = body.split(|&byte| byte == 0).next().unwrap_or_default();
        match self.portals.get(portal, batch)? {
            Some(resets) => resets.executes().map_or(Ok(Some(Arc::clone(resets))), |name| self.runs(name, batch)),
            None => Ok(None),
        }
    }

    /// What a query resets, also by what it executes. `whole`: and what it sets.
    fn read(&self, text: &[u8], whole: bool, batch: u64) -> Result<Option<Arc<Resets>>, Unread> {
        Resets::of_running(text, whole, |name| self.runs(name, batch).map_err(|InDoubt| Unread))
    }

    /// What a statement resets that SQL executes by its name, or whichever that executes.
    fn runs(&self, name: &str, batch: u64) -> Result<Option<Arc<Resets>>, InDoubt> {
        let (mut name, mut before) = (name.to_owned(), name.to_owned());
        for step in 1..=EXECUTES_MAX {
            let Some(resets) = self.statements.get(name.as_bytes(), batch)? else { return Ok(None) };
            match resets.executes() {
                // They execute each other until PostgreSQL's stack ends, and change nothing.
                Some(next) if *next == *before => return Ok(None),
                Some(next) => next.clone_into(&mut name),
                None => return Ok(Some(Arc::clone(resets))),
            }
            if step.is_power_of_two() {
                before.clone_from(&name);
            }
        }
        Err(InDoubt)
    }

    /// A command of the request in front is complete.
    fn completed(&mut self, tag: &[u8], front: Request, note: Option<&Note>) {
        match tag {
            b"COMMIT\0" | b"PREPARE TRANSACTION\0" => return self.standings.committed(),
            b"SAVEPOINT\0" => return self.standings.savepoint_set(),
            _ => {}
        }
        let read = match (note, front) {
            (Some(Note::Startup(Noted::Resets(resets))), Request::Query) => resets.get(self.complete),
            (Some(Note::Startup(Noted::Resets(resets))), _) => resets.get(0),
            _ => None,
        };
        let read = read.filter(|change| change.has_tag(tag));
        self.complete += usize::from(read.is_some() && front == Request::Query);
        // Its text was too long to be read, or the statement was prepared out of our sight.
        let unread = Change::of_tag(tag);
        let is_unread = read.is_none();
        let change = read.unwrap_or(&unread);
        match change {
            Change::RollbackToSavepoint => return self.standings.gone_back(),
            Change::Rollback if is_unread => return self.standings.perhaps_gone_back(),
            Change::Rollback => return self.standings.rolled_back(),
            _ if is_unread && tag == b"SET\0" && self.standings.have_local() => return self.standings.lose(),
            _ => {}
        }
        for value in self.values.iter() {
            if *change == Change::DiscardAll {
                self.standings.discarded(&value.name);
            } else if change.resets(&value.name) {
                self.standings.reset(&value.name);
            } else if change.sets(&value.name) {
                self.standings.set(&value.name);
            } else if change.sets_local(&value.name) {
                self.standings.set_local(&value.name);
            }
        }
    }

    /// PostgreSQL reports the server's default: the client's is another.
    pub(crate) fn takes_back(&self, name: &str, value: &[u8], defaults: &ParameterSet) -> bool {
        self.values.get(name).is_some_and(|own| own.reported && self.standings.is_reset(&own.name))
            && defaults.get(name).is_some_and(|default| *default.value == *value)
    }

    fn meanings(&mut self, kind: Kind) -> &mut Meanings {
        match kind {
            Kind::Statement => &mut self.statements,
            Kind::Portal => &mut self.portals,
        }
    }

    /// A message that gave a name was skipped, or failed.
    pub(crate) fn not_carried_out(&mut self, meaning: &Meaning) {
        self.meanings(meaning.kind).not_carried_out(meaning);
    }
}

pub(crate) enum Hindrance {
    /// What is owed has to come first.
    Unanswered,
    NameTooLong,
    TooMany,
    /// The query that would give values again begins the transaction that they count for from its beginning.
    TooLate,
    /// It goes on behind what takes back that values were given again.
    GoesOn,
    /// The client has gone back to a savepoint that may have the server's defaults.
    Lost,
}

/// Notes what a message makes of a name; nothing where something else was sent in its place.
fn note(owed: &mut OwedQueue, request: Request, meaning: impl FnOnce() -> Option<Meaning>) {
    if let Some(note) = owed.last_note(request, false)
        && let Some(meaning) = meaning()
    {
        *note = Some(Box::new(Note::Startup(Noted::Means(meaning))));
    }
}

fn note_resets(owed: &mut OwedQueue, request: Request, resets: Arc<Resets>) {
    if let Some(note) = owed.last_note(request, false) {
        *note = Some(Box::new(Note::Startup(Noted::Resets(resets))));
    }
}

/// The name that a Parse gives, and to what.
fn parsed<'a>(message: &Message<'a>) -> (&'a [u8], Option<Arc<Resets>>) {
    let body = message.body();
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    // One that is so long is not there as a whole, and not read.
    let text = body.get(end + 1..).filter(|_| message.present() == message.total);
    (&body[..end], text.map(text_of).and_then(Resets::of_statement))
}

impl Startup {
    /// The reply to a request has come that was noted.
    #[cold]
    pub(crate) fn answered(&mut self, noted: Noted) {
        match noted {
            Noted::Means(meaning) => self.meanings(meaning.kind).carried_out(meaning),
            Noted::GivenAgain(names) => names.iter().for_each(|name| self.standings.set(name)),
            Noted::Resets(_) => {}
        }
    }

    /// RESET, DISCARD ALL, SET, or the end of a transaction behind them is complete. Whether something is reset now.
    pub(crate) fn completes(&mut self, tag: &[u8], front: &Owed) -> bool {
        self.completed(tag, front.request, front.note.as_deref());
        !self.standings.is_empty()
    }

    /// What was reset is not, because the request failed. Whether a value that was given again may be taken back too.
    pub(crate) fn failed(&mut self) -> bool {
        self.standings.failed();
        self.complete = 0;
        !self.standings.is_empty()
    }

    pub(crate) fn forget_missing(&mut self) {
        self.missing = ParameterSet::default();
    }

    /// Whether this parameter is one of them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some()
    }

    /// What the client has again, and its server not yet.
    pub(crate) fn missing(&mut self) -> &mut ParameterSet {
        &mut self.missing
    }

    /// What a statement resets whose name is the server's own.
    pub(crate) fn means(&self, name: &[u8], batch: u64) -> Result<Option<Arc<Resets>>, InDoubt> {
        Ok(self.statements.get(name, batch)?.cloned())
    }

    /// What the batch has reset may have to be given again ahead of what reads parameters.
    pub(crate) fn resets(&self) -> bool {
        self.sending.resets()
    }

    /// What a transaction begins with was reset for good.
    pub(crate) fn is_too_late(&self) -> bool {
        TRANSACTION_BEGINS_WITH.iter().any(|name| self.standings.is_for_good(name))
    }

    /// Whether what the message makes of a name can be kept; answers for one that makes nothing of any.
    pub(crate) fn has_room(
        &self,
        message: &Message<'_>,
        bound: Option<&Arc<Resets>>,
        tracks: bool,
        batch: u64,
    ) -> bool {
        match message.tag {
            FrontendTag::Query if !tracks && !self.statements.are_none() => {
                let text = text_of(message.body());
                // What is not read anyway waits for its own answers.
                Resets::of_query(text).is_err() || self.read(text, false, batch).is_ok()
            }
            FrontendTag::Execute => self.executes(message.body(), batch).is_ok(),
            FrontendTag::Parse if !tracks => self.statements.has_room() || parsed(message).1.is_none(),
            FrontendTag::Bind => self.portals.has_room() || bound.is_none(),
            _ => true,
        }
    }

    /// Whether a request may not be sent, for what a ROLLBACK in it or ahead of it does to values that were given again within the
    /// transaction. `failed`: the transaction has.
    pub(crate) fn forbids(&self, message: &Message<'_>, failed: bool) -> Option<Hindrance> {
        if self.standings.are_lost() {
            return Some(Hindrance::Lost);
        }
        let undoes = message.tag == FrontendTag::Query
            && self.standings.are_undoable()
            && (message.present() < message.total
                || goes_on_behind_rollback(text_of(message.body()), failed || self.standings.have_local()));
        undoes.then_some(Hindrance::GoesOn)
    }

    /// They are all gone with their transactions.
    pub(crate) fn forget_portals(&mut self) {
        self.portals.gone();
    }

    /// What a batch has reset, by its replies, is to be given again: the values' names, and the statements.
    pub(crate) fn give_again(&mut self) -> Option<(Names, Vec<Vec<u8>>)> {
        self.sending.given_again();
        let names = self.standings.reset_names();
        let statements = self.values.settings_amid(|own| names.contains(&own.name));
        (!names.is_empty()).then_some((names, statements))
    }

    /// ReadyForQuery after a reset: what the client has again, of a server that stands at `there`.
    pub(crate) fn take_back(
        &mut self,
        status: TransactionStatus,
        there: &ParameterSet,
        defaults: &ParameterSet,
    ) -> ParameterSet {
        let mut back = ParameterSet::default();
        if status != TransactionStatus::Idle {
            let told = self.values.iter().filter(|own| own.reported && self.standings.is_told(&own.name));
            for there in told.filter_map(|own| there.get(&own.name)) {
                back.set(&there.name, &there.value, true);
            }
        }
        let reset = self.standings.ready(status);
        self.complete = 0;
        for own in self.values.iter().filter(|own| reset.contains(&own.name)) {
            let at_default =
                |default: &Parameter| there.get(&own.name).is_some_and(|there| there.value == default.value);
            if own.reported && !defaults.get(&own.name).is_some_and(at_default) {
                // Set to something else since.
                continue;
            }
            self.missing.set(&own.name, &own.value, own.reported);
            back.set(&own.name, &own.value, own.reported);
        }
        back
    }
}

/// A startup packet's parameters and what PostgreSQL has made of them, in PgBouncer's words (`varcache_apply`, `varcache_set_canonical`, src/varcache.c at 1.25.2).
fn described(packet: &[(Arc<str>, Arc<str>)], session: &ParameterSet) -> Vec<String> {
    if packet.is_empty() {
        return Vec::new();
    }
    let name = |name: &Arc<str>| session.get(name).map_or_else(|| Arc::clone(name), |own| Arc::clone(&own.name));
    let set = |(own, value): &(Arc<str>, Arc<str>)| format!("SET {}='{}'", name(own), value.replace('\'', "''"));
    let mut lines = vec![format!("varcache_apply: {};", packet.iter().map(set).collect::<Vec<_>>().join(";"))];
    for (own, value) in packet {
        if let Some(canonical) = session.get(own).filter(|canonical| *canonical.value != *value.as_bytes()) {
            let (name, made) = (name(own), String::from_utf8_lossy(&canonical.value));
            lines.push(format!("varcache_set_canonical: setting {name} to its canonical version {value} -> {made}"));
        }
    }
    lines
}
