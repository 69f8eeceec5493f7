//! Workloads for protocols that fail only if a thread loses its turn in the middle of them. They
//! run beside those of `mutants`.

use std::sync::Arc;
use std::time::Duration;

use procession::{Context, Scheduler};
use procession_sim::Sim;
use procession_sync::host::atomic::AtomicU32;
use procession_sync::host::atomic::Ordering::Relaxed;

use crate::mutants;

/// Steps that start others and then block without a word, while other workers are about to park.
async fn hand_overs(sim: &Sim) {
    let parents: Vec<_> = (0..3)
        .map(|_| {
            let own = sim.clone();
            sim.spawn(async move {
                for round in 0..10 {
                    procession::yield_now().await;
                    // Each but the last one makes room for the next.
                    let children: Vec<_> =
                        (0..2 + 2 * (round % 2)).map(|_| procession::spawn(async {})).collect();
                    own.block(Duration::from_micros(300));
                    for child in children {
                        child.await.expect("it ends");
                    }
                }
            })
        })
        .collect();
    for parent in parents {
        parent.await.expect("it ends");
    }
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
                            std::future::pending::<()>().await;
                        })
                        .detach();
                    procession::yield_now().await;
                }
            })
        })
        .collect();
    procession::yield_now().await;
    let left = other.shutdown(Duration::from_secs(1 << 30)).await;
    for starter in starters {
        starter.await.expect("it ends");
    }
    sim.always("a process ends when its scheduler shuts down", left.is_empty());
    sim.settle().await;
    let counts = (begun.load(Relaxed), ended.load(Relaxed));
    sim.always("each process that was started is dropped", counts.0 == counts.1);
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

/// Timers that are reset and deleted by other workers than the one that has them.
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

pub(crate) async fn all(sim: Sim) {
    match sim.choose(0..8) {
        0 => hand_overs(&sim).await,
        1 => shut_downs(&sim).await,
        2 => late_messages(&sim).await,
        3 => timers_of_others(&sim).await,
        _ => mutants::all(sim).await,
    }
}
