//! Clients and servers without a pooler between them: shows that the two simulated ends agree on the protocol, so that
//! what goes wrong with a pooler is the pooler's doing.

use crate::client::{Client, Phase, Role};
use crate::network::{LinkId, Remote};
use crate::postgres::backend::Backend;
use crate::world::World;

impl World {
    /// Joins a client to a backend of its database's server.
    pub fn connect_directly(&mut self, index: usize) {
        if matches!(self.clients[index].role, Role::Console | Role::Garbage { .. }) {
            self.clients[index].phase = Phase::Gone;
            return;
        }
        let cluster = self.cluster_of(index);
        let client_link = self.new_link(Remote::Client(index));
        let server_link = self.new_link(Remote::Backend(self.backends.len()));
        self.backends.push(Some(Backend::new(server_link, cluster, None)));
        self.pairs[client_link] = Some(server_link);
        self.pairs[server_link] = Some(client_link);
        let client = &mut self.clients[index];
        client.link = Some(client_link);
        client.number = self.next_client_number;
        self.next_client_number += 1;
        self.with_client(index, Client::opened);
    }

    /// What one end said goes to the other.
    pub fn pass_on(&mut self, from: LinkId, to: LinkId) {
        let link = &mut self.links[from];
        if link.stalled_until > self.now {
            return self.kick_up(from);
        }
        let count = link.chunk(link.up.bytes.len(), &mut self.rng);
        let bytes: Vec<u8> = link.up.bytes.drain(..count).collect();
        if bytes.is_empty() && link.up.fin {
            link.up.end_delivered = true;
            self.links[to].down.fin = true;
        }
        self.links[to].down.bytes.extend(bytes);
        self.kick_down(to);
        self.kick_up(from);
        if let Remote::Backend(backend) = self.links[from].remote {
            self.run_backend(backend, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, run_seed};

    #[test]
    fn the_simulated_ends_agree_with_each_other() {
        let mut statements = 0;
        for seed in 0..60 {
            let outcome = run_seed(seed, Options { direct: true, ..Options::default() });
            assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
            statements += outcome.counts.statements;
        }
        assert!(statements > 10_000, "{statements} statements");
    }
}
