//! The requests that processes serve between two of their steps, ahead of their messages, and the
//! suspensions of processes.
//!
//! # Request protocol
//!
//! ## Problem
//! A process is suspended. Its entry is put away, and a cancel at that moment queues nothing: the
//! process never ends. Or a request is left for a process after its entry was put away, and nothing
//! serves the request.
//!
//! ## States
//! A table outside of the slots holds the requests of each process that has any, and its
//! suspension. The flag `ASKED` of the state word (`process/state.rs`) is set if the table has
//! something about the process. A process that is suspended is `ACTIVE`, and its entry is in the
//! table.
//!
//! ## Steps
//! - `Leave`: put the request into the table; `ask`. If the process is suspended, take its entry
//!   out, to be queued: the worker serves the request, and suspends it again.
//! - `Attend`, by the worker that begins a step and finds the flag: clear it, and take the
//!   requests. If the process is suspended, `Hold`, else continue with the step.
//! - `Hold`, under the lock of the table: set the flag. If the process is to end, end the
//!   suspension and keep the entry. If a request was left, keep the entry. Otherwise leave it in
//!   the table.
//! - `Release`, by a resume, by the timer of the suspension, and by a cancel or a terminate that
//!   finds the flag: end the suspension, take the entry out, and queue it.
//! - `Forget`, at the end of a process with the flag: drop what is left. The caller of a dropped
//!   answer learns by the drop that the process has ended.
//!
//! ## Why it works
//! The table is changed under its lock. If a cancel is ordered before the mark of `Hold`, `Hold`
//! finds its flag. Otherwise the cancel finds the mark, takes the lock after `Hold`, and finds the
//! entry.
//!
//! If a request is left before `Hold` takes the lock, `Hold` finds it, and the mark makes the next
//! step attend to it, even if its `ask` follows later. Otherwise `Leave` finds the entry.
//!
//! ## Rejected
//! - A `Hold` that keeps the suspension of a process that is to end: the process is queued, attends
//!   and is refused again, and never ends.
//! - A `Hold` that looks for requests before it marks: if the `ask` of the request follows later,
//!   the next step finds no mark, and a suspended process runs.
//!
//! ## Checked by
//! `models::*`, `state::models::{ask_against_attend, terminate_of_suspended}`, `it::requests`.

use procession_sync::Mutex;

use crate::process::state::State;
use crate::util::sorted_map::SortedMap;

/// The maximum number of requests that wait for one process.
const WAITING_MAX: usize = 16;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("requests", SOUND);
    /// `hold` keeps the suspension of a process that is to end.
    pub const KEEP_SUSPENSION: u8 = 1;
    /// `hold` looks for requests before it marks.
    pub const LOOK_BEFORE_MARK: u8 = 2;
}

/// A request to a process.
pub trait TableRequest {
    /// Returns `true` if only a step can serve the request, so that it waits for the end of a
    /// suspension.
    fn waits_for_step(&self) -> bool;
}

/// The requests `Q` of all processes, with the entries `E` and the timers `T` of the suspended
/// processes.
#[derive(Debug)]
pub struct RequestTable<Q, E, T, const MUTATION: u8 = { mutation::BUILT }>(
    Mutex<RequestsBySlot<Q, E, T>>,
);

#[derive(Debug)]
struct RequestsBySlot<Q, E, T> {
    by_slot: SortedMap<u32, SlotRequests<Q, E, T>>,
    /// The number of the latest suspension.
    suspensions: u64,
}

/// What was left for one process.
#[derive(Debug)]
pub struct SlotRequests<Q, E, T> {
    generation: u32,
    waiting: Vec<Q>,
    suspension: Option<Suspension<E, T>>,
}

/// A suspension of a process.
#[derive(Debug)]
pub struct Suspension<E, T> {
    number: u64,
    /// The timer that ends it, once that is set.
    pub timer: Option<T>,
    /// The entry of the process, once it does not run.
    pub entry: Option<E>,
}

/// The refusal to hold a process.
#[derive(Debug)]
pub struct MayRun<E, T> {
    /// The entry of the process.
    pub entry: E,
    /// The timer of the suspension, if that is over because the process is to end.
    pub timer: Option<T>,
}

impl<Q, E, T, const MUTATION: u8> Default for RequestTable<Q, E, T, MUTATION> {
    fn default() -> Self {
        Self(Mutex::new(RequestsBySlot { by_slot: SortedMap::new(), suspensions: 0 }))
    }
}

impl<Q, E, T: Copy> SlotRequests<Q, E, T> {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.suspension.is_none()
    }

    /// Returns the timer of its suspension.
    pub fn timer(&self) -> Option<T> {
        self.suspension.as_ref()?.timer
    }
}

impl<Q, E, T: Copy> RequestsBySlot<Q, E, T> {
    fn of(&mut self, slot: u32, generation: u32) -> &mut SlotRequests<Q, E, T> {
        let new = || SlotRequests { generation, waiting: Vec::new(), suspension: None };
        self.by_slot.get_or_insert_with(slot, new)
    }

    /// Returns the suspension of this process, if it has this number or none is given.
    fn suspension(
        &mut self,
        slot: u32,
        generation: u32,
        number: Option<u64>,
    ) -> Option<&mut Option<Suspension<E, T>>> {
        let left = self.by_slot.get_mut(&slot).filter(|left| left.generation == generation)?;
        let found = left.suspension.as_ref()?.number;
        number.is_none_or(|number| number == found).then_some(&mut left.suspension)
    }

