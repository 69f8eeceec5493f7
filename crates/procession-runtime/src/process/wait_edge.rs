//! The graph of waits: for each process that waits for another, which process that is, and what
//! proves it.
//!
//! # Protocol of the edges
//!
//! ## Problem
//! If you look at processes, you want to know which process each of them waits for. A hint is
//! enough for this. A report of a cycle of waits must be true: it must follow only waits that
//! cannot end unless the process they name continues. The process that waits knows most of this,
//! but nobody may read its future while it waits.
//!
//! ## States
//! For each slot, outside of the slot: the *target* of its last wait, the *proof* of this wait, the
//! *habits* of its process, and whether its PID is *known* to code that is not the runtime's. Each
//! named lock has a word with its holder (`sync/batch_semaphore.rs`).
//!
//! ## Steps
//! - `Note`, by the running process when a future of the runtime finds that it must wait: store
//!   target and proof. The proof is kept only if it is the first wait that the step notes, and the
//!   future was polled with the process's own waker. A second note of the same kind stores the
//!   proof `None`; a note of another kind adds a bit to the reasons of the slot
//!   (`process/wait_reason.rs`).
//! - `Mark`, by the running process: note a habit for the rest of its life. If code that is not the
//!   runtime's clones the waker of the process, anything may wake the process. If the process
//!   receives a message before an older message, the number of received messages says nothing about
//!   a single message.
//! - `Tell`, by a holder of a pin of any process, before its PID leaves the runtime: note that the
//!   PID is known. PIDs in looks, records and texts are not noted.
//! - `Block`, by the thread of a process whose step blocks on a future (`scheduler/block_on.rs`),
//!   after each poll that is pending: store a number for this wait, unless the future was woken.
//!   The thread clears it before the next poll, and a waker clears it when it wakes the future.
//!   `Note` serves these polls as it serves a step: the reasons are cleared before each.
//! - `Follow`, by any thread (`scheduler/wait_graph.rs`): read the reasons, the proof and the
//!   target, between two reads of the number of steps, or of the number of `Block`.
//!
//! ## Why it works
//! The reasons are cleared when a step begins. So if exactly one reason is set and the proof is not
//! `None`, then the last step has noted exactly one wait. A future that an earlier step polled and
//! the last step did not is not polled again before the noted wait ends, because a future that
//! chooses what it polls does so by wakers of its own, and has cloned the process's waker into
//! them.
//!
//! What a proof states:
//! - `Sole`: only the target ends the wait. A process ends by itself; only a process takes messages
//!   out of its mailbox.
//! - `Child`: as `Sole`, and the process that waits has the target's handle together with an
//!   address of the target.
//! - `Monitor`: as `Sole`. A message wakes the process, which looks at the message, leaves it for a
//!   later receive, and waits on, so it notes no wait for messages.
//! - `Unreceived`: the message of a call is in the mailbox of the target, and the right to reply is
//!   in the message. This is true while the target has received no more messages than had been sent
//!   before the call. After that, the program may have moved the right to reply anywhere.
//! - `Lock`: the target is the holder that the lock has noted, which has all permits that are
//!   taken. If the holder of a lock is the process that waits, only the process itself can tell
//!   whether the grant is of this wait: it notes `Sole` with itself as the target.
//! - `Turn`: the same for a process that wants to read. While others read, it waits only because
//!   another process is in line before it. The target is the first in line, which must be granted
//!   the lock, or give up. Since a wait with a timeout is no sole wait, a cycle through this target
//!   cannot end by that.
//!
//! If no PID is known, only pins reach a process: addresses, wakers, its handle. A thread tells a
//! PID before it drops its pin, and the drop is a Release. A thread that acquires the number of
//! pins and finds none but the runtime's own therefore finds every `Tell`.
//!
//! ## Allowed
//! A true cycle may stay unknown: behind a call that was received, behind several readers of a
//! lock, or the guard of `lock_owned`, which programs move; behind a semaphore, because each
//! process that shares it may add permits; for processes with a habit; behind a `down` of a process
//! that gets messages more often than a cycle is to stand for, because each message begins another
//! step; and behind a `block_on` of another scheduler, or one that runs processes while it waits.
//!
//! A guard that borrows its lock counts as held by the process that took the lock. If a program
//! moves a guard of a lock in a `static` into another process, this is not true. A future of the
//! program that polls a future of the runtime in one step, leaves it unpolled in the next, and acts
//! on what it has heard of its end in another way, is taken for a forgotten one.
//!
//! ## Rejected
//! - A counter of releases for each process, stored with the wait: a process that releases any
//!   other lock later looks as if it had released this one, and its cycles stay unknown. It also
//!   costs each release of a lock without waiters a write to another cache line.
//! - Following a call that was received: a server that hands the right to reply to another process,
//!   and then calls the caller, is no cycle.
//!
//! ## Checked by
//! `it::wait_cycles`, the models of `sync/batch_semaphore.rs`, and the workload `wait_cycles` of
//! `procession-sim`.

