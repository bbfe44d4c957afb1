//! What is dropped half way loses nothing and leaks nothing: receiving at every byte, calling and notifying at every
//! await point.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use common::{Served, is_idle, serve_with, settle};
use plimsoll::{Bound, Budget, Dialect, Limits, Line, LineReceiver, PeerBuilder, Received};
use plimsoll_testkit::pair::Faults;
use plimsoll_testkit::rng::Rng;
use plimsoll_testkit::step::{drop_after_polls, drop_at_every_await, poll_times};
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};

/// A reader that is pending once before each chunk, so that every chunk's edge is an await point. It fails once, too.
struct Hesitant<'a> {
    bytes: &'a [u8],
    chunk: usize,
    is_ready: bool,
    fails_at: usize,
}

impl AsyncRead for Hesitant<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_ready, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_ready = false;
        if self.fails_at > 0 && self.bytes.len() <= self.fails_at {
            self.fails_at = 0;
            return Poll::Ready(Err(io::ErrorKind::WouldBlock.into()));
        }
        let taken = self.chunk.min(self.bytes.len()).min(buffer.remaining());
        buffer.put_slice(&self.bytes[..taken]);
        self.bytes = &self.bytes[taken..];
        Poll::Ready(Ok(()))
    }
}

/// Good messages, refused ones, noise, blank lines, both line ends, a mark at the start, and no newline at the end.
fn input() -> Vec<u8> {
    let mut input = b"\xef\xbb\xbf".to_vec();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"text":"\u2028 é 😀"}}"#,
        "\r",
        r#"{"jsonrpc":"2.0","id":2,"method":"b","params":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}"#,
        r#"{"jsonrpc":"2.0","method":"b","params":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],"id":"3"}"#,
        "2026-01-01T00:00:00Z INFO started\r",
        "",
        r#"{"jsonrpc":"2.0","method":"note","params":{"a":1,"\u0061":2}}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":[1,}"#,
        r#"{"jsonrpc":"2.0","id":6,"error":{"code":-1,"message":"m"}}"#,
    ] {
        input.extend_from_slice(line.as_bytes());
        input.push(b'\n');
    }
    input.extend_from_slice("{\"jsonrpc\":\"2.0\",\"method\":\"very\\u0020long\",\"params\":[\"".as_bytes());
    input.resize(input.len() + 400, b'x');
    input.extend_from_slice(b"\"]}\n");
    input.extend_from_slice(br#"{"jsonrpc":"2.0","id":7,"method":"last"}"#);
    input
}

fn describe(line: &Line) -> String {
    match line {
        Line::Received(Received::Message(message)) => {
            let body: Vec<u8> = message.body().map(|body| body.runs().flatten().copied().collect()).unwrap_or_default();
            let body = String::from_utf8(body).unwrap();
            format!("{:?} {:?} {:?} {body} {:?}", message.kind(), message.id(), message.method(), message.counts())
        }
        Line::Received(Received::Refused(refused)) => format!("{refused:?}"),
        Line::Overrun { refused, reason } => format!("{refused:?} {reason:?}"),
    }
}

fn limits() -> Limits {
    Limits::default().with_json_values(Bound::at_most(20)).with_message_bytes(Bound::at_most(300))
}

