//! Sockets beyond the process's limit on open files: the ring's own table of files holds them instead.
//! Knows nothing of what the sockets are for.
//!
//! A process may open RLIMIT_NOFILE files, and besides each ring may register as many (io_uring_register(2)). A socket whose number
//! is high, since many are open, goes into the table, where it costs none of the process's descriptors. It comes out
//! for a moment when it is closed or moves to another worker.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use io_uring::{Probe, Submitter, opcode, squeue};
use rustix::process::{Resource, getrlimit};

use super::ring::Ring;

/// Slots that are spare beside those for whoever is on its way with a descriptor.
const SLOTS_SPARE: u32 = 64;

/// How the kernel is told which socket an operation is for.
#[derive(Debug)]
pub enum Descriptor {
    Open(OwnedFd),
    /// A place in the ring's table.
    Slot(u32),
}

impl Descriptor {
    pub fn number(&self) -> RawFd {
        match self {
            Self::Open(fd) => fd.as_raw_fd(),
            Self::Slot(slot) => *slot as RawFd,
        }
    }

    pub fn flags(&self) -> squeue::Flags {
        match self {
            Self::Open(_) => squeue::Flags::empty(),
            Self::Slot(_) => squeue::Flags::FIXED_FILE,
        }
    }
}

/// How many sockets so many workers hold where a process may open `limit` files.
pub fn capacity(limit: u64, workers: u64) -> u64 {
    let apart = limit / 4;
    let table = (limit - apart).saturating_sub(SLOTS_SPARE.into());
    (limit - apart).saturating_add(table.saturating_mul(workers))
}

/// The ring's table of files.
#[derive(Debug)]
pub struct Files {
    /// Descriptors from here on go into the table.
    from: RawFd,
    limit: u32,
    /// The table counts as full when fewer slots are free. Whoever is on its way has one of the descriptors that go into no
    /// table, and all of them may be on their way here, with a few behind them that wait for a descriptor.
    spare: u32,
    is_registered: bool,
    free: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
    is_full: bool,
}

impl Files {
    pub fn new(submitter: &Submitter<'_>) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).min(i32::MAX as u32);
        // A quarter is left for servers, listeners, and those that are coming and going.
        let apart = limit / 4;
        let from = if can_come_out(submitter) { (limit - apart) as RawFd } else { RawFd::MAX };
        Self {
            from,
            limit,
            spare: apart + SLOTS_SPARE,
            is_registered: false,
            free: Vec::new(),
            fresh: 0,
            is_full: false,
        }
    }

    #[cfg(test)]
    pub fn use_always(&mut self, limit: u32) {
        (self.from, self.limit, self.spare) = (0, limit, SLOTS_SPARE);
    }

    /// Puts a descriptor into the table if its number is high, and otherwise leaves it as it is.
    pub fn take_in(&mut self, submitter: &Submitter<'_>, descriptor: &mut Descriptor) {
        let Descriptor::Open(fd) = descriptor else { return };
        if fd.as_raw_fd() < self.from || self.register(submitter).is_err() {
            return;
        }
        let slot = self.free.pop().unwrap_or(self.fresh);
        // It fails where the table is full: the process's limit may not be reached yet.
        if let Ok(1) = submitter.register_files_update(slot, &[fd.as_raw_fd()]) {
            self.fresh = self.fresh.max(slot + 1);
            *descriptor = Descriptor::Slot(slot);
        }
    }

    pub fn is_full(&mut self) -> bool {
        let free = self.limit - self.fresh + self.free.len() as u32;
        // Full until a little more is free.
        let wanted = if self.is_full { self.spare + self.spare / 8 } else { self.spare };
        self.is_full = self.is_registered && free < wanted;
        self.is_full
    }

    fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        if !self.is_registered {
            submitter.register_files_sparse(self.limit)?;
            self.is_registered = true;
        }
        Ok(())
    }

    /// Empties a slot. Nothing may be under way on it.
    pub fn clear(&mut self, submitter: &Submitter<'_>, slot: u32) {
        // Fails only for a slot that is none, and then it must not be used again.
        if submitter.register_files_update(slot, &[-1]).is_ok() {
            self.free.push(slot);
        }
    }
}

/// Whether sockets can wait in the rings' tables of files.
pub fn has_tables() -> bool {
    Ring::new().is_ok_and(|ring| can_come_out(&ring.submitter()))
}

/// Whether the kernel can make a slot a descriptor again (Linux 6.8).
pub fn can_come_out(submitter: &Submitter<'_>) -> bool {
    let mut probe = Probe::new();
    submitter.register_probe(&mut probe).is_ok() && probe.is_supported(opcode::FixedFdInstall::CODE)
}
