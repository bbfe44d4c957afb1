//! The load line: what a peer's message costs, counted by the allocator and not by the code that is tested.
//!
//! Every text is made before it is measured, so what is counted is the core's alone. A reallocation counts as old and
//! new. Counters are a thread's own, so the tests do not see each other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]
#![allow(clippy::print_stdout, reason = "figures are shown with --nocapture")]

mod common;

use common::{accepted, as_refused, one, push, refused};
use plimsoll_core::{
    Answer, AnswerRules, Bound, Budget, Dialect, DuplicateKeys, KIB, Kind, Limits, Line, LineDeframer, MIB, Reason,
    Received, SeenId,
};
use plimsoll_corpus::{Envelope, Expect, Form, IdPlacement, reproduction, shapes};
use plimsoll_testkit::alloc::{CountingAllocator, Meter, measure_thread};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const CHUNK: usize = 8 * 1024;

/// What the heap and the budget saw of one text.
struct Cost {
    received: Received,
    peak_heap: u64,
    peak_charged: u64,
}

/// Feeds one message in `chunk`s. After every push the budget must know of at least what the allocator sees, but for the
/// id: it is part of what a connection and a request in flight cost, and not charged by the core.
fn cost(text: &[u8], chunk: usize, limits: &Limits, dialect: Dialect, id: Id) -> Cost {
    let ids = match id {
        Id::None => 0,
        // The text while it arrives, the list it grew in, and the id made of it.
        Id::Short => 64,
        Id::Long => 4 * KIB,
    };
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(limits, dialect, &budget);
    let meter = Meter::thread();
    let mut received = None;
    for piece in text.chunks(chunk) {
        push(&mut deframer, piece, |line| assert!(received.replace(line).is_none()));
        let live = meter.usage().live_after.max(0) as u64;
        assert!(budget.held() + ids >= live, "{live} bytes are live and {} are charged", budget.held());
    }
    let received = match received {
        Some(Line::Received(received)) => received,
        Some(Line::Overrun { reason, .. }) => panic!("{reason}"),
        None => deframer.finish().expect("there was a message"),
    };
    let usage = meter.usage();
    let cost = Cost { received, peak_heap: usage.peak_over_baseline as u64, peak_charged: budget.peak() };
    assert!(
        cost.peak_charged + ids >= cost.peak_heap,
        "{} charged at most, {} seen",
        cost.peak_charged,
        cost.peak_heap
    );
    cost
}

/// How long the id in a text is.
#[derive(Clone, Copy)]
enum Id {
    None,
    Short,
    Long,
}

#[test]
fn the_reproduction_is_refused_at_its_byte_524_310_within_three_quarters_of_a_mebibyte() {
    let text = reproduction().into_bytes();
    for dialect in [Dialect::Bare, Dialect::Standard] {
        let cost = cost(&text, CHUNK, &Limits::default(), dialect, Id::None);
        println!("reproduction, {dialect:?}: peak heap {} B, charged {} B", cost.peak_heap, cost.peak_charged);
        assert!(cost.peak_heap <= 768 * KIB, "{} bytes", cost.peak_heap);
        let refused = refused(cost.received);
        assert_eq!(refused.refusal.reason, Reason::JsonValues);
        assert_eq!(refused.refusal.offset, Some(524_310));
        assert_eq!((refused.refusal.limit, refused.refusal.observed), (Some(262_144), Some(262_145)));
        assert_eq!(refused.wire_bytes, 4_194_303);
    }
}

