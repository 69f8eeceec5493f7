//! Workloads for protocols that fail only if a thread loses its turn in the middle of a protocol.
//! They run in addition to the workloads of `mutants`.

mod pairs;
mod pools;
mod processes;
mod timers;

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::time::Instant;
use procession::{Address, Context, Scheduler, SpawnOptions};
use procession_sim::Sim;
use procession_sync::host::atomic::AtomicU32;
use procession_sync::host::atomic::Ordering::Relaxed;

use crate::mutants;

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// The virtual time that a shutdown has, in seconds.
const ENDLESS: u64 = 1 << 30;

/// Passes points at which the stores of the calling thread may still be in its buffer.
fn linger() {
    let word = procession_sync::atomic::AtomicU32::new(0);
    for _ in 0..4 {
        let _ = word.load(Relaxed);
    }
}

/// Builds a separate scheduler for a workload that needs this number of workers. Returns `None` if
/// the system refuses a thread.
fn scheduler(workers: usize, threads: usize) -> Option<Scheduler> {
    let builder = Scheduler::builder().worker_threads(workers).max_threads(threads);
    builder.max_processes(1000).max_timers(1000).build().ok()
}

/// Returns the options of a process that is bound to a worker of the scheduler.
fn bound(scheduler: &Scheduler, worker: u32) -> SpawnOptions {
    SpawnOptions::new().on(scheduler).affinity(worker)
}

