//! What travels: the methods of this protocol and the shapes of what they carry (PROTOCOL sections 3 and 4).
//!
//! Members are camelCase. An optional member may be absent or `null`; it is left out when there is nothing to say.
//! Members that are not known are ignored. Client and server share the types, so each is read and written.
//!
//! Nothing here checks a value against a limit: the scanner has counted the message, and who uses a value says what is
//! too much of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::env_policy::EnvPolicy;
use crate::path_uri::PathUri;
pub use crate::values::{Base64, SessionId};

/// Request: [`InitializeParams`] → [`InitializeResult`].
pub const INITIALIZE: &str = "initialize";
/// Notification that ends the handshake; its parameters are ignored.
pub const INITIALIZED: &str = "initialized";
/// Request: [`Empty`] → [`EnvironmentInfo`].
pub const ENVIRONMENT_INFO: &str = "environment/info";
/// Request: [`Empty`] → [`EnvironmentStatus`].
pub const ENVIRONMENT_STATUS: &str = "environment/status";
/// Request: [`StartParams`] → [`StartResult`].
pub const PROCESS_START: &str = "process/start";
/// Request: [`WriteParams`] → [`WriteResult`].
pub const PROCESS_WRITE: &str = "process/write";
/// Request: [`SignalParams`] → [`Empty`].
pub const PROCESS_SIGNAL: &str = "process/signal";
/// Request: [`TerminateParams`] → [`TerminateResult`].
pub const PROCESS_TERMINATE: &str = "process/terminate";
/// Request: [`CloseStdinParams`] → [`Empty`]. An addition of Plimsoll's.
pub const PROCESS_CLOSE_STDIN: &str = "plimsoll/process/closeStdin";
/// Notification: [`OutputParams`].
pub const PROCESS_OUTPUT: &str = "process/output";
/// Notification: [`ExitedParams`].
pub const PROCESS_EXITED: &str = "process/exited";
/// Notification: [`ClosedParams`].
pub const PROCESS_CLOSED: &str = "process/closed";

/// `{}`: the parameters or the result of a method that has nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// `{clientName, resumeSessionId?, plimsoll?}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// What the client calls itself, for logs.
    pub client_name: String,
    /// The session to attach to again; a new one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_session_id: Option<SessionId>,
    /// What a client that knows Plimsoll says besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plimsoll: Option<ClientAdditions>,
}

/// `{limits?, acks?=false}`: the member `plimsoll` of [`InitializeParams`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientAdditions {
    /// What the client takes from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PeerLimits>,
    /// Whether the client acknowledges output, so that none may be dropped.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub acks: bool,
}

/// `{sessionId, environmentInfo}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// With this the client attaches again after its connection was lost.
    pub session_id: SessionId,
    /// Where the client has arrived. The reference's older versions leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
}

/// What one side accepts in one message; a member that is absent is not limited or not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerLimits {
    /// Bytes of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u64>,
    /// JSON values in a message, the message itself included, keys not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_values: Option<u64>,
    /// Objects and arrays within each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// Requests that may be unanswered at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Processes at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// The machine that a server runs on.
///
/// `{shell, executorVersion, providerId, cwd?, userHomeDir?, platformOs?, prependPathDirs?, temporaryDirectories?,
/// tempDir?, capabilities: {name: bool}, plimsoll?}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The user's shell.
    pub shell: Shell,
    /// The server's version.
    #[serde(default, deserialize_with = "or_default")]
    pub executor_version: String,
    /// `sha256:` and 64 hexadecimal digits: the same for the same user on the same machine.
    #[serde(default, deserialize_with = "or_default")]
    pub provider_id: String,
    /// The server's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// The user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// `linux`, as [`std::env::consts::OS`] says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_os: Option<String>,
    /// Directories that belong before the others in `PATH`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub prepend_path_dirs: Vec<PathUri>,
    /// Where anyone may make files that need not last.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub temporary_directories: Vec<PathUri>,
    /// The one of them that programs use here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What is offered beyond the methods that everyone has; what is not named is not offered.
    #[serde(default, deserialize_with = "or_default")]
    pub capabilities: BTreeMap<String, bool>,
    /// What Plimsoll offers besides; absent when the server is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plimsoll: Option<ServerAdditions>,
}

