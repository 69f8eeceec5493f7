//! The operating system as the runtime sees it: time, random numbers, threads, and waiting in the
//! kernel. No other module uses them directly.
//!
//! [`World`] is one concrete type with three modes. In test mode, time stands still until the
//! scheduler moves it, and the scheduler does so only when no process can run. In simulated mode,
//! the system below the scheduler is an [`Os`] of the program, and the scheduler does what it does
//! on the real one. In all modes, every random choice is drawn from the seed.
//!
//! What only Linux has is in `linux`, and what serves instead on other systems in `portable`. Both
//! have the same modules and items, and [`system`] is the one that is compiled. The cfg
//! `procession_portable` selects `portable` on Linux, so that its code is tested there.

pub(crate) mod alarm;
#[expect(unsafe_code, reason = "the C library calls a function at the end of the program")]
mod at_exit;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that no safe interface offers")
)]
mod cycles;
#[cfg(any(feature = "io", feature = "sim"))]
#[cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "only a simulated system has one")
)]
pub(crate) mod datagram;
pub(crate) mod events;
#[cfg(all(target_os = "linux", not(procession_portable)))]
pub(crate) mod linux;
#[cfg_attr(
    not(feature = "sim"),
    expect(dead_code, unreachable_pub, reason = "only a simulated system uses all of it")
)]
pub(crate) mod os;
#[expect(unsafe_code, reason = "the C library tells of forks, and of the process group")]
pub(crate) mod own_process;
#[cfg(feature = "io")]
pub(crate) mod poll;
#[cfg(not(all(target_os = "linux", not(procession_portable))))]
pub(crate) mod portable;
pub(crate) mod stderr;
#[cfg(all(
    feature = "door",
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[expect(unsafe_code, reason = "a signal handler copies a stack")]
pub(crate) mod thread_stack;
#[cfg(all(
    feature = "door",
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[expect(unsafe_code, reason = "the loader passes raw pointers")]
pub(crate) mod unwind_tables;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant as RealInstant;
use std::time::{Duration, SystemTime};

use procession_protocols::io::readiness::ReadyEvent;
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Condvar, Mutex, MutexGuard, hint, thread};

use crate::util::generator::Generator;
use events::Kernel;
#[cfg(all(target_os = "linux", not(procession_portable)))]
pub(crate) use linux as system;
pub(crate) use os::RunState;
use os::{Os, ThreadBody, WaitSource};
#[cfg(not(all(target_os = "linux", not(procession_portable))))]
pub(crate) use portable as system;
use system::clock::monotonic;
pub(crate) use system::threads::{Cpus, LentThread, ThreadFile};

/// Starts a detached thread. The body is boxed, because the code that starts a thread is long, and
/// would be compiled for each type of body.
fn start_thread(name: String, stack_size: Option<usize>, body: ThreadBody) -> io::Result<()> {
    if let Some(os) = os::here() {
        return os.start_thread(name, body);
    }
    let builder = thread::Builder::new().name(name);
    let builder = match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    };
    #[expect(clippy::disallowed_methods, reason = "the world is the home of threads")]
    builder.spawn(body).map(drop)
}

/// Returns the nanoseconds of a duration, at most `NEVER`.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Returns the moment of std's clock at which this clock showed 0, or a moment slightly before it,
/// by the time between the two readings. A deadline of std is therefore never early.
fn zero() -> RealInstant {
    static ZERO: OnceLock<RealInstant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "the world is the home of the clock")]
    *ZERO.get_or_init(|| {
        let now = RealInstant::now();
        now.checked_sub(Duration::from_nanos(monotonic())).unwrap_or(now)
    })
}

#[derive(Debug)]
pub(crate) struct World {
    clock: WorldClock,
    seed: u64,
}

#[derive(Debug)]
enum WorldClock {
    Real,
    /// The time in nanoseconds, and the longest real time for which a thread parks.
    Test(AtomicU64, Option<Duration>),
    #[cfg(feature = "sim")]
    Simulated(Arc<dyn Os>),
}

impl World {
    /// Creates a world with the real clock. Without a seed, draws one.
    pub(crate) fn real(seed: Option<u64>) -> Self {
        Self {
            clock: WorldClock::Real,
            seed: seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
        }
    }

