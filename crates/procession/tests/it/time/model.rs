//! Goal: timers behave like a sorted map. Method: random operations on both, with far jumps and
//! extreme values, on the test clock.

use crate::home::mpsc;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use procession::Scheduler;
use procession::time::{Instant, Timer, run_after, run_every};
use procession_sync::Mutex;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{on_test_clock, timers};

/// A time that the clock never reaches.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
enum Op {
    After(u64),
    Every(u64),
    /// The first number chooses one of the timers made so far.
    Cancel(usize),
    Reset(usize, u64),
    Advance(u64),
}

fn nanoseconds() -> impl Strategy<Value = u64> {
    const DAY: u64 = 86_400_000_000_000;
    prop_oneof![
        4 => 0..20_u64,
        2 => 0..3_000_000_000_u64,
        1 => (1..500_u64).prop_map(|days| days * DAY),
        1 => Just(400 * DAY),
        1 => any::<u64>(),
        1 => (0..3_u64).prop_map(|less| NEVER - less),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => nanoseconds().prop_map(Op::After),
        1 => nanoseconds().prop_map(Op::Every),
        2 => any::<usize>().prop_map(Op::Cancel),
        3 => (any::<usize>(), nanoseconds()).prop_map(|(timer, delay)| Op::Reset(timer, delay)),
        4 => nanoseconds().prop_map(Op::Advance),
    ]
}

/// The pending timers, by deadline and the order of making, each with its period if it has one.
#[derive(Default)]
struct Model {
    now: u64,
    pending: BTreeMap<(u64, usize), Option<u64>>,
}

impl Model {
    fn add(&mut self, number: usize, delay: u64, period: Option<u64>) {
        self.pending.insert((self.now.saturating_add(delay), number), period);
    }

    fn remove(&mut self, number: usize) -> Option<Option<u64>> {
        let key = *self.pending.keys().find(|(_, pending)| *pending == number)?;
        self.pending.remove(&key)
    }

    /// Returns the timers that fire once the clock shows `now`, in order. A timer at `NEVER` does
    /// not fire.
    fn advance(&mut self, now: u64) -> Vec<usize> {
        self.now = now;
        let due: Vec<_> = self.pending.iter().map(|(key, period)| (*key, *period)).collect();
        let due = due.into_iter().filter(|((when, _), _)| *when <= now && *when != NEVER);
        due.map(|((when, number), period)| {
            self.pending.remove(&(when, number));
            if let Some(period) = period {
                let missed = (now - when) / period;
                let next = when.saturating_add(period.saturating_mul(missed.saturating_add(1)));
                self.pending.insert((next, number), Some(period));
            }
            number
        })
        .collect()
    }
}

struct Tested {
    scheduler: Scheduler,
    start: Instant,
    timers: Vec<Timer>,
    ran: Arc<Mutex<mpsc::Sender<usize>>>,
    runs: mpsc::Receiver<usize>,
}

impl Tested {
    /// Calls `act` on the worker, or on a thread that is not a worker.
    fn at<R>(&self, worker: bool, act: impl FnOnce() -> R) -> R {
        if worker { self.scheduler.block_on(async { act() }) } else { act() }
    }

    fn make(&mut self, delay: u64, periodic: bool) {
        let number = self.timers.len();
        let ran = Arc::clone(&self.ran);
        let run = move || ran.lock().send(number).expect("the test listens");
        let delay = Duration::from_nanos(delay);
        let timer = self.at(true, || {
            if periodic { run_every(delay, run).ok() } else { run_after(delay, run).ok() }
        });
        self.timers.push(timer.expect("the limit is not reached"));
    }
}

fn check(ops: Vec<(Op, bool)>) -> Result<(), TestCaseError> {
    let scheduler = on_test_clock(1);
    let (ran, runs) = mpsc::channel();
    let start = scheduler.now();
    let mut tested =
        Tested { scheduler, start, timers: Vec::new(), ran: Arc::new(Mutex::new(ran)), runs };
    let mut model = Model::default();
    let mut made = 0;
    for (op, on_worker) in ops {
        let which = |number: usize| number.checked_rem(made);
        match op {
            Op::After(delay) => {
                tested.make(delay, false);
                model.add(made, delay, None);
                made += 1;
            }
            Op::Every(period) => {
                tested.make(period, true);
                model.add(made, period.max(1), Some(period.max(1)));
                made += 1;
            }
            Op::Cancel(number) => {
                let Some(number) = which(number) else { continue };
                let cancelled = tested.at(on_worker, || tested.timers[number].cancel());
                prop_assert_eq!(cancelled, model.remove(number).is_some());
            }
            Op::Reset(number, delay) => {
                let Some(number) = which(number) else { continue };
                let when =
                    tested.start + Duration::from_nanos(model.now) + Duration::from_nanos(delay);
                let reset = tested.at(on_worker, || tested.timers[number].reset(when));
                let period = model.remove(number);
                prop_assert_eq!(reset, period.is_some());
                if let Some(period) = period {
                    model.add(number, delay, period);
                }
            }
            Op::Advance(duration) => {
                tested.scheduler.advance(Duration::from_nanos(duration));
                tested.scheduler.run_until_idle();
                let ran: Vec<_> = tested.runs.try_iter().collect();
                // The clock stops just before the end of time.
                let now = model.now.saturating_add(duration).min(NEVER - 1);
                prop_assert_eq!(ran, model.advance(now));
                prop_assert_eq!(
                    tested.scheduler.now() - tested.start,
                    Duration::from_nanos(model.now)
                );
            }
        }
        prop_assert_eq!(timers(&tested.scheduler).pending, model.pending.len() as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(crate::home::seed()), ..ProptestConfig::with_cases(200) })]

    #[test]
    fn timers_do_what_a_sorted_map_does(ops in prop::collection::vec((op(), any::<bool>()), 1..60)) {
        check(ops)?;
    }
}
