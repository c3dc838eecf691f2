//! What a server tells of its session's parameters, and which of it is the client's.

use std::sync::Arc;

use weir_wire::{HEADER_LEN, backend, write};

use super::replies::Reply;
use super::requests::READ_BY;
use super::{Answers, Outcome};
use crate::failure::{Failure, Uncertain};
use crate::kept::channels::Handover;
use crate::kept::exact::{ASKS, READ, Unlistened};
use crate::kept::leaves::Leaves;
use crate::kept::{Kinds, Lists};
use crate::owed::Request;
use crate::parameters::meanings::NAME_BYTES;
use crate::parameters::{Parameter, same_name};
use crate::pool::welcome::STANDBY;
use crate::server::Hold;
use crate::settings::PoolMode;

/// The name and the value that a ParameterStatus tells; `None` for a value that is not read.
pub(super) fn reported<'a>(reply: &Reply<'a>) -> Option<(&'a str, Option<&'a [u8]>)> {
    match reply.whole_body() {
        Some(body) => backend::parameter_status(body).ok().map(|(name, value)| (name, Some(value))),
        None => {
            let name =
                reply.bytes[HEADER_LEN..].split(|byte| *byte == 0).next().filter(|name| name.len() <= NAME_BYTES)?;
            Some((std::str::from_utf8(name).ok()?, None))
        }
    }
}

