//! How far a long read has come, on stderr: only when stderr is a terminal and the length is known.
//!
//! The bar shares the terminal with what is printed on stdout, so everything for stdout goes through
//! [`Progress::beside`], which takes the bar away while it writes.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar in bytes, or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    // When the bar appears, if it is to: a short read shows none.
    due: Option<Instant>,
}

const QUIET: Duration = Duration::from_millis(300);

impl Progress {
    /// For `length` bytes to be read; unknown means no bar.
    pub(crate) fn new(length: Option<u64>) -> Self {
        let length = length.filter(|_| io::stderr().is_terminal());
        let style = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden()).with_style(style);
        Self { bar, due: length.map(|_| Instant::now() + QUIET) }
    }

    /// This many bytes more were read.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.bar.inc(bytes as u64);
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.due = None;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Takes the bar away for good.
    pub(crate) fn end(&mut self) {
        self.due = None;
        self.bar.finish_and_clear();
    }

    /// `out`, written to beside the bar and not across it.
    pub(crate) fn beside<W: Write>(&self, out: W) -> Beside<W> {
        Beside { out, bar: self.bar.clone() }
    }
}

/// See [`Progress::beside`]. It belongs under a buffer: each write redraws the bar.
#[derive(Debug)]
pub(crate) struct Beside<W> {
    out: W,
    bar: ProgressBar,
}

impl<W: Write> Write for Beside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bar.suspend(|| self.out.flush())
    }
}
