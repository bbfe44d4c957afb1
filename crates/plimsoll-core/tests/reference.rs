//! Accepted exactly when a second, plain reader accepts and no limit is passed; and nothing depends on the chunks.
//!
//! The reader and the checks are in `harness/mod.rs`, which the fuzz targets share. Here are the inputs: random
//! messages, random JSON, both mutated, and bytes that JSON is made of. Every run tries the same ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod harness;

use harness::{
    Chance, Outcome, check_against_reference, check_chunking, document, expected, expected_document, limit_sets,
    receive, unlimited,
};
use plimsoll_core::{Dialect, Reason};

/// Text with the parts that matter to a reader of JSON-RPC, more of them than chance alone would give.
fn string(chance: &mut Chance, out: &mut Vec<u8>) {
    const PARTS: &[&str] = &[
        "a",
        "b",
        "ab",
        "id",
        "method",
        "\\u0061",
        "\\u0069d",
        "é",
        "水",
        "😀",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u0000",
        "\u{7f}",
        "plain text of some length",
        "\u{2028}",
        "\\ud83D\\uDe00\\ud83d\\ude00",
        " ",
    ];
    out.push(b'"');
    for _ in 0..chance.below(4) {
        out.extend_from_slice(chance.pick(PARTS).as_bytes());
    }
    if chance.below(60) == 0 {
        // Long enough for what is read many bytes at a time.
        let fill = *chance.pick(&["x", "é", "水"]);
        out.extend_from_slice(fill.repeat(chance.below(200)).as_bytes());
    }
    if chance.below(40) == 0 {
        const WRONG: &[&[u8]] = &[
            b"\\ud800",
            b"\\udc00",
            b"\\ud800\\u0061",
            b"\\ud800x",
            b"\\ud800\\n",
            b"\xff",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\xf5",
            b"\xe2\x82",
            b"\xf0\x9f\x98",
            b"\x01",
            b"\\x",
            b"\\u12",
            b"\\ud800\\udc0",
            b"\xf4\x90\x80\x80",
            b"\t",
        ];
        out.extend_from_slice(chance.pick::<&[u8]>(WRONG));
    }
    out.push(b'"');
}

fn scalar(chance: &mut Chance, out: &mut Vec<u8>) {
    const SCALARS: &[&str] = &[
        "0",
        "7",
        "-0",
        "1.0",
        "1.00",
        "12",
        "-1.5e-7",
        "1e999",
        "1E+99999999999",
        "123456789012345678901234567890",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "true",
        "false",
        "null",
        "0.5",
        "10e0",
    ];
    if chance.below(2) == 0 { string(chance, out) } else { out.extend_from_slice(chance.pick(SCALARS).as_bytes()) }
}

fn space(chance: &mut Chance, out: &mut Vec<u8>) {
    if chance.below(6) == 0 {
        out.extend_from_slice(chance.pick(&[" ", "\t", "  ", "\r", "          "]).as_bytes());
    }
}

fn value(chance: &mut Chance, depth: usize, out: &mut Vec<u8>) {
    space(chance, out);
    match chance.below(if depth > 6 { 3 } else { 6 }) {
        3 => {
            out.push(b'[');
            for index in 0..chance.below(5) {
                if index > 0 {
                    out.push(b',');
                }
                value(chance, depth + 1, out);
            }
            space(chance, out);
            out.push(b']');
        }
        4 | 5 => {
            let members = if chance.below(12) == 0 { chance.below(40) } else { chance.below(4) };
            object(chance, depth, members, out);
        }
        _ => scalar(chance, out),
    }
    space(chance, out);
}

fn object(chance: &mut Chance, depth: usize, members: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    for index in 0..members {
        if index > 0 {
            out.push(b',');
        }
        space(chance, out);
        if chance.below(3) == 0 {
            string(chance, out);
        } else {
            // Mostly different, so that whole objects are accepted too.
            let name =
                if chance.below(30) == 0 { "\"k0\"".to_owned() } else { format!("\"k{}{index}\"", chance.below(3)) };
            out.extend_from_slice(name.as_bytes());
        }
        space(chance, out);
        out.push(b':');
        value(chance, depth + 1, out);
    }
    space(chance, out);
    out.push(b'}');
}

