//! The simulated machine: virtual threads with clocks of their own.
//!
//! Each virtual thread is a thread of the real system, and one of them has the turn. Each has a
//! *clock*, which moves as the thread works. Before a thread uses a line that another has, it gives
//! the turn to the thread with the earliest clock, until that is its own. So all such accesses
//! happen in the order of their times, as on a machine on which the threads run at once.
//!
//! A thread that uses only lines that no other wants may be ahead of others, by [`LEAD`] at most.
//! What it does there may be seen that much too early.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use procession::sim::{
    Access, Operation, Os, SharedLine, SharedLocal, ThreadBody, WaitSource, bind_to_one_processor,
    enter,
};
use procession_sync::host::{Condvar, Mutex, MutexGuard};
use procession_sync::thread::{self, JoinHandle};

use super::lines::{Lines, PROCESSORS};
use super::machine::{Costs, Machine, picoseconds};
use crate::turn::Turn;

pub(super) const NEVER: u64 = u64::MAX;
/// The clock at the start of a run, in picoseconds.
pub(super) const START: u64 = 1_000_000_000_000_000;
/// How far in picoseconds a thread may be ahead of others, while it uses lines that no other wants.
const LEAD: u64 = 500_000;
/// The time in nanoseconds for which a thread is busy when it starts another.
const START_THREAD: f64 = 15_000.0;
/// The number of messages that a processor fetches while it waits for one: two lie in a line, and
/// it fetches four lines ahead.
const MESSAGES_AHEAD: u64 = 8;
/// The processor of threads that are no workers. They delay no worker.
const OUTSIDE: u32 = PROCESSORS - 1;

thread_local! {
    /// The number of the virtual thread, or 0.
    pub(super) static ME: Cell<u32> = const { Cell::new(0) };
    static ENGINE: RefCell<Option<Arc<Engine>>> = const { RefCell::new(None) };
}

/// Returns the engine of the calling thread, if it is a virtual one.
pub(super) fn current() -> Option<Arc<Engine>> {
    ENGINE.try_with(|engine| engine.borrow().clone()).ok().flatten()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It runs, or is to run.
    Ready,
    /// It waits until then at most.
    Parked(u64),
    Ended,
}

pub(super) struct Thread {
    pub(super) clock: u64,
    pub(super) status: Status,
    /// The time for which it was parked.
    pub(super) parked: u64,
    pub(super) processor: u32,
    has_token: bool,
    source: Option<Arc<dyn WaitSource>>,
    /// The time for which the line has moved that it used last.
    moved: u64,
    turn: Arc<Turn>,
    handle: Option<JoinHandle<()>>,
    /// A thread that ended when it passed the turn to this one.
    ended: Option<JoinHandle<()>>,
}

/// What is counted in a run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) steps: u64,
    pub(super) wake_ups: u64,
    pub(super) waited: u64,
    pub(super) longest_wait: u64,
}

pub(super) struct State {
    pub(super) threads: Vec<Thread>,
    /// The threads that can run, except the one that does, each with the time at which it goes on.
    /// Of several with the same time the first one is next.
    coming: BTreeSet<(u64, u32)>,
    pub(super) lines: Lines,
    pub(super) counts: Counts,
    /// The time at which each process became ready that waits for its step.
    ready: HashMap<u32, u64>,
    is_over: bool,
    outcome: Option<Outcome>,
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ended,
    /// No thread could go on, before the end of the program.
    Stuck,
}

