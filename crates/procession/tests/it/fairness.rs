//! No ready process waits forever, whatever keeps other processes ready beside it.
//!
//! Method: one worker. A future around the code of each process counts all steps. A test records
//! how many steps of others ran between the moment when a process became ready and its turn. It
//! compares that with the bound in the documentation of the worker.

mod others;
mod signals;
mod victims;

use crate::home::mpsc;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;

use procession::{Context, Pid, SpawnOptions, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::scene::{driven, soon, unwatched};

/// Number of dispatches between two looks at the oldest of a queue. This is the documented bound
/// for a process with nothing older before it.
const FAIRNESS: u64 = 61;

/// The number of steps so far, and the flag that stops the hogs.
#[derive(Clone, Default)]
struct Steps(Arc<(AtomicU64, AtomicBool)>);

impl Steps {
    fn made(&self) -> u64 {
        self.0.0.load(Relaxed)
    }

    fn note(&self) -> u64 {
        self.0.0.fetch_add(1, Relaxed)
    }

    /// Counts each step of `future`.
    async fn count<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|task| {
            self.note();
            future.as_mut().poll(task)
        })
        .await
    }

    fn stop(&self) {
        self.0.1.store(true, Relaxed);
    }

    fn go_on(&self) -> bool {
        // A bound far beyond all tested bounds, so that a starved process fails its test instead of
        // hanging.
        !self.0.1.load(Relaxed) && self.made() < 100_000
    }

    /// A process that spawns its successor, and so on, so that the deque always has something
    /// newer.
    fn flood(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let steps = self.clone();
        Box::pin(async move {
            steps.note();
            if steps.go_on() {
                drop(procession::spawn(steps.flood()));
            }
        })
    }

    /// A process that is always ready.
    async fn yields(self) {
        let steps = self.clone();
        self.count(async move {
            while steps.go_on() {
                yield_now().await;
            }
        })
        .await;
    }
}

/// The waits of processes: number, and steps of others.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<(usize, u64)>>>);

impl Waits {
    fn note(&self, who: usize, steps: u64) {
        self.0.lock().push((who, steps));
    }

    #[track_caller]
    fn assert_within(&self, count: usize, bound: impl Fn(usize) -> u64) {
        let waits = self.0.lock();
        assert_eq!(waits.len(), count, "all had their turn");
        for &(who, steps) in &*waits {
            assert!(
                steps <= bound(who),
                "number {who} had to wait for {steps} steps of others: {waits:?}"
            );
        }
    }
}

#[test]
fn old_processes_in_the_deque_run_beside_a_flood_of_new_ones() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..10 {
                let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move { waits.note(who, steps.note() - ready) }));
            }
            for _ in 0..3 {
                drop(procession::spawn(steps.flood()));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
}

#[test]
fn a_deque_that_overflows_keeps_the_bound() {
    // The flood is so broad that the old processes move to the global queue, before everything that
    // overflows later.
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..10 {
                let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move { waits.note(who, steps.note() - ready) }));
            }
            for _ in 0..1000 {
                drop(procession::spawn(steps.flood()));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
}

#[test]
fn a_process_that_yielded_runs_beside_a_flood_of_new_ones() {
    const TURNS: usize = 20;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            drop(procession::spawn(steps.flood()));
            for turn in 0..TURNS {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
        }
    });
    root.join().expect("it ends");
    waits.assert_within(TURNS, |_| FAIRNESS);
    let waited = waits.0.lock().iter().map(|wait| wait.1).sum::<u64>();
    assert!(waited > TURNS as u64, "the flood ran, too");
}

#[test]
fn the_global_queue_is_served_beside_hogs() {
    let hogs: [fn(Steps); 3] = [
        |steps| drop(procession::spawn(steps.flood())),
        |steps| drop(procession::spawn(steps.yields())),
        |steps| drop(SpawnOptions::new().affinity(0).spawn(steps.yields())),
    ];
    for hog in hogs {
        let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
        let root = scheduler.spawn({
            let (steps, waits, scheduler) = (steps.clone(), waits.clone(), scheduler.clone());
            async move {
                hog(steps.clone());
                hog(steps.clone());
                // Lets the hogs begin.
                yield_now().await;
                // A process that another thread spawns goes through the global queue.
                crate::home::thread::scope(|scope| {
                    scope.spawn(|| {
                        for who in 0..10 {
                            let (steps, waits, ready) =
                                (steps.clone(), waits.clone(), steps.made());
                            drop(
                                scheduler
                                    .spawn(async move { waits.note(who, steps.note() - ready) }),
                            );
                        }
                    });
                });
            }
        });
        root.join().expect("it ends");
        scheduler.run_until_idle();
        waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
    }
}

