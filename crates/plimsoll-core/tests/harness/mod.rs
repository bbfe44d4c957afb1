//! A second reader of JSON-RPC lines, slow and plain, against which the core is compared.
//!
//! The reader works on whole lines, a byte at a time, by recursion, and knows nothing of chunks. It is written from the
//! documentation of the limits and not from the scanner, and says exactly what must come out: kind, id, member ranges
//! and counts of what is accepted; reason, numbers and offset of what is refused, and the id that it is answered by.
//! The grammar and the encoding are checked once more by `serde_json` and the standard library.
//!
//! The file stands alone: a fuzz target includes it by its path. The checks panic where the two disagree.
//!
//! | function | what |
//! |---|---|
//! | [`check_against_reference`] | the bytes as lines and as a document, at many limits, against the reader |
//! | [`check_chunking`] | the bytes in pieces of any size give what they give whole |
//! | [`receive`], [`document`] | the core's outcome as plain data |
//! | [`expected`], [`expected_document`] | the reader's |

#![allow(dead_code, reason = "every test uses a part of it")]
#![allow(missing_docs, reason = "the names say it, and no test is documented")]
#![allow(unreachable_pub, reason = "a module of several test binaries and of the fuzz targets")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a disagreement must end the test")]

use std::collections::HashSet;

use plimsoll_core::{
    Bound, Budget, Counts, Dialect, Document, DuplicateKeys, Kind, Limits, Line, LineDeframer, Message, Raw, Reason,
    Received, Refusal, Refused, SeenId,
};
use serde::de::IgnoredAny;

/// Compares the core with the reader on these bytes, at every entry of [`limit_sets`] and one that the bytes choose.
pub fn check_against_reference(bytes: &[u8]) {
    check_grammar(bytes);
    let mut sets = limit_sets();
    sets.push(random_limits(&mut Chance::new(seed_of(bytes))));
    for limits in &sets {
        assert_eq!(document(bytes, [], limits), expected_document(bytes, limits), "{}", Shown(bytes, limits));
        for dialect in [Dialect::Standard, Dialect::Bare] {
            let (found, right) = (receive(bytes, [], limits, dialect), expected(bytes, limits, dialect));
            assert_eq!(found, right, "{dialect:?} {}", Shown(bytes, limits));
        }
    }
}

/// Compares the bytes whole with the bytes in random pieces and with single bytes.
pub fn check_chunking(bytes: &[u8], seed: u64) {
    let mut chance = Chance::new(seed);
    let mut sets = limit_sets();
    sets.push(random_limits(&mut chance));
    let limits = &sets[chance.below(sets.len())];
    let dialect = if chance.below(2) == 0 { Dialect::Standard } else { Dialect::Bare };
    let whole = receive(bytes, [], limits, dialect);
    let whole_document = document(bytes, [], limits);
    for longest in [1, 2, 7, 64, 5000] {
        let pieces = || {
            let mut chance = Chance::new(seed ^ longest);
            std::iter::from_fn(move || Some(1 + chance.below(longest as usize)))
        };
        let shown = || format!("pieces of up to {longest}, {dialect:?}, seed {seed}, {}", Shown(bytes, limits));
        assert_eq!(receive(bytes, pieces(), limits, dialect), whole, "{}", shown());
        assert_eq!(document(bytes, pieces(), limits), whole_document, "{}", shown());
    }
}

/// With all limits off the core accepts exactly what is UTF-8, JSON and free of lone surrogates and repeated keys.
fn check_grammar(bytes: &[u8]) {
    let utf8 = std::str::from_utf8(bytes).is_ok();
    let json = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    let limits = unlimited().with_duplicate_keys(DuplicateKeys::Accept);
    let shown = || format!("UTF-8 {utf8}, JSON {json}, {}", Shown(bytes, &limits));
    match document(bytes, [], &limits) {
        Ok(_) => assert!(utf8 && json, "accepted: {}", shown()),
        Err(refusal) => match refusal.reason {
            Reason::InvalidUtf8 => assert!(!utf8, "refused: {}", shown()),
            Reason::InvalidJson => assert!(!json, "refused: {}", shown()),
            Reason::Depth => {}
            // serde_json looks at surrogates when a string is decoded; the depth is held by its own bound.
            Reason::LoneSurrogate if utf8 && json => {
                assert!(serde_json::from_slice::<serde_json::Value>(bytes).is_err(), "refused: {}", shown());
            }
            Reason::LoneSurrogate => {}
            other => panic!("{other}: {}", shown()),
        },
    }
}

