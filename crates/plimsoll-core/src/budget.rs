//! The load line: a tree of byte counts, and charges that hold a part of it.
//!
//! A [`Budget`] is a node: the process at the root, connections and sessions as leaves. A [`Charge`] on a leaf is a
//! charge on every ancestor, all or nothing. It moves with what it pays for and gives back on drop, so a cancelled
//! future or a panic leaks nothing. Charge *before* allocating, and charge capacity, not length.
//!
//! **What this file does not do.** It does not wait: [`Budget::try_charge`] answers at once. Waiting in line and
//! asking memory back belong to the same lock, [`Tree`], which is where they will stand.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::Bound;

/// A node of the budget tree. Cloning gives another handle to the same node.
#[derive(Clone)]
pub struct Budget {
    node: Arc<Node>,
}

/// One lock for a whole tree: a charge changes every level or none, and no reader ever sees half of one.
#[derive(Default)]
struct Tree {
    lock: Mutex<()>,
}

struct Node {
    tree: Arc<Tree>,
    parent: Option<Arc<Node>>,
    // held <= limit, and held >= the sum of the children's held; written under `tree.lock` alone.
    limit: u64,
    held: AtomicU64,
    // The most that `held` ever was.
    peak: AtomicU64,
}

impl Node {
    fn lineage(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    fn take(&self, bytes: u64) -> Result<(), NoRoom> {
        let _guard = self.tree.lock.lock().unwrap_or_else(PoisonError::into_inner);
        for (level, node) in self.lineage().enumerate() {
            let held = node.held.load(Ordering::Relaxed);
            if held.checked_add(bytes).is_none_or(|sum| sum > node.limit) {
                let scope = if node.parent.is_none() { Scope::Process } else { Scope::of_level(level) };
                return Err(NoRoom { scope, limit: node.limit, held, asked: bytes });
            }
        }
        for node in self.lineage() {
            let held = node.held.load(Ordering::Relaxed) + bytes;
            node.held.store(held, Ordering::Relaxed);
            node.peak.fetch_max(held, Ordering::Relaxed);
        }
        Ok(())
    }

    fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let _guard = self.tree.lock.lock().unwrap_or_else(PoisonError::into_inner);
        for node in self.lineage() {
            let held = node.held.load(Ordering::Relaxed);
            debug_assert!(held >= bytes, "more is given back than was taken");
            node.held.store(held.saturating_sub(bytes), Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// The root of a tree: a process that holds at most `memory` bytes on behalf of its peers.
    pub fn new(memory: Bound) -> Self {
        Self { node: Arc::new(Node::new(Arc::default(), None, memory)) }
    }

    /// A child of this node with a cap of its own: a listener, a tenant, a connection or a session.
    #[must_use]
    pub fn child(&self, cap: Bound) -> Self {
        Self { node: Arc::new(Node::new(self.node.tree.clone(), Some(self.node.clone()), cap)) }
    }

    /// Charges `bytes` here and on every ancestor, or nowhere.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] names the level that had no room, its limit and what it held.
    pub fn try_charge(&self, bytes: u64) -> Result<Charge, NoRoom> {
        if bytes > 0 {
            self.node.take(bytes)?;
        }
        Ok(Charge { node: self.node.clone(), bytes })
    }

    /// A charge of nothing, to be grown later.
    pub fn empty_charge(&self) -> Charge {
        Charge { node: self.node.clone(), bytes: 0 }
    }

    /// Bytes held here and below, now.
    pub fn held(&self) -> u64 {
        self.node.held.load(Ordering::Relaxed)
    }

    /// The most bytes ever held here and below at once.
    pub fn peak(&self) -> u64 {
        self.node.peak.load(Ordering::Relaxed)
    }

    /// The bound of this node.
    pub fn limit(&self) -> u64 {
        self.node.limit
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("held", &self.held()).field("limit", &self.limit()).finish_non_exhaustive()
    }
}

impl Node {
    fn new(tree: Arc<Tree>, parent: Option<Arc<Node>>, limit: Bound) -> Self {
        Self { tree, parent, limit: limit.ceiling(), held: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }
}

/// A part of a budget, held until it is dropped.
#[must_use = "a charge gives back when it is dropped"]
pub struct Charge {
    node: Arc<Node>,
    // Part of `node.held` and of every ancestor's.
    bytes: u64,
}

impl Charge {
    /// Bytes held by this charge.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes, all or nothing.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; the charge is then unchanged.
    pub fn try_grow(&mut self, more: u64) -> Result<(), NoRoom> {
        self.node.take(more)?;
        self.bytes += more;
        Ok(())
    }

    /// Makes this charge `bytes` large: gives back at once, or takes all or nothing.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; the charge is then unchanged.
    pub fn try_resize(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if bytes > self.bytes {
            self.try_grow(bytes - self.bytes)
        } else {
            self.shrink(self.bytes - bytes);
            Ok(())
        }
    }

    /// Gives back `less` bytes, at most all.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        self.node.give(less);
    }

    /// Moves `bytes` of this charge, at most all, into a charge of their own.
    pub fn split(&mut self, bytes: u64) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { node: self.node.clone(), bytes }
    }

    /// Moves all of `other` into this charge.
    ///
    /// # Errors
    ///
    /// `other` itself, when it is a charge on another node: nothing changes parents.
    pub fn merge(&mut self, mut other: Charge) -> Result<(), Charge> {
        if !Arc::ptr_eq(&self.node, &other.node) {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.node.give(self.bytes);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Which level of the tree had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The connection's own cap.
    Connection,
    /// A listener's or tenant's cap, between connection and process.
    Group,
    /// The load line itself.
    Process,
}

impl Scope {
    fn of_level(level: usize) -> Self {
        if level == 0 { Self::Connection } else { Self::Group }
    }

    /// The word for error data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Group => "group",
            Self::Process => "process",
        }
    }
}

/// There is no room for a charge, here or on an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {asked} more bytes: the {} holds {held} of {limit}", scope.word())]
pub struct NoRoom {
    /// Which level had no room.
    pub scope: Scope,
    /// That level's limit in bytes.
    pub limit: u64,
    /// What it held when asked, in bytes.
    pub held: u64,
    /// What was asked for, in bytes.
    pub asked: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_held_on_every_level_and_given_back_on_drop() {
        let process = Budget::new(Bound::at_most(100));
        let connection = process.child(Bound::at_most(60));
        let charge = connection.try_charge(50).unwrap();
        assert_eq!((process.held(), connection.held()), (50, 50));
        drop(charge);
        assert_eq!((process.held(), connection.held()), (0, 0));
        assert_eq!((process.peak(), connection.peak()), (50, 50));
    }

    #[test]
    fn a_charge_that_an_ancestor_refuses_is_held_nowhere_and_names_the_level() {
        let process = Budget::new(Bound::at_most(100));
        let [one, other] = [process.child(Bound::at_most(80)), process.child(Bound::at_most(80))];
        let _held = one.try_charge(70).unwrap();
        let refused = other.try_charge(40).unwrap_err();
        assert_eq!(refused, NoRoom { scope: Scope::Process, limit: 100, held: 70, asked: 40 });
        assert_eq!(other.held(), 0);
        assert_eq!(one.try_charge(11).unwrap_err().scope, Scope::Connection);
    }

    #[test]
    fn split_merge_and_resize_keep_the_sum() {
        let process = Budget::new(Bound::at_most(100));
        let leaf = process.child(Bound::Unbounded);
        let mut charge = leaf.try_charge(30).unwrap();
        let part = charge.split(10);
        assert_eq!((charge.bytes(), part.bytes(), leaf.held()), (20, 10, 30));
        charge.merge(part).unwrap();
        charge.try_resize(90).unwrap();
        assert!(charge.try_resize(101).is_err());
        assert_eq!((charge.bytes(), leaf.held()), (90, 90));
        charge.try_resize(5).unwrap();
        assert_eq!(process.held(), 5);
        let foreign = process.child(Bound::Unbounded).try_charge(1).unwrap();
        assert!(charge.merge(foreign).is_err(), "nothing changes parents");
        assert_eq!(process.held(), 5);
    }

    #[test]
    fn arithmetic_at_the_edge_refuses_and_does_not_wrap() {
        let leaf = Budget::new(Bound::Unbounded);
        let mut charge = leaf.try_charge(u64::MAX - 1).unwrap();
        assert!(leaf.try_charge(2).is_err());
        assert!(charge.try_grow(u64::MAX).is_err());
        charge.shrink(u64::MAX);
        assert_eq!(leaf.held(), 0);
    }
}
