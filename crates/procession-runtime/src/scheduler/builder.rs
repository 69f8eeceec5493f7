//! The builder of a scheduler.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession_coroutine::Stacks;
use procession_protocols::scheduler::idle::Idle;
use procession_protocols::scheduler::levels::Levels;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::machine::command;
use crate::machine::command::{Command, Done};
use crate::machine::registry::{Handler, HandlerTable};
use crate::machine::value::CommandId;
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadLetter;
use crate::mailbox::parcel::Relay;
use crate::process::binding::THREADS_MAX;
use crate::process::table::Table;
use crate::scheduler::end::state::Lifetime;
use crate::scheduler::error::BuildError;
use crate::scheduler::handles::Handles;
use crate::scheduler::log::{Recorder, WORDS_DEFAULT, WORDS_MAX};
use crate::scheduler::owner::{Owner, Scheduler};
use crate::scheduler::part::{Companion, Parts, Plan};
use crate::scheduler::root::Callers;
use crate::scheduler::seat::{SeatTable, SharedStats};
use crate::scheduler::shared::{
    Clock, Extensions, Identity, IndexOptions, Poller, ProcessIndex, Shared,
};
use crate::scheduler::supply::Supply;
use crate::scheduler::workforce::{
    Hook, SharedQueues, Starter, ThreadOptions, ThreadSupply, Watchdog, WatchdogOptions, Workforce,
    stall_after,
};
use crate::sys::{Cpus, World};
use crate::util::out_of_range::OutOfRange;

/// The default limit of processes: 2 GiB of control blocks.
pub(crate) const PROCESSES_DEFAULT: u32 = 1 << 24;
/// The default limit of pending timers of each worker.
pub(crate) const TIMERS_DEFAULT: u32 = 1 << 24;
/// The default stack of a coroutine. A panic with a backtrace takes 22 KiB.
pub(crate) const STACK_BYTES_DEFAULT: usize = 128 << 10;
/// The default limit of stacks: half a tebibyte of address space.
pub(crate) const STACKS_DEFAULT: usize = 1 << 21;
/// The maximum width. It is far beyond the CPUs that one machine has, and small enough that each
/// worker can look at all others.
pub(crate) const WIDTH_MAX: usize = 1024;
/// The default number of threads beyond the width. That many steps can block at the same time
/// without delaying other processes.
const EXTRA_THREADS_DEFAULT: usize = 64;
/// The default time for which an unneeded thread is kept.
pub(crate) const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(10);
/// The default duration after which a step is stalled: Go's time slice.
pub(crate) const STALL_AFTER_DEFAULT: Duration = Duration::from_millis(10);

/// The configuration of a [`Scheduler`].
///
/// ```
/// use std::time::Duration;
/// use procession::{Scheduler, sleep};
///
/// // The scheduler of a service on two processors. It counts steps that hold up others.
/// let service = Scheduler::builder()
///     .name("service")
///     .worker_threads(2)
///     .stall_after(Duration::from_millis(5))
///     .on_stall(|stall| eprintln!("{stall}"))
///     .build()?;
/// assert_eq!((service.name(), service.worker_threads()), ("service", 2));
///
/// // The scheduler of a test: one order of events for each seed, and time that jumps.
/// let test = Scheduler::builder().worker_threads(1).seed(7).test_clock().build()?;
/// let begin = test.now();
/// test.block_on(sleep(Duration::from_secs(3600)));
/// assert_eq!(test.now() - begin, Duration::from_secs(3600));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[must_use]
pub struct Builder {
    // More than 15 fields: there is one for each method, and groups would only be taken apart
    // again.
    pub(crate) name: String,
    pub(crate) width: Option<usize>,
    pub(crate) processes: u32,
    pub(crate) timers: u32,
    pub(crate) seed: Option<u64>,
    pub(crate) test_clock: bool,
    pub(crate) callers_drive: bool,
    pub(crate) shuffled: bool,
    pub(crate) max_threads: Option<usize>,
    pub(crate) keep_alive: Duration,
    pub(crate) on_thread_start: Option<Hook>,
    pub(crate) on_thread_stop: Option<Hook>,
    pub(crate) cpus: Option<Vec<usize>>,
    pub(crate) coroutines: bool,
    pub(crate) stack_bytes: usize,
    pub(crate) stacks: usize,
    pub(crate) watchdog: bool,
    pub(crate) stall_after: Duration,
    pub(crate) max_computing: Option<usize>,
    pub(crate) max_batch: Option<usize>,
    pub(crate) handlers: Vec<(CommandId, Arc<dyn Handler>)>,
    pub(crate) dead_letters: Option<dead_letter::Observer>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
    pub(crate) parts: Parts,
    pub(crate) request_ids: bool,
    pub(crate) refuse_call_cycles: bool,
    pub(crate) recorder_events: usize,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Creates a builder with the defaults and with these parts.
    pub(crate) fn with_parts(parts: Parts) -> Self {
        Self {
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
            max_batch: None,
            handlers: Vec::new(),
            dead_letters: None,
            relay: None,
            parts,
            request_ids: false,
            refuse_call_cycles: false,
            // Without the feature, nothing reads the events.
            recorder_events: if cfg!(feature = "look") { WORDS_DEFAULT } else { 0 },
        }
    }

