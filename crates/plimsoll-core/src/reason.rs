//! Why something was refused: one enum, one table, one word each.
//!
//! The words are stable: peers and operators match on them. [`Reason::TABLE`] is the documentation and the code at
//! once; nothing else spells a reason.

use std::fmt;

use crate::budget::{NoRoom, Scope};

/// What a reason is about; it decides the error code and whether the rest of the message is still read for its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The text is not JSON (RFC 8259), so nothing after the error can be understood.
    Grammar,
    /// The structure can be followed, but a string is not Unicode text.
    Encoding,
    /// JSON, but not a well-formed JSON-RPC message.
    Envelope,
    /// No JSON-RPC at all: log lines and other text on the wire.
    Noise,
    /// A well-formed message over a limit of its own.
    Message,
    /// There is no room now; the same message may pass later.
    Room,
    /// The connection or the waiting call ended.
    End,
}

macro_rules! reasons {
    ($( $(#[$doc:meta])* $variant:ident = $word:literal, $class:ident, $limit:expr; )*) => {
        /// Why something was refused, or ended. In the order of [`Reason::TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $( $(#[$doc])* $variant, )*
        }

        impl Reason {
            /// Every reason with its word, its class and the name of its limit.
            ///
            /// | word | class | limit |
            /// |---|---|---|
            $( #[doc = concat!("| `", $word, "` | ", stringify!($class), " | ", stringify!($limit), " |")] )*
            pub const TABLE: &'static [(Reason, &'static str, Class, Option<&'static str>)] =
                &[$( (Reason::$variant, $word, Class::$class, $limit), )*];
        }
    };
}

reasons! {
    /// The text is not JSON.
    InvalidJson = "invalidJson", Grammar, None;
    /// The input ended inside a message.
    Truncated = "truncated", Grammar, None;
    /// A string holds bytes that are not UTF-8.
    InvalidUtf8 = "invalidUtf8", Encoding, None;
    /// An escape names half of a surrogate pair.
    LoneSurrogate = "loneSurrogate", Encoding, None;
    /// No `"jsonrpc":"2.0"` where the dialect wants it.
    JsonrpcVersion = "jsonrpcVersion", Envelope, None;
    /// `id` is no string and no integer of 64 bits, or is missing from a response.
    InvalidId = "invalidId", Envelope, None;
    /// `method` is not a string.
    InvalidMethod = "invalidMethod", Envelope, None;
    /// `trace` is not an object.
    InvalidTrace = "invalidTrace", Envelope, None;
    /// `method` beside `result` or `error`.
    MethodWithResult = "methodWithResult", Envelope, None;
    /// `result` beside `error`.
    ResultWithError = "resultWithError", Envelope, None;
    /// The parameters do not fit the method.
    InvalidParams = "invalidParams", Envelope, None;
    /// The id of a request that has not been answered yet.
    IdInUse = "idInUse", Envelope, None;
    /// The text does not begin an object.
    NotAnObject = "notAnObject", Noise, None;
    /// An object without `method`, `result` and `error`.
    NotJsonRpc = "notJsonRpc", Noise, None;
    /// An array where batches are refused.
    Batch = "batch", Noise, None;
    /// The message is too long.
    MessageBytes = "messageBytes", Message, Some("message_bytes");
    /// Too many JSON values.
    JsonValues = "jsonValues", Message, Some("json_values");
    /// Too many containers open at once.
    Depth = "depth", Message, Some("depth");
    /// An object holds a key twice.
    DuplicateKey = "duplicateKey", Message, Some("duplicate_keys");
    /// A string is too long.
    StringBytes = "stringBytes", Message, Some("string_bytes");
    /// A key is too long.
    KeyBytes = "keyBytes", Message, Some("key_bytes");
    /// A number is too long.
    NumberBytes = "numberBytes", Message, Some("number_bytes");
    /// The id is too long.
    IdBytes = "idBytes", Message, Some("id_bytes");
    /// The method is too long.
    MethodBytes = "methodBytes", Message, Some("method_bytes");
    /// It needs more room than its connection may ever hold.
    Cap = "cap", Message, Some("cap");
    /// No room in the budget.
    Overloaded = "overloaded", Room, Some("memory");
    /// Too many requests are being answered.
    InFlight = "inFlight", Room, Some("in_flight");
    /// Too many calls are waiting for an answer.
    Pending = "pending", Room, Some("pending");
    /// Too many processes run.
    Processes = "processes", Room, Some("processes");
    /// A process did not read its standard input in time.
    WriteWait = "writeWait", Room, Some("write_wait");
    /// A refused message did not end.
    SkipBytes = "skipBytes", End, Some("skip_bytes");
    /// A call was not answered in time.
    CallDeadline = "callDeadline", End, Some("call_deadline");
    /// The peer stopped reading.
    StallDeadline = "stallDeadline", End, Some("stall_deadline");
    /// A request was still unanswered when its time after the end of the input was over.
    Drain = "drain", End, Some("drain");
    /// The peer closed its side.
    EndOfInput = "endOfInput", End, None;
    /// Reading or writing failed.
    InputOutput = "inputOutput", End, None;
    /// Our side closed the connection.
    Closed = "closed", End, None;
}

impl Reason {
    const fn row(self) -> &'static (Reason, &'static str, Class, Option<&'static str>) {
        &Self::TABLE[self as usize]
    }

    /// The stable word, camelCase, as it stands in `error.data.reason`.
    pub const fn word(self) -> &'static str {
        self.row().1
    }

    /// What the reason is about.
    pub const fn class(self) -> Class {
        self.row().2
    }

    /// The name of the limit in [`Limits`](crate::Limits), if there is one.
    pub const fn limit_name(self) -> Option<&'static str> {
        self.row().3
    }

    /// What its numbers are counted in, where they need it.
    const fn unit(self) -> &'static str {
        match self {
            Self::CallDeadline | Self::Drain | Self::StallDeadline | Self::WriteWait => " ms",
            _ => "",
        }
    }

    /// Whether the same message may pass later.
    pub const fn retryable(self) -> bool {
        matches!(self.class(), Class::Room)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One refusal: the reason, the numbers, and where in the message. It never holds a byte of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The limit's value, if a limit refused.
    pub limit: Option<u64>,
    /// What was observed: the first number over the limit, or the whole when it became known.
    pub observed: Option<u64>,
    /// The byte of the message at which it was decided, from 0.
    pub offset: Option<u64>,
    /// For [`Reason::Overloaded`]: which level had no room.
    pub scope: Option<&'static str>,
}

