//! Counts the heap that core holds: what was allocated less what was freed while core had the word.
//!
//! Counters are per thread, as each seed runs on one thread. Nothing is counted unless the binary has installed
//! the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IN_CORE: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, with an eye on core.
pub struct Counting;

fn count(bytes: i64) {
    // At a thread's end the counters may be gone already.
    let _ = IN_CORE.try_with(|in_core| {
        if in_core.get() {
            HELD.with(|held| held.set(held.get() + bytes));
        }
    });
}

// SAFETY: every call goes on to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs something of core's, and counts its heap.
pub fn in_core<T>(work: impl FnOnce() -> T) -> T {
    IN_CORE.with(|flag| flag.set(true));
    let result = work();
    IN_CORE.with(|flag| flag.set(false));
    result
}

/// Begins a run. Also after one that ended in a panic.
pub fn reset() {
    IN_CORE.with(|flag| flag.set(false));
    HELD.with(|held| held.set(0));
}

pub fn held_bytes() -> i64 {
    HELD.with(Cell::get)
}
