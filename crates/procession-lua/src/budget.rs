//! Bounds the time that a guest computes: within one step, and where it cannot be suspended.
//!
//! Lua calls a hook after each period of instructions. The hook suspends the process once its step
//! has used up its instructions or its time. It cannot do so inside of some C functions. There, it
//! ends the process once that was terminated, or has computed for too long.
//!
//! An instruction can take milliseconds, for example if it compares strings of many megabytes. The
//! hook therefore adapts its period, so that it is called about once a millisecond.

use std::sync::Arc;

use mlua::{HookTriggers, Lua, VmState};
use procession::machine::is_terminated;
use procession::time::Instant;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::frame;
use crate::guest::Inbox;

/// The number of instructions after which a process ends if it could not be suspended since. They
/// take some hundred milliseconds.
const OVERRUN_MAX: u64 = 10_000_000;
/// The time in nanoseconds after which such a process ends, since an instruction can be slow.
const OVERRUN_NANOS: u64 = 1_000_000_000;
/// The longest period of the hook in instructions. Shorter ones cost programs measurable time.
const PERIOD_MAX: u64 = 1000;
/// The bytes of a state up to which the hook has that period. In a larger state, one instruction
/// can take longer, so the period is shorter.
const SMALL_STATE: usize = 4 << 20;
/// The time in nanoseconds between two calls of the hook that it aims at.
const AIM: u64 = 1_000_000;
/// The time in nanoseconds after which a step ends.
const STEP_NANOS: u64 = 2_000_000;

/// The record of a process: how far its step has come, if it must end for exceeding a limit, if it
/// has printed, and what it has not received.
///
/// All accesses are relaxed: the process runs on one thread at a time, and the scheduler hands it
/// over.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The instructions after which a step ends.
    instructions: u64,
    /// The instructions between two calls of the hook.
    period: AtomicU64,
    /// The instructions of this step.
    spent: AtomicU64,
    /// The instructions that were not charged as steps yet.
    unpaid: AtomicU64,
    /// Where times begin.
    origin: Instant,
    /// The times when this step began, and when the hook was last called.
    began: AtomicU64,
    looked: AtomicU64,
    /// `true` if the process should have been suspended in this step. If the hook finds this set,
    /// the process could not be suspended.
    asked: AtomicBool,
    doomed: AtomicBool,
    printed: AtomicBool,
    /// The limit of the memory of the Lua state, in bytes.
    memory_bytes: AtomicUsize,
    /// `true` once the function of the process has been found, and may run. Before, code of the
    /// program runs on the stack of its spawner.
    started: AtomicBool,
    pub(crate) inbox: Inbox,
}

impl Budget {
    pub(crate) fn new(instructions: u32) -> Self {
        let instructions = u64::from(instructions);
        Self {
            instructions,
            period: AtomicU64::new(instructions.min(PERIOD_MAX)),
            spent: AtomicU64::new(0),
            unpaid: AtomicU64::new(0),
            origin: Instant::now(),
            began: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            doomed: AtomicBool::new(false),
            printed: AtomicBool::new(false),
            memory_bytes: AtomicUsize::new(usize::MAX),
            started: AtomicBool::new(false),
            inbox: Inbox::default(),
        }
    }

    /// Begins a step.
    pub(crate) fn renew(&self) {
        let now = self.now();
        self.began.store(now, Relaxed);
        self.looked.store(now, Relaxed);
        self.spent.store(0, Relaxed);
        self.asked.store(false, Relaxed);
    }

    fn count(&self, instructions: u64) {
        self.spent.fetch_add(instructions, Relaxed);
        self.unpaid.fetch_add(instructions, Relaxed);
    }

    /// Returns the steps that the instructions since the last call are worth. One step may have the
    /// work of many if it could not be suspended.
    pub(crate) fn take_steps(&self) -> u64 {
        self.unpaid.swap(0, Relaxed) / self.instructions
    }

    /// Takes over what another state of the process has not been charged for yet.
    pub(crate) fn take_over(&self, other: &Self) {
        self.unpaid.fetch_add(other.unpaid.swap(0, Relaxed), Relaxed);
    }

    /// Lets the process continue although some code of it had to end. That code has failed, and is
    /// not resumed.
    pub(crate) fn restore(self: &Arc<Self>, lua: &Lua) -> mlua::Result<()> {
        if !self.doomed.swap(false, Relaxed) {
            return Ok(());
        }
        lua.set_memory_limit(self.memory_bytes())?;
        self.set_hook(lua)
    }

    /// Allows what only a process may do, such as a spawn.
    pub(crate) fn set_started(&self) {
        self.started.store(true, Relaxed);
    }

    fn now(&self) -> u64 {
        let nanos = Instant::now().saturating_duration_since(self.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Relaxed)
    }

    pub(crate) fn has_printed(&self) -> bool {
        self.printed.load(Relaxed)
    }

    pub(crate) fn note_printed(&self) {
        self.printed.store(true, Relaxed);
    }

    /// Limits the memory of the state.
    pub(crate) fn limit_memory(&self, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        self.memory_bytes.store(bytes, Relaxed);
        lua.set_memory_limit(bytes).map(drop)
    }

