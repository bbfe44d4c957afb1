//! Repeated keys, found without copying a key and without a quadratic path.
//!
//! A key is kept as the range of its bytes and one word made of its first bytes, its last bytes and its length; two
//! equal keys have equal words, however they were escaped. When an object closes, its keys are compared: few of them
//! pairwise by their words, many by sorting a keyed hash of the words. Keys whose words are equal on purpose fall into
//! one run of that sort; a run is sorted once more by a keyed hash of the whole keys, and by the keys themselves if even
//! those are equal. So nobody gains by choosing keys: the worst is one more sort.
//!
//! Memory: 16 bytes a key of the objects open at once, in chunks that are never copied, and 8 bytes a key more while
//! one object is compared.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use crate::budget::{Charge, NoRoom};
use crate::segments::{Runs, Source};

/// Where a key stands in its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    word: u64,
    start: u32,
    // The top bit says that the key holds escapes.
    len: u32,
}

const ESCAPED: u32 = 1 << 31;
/// Large enough that the list of chunks of the most keys of a message is small beside 24 bytes a key.
const CHUNK: usize = 512;
const CHUNK_BYTES: u64 = (CHUNK * size_of::<Key>()) as u64;
/// A chunk's place in the list of chunks, which begins with four and doubles: old and new counted.
const CHUNK_PLACE: u64 = 4 * size_of::<Box<[Key; CHUNK]>>() as u64;
/// Up to this many keys are compared pairwise.
const FEW: usize = 16;

impl Key {
    /// The key whose raw bytes, without quotes, are `start..end` of `source`. `None` when it lies beyond 4 GiB.
    pub(super) fn new<S: Source + ?Sized>(source: &S, start: usize, end: usize, escaped: bool) -> Option<Self> {
        let len = u32::try_from(end - start).ok().filter(|len| len & ESCAPED == 0)?;
        let mut key = Self { word: 0, start: u32::try_from(start).ok()?, len: len | if escaped { ESCAPED } else { 0 } };
        key.word = match key.slice(source) {
            Some(slice) => word(slice),
            None => word_of_decoded(key.decoded(source)),
        };
        Some(key)
    }

    /// The key of these bytes, which hold no escape and start at `start`. `None` when it lies beyond 4 GiB.
    #[inline]
    pub(super) fn plain(bytes: &[u8], start: usize) -> Option<Self> {
        let len = u32::try_from(bytes.len()).ok().filter(|len| len & ESCAPED == 0)?;
        Some(Self { word: word(bytes), start: u32::try_from(start).ok()?, len })
    }

    /// The offset of the key's first byte.
    pub(super) fn start(self) -> u32 {
        self.start
    }

    fn range(self) -> (usize, usize) {
        let start = self.start as usize;
        (start, start + (self.len & !ESCAPED) as usize)
    }

    fn slice<S: Source + ?Sized>(self, source: &S) -> Option<&[u8]> {
        let (start, end) = self.range();
        if self.len & ESCAPED == 0 { source.slice(start, end) } else { None }
    }

    fn decoded<S: Source + ?Sized>(self, source: &S) -> Decoded<'_, S> {
        let (start, end) = self.range();
        Decoded { runs: source.runs(start, end), run: &[], escapes: self.len & ESCAPED != 0, pending: [0; 4], held: 0 }
    }

    fn same<S: Source + ?Sized>(self, other: Self, source: &S) -> bool {
        self.word == other.word
            && match (self.slice(source), other.slice(source)) {
                (Some(one), Some(two)) => one == two,
                _ => self.decoded(source).eq(other.decoded(source)),
            }
    }

    fn compare<S: Source + ?Sized>(self, other: Self, source: &S) -> Ordering {
        match (self.slice(source), other.slice(source)) {
            (Some(one), Some(two)) => one.cmp(two),
            _ => self.decoded(source).cmp(other.decoded(source)),
        }
    }

    fn content_hash<S: Source + ?Sized>(self, source: &S, seed: u64) -> u32 {
        let mut hash = ContentHash { hash: seed, block: [0; 8], len: 0 };
        if self.len & ESCAPED == 0 {
            let (start, end) = self.range();
            source.runs(start, end).for_each(|run| hash.push(run));
        } else {
            self.decoded(source).for_each(|byte| hash.push(&[byte]));
        }
        hash.finish()
    }
}

/// A keyed hash of what a key means, however its bytes come.
struct ContentHash {
    hash: u64,
    // The bytes that do not fill a block yet: the first `len % 8`, the rest zero.
    block: [u8; 8],
    len: usize,
}

