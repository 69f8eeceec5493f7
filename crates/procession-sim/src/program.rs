//! One run of a program.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Once};
use std::task::Poll;
use std::time::Duration;

use procession::Scheduler;
use procession::observe::Snapshot;
#[cfg(procession_sim)]
use procession_sync::host::Mutex;

use crate::chance::Chance;
use crate::engine::Engine;
use crate::engine::setup::Setup;
use crate::engine::threads::current;
use crate::faults::Faults;
use crate::marks::Marks;
#[cfg(procession_sim)]
use crate::memory::Processor;
use crate::net::PROGRAM;
use crate::seen::Seen;
use crate::sim::{Configure, Sim};
use crate::story::{Failure, Kind, Story, place};
use crate::tape::Tape;
#[cfg(all(procession_sim, target_os = "linux"))]
use crate::turn::OneProcessor;

/// The virtual time that a scheduler has to shut down in.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// The limit of processes, and of timers on each worker. With the usual limits a scheduler fills
/// some megabytes of tables, which takes longer than a small program runs.
const LIMIT: u32 = 1 << 18;

/// A program that runs on a scheduler of its check.
pub(crate) type ScheduledProgram = dyn Fn(Sim, &Scheduler) + Send + Sync;

/// A program.
#[derive(Clone)]
pub(crate) enum Program {
    /// Starts its future on a scheduler, and waits for it.
    OnScheduler(Arc<ScheduledProgram>),
    /// Builds its schedulers itself, if it needs any.
    Alone(Arc<dyn Fn(Sim) + Send + Sync>),
}
/// Looks at the program's scheduler at the end of a run.
pub(crate) type Inspect = dyn Fn(&Sim, &Snapshot) + Send + Sync;

/// What all runs of a check have in common.
pub(crate) struct Rules {
    pub(crate) inspect: Option<Arc<Inspect>>,
    pub(crate) program: Program,
    pub(crate) configure: Arc<Configure>,
    /// The least and the greatest number of workers.
    pub(crate) workers: (usize, usize),
    pub(crate) faults: Faults,
    pub(crate) panics_fail: bool,
    /// Set if steps may have other budgets than the usual one.
    pub(crate) draws_budgets: bool,
    /// Set if schedulers may write files.
    pub(crate) keeps_files: bool,
    /// The real time without a point after which a step counts as endless.
    pub(crate) timeout: Duration,
    pub(crate) seen: Arc<Seen>,
    /// The command that replays a run, if it is not the command of a test.
    pub(crate) command: Option<Arc<str>>,
    /// Set if each operation of an atomic is a point.
    #[cfg(procession_sim)]
    pub(crate) at_atomics: bool,
    /// The processor that each run with such points simulates.
    #[cfg(procession_sim)]
    pub(crate) processor: Processor,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) failure: Option<Failure>,
    pub(crate) tape: Tape,
    /// The marks of the decisions, if these were asked for.
    pub(crate) marks: Marks,
    pub(crate) hash: u64,
    pub(crate) setup: Setup,
    pub(crate) story: Story,
    pub(crate) points: u64,
    /// Threads that can never continue, and stay.
    pub(crate) lost_threads: usize,
    /// What its decisions chose from, if that was asked for.
    #[cfg(procession_sim)]
    pub(crate) choices: Vec<crate::chance::fine::Choice>,
    #[cfg(procession_sim)]
    pub(crate) counts: crate::engine::buffers::OperationCounts,
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
    #[cfg(all(procession_sim, target_os = "linux"))]
    let _stays = rules.at_atomics.then(OneProcessor::hold);
    let mut setup = Setup::draw(&mut chance, rules.workers, rules.faults, rules.draws_budgets);
    setup.keeps_files = rules.keeps_files;
    #[cfg(procession_sim)]
    {
        if rules.at_atomics {
            setup = setup.at_atomics(rules.processor);
        }
    }
    // A run that records its story repeats another run.
    let seen = if story.is_told() { Arc::default() } else { Arc::clone(&rules.seen) };
    let engine = Engine::new(chance, setup, rules.panics_fail, story);
    let (program, inspect) = (rules.program.clone(), rules.inspect.clone());
    let sim = Sim { engine: Arc::clone(&engine), seen, configure: Arc::clone(&rules.configure) };
    let main = move || match program {
        Program::OnScheduler(program) => drive(&sim, &*program, inspect.as_deref()),
        Program::Alone(program) => drive_alone(&sim, &*program),
    };
    let left = engine.run(Box::new(main), rules.timeout);
    if left.is_err() {
        engine.abandon();
    }
    setup.faults = engine.classes();
    let (failure, chance, story) = engine.outcome();
    let stuck = left.as_ref().err().map(|thread| Failure {
        kind: Kind::Stuck,
        text: format!("no point was passed for {:?} of real time, on {thread}", rules.timeout),
        after: engine.elapsed(),
    });
    Run {
        // A program that has failed may be stuck because of that.
        failure: failure.or(stuck),
        tape: chance.tape,
        marks: chance.marker.map(|marker| marker.marks).unwrap_or_default(),
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

/// The main function of the first virtual thread, for a program that builds its schedulers itself.
fn drive_alone(sim: &Sim, program: &(dyn Fn(Sim) + Send + Sync)) {
    let engine = &sim.engine;
    engine.set_faults(true);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program(sim.clone()))) {
        engine.fail_by_panic(message(&*panic));
    }
    engine.finish();
    engine.drop_locals(PROGRAM);
}

