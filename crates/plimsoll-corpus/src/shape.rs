//! One attack: its row in the table, its text at any size, and what is right.

use std::sync::LazyLock;

use crate::envelope::{Dialect, Envelope, IdPlacement};
use crate::expect::{Expect, Facts, Kind, Reason};
use crate::generator::Generator;
use crate::rows;

/// Every shape, by row and then by variant. Names are distinct and stable.
pub fn shapes() -> &'static [Shape] {
    static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
        let mut all = [
            rows::structure::SHAPES,
            rows::keys::SHAPES,
            rows::numbers::SHAPES,
            rows::strings::SHAPES,
            rows::messages::SHAPES,
            rows::streams::SHAPES,
        ]
        .concat();
        all.sort_by_key(|shape| shape.number);
        all
    });
    &SHAPES
}

/// Every proper prefix of a good message, the shortest first: row 21. Each is a message that its peer did not finish.
pub fn truncations() -> impl Iterator<Item = &'static [u8]> {
    let message = rows::messages::GOOD.as_bytes();
    (1..message.len()).map(move |end| &message[..end])
}

/// What kind of text a shape is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Bytes for a Content-Length stream, headers included.
    Headers,
    /// Many messages, each ended by a line feed.
    Lines,
    /// One whole message without a line ending, good or not. It has no line feed inside.
    Message,
    /// A JSON value, or what is sent in place of one, to be put into an envelope. It has no line feed inside.
    Value,
}

/// One shape of the corpus.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    number: u8,
    name: &'static str,
    form: Form,
    right: &'static str,
    /// None: the text is the same for every size.
    default_bytes: Option<usize>,
    source: Source,
}

impl Shape {
    /// The row of the table of attacks, 1 to 28.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The stable name, in camel case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What kind of text it is.
    pub fn form(&self) -> Form {
        self.form
    }

    /// What is right, in words.
    pub fn right(&self) -> &'static str {
        self.right
    }

    /// Whether the text grows with the size that is asked for.
    pub fn is_sized(&self) -> bool {
        self.default_bytes.is_some()
    }

    /// The size to ask for when there is no other wish; for a shape of one size, that size.
    pub fn default_bytes(&self) -> usize {
        self.default_bytes.unwrap_or_else(|| self.build(0).text.remaining_bytes() as usize)
    }

    /// The text of the shape alone. A sized shape is exactly `size_bytes` long (what is left over is white space at
    /// its end), unless its smallest instance is longer.
    pub fn text(&self, size_bytes: usize) -> Generator {
        self.build(size_bytes).text
    }

    /// The text as it is sent: a [`Form::Value`] of `size_bytes` in the envelope, any other form by itself.
    pub fn message(&self, dialect: Dialect, envelope: Envelope, size_bytes: usize) -> Generator {
        match self.form {
            Form::Value => envelope.wrap(dialect, self.text(size_bytes)),
            Form::Headers | Form::Lines | Form::Message => self.text(size_bytes),
        }
    }

    /// What is right for [`Shape::message`] as a [`Dialect::Standard`] request whose id comes first, at default limits.
    pub fn expect(&self, size_bytes: usize) -> Expect {
        self.expect_in(Dialect::Standard, Envelope::Request(IdPlacement::First), size_bytes)
    }

    /// What is right for [`Shape::message`] with these arguments, at default limits.
    pub fn expect_in(&self, dialect: Dialect, envelope: Envelope, size_bytes: usize) -> Expect {
        let Facts { values, depth, kind } = self.build(size_bytes).facts;
        let bytes = self.message(dialect, envelope, size_bytes).remaining_bytes();
        let kind = match (dialect, kind) {
            (Dialect::Bare, Kind::Fault(Reason::JsonrpcVersion)) => Kind::Plain,
            _ => kind,
        };
        match self.form {
            Form::Value => Facts { values: values + envelope.values(dialect), depth: depth + 1, kind },
            Form::Headers | Form::Lines | Form::Message => Facts { values, depth, kind },
        }
        .expect(bytes)
    }

    /// The text and what it is made of.
    pub(crate) fn build(&self, size_bytes: usize) -> Built {
        match self.source {
            Source::Literal(text, kind) => {
                Built { text: Generator::default().text(text), facts: Facts { kind, ..Facts::default() } }
            }
            Source::Made(build) => build(size_bytes),
        }
    }

    /// A shape of 4 MiB unless another size is asked for.
    pub(crate) const fn sized(
        number: u8,
        name: &'static str,
        form: Form,
        right: &'static str,
        build: fn(usize) -> Built,
    ) -> Self {
        Shape { number, name, form, right, default_bytes: Some(4 * 1024 * 1024), source: Source::Made(build) }
    }

    /// A shape of one size, made.
    pub(crate) const fn fixed(
        number: u8,
        name: &'static str,
        form: Form,
        right: &'static str,
        build: fn(usize) -> Built,
    ) -> Self {
        Shape { number, name, form, right, default_bytes: None, source: Source::Made(build) }
    }

    /// A shape that is one short text, far below every limit of count.
    pub(crate) const fn literal(
        number: u8,
        name: &'static str,
        form: Form,
        right: &'static str,
        text: &'static [u8],
        kind: Kind,
    ) -> Self {
        Shape { number, name, form, right, default_bytes: None, source: Source::Literal(text, kind) }
    }

    /// The same with another size by default.
    pub(crate) const fn by_default(mut self, bytes: usize) -> Self {
        self.default_bytes = Some(bytes);
        self
    }
}

/// Where the text comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Literal(&'static [u8], Kind),
    Made(fn(usize) -> Built),
}

/// A text and what it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) text: Generator,
    pub(crate) facts: Facts,
}
