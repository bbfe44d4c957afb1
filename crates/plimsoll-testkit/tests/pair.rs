//! Each fault of the in-memory pair does what it says, and wakes whom it must. Time is virtual.

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use plimsoll_testkit::pair::{Chunks, Cut, End, Faults, Gate, pair};
use plimsoll_testkit::step::{drop_at_every_await, poll_times};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

const HOUR: Duration = Duration::from_secs(3_600);

/// Everything until the end, and the size of each read.
async fn read_all(end: &mut End) -> std::io::Result<(Vec<u8>, Vec<usize>)> {
    let (mut bytes, mut sizes, mut buffer) = (Vec::new(), Vec::new(), [0; 4_096]);
    loop {
        match end.read(&mut buffer).await? {
            0 => return Ok((bytes, sizes)),
            size => {
                bytes.extend_from_slice(&buffer[..size]);
                sizes.push(size);
            }
        }
    }
}

fn text(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

#[tokio::test(start_paused = true)]
async fn bytes_go_both_ways() {
    let (mut left, mut right) = pair(Faults::none(), Faults::none());
    left.write_all(b"ping").await.expect("room");
    right.write_all(b"pong").await.expect("room");
    let mut buffer = [0; 4];
    right.read_exact(&mut buffer).await.expect("four bytes");
    assert_eq!(&buffer, b"ping");
    left.read_exact(&mut buffer).await.expect("four bytes");
    assert_eq!(&buffer, b"pong");
}

#[tokio::test(start_paused = true)]
async fn a_full_direction_waits_for_its_reader() {
    let (mut left, mut right) = pair(Faults::none().capacity(10), Faults::none());
    assert_eq!(left.write(&text(25)).await.expect("room"), 10);
    assert_eq!(poll_times(left.write(b"x"), 1).await.transpose().expect("no error"), None);
    let watch = left.outgoing();
    assert_eq!((watch.written(), watch.read(), watch.in_flight()), (10, 0, 10));

    let writing = tokio::spawn(async move { left.write_all(&text(25)[10..]).await });
    let (bytes, _) = read_all(&mut right).await.expect("no error");
    assert_eq!(bytes, text(25));
    writing.await.expect("no panic").expect("all taken");
    assert_eq!((watch.written(), watch.read(), watch.in_flight()), (25, 25, 0));
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_move_no_more_than_a_chunk() {
    let faults = Faults::none().read_chunks(Chunks::AtMost(3)).write_chunks(Chunks::AtMost(7));
    let (mut left, mut right) = pair(faults, Faults::none());
    assert_eq!(left.write(&text(20)).await.expect("room"), 7);
    left.write_all(&text(20)[7..]).await.expect("room");
    drop(left);
    let (bytes, sizes) = read_all(&mut right).await.expect("no error");
    assert_eq!(bytes, text(20));
    assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 2]);
}

