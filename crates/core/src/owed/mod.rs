//! The replies that a server owes, in order.
//!
//! PostgreSQL answers in the order asked; what is asked goes in at the back, each reply takes from the front. Messages
//! that we put between the client's are in the same queue, marked ours, so their replies are kept from the client.
//! Knows nothing of connections: what a reply means for client and server is the caller's business.
//!
//! What a message changes on the server is certain when it is answered. Before that it counts only within its own batch, that
//! is up to the next Sync: PostgreSQL skips all of a batch behind an error, and then carries out the next one. So batches
//! have numbers, and what an unanswered batch has touched is not touched by a later one ([`Touched`]).

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::TransactionStatus;
use weir_wire::backend::StatementShape;
use weir_wire::report::Report;

use crate::parameters::ParameterSet;
use crate::parameters::resetting::Noted;
use crate::settings::PoolMode;
use crate::statements::{Evicted, Held, Statement};

mod batches;
mod copy;
mod executed;
mod failing;
pub(crate) mod marks;
mod names;
mod places;
mod ready;
mod texts;

pub(crate) use batches::{LastBatches, Touched};
pub(crate) use copy::Copy;
use copy::Doubt;
use executed::Executed;
use marks::MARKS;
pub(crate) use marks::{
    BEGUN, COMMITS, FORMER, HARMLESS, MAY_CLOSE, MAY_CLOSE_ALL, UNKNOWN_PORTAL, UNNAMED, may_close_all_behind,
};
use texts::Own;

/// Replies that may be owed on one link before its client is no longer read.
const OWED_MAX: usize = 16 * 1024;
/// The same where something closes all statements: all that is owed behind it is looked through for those that are there again.
const WALKED_MAX: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Query,
    /// A simple query of ours: parameters, ROLLBACK, a reset.
    OwnQuery,
    FunctionCall,
    Sync,
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    /// Nothing was sent: the reply is ours to make when its turn comes.
    Made,
    /// Has no reply either: a query of ours behind it asks how many Syncs of a failed copy are answered.
    Doubt,
}

impl Request {
    /// Ends with a ReadyForQuery of its own.
    fn ends_with_ready(self) -> bool {
        matches!(self, Self::Query | Self::OwnQuery | Self::FunctionCall | Self::Sync)
    }
}

/// What must be done or undone when the reply comes, or when an error takes its place.
#[derive(Debug)]
pub(crate) enum Note {
    /// The client named a statement; undone if the message is never carried out.
    Named { name: Box<[u8]>, statement: Arc<Statement> },
    /// The client closed a statement: under `Made`, CloseComplete.
    Closed { name: Box<[u8]>, held: Option<Held> },
    /// By SQL the client gives up this name.
    Deallocated(Box<[u8]>),
    /// We close a statement on the server.
    Evicted(Evicted),
    /// Or one that was for a query of ours, by this name.
    Own(Box<str>),
    /// This request was sent to fail: the error the client gets is this one.
    Fails(Box<Report>),
    /// What it is to the client's startup values.
    Startup(Noted),
    /// This is the text of the client's own message, which is behind it as a trial: what PostgreSQL says of it is the client's.
    Text,
    /// We ask for the parameters that a statement is used under next, which are these by what is known.
    Presumes(Arc<ParameterSet>),
    /// We ask for those that the unnamed statement of this number was parsed under, in place of these.
    Unnamed(u64, Arc<ParameterSet>),
}

#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) request: Request,
    /// Asked by us: the client does not see the reply.
    pub(crate) ours: bool,
    /// The statement it uses: 0 for none of which we know, [`UNNAMED`] for the unnamed one; or another mark of
    /// `marks.rs`.
    pub(crate) statement: u64,
    /// The number of the client's name for it (`Held`), 0 for none; of what may close all of them the last one's.
    pub(crate) name: u64,
    pub(crate) note: Option<Box<Note>>,
}

impl Owed {
    pub(crate) fn client(request: Request) -> Self {
        Self { request, ours: false, statement: 0, name: 0, note: None }
    }

    pub(crate) fn ours(request: Request) -> Self {
        Self { request, ours: true, statement: 0, name: 0, note: None }
    }

    pub(crate) fn statement(mut self, id: u64) -> Self {
        self.statement = id;
        self
    }

    pub(crate) fn name(mut self, number: u64) -> Self {
        self.name = number;
        self
    }

    pub(crate) fn note(mut self, note: Note) -> Self {
        self.note = Some(Box::new(note));
        self
    }

    /// The statement with a name that it uses, 0 for none.
    pub(crate) fn named_statement(&self) -> u64 {
        if self.statement >= MARKS { 0 } else { self.statement }
    }
}

