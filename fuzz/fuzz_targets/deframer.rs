//! A stream of lines, cut into chunks by the input's first byte: see `plimsoll_fuzz::deframer`.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| plimsoll_fuzz::deframer(input));

/// Nothing: only `cargo fuzz` makes a fuzzer of this.
#[cfg(not(fuzzing))]
fn main() {}
