//! What waits to be sent on one connection, in memory that stays where it is while the kernel reads it.
//! Knows nothing of rings.

use std::collections::VecDeque;

use super::buffers::{Buffers, Piece};

/// From here on sending out of the receive buffer beats copying.
const HOLD_BYTES_MIN: usize = 4096;
/// A copy grows up to here, then the next begins.
const COPY_BYTES_MAX: usize = 64 * 1024;
/// What is sent without waiting for its completion.
const QUICK_BYTES_MAX: usize = 16 * 1024;
/// Segments of one send.
const VECTOR_MAX: usize = 8;
/// What a worker keeps for reuse.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 16 * 1024;

enum Segment {
    Copied { bytes: Vec<u8>, start: usize },
    Held { buffer: u16, start: *const u8, len: usize },
}

impl Segment {
    fn range(&self) -> (*const u8, usize) {
        match self {
            Self::Copied { bytes, start } => (bytes[*start..].as_ptr(), bytes.len() - start),
            Self::Held { start, len, .. } => (*start, *len),
        }
    }
}

/// The queue of one connection. Boxed, so that the vector and header of a send under way stay where they are.
pub struct Outbox {
    queue: VecDeque<Segment>,
    unsent: usize,
    /// How many segments, from the front, the send under way reads.
    flying: usize,
    vector: [libc::iovec; VECTOR_MAX],
    header: libc::msghdr,
}

/// What a send needs.
pub enum Flight {
    Plain { start: *const u8, len: usize },
    Vector(*const libc::msghdr),
}

/// Outboxes and copies for reuse: what is sent in the steady state allocates nothing.
#[derive(Default)]
pub struct Spares {
    #[expect(clippy::vec_box, reason = "the kernel knows where an outbox is")]
    outboxes: Vec<Box<Outbox>>,
    copies: Vec<Vec<u8>>,
}

impl Spares {
    pub fn outbox(&mut self) -> Box<Outbox> {
        self.outboxes.pop().unwrap_or_else(|| {
            Box::new(Outbox {
                queue: VecDeque::new(),
                unsent: 0,
                flying: 0,
                vector: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; VECTOR_MAX],
                // SAFETY: all zeroes is a valid msghdr: null pointers and lengths of zero.
                header: unsafe { std::mem::zeroed() },
            })
        })
    }

    /// Takes back an outbox that nothing flies from.
    pub fn put_outbox(&mut self, mut outbox: Box<Outbox>, buffers: &mut Buffers) {
        outbox.flying = 0;
        outbox.clear(self, buffers);
        if self.outboxes.len() < SPARE_MAX {
            self.outboxes.push(outbox);
        }
    }

    pub fn put_copy(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_BYTES_MAX && self.copies.len() < SPARE_MAX {
            bytes.clear();
            self.copies.push(bytes);
        }
    }
}

impl Outbox {
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Queues bytes: holds the piece they lie in where that pays, copies them otherwise.
    pub fn push(&mut self, bytes: &[u8], from: Option<&Piece>, buffers: &mut Buffers, spares: &mut Spares) {
        if bytes.is_empty() {
            return;
        }
        self.unsent += bytes.len();
        let held = match from {
            Some(piece) if bytes.len() >= HOLD_BYTES_MIN => buffers.hold(piece, bytes),
            _ => None,
        };
        if let Some(buffer) = held {
            self.queue.push_back(Segment::Held { buffer, start: bytes.as_ptr(), len: bytes.len() });
            return;
        }
        let is_flying = self.queue.len() <= self.flying;
        if let Some(Segment::Copied { bytes: copy, .. }) = self.queue.back_mut()
            && !is_flying
            && copy.len() < COPY_BYTES_MAX
        {
            copy.extend_from_slice(bytes);
            return;
        }
        let mut copy = spares.copies.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        self.queue.push_back(Segment::Copied { bytes: copy, start: 0 });
    }

    /// Takes out all that waits, if it is one small copy that has not been tried.
    pub fn take_only_copy(&mut self) -> Option<Vec<u8>> {
        let is_small = self.unsent <= QUICK_BYTES_MAX && self.flying == 0 && self.queue.len() == 1;
        if !is_small || !matches!(self.queue.front(), Some(Segment::Copied { start: 0, .. })) {
            return None;
        }
        self.unsent = 0;
        match self.queue.pop_front() {
            Some(Segment::Copied { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    /// Puts back what `take_only_copy` took and of which so many bytes went. Nothing may fly.
    pub fn push_front(&mut self, bytes: Vec<u8>, start: usize) {
        self.unsent += bytes.len() - start;
        self.queue.push_front(Segment::Copied { bytes, start });
    }

    /// Readies the next send. What it names stays valid until `landed`.
    pub fn take_off(&mut self) -> Flight {
        self.flying = self.queue.len().min(VECTOR_MAX);
        if let [only] = self.queue.make_contiguous() {
            let (start, len) = only.range();
            return Flight::Plain { start, len };
        }
        for (place, segment) in self.vector.iter_mut().zip(&self.queue) {
            let (start, len) = segment.range();
            *place = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        }
        self.header.msg_iov = self.vector.as_mut_ptr();
        self.header.msg_iovlen = self.flying;
        Flight::Vector(&raw const self.header)
    }

    /// The send is over, and so many bytes went.
    pub fn landed(&mut self, mut sent: usize, buffers: &mut Buffers, spares: &mut Spares) {
        self.flying = 0;
        self.unsent = self.unsent.saturating_sub(sent);
        while let Some(segment) = self.queue.front_mut() {
            let (_, len) = segment.range();
            if sent < len {
                match segment {
                    Segment::Copied { start, .. } => *start += sent,
                    Segment::Held { start, len, .. } => {
                        *start = start.wrapping_add(sent);
                        *len -= sent;
                    }
                }
                return;
            }
            sent -= len;
            self.drop_front(buffers, spares);
        }
    }

    fn drop_front(&mut self, buffers: &mut Buffers, spares: &mut Spares) {
        match self.queue.pop_front() {
            Some(Segment::Copied { bytes, .. }) => spares.put_copy(bytes),
            Some(Segment::Held { buffer, .. }) => buffers.let_go(buffer),
            None => {}
        }
    }

    /// Throws everything away. Nothing may fly.
    pub fn clear(&mut self, spares: &mut Spares, buffers: &mut Buffers) {
        while !self.queue.is_empty() {
            self.drop_front(buffers, spares);
        }
        self.unsent = 0;
    }

    /// A copy of all that waits. Nothing may fly.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.unsent);
        for segment in &self.queue {
            let (start, len) = segment.range();
            // SAFETY: the range lies in our copy, or in a buffer that we hold and that lives as long as the worker.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
        }
        bytes
    }
}
