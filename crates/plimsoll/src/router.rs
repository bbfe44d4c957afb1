//! Handlers by method, and the one-time right to answer a request.
//!
//! Requests run concurrently, each in a task of its own; notifications run one after another in the order received. A
//! handler that must *begin* in order, such as a write to a stream, is registered with [`Router::request_in_order`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use plimsoll_core::{Charge, Id, Message};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decode::{Decoded, decode_body};
use crate::error::{DecodeError, RpcError};
use crate::in_flight::InFlight;
use crate::outgoing::{SendError, Urgent};
use crate::peer::Peer;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type RequestHandler = Box<dyn Fn(Request, Responder) -> Option<BoxFuture> + Send + Sync>;
type NotificationHandler = Box<dyn Fn(Notification) -> BoxFuture + Send + Sync>;
type AtOnce = Box<dyn Fn(Context) + Send + Sync>;

/// What a peer does when it is called.
#[derive(Default)]
pub struct Router {
    requests: HashMap<&'static str, RequestHandler>,
    notifications: HashMap<&'static str, NotificationHandler>,
    at_once: HashMap<&'static str, AtOnce>,
}

impl Router {
    /// No methods: every request is answered -32601, every notification is counted and ignored.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers requests for `method` with what `handler` returns. The parameters are decoded in the request's own task;
    /// what does not fit is answered -32602. A handler that panics is answered -32603, and the peer lives.
    #[must_use]
    pub fn request<P, R, F, Fut>(self, method: &'static str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + Sync + 'static,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.request_in_order(method, move |request, responder| {
            let handler = handler.clone();
            Some(async move {
                let context = request.context();
                let params = request.params::<P>();
                // The message's bytes are not needed while the handler runs.
                drop(request);
                match params {
                    Ok(params) => {
                        // The charge for the parameters is held until the reply is queued.
                        let (params, _charge) = params.into_parts();
                        let outcome = handler(context, params).await;
                        responder.respond(outcome).await;
                    }
                    Err(error) => responder.respond(Err::<(), _>(error.into())).await,
                }
            })
        })
    }

    /// Hands requests for `method` to `begin` in the order received, on the connection's own task. `begin` must not
    /// block; what may take time goes into the future that it returns, which runs in a task of its own.
    #[must_use]
    pub fn request_in_order<F, Fut>(mut self, method: &'static str, begin: F) -> Self
    where
        F: Fn(Request, Responder) -> Option<Fut> + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let handler: RequestHandler =
            Box::new(move |request, responder| begin(request, responder).map(|future| Box::pin(future) as BoxFuture));
        self.requests.insert(method, handler);
        self
    }

    /// Runs `handler` for notifications of `method`, one after another with all other notifications. What does not fit
    /// the parameters is counted and logged.
    ///
    /// While the handler runs, later notifications wait, and beyond `notification_bytes` reading pauses. A call to the
    /// peer from within the handler lifts that pause until it is answered.
    #[must_use]
    pub fn notification<P, F, Fut>(mut self, method: &'static str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let boxed: NotificationHandler = Box::new(move |notification| {
            let handler = handler.clone();
            Box::pin(async move {
                let params = notification.params::<P>();
                let context = notification.context();
                drop(notification);
                match params {
                    Ok(params) => {
                        let (params, _charge) = params.into_parts();
                        handler(context, params).await;
                    }
                    Err(error) => context.peer.dropped_notification(&error),
                }
            })
        });
        self.notifications.insert(method, boxed);
        self
    }

    /// Runs `handler` the moment a notification of `method` is received, before anything that came after it begins. Its
    /// parameters are not looked at, and it must not block.
    #[must_use]
    pub fn notification_at_once<F>(mut self, method: &'static str, handler: F) -> Self
    where
        F: Fn(Context) + Send + Sync + 'static,
    {
        self.at_once.insert(method, Box::new(handler));
        self
    }

    /// Runs the handler that does not wait its turn; `false` when there is none.
    pub(crate) fn notify_at_once(&self, message: &Message, peer: &Peer) -> bool {
        let handler = message.method().and_then(|method| self.at_once.get(&*method));
        if let Some(handler) = handler {
            handler(Context { peer: peer.clone() });
        }
        handler.is_some()
    }

    pub(crate) fn begin_request(&self, request: Request, responder: Responder) -> Result<Option<BoxFuture>, Responder> {
        match request.message.method().and_then(|method| self.requests.get(&*method)) {
            Some(handler) => Ok(handler(request, responder)),
            None => Err(responder),
        }
    }

    pub(crate) fn notify(&self, notification: Notification) -> Option<BoxFuture> {
        let handler = self.notifications.get(&*notification.message.method()?)?;
        Some(handler(notification))
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router")
            .field("requests", &self.requests.keys())
            .field("notifications", &self.notifications.keys())
            .finish()
    }
}

