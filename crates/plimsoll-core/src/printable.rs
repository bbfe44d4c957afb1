//! A peer's text, made safe for a terminal, a log or a page of text: bounded, and without control characters.

use std::fmt;

/// Shows `text` with every control character, and everything that reorders or hides text, escaped; cut after `most`
/// characters.
///
/// ```
/// use plimsoll_core::Printable;
///
/// assert_eq!(Printable::new("a\u{1b}[31mb", 40).to_string(), "a\\u{1b}[31mb");
/// assert_eq!(Printable::new("abcdef", 3).to_string(), "abc...");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a> {
    text: &'a str,
    most: usize,
}

impl<'a> Printable<'a> {
    /// At most `most` characters of `text`.
    pub const fn new(text: &'a str, most: usize) -> Self {
        Self { text, most }
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut characters = self.text.chars();
        for character in characters.by_ref().take(self.most) {
            if character.is_control() || hides(character) {
                write!(f, "{}", character.escape_unicode())?;
            } else {
                f.write_char(character)?;
            }
        }
        if characters.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// Line separators, and marks that change the direction of text or take no room.
fn hides(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_a_reader_cannot_see_is_escaped() {
        for character in
            ['\u{1b}', '\u{7f}', '\u{9b}', '\n', '\u{202e}', '\u{2028}', '\u{feff}', '\u{61c}', '\u{e0041}']
        {
            let shown = Printable::new(&character.to_string(), 9).to_string();
            assert!(shown.starts_with("\\u{") && shown.is_ascii(), "{shown}");
        }
        assert_eq!(Printable::new("naïve 漢字 😀", 99).to_string(), "naïve 漢字 😀");
    }
}
