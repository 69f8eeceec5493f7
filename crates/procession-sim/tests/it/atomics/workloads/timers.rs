//! Workloads about timers that are cancelled and set again by workers other than the worker that
//! fires them.

use std::sync::Arc;
use std::time::Duration;

use procession::time::{Instant, Timer, run_after, run_every};
use procession_sim::Sim;
use procession_sync::host::Mutex;
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::host::atomic::{AtomicBool, AtomicU32};

use super::{MICROSECOND, MILLISECOND, bound, scheduler, shut_down};

/// The time within which a timer fires that is due. Threads may be preempted for some seconds in
/// all.
const SOON: Duration = Duration::from_secs(10);

/// A deadline that no run reaches.
fn far_away() -> Instant {
    Instant::now() + 1_000_000 * MILLISECOND
}

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
        // A firing that has begun continues.
        procession::sleep(1000 * MILLISECOND).await;
        is_over.store(true, Relaxed);
        procession::sleep(MILLISECOND).await;
    }
}

/// A timer that fires at most once, and what was done to it by others than the worker that has it.
#[derive(Clone)]
struct Meddled {
    watched: Watched,
    /// Set once it was reset to a deadline that is far away.
    is_postponed: Arc<AtomicBool>,
}

/// The slots of a worker's timers serve one timer after the other, while two other workers cancel
/// and reset the old timers and the new timers. A timer that was not postponed fires soon.
pub(super) async fn next_in_slot(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..8 {
        let timers: Arc<Mutex<Vec<Meddled>>> = Arc::default();
        let (own, sets) = (sim.clone(), Arc::clone(&timers));
        let owner = bound(&other, 0).spawn(async move {
            for _ in 0..4 {
                let Some(watched) = Watched::once(&own) else { return };
                let timer = Meddled { watched, is_postponed: Arc::default() };
                sets.lock().push(timer.clone());
                match own.choose(0..4) {
                    0 => timer.watched.cancel(),
                    1 => procession::sleep(10 * MICROSECOND).await,
                    2 => procession::yield_now().await,
                    _ => own.compute(10 * MICROSECOND),
                }
            }
        });
        let meddlers = [1, 2].map(|worker| {
            let (own, timers) = (sim.clone(), Arc::clone(&timers));
            bound(&other, worker).spawn(async move {
                for _ in 0..10 {
                    let recent: Vec<_> = timers.lock().iter().rev().take(3).cloned().collect();
                    for timer in recent {
                        match own.choose(0..5) {
                            0 => timer.watched.cancel(),
                            1 => drop(timer.watched.timer.reset(Instant::now() + 5 * MICROSECOND)),
                            2 if timer.watched.timer.reset(far_away()) => {
                                timer.is_postponed.store(true, Relaxed);
                            }
                            _ => {}
                        }
                    }
                    match own.choose(0..3) {
                        0 => procession::sleep(5 * MICROSECOND).await,
                        1 => procession::yield_now().await,
                        _ => own.compute(5 * MICROSECOND),
                    }
                }
            })
        });
        owner.await.expect("it ends");
        for meddler in meddlers {
            meddler.await.expect("it ends");
        }
        procession::sleep(SOON).await;
        for timer in timers.lock().iter() {
            if timer.is_postponed.load(Relaxed) {
                timer.watched.cancel();
            }
            let is_once = timer.watched.ends() == 1;
            sim.always("a timer fires once and soon, or is cancelled once", is_once);
        }
    }
    shut_down(sim, &other).await;
}

/// Sets a timer of the calling worker again and again, which takes its lock.
fn busy_with_timers(rounds: u32) {
    let Ok(spare) = run_after(1_000_000 * MILLISECOND, || ()) else { return };
    for round in 0..rounds {
        let _ = spare.reset(far_away() + round * MILLISECOND);
    }
}

/// The firings of a timer.
type Firings = Arc<Mutex<Vec<Instant>>>;

