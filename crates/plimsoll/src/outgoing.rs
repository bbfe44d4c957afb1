//! Messages on their way out: serialised into charged memory, queued within `outgoing_bytes`, written in order.
//!
//! One lane goes ahead of the queue: error replies to refused requests. What is kept of them is the id and the reason;
//! their text is made when they are written. Nothing is sent into the middle of a message. A peer that does not read
//! makes senders wait, and after `stall_deadline` without one byte of progress the connection ends.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;

use plimsoll_core::{
    Bound, Budget, Charge, Deadline, Dialect, Id, Limits, NoRoom, Reason, Refusal, frame_line, render_refusal,
};
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::error::{CallError, CloseReason, RpcError};
use crate::in_flight::InFlight;
use crate::peer::over_time;
use crate::queue::{ByteQueue, Closed, Queued, Room};

/// A message as it is written: framed, charged, and what waits for it.
#[derive(Debug)]
pub(crate) struct OutFrame {
    bytes: Vec<u8>,
    /// The call that it makes.
    call: Option<i64>,
    _charge: Option<Charge>,
    /// The request that it answers, which is in flight until it is written.
    _answers: Option<InFlight>,
}

/// What goes ahead of the queue.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// A request was refused before a handler saw it.
    Refused { id: Option<Id>, code: i64, refusal: Refusal },
    /// A handler ended without an answer, or the method does not exist. Bounded by the number of requests in flight,
    /// of which this is one until it is written.
    Error { id: Id, error: RpcError, answers: Option<InFlight> },
}

impl Urgent {
    fn bytes(&self) -> usize {
        const FIXED: usize = 256 + ByteQueue::<Urgent>::PLACE;
        match self {
            Self::Refused { id, .. } => FIXED + id.as_ref().map_or(0, |id| id.heap_bytes() as usize),
            Self::Error { id, error, .. } => FIXED + id.heap_bytes() as usize + error.message.len(),
        }
    }
}

/// Why writing ended before its time, and the calls that were not written.
#[derive(Debug)]
pub(crate) struct WriteFailed {
    pub(crate) reason: CloseReason,
    pub(crate) unsent: Vec<i64>,
}

/// Room for replies to refused requests, in bytes.
const URGENT_BYTES: u64 = 64 * 1024;
/// At most this many frames, or about this many bytes, are handed to one write.
const BATCH_FRAMES: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;
/// Of which so many may go ahead of the queue, so that it moves even when the peer sends nothing but refused requests.
const BATCH_URGENT: usize = BATCH_FRAMES / 2;

/// The two lanes out of one connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    dialect: Dialect,
    budget: Budget,
    queue: ByteQueue<OutFrame>,
    urgent: ByteQueue<Urgent>,
    // Held from before a message is serialised until it has room in the queue: so one text at most waits beside it.
    serialising: Mutex<()>,
}

impl Outgoing {
    pub(crate) fn new(limits: &Limits, dialect: Dialect, budget: &Budget) -> Self {
        Self {
            dialect,
            budget: budget.clone(),
            queue: ByteQueue::new(limits.outgoing_bytes()),
            urgent: ByteQueue::new(Bound::at_most(URGENT_BYTES)),
            serialising: Mutex::new(()),
        }
    }

    /// Queues a call; waits for room.
    pub(crate) async fn call<P>(&self, id: i64, method: &str, params: &P) -> Result<(), SendError>
    where
        P: Serialize + ?Sized,
    {
        let text = |text: &mut Text| {
            text.put(format_args!("\"id\":{id},"))?;
            text.method(method, params)
        };
        let (text, room) = self.serialised(text).await?;
        Ok(self.queue.queue(text.into_frame(Some(id), None), Some(room))?)
    }

    /// Queues a notification; waits for room.
    pub(crate) async fn notify<P>(&self, method: &str, params: &P) -> Result<(), SendError>
    where
        P: Serialize + ?Sized,
    {
        let (text, room) = self.serialised(|text| text.method(method, params)).await?;
        Ok(self.queue.queue(text.into_frame(None, None), Some(room))?)
    }

