//! One operating-system process that leads a process group, and the promise that it is ended and reaped.
//!
//! Its end is noticed without reaping it. Until [`Leader::reap`], its number, which is also the number of its group,
//! cannot be given to another process, so signals never reach a stranger. A leader that is dropped is killed with its
//! group and reaped at once, without a runtime.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::signal::unix::{SignalKind, signal};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code; 128 + signal when a signal ended it.
    pub(crate) code: i32,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Leader {
    child: Child,
    pid: Pid,
    reaped: bool,
}

impl Leader {
    /// Starts `command` in a group of its own.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        Ok(Self { child, pid, reaped: false })
    }

    /// Its pipes, once.
    pub(crate) fn pipes(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The number of its group.
    pub(crate) fn group(&self) -> Group {
        Group(self.pid)
    }

    /// Waits until it has ended; it is not reaped.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub(crate) async fn ended(&self) -> io::Result<Exit> {
        // Registered before the first look, so that no end between is missed.
        let mut children = signal(SignalKind::child())?;
        loop {
            if let Some(exit) = self.exit()? {
                return Ok(exit);
            }
            children.recv().await;
        }
    }

    fn exit(&self) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = loop {
            match waitid(WaitId::Pid(self.pid), options) {
                Err(rustix::io::Errno::INTR) => {}
                status => break status?,
            }
        };
        Ok(status.map(|status| match status.terminating_signal() {
            Some(signal) => Exit { code: 128 + signal, signal: Some(signal) },
            None => Exit { code: status.exit_status().unwrap_or_default(), signal: None },
        }))
    }

    /// Takes its end note of. Its number is free after that, so its group is not signalled any more.
    pub(crate) fn reap(mut self) {
        self.reaped = true;
        let _ = self.child.wait();
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.reaped {
            self.group().signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A process group whose leader is not reaped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    /// Signals every member; that there may be none left is fine.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }
}
