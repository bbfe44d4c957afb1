//! A process runs as it was asked to, is told about completely and in order, takes input whole or not at all, and ends
//! when it is told to.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::{
    Client, at_most, directory, kill, limits, millis, program, runs, start_params, state, until, uri, within,
    write_params,
};
use plimsoll::Deadline;
use serde_json::{Value, json};

const KIB: usize = 1024;

/// The code, and `data.kind` or `data.reason`, of an error.
fn error(reply: &Value) -> (i64, String) {
    let code = reply["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {reply}"));
    let data = &reply["error"]["data"];
    let word = data["kind"].as_str().or(data["reason"].as_str()).unwrap_or_default();
    (code, word.to_owned())
}

fn message(reply: &Value) -> &str {
    reply["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {reply}"))
}

/// What a child runs that does not end and does not read.
const IDLE: &str = "while :; do sleep 0.05; done";

#[tokio::test]
async fn an_exit_code_is_the_commands_own_or_128_and_the_signal() {
    let mut client = Client::opened(limits()).await;
    for (script, code, signal) in [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("exit 255", 255, None),
        ("exit 137", 137, None),
        ("kill -KILL $$", 137, Some(9)),
        ("kill -TERM $$", 143, Some(15)),
        ("kill -INT $$", 130, Some(2)),
        ("kill -ABRT $$", 134, Some(6)),
    ] {
        client.shell(script, script).await;
        let story = client.story(script).await;
        assert_eq!((story.code(), story.signal()), (code, signal), "{script}");
    }
    client.leave().await;
}

#[tokio::test]
async fn stdout_and_stderr_come_apart_byte_for_byte() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", r"printf 'o\000\377\n'; printf 'e\000\376' >&2; printf 'more'").await;
    let story = client.story("p").await;
    assert_eq!((story.stdout, story.stderr), (b"o\0\xff\nmore".to_vec(), b"e\0\xfe".to_vec()));
    client.leave().await;
}

#[tokio::test]
async fn a_program_is_looked_for_in_the_path_of_the_child_and_not_in_ours() {
    let place = directory("childs-path");
    program(&place.join("plimsoll-test-tool"), "#!/bin/sh\necho found\n", "755");
    let mut client = Client::opened(limits()).await;
    let path = place.to_str().unwrap();
    let reply = client.start("p", &["plimsoll-test-tool"], json!({"env": {"PATH": path}})).await;
    assert!(reply["result"].is_object(), "{reply}");
    assert_eq!(client.story("p").await.stdout_text(), "found\n");
    let reply = client.start("q", &["plimsoll-test-tool"], json!({})).await;
    assert_eq!(error(&reply), (-32603, "spawnNotFound".into()), "the control");
    let reply = client.start("r", &["cat"], json!({"env": {"PATH": path}})).await;
    assert_eq!(error(&reply), (-32603, "spawnNotFound".into()), "our own PATH knows cat");
    client.leave().await;
}

