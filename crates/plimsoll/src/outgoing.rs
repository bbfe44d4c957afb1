//! Messages on their way out: serialised into charged memory, queued within `outgoing_bytes`, written in order.
//!
//! One lane goes ahead of the queue: error replies to refused requests. What is kept of them is the id and the reason;
//! their text is made when they are written. Nothing is sent into the middle of a message. A peer that does not read
//! makes senders wait, and after `stall_deadline` without one byte of progress the connection ends.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;

use plimsoll_core::{
    Bound, Budget, Charge, Deadline, Dialect, Id, Limits, NoRoom, Reason, Refusal, frame_line, render_refusal,
};
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{CallError, CloseReason, RpcError};
use crate::in_flight::InFlight;
use crate::peer::over_time;
use crate::queue::{ByteQueue, Closed, Queued};

/// A message as it is written: framed, charged, and the request it answers, which is in flight until it is written.
#[derive(Debug)]
pub(crate) struct OutFrame {
    bytes: Vec<u8>,
    _charge: Option<Charge>,
    _answers: Option<InFlight>,
}

/// What goes ahead of the queue.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// A request was refused before a handler saw it.
    Refused { id: Option<Id>, code: i64, refusal: Refusal },
    /// A handler ended without an answer, or the method does not exist.
    Error { id: Id, error: RpcError },
}

impl Urgent {
    fn bytes(&self) -> usize {
        const FIXED: usize = 256;
        match self {
            Self::Refused { id, .. } => FIXED + id.as_ref().map_or(0, |id| id.heap_bytes() as usize),
            Self::Error { id, error } => FIXED + id.heap_bytes() as usize + error.message.len(),
        }
    }
}

/// Room for replies to refused requests, in bytes.
const URGENT_BYTES: u64 = 64 * 1024;
/// At most this many frames, or about this many bytes, are handed to one write.
const BATCH_FRAMES: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;

/// The two lanes out of one connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    dialect: Dialect,
    budget: Budget,
    queue: ByteQueue<OutFrame>,
    urgent: ByteQueue<Urgent>,
}

impl Outgoing {
    pub(crate) fn new(limits: &Limits, dialect: Dialect, budget: &Budget) -> Self {
        Self {
            dialect,
            budget: budget.clone(),
            queue: ByteQueue::new(limits.outgoing_bytes()),
            urgent: ByteQueue::new(Bound::at_most(URGENT_BYTES)),
        }
    }

    /// Queues a call; waits for room.
    pub(crate) async fn call<P>(&self, id: i64, method: &str, params: &P) -> Result<(), SendError>
    where
        P: Serialize + ?Sized,
    {
        let mut text = Text::begin(self.dialect, &self.budget)?;
        text.put(format_args!("\"id\":{id},"))?;
        self.method(text, method, params).await
    }

    /// Queues a notification; waits for room.
    pub(crate) async fn notify<P>(&self, method: &str, params: &P) -> Result<(), SendError>
    where
        P: Serialize + ?Sized,
    {
        self.method(Text::begin(self.dialect, &self.budget)?, method, params).await
    }

    async fn method<P>(&self, mut text: Text, method: &str, params: &P) -> Result<(), SendError>
    where
        P: Serialize + ?Sized,
    {
        text.put("\"method\":")?;
        text.json(method)?;
        let before = text.bytes.len();
        text.put(",\"params\":")?;
        text.json(params)?;
        if text.bytes.ends_with(b":null") && text.bytes.len() == before + ",\"params\":null".len() {
            // JSON-RPC 2.0 section 4.2: params are an array or an object, or left out.
            text.bytes.truncate(before);
        }
        self.send(text, None).await
    }

    /// Queues the answer to a request; waits for room. On an error that leaves the request unanswered, gives it back.
    pub(crate) async fn result<R>(&self, answers: InFlight, result: &R) -> Result<(), (SendError, InFlight)>
    where
        R: Serialize + ?Sized,
    {
        let text = Text::begin(self.dialect, &self.budget).and_then(|mut text| {
            text.put(format_args!("\"id\":{},\"result\":", answers.id().as_json()))?;
            text.json(result)?;
            Ok(text)
        });
        self.reply(text, answers).await
    }

