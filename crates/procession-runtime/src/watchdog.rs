//! The watchdog: a thread that finds stalled workers, and starts or wakes other workers in their
//! place.
//!
//! # Watchdog protocol
//!
//! ## Problem
//! A step that blocks without a blocking section, or computes for long, holds a permit. If all
//! permits are held like that, nothing that is queued runs. The worker itself cannot be asked. The
//! check must cost the workers nothing, must not report a step that the system merely did not run,
//! and must not wake a program that does nothing.
//!
//! ## States
//! - For each seat, what the last look saw: the step counter; since when it has been the same odd
//!   number, by the watchdog's clock; and the processor time that the worker's thread had used in
//!   the middle of `stall_after`.
//! - Whether the watchdog is asleep.
//! - The number of steps at the beginning of the last look, if no worker was awake then.
//! - For the first seats, an open file in which the system reports the state of the seat's thread.
//!   The watchdog opens it at the first look that finds the thread. The thread closes it when it
//!   leaves.
//!
//! ## Steps
//! - `Look`: read every step counter. This happens every 2.5 ms while any worker runs, and 1 ms
//!   after a worker became awake during `Sleep`. The same odd number for `stall_after`, outside a
//!   blocking section, is a stall. The system is asked what the thread did. If it waited, it is
//!   *blocked*. If it used processor time, it is *computing*. If neither, it is ready to run and
//!   the system lets it wait: no stall. Each stall is reported once. If the system does not report
//!   the state of the thread, because no descriptors are left or there is no `/proc`, the processor
//!   time decides alone: a thread that used hardly any counts as blocked. If that is not known
//!   either, the stall counts as blocked.
//! - `Rescue`, if no worker searches, none is spare, and work is stranded: empty the LIFO slots of
//!   the stalled workers, take their permits (`Revoke` of `scheduler/idle/permits.rs`), and wake or
//!   start a worker for each, all in the same look. These workers find the other work of the
//!   stalled workers as any searching worker does. Of the computing workers, only a limited number
//!   lose their permits, since each adds a thread that competes for processors. If all threads are
//!   in use, or all workers merely have no time, the watchdog itself fires due timers and polls for
//!   descriptors. While all threads block, this is all there is to do: it sleeps until the next
//!   deadline, or for 10 ms at most if there are descriptors.
//! - `FreeBatch`, if batch processes wait for permits (`scheduler/idle/permits.rs`): take the
//!   permits of workers that block in steps of batch processes, and let stalled workers wait for no
//!   permit. The processes that wait may be what these steps wait for.
//! - `Sample`, at each look: give the processes that run the time since the look before
//!   (`scheduler/stalls/samples.rs`), stamp some of the processes that wait
//!   (`watchdog/wait_stamps.rs`), report those that have waited in a cycle for long
//!   (`watchdog/cycles.rs`), and note from which queues nothing was taken
//!   (`watchdog/queue_ages.rs`). For people only.
//! - `WriteOff`, at each look: stop relying on workers that were woken and have not arrived
//!   (`scheduler/idle/parking.rs`). `Rescue` also takes their permits, once they are late by
//!   `stall_after`.
//! - `Nudge`, if a seat is spare and work waits at this look and at the previous look: wake one
//!   worker, unless one searches. Waiting work is anything in a queue, a timer that was due at the
//!   look before, descriptors that were not polled for 10 ms, or a LIFO slot with a worker that is
//!   in the same step as at the look before. If some worker is in the same step as at the look
//!   before, and no driver waits for descriptors or timers, one look is enough, because the step
//!   may be a long step after short steps. `Nudge` exists for LIFO slots, which are filled without
//!   waking a worker, for timers that a step has set before it stalled, for descriptors and timers
//!   that the last searcher has left alone, and for the rare work that the parking protocol lets
//!   slip.
//! - `Sleep`: after two looks that find no worker awake, sleep without a timeout. If a worker was
//!   awake since the last look began, look twice more, because its steps may have ended after
//!   `Sample`, and no look would visit the processes that wait since then. If `Sample` has not
//!   visited all processes since, or there are timers or descriptors and no driver, sleep for 10 ms
//!   instead, up to ten times. If a process that was visited waits for one other process, it
//!   sleeps only until that wait is old enough for a cycle to be reported. A worker that is awake
//!   for 1 ms ends the sleep (`watchdog/park.rs`).
//!
//! ## Why it works
//! Step counters, the numbers of running processes and the flags of sections are plain stores of
//! the worker to its own cache line. It reads no clock and makes no read-modify-write for them.
//! They may be seen late by nanoseconds, which does not matter against milliseconds. If a step
//! ended after it was seen, a second look before the permit is taken finds that. If it ends even
//! later, the worker finds its permit gone, and parks or gets one back.
//!
//! A look that is late by more than 20 ms proves nothing about the workers, because the whole
//! program may have been stopped (`SIGSTOP`, a suspended machine). It counts as the first look.
//!
//! ## Allowed
//! - A stall is noticed one look late: with a `stall_after` of 10 ms, 10 to 12.5 ms after the step
//!   began, or 11 to 13.5 ms if its worker woke for it. The watchdog is a thread like others, so
//!   the time for which the system makes it wait at each of these looks is added. Measured on two
//!   processors (`attacks`): a median of 10.9 ms and at most 12.5 ms; or 11.4 ms and 14.1 ms while
//!   one computing thread per processor runs as well.
//! - While any worker runs, the watchdog wakes 400 times a second, or up to 800 times if workers
//!   park and wake again all the time.
//! - Work that only `Nudge` helps waits for up to three looks: 7.5 ms.
//! - If a timer function that this thread fires blocks, it holds up the watchdog. Timer functions
//!   must not block.
//! - Without the state of a thread, a thread that the system lets wait for all of `stall_after`
//!   counts as blocked, so one thread more than the width may run. `StallSnapshot::guessed` counts
//!   these cases.
//!
//! ## Rejected
//! - A time stamp for each step, read by the watchdog: one clock read per step, 20 ns or more.
//! - Only the processor clock of the thread: it separates computing from not computing, but not
//!   blocked from preempted. The file `stat` of the thread does, and is read for suspects only.
//! - The file `schedstat` for the processor time: it costs one more descriptor, kernels without
//!   `CONFIG_SCHED_INFO` do not have it, and the clock has a finer resolution.
//! - Opening the file for each question: without spare descriptors every stall went unseen, and a
//!   client that opens connections can bring a server there.
//! - Opening the file when a thread sits down: a caller's thread sits down for each `block_on`.
//! - One watchdog for all schedulers: schedulers are isolated, and the watchdog of an idle one
//!   sleeps.
//! - Always ten quiet looks, 100 ms together, before the watchdog sleeps without a timeout: of 16
//!   wake-ups in a second of a node of a cluster that is idle, it had 12.
//!
//! ## Checked by
//! `it::stalls`; the models of `scheduler/idle/permits.rs` for the permits, of
//! `scheduler/lifo_slot.rs` for the LIFO slots, and of `watchdog/park.rs`.

