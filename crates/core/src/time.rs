//! Time as core knows it: microseconds since some start, handed in with every input.

use std::ops::{Add, Sub};

/// Microseconds since the process (or the simulation) began. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// A span of time in microseconds; zero stands for "no limit" only where a setting's documentation says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(pub u64);

impl Duration {
    pub const ZERO: Self = Self(0);

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// `None` for zero: the form of a limit that can be switched off.
    pub fn limit(self) -> Option<Self> {
        (self.0 != 0).then_some(self)
    }

    /// Whole ones.
    pub fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Time {
    /// Later than everything: the deadline of what has none.
    pub const NEVER: Self = Self(u64::MAX);

    pub fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration.0))
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
