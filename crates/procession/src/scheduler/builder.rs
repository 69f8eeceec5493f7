//! How a scheduler is configured and built.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_coroutine::Stacks;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::coroutine::supply::Supply;
use crate::io::poller::Poller;
use crate::machine::command;
use crate::machine::command::{Command, Done};
use crate::machine::registry::{Handler, Registry};
use crate::machine::value::CommandId;
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadLetter;
use crate::mailbox::parcel::Relay;
use crate::process::table::Table;
use crate::scheduler::callers::state::Callers;
use crate::scheduler::clock::state::Clock;
use crate::scheduler::end::state::Lifetime;
use crate::scheduler::error::BuildError;
use crate::scheduler::idle::Idle;
use crate::scheduler::owner::{Owner, Scheduler};
use crate::scheduler::seat::SeatTable;
use crate::scheduler::shared::{Extensions, Identity, ProcessIndex, Shared, SharedQueues};
use crate::scheduler::stats::SharedStats;
use crate::scheduler::threads::state::{Hook, ThreadOptions, ThreadSupply};
use crate::sys::{Cpus, World};
use crate::util::out_of_range::OutOfRange;
use crate::watchdog;
use crate::watchdog::state::{Observer, Stall, Watchdog, WatchdogOptions};

/// Processes at once, unless the builder says otherwise: 2 GiB of control blocks.
pub(crate) const PROCESSES_DEFAULT: u32 = 1 << 24;
/// Pending timers of each worker, unless the builder says otherwise.
pub(crate) const TIMERS_DEFAULT: u32 = 1 << 24;
/// What a coroutine's stack holds, unless the builder says otherwise: a panic with a backtrace
/// takes 22 KiB.
pub(crate) const STACK_BYTES_DEFAULT: usize = 128 << 10;
/// Stacks at once, unless the builder says otherwise: half a tebibyte of address space.
pub(crate) const STACKS_DEFAULT: usize = 1 << 21;
/// Workers at most: far beyond the CPUs that one machine has, and small enough that each may look
/// at all others.
const WIDTH_MAX: usize = 1024;
/// Threads at most: each may have to look at what all others have.
const THREADS_MAX: usize = 4096;
/// Threads beyond the width, unless the builder says otherwise: as many steps may block at once
/// without holding others up.
const EXTRA_THREADS_DEFAULT: usize = 64;
/// How long a thread that is not needed is kept, unless the builder says otherwise.
pub(crate) const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(10);
/// When a step is stalled, unless the builder says otherwise: Go's time slice.
pub(crate) const STALL_AFTER_DEFAULT: Duration = Duration::from_millis(10);