impl Refusal {
    /// A refusal without numbers.
    pub const fn new(reason: Reason) -> Self {
        Self { reason, limit: None, observed: None, offset: None, scope: None }
    }

    /// A refusal by a limit.
    pub const fn over(reason: Reason, limit: u64, observed: u64) -> Self {
        Self { reason, limit: Some(limit), observed: Some(observed), offset: None, scope: None }
    }

    /// The name of the limit that refused: where room was short, that of the level which had none.
    pub fn limit_name(&self) -> Option<&'static str> {
        match self.scope {
            Some(scope) if scope == Scope::Connection.word() => Some("cap"),
            _ => self.reason.limit_name(),
        }
    }

    /// The same, at an offset of the message.
    #[must_use]
    pub const fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
}

impl From<NoRoom> for Refusal {
    fn from(no_room: NoRoom) -> Self {
        let observed = no_room.held.saturating_add(no_room.asked);
        let mut refusal = Self::over(Reason::Overloaded, no_room.limit, observed);
        refusal.scope = Some(no_room.scope.word());
        refusal
    }
}

/// One clear sentence for people: what happened, the limit, its value, what was observed.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Reason::InvalidJson => "the message is not valid JSON",
            Reason::Truncated => "the input ended inside a message",
            Reason::InvalidUtf8 => "the message is not valid UTF-8",
            Reason::LoneSurrogate => "an escape names half of a surrogate pair",
            Reason::JsonrpcVersion => "the member `jsonrpc` must be \"2.0\"",
            Reason::InvalidId => "the member `id` must be a string or a 64-bit integer",
            Reason::InvalidMethod => "the member `method` must be a string",
            Reason::InvalidTrace => "the member `trace` must be an object",
            Reason::MethodWithResult => "a message cannot have `method` beside `result` or `error`",
            Reason::ResultWithError => "a response cannot have both `result` and `error`",
            Reason::InvalidParams => "the parameters do not fit the method",
            Reason::IdInUse => "a request with this id has not been answered yet",
            Reason::NotAnObject => "a message must be a JSON object",
            Reason::NotJsonRpc => "the object is no JSON-RPC message",
            Reason::Batch => "batches are not accepted",
            Reason::MessageBytes => "the message is too long",
            Reason::JsonValues => "the message holds too many JSON values",
            Reason::Depth => "the message is nested too deep",
            Reason::DuplicateKey => "an object holds a key twice",
            Reason::StringBytes => "a string is too long",
            Reason::KeyBytes => "a key is too long",
            Reason::NumberBytes => "a number is too long",
            Reason::IdBytes => "the id is too long",
            Reason::MethodBytes => "the method is too long",
            Reason::Cap => "the message needs more room than its connection may ever hold",
            Reason::Overloaded => "there is no room for the message now; try again later",
            Reason::InFlight => "too many requests are being answered; try again later",
            Reason::Pending => "too many calls are waiting for an answer; try again later",
            Reason::Processes => "too many processes run; try again later",
            Reason::WriteWait => "the process does not read its standard input; try again later",
            Reason::SkipBytes => "a refused message did not end; the connection is closed",
            Reason::CallDeadline => "the call was not answered in time",
            Reason::StallDeadline => "the peer stopped reading; the connection is closed",
            Reason::Drain => "the request was not answered in time after the end of the input",
            Reason::EndOfInput => "the peer closed the connection",
            Reason::InputOutput => "reading or writing failed; the connection is closed",
            Reason::Closed => "the connection is closed",
        })?;
        let unit = self.reason.unit();
        match (self.limit_name(), self.limit, self.observed) {
            (Some(name), Some(limit), Some(observed)) => {
                write!(f, " ({name} is {limit}{unit}, observed {observed}{unit})")?;
            }
            (Some(name), Some(limit), None) => write!(f, " ({name} is {limit}{unit})")?,
            _ => {}
        }
        match self.offset {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_its_words_are_unique() {
        for (index, (reason, word, class, limit)) in Reason::TABLE.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert_eq!((reason.word(), reason.class(), reason.limit_name()), (*word, *class, *limit));
            assert_eq!(Reason::TABLE.iter().filter(|row| row.1 == *word).count(), 1, "{word}");
            assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{word}");
        }
    }

    #[test]
    fn every_named_limit_exists() {
        for (_, word, _, limit) in Reason::TABLE {
            if let Some(limit) = limit {
                assert!(Limits::NAMES.contains(limit), "{word} names {limit}");
            }
        }
    }

    #[test]
    fn no_room_names_the_level_that_had_none_and_times_have_their_unit() {
        let no_room = |scope| Refusal::from(NoRoom { scope, limit: 10, held: 9, asked: 2 }).to_string();
        assert!(no_room(Scope::Connection).contains("(cap is 10, observed 11)"));
        assert!(no_room(Scope::Process).contains("(memory is 10, observed 11)"));
        let late = Refusal::over(Reason::CallDeadline, 500, 500).to_string();
        assert!(late.contains("(call_deadline is 500 ms, observed 500 ms)"), "{late}");
    }

    #[test]
    fn a_refusal_names_the_limit_its_value_and_what_was_observed() {
        let text = Refusal::over(Reason::JsonValues, 262_144, 262_145).at(524_310).to_string();
        assert_eq!(
            text,
            "the message holds too many JSON values (json_values is 262144, observed 262145) at byte 524310"
        );
    }
}
