//! The end of processes, and of the scheduler.

pub(crate) mod state;
mod waits;

use procession_protocols::scheduler::dependents::Dependent;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::scheduler::shutdown;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::process::exit::OnCancel;
use crate::process::slot::{Parent, Slot};
use crate::process::table::Table;
use crate::process::wake::{cancel, cancellation, terminate};
use crate::relations::links;
use crate::scheduler::current;
use crate::scheduler::end::state::{Lifetime, Losses};
use crate::scheduler::reach::find;
use crate::scheduler::seat::{Count, Stats};
use crate::scheduler::shared::Shared;
use crate::time::action::Action;
use crate::{Exit, Pid};

impl Shared {
    pub(crate) fn totals(&self, count: impl Fn(&Stats) -> &Count) -> u64 {
        self.workforce.seats.used().map(|seat| count(&seat.stats).get()).sum::<u64>()
            + count(&self.stats.outside).get()
    }

    /// Returns the number of processes that have not ended.
    pub(crate) fn alive(&self) -> u64 {
        // Ended processes are counted first. Each ended process was spawned before, so the
        // difference is never smaller than the true number, and 0 is exact.
        let ended = self.totals(|stats| &stats.ended);
        self.totals(|stats| &stats.spawned) - ended
    }

    /// Counts a process as refused that was counted as spawned before. Waits for the end of
    /// processes count it as ended, and statistics as neither.
    pub(crate) fn count_refused(&self) {
        current::count(self, |stats| &stats.refused, 1);
        current::count(self, |stats| &stats.ended, 1);
        self.note_end(None);
    }

    /// Notes that a process has ended: the process that was in `slot`, or a process that never ran.
    #[inline]
    pub(crate) fn note_end(&self, slot: Option<&Slot>) {
        if self.lifetime.closing.is_end_awaited() {
            self.note_awaited_end(slot);
        }
    }

    /// Does the same as `note_end`, for a worker that parks. It never finds an end that `note_end`
    /// has missed.
    pub(crate) fn note_end_at_leisure(&self) {
        if !matches!(self.lifetime.closing.phase(), shutdown::OPEN | shutdown::ENDED) {
            self.note_awaited_end(None);
        }
    }

    #[cold]
    fn note_awaited_end(&self, slot: Option<&Slot>) {
        // Of the closing protocol.
        fence(SeqCst);
        let phase = self.lifetime.closing.phase();
        if phase == shutdown::STOPPING
            && let Some(slot) = slot
        {
            for dependent in self.lifetime.dependents.take(slot.index()) {
                self.lifetime.cancel_after_parent(self.table(), dependent);
            }
        }
        let alive = self.alive();
        if phase == shutdown::TERMINATING && alive == 0 {
            self.end();
        }
        if phase == shutdown::OPEN && alive > 0 {
            // Without a shutdown, all waiters wait for the end of all processes.
            return;
        }
        // Only waiters that find what they wait for are woken. A waiter that wakes before that
        // would wait again, be woken again, and so on.
        for waiter in self.lifetime.take_served(alive) {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }

    /// Ends the scheduler after its last process. No process can come, and the threads leave.
    fn end(&self) {
        self.lifetime.closing.enter(shutdown::ENDED);
        self.workforce.watchdog.dismiss();
        for seat in self.workforce.seats.used() {
            seat.parker.unpark();
        }
        // Pending functions may hold this scheduler. The sleep of a block-on future is woken, and
        // sets its timer again.
        for timers in
            self.workforce.seats.used().map(|seat| &seat.timers).chain([&self.clock.outside])
        {
            timers.clear(&mut |action: Action| action.give_up());
        }
        self.parts.scheduler_ended();
        self.give_up_descriptors();
        if let Some(companion) = &self.parts.companion {
            companion.note_ended();
        }
    }

    /// Notes that a signal ends the main function, whose future is dropped next. If this future
    /// owns processes, for example in a `JoinSet`, its drop cancels them before the shutdown
    /// begins. They count as lost nevertheless, because the signal is the cause.
    #[cfg(feature = "signal")]
    pub(crate) fn interrupt(&self) {
        self.table().each(|slot| {
            if slot.parent_in_table().is_none() && !is_in_hand(slot) {
                note_told(&self.lifetime.losses, slot);
            }
        });
        self.lifetime.note_interrupted();
    }

    pub(crate) fn terminate_all(&self, except: Option<Pid>) {
        // Nobody asks for the losses of a scheduler that is only dropped.
        let is_counted = self.lifetime.is_stopping();
        self.lifetime.closing.enter(shutdown::TERMINATING);
        self.lifetime.dependents.clear();
        self.table().each(|slot| {
            if Some(slot.seen_pid()) != except {
                if is_counted {
                    note_told(&self.lifetime.losses, slot);
                }
                terminate(slot);
            }
        });
        if self.alive() == 0 {
            self.end();
        }
    }
}

impl Lifetime {
    /// Decides what becomes of a process that was counted and made reachable, because a shutdown
    /// may have begun since.
    pub(crate) fn after_publishing(&self, slot: &Slot) -> Newcomer {
        match self.closing.phase_after_publishing() {
            shutdown::OPEN => Newcomer::Runs,
            shutdown::STOPPING => {
                if slot.parent_in_table().is_none() {
                    // The process was accepted before the shutdown began, and the shutdown may have
                    // passed its slot. It is ACTIVE, and the spawner queues it.
                    note_told(&self.losses, slot);
                    let _ = cancellation(slot)(&slot.state);
                } else if !is_in_hand(slot) {
                    // It may help its parent to clean up, whatever a cancel does to it.
                    self.cancel_by_turn(slot);
                }
                Newcomer::Runs
            }
            // The workers may have left already.
            _ => Newcomer::Ends,
        }
    }

