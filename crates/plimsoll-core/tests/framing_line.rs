//! Lines: where a message begins and ends, and what becomes of the next one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{CHUNKS, as_message, as_refused, lines, push};
use plimsoll_core::{
    Bound, Budget, Dialect, KIB, Kind, Limits, Line, LineDeframer, Reason, Received, SeenId, frame_line,
};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A request of exactly this many bytes.
fn request_of(bytes: usize) -> String {
    let bare = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[""]}"#.len();
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":["{}"]}}"#, "x".repeat(bytes - bare))
}

fn limited(bytes: u64) -> Limits {
    Limits::default().with_message_bytes(Bound::at_most(bytes))
}

/// The things that `text` is at these limits, the same for every chunking.
fn received(text: impl AsRef<[u8]>, limits: &Limits) -> Vec<Line> {
    let text = text.as_ref();
    let mut first: Option<(String, Vec<Line>)> = None;
    for chunk in CHUNKS {
        let budget = Budget::new(Bound::Unbounded);
        let found = lines(limits, Dialect::Standard, &budget, text.chunks(chunk));
        let shown = found.iter().map(summary).collect::<Vec<_>>().join("; ");
        match &first {
            None => first = Some((shown, found)),
            Some((right, _)) => assert_eq!(shown, *right, "in chunks of {chunk}"),
        }
    }
    first.unwrap().1
}

fn summary(line: &Line) -> String {
    match line {
        Line::Received(Received::Message(message)) => {
            format!("{:?} {:?} {} bytes {:?}", message.kind(), message.id(), message.wire_bytes(), message.counts())
        }
        Line::Received(Received::Refused(refused)) => format!("{refused:?}"),
        Line::Overrun { refused, reason } => format!("{reason} {refused:?}"),
    }
}

/// How many messages there are, all of them good.
fn delivered(text: impl AsRef<[u8]>, limits: &Limits) -> usize {
    received(text, limits).into_iter().map(as_message).count()
}

// The seven behaviours of a bounded line reader.

#[test]
fn an_oversized_message_is_refused_by_its_id_and_the_next_one_arrives() {
    let found = received(format!("{}\n{PING}\n", request_of(1_001)), &limited(1_000));
    let [big, next] = <[Line; 2]>::try_from(found).unwrap();
    let big = as_refused(big);
    assert_eq!((big.refusal.reason, big.refusal.observed), (Reason::MessageBytes, Some(1_001)));
    assert_eq!(big.id, SeenId::Readable(7.into()));
    assert_eq!(as_message(next).id(), Some(&1.into()));
}

#[test]
fn the_same_message_is_delivered_when_the_bound_is_off() {
    let limits = Limits::default().with_message_bytes(Bound::Unbounded);
    assert_eq!(delivered(format!("{}\n{PING}\n", request_of(1_001)), &limits), 2);
}

#[test]
fn after_128_kib_without_a_newline_the_next_message_arrives() {
    for fill in ["x", " ", "0", "[", "\u{0}"] {
        let found = received(format!("{}\n{PING}\n", fill.repeat(128 * 1024)), &limited(64 * KIB));
        let [noise, next] = <[Line; 2]>::try_from(found).unwrap();
        assert_eq!(as_refused(noise).wire_bytes, 128 * KIB);
        assert_eq!(as_message(next).kind(), Kind::Request);
    }
}

#[test]
fn a_message_exactly_at_the_limit_is_delivered_whatever_ends_it() {
    for end in ["\n", "\r\n", "", "\r"] {
        assert_eq!(delivered(format!("{}{end}", request_of(1_000)), &limited(1_000)), 1);
        let found = received(format!("{}{end}", request_of(1_001)), &limited(1_000));
        assert_eq!(as_refused(found.into_iter().next().unwrap()).refusal.reason, Reason::MessageBytes, "control");
    }
}

#[test]
fn a_mebibyte_is_delivered_by_default() {
    assert_eq!(delivered(format!("{}\n", request_of(1 << 20)), &Limits::default()), 1);
}

#[test]
fn messages_in_chunks_of_97_bytes_are_delivered() {
    let text: String = (100..400).map(|bytes| request_of(bytes) + "\n").collect();
    let budget = Budget::new(Bound::Unbounded);
    let found = lines(&Limits::default(), Dialect::Standard, &budget, text.as_bytes().chunks(97));
    assert_eq!(
        found.into_iter().map(|line| as_message(line).wire_bytes()).collect::<Vec<_>>(),
        (100..400).collect::<Vec<_>>()
    );
}