#[test]
fn the_reproduction_is_delivered_when_the_limit_of_values_is_off() {
    let text = reproduction().into_bytes();
    let limits = Limits::default().with_json_values(Bound::Unbounded);
    let cost = cost(&text, CHUNK, &limits, Dialect::Bare, Id::None);
    assert!(cost.peak_heap > 4 * MIB, "the control holds the message: the measure measures");
    let message = accepted(cost.received);
    assert_eq!((message.kind(), message.counts().values), (Kind::Notification, 2_097_140));
    assert_eq!(message.body().unwrap().len(), 4_194_303 - r#"{"method":"xxxxx","params":}"#.len());
}

#[test]
fn the_reproduction_as_a_request_is_answered_by_its_id_wherever_the_id_stands() {
    let zeroes = shapes().iter().find(|shape| shape.name() == "flatZeroes").unwrap();
    for placement in [IdPlacement::First, IdPlacement::Last] {
        for (corpus, dialect) in
            [(plimsoll_corpus::Dialect::Standard, Dialect::Standard), (plimsoll_corpus::Dialect::Bare, Dialect::Bare)]
        {
            let text = zeroes.message(corpus, Envelope::Request(placement), 4_194_303).into_bytes();
            let cost = cost(&text, CHUNK, &Limits::default(), dialect, Id::Short);
            assert!(cost.peak_heap <= 768 * KIB, "{} bytes", cost.peak_heap);
            let refused = refused(cost.received);
            assert_eq!(refused.kind(), Some(Kind::Request));
            let answer = AnswerRules { dialect, notifications_are_vital: false }.answer(&refused, |_| false);
            assert_eq!(answer, Answer::Error { id: Some(7.into()), code: -32600, paced: false });
        }
    }
}

/// The most keys of objects that are open at once, in text that is known to be JSON.
fn keys_at_once(text: &[u8]) -> u64 {
    let (mut open, mut now, mut most) = (Vec::new(), 0, 0);
    let (mut string, mut escape) = (false, false);
    for &byte in text {
        match (byte, string) {
            _ if escape => escape = false,
            (b'\\', true) => escape = true,
            (b'"', _) => string = !string,
            (b'{' | b'[', false) => open.push(0_u64),
            (b'}' | b']', false) => now -= open.pop().unwrap(),
            (b':', false) => {
                *open.last_mut().unwrap() += 1;
                now += 1;
                most = most.max(now);
            }
            _ => {}
        }
    }
    most
}

/// Prints and asserts the formula for one accepted message.
fn assert_within_the_formula(name: &str, text: &[u8], limits: &Limits) {
    let id = if name == "longId" { Id::Long } else { Id::Short };
    let keys = keys_at_once(text);
    let cost = cost(text, CHUNK, limits, Dialect::Standard, id);
    let message = accepted(cost.received);
    assert_eq!(message.wire_bytes(), text.len() as u64);
    let over = cost.peak_heap as i64 - text.len() as i64;
    println!("{name}: wire {} B, keys at once {keys}, peak heap = wire + {over} B", text.len());
    let most = text.len() as u64 + 128 * KIB + 24 * keys;
    assert!(cost.peak_heap <= most, "{name}: {} bytes at peak, {most} allowed", cost.peak_heap);
}

#[test]
fn an_accepted_message_of_any_shape_costs_its_wire_and_128_kib_and_24_bytes_a_key() {
    let mut tried = 0;
    for shape in shapes().iter().filter(|shape| matches!(shape.form(), Form::Message | Form::Value)) {
        // The largest size at which the shape is accepted.
        let mut size = if shape.is_sized() { 16 * MIB as usize - 200 } else { shape.default_bytes() };
        while !is_accepted(shape.expect(size)) && shape.is_sized() && size > 400 {
            size /= 2;
        }
        if !is_accepted(shape.expect(size)) {
            continue;
        }
        let text =
            shape.message(plimsoll_corpus::Dialect::Standard, Envelope::Request(IdPlacement::Last), size).into_bytes();
        assert_within_the_formula(shape.name(), &text, &Limits::default());
        tried += 1;
    }
    assert!(tried >= 25, "{tried} shapes");
}

fn is_accepted(expect: Expect) -> bool {
    matches!(expect, Expect::Accepted | Expect::TypedDecode)
}

/// A request of at most 16 MiB whose `params` are `open`, members until there are `keys` or the bytes are used, `close`.
fn with_keys(open: &str, close: &str, keys: usize, mut key: impl FnMut(usize) -> String) -> Vec<u8> {
    let mut text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{open}"#).into_bytes();
    let close = format!("{close}}}");
    for index in 0..keys {
        let member = format!(r#"{}"{}":0"#, if index == 0 { "" } else { "," }, key(index));
        if text.len() + member.len() + close.len() > 16 * MIB as usize {
            break;
        }
        text.extend_from_slice(member.as_bytes());
    }
    text.extend_from_slice(close.as_bytes());
    text
}

/// The shortest distinct keys.
fn short(mut index: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut key = String::new();
    loop {
        key.push(LETTERS[index % 64] as char);
        index /= 64;
        if index == 0 {
            return key;
        }
        index -= 1;
    }
}

fn escaped(index: usize) -> String {
    short(index).bytes().map(|byte| format!("\\u{byte:04x}")).collect()
}

#[test]
fn the_most_keys_that_the_limit_of_values_allows_stay_within_the_formula() {
    // The envelope has four values, the object is the fifth.
    let most = 262_144 - 5;
    let text = with_keys("{", "}", most, short);
    assert_eq!(keys_at_once(&text), most as u64 + 4);
    assert_within_the_formula("most short keys", &text, &Limits::default());
    assert_within_the_formula("most escaped keys", &with_keys("{", "}", most, escaped), &Limits::default());
    // The object with the keys stays open while another closes, so that its keys are not yet compared.
    let text = with_keys("[{", r#","another":{"a":0,"b":0}}]"#, most - 4, short);
    assert_within_the_formula("most keys around another object", &text, &Limits::default());
}

#[test]
fn sixteen_mebibytes_of_keys_stay_within_the_formula_when_the_limit_of_values_is_off() {
    let limits = Limits::default().with_json_values(Bound::Unbounded);
    let all = usize::MAX;
    assert_within_the_formula("short keys", &with_keys("{", "}", all, short), &limits);
    assert_within_the_formula("escaped keys", &with_keys("{", "}", all, escaped), &limits);
    // Chosen so that the first eight bytes, the last eight and the length are the same.
    let alike = |index| format!("prefix00{index:08}suffix00");
    assert_within_the_formula("keys alike at both ends", &with_keys("{", "}", all, alike), &limits);
}

#[test]
fn long_keys_stay_within_the_formula() {
    let long = |index| format!("{}{index:06}{}", "k".repeat(30_000), "k".repeat(35_000));
    assert_within_the_formula("long keys", &with_keys("{", "}", usize::MAX, long), &Limits::default());
    let long = |index| format!("{index:06}\\n{}", "k".repeat(1_000));
    assert_within_the_formula("keys of a kilobyte", &with_keys("{", "}", usize::MAX, long), &Limits::default());
}

#[test]
fn objects_in_objects_keep_the_keys_of_all_that_are_open_within_the_formula() {
    // 120 objects open at once, each with 2,000 keys before the next one.
    let mut text = br#"{"jsonrpc":"2.0","id":7,"method":"m","params":"#.to_vec();
    for depth in 0..120 {
        text.push(b'{');
        for index in 0..2_000 {
            text.extend_from_slice(format!(r#""{}":0,"#, short(index)).as_bytes());
        }
        text.extend_from_slice(if depth < 119 { br#""next":"#.as_slice() } else { br#""last":0"#.as_slice() });
    }
    text.extend_from_slice(&[b'}'; 121]);
    assert_within_the_formula("keys of 120 open objects", &text, &Limits::default());
}

#[test]
fn small_messages_are_charged_no_less_than_they_cost_at_every_length_and_chunking() {
    for length in (0..9_000).step_by(113) {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":"{}","b":[{{}}]}}}}"#, "x".repeat(length));
        for chunk in [usize::MAX, CHUNK, 97, 1] {
            for end in ["", "\n"] {
                let text = format!("{text}{end}");
                let cost = cost(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard, Id::None);
                accepted(cost.received);
            }
        }
    }
}

#[test]
fn nothing_is_held_when_everything_is_dropped() {
    for (text, limits) in [
        (with_keys("{", "}", 50_000, short), Limits::default()),
        (with_keys("{", "}", 50_000, short), Limits::default().with_json_values(Bound::at_most(40_000))),
        (reproduction().into_bytes(), Limits::default()),
    ] {
        let budget = Budget::new(Bound::Unbounded);
        let connection = budget.child(Bound::Unbounded);
        let ((), usage) = measure_thread(|| {
            let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &connection);
            text.chunks(CHUNK).for_each(|piece| push(&mut deframer, piece, drop));
            let received = deframer.finish();
            assert!(received.is_some());
            drop(deframer);
            let charged = match &received {
                Some(Received::Message(message)) => message.charged(),
                _ => 0,
            };
            assert_eq!((budget.held(), connection.held()), (charged, charged), "the message alone");
        });
        assert_eq!((budget.held(), connection.held(), usage.live_after), (0, 0, 0));
    }
}

#[test]
fn a_deframer_holds_64_kib_after_a_large_message_and_16_kib_when_it_is_fresh() {
    let deep = "[{\"a\":".repeat(60) + "0" + &"}]".repeat(60);
    let mut texts = [
        ("many keys", with_keys("{", "}", 262_139, short)),
        ("long text", with_keys("{", "}", usize::MAX, |index| format!("{index}{}", "x".repeat(60_000)))),
        ("the reproduction", reproduction().into_bytes()),
        ("depth", format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{deep}}}"#).into_bytes()),
        ("a long id", format!(r#"{{"id":"{}","jsonrpc":"2.0","method":"m"}}"#, "i".repeat(1_024)).into_bytes()),
    ];
    texts.iter_mut().for_each(|(_, text)| text.push(b'\n'));
    let budget = Budget::new(Bound::Unbounded);
    let own = size_of::<LineDeframer>() as u64;
    let meter = Meter::thread();
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    let idle = || meter.usage().live_after as u64 + own;
    println!("fresh: {} B", idle());
    assert!(idle() <= 16 * KIB);
    push(&mut deframer, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n", drop);
    println!("idle after a small message: {} B, charged {} B", idle(), budget.held());
    assert!(idle() <= 16 * KIB);
    for (name, text) in &texts {
        let mut found = 0;
        text.chunks(CHUNK).for_each(|piece| push(&mut deframer, piece, |_| found += 1));
        assert_eq!(found, 1);
        println!("idle after {name}: {} B, charged {} B", idle(), budget.held());
        assert!(idle() <= 64 * KIB, "{} bytes after {name}", idle());
        assert!(budget.held() + 4 * KIB + own >= idle(), "{name}");
    }
}

#[test]
fn a_refused_message_gives_back_what_it_held_and_is_followed_in_constant_memory() {
    let limits = Limits::default().with_json_values(Bound::at_most(1_000));
    // Each goes on for mebibytes after the refusal: numbers in an id, keys, depth, a long id, digits of an id.
    let head = format!(r#"{{"jsonrpc":"2.0","params":[{}0],"#, "0,".repeat(2_000));
    let tails = [
        ("numbers in an id", format!(r#""id":[{}1],"method":"m"}}"#, "1234567,".repeat(200_000))),
        ("keys", format!(r#""id":7,"method":"m","x":{{{}"a":0}}}}"#, "\"key\":0,".repeat(200_000))),
        ("open objects", format!(r#""id":7,"method":"m","x":{}"#, "{\"a\":".repeat(300_000))),
        ("a long id", format!(r#""id":"{}","method":"m"}}"#, "x".repeat(2_000_000))),
        ("a long number as id", format!(r#""id":1{},"method":"m"}}"#, "0".repeat(2_000_000))),
    ];
    for (name, tail) in tails {
        for chunk in [CHUNK, 1] {
            let budget = Budget::new(Bound::Unbounded);
            let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &budget);
            head.as_bytes().chunks(chunk).for_each(|piece| push(&mut deframer, piece, drop));
            let meter = Meter::thread();
            tail.as_bytes().chunks(chunk).for_each(|piece| push(&mut deframer, piece, drop));
            let peak = meter.usage().peak_over_baseline;
            assert!(peak <= 4 * KIB as usize, "{name} in {chunk}: {peak} bytes");
            assert!(budget.held() <= 16 * KIB, "{name}: {} charged", budget.held());
            assert_eq!(refused(deframer.finish().unwrap()).refusal.reason, Reason::JsonValues);
        }
    }
}

#[test]
fn at_the_byte_that_refuses_a_message_what_it_held_is_given_back() {
    let head = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[""#;
    let text = format!("{head}{}", "x".repeat(MIB as usize - head.len()));
    let limits = Limits::default();
    for (name, limits, room, tail) in [
        ("messageBytes", limits.clone().with_message_bytes(Bound::at_most(MIB)), Bound::Unbounded, "x"),
        (
            "stringBytes",
            limits.clone().with_string_bytes(Bound::at_most(MIB - head.len() as u64)),
            Bound::Unbounded,
            "x",
        ),
        ("invalidJson", limits.clone(), Bound::Unbounded, "\u{1}"),
        ("loneSurrogate", limits.clone(), Bound::Unbounded, "\\udc00"),
        // There is room for what came so far and for no more.
        ("overloaded", limits, Bound::at_most(MIB + 100 * KIB), &"x".repeat(100_000)),
    ] {
        let budget = Budget::new(room);
        let meter = Meter::thread();
        let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &budget);
        push(&mut deframer, text.as_bytes(), drop);
        assert!(budget.held() >= MIB, "{name}: it is held as long as it may be accepted");
        push(&mut deframer, tail.as_bytes(), drop);
        assert!(budget.held() <= 16 * KIB, "{name}: {} bytes are held", budget.held());
        assert!(meter.usage().live_after <= 16 * KIB as isize, "{name}");
        assert_eq!(refused(deframer.finish().unwrap()).refusal.reason.word(), name);
    }
}

#[test]
fn an_id_over_a_limit_of_another_kind_is_not_kept() {
    let limits = Limits::default().with_number_bytes(Bound::at_most(10)).with_id_bytes(Bound::at_most(1_000));
    let text = format!(r#"{{"jsonrpc":"2.0","method":"m","id":1{}}}"#, "0".repeat(2_000_000));
    for chunk in [CHUNK, 1] {
        let cost = cost_of_ids(text.as_bytes(), chunk, &limits);
        assert!(cost.peak_heap <= 16 * KIB, "{} bytes", cost.peak_heap);
        let refused = refused(cost.received);
        assert_eq!((refused.refusal.reason, refused.id), (Reason::NumberBytes, SeenId::Unreadable));
    }
    // Control: one that is short enough for an id is one, although it is too long for a number.
    let text = br#"{"jsonrpc":"2.0","method":"m","id":123456789012}"#;
    let short = refused(one(text, 1, &limits, Dialect::Standard));
    assert_eq!((short.refusal.reason, short.id), (Reason::NumberBytes, SeenId::Readable(123_456_789_012.into())));
}

/// [`cost`] for messages whose ids are long.
fn cost_of_ids(text: &[u8], chunk: usize, limits: &Limits) -> Cost {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(limits, Dialect::Standard, &budget);
    let meter = Meter::thread();
    text.chunks(chunk).for_each(|piece| push(&mut deframer, piece, drop));
    let received = deframer.finish().unwrap();
    Cost { received, peak_heap: meter.usage().peak_over_baseline as u64, peak_charged: budget.peak() }
}

#[test]
fn with_no_room_at_all_a_request_is_still_answered_by_its_id_and_the_next_one_passes() {
    let deep = format!("{}{}", "[{\"a\":".repeat(50), "0}]".to_owned() + &"}]".repeat(49));
    for params in ["[1,2,3]", r#"{"a":{"b":[{}]}}"#, &deep] {
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}{}"#, "\n"),
            format!(r#"{{"jsonrpc":"2.0","params":{params},"method":"m","id":7}}{}"#, "\n"),
        ] {
            for chunk in [usize::MAX, 97, 1] {
                let process = Budget::new(Bound::at_most(MIB));
                let connection = process.child(Bound::Unbounded);
                let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &connection);
                let full = process.child(Bound::Unbounded).try_charge(MIB).unwrap();
                let mut found = Vec::new();
                text.as_bytes().chunks(chunk).for_each(|piece| push(&mut deframer, piece, |line| found.push(line)));
                let refused = as_refused(found.pop().unwrap());
                assert_eq!(refused.refusal.reason, Reason::Overloaded);
                assert_eq!(refused.refusal.scope, Some("process"));
                assert_eq!(refused.id, SeenId::Readable(7.into()), "in chunks of {chunk}: {text}");
                let answer = AnswerRules::default().answer(&refused, |_| false);
                assert_eq!(answer, Answer::Error { id: Some(7.into()), code: -31009, paced: false });
                drop(full);
                text.as_bytes().chunks(chunk).for_each(|piece| push(&mut deframer, piece, |line| found.push(line)));
                assert_eq!(common::as_message(found.pop().unwrap()).kind(), Kind::Request);
            }
        }
    }
}

#[test]
fn room_that_ends_anywhere_within_a_message_refuses_it_by_its_id_and_holds_no_more_than_the_room() {
    let deep = format!("{}{}", "[{\"a\":".repeat(90), "0".to_owned() + &"}]".repeat(90));
    let keys: String = (0..600).map(|index| format!("\"{}\":[],", short(index))).collect();
    let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":[{deep},{{{keys}"z9":0}}],"id":"last"}}"#);
    let limits = Limits::default().with_depth(Bound::Unbounded);
    let most = cost(text.as_bytes(), CHUNK, &limits, Dialect::Standard, Id::Short).peak_charged;
    let mut refusals = 0;
    for room in (1..most).step_by(97) {
        let budget = Budget::new(Bound::at_most(room));
        let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &budget);
        push(&mut deframer, text.as_bytes(), drop);
        let refused = refused(deframer.finish().unwrap());
        assert_eq!((refused.refusal.reason, refused.refusal.scope), (Reason::Overloaded, Some("process")));
        assert!(matches!(refused.id, SeenId::Readable(id) if id.as_str() == Some("last")), "with room for {room}");
        assert!(budget.peak() <= room);
        refusals += 1;
    }
    assert!(refusals > 100);
    let budget = Budget::new(Bound::at_most(most));
    let mut deframer = LineDeframer::new(&limits, Dialect::Standard, &budget);
    push(&mut deframer, text.as_bytes(), drop);
    accepted(deframer.finish().unwrap());
}

#[test]
fn what_many_keys_needed_is_given_back_when_their_object_closes() {
    // Two thousand keys stay open while 200,000 come and go; then a long text follows.
    let outer: String = (0..2_000).map(|index| format!("\"{}\":0,", short(index))).collect();
    let inner: String = (0..200_000).map(|index| format!("\"{}\":0,", short(index))).collect();
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":{{{outer}"inner":{{{inner}"last":0}},"outer":"{}"}}}}"#,
        "x".repeat(100_000)
    );
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
    let meter = Meter::thread();
    for piece in text.as_bytes().chunks(CHUNK) {
        push(&mut deframer, piece, drop);
        let live = meter.usage().live_after as u64;
        assert!(budget.held() >= live, "{live} bytes are live and {} are charged", budget.held());
    }
    let held = budget.held();
    assert!(held < text.len() as u64 + 200 * KIB, "{held} bytes beside {} of text", text.len());
    accepted(deframer.finish().unwrap());
}

#[test]
fn keys_that_may_repeat_cost_nothing() {
    let text = with_keys("{", "}", 200_000, short);
    let with = cost(&text, CHUNK, &Limits::default(), Dialect::Standard, Id::Short);
    let limits = Limits::default().with_duplicate_keys(DuplicateKeys::Accept);
    let without = cost(&text, CHUNK, &limits, Dialect::Standard, Id::Short);
    assert!(without.peak_heap < text.len() as u64 + 128 * KIB);
    assert!(with.peak_heap > without.peak_heap + 3 * MIB, "the keys are measured");
}