    /// Queues an error as the answer to a request, likewise.
    pub(crate) async fn error(&self, answers: InFlight, error: &RpcError) -> Result<(), (SendError, InFlight)> {
        let text = Text::begin(self.dialect, &self.budget).and_then(|mut text| {
            text.error(answers.id(), error)?;
            Ok(text)
        });
        self.reply(text, answers).await
    }

    async fn reply(&self, text: Result<Text, SendError>, answers: InFlight) -> Result<(), (SendError, InFlight)> {
        match text {
            Ok(text) => self.send(text, Some(answers)).await.map_err(|error| (error, InFlight::none())),
            Err(error) => Err((error, answers)),
        }
    }

    /// Sends an error reply ahead of the queue; waits for room among its like.
    pub(crate) async fn urgent(&self, urgent: Urgent) -> Result<(), Closed> {
        let bytes = urgent.bytes();
        self.urgent.push(urgent, bytes).await
    }

    /// The same without waiting, for a request that was in flight: their number is bounded.
    pub(crate) fn urgent_now(&self, urgent: Urgent) -> Result<(), Closed> {
        self.urgent.queue(urgent, None)
    }

    /// Nothing more is queued; what is queued will be written.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.urgent.close();
    }

    async fn send(&self, mut text: Text, answers: Option<InFlight>) -> Result<(), SendError> {
        text.put("}")?;
        frame_line(&mut text.bytes);
        let bytes = text.bytes.len();
        let frame = OutFrame { bytes: text.bytes, _charge: Some(text.charge), _answers: answers };
        self.queue.push(frame, bytes).await.map_err(|Closed| SendError::Closed)
    }

    fn render(&self, urgent: &Urgent) -> Vec<u8> {
        let mut line = match urgent {
            Urgent::Refused { id, code, refusal } => render_refusal(self.dialect, id.as_ref(), *code, refusal),
            Urgent::Error { id, error } => {
                // Paid from the room of this lane; the connection's own may be full.
                let text = Text::begin(self.dialect, &Budget::new(Bound::Unbounded)).and_then(|mut text| {
                    text.error(id, error)?;
                    text.put("}")?;
                    Ok(text)
                });
                text.map_or_else(|_| Vec::new(), |text| text.bytes)
            }
        };
        frame_line(&mut line);
        line
    }

    /// Writes what is queued, until the queue is closed and empty.
    pub(crate) async fn write<W: AsyncWrite + Unpin>(&self, mut writer: W, stall: Deadline) -> Result<(), CloseReason> {
        let mut batch = Vec::new();
        loop {
            if !self.fill(&mut batch).await {
                break;
            }
            write_batch(&mut writer, &batch, stall).await?;
            batch.clear();
            if self.queue.is_empty() && self.urgent.is_empty() {
                within(stall, writer.flush()).await?;
            }
        }
        within(stall, writer.shutdown()).await
    }

    /// Waits for something to write and takes as much as one write should; `false` when nothing will come.
    async fn fill(&self, batch: &mut Vec<Queued<OutFrame>>) -> bool {
        loop {
            let mut bytes = 0;
            while let Some(urgent) = self.urgent.try_pop() {
                let line = self.render(&urgent.item);
                bytes += line.len();
                batch.push(urgent.replace(OutFrame { bytes: line, _charge: None, _answers: None }));
                if batch.len() == BATCH_FRAMES {
                    return true;
                }
            }
            while batch.len() < BATCH_FRAMES && bytes < BATCH_BYTES {
                let Some(frame) = self.queue.try_pop() else { break };
                bytes += frame.item.bytes.len();
                batch.push(frame);
            }
            if !batch.is_empty() {
                return true;
            }
            if self.queue.is_closed() {
                return false;
            }
            tokio::select! {
                () = self.queue.ready() => {}
                () = self.urgent.ready() => {}
            }
        }
    }
}

