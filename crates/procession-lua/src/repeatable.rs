//! Runs of a program that can be repeated: the same seed makes the same run.

use std::sync::OnceLock;
use std::time::Duration;

use mlua::{Lua, Table};
use procession::time::Instant;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

/// A run of a program on the test clock or in a simulation, which its processes share.
#[derive(Debug)]
pub(crate) struct RepeatableRun {
    seed: u64,
    /// The time when its first state was opened.
    began: OnceLock<Instant>,
    /// The number of Lua states that the run has opened.
    states: AtomicU64,
    /// The number of steps that its processes may still perform.
    steps_left: AtomicU64,
}

impl RepeatableRun {
    pub(crate) fn new(seed: u64, steps_max: u64) -> Self {
        Self {
            seed,
            began: OnceLock::new(),
            states: AtomicU64::new(0),
            steps_left: AtomicU64::new(steps_max),
        }
    }

    /// Makes the random numbers and the order of tables of a new state repeatable.
    pub(crate) fn prepare(&self, lua: &Lua, own: &Table) -> mlua::Result<()> {
        self.began.get_or_init(Instant::now);
        // Relaxed, here and below: the run is on one thread, or on threads of a simulation, which
        // take turns.
        let number = self.states.fetch_add(1, Relaxed);
        let chunk = lua.load(include_str!("lua/repeatable.lua")).set_name("=procession");
        chunk.call((self.seed.cast_signed(), number.cast_signed(), own))
    }

    /// Returns the time since the run began, on its clock.
    pub(crate) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(*self.began.get_or_init(Instant::now))
    }

    /// Takes one of the steps. Returns `false` if none is left. The clock stands still while a
    /// process computes, so an endless computation is found by the number of its steps.
    pub(crate) fn take_step(&self) -> bool {
        let left = self.steps_left.load(Relaxed);
        self.steps_left.store(left.saturating_sub(1), Relaxed);
        left > 0
    }
}
