//! `plimsoll exec-server`: runs processes for the client at the other end of stdin and stdout.
//!
//! stdout is the protocol; the limits in force and the log go to stderr. It ends when its input ends or when it is told
//! to (TERM, INT, HUP), without waiting for its input to move, and ends its processes first.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll::CloseReason;
use plimsoll_exec::{ExecServer, Limits};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, note};
use crate::limit_flags::{self, LimitFlags};

/// Run processes for a client.
///
/// Speaks JSON-RPC, one message a line, on stdin and stdout. Prints its limits in one line on stderr. Ends, with its
/// processes, when stdin ends or on SIGTERM.
#[derive(Debug, Args)]
#[command(
    after_help = "A limit is a number (sizes take KiB, MiB or GiB after it; durations are seconds, or take ms, s or m) or \
                        `off`. By default message-bytes is 64MiB here, skip-bytes and cap 256MiB, number-bytes off."
)]
pub(crate) struct ExecServerArguments {
    /// Where to take the client from
    #[arg(long, value_enum, value_name = "WHERE")]
    listen: Listen,

    /// Do not print the limits
    #[arg(long, hide = true)]
    quiet: bool,

    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Listen {
    /// stdin and stdout
    Stdio,
}

/// Runs the command.
///
/// # Errors
///
/// When the connection breaks otherwise than by its end.
pub(crate) fn run(arguments: &ExecServerArguments) -> Result<ExitCode, Failure> {
    let mut limits = Limits::exec();
    arguments.limits.apply(&mut limits).map_err(|error| Failure::ours(error.to_string()))?;
    limit_flags::suffice_for_processes(&limits)?;
    let lowered = limits.clamp();
    if !arguments.quiet {
        lowered.iter().for_each(note);
    }
    let Listen::Stdio = arguments.listen;
    if !arguments.quiet {
        note(format_args!("exec-server on stdio, limits: {limits}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    let reason = runtime.block_on(serve(limits)).map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    // Every process has ended. A start that hangs in the system is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match reason {
        CloseReason::Closed | CloseReason::EndOfInput => Ok(ExitCode::SUCCESS),
        // The client closed its end of the pipe.
        CloseReason::Io { kind: io::ErrorKind::BrokenPipe, .. } => Ok(ExitCode::SUCCESS),
        reason => Err(Failure::ours(reason.to_string())),
    }
}

async fn serve(limits: Limits) -> io::Result<CloseReason> {
    let stop = stop()?;
    let server = ExecServer::new(limits);
    Ok(server.serve(plimsoll::stdio::stdin()?, plimsoll::stdio::stdout()?, stop).await)
}

/// Ready when this process is told to end.
fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
