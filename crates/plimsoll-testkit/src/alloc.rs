//! An allocator that counts, so that a claim about memory is measured and not guessed.
//!
//! [`CountingAllocator`] hands everything on to the system's allocator and counts the bytes that were asked for. A
//! reallocation counts as old and new at the same time, since that is what a copy needs; where the system grows a
//! block in place the count is too high, never too low.
//!
//! There are two sets of counters. Those of the process see every thread; a test that reads them must be alone in its
//! binary, or run its cases one after another. Those of the thread see what the thread itself allocates and frees, so
//! tests that run beside each other do not disturb each other; memory that is handed to another thread and freed there
//! stays on the account of the one that allocated it.
//!
//! Not counted: what the allocator itself needs, stacks, and mappings made past it. See `rss.rs` for the whole process.

#![allow(unsafe_code, reason = "a global allocator cannot be written without it; nothing else stands in this file")]
#![allow(clippy::panic, reason = "a measurement that measures nothing must fail its test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};

/// The counting allocator. It becomes active as `#[global_allocator]`; the counters are the module's functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

impl CountingAllocator {
    /// For the static.
    pub const fn new() -> Self {
        CountingAllocator
    }
}

/// What a piece of work did to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The most bytes live at one time, less those that were live before.
    pub peak_over_baseline: usize,
    /// The bytes that are live at the end, less those that were live before: what the result holds, and what leaked.
    /// Negative when more was freed than allocated.
    pub live_after: isize,
    /// How many allocations and reallocations were made.
    pub allocations: u64,
}

/// Runs `work` and says what the whole process allocated meanwhile. Every thread counts, also those of other tests.
///
/// # Panics
///
/// If [`CountingAllocator`] is not the global allocator.
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Usage) {
    let meter = Meter::process();
    let result = work();
    (result, meter.usage())
}

/// Runs `work` and says what this thread allocated meanwhile.
///
/// # Panics
///
/// If [`CountingAllocator`] is not the global allocator.
pub fn measure_thread<R>(work: impl FnOnce() -> R) -> (R, Usage) {
    let meter = Meter::thread();
    let result = work();
    (result, meter.usage())
}

/// The bytes that are live in the process.
pub fn live() -> usize {
    PROCESS.live.load(Ordering::SeqCst).max(0) as usize
}

/// The most bytes that were live in the process at one time, since the start or the last [`reset_peak`].
pub fn peak() -> usize {
    PROCESS.peak.load(Ordering::SeqCst).max(0) as usize
}

/// The peak less what was live before, as read by [`live`].
pub fn peak_over(baseline: usize) -> usize {
    peak().saturating_sub(baseline)
}

/// Makes what is live now the peak.
pub fn reset_peak() {
    PROCESS.peak.store(PROCESS.live.load(Ordering::SeqCst), Ordering::SeqCst);
}

/// How many allocations and reallocations the process has made.
pub fn allocations() -> u64 {
    PROCESS.allocations.load(Ordering::SeqCst)
}

/// A measurement from now on, for work that is no closure, such as what stands between two awaits of a test on a
/// runtime of one thread. Meters may be nested: the inner one does not hide the outer one's peak.
#[derive(Debug)]
pub struct Meter {
    scope: Scope,
    live: isize,
    allocations: u64,
    /// The peak before the meter, which comes back when it ends.
    outer_peak: isize,
    /// A thread's meter reads the thread that made it.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
enum Scope {
    Process,
    Thread,
}

impl Meter {
    /// Measures the whole process.
    ///
    /// # Panics
    ///
    /// If [`CountingAllocator`] is not the global allocator.
    pub fn process() -> Self {
        assert_installed();
        let live = PROCESS.live.load(Ordering::SeqCst);
        let outer_peak = PROCESS.peak.swap(live, Ordering::SeqCst);
        let allocations = PROCESS.allocations.load(Ordering::SeqCst);
        Meter { scope: Scope::Process, live, allocations, outer_peak, _not_send: PhantomData }
    }

    /// Measures this thread.
    ///
    /// # Panics
    ///
    /// If [`CountingAllocator`] is not the global allocator.
    pub fn thread() -> Self {
        assert_installed();
        THREAD.with(|thread| {
            let live = thread.live.get();
            let outer_peak = thread.peak.replace(live);
            let allocations = thread.allocations.get();
            Meter { scope: Scope::Thread, live, allocations, outer_peak, _not_send: PhantomData }
        })
    }

    /// What happened since the meter was made.
    pub fn usage(&self) -> Usage {
        let (live, peak, allocations) = match self.scope {
            Scope::Process => (
                PROCESS.live.load(Ordering::SeqCst),
                PROCESS.peak.load(Ordering::SeqCst),
                PROCESS.allocations.load(Ordering::SeqCst),
            ),
            Scope::Thread => THREAD.with(|thread| (thread.live.get(), thread.peak.get(), thread.allocations.get())),
        };
        Usage {
            peak_over_baseline: (peak - self.live).max(0) as usize,
            live_after: live - self.live,
            allocations: allocations - self.allocations,
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        match self.scope {
            Scope::Process => {
                PROCESS.peak.fetch_max(self.outer_peak, Ordering::SeqCst);
            }
            Scope::Thread => {
                THREAD.with(|thread| thread.peak.set(thread.peak.get().max(self.outer_peak)));
            }
        }
    }
}

fn assert_installed() {
    let before = THREAD.with(|thread| thread.allocations.get());
    drop(std::hint::black_box(Box::new(0_u8)));
    let after = THREAD.with(|thread| thread.allocations.get());
    assert!(after > before, "CountingAllocator is not this binary's #[global_allocator]: nothing would be measured");
}

/// Counters are signed: a thread may free what another one allocated, and an update of the process's counters may be
/// seen between its two halves.
struct Process {
    live: AtomicIsize,
    peak: AtomicIsize,
    allocations: AtomicU64,
}

static PROCESS: Process =
    Process { live: AtomicIsize::new(0), peak: AtomicIsize::new(0), allocations: AtomicU64::new(0) };

struct Thread {
    live: Cell<isize>,
    peak: Cell<isize>,
    allocations: Cell<u64>,
}

thread_local! {
    // Constant and without a destructor: reading it never allocates, not even at the thread's end.
    static THREAD: Thread = const { Thread { live: Cell::new(0), peak: Cell::new(0), allocations: Cell::new(0) } };
}

fn add(size: usize) {
    let size = size as isize;
    let live = PROCESS.live.fetch_add(size, Ordering::SeqCst) + size;
    PROCESS.peak.fetch_max(live, Ordering::SeqCst);
    PROCESS.allocations.fetch_add(1, Ordering::SeqCst);
    let _ = THREAD.try_with(|thread| {
        thread.live.set(thread.live.get() + size);
        thread.peak.set(thread.peak.get().max(thread.live.get()));
        thread.allocations.set(thread.allocations.get() + 1);
    });
}

fn subtract(size: usize) {
    let size = size as isize;
    PROCESS.live.fetch_sub(size, Ordering::SeqCst);
    let _ = THREAD.try_with(|thread| thread.live.set(thread.live.get() - size));
}

// SAFETY: every call goes on to the system's allocator with its arguments unchanged, and what that returns is returned;
// counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            add(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::alloc_zeroed`'s contract.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            add(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `GlobalAlloc::dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) };
        subtract(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::realloc`'s contract.
        let grown = unsafe { System.realloc(pointer, layout, new_size) };
        if !grown.is_null() {
            // New before old: for a moment both are live.
            add(new_size);
            subtract(layout.size());
        }
        grown
    }
}
