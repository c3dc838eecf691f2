//! Byte streams between the pooler and the rest of the world: what is on its way, how slowly, in which pieces.
//!
//! Knows bytes and time. Who reads them at either end, and what they mean, is not known here.

use std::collections::VecDeque;

use weir_core::time::{Duration, Time};

use crate::rng::Rng;

/// Names a stream pair for the whole run.
pub type LinkId = usize;

/// Who sits at the end that is not the pooler's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    Client(usize),
    Backend(usize),
}

/// One direction.
#[derive(Debug, Default)]
pub struct Pipe {
    /// Sent and not yet delivered.
    pub bytes: VecDeque<u8>,
    /// The sender has closed: after the bytes comes the end.
    pub fin: bool,
    pub end_delivered: bool,
    /// A delivery is in the calendar.
    pub scheduled: bool,
}

/// A connection with its two directions.
#[derive(Debug)]
pub struct Link {
    pub remote: Remote,
    /// Towards the pooler.
    pub up: Pipe,
    /// From the pooler.
    pub down: Pipe,
    pub manner: Manner,
    pub made_at: Time,
    pub stalled_until: Time,
    /// The remote does not read before that.
    pub reader_paused_until: Time,
    /// The remote has not closed its end.
    pub remote_open: bool,
    /// The pooler's driver has not closed its end.
    pub pooler_open: bool,
}

/// How a link treats bytes.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    pub latency_us: u64,
    pub chunk_max: usize,
    /// At most this much is on its way from the pooler before its driver has to wait.
    pub window: usize,
}

impl Manner {
    /// Fast, plain, trickling or narrow, by chance.
    pub fn random(rng: &mut Rng) -> Self {
        let chunk_max = match rng.below(20) {
            0 => 1,
            1..=3 => 7,
            4..=8 => 100,
            9..=13 => 1_500,
            _ => 65_536,
        };
        let latency_us = rng.between(20, 2_000);
        Self { latency_us, chunk_max, window: *rng.pick(&[4_096, 20_000, 65_536, 262_144]) }
    }
}

impl Link {
    pub fn new(remote: Remote, manner: Manner, made_at: Time) -> Self {
        Self {
            remote,
            up: Pipe::default(),
            down: Pipe::default(),
            manner,
            made_at,
            stalled_until: Time(0),
            reader_paused_until: Time(0),
            remote_open: true,
            pooler_open: true,
        }
    }

    /// How many bytes come in the next piece.
    pub fn chunk(&self, waiting: usize, rng: &mut Rng) -> usize {
        // A link that trickles does so for the small things: much, byte by byte, would only take time, more than clients wait.
        let max = if waiting > 2_000 { self.manner.chunk_max.max(8_192) } else { self.manner.chunk_max };
        waiting.min(rng.between(1, max as u64) as usize)
    }

    pub fn next_delivery(&self, now: Time, first: bool, rng: &mut Rng) -> Time {
        let pause = if first { rng.spread(self.manner.latency_us) } else { rng.below(self.manner.latency_us / 4 + 2) };
        (now + Duration(pause)).max(self.stalled_until)
    }

    pub fn window_left(&self) -> usize {
        self.manner.window.saturating_sub(self.down.bytes.len())
    }
}