    /// Queues the answer to a request; waits for room. The request stays with the caller until it has its answer.
    pub(crate) async fn result<R>(&self, answers: &mut InFlight, result: &R) -> Result<(), SendError>
    where
        R: Serialize + ?Sized,
    {
        let id = answers.id();
        let text = |text: &mut Text| {
            text.put(format_args!("\"id\":{},\"result\":", id.as_json()))?;
            text.json(result)
        };
        let (text, room) = self.serialised(text).await?;
        self.answer(answers, text, room)
    }

    /// Queues an error as the answer to a request, likewise.
    pub(crate) async fn error(&self, answers: &mut InFlight, error: &RpcError) -> Result<(), SendError> {
        let id = answers.id();
        let (text, room) = self.serialised(|text| text.error(id, error)).await?;
        self.answer(answers, text, room)
    }

    fn answer(&self, answers: &mut InFlight, text: Text, room: Room) -> Result<(), SendError> {
        match answers.claim() {
            Some(answers) => Ok(self.queue.queue(text.into_frame(None, Some(answers)), Some(room))?),
            None => Ok(()),
        }
    }

    /// A message and room for it. When the budget has no room, waits until what is queued was written and tries once
    /// more.
    async fn serialised(
        &self,
        members: impl Fn(&mut Text) -> Result<(), SendError>,
    ) -> Result<(Text, Room), SendError> {
        let _turn = self.serialising.lock().await;
        let text = match Text::of(self.dialect, &self.budget, &members) {
            Err(SendError::NoRoom(_)) => {
                drop(self.queue.reserve(usize::MAX).await?);
                Text::of(self.dialect, &self.budget, &members)?
            }
            text => text?,
        };
        let bytes = usize::try_from(text.charge.bytes()).unwrap_or(usize::MAX);
        let room = self.queue.reserve(bytes).await?;
        Ok((text, room))
    }

