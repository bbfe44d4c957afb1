//! A queue bounded in bytes: who finds no room waits in line.
//!
//! An item's room is held until the item is dropped, not until it is taken: so what is being written or handled counts
//! too. An item larger than the whole queue goes when the queue is empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::Bound;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ByteQueue<T> {
    room: Arc<Semaphore>,
    // In permits of one byte; what tokio can count is enough for any queue.
    capacity: u32,
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<Queued<T>>,
    closed: bool,
}

/// An item and the room it holds.
#[derive(Debug)]
pub(crate) struct Queued<T> {
    pub(crate) item: T,
    pub(crate) _room: Option<Room>,
}

/// Room in a queue, given back on drop.
#[derive(Debug)]
pub(crate) struct Room(#[allow(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

impl<T> Queued<T> {
    /// Another item in the same room.
    pub(crate) fn replace<U>(self, item: U) -> Queued<U> {
        Queued { item, _room: self._room }
    }
}

/// The queue was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl<T> ByteQueue<T> {
    /// What an item costs beside its bytes: its place in the list, old and new while that grows.
    pub(crate) const PLACE: usize = 3 * size_of::<Queued<T>>();

    pub(crate) fn new(bytes: Bound) -> Self {
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let capacity = u32::try_from(bytes.ceiling()).unwrap_or(most).min(most);
        Self {
            room: Arc::new(Semaphore::new(capacity as usize)),
            capacity,
            state: Mutex::new(State { items: VecDeque::new(), closed: false }),
            changed: Notify::new(),
        }
    }

    /// Waits for room for `bytes`, for an item that is queued later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Room, Closed> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.capacity);
        self.room.clone().acquire_many_owned(permits).await.map(Room).map_err(|_| Closed)
    }

    /// Queues an item in room that was reserved, or in none when room was made for it elsewhere.
    pub(crate) fn queue(&self, item: T, room: Option<Room>) -> Result<(), Closed> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(Closed);
        }
        state.items.push_back(Queued { item, _room: room });
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The next item, if there is one.
    pub(crate) fn try_pop(&self) -> Option<Queued<T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let item = state.items.pop_front();
        if state.items.is_empty() && state.items.capacity() > 64 {
            state.items.shrink_to(16);
        }
        item
    }

    /// Waits for the next item; `None` once the queue is closed and empty. For one consumer.
    ///
    /// # Cancel safety
    ///
    /// An item is taken only when it is returned.
    pub(crate) async fn pop(&self) -> Option<Queued<T>> {
        loop {
            if let Some(item) = self.try_pop() {
                return Some(item);
            }
            if self.is_closed() {
                return None;
            }
            self.ready().await;
        }
    }

    /// Waits until there may be an item, or the queue is closed. For one consumer, which has looked before.
    pub(crate) async fn ready(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).items.is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Nothing more is queued, and who waits for room is told; what is queued can still be taken.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.room.close();
        self.changed.notify_one();
    }

    /// Closes the queue and takes all that it holds.
    pub(crate) fn close_and_take(&self) -> VecDeque<Queued<T>> {
        self.close();
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> ByteQueue<T> {
        async fn push(&self, item: T, bytes: usize) -> Result<(), Closed> {
            let room = self.reserve(bytes).await?;
            self.queue(item, Some(room))
        }
    }

    fn queue(bytes: u64) -> Arc<ByteQueue<u32>> {
        Arc::new(ByteQueue::new(Bound::at_most(bytes)))
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_until_an_item_is_dropped() {
        let queue = queue(10);
        queue.push(1, 6).await.unwrap();
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push(2, 6).await }
        });
        tokio::task::yield_now().await;
        let first = queue.pop().await.unwrap();
        tokio::task::yield_now().await;
        assert!(queue.is_empty(), "taking an item alone makes no room");
        drop(first);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(queue.pop().await.unwrap().item, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_larger_than_the_queue_goes_when_the_queue_is_empty() {
        let queue = queue(10);
        queue.push(1, 1_000).await.unwrap();
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), queue.push(2, 1)).await.is_err());
        drop(queue.pop().await);
        queue.push(3, 1).await.unwrap();
        assert_eq!(queue.pop().await.unwrap().item, 3, "a push that was given up left nothing behind");
    }

    #[tokio::test]
    async fn a_closed_queue_hands_out_what_it_holds_and_takes_nothing_more() {
        let queue = queue(10);
        queue.push(1, 10).await.unwrap();
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push(2, 1).await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(waiting.await.unwrap(), Err(Closed));
        assert_eq!(queue.queue(3, None), Err(Closed));
        assert_eq!(queue.pop().await.map(|queued| queued.item), Some(1));
        assert!(queue.pop().await.is_none());
    }
}
