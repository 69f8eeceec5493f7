//! The waiting of a worker that has found nothing.

use procession_protocols::scheduler::driver::Kept;
use procession_protocols::scheduler::idle::mutation;
use procession_protocols::scheduler::idle::parking::TakenBack;
use procession_protocols::scheduler::seat_id::NEVER;

use crate::scheduler::local::{LocalWorker, Parked, Stay};
use crate::scheduler::log::WordKind;
use crate::scheduler::shared::Batch;

/// In nanoseconds, the wait that is a long rest: something happens less than a hundred times in a
/// second.
const LONG_REST: u64 = 10_000_000;

/// The number of times that a worker finds something after a long rest without immediately waking
/// the next worker. A question to another node and its answer are two finds.
const FINDS_AFTER_REST: u32 = 4;

/// The number of looks that a worker which has run a process bound to it takes for another before
/// it parks. Each look includes the processor's pause; together they take 6 us where this was
/// measured.
const LOOKS: u32 = 200;

/// The same number at every `LONG_LOOK_EVERY`th time in a row without success. This is longer than
/// the system needs to wake the worker that answers, so that both look again from then on
/// (`co_apart` 0.53 us, and 0.6 to 1.1 without).
const LOOKS_LONG: u32 = 2000;

const LONG_LOOK_EVERY: u32 = 16;

/// The time in nanoseconds after which a thread that was not allowed to retire tries again, however
/// short the keep-alive.
const RETIRE_AGAIN: u64 = 100_000_000;

impl LocalWorker {
    /// Waits for a short time for a process that only this worker can run, if it has run one: a
    /// process elsewhere may be about to answer it, and if both workers parked and were woken, that
    /// would take fifty times as long. Returns `true` if there is one, or other work.
    pub(crate) fn await_bound(&self) -> bool {
        let shared = &*self.shared;
        if !self.queues.had_bound() || shared.workforce.seats.first() == 1 || shared.world.is_test()
        {
            return false;
        }
        let bound = &shared.workforce.seat(self.seat).bound;
        let fruitless = self.parking.fruitless_looks.get();
        let looks =
            if fruitless % LONG_LOOK_EVERY == LONG_LOOK_EVERY - 1 { LOOKS_LONG } else { LOOKS };
        for look in 0..looks {
            if !bound.is_empty() {
                self.parking.fruitless_looks.set(0);
                return true;
            }
            // This worker may still count as searching, in which case no other is woken for what is
            // queued now.
            if look % 16 == 0 && shared.workforce.has_queued() {
                return true;
            }
            shared.world.spin_loop();
        }
        self.parking.fruitless_looks.set(fruitless.wrapping_add(1));
        false
    }

