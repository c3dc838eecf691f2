//! Clients that listen, where one server of their pool listens for all of them (`worker/channels.rs` has the steps).
//!
//! PostgreSQL tells all sessions that listen to a channel the same notifications in the same order (src/backend/commands/async.c). So a
//! notification of our own, the *mark*, which both a client's own server and the listener are told, is where the one takes over from the other: what
//! is told ahead of it is the own server's to tell, and what behind it the listener's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_wire::HEADER_LEN;

use crate::id::{ClientId, ServerId};
use crate::kept::leaves::Leaves;
use crate::kept::{Kept, Kinds, Lists};
use crate::time::Time;

/// Names as PostgreSQL has them, in the database's encoding.
pub(crate) type Channels = BTreeSet<Box<[u8]>>;

/// Notifications that wait for one client: it is in a transaction, or does not read.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// How far a server is in leaving what its client listens to to the listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Handover {
    #[default]
    Nothing,
    /// It was sent the mark.
    Marking,
    /// It is to listen to nothing more.
    Leaving,
    /// It did not come to that, and is not tried again.
    Failed,
}

/// A pool's server that listens, and for whom.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) server: ServerId,
    /// Where marks are told: a name that nobody knows.
    pub(crate) marks: String,
    clients: BTreeMap<ClientId, Listening>,
    channels: BTreeMap<Box<[u8]>, BTreeSet<ClientId>>,
    /// The server was asked to listen to these, and has not answered.
    unheard: Channels,
    /// Clients that wait for that.
    waiting: BTreeSet<ClientId>,
    /// And clients that are about to leave some of it: what was notified before is told first.
    hearing_out: BTreeSet<ClientId>,
    /// Marks on their way.
    marked: BTreeMap<String, ClientId>,
    /// Which answer it owed when that was looked at last.
    pub(crate) awaited: Option<u64>,
}

/// One client.
#[derive(Debug, Default)]
struct Listening {
    channels: Channels,
    coming: Option<Coming>,
    /// Messages that it cannot take now.
    kept: Vec<Arc<[u8]>>,
    kept_bytes: usize,
}

/// What a client's own server still tells.
#[derive(Debug, Default)]
struct Coming {
    channels: Channels,
    mark: Option<Mark>,
    own_has_told: bool,
    listener_has_told: bool,
}

#[derive(Debug)]
struct Mark {
    payload: String,
    /// The process that notifies.
    by: u32,
}

/// A notification (protocol chapter 55.7, NotificationResponse).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification<'a> {
    by: u32,
    channel: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Notification<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let (by, rest) = body.split_first_chunk()?;
        let mut parts = rest.splitn(3, |byte| *byte == 0);
        let (channel, payload) = (parts.next()?, parts.next()?);
        Some(Self { by: u32::from_be_bytes(*by), channel, payload })
    }

    pub(crate) fn is_ascii(&self) -> bool {
        self.channel.is_ascii() && self.payload.is_ascii()
    }
}

