//! Requests of the peer that are not answered yet: how many, and under which ids.
//!
//! A request is in flight from its admission until the last byte of its reply is written, so admission cannot outrun
//! output. Its id cannot be used again before that.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{Bound, Budget, Charge, Id, Reason, Refusal};

/// What a request in flight costs beside its bytes: its task, its place in the table and its span.
const REQUEST_BYTES: u64 = 1024;

/// The table of one connection.
#[derive(Debug)]
pub(crate) struct InFlightTable {
    most: u64,
    budget: Budget,
    ids: Mutex<HashSet<Id>>,
}

impl InFlightTable {
    pub(crate) fn new(most: Bound, budget: &Budget) -> Self {
        Self { most: most.ceiling(), budget: budget.clone(), ids: Mutex::default() }
    }

    /// Admits a request, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, id: &Id) -> Result<InFlight, Refusal> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.contains(id) {
            return Err(Refusal::new(Reason::IdInUse));
        }
        if ids.len() as u64 >= self.most {
            return Err(Refusal::over(Reason::InFlight, self.most, self.most.saturating_add(1)));
        }
        let charge = self.budget.try_charge(REQUEST_BYTES + 2 * id.heap_bytes())?;
        ids.insert(id.clone());
        drop(ids);
        Ok(InFlight { admitted: Some((self.clone(), id.clone(), charge)) })
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One admitted request; no longer in flight when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    // `None` once it was handed on.
    admitted: Option<(Arc<InFlightTable>, Id, Charge)>,
}

impl InFlight {
    /// No request.
    pub(crate) fn none() -> Self {
        Self { admitted: None }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.admitted.is_none()
    }

    /// The same request, leaving none behind.
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.admitted.take().map(|admitted| Self { admitted: Some(admitted) })
    }

    pub(crate) fn id(&self) -> &Id {
        static NOBODY: std::sync::LazyLock<Id> = std::sync::LazyLock::new(|| Id::from(-1));
        self.admitted.as_ref().map_or(&NOBODY, |(_, id, _)| id)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some((table, id, _charge)) = self.admitted.take() {
            table.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }
}
