//! The ring itself: its making with what the kernel allows, tags of operations, submitting and waiting.
//! Knows nothing of what the operations are for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, cqueue, opcode, squeue};
use weir_core::{ConnId, Side};

use super::buffers::{Buffers, GROUP};

const SUBMISSIONS: u32 = 512;
/// More than a turn brings; beyond it the kernel keeps completions aside.
const COMPLETIONS: u32 = 8192;
const RECEIVE_LIMIT_BYTES: u32 = 64 * 1024;
/// A ring that takes nothing this often in a row is broken.
const SUBMIT_TRIES_MAX: usize = 1000;
/// How long to leave a kernel alone that is short of memory.
const SUBMIT_PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    Bell = 1,
    Accept,
    Receive,
    Send,
    Poll,
    Cancel,
    CancelAccept,
    QuickSend,
    Install,
    Shutdown,
}

/// What an operation is for: 4 bits of operation, 3 of which one it is, 1 of side, 24 of slot, 32 of generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u64);

const SLOT_BITS: u32 = 24;
/// Operations of one kind on one connection are told apart by their number, which counts up to here and begins again.
pub const NUMBERS: u8 = 8;

impl Tag {
    pub fn conn(operation: Operation, id: ConnId) -> Self {
        let side = match id.side {
            Side::Client => 0,
            Side::Server => 1,
        };
        let slot = u64::from(id.slot & ((1 << SLOT_BITS) - 1));
        Self((operation as u64) << 60 | side << 56 | slot << 32 | u64::from(id.generation))
    }

    /// Whether a connection's name has room in a tag.
    pub fn can_name(id: ConnId) -> bool {
        id.slot < 1 << SLOT_BITS
    }

    pub fn numbered(self, number: u8) -> Self {
        Self(self.0 | u64::from(number % NUMBERS) << 57)
    }

    pub fn number(self) -> u8 {
        (self.0 >> 57) as u8 % NUMBERS
    }

    pub fn other(operation: Operation, index: u32) -> Self {
        Self((operation as u64) << 60 | u64::from(index))
    }

    pub fn operation(self) -> Operation {
        match self.0 >> 60 {
            1 => Operation::Bell,
            2 => Operation::Accept,
            3 => Operation::Receive,
            4 => Operation::Send,
            5 => Operation::Poll,
            6 => Operation::Cancel,
            8 => Operation::QuickSend,
            9 => Operation::Install,
            10 => Operation::Shutdown,
            _ => Operation::CancelAccept,
        }
    }

    pub fn index(self) -> u32 {
        self.0 as u32
    }

    pub fn id(self) -> ConnId {
        let side = if self.0 >> 56 & 1 == 0 { Side::Client } else { Side::Server };
        ConnId { side, slot: (self.0 >> 32) as u32 & ((1 << SLOT_BITS) - 1), generation: self.0 as u32 }
    }
}

pub struct Ring {
    ring: IoUring,
    /// Taken so that the kernel could bring those that it had kept aside.
    aside: VecDeque<cqueue::Entry>,
    failure: Option<io::Error>,
}

