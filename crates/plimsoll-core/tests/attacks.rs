//! The hostile corpus against the core: every shape, in every envelope, in every size of chunk.
//!
//! At default sizes the corpus says what is right at default limits. At small sizes, where every byte can be a chunk of
//! its own, the limits are small too, and the reader of `harness/mod.rs` says what is right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod harness;

use common::{as_message, as_refused, push};
use harness::{expected, limit_sets, receive};
use plimsoll_core::{
    Answer, AnswerRules, Bound, Budget, Class, Dialect, KIB, Kind, Limits, Line, LineDeframer, Reason, Refused, SeenId,
    error_code, render_refusal,
};
use plimsoll_corpus::{ECHO_MARKER, Envelope, Expect, Form, IdPlacement, Shape, shapes, truncations};

const NEXT: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"next\",\"method\":\"ping\"}\n";
const CORPUS: [(Dialect, plimsoll_corpus::Dialect); 2] =
    [(Dialect::Standard, plimsoll_corpus::Dialect::Standard), (Dialect::Bare, plimsoll_corpus::Dialect::Bare)];

/// The shapes that are one message with an end, and the envelopes that change it.
fn messages() -> impl Iterator<Item = (&'static Shape, &'static [Envelope])> {
    shapes()
        .iter()
        .filter_map(|shape| match shape.form() {
            Form::Value => Some((shape, &Envelope::ALL[..])),
            Form::Message => Some((shape, &Envelope::ALL[..1])),
            Form::Headers | Form::Lines => None,
        })
        .filter(|(shape, _)| shape.name() != "frameWithoutEnd")
}

/// The core's name for what the corpus expects; the corpus states it for a message at the end of its input.
fn reason(expected: plimsoll_corpus::Reason, ends: bool) -> Reason {
    let word = if ends && expected.word() == "truncated" { "invalidJson" } else { expected.word() };
    Reason::TABLE.iter().find(|row| row.1 == word).unwrap().0
}

/// The message and the one after it, in `chunk`s.
fn two(text: &[u8], chunk: usize, dialect: Dialect) -> (Line, Budget) {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), dialect, &budget);
    let mut found = Vec::new();
    text.chunks(chunk).for_each(|piece| push(&mut deframer, piece, |line| found.push(line)));
    push(&mut deframer, b"\n", |line| found.push(line));
    push(&mut deframer, NEXT, |line| found.push(line));
    assert!(deframer.finish().is_none());
    assert_eq!(found.len(), 2, "the message and the next one");
    assert_eq!(as_message(found.pop().unwrap()).id().and_then(|id| id.as_str()), Some("next"));
    drop(deframer);
    (found.pop().unwrap(), budget)
}

