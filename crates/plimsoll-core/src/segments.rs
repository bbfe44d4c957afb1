//! The bytes of one frame: a chain of segments that double from 4 KiB to 64 KiB and then stay at 64 KiB.
//!
//! A chain never copies what it holds to grow, so its peak is its length plus at most one segment of slack; the usual
//! message is one segment, a plain slice. Every segment is charged before it is allocated. Offsets find their segment
//! by arithmetic, because all sizes but a lone first one are fixed.

use crate::budget::{Budget, Charge, NoRoom};

/// Bytes that can be read a contiguous run at a time, by offset.
pub trait Source {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest contiguous run that starts at `at`; empty exactly when `at >= len()`.
    fn run(&self, at: usize) -> &[u8];

    /// `start..end` as one slice, if it lies in one run.
    fn slice(&self, start: usize, end: usize) -> Option<&[u8]> {
        self.run(start).get(..end.checked_sub(start)?)
    }

    /// The bytes of `start..end`, run by run.
    fn runs(&self, start: usize, end: usize) -> Runs<'_, Self> {
        Runs { source: self, at: start, end: end.min(self.len()) }
    }
}

impl Source for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn run(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
}

/// The runs of a part of a [`Source`], in order.
#[derive(Debug)]
pub struct Runs<'a, S: ?Sized> {
    source: &'a S,
    at: usize,
    end: usize,
}

impl<S: ?Sized> Clone for Runs<'_, S> {
    fn clone(&self) -> Self {
        Self { source: self.source, at: self.at, end: self.end }
    }
}

impl<'a, S: Source + ?Sized> Iterator for Runs<'a, S> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.end {
            return None;
        }
        let run = self.source.run(self.at);
        let run = run.get(..self.end - self.at).unwrap_or(run);
        self.at += run.len();
        if run.is_empty() { None } else { Some(run) }
    }
}

/// A chain of segments, with the charge that pays for them.
#[derive(Debug)]
pub struct Segments {
    // 4 KiB, or less when it is the only one.
    first: Vec<u8>,
    // 8, 16, 32, 64, 64, ... KiB; all but the last are full, and so is `first` when there are any.
    rest: Vec<Vec<u8>>,
    // The sum of the lengths.
    len: usize,
    // Covers every segment's capacity and its place in `rest`.
    charge: Charge,
}

const FIRST: usize = 4 * 1024;
const LARGEST: usize = 64 * 1024;
/// Where the first segment of 64 KiB begins: 4 + 8 + 16 + 32 KiB.
const LEVEL: usize = LARGEST - FIRST;
const DOUBLINGS: usize = 4;
/// What one segment costs beside its bytes: its place in the chain, which begins with four and doubles, old and new
/// counted.
const PLACE: u64 = 4 * size_of::<Vec<u8>>() as u64;

impl Segments {
    /// No bytes, and nothing allocated.
    pub fn new(budget: &Budget) -> Self {
        Self { first: Vec::new(), rest: Vec::new(), len: 0, charge: budget.empty_charge() }
    }

    /// Appends as much of `bytes` as fits without waiting and returns how much that was: up to the end of a segment.
    /// `whole` says that `bytes` is all there will ever be, so that a small frame takes no more than its size.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] when a new segment is needed and cannot be charged; nothing was appended then.
    pub fn append(&mut self, bytes: &[u8], whole: bool) -> Result<usize, NoRoom> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let last = self.rest.last().unwrap_or(&self.first);
        if last.len() == last.capacity() {
            self.grow(bytes.len(), whole)?;
        }
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        let taken = bytes.len().min(last.capacity() - last.len());
        last.extend_from_slice(&bytes[..taken]);
        self.len += taken;
        Ok(taken)
    }

    fn grow(&mut self, wanted: usize, whole: bool) -> Result<(), NoRoom> {
        if self.first.is_empty() {
            let size = if whole { wanted.min(FIRST) } else { FIRST };
            self.charge.try_grow(size as u64)?;
            self.first.reserve_exact(size);
            return Ok(());
        }
        let size = LARGEST.min(FIRST << (self.rest.len() + 1).min(DOUBLINGS));
        self.charge.try_grow(size as u64 + PLACE)?;
        self.rest.push(Vec::with_capacity(size));
        Ok(())
    }

    /// Bytes charged for this chain.
    pub fn charged(&self) -> u64 {
        self.charge.bytes()
    }

    /// All bytes as one slice, if they lie in one segment.
    pub fn as_slice(&self) -> Option<&[u8]> {
        if self.rest.is_empty() { Some(&self.first) } else { None }
    }

    /// The segment that holds offset `at`, and the offset of its first byte.
    fn locate(at: usize) -> (usize, usize) {
        if at < LEVEL {
            let index = (at / FIRST + 1).ilog2() as usize;
            (index, FIRST * ((1 << index) - 1))
        } else {
            let beyond = (at - LEVEL) / LARGEST;
            (DOUBLINGS + beyond, LEVEL + beyond * LARGEST)
        }
    }
}

impl Source for Segments {
    fn len(&self) -> usize {
        self.len
    }

    fn run(&self, at: usize) -> &[u8] {
        if let Some(run) = self.first.get(at..)
            && !run.is_empty()
        {
            return run;
        }
        let (index, start) = Self::locate(at);
        let segment = index.checked_sub(1).and_then(|index| self.rest.get(index));
        segment.and_then(|segment| segment.get(at - start..)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Bound;

    fn filled(len: usize, piece: usize) -> Segments {
        let budget = Budget::new(Bound::Unbounded);
        let mut segments = Segments::new(&budget);
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        for mut chunk in bytes.chunks(piece) {
            while !chunk.is_empty() {
                let taken = segments.append(chunk, false).unwrap();
                chunk = &chunk[taken..];
            }
        }
        segments
    }

    #[test]
    fn every_offset_finds_its_byte() {
        for len in [0, 1, 4095, 4096, 4097, 12_288, 61_440, 61_441, 126_976, 200_001] {
            let segments = filled(len, 977);
            assert_eq!(segments.len(), len);
            for at in 0..len {
                assert_eq!(segments.run(at)[0], (at % 251) as u8, "at {at} of {len}");
            }
            assert!(segments.run(len).is_empty());
            let joined: Vec<u8> = segments.runs(0, len).flatten().copied().collect();
            assert_eq!(joined.len(), len);
        }
    }

    #[test]
    fn slack_is_at_most_one_segment_and_nothing_is_copied_to_grow() {
        let segments = filled(300_000, 8192);
        assert!(segments.charged() < 300_000 + 64 * 1024 + 9 * PLACE);
        assert!(segments.as_slice().is_none());
        assert!(filled(4096, 100).as_slice().is_some());
    }

    #[test]
    fn a_small_frame_whose_end_is_in_sight_takes_its_own_size() {
        let budget = Budget::new(Bound::Unbounded);
        let mut segments = Segments::new(&budget);
        segments.append(b"{\"method\":\"m\"}", true).unwrap();
        assert_eq!(segments.charged(), 14);
    }

    #[test]
    fn a_segment_that_cannot_be_charged_is_not_allocated() {
        let budget = Budget::new(Bound::at_most(10_000));
        let mut segments = Segments::new(&budget);
        assert_eq!(segments.append(&[7; 9000], false).unwrap(), 4096);
        assert!(segments.append(&[7; 9000], false).is_err());
        assert_eq!(segments.len(), 4096);
        drop(segments);
        assert_eq!(budget.held(), 0);
    }
}
