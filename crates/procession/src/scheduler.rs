//! A scheduler: its builder, its handle, and its end.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession_queue::Global;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::closing::Closing;
use crate::command::{self, Command, CommandId, Done, Handler, Registry};
use crate::context::Context;
use crate::dead::{self, DeadLetter};
use crate::handle::{Child, Handle};
use crate::here::{self, Hold};
use crate::idle::Idle;
use crate::keeper::Keeper;
use crate::names::Names;
use crate::poller::Poller;
use crate::relay::Relay;
use crate::root;
use crate::shared::{self, Seat, Shared, Stats};
use crate::slot::Table;
use crate::snapshot::{self, Snapshot, UnfinishedProcess, WaitingProcess};
use crate::spawn::{SpawnError, SpawnOptions};
use crate::time::Instant;
use crate::timer::Timers;
use crate::world::{World, nanoseconds};
use crate::{Pid, Process};

/// Processes at once, unless the builder says otherwise: 2 GiB of control blocks.
const PROCESSES_DEFAULT: u32 = 1 << 24;
/// Pending timers of each worker, unless the builder says otherwise.
const TIMERS_DEFAULT: u32 = 1 << 24;
/// Workers at most: far beyond the CPUs that one machine has, and small enough that each may look at all others.
const WIDTH_MAX: usize = 1024;
/// What a shutdown keeps back from its deadline to terminate those who have not ended: a tenth, and at most this.
const TERMINATION_MAX: u64 = 100_000_000;

/// Why a scheduler could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A value is out of its range; the text names both.
    Invalid(String),
    /// Two handlers were given for one command.
    DuplicateCommand(CommandId),
    /// The system refused the first thread.
    Thread(io::Error),
    /// 2^32 schedulers have been made.
    Exhausted,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "cannot build a scheduler: {text}"),
            Self::DuplicateCommand(id) => write!(f, "cannot build a scheduler: two handlers for {id}"),
            Self::Thread(_) => f.write_str("cannot build a scheduler: the system refused its first thread"),
            Self::Exhausted => f.write_str("cannot build a scheduler: all 2^32 numbers are used up"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// What a [`Scheduler`] is to be like.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    name: String,
    width: Option<usize>,
    processes: u32,
    timers: u32,
    seed: Option<u64>,
    test_clock: bool,
    callers_drive: bool,
    shuffled: bool,
    handlers: Vec<(CommandId, Arc<dyn Handler>)>,
    dead_letters: Option<dead::Observer>,
    relay: Option<Arc<dyn Relay>>,
}

impl Builder {
    /// The name of the scheduler, and the beginning of its threads' names. Default: `procession`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers run at once, 1 to 1024. Default: the number of CPUs that this program may use, which honours affinity masks
    /// and cgroup quotas.
    pub fn width(mut self, workers: usize) -> Self {
        self.width = Some(workers);
        self
    }

    /// How many processes may live at once, 1 to 2^30. Each worker keeps a few free slots back for itself, at most a sixteenth of the limit
    /// and 64, so the limit may be felt that much earlier. Default: 2^24.
    pub fn processes(mut self, limit: u32) -> Self {
        self.processes = limit;
        self
    }

    /// How many timers may be pending at once on each worker, 1 to 2^30. Default: 2^24.
    pub fn timers(mut self, limit: u32) -> Self {
        self.timers = limit;
        self
    }

    /// The seed of every free choice that the scheduler makes. Default: drawn from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Replaces the clock by one that stands still while anything can run, and then jumps to the earliest deadline. The scheduler is then
    /// driven by its callers. With a width of 1 and a seed, two runs make the same dispatches. The seed is 0 unless one is given.
    pub fn test_clock(mut self) -> Self {
        self.test_clock = true;
        self.callers_drive = true;
        self
    }

    /// Lets the threads that call [`block_on`](Scheduler::block_on) and [`run_until_idle`](Scheduler::run_until_idle) be the first worker
    /// while they do. With a width of 1 the scheduler starts no thread: nothing runs between those calls. So a process that keeps the last
    /// [`Scheduler`] handle, and is driven by nobody any more, keeps the scheduler for ever.
    pub fn callers_drive(mut self) -> Self {
        self.callers_drive = true;
        self
    }

