//! Key derivation on a thread of its own: a slice of each job in turn, so that a short one never waits for a long one to end,
//! and jobs that are equal are done once. How many there are, and for whom, is core's decision.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use weir_core::auth::Salting;
use weir_core::contract::Level;

use super::events::Speaker;
use super::mailbox::{Letter, Sender};

/// A slice of a job: some 2 ms. PostgreSQL's default is 4 096 for a whole one.
const SLICE_ITERATIONS: u32 = 4096;

#[derive(Debug)]
pub struct Derivation {
    pub job: u32,
    pub password: Arc<str>,
    pub salt: Vec<u8>,
    pub iterations: u32,
}

/// One thing to derive, for all who want it.
struct Task {
    password: Arc<str>,
    salt: Vec<u8>,
    iterations: u32,
    /// `None`: not begun.
    salting: Option<Salting>,
    askers: Vec<(Sender, u32)>,
}

impl Task {
    fn is_for(&self, derivation: &Derivation) -> bool {
        (self.iterations, &self.salt, &*self.password)
            == (derivation.iterations, &derivation.salt, &*derivation.password)
    }

    fn advance(&mut self) -> Option<[u8; 32]> {
        let begin = || Salting::begin(&*self.password, &self.salt, self.iterations);
        self.salting.get_or_insert_with(begin).advance(SLICE_ITERATIONS)
    }
}

/// The body of the thread; ends when nobody can ask any more.
pub fn answer(jobs: &Receiver<(Sender, Derivation)>, mut events: Speaker) {
    let mut tasks = VecDeque::new();
    loop {
        if tasks.is_empty() {
            let Ok(job) = jobs.recv() else { return };
            enter(&mut tasks, job);
        }
        loop {
            match jobs.try_recv() {
                Ok(job) => enter(&mut tasks, job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let Some(mut task) = tasks.pop_front() else { continue };
        let salted = catch_unwind(AssertUnwindSafe(|| task.advance())).unwrap_or_else(|_| {
            events.log(Level::Error, "a password could not be derived, and is good for no login: a bug".to_owned());
            unguessable()
        });
        match salted {
            Some(salted_password) => {
                for (asker, job) in task.askers {
                    asker.send(Letter::Derived { job, salted_password });
                }
            }
            None => tasks.push_back(task),
        }
    }
}

fn enter(tasks: &mut VecDeque<Task>, (asker, derivation): (Sender, Derivation)) {
    if let Some(task) = tasks.iter_mut().find(|task| task.is_for(&derivation)) {
        return task.askers.push((asker, derivation.job));
    }
    let Derivation { job, password, salt, iterations } = derivation;
    tasks.push_back(Task { password, salt, iterations, salting: None, askers: vec![(asker, job)] });
}

/// What no password is derived to, as far as anybody can tell. Without random bytes nobody is answered, and whoever waits is
/// told by a timeout.
fn unguessable() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled.is_ok_and(|count| count == bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{events, mailbox};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    fn derivation(job: u32, salt: &[u8], iterations: u32) -> Derivation {
        Derivation { job, password: "pencil".into(), salt: salt.to_vec(), iterations }
    }

    /// Hands in these jobs at once; the numbers of those answered, in order, until there are so many.
    fn answers(jobs: Vec<Derivation>, count: usize) -> Vec<u32> {
        let (asker, mut answers) = mailbox::mailbox().unwrap();
        let (ask, asked) = mpsc::channel();
        for job in jobs {
            ask.send((asker.clone(), job)).unwrap();
        }
        let (speaker, _listener) = events::queue();
        let thread = thread::spawn(move || answer(&asked, speaker));
        let (mut numbers, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while numbers.len() < count {
            assert!(Instant::now() < end, "{numbers:?}");
            match answers.take() {
                Some(Letter::Derived { job, salted_password }) => {
                    assert_eq!(salted_password.len(), 32);
                    numbers.push(job);
                }
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
        drop(ask);
        thread.join().unwrap();
        numbers
    }

    #[test]
    fn a_short_one_does_not_wait_for_a_long_one() {
        let jobs = vec![
            derivation(1, b"long", 3_000_000),
            derivation(2, b"long too", 3_000_000),
            derivation(3, b"short", 4096),
        ];
        assert_eq!(answers(jobs, 1), [3]);
    }

    #[test]
    fn equal_ones_are_derived_once() {
        let began = Instant::now();
        assert_eq!(answers(vec![derivation(1, b"salt", 20_000)], 1), [1]);
        let one = began.elapsed();
        let began = Instant::now();
        let jobs = (0..200).map(|job| derivation(job, b"salt", 20_000)).collect();
        assert_eq!(answers(jobs, 200), (0..200).collect::<Vec<_>>());
        assert!(began.elapsed() < one * 50, "{:?} for one, {:?} for equal ones", one, began.elapsed());
    }
}
