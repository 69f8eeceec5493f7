//! The search for cycles in the graph of waits (`process/wait_edge.rs`), and for what alone can end
//! a wait.
//!
//! A process has at most one sole wait, so each search follows one chain. To follow it costs a few
//! loads for each process, and holds no lock of a process.

use std::num::NonZeroU32;

use procession_protocols::process::state::ProcessPhase;

use crate::process::slot::{OWN, Slot, SlotRef};
use crate::process::typed::{COROUTINE, MACHINE};
use crate::process::wait_edge::{Habit, WaitProof, mutation};
use crate::process::wait_reason::Waiting;
use crate::scheduler::shared::{ProcessIndex, Shared};

/// The number of processes that a search follows. Longer cycles are not found.
const CHAIN_MAX: usize = 1000;

/// Tells the number of a wait of a step that blocks from a number of steps.
const BLOCKS: u64 = 1 << 32;

/// The slot and generation of a process.
pub(crate) type SlotKey = (u32, u32);

/// What alone can end a wait, unless a program ends the process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastHope {
    /// This process.
    Process(SlotKey),
    /// The end of this process. The waiter has its handle and, if that is a `Child`, an address of
    /// it.
    End(SlotKey, Access),
    /// The owner of the process's handle, which also has its only address, or there is none.
    Owner(Access),
    /// Nothing, because nothing refers to the process, and its PID is not known.
    Nothing,
    /// Nothing, because this process has ended without the release of the lock.
    Holder(SlotKey),
}

/// How the owner of a handle reaches its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By a `JoinHandle`.
    Handle,
    /// By a `Child`.
    Child,
}

/// A process that waits, and what alone can end this wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWait {
    pub(crate) waiter: SlotKey,
    /// Tells this wait from all others of the process.
    number: u64,
    pub(crate) hope: LastHope,
}

/// A wait for one process that nothing else ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitLink {
    /// The process that waits.
    pub(crate) waiter: SlotKey,
    /// Tells this wait from all others of the process.
    pub(crate) number: u64,
    /// The process that it waits for.
    pub(crate) target: SlotKey,
}

impl Shared {
    /// Returns the only wait of a process, if it is for one process of this scheduler. The slot
    /// need not be pinned.
    pub(crate) fn sole_wait(&self, slot: &Slot) -> Option<WaitLink> {
        let edges = &self.processes.edges;
        // Most processes that wait have no proof.
        if edges.proof(slot.index()) == WaitProof::None {
            return None;
        }
        self.blocked(slot, |generation| {
            let waiting = slot.waiting.get();
            let waits_for_one = waiting.only(Waiting::FOR_ANOTHER) && waiting.is_one();
            if !waits_for_one || edges.has(slot.index(), generation, Habit::Lends) {
                return None;
            }
            let target = edges.target(slot.index()).slot();
            let target = target.map(|(slot, generation)| (slot, generation.get()));
            match edges.proof(slot.index()) {
                WaitProof::None => None,
                WaitProof::Sole | WaitProof::Child | WaitProof::Monitor(_) => target,
                WaitProof::Unreceived(sent) => target.filter(|&key| self.has_not(key, sent)),
                proof @ (WaitProof::Lock(_) | WaitProof::Turn(_)) => {
                    // A process that waits for the lock may have been granted it just now.
                    let own = (slot.index(), generation);
                    edges.lock_target(proof).filter(|&target| target != own)
                }
            }
        })
    }

    /// Returns the wait of a process that is blocked before and after `target` looks at it.
    fn blocked(
        &self,
        slot: &Slot,
        target: impl FnOnce(u32) -> Option<SlotKey>,
    ) -> Option<WaitLink> {
        let number = || self.processes.wait_number(slot, &[ProcessPhase::Blocked]);
        let (waiter, number, target) = during(slot, number, target)?;
        Some(WaitLink { waiter, number, target })
    }

    /// Returns what alone can end the wait of a process, if that is known. The slot is pinned once
    /// by the caller.
    pub(crate) fn last_wait(&self, slot: &SlotRef) -> Option<LastWait> {
        if let Some(link) = self.sole_wait(slot) {
            let hope = self.hope_of(slot, link);
            return Some(LastWait { waiter: link.waiter, number: link.number, hope });
        }
        let phases = [ProcessPhase::Blocked, ProcessPhase::Idle];
        let number = || steps_of(slot, &phases);
        let (waiter, number, hope) =
            during(slot, number, |generation| self.unreached(slot, generation))?;
        Some(LastWait { waiter, number, hope })
    }

    /// Returns what can end a wait for one process.
    fn hope_of(&self, slot: &Slot, link: WaitLink) -> LastHope {
        match self.processes.edges.proof(slot.index()) {
            proof @ (WaitProof::Lock(_) | WaitProof::Turn(_)) if self.has_ended(link.target) => {
                // It may have released the lock before its end.
                match self.processes.edges.lock_target(proof) == Some(link.target) {
                    true => LastHope::Holder(link.target),
                    false => LastHope::Process(link.target),
                }
            }
            WaitProof::Child => LastHope::End(link.target, Access::Child),
            WaitProof::Sole if slot.waiting.get() == Waiting::PROCESS => {
                LastHope::End(link.target, Access::Handle)
            }
            _ => LastHope::Process(link.target),
        }
    }

    /// Returns `true` if a process has ended, and its future is gone.
    fn has_ended(&self, (slot, generation): SlotKey) -> bool {
        match self.table().pin(slot, generation) {
            Some(slot) => slot.state.see().is_complete(),
            // A process that ends may be sealed while its future still exists.
            None => self.table().slot(slot).is_none_or(|slot| slot.pins.generation() != generation),
        }
    }

