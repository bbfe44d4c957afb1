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
}
