//! What a client asked for in its startup packet: its session's defaults, which RESET goes back to.
//!
//! PostgreSQL's own session has other defaults, because servers are shared. So what a request takes back to them is read in its
//! text (`resets.rs`), or known by its command tag. At the ReadyForQuery the client has its startup values again, and is told of
//! them as PostgreSQL would tell; a server that stays with the client is brought to them before its next request.

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Target};
use weir_wire::{FrontendTag, TransactionStatus, write};

use crate::client::Session;
use crate::context::Context;
use crate::exchange::Message;
use crate::id::{ClientId, ServerId};
use crate::meanings::{InDoubt, Kind, Meaning, Meanings};
use crate::owed::{Note, Owed, OwedQueue, Request};
use crate::parameters::ParameterSet;
use crate::pool::Pool;
use crate::resets::{Change, Resets, Unread};
use crate::resetting::{Names, Noted, Sending, Standings};
use crate::server::{Hold, Server};
use crate::statements::{reads_nothing, text_of};

/// What PostgreSQL takes for a transaction as it begins (`StartTransaction`, src/backend/access/transam/xact.c at 18).
const TRANSACTION_BEGINS_WITH: [&str; 3] =
    ["default_transaction_deferrable", "default_transaction_isolation", "default_transaction_read_only"];

#[derive(Debug)]
pub(crate) struct Startup {
    /// What is not the server's own default, as PostgreSQL spells it.
    values: ParameterSet,
    /// Texts are read. Where only the application's name is at stake, the command tags are enough.
    reads: bool,
    sending: Sending,
    standings: Standings,
    /// Changes of the simple query in front that are complete.
    complete: usize,
    /// Values that the client has again, and its server not yet.
    missing: ParameterSet,
    /// Where names are the server's own.
    statements: Meanings,
    portals: Meanings,
}

impl Startup {
    /// `None` where a session has the server's own defaults.
    pub(crate) fn new(
        names: &[(Arc<str>, Arc<str>)],
        session: &ParameterSet,
        defaults: &ParameterSet,
    ) -> Option<Box<Self>> {
        let mut values = ParameterSet::default();
        for wanted in names.iter().filter_map(|(name, _)| session.get(name)) {
            if defaults.get(&wanted.name).is_none_or(|default| default.value != wanted.value) {
                values.set(&wanted.name, &wanted.value, wanted.reported);
            }
        }
        let reads = values.iter().any(|value| !value.name.eq_ignore_ascii_case("application_name"));
        (!values.is_empty()).then(|| {
            Box::new(Self {
                values,
                reads,
                sending: Sending::default(),
                standings: Standings::default(),
                complete: 0,
                missing: ParameterSet::default(),
                statements: Meanings::of(Kind::Statement),
                portals: Meanings::of(Kind::Portal),
            })
        })
    }

    /// Whether the texts of its requests have to be there as a whole.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.reads
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

    /// DEALLOCATE ALL or DISCARD ALL.
    pub(crate) fn deallocated_all(&mut self) {
        self.statements.gone();
    }

