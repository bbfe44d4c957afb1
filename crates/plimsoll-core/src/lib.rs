//! The core of Plimsoll: bounded JSON-RPC without I/O.
//!
//! Bytes go in, messages and refusals come out. There is no socket, no clock, no task and no thread here, so everything
//! can be tested to the byte. The way of the data, file by file:
//!
//! | step | file |
//! |---|---|
//! | bytes of a stream are cut into frames | `line` |
//! | a frame's bytes are stored, charged and scanned as they arrive | `frame`, `segments`, `budget` |
//! | grammar, counts, limits, repeated keys, the envelope | `scan` |
//! | the kind by members present | `message`, `id` |
//! | what is refused, and what is answered | `reason`, `answer` |
//!
//! ```
//! use plimsoll_core::{AnswerRules, Answer, Bound, Budget, Dialect, Limits, Line, LineDeframer, Reason, Received};
//!
//! // One process, one connection, and a limit that the message below passes.
//! let process = Budget::new(Bound::at_most(64 << 20));
//! let connection = process.child(Bound::at_most(32 << 20));
//! let limits = Limits::default().with_json_values(Bound::at_most(5));
//! let mut lines = LineDeframer::new(&limits, Dialect::Standard, &connection);
//!
//! let (_, line) = lines.push(b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[1,2,3],\"id\":7}\n");
//! let Some(Line::Received(Received::Refused(refused))) = line else { panic!() };
//! assert_eq!(refused.refusal.reason, Reason::JsonValues);
//!
//! // The id came after the refusal, and the answer still goes to it.
//! let answer = AnswerRules::default().answer(&refused, |_| false);
//! assert!(matches!(answer, Answer::Error { id: Some(id), code: -32600, .. } if id.as_integer() == Some(7)));
//! ```
#![forbid(unsafe_code)]

mod answer;
mod budget;
mod frame;
mod id;
mod limits;
mod line;
mod message;
mod printable;
mod reason;
mod scan;
mod segments;

pub use answer::{
    Answer, AnswerRules, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, OVERLOADED, PARSE_ERROR,
    error_code, render_refusal,
};
pub use budget::{Budget, Charge, NoRoom, Scope};
pub use frame::{Document, Received};
pub use id::Id;
pub use limits::{Bound, Deadline, DuplicateKeys, KIB, LimitError, Limits, MIB};
pub use line::{Line, LineDeframer, frame_line};
pub use message::{Dialect, Kind, Message, Raw, RawReader, Refused, SeenId};
pub use printable::Printable;
pub use reason::{Class, Reason, Refusal};
pub use scan::Counts;
pub use segments::{Runs, Segments, Source};
