//! The simulated system: virtual threads that take turns, and virtual time.
//!
//! Each virtual thread is a thread of the real system. One thread has the *turn* and runs; all
//! other threads wait for their turn. A thread passes the turn on at a *point*: where it parks,
//! ends, spins, or is between two steps. At a point the engine decides which thread is next
//! ([`Chance`]).
//!
//! Time moves by a little at each point. When no thread can run, time moves to the earliest
//! deadline of a waiting thread. If there is no deadline, the program is deadlocked.
//!
//! The moment before such a move is a *quiet point*: all threads wait, and none is about to wake.
//! There the engine asks each scheduler for a broken law. The end of the run would be later than
//! necessary, because a lost wake-up costs only time in most cases: some thread finds the work
//! later.

mod bounds;
#[cfg(procession_sim)]
pub(crate) mod buffers;
mod calls;
mod demands;
mod end;
mod failures;
mod network;
#[cfg(procession_sim)]
mod operations;
mod os;
mod panics;
mod points;
mod quiet;
pub(crate) mod setup;
mod state;
pub(crate) mod threads;
pub(crate) mod wait;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;

use procession::Pid;
use procession::sim::{SharedLocal, Subject, WaitSource};
use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::AtomicU64;
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::host::{Condvar, Mutex, MutexGuard};
use procession_sync::thread::JoinHandle;

use crate::chance::Chance;
use crate::engine::bounds::Bounds;
use crate::engine::panics::Panics;
use crate::engine::setup::Setup;
use crate::faults::{Fault, Faults};
use crate::net::Net;
use crate::story::{Failure, Story};
use crate::time::{MS, NEVER, START, US};
use crate::turn::{Turn, Why};

/// Steps and waits without a moment at which all threads wait, after which each takes 1 ns longer
/// than the one before. So a program that is always busy reaches its deadlines.
const BUSY_MAX: u64 = 10_000;
/// Points after which a run counts as a livelock.
const POINTS_MAX: u64 = 1_000_000;
/// By how much a wake-up may be late. The first one is no fault.
const DELAYS: [u64; 5] = [0, 2 * US, 60 * US, MS, 50 * MS];
/// The clock's step with [`Fault::CoarseClock`].
const GRAIN: u64 = 4 * MS;

thread_local! {
    /// The number of the virtual thread, or 0.
    static ME: Cell<u32> = const { Cell::new(0) };
}

/// What a virtual thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Parked until a deadline. `is_woken` is set once it was unparked. The deadline is then the
    /// time of the late wake-up.
    Parked {
        until: u64,
        is_woken: bool,
    },
    /// Held up until then: preempted, or in a call that blocks or computes.
    Held {
        until: u64,
        since: u64,
        how: Held,
    },
    Ended,
}

/// Why a thread is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The system does not run it.
    Preempted,
    /// It waits in the kernel.
    Blocks,
    /// The same, because of a fault. The wait ends with the faults.
    Late,
    /// It uses its processor.
    Computes,
}

struct Virtual {
    name: String,
    /// What stands for the thread in the marks of decisions.
    mark: u64,
    /// The process or the thread that its decisions are about, if they are marked.
    place: u64,
    /// The start of a host that the thread belongs to.
    home: usize,
    status: Status,
    has_token: bool,
    source: Option<Arc<dyn WaitSource>>,
    /// Processor time in nanoseconds.
    used: u64,
    /// The time that a fault costs, until the thread has its next turn.
    losing: u64,
    /// For a thread that has run steps: the address of its scheduler, and its number there.
    worker: Option<(usize, u32)>,
    /// For how long the step that the thread runs has computed, in as many parts as it likes.
    computed: u64,
    /// Set while the thread waits for another thread of the program.
    waits: bool,
    /// When the thread passed its turn on although it could run. `None` while it runs, or waits.
    left_at: Option<u64>,
    turn: Arc<Turn>,
    handle: Option<JoinHandle<()>>,
    /// A thread that ended when it passed the turn to this one.
    ended: Option<JoinHandle<()>>,
    /// The address of the lock or condition variable that the thread waits for.
    #[cfg(procession_sim)]
    blocked_on: Option<usize>,
}

