//! `plimsoll check`: reads a capture, one message a line, and says of each what a peer would make of it.
//!
//! The input is read in pieces of 64 KiB and goes through the core's own deframer, so the verdicts are those of a live
//! connection and memory is bounded by the limits, whatever the input is. A refused message costs nothing but time, and
//! one that does not end within `skip_bytes` ends the reading, as it would end a connection.
//!
//! The exit code is 1 when a message was refused, else 0: noise is no refusal, and a reader that closes stdout early has
//! what it wanted. Input that cannot be read is 125.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use plimsoll_core::{Budget, Dialect, Document, Limits, Line, LineDeframer, Printable, Received, Refusal, Refused};

use crate::failure::{Failure, note};
use crate::limit_flags::LimitFlags;
use crate::progress::Progress;
use crate::row::{Row, RowId, Verdict, write_heading};
use crate::summary::Summary;

/// Say of each message of a capture whether it is within the limits.
///
/// Reads one message a line and prints for each: line, bytes, verdict (ok, noise or refused), kind, id, method, values,
/// depth and reason; then a summary. Exits with 1 if a message was refused, 0 if none was, 125 if the input could not be
/// read. Noise is text that is no JSON-RPC, such as a log line.
#[derive(Debug, Args)]
#[command(after_help = "A limit is a number (sizes take KiB, MiB or GiB after it, durations ms, s or m) or `off`. \
                        Limits of a connection and its processes change nothing here.")]
pub(crate) struct CheckArguments {
    /// The capture; `-` is stdin
    file: PathBuf,

    /// Print one JSON object a message, and the summary on stderr
    #[arg(long)]
    json: bool,

    /// The limits to begin with; `exec` also has the exec-server's dialect, without `jsonrpc`
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Profile::Default)]
    profile: Profile,

    /// Take the whole input as one JSON text, of any kind
    #[arg(long)]
    document: bool,

    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    Default,
    Mcp,
    Lsp,
    Exec,
    Network,
}