#[test]
fn two_oversized_messages_in_a_row_are_both_refused_and_the_next_one_arrives() {
    let found = received(format!("{}\n{}\n{PING}\n", request_of(2_000), request_of(3_000)), &limited(1_000));
    let [one, two, next] = <[Line; 3]>::try_from(found).unwrap();
    assert_eq!((as_refused(one).wire_bytes, as_refused(two).wire_bytes), (2_000, 3_000));
    assert_eq!(as_message(next).kind(), Kind::Request);
}

// What ends a line and what does not.

#[test]
fn carriage_returns_before_a_newline_and_blank_lines_are_no_part_of_any_message() {
    let text = format!("\n\r\n{PING}\r\n \t \n\r\n\n{PING}\n  \r\n");
    let found = received(&text, &Limits::default());
    assert_eq!(found.len(), 2);
    assert!(found.into_iter().all(|line| as_message(line).wire_bytes() == PING.len() as u64));
}

#[test]
fn blank_lines_are_counted_as_lines() {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    let text = format!("\n\r\n{PING}\r\n  \n{PING}\nx\n");
    let (mut rest, mut numbers) = (text.as_bytes(), Vec::new());
    while !rest.is_empty() {
        let (taken, line) = deframer.push(rest);
        numbers.extend(line.map(|_| deframer.line()));
        rest = &rest[taken..];
    }
    assert_eq!(numbers, [3, 5, 6]);
}

#[test]
fn a_carriage_return_alone_ends_nothing() {
    let text = PING.replace(',', "\r,\r");
    assert_eq!(delivered(format!("{text}\n"), &Limits::default()), 1);
    assert_eq!(delivered(format!("{PING}\r\r\r\n{PING}\n"), &Limits::default()), 2);
    let found = received(format!("{PING}\r{PING}\n"), &Limits::default());
    assert_eq!(as_refused(found.into_iter().next().unwrap()).refusal.reason, Reason::InvalidJson);
    // The one before the newline is not counted, every other one is.
    assert_eq!(delivered(format!("{PING}\r\r\n"), &limited(PING.len() as u64 + 1)), 1);
    let found = received(format!("{PING}\r\r\n"), &limited(PING.len() as u64));
    assert_eq!(as_refused(found.into_iter().next().unwrap()).refusal.reason, Reason::MessageBytes);
}

#[test]
fn nothing_but_a_line_feed_ends_a_line() {
    for separator in ["\u{2028}", "\u{2029}", "\u{85}"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":["a{separator}b"]}}"#);
        let found = received(format!("{text}\n"), &Limits::default());
        let message = as_message(found.into_iter().next().unwrap());
        assert_eq!(message.body().unwrap().as_slice().unwrap(), format!("[\"a{separator}b\"]").as_bytes());
    }
    // These may not stand in a string, but they do not end a line either: there is one refusal, not two pieces.
    for separator in ["\u{b}", "\u{c}", "\r", "\u{1c}", "\u{1e}"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":["a{separator}b"]}}"#);
        let found = received(format!("{text}\n{PING}\n"), &Limits::default());
        let [refused, next] = <[Line; 2]>::try_from(found).unwrap();
        let refused = as_refused(refused);
        assert_eq!((refused.refusal.reason, refused.wire_bytes), (Reason::InvalidJson, text.len() as u64));
        assert_eq!(refused.id, SeenId::Readable(1.into()));
        as_message(next);
    }
}

#[test]
fn a_byte_order_mark_is_ignored_at_the_start_of_the_stream_alone() {
    assert_eq!(delivered(format!("\u{feff}{PING}\n{PING}\n"), &Limits::default()), 2);
    assert_eq!(delivered(format!("\u{feff}\n\r\n{PING}"), &Limits::default()), 1);
    assert_eq!(delivered("\u{feff}", &Limits::default()), 0);
    // It is not counted.
    assert_eq!(delivered(format!("\u{feff}{PING}\n"), &limited(PING.len() as u64)), 1);
    for text in
        [format!("{PING}\n\u{feff}{PING}\n"), format!("\u{feff}\u{feff}{PING}\n"), format!("\n\u{feff}{PING}\n")]
    {
        let last = received(&text, &Limits::default()).into_iter().next_back().unwrap();
        assert_eq!(as_refused(last).refusal.reason, Reason::NotAnObject, "{text}");
    }
}

