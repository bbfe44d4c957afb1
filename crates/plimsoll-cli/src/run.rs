//! `plimsoll run`: runs a command through an exec-server and behaves like the command.
//!
//! The server is this program itself, started as a child and spoken to over its stdin and stdout. stdin goes to the
//! command up to its end, stdout and stderr come back apart, Ctrl-C reaches the command, and its exit code is ours.
//!
//! | code | when |
//! |---|---|
//! | the command's | it ended; 128 + signal when a signal ended it |
//! | 125 | Plimsoll failed |
//! | 126, 127 | the command may not be run, or is not there |
//! | 141 | our stdout or stderr was closed by its reader, so the command was ended: 128 + SIGPIPE |
//!
//! What the command is asked (interrupt, terminate) is asked beside everything else: the answer comes behind what the
//! command wrote, so who waited for it and showed nothing would wait for ever.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plimsoll::stdio::{BlockingReader, BlockingWriter};
use plimsoll::{CallError, ChildProcess, ChildStderrTo, CloseReason, Deadline};
use plimsoll_exec::wire::{SpawnFailure, Stream, WriteStatus};
use plimsoll_exec::{
    EnvPolicy, ExecClient, Inherit, Limits, PathUri, ProcessEvent, ProcessEvents, ProcessOptions, RemoteProcess,
    StartError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::failure::{Failure, note};
use crate::limit_flags::{self, LimitFlags, flag};
use crate::signals::{Signals, Told};

/// Run a command through an embedded exec-server.
///
/// stdin is passed to the command, its stdout and stderr come back apart, Ctrl-C reaches it, and its exit code is kept
/// (128 + signal when a signal ended it). 127: there is no such command; 126: it may not be run; 125: Plimsoll failed.
#[derive(Debug, Args)]
#[command(
    after_help = "A limit is a number (sizes take KiB, MiB or GiB after it; durations are seconds, or take ms, s or m) or \
                        `off`. By default message-bytes is 64MiB here, skip-bytes and cap 256MiB, number-bytes off; the \
                        embedded server has stall-deadline off and outgoing-bytes 1MiB. The limits hold on both sides, \
                        but a server of your own (--server) has its own."
)]
pub(crate) struct RunArguments {
    /// Where the command starts; here by default
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,

    /// Set a variable of the command's environment, which else is this one
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,

    /// Use this exec-server in place of the embedded one: it is run as `PROGRAM exec-server --listen stdio`
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,

    #[command(flatten)]
    limits: LimitFlags,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".into()),
    }
}

/// Runs the command.
///
/// # Errors
///
/// When the command could not be run to its end.
pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    runtime.block_on(run_command(arguments)).map(ExitCode::from)
}

async fn run_command(arguments: RunArguments) -> Result<u8, Failure> {
    let mut limits = Limits::exec();
    arguments.limits.apply(&mut limits).map_err(|error| Failure::ours(error.to_string()))?;
    limit_flags::suffice_for_processes(&limits)?;
    // The command's stderr is not the place to say what was lowered.
    let _ = limits.clamp();
    let mut signals = Signals::new().map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    let options = options(&arguments)?;
    let server = server_command(&arguments)?;
    let program = server.as_std().get_program().display().to_string();
    let (mut child, reader, writer) = ChildProcess::spawn(server, ChildStderrTo::Tail)
        .map_err(|error| Failure::ours(format!("cannot start the exec-server {program}: {error}")))?;
    let grace = limits.grace();
    let (client, work) = ExecClient::connect(limits, reader, writer);
    let work = tokio::spawn(work);

    let outcome = converse(&client, options, &mut signals, grace).await;
    client.peer().close();
    let ended = work.await.unwrap_or(CloseReason::Closed);
    match outcome {
        Ok(code) => {
            let _ = child.shutdown(grace).await;
            Ok(code)
        }
        Err(Broken::Told(failure)) => {
            let _ = child.shutdown(grace).await;
            Err(failure)
        }
        Err(Broken::Connection(what)) => {
            let mut sentence = if what.is_empty() { ended.to_string() } else { what };
            let nonsense = client.peer().counters().refused;
            if nonsense > 0 {
                sentence += &format!("; {nonsense} of the exec-server's lines were no messages or over a limit");
            }
            sentence += &last_words(&mut child).await;
            let _ = child.shutdown(Deadline::After(DYING)).await;
            Err(Failure::ours(sentence))
        }
    }
}

/// How long a server that broke the connection has to be gone.
const DYING: Duration = Duration::from_millis(500);

/// How a server that died ended, and what it said last; nothing of one that lives.
async fn last_words(child: &mut ChildProcess) -> String {
    let Ok(Ok(status)) = tokio::time::timeout(DYING, child.wait()).await else { return String::new() };
    // What it wrote before it died may still be on its way: it has come when nothing more comes.
    let mut said = child.stderr_tail();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = child.stderr_tail();
        if now == said {
            break;
        }
        said = now;
    }
    match said.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!("; the exec-server ended with {status}, its last words: {line}"),
        None => format!("; the exec-server ended with {status}"),
    }
}