impl Profile {
    fn limits(self) -> Limits {
        match self {
            Self::Default => Limits::default(),
            Self::Mcp => Limits::mcp(),
            Self::Lsp => Limits::lsp(),
            Self::Exec => Limits::exec(),
            Self::Network => Limits::network(),
        }
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::Exec => Dialect::Bare,
            Self::Default | Self::Mcp | Self::Lsp | Self::Network => Dialect::Standard,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// When the input cannot be read, or stdout cannot be written for another reason than that its reader left.
pub(crate) fn run(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let mut limits = arguments.profile.limits();
    arguments.limits.apply(&mut limits).map_err(|error| Failure::ours(error.to_string()))?;
    limits.clamp().iter().for_each(note);

    let mut input = Input::open(&arguments.file)?;
    let out = BufWriter::with_capacity(PIECE_BYTES, input.progress.beside(io::stdout()));
    let mut report = Report { out, json: arguments.json, heading_due: !arguments.json, summary: Summary::default() };
    let checked = if arguments.document {
        check_document(&limits, &mut input, &mut report)
    } else {
        check_lines(&limits, arguments.profile.dialect(), &mut input, &mut report)
    };
    input.progress.end();

    match checked.and_then(|overrun| report.finish(overrun, &input.name)) {
        Ok(()) => Ok(report.exit_code()),
        Err(Stopped::Reading(error)) => {
            // What was found before stands.
            let _ = report.out.flush();
            Err(Failure::ours(format!("cannot read {}: {error}", input.name)))
        }
        Err(Stopped::Writing(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(report.exit_code()),
        Err(Stopped::Writing(error)) => Err(Failure::ours(format!("cannot write to stdout: {error}"))),
    }
}

/// Why the work ended early.
enum Stopped {
    Reading(io::Error),
    Writing(io::Error),
}

/// A message that did not end, so that the rest of the input was not read.
struct Overrun {
    line: u64,
    limit: u64,
}

fn check_lines(
    limits: &Limits,
    dialect: Dialect,
    input: &mut Input,
    report: &mut Report<impl Write>,
) -> Result<Option<Overrun>, Stopped> {
    let budget = Budget::new(limits.memory()).child(limits.cap());
    let mut lines = LineDeframer::new(limits, dialect, &budget);
    loop {
        let mut rest = input.piece().map_err(Stopped::Reading)?;
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let (taken, line) = lines.push(rest);
            rest = rest.get(taken..).unwrap_or_default();
            match line {
                Some(Line::Received(received)) => report.received(lines.line(), &received)?,
                Some(Line::Overrun { refused, reason }) => {
                    // Its newline was not reached, so the line is the one after the last.
                    let line = lines.line() + 1;
                    return report.overrun(line, refused, reason).map(Some);
                }
                None => {}
            }
        }
        // Whoever reads a live capture sees a message when it has come.
        report.flush()?;
    }
    if let Some(received) = lines.finish() {
        report.received(lines.line() + 1, &received)?;
    }
    Ok(None)
}

fn check_document(
    limits: &Limits,
    input: &mut Input,
    report: &mut Report<impl Write>,
) -> Result<Option<Overrun>, Stopped> {
    let budget = Budget::new(limits.memory()).child(limits.cap());
    let mut document = Document::new(limits, &budget);
    let skip_bytes = limits.skip_bytes().ceiling();
    let mut bytes = 0_u64;
    loop {
        let piece = input.piece().map_err(Stopped::Reading)?;
        if piece.is_empty() {
            break;
        }
        bytes = bytes.saturating_add(piece.len() as u64);
        if document.refused().is_none() {
            document.push(piece);
        }
        // After a refusal only the length is still of interest.
        if document.refused().is_some() && bytes > skip_bytes {
            bytes = skip_bytes + 1;
            report.summary.cut_short();
            break;
        }
    }
    let counted = document.counts();
    let (verdict, counts, refusal) = match document.finish() {
        Ok(counts) => (Verdict::Ok, counts, None),
        Err(refusal) => (Verdict::Refused, counted, Some(refusal)),
    };
    report.row(&Row {
        line: 1,
        bytes,
        verdict,
        kind: None,
        id: RowId::Absent,
        method: None,
        values: counts.values,
        depth: counts.depth,
        refusal,
    })?;
    Ok(None)
}

/// Where the rows and the summary go.
struct Report<W> {
    out: W,
    json: bool,
    heading_due: bool,
    summary: Summary,
}

impl<W: Write> Report<W> {
    fn received(&mut self, line: u64, received: &Received) -> Result<(), Stopped> {
        match received {
            Received::Message(message) => self.row(&Row::accepted(line, message)),
            Received::Refused(refused) => self.row(&Row::refused(line, refused)),
        }
    }

    /// The reading ends in this message, so the reason for that stands before the one it was refused for.
    fn overrun(&mut self, line: u64, refused: Refused, reason: Refusal) -> Result<Overrun, Stopped> {
        self.summary.cut_short();
        self.row(&Row::refused(line, &Refused { refusal: reason, ..refused }))?;
        Ok(Overrun { line, limit: reason.limit.unwrap_or_default() })
    }

    fn row(&mut self, row: &Row<'_>) -> Result<(), Stopped> {
        self.summary.count(row);
        let written = if self.json {
            row.write_json(&mut self.out)
        } else if std::mem::take(&mut self.heading_due) {
            write_heading(&mut self.out).and_then(|()| row.write_table(&mut self.out))
        } else {
            row.write_table(&mut self.out)
        };
        written.map_err(Stopped::Writing)
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.out.flush().map_err(Stopped::Writing)
    }

    fn finish(&mut self, overrun: Option<Overrun>, name: &str) -> Result<(), Stopped> {
        if self.json {
            self.flush()?;
            let _ = self.summary.write(&mut io::stderr());
        } else {
            let apart = if self.heading_due { "" } else { "\n" };
            self.out.write_all(apart.as_bytes()).map_err(Stopped::Writing)?;
            self.summary.write(&mut self.out).map_err(Stopped::Writing)?;
            self.flush()?;
        }
        if let Some(Overrun { line, limit }) = overrun {
            note(format_args!(
                "{name}, line {line}: a refused message did not end within {limit} bytes (skip_bytes), so the rest of \
                 the input was not read; raise --skip-bytes to read on"
            ));
        }
        Ok(())
    }

    fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.summary.has_refused()))
    }
}

