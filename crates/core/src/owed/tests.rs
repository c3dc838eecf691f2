//! What is owed, in order.

use super::*;

pub(super) fn queue(requests: &[Request]) -> OwedQueue {
    let mut queue = OwedQueue::default();
    for &request in requests {
        queue.push(Owed::client(request));
    }
    queue
}

pub(super) fn requests(queue: &OwedQueue) -> Vec<Request> {
    queue.queue.iter().map(|owed| owed.request).collect()
}

#[test]
fn an_error_takes_the_place_of_all_up_to_the_sync() {
    let mut queue = queue(&[Request::Parse, Request::Bind, Request::Execute, Request::Sync, Request::Query]);
    assert_eq!(queue.fail().len(), 3);
    assert_eq!(requests(&queue), [Request::Sync, Request::Query]);
    assert!(!queue.skipping());
}

fn full() -> OwedQueue {
    let mut queue = queue(&[Request::Close]);
    while !queue.is_full() {
        queue.push(Owed::client(Request::Close));
    }
    assert!(queue.awaits() && queue.is_coming());
    queue
}

#[test]
fn who_waits_for_room_is_woken_once() {
    let mut queue = full();
    let mut woken = 0;
    while queue.pop().is_some() {
        woken += usize::from(queue.wakes());
    }
    assert_eq!((woken, queue.is_full()), (1, false));
}

#[test]
fn an_error_makes_room() {
    let mut queue = full();
    assert!(!queue.wakes());
    queue.fail();
    assert!(queue.wakes() && !queue.wakes());
}

#[test]
fn an_error_without_a_sync_skips_until_one_is_sent() {
    let mut queue = queue(&[Request::Parse, Request::Bind]);
    queue.fail();
    assert!(queue.skipping() && queue.is_empty() && !queue.settled());
    queue.push(Owed::client(Request::Sync));
    assert!(!queue.skipping());
    queue.pop();
    assert!(queue.settled());
}

#[test]
fn what_an_unanswered_batch_touched_is_in_doubt_for_the_next() {
    let mut queue = queue(&[Request::Parse]);
    let batch = queue.batch();
    assert_eq!(queue.touched(batch), Touched::InThisBatch);
    queue.push(Owed::client(Request::Sync));
    assert_eq!(queue.touched(batch), Touched::InDoubt);
    queue.pop();
    queue.pop();
    assert_eq!(queue.touched(batch), Touched::Answered);
}

#[test]
fn parameters_are_known_with_the_ready_for_query_behind_what_may_change_them() {
    let mut queue = queue(&[Request::Bind, Request::Execute]);
    queue.executes_anything();
    assert_eq!(queue.reported_parameters(), Touched::InThisBatch);
    queue.push(Owed::client(Request::Sync));
    assert_eq!(queue.reported_parameters(), Touched::InDoubt);
    while queue.pop().is_some() {}
    assert_eq!(queue.reported_parameters(), Touched::Answered);
    queue.push(Owed::client(Request::Query));
    assert_eq!(queue.reported_parameters(), Touched::InDoubt);
}

#[test]
fn requests_that_are_skipped_are_waited_for_no_longer() {
    let mut queue = queue(&[Request::Parse, Request::Query, Request::Sync]);
    queue.fail();
    queue.pop();
    assert_eq!(queue.reported_parameters(), Touched::Answered);
}

#[test]
fn a_batch_that_has_done_nothing_may_be_ended() {
    let mut prepares =
        queue(&[Request::Sync, Request::Parse, Request::DescribeStatement, Request::Close, Request::Close]);
    assert_eq!(prepares.standing(TransactionStatus::InTransaction), Standing::Later);
    while prepares.len() > 1 {
        prepares.pop();
    }
    assert_eq!(prepares.standing(TransactionStatus::InTransaction), Standing::Between, "a Close cannot fail");
    // Answered, since a Flush was behind it.
    let mut executed = queue(&[Request::Parse, Request::Bind, Request::Execute, Request::Close]);
    while executed.pop().is_some() {}
    assert_eq!(executed.standing(TransactionStatus::InTransaction), Standing::Within);
    executed.push(Owed::client(Request::Sync));
    assert_eq!(executed.standing(TransactionStatus::InTransaction), Standing::Later);
    executed.pop();
    assert_eq!(executed.standing(TransactionStatus::InTransaction), Standing::Between);
}

#[test]
fn nothing_is_settled_before_the_sync() {
    let mut queue = queue(&[Request::Parse]);
    queue.pop();
    assert!(queue.is_empty() && !queue.settled());
}
