//! The answers of the simulated system to the runtime.

use std::io;
use std::sync::{Arc, Weak};

use procession::Pid;
use procession::sim::{
    CallFault, MessageNumber, Network, Os, RunState, SharedLocal, Subject, ThreadBody, WaitSource,
};
use procession_sync::host::atomic::Ordering::Relaxed;

use crate::engine::{DELAYS, Engine, GRAIN, Held, ME, Status};
use crate::faults::Fault;
use crate::story::Kind;
use crate::time::{US, duration};
use crate::turn::Why;

/// Nanoseconds that one read of the clock takes.
const READ: u64 = 20;
/// Reads in a row without a point after which each read takes long, so that a loop that waits for
/// the clock ends.
const READS_MAX: u64 = 1000;
const READ_LONG: u64 = 10 * US;
const BUDGET_MAX: u32 = 128;

impl Os for Engine {
    fn now(&self) -> u64 {
        // Relaxed: the turn orders it.
        let reads = self.reads.fetch_add(1, Relaxed);
        let cost = if reads < READS_MAX { READ } else { READ_LONG };
        let now = self.now.fetch_add(cost, Relaxed) + cost;
        if self.is_coarse() { now - now % GRAIN } else { now }
    }

    fn seed(&self) -> u64 {
        u64::from(self.state().chance.setup(1 << 16))
    }

    fn thread(&self) -> u32 {
        ME.get()
    }

    fn start_thread(&self, name: String, body: ThreadBody) -> io::Result<()> {
        #[cfg(procession_sim)]
        procession_sync::simulated::enter_kernel();
        let mut state = self.state();
        if state.fault(Fault::ThreadRefused, &[0, 1]).is_some() {
            let now = self.time();
            state.story.tell(now, || format!("the system refuses the thread {name}"));
            return Err(io::Error::from_raw_os_error(11));
        }
        drop(state);
        #[cfg(procession_sim)]
        let body = self.ordered_at_end(body);
        self.launch_on(self.home(), name, body)
    }

    fn park(&self, deadline: u64) {
        self.wait(None, deadline);
    }

    fn park_in_kernel(&self, source: &Arc<dyn WaitSource>, deadline: u64) {
        self.wait(Some(Arc::clone(source)), deadline);
    }

    fn unpark(&self, thread: u32) {
        #[cfg(procession_sim)]
        procession_sync::simulated::enter_kernel();
        let now = self.time();
        let Some(at) = (thread as usize).checked_sub(1) else { return };
        #[cfg(procession_sim)]
        self.order_wake(at);
        let mut state = self.state();
        let Status::Parked { until, is_woken: false } = state.threads[at].status else {
            state.threads[at].has_token = true;
            return;
        };
        let delay = state.fault(Fault::LateWake, &DELAYS).unwrap_or(0);
        if delay > 0 {
            state.note_late(at, delay);
            let name = state.threads[at].name.clone();
            state
                .story
                .tell(now, || format!("{name} is woken, and comes {} late", duration(delay)));
        }
        let until = until.min(now.saturating_add(delay));
        state.threads[at].status = Status::Parked { until, is_woken: true };
    }

    fn point(&self) {
        let me = ME.get();
        if me != 0 {
            // Relaxed: the turn orders it.
            self.now.fetch_add(READ, Relaxed);
            self.stall(me);
            self.pass(me, Why::Point);
        }
    }

    fn pause(&self) {
        let me = ME.get();
        if me != 0 {
            self.now.fetch_add(100, Relaxed);
            self.pass(me, Why::Pause);
        }
    }

