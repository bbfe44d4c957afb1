//! Futures that are dropped half way, to prove that an operation is cancel-safe.
//!
//! A future that is dropped must lose nothing: what it had received is still there for the next one. So the operation
//! is begun, dropped at an await point, and begun again, and the sum of what it gave must be what was sent.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Polls `future` at most `polls` times and gives its output, or drops it and gives nothing. Between two polls it waits
/// until the future is woken; after the last one it does not.
pub async fn poll_times<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    PollLimit::new(pin!(future), polls).await
}

/// Begins `operation` again and again, dropping it at its first await point that is not ready at once, until it ends
/// without one; gives its output and how many attempts were dropped.
///
/// An attempt is dropped when it has been woken, not before, so that virtual time can pass: what woke it (data, a
/// permit, a deadline) has already happened and must not be lost with it. Its progress over attempts must lie in what
/// `operation` borrows; an operation that forgets its progress never ends.
pub async fn drop_at_every_await<R>(operation: impl AsyncFnMut() -> R) -> (R, usize) {
    drop_after_polls(|_| 1, operation).await
}

/// The same with another number of polls for each attempt: `polls` is asked with the attempt's index, from zero, and
/// must be at least one. With `|attempt| attempt + 1` an operation that keeps no progress ends too, and each of its
/// await points is dropped at once.
pub async fn drop_after_polls<R>(
    mut polls: impl FnMut(usize) -> usize,
    mut operation: impl AsyncFnMut() -> R,
) -> (R, usize) {
    let mut dropped = 0;
    loop {
        let allowed = polls(dropped).max(1);
        let attempt = pin!(operation());
        match (WakeBeforeDrop { limit: PollLimit::new(attempt, allowed) }).await {
            Some(output) => return (output, dropped),
            None => dropped += 1,
        }
    }
}

/// A future that ends with nothing when the inner one is not ready after so many polls. The inner one is dropped with
/// it.
#[derive(Debug)]
pub struct PollLimit<F> {
    inner: F,
    polls_left: usize,
}

impl<F: Future + Unpin> PollLimit<F> {
    /// At most `polls` polls of `inner`; with zero it is never polled. Pin what is not `Unpin` first.
    pub fn new(inner: F, polls: usize) -> Self {
        PollLimit { inner, polls_left: polls }
    }
}

impl<F: Future + Unpin> Future for PollLimit<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        match Pin::new(&mut self.inner).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls_left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A [`PollLimit`] that gives up at the wake after its last poll.
struct WakeBeforeDrop<F> {
    limit: PollLimit<F>,
}

impl<F: Future + Unpin> Future for WakeBeforeDrop<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.limit.polls_left == 0 {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.limit).poll(context) {
            Poll::Ready(None) => Poll::Pending,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::task::yield_now;
    use tokio::time::{Instant, sleep};

    use super::*;

    async fn yields(times: usize) -> usize {
        for _ in 0..times {
            yield_now().await;
        }
        times
    }

    #[tokio::test]
    async fn a_future_ends_within_its_polls_or_not_at_all() {
        assert_eq!(poll_times(yields(0), 0).await, None);
        assert_eq!(poll_times(yields(0), 1).await, Some(0));
        assert_eq!(poll_times(yields(3), 3).await, None);
        assert_eq!(poll_times(yields(3), 4).await, Some(3));
    }

    #[tokio::test]
    async fn the_last_poll_is_not_waited_for() {
        assert_eq!(poll_times(std::future::pending::<()>(), 1).await, None);
    }

    #[tokio::test]
    async fn an_operation_that_keeps_its_progress_ends() {
        let steps = Cell::new(0);
        let operation = async || {
            while steps.get() < 5 {
                steps.set(steps.get() + 1);
                yield_now().await;
            }
        };
        assert_eq!(drop_at_every_await(operation).await, ((), 5));
    }

    #[tokio::test]
    async fn every_await_point_is_reached_by_longer_and_longer_attempts() {
        let farthest = Cell::new(0);
        let operation = async || {
            for step in 1..=5 {
                farthest.set(step.max(farthest.get()));
                yield_now().await;
            }
        };
        assert_eq!(drop_after_polls(|attempt| attempt + 1, operation).await, ((), 5));
        assert_eq!(farthest.get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_time_passes_between_attempts() {
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(60);
        let operation = async || tokio::time::sleep_until(deadline).await;
        assert_eq!(drop_at_every_await(operation).await, ((), 1));
        assert_eq!(begun.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_safe_receive_loses_nothing() {
        let (sender, mut receiver) = mpsc::channel(1);
        let sending = tokio::spawn(async move {
            for number in 0..10 {
                sleep(Duration::from_secs(1)).await;
                sender.send(number).await.expect("the receiver lives");
            }
        });
        let mut received = Vec::new();
        for _ in 0..10 {
            let (number, dropped) = drop_at_every_await(async || receiver.recv().await).await;
            received.extend(number);
            assert_eq!(dropped, 1);
        }
        assert_eq!(received, (0..10).collect::<Vec<_>>());
        sending.await.expect("no panic");
    }
}
