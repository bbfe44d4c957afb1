//! From the raw JSON text of a message to a type, only when the method is known.
//!
//! The text has passed the scanner, so its values are counted. Before decoding, an estimate of the heap that the result
//! may take is charged: the text once, for its strings, and [`VALUE_BYTES`] for each value. It holds until the [`Decoded`]
//! is dropped. Types that multiply beyond that (elements of hundreds of bytes each) are not weighed exactly here.

use std::ops::{Deref, DerefMut};

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
    let body = message.body();
    let heap = body.map_or(0, |raw| raw.len() as u64) + message.counts().values * VALUE_BYTES;
    let charge = budget.try_charge(heap).map_err(DecodeError::NoRoom)?;
    let value = match body {
        None => decode_nothing(),
        Some(raw) => match raw.as_slice() {
            Some(b"null") => decode_nothing(),
            Some(slice) => serde_json::from_slice(slice),
            None => serde_json::from_reader(raw.reader()),
        },
    };
    match value {
        Ok(value) => Ok(Decoded { value, charge }),
        Err(error) => Err(DecodeError::Mismatch(Printable::new(&error.to_string(), 300).to_string())),
    }
}

fn decode_nothing<T: DeserializeOwned>() -> serde_json::Result<T> {
    serde_json::from_slice(b"null").or_else(|_| serde_json::from_slice(b"{}"))
}