    fn clean(&mut self, slot: u32) {
        if self.by_slot.get(&slot).is_some_and(SlotRequests::is_empty) {
            self.by_slot.remove(&slot);
        }
    }
}

impl<Q: TableRequest, E, T: Copy, const MUTATION: u8> RequestTable<Q, E, T, MUTATION> {
    /// Leaves a request. Returns the entry of the process, if it is suspended, to be queued.
    ///
    /// # Errors
    /// Returns the request if the maximum number of requests already waits.
    pub fn leave(&self, slot: u32, generation: u32, request: Q) -> Result<Option<E>, Q> {
        let mut table = self.0.lock();
        let left = table.of(slot, generation);
        if left.waiting.len() >= WAITING_MAX {
            return Err(request);
        }
        left.waiting.push(request);
        Ok(left.suspension.as_mut().and_then(|suspension| suspension.entry.take()))
    }

    /// Takes the requests of a process. The second value is `true` if it is suspended.
    pub fn take(&self, slot: u32) -> (Vec<Q>, bool) {
        let mut table = self.0.lock();
        let Some(left) = table.by_slot.get_mut(&slot) else { return (Vec::new(), false) };
        let taken = (std::mem::take(&mut left.waiting), left.suspension.is_some());
        table.clean(slot);
        taken
    }

    /// Begins a suspension, or replaces the previous suspension. Returns the number of the new
    /// suspension, and the timer of the previous one.
    pub fn suspend(&self, slot: u32, generation: u32) -> (u64, Option<T>) {
        let mut table = self.0.lock();
        table.suspensions += 1;
        let number = table.suspensions;
        let left = table.of(slot, generation);
        let before = left.suspension.take();
        let timer = before.as_ref().and_then(|before| before.timer);
        let entry = before.and_then(|before| before.entry);
        left.suspension = Some(Suspension { number, timer: None, entry });
        (number, timer)
    }

    /// Sets the timer of a suspension. Returns `false` if the suspension is over.
    pub fn set_timer(&self, slot: u32, generation: u32, number: u64, timer: T) -> bool {
        let mut table = self.0.lock();
        let found = table.suspension(slot, generation, Some(number));
        found.and_then(Option::as_mut).map(|suspension| suspension.timer = Some(timer)).is_some()
    }

    /// Ends the suspension with this number, or any suspension of the process if no number is
    /// given. The caller queues the entry.
    pub fn release(
        &self,
        slot: u32,
        generation: u32,
        number: Option<u64>,
    ) -> Option<Suspension<E, T>> {
        let mut table = self.0.lock();
        let released = table.suspension(slot, generation, number)?.take();
        table.clean(slot);
        released
    }

    /// Takes the entry of a process that is suspended.
    ///
    /// # Errors
    /// Returns the entry if the process may run: the suspension is over, the process is to end, or
    /// a request was left.
    pub fn hold<const STATE: u8>(
        &self,
        slot: u32,
        state: &State<STATE>,
        entry: E,
    ) -> Result<(), MayRun<E, T>> {
        let mut table = self.0.lock();
        let Some(left) = table.by_slot.get_mut(&slot) else {
            return Err(MayRun { entry, timer: None });
        };
        let Some(suspension) = &mut left.suspension else {
            return Err(MayRun { entry, timer: None });
        };
        let is_served = left.waiting.iter().all(TableRequest::waits_for_step);
        if mutation::is(MUTATION, mutation::LOOK_BEFORE_MARK) && !is_served {
            return Err(MayRun { entry, timer: None });
        }
        // `Hold`
        if !state.hold() {
            if mutation::is(MUTATION, mutation::KEEP_SUSPENSION) {
                return Err(MayRun { entry, timer: None });
            }
            let timer = left.suspension.take().and_then(|suspension| suspension.timer);
            table.clean(slot);
            return Err(MayRun { entry, timer });
        }
        if !is_served {
            return Err(MayRun { entry, timer: None });
        }
        suspension.entry = Some(entry);
        Ok(())
    }

    /// Returns `true` if the process is suspended.
    pub fn is_suspended(&self, slot: u32, generation: u32) -> bool {
        self.0.lock().suspension(slot, generation, None).is_some()
    }

    /// Returns `true` if the table has the entry of the process, or is being changed.
    #[cfg(feature = "sim")]
    pub fn is_held(&self, slot: u32) -> bool {
        // A thread that does not have the turn may have the lock.
        let Some(table) = self.0.try_lock() else { return true };
        let suspension = table.by_slot.get(&slot).and_then(|left| left.suspension.as_ref());
        suspension.is_some_and(|suspension| suspension.entry.is_some())
    }

    /// Takes all that was left for a process that has ended.
    pub fn forget(&self, slot: u32) -> Option<SlotRequests<Q, E, T>> {
        self.0.lock().by_slot.remove(&slot)
    }

    /// Takes all that was left for any process.
    pub fn take_all(&self) -> impl Iterator<Item = SlotRequests<Q, E, T>> + use<Q, E, T, MUTATION> {
        std::mem::take(&mut self.0.lock().by_slot).into_values()
    }
}

#[cfg(all(test, procession_loom))]
mod models;
