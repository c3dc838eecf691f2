//! What must come back, and whether it does: each reply to its asker, in order, once.

use std::collections::VecDeque;

use weir_core::contract::LINGER;
use weir_wire::backend::{self, ErrorFields};
use weir_wire::{BackendTag, HEADER_LEN, Header};

use super::names::{Effect, Step};
use super::sharded::Change;
use super::{Action, Client, Phase, Role, Stage};
use crate::postgres::held::Thing;
use crate::postgres::language::Tag;
use crate::postgres::modes::Said;
use crate::postgres::sharded::Place;
use crate::postgres::{NOISE, UNREPORTED};

/// One thing that must come.
#[derive(Debug, Clone)]
pub enum Expect {
    /// A message of which only the type matters.
    Message(BackendTag),
    ParseComplete {
        name: String,
    },
    /// Where a cancel comes first, the statement is not closed.
    CloseComplete {
        name: String,
    },
    /// What the parameters of this statement are, of which the second one's type is the table's.
    Types {
        name: String,
    },
    Rows {
        tag: Tag,
        next: u32,
        until: u32,
        bytes: u32,
    },
    /// The notice that signs a command.
    Signed(Tag),
    /// CommandComplete with one of these texts.
    Command(&'static [&'static str]),
    Selected(u32),
    /// `ahead`: a Sync that the copy swallows was sent before the data.
    CopyIn {
        data: Vec<u8>,
        sync_on_failure: Vec<u8>,
        ahead: u32,
    },
    CopyOut {
        tag: Tag,
        next: u32,
        until: u32,
    },
    Copied(u32),
    Error(Tag),
    /// An error of this SQLSTATE about a name.
    Refused(&'static str),
    /// The row of a statement that was parsed under this TimeZone.
    Zone {
        tag: Tag,
        zone: String,
    },
    /// Whatever comes for this message, once all before it is answered.
    Step(Step),
    /// Nothing comes: what was answered has changed this.
    Effect(Effect),
    /// Nothing comes: what was answered has made this, or taken it away.
    Held {
        thing: Thing,
        makes: bool,
    },
    /// Nothing comes: so many Syncs ahead of a copy. They count once it is clear whether there is one.
    SyncsAhead(u32),
    /// A row of a cluster's table, with its key if that is the client's own.
    Spread {
        tag: Tag,
        place: Option<Place>,
    },
    /// Nothing comes: what was answered has changed this.
    Change(Change),
    /// SET, or the error that it comes too late.
    Modes(Said),
    /// Nothing comes: at this point more is sent.
    Then(Vec<u8>),
    Ready,
    /// Whatever comes, up to ReadyForQuery: the console's answers.
    Anything,
}

/// A request up to its ReadyForQuery.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    pub bytes: Vec<u8>,
    pub expects: VecDeque<Expect>,
    pub first: u32,
    pub last: u32,
    /// Sent only when everything before it is answered.
    pub wait: bool,
    pub pause_after_us: u64,
    pub cancel_after_us: Option<u64>,
    pub pause_reading_us: Option<u64>,
    pub vanish_after_bytes: Option<usize>,
    /// Sent only if this statement is prepared.
    pub requires: Option<String>,
    /// Where a Bind says what its client takes the second value's type for, and the statement's name.
    pub believes: Option<(usize, String)>,
    /// The table's types when it was sent.
    pub types: u32,
    /// The server may end the session here.
    pub fatal: bool,
    /// The parameter that it sets, in PostgreSQL's spelling.
    pub sets: Option<(&'static str, String)>,
    pub failed: bool,
    /// The longest of its first messages.
    pub longest: u32,
    /// Made of messages that rely on earlier ones.
    pub batch: bool,
    /// A simple query.
    pub simple: bool,
    /// It says what a transaction is, or ends it, and asks nothing.
    pub plain: bool,
    /// Syncs ahead of a copy that has begun.
    pub ahead: u32,
    /// Perhaps there is none: a cancel has hit a copy, and nobody knows which of the Syncs ahead it had swallowed.
    pub doubtful: bool,
}

impl Exchange {
    /// The answer to a Sync beside others.
    pub fn only_ready(statement: u32) -> Self {
        Self { expects: VecDeque::from([Expect::Ready]), first: statement, last: statement, ..Self::default() }
    }
}

