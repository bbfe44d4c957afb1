//! Two ends of a byte stream in memory: a connection whose every fault is chosen.
//!
//! What one end writes the other reads, in order. Each direction has its own [`Faults`]: capacity, latency, chunk
//! sizes, a cut, stalls. Time is tokio's, so a test that pauses it waits for nothing (`tokio::time::pause`, feature
//! `test-util`); without latency no timer is used and any executor will do. Like a socket, an end takes part in tokio's
//! cooperative scheduling, so a reader that never has to wait still lets others run.
//!
//! Dropping an end, or shutting it down, ends what it sends: the peer reads the rest and then the end. Writing to an
//! end that is gone fails with [`io::ErrorKind::BrokenPipe`]. All reads and writes are cancel-safe: a poll that is
//! pending has moved nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

pub use crate::faults::{Chunks, Cut, Faults, Gate};

/// A stream whose ends are the two results: the faults are those from the first to the second, and back.
pub fn pair(there: Faults, back: Faults) -> (End, End) {
    let there = Arc::new(Mutex::new(Direction::new(there)));
    let back = Arc::new(Mutex::new(Direction::new(back)));
    let end = |outgoing: &Shared, incoming: &Shared| End {
        reader: ReadEnd { direction: Arc::clone(incoming), sleep: None },
        writer: WriteEnd { direction: Arc::clone(outgoing) },
    };
    (end(&there, &back), end(&back, &there))
}

/// One end of a [`pair`].
#[derive(Debug)]
pub struct End {
    reader: ReadEnd,
    writer: WriteEnd,
}

impl End {
    /// The two halves, each of which ends its direction when it is dropped.
    pub fn into_split(self) -> (ReadEnd, WriteEnd) {
        (self.reader, self.writer)
    }

    /// A view of what this end sends.
    pub fn outgoing(&self) -> Watch {
        Watch { direction: Arc::clone(&self.writer.direction) }
    }

    /// A view of what this end receives.
    pub fn incoming(&self) -> Watch {
        Watch { direction: Arc::clone(&self.reader.direction) }
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct ReadEnd {
    direction: Shared,
    /// Waits for bytes that are on their way; made at the first latency.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The half that writes.
#[derive(Debug)]
pub struct WriteEnd {
    direction: Shared,
}

/// A view of one direction from outside, for the test that gave its ends away.
#[derive(Clone, Debug)]
pub struct Watch {
    direction: Shared,
}

impl Watch {
    /// How many bytes were taken from the writer.
    pub fn written(&self) -> u64 {
        lock(&self.direction).written
    }

    /// How many bytes were given to the reader.
    pub fn read(&self) -> u64 {
        lock(&self.direction).read
    }

    /// How many bytes are written and not yet read; at most the capacity.
    pub fn in_flight(&self) -> usize {
        lock(&self.direction).in_flight
    }

    /// Whether the writer has ended, by shutdown or drop.
    pub fn is_write_closed(&self) -> bool {
        lock(&self.direction).closed.is_some()
    }

    /// Whether the reader is gone.
    pub fn is_read_closed(&self) -> bool {
        lock(&self.direction).is_reader_gone
    }
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().writer).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().writer).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().writer).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().writer).poll_shutdown(context)
    }
}

impl AsyncRead for ReadEnd {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let budget = ready!(coop::poll_proceed(context));
        loop {
            let arrival = match lock(&this.direction).poll_read(context, buffer) {
                ReadStep::Done(result) => {
                    budget.made_progress();
                    return Poll::Ready(result);
                }
                ReadStep::Arrives(arrival) => arrival,
                ReadStep::Waits => return Poll::Pending,
            };
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep_until(arrival)));
            if sleep.deadline() != arrival {
                sleep.as_mut().reset(arrival);
            }
            ready!(sleep.as_mut().poll(context));
        }
    }
}

impl AsyncWrite for WriteEnd {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(coop::poll_proceed(context));
        let result = ready!(lock(&self.direction).poll_write(context, slices));
        budget.made_progress();
        Poll::Ready(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.direction).close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        lock(&self.direction).close();
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        lock(&self.direction).abandon();
    }
}

type Shared = Arc<Mutex<Direction>>;