impl ContentHash {
    fn push(&mut self, mut bytes: &[u8]) {
        let begun = self.len % 8;
        self.len += bytes.len();
        if begun > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(8 - begun));
            self.block[begun..begun + now.len()].copy_from_slice(now);
            bytes = later;
            if begun + now.len() < 8 {
                return;
            }
            self.mix(self.block);
            self.block = [0; 8];
        }
        let (blocks, rest) = bytes.as_chunks::<8>();
        blocks.iter().for_each(|block| self.mix(*block));
        self.block[..rest.len()].copy_from_slice(rest);
    }

    #[inline]
    fn mix(&mut self, block: [u8; 8]) {
        self.hash = fold(self.hash ^ u64::from_le_bytes(block), SPREAD);
    }

    fn finish(mut self) -> u32 {
        self.mix(self.block);
        (fold(self.hash ^ self.len as u64, SPREAD) >> 32) as u32
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    (product as u64) ^ (product >> 64) as u64
}

/// A seed that peers cannot know, one a process.
pub(super) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(SPREAD))
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let len = (bytes.len() as u64).wrapping_mul(SPREAD);
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29) ^ len
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32) ^ len
    } else {
        bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) ^ len
    }
}

/// The same word as [`word`], for bytes that come one at a time.
fn word_of_decoded(bytes: impl Iterator<Item = u8>) -> u64 {
    let mut first = [0; 8];
    let mut last = 0_u64;
    let mut len = 0_usize;
    for byte in bytes {
        if let Some(place) = first.get_mut(len) {
            *place = byte;
        }
        last = last >> 8 | u64::from(byte) << 56;
        len += 1;
    }
    match first.get(..len) {
        Some(all) => word(all),
        None => u64::from_le_bytes(first) ^ last.rotate_left(29) ^ (len as u64).wrapping_mul(SPREAD),
    }
}

/// The bytes that a key means: escapes decoded to UTF-8. The scanner has passed the key, so escapes are whole.
struct Decoded<'a, S: ?Sized> {
    runs: Runs<'a, S>,
    run: &'a [u8],
    escapes: bool,
    // Decoded bytes not handed out yet: the last `held` of `pending`.
    pending: [u8; 4],
    held: usize,
}

impl<S: Source + ?Sized> Decoded<'_, S> {
    #[inline]
    fn raw(&mut self) -> Option<u8> {
        if self.run.is_empty() {
            self.run = self.runs.next()?;
        }
        let (&byte, rest) = self.run.split_first()?;
        self.run = rest;
        Some(byte)
    }

    fn hex(&mut self) -> u32 {
        (0..4)
            .fold(0, |unit, _| unit << 4 | self.raw().and_then(|byte| (byte as char).to_digit(16)).unwrap_or_default())
    }

    fn escape(&mut self) -> Option<u8> {
        let unit = match self.raw()? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'u' => self.hex(),
            byte => u32::from(byte),
        };
        let character = if (0xd800..0xdc00).contains(&unit) {
            self.raw();
            self.raw();
            let low = self.hex();
            0x1_0000 + ((unit & 0x3ff) << 10 | low & 0x3ff)
        } else {
            unit
        };
        let mut buffer = [0; 4];
        let encoded = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut buffer);
        self.held = encoded.len() - 1;
        self.pending = [0; 4];
        self.pending[4 - self.held..].copy_from_slice(&encoded.as_bytes()[1..]);
        encoded.as_bytes().first().copied()
    }
}

impl<S: Source + ?Sized> Iterator for Decoded<'_, S> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.held > 0 {
            self.held -= 1;
            return Some(self.pending[3 - self.held]);
        }
        match self.raw()? {
            b'\\' if self.escapes => self.escape(),
            byte => Some(byte),
        }
    }
}

/// The keys of all objects that are open, innermost last.
#[derive(Debug, Default)]
pub(super) struct Keys {
    // Every chunk before `len / CHUNK` is full; one chunk may stand ready beyond it.
    #[allow(clippy::vec_box, reason = "a chunk must not move when the list grows")]
    chunks: Vec<Box<[Key; CHUNK]>>,
    len: usize,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn push(&mut self, key: Key, charge: &mut Charge) -> Result<(), NoRoom> {
        if self.len / CHUNK == self.chunks.len() {
            self.grow(charge)?;
        }
        if let Some(chunk) = self.chunks.get_mut(self.len / CHUNK) {
            // Word by word: to copy the key whole would wait for its parts to be stored.
            let place = &mut chunk[self.len % CHUNK];
            place.word = key.word;
            place.start = key.start;
            place.len = key.len;
        }
        self.len += 1;
        Ok(())
    }

    #[cold]
    fn grow(&mut self, charge: &mut Charge) -> Result<(), NoRoom> {
        charge.try_grow(CHUNK_BYTES + CHUNK_PLACE)?;
        self.chunks.push(Box::new([Key::default(); CHUNK]));
        Ok(())
    }

