//! What can go wrong: a call that fails, a connection that ends, and the error object of JSON-RPC.

use std::fmt;
use std::io::ErrorKind;

use plimsoll_core::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, NoRoom, OVERLOADED, Printable, Reason, Refusal,
};

/// The error object of a response (JSON-RPC 2.0 section 5.1): what a handler returns, and what a peer sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} (code {code})", Printable::new(message, 500))]
pub struct RpcError {
    /// What kind of error it is, for programs.
    pub code: i64,
    /// What happened, for people.
    pub message: String,
    /// More for programs; its shape belongs to the method.
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same, with data.
    #[must_use]
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The parameters do not fit the method (-32602).
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// The handler failed (-32603).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    /// There is no such method (-32601). The name is not echoed: the caller knows it.
    pub fn method_not_found() -> Self {
        Self::new(METHOD_NOT_FOUND, "there is no such method")
    }

    /// The error that says which limit refused, its value, what was observed and whether trying again can help.
    pub fn refused(code: i64, refusal: &Refusal) -> Self {
        let mut data = serde_json::Map::new();
        data.insert("reason".into(), refusal.reason.word().into());
        for (name, value) in [("limit", refusal.limit), ("observed", refusal.observed), ("offset", refusal.offset)] {
            if let Some(value) = value {
                data.insert(name.into(), value.into());
            }
        }
        if let Some(scope) = refusal.scope {
            data.insert("scope".into(), scope.into());
        }
        data.insert("retryable".into(), refusal.reason.retryable().into());
        Self::new(code, refusal.to_string()).with_data(data.into())
    }

    /// No room now, and nothing was done (-31009).
    pub fn no_room(refusal: &Refusal) -> Self {
        Self::refused(OVERLOADED, refusal)
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Our side closed it.
    #[error("the connection was closed by this side")]
    Closed,
    /// The peer closed its side, after what it had sent was handled.
    #[error("the peer closed the connection")]
    EndOfInput,
    /// Reading or writing failed.
    #[error("{operation} failed: {kind}")]
    Io {
        /// `reading` or `writing`.
        operation: &'static str,
        /// What the operating system said.
        kind: ErrorKind,
    },
    /// The peer passed a limit after which a connection cannot go on.
    #[error("{0}")]
    Refused(Refusal),
    /// A notification that must not be lost was refused.
    #[error("a notification was refused and this protocol cannot lose one: {0}")]
    NotificationLost(Refusal),
}

impl CloseReason {
    /// What an error of the stream means. A peer that is gone has closed its side, however the system words it.
    pub(crate) fn of_io(operation: &'static str, kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Self::EndOfInput,
            _ => Self::Io { operation, kind },
        }
    }

    /// The stable word for the reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Closed => Reason::Closed,
            Self::EndOfInput => Reason::EndOfInput,
            Self::Io { .. } => Reason::InputOutput,
            Self::Refused(refusal) | Self::NotificationLost(refusal) => refusal.reason,
        }
    }
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The peer answered with an error.
    #[error("the peer answered with an error: {0}")]
    Rpc(RpcError),
    /// The peer's answer was refused, or the call could not be made: a limit, by name.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection ended before the answer came.
    #[error("the call was not answered: {0}")]
    Closed(CloseReason),
    /// The answer is not of the expected type.
    #[error("the answer does not fit: {0}")]
    Result(DecodeError),
    /// The parameters could not be made JSON.
    #[error("the parameters are no JSON: {0}")]
    Params(String),
}

impl From<NoRoom> for CallError {
    fn from(no_room: NoRoom) -> Self {
        let mut refusal = Refusal::from(no_room);
        if no_room.asked > no_room.limit {
            // It will not fit later either.
            (refusal.reason, refusal.observed) = (Reason::Cap, Some(no_room.asked));
        }
        Self::Refused(refusal)
    }
}

/// JSON that is not of the type that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// What does not fit, in bounded text without control characters.
    Mismatch(String),
    /// There is no room to decode it now.
    NoRoom(NoRoom),
    /// There will never be: it needs more than the connection may hold.
    TooLarge {
        /// What it needs in all, the message included, in bytes.
        needed: u64,
        /// What the connection may hold, in bytes.
        cap: u64,
    },
}

impl DecodeError {
    /// The refusal that says so, by limit.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Mismatch(_) => Refusal::new(Reason::InvalidParams),
            Self::NoRoom(no_room) => (*no_room).into(),
            Self::TooLarge { needed, cap } => Refusal::over(Reason::Cap, *cap, *needed),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(text) => f.write_str(text),
            Self::NoRoom(no_room) => no_room.fmt(f),
            Self::TooLarge { .. } => self.refusal().fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<DecodeError> for RpcError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Mismatch(text) => Self::invalid_params(text),
            DecodeError::NoRoom(no_room) => Self::no_room(&no_room.into()),
            DecodeError::TooLarge { .. } => Self::refused(INVALID_REQUEST, &error.refusal()),
        }
    }
}
