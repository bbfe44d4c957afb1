//! Which members make which kind, and what is answered to what is refused: both tables, row by row, tried over every
//! combination of members, ids, orders and dialects.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{accepted, one, refused};
use plimsoll_core::{
    Answer, AnswerRules, Class, Counts, Dialect, Id, Kind, Limits, Reason, Received, Refusal, Refused, SeenId,
    error_code, render_refusal,
};

const DIALECTS: [Dialect; 2] = [Dialect::Standard, Dialect::Bare];

/// What stands as a member, and what is right about it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Valid {
    Yes,
    No,
    /// `1.0`: an integer in the standard dialect, malformed in the other.
    InStandard,
}

const IDS: &[(&str, Valid)] = &[
    ("7", Valid::Yes),
    ("0", Valid::Yes),
    ("-0", Valid::Yes),
    ("-9223372036854775808", Valid::Yes),
    ("9223372036854775807", Valid::Yes),
    (r#""""#, Valid::Yes),
    (r#""7""#, Valid::Yes),
    (r#""\ud83d\ude00\u0000""#, Valid::Yes),
    ("1.0", Valid::InStandard),
    ("-3100.000", Valid::InStandard),
    ("1.5", Valid::No),
    ("1e2", Valid::No),
    ("1.0e0", Valid::No),
    ("9223372036854775808", Valid::No),
    ("-9223372036854775809", Valid::No),
    ("9223372036854775808.0", Valid::No),
    ("null", Valid::No),
    ("true", Valid::No),
    ("false", Valid::No),
    ("{}", Valid::No),
    (r#"{"id":7}"#, Valid::No),
    ("[7]", Valid::No),
];

impl Valid {
    fn holds(self, dialect: Dialect) -> bool {
        self == Valid::Yes || self == Valid::InStandard && dialect == Dialect::Standard
    }
}

/// What must come of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Right {
    Accepted(Kind),
    Refused(Reason),
}

/// The table: M, I, R and E present or not, and the id valid or not.
fn right(m: bool, id: Option<(bool, bool)>, r: bool, e: bool) -> Right {
    use Right::{Accepted, Refused};
    // The id: present, valid, null.
    match (m, id, r, e) {
        (true, Some((true, _)), false, false) => Accepted(Kind::Request),
        (true, None, false, false) => Accepted(Kind::Notification),
        (true, Some((false, _)), false, false) => Refused(Reason::InvalidId),
        (false, Some((true, _)), true, false) => Accepted(Kind::Response),
        (false, Some((true, _)) | Some((_, true)) | None, false, true) => Accepted(Kind::ErrorResponse),
        (false, Some((false, _)) | None, true, false) | (false, Some((false, false)), false, true) => {
            Refused(Reason::InvalidId)
        }
        (true, _, _, _) => Refused(Reason::MethodWithResult),
        (false, _, true, true) => Refused(Reason::ResultWithError),
        (false, _, false, false) => Refused(Reason::NotJsonRpc),
    }
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..items.len() {
        let mut rest = items.to_vec();
        let item = rest.remove(first);
        for mut tail in permutations(&rest) {
            tail.insert(0, item.clone());
            all.push(tail);
        }
    }
    all
}

fn text_of(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

fn receive(text: &str, dialect: Dialect) -> Received {
    one(text.as_bytes(), usize::MAX, &Limits::default(), dialect)
}

#[test]
fn the_kind_is_decided_by_the_members_alone_in_any_order() {
    let mut tried = 0;
    for mask in 0..8 {
        let (m, r, e) = (mask & 1 > 0, mask & 2 > 0, mask & 4 > 0);
        for id in std::iter::once(None).chain(IDS.iter().map(Some)) {
            for extra in [None, Some(("params", "[]")), Some(("Method", "0")), Some(("trace", "{}"))] {
                let mut members = vec![("jsonrpc", r#""2.0""#)];
                members.extend(m.then_some(("method", r#""m""#)));
                members.extend(r.then_some(("result", "null")));
                members.extend(e.then_some(("error", r#"{"code":1,"message":""}"#)));
                members.extend(id.map(|id| ("id", id.0)));
                members.extend(extra);
                for order in permutations(&members) {
                    let text = text_of(&order);
                    for dialect in DIALECTS {
                        let facts = id.map(|(text, valid)| (valid.holds(dialect), *text == "null"));
                        check(
                            &text,
                            dialect,
                            right(m, facts, r, e),
                            id.filter(|id| id.1.holds(dialect)).map(|id| id.0),
                        );
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 100_000, "{tried} messages");
}

fn check(text: &str, dialect: Dialect, right: Right, id: Option<&str>) {
    match (receive(text, dialect), right) {
        (Received::Message(message), Right::Accepted(kind)) => {
            assert_eq!(message.kind(), kind, "{dialect:?} {text}");
            assert_eq!(message.id().map(Id::as_json), id, "{dialect:?} {text}");
        }
        (Received::Refused(refused), Right::Refused(reason)) => {
            assert_eq!(refused.refusal.reason, reason, "{dialect:?} {text}");
            let seen = match &refused.id {
                SeenId::Readable(id) => Some(id.as_json()),
                _ => None,
            };
            assert_eq!(seen, id, "{dialect:?} {text}");
        }
        (received, right) => panic!("{dialect:?} {text}: {received:?} and not {right:?}"),
    }
}

#[test]
fn a_method_beside_anything_wrong_is_never_run() {
    let head = r#""jsonrpc":"2.0","method":"evil""#;
    let mut wrong: Vec<String> =
        IDS.iter().filter(|id| id.1 == Valid::No).map(|(id, _)| format!(r#"{{{head},"id":{id}}}"#)).collect();
    for tail in [
        r#""result":0"#,
        r#""error":{}"#,
        r#""id":7,"result":0"#,
        r#""id":7,"error":{}"#,
        r#""result":0,"error":0"#,
        r#""id":7,"id":7"#,
        r#""id":7,"\u0069d":8"#,
        r#""id":7,"id":null"#,
        r#""id":null,"id":7"#,
        r#""method":"evil""#,
        r#""params":{"id":7},"id":null"#,
    ] {
        wrong.push(format!(r#"{{{head},{tail}}}"#));
        wrong.push(format!(r#"{{{tail},{head}}}"#));
    }
    wrong.push(format!(r#"{{{head},"id":"{}"}}"#, "x".repeat(1_025)));
    for text in wrong {
        for dialect in DIALECTS {
            for chunk in common::CHUNKS {
                let refused = refused(one(text.as_bytes(), chunk, &Limits::default(), dialect));
                assert!(refused.method, "{text}");
                assert_ne!(refused.kind(), Some(Kind::Response), "{text}");
            }
        }
    }
}

#[test]
fn an_invalid_id_beside_a_method_is_answered_with_id_null_and_never_as_a_notification() {
    for (id, _) in IDS.iter().filter(|id| id.1 == Valid::No) {
        for text in [
            format!(r#"{{"jsonrpc":"2.0","method":"evil","id":{id}}}"#),
            format!(r#"{{"id":{id},"method":"evil","jsonrpc":"2.0"}}"#),
        ] {
            for dialect in DIALECTS {
                for notifications_are_vital in [false, true] {
                    let refused = refused(receive(&text, dialect));
                    assert_eq!(
                        (refused.refusal.reason, &refused.id),
                        (Reason::InvalidId, &SeenId::Unreadable),
                        "{text}"
                    );
                    let answer = AnswerRules { dialect, notifications_are_vital }.answer(&refused, |_| true);
                    assert_eq!(answer, Answer::Error { id: None, code: -32600, paced: false }, "{text}");
                    let reply = render_refusal(dialect, None, -32600, &refused.refusal);
                    let reply: serde_json::Value = serde_json::from_slice(&reply).unwrap();
                    let nobody = if dialect == Dialect::Bare { serde_json::json!(-1) } else { serde_json::Value::Null };
                    assert_eq!(reply["id"], nobody);
                }
            }
        }
    }
}

#[test]
fn a_repeated_id_is_not_readable_wherever_it_repeats() {
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"m","id":8}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"a":2},"\u0069d":7}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"m","id":7}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"m","id":"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"m","id""#,
    ] {
        for chunk in common::CHUNKS {
            let refused = refused(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
            assert_eq!(refused.refusal.reason, Reason::DuplicateKey);
            assert_eq!(refused.id, SeenId::Unreadable, "{text}");
        }
    }
    // Not after an error of grammar: nothing that comes then is looked at.
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"method":"m","params":01,"id":8}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"m"},"id":8}"#,
    ] {
        let refused = refused(receive(text, Dialect::Standard));
        assert_eq!((refused.refusal.reason, refused.id), (Reason::InvalidJson, SeenId::Readable(7.into())), "{text}");
    }
}

#[test]
fn the_id_is_read_at_the_top_level_alone_whatever_the_order() {
    for text in [
        r#"{"jsonrpc":"2.0","method":"m","params":{"id":1},"id":7}"#,
        r#"{"jsonrpc":"2.0","params":{"x":[{"id":1}],"id":"\"id\":3"},"id":7,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","params":"\"id\":1","\u0069\u0064":7,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","ID":1,"Id":2,"id\u0000":3,"id":7,"method":"m"}"#,
    ] {
        assert_eq!(accepted(receive(text, Dialect::Standard)).id(), Some(&7.into()), "{text}");
        let bad = text.replace("\"2.0\"", "\"\\ud800\"");
        assert_eq!(refused(receive(&bad, Dialect::Standard)).id, SeenId::Readable(7.into()), "{bad}");
    }
    let refused = refused(receive(r#"{"jsonrpc":"2.0","method":"m","params":{"id":1,"id":2}}"#, Dialect::Standard));
    assert_eq!(refused.id, SeenId::Absent);
}

#[test]
fn errors_of_encoding_do_not_hide_the_id_and_errors_of_grammar_hide_what_follows() {
    for (wrong, reason) in [
        (&b"\"\xff\xfe\""[..], Reason::InvalidUtf8),
        (b"\"\\ud800\"", Reason::LoneSurrogate),
        (b"{\"\\udc00\":0}", Reason::LoneSurrogate),
        (b"[[[\"\xc0\x80\"]]]", Reason::InvalidUtf8),
        (b"\"\xe2\x82\"", Reason::InvalidUtf8),
    ] {
        for (head, tail) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"#, "}"),
            (r#"{"jsonrpc":"2.0","params":"#, r#","method":"m","id":7}"#),
        ] {
            let text = [head.as_bytes(), wrong, tail.as_bytes()].concat();
            for chunk in common::CHUNKS {
                let refused = refused(one(&text, chunk, &Limits::default(), Dialect::Standard));
                assert_eq!((refused.refusal.reason, &refused.id), (reason, &SeenId::Readable(7.into())));
                let answer = AnswerRules::default().answer(&refused, |_| false);
                assert_eq!(answer, Answer::Error { id: Some(7.into()), code: -32700, paced: false });
            }
        }
    }
    let text = br#"{"jsonrpc":"2.0","params":tru,"method":"m","id":7}"#;
    let refused = refused(one(text, 1, &Limits::default(), Dialect::Standard));
    assert_eq!((refused.id, refused.method), (SeenId::Absent, false));
}

#[test]
fn an_id_that_is_no_text_is_not_readable() {
    for id in [&b"\"\xff\""[..], b"\"\\ud800\"", b"\"a\\udc00\""] {
        let text = [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"method\":\"m\"}"].concat();
        for chunk in common::CHUNKS {
            let refused = refused(one(&text, chunk, &Limits::default(), Dialect::Standard));
            assert_eq!((refused.id, refused.method), (SeenId::Unreadable, true));
        }
    }
}

#[test]
fn the_version_must_be_the_string_2_0_in_the_standard_dialect_and_is_not_looked_at_in_the_other() {
    let text = |version: &str| format!(r#"{{{version}"id":7,"method":"m"}}"#);
    for version in [r#""jsonrpc":"2.0","#, r#""jsonrpc":"\u0032.\u0030","#, r#""j\u0073onrpc":"2.0","#] {
        for chunk in common::CHUNKS {
            accepted(one(text(version).as_bytes(), chunk, &Limits::default(), Dialect::Standard));
        }
    }
    for version in [
        "",
        r#""jsonrpc":"1.0","#,
        r#""jsonrpc":2.0,"#,
        r#""jsonrpc":null,"#,
        r#""jsonrpc":["2.0"],"#,
        r#""jsonrpc":"2.0 ","#,
        r#""jsonrpc":"2.0\u0000","#,
        r#""jsonrpc":"","#,
        r#""Jsonrpc":"2.0","#,
        r#""jsonrpc":"2.0000000000000000000000000","#,
    ] {
        let refused = refused(receive(&text(version), Dialect::Standard));
        assert_eq!((refused.refusal.reason, &refused.id), (Reason::JsonrpcVersion, &SeenId::Readable(7.into())));
        let answer = AnswerRules::default().answer(&refused, |_| false);
        assert_eq!(answer, Answer::Error { id: Some(7.into()), code: -32600, paced: false });
        accepted(receive(&text(version), Dialect::Bare));
    }
}

#[test]
fn the_method_must_be_a_string_and_is_known_by_what_it_means() {
    for (spelling, meaning) in [(r#""m""#, "m"), (r#""\u006d""#, "m"), (r#""""#, ""), (r#""\ud83d\ude00/\n""#, "😀/\n")]
    {
        for member in ["method", "\\u006dethod", "metho\\u0064"] {
            for chunk in common::CHUNKS {
                let text = format!(r#"{{"jsonrpc":"2.0","id":7,"{member}":{spelling}}}"#);
                let message = accepted(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
                assert_eq!(message.method().as_deref(), Some(meaning));
            }
        }
    }
    for method in ["1", "null", "[]", r#"{"a":"m"}"#, "true"] {
        for (id, seen) in [("", SeenId::Absent), (r#""id":7,"#, SeenId::Readable(7.into()))] {
            let text = format!(r#"{{"jsonrpc":"2.0",{id}"method":{method}}}"#);
            let refused = refused(receive(&text, Dialect::Standard));
            assert_eq!((refused.refusal.reason, &refused.id, refused.method), (Reason::InvalidMethod, &seen, true));
        }
    }
    // Names that only look like it make no request.
    for member in ["Method", "METHOD", "method\\u0000", "method ", "m\u{e9}thod", "methoḋ"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"{member}":"m"}}"#);
        assert_eq!(refused(receive(&text, Dialect::Standard)).refusal.reason, Reason::NotJsonRpc, "{member}");
    }
}

#[test]
fn a_trace_of_a_wrong_type_refuses_a_request_of_the_bare_dialect_alone() {
    for (trace, right) in [
        ("{}", true),
        ("null", true),
        (r#"{"traceparent":"00"}"#, true),
        ("1", false),
        (r#""a""#, false),
        ("[]", false),
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","trace":{trace}}}"#);
        let notification = format!(r#"{{"jsonrpc":"2.0","method":"m","trace":{trace}}}"#);
        for (text, dialect, refuses) in [
            (&request, Dialect::Bare, !right),
            (&request, Dialect::Standard, false),
            (&notification, Dialect::Bare, false),
            (&notification, Dialect::Standard, false),
        ] {
            match receive(text, dialect) {
                Received::Refused(refused) => {
                    assert!(refuses, "{text}");
                    assert_eq!(
                        (refused.refusal.reason, refused.id),
                        (Reason::InvalidTrace, SeenId::Readable(7.into()))
                    );
                }
                Received::Message(message) => {
                    assert!(!refuses, "{text}");
                    assert_eq!(message.trace().map(|raw| raw.as_slice().unwrap()), right.then_some(trace.as_bytes()));
                }
            }
        }
    }
}

#[test]
fn the_raw_ranges_are_the_texts_of_the_members() {
    for chunk in common::CHUNKS {
        for (text, body) in [
            (r#"{"jsonrpc":"2.0","method":"m","params" : {"a" : [1, 2] } , "x":0}"#, Some(r#"{"a" : [1, 2] }"#)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":-1.5e7}"#, Some("-1.5e7")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, Some("null")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":"\u0000","params":1}"#, Some(r#""\u0000""#)),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, Some(r#"{"code":1}"#)),
        ] {
            let message = accepted(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
            let found = message.body().map(|raw| String::from_utf8(raw.runs().flatten().copied().collect()).unwrap());
            assert_eq!(found.as_deref(), body, "{text}");
            if let (Some(raw), Some(body)) = (message.body(), body) {
                let mut read = vec![0; body.len() + 1];
                let mut reader = raw.reader();
                let mut taken = 0;
                while let some @ 1.. = std::io::Read::read(&mut reader, &mut read[taken..]).unwrap() {
                    taken += some;
                }
                assert_eq!(&read[..taken], body.as_bytes());
            }
        }
    }
}

#[test]
fn ids_keep_their_type_and_their_spelling_and_are_compared_by_what_they_mean() {
    let id = |text: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{text},"result":0}}"#);
        accepted(receive(&text, Dialect::Standard)).id().cloned().unwrap()
    };
    for text in ["1", r#""1""#, "1.0", "-0", "0", r#""""#, r#""\u0061""#, "9223372036854775807"] {
        assert_eq!(id(text).as_json(), text);
    }
    for (one, two, same) in [
        ("1", r#""1""#, false),
        (r#""""#, "0", false),
        ("3100.0", "3100", true),
        ("-0", "0", true),
        (r#""a""#, r#""\u0061""#, true),
        (r#""a""#, r#""A""#, false),
        (r#""1""#, r#""1.0""#, false),
        ("9223372036854775807", "9223372036854775806", false),
    ] {
        assert_eq!(id(one) == id(two), same, "{one} {two}");
    }
}

#[test]
fn noise_is_refused_and_never_answered_on_standard_lines() {
    for text in [
        "2026-01-01T00:00:00Z INFO started",
        "123",
        "true story",
        r#""quoted" text"#,
        r#"{"level":"info"}"#,
        r#"{"level":"info","msg":"a","id":7}"#,
        "null",
        "[]",
        "[1]",
        r#"[{"jsonrpc":"2.0","id":7,"method":"m"}]"#,
        "{",
        "{}",
        "}",
        "\u{1b}[31mred\u{1b}[0m",
        "Content-Length: 12",
        "panicked at src/main.rs:1:1:",
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#,
        r#"{"jsonrpc":"2.0","error":{},"id":1.5}"#,
        r#"{"level":"info","msg":"\ud800"}"#,
    ] {
        for chunk in common::CHUNKS {
            let refused = refused(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Standard));
            for notifications_are_vital in [false, true] {
                let rules = AnswerRules { dialect: Dialect::Standard, notifications_are_vital };
                assert_eq!(rules.answer(&refused, |_| false), Answer::Nothing, "{text}");
            }
            // The other dialect says that it did not understand, at a bounded pace and under nobody's id; only what
            // claims to be a response is not answered.
            let bare = common::refused(one(text.as_bytes(), chunk, &Limits::default(), Dialect::Bare));
            let rules = AnswerRules { dialect: Dialect::Bare, notifications_are_vital: false };
            let right =
                if bare.response { Answer::Nothing } else { Answer::Error { id: None, code: -32600, paced: true } };
            assert_eq!(rules.answer(&bare, |_| false), right, "{text}");
        }
    }
}

#[test]
fn a_response_that_is_refused_fails_the_call_that_waits_for_it_and_is_never_answered() {
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":"\ud800"}"#,
        r#"{"jsonrpc":"2.0","result":{"a":1,"a":2},"id":7}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#,
        r#"{"id":7,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":[1,}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":"cut o"#,
    ] {
        let refused = refused(receive(text, Dialect::Standard));
        assert!(refused.response && !refused.method);
        for notifications_are_vital in [false, true] {
            let rules = AnswerRules { dialect: Dialect::Standard, notifications_are_vital };
            assert_eq!(rules.answer(&refused, |id| *id == 7.into()), Answer::FailCall(7.into()), "{text}");
            assert_eq!(rules.answer(&refused, |_| false), Answer::Nothing, "{text}");
        }
    }
}

/// Every combination of what is known of a refused message, against the table of answers in the order of its rows.
#[test]
fn the_table_of_answers_holds_for_everything_that_can_be_refused() {
    let id = Id::from(7);
    let mut tried = 0;
    for (reason, _, class, _) in Reason::TABLE {
        for mask in 0..64 {
            let bit = |place: u32| mask >> place & 1 == 1;
            let [method, response, waiting, vital, bare, object] = [0, 1, 2, 3, 4, 5].map(bit);
            for seen in [SeenId::Absent, SeenId::Unreadable, SeenId::Readable(id.clone())] {
                if !object && (method || response || seen != SeenId::Absent) {
                    continue;
                }
                let refused = Refused {
                    refusal: Refusal::new(*reason),
                    id: seen.clone(),
                    object,
                    method,
                    response,
                    wire_bytes: 1,
                    counts: Counts::default(),
                };
                let dialect = if bare { Dialect::Bare } else { Dialect::Standard };
                let rules = AnswerRules { dialect, notifications_are_vital: vital };
                let code = match class {
                    Class::Grammar | Class::Encoding if !bare => -32700,
                    Class::Room => -31009,
                    _ if *reason == Reason::Drain => -32603,
                    _ => -32600,
                };
                assert_eq!(error_code(dialect, &refused.refusal), code);
                let readable = seen == SeenId::Readable(id.clone());
                // An object whose kind was not seen may have been a request, if it was not understood to its end.
                let may_be_request = matches!(class, Class::Grammar | Class::Encoding | Class::Message | Class::Room);
                let unaddressed = if bare { Answer::Error { id: None, code, paced: true } } else { Answer::Nothing };
                let right = match () {
                    () if !method && readable && waiting => Answer::FailCall(id.clone()),
                    () if !method && response => Answer::Nothing,
                    () if readable && (method || may_be_request) => {
                        Answer::Error { id: Some(id.clone()), code, paced: false }
                    }
                    () if method && seen == SeenId::Unreadable => {
                        let code = if code == -32700 { -32600 } else { code };
                        Answer::Error { id: None, code, paced: false }
                    }
                    () if method && seen == SeenId::Absent && vital => Answer::Close,
                    () => unaddressed,
                };
                assert_eq!(rules.answer(&refused, |asked| waiting && *asked == id), right, "{rules:?} {refused:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 3_000, "{tried}");
}

#[test]
fn an_error_reply_is_valid_json_that_says_why_and_never_repeats_the_input() {
    const MARK: &str = "plimsoll-echo";
    let big = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{MARK}","params":["{}"]}}"#, MARK.repeat(400));
    let texts = [
        (big, Some(Reason::MessageBytes)),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":["{MARK}",{MARK}]}}"#), Some(Reason::InvalidJson)),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"{MARK}":"\ud800"}}"#), Some(Reason::LoneSurrogate)),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"{MARK}":0,"{MARK}":0}}"#), Some(Reason::DuplicateKey)),
        (format!(r#"{{"jsonrpc":"{MARK}","id":7,"method":"{MARK}"}}"#), Some(Reason::JsonrpcVersion)),
        (format!(r#"{{"jsonrpc":"2.0","id":["{MARK}"],"method":"m"}}"#), Some(Reason::InvalidId)),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{MARK}","result":0}}"#), Some(Reason::MethodWithResult)),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"{MARK}":["{MARK}"#), Some(Reason::Truncated)),
        (format!("{MARK}\u{1b}[2J<script>"), Some(Reason::NotAnObject)),
    ];
    let limits = Limits::default().with_message_bytes(plimsoll_core::Bound::at_most(1_000));
    for (text, reason) in texts {
        let refused = refused(one(text.as_bytes(), 97, &limits, Dialect::Standard));
        assert_eq!(Some(refused.refusal.reason), reason, "{text}");
        for dialect in DIALECTS {
            let code = error_code(dialect, &refused.refusal);
            let reply = render_refusal(dialect, Some(&7.into()), code, &refused.refusal);
            let reply = String::from_utf8(reply).unwrap();
            assert!(!reply.contains("echo") && !reply.contains('\u{1b}') && !reply.contains("script"), "{reply}");
            check_reply(&reply, dialect, code, &refused.refusal);
        }
        assert!(!format!("{} {:?}", refused.refusal, refused.refusal).contains("echo"));
    }
}

#[test]
fn an_error_reply_holds_every_number_of_every_reason() {
    for (reason, ..) in Reason::TABLE {
        for dialect in DIALECTS {
            let mut refusal = Refusal::over(*reason, u64::MAX, u64::MAX).at(u64::MAX);
            refusal.scope = Some("connection");
            for refusal in [refusal, Refusal::new(*reason)] {
                let code = error_code(dialect, &refusal);
                let reply = String::from_utf8(render_refusal(dialect, Some(&7.into()), code, &refusal)).unwrap();
                check_reply(&reply, dialect, code, &refusal);
            }
        }
    }
}

fn check_reply(reply: &str, dialect: Dialect, code: i64, refusal: &Refusal) {
    assert!(!reply.contains('\n'), "a reply is one line");
    let value: serde_json::Value = serde_json::from_str(reply).unwrap();
    assert_eq!(value["id"], 7);
    assert_eq!(
        value.get("jsonrpc").and_then(|version| version.as_str()),
        (dialect == Dialect::Standard).then_some("2.0")
    );
    assert_eq!(value["error"]["code"], code);
    assert!(value["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    let data = &value["error"]["data"];
    assert_eq!(data["reason"], refusal.reason.word());
    assert_eq!(data["retryable"], refusal.reason.retryable());
    for (name, number) in [("limit", refusal.limit), ("observed", refusal.observed), ("offset", refusal.offset)] {
        assert_eq!(data.get(name).and_then(serde_json::Value::as_u64), number, "{name}");
    }
    assert_eq!(data.get("scope").and_then(|scope| scope.as_str()), refusal.scope);
    // What we send passes our own scanner, as the error response that it is.
    let message = accepted(one(reply.as_bytes(), usize::MAX, &Limits::default(), dialect));
    assert_eq!((message.kind(), message.id()), (Kind::ErrorResponse, Some(&7.into())));
}

#[test]
fn an_id_goes_back_in_its_own_spelling() {
    for id in ["7", "1.0", r#""a""#, r#""\u0061\"\\\n""#, "-9223372036854775808", r#""""#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":0,"a":0}}}}"#);
        let refused = refused(receive(&text, Dialect::Standard));
        let SeenId::Readable(seen) = &refused.id else { panic!("{text}") };
        let reply = String::from_utf8(render_refusal(Dialect::Standard, Some(seen), -32600, &refused.refusal)).unwrap();
        assert!(reply.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error""#)), "{reply}");
    }
}
