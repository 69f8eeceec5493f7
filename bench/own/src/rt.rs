//! The operations of a runtime that the workloads need, on Procession. Each peer in `bench/` has
//! such a module.

use procession::process::Groups;
use procession::{Context, start};
use std::sync::mpsc;

use super::peer;
pub(super) use super::peer::width;
use super::workload::{Failed, Outcome};

pub(super) use std::future::Future;
pub(super) use std::time::Duration;

pub(super) use procession::net::{TcpListener, TcpStream};
pub(super) use procession::process::JoinSet;
pub(super) use procession::sync::{Notify, broadcast, oneshot, watch};
pub(super) use procession::time::{Instant, Sleep, interval as ticks};
pub(super) use procession::{
    JoinHandle, Scheduler as Runtime, blocking, fs, sleep, spawn, yield_now,
};

/// Both runs of `timers_cancel` yield: once its budget is spent, a process sets no timers until it
/// has yielded.
pub(super) const CANCEL_YIELDS: [bool; 2] = [true, true];

pub(super) fn unconstrained<F: Future>(future: F) -> F {
    future
}

pub(super) async fn read_part(file: &mut fs::File, buffer: &mut [u8]) -> std::io::Result<usize> {
    file.read(buffer).await
}

pub(super) fn spawn_into<T: Send + 'static>(
    set: &mut JoinSet<T>,
    future: impl Future<Output = T> + Send + 'static,
) {
    set.insert(spawn(future));
}

pub(super) fn detach<T: Send + 'static>(handle: JoinHandle<T>) {
    handle.detach();
}

pub(super) fn runtime(workers: usize) -> Result<Runtime, Failed> {
    Runtime::builder().name("bench").worker_threads(workers).build().map_err(Failed::error)
}

pub(super) fn runtime_with_keep_alive(
    workers: usize,
    keep_alive: Duration,
) -> Result<Runtime, Failed> {
    let builder = Runtime::builder().name("bench").worker_threads(workers).keep_alive(keep_alive);
    builder.build().map_err(Failed::error)
}

/// Blocks until the process has ended.
pub(super) fn join<T: Send + 'static>(_: &Runtime, handle: JoinHandle<T>) -> Result<T, Failed> {
    Ok(handle.join()?)
}

/// A group of processes that receive numbers.
#[derive(Default)]
pub(super) struct Group(Groups);

impl Group {
    /// Starts a member, which receives this many numbers, calls `received` after each, and returns
    /// their sum.
    pub(super) fn start_member(
        &mut self,
        numbers: u64,
        received: fn(),
    ) -> Result<JoinHandle<u64>, Failed> {
        let member = start(move |mut cx: Context<u64>| async move {
            let mut sum = 0;
            for _ in 0..numbers {
                sum += cx.recv().await.unwrap_or_default();
                received();
            }
            sum
        });
        self.0.join("members", member.pid()).map_err(Failed::error)?;
        Ok(member.into_parts().1)
    }

    /// Sends a number to all members, and returns how many accepted it.
    pub(super) fn broadcast(&self, number: u64) -> u64 {
        self.0.broadcast("members", number).map_or(0, |members| members as u64)
    }
}

/// Returns the number of processes that exist.
pub(super) fn alive(runtime: &Runtime) -> u64 {
    runtime.snapshot().processes.len() as u64
}

pub(super) fn http_timer() -> procession::http::Timer {
    procession::http::Timer
}

/// Returns the stream in the form that hyper needs.
pub(super) fn http_io(stream: TcpStream) -> TcpStream {
    stream
}

/// Runs `workload` as a process.
pub(super) fn inside(
    scheduler: &Runtime,
    workload: impl Future<Output = Outcome> + Send + 'static,
) -> Outcome {
    // A channel, because a join with a timeout would make the workers look at a timer.
    let (to_here, outcome) = mpsc::sync_channel(1);
    let process = scheduler.spawn(async move { to_here.send(workload.await) });
    peer::awaited(&outcome)
        .unwrap_or_else(|| Err(process.join().expect_err("it has sent nothing").into()))
}
