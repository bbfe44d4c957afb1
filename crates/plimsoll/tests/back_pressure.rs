//! Who does not read is waited for and not buffered for, for a bounded time; what waits is not lost, and nobody waits in a
//! circle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{HOUR, Served, error_of, handlers, is_idle, join, serve, serve_with, settle};
use plimsoll::{
    Bound, CallError, CloseReason, Context, Deadline, KIB, Limits, MIB, Peer, PeerBuilder, Reason, Router, RpcError,
};
use plimsoll_testkit::alloc::{CountingAllocator, Meter};
use plimsoll_testkit::pair::{Chunks, Faults, Gate};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

fn with(limits: Limits) -> PeerBuilder {
    PeerBuilder::new(limits).router(handlers())
}

fn narrow() -> Faults {
    Faults::none().capacity(4 * 1024)
}

/// `count` tasks that notify with the same text.
fn notify_all(peer: &Peer, count: usize, text: &Arc<str>) -> Vec<JoinHandle<()>> {
    let one = |number| {
        let (peer, text) = (peer.clone(), text.clone());
        tokio::spawn(async move { peer.notify("note", &(number, &*text)).await.unwrap() })
    };
    (0..count).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn senders_wait_for_a_peer_that_does_not_read_and_lose_nothing() {
    let text: Arc<str> = "x".repeat(16_000).into();
    for (outgoing, bounded) in [(Bound::at_most(64 * KIB), true), (Bound::Unbounded, false)] {
        let limits = Limits::default().with_outgoing_bytes(outgoing);
        let Served { peer, mut wire, .. } = serve_with(with(limits), Faults::none(), narrow());
        let meter = Meter::thread();
        let sending = notify_all(&peer, 100, &text);
        settle().await;
        let done = sending.iter().filter(|task| task.is_finished()).count();
        let (held, heap) = (peer.counters().held_bytes, meter.usage().live_after);
        if bounded {
            // The queue, one text that waits for room, and on the heap a hundred waiting tasks.
            assert!(done <= 5, "{done} were queued");
            assert!(held <= 64 * KIB + 32 * KIB, "{held} bytes are held");
            assert!(heap <= 300 * 1024, "{heap} bytes are on the heap");
        } else {
            assert_eq!(done, 100, "the control holds nobody back");
            assert!(held >= 1_600_000 && heap >= 1_600_000, "{held} held, {heap} on the heap");
        }
        for number in 0..100 {
            assert_eq!(wire.message().await["params"][0], number);
        }
        settle().await;
        assert!(sending.iter().all(JoinHandle::is_finished) && is_idle(&peer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_queue_goes_when_the_queue_is_empty() {
    let limits = Limits::default().with_outgoing_bytes(Bound::at_most(1_000));
    let Served { peer, mut wire, .. } = serve_with(with(limits), Faults::none(), narrow());
    let text: Arc<str> = "x".repeat(100_000).into();
    let sending = notify_all(&peer, 5, &text);
    for number in 0..5 {
        assert_eq!(wire.message().await["params"][0], number);
    }
    settle().await;
    assert!(sending.iter().all(JoinHandle::is_finished) && is_idle(&peer));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_is_closed_at_the_stall_deadline_and_calls_fail() {
    let Served { peer, wire, running } = serve_with(with(Limits::default()), Faults::none(), narrow());
    let begun = Instant::now();
    let call = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call::<u8>("ask", &["x".repeat(100_000)]).await }
    });
    let Err(CallError::Closed(CloseReason::Refused(refusal))) = call.await.unwrap() else { panic!("not refused") };
    assert_eq!((refusal.reason, refusal.limit), (Reason::StallDeadline, Some(60_000)));
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(running.await.unwrap().reason(), Reason::StallDeadline);
    assert_eq!(wire.received.in_flight(), 4 * 1024);
    drop(wire);

    let limits = Limits::default().with_stall_deadline(Deadline::Never);
    let Served { peer, mut wire, .. } = serve_with(with(limits), Faults::none(), narrow());
    notify_all(&peer, 1, &"x".repeat(100_000).into());
    tokio::time::sleep(HOUR).await;
    assert!(peer.is_open(), "the control waits");
    wire.message().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_is_not_stalled() {
    let Served { peer, wire, .. } = serve_with(with(Limits::default()), Faults::none(), Faults::none().capacity(10));
    notify_all(&peer, 1, &"x".repeat(300).into());
    let mut reader = wire.reader.unwrap();
    let mut piece = [0; 10];
    for _ in 0..34 {
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(peer.is_open());
        assert_eq!(tokio::io::AsyncReadExt::read(&mut reader, &mut piece).await.unwrap(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_concurrent_replies_of_64_kib_are_all_answered_whatever_the_room() {
    let small = Limits::default().with_memory(Bound::at_most(MIB));
    for limits in [Limits::default(), Limits::default().with_outgoing_bytes(Bound::at_most(100 * KIB)), small] {
        let router = Router::new().request("big", |_context, (): ()| async { Ok("x".repeat(64 * 1024)) });
        let builder = PeerBuilder::new(limits.clone()).router(router);
        let Served { peer, mut wire, .. } = serve_with(builder, Faults::none(), narrow());
        for id in 0..200 {
            wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"big"}}"#)).await;
        }
        settle().await;
        let mut answered = BTreeSet::new();
        for _ in 0..200 {
            let reply = wire.message().await;
            assert_eq!(reply["result"].as_str().map(str::len), Some(64 * 1024), "{:?}", reply["error"]);
            assert!(answered.insert(reply["id"].as_u64().unwrap()));
        }
        assert!(wire.is_quiet().await && is_idle(&peer));
        assert!(peer.counters().peak_bytes <= limits.memory().ceiling());
    }
}

/// A handler that takes a permit for each notification and keeps the number.
fn gated(gate: &Arc<Semaphore>, seen: &Arc<Mutex<Vec<u64>>>) -> Router {
    let (gate, seen) = (gate.clone(), seen.clone());
    handlers().notification("note", move |_context, (number, _text): (u64, String)| {
        let (gate, seen) = (gate.clone(), seen.clone());
        async move {
            gate.acquire().await.unwrap().forget();
            seen.lock().unwrap().push(number);
        }
    })
}

#[tokio::test(start_paused = true)]
async fn notifications_that_wait_pause_reading_and_none_is_lost() {
    for (bytes, bounded) in [(Bound::at_most(10 * KIB), true), (Bound::Unbounded, false)] {
        let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::default());
        let limits = Limits::default().with_notification_bytes(bytes);
        let builder = PeerBuilder::new(limits).router(gated(&gate, &seen));
        let Served { peer, mut wire, .. } = serve_with(builder, narrow(), Faults::none());
        let sent = wire.sent.clone();
        let sending = tokio::spawn(async move {
            for number in 0..500 {
                wire.notify("note", json!([number, "x".repeat(1_000)])).await;
            }
            wire.request(1, "add", json!([1, 1])).await;
            wire
        });
        settle().await;
        if bounded {
            let read = sent.read();
            assert!(read <= 10 * KIB + 8 * KIB + 2 * KIB, "{read} bytes were read");
            assert!(peer.counters().held_bytes <= 10 * KIB + 16 * KIB + 4 * KIB, "{:?}", peer.counters());
            assert!(!sending.is_finished());
        } else {
            assert!(sending.is_finished() && sent.in_flight() == 0, "the control reads all");
            assert!(peer.counters().held_bytes >= 500_000);
        }
        gate.add_permits(500);
        let mut wire = sending.await.unwrap();
        assert_eq!(wire.message().await["result"], 2);
        settle().await;
        assert_eq!(*seen.lock().unwrap(), (0..500).collect::<Vec<_>>());
        assert!(is_idle(&peer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_notification_handler_that_calls_back_is_answered_though_the_queue_behind_it_is_full() {
    let seen = Arc::new(AtomicUsize::new(0));
    let router = Router::new().notification("note", {
        let seen = seen.clone();
        move |context: Context, (number, _text): (u64, String)| {
            let seen = seen.clone();
            async move {
                assert_eq!(context.peer().call::<u64>("ask", &[number]).await, Ok(number));
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let limits = Limits::default().with_notification_bytes(Bound::at_most(2 * KIB));
    let builder = PeerBuilder::new(limits).router(router);
    let Served { peer, mut wire, .. } = serve_with(builder, narrow(), narrow());
    // The answers stand behind notifications that do not fit the queue.
    for number in 0..300 {
        wire.notify("note", json!([number, "x".repeat(1_000)])).await;
    }
    for _ in 0..300 {
        let call = wire.message().await;
        wire.send(json!({ "jsonrpc": "2.0", "id": call["id"], "result": call["params"][0] }).to_string()).await;
    }
    settle().await;
    assert_eq!(seen.load(Ordering::Relaxed), 300);
    assert!(is_idle(&peer));
}

/// `bounce` with n calls the other side with n - 1, so that both sides call from within handlers.
fn bouncing() -> Router {
    Router::new().request("bounce", |context: Context, (left,): (u32,)| async move {
        match left {
            0 => Ok(0),
            _ => match context.peer().call::<u32>("bounce", &[left - 1]).await {
                Ok(depth) => Ok(depth + 1),
                Err(CallError::Rpc(error)) => Err(error),
                Err(error) => Err(RpcError::internal(error.to_string())),
            },
        }
    })
}

#[tokio::test(start_paused = true)]
async fn handlers_that_call_back_at_full_admission_do_not_wait_in_a_circle() {
    for (in_flight, all_succeed) in [(8, false), (256, true)] {
        let limits = Limits::default().with_in_flight(Bound::at_most(in_flight));
        let [one, other] = [0, 1].map(|_| PeerBuilder::new(limits.clone()).router(bouncing()));
        let [(here, _), (there, _)] = join(one, other, narrow(), narrow());
        let calls: Vec<_> = [&here, &there]
            .into_iter()
            .flat_map(|peer| (0..20).map(move |_| peer.clone()))
            .map(|peer| tokio::spawn(async move { peer.call::<u32>("bounce", &[6]).await }))
            .collect();
        let begun = Instant::now();
        let (mut answered, mut refused) = (0, 0);
        for call in calls {
            match tokio::time::timeout(HOUR, call).await.expect("it waits for ever").unwrap() {
                Ok(depth) => {
                    assert_eq!(depth, 6);
                    answered += 1;
                }
                Err(CallError::Rpc(error)) => {
                    assert_eq!((error.code, error.data.unwrap()["reason"].as_str()), (-31009, Some("inFlight")));
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(answered + refused, 40);
        assert_eq!(refused == 0, all_succeed, "{refused} were refused");
        assert!(is_idle(&here) && is_idle(&there));
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_reply_to_a_slow_reader_stops_nobody_else() {
    let seen = Arc::default();
    let gate = Arc::new(Semaphore::new(10));
    let router = gated(&gate, &seen).request("large", |_context, (): ()| async { Ok("x".repeat(8 * MIB as usize)) });
    let builder = PeerBuilder::new(Limits::default()).router(router);
    let Served { mut wire, .. } = serve_with(builder, Faults::none(), narrow());
    let Served { wire: mut other, .. } = serve(with(Limits::default()));
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"large"}"#).await;
    settle().await;
    // The same connection goes on reading and handling, and another one answers.
    wire.notify("note", json!([7, ""])).await;
    other.request(1, "add", json!([1, 1])).await;
    assert_eq!(other.message().await["result"], 2);
    settle().await;
    assert_eq!(*seen.lock().unwrap(), [7]);
    assert_eq!(wire.message().await["result"].as_str().unwrap().len(), 8 * MIB as usize);
}

#[tokio::test(start_paused = true)]
async fn frames_never_interleave_under_partial_writes() {
    for seed in 0..8 {
        let back = Faults::none().capacity(3_000).write_chunks(Chunks::random(seed, 500));
        let there = Faults::none().read_chunks(Chunks::random(seed + 100, 300));
        let limits = Limits::default().with_outgoing_bytes(Bound::at_most(20 * KIB));
        let Served { peer, mut wire, .. } = serve_with(with(limits), there, back);
        let senders: Vec<_> = (0..8)
            .map(|sender| {
                let peer = peer.clone();
                tokio::spawn(async move {
                    for number in 0..50_usize {
                        let text = "x".repeat((sender * 50 + number) * 97 % 5_000);
                        peer.notify("note", &(sender, number, text)).await.unwrap();
                    }
                })
            })
            .collect();
        for id in 0..50 {
            wire.request(id, "echo", json!(["y".repeat(id * 31)])).await;
            wire.request(1_000 + id, "no/such", json!([])).await;
            wire.send(format!(r#"{{"jsonrpc":"2.0","id":{},"method":"echo","params":[1,}}"#, 2_000 + id)).await;
        }
        let mut next = [0; 8];
        let mut replies = BTreeSet::new();
        for _ in 0..8 * 50 + 150 {
            // Every line is one whole message.
            let message = wire.message().await;
            if let Some(id) = message["id"].as_u64() {
                assert!(replies.insert(id), "{id} is answered twice");
            } else {
                let sender = message["params"][0].as_u64().unwrap() as usize;
                assert_eq!(message["params"][1], next[sender], "in the order sent");
                next[sender] += 1;
            }
        }
        for sender in senders {
            sender.await.unwrap();
        }
        assert_eq!((next, replies.len()), ([50; 8], 150), "seed {seed}");
        assert!(is_idle(&peer));
    }
}

#[tokio::test(start_paused = true)]
async fn replies_to_refused_requests_go_ahead_of_the_queue_and_do_not_stop_it() {
    let Served { peer, mut wire, .. } = serve_with(with(Limits::default()), Faults::none(), narrow());
    notify_all(&peer, 50, &"x".repeat(100_000).into());
    settle().await;
    for id in 0..40 {
        wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"echo","params":[1,}}"#)).await;
    }
    settle().await;
    let mut order = String::new();
    for _ in 0..90 {
        order.push(if wire.message().await.get("error").is_some() { 'e' } else { 'n' });
    }
    // What is being written is finished; then half a batch of errors, a part of the queue, and the other errors.
    let ahead = order.find('e').unwrap();
    assert!(ahead <= 4, "{order}");
    let errors_at_once = order[ahead..].find('n').unwrap();
    assert_eq!(errors_at_once, 32, "the queue moves, too: {order}");
    assert!(order[ahead + 32..].find('e').unwrap() <= 4, "{order}");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_free_as_soon_as_its_reply_is_written_though_a_large_one_follows() {
    let router = handlers().request("large", |_context, (): ()| async { Ok("x".repeat(MIB as usize)) });
    let builder = PeerBuilder::new(Limits::default()).router(router);
    let Served { mut wire, .. } = serve_with(builder, Faults::none(), narrow());
    let both = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"add","params":[1,1]}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"large"}"#
    );
    wire.send(both).await;
    settle().await;
    assert_eq!(wire.message().await["id"], 1);
    // The large reply stands in the same write and is not done.
    wire.request(1, "add", json!([2, 2])).await;
    settle().await;
    assert_eq!(wire.message().await["id"], 2);
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": 4 }));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_whose_replies_are_not_read_stops_being_read() {
    // Each kind of reply that needs no handler.
    let limits = Limits::default().with_json_values(Bound::at_most(20)).with_stall_deadline(Deadline::seconds(5));
    let values = vec![0; 30];
    for (method, params) in
        [("no/such", json!([])), ("echo", json!(values)), ("panic", json!([])), ("add", json!(["a"]))]
    {
        let Served { peer, mut wire, running } = serve_with(with(limits.clone()), narrow(), narrow());
        let (sent, params) = (wire.sent.clone(), params.clone());
        let meter = Meter::thread();
        let flooding = tokio::spawn(async move {
            for id in 0..20_000 {
                let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
                let written =
                    tokio::io::AsyncWriteExt::write_all(wire.writer.as_mut().unwrap(), request.as_bytes()).await;
                if written.is_err()
                    || tokio::io::AsyncWriteExt::write_all(wire.writer.as_mut().unwrap(), b"\n").await.is_err()
                {
                    return id;
                }
            }
            20_000
        });
        settle().await;
        assert!(sent.read() < 200 * KIB, "{method}: {} bytes were read", sent.read());
        assert!(peer.counters().in_flight <= 256);
        let heap = meter.usage().live_after;
        assert!(heap < 1024 * 1024, "{method}: {heap} bytes on the heap");
        assert_eq!(running.await.unwrap().reason(), Reason::StallDeadline);
        let ended_at = flooding.await.unwrap();
        assert!(ended_at < 5_000, "{method}: {ended_at} were sent");
    }
    // The control reads, and every one is answered.
    let Served { mut wire, peer, .. } = serve(with(limits));
    for id in 0..20_000_u64 {
        wire.request(id, "no/such", json!([])).await;
        let (answered, code, _) = error_of(&wire.message().await);
        assert_eq!((answered.as_u64(), code), (Some(id), -32601));
    }
    assert!(is_idle(&peer));
}

/// Both peers call the other with too many values, all at once; how many were answered and how many calls failed because
/// the connection ended.
async fn flood_each_other(way: Faults, back: Faults) -> ([Reason; 2], usize, usize) {
    let limits = Limits::default().with_json_values(Bound::at_most(20)).with_pending(Bound::Unbounded);
    let [one, other] = [0, 1].map(|_| PeerBuilder::new(limits.clone()));
    let [(here, running), (there, other_running)] = join(one, other, way, back);
    let calls: Vec<_> = (0..6_000)
        .map(|index| if index % 2 == 0 { here.clone() } else { there.clone() })
        .map(|peer| tokio::spawn(async move { peer.call::<Value>("flood", &[[0; 5]; 5]).await }))
        .collect();
    let (mut answered, mut closed) = (0, 0);
    for call in calls {
        match tokio::time::timeout(HOUR, call).await.expect("it waits for ever").unwrap() {
            Err(CallError::Rpc(error)) => {
                assert_eq!(error.code, -32600);
                answered += 1;
            }
            Err(CallError::Closed(_)) => closed += 1,
            other => panic!("{other:?}"),
        }
    }
    here.close();
    let ends = [running.await.unwrap().reason(), other_running.await.unwrap().reason()];
    settle().await;
    assert_eq!((here.counters().held_bytes, there.counters().held_bytes), (0, 0));
    (ends, answered, closed)
}

#[tokio::test(start_paused = true)]
async fn two_peers_that_flood_each_other_with_refused_requests_are_answered() {
    let begun = Instant::now();
    let (_, answered, closed) = flood_each_other(narrow(), narrow()).await;
    assert_eq!((answered, closed), (6_000, 0));
    assert_eq!(begun.elapsed().as_secs(), 0, "nobody waited");
}

#[tokio::test(start_paused = true)]
async fn two_peers_that_flood_each_other_and_do_not_read_end_at_the_stall_deadline() {
    let begun = Instant::now();
    let gate = Gate::closed();
    let stalled = || narrow().stall_reads_after(20_000, &gate);
    let (ends, answered, closed) = flood_each_other(stalled(), stalled()).await;
    assert_eq!(answered + closed, 6_000);
    assert!(closed > 5_000, "{closed}");
    assert!(ends.contains(&Reason::StallDeadline), "{ends:?}");
    // The one that ends second may take the time of drain.
    assert!((60..=62).contains(&begun.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_though_the_peer_does_not_read() {
    let Served { peer, running, wire: _wire } = serve_with(with(Limits::default()), Faults::none(), narrow());
    notify_all(&peer, 10, &"x".repeat(100_000).into());
    settle().await;
    let begun = Instant::now();
    peer.close();
    assert_eq!(running.await.unwrap(), CloseReason::Closed);
    assert_eq!(begun.elapsed().as_secs(), 2, "the time of drain");
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_written_before_this_side_closes() {
    let Served { peer, running, mut wire } = serve_with(with(Limits::default()), Faults::none(), narrow());
    notify_all(&peer, 10, &"x".repeat(10_000).into());
    settle().await;
    peer.close();
    assert_eq!(wire.rest().await.len(), 10);
    assert_eq!(running.await.unwrap(), CloseReason::Closed);
}

#[test]
fn nobody_is_forgotten_between_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let work = async {
        // Room for a few messages, so that everybody waits for everybody all the time.
        let limits = Limits::default()
            .with_outgoing_bytes(Bound::at_most(4 * KIB))
            .with_notification_bytes(Bound::at_most(2 * KIB));
        let seen = Arc::new(AtomicUsize::new(0));
        let router = || {
            let seen = seen.clone();
            handlers().notification("note", move |_context, _params: Value| {
                seen.fetch_add(1, Ordering::Relaxed);
                async { tokio::task::yield_now().await }
            })
        };
        let [one, other] = [0, 1].map(|_| PeerBuilder::new(limits.clone()).router(router()));
        let [(here, _), (there, _)] = join(one, other, narrow(), narrow());
        let tasks: Vec<_> = (0..32_usize)
            .map(|task| if task % 2 == 0 { here.clone() } else { there.clone() })
            .enumerate()
            .map(|(task, peer)| {
                tokio::spawn(async move {
                    for number in 0..100 {
                        let text = "x".repeat((task * 131 + number * 17) % 1_500);
                        peer.notify("note", &[&text]).await.unwrap();
                        assert_eq!(peer.call::<(usize, String)>("echo", &(number, &text)).await, Ok((number, text)));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        while seen.load(Ordering::Relaxed) < 3_200 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(is_idle(&here) && is_idle(&there), "{:?} {:?}", here.counters(), there.counters());
    };
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), work).await.expect("somebody waits for ever")
    });
}
