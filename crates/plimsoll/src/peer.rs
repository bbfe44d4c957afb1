//! One end of a connection: it calls, notifies and answers, both directions at once, over any byte stream.
//!
//! A [`Connection`] is the work: a future that reads, routes and writes until the connection ends. A [`Peer`] is the
//! handle: cloned freely, it makes calls and sends notifications. Nothing is spawned behind the caller's back but the
//! handlers, which end with the connection.
//!
//! The end comes in one of these ways, and each settles every call at once with its reason: the peer closes its side
//! (what it sent is answered within `drain`), reading or writing fails, a limit of the connection is passed, or this side
//! closes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_core::{
    Answer, AnswerRules, Budget, Charge, Deadline, Dialect, INTERNAL_ERROR, Kind, Limits, Line, Message, Reason,
    Received, Refusal, Refused, SeenId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::counters::{Counters, Live};
use crate::decode::{decode_body, decode_tree};
use crate::error::{CallError, CloseReason, DecodeError, RpcError};
use crate::in_flight::InFlightTable;
use crate::outgoing::{Outgoing, Urgent, WriteFailed};
use crate::queue::{ByteQueue, Queued};
use crate::receive::LineReceiver;
use crate::router::{Notification, Request, Responder, Router};

/// How a connection is set up.
///
/// ```
/// use plimsoll::{Limits, PeerBuilder, Router};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), plimsoll::CallError> {
/// let (client_end, server_end) = tokio::io::duplex(4096);
/// let router = Router::new().request("add", |_context, (a, b): (i64, i64)| async move { Ok(a + b) });
/// let (reader, writer) = tokio::io::split(server_end);
/// let (_server, connection) = PeerBuilder::new(Limits::default()).router(router).connect(reader, writer);
/// tokio::spawn(connection.run());
///
/// let (reader, writer) = tokio::io::split(client_end);
/// let (client, connection) = PeerBuilder::new(Limits::default()).connect(reader, writer);
/// tokio::spawn(connection.run());
/// let sum: i64 = client.call("add", &(20, 22)).await?;
/// assert_eq!(sum, 42);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PeerBuilder {
    limits: Limits,
    rules: AnswerRules,
    budget: Option<Budget>,
    router: Router,
}

impl PeerBuilder {
    /// A peer with these limits, clamped so that they hold together, that speaks JSON-RPC 2.0 and has no methods.
    pub fn new(mut limits: Limits) -> Self {
        for change in limits.clamp() {
            tracing::warn!("{change}");
        }
        Self { limits, rules: AnswerRules::default(), budget: None, router: Router::new() }
    }

    /// Speaks this dialect.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.rules.dialect = dialect;
        self
    }

    /// Closes the connection rather than losing a notification.
    #[must_use]
    pub fn notifications_are_vital(mut self) -> Self {
        self.rules.notifications_are_vital = true;
        self
    }

    /// Shares the load line of this budget: the process's, of which the connection becomes a leaf. Without one the
    /// connection has a line of its own, [`Limits::memory`].
    #[must_use]
    pub fn budget(mut self, process: &Budget) -> Self {
        self.budget = Some(process.clone());
        self
    }

    /// Answers with these handlers.
    #[must_use]
    pub fn router(mut self, router: Router) -> Self {
        self.router = router;
        self
    }

    /// Makes a peer of a stream of lines. Nothing happens before [`Connection::run`] is polled.
    pub fn connect<R, W>(self, reader: R, writer: W) -> (Peer, Connection<R, W>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let process = self.budget.unwrap_or_else(|| Budget::new(self.limits.memory()));
        let budget = process.child(self.limits.cap());
        let dialect = self.rules.dialect;
        let shared = Arc::new(Shared {
            outgoing: Outgoing::new(&self.limits, dialect, &budget),
            calls: Calls::new(self.limits.pending(), &budget),
            in_flight: Arc::new(InFlightTable::new(self.limits.in_flight(), &budget)),
            notifications: ByteQueue::new(self.limits.notification_bytes()),
            unpaused: Unpaused::default(),
            live: Live::default(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            draining_is_over: AtomicBool::new(false),
            rules: self.rules,
            limits: self.limits,
            budget,
        });
        let receiver = Box::new(LineReceiver::new(reader, &shared.limits, dialect, &shared.budget));
        let peer = Peer { shared };
        let ended = Ended(peer.shared.clone());
        let connection = Connection { peer: peer.clone(), receiver, writer, router: Arc::new(self.router), ended };
        (peer, connection)
    }
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    rules: AnswerRules,
    budget: Budget,
    outgoing: Outgoing,
    calls: Calls,
    in_flight: Arc<InFlightTable>,
    notifications: ByteQueue<(Message, Charge)>,
    unpaused: Unpaused,
    live: Live,
    closing: CancellationToken,
    closed: CancellationToken,
    // Handlers that end without an answer now were aborted.
    draining_is_over: AtomicBool,
}

