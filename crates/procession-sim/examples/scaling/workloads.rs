//! The workloads: those of `procession bench`, in smaller sizes.

use std::array;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::time::{Instant, Sleep};
use procession::{Address, Context, JoinHandle};
use procession_sim::scaling::compute;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

/// A run of a workload, which returns the time that it took.
pub(crate) type Running = Pin<Box<dyn Future<Output = Duration> + Send>>;

/// A workload of which the size can be divided.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The number of operations.
    pub(crate) count: fn(Size) -> u64,
    pub(crate) run: fn(Size) -> Running,
}

/// The number by which the size of all workloads is divided.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    fn of(self, count: u64) -> u64 {
        (count / self.0).max(10)
    }
}

pub(crate) const SKYNET: Workload = Workload {
    name: "skynet",
    count: |size| leaves(size, 100_000),
    run: |size| Box::pin(skynet(leaves(size, 100_000))),
};
/// The same in the size of the command's benchmark.
pub(crate) const SKYNET_LARGE: Workload = Workload {
    name: "skynet_large",
    count: |size| leaves(size, 1_000_000),
    run: |size| Box::pin(skynet(leaves(size, 1_000_000))),
};
pub(crate) const FANIN: Workload = Workload {
    name: "fanin",
    count: |size| size.of(FANIN_SENDERS * 25_000),
    run: |size| Box::pin(fanin(size.of(FANIN_SENDERS * 25_000))),
};
pub(crate) const RING: Workload = Workload {
    name: "ring",
    count: |size| size.of(100_000),
    run: |size| Box::pin(ring(size.of(100_000))),
};
pub(crate) const SKEW: Workload = Workload {
    name: "skew",
    count: |_| SKEW_PROCESSES,
    run: |size| Box::pin(skew(Duration::from_nanos(size.of(2000)))),
};
pub(crate) const TIMERS_CANCEL: Workload = Workload {
    name: "timers_cancel",
    count: |size| 2 * size.of(50_000),
    run: |size| Box::pin(timers(2, size.of(32_768), size.of(50_000))),
};
pub(crate) const TIMERS_CANCEL_128: Workload = Workload {
    name: "timers_cancel_128",
    count: |size| 128 * size.of(800),
    run: |size| Box::pin(timers(128, size.of(512), size.of(800))),
};

const FANIN_SENDERS: u64 = 8;
const RING_PROCESSES: usize = 503;
const SKEW_PROCESSES: u64 = 256;
const SKEW_PARTS: u64 = 10;
const TIMERS_BETWEEN_YIELDS: u64 = 64;
const TIMERS_DELAYED: usize = 100;

/// Returns a power of ten.
fn leaves(size: Size, leaves: u64) -> u64 {
    10_u64.pow(size.of(leaves).ilog10())
}

async fn skynet(leaves: u64) -> Duration {
    let start = Instant::now();
    let sum = node(0, leaves).await.expect("it ends");
    assert_eq!(sum, leaves * (leaves - 1) / 2);
    Instant::now() - start
}

/// Starts a process that returns the sum of the numbers of the leaves below it.
fn node(first: u64, leaves: u64) -> JoinHandle<u64> {
    if leaves == 1 {
        return procession::spawn(async move { first });
    }
    procession::spawn(async move {
        let below = leaves / 10;
        let children: [_; 10] = array::from_fn(|child| node(first + child as u64 * below, below));
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("a child ends with its sum");
        }
        sum
    })
}

async fn fanin(messages: u64) -> Duration {
    let receiver = procession::start(move |mut cx: Context<u64>| async move {
        let start = Instant::now();
        for _ in 0..FANIN_SENDERS {
            let receiver = cx.address();
            procession::spawn(async move {
                for number in 0..messages / FANIN_SENDERS {
                    receiver.send(number).expect("it receives all");
                }
            });
        }
        for _ in 0..messages / FANIN_SENDERS * FANIN_SENDERS {
            cx.recv().await;
        }
        Instant::now() - start
    });
    receiver.await.expect("it ends")
}

/// Sends a number round a ring. It counts down at each hop.
async fn ring(hops: u64) -> Duration {
    let first = procession::start(move |mut cx: Context<u64>| async move {
        let mut next = cx.address();
        for _ in 1..RING_PROCESSES {
            next = procession::start(move |cx| link(cx, next)).address().clone();
        }
        let start = Instant::now();
        next.send(hops).expect("it lives");
        let mut end = start;
        while let Some(number) = cx.recv().await
            && number > 0
        {
            next.send(number.saturating_sub(1)).expect("it lives");
            end = Instant::now();
        }
        // A zero goes round once more, and all processes end.
        drop(next.send(0));
        end - start
    });
    first.await.expect("it ends")
}

async fn link(mut cx: Context<u64>, next: Address<u64>) {
    while let Some(number) = cx.recv().await {
        // At the end of the last round, the next process has ended.
        if next.send(number.saturating_sub(1)).is_err() || number == 0 {
            return;
        }
    }
}

/// Processes of unequal work, the last of which has as many times the work of the first as there
/// are processes. Each yields after a tenth of its work.
async fn skew(unit: Duration) -> Duration {
    let start = Instant::now();
    let spawn = |number: u64| {
        procession::spawn(async move {
            let work = unit * (number as u32 + 1);
            for _ in 0..SKEW_PARTS {
                compute(work / SKEW_PARTS as u32);
                procession::yield_now().await;
            }
        })
    };
    for process in (0..SKEW_PROCESSES).map(spawn).collect::<Vec<_>>() {
        process.await.expect("it ends");
    }
    Instant::now() - start
}

/// Each process sets a timer and deletes that of some before, again and again.
async fn timers(processes: u64, live: u64, count: u64) -> Duration {
    let waiting = Arc::new(AtomicU64::new(processes));
    let start = |seed| procession::spawn(set_and_cancel(seed, live, count, Arc::clone(&waiting)));
    let (mut first, mut last) = (None, None);
    // To delete them takes time, too, which is not to count.
    let mut kept = Vec::new();
    for process in (0..processes).map(start).collect::<Vec<_>>() {
        let (start, end, timers) = process.await.expect("it ends");
        kept.push(timers);
        first = Some(first.map_or(start, |first: Instant| first.min(start)));
        last = Some(last.map_or(end, |last: Instant| last.max(end)));
    }
    last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first)
}

async fn set_and_cancel(
    seed: u64,
    live: u64,
    count: u64,
    waiting: Arc<AtomicU64>,
) -> (Instant, Instant, Vec<Pin<Box<Sleep>>>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut kept = Vec::new();
    for number in 0..live {
        kept.push(set(&mut rng).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            procession::yield_now().await;
        }
    }
    // Relaxed: only the count matters.
    waiting.fetch_sub(1, Relaxed);
    while waiting.load(Relaxed) > 0 {
        procession::yield_now().await;
    }
    let start = Instant::now();
    let mut recent = VecDeque::with_capacity(TIMERS_DELAYED + 1);
    for number in 0..count {
        recent.push_back(set(&mut rng).await);
        if recent.len() > TIMERS_DELAYED {
            recent.pop_front();
        }
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            procession::yield_now().await;
        }
    }
    let end = Instant::now();
    kept.extend(recent);
    (start, end, kept)
}

/// Sets a timer that will not fire.
async fn set(rng: &mut fastrand::Rng) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(procession::sleep(Duration::from_millis(rng.u64(10_000..30_000))));
    poll_fn(|task| Poll::Ready(sleep.as_mut().poll(task).is_pending())).await;
    sleep
}
