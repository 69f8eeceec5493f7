//! The virtual threads of a run: their start and end.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession::sim::{Os, Subject, ThreadBody, bind_to_one_processor, enter};
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::thread::{self, Thread};

use super::{Engine, Leftover, ME, Status, Virtual};
use crate::marks::mark_of_name;
use crate::turn::{Turn, Why};

/// The looks in a row without a new point after which a step has no end. If the whole machine
/// stands still, there is one look in that time.
const LOOKS: u32 = 20;

thread_local! {
    /// The first local of a virtual thread, and so the last that is destroyed.
    static CARRIED: RefCell<Option<Carried>> = const { RefCell::new(None) };
}

/// Returns the engine of the calling thread, if it is a virtual one.
pub(crate) fn current() -> Option<Arc<Engine>> {
    let engine = |carried: &RefCell<Option<Carried>>| Some(carried.borrow().as_ref()?.engine());
    CARRIED.try_with(engine).ok().flatten()
}

impl Engine {
    /// Starts a virtual thread of a host. It runs when it gets a turn.
    pub(crate) fn launch_on(&self, home: usize, name: String, body: ThreadBody) -> io::Result<()> {
        let enlisted = self.enlist_on(home, name.clone());
        let number = enlisted.number;
        let own = enlisted.clone();
        // Panics end here, as in a detached thread. The hook has noted them.
        let run = move || drop(own.run(body, |_| {}));
        #[expect(clippy::disallowed_methods, reason = "this is the home of virtual threads")]
        let started = thread::Builder::new().name(name).spawn(run);
        match started {
            Ok(handle) => {
                enlisted.started(handle.thread().clone());
                self.state().threads[number as usize - 1].handle = Some(handle);
                Ok(())
            }
            Err(error) => {
                self.state().threads[number as usize - 1].status = Status::Ended;
                Err(error)
            }
        }
    }

    /// Makes a virtual thread for a thread that the caller is about to start. It gets no turn until
    /// the caller passes on its own.
    pub(crate) fn enlist(&self, name: String) -> Enlisted {
        self.enlist_on(self.home(), name)
    }

    fn enlist_on(&self, home: usize, name: String) -> Enlisted {
        let turn = Arc::new(Turn::default());
        let engine = self.me.upgrade().expect("the caller holds it");
        let mark = mark_of_name(&name);
        let mut state = self.state();
        let number = state.threads.len() as u32 + 1;
        state.threads.push(Virtual {
            place: mark,
            mark,
            name,
            home,
            status: Status::Ready,
            has_token: false,
            source: None,
            used: 0,
            losing: 0,
            worker: None,
            computed: 0,
            waits: false,
            left_at: Some(self.time()),
            turn: Arc::clone(&turn),
            handle: None,
            ended: None,
            #[cfg(procession_sim)]
            blocked_on: None,
        });
        #[cfg(procession_sim)]
        self.order_start(number);
        Enlisted { engine, number, turn }
    }

    /// Runs `main` as the first virtual thread, and waits until all have ended or cannot continue.
    ///
    /// # Errors
    /// The name of the running thread, if no point was passed for `timeout`.
    pub(crate) fn run(&self, main: ThreadBody, timeout: Duration) -> Result<Leftover, String> {
        self.launch_on(0, "main".into(), main).map_err(|error| format!("main: {error}"))?;
        let turn = Arc::clone(&self.state().threads[0].turn);
        turn.give();
        let (mut seen, mut looks) = (u64::MAX, 0);
        let mut left = self.left.lock();
        loop {
            if let Some(left) = *left {
                return Ok(left);
            }
            let (again, is_late) = self.stopped.wait_timeout(left, timeout / LOOKS);
            left = again;
            // Relaxed: a number that grows while anything happens.
            let points = self.points.load(Relaxed);
            looks = if is_late && points == seen { looks + 1 } else { 0 };
            seen = points;
            if looks == LOOKS && left.is_none() {
                return Err(self.running());
            }
        }
    }

