//! The work of one connection: a future that reads, routes and writes until the connection ends.
//!
//! Nothing is spawned behind the caller's back but the handlers, which end with the connection. The end comes in one of
//! these ways, and each settles every call at once with its reason: the peer closes its side (what it sent is answered
//! within `drain`), reading or writing fails, a limit of the connection is passed, or this side closes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::{CallError, CloseReason};
use crate::outgoing::{Urgent, WriteFailed};
use crate::peer::{IN_NOTIFICATION, Peer, Shared};
use crate::queue::Queued;
use crate::receive::LineReceiver;
use crate::route::{note_panic, notification_panicked, read};
use crate::router::{Notification, Router};

/// The work of one connection.
#[derive(Debug)]
pub struct Connection<R, W> {
    peer: Peer,
    // Boxed, because a future that takes it apart would hold it twice.
    receiver: Box<LineReceiver<R>>,
    writer: W,
    router: Router,
    ended: Ended,
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    pub(crate) fn new(peer: Peer, receiver: Box<LineReceiver<R>>, writer: W, router: Router) -> Self {
        let ended = Ended(peer.shared.clone());
        Self { peer, receiver, writer, router, ended }
    }

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
                () = shared.closing.cancelled() => closing(shared),
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
        () = shared.closing.cancelled() => return closing(shared),
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

/// Why this side closes the connection.
fn closing(shared: &Shared) -> CloseReason {
    match shared.lost.get() {
        Some(refusal) => CloseReason::NotificationLost(*refusal),
        None => CloseReason::Closed,
    }
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
