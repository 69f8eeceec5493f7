//! A pool and its model, side by side.

use crate::home::{mpsc, thread};
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::Scheduler;
use procession::pool::{JobError, JobHandle, OnFull, Queue};
use procession::sync::channel::{Sender, bounded};
use procession::time::Instant;

use super::{
    KEEP_ALIVE, Operation, Place, Refusal, Shape, Subject, Submitted, TIMEOUT, WaitForPlace,
    WaitLimit, Work,
};
use crate::pool::assert_sums;

/// A waiter for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Job(u32),
    Permit(u32),
}

/// The expected state of a pool.
struct Model {
    shape: Shape,
    queue: usize,
    open: bool,
    running: Vec<u32>,
    /// Each job with the step in which it was queued: submitters that go on at the same time queue
    /// their jobs in any order.
    queued: VecDeque<(u32, u32)>,
    waiting: VecDeque<Waiting>,
    /// Jobs that their submitters run.
    inline: Vec<u32>,
    /// Permits that are not void.
    permits: Vec<u32>,
    completed: u64,
    panicked: u64,
    cancelled: u64,
    refused: u64,
}

impl Model {
    fn has_place(&self) -> bool {
        let used = self.running.len() + self.queued.len() + self.permits.len();
        used < self.shape.capacity.saturating_add(self.queue)
    }

    /// Returns `Ok` if a newcomer finds a place. Waiters go first.
    fn lets_in(&self) -> Result<(), Refusal> {
        match (self.open, self.waiting.is_empty() && self.has_place()) {
            (false, _) => Err(Refusal::Closed),
            (true, false) => Err(Refusal::Full),
            (true, true) => Ok(()),
        }
    }

    fn may_wait(&self) -> bool {
        self.waiting.len() < self.shape.waiting
    }

    fn ended(&mut self, panics: bool) {
        if panics {
            self.panicked += 1;
        } else {
            self.completed += 1;
        }
    }
}

/// A job that was submitted.
struct Submission {
    tell: Sender<bool>,
    /// Receives the handle, if the submitter has not sent it yet.
    told: Option<mpsc::Receiver<Submitted>>,
    handle: Option<JobHandle<u32>>,
    detached: bool,
}

pub(super) struct Both {
    /// The scheduler of a pool of processes.
    scheduler: Option<Scheduler>,
    pool: &'static dyn Subject,
    model: Model,
    jobs: BTreeMap<u32, Submission>,
    places: BTreeMap<u32, Place>,
    waits: BTreeMap<u32, WaitForPlace>,
    starts: (mpsc::Sender<u32>, mpsc::Receiver<u32>),
    last: u32,
    step: u32,
}

impl Drop for Both {
    fn drop(&mut self) {
        self.places.clear();
        self.waits.clear();
        self.pool.shutdown_now();
    }
}

