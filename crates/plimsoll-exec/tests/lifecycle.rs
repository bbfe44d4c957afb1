//! A session opens in order, says what is missing, and outlives everything that a client can get wrong on the wire.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use common::{Client, at_most, directory, limits, millis, runs, start_params, uri, within, write_params};
use plimsoll::CloseReason;
use plimsoll_exec::{ExecClient, Limits};
use serde_json::{Value, json};

const CALLS: [&str; 7] = [
    "environment/info",
    "environment/status",
    "process/start",
    "process/write",
    "process/signal",
    "process/terminate",
    "plimsoll/process/closeStdin",
];

fn code(reply: &Value) -> i64 {
    reply["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {reply}"))
}

fn text(reply: &Value) -> &str {
    reply["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {reply}"))
}

#[tokio::test]
async fn a_call_that_comes_too_early_is_told_which_step_is_missing() {
    let mut client = Client::new(limits());
    let params = start_params("p", &["true"], json!({}));
    for method in CALLS {
        let reply = client.call(method, params.clone()).await;
        assert_eq!(code(&reply), -32600, "{method}: {reply}");
        assert!(text(&reply).contains("call `initialize` first"), "{method}: {reply}");
    }
    assert!(client.call("initialize", json!({"clientName": "test"})).await["result"].is_object());
    for method in CALLS {
        let reply = client.call(method, params.clone()).await;
        assert_eq!(code(&reply), -32600, "{method}: {reply}");
        assert!(text(&reply).contains("`initialized` first"), "{method}: {reply}");
    }
    client.send(json!({"method": "initialized"})).await;
    for method in CALLS {
        let reply = client.call(method, params.clone()).await;
        let refused = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(!refused.contains("initialize"), "{method}: {reply}");
    }
    assert!(client.story("p").await.closed, "the last round has started and ended it");
    client.leave().await;
}

#[tokio::test]
async fn initialized_before_initialize_opens_nothing() {
    let mut client = Client::new(limits());
    client.send(json!({"method": "initialized"})).await;
    assert!(client.call("initialize", json!({"clientName": "test"})).await["result"].is_object());
    assert_eq!(code(&client.call("environment/status", json!({})).await), -32600);
    client.send(json!({"method": "initialized"})).await;
    assert_eq!(client.call("environment/status", json!({})).await["result"], json!({"status": "ready"}));
    client.leave().await;
}

#[tokio::test]
async fn a_failed_initialize_may_be_tried_again_and_after_success_it_may_not() {
    let mut client = Client::new(limits());
    let reply = client.call("initialize", json!({"clientName": "test", "resumeSessionId": "5e"})).await;
    assert_eq!(code(&reply), -32600, "{reply}");
    assert!(text(&reply).contains("resumeSessionId"), "{reply}");
    for params in [Value::Null, json!({}), json!({"clientName": 7})] {
        assert_eq!(code(&client.call("initialize", params).await), -32602);
    }
    let reply = client.call("initialize", json!({"clientName": "test", "resumeSessionId": null})).await;
    let session = reply["result"]["sessionId"].as_str().expect("opened").to_owned();
    assert_eq!(session.len(), 32);
    for initialized in [false, true] {
        let reply = client.call("initialize", json!({"clientName": "test"})).await;
        assert_eq!(code(&reply), -32600, "{reply}");
        assert!(text(&reply).contains("already"), "{reply}");
        if !initialized {
            client.send(json!({"method": "initialized"})).await;
        }
    }
    assert_eq!(client.call("environment/status", json!({})).await["result"], json!({"status": "ready"}));
    client.leave().await;

    let mut other = Client::new(limits());
    let reply = other.call("initialize", json!({"clientName": "test"})).await;
    assert_ne!(reply["result"]["sessionId"], session.as_str(), "no two sessions have one name");
    other.leave().await;
}

#[tokio::test]
async fn handshake_and_calls_sent_in_one_piece_all_work() {
    let mut client = Client::new(limits());
    let lines = [
        json!({"id": "a", "method": "initialize", "params": {"clientName": "test"}}),
        json!({"method": "initialized", "params": {"ignored": [1]}}),
        json!({"id": "b", "method": "environment/status"}),
        json!({"id": "c", "method": "process/start", "params": start_params("p", &["cat"], json!({"pipeStdin": true}))}),
        json!({"id": "d", "method": "process/write", "params": write_params("p", b"hello", "1")}),
        json!({"id": "e", "method": "plimsoll/process/closeStdin", "params": {"processId": "p"}}),
    ];
    let mut piece = String::new();
    for line in lines {
        piece += &line.to_string();
        piece.push('\n');
    }
    client.send_bytes(piece.as_bytes()).await;
    for id in ["a", "b", "c", "d", "e"] {
        let reply = client.reply(id).await;
        assert!(reply["result"].is_object(), "{reply}");
    }
    let story = client.story("p").await;
    assert_eq!((story.code(), story.stdout_text().as_str()), (0, "hello"));
    client.leave().await;
}