/// A message, more or less: members in any order, some missing, some of a wrong type, now and then one twice.
fn message(chance: &mut Chance, out: &mut Vec<u8>) {
    let mut members: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut add = |chance: &mut Chance, odds: usize, name: &'static str, usual: &[&str]| {
        if chance.below(8) < odds {
            let mut text = chance.pick(usual).as_bytes().to_vec();
            if chance.below(8) == 0 {
                text.clear();
                value(chance, 3, &mut text);
            }
            members.push((name, text));
        }
    };
    add(chance, 7, "jsonrpc", &["\"2.0\"", "\"2.0\"", "\"2.0\"", "\"\\u0032.0\"", "\"1.0\"", "2.0"]);
    add(chance, 5, "method", &["\"m\"", "\"tools/call\"", "\"\\u006d\"", "\"\""]);
    add(chance, 6, "id", &["1", "\"a\"", "-7", "1.0", "\"\\u0061\"", "\"\"", "null", "1.5", "9223372036854775808"]);
    add(chance, 2, "result", &["{}", "null", "[1,2]"]);
    add(chance, 1, "error", &["{\"code\":-32600,\"message\":\"m\"}", "1"]);
    add(chance, 1, "trace", &["{\"traceparent\":\"00\"}", "null", "1"]);
    add(chance, 1, "Id", &["1"]);
    add(chance, 1, "method\\u0000", &["\"n\""]);
    if chance.below(8) < 5 {
        let mut text = Vec::new();
        value(chance, 1, &mut text);
        members.push(("params", text));
    }
    if chance.below(20) == 0
        && let Some(member) = members.first().cloned()
    {
        members.push(member);
    }
    for end in (1..members.len()).rev() {
        members.swap(end, chance.below(end + 1));
    }
    space(chance, out);
    out.push(b'{');
    for (index, (name, text)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        space(chance, out);
        let name = match (*name, chance.below(30)) {
            ("id", 0) => "\\u0069d",
            ("method", 0) => "m\\u0065thod",
            (name, _) => name,
        };
        out.extend_from_slice(format!("\"{name}\"").as_bytes());
        space(chance, out);
        out.push(b':');
        space(chance, out);
        out.extend_from_slice(text);
        space(chance, out);
    }
    out.push(b'}');
    space(chance, out);
}

fn mutate(chance: &mut Chance, bytes: &mut Vec<u8>) {
    const BYTES: &[u8] = b"{}[]\",:\\ud8c0/ebtfn-+.019\n\r\t \x00\x1f\x7f\x80\xc3\xe2\xff\xf0x";
    for _ in 0..1 + chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(6) {
            0 => bytes.insert(at, *chance.pick(BYTES)),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 if at < bytes.len() => bytes[at] = *chance.pick(BYTES),
            4 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            _ => {
                let end = (at + chance.below(20)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                let to = chance.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
        }
    }
}

fn soup(chance: &mut Chance) -> Vec<u8> {
    const WORDS: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\n",
        b"\r",
        b" ",
        b"0",
        b"1",
        b"-",
        b".",
        b"e",
        b"true",
        b"null",
        b"\"id\":",
        b"\"method\":",
        b"\"a\"",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\\ud800",
        b"\xff",
        b"\xc3",
        b"\xa9",
        b"{\"jsonrpc\":\"2.0\",",
        b"\"result\":1",
        b"\x0b",
        b"\x0c",
    ];
    let mut bytes = Vec::new();
    for _ in 0..chance.below(14) {
        if chance.below(8) == 0 {
            bytes.push(chance.next() as u8)
        } else {
            bytes.extend_from_slice(chance.pick::<&[u8]>(WORDS))
        }
    }
    bytes
}

fn check(inputs: usize, seed: u64, mut make: impl FnMut(&mut Chance) -> Vec<u8>) {
    let mut chance = Chance::new(seed);
    for _ in 0..inputs {
        let bytes = make(&mut chance);
        check_against_reference(&bytes);
        check_chunking(&bytes, chance.next());
    }
}

#[test]
fn random_messages_are_read_as_the_reference_reads_them() {
    check(6_000, 1, |chance| {
        let mut bytes = Vec::new();
        message(chance, &mut bytes);
        bytes
    });
}

#[test]
fn mutated_messages_are_read_as_the_reference_reads_them() {
    check(8_000, 2, |chance| {
        let mut bytes = Vec::new();
        message(chance, &mut bytes);
        mutate(chance, &mut bytes);
        bytes
    });
}

