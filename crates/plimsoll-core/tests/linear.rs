//! The work is linear in the bytes, whatever the shape and however the bytes come; chosen keys gain nothing.
//!
//! Times are compared with each other and never with a clock: the least of a few interleaved rounds, and bounds that
//! only another order of growth passes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]
#![allow(clippy::print_stdout, reason = "figures are shown with --nocapture")]

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_core::{Bound, Budget, Dialect, DuplicateKeys, Limits, LineDeframer};
use plimsoll_corpus::{Envelope, Form, IdPlacement, Shape, shapes};

/// No limit stops a shape early: all of it is read.
fn no_limits() -> Limits {
    let off = Bound::Unbounded;
    Limits::default()
        .with_message_bytes(off)
        .with_skip_bytes(off)
        .with_json_values(off)
        .with_depth(off)
        .with_key_bytes(off)
        .with_number_bytes(off)
        .with_id_bytes(off)
        .with_method_bytes(off)
}

/// Limits that refuse nearly everything at once, so that it is only followed.
fn tiny_limits() -> Limits {
    no_limits().with_json_values(Bound::at_most(1)).with_depth(Bound::at_most(20))
}

/// Times of tests that run beside each other say nothing.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time(text: &[u8], chunk: usize, limits: &Limits) -> Duration {
    let budget = Budget::new(Bound::Unbounded);
    let mut deframer = LineDeframer::new(limits, Dialect::Standard, &budget);
    let begun = Instant::now();
    text.chunks(chunk).for_each(|piece| common::push(&mut deframer, piece, drop));
    drop(deframer.finish());
    begun.elapsed()
}

/// The least time of each text over interleaved rounds.
fn least<const N: usize>(rounds: usize, texts: [&[u8]; N], chunk: usize, limits: &Limits) -> [Duration; N] {
    let mut least = [Duration::MAX; N];
    for _ in 0..rounds {
        for (text, least) in texts.iter().zip(&mut least) {
            *least = (*least).min(time(text, chunk, limits));
        }
    }
    least
}

/// `factor` times the bytes may take `factor` times the time, with room for noise; a quadratic path takes its square.
fn assert_linear(
    name: &str,
    make: impl Fn(usize) -> Vec<u8>,
    bytes: usize,
    factor: usize,
    chunk: usize,
    limits: &Limits,
) {
    let (small, large) = (make(bytes), make(bytes * factor));
    // Another try is for a machine that was busy; a quadratic path stays one.
    let mut ratio = 0.0;
    for rounds in [2, 4, 8] {
        let [one, many] = least(rounds, [&small, &large], chunk, limits);
        let grown = large.len() as f64 / small.len() as f64;
        ratio = many.as_secs_f64() / one.as_secs_f64() / grown;
        if ratio < 5.0 {
            return;
        }
    }
    panic!("{name}: a byte of {factor} times the bytes takes {ratio:.1} times as long");
}

fn sized() -> impl Iterator<Item = &'static Shape> {
    shapes().iter().filter(|shape| shape.is_sized() && matches!(shape.form(), Form::Message | Form::Value))
}

fn message(shape: &Shape, bytes: usize) -> Vec<u8> {
    shape.message(plimsoll_corpus::Dialect::Standard, Envelope::Request(IdPlacement::Last), bytes).into_bytes()
}

#[test]
fn fed_byte_by_byte_every_shape_costs_linear_work() {
    let _alone = alone();
    for shape in sized() {
        for limits in [no_limits(), tiny_limits()] {
            assert_linear(shape.name(), |bytes| message(shape, bytes), 16 * 1024, 16, 1, &limits);
        }
    }
}

#[test]
fn fed_in_chunks_every_shape_costs_linear_work() {
    let _alone = alone();
    for shape in sized() {
        for limits in [no_limits(), tiny_limits()] {
            assert_linear(shape.name(), |bytes| message(shape, bytes), 96 * 1024, 16, 8 * 1024, &limits);
        }
    }
}

