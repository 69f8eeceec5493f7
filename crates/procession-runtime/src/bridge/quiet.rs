//! Whether anything is on its way that no queue of the scheduler shows.
//!
//! The test clock may move once everything in the scheduler and in its paused runtime waits. Work
//! may still be on its way outside of both, if the program has sockets or libraries with threads of
//! their own. The worker that would move the clock therefore waits until these are quiet:
//!
//! - nothing of the scheduler and of its runtime has run between two looks, in which the worker has
//!   polled both for events of descriptors;
//! - every socket that a process waits for listens, or its other end belongs to this program. For
//!   any other descriptor the clock stands still, because the outside has its own time;
//! - the system has delivered all that was sent between sockets of this program;
//! - all threads of the program sleep, except the threads that work for a scheduler on a test
//!   clock, and no other thread has run between two looks.
//!
//! No time has to pass between the looks. At the first look, everything sleeps that could send, and
//! all that was sent is with its receiver. So the polls after it find what is there to receive. If
//! they find nothing, and nobody has run at the second look, nothing can come any more.
//!
//! The last two conditions are dropped after [`PATIENCE`], because the program may have threads
//! that never rest, such as other tests. A thread that has run for so long is ignored until it
//! rests. Without `/proc`, no look sees them, and [`QUIET`] of real time has to pass instead. A
//! long time between two looks counts as [`GAP`].
//!
//! If processes wait only for other processes, the program is quiet immediately. Traces show
//! whether libraries have threads that work for its processes: tokio has tasks, another thread has
//! woken a process, or the number of threads has changed since the last look.
//!
//! What the worker cannot see is a socket of tokio's with another program at its other end. While a
//! task waits for it, the clock moves.

use std::time::Duration;

use procession_protocols::util::sorted_map::SortedSet;

use super::program::{self, SeenThread, Sockets};
use crate::scheduler::part::SeenScheduler;
use crate::sys::system::HAS_PROC;
use crate::sys::{World, nanoseconds};

/// The real time for which nothing has run, if threads and sockets cannot be seen. It is far longer
/// than two looks of a worker, and short enough for a test in which the clock moves a thousand
/// times.
const QUIET: Duration = if HAS_PROC { Duration::ZERO } else { Duration::from_millis(2) };

/// The real time after which threads that run, and sockets that send, are taken to be none of the
/// test's business.
const PATIENCE: Duration = Duration::from_millis(250);

/// The time between two looks counts for at most this long. Looks follow far sooner, unless the
/// system keeps this worker from running. In that case the system may have kept the other threads
/// from running as well, and their silence proves nothing.
const GAP: Duration = Duration::from_millis(5);

/// What a paused runtime has done.
#[derive(Clone, Copy)]
pub(super) struct TokioUse {
    /// A number that changes with each run of a task or a block-on future.
    pub(super) activity: u64,
    /// A number that changes each time that its tasks run and its descriptors are polled.
    pub(super) drives: u64,
    /// Set if libraries may have threads and sockets that work for the processes.
    pub(super) is_used: bool,
}

/// The beginning of a quiet time, as the last look has found it.
#[derive(Default)]
pub(super) struct QuietSince {
    /// Changes with each step, each task and each block-on future.
    print: u64,
    /// [`TokioUse::drives`] at the last look.
    drives: u64,
    /// For how long it lasts, without what [`GAP`] leaves out.
    lasts: u64,
    /// The real time of the last look, or 0 before the first.
    looked: u64,
    /// The threads at the last look, all of which slept.
    asleep: Option<Vec<SeenThread>>,
    /// The threads that never rest.
    ignored: SortedSet<u32>,
    /// The number of threads when all was quiet for the last time.
    thread_count: u64,
}

/// Returns `true` if nothing is on its way, as far as can be seen. The caller is a worker that has
/// found every seat parked, and looks again soon if not.
pub(super) fn is_quiet(quiet: &mut QuietSince, tokio: TokioUse, seen: &SeenScheduler<'_>) -> bool {
    let thread_count = program::thread_count();
    let is_closed = !seen.waits_for_descriptors && !tokio.is_used;
    if is_closed && thread_count == quiet.thread_count {
        return true;
    }
    let print = tokio.activity.wrapping_add((seen.steps)());
    if !quiet.is_silent(print, tokio.drives, World::real_now()) {
        return false;
    }
    // Before the sockets, so that what a thread has sent before it slept is seen there.
    let threads = program::threads();
    let sockets = Sockets::look();
    if seen.waits_for_descriptors
        && (seen.any_waited_for)(&|descriptor| !sockets.are_inside(descriptor))
    {
        return false;
    }
    let is_over = quiet.look(threads, sockets.are_busy());
    if is_over {
        quiet.thread_count = thread_count;
    }
    is_over
}

