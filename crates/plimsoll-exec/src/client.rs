//! The client's side: start a process on the other machine, and read what it says.
//!
//! Output comes in order and without a gap: a gap in the numbers is reported as [`ProcessEvent::Lost`], never passed
//! over. A consumer that does not read holds the connection back, and with it the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::{
    Budget, CallError, Charge, CloseReason, Deadline, Dialect, INTERNAL_ERROR, Limits, OVERLOADED, Peer, PeerBuilder,
    Router, RpcError,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::env_policy::EnvPolicy;
use crate::path_uri::PathUri;
use crate::wire::{
    self, CloseStdinParams, ClosedParams, Empty, EnvironmentInfo, ExitedParams, InitializeParams, InitializeResult,
    OutputParams, Signal, SignalParams, SpawnFailure, SpawnFailureData, StartParams, StartResult, Stream,
    TerminateParams, TerminateResult, WriteParams, WriteResult, WriteStatus,
};

/// How long a server has to answer `initialize`, at most.
const INITIALIZE: Duration = Duration::from_secs(30);
/// Events of one process that wait to be read; the next holds the connection back.
const EVENTS: usize = 16;

/// A session with an exec-server.
#[derive(Clone, Debug)]
pub struct ExecClient {
    peer: Peer,
    sinks: Sinks,
    next: Arc<AtomicU64>,
}

/// What a process on the other machine is started with.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The program and its arguments; not empty.
    pub argv: Vec<String>,
    /// Where it starts.
    pub cwd: PathUri,
    /// Its environment: all of it without a policy, the top layer with one.
    pub env: BTreeMap<String, String>,
    /// What it inherits from the server's environment.
    pub env_policy: Option<EnvPolicy>,
    /// Whether standard input is a pipe that [`RemoteProcess::write`] fills.
    pub pipe_stdin: bool,
}

/// What a process says.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessEvent {
    /// It wrote something.
    Output {
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
        /// Pays for `bytes`; keep it as long as them.
        charge: Charge,
    },
    /// It ended. Output may still follow.
    Exited {
        /// The exit code; 128 + signal when a signal ended it.
        code: i32,
        /// The signal that ended it, when the server says so.
        signal: Option<i32>,
    },
    /// Nothing comes after this.
    Closed,
    /// Notifications are missing: the next has a higher number than expected.
    Lost {
        /// The number that was expected.
        expected: u64,
        /// The number that came.
        came: u64,
    },
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server says why, by kind.
    #[error("{message}")]
    Spawn {
        /// What went wrong.
        kind: SpawnFailure,
        /// The server's sentence.
        message: String,
    },
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Where the notifications about each process go.
type Sinks = Arc<Mutex<HashMap<String, Sink>>>;

#[derive(Debug)]
struct Sink {
    events: mpsc::Sender<ProcessEvent>,
    // The seq of the next notification.
    next: u64,
}

impl ExecClient {
    /// A client over a byte stream, and the work that must run for it to go on.
    pub fn connect<R, W>(limits: Limits, reader: R, writer: W) -> (Self, impl Future<Output = CloseReason>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let sinks = Sinks::default();
        let (peer, connection) = PeerBuilder::new(limits)
            .dialect(Dialect::Bare)
            .notifications_are_vital()
            .router(router(&sinks))
            .connect(reader, writer);
        let client = Self { peer, sinks: sinks.clone(), next: Arc::new(AtomicU64::new(1)) };
        // However the work ends, who waits for events hears that there will be none.
        let silence = Silence(sinks);
        let work = async move {
            let _silence = silence;
            connection.run().await
        };
        (client, work)
    }