    /// Creates a world with the clock of the system that the calling thread runs on. Without a
    /// seed, draws one.
    pub(crate) fn current(seed: Option<u64>) -> Self {
        #[cfg(feature = "sim")]
        if let Some(os) = os::here() {
            let seed = seed.unwrap_or_else(|| os.seed());
            return Self { clock: WorldClock::Simulated(os), seed };
        }
        Self::real(seed)
    }

    /// Returns the clock of the system that the calling thread runs on, for a world that threads of
    /// several systems share.
    pub(crate) fn now_here(&self) -> u64 {
        os::here().map_or_else(|| self.now(), |os| os.now())
    }

    /// Creates a world with a clock that starts at 0 and is moved by the scheduler.
    pub(crate) fn test(seed: u64) -> Self {
        Self { clock: WorldClock::Test(AtomicU64::new(0), None), seed }
    }

    /// Sets the longest real time for which a thread parks on the test clock. Default: no limit.
    pub(crate) fn looking_every(mut self, time: Option<Duration>) -> Self {
        if let WorldClock::Test(_, limit) = &mut self.clock {
            *limit = time;
        }
        self
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.clock, WorldClock::Real)
    }

    pub(crate) fn is_test(&self) -> bool {
        matches!(self.clock, WorldClock::Test(..))
    }

    /// Returns the real time for which a thread may park until `deadline`, or `None` if there is no
    /// limit.
    fn park_time(&self, deadline: u64) -> Option<Duration> {
        match &self.clock {
            WorldClock::Test(_, limit) => *limit,
            _ if deadline == NEVER => None,
            _ => Some(Duration::from_nanos(deadline.saturating_sub(self.now()))),
        }
    }

    /// Returns the simulated system below, if it is one.
    #[inline]
    pub(crate) fn simulated(&self) -> Option<&Arc<dyn Os>> {
        match &self.clock {
            #[cfg(feature = "sim")]
            WorldClock::Simulated(os) => Some(os),
            _ => None,
        }
    }

    /// Returns the simulated system, if it looks at the order of the messages to processes of this
    /// scheduler. They have headers then, so that is drawn.
    #[cfg(feature = "sim")]
    pub(crate) fn numbering(&self) -> Option<&Arc<dyn Os>> {
        self.simulated().filter(|_| self.seed % 2 == 1)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the nanoseconds since the start of the system, or since 0 on the test clock.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.clock {
            // Relaxed: moved only while no process runs. The wake-up of the first process
            // afterwards passes the new value on.
            WorldClock::Test(clock, _) => clock.load(Relaxed),
            #[cfg(feature = "sim")]
            WorldClock::Simulated(os) => os.now(),
            WorldClock::Real => monotonic(),
        }
    }

    /// Returns the moment of std's clock at which this clock shows `now`, if its type can represent
    /// it. On the test clock, that is the moment at which the real clock shows the same.
    pub(crate) fn to_std(now: u64) -> Option<RealInstant> {
        zero().checked_add(Duration::from_nanos(now))
    }

    /// Returns the reading of this clock at a moment of std's clock.
    pub(crate) fn from_std(moment: RealInstant) -> u64 {
        nanoseconds(moment.saturating_duration_since(zero()))
    }

    /// Returns the nanoseconds since the start of the system, even if there is a test clock. For
    /// events outside of the scheduler, such as output.
    pub(crate) fn real_now() -> u64 {
        monotonic()
    }

    /// Returns the counter of the processor, if it is a clock: on the real clock, and where it runs
    /// at one rate.
    #[inline]
    pub(crate) fn cycles(&self) -> Option<u64> {
        (matches!(self.clock, WorldClock::Real) && cycles::is_invariant()).then(cycles::now)
    }

    /// Returns the time of the day, for the names of files.
    pub(crate) fn wall_clock() -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "the world is the home of the clock")]
        SystemTime::now()
    }

    /// Returns the time of the day. A clock that is not the clock of the system began in 1970.
    pub(crate) fn system_time(&self) -> SystemTime {
        match self.clock {
            WorldClock::Real => Self::wall_clock(),
            _ => SystemTime::UNIX_EPOCH + Duration::from_nanos(self.now()),
        }
    }

    /// Lets the calling thread rest for this many nanoseconds, whatever happens in this time.
    pub(crate) fn rest(&self, nanoseconds: u64) {
        if let Some(os) = self.simulated() {
            let until = os.now().saturating_add(nanoseconds);
            while os.now() < until {
                os.park(until);
            }
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "the world is the home of the clock")]
        std::thread::sleep(Duration::from_nanos(nanoseconds));
    }

    /// Moves the test clock forward. It never moves back, and never reaches `NEVER`.
    pub(crate) fn advance_to(&self, now: u64) {
        if let WorldClock::Test(clock, _) = &self.clock {
            clock.fetch_max(now.min(NEVER - 1), Relaxed);
        }
    }

    /// Returns a random number generator for one purpose. All generators are derived from the seed.
    pub(crate) fn generator(&self, purpose: u64) -> Generator {
        let mut seeds = Generator::with_seed(
            self.seed.wrapping_add(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        );
        Generator::with_seed(seeds.any())
    }

    /// Starts a detached thread.
    pub(crate) fn start_thread(
        &self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        start_thread(name, None, Box::new(body))
    }

    /// Opens what descriptors are registered with, and what reports their events.
    pub(crate) fn open_kernel(&self) -> io::Result<Kernel> {
        if has_fault(os::CallFault::Descriptor) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Kernel::open()
    }

    /// Starts a detached thread with a stack of the given size in bytes, or the default size.
    pub(crate) fn start_thread_of(
        &self,
        name: String,
        stack_size: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        start_thread(name, stack_size, Box::new(body))
    }

    /// Parks the calling thread until the token arrives or, on the real clock, the deadline passes.
    /// Takes the token. On the test clock, a thread may wake earlier.
    pub(crate) fn park(&self, parker: &Parker, deadline: u64) {
        if let Some(os) = os::here() {
            let deadline = if self.is_test() { NEVER } else { deadline };
            return parker.park_simulated(&os, || os.park(deadline));
        }
        let mut token = parker.lock();
        token.waits = true;
        while !token.there {
            let Some(time) = self.park_time(deadline) else {
                token = parker.arrival.wait(token);
                continue;
            };
            if time.is_zero() {
                break;
            }
            system::threads::wake_precisely();
            let (again, _) = parker.arrival.wait_timeout(token, time);
            token = again;
            if self.is_test() {
                break;
            }
        }
        (token.there, token.waits) = (false, false);
    }

    /// Parks like [`park`](Self::park), but also until a descriptor has an event. Adds the events
    /// to `events`.
    pub(crate) fn park_in_kernel(
        &self,
        parker: &Parker,
        kernel: &Arc<Kernel>,
        deadline: u64,
        events: &mut Vec<ReadyEvent>,
    ) {
        if let Some(os) = os::here() {
            let deadline = if self.is_test() { NEVER } else { deadline };
            let source = Arc::clone(kernel) as Arc<dyn WaitSource>;
            parker.park_simulated(&os, || os.park_in_kernel(&source, deadline));
            // Ignored: the next wait finds it again.
            let _ = kernel.wait(Some(Duration::ZERO), events);
            return;
        }
        let mut token = parker.lock();
        if token.there {
            token.there = false;
            return;
        }
        token.bell = Some(ParkBell::Kernel(Arc::clone(kernel)));
        drop(token);
        let timeout = self.park_time(deadline).inspect(|_| system::threads::wake_precisely());
        let waited = kernel.wait(timeout, events);
        let mut token = parker.lock();
        token.bell = None;
        if waited.is_err() {
            // The epoll descriptor is closed, or belongs to something else: other code has closed a
            // descriptor that it does not own. Timers continue.
            drop(token);
            return self.park(parker, deadline);
        }
        token.there = false;
    }
}