#[tokio::test]
async fn the_environment_that_is_told_is_this_machines_and_these_limits() {
    let mut client = Client::new(limits().with_processes(at_most(3)).with_depth(at_most(40)));
    let told = client.call("initialize", json!({"clientName": "test"})).await["result"]["environmentInfo"].clone();
    client.send(json!({"method": "initialized"})).await;
    let asked = client.call("environment/info", json!({})).await["result"].clone();
    assert_eq!(told, asked, "told on arrival and on request");
    assert_eq!(told["platformOs"], "linux");
    assert_eq!(told["cwd"], uri(&std::env::current_dir().unwrap()));
    assert!(told["shell"]["path"].as_str().unwrap().starts_with('/'));
    assert!(told["capabilities"].as_object().unwrap().values().all(|offered| *offered == false));
    assert_eq!(told["plimsoll"]["methods"], json!(["plimsoll/process/closeStdin"]));
    let limits = &told["plimsoll"]["limits"];
    assert_eq!((&limits["processes"], &limits["depth"]), (&json!(3), &json!(40)));
    assert_eq!(limits["jsonValues"], 262_144);
    client.leave().await;
}

#[tokio::test]
async fn a_method_without_parameters_takes_them_absent_null_and_empty() {
    let mut client = Client::opened(limits()).await;
    for method in ["environment/info", "environment/status"] {
        for params in [json!(null), json!({}), json!({"unheardOf": 1})] {
            let reply = client.call(method, params.clone()).await;
            assert!(reply["result"].is_object(), "{method} {params}: {reply}");
        }
        client.send(json!({"id": method, "method": method})).await;
        assert!(client.reply(method).await["result"].is_object(), "{method} without params");
        let reply = client.call(method, json!(7)).await;
        assert_eq!(code(&reply), -32602, "{method} with a number: {reply}");
    }
    client.leave().await;
}

#[tokio::test]
async fn an_unknown_method_is_answered_so_at_any_time() {
    let mut client = Client::new(limits());
    assert_eq!(code(&client.call("nope", json!({})).await), -32601);
    client.open().await;
    for method in ["nope", "", "initialized", "process/output", "Environment/Status", "process/read"] {
        assert_eq!(code(&client.call(method, json!({})).await), -32601, "{method}");
    }
    client.leave().await;
}

