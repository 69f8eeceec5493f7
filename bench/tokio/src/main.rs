//! The workloads of `bench/own` on tokio. `README.md` describes how to run them.

mod memory;
mod messages;
mod pairs;
mod pool;
mod rt;

// The very files of `bench/own`, so that both do and count the same.
#[path = "../../own/src/exchange.rs"]
mod exchange;
#[path = "../../own/src/fairness.rs"]
mod fairness;
#[path = "../../own/src/files.rs"]
mod files;
#[path = "../../own/src/groups.rs"]
mod groups;
#[path = "../../own/src/latch.rs"]
mod latch;
#[path = "../../own/src/latency.rs"]
mod latency;
#[expect(dead_code, reason = "tokio has no coroutines")]
#[path = "../../own/src/meter.rs"]
mod meter;
#[path = "../../own/src/network.rs"]
mod network;
#[path = "../../own/src/pauses.rs"]
mod pauses;
#[path = "../../peer.rs"]
mod peer;
#[path = "../../own/src/processes.rs"]
mod processes;
#[path = "../../own/src/rescue.rs"]
mod rescue;
#[path = "../../own/src/sleeps.rs"]
mod sleeps;
#[path = "../../own/src/timers.rs"]
mod timers;
#[expect(dead_code, reason = "tokio has no commands to yield")]
#[path = "../../own/src/workload.rs"]
mod workload;

use std::env;
use std::io;
use std::process::ExitCode;

use tokio::runtime::{self, Runtime};
use tokio::task::JoinError;

use peer::{Here, Peer};
use rt::inside;
use workload::{
    Failed, Outcome, POOL_CAPACITY, POOL_CAPACITY_LARGE, POOL_SUBMITTERS, Scale, Workload,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

impl Peer for Runtime {
    const NAME: &'static str = "tokio";

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload {
            definition: &workload::SPAWN,
            run: |runtime, scale| inside(runtime, processes::spawn(scale)),
        },
        Workload {
            definition: &workload::SKYNET,
            run: |runtime, scale| inside(runtime, processes::skynet(scale)),
        },
        Workload {
            definition: &workload::PINGPONG,
            run: |runtime, scale| inside(runtime, messages::pingpong(scale)),
        },
        Workload {
            definition: &workload::RING,
            run: |runtime, scale| inside(runtime, messages::ring(scale)),
        },
        Workload {
            definition: &workload::FANIN,
            run: |runtime, scale| inside(runtime, messages::fanin(scale)),
        },
        Workload {
            definition: &workload::YIELD,
            run: |runtime, scale| inside(runtime, processes::yields(scale)),
        },
        Workload {
            definition: &workload::STEP,
            run: |runtime, scale| inside(runtime, step(scale)),
        },
        Workload {
            definition: &workload::IDLE_MEM,
            run: |_, scale| meter::in_fresh_program(&memory::arguments(scale)),
        },
        Workload {
            definition: &workload::TIMERS_CANCEL,
            run: |runtime, scale| inside(runtime, timers::cancel(scale)),
        },
        Workload {
            definition: &workload::TIMERS_FIRE,
            run: |runtime, scale| inside(runtime, sleeps::fire(scale)),
        },
        Workload {
            definition: &workload::SLEEP_50US,
            run: |runtime, scale| inside(runtime, sleeps::sleep_50us(scale)),
        },
        Workload {
            definition: &workload::TIMER_BEHIND_HOG,
            run: |runtime, scale| inside(runtime, timers::behind_hog(scale)),
        },
        Workload {
            definition: &workload::ECHO,
            run: |runtime, scale| inside(runtime, network::echo(scale)),
        },
        Workload {
            definition: &workload::HTTP,
            run: |runtime, scale| inside(runtime, network::http(scale)),
        },
        Workload {
            definition: &workload::TIMERS_RESET,
            run: |runtime, scale| inside(runtime, timers::reset(scale)),
        },
        Workload { definition: &workload::RESCUE, run: |_, scale| rescue::rescue(scale) },
        Workload {
            definition: &workload::MIXED,
            run: |runtime, scale| inside(runtime, rescue::mixed(scale)),
        },
        Workload { definition: &workload::IDLE_WAKES, run: |_, scale| rescue::idle_wakes(scale) },
        Workload {
            definition: &workload::TICK_BESIDE_STEPS,
            run: |runtime, scale| inside(runtime, fairness::tick_beside_steps(scale)),
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
            run: |runtime, scale| inside(runtime, exchange::notify(scale)),
        },
        Workload {
            definition: &workload::ONESHOT,
            run: |runtime, scale| inside(runtime, exchange::oneshots(scale)),
        },
        Workload {
            definition: &workload::WATCH,
            run: |runtime, scale| inside(runtime, exchange::watch(scale)),
        },
        Workload {
            definition: &workload::BROADCAST,
            run: |runtime, scale| inside(runtime, exchange::broadcast(scale)),
        },
        Workload {
            definition: &workload::JOINSET,
            run: |runtime, scale| inside(runtime, groups::join_set(scale)),
        },
        Workload {
            definition: &workload::GROUP_BROADCAST,
            run: |runtime, scale| inside(runtime, groups::group_broadcast(scale)),
        },
        Workload {
            definition: &workload::FS_READ,
            run: |runtime, scale| inside(runtime, files::read(scale)),
        },
        Workload {
            definition: &workload::POOL,
            run: |runtime, scale| inside(runtime, pool::sleepers(scale, POOL_CAPACITY, 1)),
        },
        Workload {
            definition: &workload::POOL_MANY,
            run: |runtime, scale| {
                inside(runtime, pool::sleepers(scale, POOL_CAPACITY, POOL_SUBMITTERS))
            },
        },
        Workload {
            definition: &workload::POOL_LARGE,
            run: |runtime, scale| inside(runtime, pool::sleepers(scale, POOL_CAPACITY_LARGE, 1)),
        },
        Workload {
            definition: &workload::POOL_LARGE_MANY,
            run: |runtime, scale| {
                inside(runtime, pool::sleepers(scale, POOL_CAPACITY_LARGE, POOL_SUBMITTERS))
            },
        },
    ];

    const HERE: &'static [(&'static str, Here<Self>)] = &[
        ("--idle-memory-here", |runtime, scale| inside(runtime, memory::idle(scale))),
        ("--population-here", |runtime, scale| inside(runtime, memory::population(scale))),
    ];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        runtime::Builder::new_multi_thread().worker_threads(peer::width()).enable_all().build()
    }
}

fn main() -> ExitCode {
    peer::main::<Runtime>(env::args().skip(1))
}

/// Each a task.
async fn step(scale: Scale) -> Outcome {
    processes::one_by_one(scale, |number| Ok(rt::spawn(async move { number }))).await
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        Self::error(error)
    }
}

impl<M: Send + Sync + 'static> From<tokio::sync::mpsc::error::SendError<M>> for Failed {
    fn from(error: tokio::sync::mpsc::error::SendError<M>) -> Self {
        Self::error(error)
    }
}
