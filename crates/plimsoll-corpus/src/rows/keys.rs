//! Rows 8 to 13: member names that are equal, nearly equal, many, chosen to collide, or long.

use super::{array, object, push};
use crate::expect::{Facts, Kind, Reason, limits};
use crate::generator::{Generator, WriteUnit, counted_that_fit};
use crate::shape::{Built, Form, Shape};

pub(crate) const SHAPES: &[Shape] = &[
    duplicate("duplicateKey", Form::Value, r#"{"a":1,"a":2}"#),
    duplicate("duplicateEscapedKey", Form::Value, r#"{"a":1,"\u0061":2}"#),
    duplicate("duplicateEmptyKey", Form::Value, r#"{"":1,"":2}"#),
    duplicate("duplicateNestedKey", Form::Value, r#"{"known":[{"skipped":{"b":0,"c":[],"b":1}}]}"#),
    Shape::sized(8, "duplicateFirstAndLast", Form::Value, DUPLICATE, |size| repeating_the_first(size, six_digits))
        .by_default(1_100_000),
    duplicate("duplicateId", Form::Message, r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","id":8}"#),
    duplicate("duplicateEscapedId", Form::Message, r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","\u0069d":8}"#),
    duplicate("duplicateMethod", Form::Message, r#"{"jsonrpc":"2.0","method":"corpus/shape","id":7,"method":"evil"}"#),
    duplicate("duplicateUnknown", Form::Message, r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","x":0,"x":0}"#),
    near("nearCase", Form::Value, r#"{"method":1,"Method":2,"METHOD":3}"#),
    near("nearFold", Form::Value, "{\"s\":1,\"\u{17f}\":2,\"k\":3,\"\u{212a}\":4}"),
    near("nearNul", Form::Value, r#"{"method":1,"method\u0000":2,"method\u0000\u0000":3}"#),
    near("nearComposition", Form::Value, "{\"\u{e9}\":1,\"e\u{301}\":2}"),
    near(
        "nearMembers",
        Form::Message,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"corpus/shape\",\"Method\":\"evil\",\"ID\":8,\
         \"method\\u0000\":\"evil\",\"re\u{17f}ult\":0}",
    ),
    Shape::sized(10, "manyKeys", Form::Value, LINEAR, |size| {
        object(size, |index, out| push(out, format_args!(r#""{index}":0"#)))
    }),
    Shape::sized(11, "collidingPrefixes", Form::Value, COLLIDING, |size| {
        array(size, sixteen(|index| format!("collide_{index:04}")), 17, 1)
    }),
    Shape::sized(11, "collidingEnds", Form::Value, COLLIDING, |size| {
        array(size, sixteen(|index| format!("collide_{index:04}_collide")), 17, 1)
    }),
    Shape::sized(11, "collidingLongPrefix", Form::Value, COLLIDING, |size| {
        object(size, |index, out| push(out, format_args!(r#""a-prefix-of-thirty-two-bytes-aaa{index:08}":0"#)))
    }),
    Shape::sized(11, "collidingNumericStrings", Form::Value, COLLIDING, |size| {
        // Multiples of 2^32: equal in the low bits for whoever hashes a numeric name as its number.
        object(size, |index, out| push(out, format_args!(r#""{}":0"#, (index as u64 + 1) << 32)))
    }),
    Shape::sized(12, "escapedKeys", Form::Value, "compared decoded, without copies kept", |size| {
        object(size, escaped_six_digits)
    }),
    Shape::sized(12, "escapedKeysDuplicate", Form::Value, DUPLICATE, |size| {
        repeating_the_first(size, escaped_six_digits)
    }),
    Shape::sized(13, "longKey", Form::Value, LONG, |size| {
        long(r#"{""#, r#"":0}"#, size, 2, limits::KEY_BYTES, Reason::KeyBytes)
    }),
    Shape::sized(13, "longMethod", Form::Message, LONG, |size| {
        long(r#"{"jsonrpc":"2.0","id":7,"method":""#, r#""}"#, size, 4, limits::METHOD_BYTES, Reason::MethodBytes)
    }),
    Shape::sized(13, "longId", Form::Message, LONG, |size| {
        let tail = r#"","method":"corpus/shape"}"#;
        long(r#"{"jsonrpc":"2.0","id":""#, tail, size, 4, limits::ID_BYTES, Reason::IdBytes)
    }),
    Shape::sized(13, "longUnknownMember", Form::Message, LONG, |size| {
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape",""#;
        long(head, r#"":0}"#, size, 5, limits::KEY_BYTES, Reason::KeyBytes)
    }),
];

const DUPLICATE: &str = "refused; the error names the offset and not the key";
const NEAR: &str = "accepted: these are different members, never folded, normalised or padded equal";
const LINEAR: &str = "time near to linear in the bytes, memory bounded";
const COLLIDING: &str = "at most five times the time of ordinary keys";
const LONG: &str = "refused at its limit while it arrives";

const fn duplicate(name: &'static str, form: Form, text: &'static str) -> Shape {
    Shape::literal(8, name, form, DUPLICATE, text.as_bytes(), Kind::Fault(Reason::DuplicateKey))
}

const fn near(name: &'static str, form: Form, text: &'static str) -> Shape {
    Shape::literal(9, name, form, NEAR, text.as_bytes(), Kind::Plain)
}

/// An object whose last member has the name of the first, which `write` spells as it likes.
fn repeating_the_first(size: usize, write: WriteUnit) -> Built {
    let last = r#","000000":0}"#;
    let members = counted_that_fit(size.saturating_sub(1 + last.len()), ",", write).max(1);
    let text = Generator::default().text(&b"{"[..]).counted(members, ",", write).text(last.as_bytes());
    let facts = Facts { values: 2 + members as u64, depth: 1, kind: Kind::Fault(Reason::DuplicateKey) };
    Built { text, facts }.padded(size)
}

fn six_digits(index: usize, out: &mut Vec<u8>) {
    push(out, format_args!(r#""{index:06}":0"#));
}

/// The same names with every byte as `\u00XX`.
fn escaped_six_digits(index: usize, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in format!("{index:06}").bytes() {
        push(out, format_args!("\\u{byte:04x}"));
    }
    out.extend_from_slice(b"\":0");
}

/// An object of sixteen members: at that many, a scanner that compares names pairwise does its worst.
fn sixteen(name: fn(usize) -> String) -> Vec<u8> {
    let members: Vec<String> = (0..16).map(|index| format!(r#""{}":0"#, name(index))).collect();
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// One token that fills the size, between `head` and `tail`, and is refused for `reason` when it is over `limit`.
fn long(head: &'static str, tail: &'static str, size: usize, values: u64, limit: u64, reason: Reason) -> Built {
    let length = size.saturating_sub(head.len() + tail.len());
    let text = Generator::default().text(head.as_bytes()).repeat(&b"k"[..], length).text(tail.as_bytes());
    let facts = Facts { values, depth: 1, kind: Kind::Plain };
    Built { text, facts }.fault_if(length as u64 > limit, reason)
}