/// What `env` prints for a process that is started so.
async fn environment(client: &mut Client, process_id: &str, more: Value) -> Vec<String> {
    let reply = client.start(process_id, &["/usr/bin/env"], more).await;
    assert!(reply["result"].is_object(), "{reply}");
    let mut lines: Vec<String> = client.story(process_id).await.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn without_a_policy_the_environment_is_what_was_sent_and_nothing_else() {
    let mut client = Client::opened(limits()).await;
    assert_eq!(environment(&mut client, "a", json!({"env": {}})).await, [""; 0]);
    let more = json!({"env": {"A": "1", "EMPTY": "", "B": "x=y é"}});
    assert_eq!(environment(&mut client, "b", more).await, ["A=1", "B=x=y é", "EMPTY="]);
    client.leave().await;
}

#[tokio::test]
async fn with_a_policy_it_is_inherited_filtered_and_laid_under_what_was_sent() {
    let policy = |inherit: &str, exclude: Value, only: Value| {
        json!({"inherit": inherit, "ignoreDefaultExcludes": false, "exclude": exclude, "set": {"SET": "1", "B": "low"},
               "includeOnly": only})
    };
    let mut client = Client::opened(limits()).await;
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    // One of this process's own variables that no rule touches.
    let core = ["HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP", "B", "SET"];
    let is_plain = |name: &String, value: &String| {
        let upper = name.to_uppercase();
        let is_secret = ["KEY", "SECRET", "TOKEN"].iter().any(|word| upper.contains(word));
        !is_secret && !core.contains(&name.as_str()) && !value.contains('\n') && !name.contains(['*', '?'])
    };
    let (name, value) = std::env::vars().find(|(name, value)| is_plain(name, value)).unwrap();
    let ours = format!("{name}={value}");
    let env = json!({"B": "high", "A_TOKEN": "kept"});

    let more = json!({"env": env, "envPolicy": policy("none", json!([]), json!([]))});
    assert_eq!(environment(&mut client, "none", more).await, ["A_TOKEN=kept", "B=high", "SET=1"]);

    let core = environment(&mut client, "core", json!({"env": env, "envPolicy": policy("core", json!([]), json!([]))}));
    let core = core.await;
    assert!(core.contains(&path) && !core.contains(&ours), "{core:?}");

    let all = environment(&mut client, "all", json!({"env": env, "envPolicy": policy("all", json!([]), json!([]))}));
    let all = all.await;
    assert!(all.contains(&path) && all.contains(&ours) && all.contains(&"B=high".to_owned()), "{all:?}");

    let less = json!({"env": env, "envPolicy": policy("all", json!([name.to_lowercase()]), json!([]))});
    let less = environment(&mut client, "less", less).await;
    assert!(less.contains(&path) && !less.contains(&ours), "{less:?}");

    let only = json!({"env": env, "envPolicy": policy("all", json!([]), json!([name]))});
    let mut wanted = ["A_TOKEN=kept", "B=high", ours.as_str()];
    wanted.sort();
    assert_eq!(environment(&mut client, "only", only).await, wanted);
    client.leave().await;
}

#[tokio::test]
async fn arg0_is_what_the_process_sees_as_its_name() {
    let mut client = Client::opened(limits()).await;
    client.start("p", &["cat", "/proc/self/cmdline"], json!({"arg0": "another"})).await;
    assert_eq!(client.story("p").await.stdout_text(), "another\0/proc/self/cmdline\0");
    client.start("q", &["cat", "/proc/self/cmdline"], json!({"arg0": null})).await;
    assert_eq!(client.story("q").await.stdout_text(), "cat\0/proc/self/cmdline\0", "the control");
    client.leave().await;
}

#[tokio::test]
async fn a_process_starts_where_it_was_asked_to_whatever_bytes_the_name_has() {
    let place = directory("cwd").join(std::ffi::OsStr::from_bytes(b"a b%\xff\xfe"));
    std::fs::create_dir(&place).unwrap();
    let mut client = Client::opened(limits()).await;
    client.shell_with("p", "pwd; echo $PWD >&2", json!({"cwd": uri(&place)})).await;
    let mut wanted = place.as_os_str().as_bytes().to_vec();
    wanted.push(b'\n');
    assert_eq!(client.story("p").await.stdout, wanted);
    client.leave().await;
}

#[tokio::test]
async fn standard_input_is_null_unless_a_pipe_was_asked_for() {
    let mut client = Client::opened(limits()).await;
    for none in [json!({}), json!({"pipeStdin": false}), json!({"pipeStdin": null})] {
        client.shell_with(&none.to_string(), "readlink /proc/self/fd/0; cat", none.clone()).await;
        assert_eq!(client.story(&none.to_string()).await.stdout_text(), "/dev/null\n", "{none}");
    }
    client.shell("idle", IDLE).await;
    assert_eq!(client.write("idle", b"x", "1").await, "stdinClosed");
    client.close_stdin("idle").await;
    client.shell_with_stdin("p", "readlink /proc/self/fd/0; cat").await;
    assert_eq!(client.write("p", b"input", "1").await, "accepted");
    client.close_stdin("p").await;
    let said = client.story("p").await.stdout_text();
    assert!(said.starts_with("pipe:") && said.ends_with("\ninput"), "{said}");
    client.leave().await;
}

// Case 59 of CASES.md.
#[tokio::test]
async fn a_child_has_its_three_descriptors_and_none_of_ours() {
    let ours = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(ours > 5, "the control: this process has {ours}");
    let descriptors = |said: &str| said.lines().filter(|line| line.contains(" -> ")).count();
    // A test may be started with more of them open, which every child then gets.
    let plain = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let plain = descriptors(&String::from_utf8(plain.stdout).unwrap());
    let mut client = Client::opened(limits()).await;
    client.start("p", &["ls", "-l", "/proc/self/fd"], json!({})).await;
    let said = client.story("p").await.stdout_text();
    assert_eq!(descriptors(&said), plain, "{said}");
    client.leave().await;
}

#[tokio::test]
async fn a_process_id_is_taken_until_long_after_the_process_has_ended() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", IDLE).await;
    for running in [true, false] {
        let reply = client.start("p", &["true"], json!({})).await;
        assert_eq!(error(&reply).0, -32600, "{reply}");
        if running {
            assert!(client.terminate("p").await);
            client.story("p").await;
        }
    }
    let reply = client.start("q", &["/nonexistent"], json!({})).await;
    assert_eq!(error(&reply).0, -32603);
    client.shell("q", "exit 3").await;
    assert_eq!(client.story("q").await.code(), 3, "an id under which nothing came to run is free");
    client.leave().await;
}

