//! A string (RFC 8259 section 7) as far as it has arrived: escapes, surrogate pairs and UTF-8, each of which may be cut
//! anywhere.

use super::envelope::Name;
use super::plain::plain;
use crate::reason::{Reason, Refusal};

/// What a string is, which decides its limit and who wants its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Id,
    Key,
    Method,
    /// A key of the envelope, whose name is wanted.
    TopKey,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Backslash,
    Unicode { digits: u8, unit: u16 },
}

/// The state of one string.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub(super) role: Role,
    /// The offset of the first byte after the opening quote.
    pub(super) start: usize,
    /// The offset at which the string is too long: start + limit.
    pub(super) most: usize,
    /// Whether an escape was seen.
    pub(super) escaped: bool,
    escape: Escape,
    // The offset of the backslash of the escape under way or just ended.
    escape_at: usize,
    // A high surrogate was the last thing read, and still needs its low one.
    high: bool,
    // The beginning of a character that was cut: 0 to 3 bytes.
    cut: [u8; 4],
    cut_len: u8,
}

/// What became of a string.
#[derive(Debug)]
pub(super) enum Step {
    /// The run ended first.
    More,
    /// The closing quote was read.
    End,
    /// It passes its limit at the byte where reading stopped.
    TooLong,
    Refused(Refusal),
}

impl Text {
    pub(super) fn new(role: Role, start: usize, most: usize) -> Self {
        Self {
            role,
            start,
            most,
            escaped: false,
            escape: Escape::None,
            escape_at: start,
            high: false,
            cut: [0; 4],
            cut_len: 0,
        }
    }

    /// Reads on at `bytes[*at]`, whose offset in the message is `base + *at`. With `strict` off, what bytes mean as
    /// Unicode is not checked: a refused message is only followed. `name` takes what a key of the envelope means.
    pub(super) fn step(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
        strict: bool,
        mut name: Option<&mut Name>,
    ) -> Step {
        // Nothing at or beyond the limit is looked at but the closing quote, so that the verdict does not depend on
        // how the bytes came.
        let within = self.most.saturating_sub(base).min(bytes.len());
        let limited = &bytes[..within.max(*at)];
        loop {
            if self.escape != Escape::None {
                if let Err(refusal) = self.continue_escape(limited, at, base, strict, name.as_deref_mut()) {
                    return Step::Refused(refusal);
                }
                if self.escape != Escape::None {
                    return if *at < bytes.len() { Step::TooLong } else { Step::More };
                }
            }
            let rest = &limited[*at..];
            let run = plain(rest);
            if run.len > 0 {
                if strict && self.high {
                    return Step::Refused(self.encoding(Reason::LoneSurrogate, self.escape_at));
                }
                self.high = false;
                let piece = &rest[..run.len];
                if strict
                    && (!run.ascii || self.cut_len > 0)
                    && let Err(offset) = self.check(piece, base + *at)
                {
                    return Step::Refused(self.encoding(Reason::InvalidUtf8, offset));
                }
                if let Some(name) = name.as_deref_mut() {
                    name.push(piece);
                }
                *at += run.len;
            }
            let byte = match (limited.get(*at), bytes.get(*at)) {
                (Some(&byte), _) => byte,
                (None, Some(b'"')) => b'"',
                (None, Some(_)) => return Step::TooLong,
                (None, None) => return Step::More,
            };
            if strict && self.cut_len > 0 {
                return Step::Refused(self.encoding(Reason::InvalidUtf8, base + *at - self.cut_len as usize));
            }
            match byte {
                b'"' if strict && self.high => {
                    return Step::Refused(self.encoding(Reason::LoneSurrogate, self.escape_at));
                }
                b'"' => {
                    *at += 1;
                    return Step::End;
                }
                b'\\' => {
                    self.escaped = true;
                    if !self.high && name.is_none() && !matches!(limited.get(*at + 1), Some(b'u') | None) {
                        if !matches!(limited[*at + 1], b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') {
                            return Step::Refused(grammar(base + *at + 1));
                        }
                        *at += 2;
                        continue;
                    }
                    if !self.high
                        && name.is_none()
                        && let Some(unit) = limited.get(*at + 2..*at + 6).and_then(hex)
                        && !matches!(unit, 0xd800..=0xdfff)
                    {
                        *at += 6;
                        continue;
                    }
                    if !self.high {
                        self.escape_at = base + *at;
                    }
                    self.escape = Escape::Backslash;
                    *at += 1;
                }
                _ => return Step::Refused(grammar(base + *at)),
            }
        }
    }

