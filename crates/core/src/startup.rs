//! What a client asked for in its startup packet: its session's defaults, which RESET goes back to.
//!
//! PostgreSQL's own session has other defaults, because servers are shared. So what a request takes back to them is read in its
//! text (`resets.rs`), or known by its command tag. At the ReadyForQuery the client has its startup values again, and is told of
//! them as PostgreSQL would tell; a server that stays with the client is brought to them before its next request.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::frontend::BindNames;
use weir_wire::{FrontendTag, TransactionStatus, write};

use crate::client::Session;
use crate::id::ConnId;
use crate::owed::Note;
use crate::parameters::ParameterSet;
use crate::requests::Message;
use crate::resets::Resets;
use crate::server::Hold;
use crate::statements::{reads_nothing, text_of};
use crate::worker::Worker;

/// Prepared statements of one client that are known to reset something, and the longest of their names.
const STATEMENTS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Startup {
    /// What is not the server's own default, as PostgreSQL spells it.
    values: ParameterSet,
    /// Texts are read. Where only the application's name is at stake, the command tags are enough.
    reads: bool,
    /// What the request under way has reset.
    done: Resets,
    /// Values that the client has again, and its server not yet.
    missing: ParameterSet,
    /// Prepared statements that reset something, where names are the server's own; and the portals of this batch that do.
    statements: BTreeMap<Box<[u8]>, Arc<Resets>>,
    portals: BTreeMap<Box<[u8]>, Arc<Resets>>,
    /// What was executed of them: what follows in the batch would run under the server's defaults.
    executed: Resets,
    /// What of that was given back within the batch: what is set since is the client's own.
    given: Resets,
    /// Something was, in this batch.
    resets: bool,
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
        let (done, executed, given) = (Resets::default(), Resets::default(), Resets::default());
        let missing = ParameterSet::default();
        let (statements, portals) = (BTreeMap::new(), BTreeMap::new());
        (!values.is_empty()).then(|| {
            Box::new(Self { values, reads, done, missing, statements, portals, executed, given, resets: false })
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

    /// A request is on its way to the server: what it resets. `bound`: what the statement resets that it binds.
    fn sent(&mut self, message: &Message<'_>, bound: Option<Arc<Resets>>, hold: &mut Hold) -> Option<Note> {
        if matches!(message.tag, FrontendTag::Query | FrontendTag::Sync) {
            self.executed = Resets::default();
        }
        match message.tag {
            FrontendTag::Query => {
                let resets = Resets::of_text(message.body().strip_suffix(b"\0")?)?;
                *hold = Hold::Reset;
                Some(Note::Resets(resets))
            }
            FrontendTag::Bind if bound.is_some() || !self.portals.is_empty() => {
                self.bound(BindNames::parse(message.body())?.portal, bound);
                None
            }
            FrontendTag::Execute => {
                let resets = Arc::clone(self.executes(message.body())?);
                self.executed.and(&resets);
                self.given = Resets::default();
                self.resets = true;
                Some(Note::Resets(resets))
            }
            FrontendTag::Sync if self.resets => {
                self.resets = false;
                self.portals.clear();
                *hold = Hold::Reset;
                None
            }
            _ => None,
        }
    }

    fn bound(&mut self, portal: &[u8], resets: Option<Arc<Resets>>) {
        self.portals.remove(portal);
        let kept = portal.len() <= NAME_BYTES_MAX && self.portals.len() < STATEMENTS_MAX;
        if let Some(resets) = resets.filter(|_| kept) {
            self.portals.insert(portal.into(), resets);
        }
    }

    /// What an Execute resets.
    fn executes(&self, body: &[u8]) -> Option<&Arc<Resets>> {
        self.portals.get(body.split(|&byte| byte == 0).next()?)
    }

    /// The query that brings a server to the startup values again, in the batch that has reset them.
    fn again(&mut self) -> Option<Vec<u8>> {
        let executed = std::mem::take(&mut self.executed);
        self.given.and(&executed);
        Some(self.values.settings(|own| executed.covers(&own.name))).filter(|sql| !sql.is_empty())
    }

    /// A name of the server's own is given to a statement.
    fn prepared(&mut self, body: &[u8]) {
        let Some(end) = body.iter().position(|&byte| byte == 0) else {
            // The name may be that of another statement now.
            return self.statements.clear();
        };
        let (name, text) = (&body[..end], text_of(&body[end + 1..]));
        if !self.statements.is_empty() {
            self.statements.remove(name);
        }
        let kept = name.len() <= NAME_BYTES_MAX && self.statements.len() < STATEMENTS_MAX;
        if let Some(resets) = Resets::of_text(text).filter(|_| kept) {
            self.statements.insert(name.into(), resets);
        }
    }

    /// A command of the request in front is complete.
    fn completed(&mut self, tag: &[u8], note: Option<&Note>) {
        match note {
            Some(Note::Resets(resets)) => self.done.and(resets),
            // Its text was too long to be read, or the statement was prepared out of our sight.
            _ => self.done.and(&Resets::of_tag(tag)),
        }
    }

    /// PostgreSQL reports the server's default: the client's is another.
    fn takes_back(&self, name: &str, value: &[u8], defaults: &ParameterSet) -> bool {
        self.done.covers(name)
            && !self.given.covers(name)
            && self.values.get(name).is_some_and(|own| own.reported)
            && defaults.get(name).is_some_and(|default| *default.value == *value)
    }
}

impl Session {
    /// Nothing that was reset is to be given back in this batch.
    fn resets_stand(&self) -> bool {
        self.startup.as_ref().is_none_or(|startup| startup.executed.is_nothing())
    }

    /// What the statement resets that this message binds.
    fn binds_reset(&self, message: &Message<'_>, tracks: bool) -> Option<Arc<Resets>> {
        if message.tag != FrontendTag::Bind {
            return None;
        }
        let name = BindNames::parse(message.body())?.statement;
        match (tracks, name) {
            (false, name) => self.startup.as_ref()?.statements.get(name).cloned(),
            (true, b"") => Resets::of_text(text_of(self.unnamed.last())),
            (true, name) => self.statements.get(name)?.statement.resets.clone(),
        }
    }

    /// Whether the message does what the session's parameters count for. What resets them, or parses what has no literals, is
    /// not held up: DISCARD ALL and VACUUM may not run behind another statement of ours in their batch.
    fn reads_parameters(&self, message: &Message<'_>, tracks: bool) -> bool {
        let body = message.body();
        let name_end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
        match message.tag {
            FrontendTag::Parse => !reads_nothing(body.get(name_end + 1..).unwrap_or_default()),
            FrontendTag::Bind => self.binds_reset(message, tracks).is_none(),
            FrontendTag::Describe => true,
            FrontendTag::Execute => self.startup.as_ref().is_some_and(|startup| startup.executes(body).is_none()),
            _ => false,
        }
    }
}

impl Worker {
    /// A request went to the server: what it resets is noted with the reply that is owed. `tracks`: names are ours.
    pub(crate) fn read_resets(&mut self, client: ConnId, id: ConnId, message: &Message<'_>, tracks: bool) {
        let (Some(client), Some(server)) = (self.clients.get_mut(client), self.servers.get_mut(id)) else { return };
        let Some(session) = client.session_mut() else { return };
        let bound = session.binds_reset(message, tracks);
        let Some(startup) = session.startup.as_mut() else { return };
        if message.tag == FrontendTag::Parse && !tracks {
            startup.prepared(message.body());
        }
        if let Some(note) = startup.sent(message, bound, &mut server.hold) {
            server.owed.note_last(note);
        }
    }

    /// RESET, DISCARD ALL or SET is complete.
    pub(crate) fn reset_completed(&mut self, id: ConnId, tag: &[u8]) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let client = server.client().and_then(|client| self.clients.get_mut(client));
        let startup = client.and_then(|client| client.session_mut()).and_then(|session| session.startup.as_mut());
        if let (Some(startup), Some(front)) = (startup, server.owed.front().filter(|owed| !owed.ours)) {
            startup.completed(tag, front.note.as_deref());
            if !startup.done.is_nothing() {
                server.hold = Hold::Reset;
            }
        }
    }

    /// What was reset is not, because the request failed; but PostgreSQL commits a DISCARD ALL at once
    /// (`XACT_FLAGS_NEEDIMMEDIATECOMMIT`, src/backend/tcop/postgres.c at 15).
    pub(crate) fn reset_failed(&mut self, client: ConnId) {
        let session = self.clients.get_mut(client).and_then(|client| client.session_mut());
        if let Some(startup) = session.and_then(|session| session.startup.as_mut()) {
            startup.done = startup.done.committed();
            startup.given = Resets::default();
        }
    }

    /// Where a batch has reset something, what follows in it runs under the session's defaults, not the server's.
    pub(crate) fn take_back_ahead_of(&mut self, client: ConnId, id: ConnId, message: &Message<'_>, tracks: bool) {
        let Some(session) = self.clients.get_mut(client).and_then(|client| client.session_mut()) else { return };
        if session.resets_stand() || !session.reads_parameters(message, tracks) {
            return;
        }
        if let Some(settings) = session.startup.as_mut().and_then(|startup| startup.again()) {
            self.run_ahead(id, settings);
        }
    }

    /// Whether the client is not to hear of this, because it has its startup value again.
    pub(crate) fn is_taken_back(&self, client: ConnId, name: &str, value: &[u8]) -> bool {
        let Some(client) = self.clients.get(client) else { return false };
        let Some(startup) = client.session().and_then(|session| session.startup.as_ref()) else { return false };
        let Some(welcome) = &self.pools[client.pool].welcome else { return false };
        startup.takes_back(name, value, &welcome.defaults)
    }

    /// ReadyForQuery after a reset: the session has its startup values again.
    pub(crate) fn take_back(&mut self, id: ConnId, client_id: ConnId) {
        let (Some(server), Some(client)) = (self.servers.get(id), self.clients.get_mut(client_id)) else { return };
        let Some(welcome) = &self.pools[client.pool].welcome else { return };
        let Some(session) = client.session_mut() else { return };
        let Some(startup) = &mut session.startup else { return };
        let (done, given) = (std::mem::take(&mut startup.done), std::mem::take(&mut startup.given));
        let mut parameters = None;
        for own in startup.values.iter().filter(|own| done.covers(&own.name) && !given.covers(&own.name)) {
            let at_default = |default: &crate::parameters::Parameter| {
                server.parameters.get(&own.name).is_some_and(|there| there.value == default.value)
            };
            if own.reported && !welcome.defaults.get(&own.name).is_some_and(at_default) {
                // Set to something else since.
                continue;
            }
            startup.missing.set(&own.name, &own.value, own.reported);
            if session.parameters.get(&own.name).is_none_or(|told| told.value != own.value) {
                let set = parameters.get_or_insert_with(|| (*session.parameters).clone());
                set.set(&own.name, &own.value, own.reported);
                self.out.send(client_id, |out| write::parameter_status(out, &own.name, &own.value));
            }
        }
        if let Some(parameters) = parameters {
            session.parameters = self.parameter_sets.intern(parameters);
        }
    }

    pub(crate) fn forget_missing(&mut self, client: ConnId) {
        let session = self.clients.get_mut(client).and_then(|client| client.session_mut());
        if let Some(startup) = session.and_then(|session| session.startup.as_mut()) {
            startup.missing = ParameterSet::default();
        }
    }

    /// The server stays with the client: it gets what is missing before the client's next request. False where that is
    /// nothing.
    pub(crate) fn give_missing(&mut self, id: ConnId, client: ConnId) -> bool {
        let (Some(server), Some(client)) = (self.servers.get_mut(id), self.clients.get_mut(client)) else {
            return false;
        };
        let encoding = self.pools[client.pool].server_encoding();
        let Some(startup) = client.session_mut().and_then(|session| session.startup.as_mut()) else { return false };
        if server.cancel_is_on_its_way() {
            // It would hit this query of ours.
            server.hold = Hold::Reset;
            return false;
        }
        let missing = std::mem::take(&mut startup.missing);
        if missing.is_empty() || server.status == TransactionStatus::Failed {
            return false;
        }
        if server.status == TransactionStatus::InTransaction && missing.is_ascii() {
            // A simple query would take the unnamed portal away.
            server.hold = Hold::Parameters;
            self.run_ahead(id, missing.settings(|_| true));
            self.sync_ours(id);
            return true;
        }
        let have = server.parameters.reported_only();
        let mut wanted = have.clone();
        missing.iter().for_each(|own| wanted.set(&own.name, &own.value, own.reported));
        let mut messages = 0;
        self.out.send(id, |out| messages = have.write_difference(&wanted, encoding, out));
        for _ in 0..messages {
            server.owe_own_query();
        }
        if messages > 0 {
            server.hold = Hold::Parameters;
        }
        messages > 0
    }
}
