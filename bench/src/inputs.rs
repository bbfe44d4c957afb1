//! The rows: one message each, and the limits it is read with.
//!
//! The messages are those of the corpus. They are read as lines, so line feeds inside one are made spaces, for every
//! column alike.

use plimsoll_core::{Bound, Dialect, Kind, Limits, Reason, frame_line};
use plimsoll_corpus::bench_rows;

use crate::decoders::Outcome;

/// One row of a table.
#[derive(Debug)]
pub struct Input {
    /// What the row is called.
    pub name: String,
    /// What ours must make of it.
    pub expected: Outcome,
    /// The limits that ours reads with.
    pub limits: Limits,
    /// The dialect that ours reads.
    pub dialect: Dialect,
    line: Vec<u8>,
}

impl Input {
    /// The message with the newline that ends it.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The message alone.
    pub fn message(&self) -> &[u8] {
        &self.line[..self.line.len() - 1]
    }
}

/// Every row, in the order of the corpus. All limits are at their defaults, but for the one message that they refuse:
/// it stands here twice, once as it is refused and once with that limit off.
pub fn inputs() -> Vec<Input> {
    let mut rows = Vec::new();
    for row in bench_rows() {
        let mut line = row.message;
        frame_line(&mut line);
        let refused_by_default = row.name == "flatZeroes";
        // That message bears no `jsonrpc`.
        let dialect = if refused_by_default { Dialect::Bare } else { Dialect::Standard };
        let is_response = matches!(row.name, "smallResponse" | "toolsList" | "base64" | "walkReply");
        let is_notification = matches!(row.name, "flatZeroes" | "cjkText" | "escapes" | "prettyPrinted");
        let kind = match (is_response, is_notification) {
            (true, _) => Kind::Response,
            (_, true) => Kind::Notification,
            _ => Kind::Request,
        };
        let mut limits = Limits::default();
        if refused_by_default {
            rows.push(Input {
                name: format!("{}, refused by default", row.name),
                expected: Outcome::Refused(Reason::JsonValues),
                limits: limits.clone(),
                dialect,
                line: line.clone(),
            });
            limits = limits.with_json_values(Bound::Unbounded);
        }
        let name = if refused_by_default { format!("{}, limit off", row.name) } else { row.name.to_string() };
        rows.push(Input { name, expected: Outcome::Message(kind), limits, dialect, line });
    }
    rows
}