#[tokio::test]
async fn what_cannot_be_started_is_refused_with_what_is_wrong_and_leaves_nothing_behind() {
    let place = directory("cannot-start");
    program(&place.join("plain"), "not a program", "644");
    program(&place.join("no-interpreter"), "#!/nonexistent/interpreter\n", "755");
    let file = place.join("plain");
    let (plain, no_interpreter) = (file.to_str().unwrap(), place.join("no-interpreter"));
    let name = "x".repeat(2_000);
    let long = "y".repeat(4 * KIB * KIB);
    let table: &[(&[&str], Value, i64, &str)] = &[
        (&[], json!({}), -32602, ""),
        (&[""], json!({}), -32602, ""),
        (&["true\0"], json!({}), -32602, ""),
        (&["true", "a\0b"], json!({}), -32602, ""),
        (&["true"], json!({"arg0": "a\0b"}), -32602, ""),
        (&["true"], json!({"env": {"A": "\0"}}), -32602, ""),
        (&["true"], json!({"env": {"A=": "1"}}), -32602, ""),
        (&["true"], json!({"env": {"": "1"}}), -32602, ""),
        (&["true"], json!({"env": {"A": 1}}), -32602, ""),
        (&["true"], json!({"cwd": "/"}), -32602, ""),
        (&["true"], json!({"cwd": "file:///a%00b"}), -32602, ""),
        (&["true"], json!({"cwd": "file://host/a"}), -32602, ""),
        (&["true"], json!({"envPolicy": {"inherit": "none"}}), -32602, ""),
        (&["true"], json!({"tty": null}), -32602, ""),
        (&["true"], json!({"processId": name}), -32602, "idBytes"),
        (&["true"], json!({"cwd": "file:///nonexistent"}), -32603, "spawnFailed"),
        (&["true"], json!({"cwd": uri(&file)}), -32603, "spawnFailed"),
        (&["true", &long], json!({}), -32603, "spawnFailed"),
        (&["plimsoll-no-such-program"], json!({}), -32603, "spawnNotFound"),
        (&["/nonexistent/program"], json!({}), -32603, "spawnNotFound"),
        (&[no_interpreter.to_str().unwrap()], json!({}), -32603, "spawnNotFound"),
        (&[plain], json!({}), -32603, "spawnPermissionDenied"),
        (&["/"], json!({}), -32603, "spawnPermissionDenied"),
    ];
    // One process at a time: whatever an attempt left behind would take the place.
    let mut client = Client::opened(limits().with_processes(at_most(1))).await;
    for (argv, more, code, word) in table {
        let reply = client.start("p", argv, more.clone()).await;
        let shown = &reply.to_string()[..reply.to_string().len().min(600)];
        assert_eq!(error(&reply), (*code, (*word).to_owned()), "{more}: {shown}");
        assert!(message(&reply).len() < 600, "what a peer sent is not echoed at length: {shown}");
    }
    client.shell("p", "exit 4").await;
    assert_eq!(client.story("p").await.code(), 4);
    client.leave().await;
}

#[tokio::test]
async fn a_terminal_is_refused_with_a_sentence_that_says_so() {
    let mut client = Client::opened(limits()).await;
    let reply = client.start("p", &["true"], json!({"tty": true})).await;
    assert_eq!(error(&reply).0, -32602);
    assert!(message(&reply).contains("tty"), "{reply}");
    client.shell("p", "exit 0").await;
    assert_eq!(client.story("p").await.code(), 0, "the control");
    client.leave().await;
}

// Row 24 of PROTOCOL section 8.
#[tokio::test]
async fn what_cannot_be_enforced_is_refused_and_never_run_without() {
    let marker = directory("sandbox").join("ran");
    let marker = marker.to_str().unwrap();
    let mut client = Client::opened(limits()).await;
    let managed = json!({"type": "managed", "network": "restricted", "file_system": {"type": "unrestricted"}});
    for more in [
        json!({"enforceManagedNetwork": true}),
        json!({"enforceManagedNetwork": true, "sandbox": {"permissions": {"type": "disabled"}}}),
        json!({"sandbox": {"permissions": managed, "windowsSandboxLevel": "disabled"}}),
        json!({"sandbox": {"permissions": {"type": "external", "network": "enabled"}}}),
        json!({"sandbox": {"permissions": {"type": "of a later version"}}}),
    ] {
        let reply = client.start("p", &["touch", marker], more.clone()).await;
        assert_eq!(error(&reply), (-32603, "sandboxUnavailable".into()), "{more}: {reply}");
    }
    assert_eq!(error(&client.start("p", &["touch", marker], json!({"sandbox": {}})).await).0, -32602);
    assert!(!Path::new(marker).exists());
    let disabled = json!({"sandbox": {"permissions": {"type": "disabled"}}, "enforceManagedNetwork": false});
    client.start("p", &["touch", marker], disabled).await;
    assert_eq!(client.story("p").await.code(), 0);
    assert!(Path::new(marker).exists(), "the control: nothing to enforce");
    client.leave().await;
}

#[tokio::test]
async fn one_process_too_many_is_refused_as_retryable_until_another_has_closed() {
    let mut client = Client::opened(limits().with_processes(at_most(2))).await;
    client.shell("a", IDLE).await;
    client.shell("b", IDLE).await;
    let reply = client.start("c", &["true"], json!({})).await;
    assert_eq!(error(&reply), (-31009, "processes".into()), "{reply}");
    assert_eq!(reply["error"]["data"]["limit"], 2);
    assert_eq!(reply["error"]["data"]["retryable"], true);
    assert!(client.terminate("a").await);
    client.story("a").await;
    client.shell("c", "exit 1").await;
    assert_eq!(client.story("c").await.code(), 1, "under the same id: a refusal takes nothing");
    client.leave().await;
}

