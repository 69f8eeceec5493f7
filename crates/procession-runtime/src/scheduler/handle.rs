//! The methods of a [`Scheduler`] handle, and the drop of the last one.

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use crate::scheduler::handle_error::{BlockOnError, MisplacedCall};
use crate::scheduler::owner::{Owner, Scheduler};
use crate::scheduler::placed::placed;
use crate::scheduler::settle::SettledOutput;
use crate::scheduler::{block_on, current};
use crate::sys::nanoseconds;
use crate::time::Instant;
use crate::util::out_of_range::OutOfRange;

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.parts.last_handle_dropped();
        shared.terminate_all(None);
        if shared.callers.drive && !shared.lifetime.has_ended() {
            // There may be no thread to end the processes. If a process drops the handle and the
            // callers' seat is taken, the thread that sits there ends the processes.
            block_on::drain(shared);
        }
        if let Some(companion) = &shared.parts.companion {
            companion.note_unowned();
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared().fmt(f)
    }
}

impl Scheduler {
    /// Returns the default scheduler, which is built at its first use with the builder's defaults.
    /// If the system refuses its first thread, it is driven by its callers instead
    /// ([`Builder::callers_drive`](crate::Builder::callers_drive)).
    ///
    /// # When `main` returns
    /// The program ends, and the processes of the default scheduler end with it, wherever they are.
    /// They are not cancelled, and neither their futures nor their results are dropped, as with the
    /// threads of [`std::thread::spawn`]. The end of the program waits only for
    /// [writes](crate::fs#at-the-end), for at most 10 s, and processes still run during that time.
    /// To let processes clean up, call [`shutdown`](Self::shutdown) before, or use
    /// `run_until_signal` (feature `signal`), which does so.
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Scheduler> = OnceLock::new();
        #[cfg(feature = "sim")]
        if let Some(own) = Self::simulated_default() {
            // It lives as long as its program, which the reference may outlive.
            return Box::leak(Box::new(own));
        }
        GLOBAL.get_or_init(Self::build_default)
    }

    /// Returns a handle of the default scheduler.
    pub(crate) fn default_here() -> Self {
        #[cfg(feature = "sim")]
        if let Some(own) = Self::simulated_default() {
            return own;
        }
        Self::global().clone()
    }

    fn build_default() -> Self {
        let driven = |_| Self::builder().callers_drive().build();
        Self::builder()
            .build()
            .or_else(driven)
            .expect("the defaults are in range, and this is one of the first schedulers")
    }

    /// Returns the default scheduler of the simulated program that the calling thread runs in, if
    /// it runs in one.
    #[cfg(feature = "sim")]
    fn simulated_default() -> Option<Self> {
        let own = crate::sys::os::here()?
            .local("scheduler", &|| std::sync::Arc::new(Self::build_default()));
        Some(Self::clone(own.downcast_ref().expect("the value of this name is a scheduler")))
    }

    /// Returns the id of the scheduler, which is the first number in the PIDs of its processes.
    pub fn id(&self) -> u32 {
        self.shared().id()
    }

    /// Returns the name of the scheduler ([`Builder::name`](crate::Builder::name)).
    pub fn name(&self) -> &str {
        self.shared().name()
    }

    /// Runs `future` on this thread until it is complete, and returns its output.
    ///
    /// The future is not a process: it has no PID and need not be `Send`. Processes that it spawns
    /// belong to this scheduler.
    ///
    /// On a plain thread, it then waits for [writes](crate::fs#at-the-end) that the scheduler
    /// accepted during the call, for at most 10 s of the scheduler's clock. These may be writes of
    /// any process, because the call does not know on which writes its caller relies.
    ///
    /// # Blocking
    /// The thread is parked while the future waits. In a process this is a blocking section (see
    /// [`blocking`](crate::blocking())); awaiting is better.
    ///
    /// # Panics
    /// In a process, if [`try_block_on`](Self::try_block_on) would return an error.
    ///
    /// ```
    /// use std::rc::Rc;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).build()?;
    /// let greeting = Rc::new("hello"); // It need not be `Send`.
    /// let length = scheduler.block_on(async {
    ///     let counts = procession::spawn(async { "a process".len() });
    ///     counts.await.map(|length| length + greeting.len())
    /// });
    /// assert_eq!(length, Ok(14));
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _settled = SettledOutput::of(self.shared());
        block_on::block_on(self.shared(), future)
    }

    /// Runs `future` on this thread like [`block_on`](Self::block_on), unless no thread would be
    /// left to run other processes.
    ///
    /// # Errors
    /// [`BlockOnError`], which holds the future, if the caller is a process and no thread would be
    /// left to run what the future waits for. The future has not been polled. This is the case if
    /// all threads that the process's scheduler may have, or that the system allows it, are in
    /// blocking sections, and
    /// - `self` is that scheduler, or
    /// - `self` is another scheduler without a thread left: all of its threads wait, in `block_on`,
    ///   for schedulers that have none left. The wait would close a circle.
    pub fn try_block_on<F: Future>(&self, future: F) -> Result<F::Output, BlockOnError<F>> {
        let _settled = SettledOutput::of(self.shared());
        block_on::try_block_on(self.shared(), future)
    }

    /// Returns how many workers may run concurrently.
    pub fn worker_threads(&self) -> usize {
        self.shared().workforce.width()
    }

    /// Changes how many workers may run concurrently. If more workers run, the excess workers stop
    /// after their current steps, and the remaining workers take over their queues.
    ///
    /// Processes can be bound to any worker that the scheduler was built with, even if its width is
    /// now smaller. These workers then take turns.
    ///
    /// # Errors
    /// [`OutOfRange`]: the number is 0 or above the maximum of threads
    /// ([`Builder::max_threads`](crate::Builder::max_threads)).
    pub fn set_worker_threads(&self, workers: usize) -> Result<(), OutOfRange> {
        let max = self.shared().workforce.seats.len();
        OutOfRange::check("worker_threads", workers, 1, max)?;
        let shared = self.shared();
        shared.workforce.set_worker_threads(workers as u32);
        // There may be a permit more for batch processes.
        shared.announce_batch_permit();
        Ok(())
    }

    /// Waits until this scheduler has no process, without ending any.
    ///
    /// Processes that are spawned while it waits count as well, so it returns at a moment at which
    /// every process that was ever spawned has ended. The scheduler stays open, and the next
    /// process may be spawned right after that moment.
    ///
    /// Every process counts, even if it waits forever. For example, the mailbox of a thread
    /// ([`attach`](Self::attach)) is a process until it is dropped, and a supervisor is a process
    /// until it is stopped. The runtime itself keeps no processes here, with one exception: the
    /// idle workers of a [pool of coroutines](crate::pool::CoPool) are processes, which end after
    /// their [`keep_alive`](crate::pool::Builder::keep_alive). The [door](crate#features) has its
    /// own scheduler, and idle workers of other pools are no processes.
    ///
    /// It does not wait for a [`block_on`](Self::block_on) future, a timer, or a job of a pool of
    /// threads, because they are no processes.
    ///
    /// To limit the time, use [`timeout`](crate::timeout). To end the processes as well, use
    /// [`shutdown`](Self::shutdown).
    ///
    /// # Errors
    /// [`MisplacedCall`](crate::scheduler::MisplacedCall), without a wait, if the caller is a
    /// process of this scheduler, or a [job that works for such a process](crate::current_pid()),
    /// because it would wait for itself. Indirect waits are not found. For example, a process joins
    /// a process of another scheduler which waits here, or a process calls this in a future of a
    /// separate `block_on`.
    ///
    /// # Cancellation
    /// If the future is dropped, the wait ends without an effect.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use procession::{Scheduler, sleep, spawn, timeout};
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let second = Duration::from_secs(1);
    /// scheduler.spawn(async move {
    ///     sleep(second).await;
    ///     spawn(sleep(second));
    /// });
    /// let begin = scheduler.now();
    /// let limited = timeout(second / 2, scheduler.wait_until_empty());
    /// assert!(scheduler.block_on(limited).is_err());
    /// scheduler.block_on(scheduler.wait_until_empty())?;
    /// assert_eq!(scheduler.now() - begin, 2 * second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn wait_until_empty(&self) -> impl Future<Output = Result<(), MisplacedCall>> {
        // A `block_on` hides the process that calls it, and the process that a job works for.
        let caller = current::current().map(|slot| slot.pid()).or_else(current::on_behalf_of);
        placed(async move { self.shared().wait_until_empty(caller).await })
    }

    /// Moves the test clock forward by `duration`. Timers that are then due fire once processes
    /// run. Does nothing without a test clock.
    pub fn advance(&self, duration: Duration) {
        let shared = self.shared();
        shared.world.advance_to(shared.world.now().saturating_add(nanoseconds(duration)));
        if shared.world.is_test() {
            // Like a look of the watchdog.
            shared.clock.beacon.set(shared.world.now());
        }
        shared.workforce.announce();
    }

    /// Returns the current time of the scheduler's clock.
    pub fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.shared().world.now())
    }

    /// Returns the seed of the scheduler's random choices, given or drawn.
    pub fn seed(&self) -> u64 {
        self.shared().world.seed()
    }
}
