//! What Plimsoll's tests stand on: memory that is counted, streams that fail on purpose, chance that repeats.
//!
//! | file | what |
//! |---|---|
//! | `alloc.rs` | [`alloc::CountingAllocator`] and the meters that read it |
//! | `pair.rs` | [`pair::pair`]: two ends of an in-memory byte stream, with faults and virtual time |
//! | `faults.rs` | [`pair::Faults`]: what may go wrong in one direction |
//! | `rng.rs` | [`rng::Rng`]: a seeded generator for schedules and chunkings |
//! | `rss.rs` | the resident memory of a process (Linux) |
//! | `step.rs` | futures that are dropped at their await points |
//!
//! This crate is for tests only and is never published. Misuse panics: a test that measures nothing must not pass.
//!
//! ```
//! use plimsoll_testkit::alloc::{CountingAllocator, measure_thread};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator::new();
//!
//! let (bytes, usage) = measure_thread(|| vec![0_u8; 4_096]);
//! assert_eq!((usage.peak_over_baseline, usage.live_after, usage.allocations), (4_096, 4_096, 1));
//! drop(bytes);
//! ```

#![deny(unsafe_code)]

pub mod alloc;
mod faults;
pub mod pair;
pub mod rng;
#[cfg(target_os = "linux")]
pub mod rss;
pub mod step;
