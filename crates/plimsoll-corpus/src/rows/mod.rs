//! The rows of the table of attacks, by what they attack, and what they are built with.
//!
//! | file | rows |
//! |---|---|
//! | `structure.rs` | 1 to 7: many values, deep values |
//! | `keys.rs` | 8 to 13: member names, and what is as long as one likes |
//! | `numbers.rs` | 14 to 16 |
//! | `strings.rs` | 17 to 20: surrogates, UTF-8, white space, escapes |
//! | `messages.rs` | 21, 23 to 26: whole messages |
//! | `streams.rs` | 22, 27, 28: headers, slow peers, crowds |
//!
//! Each row says by itself how many values and how much depth it has, from the numbers that it is built of; the tests
//! of the crate count them in the text.

pub(crate) mod keys;
pub(crate) mod messages;
pub(crate) mod numbers;
pub(crate) mod streams;
pub(crate) mod strings;
pub(crate) mod structure;

pub use messages::ECHO_MARKER;

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use crate::expect::{Facts, Kind, Reason};
use crate::generator::{Generator, WriteUnit, counted_that_fit};
use crate::shape::Built;

/// A text of one size.
fn fixed(text: impl Into<Cow<'static, [u8]>>, values: u64, depth: u64) -> Built {
    Built { text: Generator::default().text(text), facts: Facts { values, depth, kind: Kind::Plain } }
}

/// `[unit,unit,...]`; the unit alone has `values` and `depth`.
fn array(size: usize, unit: impl Into<Cow<'static, [u8]>>, values: u64, depth: u64) -> Built {
    let unit = unit.into();
    let units = ((size.saturating_sub(2) + 1) / (unit.len() + 1)).max(1);
    let next = [b",", unit.as_ref()].concat();
    let text = Generator::default().text(&b"["[..]).text(unit).repeat(next, units - 1).text(&b"]"[..]);
    let facts = Facts { values: 1 + units as u64 * values, depth: 1 + depth, kind: Kind::Plain };
    Built { text, facts }.padded(size)
}

/// `["unitunit..."]`: one string, as long as the size allows in whole units.
fn string(size: usize, unit: impl Into<Cow<'static, [u8]>>) -> Built {
    let unit = unit.into();
    let units = size.saturating_sub(r#"[""]"#.len()) / unit.len();
    let text = Generator::default().text(&br#"[""#[..]).repeat(unit, units).text(&br#""]"#[..]);
    Built { text, facts: Facts { values: 2, depth: 1, kind: Kind::Plain } }.padded(size)
}

/// `{member,member,...}`: each member is written from its index and has one scalar as its value.
fn object(size: usize, write: WriteUnit) -> Built {
    let members = counted_that_fit(size.saturating_sub(2), ",", write);
    let text = Generator::default().text(&b"{"[..]).counted(members, ",", write).text(&b"}"[..]);
    Built { text, facts: Facts { values: 1 + members as u64, depth: 1, kind: Kind::Plain } }.padded(size)
}

/// What `inner` gives for the room that is left between `head` and `tail`. These two open and close one container and
/// have `values` values, that container included.
fn within(head: &'static str, tail: &'static str, values: u64, size: usize, inner: fn(usize) -> Built) -> Built {
    let Built { text, facts } = inner(size.saturating_sub(head.len() + tail.len()));
    let text = Generator::default().text(head.as_bytes()).then(text).text(tail.as_bytes());
    Built { text, facts: Facts { values: values + facts.values, depth: 1 + facts.depth, kind: facts.kind } }
}

impl Built {
    /// Adds white space at the end, up to `size`.
    fn padded(mut self, size: usize) -> Self {
        let left = (size as u64).saturating_sub(self.text.remaining_bytes());
        self.text = self.text.repeat(&b" "[..], left as usize);
        self
    }

    fn fault(self, reason: Reason) -> Self {
        self.kind(Kind::Fault(reason))
    }

    /// A fault that is there only in an instance that is large enough.
    fn fault_if(self, is_over: bool, reason: Reason) -> Self {
        if is_over { self.fault(reason) } else { self }
    }

    fn kind(mut self, kind: Kind) -> Self {
        self.facts.kind = kind;
        self
    }
}

/// Writes at the end of a unit.
fn push(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // A vector takes every write.
    let _ = out.write_fmt(text);
}