    /// Opens the session.
    ///
    /// # Errors
    ///
    /// The server refuses, does not answer within 30 s or within `call_deadline` if that is shorter, or is no
    /// exec-server.
    pub async fn initialize(&self, client_name: &str) -> Result<EnvironmentInfo, CallError> {
        let params = InitializeParams { client_name: client_name.into(), resume_session_id: None, plimsoll: None };
        let span = self.peer.limits().call_deadline().span();
        let deadline = Deadline::After(span.map_or(INITIALIZE, |span| span.min(INITIALIZE)));
        let InitializeResult { environment_info, .. } =
            self.peer.call_within(deadline, wire::INITIALIZE, &params).await?;
        self.peer.notify(wire::INITIALIZED, &Empty {}).await?;
        match environment_info {
            Some(info) => Ok(info),
            None => self.peer.call_within(deadline, wire::ENVIRONMENT_INFO, &Empty {}).await,
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing runs then, unless the connection ended before the answer came.
    pub async fn start(&self, options: ProcessOptions) -> Result<(RemoteProcess, ProcessEvents), StartError> {
        let process_id = format!("p{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (events, receiver) = mpsc::channel(EVENTS);
        // Output may come right behind the answer.
        lock(&self.sinks).insert(process_id.clone(), Sink { events, next: 1 });
        let mut sink = Registered { sinks: &self.sinks, process_id: Some(process_id.clone()) };
        let params = StartParams {
            process_id: process_id.clone(),
            argv: options.argv,
            cwd: options.cwd,
            env: options.env,
            tty: false,
            pipe_stdin: options.pipe_stdin,
            arg0: None,
            env_policy: options.env_policy,
            sandbox: None,
            enforce_managed_network: false,
        };
        self.peer.call::<StartResult>(wire::PROCESS_START, &params).await.map_err(start_error)?;
        sink.process_id = None;
        let process = RemoteProcess { peer: self.peer.clone(), id: process_id, writes: AtomicU64::new(1) };
        Ok((process, ProcessEvents { receiver }))
    }

    /// The peer below.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

struct Silence(Sinks);

impl Drop for Silence {
    fn drop(&mut self) {
        lock(&self.0).clear();
    }
}

/// A place for a process's notifications, given up again unless the process runs.
struct Registered<'a> {
    sinks: &'a Sinks,
    process_id: Option<String>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(process_id) = &self.process_id {
            lock(self.sinks).remove(process_id);
        }
    }
}

/// Whether the server says that trying again can help; one that says nothing about it is taken to.
fn is_retryable(error: &RpcError) -> bool {
    error.data.as_ref().and_then(|data| data.get("retryable")).and_then(|retryable| retryable.as_bool()) != Some(false)
}

fn start_error(error: CallError) -> StartError {
    if let CallError::Rpc(rpc) = &error
        && rpc.code == INTERNAL_ERROR
        && let Some(data) = &rpc.data
        && let Ok(SpawnFailureData { kind }) = serde_json::from_value(data.clone())
    {
        return StartError::Spawn { kind, message: plimsoll::Printable::new(&rpc.message, 500).to_string() };
    }
    error.into()
}

/// A process on the other machine.
///
/// Answers come in line with what the process writes. Who waits for one must also read the [`ProcessEvents`], or both
/// wait for ever once everything on the way is full: call from another task than the one that reads them.
#[derive(Debug)]
pub struct RemoteProcess {
    peer: Peer,
    id: String,
    writes: AtomicU64,
}

impl RemoteProcess {
    /// Writes to its standard input. Waits until the server has taken all of it; where the process is slow to read, the
    /// server says so and the write is tried again under its id, so it is written once.
    ///
    /// # Errors
    ///
    /// The call failed. [`WriteStatus`] says whether the process takes input at all.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<WriteStatus, CallError> {
        let write_id = self.writes.fetch_add(1, Ordering::Relaxed).to_string();
        let params = WriteParams { process_id: self.id.clone(), chunk: bytes.into(), write_id };
        loop {
            match self.peer.call::<WriteResult>(wire::PROCESS_WRITE, &params).await {
                Ok(WriteResult { status: WriteStatus::Starting }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(result) => return Ok(result.status),
                Err(CallError::Rpc(error)) if error.code == OVERLOADED && is_retryable(&error) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes its standard input after what was written.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub async fn close_stdin(&self) -> Result<(), CallError> {
        let params = CloseStdinParams { process_id: self.id.clone() };
        self.peer.call::<Empty>(wire::PROCESS_CLOSE_STDIN, &params).await.map(|_| ())
    }

    /// Sends its group SIGINT, as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub async fn interrupt(&self) -> Result<(), CallError> {
        let params = SignalParams { process_id: self.id.clone(), signal: Signal::Interrupt };
        self.peer.call::<Empty>(wire::PROCESS_SIGNAL, &params).await.map(|_| ())
    }

    /// Ends it: TERM, a grace, KILL. Returns at once, with whether it was running.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub async fn terminate(&self) -> Result<bool, CallError> {
        let params = TerminateParams { process_id: self.id.clone() };
        self.peer.call::<TerminateResult>(wire::PROCESS_TERMINATE, &params).await.map(|result| result.running)
    }
}

/// What a process says, in order.
#[derive(Debug)]
pub struct ProcessEvents {
    receiver: mpsc::Receiver<ProcessEvent>,
}

impl ProcessEvents {
    /// The next event; `None` after [`ProcessEvent::Closed`], or when the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn next(&mut self) -> Option<ProcessEvent> {
        self.receiver.recv().await
    }
}

fn router(sinks: &Sinks) -> Router {
    let [output, exited, closed] = [sinks.clone(), sinks.clone(), sinks.clone()];
    Router::new()
        .notification(wire::PROCESS_OUTPUT, move |context, params: OutputParams| {
            let sinks = output.clone();
            async move {
                let bytes = params.chunk.0;
                if let Some(charge) = charge(context.peer().budget(), bytes.capacity()).await {
                    let event = ProcessEvent::Output { stream: params.stream, bytes, charge };
                    deliver(&sinks, &params.process_id, params.seq, event).await;
                }
            }
        })
        .notification(wire::PROCESS_EXITED, move |_, params: ExitedParams| {
            let sinks = exited.clone();
            async move {
                let signal = params.plimsoll.and_then(|additions| additions.signal);
                let event = ProcessEvent::Exited { code: params.exit_code, signal };
                deliver(&sinks, &params.process_id, params.seq, event).await;
            }
        })
        .notification(wire::PROCESS_CLOSED, move |_, params: ClosedParams| {
            let sinks = closed.clone();
            async move {
                deliver(&sinks, &params.process_id, params.seq, ProcessEvent::Closed).await;
                lock(&sinks).remove(&params.process_id);
            }
        })
}

/// Waits until there is room for output: nothing may be lost, and events that are read give room back.
async fn charge(budget: &Budget, bytes: usize) -> Option<Charge> {
    loop {
        match budget.try_charge(bytes as u64) {
            Ok(charge) => return Some(charge),
            Err(no_room) if no_room.asked > no_room.limit => return None,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn deliver(sinks: &Sinks, process_id: &str, seq: u64, event: ProcessEvent) {
    let (events, expected) = match lock(sinks).get_mut(process_id) {
        Some(sink) => (sink.events.clone(), std::mem::replace(&mut sink.next, seq.saturating_add(1))),
        None => return,
    };
    if seq != expected {
        let _ = events.send(ProcessEvent::Lost { expected, came: seq }).await;
    }
    // A consumer that is gone wants no more of it.
    let _ = events.send(event).await;
}

fn lock(sinks: &Sinks) -> std::sync::MutexGuard<'_, HashMap<String, Sink>> {
    sinks.lock().unwrap_or_else(PoisonError::into_inner)
}
