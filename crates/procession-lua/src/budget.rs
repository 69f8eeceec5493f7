//! Bounds the time that a guest computes: within one step, and where it cannot be suspended.
//!
//! Lua calls a hook after each period of instructions. The hook suspends the process once its step
//! has used up its instructions or its time. It cannot do so inside of some C functions. There, it
//! ends the process once the process was terminated or has exceeded its limit. An `upgrade` that
//! exceeds the limit gets an error first, which the program can catch, because the process
//! continues if the upgrade fails.
//!
//! The limit counts processor time, because a thread that has to wait for a processor computes
//! nothing. So it does not bound a thread that waits for anything else. This is not needed, because
//! the library never waits where it cannot suspend the process: there, a function that waits raises
//! an error, and `print` fails once its buffer is full. The only exception is a system that refuses
//! the thread of an output (`output.rs`).
//!
//! An instruction can take milliseconds, for example if it compares strings of many megabytes. The
//! hook therefore adapts its period, so that it is called about once a millisecond.

use std::time::Duration;

use mlua::Lua;
use procession::machine::{is_awaited, is_terminated, processor_time};
use procession::time::Instant;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::inbox::Inbox;
use crate::interrupt::{self, Asked, CAUSE, Verdict};

/// The number of instructions after which a process ends if it could not be suspended since. They
/// take some hundred milliseconds.
const OVERRUN_MAX: u64 = 10_000_000;
/// The processor time in nanoseconds after which such a process ends, because an instruction can be
/// slow.
const OVERRUN_NANOS: u64 = 1_000_000_000;
/// The longest period of the hook in instructions. Shorter periods cost programs measurable time.
const PERIOD_MAX: u64 = 1000;
/// The bytes of a state up to which the hook has that period. In a larger state, one instruction
/// can take longer, so the period is shorter.
const SMALL_STATE: usize = 4 << 20;
/// The time in nanoseconds between two calls of the hook that it aims at.
const AIM: u64 = 1_000_000;
/// The time in nanoseconds after which a step ends.
const STEP_NANOS: u64 = 2_000_000;

/// The record of a process: how far its step has progressed, if it must end for exceeding a limit,
/// if it has printed, and what it has not received.
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
    /// The time when the process began, where times begin.
    origin: Instant,
    /// The times when this step began, and when the hook was last called.
    began: AtomicU64,
    looked: AtomicU64,
    /// `true` if the process should have been suspended in this step. If the hook finds this set,
    /// the process could not be suspended.
    asked: AtomicBool,
    /// The processor time at which the hook has first found it set, and the time at which
    /// [`OVERRUN_NANOS`] may have passed since. They are 0 until then.
    overrun_from: AtomicU64,
    overrun_at: AtomicU64,
    /// `true` if code that exceeds its limit gets an error first.
    lenient: AtomicBool,
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
            overrun_from: AtomicU64::new(0),
            overrun_at: AtomicU64::new(0),
            lenient: AtomicBool::new(false),
            doomed: AtomicBool::new(false),
            printed: AtomicBool::new(false),
            memory_bytes: AtomicUsize::new(usize::MAX),
            started: AtomicBool::new(false),
            inbox: Inbox::default(),
        }
    }

    /// Returns this budget for another state of the process that has `other`. The process began
    /// before.
    pub(crate) fn after(self, other: &Self) -> Self {
        let budget = Self { origin: other.origin, ..self };
        budget.renew();
        budget
    }

    /// Begins a step.
    pub(crate) fn renew(&self) {
        let now = self.now();
        self.began.store(now, Relaxed);
        self.looked.store(now, Relaxed);
        self.spent.store(0, Relaxed);
        self.asked.store(false, Relaxed);
        self.overrun_at.store(0, Relaxed);
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

    /// Sets whether code that exceeds its limit gets an error first, which it can catch. It gets
    /// one such error, and must end if it exceeds the limit again.
    pub(crate) fn set_lenient(&self, lenient: bool) {
        self.lenient.store(lenient, Relaxed);
    }

    /// Allows what only a process may do, such as a spawn.
    pub(crate) fn set_started(&self) {
        self.started.store(true, Relaxed);
    }

    /// Returns the time since the process began.
    pub(crate) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.origin)
    }

    fn now(&self) -> u64 {
        nanos(self.age())
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
    /// limit, and at least a quarter of the limit, because much of the state may be garbage.
    pub(crate) fn allowance(&self, lua: &Lua) -> usize {
        let limit = self.memory_bytes();
        limit.saturating_sub(lua.used_memory()).max(limit / 4)
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed.load(Relaxed)
    }

    /// Returns `true` if the step should end: it has used up its instructions or its time, or
    /// somebody waits for its worker.
    pub(crate) fn is_due(&self) -> bool {
        self.spent.load(Relaxed) >= self.instructions
            || self.now().saturating_sub(self.began.load(Relaxed)) >= STEP_NANOS
            || is_awaited()
            || is_terminated()
    }

    /// Counts work as if it were instructions. Returns `true` if the process should be suspended.
    ///
    /// # Errors
    /// If the process cannot be suspended and should end, returns an error.
    pub(crate) fn spend(
        &self,
        lua: &Lua,
        work: u64,
        can_yield: bool,
    ) -> Result<bool, &'static str> {
        self.count(work);
        if !self.is_due() {
            return Ok(false);
        }
        if can_yield {
            return Ok(true);
        }
        self.asked.store(true, Relaxed);
        if self.overruns(lua) {
            self.end_thread(lua);
            return Err(CAUSE);
        }
        Ok(false)
    }

    /// Returns `true` if the code that runs must fail: the process must end, or could not be
    /// suspended within the limit.
    fn overruns(&self, lua: &Lua) -> bool {
        if self.is_doomed() {
            return true;
        }
        let overrun = self.asked.load(Relaxed)
            && (self.spent.load(Relaxed) >= OVERRUN_MAX
                || is_terminated()
                || self.has_computed_too_long());
        if !overrun {
            return false;
        }
        if self.lenient.swap(false, Relaxed) && !is_terminated() {
            // What handles the error may take as long as the code that has failed.
            self.renew();
            return true;
        }
        self.doomed.store(true, Relaxed);
        // Each error takes memory. If there were none left, each would first collect all garbage.
        // Ignored: there is a limit, so it can be replaced.
        lua.set_memory_limit(usize::MAX).ok();
        // It is stopped while a program is loaded.
        lua.gc_restart();
        true
    }

    /// Returns `true` if the process has computed for [`OVERRUN_NANOS`] since the first call in
    /// this step.
    ///
    /// Processor time passes no faster than time. So this asks for it only once the limit may be
    /// reached, because the system calls cost a good part of a period of the hook.
    fn has_computed_too_long(&self) -> bool {
        let now = self.now();
        let used = || processor_time().map_or(now, nanos);
        let at = self.overrun_at.load(Relaxed);
        let left = if at == 0 {
            self.overrun_from.store(used(), Relaxed);
            OVERRUN_NANOS
        } else if now < at {
            return false;
        } else {
            OVERRUN_NANOS.saturating_sub(used().saturating_sub(self.overrun_from.load(Relaxed)))
        };
        self.overrun_at.store(now.saturating_add(left), Relaxed);
        left == 0
    }

    /// If the process must end, lets each further instruction of the current Lua thread fail,
    /// including the instructions of handlers of errors. Returns `true` if the process must end.
    ///
    /// Each thread has a separate hook. The code that has resumed a thread therefore calls this
    /// before it continues.
    pub(crate) fn end_thread(&self, lua: &Lua) -> bool {
        let is_doomed = self.is_doomed();
        if is_doomed {
            self.set_hook(lua);
        }
        is_doomed
    }

    /// Adapts the period to the time that the last one took.
    fn adapt(&self, lua: &Lua) {
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
        self.period.store(next.clamp(1, longest), Relaxed);
    }

    /// Calls the hook at the next instruction if the last call was long ago. This is for work in
    /// Rust, which the hook does not count.
    pub(crate) fn note_work(&self, lua: &Lua) {
        let is_long = self.now().saturating_sub(self.looked.load(Relaxed)) >= 2 * AIM;
        if is_long && !self.is_doomed() && self.period.swap(1, Relaxed) != 1 {
            self.set_hook(lua);
        }
    }

    /// Sets the hook of the current Lua thread, and of the threads that are created in it from now
    /// on.
    pub(crate) fn set_hook(&self, lua: &Lua) {
        interrupt::set(lua, self.period());
    }
}

