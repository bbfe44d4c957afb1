//! What every fuzz target does with an input. The checks are those of the core's own tests, and panic where the core
//! and the plain reader beside it disagree.
//!
//! | target | an input is | held to |
//! |---|---|---|
//! | [`scanner`] | any one JSON text, and lines | the reader and `serde_json`, at many limits |
//! | [`envelope`] | one message | the reader, in both dialects, at many limits |
//! | [`deframer`] | a byte that says how to cut, and a stream of lines | the reader and the same bytes whole |
//!
//! `cargo fuzz run -s none scanner` fuzzes on a stable compiler; it needs a C++ compiler for libFuzzer, and nothing
//! else here does: `cargo test` walks the corpora through the same functions. A sanitizer would find nothing, since
//! the core forbids unsafe code.
//!
//! ```text
//! cargo run --manifest-path fuzz/Cargo.toml --example seeds    writes the seeds anew
//! ```

#[path = "../../crates/plimsoll-core/tests/harness/mod.rs"]
mod harness;

use plimsoll_core::Dialect;

use harness::{Chance, check_against_reference, check_chunking, expected, limit_sets, random_limits, receive};

/// What is done with one input; it panics when the core is wrong about it.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 3] = [("deframer", deframer), ("envelope", envelope), ("scanner", scanner)];

/// Any one JSON text.
pub fn scanner(input: &[u8]) {
    check_against_reference(input);
}

/// One message. A line feed would end it, and what comes after one is left out.
pub fn envelope(input: &[u8]) {
    let message = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    compare_lines(message, 0);
}

/// A stream of lines, cut as the first byte says.
pub fn deframer(input: &[u8]) {
    let Some((&cut, stream)) = input.split_first() else { return };
    check_chunking(stream, u64::from(cut));
    compare_lines(stream, u64::from(cut));
}

/// Compares the core, fed in the pieces of `seed`, with the reader.
fn compare_lines(stream: &[u8], seed: u64) {
    let mut chance = Chance::new(seed ^ stream.len() as u64);
    let mut sets = limit_sets();
    sets.push(random_limits(&mut chance));
    for limits in &sets {
        for dialect in [Dialect::Standard, Dialect::Bare] {
            let longest = 1 + chance.below(64);
            let mut pieces = chance.clone();
            let pieces = std::iter::from_fn(move || Some(1 + pieces.below(longest)));
            let found = receive(stream, pieces, limits, dialect);
            let right = expected(stream, limits, dialect);
            assert_eq!(found, right, "{dialect:?}, b\"{}\", limits {limits}", stream.escape_ascii());
        }
    }
}