/// How far the batch is that is being sent.
///
/// ```text
/// Synced <──Sync, Query── Open ──error──> Skipping ──Sync──> Synced
///    ├──Bind, Execute, ...──> Open
///    └──Parse, Describe, Close──> Preparing ──Bind, Execute, ...──> Open
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchState {
    /// Nothing was sent behind the last Sync, or what ends as one does.
    Synced,
    /// Nothing was but what prepares statements, describes and closes them: nothing that a transaction ends, or takes back.
    Preparing,
    /// Messages of the extended protocol were.
    Open,
    /// After an error outside of a simple query PostgreSQL reads on to the next Sync, which was not sent yet.
    Skipping,
}

/// Where the message that is sent next stands among batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Between two, or in one that has done nothing yet.
    Between,
    /// So it may be when what is owed has come.
    Later,
    /// A Sync of ours would end what the client's batch has begun.
    Within,
}

#[derive(Debug)]
pub(crate) struct OwedQueue {
    queue: VecDeque<Owed>,
    /// How many were ever put into it.
    pushed: u64,
    sending: BatchState,
    executed: Executed,
    /// What was sent last was a Flush.
    flushed: bool,
    copy: Copy,
    doubt: Option<Doubt>,
    /// The client is not read until something that is owed has come: see [`Self::awaits`].
    awaited: bool,
    /// Something has come that the client may wait for.
    moved: bool,
    /// The request in front has what PostgreSQL says ahead of each ReadyForQuery but a Sync's.
    told: bool,
    /// As many replies are owed as may be.
    full: bool,
    /// Texts that notes keep have so many bytes at most: they are counted anew only where these are too many.
    text_bytes: usize,
    /// They were too many, and are more than half of that; or those of ours are too many.
    heavy: bool,
    own: Own,
    /// Statement pooling: whether the first request opened a transaction decides whether the next is carried out.
    one_by_one: bool,
    fresh: bool,
    /// The batch being sent, and the last one whose Sync is answered.
    batch: u64,
    answered: u64,
    /// Requests with a ReadyForQuery of their own: how many were sent, and how many of those are answered.
    readies_sent: u64,
    readies_answered: u64,
    /// With this ReadyForQuery all is reported that the client's requests may have done to the session's parameters.
    reported_by: u64,
    /// The number of the ReadyForQuery behind the last Execute of what may set parameters by its own words.
    set_by: u64,
    /// How many of what was executed by the extended protocol may end a transaction.
    ends: u64,
    /// Something that is owed may close all of the client's statements.
    deallocating: bool,
    /// The place of the last of those that may.
    deallocates_at: u64,
    /// Of the parameters that the statement in front takes, while its rows are still to be described.
    parameters: Option<u64>,
}

impl Default for OwedQueue {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            pushed: 0,
            sending: BatchState::Synced,
            executed: Executed::default(),
            flushed: false,
            copy: Copy::None,
            doubt: None,
            awaited: false,
            moved: false,
            told: false,
            full: false,
            text_bytes: 0,
            heavy: false,
            own: Own::default(),
            one_by_one: false,
            fresh: false,
            batch: 1,
            answered: 0,
            readies_sent: 0,
            readies_answered: 0,
            reported_by: 0,
            set_by: 0,
            ends: 0,
            deallocating: false,
            deallocates_at: 0,
            parameters: None,
        }
    }
}

impl OwedQueue {
    /// A client comes whose session has touched things in batches up to this one, on other servers.
    /// `one_by_one`: nothing is sent behind what a ReadyForQuery ends before that has come.
    pub(crate) fn begin(&mut self, batch: u64, one_by_one: bool) {
        debug_assert!(self.settled(), "a server is handed on with nothing owed");
        self.answered = self.batch.max(batch);
        self.batch = self.answered + 1;
        self.reported_by = self.readies_answered;
        self.set_by = self.readies_answered;
        self.one_by_one = one_by_one;
        self.fresh = true;
        self.awaited = false;
    }

    /// The two were linked in statement mode, and what was sent then is answered as such, whatever the mode is by now: what is pipelined in another
    /// may be answered otherwise.
    pub(crate) fn is_one_by_one(&self) -> bool {
        self.one_by_one
    }

    /// All of that is answered, and they stay together in another mode.
    pub(crate) fn goes_on_in(&mut self, mode: PoolMode) {
        self.one_by_one = mode == PoolMode::Statement;
    }

    /// Whether the client has sent nothing yet on this link.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether anything is owed to a client, one that is gone perhaps.
    pub(crate) fn has_of_client(&self) -> bool {
        self.queue.iter().any(|owed| !owed.ours)
    }

