//! Whatever a child does, it is waited for: after the session this process has no child, not even a zombie.
//!
//! Alone in its binary, because the children of other tests would be counted.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use common::{Client, children, limits, start_params, until};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_child_is_left_whatever_it_did() {
    assert_eq!(children(), []);
    let scripts = [
        "exit 3",
        "kill -KILL $$",
        "exec >&- 2>&-; sleep 0.1",
        "(sleep 0.2; echo late) & exit 0",
        "(sleep 0.6) & exit 0",
        "for n in 1 2 3 4 5 6 7 8; do (exit $n) & done; exit 0",
        "head -c 500000 /dev/zero; head -c 500000 /dev/zero >&2",
        "trap '' TERM; while :; do sleep 0.05; done",
        "sleep 1000",
        "cat",
    ];
    let mut client = Client::opened(limits()).await;
    for round in 0..4 {
        for script in scripts {
            client.shell_with_stdin(&format!("{round} {script}"), script).await;
        }
        assert!(client.start(&format!("{round}"), &["/nonexistent"], json!({})).await["error"].is_object());
        for script in &scripts[..7] {
            client.story(&format!("{round} {script}")).await;
        }
        for script in &scripts[7..] {
            assert!(client.terminate(&format!("{round} {script}")).await);
            client.story(&format!("{round} {script}")).await;
        }
        // Each was reaped before its close was told.
        assert_eq!(children(), [], "round {round}");
    }
    for script in scripts {
        client.shell_with_stdin(&format!("left {script}"), script).await;
    }
    assert!(!children().is_empty(), "the control");
    client.leave().await;
    assert_eq!(children(), [], "after a client that left");

    // A client that is gone before anything was answered, and a server that is dropped.
    let mut client = Client::opened(limits()).await;
    for n in 0..10 {
        client.ask("process/start", start_params(&n.to_string(), &["sleep", "1000"], json!({}))).await;
    }
    client.leave().await;
    assert_eq!(children(), [], "after a client that left at once");
    let mut client = Client::opened(limits()).await;
    for n in 0..10 {
        client.ask("process/start", start_params(&n.to_string(), &["sleep", "1000"], json!({}))).await;
    }
    client.shell("last", "exec sleep 1000").await;
    client.serving.abort();
    until("all to be killed", || children().is_empty()).await;
}