/// What a handler is told beside its parameters.
#[derive(Clone, Debug)]
pub struct Context {
    peer: Peer,
}

impl Context {
    /// The peer that called; it can be called back.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// A request that was admitted.
#[derive(Debug)]
pub struct Request {
    message: Message,
    peer: Peer,
}

impl Request {
    pub(crate) fn new(message: Message, peer: Peer) -> Self {
        Self { message, peer }
    }

    /// Decodes the parameters.
    ///
    /// # Errors
    ///
    /// They are not of type `P`, or there is no room for them.
    pub fn params<P: DeserializeOwned>(&self) -> Result<Decoded<P>, DecodeError> {
        decode_body(&self.message, self.peer.budget())
    }

    /// The message itself.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The peer that sent it.
    pub fn context(&self) -> Context {
        Context { peer: self.peer.clone() }
    }
}

/// A notification whose turn has come.
#[derive(Debug)]
pub(crate) struct Notification {
    message: Message,
    peer: Peer,
}

impl Notification {
    pub(crate) fn new(message: Message, peer: Peer) -> Self {
        Self { message, peer }
    }

    fn params<P: DeserializeOwned>(&self) -> Result<Decoded<P>, DecodeError> {
        decode_body(&self.message, self.peer.budget())
    }

    fn context(&self) -> Context {
        Context { peer: self.peer.clone() }
    }
}

/// The right to answer one request, once. Dropped unused, it answers -32603: so does a handler that panics.
#[derive(Debug)]
pub struct Responder {
    peer: Peer,
    in_flight: InFlight,
    /// Held until the reply is queued.
    charges: Vec<Charge>,
}

impl Responder {
    pub(crate) fn new(peer: Peer, in_flight: InFlight) -> Self {
        Self { peer, in_flight, charges: Vec::new() }
    }

    /// The id of the request.
    pub fn id(&self) -> &Id {
        self.in_flight.id()
    }

    /// Keeps a charge until the request is answered.
    pub fn hold(&mut self, charge: Charge) {
        self.charges.push(charge);
    }

    /// Answers. Waits until the reply has a place in the outgoing queue; when the connection has ended there is nobody
    /// to answer, and it returns at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for a place answers as a dropped responder does.
    pub async fn respond<R: Serialize>(mut self, outcome: Result<R, RpcError>) {
        let outgoing = self.peer.outgoing();
        let sent = match &outcome {
            Ok(result) => outgoing.result(&mut self.in_flight, result).await,
            Err(error) => outgoing.error(&mut self.in_flight, error).await,
        };
        if let Err(error) = sent {
            let reason = match error {
                SendError::Closed => return,
                SendError::NoRoom(no_room) => no_room.to_string(),
                SendError::Serialize(text) => text,
            };
            // The handler has run, so trying again would run it twice.
            let data = serde_json::json!({ "reason": "outcomeLost", "retryable": false });
            let error = RpcError::internal(format!("the request was handled, but its result is lost: {reason}"));
            self.fail(error.with_data(data));
        }
    }

    /// Answers with an error at once, without waiting.
    pub fn fail(mut self, error: RpcError) {
        self.send_now(error);
    }

    fn send_now(&mut self, error: RpcError) {
        if let Some(answers) = self.in_flight.claim() {
            let urgent = Urgent::Error { id: answers.id().clone(), error, answers: Some(answers) };
            let _ = self.peer.outgoing().urgent_now(urgent);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.in_flight.is_none() {
            self.send_now(self.peer.unanswered());
        }
    }
}