/// What the command is started with.
fn options(arguments: &RunArguments) -> Result<ProcessOptions, Failure> {
    let cwd = match &arguments.cwd {
        Some(cwd) if cwd.is_absolute() => cwd.clone(),
        relative => {
            let here = std::env::current_dir()
                .map_err(|error| Failure::ours(format!("the current directory cannot be used: {error}")))?;
            relative.as_ref().map_or_else(|| here.clone(), |cwd| here.join(cwd))
        }
    };
    // Resolved as the system does, so that `..` behind a link is where it leads.
    let cwd = cwd
        .canonicalize()
        .map_err(|error| Failure::ours(format!("the directory {} cannot be used: {error}", cwd.display())))?;
    let cwd = PathUri::from_path(&cwd)
        .map_err(|error| Failure::ours(format!("the directory {} cannot be used: {error}", cwd.display())))?;
    Ok(ProcessOptions {
        argv: arguments.command.clone(),
        cwd,
        env: arguments.variables.iter().cloned().collect(),
        env_policy: Some(EnvPolicy {
            inherit: Inherit::All,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: BTreeMap::new(),
            include_only: Vec::new(),
        }),
        pipe_stdin: true,
    })
}

/// What the embedded server's limits are unless they are given. Who reads the command's output may stop for as long as it
/// likes, as `less` does; and what waits for it need not be much.
const EMBEDDED: [(&str, &str); 2] = [("stall_deadline", "off"), ("outgoing_bytes", "1MiB")];

fn server_command(arguments: &RunArguments) -> Result<tokio::process::Command, Failure> {
    let (program, embedded) = match &arguments.server {
        Some(program) => (program.clone(), false),
        None => {
            let this = std::env::current_exe();
            (this.map_err(|error| Failure::ours(format!("cannot find this program: {error}")))?, true)
        }
    };
    let mut command = tokio::process::Command::new(program);
    command.args(["exec-server", "--listen", "stdio"]);
    if embedded {
        command.arg("--quiet").args(arguments.limits.as_arguments());
        for (name, value) in EMBEDDED {
            if !arguments.limits.is_given(name) {
                command.arg(format!("--{}", flag(name))).arg(value);
            }
        }
    }
    Ok(command)
}

/// Why there is no exit code.
enum Broken {
    /// The connection ended or a call failed; what is known of the server belongs into the sentence.
    Connection(String),
    Told(Failure),
}

impl From<CallError> for Broken {
    fn from(error: CallError) -> Self {
        Self::Connection(error.to_string())
    }
}

/// Opens the session, starts the command and carries everything until it is closed.
async fn converse(
    client: &ExecClient,
    options: ProcessOptions,
    signals: &mut Signals,
    grace: Deadline,
) -> Result<u8, Broken> {
    let starting = async {
        client.initialize(concat!("plimsoll-run/", env!("CARGO_PKG_VERSION"))).await?;
        client.start(options).await.map_err(|error| match error {
            StartError::Spawn { kind: SpawnFailure::SpawnNotFound, message } => {
                Broken::Told(Failure::not_found(message))
            }
            StartError::Spawn { kind: SpawnFailure::SpawnPermissionDenied, message } => {
                Broken::Told(Failure::not_executable(message))
            }
            StartError::Spawn { message, .. } => Broken::Told(Failure::ours(message)),
            StartError::Call(CallError::Rpc(error)) => Broken::Told(Failure::ours(error.to_string())),
            StartError::Call(error) => error.into(),
            error => Broken::Connection(error.to_string()),
        })
    };
    let (process, mut events) = tokio::select! {
        started = starting => started?,
        signal = signals.next() => return Ok(128 + signal.number()),
    };

    let process = Arc::new(process);
    let shown_events = Cell::new(0);
    let mut feeding = pin!(feed(&process));
    let mut fed = false;
    let mut showing = pin!(show(&mut events, &process, &shown_events));
    let mut interrupts = 0;
    let mut told_to_end: Option<Told> = None;
    let mut patience = Patience::default();
    loop {
        tokio::select! {
            shown = &mut showing => return shown,
            result = &mut feeding, if !fed => {
                fed = true;
                match result {
                    // Then the output ends too, and that is told.
                    Ok(()) | Err(CallError::Closed(_)) => {}
                    // The command may not need its input.
                    Err(error) => note(format_args!("stdin is not passed on any more: {error}")),
                }
            }
            signal = signals.next() => {
                interrupts += u32::from(signal == Told::Interrupt);
                // Who presses Ctrl-C a third time wants it gone.
                if signal == Told::Interrupt && interrupts < 3 {
                    ask(&process, Ask::Interrupt);
                } else {
                    ask(&process, Ask::Terminate);
                    told_to_end.get_or_insert(signal);
                    patience.begin(grace, shown_events.get());
                }
            }
            () = patience.is_over() => {
                // The command is gone by now; nobody takes what it wrote.
                if let (false, Some(signal)) = (patience.goes_on(grace, shown_events.get()), told_to_end) {
                    return Ok(128 + signal.number());
                }
            }
        }
    }
}