impl Ring {
    /// A ring of the calling thread, which alone may use it.
    pub fn new() -> io::Result<Self> {
        let deferred = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS);
        let ring = match deferred {
            Ok(ring) => ring,
            // Linux 6.0 knows no deferred task work.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder()
                .setup_coop_taskrun()
                .setup_taskrun_flag()
                .setup_cqsize(COMPLETIONS)
                .build(SUBMISSIONS)?,
            Err(error) => return Err(error),
        };
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old"));
        }
        Ok(Self { ring, aside: VecDeque::new(), failure: None })
    }

    pub fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues an operation; the next `wait` submits it.
    ///
    /// The memory it names must stay valid until its completion, which the callers' types see to.
    pub fn push(&mut self, entry: squeue::Entry, tag: Tag) {
        let entry = entry.user_data(tag.0);
        // SAFETY: descriptors are open when the entry is submitted, or the operation fails; the only entries with memory
        // are sends, whose outbox stays until they complete.
        let is_in = unsafe { self.ring.submission().push(&entry) }.is_ok()
            // SAFETY: the same.
            || self.submit() && unsafe { self.ring.submission().push(&entry) }.is_ok();
        if !is_in {
            self.failure.get_or_insert_with(|| io::Error::other("io_uring takes no more operations"));
        }
    }

    /// Submits all that is queued. Afterwards `harvest` finds what has completed, the kernel keeps nothing of it aside.
    /// `false`: the ring is broken, and the kernel may not have seen what was queued; `wait` says why.
    pub fn submit(&mut self) -> bool {
        for _ in 0..SUBMIT_TRIES_MAX {
            let result = self.ring.submit();
            let is_behind = self.ring.submission().cq_overflow();
            if is_behind || errno(&result) == Some(libc::EBUSY) {
                self.aside.extend(self.ring.completion());
            }
            match result {
                Ok(_) if self.ring.submission().is_empty() && !is_behind => return true,
                // Hardly ever: the kernel stopped between two operations.
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => thread::sleep(SUBMIT_PAUSE),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    self.failure = Some(error);
                    return false;
                }
            }
        }
        self.failure = Some(io::Error::other("io_uring takes no more operations"));
        false
    }

    /// Submits all that is queued and waits for a completion, in one system call.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let timeout = if self.aside.is_empty() { timeout } else { Some(Duration::ZERO) };
        let time = timeout.map(|timeout| Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos()));
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // Not to wait at all is cheaper than a wait that is over at once; it may need no system call.
        let wanted = usize::from(timeout != Some(Duration::ZERO));
        if wanted == 0 && self.is_quiet() {
            return Ok(());
        }
        match self.ring.submitter().submit_with_args(wanted, &args) {
            Err(error) if error.raw_os_error() != Some(libc::ETIME) && !is_passing(&error) => return Err(error),
            _ => {}
        }
        let queue = self.ring.submission();
        let is_done = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        if is_done || self.submit() { Ok(()) } else { Err(self.take_failure()) }
    }

    fn take_failure(&mut self) -> io::Error {
        self.failure.take().unwrap_or_else(|| io::Error::other("io_uring takes no more operations"))
    }

    /// Nothing to submit, and nothing in the kernel that waits for this thread to run it.
    fn is_quiet(&mut self) -> bool {
        let queue = self.ring.submission();
        // Without deferred task work the kernel completes by itself.
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    pub fn harvest(&mut self, mut take: impl FnMut(cqueue::Entry)) {
        self.aside.drain(..).for_each(&mut take);
        self.ring.completion().for_each(take);
    }
}

fn errno<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

/// Busy means that completions are to be taken first.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// Whether the kernel allows what the driver needs.
pub fn probe() -> io::Result<()> {
    receive_one(0)
}

/// How many bytes a receive brings before it is to be begun again, so that neither a busy connection nor one that is not
/// read fills the worker's memory. 0: the kernel knows no such limit (it came with Linux 6.16), some 32 buffers are.
pub fn receive_limit() -> u32 {
    if receive_one(RECEIVE_LIMIT_BYTES).is_ok() { RECEIVE_LIMIT_BYTES } else { 0 }
}

/// A receive that goes on until the limit.
pub fn receive(fd: Fd, limit: u32) -> squeue::Entry {
    const _: () = assert!(size_of::<squeue::Entry>() == 64);
    let mut entry = opcode::RecvMulti::new(fd, GROUP).build();
    let start = (&raw mut entry).cast::<u8>();
    // SAFETY: an entry is the kernel's `struct io_uring_sqe`, 64 bytes of plain integers; `optlen`, which the crate has no
    // name for yet, is the u32 at 44.
    unsafe { start.add(44).cast::<u32>().write_unaligned(limit) };
    entry
}

/// Receives one byte as the driver will.
fn receive_one(limit: u32) -> io::Result<()> {
    // The ring, made last, ends before the buffers that the receive may still write to.
    let mut buffers = Buffers::new()?;
    let mut ring = Ring::new()?;
    buffers.register(&ring.submitter())?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    rustix::io::write(&theirs, b"?")?;
    ring.push(receive(Fd(ours.as_raw_fd()), limit), Tag::other(Operation::Receive, 0));
    ring.wait(Some(Duration::from_secs(1)))?;
    let mut completions = VecDeque::new();
    ring.harvest(|completion| completions.push_back(completion));
    let received = completions.pop_front().is_some_and(|first| {
        first.result() == 1 && cqueue::more(first.flags()) && cqueue::buffer_select(first.flags()).is_some()
    });
    if received { Ok(()) } else { Err(io::Error::new(io::ErrorKind::Unsupported, "no multishot receive")) }
}