#[test]
fn a_mark_that_is_none_is_part_of_the_message() {
    for (start, length) in [(&b"\xef"[..], 1), (b"\xef\xbb", 2), (b"\xef\xbb\xbe", 3), (b"\xbb\xbf", 2)] {
        for end in [&b"\n"[..], b"{}\n", b""] {
            let text = [start, end].concat();
            let refused = as_refused(received(&text, &Limits::default()).into_iter().next().unwrap());
            let content = end.iter().filter(|byte| **byte != b'\n').count();
            assert_eq!(refused.wire_bytes, (length + content) as u64, "{}", text.escape_ascii());
            assert_eq!((refused.refusal.reason, refused.refusal.offset), (Reason::NotAnObject, Some(0)));
        }
    }
}

// The end of the input.

#[test]
fn at_the_end_of_the_input_a_whole_message_is_delivered_without_its_newline() {
    assert_eq!(delivered(PING, &Limits::default()), 1);
    assert_eq!(delivered(format!("{PING}\n{PING}"), &Limits::default()), 2);
    assert_eq!(delivered(format!("{PING}\n"), &Limits::default()), 1);
    assert_eq!(delivered("", &Limits::default()), 0);
    assert_eq!(delivered(" \r", &Limits::default()), 0);
}

#[test]
fn at_the_end_of_the_input_an_incomplete_message_is_reported_as_truncated() {
    for end in 1..PING.len() {
        let found = received(&PING[..end], &Limits::default());
        let refused = as_refused(found.into_iter().next().unwrap());
        assert_eq!((refused.refusal.reason, refused.refusal.offset), (Reason::Truncated, Some(end as u64)));
        let id_is_complete = end > PING.find(",\"method").unwrap();
        assert_eq!(refused.id == SeenId::Readable(1.into()), id_is_complete, "{}", &PING[..end]);
        // With its newline it is not cut off but wrong.
        let found = received(format!("{}\n", &PING[..end]), &Limits::default());
        assert_eq!(as_refused(found.into_iter().next().unwrap()).refusal.reason, Reason::InvalidJson);
    }
}

