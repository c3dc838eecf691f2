//! Mail between workers, with and without connections, in order.

use weir_core::contract::{Input, Mail, Parcel};
use weir_core::{ConnId, WorkerId};

use super::super::machine::Machine;
use super::super::mailbox::Letter;
use super::super::sockets::Sockets;
use super::super::transport::{Phase, Place, Shipment, Transport};
use super::{Deferred, Engine};

/// Mail that waits: for its connection, or behind mail that does.
pub struct Departing {
    mail: Mail,
    waits_for: Option<ConnId>,
    shipment: Option<Shipment>,
}

impl<M: Machine, S: Sockets> Engine<M, S> {
    /// `Output::Mail`. A connection needs one of the process's descriptors to go: a client that gets none stays, before anybody
    /// has heard of its leaving. All others have one.
    pub(super) fn mail(&mut self, to: WorkerId, mail: Mail, conn: Option<ConnId>) {
        let waits_for = conn.filter(|id| self.is_open(*id));
        if let Some(id) = waits_for
            && let Some(transport) = self.transports.open(id)
            && !self.sockets.bring_out(&mut transport.socket)
        {
            return self.staying.push((id, mail));
        }
        let place = self.place_of(to);
        self.departing[place].push_back(Departing { mail, waits_for, shipment: None });
        let Some(id) = waits_for else { return self.send_departing(place) };
        let Some(transport) = self.transports.open(id) else { return };
        transport.phase = Phase::Leaving;
        if transport.newcomer
            && let Some(bytes) = self.newcomers.take(id)
        {
            // Held, since it leaves.
            self.bytes(id, &bytes, None);
        }
        let Some(transport) = self.transports.open(id) else { return };
        if self.sockets.retire(id, &mut transport.socket) {
            self.depart(id);
        }
    }

    /// Nothing is under way on a leaving connection's socket any more.
    pub(super) fn depart(&mut self, id: ConnId) {
        let Place::Open(transport) = self.transports.take(id) else { return };
        let (fd, unsent) = self.sockets.dismantle(transport.socket);
        let Transport { tls, held, ended, .. } = transport;
        let shipment = fd.map(|fd| Shipment { side: id.side, fd, tls, held, ended, unsent });
        self.deferred.push_back(Deferred::Closed(id));
        for to in 0..self.departing.len() {
            if let Some(departing) = self.departing[to].iter_mut().find(|departing| departing.waits_for == Some(id)) {
                departing.waits_for = None;
                departing.shipment = shipment;
                return self.send_departing(to);
            }
        }
    }

    /// The workers' own, and behind those the one for what leaves the process.
    fn place_of(&self, to: WorkerId) -> usize {
        usize::from(to.0).min(self.around.mailboxes.len())
    }

    fn send_departing(&mut self, place: usize) {
        while let Some(departing) = self.departing[place].pop_front_if(|departing| departing.waits_for.is_none()) {
            let parcel = Parcel { from: self.around.id, mail: departing.mail, transport: departing.shipment };
            match (self.around.mailboxes.get(place), &self.successor) {
                (Some(mailbox), _) => mailbox.send(Letter::Parcel(parcel)),
                // Whoever carries it does so up to the end of the process.
                (None, Some(successor)) => _ = successor.send(parcel),
                (None, None) => {}
            }
        }
    }

    /// Mail has come.
    pub(super) fn unpack(&mut self, parcel: Parcel<Shipment>) {
        let Parcel { from, mail, transport } = parcel;
        let has_ended = transport.as_ref().is_some_and(|shipment| shipment.ended);
        let conn = transport.map(|shipment| {
            let Shipment { side, fd, tls, held, unsent, .. } = shipment;
            let id = self.bring_in(side, fd);
            if let Some(transport) = self.transports.open(id) {
                transport.tls = tls;
                transport.held = held;
                if !unsent.is_empty() && self.sockets.send(id, &mut transport.socket, &[&unsent], None) {
                    self.dirty.push(id);
                }
                self.feed_soon(id);
                self.after_sending(id);
            }
            id
        });
        self.input(Input::Mail { from, mail, conn });
        if let Some(id) = conn {
            self.start_receiving(id);
            if has_ended {
                self.ended(id);
            }
        }
    }
}
