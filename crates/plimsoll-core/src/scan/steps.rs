//! The scanner's steps: one token, or as much of it as has come, after another.
//!
//! Every rule of the grammar, every count and every limit is applied here. What the fast lane takes, these steps would
//! have taken.

use super::envelope::{Member, Type};
use super::keys::Key;
use super::number::{self, Number};
use super::plain::{plain, skip_space};
use super::string::{Role, Step, Text};
use super::{Bounds, Expect, Scanner, State};
use crate::limits::DuplicateKeys;
use crate::reason::{Reason, Refusal};
use crate::segments::Source;

impl Scanner {
    /// Reads `bytes` from `*at` to their end or to a refusal; the first byte is at `base` of the message.
    pub(super) fn read<S: Source + ?Sized>(
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
pub(super) fn whole_plain(bytes: &[u8], limit: u64) -> Option<usize> {
    let run = plain(bytes);
    (bytes.get(run.len) == Some(&b'"')
        && run.len as u64 <= limit
        && (run.ascii || simdutf8::basic::from_utf8(&bytes[..run.len]).is_ok()))
    .then_some(run.len)
}

/// The offset at which what began at `start` passes `limit`.
pub(super) fn most_of(start: usize, limit: u64) -> usize {
    usize::try_from(limit).map_or(usize::MAX, |limit| start.saturating_add(limit))
}

fn grammar(offset: usize) -> Refusal {
    Refusal::new(Reason::InvalidJson).at(offset as u64)
}

/// A refusal at the first number over `limit`.
fn over(reason: Reason, limit: u64) -> Refusal {
    Refusal::over(reason, limit, limit.saturating_add(1))
}
