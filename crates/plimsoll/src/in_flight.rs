//! Requests of the peer that are not answered yet: how many, and under which ids.
//!
//! A request is in flight from its admission until the last byte of its reply is written, so admission cannot outrun
//! output. Its id cannot be used again before that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::{Bound, Budget, Charge, Id, Reason, Refusal};
use tokio::sync::Notify;

/// What a request in flight costs beside its bytes: its task, its place in the table and its span.
const REQUEST_BYTES: u64 = 1024;

/// The table of one connection.
#[derive(Debug)]
pub(crate) struct InFlightTable {
    most: u64,
    budget: Budget,
    state: Mutex<State>,
    all_claimed: Notify,
}

#[derive(Debug, Default)]
struct State {
    // By id, whether its one answer is queued; until then somebody merely holds the request.
    claimed: HashMap<Id, bool>,
    // How many of them have no answer queued.
    unclaimed: usize,
}

impl InFlightTable {
    pub(crate) fn new(most: Bound, budget: &Budget) -> Self {
        Self { most: most.ceiling(), budget: budget.clone(), state: Mutex::default(), all_claimed: Notify::new() }
    }

    /// Admits a request, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, id: &Id) -> Result<InFlight, Refusal> {
        let mut state = self.lock();
        if state.claimed.contains_key(id) {
            return Err(Refusal::new(Reason::IdInUse));
        }
        if state.claimed.len() as u64 >= self.most {
            return Err(Refusal::over(Reason::InFlight, self.most, self.most.saturating_add(1)));
        }
        let charge = self.budget.try_charge(REQUEST_BYTES + 2 * id.heap_bytes())?;
        state.claimed.insert(id.clone(), false);
        state.unclaimed += 1;
        drop(state);
        Ok(InFlight { admitted: Some(Admitted { table: self.clone(), id: id.clone(), _charge: charge }) })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().claimed.len()
    }

    /// Waits until every request has its answer queued. For one who waits.
    pub(crate) async fn all_claimed(&self) {
        while self.lock().unclaimed > 0 {
            self.all_claimed.notified().await;
        }
    }

    /// Claims every request that nobody has claimed, so that it is answered once and not again by who holds it.
    pub(crate) fn claim_rest(&self) -> Vec<Id> {
        let mut state = self.lock();
        state.unclaimed = 0;
        let rest = state.claimed.iter_mut().filter(|(_, claimed)| !**claimed);
        rest.map(|(id, claimed)| {
            *claimed = true;
            id.clone()
        })
        .collect()
    }

    /// Claims one; `false` when it is claimed already.
    fn claim(&self, id: &Id) -> bool {
        let mut state = self.lock();
        let is_first = state.claimed.get_mut(id).is_some_and(|claimed| !std::mem::replace(claimed, true));
        if is_first {
            self.one_less_unclaimed(&mut state);
        }
        is_first
    }

    fn remove(&self, id: &Id) {
        let mut state = self.lock();
        if state.claimed.remove(id) == Some(false) {
            self.one_less_unclaimed(&mut state);
        }
    }

    fn one_less_unclaimed(&self, state: &mut State) {
        state.unclaimed = state.unclaimed.saturating_sub(1);
        if state.unclaimed == 0 {
            self.all_claimed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One admitted request; no longer in flight when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    // `None` once it was handed on.
    admitted: Option<Admitted>,
}

#[derive(Debug)]
struct Admitted {
    table: Arc<InFlightTable>,
    id: Id,
    _charge: Charge,
}

impl InFlight {
    pub(crate) fn is_none(&self) -> bool {
        self.admitted.is_none()
    }

    /// The right to answer the request, once: to be kept until the answer is written. `None` when it was answered.
    pub(crate) fn claim(&mut self) -> Option<Self> {
        let admitted = self.admitted.take()?;
        let is_first = admitted.table.claim(&admitted.id);
        let claimed = Self { admitted: Some(admitted) };
        is_first.then_some(claimed)
    }

    pub(crate) fn id(&self) -> &Id {
        static NOBODY: std::sync::LazyLock<Id> = std::sync::LazyLock::new(|| Id::from(-1));
        self.admitted.as_ref().map_or(&NOBODY, |admitted| &admitted.id)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            admitted.table.remove(&admitted.id);
        }
    }
}