/// How long is waited for a command that was told to end: as long as something of it is shown in time.
#[derive(Debug, Default)]
struct Patience {
    // The end, and what was shown when it was set.
    until: Option<(Instant, u64)>,
}

impl Patience {
    fn begin(&mut self, grace: Deadline, shown: u64) {
        if self.until.is_none() {
            self.until = Self::from_now(grace, shown);
        }
    }

    fn from_now(grace: Deadline, shown: u64) -> Option<(Instant, u64)> {
        /// For the ways there and back.
        const MORE: Duration = Duration::from_secs(1);
        // The command has its grace, and so has what holds its pipes.
        let span = grace.span()?.saturating_mul(2).saturating_add(MORE);
        Some((Instant::now().checked_add(span)?, shown))
    }

    async fn is_over(&self) {
        match self.until {
            Some((until, _)) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Once it is over: whether something was shown meanwhile, so that it begins again.
    fn goes_on(&mut self, grace: Deadline, shown: u64) -> bool {
        let has_moved = self.until.is_some_and(|(_, before)| before != shown);
        self.until = Self::from_now(grace, shown);
        has_moved
    }
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Interrupt,
    Terminate,
}

/// Asks the command without waiting. When the call fails the connection has ended, and with it the command's output.
fn ask(process: &Arc<RemoteProcess>, what: Ask) {
    let process = process.clone();
    tokio::spawn(async move {
        let _ = match what {
            Ask::Interrupt => process.interrupt().await,
            Ask::Terminate => process.terminate().await.map(|_| ()),
        };
    });
}

/// Passes stdin on, to its end or until the command takes no more.
async fn feed(process: &RemoteProcess) -> Result<(), CallError> {
    let Ok(mut stdin) = plimsoll::stdio::stdin() else { return process.close_stdin().await };
    let mut buffer = vec![0; FEED_BYTES];
    loop {
        match read(&mut stdin, &mut buffer).await {
            0 => return process.close_stdin().await,
            read => {
                if process.write(buffer[..read].to_vec()).await? != WriteStatus::Accepted {
                    return Ok(());
                }
            }
        }
    }
}

/// Bytes of stdin sent in one message, at most.
const FEED_BYTES: usize = 32 * 1024;

/// Reads what is there, at least one byte; 0 at the end and when reading fails.
async fn read(stdin: &mut BlockingReader, buffer: &mut [u8]) -> usize {
    match stdin.read(buffer).await {
        Ok(read) => read,
        Err(error) => {
            note(format_args!("stdin cannot be read: {error}"));
            0
        }
    }
}

/// Shows what the command says until it is closed; its exit code.
async fn show(events: &mut ProcessEvents, process: &Arc<RemoteProcess>, shown: &Cell<u64>) -> Result<u8, Broken> {
    let open = |writer: io::Result<BlockingWriter>| {
        writer.map_err(|error| Broken::Told(Failure::ours(format!("cannot write: {error}"))))
    };
    let (mut stdout, mut stderr) = (open(plimsoll::stdio::stdout())?, open(plimsoll::stdio::stderr())?);
    let mut code = None;
    let mut closed = false;
    // What to end with when our own output cannot be written.
    let mut unwritable: Option<Result<u8, Failure>> = None;
    while let Some(event) = events.next().await {
        let written = match event {
            ProcessEvent::Output { stream: Stream::Stderr, bytes, .. } => {
                // A reader that left ends the command; a disk that is full does not.
                match stderr.write_all(&bytes).await {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe && unwritable.is_none() => Err(error),
                    _ => Ok(()),
                }
            }
            ProcessEvent::Output { bytes, .. } if unwritable.is_none() => stdout.write_all(&bytes).await,
            ProcessEvent::Exited { code: exit, .. } => {
                code = Some(exit);
                Ok(())
            }
            ProcessEvent::Closed => {
                closed = true;
                let flushed = stdout.flush().await;
                let _ = stderr.flush().await;
                if let (Err(error), None) = (flushed, &unwritable) {
                    unwritable = Some(cannot_write(&error));
                }
                break;
            }
            ProcessEvent::Lost { expected, came } => {
                let text = format!("output was lost on the way: message {expected} was expected, {came} came");
                return Err(Broken::Told(Failure::ours(text)));
            }
            _ => Ok(()),
        };
        if let Err(error) = written {
            unwritable = Some(cannot_write(&error));
            ask(process, Ask::Terminate);
        }
        shown.set(shown.get() + 1);
    }
    match (unwritable, code) {
        (Some(ending), _) => ending.map_err(Broken::Told),
        (None, Some(code)) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, None) if closed => Err(Broken::Told(Failure::ours("the exec-server did not say how the command ended"))),
        (None, None) => Err(Broken::Connection(String::new())),
    }
}

/// A reader that left ends the command as SIGPIPE would; anything else is a failure.
fn cannot_write(error: &io::Error) -> Result<u8, Failure> {
    const PIPE: u8 = 13;
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(128 + PIPE),
        _ => Err(Failure::ours(format!("cannot write to stdout: {error}"))),
    }
}