    fn step(&self, worker: u32, subject: &dyn Subject) -> Option<u32> {
        let me = ME.get();
        if me == 0 {
            return None;
        }
        self.now.fetch_add(self.setup.step_ns, Relaxed);
        self.note_busy();
        {
            #[cfg(procession_sim)]
            let _muted = procession_sync::simulated::mute();
            let mut state = self.state();
            let thread = &mut state.threads[me as usize - 1];
            thread.used += self.setup.step_ns;
            thread.computed = 0;
            thread.worker = Some((std::ptr::from_ref(subject).cast::<()>().addr(), worker));
            if state.story.is_told() {
                state.story.place =
                    subject.process_of(worker).map(|process| format!(" after a step of {process}"));
            }
            state.come_to(me as usize - 1, |_| subject.mark_of(worker));
        }
        self.check_bounds();
        self.stall(me);
        self.pass(me, Why::Point);
        let mut state = self.state();
        if !self.setup.draws_budgets || state.is_over {
            return None;
        }
        let budget = state.chance.budget(BUDGET_MAX);
        if budget > 0 {
            let (now, name) = (self.time(), state.threads[me as usize - 1].name.clone());
            state.story.tell(now, || format!("the next step on {name} has a budget of {budget}"));
        }
        (budget > 0).then_some(budget)
    }

    fn panics(&self, process: Pid) -> bool {
        let mut state = self.state();
        let told = state.panicking.iter().position(|&one| one == process);
        if let Some(at) = told {
            state.panicking.swap_remove(at);
            self.panics.ask(process);
            return true;
        }
        let now = self.time();
        let panics = state.fault(Fault::ProcessPanics, &[0, 1]).is_some();
        if panics {
            state.story.tell(now, || format!("{} panics", procession::sim::name(process)));
            self.panics.ask(process);
        }
        let is_killed = state.fault(Fault::ProcessKilled, &[0, 1]).is_some();
        if is_killed {
            state.story.tell(now, || format!("{} is killed", procession::sim::name(process)));
        }
        drop(state);
        if is_killed {
            procession::sim::terminate(process);
        }
        panics
    }

    fn panicked(&self, process: Option<Pid>, message: &str) {
        self.panics.add_caught(process, message);
    }

    fn activity(&self, thread: u32) -> Option<(u64, RunState)> {
        let now = self.time();
        let state = self.state();
        let thread = state.threads.get((thread as usize).checked_sub(1)?)?;
        match thread.status {
            Status::Ready | Status::Held { how: Held::Preempted, .. } => {
                Some((thread.used, RunState::Runs))
            }
            Status::Held { how: Held::Computes, since, .. } => {
                Some((thread.used + (now - since), RunState::Runs))
            }
            Status::Parked { .. } | Status::Held { how: Held::Blocks | Held::Late, .. } => {
                Some((thread.used, RunState::Waits))
            }
            Status::Ended => None,
        }
    }

    fn processors(&self) -> usize {
        self.setup.workers
    }

    fn has_membarrier(&self) -> bool {
        !self.setup.faults.contains(Fault::NoMembarrier)
    }

    fn local(&self, name: &'static str, make: &dyn Fn() -> SharedLocal) -> SharedLocal {
        let place = (self.home(), name);
        #[cfg(procession_sim)]
        self.order_threads();
        if let Some(local) = self.locals.lock().get(&place) {
            return Arc::clone(local);
        }
        // Outside of the lock: it may read the clock.
        let made = make();
        Arc::clone(self.locals.lock().entry(place).or_insert(made))
    }

    fn built(&self, subject: Weak<dyn Subject>) {
        let home = self.home();
        let mut state = self.state();
        state.subjects.push(subject);
        state.homes.push(home);
    }

    fn fault(&self, fault: CallFault, count: u32) -> u32 {
        self.call_fault(fault, count)
    }

    fn keeps_files(&self) -> bool {
        self.setup.keeps_files
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }

    fn broken(&self, law: &str) {
        self.fail(Kind::Law, law.to_owned());
    }

    fn tell(&self, monitor: u64) -> bool {
        self.state().told.insert(monitor)
    }

    fn number_message(&self) -> MessageNumber {
        let mut state = self.state();
        state.messages += 1;
        MessageNumber { thread: ME.get(), number: state.messages, is_urgent: false }
    }

    fn takes(&self, process: Pid, sender: Option<Pid>, number: MessageNumber) -> bool {
        let thread = if sender.is_some() { 0 } else { number.thread };
        let order = (process, sender, thread, number.is_urgent);
        let before = self.state().taken.insert(order, number.number);
        before.is_none_or(|before| before < number.number)
    }

    fn has_told(&self, monitor: u64) -> bool {
        self.state().told.contains(&monitor)
    }
}