struct State {
    threads: Vec<Virtual>,
    chance: Chance,
    setup: Setup,
    /// Set while faults happen.
    has_faults: bool,
    /// Points in a row of the running thread.
    in_a_row: u32,
    /// Steps and waits since all threads waited.
    busy: u64,
    failure: Option<Failure>,
    /// Set once nothing more is to be found out: the rest of the run is tame.
    is_over: bool,
    /// Set once the check waits no longer for the threads. Each thread then stays where it next
    /// meets the engine.
    is_abandoned: bool,
    root: Option<Waker>,
    settling: Vec<(Arc<AtomicBool>, Waker)>,
    subjects: Vec<Weak<dyn Subject>>,
    /// The starts of hosts that the schedulers belong to.
    homes: Vec<usize>,
    /// The processes of which the next step panics.
    panicking: Vec<Pid>,
    panics_fail: bool,
    story: Story,
    /// The classes of faults of calls that exist, once they are drawn.
    call_faults: Option<Faults>,
    net: Option<Net>,
    /// Threads that are to be preempted after their next steps, by name.
    to_stall: Vec<(String, u64)>,
    bounds: Bounds,
    /// The time at which the running thread passed its last point.
    point_at: u64,
    /// The monitors that have told of an end.
    told: BTreeSet<u64>,
    /// The number of the message that was sent last, among the messages with numbers.
    messages: u64,
    /// The number of the message that a process has taken last, by its sender: a process, or a
    /// thread.
    taken: BTreeMap<(Pid, Option<Pid>, u32, bool), u64>,
    /// The threads of the program that wait for other threads of the program.
    waiting: Vec<u32>,
    /// When a thread was preempted last before an operation.
    #[cfg(procession_sim)]
    preempted_at: u64,
}

/// What is left of a run when its engine stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftover {
    /// Virtual threads that can never continue. They stay parked.
    pub(crate) threads: usize,
}

/// The simulated system of one run.
pub(crate) struct Engine {
    me: Weak<Self>,
    now: AtomicU64,
    reads: AtomicU64,
    points: AtomicU64,
    state: Mutex<State>,
    panics: Panics,
    setup: Setup,
    /// The values that live as long as the program, by the start of the host and by name.
    locals: Mutex<BTreeMap<(usize, &'static str), SharedLocal>>,
    left: Mutex<Option<Leftover>>,
    stopped: Condvar,
    #[cfg(procession_sim)]
    operations: buffers::Operations,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(chance: Chance, setup: Setup, panics_fail: bool, story: Story) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            now: AtomicU64::new(START),
            reads: AtomicU64::new(0),
            points: AtomicU64::new(0),
            state: Mutex::new(State {
                threads: Vec::new(),
                chance,
                setup,
                has_faults: false,
                in_a_row: 0,
                busy: 0,
                failure: None,
                is_over: false,
                is_abandoned: false,
                root: None,
                settling: Vec::new(),
                subjects: Vec::new(),
                homes: Vec::new(),
                panicking: Vec::new(),
                panics_fail,
                story,
                call_faults: None,
                net: None,
                to_stall: Vec::new(),
                bounds: Bounds::default(),
                point_at: START,
                told: BTreeSet::new(),
                messages: 0,
                taken: BTreeMap::new(),
                waiting: Vec::new(),
                #[cfg(procession_sim)]
                preempted_at: START,
            }),
            panics: Panics::default(),
            setup,
            locals: Mutex::default(),
            left: Mutex::new(None),
            stopped: Condvar::new(),
            #[cfg(procession_sim)]
            operations: buffers::Operations::on(setup.processor),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the time, which the read does not move.
    fn time(&self) -> u64 {
        // Relaxed: the turn orders it.
        self.now.load(Relaxed)
    }

    fn is_coarse(&self) -> bool {
        self.setup.faults.contains(Fault::CoarseClock)
    }

    /// Returns the earliest reading of the clock at which `deadline` has passed.
    fn visible(&self, deadline: u64) -> u64 {
        if self.is_coarse() && deadline != NEVER {
            deadline.checked_next_multiple_of(GRAIN).unwrap_or(NEVER)
        } else {
            deadline
        }
    }

    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }

