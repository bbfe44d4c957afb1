//! A server, and a client whose lines are written and read by hand. Every wait is bounded and says what was awaited.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails must fail its test")]

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plimsoll::{Bound, CloseReason, Deadline};
use plimsoll_exec::{ExecServer, Limits};
use plimsoll_testkit::pair::{Faults, ReadEnd, Watch, WriteEnd, pair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes, on a machine that is busy with other things.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// Waits, but not for ever.
pub(crate) async fn within<T>(what: impl Display, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONGEST, waiting).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Looks again and again until `is_so`.
pub(crate) async fn until(what: impl Display, mut is_so: impl FnMut() -> bool) {
    within(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The limits of the protocol, with a grace that tests can wait for.
pub(crate) fn limits() -> Limits {
    Limits::exec().with_grace(millis(300))
}

pub(crate) const fn millis(millis: u64) -> Deadline {
    Deadline::After(Duration::from_millis(millis))
}

pub(crate) fn at_most(n: u64) -> Bound {
    Bound::at_most(n)
}

/// A server that is run, and the client's end of its connection.
pub(crate) struct Client {
    reader: ReadEnd,
    writer: Option<WriteEnd>,
    buffer: Vec<u8>,
    // Messages that were read while another was looked for.
    kept: VecDeque<Value>,
    next_id: i64,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<CloseReason>,
    pub(crate) received: Watch,
    pub(crate) sent: Watch,
}

impl Client {
    /// A connection on which nothing was said.
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with(limits, Faults::none(), Faults::none())
    }

    /// The same with faults on the way to the server, and back.
    pub(crate) fn with(limits: Limits, there: Faults, back: Faults) -> Self {
        let (here, end) = pair(there, back);
        let (received, sent) = (here.incoming(), here.outgoing());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let (reader, writer) = end.into_split();
            let stopped = async move {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            ExecServer::new(limits).serve(reader, writer, stopped).await
        });
        let (reader, writer) = here.into_split();
        Self {
            reader,
            writer: Some(writer),
            buffer: Vec::new(),
            kept: VecDeque::new(),
            next_id: 1000,
            stop: Some(stop),
            serving,
            received,
            sent,
        }
    }

    /// A connection with an open session.
    pub(crate) async fn opened(limits: Limits) -> Self {
        let mut client = Self::new(limits);
        client.open().await;
        client
    }

    pub(crate) async fn open(&mut self) {
        let reply = self.call("initialize", json!({"clientName": "test"})).await;
        assert!(reply["result"]["sessionId"].is_string(), "{reply}");
        self.send(json!({"method": "initialized"})).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let writer = self.writer.as_mut().expect("not ended");
        within("the server to read", writer.write_all(bytes)).await.expect("the server reads");
    }

    /// Sends a line.
    pub(crate) async fn send_line(&mut self, line: impl AsRef<[u8]>) {
        let mut line = line.as_ref().to_vec();
        line.push(b'\n');
        self.send_bytes(&line).await;
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_line(message.to_string()).await;
    }

    /// Sends a request and does not wait; its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        self.send(json!({"id": self.next_id, "method": method, "params": params})).await;
        self.next_id
    }

    /// Sends a request and waits for the whole reply.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.reply(id).await
    }

    /// The reply with this id; what comes before it is kept.
    pub(crate) async fn reply(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        let what = format!("the reply to {id}");
        self.find(&what, |message| message.get("method").is_none() && message["id"] == id).await
    }

    /// The first message that is so; what comes before it is kept.
    pub(crate) async fn find(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&is_so) {
            return self.kept.remove(at).expect("it is there");
        }
        loop {
            match within(what, self.read()).await {
                Some(message) if is_so(&message) => return message,
                Some(message) => self.kept.push_back(message),
                None => panic!("the server ended before {what}; it had said {:?}", self.kept),
            }
        }
    }

    /// The next message of all; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        match self.kept.pop_front() {
            Some(message) => Some(message),
            None => within("a message or the end", self.read()).await,
        }
    }

    async fn read(&mut self) -> Option<Value> {
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                let message: Value = serde_json::from_slice(&line).expect("the server sends JSON");
                assert!(message.get("jsonrpc").is_none(), "this dialect has no such member: {message}");
                return Some(message);
            }
            match self.reader.read(&mut piece).await.expect("the client's end works") {
                0 => {
                    assert!(self.buffer.is_empty(), "the last line is whole");
                    return None;
                }
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// Ends what this side sends.
    pub(crate) fn end(&mut self) {
        self.writer = None;
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("not stopped yet").send(());
    }

    /// Ends the connection and waits until the session has ended.
    pub(crate) async fn leave(mut self) -> CloseReason {
        self.end();
        within("the end of the session", async {
            while self.read().await.is_some() {}
            (&mut self.serving).await.expect("the server does not panic")
        })
        .await
    }

    /// Starts a process; the reply.
    pub(crate) async fn start(&mut self, process_id: &str, argv: &[&str], more: Value) -> Value {
        self.call("process/start", start_params(process_id, argv, more)).await
    }

    /// Starts a shell that must run.
    pub(crate) async fn shell(&mut self, process_id: &str, script: &str) {
        self.shell_with(process_id, script, json!({})).await;
    }

    /// The same, with a pipe for its input.
    pub(crate) async fn shell_with_stdin(&mut self, process_id: &str, script: &str) {
        self.shell_with(process_id, script, json!({"pipeStdin": true})).await;
    }

    pub(crate) async fn shell_with(&mut self, process_id: &str, script: &str, more: Value) {
        let reply = self.start(process_id, &["/bin/sh", "-c", script], more).await;
        assert_eq!(reply["result"], json!({"processId": process_id}), "{reply}");
    }

    pub(crate) async fn terminate(&mut self, process_id: &str) -> bool {
        let reply = self.call("process/terminate", json!({"processId": process_id})).await;
        reply["result"]["running"].as_bool().unwrap_or_else(|| panic!("{reply}"))
    }

    /// Writes and waits; what became of it.
    pub(crate) async fn write(&mut self, process_id: &str, bytes: &[u8], write_id: &str) -> String {
        let reply = self.call("process/write", write_params(process_id, bytes, write_id)).await;
        reply["result"]["status"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    pub(crate) async fn close_stdin(&mut self, process_id: &str) {
        let reply = self.call("plimsoll/process/closeStdin", json!({"processId": process_id})).await;
        assert_eq!(reply["result"], json!({}), "{reply}");
    }

    /// Waits until the process has written `text` to stdout, which is then removed from its story.
    pub(crate) async fn hears(&mut self, process_id: &str, text: &str) -> Story {
        let mut story = Story::default();
        while !story.stdout_text().contains(text) {
            let message = self.of(process_id, &format!("{text:?} from {process_id}")).await;
            story.add(&message);
        }
        story
    }

    /// The next notification about this process.
    async fn of(&mut self, process_id: &str, what: &str) -> Value {
        self.find(what, |message| message.get("id").is_none() && message["params"]["processId"] == process_id).await
    }

    /// Everything about a process up to its close.
    pub(crate) async fn story(&mut self, process_id: &str) -> Story {
        self.rest_of(process_id, Story::default()).await
    }

    /// The same, when its beginning was heard already.
    pub(crate) async fn rest_of(&mut self, process_id: &str, mut story: Story) -> Story {
        while !story.closed {
            let message = self.of(process_id, &format!("the close of {process_id}")).await;
            story.add(&message);
        }
        assert_eq!(story.exits.len(), 1, "one exit");
        story
    }

    /// The notification of a process's exit; what comes before it is kept.
    pub(crate) async fn exited(&mut self, process_id: &str) -> Value {
        let what = format!("the exit of {process_id}");
        self.find(&what, |m| m["method"] == "process/exited" && m["params"]["processId"] == process_id).await
    }
}

/// What a process wrote and how it ended. Its numbers are checked as they come: from 1, each one more.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// The parameters of every exit.
    pub(crate) exits: Vec<Value>,
    pub(crate) closed: bool,
    pub(crate) last_seq: u64,
    pub(crate) last_output_seq: u64,
    pub(crate) largest_chunk: usize,
}

impl Story {
    fn add(&mut self, message: &Value) {
        let params = &message["params"];
        assert!(!self.closed, "nothing comes after the close: {message}");
        self.last_seq += 1;
        assert_eq!(params["seq"], self.last_seq, "the numbers have no gap: {message}");
        match message["method"].as_str().unwrap() {
            "process/output" => {
                self.last_output_seq = self.last_seq;
                let bytes = decode(&params["chunk"]);
                assert!(!bytes.is_empty(), "no empty output");
                self.largest_chunk = self.largest_chunk.max(bytes.len());
                match params["stream"].as_str().unwrap() {
                    "stdout" => self.stdout.extend(bytes),
                    "stderr" => self.stderr.extend(bytes),
                    other => panic!("no such stream: {other}"),
                }
            }
            "process/exited" => self.exits.push(params.clone()),
            "process/closed" => self.closed = true,
            other => panic!("no such notification: {other}"),
        }
    }

    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    pub(crate) fn code(&self) -> i64 {
        self.exits[0]["exitCode"].as_i64().unwrap()
    }

    /// The signal that ended it, as Plimsoll adds.
    pub(crate) fn signal(&self) -> Option<i64> {
        self.exits[0]["plimsoll"]["signal"].as_i64()
    }
}

pub(crate) fn start_params(process_id: &str, argv: &[&str], more: Value) -> Value {
    let path = std::env::var("PATH").unwrap();
    let mut params =
        json!({"processId": process_id, "argv": argv, "cwd": "file:///", "env": {"PATH": path}, "tty": false});
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

pub(crate) fn write_params(process_id: &str, bytes: &[u8], write_id: &str) -> Value {
    json!({"processId": process_id, "chunk": encode(bytes), "writeId": write_id})
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn decode(chunk: &Value) -> Vec<u8> {
    STANDARD.decode(chunk.as_str().unwrap()).unwrap()
}

/// A directory for one test, empty.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn uri(path: &Path) -> String {
    plimsoll_exec::PathUri::from_path(path).unwrap().as_str().to_owned()
}

/// Writes a program. Another process writes it: while this one holds a file open for writing, a child that another test
/// forks at that moment holds it too, and the system then refuses to run it.
pub(crate) fn program(path: &Path, text: &str, mode: &str) {
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", r#"printf '%s' "$1" > "$2" && chmod "$3" "$2""#, "sh", text])
        .arg(path)
        .arg(mode)
        .status()
        .unwrap();
    assert!(status.success());
}

/// The state letter of a process, or `None` when there is no such process.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process runs: it is there and no zombie.
pub(crate) fn runs(pid: &str) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The children of this process, with their state letters.
pub(crate) fn children() -> Vec<(u32, char)> {
    let me = std::process::id().to_string();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let mut words = stat.rsplit_once(") ").unwrap().1.split(' ');
        let state = words.next().unwrap().chars().next().unwrap();
        if words.next() == Some(&me) {
            children.push((pid, state));
        }
    }
    children
}

/// Ends a process that a test's child left behind, by its number.
pub(crate) fn kill(pid: &str) {
    let status = std::process::Command::new("/bin/kill").args(["-KILL", pid.trim()]).status();
    assert!(status.is_ok());
}
