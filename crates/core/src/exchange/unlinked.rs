//! What a client sends while it has no server: what needs none is answered, and all else waits for one.

use weir_wire::{FrontendTag, TransactionStatus, write};

use super::{Around, Exit, Verdict};
use crate::client::{ClientState, Discard, Link, Session};
use crate::context::Context;
use crate::id::ClientId;
use crate::inbox::{self, Body, Cursor, Inbox, Piece};
use crate::message::Message;

/// A client in its session that is linked to no server, or whose request was cancelled while it waited.
pub(crate) struct Unlinked<'w> {
    cx: &'w mut Context,
    /// Names of statements are ours.
    tracks: bool,
    /// What asks for a server is looked at first.
    looks_first: bool,
    id: ClientId,
    session: &'w mut Session,
    inbox: &'w mut Inbox,
    link: Link,
    congested: bool,
}

impl<'w> Unlinked<'w> {
    pub(crate) fn of(id: ClientId, around: Around<'w>) -> Option<Self> {
        let Around { cx, clients, pools, .. } = around;
        let client = clients.get_mut(id)?;
        let (link, congested, inbox) = (client.link, client.congested, &mut client.inbox);
        let ClientState::Ready(session) = &mut client.state else { return None };
        let limits = &pools[client.pool].limits;
        let (tracks, looks_first) = (session.tracks_statements(limits.mode), limits.looks_first);
        Some(Self { cx, tracks, looks_first, id, session, inbox, link, congested })
    }

    /// Takes what it can of the client's bytes, up to where a server is needed.
    pub(crate) fn client_bytes(&mut self, cursor: &mut Cursor<'_>) -> Exit {
        if let Link::Tunnel(server) = self.link {
            let (from, to) = cursor.take(u32::MAX);
            self.cx.out.forward(server, from, to);
            return Exit::Drained;
        }
        if self.congested {
            return Exit::Held;
        }
        if let Body::Forward(count) | Body::Skip(count) = self.inbox.body {
            // Whom the rest was for is gone.
            let (from, to) = cursor.take(count);
            self.inbox.expect_rest(count as usize, to - from, false);
        }
        if cursor.rest().is_empty() && !self.inbox.has_partial() {
            return Exit::Drained;
        }
        match inbox::next_message(self, |unlinked| unlinked.inbox, cursor, Self::request) {
            Ok(true) => Exit::Discarded,
            Ok(false) => Exit::Drained,
            Err(exit) => exit,
        }
    }

    fn request(&mut self, piece: &Piece<'_>) -> Verdict {
        let message = match Message::read(piece, self.cx.settings.max_packet_size) {
            Ok(message) => message,
            Err(failure) => return Verdict::Stop(Exit::failed(failure)),
        };
        if self.session.discard != Discard::Nothing {
            return match message.tag {
                _ if self.session.discard == Discard::Begun => Verdict::Stop(Exit::LooksFirst),
                FrontendTag::Terminate => Verdict::Stop(Exit::Ended),
                _ => self.discard(&message),
            };
        }
        match message.needed(self.tracks, self.session.reads()) {
            Ok(need) if message.bytes.len() < need => return Verdict::More(need),
            Ok(_) => {}
            Err(failure) => return Verdict::Stop(Exit::failed(failure)),
        }
        if self.link != Link::None {
            return Verdict::Stop(Exit::Held);
        }
        match message.tag {
            FrontendTag::Terminate => Verdict::Stop(Exit::Ended),
            FrontendTag::Sync => {
                self.cx.out.send(self.id, |out| write::ready(out, TransactionStatus::Idle));
                Verdict::Used(message.total)
            }
            // Ignored outside of a copy, as in `PostgresMain`.
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                self.skip(&message)
            }
            _ if self.looks_first => Verdict::Stop(Exit::LooksFirst),
            _ => Verdict::Stop(Exit::NeedsServer),
        }
    }

    fn skip(&mut self, message: &Message<'_>) -> Verdict {
        self.inbox.expect_rest(message.total, message.present(), false);
        Verdict::Used(message.present())
    }

    /// The message belongs to a request that was cancelled, or refused, while it waited.
    fn discard(&mut self, message: &Message<'_>) -> Verdict {
        let ends = self.session.discard == Discard::Answered
            && matches!(message.tag, FrontendTag::Query | FrontendTag::FunctionCall);
        let ready = ends || message.tag == FrontendTag::Sync;
        if message.tag == FrontendTag::Query && self.session.discard == Discard::Answered {
            // As it would have begun, a simple query destroys the unnamed statement. One that is skipped does not.
            self.session.unnamed.gone();
        }
        self.session.discard = if ready { Discard::Nothing } else { Discard::UntilSync };
        if ready {
            self.cx.out.send(self.id, |out| write::ready(out, TransactionStatus::Idle));
        }
        self.skip(message)
    }
}
