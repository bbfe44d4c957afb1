//! The program as a user runs it. Every wait is bounded and says what was awaited; nothing that was started is left.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails must fail its test")]

use std::fmt::Display;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes, on a machine that is busy with other things.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// Looks again and again until `is_so`.
pub(crate) fn until(what: impl Display, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONGEST, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `plimsoll run` with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Command {
    let mut command = plimsoll(&["run"]);
    command.args(arguments);
    command
}

/// What a program wrote so far to one of its streams.
#[derive(Clone, Default)]
pub(crate) struct Said(Arc<(Mutex<Vec<u8>>, Condvar)>);

impl Said {
    fn hear(&self, mut stream: impl Read + Send + 'static) -> JoinHandle<()> {
        let said = self.clone();
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                said.0.0.lock().unwrap().extend_from_slice(&piece[..read]);
                said.0.1.notify_all();
            }
        })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until it has said `text`; all that it has said then.
    pub(crate) fn until(&self, text: &str) -> String {
        let (said, more) = &*self.0;
        let began = Instant::now();
        let mut said = said.lock().unwrap();
        loop {
            let all = String::from_utf8_lossy(&said).into_owned();
            if all.contains(text) {
                return all;
            }
            let left = LONGEST.saturating_sub(began.elapsed());
            assert!(!left.is_zero(), "waited in vain for {text:?} in {all:?}");
            said = more.wait_timeout(said, left).unwrap().0;
        }
    }
}

/// A program that runs. It is killed when it is dropped before its end.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Said,
    pub(crate) stderr: Said,
    hearing: Vec<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

/// How a program ended and what it said.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Running {
    /// Starts a program and listens to its streams, as far as they are pipes.
    pub(crate) fn new(command: &mut Command) -> Self {
        Self::but_deaf_to_stdout(command).listen()
    }

    /// The same, but nobody reads its stdout.
    pub(crate) fn but_deaf_to_stdout(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stderr = Said::default();
        let hearing = child.stderr.take().map(|stream| stderr.hear(stream)).into_iter().collect();
        let stdin = child.stdin.take();
        Self { child, stdin, stdout: Said::default(), stderr, hearing, ended: None }
    }

    /// Listens to its stdout from now on.
    pub(crate) fn listen(mut self) -> Self {
        let stdout = self.child.stdout.take();
        self.hearing.extend(stdout.map(|stream| self.stdout.hear(stream)));
        self
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        assert!(self.ended.is_none(), "its number may be another's");
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap();
        }
        self.ended.is_some()
    }

    /// Waits for its end, and for the ends of its streams.
    pub(crate) fn end(mut self) -> Ended {
        let pid = self.pid();
        until(format!("the end of process {pid}, which said {:?}", self.stderr.text()), || self.has_ended());
        let hearing = std::mem::take(&mut self.hearing);
        until("the ends of its streams", || hearing.iter().all(JoinHandle::is_finished));
        Ended { status: self.ended.unwrap(), stdout: self.stdout.bytes(), stderr: self.stderr.text() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{}: {}", self.status, self.stderr))
    }

    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Our own failure: one line on stderr, nothing else.
    pub(crate) fn one_line(&self, code: i32) -> &str {
        assert_eq!(self.code(), code, "{}", self.stderr);
        let line = self.stderr.strip_prefix("plimsoll: ").and_then(|line| line.strip_suffix('\n'));
        let line = line.unwrap_or_else(|| panic!("{:?}", self.stderr));
        assert!(!line.contains('\n'), "{line:?}");
        line
    }
}

/// Runs a program to its end.
pub(crate) fn finish(command: &mut Command) -> Ended {
    Running::new(command).end()
}

/// Runs a program with this input.
pub(crate) fn finish_with(command: &mut Command, input: &[u8]) -> Ended {
    let mut running = Running::new(command.stdin(Stdio::piped()));
    let mut stdin = running.stdin.take().unwrap();
    let input = input.to_vec();
    // The program may end before it has read everything.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = running.end();
    feeding.join().unwrap();
    ended
}

/// A directory for one test, empty.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Writes a program. Another process writes it: while this one holds a file open for writing, a child that another test
/// forks at that moment holds it too, and the system then refuses to run it.
pub(crate) fn program(path: &Path, text: &str, mode: &str) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"printf '%s' "$1" > "$2" && chmod "$3" "$2""#, "sh", text]).arg(path).arg(mode);
    assert_eq!(finish(&mut command).code(), 0);
}

/// Whether a process runs: it is there and no zombie.
pub(crate) fn runs(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else { return false };
    !matches!(stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()), None | Some('Z' | 'X'))
}

/// The children of a process.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&parent) {
            children.push(pid);
        }
    }
    children
}

/// Waits for the number that a program writes, with a newline, into a file.
pub(crate) fn number_in(file: &Path) -> String {
    let mut number = String::new();
    until(format!("a number in {}", file.display()), || {
        number = std::fs::read_to_string(file).unwrap_or_default();
        number.ends_with('\n')
    });
    number.trim().to_owned()
}

/// Waits until none of these processes runs.
pub(crate) fn until_gone<P: Display>(pids: &[P]) {
    for pid in pids {
        until(format!("the end of process {pid}"), || !runs(&pid.to_string()));
    }
}