/// What became of one line, as plain data.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Message {
        line: u64,
        kind: Kind,
        id: Option<String>,
        method: Option<String>,
        body: Option<Vec<u8>>,
        trace: Option<Vec<u8>>,
        counts: Counts,
        wire_bytes: u64,
    },
    Refused {
        line: u64,
        refusal: Refusal,
        id: IdText,
        object: bool,
        method: bool,
        response: bool,
        counts: Counts,
        wire_bytes: u64,
        /// The refusal that closes the connection, if the message did not end in time.
        overrun: Option<Refusal>,
    },
}

/// What is known of a refused message's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdText {
    Absent,
    Readable(String),
    Unreadable,
}

/// What the core makes of `bytes` in pieces of these sizes; the last piece is what is left.
pub fn receive(
    bytes: &[u8],
    pieces: impl IntoIterator<Item = usize>,
    limits: &Limits,
    dialect: Dialect,
) -> Vec<Outcome> {
    let budget = Budget::new(Bound::Unbounded);
    let mut lines = LineDeframer::new(limits, dialect, &budget);
    let mut outcomes = Vec::new();
    for_pieces(bytes, pieces, |mut piece| {
        while !piece.is_empty() {
            let (taken, line) = lines.push(piece);
            piece = &piece[taken..];
            let number = lines.line();
            match line {
                Some(Line::Received(received)) => outcomes.push(outcome(received, number)),
                Some(Line::Overrun { refused, reason }) => {
                    outcomes.push(refused_outcome(refused, number, Some(reason)))
                }
                None => assert!(piece.is_empty(), "a call that gives nothing takes everything"),
            }
        }
    });
    let number = lines.line();
    outcomes.extend(lines.finish().map(|received| outcome(received, number)));
    drop(lines);
    assert_eq!(budget.held(), 0, "everything is given back");
    outcomes
}

/// What the core makes of `bytes` as one JSON text.
pub fn document(bytes: &[u8], pieces: impl IntoIterator<Item = usize>, limits: &Limits) -> Result<Counts, Refusal> {
    let budget = Budget::new(Bound::Unbounded);
    let mut document = Document::new(limits, &budget);
    for_pieces(bytes, pieces, |piece| document.push(piece));
    assert_eq!(document.length(), bytes.len() as u64);
    let (counts, early) = (document.counts(), document.refused());
    let result = document.finish();
    match &result {
        Ok(at_the_end) => assert_eq!((*at_the_end, None), (counts, early)),
        Err(refusal) => assert!(early.is_none_or(|early| early == *refusal)),
    }
    assert_eq!(budget.held(), 0, "everything is given back");
    result
}

fn for_pieces(bytes: &[u8], pieces: impl IntoIterator<Item = usize>, mut each: impl FnMut(&[u8])) {
    let mut rest = bytes;
    for size in pieces {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at(size.clamp(1, rest.len()));
        each(piece);
        rest = more;
    }
    if !rest.is_empty() {
        each(rest);
    }
}

fn outcome(received: Received, line: u64) -> Outcome {
    match received {
        Received::Message(message) => message_outcome(&message, line),
        Received::Refused(refused) => refused_outcome(refused, line, None),
    }
}

