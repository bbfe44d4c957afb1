//! Every request with a readable id gets exactly one reply, and every call that can no longer succeed fails at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{HOUR, Served, at_once, error_of, handlers, is_idle, serve, serve_with, settle};
use plimsoll::{
    Bound, CallError, CloseReason, Deadline, Dialect, DuplicateKeys, Limits, MIB, Peer, PeerBuilder, Reason, Request,
    Responder, Router, RpcError,
};
use plimsoll_testkit::pair::{Cut, Faults, pair};
use plimsoll_testkit::step::poll_times;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

fn standard() -> PeerBuilder {
    with(Limits::default())
}

fn with(limits: Limits) -> PeerBuilder {
    PeerBuilder::new(limits).router(handlers())
}

// Replies.

#[tokio::test(start_paused = true)]
async fn a_request_gets_its_handlers_result_once() {
    let Served { mut wire, peer, .. } = serve(standard());
    wire.request(1, "add", json!([20, 22])).await;
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": 42 }));
    assert!(wire.is_quiet().await);
    assert_eq!((peer.counters().messages, peer.counters().in_flight), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_gets_its_handlers_error_with_its_data() {
    let Served { mut wire, .. } = serve(standard());
    wire.send(r#"{"jsonrpc":"2.0","id":"a","method":"fail"}"#).await;
    let error = json!({ "code": -5, "message": "the ballast is gone", "data": { "left": 0 } });
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": "a", "error": error }));
    assert!(wire.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_answered_and_the_peer_lives() {
    let Served { mut wire, peer, .. } = serve(standard());
    wire.request(1, "panic", json!([])).await;
    assert_eq!(error_of(&wire.message().await), (json!(1), -32603, String::new()));
    wire.request(2, "panic", json!({})).await;
    assert_eq!(wire.message().await["id"], 2);
    assert_eq!(peer.counters().panics, 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_a_request_began_is_answered_and_the_peer_lives() {
    let router = handlers().request_in_order("begin", |_request: Request, _responder: Responder| {
        panic!("on the connection's own task");
        #[allow(unreachable_code, reason = "it names the type of the future")]
        Some(std::future::ready(()))
    });
    let Served { mut wire, peer, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.request(1, "begin", json!([])).await;
    assert_eq!(error_of(&wire.message().await), (json!(1), -32603, String::new()));
    wire.request(2, "add", json!([1, 1])).await;
    assert_eq!(wire.message().await["result"], 2);
    assert_eq!(peer.counters().panics, 1);
}

#[tokio::test(start_paused = true)]
async fn a_notification_handler_that_panics_takes_nothing_with_it() {
    let router = handlers()
        .notification("sink", |_context, (): ()| async { panic!("in turn") })
        .notification_at_once("wreck", |_context| panic!("at once"));
    let Served { mut wire, peer, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.send(r#"{"jsonrpc":"2.0","method":"sink"}"#).await;
    wire.send(r#"{"jsonrpc":"2.0","method":"wreck"}"#).await;
    wire.request(1, "add", json!([1, 1])).await;
    assert_eq!(wire.message().await["result"], 2);
    settle().await;
    assert_eq!(peer.counters().panics, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_method_and_params_that_do_not_fit_are_answered() {
    let Served { mut wire, .. } = serve(standard());
    wire.request(1, "no/such", json!([])).await;
    assert_eq!(error_of(&wire.message().await), (json!(1), -32601, String::new()));
    wire.request(2, "add", json!(["one", 2])).await;
    assert_eq!(error_of(&wire.message().await), (json!(2), -32602, String::new()));
    wire.request(3, "add", json!([1])).await;
    assert_eq!(error_of(&wire.message().await), (json!(3), -32602, String::new()));
    assert!(wire.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn an_id_goes_back_in_its_own_type_and_spelling() {
    let Served { mut wire, .. } = serve(standard());
    for id in ["1", "\"1\"", "\"\"", "0", "-0", "1.0", r#""\u0061""#, "9223372036854775807"] {
        wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"add","params":[1,1]}}"#)).await;
        let reply = wire.line().await.unwrap();
        assert_eq!(reply, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":2}}"#));
    }
}

#[tokio::test(start_paused = true)]
async fn a_responder_that_is_dropped_answers_and_one_that_is_dropped_while_it_waits_does_too() {
    let router = Router::new()
        .request_in_order("drop", |_request, responder| {
            drop(responder);
            None::<std::future::Ready<()>>
        })
        .request_in_order("half", |_request, responder| {
            Some(async move {
                // There is no room in the queue, so this waits, and is given up.
                assert!(poll_times(responder.respond(Ok("x".repeat(10_000))), 1).await.is_none());
            })
        })
        .request("fill", |_context, (): ()| async { Ok("x".repeat(200_000)) });
    let limits = Limits::default().with_outgoing_bytes(Bound::at_most(1_000));
    let Served { mut wire, peer, .. } = serve(PeerBuilder::new(limits).router(router));
    wire.request(1, "drop", json!([])).await;
    assert_eq!(error_of(&wire.message().await), (json!(1), -32603, String::new()));
    wire.send(r#"{"jsonrpc":"2.0","id":2,"method":"fill"}"#).await;
    settle().await;
    wire.request(3, "half", json!([])).await;
    settle().await;
    assert_eq!(wire.message().await["id"], 2, "it is being written");
    assert_eq!(error_of(&wire.message().await), (json!(3), -32603, String::new()));
    assert!(wire.is_quiet().await);
    assert!(is_idle(&peer));
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_no_json_is_answered_as_lost() {
    let router = Router::new().request("map", |_context, (): ()| async {
        Ok(std::collections::HashMap::from([((1, 2), "a tuple is no key")]))
    });
    let Served { mut wire, peer, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"map"}"#).await;
    let reply = wire.message().await;
    assert_eq!(error_of(&reply), (json!(1), -32603, "outcomeLost".into()));
    assert_eq!(reply["error"]["data"]["retryable"], false);
    settle().await;
    assert!(is_idle(&peer));
}

// Refusals.

/// One limit, a value of `params` that passes it, and what the control's handler gives back.
struct Refusing {
    reason: &'static str,
    on: Limits,
    off: Limits,
    params: String,
}

fn every_limit_of_a_message() -> Vec<Refusing> {
    let base = Limits::default().with_message_bytes(Bound::at_most(64 * 1024));
    let off = Limits::default().with_depth(Bound::Unbounded);
    let case = |reason, on, off, params: &str| Refusing { reason, on, off, params: params.into() };
    let strings = base.clone().with_string_bytes(Bound::at_most(100));
    let wide = Limits::default().with_json_values(Bound::Unbounded);
    let keys = base.clone().with_key_bytes(Bound::at_most(100));
    let twice = Limits::default().with_duplicate_keys(DuplicateKeys::Accept);
    vec![
        case("messageBytes", base.clone(), Limits::default(), &format!(r#"["{}"]"#, "a".repeat(70_000))),
        case("jsonValues", base.clone().with_json_values(Bound::at_most(20)), wide, &format!("[{}0]", "0,".repeat(50))),
        case("depth", base.clone().with_depth(Bound::at_most(10)), off, &("[".repeat(20) + &"]".repeat(20))),
        case("duplicateKey", base.clone(), twice, r#"{"a":1,"\u0061":2}"#),
        case("stringBytes", strings, Limits::default(), &format!(r#"["{}"]"#, "a".repeat(101))),
        case("keyBytes", keys, Limits::default(), &format!(r#"{{"{}":1}}"#, "a".repeat(101))),
        case(
            "numberBytes",
            base,
            Limits::default().with_number_bytes(Bound::Unbounded),
            &format!("[0.{}]", "1".repeat(1_100)),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_request_refused_by_a_limit_is_answered_by_its_id_first_or_last_and_delivered_without_the_limit() {
    for Refusing { reason, on, off, params } in every_limit_of_a_message() {
        for message in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"echo","params":{params}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"echo","params":{params},"id":7}}"#),
        ] {
            let Served { mut wire, peer, .. } = serve(with(on.clone()));
            wire.send(&message).await;
            let reply = wire.message().await;
            assert_eq!(error_of(&reply), (json!(7), -32600, reason.into()));
            let data = &reply["error"]["data"];
            assert_eq!(data["retryable"], false, "{reply}");
            if reason != "duplicateKey" {
                let (limit, observed) = (data["limit"].as_u64().unwrap(), data["observed"].as_u64().unwrap());
                assert!(observed > limit, "{reply}");
                assert!(reply["error"]["message"].as_str().unwrap().contains(&limit.to_string()), "{reply}");
            }
            wire.request(8, "add", json!([1, 1])).await;
            assert_eq!(wire.message().await["result"], 2, "the next message arrives");
            assert!(wire.is_quiet().await);
            assert!(peer.counters().refused == 1 && is_idle(&peer));

            let Served { mut wire, .. } = serve(with(off.clone()));
            wire.send(&message).await;
            let reply = wire.message().await;
            assert!(reply["id"] == 7 && reply.get("result").is_some(), "{reason}: the control is delivered: {reply}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_is_too_long_is_answered_by_its_id() {
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{}"}}"#, "m".repeat(2_000));
    let Served { mut wire, .. } = serve(standard());
    wire.send(&message).await;
    assert_eq!(error_of(&wire.message().await), (json!(7), -32600, "methodBytes".into()));
    let Served { mut wire, .. } = serve(with(Limits::default().with_method_bytes(Bound::Unbounded)));
    wire.send(&message).await;
    assert_eq!(error_of(&wire.message().await), (json!(7), -32601, String::new()));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_too_long_is_not_readable_and_is_answered_under_null() {
    let message = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"add","params":[1,1]}}"#, "i".repeat(2_000));
    let Served { mut wire, .. } = serve(standard());
    wire.send(&message).await;
    assert_eq!(error_of(&wire.message().await), (Value::Null, -32600, "idBytes".into()));
    let Served { mut wire, .. } = serve(with(Limits::default().with_id_bytes(Bound::Unbounded)));
    wire.send(&message).await;
    assert_eq!(wire.message().await["result"], 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_but_has_a_readable_id_is_answered_by_it() {
    let Served { mut wire, .. } = serve(standard());
    for (message, code, reason) in [
        (r#"{"id":1,"method":"add","params":[1,1]}"#, -32600, "jsonrpcVersion"),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, "invalidMethod"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"add","result":7}"#, -32600, "methodWithResult"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"add","params":[1,}"#, -32700, "invalidJson"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"add","params":["\ud800"]}"#, -32700, "loneSurrogate"),
    ] {
        wire.send(message).await;
        assert_eq!(error_of(&wire.message().await), (json!(1), code, reason.into()), "{message}");
    }
    for id in ["null", "true", "1.5", "[1]", r#"1,"id":2"#] {
        wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"add","params":[1,1]}}"#)).await;
        let (answered, code, _) = error_of(&wire.message().await);
        assert_eq!((answered, code), (Value::Null, -32600), "{id}");
    }
    assert!(wire.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_that_does_not_end_is_answered_and_then_the_connection_closes() {
    let limits = Limits::default().with_message_bytes(Bound::at_most(1_000)).with_skip_bytes(Bound::at_most(10_000));
    let Served { mut wire, running, .. } = serve(with(limits.clone()));
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"echo","params":["{}"#, "a".repeat(20_000));
    wire.send_bytes(message.as_bytes()).await;
    assert_eq!(error_of(&wire.message().await).2, "messageBytes");
    assert!(wire.next().await.is_none());
    assert_eq!(running.await.unwrap().reason(), Reason::SkipBytes);

    let Served { mut wire, peer, .. } = serve(with(limits.with_skip_bytes(Bound::Unbounded)));
    wire.send_bytes(message.as_bytes()).await;
    wire.send(r#""]}"#).await;
    assert_eq!(error_of(&wire.message().await).2, "messageBytes");
    assert!(peer.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_in_flight_limit_is_refused_as_retryable_and_passes_later() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let router = Router::new().request("wait", {
        let gate = gate.clone();
        move |_context, (): ()| {
            let gate = gate.clone();
            async move {
                gate.notified().await;
                Ok("done")
            }
        }
    });
    let limits = Limits::default().with_in_flight(Bound::at_most(2));
    let Served { mut wire, peer, .. } = serve(PeerBuilder::new(limits).router(router));
    for id in 1..=3 {
        wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"wait"}}"#)).await;
    }
    let reply = wire.message().await;
    assert_eq!(error_of(&reply), (json!(3), -31009, "inFlight".into()));
    assert_eq!(reply["error"]["data"], json!({ "reason": "inFlight", "limit": 2, "observed": 3, "retryable": true }));
    assert_eq!(peer.counters().in_flight, 2);
    gate.notify_one();
    assert_eq!(wire.message().await["result"], "done");
    wire.send(r#"{"jsonrpc":"2.0","id":3,"method":"wait"}"#).await;
    gate.notify_waiters();
    settle().await;
    gate.notify_one();
    let answered = BTreeSet::from([wire.message().await["id"].as_i64(), wire.message().await["id"].as_i64()]);
    assert_eq!(answered, BTreeSet::from([Some(2), Some(3)]));
    assert!(wire.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_twice_in_flight_is_refused_and_the_first_is_answered_once() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let router = Router::new().request("wait", {
        let gate = gate.clone();
        move |_context, (): ()| {
            let gate = gate.clone();
            async move {
                gate.notified().await;
                Ok("done")
            }
        }
    });
    let Served { mut wire, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"wait"}"#).await;
    wire.send(r#"{"jsonrpc":"2.0","id":1.0,"method":"wait"}"#).await;
    assert_eq!(error_of(&wire.message().await), (json!(1.0), -32600, "idInUse".into()));
    gate.notify_one();
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": "done" }));
    assert!(wire.is_quiet().await);
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"wait"}"#).await;
    gate.notify_one();
    assert_eq!(wire.message().await["result"], "done", "an id that was answered is free");
}

// Noise.

const NOISE: &[&str] = &[
    "2026-01-01T00:00:00Z INFO started",
    "123",
    "true story",
    "\"quoted\" text",
    r#"{"level":"info"}"#,
    "[1,2,3]",
    r#"[{"jsonrpc":"2.0","id":1,"method":"add","params":[1,1]}]"#,
    "null",
    "Listening on port 8080",
    "\u{1b}[31mred\u{1b}[0m",
];

#[tokio::test(start_paused = true)]
async fn noise_is_counted_and_never_answered() {
    let Served { mut wire, peer, .. } = serve(standard());
    for line in NOISE {
        wire.send(line).await;
    }
    wire.send(r#"{"jsonrpc":"2.0","method":"echo","params":[1,}"#).await;
    assert!(wire.is_quiet().await);
    assert_eq!((peer.counters().noise, peer.counters().refused), (11, 11));
    wire.request(1, "add", json!([1, 1])).await;
    assert_eq!(wire.message().await["result"], 2);
}

#[tokio::test(start_paused = true)]
async fn noise_in_bare_is_answered_under_the_id_minus_one_at_most_ten_times_in_any_second() {
    let Served { mut wire, peer, .. } = serve(standard().dialect(Dialect::Bare));
    let begun = Instant::now();
    let mut sent = Vec::new();
    // Two bursts across the turn of a second, and then a steady stream.
    for step in 0..400 {
        let pause = if step == 0 { 950 } else { 10 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        for _ in 0..3 {
            wire.send(NOISE[step % NOISE.len()]).await;
        }
        while let Ok(Some(reply)) = timeout(Duration::from_nanos(1), wire.next()).await {
            let (id, code, _) = error_of(&reply);
            assert_eq!((id, code, reply.get("jsonrpc")), (json!(-1), -32600, None));
            sent.push(begun.elapsed());
        }
    }
    for window in sent.windows(11) {
        assert!(window[10] - window[0] >= Duration::from_millis(999), "eleven within a second: {window:?}");
    }
    assert!((40..=60).contains(&sent.len()), "ten a second for five seconds: {}", sent.len());
    assert_eq!(peer.counters().refused, 1_200);
    assert_eq!(peer.counters().noise + sent.len() as u64, 1_200, "what is not answered is counted");
}

#[tokio::test(start_paused = true)]
async fn a_refused_notification_is_counted_or_closes_when_it_must_not_be_lost() {
    let limits = Limits::default().with_json_values(Bound::at_most(10));
    let notification = r#"{"jsonrpc":"2.0","method":"note","params":[1,2,3,4,5,6,7,8,9,10]}"#;

    let Served { mut wire, peer, .. } = serve(with(limits.clone()));
    wire.send(notification).await;
    assert!(wire.is_quiet().await && peer.is_open());
    assert_eq!(peer.counters().refused, 1);

    let Served { mut wire, running, .. } = serve(with(limits).notifications_are_vital());
    wire.send(notification).await;
    assert!(
        matches!(running.await.unwrap(), CloseReason::NotificationLost(refusal) if refusal.reason == Reason::JsonValues)
    );
    assert!(wire.next().await.is_none());

    let Served { mut wire, peer, .. } = serve(standard().notifications_are_vital());
    wire.send(notification).await;
    settle().await;
    assert!(peer.is_open() && peer.counters().notifications_unknown == 1, "the control is delivered");
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_cannot_be_decoded_is_counted_or_where_it_must_not_be_lost_ends_the_connection() {
    let router = || Router::new().notification("n", |_context, _number: u64| async {});
    let bad = r#"{"jsonrpc":"2.0","method":"n","params":"no number"}"#;

    let Served { mut wire, peer, .. } = serve(standard().router(router()));
    for _ in 0..3 {
        wire.send(bad).await;
    }
    settle().await;
    assert!(wire.is_quiet().await && peer.is_open());
    assert_eq!(peer.counters().notifications_dropped, 3);

    let Served { mut wire, running, .. } = serve(standard().router(router()).notifications_are_vital());
    wire.send(bad).await;
    assert!(
        matches!(running.await.unwrap(), CloseReason::NotificationLost(refusal) if refusal.reason == Reason::InvalidParams)
    );

    let Served { mut wire, peer, .. } = serve(standard().router(router()).notifications_are_vital());
    wire.send(r#"{"jsonrpc":"2.0","method":"n","params":7}"#).await;
    settle().await;
    assert!(peer.is_open(), "the control fits");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_needs_more_room_than_its_connection_may_ever_hold_is_refused_for_good() {
    let router = || Router::new().request("m", |_context, numbers: Vec<u8>| async move { Ok(numbers.len()) });
    let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":[{}0]}}"#, "0,".repeat(39_999));
    for (cap, right) in [(600_000, "cap"), (8_000_000, "delivered")] {
        let limits = Limits::default().with_cap(Bound::at_most(cap));
        let Served { mut wire, .. } = serve(with(limits).router(router()));
        wire.send(&request).await;
        let reply = wire.next().await.unwrap();
        assert_eq!(reply["id"], 7);
        if right == "cap" {
            let data = &reply["error"]["data"];
            assert_eq!((&data["reason"], &data["retryable"]), (&json!("cap"), &json!(false)), "{reply}");
            assert_eq!(data["limit"], cap);
        } else {
            assert_eq!(reply["result"], 40_000, "{reply}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_never_fit_fails_for_good_and_one_that_fits_is_sent() {
    let limits = Limits::default().with_cap(Bound::at_most(1_000_000));
    let Served { peer, mut wire, .. } = serve(with(limits));
    let refused = peer.call::<Value>("m", &"x".repeat(2_000_000)).await.unwrap_err();
    let CallError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!((refusal.reason, refusal.limit), (Reason::Cap, Some(1_000_000)));
    assert!(!refusal.reason.retryable());
    let _calling = call(&peer);
    assert!(wire.next().await.is_some(), "the control");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_asked_for_is_counted_and_never_answered() {
    let Served { mut wire, peer, .. } = serve(standard());
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":1}"#,
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
    ] {
        wire.send(message).await;
    }
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}"#).await;
    assert!(wire.is_quiet().await);
    assert_eq!((peer.counters().responses_unasked, peer.counters().refused), (4, 1));
}

// Calls.

fn call(peer: &Peer) -> JoinHandle<Result<Value, CallError>> {
    let peer = peer.clone();
    tokio::spawn(async move { peer.call("ask", &json!([1])).await })
}

#[tokio::test(start_paused = true)]
async fn a_call_gets_the_peers_result_or_error() {
    let Served { mut wire, peer, .. } = serve(standard());
    let calling = call(&peer);
    let sent = wire.message().await;
    assert_eq!(sent, json!({ "jsonrpc": "2.0", "id": 1, "method": "ask", "params": [1] }));
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":{"a":null}}"#).await;
    assert_eq!(calling.await.unwrap(), Ok(json!({ "a": null })));

    let calling = call(&peer);
    wire.message().await;
    wire.send(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-7,"message":"no","data":[1]}}"#).await;
    let error = RpcError::new(-7, "no").with_data(json!([1]));
    assert_eq!(calling.await.unwrap(), Err(CallError::Rpc(error)));

    let adding = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call::<i64>("ask", &()).await }
    });
    assert_eq!(wire.message().await.get("params"), None, "params that are null are left out");
    wire.send(r#"{"jsonrpc":"2.0","id":3,"result":"text"}"#).await;
    assert!(matches!(adding.await.unwrap(), Err(CallError::Result(_))));
    assert!(is_idle(&peer));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_the_input_every_call_fails_at_once() {
    let Served { mut wire, peer, running, .. } = serve(standard());
    let calls: Vec<_> = (0..20).map(|_| call(&peer)).collect();
    settle().await;
    wire.end();
    for calling in calls {
        assert_eq!(at_once(calling).await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    }
    assert_eq!(at_once(call(&peer)).await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
    assert!(!peer.is_open() && peer.counters().pending == 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_still_waits_for_room_fails_at_once_too() {
    let limits = Limits::default().with_outgoing_bytes(Bound::at_most(1_000));
    let Served { mut wire, peer, .. } = serve_with(with(limits), Faults::none(), Faults::none().capacity(16));
    // This one keeps the connection draining.
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"hang"}"#).await;
    let calls: Vec<_> = (0..20).map(|_| call(&peer)).collect();
    settle().await;
    wire.end();
    for calling in calls {
        assert_eq!(at_once(calling).await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_is_refused_fails_by_the_limits_name_and_nothing_is_sent() {
    let limits = Limits::default().with_json_values(Bound::at_most(100));
    for (answer, reason) in [
        (format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{}0]}}"#, "0,".repeat(200)), Reason::JsonValues),
        (format!(r#"{{"jsonrpc":"2.0","result":[{}0],"id":1}}"#, "0,".repeat(200)), Reason::JsonValues),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}"#.into(), Reason::ResultWithError),
        (r#"{"jsonrpc":"2.0","id":1}"#.into(), Reason::NotJsonRpc),
        (r#"{"jsonrpc":"2.0","id":1,"result":[1,}"#.into(), Reason::InvalidJson),
    ] {
        let Served { mut wire, peer, .. } = serve(with(limits.clone()));
        let calling = call(&peer);
        wire.message().await;
        wire.send(&answer).await;
        let failed = at_once(calling).await.unwrap().unwrap_err();
        assert!(matches!(&failed, CallError::Refused(refusal) if refusal.reason == reason), "{failed:?} {answer}");
        assert!(wire.is_quiet().await && peer.is_open());
    }
    let Served { mut wire, peer, .. } = serve(standard());
    let calling = call(&peer);
    wire.message().await;
    wire.send(format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{}0]}}"#, "0,".repeat(200))).await;
    assert_eq!(calling.await.unwrap().unwrap().as_array().unwrap().len(), 201, "the control is delivered");
}

#[tokio::test(start_paused = true)]
async fn a_result_of_17_mib_fails_its_call_at_once_and_the_session_lives() {
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "a".repeat(17 * MIB as usize));
    let Served { mut wire, peer, .. } = serve(standard());
    let calling = call(&peer);
    wire.message().await;
    wire.send(&answer).await;
    let CallError::Refused(refusal) = at_once(calling).await.unwrap().unwrap_err() else { panic!("not refused") };
    assert_eq!((refusal.reason, refusal.limit), (Reason::MessageBytes, Some(16 * MIB)));
    assert_eq!(refusal.observed, Some(answer.len() as u64));
    let calling = call(&peer);
    wire.message().await;
    wire.send(r#"{"jsonrpc":"2.0","id":2,"result":1}"#).await;
    assert_eq!(calling.await.unwrap(), Ok(json!(1)));

    let Served { mut wire, peer, .. } = serve(with(Limits::default().with_message_bytes(Bound::at_most(18 * MIB))));
    let calling = call(&peer);
    wire.message().await;
    wire.send(&answer).await;
    assert_eq!(calling.await.unwrap().unwrap().as_str().unwrap().len(), 17 * MIB as usize, "the control is delivered");
}

#[tokio::test(start_paused = true)]
async fn a_call_fails_at_its_deadline_and_a_late_answer_is_counted() {
    let Served { mut wire, peer, .. } = serve(with(Limits::default().with_call_deadline(Deadline::seconds(5))));
    let begun = Instant::now();
    let failed = call(&peer).await.unwrap().unwrap_err();
    assert!(matches!(&failed, CallError::Refused(refusal) if refusal.reason == Reason::CallDeadline), "{failed:?}");
    assert_eq!(begun.elapsed().as_secs(), 5);
    wire.message().await;
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":1}"#).await;
    settle().await;
    assert_eq!((peer.counters().responses_unasked, peer.counters().pending), (1, 0));

    let patient = tokio::spawn(async move { peer.call_within::<i64>(Deadline::Never, "ask", &()).await });
    wire.message().await;
    tokio::time::sleep(HOUR).await;
    wire.send(r#"{"jsonrpc":"2.0","id":2,"result":1}"#).await;
    assert_eq!(patient.await.unwrap(), Ok(1), "the control is answered");
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_pending_limit_fails_at_once() {
    let Served { peer, wire: _wire, .. } = serve(with(Limits::default().with_pending(Bound::at_most(3))));
    let waiting: Vec<_> = (0..3).map(|_| call(&peer)).collect();
    settle().await;
    let failed = at_once(call(&peer)).await.unwrap().unwrap_err();
    let CallError::Refused(refusal) = failed else { panic!("{failed:?}") };
    assert_eq!((refusal.reason, refusal.limit, refusal.observed), (Reason::Pending, Some(3), Some(4)));
    waiting[0].abort();
    settle().await;
    assert_eq!(peer.counters().pending, 2);
    let again = call(&peer);
    settle().await;
    assert!(!again.is_finished(), "a call that was given up leaves its place");
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_when_writing_fails() {
    let broken = Faults::none().cut_after(10, Cut::Error(std::io::ErrorKind::TimedOut));
    let Served { peer, running, wire: _wire, .. } = serve_with(standard(), Faults::none(), broken);
    let failed = at_once(call(&peer)).await.unwrap().unwrap_err();
    let reason = CloseReason::Io { operation: "writing", kind: std::io::ErrorKind::TimedOut };
    assert_eq!(failed, CallError::Closed(reason.clone()));
    assert_eq!(running.await.unwrap(), reason);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_is_a_clean_close() {
    let Served { mut wire, peer, running, .. } = serve(standard());
    wire.hang_up();
    let failed = at_once(call(&peer)).await.unwrap().unwrap_err();
    assert_eq!(failed, CallError::Closed(CloseReason::EndOfInput));
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_sent_before_it_stopped_reading_is_still_received() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let router = Router::new().notification("note", {
        let seen = seen.clone();
        move |_context, (number,): (u32,)| {
            seen.lock().unwrap().push(number);
            async {}
        }
    });
    let latency = Faults::none().latency(Duration::from_millis(500));
    let builder = PeerBuilder::new(Limits::default()).router(router);
    let Served { mut wire, peer, running } = serve_with(builder, latency, Faults::none());
    let answered = call(&peer);
    wire.message().await;
    for number in 0..3 {
        wire.notify("note", json!([number])).await;
    }
    wire.send(r#"{"jsonrpc":"2.0","id":1,"result":"in time"}"#).await;
    // The answer is on its way when writing fails.
    wire.reader = None;
    let unsent = call(&peer);
    assert_eq!(at_once(unsent).await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    assert_eq!(at_once(call(&peer)).await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    assert_eq!(answered.await.unwrap(), Ok(json!("in time")));
    wire.end();
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stopped_reading_and_stays_silent_fails_calls_within_drain() {
    let Served { mut wire, peer, running, .. } = serve(standard());
    let waiting = call(&peer);
    wire.message().await;
    wire.reader = None;
    peer.notify("note", &()).await.unwrap();
    let begun = Instant::now();
    assert_eq!(waiting.await.unwrap(), Err(CallError::Closed(CloseReason::EndOfInput)));
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_when_this_side_closes() {
    let Served { peer, running, wire: _wire, .. } = serve(standard());
    let calling = call(&peer);
    settle().await;
    peer.close();
    assert_eq!(at_once(calling).await.unwrap(), Err(CallError::Closed(CloseReason::Closed)));
    assert_eq!(running.await.unwrap(), CloseReason::Closed);
    at_once(peer.closed()).await;
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_when_the_connection_is_dropped_run_or_not() {
    let Served { peer, running, wire: _wire, .. } = serve(standard());
    let calling = call(&peer);
    settle().await;
    running.abort();
    assert_eq!(at_once(calling).await.unwrap(), Err(CallError::Closed(CloseReason::Closed)));
    at_once(peer.closed()).await;

    let (_one, other) = pair(Faults::none(), Faults::none());
    let (reader, writer) = other.into_split();
    let (peer, connection) = standard().connect(reader, writer);
    let calling = call(&peer);
    settle().await;
    drop(connection);
    assert_eq!(at_once(calling).await.unwrap(), Err(CallError::Closed(CloseReason::Closed)));
    assert_eq!(at_once(peer.notify("note", &())).await, Err(CallError::Closed(CloseReason::Closed)));
    at_once(peer.closed()).await;
    assert_eq!(peer.counters().held_bytes, 0, "what was queued holds nothing");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_ended_holds_nothing_though_its_handles_live() {
    let limits = Limits::default().with_stall_deadline(Deadline::seconds(1));
    let Served { mut wire, peer, running, .. } = serve_with(with(limits), Faults::none(), Faults::none().capacity(16));
    for id in 0..50 {
        wire.request(id, "echo", json!(["x".repeat(1_000)])).await;
        wire.request(1_000 + id, "no/such", json!([])).await;
    }
    settle().await;
    assert!(peer.counters().held_bytes > 50_000 && peer.counters().in_flight == 100);
    assert_eq!(running.await.unwrap().reason(), Reason::StallDeadline);
    settle().await;
    assert_eq!((peer.counters().held_bytes, peer.counters().in_flight), (0, 0));
}

// The end of the input.

#[tokio::test(start_paused = true)]
async fn what_was_received_before_the_end_is_answered_within_drain() {
    let router = handlers().request("slow", |_context, (seconds,): (u64,)| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(seconds)
    });
    let Served { mut wire, running, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.request(1, "slow", json!([1])).await;
    wire.request(2, "slow", json!([3])).await;
    wire.send(r#"{"jsonrpc":"2.0","id":3,"method":"hang"}"#).await;
    // The last has no newline.
    wire.send_bytes(br#"{"jsonrpc":"2.0","id":4,"method":"add","params":[1,1]}"#).await;
    wire.end();
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": 4, "result": 2 }));
    assert_eq!(wire.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": 1 }));
    let rest = wire.rest().await;
    let reasons: BTreeSet<_> = rest.iter().map(|reply| format!("{:?}", error_of(reply))).collect();
    let expected = [2, 3].map(|id| format!("{:?}", (json!(id), -32603, "drain")));
    assert_eq!(reasons, BTreeSet::from(expected));
    assert_eq!(rest[0]["error"]["data"]["limit"], 2_000);
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_answered_from_elsewhere_is_waited_for_and_answered_once() {
    type Kept = Arc<Mutex<Vec<Responder>>>;
    let kept = Kept::default();
    let router = Router::new().request_in_order("keep", {
        let kept = kept.clone();
        move |_request, responder| {
            kept.lock().unwrap().push(responder);
            None::<std::future::Ready<()>>
        }
    });
    let Served { mut wire, running, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    wire.request(1, "keep", json!([])).await;
    wire.request(2, "keep", json!([])).await;
    wire.end();
    settle().await;
    assert!(!running.is_finished());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = kept.lock().unwrap().remove(0);
    first.respond(Ok("late")).await;
    assert_eq!(wire.message().await["result"], "late");
    assert_eq!(error_of(&wire.message().await), (json!(2), -32603, "drain".into()));
    assert!(wire.next().await.is_none());
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
    let second = kept.lock().unwrap().remove(0);
    at_once(second.respond(Ok("too late"))).await;
}

#[tokio::test(start_paused = true)]
async fn notifications_received_before_the_end_are_handled() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let router = Router::new().notification("note", {
        let seen = seen.clone();
        move |_context, (number,): (u32,)| {
            let seen = seen.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                seen.lock().unwrap().push(number);
            }
        }
    });
    let Served { mut wire, running, .. } = serve(PeerBuilder::new(Limits::default()).router(router));
    for number in 0..10 {
        wire.notify("note", json!([number])).await;
    }
    wire.end();
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
    assert_eq!(*seen.lock().unwrap(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_input_that_ends_within_a_request_is_answered_by_its_id() {
    let Served { mut wire, running, .. } = serve(standard());
    wire.send_bytes(br#"{"jsonrpc":"2.0","id":7,"method":"add","params":[1,"#).await;
    wire.end();
    assert_eq!(error_of(&wire.message().await), (json!(7), -32700, "truncated".into()));
    assert!(wire.next().await.is_none());
    assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_answered_when_this_side_closes() {
    let Served { mut wire, peer, running, .. } = serve(standard());
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"hang"}"#).await;
    settle().await;
    peer.close();
    assert_eq!(error_of(&wire.message().await), (json!(1), -32603, "closed".into()));
    assert!(wire.next().await.is_none());
    assert_eq!(running.await.unwrap(), CloseReason::Closed);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_a_drain_that_has_no_deadline() {
    let limits = Limits::default().with_drain(Deadline::Never);
    let Served { mut wire, peer, running, .. } = serve(with(limits));
    wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"hang"}"#).await;
    wire.end();
    tokio::time::sleep(HOUR).await;
    assert!(!running.is_finished());
    peer.close();
    assert_eq!(error_of(&wire.message().await).1, -32603);
    assert_eq!(at_once(running).await.unwrap(), CloseReason::EndOfInput);
}

#[test]
fn a_handler_that_never_yields_does_not_hold_up_the_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (release, blocked) = std::sync::mpsc::sync_channel::<()>(1);
    let blocked = Arc::new(Mutex::new(blocked));
    let router = Router::new().request("block", move |_context, (): ()| {
        let blocked = blocked.clone();
        async move {
            let _ = blocked.lock().unwrap().recv();
            Ok(())
        }
    });
    let limits = Limits::default().with_drain(Deadline::After(Duration::from_millis(10)));
    let replies = runtime.block_on(async move {
        let Served { mut wire, running, .. } = serve(PeerBuilder::new(limits).router(router));
        wire.send(r#"{"jsonrpc":"2.0","id":1,"method":"block"}"#).await;
        wire.end();
        let replies = wire.rest().await;
        assert_eq!(running.await.unwrap(), CloseReason::EndOfInput);
        replies
    });
    assert_eq!(replies.iter().map(error_of).collect::<Vec<_>>(), [(json!(1), -32603, "drain".into())]);
    release.send(()).unwrap();
}
