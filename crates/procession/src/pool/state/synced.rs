//! What the lock of a pool guards, and the parts that its steps share.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::Waker;

use procession_sync::Arc;

use super::busy::Busy;
use super::idle::Idle;
use super::outcome::{Calm, Ended, Entry, Refused, Verdict};
use super::picture::{Limits, Totals};
use super::queue::Queue;
use super::seat::{Order, Seat};
use super::wakes::{Launch, Wakes};
use crate::sync::wait_list::{Another, Place, Waiters, Who};

/// Somebody who waits for a place.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) verdict: Option<Verdict>,
    /// The worker whose job waits, if it waits without a limit of time.
    pub(super) own: Option<Busy>,
}

#[derive(Debug)]
pub(super) struct State<J> {
    pub(super) limits: Limits,
    pub(super) open: bool,
    pub(super) generation: u64,
    pub(super) live: usize,
    /// Workers that have left the count, and run their hooks.
    pub(super) leaving: usize,
    /// Jobs that run on other threads than those of workers, or inside of another job.
    pub(super) inline: usize,
    /// The worker that became idle last is at the back.
    pub(super) idle: VecDeque<Idle<J>>,
    /// Some that rest may leave before others that began to rest before them, since the keep-alive was changed.
    pub(super) uneven: bool,
    /// Somebody is to retry.
    pub(super) retries: bool,
    /// When somebody reaps.
    pub(super) reap_at: u64,
    pub(super) queue: Queue<J>,
    pub(super) last_ticket: u64,
    pub(super) reserved: usize,
    pub(super) waiters: Waiters<Wish>,
    pub(super) waiting: usize,
    /// Busy workers whose job can go on only when another of this pool has ended, and how often it waits.
    pub(super) blocked: BTreeMap<Busy, u32>,
    /// Jobs that a job of this pool waits for, by ticket, and the worker of that one.
    pub(super) joins: Vec<(u64, Busy)>,
    /// Who waits for a calm, by number.
    pub(super) watchers: BTreeMap<u64, (Calm, Waker)>,
    pub(super) totals: Totals,
}

/// Starts a worker that parks; of one that rests, only says that it may be started, which is done outside the lock.
pub(crate) type Start<'a, J> = &'a mut dyn FnMut() -> io::Result<Idle<J>>;

impl<J> State<J> {
    pub(super) fn busy(&self) -> usize {
        self.live - self.idle.len()
    }

    pub(super) fn has_place(&self) -> bool {
        let used = self.busy() + self.queue.jobs + self.reserved;
        used < self.limits.capacity.saturating_add(self.limits.queue)
    }

    /// `Claim`: writes an order to a worker that is off the stack.
    pub(super) fn hand(seat: &Seat<J>, order: Order<J>, wakes: &mut Wakes<J>) {
        seat.change(|mail| {
            mail.order = Some(order);
            mail.waker.take().into_iter().for_each(|waker| wakes.wakers.push(waker));
        });
    }

    /// Gives a job to a worker that is off the stack, or new.
    pub(super) fn set_to_work(worker: Idle<J>, ticket: u64, job: J, wakes: &mut Wakes<J>) {
        match worker {
            Idle::Parked(seat) => Self::hand(&seat, Order::Run(ticket, job), wakes),
            Idle::Rests { has_begun, .. } => wakes.launches.push(Launch { ticket, job, has_begun }),
        }
    }

    pub(super) fn count_start(&mut self) {
        self.live += 1;
        self.totals.started += 1;
        self.totals.peak = self.totals.peak.max(self.live);
    }

