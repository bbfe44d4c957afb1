//! What a connection counts, so that nothing is dropped in silence.

use std::sync::atomic::{AtomicU64, Ordering};

/// The state of one connection's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages accepted and routed.
    pub messages: u64,
    /// Messages and frames refused, noise included.
    pub refused: u64,
    /// Frames that were no messages, and refused messages that are never answered.
    pub noise: u64,
    /// Responses that no call waited for.
    pub responses_unasked: u64,
    /// Notifications of methods that nobody handles.
    pub notifications_unknown: u64,
    /// Notifications whose parameters did not fit.
    pub notifications_dropped: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Calls sent.
    pub calls: u64,
    /// Requests that are not answered yet, now.
    pub in_flight: u64,
    /// Calls that wait for an answer, now.
    pub pending: u64,
    /// Bytes that the connection holds, now.
    pub held_bytes: u64,
    /// The most bytes that it ever held.
    pub peak_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds, and says what it was before.
    pub(crate) fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters while they count.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) messages: Count,
    pub(crate) refused: Count,
    pub(crate) noise: Count,
    pub(crate) responses_unasked: Count,
    pub(crate) notifications_unknown: Count,
    pub(crate) notifications_dropped: Count,
    pub(crate) panics: Count,
    pub(crate) calls: Count,
}

impl Live {
    pub(crate) fn read(&self) -> Counters {
        Counters {
            messages: self.messages.read(),
            refused: self.refused.read(),
            noise: self.noise.read(),
            responses_unasked: self.responses_unasked.read(),
            notifications_unknown: self.notifications_unknown.read(),
            notifications_dropped: self.notifications_dropped.read(),
            panics: self.panics.read(),
            calls: self.calls.read(),
            ..Counters::default()
        }
    }
}
