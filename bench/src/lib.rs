//! Plimsoll's decoding beside that of its peers, in one run on one machine.
//!
//! | file | what |
//! |---|---|
//! | `inputs.rs` | the rows: one message each, and the limits it is read with |
//! | `decoders.rs` | the columns: ours, an untagged enum over `Value`, a struct of `&RawValue` |
//! | `rounds.rs` | time, in interleaved rounds |
//! | `report.rs` | tables on standard output and in `BENCHMARKS.md` |
//! | `benches/speed.rs` | gigabytes a second, with the gate |
//! | `benches/heap.rs` | bytes held at the peak, with the gate; a binary of its own, so that counting slows no timing |
//!
//! `cargo bench` runs both. `PLIMSOLL_BENCH_QUICK=1` makes few rounds and still gates; `PLIMSOLL_BENCH_WRITE=1`
//! puts the tables into `BENCHMARKS.md`.

mod decoders;
mod inputs;
mod report;
mod rounds;

pub use decoders::{Connection, Outcome, Peer};
pub use inputs::{Input, inputs};
pub use report::{Report, is_quick};
pub use rounds::{Series, interleaved};