use std::mem;
use std::sync::{Arc, Weak};

use procession_protocols::sync::batch_semaphore::LockName;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::process::wait_reason::WaitTarget;
use crate::util::column::Column;
use crate::util::sort::sort;

/// The defects that the simulation plants.
pub(crate) mod mutation {
    pub(crate) use procession_protocols::util::mutant::is;

    /// No defect.
    const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub(crate) const BUILT: u8 = procession_protocols::util::mutant::planted("wait_edge", SOUND);
    /// The last of several waits keeps its proof.
    pub(crate) const LAST_OF_SEVERAL: u8 = 1;
    /// A cycle is reported as soon as the watchdog finds it.
    pub(crate) const AT_ONCE: u8 = 2;
    /// `Tell` notes nothing.
    pub(crate) const TELL_NOTHING: u8 = 3;
    /// A handle does not count as a way to reach its process.
    pub(crate) const IGNORE_HANDLE: u8 = 4;
    /// A process counts as leaked although the process that it waits for may continue.
    pub(crate) const HOPE_IN_VAIN: u8 = 5;
    /// A process that waits for a lock of its own is taken for a process that was granted the lock.
    pub(crate) const OWN_IS_GRANTED: u8 = 6;
    /// A reader that waits for its turn counts as waiting for the holder.
    pub(crate) const TURN_OF_HOLDER: u8 = 7;
    /// A long wait is not suspected.
    pub(crate) const SUSPECT_NOTHING: u8 = 8;
    /// A message counts as the end of a wait for a down.
    pub(crate) const MESSAGE_ENDS_DOWN: u8 = 9;
}

/// What proves that a process waits for its target alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitProof {
    /// Nothing: there are several waits, or the target is only likely.
    None,
    /// Only the target ends the wait.
    Sole,
    /// As `Sole`, and the waiter has an address of the target beside its handle.
    Child,
    /// As `Sole`, by a monitor of the target, of whose number these are the low bits.
    Monitor(u32),
    /// The target has not received the message of a call, while it has received no more than this
    /// number of messages.
    Unreceived(u32),
    /// The holder of the lock with this number ends the wait.
    Lock(u32),
    /// As `Lock`, for a wait for reading: the holder or, while permits are free, the first in line
    /// ends the wait.
    Turn(u32),
}

impl WaitProof {
    fn bits(self) -> u64 {
        let (kind, number) = match self {
            Self::None => (0, 0),
            Self::Sole => (1, 0),
            Self::Unreceived(sent) => (2, sent),
            Self::Lock(number) => (3, number),
            Self::Child => (4, 0),
            Self::Monitor(number) => (5, number),
            Self::Turn(number) => (6, number),
        };
        kind << 32 | u64::from(number)
    }

    fn from_bits(bits: u64) -> Self {
        match (bits >> 32, bits as u32) {
            (1, _) => Self::Sole,
            (2, sent) => Self::Unreceived(sent),
            (3, number) => Self::Lock(number),
            (4, _) => Self::Child,
            (5, number) => Self::Monitor(number),
            (6, number) => Self::Turn(number),
            _ => Self::None,
        }
    }
}

/// What a process has done once, which makes less of its waits certain from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Code that is not the runtime's has cloned its waker.
    Lends = 1,
    /// It has put messages aside, and received later ones.
    Selects = 2,
}

/// The edges of the waits of a scheduler's processes, by slot.
#[derive(Debug, Default)]
pub(crate) struct WaitEdges {
    targets: Column,
    proofs: Column,
    /// The generation of the slot, and bits.
    habits: Column,
    /// The generation of the slot, if the PID is known.
    known: Column,
    /// The generation of the slot, and the number of the wait, while its thread waits for the
    /// future that a step of the process blocks on.
    blocked: Column,
    /// The last number of such a wait.
    last_blocked: AtomicU32,
    locks: Mutex<LockNames>,
    /// The number of cycles that were reported.
    cycles: AtomicU64,
    /// With the test clock: the slots of the waits with a proof that were noted since this was last
    /// asked.
    new: Option<Mutex<Vec<u32>>>,
}