fn lock(direction: &Shared) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is on its way from one writer to one reader.
#[derive(Debug)]
struct Direction {
    faults: Faults,
    flights: VecDeque<Flight>,
    /// The sum of what the flights hold; `in_flight <= faults.capacity` and `read + in_flight == written` until the
    /// reader is gone.
    in_flight: usize,
    written: u64,
    read: u64,
    closed: Option<Arrival>,
    is_reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The bytes of one write; `bytes` is never empty.
#[derive(Debug)]
struct Flight {
    arrival: Arrival,
    bytes: VecDeque<u8>,
}

/// When something can be read; at once without latency, which then needs no clock.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    At(Instant),
    Now,
}

impl Arrival {
    /// When it will arrive, if it has not yet.
    fn later(self) -> Option<Instant> {
        match self {
            Arrival::At(instant) if instant > Instant::now() => Some(instant),
            Arrival::At(_) | Arrival::Now => None,
        }
    }
}

/// What a read came to. Only in the last case has it left its waker behind.
enum ReadStep {
    Done(io::Result<()>),
    Arrives(Instant),
    Waits,
}

impl Direction {
    fn new(faults: Faults) -> Self {
        Direction {
            faults,
            flights: VecDeque::new(),
            in_flight: 0,
            written: 0,
            read: 0,
            closed: None,
            is_reader_gone: false,
            reader: None,
            writer: None,
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> ReadStep {
        let mut room = buffer.remaining() as u64;
        if let Some((after, cut)) = self.faults.cut {
            if self.read >= after {
                return ReadStep::Done(cut.read());
            }
            room = room.min(after - self.read);
        }
        if let Some(stall) = &self.faults.read_stall {
            match stall.poll_room(self.read, context) {
                Poll::Ready(before_stall) => room = room.min(before_stall),
                Poll::Pending => return ReadStep::Waits,
            }
        }
        let Some(arrival) = self.flights.front().map(|flight| flight.arrival).or(self.closed) else {
            self.reader = Some(context.waker().clone());
            return ReadStep::Waits;
        };
        if let Some(instant) = arrival.later() {
            return ReadStep::Arrives(instant);
        }
        if !self.flights.is_empty() {
            let room = room.min(self.faults.read_chunks.draw() as u64) as usize;
            self.deliver(room, buffer);
        }
        ReadStep::Done(Ok(()))
    }

    /// Moves up to `room` bytes of what has arrived into the buffer.
    fn deliver(&mut self, room: usize, buffer: &mut ReadBuf<'_>) {
        let mut left = room;
        while left > 0 {
            let Some(flight) = self.flights.front_mut() else { break };
            if flight.arrival.later().is_some() {
                break;
            }
            let (head, _) = flight.bytes.as_slices();
            let size = head.len().min(left);
            buffer.put_slice(&head[..size]);
            drop(flight.bytes.drain(..size));
            if flight.bytes.is_empty() {
                self.flights.pop_front();
            }
            left -= size;
        }
        self.in_flight -= room - left;
        self.read += (room - left) as u64;
        wake(&mut self.writer);
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.is_reader_gone || self.closed.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut room = slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        if room == 0 {
            return Poll::Ready(Ok(0));
        }
        if let Some((after, cut)) = self.faults.cut {
            if self.written >= after {
                return Poll::Ready(Err(cut.write_error()));
            }
            room = room.min(after - self.written);
        }
        if let Some(stall) = &self.faults.write_stall {
            // A reader that goes away must be noticed here too.
            self.writer = Some(context.waker().clone());
            room = room.min(ready!(stall.poll_room(self.written, context)));
        }
        room = room.min((self.faults.capacity - self.in_flight) as u64);
        if room == 0 {
            self.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let size = room.min(self.faults.write_chunks.draw() as u64) as usize;
        let bytes: VecDeque<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(size).collect();
        self.flights.push_back(Flight { arrival: self.arrival(), bytes });
        self.in_flight += size;
        self.written += size as u64;
        wake(&mut self.reader);
        Poll::Ready(Ok(size))
    }

    /// Ends the direction for its writer; what is in flight still arrives.
    fn close(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(self.arrival());
            wake(&mut self.reader);
        }
    }

    /// Ends the direction for its reader; what is in flight is lost.
    fn abandon(&mut self) {
        self.is_reader_gone = true;
        self.flights = VecDeque::new();
        self.in_flight = 0;
        wake(&mut self.writer);
    }

    /// When what is written now arrives.
    fn arrival(&self) -> Arrival {
        if self.faults.latency.is_zero() { Arrival::Now } else { Arrival::At(Instant::now() + self.faults.latency) }
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