    /// Parks until there is something to do (`scheduler/idle/parking.rs`).
    pub(crate) fn park(&self, stay: &Stay<'_>) -> Parked {
        let shared = &*self.shared;
        let seat = shared.workforce.seat(self.seat);
        self.end_batch();
        // In a simulated system, another thread may run between the last look of the search and the
        // announcement, and below between `Earliest` and `Keep` or `Resign`.
        shared.world.point();
        seat.stats.parks.add(1);
        let nap = self.parking.nap(shared, &self.search);
        let mut napping = nap.map(|_| shared.workforce.idle.nap());
        self.tidy_up();
        self.queues.rings.sampler.rest();
        self.search.owes_next.set(false);
        if shared.workforce.idle.announce(self.seat, self.search.is_on.replace(false)) {
            shared.wake_idle_waiters();
        }
        shared.note_end_at_leisure();
        let nap_until = nap.map_or(NEVER, |nap| shared.world.now().saturating_add(nap));
        let mut look_again = nap_until.min(self.parking.look_again_at(shared));
        let mut retire_at = stay.retire_at(shared, self.seat);
        let not_before = self.firing.not_before();
        self.log.plain(WordKind::Park, 0);
        let (mut is_clean, mut since) = (false, NEVER);
        loop {
            let deadline = shared.next_deadline();
            let now = shared.world.now();
            since = since.min(now);
            self.log.clock(now);
            let due = deadline <= now;
            shared.world.point();
            if self.recheck(stay, due) {
                break;
            }
            match self.settle_idle(stay, deadline) {
                None => {}
                Some(Parked::Woken) => break,
                Some(over) => return over,
            }
            if due {
                shared.world.point();
            }
            // A timer is due, but this worker has no permit. The workers that are awake will fire
            // it, and when one parks, it becomes the driver, because this worker does not.
            if due && shared.clock.driver.resign(self.seat) {
                continue;
            }
            let kept = if due { Kept::ByAnother } else { shared.keep_time(self.seat, deadline) };
            let keeps = match kept {
                // A worker that relies on this driver for the deadline finds it as late as the
                // system might have been.
                Kept::Until(until)
                    if until != NEVER
                        && !std::mem::replace(&mut is_clean, true)
                        && shared.clean_first(until, self.seat) =>
                {
                    continue;
                }
                Kept::Until(until) => Some(until.max(not_before)),
                Kept::ByAnother | Kept::ByNudged(_) => None,
                Kept::Again => continue,
            };
            shared.calm_watchdog();
            if self.wait(keeps, look_again.min(retire_at)) {
                break;
            }
            if shared.workforce.idle.come(self.seat) {
                // A waker claimed the seat.
                self.search.is_on.set(true);
                break;
            }
            // Nothing wakes a worker for the tasks of a paused runtime.
            if keeps.is_some() && shared.parts.paused().is_some() && self.take_back(false) {
                break;
            }
            let now = shared.world.now();
            if now >= retire_at {
                if shared.workforce.idle.retire(self.seat) {
                    shared.clock.driver.leave(self.seat);
                    return Parked::Retired;
                }
                // It is the last thread that does not block.
                retire_at = stay.retire_at(shared, self.seat).max(now.saturating_add(RETIRE_AGAIN));
            }
            if now >= look_again {
                if self.take_back(false) {
                    break;
                }
                // Without a permit, this is left to the workers that are awake. From here on, no
                // worker relies on this nap; this worker looks once more.
                napping = None;
                look_again = NEVER;
            }
        }
        drop(napping);
        self.log.plain(WordKind::Unpark, 0);
        let now = shared.world.now();
        self.log.clock(now);
        if now.saturating_sub(since) >= LONG_REST {
            self.parking.rested.set(FINDS_AFTER_REST);
        }
        self.queues.rings.pace.resume();
        shared.clock.driver.leave(self.seat);
        shared.workforce.rouse_watchdog();
        Parked::Woken
    }

    /// Runs the tasks of the paused runtime of the scheduler, because that runtime has no threads.
    /// Returns `true` if there may be something to run afterwards.
    pub(crate) fn drive_companion(&self, stay: &Stay<'_>) -> bool {
        let shared = &*self.shared;
        let Some(runtime) = shared.parts.paused() else { return false };
        // A task may compute for long.
        self.search.stop(&self.shared);
        runtime.drive(shared.world.now())
            || shared.workforce.has_work()
            || self.queues.has_local()
            || shared.workforce.has_bound_level(self.seat)
            || stay.is_over(&self.shared)
    }

    /// Does what there is time for before this worker parks.
    fn tidy_up(&self) {
        let seat = self.shared.workforce.seat(self.seat);
        // Settle the changes that others made to the timers.
        seat.timers.adjust();
        seat.timers.clean();
        if self.seat.0 >= self.shared.workforce.seats.first() {
            // An extra worker may be gone for long, and a limit on processes counts the slots that
            // it holds.
            self.stores.return_slots(self.shared.table());
        }
    }

    /// `Recheck` and `TakeBack`. Returns `true` if this worker is no longer parked.
    fn recheck(&self, stay: &Stay<'_>, due: bool) -> bool {
        let has_bound =
            !self.shared.workforce.seat(self.seat).bound.is_empty() || self.queues.has_bound();
        let has_bound = has_bound || self.shared.workforce.has_bound_level(self.seat);
        let has_bound =
            has_bound && !mutation::is(mutation::BUILT, mutation::BOUND_WITHOUT_RECHECK);
        let must_run = has_bound || stay.is_over(&self.shared);
        let has_queued = self.shared.workforce.has_queued()
            && !mutation::is(mutation::BUILT, mutation::PARK_WITHOUT_RECHECK);
        (due || has_queued || must_run) && self.take_back(must_run)
            || matches!(stay, Stay::Idle)
                && self.poll_while_parked(|batch| {
                    self.shared.poller.poll(batch);
                })
    }

