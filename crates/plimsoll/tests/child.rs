//! A child that misbehaves in every way is bounded, ended and waited for, and nobody waits for it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use plimsoll::{
    Bound, CallError, ChildProcess, ChildStderrTo, CloseReason, Context, Deadline, KIB, Limits, MIB, Peer, PeerBuilder,
    Reason, Router, STDERR_TAIL_BYTES,
};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(30);
/// The shortest grace that a shell can use.
const GRACE: Deadline = Deadline::After(Duration::from_millis(200));

/// A child that runs a script of the shell, the peer that speaks with it, and what it notified.
struct Running {
    child: ChildProcess,
    peer: Peer,
    running: JoinHandle<CloseReason>,
    told: mpsc::Receiver<Value>,
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script);
    command
}

fn start(script: &str, limits: Limits) -> Running {
    let (child, stdout, stdin) = ChildProcess::spawn(shell(script), ChildStderrTo::Tail).unwrap();
    let (tell, told) = mpsc::channel(16);
    let router = Router::new().notification("tell", move |_context: Context, value: Value| {
        let tell = tell.clone();
        async move { tell.send(value).await.unwrap() }
    });
    let (peer, connection) = PeerBuilder::new(limits).router(router).connect(stdout, stdin);
    Running { child, peer, running: tokio::spawn(connection.run()), told }
}