/// Calls made from within a notification's handler: while one waits for its answer, reading must not pause for the
/// notifications behind it.
#[derive(Debug, Default)]
struct Unpaused {
    calls: AtomicUsize,
    changed: Notify,
}

impl Unpaused {
    fn is_set(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    async fn set(&self) {
        while !self.is_set() {
            self.changed.notified().await;
        }
    }

    fn enter(&self) -> impl Drop + '_ {
        struct Leave<'a>(&'a Unpaused);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.calls.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
        Leave(self)
    }
}

tokio::task_local! {
    static IN_NOTIFICATION: ();
}

/// A handle on one connection.
#[derive(Clone, Debug)]
pub struct Peer {
    shared: Arc<Shared>,
}

impl Peer {
    /// Calls a method and decodes its result. Waits at most [`Limits::call_deadline`].
    ///
    /// # Errors
    ///
    /// [`CallError`] says why there is no result: the peer's error, a limit, or the end of the connection. It never
    /// waits for an answer that cannot come.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up; whether the peer runs it is then unknown.
    pub async fn call<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &(impl Serialize + ?Sized),
    ) -> Result<R, CallError> {
        self.call_within(self.shared.limits.call_deadline(), method, params).await
    }

    /// The same with a deadline of its own.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_within<R: DeserializeOwned>(
        &self,
        deadline: Deadline,
        method: &str,
        params: &(impl Serialize + ?Sized),
    ) -> Result<R, CallError> {
        let call = async {
            let mut waiting = self.shared.calls.begin()?;
            let _unpaused = IN_NOTIFICATION.try_with(|()| ()).is_ok().then(|| self.shared.unpaused.enter());
            let sending = self.shared.outgoing.call(waiting.id, method, params);
            tokio::select! {
                biased;
                // The connection may end while the call still waits for room.
                settled = waiting.settled() => return settled,
                sent = sending => sent.map_err(|error| error.into_call_error(|| self.close_reason_now()))?,
            }
            self.shared.live.calls.add(1);
            waiting.settled().await
        };
        let message = match deadline {
            Deadline::Never => call.await?,
            Deadline::After(span) => tokio::time::timeout(span, call)
                .await
                .map_err(|_| CallError::Refused(over_time(Reason::CallDeadline, span)))??,
        };
        match message.kind() {
            Kind::ErrorResponse => {
                let error = decode_tree::<WireError>(&message, &self.shared.budget).map_err(CallError::Result)?;
                let (WireError { code, message, data }, _charge) = error.into_parts();
                Err(CallError::Rpc(RpcError { code, message, data }))
            }
            _ => {
                let result = decode_body::<R>(&message, &self.shared.budget).map_err(CallError::Result)?;
                let (result, _charge) = result.into_parts();
                Ok(result)
            }
        }
    }

    /// Sends a notification; waits until it has a place in the outgoing queue.
    ///
    /// # Errors
    ///
    /// The connection has ended, or there is no room in the budget.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn notify(&self, method: &str, params: &(impl Serialize + ?Sized)) -> Result<(), CallError> {
        let sending = self.shared.outgoing.notify(method, params);
        sending.await.map_err(|error| error.into_call_error(|| self.close_reason_now()))
    }

    /// Ends the connection: waiting calls fail, and what is queued is written within [`Limits::drain`].
    pub fn close(&self) {
        self.shared.closing.cancel();
    }

    /// Waits until the connection has ended; why it did is what [`Connection::run`] returns.
    pub async fn closed(&self) {
        self.shared.closed.cancelled().await;
    }

    /// Whether calls can still succeed.
    pub fn is_open(&self) -> bool {
        self.shared.calls.close_reason().is_none()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.shared.live.read();
        counters.held_bytes = self.shared.budget.held();
        counters.peak_bytes = self.shared.budget.peak();
        counters.in_flight = self.shared.in_flight.len() as u64;
        counters.pending = self.shared.calls.len() as u64;
        counters
    }

    /// The connection's leaf of the budget, for what a handler holds on behalf of the peer.
    pub fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.shared.outgoing
    }

    pub(crate) fn dropped_notification(&self, error: &DecodeError) {
        self.shared.live.notifications_dropped.add(1);
        tracing::warn!("a notification was dropped: {error}");
    }

    /// What a request is answered whose handler ended without an answer.
    pub(crate) fn unanswered(&self) -> RpcError {
        if !self.shared.draining_is_over.load(Ordering::Acquire) {
            return RpcError::internal("the handler ended without an answer");
        }
        let refusal = match self.shared.limits.drain().span() {
            Some(span) if self.close_reason_now() == CloseReason::EndOfInput => over_time(Reason::Drain, span),
            _ => Refusal::new(Reason::Closed),
        };
        RpcError::refused(INTERNAL_ERROR, &refusal)
    }

    fn close_reason_now(&self) -> CloseReason {
        self.shared.calls.close_reason().unwrap_or(CloseReason::Closed)
    }
}

