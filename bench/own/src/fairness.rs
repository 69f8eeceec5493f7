//! The workloads of timing guarantees: ticks beside long steps, equal shares, and an idle runtime
//! after a load.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::meter::{block, compute, now, wake_ups_of_others};
use super::network;
use super::pairs;
use super::rt::{self, *};
use super::workload::{
    Failed, IDLE_AFTER_BYTES, IDLE_AFTER_KEEP_ALIVE, IDLE_AFTER_PAUSE, IDLE_AFTER_PROCESSES,
    IDLE_AFTER_REST_US, IDLE_AFTER_SLEEP_US, IDLE_AFTER_SLEEPERS, IDLE_AFTER_STEP_US,
    IDLE_AFTER_STEPS, IDLE_AFTER_WATCHED_US, Outcome, SHARES_AMONG, SHARES_TIME_US, Scale,
    TICK_PERIOD, TICK_TIME_US, most_and_each, most_to_least, tick_cells,
};

pub(super) async fn tick_beside_steps(scale: Scale) -> Outcome {
    let time = Duration::from_micros(scale.of(TICK_TIME_US));
    let mut figures = Vec::new();
    for (computes, step, processes) in tick_cells(scale) {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |stop: Arc<AtomicBool>| async move {
            // Relaxed, like all uses of these flags: they publish nothing, and may be seen a little
            // later.
            while !stop.load(Relaxed) {
                if computes {
                    compute(step)
                } else {
                    block(step)
                }
                rt::yield_now().await;
            }
        };
        let hogs: Vec<_> = (0..processes).map(|_| rt::spawn(hog(Arc::clone(&stop)))).collect();
        let ticks = rt::spawn(async move {
            let (start, mut latest) = (now(), Duration::ZERO);
            while start.elapsed() < time {
                let before = now();
                rt::sleep(TICK_PERIOD).await;
                latest = latest.max(before.elapsed().saturating_sub(TICK_PERIOD));
            }
            latest
        });
        let latest = ticks.await?;
        stop.store(true, Relaxed);
        for hog in hogs {
            hog.await?;
        }
        figures.push(latest.as_secs_f64() * 1e3);
    }
    Ok(figures)
}

pub(super) fn shares(scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    for (workers, among) in SHARES_AMONG {
        let runtime = rt::runtime(workers)?;
        figures.extend(rt::inside(&runtime, shares_among(among, scale))?);
    }
    Ok(figures)
}

async fn shares_among(among: u64, scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    for takes_turns in [pairs::in_messages, pairs::in_channels, in_yields] {
        let stop = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..among).map(|_| takes_turns(Arc::clone(&stop))).collect();
        rt::sleep(Duration::from_micros(scale.of(SHARES_TIME_US))).await;
        stop.store(true, Relaxed);
        let mut turns = Vec::new();
        for one in all {
            turns.push(one.await??);
        }
        figures.push(most_to_least(&turns));
    }
    Ok(figures)
}

/// Starts a process that yields until it is stopped. It returns the number of yields.
fn in_yields(stop: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failed>> {
    rt::spawn(async move {
        let mut turns = 0;
        while !stop.load(Relaxed) {
            rt::yield_now().await;
            turns += 1;
        }
        Ok(turns)
    })
}

/// The loads of `idle_after`.
#[derive(Clone, Copy)]
enum Load {
    Nothing,
    Blocks,
    Computes,
    Declared,
    Sockets,
    Timers,
}

pub(super) fn idle_after(scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    let watched = Duration::from_micros(scale.of(IDLE_AFTER_WATCHED_US));
    for load in
        [Load::Nothing, Load::Blocks, Load::Computes, Load::Declared, Load::Sockets, Load::Timers]
    {
        let runtime = rt::runtime_with_keep_alive(rt::width(), IDLE_AFTER_KEEP_ALIVE)?;
        // The connections stay open, and their servers wait for them.
        let process = runtime.spawn(loaded(load, scale));
        let connections = rt::join(&runtime, process)??;
        block(Duration::from_micros(scale.of(IDLE_AFTER_REST_US)));
        figures.push(wake_ups_of_others(watched)? as f64 / watched.as_secs_f64());
        drop(connections);
    }
    Ok(most_and_each(figures))
}

async fn loaded(load: Load, scale: Scale) -> Result<Vec<TcpStream>, Failed> {
    let mut connections = Vec::new();
    match load {
        Load::Nothing => {}
        Load::Blocks | Load::Computes | Load::Declared => {
            let step = Duration::from_micros(scale.of(IDLE_AFTER_STEP_US));
            let steps = |_| async move {
                for _ in 0..IDLE_AFTER_STEPS {
                    match load {
                        Load::Declared => rt::blocking(|| block(step)),
                        Load::Computes => compute(step),
                        _ => block(step),
                    }
                    rt::sleep(IDLE_AFTER_PAUSE).await;
                }
            };
            ended((0..IDLE_AFTER_PROCESSES).map(steps)).await?;
        }
        Load::Timers => {
            let sleep = |number| scale.of(IDLE_AFTER_SLEEP_US) * number / IDLE_AFTER_SLEEPERS;
            let sleeps =
                (0..IDLE_AFTER_SLEEPERS).map(|number| Duration::from_micros(sleep(number)));
            ended(sleeps.map(rt::sleep)).await?;
        }
        Load::Sockets => {
            for _ in 0..IDLE_AFTER_PROCESSES {
                let connection = connected(scale).await;
                connections.push(
                    connection
                        .map_err(|cause| Failed::System { act: "talk over a socket", cause })?,
                );
            }
        }
    }
    Ok(connections)
}

/// Runs each future as a process, and waits until all have ended.
async fn ended(
    all: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>,
) -> Result<(), Failed> {
    let all: Vec<_> = all.map(rt::spawn).collect();
    for one in all {
        one.await?;
    }
    Ok(())
}

/// Opens a connection. Its server has sent bytes back, and waits for more.
async fn connected(scale: Scale) -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    rt::detach(rt::spawn(network::send_back(server)));
    let (stream, mut byte) = (&mut client, [1]);
    for _ in 0..scale.of(IDLE_AFTER_BYTES) {
        stream.write_all(&byte).await?;
        stream.read_exact(&mut byte).await?;
    }
    Ok(client)
}