/// Goal: a batch from outside runs in the order of age, whatever its first process spawns above it.
#[test]
fn the_oldest_of_a_batch_from_outside_does_not_run_last() {
    const BATCH: usize = 17;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits, scheduler) = (steps.clone(), waits.clone(), scheduler.clone());
        async move {
            crate::home::thread::scope(|scope| {
                scope.spawn(|| {
                    for who in 0..BATCH {
                        let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                        drop(scheduler.spawn(async move {
                            if who == 0 {
                                drop(procession::spawn(steps.flood()));
                                drop(procession::spawn(steps.flood()));
                            }
                            waits.note(who, steps.note() - ready);
                        }));
                    }
                });
            });
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(BATCH, |who| FAIRNESS + 2 * (who as u64 + 1));
}

/// Goal: the same holds for what a thief takes. Method: two workers. The first is held in a step
/// until the second has a batch in its deque, and then steals half of it. The second is held in its
/// step until all stolen processes have run. The oldest one floods the thief.
#[test]
fn the_oldest_of_a_stolen_half_does_not_run_last() {
    const BATCH: usize = 32;
    const STOLEN: usize = BATCH / 2;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), unwatched(2));
    let (enters, entered) = mpsc::channel();
    let (releases, released) = mpsc::channel::<()>();
    let thief = scheduler.spawn(async move {
        enters.send(()).expect("the test waits");
        soon(&released);
    });
    soon(&entered);
    let (tells, told) = mpsc::channel();
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..BATCH {
                let (steps, waits, tells) = (steps.clone(), waits.clone(), tells.clone());
                drop(procession::spawn(async move {
                    if who == 0 {
                        drop(procession::spawn(steps.flood()));
                        drop(procession::spawn(steps.flood()));
                    }
                    let made = steps.note();
                    if who < STOLEN {
                        waits.note(who, made);
                        tells.send(()).expect("the batch is waited for");
                    }
                }));
            }
            releases.send(()).expect("it waits");
            (0..STOLEN).for_each(|_| soon(&told));
            steps.stop();
        }
    });
    root.join().expect("it ends");
    thief.join().expect("it ends");
    waits.assert_within(STOLEN, |who| FAIRNESS + 4 * (who as u64 + 1));
}

#[test]
fn a_process_that_was_woken_runs_next_whatever_else_is_ready() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let woken = scheduler.start({
        let (steps, waits) = (steps.clone(), waits.clone());
        move |mut cx: Context<u64>| async move {
            for turn in 0..100 {
                let sent = cx.recv().await.expect("it is not cancelled");
                waits.note(turn, steps.note() - sent);
            }
            steps.stop();
        }
    });
    scheduler.run_until_idle();
    let address = woken.address().clone();
    let root = scheduler.spawn({
        let steps = steps.clone();
        async move {
            drop(procession::spawn(steps.flood()));
            drop(procession::spawn(steps.clone().yields()));
            drop(SpawnOptions::new().affinity(0).spawn(steps.clone().yields()));
            while steps.go_on() {
                // Ignored: the receiver ends before this process does.
                drop(address.send(steps.made()));
                yield_now().await;
            }
        }
    });
    root.join().expect("it ends");
    woken.join().expect("it ends");
    // Three steps, and a fairness tick.
    waits.assert_within(100, |_| 4);
}

