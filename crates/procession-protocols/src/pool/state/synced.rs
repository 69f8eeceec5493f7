//! The state that the lock of a pool guards, and the operations that its steps share.

use std::cmp::Ordering;
use std::io;
use std::task::Waker;

use crate::scheduler::seat_id::NEVER;
use crate::sync::wait_list::{Another, Place, Waiter};
use crate::util::sorted_map::SortedMap;
use procession_sync::Arc;

use super::busy::{Blocked, Busy, Lender};
use super::idle::{IdleStack, IdleWorker, Order, PoolSeat};
use super::lane::JobLane;
use super::loans::Loans;
use super::mutation;
use super::outcome::{Ended, EnterError, Entered, Launch, Limits, PoolStats, Quiescence, Wakes};
use super::places::Places;
use super::queue::JobQueue;

/// The state that the lock of a pool guards.
#[derive(Debug)]
pub(super) struct Synced<J> {
    pub(super) limits: Limits,
    pub(super) live: usize,
    /// Workers that are not live any more, but still run their hooks.
    pub(super) leaving: usize,
    /// Jobs that run on the thread of their submitter, or inside a job that waits for them.
    pub(super) inline: usize,
    pub(super) idle: IdleStack<J>,
    /// Set while a retry is arranged.
    pub(super) retries: bool,
    /// The time of the next reap that is arranged, or `NEVER`.
    pub(super) reap_at: u64,
    pub(super) queue: JobQueue<J>,
    pub(super) last_ticket: u64,
    pub(super) places: Places,
    pub(super) blocked: Blocked,
    pub(super) loans: Loans,
    /// The waiters for a quiescent pool, by number.
    pub(super) watchers: SortedMap<u64, (Quiescence, Waker)>,
    /// What the pool has counted since it was built. The other numbers are 0.
    pub(super) totals: PoolStats,
}

/// The job that a worker takes next.
enum NextJob {
    /// The first of the queue.
    First,
    /// One for which this lender lends its place.
    Lent { lender: Lender, ticket: u64 },
}

/// Starts a worker that is a thread. For a worker that is a process, only obtains the permission;
/// the worker is launched outside the lock.
pub type Start<'a, J> = &'a mut dyn FnMut() -> io::Result<IdleWorker<J>>;

