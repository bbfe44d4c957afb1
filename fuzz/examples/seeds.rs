//! Writes the seeds of every corpus: `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.
//!
//! They are the hostile shapes in small, and what no shape is: good messages of each kind, lines of noise, streams. What
//! the fuzzer found stands beside them under names that begin with `found`, and is left alone.

use std::fs;
use std::io;
use std::path::Path;

use plimsoll_corpus::{Dialect, Envelope, Form, IdPlacement, shapes};

/// The size that is asked of shapes that grow.
const SMALL: usize = 80;
/// A shape that is longer even in small is no seed.
const MOST: u64 = 2_000;

fn main() -> io::Result<()> {
    for shape in shapes() {
        let text = shape.text(SMALL);
        if text.remaining_bytes() > MOST {
            continue;
        }
        match shape.form() {
            Form::Headers | Form::Lines => {}
            Form::Message => write("envelope", shape.name(), &text.into_bytes())?,
            Form::Value => write("scanner", shape.name(), &text.into_bytes())?,
        }
    }
    // As messages, values differ in their envelopes alone: one shape in each.
    for (envelope, name) in Envelope::ALL.into_iter().zip(["request", "requestIdLast", "note", "response", "idLast"]) {
        for (index, shape) in shapes().iter().filter(|shape| shape.form() == Form::Value).enumerate() {
            if index == name.len() {
                write("envelope", name, &shape.message(Dialect::Standard, envelope, SMALL).into_bytes())?;
            }
        }
    }
    for (name, text) in DOCUMENTS {
        write("scanner", name, text)?;
    }
    for (name, text) in MESSAGES {
        write("envelope", name, text)?;
    }
    for (name, seed, text) in STREAMS {
        write("deframer", name, &[&[*seed], *text].concat())?;
    }
    let mut every = vec![9];
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Message) && !shape.is_sized()) {
        let text = shape.message(Dialect::Standard, Envelope::Request(IdPlacement::First), SMALL);
        if text.remaining_bytes() < 200 {
            every.extend(text.into_bytes());
            every.push(b'\n');
        }
    }
    write("deframer", "everyMessage", &every)
}

fn write(target: &str, name: &str, text: &[u8]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), text)
}

const DOCUMENTS: &[(&str, &[u8])] = &[
    ("blank", b" \t\r\n"),
    ("byteOrderMark", b"\xef\xbb\xbf{}"),
    ("characters", "[\"\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}\"]".as_bytes()),
    ("commaAfterLast", b"[1,]"),
    ("controlInString", b"\"a\x1fb\""),
    ("escapesOfAllKinds", br#"["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"]"#),
    ("everyType", br#"{"a":[null,true,false,-0.5e+10,"x",{}],"b":{"c":[[],{}]}}"#),
    ("literals", b"[null,true,false,nul]"),
    ("newLines", b"{\n  \"a\": [\n    1,\n    2\n  ]\n}\n"),
    ("nul", b"[\"\x00\"]"),
    ("numberForms", b"[0,-0,10,1.0,1e5,1E+5,1e-5,-1.25e2,123456789012345678901234567890]"),
    ("numberLeadingZero", b"[01]"),
    ("numberWithoutDigits", b"[1.,-,1e,.5,+1]"),
    ("scalar", b"0"),
    ("seventeenKeys", br#"{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"o":0,"p":0,"q":0,"\u0061":0}"#),
    ("twoScalars", b"1,2"),
    ("twoTexts", b"[1][2]"),
];

const MESSAGES: &[(&str, &[u8])] = &[
    ("blankLine", b"  \t "),
    ("errorResponse", br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method","data":null}}"#),
    ("errorWithNullId", br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#),
    ("errorWithoutId", br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}"#),
    ("escapedId", br#"{"jsonrpc":"2.0","id":"\u0061\ud83d\ude00","method":"m"}"#),
    ("escapedMembers", br#"{"json\u0072pc":"\u0032.0","\u0069d":1,"\u006dethod":"m\u0000"}"#),
    ("idFirstBadValue", br#"{"jsonrpc":"2.0","id":7,"method":"m","params":[1,}"#),
    ("idLastAfterRefusal", br#"{"jsonrpc":"2.0","method":"m","params":{"a":1,"a":2},"id":7}"#),
    ("idNegative", br#"{"jsonrpc":"2.0","id":-1,"method":"m"}"#),
    ("idWithFraction", br#"{"jsonrpc":"2.0","id":1.0,"method":"m"}"#),
    ("idZeroAndEmpty", br#"{"jsonrpc":"2.0","id":"","result":0}"#),
    ("initialize", br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2026-01-01","capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}"#),
    ("noiseLog", b"2026-01-01T00:00:00Z INFO server listening on stdio"),
    ("noiseObject", br#"{"level":"info","message":"listening"}"#),
    ("noiseWords", b"true story"),
    ("notification", br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
    ("resultNull", br#"{"jsonrpc":"2.0","id":"x","result":null}"#),
    ("traceNull", br#"{"id":1,"method":"process/start","params":{},"trace":null}"#),
    ("traceObject", br#"{"id":1,"method":"process/start","params":{},"trace":{"traceparent":"00-0-0-00"}}"#),
    ("traceText", br#"{"id":1,"method":"process/start","trace":"x"}"#),
    ("unreadableId", br#"{"jsonrpc":"2.0","id":[1],"method":"m","params":{"a":"\ud800"}}"#),
];

/// Name, the byte that says how the stream is cut, and the stream.
const STREAMS: &[(&str, u8, &[u8])] = &[
    ("badCharacterThenGood", 3, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("batchThenGood", 4, b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"m\"}\n"),
    ("blankLines", 5, b"\n\r\n  \n\t\r\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"),
    ("byteOrderMark", 6, b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("byteOrderMarkCut", 7, b"\xef\xbb{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("byteOrderMarkInside", 8, b"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("byteOrderMarkOnly", 1, b"\xef\xbb\xbf"),
    ("carriageReturnInside", 2, b"{\"jsonrpc\":\r\"2.0\",\"method\":\"n\"\r}\r\r\n\r{}\n"),
    ("carriageReturnInString", 3, b"{\"jsonrpc\":\"2.0\",\"method\":\"a\r\"}\n"),
    ("carriageReturnLineFeed", 4, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n"),
    ("characterCutByLineFeed", 5, b"{\"jsonrpc\":\"2.0\",\"method\":\"\xe6\xb0\n\xb4\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("characters", 6, "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":[\"é水😀\",\"\u{2028}\u{2029}\u{85}\u{b}\u{c}\"]}\n".as_bytes()),
    ("lineFeedInString", 7, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("lineFeedsOnly", 8, b"\n\n\r\n\n"),
    ("noise", 1, b"2026-01-01 INFO up\n123\ntrue story\n\"quoted\"\n{\"level\":\"info\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("otherLineEnds", 2, b"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\x0b\x0c\xc2\x85\xe2\x80\xa8{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"),
    ("refusedThenGood", 3, b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"a\":0,\"\\u0061\":0},\"id\":7}\n{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"m\"}\n"),
    ("truncated", 4, b"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"m\",\"params\":["),
    ("twoRefused", 5, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":2}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"m\",\"result\":0}\n"),
    ("withoutLineFeed", 6, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"),
    ("withoutLineFeedCarriageReturn", 7, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\r"),
];