    /// A request is on its way to the server. `bound`: what the statement resets that it binds; `tracks`: names are ours.
    pub(crate) fn sent(
        &mut self,
        message: &Message<'_>,
        bound: Option<Arc<Resets>>,
        tracks: bool,
        server: &mut Server,
    ) {
        let batch = server.owed.batch();
        match message.tag {
            FrontendTag::Query => self.sent_query(message.body(), server),
            FrontendTag::Sync | FrontendTag::FunctionCall if self.sending.ends() => server.hold = Hold::Reset,
            FrontendTag::Parse if !tracks => {
                let (name, resets) = parsed(message);
                note(server, Request::Parse, || self.statements.sends(name, resets, batch));
            }
            FrontendTag::Bind => {
                let Some(names) = BindNames::parse(message.body()) else { return };
                note(server, Request::Bind, || self.portals.sends(names.portal, bound, batch));
            }
            FrontendTag::Close => match Target::parse(message.body()) {
                Ok(Target::Portal(name)) => note(server, Request::Close, || self.portals.sends(name, None, batch)),
                Ok(Target::Statement(name)) if !tracks => {
                    note(server, Request::Close, || self.statements.sends(name, None, batch));
                }
                _ => {}
            },
            FrontendTag::Execute => {
                let resets = self.executes(message.body(), batch).ok().flatten().map(Arc::clone);
                let resets_own = |resets: &Arc<Resets>| self.values.iter().any(|value| resets.resets(&value.name));
                self.sending.executes(!self.standings.is_empty() || resets.as_ref().is_some_and(resets_own));
                let Some(resets) = resets else { return };
                if let Some(note) = server.owed.last_note(Request::Execute, false) {
                    *note = Some(Box::new(Note::Startup(Noted::Resets(resets))));
                }
            }
            _ => {}
        }
    }

    /// It ends a batch in front of it too.
    fn sent_query(&mut self, body: &[u8], server: &mut Server) {
        if self.sending.ends() {
            server.hold = Hold::Reset;
        }
        match body.strip_suffix(b"\0").ok_or(Unread).and_then(Resets::of_query) {
            Ok(None) => {}
            Ok(Some(resets)) => {
                server.hold = Hold::Reset;
                if let Some(note) = server.owed.last_note(Request::Query, false) {
                    *note = Some(Box::new(Note::Startup(Noted::Resets(resets))));
                }
            }
            // Whatever is sent behind it waits for what its replies tell.
            Err(Unread) => server.hold = Hold::Reset,
        }
    }

    /// What an Execute resets.
    fn executes(&self, body: &[u8], batch: u64) -> Result<Option<&Arc<Resets>>, InDoubt> {
        let portal = body.split(|&byte| byte == 0).next().unwrap_or_default();
        self.portals.get(portal, batch)
    }