    /// Forgets the keys from `base` on; one chunk stays ready beside the keys that remain.
    #[inline]
    pub(super) fn truncate(&mut self, base: usize, charge: &mut Charge) {
        self.len = base;
        let keep = base / CHUNK + 1;
        if self.chunks.len() > keep + 1 {
            charge.shrink((self.chunks.len() - keep) as u64 * (CHUNK_BYTES + CHUNK_PLACE));
            self.chunks.truncate(keep);
            // Charged by the chunk, so the list must not stay larger than what it holds.
            self.chunks.shrink_to_fit();
        }
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.chunks.get(at / CHUNK).map(|chunk| chunk[at % CHUNK].word).unwrap_or_default()
    }

    fn get(&self, at: usize) -> Key {
        self.chunks.get(at / CHUNK).map(|chunk| chunk[at % CHUNK]).unwrap_or_default()
    }

    /// The first key from `base` on that repeats an earlier one of the same object.
    #[inline]
    pub(super) fn repeated<S>(&self, base: usize, source: &S, charge: &mut Charge) -> Result<Option<Key>, NoRoom>
    where
        S: Source + ?Sized,
    {
        match self.len - base {
            0 | 1 => Ok(None),
            2 if self.word(base) != self.word(base + 1) => Ok(None),
            2 => {
                let (one, two) = (self.get(base), self.get(base + 1));
                Ok(one.same(two, source).then_some(two))
            }
            few if few <= FEW => Ok(self.repeated_of_few(base, source)),
            _ => self.repeated_of_many(base, source, charge),
        }
    }

    fn repeated_of_few<S: Source + ?Sized>(&self, base: usize, source: &S) -> Option<Key> {
        let mut words = [0; FEW];
        for (at, place) in (base..self.len).zip(&mut words) {
            *place = self.word(at);
        }
        // Keys of equal words are hashed once each, so that long ones which are nearly equal are not read in pairs.
        let mut hashes = [None; FEW];
        let mut hash = |at: usize| *hashes[at].get_or_insert_with(|| self.get(base + at).content_hash(source, seed()));
        for late in 1..self.len - base {
            for early in 0..late {
                if words[early] == words[late] && hash(early) == hash(late) {
                    let key = self.get(base + late);
                    if self.get(base + early).same(key, source) {
                        return Some(key);
                    }
                }
            }
        }
        None
    }

    fn repeated_of_many<S>(&self, base: usize, source: &S, charge: &mut Charge) -> Result<Option<Key>, NoRoom>
    where
        S: Source + ?Sized,
    {
        let count = self.len - base;
        let scratch = (count * size_of::<u64>()) as u64;
        charge.try_grow(scratch)?;
        // A hash in the upper half, the key's place in the lower.
        let mut places = Vec::with_capacity(count);
        let seed = seed();
        for place in 0..count {
            let hash = fold(self.get(base + place).word ^ seed, SPREAD) & !0xffff_ffff;
            places.push(hash | place as u64);
        }
        places.sort_unstable();
        let mut found = None;
        for run in places.chunk_by_mut(|one, two| one >> 32 == two >> 32) {
            if run.len() > 1 {
                found = earlier(found, self.repeated_in_run(base, run, source, seed));
            }
        }
        drop(places);
        charge.shrink(scratch);
        Ok(found)
    }

    /// The same question for keys whose hashed words are equal.
    fn repeated_in_run<S>(&self, base: usize, run: &mut [u64], source: &S, seed: u64) -> Option<Key>
    where
        S: Source + ?Sized,
    {
        let key = |place: &u64| self.get(base + (*place & 0xffff_ffff) as usize);
        if run.len() == 2 {
            return self.repeated_pairwise(base, run, source);
        }
        for place in run.iter_mut() {
            let hash = u64::from(key(place).content_hash(source, seed));
            *place = hash << 32 | *place & 0xffff_ffff;
        }
        run.sort_unstable();
        let mut found = None;
        for run in run.chunk_by_mut(|one, two| one >> 32 == two >> 32) {
            if run.len() <= FEW {
                found = earlier(found, self.repeated_pairwise(base, run, source));
                continue;
            }
            run.sort_unstable_by(|one, two| key(one).compare(key(two), source).then(one.cmp(two)));
            for pair in run.windows(2) {
                if let [one, two] = pair
                    && key(one).compare(key(two), source).is_eq()
                {
                    found = earlier(found, Some(key(two)));
                }
            }
        }
        found
    }

    fn repeated_pairwise<S: Source + ?Sized>(&self, base: usize, run: &[u64], source: &S) -> Option<Key> {
        let key = |place: &u64| self.get(base + (*place & 0xffff_ffff) as usize);
        let mut found = None;
        for (index, late) in run.iter().enumerate() {
            for early in &run[..index] {
                if key(early).same(key(late), source) {
                    let later = if key(early).start > key(late).start { key(early) } else { key(late) };
                    found = earlier(found, Some(later));
                }
            }
        }
        found
    }
}