fn message_outcome(message: &Message, line: u64) -> Outcome {
    let text = |raw: Raw<'_>| {
        let bytes: Vec<u8> = raw.runs().flatten().copied().collect();
        assert_eq!((bytes.len(), bytes.is_empty()), (raw.len(), raw.is_empty()));
        assert!(raw.as_slice().is_none_or(|slice| slice == bytes));
        bytes
    };
    Outcome::Message {
        line,
        kind: message.kind(),
        id: message.id().map(|id| id.as_json().to_owned()),
        method: message.method().map(|method| method.into_owned()),
        body: message.body().map(text),
        trace: message.trace().map(text),
        counts: message.counts(),
        wire_bytes: message.wire_bytes(),
    }
}

fn refused_outcome(refused: Refused, line: u64, overrun: Option<Refusal>) -> Outcome {
    let Refused { refusal, id, object, method, response, wire_bytes, counts } = refused;
    let id = match id {
        SeenId::Absent => IdText::Absent,
        SeenId::Readable(id) => IdText::Readable(id.as_json().to_owned()),
        SeenId::Unreadable => IdText::Unreadable,
    };
    Outcome::Refused { line, refusal, id, object, method, response, counts, wire_bytes, overrun }
}

/// Every limit that the core enforces switched off, but for the depth, which the reader's recursion needs.
pub fn unlimited() -> Limits {
    Limits::default()
        .with_message_bytes(Bound::Unbounded)
        .with_skip_bytes(Bound::Unbounded)
        .with_json_values(Bound::Unbounded)
        .with_string_bytes(Bound::Unbounded)
        .with_key_bytes(Bound::Unbounded)
        .with_number_bytes(Bound::Unbounded)
        .with_id_bytes(Bound::Unbounded)
        .with_method_bytes(Bound::Unbounded)
        .with_depth(Bound::at_most(300))
}

/// Limits at which small inputs pass each limit often.
pub fn limit_sets() -> Vec<Limits> {
    let small = Bound::at_most;
    vec![
        Limits::default(),
        unlimited().with_duplicate_keys(DuplicateKeys::Accept),
        Limits::default().with_json_values(small(6)).with_depth(small(3)),
        Limits::default().with_message_bytes(small(48)).with_skip_bytes(small(80)),
        Limits::default().with_string_bytes(small(4)).with_key_bytes(small(6)).with_number_bytes(small(3)),
        Limits::default().with_id_bytes(small(3)).with_method_bytes(small(3)).with_depth(small(1)),
        Limits::default().with_duplicate_keys(DuplicateKeys::Accept).with_json_values(small(4)),
    ]
}

/// Each limit off, small, or somewhere between.
pub fn random_limits(chance: &mut Chance) -> Limits {
    let mut bound = |most: usize| match chance.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::at_most(1 + chance.below(4) as u64),
        _ => Bound::at_most(1 + chance.below(most) as u64),
    };
    let limits = Limits::default()
        .with_message_bytes(bound(400))
        .with_skip_bytes(bound(600))
        .with_json_values(bound(40))
        .with_string_bytes(bound(40))
        .with_key_bytes(bound(30))
        .with_number_bytes(bound(20))
        .with_id_bytes(bound(20))
        .with_method_bytes(bound(20));
    let duplicates = if chance.below(4) == 0 { DuplicateKeys::Accept } else { DuplicateKeys::Refuse };
    limits.with_duplicate_keys(duplicates).with_depth(Bound::at_most(1 + chance.below(12) as u64))
}

/// Chance that repeats (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

fn seed_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

struct Shown<'a>(&'a [u8], &'a Limits);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "input b\"{}\", limits {}", self.0.escape_ascii(), self.1)
    }
}

/// What must become of `bytes` as lines.
pub fn expected(bytes: &[u8], limits: &Limits, dialect: Dialect) -> Vec<Outcome> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut outcomes = Vec::new();
    let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
    let mut number = 0;
    while let Some(line) = lines.next() {
        let ends = lines.peek().is_some();
        number += u64::from(ends);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(outcome) = expected_line(line, ends, number, limits, dialect) else { continue };
        let is_last = matches!(outcome, Outcome::Refused { overrun: Some(_), .. });
        outcomes.push(outcome);
        if is_last {
            break;
        }
    }
    outcomes
}