/// Timers are reset to later at the moment at which they fire. They do not fire before their new
/// deadlines.
pub(super) async fn postponed(sim: &Sim) {
    const COUNT: usize = 6;
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..6 {
        let is_periodic = sim.choose(0..2) == 1;
        let timers: Arc<Mutex<Vec<(Timer, Firings)>>> = Arc::default();
        let (own, sets) = (sim.clone(), Arc::clone(&timers));
        let length = 5 * sim.choose(4..8) as u32 * MICROSECOND;
        let owner = bound(&other, 0).spawn(async move {
            for _ in 0..COUNT {
                let fired = Firings::default();
                let fires = Arc::clone(&fired);
                let fires = move || fires.lock().push(Instant::now());
                let timer = match is_periodic {
                    true => run_every(length, fires).ok(),
                    false => run_after(length, fires).ok(),
                };
                sets.lock().extend(timer.map(|timer| (timer, fired)));
            }
            if own.choose(0..2) == 1 {
                own.compute(length);
            }
        });
        let (own, resets) = (sim.clone(), Arc::clone(&timers));
        let resets = bound(&other, 1).spawn(async move {
            own.compute(length);
            let timers = resets.lock().clone();
            let reset = timers.into_iter().map(|(timer, fired)| {
                let deadline = Instant::now() + 300 * MILLISECOND;
                let is_pending = timer.reset(deadline);
                if !is_pending {
                    timer.cancel();
                }
                (is_pending.then(|| (Instant::now(), deadline)), fired)
            });
            reset.collect::<Vec<_>>()
        });
        owner.await.expect("it ends");
        let reset = resets.await.expect("it ends");
        procession::sleep(5 * MILLISECOND).await;
        for (since, fired) in reset {
            let Some((since, until)) = since else { continue };
            // A tick that has begun continues. A timer that fires once was pending until the reset.
            let is_early = |at: &Instant| *at < until && (!is_periodic || since <= *at);
            let early = fired.lock().iter().filter(|at| is_early(at)).count();
            let is_late = early <= usize::from(is_periodic);
            sim.always("a timer that was postponed fires later", is_late);
        }
        for (timer, _) in timers.lock().drain(..) {
            timer.cancel();
        }
    }
    shut_down(sim, &other).await;
}

/// A timer that is far away is reset to earlier by one worker of another scheduler, while a second
/// one is busy with its neighbours in the same heap. The worker that has it is parked, or about to.
/// It fires soon.
pub(super) async fn settled_by_others(sim: &Sim) {
    sim.heal();
    let (Some(other), Some(outside)) = (scheduler(2, 2), scheduler(2, 2)) else { return };
    // The driver of the scheduler is a worker that does not have the timers.
    bound(&other, 1).spawn(procession::sleep(1_000_000 * MILLISECOND)).detach();
    procession::sleep(MILLISECOND).await;
    for _ in 0..12 {
        let fired = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&fired);
        let sets = bound(&other, 0).spawn(async move {
            let fires = move || {
                count.fetch_add(1, Relaxed);
            };
            let timers = (run_after(2_000_000 * MILLISECOND, fires), run_after(SOON * 1000, || ()));
            (timers.0.ok(), timers.1.ok())
        });
        let (Some(timer), Some(spare)) = sets.await.expect("it ends") else { return };
        let begin = Instant::now() + 40 * MICROSECOND;
        let until_begin = move || begin.saturating_duration_since(Instant::now());
        let is_parked = sim.choose(0..2) == 1;
        let own = sim.clone();
        let neighbour = move || {
            own.compute(until_begin());
            for round in 0..8 {
                let _ = spare.reset(far_away() + round * MILLISECOND);
            }
        };
        let neighbour = match is_parked {
            true => bound(&outside, 0).spawn(async move { neighbour() }),
            false => bound(&other, 0).spawn(async move { neighbour() }),
        };
        let own = sim.clone();
        let resets = bound(&outside, 1).spawn(async move {
            own.compute(until_begin());
            let _ = timer.reset(Instant::now() + 10 * MICROSECOND);
        });
        neighbour.await.expect("it ends");
        resets.await.expect("it ends");
        procession::sleep(SOON).await;
        sim.always("a timer that was advanced fires", fired.load(Relaxed) == 1);
    }
    shut_down(sim, &outside).await;
    shut_down(sim, &other).await;
}

