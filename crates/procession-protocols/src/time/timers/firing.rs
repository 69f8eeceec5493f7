//! `Fire` and `Tick`: the owner takes due timers, and passes their actions on.

use std::num::NonZeroU64;

use super::heap::NEVER;
use super::slot::{Tick, TimerSlot};
use super::{Ledger, PORTION, Timers, mutation, put_right};
use crate::util::prefetch::prefetch;

/// The maximum number of firings in one pass of `run`, after which the worker looks at its run
/// queues again. Erlang's bound is 100.
pub(super) const FIRINGS_MAX: u32 = 128;

/// The result of a pass of [`Timers::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Ran {
    /// The number of firings.
    pub fired: u32,
    /// Set if due timers may be left: this pass reached its limit, or another thread has the lock.
    pub more: bool,
}

/// A timer that was taken to be fired.
enum Due<'a, A, const MUTATION: u8> {
    Once(A),
    Tick(Spare<'a, A, MUTATION>),
}

impl<A, const MUTATION: u8> Timers<A, MUTATION> {
    /// Passes the actions of the timers that are due at `now` to `fire`, in the order of their
    /// deadlines, at most 128.
    ///
    /// # Blocking
    /// Does nothing if another thread has the lock. Waits for the lock only to return the spare of
    /// a tick.
    pub fn run(&self, now: u64, fire: &mut dyn FnMut(A)) -> Ran
    where
        A: Clone,
    {
        let mut fired = 0;
        while fired < FIRINGS_MAX && self.is_due(now) {
            // One at a time: whatever `fire` does, other threads can fire and delete the timers
            // that are not taken yet.
            let due = self.try_lock().and_then(|mut ledger| self.take_due(&mut ledger, now));
            match due {
                None => break,
                Some(Due::Once(action)) => fire(action),
                Some(Due::Tick(spare)) => fire(spare.split()),
            }
            fired += 1;
        }
        Ran { fired, more: self.is_due(now) }
    }

    /// Returns `true` if a timer may be due. A deadline of `NEVER` is not due even at the end of
    /// time.
    fn is_due(&self, now: u64) -> bool {
        let next = self.next();
        next <= now && next != NEVER
    }

    /// Takes the first due timer.
    fn take_due(&self, ledger: &mut Ledger, now: u64) -> Option<Due<'_, A, MUTATION>> {
        self.settle_some(ledger);
        let mut due = None;
        for _ in 0..PORTION {
            let Some(key) = ledger.heap.first().filter(|key| key.when() <= now) else { break };
            let slot = self.slot(key.slot());
            let (word, when) = (slot.word(), slot.when());
            let is_settled = if mutation::is(MUTATION, mutation::FIRE_UNSETTLED) {
                word.has_timer()
            } else {
                word.is_settled()
            };
            if !put_right(ledger, key, is_settled, when) {
                continue;
            }
            if let Some(period) = slot.period() {
                let Some(taken) = slot.tick(ledger, word) else { continue };
                let next = next_tick(when, period, now);
                if slot.advance(when, next) {
                    put_right(ledger, key, true, next);
                }
                if let Some((tick, action)) = taken {
                    ledger.ticks += 1;
                    ledger.lateness.add(now.saturating_sub(when));
                    due = Some(Due::Tick(Spare { timers: self, slot, tick, action: Some(action) }));
                    break;
                }
            } else if let Some(ended) = slot.fire(ledger, word) {
                ledger.fired += 1;
                ledger.lateness.add(now.saturating_sub(when));
                ledger.heap.remove(key.slot());
                if let Some(next) = ledger.heap.first() {
                    // One of a million slots is in no cache by now.
                    prefetch(self.slot(next.slot()));
                }
                if ended.is_free {
                    ledger.free.push(key.slot());
                }
                due = Some(Due::Once(ended.action));
                break;
            }
        }
        self.publish(ledger);
        due
    }
}

/// The first tick after `now` of a timer that was due at `when`: it keeps its phase, and skips what
/// was missed.
#[inline]
fn next_tick(when: u64, period: NonZeroU64, now: u64) -> u64 {
    let missed = now.saturating_sub(when) / period;
    when.saturating_add(period.get().saturating_mul(missed.saturating_add(1)))
}

/// The action of a tick that was taken. When it is dropped it goes back, to be the next tick's.
struct Spare<'a, A, const MUTATION: u8> {
    timers: &'a Timers<A, MUTATION>,
    slot: &'a TimerSlot<A, MUTATION>,
    tick: Tick,
    action: Option<A>,
}

impl<A: Clone, const MUTATION: u8> Spare<'_, A, MUTATION> {
    /// Clones the action: the clone fires, and the original goes back. If `clone` panics, the
    /// original goes back, and the tick is lost.
    fn split(self) -> A {
        self.action.clone().expect("there until it goes back")
    }
}

impl<A, const MUTATION: u8> Drop for Spare<'_, A, MUTATION> {
    fn drop(&mut self) {
        let Some(action) = self.action.take() else { return };
        let ledger = self.timers.lock();
        let refused = self.slot.return_spare(&ledger, self.tick, action);
        drop(ledger);
        drop(refused);
    }
}