    /// If every seat is parked, and that ends the stay or lets the test clock advance: takes the
    /// announcement back, and returns the result for this worker.
    fn settle_idle(&self, stay: &Stay<'_>, deadline: u64) -> Option<Parked> {
        let shared = &*self.shared;
        let may_leave = matches!(stay, Stay::Idle) && shared.clock.outstanding() == 0;
        let has_waits = shared.processes.edges.has_new();
        let may_advance =
            shared.may_advance() && (deadline != NEVER || has_waits) && shared.is_quiet();
        if !(may_leave || may_advance) {
            return None;
        }
        let awakenings = shared.workforce.idle.take_back_if_all_parked(self.seat)?;
        self.search.is_on.set(true);
        // Only now no other worker runs: the values read before may be old.
        let idle = shared.clock.outstanding() == 0 && !shared.workforce.has_work();
        let may_advance = may_advance && shared.may_advance();
        let is_alone = || shared.workforce.idle.is_alone_since(awakenings);
        let mut idle = idle && is_alone();
        if idle && has_waits {
            // It may call code of the user, which may begin something.
            shared.parts.settled(shared);
            idle = shared.clock.outstanding() == 0 && !shared.workforce.has_work() && is_alone();
        }
        let deadline = shared.next_deadline();
        if idle && may_leave && deadline > shared.world.now() {
            self.search.stop(&self.shared);
            // This worker may have been the driver while another ran. A thread that sets a timer
            // must no longer rely on it.
            shared.clock.driver.leave(self.seat);
            return Some(Parked::AllIdle);
        }
        if idle && may_advance && deadline != NEVER {
            shared.parts.advance(&shared.world, deadline);
        }
        Some(Parked::Woken)
    }

    /// Waits until `until` at most, and until `keeps` if this worker is the driver. Returns `true`
    /// if a descriptor ended the wait, and this worker is no longer parked.
    fn wait(&self, keeps: Option<u64>, until: u64) -> bool {
        let shared = &*self.shared;
        match (keeps, shared.poller.kernel()) {
            // As the driver, also until an event of a descriptor.
            (Some(deadline), Some(kernel)) => self.poll_while_parked(|batch| {
                let asking = shared.poller.begin_waiting();
                let parker = &shared.workforce.seat(self.seat).parker;
                shared.world.park_in_kernel(parker, kernel, deadline.min(until), &mut batch.events);
                drop(asking);
            }),
            (deadline, _) => {
                let until = deadline.unwrap_or(NEVER).min(until);
                shared.world.park(&shared.workforce.seat(self.seat).parker, until);
                false
            }
        }
    }

    /// Takes the announcement back, unless there is no permit. Returns `true` if this worker
    /// searches now.
    fn take_back(&self, force: bool) -> bool {
        let searches = match self.shared.workforce.idle.take_back(self.seat, force) {
            // In the second case, the waker's token causes one spurious wake-up.
            TakenBack::Yes | TakenBack::ByWaker => true,
            TakenBack::NoPermit => false,
        };
        self.search.is_on.set(searches);
        searches
    }

    /// Polls, and delivers the events. If this worker has a permit, this ends its parking and
    /// returns `true`. In any case the worker leaves the driver role, so that a woken worker can
    /// take it.
    fn poll_while_parked(&self, poll: impl FnOnce(&mut Batch)) -> bool {
        let mut batch = self.batch.take();
        poll(&mut batch);
        let found = !batch.events.is_empty() && self.deliver_while_parked(&mut batch);
        self.batch.replace(batch);
        found
    }

    /// Delivers what a parked worker has polled. Returns `true` if it is no longer parked.
    fn deliver_while_parked(&self, batch: &mut Batch) -> bool {
        let searches = self.take_back(false);
        self.shared.clock.driver.leave(self.seat);
        if !searches {
            // Without a permit this worker stays parked. The processes that it delivers are for
            // other workers, which look into the global queue.
            self.queues.close_woken();
        }
        // If it searches, it runs one delivered process itself.
        self.deliver(batch, usize::from(searches));
        if !searches {
            self.queues.announce_all();
        }
        searches
    }
}
