//! The costs of the runtime's operations, from measurements with one worker.
//!
//! The time of each probe depends on one cost that the probes before it have not
//! determined. It runs for real, and in the model with that cost at zero. The difference is the
//! cost.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Scheduler};
use procession_sim::scaling::{Costs, Machine, Model, ModelError};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::thread;

use crate::workloads::{Running, Size, TIMERS_CANCEL, Workload};

struct Probe {
    workload: Workload,
    /// The number of times that the operation occurs.
    times: fn(Size) -> u64,
    cost: fn(&mut Costs) -> &mut f64,
}

const YIELDS: u64 = 100;
const ROUNDS: u64 = 100;
const MESSAGES: u64 = 1000;

const PROBES: [Probe; 7] = [
    Probe {
        workload: Workload {
            name: "yield",
            count: |_| 1000 * YIELDS,
            run: |_| Box::pin(yields(1000)),
        },
        times: |_| 1000 * (YIELDS + 1),
        cost: |costs| &mut costs.step,
    },
    Probe {
        workload: Workload {
            name: "send",
            count: |_| ROUNDS * MESSAGES,
            run: |_| messages(|times| times.0),
        },
        times: |_| ROUNDS * MESSAGES,
        cost: |costs| &mut costs.send,
    },
    Probe {
        workload: Workload {
            name: "receive",
            count: |_| ROUNDS * MESSAGES,
            run: |_| messages(|times| times.1),
        },
        times: |_| ROUNDS * MESSAGES,
        cost: |costs| &mut costs.receive,
    },
    Probe {
        workload: Workload {
            name: "pingpong",
            count: |_| 20_000,
            run: |_| Box::pin(pingpong(20_000)),
        },
        times: |_| 2 * 20_000,
        cost: |costs| &mut costs.wake,
    },
    Probe {
        workload: Workload {
            name: "spawn",
            count: |_| 50_000,
            run: |_| Box::pin(detached(500, 100)),
        },
        times: |_| 50_000,
        cost: |costs| &mut costs.spawn,
    },
    Probe {
        workload: Workload { name: "join", count: |_| 50_000, run: |_| Box::pin(joined(500, 100)) },
        times: |_| 50_000,
        cost: |costs| &mut costs.join,
    },
    Probe { workload: TIMERS_CANCEL, times: TIMERS_CANCEL.count, cost: |costs| &mut costs.timer },
];

/// Measures all costs. `show` is called with the name of each probe, its time for each operation in
/// nanoseconds, and the cost.
pub(crate) fn measure(
    machine: Machine,
    size: Size,
    rounds: usize,
    mut show: impl FnMut(&str, f64, f64),
) -> Result<Costs, ModelError> {
    let mut costs = Costs::default();
    for probe in &PROBES {
        let Workload { name, count, run } = probe.workload;
        // The shortest time, since other programs may run at the same time.
        let (real, _) = for_real(1, rounds, || run(size));
        let modelled = Model::new(machine, costs).run(move || run(size))?.elapsed;
        let rest = nanoseconds(real) - nanoseconds(modelled);
        *(probe.cost)(&mut costs) = (rest / (probe.times)(size) as f64).max(0.0);
        show(name, nanoseconds(real) / count(size) as f64, *(probe.cost)(&mut costs));
    }
    Ok(costs)
}

pub(crate) fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

/// Runs a program on the real machine, as often as told after one run that does not count. Returns
/// the shortest time, and the median.
pub(crate) fn for_real<F>(
    workers: usize,
    rounds: usize,
    program: impl Fn() -> F,
) -> (Duration, Duration)
where
    F: Future<Output = Duration> + Send + 'static,
{
    let builder = Scheduler::builder().name("real").worker_threads(workers);
    let scheduler = builder.build().expect("the limits are the usual ones");
    let run = || scheduler.spawn(program()).join().expect("it ends");
    run();
    let mut times: Vec<_> = (0..rounds).map(|_| run()).collect();
    times.sort();
    (times[0], times[times.len() / 2])
}

async fn yields(processes: u64) -> Duration {
    let start = Instant::now();
    let spawn = |_| {
        procession::spawn(async {
            for _ in 0..YIELDS {
                procession::yield_now().await;
            }
        })
    };
    for process in (0..processes).map(spawn).collect::<Vec<_>>() {
        process.await.expect("it ends");
    }
    Instant::now() - start
}

