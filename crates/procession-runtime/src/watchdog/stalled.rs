//! Stalled steps: how the watchdog finds them, how it replaces their workers, and the report of
//! each.

use std::sync::Arc;
use std::time::Duration;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::process::unwind::guarded;
use crate::recorder::dump::{DumpCause, Dumps};
use crate::scheduler::seat::Seat;
use crate::scheduler::shared::Shared;
use crate::scheduler::stalls::{Stall, StallKind};
use crate::scheduler::workforce::{LOOK_EVERY, Watchdog};
use crate::sys::{RunState, ThreadFile};
use crate::watchdog::hook::StallHook;
use crate::watchdog::judge::judge;
use crate::watchdog::{FoundStall, SeatLook, Watch, count};

/// Number of seats, from the first on, with a file that is kept open for their thread. For a thread
/// beyond these, a file is opened for each question, if there are descriptors: a program may have
/// far more threads than it can spare descriptors.
const FILES_KEPT: u32 = 16;
/// Maximum number of reports in one second. Further stalls are only counted.
const REPORTS_PER_SECOND: u32 = 10;
const SECOND: u64 = 1_000_000_000;

/// The defects that the simulation plants.
mod mutation {
    pub(super) use procession_protocols::util::mutant::is;

    /// No defect.
    const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub(super) const BUILT: u8 = procession_protocols::util::mutant::planted("stalls", SOUND);
    /// A computation that has ended still counts against the limit.
    pub(super) const COUNT_ENDED: u8 = 1;
}

impl Watch {
    /// Compares each seat with the last look.
    pub(super) fn find(&mut self, now: u64) -> Vec<FoundStall> {
        let shared = &*self.shared;
        let mut all = Vec::new();
        let reach = shared.workforce.idle.reach();
        // Nothing may be kept of the seats beyond: what was last seen there would never change, and
        // the watchdog would never sleep.
        self.looks.resize(reach as usize, SeatLook::default());
        for number in 0..reach {
            let look = &mut self.looks[number as usize];
            let Some(seat) = shared.workforce.seats.made(SeatId(number)) else {
                *look = SeatLook { since: now, ..SeatLook::default() };
                continue;
            };
            let thread = seat.thread.load(Relaxed);
            if thread != look.thread && number < FILES_KEPT {
                shared.workforce.watchdog.open_file(seat, thread);
            }
            let step = seat.step.load(Relaxed);
            let in_step = step % 2 == 1 && thread != 0;
            if step != look.step || !in_step || seat.in_section.load(Relaxed) {
                *look = SeatLook { step, since: now, thread, ..SeatLook::default() };
                continue;
            }
            let duration = now - look.since;
            let is_new = look.found.is_none();
            if is_new {
                look.found = classify(shared, SeatId(number), look, duration, now);
            }
            if let Some(kind) = look.found {
                all.push(FoundStall { seat: SeatId(number), kind, duration, is_new });
            }
        }
        all
    }

    /// `Rescue`. Returns `true` if a worker is searching now.
    pub(super) fn rescue(
        &mut self,
        all: &[FoundStall],
        replaced: &mut [bool],
        lifo_slots: &mut [bool],
        now: u64,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let options = &shared.workforce.watchdog.options;
        let is_computing =
            |look: &&SeatLook| look.replaced && look.found == Some(StallKind::Computing);
        let mut computing = match mutation::is(mutation::BUILT, mutation::COUNT_ENDED) {
            true => shared.workforce.watchdog.counts.computing.load(Relaxed) as usize,
            false => self.looks.iter().filter(is_computing).count(),
        };
        let mut count_replaced = 0;
        for (at, found) in all.iter().enumerate() {
            let seat = shared.workforce.seat(found.seat);
            let look = &mut self.looks[found.seat.0 as usize];
            if seat.step.load(Relaxed) != look.step {
                continue;
            }
            if let Some(next) = seat.next.steal(seat.next.look()) {
                lifo_slots[at] = true;
                count(&shared.workforce.watchdog.counts.lifo_slots);
                shared.workforce.queues.global.push(Ready::from_raw(next));
            }
            let is_capped =
                found.kind == StallKind::Computing && computing >= options.max_computing;
            if look.replaced || is_capped || !shared.workforce.idle.revoke(found.seat) {
                continue;
            }
            computing += usize::from(found.kind == StallKind::Computing);
            (look.replaced, replaced[at]) = (true, true);
            count(&shared.workforce.watchdog.counts.replaced);
            count_replaced += 1;
        }
        let late = shared.workforce.idle.revoke_late(now, options.stall_after);
        shared.workforce.announce_many(count_replaced + late);
        shared.workforce.idle.counts().0 > 0
    }

