//! One client's session with the server: the handshake, and the processes it started.
//!
//! The exchange: `initialize` is answered with what this machine is, `initialized` opens the session, and calls follow.
//! A call that comes too early is answered with what is missing. Calls begin in the order received, so a write that
//! follows a start on the wire finds the process; `process/start` and writes then go on in tasks of their own, and
//! signal, terminate and status never wait for them.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll::{
    Charge, Decoded, INVALID_REQUEST, Limits, OVERLOADED, Peer, Printable, Reason, Refusal, Request, Responder, Router,
    RpcError,
};
use rustix::process::Signal as UnixSignal;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::env_policy::environment;
use crate::process::{PROCESS_BYTES, Process, Started};
use crate::stdin;
use crate::wire::{
    self, CloseStdinParams, Empty, EnvironmentInfo, EnvironmentStatus, InitializeParams, InitializeResult, Readiness,
    SessionId, Signal, SignalParams, SpawnFailure, StartParams, StartResult, TerminateParams, TerminateResult,
    WriteParams, WriteStatus,
};

/// How long an ended process is remembered by its id, as the reference.
const REMEMBERED: Duration = Duration::from_secs(80);
/// How many ended processes are remembered.
const ENDED_MOST: usize = 1024;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Session {
    limits: Limits,
    info: EnvironmentInfo,
    phase: Mutex<Phase>,
    processes: Mutex<Processes>,
    /// Cancelled when the session ends: every process is then asked to end.
    ends: CancellationToken,
    /// Bytes that were read after a process was closed, from others that held its pipes.
    discarded: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Initialized,
    Open,
}

#[derive(Debug, Default)]
struct Processes {
    by_id: HashMap<String, Entry>,
    // Ids of ended processes, the one that ended first in front; at most `ENDED_MOST`.
    ended: VecDeque<(Instant, String)>,
    // How many are not closed yet.
    alive: u64,
    tasks: JoinSet<()>,
    // The session was killed: what starts now is killed too.
    killed: bool,
}

#[derive(Debug)]
struct Entry {
    process: Arc<Process>,
    /// For the id and the entry, as long as it is remembered.
    _charge: Charge,
}

