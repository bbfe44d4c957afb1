//! Which containers are open: a bit for each, and where each object's keys begin.

use crate::budget::{Charge, NoRoom};

/// The open containers, innermost last.
#[derive(Debug, Default)]
pub(super) struct Containers {
    // A bit a container, set for an object. The outermost ones have theirs here, so that no room is ever needed for
    // them: a message that is refused for want of room can still be followed.
    near: [u64; NEAR],
    // The words beyond `near`, as many as `depth` needs.
    far: Vec<u64>,
    // For each open object the number of keys that belong to the ones around it; none once they are forgotten.
    bases: Vec<u32>,
    depth: usize,
}

/// Words for 128 containers, one more than are open at once by default.
const NEAR: usize = 2;

/// More than this is given back when a message has ended.
const KEPT: usize = 256;

impl Containers {
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    pub(super) fn open_object(&mut self, keys: usize, charge: &mut Charge) -> Result<(), NoRoom> {
        if self.bases.len() == self.bases.capacity() {
            reserve(&mut self.bases, charge)?;
        }
        self.open(true, charge)?;
        self.bases.push(keys as u32);
        Ok(())
    }

    /// Opens an array, or an object whose keys do not matter.
    #[inline]
    pub(super) fn open(&mut self, object: bool, charge: &mut Charge) -> Result<(), NoRoom> {
        let index = self.depth / 64;
        if index == NEAR + self.far.len() {
            if self.far.len() == self.far.capacity() {
                reserve(&mut self.far, charge)?;
            }
            self.far.push(0);
        }
        let word = match self.near.get_mut(index) {
            Some(word) => Some(word),
            None => self.far.get_mut(index - NEAR),
        };
        let bit = 1 << (self.depth % 64);
        if let Some(word) = word {
            *word = if object { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
        Ok(())
    }

    /// Closes the innermost container.
    #[inline]
    pub(super) fn close(&mut self) {
        if self.in_object() {
            self.bases.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// No keys are kept any more, so nobody asks where they begin.
    pub(super) fn forget_keys(&mut self) {
        self.bases.clear();
    }

    /// Where the keys of the innermost container begin, if it is an object.
    #[inline]
    pub(super) fn base(&self) -> usize {
        self.bases.last().map_or(0, |base| *base as usize)
    }

    /// Whether the innermost container is an object.
    #[inline]
    pub(super) fn in_object(&self) -> bool {
        let Some(top) = self.depth.checked_sub(1) else { return false };
        let index = top / 64;
        let word = self.near.get(index).or_else(|| self.far.get(index - NEAR));
        word.is_some_and(|word| word >> (top % 64) & 1 == 1)
    }

    pub(super) fn reset(&mut self, charge: &mut Charge) {
        self.depth = 0;
        self.far.clear();
        self.bases.clear();
        give_back(&mut self.far, charge);
        give_back(&mut self.bases, charge);
    }
}

fn reserve<T>(list: &mut Vec<T>, charge: &mut Charge) -> Result<(), NoRoom> {
    let old = list.capacity();
    let new = (old * 2).max(8);
    charge.try_grow((new * size_of::<T>()) as u64)?;
    list.reserve_exact(new - list.len());
    charge.shrink((old * size_of::<T>()) as u64);
    Ok(())
}

fn give_back<T>(list: &mut Vec<T>, charge: &mut Charge) {
    if list.capacity() > KEPT {
        charge.shrink((list.capacity() * size_of::<T>()) as u64);
        *list = Vec::new();
    }
}
