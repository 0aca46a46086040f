//! How much heap a test's thread has, and how often it asked for some: what Rust's allocator hands out to it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Bytes a thread has, the most it had since that was last asked, and how often it asked for memory.
struct Counting;

thread_local! {
    pub static HAS: Cell<isize> = const { Cell::new(0) };
    pub static MOST: Cell<isize> = const { Cell::new(0) };
    pub static TIMES: Cell<usize> = const { Cell::new(0) };
}

fn asked() {
    let _ = TIMES.try_with(|times| times.set(times.get() + 1));
}

fn count(bytes: isize) {
    // A thread that is ending has no counters any more; nothing is run there.
    let _ = HAS.try_with(|has| {
        has.set(has.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(has.get())));
    });
}

// SAFETY: each call goes to the system's allocator as it came; the counters are plain cells of this
// thread, constant at their beginning and without a destructor, so that counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asked();
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `at` came from the system's allocator, as all of these do.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        asked();
        count(layout.size() as isize);
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        asked();
        // Old and new may be there at once while bytes are moved.
        count(new as isize);
        count(-(layout.size() as isize));
        // SAFETY: as for `dealloc`; the caller promises that `new` is no size beyond bounds.
        unsafe { System.realloc(at, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
