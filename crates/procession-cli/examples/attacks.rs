//! Measures how long other work waits while processes run long steps, and ends with exit code 1 if
//! a wait exceeds its bound.
//!
//! Up to four processes repeat a step of a fixed duration and yield, on two workers. At the same
//! time, one of four activities is timed for a second:
//!
//! | activity | what is timed |
//! |---|---|
//! | tick | how late a sleep of 1 ms ends |
//! | echo | 8 bytes over TCP from a plain thread to a process and back |
//! | message | a message to another process and its answer |
//! | spawn | a process that is spawned and awaited |
//!
//! The program prints a Markdown table. Each cell holds the median, the 99th percentile and the
//! longest time, in milliseconds. The argument, if there is one, is the time for each cell in
//! milliseconds.
//!
//! A cell fails if its median exceeds `2 * (2 t + 1 ms)`, or its longest time
//! `10 * (2 t + 1 ms) + 20 ms`, where t is the duration of the steps. The scheduler promises
//! `2 t + 1 ms` for each wait of a woken process. The rest is for round trips, which wait several
//! times, and for other programs on the machine.
//!
//! A second table has attacks of other kinds, on one worker. Each fails if its median exceeds its
//! bound.
//!
//! | attack | what is timed |
//! |---|---|
//! | section | how late a timer of a worker in a blocking section is, while a process yields |
//! | rescue | how long a process waits behind a step that blocks, after 20 idle ms |
//! | stall | how long a step has blocked when the watchdog reports it |
//! | stall, busy | the same while a thread for each processor computes |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows its output")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use procession::net::TcpListener;
use procession::{Context, JoinHandle, Scheduler};
use procession_sync::Arc;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

const WORKERS: usize = 2;
const HOGS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);
/// Number of round trips between two pauses, so that a cell has some thousand times and not
/// millions.
const BURST: u32 = 10;
/// A lost wake-up is a failure, not a program that hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The work of a step.
#[derive(Clone, Copy)]
enum Steps {
    Block(Duration),
    Compute(Duration),
}

impl Steps {
    fn duration(self) -> Duration {
        match self {
            Self::Block(duration) | Self::Compute(duration) => duration,
        }
    }