async fn write_batch<W>(writer: &mut W, batch: &[Queued<OutFrame>], stall: Deadline) -> Result<(), CloseReason>
where
    W: AsyncWrite + Unpin,
{
    // The first `done` frames are written, and `part` bytes of the next: part < batch[done].len().
    let (mut done, mut part) = (0, 0);
    while done < batch.len() {
        let mut slices = [IoSlice::new(&[]); BATCH_FRAMES];
        for (slice, (index, frame)) in slices.iter_mut().zip(batch.iter().enumerate().skip(done)) {
            *slice = IoSlice::new(&frame.item.bytes[if index == done { part } else { 0 }..]);
        }
        let slices = &slices[..batch.len() - done];
        let mut written = within(stall, poll_fn(|cx| Pin::new(&mut *writer).poll_write_vectored(cx, slices))).await?;
        if written == 0 {
            return Err(CloseReason::Io { operation: "writing", kind: io::ErrorKind::WriteZero });
        }
        while let Some(frame) = batch.get(done) {
            let rest = frame.item.bytes.len() - part;
            if written < rest {
                part += written;
                break;
            }
            written -= rest;
            (done, part) = (done + 1, 0);
        }
    }
    Ok(())
}

async fn within<T>(stall: Deadline, io: impl Future<Output = io::Result<T>>) -> Result<T, CloseReason> {
    let result = match stall {
        Deadline::Never => io.await,
        Deadline::After(span) => match tokio::time::timeout(span, io).await {
            Ok(result) => result,
            Err(_) => return Err(CloseReason::Refused(over_time(Reason::StallDeadline, span))),
        },
    };
    result.map_err(|error| CloseReason::Io { operation: "writing", kind: error.kind() })
}

/// Why something could not be queued.
#[derive(Debug)]
pub(crate) enum SendError {
    Closed,
    NoRoom(NoRoom),
    Serialize(String),
}

impl SendError {
    /// As the failure of a call on a connection that would have ended for `reason`.
    pub(crate) fn into_call_error(self, reason: impl FnOnce() -> CloseReason) -> CallError {
        match self {
            Self::Closed => CallError::Closed(reason()),
            Self::NoRoom(no_room) => no_room.into(),
            Self::Serialize(text) => CallError::Params(text),
        }
    }
}

/// JSON text that grows in charged memory.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    // charge.bytes() >= bytes.capacity()
    charge: Charge,
    no_room: Option<NoRoom>,
}

impl Text {
    /// The first allocation; most messages fit into it.
    const FIRST: usize = 256;

    /// A message's opening brace, and `jsonrpc` where the dialect has it.
    fn begin(dialect: Dialect, budget: &Budget) -> Result<Self, SendError> {
        let mut text = Self { bytes: Vec::new(), charge: budget.empty_charge(), no_room: None };
        text.put(if dialect == Dialect::Standard { "{\"jsonrpc\":\"2.0\"," } else { "{" })?;
        Ok(text)
    }

    /// The members of an error reply.
    fn error(&mut self, id: &Id, error: &RpcError) -> Result<(), SendError> {
        self.put(format_args!("\"id\":{},\"error\":{{\"code\":{},\"message\":", id.as_json(), error.code))?;
        self.json(&error.message)?;
        if let Some(data) = &error.data {
            self.put(",\"data\":")?;
            self.json(data)?;
        }
        self.put("}")
    }

    fn put(&mut self, text: impl std::fmt::Display) -> Result<(), SendError> {
        match io::Write::write_fmt(self, format_args!("{text}")) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SendError> {
        match serde_json::to_writer(&mut *self, value) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn failed(&mut self, text: String) -> SendError {
        match self.no_room.take() {
            Some(no_room) => SendError::NoRoom(no_room),
            None => SendError::Serialize(text),
        }
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One byte stays free for the newline.
        let wanted = self.bytes.len() + bytes.len() + 1;
        let old = self.bytes.capacity();
        if wanted > old {
            let new = wanted.max(old * 2).max(Self::FIRST);
            if let Err(no_room) = self.charge.try_grow(new as u64) {
                self.no_room = Some(no_room);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bytes.reserve_exact(new - self.bytes.len());
            self.charge.shrink(old as u64);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
