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
mod steps;
mod string;

use self::containers::Containers;
use self::envelope::Top;
pub(crate) use self::envelope::{IdSeen, Member, Span, Type};
use self::keys::Keys;
use self::number::Number;
use self::steps::most_of;
use self::string::{Role, Text};
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
}