/// The capture, a piece at a time.
struct Input {
    source: Box<dyn Read>,
    // PIECE_BYTES long.
    buffer: Vec<u8>,
    name: String,
    progress: Progress,
}

const PIECE_BYTES: usize = 64 * 1024;

impl Input {
    fn open(path: &Path) -> Result<Self, Failure> {
        let buffer = vec![0; PIECE_BYTES];
        if path == Path::new("-") {
            let source = Box::new(io::stdin().lock());
            return Ok(Self { source, buffer, name: "stdin".into(), progress: Progress::new(None) });
        }
        let name = Printable::new(&path.to_string_lossy(), 200).to_string();
        let file = File::open(path).map_err(|error| Failure::ours(format!("cannot read {name}: {error}")))?;
        let length = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
        Ok(Self { source: Box::new(file), buffer, name, progress: Progress::new(length) })
    }

    /// The next bytes, as many as there are now; none at the end.
    fn piece(&mut self) -> io::Result<&[u8]> {
        let read = loop {
            match self.source.read(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.progress.advance(read);
        Ok(self.buffer.get(..read).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most seven bytes at a time, an interruption now and then, and an error at its end if it has one.
    struct Stuttering(&'static [u8], u32, Option<ErrorKind>);

    impl Read for Stuttering {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            if let (true, Some(kind)) = (self.0.is_empty(), self.2) {
                return Err(kind.into());
            }
            let (now, later) = self.0.split_at(self.0.len().min(7));
            buffer[..now.len()].copy_from_slice(now);
            self.0 = later;
            Ok(now.len())
        }
    }

    fn input(bytes: &'static [u8], error: Option<ErrorKind>) -> Input {
        let source = Box::new(Stuttering(bytes, 0, error));
        Input { source, buffer: vec![0; PIECE_BYTES], name: "test".into(), progress: Progress::new(None) }
    }

    fn report<W: Write>(out: W) -> Report<W> {
        Report { out, json: true, heading_due: false, summary: Summary::default() }
    }

    const CAPTURE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"a\"}\r\n\n{\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":0}";

    #[test]
    fn interrupted_and_short_reads_change_nothing() {
        let mut report = report(Vec::new());
        let checked = check_lines(&Limits::default(), Dialect::Standard, &mut input(CAPTURE, None), &mut report);
        assert!(matches!(checked, Ok(None)));
        let text = String::from_utf8(report.out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("{\"line\":1,\"bytes\":30,\"verdict\":\"ok\",\"kind\":\"notification\""),
            "{text}"
        );
        assert!(lines[1].starts_with("{\"line\":3,\"bytes\":37,\"verdict\":\"ok\",\"kind\":\"response\",\"id\":1.0,"));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn an_error_in_the_middle_ends_the_reading_after_what_came_before() {
        let mut report = report(Vec::new());
        let mut input = input(CAPTURE, Some(ErrorKind::TimedOut));
        let checked = check_lines(&Limits::default(), Dialect::Standard, &mut input, &mut report);
        assert!(matches!(checked, Err(Stopped::Reading(error)) if error.kind() == ErrorKind::TimedOut));
        assert_eq!(String::from_utf8(report.out).unwrap().lines().count(), 1, "the second message had not ended");
    }
}
