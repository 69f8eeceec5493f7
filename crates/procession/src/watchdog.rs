//! Who looks after workers whose steps do not end.
//!
//! # Watchdog protocol
//!
//! ## Problem
//! A step that blocks without saying so, or computes for long, holds a permit, and with it what is
//! queued everywhere if all permits are held like that. Its worker cannot be asked. Whoever looks
//! must not cost the workers anything, must not take a step for stalled because the system did not
//! run it, and must not wake a program that does nothing.
//!
//! ## States
//! For each seat what the last look saw: the step counter, since when it has been the same odd
//! number, by this thread's clock, and how much processor time the worker's thread had used in the
//! middle of `stall_after`. Whether the watchdog is asleep. For the first seats an open file in
//! which the system tells the state of the seat's thread. The watchdog opens it at the first look
//! that finds the thread. The thread closes it when it leaves.
//!
//! ## Steps
//! `Look`, every 2.5 ms while anybody runs, every 10 ms while nobody has for up to 100 ms, and when
//! a worker then becomes awake: read every step counter. The same odd number for `stall_after`,
//! outside of a blocking section, is a stall, and the system is asked what the thread did: it
//! waited → *blocked*; it used processor time → *computing*; neither → it is ready to run and the
//! system lets it wait: nothing. Each stall is reported once. If the system does not tell the state
//! of the thread, since no descriptors are left or there is no `/proc`, the processor time decides
//! alone: a thread that used hardly any counts as blocked. If that is not known either, the stall
//! counts as blocked. `Rescue`, if nobody searches, nobody is spare, and something waits that
//! nobody comes to: take the next slots of the stalled, and their permits (`Revoke` of
//! `scheduler/idle.rs`), and wake or start a worker for each, all at once. What else they hold is
//! found by these, as by any worker that searches. Of the computing, only so many lose their
//! permits, since each adds a thread that competes for processors. If all threads are in use: fire
//! due timers and ask for descriptors here. Also if all workers just have no time for these. While
//! all threads block, that is all there is to do: sleep until the next deadline, and 10 ms at most
//! if there are descriptors. `WriteOff`, at each look, those that were woken and have not come
//! (`scheduler/idle.rs`); `Rescue` takes their permits, too, once they are late for `stall_after`.
//! `Nudge`, if a seat is spare, and something waits at this look and at the one before: wake one,
//! unless somebody searches. What waits is anything in a queue, a timer that was due at the look
//! before, descriptors that nobody has asked for in 10 ms, or a next slot whose worker is in the
//! same step as at the look before. This is for next slots, which are filled without waking
//! anybody, for timers that a step has set which then stalled, and for the little that the parking
//! protocol lets slip. `Doze`: after two looks that find nobody awake, sleep for 10 ms, and after
//! 100 ms for good; a worker that becomes awake ends it (`watchdog/park.rs`).
//!
//! ## Why it works
//! Step counters, processes' numbers and sections are plain stores of the worker, on its own line
//! of the cache; it reads no clock and makes no read-modify-write for this. They may be seen late,
//! by nanoseconds, against milliseconds. A step that ended after it was seen is caught by a second
//! look before the permit is taken; if it ends even later, the worker finds its permit gone, and
//! parks or gets one back.
//!
//! A look that comes late by more than 20 ms says nothing about the workers: all may have been
//! stopped with it (`SIGSTOP`, a suspended machine). It counts as the first.
//!
//! ## Allowed
//! - A stall is noticed one look late: with a `stall_after` of 10 ms, 10 to 12.5 ms after the step
//!   began. The watchdog is a thread like others: what the system keeps it waiting at each of these
//!   five looks is added. Measured on two processors (`attacks`): a median of 10.9 ms and at most
//!   12.5 ms, or 11.4 ms and 14.1 ms while a thread for each of them computes.
//! - While anybody runs it wakes 400 times a second, and up to 800 times if workers park and wake
//!   again all the time.
//! - What only `Nudge` helps waits for up to three looks: 7.5 ms.
//! - Functions of timers that this thread fires hold up the watchdog, if they block, which they
//!   must not.
//! - Without the state of a thread, one that the system lets wait for all of `stall_after` counts
//!   as blocked: one thread more may run than the scheduler is wide. `StallSnapshot::guessed`
//!   counts these.
//!
//! ## Rejected
//! - A time stamp for each step, read by the watchdog: a clock read for each step, 20 ns and more.
//! - The processor clock of the thread alone: it tells computing from not computing, but not
//!   blocked from preempted. The file `stat` of the thread tells that, and is read for suspects
//!   only.
//! - The file `schedstat`, for the processor time: it costs a descriptor more, kernels without
//!   `CONFIG_SCHED_INFO` do not have it, and the clock is finer.
//! - To open the file at each question: without spare descriptors every stall went unseen, and a
//!   client that opens connections brings a server there.
//! - To open the file when a thread sits down: a caller's thread sits down for each `block_on`.
//! - One watchdog for all schedulers: they are isolated; a scheduler that is idle has one that
//!   sleeps.
//!
//! ## Checked by
//! `it::stalls`; the models of `scheduler/idle.rs`, for the permits, of `scheduler/lifo_slot.rs`,
//! for the next slots, and of `watchdog/park.rs`.

