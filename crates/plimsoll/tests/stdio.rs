//! Blocking streams on threads of their own: nothing is lost, errors come through, and a pending read does not hold up
//! the end of the process. The last is proved by this test binary itself, run again as a child.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll::stdio::{BlockingReader, BlockingWriter, stderr, stdin, stdout};
use plimsoll::{ChildProcess, ChildStderrTo, CloseReason, Deadline, Limits, MIB, PeerBuilder, Router};
use plimsoll_testkit::rng::Rng;
use plimsoll_testkit::step::poll_times;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);
const ROLE: &str = "PLIMSOLL_STDIO_ROLE";

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index % 251) as u8).collect()
}

async fn read_all(reader: &mut BlockingReader) -> io::Result<Vec<u8>> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 3_000]);
    loop {
        match timeout(LONG, reader.read(&mut piece)).await.expect("it hangs")? {
            0 => return Ok(all),
            read => all.extend_from_slice(&piece[..read]),
        }
    }
}

#[tokio::test]
async fn a_reader_gives_every_byte_in_order_and_then_the_end() {
    let (source, mut sink) = io::pipe().unwrap();
    let mut reader = BlockingReader::new(source).unwrap();
    let writing = std::thread::spawn(move || {
        let (all, mut at) = (bytes(300_000), 0);
        for chunk in Rng::new(1).chunks(all.len()) {
            sink.write_all(&all[at..at + chunk]).unwrap();
            at += chunk;
        }
    });
    assert_eq!(read_all(&mut reader).await.unwrap(), bytes(300_000));
    assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 0, "the end stays the end");
    writing.join().unwrap();
}

#[tokio::test]
async fn a_read_that_is_dropped_at_every_await_loses_nothing() {
    let (source, mut sink) = io::pipe().unwrap();
    let mut reader = BlockingReader::new(source).unwrap();
    let writing = std::thread::spawn(move || {
        for chunk in bytes(50_000).chunks(100) {
            sink.write_all(chunk).unwrap();
        }
    });
    let (mut all, mut piece) = (Vec::new(), [0; 70]);
    loop {
        match poll_times(reader.read(&mut piece), 1).await {
            Some(Ok(0)) => break,
            Some(read) => all.extend_from_slice(&piece[..read.unwrap()]),
            None => tokio::task::yield_now().await,
        }
    }
    assert_eq!(all, bytes(50_000));
    writing.join().unwrap();
}

/// Gives pieces, then an error, each read once interrupted.
struct Failing {
    pieces: Vec<io::Result<Vec<u8>>>,
    is_interrupted: bool,
}

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let Some(piece) = self.pieces.pop() else { return Ok(0) };
        let piece = piece?;
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

#[tokio::test]
async fn a_reader_gives_what_came_before_an_error_and_then_the_error() {
    let pieces = vec![Err(io::ErrorKind::PermissionDenied.into()), Ok(b"b".to_vec()), Ok(b"a".to_vec())];
    let mut reader = BlockingReader::new(Failing { pieces, is_interrupted: false }).unwrap();
    let mut piece = [0; 10];
    assert_eq!(reader.read(&mut piece).await.unwrap(), 1);
    assert_eq!(reader.read(&mut piece).await.unwrap(), 1);
    assert_eq!(reader.read(&mut piece).await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(reader.read(&mut piece).await.unwrap(), 0);
}

/// An endless source that counts what was taken from it.
struct Endless(Arc<AtomicUsize>);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.fetch_add(buffer.len(), Ordering::SeqCst);
        buffer.fill(b'x');
        Ok(buffer.len())
    }
}

