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
//! | 141 | our stdout was closed by its reader, so the command was ended: 128 + SIGPIPE |

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll::stdio::{BlockingReader, BlockingWriter};
use plimsoll::{CallError, ChildProcess, ChildStderrTo, CloseReason, Deadline};
use plimsoll_exec::wire::{SpawnFailure, Stream, WriteStatus};
use plimsoll_exec::{
    EnvPolicy, ExecClient, Inherit, Limits, PathUri, ProcessEvent, ProcessEvents, ProcessOptions, RemoteProcess,
    StartError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, note};
use crate::limit_flags::LimitFlags;

/// Run a command through an embedded exec-server.
///
/// stdin is passed to the command, its stdout and stderr come back apart, Ctrl-C reaches it, and its exit code is kept
/// (128 + signal when a signal ended it). 127: there is no such command; 126: it may not be run; 125: Plimsoll failed.
#[derive(Debug, Args)]
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
    let mut signals = Signals::new().map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    let options = options(&arguments)?;
    let server = server_command(&arguments)?;
    let (mut child, reader, writer) = ChildProcess::spawn(server, ChildStderrTo::Tail)
        .map_err(|error| Failure::ours(format!("cannot start the exec-server: {error}")))?;
    let grace = limits.grace();
    let (client, work) = ExecClient::connect(limits, reader, writer);
    let work = tokio::spawn(work);

    let outcome = converse(&client, options, &mut signals).await;
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
            // A server that died is asked why; one that lives is ended.
            let status = match tokio::time::timeout(DYING, child.wait()).await {
                Ok(Ok(status)) => format!("; the exec-server ended with {status}"),
                _ => String::new(),
            };
            let said = child.stderr_tail();
            let said = match said.lines().rfind(|line| !line.trim().is_empty()) {
                Some(line) => format!(", its last words: {line}"),
                None => String::new(),
            };
            let _ = child.shutdown(Deadline::After(DYING)).await;
            let why = if what.is_empty() { ended.to_string() } else { what };
            Err(Failure::ours(format!("{why}{status}{said}")))
        }
    }
}

/// How long a server that broke the connection has to be gone.
const DYING: std::time::Duration = std::time::Duration::from_millis(500);

/// What the command is started with.
fn options(arguments: &RunArguments) -> Result<ProcessOptions, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::ours(format!("the current directory cannot be used: {error}")))?;
    let cwd = arguments.cwd.as_ref().map_or_else(|| here.clone(), |cwd| here.join(cwd));
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
async fn converse(client: &ExecClient, options: ProcessOptions, signals: &mut Signals) -> Result<u8, Broken> {
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

    let mut feeding = std::pin::pin!(feed(&process));
    let mut fed = false;
    let mut showing = std::pin::pin!(show(&mut events, &process));
    let mut interrupts = 0;
    loop {
        tokio::select! {
            shown = &mut showing => return shown,
            result = &mut feeding, if !fed => {
                fed = true;
                if let Err(error) = result {
                    // The command may not need its input; if the connection broke, its output ends too.
                    note(format_args!("stdin is not passed on any more: {error}"));
                }
            }
            signal = signals.next() => {
                interrupts += u32::from(signal == Told::Interrupt);
                // Who presses Ctrl-C a third time wants it gone.
                let asked = if signal == Told::Interrupt && interrupts < 3 {
                    process.interrupt().await
                } else {
                    process.terminate().await.map(|_| ())
                };
                asked?;
            }
        }
    }
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

/// Bytes of stdin sent in one message.
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
async fn show(events: &mut ProcessEvents, process: &RemoteProcess) -> Result<u8, Broken> {
    let open = |writer: io::Result<BlockingWriter>| {
        writer.map_err(|error| Broken::Told(Failure::ours(format!("cannot write: {error}"))))
    };
    let (mut stdout, mut stderr) = (open(plimsoll::stdio::stdout())?, open(plimsoll::stdio::stderr())?);
    let mut code = None;
    // What to end with when our own output cannot be written.
    let mut unwritable: Option<Result<u8, Failure>> = None;
    while let Some(event) = events.next().await {
        let written = match event {
            ProcessEvent::Output { stream: Stream::Stderr, bytes, .. } => {
                // Without a reader of stderr the command goes on.
                let _ = stderr.write_all(&bytes).await;
                Ok(())
            }
            ProcessEvent::Output { bytes, .. } if unwritable.is_none() => stdout.write_all(&bytes).await,
            ProcessEvent::Exited { code: exit, .. } => {
                code = Some(exit);
                Ok(())
            }
            ProcessEvent::Closed => {
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
            process.terminate().await?;
        }
    }
    match (unwritable, code) {
        (Some(ending), _) => ending.map_err(Broken::Told),
        (None, Some(code)) => Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
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

/// What this process may be told while the command runs.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Hangup,
    Interrupt,
    Terminate,
}

impl Told {
    fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.terminate.recv() => Told::Terminate,
            _ = self.hangup.recv() => Told::Hangup,
        }
    }
}
