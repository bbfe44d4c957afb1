//! What is right for a shape at default limits, as data.
//!
//! A shape knows what it is made of ([`Facts`]: values, depth, the fault that was put into it). From these and the
//! limits follows the expectation, for every size and envelope: a bomb that is small enough is an honest message.
//! The rule is the one of a scanner that refuses while a message arrives, so the fault that comes first wins.

/// The limits that the expectations are stated for: Plimsoll's defaults. They are repeated here because the corpus
/// depends on nothing; a test of the library compares the two.
pub mod limits {
    /// One message, without its line ending.
    pub const MESSAGE_BYTES: u64 = 16 * 1024 * 1024;
    /// Values in one message, envelope included, keys not.
    pub const JSON_VALUES: u64 = 262_144;
    /// Containers open at once, envelope included.
    pub const DEPTH: u64 = 127;
    /// One member name.
    pub const KEY_BYTES: u64 = 64 * 1024;
    /// One number.
    pub const NUMBER_BYTES: u64 = 1_024;
    /// One id.
    pub const ID_BYTES: u64 = 1_024;
    /// One method name.
    pub const METHOD_BYTES: u64 = 1_024;
}

/// What a program with Plimsoll's default limits does with a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expect {
    /// The message is good and is delivered.
    Accepted,
    /// Not a matter of one message: held by counts, bytes and deadlines. [`Shape::right`](crate::Shape::right) says
    /// in words what must be seen.
    Behaviour,
    /// The header section is refused by name, before anything is allocated for the body.
    HeaderRefused,
    /// The message is refused, for this reason.
    Refused(Reason),
    /// The scanner accepts the message; the verdict belongs to the type that it is decoded into.
    /// [`Shape::right`](crate::Shape::right) says which verdict.
    TypedDecode,
}

/// Why a message is refused: one stable word a limit or rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// More bytes than a message may have.
    MessageBytes,
    /// More values than a message may have.
    JsonValues,
    /// More containers open at once than allowed.
    Depth,
    /// Two members of one object with one name, compared after unescaping.
    DuplicateKey,
    /// A string over its limit.
    StringBytes,
    /// A member name over its limit.
    KeyBytes,
    /// A number over its limit.
    NumberBytes,
    /// An id over its limit.
    IdBytes,
    /// A method name over its limit.
    MethodBytes,
    /// A batch where none is allowed.
    Batch,
    /// Not JSON.
    InvalidJson,
    /// Not UTF-8.
    InvalidUtf8,
    /// An escape that is half of a surrogate pair.
    LoneSurrogate,
    /// The input ended within a message.
    Truncated,
    /// The `jsonrpc` member is missing or is not `"2.0"`.
    JsonrpcVersion,
    /// An `id` that is neither a string nor an integer.
    InvalidId,
    /// A `method` that is not a string.
    InvalidMethod,
    /// A `method` beside a `result` or an `error`.
    MethodWithResult,
    /// A `result` beside an `error`.
    ResultWithError,
    /// A scalar where a message was expected.
    NotAnObject,
    /// An object that is no request, notification or response.
    NotJsonRpc,
}

impl Reason {
    /// The word that stands in an error's `data.reason`.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::MessageBytes => "messageBytes",
            Reason::JsonValues => "jsonValues",
            Reason::Depth => "depth",
            Reason::DuplicateKey => "duplicateKey",
            Reason::StringBytes => "stringBytes",
            Reason::KeyBytes => "keyBytes",
            Reason::NumberBytes => "numberBytes",
            Reason::IdBytes => "idBytes",
            Reason::MethodBytes => "methodBytes",
            Reason::Batch => "batch",
            Reason::InvalidJson => "invalidJson",
            Reason::InvalidUtf8 => "invalidUtf8",
            Reason::LoneSurrogate => "loneSurrogate",
            Reason::Truncated => "truncated",
            Reason::JsonrpcVersion => "jsonrpcVersion",
            Reason::InvalidId => "invalidId",
            Reason::InvalidMethod => "invalidMethod",
            Reason::MethodWithResult => "methodWithResult",
            Reason::ResultWithError => "resultWithError",
            Reason::NotAnObject => "notAnObject",
            Reason::NotJsonRpc => "notJsonRpc",
        }
    }

    /// Whether a scanner meets this before it has read the message's last bytes, wherever a shape of the corpus has
    /// it: limits of one token are passed early; the other faults sit at the end of whatever fills the message.
    const fn is_early(self) -> bool {
        matches!(self, Reason::Batch | Reason::IdBytes | Reason::KeyBytes | Reason::MethodBytes | Reason::NumberBytes)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.word())
    }
}

/// What a generated text is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Every scalar, array and object; keys not.
    pub(crate) values: u64,
    /// The most containers open at once.
    pub(crate) depth: u64,
    pub(crate) kind: Kind,
}

/// What was put into a text on purpose, beside its bulk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Kind {
    Behaviour,
    Fault(Reason),
    Header,
    #[default]
    Plain,
    Typed,
}

impl Facts {
    /// The expectation for a whole message of `bytes` bytes.
    pub(crate) fn expect(self, bytes: u64) -> Expect {
        match self.kind {
            Kind::Behaviour => return Expect::Behaviour,
            Kind::Header => return Expect::HeaderRefused,
            Kind::Fault(reason) if reason.is_early() => return Expect::Refused(reason),
            _ => {}
        }
        // At one byte a value, 262,144 values lie well before 16 MiB; so do 128 containers before 262,144 values.
        if self.depth > limits::DEPTH {
            Expect::Refused(Reason::Depth)
        } else if self.values > limits::JSON_VALUES {
            Expect::Refused(Reason::JsonValues)
        } else if bytes > limits::MESSAGE_BYTES {
            Expect::Refused(Reason::MessageBytes)
        } else {
            match self.kind {
                Kind::Fault(reason) => Expect::Refused(reason),
                Kind::Typed => Expect::TypedDecode,
                _ => Expect::Accepted,
            }
        }
    }
}