    pub(crate) fn points(&self) -> u64 {
        self.points.load(Relaxed)
    }

    /// Draws a number for the program.
    pub(crate) fn choose(&self, count: u32) -> u32 {
        let mut state = self.state();
        let me = ME.get();
        if state.is_abandoned && me != 0 {
            drop(state);
            self.rest(me as usize - 1, Why::Wait);
            return 0;
        }
        match state.is_over {
            false => state.chance.choose(count),
            true => state.chance.choose_untaped(count),
        }
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        let now = self.time();
        self.state().story.tell(now, text);
    }

    /// Lets the next step of a process panic.
    pub(crate) fn let_panic(&self, process: Pid) {
        self.state().panicking.push(process);
    }

    /// Starts or ends the faults. The end of the faults ends what they hold up.
    pub(crate) fn set_faults(&self, on: bool) {
        let now = self.time();
        let mut state = self.state();
        #[cfg(procession_sim)]
        if on && !state.chance.fine.is_open {
            self.end_turn(&mut state, ME.get() as usize - 1, Why::Point);
            state.chance.fine.is_open = self.setup.at_atomics;
            self.begin_turn(&mut state);
        }
        state.has_faults = on && !state.is_over;
        if !on {
            state.to_stall.clear();
            if let Some(net) = &mut state.net {
                net.heal(now);
            }
            for thread in &mut state.threads {
                match &mut thread.status {
                    Status::Held { until, how: Held::Preempted | Held::Late, .. }
                    | Status::Parked { until, is_woken: true } => *until = now,
                    _ => {}
                }
            }
        }
    }

    /// Registers the future that the run is about. Returns `true` if the run has failed, so that
    /// the caller abandons the future.
    pub(crate) fn watch(&self, root: &Waker) -> bool {
        let mut state = self.state();
        let has_failed = state.failure.is_some();
        if !state.root.as_ref().is_some_and(|known| known.will_wake(root)) {
            state.root = Some(root.clone());
        }
        has_failed
    }

    /// Wakes `waker` at the next quiet point, and sets the flag. Once the run is over, does so
    /// immediately. A second call with the same flag replaces its waker.
    pub(crate) fn settle(&self, flag: Arc<AtomicBool>, waker: Waker) {
        let mut state = self.state();
        if state.is_over {
            drop(state);
            flag.store(true, Relaxed);
            waker.wake();
            return;
        }
        let known = state.settling.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &flag));
        let before = match known {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                state.settling.push((flag, waker));
                None
            }
        };
        drop(state);
        // The drop of a waker may call the engine again.
        drop(before);
    }

    /// Returns the virtual nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        self.time() - START
    }
}

#[cfg(test)]
mod tests {
    use procession::Pid;
    use procession::sim::{MessageNumber, Os};

    use super::{Engine, Setup};
    use crate::chance::{Chance, Strategy};
    use crate::faults::Faults;
    use crate::story::Story;

    /// Messages count by receiver and sender: a process, or a thread that runs none.
    #[test]
    fn a_message_that_was_overtaken_by_one_of_its_sender_breaks_the_order() {
        let mut chance = Chance::drawn(0, Strategy::Random);
        let setup = Setup::draw(&mut chance, (1, 1), Faults::none(), false);
        let engine = Engine::new(chance, setup, true, Story::default());
        let [one, other]: [Pid; 2] = ["p1.1.1", "p1.2.1"].map(|pid| pid.parse().expect("a PID"));
        let numbers = [(); 3].map(|()| engine.number_message());
        assert!(numbers.is_sorted_by_key(|message| message.number));
        let [first, second, third] = numbers;
        assert!(engine.takes(one, Some(other), second));
        assert!(engine.takes(other, Some(other), first), "another receiver");
        assert!(engine.takes(one, Some(one), first), "another sender");
        assert!(engine.takes(one, Some(other), third));
        assert!(!engine.takes(one, Some(other), first));
        assert!(engine.takes(one, None, second));
        let elsewhere = MessageNumber { thread: first.thread + 1, ..first };
        assert!(engine.takes(one, None, elsewhere), "another thread");
        assert!(!engine.takes(one, None, first));
    }
}
