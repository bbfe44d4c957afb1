//! The line framing as a `tokio_util` codec, for those who have a `Framed` already: the same core, another door.
//!
//! What is refused is an item and not an error, because a `Framed` ends at the first error. Only a refused message that
//! does not end is one: its item comes first, so that it can be answered.

use plimsoll_core::{Budget, Dialect, Limits, Line, LineDeframer, Received, Refusal};
use tokio_util::bytes::{Buf, BufMut, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

/// Messages as lines, within limits and a budget.
///
/// ```
/// use plimsoll::{Bound, Budget, Dialect, Limits, LineCodec, Received};
/// use tokio_util::bytes::BytesMut;
/// use tokio_util::codec::{Decoder, Encoder};
///
/// let budget = Budget::new(Bound::at_most(1 << 20));
/// let mut codec = LineCodec::new(&Limits::default(), Dialect::Standard, &budget);
/// let mut bytes = BytesMut::new();
/// codec.encode(br#"{"jsonrpc":"2.0","method":"hello"}"#, &mut bytes).unwrap();
/// let Ok(Some(Received::Message(message))) = codec.decode(&mut bytes) else { panic!() };
/// assert_eq!(message.method().as_deref(), Some("hello"));
/// ```
#[derive(Debug)]
pub struct LineCodec {
    deframer: LineDeframer,
    overrun: Option<Refusal>,
}

impl LineCodec {
    /// A codec that stores what arrives within `budget`, a connection's leaf.
    pub fn new(limits: &Limits, dialect: Dialect, budget: &Budget) -> Self {
        Self { deframer: LineDeframer::new(limits, dialect, budget), overrun: None }
    }
}

/// Why a stream of lines cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A refused message did not end within `skip_bytes`.
    #[error("{0}")]
    Overrun(Refusal),
}

impl Decoder for LineCodec {
    type Item = Received;
    type Error = CodecError;

    /// Takes everything up to the end of the next message out of `bytes`, so the buffer of a `Framed` stays small.
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Received>, CodecError> {
        if let Some(refusal) = self.overrun {
            bytes.clear();
            return Err(CodecError::Overrun(refusal));
        }
        let (taken, line) = self.deframer.push(bytes);
        bytes.advance(taken);
        Ok(match line {
            None => None,
            Some(Line::Received(received)) => Some(received),
            Some(Line::Overrun { refused, reason }) => {
                self.overrun = Some(reason);
                Some(Received::Refused(refused))
            }
        })
    }

    /// At the end of the input a whole message is delivered without its newline, an incomplete one is reported.
    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Received>, CodecError> {
        match self.decode(bytes)? {
            None => Ok(self.deframer.finish()),
            received => Ok(received),
        }
    }
}

/// Writes one JSON text as a line; a newline within it, which can only be white space, becomes a space.
impl<T: AsRef<[u8]>> Encoder<T> for LineCodec {
    type Error = CodecError;

    fn encode(&mut self, message: T, bytes: &mut BytesMut) -> Result<(), CodecError> {
        let message = message.as_ref();
        bytes.reserve(message.len() + 1);
        let begun = bytes.len();
        bytes.put_slice(message);
        for byte in &mut bytes[begun..] {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        bytes.put_u8(b'\n');
        Ok(())
    }
}
