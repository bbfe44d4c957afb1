//! One message as it arrives: its bytes are stored and scanned chunk by chunk until its end mark.
//!
//! Every framing hands its chunks to a [`Frame`], so a message is refused while it arrives whatever carries it. Once it
//! is refused, what was stored is given back and the rest is only followed, for its id and its end.

use crate::budget::Budget;
use crate::limits::{Bound, Limits};
use crate::message::{Dialect, Message, Refused, classify};
use crate::reason::{Reason, Refusal};
use crate::scan::{Counts, Ended, Expect, Scanner};
use crate::segments::{Segments, Source};

/// What one frame turned out to be.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the usual one is the large one, and it is moved once")]
pub enum Received {
    /// A message, to be routed.
    Message(Message),
    /// Something that is refused, to be answered as [`AnswerRules`](crate::AnswerRules) says.
    Refused(Refused),
}

/// The message that is arriving.
#[derive(Debug)]
pub(crate) struct Frame {
    budget: Budget,
    dialect: Dialect,
    message_bytes: u64,
    scanner: Scanner,
    // A refused message is followed for at most this many bytes; at least `message_bytes`.
    skip_bytes: u64,
    // Empty once the message is refused.
    bytes: Segments,
    // Bytes of this frame so far, stored or not.
    length: u64,
}

impl Frame {
    pub(crate) fn new(limits: &Limits, dialect: Dialect, expect: Expect, budget: &Budget) -> Self {
        Self {
            budget: budget.clone(),
            dialect,
            message_bytes: limits.message_bytes().ceiling(),
            skip_bytes: limits.skip_bytes().ceiling().max(limits.message_bytes().ceiling()),
            scanner: Scanner::new(limits, expect, budget),
            bytes: Segments::new(budget),
            length: 0,
        }
    }

    /// Bytes of this frame so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether nothing but white space has come.
    pub(crate) fn is_blank(&self) -> bool {
        self.scanner.is_blank()
    }

    /// Whether the message is refused and longer than such a message may be. Nothing beyond that is looked at.
    pub(crate) fn is_overrun(&self) -> bool {
        self.scanner.refused().is_some() && self.length > self.skip_bytes
    }

    /// How many bytes of a refused message are followed, at most.
    pub(crate) fn skip_bytes(&self) -> u64 {
        self.skip_bytes
    }

    /// More bytes of the message. `whole` says that these are all.
    pub(crate) fn push(&mut self, mut bytes: &[u8], whole: bool) {
        let before = self.length;
        self.length = before.saturating_add(bytes.len() as u64);
        if self.scanner.refused().is_none() {
            let room = usize::try_from(self.message_bytes.saturating_sub(before)).unwrap_or(usize::MAX);
            let (within, beyond) = bytes.split_at(room.min(bytes.len()));
            let left = self.store(within, whole && beyond.is_empty());
            if left == 0 && !beyond.is_empty() && self.scanner.refused().is_none() {
                let limit = self.message_bytes;
                self.refuse(Refusal::over(Reason::MessageBytes, limit, limit.saturating_add(1)).at(limit));
            }
            bytes = &bytes[within.len() - left..];
        }
        if self.is_overrun() {
            // The rest is not followed, so that what is known of the message does not depend on how its bytes came.
            self.length = self.skip_bytes.saturating_add(1);
            let room = self.skip_bytes.saturating_sub(self.scanner.position() as u64);
            bytes = &bytes[..usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len())];
        }
        if !bytes.is_empty() {
            self.scanner.follow(bytes);
        }
    }

    /// Stores and scans; returns how many of the last bytes were not scanned because the message is refused.
    fn store(&mut self, mut bytes: &[u8], whole: bool) -> usize {
        while !bytes.is_empty() {
            let begun = self.bytes.len();
            let taken = match self.bytes.append(bytes, whole) {
                Ok(taken) => taken,
                Err(no_room) => {
                    self.refuse(Refusal::from(no_room));
                    return bytes.len();
                }
            };
            if self.scanner.advance(&self.bytes).is_err() {
                let scanned = self.scanner.position() - begun;
                self.bytes = Segments::new(&self.budget);
                return bytes.len() - scanned;
            }
            bytes = &bytes[taken..];
        }
        0
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.scanner.refuse(refusal);
        self.bytes = Segments::new(&self.budget);
    }

    /// The end mark: what the message is, or `None` when it is blank. Ready for the next one afterwards.
    pub(crate) fn finish(&mut self) -> Option<Received> {
        self.end(None)
    }

    /// The input ended without an end mark: a whole message is delivered, any other reported as `incomplete`.
    pub(crate) fn finish_at_end_of_input(&mut self) -> Option<Received> {
        self.end(Some(Reason::Truncated))
    }

    fn end(&mut self, incomplete: Option<Reason>) -> Option<Received> {
        let before = self.scanner.refused();
        let bytes = std::mem::replace(&mut self.bytes, Segments::new(&self.budget));
        let outcome = match self.scanner.finish() {
            Ok(Ended::Blank) => None,
            Ok(Ended::Whole) => Some(classify(&self.scanner, bytes, self.dialect)),
            Err(mut refusal) => {
                if refusal.reason == Reason::MessageBytes {
                    refusal.observed = Some(self.length);
                }
                if let (None, Some(reason)) = (before, incomplete) {
                    refusal.reason = reason;
                }
                Some(Err(refusal))
            }
        };
        let received = outcome.map(|outcome| match outcome {
            Ok(message) => Received::Message(message),
            Err(refusal) => Received::Refused(Refused::new(refusal, &mut self.scanner, self.dialect, self.length)),
        });
        self.reset();
        received
    }

    fn reset(&mut self) {
        self.scanner.reset();
        self.length = 0;
    }
}

/// Checks any one JSON text, chunk by chunk, with the limits that apply to messages.
///
/// ```
/// use plimsoll_core::{Bound, Budget, Document, Limits};
///
/// let budget = Budget::new(Bound::Unbounded);
/// let mut document = Document::new(&Limits::default(), &budget);
/// document.push(b"[1, {\"a\":");
/// document.push(b" null}]");
/// assert_eq!(document.finish().unwrap().values, 4);
/// ```
#[derive(Debug)]
pub struct Document {
    frame: Frame,
}

impl Document {
    /// A checker that stores what it must within `budget`.
    pub fn new(limits: &Limits, budget: &Budget) -> Self {
        // A document has no end to be found, so there is nothing to skip.
        let limits = limits.clone().with_skip_bytes(Bound::Unbounded);
        Self { frame: Frame::new(&limits, Dialect::Standard, Expect::Document, budget) }
    }

    /// More of the text.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frame.push(bytes, false);
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.frame.length()
    }

    /// The refusal, as soon as there is one; what comes after it changes nothing.
    pub fn refused(&self) -> Option<Refusal> {
        self.frame.scanner.refused()
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.frame.scanner.counts()
    }

    /// The text is complete: what it holds.
    ///
    /// # Errors
    ///
    /// The first refusal; an empty text is [`Reason::InvalidJson`].
    pub fn finish(mut self) -> Result<Counts, Refusal> {
        match self.frame.scanner.finish()? {
            Ended::Whole => Ok(self.frame.scanner.counts()),
            Ended::Blank => Err(Refusal::new(Reason::InvalidJson).at(self.frame.length())),
        }
    }
}
