//! What comes of a client's login, up to its first ReadyForQuery.
//!
//! What a server tells at its login is told to each client. A parameter of a startup packet that PostgreSQL has not been asked
//! about yet is tried on a server first, so that a wrong one ends the login, as it does without a pooler.

use std::sync::Arc;

use weir_wire::report::{Report, Severity};
use weir_wire::{ProtocolVersion, TransactionStatus, write};

use crate::auth::Secret;
use crate::client::{Client, ClientState, Discard, Limits, Link, Session};
use crate::console::session::Console;
use crate::derivations::Derived;
use crate::failure::{Failure, Proof, Uncertain};
use crate::id::{ClientId, ServerId};
use crate::inbox::{Cursor, Inbox};
use crate::login::client_login::{ClientLogin, Shown, Then};
use crate::login::lookup::LookedUp;
use crate::login::{Login, Phase};
use crate::mail::Letter;
use crate::names::{CONSOLE_DATABASES, PoolName, shown};
use crate::parameters::encodings::reads_alike;
use crate::parameters::startup::Startup;
use crate::parameters::{ParameterSet, is_told_unlike, same_name, untriable};
use crate::peer::{Peer, TlsInfo};
use crate::pool::{Credentials, Welcome};
use crate::settings::AuthType;
use crate::sparse::Sparse;
use crate::statements::Unnamed;
use crate::worker::Service;

