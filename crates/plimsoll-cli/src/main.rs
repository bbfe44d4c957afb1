//! The `plimsoll` command: reads the command line and hands over to the command's own file.
//!
//! | file | what |
//! |---|---|
//! | `run.rs` | `plimsoll run`; `signals.rs` is what it listens to |
//! | `exec_server.rs` | `plimsoll exec-server` |
//! | `check.rs` | `plimsoll check`; `row.rs` and `summary.rs` are what it prints |
//! | `limit_flags.rs` | one flag a limit, for every command that takes limits |
//! | `usage.rs`, `failure.rs` | how a bad command line and a failure are told: one line, one exit code |
//! | `progress.rs` | the bar on a terminal |
#![forbid(unsafe_code)]

mod check;
mod exec_server;
mod failure;
mod limit_flags;
mod progress;
mod row;
mod run;
mod signals;
mod summary;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// glibc's allocator keeps what was freed after a large message; this one gives pages back.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bounded JSON-RPC with peers that you do not trust.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArguments),
    ExecServer(exec_server::ExecServerArguments),
    Check(check::CheckArguments),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        // A log that cannot be written must not end the program.
        .log_internal_errors(false)
        .init();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::tell(&error),
    };
    let ended = match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::ExecServer(arguments) => exec_server::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
    };
    ended.unwrap_or_else(|failure| failure.tell())
}
