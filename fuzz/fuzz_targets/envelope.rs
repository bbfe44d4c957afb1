//! One message, in either dialect: see `plimsoll_fuzz::envelope`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::envelope(input));

/// Nothing: only `cargo fuzz` makes a fuzzer of this.
#[cfg(not(fuzzing))]
fn main() {}