#[test]
fn random_documents_are_read_as_the_reference_reads_them() {
    check(4_000, 3, |chance| {
        let mut bytes = Vec::new();
        value(chance, 0, &mut bytes);
        if chance.below(2) == 0 {
            mutate(chance, &mut bytes);
        }
        bytes
    });
}

#[test]
fn random_bytes_are_read_as_the_reference_reads_them() {
    check(10_000, 4, soup);
}

#[test]
fn streams_of_lines_are_cut_as_the_reference_cuts_them() {
    check(3_000, 5, |chance| {
        let mut bytes = if chance.below(4) == 0 { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
        for _ in 0..chance.below(5) {
            match chance.below(6) {
                0 => bytes.extend(soup(chance)),
                1 => space(chance, &mut bytes),
                _ => message(chance, &mut bytes),
            }
            if chance.below(3) == 0 {
                mutate(chance, &mut bytes);
            }
            bytes.extend_from_slice(chance.pick(&["\n", "\r\n", "\n\n", "\r\r\n", " \n"]).as_bytes());
        }
        if chance.below(2) == 0 {
            message(chance, &mut bytes);
        }
        bytes
    });
}

/// Large enough to lie in several segments, so that keys, strings and ids straddle their borders.
#[test]
fn messages_of_many_segments_are_read_as_the_reference_reads_them() {
    let mut chance = Chance::new(6);
    let limits = unlimited();
    let mut accepted = 0;
    for round in 0..12 {
        let mut bytes = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[".to_vec();
        while bytes.len() < 200_000 {
            let mut piece = Vec::new();
            value(&mut chance, 2, &mut piece);
            // One bad string or repeated key would refuse all of it.
            if round % 2 == 0 || expected_document(&piece, &limits).is_ok() {
                bytes.extend(piece);
                bytes.push(b',');
            }
        }
        bytes.extend_from_slice(b"0],\"id\":\"the last of them\"}");
        if round % 3 == 0 {
            mutate(&mut chance, &mut bytes);
        }
        let found = receive(&bytes, [], &limits, Dialect::Standard);
        assert_eq!(found, expected(&bytes, &limits, Dialect::Standard));
        accepted += found.iter().filter(|outcome| matches!(outcome, Outcome::Message { .. })).count();
        check_chunking(&bytes, round);
    }
    assert!(accepted >= 3, "{accepted} of them were whole");
}

/// The comparison is worth nothing if the inputs do not reach what it compares.
#[test]
fn the_random_inputs_reach_every_kind_and_every_reason_of_the_scanner() {
    let mut chance = Chance::new(7);
    let (mut reasons, mut kinds, mut overruns) = (Vec::new(), Vec::new(), 0);
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        message(&mut chance, &mut bytes);
        if chance.below(3) == 0 {
            mutate(&mut chance, &mut bytes);
        }
        let sets = limit_sets();
        let dialect = *chance.pick(&[Dialect::Standard, Dialect::Bare]);
        for outcome in receive(&bytes, [], chance.pick(&sets), dialect) {
            match outcome {
                Outcome::Message { kind, .. } => kinds.push(kind),
                Outcome::Refused { refusal, overrun, .. } => {
                    reasons.push(refusal.reason);
                    overruns += usize::from(overrun.is_some());
                }
            }
        }
    }
    let times = |reason: Reason| reasons.iter().filter(|found| **found == reason).count();
    for reason in [
        Reason::InvalidJson,
        Reason::Truncated,
        Reason::InvalidUtf8,
        Reason::LoneSurrogate,
        Reason::JsonrpcVersion,
        Reason::InvalidId,
        Reason::InvalidMethod,
        Reason::InvalidTrace,
        Reason::MethodWithResult,
        Reason::ResultWithError,
        Reason::NotAnObject,
        Reason::NotJsonRpc,
        Reason::MessageBytes,
        Reason::JsonValues,
        Reason::Depth,
        Reason::DuplicateKey,
        Reason::StringBytes,
        Reason::KeyBytes,
        Reason::NumberBytes,
        Reason::IdBytes,
        Reason::MethodBytes,
    ] {
        assert!(times(reason) >= 10, "{reason} was reached {} times", times(reason));
    }
    for kind in [
        plimsoll_core::Kind::Request,
        plimsoll_core::Kind::Notification,
        plimsoll_core::Kind::Response,
        plimsoll_core::Kind::ErrorResponse,
    ] {
        let times = kinds.iter().filter(|found| **found == kind).count();
        assert!(times >= 100, "{kind:?} was reached {times} times");
    }
    assert!(overruns >= 10, "{overruns} overruns");
}

/// Every place where a message can be cut, and every pair of places near the ones that matter.
#[test]
fn a_message_is_the_same_whatever_byte_it_is_cut_at() {
    let texts: &[&[u8]] = &[
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":\"\\ud83d\\ude00\xf0\x9f\x98\x80\",\"method\":\"m\\u0065\",\"params\":[-1.5e+7,true]}\r\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\",\"params\":[\"\\ud83d\\ud83d\"]}\n{\"id\":1,\"result\":nul}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\",\"params\":[\"\xe2\x82\"],\"x\":\"\xff\"}\n\r\n \n\xef\xbb",
        b"{\"id\":-9223372036854775808,\"\\u0072esult\":{\"a\":1,\"\\u0061\":2}}\n{\"id\":1.000,\"result\":0}",
    ];
    for text in texts {
        for limits in limit_sets() {
            for dialect in [Dialect::Standard, Dialect::Bare] {
                let whole = receive(text, [], &limits, dialect);
                let whole_document = document(text, [], &limits);
                for first in 0..text.len() {
                    assert_eq!(receive(text, [first], &limits, dialect), whole, "cut at {first}");
                    assert_eq!(document(text, [first], &limits), whole_document, "cut at {first}");
                    assert_eq!(receive(text, [first, 1], &limits, dialect), whole, "cut at {first} and after it");
                }
            }
        }
    }
}

/// Accepted or not, whole and byte by byte.
fn is_document(bytes: &[u8]) -> bool {
    let whole = document(bytes, [], &unlimited());
    assert_eq!(document(bytes, std::iter::repeat(1), &unlimited()), whole, "{}", bytes.escape_ascii());
    whole.is_ok()
}

#[test]
fn every_escaped_code_unit_alone_is_text_exactly_when_it_is_a_character() {
    for unit in 0..=0xffff_u32 {
        let text = format!("\"\\u{unit:04x}\"");
        assert_eq!(is_document(text.as_bytes()), char::from_u32(unit).is_some(), "{text}");
    }
}

#[test]
fn two_escaped_code_units_are_text_exactly_when_utf_16_says_so() {
    const EDGES: [u16; 12] = [0, 0x22, 0x5c, 0xd7ff, 0xd800, 0xd801, 0xdbfe, 0xdbff, 0xdc00, 0xdffe, 0xdfff, 0xe000];
    for one in EDGES {
        for two in EDGES {
            for three in EDGES {
                let right = char::decode_utf16([one, two, three]).all(|character| character.is_ok());
                let text = format!("{{\"\\u{one:04x}\\u{two:04X}\\u{three:04x}\":0}}");
                assert_eq!(is_document(text.as_bytes()), right, "{text}");
            }
        }
    }
}

#[test]
fn one_wrong_byte_is_found_at_every_place_of_a_long_string() {
    for length in [1, 8, 31, 64, 65, 96, 130, 300] {
        for at in 0..length {
            for (byte, reason) in
                [(0xff, Reason::InvalidUtf8), (0x80, Reason::InvalidUtf8), (0x1f, Reason::InvalidJson)]
            {
                let mut text = [b"[\"".as_slice(), &vec![b'a'; length], b"\"]"].concat();
                text[2 + at] = byte;
                for pieces in [usize::MAX, 100, 64, 7] {
                    let refusal = document(&text, std::iter::repeat(pieces), &unlimited()).unwrap_err();
                    assert_eq!((refusal.reason, refusal.offset), (reason, Some(2 + at as u64)));
                }
            }
        }
    }
}

#[test]
fn bytes_in_a_string_are_text_exactly_when_the_standard_library_says_so() {
    let check = |bytes: &[u8]| {
        let text = [b"[\"", bytes, b"\"]"].concat();
        let plain = bytes.iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\');
        assert_eq!(is_document(&text), plain && std::str::from_utf8(bytes).is_ok(), "{}", text.escape_ascii());
    };
    for one in 0..=0xff {
        if one != b'\\' {
            check(&[one]);
            (0x20..=0xff).filter(|two| *two != b'"').for_each(|two| check(&[one, two]));
        }
    }
    const NEXT: [u8; 9] = [0x61, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0];
    for first in 0xc0..=0xff {
        for second in NEXT {
            for third in NEXT {
                check(&[first, second, third]);
                NEXT.iter().for_each(|fourth| check(&[first, second, third, *fourth]));
            }
        }
    }
}
