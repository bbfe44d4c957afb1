//! What `plimsoll run` may be told while its command runs.
//!
//! A signal that was ignored when this process started stays ignored: `nohup` means it, and so does a shell that starts
//! something in the background.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are listened to.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

/// Which one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Hangup,
    Interrupt,
    Terminate,
}

impl Told {
    /// The signal's number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    fn listen(self, ignored: u64) -> io::Result<Option<Signal>> {
        if ignored >> (self.number() - 1) & 1 == 1 {
            return Ok(None);
        }
        signal(SignalKind::from_raw(self.number().into())).map(Some)
    }
}

impl Signals {
    /// Begins to listen. Must be called within a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        Ok(Self {
            interrupt: Told::Interrupt.listen(ignored)?,
            terminate: Told::Terminate.listen(ignored)?,
            hangup: Told::Hangup.listen(ignored)?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            () = of(&mut self.interrupt) => Told::Interrupt,
            () = of(&mut self.terminate) => Told::Terminate,
            () = of(&mut self.hangup) => Told::Hangup,
        }
    }
}

async fn of(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// The signals that a process ignores, the first in the lowest bit, from its proc_pid_status(5). Where the system does
/// not tell, none.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_are_read_from_the_status_and_nonsense_is_none() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\tff\nSigIgn:\t0000000000001001\nSigCgt:\t7\n"), 0x1001);
        assert_eq!((ignored(""), ignored("SigIgn:\tnonsense")), (0, 0));
    }
}