impl QuietSince {
    /// Returns `true` if it is time to look at what is outside of the scheduler: nothing of it has
    /// run since the last call, and nothing was there to receive.
    fn is_silent(&mut self, print: u64, drives: u64, now: u64) -> bool {
        let is_same = self.print == print && self.looked != 0;
        if is_same && self.drives == drives {
            return false;
        }
        self.drives = drives;
        if is_same {
            self.lasts += now.saturating_sub(self.looked).min(nanoseconds(GAP));
        } else {
            (self.print, self.lasts, self.asleep) = (print, 0, None);
        }
        self.looked = now;
        is_same && self.lasts >= nanoseconds(QUIET)
    }

    /// Returns `true` if this look has seen the same as the last one: threads that sleep, and
    /// sockets that send nothing.
    fn look(&mut self, threads: Vec<SeenThread>, are_sockets_busy: bool) -> bool {
        let rests = |number: &u32| threads.iter().any(|it| it.number == *number && !it.is_running);
        self.ignored.retain(|number| !rests(number));
        let counted = threads.into_iter().filter(|it| !self.ignored.contains(&it.number));
        let counted = counted.collect::<Vec<_>>();
        let running = counted.iter().filter(|it| it.is_running).map(|it| it.number);
        let running = running.collect::<Vec<_>>();
        let asleep = (running.is_empty() && !are_sockets_busy).then_some(counted);
        let is_quiet = asleep.is_some() && asleep == self.asleep;
        let is_over = self.lasts >= nanoseconds(PATIENCE);
        self.asleep = asleep;
        if is_over {
            self.ignored.extend(running);
        }
        is_quiet || is_over
    }
}

// Where nothing can be seen, real time has to pass.
#[cfg(all(test, target_os = "linux", not(procession_portable)))]
mod tests {
    use super::{GAP, PATIENCE, QuietSince, SeenThread, nanoseconds};

    fn thread(runs: u64, is_running: bool) -> Vec<SeenThread> {
        vec![SeenThread { number: 1, runs, is_running }]
    }

    /// Returns the number of looks until all is quiet. The real time stands still.
    fn looks(
        quiet: &mut QuietSince,
        print: u64,
        see: impl Fn(u64) -> (Vec<SeenThread>, bool),
    ) -> u64 {
        let mut looks = 0;
        for _ in 0..20 {
            if quiet.is_silent(print, quiet.drives + 1, 1) {
                assert!(!quiet.is_silent(print, quiet.drives, 1), "nobody has polled since");
                let (threads, are_busy) = see(looks);
                looks += 1;
                if quiet.look(threads, are_busy) {
                    return looks;
                }
            }
        }
        panic!("it is never quiet");
    }

    #[test]
    fn a_jump_beside_what_rests_takes_two_looks_and_no_time() {
        let mut quiet = QuietSince::default();
        for print in 1..100 {
            assert_eq!(looks(&mut quiet, print, |_| (thread(7, false), false)), 2);
            // The clock of tokio has moved, and nothing has run.
            assert_eq!(looks(&mut quiet, print, |_| (thread(7, false), false)), 1);
        }
    }

    #[test]
    fn what_runs_or_is_on_its_way_needs_two_more_looks() {
        let mut quiet = QuietSince::default();
        assert_eq!(looks(&mut quiet, 1, |look| (thread(7, false), look < 5)), 7);
        assert_eq!(looks(&mut quiet, 2, |look| (thread(7, look < 5), false)), 7);
        assert_eq!(looks(&mut quiet, 3, |look| (thread(look.min(5), false), false)), 7);
        assert!(!quiet.is_silent(4, quiet.drives + 1, 1), "something has run");
    }

    #[test]
    fn a_thread_that_never_rests_is_ignored_after_a_while() {
        let mut quiet = QuietSince::default();
        let (mut now, mut looks) = (1, 0);
        quiet.is_silent(1, 1, now);
        while !quiet.look(thread(7, true), false) {
            // The system kept the worker from looking.
            now += 100 * nanoseconds(GAP);
            looks += 1;
            quiet.is_silent(1, 1 + looks, now);
        }
        assert_eq!(looks, nanoseconds(PATIENCE) / nanoseconds(GAP));
        quiet.is_silent(2, 2 + looks, now);
        assert!(!quiet.look(thread(7, true), false) && quiet.look(thread(8, true), false));
    }
}
