//! `plimsoll run` behaves like the command that it runs; what goes wrong is told in one line, and nothing hangs or is left.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{
    Ended, Running, children_of, directory, finish, finish_with, number_in, program, run, runs, until, until_gone,
};
use plimsoll_testkit::rng::Rng;
use plimsoll_testkit::rss::peak_rss_kib;
use rustix::process::Signal;

const IDLE: &str = "while :; do sleep 0.05; done";

fn shell(script: &str) -> Command {
    run(&["--grace", "300ms", "--", "sh", "-c", script])
}

#[test]
fn uname_says_what_it_says_by_itself() {
    let itself = Command::new("uname").arg("-a").output().unwrap();
    let ended = finish(&mut run(&["--", "uname", "-a"]));
    assert_eq!((ended.code(), ended.stdout, ended.stderr.as_str()), (0, itself.stdout, ""));
    let ended = finish(&mut run(&["uname", "-a"]));
    assert_eq!(ended.code(), 0, "the dashes before the command can be left out");
}

#[test]
fn the_exit_code_is_the_commands_own() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ] {
        let ended = finish(&mut shell(script));
        assert_eq!((ended.code(), ended.stderr.as_str()), (code, ""), "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_told_in_one_line_with_127_or_126() {
    let place = directory("cannot-run");
    program(&place.join("plain"), "no program", "644");
    program(&place.join("text"), "no program", "755");
    program(&place.join("orphan"), "#!/nonexistent/interpreter\n", "755");
    let [plain, text, orphan] = ["plain", "text", "orphan"].map(|name| place.join(name).to_str().unwrap().to_owned());
    for (command, code, said) in [
        ("plimsoll-no-such-command", 127, "no program"),
        ("/nonexistent/command", 127, "no program"),
        (plain.as_str(), 126, "permission denied"),
        ("/", 126, "permission denied"),
        ("/etc/passwd/x", 126, "no directory"),
        (text.as_str(), 126, "no program that can be run"),
        (orphan.as_str(), 127, "interpreter"),
    ] {
        let ended = finish(&mut run(&["--", command]));
        let line = ended.one_line(code);
        assert!(line.contains(said) && line.contains(command), "{line}");
        assert_eq!(ended.stdout, b"");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_in_one_line_with_125() {
    for arguments in [
        &[][..],
        &["--"],
        &["--no-such-flag", "--", "true"],
        &["--env", "NOVALUE", "--", "true"],
        &["--env", "=value", "--", "true"],
        &["--cwd"],
        &["--depth", "0", "--", "true"],
        &["--grace", "soon", "--", "true"],
    ] {
        let ended = finish(&mut run(arguments));
        ended.one_line(125);
        assert_eq!(ended.stdout, b"", "{arguments:?}");
    }
    let mut command = run(&["--", "echo"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff"));
    assert!(finish(&mut command).one_line(125).contains("UTF-8"), "an argument that the protocol cannot carry");
    let ended = finish(&mut run(&["--", ""]));
    assert!(ended.one_line(125).contains("argv"), "an empty name");
}

#[test]
fn cwd_is_where_the_command_starts_and_a_bad_one_is_told() {
    let place = directory("cwd").canonicalize().unwrap();
    std::fs::create_dir(place.join("in here")).unwrap();
    std::fs::write(place.join("file"), "").unwrap();
    let pwd = |arguments: &[&str]| finish(run(arguments).args(["--", "pwd"]).current_dir(&place));
    let line = |path: &Path| format!("{}\n", path.display());
    assert_eq!(pwd(&[]).stdout_text(), line(&place));
    assert_eq!(pwd(&["--cwd", "in here"]).stdout_text(), line(&place.join("in here")));
    assert_eq!(pwd(&["--cwd", "in here/.."]).stdout_text(), line(&place));
    assert_eq!(pwd(&["--cwd", "/"]).stdout_text(), "/\n");
    for bad in ["missing", "file", "file/x", "/nonexistent/directory"] {
        let ended = pwd(&["--cwd", bad]);
        assert!(ended.one_line(125).contains(bad), "{}", ended.stderr);
        assert_eq!(ended.stdout, b"");
    }
}

#[test]
fn the_environment_is_ours_with_what_env_sets_on_top() {
    let mut command = run(&["--env", "SET=a=b c", "--env", "OURS=replaced", "--env", "EMPTY=", "--", "env"]);
    command.env("OURS", "first").env("KEPT_SECRET_KEY", "kept").env("EMPTY", "full");
    let ended = finish(&mut command);
    let lines = ended.stdout_text();
    for wanted in ["SET=a=b c", "OURS=replaced", "EMPTY=", "KEPT_SECRET_KEY=kept"] {
        assert!(lines.lines().any(|line| line == wanted), "{wanted} in {lines}");
    }
    assert!(!lines.contains("OURS=first"));
}

#[test]
fn stdin_is_passed_on_to_its_end_wherever_it_comes_from() {
    let every_byte: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let ended = finish_with(&mut run(&["--", "cat"]), &every_byte);
    assert_eq!((ended.code(), ended.stdout == every_byte, ended.stderr.as_str()), (0, true, ""));
    assert_eq!(finish_with(&mut run(&["--", "wc", "-c"]), b"").stdout_text().trim(), "0");
    assert_eq!(finish_with(&mut run(&["--", "cat"]), b"no newline").stdout, b"no newline");

    let file = directory("stdin").join("file");
    std::fs::write(&file, "from a file").unwrap();
    assert_eq!(finish(run(&["--", "cat"]).stdin(File::open(&file).unwrap())).stdout, b"from a file");
    assert_eq!(finish(run(&["--", "wc", "-c"]).stdin(Stdio::null())).stdout_text().trim(), "0");

    // Closed, and one that cannot be read.
    let script = format!("exec '{}' run -- wc -c <&-", env!("CARGO_BIN_EXE_plimsoll"));
    let ended = finish(Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code(), ended.stdout_text().trim()), (0, "0"), "{}", ended.stderr);
    let ended = finish(run(&["--", "wc", "-c"]).stdin(File::open("/").unwrap()));
    assert_eq!(ended.stdout_text().trim(), "0");
    assert!(ended.one_line(0).contains("stdin"), "{}", ended.stderr);
}

#[test]
fn a_command_that_is_asked_while_it_reads_answers_at_once() {
    let mut running = Running::new(run(&["--", "cat"]).stdin(Stdio::piped()));
    let mut stdin = running.stdin.take().unwrap();
    for word in ["one", "two", "three"] {
        stdin.write_all(word.as_bytes()).unwrap();
        running.stdout.until(word);
    }
    drop(stdin);
    assert_eq!(running.end().stdout, b"onetwothree");
}

#[test]
fn stdout_and_stderr_stay_apart_byte_for_byte() {
    let place = directory("apart");
    let mut bytes: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    std::fs::write(place.join("out"), &bytes).unwrap();
    bytes.reverse();
    std::fs::write(place.join("err"), &bytes).unwrap();
    let mut command = run(&["--", "sh", "-c", "cat out & cat err >&2; wait"]);
    let child = command.current_dir(&place).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, std::fs::read(place.join("out")).unwrap());
    assert_eq!(output.stderr, bytes);
}

#[test]
fn an_interrupt_is_the_commands_to_answer_and_its_code_is_kept() {
    let running = Running::new(&mut shell(&format!("trap 'exit 42' INT; echo ready; {IDLE}")));
    running.stdout.until("ready");
    running.signal(Signal::INT);
    assert_eq!(running.end().code(), 42);

    let running = Running::new(&mut shell("echo ready; exec sleep 1000"));
    running.stdout.until("ready");
    running.signal(Signal::INT);
    assert_eq!(running.end().code(), 130, "a command that does not answer it ends by it");
}

#[test]
fn the_third_interrupt_ends_a_command_that_ignores_them() {
    let running = Running::new(&mut shell(&format!("trap 'echo heard' INT; echo ready $$; {IDLE}")));
    let pid = running.stdout.until("\n").replace("ready ", "");
    running.signal(Signal::INT);
    running.stdout.until("heard");
    running.signal(Signal::INT);
    running.stdout.until("heard\nheard");
    assert!(runs(&pid), "the control: two do not");
    running.signal(Signal::INT);
    assert_eq!(running.end().code(), 143);
    until_gone(&[pid.trim()]);
}

#[test]
fn a_told_end_is_passed_on_and_the_commands_code_is_kept() {
    for (signal, script, code) in [
        (Signal::TERM, "exec sleep 1000", 143),
        (Signal::HUP, "exec sleep 1000", 143),
        (Signal::TERM, "trap 'exit 9' TERM; while :; do sleep 0.05; done", 9),
        (Signal::TERM, "trap '' TERM; while :; do sleep 0.05; done", 137),
    ] {
        let running = Running::new(&mut shell(&format!("echo $$; {script}")));
        let pid = running.stdout.until("\n");
        let server = children_of(running.pid());
        assert_eq!(server.len(), 1);
        running.signal(signal);
        assert_eq!(running.end().code(), code, "{script}");
        until_gone(&[pid.trim().to_owned(), server[0].to_string()]);
    }
}

#[test]
fn what_was_ignored_from_the_start_stays_ignored_as_nohup_means_it() {
    let place = directory("nohup");
    for (ignored, code) in [("trap '' HUP INT;", 0), ("", 143)] {
        let go = place.join(format!("go{code}"));
        let script = format!("echo ready; while [ ! -e '{}' ]; do sleep 0.05; done", go.display());
        let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
        let mut command = Command::new("sh");
        command.args(["-c", &format!(r#"{ignored} exec "$0" run -- sh -c "$1""#), plimsoll, &script]);
        let running = Running::new(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        running.stdout.until("ready");
        running.signal(Signal::HUP);
        if code == 0 {
            running.signal(Signal::INT);
            std::thread::sleep(Duration::from_millis(300));
            std::fs::write(go, "").unwrap();
        }
        assert_eq!(running.end().code(), code);
    }
}

#[test]
fn a_command_that_floods_can_be_interrupted_and_ended() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut running = Running::but_deaf_to_stdout(&mut run(&["--", "cat", "/dev/zero"]));
        let mut stdout = running.child.stdout.take().unwrap();
        let mut piece = vec![0; 64 * 1024];
        // So much that every queue on the way is full.
        for _ in 0..500 {
            assert!(stdout.read(&mut piece).unwrap() > 0);
        }
        running.signal(signal);
        let reading = std::thread::spawn(move || while let Ok(1..) = stdout.read(&mut piece) {});
        assert_eq!(running.end().code(), code);
        reading.join().unwrap();
    }
}

#[test]
fn an_end_that_is_told_comes_though_nobody_reads_what_the_command_wrote() {
    let running = Running::but_deaf_to_stdout(&mut shell("echo $$ >&2; exec cat /dev/zero"));
    let pid = running.stderr.until("\n");
    let server = children_of(running.pid());
    running.signal(Signal::TERM);
    assert_eq!(running.end().code(), 143);
    until_gone(&[pid.trim().to_owned(), server[0].to_string()]);
}

#[test]
fn a_reader_that_leaves_ends_the_command_as_a_broken_pipe_would() {
    let pid_file = directory("reader-leaves").join("pid");
    for writer in ["exec cat /dev/zero", "exec yes", "while :; do echo line; sleep 0.01; done"] {
        let _ = std::fs::remove_file(&pid_file);
        let script = format!("echo $$ > {}; {writer}", pid_file.display());
        let mut running = Running::but_deaf_to_stdout(&mut shell(&script));
        let mut stdout = running.child.stdout.take().unwrap();
        assert!(stdout.read(&mut [0; 100]).unwrap() > 0);
        drop(stdout);
        let ended = running.end();
        assert_eq!((ended.code(), ended.stderr.as_str()), (141, ""), "{writer}");
        until_gone(&[number_in(&pid_file)]);
    }
}

#[test]
fn a_reader_of_stderr_that_leaves_ends_the_command_too() {
    let mut command = run(&["--grace", "300ms", "--", "sh", "-c", "exec yes >&2"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let mut status = None;
    until("the end of a command whose stderr nobody reads", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(141));
}

/// Watches the most resident memory of `plimsoll run` and of its server until both are gone.
fn watch_memory(pid: u32) -> JoinHandle<(u64, u64)> {
    std::thread::spawn(move || {
        let (mut run, mut server) = (0, 0);
        while let Ok(now) = peak_rss_kib(pid) {
            run = now.max(run);
            for child in children_of(pid) {
                // Before it is what it will be it is a copy of its parent.
                server = peak_rss_kib(child).unwrap_or(0).max(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        (run, server)
    })
}

const MANY: usize = 200_000_000;
const FLAT_KIB: u64 = 32 * 1024;

#[test]
fn two_hundred_megabytes_come_out_complete_and_in_flat_memory() {
    let many = MANY.to_string();
    let mut running = Running::but_deaf_to_stdout(&mut run(&["--", "head", "-c", &many, "/dev/zero"]));
    let mut stdout = running.child.stdout.take().unwrap();
    let watching = watch_memory(running.pid());
    let (mut bytes, mut piece) = (0, vec![1; 256 * 1024]);
    while let read @ 1.. = stdout.read(&mut piece).unwrap() {
        assert!(piece[..read].iter().all(|byte| *byte == 0));
        bytes += read;
    }
    assert_eq!((bytes, running.end().code()), (MANY, 0));
    let (run, server) = watching.join().unwrap();
    assert!(run > 0 && server > 0, "the control: it was measured");
    assert!(run < FLAT_KIB && server < FLAT_KIB, "{run} KiB and {server} KiB at the peak");
}

/// The same bytes for the same seed, in pieces.
fn pieces(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(move || (0..12_500).flat_map(|_| rng.next_u64().to_le_bytes()).collect())
}

#[test]
fn two_hundred_megabytes_go_in_and_come_out_as_they_were_and_in_flat_memory() {
    let mut running = Running::but_deaf_to_stdout(run(&["--", "cat"]).stdin(Stdio::piped()));
    let (mut stdin, mut stdout) = (running.stdin.take().unwrap(), running.child.stdout.take().unwrap());
    let watching = watch_memory(running.pid());
    let count = MANY / 100_000;
    let feeding = std::thread::spawn(move || pieces(1).take(count).for_each(|piece| stdin.write_all(&piece).unwrap()));
    let mut came = vec![0; 100_000];
    for piece in pieces(1).take(count) {
        stdout.read_exact(&mut came).unwrap();
        assert!(came == piece);
    }
    assert_eq!(stdout.read(&mut came).unwrap(), 0, "and nothing more");
    feeding.join().unwrap();
    assert_eq!(running.end().code(), 0);
    let (run, server) = watching.join().unwrap();
    assert!(run > 0 && server > 0, "the control: it was measured");
    assert!(run < FLAT_KIB && server < FLAT_KIB, "{run} KiB and {server} KiB at the peak");
}

#[test]
fn a_command_that_ignores_its_input_holds_nothing_up_and_costs_nothing() {
    for (script, code) in [("sleep 0.3; exit 4", 4), ("exit 5", 5), ("exec <&-; sleep 0.3; exit 6", 6)] {
        let mut running = Running::new(run(&["--", "sh", "-c", script]).stdin(Stdio::piped()));
        let mut stdin = running.stdin.take().unwrap();
        let watching = watch_memory(running.pid());
        let feeding = std::thread::spawn(move || {
            let piece = vec![b'x'; 1 << 20];
            (0..50).take_while(|_| stdin.write_all(&piece).is_ok()).count()
        });
        let ended = running.end();
        assert_eq!((ended.code(), ended.stderr.as_str()), (code, ""), "{script}");
        assert!(feeding.join().unwrap() < 50, "the control: nobody read it all");
        let (run, server) = watching.join().unwrap();
        assert!(run < FLAT_KIB && server < FLAT_KIB, "{run} KiB and {server} KiB at the peak");
    }
}

#[test]
fn what_the_command_leaves_in_the_background_does_not_hold_up_the_end() {
    let pid_file = directory("background").join("pid");
    let script = format!("sleep 1000 & echo $! > {}; echo done; exit 3", pid_file.display());
    let ended = finish(&mut shell(&script));
    assert_eq!((ended.code(), ended.stdout_text().as_str()), (3, "done\n"));
    let pid = number_in(&pid_file);
    assert!(runs(&pid), "as without plimsoll, it lives on");
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_reader_that_pauses_for_longer_than_the_stall_deadline_loses_nothing_unless_it_was_asked_for() {
    const BYTES: usize = 40_000_000;
    let bytes = BYTES.to_string();
    let command = ["--", "head", "-c", &bytes, "/dev/zero"];
    for (flags, is_complete) in [(&[][..], true), (&["--stall-deadline", "300ms"][..], false)] {
        let mut running = Running::but_deaf_to_stdout(run(flags).args(command));
        let mut stdout = running.child.stdout.take().unwrap();
        until("the server", || !children_of(running.pid()).is_empty());
        let server = children_of(running.pid())[0];
        until("its arguments", || {
            std::fs::read_to_string(format!("/proc/{server}/cmdline")).is_ok_and(|text| text.contains("stdio"))
        });
        let arguments = std::fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
        assert_eq!(arguments.contains("--stall-deadline\0off"), is_complete, "{arguments:?}");
        std::thread::sleep(Duration::from_millis(1_500));
        let (mut read, mut piece) = (0, vec![0; 64 * 1024]);
        while let more @ 1.. = stdout.read(&mut piece).unwrap() {
            read += more;
        }
        let ended = running.end();
        if is_complete {
            assert_eq!((read, ended.code()), (BYTES, 0), "{}", ended.stderr);
        } else {
            assert!(read < BYTES);
            ended.one_line(125);
        }
    }
}

/// A server for `--server` that is a shell script; it writes its number into the file beside it.
fn server(name: &str, script: &str) -> (PathBuf, PathBuf) {
    let place = directory(&format!("server-{name}"));
    let (path, pid_file) = (place.join(name), place.join("pid"));
    program(&path, &format!("#!/bin/sh\necho $$ > '{}'\n{script}\n", pid_file.display()), "755");
    (path, pid_file)
}

/// Runs `true` on such a server, which must fail.
fn fail_on(name: &str, flags: &[&str], script: &str) -> Ended {
    let (path, pid_file) = server(name, script);
    let ended = finish(run(flags).arg("--server").arg(&path).args(["--", "true"]));
    until_gone(&[number_in(&pid_file)]);
    assert_eq!(ended.stdout, b"");
    ended
}

/// Reads the first request and knows its id.
const READ_ID: &str = r#"read line; id=$(printf '%s' "$line" | sed 's/.*"id":\([-0-9]*\).*/\1/')"#;

#[test]
fn a_server_that_does_not_exist_is_told_by_name() {
    let ended = finish(&mut run(&["--server", "/nonexistent/server", "--", "true"]));
    assert!(ended.one_line(125).contains("/nonexistent/server"), "{}", ended.stderr);
}

#[test]
fn a_server_that_dies_at_once_is_told_with_its_code_and_its_last_words() {
    let ended = fail_on("dies", &[], "echo first >&2; echo 'cannot bind: out of luck' >&2; exit 3");
    let line = ended.one_line(125);
    assert!(line.contains("exit status: 3") && line.contains("cannot bind: out of luck"), "{line}");
    assert!(!line.contains("first"), "the last words, not all of them: {line}");

    let ended = fail_on("killed", &[], "kill -KILL $$");
    assert!(ended.one_line(125).contains("signal: 9"), "{}", ended.stderr);

    // Much on stderr, and escapes that a terminal would obey.
    let noisy = r"head -c 300000 /dev/zero | tr '\0' e >&2; printf '\n\033[31mlast\007\n' >&2; exit 4";
    let ended = fail_on("noisy", &[], noisy);
    let line = ended.one_line(125);
    assert!(line.contains("last") && !line.contains('\u{1b}') && !line.contains('\u{7}'), "{line:?}");
}

#[test]
fn a_server_that_speaks_nonsense_and_dies_is_told_so() {
    let ended = fail_on("nonsense", &[], "echo hello; echo '<html>'; exit 1");
    let line = ended.one_line(125);
    assert!(
        line.contains("exit status: 1") && line.contains("2 of the exec-server's lines were no messages"),
        "{line}"
    );
}

#[test]
fn a_server_that_speaks_nonsense_and_hangs_is_given_up_at_the_call_deadline() {
    let ended = fail_on("hangs", &["--call-deadline", "1s"], "echo hello; exec sleep 1000");
    let line = ended.one_line(125);
    assert!(line.contains("call deadline") || line.contains("callDeadline") || line.contains("1000"), "{line}");
    let ended = fail_on("deaf", &["--call-deadline", "200ms"], "trap '' TERM; while :; do sleep 0.05; done");
    ended.one_line(125);
}

#[test]
fn a_server_that_closes_its_stdout_and_lives_is_ended() {
    let ended = fail_on("closes", &["--grace", "300ms"], "exec >&-; exec sleep 1000");
    assert!(ended.one_line(125).contains("closed"), "{}", ended.stderr);
}

#[test]
fn a_server_that_refuses_the_session_is_quoted() {
    let script = format!(
        r#"{READ_ID}; printf '{{"id":%s,"error":{{"code":-32600,"message":"not today"}}}}\n' "$id"; exec sleep 1000"#
    );
    let ended = fail_on("refuses", &["--grace", "300ms"], &script);
    let line = ended.one_line(125);
    assert!(line.contains("not today") && line.contains("-32600"), "{line}");
}

#[test]
fn a_server_whose_answer_is_over_a_limit_or_of_another_shape_is_told_so() {
    let long = format!(
        r#"{READ_ID}; printf '{{"id":%s,"result":{{"x":"' "$id"; head -c 2000000 /dev/zero | tr '\0' x; echo '"}}}}'; exec sleep 1000"#
    );
    let ended = fail_on("long", &["--grace", "300ms", "--message-bytes", "1MiB"], &long);
    let line = ended.one_line(125);
    assert!(line.contains("1048576"), "the limit is named: {line}");

    let other = format!(r#"{READ_ID}; printf '{{"id":%s,"result":[]}}\n' "$id"; exec sleep 1000"#);
    let ended = fail_on("other", &["--grace", "300ms"], &other);
    assert!(ended.one_line(125).contains("does not fit"), "{}", ended.stderr);

    let endless = "exec cat /dev/zero";
    let ended = fail_on("endless", &["--grace", "300ms", "--message-bytes", "64KiB", "--skip-bytes", "1MiB"], endless);
    assert!(ended.one_line(125).contains("1048576"), "{}", ended.stderr);
}

#[test]
fn a_server_that_is_killed_while_the_command_runs_is_told_in_one_line() {
    let mut running = Running::new(shell("echo ready; exec cat").stdin(Stdio::piped()));
    running.stdout.until("ready");
    let server = children_of(running.pid());
    // Input goes on, so that a write fails too.
    let mut stdin = running.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || while stdin.write_all(&[b'x'; 1000]).is_ok() {});
    running.stdout.until("xxxx");
    let pid = rustix::process::Pid::from_raw(i32::try_from(server[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let ended = running.end();
    assert!(ended.one_line(125).contains("signal: 9"), "{}", ended.stderr);
    feeding.join().unwrap();
}

// Case 60 of CASES.md.
#[test]
fn when_run_is_killed_its_server_and_the_command_end() {
    let place = directory("run-killed");
    let (pid_file, bye) = (place.join("pid"), place.join("bye"));
    let script = format!("trap 'echo > {}; exit' TERM; echo $$ > {}; {IDLE}", bye.display(), pid_file.display());
    // Held open from here, so that it is the end of `run` that counts.
    let running = Running::new(shell(&script).stdin(Stdio::piped()));
    let command = number_in(&pid_file);
    let server = children_of(running.pid());
    assert!(runs(&command) && runs(&server[0].to_string()), "the control");
    running.signal(Signal::KILL);
    until_gone(&[command, server[0].to_string()]);
    assert!(bye.exists(), "the command was told first");
    let mut running = running;
    until("its end", || running.has_ended());
}

#[test]
fn nothing_is_left_when_run_has_ended() {
    for (n, script) in ["exit 0", "kill -KILL $$", "echo out; echo err >&2; exit 1"].into_iter().enumerate() {
        let place = directory(&format!("left-{n}"));
        let (pid_file, go) = (place.join("pid"), place.join("go"));
        let wait = format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done", pid_file.display(), go.display());
        let running = Running::new(&mut shell(&format!("{wait}; {script}")));
        let command = number_in(&pid_file);
        let server = children_of(running.pid());
        assert!(runs(&command) && server.len() == 1, "the control");
        std::fs::write(go, "").unwrap();
        running.end();
        assert!(!runs(&command), "the command");
        assert!(!runs(&server[0].to_string()), "the server is waited for");
    }
}

#[test]
fn limits_within_which_nothing_could_be_carried_are_refused_by_name() {
    for (flag, value) in [("--memory", "512KiB"), ("--cap", "64KiB"), ("--message-bytes", "1KiB")] {
        let ended = finish(&mut run(&[flag, value, "--", "true"]));
        let line = ended.one_line(125);
        assert!(line.contains(flag) && line.contains("at least"), "{line}");
    }
    let control = finish(&mut run(&["--memory", "1MiB", "--message-bytes", "64KiB", "--", "seq", "100000"]));
    assert_eq!((control.code(), control.stdout.len()), (0, 588_895), "{}", control.stderr);
}

#[test]
fn output_that_cannot_be_read_ends_the_command_and_is_told_once() {
    let ended = fail_on(
        "bad-output",
        &[],
        r#"
        read line; echo '{"id":1,"result":{"sessionId":"s","environmentInfo":{"shell":{"name":"sh","path":"/bin/sh"}}}}'
        read line; read line; echo '{"id":2,"result":{"processId":"p1"}}'
        for n in 1 2 3; do echo '{"method":"process/output","params":{"processId":"p1","seq":1}}'; done
        while read line; do :; done"#,
    );
    assert!(ended.one_line(125).contains("cannot lose one"), "{}", ended.stderr);
}

#[test]
fn an_exit_code_that_does_not_fit_is_no_success() {
    let ended = fail_on(
        "big-exit",
        &[],
        r#"
        read line; echo '{"id":1,"result":{"sessionId":"s","environmentInfo":{"shell":{"name":"sh","path":"/bin/sh"}}}}'
        read line; read line; echo '{"id":2,"result":{"processId":"p1"}}'
        echo '{"method":"process/exited","params":{"processId":"p1","seq":1,"exitCode":256}}'
        echo '{"method":"process/closed","params":{"processId":"p1","seq":2}}'
        while read line; do :; done"#,
    );
    assert_eq!(ended.code(), 255);
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = run(&["--", "sh", "-c", "echo out; exit 3"]);
    let output = command.stderr(full()).stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"out\n"[..]));
}

#[test]
fn a_limit_that_is_given_holds_for_the_server_too() {
    let ended = finish(&mut run(&["--depth", "2", "--", "true"]));
    // The environment that the server tells of is deeper than that: the client refuses it.
    assert!(ended.one_line(125).contains("depth"), "{}", ended.stderr);
    assert_eq!(finish(&mut run(&["--depth", "20", "--", "true"])).code(), 0, "the control");
}