    /// Cancels the processes of `table`, the table of this scheduler, for a shutdown.
    pub(crate) fn cancel_all(&self, table: &Table, except: Option<Pid>) {
        self.closing.enter(shutdown::STOPPING);
        if let Some(caller) = except.and_then(find) {
            // Otherwise the supervisor would wait for the caller, and the caller for its
            // supervisor.
            links::release_from_supervisor(&caller);
        }
        table.each(|slot| {
            if Some(slot.seen_pid()) == except || is_in_hand(slot) {
                return;
            }
            // The caller waits for its children.
            let waits_for_parent =
                slot.kind().on_cancel == OnCancel::Drop && slot.seen_parent() != except;
            if waits_for_parent { self.cancel_by_turn(slot) } else { self.cancel_now(slot) }
        });
    }

    /// Cancels a process after its parent has ended.
    fn cancel_by_turn(&self, slot: &Slot) {
        match (slot.as_parent(), slot.parent_in_table()) {
            (Some(child), Some(parent)) => {
                self.cancel_after_parent(slot.shared().table(), Dependent { child, parent });
            }
            _ => self.cancel_now(slot),
        }
    }

    fn cancel_now(&self, slot: &Slot) {
        note_told(&self.losses, slot);
        cancel(slot);
    }

    fn cancel_after_parent(&self, table: &Table, dependent: Dependent) {
        let pin = |(index, generation): Parent| table.pin(index, generation.get());
        let has_ended = || pin(dependent.parent).is_none_or(|slot| slot.state.see().is_complete());
        if self.dependents.insert(dependent, has_ended)
            && let Some(child) = pin(dependent.child)
        {
            self.cancel_now(&child);
        }
    }
}

/// Ends the coroutines that began on this thread, which sits in `seat` and ends.
pub(crate) fn terminate_begun_on(table: &Table, seat: SeatId) {
    table.each(|slot| {
        // A terminated coroutine is queued already, and ends with that exit.
        if slot.bound.has_begun_on(seat) && !slot.state.see().is_terminated() {
            links::end_by(slot, Exit::ThreadEnded);
        }
    });
}

/// Notes that the shutdown cancels or terminates this process, unless another cancel came first.
/// The process counts once it is dropped, if nobody has chosen at its spawn that a cancel drops
/// it.
fn note_told(losses: &Losses, slot: &Slot) {
    let seen = slot.state.see();
    let is_dropped = slot.kind().on_cancel == OnCancel::Drop;
    let is_chosen = slot.extra().is_some_and(|extra| extra.is_expendable);
    if is_dropped && !is_chosen && !seen.is_complete() && !seen.is_cancelled() {
        losses.note_told(slot.seen_pid());
    }
}

/// Returns `true` if a process has a supervisor. It is left to the supervisor, so that the order of
/// its children is kept. If the supervisor ends at this moment, the link ends the process.
fn is_in_hand(slot: &Slot) -> bool {
    links::supervisor(slot).and_then(find).is_some()
}

/// The fate of a process that was just spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Newcomer {
    Runs,
    Ends,
}
