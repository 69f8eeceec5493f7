//! The budget of a step, and how a step yields.
//!
//! # The rule
//! A spent budget ends the step. It changes neither the result of an operation nor the order in
//! which the callers of one thing are served. An operation that answers `Pending` because of the
//! budget has done nothing that its drop does not undo.
//! - An operation that others compete for takes its place in the order, or what it asks for, at its
//!   first poll, and is charged afterwards ([`charge_after`], [`in_turn`]). If the budget is spent,
//!   the operation keeps what it has taken, and returns it in the next step. Dropping the operation
//!   passes on what it keeps, as the drop of a served waiter does. Permits are an example. A
//!   message of a channel stays in the channel until a step has the budget to take it
//!   ([`charge_quietly`]), because the channel tells nobody the end while it has a message.
//! - An operation that acts for good is charged first ([`charge_act`]), because no drop could undo
//!   what it has done. Examples are a send, a submitted job, and the arm of a select. One such
//!   operation in each step may overdraw the budget, so that it is not overtaken, whatever the step
//!   has spent before. After it, an operation acts in the next step at the earliest. If it has to
//!   wait, it takes its place before it is charged, because a drop releases the place.
//! - An operation with a single taker is charged first ([`charge`]), because nobody can overtake
//!   it. Examples are the mailbox of a process and the result of a handle. A timer that has fired
//!   is charged, but not refused. It does not keep a step from its end, because a refused poll sets
//!   no further timer.
//! - An operation that acts on the *absence* of something draws no conclusion from a poll that the
//!   budget may have refused. It looks at the state itself, as a wait for a cancel does, or it
//!   polls with a fresh budget ([`with_fresh`]), as the default of a select and the last poll of a
//!   timeout do. In such a poll, a search of the mailbox goes on to the end of what the mailbox
//!   holds ([`search_on`]).
//!
//! # Rejected
//! A default, and a timeout, that repeats a poll with a fresh budget in the next step if the poll
//! has spent all of it. A future that polls more waits than a budget allows spends all of it each
//! time, so its timeout would never be over.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crate::process::request::{MessageDirection, TracedMessage};
use crate::process::slot::Slot;
use crate::process::waker;
use crate::scheduler::current::{counter_at, current, with_local};
use crate::scheduler::local::{BUDGET, CurrentStep};

/// The defects that the simulation plants.
mod mutation {
    pub(super) use procession_protocols::util::mutant::is;

    /// No defect.
    const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub(super) const BUILT: u8 = procession_protocols::util::mutant::planted("budget", SOUND);
    /// No operation ends a step.
    pub(super) const WITHOUT_END: u8 = 1;
    /// A waiter for permits is charged before it has its place.
    pub(super) const CHARGED_FIRST: u8 = 2;
    /// A timer that has fired is refused.
    pub(super) const REFUSES_TIMERS: u8 = 3;
}

/// Returns what is left of the budget of this step, if the process in `slot` runs on this thread.
#[inline]
pub(crate) fn budget_of(slot: &Slot) -> Option<u32> {
    with_local(|local| {
        let local = local.filter(|local| local.step.is_of(slot))?;
        Some(local.step.budget.get())
    })
}

/// Charges the running step for one operation. Returns `false` if the budget is spent; the process
/// then yields at the end of the step.
#[inline]
pub(crate) fn charge(task: &TaskContext<'_>) -> bool {
    charge_if(task, |_| false)
}

