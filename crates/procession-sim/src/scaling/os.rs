//! The answers of the simulated machine to the runtime.

use std::io;
use std::sync::{Arc, Weak};

use procession::Pid;
use procession::sim::{
    Access, Meter, Operation, Os, RunState, SharedLine, SharedLocal, Subject, ThreadBody,
    WaitSource,
};

use super::engine::{Engine, ME, START, Status};
use super::machine::picoseconds;

/// The time in nanoseconds of one look of a thread that spins.
const SPIN: f64 = 20.0;

impl Os for Engine {
    fn now(&self) -> u64 {
        let me = ME.get();
        let clock =
            if me == 0 { START } else { self.state().work(me, picoseconds(self.machine.clock)) };
        clock / 1000
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn thread(&self) -> u32 {
        ME.get()
    }

    fn start_thread(&self, name: String, body: ThreadBody) -> io::Result<()> {
        self.start(name, body)
    }

    fn park(&self, deadline: u64) {
        self.wait(None, deadline);
    }

    fn park_in_kernel(&self, source: &Arc<dyn WaitSource>, deadline: u64) {
        self.wait(Some(source), deadline);
    }

    fn unpark(&self, thread: u32) {
        self.unpark(thread);
    }

    fn point(&self) {
        self.busy(0);
    }

    fn pause(&self) {
        self.busy(picoseconds(SPIN));
    }

    fn step(&self, worker: u32, _: &dyn Subject) -> Option<u32> {
        let me = ME.get();
        if me != 0 {
            self.state().of(me).processor = worker;
        }
        None
    }

    fn panics(&self, _: Pid) -> bool {
        false
    }

    fn panicked(&self, _: Option<Pid>, _: &str) {}

    fn activity(&self, thread: u32) -> Option<(u64, RunState)> {
        let state = self.state();
        let thread = state.threads.get((thread as usize).checked_sub(1)?)?;
        let used = (thread.clock - START).saturating_sub(thread.parked) / 1000;
        match thread.status {
            Status::Ready => Some((used, RunState::Runs)),
            Status::Parked(_) => Some((used, RunState::Waits)),
            Status::Ended => None,
        }
    }

    fn processors(&self) -> usize {
        self.workers
    }

    fn has_membarrier(&self) -> bool {
        true
    }

    fn local(&self, name: &'static str, make: &dyn Fn() -> SharedLocal) -> SharedLocal {
        if let Some(local) = self.locals.lock().get(name) {
            return Arc::clone(local);
        }
        // Outside of the lock: it may read the clock.
        let made = make();
        Arc::clone(self.locals.lock().entry(name).or_insert(made))
    }

    fn built(&self, _: Weak<dyn Subject>) {}

    fn meter(&self) -> Option<Arc<dyn Meter>> {
        Some(self.shared())
    }
}

impl Meter for Engine {
    fn work(&self, operation: Operation) {
        self.operate(operation);
    }

    fn touch(&self, line: SharedLine, access: Access) {
        self.use_line(line, access);
    }
}
