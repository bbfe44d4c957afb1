//! What honest peers send and a bound must let through: large, long or many, and legal.
//!
//! At default limits and default memory every one of these is accepted. A limit that refuses one is wrong, however
//! well it stops the rest of the corpus.

use std::io::Write as _;

use crate::envelope::{Dialect, IdPlacement, notification, request, response};
use crate::generator::Generator;
use crate::shape::Form;

/// Messages that must be accepted at default limits.
#[derive(Clone, Debug)]
pub struct Useful {
    name: &'static str,
    form: Form,
    messages: usize,
    text: Generator,
}

impl Useful {
    /// The stable name, in camel case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// [`Form::Message`] for one message without a line ending, [`Form::Lines`] for many.
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many messages there are; all must be delivered.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// The text, in the standard dialect.
    pub fn text(&self) -> Generator {
        self.text.clone()
    }
}

/// All of them.
pub fn useful() -> Vec<Useful> {
    vec![
        message("toolsList", tools_list(100_000)),
        message("escapes", filled(r#"{"content":[{"type":"text","text":""#, r"\u0001", r#""}]}"#, 12_600_000)),
        message("textResult", filled(r#"{"content":[{"type":"text","text":""#, "text ", r#""}]}"#, 10_485_869)),
        message("readDirectory", result(entries(50_000))),
        message("base64", {
            let text = Generator::default().repeat(&b"UGxp"[..], 15 * 1024 * 1024 / 4);
            result(Generator::default().text(&br#"{"dataBase64":""#[..]).then(text).text(&br#""}"#[..]))
        }),
        lines("pipelinedCalls", 200, |index, out| {
            let _ = write!(
                out,
                r#"{{"jsonrpc":"2.0","id":{index},"method":"tools/call","params":{{"name":"search","arguments":{{"query":"load line {index}"}}}}}}"#
            );
        }),
        lines("notifications", 4_000, |index, out| {
            let _ = write!(
                out,
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"build","progress":{index},"total":4000}}}}"#
            );
        }),
        message("toolArgument", {
            let head = r#"{"name":"write","arguments":{"path":"notes.txt","content":""#;
            let content = Generator::default().repeat(&b"The mark on the hull. "[..], 1024 * 1024 / 22);
            let params = Generator::default().text(head.as_bytes()).then(content).text(&br#""}}"#[..]);
            request(Dialect::Standard, IdPlacement::First, "7", "tools/call", params)
        }),
        message("openDocument", {
            let head = r#"{"textDocument":{"uri":"file:///w/a.rs","languageId":"rust","version":1,"text":""#;
            let source = Generator::default().repeat(&br#"    let line = \"load\";\n"#[..], 40_000);
            let params = Generator::default().text(head.as_bytes()).then(source).text(&br#""}}"#[..]);
            notification(Dialect::Standard, "textDocument/didOpen", params)
        }),
    ]
}

/// The result of `tools/list` with as many tools as come near to `bytes`.
pub(crate) fn tools_list(bytes: usize) -> Generator {
    let write = |index: usize, out: &mut Vec<u8>| {
        let _ = write!(
            out,
            concat!(
                r#"{{"name":"repository_search_{index}","title":"Search in repository {index}","#,
                r#""description":"Finds files whose text matches a pattern, newest first, and gives the lines around "#,
                r#"each hit. Use it before reading a file whole; ask for fewer lines when the answer is long.","#,
                r#""inputSchema":{{"type":"object","properties":{{"pattern":{{"type":"string","description":"A regular "#,
                r#"expression, matched line by line"}},"path":{{"type":"string","description":"The folder to search in, "#,
                r#"relative to the root"}},"limit":{{"type":"integer","minimum":1,"maximum":500,"default":50}}}},"#,
                r#""required":["pattern"],"additionalProperties":false}},"annotations":{{"readOnlyHint":true}}}}"#
            ),
            index = index
        );
    };
    let tool = Generator::default().counted(1, ",", write).remaining_bytes() as usize + 2;
    let tools = Generator::default().text(&br#"{"tools":["#[..]).counted(bytes / tool, ",", write).text(&b"]}"[..]);
    result(tools)
}

/// A response with this result.
pub(crate) fn result(value: Generator) -> Generator {
    response(Dialect::Standard, IdPlacement::First, "7", value)
}

/// A response of exactly `bytes`, whose string is `unit` again and again; what is left over is filled with `A`.
fn filled(head: &'static str, unit: &'static str, tail: &'static str, bytes: usize) -> Generator {
    let envelope = result(Generator::default()).remaining_bytes() as usize;
    let room = bytes - envelope - head.len() - tail.len();
    result(
        Generator::default()
            .text(head.as_bytes())
            .repeat(unit.as_bytes(), room / unit.len())
            .repeat(&b"A"[..], room % unit.len())
            .text(tail.as_bytes()),
    )
}

/// The result of `fs/readDirectory`.
fn entries(count: usize) -> Generator {
    Generator::default()
        .text(&br#"{"entries":["#[..])
        .counted(count, ",", |index, out| {
            let _ = write!(out, r#"{{"fileName":"module_{index:05}.rs","isDirectory":false,"isFile":true}}"#);
        })
        .text(&b"]}"[..])
}

fn message(name: &'static str, text: Generator) -> Useful {
    Useful { name, form: Form::Message, messages: 1, text }
}

fn lines(name: &'static str, messages: usize, write: fn(usize, &mut Vec<u8>)) -> Useful {
    let text = Generator::default().counted(messages, "\n", write).text(&b"\n"[..]);
    Useful { name, form: Form::Lines, messages, text }
}
