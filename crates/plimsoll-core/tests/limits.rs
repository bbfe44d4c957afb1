//! Each limit refuses at its edge and not before, and what it refuses is delivered when it is off.
//!
//! Every message here is valid JSON and well-formed JSON-RPC, so nothing but the one limit can refuse it: no guardrail
//! is dead code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{CHUNKS, accepted, as_message, one, push, refused};
use plimsoll_core::{
    Bound, Budget, Dialect, DuplicateKeys, KIB, Limits, Line, LineDeframer, MIB, Reason, Received, SeenId,
};

/// The limits that the core enforces, each with its test.
const HERE: &[(&str, fn())] = &[
    ("memory", memory_refuses_what_the_process_has_no_room_for),
    ("cap", cap_refuses_what_one_connection_has_no_room_for),
    ("message_bytes", message_bytes_refuses_one_byte_more_than_it_says),
    ("skip_bytes", skip_bytes_ends_a_refused_message_one_byte_after_it_says),
    ("json_values", json_values_refuses_one_value_more_than_it_says),
    ("depth", depth_refuses_one_container_more_than_it_says),
    ("duplicate_keys", duplicate_keys_refuses_a_key_that_comes_twice),
    ("string_bytes", string_bytes_refuses_one_byte_more_than_it_says),
    ("key_bytes", key_bytes_refuses_one_byte_more_than_it_says),
    ("number_bytes", number_bytes_refuses_one_byte_more_than_it_says),
    ("id_bytes", id_bytes_refuses_one_byte_more_than_it_says),
    ("method_bytes", method_bytes_refuses_one_byte_more_than_it_says),
];

/// The limits that others enforce, and who.
const ELSEWHERE: &[(&str, &str)] = &[
    ("in_flight", "plimsoll, the peer that admits requests"),
    ("pending", "plimsoll, the table of calls"),
    ("outgoing_bytes", "plimsoll, the outgoing queue"),
    ("notification_bytes", "plimsoll, the queue of notifications"),
    ("call_deadline", "plimsoll, the table of calls"),
    ("stall_deadline", "plimsoll, the writer"),
    ("grace", "plimsoll, the child process"),
    ("drain", "plimsoll, the peer at the end of its input"),
    ("processes", "plimsoll-exec"),
    ("stdin_bytes", "plimsoll-exec"),
    ("write_ids", "plimsoll-exec"),
    ("write_wait", "plimsoll-exec"),
];

#[test]
fn every_limit_is_enforced_here_or_by_someone_who_is_named() {
    let mut known: Vec<&str> = HERE.iter().map(|row| row.0).chain(ELSEWHERE.iter().map(|row| row.0)).collect();
    let mut names = Limits::NAMES.to_vec();
    known.sort_unstable();
    names.sort_unstable();
    assert_eq!(known, names);
}

/// What `make(n)` is refused for at a limit of `n - 1`, and that it passes at `n` and without the limit.
fn assert_edge(n: u64, reason: Reason, with: impl Fn(Bound) -> Limits, make: impl Fn(usize) -> String, readable: bool) {
    let text = |n: u64| make(n as usize).into_bytes();
    for dialect in [Dialect::Standard, Dialect::Bare] {
        for chunk in CHUNKS {
            let limits = with(Bound::at_most(n));
            accepted(one(&text(n), chunk, &limits, dialect));
            let over = refused(one(&text(n + 1), chunk, &limits, dialect));
            assert_eq!(over.refusal.reason, reason, "{}", over.refusal);
            assert_eq!(over.refusal.limit, Some(n));
            // What is refused in passing names the first number over the limit; the length of the message is known.
            let observed = if reason == Reason::MessageBytes { over.wire_bytes } else { n + 1 };
            assert_eq!(over.refusal.observed, Some(observed));
            assert_eq!(matches!(over.id, SeenId::Readable(_)), readable, "{:?}", over.id);
            let sentence = over.refusal.to_string();
            let name = reason.limit_name().unwrap();
            assert!(sentence.contains(&format!("({name} is {n}, observed {observed})")), "{sentence}");
            accepted(one(&text(n + 1), chunk, &with(Bound::Unbounded), dialect));
        }
    }
}

fn request(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#)
}

