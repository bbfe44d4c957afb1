//! One process of a session, from its start to the last word about it.
//!
//! One task supervises it: it carries output, notices the end, ends it when that is asked for (TERM, `grace`, KILL, the
//! whole group), and reaps it last of all.

use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll::{Charge, Limits, Peer};
use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leader::{Exit, Group, Leader};
use crate::output::{Output, discard};
use crate::stdin::Stdin;
use crate::wire::Stream;

/// What a running process costs: two read buffers, its tasks and its places in tables.
pub(crate) const PROCESS_BYTES: u64 = 32 * 1024;

/// What others know of a process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) stdin: Stdin,
    life: Mutex<Life>,
    /// Asked to end.
    pub(crate) terminate: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Starting,
    Running(Group),
    Ended,
}

impl Process {
    pub(crate) fn new(limits: &Limits, session_ends: &CancellationToken) -> Self {
        Self { stdin: Stdin::new(limits), life: Mutex::new(Life::Starting), terminate: session_ends.child_token() }
    }

    /// Asks it to end; says whether it was running.
    pub(crate) fn terminate(&self) -> bool {
        let running = self.is_alive();
        self.terminate.cancel();
        running
    }

    pub(crate) fn is_alive(&self) -> bool {
        *self.life() != Life::Ended
    }

    /// Signals its group, if it runs.
    pub(crate) fn signal(&self, signal: Signal) {
        // The lock is held, so that it is not reaped between.
        if let Life::Running(group) = *self.life() {
            group.signal(signal);
        }
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It never came to run.
    pub(crate) fn failed(&self) {
        *self.life() = Life::Ended;
        self.stdin.end();
    }

    /// It runs: from here on signals reach it.
    pub(crate) fn runs(&self, started: &Started) {
        *self.life() = Life::Running(started.leader.group());
    }
}

/// A process that was just started, with its ends of the pipes.
#[derive(Debug)]
pub(crate) struct Started {
    leader: Leader,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Started {
    /// Starts `command` with pipes. Must be called within a tokio runtime.
    pub(crate) fn new(mut command: Command, pipe_stdin: bool) -> std::io::Result<Self> {
        command.stdin(if pipe_stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut leader = Leader::spawn(command)?;
        let child = leader.pipes();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(std::io::Error::other("the process has no pipes"));
        };
        let stdin = child.stdin.take().map(ChildStdin::from_std).transpose()?;
        let (stdout, stderr) = (ChildStdout::from_std(stdout)?, ChildStderr::from_std(stderr)?);
        Ok(Self { leader, stdin, stdout, stderr })
    }

    /// Supervises it until it is reaped and `closed` was said.
    pub(crate) async fn supervise(
        self,
        process: Arc<Process>,
        process_id: String,
        peer: Peer,
        discarded: Arc<AtomicU64>,
        charge: Charge,
        closed: impl FnOnce(),
    ) {
        let Self { leader, stdin, stdout, stderr } = self;
        let grace = peer.limits().grace().span();
        let output = Output::new(process_id, peer, 2);
        let (ended, watch) = watch::channel(None);
        let waiting = async {
            let exit = end(&leader, &process, grace).await;
            ended.send_replace(Some(Instant::now()));
            process.stdin.end();
            let _ = output.exited(exit).await;
        };
        let (rest_of_stdout, rest_of_stderr, (), ()) = tokio::join!(
            output.pump(Stream::Stdout, stdout, watch.clone(), grace),
            output.pump(Stream::Stderr, stderr, watch, grace),
            waiting,
            process.stdin.serve(stdin),
        );
        if process.terminate.is_cancelled() {
            // What is left of the group had the same grace.
            leader.group().signal(Signal::KILL);
        }
        *process.life() = Life::Ended;
        leader.reap();
        closed();
        let _ = output.closed().await;
        drop(output);
        let rest = async {
            tokio::join!(
                async {
                    if let Some(pipe) = rest_of_stdout {
                        discard(pipe, &discarded).await;
                    }
                },
                async {
                    if let Some(pipe) = rest_of_stderr {
                        discard(pipe, &discarded).await;
                    }
                },
            )
        };
        tokio::select! {
            _ = rest => {}
            () = process.terminate.cancelled() => {}
        }
        drop(charge);
    }
}

/// Waits until the process has ended, and ends it when that is asked for.
async fn end(leader: &Leader, process: &Process, grace: Option<std::time::Duration>) -> Exit {
    let ended = tokio::select! {
        ended = leader.ended() => Some(ended),
        () = process.terminate.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            leader.group().signal(Signal::TERM);
            let in_time = match grace {
                Some(grace) => tokio::time::timeout(grace, leader.ended()).await.ok(),
                None => Some(leader.ended().await),
            };
            match in_time {
                Some(ended) => ended,
                None => {
                    leader.group().signal(Signal::KILL);
                    leader.ended().await
                }
            }
        }
    };
    // What waiting cannot tell, nobody can: the leader's drop kills and reaps it.
    ended.unwrap_or(Exit { code: 255, signal: None })
}
