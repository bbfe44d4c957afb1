//! JSON-RPC with peers that you do not trust, within one memory budget.
//!
//! You draw one line, in bytes ([`Limits::memory`]). Whatever a peer sends, however slowly it reads, in whatever order,
//! what this library holds on behalf of its peers stays below that line, and every request with a readable id gets one
//! reply: the handler's, or an error that names the limit, its value and what was observed. Every call that can no longer
//! succeed fails at once with the reason.
//!
//! ```
//! use plimsoll::{Bound, Limits, PeerBuilder, Router, RpcError};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), plimsoll::CallError> {
//! let router = Router::new().request("divide", |_context, (a, b): (i64, i64)| async move {
//!     a.checked_div(b).ok_or_else(|| RpcError::invalid_params("cannot divide by zero"))
//! });
//! let limits = Limits::default().with_message_bytes(Bound::at_most(1024 * 1024));
//!
//! // Any byte stream will do: standard input and output, a child process, a socket, memory.
//! let (here, there) = tokio::io::duplex(4096);
//! let (reader, writer) = tokio::io::split(there);
//! let (_peer, connection) = PeerBuilder::new(limits.clone()).router(router).connect(reader, writer);
//! tokio::spawn(connection.run());
//!
//! let (reader, writer) = tokio::io::split(here);
//! let (peer, connection) = PeerBuilder::new(limits).connect(reader, writer);
//! tokio::spawn(connection.run());
//! assert_eq!(peer.call::<i64>("divide", &(42, 2)).await?, 21);
//! # Ok(()) }
//! ```
//!
//! A process with several connections draws one line for all of them: make one [`Budget`] and give it to each
//! [`PeerBuilder::budget`]. Without it, each connection has a line of its own. A reply is charged while it is serialised,
//! up to twice its size as its buffer grows.
//!
//! The feature `codec` adds `LineCodec`, the line framing for `tokio_util`'s `Framed`.
//!
//! The scanner, the limits and the budget are those of `plimsoll-core`, whose items are re-exported here.
#![forbid(unsafe_code)]

mod calls;
#[cfg(unix)]
mod child;
#[cfg(feature = "codec")]
mod codec;
mod connection;
mod counters;
mod decode;
mod error;
mod in_flight;
mod outgoing;
mod peer;
mod queue;
mod receive;
mod route;
mod router;
pub mod stdio;

#[cfg(unix)]
pub use child::{ChildProcess, ChildStderrTo, STDERR_TAIL_BYTES};
#[cfg(feature = "codec")]
pub use codec::{CodecError, LineCodec};
pub use connection::Connection;
pub use counters::Counters;
pub use decode::{Decoded, VALUE_BYTES, decode_body};
pub use error::{CallError, CloseReason, DecodeError, RpcError};
pub use peer::{Peer, PeerBuilder};
pub use plimsoll_core::*;
pub use receive::LineReceiver;
pub use router::{Context, Request, Responder, Router};
