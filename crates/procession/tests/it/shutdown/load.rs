//! Shutdowns and drops of busy or large schedulers.

use crate::home::mpsc;
use std::time::Duration;

use procession::time::{interval, run_every};
use procession::{Address, Context, Exit, Scheduler, sleep, spawn, start, yield_now};

use super::{mortal, scheduler, shut_down};
use crate::scene::{assert_conserved, soon_closed};

enum Play {
    Opponent(Address<Play>),
    Ball,
}

async fn player(mut cx: Context<Play>) {
    let Some(Play::Opponent(opponent)) = cx.recv().await else { return };
    while opponent.send(Play::Ball).is_ok() {
        if cx.recv().await.is_none() {
            break;
        }
    }
}

fn play(scheduler: &Scheduler) {
    let players = [scheduler.start(player), scheduler.start(player)];
    for (own, other) in [(0, 1), (1, 0)] {
        // Ignored: the scheduler may be closing.
        drop(players[own].send(Play::Opponent(players[other].address().clone())));
    }
}

/// Spawns without an end, and ignores a cancel.
async fn storm() {
    loop {
        let child = start(|mut cx: Context<u32>| async move {
            let sum = cx.recv().await.unwrap_or_default() + cx.recv().await.unwrap_or_default();
            sleep(Duration::from_micros(200)).await;
            sum
        });
        // Ignored: the spawn may have been refused.
        drop(child.send(1));
        drop(child.send(2));
        yield_now().await;
        if spawn(async {}).await == Err(Exit::Refused) {
            yield_now().await;
        }
    }
}

/// Starts all kinds of busy processes.
fn busy(scheduler: &Scheduler) {
    for n in 0..8 {
        play(scheduler);
        drop(scheduler.spawn(storm()));
        drop(scheduler.spawn(async move {
            let mut ticks = interval(Duration::from_micros(100 + n));
            loop {
                ticks.tick().await;
            }
        }));
        drop(scheduler.start(|mut cx: Context<()>| async move {
            while cx.recv_timeout(Duration::from_micros(50)).await != Ok(None) {}
        }));
        drop(scheduler.attach::<u32>());
    }
    scheduler.block_on(async {
        let function = || drop(spawn(async {}));
        run_every(Duration::from_micros(500), function).expect("the limit is not reached");
    });
}

#[test]
fn a_busy_scheduler_is_shut_down_by_its_deadline() {
    for width in [1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        busy(&scheduler);
        // Waits until the storm is well under way.
        let probe = scheduler.spawn(async { sleep(Duration::from_millis(20)).await });
        assert_eq!(probe.join(), Ok(()));
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(400)));
        // On a slow machine some processes remain. They were terminated, and end.
        assert!(unfinished.processes.len() < 1 << 17);
        assert!(shut_down(&scheduler).is_empty());
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.spawned, snapshot.ended);
        assert!(snapshot.spawned > 100, "it was busy");
        assert!(snapshot.processes.is_empty());
        assert_eq!(snapshot.timers.pending, 0, "the periodic function, too");
        assert_conserved(&scheduler);
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn a_busy_scheduler_is_dropped() {
    for width in [1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        busy(&scheduler);
        let probe = scheduler.spawn(async { sleep(Duration::from_millis(20)).await });
        assert_eq!(probe.join(), Ok(()));
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn a_hundred_thousand_idle_processes_end_in_order() {
    for width in [1, 2] {
        let scheduler = scheduler(width);
        let (ended, ends) = mpsc::channel();
        for _ in 0..100_000 {
            let ended = ended.clone();
            drop(scheduler.start(|mut cx: Context<()>| async move {
                cx.recv().await;
                ended.send(()).expect("the test listens");
            }));
        }
        drop(ended);
        assert!(shut_down(&scheduler).is_empty());
        assert_eq!(ends.iter().count(), 100_000);
        let snapshot = scheduler.snapshot();
        assert_eq!((snapshot.spawned, snapshot.ended), (100_000, 100_000));
    }
}

/// Goal: no end of a scheduler is missed or hangs, whatever ends it and whatever runs at that time.
/// Method: many small schedulers.
#[test]
fn many_schedulers_end_in_many_ways() {
    let mut random = fastrand::Rng::with_seed(17);
    for round in 0..200 {
        let width = random.usize(0..3);
        let (scheduler, freed) = mortal(width);
        let mut handles: Vec<_> = (0..random.u32(0..8))
            .map(|_| {
                let yields = random.u32(0..4);
                scheduler.start(move |mut cx: Context<()>| async move {
                    for _ in 0..yields {
                        yield_now().await;
                    }
                    cx.recv().await;
                })
            })
            .collect();
        let way = random.u32(0..5);
        match way {
            0 => assert!(shut_down(&scheduler).is_empty()),
            1 => {
                let own = scheduler.clone();
                let shutting_down = scheduler
                    .spawn(async move { own.shutdown(super::AMPLE).await.processes.len() });
                assert_eq!(shutting_down.join(), Ok(0));
            }
            2 => {
                // Joined below: if nothing drives a driven scheduler any more, the process would
                // keep the handle.
                let last = scheduler.clone();
                handles.push(scheduler.start(move |_: Context<()>| async move { drop(last) }));
            }
            3 => {
                let last = scheduler.clone();
                scheduler.block_on(async {
                    handles.push(start(move |_: Context<()>| async move {
                        yield_now().await;
                        drop(last);
                    }));
                    yield_now().await;
                });
            }
            _ => {}
        }
        drop(scheduler);
        for handle in handles {
            let exit = handle.join();
            assert!(
                matches!(exit, Ok(()) | Err(Exit::Killed)),
                "round {round}, way {way}: {exit:?}"
            );
        }
        soon_closed(&freed);
    }
}
