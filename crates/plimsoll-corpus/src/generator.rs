//! A text that is described and not held.
//!
//! A [`Generator`] is a short list of parts: a text repeated some number of times, or units that are written from a
//! counter. It is read as [`std::io::Read`] or as an iterator of pieces; both give the same bytes, always. Its length
//! is known before the first byte is made, so that a `Content-Length` can be announced truthfully.
//!
//! It holds its parts, one unit of a counted part, and nothing else. A caller's piece is the caller's.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;

/// The most bytes in one piece of [`Generator`]'s iterator.
pub const PIECE_BYTES: usize = 8 * 1024;

/// A text, streamed. Cloning it gives one that goes on from the same byte.
#[derive(Clone, Debug, Default)]
pub struct Generator {
    parts: VecDeque<Part>,
    /// Equal to the sum of what the parts have yet to give.
    remaining_bytes: u64,
}

impl Generator {
    /// How many bytes are yet to come; exact.
    pub fn remaining_bytes(&self) -> u64 {
        self.remaining_bytes
    }

    /// Fills as much of `out` as there is text for, and says how much that was. Zero means the end, unless `out` is
    /// empty.
    pub fn fill(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            let Some(part) = self.parts.front_mut() else { break };
            match part.fill(&mut out[filled..]) {
                0 => drop(self.parts.pop_front()),
                some => filled += some,
            }
        }
        self.remaining_bytes -= filled as u64;
        filled
    }

    /// The whole text in memory, for tests and for messages that are known to be small.
    pub fn into_bytes(mut self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX)];
        let filled = self.fill(&mut bytes);
        bytes.truncate(filled);
        bytes
    }

    /// Adds `text` at the end.
    #[must_use]
    pub fn text(self, text: impl Into<Cow<'static, [u8]>>) -> Self {
        self.repeat(text, 1)
    }

    /// Adds `unit`, `times` times, at the end.
    #[must_use]
    pub fn repeat(mut self, unit: impl Into<Cow<'static, [u8]>>, times: usize) -> Self {
        let unit = unit.into();
        if !unit.is_empty() && times > 0 {
            self.remaining_bytes += unit.len() as u64 * times as u64;
            self.parts.push_back(Part::Repeat { unit, times, offset: 0 });
        }
        self
    }

    /// Adds the units of a counter, each from its index, with `separator` between two of them.
    ///
    /// The units are written once here to learn their length, and again when they are read.
    #[must_use]
    pub fn counted(mut self, units: usize, separator: &'static str, write: WriteUnit) -> Self {
        let mut part = Counted { next: 0, units, separator, write, unit: Vec::new(), offset: 0 };
        while part.advance() {
            self.remaining_bytes += part.unit.len() as u64;
        }
        part.next = 0;
        part.unit.clear();
        self.parts.push_back(Part::Counted(part));
        self
    }

    /// Adds all of `other` at the end.
    #[must_use]
    pub fn then(mut self, other: Generator) -> Self {
        self.remaining_bytes += other.remaining_bytes;
        self.parts.extend(other.parts);
        self
    }
}

impl io::Read for Generator {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.fill(out))
    }
}

/// Pieces of [`PIECE_BYTES`], the last one shorter. No piece is empty.
impl Iterator for Generator {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let size = self.remaining_bytes.min(PIECE_BYTES as u64) as usize;
        if size == 0 {
            return None;
        }
        let mut piece = vec![0; size];
        let filled = self.fill(&mut piece);
        debug_assert_eq!(filled, size);
        Some(piece)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let pieces = usize::try_from(self.remaining_bytes.div_ceil(PIECE_BYTES as u64)).unwrap_or(usize::MAX);
        (pieces, Some(pieces))
    }
}

impl ExactSizeIterator for Generator {}
impl std::iter::FusedIterator for Generator {}

/// Writes the unit with this index at the end of the buffer.
pub type WriteUnit = fn(usize, &mut Vec<u8>);

/// How many units of a counter fit into `bytes`, with `separator` between two of them.
pub(crate) fn counted_that_fit(bytes: usize, separator: &'static str, write: WriteUnit) -> usize {
    let mut part = Counted { next: 0, units: usize::MAX, separator, write, unit: Vec::new(), offset: 0 };
    let mut used = 0;
    while part.advance() {
        used += part.unit.len();
        if used > bytes {
            break;
        }
    }
    part.next - 1
}

#[derive(Clone, Debug)]
enum Part {
    Counted(Counted),
    /// `offset < unit.len()`: how much of the current unit is out.
    Repeat {
        unit: Cow<'static, [u8]>,
        times: usize,
        offset: usize,
    },
}