pub(crate) mod park;
pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::io::poller::Batch;
use crate::process::slot::Ready;
use crate::process::unwind::guarded;
use crate::scheduler::seat::Seat;
use crate::scheduler::seat_id::{NEVER, SeatId};
use crate::scheduler::shared::Shared;
use crate::sys::{RunState, ThreadFile, nanoseconds};
use crate::watchdog::state::{Stall, StallKind, Watchdog};

/// Between two looks while anybody runs: a quarter of the default of what is a stall, so that one
/// is noticed at most a quarter late.
const LOOK_EVERY: u64 = 2_500_000;
/// Between two looks while nobody runs.
const LOOK_EVERY_QUIET: u64 = 10_000_000;
/// So many of these, 100 ms, until the watchdog sleeps: a program that works a little now and then
/// need not wake it each time.
const QUIET_LOOKS: u32 = 10;
/// A look that is later than this says nothing about the workers: the program was stopped, or
/// starved.
const OVERSLEPT: u64 = 20_000_000;
/// How long nobody may have asked for descriptors until the watchdog does.
const UNPOLLED: u64 = 10_000_000;
/// Nobody has looked how often descriptors were asked for: a number that it never is, so the next
/// look begins to wait.
const NO_POLLS: (u64, u64) = (u64::MAX, 0);
/// Seats whose threads have a file kept open, from the first on. A thread beyond gets one for each
/// question, if there are descriptors: a program may have far more threads than it can spare
/// descriptors.
const FILES_KEPT: u32 = 16;
/// Reports in a second at most; the others are counted.
const REPORTS_PER_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;

fn count(counter: &AtomicU64) {
    // Relaxed: statistics.
    counter.fetch_add(1, Relaxed);
}

impl Watchdog {
    /// Opens the file about the thread of a seat, unless it is open.
    fn open_file(&self, seat: &Seat, thread: u32) {
        let mut kept = seat.thread_file.lock();
        // Under the lock, as in `close_file`: a thread that has left closes nothing any more.
        if kept.is_none() && thread != 0 && seat.thread.load(Relaxed) == thread {
            *kept = ThreadFile::open(thread);
            self.counts.files.fetch_add(u64::from(kept.is_some()), Relaxed);
        }
    }

    /// Closes the file about the thread of a seat, which leaves it and is not named there any more.
    pub(crate) fn close_file(&self, seat: &Seat) {
        let kept = seat.thread_file.lock().take();
        self.counts.files.fetch_sub(u64::from(kept.is_some()), Relaxed);
    }

    /// Returns what the thread of a seat is doing, if the system says.
    fn state_of(&self, seat: SeatId, place: &Seat, thread: u32) -> Option<RunState> {
        if seat.0 < FILES_KEPT {
            // If there was no descriptor before, there may be now.
            self.open_file(place, thread);
            let kept = place.thread_file.lock();
            kept.as_ref()?.state()
        } else {
            ThreadFile::open(thread)?.state()
        }
    }
}

impl Shared {
    /// A worker has become awake, or was claimed.
    #[inline]
    pub(crate) fn rouse_watchdog(&self) {
        if self.watchdog.doze.rouse() {
            self.watchdog.parker.unpark();
        }
        // Relaxed: whoever starts it is told apart below.
        if !self.watchdog.is_started.load(Relaxed) {
            self.start_watchdog();
        }
    }

