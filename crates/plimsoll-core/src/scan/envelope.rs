//! What the scanner notes of a message's top level: which members there are, where, and the id itself.
//!
//! Members may come in any order. Names are compared after unescaping and exactly: `method` may be written
//! `\u006dethod`, and `Method` or `method\u0000` are other members. A known member that comes twice is refused at once.

use crate::reason::{Reason, Refusal};

/// The members of a message that mean something (JSON-RPC 2.0 sections 4 and 5, and `trace` of the exec protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    Error,
    Id,
    Jsonrpc,
    Method,
    Params,
    Result,
    Trace,
}

const MEMBERS: usize = 7;
const LONGEST: usize = "jsonrpc".len();

impl Member {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"error" => Some(Self::Error),
            b"id" => Some(Self::Id),
            b"jsonrpc" => Some(Self::Jsonrpc),
            b"method" => Some(Self::Method),
            b"params" => Some(Self::Params),
            b"result" => Some(Self::Result),
            b"trace" => Some(Self::Trace),
            _ => None,
        }
    }
}

/// The type of a value, known from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Array,
    Boolean,
    Null,
    Number,
    Object,
    String,
}

/// Where a member's value stands: offsets into the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    // start <= end; end == start while the value is not complete.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: Type,
}

/// A top-level key as it arrives, unescaped: long enough to be told from the known names, no longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name {
    bytes: [u8; LONGEST],
    // More than LONGEST means that it is none of the known names.
    len: usize,
}

impl Name {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    fn member(&self) -> Option<Member> {
        self.bytes.get(..self.len).and_then(Member::named)
    }
}

/// What is known of the id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdSeen {
    /// There was no such member.
    #[default]
    Absent,
    /// Its text, one string or number, as sent.
    Text(Vec<u8>),
    /// There was one, but not one that can be read: of another type, too long, repeated or not complete.
    Unreadable,
}

/// The top level of the message at hand.
#[derive(Debug, Default)]
pub(super) struct Top {
    spans: [Option<Span>; MEMBERS],
    /// The member whose value is next or under way.
    current: Option<Member>,
    pub(super) name: Name,
    pub(super) id: IdSeen,
    /// The id's text so far; at most `id_bytes` and its quotes.
    id_text: Vec<u8>,
}

impl Top {
    pub(super) fn reset(&mut self) {
        let mut id_text = std::mem::take(&mut self.id_text);
        id_text.clear();
        *self = Self { id_text, ..Self::default() };
    }

    pub(super) fn span(&self, member: Member) -> Option<Span> {
        self.spans[member as usize]
    }

    /// A top-level key has ended.
    pub(super) fn end_name(&mut self, offset: usize) -> Result<(), Refusal> {
        let member = std::mem::take(&mut self.name).member();
        self.end_member(member, offset)
    }

    /// The same for a key without escapes that is all at hand.
    #[inline]
    pub(super) fn end_plain_name(&mut self, name: &[u8], offset: usize) -> Result<(), Refusal> {
        self.end_member(Member::named(name), offset)
    }

    #[inline]
    fn end_member(&mut self, member: Option<Member>, offset: usize) -> Result<(), Refusal> {
        self.current = member;
        let Some(member) = member else { return Ok(()) };
        if self.spans[member as usize].is_none() {
            // The value's place is not known yet; that the member is there is.
            self.spans[member as usize] = Some(Span { start: 0, end: 0, kind: Type::Null });
            if member == Member::Id {
                self.id = IdSeen::Unreadable;
            }
            return Ok(());
        }
        self.current = None;
        if member == Member::Id {
            self.id = IdSeen::Unreadable;
            self.id_text.clear();
        }
        Err(Refusal::new(Reason::DuplicateKey).at(offset as u64))
    }

    /// The value of the current member begins. Says which member that is.
    pub(super) fn begin_value(&mut self, start: usize, kind: Type) -> Option<Member> {
        let member = self.current?;
        self.spans[member as usize] = Some(Span { start, end: start, kind });
        if member == Member::Id {
            self.id_text.clear();
        }
        Some(member)
    }

    /// More of the id's text.
    pub(super) fn push_id(&mut self, bytes: &[u8]) {
        if self.current == Some(Member::Id) {
            self.id_text.extend_from_slice(bytes);
        }
    }

    /// The id turned out too long to be kept.
    pub(super) fn give_up_id(&mut self) {
        if self.current == Some(Member::Id) {
            self.current = None;
            self.id_text = Vec::new();
        }
    }

    /// The value of the current member is complete.
    pub(super) fn end_value(&mut self, end: usize) {
        let Some(member) = self.current.take() else { return };
        let Some(span) = &mut self.spans[member as usize] else { return };
        span.end = end;
        if member == Member::Id && matches!(span.kind, Type::String | Type::Number) {
            self.id = IdSeen::Text(std::mem::take(&mut self.id_text));
        }
    }
}
