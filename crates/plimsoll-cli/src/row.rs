//! What `check` prints for one message: a row of a table for people, or one JSON object a line.
//!
//! Ids and methods are a peer's text. In the table they are escaped and cut; in JSON they are whole, and characters that
//! a terminal would obey or hide are written as `\u` escapes, which mean the same to a JSON parser.

use std::borrow::Cow;
use std::io::{self, Write};

use plimsoll_core::{Class, Id, Kind, Message, Printable, Reason, Refusal, Refused, SeenId};

/// What `check` says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A message within every limit.
    Ok,
    /// No JSON-RPC at all, such as a log line among the messages.
    Noise,
    /// A message that is malformed or over a limit.
    Refused,
}

impl Verdict {
    /// A batch is refused, not noise: it is JSON-RPC, and its requests go unanswered.
    fn of(refusal: &Refusal) -> Self {
        if refusal.reason.class() == Class::Noise && refusal.reason != Reason::Batch {
            Self::Noise
        } else {
            Self::Refused
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Noise => "noise",
            Self::Refused => "refused",
        }
    }
}

/// The id of a message, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowId<'a> {
    Absent,
    Readable(&'a Id),
    Unreadable,
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) line: u64,
    pub(crate) bytes: u64,
    pub(crate) verdict: Verdict,
    pub(crate) kind: Option<Kind>,
    pub(crate) id: RowId<'a>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) values: u64,
    pub(crate) depth: u64,
    pub(crate) refusal: Option<Refusal>,
}

impl<'a> Row<'a> {
    /// The row of an accepted message.
    pub(crate) fn accepted(line: u64, message: &'a Message) -> Self {
        Self {
            line,
            bytes: message.wire_bytes(),
            verdict: Verdict::Ok,
            kind: Some(message.kind()),
            id: message.id().map_or(RowId::Absent, RowId::Readable),
            method: message.method(),
            values: message.counts().values,
            depth: message.counts().depth,
            refusal: None,
        }
    }

    /// The row of a message that was not accepted.
    pub(crate) fn refused(line: u64, refused: &'a Refused) -> Self {
        Self {
            line,
            bytes: refused.wire_bytes,
            verdict: Verdict::of(&refused.refusal),
            kind: refused.kind(),
            id: match &refused.id {
                SeenId::Absent => RowId::Absent,
                SeenId::Readable(id) => RowId::Readable(id),
                SeenId::Unreadable => RowId::Unreadable,
            },
            method: None,
            values: refused.counts.values,
            depth: refused.counts.depth,
            refusal: Some(refused.refusal),
        }
    }

    /// The row as one of the table, at most 100 columns wide unless a number outgrows its own.
    pub(crate) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { line, bytes, values, depth, .. } = self;
        let verdict = self.verdict.word();
        let kind = self.kind.map_or("-", Kind::word);
        let id = match self.id {
            RowId::Absent => "-".into(),
            RowId::Readable(id) => cell(id.as_json(), 10),
            RowId::Unreadable => "unreadable".into(),
        };
        write!(out, "{line:>6} {bytes:>9}  {verdict:<7} {kind:<12} {id:<10} {values:>6} {depth:>5}  ")?;
        // An accepted message has no reason, so its method may take the room of both columns.
        let method = |width| self.method.as_deref().map_or("-".into(), |method| cell(method, width));
        match &self.refusal {
            Some(refusal) => writeln!(out, "{:<18} {}", method(18), refusal.reason),
            None => writeln!(out, "{}", method(36)),
        }
    }

    /// The row as one JSON object and a newline.
    pub(crate) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { line, bytes, values, depth, .. } = self;
        write!(out, "{{\"line\":{line},\"bytes\":{bytes},\"verdict\":\"{}\",\"kind\":", self.verdict.word())?;
        write_word(out, self.kind.map(Kind::word))?;
        out.write_all(b",\"id\":")?;
        match self.id {
            RowId::Readable(id) => write_spelling(out, id.as_json())?,
            RowId::Absent | RowId::Unreadable => out.write_all(b"null")?,
        }
        out.write_all(b",\"method\":")?;
        match &self.method {
            Some(method) => write_string(out, method)?,
            None => out.write_all(b"null")?,
        }
        write!(out, ",\"values\":{values},\"depth\":{depth},\"reason\":")?;
        write_word(out, self.refusal.map(|refusal| refusal.reason.word()))?;
        for (key, number) in
            [("limit", self.refusal.and_then(|r| r.limit)), ("observed", self.refusal.and_then(|r| r.observed))]
        {
            match number {
                Some(number) => write!(out, ",\"{key}\":{number}")?,
                None => write!(out, ",\"{key}\":null")?,
            }
        }
        out.write_all(b"}\n")
    }
}