    #[cold]
    fn start_watchdog(&self) {
        let Some(shared) = self.weak().upgrade() else { return };
        // Relaxed: the thread is given all that it needs.
        if self.lifetime.has_ended() || self.watchdog.is_started.swap(true, Relaxed) {
            return;
        }
        let started = self
            .world
            .start_thread(format!("watch-{}", self.name()), move || Watch::new(shared).keep());
        if started.is_err() {
            self.threads.count_refused();
            // The next worker that becomes awake tries again.
            self.watchdog.is_started.store(false, Relaxed);
        }
    }
}

/// A seat, as the last looks saw it.
#[derive(Clone, Copy, Default)]
struct Look {
    /// The step counter.
    step: u64,
    /// Since when it has been that.
    since: u64,
    /// The thread that was there.
    thread: u32,
    /// When its thread was first asked, and what it had used of the processor then, if that is
    /// known.
    first: Option<(u64, Option<u64>)>,
    /// What the stall was found to be.
    found: Option<StallKind>,
    /// Whether its permit was taken in this step.
    replaced: bool,
}

/// The watchdog's own.
struct Watch {
    shared: Arc<Shared>,
    looks: Vec<Look>,
    quiet: u32,
    /// Whether something waited at the last look that nobody searched for.
    waited: bool,
    /// Since when something has been due.
    due_since: u64,
    /// How often descriptors have been asked for, and since when that has been the same.
    polls: (u64, u64),
    batch: Batch,
    /// The second in which reports were made, and how many.
    reports: (u64, u32),
}

/// How the watchdog sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until: u64,
    /// Whether a worker that becomes awake ends it.
    dozes: bool,
}

/// A stall that was found at this look.
struct Found {
    seat: SeatId,
    kind: StallKind,
    duration: u64,
    is_new: bool,
}

