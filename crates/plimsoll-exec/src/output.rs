//! What a process writes, on its way to the client: in order, numbered, and lossless.
//!
//! A chunk is read only when the one before has a place in the outgoing queue, so a client that does not read holds the
//! process back and nothing is dropped. One count numbers output, exit and close of a process.
//!
//! When the process has ended, what it wrote is still in the pipe, and the pipe stays open as long as anything it
//! started holds it. So reading goes on to the end of the pipe, or for `grace`; what was in the pipe at the end of the
//! process is counted then and delivered in any case. What others write after that is read, counted and discarded, so
//! that they are not stopped by it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::{CallError, Peer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};
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
        // What the pipe held of the process's own when that had ended, as far as it is not read yet.
        let mut owed: Option<u64> = None;
        let rest = loop {
            let ended_at = *ended.borrow();
            if ended_at.is_some() && owed.is_none() {
                owed = Some(rustix::io::ioctl_fionread(&pipe).unwrap_or(0));
            }
            let over = ended_at.is_some_and(|ended| grace.is_some_and(|grace| ended.elapsed() >= grace));
            let read = match owed {
                Some(0) if over => break Some(pipe),
                // It is there, so this does not wait.
                Some(owed) if over => pipe.read(&mut buffer[..CHUNK_BYTES.min(owed as usize)]).await,
                _ => tokio::select! {
                    biased;
                    read = pipe.read(&mut buffer) => read,
                    () = ended_or_over(&mut ended, owed.is_some(), grace) => continue,
                },
            };
            match read {
                Ok(read @ 1..) => {
                    owed = owed.map(|owed| owed.saturating_sub(read as u64));
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

/// Waits until the process has ended or, when that is known, until its grace is over.
async fn ended_or_over(ended: &mut watch::Receiver<Option<Instant>>, is_known: bool, grace: Option<Duration>) {
    let at = match ended.wait_for(Option::is_some).await {
        Ok(ended) => *ended,
        Err(_) => None,
    };
    if at.is_some() && !is_known {
        return;
    }
    match at.and_then(|at| at.checked_add(grace?)) {
        Some(over) => tokio::time::sleep_until(over).await,
        None => std::future::pending().await,
    }
}

/// Reads what others write into a pipe after its process was closed, and counts it.
pub(crate) async fn discard(mut pipe: impl AsyncRead + Unpin, discarded: &AtomicU64) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        discarded.fetch_add(read as u64, Ordering::Relaxed);
    }
}