#[tokio::test]
async fn without_the_limit_more_processes_run() {
    let mut client = Client::opened(limits().with_processes(plimsoll::Bound::Unbounded)).await;
    for n in 0..70 {
        client.shell_with_stdin(&n.to_string(), "read line; exit 9").await;
    }
    for n in 0..70 {
        assert_eq!(client.write(&n.to_string(), b"\n", "1").await, "accepted");
        assert_eq!(client.story(&n.to_string()).await.code(), 9);
    }
    client.leave().await;
}

#[tokio::test]
async fn an_environment_whose_copies_have_no_room_is_refused_as_retryable() {
    let value = "x".repeat(100 * KIB);
    let variables: serde_json::Map<_, _> = (0..10).map(|n| (format!("V{n}"), json!(value))).collect();
    let env = json!({"env": variables});
    // The message and its parameters have two megabytes, and what is made of them for the system two more.
    for (megabytes, is_started) in [(3, false), (8, true)] {
        let most = at_most(megabytes * 1024 * 1024);
        let mut client = Client::opened(limits().with_cap(most).with_json_values(at_most(1_000))).await;
        let reply = client.start("p", &["/bin/true"], env.clone()).await;
        if is_started {
            assert!(reply["result"].is_object(), "the control: {reply}");
            assert_eq!(client.story("p").await.code(), 0);
        } else {
            assert_eq!(error(&reply), (-31009, "overloaded".into()), "{reply}");
            client.shell("p", "exit 6").await;
            assert_eq!(client.story("p").await.code(), 6, "a refusal takes nothing");
        }
        client.leave().await;
    }
}

#[tokio::test]
async fn one_count_numbers_output_exit_and_close_and_close_is_last() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", "for n in 1 2 3 4 5 6 7 8 9; do echo $n; echo $n >&2; done").await;
    // The numbers are checked as they come.
    let story = client.story("p").await;
    assert_eq!(story.stdout_text(), story.stderr_text());
    assert_eq!(story.last_seq, story.exits[0]["seq"].as_u64().unwrap().max(story.last_output_seq) + 1);
    client.shell("silent", "exit 0").await;
    let story = client.story("silent").await;
    assert_eq!((story.last_seq, story.last_output_seq), (2, 0));
    client.leave().await;
}

// Row 23.
#[tokio::test]
async fn last_output_seq_is_told_when_the_output_had_ended_before_the_process() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", "echo out; echo err >&2; exec >&- 2>&-; read line; exit 2").await;
    let story = client.hears("p", "out").await;
    // Whatever the server did to answer this, it did after it had seen the ends of the pipes.
    for n in 0..20 {
        client.call("environment/status", json!({"n": n})).await;
    }
    assert_eq!(client.write("p", b"\n", "1").await, "accepted");
    let story = client.rest_of("p", story).await;
    assert_eq!(story.exits[0]["plimsoll"]["lastOutputSeq"], story.last_output_seq, "{:?}", story.exits);
    assert_eq!(story.exits[0]["plimsoll"].get("signal"), None);
    client.leave().await;
}

#[tokio::test]
async fn an_interrupt_reaches_the_whole_group() {
    let mut client = Client::opened(limits()).await;
    let inner = r#"trap "echo inner; exit 0" INT; echo ready; while :; do sleep 0.05; done"#;
    client.shell("p", &format!("trap 'echo outer; exit 6' INT; sh -c '{inner}'; wait")).await;
    let story = client.hears("p", "ready").await;
    let reply = client.call("process/signal", json!({"processId": "p", "signal": "interrupt"})).await;
    assert_eq!(reply["result"], json!({}));
    let story = client.rest_of("p", story).await;
    assert_eq!(story.code(), 6);
    assert!(story.stdout_text().contains("inner") && story.stdout_text().contains("outer"), "{story:?}");
    client.leave().await;
}

#[tokio::test]
async fn signals_that_cannot_be_sent_are_refused_by_what_is_wrong() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", "exit 0").await;
    client.story("p").await;
    for (process_id, signal, code) in [("p", "kill", -32602), ("p", "", -32602), ("nobody", "interrupt", -32600)] {
        let reply = client.call("process/signal", json!({"processId": process_id, "signal": signal})).await;
        assert_eq!(error(&reply).0, code, "{reply}");
    }
    let reply = client.call("process/signal", json!({"processId": "p", "signal": "interrupt"})).await;
    assert_eq!(reply["result"], json!({}), "that it has just ended is no error of the client's");
    client.leave().await;
}