/// Yields to the threads of the system, because another thread is about to do what the caller waits
/// for.
pub(crate) fn yield_thread() {
    match os::here() {
        Some(os) => os.pause(),
        None => thread::yield_now(),
    }
}

/// Returns `true` if this fault happens now, in a simulated system.
pub(crate) fn has_fault(fault: os::CallFault) -> bool {
    os::here().is_some_and(|os| os.fault(fault, 2) != 0)
}

/// Another thread may run here, in a simulated system. The caller holds no lock.
pub(crate) fn point() {
    if let Some(os) = os::here() {
        os.point();
    }
}

impl World {
    /// Another thread may run here, in a simulated system. The caller holds no lock.
    #[inline]
    pub(crate) fn point(&self) {
        if let Some(os) = self.simulated() {
            os.point();
        }
    }

    /// The hint of a thread that looks at something again and again until another thread changes
    /// it.
    #[inline]
    pub(crate) fn spin_loop(&self) {
        match self.simulated() {
            Some(os) => os.pause(),
            None => hint::spin_loop(),
        }
    }

    /// Returns the system's number for the calling thread.
    pub(crate) fn thread_number() -> u32 {
        if let Some(os) = os::here() {
            return os.thread();
        }
        system::threads::number()
    }

    /// Lets `call` run when the program ends in order, on the thread that ends it. A child of
    /// `fork` does not run it.
    pub(crate) fn at_exit(call: fn()) {
        at_exit::at_exit(call);
    }

