//! Threads: their numbers, what they do, the processors that they run on, and when they wake.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

pub(in crate::sys) use super::thread_clock::processor_time;
use crate::sys::os::{self, RunState};

/// Returns the system's number for the calling thread.
pub(in crate::sys) fn number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Returns `true` on the main thread.
pub(in crate::sys) fn is_main() -> bool {
    number() == std::process::id()
}

/// The system's file about one thread of this program. It can be read any number of times, even if
/// no file descriptors are left.
#[derive(Debug)]
pub(crate) struct ThreadFile(File);

impl ThreadFile {
    /// Opens the file, which takes a descriptor. Returns `None` if no descriptor is left, there is
    /// no `/proc`, or the thread is one of a simulated system.
    pub(crate) fn open(thread: u32) -> Option<Self> {
        if os::here().is_some() {
            return None;
        }
        File::open(format!("/proc/self/task/{thread}/stat")).ok().map(Self)
    }

    /// Returns the activity of the thread, or `None` if the thread has ended.
    pub(crate) fn state(&self) -> Option<RunState> {
        /// More than the file contains, so one call returns the whole file.
        const SIZE: usize = 1024;
        let text = &mut [0; SIZE];
        let count = self.0.read_at(text, 0).ok()?;
        state_in(&text[..count])
    }
}

/// Returns the state in the text of a `stat` file.
fn state_in(text: &[u8]) -> Option<RunState> {
    // The name before it may contain anything, including parentheses.
    let name_ends = text.windows(2).rposition(|pair| pair == b") ")?;
    match text.get(name_ends + 2)? {
        b'S' | b'D' => Some(RunState::Waits),
        b'R' => Some(RunState::Runs),
        _ => Some(RunState::Stopped),
    }
}

/// The processors that threads may run on.
#[derive(Clone)]
pub(crate) struct Cpus(rustix::thread::CpuSet);

impl Cpus {
    /// The number of processors that can be named.
    pub(crate) const LIMIT: usize = rustix::thread::CpuSet::MAX_CPU;

    /// Binds the calling thread to the processor that it runs on. Threads that it starts from now
    /// on are bound to the same processor.
    #[cfg(feature = "sim")]
    pub(crate) fn bind_to_one() -> io::Result<()> {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(rustix::thread::sched_getcpu());
        Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
    }

    /// Selects the given processors that this program may use, or returns `None` if there are none.
    /// All numbers must be below the limit.
    pub(crate) fn allowed_of(numbers: &[usize]) -> io::Result<Option<Self>> {
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let mut cpus = rustix::thread::CpuSet::new();
        numbers
            .iter()
            .filter(|&&number| allowed.is_set(number))
            .for_each(|&number| cpus.set(number));
        Ok((cpus.count() > 0).then_some(Self(cpus)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count() as usize
    }

    /// Lets the calling thread run on these processors only.
    pub(crate) fn bind_this_thread(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }
}

thread_local! {
    /// The original timer slack of this thread, once it has been changed.
    static SLACK_BEFORE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Asks the system, once per thread, to wake this thread at its deadline. Without this, the system
/// wakes a thread up to 50 us late to save wake-ups, and a thread that keeps the time of many
/// processes must be more precise.
pub(in crate::sys) fn wake_precisely() {
    if SLACK_BEFORE.get().is_none() {
        // If the system refuses, deadlines are met a little later.
        SLACK_BEFORE.set(Some(rustix::thread::current_timer_slack().unwrap_or(0)));
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    }
}

/// A thread that may belong to the user. Dropping this restores the timer slack of the thread.
pub(crate) struct LentThread;

impl Drop for LentThread {
    fn drop(&mut self) {
        if let Some(before) = SLACK_BEFORE.take() {
            // If the system refuses, the thread keeps the precise slack. A slack of 0 means the
            // slack that its parent had.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RunState, ThreadFile, state_in};
    use crate::sys::World;

    #[test]
    fn the_state_of_a_thread_is_found_whatever_its_name() {
        assert_eq!(state_in(b"7 (a) R (b) c) S 1 2 3"), Some(RunState::Waits));
        assert_eq!(state_in(b"7 () D 1"), Some(RunState::Waits));
        assert_eq!(state_in(b"7 (x) R 1"), Some(RunState::Runs));
        assert_eq!(state_in(b"7 (x) t 1"), Some(RunState::Stopped));
        assert_eq!(state_in(b"7 (x) "), None);
        assert_eq!(state_in(b""), None);
    }

    #[test]
    fn the_file_of_a_thread_is_read_again_and_again_until_the_thread_has_ended() {
        let this = ThreadFile::open(World::thread_number()).expect("the system has descriptors");
        assert_eq!((this.state(), this.state()), (Some(RunState::Runs), Some(RunState::Runs)));
        let opened = std::thread::scope(|scope| {
            let other = scope.spawn(|| ThreadFile::open(World::thread_number()));
            other.join().expect("it does not panic")
        });
        // The remains of a thread that was joined may stay for a moment.
        let ended = opened.expect("the system has descriptors");
        while ended.state().is_some() {
            std::thread::yield_now();
        }
    }
}