    fn run(self) {
        match self {
            Self::Block(duration) => block(duration),
            Self::Compute(duration) => {
                let start = now();
                while start.elapsed() < duration {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

const STEPS: [(&str, Steps); 4] = [
    ("block for 9 ms", Steps::Block(Duration::from_millis(9))),
    ("compute for 9 ms", Steps::Compute(Duration::from_millis(9))),
    ("compute for 1 ms", Steps::Compute(Duration::from_millis(1))),
    ("compute for 0.1 ms", Steps::Compute(Duration::from_micros(100))),
];

type Times = Result<Vec<Duration>, Box<dyn Error>>;

/// An activity that is timed, for the given duration.
type Activity = fn(&Scheduler, Duration) -> Times;

const ACTIVITIES: [(&str, Activity); 4] =
    [("tick", tick), ("echo", echo), ("message", message), ("spawn", spawn)];

/// An attack of another kind, for the given duration.
type Attack = fn(Duration) -> Times;

const OTHERS: [(&str, Attack, Duration); 4] = [
    ("section", section, Duration::from_millis(2)),
    ("rescue", rescue, Duration::from_millis(16)),
    ("stall", |time| stalls(time, 0), Duration::from_millis(14)),
    ("stall, busy", |time| stalls(time, 1), Duration::from_millis(25)),
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let time =
        std::env::args().nth(1).map_or(Ok(1000), |text| text.parse().map(|ms: u64| ms.max(1)))?;
    let time = Duration::from_millis(time);
    let names = ACTIVITIES.map(|(name, _)| name).join(" | ");
    println!(
        "| steps | hogs | {names} | bound |\n|---|---:|{}---:|",
        "---:|".repeat(ACTIVITIES.len())
    );
    let beside_none = [("none", Steps::Block(Duration::ZERO), 0)];
    let beside_hogs =
        STEPS.iter().flat_map(|(name, steps)| (1..=HOGS).map(|hogs| (*name, *steps, hogs)));
    let mut late = Vec::new();
    for (name, steps, hogs) in beside_none.into_iter().chain(beside_hogs) {
        let wait = 2 * steps.duration() + Duration::from_millis(1);
        let bound = 10 * wait + Duration::from_millis(20);
        let mut cells = Vec::new();
        for (activity, measure) in ACTIVITIES {
            let [median, rare, longest] =
                spread(beside(steps, hogs, |scheduler| measure(scheduler, time))?)?;
            for (what, found, bound) in [("median", median, 2 * wait), ("longest", longest, bound)]
            {
                if found > bound {
                    late.push(format!(
                        "{activity} beside {hogs} that {name}: {what} {found:.1?}, the bound is {bound:?}"
                    ));
                }
            }
            cells.push(shown([median, rare, longest]));
        }
        println!("| {name} | {hogs} | {} | {} |", cells.join(" | "), bound.as_millis());
    }
    println!("\n| attack | time | bound of the median |\n|---|---:|---:|");
    for (name, measure, bound) in OTHERS {
        let times = spread(measure(time)?)?;
        if times[0] > bound {
            late.push(format!("{name}: median {:.1?}, the bound is {bound:?}", times[0]));
        }
        println!("| {name} | {} | {} |", shown(times), bound.as_millis());
    }
    for cell in &late {
        eprintln!("attacks: too late: {cell}");
    }
    Ok(if late.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the median, the 99th percentile and the longest.
fn spread(mut times: Vec<Duration>) -> Result<[Duration; 3], Box<dyn Error>> {
    times.sort_unstable();
    let longest = times.last().copied().ok_or("nothing was timed")?;
    Ok([times[times.len() / 2], times[times.len() * 99 / 100], longest])
}

fn shown(times: [Duration; 3]) -> String {
    times.map(|time| format!("{:.2}", time.as_secs_f64() * 1e3)).join(" / ")
}

/// Runs `measure` on a scheduler on which `hogs` processes repeat the given steps.
fn beside(steps: Steps, hogs: u32, measure: impl FnOnce(&Scheduler) -> Times) -> Times {
    let scheduler = Scheduler::builder().name("attacks").worker_threads(WORKERS).build()?;
    let stop = Arc::new(AtomicBool::new(false));
    let hog = |stop: Arc<AtomicBool>| async move {
        // Relaxed: the flag publishes nothing, and may be seen a little later.
        while !stop.load(Relaxed) {
            steps.run();
            procession::yield_now().await;
        }
    };
    let hogs: Vec<_> = (0..hogs).map(|_| scheduler.spawn(hog(Arc::clone(&stop)))).collect();
    let times = measure(&scheduler);
    stop.store(true, Relaxed);
    for hog in hogs {
        hog.join()?;
    }
    times
}

fn tick(scheduler: &Scheduler, time: Duration) -> Times {
    let ticks = scheduler.spawn(async move {
        let (start, mut times) = (now(), Vec::new());
        while start.elapsed() < time {
            let before = now();
            procession::sleep(PAUSE).await;
            times.push(before.elapsed().saturating_sub(PAUSE));
        }
        times
    });
    joined(ticks, time)
}

fn echo(scheduler: &Scheduler, time: Duration) -> Times {
    let (tells, told) = mpsc::sync_channel::<SocketAddr>(1);
    let server = scheduler.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        tells.send(listener.local_addr()?).expect("the caller waits for the address");
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; 8];
        while let count @ 1.. = stream.read(&mut bytes).await? {
            stream.write_all(&bytes[..count]).await?;
        }
        Ok::<_, std::io::Error>(Vec::new())
    });
    let mut client = Client::connect(told.recv_timeout(TIMEOUT)?)?;
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(TIMEOUT))?;
    let (start, mut times) = (now(), Vec::new());
    while start.elapsed() < time {
        let before = now();
        let mut bytes = [1; 8];
        client.write_all(&bytes)?;
        client.read_exact(&mut bytes)?;
        times.push(before.elapsed());
        block(PAUSE);
    }
    drop(client);
    let no_times = server.join_timeout(TIMEOUT).map_err(|_| "the server does not end")???;
    Ok([times, no_times].concat())
}

fn message(scheduler: &Scheduler, time: Duration) -> Times {
    let asks = scheduler.start(move |mut cx: Context<()>| async move {
        let home = cx.address();
        let answers = procession::start(move |mut cx: Context<()>| async move {
            while cx.recv().await.is_some() {
                home.send(()).expect("it waits for the answer");
            }
        });
        let (start, mut times) = (now(), Vec::new());
        while start.elapsed() < time {
            for _ in 0..BURST {
                let before = now();
                answers.send(()).expect("it ends after this process");
                cx.recv().await.expect("nothing cancels this process");
                times.push(before.elapsed());
            }
            procession::sleep(PAUSE).await;
        }
        answers.cancel();
        times
    });
    joined(asks.into_parts().1, time)
}

fn spawn(scheduler: &Scheduler, time: Duration) -> Times {
    let spawns = scheduler.spawn(async move {
        let (start, mut times) = (now(), Vec::new());
        while start.elapsed() < time {
            for _ in 0..BURST {
                let before = now();
                procession::spawn(async {}).await.expect("it does not panic");
                times.push(before.elapsed());
            }
            procession::sleep(PAUSE).await;
        }
        times
    });
    joined(spawns, time)
}

fn one_worker() -> Result<Scheduler, Box<dyn Error>> {
    Ok(Scheduler::builder().name("attacks").worker_threads(1).build()?)
}

fn section(time: Duration) -> Times {
    const DELAY: Duration = Duration::from_millis(5);
    let (scheduler, start, mut times) = (one_worker()?, now(), Vec::new());
    while start.elapsed() < time {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let blocks = scheduler.spawn(async move {
            let (wakes, woken) = mpsc::channel();
            drop(procession::spawn(async move {
                let due = now() + DELAY;
                procession::sleep(DELAY).await;
                // Ignored: the receiver has given up.
                let _ = wakes.send(due.elapsed());
            }));
            // Lets the process set its timer on this worker.
            procession::yield_now().await;
            drop(procession::spawn(async move {
                // Relaxed: the flag publishes nothing, and may be seen a little later.
                while !stopped.load(Relaxed) {
                    procession::yield_now().await;
                }
            }));
            procession::blocking(|| woken.recv_timeout(TIMEOUT))
        });
        let late = blocks.join();
        stop.store(true, Relaxed);
        times.push(late??);
        scheduler.run_until_idle();
    }
    Ok(times)
}

fn rescue(time: Duration) -> Times {
    let (scheduler, start, mut times) = (one_worker()?, now(), Vec::new());
    while start.elapsed() < time {
        // Longer than the time between two looks of the watchdog at an idle scheduler, and never in
        // step with them.
        block(Duration::from_micros(20_000 + 977 * (times.len() as u64 % 11)));
        let (tells, told) = mpsc::channel();
        let blocks = scheduler.spawn(async move {
            let start = now();
            drop(procession::spawn(async move { tells.send(()) }));
            told.recv_timeout(TIMEOUT).map(|()| start.elapsed())
        });
        times.push(blocks.join()??);
    }
    Ok(times)
}

/// Measures stalls with `computing` computing threads for each processor.
fn stalls(time: Duration, computing: usize) -> Times {
    let (tells, told) = mpsc::channel();
    let builder = Scheduler::builder().name("attacks").worker_threads(1);
    let scheduler = builder
        .on_stall(move |_| {
            // Ignored: the measurement is over.
            let _: Result<(), _> = tells.send(now());
        })
        .build()?;
    let stop = AtomicBool::new(false);
    let threads = computing * std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // Relaxed: the flag publishes nothing, and may be seen a little later.
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let (start, mut times) = (now(), Vec::new());
        let measured = loop {
            let blocks = scheduler.spawn(async {
                let start = now();
                block(Duration::from_millis(60));
                start
            });
            match blocks.join() {
                Ok(began) => times.extend(told.try_iter().map(|found| found.duration_since(began))),
                Err(error) => break Err(error.into()),
            }
            if start.elapsed() >= time {
                break Ok(times);
            }
        };
        stop.store(true, Relaxed);
        measured
    })
}

fn joined(process: JoinHandle<Vec<Duration>>, time: Duration) -> Times {
    Ok(process
        .join_timeout(time + TIMEOUT)
        .map_err(|_| "a process waits for longer than 30 s")??)
}

#[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a step that blocks its thread")]
fn block(duration: Duration) {
    std::thread::sleep(duration);
}
