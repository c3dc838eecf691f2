//! What core puts out, carried out as a driver does.

use weir_core::contract::CONGESTED_BYTES;
use weir_core::time::Duration;
use weir_core::{ConnId, Event as CoreEvent, Output, Side, Span, TlsRole};

use super::{Conn, Stand, TLS_MARKER, Todo};
use crate::memory;
use crate::world::{Event, World};

impl World {
    pub(super) fn carry_out(&mut self, index: usize, output: Output, received: &[u8]) {
        match output {
            Output::Send { conn, span } => self.send(index, conn, span, received),
            Output::Read { conn, on } => self.read(index, conn, on),
            Output::Connect { conn, endpoint } => {
                if conn.side != Side::Server {
                    self.checks.fail("contract", format!("Connect under the name {conn:?}"));
                }
                self.adopt(index, conn, Conn::new(None, Stand::Connecting));
                self.connect(index, conn, &endpoint);
                memory::in_core(|| drop(endpoint));
            }
            Output::StartTls { conn, role } => self.start_tls(index, conn, &role),
            Output::Close { conn } => self.close(index, conn),
            Output::Derive { job, password, salt, iterations } => {
                let salted_password = crate::scram::salted_password(password.as_bytes(), &salt, iterations);
                memory::in_core(|| drop((password, salt)));
                let pause = self.rng.spread(5_000);
                self.later(pause, index, Todo::Derived { job, salted_password });
            }
            Output::TellNames { asker } => {
                let pause = self.rng.spread(2_000);
                self.later(pause, index, Todo::NamesTold(asker));
            }
            // No record of these settings asks for it.
            Output::Ask { client, .. } | Output::AskNoMore { client } => {
                self.checks.fail("contract", format!("Ask for {client:?}"))
            }
            Output::Mail { to, mail, conn } => self.post(index, to, mail, conn),
            Output::Event(event) => self.core_event(index, event),
        }
    }

    fn send(&mut self, index: usize, id: ConnId, span: Span, received: &[u8]) {
        let host = &mut self.hosts[index];
        let bytes = match span {
            Span::Received { start, end } => received.get(start as usize..end as usize),
            Span::Made { .. } => Some(host.worker.made(span)),
        };
        let Some(conn) = host.conns.get_mut(&id) else { return };
        let Some(bytes) = bytes else {
            return self.checks.fail("contract", format!("{span:?} outside of {} received bytes", received.len()));
        };
        if !matches!(conn.stand, Stand::Open) {
            let text =
                format!("worker {index} sends on {id:?}, which is {:?}: {}", conn.stand, crate::trace::preview(bytes));
            return self.checks.fail("contract", text);
        }
        conn.out.extend(bytes);
        if self.tracing {
            let text = crate::trace::preview(bytes);
            self.trace(|| format!("worker {index} -> Send {id:?} {text}"));
        }
        self.push_down(index, id);
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if conn.out.len() > CONGESTED_BYTES && !conn.congested {
            conn.congested = true;
            self.hosts[index].queue.push_back(Todo::Congested(id));
        }
    }

    /// Moves bytes onto the link as far as its window goes.
    pub fn push_down(&mut self, index: usize, id: ConnId) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        let Some(link_id) = conn.link else { return };
        let link = &mut self.links[link_id];
        let count = link.window_left().min(conn.out.len());
        if link.remote_open {
            link.down.bytes.extend(conn.out.drain(..count));
        } else {
            // Nobody is there: a reset comes back. It also ends a send that waits for its peer to read.
            let reset = (conn.ended && count > 0) || conn.congested;
            conn.out.clear();
            if reset {
                let pause = self.rng.spread(1_000);
                self.later(pause, index, Todo::Closed(id));
            }
        }
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        let empty = conn.out.is_empty();
        let closing = conn.stand == Stand::Closing;
        if empty && conn.congested && !closing {
            conn.congested = false;
            self.hosts[index].queue.push_back(Todo::Writable(id));
        }
        if count > 0 {
            self.kick_down(link_id);
        }
        if empty && closing {
            let pause = self.rng.below(500);
            self.later(pause, index, Todo::Closed(id));
        }
    }

    fn read(&mut self, index: usize, id: ConnId, on: bool) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if conn.stand == Stand::Closing {
            return;
        }
        conn.reading = on;
        if on {
            self.reads_on += 1;
            let link = conn.link;
            self.hosts[index].queue.push_back(Todo::Bytes(id));
            if let Some(link) = link {
                self.kick_up(link);
            }
        }
    }

    fn start_tls(&mut self, index: usize, id: ConnId, role: &TlsRole) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if conn.stand != Stand::Open {
            let text = format!("StartTls on {id:?}, which is {:?}", conn.stand);
            return self.checks.fail("contract", text);
        }
        match role {
            TlsRole::Accept { .. } => {
                conn.stand = Stand::TlsAccept;
                self.hosts[index].queue.push_back(Todo::Bytes(id));
            }
            TlsRole::Connect { .. } => {
                conn.out.extend(TLS_MARKER);
                conn.stand = Stand::TlsConnect;
                self.push_down(index, id);
                let pause = self.rng.spread(3_000);
                self.at(self.now + Duration(pause), Event::TlsReady(index, id));
            }
        }
    }

    fn close(&mut self, index: usize, id: ConnId) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        match conn.stand {
            Stand::Closing => return self.checks.fail("contract", format!("worker {index} closes {id:?} twice")),
            Stand::Connecting => {
                conn.stand = Stand::Closing;
                let pause = self.rng.below(1_000);
                let last = if self.rng.chance(500) { Todo::Closed(id) } else { Todo::ConnectFailed(id) };
                return self.later(pause, index, last);
            }
            _ => {}
        }
        conn.stand = Stand::Closing;
        conn.held.clear();
        if let Some(link) = conn.link {
            self.sessions.remove(&link);
        }
        self.linger(index, id, usize::MAX);
        self.push_down(index, id);
    }

    fn core_event(&mut self, index: usize, event: CoreEvent) {
        match &event {
            CoreEvent::Reload { asker, .. } => self.reload_asked(index, *asker),
            CoreEvent::StopListening => self.listening = false,
            CoreEvent::Exit => self.exited = true,
            CoreEvent::Log { .. } => {}
        }
        memory::in_core(|| drop(event));
    }
}
