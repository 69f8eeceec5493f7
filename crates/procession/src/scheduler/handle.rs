//! The methods of a [`Scheduler`] handle, and the drop of the last one.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession_protocols::scheduler::writes::table::Unwritten;
use procession_sync::atomic::Ordering::Relaxed;

use crate::machine::process::Process;
use crate::mailbox::context::Context;
use crate::observe::look::detail;
use crate::observe::look::detail::ProcessDetail;
use crate::observe::look::pass;
use crate::observe::look::query::Query;
use crate::observe::look::tree;
use crate::observe::look::tree::SupervisorRow;
use crate::observe::look::view::View;
use crate::observe::snapshot;
use crate::observe::snapshot::{ProcessSnapshot, Snapshot, WaitingProcess};
use crate::observe::unfinished;
use crate::observe::unfinished::Unfinished;
use crate::process::async_body::AsyncBody;
use crate::process::outcome::{AnyOutput, ByOutcome, Returns};
use crate::recorder::state::DumpCause;
use crate::recorder::state::WORDS_DEFAULT;
use crate::report::crash_report::CrashReport;
use crate::report::hooks::ReportHooks;
use crate::scheduler::builder::{
    Builder, KEEP_ALIVE_DEFAULT, PROCESSES_DEFAULT, STACK_BYTES_DEFAULT, STACKS_DEFAULT,
    STALL_AFTER_DEFAULT, TIMERS_DEFAULT,
};
use crate::scheduler::error::{BlockOnError, InsideError, WorkerThreadsError};
use crate::scheduler::owner::{Owner, Scheduler};
use crate::scheduler::placed::placed;
use crate::scheduler::settle::SettledOutput;
use crate::scheduler::writes::SettledWrites;
use crate::scheduler::{block_on, current};
use crate::spawn::error::SpawnError;
use crate::spawn::join_handle::{Child, JoinHandle};
use crate::spawn::options::SpawnOptions;
use crate::sys::nanoseconds;
use crate::time::Instant;
use crate::util::out_of_range::OutOfRange;
use crate::watchdog::state::StallSnapshot;
use crate::{Pid, coroutine};

/// A shutdown reserves a tenth of its deadline to terminate processes, and at most this, in
/// nanoseconds.
const TERMINATION_MAX: u64 = 100_000_000;

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.0;
        #[cfg(feature = "observe")]
        {
            let door = shared.extensions.door.lock().take();
            drop(door);
        }
        shared.terminate_all(None);
        if shared.callers.drive && !shared.lifetime.has_ended() {
            // There may be no thread to end the processes. If one of them drops the handle and the
            // callers' seat is taken, the thread that sits there ends them.
            block_on::drain(shared);
        }
        #[cfg(feature = "tokio")]
        if let Some(bridge) = &shared.extensions.bridge {
            bridge.note_unowned();
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared().fmt(f)
    }
}

impl Scheduler {
    /// Returns a builder with the defaults.
    pub fn builder() -> Builder {
        Builder {
            name: String::from("procession"),
            width: None,
            processes: PROCESSES_DEFAULT,
            timers: TIMERS_DEFAULT,
            seed: None,
            test_clock: false,
            callers_drive: false,
            shuffled: false,
            max_threads: None,
            keep_alive: KEEP_ALIVE_DEFAULT,
            on_thread_start: None,
            on_thread_stop: None,
            cpus: None,
            coroutines: false,
            stack_bytes: STACK_BYTES_DEFAULT,
            stacks: STACKS_DEFAULT,
            watchdog: true,
            stall_after: STALL_AFTER_DEFAULT,
            max_computing: None,
            on_stall: None,
            handlers: Vec::new(),
            dead_letters: None,
            relay: None,
            reports: ReportHooks::default(),
            #[cfg(feature = "observe")]
            door: crate::door::settings::DoorChoice::ByVariable,
            request_ids: false,
            recorder_events: WORDS_DEFAULT,
            dumps: None,
            #[cfg(feature = "tokio")]
            tokio: crate::bridge::runtime::RuntimeChoice::Default,
        }
    }

    /// Returns the default scheduler, which is built at its first use with the builder's defaults.
    /// If the system refuses its first thread, it is driven by its callers instead
    /// ([`Builder::callers_drive`]).
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

    /// Returns the name of the scheduler ([`Builder::name`]).
    pub fn name(&self) -> &str {
        self.shared().name()
    }

    /// Starts a process that runs `future` on this scheduler. See [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
    {
        let body = Box::new(AsyncBody::<F, AnyOutput>::Runs(future));
        SpawnOptions::new().on(self).spawn_body(body)
    }