#[test]
fn what_was_refused_before_the_end_of_the_input_keeps_its_reason() {
    let found = received(r#"{"id":7,"method":"m","params":{"a":1,"a":2},"x"#, &Limits::default());
    let refused = as_refused(found.into_iter().next().unwrap());
    assert_eq!((refused.refusal.reason, refused.id), (Reason::DuplicateKey, SeenId::Readable(7.into())));
}

#[test]
fn an_ended_deframer_says_its_last_message_once() {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    assert!(deframer.push(PING.as_bytes()).1.is_none());
    assert!(deframer.is_partial());
    assert!(deframer.finish().is_some());
    assert!(deframer.finish().is_none());
    assert!(!deframer.is_partial());
}

// Endless lines.

#[test]
fn a_line_that_does_not_end_closes_the_connection_with_its_id_still_readable() {
    let limits = limited(1_000).with_skip_bytes(Bound::at_most(4_000));
    let endless = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[""#.to_owned() + &"x".repeat(10_000);
    let late = r#"{"jsonrpc":"2.0","method":"m","params":[""#.to_owned() + &"x".repeat(3_000) + r#""],"id":7,"x":[""#;
    for text in [endless, late + &"x".repeat(10_000)] {
        let found = received(format!("{text}\n{PING}\n"), &limits);
        let [Line::Overrun { refused, reason }] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((reason.reason, reason.limit, reason.observed), (Reason::SkipBytes, Some(4_000), Some(4_001)));
        assert_eq!((&refused.id, refused.method), (&SeenId::Readable(7.into()), true));
        assert_eq!(refused.refusal.reason, Reason::MessageBytes);
    }
}

#[test]
fn what_comes_after_the_skipped_bytes_changes_nothing_that_is_known_of_the_message() {
    // The id stands one byte beyond what is skipped; in one chunk it would be in sight.
    let limits = limited(100).with_skip_bytes(Bound::at_most(400));
    let head = r#"{"jsonrpc":"2.0","method":"m","params":[""#;
    for (fill, readable) in [(400 - head.len() - r#""],"id":7,"#.len(), true), (400, false)] {
        let found = received(format!(r#"{head}{}"],"id":7,"x":["{}"]}}"#, "x".repeat(fill), "y".repeat(500)), &limits);
        let [Line::Overrun { refused, .. }] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(refused.id == SeenId::Readable(7.into()), readable);
        assert_eq!(refused.wire_bytes, 401);
    }
}

#[test]
fn after_an_overrun_nothing_more_is_read() {
    let limits = limited(100).with_skip_bytes(Bound::at_most(200));
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &budget);
    let chunk = "x".repeat(300);
    assert!(matches!(deframer.push(chunk.as_bytes()), (300, Some(Line::Overrun { .. }))));
    assert!(matches!(deframer.push(format!("\n{PING}\n").as_bytes()), (_, None)));
    assert!(deframer.finish().is_none());
}

#[test]
fn text_without_an_end_is_bounded_too() {
    // 1 MiB of a log without a newline, at limits of 64 KiB: one refusal, and the connection is to be closed.
    let limits = limited(64 * KIB).with_skip_bytes(Bound::at_most(256 * KIB));
    let found = received("2026-01-01T00:00:00Z INFO started ".repeat(32 * 1024), &limits);
    let [Line::Overrun { refused, .. }] = found.as_slice() else { panic!("{} things", found.len()) };
    assert_eq!((refused.refusal.reason, refused.object), (Reason::NotAnObject, false));
}

// Cases from the field.

#[test]
fn a_message_near_the_limit_and_the_next_one_in_one_chunk_are_both_delivered() {
    let near = request_of(1_000);
    assert_eq!(delivered(format!("{near}\n{near}\n{PING}\n{near}\n"), &limited(1_000)), 4);
}

#[test]
fn a_short_line_is_delivered_as_soon_as_its_newline_is_there() {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    for byte in PING.as_bytes() {
        assert!(matches!(deframer.push(&[*byte]), (1, None)));
    }
    assert!(matches!(deframer.push(b"\n"), (1, Some(Line::Received(Received::Message(_))))));
}

#[test]
fn a_message_that_ends_with_its_chunk_leaves_nothing_behind() {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    let text = request_of(8 * 1024 - 1) + "\n";
    let mut held = Vec::new();
    for _ in 0..20 {
        push(&mut deframer, text.as_bytes(), drop);
        assert!(!deframer.is_partial());
        held.push(budget.held());
    }
    assert!(held.iter().all(|bytes| *bytes == held[0]), "{held:?}");
    assert!(held[0] <= 16 * KIB);
}

#[test]
fn the_limit_counts_bytes_and_not_characters() {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":["{}"]}}"#, "水".repeat(300));
    assert!(text.chars().count() < 400 && text.len() > 900);
    assert_eq!(delivered(&text, &limited(text.len() as u64)), 1);
    let found = received(&text, &limited(text.len() as u64 - 1));
    assert_eq!(as_refused(found.into_iter().next().unwrap()).refusal.reason, Reason::MessageBytes);
}

#[test]
fn an_empty_chunk_is_nothing_and_not_the_end() {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    for byte in PING.as_bytes() {
        assert!(matches!(deframer.push(&[]), (0, None)));
        assert!(deframer.push(&[*byte]).1.is_none());
    }
    assert!(matches!(deframer.push(&[]), (0, None)));
    assert!(deframer.push(b"\n").1.is_some());
}

#[test]
fn messages_of_another_framing_are_refused_and_do_not_hang() {
    let body = PING;
    let text = format!("Content-Length: {}\r\n\r\n{body}\n", body.len());
    let found = received(&text, &Limits::default());
    let [header, message] = <[Line; 2]>::try_from(found).unwrap();
    assert_eq!(as_refused(header).refusal.reason, Reason::NotAnObject);
    as_message(message);
}

#[test]
fn a_line_is_written_with_one_line_feed_at_its_end_and_none_within() {
    for (message, line) in [
        ("{}", "{}\n"),
        ("{\n  \"a\": [\n1\n]\n}\n", "{   \"a\": [ 1 ] } \n"),
        ("{\"a\":\"\\n\"}", "{\"a\":\"\\n\"}\n"),
        ("", "\n"),
    ] {
        let mut bytes = message.as_bytes().to_vec();
        frame_line(&mut bytes);
        assert_eq!(bytes, line.as_bytes());
    }
}
