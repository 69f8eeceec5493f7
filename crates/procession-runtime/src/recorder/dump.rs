//! When a trace is written to a file, because something has gone wrong.
//!
//! A request starts a thread, which copies the rings immediately and writes the file. So neither a
//! worker nor the watchdog waits for a disk.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use procession_sync::{Condvar, Mutex};

use crate::process::unwind::guarded;
use crate::recorder::snapshot::RecorderSnapshot;
use crate::scheduler::part::Part;
use crate::scheduler::section::Section;
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// The minimum time between two dumps of a scheduler, in nanoseconds.
const APART: u64 = 60_000_000_000;
/// The maximum time for which a shutdown waits for a dump.
const SETTLE_MAX: Duration = Duration::from_millis(100);
/// The nanoseconds between two looks at a dump in a simulation.
const SETTLE_LOOK: u64 = 1_000_000;

/// Where the flight recorder is written when something has gone wrong.
pub(crate) struct DumpTarget {
    pub(crate) directory: PathBuf,
    /// Writes a dump. It is named only where a directory is set, so that the linker leaves the code
    /// that writes traces out of a program that sets none.
    pub(crate) write: fn(&Shared, DumpCause) -> bool,
}

/// The reason for a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpCause {
    Stall,
    GaveUp,
    Shutdown,
    #[cfg(feature = "signal")]
    Signal,
}

impl DumpCause {
    /// Returns the word for it in the name of the file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::GaveUp => "give-up",
            Self::Shutdown => "shutdown",
            #[cfg(feature = "signal")]
            Self::Signal => "signal",
        }
    }
}

impl fmt::Display for DumpCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stall => "a step is stalled",
            Self::GaveUp => "a supervisor gave up",
            Self::Shutdown => "a shutdown has to terminate processes",
            #[cfg(feature = "signal")]
            Self::Signal => "a signal asked for it",
        })
    }
}

/// The dumps of a scheduler to files.
#[derive(Default)]
pub(crate) struct Dumps {
    pub(crate) target: Option<DumpTarget>,
    state: Mutex<DumpState>,
    /// Wakes the threads that wait for the end of a dump.
    written: Condvar,
}

#[derive(Default)]
struct DumpState {
    /// The time of the last dump.
    last: Option<u64>,
    is_writing: bool,
    written: u64,
    failed: u64,
}

impl Part for Dumps {}

impl Dumps {
    /// Returns the dumps of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Begins a dump, unless the previous dump began less than `apart` ago.
    pub(crate) fn begin(&self, now: u64, apart: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_writing || state.last.is_some_and(|last| now.saturating_sub(last) < apart) {
            return false;
        }
        (state.last, state.is_writing) = (Some(now), true);
        true
    }

    /// Ends the dump that is being written.
    pub(crate) fn end(&self, is_written: bool) {
        let mut state = self.state.lock();
        state.is_writing = false;
        state.written += u64::from(is_written);
        state.failed += u64::from(!is_written);
        self.written.notify_all();
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().is_writing
    }

    /// Waits until no dump is being written, for at most `timeout`.
    pub(crate) fn settle(&self, timeout: Duration) {
        let state = self.state.lock();
        drop(self.written.wait_timeout_while(state, timeout, |state| state.is_writing));
    }
}

impl RecorderSnapshot {
    /// Returns the figures of the recorder.
    pub(crate) fn of(shared: &Shared) -> Self {
        let dumps = Dumps::of(shared).state.lock();
        Self { bytes: shared.recorder.bytes(), dumps: dumps.written, dumps_failed: dumps.failed }
    }
}

impl Dumps {
    /// Writes a dump on another thread, if there is a directory for it and the last dump was long
    /// ago. Returns `true` if it begins.
    #[cold]
    pub(crate) fn request(shared: &Shared, cause: DumpCause) -> bool {
        let dumps = Self::of(shared);
        // A simulation repeats each failure many times.
        let has_files = shared.world.simulated().is_none_or(|os| os.keeps_files());
        let Some(write) = dumps.target.as_ref().map(|target| target.write) else {
            return false;
        };
        if !shared.recorder.is_on() || !has_files {
            return false;
        }
        let Some(strong) = shared.identity.me.upgrade() else { return false };
        let now = if shared.world.is_test() { World::real_now() } else { shared.world.now() };
        if !dumps.begin(now, APART) {
            return false;
        }
        let name = format!("dump-{}", shared.name());
        let started = shared.world.start_thread(name, move || {
            // A panic is a mistake in the recorder. Without the end, no other dump would begin.
            let written = guarded(|| write(&strong, cause)).unwrap_or(false);
            Self::of(&strong).end(written);
        });
        if started.is_err() {
            dumps.end(false);
        }
        started.is_ok()
    }

    /// Waits until the dump that is being written is there, for a short time, at the end of a
    /// shutdown with this deadline.
    pub(crate) fn settle_by(shared: &Shared, deadline: u64) {
        if !Self::of(shared).is_writing() {
            return;
        }
        // The test clock says nothing about files.
        let left = match shared.world.is_test() {
            true => SETTLE_MAX,
            false => {
                Duration::from_nanos(deadline.saturating_sub(shared.world.now())).min(SETTLE_MAX)
            }
        };
        let _section = Section::enter();
        if shared.world.simulated().is_none() {
            return Self::of(shared).settle(left);
        }
        // The thread that writes is a simulated one, which needs a turn.
        let until = shared.world.now().saturating_add(crate::sys::nanoseconds(left));
        while Self::of(shared).is_writing() && shared.world.now() < until {
            shared.world.rest(SETTLE_LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::{DumpCause, DumpTarget, Dumps};
    use crate::Scheduler;
    use crate::recorder::snapshot::RecorderSnapshot;

    #[test]
    fn dumps_are_one_at_a_time_and_apart() {
        let dumps = Dumps::default();
        assert!(dumps.begin(5, 10), "the first may come at any time");
        assert!(dumps.is_writing() && !dumps.begin(50, 10));
        dumps.end(true);
        assert!(!dumps.is_writing() && !dumps.begin(14, 10) && dumps.begin(15, 10));
    }

    #[test]
    fn a_dump_that_panics_has_failed() {
        let mut builder = Scheduler::builder().worker_threads(1).callers_drive();
        let dumps = builder.parts.get_mut::<Dumps>().expect("each builder has it");
        let write = |_: &_, _| resume_unwind(Box::new("in a dump"));
        dumps.target = Some(DumpTarget { directory: PathBuf::new(), write });
        let scheduler = builder.build().expect("it starts no thread");
        let shared = scheduler.shared();
        assert!(Dumps::request(shared, DumpCause::Stall));
        Dumps::of(shared).settle(Duration::from_secs(60));
        let figures = RecorderSnapshot::of(shared);
        assert_eq!((figures.dumps, figures.dumps_failed), (0, 1));
    }
}