/// Timers that are far away are reset to earlier, and to still earlier, while their worker is busy
/// with its timers, parks or blocks. They fire soon.
pub(super) async fn advanced(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..12 {
        let fired = Arc::new(AtomicU32::new(0));
        let (count, own) = (Arc::clone(&fired), sim.clone());
        let sets = bound(&other, 0).spawn(async move {
            let timers = [(); 2].map(|()| {
                let count = Arc::clone(&count);
                let fires = move || {
                    count.fetch_add(1, Relaxed);
                };
                run_after(2_000_000 * MILLISECOND, fires).ok()
            });
            own.compute(10 * MICROSECOND);
            timers
        });
        let timers = sets.await.expect("it ends");
        let workers = 1..2 + sim.choose(0..2) as u32;
        let resets = timers.iter().flatten().zip(workers).map(|(timer, worker)| {
            let (own, timer) = (sim.clone(), timer.clone());
            bound(&other, worker).spawn(async move {
                for _ in 0..own.choose(0..3) {
                    let _ = timer.reset(far_away());
                }
                let is_pending = timer.reset(Instant::now() + 10 * MICROSECOND);
                own.always("a timer that is far away is pending", is_pending);
            })
        });
        let resets: Vec<_> = resets.collect();
        let own = sim.clone();
        let owner = bound(&other, 0).spawn(async move {
            busy_with_timers(own.choose(0..3) as u32);
            if own.choose(0..3) == 0 {
                own.block(4 * MILLISECOND);
            }
        });
        owner.await.expect("it ends");
        let count = resets.len() as u32;
        for reset in resets {
            reset.await.expect("it ends");
        }
        procession::sleep(SOON).await;
        sim.always("a timer that was advanced fires", fired.load(Relaxed) == count);
    }
    shut_down(sim, &other).await;
}

/// A worker is busy with its timers. Two workers of another scheduler reset one timer at the same
/// moment, and the second worker then cancels it. Each timer that the owner sets afterwards has a
/// separate slot.
pub(super) async fn reset_by_two(sim: &Sim) {
    sim.heal();
    let (Some(other), Some(outside)) = (scheduler(2, 2), scheduler(2, 2)) else { return };
    let (mut set, fired) = (0, Arc::new(AtomicU32::new(0)));
    for _ in 0..16 {
        let begin = Instant::now() + 50 * MICROSECOND;
        let until_begin = move || begin.saturating_duration_since(Instant::now());
        let timer: Arc<Mutex<Option<Timer>>> = Arc::default();
        let (own, sets, count) = (sim.clone(), Arc::clone(&timer), Arc::clone(&fired));
        let owner = bound(&other, 0).spawn(async move {
            let old = run_after(SOON * 1000, || ()).ok();
            *sets.lock() = old;
            own.compute(until_begin());
            busy_with_timers(16);
            let next = [(); 3].map(|()| {
                let count = Arc::clone(&count);
                let fires = move || {
                    count.fetch_add(1, Relaxed);
                };
                u32::from(run_after(5 * MICROSECOND, fires).is_ok())
            });
            next.iter().sum::<u32>()
        });
        // Both are later than the owner, and at the same time. If the owner is preempted, this time
        // passes, and if a meddler is preempted, the other meddler can run.
        let meddlers = [10, 1].map(|resets| {
            let (own, timer) = (sim.clone(), Arc::clone(&timer));
            bound(&outside, u32::from(resets == 1)).spawn(async move {
                own.compute(until_begin() + 2 * MICROSECOND);
                let Some(timer) = timer.lock().clone() else { return };
                for _ in 0..resets {
                    let _ = timer.reset(far_away());
                }
                if resets == 1 {
                    timer.cancel();
                }
            })
        });
        set += owner.await.expect("it ends");
        for meddler in meddlers {
            meddler.await.expect("it ends");
        }
        let timer = timer.lock().take();
        if let Some(timer) = timer {
            timer.cancel();
        }
    }
    procession::sleep(SOON).await;
    sim.always("each timer fires", fired.load(Relaxed) == set);
    shut_down(sim, &outside).await;
    shut_down(sim, &other).await;
}