    /// Sets the name of the scheduler, with which the names of its threads begin. Default:
    /// `procession`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many workers run concurrently, 1 to 1024. Default: the number of CPUs that this
    /// program may use, which honours affinity masks and cgroup quotas.
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.width = Some(workers);
        self
    }

    /// Sets the maximum number of threads, from the width to 4095. Default: the width plus 64, or
    /// just the width if callers drive the scheduler.
    ///
    /// The scheduler starts a thread beyond the width when a step blocks
    /// ([`blocking`](crate::blocking())) while other work waits. If all threads are blocked, no
    /// other process runs until one of these steps returns. A step that returns continues on its
    /// thread, even if as many workers as the width run other steps then.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// Sets how long an idle thread is kept while there are more threads than the width. Default:
    /// 10 seconds.
    ///
    /// The thread that parked last is used first. So if there is less to do, the other threads stay
    /// idle until this time is over, and end.
    ///
    /// The time is also for the stacks of ended coroutines. If a stack stays unused for one to two
    /// times as long, and for at least one to two seconds, its memory returns to the system. At
    /// most 10 000 stacks do so in a second. Each worker keeps the memory of up to 64 stacks.
    pub fn keep_alive(mut self, timeout: Duration) -> Self {
        self.keep_alive = timeout;
        self
    }

    /// Sets a hook that runs on each thread that the scheduler starts, before the thread runs a
    /// process. A panic of the hook is caught.
    pub fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_thread_start = Some(Arc::new(hook));
        self
    }

    /// Sets a hook that runs on each thread that the scheduler started, after the thread has run
    /// its last process. A panic of the hook is caught. The hook does not run on threads that still
    /// exist when the program ends.
    pub fn on_thread_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_thread_stop = Some(Arc::new(hook));
        self
    }

    /// Restricts the threads of the scheduler to these processors, as far as the program may use
    /// them. The default width is then their number. Threads of callers are not moved. Default: all
    /// processors that the program may use.
    pub fn cpus(mut self, numbers: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(numbers.into_iter().collect());
        self
    }

    /// Turns the watchdog on or off. Default: on. A scheduler with a test clock, or with only one
    /// thread, never has a watchdog.
    ///
    /// The watchdog is a separate thread that observes the workers. While work is waiting, it
    /// replaces workers that block or compute for a long time in a step, unless they are in a
    /// [blocking section](crate::blocking()). Workers pay a few plain stores for each step. The
    /// watchdog sleeps while nothing runs.
    ///
    /// A scheduler without a watchdog starts another thread if code outside of it waits for one of
    /// its timers, for example for the deadline of its [`shutdown`](Scheduler::shutdown). This
    /// thread fires such timers up to 10 ms late if all workers are stuck.
    pub fn watchdog(mut self, is_on: bool) -> Self {
        self.watchdog = is_on;
        self
    }

    /// Sets the duration after which a step counts as stalled. A value below 5 ms counts as 5 ms.
    /// Default: 10 ms.
    ///
    /// The watchdog notices a stall up to 2.5 ms later, or 5 ms if the value is not a multiple of
    /// 2.5 ms. Up to 1 ms is added if the program was idle before the step, and more if the system
    /// keeps the watchdog's thread waiting.
    pub fn stall_after(mut self, timeout: Duration) -> Self {
        self.stall_after = timeout;
        self
    }

    /// Sets how many workers may be replaced at the same time because their steps compute rather
    /// than block. Each replacement is one more thread that competes for processors. Default: twice
    /// the width.
    pub fn max_computing(mut self, workers: usize) -> Self {
        self.max_computing = Some(workers);
        self
    }

    /// Sets how many workers may run processes of [`Priority::Batch`](crate::process::Priority) at
    /// the same time, from 1 to the width. Default: the width less 1, and at least 1, which follows
    /// a [change of the width](Scheduler::set_worker_threads). A number that is set here does not.
    ///
    /// With the default, a batch process that computes for long never delays others on every
    /// worker, but at least one worker runs no batch process even if nothing else is ready. Choose
    /// the width for the most throughput, if all steps of batch processes are short.
    ///
    /// A step counts while its worker has a permit: not in a [blocking
    /// section](crate::blocking()), and not after the watchdog has replaced its worker. When such a
    /// worker comes back, it counts again, or waits.
    pub fn max_batch(mut self, workers: usize) -> Self {
        self.max_batch = Some(workers);
        self
    }

    /// Sets how many processes may exist at the same time, 1 to 2^30. Default: 2^24.
    ///
    /// Each worker reserves a few free slots, at most 64 and at most a sixteenth of the limit. A
    /// spawn may therefore be refused that much below the limit.
    pub fn max_processes(mut self, limit: u32) -> Self {
        self.processes = limit;
        self
    }

    /// Sets how many timers may be pending at the same time on each worker, 1 to 2^30. Default:
    /// 2^24.
    pub fn max_timers(mut self, limit: u32) -> Self {
        self.timers = limit;
        self
    }

    /// Sets the seed of all random choices of the scheduler. Default: drawn from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Replaces the clock by a test clock, which stands still while anything can run, and then
    /// jumps to the earliest deadline.
    ///
    /// The scheduler is then driven by its callers. With a width of 1 and the same seed, two runs
    /// make the same dispatches. The seed is 0 unless one is given.
    pub fn test_clock(mut self) -> Self {
        self.test_clock = true;
        self.callers_drive = true;
        self
    }

    /// Lets the threads that call [`block_on`](Scheduler::block_on) and
    /// [`run_until_idle`](Scheduler::run_until_idle) act as the first worker during these calls.
    ///
    /// With a width of 1 the scheduler starts no thread, and nothing runs between the calls that
    /// drive it. If a process then holds the last [`Scheduler`] handle, and no thread drives the
    /// scheduler any more, the scheduler is never freed.
    ///
    /// A [coroutine](crate::coroutine) stays on the thread that began it, and so does a [local
    /// process](crate::SpawnOptions::spawn_local). While such a process that began on a caller's
    /// thread is alive, only that thread drives the scheduler, and other callers wait. When the
    /// thread ends, it ends the remaining processes with
    /// [`Exit::ThreadEnded`](crate::Exit::ThreadEnded), and other callers can drive. The main
    /// thread ends no process, because it ends with the program.
    pub fn callers_drive(mut self) -> Self {
        self.callers_drive = true;
        self
    }

    /// Randomises the order of processes, to find code that relies on it: wake-ups are denied the
    /// LIFO slot at random, and batches from the global queue are shuffled. For tests.
    pub fn shuffled(mut self) -> Self {
        self.shuffled = true;
        self
    }

    /// Allows [coroutines](crate::coroutine). Without this,
    /// [`try_start_coroutine`](crate::SpawnOptions::try_start_coroutine) is an error.
    ///
    /// It also installs a handler for SIGSEGV and SIGBUS that reports a stack overflow of a
    /// coroutine, and passes on everything else.
    ///
    /// # Safety
    /// All code that runs in coroutines of this scheduler must keep the [residual
    /// rule](procession_coroutine#the-residual-rule) wherever it waits:
    ///
    /// 1. No thread-local points to something that is scoped to a frame of the coroutine. Such code
    ///    assumes that scopes on one thread end in the reverse order of their beginnings, and
    ///    coroutines do not. Safe code can do this, for example with the crate `scoped-tls`. The
    ///    same holds for coroutines of other libraries that are suspended inside of one of these,
    ///    and for code that measures the thread's stack.
    /// 2. No frame refers to the value of a thread-local, unless the coroutine ends before its
    ///    thread does. Threads of the scheduler do not end before their coroutines, unless a
    ///    coroutine is [stuck](crate::coroutine#ends). A thread that [drives](Self::callers_drive)
    ///    the scheduler unwinds its coroutines before it destroys its thread-locals, with one
    ///    exception: a thread-local that is first used after the thread has left the scheduler with
    ///    a coroutine in it. The main thread unwinds no coroutine.
    /// 3. Each frame can be unwound. A coroutine that is cancelled, terminated, or alive when its
    ///    scheduler ends is unwound from where it waits. If a function with the C ABI is on its
    ///    stack then, such as `qsort` calling a comparison, the program aborts.
    ///
    /// Wrap code that may break a rule in
    /// [`coroutine::no_suspend`](crate::coroutine::no_suspend()). It then blocks its worker's
    /// thread instead of being suspended.
    ///
    /// ```
    /// use procession::{Scheduler, SpawnOptions, coroutine};
    ///
    /// thread_local! {
    ///     static NAMES: Vec<String> = vec!["a name".to_owned()];
    /// }
    ///
    /// // SAFETY: no reference to a thread-local is held across a suspension.
    /// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
    /// scheduler.block_on(async {
    ///     let looks = SpawnOptions::new().try_start_coroutine(|_: coroutine::Context<()>| {
    ///         // `names` stays borrowed while the coroutine waits, so it blocks its thread.
    ///         coroutine::no_suspend(|| NAMES.with(|names| coroutine::wait(async { names.len() })))
    ///     });
    ///     assert_eq!(looks.expect("they are enabled").await, Ok(1));
    /// });
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    #[expect(unsafe_code, reason = "a promise about code that no type can check")]
    pub unsafe fn enable_coroutines(mut self) -> Self {
        self.coroutines = true;
        self
    }

    /// Sets the minimum size of a coroutine's stack, unless
    /// [`SpawnOptions::stack_size`](crate::SpawnOptions::stack_size) overrides it. Default: 128
    /// KiB.
    ///
    /// With its guard, a stack takes the next power of two of address space. Only the pages that
    /// are touched take memory. The default takes 256 KiB of address space, of which 191 KiB are
    /// usable.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Sets how many stacks may exist at the same time, 1 to 2^30, whatever their sizes. If none is
    /// left, a new coroutine waits before it begins. The coroutine that has waited the longest
    /// gets the next stack. Default: 2^21.
    pub fn max_stacks(mut self, limit: usize) -> Self {
        self.stacks = limit;
        self
    }

    /// Registers the handler of a command. The set of handlers is fixed once the scheduler is
    /// built.
    pub fn handler(mut self, command: CommandId, handler: impl Handler) -> Self {
        self.handlers.push((command, Arc::new(handler)));
        self
    }

    /// Registers a typed handler of a command. See [`Command`].
    pub fn command<C: Command>(self, serve: impl Fn(C, Done<C>) + Send + Sync + 'static) -> Self {
        self.handler(C::ID, command::typed(serve))
    }

    /// Sets the relay, which carries messages that processes of this scheduler send by PID to
    /// processes of other schedulers and nodes. Default:
    /// [`InProcess`](crate::mailbox::relay::InProcess), which reaches all schedulers of this
    /// program.
    ///
    /// An [`Address`](crate::Address) refers to its process directly and needs no relay.
    pub fn relay(mut self, relay: impl Relay) -> Self {
        self.relay = Some(Arc::new(relay));
        self
    }

    /// Sets a hook that is called with every [dead letter](DeadLetter) before it is dropped.
    ///
    /// The hook runs on the thread that finds the dead letter, so it must not block. A panic of the
    /// hook is caught. Dead letters are counted with or without a hook
    /// ([`Snapshot::messages_discarded`](crate::observe::snapshot::Snapshot::messages_discarded)).
    pub fn on_dead_letter(
        mut self,
        observer: impl Fn(DeadLetter<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.dead_letters = Some(dead_letter::Observer(Arc::new(observer)));
        self
    }

    /// Sets whether the [ids of requests](crate::request) travel with messages to the processes of
    /// this scheduler, and are passed on to processes that are spawned on it. Default: `false`.
    ///
    /// If this is on, each message takes more memory, for the id and for the PID of its sender, and
    /// each process takes more memory as well.
    pub fn request_ids(mut self, travel: bool) -> Self {
        self.request_ids = travel;
        self
    }

    /// Sets whether a call is refused with [`CallError::Cycle`](crate::CallError::Cycle) if it
    /// would close a cycle of calls: the callee waits, directly or through others, for a reply of
    /// the calling process, and each of these processes waits for nothing else but a timeout or a
    /// cancel. Default: `false`.
    ///
    /// It is a choice for all calls of the scheduler's processes, because a callee that calls back
    /// is a mistake of both sides. Turn it on unless processes hand a
    /// [`Reply`](crate::Reply) to another process, and call their caller before that process
    /// replies, or rely on the timeout of such a call.
    ///
    /// A call costs a few loads more if its callee waits, and more for each further process in the
    /// chain. Of two calls that close a cycle at the same moment, on two workers, none may be
    /// refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::{Address, CallError, Context, Reply, Scheduler};
    ///
    /// type Call = (Reply<bool>, Address<Reply<bool>>);
    ///
    /// // With one worker, the caller waits before the process calls back.
    /// let builder = Scheduler::builder().worker_threads(1).test_clock();
    /// let scheduler = builder.refuse_call_cycles(true).build()?;
    /// // The process calls its callers.
    /// let calls_back = scheduler.start(|mut cx: Context<Call>| async move {
    ///     while let Some((reply, caller)) = cx.recv().await {
    ///         let error = caller.call(|reply| reply, Duration::from_secs(9)).await.unwrap_err();
    ///         reply.send(error.is_cycle());
    ///     }
    /// });
    /// let caller = scheduler.start(|cx: Context<Reply<bool>>| async move {
    ///     let own = cx.address();
    ///     calls_back.call(|reply| (reply, own), Duration::from_secs(9)).await
    /// });
    /// assert!(scheduler.block_on(caller)?.is_ok_and(|is_refused| is_refused));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refuse_call_cycles(mut self, is_on: bool) -> Self {
        self.refuse_call_cycles = is_on;
        self
    }

    /// Sets how many events the [flight recorder](crate::recorder::Trace) keeps of each worker, up
    /// to 2^24, or 0 for no recorder. Default: 65536, and 0 without the crate feature `look`,
    /// because nothing can read the events then.
    ///
    /// Each event takes 8 bytes. The number is rounded up to a power of two, and to 256. The rings
    /// of threads that take over from blocked threads are a sixteenth of the size.
    pub fn recorder_events(mut self, events: usize) -> Self {
        self.recorder_events = events;
        self
    }

    /// Builds the scheduler and, unless its callers drive it, starts its first thread.
    ///
    /// Further threads start when there is work for them. If the system refuses a thread, the
    /// scheduler continues with the threads that it has, and counts the refusal
    /// ([`Snapshot`](crate::observe::snapshot::Snapshot)).
    ///
    /// # Errors
    /// [`BuildError`]: a value out of range, a command with two handlers, a refused thread, or a
    /// door that cannot be opened. Also a test clock with an existing tokio runtime, or with a
    /// tokio runtime and several workers.
    pub fn build(mut self) -> Result<Scheduler, BuildError> {
        let cpus = self.cpus.as_deref().map(allowed_cpus).transpose()?;
        let (width, max_threads) = self.threads(cpus.as_ref())?;
        self.check_limits()?;
        let world = self.world();
        let stacks = self.coroutines.then(|| Stacks::builder().limit(self.stacks).build());
        let stacks = stacks.transpose().map_err(|error| BuildError::Stacks(error.into()))?;
        let handlers = Box::new(HandlerTable::new(self.handlers)?);
        self.parts
            .prepare(Plan {
                name: &self.name,
                width,
                max_threads,
                test_clock: self.test_clock,
                callers_drive: self.callers_drive,
                companion: None,
            })
            .map_err(BuildError::of_part)?;
        let look_every = self.parts.paused().and_then(Companion::look_every);
        let world = Arc::new(world.looking_every(look_every));
        let id = next_id(&world)?;
        let shared = Arc::new_cyclic(|me| Shared {
            identity: Identity { me: me.clone(), id, name: self.name },
            processes: ProcessIndex::new(
                Table::new(self.processes, width as u32),
                IndexOptions {
                    request_ids: self.request_ids,
                    refuse_call_cycles: self.refuse_call_cycles,
                    test_clock: self.test_clock,
                },
            ),
            workforce: Workforce {
                idle: Idle::new(max_threads as u32, width as u32, self.callers_drive),
                seats: SeatTable::new(&world, width, max_threads, self.timers),
                queues: SharedQueues::new(self.shuffled),
                levels: Levels::new(max_threads),
                threads: ThreadSupply::new(ThreadOptions {
                    keep_alive: self.keep_alive,
                    on_start: self.on_thread_start,
                    on_stop: self.on_thread_stop,
                    cpus,
                }),
                watchdog: Watchdog::new(WatchdogOptions {
                    is_on: self.watchdog && !self.test_clock && max_threads > 1,
                    stall_after: stall_after(self.stall_after),
                    max_computing: self.max_computing.unwrap_or(2 * width),
                }),
                world: Arc::clone(&world),
                starter: me.clone() as Weak<dyn Starter>,
            },
            world,
            clock: Clock::new(self.timers),
            poller: Poller::closed(),
            lifetime: Lifetime::open(),
            callers: Callers::new(self.callers_drive),
            coroutines: Supply::new(stacks, self.stacks, self.stack_bytes),
            recorder: Recorder::new(self.recorder_events),
            extensions: Extensions { handlers, dead_letters: self.dead_letters, relay: self.relay },
            parts: self.parts,
            stats: SharedStats::default(),
        });
        shared.workforce.idle.limit_batch(self.max_batch.map(|most| most as u32));
        #[cfg(feature = "sim")]
        if let Some(os) = shared.world.simulated() {
            let subject: std::sync::Weak<Shared> = Arc::downgrade(&shared);
            os.built(subject);
        }
        if !self.callers_drive {
            shared.start_first_thread().map_err(BuildError::Thread)?;
        }
        crate::scheduler::reach::make_reachable(&shared);
        let scheduler = Scheduler(Arc::new(Owner(shared)));
        Handles::note(&scheduler);
        scheduler.shared().parts.begin(scheduler.shared()).map_err(BuildError::of_part)?;
        Ok(scheduler)
    }

    fn world(&self) -> World {
        if self.test_clock {
            World::test(self.seed.unwrap_or(0))
        } else {
            World::current(self.seed)
        }
    }

    /// Returns the width and the maximum number of threads.
    fn threads(&self, cpus: Option<&Cpus>) -> Result<(usize, usize), BuildError> {
        let width = match (self.width, cpus) {
            (Some(width), _) => width,
            (None, Some(cpus)) => cpus.count().min(WIDTH_MAX),
            (None, None) => Cpus::available().min(WIDTH_MAX),
        };
        OutOfRange::check("worker_threads", width, 1, WIDTH_MAX)?;
        let extra = if self.callers_drive { 0 } else { EXTRA_THREADS_DEFAULT };
        let max_threads = self.max_threads.unwrap_or(width + extra);
        OutOfRange::check("max_threads", max_threads, width, THREADS_MAX)?;
        if let Some(most) = self.max_batch {
            OutOfRange::check("max_batch", most, 1, width)?;
        }
        Ok((width, max_threads))
    }

    fn check_limits(&self) -> Result<(), BuildError> {
        OutOfRange::check("max_processes", self.processes as usize, 1, 1 << 30)?;
        OutOfRange::check("max_timers", self.timers as usize, 1, 1 << 30)?;
        if self.name.contains('\0') {
            return Err(BuildError::Name(self.name.clone()));
        }
        OutOfRange::check("recorder_events", self.recorder_events, 0, WORDS_MAX)?;
        OutOfRange::check("max_stacks", self.stacks, 1, 1 << 30)?;
        Ok(())
    }
}