#[tokio::test(start_paused = true)]
async fn random_chunks_repeat_with_their_seed() {
    async fn sizes(seed: u64) -> Vec<usize> {
        let chunks = Chunks::random(seed, 500);
        let faults = Faults::none().read_chunks(chunks.clone()).write_chunks(chunks);
        let (mut left, mut right) = pair(faults, Faults::none());
        left.write_all(&text(20_000)).await.expect("room");
        drop(left);
        let (bytes, sizes) = read_all(&mut right).await.expect("no error");
        assert_eq!(bytes, text(20_000));
        assert!(sizes.iter().all(|size| *size <= 500));
        sizes
    }
    assert_eq!(sizes(1).await, sizes(1).await);
    assert_ne!(sizes(1).await, sizes(2).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_arrives_after_the_latency() {
    let begun = Instant::now();
    let (mut left, mut right) = pair(Faults::none().latency(Duration::from_millis(250)), Faults::none());
    left.write_all(b"a").await.expect("room");
    tokio::time::sleep(Duration::from_millis(100)).await;
    left.write_all(b"b").await.expect("room");
    drop(left);

    let mut buffer = [0; 8];
    assert_eq!(right.read(&mut buffer).await.expect("one byte"), 1);
    assert_eq!(begun.elapsed(), Duration::from_millis(250));
    assert_eq!(right.read(&mut buffer).await.expect("one byte"), 1);
    assert_eq!(begun.elapsed(), Duration::from_millis(350));
    assert_eq!(right.read(&mut buffer).await.expect("the end"), 0);
    assert_eq!(begun.elapsed(), Duration::from_millis(350));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_already_waits_is_woken_after_the_latency() {
    let begun = Instant::now();
    let (mut left, mut right) = pair(Faults::none().latency(Duration::from_secs(1)), Faults::none());
    let reading = tokio::spawn(async move { read_all(&mut right).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    left.write_all(b"late").await.expect("room");
    left.shutdown().await.expect("open");
    assert_eq!(reading.await.expect("no panic").expect("no error").0, b"late");
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_cut_gives_the_bytes_before_it_and_then_the_end() {
    let (mut left, mut right) = pair(Faults::none().cut_after(6, Cut::Eof), Faults::none());
    assert_eq!(left.write(b"0123456789").await.expect("room"), 6);
    assert_eq!(left.write(b"6789").await.expect_err("cut").kind(), ErrorKind::BrokenPipe);
    assert_eq!(read_all(&mut right).await.expect("an end, no error").0, b"012345");
}

#[tokio::test(start_paused = true)]
async fn a_cut_with_an_error_shows_it_to_both() {
    let faults = Faults::none().cut_after(6, Cut::Error(ErrorKind::ConnectionReset));
    let (mut left, mut right) = pair(faults, Faults::none());
    assert_eq!(left.write_all(b"0123456789").await.expect_err("cut").kind(), ErrorKind::ConnectionReset);
    let mut buffer = [0; 6];
    right.read_exact(&mut buffer).await.expect("the bytes before the cut");
    assert_eq!(right.read(&mut buffer).await.expect_err("cut").kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_cut_wakes_a_reader_that_waits() {
    let (mut left, mut right) = pair(Faults::none().cut_after(3, Cut::Eof), Faults::none());
    let reading = tokio::spawn(async move { read_all(&mut right).await });
    tokio::task::yield_now().await;
    left.write_all(b"abc").await.expect("room");
    assert_eq!(timeout(HOUR, reading).await.expect("woken").expect("no panic").expect("no error").0, b"abc");
}

#[tokio::test(start_paused = true)]
async fn a_read_stall_holds_until_its_gate_opens() {
    let gate = Gate::closed();
    let (mut left, mut right) = pair(Faults::none().capacity(8).stall_reads_after(4, &gate), Faults::none());
    assert_eq!(left.write(b"0123456789").await.expect("room"), 8);
    let mut buffer = [0; 16];
    assert_eq!(right.read(&mut buffer).await.expect("before the stall"), 4);
    assert!(timeout(HOUR, right.read(&mut buffer)).await.is_err());
    assert_eq!(left.write(b"89ab").await.expect("room"), 4);
    assert!(timeout(HOUR, left.write(b"c")).await.is_err(), "a peer that does not read fills the direction");

    let reading = tokio::spawn(async move { read_all(&mut right).await });
    tokio::task::yield_now().await;
    drop(left);
    gate.open();
    assert_eq!(timeout(HOUR, reading).await.expect("woken").expect("no panic").expect("no error").0, b"456789ab");
}

#[tokio::test(start_paused = true)]
async fn a_write_stall_holds_until_its_gate_opens() {
    let gate = Gate::closed();
    let (mut left, mut right) = pair(Faults::none().stall_writes_after(4, &gate), Faults::none());
    assert_eq!(left.write(b"0123456789").await.expect("room"), 4);
    assert!(timeout(HOUR, left.write(b"456789")).await.is_err());

    let writing = tokio::spawn(async move { left.write_all(b"456789").await });
    tokio::task::yield_now().await;
    assert!(!gate.is_open());
    gate.open();
    assert_eq!(timeout(HOUR, read_all(&mut right)).await.expect("woken").expect("no error").0, b"0123456789");
    writing.await.expect("no panic").expect("all taken");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_writer_notices_that_its_reader_is_gone() {
    let gate = Gate::closed();
    let (mut left, right) = pair(Faults::none().stall_writes_after(0, &gate), Faults::none());
    let writing = tokio::spawn(async move { left.write_all(b"x").await });
    tokio::task::yield_now().await;
    drop(right);
    let error = timeout(HOUR, writing).await.expect("woken").expect("no panic").expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn dropping_an_end_ends_both_directions() {
    let (mut left, mut right) = pair(Faults::none().capacity(1), Faults::none());
    right.write_all(b"last words").await.expect("room");
    let outgoing = left.outgoing();
    left.write_all(b"x").await.expect("room");
    let writing = tokio::spawn(async move { (left.write_all(b"y").await, left) });
    tokio::task::yield_now().await;
    drop(right);
    let (written, mut left) = timeout(HOUR, writing).await.expect("woken").expect("no panic");
    assert_eq!(written.expect_err("gone").kind(), ErrorKind::BrokenPipe);
    assert!(outgoing.is_read_closed() && !outgoing.is_write_closed());
    assert_eq!(read_all(&mut left).await.expect("no error").0, b"last words");
}

#[tokio::test(start_paused = true)]
async fn a_half_that_is_shut_down_still_reads() {
    let (mut left, right) = pair(Faults::none(), Faults::none());
    left.write_all(b"question").await.expect("room");
    left.shutdown().await.expect("open");
    assert_eq!(left.write(b"more").await.expect_err("shut down").kind(), ErrorKind::BrokenPipe);
    let (mut reader, mut writer) = right.into_split();
    let mut buffer = [0; 16];
    assert_eq!(reader.read(&mut buffer).await.expect("bytes"), 8);
    assert_eq!(reader.read(&mut buffer).await.expect("the end"), 0);
    writer.write_all(b"answer").await.expect("room");
    drop(writer);
    assert_eq!(read_all(&mut left).await.expect("no error").0, b"answer");
}

#[tokio::test(start_paused = true)]
async fn slices_are_written_as_one() {
    let (mut left, mut right) = pair(Faults::none().write_chunks(Chunks::AtMost(5)), Faults::none());
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdefg")];
    assert!(tokio::io::AsyncWrite::is_write_vectored(&left));
    assert_eq!(left.write_vectored(&slices).await.expect("room"), 5);
    drop(left);
    assert_eq!(read_all(&mut right).await.expect("no error").0, b"abcde");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_dropped_loses_nothing() {
    let faults = Faults::none().latency(Duration::from_millis(10)).read_chunks(Chunks::random(7, 64));
    let (mut left, mut right) = pair(faults.capacity(100), Faults::none());
    let writing = tokio::spawn(async move { left.write_all(&text(10_000)).await });
    let (mut bytes, mut drops, mut buffer) = (Vec::new(), 0, [0; 50]);
    loop {
        let (size, dropped) = drop_at_every_await(async || right.read(&mut buffer).await).await;
        drops += dropped;
        match size.expect("no error") {
            0 => break,
            size => bytes.extend_from_slice(&buffer[..size]),
        }
    }
    assert_eq!(bytes, text(10_000));
    assert!(drops >= 100, "{drops}");
    writing.await.expect("no panic").expect("all taken");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_never_waits_lets_others_run() {
    let (mut left, mut right) = pair(Faults::none(), Faults::none());
    left.write_all(&text(60_000)).await.expect("room");
    let reading = tokio::spawn(async move {
        let mut byte = [0];
        for _ in 0..60_000 {
            right.read_exact(&mut byte).await.expect("bytes");
        }
    });
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(!reading.is_finished());
    reading.await.expect("no panic");
}
