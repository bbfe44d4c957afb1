//! What a process writes arrives, all of it and in order, however slowly it is read; and it costs no memory to wait.
//!
//! The tests take turns, for the memory of the process is measured.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Client, at_most, directory, limits, millis, runs, state, until, within};
use plimsoll::{CloseReason, Dialect, PeerBuilder, Router, RpcError};
use plimsoll_exec::wire::{Stream, WriteStatus};
use plimsoll_exec::{ExecClient, ExecServer, Limits, PathUri, ProcessEvent, ProcessOptions};
use plimsoll_testkit::alloc::{CountingAllocator, Meter};
use plimsoll_testkit::pair::{Chunks, Faults, Gate, pair};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

static TURN: Mutex<()> = Mutex::const_new(());

const KIB: usize = 1024;

/// A client and a server with little room on the way.
struct Joined {
    client: ExecClient,
    working: JoinHandle<CloseReason>,
    serving: JoinHandle<CloseReason>,
}

fn join(limits: &Limits, capacity: usize, chunks: Chunks) -> Joined {
    let faults = || Faults::none().capacity(capacity).read_chunks(chunks.clone());
    let (here, there) = pair(faults(), faults());
    let server = ExecServer::new(limits.clone());
    let serving = tokio::spawn(async move {
        let (reader, writer) = there.into_split();
        server.serve(reader, writer, std::future::pending()).await
    });
    let (reader, writer) = here.into_split();
    let (client, work) = ExecClient::connect(limits.clone(), reader, writer);
    Joined { client, working: tokio::spawn(work), serving }
}

impl Joined {
    async fn leave(self) {
        self.client.peer().close();
        within("the client's end", self.working).await.unwrap();
        within("the server's end", self.serving).await.unwrap();
    }
}

fn shell(script: &str, pipe_stdin: bool) -> ProcessOptions {
    ProcessOptions {
        argv: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        cwd: PathUri::parse("file:///").unwrap(),
        env: [("PATH".to_owned(), std::env::var("PATH").unwrap())].into(),
        env_policy: None,
        pipe_stdin,
    }
}

/// The hash and the length of the lines of these numbers, as `seq` prints them.
fn lines(numbers: std::ops::RangeInclusive<u32>) -> (String, usize) {
    let mut sum = Sum::default();
    for number in numbers {
        sum.add(format!("{number}\n").as_bytes());
    }
    sum.done()
}