/// The names over the table.
pub(crate) fn write_heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>6} {:>9}  {:<7} {:<12} {:<10} {:>6} {:>5}  {:<18} reason",
        "line", "bytes", "verdict", "kind", "id", "values", "depth", "method"
    )
}

/// A peer's text in at most `width` characters, safe for a terminal.
fn cell(text: &str, width: usize) -> String {
    const CUT: &str = "...";
    let shown = Printable::new(text, width).to_string();
    // What is cut shows it, and an escape may have made more of few characters.
    if shown.chars().count() <= width {
        return shown;
    }
    shown.chars().take(width - CUT.len()).chain(CUT.chars()).collect()
}

/// One of our own words, which need no escapes.
fn write_word(out: &mut impl Write, word: Option<&str>) -> io::Result<()> {
    match word {
        Some(word) => write!(out, "\"{word}\""),
        None => out.write_all(b"null"),
    }
}

fn write_string(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.write_all(b"\\")?;
        }
        write_character(out, character)?;
    }
    out.write_all(b"\"")
}

/// JSON text of one string or number as it was sent, for it is valid; only what a terminal would obey is escaped.
fn write_spelling(out: &mut impl Write, json: &str) -> io::Result<()> {
    json.chars().try_for_each(|character| write_character(out, character))
}

fn write_character(out: &mut impl Write, character: char) -> io::Result<()> {
    if shows_as_itself(character) {
        return out.write_all(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
}

fn shows_as_itself(character: char) -> bool {
    let mut place = [0; 4];
    let text = &*character.encode_utf8(&mut place);
    // What is safe is the core's to say.
    matches!(character, ' '..='~') || Printable::new(text, 1).to_string() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(id: RowId<'a>, method: Option<&'a str>, refusal: Option<Refusal>) -> Row<'a> {
        let verdict = refusal.as_ref().map_or(Verdict::Ok, Verdict::of);
        let method = method.map(Cow::Borrowed);
        Row { line: 3, bytes: 16_777_216, verdict, kind: None, id, method, values: 262_144, depth: 127, refusal }
    }

    fn table(row: &Row<'_>) -> String {
        let mut out = Vec::new();
        row.write_table(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json(row: &Row<'_>) -> String {
        let mut out = Vec::new();
        row.write_json(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_cell_is_never_wider_than_its_column() {
        assert_eq!(cell("tools/call", 10), "tools/call");
        assert_eq!(cell("tools/calls", 10), "tools/c...");
        assert_eq!(cell("\u{1b}[2J", 10), "\\u{1b}[2J");
        assert_eq!(cell("\u{1b}]0;x\u{7}", 10), "\\u{1b}]...");
        assert_eq!(cell("", 10), "");
    }

    #[test]
    fn no_row_is_wider_than_100_columns() {
        let mut heading = Vec::new();
        write_heading(&mut heading).unwrap();
        assert!(heading.len() <= 101);
        for (_, word, ..) in Reason::TABLE {
            let reason = Reason::TABLE.iter().find(|row| row.1 == *word).unwrap().0;
            let row = row(RowId::Unreadable, None, Some(Refusal::new(reason)));
            assert!(table(&row).chars().count() <= 101, "{word}");
        }
        let long = "m".repeat(2000);
        assert!(table(&row(RowId::Absent, Some(&long), None)).chars().count() <= 101);
    }

    #[test]
    fn json_has_exactly_its_keys_in_order_and_null_where_there_is_nothing() {
        let row = row(RowId::Absent, None, None);
        assert_eq!(
            json(&row),
            "{\"line\":3,\"bytes\":16777216,\"verdict\":\"ok\",\"kind\":null,\"id\":null,\"method\":null,\
             \"values\":262144,\"depth\":127,\"reason\":null,\"limit\":null,\"observed\":null}\n"
        );
    }

    #[test]
    fn json_says_the_same_text_whatever_the_text_does_to_a_terminal() {
        let method = "\"q\\\u{1b}[31m\u{9b}\u{202e}\u{7f}é漢😀\u{feff}";
        let text = json(&row(RowId::Absent, Some(method), None));
        assert!(text.trim_end().chars().all(shows_as_itself), "{text}");
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["method"], method);
        assert!(text.contains("é漢😀"), "what is harmless stays readable: {text}");
    }

    #[test]
    fn a_batch_is_refused_and_other_noise_is_not() {
        assert_eq!(Verdict::of(&Refusal::new(Reason::Batch)), Verdict::Refused);
        assert_eq!(Verdict::of(&Refusal::new(Reason::NotAnObject)), Verdict::Noise);
        assert_eq!(Verdict::of(&Refusal::new(Reason::NotJsonRpc)), Verdict::Noise);
        assert_eq!(Verdict::of(&Refusal::new(Reason::InvalidJson)), Verdict::Refused);
    }
}
