//! Whether anything is on its way that no queue of the scheduler shows.
//!
//! The test clock may move once everything in the scheduler and in its paused runtime waits. Work
//! may still be on its way outside of both, if the program has sockets or libraries with threads of
//! their own. The worker that would move the clock therefore waits until these are quiet:
//!
//! - for [`QUIET`] of real time nothing has run, in which a long time between two looks counts as
//!   [`GAP`];
//! - every socket that a process waits for listens, or its other end belongs to this program. For
//!   any other descriptor the clock stands still, because the outside has its own time;
//! - the system has delivered all that was sent between sockets of this program;
//! - all threads of the program sleep, except the threads that work for a scheduler on a test
//!   clock, and no other thread has run between two looks.
//!
//! The last two conditions are dropped after [`PATIENCE`], because the program may have threads
//! that never rest, such as other tests. A thread that has run for so long is ignored until it
//! rests.
//!
//! If processes wait only for other processes, the program is quiet immediately. Traces show
//! whether libraries have threads that work for its processes: tokio has tasks, another thread has
//! woken a process, or the number of threads has changed since the last look.
//!
//! What the worker cannot see is a socket of tokio's with another program at its other end. While a
//! task waits for it, the clock moves.

use std::collections::BTreeSet;
use std::time::Duration;

use super::program::{self, SeenThread};
use crate::scheduler::part::SeenScheduler;
use crate::sys::{World, nanoseconds};

/// The real time for which nothing has run. It is far longer than two looks of a worker, and short
/// enough for a test in which the clock moves a thousand times.
const QUIET: Duration = Duration::from_millis(2);

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
    /// Set if libraries may have threads and sockets that work for the processes.
    pub(super) is_used: bool,
}

/// The beginning of a quiet time, as the last look has found it.
#[derive(Default)]
pub(super) struct QuietSince {
    /// Changes with each step, each task and each block-on future.
    print: u64,
    /// For how long it lasts, without what [`GAP`] leaves out.
    lasts: u64,
    /// The real time of the last look, or 0 before the first.
    looked: u64,
    /// The threads at the last look, all of which slept.
    asleep: Option<Vec<SeenThread>>,
    /// The threads that never rest.
    ignored: BTreeSet<u32>,
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
    let now = World::real_now();
    if quiet.print != print || quiet.looked == 0 {
        (quiet.print, quiet.lasts, quiet.asleep) = (print, 0, None);
    } else {
        quiet.lasts += now.saturating_sub(quiet.looked).min(nanoseconds(GAP));
    }
    quiet.looked = now;
    if quiet.lasts < nanoseconds(QUIET) {
        return false;
    }
    let sockets = program::Sockets::look();
    if seen.waits_for_descriptors
        && (seen.any_waited_for)(&|descriptor| !sockets.are_inside(descriptor))
    {
        return false;
    }
    let threads = program::threads();
    let rests = |number: &u32| threads.iter().any(|it| it.number == *number && !it.is_running);
    quiet.ignored.retain(|number| !rests(number));
    let counted = threads.into_iter().filter(|it| !quiet.ignored.contains(&it.number));
    let counted = counted.collect::<Vec<_>>();
    let running = counted.iter().filter(|it| it.is_running).map(|it| it.number);
    let running = running.collect::<Vec<_>>();
    let asleep = (running.is_empty() && !sockets.are_busy()).then_some(counted);
    let is_quiet = asleep.is_some() && asleep == quiet.asleep;
    let is_over = quiet.lasts >= nanoseconds(PATIENCE);
    quiet.asleep = asleep;
    if is_over {
        quiet.ignored.extend(running);
    }
    if is_quiet || is_over {
        quiet.thread_count = thread_count;
        return true;
    }
    false
}