    /// Shakes out assumptions about order: a wake-up is refused the next slot at random, and what is taken from the global queue together is
    /// shuffled. For tests.
    pub fn shuffled(mut self) -> Self {
        self.shuffled = true;
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

    /// Carries the messages that processes of this scheduler send by PID to others than its own, to those of other nodes too. Default:
    /// [`InProcess`](crate::InProcess), which reaches all schedulers of this program.
    ///
    /// An [`Address`](crate::Address) needs no relay: it has the process at hand.
    pub fn relay(mut self, relay: impl Relay) -> Self {
        self.relay = Some(Arc::new(relay));
        self
    }

    /// Looks at every [dead letter](DeadLetter) before it is dropped. It runs on the thread that finds it, so it must not block; a panic
    /// ends there. They are counted whether anybody looks or not ([`Snapshot::messages_discarded`]).
    pub fn on_dead_letter(mut self, observer: impl Fn(DeadLetter<'_>) + Send + Sync + 'static) -> Self {
        self.dead_letters = Some(dead::Observer(Arc::new(observer)));
        self
    }

    /// Builds the scheduler and, unless its callers drive it, starts its first thread. The others start when there is work for them; if the
    /// system refuses one then, the scheduler goes on with those it has, and counts it ([`Snapshot`]).
    ///
    /// # Errors
    /// [`BuildError`]: a value out of range, a command with two handlers, or a refused thread.
    pub fn build(self) -> Result<Scheduler, BuildError> {
        let in_range = |name: &str, value: u64, max: u64| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(BuildError::Invalid(format!("{name} is {value}, but must be from 1 to {max}")))
            }
        };
        let width = match self.width {
            Some(width) => width,
            None => std::thread::available_parallelism().map_or(1, usize::from).min(WIDTH_MAX),
        };
        in_range("width", width as u64, WIDTH_MAX as u64)?;
        in_range("processes", self.processes.into(), 1 << 30)?;
        in_range("timers", self.timers.into(), 1 << 30)?;
        if self.name.contains('\0') {
            return Err(BuildError::Invalid(format!("name is {:?}, but must not contain a NUL", self.name)));
        }
        let handlers = Registry::new(self.handlers)?;
        static LAST_ID: AtomicU32 = AtomicU32::new(0);
        let id = LAST_ID.fetch_update(Relaxed, Relaxed, |id| id.checked_add(1)).map_err(|_| BuildError::Exhausted)? + 1;
        let world = if self.test_clock { World::test(self.seed.unwrap_or(0)) } else { World::real(self.seed) };
        let seats = (0..width).map(|number| Seat::new(world.generator(number as u64), self.timers)).collect();
        let shared = Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            id,
            name: self.name,
            world,
            table: Table::new(self.processes, width as u32),
            global: Global::new(),
            idle: Idle::new(width as u32, self.callers_drive),
            seats,
            strides: (1..=width as u32).filter(|&stride| coprime(stride, width as u32)).collect(),
            outside: Timers::new(self.timers),
            outside_stats: Stats::default(),
            handlers,
            shuffled: self.shuffled,
            callers_drive: self.callers_drive,
            closing: Closing::open(),
            names: Names::default(),
            dead_letters: self.dead_letters,
            relay: self.relay,
            idle_waits: AtomicU32::new(0),
            idle_watchers: Mutex::new(Vec::new()),
            outstanding: AtomicU32::new(0),
            keeper: Keeper::none(),
            poller: Poller::closed(),
            timer_waiters: Mutex::new(Vec::new()),
            has_timer_waiters: AtomicBool::new(false),
            callers: Mutex::new(Vec::new()),
            end_waiters: Mutex::default(),
            last_end_waiter: AtomicU64::new(0),
            threads_refused: AtomicU32::new(0),
            threads_started: AtomicU32::new(0),
            ages: Mutex::default(),
            foreign: Mutex::default(),
        });
        if !self.callers_drive {
            shared.start_first_thread().map_err(BuildError::Thread)?;
        }
        shared::make_reachable(&shared);
        Ok(Scheduler(Arc::new(Owner(shared))))
    }
}

fn coprime(a: u32, b: u32) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