fn earlier(one: Option<Key>, two: Option<Key>) -> Option<Key> {
    match (one, two) {
        (Some(one), Some(two)) => Some(if one.start <= two.start { one } else { two }),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::Bound;

    /// The offset of the repeated key among `keys`, raw JSON without quotes, joined by a byte that no key holds.
    fn repeated(keys: &[String]) -> Option<usize> {
        let budget = Budget::new(Bound::Unbounded);
        let mut charge = budget.empty_charge();
        let text = keys.join("\n").into_bytes();
        let source = text.as_slice();
        let mut stack = Keys::default();
        let mut starts = Vec::new();
        let mut at = 0;
        for key in keys {
            starts.push(at);
            let entry = Key::new(source, at, at + key.len(), key.contains('\\')).unwrap();
            stack.push(entry, &mut charge).unwrap();
            at += key.len() + 1;
        }
        let found = stack.repeated(0, source, &mut charge).unwrap();
        stack.truncate(0, &mut charge);
        drop(stack);
        found.map(|key| starts.iter().position(|start| *start == key.start as usize).unwrap())
    }

    fn escaped(text: &str) -> String {
        text.bytes().map(|byte| format!("\\u{byte:04x}")).collect()
    }

    #[test]
    fn the_first_repetition_is_found_whatever_the_number_of_keys() {
        for count in [2, 3, 16, 17, 100, 300, 5000] {
            let distinct: Vec<String> = (0..count).map(|n| format!("key number {n}")).collect();
            assert_eq!(repeated(&distinct), None, "{count}");
            let mut keys = distinct;
            keys[count - 1] = keys[0].clone();
            assert_eq!(repeated(&keys), Some(count - 1));
            keys[count / 2] = escaped(&keys[0]);
            assert_eq!(repeated(&keys), Some(count / 2), "the earliest repetition of {count}");
        }
    }

    #[test]
    fn keys_are_compared_by_what_they_mean() {
        for (one, two, same) in [
            ("a", "\\u0061", true),
            ("a", "a\\u0000", false),
            ("", "\\u0000", false),
            ("\\ud83d\\ude00", "😀", true),
            ("é", "e\\u0301", false),
            ("s", "\\u017f", false),
            ("K", "\\u212a", false),
            ("method", "Method", false),
            ("\\n\\t\\\"\\\\\\/", "\\u000a\\u0009\\u0022\\u005c\\u002f", true),
        ] {
            assert_eq!(repeated(&[one.into(), two.into()]).is_some(), same, "{one} {two}");
        }
    }

    #[test]
    fn keys_chosen_to_have_equal_words_are_still_told_apart() {
        let keys: Vec<String> = (0..3000).map(|n| format!("prefix00{n:08}suffix00")).collect();
        assert_eq!(repeated(&keys), None);
        let mut keys = keys;
        keys[2999] = escaped(&keys[17]);
        assert_eq!(repeated(&keys), Some(2999));
    }

    #[test]
    fn the_word_of_decoded_bytes_is_the_word_of_the_slice() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).map(|n| b'a' + n % 23).collect();
            assert_eq!(word(&text), word_of_decoded(text.iter().copied()), "{len}");
        }
    }

    #[test]
    fn the_hash_of_a_key_does_not_depend_on_the_pieces_it_comes_in() {
        let text: Vec<u8> = (0..70).collect();
        for len in 0..text.len() {
            let hash = |pieces: usize| {
                let mut hash = ContentHash { hash: 7, block: [0; 8], len: 0 };
                text[..len].chunks(pieces).for_each(|piece| hash.push(piece));
                hash.finish()
            };
            assert!((1..20).all(|pieces| hash(pieces) == hash(100)), "{len}");
        }
        let mut padded = ContentHash { hash: 7, block: [0; 8], len: 0 };
        padded.push(b"a\0");
        let mut plain = ContentHash { hash: 7, block: [0; 8], len: 0 };
        plain.push(b"a");
        assert_ne!(padded.finish(), plain.finish());
    }

    #[test]
    fn memory_is_charged_and_given_back() {
        let budget = Budget::new(Bound::Unbounded);
        let mut charge = budget.empty_charge();
        let mut keys = Keys::default();
        for _ in 0..100_000 {
            keys.push(Key::default(), &mut charge).unwrap();
        }
        assert!(charge.bytes() >= 1_600_000 && charge.bytes() < 1_620_000, "{}", charge.bytes());
        keys.truncate(0, &mut charge);
        assert_eq!(charge.bytes(), CHUNK_BYTES + CHUNK_PLACE);
    }
}
