//! What a cluster's client asks before it has a server: its first messages tell to which node that goes.
//!
//! A statement with a key decides for its whole transaction. What is before it goes with it, so it is looked for as far as messages have come, up to
//! what their client waits for. A lone `BEGIN` is answered here, and sent ahead of that statement.

use std::sync::Arc;

use weir_cluster::route::{Class, Route, Target};
#[cfg(feature = "planted")]
use weir_cluster::topology::Group;
use weir_wire::frontend::{self, BindNames, Parse};
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use super::begun::{self, Lone};
use super::{Around, Exit, Verdict};
use crate::client::{self, ClientState, Discard, Link};
use crate::cluster::Known;
use crate::cluster::recipes::{Said, Session};
use crate::context::Context;
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::{self, Cursor, Inbox, Piece};
use crate::names::Destination;
use crate::pool::{Pool, Pools};
use crate::settings;
use crate::statements::definition::text_of;

/// Messages, and their bytes, that are looked at for a key.
const MESSAGES_MAX: usize = 64;
const BYTES_MAX: usize = 64 * 1024;
/// What is sent ahead of a transaction's first statement.
const HELD_BACK_MAX: usize = 4096;

/// What is said first of where a transaction goes.
enum Look {
    /// So many bytes must be there.
    Needs(usize),
    Goes(Target),
    /// So many bytes in hand are answered here, and nothing else is known yet.
    Begins(Lone, usize),
    Ends(Lone, usize),
}

/// A client whose requests are looked at while it has no server.
pub(crate) struct Unrouted<'w> {
    cx: &'w mut Context,
    pools: &'w Pools,
    pool: &'w Pool,
    id: ClientId,
    session: &'w mut client::Session,
    inbox: &'w mut Inbox,
    link: Link,
    /// Where its transaction goes, where that is the answer.
    pub(crate) destination: Destination,
}

impl<'w> Unrouted<'w> {
    pub(crate) fn of(id: ClientId, around: Around<'w>) -> Option<Self> {
        let Around { cx, clients, pools, .. } = around;
        let client = clients.get_mut(id)?;
        let (link, pool, inbox) = (client.link, client.pool, &mut client.inbox);
        let ClientState::Ready(session) = &mut client.state else { return None };
        let pools = &*pools;
        Some(Self { cx, pools, pool: &pools[pool], id, session, inbox, link, destination: Destination::default() })
    }

    /// `Drained`: more has to come first.
    pub(crate) fn next_message(&mut self, cursor: &mut Cursor<'_>) -> Exit {
        match inbox::next_message(self, |unrouted| unrouted.inbox, cursor, Self::request) {
            Ok(true) => Exit::Discarded,
            Ok(false) => Exit::Drained,
            Err(exit) => exit,
        }
    }

    fn request(&mut self, piece: &Piece<'_>) -> Verdict {
        let bytes = piece.bytes();
        let head = bytes.first_chunk::<HEADER_LEN>().map(Header::parse);
        let read = head.and_then(|head| Some((FrontendTag::from_byte(head.tag)?, head.body_len?)));
        // What is wrong with a message is told where it has a server.
        let Some((tag, body_len)) = read else { return Verdict::Stop(Exit::NeedsServer) };
        let total = HEADER_LEN + body_len as usize;
        let is_begun = self.session.discard == Discard::Begun;
        match (tag, self.link) {
            (FrontendTag::Terminate, _) => Verdict::Stop(Exit::Ended),
            (_, Link::Linked(_)) if is_begun => Verdict::Stop(Exit::Begins),
            (_, Link::None) => self.without_server(tag, bytes, total),
            _ => Verdict::Stop(Exit::Held),
        }
    }

