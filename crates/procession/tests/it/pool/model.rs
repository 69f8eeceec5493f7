//! The whole interface of every kind of pool against a simple sequential model.
//!
//! Jobs run until they are told to return or to panic, so the model knows which ones are running.
//! The test drives the processes, so between two operations nothing runs except what the model
//! says. On threads, the test waits for what the model says.
//!
//! A failure prints its seed and the shortest history that fails.
//! `POOL_SEED=7 cargo test pool::model` repeats a seed.

mod both;

use crate::home::{mpsc, thread};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use procession::coroutine::Wait;
use procession::pool::{
    AsyncFnPool, AsyncPool, Builder, CoPool, FnPool, JobHandle, OnFull, Pool, PoolStats, Queue,
    SubmitError,
};
use procession::sync::channel::Receiver;
use procession::{Scheduler, coroutine};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use self::both::Both;
use crate::scene::{driven, panic_quietly};

/// Number of histories for each kind of pool.
const HISTORIES: u32 = 64;

/// Time limit for what must happen on threads.
const TIMEOUT: Duration = Duration::from_secs(60);

const KEEP_ALIVE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Submits if there is a place.
    TrySubmit,
    /// Submits, and does what the pool does when it is full.
    Submit,
    /// Submits with a timeout of zero.
    SubmitTimed,
    /// Submits with a timeout of a minute, which does not pass.
    SubmitPatient,
    /// Ends the nth running job, modulo their number.
    Finish {
        nth: usize,
        panics: bool,
    },
    /// Cancels the nth job that has not ended, modulo their number.
    Cancel {
        nth: usize,
    },
    /// Drops the handle of the nth job.
    Detach {
        nth: usize,
    },
    Resize {
        capacity: usize,
    },
    TryReserve,
    /// Reserves a place, or waits for one.
    Reserve,
    /// Stops the nth wait for a place.
    LeaveWait {
        nth: usize,
    },
    DropPermit {
        nth: usize,
    },
    UsePermit {
        nth: usize,
    },
    Close,
    ShutdownNow,
    Reopen,
    PassTime,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::{
        Cancel, Close, Detach, DropPermit, Finish, LeaveWait, PassTime, Reopen, Reserve, Resize,
        ShutdownNow, Submit, SubmitPatient, SubmitTimed, TryReserve, TrySubmit, UsePermit,
    };
    let nth = any::<usize>;
    let operation = prop_oneof![
        5 => Just(TrySubmit),
        7 => Just(Submit),
        1 => Just(SubmitTimed),
        2 => Just(SubmitPatient),
        9 => (nth(), prop::bool::weighted(0.3)).prop_map(|(nth, panics)| Finish { nth, panics }),
        2 => nth().prop_map(|nth| Cancel { nth }),
        1 => nth().prop_map(|nth| Detach { nth }),
        2 => (1..6_usize).prop_map(|capacity| Resize { capacity }),
        1 => Just(TryReserve),
        2 => Just(Reserve),
        1 => nth().prop_map(|nth| LeaveWait { nth }),
        1 => nth().prop_map(|nth| DropPermit { nth }),
        2 => nth().prop_map(|nth| UsePermit { nth }),
        1 => Just(Close),
        1 => Just(ShutdownNow),
        2 => Just(Reopen),
        1 => Just(PassTime),
    ];
    prop::collection::vec(operation, 1..60)
}

/// The options of a pool.
#[derive(Clone, Copy, Debug)]
struct Shape {
    capacity: usize,
    queue: Queue,
    on_full: OnFull,
    waiting: usize,
}

impl Shape {
    fn any() -> impl Strategy<Value = Self> {
        let queue = prop_oneof![
            3 => Just(Queue::HandOff),
            3 => (0..4_usize).prop_map(Queue::Bounded),
            1 => Just(Queue::Unbounded),
        ];
        let on_full = prop_oneof![3 => Just(OnFull::Wait), 1 => Just(OnFull::Refuse), 1 => Just(OnFull::CallerRuns)];
        let waiting = prop_oneof![2 => Just(usize::MAX), 1 => 0..3_usize];
        (1..5_usize, queue, on_full, waiting).prop_map(|(capacity, queue, on_full, waiting)| Self {
            capacity,
            queue,
            on_full,
            waiting,
        })
    }

    fn builder(self) -> Builder {
        Pool::builder()
            .capacity(self.capacity)
            .queue(self.queue)
            .on_full(self.on_full)
            .waiting(self.waiting)
    }
}

