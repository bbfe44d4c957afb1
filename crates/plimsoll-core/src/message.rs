//! A message as it is handed on: its kind, its id, and the ranges of its members in the bytes that hold it.
//!
//! Nothing is decoded here. [`classify`] is the decision table: which members make which kind, and what is refused
//! although it is JSON within every limit.

use std::borrow::Cow;
use std::io;

use crate::id::{Id, Integers, unescape};
use crate::reason::{Reason, Refusal};
use crate::scan::{Counts, IdSeen, Member, Scanner, Span, Type};
use crate::segments::{Runs, Segments, Source};

/// Which JSON-RPC is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// JSON-RPC 2.0: every message bears `"jsonrpc":"2.0"`.
    #[default]
    Standard,
    /// The exec-server's: `jsonrpc` is not sent and not looked at, ids are strings or plain 64-bit integers, and what
    /// cannot be answered by its id is answered under the id -1.
    Bare,
}

impl Dialect {
    fn integers(self) -> Integers {
        match self {
            Self::Standard => Integers::WithZeroFraction,
            Self::Bare => Integers::Plain,
        }
    }
}

/// What a message is, by the members it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `method` and `id`.
    Request,
    /// `method` without `id`.
    Notification,
    /// `result` and `id`.
    Response,
    /// `error`, with or without an id.
    ErrorResponse,
}

impl Kind {
    /// The word for logs and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Notification => "notification",
            Self::Response => "response",
            Self::ErrorResponse => "error",
        }
    }
}

/// One accepted message, with the bytes it lies in and the charge that pays for them.
#[derive(Debug)]
pub struct Message {
    kind: Kind,
    id: Option<Id>,
    method: Option<Span>,
    // `params`, `result` or `error`, by kind.
    body: Option<Span>,
    trace: Option<Span>,
    counts: Counts,
    bytes: Segments,
}

impl Message {
    /// Which kind of message this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The id: always there in a request and a response, never in a notification.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    /// The method of a request or notification, unescaped; at most `method_bytes` long.
    pub fn method(&self) -> Option<Cow<'_, str>> {
        let raw = self.raw(self.method?);
        let inner = Raw { start: raw.start + 1, end: raw.end - 1, bytes: raw.bytes };
        if let Some(slice) = inner.as_slice()
            && !slice.contains(&b'\\')
        {
            return std::str::from_utf8(slice).ok().map(Cow::Borrowed);
        }
        let text = String::from_utf8(inner.runs().flatten().copied().collect()).ok()?;
        unescape(&text).map(|text| Cow::Owned(text.into()))
    }

    /// The JSON text of `params`, `result` or `error`, whichever this kind has.
    pub fn body(&self) -> Option<Raw<'_>> {
        self.body.map(|span| self.raw(span))
    }

    /// The JSON text of `trace`: an object or `null`.
    pub fn trace(&self) -> Option<Raw<'_>> {
        self.trace.map(|span| self.raw(span))
    }

    /// What the whole message holds, the envelope included.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The length of the whole message in bytes, as sent, without its framing.
    pub fn wire_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes of the budget that this message holds until it is dropped.
    pub fn charged(&self) -> u64 {
        self.bytes.charged()
    }

    fn raw(&self, span: Span) -> Raw<'_> {
        Raw { bytes: &self.bytes, start: span.start, end: span.end }
    }
}

/// A part of a message: JSON text that the scanner has passed.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    bytes: &'a Segments,
    // start <= end <= bytes.len()
    start: usize,
    end: usize,
}

impl<'a> Raw<'a> {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Never: a JSON text is at least one byte long.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The text as one slice, if it lies in one segment; the usual message does.
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        self.bytes.slice(self.start, self.end)
    }

    /// The text, one contiguous run after another.
    pub fn runs(&self) -> Runs<'a, Segments> {
        self.bytes.runs(self.start, self.end)
    }

    /// A reader over the text, for decoders that take one; it never fails.
    pub fn reader(&self) -> RawReader<'a> {
        RawReader { run: &[], runs: self.runs() }
    }
}

/// Reads a [`Raw`] without copying it into one piece first.
#[derive(Clone, Debug)]
pub struct RawReader<'a> {
    run: &'a [u8],
    runs: Runs<'a, Segments>,
}

impl io::Read for RawReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.run.is_empty() {
            self.run = self.runs.next().unwrap_or_default();
        }
        let taken = self.run.len().min(buffer.len());
        let (now, later) = self.run.split_at(taken);
        buffer[..taken].copy_from_slice(now);
        self.run = later;
        Ok(taken)
    }
}

/// What is known of the id of a message that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenId {
    /// There was none before the refusal, and none after it as far as the message could be followed.
    Absent,
    /// The one top-level `id`, complete and valid.
    Readable(Id),
    /// There was one, but repeated, too long, cut off or of a wrong type.
    Unreadable,
}

