//! The grammar of numbers (RFC 8259 section 6), a byte at a time so that it can stop anywhere.

/// How much of a number has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// The state after a number's first byte.
    pub(super) fn first(byte: u8) -> Option<Self> {
        match byte {
            b'-' => Some(Self::Minus),
            b'0' => Some(Self::Zero),
            b'1'..=b'9' => Some(Self::Integer),
            _ => None,
        }
    }

    /// The state after one more byte; `None` when the byte does not belong to the number.
    #[inline]
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Minus, _) => Self::first(byte).filter(|state| *state != Self::Minus),
            (Self::Integer, b'0'..=b'9') => Some(Self::Integer),
            (Self::Zero | Self::Integer, b'.') => Some(Self::Point),
            (Self::Point | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Some(Self::Exponent),
            (Self::Exponent, b'+' | b'-') => Some(Self::ExponentSign),
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Some(Self::ExponentDigits),
            _ => None,
        }
    }

    /// Whether a number may end here.
    pub(super) fn complete(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::ExponentDigits)
    }
}

/// The length of the number at the start of `bytes`, when it is whole and followed by another byte there.
#[inline]
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let mut len = usize::from(bytes.first() == Some(&b'-'));
    match bytes.get(len)? {
        b'0' => len += 1,
        b'1'..=b'9' => {
            len += 1;
            while bytes.get(len)?.is_ascii_digit() {
                len += 1;
            }
        }
        _ => return None,
    }
    match bytes.get(len)? {
        b'.' | b'e' | b'E' => fraction(bytes),
        _ => Some(len),
    }
}

/// The same for a number with a fraction or an exponent.
fn fraction(bytes: &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    let mut state = Number::first(first)?;
    for (index, &byte) in rest.iter().enumerate() {
        match state.next(byte) {
            Some(next) => state = next,
            None => return state.complete().then_some(index + 1),
        }
    }
    None
}

/// Numbers that follow one another in an array, each after a comma, at the start of `bytes`: how many, at most `most`,
/// and how many bytes. Each is whole and at most `limit` bytes long.
#[inline]
pub(super) fn run(bytes: &[u8], most: u64, limit: u64) -> (u64, usize) {
    let (mut numbers, mut at) = (0, 0);
    while numbers < most {
        let pairs = digit_pairs(&bytes[at..]).min(most - numbers);
        numbers += pairs;
        at += 2 * pairs as usize;
        if numbers == most || bytes.get(at) != Some(&b',') {
            break;
        }
        match whole(&bytes[at + 1..]) {
            Some(len) if len as u64 <= limit => {
                numbers += 1;
                at += len + 1;
            }
            _ => break,
        }
    }
    (numbers, at)
}

/// How many times a comma and a number of one digit stand at the start of `bytes`, as far as they come in fours and
/// another comma follows.
#[inline]
fn digit_pairs(bytes: &[u8]) -> u64 {
    const PATTERN: u64 = u64::from_le_bytes(*b",0,0,0,0");
    const SIX: u64 = u64::from_le_bytes([0, 6, 0, 6, 0, 6, 0, 6]);
    const HIGH: u64 = u64::from_le_bytes([0xff, 0xf0, 0xff, 0xf0, 0xff, 0xf0, 0xff, 0xf0]);
    let mut pairs = 0;
    for block in bytes.chunks_exact(8) {
        let Some(word) = block.first_chunk::<8>().map(|block| u64::from_le_bytes(*block)) else { break };
        // Zero in the places of commas, 0 to 9 in those of digits.
        let digits = word ^ PATTERN;
        if (digits | digits.wrapping_add(SIX)) & HIGH != 0 {
            break;
        }
        pairs += 4;
    }
    // The last digit may be the first of a longer number.
    if pairs > 0 && bytes.get(2 * pairs as usize) != Some(&b',') { pairs - 1 } else { pairs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_exactly_as_the_grammar_says() {
        for (text, len) in [
            ("0,", Some(1)),
            ("-0]", Some(2)),
            ("10.250,", Some(6)),
            ("1e999 ", Some(5)),
            ("1E+9}", Some(4)),
            ("1e-400000000,", Some(12)),
            ("00,", Some(1)),
            ("-,", None),
            ("1.,", None),
            ("1e,", None),
            ("1e+,", None),
            (".5,", None),
            ("+1,", None),
            ("12", None),
        ] {
            assert_eq!(whole(text.as_bytes()), len, "{text}");
        }
    }

    /// What [`run`] must find, a number at a time.
    fn one_by_one(bytes: &[u8], most: u64, limit: u64) -> (u64, usize) {
        let (mut numbers, mut at) = (0, 0);
        while numbers < most && bytes.get(at) == Some(&b',') {
            match whole(&bytes[at + 1..]) {
                Some(len) if len as u64 <= limit => (numbers, at) = (numbers + 1, at + 1 + len),
                _ => break,
            }
        }
        (numbers, at)
    }

    #[test]
    fn a_run_is_what_its_numbers_are_one_by_one() {
        let mut rng = plimsoll_testkit::rng::Rng::new(7);
        for _ in 0..20_000 {
            let mut text = Vec::new();
            for _ in 0..rng.below(30) {
                let piece: &[&str] =
                    &[",0", ",7", ",9", ",12", ",-3", ",1.5", ",00", ",:", ", 1", ",/", "]", ",1e5", ",\"\""];
                let usual = if rng.one_in(8) { piece.len() } else { 3 };
                text.extend_from_slice(piece[rng.below(usual)].as_bytes());
            }
            let (most, limit) = (rng.below(40) as u64, 1 + rng.below(3) as u64);
            let text = text.as_slice();
            assert_eq!(run(text, most, limit), one_by_one(text, most, limit), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
