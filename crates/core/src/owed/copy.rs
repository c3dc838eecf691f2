//! A copy into PostgreSQL, and the Syncs that were sent ahead of its end.
//!
//! Whether those are answered depends on how far PostgreSQL had read when the copy failed. So nothing is sent behind such a
//! copy before its end is known, and after a failure a Close of ours with its Sync tells how many of them were answered.

use weir_wire::TransactionStatus;

use super::marks::behind_command;
use super::{BatchState, Owed, OwedQueue, Request};

/// How far a copy into PostgreSQL is, from its CopyInResponse on.
///
/// ```text
/// None ──CopyInResponse──> In ──CopyDone, CopyFail──> Ending ──CommandComplete, error──> None
///                           └──────────────── error ───────────────────────────────────────┘
/// ```
/// `ahead`: Syncs sent before the copy's end. PostgreSQL ignores those that it reads in the copy (`CopyGetData`,
/// src/backend/commands/copyfromparse.c at 15), and answers those that it reads after the copy has failed. Which it was is
/// not known before the end; until then nothing is sent behind the end of such a copy but one Sync (`synced`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copy {
    None,
    In { ahead: u32 },
    Ending { ahead: u32, synced: bool },
}

/// What is known of the answers to Syncs that were sent into a copy which failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// Answers to the client's.
    answered: u32,
    /// One of ours comes behind them.
    own_sync: bool,
    /// The query that tells where they end was sent.
    asked: bool,
    /// The last that came, while it may be ours.
    last: Option<TransactionStatus>,
}

impl OwedQueue {
    /// CopyInResponse. Syncs that were sent behind the request in front are ahead of the copy's end; what else was sent behind
    /// them is no part of a copy, and ends it: see [`Self::interrupter`].
    pub(crate) fn begin_copy_in(&mut self) {
        let end = self.interrupter();
        self.moved = true;
        let behind = self.queue.iter().take(end.unwrap_or(self.queue.len())).skip(1);
        let ahead = behind.filter(|owed| owed.request == Request::Sync).count() as u32;
        self.copy = if end.is_some() { Copy::Ending { ahead, synced: true } } else { Copy::In { ahead } };
    }

    /// Where in the queue a message stands that PostgreSQL takes for the end of the copy in front: it answers anything but the
    /// messages of a copy, Sync and Flush with an error (`CopyGetData`).
    fn interrupter(&self) -> Option<usize> {
        let part = |owed: &Owed| matches!(owed.request, Request::Sync | Request::Made);
        self.queue.iter().skip(1).position(|owed| !part(owed)).map(|at| at + 1)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupter().is_some()
    }

    /// CopyDone or CopyFail was sent.
    pub(crate) fn end_copy_in(&mut self) {
        if let Copy::In { ahead } = self.copy {
            self.copy = Copy::Ending { ahead, synced: false };
            // One that was read in the copy is forgotten.
            self.flushed = false;
        }
    }

    pub(crate) fn copy(&self) -> Copy {
        self.copy
    }

    /// PostgreSQL waits for data of a copy.
    #[inline]
    pub(crate) fn is_in_copy(&self) -> bool {
        matches!(self.copy, Copy::In { .. })
    }

    /// Whether this may not be sent before the end of a copy is known, or how many Syncs in it are answered, or what a
    /// ReadyForQuery says.
    #[inline]
    pub(crate) fn holds_back(&self, sync: bool) -> bool {
        let held = match self.copy {
            Copy::Ending { ahead: 1.., synced } => synced || !sync,
            _ => self.one_by_one && self.readies_answered < self.readies_sent,
        };
        held || self.doubt.is_some()
    }

    /// The end of a copy was sent that had Syncs ahead of it, and nothing behind it that has PostgreSQL say how it ended.
    pub(crate) fn is_end_unasked(&self) -> bool {
        matches!(self.copy, Copy::Ending { ahead: 1.., synced: false })
    }

    /// Whether a ReadyForQuery is owed where only a part of the last message was sent and no more comes: that is no request, and the
    /// copy that it is in has no end.
    pub(crate) fn awaits_ready_before_half(&self) -> bool {
        let whole = self.queue.len().saturating_sub(1);
        !self.is_in_copy() && self.queue.iter().take(whole).any(|owed| owed.request.ends_with_ready())
    }

