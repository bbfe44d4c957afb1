//! How a command ends that could not do its work: one line on stderr, one exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_core::Printable;

/// Why a command failed, and the code it exits with.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    /// The exit code of a failure of Plimsoll's own, apart from those of the programs that it runs.
    pub(crate) const OURS: u8 = 125;

    /// A failure of Plimsoll's own, such as input that cannot be read.
    pub(crate) fn ours(sentence: impl Into<String>) -> Self {
        Self { code: Self::OURS, sentence: sentence.into() }
    }

    /// The command to be run is not there.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self { code: 127, sentence: sentence.into() }
    }

    /// The command to be run may not be.
    pub(crate) fn not_executable(sentence: impl Into<String>) -> Self {
        Self { code: 126, sentence: sentence.into() }
    }

    /// Says so on stderr.
    pub(crate) fn tell(self) -> ExitCode {
        note(&self.sentence);
        ExitCode::from(self.code)
    }
}

/// One line on stderr; control characters are escaped, a line break too.
pub(crate) fn note(sentence: impl fmt::Display) {
    const LONGEST: usize = 1000;
    let sentence = sentence.to_string();
    // When stderr is closed, nobody is left to be told.
    let _ = writeln!(io::stderr(), "plimsoll: {}", Printable::new(&sentence, LONGEST));
}
