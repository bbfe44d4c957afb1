//! From the raw JSON text of a message to a type, only when the method is known.
//!
//! The text has passed the scanner, so its values are counted. Before decoding, an estimate of the heap that the result
//! may take is charged: the text once, for its strings, and [`VALUE_BYTES`] for each value. It holds until the [`Decoded`]
//! is dropped. What decoding itself needs is charged while it lasts. Types that multiply beyond that (elements of
//! hundreds of bytes each) are not weighed exactly here.

use std::ops::{Deref, DerefMut};

use memchr::memchr;
use plimsoll_core::{Budget, Charge, Message, Printable};
use serde::de::DeserializeOwned;

use crate::error::DecodeError;

/// The heap charged for each JSON value that is decoded: three words of a string or list, and its place in a list that
/// has just doubled.
pub const VALUE_BYTES: u64 = 96;

/// A decoded value, with the charge for its heap.
#[derive(Debug)]
pub struct Decoded<T> {
    value: T,
    charge: Charge,
}

impl<T> Decoded<T> {
    /// The value and its charge, which must live as long as what the value holds.
    pub fn into_parts(self) -> (T, Charge) {
        (self.value, self.charge)
    }
}

impl<T> Deref for Decoded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Decoded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Decodes `params`, `result` or `error` of a message. An absent body is taken as `null`, and `null` as `{}` when the
/// type wants members.
///
/// # Errors
///
/// [`DecodeError`]: the text is not of type `T`, or its heap has no room in `budget`. The text of the error is bounded.
pub fn decode_body<T: DeserializeOwned>(message: &Message, budget: &Budget) -> Result<Decoded<T>, DecodeError> {
    decode(message, budget, 0)
}

/// The same for a type that holds free-form values: each object is a tree of nodes that have room for eleven members.
pub(crate) fn decode_tree<T: DeserializeOwned>(message: &Message, budget: &Budget) -> Result<Decoded<T>, DecodeError> {
    let counts = message.counts();
    // A node is at least half full beyond the first; 56 bytes a member, and links.
    decode(message, budget, counts.objects.min(counts.keys) * 736 + counts.keys * 128)
}

fn decode<T: DeserializeOwned>(message: &Message, budget: &Budget, nodes: u64) -> Result<Decoded<T>, DecodeError> {
    let Some(body) = message.body() else { return finish(decode_nothing(), budget.empty_charge()) };
    let length = body.len() as u64;
    let counts = message.counts();
    let heap = length + counts.values * VALUE_BYTES + nodes;
    // What is held while it is decoded: the text in one piece, and the string that is being unescaped, which doubles.
    let joining = if body.as_slice().is_some() { 0 } else { length };
    let escapes = body.runs().any(|run| memchr(b'\\', run).is_some());
    let unescaping = if escapes { 3 * length.min(counts.string_bytes + counts.key_bytes) } else { 0 };
    let needed = message.charged() + heap + joining + unescaping;
    if needed > budget.limit() {
        return Err(DecodeError::TooLarge { needed, cap: budget.limit() });
    }
    let charge = budget.try_charge(heap).map_err(DecodeError::NoRoom)?;
    let _meanwhile = budget.try_charge(joining + unescaping).map_err(DecodeError::NoRoom)?;
    let mut joined = Vec::new();
    let text = match body.as_slice() {
        Some(text) => text,
        None => {
            joined.reserve_exact(body.len());
            body.runs().for_each(|run| joined.extend_from_slice(run));
            &joined
        }
    };
    if text == b"null" { finish(decode_nothing(), charge) } else { finish(serde_json::from_slice(text), charge) }
}

fn finish<T>(value: serde_json::Result<T>, charge: Charge) -> Result<Decoded<T>, DecodeError> {
    match value {
        Ok(value) => Ok(Decoded { value, charge }),
        Err(error) => Err(DecodeError::Mismatch(Printable::new(&error.to_string(), 300).to_string())),
    }
}

fn decode_nothing<T: DeserializeOwned>() -> serde_json::Result<T> {
    serde_json::from_slice(b"null").or_else(|_| serde_json::from_slice(b"{}"))
}