impl Both {
    pub(super) fn new(
        shape: Shape,
        (scheduler, pool): (Option<Scheduler>, &'static dyn Subject),
    ) -> Self {
        let queue = match shape.queue {
            Queue::HandOff => 0,
            Queue::Bounded(jobs) => jobs,
            _ => usize::MAX,
        };
        let model = Model {
            shape,
            queue,
            open: true,
            running: Vec::new(),
            queued: VecDeque::new(),
            waiting: VecDeque::new(),
            inline: Vec::new(),
            permits: Vec::new(),
            completed: 0,
            panicked: 0,
            cancelled: 0,
            refused: 0,
        };
        Self {
            scheduler,
            pool,
            model,
            jobs: BTreeMap::new(),
            places: BTreeMap::new(),
            waits: BTreeMap::new(),
            starts: mpsc::channel(),
            last: 0,
            step: 0,
        }
    }

    fn on_threads(&self) -> bool {
        self.scheduler.is_none()
    }

    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn work(&mut self) -> (u32, Sender<bool>, Work) {
        let number = self.number();
        let (tell, told) = bounded(1);
        (number, tell, Work { number, started: self.starts.0.clone(), told })
    }

    /// Lets processes run. Threads run anyway.
    fn run(&self) {
        if let Some(scheduler) = &self.scheduler {
            drop(scheduler.run_until_idle());
        }
    }

    /// Returns what the other side must have sent.
    fn received<T>(&self, from: &mpsc::Receiver<T>) -> T {
        let received =
            if self.on_threads() { from.recv_timeout(TIMEOUT).ok() } else { from.try_recv().ok() };
        received.expect("what the model says happens")
    }

    fn joined(&self, handle: JobHandle<u32>) -> Result<u32, JobError> {
        match &self.scheduler {
            Some(scheduler) => {
                assert!(handle.is_finished(), "a handle resolves as soon as its job has ended");
                scheduler.block_on(handle)
            }
            None => handle.join_timeout(TIMEOUT).expect("the job has ended"),
        }
    }

    fn take(&mut self, number: u32, tell: Sender<bool>, handle: JobHandle<u32>) {
        self.jobs
            .insert(number, Submission { tell, told: None, handle: Some(handle), detached: false });
        self.model.queued.push_back((self.step, number));
    }

    /// Submits on a separate thread or in a separate process.
    fn submit(&mut self, timeout: WaitLimit) {
        let (number, tell, work) = self.work();
        let told = self.pool.submit(work, timeout, self.scheduler.as_ref());
        self.run();
        let submission =
            |told| Submission { tell, told: Some(told), handle: None, detached: false };
        let refuses =
            matches!(timeout, WaitLimit::OfThePool) && self.model.shape.on_full == OnFull::Refuse;
        let runs_here = matches!(timeout, WaitLimit::OfThePool)
            && self.model.shape.on_full == OnFull::CallerRuns
            && self.on_threads();
        let no_time = matches!(timeout, WaitLimit::For(Duration::ZERO));
        let refused = match self.model.lets_in() {
            Ok(()) => {
                self.jobs.insert(number, submission(told));
                self.model.queued.push_back((self.step, number));
                return;
            }
            Err(Refusal::Full) if runs_here => {
                assert_eq!(self.received(&self.starts.1), number, "its submitter runs it");
                self.jobs.insert(number, submission(told));
                self.model.inline.push(number);
                return;
            }
            Err(Refusal::Full) if !refuses && self.model.may_wait() => {
                if !no_time {
                    self.jobs.insert(number, submission(told));
                    self.model.waiting.push_back(Waiting::Job(number));
                    return;
                }
                Refusal::TimedOut
            }
            Err(refusal) => refusal,
        };
        self.model.refused += 1;
        assert_eq!(self.received(&told).expect_err("the model refuses"), refused);
    }

    /// Gives free places to waiters, and free workers to queued jobs.
    fn settle(&mut self) {
        while self.model.open
            && self.model.has_place()
            && let Some(waiting) = self.model.waiting.pop_front()
        {
            match waiting {
                Waiting::Job(number) => self.model.queued.push_back((self.step, number)),
                Waiting::Permit(number) => {
                    let place = self.await_place(number).map_err(|refusal| format!("{refusal:?}"));
                    self.places.insert(number, place.expect("the pool is open"));
                    self.model.permits.push(number);
                }
            }
        }
        let free = self.model.shape.capacity.saturating_sub(self.model.running.len());
        let mut last = 0;
        // They start at once, and report it in any order.
        for _ in 0..free.min(self.model.queued.len()) {
            let number = self.received(&self.starts.1);
            let place = self.model.queued.iter().position(|queued| queued.1 == number);
            let queued = place.and_then(|place| self.model.queued.remove(place));
            last = last.max(queued.expect("a job starts that was queued").0);
            self.model.running.push(number);
        }
        assert!(
            self.model.queued.iter().all(|queued| queued.0 >= last),
            "first come, first served"
        );
        for submission in self.jobs.values_mut() {
            // A job in the pool, with a submitter that has gone on.
            let Some(told) = &submission.told else { continue };
            if let Ok(submitted) = told.try_recv() {
                submission.handle = Some(submitted.expect("the model took it"));
                submission.told = None;
            }
        }
    }

    /// Polls a waiter for a place. Once it has one, it is removed.
    fn poll_wait(&mut self, number: u32) -> Option<Result<Place, Refusal>> {
        let wait = self.waits.get_mut(&number).expect("he waits");
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(placed) => {
                self.waits.remove(&number);
                Some(placed)
            }
            Poll::Pending => None,
        }
    }

    /// Polls a waiter that gets a place or the end of the pool, until it has either.
    fn await_place(&mut self, number: u32) -> Result<Place, Refusal> {
        let deadline = self.on_threads().then(|| Instant::now() + TIMEOUT);
        loop {
            if let Some(placed) = self.poll_wait(number) {
                return placed;
            }
            assert!(
                deadline.is_some_and(|deadline| Instant::now() < deadline),
                "a place is free: {:?}",
                self.pool
            );
            thread::yield_now();
        }
    }

