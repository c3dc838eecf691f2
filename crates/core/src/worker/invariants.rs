//! What holds after every input, whatever it was. Looked at where assertions are on: in tests, conversations and the simulator.
//!
//! Only reads. Worlds of more connections than these are looked at now and then, so that a crowd's logins do not take quadratic time.

use weir_wire::TransactionStatus;

use crate::client::{Client, ClientState, Link};
use crate::id::NO_POOL;
use crate::id::{ClientId, ServerId, Table};
use crate::pool::gates::Gate;
use crate::pool::told::Asked;
use crate::server::{Cancel, Hold, Server, ServerState};
use crate::worker::{Process, Traffic};

type Clients = Table<ClientId, Client>;
type Servers = Table<ServerId, Server>;

/// Up to so many connections are looked at after each input; of more, after one input in as many.
const ALWAYS_MAX: usize = 64;

/// What a pool's own counts must come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sums {
    idle: usize,
    connecting: u32,
    tunnelling: u32,
    pinned: u32,
    waiting: usize,
    listener: Option<ServerId>,
}

/// Inputs that were looked at, and room for the sums: nobody allocates in a transaction, whether assertions are on or not.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    inputs: u64,
    sums: Vec<Sums>,
}

impl Invariants {
    pub(super) fn check(&mut self, process: &Process) {
        let Traffic { clients, servers, pools, .. } = &process.service.traffic;
        check_process(process);
        self.inputs += 1;
        let connections = clients.len() + servers.len();
        if connections > ALWAYS_MAX && !self.inputs.is_multiple_of(connections as u64) {
            return;
        }
        self.sums.clear();
        self.sums.resize(pools.indexes().len(), Sums::default());
        check_clients(clients, servers, &mut self.sums);
        check_servers(clients, servers, &mut self.sums);
        for (index, sums) in pools.indexes().zip(&self.sums) {
            let pool = &pools[index];
            let counted = Sums {
                idle: pool.idle.len(),
                connecting: pool.connecting,
                tunnelling: pool.tunnelling,
                pinned: pool.pinned,
                waiting: pool.waiting.len(),
                listener: sums.listener,
            };
            assert_eq!(counted, *sums, "pool {index} counts what there is");
            let comes = pool.asked != Asked::Nothing || pool.deadline.is_set() || sums.connecting > 0;
            let sent_away = !pool.homes.is_empty() || pool.gate != Gate::Open;
            assert!(
                pool.tunnels.is_empty() || comes || sent_away,
                "whoever waits for a connection of their own in pool {index} is asked for"
            );
            for id in pool.checks.iter() {
                let server = servers.get(id).filter(|server| server.pool == index);
                let is_asked =
                    |server: &Server| matches!(server.state, ServerState::Recovering { .. }) && !server.owed.is_empty();
                assert!(server.is_some_and(is_asked), "{id:?} is asked whether it still answers");
            }
            assert!(
                sums.waiting == 0 || comes || sent_away || one_ends(servers, index),
                "whoever waits in pool {index} waits for something that comes"
            );
            let listener = pool.listener.as_ref().map(|listener| listener.server);
            assert_eq!(
                listener, sums.listener,
                "pool {index} knows the server that listens for its clients, and there is no other"
            );
        }
    }
}

/// Whether a server is on its way back to the pool, or to its end, behind which another is asked for.
fn one_ends(servers: &Servers, pool: u32) -> bool {
    let ends = |server: &Server| matches!(server.state, ServerState::Recovering { .. } | ServerState::Closing);
    servers.iter().any(|(_, server)| server.pool == pool && ends(server))
}

/// Nobody who has gone is kept on a list, and the steward has said what it has to say.
fn check_process(process: &Process) {
    let Traffic { cx, clients, suspended, .. } = &process.service.traffic;
    let own = process.closing_waits.iter().filter(|(worker, ..)| *worker == cx.config.id);
    for (_, asker, _) in own {
        let is_in = clients.get(*asker).is_some_and(|client| matches!(client.state, ClientState::Console(_)));
        assert!(is_in, "whoever waits for servers to be closed has not gone");
    }
    let posted = process.steward.as_ref().is_none_or(|steward| steward.letters.is_empty());
    assert!(posted, "what the steward has to say is posted");
    assert!(suspended.iter().all(|id| clients.get(*id).is_some()), "whoever is suspended has not gone");
}

fn check_clients(clients: &Clients, servers: &Servers, sums: &mut [Sums]) {
    for (id, client) in clients.iter() {
        let server = client.link.server().and_then(|server| servers.get(server));
        let of_it = server.and_then(|server| server.client()) == Some(id);
        let is_in = matches!(client.state, ClientState::Ready(_));
        assert!(!is_in || (client.pool as usize) < sums.len(), "{id:?} is in a pool that is there");
        assert!(server.is_none_or(|server| server.pool == client.pool), "{id:?} and its server are of one pool");
        match client.link {
            Link::None | Link::WaitingTunnel { .. } => {}
            Link::Linked(_) => {
                let linked = server.is_some_and(|server| matches!(server.state, ServerState::Linked(_)));
                assert!(linked && of_it, "{id:?} is linked to a server that is linked to it");
                assert!(
                    matches!(client.state, ClientState::Ready(_) | ClientState::Login(_)),
                    "{id:?} has a server for its session"
                );
            }
            Link::Tunnel(_) => assert!(of_it, "{id:?} has a connection of its own"),
            Link::Waiting { .. } => sums[client.pool as usize].waiting += 1,
        }
    }
}

fn check_servers(clients: &Clients, servers: &Servers, sums: &mut [Sums]) {
    for (id, server) in servers.iter() {
        if server.kept.counted {
            sums[server.pool as usize].pinned += 1;
        }
        match &server.state {
            ServerState::Linked(client) | ServerState::Tunnel(client) => {
                let link = clients.get(*client).and_then(|client| client.link.server());
                assert_eq!(link, Some(id), "{id:?} is linked to a client that is linked to it");
            }
            ServerState::Idle => {
                sums[server.pool as usize].idle += 1;
                let clean = server.owed.settled()
                    && server.hold == Hold::Nothing
                    && !server.held
                    && server.cancel == Cancel::None;
                assert!(clean && server.status == TransactionStatus::Idle, "{id:?} is clean where it is idle");
                let begun = server.has_part_of_a_reply() || server.is_in_message();
                assert!(!begun, "{id:?} is idle, and its next client would be told the rest of a message");
                assert!(!server.mirror.has_unproved(), "{id:?} has no statement of a transaction alone");
            }
            ServerState::Listener => {
                let other = sums[server.pool as usize].listener.replace(id);
                assert!(other.is_none(), "{id:?} and {other:?} both listen for one pool");
            }
            ServerState::Making(making) if server.pool != NO_POOL => {
                sums[server.pool as usize].connecting += 1;
                sums[server.pool as usize].tunnelling += u32::from(making.purpose.is_tunnel());
            }
            _ => {}
        }
    }
}
