//! The simulated system: virtual threads that take turns, and virtual time.
//!
//! Each virtual thread is a thread of the real system. One of them has the *turn* and runs; the
//! others wait for theirs. A thread passes the turn on at a *point*: where it parks, ends, spins,
//! or is between two steps. At a point the engine decides which thread is next ([`Chance`]).
//!
//! Time moves by a little at each point, and by as much as needed when no thread can run: to the
//! earliest deadline of those that wait. If there is none, the program is deadlocked.
//!
//! The moment before such a move is a *quiet point*: all threads wait, and none is about to come.
//! There the engine asks each scheduler for a broken law. A lost wake-up costs only time in most
//! cases, since some thread comes to the work later, so the end of the run would be too late.

mod bounds;
mod end;
mod network;
#[cfg(procession_sim)]
mod operations;
mod os;
mod panics;
mod quiet;
mod setup;
mod state;
mod threads;
mod wait;

use std::cell::{Cell, RefCell};
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

use self::bounds::Bounds;
#[cfg(procession_sim)]
pub use self::operations::OperationCounts;
use self::panics::Panics;
use self::quiet::Quiet;
pub(crate) use self::setup::Setup;
pub(crate) use self::threads::Enlisted;
use self::threads::{Carried, Leftover};
pub(crate) use self::wait::{notify, publish, wait_until};
use crate::chance::Chance;
use crate::faults::{Fault, Faults};
use crate::net::Net;
use crate::story::{Failure, Story};
use crate::turn::{Turn, Why};

pub(crate) const NEVER: u64 = u64::MAX;
pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The clock at the start of a run. It is not 0, since the machine has run for a while.
pub(crate) const START: u64 = 1000 * SECOND;
/// Nanoseconds that one read of the clock takes.
const READ: u64 = 20;
/// Reads in a row without a point after which each read takes long, so that a loop that waits for
/// the clock ends.
const READS_MAX: u64 = 1000;
const READ_LONG: u64 = 10 * US;
/// Steps and waits without a moment at which all threads wait, after which each takes 1 ns longer
/// than the one before, and at most `LONGER_MAX` longer. So a program that is always busy comes to
/// its deadlines.
const BUSY_MAX: u64 = 10_000;
const LONGER_MAX: u64 = 10 * US;
/// Nanoseconds of a step. Each run draws one of these.
const STEPS: [u64; 4] = [200, 20, 5 * US, 300 * US];
/// Points in a row of one thread after which it is no longer the first choice.
const SLICE: u32 = 64;
/// Points after which a run counts as a livelock.
const POINTS_MAX: u64 = 1_000_000;
/// How late a timer may be found if no thread is preempted.
const TIMER_SLACK: u64 = MS;
/// What the durations of faults are drawn from. The first one is no fault.
const STALLS: [u64; 6] = [0, MS, 5 * MS, 20 * MS, 100 * MS, 500 * MS];
const DELAYS: [u64; 5] = [0, 2 * US, 60 * US, MS, 50 * MS];
const LEAPS: [u64; 4] = [0, 20 * MS, SECOND, 3600 * SECOND];
/// The clock's step with [`Fault::CoarseClock`].
const GRAIN: u64 = 4 * MS;
const BUDGET_MAX: u32 = 128;

thread_local! {
    /// The number of the virtual thread, or 0.
    static ME: Cell<u32> = const { Cell::new(0) };
    /// The first local of a virtual thread, and so the last that is destroyed.
    static CARRIED: RefCell<Option<Carried>> = const { RefCell::new(None) };
}

/// Returns the engine of the calling thread, if it is a virtual one.
pub(crate) fn current() -> Option<Arc<Engine>> {
    let engine = |carried: &RefCell<Option<Carried>>| Some(carried.borrow().as_ref()?.engine());
    CARRIED.try_with(engine).ok().flatten()
}

