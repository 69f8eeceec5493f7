//! The tokio runtime as a part of a scheduler.

use std::sync::Arc;
use std::time::Duration;

use super::paused::{Driven, LOOK_EVERY};
use super::program::TestingThread;
use super::runtime::{self, Bridge, RuntimeChoice};
use super::threads::RuntimeThreads;
use crate::scheduler::builder::{Builder, WIDTH_MAX};
use crate::scheduler::error::BuildError;
use crate::scheduler::part::{Companion, Part, PartError, Plan, SeenScheduler};
use crate::scheduler::shared::Shared;
use crate::util::out_of_range::OutOfRange;

/// The choice of a program about tokio, and the threads of the runtime.
#[derive(Default)]
pub(crate) struct TokioPart {
    choice: RuntimeChoice,
    threads: RuntimeThreads,
}

impl Part for TokioPart {
    fn prepare(&mut self, plan: &mut Plan<'_>) -> Result<(), PartError> {
        if let RuntimeChoice::Threads(threads) = self.choice {
            OutOfRange::check("tokio_threads", threads, 0, WIDTH_MAX).map_err(BuildError::from)?;
        }
        let choice = std::mem::take(&mut self.choice);
        let bridge = runtime::open(choice, plan, self.threads.begin())?;
        plan.companion = bridge.map(|bridge| bridge as Arc<dyn Companion>);
        Ok(())
    }

    fn begin(&self, shared: &Arc<Shared>) -> Result<(), PartError> {
        self.threads.connect(shared);
        Ok(())
    }
}

impl Companion for Bridge {
    fn enter(&self, is_worker: bool, run: &mut dyn FnMut()) {
        // Entered once for all that runs here, and below every coroutine's stack.
        let _context = self.context();
        let _testing = (is_worker && self.paused().is_some()).then(TestingThread::mark);
        run();
    }

    fn look_every(&self) -> Option<Duration> {
        self.paused().map(|_| LOOK_EVERY)
    }

    fn drive(&self, now: u64) -> bool {
        self.drive_tasks(now) == Some(Driven::Busy)
    }

    fn is_quiet(&self, seen: &SeenScheduler<'_>) -> bool {
        self.paused().is_none_or(|clock| clock.is_quiet(seen))
    }

    fn advance(&self, now: u64, deadline: u64) -> u64 {
        self.advance_clock(now, deadline)
    }

    fn note_activity(&self) {
        if let Some(clock) = self.paused() {
            clock.note_activity();
        }
    }

    fn note_foreign_wake(&self) {
        if let Some(clock) = self.paused() {
            clock.note_foreign_wake();
        }
    }

    fn note_ended(&self) {
        self.change(|own| own.ended = true);
    }

    fn note_unowned(&self) {
        self.change(|own| own.unowned = true);
    }
}

/// Available with the crate feature `tokio`.
impl Builder {
    fn tokio(mut self, choice: RuntimeChoice) -> Self {
        let part = self.parts.get_mut::<TokioPart>();
        part.expect("`assembly.rs` gives each builder this part").choice = choice;
        self
    }

