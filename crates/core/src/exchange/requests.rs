//! What a client in its session sends: the way of a query from client to server.
//!
//! A message's header decides: forward it, skip it, or gather it first because its names or its text must be read. Nothing is sent to a
//! server for a client that is not linked to it, and a server is taken only when there is something to send.

use std::sync::Arc;

use weir_wire::{FrontendTag, TransactionStatus};

use super::Exchange;
use crate::failure::{Failure, Uncertain};
use crate::inbox::{self, Body, Cursor, Piece};
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::message::{DEALLOCATE, Message};
use crate::owed::{HARMLESS, Owed, Request};
use crate::parameters::{ParameterSet, reading};
use crate::server::{Hold, Server};
use crate::statements::definition::text_of;
use crate::statements::{Closes, SERVER_NAME_PREFIX, names_set_config};

/// The function's number (src/include/catalog/pg_proc.dat).
const SET_CONFIG: u32 = 2078;
/// `lo_open` and its like.
const LARGE_OBJECTS: [u32; 20] =
    [715, 764, 765, 767, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172, 3457, 3458, 3459, 3460];

/// What became of a message of the client's.
pub(super) type Verdict = inbox::Verdict<Exit>;

/// Why an exchange is over for now.
pub(crate) enum Exit {
    /// It has dealt with all that came.
    Drained,
    /// The client is not read until something changes.
    Held,
    /// The rest of a long message has gone to the server, which may owe nothing any more.
    Sent,
    /// It has dealt with a message that needed no server.
    Discarded,
    /// What came is for a server, and it has none.
    NeedsServer,
    /// Before it has one, what it asks is looked at.
    LooksFirst,
    /// And that is for one at a node of a cluster (`Unrouted::destination`).
    Goes,
    /// The client's transaction begins on the server that it has, which it was told before.
    Begins,
    /// What was notified before is told first: the client leaves some of what it listens to.
    NeedsNotifications,
    /// The server is to listen to what the client hears elsewhere first.
    NeedsChannels,
    /// It is to forget what `nextval` gave to others.
    NeedsSequences,
    /// It needs one that nobody has had temporary objects on.
    NeedsNoTemporary,
    /// What the client has prepared without a Sync is over first.
    NeedsSync,
    /// It is to have no prepared statements but the client's. `own_names`: by the client's names, for good.
    NeedsStatements { own_names: bool },
    /// Terminate.
    Ended,
    /// In a box: nothing else that is answered is so long.
    Failed(Box<Failure>),
}

