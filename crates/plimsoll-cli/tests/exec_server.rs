//! `plimsoll exec-server --listen stdio`: stdout is the protocol, stderr tells its limits, and it ends when it should.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Running, directory, finish, number_in, plimsoll, runs, until, until_gone};
use plimsoll_core::Limits;
use rustix::process::Signal;
use serde_json::{Value, json};

const IDLE: &str = "while :; do sleep 0.05; done";

/// A server that runs, and its client.
struct Server {
    running: Running,
    next_id: u64,
}

impl Server {
    fn new(flags: &[&str]) -> Self {
        Self { running: Running::new(command(flags).stdin(Stdio::piped())), next_id: 0 }
    }

    fn opened(flags: &[&str]) -> Self {
        let mut server = Self::new(flags);
        server.open();
        server
    }

    fn open(&mut self) {
        assert!(self.call("initialize", json!({"clientName": "test"}))["result"].is_object());
        self.send_line(br#"{"method":"initialized"}"#);
    }

    fn send_line(&mut self, line: &[u8]) {
        let stdin = self.running.stdin.as_mut().expect("not ended");
        stdin.write_all(line).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send_line(json!({"id": self.next_id, "method": method, "params": params}).to_string().as_bytes());
        self.next_id
    }

    /// Every line of stdout so far, each of which must be a message.
    fn messages(&self) -> Vec<Value> {
        let text = self.running.stdout.text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let message = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        whole.lines().map(message).collect()
    }

    fn find(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        until(what, || {
            found = self.messages().into_iter().find(&is_so);
            found.is_some()
        });
        found.unwrap()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.find(method, |message| message["id"] == id)
    }

    fn shell(&mut self, process_id: &str, script: &str) -> Value {
        let argv = ["/bin/sh", "-c", script];
        let env = json!({"PATH": std::env::var("PATH").unwrap()});
        let params = json!({"processId": process_id, "argv": argv, "cwd": "file:///", "env": env, "tty": false});
        self.call("process/start", params)
    }

    fn exit_of(&self, process_id: &str) -> Value {
        let params = self.find("the exit", |message| {
            message["method"] == "process/exited" && message["params"]["processId"] == process_id
        });
        params["params"]["exitCode"].clone()
    }

    /// Starts a shell that writes its number into a file when it is ready; the number.
    fn shell_with_number(&mut self, script: &str, place: &Path) -> String {
        let pid_file = place.join("pid");
        let script = script.replace("READY", &format!("echo $$ > {}", pid_file.display()));
        assert!(self.shell("p", &script)["result"].is_object());
        number_in(&pid_file)
    }
}

fn command(flags: &[&str]) -> std::process::Command {
    let mut command = plimsoll(&["exec-server", "--listen", "stdio"]);
    command.args(flags);
    command
}

#[test]
fn its_limits_are_told_in_one_line_on_stderr_and_each_by_its_name() {
    let ended = finish(&mut command(&["--processes", "7", "--grace", "1500ms", "--depth", "off"]));
    let line = ended.one_line(0);
    for name in Limits::NAMES {
        assert!(line.split([' ', ':']).any(|word| word.starts_with(&format!("{name}="))), "{name} in {line}");
    }
    for told in ["processes=7", "grace=1.5s", "depth=off", "message_bytes=67108864"] {
        assert!(line.split(' ').any(|word| word == told), "{told} in {line}");
    }
    assert_eq!(ended.stdout, b"", "stdout is the protocol");
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_in_one_line() {
    for arguments in [
        &["exec-server"][..],
        &["exec-server", "--listen", "carrier-pigeon"],
        &["exec-server", "--listen", "stdio", "--depth", "-1"],
        &["exec-server", "--listen", "stdio", "more"],
        &["exec-sever"],
    ] {
        let ended = finish(&mut plimsoll(arguments));
        ended.one_line(125);
        assert_eq!(ended.stdout, b"");
    }
}

#[test]
fn stdout_carries_nothing_but_messages_whatever_goes_wrong() {
    let mut server = Server::opened(&["--message-bytes", "64KiB"]);
    assert!(server.shell("p", "echo out; echo err >&2; exit 3")["result"].is_object());
    assert_eq!(server.exit_of("p"), 3);
    server.send_line(b"hello");
    server.send_line(b"{\"id\":\"utf8\",\"method\":\"\xff\"}");
    server.send_line(br#"{"method":"nope"}"#);
    server.send_line(br#"{"id":5,"result":null}"#);
    let mut long = br#"{"id":"long","method":"x","params":""#.to_vec();
    long.resize(100_000, b'x');
    server.send_line(&long);
    assert_eq!(server.find("the refusal", |message| message["id"] == "long")["error"]["code"], -32600);
    assert!(server.shell("q", "exit 4")["result"].is_object());
    assert_eq!(server.exit_of("q"), 4);
    server.running.stdin = None;
    let stdout = server.running.stdout.clone();
    let ended = server.running.end();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    for line in stdout.text().lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|message| message.is_object()), "{line:?}");
    }
}

// Row 18 of PROTOCOL section 8.
#[test]
fn told_to_end_it_ends_with_its_processes_though_its_input_does_not_move() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = directory(&format!("told-{}", signal.as_raw()));
        let bye = place.join("bye");
        let mut server = Server::opened(&["--grace", "5s"]);
        let script = format!("trap 'sleep 0.1; echo > {}; exit 6' TERM; READY; {IDLE}", bye.display());
        let pid = server.shell_with_number(&script, &place);
        server.running.signal(signal);
        // Its stdin is still open, and stays so.
        until("its end", || server.running.has_ended());
        assert!(bye.exists(), "its process had its grace");
        assert!(!runs(&pid));
        assert_eq!(server.exit_of("p"), 6, "the client was told");
        assert!(server.running.stdin.is_some());
        assert_eq!(server.running.end().code(), 0);
    }
}