    /// Sends an error reply ahead of the queue; waits for room among its like.
    pub(crate) async fn urgent(&self, urgent: Urgent) -> Result<(), Closed> {
        let room = self.urgent.reserve(urgent.bytes()).await?;
        self.urgent.queue(urgent, Some(room))
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

    /// Nothing more is queued, and what is queued is dropped. Returns the calls among it.
    pub(crate) fn discard(&self) -> Vec<i64> {
        drop(self.urgent.close_and_take());
        self.queue.close_and_take().iter().filter_map(|frame| frame.item.call).collect()
    }

    fn render(&self, urgent: &Urgent) -> Vec<u8> {
        let mut line = match urgent {
            Urgent::Refused { id, code, refusal } => render_refusal(self.dialect, id.as_ref(), *code, refusal),
            Urgent::Error { id, error, .. } => {
                // Paid from the room of this lane; the connection's own may be full.
                let text = Text::of(self.dialect, &Budget::new(Bound::Unbounded), |text| text.error(id, error));
                text.map_or_else(|_| Vec::new(), |text| text.bytes)
            }
        };
        frame_line(&mut line);
        line
    }

    /// Writes what is queued, until the queue is closed and empty. Once it has failed nothing more is queued.
    pub(crate) async fn write<W: AsyncWrite + Unpin>(&self, writer: W, stall: Deadline) -> Result<(), WriteFailed> {
        let mut batch = VecDeque::new();
        self.write_batches(writer, stall, &mut batch).await.map_err(|reason| {
            let mut unsent: Vec<i64> = batch.iter().filter_map(|frame: &Queued<OutFrame>| frame.item.call).collect();
            unsent.extend(self.discard());
            WriteFailed { reason, unsent }
        })
    }

    async fn write_batches<W: AsyncWrite + Unpin>(
        &self,
        mut writer: W,
        stall: Deadline,
        batch: &mut VecDeque<Queued<OutFrame>>,
    ) -> Result<(), CloseReason> {
        while self.fill(batch).await {
            write_batch(&mut writer, batch, stall).await?;
            if self.queue.is_empty() && self.urgent.is_empty() {
                within(stall, writer.flush()).await?;
            }
        }
        within(stall, writer.shutdown()).await
    }

    /// Waits for something to write and takes as much as one write should; `false` when nothing will come.
    async fn fill(&self, batch: &mut VecDeque<Queued<OutFrame>>) -> bool {
        loop {
            let mut bytes = 0;
            while batch.len() < BATCH_URGENT {
                let Some(mut urgent) = self.urgent.try_pop() else { break };
                let line = self.render(&urgent.item);
                bytes += line.len();
                let answers = match &mut urgent.item {
                    Urgent::Error { answers, .. } => answers.take(),
                    Urgent::Refused { .. } => None,
                };
                batch.push_back(urgent.replace(OutFrame { bytes: line, call: None, _charge: None, _answers: answers }));
            }
            while batch.len() < BATCH_FRAMES && bytes < BATCH_BYTES {
                let Some(frame) = self.queue.try_pop() else { break };
                bytes += frame.item.bytes.len();
                batch.push_back(frame);
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

/// Writes all of the batch. A frame is dropped as soon as its last byte is written: its request is then no longer in
/// flight, though what is behind it may take long.
async fn write_batch<W>(
    writer: &mut W,
    batch: &mut VecDeque<Queued<OutFrame>>,
    stall: Deadline,
) -> Result<(), CloseReason>
where
    W: AsyncWrite + Unpin,
{
    // Bytes of the first frame that are written; less than its length.
    let mut written = 0;
    while !batch.is_empty() {
        let write = poll_fn(|cx| {
            // Made anew each time, because a waiting connection should be small.
            let mut slices = [IoSlice::new(&[]); BATCH_FRAMES];
            for (index, (slice, frame)) in slices.iter_mut().zip(&*batch).enumerate() {
                *slice = IoSlice::new(&frame.item.bytes[if index == 0 { written } else { 0 }..]);
            }
            Pin::new(&mut *writer).poll_write_vectored(cx, &slices[..batch.len().min(BATCH_FRAMES)])
        });
        let now = within(stall, write).await?;
        if now == 0 {
            return Err(CloseReason::Io { operation: "writing", kind: io::ErrorKind::WriteZero });
        }
        written += now;
        while let Some(first) = batch.front()
            && written >= first.item.bytes.len()
        {
            written -= first.item.bytes.len();
            batch.pop_front();
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
    result.map_err(|error| CloseReason::of_io("writing", error.kind()))
}

/// Why something could not be queued.
#[derive(Debug)]
pub(crate) enum SendError {
    Closed,
    NoRoom(NoRoom),
    Serialize(String),
}

impl From<Closed> for SendError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
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
    // charge.bytes() >= bytes.capacity() + the frame's place in the queue
    charge: Charge,
    no_room: Option<NoRoom>,
}

impl Text {
    /// The first allocation; most messages fit into it.
    const FIRST: usize = 256;

    /// A whole message with these members.
    fn of(
        dialect: Dialect,
        budget: &Budget,
        members: impl Fn(&mut Self) -> Result<(), SendError>,
    ) -> Result<Self, SendError> {
        let charge = budget.try_charge(ByteQueue::<OutFrame>::PLACE as u64).map_err(SendError::NoRoom)?;
        let mut text = Self { bytes: Vec::new(), charge, no_room: None };
        text.put(if dialect == Dialect::Standard { "{\"jsonrpc\":\"2.0\"," } else { "{" })?;
        members(&mut text)?;
        text.put("}")?;
        Ok(text)
    }

    fn into_frame(mut self, call: Option<i64>, answers: Option<InFlight>) -> OutFrame {
        frame_line(&mut self.bytes);
        OutFrame { bytes: self.bytes, call, _charge: Some(self.charge), _answers: answers }
    }

    /// The members of a call or notification.
    fn method<P: Serialize + ?Sized>(&mut self, method: &str, params: &P) -> Result<(), SendError> {
        self.put("\"method\":")?;
        self.json(method)?;
        let before = self.bytes.len();
        self.put(",\"params\":")?;
        self.json(params)?;
        if self.bytes.get(before..) == Some(b",\"params\":null") {
            // JSON-RPC 2.0 section 4.2: params are an array or an object, or left out.
            self.bytes.truncate(before);
        }
        Ok(())
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