#[tokio::test]
async fn a_reader_does_not_read_ahead_of_what_is_asked_for() {
    let taken = Arc::new(AtomicUsize::new(0));
    let mut reader = BlockingReader::new(Endless(taken.clone())).unwrap();
    let mut piece = [0; 100];
    for _ in 0..10 {
        reader.read_exact(&mut piece).await.unwrap();
        // The thread is given all the time that it may want.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(taken.load(Ordering::SeqCst) <= 3 * 8 * 1024, "{taken:?}");
}

#[tokio::test]
async fn a_writer_writes_every_byte_in_order_and_ends_at_shutdown() {
    let (mut source, sink) = io::pipe().unwrap();
    let mut writer = BlockingWriter::new(sink).unwrap();
    let reading = std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), vec![0; 5_000]);
        while let read @ 1.. = source.read(&mut piece).unwrap() {
            all.extend_from_slice(&piece[..read]);
        }
        all
    });
    let (all, mut at) = (bytes(500_000), 0);
    let mut rng = Rng::new(2);
    for chunk in rng.chunks(all.len()) {
        writer.write_all(&all[at..at + chunk]).await.unwrap();
        at += chunk;
        if rng.one_in(3) {
            writer.flush().await.unwrap();
        }
    }
    writer.shutdown().await.unwrap();
    assert_eq!(reading.join().unwrap(), all);
    assert_eq!(writer.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

/// A sink that waits for a permit before each write, and fails when there will be none.
struct Gated {
    permits: std::sync::mpsc::Receiver<()>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.permits.recv().map_err(|_| io::ErrorKind::StorageFull)?;
        self.written.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gated() -> (BlockingWriter, SyncSender<()>, Arc<Mutex<Vec<u8>>>) {
    let (permit, permits) = sync_channel(16);
    let written = Arc::<Mutex<Vec<u8>>>::default();
    (BlockingWriter::new(Gated { permits, written: written.clone() }).unwrap(), permit, written)
}

#[tokio::test]
async fn flushing_waits_until_the_sink_has_taken_everything() {
    let (mut writer, permit, written) = gated();
    assert_eq!(poll_times(writer.write(b"abc"), 1).await.unwrap().unwrap(), 3, "the thread takes it");
    assert!(poll_times(writer.flush(), 1).await.is_none());
    assert!(poll_times(writer.write(b"def"), 1).await.is_none(), "one piece at a time");
    assert!(written.lock().unwrap().is_empty());
    permit.send(()).unwrap();
    timeout(LONG, writer.flush()).await.unwrap().unwrap();
    assert_eq!(*written.lock().unwrap(), b"abc");
    permit.send(()).unwrap();
    timeout(LONG, writer.write_all(b"def")).await.unwrap().unwrap();
    timeout(LONG, writer.flush()).await.unwrap().unwrap();
    assert_eq!(*written.lock().unwrap(), b"abcdef", "a write that was dropped while it waited wrote nothing");
}

#[tokio::test]
async fn an_error_of_the_sink_comes_through_once_and_later_writes_fail() {
    for flushes in [false, true] {
        let (mut writer, permit, _) = gated();
        drop(permit);
        assert_eq!(writer.write(b"abc").await.unwrap(), 3);
        let failed = if flushes { writer.flush().await } else { writer.write(b"def").await.map(drop) };
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(writer.write(b"ghi").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(writer.shutdown().await.is_err());
    }
}

#[tokio::test]
async fn a_writer_that_is_dropped_still_writes_what_it_took() {
    let (mut writer, permit, written) = gated();
    writer.write_all(b"abc").await.unwrap();
    drop(writer);
    permit.send(()).unwrap();
    timeout(LONG, async {
        while *written.lock().unwrap() != b"abc" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
}

// This binary as a child.

/// What the child does; as a test of its own it does nothing.
#[test]
fn in_the_role_of_a_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut piece = [0; 10];
        let pending = Duration::from_millis(20);
        match role.as_str() {
            "ours" => assert!(timeout(pending, stdin().unwrap().read(&mut piece)).await.is_err(), "nothing was sent"),
            #[allow(clippy::disallowed_methods, reason = "the control: it does hold up the end")]
            "theirs" => assert!(timeout(pending, tokio::io::stdin().read(&mut piece)).await.is_err()),
            "serve" => {
                let router = Router::new().request("echo", |_context, (text,): (String,)| async move { Ok(text) });
                let builder = PeerBuilder::new(Limits::default()).router(router);
                let mut output = stdout().unwrap();
                // The test harness has begun a line.
                output.write_all(b"\n").await.unwrap();
                let (_peer, connection) = builder.connect(stdin().unwrap(), output);
                assert_eq!(connection.run().await, CloseReason::EndOfInput);
                let mut log = stderr().unwrap();
                log.write_all(b"the server has ended\n").await.unwrap();
                log.flush().await.unwrap();
                // Nobody reads the output any longer, which the test harness would take for a failure.
                std::process::exit(0);
            }
            role => panic!("there is no role {role}"),
        }
        let mut log = stderr().unwrap();
        log.write_all(b"leaving\n").await.unwrap();
        log.flush().await.unwrap();
    });
    // The runtime ends here, and waits for the blocking tasks that are its own.
}

fn this_binary(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["in_the_role_of_a_child", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// Starts the role with an input that stays open, and waits until it is about to leave.
fn about_to_leave(role: &str) -> Child {
    let mut command = this_binary(role);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("this binary runs");
    let (mut log, mut seen) = (child.stderr.take().unwrap(), Vec::new());
    while !seen.ends_with(b"leaving\n") {
        let mut byte = [0];
        assert_eq!(log.read(&mut byte).unwrap(), 1, "it ended early: {}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    child
}

#[test]
fn a_pending_read_of_standard_input_does_not_hold_up_the_end() {
    let mut control = about_to_leave("theirs");
    let mut child = about_to_leave("ours");
    // Its input is still open: only it can end itself.
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(waited < LONG, "it is held up");
        waited += Duration::from_millis(10);
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
    std::thread::sleep(Duration::from_millis(100));
    assert!(control.try_wait().unwrap().is_none(), "the control is held up");
    drop(control.stdin.take());
    assert!(control.wait().unwrap().success());
}

#[tokio::test]
async fn a_peer_over_standard_input_and_output_answers_and_ends_with_its_input() {
    let (child, output, input) = ChildProcess::spawn(this_binary("serve").into(), ChildStderrTo::Tail).unwrap();
    let (peer, connection) = PeerBuilder::new(Limits::default()).connect(output, input);
    let running = tokio::spawn(connection.run());
    for size in [0, 10, 70_000, MIB as usize] {
        let text = "x".repeat(size);
        let echo: String = timeout(LONG, peer.call("echo", &[&text])).await.unwrap().unwrap();
        assert_eq!(echo, text);
    }
    // The test harness of the child has written to its output, too.
    assert!(peer.counters().noise >= 1);
    peer.close();
    assert_eq!(timeout(LONG, running).await.unwrap().unwrap(), CloseReason::Closed);
    let mut child = child;
    assert!(timeout(LONG, child.wait()).await.unwrap().unwrap().success());
    let said = async {
        while !child.stderr_tail().ends_with("the server has ended") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, said).await.unwrap();
    assert!(child.shutdown(Deadline::seconds(1)).await.unwrap().success());
}