#[test]
fn every_shape_is_accepted_or_refused_as_the_corpus_says_in_every_envelope() {
    let mut tried = 0;
    for (shape, envelopes) in messages() {
        for envelope in envelopes {
            for (dialect, corpus) in CORPUS {
                // The bare dialect differs in the envelope alone: small instances do.
                let size = if dialect == Dialect::Standard { shape.default_bytes() } else { 20_000 };
                let text = shape.message(corpus, *envelope, size).into_bytes();
                let chunks: &[usize] = if text.len() > 1 << 21 { &[8 * 1024] } else { &[usize::MAX, 8 * 1024] };
                for chunk in chunks {
                    let (line, budget) = two(&text, *chunk, dialect);
                    check(shape, *envelope, line, shape.expect_in(corpus, *envelope, size), dialect);
                    assert_eq!(budget.held(), 0, "{}", shape.name());
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 800, "{tried} messages");
}

fn check(shape: &Shape, envelope: Envelope, line: Line, expect: Expect, dialect: Dialect) {
    let name = shape.name();
    match expect {
        Expect::Accepted | Expect::TypedDecode => {
            let message = as_message(line);
            if shape.form() == Form::Value {
                let kind = match envelope {
                    Envelope::Request(_) => Kind::Request,
                    Envelope::Notification => Kind::Notification,
                    Envelope::Response(_) => Kind::Response,
                };
                assert_eq!(message.kind(), kind, "{name} as {envelope:?}");
                assert_eq!(message.id().is_some(), kind != Kind::Notification);
                assert!(message.body().is_some_and(|body| !body.is_empty()));
            }
        }
        Expect::Refused(right) => {
            let refused = as_refused(line);
            assert_eq!(refused.refusal.reason, reason(right, true), "{name} as {envelope:?}: {}", refused.refusal);
            check_answer(shape, envelope, &refused, dialect);
        }
        other => panic!("{name}: {other:?} is not for messages"),
    }
}

/// Every refused request is answered by its id, every refused response fails its call, a notification does neither.
fn check_answer(shape: &Shape, envelope: Envelope, refused: &Refused, dialect: Dialect) {
    let rules = AnswerRules { dialect, notifications_are_vital: false };
    let code = error_code(dialect, &refused.refusal);
    let name = shape.name();
    if let SeenId::Readable(id) = &refused.id
        && refused.method
    {
        let answer = rules.answer(refused, |_| true);
        assert_eq!(answer, Answer::Error { id: Some(id.clone()), code, paced: false }, "{name}");
        let reply = String::from_utf8(render_refusal(dialect, Some(id), code, &refused.refusal)).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&reply).is_ok(), "{reply}");
        assert!(!reply.contains(ECHO_MARKER) && reply.len() < 400, "{reply}");
    }
    if shape.form() != Form::Value {
        return;
    }
    // What comes after an error of grammar is not looked at, and brackets that never close swallow what follows.
    let hides = refused.refusal.reason.class() == Class::Grammar || name == "openBrackets";
    match envelope {
        Envelope::Request(placement) => {
            let readable = placement == IdPlacement::First || !hides;
            assert_eq!(refused.id == SeenId::Readable(7.into()), readable, "{name} as {envelope:?}");
            assert_eq!(refused.kind(), Some(if readable { Kind::Request } else { Kind::Notification }), "{name}");
        }
        Envelope::Response(placement) => {
            let readable = placement == IdPlacement::First || !hides;
            let answer = rules.answer(refused, |id| *id == 7.into());
            assert_eq!(answer == Answer::FailCall(7.into()), readable, "{name} as {envelope:?}");
            assert_eq!(rules.answer(refused, |_| false), Answer::Nothing, "a response is never answered");
        }
        Envelope::Notification => {
            assert_eq!(refused.kind(), Some(Kind::Notification), "{name}");
            let paced = Answer::Error { id: None, code, paced: true };
            let right = if dialect == Dialect::Standard { Answer::Nothing } else { paced };
            assert_eq!(rules.answer(refused, |_| true), right, "{name}");
        }
    }
}

#[test]
fn every_shape_is_the_same_whole_in_chunks_and_byte_by_byte_at_limits_that_it_passes() {
    let mut tried = 0;
    for (shape, envelopes) in messages() {
        for envelope in envelopes {
            for (dialect, corpus) in CORPUS {
                let text = shape.message(corpus, *envelope, 3_000);
                if text.remaining_bytes() > 10_000 {
                    // These come in one size, and at that they are tried above.
                    continue;
                }
                let text = text.into_bytes();
                for limits in limit_sets() {
                    let right = expected(&text, &limits, dialect);
                    for chunk in [usize::MAX, 8 * 1024, 97, 1] {
                        let found = receive(&text, std::iter::repeat(chunk), &limits, dialect);
                        assert_eq!(found, right, "{} as {envelope:?} in chunks of {chunk}", shape.name());
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2_500, "{tried} messages");
}

#[test]
fn every_prefix_of_a_good_message_is_reported_as_truncated() {
    let mut tried = 0;
    for prefix in truncations() {
        for chunk in [usize::MAX, 7, 1] {
            let budget = Budget::new(Bound::Unbounded);
            let limits = Limits::default();
            let mut found = common::lines(&limits, Dialect::Standard, &budget, prefix.chunks(chunk));
            let refused = as_refused(found.pop().unwrap());
            assert_eq!((refused.refusal.reason, found.len()), (Reason::Truncated, 0));
            assert_eq!(refused.refusal.offset, Some(prefix.len() as u64));
        }
        tried += 1;
    }
    assert!(tried > 100);
}

#[test]
fn cut_off_shapes_are_reported_at_the_end_of_the_input() {
    for shape in shapes().iter().filter(|shape| shape.number() == 21) {
        let text = shape.text(shape.default_bytes()).into_bytes();
        let received = common::one(&text, 8 * 1024, &Limits::default(), Dialect::Standard);
        match shape.expect(shape.default_bytes()) {
            Expect::Refused(right) => {
                let refused = common::refused(received);
                assert_eq!(refused.refusal.reason, reason(right, false), "{}", shape.name());
                assert_eq!(refused.id, SeenId::Readable(7.into()));
            }
            _ => drop(common::accepted(received)),
        }
    }
}

#[test]
fn what_a_limit_stops_is_stopped_while_it_arrives() {
    // Of 4 MiB, no more is held than lies before the refusal.
    for (name, most) in [
        ("longKey", 140 * KIB),
        ("longMethod", 16 * KIB),
        ("longId", 16 * KIB),
        ("longUnknownMember", 140 * KIB),
        ("longInteger", 16 * KIB),
        ("longFraction", 16 * KIB),
        ("longExponent", 16 * KIB),
        ("nestedArrays", 16 * KIB),
        ("openBrackets", 16 * KIB),
        ("batchNotifications", 16 * KIB),
        ("tinyObjects", 1024 * KIB),
        ("emptyArrays", 1024 * KIB),
        ("reproduction", 640 * KIB),
    ] {
        let shape = shapes().iter().find(|shape| shape.name() == name).unwrap();
        let budget = Budget::new(Bound::Unbounded);
        let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Bare, &budget);
        let text = shape.message(plimsoll_corpus::Dialect::Bare, Envelope::Notification, shape.default_bytes());
        text.for_each(|piece| push(&mut deframer, &piece, drop));
        assert!(budget.peak() <= most, "{name}: {} bytes", budget.peak());
        // Control: without the limits all of it is held.
        let budget = Budget::new(Bound::Unbounded);
        let mut deframer = LineDeframer::new(&no_limits(), Dialect::Bare, &budget);
        let text = shape.message(plimsoll_corpus::Dialect::Bare, Envelope::Notification, shape.default_bytes());
        let bytes = text.remaining_bytes();
        text.for_each(|piece| push(&mut deframer, &piece, drop));
        let held_at_all = name != "batchNotifications";
        assert_eq!(budget.peak() >= bytes, held_at_all, "{name}: {} bytes of {bytes}", budget.peak());
    }
}

fn no_limits() -> Limits {
    Limits::default()
        .with_json_values(Bound::Unbounded)
        .with_depth(Bound::Unbounded)
        .with_key_bytes(Bound::Unbounded)
        .with_number_bytes(Bound::Unbounded)
        .with_id_bytes(Bound::Unbounded)
        .with_method_bytes(Bound::Unbounded)
}

#[test]
fn a_duplicate_key_is_named_by_its_offset_and_never_by_itself() {
    for shape in shapes().iter().filter(|shape| shape.number() == 8 || shape.name() == "escapedKeysDuplicate") {
        let envelope = Envelope::Request(IdPlacement::First);
        let size = shape.default_bytes().min(1_200_000);
        let text = shape.message(plimsoll_corpus::Dialect::Standard, envelope, size).into_bytes();
        let (line, _) = two(&text, 8 * 1024, Dialect::Standard);
        let refused = as_refused(line);
        assert_eq!(refused.refusal.reason, Reason::DuplicateKey, "{}", shape.name());
        let offset = refused.refusal.offset.unwrap() as usize;
        assert_eq!(text[offset], b'"', "{}", shape.name());
        assert_eq!(
            refused.refusal.to_string(),
            format!("an object holds a key twice at byte {offset}"),
            "{}",
            shape.name()
        );
    }
}

#[test]
fn headers_of_another_framing_are_noise_and_hold_nothing() {
    for shape in shapes().iter().filter(|shape| shape.form() == Form::Headers) {
        let budget = Budget::new(Bound::Unbounded);
        let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
        let mut check = |line: Line| {
            let refused = as_refused(line);
            assert_eq!(AnswerRules::default().answer(&refused, |_| false), Answer::Nothing, "{}", shape.name());
        };
        shape.text(shape.default_bytes()).for_each(|piece| push(&mut deframer, &piece, &mut check));
        deframer.finish().map(Line::Received).into_iter().for_each(check);
        assert!(budget.peak() <= 32 * KIB, "{}: {} bytes", shape.name(), budget.peak());
    }
}

#[test]
fn a_frame_that_never_ends_is_bounded_and_closed_by_name() {
    let shape = shapes().iter().find(|shape| shape.name() == "frameWithoutEnd").unwrap();
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    let mut found = Vec::new();
    shape.text(shape.default_bytes()).for_each(|piece| push(&mut deframer, &piece, |line| found.push(line)));
    let [Line::Overrun { refused, reason }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((reason.reason, reason.limit), (Reason::SkipBytes, Some(64 << 20)));
    assert_eq!((refused.refusal.reason, &refused.id), (Reason::MessageBytes, &SeenId::Readable(7.into())));
    assert!(budget.peak() <= (16 << 20) + 128 * KIB && budget.held() <= 16 * KIB);
}

#[test]
fn a_crowd_of_small_messages_is_taken_one_by_one_and_leaves_nothing_behind() {
    for shape in shapes().iter().filter(|shape| shape.number() == 28 || shape.name() == "slowRequest") {
        let budget = Budget::new(Bound::Unbounded);
        let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
        let mut found = 0;
        shape.text(0).for_each(|piece| {
            push(&mut deframer, &piece, |line| {
                as_message(line);
                found += 1;
            })
        });
        assert!(found == 10_000 || shape.number() == 27 && found == 1, "{}: {found}", shape.name());
        assert!(budget.peak() <= 32 * KIB, "{}: {} bytes", shape.name(), budget.peak());
    }
}

#[test]
fn the_limits_that_the_corpus_states_are_the_defaults() {
    use plimsoll_corpus::limits;
    let defaults = Limits::default();
    for (ours, theirs) in [
        (defaults.message_bytes(), limits::MESSAGE_BYTES),
        (defaults.json_values(), limits::JSON_VALUES),
        (defaults.depth(), limits::DEPTH),
        (defaults.key_bytes(), limits::KEY_BYTES),
        (defaults.number_bytes(), limits::NUMBER_BYTES),
        (defaults.id_bytes(), limits::ID_BYTES),
        (defaults.method_bytes(), limits::METHOD_BYTES),
    ] {
        assert_eq!(ours, Bound::at_most(theirs));
    }
}
