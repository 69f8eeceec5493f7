//! Measures how late a service answers while the same program computes, for each way to compute.
//!
//! A thread sends a request to a process every 2 ms, and the process works for 100 us on each. Four
//! computations run at all times: each takes 50 ms of processor time, and the next one begins when
//! it has ended. The first argument, if there is one, is the time for each way in milliseconds.
//!
//! The program prints a Markdown table: the median and the 99th percentile of the time between the
//! sending of a request and its end, in milliseconds, and the computations that ended per second.
#![expect(clippy::print_stdout, reason = "an example shows its output")]
#![expect(clippy::disallowed_methods, reason = "it measures real time, from a thread of its own")]

use std::future::Future;
use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use procession::pool::Pool;
use procession::process::Priority::{self, Batch, Normal};
use procession::{Context, Scheduler, SpawnOptions};
use procession_sync::Arc;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

const COMPUTATIONS: usize = 4;
const COMPUTATION: Duration = Duration::from_millis(50);
const REQUEST: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_millis(2);
/// The part of a computation between two calls of `checkpoint`.
const PIECE: Duration = Duration::from_micros(20);
/// The priority of the threads that only compute. A thread with 10 gets a tenth of the time of a
/// thread with 0, if both want the processor.
const NICE: i32 = 10;

/// What the computations and the requests share.
struct Load {
    /// The rounds of `work` in a microsecond.
    rounds: u64,
    ended: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn new(rounds: u64) -> Self {
        Self { rounds, ended: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    /// Finds out how fast this machine is, by the fastest of some runs.
    fn rounds() -> u64 {
        const ROUNDS: u64 = 2_000_000;
        let run = || {
            let began = Instant::now();
            work(ROUNDS);
            began.elapsed()
        };
        let fastest = (0..10).map(|_| run()).min().expect("there are ten");
        (ROUNDS / fastest.as_micros().max(1) as u64).max(1)
    }

    /// Takes this much processor time.
    fn compute(&self, time: Duration) {
        work(self.rounds * time.as_micros() as u64);
    }

    /// Returns `true` once nothing more is to be computed. Counts a computation that has ended.
    fn count(&self) -> bool {
        self.ended.fetch_add(1, Relaxed);
        self.is_over.load(Relaxed)
    }
}

fn work(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Starts the computations. What it returns keeps them going.
type Start = fn(&Scheduler, &Arc<Load>) -> Box<dyn Send>;

const WAYS: &[(&str, Start)] = &[
    ("nothing is computed", |_, _| Box::new(())),
    ("in a process, as it is", |on, load| in_processes(on, Normal, load, as_it_is)),
    ("in a process, `checkpoint` every 20 us", |on, load| {
        in_processes(on, Normal, load, in_pieces)
    }),
    ("in a `Batch` process, as it is", |on, load| in_processes(on, Batch, load, as_it_is)),
    ("in a `Batch` process, `checkpoint` every 20 us", |on, load| {
        in_processes(on, Batch, load, in_pieces)
    }),
    ("in a process, inside `blocking`", |on, load| in_processes(on, Normal, load, in_section)),
    ("`spawn_blocking`", |on, load| in_processes(on, Normal, load, on_helper)),
    ("a `Pool` with a thread for each CPU", |scheduler, load| in_pool(scheduler, load, 1)),
    ("a `Pool` with a thread for two CPUs", |scheduler, load| in_pool(scheduler, load, 2)),
    ("a second scheduler", |_, load| in_second(load, || ())),
    ("a second scheduler with nice threads", |_, load| {
        in_second(load, || _ = rustix::process::nice(NICE).expect("a thread may be nice"))
    }),
];

/// Starts processes that compute with `once` again and again.
fn in_processes<F>(
    scheduler: &Scheduler,
    priority: Priority,
    load: &Arc<Load>,
    once: fn(Arc<Load>) -> F,
) -> Box<dyn Send>
where
    F: Future<Output = ()> + Send + 'static,
{
    for _ in 0..COMPUTATIONS {
        let load = Arc::clone(load);
        let options = SpawnOptions::new().on(scheduler).priority(priority);
        options.spawn(async move {
            while !load.count() {
                once(Arc::clone(&load)).await;
            }
        });
    }
    Box::new(())
}

async fn as_it_is(load: Arc<Load>) {
    load.compute(COMPUTATION);
    procession::yield_now().await;
}

async fn in_pieces(load: Arc<Load>) {
    for _ in 0..COMPUTATION.as_micros() / PIECE.as_micros() {
        load.compute(PIECE);
        procession::checkpoint().await;
    }
}

async fn in_section(load: Arc<Load>) {
    procession::blocking(|| load.compute(COMPUTATION));
    procession::yield_now().await;
}

async fn on_helper(load: Arc<Load>) {
    let job = procession::spawn_blocking(move || load.compute(COMPUTATION));
    job.await.expect("it does not panic");
}

/// Starts processes that submit jobs to a pool with a thread for this many CPUs.
fn in_pool(scheduler: &Scheduler, load: &Arc<Load>, cpus: usize) -> Box<dyn Send> {
    let available = std::thread::available_parallelism().map_or(1, Into::into);
    let builder = Pool::builder().capacity(available.div_ceil(cpus));
    let pool = Arc::new(builder.build().expect("the system has threads"));
    for _ in 0..COMPUTATIONS {
        let (load, pool) = (Arc::clone(load), Arc::clone(&pool));
        scheduler.spawn(async move {
            while !load.count() {
                let job = Arc::clone(&load);
                let place = pool.reserve().await.expect("it is open");
                let job = place.submit(move || job.compute(COMPUTATION)).expect("it is open");
                job.await.expect("it does not panic");
            }
        });
    }
    Box::new(pool)
}

/// Starts processes of a separate scheduler. `hook` runs first on its threads.
fn in_second(load: &Arc<Load>, hook: fn()) -> Box<dyn Send> {
    let scheduler = Scheduler::builder().on_thread_start(hook).build();
    let scheduler = scheduler.expect("the system has threads");
    let started = in_processes(&scheduler, Normal, load, as_it_is);
    Box::new((scheduler, started))
}

/// Sends requests for this time. Returns how long each took, in order of size.
fn request(scheduler: &Scheduler, load: &Arc<Load>, time: Duration) -> Vec<Duration> {
    let (answer, answers) = mpsc::channel();
    let working = Arc::clone(load);
    let child = scheduler.start(async move |mut cx: Context<Instant>| {
        while let Some(sent) = cx.recv().await {
            working.compute(REQUEST);
            // Ignored: the measurement is over.
            _ = answer.send(sent.elapsed());
        }
    });
    let began = Instant::now();
    while began.elapsed() < time {
        child.send(Instant::now()).expect("it runs");
        std::thread::sleep(PAUSE);
    }
    drop(child);
    let mut times: Vec<_> = answers.try_iter().collect();
    times.sort_unstable();
    times
}

fn main() {
    let argument = std::env::args().nth(1);
    let time = argument.map_or(3000, |time| time.parse().expect("a number of milliseconds"));
    let time = Duration::from_millis(time);
    let rounds = Load::rounds();
    println!("| computed | median | 99 of 100 | computations/s |");
    println!("|---|---:|---:|---:|");
    for &(name, start) in WAYS {
        let load = Arc::new(Load::new(rounds));
        let scheduler = Scheduler::builder().build().expect("the system has threads");
        let started = start(&scheduler, &load);
        let times = request(&scheduler, &load, time);
        let ended = load.ended.load(Relaxed).saturating_sub(COMPUTATIONS as u64);
        load.is_over.store(true, Relaxed);
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
        let rate = ended as f64 / time.as_secs_f64();
        println!("| {name} | {:.2} | {:.2} | {rate:.1} |", at(50), at(99));
        drop(scheduler);
        drop(started);
    }
}