/// What must become of `bytes` as one JSON text.
pub fn expected_document(bytes: &[u8], limits: &Limits) -> Result<Counts, Refusal> {
    let limit = limits.message_bytes().ceiling();
    let within = &bytes[..usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len())];
    let mut reader = Reader::new(within, limits, false, true);
    match reader.text() {
        Err(Stop::Refused(refusal)) => Err(refusal),
        _ if within.len() < bytes.len() => Err(over(Reason::MessageBytes, limit, limit as usize)),
        Err(Stop::Ended) => Err(Refusal::new(Reason::InvalidJson).at(bytes.len() as u64)),
        Ok(()) => Ok(reader.counts),
    }
}

/// One line without its ending; `ends` says that it had one.
fn expected_line(line: &[u8], ends: bool, number: u64, limits: &Limits, dialect: Dialect) -> Option<Outcome> {
    let length = line.len() as u64;
    let limit = limits.message_bytes().ceiling();
    let within = &line[..usize::try_from(limit).unwrap_or(usize::MAX).min(line.len())];
    let mut reader = Reader::new(within, limits, true, true);
    let result = reader.text();
    // Whether the refusal came before the end of the line.
    let mut early = true;
    let refusal = match result {
        Err(Stop::Refused(refusal)) => refusal,
        _ if within.len() < line.len() => over(Reason::MessageBytes, limit, limit as usize),
        Err(Stop::Ended) if line.iter().all(|byte| is_space(*byte)) => return None,
        Err(Stop::Ended) => {
            early = false;
            Refusal::new(if ends { Reason::InvalidJson } else { Reason::Truncated }).at(length)
        }
        Ok(()) => {
            early = false;
            match expected_message(&reader, line, number, dialect) {
                Ok(message) => return Some(message),
                Err(reason) => Refusal::new(reason),
            }
        }
    };
    let skip = limits.skip_bytes().ceiling().max(limit);
    let overrun = (early && length > skip).then(|| Refusal::over(Reason::SkipBytes, skip, skip + 1));
    let wire_bytes = if overrun.is_some() { skip + 1 } else { length };
    let line_number = if overrun.is_some() { number - u64::from(ends) } else { number };
    let mut refusal = refusal;
    if refusal.reason == Reason::MessageBytes {
        refusal.observed = Some(wire_bytes);
    }
    // After a refusal the structure alone is followed, up to where the connection closes.
    let followed = if overrun.is_some() { &line[..skip as usize] } else { line };
    let mut follower = Reader::new(followed, limits, true, false);
    if !matches!(refusal.reason, Reason::Batch | Reason::NotAnObject) {
        let _ = follower.text();
    }
    let has = |name: &[u8]| follower.members.iter().any(|member| member.name == name);
    Some(Outcome::Refused {
        line: line_number,
        refusal,
        id: expected_id(&follower, limits, dialect),
        object: follower.object,
        method: has(b"method"),
        response: has(b"result") || has(b"error"),
        counts: reader.counts,
        wire_bytes,
        overrun,
    })
}

fn expected_id(reader: &Reader<'_>, limits: &Limits, dialect: Dialect) -> IdText {
    let ids: Vec<&Member> = reader.members.iter().filter(|member| member.name == b"id").collect();
    match ids.as_slice() {
        [] => IdText::Absent,
        [Member { value: Some((start, end)), .. }] => {
            let text = &reader.bytes[*start..*end];
            let quotes = if text.starts_with(b"\"") { 2 } else { 0 };
            let fits = (text.len() - quotes) as u64 <= limits.id_bytes().ceiling();
            match std::str::from_utf8(text) {
                Ok(text) if fits && is_id(text, dialect) => IdText::Readable(text.to_owned()),
                _ => IdText::Unreadable,
            }
        }
        _ => IdText::Unreadable,
    }
}