impl Asked for Budget {
    /// Looks at the process after this number of instructions.
    fn look(&self, lua: &Lua, instructions: u32) -> Verdict {
        self.count(instructions.into());
        let must_end = self.is_doomed();
        if self.overruns(lua) {
            return if must_end { Verdict::End } else { Verdict::Fail };
        }
        if !self.has_started() && !lua.gc_is_running() {
            lua.gc_restart();
        }
        self.adapt(lua);
        if self.is_due() {
            self.asked.store(true, Relaxed);
            return Verdict::Suspend;
        }
        Verdict::Continue
    }

    /// Returns the instructions between two calls of the hook. In a process that must end, each
    /// instruction fails.
    fn period(&self) -> u32 {
        if self.is_doomed() {
            return 1;
        }
        u32::try_from(self.period.load(Relaxed)).unwrap_or(u32::MAX)
    }

    /// Begins the time of a period.
    fn note_look(&self) {
        self.looked.store(self.now(), Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the longest period of the hook in a state of `bytes`.
fn longest_period(bytes: usize) -> u64 {
    PERIOD_MAX * SMALL_STATE as u64 / bytes.max(SMALL_STATE) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use mlua::Lua;
    use procession::time::Instant;

    use super::{Asked, Budget, OVERRUN_NANOS, Verdict};

    const LIMIT: Duration = Duration::from_nanos(OVERRUN_NANOS);

    /// Returns the budget of a process that was asked to suspend, and was not suspended.
    fn unsuspended(lua: &Lua) -> Budget {
        let budget = Budget::new(1000);
        budget.renew();
        for _ in 0..2 {
            assert!(matches!(budget.look(lua, 1000), Verdict::Suspend));
        }
        budget
    }

    fn in_process(test: impl FnOnce() + Send + 'static) {
        let ended = procession::run(async { procession::spawn(async move { test() }).await });
        ended.expect("it does not panic");
    }

    #[test]
    fn a_thread_that_has_no_processor_uses_up_nothing() {
        in_process(|| {
            let lua = Lua::new();
            let budget = unsuspended(&lua);
            let (_silent, silence) = mpsc::channel::<()>();
            // Nobody sends.
            silence.recv_timeout(LIMIT).expect_err("the time passes");
            assert!(matches!(budget.look(&lua, 1), Verdict::Suspend));
        });
    }

    #[test]
    fn a_process_that_is_not_suspended_ends_by_the_time_that_it_computes() {
        in_process(|| {
            let lua = Lua::new();
            let budget = unsuspended(&lua);
            let began = Instant::now();
            while !matches!(budget.look(&lua, 0), Verdict::Fail) {
                std::hint::spin_loop();
            }
            assert!(began.elapsed() >= LIMIT / 2, "{:?}", began.elapsed());
            assert!(matches!(budget.look(&lua, 0), Verdict::End));
        });
    }
}