/// Charges the running step for an operation that need not wait itself. If the budget is spent,
/// waits for the next step.
pub(crate) async fn charged() {
    poll_fn(|task| if charge(task) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Charges the running step for an operation that acts for good. Returns `false` if the budget is
/// spent and the step has overdrawn it before. The operation must not act then; the process yields
/// at the end of the step.
#[inline]
pub(crate) fn charge_act(task: &TaskContext<'_>) -> bool {
    charge_if(task, |step| !step.is_overdrawn.replace(true))
}

/// Charges the running step for one operation. If the budget is spent, `overdraws` decides whether
/// the operation is refused.
#[inline]
fn charge_if(task: &TaskContext<'_>, overdraws: impl FnOnce(&CurrentStep) -> bool) -> bool {
    let goes_on = is_affordable(overdraws);
    if !goes_on {
        yield_step(task);
    }
    goes_on
}

/// Charges the running step for an operation that has not been polled. Returns `false` if the
/// budget is spent. The operation must not return anything then. It yields the step
/// ([`yield_step`]) if it finds that it need not wait.
#[inline]
pub(crate) fn charge_quietly() -> bool {
    is_affordable(|_| false)
}

#[inline]
fn is_affordable(overdraws: impl FnOnce(&CurrentStep) -> bool) -> bool {
    with_local(|local| {
        let Some(local) = local.filter(|local| local.step.is_any()) else {
            return true;
        };
        local.step.spend();
        local.step.budget.get() > 0
            || overdraws(&local.step)
            || mutation::is(mutation::BUILT, mutation::WITHOUT_END)
    })
}

/// Charges the running step for an operation that has been polled. If the operation is ready and
/// the budget is spent, `keep` stores what it has taken, and the next step polls it again. A drop
/// of the operation must pass on what `keep` has stored.
#[inline]
pub(crate) fn charge_after<R>(
    task: &TaskContext<'_>,
    polled: Poll<R>,
    keep: impl FnOnce(R),
) -> Poll<R> {
    let Poll::Ready(taken) = polled else {
        spend();
        return Poll::Pending;
    };
    if charge(task) {
        return Poll::Ready(taken);
    }
    keep(taken);
    Poll::Pending
}

/// Returns `true` if the defect is planted that refuses an operation before it has its place, and
/// the budget is spent.
#[inline]
pub(crate) fn is_refused_first(task: &TaskContext<'_>) -> bool {
    mutation::is(mutation::BUILT, mutation::CHARGED_FIRST) && !charge(task)
}

/// Returns `true` if the defect is planted that refuses timers that have fired.
pub(crate) fn refuses_timers() -> bool {
    mutation::is(mutation::BUILT, mutation::REFUSES_TIMERS)
}

/// Awaits what `attempt` waits for, and is charged afterwards. `attempt` returns nothing, so a drop
/// loses nothing.
pub(crate) async fn in_turn(mut attempt: impl FnMut(&mut TaskContext<'_>) -> Poll<()>) {
    let mut is_over = false;
    poll_fn(|task| {
        let polled = if is_over { Poll::Ready(()) } else { attempt(task) };
        charge_after(task, polled, |()| is_over = true)
    })
    .await;
}

/// Polls with the whole budget of a step, so that an operation is pending only if it has to wait.
/// The step is charged for what `poll` spends, but `poll` is not refused. A poll that needs more
/// than the budget of a step counts as if it had to wait, unless it searches the mailbox.
pub(crate) fn with_fresh<R>(poll: impl FnOnce() -> R) -> R {
    let _restore = Restore(replace_budget(BUDGET, true));
    poll()
}

/// Restores the budget of a step, and whether a search may go on, also if a poll has unwound.
struct Restore(Option<(u32, bool)>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some((before, before_searched)) = self.0 {
            let (left, is_within) = replace_budget(0, before_searched).unwrap_or_default();
            // A search that went on has spent the budget before.
            let spent = if is_within { BUDGET.saturating_sub(left) } else { BUDGET };
            replace_budget(before.saturating_sub(spent), before_searched);
        }
    }
}

/// Replaces the budget of the running step, and whether a search may go on. Returns what they were.
fn replace_budget(budget: u32, may_search_on: bool) -> Option<(u32, bool)> {
    with_local(|local| {
        let step = &local.filter(|local| local.step.is_any())?.step;
        Some((step.budget.replace(budget), step.may_search_on.replace(may_search_on)))
    })
}

/// Lets a search of the mailbox that has spent its budget go on, if its poll has a fresh budget.
/// `entries` counts what the mailbox holds. Entries that arrive afterwards are not waited for: each
/// poll goes on once. Returns `false` if the search is to end its step.
#[cold]
pub(crate) fn search_on(entries: impl FnOnce() -> usize) -> bool {
    let goes_on = with_local(|local| local.is_some_and(|local| local.step.may_search_on.take()));
    if goes_on {
        let entries = u32::try_from(entries()).unwrap_or(u32::MAX);
        with_local(|local| {
            if let Some(local) = local {
                local.step.budget.set(entries.saturating_add(BUDGET));
            }
        });
    }
    goes_on
}

/// Charges the running step for an operation that is not awaited.
#[inline]
pub(crate) fn spend() {
    with_local(|local| {
        if let Some(local) = local {
            local.step.spend();
        }
    });
}

/// Returns `true` if the running step has spent its budget.
pub(crate) fn is_spent() -> bool {
    with_local(|local| {
        local.is_some_and(|local| local.step.is_any() && local.step.budget.get() == 0)
    })
}

/// Charges the running step for a message, and counts the message.
#[inline]
pub(crate) fn charge_send(slot: &Slot) {
    let counter = with_local(|local| {
        if let Some(local) = local {
            local.step.spend();
        }
        counter_at(local, slot.shared())
    });
    if !counter.is_own() {
        trace_sent(slot);
    }
    counter.add(|stats| &stats.sent, 1);
}

/// Records a message to the process in `slot`, if the messages of the running process are traced.
#[cold]
pub(crate) fn trace_sent(slot: &Slot) {
    let Some((trace, now)) = with_local(|local| {
        let local = local?;
        let trace = local.step.trace.borrow().clone()?;
        Some((trace, local.shared.world.now()))
    }) else {
        return;
    };
    trace.record(
        now,
        TracedMessage {
            after: Duration::ZERO,
            direction: MessageDirection::Sent,
            other: Some(slot.seen_pid()),
            type_name: (slot.kind().message_name)(),
            bytes: slot.kind().message_bytes,
            request: current().and_then(|process| Some(process.extra()?.request()?.id())),
        },
    );
}

/// Makes the running process ready again, behind all others, once its step ends.
pub(crate) fn yield_step(task: &TaskContext<'_>) {
    let own = with_local(|local| {
        let Some(local) = local else { return false };
        let Some(slot) = local.step.process.get() else { return false };
        if !waker::is_of(task.waker(), slot) {
            return false;
        }
        local.step.yields.set(true);
        true
    });
    if !own {
        task.waker().wake_by_ref();
    }
}