#[derive(Default)]
struct Sum {
    hash: Sha256,
    bytes: usize,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len();
    }

    fn done(self) -> (String, usize) {
        (self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), self.bytes)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_megabytes_of_both_pipes_arrive_exactly_through_a_narrow_way_and_in_flat_memory() {
    let _turn = TURN.lock().await;
    let wanted = [lines(1..=2_600_000), lines(4_000_000..=6_500_000)];
    assert!(wanted.iter().all(|(_, bytes)| *bytes > 19_000_000), "the control: {wanted:?}");
    let limits = limits().with_outgoing_bytes(at_most(64 * KIB as u64)).with_notification_bytes(at_most(64 * 1024));
    for chunks in [Chunks::AtMost(1_000), Chunks::random(7, 20_000)] {
        let meter = Meter::process();
        let joined = join(&limits, 4 * KIB, chunks);
        within("the session", joined.client.initialize("test")).await.unwrap();
        let script = "seq 1 2600000 & seq 4000000 6500000 >&2; wait";
        let (_process, mut events) = joined.client.start(shell(script, false)).await.unwrap();
        let (mut out, mut err, mut code, mut n) = (Sum::default(), Sum::default(), None, 0);
        while let Some(event) = within("an event", events.next()).await {
            match event {
                ProcessEvent::Output { stream: Stream::Stdout, bytes, .. } => out.add(&bytes),
                ProcessEvent::Output { bytes, .. } => err.add(&bytes),
                ProcessEvent::Exited { code: exit, .. } => code = Some(exit),
                ProcessEvent::Closed => break,
                other => panic!("{other:?}"),
            }
            n += 1;
            if n % 700 == 0 {
                // A pause long enough for everything on the way to fill up.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        assert_eq!((code, [out.done(), err.done()]), (Some(0), wanted.clone()));
        let peak = meter.usage().peak_over_baseline;
        assert!(peak < 1024 * KIB, "{peak} bytes of heap at the peak, on both sides together");
        let held = joined.client.peer().counters().peak_bytes;
        assert!(held < 512 * KIB as u64, "{held} bytes held by the client at the peak");
        joined.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_megabytes_of_input_arrive_exactly_and_in_flat_memory() {
    let _turn = TURN.lock().await;
    let limits = limits()
        .with_outgoing_bytes(at_most(64 * KIB as u64))
        .with_stdin_bytes(at_most(64 * KIB as u64))
        // Shorter than the child's pause, so that writes are refused and tried again.
        .with_write_wait(millis(30));
    let meter = Meter::process();
    let joined = join(&limits, 4 * KIB, Chunks::Whole);
    within("the session", joined.client.initialize("test")).await.unwrap();
    let script = "sleep 0.2; head -c 5000000; sleep 0.2; cat";
    let (process, mut events) = joined.client.start(shell(&format!("({script}) | sha256sum"), true)).await.unwrap();
    let feeding = async {
        let mut sum = Sum::default();
        let mut piece = Vec::new();
        for number in 1..=2_600_000_u32 {
            piece.extend_from_slice(format!("{number}\n").as_bytes());
            if piece.len() > 30_000 || number == 2_600_000 {
                sum.add(&piece);
                let written = within("a write", process.write(std::mem::take(&mut piece))).await.unwrap();
                assert_eq!(written, WriteStatus::Accepted);
            }
        }
        process.close_stdin().await.unwrap();
        sum.done().0
    };
    let hearing = async {
        let mut said = Vec::new();
        while let Some(event) = within("an event", events.next()).await {
            if let ProcessEvent::Output { bytes, .. } = event {
                said.extend(bytes);
            }
        }
        String::from_utf8(said).unwrap()
    };
    let (wanted, said) = tokio::join!(feeding, hearing);
    assert_eq!(said.split(' ').next(), Some(wanted.as_str()));
    let peak = meter.usage().peak_over_baseline;
    assert!(peak < 1024 * KIB, "{peak} bytes of heap at the peak, on both sides together");
    joined.leave().await;
}

/// A client that reads nothing beyond the handshake until the gate opens.
async fn deaf(limits: Limits) -> (Client, Gate) {
    let gate = Gate::closed();
    // The handshake and the reply to the start have about 1,500 bytes; what comes after them waits.
    let mut probe = Client::opened(limits.clone()).await;
    probe.start("p", &["sleep", "1000"], json!({})).await;
    let heard = probe.received.read();
    probe.leave().await;
    let back = Faults::none().capacity(4 * KIB).stall_reads_after(heard, &gate);
    let mut client = Client::with(limits, Faults::none(), back);
    client.open().await;
    (client, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_right_before_the_exit_is_not_lost_when_the_client_is_away_for_longer_than_grace() {
    let _turn = TURN.lock().await;
    let pid_file = directory("right-before-exit").join("pid");
    let write_pid = format!("echo $$ > {}.new; mv {0}.new {0}", pid_file.display());
    // Perl makes its pipe larger than it was when the server looked, as a process may (F_SETPIPE_SZ).
    let larger =
        r#"exec perl -e 'fcntl(STDOUT, 1031, 1 << 20) or die $!; syswrite(STDOUT, "x" x 1000000) == 1000000 or die'"#;
    for (script, wanted) in [
        ("exec head -c 60000 /dev/zero".to_owned(), 60_000),
        ("head -c 60000 /dev/zero; exec head -c 60001 /dev/zero >&2".to_owned(), 120_001),
        // Another holds the pipes, so that their end does not come.
        ("sleep 30 & echo $! >&3; exec head -c 60000 /dev/zero".to_owned(), 60_000),
        (larger.to_owned(), 1_000_000),
        (format!("sleep 30 & echo $! >&3; {larger}"), 1_000_000),
    ] {
        let other = pid_file.with_extension("other");
        let _ = std::fs::remove_file(&pid_file);
        let limits = limits().with_grace(millis(50)).with_outgoing_bytes(at_most(10_000));
        let (mut client, gate) = deaf(limits).await;
        client.shell("p", &format!("exec 3>{}; {write_pid}; {script} 3>&-", other.display())).await;
        until("its start", || pid_file.exists()).await;
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        until("its end", || !runs(&pid)).await;
        assert_eq!(state(&pid), Some('Z'), "its end cannot have been told yet");
        // Many graces later.
        tokio::time::sleep(Duration::from_millis(500)).await;
        gate.open();
        let story = client.story("p").await;
        assert_eq!(story.stdout.len() + story.stderr.len(), wanted, "{script}");
        assert_eq!(story.code(), 0);
        client.leave().await;
        if let Ok(pid) = std::fs::read_to_string(other)
            && !pid.is_empty()
        {
            common::kill(&pid);
        }
    }
}

fn number_in(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_holds_the_child_back_and_one_that_goes_on_gets_everything() {
    let _turn = TURN.lock().await;
    const PIECE: u64 = 16 * 1024;
    const PIECES: u64 = 400;
    let count = directory("held-back").join("count");
    let limits = limits().with_outgoing_bytes(at_most(64 * 1024));
    let (mut client, gate) = deaf(limits).await;
    let meter = Meter::process();
    // The count is of pieces that were written whole.
    let script = format!(
        "n=0; while [ $n -lt {PIECES} ]; do head -c {PIECE} /dev/zero; n=$((n+1)); echo $n > {0}.new; mv {0}.new {0}; done",
        count.display()
    );
    client.shell("p", &script).await;
    // It is held back when nothing moves for a while in which, before, much did.
    let mut last = 0;
    let mut still = 0;
    within("the child to be held back", async {
        while still < 20 {
            tokio::time::sleep(Duration::from_millis(25)).await;
            let now = number_in(&count);
            still = if now == last && now > 0 { still + 1 } else { 0 };
            last = now;
        }
    })
    .await;
    // Base64 makes 4 bytes of 3. What waits: the queue, the way, the pipe, and a chunk on each side of each.
    let most = (64 + 4) * 3 / 4 + 64 + 4 * 8;
    let written = last * PIECE / 1024;
    assert!(written <= most, "{written} KiB were written by a child nobody listens to; {most} KiB can wait");
    assert!(last < PIECES, "the control: it has more to say");
    let peak = meter.usage().peak_over_baseline;
    assert!(peak < 512 * KIB, "{peak} bytes of heap");
    gate.open();
    let story = client.story("p").await;
    assert_eq!((story.stdout.len() as u64, story.code()), (PIECES * PIECE, 0));
    assert_eq!(number_in(&count), PIECES);
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_of_events_that_stops_holds_the_child_back_too() {
    let _turn = TURN.lock().await;
    let limits = limits().with_outgoing_bytes(at_most(64 * 1024)).with_notification_bytes(at_most(64 * 1024));
    let joined = join(&limits, 4 * KIB, Chunks::Whole);
    within("the session", joined.client.initialize("test")).await.unwrap();
    let (_process, mut events) = joined.client.start(shell("head -c 3000000 /dev/zero", false)).await.unwrap();
    let mut messages = 0;
    let mut still = 0;
    within("everything to stand still", async {
        while still < 20 {
            tokio::time::sleep(Duration::from_millis(25)).await;
            let now = joined.client.peer().counters().messages;
            still = if now == messages && now > 10 { still + 1 } else { 0 };
            messages = now;
        }
    })
    .await;
    assert!(messages < 100, "{messages} messages came for a consumer that reads none");
    let held = joined.client.peer().counters().held_bytes;
    assert!(held < 512 * KIB as u64, "{held} bytes are held for it");
    let mut bytes = 0;
    while let Some(event) = within("an event", events.next()).await {
        match event {
            ProcessEvent::Output { bytes: chunk, .. } => bytes += chunk.len(),
            ProcessEvent::Lost { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
    assert_eq!(bytes, 3_000_000, "the control: it goes on");
    joined.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_gone_holds_nobody_back() {
    let _turn = TURN.lock().await;
    let limits = limits().with_outgoing_bytes(at_most(64 * 1024)).with_notification_bytes(at_most(64 * 1024));
    let joined = join(&limits, 4 * KIB, Chunks::Whole);
    within("the session", joined.client.initialize("test")).await.unwrap();
    let (_endless, events) = joined.client.start(shell("exec cat /dev/zero", false)).await.unwrap();
    drop(events);
    let (_process, mut events) = joined.client.start(shell("head -c 1000000 /dev/zero", false)).await.unwrap();
    let mut bytes = 0;
    while let Some(event) = within("an event", events.next()).await {
        if let ProcessEvent::Output { bytes: chunk, .. } = event {
            bytes += chunk.len();
        }
    }
    assert_eq!(bytes, 1_000_000);
    joined.leave().await;
}

#[tokio::test]
async fn a_start_that_is_given_up_or_refused_leaves_nothing_with_the_client() {
    let _turn = TURN.lock().await;
    let (here, there) = pair(Faults::none(), Faults::none());
    let refuse = Router::new()
        .request("process/start", |_, _: serde_json::Value| async { Err::<(), _>(RpcError::internal("not here")) });
    let (reader, writer) = there.into_split();
    let (_server, connection) =
        PeerBuilder::new(limits()).dialect(Dialect::Bare).router(refuse).connect(reader, writer);
    let serving = tokio::spawn(connection.run());
    let (reader, writer) = here.into_split();
    let (client, work) = ExecClient::connect(limits(), reader, writer);
    let working = tokio::spawn(work);
    let attempt = async || {
        let refused = within("the refusal", client.start(shell("exit 0", false))).await;
        assert!(refused.is_err());
        tokio::select! {
            biased;
            _ = client.start(shell("exit 0", false)) => panic!("nobody has answered yet"),
            () = std::future::ready(()) => {}
        }
        within("an answer behind it", client.start(shell("exit 0", false))).await.unwrap_err();
    };
    for _ in 0..50 {
        attempt().await;
    }
    // Everything runs on this thread; other tests are being set up on theirs.
    let meter = Meter::thread();
    for _ in 0..500 {
        attempt().await;
    }
    let more = meter.usage().live_after;
    assert!(more < 20_000, "{more} bytes more are held after 500 attempts of each kind");
    client.peer().close();
    within("the ends", async { tokio::join!(serving, working) }).await.0.unwrap();
}
