//! Measures how long others wait beside processes with long steps, and ends with exit code 1 if that is too long.
//!
//! Up to four processes repeat a step of a fixed duration and yield, on two workers. Beside them, one of four
//! activities is timed for a second:
//!
//! | activity | what is timed |
//! |---|---|
//! | tick | how late a sleep of 1 ms ends |
//! | echo | 8 bytes over TCP from a plain thread to a process and back |
//! | message | a message to another process and its answer |
//! | spawn | a process that is spawned and awaited |
//!
//! The program prints a Markdown table. Each cell holds the median, the 99th percentile and the longest time,
//! in milliseconds. The argument, if there is one, is the time for each cell in milliseconds.
//!
//! A cell fails if its longest time exceeds `10 * (2 t + 1 ms) + 20 ms`, where t is the duration of the steps.
//! The scheduler promises `2 t + 1 ms` for each wait of a woken process. The rest is for round trips, which
//! wait several times, and for other programs on the machine.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows its output")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use procession::net::TcpListener;
use procession::{Context, Handle, Scheduler};
use procession_sync::Arc;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

const WORKERS: usize = 2;
const HOGS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);
/// Round trips between two pauses, so that a cell has some thousand times and not millions.
const BURST: u32 = 10;
/// A lost wake-up is a failure, not a program that hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a step does.
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

const STEPS: [(&str, Steps); 3] = [
    ("block for 9 ms", Steps::Block(Duration::from_millis(9))),
    ("compute for 9 ms", Steps::Compute(Duration::from_millis(9))),
    ("compute for 1 ms", Steps::Compute(Duration::from_millis(1))),
];

type Times = Result<Vec<Duration>, Box<dyn Error>>;

/// What is timed, for so long.
type Activity = fn(&Scheduler, Duration) -> Times;

const ACTIVITIES: [(&str, Activity); 4] = [("tick", tick), ("echo", echo), ("message", message), ("spawn", spawn)];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let time = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse().map(|ms: u64| ms.max(1)))?;
    let time = Duration::from_millis(time);
    let names = ACTIVITIES.map(|(name, _)| name).join(" | ");
    println!("| steps | hogs | {names} | bound |\n|---|---:|{}---:|", "---:|".repeat(ACTIVITIES.len()));
    let beside_none = [("none", Steps::Block(Duration::ZERO), 0)];
    let beside_hogs = STEPS.iter().flat_map(|(name, steps)| (1..=HOGS).map(|hogs| (*name, *steps, hogs)));
    let mut late = Vec::new();
    for (name, steps, hogs) in beside_none.into_iter().chain(beside_hogs) {
        let bound = 10 * (2 * steps.duration() + Duration::from_millis(1)) + Duration::from_millis(20);
        let mut cells = Vec::new();
        for (activity, measure) in ACTIVITIES {
            let mut times = beside(steps, hogs, |scheduler| measure(scheduler, time))?;
            times.sort_unstable();
            let longest = times.last().copied().ok_or("nothing was timed")?;
            if longest > bound {
                late.push(format!("{activity} beside {hogs} that {name}: {longest:.1?}, the bound is {bound:?}"));
            }
            let shown = [times[times.len() / 2], times[times.len() * 99 / 100], longest];
            cells.push(shown.map(|time| format!("{:.2}", time.as_secs_f64() * 1e3)).join(" / "));
        }
        println!("| {name} | {hogs} | {} | {} |", cells.join(" | "), bound.as_millis());
    }
    for cell in &late {
        eprintln!("attacks: too late: {cell}");
    }
    Ok(if late.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `measure` on a scheduler on which so many processes repeat such steps.
fn beside(steps: Steps, hogs: u32, measure: impl FnOnce(&Scheduler) -> Times) -> Times {
    let scheduler = Scheduler::builder().name("attacks").width(WORKERS).build()?;
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
            while cx.receive().await.is_some() {
                home.send(()).expect("it waits for the answer");
            }
        });
        let (start, mut times) = (now(), Vec::new());
        while start.elapsed() < time {
            for _ in 0..BURST {
                let before = now();
                answers.send(()).expect("it ends after this process");
                cx.receive().await.expect("nothing cancels this process");
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

fn joined(process: Handle<Vec<Duration>>, time: Duration) -> Times {
    Ok(process.join_timeout(time + TIMEOUT).map_err(|_| "a process waits for longer than 30 s")??)
}

#[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a step that blocks its thread")]
fn block(duration: Duration) {
    std::thread::sleep(duration);
}
