//! What may go wrong in one direction of a [`pair`](crate::pair::pair), and the gate that ends a stall.
//!
//! Faults are placed by bytes, not by time: "the 4,097th byte never arrives" is the same in every run. What a fault
//! decides by chance it decides from a seed.

#![allow(clippy::panic, reason = "a direction that can carry nothing is a mistake in the test")]

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::rng::Rng;

/// The faults of one direction. The default has none, and holds up to 64 KiB that are written and not yet read.
#[derive(Clone, Debug)]
pub struct Faults {
    /// > 0
    pub(crate) capacity: usize,
    pub(crate) latency: Duration,
    pub(crate) read_chunks: Chunks,
    pub(crate) write_chunks: Chunks,
    pub(crate) cut: Option<(u64, Cut)>,
    pub(crate) read_stall: Option<Stall>,
    pub(crate) write_stall: Option<Stall>,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            capacity: 64 * 1024,
            latency: Duration::ZERO,
            read_chunks: Chunks::Whole,
            write_chunks: Chunks::Whole,
            cut: None,
            read_stall: None,
            write_stall: None,
        }
    }
}

impl Faults {
    /// None, which is the default.
    pub fn none() -> Self {
        Faults::default()
    }

    /// How many bytes may be written and not yet read; then a write waits.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    pub fn capacity(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a direction without capacity carries nothing");
        self.capacity = bytes;
        self
    }

    /// Every byte, and the end of the stream, arrives so much later than it was written. Bytes on their way count
    /// against the capacity.
    #[must_use]
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// How many bytes a read gives at most, though more have arrived.
    #[must_use]
    pub fn read_chunks(mut self, chunks: Chunks) -> Self {
        self.read_chunks = chunks;
        self
    }

    /// How many bytes a write takes at most, though there is room for more.
    #[must_use]
    pub fn write_chunks(mut self, chunks: Chunks) -> Self {
        self.write_chunks = chunks;
        self
    }

    /// The direction ends after so many bytes: these still arrive, then the reader sees `cut`, and a further write
    /// fails.
    #[must_use]
    pub fn cut_after(mut self, bytes: u64, cut: Cut) -> Self {
        self.cut = Some((bytes, cut));
        self
    }

    /// After so many bytes a read waits for the gate, even for the end of the stream. Writes go on until the capacity
    /// is full.
    #[must_use]
    pub fn stall_reads_after(mut self, bytes: u64, gate: &Gate) -> Self {
        self.read_stall = Some(Stall { after: bytes, gate: gate.clone() });
        self
    }

    /// After so many bytes a write waits for the gate. What was written can be read.
    #[must_use]
    pub fn stall_writes_after(mut self, bytes: u64, gate: &Gate) -> Self {
        self.write_stall = Some(Stall { after: bytes, gate: gate.clone() });
        self
    }
}

/// The most bytes that one read or write moves.
#[derive(Clone, Debug)]
pub enum Chunks {
    /// As many as there are.
    Whole,
    /// Always this many. Zero is taken as one.
    AtMost(usize),
    /// Sizes from the generator, up to `most` (see [`Rng::size`]). Zero is taken as one.
    Random {
        /// Where the sizes come from.
        rng: Rng,
        /// The largest.
        most: usize,
    },
}

impl Chunks {
    /// Random sizes from a seed.
    pub fn random(seed: u64, most: usize) -> Self {
        Chunks::Random { rng: Rng::new(seed), most }
    }

    /// The limit for the next transfer, at least one.
    pub(crate) fn draw(&mut self) -> usize {
        match self {
            Chunks::Whole => usize::MAX,
            Chunks::AtMost(most) => (*most).max(1),
            Chunks::Random { rng, most } => rng.size((*most).max(1)),
        }
    }
}

/// How a direction ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The reader sees the end of the stream; a write fails with [`io::ErrorKind::BrokenPipe`].
    Eof,
    /// The reader sees this error, and so does a write.
    Error(io::ErrorKind),
}

impl Cut {
    pub(crate) fn read(self) -> io::Result<()> {
        match self {
            Cut::Eof => Ok(()),
            Cut::Error(kind) => Err(kind.into()),
        }
    }

    pub(crate) fn write_error(self) -> io::Error {
        match self {
            Cut::Eof => io::ErrorKind::BrokenPipe.into(),
            Cut::Error(kind) => kind.into(),
        }
    }
}

/// Ends a stall. Clones are the same gate; one gate may hold up several directions.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    state: Arc<Mutex<GateState>>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Gate::default()
    }

    /// Opens it for good and wakes everyone who waits.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_open = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.lock().is_open
    }

    fn poll_open(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_open {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct GateState {
    is_open: bool,
    waiting: Vec<Waker>,
}

/// A gate at a place in the stream.
#[derive(Clone, Debug)]
pub(crate) struct Stall {
    after: u64,
    gate: Gate,
}

impl Stall {
    /// Ready with how many more bytes may pass before the next question, which is never zero.
    pub(crate) fn poll_room(&self, passed: u64, context: &mut Context<'_>) -> Poll<u64> {
        match self.after.saturating_sub(passed) {
            0 => self.gate.poll_open(context).map(|()| u64::MAX),
            room => Poll::Ready(room),
        }
    }
}