impl Listener {
    /// A server becomes it with what its client listens to.
    pub(crate) fn new(server: ServerId, marks: String, client: ClientId, channels: Channels) -> Self {
        let of_channels = channels.iter().map(|channel| (channel.clone(), [client].into())).collect();
        let clients = [(client, Listening { channels, ..Listening::default() })].into();
        // Where the mark is not heard, nothing is taken over.
        let unheard = [marks.as_bytes().into()].into();
        Self {
            server,
            marks,
            clients,
            channels: of_channels,
            unheard,
            waiting: BTreeSet::new(),
            hearing_out: BTreeSet::new(),
            marked: BTreeMap::new(),
            awaited: None,
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.clients.is_empty()
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// What a client hears from here, or will from the mark on.
    pub(crate) fn told_to(&self, client: ClientId) -> impl Iterator<Item = &[u8]> {
        let listening = self.clients.get(&client);
        let coming = listening.and_then(|listening| listening.coming.as_ref()).filter(|coming| coming.own_has_told);
        let channels = listening.into_iter().flat_map(|listening| &listening.channels);
        channels.chain(coming.into_iter().flat_map(|coming| &coming.channels)).map(|channel| &**channel)
    }

    /// Those of a client's channels that it does not hear from here.
    pub(crate) fn unknown_to(&self, client: ClientId, channels: &Channels) -> Channels {
        let here = self.clients.get(&client);
        let others = channels.iter().filter(|channel| ***channel != *self.marks.as_bytes());
        others.filter(|channel| !here.is_some_and(|here| here.is_told(channel))).cloned().collect()
    }

    /// Whether its last mark has still to be told here.
    pub(crate) fn is_marked(&self, client: ClientId) -> bool {
        let coming = self.clients.get(&client).and_then(|listening| listening.coming.as_ref());
        coming.is_some_and(|coming| coming.mark.is_some())
    }

    /// A client wants to hear these here, and nothing else that was to come. The query by which the server begins to listen to them; empty
    /// where it does.
    pub(crate) fn wants(&mut self, client: ClientId, channels: &Channels) -> Vec<u8> {
        let mut sql = Vec::new();
        let coming = Coming { channels: channels.clone(), ..Coming::default() };
        let before = self.clients.entry(client).or_default().coming.replace(coming);
        for channel in channels {
            if !self.channels.contains_key(channel) {
                write_listen(&mut sql, channel);
                self.unheard.insert(channel.clone());
            }
            self.channels.entry(channel.clone()).or_default().insert(client);
        }
        self.leave_coming(client, before, &mut sql);
        sql
    }

    /// It does not come to that.
    pub(crate) fn gives_back(&mut self, client: ClientId) -> Vec<u8> {
        let mut sql = Vec::new();
        let coming = self.clients.get_mut(&client).and_then(|listening| listening.coming.take());
        self.leave_coming(client, coming, &mut sql);
        self.remove_blank(client);
        sql
    }

    fn leave_coming(&mut self, client: ClientId, coming: Option<Coming>, sql: &mut Vec<u8>) {
        let Some(coming) = coming else { return };
        if let Some(mark) = coming.mark {
            self.marked.remove(&mark.payload);
        }
        for channel in &coming.channels {
            let stays = self.clients.get(&client).is_some_and(|listening| listening.wants(channel));
            if !stays {
                self.leave(client, channel, sql);
            }
        }
    }

    /// Whether it listens to all of these, and to the marks. Else the client waits.
    pub(crate) fn hears(&mut self, client: ClientId, channels: &Channels) -> bool {
        let hears = self.unheard.is_disjoint(channels) && !self.unheard.contains(self.marks.as_bytes());
        if !hears {
            self.waiting.insert(client);
        }
        hears
    }

    /// It does not leave them after all. Whether it was about to.
    pub(crate) fn stops_hearing_out(&mut self, client: ClientId) -> bool {
        self.hearing_out.remove(&client)
    }

    /// All that it was asked is answered: who waited for that, and who has been told all that was notified before.
    pub(crate) fn answered(&mut self) -> [BTreeSet<ClientId>; 2] {
        self.unheard.clear();
        [std::mem::take(&mut self.waiting), std::mem::take(&mut self.hearing_out)]
    }

    /// A client is about to leave some of what it hears from here. The query behind whose own notification, which PostgreSQL puts behind all that were
    /// committed before (`PreCommit_Notify`, src/backend/commands/async.c), it has been told those; empty where it hears nothing.
    pub(crate) fn hears_out(&mut self, client: ClientId) -> Vec<u8> {
        if !self.has(client) {
            return Vec::new();
        }
        self.hearing_out.insert(client);
        format!("NOTIFY {}", self.marks).into_bytes()
    }

    /// The mark is on its way, which that process tells.
    pub(crate) fn marks(&mut self, client: ClientId, payload: String, by: u32) {
        if let Some(coming) = self.clients.get_mut(&client).and_then(|listening| listening.coming.as_mut()) {
            self.marked.insert(payload.clone(), client);
            coming.mark = Some(Mark { payload, by });
        }
    }

    /// The client's own server has told the mark.
    pub(crate) fn own_has_told(&self, client: ClientId) -> bool {
        let listening = self.clients.get(&client);
        listening.is_some_and(|listening| listening.coming.as_ref().is_none_or(|coming| coming.own_has_told))
    }

    /// A notification of a client's own server. Whether it is for the client.
    pub(crate) fn is_for(&mut self, client: ClientId, told: &Notification<'_>) -> bool {
        let is_mark = told.channel == self.marks.as_bytes();
        let Some(listening) = self.clients.get_mut(&client) else { return !is_mark };
        let Some(coming) = &mut listening.coming else {
            return !is_mark && !listening.channels.contains(told.channel);
        };
        if is_mark {
            coming.own_has_told |= coming.is(told);
            listening.settle();
            return false;
        }
        !listening.is_told(told.channel)
    }

    /// One of its own server's: for whom it is.
    pub(crate) fn told(&mut self, told: &Notification<'_>) -> Vec<ClientId> {
        let Some(clients) = self.channels.get(told.channel) else { return Vec::new() };
        let hears = |client: &&ClientId| {
            self.clients.get(client).is_some_and(|listening| {
                let comes = |coming: &Coming| coming.listener_has_told && coming.channels.contains(told.channel);
                listening.channels.contains(told.channel) || listening.coming.as_ref().is_some_and(comes)
            })
        };
        clients.iter().filter(hears).copied().collect()
    }

    /// Whether it is a client's mark, and whose.
    pub(crate) fn marked(&mut self, told: &Notification<'_>) -> Option<ClientId> {
        let payload = std::str::from_utf8(told.payload).ok().filter(|_| told.channel == self.marks.as_bytes())?;
        let client = *self.marked.get(payload)?;
        let listening = self.clients.get_mut(&client)?;
        let coming = listening.coming.as_mut().filter(|coming| coming.is(told))?;
        coming.listener_has_told = true;
        listening.settle();
        self.marked.remove(payload);
        Some(client)
    }

    /// A message that its client cannot take now. False where that is too much.
    pub(crate) fn keep(&mut self, client: ClientId, message: &Arc<[u8]>) -> bool {
        let Some(listening) = self.clients.get_mut(&client) else { return true };
        listening.kept_bytes += message.len();
        let room = listening.kept_bytes <= KEPT_BYTES_MAX;
        if room {
            listening.kept.push(Arc::clone(message));
        }
        room
    }

    /// What was kept for a client that can take it, unless its own server has to tell something ahead of that.
    pub(crate) fn take_kept(&mut self, client: ClientId) -> Option<Vec<Arc<[u8]>>> {
        let listening = self.clients.get_mut(&client)?;
        if listening.is_marked() || listening.kept.is_empty() {
            return None;
        }
        listening.kept_bytes = 0;
        Some(std::mem::take(&mut listening.kept))
    }

    /// Whether a message must wait, whatever its client does.
    pub(crate) fn waits(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|listening| listening.is_marked() || !listening.kept.is_empty())
    }

    /// Of what a client hears from here it has left all but what stays. The query by which the server leaves what nobody hears any more; empty where
    /// that is nothing.
    pub(crate) fn keep_only(&mut self, client: ClientId, stays: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let Some(listening) = self.clients.get_mut(&client) else { return Vec::new() };
        let mut left: Channels = listening.channels.extract_if(.., |own| !stays(own)).collect();
        if let Some(coming) = listening.coming.as_mut().filter(|coming| coming.own_has_told) {
            left.extend(coming.channels.extract_if(.., |own| !stays(own)));
        }
        let is_left = |told: Notification<'_>| left.contains(told.channel);
        listening.kept.retain(|message| !Notification::read(&message[HEADER_LEN..]).is_some_and(is_left));
        listening.kept_bytes = listening.kept.iter().map(|message| message.len()).sum();
        // What its own server tells still is as that has it.
        let native = listening.coming.take_if(|coming| coming.mark.is_none());
        let mut sql = Vec::new();
        left.iter().for_each(|channel| self.leave(client, channel, &mut sql));
        self.leave_coming(client, native, &mut sql);
        self.remove_blank(client);
        sql
    }

    /// The client has gone.
    pub(crate) fn forget(&mut self, client: ClientId) -> Vec<u8> {
        let mut sql = Vec::new();
        self.hearing_out.remove(&client);
        let Some(listening) = self.clients.remove(&client) else { return sql };
        self.leave_coming(client, listening.coming, &mut sql);
        listening.channels.iter().for_each(|channel| self.leave(client, channel, &mut sql));
        sql
    }

    fn remove_blank(&mut self, client: ClientId) {
        let blank = |listening: &Listening| listening.channels.is_empty() && listening.coming.is_none();
        if self.clients.get(&client).is_some_and(blank) {
            self.clients.remove(&client);
        }
    }

    fn leave(&mut self, client: ClientId, channel: &[u8], sql: &mut Vec<u8>) {
        let Some(clients) = self.channels.get_mut(channel) else { return };
        clients.remove(&client);
        if clients.is_empty() {
            self.channels.remove(channel);
            self.unheard.remove(channel);
            sql.extend_from_slice(b"UN");
            write_listen(sql, channel);
        }
    }
}

impl Coming {
    fn is(&self, told: &Notification<'_>) -> bool {
        self.mark.as_ref().is_some_and(|mark| told.payload == mark.payload.as_bytes() && told.by == mark.by)
    }
}

impl Listening {
    fn wants(&self, channel: &[u8]) -> bool {
        self.channels.contains(channel) || self.coming.as_ref().is_some_and(|coming| coming.channels.contains(channel))
    }