/// A process sends messages to itself, and receives them. Returns one of the two times.
fn messages(which: fn((Duration, Duration)) -> Duration) -> Running {
    Box::pin(async move {
        let process = procession::start(|mut cx: Context<u64>| async move {
            let own = cx.address();
            let mut times = (Duration::ZERO, Duration::ZERO);
            for _ in 0..ROUNDS {
                let start = Instant::now();
                (0..MESSAGES).for_each(|number| own.send(number).expect("it lives"));
                let between = Instant::now();
                for _ in 0..MESSAGES {
                    cx.recv().await;
                }
                times.0 += between - start;
                times.1 += Instant::now() - between;
            }
            times
        });
        which(process.await.expect("it ends"))
    })
}

async fn pingpong(round_trips: u64) -> Duration {
    let ping = procession::start(move |mut cx: Context<u64>| async move {
        let home = cx.address();
        let pong = procession::start(|mut cx: Context<u64>| async move {
            while let Some(number) = cx.recv().await {
                home.send(number + 1).expect("it lives");
            }
        });
        let start = Instant::now();
        for number in 0..round_trips {
            pong.send(number).expect("it lives");
            cx.recv().await;
        }
        let elapsed = Instant::now() - start;
        pong.cancel();
        elapsed
    });
    ping.await.expect("it ends")
}

/// Starts processes without a handle, and yields until all have ended, again and again.
async fn detached(rounds: u64, processes: u64) -> Duration {
    static LEFT: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    for _ in 0..rounds {
        // Relaxed, as all uses: only the count matters.
        LEFT.store(processes, Relaxed);
        for _ in 0..processes {
            procession::spawn(async {
                LEFT.fetch_sub(1, Relaxed);
            })
            .detach();
        }
        while LEFT.load(Relaxed) > 0 {
            procession::yield_now().await;
        }
    }
    Instant::now() - start
}

async fn joined(rounds: u64, processes: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..rounds {
        let spawn = |number| procession::spawn(async move { number });
        for process in (0..processes).map(spawn).collect::<Vec<_>>() {
            process.await.expect("it ends");
        }
    }
    Instant::now() - start
}

/// Measures the time in nanoseconds in which a cache line moves between the processors of two
/// threads: half of a round trip of compare-and-swaps. Returns the shortest of several times, since
/// other programs may run at the same time.
pub(crate) fn line_transfer(round_trips: u64) -> f64 {
    (0..20).map(|_| line_transfer_once(round_trips)).fold(f64::INFINITY, f64::min)
}

fn line_transfer_once(round_trips: u64) -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    // Relaxed, as all uses here: nothing but the word itself is read.
    let swap = |word: &AtomicU64, from, to| {
        while word.compare_exchange(from, to, Relaxed, Relaxed).is_err() {
            procession_sync::hint::spin_loop();
        }
    };
    let theirs = Arc::clone(&word);
    let other = start_thread(move || (0..round_trips).for_each(|_| swap(&theirs, 1, 0)));
    let start = Instant::now();
    (0..round_trips).for_each(|_| swap(&word, 0, 1));
    let elapsed = Instant::now() - start;
    other.join().expect("it ends");
    nanoseconds(elapsed) / (2 * round_trips) as f64
}

/// Measures the medians in nanoseconds of the time that a thread is busy when it wakes another, and
/// of the time from then on until the other runs.
pub(crate) fn wake_up(times: u64) -> (f64, f64) {
    let began = Instant::now();
    let woken_at = Arc::new(AtomicU64::new(0));
    let now = move || nanoseconds(Instant::now() - began) as u64;
    let theirs = Arc::clone(&woken_at);
    let sleeper = start_thread(move || {
        for _ in 0..times {
            thread::park();
            theirs.store(now(), Relaxed);
        }
    });
    let (mut busy, mut late) = (Vec::new(), Vec::new());
    for _ in 0..times {
        // By then, the thread sleeps.
        procession_sim::scaling::compute(Duration::from_micros(200));
        woken_at.store(0, Relaxed);
        let before = now();
        sleeper.thread().unpark();
        let after = now();
        while woken_at.load(Relaxed) == 0 {
            procession_sync::hint::spin_loop();
        }
        busy.push(after - before);
        late.push(woken_at.load(Relaxed).saturating_sub(after));
    }
    sleeper.join().expect("it ends");
    let median = |mut all: Vec<u64>| {
        all.sort_unstable();
        all[all.len() / 2] as f64
    };
    (median(busy), median(late))
}

#[expect(clippy::disallowed_methods, reason = "these threads are what is measured")]
fn start_thread(body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(body)
}