#[test]
fn told_to_end_it_kills_what_does_not_listen_after_its_grace() {
    let mut server = Server::opened(&["--grace", "200ms"]);
    let pid = server.shell_with_number(&format!("trap '' TERM; READY; {IDLE}"), &directory("deaf"));
    server.running.signal(Signal::TERM);
    until("its end", || server.running.has_ended());
    assert!(!runs(&pid));
    assert_eq!(server.exit_of("p"), 137);
    assert_eq!(server.running.end().code(), 0);
}

#[test]
fn told_to_end_it_ends_though_its_client_does_not_read() {
    let mut running =
        Running::but_deaf_to_stdout(command(&["--grace", "200ms", "--drain", "200ms"]).stdin(Stdio::piped()));
    let mut stdin = running.stdin.take().unwrap();
    let place = directory("client-does-not-read");
    let pid_file = place.join("pid");
    let script = format!("echo $$ > {}; exec cat /dev/zero", pid_file.display());
    let env = json!({"PATH": std::env::var("PATH").unwrap()});
    for message in [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "test"}}),
        json!({"method": "initialized"}),
        json!({"id": 2, "method": "process/start", "params":
            {"processId": "p", "argv": ["/bin/sh", "-c", script], "cwd": "file:///", "env": env, "tty": false}}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let pid = number_in(&pid_file);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::TERM);
    until("its end", || running.has_ended());
    assert!(!runs(&pid));
    assert_eq!(running.end().code(), 0);
}

#[test]
fn the_end_of_its_input_ends_it_and_its_processes() {
    let mut server = Server::opened(&["--grace", "200ms"]);
    let pid = server.shell_with_number("READY; exec sleep 1000", &directory("end-of-input"));
    assert!(runs(&pid), "the control");
    server.running.stdin = None;
    until("its end", || server.running.has_ended());
    assert!(!runs(&pid));
    assert_eq!(server.running.end().code(), 0);
}

// Case 53 of CASES.md.
#[test]
fn a_client_that_closes_its_end_of_stdout_is_a_clean_end() {
    let mut running = Running::but_deaf_to_stdout(command(&["--grace", "200ms"]).stdin(Stdio::piped()));
    drop(running.child.stdout.take());
    let mut stdin = running.stdin.take().unwrap();
    writeln!(stdin, "{}", json!({"id": 1, "method": "initialize", "params": {"clientName": "test"}})).unwrap();
    // The input stays open.
    let ended = running.end();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    ended.one_line(0);
    drop(stdin);
}

#[test]
fn a_limit_on_the_command_line_is_in_force() {
    for (flags, answer) in [(&["--processes", "1"][..], Some("processes")), (&[][..], None)] {
        let mut server = Server::opened(flags);
        assert!(server.shell("a", "exec sleep 1000")["result"].is_object());
        let reply = server.shell("b", "exec sleep 1000");
        assert_eq!(reply["error"]["data"]["reason"].as_str(), answer, "{reply}");
        server.running.stdin = None;
        assert_eq!(server.running.end().code(), 0);
    }
    let mut server = Server::new(&["--json-values", "10"]);
    let reply = server.call("nope", json!([0, 0, 0, 0, 0, 0]));
    assert_eq!(reply["error"]["code"], -32601, "the control");
    let reply = server.call("nope", json!([0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(reply["error"]["data"]["reason"], "jsonValues");
}

// Case 59.
#[test]
fn a_command_gets_none_of_the_servers_pipes() {
    let mut server = Server::opened(&[]);
    let pid = server.shell_with_number("READY; exec sleep 1000", &directory("pipes"));
    let links = |pid: &str| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect::<Vec<_>>()
    };
    let (ours, theirs) = (links(&server.running.pid().to_string()), links(&pid));
    let protocol: Vec<_> =
        (0..3).map(|n| std::fs::read_link(format!("/proc/{}/fd/{n}", server.running.pid())).unwrap()).collect();
    assert!(protocol.iter().all(|link| link.to_str().unwrap().starts_with("pipe:") && ours.contains(link)));
    assert!(protocol.iter().all(|link| !theirs.contains(link)), "{protocol:?} and {theirs:?}");
    server.running.stdin = None;
    assert_eq!(server.running.end().code(), 0);
    until_gone(&[pid]);
}