/// A scheduler: a number of workers that run processes, isolated from all other schedulers.
///
/// This is a handle; clones are of the same scheduler. When the last one is dropped, the scheduler terminates its processes, each between
/// two of its steps, and ends with the last of them. The drop waits for nothing, so it may be done anywhere, also by one of the processes.
/// To let processes clean up, call [`shutdown`](Self::shutdown) first.
///
/// ```
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().name("example").width(2).build()?;
/// let sum = scheduler.block_on(async {
///     let one = procession::spawn(async { 1 });
///     let two = procession::spawn(async { 2 });
///     Ok::<_, procession::Exit>(one.await? + two.await?)
/// })?;
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Scheduler(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.terminate_all(None);
        if shared.callers_drive && !shared.has_ended() {
            // There may be no thread to end the processes. If one of them is the caller, the seat is taken, and its driver does it.
            root::run_until_idle(shared);
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("Scheduler").field("id", &shared.id).field("name", &shared.name).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts to describe a scheduler.
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
            handlers: Vec::new(),
            dead_letters: None,
            relay: None,
        }
    }

    /// The default scheduler, made at its first use with the builder's defaults. If the system refuses its first thread, it is driven by its
    /// callers instead ([`Builder::callers_drive`]).
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Scheduler> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            let driven = |_| Self::builder().callers_drive().build();
            Self::builder()
                .build()
                .or_else(driven)
                .expect("the defaults are in range, and this is one of the first schedulers")
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// The number of the scheduler, the first in the PIDs of its processes.
    pub fn id(&self) -> u32 {
        self.shared().id
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        self.shared().name()
    }

    /// Starts a process that runs `future`. See [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        SpawnOptions::new().on(self).spawn(future)
    }

    /// Starts a process with a mailbox. See [`start`](crate::start()).
    #[track_caller]
    pub fn start<M, F, P>(&self, process: F) -> Child<M, P::Output>
    where
        M: Send + 'static,
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
    {
        SpawnOptions::new().on(self).start(process)
    }

    /// Starts a state machine. See [`spawn_process`](crate::spawn_process).
    ///
    /// # Errors
    /// [`SpawnError`], with the process in it.
    #[track_caller]
    pub fn spawn_process<P: Process>(
        &self,
        process: P,
        method: &str,
        input: crate::Value,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        SpawnOptions::new().on(self).spawn_process(process, method, input)
    }

    /// Runs `future` on this thread until it is complete, and returns its output. It is no process: it has no PID and need not be `Send`.
    /// What it spawns goes to this scheduler.
    ///
    /// # Blocking
    /// The thread is parked while the future waits. In a process this blocks the worker, so await instead.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        root::block_on(self.shared(), future)
    }

    /// Waits until no process can run, and says who waits for what. If the scheduler is driven by its callers, this thread runs the
    /// processes. The test clock does not move meanwhile.
    ///
    /// # Blocking
    /// Blocks the thread. It does not return while a process runs on and on; in a process it never returns, since that one runs.
    pub fn run_until_idle(&self) -> Vec<WaitingProcess> {
        self.shared().run_until_idle();
        snapshot::waiting(self.shared())
    }

    /// Moves the test clock by `duration`, and fires what is due then, once processes run. Without a test clock this does nothing.
    pub fn advance(&self, duration: Duration) {
        let shared = self.shared();
        shared.world.advance_to(shared.world.now().saturating_add(nanoseconds(duration)));
        shared.announce();
    }

    /// What this scheduler's clock shows.
    pub fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.shared().world.now())
    }

    /// The seed of the scheduler's choices, given or drawn.
    pub fn seed(&self) -> u64 {
        self.shared().world.seed()
    }

    /// Asks a process to end: cancelling is cooperative. Says whether the process was there.
    ///
    /// Its [`receive`](Context::receive) ends once the mailbox is empty, [`cancelled`](Context::cancelled) resolves, and a state machine
    /// gets [`Event::Cancel`](crate::Event).
    pub fn cancel(&self, pid: Pid) -> bool {
        shared::find(pid).map(|slot| shared::cancel(&slot)).is_some()
    }

    /// Ends a process between two of its steps, with [`Exit::Killed`](crate::Exit::Killed). Says whether the process was there. A step that never returns cannot be
    /// ended.
    pub fn terminate(&self, pid: Pid) -> bool {
        shared::find(pid).map(|slot| shared::terminate(&slot)).is_some()
    }

    /// What all workers and processes are doing.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(self.shared())
    }

    /// Ends the scheduler in order: asks every process to end, but the caller if it is one; lets them clean up, which may take any number of steps,
    /// messages, timers and new processes of theirs; terminates the rest shortly before `deadline` has passed (a tenth of it, at most
    /// 100 ms); and returns at the latest when it has passed, with those who have not ended even so. From the first moment nobody else
    /// can spawn.
    ///
    /// A process that was terminated and whose `Drop` has not returned has not ended. Awaited by a plain thread, in
    /// [`block_on`](Self::block_on), this returns by its deadline whatever the processes do, unless that thread is itself a worker
    /// ([`Builder::callers_drive`]) and runs a step that never returns.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<UnfinishedProcess> {
        let shared = self.shared();
        let caller = here::current().map(|slot| slot.pid()).filter(|pid| pid.scheduler() == shared.id());
        let left = u64::from(caller.is_some());
        let now = shared.world.now();
        let deadline = nanoseconds(deadline);
        let kept_back = (deadline / 10).min(TERMINATION_MAX);
        shared.cancel_all(caller);
        shared.wait_for_ends(left, now.saturating_add(deadline - kept_back)).await;
        shared.terminate_all(caller);
        shared.wait_for_ends(left, now.saturating_add(deadline)).await;
        if shared.alive() <= left { Vec::new() } else { snapshot::unfinished(shared, caller) }
    }
}

/// The scheduler that new processes of this thread belong to.
#[inline]
pub(crate) fn here() -> Hold {
    here::here().unwrap_or_else(|| Hold::Shared(Arc::clone(Scheduler::global().shared())))
}

/// Where something was called.
#[track_caller]
pub(crate) fn caller() -> &'static Location<'static> {
    Location::caller()
}
