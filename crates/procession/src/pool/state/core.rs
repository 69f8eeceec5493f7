//! The state of a pool under its lock.

use std::collections::{BTreeMap, VecDeque};

use procession_sync::{Mutex, lock_with_backoff};

use super::mutation;
use super::picture::{Limits, Totals};
use super::queue::Queue;
use super::synced::State;
use super::wakes::Wakes;
use crate::scheduler::driver::NEVER;
use crate::sync::wait_list::Waiters;

/// On cache lines of its own: beside it, its pool is counted by each worker that starts.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Core<J, const MUTATION: u8 = { mutation::SOUND }> {
    state: Mutex<State<J>>,
    /// Whether who finds the state locked looks away for a while.
    backs_off: bool,
}

impl<J, const MUTATION: u8> Core<J, MUTATION> {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            open: true,
            generation: 0,
            live: 0,
            leaving: 0,
            inline: 0,
            idle: VecDeque::new(),
            uneven: false,
            retries: false,
            reap_at: NEVER,
            queue: Queue { entries: VecDeque::new(), jobs: 0 },
            last_ticket: 0,
            reserved: 0,
            waiters: Waiters::new(),
            waiting: 0,
            blocked: BTreeMap::new(),
            joins: Vec::new(),
            watchers: BTreeMap::new(),
            totals: Totals::default(),
        };
        Self { state: Mutex::new(state), backs_off: limits.threads }
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&mut State<J>) -> R) -> R {
        let locked = if self.backs_off { lock_with_backoff(&self.state) } else { self.state.lock() };
        look(&mut locked.expect("nothing that can panic runs under this lock"))
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<J>, &mut Wakes<J>) -> R) -> (R, Wakes<J>) {
        let mut wakes = Wakes::default();
        let result = self.look(|state| change(state, &mut wakes));
        (result, wakes)
    }
}
