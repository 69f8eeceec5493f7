//! The workloads of `bench/own` on may, and the switch alone on corosensei. `README.md`
//! describes how to run them.

mod coroutines;
mod messages;

// The files of `bench/own`, so that both do and count the same.
#[path = "../../own/src/latch.rs"]
mod latch;
#[expect(dead_code, reason = "may is measured without a network, and without threads that block")]
#[path = "../../own/src/meter.rs"]
mod meter;
#[path = "../../peer.rs"]
mod peer;
#[path = "../../own/src/work.rs"]
mod work;
#[expect(dead_code, reason = "may is measured with a part of the workloads")]
#[path = "../../own/src/workload.rs"]
mod workload;

use std::env;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use may::coroutine::{self, JoinHandle};
use may::sync::Blocker;

use peer::{Here, Peer};
use workload::{Failed, Outcome, Scale, Workload};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: the workloads have no thread-locals, and stay far within their stacks.
    #[expect(unsafe_code, reason = "the promise that may asks for")]
    unsafe {
        coroutine::spawn(run)
    }
}

/// Returns the result of a coroutine. If it panicked, the panic continues here.
fn join<T>(child: JoinHandle<T>) -> T {
    child.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// Waits for a future in may's way: the coroutine is suspended.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unparks(Arc<Blocker>);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let blocker = Blocker::current();
    let waker = Waker::from(Arc::new(Unparks(Arc::clone(&blocker))));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // Ignored: it is never cancelled, and the future is polled again in any case.
        let _ = blocker.park(None);
    }
}

/// Runs `workload` as a coroutine.
fn inside(scale: Scale, workload: fn(Scale) -> Outcome) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    drop(spawn(move || to_here.send(workload(scale))));
    peer::awaited(&outcome)
        .unwrap_or_else(|| Err(Failed::Runtime("the workload has panicked".into())))
}

struct May;

impl Peer for May {
    const NAME: &'static str = "may";

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload {
            definition: &workload::PINGPONG,
            run: |_, scale| inside(scale, messages::pingpong),
        },
        Workload { definition: &workload::RING, run: |_, scale| inside(scale, messages::ring) },
        Workload { definition: &workload::FANIN, run: |_, scale| inside(scale, messages::fanin) },
        Workload {
            definition: &workload::YIELD,
            run: |_, scale| inside(scale, coroutines::yields),
        },
        Workload {
            definition: &workload::CO_SWITCH,
            run: |_, scale| coroutines::switch_of_generator(scale),
        },
        Workload {
            definition: &workload::CO_YIELD,
            run: |_, scale| inside(scale, coroutines::co_yields),
        },
        Workload {
            definition: &workload::CO_CHANNEL,
            run: |_, scale| inside(scale, messages::channels),
        },
        Workload {
            definition: &workload::CO_SPAWN,
            run: |_, scale| inside(scale, coroutines::spawns),
        },
        Workload {
            definition: &workload::CO_ALIVE,
            run: |_, scale| meter::in_fresh_program(&coroutines::alive_arguments(scale)),
        },
        Workload {
            definition: &workload::CO_SKEW,
            run: |_, scale| inside(scale, coroutines::skew),
        },
    ];

    const HERE: &'static [(&'static str, Here<Self>)] =
        &[("--coroutine-memory-here", |_, scale| inside(scale, coroutines::alive))];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        // Has no effect once the threads exist.
        may::config().set_workers(peer::width());
        Ok(Self)
    }
}

/// corosensei, on which Procession's coroutines are built.
struct Corosensei;

impl Peer for Corosensei {
    const NAME: &'static str = "corosensei";

    const WORKLOADS: &'static [Workload<Self>] = &[Workload {
        definition: &workload::CO_SWITCH,
        run: |_, scale| coroutines::switch_of_corosensei(scale),
    }];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        Ok(Self)
    }
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if(|first| first == Corosensei::NAME).is_some() {
        peer::main::<Corosensei>(arguments)
    } else {
        peer::main::<May>(arguments)
    }
}