fn is_id(text: &str, dialect: Dialect) -> bool {
    if text.starts_with('"') {
        return serde_json::from_str::<String>(text).is_ok();
    }
    let integer = match dialect {
        Dialect::Standard => text
            .split_once('.')
            .map_or(text, |(integer, fraction)| if fraction.bytes().all(|digit| digit == b'0') { integer } else { "" }),
        _ => text,
    };
    // 20 characters hold every integer of 64 bits.
    integer.len() <= 20
        && integer.parse::<i128>().is_ok_and(|number| i128::from(i64::MIN) <= number && number <= i128::from(i64::MAX))
}

/// The decision table, for a line that is one whole object within every limit.
fn expected_message(reader: &Reader<'_>, line: &[u8], number: u64, dialect: Dialect) -> Result<Outcome, Reason> {
    let member = |name: &str| {
        let found = reader.members.iter().find(|member| member.name == name.as_bytes())?;
        found.value.map(|(start, end)| &line[start..end])
    };
    let [method, id, result, error] = ["method", "id", "result", "error"].map(member);
    if method.is_none() && result.is_none() && error.is_none() {
        return Err(Reason::NotJsonRpc);
    }
    let version = member("jsonrpc").and_then(|text| serde_json::from_slice::<String>(text).ok());
    if dialect == Dialect::Standard && version.as_deref() != Some("2.0") {
        return Err(Reason::JsonrpcVersion);
    }
    let valid = id.and_then(|text| std::str::from_utf8(text).ok()).filter(|text| is_id(text, dialect));
    let kind = match (method, id, result, error) {
        (Some(_), _, None, None) if id.is_none() => Kind::Notification,
        (Some(_), _, None, None) if valid.is_some() => Kind::Request,
        (Some(_), _, None, None) => return Err(Reason::InvalidId),
        (Some(_), ..) => return Err(Reason::MethodWithResult),
        (None, _, Some(_), Some(_)) => return Err(Reason::ResultWithError),
        (None, _, Some(_), None) if valid.is_some() => Kind::Response,
        (None, _, None, Some(_)) if valid.is_some() || id.is_none_or(|id| id == b"null") => Kind::ErrorResponse,
        _ => return Err(Reason::InvalidId),
    };
    let method = match method {
        Some(text) => Some(serde_json::from_slice::<String>(text).map_err(|_| Reason::InvalidMethod)?),
        None => None,
    };
    let trace = member("trace").filter(|text| text.starts_with(b"{") || *text == b"null");
    if kind == Kind::Request && dialect == Dialect::Bare && trace.is_none() && member("trace").is_some() {
        return Err(Reason::InvalidTrace);
    }
    let body = match kind {
        Kind::Request | Kind::Notification => member("params"),
        Kind::Response => result,
        Kind::ErrorResponse => error,
    };
    Ok(Outcome::Message {
        line: number,
        kind,
        id: valid.map(str::to_owned),
        method,
        body: body.map(<[u8]>::to_vec),
        trace: trace.map(<[u8]>::to_vec),
        counts: reader.counts,
        wire_bytes: line.len() as u64,
    })
}

/// Why reading stopped.
#[derive(Debug)]
enum Stop {
    /// The bytes ended inside the text.
    Ended,
    Refused(Refusal),
}

/// One member of the top level.
#[derive(Debug)]
struct Member {
    name: Vec<u8>,
    /// Where the value stands, if it is complete.
    value: Option<(usize, usize)>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: &'a Limits,
    /// An object is wanted, and its members.
    message: bool,
    /// Limits count, and strings must be Unicode; else the structure alone is followed.
    strict: bool,
    object: bool,
    members: Vec<Member>,
    counts: Counts,
}

/// What a token is, which decides its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Id,
    Key,
    Method,
    Other,
}