#[tokio::test]
async fn an_interrupt_that_comes_right_behind_the_start_is_not_lost() {
    let mut client = Client::opened(limits()).await;
    for n in 0..20 {
        let id = n.to_string();
        let start = client.ask("process/start", start_params(&id, &["sleep", "1000"], json!({}))).await;
        let signal = client.ask("process/signal", json!({"processId": id, "signal": "interrupt"})).await;
        assert_eq!(client.reply(signal).await["result"], json!({}));
        assert!(client.reply(start).await["result"].is_object());
        assert_eq!(client.story(&id).await.signal(), Some(2));
    }
    client.leave().await;
}

#[tokio::test]
async fn terminate_is_term_first_and_kill_after_grace_for_who_does_not_listen() {
    let mut client = Client::opened(limits()).await;
    client.shell("listens", &format!("trap 'echo bye; exit 3' TERM; echo ready; {IDLE}")).await;
    let story = client.hears("listens", "ready").await;
    assert!(client.terminate("listens").await);
    let story = client.rest_of("listens", story).await;
    assert_eq!((story.code(), story.signal()), (3, None));
    assert!(story.stdout_text().ends_with("bye\n"), "it had time to speak");

    client.shell("deaf", &format!("trap '' TERM; echo ready; {IDLE}")).await;
    let story = client.hears("deaf", "ready").await;
    assert!(client.terminate("deaf").await);
    let story = client.rest_of("deaf", story).await;
    assert_eq!((story.code(), story.signal()), (137, Some(9)));
    client.leave().await;
}

#[tokio::test]
async fn without_a_grace_that_runs_out_a_deaf_process_is_not_killed() {
    let mut client = Client::opened(limits().with_grace(Deadline::Never)).await;
    client.shell_with_stdin("p", "trap '' TERM; echo ready; read line; exit 8").await;
    let story = client.hears("p", "ready").await;
    assert!(client.terminate("p").await);
    // The grace of the other tests, twice.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(client.write("p", b"\n", "1").await, "accepted");
    assert_eq!(client.rest_of("p", story).await.code(), 8);
    client.leave().await;
}

#[tokio::test]
async fn terminate_says_whether_the_process_was_running_and_may_be_called_at_any_time() {
    let mut client = Client::opened(limits()).await;
    assert!(!client.terminate("nobody").await);
    client.shell("p", "exit 0").await;
    client.exited("p").await;
    assert!(!client.terminate("p").await, "its exit was told");
    let start = client.ask("process/start", start_params("q", &["sleep", "1000"], json!({}))).await;
    assert!(client.terminate("q").await, "right behind its start");
    assert!(client.reply(start).await["result"].is_object());
    assert_eq!(client.story("q").await.signal(), Some(15));
    client.leave().await;
}

#[tokio::test]
async fn a_stopped_process_hears_that_it_is_to_end() {
    let mut client = Client::opened(limits().with_grace(Deadline::Never)).await;
    client.shell("p", "trap 'exit 5' TERM; echo $$ ready; kill -STOP $$; while :; do sleep 0.05; done").await;
    let story = client.hears("p", "ready").await;
    let pid = story.stdout_text().split(' ').next().unwrap().to_owned();
    let stat = format!("/proc/{pid}/stat");
    until("it stops", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))).await;
    assert!(client.terminate("p").await);
    assert_eq!(client.rest_of("p", story).await.code(), 5);
    client.leave().await;
}

#[tokio::test]
async fn a_process_that_left_its_group_is_ended_all_the_same() {
    let mut client = Client::opened(limits()).await;
    let script = "$SIG{TERM} = 'IGNORE'; setpgrp(0, getpgrp(getppid())); $| = 1; print qq(ready\n); sleep 1000";
    for name in ["told", "left"] {
        client.start(name, &["perl", "-e", script], json!({"env": {"PATH": "/usr/bin:/bin"}})).await;
    }
    let story = client.hears("told", "ready").await;
    client.hears("left", "ready").await;
    assert!(client.terminate("told").await);
    assert_eq!(client.rest_of("told", story).await.signal(), Some(9));
    // The other is ended with the session.
    client.leave().await;
}

#[tokio::test]
async fn what_is_left_of_the_group_has_its_grace_too_and_is_killed_then() {
    let place = directory("rest-of-group");
    let mark = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let mut client = Client::opened(limits().with_grace(millis(1500))).await;
    // The leader is gone at once; two others of its group hold no pipe of its. One cleans up, one is deaf.
    let script = format!(
        "(trap 'sleep 0.3; echo > {done}; exit' TERM; echo > {polite}; {IDLE}) >/dev/null 2>&1 & \
         (trap '' TERM; sh -c 'echo $PPID' > {deaf}; {IDLE}) >/dev/null 2>&1 & exec sleep 1000",
        done = mark("done"),
        polite = mark("polite"),
        deaf = mark("deaf"),
    );
    client.shell("p", &script).await;
    until("both", || {
        place.join("polite").exists() && std::fs::read_to_string(mark("deaf")).is_ok_and(|pid| pid.ends_with('\n'))
    })
    .await;
    let pid = std::fs::read_to_string(mark("deaf")).unwrap();
    assert!(runs(&pid));
    assert!(client.terminate("p").await);
    assert_eq!(client.story("p").await.signal(), Some(15));
    assert!(place.join("done").exists(), "the one that cleans up had the time");
    assert!(!runs(&pid), "the deaf one is killed");
    client.leave().await;
}