impl Part {
    /// Fills `out` as far as it goes. Zero means that the part is at its end.
    fn fill(&mut self, out: &mut [u8]) -> usize {
        match self {
            Part::Counted(counted) => counted.fill(out),
            Part::Repeat { unit, times, offset } => {
                let left = unit.len().saturating_mul(*times) - *offset;
                let size = left.min(out.len());
                fill_repeated(&mut out[..size], unit, *offset);
                *times -= (*offset + size) / unit.len();
                *offset = (*offset + size) % unit.len();
                size
            }
        }
    }
}

/// Fills `out` with `unit` again and again, from `offset` on. Doubles what it has, so that a unit of one byte is not
/// one copy a byte.
fn fill_repeated(out: &mut [u8], unit: &[u8], offset: usize) {
    let head = (unit.len() - offset).min(out.len());
    out[..head].copy_from_slice(&unit[offset..offset + head]);
    let rest = &mut out[head..];
    let mut filled = unit.len().min(rest.len());
    rest[..filled].copy_from_slice(&unit[..filled]);
    while filled < rest.len() {
        let more = filled.min(rest.len() - filled);
        rest.copy_within(..more, filled);
        filled += more;
    }
}

#[derive(Clone, Debug)]
struct Counted {
    /// The index of the unit after the one in `unit`.
    next: usize,
    units: usize,
    separator: &'static str,
    write: WriteUnit,
    /// The current unit with its separator; `offset <= unit.len()`.
    unit: Vec<u8>,
    offset: usize,
}

impl Counted {
    fn fill(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            if self.offset == self.unit.len() && !self.advance() {
                break;
            }
            let size = (self.unit.len() - self.offset).min(out.len() - filled);
            out[filled..filled + size].copy_from_slice(&self.unit[self.offset..self.offset + size]);
            self.offset += size;
            filled += size;
        }
        filled
    }

    /// Makes the next unit the current one; false at the end.
    fn advance(&mut self) -> bool {
        if self.next == self.units {
            return false;
        }
        self.unit.clear();
        self.offset = 0;
        if self.next > 0 {
            self.unit.extend_from_slice(self.separator.as_bytes());
        }
        (self.write)(self.next, &mut self.unit);
        debug_assert!(!self.unit.is_empty(), "an empty unit would end the part early");
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn sample() -> Generator {
        Generator::default()
            .text(&b"<"[..])
            .repeat(&b"abc"[..], 5_000)
            .counted(3_000, ",", |index, out| out.extend_from_slice(index.to_string().as_bytes()))
            .repeat(&b"z"[..], 0)
            .text(&b">"[..])
    }

    #[test]
    fn reading_and_iterating_give_the_same_bytes() {
        let whole = sample().into_bytes();
        assert_eq!(whole.len() as u64, sample().remaining_bytes());
        assert!(whole.starts_with(b"<abcabc") && whole.ends_with(b",2998,2999>"));
        assert_eq!(sample().flatten().collect::<Vec<u8>>(), whole);

        for size in [1, 2, 3, 7, 1_000] {
            let (mut read, mut buffer, mut generator) = (Vec::new(), vec![0; size], sample());
            loop {
                let count = generator.read(&mut buffer).expect("memory does not fail");
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&buffer[..count]);
            }
            assert!(read == whole, "read {size} bytes at a time");
        }
    }

    #[test]
    fn the_length_is_right_at_every_byte() {
        let mut generator = sample();
        let mut left = generator.remaining_bytes();
        while generator.fill(&mut [0]) == 1 {
            left -= 1;
            assert_eq!(generator.remaining_bytes(), left);
        }
        assert_eq!(left, 0);
    }

    #[test]
    fn pieces_are_bounded_and_counted() {
        let pieces = sample();
        let announced = pieces.len();
        let pieces: Vec<Vec<u8>> = pieces.collect();
        assert_eq!(pieces.len(), announced);
        assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= PIECE_BYTES));
    }

    #[test]
    fn counted_units_fit_exactly() {
        let write: WriteUnit = |index, out| out.extend_from_slice(index.to_string().as_bytes());
        assert_eq!(counted_that_fit(0, ",", write), 0);
        assert_eq!(counted_that_fit(1, ",", write), 1);
        assert_eq!(counted_that_fit(2, ",", write), 1);
        assert_eq!(counted_that_fit(3, ",", write), 2);
        assert_eq!(counted_that_fit(19, ",", write), 10);
        assert_eq!(counted_that_fit(22, ",", write), 11);
    }
}