/// `{name, path}`: a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shell {
    /// `bash`, `zsh`, `sh`, ...
    pub name: String,
    /// The program: a plain path, no URI.
    pub path: String,
}

/// `{methods, limits}`: the member `plimsoll` of [`EnvironmentInfo`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerAdditions {
    /// The methods under `plimsoll/` that the server answers.
    #[serde(default, deserialize_with = "or_default")]
    pub methods: Vec<String>,
    /// What the server takes from the client.
    #[serde(default, deserialize_with = "or_default")]
    pub limits: PeerLimits,
}

/// `{status: "ready"}`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentStatus {
    /// Whether calls are taken.
    pub status: Readiness,
}

/// The `status` of [`EnvironmentStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// Calls are taken.
    Ready,
}

/// `{processId, argv: [..1], cwd, env: {k: v}, tty, pipeStdin?=false, arg0?, envPolicy?, sandbox?,
/// enforceManagedNetwork?=false}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartParams {
    /// The client's name for the process, unique in its session; not the system's number.
    pub process_id: String,
    /// The program and its arguments; plain strings. Empty is refused by the server.
    pub argv: Vec<String>,
    /// Where the process starts.
    pub cwd: PathUri,
    /// Its environment: the whole of it without `envPolicy`, the top layer with it.
    pub env: BTreeMap<String, String>,
    /// Whether it gets a terminal in place of pipes.
    pub tty: bool,
    /// Whether standard input is a pipe that [`PROCESS_WRITE`] fills; empty otherwise.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub pipe_stdin: bool,
    /// What the process sees as its own name, in place of `argv[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg0: Option<String>,
    /// What it inherits from the server's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_policy: Option<EnvPolicy>,
    /// What it may touch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
    /// Whether the network must be held to a policy.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub enforce_managed_network: bool,
}

impl StartParams {
    /// Whether the process may run only where its sandbox or its network can be enforced; a server that cannot must
    /// refuse ([`SpawnFailure::SandboxUnavailable`]).
    pub fn requires_enforcement(&self) -> bool {
        self.enforce_managed_network || self.sandbox.as_ref().is_some_and(SandboxContext::requires_enforcement)
    }
}

/// `{permissions: {type, ..}, ..}`: as much of a `FileSystemSandboxContext` as tells whether it can be done without.
///
/// Everything else in it is ignored when read, so what is written again is not the same context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxContext {
    permissions: Permissions,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Permissions {
    #[serde(rename = "type")]
    kind: String,
}

impl SandboxContext {
    /// The context that asks for nothing: `{permissions: {type: "disabled"}}`.
    pub fn disabled() -> Self {
        Self { permissions: Permissions { kind: DISABLED.into() } }
    }

    /// Whether a server must enforce something: always, but for `disabled`, so also for kinds of a later version.
    pub fn requires_enforcement(&self) -> bool {
        self.permissions.kind != DISABLED
    }
}

const DISABLED: &str = "disabled";

/// `{processId, sandboxType?}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartResult {
    /// As in the request.
    pub process_id: String,
    /// What enforces the sandbox, when something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_type: Option<String>,
}

/// `{kind}`: the `data` of the error (-32603) that answers a `process/start` which came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailureData {
    /// What went wrong.
    pub kind: SpawnFailure,
}

/// Why a process could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SpawnFailure {
    /// There is no such program.
    SpawnNotFound,
    /// The program or the directory may not be used.
    SpawnPermissionDenied,
    /// Anything else that the system said.
    SpawnFailed,
    /// A sandbox is asked for that this server cannot enforce.
    SandboxUnavailable,
    /// The sandbox could not be set up.
    SandboxPreparation,
}

/// `{processId, chunk, writeId}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// Which process.
    pub process_id: String,
    /// What goes to its standard input.
    pub chunk: Base64,
    /// The client's name for this write: one that comes again is not written again. Empty is refused by the server.
    pub write_id: String,
}