impl<J> Synced<J> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            live: 0,
            leaving: 0,
            inline: 0,
            idle: IdleStack::new(),
            retries: false,
            reap_at: NEVER,
            queue: JobQueue::new(),
            last_ticket: 0,
            places: Places::new(),
            blocked: Blocked::new(),
            loans: Loans::new(),
            watchers: SortedMap::new(),
            totals: PoolStats::default(),
        }
    }

    pub(super) fn busy(&self) -> usize {
        self.live - self.idle.workers.len()
    }

    /// Returns how many workers there may be now. A job that waits for another job lends its place.
    pub(super) fn allowed(&self) -> usize {
        self.limits.capacity.saturating_add(self.loans.lent())
    }

    fn has_place(&self) -> bool {
        let used = self.busy() + self.queue.jobs + self.places.reserved;
        used < self.limits.capacity.saturating_add(self.limits.queue)
    }

    /// `Claim`: writes an order into the seat of a worker that is off the stack.
    fn hand(seat: &PoolSeat<J>, order: Order<J>, wakes: &mut Wakes<J>) {
        seat.change(|mail| {
            mail.order = Some(order);
            mail.waker.take().into_iter().for_each(|waker| wakes.wakers.push(waker));
        });
    }

    /// Hands a job to a worker that is off the stack, or new.
    pub(super) fn set_to_work(worker: IdleWorker<J>, ticket: u64, job: J, wakes: &mut Wakes<J>) {
        match worker {
            IdleWorker::Parked(seat) => Self::hand(&seat, Order::Run(ticket, job), wakes),
            IdleWorker::Rests { has_begun, .. } => {
                wakes.launches.push(Launch { ticket, job, has_begun })
            }
        }
    }

    pub(super) fn count_start(&mut self) {
        self.live += 1;
        self.totals.workers_started += 1;
        self.totals.peak = self.totals.peak.max(self.live);
    }

    /// Starts a new worker, or the resting worker on top of the stack again.
    pub(super) fn start(&mut self, start: Start<'_, J>) -> io::Result<IdleWorker<J>> {
        let rests = if self.limits.rests { self.idle.workers.pop_back() } else { None };
        match (start(), rests) {
            (Ok(_), Some(rests)) => Ok(rests),
            (Ok(new), None) => {
                self.count_start();
                Ok(new)
            }
            (Err(error), rests) => {
                self.idle.workers.extend(rests);
                self.totals.workers_refused += 1;
                Err(error)
            }
        }
    }

    /// Takes the parked worker on top of the stack, if workers park.
    fn pop_parked(&mut self) -> Option<Arc<PoolSeat<J>>> {
        if self.limits.rests {
            return None;
        }
        match self.idle.workers.pop_back()? {
            IdleWorker::Parked(seat) => Some(seat),
            IdleWorker::Rests { .. } => unreachable!("the workers of a pool are of one kind"),
        }
    }

    /// Returns `true` if no worker will look at the queue unless a worker is started.
    pub(super) fn needs_start(&self) -> bool {
        self.busy() == 0 && (self.limits.rests || self.idle.workers.is_empty())
    }

    /// Returns `true` if a worker may be started for the next job of the queue. A worker that rests
    /// is live already. It is not started again while more workers are live than may be, which is
    /// the case after the end of a loan.
    fn can_start(&self) -> bool {
        match self.live.cmp(&self.allowed()) {
            Ordering::Less => true,
            Ordering::Equal => self.limits.rests && !self.idle.workers.is_empty(),
            Ordering::Greater => false,
        }
    }

    /// Finds a worker for a job that has a place, unless an earlier job of its key has not ended.
    /// The job is converted once it is certain to be taken; otherwise it is returned.
    pub(super) fn dispatch<B: Into<J>>(
        &mut self,
        lane: JobLane,
        job: B,
        start: Start<'_, J>,
        wakes: &mut Wakes<J>,
    ) -> Entered<B> {
        if self.queue.holds(lane) {
            return Ok(self.hold(lane, job));
        }
        let idle = self.pop_parked();
        let fresh = if idle.is_none() && self.can_start() { Some(self.start(start)) } else { None };
        if let Some(Err(_)) = &fresh
            && self.needs_start()
            && !mutation::is(mutation::BUILT, mutation::QUEUE_BEHIND_REFUSAL)
        {
            let error = fresh.and_then(Result::err).expect("the start was refused");
            self.totals.refused += 1;
            return Err((job, EnterError::Worker(error)));
        }
        let ticket = self.next_ticket();
        self.queue.begin(lane, ticket);
        let job = job.into();
        match (idle, fresh) {
            (Some(seat), _) => Self::hand(&seat, Order::Run(ticket, job), wakes),
            (None, Some(Ok(worker))) => {
                // The order is first come, first served. The queue has jobs here only if a start
                // was refused earlier.
                self.queue.push(lane.priority, ticket, job);
                let (ticket, job) = self.queue.pop().expect("a job was just pushed");
                Self::set_to_work(worker, ticket, job, wakes);
            }
            (None, refused) => {
                self.queue.push(lane.priority, ticket, job);
                if refused.is_some() {
                    self.starve(wakes);
                }
            }
        }
        Ok(ticket)
    }

    /// Takes a job, and holds it behind an earlier one of its key. Returns its ticket.
    pub(super) fn hold<B: Into<J>>(&mut self, lane: JobLane, job: B) -> u64 {
        let ticket = self.next_ticket();
        self.queue.hold(lane, ticket, job.into());
        ticket
    }

    /// Returns the ticket of a job that is taken now.
    pub(super) fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.totals.submitted += 1;
        self.last_ticket
    }

    /// Asks for a retry, unless one is arranged. Processes need it, because a worker that is killed
    /// leaves its room in the scheduler only after its successor was refused.
    fn starve(&mut self, wakes: &mut Wakes<J>) {
        wakes.starved |= !self.limits.threads && !std::mem::replace(&mut self.retries, true);
    }

    /// Hands queued jobs to parked workers, and starts workers for the remaining jobs. Returns
    /// `false` if a worker was refused. The jobs are then left to the live workers.
    ///
    /// Each step calls this that frees the place of a worker, raises the capacity, or makes a job
    /// ready that its own worker does not take.
    pub(super) fn employ(&mut self, start: Start<'_, J>, wakes: &mut Wakes<J>) -> bool {
        self.hand_to_parked(wakes);
        while let Some(next) = self.next_to_start() {
            let Ok(worker) = self.start(start) else {
                self.starve(wakes);
                return false;
            };
            let (ticket, job) = self.take(next).expect("the job is ready");
            Self::set_to_work(worker, ticket, job, wakes);
        }
        true
    }

    /// Returns the next job for a worker that would be started.
    fn next_to_start(&mut self) -> Option<NextJob> {
        let is_free = self.can_start();
        self.next_if(is_free)
    }

    /// Returns the next job: the first of the queue if a place `is_free`, else one for which a
    /// place is lent.
    fn next_if(&mut self, is_free: bool) -> Option<NextJob> {
        if self.queue.ready == 0 {
            return None;
        }
        if is_free {
            return Some(NextJob::First);
        }
        self.loans.next(&self.queue).map(|(lender, ticket)| NextJob::Lent { lender, ticket })
    }

    /// Takes a job that is ready.
    fn take(&mut self, next: NextJob) -> Option<(u64, J)> {
        match next {
            NextJob::First => self.queue.pop(),
            NextJob::Lent { lender, ticket } => {
                let job = self.queue.withdraw_ready(ticket)?;
                self.loans.begin(lender, ticket);
                Some((ticket, job))
            }
        }
    }

    /// Takes the next job for a worker that is live and off the stack. If there are as many others
    /// as may be, the job is one for which a place is lent.
    pub(super) fn next_job(&mut self) -> Option<(u64, J)> {
        let next = self.next_if(self.live <= self.allowed())?;
        self.take(next)
    }

    /// Has the caller of a step that starts no workers [employ](Self::employ) them, if the step has
    /// made a job ready that its own worker does not take. Threads that were refused are left to
    /// the next submitter, and processes to the retry.
    pub(super) fn want_workers(&mut self, wakes: &mut Wakes<J>) {
        wakes.understaffed =
            !self.limits.threads && !self.retries && self.next_to_start().is_some();
    }

    fn hand_to_parked(&mut self, wakes: &mut Wakes<J>) {
        while self.queue.ready > 0
            && let Some(seat) = self.pop_parked()
        {
            let (ticket, job) = self.queue.pop().expect("jobs are counted");
            Self::hand(&seat, Order::Run(ticket, job), wakes);
        }
    }

    /// Returns an error if there is no place for a newcomer.
    pub(super) fn find_place(&self) -> Result<(), EnterError> {
        if !self.places.open {
            return Err(EnterError::Closed);
        }
        let is_free = !self.places.are_awaited() && self.has_place();
        if is_free { Ok(()) } else { Err(EnterError::Full) }
    }

    /// Uses a reserved place, unless the reservation is void.
    pub(super) fn use_place(&mut self, generation: u64) -> Result<(), EnterError> {
        if self.places.unreserve(generation) { Ok(()) } else { Err(EnterError::Closed) }
    }

    pub(super) fn wait(
        &mut self,
        another: &mut Another<'_>,
        own: Option<Busy>,
    ) -> Result<Place, EnterError> {
        if !self.places.open {
            return Err(EnterError::Closed);
        }
        if self.places.waiting >= self.limits.waiting {
            return Err(EnterError::TooManyWaiting);
        }
        if own.is_some_and(|busy| self.would_deadlock(busy)) {
            return Err(EnterError::WouldDeadlock);
        }
        if let Some(busy) = own {
            self.blocked.block(busy);
        }
        let waker = another.take().expect("the waker is prepared");
        Ok(self.places.enlist(waker, own))
    }

    /// Returns `true` if no job could free a place any more, once the job of this worker waits as
    /// well.
    pub(super) fn would_deadlock(&mut self, busy: Busy) -> bool {
        self.is_stuck_with(self.blocked.count_with(busy))
    }

    /// If all jobs wait for one another, refuses the first job that waits for a place.
    pub(super) fn refuse_deadlock(&mut self, wakes: &mut Wakes<J>) {
        if self.is_stuck_with(self.blocked.count()) {
            let blocked = &self.blocked;
            let is_blocked = |own: Option<Busy>| own.is_some_and(|busy| blocked.contains(busy));
            let served = self.places.serve(Err(EnterError::WouldDeadlock), is_blocked);
            self.wake_served(served, wakes);
        }
    }

    /// Returns `true` if no job could free a place any more, with this number of blocked workers.
    fn is_stuck_with(&mut self, blocked: usize) -> bool {
        let has_no_worker = self.idle.workers.is_empty() && self.live >= self.limits.capacity;
        // A held job takes a place although workers are idle.
        let has_only_held = self.queue.ready == 0 && self.queue.jobs > 0;
        (has_no_worker || has_only_held)
            && !mutation::is(mutation::BUILT, mutation::STUCK_UNSEEN)
            && self.places.reserved == 0
            && blocked >= self.busy()
            // A retry starts a worker that was refused.
            && self.next_to_start().is_none()
    }

    /// Closes the pool, and refuses the waiters for a place. Returns `true` if it was open.
    pub(super) fn close(&mut self, wakes: &mut Wakes<J>) -> bool {
        let was_open = self.places.close();
        if was_open {
            self.reap_at = NEVER;
        }
        while self.serve(Err(EnterError::Closed), wakes) {}
        was_open
    }

    fn serve(&mut self, verdict: Result<u64, EnterError>, wakes: &mut Wakes<J>) -> bool {
        let served = self.places.serve(verdict, |_| true);
        self.wake_served(served, wakes)
    }

    /// Notes that a waiter was served. Returns `true` if there was one.
    fn wake_served(
        &mut self,
        served: Option<(Waiter, Option<Busy>)>,
        wakes: &mut Wakes<J>,
    ) -> bool {
        let Some((waiter, own)) = served else {
            return false;
        };
        if let Some(busy) = own {
            self.blocked.unblock(busy);
        }
        waiter.into_waker().into_iter().for_each(|waker| wakes.wakers.push(waker));
        true
    }

    /// `Settle`.
    pub(super) fn settle(&mut self, wakes: &mut Wakes<J>) {
        self.hand_to_parked(wakes);
        while self.places.open
            && self.places.are_awaited()
            && self.has_place()
            && self.serve(Ok(self.places.generation), wakes)
        {
            self.places.reserved += 1;
        }
        while (self.live > self.allowed() || !self.places.open)
            && let Some(idle) = self.idle.workers.pop_front()
        {
            self.dismiss(idle, wakes);
        }
        // A caller often waits for an idle pool while a long queue is run. So the list of waiters
        // is searched only if a waiter may have reached its state: a drained pool is idle, too.
        if !self.watchers.is_empty() && self.is(Quiescence::Idle) {
            let drained = self.is(Quiescence::Drained);
            let reached = |quiescence: &Quiescence| *quiescence == Quiescence::Idle || drained;
            for (_, (_, waker)) in self.watchers.take_if(|_, (quiescence, _)| reached(quiescence)) {
                wakes.wakers.push(waker);
            }
        }
    }

    /// Makes an idle worker leave that is off the stack.
    pub(super) fn dismiss(&mut self, idle: IdleWorker<J>, wakes: &mut Wakes<J>) {
        self.count_leave();
        match idle {
            IdleWorker::Parked(seat) => Self::hand(&seat, Order::Leave, wakes),
            IdleWorker::Rests { has_begun: true, .. } => wakes.leavers += 1,
            IdleWorker::Rests { has_begun: false, .. } => self.leaving -= 1,
        }
    }

    pub(super) fn count_leave(&mut self) {
        self.live -= 1;
        self.leaving += 1;
        self.totals.workers_retired += 1;
    }

    pub(super) fn is(&self, quiescence: Quiescence) -> bool {
        let nothing_queued = self.queue.jobs == 0 && self.inline == 0;
        match quiescence {
            Quiescence::Idle => nothing_queued && self.busy() == 0,
            Quiescence::Drained => {
                nothing_queued && !self.places.open && self.live == 0 && self.leaving == 0
            }
        }
    }

    pub(super) fn count_end(&mut self, ticket: u64, ended: Ended) {
        match ended {
            Ended::Completed => self.totals.completed += 1,
            Ended::Panicked => self.totals.panicked += 1,
            Ended::Cancelled => self.totals.cancelled += 1,
        }
        self.queue.end(ticket);
        self.blocked.end_joins(ticket);
        self.loans.end(ticket);
        if !self.limits.threads {
            self.blocked.forget(Busy::with_job(ticket));
        }
    }

    /// Returns `until` if the caller must arrange a reap at that time, because none is arranged
    /// before.
    pub(super) fn reap_before(&mut self, until: u64) -> Option<u64> {
        let is_first = until < self.reap_at && self.live > self.limits.kept;
        is_first.then(|| {
            self.reap_at = until;
            until
        })
    }
}
