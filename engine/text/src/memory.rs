//! Counts what each thread allocates in this crate, so that the size of a compiled grammar is measured, not guessed. Called by grammar.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread allocated, less those that it freed. Only differences mean something: a thread may free what another allocated.
pub fn held() -> i64 {
    HELD.get()
}

/// What `make` returns, and the bytes that it holds. Everything else that `make` allocates must be freed, on this thread.
pub fn measured<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = held();
    let made = make();
    (made, usize::try_from(held() - before).unwrap_or(0))
}

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A size is at most isize::MAX (Layout).
fn count(more: usize, less: usize) {
    HELD.set(HELD.get() + more as i64 - less as i64);
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(0, layout.size());
        System.dealloc(place, layout)
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        System.realloc(place, layout, size)
    }
}
