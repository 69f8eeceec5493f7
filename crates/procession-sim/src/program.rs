//! One run of a program.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::Duration;

use procession::Builder;
use procession::Scheduler;
use procession_sync::host::Mutex;

use crate::chance::Chance;
use crate::engine::{self, Engine, Setup};
use crate::faults::Faults;
use crate::story::{Failure, Kind, Story};
use crate::tape::Tape;
use crate::{Sim, place};

/// The virtual time that a scheduler has to shut down in.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// The limit of processes, and of timers on each worker. With the usual limits a scheduler fills
/// some megabytes of tables, which takes longer than a small program runs.
const LIMIT: u32 = 1 << 18;

/// The events of `Sim::sometimes`, with whether each has happened.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<BTreeMap<String, bool>>);

impl Seen {
    pub(crate) fn note(&self, event: &str, happens: bool) {
        let mut events = self.0.lock();
        match events.get_mut(event) {
            Some(happened) => *happened |= happens,
            None => drop(events.insert(event.to_owned(), happens)),
        }
    }

    /// Returns an event that has never happened.
    pub(crate) fn missing(&self) -> Option<String> {
        self.0.lock().iter().find(|(_, happened)| !**happened).map(|(event, _)| event.clone())
    }
}

/// Starts the program's future on a scheduler, and waits for it.
pub(crate) type Program = dyn Fn(Sim, &Scheduler) + Send + Sync;
/// Changes the builder of the program's scheduler.
pub(crate) type Configure = dyn Fn(Builder) -> Builder + Send + Sync;
/// What the first virtual thread does.
pub(crate) type Body = dyn Fn(&Sim, Setup) + Send + Sync;

/// What all runs of a check have in common.
pub(crate) struct Rules {
    pub(crate) body: Arc<Body>,
    /// The least and the greatest number of workers.
    pub(crate) workers: (usize, usize),
    pub(crate) faults: Faults,
    pub(crate) panics_fail: bool,
    /// The real time without a point after which a step counts as endless.
    pub(crate) timeout: Duration,
    pub(crate) seen: Arc<Seen>,
    /// Set if each operation of an atomic is a point.
    #[cfg(procession_sim)]
    pub(crate) at_atomics: bool,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) failure: Option<Failure>,
    pub(crate) tape: Tape,
    pub(crate) hash: u64,
    pub(crate) setup: Setup,
    pub(crate) story: Story,
    pub(crate) points: u64,
    /// Threads that can never go on, and stay.
    pub(crate) lost_threads: usize,
    /// What its decisions chose from, if that was asked for.
    #[cfg(procession_sim)]
    pub(crate) choices: Vec<crate::chance::fine::Choice>,
    #[cfg(procession_sim)]
    pub(crate) counts: crate::OperationCounts,
}

/// Held by a run in which a thread may lose its turn while it has a lock. Two such runs at a time
/// would meet in the locks of statics.
#[cfg(procession_sim)]
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a program once.
pub(crate) fn run(rules: &Rules, mut chance: Chance, story: Story) -> Run {
    listen_to_panics();
    #[cfg(procession_sim)]
    let _alone = rules.at_atomics.then(|| ALONE.lock());
    #[cfg(not(procession_sim))]
    let setup = Setup::draw(&mut chance, rules.workers, rules.faults);
    #[cfg(procession_sim)]
    let setup = Setup::draw(&mut chance, rules.workers, rules.faults).at_atomics(rules.at_atomics);
    let engine = Engine::new(chance, setup, rules.panics_fail, story);
    let body = Arc::clone(&rules.body);
    let sim = Sim { engine: Arc::clone(&engine), seen: Arc::clone(&rules.seen) };
    let main = move || body(&sim, setup);
    let left = engine.run(Box::new(main), rules.timeout);
    let (failure, chance, story) = engine.outcome();
    let stuck = left.as_ref().err().map(|thread| Failure {
        kind: Kind::Stuck,
        text: format!("no point was passed for {:?} of real time, on {thread}", rules.timeout),
        after: engine.elapsed(),
    });
    Run {
        failure: stuck.or(failure),
        tape: chance.tape,
        hash: chance.hash,
        setup,
        story,
        points: engine.points(),
        lost_threads: left.map_or(1, |left| left.threads),
        #[cfg(procession_sim)]
        choices: chance.fine.log.unwrap_or_default(),
        #[cfg(procession_sim)]
        counts: engine.operation_counts(),
    }
}

/// Runs a program on a scheduler, on the first virtual thread.
pub(crate) fn drive(sim: &Sim, setup: Setup, program: &Program, configure: &Configure) {
    let engine = &sim.engine;
    let builder = Scheduler::builder()
        .worker_threads(setup.workers)
        .max_threads(setup.threads)
        .max_processes(LIMIT)
        .max_timers(LIMIT)
        .name("sim");
    match catch_unwind(AssertUnwindSafe(|| configure(builder).build())) {
        Ok(Ok(scheduler)) => {
            let ran = catch_unwind(AssertUnwindSafe(|| program(sim.clone(), &scheduler)));
            if let Err(panic) = ran {
                engine.fail_by_panic(message(&*panic));
            }
            engine.finish();
            end(engine, &scheduler);
        }
        Ok(Err(error)) => {
            let text = format!("the scheduler cannot be built: {error}");
            engine.fail_by_program(Kind::Always("Check::scheduler".into()), text);
        }
        Err(panic) => engine.fail_by_panic(message(&*panic)),
    }
    engine.drop_local();
}

/// Shuts the scheduler down, and checks the laws of the end.
fn end(engine: &Engine, scheduler: &Scheduler) {
    let unfinished = scheduler.block_on(scheduler.shutdown(SHUTDOWN));
    let snapshot = scheduler.snapshot();
    let queued: usize =
        snapshot.workers.iter().map(|worker| worker.deque + worker.fifo + worker.bound).sum();
    let broken = if let Some(process) = unfinished.first() {
        Some(format!("a process does not end when the scheduler shuts down: {process:?}"))
    } else if snapshot.spawned != snapshot.ended {
        Some(format!("{} processes were spawned, and {} ended", snapshot.spawned, snapshot.ended))
    } else if queued + snapshot.global_queue > 0 {
        Some("a queue is not empty at the end".to_owned())
    } else if snapshot.slots_lost > 0 {
        Some("a slot is lost".to_owned())
    } else {
        None
    };
    if let Some(law) = broken {
        engine.fail_by_program(Kind::Law, law);
    }
}

/// Waits for the program's future, unless the run fails before.
pub(crate) fn block_on<P: Future<Output = ()>>(
    sim: Sim,
    scheduler: &Scheduler,
    program: impl FnOnce(Sim) -> P,
) {
    let engine = Arc::clone(&sim.engine);
    engine.set_faults(true);
    scheduler.block_on(async {
        let mut program = pin!(program(sim));
        poll_fn(|task| {
            if engine.watch(task.waker()) {
                return Poll::Ready(());
            }
            program.as_mut().poll(task)
        })
        .await;
    });
}

/// Lets panics on virtual threads be noted, and not printed. Other panics are handled as before.
fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match engine::current() {
            Some(engine) => {
                let place = info.location().map_or_else(String::new, place);
                engine.add_panic(message(info.payload()), place);
            }
            None => before(info),
        }));
    });
}

/// Returns the message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a value".into())
}