/// A message that was refused, and what must be known to answer it. It holds no byte of the message but the id.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why, at which limit, and where.
    pub refusal: Refusal,
    /// The id, if it could be read.
    pub id: SeenId,
    /// Whether it began an object.
    pub object: bool,
    /// Whether it has the member `method`.
    pub method: bool,
    /// Whether it has the member `result` or `error`.
    pub response: bool,
    /// The length of the message in bytes, as sent.
    pub wire_bytes: u64,
    /// What was counted before the refusal.
    pub counts: Counts,
}

impl Refused {
    /// The kind that the members seen so far make.
    pub fn kind(&self) -> Option<Kind> {
        match (self.method, &self.id, self.response) {
            (true, SeenId::Absent, false) => Some(Kind::Notification),
            (true, _, false) => Some(Kind::Request),
            (false, _, true) => Some(Kind::Response),
            _ => None,
        }
    }

    /// What the scanner knows of a message it refused.
    pub(crate) fn new(refusal: Refusal, scanner: &mut Scanner, dialect: Dialect, wire_bytes: u64) -> Self {
        let has = |member| scanner.member(member).is_some();
        Self {
            refusal,
            object: scanner.began_object(),
            method: has(Member::Method),
            response: has(Member::Result) || has(Member::Error),
            counts: scanner.counts(),
            wire_bytes,
            id: match scanner.take_id() {
                IdSeen::Absent => SeenId::Absent,
                IdSeen::Unreadable => SeenId::Unreadable,
                IdSeen::Text(text) => Id::parse(&text, dialect.integers()).map_or(SeenId::Unreadable, SeenId::Readable),
            },
        }
    }
}

/// The decision table: makes a whole, scanned JSON object a message, or refuses it.
pub(crate) fn classify(scanner: &Scanner, bytes: Segments, dialect: Dialect) -> Result<Message, Refusal> {
    let member = |member| scanner.member(member);
    let (method, result, error) = (member(Member::Method), member(Member::Result), member(Member::Error));
    let (params, trace, id_span) = (member(Member::Params), member(Member::Trace), member(Member::Id));
    if method.is_none() && result.is_none() && error.is_none() {
        return Err(Refusal::new(Reason::NotJsonRpc));
    }
    if dialect == Dialect::Standard && !member(Member::Jsonrpc).is_some_and(|span| is_version(&bytes, span)) {
        return Err(Refusal::new(Reason::JsonrpcVersion));
    }
    let id = match scanner.id() {
        IdSeen::Text(text) => Id::parse(text, dialect.integers()),
        _ => None,
    };
    let invalid_id = || Refusal::new(Reason::InvalidId);
    let (kind, body) = match (method, result, error) {
        (Some(_), None, None) => match (id_span, &id) {
            (None, _) => (Kind::Notification, params),
            (Some(_), Some(_)) => (Kind::Request, params),
            (Some(_), None) => return Err(invalid_id()),
        },
        (Some(_), _, _) => return Err(Refusal::new(Reason::MethodWithResult)),
        (None, Some(_), Some(_)) => return Err(Refusal::new(Reason::ResultWithError)),
        (None, Some(_), None) => {
            if id.is_none() {
                return Err(invalid_id());
            }
            (Kind::Response, result)
        }
        (None, None, _) => {
            if id.is_none() && id_span.is_some_and(|span| span.kind != Type::Null) {
                return Err(invalid_id());
            }
            (Kind::ErrorResponse, error)
        }
    };
    if method.is_some_and(|span| span.kind != Type::String) {
        return Err(Refusal::new(Reason::InvalidMethod));
    }
    let trace_is_wrong = trace.is_some_and(|span| !matches!(span.kind, Type::Object | Type::Null));
    if trace_is_wrong && kind == Kind::Request && dialect == Dialect::Bare {
        return Err(Refusal::new(Reason::InvalidTrace));
    }
    let trace = trace.filter(|_| !trace_is_wrong);
    let counts = scanner.counts();
    Ok(Message { kind, id, method, body, trace, counts, bytes })
}

fn is_version(bytes: &Segments, span: Span) -> bool {
    const LONGEST: usize = "\"\\u0032\\u002e\\u0030\"".len();
    if span.kind != Type::String || span.end - span.start > LONGEST {
        return false;
    }
    let mut text = [0; LONGEST];
    let mut len = 0;
    for (place, byte) in text.iter_mut().zip(bytes.runs(span.start + 1, span.end - 1).flatten()) {
        *place = *byte;
        len += 1;
    }
    let text = &text[..len];
    text == b"2.0" || std::str::from_utf8(text).ok().and_then(unescape).as_deref() == Some("2.0")
}