    /// Starts a process that runs `future` on this scheduler, and fails if its output says so. See
    /// [`spawn_fallible`](crate::spawn_fallible()).
    #[track_caller]
    pub fn spawn_fallible<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        let body = Box::new(AsyncBody::<F, ByOutcome>::Runs(future));
        SpawnOptions::new().on(self).spawn_body(body)
    }

    /// Starts a process with a mailbox on this scheduler. See [`start`](crate::start()).
    #[track_caller]
    pub fn start<M, F, P>(&self, process: F) -> Child<M, P::Output>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static, // Not `Send`: `start_local`.
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        SpawnOptions::new().on(self).start(process)
    }

    /// Starts a local process on this scheduler. See [`spawn_local`](crate::spawn_local()).
    #[track_caller]
    pub fn spawn_local<C, F>(&self, make: C) -> JoinHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static, // Makes the future there: `|| async { .. }`.
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        SpawnOptions::new().on(self).spawn_local(make)
    }

    /// Starts a local process with a mailbox on this scheduler. See
    /// [`start_local`](crate::start_local()).
    #[track_caller]
    pub fn start_local<M, C, F>(&self, process: C) -> Child<M, F::Output>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        C: FnOnce(Context<M>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        SpawnOptions::new().on(self).start_local(process)
    }

    /// Starts a coroutine on this scheduler. See
    /// [`spawn_coroutine`](crate::coroutine::spawn_coroutine()).
    ///
    /// # Errors
    /// [`SpawnError`], which holds the function.
    #[track_caller]
    pub fn spawn_coroutine<M, F, T>(&self, function: F) -> Result<Child<M, T>, SpawnError<F>>
    where
        M: Send + 'static,
        F: FnOnce(coroutine::Context<M>) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        SpawnOptions::new().on(self).spawn_coroutine(function)
    }

    /// Starts a state machine on this scheduler. See
    /// [`spawn_machine`](crate::machine::spawn_machine).
    ///
    /// # Errors
    /// [`SpawnError`], which holds the state machine.
    #[track_caller]
    pub fn spawn_machine<P: Process>(
        &self,
        process: P,
        method: &str,
        input: P::Input,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        SpawnOptions::new().on(self).spawn_machine(process, method, input)
    }

    /// Runs `future` on this thread until it is complete, and returns its output.
    ///
    /// The future is not a process: it has no PID and need not be `Send`. Processes that it spawns
    /// belong to this scheduler.
    ///
    /// On a plain thread, it then waits for [writes](crate::fs#at-the-end) that the scheduler
    /// accepted during the call, for at most 10 s of the scheduler's clock. These may be writes of
    /// any process, because the call does not know which of them its caller relies on.
    ///
    /// # Blocking
    /// The thread is parked while the future waits. In a process this is a blocking section (see
    /// [`blocking`](crate::blocking())); awaiting is better.
    ///
    /// # Panics
    /// In a process, if [`try_block_on`](Self::try_block_on) would return an error.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _settled = SettledOutput::of(self.shared());
        block_on::block_on(self.shared(), future)
    }

    /// Runs `future` on this thread like [`block_on`](Self::block_on), unless too many processes
    /// are blocked already.
    ///
    /// # Errors
    /// [`BlockOnError`], which holds the future, if the caller is a process and no thread would be
    /// left to run what the future waits for. The future has not been polled. This is the case if
    /// all threads that the process's scheduler may have, or that the system gives it, are in
    /// blocking sections, and
    /// - `self` is that scheduler, or
    /// - `self` is another scheduler without a thread left: all of its threads wait, in `block_on`,
    ///   for schedulers that have none left. The wait would close a circle.
    pub fn try_block_on<F: Future>(&self, future: F) -> Result<F::Output, BlockOnError<F>> {
        let _settled = SettledOutput::of(self.shared());
        block_on::try_block_on(self.shared(), future)
    }

    /// Returns how many workers may run at once.
    pub fn worker_threads(&self) -> usize {
        self.shared().width()
    }

    /// Changes how many workers may run at once. If there are more, the excess workers stop after
    /// their current steps, and the others take over their queues.
    ///
    /// Processes can be bound to any worker that the scheduler was built with, even if its width is
    /// now smaller. These workers then take turns.
    ///
    /// # Errors
    /// [`WorkerThreadsError`]: the number is 0 or above the maximum of threads
    /// ([`Builder::max_threads`]).
    pub fn set_worker_threads(&self, workers: usize) -> Result<(), WorkerThreadsError> {
        let max = self.shared().seats.len();
        OutOfRange::check("worker_threads", workers, 1, max).map_err(WorkerThreadsError)?;
        self.shared().set_worker_threads(workers as u32);
        Ok(())
    }

    /// Waits until no process can run, and returns the waiting processes with what each waits for.
    /// The test clock stands still meanwhile.
    ///
    /// If the scheduler is driven by its callers, this thread runs the processes.
    ///
    /// # Blocking
    /// Blocks the thread. It does not return while a process keeps running.
    ///
    /// # Panics
    /// In a process of this scheduler, which would wait for itself.
    pub fn run_until_idle(&self) -> Vec<WaitingProcess> {
        let by_its_own = current::current().is_some_and(|slot| slot.pid().scheduler() == self.id());
        assert!(
            !by_its_own,
            "cannot wait until the scheduler is idle: the caller is one of its processes"
        );
        self.shared().run_until_idle();
        snapshot::waiting(self.shared())
    }

    /// Waits until this scheduler has no process, without ending any.
    ///
    /// Processes that are spawned while it waits count as well, so it returns at a moment at which
    /// every process that was ever spawned has ended. The scheduler stays open, and the next
    /// process may be spawned right after that moment.
    ///
    /// Every process counts, including one that waits forever. For example, the mailbox of a thread
    /// ([`attach`](Self::attach)) is a process until it is dropped, and a supervisor is a process
    /// until it is stopped. The runtime keeps no processes of its own here, with one exception: the
    /// idle workers of a [pool of coroutines](crate::pool::CoPool) are processes, which end after
    /// their [`keep_alive`](crate::pool::Builder::keep_alive). The [door](crate#features) has its
    /// own scheduler, and idle workers of other pools are no processes.
    ///
    /// It does not wait for a [`block_on`](Self::block_on) future, a timer, or a job of a pool of
    /// threads, because none of them is a process.
    ///
    /// To limit the time, use [`timeout`](crate::timeout). To end the processes as well, use
    /// [`shutdown`](Self::shutdown).
    ///
    /// # Errors
    /// [`InsideError`](crate::scheduler::InsideError), without a wait, if the caller is a process
    /// of this scheduler, or a [job that works for one](crate::current_pid()), because it would
    /// wait for itself. Not found is a process that waits here through others, for example one that
    /// joins a process of another scheduler which waits here, or one that calls this in a future of
    /// its own `block_on`.
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
    pub fn wait_until_empty(&self) -> impl Future<Output = Result<(), InsideError>> {
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
        shared.announce();
    }

    /// Returns the current time of the scheduler's clock.
    pub fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.shared().world.now())
    }

    /// Returns the seed of the scheduler's random choices, given or drawn.
    pub fn seed(&self) -> u64 {
        self.shared().world.seed()
    }

    /// Cancels a process. Returns `true` if the process exists.
    ///
    /// The effect was chosen at the spawn ([`OnCancel`](crate::OnCancel)). A process with a context
    /// is asked to end: its [`recv`](Context::recv) ends once the mailbox is empty,
    /// [`cancelled`](crate::cancelled()) resolves, and a state machine gets
    /// [`Event::Cancel`](crate::Event). A process that was started by [`spawn`](crate::spawn()) is
    /// dropped at its next suspension.
    pub fn cancel(&self, pid: Pid) -> bool {
        crate::relations::cancel(pid)
    }

    /// Ends a process between two of its steps, with [`Exit::Killed`](crate::Exit::Killed). Returns
    /// `true` if the process exists. This is [`kill`](crate::relations::kill()).
    pub fn terminate(&self, pid: Pid) -> bool {
        crate::relations::kill(pid)
    }

    /// Returns what all workers and processes are doing.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(self.shared())
    }

    /// Returns the row of one process in the [snapshot](Self::snapshot), at a cost that does not
    /// grow with the number of processes. Returns `None` if the process does not exist in this
    /// scheduler.
    ///
    /// ```
    /// use procession::snapshot::ProcessState;
    ///
    /// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let idle = procession::SpawnOptions::new()
    ///     .on(&scheduler)
    ///     .label("idle")
    ///     .spawn(std::future::pending::<()>());
    /// scheduler.run_until_idle();
    /// let row = scheduler.process(idle.pid()).expect("it has not ended");
    /// assert_eq!((row.label.as_deref(), row.steps), (Some("idle"), 1));
    /// assert_eq!(row.state, ProcessState::Blocked);
    /// assert!(scheduler.process(procession::Pid::NOBODY).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn process(&self, pid: Pid) -> Option<ProcessSnapshot> {
        snapshot::one(self.shared(), pid)
    }

    /// Returns the processes that `query` asks for.
    ///
    /// The cost grows with the number of processes, about 40 ns for each, and with the number of
    /// rows. It needs nothing to be enabled, and does not stop the workers.
    ///
    /// # Blocking
    /// Computes for as long as that takes: a million processes are 40 ms.
    pub fn look(&self, query: &Query) -> View {
        pass::look(self.shared(), query)
    }

    /// Returns one process in detail, or `None` if it does not exist in this scheduler.
    pub fn detail(&self, pid: Pid) -> Option<ProcessDetail> {
        detail::of(self.shared(), pid)
    }

    /// Returns the supervisors that have children, with their children, by PID.
    ///
    /// It asks no supervisor, and so answers even if none runs. A child has its last 8 ends: those
    /// that the supervisor did not ask for.
    pub fn supervision(&self) -> Vec<SupervisorRow> {
        tree::supervision(self.shared())
    }

    /// Returns the reports of the last 64 processes that failed, the oldest first.
    ///
    /// ```
    /// use procession::{Exit, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let _ = scheduler.spawn(async { panic!("no disk") }).join();
    /// let crashes = scheduler.crashes();
    /// assert_eq!(crashes[0].exit.exit, Exit::Panicked("no disk".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn crashes(&self) -> Vec<Arc<CrashReport>> {
        self.shared().extensions.crashes.all()
    }

    /// Returns what the watchdog has found so far. This is
    /// [`Snapshot::stalls`](crate::observe::snapshot::Snapshot::stalls) alone, at a cost that does
    /// not grow with the number of processes.
    pub fn stalls(&self) -> StallSnapshot {
        self.shared().watchdog.counts()
    }

    /// Ends the scheduler in order, and returns what it could not finish by the deadline:
    /// processes, requests of HTTP servers, writes that helper threads have accepted, and messages
    /// to other nodes.
    ///
    /// 1. From the beginning, only processes of this scheduler can spawn.
    /// 2. Cancels every process except the caller. Processes that are asked
    ///    ([`OnCancel`](crate::OnCancel)) may clean up with any number of steps, messages, timers
    ///    and new processes. The others are dropped once the processes that spawned them have
    ///    ended. If that is the caller, or no process of this scheduler, they are dropped at once.
    ///    A process that is spawned from now on is cancelled once the process that spawned it has
    ///    ended, whatever the effect.
    ///    A supervisor stops its children in order, and they have until `deadline`, unless their
    ///    [`Stop`](crate::supervisor::Stop) says otherwise.
    /// 3. Terminates the remaining processes shortly before `deadline` has passed. A tenth of it is
    ///    reserved for this, at most 100 ms.
    /// 4. Waits for the [writes](crate::fs#at-the-end) that were accepted on this scheduler.
    /// 5. Returns when all processes and these writes have ended, or when `deadline` has passed.
    ///
    /// You may await this anywhere, for example in a process of another scheduler, or in another
    /// runtime. A write that never ends does not hold it up beyond `deadline`, because a thread of
    /// its own keeps the time once the scheduler has ended. On the test clock it waits until the
    /// writes have ended, because that clock stands still until then.
    ///
    /// A terminated process has ended only when its `Drop` has returned. If a plain thread awaits
    /// this in [`block_on`](Self::block_on), it returns by its deadline whatever the processes do,
    /// unless that thread is itself a worker ([`Builder::callers_drive`]) and runs a step that
    /// never returns.
    ///
    /// If [reports](crate::report) wait to be written to standard error, it waits for that, for at
    /// most 100 ms of the deadline. In a process, this is a [blocking
    /// section](crate::blocking()).
    pub async fn shutdown(&self, deadline: Duration) -> Unfinished {
        let shared = self.shared();
        let caller =
            current::current().map(|slot| slot.pid()).filter(|pid| pid.scheduler() == shared.id());
        let left = u64::from(caller.is_some());
        let allowed = nanoseconds(deadline);
        let now = shared.world.now();
        let deadline = now.saturating_add(allowed);
        let kept_back = (allowed / 10).min(TERMINATION_MAX);
        let terminates = now.saturating_add(allowed - kept_back);
        shared.lifetime.health.end();
        shared.lifetime.note_deadline(terminates);
        shared.cancel_all(caller);
        shared.wait_for_ends(left, terminates).await;
        let mut terminated = Vec::new();
        if shared.alive() > left {
            // Before the processes are gone.
            shared.request_dump(DumpCause::Shutdown);
            terminated = unfinished::interrupted(shared, caller);
        }
        shared.terminate_all(caller);
        shared.wait_for_ends(left, deadline).await;
        let mut settled = SettledWrites::of(shared.id(), 0);
        shared.settle_writes(&mut settled, deadline).await;
        let Unwritten { writes, messages } = settled.give_up();
        shared.settle_dump(deadline);
        shared.settle_reports(deadline);
        let processes = if shared.alive() <= left {
            Vec::new()
        } else {
            unfinished::unfinished(shared, caller)
        };
        terminated.retain(|row| processes.iter().all(|process| process.pid != row.pid));
        let losses = &shared.lifetime.losses;
        let [requests, stopped, stopped_requests] =
            [&losses.requests, &losses.stopped, &losses.stopped_requests]
                // Relaxed: see there.
                .map(|count| count.load(Relaxed));
        Unfinished { processes, terminated, requests, writes, messages, stopped, stopped_requests }
    }
}