    /// Returns the limit of the memory of the state in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Relaxed)
    }

    /// Returns the number of bytes that the host may hold for the process: the rest of its memory
    /// limit, and at least a quarter of it, since much of the state may be garbage.
    pub(crate) fn allowance(&self, lua: &Lua) -> usize {
        let limit = self.memory_bytes();
        limit.saturating_sub(lua.used_memory()).max(limit / 4)
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed.load(Relaxed)
    }

    /// Returns `true` if the step should end.
    pub(crate) fn is_due(&self) -> bool {
        self.spent.load(Relaxed) >= self.instructions
            || self.now().saturating_sub(self.began.load(Relaxed)) >= STEP_NANOS
            || is_terminated()
    }

    /// Counts work as if it were instructions. Returns `true` if the process should be suspended.
    ///
    /// # Errors
    /// If the process cannot be suspended and must end, returns an error.
    pub(crate) fn spend(&self, lua: &Lua, work: u64, can_yield: bool) -> mlua::Result<bool> {
        self.count(work);
        if !self.is_due() {
            return Ok(false);
        }
        if can_yield {
            return Ok(true);
        }
        self.asked.store(true, Relaxed);
        self.end_overrun(lua).map(|()| false)
    }

    /// Ends the process if it could not be suspended for too long.
    fn end_overrun(&self, lua: &Lua) -> mlua::Result<()> {
        let overrun = self.asked.load(Relaxed)
            && (self.spent.load(Relaxed) >= OVERRUN_MAX
                || is_terminated()
                || self.now().saturating_sub(self.began.load(Relaxed)) >= OVERRUN_NANOS);
        if overrun && !self.doomed.swap(true, Relaxed) {
            // Each error takes memory. If there were none left, each would first collect all
            // garbage.
            lua.set_memory_limit(usize::MAX)?;
            // It is stopped while a program is loaded.
            lua.gc_restart();
        }
        if self.end_thread(lua)? { Err(doom()) } else { Ok(()) }
    }

    /// If the process must end, lets each further instruction of the current Lua thread fail, also
    /// those of handlers of errors. Returns `true` if the process must end.
    ///
    /// Each thread has a hook of its own. The code that has resumed a thread therefore calls this
    /// before it goes on.
    pub(crate) fn end_thread(&self, lua: &Lua) -> mlua::Result<bool> {
        let is_doomed = self.is_doomed();
        if is_doomed {
            fail_each(lua)?;
        }
        Ok(is_doomed)
    }

    fn look(self: &Arc<Self>, lua: &Lua) -> mlua::Result<VmState> {
        self.count(self.period.load(Relaxed));
        self.end_overrun(lua)?;
        if !self.has_started() && !lua.gc_is_running() {
            lua.gc_restart();
        }
        self.adapt(lua)?;
        if self.is_due() {
            self.asked.store(true, Relaxed);
            return Ok(VmState::Yield);
        }
        Ok(VmState::Continue)
    }

    /// Adapts the period to the time that the last one took.
    fn adapt(self: &Arc<Self>, lua: &Lua) -> mlua::Result<()> {
        let (now, period) = (self.now(), self.period.load(Relaxed));
        let took = now.saturating_sub(self.looked.swap(now, Relaxed));
        let longest = longest_period(lua.used_memory()).min(self.instructions);
        let next = if took > 2 * AIM {
            (u128::from(period) * u128::from(AIM) / u128::from(took)) as u64
        } else if took < AIM / 8 {
            period * 2
        } else {
            period
        };
        let next = next.clamp(1, longest);
        if next == period {
            return Ok(());
        }
        self.period.store(next, Relaxed);
        self.set_hook(lua)
    }

    /// Calls the hook at the next instruction if the last call was long ago. This is for work in
    /// Rust, which the hook does not count.
    pub(crate) fn note_work(self: &Arc<Self>, lua: &Lua) -> mlua::Result<()> {
        let is_long = self.now().saturating_sub(self.looked.load(Relaxed)) >= 2 * AIM;
        if !is_long || self.is_doomed() || self.period.swap(1, Relaxed) == 1 {
            return Ok(());
        }
        self.set_hook(lua)
    }

    /// Sets the hook of the current Lua thread, and of those that are created from now on.
    pub(crate) fn set_hook(self: &Arc<Self>, lua: &Lua) -> mlua::Result<()> {
        let period = u32::try_from(self.period.load(Relaxed)).unwrap_or(u32::MAX);
        let budget = Arc::clone(self);
        let triggers = HookTriggers::new().every_nth_instruction(period);
        lua.set_global_hook(triggers, move |lua, _| {
            budget.look(lua).or_else(|cause| raise(lua, cause))
        })
    }
}

/// Returns the longest period of the hook in a state of `bytes`.
fn longest_period(bytes: usize) -> u64 {
    PERIOD_MAX * SMALL_STATE as u64 / bytes.max(SMALL_STATE) as u64
}

/// Lets each instruction of the current Lua thread fail, and those of another one from the next
/// call of its hook on.
fn fail_each(lua: &Lua) -> mlua::Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(1);
    lua.set_global_hook(triggers, |lua, _| {
        let again = fail_each(lua);
        raise(lua, again.err().unwrap_or_else(doom))
    })
}

/// Returns an error from a hook. The function that was running does not close its variables, since
/// Lua would call their handlers inside of the hook.
fn raise(lua: &Lua, cause: mlua::Error) -> mlua::Result<VmState> {
    frame::clear(lua);
    Err(cause)
}

fn doom() -> mlua::Error {
    mlua::Error::runtime("the process computed for too long where it cannot be suspended")
}
