//! The inputs of the table "Decoding one message": what a decoder meets on a good day, and the one bad day.
//!
//! Every row but `flatZeroes` is accepted at default limits. The rows are whole messages in memory, since a benchmark
//! measures the decoder and not the generator.

use std::io::Write as _;

use crate::envelope::{Dialect, IdPlacement, notification, request};
use crate::expect::limits;
use crate::generator::Generator;
use crate::reproduction::reproduction;
use crate::useful::{result, tools_list};

/// One input of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchRow {
    /// The stable name, in camel case.
    pub name: &'static str,
    /// One whole JSON-RPC message. Only that of `prettyPrinted` has line feeds inside.
    pub message: Vec<u8>,
}

/// The twelve rows, in the order of the table.
pub fn bench_rows() -> Vec<BenchRow> {
    vec![
        row("flatZeroes", reproduction()),
        row("toolsCall", Generator::default().text(TOOLS_CALL.as_bytes())),
        row("smallResponse", Generator::default().text(SMALL_RESPONSE.as_bytes())),
        row("toolsList", tools_list(100_000)),
        row("base64", {
            let text = Generator::default().repeat(&BASE64_UNIT[..], 1_000_000 / BASE64_UNIT.len());
            result(Generator::default().text(&br#"{"dataBase64":""#[..]).then(text).text(&br#""}"#[..]))
        }),
        row("walkReply", {
            let entries = Generator::default().counted(50_000, ",", |index, out| {
                let kind = if index % 8 == 0 { "directory" } else { "file" };
                let _ = write!(out, r#"{{"path":"file:///w/s/{index:07}","kind":"{kind}"}}"#);
            });
            let tail = r#"],"errors":[],"truncated":false}"#;
            result(Generator::default().text(&br#"{"entries":["#[..]).then(entries).text(tail.as_bytes()))
        }),
        row("zeroesAtLimit", {
            // Beside the zeroes: the message, its version, id and method, and the array.
            let zeroes = limits::JSON_VALUES as usize - 5;
            params(Generator::default().text(&b"[0"[..]).repeat(&b",0"[..], zeroes - 1).text(&b"]"[..]))
        }),
        row("deep", {
            // With the message itself: 100 containers.
            let value = Generator::default().repeat(&b"["[..], 99).text(&b"0"[..]).repeat(&b"]"[..], 99);
            params(value)
        }),
        row("distinctKeys", {
            let members = Generator::default().counted(100_000, ",", |index, out| {
                let _ = write!(out, r#""setting_{index:06}":{}"#, index % 10);
            });
            params(Generator::default().text(&b"{"[..]).then(members).text(&b"}"[..]))
        }),
        row("cjkText", text_of("吃水线是船舷上的一道标记，它说明这艘船可以装载多少货物。", 1_000_000)),
        row("escapes", text_of(r#"\"line\"\n\t\u001b[1m\\\u00e9\/\ud83d\ude00"#, 1_000_000)),
        row("prettyPrinted", pretty_printed(200_000)),
    ]
}

/// 216 bytes.
const TOOLS_CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"repository_search","arguments":"#,
    r#"{"pattern":"fn main","path":"crates/plimsoll/src","limit":50,"case":false},"_meta":{"progressToken":"#,
    r#""search-00000042"}}}"#
);

const SMALL_RESPONSE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"crates/plimsoll-cli/src/main.rs:12"}],"#,
    r#""isError":false}}"#
);

/// What 48 bytes of a file look like; a multiple of four characters.
const BASE64_UNIT: &[u8; 64] = b"f0VMRgIBAQAAAAAAAAAAAAMAPgABAAAAkGcAAAAAAABAAAAAAAAAALDXDwAAAAAA";

fn row(name: &'static str, message: Generator) -> BenchRow {
    BenchRow { name, message: message.into_bytes() }
}

fn params(value: Generator) -> Generator {
    request(Dialect::Standard, IdPlacement::First, "7", "corpus/bench", value)
}

/// A document that is opened, with a text of `unit` again and again and of about `bytes` bytes.
fn text_of(unit: &'static str, bytes: usize) -> Generator {
    let head = r#"{"textDocument":{"uri":"file:///w/a.txt","version":1,"text":""#;
    let text = Generator::default().repeat(unit.as_bytes(), bytes / unit.len());
    let value = Generator::default().text(head.as_bytes()).then(text).text(&br#""}}"#[..]);
    notification(Dialect::Standard, "textDocument/didOpen", value)
}

/// A list of diagnostics as a person would like to read it, of about `bytes` bytes.
fn pretty_printed(bytes: usize) -> Generator {
    let write = |index: usize, out: &mut Vec<u8>| {
        let _ = write!(
            out,
            r#"
      {{
        "range": {{
          "start": {{ "line": {index}, "character": 4 }},
          "end": {{ "line": {index}, "character": 18 }}
        }},
        "severity": 2,
        "code": "unused_variables",
        "source": "rustc",
        "message": "unused variable: `line_{index}`"
      }}"#
        );
    };
    let unit = Generator::default().counted(1, ",", write).remaining_bytes() as usize + 10;
    Generator::default()
        .text(
            &br#"{
  "jsonrpc": "2.0",
  "method": "textDocument/publishDiagnostics",
  "params": {
    "uri": "file:///w/src/main.rs",
    "diagnostics": ["#[..],
        )
        .counted(bytes / unit, ",", write)
        .text(&b"\n    ]\n  }\n}\n"[..])
}