/// The first id of a scheduler on a simulated system.
const SIMULATED_ID: u32 = 1_000_000;

/// Returns a new scheduler id, which no other scheduler of the program has had.
fn next_id(world: &World) -> Result<u32, BuildError> {
    static LAST_ID: AtomicU32 = AtomicU32::new(0);
    // A simulated run may write PIDs to a socket, and another run of its seed writes other PIDs.
    // All of these have the same number of digits.
    let least = if world.simulated().is_some() { SIMULATED_ID } else { 1 };
    let next = |last: u32| last.checked_add(1).map(|id| id.max(least));
    LAST_ID
        .fetch_update(Relaxed, Relaxed, next)
        .map(|last| (last + 1).max(least))
        .map_err(|_| BuildError::Exhausted)
}

fn allowed_cpus(numbers: &[usize]) -> Result<Cpus, BuildError> {
    if let Some(&number) = numbers.iter().find(|&&number| number >= Cpus::LIMIT) {
        OutOfRange::check("cpus", number, 0, Cpus::LIMIT - 1)?;
    }
    match Cpus::allowed_of(numbers) {
        Ok(Some(cpus)) => Ok(cpus),
        Ok(None) => Err(BuildError::NoCpu(numbers.to_vec())),
        Err(error) => Err(BuildError::Cpus(error)),
    }
}
