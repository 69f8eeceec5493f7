//! The laws of priorities: the bounds on overtaking in both directions, changes while processes are
//! queued, and the limit for batch processes. `.ci/mutants` plants the defects that break them.
//! Each workload has a test of its own, so that it meets its defects in every run. The bounds count
//! from the moment at which all processes are ready, so they hold only where no worker loses its
//! turn between the choice of a process and its step.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use procession::process::Priority;
use procession::{Scheduler, SpawnOptions, yield_now};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicUsize};

use super::{check, number};

const MICROSECOND: Duration = Duration::from_micros(1);

/// Longer than anything here takes, although the clock may leap.
const LONG: Duration = Duration::from_secs(1_000_000);

/// The greatest number of turns of others that a process of each priority waits for while it is
/// ready, if it is alone at its level: one normal and one batch process; 8 high processes and one
/// batch process; 63 others.
fn bound(priority: Priority) -> usize {
    match priority {
        Priority::High => 2,
        Priority::Normal => 9,
        Priority::Batch => 63,
    }
}

/// On one worker, some processes of each priority are always ready.
async fn overtaking(sim: Sim) {
    sim.heal();
    let built = Scheduler::builder().worker_threads(1).max_threads(1).build();
    let Ok(scheduler) = built else { return };
    let turns = Arc::new(Mutex::new(Vec::new()));
    let over = Arc::new(AtomicBool::new(false));
    let mut all = Vec::new();
    for priority in Priority::ALL {
        for _ in 0..sim.choose(1..4) {
            let (own, turns, over) = (sim.clone(), Arc::clone(&turns), Arc::clone(&over));
            let options = SpawnOptions::new().on(&scheduler).priority(priority);
            all.push(options.spawn(async move {
                // Until the end, so that all are ready all the time.
                while !over.load(Relaxed) {
                    turns.lock().push(priority);
                    if turns.lock().len() >= 700 {
                        over.store(true, Relaxed);
                    }
                    if own.choose(0..8) == 0 {
                        own.compute(20 * MICROSECOND);
                    }
                    yield_now().await;
                }
            }));
        }
    }
    // From here on, all are ready all the time.
    let queued = turns.lock().len();
    for process in all {
        sim.always("each process ends", process.await.is_ok());
    }
    let turns = turns.lock().clone();
    for priority in Priority::ALL {
        let waits = turns[queued..].split(|&turn| turn == priority).map(<[_]>::len).max();
        let holds = waits.unwrap_or_default() <= bound(priority);
        sim.always("no priority is overtaken beyond its bound", holds);
    }
    scheduler.shutdown(LONG).await;
}

/// A step makes 1000 or `SIM_HIGH` high processes ready, and one of each other priority among them.
async fn crowd(sim: Sim) {
    let high = number("SIM_HIGH").unwrap_or(1000);
    sim.heal();
    let built = Scheduler::builder().worker_threads(1).max_threads(1).build();
    let Ok(scheduler) = built else { return };
    let turns = Arc::new(Mutex::new(Vec::new()));
    let others = [Priority::Normal, Priority::Batch].map(|of| (sim.choose(0..high), of));
    let own = Arc::clone(&turns);
    let makes = scheduler.spawn(async move {
        let start = |priority| {
            let turns = Arc::clone(&own);
            let process = async move { turns.lock().push(priority) };
            drop(SpawnOptions::new().priority(priority).spawn(process));
        };
        for number in 0..high {
            others.iter().filter(|&&(at, _)| at == number).for_each(|&(_, of)| start(of));
            start(Priority::High);
        }
    });
    sim.always("the step ends", makes.await.is_ok());
    sim.always("the scheduler becomes empty", scheduler.wait_until_empty().await.is_ok());
    let turns = turns.lock().clone();
    sim.always("each process has its turn", turns.len() as u64 == high + 2);
    for (_, of) in others {
        let at = turns.iter().position(|&turn| turn == of).unwrap_or(usize::MAX);
        sim.always("no priority is overtaken beyond its bound", at <= bound(of));
    }
    scheduler.shutdown(LONG).await;
}

