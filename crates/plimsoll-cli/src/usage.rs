//! What is said to a command line that cannot be understood: one line, exit code 125. Help and the version go to stdout.

use std::process::ExitCode;

use crate::failure::Failure;

/// Prints what clap has to say, and gives the exit code for it.
pub(crate) fn tell(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        return Failure::ours(one_line(&error.render().to_string())).tell();
    }
    // A reader that left has seen enough of the help.
    let _ = error.print();
    ExitCode::SUCCESS
}

/// Clap's message without its paragraphs: what is wrong, and what was probably meant.
fn one_line(message: &str) -> String {
    let mut paragraphs = message.split("\n\n");
    let wrong = paragraphs.next().unwrap_or_default();
    let wrong = wrong.strip_prefix("error: ").unwrap_or(wrong);
    let mut line = wrong.split_whitespace().collect::<Vec<_>>().join(" ");
    for tip in message.lines().filter_map(|line| line.trim().strip_prefix("tip: a similar")) {
        line.push_str("; a similar");
        line.push_str(tip);
    }
    line + "; --help shows what is taken"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_paragraphs_becomes_one_line_with_the_tip_that_helps() {
        let message = "error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\n\
                       Usage: plimsoll check <FILE>\n\nFor more information, try '--help'.\n";
        let line = "unexpected argument '--jsn' found; a similar argument exists: '--json'; --help shows what is taken";
        assert_eq!(one_line(message), line);
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = "error: the following required arguments were not provided:\n  <FILE>\n\nUsage: plimsoll check\n";
        assert!(one_line(message).starts_with("the following required arguments were not provided: <FILE>;"));
    }
}
