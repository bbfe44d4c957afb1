//! Processes on another machine: an exec-server and its client, over bounded JSON-RPC peers.
//!
//! The protocol is wire-compatible with the exec-server of the reference implementation: JSON-RPC without the `jsonrpc`
//! member, one message a line. A client opens a session (`initialize`, `initialized`), starts processes, writes to them,
//! signals them, and is told what they write and how they end. Here are the handshake, the environment methods and
//! processes over pipes; reading back output, terminals, files and HTTP are not here yet, and such calls are answered
//! -32601.
//!
//! ```
//! use plimsoll_exec::{ExecClient, ExecServer, Limits, PathUri, ProcessEvent, ProcessOptions};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (here, there) = tokio::io::duplex(64 * 1024);
//! tokio::spawn(async move {
//!     let (reader, writer) = tokio::io::split(there);
//!     ExecServer::new(Limits::exec()).serve(reader, writer, std::future::pending()).await
//! });
//!
//! let (reader, writer) = tokio::io::split(here);
//! let (client, work) = ExecClient::connect(Limits::exec(), reader, writer);
//! tokio::spawn(work);
//! client.initialize("example").await?;
//! let (_process, mut events) = client
//!     .start(ProcessOptions {
//!         argv: vec!["echo".into(), "hello".into()],
//!         cwd: PathUri::parse("file:///")?,
//!         env: Default::default(),
//!         env_policy: None,
//!         pipe_stdin: false,
//!     })
//!     .await?;
//! let mut said = Vec::new();
//! while let Some(event) = events.next().await {
//!     match event {
//!         ProcessEvent::Output { bytes, .. } => said.extend(bytes),
//!         ProcessEvent::Exited { code, .. } => assert_eq!(code, 0),
//!         _ => {}
//!     }
//! }
//! assert_eq!(said, b"hello\n");
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod client;
mod env_policy;
mod environment;
mod leader;
mod output;
mod path_uri;
mod process;
mod server;
mod session;
mod stdin;
mod values;
pub mod wire;

pub use client::{ExecClient, ProcessEvent, ProcessEvents, ProcessOptions, RemoteProcess, StartError};
pub use env_policy::{EnvError, EnvPolicy, Inherit, MOST_STEPS};
pub use path_uri::{PathUri, PathUriError};
pub use plimsoll::Limits;
pub use server::ExecServer;
