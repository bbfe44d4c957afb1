//! Which containers are open: a bit for each, and where each object's keys begin.

use crate::budget::{Charge, NoRoom};

/// The open containers, innermost last.
#[derive(Debug, Default)]
pub(super) struct Containers {
    // A bit a container, set for an object, the innermost lowest: of the innermost 1 to 128 containers. So no room is
    // ever needed for those: a message that is refused for want of room can still be followed.
    near: u128,
    // The words of the containers around those.
    far: Vec<u128>,
    // For each open object the number of keys that belong to the ones around it; none once they are forgotten.
    bases: Vec<u32>,
    depth: usize,
}

/// One more than are open at once by default.
const NEAR: usize = 128;

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
    #[inline(always)]
    pub(super) fn open(&mut self, object: bool, charge: &mut Charge) -> Result<(), NoRoom> {
        if self.depth.is_multiple_of(NEAR) && self.depth > 0 {
            self.spill(charge)?;
        }
        self.near = self.near << 1 | u128::from(object);
        self.depth += 1;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, charge: &mut Charge) -> Result<(), NoRoom> {
        if self.far.len() == self.far.capacity() {
            reserve(&mut self.far, charge)?;
        }
        self.far.push(self.near);
        Ok(())
    }

    /// Closes the innermost container.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        if self.in_object() {
            self.bases.pop();
        }
        self.near >>= 1;
        self.depth = self.depth.saturating_sub(1);
        if self.depth.is_multiple_of(NEAR) && self.depth > 0 {
            self.near = self.far.pop().unwrap_or_default();
        }
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
    #[inline(always)]
    pub(super) fn in_object(&self) -> bool {
        self.near & 1 == 1
    }

    pub(super) fn reset(&mut self, charge: &mut Charge) {
        self.depth = 0;
        self.near = 0;
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