    /// Sets how many threads the tokio runtime of the scheduler has, up to 1024, or 0 for no
    /// runtime. Default: as many as the scheduler has workers
    /// ([`worker_threads`](Self::worker_threads)), or none if [callers drive](Self::callers_drive)
    /// the scheduler or it is on the [test clock](Self::test_clock).
    ///
    /// With the feature `tokio`, crates that need tokio (`axum`, `reqwest`, `sqlx`, `tonic`) run
    /// unchanged in processes. Everything that runs on the scheduler's threads, including
    /// coroutines and futures in [`block_on`](crate::Scheduler::block_on), runs in the context of
    /// the runtime:
    ///
    /// - The scheduler's workers poll the futures of such a crate, like any other.
    /// - The threads of the runtime serve tokio's sockets and timers, and wake the process. Each
    ///   event therefore costs a wake-up across threads, which [`net`](crate::net) and
    ///   [`sleep`](crate::sleep()) avoid.
    /// - `tokio::spawn` starts a task of tokio on these threads, not a process, so it has no
    ///   [priority](crate::process::Priority). In such a task, [`spawn`](crate::spawn()), names and
    ///   timers still mean this scheduler.
    /// - `tokio::task::spawn_blocking` uses further threads, to which the same applies.
    /// - Waiting in tokio spends none of a step's budget.
    ///
    /// Many crates start tasks of tokio: `reqwest`, for example, starts one for each connection. If
    /// such tasks need more than the threads of the runtime can do, give it more threads. Without a
    /// runtime, tokio's functions panic with "there is no reactor running" or "requires a Tokio
    /// context", and the report of the process says what to do.
    ///
    /// The runtime stops when the scheduler has ended and its last handle is dropped. The tasks
    /// that the runtime still has are dropped then.
    ///
    /// # On the test clock
    /// A scheduler on the [test clock](Self::test_clock) has no runtime by default, so that its
    /// processes are dispatched in the same way each time. With a number above 0, it has a runtime
    /// without threads, and must have [one worker](Self::worker_threads). The tasks run on the
    /// worker that finds nothing else to run. tokio's clock is paused and moves together with the
    /// scheduler's clock, so that timers of both fire in the order of their deadlines, with tokio's
    /// resolution of a millisecond:
    ///
    /// - The clock stands still while a task of tokio is ready, and while a closure of
    ///   `spawn_blocking` runs.
    /// - The clock stands still while bytes are on their way between two TCP sockets of this
    ///   program, but not while such sockets are idle. For other descriptors of processes, the rule
    ///   of [`net`](crate::net#on-the-test-clock) holds. tokio's sockets to other programs do not
    ///   hold the clock.
    /// - The clock also waits for threads of libraries, for example the threads of `sqlx` for
    ///   SQLite. Once tokio has had a task or another thread has woken a process, and while
    ///   processes wait for sockets, each move of the clock therefore takes some milliseconds of
    ///   real time. A thread that runs on and on delays the clock by a quarter of a second, and is
    ///   then ignored until it rests.
    /// - tokio's timers fire only while the scheduler also has a deadline, such as the limit of
    ///   `procession::test`.
    /// - The thread that drives the scheduler must not be inside the `block_on` of another tokio
    ///   runtime, because tokio allows no second one there.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().tokio_threads(2).build()?;
    /// let answer = scheduler.spawn(async {
    ///     // This could be in any crate that was written for tokio.
    ///     tokio::time::timeout(Duration::from_secs(9), tokio::spawn(async { 42 })).await
    /// });
    /// assert_eq!(answer.join()???, 42);
    ///
    /// // On the test clock, both clocks move together.
    /// let hour = Duration::from_secs(3600);
    /// let test = Scheduler::builder().worker_threads(1).test_clock().tokio_threads(1).build()?;
    /// let late = test.block_on(async {
    ///     tokio::time::timeout(hour, procession::sleep(2 * hour)).await
    /// });
    /// assert!(late.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tokio_threads(self, threads: usize) -> Self {
        self.tokio(RuntimeChoice::Threads(threads))
    }

    /// Lets crates that need tokio run in processes on an existing runtime, which the program has
    /// to keep running, instead of a runtime of the scheduler
    /// ([`tokio_threads`](Self::tokio_threads)). A runtime made by `new_current_thread` serves
    /// nothing except while its thread is in its `block_on`.
    ///
    /// Such a runtime goes by the real clock, so [`build`](Self::build) refuses it together with a
    /// [test clock](Self::test_clock), which would jump over everything that waits for tokio.
    ///
    /// The tasks of that runtime belong to no scheduler, since several may share it. To let them
    /// mean one, [enter](crate::Scheduler::enter) it in the `on_thread_start` of the runtime and
    /// leak the guard.
    pub fn tokio_on(self, runtime: tokio::runtime::Handle) -> Self {
        self.tokio(RuntimeChoice::Given(runtime))
    }
}