    /// `FreeBatch`. A step that computes keeps its permit, because it ends without another one.
    pub(super) fn free_batch_permits(&mut self, all: &[FoundStall], replaced: &mut [bool]) {
        let shared = Arc::clone(&self.shared);
        if shared.workforce.idle.is_batch_wanted() && !all.is_empty() {
            // A worker that is stuck in another step takes no permit, and must not keep others from
            // it. It waits again, behind them, when it next looks for work.
            for found in all {
                shared.workforce.idle.stop_waiting_for_batch(found.seat);
            }
            shared.announce_batch_permit();
        }
        for (at, found) in all.iter().enumerate() {
            let look = &mut self.looks[found.seat.0 as usize];
            if found.kind == StallKind::Blocked
                && !look.replaced
                && shared.workforce.seat(found.seat).step.load(Relaxed) == look.step
                && shared.workforce.idle.is_in_batch(found.seat)
                && shared.workforce.idle.revoke(found.seat)
            {
                (look.replaced, replaced[at]) = (true, true);
                count(&shared.workforce.watchdog.counts.replaced);
                shared.announce_batch_permit();
            }
        }
    }

    pub(super) fn report(&mut self, found: &FoundStall, replaced: bool, lifo_slot: bool, now: u64) {
        let shared = &*self.shared;
        let counts = &shared.workforce.watchdog.counts;
        count(match found.kind {
            StallKind::Blocked => &counts.blocked,
            StallKind::Computing => &counts.computing,
        });
        let running = shared.workforce.seat(found.seat).running.load(Relaxed);
        self.marks.stall(found.seat, running.saturating_sub(1));
        Dumps::request(shared, DumpCause::Stall);
        let observer = StallHook::of(shared);
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
        let seat = shared.workforce.seat(found.seat);
        let step = self.looks[found.seat.0 as usize].step;
        let slot = seat
            .running
            .load(Relaxed)
            .checked_sub(1)
            .and_then(|index| shared.table().pin_any(index));
        // If the step has ended in between, the slot may hold another process.
        let slot = slot.filter(|_| seat.step.load(Relaxed) == step);
        let own = slot.as_ref().is_some_and(|slot| slot.bound.has_begun_on(found.seat));
        let stall = Stall {
            worker: found.seat.0,
            pid: slot.as_ref().map(|slot| slot.pid()),
            label: slot.as_ref().and_then(|slot| crate::observe::process_info::label(slot)),
            location: slot.as_ref().map(|slot| slot.location()),
            duration: Duration::from_nanos(found.duration),
            kind: found.kind,
            replaced,
            lifo_slot,
            queued: seat.queues.len(),
            held_up: (seat.residents() as usize).saturating_sub(own.into()),
        };
        // Panics of the observers end here.
        if let Some(observer) = observer {
            drop(guarded(|| observer(&stall)));
        }
        #[cfg(feature = "tracing")]
        drop(guarded(|| crate::observe::trace::stalled(&stall)));
    }
}

impl Watchdog {
    /// Opens the file about the thread of a seat, unless it is open already.
    fn open_file(&self, seat: &Seat, thread: u32) {
        let mut kept = seat.thread_file.lock();
        // Under the lock, as in `close_file`: a thread that has left would not close it.
        if kept.is_none() && thread != 0 && seat.thread.load(Relaxed) == thread {
            *kept = ThreadFile::open(thread);
            self.counts.files.fetch_add(u64::from(kept.is_some()), Relaxed);
        }
    }

    /// Closes the file about the thread of a seat. The thread leaves, and the seat does not name it
    /// any more.
    pub(crate) fn close_file(&self, seat: &Seat) {
        let kept = seat.thread_file.lock().take();
        self.counts.files.fetch_sub(u64::from(kept.is_some()), Relaxed);
    }

    /// Returns what the thread of a seat is doing, if the system reports it.
    fn state_of(&self, seat: SeatId, place: &Seat, thread: u32) -> Option<RunState> {
        if seat.0 < FILES_KEPT {
            // There may be a descriptor now, even if there was none before.
            self.open_file(place, thread);
            let kept = place.thread_file.lock();
            kept.as_ref()?.state()
        } else {
            ThreadFile::open(thread)?.state()
        }
    }
}

/// Returns `true` if a subscriber wants reports of stalls.
fn is_traced() -> bool {
    #[cfg(feature = "tracing")]
    return guarded(crate::observe::trace::wants_stalls).unwrap_or(false);
    #[cfg(not(feature = "tracing"))]
    false
}

/// Classifies a step that has lasted for `duration`, by what the thread in the seat did since it
/// was first asked. Returns `None` if the delay is not the thread's own doing, or is not known to
/// be yet.
///
/// A question costs the system tens of microseconds. On a busy machine, threads are interrupted in
/// their steps for a few milliseconds all the time. So a thread is asked twice: in the middle of
/// `stall_after` and at its end.
fn classify(
    shared: &Shared,
    seat: SeatId,
    look: &mut SeatLook,
    duration: u64,
    now: u64,
) -> Option<StallKind> {
    let watchdog = &shared.workforce.watchdog;
    let stall_after = watchdog.options.stall_after;
    let place = shared.workforce.seat(seat);
    let thread = place.thread.load(Relaxed);
    let Some((since, before)) = look.first else {
        // This look is the nearest to the middle. Of two looks at the same distance it is the
        // earlier one, since looks are never early.
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
    let state = match shared.world.simulated() {
        Some(os) => os.activity(thread).map(|(_, state)| state),
        None => watchdog.state_of(seat, place, thread),
    };
    let kind = judge(used, state, passed);
    if kind.is_some() && state.is_none() {
        count(&watchdog.counts.guessed);
    }
    kind
}
