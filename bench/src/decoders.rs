//! The columns: what makes a message of bytes.
//!
//! Ours is the public way of a connection that reads lines: the stream comes in chunks of 64 KiB, and framing, copying
//! into the frame, charging, scanning and classifying are all counted. The peers are given their message as one slice,
//! already cut out of the stream; they do not look for its end and copy nothing beforehand. Every column drops what it
//! made within its own time.

use std::borrow::Cow;
use std::hint::black_box;

use plimsoll_core::{Bound, Budget, Kind, Line, LineDeframer, Reason, Received};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::inputs::Input;

/// How much a transport hands over at a time.
const CHUNK: usize = 64 * 1024;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was accepted.
    Message(Kind),
    /// Ours refused it.
    Refused(Reason),
}

/// A connection of ours, which reads one message after another.
#[derive(Debug)]
pub struct Connection {
    lines: LineDeframer,
}

impl Connection {
    /// A connection with the limits and in the dialect of a row.
    pub fn new(input: &Input) -> Self {
        let process = Budget::new(Bound::at_most(256 << 20));
        let connection = process.child(Bound::at_most(128 << 20));
        Self { lines: LineDeframer::new(&input.limits, input.dialect, &connection) }
    }

    /// Reads one line.
    ///
    /// # Panics
    ///
    /// When the line does not end where its bytes end: then nothing would have been measured.
    pub fn decode(&mut self, line: &[u8]) -> Outcome {
        let mut outcome = None;
        for mut chunk in line.chunks(CHUNK) {
            while !chunk.is_empty() {
                let (taken, received) = self.lines.push(black_box(chunk));
                chunk = &chunk[taken..];
                match black_box(received) {
                    Some(Line::Received(Received::Message(message))) => {
                        outcome = Some(Outcome::Message(message.kind()));
                    }
                    Some(Line::Received(Received::Refused(refused))) => {
                        outcome = Some(Outcome::Refused(refused.refusal.reason));
                    }
                    Some(overrun) => panic!("no row is longer than may be skipped: {overrun:?}"),
                    None => {}
                }
            }
        }
        outcome.expect("a row is one whole line")
    }
}

/// A decoder that others ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// What exec-servers ship: an untagged enum over [`Value`].
    Untagged,
    /// A struct of `&RawValue`: the least that serde_json can do for an envelope. It checks neither repeated keys, nor
    /// counts, nor surrogates.
    Raw,
}

impl Peer {
    /// Every peer, in the order of the columns.
    pub const ALL: [Peer; 2] = [Peer::Untagged, Peer::Raw];

    /// The head of the column.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Untagged => "untagged over `Value`",
            Peer::Raw => "struct + `&RawValue`",
        }
    }

    /// Reads one message.
    ///
    /// # Panics
    ///
    /// When the peer does not accept it: then something else would have been measured.
    pub fn decode(self, message: &[u8]) -> Kind {
        match self {
            Peer::Untagged => {
                let message: Untagged = serde_json::from_slice(black_box(message)).expect("every row is JSON-RPC");
                black_box(&message).kind()
            }
            Peer::Raw => {
                let message: Raw<'_> = serde_json::from_slice(black_box(message)).expect("every row is JSON-RPC");
                black_box(&message).kind()
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[allow(dead_code, reason = "decoded, as it is by those who would then read it")]
enum Untagged {
    Request {
        id: RequestId,
        method: String,
        #[serde(default)]
        params: Option<Value>,
        #[serde(default)]
        trace: Option<Value>,
    },
    Notification {
        method: String,
        #[serde(default)]
        params: Option<Value>,
    },
    Response {
        id: RequestId,
        result: Value,
    },
    Error {
        id: RequestId,
        error: ErrorBody,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[allow(dead_code, reason = "decoded, as it is by those who would then read it")]
enum RequestId {
    String(String),
    Integer(i64),
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "decoded, as it is by those who would then read it")]
struct ErrorBody {
    code: i64,
    message: String,
    #[serde(default)]
    data: Option<Value>,
}

impl Untagged {
    fn kind(&self) -> Kind {
        match self {
            Untagged::Request { .. } => Kind::Request,
            Untagged::Notification { .. } => Kind::Notification,
            Untagged::Response { .. } => Kind::Response,
            Untagged::Error { .. } => Kind::ErrorResponse,
        }
    }
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "decoded, as it is by those who would then read it")]
struct Raw<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Raw<'_> {
    fn kind(&self) -> Kind {
        match (&self.method, self.id, self.result) {
            (Some(_), Some(_), _) => Kind::Request,
            (Some(_), None, _) => Kind::Notification,
            (None, _, Some(_)) => Kind::Response,
            (None, _, None) => Kind::ErrorResponse,
        }
    }
}