#[tokio::test]
async fn members_that_nobody_knows_are_ignored_and_jsonrpc_is_one_of_them() {
    let mut client = Client::opened(limits()).await;
    for more in [r#""jsonrpc":"2.0""#, r#""jsonrpc":1"#, r#""unheardOf":{"a":[]}"#, r#""trace":{"traceparent":"00"}"#] {
        client.send_line(format!(r#"{{{more},"id":1,"method":"environment/status"}}"#)).await;
        assert_eq!(client.reply(1).await["result"], json!({"status": "ready"}), "{more}");
    }
    client.leave().await;
}

#[tokio::test]
async fn a_trace_of_the_wrong_type_refuses_a_request_but_not_a_notification() {
    let mut client = Client::new(limits());
    client.call("initialize", json!({"clientName": "test"})).await;
    client.send(json!({"method": "initialized", "trace": 5})).await;
    assert!(client.call("environment/status", json!({})).await["result"].is_object(), "the session is open");
    client.send(json!({"id": 5, "method": "environment/status", "trace": 5})).await;
    assert_eq!(code(&client.reply(5).await), -32600);
    client.leave().await;
}

// Row 16 of PROTOCOL section 8.
#[tokio::test]
async fn an_unknown_notification_and_a_reply_to_nothing_are_ignored() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", "read line; exit 5").await;
    for line in [
        json!({"method": "nope", "params": {}}),
        json!({"method": "process/output", "params": {"processId": "p"}}),
        json!({"id": 1, "result": {}}),
        json!({"id": "x", "error": {"code": 1, "message": "no"}}),
        json!({"id": -1, "error": {"code": -32600, "message": "malformed"}}),
    ] {
        client.send(line).await;
    }
    assert_eq!(client.write("p", b"\n", "1").await, "accepted", "nothing was said before this, and the process lives");
    assert_eq!(client.story("p").await.code(), 5);
    client.leave().await;
}

// Row 15.
#[tokio::test]
async fn a_message_with_a_byte_that_is_no_utf8_is_refused_alone_and_processes_live_on() {
    let mut client = Client::opened(limits()).await;
    client.shell_with_stdin("p", "read line; echo $line; exit 5").await;
    client.send_bytes(b"{\"id\":1,\"method\":\"environment/status\",\"params\":{\"a\":\"\xff\"}}\n").await;
    let reply = client.reply(1).await;
    assert_eq!((code(&reply), &reply["error"]["data"]["reason"]), (-32600, &json!("invalidUtf8")), "{reply}");
    client.send_bytes(b"\xff\xfe\n").await;
    assert_eq!(code(&client.reply(-1).await), -32600);
    assert_eq!(client.write("p", b"alive\n", "1").await, "accepted");
    let story = client.story("p").await;
    assert_eq!((story.code(), story.stdout_text().as_str()), (5, "alive\n"));
    client.leave().await;
}

/// A request of exactly `bytes` bytes without its newline; `id` stands first or last.
fn request_of(bytes: usize, id: &str, id_first: bool) -> Vec<u8> {
    let (before, after) = match id_first {
        true => (format!(r#"{{"id":{id},"method":"nope","params":[""#), r#""]}"#.to_owned()),
        false => (r#"{"params":[""#.to_owned(), format!(r#""],"method":"nope","id":{id}}}"#)),
    };
    let mut line = before.into_bytes();
    line.resize(bytes - after.len(), b'x');
    line.extend(after.into_bytes());
    line
}

// Row 17.
#[tokio::test]
async fn a_line_over_the_limit_is_answered_by_its_id_and_the_connection_and_its_processes_live() {
    const MOST: usize = 256 * 1024;
    let mut client = Client::opened(limits().with_message_bytes(at_most(MOST as u64))).await;
    client.shell_with_stdin("p", "read line; exit 5").await;
    for id_first in [true, false] {
        client.send_line(request_of(MOST, "1", id_first)).await;
        assert_eq!(code(&client.reply(1).await), -32601, "the control: a line of the limit's length is read");
        client.send_line(request_of(MOST + 1, "2", id_first)).await;
        let reply = client.reply(2).await;
        assert_eq!(code(&reply), -32600, "{reply}");
        assert_eq!(reply["error"]["data"]["reason"], "messageBytes", "{reply}");
        assert_eq!(reply["error"]["data"]["limit"], MOST);
        client.send_line(request_of(20 * MOST, "3", id_first)).await;
        assert_eq!(client.reply(3).await["error"]["data"]["reason"], "messageBytes");
    }
    assert_eq!(client.write("p", b"\n", "1").await, "accepted");
    assert_eq!(client.story("p").await.code(), 5);
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_a_line_may_have_64_mib_and_one_byte_more_is_refused() {
    const MOST: usize = 64 * 1024 * 1024;
    let mut client = Client::opened(limits()).await;
    client.send_line(request_of(MOST, "1", true)).await;
    assert_eq!(code(&client.reply(1).await), -32601);
    client.send_line(request_of(MOST + 1, "2", true)).await;
    let reply = client.reply(2).await;
    assert_eq!(reply["error"]["data"]["reason"], "messageBytes", "{reply}");
    assert!(client.call("environment/status", json!({})).await["result"].is_object());
    client.leave().await;
}

#[tokio::test]
async fn what_is_malformed_is_answered_minus_one_or_by_the_id_that_can_be_read() {
    let nobody = json!(-1);
    let seven = json!(7);
    let table: &[(&str, &Value)] = &[
        // JSON that is no message, and what is no JSON.
        ("7", &nobody),
        ("null", &nobody),
        (r#""text""#, &nobody),
        ("[]", &nobody),
        (r#"[{"id":7,"method":"environment/status"}]"#, &nobody),
        ("{}", &nobody),
        (r#"{"params":{}}"#, &nobody),
        ("hello", &nobody),
        ("{", &nobody),
        (r#"{"method":"initialized","params":{"a":1,"a":1}}"#, &nobody),
        (r#"{"method":7}"#, &nobody),
        // Ids of the wrong type.
        (r#"{"id":1.5,"method":"environment/status"}"#, &nobody),
        (r#"{"id":1e2,"method":"environment/status"}"#, &nobody),
        (r#"{"id":7.0,"method":"environment/status"}"#, &nobody),
        (r#"{"id":null,"method":"environment/status"}"#, &nobody),
        (r#"{"id":true,"method":"environment/status"}"#, &nobody),
        (r#"{"id":{},"method":"environment/status"}"#, &nobody),
        (r#"{"id":[7],"method":"environment/status"}"#, &nobody),
        (r#"{"id":9223372036854775808,"method":"environment/status"}"#, &nobody),
        (r#"{"id":-9223372036854775809,"method":"environment/status"}"#, &nobody),
        // The id can be read though the rest is not right.
        (r#"{"id":7,"method":"environment/status""#, &seven),
        (r#"{"id":7,"method":"environment/status","params":{"a":1,"a":1}}"#, &seven),
        (r#"{"id":7,"method":"environment/status","params":[[{"a":{"b":1,"\u0062":1}}]]}"#, &seven),
        (r#"{"params":{"a":1,"a":1},"method":"environment/status","id":7}"#, &seven),
        (r#"{"id":7,"method":"environment/status","params":"\ud800"}"#, &seven),
        (r#"{"id":7,"method":5}"#, &seven),
        (r#"{"id":7,"method":"environment/status","result":{}}"#, &seven),
    ];
    for (line, id) in table {
        // Answers to what has no id are paced by the connection, so each line has its own.
        let mut client = Client::opened(limits()).await;
        client.send_line(line).await;
        let reply = client.next().await.expect("an answer");
        assert_eq!(&&reply["id"], id, "{line}: {reply}");
        assert_eq!(code(&reply), -32600, "{line}: {reply}");
        assert!(client.call("environment/status", json!({})).await["result"].is_object(), "{line}: it lives");
        client.leave().await;
    }
}

#[tokio::test]
async fn ids_that_are_strings_or_integers_of_64_bits_come_back_as_they_were() {
    let mut client = Client::opened(limits()).await;
    for id in [
        json!("7"),
        json!(7),
        json!(""),
        json!("é\n\"\\"),
        json!(0),
        json!(-7),
        json!(i64::MIN),
        json!(i64::MAX),
        json!("null"),
    ] {
        client.send(json!({"id": id, "method": "environment/status"})).await;
        assert_eq!(client.next().await.expect("an answer")["id"], id);
    }
    client.leave().await;
}

#[tokio::test]
async fn the_same_id_twice_at_a_time_is_refused_and_the_first_is_answered_once() {
    let mut client = Client::opened(limits().with_stdin_bytes(at_most(1_000)).with_write_wait(millis(60_000))).await;
    let go = reads_when_told(&mut client, "same-id").await;
    for n in 0..3 {
        client.ask("process/write", write_params("p", &[b'x'; 100_000], &n.to_string())).await;
    }
    client.send(json!({"id": "w", "method": "process/write", "params": write_params("p", b"x", "last")})).await;
    client.send(json!({"id": "w", "method": "environment/status"})).await;
    let refused = client.reply("w").await;
    assert_eq!((code(&refused), &refused["error"]["data"]["reason"]), (-32600, &json!("idInUse")), "{refused}");
    std::fs::write(go, "").unwrap();
    assert_eq!(client.reply("w").await["result"], json!({"status": "accepted"}));
    client.send(json!({"id": "w", "method": "environment/status"})).await;
    assert_eq!(client.reply("w").await["result"], json!({"status": "ready"}), "answered, it may be used again");
    client.leave().await;
}

/// Starts the process `p`, which reads nothing until the file that is returned is there.
async fn reads_when_told(client: &mut Client, name: &str) -> std::path::PathBuf {
    let go = directory(name).join("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; exec cat >/dev/null", go.display());
    client.shell_with_stdin("p", &script).await;
    go
}

#[tokio::test]
async fn a_message_may_hold_262144_values_and_not_one_more() {
    let mut client = Client::opened(limits()).await;
    let request = |zeros: usize| {
        let zeros = vec!["0"; zeros].join(",");
        format!(r#"{{"id":77,"method":"nope","params":[{zeros}]}}"#)
    };
    client.send_line(request(262_140)).await;
    assert_eq!(code(&client.reply(77).await), -32601);
    client.send_line(request(262_141)).await;
    let reply = client.reply(77).await;
    assert_eq!((code(&reply), &reply["error"]["data"]["reason"]), (-32600, &json!("jsonValues")), "{reply}");
    client.send_line(request(1)).await;
    assert_eq!(code(&client.reply(77).await), -32601);
    client.leave().await;
}

#[tokio::test]
async fn containers_may_be_127_deep_and_not_one_deeper() {
    let mut client = Client::opened(limits()).await;
    let request = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"{{"id":77,"method":"nope","params":{open}{close}}}"#)
    };
    client.send_line(request(127)).await;
    assert_eq!(code(&client.reply(77).await), -32601);
    for depth in [128, 100_000] {
        client.send_line(request(depth)).await;
        let reply = client.reply(77).await;
        assert_eq!((code(&reply), &reply["error"]["data"]["reason"]), (-32600, &json!("depth")), "{reply}");
    }
    client.leave().await;
}

#[tokio::test]
async fn a_number_may_have_any_length() {
    let mut client = Client::opened(limits()).await;
    let digits = "9".repeat(100_000);
    client
        .send_line(format!(r#"{{"id":1,"method":"environment/status","params":{{"n":{digits},"m":1e{digits}}}}}"#))
        .await;
    assert!(client.reply(1).await["result"].is_object());
    client.leave().await;
}

// Row 25.
#[tokio::test]
async fn a_last_request_without_its_newline_is_answered_before_the_children_end() {
    let mut client = Client::opened(limits()).await;
    client.shell("p", "echo $$; exec sleep 1000").await;
    let pid = client.hears("p", "\n").await.stdout_text();
    assert!(runs(&pid), "the control");
    client.send_bytes(br#"{"id":1,"method":"environment/status"}"#).await;
    client.end();
    assert_eq!(client.reply(1).await["result"], json!({"status": "ready"}));
    assert_eq!(client.leave().await, CloseReason::EndOfInput);
    assert!(!runs(&pid), "the session's processes end with it");
}

#[tokio::test]
async fn a_request_cut_off_by_the_end_of_the_input_is_refused_and_not_run() {
    let marker = directory("cut-off").join("ran");
    let mut client = Client::opened(limits()).await;
    let argv = ["touch", marker.to_str().unwrap()];
    let whole = json!({"id": 1, "method": "process/start", "params": start_params("p", &argv, json!({}))}).to_string();
    client.send_bytes(&whole.as_bytes()[..whole.len() - 1]).await;
    client.end();
    let reply = client.next().await.expect("an answer");
    assert_eq!((code(&reply), &reply["error"]["data"]["reason"]), (-32600, &json!("truncated")), "{reply}");
    client.leave().await;
    assert!(!marker.exists());
}

#[tokio::test]
async fn too_many_requests_at_a_time_are_refused_as_retryable_and_the_others_are_answered() {
    let limits = limits().with_in_flight(at_most(8)).with_stdin_bytes(at_most(1_000)).with_write_wait(millis(60_000));
    let mut client = Client::opened(limits).await;
    let go = reads_when_told(&mut client, "in-flight").await;
    let mut asked = Vec::new();
    for n in 0..20 {
        asked.push(client.ask("process/write", write_params("p", &[b'x'; 100_000], &n.to_string())).await);
    }
    // The first write is accepted, eight wait, and perhaps one was refused before the first had its answer.
    let mut refused = 0;
    while refused < 11 {
        let reply = client.next().await.expect("an answer");
        if reply["result"]["status"] != "accepted" {
            refused += 1;
            assert_eq!((code(&reply), &reply["error"]["data"]["reason"]), (-31009, &json!("inFlight")), "{reply}");
            assert_eq!(reply["error"]["data"]["retryable"], true);
            asked.retain(|id| reply["id"] != *id);
        }
    }
    std::fs::write(go, "").unwrap();
    for id in &asked[1..8] {
        assert_eq!(client.reply(*id).await["result"]["status"], "accepted");
    }
    client.leave().await;
}

#[tokio::test]
async fn a_client_does_not_wait_for_initialize_longer_than_for_any_call() {
    let (here, _there) = tokio::io::duplex(4096);
    let (reader, writer) = tokio::io::split(here);
    let (client, work) = ExecClient::connect(Limits::exec().with_call_deadline(millis(50)), reader, writer);
    let work = tokio::spawn(work);
    let began = std::time::Instant::now();
    let error = within("the deadline", client.initialize("test")).await.expect_err("nobody answers");
    assert!(error.to_string().contains("deadline") || error.to_string().contains("50"), "{error}");
    assert!(began.elapsed().as_secs() < 25, "not the 30 s that it has without");
    work.abort();
}