    /// Returns the handle of a job in the pool, unless it was dropped.
    fn handle(&mut self, number: u32) -> Option<JobHandle<u32>> {
        let submission = self.jobs.remove(&number).expect("it was submitted");
        match submission.told {
            Some(told) => Some(self.received(&told).expect("the model took it"))
                .filter(|_| !submission.detached),
            None => submission.handle,
        }
    }

    fn all_cancelled(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            if let Some(handle) = self.handle(number) {
                assert_eq!(self.joined(handle), Err(JobError::Cancelled));
            }
            self.model.cancelled += 1;
        }
    }

    /// Closes the model: waiters get their work back, and reservations are void.
    fn closed(&mut self) {
        self.model.open = false;
        self.model.permits.clear();
        self.run();
        for waiting in std::mem::take(&mut self.model.waiting) {
            match waiting {
                Waiting::Job(number) => {
                    let told = self
                        .jobs
                        .remove(&number)
                        .and_then(|submission| submission.told)
                        .expect("it waits");
                    assert_eq!(
                        self.received(&told).expect_err("the pool is closed"),
                        Refusal::Closed
                    );
                    self.model.refused += 1;
                }
                Waiting::Permit(number) => {
                    assert_eq!(self.await_place(number).err(), Some(Refusal::Closed));
                }
            }
        }
    }

    pub(super) fn apply(&mut self, operation: Operation) {
        self.step += 1;
        match operation {
            Operation::TrySubmit => {
                let (number, tell, work) = self.work();
                let submitted = self.pool.try_submit(work);
                match self.model.lets_in() {
                    Ok(()) => self.take(number, tell, submitted.expect("there is a place")),
                    Err(refusal) => {
                        assert_eq!(submitted.expect_err("there is no place"), refusal);
                        self.model.refused += 1;
                    }
                }
            }
            Operation::Submit => self.submit(WaitLimit::OfThePool),
            Operation::SubmitTimed => self.submit(WaitLimit::For(Duration::ZERO)),
            Operation::SubmitPatient => self.submit(WaitLimit::For(Duration::from_secs(3600))),
            Operation::Finish { nth, panics } => {
                let workers = self.model.running.len();
                let Some(nth) = nth.checked_rem(workers + self.model.inline.len()) else { return };
                let number = match nth.checked_sub(workers) {
                    None => self.model.running.remove(nth),
                    Some(nth) => self.model.inline.remove(nth),
                };
                self.jobs[&number].tell.try_send(panics).expect("the job waits for it");
                self.run();
                if let Some(handle) = self.handle(number) {
                    let expected =
                        if panics { Err(JobError::Panicked("as told".into())) } else { Ok(number) };
                    assert_eq!(self.joined(handle), expected);
                }
                self.model.ended(panics);
            }
            Operation::Cancel { nth } => {
                let handles: Vec<_> = self
                    .jobs
                    .iter()
                    .filter(|job| job.1.handle.is_some())
                    .map(|job| *job.0)
                    .collect();
                let Some(nth) = nth.checked_rem(handles.len()) else { return };
                let number = handles[nth];
                let place = self.model.queued.iter().position(|queued| queued.1 == number);
                let handle = self.jobs[&number].handle.as_ref().expect("it was looked for");
                assert_eq!(handle.cancel(), place.is_some(), "what is queued can be cancelled");
                if let Some(place) = place {
                    self.model.queued.remove(place);
                    self.all_cancelled([number]);
                }
            }
            Operation::Detach { nth } => {
                let Some(nth) = nth.checked_rem(self.jobs.len()) else { return };
                let submission = self.jobs.values_mut().nth(nth).expect("there are so many");
                submission.handle = None;
                submission.detached = true;
            }
            Operation::Resize { capacity } => {
                assert_eq!(self.pool.resize(capacity), self.model.shape.capacity);
                self.model.shape.capacity = capacity;
            }
            Operation::TryReserve => {
                let reserved = self.pool.try_reserve();
                match self.model.lets_in() {
                    Ok(()) => {
                        let number = self.number();
                        self.places
                            .insert(number, reserved.map_err(|_| ()).expect("there is a place"));
                        self.model.permits.push(number);
                    }
                    Err(refusal) => {
                        assert_eq!(reserved.err(), Some(refusal));
                        self.model.refused += 1;
                    }
                }
            }
            Operation::Reserve => {
                let number = self.number();
                self.waits.insert(number, self.pool.reserve());
                let placed = self.poll_wait(number);
                match self.model.lets_in() {
                    Ok(()) => {
                        let place = placed
                            .expect("there is a place")
                            .map_err(|_| ())
                            .expect("the pool is open");
                        self.places.insert(number, place);
                        self.model.permits.push(number);
                    }
                    Err(Refusal::Full) if self.model.may_wait() => {
                        assert!(placed.is_none(), "he waits behind the others");
                        self.model.waiting.push_back(Waiting::Permit(number));
                    }
                    Err(refusal) => {
                        assert_eq!(placed.expect("he may not wait").err(), Some(refusal))
                    }
                }
            }
            Operation::LeaveWait { nth } => {
                let Some(nth) = nth.checked_rem(self.waits.len()) else { return };
                let number = *self.waits.keys().nth(nth).expect("there are so many");
                self.waits.remove(&number);
                self.model.waiting.retain(|waiting| *waiting != Waiting::Permit(number));
            }
            Operation::DropPermit { nth } => {
                let Some(nth) = nth.checked_rem(self.places.len()) else { return };
                let number = *self.places.keys().nth(nth).expect("there are so many");
                self.places.remove(&number);
                self.model.permits.retain(|permit| *permit != number);
            }
            Operation::UsePermit { nth } => {
                let Some(nth) = nth.checked_rem(self.places.len()) else { return };
                let number = *self.places.keys().nth(nth).expect("there are so many");
                let place = self.places.remove(&number).expect("it was just seen");
                let (job, tell, work) = self.work();
                let submitted = place(work);
                match self.model.permits.iter().position(|permit| *permit == number) {
                    Some(permit) => {
                        self.model.permits.remove(permit);
                        self.take(job, tell, submitted.expect("the place is there"));
                    }
                    None => {
                        assert_eq!(submitted.expect_err("the permit is void"), Refusal::Closed);
                        self.model.refused += 1;
                    }
                }
            }
            Operation::Close => {
                assert_eq!(self.pool.close(), self.model.open);
                self.closed();
            }
            Operation::ShutdownNow => {
                assert_eq!(self.pool.shutdown_now(), self.model.queued.len());
                self.closed();
                let queued = std::mem::take(&mut self.model.queued);
                self.all_cancelled(queued.into_iter().map(|queued| queued.1));
            }
            Operation::Reopen => {
                let model = &self.model;
                let rests =
                    model.running.is_empty() && model.queued.is_empty() && model.inline.is_empty();
                if rests && !model.open {
                    self.eventually("a pool at rest is opened", || self.pool.reopen());
                    self.model.open = true;
                } else {
                    assert!(!self.pool.reopen());
                }
            }
            Operation::PassTime => {
                if let Some(scheduler) = &self.scheduler {
                    scheduler.advance(2 * KEEP_ALIVE);
                    self.run();
                    assert_eq!(
                        self.pool.stats().idle,
                        0,
                        "nobody stays idle for longer than the keep-alive"
                    );
                }
            }
        }
        self.run();
        self.settle();
        self.run();
        self.check();
    }

    /// Asserts what is true now, or soon if the pool has threads.
    #[track_caller]
    fn eventually(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = self.on_threads().then(|| Instant::now() + TIMEOUT);
        while !is_so() {
            assert!(
                deadline.is_some_and(|deadline| Instant::now() < deadline),
                "{what}: {:?}",
                self.pool
            );
            thread::yield_now();
        }
    }

    fn check(&self) {
        assert_sums(&self.pool.stats());
        let model = &self.model;
        self.eventually("the model", || {
            let stats = self.pool.stats();
            assert_sums(&stats);
            let numbers = [
                stats.busy,
                stats.queued,
                stats.reserved,
                stats.waiting,
                stats.inline,
                stats.capacity,
            ];
            let ended = [stats.completed, stats.panicked, stats.cancelled, stats.refused];
            let modelled = [
                model.running.len(),
                model.queued.len(),
                model.permits.len(),
                model.waiting.len(),
                model.inline.len(),
                model.shape.capacity,
            ];
            stats.closed != model.open
                && numbers == modelled
                && ended == [model.completed, model.panicked, model.cancelled, model.refused]
                && stats.live <= model.shape.capacity.max(model.running.len())
                && (model.open || stats.idle == 0)
        });
        assert!(self.starts.1.try_recv().is_err(), "a job started that should not");
    }
}
