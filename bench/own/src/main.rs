//! The workloads on Procession.
//!
//! The peers in `bench/` are built with most of these very files, so that all do and count the
//! same. What these files need of a runtime is in `rt.rs`, of which each peer has its own.

mod coroutines;
mod exchange;
mod fairness;
mod files;
mod groups;
mod latch;
mod latency;
mod machines;
mod memory;
mod messages;
mod meter;
mod network;
mod pairs;
mod pauses;
#[path = "../../peer.rs"]
mod peer;
mod pool;
mod processes;
mod rescue;
mod rt;
mod sleeps;
#[cfg(test)]
mod tests;
mod timers;
mod work;
mod workload;

use std::env;
use std::io;
use std::process::ExitCode;

use procession::{Exit, Scheduler};

use peer::{Here, Peer, width};
use rt::inside;
use workload::{
    Failed, Outcome, Scale, TIMERS_CANCEL_COUNT, TIMERS_CANCEL_FORMS, TIMERS_CANCEL_LIVE,
    TIMERS_CANCEL_PROCESSES, Workload, check,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The option that builds the scheduler without the flight recorder.
const NO_RECORDER: &str = "--no-recorder";

impl Peer for Scheduler {
    const NAME: &'static str = "procession";

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload {
            definition: &workload::SPAWN,
            run: |scheduler, scale| inside(scheduler, processes::spawn(scale)),
        },
        Workload {
            definition: &workload::SKYNET,
            run: |scheduler, scale| inside(scheduler, processes::skynet(scale)),
        },
        Workload {
            definition: &workload::PINGPONG,
            run: |scheduler, scale| inside(scheduler, messages::pingpong(scale)),
        },
        Workload {
            definition: &workload::RING,
            run: |scheduler, scale| inside(scheduler, messages::ring(scale)),
        },
        Workload {
            definition: &workload::FANIN,
            run: |scheduler, scale| inside(scheduler, messages::fanin(scale)),
        },
        Workload {
            definition: &workload::YIELD,
            run: |scheduler, scale| inside(scheduler, processes::yields(scale)),
        },
        Workload {
            definition: &workload::STEP,
            run: |scheduler, scale| inside(scheduler, machines::step(scale)),
        },
        Workload {
            definition: &workload::STEP_YIELD,
            run: |scheduler, scale| inside(scheduler, machines::step_yield(scale)),
        },
        Workload {
            definition: &workload::IDLE_MEM,
            run: |_, scale| meter::in_fresh_program(&memory::arguments(scale)),
        },
        Workload {
            definition: &workload::DOWNS,
            run: |_, scale| meter::in_fresh_program(&memory::arguments_for("--downs-here", scale)),
        },
        Workload { definition: &workload::TIMERS_CANCEL, run: timers_cancel },
        Workload {
            definition: &workload::TIMERS_FIRE,
            run: |scheduler, scale| inside(scheduler, sleeps::fire(scale)),
        },
        Workload {
            definition: &workload::SLEEP_50US,
            run: |scheduler, scale| inside(scheduler, sleeps::sleep_50us(scale)),
        },
        Workload {
            definition: &workload::TIMER_BEHIND_HOG,
            run: |scheduler, scale| inside(scheduler, timers::behind_hog(scale)),
        },
        Workload {
            definition: &workload::ECHO,
            run: |scheduler, scale| inside(scheduler, network::echo(scale)),
        },
        Workload {
            definition: &workload::HTTP,
            run: |scheduler, scale| inside(scheduler, network::http(scale)),
        },
        Workload {
            definition: &workload::TIMERS_RESET,
            run: |scheduler, scale| inside(scheduler, timers::reset(scale)),
        },
        Workload { definition: &workload::RESCUE, run: |_, scale| rescue::rescue(scale) },
        Workload {
            definition: &workload::MIXED,
            run: |scheduler, scale| inside(scheduler, rescue::mixed(scale)),
        },
        Workload { definition: &workload::UNWATCHED, run: |_, scale| unwatched(scale) },
        Workload { definition: &workload::IDLE_WAKES, run: |_, scale| rescue::idle_wakes(scale) },
        Workload {
            definition: &workload::TICK_BESIDE_STEPS,
            run: |scheduler, scale| inside(scheduler, fairness::tick_beside_steps(scale)),
        },
        Workload { definition: &workload::SHARES, run: |_, scale| fairness::shares(scale) },
        Workload { definition: &workload::IDLE_AFTER, run: |_, scale| fairness::idle_after(scale) },
        Workload { definition: &workload::WAKE, run: messages::wake },
        Workload { definition: &workload::LOAD, run: latency::load },
        Workload {
            definition: &workload::POPULATION,
            run: |_, scale| {
                meter::in_fresh_program(&memory::arguments_for("--population-here", scale))
            },
        },
        Workload {
            definition: &workload::NOTIFY,
            run: |scheduler, scale| inside(scheduler, exchange::notify(scale)),
        },
        Workload {
            definition: &workload::ONESHOT,
            run: |scheduler, scale| inside(scheduler, exchange::oneshots(scale)),
        },
        Workload {
            definition: &workload::WATCH,
            run: |scheduler, scale| inside(scheduler, exchange::watch(scale)),
        },
        Workload {
            definition: &workload::BROADCAST,
            run: |scheduler, scale| inside(scheduler, exchange::broadcast(scale)),
        },
        Workload {
            definition: &workload::JOINSET,
            run: |scheduler, scale| inside(scheduler, groups::join_set(scale)),
        },
        Workload {
            definition: &workload::GROUP_BROADCAST,
            run: |scheduler, scale| inside(scheduler, groups::group_broadcast(scale)),
        },
        Workload {
            definition: &workload::FS_READ,
            run: |scheduler, scale| inside(scheduler, files::read(scale)),
        },
        Workload { definition: &workload::POOL, run: pool::few },
        Workload { definition: &workload::POOL_MANY, run: pool::many },
        Workload { definition: &workload::POOL_LARGE, run: pool::large },
        Workload { definition: &workload::POOL_LARGE_MANY, run: pool::large_many },
        Workload { definition: &workload::POOL_CO, run: pool::coroutines },
        Workload { definition: &workload::POOL_THREADS_EMPTY, run: pool::threads },
        Workload { definition: &workload::POOL_TRICKLE, run: pool::trickle },
        Workload { definition: &workload::OBJECTS, run: pool::objects },
        Workload { definition: &workload::CO_SWITCH, run: |_, scale| coroutines::switch(scale) },
        Workload {
            definition: &workload::CO_YIELD,
            run: |scheduler, scale| inside(scheduler, coroutines::yields(scale)),
        },
        Workload {
            definition: &workload::CO_CHANNEL,
            run: |scheduler, scale| inside(scheduler, coroutines::channels(scale)),
        },
        Workload {
            definition: &workload::CO_APART,
            run: |scheduler, scale| inside(scheduler, coroutines::apart(scale, width())),
        },
        Workload {
            definition: &workload::CO_SPAWN,
            run: |scheduler, scale| inside(scheduler, coroutines::spawns(scale)),
        },
        Workload {
            definition: &workload::CO_ALIVE,
            run: |_, scale| {
                meter::in_fresh_program(&memory::arguments_for("--coroutine-memory-here", scale))
            },
        },
        Workload {
            definition: &workload::CO_SKEW,
            run: |scheduler, scale| inside(scheduler, coroutines::skew(scale, width())),
        },
    ];

    const HERE: &'static [(&'static str, Here<Self>)] = &[
        ("--idle-memory-here", |scheduler, scale| inside(scheduler, memory::idle(scale))),
        ("--downs-here", |scheduler, scale| inside(scheduler, memory::downs(scale))),
        ("--population-here", |scheduler, scale| inside(scheduler, memory::population(scale))),
        ("--coroutine-memory-here", |scheduler, scale| inside(scheduler, coroutines::alive(scale))),
    ];

    const OPTIONS: &'static [(&'static str, &'static str)] =
        &[(NO_RECORDER, "build the scheduler without the flight recorder, to compare")];

    fn start(options: &[&'static str]) -> io::Result<Self> {
        let mut builder = Self::builder().name("bench").worker_threads(width());
        if options.contains(&NO_RECORDER) {
            builder = builder.recorder_events(0);
        }
        // SAFETY: no coroutine of a workload holds a scoped thread-local pointer across a wait.
        #[expect(unsafe_code, reason = "a promise about code that no type can check")]
        let builder = unsafe { builder.enable_coroutines() };
        builder.handler(machines::ECHO, machines::echo).build().map_err(io::Error::other)
    }
}

