//! Workloads about timers that are cancelled and set again by other workers than the one that fires
//! them.

use std::sync::Arc;

use procession::time::{Instant, Timer, run_after, run_every};
use procession_sim::Sim;
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::host::atomic::{AtomicBool, AtomicU32};

use super::{MICROSECOND, MILLISECOND};

/// A timer, and what has happened to it.
#[derive(Clone)]
struct Watched {
    timer: Timer,
    fired: Arc<AtomicU32>,
    cancelled: Arc<AtomicU32>,
}

impl Watched {
    /// Sets a timer that fires once.
    fn once(sim: &Sim) -> Option<Self> {
        let fired = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&fired);
        let delay = 5 * sim.choose(1..12) as u32 * MICROSECOND;
        let counts = move || {
            count.fetch_add(1, Relaxed);
        };
        let timer = run_after(delay, counts).ok()?;
        Some(Self { timer, fired, cancelled: Arc::default() })
    }

    fn cancel(&self) {
        if self.timer.cancel() {
            self.cancelled.fetch_add(1, Relaxed);
        }
    }

    /// How often it has fired or was cancelled.
    fn ends(&self) -> u32 {
        self.fired.load(Relaxed) + self.cancelled.load(Relaxed)
    }
}

/// Timers that fire once. Their slots are used again while old handles are still there.
pub(super) async fn cancelled_and_reset(sim: &Sim) {
    let mut old: Vec<Watched> = Vec::new();
    for _ in 0..5 {
        let timers: Vec<_> = (0..3).filter_map(|_| Watched::once(sim)).collect();
        let meddlers: Vec<_> = (0..3)
            .map(|start| {
                let (timers, old, own) = (timers.clone(), old.clone(), sim.clone());
                sim.spawn(async move {
                    for timer in timers.iter().cycle().skip(start).take(16) {
                        match own.choose(0..10) {
                            0 => timer.cancel(),
                            1 => procession::sleep(10 * MICROSECOND).await,
                            2 => procession::yield_now().await,
                            _ => {
                                let delay = 5 * own.choose(0..12) as u32 * MICROSECOND;
                                let _ = timer.timer.reset(Instant::now() + delay);
                            }
                        }
                    }
                    for timer in &old {
                        // Nothing: it has fired or was cancelled, and its slot may serve another.
                        timer.cancel();
                        let _ = timer.timer.reset(Instant::now() + 1000 * MILLISECOND);
                    }
                })
            })
            .collect();
        for meddler in meddlers {
            meddler.await.expect("it ends");
        }
        for _ in 0..100 {
            if timers.iter().all(|timer| timer.ends() > 0) {
                break;
            }
            procession::sleep(20 * MILLISECOND).await;
        }
        let is_once = timers.iter().chain(&old).all(|timer| timer.ends() == 1);
        sim.always("a timer fires once, or is cancelled once", is_once);
        old = timers;
    }
}

/// Timers that fire again and again, until one of two processes cancels them.
pub(super) async fn periodic(sim: &Sim) {
    for _ in 0..4 {
        let (fired, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over, own) = (Arc::clone(&fired), Arc::clone(&is_over), sim.clone());
        let ticks = move || {
            own.always("a cancelled timer fires no more", !over.load(Relaxed));
            count.fetch_add(1, Relaxed);
        };
        let Ok(timer) = run_every(10 * MICROSECOND, ticks) else { return };
        let resets = sim.spawn({
            let (timer, own) = (timer.clone(), sim.clone());
            async move {
                for _ in 0..6 {
                    let delay = 5 * own.choose(0..6) as u32 * MICROSECOND;
                    let _ = timer.reset(Instant::now() + delay);
                    procession::yield_now().await;
                }
            }
        });
        let cancels = [(); 2].map(|()| {
            let (timer, own) = (timer.clone(), sim.clone());
            sim.spawn(async move {
                procession::sleep(10 * own.choose(1..6) as u32 * MICROSECOND).await;
                timer.cancel()
            })
        });
        let mut cancelled = 0;
        for cancel in cancels {
            cancelled += u32::from(cancel.await.expect("it ends"));
        }
        resets.await.expect("it ends");
        sim.always("one of them cancels the timer", cancelled == 1);
        // A firing that has begun goes on.
        procession::sleep(1000 * MILLISECOND).await;
        is_over.store(true, Relaxed);
        procession::sleep(MILLISECOND).await;
    }
}
