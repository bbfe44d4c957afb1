//! One end of a connection: how it is set up, and the handle on it.
//!
//! A [`Peer`] calls and notifies; it is cloned freely. The work is done by the [`Connection`] that is made beside it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_core::{
    AnswerRules, Budget, Charge, Deadline, Dialect, INTERNAL_ERROR, Kind, Limits, Message, Reason, Refusal,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::connection::Connection;
use crate::counters::{Counters, Live};
use crate::decode::{decode_body, decode_tree};
use crate::error::{CallError, CloseReason, DecodeError, RpcError};
use crate::in_flight::InFlightTable;
use crate::outgoing::Outgoing;
use crate::queue::ByteQueue;
use crate::receive::LineReceiver;
use crate::router::Router;

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
            lost: OnceLock::new(),
            draining_is_over: AtomicBool::new(false),
            rules: self.rules,
            limits: self.limits,
            budget,
        });
        let receiver = Box::new(LineReceiver::new(reader, &shared.limits, dialect, &shared.budget));
        let peer = Peer { shared };
        let connection = Connection::new(peer.clone(), receiver, writer, self.router);
        (peer, connection)
    }
}

/// What the handle and the work of a connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) rules: AnswerRules,
    pub(crate) budget: Budget,
    pub(crate) outgoing: Outgoing,
    pub(crate) calls: Calls,
    pub(crate) in_flight: Arc<InFlightTable>,
    pub(crate) notifications: ByteQueue<(Message, Charge)>,
    pub(crate) unpaused: Unpaused,
    pub(crate) live: Live,
    pub(crate) closing: CancellationToken,
    pub(crate) closed: CancellationToken,
    // A notification was lost that must not be.
    pub(crate) lost: OnceLock<Refusal>,
    // Handlers that end without an answer now were aborted.
    pub(crate) draining_is_over: AtomicBool,
}

/// Calls made from within a notification's handler: while one waits for its answer, reading must not pause for the
/// notifications behind it.
#[derive(Debug, Default)]
pub(crate) struct Unpaused {
    calls: AtomicUsize,
    changed: Notify,
}

impl Unpaused {
    fn is_set(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    pub(crate) async fn set(&self) {
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
    /// Set while the handler of a notification runs.
    pub(crate) static IN_NOTIFICATION: ();
}

/// A handle on one connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) shared: Arc<Shared>,
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

    /// A notification could not be decoded: it is counted, or ends the connection where none may be lost.
    pub(crate) fn dropped_notification(&self, error: &DecodeError) {
        let is_first = self.shared.live.notifications_dropped.add(1) == 0;
        if self.shared.rules.notifications_are_vital {
            // That is told by the reason for which the connection ends.
            let _ = self.shared.lost.set(error.refusal());
            self.shared.closing.cancel();
        } else if is_first {
            tracing::warn!("a notification was dropped, and the like will only be counted: {error}");
        }
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

/// The refusal by a deadline: limit and observed are milliseconds.
pub(crate) fn over_time(reason: Reason, span: Duration) -> Refusal {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Refusal::over(reason, millis, millis)
}