impl Service {
    pub(super) fn begin_client(&mut self, id: ClientId, peer: Peer, local: Peer, number: u64) {
        let now = self.traffic.cx.now;
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.enter(ClientState::Login(Box::new(Login::new())));
            (client.peer, client.local, client.connected_at) = (peer, local, now);
            client.counted = true;
            client.number = number;
        }
        if self.traffic.shutdown.is_at_once() {
            return self.fail_client(id, &Failure::NoNewClients);
        }
        self.traffic.arm_client(id);
    }

    pub(super) fn client_login(&mut self, id: ClientId) -> Option<(ClientLogin<'_>, &mut Inbox)> {
        let shutting_down = self.traffic.shutdown.is_under_way();
        let Client { state: ClientState::Login(login), peer, local, tls, inbox, .. } =
            self.traffic.clients.get_mut(id)?
        else {
            return None;
        };
        let (cx, known, derivations) = (&mut self.traffic.cx, &mut self.known, &mut self.derivations);
        let tls = tls.as_deref();
        Some((ClientLogin { cx, known, derivations, id, login, peer, local, tls, shutting_down }, inbox))
    }

    pub(super) fn login_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let Some((mut login, inbox)) = self.client_login(id) else { return cursor.at };
            let then = login.bytes(inbox, &mut cursor);
            if !self.login_went(id, then) {
                return cursor.at;
            }
        }
    }

    /// Something else than bytes. The client may send on, if it was held.
    pub(super) fn login_input(&mut self, id: ClientId, take: impl FnOnce(&mut ClientLogin<'_>) -> Then) {
        let Some((mut login, _)) = self.client_login(id) else { return };
        let then = take(&mut login);
        if matches!(then, Then::Nothing) || self.login_went(id, then) {
            self.traffic.wake_client(id);
        }
    }

    /// Whether it goes on with what is there.
    fn login_went(&mut self, id: ClientId, then: Then) -> bool {
        match then {
            Then::Next => return true,
            Then::Nothing => {}
            Then::Hold => self.traffic.hold_client(id),
            Then::Cancel { process_id, key } => self.cancel_requested(id, process_id, &key),
            Then::LookUp(pool) => {
                if let Err(failure) = self.look_up(id, &pool) {
                    self.fail_client(id, &failure);
                }
            }
            Then::Authenticated(shown) => match self.authenticated(id, shown) {
                Ok(()) => return true,
                Err(failure) => self.fail_client(id, &failure),
            },
            Then::Refused => {
                self.traffic.arm_client(id);
                return true;
            }
            Then::Fail(failure) => self.fail_client(id, &failure),
            Then::EndUnanswered(reason) => {
                self.end_client(id, reason);
            }
        }
        false
    }

    pub(super) fn client_tls_ready(&mut self, id: ClientId, tls: TlsInfo) {
        if let Some(client) = self.traffic.clients.get_mut(id)
            && let ClientState::Login(login) = &mut client.state
        {
            login.phase = Phase::Startup;
            client.tls = Some(Box::new(tls));
        }
    }

    /// The steward's answer; its client may have gone in the meantime.
    pub(super) fn placed(
        &mut self,
        id: ClientId,
        database: Arc<str>,
        user: Arc<str>,
        refused: Option<(u32, &'static str)>,
    ) {
        match (self.traffic.clients.get_mut(id), refused) {
            (Some(client), None) => {
                client.admitted = Some((database, user));
                if let (true, ClientState::Login(login)) = (self.traffic.cx.settings.log.connections, &client.state) {
                    let text = format!("{} {}", client.label(), login.attempt(client.tls.as_deref()));
                    self.traffic.cx.log_info(text);
                }
                self.login_input(id, |login| login.begin_authentication());
            }
            (Some(_), Some((limit, what))) => {
                self.fail_client(id, &Failure::TooManyClients { limit, what });
            }
            (None, None) => self.traffic.cx.tell_steward(Letter::Withdraw { database, user }),
            (None, Some(_)) => {}
        }
    }

    /// A verifier was made of a plain password, and that client may wait for it.
    pub(super) fn verifier_derived(&mut self, user: &Arc<str>, client: Option<ClientId>, derived: &Derived) {
        self.known.learn(user, derived, &self.traffic.cx.settings);
        if let Some(id) = client {
            self.login_input(id, |login| login.verifier_derived(derived));
        }
    }

    /// Whether the settings of now would let it in by what it was let in by: a reload may have come since it was asked.
    pub(super) fn is_still_let_in(&mut self, id: ClientId) -> bool {
        let settings = Arc::clone(&self.traffic.cx.settings);
        let Some((login, _)) = self.client_login(id).filter(|(login, _)| login.shows_what_is_asked()) else {
            return false;
        };
        let Login { database, user, looked_up, forced, is_stood_for, .. } = login.login;
        if *is_stood_for && settings.database(database).is_some() {
            return false;
        }
        let entry = settings.database(database).and_then(|entry| entry.forced_user.as_ref());
        let is_forced = |(forced, looked_up): &(Arc<str>, LookedUp)| {
            entry == Some(forced) && looked_up.is_current(database, forced, &settings)
        };
        looked_up.is_current(database, user, &settings) && forced.as_ref().is_none_or(is_forced)
    }

    fn authenticated(&mut self, id: ClientId, shown: Option<Shown>) -> Result<(), Failure> {
        if !self.is_still_let_in(id) {
            return Err(Failure::LookupFailed);
        }
        let Some(login) = self.traffic.login(id) else { return Ok(()) };
        let (database, user) = (Arc::clone(&login.database), Arc::clone(&login.user));
        let (looked_up, replication) = (login.looked_up.credentials(), login.replication.is_some());
        let poses_as_node = login.poses_as_node();
        if CONSOLE_DATABASES.contains(&&*database) {
            return self.enter_console(id, &user);
        }
        if self.traffic.shutdown.is_under_way() {
            return Err(Failure::NoNewClients);
        }
        let Some(entry) = self.traffic.cx.settings.database(&database) else {
            return Err(Failure::UnknownDatabase { name: database.to_string() });
        };
        if self.traffic.gates.is_disabled(&database) {
            return Err(Failure::Disabled { name: database.to_string() });
        }
        if entry.cluster.is_some() && poses_as_node {
            return Err(Failure::PosesAsNode);
        }
        if self.traffic.cx.settings.auth_type == AuthType::Any && entry.forced_user.is_none() {
            // A name that nobody vouched for opens no door of PostgreSQL's.
            return Err(Failure::AuthenticationFailed { by: Proof::Trust, user: user.to_string(), stranger: None });
        }
        let (forced, has_password) = (entry.forced_user.clone(), entry.forced_password.is_some());
        let name = Arc::new(PoolName::new(database, forced.clone().unwrap_or(user)));
        let Some(index) = self.traffic.pool_for(&name) else {
            return Err(Failure::UnknownDatabase { name: name.database.to_string() });
        };
        // Where a user is forced its servers are for whoever comes: what one of them has proved opens no door for the others.
        let credentials = match (&forced, shown) {
            (Some(_), _) if has_password => None,
            (Some(forced), _) if self.looks_up_forced(id, index, forced) => return Ok(()),
            (Some(_), _) => self.credentials_of_forced(id),
            (None, Some(Shown::Password(password))) => Some(Credentials {
                secret: Some(Secret::Plain(password)),
                shown: true,
                since: self.traffic.cx.now,
                ..Credentials::default()
            }),
            (None, Some(Shown::Keys(keys))) => {
                let proved = || Credentials { since: self.traffic.cx.now, ..Credentials::default() };
                Some(Credentials { keys: Some(keys), ..looked_up.unwrap_or_else(proved) })
            }
            (None, None) => looked_up,
        };
        if let Some(credentials) = credentials {
            self.traffic.has_credentials(index, credentials);
        }
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.pool = index;
        }
        if let Some(login) = self.traffic.login(id) {
            login.phase = Phase::Proving;
        }
        let to_console = self.traffic.pools[index].welcome.as_ref().is_some_and(|welcome| welcome.is_console());
        if replication || to_console {
            return self.seek_own_server(id);
        }
        self.seek_proof(id)
    }

    /// Whether PostgreSQL is asked for the secret of the user whom the entry forces: it has refused him as he is known.
    fn looks_up_forced(&mut self, id: ClientId, index: u32, forced: &Arc<str>) -> bool {
        if self.traffic.pools[index].refuses().is_none() || self.traffic.has_lasting_server(index) {
            return false;
        }
        let Some((mut login, _)) = self.client_login(id) else { return false };
        match login.looks_up_forced(forced) {
            Some(Then::LookUp(pool)) => self.look_up(id, &pool).is_ok(),
            _ => false,
        }
    }

    /// What this login has asked for so.
    fn credentials_of_forced(&mut self, id: ClientId) -> Option<Credentials> {
        self.traffic.login(id)?.forced.as_ref().and_then(|(_, looked_up)| looked_up.credentials())
    }

    /// Asks PostgreSQL about a user, on a server of this pool.
    pub(super) fn look_up(&mut self, id: ClientId, pool: &Arc<PoolName>) -> Result<(), Failure> {
        if self.traffic.gates.is_disabled(&pool.database) {
            let settings = Arc::clone(&self.traffic.cx.settings);
            let Some(login) = self.traffic.login(id) else { return Ok(()) };
            if !login.is_to_console() && settings.database(&login.database).is_none() {
                // It hears nothing of another database than it has named.
                self.login_input(id, |login| login.is_told_nothing());
                return Ok(());
            }
            return Err(Failure::LookupDisabled { name: pool.database.to_string() });
        }
        let index = self.traffic.pool_for(pool).ok_or(Failure::LookupFailed)?;
        let Some(client) = self.traffic.clients.get_mut(id) else { return Ok(()) };
        client.pool = index;
        if self.acquire(id).map_err(|failure| *failure)?.is_some() {
            self.borrows(id);
        }
        Ok(())
    }

    /// A login has a server for what it has to ask.
    pub(super) fn borrows(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let (Link::Linked(server_id), ClientState::Login(login)) = (client.link, &mut client.state) else { return };
        let Login { database, phase: Phase::LookingUp(lookup), .. } = &mut **login else { return self.prove(id) };
        let user = Arc::clone(&lookup.user);
        let query = lookup.query(database, &self.traffic.cx.settings, self.traffic.cx.now);
        match (self.traffic.servers.get_mut(server_id), query) {
            (Some(server), Some(query)) => server.ask_about_user(server_id, query, &user, &mut self.traffic.cx),
            _ => self.fail_client(id, &Failure::LookupFailed),
        }
    }

    /// For replication, or a pooler's console.
    fn seek_own_server(&mut self, id: ClientId) -> Result<(), Failure> {
        if self.traffic.cx.settings.disable_pqexec {
            // What goes through such a connection is not looked at, and simple queries mostly.
            return Err(Failure::SimpleQuery);
        }
        self.traffic.want_tunnel(id);
        Ok(())
    }

    /// Lets the client in, where PostgreSQL need not be asked about its parameters first.
    fn seek_proof(&mut self, id: ClientId) -> Result<(), Failure> {
        if self.is_proved(id) {
            return self.greet(id);
        }
        if let Some(name) = self.traffic.login(id).and_then(|login| untriable(&login.parameters)) {
            return Err(Failure::StartupParameter {
                text: format!("the parameter \"{}\" may be used in ASCII only", shown(name)),
            });
        }
        if self.acquire(id).map_err(|failure| *failure)?.is_some() {
            self.prove(id);
        }
        Ok(())
    }

    fn enter_console(&mut self, id: ClientId, user: &Arc<str>) -> Result<(), Failure> {
        let own = self.traffic.clients.get(id).is_some_and(
            |client| matches!(&client.state, ClientState::Login(login) if login.is_own_user(&client.peer, self.traffic.cx.config.uid)),
        );
        let admin = own || self.traffic.cx.settings.admin_users.iter().any(|name| **name == **user);
        // Where no name is vouched for, none is a better one, as with PgBouncer.
        let anybody = self.traffic.cx.settings.auth_type == AuthType::Any;
        let stats = anybody || self.traffic.cx.settings.stats_users.iter().any(|name| **name == **user);
        if !admin && !stats {
            return Err(Failure::ConsoleOnly { user: user.to_string() });
        }
        let version = self.traffic.cx.settings.version.clone();
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.enter(ClientState::Console(Box::new(Console::new(Arc::clone(user), admin))));
        }
        self.console_counters.client_logins += 1;
        self.traffic.cx.out.send(id, |out| {
            write::authentication_ok(out);
            for (name, value) in Console::parameters(&version) {
                write::parameter_status(out, name, value.as_bytes());
            }
            write::backend_key(out, 0, &[0; 4]);
            write::ready(out, TransactionStatus::Idle);
        });
        self.traffic.arm_client(id);
        Ok(())
    }

    /// Whether the pool's greeting is known, and PostgreSQL's opinion of each of the client's parameters. A standby may have been promoted since
    /// it told anything: it is asked again.
    fn is_proved(&self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        let ClientState::Login(login) = &client.state else { return false };
        let pool = &self.traffic.pools[client.pool];
        let known = pool.welcome.as_ref().is_some_and(|welcome| welcome.standby() != Some(true));
        known && pool.proven.of(&login.parameters).is_some()
    }

    /// A server is there to try the client's parameters on.
    pub(super) fn prove(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get(id) else { return };
        let (Link::Linked(server_id), ClientState::Login(login)) = (client.link, &client.state) else { return };
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        if server.is_console() {
            // It takes nothing but its own commands, and all of what its client says is for it.
            self.unlink(id, server_id);
            if let Err(failure) = self.seek_own_server(id) {
                self.fail_client(id, &failure);
            }
            return;
        }
        if login.parameters.is_empty() && server.standby != Some(true) {
            return self.proved(id, server_id);
        }
        let have = Arc::clone(&server.parameters);
        let pool = &self.traffic.pools[client.pool];
        let defaults = pool.welcome.as_ref().map_or(&have, |welcome| &welcome.defaults);
        if is_told_unlike(&login.parameters, defaults, server.encoding()) {
            self.unlink(id, server_id);
            return self.fail_client(id, &Failure::Uncertain(Uncertain::UnlikeEncodings));
        }
        let mark = have.mark_of_former();
        server.send_own_queries(server_id, mark, &mut self.traffic.cx, |out| {
            match have.write_trial(&login.parameters, defaults, out) {
                0 => {
                    // Nothing is tried: that it is a standby no more it tells with any ReadyForQuery.
                    write::query(out, b"");
                    1
                }
                queries => queries,
            }
        });
        server.parameters = self.traffic.cx.parameter_sets.intern(have.while_tried(&login.parameters));
        server.parameters_before = Some(have);
    }

    /// PostgreSQL took them: what it made of each, from the default on, is remembered.
    pub(super) fn proved(&mut self, id: ClientId, server_id: ServerId) {
        let (Some(client), Some(server)) = (self.traffic.clients.get(id), self.traffic.servers.get(server_id)) else {
            return;
        };
        let ClientState::Login(login) = &client.state else { return };
        let pool = &self.traffic.pools[client.pool];
        if !server.is_made_as_those_of(pool) || pool.welcome.is_none() {
            // Settings have changed meanwhile, and back again perhaps: what it says holds for no server of those that are made now.
            self.unlink(id, server_id);
            if let Err(failure) = self.seek_proof(id) {
                self.fail_client(id, &failure);
            }
            return;
        }
        let pool = &mut self.traffic.pools[client.pool];
        pool.learn_standby(server.standby, &mut self.traffic.cx);
        let legible = !login.illegible && server.parameters.is_legible(server.encoding());
        if legible {
            pool.proven.remember(&login.parameters, &server.parameters);
        }
        let greeted = if legible { self.greet(id) } else { Err(Failure::Uncertain(Uncertain::UnlikeEncodings)) };
        self.unlink(id, server_id);
        if let Err(failure) = greeted {
            self.fail_client(id, &failure);
        }
    }

    /// The session's parameters as its startup packet wants them.
    fn wanted_parameters(&self, id: ClientId, welcome: &Welcome) -> ParameterSet {
        let mut wanted = (*welcome.defaults).clone();
        let Some(client) = self.traffic.clients.get(id) else { return wanted };
        let ClientState::Login(login) = &client.state else { return wanted };
        let proven = self.traffic.pools[client.pool].proven.of(&login.parameters).unwrap_or_default();
        for (name, value) in &login.parameters {
            let reported = proven.get(name).map(|parameter| &*parameter.value);
            wanted.set(name, reported.unwrap_or(value.as_bytes()), false);
        }
        wanted
    }

    /// Lets the client in.
    fn greet(&mut self, id: ClientId) -> Result<(), Failure> {
        let Some(client) = self.traffic.clients.get(id) else { return Ok(()) };
        let pool = &self.traffic.pools[client.pool];
        let Some(welcome) = pool.welcome.clone() else { return Ok(()) };
        let wanted = self.wanted_parameters(id, &welcome);
        // What servers told at their logins is told on as it came.
        let text = !welcome.facts.iter().all(|(_, value)| value.is_ascii()) || wanted.has_told_text();
        let alike = |encoding| reads_alike(encoding, welcome.encoding());
        if text && !(alike(welcome.defaults.encoding()) && alike(wanted.encoding())) {
            return Err(Failure::Uncertain(Uncertain::UnlikeEncodings));
        }
        self.welcome_client(id, &welcome);
        Ok(())
    }

    /// The greeting: parameters, a cancel key of ours, ReadyForQuery.
    pub(super) fn welcome_client(&mut self, id: ClientId, welcome: &Welcome) {
        let parameters = self.wanted_parameters(id, welcome);
        let mut parameters = self.traffic.cx.parameter_sets.intern(parameters);
        let process_id = self.sessions.number();
        let (told, long_key) = self.cancel_key(process_id);
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let label = (self.traffic.cx.settings.log.verbose >= 2).then(|| client.label());
        let ClientState::Login(login) = &mut client.state else { return };
        let key = if login.version >= ProtocolVersion::V3_2 { &long_key[..] } else { &long_key[..4] };
        let mut greeted = Arc::clone(&welcome.defaults);
        let asked = |name: &str| login.parameters.iter().any(|(own, _)| same_name(own, name));
        self.traffic.cx.parameter_sets.touch(&mut greeted, asked);
        let mut startup = Startup::new(&login.parameters, &parameters, &welcome.defaults);
        if let Some(label) = label {
            startup = Startup::telling(startup, &label, &login.parameters, &parameters);
            if startup.as_ref().is_some_and(|startup| startup.is_untold()) {
                parameters = Arc::new(parameters.own_copy());
            }
        }
        let session = Session {
            database: Arc::clone(&login.database),
            user: Arc::clone(&login.user),
            startup,
            parameters: Arc::clone(&parameters),
            read: None,
            statements: Sparse::default(),
            unnamed: Unnamed::default(),
            told,
            cancel_key: key.into(),
            discard: Discard::Nothing,
            begun: None,
            limits: Limits::of(&self.traffic.cx.settings, &login.database, &login.user),
            batch: 0,
            request_at: self.traffic.cx.now,
            transaction_at: self.traffic.cx.now,
            asked_at: self.traffic.cx.now,
            asks: false,
            listens: false,
            greeted,
            standby: welcome.standby(),
            idle_at: self.traffic.cx.now,
        };
        let message = &self.traffic.cx.settings.login_notify_message;
        self.traffic.cx.out.send(id, |out| {
            write::authentication_ok(out);
            for (name, value) in &welcome.facts {
                write::parameter_status(out, name, value);
            }
            for parameter in parameters.iter().filter(|parameter| parameter.reported) {
                write::parameter_status(out, &parameter.name, &parameter.value);
            }
            write::backend_key(out, told, key);
            if !message.is_empty() {
                write::report(out, &Report::new(Severity::Notice, "00000", message.clone()));
            }
            write::ready(out, TransactionStatus::Idle);
        });
        self.sessions.lives_here(process_id, id);
        client.moved.process_id = process_id;
        client.enter(ClientState::Ready(Box::new(session)));
        let index = client.pool;
        self.traffic.pools[index].clients += 1;
        self.traffic.pools[index].counters.client_logins += 1;
        self.traffic.fill(index);
        self.traffic.arm_client(id);
        self.traffic.wake_client(id);
        self.traffic.suspend_newcomer(id);
    }
}