/// The simulated machine of one run.
pub(super) struct Engine {
    me: Weak<Self>,
    pub(super) machine: Machine,
    costs: Costs,
    pub(super) workers: usize,
    pub(super) seed: u64,
    state: Mutex<State>,
    pub(super) locals: Mutex<BTreeMap<&'static str, SharedLocal>>,
    stopped: Condvar,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(machine: Machine, costs: Costs, workers: usize, seed: u64) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            machine,
            costs,
            workers,
            seed,
            state: Mutex::new(State {
                threads: Vec::new(),
                coming: BTreeSet::new(),
                lines: Lines::new(machine),
                counts: Counts::default(),
                ready: HashMap::new(),
                is_over: false,
                outcome: None,
            }),
            locals: Mutex::default(),
            stopped: Condvar::new(),
        })
    }

    pub(super) fn shared(&self) -> Arc<Self> {
        self.me.upgrade().expect("the caller holds it")
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs `main` as the first virtual thread, and waits until all have ended or cannot go on.
    pub(super) fn run(&self, main: ThreadBody) -> io::Result<Outcome> {
        self.launch("main".into(), START, main)?;
        let mut state = self.state();
        state.coming.clear();
        let turn = Arc::clone(&state.threads[0].turn);
        turn.give();
        loop {
            if let Some(outcome) = state.outcome {
                return Ok(outcome);
            }
            state = self.stopped.wait(state);
        }
    }

    /// Starts a virtual thread, which runs from `clock` on.
    fn launch(&self, name: String, clock: u64, body: ThreadBody) -> io::Result<()> {
        let turn = Arc::new(Turn::default());
        let engine = self.shared();
        let mut state = self.state();
        let number = state.threads.len() as u32 + 1;
        let own = Arc::clone(&turn);
        let run = move || {
            if number == 1 {
                // One thread runs at a time, and waking it on another processor takes longer than
                // most of what it does. If the system refuses, the run is only slower.
                let _ = bind_to_one_processor();
            }
            own.take();
            ME.set(number);
            ENGINE.set(Some(Arc::clone(&engine)));
            let entered = enter(Arc::clone(&engine) as Arc<dyn Os>);
            // Panics end here, as in a detached thread. The hook has reported them.
            drop(catch_unwind(AssertUnwindSafe(body)));
            drop(entered);
            ENGINE.set(None);
            engine.end_thread(number);
        };
        #[expect(clippy::disallowed_methods, reason = "this is the home of virtual threads")]
        let handle = thread::Builder::new().name(name).spawn(run)?;
        let _ = turn.thread.set(handle.thread().clone());
        state.threads.push(Thread {
            clock,
            status: Status::Ready,
            parked: 0,
            processor: OUTSIDE,
            has_token: false,
            source: None,
            moved: 0,
            turn,
            handle: Some(handle),
            ended: None,
        });
        state.coming.insert((clock, number));
        Ok(())
    }

    /// Starts a thread for the calling one.
    pub(super) fn start(&self, name: String, body: ThreadBody) -> io::Result<()> {
        let mut state = self.state();
        let clock = state.work(ME.get(), picoseconds(START_THREAD));
        drop(state);
        self.launch(name, clock + picoseconds(self.machine.wake), body)
    }

    fn end_thread(&self, number: u32) {
        let mut state = self.state();
        state.threads[number as usize - 1].status = Status::Ended;
        self.give(state, number);
    }

    /// Lets the threads run of which the clocks are behind that of the calling one by more than
    /// `lead`.
    fn wait_for_others(&self, me: u32, lead: u64) {
        let mut state = self.state();
        let clock = state.of(me).clock;
        let first = state.coming.first().map_or(NEVER, |&(time, _)| time);
        if first.saturating_add(lead) < clock {
            state.coming.insert((clock, me));
            self.give(state, me);
        }
    }

    /// Gives the turn to the thread that is next, and waits for the next turn of the calling one,
    /// unless that has ended.
    fn give(&self, mut state: MutexGuard<'_, State>, me: u32) {
        let has_ended = state.of(me).status == Status::Ended;
        let Some(next) = state.take_next(me) else {
            self.stop(state);
            if !has_ended {
                // It can never go on. It stays.
                let own = Arc::clone(&self.state().of(me).turn);
                own.take();
            }
            return;
        };
        if next == me {
            return;
        }
        if has_ended {
            state.of(next).ended = state.of(me).handle.take();
        }
        let (given, own) = (Arc::clone(&state.of(next).turn), Arc::clone(&state.of(me).turn));
        drop(state);
        given.give();
        if has_ended {
            return;
        }
        own.take();
        let ended = self.state().of(me).ended.take();
        if let Some(ended) = ended {
            // Its thread-locals are destroyed before anything else runs.
            drop(ended.join());
        }
    }

    /// Ends the run: no thread can go on.
    fn stop(&self, mut state: MutexGuard<'_, State>) {
        let all_ended = state.threads.iter().all(|thread| thread.status == Status::Ended);
        let is_over = state.is_over || all_ended;
        state.outcome = Some(if is_over { Outcome::Ended } else { Outcome::Stuck });
        drop(state);
        self.stopped.notify_all();
    }

    /// The program has ended. What is left may get stuck.
    pub(super) fn finish(&self) {
        self.state().is_over = true;
        let local = std::mem::take(&mut *self.locals.lock());
        drop(local);
    }

    /// Parks the calling thread.
    pub(super) fn wait(&self, source: Option<&Arc<dyn WaitSource>>, deadline: u64) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        let mut state = self.state();
        let is_ready = source.is_some_and(|source| source.is_ready());
        let thread = state.of(me);
        if !thread.has_token && !is_ready {
            let deadline = deadline.saturating_mul(1000);
            let until = deadline.max(thread.clock).saturating_add(picoseconds(self.machine.wake));
            thread.status = Status::Parked(until);
            thread.source = source.map(Arc::clone);
            if until != NEVER {
                state.coming.insert((until, me));
            }
            self.give(state, me);
            state = self.state();
        }
        let thread = state.of(me);
        (thread.has_token, thread.source) = (false, None);
    }

    pub(super) fn unpark(&self, target: u32) {
        let me = ME.get();
        let mut state = self.state();
        if me == 0 || target == 0 || target as usize > state.threads.len() {
            return;
        }
        let Status::Parked(until) = state.of(target).status else {
            state.of(target).has_token = true;
            return;
        };
        state.counts.wake_ups += 1;
        let clock = state.work(me, picoseconds(self.machine.unpark));
        state.wake(target, until.min(clock + picoseconds(self.machine.wake)));
    }

    /// Keeps the processor of the calling thread busy.
    pub(super) fn busy(&self, picoseconds: u64) {
        let me = ME.get();
        if me != 0 {
            self.state().work(me, picoseconds);
            self.wait_for_others(me, 0);
        }
    }

    /// Uses a line, in the order of the clocks.
    pub(super) fn use_line(&self, line: SharedLine, access: Access) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        let mut state = self.state();
        let (processor, clock) = (state.of(me).processor, state.of(me).clock);
        let is_private = state.lines.is_private(line, access, processor, clock);
        drop(state);
        self.wait_for_others(me, if is_private { LEAD } else { 0 });
        let mut state = self.state();
        let now = state.of(me).clock;
        let touched = state.lines.touch(line, access, processor, now);
        let thread = state.of(me);
        (thread.clock, thread.moved) = (touched.until, touched.moved);
    }

    /// Holds a line of the program for a while.
    pub(super) fn hold(&self, line: SharedLine, picoseconds: u64) {
        self.use_line(line, Access::Lock);
        let mut state = self.state();
        let until = state.work(ME.get(), picoseconds);
        state.lines.keep(line, until);
    }

    /// Does an operation.
    pub(super) fn operate(&self, operation: Operation) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        let mut state = self.state();
        let costs = &self.costs;
        let cost = match operation {
            Operation::Ready(process) => {
                let now = state.of(me).clock;
                state.ready.insert(process, now);
                return;
            }
            Operation::Step(process) => {
                state.begin_step(me, process);
                costs.step
            }
            Operation::Spawn => costs.spawn,
            Operation::Wake => costs.wake,
            Operation::Send => costs.send,
            Operation::Receive(messages) => {
                let moved = state.of(me).moved;
                state.work(me, u64::from(messages) * moved / MESSAGES_AHEAD);
                f64::from(messages) * costs.receive
            }
            Operation::Join => costs.join,
            Operation::Arm => costs.timer,
            _ => return,
        };
        state.work(me, picoseconds(cost));
    }
}