    /// Whether what the server still answers is not known for certain.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some() || matches!(self.copy, Copy::In { ahead: 1.. } | Copy::Ending { ahead: 1.., .. })
    }

    /// A command of the request in front is complete: if it was a copy, PostgreSQL has ignored all Syncs that were sent
    /// before its end.
    pub(crate) fn command_completed(&mut self) {
        self.told();
        if let Some(front) = self.queue.front_mut() {
            front.statement = behind_command(front.statement);
        }
        if self.copy != Copy::None {
            let (ahead, _) = self.end_copy();
            self.forget_syncs(ahead);
        }
    }

    /// The copy is over, if there was one. Answers how many Syncs were sent ahead of its end, and whether one behind it.
    pub(crate) fn end_copy(&mut self) -> (u32, bool) {
        self.moved |= self.copy != Copy::None;
        match std::mem::replace(&mut self.copy, Copy::None) {
            Copy::None => (0, false),
            Copy::In { ahead } => (ahead, false),
            Copy::Ending { ahead, synced } => (ahead, synced),
        }
    }

    /// So many Syncs behind the request in front were ignored, or are counted otherwise: they end no batch.
    pub(crate) fn forget_syncs(&mut self, count: u32) {
        let count = u64::from(count);
        let (mut at, mut forgotten) = (1, 0);
        while forgotten < count && at < self.queue.len() {
            if self.queue[at].request == Request::Sync {
                self.queue.remove(at);
                forgotten += 1;
            } else {
                at += 1;
            }
        }
        if forgotten == 0 {
            return;
        }
        self.answered += forgotten;
        self.readies_answered += forgotten;
        if !self.queue.iter().any(|owed| owed.request.ends_with_ready()) {
            self.sending = BatchState::Open;
            self.executed.goes_on();
            // What the copy's triggers did is reported with the next one.
            self.reported_by = self.reported_by.max(self.readies_sent + 1);
        }
    }

    /// PostgreSQL read a message in the copy in front that is no part of one, and took it for the copy's failure.
    pub(crate) fn take_interrupter(&mut self) -> Option<Owed> {
        let owed = self.interrupter().and_then(|at| self.queue.remove(at))?;
        self.count_answered(owed.request);
        Some(owed)
    }

    /// How many of the Syncs behind the failed copy in front are answered is not known: from now on `Doubt` stands for their
    /// answers. PostgreSQL may skip to a Sync; where the client has sent none behind the copy, ours is among them.
    /// What fell away with the copy comes back, the failed request first.
    pub(crate) fn begin_doubt(&mut self, synced: bool) -> Vec<Owed> {
        self.forget_syncs(u32::MAX);
        let simple = self.front_awaits_ready();
        let failed = if simple { Vec::new() } else { self.queue.drain(..).collect() };
        self.doubt = Some(Doubt { answered: 0, own_sync: !simple && !synced, asked: false, last: None });
        self.sending = BatchState::Synced;
        self.append(Owed::client(Request::Doubt));
        failed
    }

    /// The question that ends the doubt is sent now, if it was not yet; answers whether behind a Sync of ours.
    pub(crate) fn ask_doubt(&mut self) -> Option<bool> {
        let doubt = self.doubt.as_mut().filter(|doubt| !doubt.asked)?;
        doubt.asked = true;
        let own_sync = doubt.own_sync;
        self.push(Owed::ours(Request::Sync));
        Some(own_sync)
    }

    pub(crate) fn is_doubt_unasked(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| !doubt.asked)
    }

    /// A ReadyForQuery in doubt: the one that is the client's for certain now. The last of all answers our own Sync.
    pub(crate) fn doubtful_ready(&mut self, status: TransactionStatus) -> Option<TransactionStatus> {
        let doubt = self.doubt.as_mut()?;
        if !doubt.own_sync {
            return Some(status);
        }
        doubt.answered += u32::from(doubt.last.is_some());
        doubt.last.replace(status)
    }

    /// Our question is answered: no more of them are.
    pub(crate) fn end_doubt(&mut self) {
        self.queue.pop_front();
        // Without a Sync of the client's that was answered PostgreSQL would skip still: the batch ends with the next one.
        if self.doubt.take().is_some_and(|doubt| doubt.own_sync && doubt.answered == 0) {
            self.sending = BatchState::Skipping;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Touched;
    use super::super::tests::{queue, requests};
    use super::*;

    #[test]
    fn syncs_sent_ahead_of_a_copys_end_are_ignored_where_it_succeeds() {
        let mut queue = queue(&[Request::Execute, Request::Sync]);
        queue.begin_copy_in();
        assert_eq!(queue.copy(), Copy::In { ahead: 1 });
        queue.push(Owed::client(Request::Sync));
        queue.end_copy_in();
        assert!(queue.holds_back(false) && !queue.holds_back(true));
        queue.command_completed();
        assert!(!queue.holds_back(false));
        assert_eq!(requests(&queue), [Request::Execute]);
        queue.pop();
        assert!(!queue.settled(), "the Sync that was ignored ends no batch");
        assert!(!queue.may_be_synced(TransactionStatus::Idle), "another would commit the copy");
        queue.executes_ours();
        assert!(!queue.joins_ours(), "a simple query is part of its transaction");
        queue.push(Owed::client(Request::Sync));
        queue.pop();
        assert!(queue.settled());
        assert_eq!(queue.touched(queue.batch() - 1), Touched::Answered);
    }

    #[test]
    fn of_a_failed_copys_syncs_all_but_the_last_answer_are_the_clients() {
        for answered in 0..3 {
            let mut queue = queue(&[Request::Execute, Request::Sync]);
            queue.begin_copy_in();
            queue.push(Owed::client(Request::Sync));
            assert_eq!(queue.end_copy(), (2, false));
            queue.begin_doubt(false);
            assert_eq!(requests(&queue), [Request::Doubt]);
            assert_eq!((queue.ask_doubt(), queue.ask_doubt()), (Some(true), None));
            let told = (0..=answered).filter(|_| queue.doubtful_ready(TransactionStatus::Idle).is_some()).count();
            assert_eq!(told, answered);
            queue.end_doubt();
            assert_eq!(requests(&queue), [Request::Sync]);
            queue.pop();
            assert_eq!(queue.skipping(), answered == 0);
        }
    }
}