/// The error object as it comes. A free-form value is bounded by the message's limits and charged like every decode.
#[derive(serde::Deserialize)]
struct WireError {
    code: i64,
    message: String,
    #[serde(default)]
    data: Option<serde_json::Value>,
}

/// The work of one connection.
#[derive(Debug)]
pub struct Connection<R, W> {
    peer: Peer,
    // Boxed, because a future that takes it apart would hold it twice.
    receiver: Box<LineReceiver<R>>,
    writer: W,
    router: Arc<Router>,
    ended: Ended,
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Reads, routes and writes until the connection ends, and says why it did.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection at once: calls fail, handlers are aborted, what was queued is lost.
    pub async fn run(self) -> CloseReason {
        let Self { peer, mut receiver, writer, router, ended } = self;
        let _ended = ended;
        let shared = &*peer.shared;
        let mut handlers = JoinSet::new();
        let mut writing = pin!(shared.outgoing.write(writer, shared.limits.stall_deadline()));
        let mut notifying = pin!(IN_NOTIFICATION.scope((), run_notifications(&peer, &router)));

        let reason = {
            let mut reading = pin!(read(&peer, &router, &mut receiver, &mut handlers));
            tokio::select! {
                reason = &mut reading => reason,
                () = &mut notifying => CloseReason::Closed,
                () = shared.closing.cancelled() => CloseReason::Closed,
                written = &mut writing => {
                    let reason = match written {
                        Ok(()) => CloseReason::Closed,
                        Err(failed) if failed.reason == CloseReason::EndOfInput => {
                            read_out(shared, failed, reading, notifying).await
                        }
                        Err(failed) => failed.reason,
                    };
                    return finish(shared, reason);
                }
            }
        };
        shared.calls.close(&reason);
        shared.notifications.close();

        // What was received is still answered, and what is queued still written, for a bounded time.
        let until = drain_until(shared);
        let answering = async {
            if reason == CloseReason::EndOfInput {
                notifying.await;
                while let Some(ended) = handlers.join_next().await {
                    note_panic(&peer, ended);
                }
                // Some requests are answered from elsewhere than their handlers.
                shared.in_flight.all_claimed().await;
            }
        };
        let written = tokio::select! {
            () = answering => None,
            written = &mut writing => Some(written),
            () = at(until) => None,
            () = shared.closing.cancelled() => None,
        };
        shared.draining_is_over.store(true, Ordering::Release);
        handlers.abort_all();
        if written.is_some() {
            return finish(shared, reason);
        }
        // An aborted handler drops its responder, which answers. A handler that does not yield is not waited for.
        let grace = || until.map(|until| until.max(Instant::now() + Duration::from_millis(200)));
        tokio::select! {
            () = async { while handlers.join_next().await.is_some() {} } => {}
            () = at(grace()) => {}
        }
        for id in shared.in_flight.claim_rest() {
            let _ = shared.outgoing.urgent_now(Urgent::Error { id, error: peer.unanswered(), answers: None });
        }
        shared.outgoing.close();
        tokio::select! {
            biased;
            _ = writing => {}
            () = at(grace()) => {}
        }
        finish(shared, reason)
    }
}

