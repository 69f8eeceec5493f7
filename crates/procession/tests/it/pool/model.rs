//! The whole interface against a simple sequential model.
//!
//! The pool is a pool of processes that its caller drives, so that between two operations nothing runs but what the model says. Jobs
//! run until they are told to return or to panic, so that the model knows which are running.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use procession::Scheduler;
use procession::channel::{Sender, bounded};
use procession::pool::{AsyncPool, JobError, JobHandle, OnFull, Pool, Queue};
use proptest::prelude::*;

use super::assert_sums;
use crate::scene::{driven, panic_quietly};

#[derive(Clone, Debug)]
enum Operation {
    Submit,
    /// Of the pending ones the nth, modulo their number.
    Finish {
        nth: usize,
        panics: bool,
    },
    Cancel {
        nth: usize,
    },
    Resize {
        capacity: usize,
    },
    Reserve,
    DropPermit,
    UsePermit,
    Close,
    ShutdownNow,
    Reopen,
    PassTime,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        8 => Just(Operation::Submit),
        6 => (any::<usize>(), prop::bool::weighted(0.3)).prop_map(|(nth, panics)| Operation::Finish { nth, panics }),
        2 => any::<usize>().prop_map(|nth| Operation::Cancel { nth }),
        2 => (1..6_usize).prop_map(|capacity| Operation::Resize { capacity }),
        2 => Just(Operation::Reserve),
        1 => Just(Operation::DropPermit),
        1 => Just(Operation::UsePermit),
        1 => Just(Operation::Close),
        1 => Just(Operation::ShutdownNow),
        2 => Just(Operation::Reopen),
        1 => Just(Operation::PassTime),
    ];
    prop::collection::vec(operation, 1..60)
}

/// What a pool should look like.
#[derive(Default)]
struct Model {
    capacity: usize,
    queue: usize,
    open: bool,
    running: Vec<u32>,
    queued: VecDeque<u32>,
    permits: usize,
    completed: u64,
    panicked: u64,
    cancelled: u64,
    refused: u64,
}

impl Model {
    fn has_place(&self) -> bool {
        self.running.len() + self.queued.len() + self.permits < self.capacity + self.queue
    }

    fn take(&mut self, job: u32) {
        self.queued.push_back(job);
        self.run();
    }

    fn run(&mut self) {
        while self.running.len() < self.capacity
            && let Some(job) = self.queued.pop_front()
        {
            self.running.push(job);
        }
    }
}

struct Both {
    scheduler: Scheduler,
    pool: AsyncPool,
    model: Model,
    jobs: BTreeMap<u32, (Sender<bool>, JobHandle<u32>)>,
    last: u32,
}

impl Both {
    fn new(capacity: usize, queue: usize) -> Self {
        let scheduler = driven();
        let builder = Pool::builder().capacity(capacity).on_full(OnFull::Refuse).keep_alive(Duration::from_secs(1));
        let builder = builder.queue(if queue == 0 { Queue::HandOff } else { Queue::Bounded(queue) });
        let pool = builder.build_async_on(&scheduler).expect("valid");
        let model = Model { capacity, queue, open: true, ..Model::default() };
        Self { scheduler, pool, model, jobs: BTreeMap::new(), last: 0 }
    }

    /// A job that returns its number, or panics, when it is told to.
    fn job(&mut self) -> (u32, Sender<bool>, impl Future<Output = u32> + Send + 'static) {
        self.last += 1;
        let number = self.last;
        let (tell, told) = bounded(1);
        let job = async move {
            if told.receive().await == Some(true) {
                panic_quietly("as told");
            }
            number
        };
        (number, tell, job)
    }

    fn joined(&self, handle: JobHandle<u32>) -> Result<u32, JobError> {
        assert!(handle.is_finished(), "a handle resolves as soon as its job has ended");
        self.scheduler.block_on(handle)
    }

