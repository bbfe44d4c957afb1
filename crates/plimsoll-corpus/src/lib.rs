//! The hostile JSON-RPC corpus: what untrusted peers send to make a program slow, large, wrong or silent.
//!
//! A [`Shape`] is one attack. It takes a size and gives a [`Generator`], which streams the text and never holds it: a
//! 16 MiB bomb costs its sender a few hundred bytes. Each shape also says what is right ([`Shape::expect`]) at the
//! limits that Plimsoll has by default, so a test walks over [`shapes`] and needs no list of its own.
//!
//! | file | what |
//! |---|---|
//! | `generator.rs` | the streaming text |
//! | `expect.rs` | what is right, and why: [`Expect`], [`Reason`], [`limits`] |
//! | `shape.rs` | [`Shape`], [`Form`], [`shapes`] |
//! | `rows/` | the rows of the table, by what they attack |
//! | `envelope.rs` | a value put into a request, notification or response |
//! | `reproduction.rs` | the one message that began it |
//! | `useful.rs` | what must be accepted: a bound that refuses these is wrong |
//! | `bench.rs` | benign inputs for benchmarks |
//!
//! The crate has no dependencies and does no I/O. It does not pace what it sends: how fast, in which chunks and over
//! which transport is up to the one who reads the generator.
//!
//! ```
//! use plimsoll_corpus::{Dialect, Envelope, Expect, IdPlacement, Reason, shapes};
//!
//! let zeroes = shapes().iter().find(|shape| shape.name() == "flatZeroes").expect("row 1");
//! let size = zeroes.default_bytes();
//! assert_eq!(zeroes.expect(size), Expect::Refused(Reason::JsonValues));
//! assert_eq!(zeroes.expect(1_000), Expect::Accepted);
//!
//! let message = zeroes.message(Dialect::Standard, Envelope::Request(IdPlacement::First), size);
//! assert!(message.remaining_bytes() > size as u64);
//! for piece in message {
//!     assert!(piece.len() <= plimsoll_corpus::PIECE_BYTES);
//! }
//! ```

#![forbid(unsafe_code)]

mod bench;
mod envelope;
mod expect;
mod generator;
mod reproduction;
mod rows;
mod shape;
mod useful;

pub use bench::{BenchRow, bench_rows};
pub use envelope::{Dialect, Envelope, ID, IdPlacement, METHOD, notification, request, response};
pub use expect::{Expect, Reason, limits};
pub use generator::{Generator, PIECE_BYTES, WriteUnit};
pub use reproduction::{REPRODUCTION_BYTES, REPRODUCTION_ZEROES, reproduction};
pub use rows::ECHO_MARKER;
pub use shape::{Form, Shape, shapes, truncations};
pub use useful::{Useful, useful};