    /// The listener tells it this one, or will from the mark on, which its own server has told.
    fn is_told(&self, channel: &[u8]) -> bool {
        let comes = |coming: &Coming| coming.own_has_told && coming.channels.contains(channel);
        self.channels.contains(channel) || self.coming.as_ref().is_some_and(comes)
    }

    /// Its own server has to tell something ahead of what the listener tells.
    fn is_marked(&self) -> bool {
        self.coming.as_ref().is_some_and(|coming| coming.mark.is_some() && !coming.own_has_told)
    }

    /// From the mark on the listener tells all, once both have told it.
    fn settle(&mut self) {
        if let Some(coming) = self.coming.take_if(|coming| coming.own_has_told && coming.listener_has_told) {
            self.channels.extend(coming.channels);
        }
    }
}

/// A statement that listens to it.
pub(crate) fn write_listen(sql: &mut Vec<u8>, channel: &[u8]) {
    sql.extend_from_slice(b"LISTEN \"");
    for &byte in channel {
        sql.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
    }
    sql.extend_from_slice(b"\";");
}

/// What a text needs of what its client listens to, where another server hears that.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NeedsChannels {
    #[default]
    No,
    /// It is not known what it calls.
    Unseen,
    /// It may leave some.
    Perhaps,
    Leaves,
    /// It is told of them.
    Reads,
}

