//! The standard input of one process: writes in the order received, within `stdin_bytes`.
//!
//! A write is queued whole or not at all. One that finds no room waits `write_wait` and is then refused, retryable; what
//! came after it waits behind it, and other calls go on. A write that comes again under its id is not written again.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll::{Budget, Charge, Limits, Reason, Refusal, Responder, RpcError};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::wire::{Empty, WriteResult, WriteStatus};

/// What a client asked of a standard input.
#[derive(Debug)]
pub(crate) enum Command {
    Close { responder: Responder },
    Write { bytes: Vec<u8>, charge: Charge, write_id: String, responder: Responder, since: Instant },
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Stdin {
    // In the order received; `None` once the process has ended. Each is a request in flight, so their number is bounded.
    commands: Mutex<Option<VecDeque<Command>>>,
    changed: Notify,
    // One permit a byte, and `WRITE_BYTES` a write.
    room: Arc<Semaphore>,
    capacity: u32,
    // `None` once the process has ended.
    ids: Mutex<Option<WriteIds>>,
    ended: CancellationToken,
    limits: Limits,
}

/// What a queued write costs beside its bytes.
const WRITE_BYTES: usize = 64;

impl Stdin {
    pub(crate) fn new(limits: &Limits, budget: &Budget) -> Self {
        let capacity = u32::try_from(limits.stdin_bytes().ceiling()).unwrap_or(u32::MAX / 2).min(u32::MAX / 2);
        Self {
            commands: Mutex::new(Some(VecDeque::new())),
            changed: Notify::new(),
            room: Arc::new(Semaphore::new(capacity as usize)),
            capacity,
            ids: Mutex::new(Some(WriteIds::new(limits.write_ids().ceiling(), budget))),
            ended: CancellationToken::new(),
            limits: limits.clone(),
        }
    }

    /// Takes a command in its turn. Does not wait.
    pub(crate) fn push(&self, command: Command) -> Result<(), Box<Command>> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        match commands.as_mut() {
            Some(commands) => commands.push_back(command),
            None => return Err(Box::new(command)),
        }
        self.changed.notify_one();
        Ok(())
    }

    /// The process has ended: nothing can be written any more, and what waits is told.
    pub(crate) fn end(&self) {
        let waiting = self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(self.ids.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.ended.cancel();
        self.room.close();
        self.changed.notify_one();
        for command in waiting.into_iter().flatten() {
            tokio::spawn(command.answer(WriteStatus::StdinClosed));
        }
    }

    async fn next(&self) -> Option<Command> {
        loop {
            match self.commands.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                Some(commands) => {
                    if let Some(command) = commands.pop_front() {
                        return Some(command);
                    }
                }
                None => return None,
            }
            self.changed.notified().await;
        }
    }

    /// Serves commands until the process has ended. Without a pipe, standard input is closed from the start.
    pub(crate) async fn serve(&self, pipe: Option<ChildStdin>) {
        // Room is counted in bytes, so this many writes at the most are queued.
        let most = self.capacity as usize / WRITE_BYTES + 1;
        let (sender, receiver) = mpsc::channel(most);
        let writing = async {
            if let Some(pipe) = pipe {
                self.write(pipe, receiver).await;
            } else {
                drop(receiver);
                self.room.close();
            }
        };
        let taking = async {
            let mut sender = Some(sender);
            while let Some(command) = self.next().await {
                match command {
                    Command::Close { responder } => {
                        // The pipe closes when what was accepted is written.
                        sender = None;
                        responder.respond(Ok(Empty {})).await;
                    }
                    Command::Write { bytes, charge, write_id, responder, since } => {
                        let outcome = self.accept(sender.as_ref(), bytes, charge, &write_id, since).await;
                        responder.respond(outcome.map(|status| WriteResult { status })).await;
                    }
                }
            }
        };
        tokio::join!(writing, taking);
    }

    async fn accept(
        &self,
        sender: Option<&mpsc::Sender<Piece>>,
        bytes: Vec<u8>,
        charge: Charge,
        write_id: &str,
        since: Instant,
    ) -> Result<WriteStatus, RpcError> {
        let seen = |ids: &WriteIds| ids.contains(write_id);
        if self.ids.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(seen) {
            return Ok(WriteStatus::Accepted);
        }
        let Some(sender) = sender else { return Ok(WriteStatus::StdinClosed) };
        let permits = u32::try_from(bytes.len() + WRITE_BYTES).unwrap_or(u32::MAX).min(self.capacity);
        let room = self.room.clone().acquire_many_owned(permits);
        let until = self.limits.write_wait().span().and_then(|span| Some((span, since.checked_add(span)?)));
        let room = match until {
            Some((span, until)) => match tokio::time::timeout_at(until, room).await {
                Ok(room) => room,
                Err(_) => {
                    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                    return Err(RpcError::no_room(&Refusal::over(Reason::WriteWait, millis, millis)));
                }
            },
            None => room.await,
        };
        let Ok(room) = room else { return Ok(WriteStatus::StdinClosed) };
        if sender.try_send(Piece { bytes, _room: room, _charge: charge }).is_err() {
            return Ok(WriteStatus::StdinClosed);
        }
        if let Some(ids) = self.ids.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            ids.remember(write_id);
        }
        Ok(WriteStatus::Accepted)
    }

    async fn write(&self, mut pipe: ChildStdin, mut pieces: mpsc::Receiver<Piece>) {
        while let Some(piece) = pieces.recv().await {
            let written = tokio::select! {
                written = pipe.write_all(&piece.bytes) => written.is_ok(),
                () = self.ended.cancelled() => false,
            };
            if !written {
                // The process closed its end, or is gone: who waits for room is told.
                self.room.close();
                return;
            }
        }
    }
}

/// A write that was accepted.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
    _charge: Charge,
}

impl Command {
    /// Answers without doing anything.
    pub(crate) async fn answer(self, status: WriteStatus) {
        match self {
            Self::Close { responder } => responder.respond(Ok(Empty {})).await,
            Self::Write { responder, .. } => responder.respond(Ok(WriteResult { status })).await,
        }
    }
}

/// The writes accepted last, by a keyed hash of their ids: 8 bytes each, whatever a client calls them.
#[derive(Debug)]
struct WriteIds {
    most: u64,
    hasher: RandomState,
    // The oldest first; at most `most`.
    seen: VecDeque<u64>,
    // charge.bytes() >= ID_BYTES * seen.len()
    charge: Charge,
}

/// What a remembered id costs: its place in a list that has just doubled, old and new.
const ID_BYTES: u64 = 24;

impl WriteIds {
    fn new(most: u64, budget: &Budget) -> Self {
        Self { most, hasher: RandomState::new(), seen: VecDeque::new(), charge: budget.empty_charge() }
    }

    fn contains(&self, id: &str) -> bool {
        self.seen.contains(&self.hasher.hash_one(id))
    }

    /// Remembers it; where there is no room for one more, the oldest is forgotten for it.
    fn remember(&mut self, id: &str) {
        let is_full = self.seen.len() as u64 >= self.most || self.charge.try_grow(ID_BYTES).is_err();
        if is_full && self.seen.pop_front().is_none() {
            return;
        }
        self.seen.push_back(self.hasher.hash_one(id));
    }
}
