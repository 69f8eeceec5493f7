//! The workloads of `bench/own` on smol. `README.md` describes how to run them.

mod memory;
mod messages;
mod rt;

// The files of `bench/own`, so that both do and count the same.
#[path = "../../own/src/latch.rs"]
mod latch;
#[expect(dead_code, reason = "smol is measured without a network, and without threads that block")]
#[path = "../../own/src/meter.rs"]
mod meter;
#[path = "../../peer.rs"]
mod peer;
#[path = "../../own/src/processes.rs"]
mod processes;
#[path = "../../own/src/sleeps.rs"]
mod sleeps;
#[expect(dead_code, reason = "smol is measured with a part of the workloads")]
#[path = "../../own/src/workload.rs"]
mod workload;

use std::env;
use std::io;
use std::process::ExitCode;

use smol::channel::TrySendError;

use peer::{Here, Peer};
use rt::{Form, inside};
use workload::{Failed, Outcome, Scale, Workload};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        Workload { definition: &workload::STEP, run: |_, scale| inside(step(scale)) },
        Workload {
            definition: &workload::IDLE_MEM,
            run: |_, scale| meter::in_fresh_program(&memory::arguments(scale)),
        },
        Workload {
            definition: &workload::TIMERS_FIRE,
            run: |_, scale| inside(sleeps::fire(scale)),
        },
        Workload {
            definition: &workload::SLEEP_50US,
            run: |_, scale| inside(sleeps::sleep_50us(scale)),
        },
    ];

    const HERE: &'static [(&'static str, Here<Self>)] =
        &[("--idle-memory-here", |_, scale| inside(memory::idle(scale)))];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        rt::start(Form::Static);
        Ok(Self)
    }
}

/// The same with the executor that `smol::spawn` has.
struct Plain;

impl Peer for Plain {
    const NAME: &'static str = "smol_executor";

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload { definition: &workload::SPAWN, run: |_, scale| inside(processes::spawn(scale)) },
        Workload {
            definition: &workload::SKYNET,
            run: |_, scale| inside(processes::skynet(scale)),
        },
        Workload { definition: &workload::YIELD, run: |_, scale| inside(processes::yields(scale)) },
        Workload { definition: &workload::STEP, run: |_, scale| inside(step(scale)) },
    ];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        rt::start(Form::Plain);
        Ok(Self)
    }
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if(|first| first == Plain::NAME).is_some() {
        peer::main::<Plain>(arguments)
    } else {
        peer::main::<Smol>(arguments)
    }
}

/// Each a task.
async fn step(scale: Scale) -> Outcome {
    processes::one_by_one(scale, |number| Ok(rt::spawn(async move { number }))).await
}

impl<M: Send + Sync + 'static> From<TrySendError<M>> for Failed {
    fn from(error: TrySendError<M>) -> Self {
        Self::error(error)
    }
}
