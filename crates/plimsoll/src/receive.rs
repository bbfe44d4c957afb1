//! Messages from a byte stream: one small buffer that is read into again and again, and a deframer.

use std::io;

use plimsoll_core::{Budget, Dialect, Limits, Line, LineDeframer};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read at once. A message is copied out of this buffer, so it pins nothing.
const READ_BYTES: usize = 8 * 1024;

/// Reads messages, one a line, from any [`AsyncRead`].
///
/// ```
/// use plimsoll::{Budget, Bound, Dialect, Limits, Line, LineReceiver, Received};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let input: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\"}\n";
/// let budget = Budget::new(Bound::at_most(1 << 20));
/// let mut receiver = LineReceiver::new(input, &Limits::default(), Dialect::Standard, &budget);
/// let Some(Line::Received(Received::Message(message))) = receiver.receive().await? else { panic!() };
/// assert_eq!(message.method().as_deref(), Some("hello"));
/// assert!(receiver.receive().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LineReceiver<R> {
    reader: R,
    deframer: LineDeframer,
    buffer: Box<[u8]>,
    // start <= end <= buffer.len(); between them lie bytes that were read and not deframed yet.
    start: usize,
    end: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReceiver<R> {
    /// A receiver that stores what arrives within `budget`, a connection's leaf.
    pub fn new(reader: R, limits: &Limits, dialect: Dialect, budget: &Budget) -> Self {
        let deframer = LineDeframer::new(limits, dialect, budget);
        Self { reader, deframer, buffer: vec![0; READ_BYTES].into(), start: 0, end: 0, ended: false }
    }

    /// The next line; `None` at the end of the input. A last message without its newline is delivered, an incomplete
    /// one is reported as refused.
    ///
    /// # Errors
    ///
    /// What reading returned. It may be tried again.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was read is kept in the receiver, and the next call goes on with it.
    pub async fn receive(&mut self) -> io::Result<Option<Line>> {
        loop {
            while self.start < self.end {
                let (taken, line) = self.deframer.push(&self.buffer[self.start..self.end]);
                self.start += taken;
                if line.is_some() {
                    return Ok(line);
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.reader.read(&mut self.buffer).await {
                Ok(0) => {
                    self.ended = true;
                    return Ok(self.deframer.finish().map(Line::Received));
                }
                Ok(read) => (self.start, self.end) = (0, read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether part of a message has arrived.
    pub fn is_partial(&self) -> bool {
        self.start < self.end || self.deframer.is_partial()
    }
}
