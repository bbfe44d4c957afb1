//! Skipping what needs no thought: the plain bytes of a string, and white space.
//!
//! Safe code that compilers turn into vectors: eight bytes at a time by arithmetic on words where runs are short,
//! 64 at a time where they are long. Nothing here keeps state.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A run of bytes that a string may hold as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// How many bytes, up to the first quote, backslash, control character or the end.
    pub(super) len: usize,
    /// Whether every one of them is below 0x80.
    pub(super) ascii: bool,
}

/// The plain bytes at the start of `bytes`.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> Plain {
    if let Some(first) = bytes.first_chunk::<32>() {
        let mut high = 0;
        for (index, word) in first.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            let stop = stops(word);
            if stop != 0 {
                let below = stop.trailing_zeros() & !7;
                high |= word & ((1 << below) - 1);
                return Plain { len: index * 8 + below as usize / 8, ascii: high & HIGH == 0 };
            }
            high |= word;
        }
    }
    plain_long(bytes)
}

#[inline(never)]
fn plain_long(bytes: &[u8]) -> Plain {
    let mut len = 0;
    let mut high = 0;
    loop {
        // Short strings end within the first words; only long ones reach the blocks.
        let words = if len == 0 { 4 } else { 8 };
        for _ in 0..words {
            let Some(word) = word(bytes, len) else { return tail(bytes, len, high) };
            let stops = stops(word);
            if stops != 0 {
                let below = stops.trailing_zeros() & !7;
                high |= word & HIGH & ((1 << below) - 1);
                return Plain { len: len + below as usize / 8, ascii: high == 0 };
            }
            high |= word & HIGH;
            len += 8;
        }
        for block in bytes[len..].chunks_exact(64) {
            let (mut stop, mut or) = (false, 0);
            for &byte in block {
                stop |= (byte == b'"') | (byte == b'\\') | (byte < 0x20);
                or |= byte;
            }
            if stop {
                break;
            }
            high |= u64::from(or & 0x80);
            len += 64;
        }
    }
}

fn tail(bytes: &[u8], mut len: usize, mut high: u64) -> Plain {
    while let Some(&byte) = bytes.get(len) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            break;
        }
        high |= u64::from(byte & 0x80);
        len += 1;
    }
    Plain { len, ascii: high == 0 }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).and_then(|slice| slice.try_into().ok()).map(u64::from_le_bytes)
}

/// The top bit of every byte that ends a plain run; bits above the lowest one set may be wrong.
#[inline]
fn stops(word: u64) -> u64 {
    let quote = word ^ (LOW * b'"' as u64);
    let backslash = word ^ (LOW * b'\\' as u64);
    let zero = |word: u64| word.wrapping_sub(LOW) & !word;
    (zero(quote) | zero(backslash) | (word.wrapping_sub(LOW * 0x20) & !word)) & HIGH
}

/// The first byte at or after `*at` that is no white space (RFC 8259 section 2), with `*at` moved onto it.
#[inline]
pub(super) fn skip_space(bytes: &[u8], at: &mut usize) -> Option<u8> {
    let &byte = bytes.get(*at)?;
    if byte > b' ' { Some(byte) } else { skip_space_run(bytes, at) }
}

fn skip_space_run(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        while word(bytes, *at) == Some(LOW * b' ' as u64) {
            *at += 8;
        }
        let &byte = bytes.get(*at)?;
        if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return Some(byte);
        }
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_ends_a_run_exactly_when_it_must() {
        for len in [0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 130, 200, 260] {
            for at in 0..len {
                for byte in [0, 0x1f, 0x20, 0x21, b'"', b'#', b'[', b'\\', b']', 0x7f, 0x80, 0xff] {
                    let mut bytes = vec![b'a'; len];
                    bytes[at] = byte;
                    let ends = byte == b'"' || byte == b'\\' || byte < 0x20;
                    let expected = Plain { len: if ends { at } else { len }, ascii: ends || byte < 0x80 };
                    assert_eq!(plain(&bytes), expected, "{byte:#x} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn space_is_skipped_and_other_controls_are_not() {
        let mut at = 0;
        assert_eq!(skip_space(b"  \t\r\n          x", &mut at), Some(b'x'));
        assert_eq!(at, 15);
        for other in [0x0b, 0x0c, 0x00, 0x1f] {
            assert_eq!(skip_space(&[b' ', other], &mut 0), Some(other));
        }
        assert_eq!(skip_space(b"    ", &mut 0), None);
    }
}
