//! What a client asked for in its startup packet: its session's defaults, which RESET goes back to.
//!
//! PostgreSQL's own session has other defaults, because servers are shared. So what a request takes back to them is read in its
//! text (`resets.rs`), or known by its command tag. At the ReadyForQuery the client has its startup values again, and is told of
//! them as PostgreSQL would tell; a server that stays with the client is brought to them before its next request.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::frontend::BindNames;
use weir_wire::{FrontendTag, TransactionStatus, write};

use crate::id::ConnId;
use crate::owed::Note;
use crate::parameters::ParameterSet;
use crate::requests::Message;
use crate::resets::Resets;
use crate::server::Hold;
use crate::worker::Worker;

/// Texts up to this size are read.
pub(crate) const TEXT_BYTES_MAX: usize = 8 * 1024;
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
    /// Prepared statements that reset something, and the portals of this batch that do.
    statements: BTreeMap<Box<[u8]>, Arc<Resets>>,
    portals: BTreeMap<Box<[u8]>, Arc<Resets>>,
    /// What was executed of them: what follows in the batch would run under the server's defaults.
    executed: Resets,
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
        let (done, executed, missing) = (Resets::default(), Resets::default(), ParameterSet::default());
        let (statements, portals) = (BTreeMap::new(), BTreeMap::new());
        (!values.is_empty()).then(|| Box::new(Self { values, reads, done, missing, statements, portals, executed }))
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

    /// A request is on its way to the server: what it resets.
    pub(crate) fn sent(&mut self, message: &Message<'_>, hold: &mut Hold) -> Option<Note> {
        let body = message.body();
        if matches!(message.tag, FrontendTag::Query | FrontendTag::Sync) {
            self.executed = Resets::default();
        }
        match message.tag {
            FrontendTag::Query => {
                let text = body.strip_suffix(b"\0")?;
                if Resets::are_absent(text) {
                    return None;
                }
                let resets = Resets::read(text);
                if resets.is_nothing() {
                    return None;
                }
                *hold = Hold::Reset;
                Some(Note::Resets(Arc::new(resets)))
            }
            FrontendTag::Parse => {
                self.prepared(body);
                None
            }
            FrontendTag::Bind if !self.statements.is_empty() || !self.portals.is_empty() => {
                if let Some(names) = BindNames::parse(body) {
                    self.bound(&names);
                }
                None
            }
            FrontendTag::Execute => {
                let resets = Arc::clone(self.executes(body)?);
                self.executed.and(&resets);
                Some(Note::Resets(resets))
            }
            FrontendTag::Sync if !self.portals.is_empty() => {
                self.portals.clear();
                *hold = Hold::Reset;
                None
            }
            _ => None,
        }
    }

    fn bound(&mut self, names: &BindNames<'_>) {
        self.portals.remove(names.portal);
        let kept = names.portal.len() <= NAME_BYTES_MAX && self.portals.len() < STATEMENTS_MAX;
        if let Some(resets) = self.statements.get(names.statement).filter(|_| kept) {
            self.portals.insert(names.portal.into(), Arc::clone(resets));
        }
    }

    /// What an Execute resets.
    fn executes(&self, body: &[u8]) -> Option<&Arc<Resets>> {
        self.portals.get(body.split(|&byte| byte == 0).next()?)
    }

    /// The query that brings a server to the startup values again, in the batch that has reset them, before this message.
    fn ahead_of(&mut self, message: &Message<'_>) -> Option<Vec<u8>> {
        use FrontendTag as Tag;
        let runs = match message.tag {
            Tag::Parse | Tag::Bind | Tag::Describe => true,
            Tag::Execute => self.executes(message.body()).is_none(),
            _ => false,
        };
        if !runs || self.executed.is_nothing() {
            return None;
        }
        let executed = std::mem::take(&mut self.executed);
        Some(self.values.settings(|own| executed.covers(&own.name))).filter(|sql| !sql.is_empty())
    }

    fn prepared(&mut self, body: &[u8]) {
        let Some(end) = body.iter().position(|&byte| byte == 0) else {
            // The name may be that of another statement now.
            return self.statements.clear();
        };
        let (name, rest) = (&body[..end], &body[end + 1..]);
        let Some(text) = rest.split(|&byte| byte == 0).next() else { return };
        if !self.statements.is_empty() {
            self.statements.remove(name);
        }
        let known = self.statements.len();
        let kept = name.len() <= NAME_BYTES_MAX && known < STATEMENTS_MAX && text.len() <= TEXT_BYTES_MAX;
        if Resets::are_absent(text) || !kept {
            return;
        }
        let resets = Resets::read(text);
        if !resets.is_nothing() {
            self.statements.insert(name.into(), Arc::new(resets));
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
            && self.values.get(name).is_some_and(|own| own.reported)
            && defaults.get(name).is_some_and(|default| *default.value == *value)
    }
}

impl Worker {
    /// A request went to the server: what it resets is noted with the reply that is owed.
    pub(crate) fn read_resets(&mut self, client: ConnId, id: ConnId, message: &Message<'_>) {
        let (Some(client), Some(server)) = (self.clients.get_mut(client), self.servers.get_mut(id)) else { return };
        let startup = client.session_mut().and_then(|session| session.startup.as_mut());
        if let Some(note) = startup.and_then(|startup| startup.sent(message, &mut server.hold)) {
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
        }
    }

    /// Where a batch has reset something, what follows in it runs under the session's defaults, not the server's.
    pub(crate) fn take_back_ahead_of(&mut self, client: ConnId, id: ConnId, message: &Message<'_>) {
        let session = self.clients.get_mut(client).and_then(|client| client.session_mut());
        let startup = session.and_then(|session| session.startup.as_mut());
        if let Some(settings) = startup.and_then(|startup| startup.ahead_of(message)) {
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
        let done = std::mem::take(&mut startup.done);
        let mut parameters = None;
        for own in startup.values.iter().filter(|own| done.covers(&own.name)) {
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
        let missing = std::mem::take(&mut startup.missing);
        if missing.is_empty() || server.status == TransactionStatus::Failed {
            return false;
        }
        let have = server.parameters.reported_only();
        let mut wanted = have.clone();
        missing.iter().for_each(|own| wanted.set(&own.name, &own.value, own.reported));
        let mut messages = 0;
        self.out.send(id, |out| messages = have.write_difference(&wanted, encoding, false, out));
        for _ in 0..messages {
            server.owe_own_query();
        }
        if messages > 0 {
            server.hold = Hold::Parameters;
        }
        messages > 0
    }
}
