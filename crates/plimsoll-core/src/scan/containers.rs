//! Which containers are open: a bit for each, and where each object's keys begin.

use crate::budget::{Charge, NoRoom};

/// The open containers, innermost last.
#[derive(Debug, Default)]
pub(super) struct Containers {
    // A bit a container, set for an object; ceil(depth / 64) words are in use.
    objects: Vec<u64>,
    // For each open object the number of keys that belong to the ones around it.
    bases: Vec<u32>,
    depth: usize,
}

/// More than this is given back when a message has ended.
const KEPT: usize = 256;

impl Containers {
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    pub(super) fn open_array(&mut self, charge: &mut Charge) -> Result<(), NoRoom> {
        self.open(false, charge)
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

    #[inline]
    fn open(&mut self, object: bool, charge: &mut Charge) -> Result<(), NoRoom> {
        let word = self.depth / 64;
        if word == self.objects.len() {
            if self.objects.len() == self.objects.capacity() {
                reserve(&mut self.objects, charge)?;
            }
            self.objects.push(0);
        }
        let bit = 1 << (self.depth % 64);
        if let Some(word) = self.objects.get_mut(word) {
            *word = if object { *word | bit } else { *word & !bit };
        }
        self.depth += 1;
        Ok(())
    }

    /// Closes the innermost container; for an object, says where its keys begin.
    #[inline]
    pub(super) fn close(&mut self) -> Option<usize> {
        let object = self.in_object();
        self.depth = self.depth.saturating_sub(1);
        if object { self.bases.pop().map(|base| base as usize) } else { None }
    }

    /// Where the keys of the innermost container begin, if it is an object.
    #[inline]
    pub(super) fn base(&self) -> usize {
        self.bases.last().map_or(0, |base| *base as usize)
    }

    /// Whether the innermost container is an object.
    #[inline]
    pub(super) fn in_object(&self) -> bool {
        self.depth
            .checked_sub(1)
            .and_then(|top| self.objects.get(top / 64).map(|word| word >> (top % 64) & 1 == 1))
            .unwrap_or(false)
    }

    pub(super) fn reset(&mut self, charge: &mut Charge) {
        self.depth = 0;
        self.objects.clear();
        self.bases.clear();
        give_back(&mut self.objects, charge);
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