const KNOWN: [&[u8]; 7] = [b"error", b"id", b"jsonrpc", b"method", b"params", b"result", b"trace"];

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], limits: &'a Limits, message: bool, strict: bool) -> Self {
        let (members, counts) = (Vec::new(), Counts::default());
        Self { bytes, at: 0, limits, message, strict, object: false, members, counts }
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Ended)
    }

    fn space(&mut self) {
        while self.peek().is_ok_and(is_space) {
            self.at += 1;
        }
    }

    fn grammar(&self) -> Stop {
        Stop::Refused(Refusal::new(Reason::InvalidJson).at(self.at as u64))
    }

    fn over(&self, reason: Reason, limit: u64) -> Stop {
        Stop::Refused(over(reason, limit, self.at))
    }

    /// One value with white space around it, and nothing more.
    fn text(&mut self) -> Result<(), Stop> {
        self.space();
        if self.message {
            match self.peek()? {
                b'{' => self.object = true,
                b'[' => {
                    // `[INFO] ready` is no batch. The place is the bracket's either way.
                    let bracket = self.at as u64;
                    self.at += 1;
                    self.space();
                    let reason = match self.peek()? {
                        b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Reason::Batch,
                        _ => Reason::NotAnObject,
                    };
                    return Err(Stop::Refused(Refusal::new(reason).at(bracket)));
                }
                _ => return Err(Stop::Refused(Refusal::new(Reason::NotAnObject).at(self.at as u64))),
            }
        }
        self.value(0, Role::Other)?;
        self.space();
        if self.at < self.bytes.len() { Err(self.grammar()) } else { Ok(()) }
    }

    fn value(&mut self, depth: u64, role: Role) -> Result<(), Stop> {
        match self.peek()? {
            byte @ (b'{' | b'[') => self.container(byte == b'{', depth),
            b'"' => {
                self.count()?;
                self.at += 1;
                let (start, end, _) = self.string(role)?;
                self.counts.string_bytes += (end - start) as u64;
                Ok(())
            }
            b'-' | b'0'..=b'9' => {
                self.count()?;
                self.number(depth, role)
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(self.grammar()),
        }
    }

    fn count(&mut self) -> Result<(), Stop> {
        let limit = self.limits.json_values().ceiling();
        if self.strict && self.counts.values >= limit {
            return Err(self.over(Reason::JsonValues, limit));
        }
        self.counts.values += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Stop> {
        self.count()?;
        for letter in word {
            if self.peek()? != *letter {
                return Err(self.grammar());
            }
            self.at += 1;
        }
        Ok(())
    }

    fn container(&mut self, object: bool, depth: u64) -> Result<(), Stop> {
        let limit = self.limits.depth().ceiling();
        if depth >= limit {
            return if self.strict { Err(self.over(Reason::Depth, limit)) } else { self.too_deep() };
        }
        self.count()?;
        *(if object { &mut self.counts.objects } else { &mut self.counts.arrays }) += 1;
        self.counts.depth = self.counts.depth.max(depth + 1);
        self.at += 1;
        let close = if object { b'}' } else { b']' };
        let mut keys = HashSet::new();
        let mut repeated = None;
        self.space();
        if self.peek()? != close {
            loop {
                self.space();
                if object {
                    self.member(depth, &mut keys, &mut repeated)?;
                } else {
                    self.value(depth + 1, Role::Other)?;
                }
                self.space();
                match self.peek()? {
                    b',' => self.at += 1,
                    byte if byte == close => break,
                    _ => return Err(self.grammar()),
                }
            }
        }
        if let Some(offset) = repeated {
            return Err(Stop::Refused(Refusal::new(Reason::DuplicateKey).at(offset)));
        }
        self.at += 1;
        Ok(())
    }

    fn member(&mut self, depth: u64, keys: &mut HashSet<Vec<u8>>, repeated: &mut Option<u64>) -> Result<(), Stop> {
        let quote = self.at as u64;
        if self.peek()? != b'"' {
            return Err(self.grammar());
        }
        self.at += 1;
        let (start, end, name) = self.string(Role::Key)?;
        self.counts.keys += 1;
        self.counts.key_bytes += (end - start) as u64;
        let top = self.message && depth == 0;
        if top {
            let known = KNOWN.contains(&name.as_slice());
            if self.strict && known && self.members.iter().any(|member| member.name == name) {
                return Err(Stop::Refused(Refusal::new(Reason::DuplicateKey).at(quote)));
            }
            self.members.push(Member { name: name.clone(), value: None });
        }
        let role = match name.as_slice() {
            b"id" if top => Role::Id,
            b"method" if top => Role::Method,
            _ => Role::Other,
        };
        if self.strict
            && self.limits.duplicate_keys() == DuplicateKeys::Refuse
            && !keys.insert(name)
            && repeated.is_none()
        {
            *repeated = Some(quote);
        }
        self.space();
        if self.peek()? != b':' {
            return Err(self.grammar());
        }
        self.at += 1;
        self.space();
        let start = self.at;
        self.value(depth + 1, role)?;
        if let Some(member) = self.members.last_mut().filter(|_| top) {
            member.value = Some((start, self.at));
        }
        Ok(())
    }

    /// Containers that are too deep to be told apart: brackets are counted, and strings are known from the rest.
    fn too_deep(&mut self) -> Result<(), Stop> {
        let (mut open, mut string) = (0, false);
        loop {
            match (self.peek()?, string) {
                (b'\\', true) => {
                    self.at += 1;
                    self.peek()?;
                }
                (b'"', _) => string = !string,
                (b'[' | b'{', false) => open += 1,
                (b']' | b'}', false) => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// A number; its own limit holds, and for an id the id's.
    fn number(&mut self, depth: u64, role: Role) -> Result<(), Stop> {
        let start = self.at;
        let (number, id) = (self.limits.number_bytes().ceiling(), self.limits.id_bytes().ceiling());
        let (reason, limit) =
            if role == Role::Id && id <= number { (Reason::IdBytes, id) } else { (Reason::NumberBytes, number) };
        // At the end of the bytes a number is complete only where nothing could follow it.
        let alone = depth == 0;
        let next = |wanted: &[u8], reader: &mut Self| -> Result<bool, Stop> {
            let byte = reader.peek()?;
            if !wanted.contains(&byte) {
                return Ok(false);
            }
            if reader.strict && (reader.at - start) as u64 >= limit {
                return Err(reader.over(reason, limit));
            }
            reader.at += 1;
            Ok(true)
        };
        let whole = |result: Result<bool, Stop>| match result {
            Err(Stop::Ended) if alone => Ok(false),
            result => result,
        };
        next(b"-", self)?;
        if !next(b"0", self)? {
            if !next(b"123456789", self)? {
                return Err(self.grammar());
            }
            while whole(next(b"0123456789", self))? {}
        }
        if whole(next(b".", self))? {
            if !next(b"0123456789", self)? {
                return Err(self.grammar());
            }
            while whole(next(b"0123456789", self))? {}
        }
        if whole(next(b"eE", self))? {
            next(b"+-", self)?;
            if !next(b"0123456789", self)? {
                return Err(self.grammar());
            }
            while whole(next(b"0123456789", self))? {}
        }
        Ok(())
    }

    /// A string after its opening quote: where its raw bytes begin and end, and what it means.
    fn string(&mut self, role: Role) -> Result<(usize, usize, Vec<u8>), Stop> {
        let start = self.at;
        let (reason, limit) = self.string_limit(role);
        let is_over = |reader: &Self| reader.strict && (reader.at - start) as u64 >= limit;
        let mut meaning = Vec::new();
        // The offset and the value of a high surrogate that waits for its low one.
        let mut high: Option<(usize, u32)> = None;
        loop {
            let byte = self.peek()?;
            if byte != b'"' && is_over(self) {
                return Err(self.over(reason, limit));
            }
            if let Some((offset, _)) = high
                && self.strict
                && byte != b'\\'
                && byte >= 0x20
            {
                return Err(self.encoding(Reason::LoneSurrogate, offset));
            }
            match byte {
                b'"' => {
                    self.at += 1;
                    return Ok((start, self.at - 1, meaning));
                }
                b'\\' => {
                    let begun = self.at;
                    self.at += 1;
                    let unit =
                        self.escape(|reader| if is_over(reader) { Err(reader.over(reason, limit)) } else { Ok(()) })?;
                    match (high.take(), unit) {
                        (Some((_, one)), 0xdc00..=0xdfff) => {
                            let character = 0x1_0000 + ((one - 0xd800) << 10) + (unit - 0xdc00);
                            push_character(&mut meaning, character);
                        }
                        (Some((offset, _)), _) if self.strict => {
                            return Err(self.encoding(Reason::LoneSurrogate, offset));
                        }
                        (None, 0xdc00..=0xdfff) if self.strict => {
                            return Err(self.encoding(Reason::LoneSurrogate, begun));
                        }
                        (_, 0xd800..=0xdbff) => {
                            high = Some((begun, unit));
                            // Half a pair that is only followed is still no part of a known name.
                            if !self.strict {
                                push_character(&mut meaning, unit);
                            }
                        }
                        _ => push_character(&mut meaning, unit),
                    }
                }
                0..=0x1f => return Err(self.grammar()),
                0x20..=0x7f => {
                    meaning.push(byte);
                    self.at += 1;
                }
                _ if !self.strict => {
                    meaning.push(byte);
                    self.at += 1;
                }
                _ => {
                    let begun = self.at;
                    loop {
                        self.at += 1;
                        match std::str::from_utf8(&self.bytes[begun..self.at]) {
                            Ok(_) => break,
                            Err(error) if error.error_len().is_some() => {
                                return Err(self.encoding(Reason::InvalidUtf8, begun));
                            }
                            Err(_) => {}
                        }
                        let next = self.peek()?;
                        if next != b'"' && is_over(self) {
                            return Err(self.over(reason, limit));
                        }
                        if next < 0x80 {
                            return Err(self.encoding(Reason::InvalidUtf8, begun));
                        }
                    }
                    meaning.extend_from_slice(&self.bytes[begun..self.at]);
                }
            }
        }
    }

    fn string_limit(&self, role: Role) -> (Reason, u64) {
        let string = self.limits.string_bytes().ceiling();
        let (reason, limit) = match role {
            Role::Key => return (Reason::KeyBytes, self.limits.key_bytes().ceiling()),
            Role::Id => (Reason::IdBytes, self.limits.id_bytes().ceiling()),
            Role::Method => (Reason::MethodBytes, self.limits.method_bytes().ceiling()),
            Role::Other => (Reason::StringBytes, string),
        };
        if string < limit { (Reason::StringBytes, string) } else { (reason, limit) }
    }

    /// An escape after its backslash, as a code unit.
    fn escape(&mut self, check: impl Fn(&Self) -> Result<(), Stop>) -> Result<u32, Stop> {
        let next = |reader: &mut Self, wanted: fn(u8) -> bool| {
            let byte = reader.peek()?;
            check(reader)?;
            if !wanted(byte) {
                return Err(reader.grammar());
            }
            reader.at += 1;
            Ok(byte)
        };
        let unit = match next(self, |byte| b"\"\\/bfnrtu".contains(&byte))? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'u' => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = next(self, |byte| byte.is_ascii_hexdigit())?;
                    unit = unit * 16 + (digit as char).to_digit(16).unwrap();
                }
                unit
            }
            plain => u32::from(plain),
        };
        Ok(unit)
    }

    fn encoding(&self, reason: Reason, offset: usize) -> Stop {
        Stop::Refused(Refusal::new(reason).at(offset as u64))
    }
}

fn push_character(meaning: &mut Vec<u8>, unit: u32) {
    let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    meaning.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn over(reason: Reason, limit: u64, offset: usize) -> Refusal {
    Refusal::over(reason, limit, limit.saturating_add(1)).at(offset as u64)
}
