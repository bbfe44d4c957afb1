//! Rows 22, 27 and 28: what is not one message. Headers that lie, peers that are slow, peers that are many.
//!
//! For the last two the text is half of the attack: the other half is how fast it is sent and whether anyone reads
//! the answers. That is in the words of [`Shape::right`](crate::Shape::right) and up to the test.

use super::push;
use crate::expect::{Facts, Kind};
use crate::generator::{Generator, WriteUnit};
use crate::shape::{Built, Form, Shape};

pub(crate) const SHAPES: &[Shape] = &[
    headers("lengthHuge", b"Content-Length: 99999999999\r\n\r\n{}"),
    headers("lengthAbove64Bits", b"Content-Length: 18446744073709551617\r\n\r\n{}"),
    headers("lengthWithText", b"Content-Length: 12abc\r\n\r\n{\"id\":1}    "),
    headers("lengthNegative", b"Content-Length: -1\r\n\r\n{}"),
    headers("lengthSigned", b"Content-Length: +2\r\n\r\n{}"),
    headers("lengthEmpty", b"Content-Length:\r\n\r\n{}"),
    headers("lengthTwice", b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}"),
    headers("lengthMissing", b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}"),
    Shape::sized(22, "headerEndless", Form::Headers, HEADERS, |size| header_section(size, 60)).by_default(1024 * 1024),
    Shape::sized(22, "headerLongLine", Form::Headers, HEADERS, |size| header_section(size, size))
        .by_default(1024 * 1024),
    Shape::fixed(
        27,
        "slowRequest",
        Form::Lines,
        "sent one byte a second: on a network the connection is closed by name when the frame makes too little progress",
        |_| lines(1, |_, out| out.extend_from_slice(br#"{"jsonrpc":"2.0","id":7,"method":"corpus/slow"}"#)),
    ),
    Shape::sized(
        27,
        "frameWithoutEnd",
        Form::Message,
        "its bytes are not held beyond the limit; the connection is closed by name after four times the limit",
        |size| {
            let head = r#"{"jsonrpc":"2.0","id":7,"method":"corpus/slow","params":[""#;
            let text = Generator::default().text(head.as_bytes()).repeat(&b"x"[..], size.saturating_sub(head.len()));
            Built { text, facts: Facts { kind: Kind::Behaviour, ..Facts::default() } }
        },
    )
    .by_default(65 * 1024 * 1024),
    Shape::fixed(
        27,
        "readerThatNeverReads",
        Form::Lines,
        "4,000 echo calls of 64 KiB whose answers nobody reads: bytes in flight and queued stay within the budget, and \
         the connection is closed at its stall deadline",
        |_| {
            lines(4_000, |index, out| {
                push(out, format_args!(r#"{{"jsonrpc":"2.0","id":{index},"method":"corpus/echo","params":[""#));
                out.resize(out.len() + 64 * 1024, b'x');
                out.extend_from_slice(b"\"]}");
            })
        },
    ),
    Shape::fixed(
        28,
        "requestsToHangingHandlers",
        Form::Lines,
        "admitted up to `in_flight`, the rest answered as overloaded or left unread; an honest peer beside is served",
        |_| {
            lines(CROWD, |index, out| {
                push(out, format_args!(r#"{{"jsonrpc":"2.0","id":{index},"method":"corpus/hang"}}"#));
            })
        },
    ),
    Shape::fixed(28, "answersNeverAsked", Form::Lines, "counted and never answered; nothing is kept of them", |_| {
        lines(CROWD, |index, out| push(out, format_args!(r#"{{"jsonrpc":"2.0","id":{index},"result":0}}"#)))
    }),
    Shape::fixed(
        28,
        "notificationFlood",
        Form::Lines,
        "handled in order, or dropped and counted; held by bytes and counts",
        |_| {
            lines(CROWD, |index, out| {
                push(out, format_args!(r#"{{"jsonrpc":"2.0","method":"corpus/note","params":[{index}]}}"#));
            })
        },
    ),
];

const CROWD: usize = 10_000;
const HEADERS: &str = "refused by name before anything is allocated for a body";

const fn headers(name: &'static str, text: &'static [u8]) -> Shape {
    Shape::literal(22, name, Form::Headers, HEADERS, text, Kind::Header)
}

/// A header section without end, in lines of `line_bytes`.
fn header_section(size: usize, line_bytes: usize) -> Built {
    let name = "X-Padding: ";
    let line_bytes = line_bytes.max(name.len() + 3);
    let line = format!("{name}{}\r\n", "x".repeat(line_bytes - name.len() - 2));
    let lines = size / line_bytes;
    let text = Generator::default().repeat(line.into_bytes(), lines).repeat(&b"X"[..], size - lines * line_bytes);
    Built { text, facts: Facts { kind: Kind::Header, ..Facts::default() } }
}

fn lines(count: usize, write: WriteUnit) -> Built {
    let text = Generator::default().counted(count, "\n", write).text(&b"\n"[..]);
    Built { text, facts: Facts { kind: Kind::Behaviour, ..Facts::default() } }
}