impl NeedsChannels {
    /// By its own words.
    pub(crate) fn by_words(leaves: &Leaves) -> Self {
        let may_be_anything = leaves.makes.has(Kinds::CHANNELS) && !leaves.says.has(Kinds::CHANNELS);
        match (leaves.asks_channels, leaves.unlistens) {
            (true, _) => Self::Reads,
            (false, true) => Self::Leaves,
            (false, false) if may_be_anything => Self::Perhaps,
            (false, false) => Self::No,
        }
    }
}

impl Kept {
    /// They do for what its client listens to, and that is known. `alone`: for nothing else.
    pub(crate) fn listens(&self, alone: bool) -> Option<&Channels> {
        let held = if alone { self.held } else { self.held.and(Kinds::CHANNELS) };
        let listens = held == Kinds::CHANNELS && self.due.with(self.ends).is_none() && !self.blind;
        self.channels.as_ref().filter(|_| listens && self.look.is_none() && !self.refuses)
    }

    /// The two stay together for what its client listens to alone, whatever else may be found to be there. What is left of what it was
    /// told to listen to the next look tells.
    pub(crate) fn only_listens(&self) -> bool {
        let is_known = self.channels.is_some() || (self.lists != Lists::No && !self.lists_seen);
        self.held == Kinds::CHANNELS && is_known && self.handover != Handover::Failed
    }

    /// What its client listens to is told elsewhere.
    pub(crate) fn leaves_channels(&mut self, now: Time) {
        (self.channels, self.handover) = (None, Handover::Nothing);
        self.hold(self.held.without(Kinds::CHANNELS), now);
    }

    /// It is to listen to what its client hears elsewhere.
    pub(crate) fn lists_channels(&mut self, lists: Lists, now: Time) {
        (self.lists, self.lists_seen) = (lists, false);
        self.ends = self.ends.with(Kinds::CHANNELS);
        self.hold(self.held.with(Kinds::CHANNELS), now);
    }

    /// What that was for is sent. `leaves`: it may take some of it away, and is not only told of it.
    pub(crate) fn uses_lists(&mut self, leaves: bool) {
        self.lists_seen &= !leaves;
        if let Lists::Certainly { sent } = &mut self.lists {
            *sent = true;
        }
    }

    /// As far as it is known what is left of what it was told to listen to.
    pub(crate) fn seen_lists(&self) -> &Lists {
        if self.lists_seen { &self.lists } else { &Lists::No }
    }

    /// What it listens to, as PostgreSQL tells it itself.
    pub(crate) fn is_told_channels(&mut self, channels: Option<Channels>) {
        if let Some(channels) = channels {
            self.channels = Some(channels);
        }
        self.lists_seen = self.lists != Lists::No;
        self.ends = self.ends.without(Kinds::CHANNELS);
    }

    /// It listens to something, and not all names can be read.
    pub(crate) fn channels_are_unread(&self) -> bool {
        self.held.has(Kinds::CHANNELS) && self.channels.is_none()
    }

