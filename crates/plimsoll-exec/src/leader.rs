//! One operating-system process that leads a process group, and the promise that it is ended and reaped.
//!
//! Its end is noticed without reaping it. Until it is reaped its number, which is also the number of its group, cannot be
//! given to another process; after that a [`Group`] does nothing. So signals never reach a stranger. A leader that is
//! dropped is killed with its group and reaped at once, without a runtime.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
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
    group: Group,
}

impl Leader {
    /// Starts `command` in a group of its own.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        Ok(Self { child, pid, group: Group(Arc::new(Mutex::new(Some(pid)))) })
    }

    /// Its pipes, once.
    pub(crate) fn pipes(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its group.
    pub(crate) fn group(&self) -> &Group {
        &self.group
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

    /// Waits for it, which has ended. Its number is free after that, so its group is not signalled any more.
    pub(crate) fn reap(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        if self.group.lock().take().is_some() {
            let _ = self.child.wait();
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.group.signal(Signal::KILL);
        self.wait();
    }
}

/// The process group of a leader.
#[derive(Clone, Debug)]
pub(crate) struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    /// Signals every member; that there may be none left is fine. Once the leader is reaped nothing is signalled.
    pub(crate) fn signal(&self, signal: Signal) {
        // The lock is held, so that the leader is not reaped between.
        if let Some(pid) = *self.lock() {
            let _ = kill_process_group(pid, signal);
            // The leader may have left the group that has its number.
            let _ = kill_process(pid, signal);
            if matches!(signal, Signal::INT | Signal::TERM) {
                // What is stopped hears it only when it goes on.
                let _ = kill_process_group(pid, Signal::CONT);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing but its leader runs in it. Where the system does not tell, nothing does.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub(crate) async fn is_left(&self) {
        const LONGEST: Duration = Duration::from_millis(100);
        let Some(leader) = *self.lock() else { return };
        let leader = leader.as_raw_pid();
        let mut pause = Duration::from_millis(5);
        // The list of all processes can be long: it is read off the runtime's own threads.
        while tokio::task::spawn_blocking(move || has_others(leader)).await.unwrap_or(false) {
            tokio::time::sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
    }
}

fn has_others(leader: i32) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != leader).any(|pid| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        is_member(&stat, leader)
    })
}

/// Whether a line of proc_pid_stat(5) is that of a process that runs in the group `group`.
fn is_member(stat: &[u8], group: i32) -> bool {
    // The name stands in parentheses and may hold anything, parentheses too.
    let after_name = stat.iter().rposition(|byte| *byte == b')').map_or(&[][..], |at| &stat[at + 1..]);
    let mut words = after_name.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (state, _parent, of) = (words.next(), words.next(), words.next());
    let is_dead = matches!(state, Some(b"Z" | b"X"));
    !is_dead && of.is_some_and(|of| of == group.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_leader_that_is_gone_is_nobodys() {
        for is_reaped in [true, false] {
            let mut command = Command::new(if is_reaped { "true" } else { "sleep" });
            command.arg("1000");
            let leader = Leader::spawn(command).unwrap();
            let group = leader.group().clone();
            assert!(group.lock().is_some(), "the control");
            if is_reaped {
                leader.reap();
            } else {
                drop(leader);
            }
            assert!(group.lock().is_none(), "its number may be another's by now");
            group.signal(Signal::KILL);
        }
    }

    #[test]
    fn members_of_a_group_are_known_by_their_stat_line_whatever_their_name() {
        assert!(is_member(b"12 (sleep) S 1 7 7 0 -1", 7));
        assert!(is_member(b"12 (a) Z 1 7) 8) R 1 7 7 0 -1", 7));
        assert!(!is_member(b"12 (sleep) S 7 8 7 0 -1", 7), "the parent or the session is not the group");
        assert!(!is_member(b"12 (sleep) S 1 77 7 0 -1", 7));
        assert!(!is_member(b"12 (sleep) Z 1 7 7 0 -1", 7), "a zombie does not run");
        for nonsense in [&b""[..], b")", b"12 (sleep)", b"12 (sleep) S", b"12 (sleep) S 1", b"7 7 7 7 7"] {
            assert!(!is_member(nonsense, 7));
        }
    }
}