    fn submit(&mut self, with_permit: bool) {
        let (number, tell, job) = self.job();
        let submitted = if with_permit {
            match self.pool.try_reserve() {
                Ok(permit) => {
                    assert!(self.model.open && self.model.has_place());
                    permit.submit(job).map_err(drop)
                }
                Err(_) => Err(()),
            }
        } else {
            self.pool.try_submit(job).map_err(|error| assert_eq!(error.is_closed(), !self.model.open))
        };
        let expected = self.model.open && self.model.has_place();
        assert_eq!(submitted.is_ok(), expected);
        match submitted {
            Ok(handle) => {
                self.jobs.insert(number, (tell, handle));
                self.model.take(number);
            }
            Err(()) => self.model.refused += 1,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Submit => self.submit(false),
            Operation::UsePermit => self.submit(true),
            Operation::Finish { nth, panics } => {
                if self.model.running.is_empty() {
                    return;
                }
                let number = self.model.running.remove(nth % self.model.running.len());
                let (tell, handle) = self.jobs.remove(&number).expect("it was submitted");
                tell.try_send(panics).expect("the job waits for it");
                self.scheduler.run_until_idle();
                match panics {
                    true => {
                        assert_eq!(self.joined(handle), Err(JobError::Panicked("as told".into())));
                        self.model.panicked += 1;
                    }
                    false => {
                        assert_eq!(self.joined(handle), Ok(number));
                        self.model.completed += 1;
                    }
                }
                self.model.run();
            }
            Operation::Cancel { nth } => {
                let numbers: Vec<_> = self.jobs.keys().copied().collect();
                let Some(&number) = numbers.get(nth.checked_rem(numbers.len()).unwrap_or(0)) else { return };
                let place = self.model.queued.iter().position(|&queued| queued == number);
                assert_eq!(self.jobs[&number].1.cancel(), place.is_some(), "what is queued can be cancelled");
                if let Some(place) = place {
                    self.model.queued.remove(place);
                    let (_, handle) = self.jobs.remove(&number).expect("it was submitted");
                    assert_eq!(self.joined(handle), Err(JobError::Cancelled));
                    self.model.cancelled += 1;
                }
            }
            Operation::Resize { capacity } => {
                assert_eq!(self.pool.resize(capacity).expect("in range"), self.model.capacity);
                self.model.capacity = capacity;
                self.model.run();
            }
            Operation::Reserve => {
                let permit = self.pool.try_reserve();
                assert_eq!(permit.is_ok(), self.model.open && self.model.has_place());
                self.model.refused += u64::from(permit.is_err());
                // Kept for as long as the pool is open, by forgetting it.
                self.model.permits += usize::from(permit.map(std::mem::forget).is_ok());
            }
            Operation::DropPermit => {
                if let Ok(permit) = self.pool.try_reserve() {
                    drop(permit);
                } else {
                    self.model.refused += 1;
                }
            }
            Operation::Close => {
                assert_eq!(self.pool.close(), self.model.open);
                self.model.open = false;
                self.model.permits = 0;
            }
            Operation::ShutdownNow => {
                assert_eq!(self.pool.shutdown_now(), self.model.queued.len());
                self.model.open = false;
                self.model.permits = 0;
                for number in std::mem::take(&mut self.model.queued) {
                    let (_, handle) = self.jobs.remove(&number).expect("it was submitted");
                    assert_eq!(self.joined(handle), Err(JobError::Cancelled));
                    self.model.cancelled += 1;
                }
            }
            Operation::Reopen => {
                let at_rest = !self.model.open && self.model.running.is_empty() && self.model.queued.is_empty();
                assert_eq!(self.pool.reopen().is_ok(), at_rest);
                self.model.open |= at_rest;
            }
            Operation::PassTime => {
                self.scheduler.advance(Duration::from_secs(2));
                self.scheduler.run_until_idle();
                assert_eq!(self.pool.stats().idle, 0, "nobody stays idle for longer than the keep-alive");
            }
        }
        self.scheduler.run_until_idle();
        self.check();
    }

    fn check(&self) {
        let stats = self.pool.stats();
        assert_sums(&stats);
        let model = &self.model;
        assert_eq!(stats.closed, !model.open);
        assert_eq!((stats.busy, stats.queued), (model.running.len(), model.queued.len()));
        assert_eq!((stats.reserved, stats.waiting, stats.capacity), (model.permits, 0, model.capacity));
        let ended = (stats.completed, stats.panicked, stats.cancelled, stats.refused);
        assert_eq!(ended, (model.completed, model.panicked, model.cancelled, model.refused));
        assert!(stats.live <= model.capacity.max(model.running.len()), "{stats:?}");
        assert!(model.open || stats.idle == 0, "a closed pool keeps nobody");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_does_what_a_sequential_model_does(
        capacity in 1..5_usize,
        queue in 0..4_usize,
        operations in operations(),
    ) {
        let mut both = Both::new(capacity, queue);
        for operation in &operations {
            both.apply(operation);
        }
    }
}
