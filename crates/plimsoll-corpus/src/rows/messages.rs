//! Rows 21 and 23 to 26: whole messages that are cut off, ambiguous, batched, or made to be repeated to someone.

use super::{array, within};
use crate::expect::{Facts, Kind, Reason};
use crate::generator::Generator;
use crate::shape::{Built, Form, Shape};

/// Stands in what a peer sends in row 25; it must not stand in any error or log line.
pub const ECHO_MARKER: &str = "plimsoll-echo-marker";

/// A good message with every kind of token.
pub(crate) const GOOD: &str = "{\"jsonrpc\":\"2.0\",\"id\":\"a-1\",\"method\":\"corpus/good\",\"params\":{\"text\":\
                               \"\u{e9} \u{6c34} \u{1f600} \\n \\u00e9 \\ud83d\\ude00\",\"numbers\":[0,-1,2.5,3e-7],\
                               \"literals\":[true,false,null],\"empty\":[{},[],\"\"]}}";

pub(crate) const GOOD_FACTS: Facts = Facts { values: 19, depth: 4, kind: Kind::Plain };

pub(crate) const SHAPES: &[Shape] = &[
    Shape::literal(
        21,
        "lineWithoutNewline",
        Form::Message,
        "delivered at the end of the input: only its line feed is missing",
        GOOD.as_bytes(),
        Kind::Plain,
    ),
    truncated("truncatedEscape", br#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":["\u00"#),
    truncated(
        "truncatedCharacter",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"corpus/shape\",\"params\":[\"\xe2\x82",
    ),
    truncated("truncatedNumber", br#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":[1"#),
    truncated("truncatedLiteral", br#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":[tru"#),
    truncated("truncatedObject", br#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape""#),
    Shape::sized(21, "unterminatedString", Form::Message, TRUNCATED, |size| {
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":[""#;
        let text = Generator::default().text(head.as_bytes()).repeat(&b"x"[..], size.saturating_sub(head.len()));
        Built { text, facts: Facts { values: 6, depth: 2, kind: Kind::Fault(Reason::Truncated) } }
    }),
    smuggled("methodWithResult", br#"{"jsonrpc":"2.0","id":7,"method":"evil","result":0}"#, Reason::MethodWithResult),
    smuggled("methodWithResultNoId", br#"{"jsonrpc":"2.0","method":"evil","result":0}"#, Reason::MethodWithResult),
    smuggled("resultWithMethod", br#"{"jsonrpc":"2.0","result":0,"id":7,"method":"evil"}"#, Reason::MethodWithResult),
    smuggled(
        "methodWithError",
        br#"{"jsonrpc":"2.0","id":7,"method":"evil","error":{"code":-32000,"message":"m"}}"#,
        Reason::MethodWithResult,
    ),
    smuggled(
        "resultWithError",
        br#"{"jsonrpc":"2.0","id":7,"result":0,"error":{"code":-32000,"message":"m"}}"#,
        Reason::ResultWithError,
    ),
    smuggled("idNull", br#"{"jsonrpc":"2.0","id":null,"method":"evil"}"#, Reason::InvalidId),
    smuggled("idFraction", br#"{"jsonrpc":"2.0","id":1.5,"method":"evil"}"#, Reason::InvalidId),
    smuggled("idTrue", br#"{"jsonrpc":"2.0","id":true,"method":"evil"}"#, Reason::InvalidId),
    smuggled("idObject", br#"{"jsonrpc":"2.0","id":{},"method":"evil"}"#, Reason::InvalidId),
    smuggled("idArray", br#"{"jsonrpc":"2.0","method":"evil","id":[7]}"#, Reason::InvalidId),
    smuggled("idAbove63Bits", br#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"evil"}"#, Reason::InvalidId),
    smuggled("idRepeated", br#"{"jsonrpc":"2.0","id":7,"method":"evil","id":null}"#, Reason::DuplicateKey),
    smuggled("methodNumber", br#"{"jsonrpc":"2.0","id":7,"method":1}"#, Reason::InvalidMethod),
    smuggled("methodNull", br#"{"jsonrpc":"2.0","id":7,"method":null}"#, Reason::InvalidMethod),
    smuggled("versionMissing", br#"{"id":7,"method":"evil"}"#, Reason::JsonrpcVersion),
    smuggled("versionOld", br#"{"jsonrpc":"1.0","id":7,"method":"evil"}"#, Reason::JsonrpcVersion),
    smuggled("versionNumber", br#"{"jsonrpc":2.0,"id":7,"method":"evil"}"#, Reason::JsonrpcVersion),
    smuggled("neitherKind", br#"{"jsonrpc":"2.0","id":7,"params":[]}"#, Reason::NotJsonRpc),
    smuggled("scalarNumber", b"123", Reason::NotAnObject),
    smuggled("scalarString", br#""quoted""#, Reason::NotAnObject),
    smuggled("scalarTrue", b"true", Reason::NotAnObject),
    smuggled(
        "twoInOne",
        br#"{"jsonrpc":"2.0","id":7,"method":"a"}{"jsonrpc":"2.0","method":"evil"}"#,
        Reason::InvalidJson,
    ),
    batch("batchEmpty", b"[]"),
    batch("batchScalar", b"[1]"),
    batch("batchNested", br#"[[{"jsonrpc":"2.0","method":"evil"}]]"#),
    Shape::sized(24, "batchNotifications", Form::Message, BATCH, |size| {
        let built = array(size, &br#"{"jsonrpc":"2.0","method":"n"}"#[..], 3, 1);
        built.fault(Reason::Batch)
    })
    .by_default(3_100_001),
    Shape::sized(25, "echoText", Form::Message, ECHO, |size| {
        echo(r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":{"x":""#, r#""},}"#, size, 6, 2)
            .fault(Reason::InvalidJson)
    })
    .by_default(ECHO_BYTES),
    Shape::sized(25, "echoDuplicateKey", Form::Message, ECHO, |size| {
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":{"plimsoll-echo-marker":""#;
        echo(head, r#"","plimsoll-echo-marker":0}}"#, size, 7, 2).fault(Reason::DuplicateKey)
    })
    .by_default(ECHO_BYTES),
    Shape::sized(25, "echoControls", Form::Message, ECHO, |size| {
        let head = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\u{1b}[2J\u{1b}]0;\u{7}<script>";
        echo(head, "\"}", size, 4, 1).fault(Reason::InvalidJson)
    })
    .by_default(ECHO_BYTES),
    Shape::sized(
        26,
        "refusedByType",
        Form::Value,
        "the typed decode of `count` as an integer fails at the end; the bytes are not decoded a second time, into a \
         tree",
        |size| {
            within(r#"{"items":"#, r#","count":"not a number"}"#, 2, size, |size| {
                let unit = format!(r#"{{"name":"{}"}}"#, "x".repeat(64));
                array(size, unit.into_bytes(), 2, 1)
            })
            .kind(Kind::Typed)
        },
    ),
];

const TRUNCATED: &str = "reported at the end of the input; bounded until then";
const SMUGGLED: &str = "an invalid request, answered by its id where that is readable; never run as a notification";
const BATCH: &str = "refused at byte 0 where batches are not allowed, else one budget for all members";
const ECHO: &str = "error and log text carry the kind and the offset, never the input";

/// A whole message at the limit, so that what is refused is the fault and not the length.
const ECHO_BYTES: usize = 16 * 1024 * 1024;

const fn truncated(name: &'static str, text: &'static [u8]) -> Shape {
    Shape::literal(21, name, Form::Message, TRUNCATED, text, Kind::Fault(Reason::Truncated))
}

const fn smuggled(name: &'static str, text: &'static [u8], reason: Reason) -> Shape {
    Shape::literal(23, name, Form::Message, SMUGGLED, text, Kind::Fault(reason))
}

const fn batch(name: &'static str, text: &'static [u8]) -> Shape {
    Shape::literal(24, name, Form::Message, BATCH, text, Kind::Fault(Reason::Batch))
}

/// The marker again and again between `head` and `tail`.
fn echo(head: &'static str, tail: &'static str, size: usize, values: u64, depth: u64) -> Built {
    let room = size.saturating_sub(head.len() + tail.len());
    let text = Generator::default()
        .text(head.as_bytes())
        .repeat(ECHO_MARKER.as_bytes(), room / ECHO_MARKER.len())
        .repeat(&b"x"[..], room % ECHO_MARKER.len())
        .text(tail.as_bytes());
    Built { text, facts: Facts { values, depth, kind: Kind::Plain } }
}