/// The main function of the first virtual thread.
fn drive(sim: &Sim, program: &ScheduledProgram, inspect: Option<&Inspect>) {
    let engine = &sim.engine;
    match catch_unwind(AssertUnwindSafe(|| build(sim, "sim"))) {
        Ok(Ok(scheduler)) => {
            catch(engine, || program(sim.clone(), &scheduler));
            engine.finish();
            let snapshot = end(engine, &scheduler, SHUTDOWN);
            if let Some(inspect) = inspect {
                catch(engine, || inspect(sim, &snapshot));
            }
        }
        Ok(Err(error)) => {
            let text = format!("the scheduler cannot be built: {error}");
            engine.fail_by_program(Kind::Always("Check::scheduler".into()), text);
        }
        Err(panic) => engine.fail_by_panic(message(&*panic)),
    }
    engine.drop_locals(PROGRAM);
}

/// Builds a scheduler for the program of a host.
pub(crate) fn build(sim: &Sim, name: &str) -> Result<Scheduler, procession::scheduler::BuildError> {
    let setup = sim.engine.setup();
    let builder = Scheduler::builder()
        .worker_threads(setup.workers)
        .max_threads(setup.threads)
        .max_processes(LIMIT)
        .max_timers(LIMIT)
        .name(name);
    (sim.configure)(builder).build()
}

/// Runs a part of a program. A panic is a failure of the run.
pub(crate) fn catch<R>(engine: &Engine, part: impl FnOnce() -> R) -> Option<R> {
    let ran = catch_unwind(AssertUnwindSafe(part));
    ran.map_err(|panic| engine.fail_by_panic(message(&*panic))).ok()
}

/// Shuts the scheduler down within a time, and checks the laws of the end. Returns its last state.
pub(crate) fn end(engine: &Engine, scheduler: &Scheduler, limit: Duration) -> Snapshot {
    let unfinished = scheduler.block_on(scheduler.shutdown(limit));
    let snapshot = scheduler.snapshot();
    let queued: usize =
        snapshot.workers.iter().map(|worker| worker.deque + worker.fifo + worker.bound).sum();
    let broken = if let Some(process) = unfinished.processes.first() {
        Some(format!("a process does not end when the scheduler shuts down: {process:?}"))
    } else if unfinished.writes > 0 {
        Some(format!("{} writes do not reach the system", unfinished.writes))
    } else if snapshot.spawned != snapshot.ended {
        Some(format!("{} processes were spawned, and {} ended", snapshot.spawned, snapshot.ended))
    } else if queued + snapshot.global_queue + snapshot.levels.high + snapshot.levels.batch > 0 {
        Some("a queue is not empty at the end".to_owned())
    } else if snapshot.slots_lost > 0 {
        Some("a slot is lost".to_owned())
    } else if snapshot.timers.armed
        != snapshot.timers.fired + snapshot.timers.cancelled + snapshot.timers.pending
    {
        Some(format!("timers are lost: {:?}", snapshot.timers))
    } else if snapshot.messages_sent < snapshot.messages_received + snapshot.messages_discarded {
        let (received, discarded) = (snapshot.messages_received, snapshot.messages_discarded);
        let sent = snapshot.messages_sent;
        Some(format!("{sent} messages were sent, {received} received and {discarded} discarded"))
    } else {
        None
    };
    if let Some(law) = broken {
        engine.fail_by_program(Kind::Law, law);
    }
    snapshot
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
        std::panic::set_hook(Box::new(move |info| match current() {
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
