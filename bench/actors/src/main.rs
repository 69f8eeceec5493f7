//! Workloads of `bench/own` on actor libraries. `README.md` describes how to run them.

mod kameo;
mod ractor;

// The files of `bench/own`, so that both do and count the same.
#[path = "../../own/src/latch.rs"]
mod latch;
#[expect(dead_code, reason = "actors are measured without timers, and without a network")]
#[path = "../../own/src/meter.rs"]
mod meter;
#[path = "../../peer.rs"]
mod peer;
#[expect(dead_code, reason = "actors are measured with a part of the workloads")]
#[path = "../../own/src/workload.rs"]
mod workload;

use std::env;
use std::error::Error;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::task::JoinError;

use workload::{Failed, Outcome, Scale};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some(kameo::NAME) => peer::main::<kameo::Kameo>(arguments),
        Some(ractor::NAME) => peer::main::<ractor::Ractor>(arguments),
        _ => {
            // Ignored: if standard error is closed, the exit code must do.
            let _ =
                writeln!(io::stderr(), "usage: actors-bench kameo|ractor [OPTIONS] [WORKLOAD]...");
            ExitCode::from(2)
        }
    }
}

fn start() -> io::Result<Runtime> {
    runtime::Builder::new_multi_thread().worker_threads(peer::width()).enable_all().build()
}

/// Returns the arguments with which a fresh program measures the memory of waiting actors.
fn memory_arguments(library: &'static str, scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec![library, "--idle-memory-here"];
    if scale == Scale::Tiny {
        arguments.push("--tiny");
    }
    arguments
}

/// Runs `workload` as a task.
fn inside(runtime: &Runtime, workload: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    let task = runtime.spawn(async move { to_here.send(workload.await) });
    peer::awaited(&outcome)
        .unwrap_or_else(|| Err(runtime.block_on(task).expect_err("it has sent nothing").into()))
}

/// A result that an actor sends once.
struct Told<T>(Option<oneshot::Sender<T>>);

impl<T> Told<T> {
    fn new() -> (Self, oneshot::Receiver<T>) {
        let (to_here, told) = oneshot::channel();
        (Self(Some(to_here)), told)
    }

    fn tell(&mut self, value: T) {
        // Ignored: the workload has failed, and reports that.
        drop(self.0.take().map(|to_there| to_there.send(value)));
    }
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        Self::error(error)
    }
}

impl From<RecvError> for Failed {
    fn from(error: RecvError) -> Self {
        Self::error(error)
    }
}

/// Converts a library's error for a refused message. The type of the error contains the message,
/// which is of no use.
fn refused(error: impl Error) -> Failed {
    Failed::error(io::Error::other(error.to_string()))
}
