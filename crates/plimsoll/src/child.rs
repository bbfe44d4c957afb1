//! A program run as a peer over its standard input and output.
//!
//! It gets a process group of its own, so that what it starts ends with it. Its standard error is always drained; the
//! last part is kept to explain a failure. It is told to end (TERM), given a grace, killed, and always waited for; a
//! handle that is dropped kills at once, without a runtime.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::{Deadline, Printable};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// Bytes of standard error that are kept.
pub const STDERR_TAIL_BYTES: usize = 8 * 1024;

/// Where a child's standard error goes, beside the tail that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildStderrTo {
    /// Nowhere else.
    #[default]
    Tail,
    /// To this process's standard error, as it comes.
    Inherited,
}

/// A running program whose standard input and output carry messages.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    // The child leads this group; `None` once it was signalled for the last time.
    group: Option<Pid>,
    tail: Arc<Mutex<Tail>>,
    draining: JoinHandle<()>,
}

impl ChildProcess {
    /// Starts `command` and hands out the two ends that speak with it. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// What the operating system says; nothing runs then.
    pub fn spawn(mut command: Command, stderr_to: ChildStderrTo) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let tail = Arc::new(Mutex::new(Tail::default()));
        let ends = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let (Some(stdout), Some(stdin), Some(stderr)) = ends else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let draining = tokio::spawn(drain(stderr, tail.clone(), stderr_to));
        Ok((Self { child, group, tail, draining }, stdout, stdin))
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The last part of what it wrote to standard error, safe to print: control characters are escaped, lines kept.
    pub fn stderr_tail(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let last = tail.bytes.len().saturating_sub(STDERR_TAIL_BYTES);
        let text = String::from_utf8_lossy(&tail.bytes[last..]).into_owned();
        drop(tail);
        let lines: Vec<String> = text.lines().map(|line| Printable::new(line, 500).to_string()).collect();
        lines.join("\n")
    }

    /// Waits until it ends by itself. What it started and left behind in its group ends with it.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.end_group();
        Ok(status)
    }

    /// Ends it: waits `grace` for it to end by itself (its standard input should be closed by then), tells its group to
    /// end, waits `grace` again, kills the group, and waits for it.
    ///
    /// # Errors
    ///
    /// What the operating system says when it is waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the process, which kills the group at once.
    pub async fn shutdown(mut self, grace: Deadline) -> io::Result<ExitStatus> {
        let grace = grace.span().unwrap_or(Duration::MAX);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
                self.signal(Signal::KILL);
            }
        }
        let status = self.child.wait().await;
        self.end_group();
        // Its standard error is complete now, unless something outside the group holds it open.
        let _ = tokio::time::timeout(Duration::from_millis(100), &mut self.draining).await;
        status
    }

    /// The program has just ended, so what it left behind ends too. Once only, because a group that is empty gives its
    /// number back.
    fn end_group(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may be gone already.
            let _ = kill_process_group(group, signal);
        }
        // The program itself may have left its group; its number is its own until it was waited for.
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.draining.abort();
        if self.group.is_none() {
            return;
        }
        self.signal(Signal::KILL);
        // A killed process is gone within moments; it is waited for here, because the runtime may end with this.
        for _ in 0..200 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => break,
            }
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    // At most twice STDERR_TAIL_BYTES, cut back to it then, so that keeping up is cheap.
    bytes: Vec<u8>,
}

impl Tail {
    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() >= 2 * STDERR_TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - STDERR_TAIL_BYTES);
        }
    }
}

async fn drain(mut stderr: ChildStderr, tail: Arc<Mutex<Tail>>, to: ChildStderrTo) {
    let mut copy = match to {
        ChildStderrTo::Tail => None,
        ChildStderrTo::Inherited => crate::stdio::stderr().ok(),
    };
    let mut piece = vec![0; 4 * 1024];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&piece[..read]);
        if let Some(writer) = &mut copy
            && writer.write_all(&piece[..read]).await.is_err()
        {
            // Nobody reads ours; the child's is drained all the same.
            copy = None;
        }
    }
    if let Some(mut writer) = copy {
        let _ = writer.flush().await;
    }
}
