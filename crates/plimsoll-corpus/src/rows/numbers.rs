//! Rows 14 to 16: numbers that are long, out of range, or beyond what a double holds.

use super::{array, fixed};
use crate::expect::{Facts, Kind, Reason, limits};
use crate::generator::Generator;
use crate::shape::{Built, Form, Shape};

pub(crate) const SHAPES: &[Shape] = &[
    Shape::sized(14, "longInteger", Form::Value, LONG, |size| long("[1", "1", size)).by_default(1_000_002),
    Shape::sized(14, "longFraction", Form::Value, LONG, |size| long("[0.", "3", size)).by_default(1_000_002),
    Shape::sized(14, "longExponent", Form::Value, LONG, |size| long("[1e", "0", size)).by_default(1_000_002),
    Shape::fixed(14, "numberAtLimit", Form::Value, "accepted: 1,024 bytes are legal", |_| {
        fixed(format!("[0.{}]", "1".repeat(limits::NUMBER_BYTES as usize - 2)).into_bytes(), 2, 1)
    }),
    Shape::sized(14, "tieFloats", Form::Value, "linear: each takes the slow path of a correct float parser", |size| {
        array(size, tie(), 1, 0)
    }),
    typed(15, "exponentOverflow", "legal JSON; a double of it is an error", "[1e999]"),
    typed(15, "exponentUnderflow", "legal JSON; a double of it is zero", "[1e-400000000]"),
    typed(
        15,
        "exponentUnbounded",
        "legal JSON; the exponent's digits are never summed unsaturated",
        "[1E+99999999999]",
    ),
    typed(16, "integerAbove53Bits", INTEGER, "[9007199254740993]"),
    typed(16, "integerAbove63Bits", INTEGER, "[9223372036854775808]"),
    typed(16, "integerAbove64Bits", INTEGER, "[18446744073709551616]"),
    typed(16, "integerBelow63Bits", INTEGER, "[-9223372036854775809]"),
    typed(16, "integerThirtyDigits", INTEGER, "[123456789012345678901234567890]"),
];

const LONG: &str = "refused at number_bytes, wherever the chunks end";
const INTEGER: &str = "exact, or refused by the target type; never through a double";

const fn typed(number: u8, name: &'static str, right: &'static str, text: &'static str) -> Shape {
    Shape::literal(number, name, Form::Value, right, text.as_bytes(), Kind::Typed)
}

/// One number in an array: `head` with its bracket, then `digit` as often as the size allows.
fn long(head: &'static str, digit: &'static str, size: usize) -> Built {
    let digits = size.saturating_sub(head.len() + 1).max(1);
    let text = Generator::default().text(head.as_bytes()).repeat(digit.as_bytes(), digits).text(&b"]"[..]);
    let length = head.len() - 1 + digits;
    let facts = Facts { values: 2, depth: 1, kind: Kind::Plain };
    Built { text, facts }.fault_if(length as u64 > limits::NUMBER_BYTES, Reason::NumberBytes)
}

/// 1 + 2^-53, half way between two doubles, and then a one in the 300th place.
fn tie() -> Vec<u8> {
    let half_way = "00000000000000011102230246251565404236316680908203125";
    format!("1.{half_way:0<299}1").into_bytes()
}