/// `{status}`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResult {
    /// What became of the write.
    pub status: WriteStatus,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// It will be written, whole and in order.
    Accepted,
    /// There is no such process.
    UnknownProcess,
    /// Standard input takes nothing more: it is closed, or the process has ended.
    StdinClosed,
    /// The process is not running yet; write again later.
    Starting,
}

/// `{processId, signal}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalParams {
    /// Which process.
    pub process_id: String,
    /// Which signal, to the whole group.
    pub signal: Signal,
}

/// The signals that every server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Signal {
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
}

/// `{processId}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateParams {
    /// Which process.
    pub process_id: String,
}

/// `{running}`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateResult {
    /// Whether it was still running when it was asked to end.
    pub running: bool,
}

/// `{processId}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloseStdinParams {
    /// Which process. Its standard input ends after the writes that were accepted.
    pub process_id: String,
}

/// `{processId, seq, stream, chunk}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputParams {
    /// Which process.
    pub process_id: String,
    /// One count a process, from 1, over output, exited and closed.
    pub seq: u64,
    /// Where it was written.
    pub stream: Stream,
    /// What was written.
    pub chunk: Base64,
}

/// Where a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal, both in one.
    Pty,
}

/// `{processId, seq, exitCode, sandboxDenied?=false, plimsoll?}`
///
/// Output may still follow; [`ClosedParams`] is what comes last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitedParams {
    /// Which process.
    pub process_id: String,
    /// See [`OutputParams::seq`].
    pub seq: u64,
    /// The exit code; 128 + signal when a signal ended it.
    pub exit_code: i32,
    /// Whether the sandbox is taken to be the cause.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub sandbox_denied: bool,
    /// What Plimsoll says besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plimsoll: Option<ExitedAdditions>,
}

/// `{signal?, lastOutputSeq?}`: the member `plimsoll` of [`ExitedParams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitedAdditions {
    /// The number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The `seq` of its last output, when that is known already; 0 when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_seq: Option<u64>,
}

/// `{processId, seq}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedParams {
    /// Which process. Nothing comes from it after this.
    pub process_id: String,
    /// See [`OutputParams::seq`].
    pub seq: u64,
}