// Rows 3 and 4.
#[tokio::test]
async fn while_a_write_waits_other_calls_are_answered_and_terminate_gets_in_at_once() {
    let limits = limits().with_stdin_bytes(at_most(64 * 1024)).with_write_wait(Deadline::Never);
    let mut client = Client::opened(limits).await;
    client.shell_with_stdin("p", &format!("echo ready; {IDLE}")).await;
    client.shell_with_stdin("q", "cat").await;
    let story = client.hears("p", "ready").await;
    let mut asked = Vec::new();
    for n in 0..10 {
        asked.push(client.ask("process/write", write_params("p", &[b'x'; 60_000], &n.to_string())).await);
    }
    assert_eq!(client.call("environment/status", json!({})).await["result"]["status"], "ready");
    assert_eq!(client.write("q", b"other", "1").await, "accepted", "another process takes its input");
    client.close_stdin("q").await;
    assert_eq!(client.story("q").await.stdout_text(), "other");
    let closing = client.ask("plimsoll/process/closeStdin", json!({"processId": "p"})).await;
    assert!(client.terminate("p").await);
    assert_eq!(client.rest_of("p", story).await.signal(), Some(15));
    let mut statuses = Vec::new();
    for id in asked {
        statuses.push(client.reply(id).await["result"]["status"].as_str().expect("a status").to_owned());
    }
    let accepted = statuses.iter().take_while(|status| *status == "accepted").count();
    assert!((1..10).contains(&accepted), "{statuses:?}");
    assert!(statuses[accepted..].iter().all(|status| status == "stdinClosed"), "{statuses:?}");
    assert_eq!(client.reply(closing).await["result"], json!({}));
    client.leave().await;
}

// Row 3.
#[tokio::test]
async fn of_130_writes_to_a_child_that_never_reads_each_is_taken_whole_or_refused_and_terminate_gets_in() {
    const CHUNK: usize = 64 * KIB;
    let room = 512 * KIB as u64;
    let mut client = Client::opened(limits().with_stdin_bytes(at_most(room)).with_write_wait(millis(300))).await;
    client.shell_with_stdin("p", &format!("echo ready; {IDLE}")).await;
    let story = client.hears("p", "ready").await;
    let mut asked = Vec::new();
    for n in 0..130 {
        asked.push(client.ask("process/write", write_params("p", &[b'x'; CHUNK], &n.to_string())).await);
    }
    let mut accepted = 0;
    let mut refused = 0;
    for id in asked {
        let reply = client.reply(id).await;
        if reply["result"]["status"] == "accepted" {
            assert_eq!(refused, 0, "the first that finds no room is refused, and so are those behind it");
            accepted += 1;
        } else {
            assert_eq!(error(&reply), (-31009, "writeWait".into()), "{reply}");
            assert_eq!(reply["error"]["data"]["retryable"], true);
            refused += 1;
        }
    }
    assert_eq!(accepted + refused, 130);
    // 512 KiB wait, and 64 KiB more are in the pipe itself; each write costs a little beside its bytes.
    assert!((8..=9).contains(&accepted), "{accepted} were accepted");
    assert!(client.terminate("p").await);
    assert_eq!(client.rest_of("p", story).await.signal(), Some(15));
    client.leave().await;
}

#[tokio::test]
async fn with_room_for_all_of_them_the_same_130_writes_are_accepted_and_arrive_in_order() {
    const CHUNK: usize = 64 * KIB;
    let place = directory("with-room");
    let go = place.join("go");
    let mut client = Client::opened(limits().with_stdin_bytes(at_most(16 * 1024 * 1024))).await;
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; exec cat", go.display());
    client.shell_with_stdin("p", &script).await;
    let mut asked = Vec::new();
    for n in 0..130_u8 {
        asked.push(client.ask("process/write", write_params("p", &[n; CHUNK], &n.to_string())).await);
    }
    for id in asked {
        assert_eq!(client.reply(id).await["result"]["status"], "accepted");
    }
    std::fs::write(go, "").unwrap();
    client.close_stdin("p").await;
    let story = client.story("p").await;
    let wanted: Vec<u8> = (0..130_u8).flat_map(|n| [n; CHUNK]).collect();
    assert!(story.stdout == wanted, "{} bytes", story.stdout.len());
    assert!(story.largest_chunk <= 8 * KIB, "a chunk has 8 KiB at most: {}", story.largest_chunk);
    client.leave().await;
}

#[tokio::test]
async fn a_write_larger_than_the_whole_room_goes_when_nothing_else_waits() {
    let mut client = Client::opened(limits().with_stdin_bytes(at_most(1_000))).await;
    client.shell_with_stdin("p", "wc -c").await;
    for n in 0..3 {
        assert_eq!(client.write("p", &[b'x'; 300_000], &n.to_string()).await, "accepted");
    }
    assert_eq!(client.write("p", b"", "nothing").await, "accepted");
    client.close_stdin("p").await;
    assert_eq!(client.story("p").await.stdout_text().trim(), "900000");
    client.leave().await;
}

