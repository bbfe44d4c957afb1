//! Without the counting allocator there is nothing to measure, and a test that measures must say so.

use plimsoll_testkit::alloc::measure;

#[test]
#[should_panic(expected = "nothing would be measured")]
fn a_measurement_without_the_allocator_fails() {
    let _ = measure(|| vec![0_u8; 100]);
}
