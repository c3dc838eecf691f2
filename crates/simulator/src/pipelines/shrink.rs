//! Makes a failing history shorter: leaves out pipelines, then steps, while the two sessions still differ.

use std::time::{Duration, Instant};

use super::episode::{Difference, replay};
use super::ground::Ground;
use super::people::Person;
use super::steps::{Step, synced};

/// For one history.
const TIME_MAX: Duration = Duration::from_secs(25);
const PATIENCE: Duration = Duration::from_secs(3);
/// What others do meanwhile decides much, so the whole history is tried so often; shorter ones as often as that took.
const TRIES_MAX: u32 = 6;
/// Episodes of replays, far above those of a run.
const EPISODE_FIRST: u64 = 1_000_000_000;

/// The pipelines of an episode.
pub type History = Vec<Vec<Step>>;

/// The shortest history found, and how it differs; `None` if it cannot be made to differ again.
pub fn shrink(ground: &Ground, person: Person, seed: u64, history: &[Vec<Step>]) -> Option<(History, Difference)> {
    let mut shrinker = Shrinker::new(ground, person, seed, history);
    let first = shrinker.episode;
    let mut best = shrinker.differs(history)?;
    shrinker.tries = (shrinker.episode - first) as u32;
    for part in [Part::Pipeline, Part::Step] {
        let mut size = part.count(&best.0) / 2;
        while size >= 1 && Instant::now() < shrinker.end {
            let shorter = shrinker.pass(&mut best, size, part);
            size = if shorter && size == 1 { 1 } else { size / 2 };
        }
    }
    Some(best)
}

/// Whether the two sessions differ each time that they are sent the same.
pub fn always_differs(ground: &Ground, person: Person, seed: u64, history: &[Vec<Step>]) -> bool {
    let mut shrinker = Shrinker { tries: 1, ..Shrinker::new(ground, person, seed, history) };
    (0..TRIES_MAX).all(|_| shrinker.differs(history).is_some())
}

/// What is left out.
#[derive(Clone, Copy)]
enum Part {
    Pipeline,
    Step,
}

impl Part {
    fn count(self, history: &[Vec<Step>]) -> usize {
        match self {
            Self::Pipeline => history.len(),
            Self::Step => history.iter().map(Vec::len).sum(),
        }
    }

    /// The history without so many of them. `unsynced`: no Sync comes in where one was left out.
    fn without(self, history: &[Vec<Step>], from: usize, len: usize, unsynced: bool) -> History {
        let mut place = 0;
        let mut keep = || {
            place += 1;
            !(from..from + len).contains(&(place - 1))
        };
        match self {
            Self::Pipeline => history.iter().filter(|_| keep()).cloned().collect(),
            Self::Step => {
                let shorter = history.iter().map(|steps| steps.iter().filter(|_| keep()).cloned().collect());
                let shorter = shorter.map(|steps| synced(steps, |step| unsynced || step.begins()));
                shorter.filter(|steps| !steps.is_empty()).collect()
            }
        }
    }
}

struct Shrinker<'a> {
    ground: &'a Ground,
    person: Person,
    unsynced: bool,
    episode: u64,
    end: Instant,
    tries: u32,
}

impl<'a> Shrinker<'a> {
    fn new(ground: &'a Ground, person: Person, seed: u64, history: &[Vec<Step>]) -> Self {
        let episode = EPISODE_FIRST + seed % 1_000 * 1_000_000 + person.number as u64 * 10_000;
        let end = Instant::now() + TIME_MAX;
        let unsynced = history.iter().any(|steps| synced(steps.clone(), Step::begins).len() > steps.len());
        Self { ground, person, unsynced, episode, end, tries: TRIES_MAX }
    }

    fn differs(&mut self, history: &[Vec<Step>]) -> Option<(History, Difference)> {
        for _ in 0..self.tries {
            if Instant::now() > self.end {
                return None;
            }
            self.episode += 1;
            if let Some((place, difference)) = replay(self.ground, self.person, self.episode, history, PATIENCE) {
                let upto = (place + 1).min(history.len());
                return Some((history[..upto].to_vec(), difference));
            }
        }
        None
    }

    /// Tries to leave out each stretch of this size. True if one was left out.
    fn pass(&mut self, best: &mut (History, Difference), size: usize, part: Part) -> bool {
        let (mut from, mut shorter) = (0, false);
        while from < part.count(&best.0) && Instant::now() < self.end {
            let candidate = part.without(&best.0, from, size, self.unsynced);
            match self.differs(&candidate).filter(|_| !candidate.is_empty()) {
                Some(found) => (*best, shorter) = (found, true),
                None => from += size,
            }
        }
        shorter
    }
}
