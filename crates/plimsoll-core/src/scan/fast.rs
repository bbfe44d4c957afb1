//! The fast lane: whole tokens, one after another, below the top level.
//!
//! It takes a token only when all of it is in the run, plain, well-formed and within every limit, and stops before any
//! other. The scanner's own steps then take that one, so every refusal, every escape and every cut is theirs, and what is
//! accepted does not depend on which of the two read it.

use super::keys::Key;
use super::number;
use super::plain::skip_space;
use super::steps::whole_plain;
use super::{Scanner, State};
use crate::limits::DuplicateKeys;
use crate::segments::Source;

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Comma,
    FirstKey,
    FirstValue,
    Key,
    Value,
}

impl Scanner {
    /// Takes what it can of `bytes` from `*at` on, which is `base + *at` of the message.
    pub(super) fn fast_lane<S: Source + ?Sized>(&mut self, bytes: &[u8], at: &mut usize, base: usize, source: &S) {
        let mut next = match self.state {
            State::Comma => Next::Comma,
            State::FirstKey => Next::FirstKey,
            State::FirstValue => Next::FirstValue,
            State::Key => Next::Key,
            State::Value => Next::Value,
            _ => return,
        };
        let bounds = self.bounds;
        let keep_keys = bounds.duplicate_keys == DuplicateKeys::Refuse;
        let mut counts = self.counts;
        let mut in_object = self.in_object;
        let mut colon = false;
        let mut place = *at;
        // The top level is the scanner's, because its members mean something; so is the step back to it.
        while self.containers.depth() > 1 {
            let Some(byte) = skip_space(bytes, &mut place) else { break };
            match next {
                Next::Comma => match byte {
                    b',' => {
                        next = if in_object { Next::Key } else { Next::Value };
                        place += 1;
                    }
                    b'}' if in_object && self.containers.depth() > 2 && self.forget_object(source) => {
                        self.containers.close();
                        in_object = self.containers.in_object();
                        place += 1;
                    }
                    b']' if !in_object && self.containers.depth() > 2 => {
                        self.containers.close();
                        in_object = self.containers.in_object();
                        place += 1;
                    }
                    _ => break,
                },
                Next::Key | Next::FirstKey => match byte {
                    b'"' => {
                        let rest = &bytes[place + 1..];
                        let Some(len) = whole_plain(rest, bounds.key) else { break };
                        if keep_keys {
                            let Some(key) = Key::plain(&rest[..len], base + place + 1) else { break };
                            if self.keys.push(key, &mut self.scratch).is_err() {
                                break;
                            }
                        }
                        counts.keys += 1;
                        counts.key_bytes += len as u64;
                        place += len + 2;
                        if bytes.get(place) != Some(&b':') {
                            colon = true;
                            break;
                        }
                        place += 1;
                        next = Next::Value;
                    }
                    b'}' if next == Next::FirstKey && self.containers.depth() > 2 => {
                        self.containers.close();
                        in_object = self.containers.in_object();
                        place += 1;
                        next = Next::Comma;
                    }
                    _ => break,
                },
                Next::Value | Next::FirstValue => {
                    if byte == b']' {
                        if next == Next::FirstValue && self.containers.depth() > 2 {
                            self.containers.close();
                            in_object = self.containers.in_object();
                            place += 1;
                            next = Next::Comma;
                            continue;
                        }
                        break;
                    }
                    if counts.values >= bounds.values {
                        break;
                    }
                    match byte {
                        b'"' => {
                            let Some(len) = whole_plain(&bytes[place + 1..], bounds.string) else { break };
                            counts.string_bytes += len as u64;
                            place += len + 2;
                            next = Next::Comma;
                        }
                        b'-' | b'0'..=b'9' => {
                            let Some(len) = number::whole(&bytes[place..]) else { break };
                            if len as u64 > bounds.number {
                                break;
                            }
                            place += len;
                            next = Next::Comma;
                            if !in_object {
                                let most = bounds.values - counts.values - 1;
                                let (numbers, len) = number::run(&bytes[place..], most, bounds.number);
                                counts.values += numbers;
                                place += len;
                            }
                        }
                        b'{' => {
                            let open = self.containers.depth() < bounds.depth
                                && self.containers.open_object(self.keys.len(), &mut self.scratch).is_ok();
                            if !open {
                                break;
                            }
                            counts.objects += 1;
                            counts.depth = counts.depth.max(self.containers.depth() as u64);
                            in_object = true;
                            place += 1;
                            next = Next::FirstKey;
                        }
                        b'[' => {
                            let open = self.containers.depth() < bounds.depth
                                && self.containers.open(false, &mut self.scratch).is_ok();
                            if !open {
                                break;
                            }
                            counts.arrays += 1;
                            counts.depth = counts.depth.max(self.containers.depth() as u64);
                            in_object = false;
                            place += 1;
                            next = Next::FirstValue;
                        }
                        _ => {
                            let rest = &bytes[place..];
                            let word =
                                [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word));
                            let Some(word) = word else { break };
                            place += word.len();
                            next = Next::Comma;
                        }
                    }
                    counts.values += 1;
                }
            }
        }
        *at = place;
        self.counts = counts;
        self.in_object = in_object;
        self.state = match next {
            _ if colon => State::Colon,
            Next::Comma => State::Comma,
            Next::FirstKey => State::FirstKey,
            Next::FirstValue => State::FirstValue,
            Next::Key => State::Key,
            Next::Value => State::Value,
        };
    }

    /// Compares the keys of the innermost object and forgets them; `false` when one may be repeated.
    #[inline]
    fn forget_object<S: Source + ?Sized>(&mut self, source: &S) -> bool {
        let base = self.containers.base();
        if self.keys.len() > base {
            if !matches!(self.keys.repeated(base, source, &mut self.scratch), Ok(None)) {
                return false;
            }
            self.keys.truncate(base, &mut self.scratch);
        }
        true
    }
}
