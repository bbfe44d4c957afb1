//! One peer whose other end is written and read by hand, and two peers joined. Time is virtual.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails must fail its test")]

use std::time::Duration;

use plimsoll::{CloseReason, Peer, PeerBuilder, Router, RpcError};
use plimsoll_testkit::pair::{End, Faults, ReadEnd, Watch, WriteEnd, pair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A peer that is run, and the other end of its stream.
pub(crate) struct Served {
    pub(crate) peer: Peer,
    pub(crate) running: JoinHandle<CloseReason>,
    pub(crate) wire: Wire,
}

/// Runs a peer over a stream without faults.
pub(crate) fn serve(builder: PeerBuilder) -> Served {
    serve_with(builder, Faults::none(), Faults::none())
}

/// The same with faults on the way to the peer, and back.
pub(crate) fn serve_with(builder: PeerBuilder, there: Faults, back: Faults) -> Served {
    let (wire, end) = pair(there, back);
    let (peer, running) = run(builder, end);
    Served { peer, running, wire: Wire::new(wire) }
}

/// Runs a peer on an end.
pub(crate) fn run(builder: PeerBuilder, end: End) -> (Peer, JoinHandle<CloseReason>) {
    let (reader, writer) = end.into_split();
    let (peer, connection) = builder.connect(reader, writer);
    (peer, tokio::spawn(connection.run()))
}

/// Two peers joined.
pub(crate) fn join(
    here: PeerBuilder,
    there: PeerBuilder,
    way: Faults,
    back: Faults,
) -> [(Peer, JoinHandle<CloseReason>); 2] {
    let (one, other) = pair(way, back);
    [run(here, one), run(there, other)]
}

/// The hand-written end.
pub(crate) struct Wire {
    pub(crate) reader: Option<ReadEnd>,
    pub(crate) writer: Option<WriteEnd>,
    pub(crate) received: Watch,
    pub(crate) sent: Watch,
    buffer: Vec<u8>,
    // No newline before this place of the buffer.
    searched: usize,
}

impl Wire {
    fn new(end: End) -> Self {
        let (received, sent) = (end.incoming(), end.outgoing());
        let (reader, writer) = end.into_split();
        Self { reader: Some(reader), writer: Some(writer), received, sent, buffer: Vec::new(), searched: 0 }
    }

    /// Sends these bytes.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.writer.as_mut().expect("not ended").write_all(bytes).await.expect("the peer reads");
    }

    /// Sends a line.
    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        let mut line = text.as_ref().to_vec();
        line.push(b'\n');
        self.send_bytes(&line).await;
    }

    /// Sends a standard request.
    pub(crate) async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id: Value = id.into();
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
    }

    /// Sends a standard notification.
    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    /// The next line, or `None` at the end of the stream.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            self.searched += found.unwrap_or(self.buffer.len() - self.searched);
            if found.is_some() {
                let line = self.buffer.drain(..=std::mem::take(&mut self.searched)).collect();
                return Some(String::from_utf8(line).expect("UTF-8").trim_end().to_owned());
            }
            let mut piece = vec![0; 64 * 1024];
            match self.reader.as_mut().expect("not closed").read(&mut piece).await.expect("no fault in reading") {
                0 if self.buffer.is_empty() => return None,
                0 => panic!("the stream ended within a line: {:?}", String::from_utf8_lossy(&self.buffer)),
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// The next message, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = self.line().await?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// The next message; there must be one.
    pub(crate) async fn message(&mut self) -> Value {
        timeout(HOUR, self.next()).await.expect("a message within an hour").expect("a message before the end")
    }

    /// Everything until the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }

    /// Whether nothing comes for a minute.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        timeout(Duration::from_secs(60), self.next()).await.is_err()
    }

    /// Ends what is sent: the peer sees the end of its input.
    pub(crate) fn end(&mut self) {
        self.writer = None;
    }

    /// Goes away, both ways.
    pub(crate) fn hang_up(&mut self) {
        self.writer = None;
        self.reader = None;
    }
}

/// Handlers that behave in every way: `echo`, `fail`, `panic`, `hang`, `add`.
pub(crate) fn handlers() -> Router {
    Router::new()
        .request("echo", |_context, value: Value| async move { Ok(value) })
        .request("add", |_context, (a, b): (i64, i64)| async move { Ok(a + b) })
        .request("fail", |_context, (): ()| async move {
            Err::<(), _>(RpcError::new(-5, "the ballast is gone").with_data(json!({ "left": 0 })))
        })
        .request("panic", |_context, reason: Value| async move {
            if reason.is_array() {
                // As a panic, but without its message on standard error.
                std::panic::resume_unwind(Box::new("this handler panics"));
            }
            Ok(())
        })
        .request("hang", |_context, (): ()| async move {
            std::future::pending::<()>().await;
            Ok(())
        })
}

/// What an error reply says: id, code, reason.
pub(crate) fn error_of(message: &Value) -> (Value, i64, String) {
    let error = &message["error"];
    let code = error["code"].as_i64().unwrap_or_else(|| panic!("no error: {message}"));
    (message["id"].clone(), code, error["data"]["reason"].as_str().unwrap_or_default().to_owned())
}

/// Runs `work` and asserts that no time passed.
pub(crate) async fn at_once<T>(work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let result = timeout(HOUR, work).await.expect("it waits for ever");
    assert_eq!(begun.elapsed(), Duration::ZERO, "it took time");
    result
}

/// Lets every task run until all wait.
pub(crate) async fn settle() {
    // Virtual time moves only when nobody can run.
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

/// Whether a peer holds no more than an idle connection may, and nothing is in flight either way.
pub(crate) fn is_idle(peer: &Peer) -> bool {
    let counters = peer.counters();
    (counters.in_flight, counters.pending) == (0, 0) && counters.held_bytes <= 16 * 1024
}
