//! Rows 17 to 20: strings that are no text, white space, and escapes.

use super::{array, string, within};
use crate::expect::{Facts, Kind, Reason};
use crate::generator::Generator;
use crate::shape::{Built, Form, Shape};

pub(crate) const SHAPES: &[Shape] = &[
    surrogate("surrogateHigh", Form::Value, r#"["\ud800"]"#),
    surrogate("surrogateLow", Form::Value, r#"["\udc00"]"#),
    surrogate("surrogatesSwapped", Form::Value, r#"["\udc00\ud800"]"#),
    surrogate("surrogateTwice", Form::Value, r#"["\ud800\ud800\udc00"]"#),
    surrogate("surrogateThenText", Form::Value, r#"["\ud800a"]"#),
    surrogate("surrogateThenEscape", Form::Value, r#"["\ud800\n"]"#),
    surrogate("surrogateKey", Form::Value, r#"{"\ud800":0}"#),
    surrogate(
        "surrogateSkipped",
        Form::Message,
        r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","unknown":{"a":["\ud800"]}}"#,
    ),
    Shape::sized(17, "surrogatePairs", Form::Value, "accepted: whole pairs", |size| {
        string(size, &br"\ud83d\ude00"[..])
    }),
    Shape::sized(17, "surrogateAfterPairs", Form::Value, NO_TEXT, |size| {
        within("[", r#","\ud800"]"#, 2, size, |size| string(size, &br"\ud83d\ude00"[..])).fault(Reason::LoneSurrogate)
    }),
    no_utf8("utf8InvalidByte", Form::Value, b"[\"\xff\"]"),
    no_utf8("utf8Overlong", Form::Value, b"[\"\xc0\x80\"]"),
    no_utf8("utf8OverlongThree", Form::Value, b"[\"\xe0\x80\x80\"]"),
    no_utf8("utf8Surrogate", Form::Value, b"[\"\xed\xa0\x80\"]"),
    no_utf8("utf8AboveUnicode", Form::Value, b"[\"\xf5\x80\x80\x80\"]"),
    no_utf8("utf8AboveLastPlane", Form::Value, b"[\"\xf4\x90\x80\x80\"]"),
    no_utf8("utf8LoneContinuation", Form::Value, b"[\"\x80\"]"),
    no_utf8("utf8CutAtStringEnd", Form::Value, b"[\"\xe2\x82\"]"),
    no_utf8("utf8CutByEscape", Form::Value, b"[\"\xe2\x82\\n\"]"),
    no_utf8("utf8Key", Form::Value, b"{\"\xff\":0}"),
    no_utf8(
        "utf8Skipped",
        Form::Message,
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"corpus/shape\",\"unknown\":{\"a\":[\"\xff\"]}}",
    ),
    Shape::sized(18, "utf8AcrossPieces", Form::Value, "accepted: a character may lie in two chunks", |size| {
        // Eleven bytes, which has no divisor in common with a piece: pieces end at every place within them.
        string(size, "aé水😀b".as_bytes())
    }),
    Shape::sized(19, "whiteSpaceInside", Form::Value, WHITE_SPACE, |size| {
        let spaces = size.saturating_sub("[]".len());
        let text = Generator::default().text(&b"["[..]).repeat(&b" "[..], spaces).text(&b"]"[..]);
        Built { text, facts: Facts { values: 1, depth: 1, kind: Kind::Plain } }
    }),
    Shape::sized(19, "whiteSpaceBetweenTokens", Form::Value, WHITE_SPACE, |size| {
        let tokens = ["", "{", r#""a""#, ":", "0", "}", ""];
        array(size, tokens.join(WIDE).into_bytes(), 2, 1)
    }),
    Shape::sized(19, "whiteSpaceAround", Form::Message, WHITE_SPACE, |size| {
        let message = super::messages::GOOD;
        let spaces = size.saturating_sub(message.len());
        let text = Generator::default()
            .repeat(&b"\t"[..], spaces / 2)
            .text(message.as_bytes())
            .repeat(&b" "[..], spaces - spaces / 2);
        Built { text, facts: super::messages::GOOD_FACTS }
    }),
    Shape::sized(20, "escapes", Form::Value, "linear; the typed string is not longer than the wire", |size| {
        string(size, &br"\u0001"[..])
    }),
];

const NO_TEXT: &str = "refused, in values, names and members that nobody reads";
const WHITE_SPACE: &str = "linear, and counted in the message's bytes";

/// White space without a line feed, so that a line stays one line.
const WIDE: &str = " \t\r\t            \t            \r            \t            ";

const fn surrogate(name: &'static str, form: Form, text: &'static str) -> Shape {
    Shape::literal(17, name, form, NO_TEXT, text.as_bytes(), Kind::Fault(Reason::LoneSurrogate))
}

const fn no_utf8(name: &'static str, form: Form, text: &'static [u8]) -> Shape {
    Shape::literal(18, name, form, NO_TEXT, text, Kind::Fault(Reason::InvalidUtf8))
}