impl WaitEdges {
    /// `collects` is `true` with the test clock.
    pub(crate) fn new(collects: bool) -> Self {
        Self { new: collects.then(Mutex::default), ..Self::default() }
    }

    /// `Note`. `slots` is the number of slots at most.
    pub(crate) fn note(&self, slot: u32, slots: u32, target: WaitTarget, proof: WaitProof) {
        self.targets.set(slot, slots, target.bits());
        if proof != WaitProof::None {
            self.proofs.set(slot, slots, proof.bits());
            if let Some(new) = &self.new {
                new.lock().push(slot);
            }
        } else if self.proofs.get(slot) != 0 {
            self.proofs.set(slot, slots, 0);
        }
    }

    /// Returns the target of the last wait for a process.
    pub(crate) fn target(&self, slot: u32) -> WaitTarget {
        WaitTarget::from_bits(self.targets.get(slot))
    }

    /// Returns the proof of the last wait for a process.
    pub(crate) fn proof(&self, slot: u32) -> WaitProof {
        WaitProof::from_bits(self.proofs.get(slot))
    }

    /// `Mark`.
    pub(crate) fn mark(&self, slot: u32, slots: u32, generation: u32, habit: Habit) {
        let known = self.habits.get(slot);
        let others = if (known >> 32) as u32 == generation { known as u32 } else { 0 };
        let all = u64::from(generation) << 32 | u64::from(others | habit as u32);
        if all != known {
            self.habits.set(slot, slots, all);
        }
    }

    /// Returns `true` if a process has this habit.
    pub(crate) fn has(&self, slot: u32, generation: u32, habit: Habit) -> bool {
        let known = self.habits.get(slot);
        (known >> 32) as u32 == generation && known as u32 & habit as u32 != 0
    }

    /// `Block`, by the thread that waits for the future. `is_woken` returns `true` if the future
    /// has been woken since its poll.
    pub(crate) fn block(
        &self,
        slot: u32,
        slots: u32,
        generation: u32,
        is_woken: impl FnOnce() -> bool,
    ) {
        // Relaxed: the numbers only have to differ.
        let number = self.last_blocked.fetch_add(1, Relaxed);
        self.blocked.set(slot, slots, u64::from(generation) << 32 | u64::from(number));
        // Pairs with the fence of `wake_blocked`: this thread sees that the future was woken, or
        // the waker clears the number.
        fence(SeqCst);
        if is_woken() {
            self.unblock(slot);
        }
    }

    /// Ends `Block`, before the future is polled.
    pub(crate) fn unblock(&self, slot: u32) {
        self.blocked.clear(slot);
    }

    /// Ends `Block`, by the thread that has woken the future.
    pub(crate) fn wake_blocked(&self, slot: u32) {
        fence(SeqCst);
        self.unblock(slot);
    }

    /// Returns the number of the wait for a future that a step of the process blocks on.
    pub(crate) fn blocked(&self, slot: u32, generation: u32) -> Option<u32> {
        let known = self.blocked.get(slot);
        ((known >> 32) as u32 == generation).then_some(known as u32)
    }

    /// `Tell`. The caller has a pin.
    #[inline]
    pub(crate) fn tell(&self, slot: u32, slots: u32, generation: u32) {
        let is_new = !self.is_known(slot, generation);
        if is_new && !mutation::is(mutation::BUILT, mutation::TELL_NOTHING) {
            self.known.set(slot, slots, generation.into());
        }
    }

    /// Returns `true` if code that is not the runtime's may know the PID of a process.
    pub(crate) fn is_known(&self, slot: u32, generation: u32) -> bool {
        self.known.get(slot) == u64::from(generation)
    }

    /// Counts a cycle that is reported.
    pub(crate) fn count_cycle(&self) {
        // Relaxed: statistics.
        self.cycles.fetch_add(1, Relaxed);
    }

