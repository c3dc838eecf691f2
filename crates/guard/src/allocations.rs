//! An allocator that counts: the system's own, with a number beside it.
//!
//! Counts what threads of the program under test allocate, not what the test's own threads do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    /// Neither lazy nor dropped, so that asking for it never allocates.
    static NOT_COUNTED: Cell<bool> = const { Cell::new(false) };
    static HERE: Cell<u64> = const { Cell::new(0) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// To be a test's `#[global_allocator]`.
pub struct Counting;

/// What this thread allocates from now on is its own affair.
pub fn do_not_count_this_thread() {
    NOT_COUNTED.set(true);
}

/// How many times counted threads have asked for memory.
pub fn count() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// How many times this thread has. The test's own harness has one beside it, which asks for memory when it comes to it.
pub fn count_here() -> u64 {
    HERE.get()
}

fn note() {
    HERE.set(HERE.get() + 1);
    if !NOT_COUNTED.get() {
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// SAFETY: everything is the system's allocator's doing; counting touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