#[test]
fn message_bytes_refuses_one_byte_more_than_it_says() {
    for n in [60, 4_096, 4_097, 61_440, 70_000] {
        // Filled with text, with white space before, between and after; each is counted.
        for (head, fill, tail) in [("", "x", ""), (" \t", "x", "  "), ("", "é", "")] {
            let make = |n: usize| {
                let bare = request(r#"[""]"#).len() + head.len() + tail.len();
                let filled = fill.repeat((n - bare) / fill.len()) + &"y".repeat((n - bare) % fill.len());
                format!("{head}{}{tail}", request(&format!(r#"["{filled}"]"#)))
            };
            assert_eq!(make(n as usize).len(), n as usize);
            assert_edge(n, Reason::MessageBytes, |bound| Limits::default().with_message_bytes(bound), make, true);
        }
    }
}

#[test]
fn message_bytes_refuses_at_its_byte_whatever_the_limit_of_the_line() {
    let limits = Limits::default().with_message_bytes(Bound::at_most(100));
    for chunk in CHUNKS {
        let refused =
            refused(one(request(&format!("[\"{}\"]", "x".repeat(500))).as_bytes(), chunk, &limits, Dialect::Bare));
        assert_eq!(refused.refusal.offset, Some(100));
    }
}

#[test]
fn skip_bytes_ends_a_refused_message_one_byte_after_it_says() {
    let budget = Budget::new(Bound::Unbounded);
    let text = |n: usize| {
        let bare = request("[0,0,\"\"]").len();
        request(&format!("[0,0,\"{}\"]", "x".repeat(n - bare))).into_bytes()
    };
    let limits = |bound| {
        let limits = Limits::default().with_json_values(Bound::at_most(6)).with_message_bytes(Bound::at_most(200));
        limits.with_skip_bytes(bound)
    };
    for chunk in CHUNKS {
        let found = |n: usize, bound: Bound| {
            let mut text = text(n);
            text.push(b'\n');
            common::lines(&limits(bound), Dialect::Standard, &budget, text.chunks(chunk))
        };
        let within = found(500, Bound::at_most(500)).pop().unwrap();
        assert_eq!(common::as_refused(within).refusal.reason, Reason::JsonValues, "skipped to its end");
        let beyond = found(501, Bound::at_most(500));
        let [Line::Overrun { refused, reason }] = beyond.as_slice() else { panic!("{beyond:?}") };
        assert_eq!((reason.reason, reason.limit, reason.observed), (Reason::SkipBytes, Some(500), Some(501)));
        assert_eq!(refused.refusal.reason, Reason::JsonValues);
        assert!(matches!(refused.id, SeenId::Readable(_)), "it is still answered");
        let off = found(100_000, Bound::Unbounded).pop().unwrap();
        assert_eq!(common::as_refused(off).wire_bytes, 100_000, "control");
    }
    // A message within its own limit is not skipped, however small the limit of skipping.
    accepted(one(&text(200), 97, &limits(Bound::at_most(10)).with_json_values(Bound::Unbounded), Dialect::Standard));
}

#[test]
fn json_values_refuses_one_value_more_than_it_says() {
    // In each the envelope has four values and `params` the rest.
    let shapes: &[fn(usize) -> String] = &[
        |n| format!("[{}]", vec!["0"; n - 5].join(",")),
        |n| format!("[{}]", vec![r#""a""#; n - 5].join(",")),
        |n| format!("[{}]", vec!["[]"; n - 5].join(",")),
        |n| format!("[{}]", vec!["{}"; n - 5].join(",")),
        |n| format!("[{}]", vec!["null"; n - 5].join(" , ")),
        |n| format!("{{{}}}", (0..n - 5).map(|n| format!(r#""{n}":true"#)).collect::<Vec<_>>().join(",")),
    ];
    for params in shapes {
        let make = |n| request(&params(n));
        assert_edge(50, Reason::JsonValues, |bound| Limits::default().with_json_values(bound), make, true);
    }
}

#[test]
fn by_default_262_144_values_pass_and_one_more_does_not() {
    let text = |zeroes: usize| request(&format!("[0{}]", ",0".repeat(zeroes - 1))).into_bytes();
    for chunk in CHUNKS {
        let message = accepted(one(&text(262_139), chunk, &Limits::default(), Dialect::Standard));
        assert_eq!((message.counts().values, message.counts().scalars()), (262_144, 262_142));
        let over = refused(one(&text(262_140), chunk, &Limits::default(), Dialect::Standard));
        assert_eq!((over.refusal.reason, over.refusal.observed), (Reason::JsonValues, Some(262_145)));
        assert_eq!(over.counts.values, 262_144, "what was counted before the refusal");
    }
    // The exec protocol's number: in a message without `jsonrpc`.
    let text = |zeroes: usize| format!(r#"{{"id":77,"method":"nope","params":[0{}]}}"#, ",0".repeat(zeroes - 1));
    accepted(one(text(262_140).as_bytes(), 8192, &Limits::exec(), Dialect::Bare));
    refused(one(text(262_141).as_bytes(), 8192, &Limits::exec(), Dialect::Bare));
}

#[test]
fn a_string_of_more_than_262_144_bytes_is_one_value() {
    for fill in ["x", "[0,0,0]", "\\u0001", "水"] {
        let text = request(&format!(r#"["{}"]"#, fill.repeat(400_000 / fill.len())));
        for chunk in [usize::MAX, 8192, 1] {
            let message = accepted(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
            assert_eq!(message.counts().values, 6);
        }
    }
}

#[test]
fn depth_refuses_one_container_more_than_it_says() {
    let shapes: &[fn(usize) -> String] = &[
        |n| format!("{}{}", "[".repeat(n - 1), "]".repeat(n - 1)),
        |n| format!("{}{{}}{}", r#"{"a":"#.repeat(n - 2), "}".repeat(n - 2)),
        |n| {
            (0..n - 1).rfold("0".to_owned(), |core, at| {
                if at % 2 == 0 { format!("[{core}]") } else { format!(r#"{{"a":{core}}}"#) }
            })
        },
    ];
    for params in shapes {
        // 63 to 65 and 127 to 129: where a word of the stack ends.
        for n in [2, 3, 63, 64, 65, 127, 128, 129, 300] {
            let make = |n: usize| request(&params(n));
            assert_edge(n, Reason::Depth, |bound| Limits::default().with_depth(bound), make, true);
        }
    }
    let over = refused(one(request(&"[".repeat(200_000)).as_bytes(), 8192, &Limits::default(), Dialect::Standard));
    assert_eq!((over.refusal.reason, over.refusal.limit), (Reason::Depth, Some(127)));
    assert_eq!(over.refusal.offset, Some(request("").len() as u64 - 1 + 126), "the container that is one too deep");
}

#[test]
fn depth_is_counted_in_members_that_nobody_reads() {
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    for text in [
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","unknown":{deep}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"_meta":{deep}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":1,"message":"m","data":{deep}}}}}"#),
        format!(r#"{{"jsonrpc":{deep},"id":7,"method":"m"}}"#),
    ] {
        for chunk in CHUNKS {
            let over = refused(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
            assert_eq!((over.refusal.reason, over.id), (Reason::Depth, SeenId::Readable(7.into())));
        }
    }
}

#[test]
fn duplicate_keys_refuses_a_key_that_comes_twice() {
    let many = |last: &str| {
        let keys: Vec<String> = (0..100_000).map(|n| format!(r#""{n}":0"#)).collect();
        format!(r#"{{{},"{last}":0}}"#, keys.join(","))
    };
    for params in [
        r#"{"a":1,"a":2}"#.to_owned(),
        r#"{"a":1,"\u0061":2}"#.to_owned(),
        r#"[[{"x":{"":0,"b":1,"":2}}]]"#.to_owned(),
        r#"{"\ud83d\ude00":1,"😀":2}"#.to_owned(),
        many("0"),
        many("99999"),
        many("\\u0035\\u0030\\u0030\\u0030\\u0030"),
    ] {
        let text = request(&params).into_bytes();
        let refuse = Limits::default();
        let accept = Limits::default().with_duplicate_keys(DuplicateKeys::Accept);
        for chunk in CHUNKS {
            let twice = refused(one(&text, chunk, &refuse, Dialect::Standard));
            assert_eq!(twice.refusal.reason, Reason::DuplicateKey);
            let offset = twice.refusal.offset.unwrap() as usize;
            assert_eq!(text[offset], b'"', "the offset is that of the second key");
            accepted(one(&text, chunk, &accept, Dialect::Standard));
        }
    }
    for params in [
        many("100000"),
        "{\"a\":1,\"A\":2,\"a\\u0000\":3,\"\u{e1}\":4,\"a\u{301}\":5}".into(),
        r#"[{"a":1},{"a":1}]"#.into(),
    ] {
        for chunk in CHUNKS {
            accepted(one(request(&params).as_bytes(), chunk, &Limits::default(), Dialect::Standard));
        }
    }
}

#[test]
fn the_known_members_of_the_envelope_are_never_accepted_twice() {
    let limits = Limits::default().with_duplicate_keys(DuplicateKeys::Accept);
    for name in ["jsonrpc", "id", "method", "params", "result", "error", "trace", "\\u0069d"] {
        let value = if name == "jsonrpc" { r#""2.0""# } else { r#""a""# };
        let text = format!(r#"{{"{name}":{value},"x":0,"{}":{value}}}"#, name.replace("\\u0069", "i"));
        for chunk in CHUNKS {
            let twice = refused(one(text.as_bytes(), chunk, &limits, Dialect::Standard));
            assert_eq!(twice.refusal.reason, Reason::DuplicateKey, "{text}");
        }
    }
    let text = r#"{"jsonrpc":"2.0","method":"m","x":0,"x":0,"params":{"id":1,"id":1}}"#;
    accepted(one(text.as_bytes(), 1, &limits, Dialect::Standard));
}

#[test]
fn string_bytes_refuses_one_byte_more_than_it_says() {
    for n in [4, 100, 5_000, 70_000] {
        for (fill, len) in [("x", 1), ("é", 2), ("\\n", 2), ("\\u0061", 6)] {
            let make = |n: usize| {
                let text = fill.repeat(n / len) + &"y".repeat(n % len);
                request(&format!(r#"[{{"a":"{text}"}}]"#))
            };
            assert_edge(n, Reason::StringBytes, |bound| Limits::default().with_string_bytes(bound), make, true);
        }
    }
    // Keys have a limit of their own, and an id that is within its own is still answered.
    let limits = Limits::default().with_string_bytes(Bound::at_most(3));
    accepted(one(br#"{"id":"abc","method":"m","params":{"a long key":""}}"#, 1, &limits, Dialect::Bare));
    for chunk in CHUNKS {
        let over = refused(one(br#"{"id":"abcd","method":"m"}"#, chunk, &limits, Dialect::Bare));
        assert_eq!(over.refusal.reason, Reason::StringBytes);
        assert!(matches!(over.id, SeenId::Readable(id) if id.as_str() == Some("abcd")));
    }
}

#[test]
fn key_bytes_refuses_one_byte_more_than_it_says() {
    for n in [7, 100, 65_536] {
        for (fill, len) in [("k", 1), ("é", 2), ("\\u006b", 6)] {
            for nested in [true, false] {
                let make = |n: usize| {
                    let key = fill.repeat(n / len) + &"y".repeat(n % len);
                    if nested {
                        request(&format!(r#"[{{"{key}":0}}]"#))
                    } else {
                        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","{key}":0}}"#)
                    }
                };
                assert_edge(n, Reason::KeyBytes, |bound| Limits::default().with_key_bytes(bound), make, true);
            }
        }
    }
    assert_eq!(Limits::default().key_bytes(), Bound::at_most(65_536));
}

#[test]
fn number_bytes_refuses_one_byte_more_than_it_says() {
    for n in [4, 17, 1_024, 5_000] {
        let shapes: &[fn(usize) -> String] = &[
            |n| "1".repeat(n),
            |n| format!("-{}", "9".repeat(n - 1)),
            |n| format!("0.{}", "3".repeat(n - 2)),
            |n| format!("1e{}", "0".repeat(n - 2)),
            |n| format!("1E-{}", "7".repeat(n - 3)),
        ];
        for number in shapes {
            for (head, tail) in [("[", "]"), ("[0,", ",0]"), (r#"{"a":"#, "}")] {
                let make = |n| request(&format!("{head}{}{tail}", number(n)));
                assert_edge(n, Reason::NumberBytes, |bound| Limits::default().with_number_bytes(bound), make, true);
            }
        }
    }
    let long = request(&format!("[{}]", "1".repeat(1_000_000)));
    accepted(one(long.as_bytes(), 8192, &Limits::exec(), Dialect::Bare));
}

#[test]
fn id_bytes_refuses_one_byte_more_than_it_says() {
    for n in [4, 100, 1_024] {
        let make = |n: usize| format!(r#"{{"jsonrpc":"2.0","method":"m","id":"{}"}}"#, "i".repeat(n));
        assert_edge(n, Reason::IdBytes, |bound| Limits::default().with_id_bytes(bound), make, false);
        let make =
            |n: usize| format!(r#"{{"jsonrpc":"2.0","id":"{}","result":0}}"#, "\\n".repeat(n / 2) + &"i".repeat(n % 2));
        assert_edge(n, Reason::IdBytes, |bound| Limits::default().with_id_bytes(bound), make, false);
    }
    // A number as id: `1.000` is one in the standard dialect, at any length.
    let text = |n: usize| format!(r#"{{"jsonrpc":"2.0","method":"m","id":1.{}}}"#, "0".repeat(n - 2)).into_bytes();
    for chunk in CHUNKS {
        let limits = Limits::default().with_id_bytes(Bound::at_most(20));
        assert_eq!(accepted(one(&text(20), chunk, &limits, Dialect::Standard)).id(), Some(&1.into()));
        let over = refused(one(&text(21), chunk, &limits, Dialect::Standard));
        assert_eq!((over.refusal.reason, over.refusal.limit, over.id), (Reason::IdBytes, Some(20), SeenId::Unreadable));
        accepted(one(&text(21), chunk, &limits.with_id_bytes(Bound::Unbounded), Dialect::Standard));
    }
}

#[test]
fn id_bytes_holds_for_the_id_alone() {
    let limits = Limits::default().with_id_bytes(Bound::at_most(1));
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"method","params":{"id":"a long one"},"x":1234567}"#;
    accepted(one(text.as_bytes(), 1, &limits, Dialect::Standard));
}

#[test]
fn method_bytes_refuses_one_byte_more_than_it_says() {
    for n in [4, 100, 1_024] {
        for (fill, len) in [("m", 1), ("é", 2), ("\\u006d", 6)] {
            let make = |n: usize| {
                let method = fill.repeat(n / len) + &"y".repeat(n % len);
                format!(r#"{{"jsonrpc":"2.0","method":"{method}","id":7}}"#)
            };
            assert_edge(n, Reason::MethodBytes, |bound| Limits::default().with_method_bytes(bound), make, true);
        }
    }
    let limits = Limits::default().with_method_bytes(Bound::at_most(1));
    accepted(one(br#"{"jsonrpc":"2.0","method":"m","params":{"method":"a long one"}}"#, 1, &limits, Dialect::Standard));
}

/// Receives `text` as the connection of a process that holds `held` bytes for others.
fn in_process(text: &[u8], chunk: usize, limits: &Limits, held: u64) -> Received {
    let process = Budget::new(limits.memory());
    let other = process.child(Bound::Unbounded).try_charge(held).unwrap();
    let connection = process.child(limits.cap());
    let mut deframer = LineDeframer::new(limits, Dialect::Standard, &connection);
    text.chunks(chunk).for_each(|piece| push(&mut deframer, piece, |line| panic!("{line:?}")));
    let received = deframer.finish().unwrap();
    drop(other);
    received
}

#[test]
fn memory_refuses_what_the_process_has_no_room_for() {
    let text = request(&format!(r#"["{}"]"#, "x".repeat(300_000))).into_bytes();
    let limits = |bound| Limits::default().with_memory(bound).with_cap(Bound::at_most(10 * MIB));
    for chunk in CHUNKS {
        let over = refused(in_process(&text, chunk, &limits(Bound::at_most(MIB)), MIB - 100 * KIB));
        assert_eq!((over.refusal.reason, over.refusal.limit), (Reason::Overloaded, Some(MIB)));
        assert!(over.refusal.observed > Some(MIB), "{}", over.refusal);
        assert_eq!(over.refusal.scope, Some("process"));
        assert!(over.refusal.reason.retryable());
        assert_eq!(over.id, SeenId::Readable(7.into()));
        accepted(in_process(&text, chunk, &limits(Bound::at_most(MIB)), 0));
        accepted(in_process(&text, chunk, &limits(Bound::Unbounded), MIB - 100 * KIB));
    }
}

#[test]
fn cap_refuses_what_one_connection_has_no_room_for() {
    let text = request(&format!(r#"["{}"]"#, "x".repeat(300_000))).into_bytes();
    let limits = |bound| Limits::default().with_cap(bound);
    for chunk in CHUNKS {
        let over = refused(in_process(&text, chunk, &limits(Bound::at_most(200 * KIB)), 0));
        assert_eq!((over.refusal.reason, over.refusal.scope), (Reason::Overloaded, Some("connection")));
        assert_eq!(over.refusal.limit, Some(200 * KIB));
        assert_eq!(over.id, SeenId::Readable(7.into()));
        accepted(in_process(&text, chunk, &limits(Bound::at_most(500 * KIB)), 0));
        accepted(in_process(&text, chunk, &limits(Bound::Unbounded), 0));
    }
}

/// A message that never fits would be told to try again, for ever.
#[test]
fn after_clamping_the_largest_message_fits_into_any_memory_whatever_its_shape() {
    for memory in [16 * KIB, 64 * KIB, 200 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB] {
        let mut limits = Limits::default().with_memory(Bound::at_most(memory));
        limits.clamp();
        let most = limits.message_bytes().ceiling() as usize;
        let keys = |len: usize| {
            let mut text = String::from(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"":0"#);
            for index in 0..262_000 {
                let member = format!(r#","{index:x}":0"#);
                if text.len() + member.len() + 2 > len {
                    break;
                }
                text += &member;
            }
            let spaces = len.saturating_sub(text.len() + 2);
            text + &" ".repeat(spaces) + "}}"
        };
        let plain = |len: usize| {
            let bare = request(r#"[""]"#).len();
            request(&format!(r#"["{}"]"#, "x".repeat(len - bare)))
        };
        for text in [keys(most), plain(most)] {
            assert_eq!(text.len(), most);
            accepted(in_process(text.as_bytes(), 8 * 1024, &limits, 0));
        }
    }
}

#[test]
fn what_is_refused_leaves_the_connection_as_it_was() {
    let limits = Limits::default()
        .with_message_bytes(Bound::at_most(2_000))
        .with_json_values(Bound::at_most(20))
        .with_depth(Bound::at_most(5))
        .with_string_bytes(Bound::at_most(300))
        .with_key_bytes(Bound::at_most(50))
        .with_number_bytes(Bound::at_most(50))
        .with_id_bytes(Bound::at_most(50))
        .with_method_bytes(Bound::at_most(50));
    let bad = [
        (Reason::MessageBytes, request(&format!("[{}]", " ".repeat(3_000)))),
        (Reason::JsonValues, request(&format!("[0{}]", ",0".repeat(30)))),
        (Reason::Depth, request(&"[".repeat(30))),
        (Reason::DuplicateKey, request(r#"{"a":0,"a":0}"#)),
        (Reason::StringBytes, request(&format!(r#"["{}"#, "x".repeat(400)))),
        (Reason::KeyBytes, request(&format!(r#"{{"{}"#, "x".repeat(60)))),
        (Reason::NumberBytes, request(&"1".repeat(60))),
        (Reason::IdBytes, format!(r#"{{"id":"{}"#, "x".repeat(60))),
        (Reason::MethodBytes, format!(r#"{{"method":"{}"#, "x".repeat(60))),
        (Reason::InvalidJson, "{]".into()),
        (Reason::LoneSurrogate, request(r#"["\ud800"#)),
        (Reason::NotAnObject, "0".into()),
        (Reason::Batch, "[]".into()),
        (Reason::NotJsonRpc, "{}".into()),
    ];
    let good = request(r#"{"a":[1,{"b":"\u0061"}]}"#);
    for chunk in CHUNKS {
        let budget = Budget::new(Bound::Unbounded);
        let text: String = bad.iter().map(|(_, text)| format!("{text}\n{good}\n")).collect();
        let found = common::lines(&limits, Dialect::Standard, &budget, text.as_bytes().chunks(chunk));
        assert_eq!(found.len(), 2 * bad.len());
        let mut found = found.into_iter();
        for (reason, text) in &bad {
            let refused = common::as_refused(found.next().unwrap());
            assert_eq!(refused.refusal.reason, *reason, "{text}");
            let message = as_message(found.next().unwrap());
            assert_eq!((message.counts().values, message.wire_bytes()), (9, good.len() as u64));
            assert_eq!(message.body().unwrap().len(), r#"{"a":[1,{"b":"\u0061"}]}"#.len());
        }
        drop(found);
        assert_eq!(budget.held(), 0);
    }
}