    /// Returns the number of cycles that were reported.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.load(Relaxed)
    }

    /// Returns `true` if some wait ever had a proof.
    pub(crate) fn has_proofs(&self) -> bool {
        self.proofs.is_set()
    }

    /// Returns `true` if `take_new` returns a slot.
    pub(crate) fn has_new(&self) -> bool {
        self.new.as_ref().is_some_and(|new| !new.lock().is_empty())
    }

    /// Takes the slots of the waits with a proof that were noted since the last call, with the test
    /// clock.
    pub(crate) fn take_new(&self) -> Vec<u32> {
        let mut new = self.new.as_ref().map(|new| mem::take(&mut *new.lock())).unwrap_or_default();
        sort(&mut new);
        new.dedup();
        new
    }

    /// Names a lock for a waiter of `scheduler`, to which these edges belong.
    pub(crate) fn name_lock(&self, scheduler: u32) -> Arc<LockName> {
        self.locks.lock().add(scheduler)
    }

    /// Returns the slot and the generation of the process that ends a wait for a lock. Returns
    /// `None` if the process is not known, or the wait is for something else.
    pub(crate) fn lock_target(&self, proof: WaitProof) -> Option<(u32, u32)> {
        let name = |number: u32| self.locks.lock().names.get(number as usize)?.upgrade();
        let target = match proof {
            WaitProof::Lock(number) => name(number)?.holder(),
            WaitProof::Turn(number) if mutation::is(mutation::BUILT, mutation::TURN_OF_HOLDER) => {
                name(number)?.holder()
            }
            WaitProof::Turn(number) => name(number)?.ahead(),
            _ => return None,
        };
        (target.1 != 0).then_some(target)
    }
}

/// The locks that have had waiters. A number is used again after its lock is gone.
#[derive(Debug, Default)]
struct LockNames {
    names: Vec<Weak<LockName>>,
    free: Vec<u32>,
}

impl LockNames {
    fn add(&mut self, scheduler: u32) -> Arc<LockName> {
        if self.free.is_empty() && self.names.len() == self.names.capacity() {
            // As often as the list would grow, so this costs each name the same.
            let gone = |number: &u32| self.names[*number as usize].strong_count() == 0;
            self.free = (0..self.names.len() as u32).filter(gone).collect();
            if self.free.len() < self.names.len() / 2 {
                self.names.reserve(self.names.len().max(64));
            }
        }
        let number = self.free.pop().unwrap_or(self.names.len() as u32);
        let name = Arc::new(LockName::new(scheduler, number));
        let named = Arc::downgrade(&name);
        match self.names.get_mut(number as usize) {
            Some(place) => *place = named,
            None => self.names.push(named),
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::{Habit, WaitEdges, WaitProof};
    use crate::process::wait_reason::WaitTarget;

    #[test]
    fn a_proof_is_replaced_by_the_next_note() {
        let edges = WaitEdges::new(true);
        let proofs = [
            WaitProof::Sole,
            WaitProof::Unreceived(u32::MAX),
            WaitProof::Lock(7),
            WaitProof::Child,
            WaitProof::Monitor(7),
            WaitProof::Turn(u32::MAX),
            WaitProof::None,
        ];
        for proof in proofs {
            edges.note(3, 10, WaitTarget::new(4, 5), proof);
            assert_eq!(edges.proof(3), proof);
            assert_eq!(edges.target(3), WaitTarget::new(4, 5));
            let is_proved = proof != WaitProof::None;
            assert_eq!(edges.has_new(), is_proved);
            assert_eq!(edges.take_new(), if is_proved { vec![3] } else { vec![] });
        }
    }

    #[test]
    fn a_habit_belongs_to_one_process() {
        let edges = WaitEdges::default();
        edges.mark(1, 10, 2, Habit::Lends);
        edges.mark(1, 10, 2, Habit::Selects);
        assert!(edges.has(1, 2, Habit::Lends) && edges.has(1, 2, Habit::Selects));
        assert!(!edges.has(1, 3, Habit::Lends), "another process is in the slot");
        edges.mark(1, 10, 3, Habit::Selects);
        assert!(edges.has(1, 3, Habit::Selects) && !edges.has(1, 3, Habit::Lends));
    }

    #[test]
    fn a_pid_is_known_of_one_process() {
        let edges = WaitEdges::default();
        assert!(!edges.is_known(1, 2));
        edges.tell(1, 10, 2);
        assert!(edges.is_known(1, 2));
        assert!(!edges.is_known(1, 3), "another process is in the slot");
        edges.tell(1, 10, 3);
        assert!(edges.is_known(1, 3) && !edges.is_known(0, 2));
    }

    #[test]
    fn numbers_of_locks_that_are_gone_are_used_again() {
        let edges = WaitEdges::default();
        let kept: Vec<_> = (0..10).map(|_| edges.name_lock(1)).collect();
        let most = (0..10_000).map(|_| edges.name_lock(1).number).max();
        assert!(most < Some(200), "{most:?}");
        assert!(kept.iter().all(|name| edges.lock_target(WaitProof::Lock(name.number)).is_none()));
    }
}