    /// Returns `true` on the main thread, which ends with the program.
    pub(crate) fn is_main_thread() -> bool {
        os::here().is_none() && system::threads::is_main()
    }

    /// Returns the processor time that a thread of this program has used, in nanoseconds, or `None`
    /// if the system does not report it.
    pub(crate) fn processor_time(&self, thread: u32) -> Option<u64> {
        if let Some(os) = self.simulated() {
            return os.activity(thread).map(|(used, _)| used);
        }
        system::threads::processor_time(thread)
    }
}

impl Cpus {
    /// Returns the number of processors that the program may use, at least 1.
    pub(crate) fn available() -> usize {
        match os::here() {
            Some(os) => os.processors(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The place where one thread parks. A token that arrives early is kept, and several tokens count
/// as one.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    token: Mutex<ParkToken>,
    arrival: Condvar,
}

#[derive(Debug, Default)]
struct ParkToken {
    there: bool,
    /// `true` while the thread waits for the token.
    waits: bool,
    /// Wakes the thread while it waits in the kernel, or in a simulated system.
    bell: Option<ParkBell>,
}

#[derive(Debug)]
enum ParkBell {
    Kernel(Arc<Kernel>),
    /// The system, and the number of the thread. Boxed, since a larger seat costs each dispatch
    /// instructions.
    #[cfg(feature = "sim")]
    Simulated(Box<(Arc<dyn Os>, u32)>),
}

impl ParkBell {
    /// Returns the bell of the calling thread in a simulated system.
    #[cfg(feature = "sim")]
    fn simulated(os: &Arc<dyn Os>) -> Option<Self> {
        Some(Self::Simulated(Box::new((Arc::clone(os), os.thread()))))
    }

    /// There is no simulated system.
    #[cfg(not(feature = "sim"))]
    fn simulated(_: &Arc<dyn Os>) -> Option<Self> {
        None
    }
}

impl Parker {
    fn lock(&self) -> MutexGuard<'_, ParkToken> {
        self.token.lock()
    }

    /// Waits in a simulated system, unless the token is there. Takes the token.
    #[cold]
    fn park_simulated(&self, os: &Arc<dyn Os>, wait: impl FnOnce()) {
        let mut token = self.lock();
        if !token.there {
            token.bell = ParkBell::simulated(os);
            drop(token);
            wait();
            token = self.lock();
            token.bell = None;
        }
        token.there = false;
    }

    pub(crate) fn unpark(&self) {
        let mut token = self.lock();
        token.there = true;
        let (bell, waits) = (token.bell.take(), token.waits);
        drop(token);
        match bell {
            Some(ParkBell::Kernel(kernel)) => kernel.ring(),
            #[cfg(feature = "sim")]
            Some(ParkBell::Simulated(waits)) => waits.0.unpark(waits.1),
            None if waits => self.arrival.notify_one(),
            None => {}
        }
    }
}
