//! The reader's side of a connection: each message goes to the call, the handler or the queue that it is for, and what
//! is refused is answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use plimsoll_core::{Answer, Charge, Kind, Line, Message, Received, Refused, SeenId};
use tokio::io::AsyncRead;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{CallError, CloseReason, RpcError};
use crate::outgoing::Urgent;
use crate::peer::{Peer, Shared};
use crate::queue::ByteQueue;
use crate::receive::LineReceiver;
use crate::router::{Request, Responder, Router};

/// Receives and routes until the input ends or the connection must.
pub(crate) async fn read<R: AsyncRead + Unpin>(
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

pub(crate) fn note_panic(peer: &Peer, ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        panicked(peer);
    }
}

fn panicked(peer: &Peer) {
    peer.shared.live.panics.add(1);
    tracing::error!("a handler panicked; its request was answered with -32603");
}

pub(crate) fn notification_panicked(peer: &Peer) {
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
