//! What the corpus promises about every shape: valid where it should be, as large as asked, bounded, the same twice.

use std::collections::HashSet;

use plimsoll_corpus::{
    Dialect, ECHO_MARKER, Envelope, Expect, Form, PIECE_BYTES, Reason, Shape, bench_rows, limits, shapes, truncations,
    useful,
};
use serde::de::IgnoredAny;

/// Small enough for every test to hold whole messages.
const SMALL: usize = 20_000;

#[test]
fn every_row_of_the_table_has_a_shape() {
    let rows: HashSet<u8> = shapes().iter().map(Shape::number).collect();
    assert_eq!(rows, (1..=28).collect());
}

#[test]
fn names_are_distinct_and_in_camel_case() {
    let names: HashSet<&str> = shapes().iter().map(Shape::name).collect();
    assert_eq!(names.len(), shapes().len());
    for name in names {
        assert!(name.starts_with(|first: char| first.is_ascii_lowercase()), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
    }
}

#[test]
fn a_text_is_as_long_as_asked_and_as_it_says() {
    for shape in shapes().iter().filter(|shape| shape.is_sized()) {
        for size in [1_000, 4_097, SMALL, shape.default_bytes()] {
            let text = shape.text(size);
            // The smallest instance of these has a unit of more than a thousand bytes.
            if size > 1_000 {
                assert_eq!(text.remaining_bytes(), size as u64, "{} at {size}", shape.name());
            }
            let announced = text.remaining_bytes();
            assert_eq!(text.map(|piece| piece.len() as u64).sum::<u64>(), announced, "{} at {size}", shape.name());
        }
    }
}

#[test]
fn a_shape_without_a_size_is_the_same_at_every_size() {
    for shape in shapes().iter().filter(|shape| !shape.is_sized() && shape.form() != Form::Lines) {
        assert!(shape.text(0).into_bytes() == shape.text(1 << 20).into_bytes(), "{}", shape.name());
        assert_eq!(shape.text(0).remaining_bytes() as usize, shape.default_bytes(), "{}", shape.name());
    }
}

#[test]
fn tiny_sizes_do_no_harm() {
    for shape in shapes().iter().filter(|shape| shape.is_sized()) {
        for size in 0..64 {
            let text = shape.text(size);
            assert_eq!(text.remaining_bytes(), text.into_bytes().len() as u64, "{} at {size}", shape.name());
            let _ = shape.expect(size);
        }
    }
}

#[test]
fn pieces_are_bounded_and_the_same_twice() {
    for shape in shapes() {
        let message = |_| shape.message(Dialect::Standard, Envelope::Notification, SMALL);
        let (mut first, mut second) = (message(0), message(1));
        loop {
            let piece = first.next();
            assert!(piece == second.next(), "{}", shape.name());
            let Some(piece) = piece else { break };
            assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES, "{}", shape.name());
        }
    }
}

#[test]
fn a_value_or_message_fits_in_a_line() {
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Value | Form::Message)) {
        assert!(!shape.text(SMALL).into_bytes().contains(&b'\n'), "{}", shape.name());
    }
}

#[test]
fn what_is_not_refused_for_its_syntax_is_json() {
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Value | Form::Message)) {
        for size in [SMALL, shape.default_bytes().min(4 * 1024 * 1024)] {
            for envelope in Envelope::ALL {
                let expect = shape.expect_in(Dialect::Standard, envelope, size);
                let text = shape.message(Dialect::Standard, envelope, size).into_bytes();
                let parsed = serde_json::from_slice::<IgnoredAny>(&text);
                match expect {
                    Expect::Refused(
                        Reason::Depth
                        | Reason::InvalidJson
                        | Reason::Truncated
                        | Reason::LoneSurrogate
                        | Reason::InvalidUtf8,
                    )
                    | Expect::Behaviour => {}
                    _ => assert!(parsed.is_ok(), "{} at {size}: {expect:?}, {parsed:?}", shape.name()),
                }
                if let Expect::Refused(Reason::InvalidJson | Reason::Truncated) = expect {
                    assert!(parsed.is_err(), "{} at {size}", shape.name());
                }
            }
        }
    }
}

