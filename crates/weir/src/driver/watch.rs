//! Whether the workers still turn: each is knocked at from time to time, and one that has not answered for long is told of.
//! Knows neither sockets nor the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::mailbox::{Letter, Sender};

/// How often a worker that sleeps is woken for this.
const KNOCK_INTERVAL: Duration = Duration::from_secs(10);
/// A turn takes a moment. A machine that hangs for a while is not a worker that does.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// One worker, as seen from outside.
#[derive(Debug, Default)]
pub struct Watch {
    heard: Arc<AtomicU64>,
    /// The number of the last knock, and when it was.
    knocked: Option<(u64, Instant)>,
    told: bool,
}

/// What has changed with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// For so long.
    Silent(Duration),
    Back,
}

impl Watch {
    pub fn look(&mut self, worker: &Sender, now: Instant) -> Option<Seen> {
        let Some((number, at)) = self.knocked else {
            self.knock(worker, 1, now);
            return None;
        };
        let since = now.saturating_duration_since(at);
        if self.heard.load(Ordering::Relaxed) == number {
            if since >= KNOCK_INTERVAL {
                self.knock(worker, number + 1, now);
            }
            return std::mem::take(&mut self.told).then_some(Seen::Back);
        }
        if since < SILENCE_MAX || self.told {
            return None;
        }
        self.told = true;
        Some(Seen::Silent(since))
    }

    fn knock(&mut self, worker: &Sender, number: u64, now: Instant) {
        worker.send(Letter::Knock(self.heard.clone(), number));
        self.knocked = Some((number, now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::mailbox;
    use super::*;

    #[test]
    fn who_does_not_answer_is_told_of_once_and_knocked_at_once() {
        let (sender, mut receiver) = mailbox::mailbox().unwrap();
        let (mut watch, start) = (Watch::default(), Instant::now());
        let mut at = |secs: u64| watch.look(&sender, start + Duration::from_secs(secs));
        assert_eq!((at(0), at(29), at(30), at(90)), (None, None, Some(Seen::Silent(Duration::from_secs(30))), None));
        let Some(Letter::Knock(heard, number)) = receiver.take() else { panic!("nobody knocked") };
        assert!(receiver.is_empty(), "letters must not gather");
        heard.store(number, Ordering::Relaxed);
        assert_eq!((at(91), at(92)), (Some(Seen::Back), None));
        assert!(matches!(receiver.take(), Some(Letter::Knock(_, next)) if next == number + 1));
        heard.store(number + 1, Ordering::Relaxed);
        assert_eq!(at(93), None);
        assert!(receiver.is_empty(), "it has just been heard of");
    }
}