#[test]
fn a_token_that_comes_byte_by_byte_is_not_read_again_from_its_start() {
    let _alone = alone();
    let shapes: [(&str, &str, &str, &str); 6] = [
        ("string", "[\"", "x", "\"]"),
        ("text", "[\"", "水", "\"]"),
        ("escapes", "[\"", "\\u0041", "\"]"),
        ("number", "[1", "0", "]"),
        ("space", "[", " ", "]"),
        ("key", "{\"", "k", "\":0}"),
    ];
    for (name, head, fill, tail) in shapes {
        let make =
            |bytes: usize| format!("{{\"params\":{head}{}{tail}}}", fill.repeat(bytes / fill.len())).into_bytes();
        assert_linear(name, make, 32 * 1024, 16, 1, &no_limits());
        assert_linear(name, make, 32 * 1024, 16, 97, &no_limits());
    }
}

/// An array of objects of `count` keys each, or one object when `count` is zero.
fn objects(bytes: usize, count: usize, mut key: impl FnMut(usize) -> String) -> Vec<u8> {
    let mut text = br#"{"jsonrpc":"2.0","method":"m","params":["#.to_vec();
    let mut index = 0;
    while text.len() < bytes {
        text.push(b'{');
        let mut first = true;
        while if count == 0 { text.len() < bytes } else { first || index % count != 0 } {
            if !first {
                text.push(b',');
            }
            first = false;
            text.extend_from_slice(format!(r#""{}":0"#, key(index)).as_bytes());
            index += 1;
        }
        text.extend_from_slice(b"},");
    }
    text.pop();
    text.extend_from_slice(b"]}");
    text
}

/// Spread over the whole key, as ordinary ones are.
fn ordinary(index: usize, len: usize) -> String {
    let word = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{word:016x}").repeat(len.div_ceil(16))[..len].to_owned()
}

#[test]
fn keys_chosen_to_collide_cost_at_most_five_times_ordinary_ones() {
    let _alone = alone();
    const BYTES: usize = 2 << 20;
    let alike = |len: usize| {
        move |index: usize| {
            let middle = format!("{index:08}");
            let rest = len - middle.len();
            format!("{}{middle}{}", "p".repeat(rest / 2), "s".repeat(rest - rest / 2))
        }
    };
    for (len, count) in
        [(24, 0), (24, 16), (24, 17), (40, 0), (40, 16), (300, 16), (1_000, 16), (1_000, 0), (60_000, 16)]
    {
        let (fair, chosen) = (objects(BYTES, count, |index| ordinary(index, len)), objects(BYTES, count, alike(len)));
        assert_at_most_five_times(&format!("keys of {len} bytes, {count} an object"), &fair, &chosen);
    }
}

fn assert_at_most_five_times(name: &str, fair: &[u8], chosen: &[u8]) {
    let mut ratio = 0.0;
    for rounds in [3, 6, 12] {
        let [fair, chosen] = least(rounds, [fair, chosen], 8 * 1024, &no_limits());
        ratio = chosen.as_secs_f64() / fair.as_secs_f64();
        if ratio <= 5.0 {
            break;
        }
    }
    println!("{name}: {ratio:.1} times ordinary keys");
    assert!(ratio <= 5.0, "{name}: {ratio:.1} times ordinary keys");
}

#[test]
fn the_colliding_shapes_of_the_corpus_cost_at_most_five_times_ordinary_keys() {
    let _alone = alone();
    const BYTES: usize = 2 << 20;
    for shape in shapes().iter().filter(|shape| shape.number() == 11) {
        let chosen = message(shape, BYTES);
        let keys =
            if shape.name().starts_with("collidingP") || shape.name().starts_with("collidingE") { 16 } else { 0 };
        let len = if keys == 16 { 16 } else { 32 };
        let fair = objects(BYTES, keys, |index| ordinary(index, len));
        assert_at_most_five_times(shape.name(), &fair, &chosen);
    }
}

#[test]
fn comparing_keys_costs_a_few_times_reading_them() {
    let _alone = alone();
    let text = objects(2 << 20, 0, |index| ordinary(index, 16));
    let with = least(3, [&text], 8 * 1024, &no_limits());
    let without = least(3, [&text], 8 * 1024, &no_limits().with_duplicate_keys(DuplicateKeys::Accept));
    let ratio = with[0].as_secs_f64() / without[0].as_secs_f64();
    println!("many keys compared: {ratio:.1} times the same keys read");
    assert!(ratio <= 30.0, "{ratio:.1}");
}