fn main() -> ExitCode {
    peer::main::<Scheduler>(env::args().skip(1))
}

fn timers_cancel(scheduler: &Scheduler, scale: Scale) -> Outcome {
    let before = scheduler.snapshot().timers;
    let outcome = inside(scheduler, timers::cancel(scale))?;
    let after = scheduler.snapshot().timers;
    let live_and_new = scale.of(TIMERS_CANCEL_LIVE) + scale.of(TIMERS_CANCEL_COUNT);
    let count = TIMERS_CANCEL_FORMS * TIMERS_CANCEL_PROCESSES * live_and_new;
    check("the timers set", count, after.armed - before.armed)?;
    let ended = after.cancelled + after.fired - before.cancelled - before.fired;
    check("the timers cancelled or fired", count, ended)?;
    Ok(outcome)
}

/// Runs two workloads without a watchdog. The difference to the runs with one is the cost of the
/// watchdog.
fn unwatched(scale: Scale) -> Outcome {
    let builder = Scheduler::builder().name("unwatched").worker_threads(width()).watchdog(false);
    let scheduler = builder.build().map_err(Failed::error)?;
    let pingpong = inside(&scheduler, messages::pingpong(scale))?;
    let yields = inside(&scheduler, processes::yields(scale))?;
    Ok([pingpong, yields].concat())
}

impl From<Exit> for Failed {
    fn from(exit: Exit) -> Self {
        Self::error(exit)
    }
}

impl<M: Send + Sync + 'static> From<procession::SendError<M>> for Failed {
    fn from(error: procession::SendError<M>) -> Self {
        Self::error(error)
    }
}
