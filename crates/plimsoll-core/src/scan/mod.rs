//! The scanner: one pass over a message's bytes as they arrive.
//!
//! It checks the grammar of RFC 8259 in full, UTF-8 and surrogate pairs, counts values and depth, finds repeated keys
//! and the members of the envelope, and refuses at the byte where a limit is passed, before the rest has arrived. It
//! keeps its whole state between calls, so it may be stopped at every byte and the verdict, the counts and the ranges
//! do not depend on where.
//!
//! It runs in one of two modes. While a message may still be accepted its bytes are in a [`Source`], and the scanner
//! refers to keys by their ranges. After a refusal it only *follows* the bytes: nothing is stored, no limit counts but
//! that of the id, containers beyond the deepest allowed are only counted, and what is wanted is the one top-level `id`
//! and the kind. After an error of grammar nothing that comes can be understood, and nothing is looked at.
//!
//! It does not recurse, does not build a tree and does not copy what it reads, except the id.

mod containers;
mod envelope;
mod fast;
mod keys;
mod number;
mod plain;
mod string;

use self::containers::Containers;
use self::envelope::Top;
pub(crate) use self::envelope::{IdSeen, Member, Span, Type};
use self::keys::{Key, Keys};
use self::number::Number;
use self::plain::{plain, skip_space};
use self::string::{Role, Step, Text};
use crate::budget::{Budget, Charge};
use crate::limits::{DuplicateKeys, Limits};
use crate::reason::{Class, Reason, Refusal};
use crate::segments::Source;

/// What a message holds, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Scalars, arrays and objects, the envelope included; keys are not values.
    pub values: u64,
    /// Objects among the values.
    pub objects: u64,
    /// Arrays among the values.
    pub arrays: u64,
    /// Members of objects.
    pub keys: u64,
    /// Bytes between the quotes of string values, as sent.
    pub string_bytes: u64,
    /// Bytes between the quotes of keys, as sent.
    pub key_bytes: u64,
    /// The most containers that were open at once.
    pub depth: u64,
}

impl Counts {
    /// Strings, numbers, booleans and nulls among the values.
    pub const fn scalars(&self) -> u64 {
        self.values - self.objects - self.arrays
    }
}

/// What the bytes are expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Any one JSON text.
    Document,
    /// One JSON-RPC message: an object.
    Message,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before the first byte that is no white space.
    Start,
    /// After a bracket where a message should begin, which is at this offset.
    Bracket(usize),
    /// A value must come.
    Value,
    /// After `[`: a value or the end.
    FirstValue,
    /// After `{`: a key or the end.
    FirstKey,
    /// A key must come.
    Key,
    Colon,
    /// After a value in a container.
    Comma,
    Literal {
        rest: &'static [u8],
    },
    Number {
        state: Number,
        start: usize,
        // The offset at which the number is too long.
        most: usize,
        // It is the envelope's `id`, so its text is kept.
        id: bool,
    },
    String(Text),
    /// Following a refused message, this many containers beyond the deepest that is told apart.
    Deep {
        open: u64,
        string: bool,
        escape: bool,
    },
    /// The value is complete.
    End,
    /// An error of grammar came before.
    Lost,
}

/// The limits as plain numbers; following lifts them.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    values: u64,
    depth: usize,
    string: u64,
    key: u64,
    number: u64,
    id: u64,
    method: u64,
    duplicate_keys: DuplicateKeys,
}

impl Bounds {
    fn new(limits: &Limits) -> Self {
        Self {
            values: limits.json_values().ceiling(),
            depth: usize::try_from(limits.depth().ceiling()).unwrap_or(usize::MAX),
            string: limits.string_bytes().ceiling(),
            key: limits.key_bytes().ceiling(),
            number: limits.number_bytes().ceiling(),
            id: limits.id_bytes().ceiling(),
            method: limits.method_bytes().ceiling(),
            duplicate_keys: limits.duplicate_keys(),
        }
    }