impl Answers<'_> {
    /// The one place that knows which parameters are the client's to keep. False where there are too many.
    #[inline(never)]
    pub(super) fn parameter_reported(&mut self, name: &str, value: &[u8], to_client: bool) -> bool {
        if crate::parameters::is_fact(name) {
            match name {
                STANDBY => self.standby_reported(value, to_client),
                _ => self.fact_reported(name, value),
            }
            return true;
        }
        let server = &mut *self.server;
        let by_others = server.reports_since_login(name);
        if !by_others {
            if self.client.is_none() && server.owed.front().is_none_or(|owed| owed.ours) {
                // What we have reset ourselves.
                return true;
            }
            let session = self.client.as_ref().and_then(|(_, client)| client.session());
            if !server.parameters.has_room_for(name, session.map(|session| &*session.parameters)) {
                return false;
            }
        }
        let before = Arc::as_ptr(&server.parameters);
        // Up to PostgreSQL 13 each is told at once, also what queries of ours in a client's batch set and take back.
        let amid_ours = server.owed.front().is_some_and(|owed| owed.ours && owed.request == Request::Execute);
        if amid_ours {
            server.told_amid.get_or_insert_with(|| Arc::clone(&server.parameters));
        }
        // PostgreSQL tells a value in the client_encoding of that moment, and not again when that changes.
        let stale = server.parameters.makes_stale(name, value);
        let within = self.cx.parameter_sets.change(&mut server.parameters, name, value, by_others);
        server.close_needed |= stale || !server.parameters.is_legible(server.encoding());
        let differs = before != Arc::as_ptr(&server.parameters);
        if differs && !amid_ours && crate::parameters::reading::is_read(name) {
            server.mirror.told_another();
        }
        if differs && READ_BY.contains(&name) && server.owed.has_of_client() {
            self.read_otherwise();
        }
        within && (!to_client || !by_others || self.is_told(name, value))
    }

    /// A module in PostgreSQL tells something of the session (`kept/exact.rs`).
    #[inline(never)]
    pub(super) fn told_by_module(&mut self, name: &str, value: Option<&[u8]>) {
        let server = &mut *self.server;
        let is_ours = server.owed.front().is_some_and(|owed| owed.ours);
        let session = self.client.as_ref().and_then(|(_, client)| client.session());
        let listens = session.is_some_and(|session| session.listens);
        server.exact.iter_mut().for_each(|exact| exact.told(name, value));
        // What it hears elsewhere by now its server leaves.
        if listens && server.kept.handover != Handover::Leaving {
            self.then = Unlistened::read(name, value).map(Outcome::LeavesChannels);
        }
        match name {
            READ if !is_ours => server.kept.sets_unreported(),
            ASKS if !is_ours && listens && server.kept.lists == Lists::No => self.then = Some(Outcome::AsksChannels),
            _ => {}
        }
    }

    /// If no text has said so, PostgreSQL has read its configuration again, ahead of what it answers here or next, and has read that otherwise
    /// than we have.
    #[cold]
    fn read_otherwise(&mut self) {
        let server = &mut *self.server;
        if server.kept.reads && !server.kept.strings_set {
            server.kept.sent(&Leaves::unknown(), b"");
        }
        // Its client is gone, and with it what its texts have said.
        server.close_needed |= self.pool.limits.keeps && server.client().is_none();
    }

    /// It is more than is carried to other servers: its client goes on with this one, and nobody else has it. False where that cannot be.
    #[cold]
    pub(super) fn too_much_reported(&mut self) -> bool {
        let server = &mut *self.server;
        let is_ready = self.client.as_ref().is_some_and(|(_, client)| client.session().is_some());
        let stays = server.kept.on || self.pool.limits.mode == PoolMode::Session;
        let is_ours = server.owed.front().is_some_and(|owed| owed.ours) && !server.owed.speaks_to_client();
        if !is_ready || !stays || is_ours {
            return false;
        }
        server.close_needed = true;
        match &mut server.exact {
            Some(exact) => exact.is_too_much(),
            None => server.kept.sent(&Leaves::any(Kinds::LASTING), b"SET"),
        }
        // Only a search_path is ever so long, and PostgreSQL goes by the one of a statement's use, not by that of its Parse
        // (`RevalidateCachedQuery`, src/backend/utils/cache/plancache.c): what was told before may stand for it here.
        true
    }

    /// The client is told of this value: its session has it from now on. False where it has too many.
    pub(super) fn is_told(&mut self, name: &str, value: &[u8]) -> bool {
        let Self { cx, server, client, .. } = self;
        let Some(session) = client.as_mut().and_then(|(_, client)| client.session_mut()) else { return true };
        let stale = session.parameters.makes_stale(name, value);
        let within = cx.parameter_sets.change(&mut session.parameters, name, value, true);
        if session.greeted.has_untouched(name, value) {
            // By a SET or by a RESET: nobody knows.
            cx.parameter_sets.touch(&mut session.greeted, |own| same_name(own, name));
        }
        if stale || !session.parameters.is_legible(server.encoding()) {
            (server.keeps_client, server.close_needed) = (true, true);
        }
        within
    }

    /// Parameters were told behind messages of ours, and these are done, or the batch is that they are in (up to PostgreSQL 13 each is told at
    /// once). What the server has now in spite of them, its configuration was read again ahead of one, is the client's, who is told
    /// of it as of any such change.
    #[cold]
    pub(super) fn tell_what_differs(&mut self) {
        if let Some(before) = self.server.told_amid.take() {
            let sets = &mut self.cx.parameter_sets;
            let [before, now] = [&before, &self.server.parameters].map(|set| sets.reading(set));
            if !Arc::ptr_eq(&before, &now) {
                self.server.mirror.told_another();
            }
        }
        #[cfg(feature = "planted")]
        if self.cx.planted == Some(crate::planted::Planted::KeepReports) {
            return;
        }
        let here = Arc::clone(&self.server.parameters);
        let Some((id, client)) = &mut self.client else { return };
        let (id, Some(session)) = (*id, client.session()) else { return };
        if Arc::ptr_eq(&here, &session.parameters) {
            return;
        }
        // While startup values are to be given back, the two are meant to differ in those.
        let startup = session.startup.as_ref().filter(|_| self.server.hold == Hold::Reset);
        let differs = |own: &&Parameter| {
            let told = session.parameters.get(&own.name).filter(|told| told.reported);
            own.reported
                && told.is_some_and(|told| told.value != own.value)
                && !startup.is_some_and(|startup| startup.has(&own.name))
        };
        let different: Vec<Parameter> = here.iter().filter(differs).cloned().collect();
        let told_alike = here.encoding() == session.parameters.encoding();
        if !told_alike && different.iter().any(|own| !own.value.is_ascii()) {
            // Not in the client's encoding.
            self.then = Some(Outcome::Broken(Box::new(Failure::Uncertain(Uncertain::EncodingChanged))));
            return;
        }
        for Parameter { name, value, .. } in different {
            if self.is_told(&name, &value) {
                self.cx.out.send(id, |out| write::parameter_status(out, &name, &value));
            }
        }
    }

    /// A standby was promoted, as it tells with the next ReadyForQuery: whoever comes is told so, and each client as it gets a server that has told.
    #[cold]
    fn standby_reported(&mut self, value: &[u8], to_client: bool) {
        let Self { cx, server, client, pool, .. } = self;
        match (server.standby, value) {
            (Some(true), b"off") => server.standby = Some(false),
            (Some(false), b"off") | (Some(true), b"on") => return,
            // None becomes a standby while a session lasts: whatever this is, it tells nobody else.
            _ => return server.close_needed = true,
        }
        pool.learn_standby(server.standby, cx);
        let Some((id, session)) = client.as_mut().and_then(|(id, client)| Some((*id, client.session_mut()?))) else {
            return;
        };
        match to_client {
            true => session.standby = server.standby,
            false => server.tell_standby(id, session, cx),
        }
    }

    /// SET SESSION AUTHORIZATION, and what follows from it: until it is taken back, the session is for nobody else.
    fn fact_reported(&mut self, name: &str, value: &[u8]) {
        let server = &mut *self.server;
        server.facts_changed.retain(|changed| **changed != *name);
        let login = server.welcome.as_ref();
        let fact = login.and_then(|login| login.facts.iter().find(|(fact, _)| **fact == *name));
        if let Some((fact, at_login)) = fact
            && matches!(name, "session_authorization" | "is_superuser")
            && **at_login != *value
        {
            server.facts_changed.push(Arc::clone(fact));
        }
    }
}
