//! Any one JSON text: see `plimsoll_fuzz::scanner`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::scanner(input));

/// Nothing: only `cargo fuzz` makes a fuzzer of this.
#[cfg(not(fuzzing))]
fn main() {}
