//! Gigabytes of message a second: ours and the peers', and the ratios.

use std::process::ExitCode;
use std::time::Duration;

use plimsoll_bench::{Connection, Input, Outcome, Peer, Report, Series, inputs, interleaved, is_quick};

/// At least this many times as fast as the untagged envelope.
const TARGET: f64 = 4.0;
/// Ratios move by 10 to 20 % from run to run.
const SLACK: f64 = 0.9;
/// Where the target is a gate.
const GATED: [&str; 2] = ["toolsList", "walkReply"];

fn main() -> ExitCode {
    let (rounds, turn) = if is_quick() { (5, Duration::from_millis(10)) } else { (41, Duration::from_millis(20)) };
    let mut heads = vec!["input", "bytes", "ours"];
    heads.extend(Peer::ALL.map(Peer::name));
    heads.extend(["ours / untagged", "ours / `&RawValue`"]);
    let mut report = Report::new("speed", &heads);
    let mut gated = 0;
    for input in inputs() {
        eprintln!("{}: {rounds} rounds", input.name);
        let series = measure(&input, rounds, turn);
        let bytes = input.message().len();
        let mut cells = vec![input.name.clone(), bytes.to_string()];
        cells.extend(series.iter().map(|series| speed(bytes, series)));
        let ratios: Vec<f64> = series[1..].iter().map(|theirs| series[0].times_faster_than(theirs)).collect();
        cells.extend(ratios.iter().map(|ratio| format!("{ratio:.2}")));
        report.row(&cells);
        if GATED.contains(&input.name.as_str()) {
            gated += 1;
            report.gate(
                ratios[0] >= TARGET * SLACK,
                format!("{}: {:.2} x the untagged envelope, at least {TARGET} x {SLACK} wanted", input.name, ratios[0]),
            );
        }
    }
    report.gate(gated == GATED.len(), format!("{gated} of the rows {GATED:?} were there to be gated"));
    report.finish()
}

/// Ours first, then the peers in their order.
fn measure(input: &Input, rounds: usize, turn: Duration) -> Vec<Series> {
    let mut connection = Connection::new(input);
    assert_eq!(connection.decode(input.line()), input.expected, "{}", input.name);
    let mut tasks: Vec<Box<dyn FnMut() + '_>> = vec![Box::new(move || {
        connection.decode(input.line());
    })];
    for peer in Peer::ALL {
        let kind = peer.decode(input.message());
        if let Outcome::Message(expected) = input.expected {
            assert_eq!(kind, expected, "{} by {peer:?}", input.name);
        }
        tasks.push(Box::new(move || {
            peer.decode(input.message());
        }));
    }
    interleaved(rounds, turn, &mut tasks)
}

/// Median and best. A byte a nanosecond is a gigabyte a second.
fn speed(bytes: usize, series: &Series) -> String {
    let speed = |nanoseconds: f64| bytes as f64 / nanoseconds;
    format!("{:.3} ({:.3})", speed(series.median()), speed(series.best()))
}