pub(crate) mod cycles;
pub(crate) mod hook;
mod judge;
mod marks;
mod queue_ages;
mod quiet;
mod stalled;
pub(crate) mod wait_stamps;

use std::io;
use std::sync::Arc;

use procession_protocols::scheduler::idle::mutation;
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_protocols::watchdog::park::Woken;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::current::{Current, Entered};
use crate::scheduler::shared::{Batch, Shared};
use crate::scheduler::stalls::StallKind;
use crate::scheduler::stalls::samples::SampleTable;
use crate::scheduler::workforce::LOOK_EVERY;
use crate::watchdog::cycles::WaitCycles;
use crate::watchdog::marks::Marks;
use crate::watchdog::queue_ages::QueueAges;
use crate::watchdog::quiet::{has_driver, is_attended, is_quiet, steps_at_rest};
use crate::watchdog::wait_stamps::{VISITS, VISITS_QUIET};

/// Nanoseconds between two looks while no worker runs.
const LOOK_EVERY_QUIET: u64 = 10_000_000;
/// Maximum number of quiet looks, 100 ms together, before the watchdog sleeps without a timeout.
const QUIET_LOOKS: u32 = 10;
/// A look that is later than this many nanoseconds proves nothing about the workers: the program
/// was stopped or starved.
const OVERSLEPT: u64 = 20_000_000;
/// The watchdog polls for descriptors if no worker has for this many nanoseconds.
const UNPOLLED: u64 = 10_000_000;
/// The number of polls is unknown. It equals no real number, so the next look begins a new period.
const NO_POLLS: (u64, u64) = (u64::MAX, 0);

fn count(counter: &AtomicU64) {
    // Relaxed: statistics.
    counter.fetch_add(1, Relaxed);
}

