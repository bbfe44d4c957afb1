//! Bytes held at the peak of decoding, a byte on the wire: ours and the peers'.
//!
//! Everything counts, the message's own bytes included: ours holds them in its frame, the peers in the buffer that they
//! decode from. A reallocation counts as old and new.

use std::process::ExitCode;

use plimsoll_bench::{Connection, Outcome, Peer, Report, inputs};
use plimsoll_testkit::alloc::{CountingAllocator, measure};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Beside the message and its keys.
const BASE: usize = 128 * 1024;
/// A key of the objects open at once.
const KEY: usize = 24;
/// A message that is refused for its number of values, however long it goes on.
const REFUSED: usize = 768 * 1024;

fn main() -> ExitCode {
    let mut heads = vec!["input", "bytes", "ours, bytes at the peak", "ours"];
    heads.extend(Peer::ALL.map(Peer::name));
    let mut report = Report::new("heap", &heads);
    for input in inputs() {
        let wire = input.message().len();
        let held = |peak: usize| format!("{:.2}", peak as f64 / wire as f64);
        // A connection that has read nothing yet, so that all it ever takes is on its account.
        let (outcome, ours) = measure(|| Connection::new(&input).decode(input.line()));
        assert_eq!(outcome, input.expected, "{}", input.name);
        let peak = ours.peak_over_baseline;
        let mut cells = vec![input.name.clone(), wire.to_string(), peak.to_string(), held(peak)];
        for peer in Peer::ALL {
            let (_, theirs) = measure(|| {
                let buffer = input.message().to_vec();
                peer.decode(&buffer)
            });
            cells.push(held(theirs.peak_over_baseline));
        }
        report.row(&cells);
        let most = match outcome {
            Outcome::Refused(_) => REFUSED,
            // Every quoted name is followed by a colon, so there are no more keys than colons.
            Outcome::Message(_) => wire + BASE + KEY * input.message().iter().filter(|byte| **byte == b':').count(),
        };
        report.gate(peak <= most, format!("{}: {peak} bytes at the peak, at most {most} wanted", input.name));
        report.gate(ours.live_after == 0, format!("{}: {} bytes were not given back", input.name, ours.live_after));
    }
    report.finish()
}