    /// Describes the thread that has the turn, with the process that it runs.
    fn running(&self) -> String {
        let running = self.state().story.running;
        running.map_or_else(|| "a thread".into(), |at| self.describe_work(at))
    }

    /// Names a thread, with the process that it runs, or ran last.
    fn describe_work(&self, at: usize) -> String {
        let state = self.state();
        let (name, worker) = (state.threads[at].name.clone(), state.threads[at].worker);
        let subjects = state.subjects.clone();
        // Without the lock, because the last reference of a scheduler may go here.
        drop(state);
        let process = worker.and_then(|(address, worker)| {
            let is_same = |one: &&Weak<dyn Subject>| one.as_ptr().cast::<()>().addr() == address;
            subjects.iter().find(is_same)?.upgrade()?.process_of(worker)
        });
        process.map_or(name.clone(), |process| format!("{name}, with {process}"))
    }

    /// Describes the threads that can run, with the process of each.
    pub(super) fn working(&self) -> Vec<String> {
        let is_ready = |thread: &Virtual| thread.status == Status::Ready;
        let ready: Vec<_> = {
            let state = self.state();
            (0..state.threads.len()).filter(|&at| is_ready(&state.threads[at])).collect()
        };
        ready.into_iter().map(|at| format!("{} can run", self.describe_work(at))).collect()
    }

    /// Stops the engine: all threads have ended or cannot continue.
    pub(super) fn stop(&self, threads: usize) {
        *self.left.lock() = Some(Leftover { threads });
        self.stopped.notify_all();
    }

    fn end_thread(&self, number: u32) {
        self.state().threads[number as usize - 1].status = Status::Ended;
        #[cfg(procession_sim)]
        self.unblock_joining();
        self.pass(number, Why::End);
    }
}

/// A virtual thread, and the thread of the system that is to carry it.
#[derive(Clone, Debug)]
pub(crate) struct Enlisted {
    engine: Arc<Engine>,
    number: u32,
    turn: Arc<Turn>,
}

impl Enlisted {
    /// Notes the thread that carries the virtual one.
    pub(crate) fn started(&self, thread: Thread) {
        let _ = self.turn.thread.set(thread);
    }

    /// Runs `body` as the virtual thread, on the calling thread, which is to end soon. The virtual
    /// thread ends once the locals of the thread are destroyed. No other thread runs between
    /// `at_end`, which must not panic, and that end.
    pub(crate) fn run<R>(
        self,
        body: impl FnOnce() -> R,
        at_end: impl FnOnce(&Engine) + 'static,
    ) -> std::thread::Result<R> {
        let Self { engine, number, turn } = self;
        if number == 1 {
            // One thread runs at a time, and to wake a thread on another processor takes longer
            // than most steps. If the system refuses, the run is only slower.
            let _ = bind_to_one_processor();
        }
        turn.take();
        ME.set(number);
        let carried = Carried { engine: Arc::clone(&engine), number, at_end: Box::new(at_end) };
        CARRIED.set(Some(carried));
        // The thread stays one of the simulated system until its locals are gone.
        std::mem::forget(enter(Arc::clone(&engine) as Arc<dyn Os>));
        #[cfg(procession_sim)]
        let watched = {
            engine.begin_first_turn();
            engine.watch_operations()
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        #[cfg(procession_sim)]
        {
            // Another thread may run before the last stores are visible.
            procession_sync::simulated::enter_kernel();
            drop(watched);
        }
        result
    }
}

/// The virtual thread that a thread carries. It ends when this is dropped.
///
/// The locals of a thread are destroyed in the order opposite to that in which they were first
/// used.
struct Carried {
    engine: Arc<Engine>,
    number: u32,
    at_end: Box<dyn FnOnce(&Engine)>,
}

impl Carried {
    fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        std::mem::replace(&mut self.at_end, Box::new(|_| {}))(&self.engine);
        self.engine.end_thread(self.number);
    }
}