/// The peer reads no longer. What it sent before it left still counts, the answers to our calls above all.
async fn read_out(
    shared: &Shared,
    failed: WriteFailed,
    reading: impl Future<Output = CloseReason>,
    mut notifying: Pin<&mut impl Future<Output = ()>>,
) -> CloseReason {
    shared.calls.begin_no_more(&failed.reason);
    for id in failed.unsent {
        shared.calls.settle(&id.into(), Err(CallError::Closed(failed.reason.clone())));
    }
    let until = drain_until(shared);
    let reason = tokio::select! {
        reason = reading => reason,
        () = &mut notifying => return CloseReason::Closed,
        () = shared.closing.cancelled() => return CloseReason::Closed,
        () = at(until) => return failed.reason,
    };
    shared.calls.close(&reason);
    shared.notifications.close();
    tokio::select! {
        () = notifying => {}
        () = shared.closing.cancelled() => {}
        () = at(until) => {}
    }
    reason
}

/// When the time to answer what was received is over.
fn drain_until(shared: &Shared) -> Option<Instant> {
    Instant::now().checked_add(shared.limits.drain().span()?)
}

fn finish(shared: &Shared, reason: CloseReason) -> CloseReason {
    shared.calls.close(&reason);
    tracing::debug!("connection ended: {reason}");
    reason
}

/// The refusal by a deadline: limit and observed are milliseconds.
pub(crate) fn over_time(reason: Reason, span: Duration) -> Refusal {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Refusal::over(reason, millis, millis)
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// However the connection ends, run or not, nobody waits on it any longer and it holds nothing.
#[derive(Debug)]
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.calls.close(&CloseReason::Closed);
        drop(self.0.notifications.close_and_take());
        drop(self.0.outgoing.discard());
        self.0.closed.cancel();
    }
}

async fn run_notifications(peer: &Peer, router: &Router) {
    while let Some(queued) = peer.shared.notifications.pop().await {
        // Its room is held until it was handled.
        let Queued { item: (message, _charge), _room } = queued;
        match router.notify(Notification::new(message, peer.clone())) {
            Some(handler) => {
                if !(Guarded { handler }).await {
                    notification_panicked(peer);
                }
            }
            None => {
                peer.shared.live.notifications_unknown.add(1);
                tracing::debug!("a notification of an unknown method was ignored");
            }
        }
    }
}

/// A handler on the connection's own task, which must outlive it; `false` when it panicked.
struct Guarded {
    handler: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Future for Guarded {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        match catch_unwind(AssertUnwindSafe(|| self.handler.as_mut().poll(cx))) {
            Ok(poll) => poll.map(|()| true),
            Err(_) => Poll::Ready(false),
        }
    }
}

/// Receives and routes until the input ends or the connection must.
async fn read<R: AsyncRead + Unpin>(
    peer: &Peer,
    router: &Router,
    receiver: &mut LineReceiver<R>,
    handlers: &mut JoinSet<()>,
) -> CloseReason {
    let mut pace = Pace::default();
    loop {
        let line = tokio::select! {
            // Handlers that have ended first: they cost memory until they are noted.
            biased;
            Some(ended) = handlers.join_next() => {
                note_panic(peer, ended);
                continue;
            }
            line = receiver.receive() => line,
        };
        let routed = match line {
            Ok(Some(Line::Received(Received::Message(message)))) => {
                route(peer, router, message, handlers, &mut pace).await
            }
            Ok(Some(Line::Received(Received::Refused(refused)))) => refuse(peer, &refused, &mut pace).await,
            Ok(Some(Line::Overrun { refused, reason })) => {
                let _ = refuse(peer, &refused, &mut pace).await;
                Err(CloseReason::Refused(reason))
            }
            Ok(None) => Err(CloseReason::EndOfInput),
            Err(error) => Err(CloseReason::of_io("reading", error.kind())),
        };
        if let Err(reason) = routed {
            return reason;
        }
    }
}

async fn route(
    peer: &Peer,
    router: &Router,
    message: Message,
    handlers: &mut JoinSet<()>,
    pace: &mut Pace,
) -> Result<(), CloseReason> {
    let shared = &peer.shared;
    match message.kind() {
        Kind::Request => {
            if let Some(refused) = begin(peer, router, message, handlers) {
                urgent(shared, refused).await;
                return Ok(());
            }
        }
        Kind::Notification => match catch_unwind(AssertUnwindSafe(|| router.notify_at_once(&message, peer))) {
            Ok(true) => {}
            Ok(false) => return queue_notification(peer, message, pace).await,
            Err(_) => notification_panicked(peer),
        },
        Kind::Response | Kind::ErrorResponse => {
            let settled = match message.id().cloned() {
                Some(id) => shared.calls.settle(&id, Ok(message)),
                None => false,
            };
            if !settled {
                shared.live.responses_unasked.add(1);
                tracing::debug!("a response to no waiting call was ignored");
            }
        }
    }
    shared.live.messages.add(1);
    Ok(())
}

