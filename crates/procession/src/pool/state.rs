//! The state of a pool: who works, who is idle, what is queued, who waits to submit.
//!
//! # Pool protocol
//!
//! ## Problem
//! A submitter finds all workers busy and queues its job; the last busy worker has just looked into the queue and becomes idle: the job
//! waits for nothing. A worker's keep-alive is over while a submitter hands it a job: the job goes with the worker. Two submitters see
//! room for one more worker, and both start one: the pool exceeds its capacity. A submitter looks, finds the pool open, and
//! submits after `close` has returned. Counters of idle workers that are changed apart from the workers' list say so for ever.
//!
//! ## States
//! Everything is under one lock, and every step is one critical section. *Live* workers are *idle*, which are on the stack, or *busy*,
//! which is the difference, so that it cannot disagree. A worker that leaves is not live from the moment of the decision. A job is in
//! the queue, or in the order or the launch of one worker, or run. A *place* is what a job needs to be taken: busy workers, queued jobs and
//! reservations use one each, and there are as many as the capacity and the queue's limit together. The *generation* counts how often
//! the pool was closed; a reservation of an earlier one is void.
//!
//! ## Steps
//! Submitter: `Enter`, if there is a place and nobody waits for one: `Claim` the worker that became idle last and write the job
//! into its order, or start a worker with it while fewer live than the capacity, or queue it. Else it may `Wait` in the list.
//! Worker: `Finish` a job: take the next from the queue; or leave, if there are too many or the pool is closed; or `Park`, by a push to the idle.
//! Parked, it waits for an order. Its keep-alive over, it `Expire`s: if it is still idle, it leaves; else its order has been written.
//! Or the worker `Rest`s: pushed to the idle, it ends, and is no more than its place on the stack. `Claim` writes no order then, but has it launched
//! with its job, as a new worker is; a timer of the pool `Reap`s those whose keep-alive is over.
//! Handle: `Withdraw` a job that is still queued, by its ticket.
//! If no worker could be started for a job that is queued, and its pool's workers rest, somebody `Retries` after a while.
//! After each step `Settle`: queued jobs go to parked workers, free places to those who wait, in their order, and idle workers leave from the bottom of
//! the stack while too many are live or the pool is closed.
//!
//! ## Why it works
//! `Finish` looks into the queue and parks in one step, and `Enter` looks for idle workers and queues in one: whichever comes second
//! sees the first. `Claim` and `Expire` both take the worker off the stack, so one of them does. The capacity is compared, the worker started, or allowed to, and counted in
//! one step. `close` is one step: what entered before it is queued or runs, what comes after sees it closed. A withdrawn job is out of the
//! queue, so nobody runs it, and one that a worker has taken is not there to be withdrawn.
//! A job is queued only while a worker is live, or, where they rest, busy; and a worker parks, rests or leaves only when nothing is queued, or another
//! stays: so what is queued is run, also if the system starts no more workers.
//!
//! ## Details that look wrong and are not
//! Workers are started under the lock: else a job could be queued behind a start that the system then refuses. Of those that rest only what can be
//! refused is done there, the reservation of a process; it is started, with its job, when the lock is free again.
//! While one that rests is started again, it may not have come to its end: from its push on it touches nothing that is the worker's.
//! Who is served has its place already, and it is counted as reserved until he uses it: a newcomer cannot take it from him.
//!
//! ## Allowed
//! After the capacity was lowered, more workers may be busy than it says, until they finish. A worker that leaves may
//! still run its hook while another starts. A worker that is started again may count twice, for a moment, among the processes of its scheduler; at
//! its limit, a job can be refused that would have had room a moment later. Of two jobs that are launched at once, the later ticket may begin first.
//! Who waits for a place does so for the job that began to: if that hands its wait to another job, and ends, the other is not known to wait.
//! What the first job of a process was made of is freed with the process, after the jobs that it found queued.
//!
//! ## Rejected
//! - One atomic word of packed counts: the queue, the stack and the list of those who wait then have locks of their own, and each pair of them is
//!   a race to be argued. A lock is taken twice for each job, and held for some ten nanoseconds.
//! - Waking idle workers in the order in which they came, as condition variables do: a trickle of jobs keeps all of them alive.
//! - Async workers that wait as processes while they are idle, each with a timer for its keep-alive: to wake one touches twice as many cold cache
//!   lines as to start another in memory that was just freed (`pool` on one processor: 1690 ns for each job, now 690; on two, 1810 and 1320 ns of CPU).
//! - To start the processes of workers that rest under the lock: `pool` takes 1.3 times as long.
//! - A seat on the heap for each worker that rests, too: with 200 000 workers `pool_large_many` had a peak of 109 MiB, and has one of 87, in as much time.
//! - Spinning longer for the lock than `std` does: 2 % of `pool_many`. Backing off (`lock_with_backoff`) where workers are processes:
//!   `pool_many` takes 1.3 times as long, `pool_co` 1.1. Threads, which come more often, back off: `pool_threads` takes 0.7 of the time.
//! - To box a job under the lock, when it is certain to be taken (those of scopes are, which borrow): `pool_threads` is as slow as without
//!   backing off, `pool` takes 1.05 times as long. Boxing before costs who is refused an allocation.
//! - A box for the future beside that of the process that runs it: `pool` takes 1.4 times as long, `pool_many` 1.1, since one more line is in
//!   no cache when the job goes on. A job is boxed with room for its worker instead (`processes.rs`, `AsyncJob`).
//! - To look for an order four times before a thread parks, and let others run in between: on one CPU, where the thread that is woken for an
//!   empty job interrupts its submitter, `pool_threads` takes 0.65 of the time; but beside four threads that compute, on two, a tenth of the
//!   jobs begin 4 ms late and not 15 us: who gives way waits for the others' slices, who is woken does not.
//! - Tombstones in the queue for jobs that were cancelled: they use up places. Here one is left only to keep the order, and is not counted.
//!
//! ## Checked by
//! `models::*`: claim against park, rest, expire, reap, close; submit against resize; withdraw against run and help. And `tests/it/pool/model.rs`:
//! the whole interface of every kind of pool against a sequential model.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use procession_sync::atomic::AtomicU8;
use procession_sync::{Arc, Mutex, lock_with_backoff};

