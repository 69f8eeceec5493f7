//! One step of a process, and its end.

use std::task::{Context as TaskContext, Waker};

use procession_protocols::process::state::{Duty, Seen};
use procession_sync::atomic::Ordering::{Relaxed, Release};

use crate::Exit;
use crate::process::body::Step;
use crate::process::request::Inspection;
use crate::process::slot::{Extra, Ready, Slot};
#[cfg(feature = "tracing")]
use crate::process::span;
use crate::process::unwind::{drop_guarded, guarded, guarded_for_report};
use crate::process::wait_reason::Waiting;
use crate::process::{wake, waker};
use crate::relations::links;
use crate::scheduler::current;
use crate::scheduler::local::{BUDGET, LocalWorker};
use crate::scheduler::part::FailureSpan;
use crate::scheduler::shared::Shared;

impl LocalWorker {
    /// Runs one step of a process.
    pub(crate) fn run(&self, ready: Ready) {
        let slot = ready.slot();
        let seat = self.shared.workforce.seat(self.seat);
        // Before the step begins: these wakers wake this process, which must not count as a new
        // wake-up.
        slot.wake_foreign_wakers();
        let seen = slot.state.start();
        // Only this worker writes these words, so no read-modify-writes are needed.
        seat.running.store(slot.index() + 1, Relaxed);
        // Ordering: Release pairs with the Acquire of `in_steps`: a thread that finds the step
        // finds its process.
        seat.step.store(seat.step.load(Relaxed).wrapping_add(1), Release);
        let number = slot.steps.load(Relaxed).wrapping_add(1);
        slot.steps.store(number, Relaxed);
        self.log.step(self.queues.turn.kind.get(), slot, number);
        if !self.queues.turn.inherits.take() {
            self.step.budget.set(BUDGET);
        }
        self.step.yields.set(false);
        self.step.is_overdrawn.set(false);
        self.step.process.set(Some(ready.as_raw()));
        slot.waiting.clear();
        if seen.is_special() {
            self.special_step(ready, seen);
        } else {
            let step = self.step_body::<false>(slot, &waker::borrowed(slot));
            self.after_step(ready, seen, step);
        }
        seat.step.store(seat.step.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Does with a process what its step has decided.
    #[inline(always)]
    pub(crate) fn after_step(&self, ready: Ready, seen: Seen, step: Result<Step, Exit>) {
        let slot = ready.slot();
        match step {
            Ok(Step::Waits(wait_phase)) if !self.step.yields.get() => {
                self.step.process.set(None);
                if slot.state.wait(wait_phase) == Duty::Enqueue {
                    self.queues.push_continued(ready);
                }
            }
            Ok(Step::Waits(_) | Step::GoesOn) => {
                self.step.process.set(None);
                slot.state.yield_step();
                self.queues.push_continued(ready);
            }
            Ok(Step::Ended(None)) => {
                self.log.end(&self.stores.places, slot, false);
                self.end(ready, &Exit::Normal, false);
            }
            Ok(Step::Ended(Some(exit))) => self.end_with(ready, &exit),
            Err(exit) => self.end_early(ready, seen, &exit),
        }
    }

    /// Calls the body of the process in its step. Special steps have a copy of the code, so that
    /// the call is inlined in all others.
    #[inline(always)]
    pub(crate) fn step_body<const IS_SPECIAL: bool>(
        &self,
        slot: &Slot,
        waker: &Waker,
    ) -> Result<Step, Exit> {
        let mut task = TaskContext::from_waker(waker);
        guarded_for_report(|| {
            #[cfg(feature = "sim")]
            panic_if_told(slot);
            // SAFETY: [running] this worker took the entry.
            unsafe {
                slot.with_body(|body| {
                    body.as_mut().map_or(Step::Ended(None), |body| body.step(slot, &mut task))
                })
            }
        })
    }

    /// Ends a process after a step in which it ended itself, and not normally.
    #[cold]
    fn end_with(&self, ready: Ready, exit: &Exit) {
        let is_held = report(ready.slot(), exit);
        #[cfg(feature = "tracing")]
        // SAFETY: [running] this worker took the entry.
        unsafe {
            ready.slot().with_body(|body| span::close(body.as_deref_mut()));
        }
        self.shared.workforce.seat(self.seat).stats.count_exit(exit);
        self.log.end(&self.stores.places, ready.slot(), exit.is_failure());
        self.end(ready, exit, is_held);
    }

    /// Ends a process that was terminated, or that has unwound in its step.
    #[cold]
    fn end_early(&self, ready: Ready, seen: Seen, exit: &Exit) {
        let slot = ready.slot();
        self.shared.workforce.seat(self.seat).stats.count_exit(exit);
        if seen.is_terminated() {
            self.shared.lifetime.note_dropped(slot.seen_pid(), slot.location());
        }
        let by_itself = !seen.is_terminated() || links::dooms_itself(slot);
        let is_held = by_itself && report(slot, exit);
        // If it panics in a `Drop`, the state is gone nevertheless, and the first exit stands.
        // SAFETY: [running] this worker took the entry.
        drop(guarded(|| unsafe {
            slot.with_body(|body| body.as_mut().map(|body| body.end(slot, exit.clone())))
        }));
        self.log.end(&self.stores.places, slot, exit.is_failure());
        self.end(ready, exit, is_held);
    }

    /// Ends a process after its last step. Its slot may be reused before this returns, so the
    /// worker forgets the process before users' code runs.
    fn end(&self, ready: Ready, exit: &Exit, is_held: bool) {
        complete(&self.shared, ready, exit, is_held);
        self.step.process.set(None);
        self.shared.workforce.seat(self.seat).running.store(0, Relaxed);
        self.shared.note_end(Some(ready.slot()));
    }
}

/// Panics if a simulated system lets the step of this process panic. No hook is called: the
/// panic is what the program has asked for.
#[cfg(feature = "sim")]
fn panic_if_told(slot: &Slot) {
    if slot.shared().world.simulated().is_some_and(|os| os.panics(slot.seen_pid())) {
        std::panic::resume_unwind(Box::new("the simulated system lets this step panic"));
    }
}

/// Reports a process that ends by its own failure, before anything else learns of its end.
/// Returns `true` if the report is held until it is known whether the failure has reached
/// somebody.
fn report(slot: &Slot, exit: &Exit) -> bool {
    #[cfg(feature = "tracing")]
    // SAFETY: [running] this worker took the entry.
    let span = unsafe { FailureSpan(slot.with_body(|body| span::span_of(body.as_deref_mut()))) };
    #[cfg(not(feature = "tracing"))]
    let span = FailureSpan::default();
    slot.shared().parts.process_failed(slot, exit, &span)
}

/// Ends a process that the caller runs. The result is in its body. The slot may be reused when this
/// returns. The caller must then call `note_end`, which may run users' code, outside any step.
/// `is_held` is `true` if the process has a held report.
fn complete(shared: &Shared, ready: Ready, exit: &Exit, is_held: bool) {
    let slot = ready.slot();
    slot.drop_foreign_wakers();
    // It is not queued again.
    shared.take_back(slot);
    let counter = current::counter(shared);
    counter.add(|stats| &stats.received, slot.received().into());
    if !is_held && slot.is_alone() {
        // If the `Drop` of a result does not return, its process counts as running.
        // SAFETY: [running] the handle is gone, so the body is the caller's until the end.
        drop_guarded(unsafe { slot.with_body(Option::take) });
        if slot.seal() {
            // SAFETY: just sealed, and nothing of the process is left.
            unsafe { crate::process::life::free_sealed(ready) };
            counter.add(|stats| &stats.ended, 1);
            return;
        }
    }
    counter.add(|stats| &stats.discarded, slot.close_mailbox().into());
    // If there is a handle, count the end first, so that the thread that receives the result finds
    // it counted. Without a handle, the process has ended once its result is dropped.
    let counted = slot.state.see().has_handle();
    if counted {
        counter.add(|stats| &stats.ended, 1);
    }
    let seen = links::complete(slot);
    if seen.is_asked() {
        wake::forget_requests(slot);
    }

    let was_heard = seen.is_related() && links::settle(slot, exit);
    let detached = !seen.has_handle();
    if is_held {
        let decide = |extra: &Extra| extra.held_report.decide(was_heard, !detached);
        if let Some(tell) = slot.extra().and_then(decide) {
            tell(slot);
        }
    }
    if detached {
        slot.waiting.note(Waiting::DROP);
        // SAFETY: [running] the handle was gone, so the body is still the caller's.
        drop_guarded(unsafe { slot.with_body(Option::take) });
        slot.waiting.forget(Waiting::DROP);
    } else if seen.has_waiter()
        // SAFETY: [cell] `complete` has found it.
        && let Some(waiter) = unsafe { slot.waiter.take() }
    {
        drop(guarded(|| waiter.wake()));
    }
    // An address may keep the slot for long. The values must not wait for that.
    slot.extra().into_iter().for_each(Extra::disinherit);
    // User code has run since the first look, and may have polled a context. Its wakers are never
    // woken.
    slot.drop_foreign_wakers();
    shared.take_back(slot);
    // SAFETY: completed above, by the caller that ran it.
    unsafe { crate::process::life::let_go(ready, detached) };
    if !counted {
        counter.add(|stats| &stats.ended, 1);
    }
}

/// Adds what the state of the process shows of itself. Only the worker that runs it calls this. May
/// unwind.
pub(crate) fn inspect_body(slot: &Slot, shown: &mut Inspection) {
    // SAFETY: [running] this worker took the entry.
    unsafe {
        slot.with_body(|body| {
            if let Some(body) = body {
                body.inspect(shown);
            }
        });
    }
}

/// Ends a process that was never queued. Its creator holds its entry.
pub(crate) fn end_unqueued(shared: &Shared, ready: Ready) {
    let slot = ready.slot();
    let _ = slot.state.start();
    // SAFETY: [running] the entry is the caller's.
    drop(guarded(|| unsafe {
        slot.with_body(|body| body.as_mut().map(|body| body.end(slot, Exit::Killed)))
    }));
    current::count(shared, |stats| &stats.killed, 1);
    complete(shared, ready, &Exit::Killed, false);
    shared.note_end(Some(slot));
}