/// Admits a request and begins it, or says what it is answered.
fn begin(peer: &Peer, router: &Router, message: Message, handlers: &mut JoinSet<()>) -> Option<Urgent> {
    let shared = &peer.shared;
    let id = message.id()?;
    let in_flight = match shared.in_flight.admit(id) {
        Ok(in_flight) => in_flight,
        Err(refusal) => {
            shared.live.refused.add(1);
            let code = plimsoll_core::error_code(shared.rules.dialect, &refusal);
            return Some(Urgent::Refused { id: Some(id.clone()), code, refusal });
        }
    };
    let request = Request::new(message, peer.clone());
    let responder = Responder::new(peer.clone(), in_flight);
    match catch_unwind(AssertUnwindSafe(|| router.begin_request(request, responder))) {
        Ok(Ok(Some(handler))) => {
            handlers.spawn(handler);
        }
        Ok(Ok(None)) => {}
        Ok(Err(responder)) => responder.fail(RpcError::method_not_found()),
        // The responder was dropped, which has answered.
        Err(_) => panicked(peer),
    }
    None
}

/// A notification waits its turn; while too many bytes wait, so does reading.
async fn queue_notification(peer: &Peer, message: Message, pace: &mut Pace) -> Result<(), CloseReason> {
    let shared = &peer.shared;
    let place = ByteQueue::<(Message, Charge)>::PLACE as u64;
    let place = match shared.budget.try_charge(place) {
        Ok(charge) => charge,
        Err(no_room) => {
            let refused = Refused {
                refusal: no_room.into(),
                id: SeenId::Absent,
                object: true,
                method: true,
                response: false,
                wire_bytes: message.wire_bytes(),
                counts: message.counts(),
            };
            return refuse(peer, &refused, pace).await;
        }
    };
    let bytes = usize::try_from(message.charged() + place.bytes()).unwrap_or(usize::MAX);
    let room = tokio::select! {
        biased;
        () = shared.unpaused.set() => None,
        room = shared.notifications.reserve(bytes) => room.ok(),
    };
    let _ = shared.notifications.queue((message, place), room);
    shared.live.messages.add(1);
    Ok(())
}

/// Answers what was refused, as the table in the core says.
async fn refuse(peer: &Peer, refused: &Refused, pace: &mut Pace) -> Result<(), CloseReason> {
    let shared = &peer.shared;
    let refusal = refused.refusal;
    shared.live.refused.add(1);
    match shared.rules.answer(refused, |id| shared.calls.is_waiting(id)) {
        Answer::Close => return Err(CloseReason::NotificationLost(refusal)),
        Answer::FailCall(id) => {
            shared.calls.settle(&id, Err(CallError::Refused(refusal)));
        }
        Answer::Error { paced: true, .. } if !pace.allows() => {
            shared.live.noise.add(1);
        }
        Answer::Error { id, code, .. } => urgent(shared, Urgent::Refused { id, code, refusal }).await,
        Answer::Nothing => {
            if shared.live.noise.add(1) == 0 {
                tracing::warn!(
                    "something that is no message was ignored, and the like will only be counted: {refusal}"
                );
            }
        }
    }
    Ok(())
}

async fn urgent(shared: &Shared, urgent: Urgent) {
    // While its room is full reading pauses here, and the writer's stall deadline runs. Once the lane is closed there is
    // nobody to answer.
    let _ = shared.outgoing.urgent(urgent).await;
}

fn note_panic(peer: &Peer, ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        panicked(peer);
    }
}

fn panicked(peer: &Peer) {
    peer.shared.live.panics.add(1);
    tracing::error!("a handler panicked; its request was answered with -32603");
}

fn notification_panicked(peer: &Peer) {
    peer.shared.live.panics.add(1);
    tracing::error!("the handler of a notification panicked");
}

/// At most ten answers to what has no id, in any second.
#[derive(Debug, Default)]
struct Pace {
    // When the last ten were sent; `next` is the oldest.
    sent: [Option<Instant>; Self::A_SECOND],
    next: usize,
}

impl Pace {
    const A_SECOND: usize = 10;

    fn allows(&mut self) -> bool {
        let now = Instant::now();
        let oldest = &mut self.sent[self.next];
        if oldest.is_some_and(|sent| now.duration_since(sent) < Duration::from_secs(1)) {
            return false;
        }
        *oldest = Some(now);
        self.next = (self.next + 1) % Self::A_SECOND;
        true
    }
}
