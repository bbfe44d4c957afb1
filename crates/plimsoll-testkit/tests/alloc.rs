//! The counting allocator counts what it says. The counters of the process are read by one test only: it would see the
//! others of its binary.

use plimsoll_testkit::alloc::{self, CountingAllocator, Meter, measure, measure_thread};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

#[test]
fn a_reallocation_counts_old_and_new() {
    let mut bytes: Vec<u8> = Vec::with_capacity(1_000);
    let ((), usage) = measure_thread(|| bytes.reserve_exact(3_000));
    assert_eq!((usage.peak_over_baseline, usage.live_after, usage.allocations), (3_000, 2_000, 1));
}

#[test]
fn what_is_freed_is_given_back() {
    let ((), usage) = measure_thread(|| drop(std::hint::black_box(vec![0_u8; 5_000])));
    assert_eq!((usage.peak_over_baseline, usage.live_after, usage.allocations), (5_000, 0, 1));

    let held = vec![0_u8; 5_000];
    let ((), usage) = measure_thread(|| drop(held));
    assert_eq!((usage.peak_over_baseline, usage.live_after, usage.allocations), (0, -5_000, 0));
}

#[test]
fn an_inner_meter_does_not_hide_the_outer_peak() {
    let outer = Meter::thread();
    drop(std::hint::black_box(vec![0_u8; 9_000]));
    let ((), inner) = measure_thread(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(inner.peak_over_baseline, 100);
    assert_eq!(outer.usage().peak_over_baseline, 9_000);
}

#[test]
fn another_thread_is_not_on_this_threads_account() {
    let meter = Meter::thread();
    let before = meter.usage().live_after;
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| measure_thread(|| vec![0_u8; 1_000_000]).1);
        other.join().expect("no panic")
    });
    assert_eq!(other.live_after, 1_000_000);
    let usage = meter.usage();
    assert!(usage.peak_over_baseline < 100_000 && usage.live_after - before < 100_000, "{usage:?}");
}

#[test]
fn the_process_counts_every_thread() {
    let baseline = alloc::live();
    alloc::reset_peak();
    let count = alloc::allocations();
    let (bytes, usage) = measure(|| std::thread::spawn(|| vec![0_u8; 64 << 20]).join().expect("no panic"));
    // The other tests of this file run beside it and hold far less than the margin.
    let margin = 8 << 20;
    assert!(usage.peak_over_baseline.abs_diff(64 << 20) < margin, "{usage:?}");
    assert!(usage.live_after.abs_diff(64 << 20) < margin, "{usage:?}");
    assert!(usage.allocations >= 1 && alloc::allocations() > count);
    assert!(alloc::peak_over(baseline).abs_diff(64 << 20) < margin);
    drop(bytes);
    assert!(alloc::live() < baseline + margin);
}