impl Session {
    pub(crate) fn new(limits: &Limits, info: &EnvironmentInfo) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.clone(),
            info: info.clone(),
            phase: Mutex::new(Phase::New),
            processes: Mutex::default(),
            ends: CancellationToken::new(),
            discarded: Arc::default(),
        })
    }

    /// The methods of this session.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let router = Router::new().notification_at_once(wire::INITIALIZED, {
            let session = self.clone();
            move |_| session.initialized()
        });
        let router = self.method(router, wire::INITIALIZE, Self::initialize);
        let router = self.method(router, wire::ENVIRONMENT_INFO, Self::environment_info);
        let router = self.method(router, wire::ENVIRONMENT_STATUS, Self::environment_status);
        let router = self.method(router, wire::PROCESS_START, Self::start);
        let router = self.method(router, wire::PROCESS_WRITE, Self::write);
        let router = self.method(router, wire::PROCESS_SIGNAL, Self::signal);
        let router = self.method(router, wire::PROCESS_TERMINATE, Self::terminate);
        self.method(router, wire::PROCESS_CLOSE_STDIN, Self::close_stdin)
    }

    /// Registers a method whose calls begin in the order received: `begin` runs then, and the future that it returns
    /// answers, in a task of its own.
    fn method<P, Fut>(
        self: &Arc<Self>,
        router: Router,
        name: &'static str,
        begin: impl Fn(&Arc<Self>, Decoded<P>, Call) -> Fut + Send + Sync + 'static,
    ) -> Router
    where
        P: DeserializeOwned + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let session = self.clone();
        router.request_in_order(name, move |request: Request, responder: Responder| {
            let open = if name == wire::INITIALIZE { Ok(()) } else { session.is_open() };
            match open.and_then(|()| request.params::<P>().map_err(RpcError::from)) {
                Ok(params) => {
                    let peer = request.context().peer().clone();
                    Some(begin(&session, params, Call { peer, responder }))
                }
                Err(error) => {
                    responder.fail(error);
                    None
                }
            }
        })
    }

    fn is_open(&self) -> Result<(), RpcError> {
        let missing = match *lock(&self.phase) {
            Phase::New => "call `initialize` first",
            Phase::Initialized => "send the notification `initialized` first",
            Phase::Open => return Ok(()),
        };
        Err(RpcError::new(INVALID_REQUEST, format!("the session is not open yet: {missing}")))
    }

    fn initialize(self: &Arc<Self>, params: Decoded<InitializeParams>, call: Call) -> impl Future<Output = ()> + use<> {
        let outcome = self.open(&params);
        async move { call.responder.respond(outcome).await }
    }

    fn open(&self, params: &InitializeParams) -> Result<InitializeResult, RpcError> {
        let refuse = |text: &str| Err(RpcError::new(INVALID_REQUEST, text));
        if params.resume_session_id.is_some() {
            return refuse("there is no session with this id; initialize without resumeSessionId");
        }
        let session_id =
            SessionId::random().map_err(|error| RpcError::internal(format!("no random numbers: {error}")))?;
        let mut phase = lock(&self.phase);
        if *phase != Phase::New {
            return refuse("the session is initialized already");
        }
        *phase = Phase::Initialized;
        tracing::info!("session opened by {}", Printable::new(&params.client_name, 64));
        Ok(InitializeResult { session_id, environment_info: Some(self.info.clone()) })
    }

    fn initialized(&self) {
        let mut phase = lock(&self.phase);
        if *phase == Phase::Initialized {
            *phase = Phase::Open;
        }
    }

    fn environment_info(self: &Arc<Self>, _: Decoded<Empty>, call: Call) -> impl Future<Output = ()> + use<> {
        let info = self.info.clone();
        async move { call.responder.respond(Ok(info)).await }
    }

    fn environment_status(self: &Arc<Self>, _: Decoded<Empty>, call: Call) -> impl Future<Output = ()> + use<> {
        async move { call.responder.respond(Ok(EnvironmentStatus { status: Readiness::Ready })).await }
    }

    fn start(self: &Arc<Self>, params: Decoded<StartParams>, call: Call) -> impl Future<Output = ()> + use<> {
        let (params, params_charge) = params.into_parts();
        let admitted = self.admit(&params, &call.peer);
        let session = self.clone();
        async move {
            let Call { peer, responder } = call;
            let Admitted { process, running: charge, starting } = match admitted {
                Ok(admitted) => admitted,
                Err(error) => return responder.respond(Err::<(), _>(error)).await,
            };
            let process_id = params.process_id.clone();
            // It may take a while: a file system far away, a large environment. The runtime's own threads go on.
            let started = tokio::task::spawn_blocking(move || start_process(params)).await;
            let started = started.unwrap_or_else(|_| Err(RpcError::internal("starting the process failed")));
            drop((params_charge, starting));
            match started {
                Ok(started) => {
                    process.runs(&started);
                    let result = StartResult { process_id: process_id.clone(), sandbox_type: None };
                    // The reply has its place before the first output.
                    responder.respond(Ok(result)).await;
                    session.supervise(process, process_id, started, peer, charge);
                }
                Err(error) => {
                    process.failed();
                    session.forget(&process_id);
                    responder.respond(Err::<(), _>(error)).await;
                }
            }
        }
    }

    /// Checks what can be checked before anything runs, and takes the process's place.
    fn admit(&self, params: &StartParams, peer: &Peer) -> Result<Admitted, RpcError> {
        let most = self.limits.id_bytes().ceiling();
        if params.process_id.len() as u64 > most {
            let refusal = Refusal::over(Reason::IdBytes, most, params.process_id.len() as u64);
            return Err(RpcError::refused(plimsoll::INVALID_PARAMS, &refusal));
        }
        if params.argv.first().is_none_or(String::is_empty) {
            let text = "argv or its first element is empty: the first element names the program";
            return Err(RpcError::invalid_params(text));
        }
        if params.tty {
            return Err(RpcError::invalid_params("tty is true, and this server has pipes only"));
        }
        if params.requires_enforcement() {
            let text = "this server has no sandbox: send none, or one of type `disabled`";
            return Err(spawn_error(SpawnFailure::SandboxUnavailable, text.into()));
        }
        let mut processes = lock(&self.processes);
        processes.forget_old();
        if processes.by_id.contains_key(&params.process_id) {
            return Err(RpcError::new(INVALID_REQUEST, "there is a process with this id"));
        }
        let most = self.limits.processes().ceiling();
        if processes.alive >= most {
            return Err(RpcError::refused(OVERLOADED, &Refusal::over(Reason::Processes, most, most + 1)));
        }
        let charge = |bytes| peer.budget().try_charge(bytes).map_err(|no_room| RpcError::no_room(&no_room.into()));
        let running = charge(PROCESS_BYTES)?;
        let starting = charge(start_bytes(params))?;
        let remembered = charge(size_of::<Process>() as u64 + 4 * params.process_id.len() as u64 + 256)?;
        let process = Arc::new(Process::new(&self.limits, peer.budget(), &self.ends));
        let entry = Entry { process: process.clone(), _charge: remembered };
        processes.by_id.insert(params.process_id.clone(), entry);
        processes.alive += 1;
        Ok(Admitted { process, running, starting })
    }

    fn supervise(self: &Arc<Self>, process: Arc<Process>, id: String, started: Started, peer: Peer, charge: Charge) {
        let session = self.clone();
        let mut processes = lock(&self.processes);
        if processes.killed {
            // Dropped, it is killed and reaped.
            return;
        }
        while processes.tasks.try_join_next().is_some() {}
        processes.tasks.spawn(async move {
            let discarded = session.discarded.clone();
            // However the supervisor ends, the process is closed, and who waits for its input is told.
            let closing = Closing { session: &session, process: &process, process_id: &id };
            let closed = || drop(closing);
            started.supervise(process.clone(), id.clone(), peer, discarded, charge, closed).await;
        });
    }

    /// A process was closed: it is remembered for a while, so that its id is not taken for another's.
    fn closed(&self, process_id: &str) {
        let mut processes = lock(&self.processes);
        processes.alive = processes.alive.saturating_sub(1);
        processes.ended.push_back((Instant::now(), process_id.to_owned()));
        processes.forget_old();
    }

    fn forget(&self, process_id: &str) {
        let mut processes = lock(&self.processes);
        processes.alive = processes.alive.saturating_sub(1);
        processes.by_id.remove(process_id);
    }

    fn process(&self, process_id: &str) -> Option<Arc<Process>> {
        lock(&self.processes).by_id.get(process_id).map(|entry| entry.process.clone())
    }

    fn write(self: &Arc<Self>, params: Decoded<WriteParams>, call: Call) -> impl Future<Output = ()> + use<> {
        let (params, charge) = params.into_parts();
        let responder = call.responder;
        let given = if params.write_id.is_empty() {
            Err(responder)
        } else {
            let (bytes, write_id, since) = (params.chunk.0, params.write_id, Instant::now());
            let command = stdin::Command::Write { bytes, charge, write_id, responder, since };
            Ok(self.give(&params.process_id, command))
        };
        async move {
            match given {
                Ok(given) => given.await,
                Err(responder) => responder.respond(Err::<(), _>(RpcError::invalid_params("writeId is empty"))).await,
            }
        }
    }

    fn close_stdin(
        self: &Arc<Self>,
        params: Decoded<CloseStdinParams>,
        call: Call,
    ) -> impl Future<Output = ()> + use<> {
        let responder = call.responder;
        let given = match self.process(&params.process_id) {
            Some(_) => Ok(self.give(&params.process_id, stdin::Command::Close { responder })),
            None => Err(responder),
        };
        async move {
            match given {
                Ok(given) => given.await,
                Err(responder) => responder.respond(Err::<(), _>(unknown_process())).await,
            }
        }
    }

    /// Gives a command to a process in its turn; what is returned answers those that it did not take.
    fn give(&self, process_id: &str, command: stdin::Command) -> impl Future<Output = ()> + use<> {
        let refused = match self.process(process_id) {
            Some(process) => process.stdin.push(command).map_err(|command| (command, WriteStatus::StdinClosed)),
            None => Err((Box::new(command), WriteStatus::UnknownProcess)),
        };
        async move {
            if let Err((command, status)) = refused {
                command.answer(status).await;
            }
        }
    }

    fn signal(self: &Arc<Self>, params: Decoded<SignalParams>, call: Call) -> impl Future<Output = ()> + use<> {
        let outcome = match self.process(&params.process_id) {
            Some(process) => {
                match params.signal {
                    Signal::Interrupt => process.signal(UnixSignal::INT),
                }
                Ok(Empty {})
            }
            None => Err(unknown_process()),
        };
        async move { call.responder.respond(outcome).await }
    }

    fn terminate(self: &Arc<Self>, params: Decoded<TerminateParams>, call: Call) -> impl Future<Output = ()> + use<> {
        let running = self.process(&params.process_id).is_some_and(|process| process.terminate());
        async move { call.responder.respond(Ok(TerminateResult { running })).await }
    }

    /// Kills every process at once. They are reaped when the runtime drops their tasks.
    pub(crate) fn kill(&self) {
        let mut processes = lock(&self.processes);
        processes.killed = true;
        for entry in processes.by_id.values() {
            entry.process.signal(UnixSignal::KILL);
        }
        let tasks = std::mem::take(&mut processes.tasks);
        drop(processes);
        drop(tasks);
    }

    /// Ends every process (TERM, `grace`, KILL) and waits until all are reaped.
    pub(crate) async fn end(&self) {
        self.ends.cancel();
        let mut tasks = std::mem::take(&mut lock(&self.processes).tasks);
        // A supervisor ends by itself after two graces; whatever is left then is killed by being dropped.
        let grace = self.limits.grace().span().unwrap_or(Duration::MAX / 8);
        let most = grace.saturating_mul(2).saturating_add(Duration::from_secs(2));
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(most, all).await.is_err() {
            tracing::warn!("processes did not end in time and were killed");
        }
        tasks.shutdown().await;
        self.kill();
        let discarded = self.discarded.load(Ordering::Relaxed);
        if discarded > 0 {
            tracing::info!("{discarded} bytes were discarded that others wrote into the pipes of ended processes");
        }
    }
}