/// A step starts others and then blocks without a word, while the other worker is about to park.
/// With a third worker, the nap of one worker would end what went wrong.
async fn hand_overs(sim: &Sim) {
    let Some(other) = scheduler(2, 2) else { return };
    let own = sim.clone();
    let parent = other.spawn(async move {
        for _ in 0..16 {
            procession::yield_now().await;
            // The other worker wakes for the first child. Whether it takes the remaining children
            // is its own matter from then on.
            let children: Vec<_> =
                (0..own.choose(2..5)).map(|_| procession::spawn(async {})).collect();
            linger();
            own.block(10 * own.choose(2..40) as u32 * MICROSECOND);
            for child in children {
                child.await.expect("it ends");
            }
        }
    });
    parent.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// Processes are started from outside while their scheduler shuts down.
async fn shut_downs(sim: &Sim) {
    let Ok(other) = Scheduler::builder().worker_threads(1).max_processes(1000).build() else {
        // The system has refused a thread.
        return;
    };
    let other = Arc::new(other);
    let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let starters: Vec<_> = (0..2)
        .map(|_| {
            let (other, begun, ended) =
                (Arc::clone(&other), Arc::clone(&begun), Arc::clone(&ended));
            sim.spawn(async move {
                for _ in 0..4 {
                    let ended = Ended(Arc::clone(&ended));
                    begun.fetch_add(1, Relaxed);
                    other
                        .spawn(async move {
                            let _ended = ended;
                            pending::<()>().await;
                        })
                        .detach();
                    procession::yield_now().await;
                }
            })
        })
        .collect();
    procession::yield_now().await;
    shut_down(sim, &other).await;
    for starter in starters {
        starter.await.expect("it ends");
    }
    sim.settle().await;
    let counts = (begun.load(Relaxed), ended.load(Relaxed));
    sim.always("each process that was started is dropped", counts.0 == counts.1);
}

/// Shuts a scheduler down that has no reason to take long.
async fn shut_down(sim: &Sim, scheduler: &Scheduler) {
    let begun = Instant::now();
    let left = scheduler.shutdown(Duration::from_secs(ENDLESS)).await;
    sim.always("a process ends when its scheduler shuts down", left.is_empty());
    let is_noticed = Instant::now() - begun < Duration::from_secs(ENDLESS / 2);
    sim.always("a shutdown ends with the last process", is_noticed);
}

/// Processes start others while their scheduler shuts down.
async fn births(sim: &Sim) {
    for _ in 0..3 {
        let Some(other) = scheduler(1, 2) else { return };
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let counts = (Arc::clone(&begun), Arc::clone(&ended));
        let parent = async move {
            for _ in 0..40 {
                let ended = Ended(Arc::clone(&counts.1));
                counts.0.fetch_add(1, Relaxed);
                let child = procession::spawn(async move {
                    let _ended = ended;
                    pending::<()>().await;
                });
                linger();
                child.detach();
                procession::yield_now().await;
            }
        };
        other.spawn(parent).detach();
        for _ in 0..sim.choose(0..6) {
            procession::sleep(sim.choose(1..4) as u32 * MICROSECOND).await;
        }
        shut_down(sim, &other).await;
        sim.settle().await;
        let counts = (begun.load(Relaxed), ended.load(Relaxed));
        sim.always("each process that was started is dropped", counts.0 == counts.1);
    }
}

/// Counts when it is dropped.
struct Ended(Arc<AtomicU32>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Addresses of processes that have ended, while their slots serve others.
async fn late_messages(sim: &Sim) {
    let kept: Arc<AtomicU32> = Arc::default();
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let kept = Arc::clone(&kept);
            sim.spawn(async move {
                for number in 0..6_u32 {
                    let wanted = procession::start(move |mut cx: Context<u32>| async move {
                        cx.recv().await.is_some_and(|sent| sent == number)
                    });
                    let address = wanted.address().clone();
                    let late = procession::spawn(async move {
                        // Refused once the process has ended.
                        let _ = address.send(number);
                        procession::yield_now().await;
                        let _ = address.send(number);
                    });
                    if wanted.await.expect("it ends") {
                        kept.fetch_add(1, Relaxed);
                    }
                    late.await.expect("it ends");
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("it ends");
    }
    sim.always("each process gets its own message", kept.load(Relaxed) == 12);
}

/// Timers that are reset and deleted by workers other than their owner.
async fn timers_of_others(sim: &Sim) {
    let sleepers: Vec<_> = (0..4)
        .map(|number| {
            let length = sim.choose(1..4);
            sim.spawn(async move {
                for round in 0..4 {
                    let sleep = procession::sleep(Duration::from_micros(20 * length));
                    let limit = Duration::from_micros(15 * (1 + (number + round) % 4));
                    let timed = procession::timeout(limit, sleep).await;
                    if timed.is_err() {
                        procession::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await.expect("it ends");
    }
}

/// Steps that go on at the moment at which another worker takes what waits in the LIFO slot.
async fn raids(sim: &Sim) {
    let Some(other) = scheduler(2, 2) else { return };
    let echoes = [(); 2].map(|()| {
        other.start(|mut cx: Context<()>| async move {
            let mut received = 0;
            while cx.recv().await.is_some() {
                received += 1;
            }
            received
        })
    });
    let (addresses, own) = (echoes.each_ref().map(|echo| echo.address().clone()), sim.clone());
    let owner = other.spawn(async move {
        let mut sent = [0; 2];
        for _ in 0..20 {
            // The other worker wakes for this child. It then finds a full slot, and looks again
            // after 100 us.
            let child = procession::spawn(async {});
            for (address, sent) in
                addresses.iter().zip(&mut sent).take(1 + own.choose(0..2) as usize)
            {
                address.send(()).expect("it lives");
                *sent += 1;
                own.compute(5 * own.choose(4..24) as u32 * MICROSECOND);
            }
            child.await.expect("it ends");
            procession::sleep(10 * MICROSECOND).await;
        }
        sent
    });
    let sent = owner.await.expect("it ends");
    for (echo, sent) in echoes.into_iter().zip(sent) {
        echo.cancel();
        sim.always("each message arrives", echo.await.is_ok_and(|received| received == sent));
    }
    shut_down(sim, &other).await;
}

/// A worker wakes again and again while the watchdog is about to sleep.
async fn dozes(sim: &Sim) {
    // With one thread it would have no watchdog.
    let Some(other) = scheduler(1, 2) else { return };
    let own = sim.clone();
    let sleeper = other.spawn(async move {
        for _ in 0..200 {
            procession::sleep(own.choose(2..6) as u32 * 100 * MICROSECOND).await;
            own.block(30 * MICROSECOND);
        }
    });
    sleeper.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// Steps that stall, and set timers while others take the places of their workers.
async fn revoked(sim: &Sim) {
    let Some(other) = scheduler(1, 3) else { return };
    for _ in 0..8 {
        let own = sim.clone();
        let stalled = other.spawn(async move {
            // It waits until the watchdog has found the stall, in 10 to 12.5 ms.
            procession::spawn(async {}).detach();
            own.block((10_000 + own.choose(0..25) as u32 * 100) * MICROSECOND);
            let count = own.choose(1..6) as u32;
            // Each sleep is due 2 ms before the sleep that was set before.
            let sleeps =
                (1..=count).map(|nth| procession::sleep((80_000 - 2_100 * nth) * MICROSECOND));
            let mut sleeps: Vec<_> = sleeps.map(Box::pin).collect();
            poll_fn(|task| {
                for sleep in &mut sleeps {
                    own.block(100 * MICROSECOND);
                    let _ = sleep.as_mut().poll(task);
                    linger();
                }
                own.block(100 * MILLISECOND);
                Poll::Ready(())
            })
            .await;
        });
        stalled.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}

/// Processes without handles end while others look for them by their PIDs.
async fn late_looks(sim: &Sim) {
    let starters: Vec<_> = (0..2)
        .map(|_| {
            let own = sim.clone();
            sim.spawn(async move {
                for _ in 0..8 {
                    let yields = own.choose(1..6);
                    let wanted = procession::start(move |_: Context<u32>| async move {
                        for _ in 0..yields {
                            procession::yield_now().await;
                        }
                    });
                    let pid = wanted.pid();
                    drop(wanted);
                    let looks = procession::spawn(async move {
                        for _ in 0..8 {
                            let found = Address::<u32>::of(pid);
                            procession::yield_now().await;
                            drop(found);
                        }
                    });
                    procession::yield_now().await;
                    looks.await.expect("it ends");
                }
            })
        })
        .collect();
    for starter in starters {
        starter.await.expect("it ends");
    }
}

/// Runs one workload. Workloads that need more runs to meet what they are for are drawn more often.
async fn one(sim: &Sim) {
    match sim.choose(0..40) {
        0 => hand_overs(sim).await,
        1 => shut_downs(sim).await,
        2 => late_messages(sim).await,
        3 => timers_of_others(sim).await,
        4 => dozes(sim).await,
        5 => revoked(sim).await,
        6 => processes::joins(sim).await,
        7 => processes::circles(sim).await,
        8 | 9 => pools::larger_pools(sim).await,
        10 | 11 => mutants::one_permit(sim).await,
        12 | 13 => late_looks(sim).await,
        14 | 15 => births(sim).await,
        16 | 17 => pairs::meetings(sim).await,
        18..=20 => pairs::taken_permits(sim).await,
        21 | 22 => processes::last_words(sim).await,
        23 | 24 => processes::ends_of_suspended(sim).await,
        25 => processes::inspections(sim).await,
        26 | 27 => processes::helpers(sim).await,
        28 | 29 => processes::full_mailboxes(sim).await,
        30 | 31 => timers::cancelled_and_reset(sim).await,
        32 => timers::periodic(sim).await,
        33..=36 => raids(sim).await,
        _ => mutants::all(sim.clone()).await,
    }
}

/// Two workloads, one after the other.
pub(crate) async fn all(sim: Sim) {
    for _ in 0..2 {
        one(&sim).await;
    }
}

/// The workloads that meet what they are for only now and then. Runs of [`all`] seldom come to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rare {
    TakenPermits,
    Circles,
    IdleLooks,
    WatchedEnds,
    SharedReplies,
    Inspections,
    MadeMessages,
    SetAside,
    CancelledAndReset,
    Periodic,
    NextInSlot,
    Postponed,
    Advanced,
    SettledByOthers,
    ResetByTwo,
    ShortSteps,
    ShortWakes,
    Raids,
    Joins,
    BusyPools,
    ClosedPools,
    Rests,
    NextJobs,
}

/// Two runs of one rare workload.
pub(crate) async fn rare(sim: Sim, workload: Rare) {
    for _ in 0..2 {
        match workload {
            Rare::TakenPermits => pairs::taken_permits(&sim).await,
            Rare::Circles => processes::circles(&sim).await,
            Rare::IdleLooks => processes::idle_looks(&sim).await,
            Rare::WatchedEnds => processes::watched_ends(&sim).await,
            Rare::SharedReplies => processes::shared_replies(&sim).await,
            Rare::Inspections => processes::inspections(&sim).await,
            Rare::MadeMessages => processes::made_messages(&sim).await,
            Rare::SetAside => processes::set_aside(&sim).await,
            Rare::CancelledAndReset => timers::cancelled_and_reset(&sim).await,
            Rare::Periodic => timers::periodic(&sim).await,
            Rare::NextInSlot => timers::next_in_slot(&sim).await,
            Rare::Postponed => timers::postponed(&sim).await,
            Rare::Advanced => timers::advanced(&sim).await,
            Rare::SettledByOthers => timers::settled_by_others(&sim).await,
            Rare::ResetByTwo => timers::reset_by_two(&sim).await,
            Rare::ShortSteps => pairs::short_steps(&sim).await,
            Rare::ShortWakes => pairs::short_wakes(&sim).await,
            Rare::Raids => raids(&sim).await,
            Rare::Joins => processes::joins(&sim).await,
            Rare::BusyPools => pools::busy_pools(&sim).await,
            Rare::ClosedPools => pools::closed_pools(&sim).await,
            Rare::Rests => pools::rests(&sim).await,
            Rare::NextJobs => pools::next_jobs(&sim).await,
        }
    }
}
