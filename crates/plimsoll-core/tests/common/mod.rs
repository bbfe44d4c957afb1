//! What the suites share: the deframer fed in pieces, and the outcome asked for by one word.

#![allow(dead_code, reason = "every suite uses a part of it")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a surprise must end the test")]

use plimsoll_core::{Bound, Budget, Dialect, Limits, Line, LineDeframer, Message, Received, Refused};

/// Everything that the lines in `pieces` turned out to be, the one without a newline included.
pub fn lines<'a>(
    limits: &Limits,
    dialect: Dialect,
    budget: &Budget,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Line> {
    let mut deframer = LineDeframer::new(limits, dialect, budget);
    let mut found = Vec::new();
    for piece in pieces {
        push(&mut deframer, piece, |line| found.push(line));
    }
    found.extend(deframer.finish().map(Line::Received));
    found
}

/// Feeds all of `piece`.
pub fn push(deframer: &mut LineDeframer, mut piece: &[u8], mut each: impl FnMut(Line)) {
    while !piece.is_empty() {
        let (taken, line) = deframer.push(piece);
        assert!(taken > 0, "a push that takes nothing would be repeated for ever");
        piece = &piece[taken..];
        if let Some(line) = line {
            each(line);
        }
    }
}

/// The one thing that `text` is, in pieces of `size`, at these limits, with room enough.
pub fn one(text: &[u8], size: usize, limits: &Limits, dialect: Dialect) -> Received {
    let budget = Budget::new(Bound::Unbounded);
    let mut found = lines(limits, dialect, &budget, text.chunks(size));
    assert_eq!(found.len(), 1, "one line is one thing");
    match found.pop() {
        Some(Line::Received(received)) => received,
        other => panic!("{other:?}"),
    }
}

pub fn accepted(received: Received) -> Message {
    match received {
        Received::Message(message) => message,
        Received::Refused(refused) => panic!("refused: {}", refused.refusal),
    }
}

pub fn refused(received: Received) -> Refused {
    match received {
        Received::Refused(refused) => refused,
        Received::Message(message) => panic!("accepted as a {:?}", message.kind()),
    }
}

pub fn as_message(line: Line) -> Message {
    match line {
        Line::Received(received) => accepted(received),
        Line::Overrun { reason, .. } => panic!("overrun: {reason}"),
    }
}

pub fn as_refused(line: Line) -> Refused {
    match line {
        Line::Received(received) => refused(received),
        Line::Overrun { reason, .. } => panic!("overrun: {reason}"),
    }
}

/// The chunk sizes that everything is tried at: whole, what a pipe gives, an odd one, and a byte at a time.
pub const CHUNKS: [usize; 4] = [usize::MAX, 8 * 1024, 97, 1];