#[test]
fn bad_text_is_bad_for_others_too() {
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Value | Form::Message)) {
        let text = shape.message(Dialect::Standard, Envelope::Notification, SMALL).into_bytes();
        match shape.expect(SMALL) {
            Expect::Refused(Reason::InvalidUtf8) => assert!(str::from_utf8(&text).is_err(), "{}", shape.name()),
            Expect::Refused(Reason::LoneSurrogate) => {
                assert!(serde_json::from_slice::<serde_json::Value>(&text).is_err(), "{}", shape.name());
            }
            Expect::Accepted => {
                assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok(), "{}", shape.name());
            }
            _ => {}
        }
    }
}

#[test]
fn values_and_depth_are_what_the_expectation_says() {
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Value | Form::Message)) {
        for envelope in Envelope::ALL {
            for size in [SMALL, 300, 260, 250, 200].into_iter().chain([shape.default_bytes().min(4 << 20)]) {
                let text = shape.message(Dialect::Standard, envelope, size);
                let bytes = text.remaining_bytes();
                let (values, depth) = count(text);
                let counted = if depth > limits::DEPTH {
                    Some(Expect::Refused(Reason::Depth))
                } else if values > limits::JSON_VALUES {
                    Some(Expect::Refused(Reason::JsonValues))
                } else if bytes > limits::MESSAGE_BYTES {
                    Some(Expect::Refused(Reason::MessageBytes))
                } else {
                    None
                };
                let expect = shape.expect_in(Dialect::Standard, envelope, size);
                match (counted, expect) {
                    (_, Expect::Behaviour | Expect::Refused(Reason::Batch)) => {}
                    (Some(counted), expect) => assert_eq!(counted, expect, "{} at {size}", shape.name()),
                    (None, Expect::Refused(Reason::Depth | Reason::JsonValues | Reason::MessageBytes)) => {
                        panic!("{} at {size}: {expect:?} with {values} values, depth {depth}", shape.name())
                    }
                    (None, _) => {}
                }
            }
        }
    }
}

#[test]
fn the_values_limit_is_exact_in_every_envelope() {
    let zeroes = shapes().iter().find(|shape| shape.name() == "flatZeroes").expect("row 1");
    for dialect in [Dialect::Bare, Dialect::Standard] {
        for envelope in Envelope::ALL {
            let elements = (limits::JSON_VALUES - envelope.values(dialect) - 1) as usize;
            let size = elements * 2 + 1;
            assert_eq!(zeroes.expect_in(dialect, envelope, size), Expect::Accepted);
            assert_eq!(zeroes.expect_in(dialect, envelope, size + 2), Expect::Refused(Reason::JsonValues));
        }
    }
}

#[test]
fn default_sizes_give_the_attack_and_not_a_small_copy() {
    let right = |name: &str| {
        let shape = shapes().iter().find(|shape| shape.name() == name).expect("a shape of this name");
        shape.expect(shape.default_bytes())
    };
    for name in ["flatZeroes", "flatNulls", "powerOfTwoPlusOne", "reproduction", "tinyObjects", "comb", "singletons"] {
        assert_eq!(right(name), Expect::Refused(Reason::JsonValues), "{name}");
    }
    for name in ["openBrackets", "nestedObjects", "deepUnderUnknown", "deepErrorData", "deepUnknownMember"] {
        assert_eq!(right(name), Expect::Refused(Reason::Depth), "{name}");
    }
    for name in ["collidingPrefixes", "collidingEnds", "collidingLongPrefix", "escapedKeys", "tieFloats", "escapes"] {
        assert_eq!(right(name), Expect::Accepted, "{name}");
    }
    for name in ["duplicateFirstAndLast", "escapedKeysDuplicate", "echoDuplicateKey", "duplicateEscapedId"] {
        assert_eq!(right(name), Expect::Refused(Reason::DuplicateKey), "{name}");
    }
    assert_eq!(right("typedMultiplier"), Expect::TypedDecode);
    assert_eq!(right("refusedByType"), Expect::TypedDecode);
    assert_eq!(right("longKey"), Expect::Refused(Reason::KeyBytes));
    assert_eq!(right("longMethod"), Expect::Refused(Reason::MethodBytes));
    assert_eq!(right("longId"), Expect::Refused(Reason::IdBytes));
    assert_eq!(right("longInteger"), Expect::Refused(Reason::NumberBytes));
    assert_eq!(right("batchNotifications"), Expect::Refused(Reason::Batch));
}

