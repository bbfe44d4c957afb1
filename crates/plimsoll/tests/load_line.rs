//! The load line: whatever a peer sends, in whatever order, the heap stays below `memory` and a constant base, and it
//! goes back. Everything is measured by the counting allocator, on the one thread that runs the peer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Served, error_of, handlers, is_idle, serve, serve_with, settle};
use plimsoll::{
    Bound, Budget, CallError, Context, DecodeError, KIB, Limits, MIB, PeerBuilder, Reason, Request, Responder, Router,
};
use plimsoll_corpus::{Dialect, Envelope, Form, Generator, IdPlacement, METHOD, Shape, shapes};
use plimsoll_testkit::alloc::{CountingAllocator, Meter, Usage};
use plimsoll_testkit::pair::Faults;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// What a connection, its runtime and the test may take beside the line.
const BASE: usize = 1024 * 1024;

fn narrow() -> Faults {
    Faults::none().capacity(16 * 1024)
}

/// Sends the text, line ended; `false` when the peer has closed.
async fn feed(writer: &mut (impl AsyncWriteExt + Unpin), text: Generator) -> bool {
    for piece in text {
        if writer.write_all(&piece).await.is_err() {
            return false;
        }
    }
    writer.write_all(b"\n").await.is_ok()
}

/// Decodes the parameters in every way that they may fit, and keeps them all until it answers.
fn decoding(request: Request, responder: Responder) -> Option<impl Future<Output = ()>> {
    Some(async move {
        let numbers = request.params::<Vec<u64>>();
        let strings = request.params::<Vec<String>>();
        let nested = request.params::<Vec<Vec<String>>>();
        let text = request.params::<(String,)>();
        tokio::task::yield_now().await;
        drop((numbers, strings, nested, text));
        responder.respond(Ok(request.message().wire_bytes())).await;
    })
}

fn corpus_router() -> Router {
    Router::new()
        .request_in_order(METHOD, decoding)
        .notification(METHOD, |_context, _params: Vec<String>| async { tokio::task::yield_now().await })
}

/// Sends the shape three times in the envelope to a peer with these limits, which has seven calls waiting.
async fn receive(limits: &Limits, shape: &Shape, envelope: Envelope, bytes: usize) -> Usage {
    let builder = PeerBuilder::new(limits.clone()).router(corpus_router());
    let meter = Meter::thread();
    let Served { peer, wire, running } = serve_with(builder, narrow(), narrow());
    let calls: Vec<_> = (0..7)
        .map(|_| {
            let peer = peer.clone();
            tokio::spawn(async move { peer.call::<Vec<String>>("ask", &()).await.is_ok() })
        })
        .collect();
    settle().await;
    let (mut reader, mut writer) = (wire.reader.unwrap(), wire.writer.unwrap());
    let draining = tokio::spawn(async move {
        let mut piece = [0; 8 * 1024];
        while let Ok(1..) = reader.read(&mut piece).await {}
    });
    for _ in 0..3 {
        let text = shape.message(Dialect::Standard, envelope, bytes);
        if !feed(&mut writer, text).await {
            break;
        }
    }
    settle().await;
    let counters = peer.counters();
    assert!(counters.peak_bytes <= limits.memory().ceiling(), "{}: {counters:?}", shape.name());
    if peer.is_open() {
        // Six or seven calls wait; the rest is what an idle connection holds.
        assert!(counters.in_flight == 0 && counters.held_bytes <= 20 * KIB, "{}: {counters:?}", shape.name());
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    drop(writer);
    running.await.unwrap();
    draining.await.unwrap();
    drop(calls);
    settle().await;
    assert_eq!(peer.counters().held_bytes, 0, "{}", shape.name());
    drop(peer);
    meter.usage()
}

#[tokio::test(start_paused = true)]
async fn whatever_one_connection_receives_its_heap_stays_below_the_line() {
    let memory = 2 * MIB;
    let limits = Limits::default().with_memory(Bound::at_most(memory));
    let wide = limits.clone().with_json_values(Bound::Unbounded).with_depth(Bound::Unbounded);
    let envelopes =
        [Envelope::Request(IdPlacement::Last), Envelope::Notification, Envelope::Response(IdPlacement::First)];
    let mut most = (0, "", "");
    for shape in shapes().iter().filter(|shape| shape.form() != Form::Headers) {
        for envelope in envelopes {
            for (which, limits) in [("limits", &limits), ("memory alone", &wide)] {
                let usage = receive(limits, shape, envelope, 900_000).await;
                let peak = usage.peak_over_baseline;
                assert!(peak <= memory as usize + BASE, "{} {envelope:?} under {which}: {peak} bytes", shape.name());
                assert!(usage.live_after <= 16 * 1024, "{} {envelope:?}: {usage:?}", shape.name());
                most = most.max((peak, shape.name(), which));
                if shape.form() != Form::Value {
                    break;
                }
            }
            if shape.form() != Form::Value {
                break;
            }
        }
    }
    println!("the most: {} bytes over a line of {memory} ({}, {})", most.0, most.1, most.2);
}

#[tokio::test(start_paused = true)]
async fn without_the_line_the_same_input_exceeds_it() {
    let zeroes = shapes().iter().find(|shape| shape.name() == "emptyStrings").unwrap();
    let limits = Limits::default().with_json_values(Bound::Unbounded);
    let envelope = Envelope::Request(IdPlacement::Last);
    let line = limits.clone().with_memory(Bound::at_most(2 * MIB));
    let bounded = receive(&line, zeroes, envelope, 900_000).await.peak_over_baseline;
    let off = limits.with_memory(Bound::Unbounded).with_cap(Bound::Unbounded);
    let control = receive(&off, zeroes, envelope, 900_000).await.peak_over_baseline;
    assert!(bounded <= 2 * MIB as usize + BASE && control > 8 * MIB as usize, "{bounded} and {control}");
}

fn hold(count: u64, bytes: usize) -> impl Iterator<Item = String> {
    (0..count)
        .map(move |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"keep","params":["{}"]}}"#, "x".repeat(bytes)))
}

