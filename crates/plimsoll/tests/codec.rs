//! The codec is the same enforcement through another door: the seven behaviours of a bounded line reader, in a `Framed`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use plimsoll::{Bound, Budget, CodecError, Dialect, KIB, Limits, LineCodec, MIB, Received, SeenId};
use tokio::io::AsyncWriteExt;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Encoder, FramedRead};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A request with id 7 of exactly this many bytes.
fn request_of(bytes: usize) -> String {
    let bare = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[""]}"#.len();
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":["{}"]}}"#, "x".repeat(bytes - bare))
}

fn limited(bytes: u64) -> Limits {
    Limits::default().with_message_bytes(Bound::at_most(bytes))
}

/// What comes out of a `FramedRead` over `text`, fed in pieces, in words: `ok`, or the reason and the id.
async fn received(text: String, limits: Limits, piece: usize) -> Vec<String> {
    let (mut writer, reader) = tokio::io::duplex(piece);
    let feeding = tokio::spawn(async move {
        for piece in text.as_bytes().chunks(piece) {
            if writer.write_all(piece).await.is_err() {
                break;
            }
        }
    });
    let budget = Budget::new(Bound::at_most(64 * MIB));
    let mut framed = FramedRead::new(reader, LineCodec::new(&limits, Dialect::Standard, &budget));
    let mut found = Vec::new();
    while let Some(item) = next(&mut framed).await {
        match item {
            Ok(Received::Message(message)) => found.push(format!("ok {}", message.wire_bytes())),
            Ok(Received::Refused(refused)) => {
                let id = match refused.id {
                    SeenId::Readable(id) => id.to_string(),
                    other => format!("{other:?}"),
                };
                found.push(format!("{} {id}", refused.refusal.reason));
            }
            Err(CodecError::Overrun(refusal)) => found.push(format!("closed by {}", refusal.reason)),
            Err(error) => panic!("{error}"),
        }
        assert!(framed.read_buffer().capacity() <= 64 * 1024, "the read buffer stays small");
    }
    drop(framed);
    feeding.await.unwrap();
    assert_eq!(budget.held(), 0);
    found
}

async fn next<R>(framed: &mut FramedRead<R, LineCodec>) -> Option<Result<Received, CodecError>>
where
    R: tokio::io::AsyncRead + Unpin,
{
    use futures_core::Stream;
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *framed).poll_next(cx)).await
}

#[tokio::test]
async fn an_oversized_message_is_refused_by_its_id_and_the_next_one_arrives() {
    let text = format!("{}\n{PING}\n", request_of(1_001));
    assert_eq!(received(text.clone(), limited(1_000), 4096).await, ["messageBytes 7", "ok 40"]);
    // Control: with the bound off it is delivered.
    let off = Limits::default().with_message_bytes(Bound::Unbounded);
    assert_eq!(received(text, off, 4096).await, ["ok 1001", "ok 40"]);
}

#[tokio::test]
async fn text_without_a_newline_is_bounded_and_the_next_message_arrives() {
    let text = format!("{}\n{PING}\n", "x".repeat(128 * 1024));
    assert_eq!(received(text, limited(4 * KIB), 8192).await, ["notAnObject Absent", "ok 40"]);
}

#[tokio::test]
async fn a_message_at_the_limit_is_delivered_and_one_byte_more_is_not() {
    let text = format!("{}\r\n{}\n", request_of(1_000), request_of(1_001));
    assert_eq!(received(text, limited(1_000), 333).await, ["ok 1000", "messageBytes 7"]);
}

#[tokio::test]
async fn a_mebibyte_passes_at_the_default() {
    assert_eq!(received(request_of(1 << 20) + "\n", Limits::default(), 65_536).await, ["ok 1048576"]);
}

#[tokio::test]
async fn chunks_of_97_bytes_change_nothing() {
    let text = format!("{PING}\n{}\n{}\n{PING}", request_of(900), request_of(1_200));
    assert_eq!(received(text, limited(1_000), 97).await, ["ok 40", "ok 900", "messageBytes 7", "ok 40"]);
}

#[tokio::test]
async fn two_oversized_messages_in_a_row_are_both_refused_by_their_ids() {
    let text = format!("{}\n{}\n{PING}\n", request_of(1_001), request_of(5_000));
    assert_eq!(received(text, limited(1_000), 512).await, ["messageBytes 7", "messageBytes 7", "ok 40"]);
}

#[tokio::test]
async fn a_message_that_never_ends_is_answered_by_its_id_and_then_ends_the_stream() {
    let text = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":""#.to_owned() + &"x".repeat(100_000);
    let limits = limited(1_000).with_skip_bytes(Bound::at_most(10_000));
    assert_eq!(received(text, limits, 512).await, ["messageBytes 7", "closed by skipBytes"]);
}

#[tokio::test]
async fn what_is_encoded_is_one_line_and_comes_back() {
    let budget = Budget::new(Bound::Unbounded);
    let mut codec = LineCodec::new(&Limits::default(), Dialect::Standard, &budget);
    let mut bytes = BytesMut::new();
    codec.encode("{\n \"jsonrpc\":\"2.0\",\n\"method\":\"m\"}", &mut bytes).unwrap();
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(bytes.last(), Some(&b'\n'));
    assert_eq!(received(String::from_utf8(bytes.to_vec()).unwrap(), Limits::default(), 7).await.len(), 1);
}