/// What a [`Scheduler`] is to be like.
#[must_use]
pub struct Builder {
    // One field for each method, so more than fifteen: parts would only be taken apart again.
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
    pub(crate) on_stall: Option<Observer>,
    pub(crate) handlers: Vec<(CommandId, Arc<dyn Handler>)>,
    pub(crate) dead_letters: Option<dead_letter::Observer>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
    #[cfg(feature = "tokio")]
    pub(crate) tokio: crate::bridge::runtime::Choice,
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
    /// The name of the scheduler, and the beginning of its threads' names. Default: `procession`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers run at once, 1 to 1024. Default: the number of CPUs that this program may
    /// use, which honours affinity masks and cgroup quotas.
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.width = Some(workers);
        self
    }

    /// How many threads there may be, from the width to 4096. Default: the width and 64 more; if
    /// callers drive the scheduler, just the width.
    ///
    /// Those beyond the width are started when steps block ([`blocking`](crate::blocking())) and
    /// work is waiting. Once all threads that there may be are blocked, nothing else runs until one
    /// of them returns; one that returns always goes on.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// How long a thread that has nothing to do is kept if there are more than the width. Those
    /// used last are used first, so the others get old. Default: 10 seconds.
    pub fn keep_alive(mut self, timeout: Duration) -> Self {
        self.keep_alive = timeout;
        self
    }

    /// Called on each thread of the scheduler when it starts, before it runs a process. A panic
    /// ends there.
    pub fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_thread_start = Some(Arc::new(hook));
        self
    }

    /// Called on each thread of the scheduler that was started, after it has run its last process.
    /// A panic ends there. Not called on threads that are still there when the program ends.
    pub fn on_thread_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_thread_stop = Some(Arc::new(hook));
        self
    }

    /// Keeps the threads of the scheduler on these processors, of those that the program may use.
    /// The default width is then their number. Threads of callers run where they did. Default: all
    /// that the program may use.
    pub fn cpus(mut self, numbers: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(numbers.into_iter().collect());
        self
    }

    /// Whether a thread of its own looks after the workers, and replaces those whose steps block or
    /// compute for long without saying so, while something waits. Workers pay a few plain stores
    /// for each step; the thread sleeps while nothing runs. Default: yes, unless there is a test
    /// clock, or but one thread.
    pub fn watchdog(mut self, is_on: bool) -> Self {
        self.watchdog = is_on;
        self
    }

    /// Sets the duration after which a step counts as stalled. A value below 5 ms counts as 5 ms.
    /// Default: 10 ms.
    ///
    /// The watchdog notices a stall up to 2.5 ms later, or 5 ms if the value is not a multiple of
    /// 2.5 ms, and later still if the system keeps the watchdog's thread waiting.
    pub fn stall_after(mut self, timeout: Duration) -> Self {
        self.stall_after = timeout;
        self
    }

    /// How many workers whose steps compute, rather than block, may be replaced at once. Each is a
    /// thread more that competes for processors. Default: twice the width.
    pub fn max_computing(mut self, workers: usize) -> Self {
        self.max_computing = Some(workers);
        self
    }

    /// Is told of each step that stalls, once, when the watchdog finds it, at most ten times in a
    /// second; the others are counted ([`StallSnapshot`](crate::watchdog::state::StallSnapshot)).
    /// Blocking sections are no stalls. It runs on the watchdog's thread, so it must not block; a
    /// panic ends there.
    pub fn on_stall(mut self, observer: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall = Some(Arc::new(observer));
        self
    }

    /// How many processes may live at once, 1 to 2^30. Each worker keeps a few free slots back for
    /// itself, at most a sixteenth of the limit and 64, so the limit may be felt that much earlier.
    /// Default: 2^24.
    pub fn max_processes(mut self, limit: u32) -> Self {
        self.processes = limit;
        self
    }

    /// How many timers may be pending at once on each worker, 1 to 2^30. Default: 2^24.
    pub fn max_timers(mut self, limit: u32) -> Self {
        self.timers = limit;
        self
    }

    /// The seed of every free choice that the scheduler makes. Default: drawn from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Replaces the clock by one that stands still while anything can run, and then jumps to the
    /// earliest deadline. The scheduler is then driven by its callers. With a width of 1 and a
    /// seed, two runs make the same dispatches. The seed is 0 unless one is given.
    pub fn test_clock(mut self) -> Self {
        self.test_clock = true;
        self.callers_drive = true;
        self
    }

    /// Lets the threads that call [`block_on`](Scheduler::block_on) and
    /// [`run_until_idle`](Scheduler::run_until_idle) be the first worker while they do. With a
    /// width of 1 the scheduler starts no thread: nothing runs between those calls. So a process
    /// that keeps the last [`Scheduler`] handle, and is driven by nobody any more, keeps the
    /// scheduler for ever.
    ///
    /// A [coroutine](crate::coroutine) stays on the thread that began it. While a coroutine that
    /// began on a caller's thread is alive, only that thread drives the scheduler; other callers
    /// wait. When the thread ends, it unwinds the coroutines that are left, with
    /// [`Exit::ThreadEnded`](crate::Exit::ThreadEnded), and the others go on. The main thread
    /// unwinds none: it ends with the program.
    pub fn callers_drive(mut self) -> Self {
        self.callers_drive = true;
        self
    }

    /// Shakes out assumptions about order: a wake-up is refused the next slot at random, and what
    /// is taken from the global queue together is shuffled. For tests.
    pub fn shuffled(mut self) -> Self {
        self.shuffled = true;
        self
    }

    /// Allows [coroutines](crate::coroutine): without this,
    /// [`spawn_coroutine`](crate::coroutine::spawn_coroutine()) is an error. From then on a stack
    /// overflow of a coroutine is reported, by a handler for SIGSEGV and SIGBUS that passes on all
    /// else.
    ///
    /// # Safety
    /// All code that runs in coroutines of this scheduler keeps the [residual
    /// rule](procession_coroutine#the-residual-rule) wherever it waits:
    ///
    /// 1. No thread-local points to something that is scoped to a frame of the coroutine.
    ///    Coroutines on one thread do not end in the reverse order of their beginnings, which such
    ///    code takes for granted; safe code can do that, for example with the crate `scoped-tls`.
    ///    The same holds for coroutines of other libraries that are suspended inside of one of
    ///    these, and for code that measures the thread's stack.
    /// 2. No frame refers to the value of a thread-local, unless the coroutine ends before its
    ///    thread does. Threads of the scheduler do not end before their coroutines, except for one
    ///    that is [stuck](crate::coroutine#ends). A thread that [drives](Self::callers_drive) the
    ///    scheduler unwinds its coroutines before it destroys its thread-locals, with one
    ///    exception: a thread-local that is first used after the thread has left the scheduler
    ///    with a coroutine in it. The main thread unwinds none.
    /// 3. Each frame can be unwound. A coroutine that is cancelled, terminated, or alive when its
    ///    scheduler ends is unwound from where it waits. A function with the ABI of C on its stack,
    ///    such as a comparison that `qsort` calls, aborts the program then.
    ///
    /// Code that may break a rule is wrapped in
    /// [`coroutine::no_suspend`](crate::coroutine::no_suspend()): it blocks its worker's thread
    /// where it would wait.
    ///
    /// ```
    /// use procession::{Scheduler, coroutine};
    /// use procession::coroutine::spawn_coroutine;
    ///
    /// thread_local! {
    ///     static NAMES: Vec<String> = vec!["a name".to_owned()];
    /// }
    ///
    /// // SAFETY: what refers to a thread-local is not suspended.
    /// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
    /// scheduler.block_on(async {
    ///     let looks = spawn_coroutine(|_: coroutine::Context<()>| {
    ///         // What is lent here stays borrowed while the coroutine waits, so it waits on this thread.
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

    /// What the stack of a coroutine holds at least, unless
    /// [`SpawnOptions::stack_size`](crate::SpawnOptions::stack_size) says otherwise. With its guard
    /// it takes the next power of two of address space; memory is only what is touched. Default:
    /// 128 KiB, which is 191 with what is left of the 256.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// How many stacks there may be at once, 1 to 2^30; a coroutine for which there is none waits
    /// before it begins. Default: 2^21.
    pub fn max_stacks(mut self, limit: usize) -> Self {
        self.stacks = limit;
        self
    }

    /// Registers what serves a command. The set is fixed once the scheduler is built.
    pub fn handler(mut self, command: CommandId, handler: impl Handler) -> Self {
        self.handlers.push((command, Arc::new(handler)));
        self
    }

    /// Registers what serves a command with types. See [`Command`].
    pub fn command<C: Command>(self, serve: impl Fn(C, Done<C>) + Send + Sync + 'static) -> Self {
        self.handler(C::ID, command::typed(serve))
    }

    /// Carries the messages that processes of this scheduler send by PID to others than its own, to
    /// those of other nodes too. Default: [`InProcess`](crate::mailbox::relay::InProcess), which
    /// reaches all schedulers of this program.
    ///
    /// An [`Address`](crate::Address) needs no relay: it has the process at hand.
    pub fn relay(mut self, relay: impl Relay) -> Self {
        self.relay = Some(Arc::new(relay));
        self
    }

    /// Lets crates that need tokio (`reqwest`, `sqlx`, `tonic`) run unchanged in processes: a
    /// runtime of tokio's is started beside the scheduler, and all that runs on the scheduler's
    /// threads, futures in [`block_on`](Scheduler::block_on) and coroutines too, runs in its
    /// context. The default scheduler is built like this.
    ///
    /// A future of such a crate is polled by the scheduler's workers, like any other. tokio's
    /// sockets and timers are served by its one thread, which wakes the process, so they cost a
    /// wake-up across threads where those of [`net`](crate::net) and [`sleep`](crate::sleep()) cost
    /// none; what is given to `tokio::spawn` runs there, as tokio's task, and is no process.
    /// `tokio::task::spawn_blocking` has its own threads. What waits in tokio spends none of a
    /// step's budget.
    ///
    /// tokio's runtime stops when the scheduler has ended and nobody has it any more; tasks that it
    /// still has are dropped then.
    ///
    /// It goes by the real clock, so with a [test clock](Self::test_clock) it is refused: that one
    /// would jump over everything that waits for tokio. On such a scheduler tokio's functions panic
    /// with "there is no reactor running", unless its driver itself runs in a context of tokio's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().tokio().build()?;
    /// let answer = scheduler.spawn(async {
    ///     // As any crate might that was written for tokio.
    ///     tokio::time::timeout(Duration::from_secs(9), tokio::spawn(async { 42 })).await
    /// });
    /// assert_eq!(answer.join()???, 42);
    ///
    /// let refused = Scheduler::builder().tokio().test_clock().build().unwrap_err();
    /// assert!(refused.to_string().contains("tokio goes by the real clock"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self) -> Self {
        self.tokio = crate::bridge::runtime::Choice::Own;
        self
    }

    /// As [`tokio`](Self::tokio), but with a runtime of the program's own, which it has to keep
    /// running. Of one that was made by `new_current_thread` nothing is served but while its thread
    /// is in its `block_on`.
    #[cfg(feature = "tokio")]
    pub fn tokio_on(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.tokio = crate::bridge::runtime::Choice::Given(runtime);
        self
    }

    /// Looks at every [dead letter](DeadLetter) before it is dropped. It runs on the thread that
    /// finds it, so it must not block; a panic ends there. They are counted whether anybody looks
    /// or not
    /// ([`Snapshot::messages_discarded`](crate::observe::snapshot::Snapshot::messages_discarded)).
    pub fn on_dead_letter(
        mut self,
        observer: impl Fn(DeadLetter<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.dead_letters = Some(dead_letter::Observer(Arc::new(observer)));
        self
    }

    /// Builds the scheduler and, unless its callers drive it, starts its first thread. The others
    /// start when there is work for them; if the system refuses one then, the scheduler goes on
    /// with those it has, and counts it ([`Snapshot`](crate::observe::snapshot::Snapshot)).
    ///
    /// # Errors
    /// [`BuildError`]: a value out of range, a command with two handlers, a refused thread, or tokio with a test clock.
    pub fn build(self) -> Result<Scheduler, BuildError> {
        let cpus = self.cpus.as_deref().map(allowed_cpus).transpose()?;
        let (width, max_threads) = self.threads(cpus.as_ref())?;
        self.check_limits()?;
        let stacks = self.coroutines.then(|| Stacks::builder().limit(self.stacks).build());
        let stacks = stacks.transpose().map_err(|error| BuildError::Stacks(error.into()))?;
        let handlers = Registry::new(self.handlers)?;
        #[cfg(feature = "tokio")]
        let bridge = crate::bridge::runtime::open(self.tokio, &self.name, self.test_clock)?;
        let id = next_id()?;
        let world = if self.test_clock {
            World::test(self.seed.unwrap_or(0))
        } else {
            World::real(self.seed)
        };
        let shared = Arc::new_cyclic(|me| Shared {
            identity: Identity { me: me.clone(), id, name: self.name },
            processes: ProcessIndex::new(Table::new(self.processes, width as u32)),
            queues: SharedQueues::new(self.shuffled),
            idle: Idle::new(max_threads as u32, width as u32, self.callers_drive),
            seats: SeatTable::new(&world, width, max_threads, self.timers),
            world,
            clock: Clock::new(self.timers),
            poller: Poller::closed(),
            lifetime: Lifetime::open(),
            callers: Callers::new(self.callers_drive),
            coroutines: Supply::new(stacks, self.stacks, self.stack_bytes),
            threads: ThreadSupply::new(ThreadOptions {
                keep_alive: self.keep_alive,
                on_start: self.on_thread_start,
                on_stop: self.on_thread_stop,
                cpus,
            }),
            watchdog: Watchdog::new(WatchdogOptions {
                is_on: self.watchdog && !self.test_clock && max_threads > 1,
                stall_after: watchdog::stall_after(self.stall_after),
                max_computing: self.max_computing.unwrap_or(2 * width),
                on_stall: self.on_stall,
            }),
            extensions: Extensions {
                handlers,
                dead_letters: self.dead_letters,
                relay: self.relay,
                #[cfg(feature = "tokio")]
                bridge,
            },
            stats: SharedStats::default(),
        });
        if !self.callers_drive {
            shared.start_first_thread().map_err(BuildError::Thread)?;
        }
        crate::scheduler::reach::make_reachable(&shared);
        Ok(Scheduler(Arc::new(Owner(shared))))
    }

    /// The width, and how many threads there may be.
    fn threads(&self, cpus: Option<&Cpus>) -> Result<(usize, usize), BuildError> {
        let width = match (self.width, cpus) {
            (Some(width), _) => width,
            (None, Some(cpus)) => cpus.count().min(WIDTH_MAX),
            (None, None) => {
                std::thread::available_parallelism().map_or(1, usize::from).min(WIDTH_MAX)
            }
        };
        OutOfRange::check("worker_threads", width, 1, WIDTH_MAX)?;
        let extra = if self.callers_drive { 0 } else { EXTRA_THREADS_DEFAULT };
        let max_threads = self.max_threads.unwrap_or(width + extra);
        OutOfRange::check("max_threads", max_threads, width, THREADS_MAX)?;
        Ok((width, max_threads))
    }

    fn check_limits(&self) -> Result<(), BuildError> {
        OutOfRange::check("max_processes", self.processes as usize, 1, 1 << 30)?;
        OutOfRange::check("max_timers", self.timers as usize, 1, 1 << 30)?;
        if self.name.contains('\0') {
            return Err(BuildError::Name(self.name.clone()));
        }
        OutOfRange::check("max_stacks", self.stacks, 1, 1 << 30)?;
        Ok(())
    }
}

/// A number for a new scheduler.
fn next_id() -> Result<u32, BuildError> {
    static LAST_ID: AtomicU32 = AtomicU32::new(0);
    LAST_ID
        .fetch_update(Relaxed, Relaxed, |id| id.checked_add(1))
        .map(|last| last + 1)
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