    /// Has a new worker start, or the one start again that rests since the shortest time.
    pub(super) fn start(&mut self, start: Start<'_, J>) -> io::Result<Idle<J>> {
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

    pub(super) fn push_idle(&mut self, mut idle: Idle<J>) {
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
    pub(super) fn pop_parked(&mut self) -> Option<Arc<Seat<J>>> {
        if self.limits.rests {
            return None;
        }
        match self.idle.pop_back()? {
            Idle::Parked(seat) => Some(seat),
            Idle::Rests { .. } => unreachable!("the workers of a pool are of one kind"),
        }
    }

    /// Whether nobody is there who comes to the queue by himself.
    pub(super) fn has_nobody(&self) -> bool {
        self.busy() == 0 && (self.limits.rests || self.idle.is_empty())
    }

    pub(super) fn can_start(&self) -> bool {
        self.live < self.limits.capacity || self.limits.rests && !self.idle.is_empty()
    }

    /// Finds a worker for a job that has a place. The job is made of its content, which comes back otherwise, when it is certain to be taken.
    pub(super) fn dispatch<C>(
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
    pub(super) fn starve(&mut self, wakes: &mut Wakes<J>) {
        wakes.starved |= self.limits.rests && !std::mem::replace(&mut self.retries, true);
    }

    /// Starts workers for what is queued.
    pub(super) fn employ(&mut self, start: Start<'_, J>, wakes: &mut Wakes<J>) {
        while self.can_start() && self.queue.jobs > 0 {
            // A refused worker leaves the jobs to those there are.
            let Ok(worker) = self.start(start) else {
                return self.starve(wakes);
            };
            let (ticket, job) = self.queue.pop().expect("jobs are counted");
            Self::set_to_work(worker, ticket, job, wakes);
        }
    }

    pub(super) fn dispatch_out_of<C>(
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
    pub(super) fn has_free_place(&self) -> bool {
        self.waiters.is_empty() && self.has_place()
    }

    pub(super) fn wait(&mut self, another: &mut Another<'_>, own: Option<Busy>) -> Entry {
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

    pub(super) fn served(&mut self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Verdict> {
        let waiting = place.take()?;
        if self.waiters.is_served(&waiting) {
            return self.waiters.remove(waiting).0.verdict;
        }
        self.waiters.renew(&waiting, another);
        *place = Some(waiting);
        None
    }

    /// A worker that rests is not found if the job has ended.
    pub(super) fn unblock(&mut self, busy: Busy) {
        if let Some(waits) = self.blocked.get_mut(&busy) {
            *waits -= 1;
            if *waits == 0 {
                self.blocked.remove(&busy);
            }
        }
    }

    pub(super) fn block(&mut self, busy: Busy) {
        *self.blocked.entry(busy).or_default() += 1;
    }

    /// Whether nobody is left who could free a place, once the job of this worker waits, too.
    pub(super) fn would_deadlock(&self, busy: Busy) -> bool {
        let more = usize::from(!self.blocked.contains_key(&busy));
        self.idle.is_empty()
            && self.live >= self.limits.capacity
            && self.reserved == 0
            && self.blocked.len() + more >= self.busy()
    }

    pub(super) fn serve(&mut self, verdict: Verdict, wakes: &mut Wakes<J>) -> bool {
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
    pub(super) fn settle(&mut self, wakes: &mut Wakes<J>) {
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
    pub(super) fn dismiss(&mut self, idle: Idle<J>, wakes: &mut Wakes<J>) {
        self.count_leave();
        match idle {
            Idle::Parked(seat) => Self::hand(&seat, Order::Leave, wakes),
            Idle::Rests { has_begun: true, .. } => wakes.leavers += 1,
            Idle::Rests { has_begun: false, .. } => self.leaving -= 1,
        }
    }

    pub(super) fn count_leave(&mut self) {
        self.live -= 1;
        self.leaving += 1;
        self.totals.retired += 1;
    }

    pub(super) fn is(&self, calm: Calm) -> bool {
        let nothing_queued = self.queue.jobs == 0 && self.inline == 0;
        match calm {
            Calm::Idle => nothing_queued && self.busy() == 0,
            Calm::Drained => nothing_queued && !self.open && self.live == 0 && self.leaving == 0,
        }
    }

    pub(super) fn count_end(&mut self, ticket: u64, ended: Ended) {
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
    pub(super) fn reap_before(&mut self, until: u64) -> Option<u64> {
        let is_first = until < self.reap_at && self.live > self.limits.kept;
        is_first.then(|| {
            self.reap_at = until;
            until
        })
    }

    pub(super) fn unreserve(&mut self, generation: u64) -> bool {
        let valid = self.open && generation == self.generation;
        self.reserved -= usize::from(valid);
        valid
    }
}