impl Shared {
    /// Notes that the calling worker parks: if none is awake, the watchdog need not look soon.
    #[inline]
    pub(crate) fn calm_watchdog(&self) {
        let watchdog = &self.workforce.watchdog;
        let (park, alarm) = (&watchdog.park, &watchdog.alarm);
        park.put_off(|| is_quiet(self), || self.world.now(), |when| alarm.set(when));
    }

    /// Starts the thread of the watchdog.
    pub(crate) fn start_watch(self: Arc<Self>) -> io::Result<()> {
        let name = format!("watch-{}", self.name());
        let shared = Arc::clone(&self);
        self.world.start_thread(name, move || Watch::new(shared).keep())
    }
}

/// A seat, as the last looks saw it.
#[derive(Clone, Copy, Default)]
struct SeatLook {
    /// The step counter.
    step: u64,
    /// When the step counter took this value.
    since: u64,
    /// The thread in the seat.
    thread: u32,
    /// When the thread was first asked, and the processor time that it had used then, if that is
    /// known.
    first: Option<(u64, Option<u64>)>,
    /// The kind of the stall, once it is found.
    found: Option<StallKind>,
    /// `true` if the permit was taken in this step.
    replaced: bool,
}

/// The private state of the watchdog's thread.
struct Watch {
    shared: Arc<Shared>,
    looks: Vec<SeatLook>,
    quiet: u32,
    /// The number of steps when the last look began, or `None` if a worker was awake.
    rested: Option<u64>,
    /// `true` if, at the last look, work waited that no worker searched for.
    waited: bool,
    /// When a timer first was found due.
    due_since: u64,
    /// The number of polls for descriptors, and when it last changed.
    polls: (u64, u64),
    batch: Batch,
    /// When the last samples were taken, or `NEVER` if that does not count.
    sampled: u64,
    /// The processes that run, while samples are taken.
    running: Vec<(u32, u32)>,
    ages: QueueAges,
    /// The next slot to be stamped.
    cursor: u32,
    /// Number of slots that were visited since a worker was last seen awake.
    visited: u32,
    /// When a process that was visited may have been in a cycle of waits for long enough.
    cycles_due: u64,
    /// The second in which reports were made, and their number.
    reports: (u64, u32),
    marks: Marks,
}

/// How long the watchdog sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until: u64,
    /// `true` if a worker that becomes awake ends the sleep.
    parks: bool,
}

/// A stall that was found at this look.
struct FoundStall {
    seat: SeatId,
    kind: StallKind,
    duration: u64,
    is_new: bool,
}

impl Watch {
    fn new(shared: Arc<Shared>) -> Self {
        let marks = Marks::new(&shared);
        Self {
            shared,
            marks,
            looks: Vec::new(),
            quiet: 0,
            rested: None,
            waited: false,
            due_since: NEVER,
            polls: NO_POLLS,
            batch: Batch::default(),
            sampled: NEVER,
            running: Vec::new(),
            ages: QueueAges::default(),
            cursor: 0,
            visited: 0,
            cycles_due: NEVER,
            reports: (0, 0),
        }
    }

    /// Runs the watchdog until the scheduler has ended.
    fn keep(mut self) {
        let shared = Arc::clone(&self.shared);
        // For the hook, and for functions of timers.
        let _entered = Entered::enter(Current::outside(Arc::clone(&shared)));
        let (world, watchdog) = (&shared.world, &shared.workforce.watchdog);
        if let Some(cpus) = &shared.workforce.threads.options.cpus {
            // As for the workers.
            let _ = cpus.bind_this_thread();
        }
        while !shared.lifetime.has_ended() {
            let looked = world.now();
            let quiet = self.look(looked);
            world.point();
            let pause = self.pause(looked, quiet);
            watchdog.alarm.wait(world);
            self.resume(pause, world.now());
        }
    }

    /// Begins again after a pause: what the looks before it have seen may prove nothing any more.
    fn resume(&mut self, pause: Pause, now: u64) {
        let woken = match pause.parks {
            true => self.shared.workforce.watchdog.park.end(),
            false => Woken::InTime,
        };
        match woken {
            Woken::InTime => {}
            Woken::Roused => (self.quiet, self.sampled) = (0, NEVER),
            // One look is enough, unless it finds something.
            Woken::PutOff => (self.quiet, self.visited, self.sampled) = (1, 0, NEVER),
        }
        if self.cycles_due <= now {
            // All slots are visited again.
            (self.quiet, self.visited) = (self.quiet.min(1), 0);
            self.cycles_due = NEVER;
        }
        if woken != Woken::InTime || pause.until == NEVER || now > pause.until + OVERSLEPT {
            self.forget();
        }
    }