use crate::scheduler::seat_id::NEVER;
use crate::sync::wait_list::{Another, Place, Waiters, Who};
use crate::util::small_vec::Few;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Finish` looks into the queue, then parks in a step of its own.
    pub(crate) const PARK_IN_TWO: u8 = 1;
    /// `Expire` leaves without a look whether it was claimed.
    pub(crate) const EXPIRE_BLINDLY: u8 = 2;
    /// `Enter` looks whether the pool is open in a step of its own.
    pub(crate) const ENTER_IN_TWO: u8 = 3;
    /// A larger capacity serves nobody who waits.
    pub(crate) const RESIZE_SILENTLY: u8 = 4;
    /// `Withdraw` looks for the job and counts its end, then takes it in a step of its own.
    pub(crate) const WITHDRAW_IN_TWO: u8 = 5;
    /// `Enter` compares the capacity, then starts a worker in a step of its own.
    pub(crate) const START_IN_TWO: u8 = 6;
    /// `Reap` looks who has rested too long, and counts them out in a step of its own.
    pub(crate) const REAP_IN_TWO: u8 = 7;
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Order<J> {
    /// To run the job with this ticket.
    Run(u64, J),
    Leave,
}

#[derive(Debug)]
struct Mail<J> {
    order: Option<Order<J>>,
    waker: Option<Waker>,
}

/// A worker that parks, as the pool sees it.
#[derive(Debug)]
pub(crate) struct Seat<J> {
    mail: Mutex<Mail<J>>,
    /// How far its start has come, as its engine counts.
    pub(crate) launch: AtomicU8,
}

impl<J> Seat<J> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { mail: Mutex::new(Mail { order: None, waker: None }), launch: AtomicU8::new(0) })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Mail<J>) -> R) -> R {
        change(&mut self.mail.lock().expect("nothing that can panic runs under this lock"))
    }

    /// Takes the order, or leaves a waker.
    pub(crate) fn take_order(&self, waker: &Waker) -> Option<Order<J>> {
        if let Some(order) = self.change(|mail| mail.order.take()) {
            return Some(order);
        }
        // Cloned and dropped outside the lock: both are the user's code.
        let new = waker.clone();
        let (order, old) = self.change(|mail| match mail.order.take() {
            Some(order) => (Some(order), Some(new)),
            None => (None, mail.waker.replace(new)),
        });
        drop(old);
        order
    }
}

/// A worker that has no job.
#[derive(Debug)]
pub(crate) enum Idle<J> {
    /// It waits for an order.
    Parked(Arc<Seat<J>>),
    /// It has no process, and leaves at that time.
    Rests { until: u64, has_begun: bool },
}

impl<J> Idle<J> {
    /// One that rests, and has not begun.
    pub(crate) fn new_resting() -> Self {
        Self::Rests { until: NEVER, has_begun: false }
    }

    fn until(&self) -> u64 {
        match self {
            Self::Parked(_) => NEVER,
            Self::Rests { until, .. } => *until,
        }
    }

    fn is(&self, seat: &Arc<Seat<J>>) -> bool {
        matches!(self, Self::Parked(own) if Arc::ptr_eq(own, seat))
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    Cancelled,
}

/// What a worker does after a job.
#[derive(Debug)]
#[must_use]
pub(crate) enum Next<J> {
    Run(u64, J),
    /// Wait for an order.
    Park,
    /// End; the next job starts the worker again. Somebody is to [reap](Core::reap) at that time, if it says one.
    Rest(Option<u64>),
    Leave,
}

/// What becomes of a worker whose keep-alive is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Expired {
    Leave,
    /// One of those that are kept: it waits for an order, however long.
    Kept,
    /// Its order has been written.
    Claimed,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(crate) enum Refused {
    Full,
    Closed,
    /// The system refused to start a worker, and there is none.
    Worker(io::Error),
}

/// What somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calm {
    /// Nothing runs, and nothing is queued.
    Idle,
    /// The pool is closed, and its last worker has left.
    Drained,
}

/// How a wait for a place began.
#[derive(Debug)]
pub(crate) enum Entry {
    /// There was one, which is reserved now.
    Granted(u64),
    /// There was one, and the job of this ticket is in it.
    Taken(u64),
    Waits(Place),
    Closed,
    TooManyWaiting,
    WouldDeadlock,
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A place is reserved, in this generation.
    Granted(u64),
    Closed,
}

/// A busy worker. Of those that park, a later one may have the same, when this one has left: what its jobs left waiting elsewhere then counts as
/// if that one's waited, as it did for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Busy(u64);

impl Busy {
    /// Of the workers that park, the one in this seat.
    pub(crate) fn in_seat<J>(seat: &Arc<Seat<J>>) -> Self {
        Self(Arc::as_ptr(seat).addr() as u64)
    }

    /// Of those that rest, the one that has this job.
    pub(crate) fn with_job(ticket: u64) -> Self {
        Self(ticket)
    }
}

/// Somebody who waits for a place.
#[derive(Debug)]
struct Wish {
    verdict: Option<Verdict>,
    /// The worker whose job waits, if it waits without a limit of time.
    own: Option<Busy>,
}

/// A worker that rests or is new, to be started with a job.
#[derive(Debug)]
pub(crate) struct Launch<J> {
    pub(crate) ticket: u64,
    pub(crate) job: J,
    /// Its hook was called.
    pub(crate) has_begun: bool,
}

/// Who is to be woken or started, outside the lock: most often one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Wakes<J> {
    wakers: Few<Waker>,
    /// In the order in which they were allowed.
    pub(crate) launches: Few<Launch<J>>,
    /// Workers that have left out of their rest, and whose hooks are to be run.
    pub(crate) leavers: usize,
    /// Jobs are queued for which no worker could be started, though there may be more: somebody is to [retry](Core::retry) after a while.
    pub(crate) starved: bool,
}

impl<J> Default for Wakes<J> {
    fn default() -> Self {
        Self { wakers: Few::default(), launches: Few::default(), leavers: 0, starved: false }
    }
}

impl<J> Wakes<J> {
    /// Wakes them. It is the user's code.
    pub(crate) fn wake(mut self) {
        debug_assert!(self.launches.is_empty(), "who is to be started was started before");
        self.wakers.drain().for_each(|waker| {
            #[cfg(not(procession_loom))]
            drop(crate::process::unwind::guarded(|| waker.wake()));
            #[cfg(procession_loom)]
            waker.wake();
        });
    }
}

/// Holes in the queue, beyond as many as there are jobs, at which it is compacted.
const HOLES_MAX: usize = 64;

/// Jobs in the order of their tickets.
#[derive(Debug)]
struct Queue<J> {
    /// A withdrawn job leaves a hole.
    entries: VecDeque<(u64, Option<J>)>,
    jobs: usize,
}

impl<J> Queue<J> {
    fn push(&mut self, ticket: u64, job: J) {
        self.entries.push_back((ticket, Some(job)));
        self.jobs += 1;
    }

    fn pop(&mut self) -> Option<(u64, J)> {
        while let Some((ticket, job)) = self.entries.pop_front() {
            if let Some(job) = job {
                self.jobs -= 1;
                return Some((ticket, job));
            }
        }
        None
    }

    fn withdraw(&mut self, ticket: u64) -> Option<J> {
        let place = self.entries.binary_search_by_key(&ticket, |entry| entry.0).ok()?;
        let job = self.entries[place].1.take()?;
        self.jobs -= 1;
        if self.entries.len() > 2 * self.jobs + HOLES_MAX {
            self.entries.retain(|entry| entry.1.is_some());
        }
        Some(job)
    }
}

/// What a pool has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) panicked: u64,
    pub(crate) cancelled: u64,
    pub(crate) refused: u64,
    pub(crate) started: u64,
    pub(crate) retired: u64,
    pub(crate) workers_refused: u64,
    pub(crate) peak: usize,
}

/// What a pool looks like at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture {
    pub(crate) capacity: usize,
    pub(crate) live: usize,
    pub(crate) idle: usize,
    pub(crate) inline: usize,
    pub(crate) queued: usize,
    pub(crate) reserved: usize,
    pub(crate) waiting: usize,
    pub(crate) closed: bool,
    pub(crate) totals: Totals,
}

/// What a pool is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capacity: usize,
    /// Jobs that may be queued.
    pub(crate) queue: usize,
    /// Submitters that may wait.
    pub(crate) waiting: usize,
    /// Workers that do not expire.
    pub(crate) kept: usize,
    /// Idle workers rest, instead of parking.
    pub(crate) rests: bool,
    /// Workers are threads.
    pub(crate) threads: bool,
}

#[derive(Debug)]
struct State<J> {
    limits: Limits,
    open: bool,
    generation: u64,
    live: usize,
    /// Workers that have left the count, and run their hooks.
    leaving: usize,
    /// Jobs that run on other threads than those of workers, or inside of another job.
    inline: usize,
    /// The worker that became idle last is at the back.
    idle: VecDeque<Idle<J>>,
    /// Some that rest may leave before others that began to rest before them, since the keep-alive was changed.
    uneven: bool,
    /// Somebody is to retry.
    retries: bool,
    /// When somebody reaps.
    reap_at: u64,
    queue: Queue<J>,
    last_ticket: u64,
    reserved: usize,
    waiters: Waiters<Wish>,
    waiting: usize,
    /// Busy workers whose job can go on only when another of this pool has ended, and how often it waits.
    blocked: BTreeMap<Busy, u32>,
    /// Jobs that a job of this pool waits for, by ticket, and the worker of that one.
    joins: Vec<(u64, Busy)>,
    /// Who waits for a calm, by number.
    watchers: BTreeMap<u64, (Calm, Waker)>,
    totals: Totals,
}

/// On cache lines of its own: beside it, its pool is counted by each worker that starts.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Core<J, const MUTATION: u8 = { mutation::SOUND }> {
    state: Mutex<State<J>>,
    /// Whether who finds the state locked looks away for a while.
    backs_off: bool,
}

/// Starts a worker that parks; of one that rests, only says that it may be started, which is done outside the lock.
pub(crate) type Start<'a, J> = &'a mut dyn FnMut() -> io::Result<Idle<J>>;

impl<J> State<J> {
    fn busy(&self) -> usize {
        self.live - self.idle.len()
    }

    fn has_place(&self) -> bool {
        let used = self.busy() + self.queue.jobs + self.reserved;
        used < self.limits.capacity.saturating_add(self.limits.queue)
    }

    /// `Claim`: writes an order to a worker that is off the stack.
    fn hand(seat: &Seat<J>, order: Order<J>, wakes: &mut Wakes<J>) {
        seat.change(|mail| {
            mail.order = Some(order);
            mail.waker.take().into_iter().for_each(|waker| wakes.wakers.push(waker));
        });
    }

    /// Gives a job to a worker that is off the stack, or new.
    fn set_to_work(worker: Idle<J>, ticket: u64, job: J, wakes: &mut Wakes<J>) {
        match worker {
            Idle::Parked(seat) => Self::hand(&seat, Order::Run(ticket, job), wakes),
            Idle::Rests { has_begun, .. } => wakes.launches.push(Launch { ticket, job, has_begun }),
        }
    }

    fn count_start(&mut self) {
        self.live += 1;
        self.totals.started += 1;
        self.totals.peak = self.totals.peak.max(self.live);
    }

    /// Has a new worker start, or the one start again that rests since the shortest time.
    fn start(&mut self, start: Start<'_, J>) -> io::Result<Idle<J>> {
        let rests = if self.limits.rests { self.idle.pop_back() } else { None };
        match (start(), rests) {
            (Ok(_), Some(rests)) => Ok(rests),
            (Ok(new), None) => {
                self.count_start();
                Ok(new)
            }
            (Err(error), rests) => {
                self.idle.extend(rests);
                self.totals.workers_refused += 1;
                Err(error)
            }
        }
    }

    fn push_idle(&mut self, mut idle: Idle<J>) {
        self.uneven &= !self.idle.is_empty();
        if let Idle::Rests { until, .. } = &mut idle
            && let Some(last) = self.idle.back().filter(|_| !self.uneven)
        {
            // Two that end their jobs at once have not read the clock in the order in which they come here.
            *until = last.until().max(*until);
        }
        self.idle.push_back(idle);
    }

    /// The worker that became idle last, if it waits for an order.
    fn pop_parked(&mut self) -> Option<Arc<Seat<J>>> {
        if self.limits.rests {
            return None;
        }
        match self.idle.pop_back()? {
            Idle::Parked(seat) => Some(seat),
            Idle::Rests { .. } => unreachable!("the workers of a pool are of one kind"),
        }
    }

    /// Whether nobody is there who comes to the queue by himself.
    fn has_nobody(&self) -> bool {
        self.busy() == 0 && (self.limits.rests || self.idle.is_empty())
    }

    fn can_start(&self) -> bool {
        self.live < self.limits.capacity || self.limits.rests && !self.idle.is_empty()
    }

    /// Finds a worker for a job that has a place. The job is made of its content, which comes back otherwise, when it is certain to be taken.
    fn dispatch<C>(
        &mut self,
        content: C,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        wakes: &mut Wakes<J>,
    ) -> Result<u64, (C, Refused)> {
        let idle = self.pop_parked();
        let fresh = if idle.is_none() && self.can_start() { Some(self.start(start)) } else { None };
        if let Some(Err(_)) = &fresh
            && self.has_nobody()
        {
            let error = fresh.and_then(Result::err).expect("it was just looked at");
            self.totals.refused += 1;
            return Err((content, Refused::Worker(error)));
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.totals.submitted += 1;
        let job = make(content);
        match (idle, fresh) {
            (Some(seat), _) => Self::hand(&seat, Order::Run(ticket, job), wakes),
            (None, Some(Ok(worker))) => {
                // First come, first served: there is a queue here only if a start was refused before.
                self.queue.push(ticket, job);
                let (ticket, job) = self.queue.pop().expect("a job was just pushed");
                Self::set_to_work(worker, ticket, job, wakes);
            }
            (None, refused) => {
                self.queue.push(ticket, job);
                if refused.is_some() {
                    self.starve(wakes);
                }
            }
        }
        Ok(ticket)
    }

    /// Where workers rest, none of them comes to the queue by himself.
    fn starve(&mut self, wakes: &mut Wakes<J>) {
        wakes.starved |= self.limits.rests && !std::mem::replace(&mut self.retries, true);
    }

    /// Starts workers for what is queued.
    fn employ(&mut self, start: Start<'_, J>, wakes: &mut Wakes<J>) {
        while self.can_start() && self.queue.jobs > 0 {
            // A refused worker leaves the jobs to those there are.
            let Ok(worker) = self.start(start) else {
                return self.starve(wakes);
            };
            let (ticket, job) = self.queue.pop().expect("jobs are counted");
            Self::set_to_work(worker, ticket, job, wakes);
        }
    }

    fn dispatch_out_of<C>(
        &mut self,
        content: &mut Option<C>,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        wakes: &mut Wakes<J>,
    ) -> Result<u64, Refused> {
        let taken = content.take().expect("a job is put into the pool once");
        self.dispatch(taken, make, start, wakes).map_err(|(refused, why)| {
            *content = Some(refused);
            why
        })
    }

    /// Whether there is a place, and nobody waits for it.
    fn has_free_place(&self) -> bool {
        self.waiters.is_empty() && self.has_place()
    }

    fn wait(&mut self, another: &mut Another<'_>, own: Option<Busy>) -> Entry {
        if !self.open {
            return Entry::Closed;
        }
        if self.waiting >= self.limits.waiting {
            return Entry::TooManyWaiting;
        }
        if own.is_some_and(|busy| self.would_deadlock(busy)) {
            return Entry::WouldDeadlock;
        }
        if let Some(busy) = own {
            self.block(busy);
        }
        self.waiting += 1;
        let waker = another.take().expect("it was prepared");
        Entry::Waits(self.waiters.push(Who::Alone(waker), Wish { verdict: None, own }))
    }

    fn served(&mut self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Verdict> {
        let waiting = place.take()?;
        if self.waiters.is_served(&waiting) {
            return self.waiters.remove(waiting).0.verdict;
        }
        self.waiters.renew(&waiting, another);
        *place = Some(waiting);
        None
    }

    /// A worker that rests is not found if the job has ended.
    fn unblock(&mut self, busy: Busy) {
        if let Some(waits) = self.blocked.get_mut(&busy) {
            *waits -= 1;
            if *waits == 0 {
                self.blocked.remove(&busy);
            }
        }
    }

    fn block(&mut self, busy: Busy) {
        *self.blocked.entry(busy).or_default() += 1;
    }

    /// Whether nobody is left who could free a place, once the job of this worker waits, too.
    fn would_deadlock(&self, busy: Busy) -> bool {
        let more = usize::from(!self.blocked.contains_key(&busy));
        self.idle.is_empty()
            && self.live >= self.limits.capacity
            && self.reserved == 0
            && self.blocked.len() + more >= self.busy()
    }

    fn serve(&mut self, verdict: Verdict, wakes: &mut Wakes<J>) -> bool {
        let served = self.waiters.serve(|wish| {
            wish.verdict = Some(verdict);
            wish.own.take()
        });
        let Some((who, own)) = served else {
            return false;
        };
        self.waiting -= 1;
        if let Some(busy) = own {
            self.unblock(busy);
        }
        who.into_waker().into_iter().for_each(|waker| wakes.wakers.push(waker));
        true
    }

    /// `Settle`.
    fn settle(&mut self, wakes: &mut Wakes<J>) {
        while self.queue.jobs > 0
            && let Some(seat) = self.pop_parked()
        {
            let (ticket, job) = self.queue.pop().expect("jobs are counted");
            Self::hand(&seat, Order::Run(ticket, job), wakes);
        }
        while self.open && self.has_place() && self.serve(Verdict::Granted(self.generation), wakes) {
            self.reserved += 1;
        }
        while (self.live > self.limits.capacity || !self.open)
            && let Some(idle) = self.idle.pop_front()
        {
            self.dismiss(idle, wakes);
        }
        if !self.watchers.is_empty() {
            let (idle, drained) = (self.is(Calm::Idle), self.is(Calm::Drained));
            let reached = |calm: &Calm| if *calm == Calm::Idle { idle } else { drained };
            for (_, (_, waker)) in self.watchers.extract_if(.., |_, (calm, _)| reached(calm)) {
                wakes.wakers.push(waker);
            }
        }
    }

    /// Has an idle worker leave, which is off the stack.
    fn dismiss(&mut self, idle: Idle<J>, wakes: &mut Wakes<J>) {
        self.count_leave();
        match idle {
            Idle::Parked(seat) => Self::hand(&seat, Order::Leave, wakes),
            Idle::Rests { has_begun: true, .. } => wakes.leavers += 1,
            Idle::Rests { has_begun: false, .. } => self.leaving -= 1,
        }
    }

    fn count_leave(&mut self) {
        self.live -= 1;
        self.leaving += 1;
        self.totals.retired += 1;
    }

    fn is(&self, calm: Calm) -> bool {
        let nothing_queued = self.queue.jobs == 0 && self.inline == 0;
        match calm {
            Calm::Idle => nothing_queued && self.busy() == 0,
            Calm::Drained => nothing_queued && !self.open && self.live == 0 && self.leaving == 0,
        }
    }

    fn count_end(&mut self, ticket: u64, ended: Ended) {
        match ended {
            Ended::Completed => self.totals.completed += 1,
            Ended::Panicked => self.totals.panicked += 1,
            Ended::Cancelled => self.totals.cancelled += 1,
        }
        while let Some(place) = self.joins.iter().position(|join| join.0 == ticket) {
            let (_, busy) = self.joins.swap_remove(place);
            self.unblock(busy);
        }
        if self.limits.rests {
            // What it made may still wait, elsewhere.
            self.blocked.remove(&Busy::with_job(ticket));
        }
    }

    /// Whether somebody is to reap at that time, since nobody does so before.
    fn reap_before(&mut self, until: u64) -> Option<u64> {
        let is_first = until < self.reap_at && self.live > self.limits.kept;
        is_first.then(|| {
            self.reap_at = until;
            until
        })
    }

    fn unreserve(&mut self, generation: u64) -> bool {
        let valid = self.open && generation == self.generation;
        self.reserved -= usize::from(valid);
        valid
    }
}

impl<J, const MUTATION: u8> Core<J, MUTATION> {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            open: true,
            generation: 0,
            live: 0,
            leaving: 0,
            inline: 0,
            idle: VecDeque::new(),
            uneven: false,
            retries: false,
            reap_at: NEVER,
            queue: Queue { entries: VecDeque::new(), jobs: 0 },
            last_ticket: 0,
            reserved: 0,
            waiters: Waiters::new(),
            waiting: 0,
            blocked: BTreeMap::new(),
            joins: Vec::new(),
            watchers: BTreeMap::new(),
            totals: Totals::default(),
        };
        Self { state: Mutex::new(state), backs_off: limits.threads }
    }

    fn look<R>(&self, look: impl FnOnce(&mut State<J>) -> R) -> R {
        let locked = if self.backs_off { lock_with_backoff(&self.state) } else { self.state.lock() };
        look(&mut locked.expect("nothing that can panic runs under this lock"))
    }

    fn change<R>(&self, change: impl FnOnce(&mut State<J>, &mut Wakes<J>) -> R) -> (R, Wakes<J>) {
        let mut wakes = Wakes::default();
        let result = self.look(|state| change(state, &mut wakes));
        (result, wakes)
    }

    /// `Enter`: the ticket of the job, if it is taken. `start` starts a worker, and may refuse.
    pub(crate) fn enter<C>(
        &self,
        content: C,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
    ) -> (Result<u64, (C, Refused)>, Wakes<J>) {
        if MUTATION == mutation::START_IN_TWO && self.look(|state| state.live < state.limits.capacity) {
            return self.change(|state, wakes| {
                let worker = state.start(start).expect("the models refuse no worker");
                state.last_ticket += 1;
                state.totals.submitted += 1;
                let ticket = state.last_ticket;
                State::set_to_work(worker, ticket, make(content), wakes);
                Ok(ticket)
            });
        }
        let in_two = MUTATION == mutation::ENTER_IN_TWO && self.look(|state| state.open);
        self.change(|state, wakes| {
            if !state.open && !in_two {
                return Err((content, Refused::Closed));
            }
            if !state.has_free_place() {
                return Err((content, Refused::Full));
            }
            state.dispatch(content, make, start, wakes)
        })
    }

    /// `Enter` with a place that was reserved.
    pub(crate) fn enter_reserved<C>(
        &self,
        generation: u64,
        content: C,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
    ) -> (Result<u64, (C, Refused)>, Wakes<J>) {
        self.change(|state, wakes| {
            if !state.unreserve(generation) {
                return Err((content, Refused::Closed));
            }
            let entered = state.dispatch(content, make, start, wakes);
            // If no worker could be started, the place is free again.
            state.settle(wakes);
            entered
        })
    }

    /// Counts a job that was refused in the end.
    pub(crate) fn count_refused(&self) {
        self.look(|state| state.totals.refused += 1);
    }

    /// Reserves a place without waiting.
    pub(crate) fn try_reserve(&self) -> Result<u64, Refused> {
        self.look(|state| {
            if !state.open {
                return Err(Refused::Closed);
            }
            if !state.has_free_place() {
                return Err(Refused::Full);
            }
            state.reserved += 1;
            Ok(state.generation)
        })
    }

    /// `Wait`, with a waker that is prepared. `own` is the worker on which a job of this pool calls, if it waits without a limit of time.
    pub(crate) fn wait(&self, another: &mut Another<'_>, own: Option<Busy>) -> Entry {
        self.look(|state| {
            if state.open && state.has_free_place() {
                state.reserved += 1;
                return Entry::Granted(state.generation);
            }
            state.wait(another, own)
        })
    }

    /// `Enter`, or `Wait`, in one step. The content is taken if the job is.
    pub(crate) fn enter_or_wait<C>(
        &self,
        content: &mut Option<C>,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        another: &mut Another<'_>,
        own: Option<Busy>,
    ) -> (Result<Entry, Refused>, Wakes<J>) {
        self.change(|state, wakes| {
            if state.open && state.has_free_place() {
                state.dispatch_out_of(content, make, start, wakes).map(Entry::Taken)
            } else {
                Ok(state.wait(another, own))
            }
        })
    }

    /// Looks whether who waits was served; if so, frees his place in the list, and puts the job into the pool, all in one step. The content is taken
    /// if the job is.
    pub(crate) fn enter_served<C>(
        &self,
        place: &mut Option<Place>,
        content: &mut Option<C>,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        another: &mut Another<'_>,
    ) -> (Option<Result<u64, Refused>>, Wakes<J>) {
        self.change(|state, wakes| {
            Some(match state.served(place, another)? {
                Verdict::Granted(generation) if state.unreserve(generation) => {
                    let entered = state.dispatch_out_of(content, make, start, wakes);
                    state.settle(wakes);
                    entered
                }
                _ => Err(Refused::Closed),
            })
        })
    }

    /// Looks whether who waits was served; if so, frees his place in the list.
    pub(crate) fn poll_wait(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Verdict> {
        self.look(|state| state.served(place, another))
    }

    /// Somebody waits no longer.
    pub(crate) fn leave_wait(&self, place: Place) -> Wakes<J> {
        let (own_waker, wakes) = self.change(|state, wakes| {
            let (wish, who) = state.waiters.remove(place);
            match wish.verdict {
                Some(Verdict::Granted(generation)) => {
                    state.unreserve(generation);
                }
                Some(Verdict::Closed) => {}
                None => {
                    state.waiting -= 1;
                    if let Some(busy) = wish.own {
                        state.unblock(busy);
                    }
                }
            }
            state.settle(wakes);
            who
        });
        drop(own_waker);
        wakes
    }

    /// Gives a reserved place back.
    pub(crate) fn release(&self, generation: u64) -> Wakes<J> {
        self.change(|state, wakes| {
            state.unreserve(generation);
            state.settle(wakes);
        })
        .1
    }

    /// `Finish`. `idle` is asked what a worker is that parks or rests then.
    pub(crate) fn finish(&self, idle: impl FnOnce() -> Idle<J>, ticket: u64, ended: Ended) -> (Next<J>, Wakes<J>) {
        if MUTATION == mutation::PARK_IN_TWO {
            let next = self.look(|state| {
                state.count_end(ticket, ended);
                state.queue.pop()
            });
            return match next {
                Some((ticket, job)) => (Next::Run(ticket, job), Wakes::default()),
                None => self.change(|state, _| {
                    state.push_idle(idle());
                    Next::Park
                }),
            };
        }
        self.change(|state, wakes| {
            state.count_end(ticket, ended);
            let next = if state.live > state.limits.capacity {
                state.count_leave();
                Next::Leave
            } else if let Some((ticket, job)) = state.queue.pop() {
                Next::Run(ticket, job)
            } else if !state.open {
                state.count_leave();
                Next::Leave
            } else {
                let idle = idle();
                let next = match &idle {
                    Idle::Parked(_) => Next::Park,
                    Idle::Rests { until, .. } => Next::Rest(state.reap_before(*until)),
                };
                state.push_idle(idle);
                next
            };
            state.settle(wakes);
            next
        })
    }

    /// `Reap`: those leave that have rested until `now`. When somebody is to do so again, if that is known.
    pub(crate) fn reap(&self, now: u64) -> (Option<u64>, Wakes<J>) {
        if MUTATION == mutation::REAP_IN_TWO {
            let due = self.look(|state| state.idle.iter().filter(|idle| idle.until() <= now).count());
            return self.change(|state, _| {
                state.idle.truncate(state.idle.len().saturating_sub(due));
                state.live -= due;
                state.totals.retired += due as u64;
                None
            });
        }
        self.change(|state, wakes| {
            state.reap_at = NEVER;
            let mut next = NEVER;
            let mut place = 0;
            while state.live > state.limits.kept
                && let Some(idle) = state.idle.get(place)
            {
                if idle.until() > now {
                    next = next.min(idle.until());
                    place = if state.uneven { place + 1 } else { state.idle.len() };
                } else if let Some(idle) = state.idle.remove(place) {
                    state.dismiss(idle, wakes);
                }
            }
            state.settle(wakes);
            state.reap_before(next)
        })
    }

    /// Nobody will reap at the time that was agreed.
    pub(crate) fn forget_reaper(&self) {
        self.look(|state| state.reap_at = NEVER);
    }

    /// The keep-alive was changed.
    pub(crate) fn expect_uneven(&self) {
        self.look(|state| state.uneven = true);
    }

    /// Nobody will retry: the next who is refused a worker asks for it anew.
    pub(crate) fn forget_retry(&self) {
        self.look(|state| state.retries = false);
    }

    /// Starts workers for jobs that are queued, now that it may be possible.
    pub(crate) fn retry(&self, start: Start<'_, J>) -> Wakes<J> {
        self.change(|state, wakes| {
            state.retries = false;
            state.employ(start, wakes);
        })
        .1
    }

    /// `Expire`.
    pub(crate) fn expire(&self, seat: &Arc<Seat<J>>) -> (Expired, Wakes<J>) {
        self.change(|state, wakes| {
            // From the bottom, where those are that have been idle longest.
            let place = state.idle.iter().position(|idle| idle.is(seat));
            if MUTATION == mutation::EXPIRE_BLINDLY {
                state.count_leave();
                if let Some(place) = place {
                    state.idle.remove(place);
                }
                return Expired::Leave;
            }
            let Some(place) = place else {
                return Expired::Claimed;
            };
            if state.live <= state.limits.kept {
                return Expired::Kept;
            }
            state.idle.remove(place);
            state.count_leave();
            state.settle(wakes);
            Expired::Leave
        })
    }

    /// A worker that has left has run its hook.
    pub(crate) fn left(&self) -> Wakes<J> {
        self.change(|state, wakes| {
            state.leaving -= 1;
            state.settle(wakes);
        })
        .1
    }

    /// A worker was killed: with a job, if `ticket` says so, else parked or with an order that it has not taken. Gives back the jobs that nobody is left to run.
    pub(crate) fn died(
        &self,
        seat: Option<&Arc<Seat<J>>>,
        ticket: Option<u64>,
        start: Start<'_, J>,
    ) -> (Vec<J>, Wakes<J>) {
        self.change(|state, wakes| {
            let mut lost = Vec::new();
            if let Some(ticket) = ticket {
                state.count_end(ticket, Ended::Cancelled);
            }
            let order = seat.and_then(|seat| seat.change(|mail| mail.order.take()));
            let mut counted = true;
            match order {
                Some(Order::Run(ticket, job)) => {
                    state.count_end(ticket, Ended::Cancelled);
                    lost.push(job);
                }
                Some(Order::Leave) => {
                    state.leaving -= 1;
                    counted = false;
                }
                None => {}
            }
            if counted {
                if let Some(place) = seat.and_then(|seat| state.idle.iter().position(|idle| idle.is(seat))) {
                    state.idle.remove(place);
                }
                state.live -= 1;
                state.totals.retired += 1;
            }
            while state.has_nobody() && state.queue.jobs > 0 {
                match state.start(start) {
                    Ok(successor) => {
                        let (ticket, job) = state.queue.pop().expect("jobs are counted");
                        State::set_to_work(successor, ticket, job, wakes);
                    }
                    Err(_) => {
                        while let Some((ticket, job)) = state.queue.pop() {
                            state.count_end(ticket, Ended::Cancelled);
                            lost.push(job);
                        }
                    }
                }
            }
            state.settle(wakes);
            lost
        })
    }

    /// `Withdraw`: the job, if it was still queued.
    pub(crate) fn withdraw(&self, ticket: u64) -> (Option<J>, Wakes<J>) {
        if MUTATION == mutation::WITHDRAW_IN_TWO {
            self.look(|state| {
                if state.queue.entries.iter().any(|entry| entry.0 == ticket && entry.1.is_some()) {
                    state.count_end(ticket, Ended::Cancelled);
                }
            });
            return (self.look(|state| state.queue.withdraw(ticket)), Wakes::default());
        }
        self.change(|state, wakes| {
            let job = state.queue.withdraw(ticket)?;
            state.count_end(ticket, Ended::Cancelled);
            state.settle(wakes);
            Some(job)
        })
    }

    /// `Withdraw`, in order to run it here.
    pub(crate) fn take_inline(&self, ticket: u64) -> (Option<J>, Wakes<J>) {
        self.change(|state, wakes| {
            let job = state.queue.withdraw(ticket)?;
            state.inline += 1;
            state.settle(wakes);
            Some(job)
        })
    }

    /// A job is to be run by its submitter: its ticket, unless the pool is closed.
    pub(crate) fn begin_inline(&self) -> Option<u64> {
        self.look(|state| {
            if !state.open {
                return None;
            }
            state.inline += 1;
            state.last_ticket += 1;
            state.totals.submitted += 1;
            Some(state.last_ticket)
        })
    }

    pub(crate) fn finish_inline(&self, ticket: u64, ended: Ended) -> Wakes<J> {
        self.change(|state, wakes| {
            state.inline -= 1;
            state.count_end(ticket, ended);
            state.settle(wakes);
        })
        .1
    }

    /// The job of this worker waits for another of this pool, as long as that takes. `false` if it could only wait for ever.
    pub(crate) fn join(&self, busy: Busy, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        self.look(|state| {
            // A job publishes its result before its end is counted: one that has not published it is not counted yet.
            if has_ended() {
                return true;
            }
            if state.would_deadlock(busy) {
                return false;
            }
            state.block(busy);
            state.joins.push((ticket, busy));
            true
        })
    }

    /// Starts workers that wait for jobs, as long as fewer than `wanted` live and the capacity allows it; or that rest, until then. When somebody
    /// is to reap, if nobody is to do so before.
    pub(crate) fn prestart(&self, wanted: usize, until: u64, start: Start<'_, J>) -> io::Result<Option<u64>> {
        self.look(|state| {
            while state.open && state.live < wanted.min(state.limits.capacity) {
                let worker = if state.limits.rests {
                    state.count_start();
                    Idle::Rests { until, has_begun: false }
                } else {
                    state.start(start)?
                };
                state.push_idle(worker);
            }
            Ok(state.reap_before(until))
        })
    }

    /// Changes the capacity; gives back what it was.
    pub(crate) fn resize(&self, capacity: usize, start: Start<'_, J>) -> (usize, Wakes<J>) {
        self.change(|state, wakes| {
            let before = std::mem::replace(&mut state.limits.capacity, capacity);
            state.employ(start, wakes);
            if MUTATION != mutation::RESIZE_SILENTLY {
                state.settle(wakes);
            }
            before
        })
    }

    /// Takes no more jobs. Says whether it did until now.
    pub(crate) fn close(&self) -> (bool, Wakes<J>) {
        self.change(|state, wakes| {
            let was_open = std::mem::replace(&mut state.open, false);
            if was_open {
                state.generation += 1;
                state.reserved = 0;
                state.reap_at = NEVER;
            }
            while state.serve(Verdict::Closed, wakes) {}
            state.settle(wakes);
            was_open
        })
    }

    /// Closes, and takes what is queued out.
    pub(crate) fn clear(&self) -> (Vec<J>, Wakes<J>) {
        let (_, mut wakes) = self.close();
        let (jobs, mut more) = self.change(|state, wakes| {
            let mut jobs = Vec::with_capacity(state.queue.jobs);
            while let Some((ticket, job)) = state.queue.pop() {
                state.count_end(ticket, Ended::Cancelled);
                jobs.push(job);
            }
            state.settle(wakes);
            jobs
        });
        more.wakers.drain().for_each(|waker| wakes.wakers.push(waker));
        debug_assert!(more.launches.is_empty(), "nobody is started to be cancelled");
        wakes.leavers += more.leavers;
        wakes.starved |= more.starved;
        (jobs, wakes)
    }

    /// Takes jobs again; only a pool that is closed and has no worker left does.
    pub(crate) fn reopen(&self) -> bool {
        self.look(|state| {
            let drained = state.is(Calm::Drained);
            state.open |= drained;
            drained
        })
    }

    /// Whether the pool is as calm as that; else `waker` is woken when it is. Gives back a waker to drop.
    pub(crate) fn watch(&self, number: u64, calm: Calm, waker: Waker) -> (bool, Option<Waker>) {
        self.look(|state| {
            if state.is(calm) {
                return (true, Some(waker));
            }
            (false, state.watchers.insert(number, (calm, waker)).map(|watcher| watcher.1))
        })
    }

    pub(crate) fn unwatch(&self, number: u64) -> Option<Waker> {
        self.look(|state| state.watchers.remove(&number).map(|watcher| watcher.1))
    }

    pub(crate) fn picture(&self) -> Picture {
        self.look(|state| Picture {
            capacity: state.limits.capacity,
            live: state.live,
            idle: state.idle.len(),
            inline: state.inline,
            queued: state.queue.jobs,
            reserved: state.reserved,
            waiting: state.waiting,
            closed: !state.open,
            totals: state.totals,
        })
    }
}

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
