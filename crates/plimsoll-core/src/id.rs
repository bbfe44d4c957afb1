//! A message's `id`: its type and its spelling kept, compared by what it means.
//!
//! `1` and `"1"` are different ids; `1.0` is `1` (JSON-RPC 2.0 section 4 discourages fractions, so a peer that prints
//! its integers as floats is met half way); `"a"` is `"\u0061"`. What goes back to the peer is its own spelling.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::printable::Printable;

/// A valid id. At most `id_bytes` long, so a table of them is bounded.
#[derive(Clone)]
pub struct Id {
    // JSON text of one string or integer, as the peer sent it.
    spelling: Box<str>,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Integer(i64),
    /// The string is the spelling between its quotes.
    Plain,
    /// The string had escapes; this is what they mean.
    Unescaped(Box<str>),
}

/// What an id may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// `7` and `7.0`.
    WithZeroFraction,
    /// `7` alone.
    Plain,
}

impl Id {
    /// Reads JSON text that the scanner has passed: one string or number. `None` when it is no valid id: a fraction, an
    /// exponent, an integer of more than 64 bits, anything else.
    pub(crate) fn parse(spelling: &[u8], integers: Integers) -> Option<Self> {
        let text = std::str::from_utf8(spelling).ok()?;
        let value = if let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            if inner.contains('\\') { Value::Unescaped(unescape(inner)?) } else { Value::Plain }
        } else {
            let integer = match text.split_once('.') {
                Some((integer, zeroes)) if integers == Integers::WithZeroFraction => {
                    if zeroes.bytes().any(|byte| byte != b'0') {
                        return None;
                    }
                    integer
                }
                Some(_) => return None,
                None => text,
            };
            Value::Integer(integer.parse().ok()?)
        };
        Some(Self { spelling: text.into(), value })
    }

    /// The JSON text of this id, exactly as the peer sent it.
    pub fn as_json(&self) -> &str {
        &self.spelling
    }

    /// The number, when the id is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self.value {
            Value::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// The string, unescaped, when the id is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Integer(_) => None,
            Value::Plain => self.spelling.get(1..self.spelling.len() - 1),
            Value::Unescaped(text) => Some(text),
        }
    }

    /// Heap bytes held by this id.
    pub fn heap_bytes(&self) -> u64 {
        let unescaped = if let Value::Unescaped(text) = &self.value { text.len() } else { 0 };
        (self.spelling.len() + unescaped) as u64
    }
}

impl From<i64> for Id {
    fn from(integer: i64) -> Self {
        Self { spelling: integer.to_string().into(), value: Value::Integer(integer) }
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        (self.as_integer(), self.as_str()) == (other.as_integer(), other.as_str())
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.as_integer(), self.as_str()).hash(state);
    }
}

/// The spelling, made safe for a terminal and cut after 64 characters.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable::new(&self.spelling, 64).fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

/// The meaning of the inside of a JSON string; `None` for a lone surrogate or a broken escape.
pub(crate) fn unescape(inner: &str) -> Option<Box<str>> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        let plain = match escape {
            b'"' | b'\\' | b'/' => *escape as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut unit = u32::from(take_hex(&mut rest)?);
                if (0xd800..0xdc00).contains(&unit) {
                    rest = rest.strip_prefix("\\u")?;
                    let low = u32::from(take_hex(&mut rest)?).checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    unit = 0x1_0000 + ((unit - 0xd800) << 10) + low;
                }
                char::from_u32(unit)?
            }
            _ => return None,
        };
        text.push(plain);
    }
    text.push_str(rest);
    Some(text.into())
}

fn take_hex(rest: &mut &str) -> Option<u16> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    *rest = &rest[4..];
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<Id> {
        Id::parse(text.as_bytes(), Integers::WithZeroFraction)
    }

    #[test]
    fn type_and_spelling_are_kept() {
        assert_ne!(id("1"), id("\"1\""));
        assert_eq!(id("1"), id("1.0"));
        assert_eq!(id("1.00").unwrap().as_json(), "1.00");
        assert_eq!(id("\"a\""), id(r#""\u0061""#));
        assert_eq!(id(r#""\ud83d\ude00""#).unwrap().as_str(), Some("😀"));
        assert_ne!(id("\"\""), id("0"));
        assert_eq!(id("-0"), id("0"));
        assert_eq!(id("9223372036854775807").unwrap().as_integer(), Some(i64::MAX));
    }

    #[test]
    fn what_is_no_string_and_no_64_bit_integer_is_no_id() {
        for text in ["1.5", "1e2", "null", "true", "{}", "[]", "9223372036854775808", "-9223372036854775809"] {
            assert!(id(text).is_none(), "{text}");
        }
        for text in [r#""\ud800""#, r#""\udc00\ud800""#, r#""\u12""#, r#""\x""#] {
            assert!(id(text).is_none(), "{text}");
        }
        assert!(Id::parse(b"1.0", Integers::Plain).is_none());
        assert!(Id::parse(b"\"\xff\"", Integers::Plain).is_none());
    }
}