    fn lifted(self) -> Self {
        let off = u64::MAX;
        Self {
            values: off,
            string: off,
            key: off,
            number: off,
            method: off,
            duplicate_keys: DuplicateKeys::Accept,
            ..self
        }
    }
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There was nothing but white space.
    Blank,
    /// One whole JSON text within the limits.
    Whole,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Scanner {
    expect: Expect,
    limits: Bounds,
    bounds: Bounds,
    // Bytes of this message taken so far.
    position: usize,
    state: State,
    containers: Containers,
    // The top container is an object; `containers.in_object()`, kept at hand.
    in_object: bool,
    keys: Keys,
    counts: Counts,
    // `counts` when the message was refused.
    counts_at_refusal: Counts,
    top: Top,
    refused: Option<Refusal>,
    began_object: bool,
    // Covers `keys` and `containers`.
    scratch: Charge,
}

impl Scanner {
    pub(crate) fn new(limits: &Limits, expect: Expect, budget: &Budget) -> Self {
        let bounds = Bounds::new(limits);
        Self {
            expect,
            limits: bounds,
            bounds,
            position: 0,
            state: State::Start,
            containers: Containers::default(),
            in_object: false,
            keys: Keys::default(),
            counts: Counts::default(),
            counts_at_refusal: Counts::default(),
            top: Top::default(),
            refused: None,
            began_object: false,
            scratch: budget.empty_charge(),
        }
    }

    /// Ready for the next message; what a large one needed is given back.
    pub(crate) fn reset(&mut self) {
        self.bounds = self.limits;
        self.position = 0;
        self.state = State::Start;
        self.containers.reset(&mut self.scratch);
        self.in_object = false;
        self.keys.truncate(0, &mut self.scratch);
        self.counts = Counts::default();
        self.top.reset();
        self.refused = None;
        self.began_object = false;
    }

    /// Reads on in `source` up to its end.
    ///
    /// # Errors
    ///
    /// The first refusal. The message can then only be followed.
    pub(crate) fn advance<S: Source + ?Sized>(&mut self, source: &S) -> Result<(), Refusal> {
        debug_assert!(self.refused.is_none(), "a refused message is followed, not stored");
        while self.position < source.len() {
            self.run(source.run(self.position), source)?;
        }
        Ok(())
    }

    /// Follows a refused message.
    pub(crate) fn follow(&mut self, bytes: &[u8]) {
        debug_assert!(self.refused.is_some(), "only a refused message is followed");
        let end = self.position.saturating_add(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() && !matches!(self.state, State::Lost) {
            let before = self.position;
            // An error while following is one of grammar, after which the state is `Lost`.
            let _ = self.run::<[u8]>(rest, &[]);
            rest = rest.get(self.position - before..).unwrap_or_default();
        }
        self.position = end;
    }

    /// Refuses the message for a reason of the caller's, such as its length; keeps the first refusal.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        if self.refused.is_none() {
            self.refused = Some(refusal);
            self.counts_at_refusal = self.counts;
            self.bounds = self.bounds.lifted();
            self.keys.truncate(0, &mut self.scratch);
            self.containers.forget_keys();
            self.lift();
        }
        if refusal.reason.class() == Class::Grammar {
            self.state = State::Lost;
        }
    }

    /// What was under way is no longer limited, but for the id, whose own limit alone counts.
    fn lift(&mut self) {
        match &mut self.state {
            State::String(text) if text.role == Role::Id => text.most = most_of(text.start, self.bounds.id),
            State::String(text) => text.most = usize::MAX,
            State::Number { start, most, id, .. } => {
                *most = if *id { most_of(*start, self.bounds.id) } else { usize::MAX };
            }
            _ => {}
        }
    }

