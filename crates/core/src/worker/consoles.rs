//! The way of a console's messages to its session, and of what comes of them.

use crate::client::ClientState;
use crate::console::report::Answer;
use crate::console::talk::{Talk, Then};
use crate::contract::Reloaded;
use crate::id::ClientId;
use crate::inbox::{Cursor, Inbox};
use crate::worker::Service;

impl Service {
    /// A session of the console, and where its messages are gathered.
    pub(super) fn talk(&mut self, id: ClientId) -> Option<(Talk<'_>, &mut Inbox)> {
        let client = self.traffic.clients.get_mut(id)?;
        let ClientState::Console(console) = &mut client.state else { return None };
        let (cx, counters) = (&mut self.traffic.cx, &mut self.console_counters);
        Some((Talk { cx, id, console, congested: client.congested, counters }, &mut client.inbox))
    }

    pub(super) fn console_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        if let Some((mut talk, inbox)) = self.talk(id) {
            let then = talk.bytes(inbox, &mut cursor);
            self.talked(id, then);
        }
        cursor.at
    }

    /// Something else than bytes.
    pub(super) fn console_input(&mut self, id: ClientId, take: impl FnOnce(&mut Talk<'_>) -> Then) {
        if let Some((mut talk, _)) = self.talk(id) {
            let then = take(&mut talk);
            self.talked(id, then);
        }
    }

    /// One worker's share of an answer.
    pub(super) fn console_told(&mut self, id: ClientId, share: Answer) {
        self.console_input(id, |talk| talk.told(share));
    }

    pub(super) fn console_goes_on(&mut self, id: ClientId) {
        if let Some((mut talk, _)) = self.talk(id) {
            talk.goes_on();
        }
    }

    /// What the console asked for, if it did, has ended.
    pub(super) fn reload_done(&mut self, asker: Option<ClientId>, result: &Reloaded) {
        if let Some(id) = asker {
            self.console_input(id, |talk| talk.reloaded(result));
        }
    }

    pub(super) fn talked(&mut self, id: ClientId, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Hold => self.traffic.hold_client(id),
            Then::Wake => self.traffic.wake_client(id),
            Then::Later => self.traffic.arm_client(id),
            Then::End => self.end_client(id, "client close request"),
            Then::Fail(failure) => self.fail_client(id, &failure),
        }
    }
}