    /// A refusal for the meaning of bytes; forgets what was cut, so that the message can be followed from here.
    fn encoding(&mut self, reason: Reason, offset: usize) -> Refusal {
        self.high = false;
        self.cut_len = 0;
        Refusal::new(reason).at(offset as u64)
    }

    /// Reads the escape under way as far as the bytes go.
    fn continue_escape(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        base: usize,
        strict: bool,
        mut name: Option<&mut Name>,
    ) -> Result<(), Refusal> {
        while let Some(&byte) = bytes.get(*at) {
            let mut meaning = None;
            self.escape = match self.escape {
                Escape::None => return Ok(()),
                Escape::Backslash if byte == b'u' => Escape::Unicode { digits: 0, unit: 0 },
                Escape::Backslash => {
                    meaning = Some(match byte {
                        b'"' | b'\\' | b'/' => u16::from(byte),
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        b'n' => 0x0a,
                        b'r' => 0x0d,
                        b't' => 0x09,
                        _ => return Err(grammar(base + *at)),
                    });
                    Escape::None
                }
                Escape::Unicode { digits, unit } => {
                    let digit = (byte as char).to_digit(16).ok_or_else(|| grammar(base + *at))?;
                    let unit = unit << 4 | digit as u16;
                    if digits < 3 {
                        Escape::Unicode { digits: digits + 1, unit }
                    } else {
                        meaning = Some(unit);
                        Escape::None
                    }
                }
            };
            *at += 1;
            if let Some(unit) = meaning {
                let paired = self.pair(unit);
                if let Some(name) = name.as_deref_mut() {
                    // Half a pair is no part of a name that is known, and neither is a whole one.
                    let character = char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
                    name.push(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                if strict && !paired {
                    return Err(self.encoding(Reason::LoneSurrogate, self.escape_at));
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes one code unit that an escape named; `false` when it leaves half a pair behind.
    fn pair(&mut self, unit: u16) -> bool {
        let waiting = std::mem::replace(&mut self.high, matches!(unit, 0xd800..=0xdbff));
        waiting == matches!(unit, 0xdc00..=0xdfff)
    }

    /// Checks that `piece`, at `offset`, goes on as UTF-8; the error is the offset of the character that does not.
    fn check(&mut self, mut piece: &[u8], offset: usize) -> Result<(), usize> {
        let mut start = offset;
        while self.cut_len > 0 {
            let Some((&byte, rest)) = piece.split_first() else { return Ok(()) };
            let begun = start - self.cut_len as usize;
            self.cut[self.cut_len as usize] = byte;
            self.cut_len += 1;
            match std::str::from_utf8(&self.cut[..self.cut_len as usize]) {
                Ok(_) => self.cut_len = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    self.cut_len = 0;
                    return Err(begun);
                }
            }
            piece = rest;
            start += 1;
        }
        // The last character may be cut by the end of the run; the vectors are for what is whole.
        let (whole, tail) = piece.split_at(piece.len() - cut_tail(piece));
        if simdutf8::basic::from_utf8(whole).is_ok() {
            start += whole.len();
            piece = tail;
        }
        match std::str::from_utf8(piece) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() => {
                let tail = &piece[error.valid_up_to()..];
                self.cut[..tail.len()].copy_from_slice(tail);
                self.cut_len = tail.len() as u8;
                Ok(())
            }
            Err(error) => Err(start + error.valid_up_to()),
        }
    }
}

fn hex(digits: &[u8]) -> Option<u16> {
    let mut unit = 0;
    for &digit in digits {
        unit = unit << 4 | (digit as char).to_digit(16)? as u16;
    }
    Some(unit)
}

/// How many of the last bytes begin a character that does not end here.
fn cut_tail(piece: &[u8]) -> usize {
    for back in 1..=piece.len().min(3) {
        let byte = piece[piece.len() - back];
        if byte & 0xc0 != 0x80 {
            let width = match byte {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            return if width > back { back } else { 0 };
        }
    }
    0
}

fn grammar(offset: usize) -> Refusal {
    Refusal::new(Reason::InvalidJson).at(offset as u64)
}
