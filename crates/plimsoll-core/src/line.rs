//! Messages as lines: split on 0x0A and nothing else.
//!
//! A carriage return before the newline is not part of the message. Blank lines are skipped, and so is a UTF-8 byte
//! order mark at the start of the stream. U+2028, U+2029, U+0085, vertical tab, form feed and a lone carriage return end
//! nothing. The limit is a message's own, whatever buffers its bytes came in; a message of exactly the limit is
//! delivered. At the end of the input a whole message is delivered without its newline.

use memchr::memchr;

use crate::budget::Budget;
use crate::frame::{Frame, Received};
use crate::limits::Limits;
use crate::message::{Dialect, Refused};
use crate::reason::{Reason, Refusal};
use crate::scan::Expect;

/// What [`LineDeframer::push`] found.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the usual one is the large one, and it is moved once")]
pub enum Line {
    /// A line ended.
    Received(Received),
    /// A refused message did not end within `skip_bytes`: answer it and close the connection.
    Overrun {
        /// The message, as far as it was followed.
        refused: Refused,
        /// [`Reason::SkipBytes`], with its numbers.
        reason: Refusal,
    },
}

/// Makes messages of a stream of bytes. It may be stopped at every byte: what it needs it has stored.
///
/// ```
/// use plimsoll_core::{Bound, Budget, Dialect, Kind, Limits, Line, LineDeframer, Received};
///
/// let budget = Budget::new(Bound::at_most(1 << 20));
/// let mut lines = LineDeframer::new(&Limits::default(), Dialect::Standard, &budget);
/// let chunk = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\"json";
/// let (taken, line) = lines.push(chunk);
/// let Some(Line::Received(Received::Message(message))) = line else { panic!() };
/// assert_eq!(message.kind(), Kind::Request);
/// assert_eq!(&chunk[taken..], b"{\"json");
/// ```
#[derive(Debug)]
pub struct LineDeframer {
    frame: Frame,
    // The last byte was a carriage return, which belongs to the message only if no newline follows.
    carriage_return: bool,
    // Bytes of the mark seen at the start of the stream; its length when that is over.
    mark: usize,
    // Newlines taken so far.
    newlines: u64,
    overrun: bool,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

impl LineDeframer {
    /// A deframer that stores what arrives within `budget`, a connection's leaf.
    pub fn new(limits: &Limits, dialect: Dialect, budget: &Budget) -> Self {
        Self {
            frame: Frame::new(limits, dialect, Expect::Message, budget),
            carriage_return: false,
            mark: 0,
            newlines: 0,
            overrun: false,
        }
    }

    /// Takes bytes up to the end of the first line that is not blank, or all of them. Returns how many were taken;
    /// call it again with the rest.
    pub fn push(&mut self, chunk: &[u8]) -> (usize, Option<Line>) {
        let mut at = 0;
        while self.mark < MARK.len() && at < chunk.len() {
            if chunk[at] != MARK[self.mark] {
                // It was no mark, so its bytes are the message's.
                let seen = std::mem::replace(&mut self.mark, MARK.len());
                self.frame.push(&MARK[..seen], false);
                break;
            }
            self.mark += 1;
            at += 1;
        }
        while at < chunk.len() && !self.overrun {
            let rest = &chunk[at..];
            let end = memchr(b'\n', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            self.content(piece, end.is_some());
            at += piece.len();
            if self.frame.is_overrun() {
                self.overrun = true;
                return (chunk.len(), self.overrun_now());
            }
            if end.is_some() {
                at += 1;
                self.newlines += 1;
                self.carriage_return = false;
                if let Some(received) = self.frame.finish() {
                    return (at, Some(Line::Received(received)));
                }
            }
        }
        (chunk.len().max(at), None)
    }

    /// Bytes of a line, without its newline; `last` says that the newline follows.
    fn content(&mut self, piece: &[u8], last: bool) {
        let Some((&final_byte, before)) = piece.split_last() else { return };
        let fresh = self.frame.length() == 0 && !self.carriage_return;
        if std::mem::replace(&mut self.carriage_return, final_byte == b'\r') {
            self.frame.push(b"\r", false);
        }
        let content = if final_byte == b'\r' { before } else { piece };
        self.frame.push(content, last && fresh);
    }

    fn overrun_now(&mut self) -> Option<Line> {
        let reason = Refusal::over(Reason::SkipBytes, self.frame.skip_bytes(), self.frame.length());
        match self.frame.finish_at_end_of_input() {
            Some(Received::Refused(refused)) => Some(Line::Overrun { refused, reason }),
            _ => None,
        }
    }

    /// The input has ended: the message that had no newline, whole or truncated, if there is one.
    pub fn finish(&mut self) -> Option<Received> {
        if self.overrun {
            return None;
        }
        let seen = std::mem::replace(&mut self.mark, MARK.len());
        if (1..MARK.len()).contains(&seen) {
            self.frame.push(&MARK[..seen], false);
        }
        self.carriage_return = false;
        self.frame.finish_at_end_of_input()
    }

    /// The number of the last line that [`push`](Self::push) returned, from 1. Blank lines count.
    pub fn line(&self) -> u64 {
        self.newlines
    }

    /// Whether part of a message has arrived.
    pub fn is_partial(&self) -> bool {
        !self.frame.is_blank()
    }
}

/// Makes a line of a message: no newline within, one at the end.
///
/// A newline within JSON text can only be white space between tokens; it becomes a space.
pub fn frame_line(message: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(found) = message.get(at..).and_then(|rest| memchr(b'\n', rest)) {
        message[at + found] = b' ';
        at += found + 1;
    }
    message.push(b'\n');
}