    /// Looks at a process that waits only for messages, or for nothing of the runtime. Returns
    /// `None` if there are more pins than its own and the caller's, or if its PID is known.
    fn unreached(&self, slot: &Slot, generation: u32) -> Option<LastHope> {
        let kind = slot.kind().name;
        let pins = match slot.waiting.get() {
            // Its context has a pin.
            Waiting::MESSAGE if kind != MACHINE => OWN + 1,
            // A waker would be a pin.
            waiting if waiting == Waiting::default() && kind != MACHINE && kind != COROUTINE => OWN,
            _ => return None,
        };
        let others = slot.pins.count().checked_sub(pins + 1)?;
        if self.processes.edges.is_known(slot.index(), generation) {
            return None;
        }
        let is_ignored = mutation::is(mutation::BUILT, mutation::IGNORE_HANDLE);
        match (slot.state.see().has_handle() && !is_ignored, others) {
            (false, 0) => Some(LastHope::Nothing),
            (true, 0) => Some(LastHope::Owner(Access::Handle)),
            (true, 1) => Some(LastHope::Owner(Access::Child)),
            _ => None,
        }
    }

    /// Returns `true` if a process has received none of the messages after the first `sent`.
    fn has_not(&self, (slot, generation): SlotKey, sent: u32) -> bool {
        let Some(callee) = self.table().pin(slot, generation) else { return false };
        let beyond = callee.received().wrapping_sub(sent) as i32;
        beyond <= 0 && !self.processes.edges.has(slot, generation, Habit::Selects)
    }

    /// Returns the cycle of waits that a process is in, beginning with its lowest slot. All of the
    /// waits were in force at the same moment.
    pub(crate) fn wait_cycle(&self, first: WaitLink) -> Option<Vec<WaitLink>> {
        let mut links = vec![first];
        // If the chain runs into a cycle without the first process, it meets this one again.
        let (mut mark, mut until) = (first.waiter, 2);
        loop {
            let at = links.last()?.target;
            if at == first.waiter {
                break;
            }
            if at == mark || links.len() == CHAIN_MAX {
                return None;
            }
            if links.len() == until {
                (mark, until) = (at, 2 * until);
            }
            links.push(self.wait_of(at)?);
        }
        // Each wait began before the first look at the last one, and none has ended since.
        if !links.iter().all(|&link| self.wait_of(link.waiter) == Some(link)) {
            return None;
        }
        let lowest = (0..links.len()).min_by_key(|&at| links[at].waiter)?;
        links.rotate_left(lowest);
        Some(links)
    }

    fn wait_of(&self, (slot, generation): SlotKey) -> Option<WaitLink> {
        self.sole_wait(&*self.table().pin(slot, generation)?)
    }

    /// Returns `true` if a process waits, directly or through others, for the reply to a call of
    /// `caller`. Each of these processes waits for nothing else but a timeout or a cancel.
    pub(crate) fn calls_lead_to(&self, callee: &Slot, caller: &Slot) -> bool {
        let goal = (caller.index(), caller.pins.generation());
        let mut at = (callee.index(), callee.pins.generation());
        for _ in 0..CHAIN_MAX {
            if at == goal {
                return true;
            }
            let Some(next) = self.called_by(at) else { return false };
            at = next;
        }
        false
    }

    /// Returns the process from which a process waits for a reply.
    fn called_by(&self, (slot, generation): SlotKey) -> Option<SlotKey> {
        let slot = self.table().pin(slot, generation)?;
        let edges = &self.processes.edges;
        let link = self.blocked(&slot, |_| {
            let waiting = slot.waiting.get();
            let calls = waiting.has(Waiting::REPLY) && waiting.only(Waiting::REPLY.or_end());
            let is_known = matches!(edges.proof(slot.index()), WaitProof::Unreceived(_));
            let target = edges.target(slot.index()).slot().filter(|_| calls && is_known);
            target.map(|(slot, generation): (u32, NonZeroU32)| (slot, generation.get()))
        });
        Some(link?.target)
    }
}

impl ProcessIndex {
    /// Returns the generation of a process that waits in one of these phases, or whose step blocks
    /// on a future, and a number that tells this wait from all others of the process.
    pub(crate) fn wait_number(&self, slot: &Slot, phases: &[ProcessPhase]) -> Option<(u32, u64)> {
        steps_of(slot, phases).or_else(|| {
            let generation = slot.pins.generation();
            let number = self.edges.blocked(slot.index(), generation)?;
            Some((generation, BLOCKS | u64::from(number)))
        })
    }
}

/// Returns the generation and the number of steps of a process that is in one of the phases. A
/// process that runs again has other steps, once its step has begun.
fn steps_of(slot: &Slot, phases: &[ProcessPhase]) -> Option<(u32, u64)> {
    let waits = phases.contains(&slot.state.see().phase());
    waits.then(|| (slot.pins.generation(), slot.steps().into()))
}

/// Calls `look` with the generation of a process that waits. Returns the process, the number of its
/// wait and the result, if it is the same wait before and after that.
fn during<R>(
    slot: &Slot,
    wait: impl Fn() -> Option<(u32, u64)>,
    look: impl FnOnce(u32) -> Option<R>,
) -> Option<(SlotKey, u64, R)> {
    let before = wait()?;
    let (generation, number) = before;
    let found = look(generation)?;
    (wait() == Some(before)).then_some(((slot.index(), generation), number, found))
}