async fn received(chunk: usize, mut polls: impl FnMut(usize) -> usize) -> (Vec<String>, usize) {
    let input = input();
    let budget = Budget::new(Bound::Unbounded);
    let reader = Hesitant { bytes: &input, chunk, is_ready: false, fails_at: input.len() / 2 };
    let mut receiver = LineReceiver::new(reader, &limits(), Dialect::Standard, &budget);
    let (mut lines, mut dropped_in_all) = (Vec::new(), 0);
    loop {
        let (line, dropped) = drop_after_polls(&mut polls, async || receiver.receive().await).await;
        dropped_in_all += dropped;
        match line {
            Ok(Some(line)) => lines.push(describe(&line)),
            Ok(None) => break,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(!receiver.is_partial() && receiver.receive().await.unwrap().is_none(), "the end stays the end");
    drop(receiver);
    assert_eq!(budget.held(), 0);
    (lines, dropped_in_all)
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_dropped_at_every_byte_gives_every_message_once_with_the_same_verdict() {
    let (whole, _) = received(usize::MAX, |_| usize::MAX).await;
    assert_eq!(whole.len(), 10);
    for reason in ["JsonValues", "NotAnObject", "DuplicateKey", "InvalidJson", "MessageBytes"] {
        assert!(whole.iter().any(|line| line.contains(reason)), "{reason} is among them");
    }
    let length = input().len();
    for chunk in 1..=length {
        // Each attempt is dropped at its first await point.
        let (lines, dropped) = received(chunk, |_| 1).await;
        assert_eq!(lines, whole, "chunks of {chunk}");
        assert!(dropped >= length.div_ceil(chunk), "{dropped} drops");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_is_dropped_at_random_await_points_loses_nothing() {
    let (whole, _) = received(usize::MAX, |_| usize::MAX).await;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let chunk = rng.size(100);
        let (lines, _) = received(chunk, |_| rng.size(8)).await;
        assert_eq!(lines, whole, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_receivers_in_a_select_do_not_lose_each_others_messages() {
    // As rmcp does: the receive is one branch of a select and dropped at every turn.
    let input = input();
    let budget = Budget::new(Bound::Unbounded);
    let reader = Hesitant { bytes: &input, chunk: 7, is_ready: false, fails_at: 0 };
    let mut receiver = LineReceiver::new(reader, &limits(), Dialect::Standard, &budget);
    let mut count = 0;
    loop {
        tokio::select! {
            line = receiver.receive() => match line.unwrap() {
                Some(_) => count += 1,
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(count, 10);
}

/// Polls at most so many times, and waits a second at most to be woken; gives the output or drops the future.
async fn given_up<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    tokio::time::timeout(std::time::Duration::from_secs(1), poll_times(future, polls)).await.ok().flatten()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_any_step_leaks_nothing() {
    let limits = Limits::default().with_outgoing_bytes(Bound::at_most(2_000));
    let back = Faults::none().capacity(64);
    let Served { peer, mut wire, .. } = serve_with(PeerBuilder::new(limits), Faults::none(), back);
    // The first one fills the queue, the second waits for room, the third for its turn.
    let text = "x".repeat(2_000);
    let mut sent = 0;
    for polls in 0..12 {
        let behind: Vec<_> = (0..3)
            .map(|_| {
                let (peer, text) = (peer.clone(), text.clone());
                tokio::spawn(async move { given_up(peer.call::<u8>("ask", &[&text]), polls).await.is_none() })
            })
            .collect();
        settle().await;
        let dropped = given_up(peer.call::<u8>("ask", &[&text]), polls).await.is_none();
        assert!(dropped, "nobody answers");
        for task in behind {
            assert!(task.await.unwrap());
        }
        assert_eq!(peer.counters().pending, 0, "after {polls} polls");
        // What was queued is written; what was not is not.
        while let Ok(Some(message)) = tokio::time::timeout(std::time::Duration::from_secs(1), wire.next()).await {
            assert_eq!(message["method"], "ask");
            sent += 1;
            wire.send(json!({ "jsonrpc": "2.0", "id": message["id"], "result": 1 }).to_string()).await;
        }
        assert!(is_idle(&peer), "after {polls} polls: {:?}", peer.counters());
    }
    settle().await;
    assert!(sent >= 11);
    assert_eq!((peer.counters().calls, peer.counters().responses_unasked), (sent, sent));
    let calling = tokio::spawn(async move { peer.call::<u8>("ask", &()).await });
    let id = wire.message().await["id"].clone();
    wire.send(json!({ "jsonrpc": "2.0", "id": id, "result": 7 }).to_string()).await;
    assert_eq!(calling.await.unwrap(), Ok(7));
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_is_dropped_while_it_waits_is_not_sent_and_the_others_are() {
    let limits = Limits::default().with_outgoing_bytes(Bound::at_most(2_000));
    let back = Faults::none().capacity(64);
    let Served { peer, mut wire, .. } = serve_with(PeerBuilder::new(limits), Faults::none(), back);
    let mut queued = Vec::new();
    for number in 0..200 {
        if given_up(peer.notify("note", &(number, "x".repeat(500))), number % 4).await.is_some() {
            queued.push(number);
        }
        if number % 10 == 0 {
            settle().await;
        }
        if number % 20 == 19 {
            // Room again, before the peer counts as stalled.
            for _ in 0..queued.len().min(3) {
                let message = wire.message().await;
                assert_eq!(message["params"][0].as_u64(), Some(queued.remove(0) as u64));
            }
        }
    }
    for number in &queued {
        assert_eq!(wire.message().await["params"][0].as_u64(), Some(*number as u64));
    }
    assert!(wire.is_quiet().await);
    assert!(is_idle(&peer), "{:?}", peer.counters());
}

#[tokio::test(start_paused = true)]
async fn a_receive_over_a_stream_with_latency_loses_nothing() {
    let latency = Faults::none().latency(std::time::Duration::from_millis(20)).capacity(50);
    let (mut one, other) = plimsoll_testkit::pair::pair(latency, Faults::none());
    let sending = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut one, &input()).await.unwrap();
    });
    let budget = Budget::new(Bound::Unbounded);
    let mut receiver = LineReceiver::new(other, &limits(), Dialect::Standard, &budget);
    let mut lines = Vec::new();
    while let (Ok(Some(line)), _) = drop_at_every_await(async || receiver.receive().await).await {
        lines.push(describe(&line));
    }
    sending.await.unwrap();
    assert_eq!(lines, received(usize::MAX, |_| usize::MAX).await.0);
}