/// A job that returns its number or panics when it is told to.
struct Work {
    number: u32,
    /// Receives the number when the job starts.
    started: mpsc::Sender<u32>,
    told: Receiver<bool>,
}

impl Work {
    fn start(&self) {
        // Ignored: after a failure, the test does not listen.
        let _ = self.started.send(self.number);
    }

    fn end(&self, told: Option<bool>) -> u32 {
        if told == Some(true) {
            panic_quietly("as told");
        }
        self.number
    }

    fn on_a_thread(self) -> u32 {
        self.start();
        self.end(self.told.recv().wait())
    }

    async fn in_a_process(self) -> u32 {
        self.start();
        self.end(self.told.recv().await)
    }

    fn in_a_coroutine(self) -> u32 {
        self.start();
        self.end(coroutine::wait(self.told.recv()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Full,
    Closed,
    TimedOut,
}

impl Refusal {
    fn of<C>(error: &SubmitError<C>) -> Self {
        match (error.is_full(), error.is_closed(), error.is_timeout()) {
            (true, false, false) => Self::Full,
            (false, true, false) => Self::Closed,
            (false, false, true) => Self::TimedOut,
            _ => panic!("an error for no reason: {error}"),
        }
    }
}

type Submitted = Result<JobHandle<u32>, Refusal>;

/// Uses a permit. If it is dropped, it drops the permit.
type Place = Box<dyn FnOnce(Work) -> Submitted>;

type WaitForPlace = Pin<Box<dyn Future<Output = Result<Place, Refusal>>>>;

/// The way in which a submitter waits.
#[derive(Clone, Copy)]
enum WaitLimit {
    OfThePool,
    For(Duration),
}

/// A pool of any kind.
trait Subject: fmt::Debug {
    fn try_submit(&self, work: Work) -> Submitted;
    /// Submits on a separate thread or in a separate process.
    fn submit(
        &self,
        work: Work,
        timeout: WaitLimit,
        scheduler: Option<&Scheduler>,
    ) -> mpsc::Receiver<Submitted>;
    fn try_reserve(&'static self) -> Result<Place, Refusal>;
    fn reserve(&'static self) -> WaitForPlace;
    fn stats(&self) -> PoolStats;
    fn resize(&self, capacity: usize) -> usize;
    fn close(&self) -> bool;
    fn shutdown_now(&self) -> usize;
    fn reopen(&self) -> bool;
}

/// Runs on a separate thread, which may wait for longer than the test lasts.
#[expect(
    clippy::disallowed_methods,
    reason = "no model sees this test, and a scope would wait for it"
)]
fn submitter(submit: impl FnOnce() + Send + 'static) {
    drop(thread::spawn(submit));
}

/// Implements the operations of a pool. `$job` makes a job of the work.
macro_rules! subject {
    ($pool:ty, $job:expr, $where:ident) => {
        impl Subject for $pool {
            fn try_submit(&self, work: Work) -> Submitted {
                self.job($job(work)).try_submit().map_err(|error| Refusal::of(&error))
            }

            subject!(@$where $pool, $job);

            fn try_reserve(&'static self) -> Result<Place, Refusal> {
                let permit = <$pool>::try_reserve(self).map_err(|error| Refusal::of(&error))?;
                Ok(Box::new(|work| permit.submit($job(work)).map_err(|error| Refusal::of(&error))))
            }

            fn reserve(&'static self) -> WaitForPlace {
                Box::pin(async {
                    let permit = <$pool>::reserve(self).await.map_err(|error| Refusal::of(&error))?;
                    let place: Place = Box::new(|work| permit.submit($job(work)).map_err(|error| Refusal::of(&error)));
                    Ok(place)
                })
            }

            fn stats(&self) -> PoolStats {
                <$pool>::stats(self)
            }

            fn resize(&self, capacity: usize) -> usize {
                <$pool>::resize(self, capacity).expect("in range")
            }

            fn close(&self) -> bool {
                <$pool>::close(self)
            }

            fn shutdown_now(&self) -> usize {
                <$pool>::shutdown_now(self)
            }

            fn reopen(&self) -> bool {
                <$pool>::reopen(self).is_ok()
            }
        }
    };
    (@thread $pool:ty, $job:expr) => {
        fn submit(&self, work: Work, timeout: WaitLimit, _: Option<&Scheduler>) -> mpsc::Receiver<Submitted> {
            let (tell, told) = mpsc::channel();
            let pool = self.clone();
            submitter(move || {
                let job = $job(work);
                let submitted = match timeout {
                    WaitLimit::OfThePool => <$pool>::submit(&pool, job),
                    WaitLimit::For(timeout) => pool.job(job).timeout(timeout).submit(),
                };
                // Ignored: after a failure, the test does not listen.
                let _ = tell.send(submitted.map_err(|error| Refusal::of(&error)));
            });
            told
        }
    };
    (@process $pool:ty, $job:expr) => {
        fn submit(&self, work: Work, timeout: WaitLimit, scheduler: Option<&Scheduler>) -> mpsc::Receiver<Submitted> {
            let (tell, told) = mpsc::channel();
            let pool = self.clone();
            let submitter = async move {
                let job = $job(work);
                let submitted = match timeout {
                    WaitLimit::OfThePool => <$pool>::submit(&pool, job).await,
                    WaitLimit::For(timeout) => pool.job(job).timeout(timeout).submit().await,
                };
                // Ignored: after a failure, the test does not listen.
                let _ = tell.send(submitted.map_err(|error| Refusal::of(&error)));
            };
            drop(scheduler.expect("processes have a scheduler").spawn(submitter));
            told
        }
    };
}

subject!(Pool, |work: Work| || work.on_a_thread(), thread);

subject!(FnPool<Work, u32>, |work: Work| work, thread);

subject!(AsyncPool, Work::in_a_process, process);

subject!(CoPool, |work: Work| || work.in_a_coroutine(), process);

subject!(AsyncFnPool<Work, u32>, |work: Work| work, process);

/// Builds a pool with a handle that lives forever, and the scheduler of its processes.
type Build = fn(Builder) -> (Option<Scheduler>, &'static dyn Subject);

fn leak<P: Subject>(pool: P) -> &'static P {
    Box::leak(Box::new(pool))
}

fn check(on_threads: bool, build: Build) {
    let seed = match std::env::var("POOL_SEED") {
        Ok(seed) => seed.parse().expect("POOL_SEED is a number"),
        Err(_) => crate::home::seed(),
    };
    let config = ProptestConfig {
        cases: HISTORIES,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        // In milliseconds. Shrinking is slow, since an event that never happens is waited for in
        // each history.
        max_shrink_time: 30_000,
        ..ProptestConfig::default()
    };
    let result =
        TestRunner::new(config).run(&(Shape::any(), operations()), |(mut shape, operations)| {
            if !on_threads && shape.on_full == OnFull::CallerRuns {
                // Processes leave no job to their callers.
                shape.on_full = OnFull::Wait;
            }
            let mut both = Both::new(shape, build(shape.builder()));
            for operation in operations {
                both.apply(operation);
            }
            Ok(())
        });
    if let Err(failure) = result {
        panic!("POOL_SEED={seed}: {failure}");
    }
}

fn driven_with_coroutines() -> Scheduler {
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    let builder =
        unsafe { Scheduler::builder().worker_threads(1).test_clock().enable_coroutines() };
    builder.build().expect("it starts no thread")
}

#[test]
fn a_pool_of_threads_does_what_a_sequential_model_does() {
    check(true, |builder| (None, leak(builder.build().expect("valid"))));
}

#[test]
fn a_function_pool_of_threads_does_what_a_sequential_model_does() {
    check(true, |builder| (None, leak(builder.build_function(Work::on_a_thread).expect("valid"))));
}

#[test]
fn a_pool_of_processes_does_what_a_sequential_model_does() {
    check(false, |builder| {
        let scheduler = driven();
        let pool = builder.keep_alive(KEEP_ALIVE).on(&scheduler).build_async().expect("valid");
        (Some(scheduler), leak(pool))
    });
}

#[test]
fn a_function_pool_of_processes_does_what_a_sequential_model_does() {
    check(false, |builder| {
        let scheduler = driven();
        let pool =
            builder.keep_alive(KEEP_ALIVE).on(&scheduler).build_async_function(Work::in_a_process);
        (Some(scheduler), leak(pool.expect("valid")))
    });
}

#[test]
fn a_pool_of_coroutines_does_what_a_sequential_model_does() {
    check(false, |builder| {
        let scheduler = driven_with_coroutines();
        let pool = builder.keep_alive(KEEP_ALIVE).on(&scheduler).build_coroutines().expect("valid");
        (Some(scheduler), leak(pool))
    });
}

#[test]
fn a_function_pool_of_coroutines_does_what_a_sequential_model_does() {
    check(false, |builder| {
        let scheduler = driven_with_coroutines();
        let pool = builder
            .keep_alive(KEEP_ALIVE)
            .on(&scheduler)
            .build_coroutine_function(Work::in_a_coroutine);
        (Some(scheduler), leak(pool.expect("valid")))
    });
}