    /// What was looked for is there: what its client listens to of what it was told to. `None`: all of it, the transaction was rolled back.
    pub(crate) fn listed(&mut self) -> Option<Channels> {
        let is_there = match std::mem::take(&mut self.lists) {
            Lists::No => false,
            Lists::Certainly { .. } => true,
            Lists::IfSet { mark, .. } => self.mark_found.as_deref() == Some(mark.as_bytes()),
        };
        is_there.then(|| self.channels.clone().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Table;

    const PROCESS: u32 = 7;

    fn told(by: u32, channel: &str, payload: &str) -> Vec<u8> {
        [&by.to_be_bytes(), channel.as_bytes(), b"\0", payload.as_bytes(), b"\0"].concat()
    }

    fn channels(names: &[&str]) -> Channels {
        names.iter().map(|name| name.as_bytes().into()).collect()
    }

    /// One client whose server has become the listener, and another.
    fn listener() -> (Listener, [ClientId; 2]) {
        let (mut clients, mut servers) = (Table::<ClientId, ()>::default(), Table::<ServerId, ()>::default());
        let ids = [clients.insert(()), clients.insert(())];
        (Listener::new(servers.insert(()), "marks".to_owned(), ids[0], channels(&["a"])), ids)
    }

    /// Who is told by the listener, and whether the other's own server tells it.
    fn both(listener: &mut Listener, other: ClientId, channel: &str) -> (Vec<ClientId>, bool) {
        let body = told(99, channel, "");
        let notification = Notification::read(&body).unwrap();
        (listener.told(&notification), listener.is_for(other, &notification))
    }

    fn mark(listener: &mut Listener, other: ClientId, by: u32, own: bool) {
        let body = told(by, "marks", "m");
        let notification = Notification::read(&body).unwrap();
        if own {
            assert!(!listener.is_for(other, &notification));
        } else {
            listener.marked(&notification);
        }
    }

    #[test]
    fn the_one_tells_up_to_the_mark_and_the_other_from_there_on() {
        for own_first in [true, false] {
            let (mut listener, [first, other]) = listener();
            assert_eq!(listener.wants(other, &channels(&["a", "b\"c"])), b"LISTEN \"b\"\"c\";");
            assert!(!listener.hears(other, &channels(&["a"])), "it does not listen to marks yet");
            assert!(listener.answered()[0].contains(&other));
            assert!(listener.hears(other, &channels(&["a", "b\"c"])));
            listener.marks(other, "m".to_owned(), PROCESS);
            assert_eq!(both(&mut listener, other, "a"), (vec![first], true));
            mark(&mut listener, other, PROCESS, own_first);
            // Nobody's, or from elsewhere.
            mark(&mut listener, other, PROCESS + 1, !own_first);
            let between = if own_first { (vec![first], false) } else { (vec![first, other], true) };
            assert_eq!(both(&mut listener, other, "a"), between);
            assert_eq!(listener.waits(other), !own_first, "what the listener tells comes behind what the other does");
            mark(&mut listener, other, PROCESS, !own_first);
            assert_eq!(both(&mut listener, other, "a"), (vec![first, other], false));
            assert_eq!(both(&mut listener, other, "b\"c"), (vec![other], false));
            assert_eq!(both(&mut listener, other, "d"), (vec![], true));
            assert_eq!(listener.keep_only(other, |own| channels(&["a"]).contains(own)), b"UNLISTEN \"b\"\"c\";");
            assert_eq!(both(&mut listener, other, "a"), (vec![first, other], false));
            assert_eq!(listener.forget(first), b"");
            assert_eq!(listener.forget(other), b"UNLISTEN \"a\";");
            assert!(listener.is_unused());
        }
    }

    #[test]
    fn what_is_given_back_is_told_by_the_client_s_own_server() {
        let (mut listener, [first, other]) = listener();
        listener.wants(other, &channels(&["a", "b"]));
        listener.answered();
        listener.marks(other, "m".to_owned(), PROCESS);
        mark(&mut listener, other, PROCESS, false);
        assert_eq!(listener.gives_back(other), b"UNLISTEN \"b\";");
        mark(&mut listener, other, PROCESS, true);
        assert_eq!(both(&mut listener, other, "a"), (vec![first], true));
        assert!(!listener.has(other));
    }

    #[test]
    fn messages_are_kept_in_order_and_within_bounds() {
        let (mut listener, [first, _]) = listener();
        let message = |channel: &str| Arc::from([b"A\0\0\0\0", &*told(1, channel, "x")].concat());
        assert!(listener.keep(first, &message("a")) && listener.keep(first, &message("b")));
        listener.keep_only(first, |own| channels(&["b"]).contains(own));
        // It is told of what it has not left.
        let kept = listener.take_kept(first);
        assert!(kept.is_none(), "it listens to nothing, and is forgotten");
        let (mut listener, [first, _]) = self::listener();
        let long = Arc::from(vec![0; KEPT_BYTES_MAX / 2]);
        assert!(listener.keep(first, &long) && listener.keep(first, &long));
        assert!(!listener.keep(first, &message("a")));
    }
}