impl Watch {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            looks: Vec::new(),
            quiet: 0,
            waited: false,
            due_since: NEVER,
            polls: NO_POLLS,
            batch: Batch::default(),
            reports: (0, 0),
        }
    }

    /// Until the scheduler has ended.
    fn keep(mut self) {
        let shared = Arc::clone(&self.shared);
        let (world, watchdog) = (&shared.world, &shared.watchdog);
        if let Some(cpus) = &shared.threads.options.cpus {
            // As for the workers.
            let _ = cpus.bind_this_thread();
        }
        while !shared.lifetime.has_ended() {
            let looked = world.now();
            let quiet = self.look(looked);
            let pause = self.pause(looked, quiet);
            world.park(&watchdog.parker, pause.until);
            if pause.dozes && watchdog.doze.end() {
                self.quiet = 0;
            }
            if pause.until == NEVER || world.now() > pause.until + OVERSLEPT {
                self.forget();
            }
        }
    }

    /// Decides how to sleep after a look. It dozes only after two looks that found nothing to do:
    /// who works a little now and then need not wake it each time.
    fn pause(&mut self, looked: u64, quiet: bool) -> Pause {
        let shared = &*self.shared;
        self.quiet = if quiet { self.quiet + 1 } else { 0 };
        if self.quiet < 2 || !shared.watchdog.doze.begin(|| is_quiet(shared)) {
            return Pause { until: looked + LOOK_EVERY, dozes: false };
        }
        let soon = looked + LOOK_EVERY_QUIET;
        let until = if self.quiet > QUIET_LOOKS { NEVER } else { soon };
        let until = match is_attended(shared) {
            true => until,
            false if shared.poller.kernel().is_some() => soon,
            false => until.min(shared.next_deadline()),
        };
        Pause { until, dozes: true }
    }

    /// What was seen before says nothing any more. But what was found stays found while its step
    /// lasts: it counts against the cap, and was reported.
    fn forget(&mut self) {
        for look in self.looks.iter_mut().filter(|look| look.found.is_none()) {
            *look = Look::default();
        }
        self.waited = false;
        self.due_since = NEVER;
        self.polls = NO_POLLS;
    }

    /// `Look`, and what follows from it; says whether it found nothing to do.
    fn look(&mut self, now: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        count(&shared.watchdog.counts.looks);
        shared.clock.beacon.set(now);
        let late = shared.idle.write_off(now);
        if late > 0 {
            shared.watchdog.count_late(late);
            if shared.has_queued() {
                shared.announce();
            }
        }
        let found = self.find(now);
        let stalled_next = found.iter().any(|found| !shared.seat(found.seat).next.look().is_null());
        let due = self.note_due(now);
        let unpolled = self.note_polls(now);
        let (searching, _, spare) = shared.idle.counts();
        let mut replaced = vec![false; found.len()];
        let mut next_slots = vec![false; found.len()];
        let is_stranded = stalled_next || shared.has_queued() || due || unpolled;
        let nobody_comes = searching == 0 && spare == 0;
        let rescued =
            nobody_comes && is_stranded && self.rescue(&found, &mut replaced, &mut next_slots, now);
        if nobody_comes && !rescued {
            // All threads are in use, or all workers have no time.
            if due {
                let all =
                    shared.all_seats().map(|seat| &seat.timers).chain([&shared.clock.outside]);
                all.for_each(|timers| {
                    shared.fire(timers);
                });
            }
            if unpolled {
                self.poll(now);
            }
        }
        self.nudge(due || unpolled, now);
        for (at, found) in found.iter().enumerate().filter(|(_, found)| found.is_new) {
            self.report(found, replaced[at], next_slots[at], now);
        }
        // A step that lasts may be a stall; if all that last are known to be, nobody else is left
        // who could stall.
        is_quiet(&shared) && self.looks.iter().all(|look| look.since == now || look.found.is_some())
    }

    /// Compares with the last look.
    fn find(&mut self, now: u64) -> Vec<Found> {
        let shared = &*self.shared;
        let mut all = Vec::new();
        let reach = shared.idle.reach();
        // Of seats beyond nothing may be kept: what was last seen there would never change, and the
        // watchdog would never sleep.
        self.looks.resize(reach as usize, Look::default());
        for number in 0..reach {
            let look = &mut self.looks[number as usize];
            let Some(seat) = shared.seats.made(SeatId(number)) else {
                *look = Look { since: now, ..Look::default() };
                continue;
            };
            let thread = seat.thread.load(Relaxed);
            if thread != look.thread && number < FILES_KEPT {
                shared.watchdog.open_file(seat, thread);
            }
            let step = seat.step.load(Relaxed);
            let in_step = step % 2 == 1 && thread != 0;
            if step != look.step || !in_step || seat.in_section.load(Relaxed) {
                *look = Look { step, since: now, thread, ..Look::default() };
                continue;
            }
            let duration = now - look.since;
            let is_new = look.found.is_none();
            if is_new {
                look.found = classify(shared, SeatId(number), look, duration, now);
            }
            if let Some(kind) = look.found {
                all.push(Found { seat: SeatId(number), kind, duration, is_new });
            }
        }
        all
    }

    /// `Rescue`; says whether anybody comes now.
    fn rescue(
        &mut self,
        all: &[Found],
        replaced: &mut [bool],
        next_slots: &mut [bool],
        now: u64,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let options = &shared.watchdog.options;
        let is_computing = |look: &&Look| look.replaced && look.found == Some(StallKind::Computing);
        let mut computing = self.looks.iter().filter(is_computing).count();
        let mut count_replaced = 0;
        for (at, found) in all.iter().enumerate() {
            let seat = shared.seat(found.seat);
            let look = &mut self.looks[found.seat.0 as usize];
            if seat.step.load(Relaxed) != look.step {
                continue;
            }
            if let Some(next) = seat.next.steal(seat.next.look()) {
                next_slots[at] = true;
                count(&shared.watchdog.counts.next_slots);
                shared.queues.global.push(Ready::from_raw(next));
            }
            let is_capped =
                found.kind == StallKind::Computing && computing >= options.max_computing;
            if look.replaced || is_capped || !shared.idle.revoke(found.seat) {
                continue;
            }
            computing += usize::from(found.kind == StallKind::Computing);
            (look.replaced, replaced[at]) = (true, true);
            count(&shared.watchdog.counts.replaced);
            count_replaced += 1;
        }
        let late = shared.idle.revoke_late(now, options.stall_after);
        shared.announce_many(count_replaced + late);
        shared.idle.counts().0 > 0
    }

    /// `Nudge`.
    fn nudge(&mut self, pending: bool, now: u64) {
        let shared = &*self.shared;
        let holds_next = |(number, look): (usize, &Look)| {
            let seat = shared.seats.made(SeatId(number as u32));
            look.since < now && seat.is_some_and(|seat| !seat.next.look().is_null())
        };
        let waits = shared.has_queued() || pending || self.looks.iter().enumerate().any(holds_next);
        let waits = waits && shared.idle.counts().2 > 0;
        if waits && self.waited {
            shared.announce_from_outside();
        }
        self.waited = waits && !self.waited;
    }

    /// Whether a timer has been due for at least one look.
    fn note_due(&mut self, now: u64) -> bool {
        if self.shared.next_deadline() > now {
            self.due_since = NEVER;
            return false;
        }
        self.due_since = self.due_since.min(now);
        self.due_since < now
    }

    /// Whether there are descriptors for which nobody has asked for long, or waits.
    fn note_polls(&mut self, now: u64) -> bool {
        let shared = &*self.shared;
        if shared.poller.kernel().is_none() || shared.clock.keeper.is_kept() {
            self.polls = (0, now);
            return false;
        }
        let polls = shared.poller.counts().1;
        if self.polls.0 != polls {
            self.polls = (polls, now);
        }
        now - self.polls.1 >= UNPOLLED
    }

    /// Asks for descriptors here.
    fn poll(&mut self, now: u64) {
        self.shared.poll(&mut self.batch);
        self.shared.deliver(&mut self.batch);
        // The next time is counted from here.
        self.polls = (self.shared.poller.counts().1, now);
    }

    fn report(&mut self, found: &Found, replaced: bool, next_slot: bool, now: u64) {
        let shared = &*self.shared;
        let counts = &shared.watchdog.counts;
        count(match found.kind {
            StallKind::Blocked => &counts.blocked,
            StallKind::Computing => &counts.computing,
        });
        let observer = shared.watchdog.options.on_stall.as_ref();
        if observer.is_none() && !is_traced() {
            return;
        }
        let second = now / SECOND;
        if self.reports.0 != second {
            self.reports = (second, 0);
        }
        if self.reports.1 == REPORTS_PER_SECOND {
            return count(&counts.unreported);
        }
        self.reports.1 += 1;
        let seat = shared.seat(found.seat);
        let step = self.looks[found.seat.0 as usize].step;
        let slot = seat
            .running
            .load(Relaxed)
            .checked_sub(1)
            .and_then(|index| shared.table().pin_any(index));
        // If the step has ended meanwhile, the slot may be that of another process.
        let slot = slot.filter(|_| seat.step.load(Relaxed) == step);
        let stall = Stall {
            worker: found.seat.0,
            pid: slot.as_ref().map(|slot| slot.pid()),
            label: slot.as_ref().and_then(|slot| crate::observe::snapshot::label(slot)),
            location: slot.as_ref().map(|slot| slot.location()),
            duration: Duration::from_nanos(found.duration),
            kind: found.kind,
            replaced,
            next_slot,
            queued: seat.queues.len(),
        };
        // Panics end here.
        if let Some(observer) = observer {
            drop(guarded(|| observer(&stall)));
        }
        #[cfg(feature = "tracing")]
        drop(guarded(|| crate::observe::trace::stalled(&stall)));
    }
}