#[test]
fn the_bare_dialect_does_not_ask_for_a_version() {
    let missing = shapes().iter().find(|shape| shape.name() == "versionMissing").expect("row 23");
    let first = Envelope::ALL[0];
    assert_eq!(missing.expect_in(Dialect::Standard, first, 0), Expect::Refused(Reason::JsonrpcVersion));
    assert_eq!(missing.expect_in(Dialect::Bare, first, 0), Expect::Accepted);
}

#[test]
fn what_must_not_be_echoed_carries_the_marker() {
    for shape in shapes().iter().filter(|shape| shape.number() == 25) {
        let text = String::from_utf8(shape.text(SMALL).into_bytes()).expect("UTF-8");
        assert!(text.contains(ECHO_MARKER), "{}", shape.name());
    }
}

#[test]
fn truncations_are_all_incomplete() {
    let mut last = 0;
    for prefix in truncations() {
        assert_eq!(prefix.len(), last + 1);
        last = prefix.len();
        assert!(serde_json::from_slice::<IgnoredAny>(prefix).is_err());
    }
    assert!(last > 150, "{last}");
}

#[test]
fn useful_messages_are_within_the_limits() {
    let lengths: Vec<(&str, u64)> = useful().iter().map(|it| (it.name(), it.text().remaining_bytes())).collect();
    assert!(lengths.contains(&("textResult", 10_485_869)), "{lengths:?}");
    assert!(lengths.contains(&("escapes", 12_600_000)), "{lengths:?}");
    for useful in useful() {
        let text = useful.text().into_bytes();
        let lines: Vec<&[u8]> = match useful.form() {
            Form::Lines => text.strip_suffix(b"\n").expect("a last line").split(|byte| *byte == b'\n').collect(),
            _ => vec![&text],
        };
        assert_eq!(lines.len(), useful.messages(), "{}", useful.name());
        for line in lines {
            assert!(serde_json::from_slice::<IgnoredAny>(line).is_ok(), "{}", useful.name());
            assert!(line.len() as u64 <= limits::MESSAGE_BYTES, "{}", useful.name());
        }
        if useful.form() == Form::Message {
            let (values, depth) = count(useful.text());
            assert!(values <= limits::JSON_VALUES && depth <= limits::DEPTH, "{}: {values}, {depth}", useful.name());
        }
    }
}

#[test]
fn bench_rows_are_the_table() {
    let rows = bench_rows();
    assert_eq!(rows.len(), 12);
    for row in &rows {
        assert!(serde_json::from_slice::<IgnoredAny>(&row.message).is_ok(), "{}", row.name);
    }
    let length = |name: &str| rows.iter().find(|row| row.name == name).map_or(0, |row| row.message.len());
    assert_eq!(length("toolsCall"), 216);
    for (name, bytes) in [
        ("flatZeroes", 4_194_303),
        ("toolsList", 100_000),
        ("base64", 1_000_000),
        ("cjkText", 1_000_000),
        ("escapes", 1_000_000),
        ("prettyPrinted", 200_000),
    ] {
        assert!(length(name).abs_diff(bytes) < bytes / 50, "{name}: {}", length(name));
    }
}

/// Counts values and the greatest depth in a text, good or not, byte by byte: not how a scanner would, on purpose.
fn count(text: impl Iterator<Item = Vec<u8>>) -> (u64, u64) {
    let (mut values, mut depth, mut deepest) = (0, 0_u64, 0);
    let (mut in_string, mut escaped, mut in_scalar) = (false, false, false);
    for byte in text.flatten() {
        if in_string {
            (in_string, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
            continue;
        }
        match byte {
            b'"' => {
                (in_string, in_scalar) = (true, false);
                values += 1;
            }
            b'[' | b'{' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                in_scalar = false;
            }
            // The string before it was a key.
            b':' => values -= 1,
            b',' | b' ' | b'\t' | b'\r' => in_scalar = false,
            _ => {
                values += u64::from(!in_scalar);
                in_scalar = true;
            }
        }
    }
    (values, deepest)
}
