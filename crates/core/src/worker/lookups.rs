//! What PostgreSQL answers to logins that ask about users, or that it does not: what they ask is in `login/lookup.rs`.

use std::sync::Arc;

use weir_wire::TransactionStatus;

use crate::client::{ClientState, Link};
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::{ClientId, ServerId};
use crate::login::Phase;
use crate::login::client_login::Then;
use crate::login::lookup::LookedUp;
use crate::server::Hold;
use crate::worker::Service;

impl Service {
    /// A login has what it has asked on its server.
    pub(super) fn borrowed(&mut self, id: ClientId, server_id: ServerId) {
        let settings = Arc::clone(&self.traffic.cx.settings);
        let idle = self.traffic.servers.get(server_id).is_some_and(|server| server.status == TransactionStatus::Idle);
        let Some(login) = self.traffic.login(id).filter(|login| matches!(login.phase, Phase::LookingUp(_))) else {
            if idle {
                return self.proved(id, server_id);
            }
            // Nothing that was asked begins a transaction.
            if let Some(server) = self.traffic.servers.get_mut(server_id) {
                server.close_needed = true;
            }
            return self.fail_client(id, &Failure::ServerBrokeProtocol);
        };
        let Phase::LookingUp(lookup) = &mut login.phase else { return };
        let told = match lookup.is_current(&login.database, &settings) {
            _ if !idle => Err("it leaves a transaction open"),
            false => Err("the settings have changed meanwhile"),
            true => lookup.end(),
        };
        if told.is_ok() {
            login.phase = Phase::Admission;
        }
        if let Some(server) = self.traffic.servers.get_mut(server_id) {
            server.hold = Hold::Nothing;
            server.close_needed |= !idle;
        }
        let label = self.traffic.server_label(server_id);
        self.unlink(id, server_id);
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.pool = NO_POOL;
        }
        match told {
            Ok(told) => self.login_input(id, |login| login.is_told(told)),
            Err(wrong) => {
                self.traffic.cx.log_error(format!("{label} error in auth_query: {wrong}"));
                self.lookup_in_vain(id);
            }
        }
    }

    /// PostgreSQL has refused the user whom its database's entry forces, as he is known: a login that waits asks for his secret.
    pub(super) fn looks_up_instead(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        let pool = &self.traffic.pools[client.pool];
        let forced = pool.database.forced_user.clone().filter(|user| *user == pool.name.user);
        let Some(forced) = forced.filter(|_| pool.database.forced_password.is_none()) else { return false };
        let Some((mut login, _)) = self.client_login(id) else { return false };
        if !matches!(login.login.phase, Phase::Proving) {
            return false;
        }
        let Some(Then::LookUp(pool)) = login.looks_up_forced(&forced) else { return false };
        self.waits_no_more(id);
        self.look_up(id, &pool).is_ok()
    }

    /// It is in no queue, and no server is there for it.
    fn waits_no_more(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let (link, index, place) = (client.bind(Link::None), client.pool, client.place);
        client.pool = NO_POOL;
        match link {
            Link::Waiting { since } => {
                self.traffic.pools[index].waiting.leave(id, since, place);
                self.traffic.wants_no_more(index);
            }
            // It has not answered yet, or wrongly.
            Link::Linked(server) => self.traffic.recover(server, false),
            _ => {}
        }
    }

    /// What was asked about a user is not told. Whose own secret, or roles, it was about is not let in.
    pub(super) fn lookup_in_vain(&mut self, id: ClientId) {
        if !self.gives_up_lookup(id) {
            self.fail_client(id, &Failure::LookupFailed);
        }
    }

    /// The login goes on without the secret of a user whom its database's entry forces, if it is that which it waits for.
    pub(super) fn gives_up_lookup(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get_mut(id) else { return false };
        let ClientState::Login(login) = &mut client.state else { return false };
        let Phase::LookingUp(lookup) = &login.phase else { return false };
        let Some(user) = lookup.forced() else { return false };
        login.forced = Some((user, LookedUp::Nobody));
        login.phase = Phase::Admission;
        self.waits_no_more(id);
        self.login_input(id, |_| Then::Authenticated(None));
        true
    }
}