/// Whether there is a subscriber to tell of stalls.
fn is_traced() -> bool {
    #[cfg(feature = "tracing")]
    return guarded(crate::observe::trace::wants_stalls).unwrap_or(false);
    #[cfg(not(feature = "tracing"))]
    false
}

/// Whether nobody runs, and nothing is queued or due.
fn is_quiet(shared: &Shared) -> bool {
    let (_, awake, _) = shared.idle.counts();
    awake == 0
        && !shared.has_queued()
        && (is_attended(shared) || shared.next_deadline() > shared.world.now())
}

/// Whether some worker looks after deadlines and descriptors, or can. If all threads block, the
/// watchdog does.
fn is_attended(shared: &Shared) -> bool {
    shared.idle.counts().2 > 0
}

/// Returns what the thread in a seat, which has not ended its step for so long, has done since it
/// was first asked. `None` if that is not its own doing, or is not known yet.
///
/// A question costs the system tens of microseconds. On a machine that is busy with other things,
/// threads are interrupted in their steps for a few milliseconds all the time; so they are asked
/// twice, in the middle of the time that makes a stall, and at its end.
fn classify(
    shared: &Shared,
    seat: SeatId,
    look: &mut Look,
    duration: u64,
    now: u64,
) -> Option<StallKind> {
    let watchdog = &shared.watchdog;
    let stall_after = watchdog.options.stall_after;
    let place = shared.seat(seat);
    let thread = place.thread.load(Relaxed);
    let Some((since, before)) = look.first else {
        // The look that is nearest to the middle: two of these apart, it is before it, since looks
        // are never early.
        if duration + LOOK_EVERY / 2 >= stall_after / 2 {
            look.first = Some((now, shared.world.processor_time(thread)));
        }
        return None;
    };
    let passed = now - since;
    if duration < stall_after || passed < stall_after / 2 {
        return None;
    }
    let used = before
        .zip(shared.world.processor_time(thread))
        .map(|(before, after)| after.saturating_sub(before));
    let state = watchdog.state_of(seat, place, thread);
    let kind = judge(used, state, passed);
    if kind.is_some() && state.is_none() {
        count(&watchdog.counts.guessed);
    }
    kind
}

