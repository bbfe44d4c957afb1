//! `plimsoll check` gives the library's verdicts, in bounded memory on any input, and tells what it cannot do in a line.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use plimsoll_core::{Budget, Class, Dialect, Limits, Line, LineDeframer, Reason, Received};
use plimsoll_corpus::{Envelope, Form, IdPlacement, reproduction, shapes};
use serde_json::Value;

const KEYS: [&str; 11] =
    ["line", "bytes", "verdict", "kind", "id", "method", "values", "depth", "reason", "limit", "observed"];

fn check(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("check").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `check` with `input` on stdin. A child that ends before it has read everything is not an error here.
fn check_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = check(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file in the tests' own directory, named for the test.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Runs a command line that must fail, and gives its one line on stderr.
fn fails_in_one_line(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let line = text(&output.stderr).to_owned();
    assert_eq!(code(&output), 125, "{line}");
    assert!(line.starts_with("plimsoll: ") && line.ends_with('\n'), "{line:?}");
    assert_eq!(line.lines().count(), 1, "{line:?}");
    line
}

#[test]
fn each_line_gets_its_verdict_kind_id_method_and_reason() {
    // Line, verdict, kind, id as spelled, method, reason.
    let table: &[(&str, &str, &str, &str, &str, &str)] = &[
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "ok", "request", "1", "ping", ""),
        (r#"{"method":"ping","params":[],"id":1.0,"jsonrpc":"2.0"}"#, "ok", "request", "1.0", "ping", ""),
        (r#"{"jsonrpc":"2.0","id":"\u0061/é","method":"\u0061"}"#, "ok", "request", r#""\u0061/é""#, "a", ""),
        (r#"{"jsonrpc":"2.0","id":"","method":"m"}"#, "ok", "request", r#""""#, "m", ""),
        (r#"{"jsonrpc":"2.0","id":-0,"method":"m"}"#, "ok", "request", "-0", "m", ""),
        (r#"{"jsonrpc":"2.0","method":"n"}"#, "ok", "notification", "", "n", ""),
        (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "ok", "response", "7", "", ""),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#, "ok", "error", "", "", ""),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"crlf\"}\r", "ok", "request", "1", "crlf", ""),
        ("2026-01-01T00:00:00Z INFO started", "noise", "", "", "", "notAnObject"),
        ("123", "noise", "", "", "", "notAnObject"),
        ("true story", "noise", "", "", "", "notAnObject"),
        (r#""quoted" text"#, "noise", "", "", "", "notAnObject"),
        (r#"{"level":"info"}"#, "noise", "", "", "", "notJsonRpc"),
        ("[INFO] ready", "noise", "", "", "", "notAnObject"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "refused", "", "", "", "batch"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m""#, "refused", "request", "1", "", "invalidJson"),
        (r#"{"id":1,"method":"m"}"#, "refused", "request", "1", "", "jsonrpcVersion"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "refused", "request", "", "", "invalidId"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, "refused", "request", "", "", "invalidId"),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "refused", "request", "1", "", "invalidMethod"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":0}"#, "refused", "", "1", "", "methodWithResult"),
        (r#"{"jsonrpc":"2.0","id":1,"result":0,"error":0}"#, "refused", "response", "1", "", "resultWithError"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"\u0061":2}}"#,
            "refused",
            "request",
            "1",
            "",
            "duplicateKey",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800"]}"#,
            "refused",
            "request",
            "1",
            "",
            "loneSurrogate",
        ),
        (r#"{"jsonrpc":"2.0","id":2,"method":"last"}"#, "ok", "request", "2", "last", ""),
    ];
    let capture: String = table.iter().map(|row| format!("{}\n", row.0)).collect();
    let output = check_stdin(&["--json", "-"], capture.as_bytes());
    assert_eq!(code(&output), 1);
    let objects = objects(&output);
    assert_eq!(objects.len(), table.len());
    let or_null = |word: &str| if word.is_empty() { Value::Null } else { word.into() };
    for (index, (object, (line, verdict, kind, id, method, reason))) in objects.iter().zip(table).enumerate() {
        assert_eq!(object["line"], index + 1, "{line}");
        assert_eq!(object["bytes"], line.trim_end_matches('\r').len(), "{line}");
        assert_eq!(object["verdict"], *verdict, "{line}");
        assert_eq!(object["kind"], or_null(kind), "{line}");
        assert_eq!(object["method"], or_null(method), "{line}");
        assert_eq!(object["reason"], or_null(reason), "{line}");
        // The spelling is lost once it is parsed.
        let id = if id.is_empty() { "null" } else { id };
        let printed = text(&output.stdout).lines().nth(index).unwrap();
        assert!(printed.contains(&format!(",\"id\":{id},\"method\":")), "{line} became {printed}");
    }
    let summary = text(&output.stderr);
    assert!(summary.starts_with("26 messages, "), "{summary}");
    assert!(summary.contains(": 10 ok, 6 noise, 10 refused\n"), "{summary}");
    assert!(summary.contains("refused as invalidId: 2, the first at line 19\n"), "{summary}");
}

#[test]
fn json_has_exactly_the_keys_that_are_promised_and_nothing_else_on_stdout() {
    let capture = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\nnoise\n{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[\"abcdef\"]}\n";
    let output = check_stdin(&["--json", "--string-bytes", "5", "-"], capture);
    for object in objects(&output) {
        let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        let mut wanted = KEYS;
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
    }
    let last = text(&output.stdout).lines().last().unwrap();
    assert_eq!(
        last,
        "{\"line\":3,\"bytes\":50,\"verdict\":\"refused\",\"kind\":\"notification\",\"id\":null,\"method\":null,\
         \"values\":5,\"depth\":2,\"reason\":\"stringBytes\",\"limit\":5,\"observed\":6}"
    );
}

#[test]
fn the_table_has_a_heading_a_row_a_message_and_a_summary_within_100_columns() {
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{0}\",\"method\":\"{0}\"}}\n", "x".repeat(900));
    let capture = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}}\n\n{long}[]\nhello\n");
    let output = check_stdin(&["-"], capture.as_bytes());
    assert_eq!(code(&output), 1);
    assert_eq!(text(&output.stderr), "");
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{out}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), ["line", "bytes", "verdict", "kind", "id", "values", "depth", "method", "reason"]);
    assert_eq!(words(lines[1]), ["1", "46", "ok", "request", "1", "4", "1", "tools/call"]);
    assert_eq!(words(lines[3]), ["4", "2", "refused", "-", "-", "0", "0", "-", "batch"]);
    assert_eq!(words(lines[4]), ["5", "5", "noise", "-", "-", "0", "0", "-", "notAnObject"]);
    assert_eq!(lines[5], "");
    assert!(lines[6].ends_with("2 ok, 1 noise, 1 refused"), "{out}");
}

#[test]
fn every_shape_of_the_corpus_gets_the_verdict_of_the_library() {
    let mut capture = Vec::new();
    for shape in shapes() {
        let size = shape.default_bytes().min(300_000);
        match shape.form() {
            Form::Headers | Form::Lines => continue,
            Form::Message => capture.extend(shape.text(size).into_bytes()),
            Form::Value => {
                let envelope = Envelope::Request(IdPlacement::First);
                capture.extend(shape.message(plimsoll_corpus::Dialect::Standard, envelope, size).into_bytes());
            }
        }
        capture.push(b'\n');
    }
    let mut expected = Vec::new();
    let mut lines = LineDeframer::new(&Limits::default(), Dialect::Standard, &Budget::new(Limits::default().memory()));
    let mut rest = &capture[..];
    while !rest.is_empty() {
        let (taken, line) = lines.push(rest);
        rest = &rest[taken..];
        match line {
            Some(Line::Received(Received::Message(message))) => {
                expected.push(("ok", Value::Null, message.counts().values));
            }
            Some(Line::Received(Received::Refused(refused))) => {
                let reason = refused.refusal.reason;
                let noise = reason.class() == Class::Noise && reason != Reason::Batch;
                let verdict = if noise { "noise" } else { "refused" };
                expected.push((verdict, reason.word().into(), refused.counts.values));
            }
            other => panic!("{other:?}"),
        }
    }
    let output = check_stdin(&["--json", "-"], &capture);
    let seen: Vec<_> = objects(&output)
        .iter()
        .map(|o| (o["verdict"].as_str().unwrap().to_owned(), o["reason"].clone(), o["values"].as_u64().unwrap()))
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|(verdict, reason, n)| (verdict.to_owned(), reason, n)).collect();
    assert!(expected.len() > 15, "the corpus has shapes");
    assert_eq!(seen, expected);
}

#[test]
fn a_flag_of_a_limit_changes_the_verdict() {
    let nested = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[[[\"twelve bytes\"]]]}\n";
    assert_eq!(code(&check_stdin(&["-"], nested)), 0, "the control");
    for (flag, value, reason, observed) in [
        ("--depth", "3", "depth", 4),
        ("--json-values", "6", "jsonValues", 7),
        ("--message-bytes", "40", "messageBytes", 60),
        ("--string-bytes", "11", "stringBytes", 12),
        ("--key-bytes", "6", "keyBytes", 7),
    ] {
        let output = check_stdin(&["--json", flag, value, "-"], nested);
        assert_eq!(code(&output), 1, "{flag}");
        let object = &objects(&output)[0];
        assert_eq!((&object["reason"], &object["observed"]), (&reason.into(), &observed.into()), "{flag}");
        assert_eq!(object["limit"], value.parse::<u64>().unwrap(), "{flag}");
        assert!(text(&output.stderr).contains(&format!("    {flag} raises this limit")), "{flag}");
    }
    let twice = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"a\":1,\"a\":2}}\n";
    assert_eq!(code(&check_stdin(&["-"], twice)), 1);
    assert_eq!(code(&check_stdin(&["--duplicate-keys", "off", "-"], twice)), 0);
}

#[test]
fn a_limit_that_cannot_hold_is_changed_and_said() {
    let output = check_stdin(&["--message-bytes", "1GiB", "-"], b"");
    assert_eq!(code(&output), 0);
    assert!(text(&output.stderr).starts_with("plimsoll: message_bytes lowered from 1073741824 to "));
}

#[test]
fn the_exec_profile_does_without_jsonrpc_and_the_others_do_not() {
    let bare = b"{\"id\":1,\"method\":\"initialize\"}\n";
    assert_eq!(code(&check_stdin(&["--profile", "exec", "-"], bare)), 0);
    for profile in ["default", "mcp", "lsp", "network"] {
        let output = check_stdin(&["--json", "--profile", profile, "-"], bare);
        assert_eq!(code(&output), 1, "{profile}");
        assert_eq!(objects(&output)[0]["reason"], "jsonrpcVersion");
    }
    let fraction = check_stdin(&["--json", "--profile", "exec", "-"], b"{\"id\":1.0,\"method\":\"m\"}\n");
    assert_eq!(objects(&fraction)[0]["reason"], "invalidId");
}

#[test]
fn a_document_is_any_one_json_text_within_the_limits() {
    let document = b"[1,\n {\"a\": [null]},\n 2]\n";
    let output = check_stdin(&["--json", "--document", "-"], document);
    assert_eq!(code(&output), 0);
    assert_eq!(
        text(&output.stdout),
        "{\"line\":1,\"bytes\":24,\"verdict\":\"ok\",\"kind\":null,\"id\":null,\"method\":null,\
         \"values\":6,\"depth\":3,\"reason\":null,\"limit\":null,\"observed\":null}\n"
    );
    for (document, flags, reason) in [
        (&b"[1,2"[..], &[][..], "invalidJson"),
        (b"", &[], "invalidJson"),
        (b"{} {}", &[], "invalidJson"),
        (b"{\"a\":1,\"a\":2}", &[], "duplicateKey"),
        (b"[\"\xff\"]", &[], "invalidUtf8"),
        (b"[1,2,3]", &["--message-bytes", "6"], "messageBytes"),
        (b"[1,2,3]", &["--json-values", "3"], "jsonValues"),
    ] {
        let output = check_stdin(&[&["--json", "--document"], flags, &["-"]].concat(), document);
        assert_eq!(code(&output), 1, "{}", document.escape_ascii());
        assert_eq!(objects(&output)[0]["reason"], reason, "{}", document.escape_ascii());
        assert_eq!(objects(&output)[0]["bytes"], document.len(), "{}", document.escape_ascii());
    }
}

#[test]
fn a_document_without_an_end_is_left_at_skip_bytes() {
    let flags = ["--document", "--json", "--message-bytes", "100KiB", "--skip-bytes", "200KiB", "-"];
    let output = check_stdin(&flags, &b"[".repeat(3_000_000));
    assert_eq!(code(&output), 1);
    assert_eq!(objects(&output)[0]["reason"], "depth");
    assert_eq!(objects(&output)[0]["bytes"], 200 * 1024 + 1);
    assert!(text(&output.stderr).ends_with("the rest of the input was not read\n"));
}

#[test]
fn noise_alone_is_no_refusal() {
    let output = check_stdin(&["-"], b"starting\n{\"level\":\"info\"}\n42");
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("3 messages, 26 bytes: 0 ok, 3 noise, 0 refused\n"));
}

#[test]
fn an_input_without_messages_says_so() {
    for input in [&b""[..], b"\n\r\n \n", b"\xef\xbb\xbf"] {
        let output = check_stdin(&["-"], input);
        assert_eq!((code(&output), text(&output.stdout)), (0, "no messages\n"), "{}", input.escape_ascii());
        let output = check_stdin(&["--json", "-"], input);
        assert_eq!((code(&output), text(&output.stdout), text(&output.stderr)), (0, "", "no messages\n"));
    }
}

#[test]
fn the_last_message_needs_no_newline_and_half_a_message_is_reported() {
    let output = check_stdin(&["--json", "-"], b"\xef\xbb\xbf\n\n{\"jsonrpc\":\"2.0\",\"method\":\"m\"}");
    assert_eq!((code(&output), &objects(&output)[0]["line"]), (0, &3.into()));
    let output = check_stdin(&["--json", "-"], b"\n{\"jsonrpc\":\"2.0\",\"meth");
    assert_eq!((code(&output), &objects(&output)[0]["reason"]), (1, &"truncated".into()));
    assert_eq!(objects(&output)[0]["line"], 2);
}

#[test]
fn what_a_terminal_would_obey_is_printed_escaped() {
    let message =
        "{\"jsonrpc\":\"2.0\",\"id\":\"\u{9b}2J\u{202e}\u{7f}\",\"method\":\"\\u001b]0;owned\\u0007\u{9b}31m\"}\n";
    for flags in [&["-"][..], &["--json", "-"]] {
        let output = check_stdin(flags, message.as_bytes());
        assert_eq!(code(&output), 0);
        let out = text(&output.stdout);
        let harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!out.contains(harmful), "{}", out.escape_debug());
        assert!(out.contains("owned"), "{out}");
    }
    let object = &objects(&check_stdin(&["--json", "-"], message.as_bytes()))[0];
    assert_eq!(object["id"], "\u{9b}2J\u{202e}\u{7f}", "escaped, it is still the same id");
    assert_eq!(object["method"], "\u{1b}]0;owned\u{7}\u{9b}31m");
}

#[test]
fn a_bad_command_line_is_one_line_and_125() {
    let capture = file("bad_command_line.jsonl", b"");
    let capture = capture.to_str().unwrap();
    for (arguments, said) in [
        (&["--jsn", capture][..], "'--json'"),
        (&[], "<FILE>"),
        (&["--depth", "0", capture], "a number above zero"),
        (&["--depth", "-1", capture], "a number above zero"),
        (&["--depth", "3\nx", capture], "--depth"),
        (&["--duplicate-keys", "maybe", capture], "`refuse` or `off`"),
        (&["--profile", "none", capture], "default, mcp, lsp, exec, network"),
        (&["--no-such-limit", "1", capture], "--no-such-limit"),
        (&[capture, capture], "unexpected argument"),
    ] {
        let line = fails_in_one_line(&mut check(arguments));
        assert!(line.contains(said), "{arguments:?}: {line}");
    }
    let line = fails_in_one_line(&mut Command::new(env!("CARGO_BIN_EXE_plimsoll")));
    assert!(line.contains("subcommands: run, exec-server, check"), "{line}");
    fails_in_one_line(Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("no-such-command"));
}

#[test]
fn help_and_version_are_no_failure() {
    for arguments in [&["--help"][..], &["--version"], &["check", "--help"], &["check", "-h"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(output.stderr.is_empty() && !output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn input_that_cannot_be_read_is_one_line_and_125() {
    let missing = concat!(env!("CARGO_TARGET_TMPDIR"), "/no\u{1b}[2Jsuch");
    let line = fails_in_one_line(&mut check(&[missing]));
    assert!(line.contains("no\\u{1b}[2Jsuch: No such file"), "{line}");
    let line = fails_in_one_line(&mut check(&[env!("CARGO_TARGET_TMPDIR")]));
    assert!(line.contains("Is a directory"), "{line}");
    fails_in_one_line(check(&["-"]).stdin(File::open(env!("CARGO_TARGET_TMPDIR")).unwrap()));
}

#[cfg(target_os = "linux")]
#[test]
fn input_that_fails_while_it_is_read_is_one_line_and_125() {
    use std::os::unix::fs::PermissionsExt;
    // Nothing is mapped at its beginning.
    fails_in_one_line(&mut check(&["/proc/self/mem"]));
    let closed = file("closed.jsonl", b"{}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read it all the same.
    if File::open(&closed).is_err() {
        let line = fails_in_one_line(&mut check(&[closed.to_str().unwrap()]));
        assert!(line.contains("Permission denied"), "{line}");
    }
}

#[test]
fn a_reader_that_leaves_ends_it_without_a_word() {
    let message = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";
    let capture = file("reader_leaves.jsonl", &message.repeat(100_000));
    for flags in [&[][..], &["--json"]] {
        let arguments = [flags, &[capture.to_str().unwrap()]].concat();
        let mut child = check(&arguments).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 100]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), text(&output.stderr)), (0, ""));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_one_line_and_125() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = check(&["-"]).stdin(Stdio::piped()).stdout(full).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"noise\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 125);
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn a_message_is_printed_when_it_has_come_and_not_at_the_end() {
    let mut child = check(&["--json", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"now\"}\n").unwrap();
    assert!(read_line(&mut stdout).contains("\"method\":\"now\""));
    drop(stdin);
    assert_eq!(code(&child.wait_with_output().unwrap()), 0);
}

fn read_line(stdout: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stdout.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// The peak of a child that has checked the reproduction in a file and is held up behind it by its own output.
#[cfg(target_os = "linux")]
fn peak_of_the_reproduction(name: &str, flags: &[&str]) -> (Value, u64) {
    let mut capture = reproduction().into_bytes();
    capture.push(b'\n');
    capture.extend(b"{\"method\":\"small\"}\n".repeat(20_000));
    let path = file(name, &capture);
    let mut child = check(&[&["--json"], flags, &[path.to_str().unwrap()]].concat()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let first = serde_json::from_str(&read_line(&mut stdout)).unwrap();
    // More rows follow than a pipe holds, so it is still there.
    let peak = plimsoll_testkit::rss::peak_rss_kib(child.id()).unwrap();
    end(child, stdout);
    (first, peak)
}

#[cfg(target_os = "linux")]
fn end(mut child: Child, stdout: impl Read) {
    drop(stdout);
    child.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn the_reproduction_is_refused_for_hardly_any_memory() {
    let (row, refused_kib) = peak_of_the_reproduction("reproduction_refused.jsonl", &[]);
    assert_eq!((&row["verdict"], &row["reason"]), (&"refused".into(), &"jsonValues".into()));
    assert_eq!((&row["limit"], &row["observed"]), (&262_144.into(), &262_145.into()));
    assert_eq!(row["bytes"], plimsoll_corpus::REPRODUCTION_BYTES);

    let flags = ["--profile", "exec", "--json-values", "off"];
    let (row, accepted_kib) = peak_of_the_reproduction("reproduction_accepted.jsonl", &flags);
    assert_eq!((&row["verdict"], &row["method"]), (&"ok".into(), &"xxxxx".into()), "the control");
    assert_eq!(row["values"], plimsoll_corpus::REPRODUCTION_ZEROES + 3);

    assert!(refused_kib < 16 * 1024, "{refused_kib} KiB");
    assert!(accepted_kib < 24 * 1024, "{accepted_kib} KiB");
    assert!(accepted_kib > refused_kib + 2048, "an accepted message is held: {accepted_kib} and {refused_kib} KiB");
}

#[cfg(target_os = "linux")]
#[test]
fn an_endless_line_from_a_pipe_ends_at_skip_bytes_in_bounded_memory() {
    const MIB: usize = 1024 * 1024;
    let begin = b"{\"jsonrpc\":\"2.0\",\"id\":\"the id\",\"method\":\"m\",\"params\":\"";
    let mut child = check(&["--json", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"before\n").unwrap();
    stdin.write_all(begin).unwrap();
    let mut peak_kib = 0;
    let mut left = false;
    for written in 0..200 {
        if written < 63 {
            // It reads on up to 64 MiB, so it is still there.
            peak_kib = plimsoll_testkit::rss::peak_rss_kib(child.id()).unwrap();
        }
        if stdin.write_all(&vec![b'x'; MIB]).is_err() {
            left = true;
            break;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(left, "200 MB were not read to their end");
    assert_eq!(code(&output), 1);
    let row = &objects(&output)[1];
    assert_eq!((&row["line"], &row["verdict"], &row["reason"]), (&2.into(), &"refused".into(), &"skipBytes".into()));
    assert_eq!((&row["limit"], &row["observed"]), (&(64 * MIB).into(), &(64 * MIB + 1).into()));
    assert_eq!((&row["id"], &row["kind"]), (&"the id".into(), &"request".into()));
    let said = text(&output.stderr);
    assert!(said.contains("stdin, line 2: ") && said.contains("67108864") && said.contains("--skip-bytes"), "{said}");
    assert!(peak_kib < 40 * 1024, "message_bytes is 16 MiB, and the peak was {peak_kib} KiB");
}

#[cfg(target_os = "linux")]
#[test]
fn with_skip_bytes_off_an_endless_line_is_read_to_its_end_and_the_next_message_arrives() {
    let mut child = check(&["--json", "--skip-bytes", "off", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let piece = vec![b'x'; 1_000_000];
    for _ in 0..200 {
        stdin.write_all(&piece).unwrap();
    }
    stdin.write_all(b"\n{\"jsonrpc\":\"2.0\",\"method\":\"next\"}\n").unwrap();
    let row: Value = serde_json::from_str(&read_line(&mut stdout)).unwrap();
    assert_eq!((&row["verdict"], &row["bytes"]), (&"noise".into(), &200_000_000.into()));
    assert!(read_line(&mut stdout).contains("\"method\":\"next\""));
    let peak_kib = plimsoll_testkit::rss::peak_rss_kib(child.id()).unwrap();
    drop(stdin);
    end(child, stdout);
    assert!(peak_kib < 16 * 1024, "{peak_kib} KiB");
}