    /// Decides how to sleep after a look. The watchdog parks only after two looks that found
    /// nothing to do, so that a scheduler that works a little now and then need not wake it each
    /// time.
    fn pause(&mut self, looked: u64, quiet: bool) -> Pause {
        let shared = &*self.shared;
        let watchdog = &shared.workforce.watchdog;
        self.quiet = if quiet { self.quiet + 1 } else { 0 };
        if self.quiet >= 2 {
            let until = self.sleeps_until(looked);
            let set = |when| watchdog.alarm.set(when);
            let has_rested =
                || self.rested.is_some_and(|steps| steps_at_rest(shared) == Some(steps));
            if watchdog.park.begin(until, || is_quiet(shared) && has_rested(), set) {
                return Pause { until, parks: true };
            }
            self.quiet = 0;
        }
        let until = looked + LOOK_EVERY;
        watchdog.park.pause(until, |when| watchdog.alarm.set(when));
        Pause { until, parks: false }
    }

    /// Returns until when the watchdog sleeps if no worker becomes awake.
    fn sleeps_until(&self, looked: u64) -> u64 {
        let shared = &*self.shared;
        let soon = looked + LOOK_EVERY_QUIET;
        let all_visited = self.visited >= shared.table().used();
        let is_patient = WaitCycles::of(shared).may_find(shared) && !all_visited;
        let is_done = self.quiet > QUIET_LOOKS && !is_patient || all_visited && has_driver(shared);
        let until = if is_done { self.cycles_due.max(soon) } else { soon };
        match is_attended(shared) {
            true => until,
            false if shared.poller.kernel().is_some() => soon,
            false => until.min(shared.next_deadline()),
        }
    }

    /// Forgets what was seen before, since it proves nothing any more. A known stall stays known
    /// while its step lasts: it counts against the limit, and was reported.
    fn forget(&mut self) {
        for look in self.looks.iter_mut().filter(|look| look.found.is_none()) {
            *look = SeatLook::default();
        }
        self.waited = false;
        self.due_since = NEVER;
        self.polls = NO_POLLS;
        self.sampled = NEVER;
        self.ages.forget();
    }

    /// `Look`, and the steps that it requires. Returns `true` if there was nothing to do.
    fn look(&mut self, now: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        count(&shared.workforce.watchdog.counts.looks);
        self.rested = steps_at_rest(&shared);
        shared.clock.beacon.set(now);
        if shared.workforce.idle.is_batch_wanted() {
            // A worker may have lost its permit for batch processes.
            shared.announce_batch_permit();
        }
        self.marks.mark(&shared, now);
        self.sample(now);
        let late = shared.workforce.idle.write_off(now);
        if late > 0 {
            shared.workforce.watchdog.count_late(late);
            if !mutation::is(mutation::BUILT, mutation::WRITE_OFF_WITHOUT_RECHECK)
                && shared.workforce.has_queued()
            {
                shared.workforce.announce();
            }
        }
        let found = self.find(now);
        let stalled_next =
            found.iter().any(|found| !shared.workforce.seat(found.seat).next.look().is_null());
        let due = self.note_due(now);
        let unpolled = self.note_polls(now);
        let (searching, _, spare) = shared.workforce.idle.counts();
        let mut replaced = vec![false; found.len()];
        let mut lifo_slots = vec![false; found.len()];
        let is_stranded = stalled_next || shared.workforce.has_queued() || due || unpolled;
        let nobody_comes = searching == 0 && spare == 0;
        let rescued =
            nobody_comes && is_stranded && self.rescue(&found, &mut replaced, &mut lifo_slots, now);
        if shared.workforce.lacks_batch_permit() {
            self.free_batch_permits(&found, &mut replaced);
        }
        if nobody_comes && !rescued {
            // All threads are in use, or all workers have no time.
            if due {
                let all = shared
                    .workforce
                    .all_seats()
                    .map(|seat| &seat.timers)
                    .chain([&shared.clock.outside]);
                all.for_each(|timers| {
                    shared.fire(timers);
                });
            }
            if unpolled {
                self.poll(now);
            }
        }
        self.ask(now);
        self.nudge(due || unpolled, now);
        for (at, found) in found.iter().enumerate().filter(|(_, found)| found.is_new) {
            self.report(found, replaced[at], lifo_slots[at], now);
        }
        // A step that lasts may become a stall. If all lasting steps are known stalls, no other
        // worker can stall.
        is_quiet(&shared) && self.looks.iter().all(|look| look.since == now || look.found.is_some())
    }