/// Processes change the priorities of others, which yield, sleep and wait for a lock meanwhile.
async fn changes(sim: Sim) {
    let any = |sim: &Sim| Priority::ALL[sim.choose(0..3) as usize];
    let mut all = Vec::new();
    let lock = Arc::new(procession::sync::Mutex::new(()));
    for _ in 0..5 {
        let (own, lock) = (sim.clone(), Arc::clone(&lock));
        all.push(SpawnOptions::new().priority(any(&sim)).spawn(async move {
            for _ in 0..20 {
                match own.choose(0..5) {
                    0 => procession::sleep(30 * MICROSECOND).await,
                    4 => {
                        let _guard = lock.lock().await;
                        yield_now().await;
                    }
                    1 => own.compute(10 * MICROSECOND),
                    _ => yield_now().await,
                }
            }
        }));
    }
    let pids: Vec<_> = all.iter().map(procession::JoinHandle::pid).collect();
    let mut changers = Vec::new();
    for _ in 0..2 {
        let (own, pids) = (sim.clone(), pids.clone());
        changers.push(SpawnOptions::new().priority(any(&sim)).spawn(async move {
            for _ in 0..40 {
                let pid = pids[own.choose(0..pids.len() as u64) as usize];
                let _ = procession::process::set_priority(pid, any(&own));
                yield_now().await;
            }
        }));
    }
    for process in all.into_iter().chain(changers) {
        let ended = process.await;
        sim.always("a process is never lost when its priority changes", ended == Ok(()));
    }
}

/// Batch processes compute, block and come back beside others. The width may become smaller.
async fn limit(sim: Sim) {
    let width = sim.choose(1..4) as usize;
    let most = 1 + sim.choose(0..width as u64) as usize;
    let builder = Scheduler::builder().worker_threads(width).max_threads(width + 2);
    let by_default = sim.choose(0..2) == 0;
    let builder = if by_default { builder } else { builder.max_batch(most) };
    // The system may refuse the thread.
    let Ok(scheduler) = builder.build() else { return };
    let most_of = move |width: usize| if by_default { (width - 1).max(1) } else { most.min(width) };
    let most = Arc::new(AtomicUsize::new(most_of(width)));
    let mut all = Vec::new();
    for number in 0..5 {
        let (own, on, most) = (sim.clone(), scheduler.clone(), Arc::clone(&most));
        let options = SpawnOptions::new().on(&scheduler).priority(Priority::Batch);
        // Some stay on one worker.
        let options = if number < 2 { options.affinity(number % width as u32) } else { options };
        all.push(options.spawn(async move {
            for _ in 0..12 {
                match own.choose(0..4) {
                    0 => procession::blocking(|| own.block(300 * MICROSECOND)),
                    1 => procession::sleep(50 * MICROSECOND).await,
                    _ => own.compute(100 * MICROSECOND),
                }
                // The limit only becomes smaller, and holds from then on.
                let most = most.load(Relaxed);
                let workers = on.snapshot().levels.batch_workers as usize;
                own.always("batch processes have no more permits than they may", workers <= most);
                yield_now().await;
            }
        }));
    }
    let (own, on) = (sim.clone(), scheduler.clone());
    all.push(scheduler.spawn(async move {
        for turn in 0..20 {
            if turn == 10 && width > 1 {
                on.set_worker_threads(width - 1).expect("it is in range");
                most.store(most_of(width - 1), Relaxed);
            }
            own.compute(30 * MICROSECOND);
            procession::sleep(40 * MICROSECOND).await;
        }
    }));
    for process in all {
        sim.always("a process ends beside others", process.await == Ok(()));
    }
    scheduler.shutdown(LONG).await;
}

/// Runs a workload by the portfolio of strategies.
fn keeps_the_laws<P: Future<Output = ()> + 'static>(workload: fn(Sim) -> P) {
    match check(1).try_run(workload) {
        #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
        Ok(outcome) => println!("Portfolio: {} seeds passed", outcome.seeds),
        Err(report) => panic!("\nPortfolio: {report}"),
    }
}

#[test]
fn no_priority_is_overtaken_beyond_its_bound() {
    keeps_the_laws(overtaking);
}

#[test]
fn many_high_processes_overtake_within_the_bounds() {
    keeps_the_laws(crowd);
}

#[test]
fn a_change_of_priority_loses_no_process() {
    keeps_the_laws(changes);
}

#[test]
fn batch_processes_keep_their_limit() {
    keeps_the_laws(limit);
}