    /// A command of the request in front is complete.
    fn completed(&mut self, tag: &[u8], front: Request, note: Option<&Note>) {
        if matches!(tag, b"COMMIT\0" | b"PREPARE TRANSACTION\0") {
            return self.standings.committed();
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
        let change = read.unwrap_or(&unread);
        if *change == Change::Rollback {
            return self.standings.undone();
        }
        for value in self.values.iter() {
            if *change == Change::DiscardAll {
                self.standings.discarded(&value.name);
            } else if change.resets(&value.name) {
                self.standings.reset(&value.name);
            } else if change.sets(&value.name) {
                self.standings.set(&value.name);
            }
        }
    }

    /// PostgreSQL reports the server's default: the client's is another.
    pub(crate) fn takes_back(&self, name: &str, value: &[u8], defaults: &ParameterSet) -> bool {
        self.values.get(name).is_some_and(|own| own.reported && self.standings.is_reset(&own.name))
            && defaults.get(name).is_some_and(|default| *default.value == *value)
    }

    /// The encoding that its values are in, as PostgreSQL has told them.
    fn encoding<'a>(&'a self, defaults: &'a ParameterSet) -> &'a [u8] {
        match self.values.encoding() {
            b"" => defaults.encoding(),
            encoding => encoding,
        }
    }

    /// Whether a session that has these, some of them given again, has a text that was told in another encoding.
    fn mistakes(&self, parameters: &ParameterSet, defaults: &ParameterSet) -> bool {
        parameters.foreign_texts().any(|told| match self.missing.get(&told.name) {
            Some(_) => parameters.encoding() != self.encoding(defaults),
            None => self.missing.has_encoding(),
        })
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

/// Notes what a message makes of a name; nothing where something else was sent in its place.
fn note(server: &mut Server, request: Request, meaning: impl FnOnce() -> Option<Meaning>) {
    if let Some(note) = server.owed.last_note(request, false)
        && let Some(meaning) = meaning()
    {
        *note = Some(Box::new(Note::Startup(Noted::Means(meaning))));
    }
}

/// The name that a Parse gives, and to what.
fn parsed<'a>(message: &Message<'a>) -> (&'a [u8], Option<Arc<Resets>>) {
    let body = message.body();
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    // One that is so long is not there as a whole, and not read.
    let text = body.get(end + 1..).filter(|_| message.present() == message.total);
    // PostgreSQL prepares no more than one statement.
    (&body[..end], text.map(text_of).and_then(Resets::of_text).filter(|resets| resets.is_one()))
}

impl Session {
    /// What the statement resets that this message binds.
    pub(crate) fn binds_reset(
        &self,
        message: &Message<'_>,
        tracks: bool,
        owed: &OwedQueue,
    ) -> Result<Option<Arc<Resets>>, InDoubt> {
        let (FrontendTag::Bind, Some(names), Some(startup)) =
            (message.tag, BindNames::parse(message.body()), self.startup.as_ref())
        else {
            return Ok(None);
        };
        Ok(match (tracks, names.statement) {
            (false, name) => startup.statements.get(name, owed.batch())?.cloned(),
            (true, b"") => Resets::of_text(text_of(self.unnamed.last())),
            (true, name) => self.statements.get(name).and_then(|held| held.statement.resets.clone()),
        })
    }

    /// Whether the message does what the session's parameters count for. What resets them, or parses what has no literals, is
    /// not held up: DISCARD ALL and VACUUM may not run behind another statement of ours in their batch.
    fn reads_parameters(&self, message: &Message<'_>, tracks: bool, owed: &OwedQueue) -> bool {
        let body = message.body();
        let name_end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
        match message.tag {
            FrontendTag::Parse => !reads_nothing(body.get(name_end + 1..).unwrap_or_default()),
            FrontendTag::Bind => matches!(self.binds_reset(message, tracks, owed), Ok(None)),
            FrontendTag::Describe | FrontendTag::Query | FrontendTag::FunctionCall => true,
            FrontendTag::Execute => {
                self.startup.as_ref().is_some_and(|startup| matches!(startup.executes(body, owed.batch()), Ok(None)))
            }
            _ => false,
        }
    }

    /// What hinders a message from being sent whose name may reset something.
    pub(crate) fn hinders(&mut self, message: &Message<'_>, tracks: bool, server: &Server) -> Option<Hindrance> {
        if message.tag == FrontendTag::Bind && BindNames::parse(message.body()).is_none() {
            return Some(Hindrance::NameTooLong);
        }
        let Ok(bound) = self.binds_reset(message, tracks, &server.owed) else { return Some(Hindrance::Unanswered) };
        let startup = self.startup.as_ref()?;
        if startup.sending.resets() && self.reads_parameters(message, tracks, &server.owed) {
            if !server.owed.is_empty() {
                return Some(Hindrance::Unanswered);
            }
            if TRANSACTION_BEGINS_WITH.iter().any(|name| startup.standings.is_for_good(name)) {
                return Some(Hindrance::TooLate);
            }
        }
        let startup = self.startup.as_mut()?;
        let has_room = match message.tag {
            FrontendTag::Execute if startup.executes(message.body(), server.owed.batch()).is_err() => false,
            FrontendTag::Parse if !tracks => startup.statements.has_room() || parsed(message).1.is_none(),
            FrontendTag::Bind => startup.portals.has_room() || bound.is_none(),
            _ => true,
        };
        match has_room {
            true => None,
            false if !server.owed.is_empty() => Some(Hindrance::Unanswered),
            false
                if message.tag == FrontendTag::Bind
                    && server.owed.settled()
                    && server.status == TransactionStatus::Idle =>
            {
                // They are all gone with their transactions.
                startup.portals.gone();
                None
            }
            false => Some(Hindrance::TooMany),
        }
    }

    /// What a batch has reset, by its replies, is to be given again ahead of a message that reads parameters: the values' names, and
    /// the query.
    pub(crate) fn gives_again(
        &mut self,
        message: &Message<'_>,
        tracks: bool,
        owed: &OwedQueue,
    ) -> Option<(Names, Vec<u8>)> {
        if !self.startup.as_ref()?.sending.resets() || !self.reads_parameters(message, tracks, owed) {
            return None;
        }
        let startup = self.startup.as_mut()?;
        startup.sending.given_again();
        let names = startup.standings.reset_names();
        let query = startup.values.settings(|own| names.contains(&own.name));
        (!names.is_empty()).then_some((names, query))
    }
}

pub(crate) enum Hindrance {
    /// What is owed has to come first.
    Unanswered,
    NameTooLong,
    TooMany,
    /// The query that would give values again begins the transaction that they count for from its beginning.
    TooLate,
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

    /// What was reset is not, because the request failed.
    pub(crate) fn failed(&mut self) {
        self.standings.undone();
        self.complete = 0;
    }

    pub(crate) fn forget_missing(&mut self) {
        self.missing = ParameterSet::default();
    }
}

impl Session {
    /// ReadyForQuery after a reset: it has its startup values again, and is told so. False where no server's session can be made like
    /// its own any more.
    pub(crate) fn take_back(
        &mut self,
        id: ClientId,
        server: &Server,
        status: TransactionStatus,
        defaults: &ParameterSet,
        cx: &mut Context,
    ) -> bool {
        let Some(startup) = &mut self.startup else { return true };
        let reset = startup.standings.ready(status);
        startup.complete = 0;
        let mut parameters = None;
        for own in startup.values.iter().filter(|own| reset.contains(&own.name)) {
            let at_default = |default: &crate::parameters::Parameter| {
                server.parameters.get(&own.name).is_some_and(|there| there.value == default.value)
            };
            if own.reported && !defaults.get(&own.name).is_some_and(at_default) {
                // Set to something else since.
                continue;
            }
            startup.missing.set(&own.name, &own.value, own.reported);
            if self.parameters.get(&own.name).is_none_or(|told| told.value != own.value) {
                let set = parameters.get_or_insert_with(|| (*self.parameters).clone());
                set.set(&own.name, &own.value, own.reported);
                cx.out.send(id, |out| write::parameter_status(out, &own.name, &own.value));
            }
        }
        if let Some(parameters) = parameters {
            self.parameters = cx.parameter_sets.intern(parameters);
        }
        !startup.mistakes(&self.parameters, defaults)
    }

    /// The server stays with the client: it gets what is missing before the client's next request. False where that is
    /// nothing.
    pub(crate) fn give_missing(&mut self, id: ServerId, server: &mut Server, pool: &Pool, cx: &mut Context) -> bool {
        let (Some(startup), Some(welcome)) = (&mut self.startup, &pool.welcome) else { return false };
        if server.cancel_is_on_its_way() {
            // It would hit this query of ours.
            server.hold = Hold::Reset;
            return false;
        }
        if startup.missing.is_empty() {
            return false;
        }
        if server.status == TransactionStatus::Failed {
            // PostgreSQL takes nothing before its end.
            server.hold = Hold::Reset;
            return false;
        }
        let missing = std::mem::take(&mut startup.missing);
        if missing.is_ascii() {
            server.hold = Hold::Parameters;
            // A simple query would take the unnamed statement and portal away.
            server.run_ahead(id, missing.settings(|_| true), cx);
            server.sync_ours(id, cx);
            return true;
        }
        let encoding = startup.encoding(&welcome.defaults);
        let (have, mut messages) = (server.parameters.reported_only(), 0);
        cx.out.send(id, |out| messages = have.write_again(&missing, encoding, pool.server_encoding(), out));
        for _ in 0..messages {
            server.owe_own_query();
        }
        if messages > 0 {
            server.hold = Hold::Parameters;
        }
        messages > 0
    }
}
