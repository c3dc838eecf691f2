//! What holds in every conversation, wherever it is cut: nobody else hears of an end, and nothing is left at the last.

use std::collections::BTreeMap;

use weir_core::time::Duration;
use weir_core::{ConnId, Side};

use super::driver::{End, State};
use super::play::Play;

impl Play<'_> {
    /// Cuts a connection off: nobody else's client hears of it but the one whose server it was.
    pub(super) fn aftermath(&mut self, cut: ConnId) -> Result<(), String> {
        let before = self.client_lens();
        self.driver.close(cut);
        let started = self.peers.values().any(|peer| peer.conn == cut && peer.started);
        let told = self.told_clients(&before, cut);
        let allowed = match cut.side {
            Side::Client => 0,
            Side::Server if started => 1,
            // A login that fails is told to all who waited for it.
            Side::Server => usize::MAX,
        };
        if told.len() > allowed {
            return Err(format!("the end of {cut:?} was heard by {told:?}"));
        }
        self.end_all()
    }

    fn client_lens(&self) -> BTreeMap<ConnId, usize> {
        let clients = self.driver.ends().filter(|end| end.id.side == Side::Client);
        clients.map(|end| (end.id, end.received_len)).collect()
    }

    fn told_clients(&self, before: &BTreeMap<ConnId, usize>, but: ConnId) -> Vec<ConnId> {
        let told = self.client_lens().into_iter().filter(|(id, len)| *id != but && before.get(id) != Some(len));
        let console = |id: &ConnId| self.peers.values().any(|peer| peer.conn == *id && peer.console);
        told.map(|(id, _)| id).filter(|id| !console(id)).collect()
    }

    /// Ends all clients, then all servers: no contract is broken by it, nobody hears of it, and nothing is left.
    pub(super) fn end_all(&mut self) -> Result<(), String> {
        // In session mode and after a cancel, a server that is reset sends nothing on; so no client hears anything.
        for client in self.client_lens().into_keys().collect::<Vec<_>>() {
            let before = self.client_lens();
            self.driver.close(client);
            let told = self.told_clients(&before, client);
            if !told.is_empty() {
                return Err(format!("the end of {client:?} was heard by {told:?}"));
            }
        }
        for round in 0.. {
            let open = |end: &&End| end.state != State::Ended;
            let ids: Vec<ConnId> = self.driver.ends().filter(open).map(|end| end.id).collect();
            if ids.is_empty() && round > 0 {
                break;
            }
            if round > 5 && self.settings.min_pool_size == 0 {
                return Err("core connects to servers for nobody".to_owned());
            }
            if round > 5 {
                break;
            }
            ids.into_iter().for_each(|id| self.driver.close(id));
            self.driver.pass(Duration::from_secs(7_200));
        }
        match self.driver.violations.first() {
            None => Ok(()),
            Some(violation) => Err(format!("the contract is broken: {violation}")),
        }
    }
}
