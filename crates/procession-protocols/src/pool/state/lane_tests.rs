//! Random histories of jobs with priorities and keys, against the rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use proptest::prelude::*;

use super::core::PoolCore;
use super::idle::{IdleWorker, Order, PoolSeat};
use super::lane::JobLane;
use super::outcome::{Ended, Limits, Next};
use super::queue::PASSED_MAX;
use crate::process::priority::Priority;

const CAPACITY: usize = 3;

#[derive(Clone, Copy, Debug)]
enum LaneOperation {
    Enter(JobLane),
    Finish(usize),
    Withdraw(usize),
    Clear,
}

fn operation() -> impl Strategy<Value = LaneOperation> {
    let priority = prop_oneof![Just(Priority::Batch), Just(Priority::Normal), Just(Priority::High)];
    let lane = (priority, prop::option::weighted(0.6, 0..3_u64))
        .prop_map(|(priority, key)| JobLane { priority, key });
    prop_oneof![
        9 => lane.prop_map(LaneOperation::Enter),
        8 => any::<usize>().prop_map(LaneOperation::Finish),
        2 => any::<usize>().prop_map(LaneOperation::Withdraw),
    ]
}

/// The rules: what is queued, what runs in which seat, and how often each priority was passed.
struct Rules {
    core: PoolCore<u64>,
    seats: Vec<Arc<PoolSeat<u64>>>,
    running: BTreeMap<u64, (JobLane, Arc<PoolSeat<u64>>)>,
    queued: BTreeMap<u64, JobLane>,
    passed: [u32; 3],
    entered: u64,
}

impl Rules {
    fn new() -> Self {
        let limits = Limits {
            capacity: CAPACITY,
            queue: usize::MAX,
            waiting: 0,
            kept: 0,
            rests: false,
            threads: true,
        };
        Self {
            core: PoolCore::new(limits),
            seats: Vec::new(),
            running: BTreeMap::new(),
            queued: BTreeMap::new(),
            passed: [0; 3],
            entered: 0,
        }
    }

    /// Returns the tickets of the jobs that no earlier job of their key holds up.
    fn ready(&self) -> Vec<(u64, JobLane)> {
        let holds = |ticket: u64, lane: JobLane| {
            lane.key.is_some()
                && (self.running.values().any(|(other, _)| other.key == lane.key)
                    || self.queued.range(..ticket).any(|(_, other)| other.key == lane.key))
        };
        let ready = self.queued.iter().map(|(&ticket, &lane)| (ticket, lane));
        ready.filter(|&(ticket, lane)| !holds(ticket, lane)).collect()
    }

    fn run(&mut self, ticket: u64, seat: Arc<PoolSeat<u64>>) {
        let ready = self.ready();
        let lane = ready.iter().find(|job| job.0 == ticket).expect("the job is ready").1;
        let level = lane.priority as usize;
        for &(other, with) in &ready {
            assert!(with.priority != lane.priority || other >= ticket, "first come, first served");
        }
        let has_jobs = |level: usize| ready.iter().any(|job| job.1.priority as usize == level);
        if (level + 1..3).any(has_jobs) {
            assert_eq!(self.passed[level], PASSED_MAX, "it goes before a higher priority");
        }
        for lower in (0..level).filter(|&lower| has_jobs(lower)) {
            self.passed[lower] += 1;
            assert!(self.passed[lower] <= PASSED_MAX, "a priority starves");
        }
        if ready.len() > 1 || !self.seats.iter().any(|other| Arc::ptr_eq(other, &seat)) {
            self.passed[level] = 0;
        }
        self.queued.remove(&ticket);
        self.running.insert(ticket, (lane, seat));
    }

    fn enter(&mut self, lane: JobLane) {
        self.entered += 1;
        let job = self.entered;
        let mut fresh = None;
        let entered = self.core.enter(None, lane, job, &mut || {
            Ok(IdleWorker::Parked(Arc::clone(fresh.insert(PoolSeat::new()))))
        });
        entered.1.wake();
        assert_eq!(entered.0.expect("the queue has no bound"), job);
        self.queued.insert(job, lane);
        let seats = fresh.iter().chain(&self.seats).cloned().collect::<Vec<_>>();
        for seat in seats {
            self.look_into(&seat);
        }
        self.seats.extend(fresh);
    }

    fn look_into(&mut self, seat: &Arc<PoolSeat<u64>>) {
        if let Some(Order::Run(ticket, job)) = seat.take_order(Waker::noop()) {
            assert_eq!(ticket, job);
            self.run(ticket, Arc::clone(seat));
        }
    }

    fn finish(&mut self, nth: usize) {
        let Some(&ticket) = self.running.keys().nth(nth % self.running.len().max(1)) else {
            return;
        };
        let (_, seat) = self.running.remove(&ticket).expect("it runs");
        let parked = || IdleWorker::Parked(Arc::clone(&seat));
        let (next, wakes) = self.core.finish(parked, ticket, Ended::Panicked);
        wakes.wake();
        match next {
            Next::Run(ticket, _) => {
                // Its turn is counted even if no other job is ready.
                let level = self.queued[&ticket].priority as usize;
                self.run(ticket, seat);
                self.passed[level] = 0;
            }
            Next::Park => {}
            _ => panic!("the pool is open: {next:?}"),
        }
    }

    fn withdraw(&mut self, nth: usize) {
        let Some(&ticket) = self.queued.keys().nth(nth % self.queued.len().max(1)) else {
            return;
        };
        let (job, wakes) = self.core.withdraw(ticket);
        wakes.wake();
        assert_eq!(job, Some(ticket), "a queued job can be withdrawn");
        self.queued.remove(&ticket);
    }

    fn clear(&mut self) {
        let (mut jobs, wakes) = self.core.clear();
        wakes.wake();
        jobs.sort_unstable();
        assert!(jobs.iter().eq(self.queued.keys()), "every queued job comes back");
        self.queued.clear();
        while let Some((ticket, _)) = self.running.pop_first() {
            let (next, wakes) =
                self.core.finish(|| panic!("it is closed"), ticket, Ended::Completed);
            wakes.wake();
            assert!(matches!(next, Next::Leave));
        }
        assert!(self.core.look(|state| state.queue.has_no_keys()), "no key is remembered");
    }

    fn play(&mut self, operation: LaneOperation) {
        match operation {
            LaneOperation::Enter(lane) => self.enter(lane),
            LaneOperation::Finish(nth) => self.finish(nth),
            LaneOperation::Withdraw(nth) => self.withdraw(nth),
            LaneOperation::Clear => self.clear(),
        }
        let stats = self.core.stats();
        assert_eq!(
            (stats.queued, stats.live - stats.idle),
            (self.queued.len(), self.running.len())
        );
        let ready = self.ready().len();
        assert!(ready == 0 || self.running.len() == CAPACITY, "a ready job waits beside a worker");
        assert_eq!(self.core.look(|state| state.queue.ready), ready);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jobs_run_by_priority_and_one_of_each_key(operations in prop::collection::vec(operation(), 1..120)) {
        let mut rules = Rules::new();
        operations.into_iter().chain([LaneOperation::Clear]).for_each(|next| rules.play(next));
    }
}