    /// The message has ended here.
    ///
    /// # Errors
    ///
    /// A refusal, when the text is not complete; the offset is the message's length.
    pub(crate) fn finish(&mut self) -> Result<Ended, Refusal> {
        if let Some(refusal) = self.refused {
            return Err(refusal);
        }
        match self.state {
            State::Start => Ok(Ended::Blank),
            State::End => Ok(Ended::Whole),
            State::Number { state, .. } if state.complete() && self.containers.depth() == 0 => Ok(Ended::Whole),
            _ => {
                let refusal = Refusal::new(Reason::InvalidJson).at(self.position as u64);
                self.refuse(refusal);
                Err(refusal)
            }
        }
    }

    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// Bytes of this message taken so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn is_blank(&self) -> bool {
        matches!(self.state, State::Start)
    }

    /// What was counted so far, up to the refusal if there was one.
    pub(crate) fn counts(&self) -> Counts {
        if self.refused.is_some() { self.counts_at_refusal } else { self.counts }
    }

    pub(crate) fn began_object(&self) -> bool {
        self.began_object
    }

    pub(crate) fn member(&self, member: Member) -> Option<Span> {
        self.top.span(member)
    }

    pub(crate) fn id(&self) -> &IdSeen {
        &self.top.id
    }

    pub(crate) fn take_id(&mut self) -> IdSeen {
        std::mem::take(&mut self.top.id)
    }

    /// Reads one contiguous run, whose first byte is at `self.position`, and stops at its end or at a refusal.
    fn run<S: Source + ?Sized>(&mut self, bytes: &[u8], source: &S) -> Result<(), Refusal> {
        let base = self.position;
        let mut at = 0;
        let result = self.read(bytes, &mut at, base, source);
        self.position = base + at;
        if let Err(refusal) = result {
            self.refuse(refusal);
        }
        result
    }

    fn read<S: Source + ?Sized>(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
        source: &S,
    ) -> Result<(), Refusal> {
        loop {
            if self.containers.depth() > 1 {
                self.fast_lane(bytes, at, base, source);
            }
            match self.state {
                State::Start | State::Value | State::FirstValue => {
                    let Some(byte) = skip_space(bytes, at) else { return Ok(()) };
                    self.value(byte, bytes, at, base)?;
                }
                State::Bracket(begun) => {
                    let Some(byte) = skip_space(bytes, at) else { return Ok(()) };
                    // A log line may begin with a bracket; a batch goes on as JSON.
                    let is_json = matches!(byte, b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n');
                    return self.noise(if is_json { Reason::Batch } else { Reason::NotAnObject }, begun);
                }
                State::String(mut text) => {
                    let done = self.string(&mut text, bytes, at, base, source)?;
                    if !done {
                        return Ok(());
                    }
                }
                State::Comma => {
                    let Some(byte) = skip_space(bytes, at) else { return Ok(()) };
                    match byte {
                        b',' if self.in_object => self.state = State::Key,
                        b',' => self.state = State::Value,
                        b'}' if self.in_object => self.close_object(base + *at + 1, source)?,
                        b']' if !self.in_object => self.close(base + *at + 1),
                        _ => return Err(grammar(base + *at)),
                    }
                    *at += 1;
                }
                State::Key | State::FirstKey => {
                    let Some(byte) = skip_space(bytes, at) else { return Ok(()) };
                    match byte {
                        b'"' => {
                            *at += 1;
                            self.key(bytes, at, base)?;
                        }
                        b'}' if matches!(self.state, State::FirstKey) => {
                            self.close_object(base + *at + 1, source)?;
                            *at += 1;
                        }
                        _ => return Err(grammar(base + *at)),
                    }
                }
                State::Colon => {
                    let Some(byte) = skip_space(bytes, at) else { return Ok(()) };
                    if byte != b':' {
                        return Err(grammar(base + *at));
                    }
                    *at += 1;
                    self.state = State::Value;
                }
                State::Number { state, start, most, id } => {
                    if !self.number(state, start, most, id, bytes, at, base)? {
                        return Ok(());
                    }
                }
                State::Literal { rest } => {
                    let mut rest = rest;
                    while let Some((&wanted, more)) = rest.split_first() {
                        let Some(&byte) = bytes.get(*at) else {
                            self.state = State::Literal { rest };
                            return Ok(());
                        };
                        if byte != wanted {
                            return Err(grammar(base + *at));
                        }
                        *at += 1;
                        rest = more;
                    }
                    self.end_value(base + *at);
                }
                State::End => {
                    let Some(_) = skip_space(bytes, at) else { return Ok(()) };
                    return Err(grammar(base + *at));
                }
                State::Deep { open, string, escape } => {
                    if !self.deep(open, string, escape, bytes, at, base) {
                        return Ok(());
                    }
                }
                State::Lost => {
                    *at = bytes.len();
                    return Ok(());
                }
            }
        }
    }

    /// A value begins with `byte`, which is at `*at`.
    #[inline]
    fn value(&mut self, byte: u8, bytes: &[u8], at: &mut usize, base: usize) -> Result<(), Refusal> {
        let offset = base + *at;
        if let State::Start = self.state
            && self.expect == Expect::Message
        {
            match byte {
                b'{' => self.began_object = true,
                b'[' => {
                    *at += 1;
                    self.state = State::Bracket(offset);
                    return Ok(());
                }
                _ => return self.noise(Reason::NotAnObject, offset),
            }
        }
        match byte {
            b'"' => {
                let role = match self.begin_value(offset, Type::String)? {
                    Some(Member::Id) => Role::Id,
                    Some(Member::Method) => Role::Method,
                    _ => Role::Value,
                };
                *at += 1;
                self.begin_string(role, bytes, at, base);
            }
            b'{' | b'[' => self.open(byte == b'{', at, base)?,
            b'-' | b'0'..=b'9' => self.begin_number(bytes, at, base)?,
            b't' => self.literal(b"true", Type::Boolean, bytes, at, base)?,
            b'f' => self.literal(b"false", Type::Boolean, bytes, at, base)?,
            b'n' => self.literal(b"null", Type::Null, bytes, at, base)?,
            b']' if matches!(self.state, State::FirstValue) => {
                self.close(offset + 1);
                *at += 1;
            }
            _ => return Err(grammar(offset)),
        }
        Ok(())
    }

    /// What comes is no message at all, and is not looked at.
    fn noise(&mut self, reason: Reason, offset: usize) -> Result<(), Refusal> {
        self.state = State::Lost;
        Err(Refusal::new(reason).at(offset as u64))
    }

    /// Counts a value; for a member of the envelope, says which one it is.
    #[inline]
    fn begin_value(&mut self, offset: usize, kind: Type) -> Result<Option<Member>, Refusal> {
        if self.counts.values >= self.bounds.values {
            return Err(over(Reason::JsonValues, self.bounds.values).at(offset as u64));
        }
        self.counts.values += 1;
        if self.at_top() { Ok(self.top.begin_value(offset, kind)) } else { Ok(None) }
    }

    #[inline]
    fn at_top(&self) -> bool {
        self.containers.depth() == 1 && self.began_object
    }

    #[inline]
    fn end_value(&mut self, end: usize) {
        if self.at_top() {
            self.top.end_value(end);
        }
        self.state = if self.containers.depth() == 0 { State::End } else { State::Comma };
    }

    #[inline]
    fn open(&mut self, object: bool, at: &mut usize, base: usize) -> Result<(), Refusal> {
        let offset = base + *at;
        let too_deep = self.containers.depth() >= self.bounds.depth;
        if too_deep && self.refused.is_none() {
            return Err(over(Reason::Depth, self.bounds.depth as u64).at(offset as u64));
        }
        self.begin_value(offset, if object { Type::Object } else { Type::Array })?;
        *(if object { &mut self.counts.objects } else { &mut self.counts.arrays }) += 1;
        if self.refused.is_some() {
            // A refused message is followed in the room there is: containers beyond it are counted, not told apart.
            if too_deep || self.containers.open(object, &mut self.scratch).is_err() {
                *at += 1;
                self.state = State::Deep { open: 1, string: false, escape: false };
                return Ok(());
            }
        } else {
            let opened = if object {
                self.containers.open_object(self.keys.len(), &mut self.scratch)
            } else {
                self.containers.open(false, &mut self.scratch)
            };
            opened.map_err(|no_room| Refusal::from(no_room).at(offset as u64))?;
        }
        self.counts.depth = self.counts.depth.max(self.containers.depth() as u64);
        self.in_object = object;
        self.state = if object { State::FirstKey } else { State::FirstValue };
        *at += 1;
        Ok(())
    }

    #[inline]
    fn close_object<S: Source + ?Sized>(&mut self, end: usize, source: &S) -> Result<(), Refusal> {
        let base = self.containers.base();
        if self.keys.len() > base {
            if let Some(key) = self.keys.repeated(base, source, &mut self.scratch)? {
                return Err(Refusal::new(Reason::DuplicateKey).at(u64::from(key.start()) - 1));
            }
            self.keys.truncate(base, &mut self.scratch);
        }
        self.close(end);
        Ok(())
    }

    #[inline]
    fn close(&mut self, end: usize) {
        self.containers.close();
        self.in_object = self.containers.in_object();
        self.end_value(end);
    }

    /// A string begins at `*at`, after its quote; read at once when all of it is here and plain.
    #[inline]
    fn begin_string(&mut self, role: Role, bytes: &[u8], at: &mut usize, base: usize) {
        let (_, limit) = self.string_limit(role);
        if role == Role::Id {
            self.top.push_id(b"\"");
        } else if let Some(len) = whole_plain(&bytes[*at..], limit) {
            self.counts.string_bytes += len as u64;
            *at += len + 1;
            self.end_value(base + *at);
            return;
        }
        self.state = State::String(Text::new(role, base + *at, most_of(base + *at, limit)));
    }

    /// The limit of a string and what passing it is called.
    #[inline]
    fn string_limit(&self, role: Role) -> (Reason, u64) {
        let Bounds { string, key, id, method, .. } = self.bounds;
        match role {
            Role::Key | Role::TopKey => (Reason::KeyBytes, key),
            Role::Id if id <= string => (Reason::IdBytes, id),
            Role::Method if method <= string => (Reason::MethodBytes, method),
            Role::Id | Role::Method | Role::Value => (Reason::StringBytes, string),
        }
    }

    /// A key begins at `*at`, after its quote; read at once when all of it is here and plain.
    #[inline]
    fn key(&mut self, bytes: &[u8], at: &mut usize, base: usize) -> Result<(), Refusal> {
        let start = base + *at;
        let top = self.at_top();
        let Some(len) = whole_plain(&bytes[*at..], self.bounds.key) else {
            let role = if top { Role::TopKey } else { Role::Key };
            self.state = State::String(Text::new(role, start, most_of(start, self.bounds.key)));
            return Ok(());
        };
        let key = &bytes[*at..*at + len];
        *at += len + 1;
        let named = if top { self.top.end_plain_name(key, start - 1) } else { Ok(()) };
        self.end_key(named, Key::plain(key, start), start, len)
    }

    /// Reads on in a string; `false` when the run ended inside it.
    fn string<S: Source + ?Sized>(
        &mut self,
        text: &mut Text,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
        source: &S,
    ) -> Result<bool, Refusal> {
        let from = *at;
        let strict = self.refused.is_none();
        let name = (text.role == Role::TopKey).then_some(&mut self.top.name);
        let step = text.step(bytes, at, base, strict, name);
        if text.role == Role::Id {
            self.top.push_id(&bytes[from..*at]);
        }
        self.state = State::String(*text);
        match step {
            Step::More => Ok(false),
            Step::Refused(refusal) => Err(refusal),
            Step::End => {
                let end = base + *at - 1;
                match text.role {
                    Role::Key | Role::TopKey => {
                        let top = text.role == Role::TopKey;
                        let named = if top { self.top.end_name(text.start - 1) } else { Ok(()) };
                        // While following there is no source to refer to, and no key is kept.
                        let key = if strict { Key::new(source, text.start, end, text.escaped) } else { None };
                        self.end_key(named, key, text.start, end - text.start)?;
                    }
                    _ => {
                        self.counts.string_bytes += (end - text.start) as u64;
                        self.end_value(end + 1);
                    }
                }
                Ok(true)
            }
            Step::TooLong => {
                let (reason, limit) = self.string_limit(text.role);
                // The id's own limit may be larger, and then it may still be read.
                if text.role == Role::Id && reason == Reason::IdBytes {
                    self.top.give_up_id();
                    text.role = Role::Value;
                }
                text.most = usize::MAX;
                self.state = State::String(*text);
                if strict { Err(over(reason, limit).at((base + *at) as u64)) } else { Ok(true) }
            }
        }
    }

    /// A key of `len` bytes has ended, which made this of its name at the top level.
    #[inline]
    fn end_key(
        &mut self,
        named: Result<(), Refusal>,
        key: Option<Key>,
        start: usize,
        len: usize,
    ) -> Result<(), Refusal> {
        self.state = State::Colon;
        self.counts.keys += 1;
        self.counts.key_bytes += len as u64;
        // While following, a repeated id has been noted, and the rest does not matter.
        if self.refused.is_none() {
            named?;
        }
        if self.bounds.duplicate_keys == DuplicateKeys::Refuse {
            let key = key.ok_or_else(|| over(Reason::MessageBytes, u64::from(u32::MAX)).at(start as u64))?;
            self.keys.push(key, &mut self.scratch)?;
        }
        Ok(())
    }

    #[inline]
    fn begin_number(&mut self, bytes: &[u8], at: &mut usize, base: usize) -> Result<(), Refusal> {
        let start = base + *at;
        let id = self.begin_value(start, Type::Number)? == Some(Member::Id);
        let (_, limit) = self.number_limit(id);
        if !id
            && let Some(len) = number::whole(&bytes[*at..])
            && len as u64 <= limit
        {
            *at += len;
            self.end_value(base + *at);
            return Ok(());
        }
        let Some(state) = Number::first(bytes[*at]) else { return Err(grammar(start)) };
        if id {
            self.top.push_id(&bytes[*at..=*at]);
        }
        *at += 1;
        self.state = State::Number { state, start, most: most_of(start, limit), id };
        Ok(())
    }

    /// The limit of a number and what passing it is called.
    #[inline]
    fn number_limit(&self, id: bool) -> (Reason, u64) {
        let Bounds { number, id: id_bytes, .. } = self.bounds;
        if id && id_bytes <= number { (Reason::IdBytes, id_bytes) } else { (Reason::NumberBytes, number) }
    }

    /// Reads on in a number; `false` when the run ended inside it.
    #[allow(clippy::too_many_arguments, reason = "the fields of one state, taken apart by the one caller")]
    fn number(
        &mut self,
        mut state: Number,
        start: usize,
        most: usize,
        id: bool,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
    ) -> Result<bool, Refusal> {
        let from = *at;
        let next = loop {
            match bytes.get(*at).map(|&byte| state.next(byte)) {
                Some(Some(next)) if base + *at < most => {
                    state = next;
                    *at += 1;
                }
                next => break next,
            }
        };
        if id {
            self.top.push_id(&bytes[from..*at]);
        }
        match next {
            Some(Some(_)) => self.number_too_long(state, start, id, base + *at),
            Some(None) if state.complete() => {
                self.end_value(base + *at);
                Ok(true)
            }
            Some(None) => Err(grammar(base + *at)),
            None => {
                self.state = State::Number { state, start, most, id };
                Ok(false)
            }
        }
    }

    /// A number goes on at its limit. What follows of it is not limited, and no id.
    fn number_too_long(&mut self, state: Number, start: usize, id: bool, offset: usize) -> Result<bool, Refusal> {
        let (reason, limit) = self.number_limit(id);
        // The id's own limit may be larger, and then it may still be read.
        let lost = id && reason == Reason::IdBytes;
        if lost {
            self.top.give_up_id();
        }
        self.state = State::Number { state, start, most: usize::MAX, id: id && !lost };
        if self.refused.is_none() { Err(over(reason, limit).at(offset as u64)) } else { Ok(true) }
    }

    #[inline]
    fn literal(
        &mut self,
        word: &'static [u8],
        kind: Type,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
    ) -> Result<(), Refusal> {
        self.begin_value(base + *at, kind)?;
        if bytes[*at..].starts_with(word) {
            *at += word.len();
            self.end_value(base + *at);
        } else {
            *at += 1;
            self.state = State::Literal { rest: &word[1..] };
        }
        Ok(())
    }

    /// Follows containers too deep to be told apart; `false` when the run ended among them.
    fn deep(
        &mut self,
        mut open: u64,
        mut string: bool,
        mut escape: bool,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
    ) -> bool {
        while let Some(&byte) = bytes.get(*at) {
            *at += 1;
            match byte {
                _ if escape => escape = false,
                b'\\' if string => escape = true,
                b'"' => string = !string,
                b'[' | b'{' if !string => open += 1,
                b']' | b'}' if !string => open -= 1,
                _ => {}
            }
            if open == 0 {
                self.end_value(base + *at);
                return true;
            }
        }
        self.state = State::Deep { open, string, escape };
        false
    }
}

/// The length of the plain string at the start of `bytes`, when its closing quote is there too and no check is due.
#[inline]
fn whole_plain(bytes: &[u8], limit: u64) -> Option<usize> {
    let run = plain(bytes);
    (bytes.get(run.len) == Some(&b'"')
        && run.len as u64 <= limit
        && (run.ascii || simdutf8::basic::from_utf8(&bytes[..run.len]).is_ok()))
    .then_some(run.len)
}

/// The offset at which what began at `start` passes `limit`.
fn most_of(start: usize, limit: u64) -> usize {
    usize::try_from(limit).map_or(usize::MAX, |limit| start.saturating_add(limit))
}

fn grammar(offset: usize) -> Refusal {
    Refusal::new(Reason::InvalidJson).at(offset as u64)
}

/// A refusal at the first number over `limit`.
fn over(reason: Reason, limit: u64) -> Refusal {
    Refusal::over(reason, limit, limit.saturating_add(1))
}
