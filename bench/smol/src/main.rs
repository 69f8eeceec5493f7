//! The workloads of `procession bench` on smol. `README.md` describes how to run them.

mod memory;
mod messages;
mod processes;
mod timers;

// The same files as the command's, so that both do and count the same.
#[path = "../../../crates/procession-cli/src/bench/latch.rs"]
mod latch;
#[expect(dead_code, reason = "smol is measured without a network, and without threads that block")]
#[path = "../../../crates/procession-cli/src/bench/meter.rs"]
mod meter;
#[path = "../../peer.rs"]
mod peer;
#[expect(dead_code, reason = "smol is measured with a part of the workloads")]
#[path = "../../../crates/procession-cli/src/bench/workload.rs"]
mod workload;

use std::env;
use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use smol::Task;
use smol::channel::TrySendError;

use peer::Peer;
use workload::{Failed, Outcome, Scale, Workload};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The executor for the whole program, like that of `smol::spawn`, with as many threads as the
/// other runtimes have workers.
static EXECUTOR: smol::Executor<'static> = smol::Executor::new();

fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    EXECUTOR.spawn(future)
}

struct Smol;

impl Peer for Smol {
    const NAME: &'static str = "smol";

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload { definition: &workload::SPAWN, run: |_, scale| inside(processes::spawn(scale)) },
        Workload {
            definition: &workload::SKYNET,
            run: |_, scale| inside(processes::skynet(scale)),
        },
        Workload {
            definition: &workload::PINGPONG,
            run: |_, scale| inside(messages::pingpong(scale)),
        },
        Workload { definition: &workload::RING, run: |_, scale| inside(messages::ring(scale)) },
        Workload { definition: &workload::FANIN, run: |_, scale| inside(messages::fanin(scale)) },
        Workload { definition: &workload::YIELD, run: |_, scale| inside(processes::yields(scale)) },
        Workload { definition: &workload::STEP, run: |_, scale| inside(processes::step(scale)) },
        Workload {
            definition: &workload::IDLE_MEM,
            run: |_, scale| meter::in_fresh_program(&memory::arguments(scale)),
        },
        Workload {
            definition: &workload::TIMERS_FIRE,
            run: |_, scale| inside(timers::fire(scale)),
        },
        Workload {
            definition: &workload::SLEEP_50US,
            run: |_, scale| inside(timers::sleep_50us(scale)),
        },
    ];

    fn start() -> io::Result<Self> {
        // Started once: with further threads at each start, there would be more than the others
        // have.
        static STARTED: std::sync::Once = std::sync::Once::new();
        STARTED.call_once(|| {
            for _ in 0..peer::width() {
                thread::spawn(|| smol::block_on(EXECUTOR.run(std::future::pending::<()>())));
            }
        });
        Ok(Self)
    }

    fn idle_memory(&self, scale: Scale) -> Outcome {
        inside(memory::idle(scale))
    }
}

fn main() -> ExitCode {
    peer::main::<Smol>(env::args().skip(1))
}

/// Runs `workload` as a task.
fn inside(workload: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    spawn(async move { to_here.send(workload.await) }).detach();
    peer::awaited(&outcome).expect("a panic of a workload ends the program")
}

impl<M: Send + Sync + 'static> From<TrySendError<M>> for Failed {
    fn from(error: TrySendError<M>) -> Self {
        Self::error(error)
    }
}