/// Decides what a stall is by the processor time that the thread has used while so much time
/// passed, and by its state, as far as either is known. `None` if the stall is not the thread's own
/// doing.
fn judge(used: Option<u64>, state: Option<RunState>, passed: u64) -> Option<StallKind> {
    let Some(used) = used else {
        // To look away would leave what waits behind it without help.
        return match state {
            Some(RunState::Stopped) => None,
            Some(RunState::Runs) => Some(StallKind::Computing),
            Some(RunState::Waits) | None => Some(StallKind::Blocked),
        };
    };
    let computes = used * 4 >= passed || used >= LOOK_EVERY;
    match state {
        // It may have come to wait just now: then it has used the time before.
        Some(RunState::Waits) if used * 2 < passed => Some(StallKind::Blocked),
        Some(RunState::Waits | RunState::Runs) | None if computes => Some(StallKind::Computing),
        // It waits, or the system lets it wait: which of the two is not known.
        None => Some(StallKind::Blocked),
        // The system lets it wait.
        Some(_) => None,
    }
}

/// The builder's `stall_after`, within what makes sense: less than two looks cannot be told from
/// none.
pub(crate) fn stall_after(duration: Duration) -> u64 {
    nanoseconds(duration).max(2 * LOOK_EVERY)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use procession_sync::atomic::Ordering::Relaxed;

    use super::{LOOK_EVERY, NEVER, Pause, QUIET_LOOKS, SECOND, StallKind, Watch, judge};
    use crate::Scheduler;
    use crate::scheduler::seat_id::SeatId;
    use crate::sys::RunState::{Runs, Stopped, Waits};
    use crate::time::action::Action;

    const PASSED: u64 = 7_500_000;

    /// A scheduler without threads, for scripted looks.
    fn scripted() -> Scheduler {
        let builder = Scheduler::builder().worker_threads(1).max_threads(4).test_clock();
        builder.build().expect("it starts no thread")
    }

    #[test]
    fn a_worker_that_becomes_awake_ends_every_longer_pause() {
        let scheduler = scripted();
        let shared = scheduler.shared();
        let mut watch = Watch::new(Arc::clone(shared));
        for round in 1..=20 {
            let quiet = watch.look(round * SECOND);
            let pause = watch.pause(round * SECOND, quiet);
            let is_short = pause == Pause { until: round * SECOND + LOOK_EVERY, dozes: false };
            assert_eq!(is_short, round == 1, "{pause:?}");
            assert_eq!(pause.until == NEVER, round > QUIET_LOOKS.into(), "{pause:?}");
            assert_eq!(shared.watchdog.doze.rouse(), pause.dozes);
            assert_eq!(pause.dozes && shared.watchdog.doze.end(), pause.dozes, "it was roused");
        }
        assert!(shared.idle.claim_absent(1).is_some(), "one is awake");
        let quiet = watch.look(21 * SECOND);
        assert!(!watch.pause(21 * SECOND, quiet).dozes);
    }

    #[test]
    fn a_stall_is_judged_by_all_that_the_system_tells() {
        let all = Some(PASSED);
        assert_eq!(judge(Some(0), Some(Waits), PASSED), Some(StallKind::Blocked));
        assert_eq!(judge(Some(PASSED * 2 / 3), Some(Waits), PASSED), Some(StallKind::Computing));
        assert_eq!(judge(all, Some(Runs), PASSED), Some(StallKind::Computing));
        assert_eq!(
            judge(Some(LOOK_EVERY), Some(Runs), 20 * LOOK_EVERY),
            Some(StallKind::Computing)
        );
        assert_eq!(judge(Some(0), Some(Runs), PASSED), None, "the system lets it wait");
        assert_eq!(judge(all, Some(Stopped), PASSED), None);
    }

    #[test]
    fn a_stall_is_never_overlooked_for_want_of_knowledge() {
        // No state: no descriptors, or no `/proc`.
        assert_eq!(judge(Some(0), None, PASSED), Some(StallKind::Blocked));
        assert_eq!(judge(Some(PASSED / 5), None, PASSED), Some(StallKind::Blocked));
        assert_eq!(judge(Some(PASSED / 2), None, PASSED), Some(StallKind::Computing));
        // No processor time.
        assert_eq!(judge(None, Some(Waits), PASSED), Some(StallKind::Blocked));
        assert_eq!(judge(None, Some(Runs), PASSED), Some(StallKind::Computing));
        assert_eq!(judge(None, Some(Stopped), PASSED), None);
        assert_eq!(judge(None, None, PASSED), Some(StallKind::Blocked));
    }
    #[test]
    fn whoever_wakes_a_caller_rouses_the_watchdog() {
        let scheduler = scripted();
        let shared = scheduler.shared();
        assert!(shared.idle.claim_absent(1).is_some());
        shared.idle.announce(SeatId(0), false);
        assert!(shared.watchdog.doze.begin(|| true));
        shared.wake_caller();
        assert!(shared.watchdog.doze.end(), "it sleeps beside a worker that may be late");
    }

    /// All threads block, and there is a far timer: whoever sets an earlier one must wake the
    /// watchdog.
    #[test]
    fn while_all_block_it_sleeps_until_the_next_deadline() {
        let scheduler = scripted();
        let shared = scheduler.shared();
        let mut watch = Watch::new(Arc::clone(shared));
        assert!(shared.idle.claim_absent(1).is_some());
        shared.idle.give_back(SeatId(0));
        for seat in (1..4).map(SeatId) {
            assert!(shared.idle.claim_this(seat) && shared.idle.come(seat));
            shared.idle.stop_searching();
            shared.idle.give_back(seat);
        }
        assert_eq!(shared.idle.counts(), (0, 0, 0), "nobody is left to be woken");
        let far = 1000 * SECOND;
        let armed = shared
            .clock
            .outside
            .add(far, None, Action::Wake(Waker::noop().clone().into()))
            .expect("there is room");
        let mut pauses = (1..=20).map(|round| {
            let quiet = watch.look(round);
            let pause = watch.pause(round, quiet);
            shared.watchdog.doze.end();
            pause
        });
        let last = pauses.by_ref().last();
        assert_eq!(last, Some(Pause { until: far, dozes: true }));
        assert!(shared.watchdog.doze.begin(|| true));
        shared.outside_timer_set(SECOND);
        assert!(shared.watchdog.doze.end(), "nobody else looks after the earlier timer");
        drop(shared.clock.outside.delete(armed.id));
    }

    /// Goal: no seat keeps the watchdog awake in which nobody works. Method: scripted looks at a
    /// scheduler without threads, whose seats are taken and left by the test.
    #[test]
    fn a_watchdog_finds_quiet_whatever_seats_were_used_before() {
        let scheduler = scripted();
        let shared = scheduler.shared();
        let mut watch = Watch::new(Arc::clone(shared));
        // The last seat is used, those before are not even made.
        assert!(shared.idle.claim_this(SeatId(3)) && shared.idle.come(SeatId(3)));
        shared.idle.stop_searching();
        let seat = shared.seat(SeatId(3));
        for (now, step) in [(10, 0), (20, 1), (30, 1)] {
            seat.thread.store(1, Relaxed);
            seat.step.store(step, Relaxed);
            assert!(!watch.look(now), "one is awake");
        }
        shared.idle.announce(SeatId(3), false);
        assert!(!watch.look(40), "a step lasts");
        seat.step.store(2, Relaxed);
        assert!(watch.look(50), "it is parked, and the others were never used");
        seat.step.store(3, Relaxed);
        assert!(watch.look(60) && !watch.look(70), "another step lasts");
        // Its thread leaves within it.
        seat.thread.store(0, Relaxed);
        assert!(watch.look(80), "nobody works there");
        seat.thread.store(1, Relaxed);
        assert!(!watch.look(90), "it does again, and is in its step");
        assert_eq!(watch.looks.len(), 4);
        shared.idle.leave(SeatId(3), false, 0);
        shared.idle.lower_reach(1, |_| true);
        assert!(watch.look(100), "the seat is out of reach");
        assert_eq!(watch.looks.len(), 1);
    }
}