impl Exchange {
    /// Whether its client may end its side behind it: nothing is sent when a part of the reply has come, and all of it is read
    /// while a driver still waits for that.
    pub fn may_be_last(&self) -> bool {
        let sends_more = self.expects.iter().any(|expect| matches!(expect, Expect::Then(_) | Expect::CopyIn { .. }));
        !sends_more && self.pause_reading_us.is_none_or(|pause| pause < LINGER.0 / 2)
    }
}

impl Client {
    pub fn receive(&mut self, stage: &mut Stage, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut taken = 0;
        while stage.checks.violation.is_none() && self.link.is_some() {
            if matches!(self.phase, Phase::TlsAsked) {
                let Some(&answer) = self.input.get(taken) else { break };
                taken += usize::from(answer != BackendTag::ErrorResponse as u8);
                self.tls_answer(stage, answer);
                continue;
            }
            let Some(header) = self.input.get(taken..).and_then(<[u8]>::first_chunk::<HEADER_LEN>) else { break };
            let header = Header::parse(header);
            let Some(length) = header.body_len.filter(|length| *length < 1 << 24) else {
                let garbled = matches!(self.role, Role::Garbage { .. });
                if !garbled {
                    stage.checks.fail("nonsense to a client", format!("header {header:?}: {}", self.describe()));
                }
                break;
            };
            let (start, end) = (taken + HEADER_LEN, taken + HEADER_LEN + length as usize);
            let Some(body) = self.input.get(start..end) else { break };
            let body = body.to_vec();
            taken = end;
            self.message(stage, header.tag, &body);
        }
        self.input.drain(..taken.min(self.input.len()));
        if matches!(self.phase, Phase::Working) && self.link.is_some() {
            self.pump(stage);
        }
    }

    fn message(&mut self, stage: &mut Stage, tag: u8, body: &[u8]) {
        match (&self.phase, &self.role) {
            (_, Role::Canceller { .. }) => {
                // One whose request has not been read is among those who are told that the process ends, also where it has just come
                // to a worker that takes nobody any more.
                let told = tag == BackendTag::ErrorResponse as u8
                    && ErrorFields::parse(body).is_ok_and(|fields| matches!(fields.code, b"57P01" | b"57P03"));
                if !told {
                    stage.checks.fail("nonsense to a client", "an answer to a cancel request".to_owned());
                }
            }
            (Phase::Login { .. }, _) => self.login_message(stage, tag, body),
            (_, Role::Garbage { .. }) => {}
            // On its way out in the middle of a request: it looks at nothing any more.
            _ if self.vanish_at.is_some() && self.owed.is_empty() => {}
            _ => self.reply(stage, tag, body),
        }
    }

    fn reply(&mut self, stage: &mut Stage, tag: u8, body: &[u8]) {
        let Some(kind) = BackendTag::from_byte(tag) else {
            return stage.checks.fail("nonsense to a client", format!("message {:?}", tag as char));
        };
        let told = matches!(kind, BackendTag::ParameterStatus | BackendTag::NoticeResponse | BackendTag::ReadyForQuery);
        while !told && self.owed.front().is_some_and(|exchange| exchange.doubtful) {
            self.owed.pop_front();
        }
        self.unfold();
        match kind {
            BackendTag::ErrorResponse => self.error(stage, body),
            BackendTag::ParameterStatus => self.hear_parameter(stage, body),
            BackendTag::NoticeResponse => self.notice(stage, body),
            BackendTag::NotificationResponse => self.notified(stage, body),
            BackendTag::ReadyForQuery => self.ready(stage, body),
            _ => self.expected(stage, kind, body),
        }
        self.send_continuation(stage);
    }

    /// Turns the next message of a batch into what must come for it, now that all before it is answered.
    fn unfold(&mut self) {
        loop {
            let Some(expects) = self.owed.front_mut().map(|exchange| &mut exchange.expects) else { return };
            match expects.front() {
                Some(Expect::Step(_) | Expect::Effect(_) | Expect::Held { .. } | Expect::Change(_)) => {}
                Some(Expect::Rows { next, until, .. }) if next == until => {}
                _ => return,
            }
            match expects.pop_front() {
                Some(Expect::Step(step)) => {
                    for expect in self.names.answer(&step).into_iter().rev() {
                        expects.push_front(expect);
                    }
                }
                Some(Expect::Held { thing, makes }) => _ = self.held.change(&thing, makes),
                Some(Expect::Effect(effect)) => self.names.apply(effect, &self.model["TimeZone"]),
                Some(Expect::Change(change)) => self.change(change),
                _ => {}
            }
        }
    }

