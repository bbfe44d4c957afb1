//! This process's standard input and output as a stream.
//!
//! Each direction has a thread of its own that makes blocking calls, because a terminal, a pipe and a file can all be
//! there and none may be switched to non-blocking mode: other processes share them. The threads hold one small buffer
//! each and are never waited for, so a pending read does not hold up the end of the process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{Receiver, channel};

/// Bytes that are read or written at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes read at once: what a pipe hands over, usually.
const READ_BYTES: usize = 8 * 1024;

/// Reads a blocking source from a thread of its own.
///
/// At most two pieces of 8 KiB are read ahead of what was asked for.
#[derive(Debug)]
pub struct BlockingReader {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    // at <= piece.len()
    at: usize,
    ended: bool,
}

impl BlockingReader {
    /// Starts the thread. It ends at the end of the input, at an error, or after the next read once this is dropped.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn new(mut source: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, pieces) = channel(1);
        std::thread::Builder::new().name("plimsoll-read".into()).spawn(move || {
            loop {
                let mut piece = vec![0; READ_BYTES];
                let read = match source.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let ends = !matches!(read, Ok(1..));
                let piece = read.map(|read| {
                    piece.truncate(read);
                    piece
                });
                if sender.blocking_send(piece).is_err() || ends {
                    break;
                }
            }
        })?;
        Ok(Self { pieces, piece: Vec::new(), at: 0, ended: false })
    }
}

impl AsyncRead for BlockingReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.at == self.piece.len() && !self.ended {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(piece)) if !piece.is_empty() => (self.piece, self.at) = (piece, 0),
                Some(Err(error)) => {
                    self.ended = true;
                    return Poll::Ready(Err(error));
                }
                Some(Ok(_)) | None => self.ended = true,
            }
        }
        let taken = buffer.remaining().min(self.piece.len() - self.at);
        buffer.put_slice(&self.piece[self.at..self.at + taken]);
        self.at += taken;
        if self.at == self.piece.len() {
            // An idle connection keeps no buffer here.
            (self.piece, self.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes a blocking sink from a thread of its own, one piece of at most 64 KiB after another.
///
/// Flushing waits until the sink has taken everything. An error is returned by the write or flush after it.
#[derive(Debug)]
pub struct BlockingWriter {
    to_thread: Option<SyncSender<Vec<u8>>>,
    from_thread: Receiver<io::Result<Vec<u8>>>,
    // `None` while the thread has it.
    buffer: Option<Vec<u8>>,
}

impl BlockingWriter {
    /// Starts the thread. It ends when this is dropped, or at an error.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn new(mut sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (to_thread, pieces) = sync_channel::<Vec<u8>>(1);
        let (done, from_thread) = channel(1);
        std::thread::Builder::new().name("plimsoll-write".into()).spawn(move || {
            for mut piece in pieces {
                let written = sink.write_all(&piece).and_then(|()| sink.flush());
                let failed = written.is_err();
                piece.clear();
                // An idle stream keeps no large buffer.
                piece.shrink_to(READ_BYTES);
                if done.blocking_send(written.map(|()| piece)).is_err() || failed {
                    break;
                }
            }
        })?;
        Ok(Self { to_thread: Some(to_thread), from_thread, buffer: Some(Vec::new()) })
    }

    /// Waits until the thread has given the buffer back.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Vec<u8>>> {
        if self.buffer.is_none() {
            match ready!(self.from_thread.poll_recv(cx)) {
                Some(Ok(buffer)) => self.buffer = Some(buffer),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        Poll::Ready(self.buffer.as_mut().ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let (Some(to_thread), Some(buffer)) = (&self.to_thread, self.buffer.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        to_thread.try_send(buffer).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for BlockingWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let buffer = ready!(self.poll_idle(cx))?;
        for slice in slices {
            let room = PIECE_BYTES - buffer.len();
            buffer.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let written = buffer.len();
        if written == 0 {
            return Poll::Ready(Ok(0));
        }
        self.hand_over()?;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_idle(cx).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(cx))?;
        self.to_thread = None;
        Poll::Ready(Ok(()))
    }
}

/// Standard input, read without holding up the end of the process.
///
/// # Errors
///
/// Standard input is not open, or its thread cannot be started.
pub fn stdin() -> io::Result<BlockingReader> {
    BlockingReader::new(duplicate(&io::stdin())?)
}

/// Standard output, unbuffered.
///
/// # Errors
///
/// Standard output is not open, or its thread cannot be started.
pub fn stdout() -> io::Result<BlockingWriter> {
    BlockingWriter::new(duplicate(&io::stdout())?)
}

/// Standard error, unbuffered.
///
/// # Errors
///
/// Standard error is not open, or its thread cannot be started.
pub fn stderr() -> io::Result<BlockingWriter> {
    BlockingWriter::new(duplicate(&io::stderr())?)
}

#[cfg(unix)]
fn duplicate(handle: &impl std::os::fd::AsFd) -> io::Result<File> {
    handle.as_fd().try_clone_to_owned().map(File::from)
}

#[cfg(windows)]
fn duplicate(handle: &impl std::os::windows::io::AsHandle) -> io::Result<File> {
    handle.as_handle().try_clone_to_owned().map(File::from)
}