impl State {
    pub(super) fn of(&mut self, number: u32) -> &mut Thread {
        &mut self.threads[number as usize - 1]
    }

    /// Lets a thread work. Returns its clock.
    pub(super) fn work(&mut self, number: u32, picoseconds: u64) -> u64 {
        let thread = self.of(number);
        thread.clock = thread.clock.saturating_add(picoseconds);
        thread.clock
    }

    fn begin_step(&mut self, me: u32, process: u32) {
        self.counts.steps += 1;
        let now = self.of(me).clock;
        if let Some(since) = self.ready.remove(&process) {
            let wait = now.saturating_sub(since);
            self.counts.waited += wait;
            self.counts.longest_wait = self.counts.longest_wait.max(wait);
        }
    }

    /// Ends the wait of a parked thread at a time that is not later than its own.
    fn wake(&mut self, number: u32, at: u64) {
        if let Status::Parked(until) = self.of(number).status {
            self.coming.remove(&(until, number));
            self.of(number).status = Status::Parked(at);
            self.coming.insert((at, number));
        }
    }

    /// Takes the thread that is next. If none is, one that waits for a descriptor may be.
    fn take_next(&mut self, me: u32) -> Option<u32> {
        if self.coming.is_empty() {
            let now = self.of(me).clock;
            let ready = (1..=self.threads.len() as u32).find(|&number| {
                let thread = self.of(number);
                let is_ready = thread.source.as_ref().is_some_and(|source| source.is_ready());
                thread.status != Status::Ended && is_ready
            })?;
            self.wake(ready, now);
        }
        let (time, next) = self.coming.pop_first()?;
        let thread = self.of(next);
        if let Status::Parked(_) = thread.status {
            thread.parked += time.saturating_sub(thread.clock);
            thread.clock = thread.clock.max(time);
            thread.status = Status::Ready;
        }
        Some(next)
    }

    /// Starts to count anew.
    pub(super) fn forget_counts(&mut self) {
        self.counts = Counts::default();
        self.lines.spent.clear();
        self.threads.iter_mut().for_each(|thread| thread.parked = 0);
    }
}