    fn without_server(&mut self, tag: FrontendTag, bytes: &[u8], total: usize) -> Verdict {
        match tag {
            FrontendTag::Query if self.cx.settings.disable_pqexec => Verdict::Stop(Exit::failed(Failure::SimpleQuery)),
            FrontendTag::Sync if total == HEADER_LEN => {
                let is_begun = self.session.discard == Discard::Begun;
                let status = if is_begun { TransactionStatus::InTransaction } else { TransactionStatus::Idle };
                self.cx.out.send(self.id, |out| write::ready(out, status));
                Verdict::Used(total)
            }
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                let present = bytes.len().min(total);
                self.inbox.expect_rest(total, present, false);
                Verdict::Used(present)
            }
            _ => self.before_server(bytes),
        }
    }

    /// Ahead of what needs a server.
    fn before_server(&mut self, bytes: &[u8]) -> Verdict {
        let Some(route) = self.pool.limits.route else {
            // It may have been a cluster.
            let stays = self.pool.name.destination.is_entry();
            return if stays { Verdict::Stop(Exit::NeedsServer) } else { self.goes(Destination::default()) };
        };
        if self.session.listens {
            return Verdict::Stop(Exit::NeedsServer);
        }
        let Some(known) = self.cx.clusters.get(&self.session.database).map(Arc::clone) else {
            return self.goes(Destination::default());
        };
        if self.cx.clusters.is_in_doubt(&self.session.database) {
            return self.goes(Destination::at(known.coordinator()));
        }
        self.cx.recipes.begin();
        let target = match self.look(bytes, &known, route) {
            Look::Needs(need) => return Verdict::More(need),
            Look::Begins(lone, total) => return self.holds_back(&lone, total, &known),
            Look::Ends(lone, total) => return self.ends_nothing(&lone, total),
            Look::Goes(target) => target,
        };
        let fan_out = target == Target::Coordinator && self.pool.limits.fan_out.is_some() && self.cx.recipes.fans_out();
        let node = self.node(target, &known, route);
        self.cx.recipes.decided(node, self.cx.now);
        self.goes(Destination { node, fan_out })
    }

    fn goes(&mut self, destination: Destination) -> Verdict {
        self.destination = destination;
        Verdict::Stop(Exit::Goes)
    }

    fn look(&mut self, bytes: &[u8], known: &Known, route: settings::Route) -> Look {
        let mut parsed: Vec<Parse<'_>> = Vec::new();
        // What follows in a transaction may mean something on the coordinator alone: without a key it begins there.
        let mut begins = self.session.begun.is_some();
        let (mut follows, mut last) = (false, Class::Other);
        let (mut at, mut target) = (0, if begins { Target::Coordinator } else { Target::Any });
        for _ in 0..MESSAGES_MAX {
            let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) else {
                return Look::Needs(at + HEADER_LEN);
            };
            let header = Header::parse(head);
            let (Some(tag), Some(length)) = (FrontendTag::from_byte(header.tag), header.body_len) else { break };
            let (body, end) = (at + HEADER_LEN, at + HEADER_LEN + length as usize);
            if end > BYTES_MAX {
                return Look::Goes(Target::Coordinator);
            }
            if bytes.len() < end {
                return Look::Needs(end);
            }
            let body = &bytes[body..end];
            let is_first = std::mem::replace(&mut at, end) == 0;
            let routed = match tag {
                FrontendTag::Query => {
                    let Ok(text) = frontend::query(body) else { break };
                    let routed = self.route_of(Said { text, types: b"", bound: None }, known);
                    if let Some(look) = self.without(text, routed.class, route).filter(|_| is_first) {
                        return look(Lone::query(text), end);
                    }
                    let target = certain(&routed, begins || is_several(text));
                    return Look::Goes(if follows { Target::Coordinator } else { target });
                }
                FrontendTag::Parse => {
                    let Ok(parse) = Parse::read(body) else { break };
                    let routed = self.route_of(said(parse.definition, None), known);
                    // Of what has a key that is not there yet any node can say what it is.
                    if matches!(routed.class, Class::Other) {
                        target = Target::Coordinator;
                    }
                    parsed.push(parse);
                    continue;
                }
                FrontendTag::Bind => {
                    let Some(routed) = self.route_of_bind(body, &parsed, known) else {
                        return Look::Goes(Target::Coordinator);
                    };
                    routed
                }
                FrontendTag::Describe | FrontendTag::Execute | FrontendTag::Close => continue,
                FrontendTag::Sync => {
                    let Some(lone) = Lone::batch(&bytes[..end], self.session) else { break };
                    let look = self.without(&lone.text, last, route);
                    return look.map_or(Look::Goes(target), |look| look(lone, end));
                }
                FrontendTag::Flush | FrontendTag::Terminate => break,
                _ => return Look::Goes(Target::Coordinator),
            };
            last = routed.class;
            match last {
                Class::Begins => (begins, target) = (true, Target::Coordinator),
                Class::Ends | Class::Shows => {}
                // Alone it may be answered; what is behind it may be read by it.
                Class::Follows => (follows, target) = (true, Target::Coordinator),
                _ if follows => return Look::Goes(Target::Coordinator),
                _ => return Look::Goes(certain(&routed, begins)),
            }
        }
        Look::Goes(target)
    }

    /// Whether it is answered while its transaction has no server.
    fn without(&self, text: &[u8], class: Class, route: settings::Route) -> Option<fn(Lone, usize) -> Look> {
        let is_begun = self.session.begun.is_some();
        match class {
            _ if route == settings::Route::Coordinator => None,
            Class::Begins if !is_begun && begun::is_lone(text) => Some(Look::Begins),
            Class::Follows if is_begun && begun::is_sure_to_be_set(text) => Some(Look::Begins),
            Class::Ends if is_begun && begun::ends_plainly(text) => Some(Look::Ends),
            _ => None,
        }
    }

    /// `None`: there is no such statement, or nobody has its text.
    fn route_of_bind(&mut self, body: &[u8], parsed: &[Parse<'_>], known: &Known) -> Option<Route> {
        let names = BindNames::parse(body)?;
        let bound = frontend::bind_values(&body[names.len()..]).ok()?;
        let of_batch = parsed.iter().rev().find(|parse| parse.name == names.statement);
        let definition = match of_batch {
            Some(parse) => parse.definition.to_vec(),
            None if names.statement.is_empty() => self.session.unnamed.last().to_vec(),
            None => self.session.statements.get(names.statement)?.statement.definition.to_vec(),
        };
        (!definition.is_empty()).then(|| self.route_of(said(&definition, Some(&bound)), known))
    }

    fn route_of(&mut self, said: Said<'_>, known: &Known) -> Route {
        let base = self.pools.find(&self.pool.name.at_entry()).map(|index| &self.pools[index]);
        let session = Session {
            parameters: &self.session.parameters,
            user: &self.pool.name.user,
            server_encoding: base.and_then(|base| base.welcome.as_ref()).map_or(b"", |welcome| welcome.encoding()),
            path: self.pool.knowledge.path.as_deref(),
        };
        self.cx.recipes.route(said, &session, &known.topology)
    }

    /// The pool's node; `None`: whichever the entry leads to.
    fn node(&self, target: Target, known: &Known, route: settings::Route) -> Option<i32> {
        #[cfg(feature = "planted")]
        let target = self.planted_target(target, known);
        match (target, route) {
            (Target::Coordinator, _) | (_, settings::Route::Coordinator) => known.coordinator(),
            (Target::Owner(group), settings::Route::Owner) => Some(group.0),
            (Target::Any | Target::Owner(_), _) => {
                known.nodes().min_by_key(|&node| self.work_at(node)).or(known.coordinator())
            }
        }
    }

    #[cfg(feature = "planted")]
    fn planted_target(&self, target: Target, known: &Known) -> Target {
        use crate::planted::Planted;
        let other = |group: Group| known.nodes().find(|node| *node != group.0).map_or(group, Group);
        match (target, self.cx.planted) {
            (Target::Owner(group), Some(Planted::MissOwner)) => Target::Owner(other(group)),
            (Target::Coordinator, Some(Planted::SpreadAll)) => Target::Any,
            _ => target,
        }
    }

    /// Whether logins fail at the node, and how much it has to do for this worker's clients; of those with the same the client's last one comes first.
    fn work_at(&self, node: i32) -> (bool, usize, bool) {
        let destination = Destination::at(Some(node));
        let is_here = self.pool.name.destination == destination;
        let pool = self.pools.find(&self.pool.name.at(destination)).map(|index| &self.pools[index]);
        let fails = pool.is_some_and(|pool| pool.failures > 0);
        let work = pool.map_or(0, |pool| pool.waiting.len() + (pool.servers as usize).saturating_sub(pool.idle.len()));
        (fails, work, !is_here)
    }

    /// A transaction begins, or goes on to say what it is, and nobody can tell where yet. PostgreSQL answers that alike on every node.
    fn holds_back(&mut self, lone: &Lone, total: usize, known: &Known) -> Verdict {
        let text = &lone.text;
        if self.session.begun.as_ref().map_or(0, |begun| begun.len()) + text.len() > HELD_BACK_MAX {
            return self.goes(Destination::at(known.coordinator()));
        }
        let begun = self.session.begun.get_or_insert_default();
        if begun.is_empty() {
            self.session.transaction_at = self.cx.now;
        } else {
            begun.push(b';');
        }
        begun.extend_from_slice(begun::bare(text));
        self.session.discard = Discard::Begun;
        let tag = match begun::first_word(text).as_slice() {
            b"start" => "START TRANSACTION",
            b"set" => "SET",
            _ => "BEGIN",
        };
        self.answer(lone, tag, TransactionStatus::InTransaction);
        Verdict::Used(total)
    }

    /// A transaction ends that has done nothing.
    fn ends_nothing(&mut self, lone: &Lone, total: usize) -> Verdict {
        let is_committed = matches!(begun::first_word(&lone.text).as_slice(), b"commit" | b"end");
        #[cfg(feature = "planted")]
        let begun = self.session.begun.take().filter(|_| self.cx.planted == Some(crate::planted::Planted::KeepBegun));
        #[cfg(not(feature = "planted"))]
        let begun = None;
        self.session.discard = if begun.is_some() { Discard::Begun } else { Discard::Nothing };
        self.session.begun = begun;
        self.answer(lone, if is_committed { "COMMIT" } else { "ROLLBACK" }, TransactionStatus::Idle);
        Verdict::Used(total)
    }

    fn answer(&mut self, lone: &Lone, tag: &str, status: TransactionStatus) {
        let Self { session, cx, id, .. } = self;
        if lone.is_query() {
            session.unnamed.gone();
        } else if let Some(definition) = &lone.parsed {
            session.unnamed.parsed_nowhere(cx.statements.next_id(), definition, &session.parameters);
        }
        cx.out.send(*id, |out| lone.answer(out, tag, status));
    }
}

/// A statement by its definition.
fn said<'a>(definition: &'a [u8], bound: Option<&'a [frontend::BoundValue<'a>]>) -> Said<'a> {
    let text = text_of(definition);
    // Behind the text's end is the number of the types.
    Said { text, types: definition.get(text.len() + 3..).unwrap_or_default(), bound }
}

/// Where what follows in the transaction, or is read by what this sets, is not known, only the coordinator is certain to be right.
fn certain(routed: &Route, begins: bool) -> Target {
    match (routed.class, routed.target) {
        (Class::Begins | Class::Follows | Class::Sets, _) => Target::Coordinator,
        (_, Target::Any) if begins => Target::Coordinator,
        (_, target) => target,
    }
}

/// More than one statement, perhaps.
pub(super) fn is_several(text: &[u8]) -> bool {
    begun::bare(text).contains(&b';')
}