/// A line of script that notifies with these parameters, which the shell expands.
fn tell(params: &str) -> String {
    format!(r#"echo '{{"jsonrpc":"2.0","method":"tell","params":['{params}']}}'; "#)
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.expect("it hangs")
}

/// Whether a process is there, dead or alive.
fn exists(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

/// Whether it is there and alive. An orphan is reaped by whoever adopted it, at a time of its own.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

async fn dies(pid: u32) {
    soon(async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn pid_of(told: &Value) -> u32 {
    told[0].as_u64().unwrap() as u32
}

#[tokio::test]
async fn a_child_answers_and_ends_by_itself_when_its_input_ends() {
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":42}'; cat >/dev/null; exit 3"#;
    let Running { child, peer, running, .. } = start(script, Limits::default());
    assert_eq!(soon(peer.call::<i64>("answer", &())).await, Ok(42));
    peer.close();
    assert_eq!(soon(running).await.unwrap(), CloseReason::Closed);
    let status = soon(child.shutdown(Deadline::Never)).await.unwrap();
    assert_eq!(status.code(), Some(3), "nothing was killed");
}

#[tokio::test]
async fn a_flood_without_a_newline_is_refused_and_bounded_and_the_next_message_arrives() {
    let script =
        r#"head -c 8000000 /dev/zero | tr '\0' x; echo; read line; echo '{"jsonrpc":"2.0","id":1,"result":1}'"#;
    let limits = Limits::default().with_message_bytes(Bound::at_most(64 * KIB));
    let Running { child, peer, running, .. } = start(script, limits);
    assert_eq!(soon(peer.call::<i64>("answer", &())).await, Ok(1));
    let counters = peer.counters();
    assert_eq!((counters.noise, counters.refused), (1, 1));
    assert!(counters.peak_bytes <= 128 * KIB, "{counters:?}");
    assert_eq!(soon(running).await.unwrap(), CloseReason::EndOfInput);
    assert!(soon(child.shutdown(GRACE)).await.unwrap().success());
}

#[tokio::test]
async fn a_flood_without_end_closes_the_connection_and_the_child_is_ended() {
    let limits = Limits::default().with_message_bytes(Bound::at_most(64 * KIB)).with_skip_bytes(Bound::at_most(MIB));
    let Running { child, peer, running, .. } = start(r"tr '\0' x </dev/zero", limits);
    let failed = soon(peer.call::<i64>("answer", &())).await.unwrap_err();
    assert!(matches!(&failed, CallError::Closed(reason) if reason.reason() == Reason::SkipBytes), "{failed:?}");
    assert_eq!(soon(running).await.unwrap().reason(), Reason::SkipBytes);
    assert!(peer.counters().peak_bytes <= 128 * KIB);
    let status = soon(child.shutdown(GRACE)).await.unwrap();
    assert!(!status.success(), "{status}");
}

#[tokio::test]
async fn standard_error_that_nobody_reads_is_drained_and_its_tail_is_bounded_and_safe_to_print() {
    let script = r#"
        head -c 1048576 /dev/zero | tr '\0' e >&2
        printf '\nfirst\n\033[31mred\033[0m\007\r\nlast\n' >&2
        read line; echo '{"jsonrpc":"2.0","id":1,"result":1}'; cat >/dev/null"#;
    let Running { child, peer, .. } = start(script, Limits::default());
    assert_eq!(soon(peer.call::<i64>("answer", &())).await, Ok(1), "a full pipe did not stop the child");
    let tail = soon(async {
        loop {
            let tail = child.stderr_tail();
            if tail.ends_with("last") {
                return tail;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(tail.len() <= STDERR_TAIL_BYTES + 100, "{} bytes", tail.len());
    assert!(tail.chars().all(|character| character == '\n' || !character.is_control()), "{tail:?}");
    assert!(tail.ends_with("first\n\\u{1b}[31mred\\u{1b}[0m\\u{7}\nlast"), "{tail:?}");
    drop(peer);
    child.shutdown(GRACE).await.unwrap();
}

#[tokio::test]
async fn a_child_is_told_to_end_before_it_is_killed() {
    let polite = format!("trap 'exit 7' TERM; {} sleep 1000 & wait", tell("1"));
    let Running { child, mut told, .. } = start(&polite, Limits::default());
    soon(told.recv()).await.unwrap();
    assert_eq!(soon(child.shutdown(GRACE)).await.unwrap().code(), Some(7));

    let deaf = format!("trap '' TERM; {} while :; do sleep 1000; done", tell("1"));
    let Running { child, mut told, .. } = start(&deaf, Limits::default());
    soon(told.recv()).await.unwrap();
    let pid = child.id().unwrap();
    let status = soon(child.shutdown(GRACE)).await.unwrap();
    assert_eq!(status.signal(), Some(9), "killed after the grace");
    assert!(!exists(pid), "and waited for");
}

#[tokio::test]
async fn what_a_child_left_behind_ends_with_it() {
    // The second one holds the child's pipes open.
    for (redirect, ends_its_output) in [("</dev/null >/dev/null 2>&1", true), ("", false)] {
        let script = format!("sleep 1000 {redirect} & {} exit 5", tell("$!"));
        let Running { child, running, mut told, .. } = start(&script, Limits::default());
        let grandchild = pid_of(&soon(told.recv()).await.unwrap());
        assert!(is_alive(grandchild));
        if ends_its_output {
            assert_eq!(soon(running).await.unwrap(), CloseReason::EndOfInput);
            assert!(is_alive(grandchild), "nobody ended it so far");
        }
        let status = soon(child.shutdown(GRACE)).await.unwrap();
        assert_eq!(status.code(), Some(5));
        dies(grandchild).await;
    }
}

#[tokio::test]
async fn what_a_child_left_behind_ends_when_the_child_was_waited_for() {
    let script = format!("sleep 1000 </dev/null >/dev/null 2>&1 & {} exit 5", tell("$!"));
    let Running { mut child, mut told, .. } = start(&script, Limits::default());
    let grandchild = pid_of(&soon(told.recv()).await.unwrap());
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(5));
    dies(grandchild).await;
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(5), "it may be asked again");
    assert_eq!(soon(child.shutdown(GRACE)).await.unwrap().code(), Some(5));
}

#[tokio::test]
async fn a_child_that_dies_at_once_fails_calls_at_once_and_its_status_is_known() {
    let Running { mut child, peer, running, .. } = start("echo 'no such ship' >&2; exit 3", Limits::default());
    let failed = soon(peer.call::<Value>("answer", &())).await.unwrap_err();
    assert_eq!(failed, CallError::Closed(CloseReason::EndOfInput));
    assert_eq!(soon(running).await.unwrap(), CloseReason::EndOfInput);
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(3));
    soon(async {
        while child.stderr_tail() != "no such ship" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_and_not_a_child() {
    let failed = ChildProcess::spawn(Command::new("/no/such/program"), ChildStderrTo::Tail).unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_child_that_never_reads_is_closed_at_the_stall_deadline() {
    let limits = Limits::default().with_stall_deadline(Deadline::After(Duration::from_millis(100)));
    let Running { child, peer, running, .. } = start("sleep 1000", limits);
    let failed = soon(peer.call::<Value>("answer", &["x".repeat(MIB as usize)])).await.unwrap_err();
    assert!(matches!(&failed, CallError::Closed(reason) if reason.reason() == Reason::StallDeadline), "{failed:?}");
    assert_eq!(soon(running).await.unwrap().reason(), Reason::StallDeadline);
    assert_eq!(soon(child.shutdown(GRACE)).await.unwrap().signal(), Some(15));
}

#[tokio::test]
async fn a_child_that_closes_its_input_is_a_clean_close() {
    let limits = Limits::default().with_drain(Deadline::After(Duration::from_millis(100)));
    let script = format!("exec 0<&-; {} sleep 1000", tell("1"));
    let Running { child, peer, running, mut told } = start(&script, limits);
    soon(told.recv()).await.unwrap();
    let failed = soon(peer.call::<Value>("answer", &())).await.unwrap_err();
    assert_eq!(failed, CallError::Closed(CloseReason::EndOfInput));
    assert_eq!(soon(running).await.unwrap(), CloseReason::EndOfInput);
    drop(child);
}

#[tokio::test]
async fn the_last_words_of_a_child_are_heard_though_writing_to_it_fails() {
    for _ in 0..40 {
        let script = r#"read line; exec 0<&-; echo '{"jsonrpc":"2.0","id":1,"result":"last words"}'"#;
        let Running { child, peer, running, .. } = start(script, Limits::default());
        let calling = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call::<String>("answer", &()).await }
        });
        // These run into the closed pipe.
        while peer.notify("chatter", &json!(["x".repeat(5_000)])).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(soon(calling).await.unwrap(), Ok("last words".to_owned()));
        assert_eq!(soon(running).await.unwrap(), CloseReason::EndOfInput);
        soon(child.shutdown(GRACE)).await.unwrap();
    }
}

#[tokio::test]
async fn a_child_that_is_dropped_is_killed_and_waited_for_before_anything_else_runs() {
    let script = format!("trap '' TERM; sleep 1000 </dev/null >/dev/null 2>&1 & {} wait", tell("$!"));
    let Running { child, mut told, .. } = start(&script, Limits::default());
    let grandchild = pid_of(&soon(told.recv()).await.unwrap());
    let pid = child.id().unwrap();
    assert!(is_alive(pid));
    drop(child);
    // No await since: the runtime had no turn.
    assert!(!exists(pid), "a zombie is left");
    dies(grandchild).await;
}

#[tokio::test]
async fn a_shutdown_that_is_dropped_kills() {
    let Running { child, .. } = start("trap '' TERM; while :; do sleep 1000; done", Limits::default());
    let pid = child.id().unwrap();
    let given_up = timeout(Duration::from_millis(50), child.shutdown(Deadline::Never)).await;
    assert!(given_up.is_err() && !exists(pid));
}

#[test]
fn the_end_of_the_runtime_leaves_no_child_and_no_zombie() {
    for workers in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
        let pids = runtime.block_on(async {
            let mut pids = Vec::new();
            for _ in 0..3 {
                let Running { child, peer, .. } = start("sleep 1000", Limits::default());
                pids.push(child.id().unwrap());
                tokio::spawn(async move {
                    let _ = peer.call::<Value>("answer", &()).await;
                    drop(child);
                });
            }
            tokio::task::yield_now().await;
            pids
        });
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        drop(runtime);
        assert!(!pids.iter().any(|pid| exists(*pid)), "{pids:?}");
    }
}

#[test]
fn a_child_that_outlives_its_runtime_is_killed_when_it_is_dropped() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let child = runtime.block_on(async { start("sleep 1000", Limits::default()).child });
    let pid = child.id().unwrap();
    drop(runtime);
    assert!(is_alive(pid));
    drop(child);
    assert!(!exists(pid));
}

/// A program that left its group for ours and does not end when it is told to.
const DESERTER: &str = r#"exec perl -e '$SIG{TERM} = "IGNORE"; setpgrp(0, getpgrp(getppid())); $| = 1;
    print "{\"jsonrpc\":\"2.0\",\"method\":\"tell\",\"params\":[$$]}\n"; sleep 1000'"#;

#[tokio::test]
async fn a_program_that_left_its_group_ends_all_the_same() {
    let Running { child, mut told, .. } = start(DESERTER, Limits::default());
    let pid = pid_of(&soon(told.recv()).await.unwrap());
    let status = soon(child.shutdown(GRACE)).await.unwrap();
    assert_eq!(status.signal(), Some(9));
    assert!(!exists(pid));

    let Running { child, mut told, .. } = start(DESERTER, Limits::default());
    let pid = pid_of(&soon(told.recv()).await.unwrap());
    drop(child);
    assert!(!exists(pid), "a drop kills at once");
}
