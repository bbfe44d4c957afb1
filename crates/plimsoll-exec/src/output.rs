//! What a process writes, on its way to the client: in order, numbered, and lossless.
//!
//! A chunk is read only when the one before has a place in the outgoing queue, so a client that does not read holds the
//! process back and nothing is dropped. One count numbers output, exit and close of a process.
//!
//! When the process has ended, what it wrote is still in the pipe, and the pipe stays open as long as anything it
//! started holds it. So reading goes on to the end of the pipe, or for `grace`; what was in the pipe at the end of the
//! process is delivered in any case, for a pipe holds no more than its capacity. What others write after that is read,
//! counted and discarded, so that they are not stopped by it.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use plimsoll::{CallError, Peer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::leader::Exit;
use crate::wire::{self, ClosedParams, ExitedAdditions, ExitedParams, OutputParams, Stream};

/// Bytes read from a pipe at once, as the reference.
const CHUNK_BYTES: usize = 8 * 1024;
/// How long to wait before trying again when the budget has no room for a chunk.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(20);

/// The numbered stream of one process's notifications.
#[derive(Debug)]
pub(crate) struct Output {
    process_id: String,
    peer: Peer,
    // The seq of the last notification, and of the last with output. Held while one is queued, so the order is theirs.
    seq: Mutex<Seq>,
    open_pipes: AtomicU64,
}

#[derive(Debug, Default)]
struct Seq {
    last: u64,
    last_output: u64,
}

/// The connection is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Output {
    /// For a process with `pipes` pipes.
    pub(crate) fn new(process_id: String, peer: Peer, pipes: u64) -> Self {
        Self { process_id, peer, seq: Mutex::default(), open_pipes: AtomicU64::new(pipes) }
    }

    async fn chunk(&self, stream: Stream, bytes: &[u8]) -> Result<(), Gone> {
        let mut seq = self.seq.lock().await;
        let output = OutputParams {
            process_id: self.process_id.clone(),
            seq: seq.last + 1,
            stream,
            chunk: bytes.to_vec().into(),
        };
        self.notify(wire::PROCESS_OUTPUT, &output).await?;
        seq.last += 1;
        seq.last_output = seq.last;
        Ok(())
    }

    /// The process has ended; output may still follow.
    pub(crate) async fn exited(&self, exit: Exit) -> Result<(), Gone> {
        let mut seq = self.seq.lock().await;
        let last_output_seq = (self.open_pipes.load(Ordering::Acquire) == 0).then_some(seq.last_output);
        let additions = ExitedAdditions { signal: exit.signal, last_output_seq };
        let exited = ExitedParams {
            process_id: self.process_id.clone(),
            seq: seq.last + 1,
            exit_code: exit.code,
            sandbox_denied: false,
            plimsoll: (additions != ExitedAdditions::default()).then_some(additions),
        };
        self.notify(wire::PROCESS_EXITED, &exited).await?;
        seq.last += 1;
        Ok(())
    }

    /// Nothing comes after this.
    pub(crate) async fn closed(&self) -> Result<(), Gone> {
        let mut seq = self.seq.lock().await;
        let closed = ClosedParams { process_id: self.process_id.clone(), seq: seq.last + 1 };
        self.notify(wire::PROCESS_CLOSED, &closed).await?;
        seq.last += 1;
        Ok(())
    }

    async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Gone> {
        loop {
            match self.peer.notify(method, params).await {
                Ok(()) => return Ok(()),
                // Nothing may be lost, so it waits: other connections will give room back.
                Err(CallError::Refused(_)) if self.peer.is_open() => tokio::time::sleep(NO_ROOM_PAUSE).await,
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Delivers what comes out of `pipe` to its end, or as far as the module's documentation says once `ended` holds the
    /// instant at which the process ended. Returns a pipe that others still hold.
    pub(crate) async fn pump<P>(
        &self,
        stream: Stream,
        mut pipe: P,
        mut ended: watch::Receiver<Option<Instant>>,
        grace: Option<Duration>,
    ) -> Option<P>
    where
        P: AsyncRead + AsFd + Unpin,
    {
        let mut buffer = vec![0; CHUNK_BYTES];
        let capacity = rustix::pipe::fcntl_getpipe_size(&pipe).unwrap_or(1024 * 1024);
        // Bytes read since the process had ended: the pipe held at most `capacity` of its own then.
        let mut since = 0;
        let rest = loop {
            let over = ended.borrow().is_some_and(|ended| grace.is_some_and(|grace| ended.elapsed() >= grace));
            let read = if over {
                if since >= capacity {
                    break Some(pipe);
                }
                match read_now(&mut pipe, &mut buffer).await {
                    Some(read) => read,
                    None => break Some(pipe),
                }
            } else {
                tokio::select! {
                    biased;
                    read = pipe.read(&mut buffer) => read,
                    () = until_over(&mut ended, grace) => continue,
                }
            };
            match read {
                Ok(read @ 1..) => {
                    if ended.borrow().is_some() {
                        since += read;
                    }
                    if self.chunk(stream, &buffer[..read]).await.is_err() {
                        break None;
                    }
                }
                Ok(0) | Err(_) => break None,
            }
        };
        self.open_pipes.fetch_sub(1, Ordering::AcqRel);
        rest
    }
}

/// Waits until the process has ended and its grace is over.
async fn until_over(ended: &mut watch::Receiver<Option<Instant>>, grace: Option<Duration>) {
    let at = match ended.wait_for(Option::is_some).await {
        Ok(ended) => *ended,
        Err(_) => None,
    };
    match (at, grace) {
        (Some(at), Some(grace)) => tokio::time::sleep_until(at + grace).await,
        _ => std::future::pending().await,
    }
}

/// What can be read without waiting; `None` when that is nothing.
async fn read_now(pipe: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> Option<std::io::Result<usize>> {
    poll_fn(|cx| {
        let mut buffer = ReadBuf::new(buffer);
        Poll::Ready(match Pin::new(&mut *pipe).poll_read(cx, &mut buffer) {
            Poll::Ready(result) => Some(result.map(|()| buffer.filled().len())),
            Poll::Pending => None,
        })
    })
    .await
}

/// Reads what others write into a pipe after its process was closed, and counts it.
pub(crate) async fn discard(mut pipe: impl AsyncRead + Unpin, discarded: &AtomicU64) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        discarded.fetch_add(read as u64, Ordering::Relaxed);
    }
}