    pub(super) fn front(&mut self) -> Option<&mut Expect> {
        self.owed.front_mut()?.expects.front_mut()
    }

    pub(super) fn pop(&mut self) {
        if let Some(exchange) = self.owed.front_mut() {
            exchange.expects.pop_front();
        }
    }

    pub(super) fn wrong(&mut self, stage: &mut Stage, what: &str) {
        let text = format!("got {what}: {}", self.describe());
        stage.checks.fail("wrong reply", text);
    }

    fn expected(&mut self, stage: &mut Stage, kind: BackendTag, body: &[u8]) {
        let Some(expect) = self.front() else { return self.wrong(stage, &format!("{kind:?} unasked")) };
        let done = match expect {
            Expect::Anything => return,
            Expect::Message(wanted) => *wanted == kind,
            Expect::ParseComplete { name } if kind == BackendTag::ParseComplete => {
                let name = std::mem::take(name);
                self.statement_prepared(name);
                true
            }
            Expect::CloseComplete { name } if kind == BackendTag::CloseComplete => {
                let name = std::mem::take(name);
                self.prepared.remove(&name);
                true
            }
            Expect::Types { name } if kind == BackendTag::ParameterDescription => {
                let name = std::mem::take(name);
                self.types_told(stage, &name, body)
            }
            Expect::Rows { next, until, .. } if next == until => {
                self.pop();
                return self.expected(stage, kind, body);
            }
            Expect::Rows { .. } if kind == BackendTag::DataRow => return self.row(stage, body),
            Expect::Zone { .. } if kind == BackendTag::DataRow => return self.zone_row(stage, body),
            Expect::Spread { .. } if kind == BackendTag::DataRow => return self.spread_row(stage, body),
            Expect::Modes(said) if kind == BackendTag::CommandComplete && body == b"SET\0" => {
                let said = *said;
                let takes = self.takes_modes(said);
                self.change(Change::Modes(said));
                takes
            }
            Expect::SyncsAhead(ahead) if kind == BackendTag::CopyInResponse => {
                let ahead = *ahead;
                self.copy_begins(ahead);
                true
            }
            Expect::Command(texts) if kind == BackendTag::CommandComplete => {
                let texts = *texts;
                let text = backend::command_tag(body).ok().and_then(|text| std::str::from_utf8(text).ok());
                let told = text.filter(|text| texts.contains(text));
                told.inspect(|text| self.command_done(stage, text)).is_some()
            }
            Expect::Selected(rows) => {
                kind == BackendTag::CommandComplete && body == format!("SELECT {rows}\0").as_bytes()
            }
            Expect::Copied(rows) => kind == BackendTag::CommandComplete && body == format!("COPY {rows}\0").as_bytes(),
            Expect::CopyIn { data, ahead, .. } if kind == BackendTag::CopyInResponse => {
                let (data, ahead) = (std::mem::take(data), *ahead);
                return self.feed_copy(stage, data, ahead);
            }
            Expect::CopyOut { tag, next, until } if kind == BackendTag::CopyData => {
                let right = std::str::from_utf8(body).is_ok_and(|line| line.starts_with(&format!("tag={tag} {next} ")));
                if right && next < until {
                    *next += 1;
                    return;
                }
                false
            }
            Expect::CopyOut { next, until, .. } => kind == BackendTag::CopyDone && next == until,
            _ => false,
        };
        if done {
            self.pop();
        } else {
            let text = format!("{kind:?} {:?}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            self.wrong(stage, &text);
        }
    }

    pub(super) fn copy_begins(&mut self, ahead: u32) {
        if let Some(exchange) = self.owed.front_mut() {
            exchange.ahead = ahead;
        }
    }

    fn command_done(&mut self, stage: &mut Stage, text: &str) {
        match text {
            "BEGIN" | "START TRANSACTION" => self.explicit = true,
            "COMMIT" => {
                self.block_over();
                stage.counts.transactions += 1;
                self.writes.drain(..).for_each(|tag| stage.checks.committed_told(tag));
            }
            "ROLLBACK" => {
                self.block_over();
                self.roll_back_session();
                stage.counts.transactions += 1;
                self.writes.drain(..).for_each(|tag| stage.checks.rolled_back_told(tag));
            }
            "SET" | "DO" => {
                let sets = self.owed.front_mut().and_then(|exchange| exchange.sets.take());
                match sets {
                    // Each transaction begins anew with what the client named when it came in.
                    Some((UNREPORTED, _)) if !self.habits.keeps_server && !self.habits.keeps => {}
                    Some((name, value)) => drop(self.model.insert(name, value)),
                    None => {}
                }
            }
            _ => {}
        }
    }

    fn notified(&mut self, stage: &mut Stage, body: &[u8]) {
        let texts = body.get(4..).unwrap_or_default().split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let texts: Vec<_> = texts.take(2).collect();
        match texts.as_slice() {
            [channel, _] if channel == NOISE => {}
            [channel, payload] => {
                stage.counts.notified += 1;
                stage.checks.notified(self.number, channel, payload);
            }
            _ => stage.checks.fail("nonsense to a client", "NotificationResponse".to_owned()),
        }
    }

    fn notice(&mut self, stage: &mut Stage, body: &[u8]) {
        let fields = ErrorFields::parse(body).unwrap_or_default();
        let text = String::from_utf8_lossy(fields.message).into_owned();
        let Some(tag) = Tag::find(&text) else { return };
        match self.front() {
            Some(Expect::Signed(wanted)) if *wanted == tag => {
                let write = self.owed.front().is_some_and(|exchange| {
                    matches!(exchange.expects.get(1), Some(Expect::Command(texts)) if texts.contains(&"INSERT 0 1"))
                });
                if write {
                    self.writes.push(tag);
                }
                let next = self.owed.front().and_then(|exchange| exchange.expects.get(1));
                if matches!(next, Some(Expect::Command(texts)) if texts.contains(&"UPDATE 1")) {
                    self.may_write(stage);
                }
                self.pop();
            }
            _ => self.wrong(stage, &format!("notice {text:?}")),
        }
    }

    fn error(&mut self, stage: &mut Stage, body: &[u8]) {
        let Ok(fields) = ErrorFields::parse(body) else {
            return stage.checks.fail("nonsense to a client", "ErrorResponse".to_owned());
        };
        let message = String::from_utf8_lossy(fields.message).into_owned();
        let code = String::from_utf8_lossy(fields.code).into_owned();
        if let Some(Expect::Refused(planned)) = self.front()
            && *planned == code
            && !fields.ends_session()
        {
            return self.fail_exchange(stage);
        }
        if let Some(&mut Expect::Modes(said)) = self.front()
            && code == "25001"
            && !self.takes_modes(said)
        {
            return self.fail_exchange(stage);
        }
        if fields.ends_session() || Tag::find(&message).is_none() {
            return self.untagged_error(stage, &code, &message, fields.ends_session());
        }
        let tag = Tag::find(&message);
        let (reads, strict) = (self.is_read_only(), self.is_strict(stage));
        let Some(exchange) = self.owed.front_mut() else {
            return self.wrong(stage, &format!("error {code} {message} unasked"));
        };
        let (first, last, batch) = (exchange.first, exchange.last, exchange.batch);
        let (failed, ahead) = (exchange.failed, exchange.ahead);
        let within = |tag: Tag| batch || (first..=last).contains(&tag.number);
        let own = tag.is_some_and(|tag| tag.client == self.number && within(tag));
        let planned = matches!(exchange.expects.front(), Some(Expect::Error(planned)) if Some(*planned) == tag);
        let fits = match code.as_str() {
            "22012" | "22023" | "22P02" => planned,
            "25006" => reads,
            // The node could not ask the one that has the rows.
            "08006" => !strict,
            "0A000" => {
                self.told_of_change(stage);
                true
            }
            "XX000" | "25P02" | "55P03" | "57014" => true,
            _ => false,
        };
        if !own || !fits || failed {
            return self.wrong(stage, &format!("error {code} {message}"));
        }
        let in_doubt = if code == "57014" { ahead } else { 0 };
        self.fail_exchange(stage);
        self.doubt_syncs(in_doubt);
    }

    /// So many Syncs may be answered yet, behind those that are answered for certain.
    fn doubt_syncs(&mut self, count: u32) {
        let certain = |exchange: &&Exchange| matches!(exchange.expects.front(), Some(Expect::Ready));
        let place = self.owed.iter().take_while(certain).count();
        for _ in 0..count {
            let exchange = Exchange { doubtful: true, ..Exchange::only_ready(self.last_statement) };
            self.owed.insert(place, exchange);
        }
    }

    /// What came is the pooler's own word, or the server's last.
    fn untagged_error(&mut self, stage: &mut Stage, code: &str, message: &str, last: bool) {
        // Who waits for a server is taken out of the queue by a cancel.
        let by_cancel = code == "57014" && self.asked_cancel;
        let by_server = code == "57P01" && self.owed.front().is_some_and(|exchange| exchange.fatal);
        // The pooler keeps rows from a client that was told of others (as PostgreSQL does with a plan of its own).
        if code == "0A000" && !last && self.owed.front().is_some_and(|exchange| exchange.requires.is_some()) {
            self.told_of_change(stage);
            return self.fail_exchange(stage);
        }
        // A cancel has hit the pooler's question under which parameters the statement was parsed: nobody can tell on another server.
        if self.asked_cancel && code == "26000" && !last && self.awaits_statement() {
            let name = message.split('"').nth(1).unwrap_or_default();
            self.prepared.remove(name);
            self.names.lose(name);
            return self.fail_exchange(stage);
        }
        // A name that SQL may have given: what it takes away of the channels that another server hears is not known.
        if code == "0A000" && !last && message.starts_with("what this session listens to") && self.held.prepares() {
            return self.fail_exchange(stage);
        }
        // It is at a node for its transaction, or was and the pooler has work of its own there, or waits for one since before tables changed.
        let here = self.is_in_cluster(stage);
        if here && code == "0A000" && !last && message.starts_with("this statement is for the coordinator") {
            return self.fail_exchange(stage);
        }
        // Another's transaction keeps the table, and the statement's text has no tag.
        if code == "55P03" && !last {
            return self.fail_exchange(stage);
        }
        // A cancelled COMMIT leaves the transaction open, and what comes next may have no tag.
        if code == "25P02" && self.explicit {
            return self.fail_exchange(stage);
        }
        let too_long = code == "08P01" && message.starts_with("invalid length of message");
        let never = matches!(code, "26000" | "34000" | "42P05") || too_long && self.longest <= stage.plan.packets().1;
        let strict = self.is_strict(stage);
        // What code leaves that is changed where a reload has led away from is never learnt.
        let by_reload = code == "08006"
            && message.starts_with("what this session holds cannot be asked any more")
            && stage.plan.leads_elsewhere(&self.identity.database);
        // The pool has no room for a server that listens any more, or leads elsewhere.
        let unheard = code == "08006"
            && message.starts_with("the server connection that listened for this session was lost")
            && stage.has_reloaded();
        if self.role != Role::Console && (never || (strict && !by_server && !by_cancel && !by_reload && !unheard)) {
            return self.wrong(stage, &format!("error {code} {message}"));
        }
        stage.counts.pooler_errors.add(&format!("{code} {message}"));
        self.refused |= last;
        if !last {
            self.fail_exchange(stage);
        }
    }

    /// What comes next tells that a statement, prepared earlier, is there.
    fn awaits_statement(&mut self) -> bool {
        let requires = self.owed.front().is_some_and(|exchange| exchange.requires.is_some());
        requires || matches!(self.front(), Some(Expect::Message(BackendTag::BindComplete)))
    }

    /// Nothing but ReadyForQuery follows; what was to be sent later in this exchange still is.
    fn fail_exchange(&mut self, stage: &mut Stage) {
        self.aborted |= self.explicit;
        let Some(exchange) = self.owed.front_mut() else { return };
        exchange.failed = true;
        let mut syncs = 0;
        for expect in exchange.expects.drain(..) {
            match expect {
                Expect::Then(bytes) => stage.actions.push(Action::Send(bytes)),
                Expect::CopyIn { sync_on_failure, .. } if !sync_on_failure.is_empty() => {
                    stage.actions.push(Action::Send(sync_on_failure));
                }
                // There was no copy that could swallow them.
                Expect::SyncsAhead(ahead) => syncs = ahead,
                _ => {}
            }
        }
        exchange.expects.push_back(Expect::Ready);
        let last = exchange.last;
        for _ in 0..syncs {
            self.owed.insert(1, Exchange::only_ready(last));
        }
    }

    fn send_continuation(&mut self, stage: &mut Stage) {
        while let Some(Expect::Rows { next, until, .. }) = self.front()
            && next == until
        {
            self.pop();
        }
        if let Some(Expect::Then(bytes)) = self.front() {
            let bytes = std::mem::take(bytes);
            stage.actions.push(Action::Send(bytes));
            self.pop();
        }
    }
}