/// Closes a process when it is dropped.
struct Closing<'a> {
    session: &'a Session,
    process: &'a Process,
    process_id: &'a str,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.process.failed();
        self.session.closed(self.process_id);
    }
}

/// Who called, and the right to answer.
#[derive(Debug)]
struct Call {
    peer: Peer,
    responder: Responder,
}

/// A process that has its place.
struct Admitted {
    process: Arc<Process>,
    running: Charge,
    starting: Charge,
}

/// What starting a process takes beside its parameters: they are copied into the command, and from there once more into
/// the form that the system wants.
fn start_bytes(params: &StartParams) -> u64 {
    // Each string has a place in both, and the table of variables is a tree.
    const COPIES: u64 = 2;
    const PLACE: u64 = 64;
    let variable = |(name, value): (&String, &String)| name.len() + value.len() + 1;
    let arguments = params.argv.iter().map(String::len);
    let set = params.env_policy.iter().flat_map(|policy| policy.set.iter().map(variable));
    let strings = arguments.chain(params.env.iter().map(variable)).chain(set);
    strings.map(|bytes| COPIES * (bytes as u64 + PLACE)).sum()
}

impl Processes {
    fn forget_old(&mut self) {
        while let Some((since, _)) = self.ended.front() {
            if self.ended.len() <= ENDED_MOST && since.elapsed() < REMEMBERED {
                break;
            }
            if let Some((_, id)) = self.ended.pop_front() {
                self.by_id.remove(&id);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown_process() -> RpcError {
    RpcError::new(INVALID_REQUEST, "there is no process with this id")
}

fn spawn_error(kind: SpawnFailure, text: String) -> RpcError {
    RpcError::internal(text).with_data(serde_json::json!({ "kind": kind }))
}

/// Starts what was asked for.
fn start_process(params: StartParams) -> Result<Started, RpcError> {
    let (Some(program), cwd) = (params.argv.first(), params.cwd.to_path()) else {
        return Err(RpcError::invalid_params("argv is empty"));
    };
    let shown = Printable::new(program, 200);
    let nul = params.argv.iter().chain(&params.arg0).any(|argument| argument.contains('\0'));
    if nul {
        return Err(RpcError::invalid_params("an argument holds a NUL character, which no program can be given"));
    }
    if !cwd.is_dir() {
        let text = format!("the working directory {} is no directory", Printable::new(params.cwd.as_str(), 200));
        return Err(spawn_error(SpawnFailure::SpawnFailed, text));
    }
    let variables = environment(params.env_policy.as_ref(), params.env, std::env::vars_os())
        .map_err(|error| RpcError::invalid_params(error.to_string()))?;
    let mut command = Command::new(OsStr::new(program));
    command.args(&params.argv[1..]).current_dir(&cwd).env_clear().envs(variables);
    if let Some(arg0) = &params.arg0 {
        command.arg0(arg0);
    }
    Started::new(command, params.pipe_stdin).map_err(|error| match error.kind() {
        ErrorKind::NotFound if program.contains('/') && Path::new(program).exists() => {
            let text = format!("{shown} names an interpreter that is not there");
            spawn_error(SpawnFailure::SpawnNotFound, text)
        }
        ErrorKind::NotFound => spawn_error(SpawnFailure::SpawnNotFound, format!("there is no program {shown}")),
        ErrorKind::PermissionDenied => {
            spawn_error(SpawnFailure::SpawnPermissionDenied, format!("{shown} may not be run: permission denied"))
        }
        ErrorKind::NotADirectory => {
            let text = format!("{shown} may not be run: a part of the path is no directory");
            spawn_error(SpawnFailure::SpawnPermissionDenied, text)
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            spawn_error(SpawnFailure::SpawnPermissionDenied, format!("{shown} is no program that can be run"))
        }
        _ => spawn_error(SpawnFailure::SpawnFailed, format!("{shown} cannot be started: {error}")),
    })
}
