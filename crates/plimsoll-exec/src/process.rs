//! One process of a session, from its start to the last word about it.
//!
//! One task supervises it: it carries output, notices the end, ends it when that is asked for (TERM, `grace`, KILL, the
//! whole group), and reaps it last of all.

use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::{Budget, Charge, Limits, Peer};
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

#[derive(Debug)]
enum Life {
    /// What it was signalled meanwhile is delivered when it runs.
    Starting {
        signalled: Option<Signal>,
    },
    Running(Group),
    /// It has ended and is not reaped, so that others of its group can be reached.
    Left(Group),
    Ended,
}

impl Process {
    pub(crate) fn new(limits: &Limits, budget: &Budget, session_ends: &CancellationToken) -> Self {
        Self {
            stdin: Stdin::new(limits, budget),
            life: Mutex::new(Life::Starting { signalled: None }),
            terminate: session_ends.child_token(),
        }
    }

    /// Asks it to end; says whether it was running.
    pub(crate) fn terminate(&self) -> bool {
        let running = matches!(*self.life(), Life::Starting { .. } | Life::Running(_));
        self.terminate.cancel();
        running
    }

    /// Signals its group, as soon as it runs and as long as anything is left of it.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut life = self.life();
        match &mut *life {
            Life::Starting { signalled } => *signalled = Some(signal),
            Life::Running(group) | Life::Left(group) => group.signal(signal),
            Life::Ended => {}
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
        let group = started.leader.group();
        let before = std::mem::replace(&mut *self.life(), Life::Running(group.clone()));
        if let Life::Starting { signalled: Some(signal) } = before {
            group.signal(signal);
        }
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
        let (rest_of_stdout, rest_of_stderr, (), ()) = {
            let waiting = async {
                // What waiting cannot tell, nobody can: the leader's drop kills and reaps it.
                let exit = leader.ended().await.unwrap_or(Exit { code: 255, signal: None });
                // The ends of its pipes came before; where they were not looked at yet they are now, so that it is known
                // whether output may still follow.
                tokio::task::yield_now().await;
                *process.life() = Life::Left(leader.group().clone());
                ended.send_replace(Some(Instant::now()));
                process.stdin.end();
                let _ = output.exited(exit).await;
            };
            let mut carrying = pin!(async {
                tokio::join!(
                    output.pump(Stream::Stdout, stdout, watch.clone(), grace),
                    output.pump(Stream::Stderr, stderr, watch, grace),
                    waiting,
                    process.stdin.serve(stdin),
                )
            });
            let mut ending = pin!(async {
                process.terminate.cancelled().await;
                end(&leader, grace).await;
            });
            tokio::select! {
                carried = &mut carrying => {
                    if process.terminate.is_cancelled() {
                        ending.await;
                    }
                    carried
                }
                () = &mut ending => carrying.await,
            }
        };
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

/// Ends a process and what is left of its group: TERM, `grace` for all of them, KILL.
async fn end(leader: &Leader, grace: Option<Duration>) {
    /// How long what was killed has to be gone; only what the system holds up takes longer than moments.
    const DYING: Duration = Duration::from_secs(1);
    let group = leader.group();
    let gone = async || {
        let _ = leader.ended().await;
        group.is_left().await;
    };
    group.signal(Signal::TERM);
    let in_time = match grace {
        Some(grace) => tokio::time::timeout(grace, gone()).await.is_ok(),
        None => {
            gone().await;
            true
        }
    };
    if !in_time {
        group.signal(Signal::KILL);
        let _ = tokio::time::timeout(DYING, gone()).await;
    }
}
