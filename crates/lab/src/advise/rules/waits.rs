//! What connections at work wait for, and those that wait for their clients inside of transactions.

use super::{Advice, Sure, look, manual};
use crate::advise::facts::{Facts, Server};
use crate::experiments::sources::MICROSOFT_2026;
use crate::report::figures::number;

/// From here on the processor is what limits: Microsoft 2026's peaks had 90 to 97 %.
pub const PROCESSOR_PERCENT: f64 = 90.0;
/// With its clients and a pooler on the same machine, a server that is the limit has at least this part of what is busy.
const OWN_PART: f64 = 1.0 / 3.0;
/// Of the connections at work, the part that waits for the same kind of thing; and how many at least.
const WAITING_PART: f64 = 0.5;
const LOCKED_PART: f64 = 0.25;
const WAITING_MIN: f64 = 2.0;
/// A transaction that waits for its client this long holds back vacuum and, in a pool, everybody else.
const IDLE_SECONDS: f64 = 30.0;
const IDLE_PART: f64 = 0.1;
const IDLE_MIN: f64 = 3.0;

/// What limits at this moment, if anything does.
pub fn limits_now(facts: &Facts) -> Option<Advice> {
    let server = facts.server.as_ref()?;
    let active = server.typical(|moment| moment.active);
    let (locks, light, data) = (
        server.typical(|moment| moment.waiting_lock),
        server.typical(|moment| moment.waiting_light_lock),
        server.typical(|moment| moment.waiting_io),
    );
    let is_much = |waiting: f64, part: f64| waiting >= WAITING_MIN && waiting >= part * active;
    let of_active = |waiting: f64| format!("Of {} connections at work {} at a time", number(active), number(waiting));
    let (what, reason) = if is_much(locks, LOCKED_PART) {
        let reason = "waited for locks that other transactions hold. More connections, or a larger pool, only make that queue longer: \
                      shorter transactions help.";
        ("Locks are what limits now.", format!("{} {reason}", of_active(locks)))
    } else if is_much(light, WAITING_PART) {
        let reason = "waited for the server's own light locks: more of them work than it has use for. A pool that lets fewer work at once \
                      gives more throughput.";
        ("The server's inner locks are what limits now.", format!("{} {reason}", of_active(light)))
    } else if is_much(data, WAITING_PART) {
        let reads = server
            .rates
            .blocks_read
            .map_or(String::new(), |rate| format!(", {} blocks per second were read", number(rate)));
        let reason = format!(
            "waited for data to be read or written{reads}. More memory or faster disks come before more connections; as long as disks \
             have room, a somewhat larger pool than the processor needs is right."
        );
        ("Disks are what limits now.", format!("{} {reason}", of_active(data)))
    } else if let Some(busy) = facts.machine.busy_percent.filter(|busy| *busy >= PROCESSOR_PERCENT) {
        if is_busy_with_others(facts) {
            let what = "Something beside this server keeps the machine's processor busy.";
            let reason = format!(
                "The processor was {} % busy, {} % with this server's processes. What the server could do alone is not to be seen now.",
                number(busy.round()),
                number(facts.machine.server_percent.unwrap_or_default().round())
            );
            return Some(Advice::new(what, reason, Sure::Seen).from(look(facts)));
        }
        let reason = format!(
            "The machine's processor was {} % busy, as it is at the source's peaks (90 to 97 %). More connections at work do not add throughput \
             now, only latency.",
            number(busy.round())
        );
        ("The processor is what limits now.", reason)
    } else {
        return None;
    };
    let article = what.starts_with("The processor").then(|| MICROSOFT_2026.into());
    Some(Advice::new(what, reason, Sure::Seen).from(look(facts)).from(article).from([manual::ACTIVITY]))
}

/// Whether the machine's processor works for others than this server, most of its time.
fn is_busy_with_others(facts: &Facts) -> bool {
    let machine = &facts.machine;
    machine.busy_percent.zip(machine.server_percent).is_some_and(|(busy, server)| server < OWN_PART * busy)
}

/// Transactions that wait for their clients.
pub fn idle_in_transaction(facts: &Facts) -> Option<Advice> {
    let server: &Server = facts.server.as_ref()?;
    let (typical, open) = (server.typical(|moment| moment.idle_in_transaction), server.typical(|moment| moment.open));
    let longest = server.longest_idle_in_transaction;
    let many = typical >= IDLE_MIN && typical >= IDLE_PART * open;
    if !many && longest < IDLE_SECONDS {
        return None;
    }
    let limit = server.settings.idle_in_transaction_timeout_ms;
    let no_limit = limit == Some(0.0);
    let what = if no_limit {
        "End transactions that wait for their clients too long, or shorten them."
    } else {
        "Shorten the transactions that wait for their clients."
    };
    let reason = format!(
        "{} of {} connections at a time were idle in a transaction, the longest for {} s. Each holds its locks, keeps vacuum from cleaning \
         up, and in a pool keeps a server from all other clients however little it does{}.",
        number(typical),
        number(open),
        number(longest),
        if no_limit { "; idle_in_transaction_session_timeout is 0, so nothing ends them" } else { "" }
    );
    let advice = Advice::new(what, reason, Sure::Seen).from([manual::CLIENTS]).from(look(facts));
    let longer = "longer than any pause that is meant, for example 1min";
    Some(if no_limit { advice.set("idle_in_transaction_session_timeout", longer) } else { advice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::Moment;
    use crate::advise::rules::samples;

    #[test]
    fn what_most_wait_for_limits() {
        let mut facts = samples::quiet_server();
        assert_eq!(limits_now(&facts), None);
        (facts.machine.busy_percent, facts.machine.server_percent) = (Some(95.4), Some(80.0));
        assert!(limits_now(&facts).unwrap().reason.contains("95 % busy"));
        let mut idle = facts.clone();
        idle.machine.server_percent = Some(12.0);
        assert!(limits_now(&idle).unwrap().what.starts_with("Something beside this server"));
        let server = facts.server.as_mut().unwrap();
        server.moments = vec![Moment { open: 20.0, active: 10.0, waiting_io: 6.0, ..Moment::default() }];
        server.rates.blocks_read = Some(800.0);
        assert!(limits_now(&facts).unwrap().reason.contains("Of 10 connections at work 6 at a time waited for data"));
        facts.server.as_mut().unwrap().moments[0].waiting_light_lock = 7.0;
        assert!(limits_now(&facts).unwrap().what.contains("inner locks"));
        facts.server.as_mut().unwrap().moments[0].waiting_lock = 3.0;
        assert!(limits_now(&facts).unwrap().what.starts_with("Locks"));
    }

    #[test]
    fn waiting_transactions_are_told_of() {
        let mut facts = samples::quiet_server();
        assert_eq!(idle_in_transaction(&facts), None);
        facts.server.as_mut().unwrap().longest_idle_in_transaction = 95.0;
        let advice = idle_in_transaction(&facts).unwrap();
        assert!(advice.set.is_some() && advice.reason.contains("the longest for 95 s"), "{advice:?}");
        facts.server.as_mut().unwrap().settings.idle_in_transaction_timeout_ms = Some(300_000.0);
        assert_eq!(idle_in_transaction(&facts).unwrap().set, None);
    }
}