/// Keeps its parameters until the gate opens.
fn keeping(gate: &Arc<Semaphore>) -> Router {
    let gate = gate.clone();
    Router::new().request("keep", move |_context, (text,): (String,)| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(text.len())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_line_are_answered_overloaded_by_id_and_pass_when_there_is_room() {
    for (memory, bounded) in [(Bound::at_most(2 * MIB), true), (Bound::Unbounded, false)] {
        let gate = Arc::new(Semaphore::new(0));
        let limits = Limits::default().with_memory(memory).with_cap(memory);
        let meter = Meter::thread();
        let builder = PeerBuilder::new(limits).router(keeping(&gate));
        let Served { peer, mut wire, .. } = serve_with(builder, narrow(), Faults::none());
        for request in hold(100, 60_000) {
            wire.send(request).await;
        }
        settle().await;
        let peak = meter.usage().peak_over_baseline;
        let held = peer.counters().in_flight;
        if bounded {
            assert!(peak <= 2 * MIB as usize + BASE, "{peak} bytes");
            assert!((5..35).contains(&held), "{held} are held");
            for _ in 0..100 - held {
                let reply = wire.message().await;
                let (id, code, reason) = error_of(&reply);
                assert_eq!((code, reason.as_str()), (-31009, "overloaded"), "{id}");
                let data = &reply["error"]["data"];
                assert_eq!((&data["scope"], &data["retryable"]), (&json!("connection"), &json!(true)));
                assert_eq!(data["limit"], 2 * MIB);
            }
        } else {
            assert!(held == 100 && peak > 6_000_000, "the control holds all: {held} in {peak} bytes");
        }
        gate.add_permits(200);
        for _ in 0..held {
            assert_eq!(wire.message().await["result"], 60_000);
        }
        settle().await;
        assert!(is_idle(&peer));
        for request in hold(1, 60_000) {
            wire.send(request).await;
        }
        assert_eq!(wire.message().await["result"], 60_000);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_share_the_line_of_their_process_and_the_refusal_says_so() {
    let process = Budget::new(Bound::at_most(2 * MIB));
    let gate = Arc::new(Semaphore::new(0));
    let meter = Meter::thread();
    let mut all: Vec<Served> = (0..8)
        .map(|_| {
            let builder = PeerBuilder::new(Limits::default()).budget(&process).router(keeping(&gate));
            serve_with(builder, narrow(), Faults::none().capacity(8 * 1024))
        })
        .collect();
    for served in &mut all {
        for request in hold(10, 60_000) {
            served.wire.send(request).await;
        }
    }
    settle().await;
    let peak = meter.usage().peak_over_baseline;
    assert!(peak <= 2 * MIB as usize + BASE, "{peak} bytes");
    let held: u64 = all.iter().map(|served| served.peer.counters().in_flight).sum();
    assert!((5..35).contains(&held) && process.held() <= 2 * MIB, "{held}");
    gate.add_permits(200);
    let mut refused = 0;
    for served in &mut all {
        for _ in 0..10 {
            let reply = served.wire.message().await;
            if reply.get("error").is_some() {
                assert_eq!(reply["error"]["data"]["scope"], "process", "{reply}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused + held, 80);
    settle().await;
    drop(all);
    settle().await;
    assert_eq!(process.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_small_messages_to_a_peer_that_does_not_read_are_charged_with_what_they_cost() {
    for (outgoing, bounded) in [(Bound::at_most(256 * KIB), true), (Bound::Unbounded, false)] {
        let meter = Meter::thread();
        let builder = PeerBuilder::new(Limits::default().with_outgoing_bytes(outgoing));
        let Served { peer, wire: _wire, .. } = serve_with(builder, Faults::none(), narrow());
        let sending = tokio::spawn({
            let peer = peer.clone();
            async move {
                for _ in 0..20_000 {
                    peer.notify("n", &()).await.unwrap();
                }
            }
        });
        settle().await;
        let heap = meter.usage().peak_over_baseline;
        assert_eq!(sending.is_finished(), !bounded);
        if bounded {
            assert!(heap <= 256 * 1024 + 128 * 1024, "{heap} bytes");
        } else {
            assert!(heap > 4_000_000, "the control queues all in {heap} bytes");
            assert!(peer.counters().held_bytes as usize > heap / 2, "charged: {:?}", peer.counters());
        }
        sending.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_behind_a_handler_that_calls_back_are_charged_with_what_they_cost() {
    let router = Router::new().notification("call", |context: Context, (): ()| async move {
        let _ = context.peer().call::<u8>("ask", &()).await;
    });
    let limits = Limits::default().with_memory(Bound::at_most(2 * MIB));
    let flood = || Generator::default().repeat(&b"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"[..], 60_000);
    let call = r#"{"jsonrpc":"2.0","method":"call"}"#;

    let meter = Meter::thread();
    let builder = PeerBuilder::new(limits.clone()).router(router);
    let Served { peer, mut wire, .. } = serve_with(builder, narrow(), narrow());
    wire.send(call).await;
    wire.message().await;
    // A call from within a handler waits, so reading does not pause.
    assert!(feed(wire.writer.as_mut().unwrap(), flood()).await);
    settle().await;
    let peak = meter.usage().peak_over_baseline;
    assert!(peak <= 2 * MIB as usize + BASE, "{peak} bytes");
    let counters = peer.counters();
    assert!(counters.refused > 40_000 && counters.messages < 20_000, "{counters:?}");
    assert_eq!(counters.refused + counters.messages, 60_001);
    // There is no room for the answer, so the call fails at once, and everybody goes on.
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":1}"#).await;
    settle().await;
    assert!(is_idle(&peer), "{:?}", peer.counters());
    assert!(meter.usage().live_after < 256 * 1024, "{:?}", meter.usage());

    let router = Router::new().notification("call", |context: Context, (): ()| async move {
        let _ = context.peer().call::<u8>("ask", &()).await;
    });
    let builder = PeerBuilder::new(limits).router(router).notifications_are_vital();
    let Served { mut wire, running, .. } = serve_with(builder, narrow(), narrow());
    wire.send(call).await;
    wire.message().await;
    assert!(!feed(wire.writer.as_mut().unwrap(), flood()).await);
    assert_eq!(running.await.unwrap().reason(), Reason::Overloaded, "where none may be lost it closes");
}

#[tokio::test(start_paused = true)]
async fn an_error_whose_data_is_a_tree_stays_below_the_line() {
    let mut delivered = 0;
    for objects in [10, 100, 1_000, 2_000, 4_000, 8_000, 16_000, 64_000, 100_000] {
        let memory = 4 * MIB;
        let text = Generator::default()
            .text(&br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":["#[..])
            .repeat(&br#"{"a":{"b":[]}},"#[..], objects)
            .text(&b"0]}}"[..]);
        let meter = Meter::thread();
        let Served { peer, mut wire, .. } =
            serve_with(PeerBuilder::new(Limits::default().with_memory(Bound::at_most(memory))), narrow(), narrow());
        let calling = tokio::spawn(async move { peer.call::<u8>("ask", &()).await });
        wire.message().await;
        assert!(feed(wire.writer.as_mut().unwrap(), text).await);
        match calling.await.unwrap() {
            Err(CallError::Rpc(error)) => {
                assert_eq!(error.data.unwrap().as_array().unwrap().len(), objects + 1);
                delivered += 1;
            }
            Err(CallError::Refused(refusal)) => {
                assert!(matches!(refusal.reason, Reason::Overloaded | Reason::MessageBytes), "{refusal}");
            }
            Err(CallError::Result(error)) => assert!(!matches!(error, DecodeError::Mismatch(_)), "{error}"),
            other => panic!("it was an error: {other:?}"),
        }
        let peak = meter.usage().peak_over_baseline;
        assert!(peak <= memory as usize + BASE, "{objects} objects: {peak} bytes");
    }
    assert!((3..9).contains(&delivered), "some fit and some do not: {delivered}");
}

#[tokio::test(start_paused = true)]
async fn strings_that_must_be_unescaped_or_joined_stay_below_the_line() {
    let router = || Router::new().request("keep", |_context, (text,): (String,)| async move { Ok(text.len()) });
    let mut answers = [0, 0];
    for unit in ["x", r"\u0001", r"\n", "é"] {
        for kib in [2, 60, 200, 700, 1_000] {
            let text = unit.repeat(kib * 1024 / unit.len());
            let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"keep","params":["{text}"]}}"#);
            let request = Generator::default().text(request.into_bytes());
            for memory in [MIB, 2 * MIB, 4 * MIB] {
                let meter = Meter::thread();
                let limits = Limits::default().with_memory(Bound::at_most(memory));
                let builder = PeerBuilder::new(limits).router(router());
                let Served { mut wire, .. } = serve_with(builder, narrow(), narrow());
                feed(wire.writer.as_mut().unwrap(), request.clone()).await;
                let reply = wire.message().await;
                answers[usize::from(reply.get("result").is_some())] += 1;
                let peak = meter.usage().peak_over_baseline;
                assert!(peak <= memory as usize + BASE / 4, "{unit} {kib} KiB under {memory}: {peak} bytes");
            }
        }
    }
    assert!(answers[0] >= 5 && answers[1] >= 30, "some fit and some do not: {answers:?}");
}

#[tokio::test(start_paused = true)]
async fn five_thousand_calls_leave_the_heap_as_it_was() {
    let Served { peer, mut wire, .. } = serve(PeerBuilder::new(Limits::default()).router(handlers()));
    let meter = Meter::thread();
    let mut after = [0; 5];
    for (round, after) in after.iter_mut().enumerate() {
        for index in 0..1_000 {
            wire.request(index, "echo", json!({ "round": round, "text": "x".repeat(index as usize) })).await;
            wire.message().await;
            let calling = tokio::spawn({
                let peer = peer.clone();
                async move { peer.call::<Value>("ask", &[1]).await }
            });
            let id = wire.message().await["id"].clone();
            wire.send(json!({ "jsonrpc": "2.0", "id": id, "result": index }).to_string()).await;
            calling.await.unwrap().unwrap();
            wire.notify("nobody", json!([])).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(is_idle(&peer));
        *after = meter.usage().live_after;
    }
    println!("bytes on the heap after each thousand: {after:?}");
    assert!(after[4] <= after[1] + 1_024, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_small_and_is_so_again_after_a_large_message() {
    let router = Router::new().request("size", |_context, (text,): (String,)| async move { Ok(text.len()) });
    let meter = Meter::thread();
    let Served { peer, mut wire, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    settle().await;
    let fresh = meter.usage().live_after;
    // Half a KiB of it is the stream in memory.
    assert!(fresh <= 16 * 1024 + 512, "{fresh} bytes");
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"size","params":["{}"]}}"#, "x".repeat(8 * MIB as usize));
    wire.send(request).await;
    assert_eq!(wire.message().await["result"], 8 * MIB);
    settle().await;
    let idle = meter.usage().live_after;
    // The test's own buffer of lines is among it.
    println!("a fresh connection: {fresh} bytes; after 8 MiB: {idle}");
    assert!(idle <= 64 * 1024 + 64 * 1024 && is_idle(&peer), "{idle} bytes");
}