    #[inline]
    pub(crate) fn push(&mut self, owed: Owed) {
        debug_assert!(
            self.sending != BatchState::Skipping || owed.request == Request::Sync,
            "{owed:?} would be skipped"
        );
        self.flushed = false;
        self.fresh &= owed.ours;
        match owed.request {
            Request::Sync => self.push_sync(),
            // These end in a ReadyForQuery of their own: what was parsed before them needs no Sync any more.
            Request::Query | Request::FunctionCall => {
                self.batch += 1;
                self.executed.query(self.sending == BatchState::Synced);
                self.sending = BatchState::Synced;
                self.readies_sent += 1;
                self.reported_by = self.readies_sent;
            }
            Request::OwnQuery => {
                self.sending = BatchState::Synced;
                self.readies_sent += 1;
            }
            Request::Made => {}
            Request::Close => self.prepares(),
            Request::Parse | Request::DescribeStatement => {
                self.prepares();
                self.takes_up();
            }
            _ => {
                self.sending = BatchState::Open;
                self.takes_up();
                self.executed.acts |= !owed.ours;
            }
        }
        let text_bytes = owed.note.as_deref().map_or(0, Note::text_bytes);
        self.append(owed);
        if text_bytes > 0 {
            self.owes_text(text_bytes);
        }
    }

    #[inline]
    fn prepares(&mut self) {
        if self.sending == BatchState::Synced {
            self.sending = BatchState::Preparing;
        }
    }

    fn push_sync(&mut self) {
        match &mut self.copy {
            Copy::In { ahead } => *ahead = ahead.saturating_add(1),
            copy => {
                if let Copy::Ending { synced, .. } = copy {
                    *synced = true;
                }
                self.sending = BatchState::Synced;
                self.executed = Executed::default();
            }
        }
        self.batch += 1;
        self.readies_sent += 1;
    }

    /// Something of this batch may have changed parameters, which its ReadyForQuery tells.
    pub(crate) fn has_executed(&self) -> bool {
        self.reported_by > self.readies_sent
    }

    /// Something of this batch sets parameters by its own words, or may.
    pub(crate) fn has_executed_set(&self) -> bool {
        self.set_by > self.readies_sent
    }

    /// Whether the parameters that PostgreSQL reports are known as of the message that is sent next.
    pub(crate) fn reported_parameters(&self) -> Touched {
        if self.has_executed() {
            Touched::InThisBatch
        } else if self.reported_by > self.readies_answered {
            Touched::InDoubt
        } else {
            Touched::Answered
        }
    }

    /// The number of the request in front, or of the batch that it is part of: another one behind each ReadyForQuery.
    pub(crate) fn front_number(&self) -> u64 {
        self.readies_answered
    }

    /// The number of the batch being sent.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// The number of the last batch that is answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    #[inline]
    pub(crate) fn touched(&self, batch: u64) -> Touched {
        if batch <= self.answered {
            Touched::Answered
        } else if batch == self.batch {
            Touched::InThisBatch
        } else {
            Touched::InDoubt
        }
    }

    /// The same for what was touched in any of these batches.
    #[inline]
    pub(crate) fn touched_in(&self, batches: LastBatches) -> Touched {
        match self.touched(batches.before) {
            Touched::InDoubt => Touched::InDoubt,
            _ => self.touched(batches.last),
        }
    }

