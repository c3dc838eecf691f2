//! The receive buffers shared with the kernel: a ring of those that are free, and who holds the others.
//! Knows nothing of sockets.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The only buffer group of a ring.
pub const GROUP: u16 = 0;
/// How many buffers, a power of two.
const COUNT: u16 = 256;
/// How many of them the kernel has at first, and how many more each time that it found none: it fills them in turn, so each of those that it
/// has takes memory before long, however few are needed at once.
const COUNT_FIRST: u16 = 32;
const COUNT_MORE: u16 = 8;
/// Small messages touch only the first page of each buffer; a stream of large ones fills them.
pub const BUFFER_BYTES: usize = 32 * 1024;
/// How many buffers sends may hold: peers that read slowly must not leave the others without any.
const HELD_MAX: usize = COUNT as usize / 4;

/// Memory straight from the system: page-aligned, and a page costs nothing until it is written to, which an allocator that
/// clears it would do at once.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        NonNull::new(start.cast()).map(|start| Self { start, len }).ok_or_else(|| io::Error::other("mapped at 0"))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped once. A failure would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// All receive buffers of a worker.
pub struct Buffers {
    entries: Memory,
    memory: Memory,
    tail: u16,
    /// Those up to here are in use: the kernel's, or held.
    in_use: u16,
    /// How many hold each buffer: the piece being handled, and each send of a part of it. The kernel's have none.
    holders: Vec<u16>,
    /// Buffers held by sends.
    held: usize,
}

/// Received bytes: a buffer that is ours until it is put back.
pub struct Piece {
    start: NonNull<u8>,
    len: usize,
    buffer: u16,
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `Buffers::piece` checked that the range lies in the buffer; the kernel does not write to a buffer that is
        // not in its ring, and it is put there only by `release`, which consumes the piece. The memory outlives the
        // piece: both are the worker's, which gives each piece back before it takes the next.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Buffers {
    pub fn new() -> io::Result<Self> {
        let entries = Memory::new(usize::from(COUNT) * size_of::<BufRingEntry>())?;
        let memory = Memory::new(usize::from(COUNT) * BUFFER_BYTES)?;
        Ok(Self { entries, memory, tail: 0, in_use: 0, holders: vec![0; usize::from(COUNT)], held: 0 })
    }

    /// Gives the first buffers to the kernel. The ring must end before these buffers do.
    pub fn register(&mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        // SAFETY: the entries are page-aligned, of this count, and outlive the ring: `Uring` drops its ring first.
        unsafe { submitter.register_buf_ring_with_flags(self.entries.start.as_ptr() as u64, COUNT, GROUP, 0)? };
        self.use_more(COUNT_FIRST);
        Ok(())
    }

    /// The kernel had none left.
    #[cold]
    pub fn ran_out(&mut self) {
        self.use_more(COUNT_MORE);
    }

    fn use_more(&mut self, count: u16) {
        let more = self.in_use..COUNT.min(self.in_use + count);
        self.in_use = more.end;
        more.for_each(|buffer| self.put_back(buffer));
    }

    fn start(&self, buffer: u16) -> NonNull<u8> {
        // SAFETY: `buffer` is below COUNT, which every caller has checked or got from here.
        unsafe { self.memory.start.add(usize::from(buffer) * BUFFER_BYTES) }
    }

    fn put_back(&mut self, buffer: u16) {
        let address = self.start(buffer).as_ptr() as u64;
        let ring = self.entries.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the index is below COUNT; the kernel reads an entry only after the tail has passed it, and we alone write.
        // The tail lies in the first entry's last field, and both sides treat it as atomic.
        unsafe {
            let entry = &mut *ring.add(usize::from(self.tail & (COUNT - 1)));
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(ring).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// The bytes of a completion.
    pub fn piece(&mut self, buffer: u16, len: usize) -> Option<Piece> {
        let holders = self.holders.get_mut(usize::from(buffer))?;
        if len > BUFFER_BYTES || *holders != 0 {
            return None;
        }
        *holders = 1;
        Some(Piece { start: self.start(buffer), len, buffer })
    }

    pub fn release(&mut self, piece: Piece) {
        self.drop_holder(piece.buffer);
    }

    /// Lets a send hold the piece that `bytes` lie in, if they lie in it and there are buffers to spare.
    pub fn hold(&mut self, piece: &Piece, bytes: &[u8]) -> Option<u16> {
        let inside = piece.as_ptr_range().contains(&bytes.as_ptr());
        if !inside || self.held >= HELD_MAX {
            return None;
        }
        self.held += 1;
        self.holders[usize::from(piece.buffer)] += 1;
        Some(piece.buffer)
    }

    /// Ends what `hold` began.
    pub fn let_go(&mut self, buffer: u16) {
        self.held -= 1;
        self.drop_holder(buffer);
    }

    fn drop_holder(&mut self, buffer: u16) {
        let holders = &mut self.holders[usize::from(buffer)];
        *holders -= 1;
        if *holders == 0 {
            self.put_back(buffer);
        }
    }
}
