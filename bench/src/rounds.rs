//! Time, in interleaved rounds.
//!
//! In every round each task has its turn, in an order that moves on, so that a machine that slows down slows all of
//! them. A ratio is the median of the rounds' own ratios; a speed is the median of the rounds, and the best.
//!
//! The clock is the thread's own: what the processor does for others meanwhile does not count. What they do to its
//! caches and to the other half of its core does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What one task took: nanoseconds a call, one figure a round.
#[derive(Clone, Debug, Default)]
pub struct Series {
    rounds: Vec<f64>,
}

impl Series {
    /// The median in nanoseconds a call.
    pub fn median(&self) -> f64 {
        median(self.rounds.iter().copied())
    }

    /// The best round in nanoseconds a call.
    pub fn best(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How many times longer the other task took, round by round.
    pub fn times_faster_than(&self, other: &Series) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(ours, theirs)| theirs / ours))
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    match figures.as_slice() {
        [] => f64::NAN,
        sorted if sorted.len() % 2 == 1 => sorted[sorted.len() / 2],
        sorted => (sorted[sorted.len() / 2 - 1] + sorted[sorted.len() / 2]) / 2.0,
    }
}

/// Runs every task once a round, each for at least `turn` or one call.
pub fn interleaved(rounds: usize, turn: Duration, tasks: &mut [Box<dyn FnMut() + '_>]) -> Vec<Series> {
    let calls: Vec<u32> = tasks.iter_mut().map(|task| calls_within(turn, task)).collect();
    let mut series = vec![Series::default(); tasks.len()];
    for round in 0..rounds {
        for step in 0..tasks.len() {
            let turn_of = (round + step) % tasks.len();
            let began = now();
            for _ in 0..calls[turn_of] {
                tasks[turn_of]();
            }
            let nanoseconds = now().saturating_sub(began).as_nanos() as f64;
            series[turn_of].rounds.push(nanoseconds / f64::from(calls[turn_of]));
        }
    }
    series
}

/// How many calls fill a turn; also warms the task up.
fn calls_within(turn: Duration, task: &mut dyn FnMut()) -> u32 {
    let mut calls = 1_u32;
    loop {
        let began = now();
        for _ in 0..calls {
            task();
        }
        let took = now().saturating_sub(began);
        if took * 2 >= turn {
            let wanted = turn.as_secs_f64() / took.as_secs_f64() * f64::from(calls);
            return (wanted.ceil() as u32).max(1);
        }
        calls = calls.saturating_mul(2);
    }
}

/// How long this thread has run.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