/// What a virtual thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Parked until a deadline. `is_woken` is set once it was unparked and the deadline is that of
    /// a late wake-up.
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
    /// Set while the thread waits for another one of the program.
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
    /// Set once the check waits no longer for the threads. Each of them stays where it next meets
    /// the engine.
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
    /// The number of the message that was sent last, of those with numbers.
    messages: u64,
    /// The number of the message that a process has taken last, by its sender: a process, or a
    /// thread.
    taken: BTreeMap<(Pid, Option<Pid>, u32), u64>,
    /// The threads of the program that wait for other threads of it.
    waiting: Vec<u32>,
    /// When a thread was preempted last before an operation.
    #[cfg(procession_sim)]
    preempted_at: u64,
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
    operations: operations::Operations,
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
            operations: Default::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Passes a point: decides which thread runs, and waits for the caller's next turn.
    fn pass(&self, number: u32, why: Why) {
        let me = number as usize - 1;
        // Relaxed: the monitor only looks whether it grows.
        self.points.fetch_add(1, Relaxed);
        self.reads.store(0, Relaxed);
        if why.can_call() {
            self.note_panics();
            self.note_livelock();
        }
        #[cfg(procession_sim)]
        let _muted = procession_sync::simulated::mute();
        #[cfg(procession_sim)]
        self.end_turn(&mut self.state(), me, why);
        loop {
            let mut state = self.state();
            if state.is_abandoned {
                drop(state);
                return self.rest(me, why);
            }
            if self.points.load(Relaxed) > 2 * POINTS_MAX {
                let left = state.alive();
                drop(state);
                self.stop(left);
                return self.rest(me, why);
            }
            state.pump(self.time());
            if state.poll_sources(self.time()) {
                // The kernel orders what was stored before an event.
                #[cfg(procession_sim)]
                self.settle_memory();
            }
            let length = self.time() - state.point_at;
            state.bounds.note_step(length);
            state.point_at = self.time();
            let ready = state.ready(me, why, self.time());
            #[cfg(procession_sim)]
            let ready = self.ready_instead(&mut state, me, why, ready);
            if !ready.is_empty() {
                return self.switch(state, me, why, &ready);
            }
            #[cfg(procession_sim)]
            {
                drop(state);
                self.note_panics();
                state = self.state();
            }
            match self.go_on_quietly(state) {
                // The time that has passed is no step.
                Quiet::GoesOn => self.state().point_at = self.time(),
                Quiet::Stopped => return self.rest(me, why),
            }
        }
    }

    /// Lets more time pass if no thread has waited for the clock for long.
    fn note_busy(&self) {
        let mut state = self.state();
        state.busy += 1;
        let longer = state.busy.saturating_sub(BUSY_MAX).min(LONGER_MAX);
        // Relaxed: the turn orders it.
        self.now.fetch_add(longer, Relaxed);
    }

    /// Waits forever, unless the thread has ended: the run is over, and it cannot go on.
    fn rest(&self, me: usize, why: Why) {
        if why != Why::End {
            let turn = Arc::clone(&self.state().threads[me].turn);
            turn.take();
        }
    }

    /// Gives the turn to one of the threads that are ready.
    fn switch(&self, mut state: MutexGuard<'_, State>, me: usize, why: Why, ready: &[u32]) {
        let chosen = if state.is_over { 0 } else { state.choose_next(why, ready) };
        let next = ready[chosen as usize] as usize;
        if chosen != 0 || why.preempts() && next != me {
            let (now, is_preempted) = (self.time(), why.preempts() || ready[0] as usize == me);
            let (from, to) = (state.threads[me].name.clone(), state.threads[next].name.clone());
            let place = state.story.place.take();
            state.story.tell(now, || match is_preempted {
                true => format!("{from} is preempted{}, and {to} runs", place.unwrap_or_default()),
                false => format!("{to} runs before others that could"),
            });
        }
        state.in_a_row = if next == me { state.in_a_row + 1 } else { 0 };
        let now = self.time();
        if next != me {
            if let Some(since) = state.threads[next].ready_since() {
                state.bounds.note_delay(now.saturating_sub(since));
            }
            state.threads[me].left_at = (state.threads[me].status == Status::Ready).then_some(now);
            state.threads[next].left_at = None;
        }
        state.threads[next].losing = 0;
        state.point_at = now;
        state.threads[next].status = Status::Ready;
        state.story.running = Some(next);
        let place = state.threads[next].place;
        state.chance.begin_turn(place);
        let hash = self.time();
        state.chance.digest(hash ^ (next as u64) << 56);
        if next == me {
            #[cfg(procession_sim)]
            self.begin_turn(&mut state);
            return;
        }
        #[cfg(procession_sim)]
        self.keep_stores(&mut state, me);
        if why == Why::End {
            state.threads[next].ended = state.threads[me].handle.take();
        }
        let (given, own) =
            (Arc::clone(&state.threads[next].turn), Arc::clone(&state.threads[me].turn));
        drop(state);
        given.give();
        if why == Why::End {
            return;
        }
        own.take();
        let mut state = self.state();
        #[cfg(procession_sim)]
        self.begin_turn(&mut state);
        let ended = state.threads[me].ended.take();
        drop(state);
        if let Some(ended) = ended {
            // Its thread-locals are destroyed before anything else runs.
            drop(ended.join());
        }
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

    fn wait(&self, source: Option<Arc<dyn WaitSource>>, deadline: u64) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        self.note_busy();
        let mut state = self.state();
        let early = state.fault(Fault::EarlyWake, &[0, 1]).is_some();
        let now = self.time();
        let at = me as usize - 1;
        if early {
            let name = state.threads[at].name.clone();
            state.story.tell(now, || format!("{name} wakes without a reason"));
        }
        state.come_to(at, |thread| thread.mark);
        let thread = &mut state.threads[at];
        thread.computed = 0;
        if !std::mem::take(&mut thread.has_token) && !early {
            thread.status = Status::Parked { until: self.visible(deadline), is_woken: false };
            thread.source = source;
        }
        let why = if thread.status == Status::Ready { Why::Point } else { Why::Wait };
        drop(state);
        self.pass(me, why);
        let mut state = self.state();
        let thread = &mut state.threads[at];
        (thread.has_token, thread.source) = (false, None);
    }

    /// Holds the calling thread up.
    pub(crate) fn hold(&self, for_ns: u64, how: Held) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        let now = self.time();
        let until = now.saturating_add(for_ns);
        let is_in_step = procession::current_pid().is_some();
        {
            let mut state = self.state();
            let State { threads, bounds, .. } = &mut *state;
            let thread = &mut threads[me as usize - 1];
            thread.status = Status::Held { until, since: now, how };
            match how {
                Held::Preempted => {}
                Held::Computes if is_in_step => {
                    let before = thread.computed;
                    thread.computed = before.saturating_add(for_ns);
                    bounds.note_computing(before, thread.computed);
                }
                Held::Computes | Held::Blocks | Held::Late => bounds.note_step(for_ns),
            }
        }
        self.pass(me, Why::Wait);
        if how == Held::Computes {
            self.state().threads[me as usize - 1].used += for_ns;
        }
    }

    /// Draws whether the calling thread is preempted for long.
    fn stall(&self, me: u32) {
        let mut state = self.state();
        let wanted = state.take_stall(me as usize - 1);
        let Some(stall) = wanted.or_else(|| state.fault(Fault::Stall, &STALLS)) else { return };
        let (now, place) = (self.time(), state.story.place.clone());
        let name = state.threads[me as usize - 1].name.clone();
        state.story.tell(now, || {
            format!("{name} does not run for {}{}", duration(stall), place.unwrap_or_default())
        });
        state.note_late(me as usize - 1, stall);
        drop(state);
        self.hold(stall, Held::Preempted);
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
    /// the future is given up.
    pub(crate) fn watch(&self, root: &Waker) -> bool {
        let mut state = self.state();
        let has_failed = state.failure.is_some();
        if !state.root.as_ref().is_some_and(|known| known.will_wake(root)) {
            state.root = Some(root.clone());
        }
        has_failed
    }

    /// Wakes `waker` at the next quiet point, and sets the flag. Once the run is over, does so at
    /// once. A second call with the same flag replaces its waker.
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
        // The drop of a waker may come back here.
        drop(before);
    }

    /// Returns the virtual nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        self.time() - START
    }
}

/// Returns a duration in its largest unit.
pub(crate) fn duration(nanoseconds: u64) -> String {
    format!("{:?}", std::time::Duration::from_nanos(nanoseconds))
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