    /// What is to be done when the reply to the last request comes; `None` where something else was sent in its place.
    pub(crate) fn last_note(&mut self, request: Request, ours: bool) -> Option<&mut Option<Box<Note>>> {
        let last = self.queue.back_mut().filter(|last| last.ours == ours && last.request == request);
        last.map(|last| &mut last.note)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Owed> {
        self.queue.front()
    }

    /// A Sync of ours is in front that commits what its client has prepared.
    pub(crate) fn commits(&self) -> bool {
        self.front().is_some_and(|owed| owed.statement == COMMITS)
    }

    /// Its client was told that its transaction has begun, and PostgreSQL has not answered that.
    pub(crate) fn begins(&self) -> bool {
        self.queue.iter().any(|owed| owed.statement == BEGUN)
    }

    /// A request of ours is in front that carries out what its client has sent: what PostgreSQL says meanwhile is the client's.
    #[cold]
    pub(crate) fn speaks_to_client(&self) -> bool {
        self.commits() || self.front().is_some_and(|owed| matches!(owed.note.as_deref(), Some(Note::Text)))
    }

    /// A query or batch of ours has ended, and the next ReadyForQuery answers none of ours.
    #[cold]
    pub(crate) fn ends_what_is_ours(&self, ended: &Owed) -> bool {
        let is_own = |owed: &Owed| owed.ours && matches!(owed.request, Request::OwnQuery | Request::Sync);
        let next = self.queue.iter().find(|owed| owed.request.ends_with_ready());
        is_own(ended) && !next.is_some_and(is_own)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Owed> {
        let owed = self.queue.pop_front()?;
        self.told = false;
        self.count_answered(owed.request);
        Some(owed)
    }

    #[inline]
    fn count_answered(&mut self, request: Request) {
        self.moved = true;
        if request.ends_with_ready() {
            self.readies_answered += 1;
            self.answered += u64::from(request != Request::OwnQuery);
        }
    }

    /// An error in reply to a message of the extended protocol: all up to the next Sync is not carried out. Answers
    /// what fell away, the failed one first.
    pub(crate) fn fail(&mut self) -> Vec<Owed> {
        let sync = self.queue.iter().position(|owed| owed.request == Request::Sync);
        if sync.is_none() {
            self.sending = BatchState::Skipping;
        }
        let dropped: Vec<Owed> = self.queue.drain(..sync.unwrap_or(self.queue.len())).collect();
        for owed in &dropped {
            self.count_answered(owed.request);
        }
        self.told = false;
        dropped
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The client's next message is held back for something that is owed. True where PostgreSQL must be asked for it with a
    /// Flush, since no Sync is behind it.
    ///
    /// Whatever it is held back for, it is woken by whatever comes, and asks again. So nothing needs to be known of why it waits
    /// but that something comes: see [`Self::is_coming`].
    pub(crate) fn awaits(&mut self) -> bool {
        self.awaited = true;
        let copy_unasked = matches!(self.copy, Copy::Ending { synced: false, .. }) && !self.front_awaits_ready();
        let unflushed = matches!(self.sending, BatchState::Open | BatchState::Preparing) || copy_unasked;
        unflushed && !std::mem::replace(&mut self.flushed, true)
    }

    /// Whether the client that is held back is to ask again, since something has come and there is room for more; true once.
    #[inline]
    pub(crate) fn wakes(&mut self) -> bool {
        let wakes = std::mem::take(&mut self.moved) && self.awaited && (self.is_in_copy() || !self.is_full());
        self.awaited &= !wakes;
        wakes
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Whether something comes without another message of the client's: something is owed, with a Sync, a Flush or a query
    /// behind it, and PostgreSQL does not wait for data of a copy.
    pub(crate) fn is_coming(&self) -> bool {
        let asked = self.sending == BatchState::Synced || self.flushed || self.awaits_ready();
        !self.queue.is_empty() && asked && !self.is_in_copy() && !self.is_doubt_unasked()
    }

    /// The client is held back, and nothing comes that would wake it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.awaited && !self.is_coming()
    }

    /// Whether no more may be owed, until half of it has come.
    #[inline]
    pub(crate) fn is_full(&mut self) -> bool {
        let len = self.queue.len();
        self.full = len >= WALKED_MAX && self.is_long(len);
        self.full || (self.heavy && self.is_heavy())
    }

    pub(crate) fn skipping(&self) -> bool {
        self.sending == BatchState::Skipping
    }

    /// Something of its client's that runs, or commits, is not answered.
    pub(crate) fn has_unanswered(&self) -> bool {
        let runs = |request| {
            matches!(
                request,
                Request::Query | Request::Execute | Request::FunctionCall | Request::Sync | Request::Doubt
            )
        };
        self.queue.iter().any(|owed| !owed.ours && runs(owed.request))
    }

    /// Nothing is owed, and PostgreSQL waits for nothing but the next request.
    #[inline]
    pub(crate) fn settled(&self) -> bool {
        self.queue.is_empty() && self.sending == BatchState::Synced
    }

    /// Whether queries of ours with a Sync of their own may be sent. `status`: as was told last.
    pub(crate) fn standing(&self, status: TransactionStatus) -> Standing {
        // They cannot fail.
        let closes_alone = || self.queue.iter().all(|owed| owed.request == Request::Close);
        let answered = match self.sending {
            BatchState::Synced => self.queue.is_empty(),
            BatchState::Preparing => closes_alone(),
            BatchState::Open | BatchState::Skipping => return Standing::Within,
        };
        match answered {
            false => Standing::Later,
            // A Sync of ours would commit what a query is part of.
            true if self.is_joined(status) => Standing::Within,
            true => Standing::Between,
        }
    }

    /// ParameterDescription: half of the answer to the Describe in front.
    pub(crate) fn takes(&mut self, body: &[u8]) {
        self.parameters = Some(StatementShape::parameters(body));
    }

    /// What was said of the parameters of the statement in front.
    pub(crate) fn taken(&mut self) -> Option<u64> {
        self.parameters.take()
    }

    /// The client is gone: nothing that is still owed is for anybody, and nothing of its is to be undone.
    pub(crate) fn disown(&mut self) {
        self.awaited = false;
        self.queue.retain(|owed| owed.request != Request::Made);
        for owed in &mut self.queue {
            if owed.note.as_deref().is_some_and(|note| {
                !matches!(note, Note::Evicted(_) | Note::Own(_) | Note::Presumes(_) | Note::Unnamed(..))
            }) {
                owed.note = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