impl Exit {
    #[cold]
    pub(super) fn failed(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl Exchange<'_> {
    /// Takes what it can of the client's bytes.
    pub(crate) fn client_bytes(&mut self, cursor: &mut Cursor<'_>) -> Exit {
        loop {
            // A client that does not take its replies may not make us write more of them.
            if self.server.congested || (self.congested && self.server.owed.is_empty()) {
                return Exit::Held;
            }
            if self.inbox.body != Body::None {
                if cursor.rest().is_empty() {
                    return Exit::Drained;
                }
                if self.continue_body(cursor) {
                    return Exit::Sent;
                }
                continue;
            }
            if let Some(exit) = self.next_message(cursor) {
                return exit;
            }
        }
    }

    /// The rest of a long message. Whether it was the end of one that goes to the server, and something waited for that.
    fn continue_body(&mut self, cursor: &mut Cursor<'_>) -> bool {
        let (from, to, forwards) = self.inbox.take_rest(cursor);
        if forwards {
            self.cx.out.forward(self.server_id, from, to);
            self.counters.bytes_received += (to - from) as u64;
        }
        let owed = &self.server.owed;
        forwards && self.inbox.body == Body::None && (owed.settled() || owed.unsynced() || owed.is_doubt_unasked())
    }

    /// Why it cannot go on behind the next message, if it cannot.
    fn next_message(&mut self, cursor: &mut Cursor<'_>) -> Option<Exit> {
        if cursor.rest().is_empty() && !self.inbox.has_partial() {
            return Some(Exit::Drained);
        }
        match inbox::next_message(self, |exchange| exchange.inbox, cursor, Self::request) {
            Ok(true) => None,
            Ok(false) => Some(Exit::Drained),
            Err(exit) => Some(exit),
        }
    }

    fn request(&mut self, piece: &Piece<'_>) -> Verdict {
        let message = match Message::read(piece, self.cx.settings.max_packet_size) {
            Ok(message) => message,
            Err(failure) => return Verdict::Stop(Exit::failed(failure)),
        };
        match message.needed(self.tracks, self.session.reads()) {
            Ok(need) if message.bytes.len() < need => return Verdict::More(need),
            Ok(_) if self.server.kept.reads && message.is_text_cut() => return Verdict::More(message.total),
            Ok(_) => {}
            Err(failure) => return Verdict::Stop(Exit::failed(failure)),
        }
        if message.tag == FrontendTag::Terminate && self.server.owed.is_empty() && !self.server.is_in_message() {
            return Verdict::Stop(Exit::Ended);
        }
        if self.server.owed.is_in_copy() {
            if !is_part_of_copy(message.tag) || (message.tag == FrontendTag::Sync && self.server.owed.is_full()) {
                return Verdict::Stop(Exit::failed(Failure::WrongMessage {
                    expected: "data or the end of a COPY from stdin",
                    got: message.tag as u8,
                }));
            }
        } else if message.tag == FrontendTag::Terminate || holds_back(self.server, message.tag) {
            if self.server.hold == Hold::End && self.server.owed.is_empty() {
                // A copy has opened its batch again: nothing comes behind which the session would end.
                return Verdict::Stop(Exit::failed(Failure::Uncertain(Uncertain::CancelMayCome)));
            }
            if self.server.works_for_us() {
                self.session.request_comes(self.server.status, self.cx.now);
                self.arm_client();
            }
            // PostgreSQL reads a Terminate when it has carried out and answered all that came before it.
            return self.wait_for_replies();
        }
        if self.server.owed.skipping() && message.tag != FrontendTag::Sync {
            return self.skip(&message);
        }
        if self.server.kept.on
            && let Some(verdict) = self.before_what_is_elsewhere(&message)
        {
            return verdict;
        }
        // Or parameters of its own go ahead of it, in the same write.
        let first = self.server.owed.settled() || self.server.owed.is_fresh();
        if first {
            self.session.request_begins(self.server.status, self.cx.now);
        }
        let reads = self.session.reads();
        if reads && let Some(verdict) = self.before_resets(&message) {
            return verdict;
        }
        let verdict = self.by_tag(&message);
        let refused = self.server.kept.refuses && self.server.owed.last_is_to_fail();
        if reads && !refused && matches!(verdict, Verdict::Used(_)) {
            self.read_resets(&message);
        }
        if first && (matches!(verdict, Verdict::Used(_)) || !self.server.owed.settled()) {
            // The client is no longer idle in its transaction: a query runs, or one of ours that it waits for.
            self.arm_client();
        }
        verdict
    }

    /// A Sync directly behind such a query.
    fn before_dormant_sync(&mut self) -> Option<Verdict> {
        if !self.server.owed.is_empty() {
            // The query may begin a copy, which nothing but its data may follow.
            return Some(self.wait_for_replies());
        }
        if self.server.status == TransactionStatus::InTransaction {
            self.server.parse_nothing(self.server_id, self.cx);
        }
        None
    }

    fn by_tag(&mut self, message: &Message<'_>) -> Verdict {
        if let Some(verdict) = self.before_unsynced_query(message) {
            return verdict;
        }
        if self.server.kept.judges
            && let Some(verdict) = self.judge(message)
        {
            return verdict;
        }
        let owed = &mut self.server.owed;
        match message.tag {
            FrontendTag::Query => {
                if self.cx.settings.disable_pqexec {
                    return Verdict::Stop(Exit::failed(Failure::SimpleQuery));
                }
                if let Some(verdict) = self.query(message) {
                    return verdict;
                }
            }
            FrontendTag::FunctionCall => {
                owed.push(Owed::client(Request::FunctionCall));
                if self.server.kept.reads && !calls_large_object(message) {
                    self.server.kept.sent(&Leaves::unknown(), b"FunctionCall");
                }
                if calls_set_config(message) {
                    self.server.kept.sets_unreported();
                }
            }
            FrontendTag::Sync => {
                if owed.is_dormant()
                    && let Some(verdict) = self.before_dormant_sync()
                {
                    return verdict;
                }
                self.server.owed.push(Owed::client(Request::Sync));
            }
            FrontendTag::Execute => return self.execute(message),
            FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => return self.copy_message(message),
            FrontendTag::Flush => {}
            FrontendTag::Parse => return self.parse(message),
            FrontendTag::Bind => return self.bind(message),
            FrontendTag::Describe | FrontendTag::Close => return self.target(message),
            FrontendTag::Password => return Verdict::Stop(Exit::failed(Failure::UnknownMessage(message.tag as u8))),
            FrontendTag::Terminate => return Verdict::Stop(Exit::Ended),
        }
        self.forward(message)
    }

    /// `None`: it is sent as it is.
    fn query(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let (session, server) = self.pair();
        let closes = if server.mirror.len() > 0 || session.statements.has_given() {
            Closes::of_query(message.body(), message.present() == message.total)
        } else {
            Closes::Nothing
        };
        if closes != Closes::Nothing {
            if let Some(verdict) = self.deallocate_own(message) {
                return Some(verdict);
            }
            self.server.owed.deallocates();
        }
        let (session, server) = self.pair();
        server.mirror.unnamed_in = server.owed.batch();
        server.mirror.forget_portals();
        let query = Owed::client(Request::Query);
        server.owed.push(if deallocates_another(message, closes) || sets_unread(message) {
            query.statement(HARMLESS)
        } else {
            closes.mark(query, session.statements.last_given())
        });
        if self.tracks && may_set_untold(message) {
            self.server.kept.sets_unreported();
        }
        if self.server.kept.reads && !self.server.kept.plain {
            self.query_leaves(message);
        }
        None
    }

    #[inline(never)]
    fn query_leaves(&mut self, message: &Message<'_>) {
        let whole = message.present() == message.total;
        let leaves = if whole { Leaves::of(message.body()) } else { Leaves::unknown() };
        let now = Arc::clone(&self.session.parameters);
        self.leaves(&leaves, message.body(), &now, self.may_be_read_otherwise());
        self.server.kept.calls(text_of(message.body()), &leaves);
    }

    /// This is sent, and what its client leaves in its session is kept.
    /// `under`: the parameters under which PostgreSQL has read it; `doubtful`: or others.
    pub(super) fn leaves(&mut self, leaves: &Leaves, text: &[u8], under: &ParameterSet, doubtful: bool) {
        self.server.kept.strings_set |= leaves.sets_strings || (leaves.resets_strings && !self.has_first_strings());
        let misread = self.misreads(leaves, under, doubtful);
        let (kept, parameters) = (&mut self.server.kept, &self.session.parameters);
        kept.names_temporary |= leaves.names_temporary;
        if misread {
            kept.sent(&Leaves::unknown(), text);
        } else if !leaves.is_none() || leaves.alters {
            kept.sent(leaves, text);
        }
        if kept.creates_temporary(parameters) {
            kept.sent(&Leaves::any(Kinds::OBJECTS), text);
        }
        self.behind_altering(misread || leaves.ends_transaction);
    }

    /// Whether a RESET ALL changes nothing in how texts are read. Where its client has defaults of its own, the server's may stand until those are
    /// given again.
    #[cold]
    fn has_first_strings(&self) -> bool {
        let (Some(welcome), None) = (&self.server.welcome, &self.session.startup) else { return false };
        let value = |set: &ParameterSet, name| set.get(name).map(|own| Arc::clone(&own.value));
        READ_BY.iter().all(|name| value(&self.session.parameters, name) == value(&welcome.defaults, name))
    }

    /// Data for a copy, or its end. Sent ahead of the CopyInResponse it waits for that; outside of a copy it is ignored, as in
    /// `PostgresMain`.
    fn copy_message(&mut self, message: &Message<'_>) -> Verdict {
        if !self.server.owed.is_in_copy() {
            return if self.server.owed.is_empty() { self.skip(message) } else { self.wait_for_replies() };
        }
        if message.tag != FrontendTag::CopyData {
            self.server.owed.end_copy_in();
        }
        self.forward(message)
    }
}

/// The parameters by which PostgreSQL reads texts.
pub(super) const READ_BY: [&str; 2] = ["client_encoding", "standard_conforming_strings"];

/// What a client may send while PostgreSQL waits for its data.
fn is_part_of_copy(tag: FrontendTag) -> bool {
    use FrontendTag as Tag;
    matches!(tag, Tag::CopyData | Tag::CopyDone | Tag::CopyFail | Tag::Flush | Tag::Sync)
}

/// Whether the query, which closes that much, is a lone DEALLOCATE of a statement that is none of ours.
fn deallocates_another(message: &Message<'_>, closes: Closes) -> bool {
    let body = message.body();
    if matches!(closes, Closes::AllBehind(_)) || message.present() < message.total {
        return false;
    }
    let (word, rest) = body.split_at(DEALLOCATE.len().min(body.len()));
    word.eq_ignore_ascii_case(DEALLOCATE)
        // An identifier `U&"..."` has escapes of any kind.
        && !rest.iter().any(|byte| matches!(byte, b';' | b'\\' | b'&'))
        && !rest.windows(SERVER_NAME_PREFIX.len()).any(|at| at.eq_ignore_ascii_case(SERVER_NAME_PREFIX.as_bytes()))
}

/// Whether any message like this waits for what is owed, whatever it says.
#[inline]
fn holds_back(server: &mut Server, tag: FrontendTag) -> bool {
    let held = match server.hold {
        Hold::Nothing => false,
        Hold::Parameters => true,
        // What was reset is given back at a ReadyForQuery. Data of a copy belongs to the request that is under way.
        Hold::Reset => !is_part_of_copy(tag) && (server.owed.awaits_ready() || server.cancel_is_on_its_way()),
        Hold::End => !is_part_of_copy(tag),
    };
    held || server.owed.holds_back(tag == FrontendTag::Sync) || server.owed.is_full()
}

/// Whether the query is a lone SET of a parameter that parsing does not read.
#[inline]
fn sets_unread(message: &Message<'_>) -> bool {
    reading::sets_unread(message.body()) && message.present() == message.total
}

/// Whether the query may set a parameter that neither a report nor a command tag tells of, as far as its text says. A long one
/// is not waited for.
#[inline]
fn may_set_untold(message: &Message<'_>) -> bool {
    message.present() < message.total || names_set_config(message.body())
}

/// Whether it is a call of what drivers call so: functions of large objects, which end with the transaction.
pub(super) fn calls_large_object(message: &Message<'_>) -> bool {
    message.body().first_chunk().is_some_and(|&number| LARGE_OBJECTS.contains(&u32::from_be_bytes(number)))
}

/// Whether it is a call of the function `set_config`; where its number is not there yet, it may be.
fn calls_set_config(message: &Message<'_>) -> bool {
    message.body().first_chunk().is_none_or(|&number| u32::from_be_bytes(number) == SET_CONFIG)
}
