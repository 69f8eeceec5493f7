//! The workloads of `procession bench` on tokio. `README.md` describes how to run them.

mod memory;
mod messages;
mod pairs;
mod pool;
mod rt;

// The very files of the command, so that both do and count the same.
#[path = "../../../crates/procession-cli/src/bench/exchange.rs"]
mod exchange;
#[path = "../../../crates/procession-cli/src/bench/fairness.rs"]
mod fairness;
#[path = "../../../crates/procession-cli/src/bench/files.rs"]
mod files;
#[path = "../../../crates/procession-cli/src/bench/groups.rs"]
mod groups;
#[path = "../../../crates/procession-cli/src/bench/latch.rs"]
mod latch;
#[path = "../../../crates/procession-cli/src/bench/latency.rs"]
mod latency;
#[expect(dead_code, reason = "tokio has no coroutines")]
#[path = "../../../crates/procession-cli/src/bench/meter.rs"]
mod meter;
#[path = "../../../crates/procession-cli/src/bench/network.rs"]
mod network;
#[path = "../../../crates/procession-cli/src/bench/pauses.rs"]
mod pauses;
#[path = "../../peer.rs"]
mod peer;
#[path = "../../../crates/procession-cli/src/bench/processes.rs"]
mod processes;
#[path = "../../../crates/procession-cli/src/bench/rescue.rs"]
mod rescue;
#[path = "../../../crates/procession-cli/src/bench/sleeps.rs"]
mod sleeps;
#[path = "../../../crates/procession-cli/src/bench/timers.rs"]
mod timers;
#[expect(dead_code, reason = "tokio has no commands to yield")]
#[path = "../../../crates/procession-cli/src/bench/workload.rs"]
mod workload;

use std::env;
use std::io;
use std::process::ExitCode;

use tokio::runtime::{self, Runtime};
use tokio::task::JoinError;

use peer::Peer;
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

    fn start() -> io::Result<Self> {
        runtime::Builder::new_multi_thread().worker_threads(peer::width()).enable_all().build()
    }

    fn idle_memory(&self, scale: Scale) -> Outcome {
        inside(self, memory::idle(scale))
    }

    fn population(&self, scale: Scale) -> Outcome {
        inside(self, memory::population(scale))
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