    /// `Sample`.
    fn sample(&mut self, now: u64) {
        let shared = &*self.shared;
        let passed = if self.sampled == NEVER { LOOK_EVERY } else { now - self.sampled };
        let passed = passed.min(OVERSLEPT);
        self.sampled = now;
        self.running.clear();
        for seat in shared.workforce.all_seats() {
            let step = seat.step.load(Relaxed);
            let slot = seat.running.load(Relaxed).checked_sub(1);
            if step % 2 == 0 || seat.in_section.load(Relaxed) {
                continue;
            }
            seat.stats.busy.add(passed);
            if let Some(slot) = slot.and_then(|index| shared.table().slot(index)) {
                let process = (slot.index(), slot.pins.generation());
                // If the step has ended in between, the slot may hold another process.
                self.running.extend((seat.step.load(Relaxed) == step).then_some(process));
            }
        }
        SampleTable::of(shared).add(now, passed, &self.running);
        self.ages.look(shared, now);
        let visits = if self.quiet > 0 { VISITS_QUIET } else { VISITS };
        self.visited = if self.quiet > 0 { self.visited.saturating_add(visits) } else { 0 };
        let (cycles, due) = (WaitCycles::of(shared), &mut self.cycles_due);
        self.cursor = shared.processes.stamp_some(self.cursor, visits, now, |slot, age| {
            *due = cycles.visit(shared, slot, age, now).min(*due);
        });
    }

    /// `Ask` of `scheduler/checks.rs`.
    fn ask(&self, now: u64) {
        let lasting = (0..).zip(&self.looks).filter(|(_, look)| look.since < now);
        for (number, look) in lasting {
            let seat = self.shared.workforce.seats.made(SeatId(number));
            if let Some(seat) = seat.filter(|_| look.step % 2 == 1) {
                seat.check_word.ask();
            }
        }
    }

    /// `Nudge`.
    fn nudge(&mut self, pending: bool, now: u64) {
        let shared = &*self.shared;
        let holds_next = |(number, look): (usize, &SeatLook)| {
            let seat = shared.workforce.seats.made(SeatId(number as u32));
            look.since < now && seat.is_some_and(|seat| !seat.next.look().is_null())
        };
        let lasts = self.looks.iter().any(|look| look.since < now);
        let has_any = || shared.poller.kernel().is_some() || shared.next_deadline() != NEVER;
        let unattended = lasts && !shared.clock.driver.is_kept() && has_any();
        let waits = shared.workforce.has_queued()
            || pending
            || unattended
            || self.looks.iter().enumerate().any(holds_next);
        let waits = waits && shared.workforce.idle.counts().2 > 0;
        if waits && (self.waited || unattended) {
            shared.workforce.announce_from_outside();
        }
        self.waited = waits && !self.waited;
        // Processes that are bound to a seat without a thread, which the system has refused.
        if !shared.workforce.threads.is_resting(&shared.world)
            && let Some(seat) = shared.workforce.stranded_seat()
        {
            shared.workforce.wake_this(seat);
        }
    }

    /// Returns `true` if a timer has been due since an earlier look.
    fn note_due(&mut self, now: u64) -> bool {
        if self.shared.next_deadline() > now {
            self.due_since = NEVER;
            return false;
        }
        self.due_since = self.due_since.min(now);
        self.due_since < now
    }

    /// Returns `true` if there are descriptors, no driver waits for them, and nothing has polled
    /// them for long.
    fn note_polls(&mut self, now: u64) -> bool {
        let shared = &*self.shared;
        if shared.poller.kernel().is_none() || shared.clock.driver.is_kept() {
            self.polls = (0, now);
            return false;
        }
        let polls = shared.poller.counts().1;
        if self.polls.0 != polls {
            self.polls = (polls, now);
        }
        now - self.polls.1 >= UNPOLLED
    }

    /// Polls for descriptors on this thread.
    fn poll(&mut self, now: u64) {
        self.shared.poller.poll(&mut self.batch);
        self.shared.deliver(&mut self.batch);
        // The next period starts here.
        self.polls = (self.shared.poller.counts().1, now);
    }
}

#[cfg(test)]
mod tests;