#[test]
fn two_processes_that_wake_each_other_let_a_third_run() {
    const TURNS: usize = 100;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    // Each process receives a ball and sends it back.
    let [left, right] = [(); 2].map(|()| {
        let steps = steps.clone();
        scheduler.start(move |mut cx: Context<Pid>| {
            steps.clone().count(async move {
                while let Some(other) = cx.recv().await {
                    // Ignored: the other process may have ended first.
                    if !steps.go_on() || procession::mailbox::send(other, cx.pid()).is_err() {
                        break;
                    }
                }
            })
        })
    });
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        let (left, right) = (left.address().clone(), right.pid());
        async move {
            left.send(right).expect("it lives");
            for turn in 0..TURNS {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
            steps.made()
        }
    });
    let made = root.join().expect("it ends");
    assert!(made >= TURNS as u64, "the pair played on: {made} steps");
    // The pair's turn in the ring, and three more in the LIFO slot.
    waits.assert_within(TURNS, |_| 4);
    left.cancel();
    right.cancel();
}

#[test]
fn processes_that_yield_take_turns() {
    const PROCESSES: usize = 50;
    const TURNS: usize = 20;
    let scheduler = driven();
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let root = scheduler.spawn(async move {
        let turns = |who| {
            let order = Arc::clone(&noted);
            async move {
                for _ in 0..TURNS {
                    order.lock().push(who);
                    yield_now().await;
                }
            }
        };
        let handles: Vec<_> = (0..PROCESSES).map(|who| procession::spawn(turns(who))).collect();
        for handle in handles {
            handle.await.expect("it ends");
        }
    });
    root.join().expect("it ends");
    let order = order.lock();
    assert_eq!(order.len(), PROCESSES * TURNS);
    // Once all have begun, and until the first one ends, they come round in one order.
    for (turn, who) in order.iter().enumerate().take((TURNS - 2) * PROCESSES).skip(2 * PROCESSES) {
        assert_eq!(*who, order[turn + PROCESSES], "turn {turn}");
    }
}

#[test]
fn what_a_full_ring_has_put_off_comes_back_in_time() {
    const PROCESSES: usize = 1000;
    // Of four rounds, three begin with one process of the global queue, and one with 17.
    const BOUND: u64 = PROCESSES as u64 * 4 * FAIRNESS / 20;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..PROCESSES {
                let (steps, waits, mut ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move {
                    let mut longest = 0;
                    while steps.go_on() {
                        longest = longest.max(steps.note() - ready);
                        ready = steps.made();
                        yield_now().await;
                    }
                    // Also if the process ends because the others finished without it.
                    waits.note(who, longest.max(steps.made() - ready));
                }));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(PROCESSES, |_| BOUND);
}

#[test]
fn a_bound_process_that_is_always_ready_takes_every_other_turn() {
    let (steps, scheduler) = (Steps::default(), driven());
    let turns = Arc::new(AtomicU64::new(0));
    let bound = SpawnOptions::new().on(&scheduler).affinity(0).spawn(steps.clone().yields());
    let root = scheduler.spawn({
        let (turns, steps) = (Arc::clone(&turns), steps.clone());
        async move {
            for _ in 0..200 {
                let before = steps.made();
                yield_now().await;
                turns.fetch_max(steps.made() - before, Relaxed);
            }
            steps.stop();
        }
    });
    root.join().expect("it ends");
    bound.join().expect("it ends");
    assert_eq!(turns.load(Relaxed), 1, "turns of the bound one between two of another");
}

#[test]
fn a_bound_process_has_its_turn_beside_a_flood() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let bound = SpawnOptions::new().on(&scheduler).affinity(0).spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            drop(procession::spawn(steps.flood()));
            drop(procession::spawn(steps.clone().yields()));
            for turn in 0..100 {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
        }
    });
    bound.join().expect("it ends");
    // The same bound as for every process that continues.
    waits.assert_within(100, |_| FAIRNESS + 4);
}

#[test]
fn a_block_on_future_and_processes_take_turns() {
    let (steps, scheduler) = (Steps::default(), driven());
    let hog = scheduler.spawn(steps.clone().yields());
    // The block-on future's own turn comes between two dispatches.
    let most = scheduler.block_on(async {
        let mut most = 0;
        for _ in 0..100 {
            let before = steps.made();
            yield_now().await;
            most = most.max(steps.made() - before);
        }
        most
    });
    assert_eq!(most, 1);
    steps.stop();
    hog.join().expect("it ends");
}
