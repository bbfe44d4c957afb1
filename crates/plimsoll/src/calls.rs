//! Calls of ours that wait for an answer.
//!
//! Every call is settled exactly once: by its answer, by a refusal of its answer, by its deadline, or by the end of
//! the connection, which settles all of them at once with the reason.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use plimsoll_core::{Bound, Budget, Charge, Id, Message, Reason, Refusal};
use tokio::sync::oneshot;

use crate::error::{CallError, CloseReason};

/// What a waiting call costs: its place in the table and its channel.
const CALL_BYTES: u64 = 512;

type Settled = Result<Message, CallError>;

/// The table of one connection.
#[derive(Debug)]
pub(crate) struct Calls {
    most: u64,
    budget: Budget,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    // The id of the next call; from 1 upwards, so never one that stands for nobody.
    next: i64,
    waiting: HashMap<i64, oneshot::Sender<Settled>>,
    closed: Option<CloseReason>,
}

impl Calls {
    pub(crate) fn new(most: Bound, budget: &Budget) -> Self {
        let state = State { next: 1, waiting: HashMap::new(), closed: None };
        Self { most: most.ceiling(), budget: budget.clone(), state: Mutex::new(state) }
    }

    /// A new call, which waits until it is settled or dropped.
    pub(crate) fn begin(&self) -> Result<Waiting<'_>, CallError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &state.closed {
            return Err(CallError::Closed(reason.clone()));
        }
        if state.waiting.len() as u64 >= self.most {
            let refusal = Refusal::over(Reason::Pending, self.most, self.most.saturating_add(1));
            return Err(CallError::Refused(refusal));
        }
        let charge = self.budget.try_charge(CALL_BYTES)?;
        let id = state.next;
        state.next += 1;
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        Ok(Waiting { calls: self, id, receiver, _charge: charge })
    }

    pub(crate) fn is_waiting(&self, id: &Id) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        id.as_integer().is_some_and(|id| state.waiting.contains_key(&id))
    }

    /// Settles the call with this id; `false` when none waits.
    pub(crate) fn settle(&self, id: &Id, settled: Settled) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = id.as_integer().and_then(|id| state.waiting.remove(&id));
        drop(state);
        sender.is_some_and(|sender| sender.send(settled).is_ok())
    }

    /// Fails every later call with `reason`; those that wait may still be answered.
    pub(crate) fn begin_no_more(&self, reason: &CloseReason) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed.get_or_insert_with(|| reason.clone());
    }

    /// Fails every waiting call, and every later one, with `reason`; the first reason stays.
    pub(crate) fn close(&self, reason: &CloseReason) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = state.closed.get_or_insert_with(|| reason.clone()).clone();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for sender in waiting.into_values() {
            let _ = sender.send(Err(CallError::Closed(reason.clone())));
        }
    }

    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.len()
    }
}

/// One waiting call. Dropping it gives the call up; an answer that comes later is counted as unasked for.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    calls: &'a Calls,
    pub(crate) id: i64,
    receiver: oneshot::Receiver<Settled>,
    _charge: Charge,
}

impl Waiting<'_> {
    /// Waits until the call is settled.
    pub(crate) async fn settled(&mut self) -> Settled {
        match (&mut self.receiver).await {
            Ok(settled) => settled,
            Err(_) => Err(CallError::Closed(self.calls.close_reason().unwrap_or(CloseReason::Closed))),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.calls.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.id);
    }
}