#[tokio::test]
async fn a_write_that_was_refused_can_be_tried_again_under_its_id_and_arrives_once() {
    let go = directory("refused-then-taken").join("go");
    let mut client = Client::opened(limits().with_stdin_bytes(at_most(1_000)).with_write_wait(millis(50))).await;
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; exec wc -c", go.display());
    client.shell_with_stdin("p", &script).await;
    let mut refused = 0;
    for n in 0..3 {
        let params = write_params("p", &[b'x'; 100_000], &n.to_string());
        while client.call("process/write", params.clone()).await["error"]["code"] == -31009 {
            refused += 1;
            if refused == 3 {
                std::fs::write(&go, "").unwrap();
            }
        }
    }
    assert!(refused >= 3, "the control");
    client.close_stdin("p").await;
    assert_eq!(client.story("p").await.stdout_text().trim(), "300000");
    client.leave().await;
}

#[tokio::test]
async fn a_write_that_comes_again_under_its_id_is_accepted_and_not_written_again() {
    let mut client = Client::opened(limits().with_write_ids(at_most(2))).await;
    client.shell_with_stdin("p", "cat").await;
    // Two ids are remembered: when `a` comes the third time it was forgotten.
    for (id, bytes) in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("b", "5"), ("c", "6"), ("a", "7")] {
        assert_eq!(client.write("p", bytes.as_bytes(), id).await, "accepted", "{id}");
    }
    client.close_stdin("p").await;
    assert_eq!(client.story("p").await.stdout_text(), "1367");
    client.shell_with_stdin("q", "cat").await;
    assert_eq!(client.write("q", b"x", "a").await, "accepted");
    client.close_stdin("q").await;
    assert_eq!(client.story("q").await.stdout_text(), "x", "another process has its own ids");
    client.leave().await;
}

// Row 7.
#[tokio::test]
async fn a_write_after_the_exit_is_told_that_nobody_reads() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", "exit 0").await;
    client.exited("p").await;
    assert_eq!(client.write("p", b"x", "1").await, "stdinClosed");
    client.close_stdin("p").await;
    assert_eq!(client.write("nobody", b"x", "1").await, "unknownProcess");
    let reply = client.call("plimsoll/process/closeStdin", json!({"processId": "nobody"})).await;
    assert_eq!(error(&reply).0, -32600);
    for params in [
        json!({"processId": "p", "chunk": "aGk", "writeId": "1"}),
        json!({"processId": "p", "chunk": "aGkK", "writeId": ""}),
        json!({"processId": "p", "chunk": "aGkK"}),
    ] {
        assert_eq!(error(&client.call("process/write", params).await).0, -32602);
    }
    client.leave().await;
}

#[tokio::test]
async fn a_process_that_closes_its_input_and_lives_is_told_of_too() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", &format!("exec <&-; echo ready; {IDLE}")).await;
    client.hears("p", "ready").await;
    let status = within("the end of its input", async {
        for n in 0.. {
            let status = client.write("p", b"x", &n.to_string()).await;
            if status != "accepted" {
                return status;
            }
        }
        unreachable!()
    })
    .await;
    assert_eq!(status, "stdinClosed");
    assert!(client.terminate("p").await, "it still runs");
    client.leave().await;
}

#[tokio::test]
async fn closing_stdin_ends_it_after_what_was_accepted() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", "wc -c").await;
    for n in 0..10 {
        assert_eq!(client.write("p", &[b'x'; 50_000], &n.to_string()).await, "accepted");
    }
    client.close_stdin("p").await;
    client.close_stdin("p").await;
    assert_eq!(client.story("p").await.stdout_text().trim(), "500000");
    client.leave().await;
}

#[tokio::test]
async fn start_write_and_close_sent_without_waiting_take_effect_in_that_order() {
    let mut client = Client::opened(limits()).await;
    for n in 0..20 {
        let id = format!("p{n}");
        client.ask("process/start", start_params(&id, &["cat"], json!({"pipeStdin": true}))).await;
        client.ask("process/write", write_params(&id, b"one ", "1")).await;
        client.ask("process/write", write_params(&id, b"two", "2")).await;
        client.ask("plimsoll/process/closeStdin", json!({"processId": id})).await;
        let late = client.ask("process/write", write_params(&id, b"three", "3")).await;
        assert_eq!(client.reply(late).await["result"]["status"], "stdinClosed");
        let story = client.story(&id).await;
        assert_eq!((story.code(), story.stdout_text().as_str()), (0, "one two"));
    }
    client.leave().await;
}