/// A member that is `null` is taken as one that is absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    /// `text` is read, and written again as it was.
    fn both_ways<T: Serialize + DeserializeOwned + PartialEq + Debug>(text: &str) -> T {
        let value: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let written = serde_json::to_value(&value).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
        value
    }

    /// `text` with every optional member `null`, and with members that nobody knows, is read as `value`.
    fn also<T: DeserializeOwned + PartialEq + Debug>(text: &str, value: &T) {
        assert_eq!(&serde_json::from_str::<T>(text).unwrap_or_else(|error| panic!("{error}: {text}")), value);
        let mut members: serde_json::Value = serde_json::from_str(text).unwrap();
        members["unheardOf"] = serde_json::json!([{"a": [1.5e300, null]}]);
        assert_eq!(&serde_json::from_str::<T>(&members.to_string()).unwrap(), value);
    }

    fn error<T: DeserializeOwned + Debug>(text: &str) -> String {
        serde_json::from_str::<T>(text).expect_err(text).to_string()
    }

    #[test]
    fn initialize() {
        let least: InitializeParams = both_ways(r#"{"clientName":"codex"}"#);
        also(r#"{"clientName":"codex","resumeSessionId":null,"plimsoll":null}"#, &least);
        let whole: InitializeParams = both_ways(
            r#"{"clientName":"plimsoll","resumeSessionId":"5e","plimsoll":{"limits":{"messageBytes":67108864},"acks":true}}"#,
        );
        assert_eq!(whole.resume_session_id.unwrap().as_str(), "5e");
        assert!(whole.plimsoll.unwrap().acks);
        let nothing: ClientAdditions = both_ways("{}");
        also(r#"{"limits":null,"acks":null}"#, &nothing);
        assert!(error::<InitializeParams>("{}").contains("clientName"));
        assert!(error::<InitializeParams>(r#"{"clientName":null}"#).contains("null"));

        let result: InitializeResult = both_ways(
            r#"{"sessionId":"5e","environmentInfo":{"shell":{"name":"bash","path":"/bin/bash"},"executorVersion":"0.1.0",
                "providerId":"sha256:00","capabilities":{}}}"#,
        );
        assert_eq!(result.environment_info.unwrap().plimsoll, None);
    }

    #[test]
    fn environment() {
        let whole: EnvironmentInfo = both_ways(
            r#"{"shell":{"name":"zsh","path":"/usr/bin/zsh"},"executorVersion":"0.171.0","providerId":"sha256:ab",
                "cwd":"file:///work","userHomeDir":"file:///home/a","platformOs":"linux","prependPathDirs":["file:///opt/bin"],
                "temporaryDirectories":["file:///tmp"],"tempDir":"file:///tmp",
                "capabilities":{"fileWriteStreaming":true,"fsWatchMissing":false},
                "plimsoll":{"methods":["plimsoll/process/closeStdin"],
                            "limits":{"messageBytes":1,"jsonValues":2,"depth":3,"inFlight":4,"processes":5}}}"#,
        );
        assert_eq!(whole.cwd.unwrap().as_str(), "file:///work");
        let least: EnvironmentInfo = both_ways(
            r#"{"shell":{"name":"sh","path":"/bin/sh"},"executorVersion":"","providerId":"","capabilities":{}}"#,
        );
        also(r#"{"shell":{"name":"sh","path":"/bin/sh"}}"#, &least);
        also(
            r#"{"shell":{"name":"sh","path":"/bin/sh"},"executorVersion":null,"providerId":null,"cwd":null,
                "userHomeDir":null,"platformOs":null,"prependPathDirs":null,"temporaryDirectories":null,"tempDir":null,
                "capabilities":null,"plimsoll":null}"#,
            &least,
        );
        assert_eq!(both_ways::<EnvironmentStatus>(r#"{"status":"ready"}"#).status, Readiness::Ready);
        both_ways::<Empty>("{}");
        also("{}", &Empty {});
    }

    #[test]
    fn start() {
        let least: StartParams =
            both_ways(r#"{"processId":"p","argv":["true"],"cwd":"file:///","env":{},"tty":false}"#);
        assert!(!least.requires_enforcement());
        also(
            r#"{"processId":"p","argv":["true"],"cwd":"file:///","env":{},"tty":false,"pipeStdin":null,"arg0":null,
                "envPolicy":null,"sandbox":null,"enforceManagedNetwork":null,"managedNetwork":{"deep":[[[]]]}}"#,
            &least,
        );
        let whole: StartParams = both_ways(
            r#"{"processId":"p","argv":["sh","-c","\u0000"],"cwd":"file:///d/bad%FF%FEname","env":{"A":"1"},"tty":true,
                "pipeStdin":true,"arg0":"-sh","envPolicy":{"inherit":"core","ignoreDefaultExcludes":false,
                "exclude":["*X*"],"set":{"B":"2"},"includeOnly":[]},"sandbox":{"permissions":{"type":"disabled"}},
                "enforceManagedNetwork":true}"#,
        );
        assert!(whole.requires_enforcement());
        for member in ["processId", "argv", "cwd", "env", "tty"] {
            let mut less = serde_json::to_value(&least).unwrap();
            less.as_object_mut().unwrap().remove(member);
            assert!(error::<StartParams>(&less.to_string()).contains(member));
        }
        let native = r#"{"processId":"p","argv":["true"],"cwd":"/tmp","env":{},"tty":false}"#;
        assert!(error::<StartParams>(native).contains("file: URI"));
        both_ways::<StartResult>(r#"{"processId":"p"}"#);
        both_ways::<StartResult>(r#"{"processId":"p","sandboxType":"landlock"}"#);
    }

    #[test]
    fn only_a_disabled_sandbox_can_be_done_without() {
        let requires = |text| serde_json::from_str::<SandboxContext>(text).unwrap().requires_enforcement();
        assert!(!SandboxContext::disabled().requires_enforcement());
        assert!(!requires(
            r#"{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled","cwd":"C:\\x","workspaceRoots":[]}"#
        ));
        assert!(requires(
            r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special",
                "value":{"kind":"root"}},"access":"read"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}"#
        ));
        assert!(requires(r#"{"permissions":{"type":"external","network":"enabled"}}"#));
        assert!(requires(r#"{"permissions":{"type":"Disabled"}}"#));
        assert!(requires(r#"{"permissions":{"type":"unheard of"}}"#));
        for text in ["{}", r#"{"permissions":null}"#, r#"{"permissions":{}}"#, r#"{"permissions":"disabled"}"#] {
            error::<SandboxContext>(text);
        }
    }

    #[test]
    fn spawn_failures() {
        for (kind, word) in [
            (SpawnFailure::SpawnNotFound, "spawnNotFound"),
            (SpawnFailure::SpawnPermissionDenied, "spawnPermissionDenied"),
            (SpawnFailure::SpawnFailed, "spawnFailed"),
            (SpawnFailure::SandboxUnavailable, "sandboxUnavailable"),
            (SpawnFailure::SandboxPreparation, "sandboxPreparation"),
        ] {
            assert_eq!(both_ways::<SpawnFailureData>(&format!(r#"{{"kind":"{word}"}}"#)).kind, kind);
        }
    }

    #[test]
    fn write_signal_terminate_and_close_stdin() {
        let write: WriteParams = both_ways(r#"{"processId":"p","chunk":"aGkK","writeId":"w1"}"#);
        assert_eq!(write.chunk.0, b"hi\n");
        for (status, word) in [
            (WriteStatus::Accepted, "accepted"),
            (WriteStatus::UnknownProcess, "unknownProcess"),
            (WriteStatus::StdinClosed, "stdinClosed"),
            (WriteStatus::Starting, "starting"),
        ] {
            assert_eq!(both_ways::<WriteResult>(&format!(r#"{{"status":"{word}"}}"#)).status, status);
        }
        let signal: SignalParams = both_ways(r#"{"processId":"p","signal":"interrupt"}"#);
        assert_eq!(signal.signal, Signal::Interrupt);
        assert!(error::<SignalParams>(r#"{"processId":"p","signal":"kill"}"#).contains("interrupt"));
        both_ways::<TerminateParams>(r#"{"processId":"p"}"#);
        assert!(both_ways::<TerminateResult>(r#"{"running":true}"#).running);
        both_ways::<CloseStdinParams>(r#"{"processId":"p"}"#);
    }

    #[test]
    fn output_exited_and_closed() {
        for (stream, word) in [(Stream::Stdout, "stdout"), (Stream::Stderr, "stderr"), (Stream::Pty, "pty")] {
            let text = format!(r#"{{"processId":"p","seq":18446744073709551615,"stream":"{word}","chunk":"/+8="}}"#);
            let output: OutputParams = both_ways(&text);
            assert_eq!((output.stream, output.seq, output.chunk.0), (stream, u64::MAX, vec![0xff, 0xef]));
        }
        let exited: ExitedParams = both_ways(r#"{"processId":"p","seq":2,"exitCode":-1}"#);
        also(r#"{"processId":"p","seq":2,"exitCode":-1,"sandboxDenied":false,"plimsoll":null}"#, &exited);
        also(r#"{"processId":"p","seq":2,"exitCode":-1,"sandboxDenied":null}"#, &exited);
        let killed: ExitedParams = both_ways(
            r#"{"processId":"p","seq":2,"exitCode":137,"sandboxDenied":true,"plimsoll":{"signal":9,"lastOutputSeq":1}}"#,
        );
        assert_eq!(killed.plimsoll, Some(ExitedAdditions { signal: Some(9), last_output_seq: Some(1) }));
        both_ways::<ClosedParams>(r#"{"processId":"p","seq":3}"#);
    }
}
