//! What the workloads need of a runtime, on tokio.

use std::sync::mpsc;

use crate::peer;
use crate::workload::{Failed, Outcome};

pub(crate) use std::future::Future;
pub(crate) use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
pub(crate) use tokio::fs;
pub(crate) use tokio::io::{AsyncReadExt, AsyncWriteExt};
pub(crate) use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
pub(crate) use tokio::runtime::Runtime;
pub(crate) use tokio::spawn;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
pub(crate) use tokio::sync::{Notify, broadcast, oneshot, watch};
pub(crate) use tokio::task::{
    JoinHandle, JoinSet, block_in_place as blocking, unconstrained, yield_now,
};
pub(crate) use tokio::time::{Instant, Sleep, sleep};
use tokio::time::{Interval, MissedTickBehavior};

pub(crate) use peer::width;

/// Without a budget, a task can set timers without a yield.
pub(crate) const CANCEL_YIELDS: [bool; 2] = [false, true];

pub(crate) async fn read_part(file: &mut fs::File, buffer: &mut [u8]) -> std::io::Result<usize> {
    file.read(buffer).await
}

pub(crate) fn spawn_into<T: Send + 'static>(
    set: &mut JoinSet<T>,
    future: impl Future<Output = T> + Send + 'static,
) {
    set.spawn(future);
}

pub(crate) fn detach<T>(handle: JoinHandle<T>) {
    drop(handle);
}

pub(crate) fn runtime(workers: usize) -> Result<Runtime, Failed> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_time().build().map_err(Failed::error)
}

pub(crate) fn runtime_with_keep_alive(
    workers: usize,
    keep_alive: Duration,
) -> Result<Runtime, Failed> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).thread_keep_alive(keep_alive).enable_all();
    builder.build().map_err(Failed::error)
}

/// Blocks until the task has ended.
pub(crate) fn join<T>(runtime: &Runtime, handle: JoinHandle<T>) -> Result<T, Failed> {
    Ok(runtime.block_on(handle)?)
}

/// A group of tasks that receive numbers: tokio has none, so it is the list of their channels.
#[derive(Default)]
pub(crate) struct Group(Vec<UnboundedSender<u64>>);

impl Group {
    /// Starts a member, which receives this many numbers, calls `received` after each, and returns
    /// their sum.
    pub(crate) fn start_member(
        &mut self,
        numbers: u64,
        received: fn(),
    ) -> Result<JoinHandle<u64>, Failed> {
        let (sender, mut receiver) = unbounded_channel();
        self.0.push(sender);
        Ok(spawn(async move {
            let mut sum = 0;
            for _ in 0..numbers {
                sum += receiver.recv().await.unwrap_or_default();
                received();
            }
            sum
        }))
    }

    /// Sends a number to all members, and returns how many accepted it.
    pub(crate) fn broadcast(&self, number: u64) -> u64 {
        self.0.iter().filter(|member| member.send(number).is_ok()).count() as u64
    }
}

/// How many tasks there are.
pub(crate) fn alive(runtime: &Runtime) -> u64 {
    runtime.metrics().num_alive_tasks() as u64
}

/// As those of Procession: the first tick comes after a period, and missed ones are left out.
pub(crate) fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

pub(crate) fn http_timer() -> TokioTimer {
    TokioTimer::new()
}

/// The stream as hyper wants it.
pub(crate) fn http_io(stream: TcpStream) -> TokioIo<TcpStream> {
    TokioIo::new(stream)
}

/// Runs `workload` as a task.
pub(crate) fn inside(
    runtime: &Runtime,
    workload: impl Future<Output = Outcome> + Send + 'static,
) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    let task = runtime.spawn(async move { to_here.send(workload.await) });
    peer::awaited(&outcome)
        .unwrap_or_else(|| Err(runtime.block_on(task).expect_err("it has sent nothing").into()))
}