// Row 21.
#[tokio::test]
async fn a_grandchild_that_holds_stdout_neither_holds_up_the_close_nor_is_stopped_by_it() {
    let place = directory("grandchild");
    let (go, done) = (place.join("go"), place.join("done"));
    let mut client = Client::opened(limits()).await;
    // Once told, the grandchild writes more than a pipe holds: were nobody reading, it would be stuck or killed.
    let script = format!(
        "(echo $$ early; while [ ! -e '{}' ]; do sleep 0.02; done; head -c 300000 /dev/zero && echo fine > '{}') & \
         echo own output; exit 4",
        go.display(),
        done.display()
    );
    client.shell("p", &script).await;
    let story = client.story("p").await;
    assert_eq!(story.code(), 4);
    assert!(story.stdout_text().contains("own output"), "{story:?}");
    assert!(!done.exists(), "the close came while the grandchild held the pipe");
    std::fs::write(go, "").unwrap();
    until("the grandchild", || done.exists()).await;
    assert_eq!(client.call("environment/status", json!({})).await["result"]["status"], "ready");
    client.end();
    assert_eq!(client.next().await, None, "nothing is said of a process that was closed");
    client.leave().await;
}

#[tokio::test]
async fn a_grandchild_that_ends_within_grace_is_heard_to_its_end_and_not_waited_for_longer() {
    // Were the close to wait for the grace, this would be waiting in vain.
    let mut client = Client::opened(limits().with_grace(Deadline::seconds(3_600))).await;
    client.shell("p", "(sleep 0.2; echo late) & echo early; exit 0").await;
    assert_eq!(client.story("p").await.stdout_text(), "early\nlate\n");
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_floods_both_pipes_is_heard_completely() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", "head -c 3000000 /dev/zero & head -c 3000001 /dev/zero >&2; wait").await;
    let story = client.story("p").await;
    assert_eq!((story.stdout.len(), story.stderr.len(), story.code()), (3_000_000, 3_000_001, 0));
    client.leave().await;
}

#[tokio::test]
async fn when_the_client_leaves_its_processes_are_told_and_have_their_grace() {
    let place = directory("leaves");
    let said = place.join("said");
    let mut client = Client::opened(limits().with_grace(Deadline::seconds(5))).await;
    client.shell("p", &format!("trap 'sleep 0.1; echo bye > {}; exit' TERM; echo $$; {IDLE}", said.display())).await;
    client.shell("deaf", &format!("echo $$; {IDLE}")).await;
    let pids = [client.hears("p", "\n").await.stdout_text(), client.hears("deaf", "\n").await.stdout_text()];
    assert!(pids.iter().all(|pid| runs(pid)), "the control");
    client.leave().await;
    assert_eq!(std::fs::read_to_string(said).unwrap(), "bye\n");
    assert!(pids.iter().all(|pid| state(pid).is_none()), "ended and reaped");
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_ends_its_processes_and_says_how_they_ended() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", &format!("trap 'echo bye; exit 5' TERM; echo ready; {IDLE}")).await;
    client.shell("deaf", &format!("trap '' TERM; echo ready; {IDLE}")).await;
    let story = client.hears("p", "ready").await;
    let deaf = client.hears("deaf", "ready").await;
    client.stop();
    let story = client.rest_of("p", story).await;
    assert_eq!(story.code(), 5);
    assert!(story.stdout_text().ends_with("bye\n"));
    assert_eq!(client.rest_of("deaf", deaf).await.signal(), Some(9));
    assert_eq!(client.next().await, None, "and that is the end, though this side has not ended its input");
    client.leave().await;
}

// Case 56.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_dropped_kills_its_processes_at_once() {
    let said = directory("dropped").join("said");
    let mut client = Client::opened(limits().with_grace(Deadline::seconds(3_600))).await;
    client.shell("p", &format!("trap 'echo bye > {}; exit' TERM; echo $$; {IDLE}", said.display())).await;
    let pid = client.hears("p", "\n").await.stdout_text();
    assert!(runs(&pid), "the control");
    client.serving.abort();
    until("its end", || state(&pid).is_none()).await;
    assert!(!said.exists(), "it was not asked");
}

#[tokio::test]
async fn a_grandchild_left_behind_by_a_process_that_was_closed_is_not_ended_with_the_session() {
    let pid_file = directory("left-behind").join("pid");
    let mut client = Client::opened(limits()).await;
    client.shell("p", &format!("sleep 1000 >/dev/null 2>&1 & echo $! > {}", pid_file.display())).await;
    client.story("p").await;
    client.leave().await;
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(runs(&pid), "a daemon is a daemon; row 22 of PROTOCOL section 8 is about those of running processes");
    kill(&pid);
}

#[tokio::test]
async fn a_write_that_fills_the_largest_message_is_taken_whole() {
    let mut client = Client::opened(plimsoll_exec::Limits::exec()).await;
    client.shell_with_stdin("p", "wc -c").await;
    // 46 MiB are 61.3 MiB as base64, below the 64 MiB of a message.
    let bytes = 46 << 20;
    assert_eq!(client.write("p", &vec![b'x'; bytes], "1").await, "accepted");
    client.close_stdin("p").await;
    assert_eq!(client.story("p").await.stdout_text().trim(), bytes.to_string());
    client.leave().await;
}
