//! What waits beside a worker, or a process, that is always busy.

use crate::home::mpsc;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::{Context, Scheduler, SpawnOptions, yield_now};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use super::{FAIRNESS, Steps, Waits};
use crate::scene::{driven, soon, threaded};

#[test]
fn a_backlog_of_messages_is_received_in_portions() {
    const MESSAGES: u64 = 10_000;
    let scheduler = driven();
    let received = Arc::new(AtomicU64::new(0));
    let child = scheduler.start({
        let received = Arc::clone(&received);
        move |mut cx: Context<()>| async move {
            while cx.recv().await.is_some() {
                received.fetch_add(1, Relaxed);
            }
        }
    });
    for _ in 0..MESSAGES {
        child.send(()).expect("it lives");
    }
    child.cancel();
    let other = scheduler.spawn({
        let received = Arc::clone(&received);
        async move {
            let mut most = 0;
            let mut before = received.load(Relaxed);
            while before < MESSAGES {
                yield_now().await;
                let now = received.load(Relaxed);
                most = most.max(now - before);
                before = now;
            }
            most
        }
    });
    let most = other.join().expect("it ends");
    assert!((1..=128).contains(&most), "{most} messages in one step, the budget is 128");
    child.join().expect("it ends");
}

#[test]
fn a_backlog_is_searched_and_what_was_skipped_received_in_portions() {
    const MESSAGES: u32 = 10_000;
    // As many looks as receives.
    const STEPS: u32 = 2 * MESSAGES / 128;
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let last = cx.recv_matching(|&n| n == MESSAGES).await;
        for n in 0..MESSAGES {
            assert_eq!(cx.recv().await, Some(n));
        }
        last
    });
    for n in 0..=MESSAGES {
        child.send(n).expect("it lives");
    }
    let address = child.address().clone();
    let other = scheduler.spawn(async move {
        let mut turns = 0;
        while address.is_alive() {
            turns += 1;
            yield_now().await;
        }
        turns
    });
    assert_eq!(child.join(), Ok(Some(MESSAGES)));
    let turns: u32 = other.join().expect("it ends");
    assert!(turns >= STEPS, "others had {turns} turns meanwhile, but the budget is 128");
}

#[test]
fn a_timer_fires_beside_a_process_that_is_always_ready() {
    for bound in [false, true] {
        let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
        let sleeper = scheduler.spawn({
            let (steps, waits) = (steps.clone(), waits.clone());
            async move {
                procession::sleep(Duration::from_secs(1)).await;
                waits.note(0, steps.made());
                steps.stop();
            }
        });
        scheduler.run_until_idle();
        let options = SpawnOptions::new().on(&scheduler);
        let options = if bound { options.affinity(0) } else { options };
        let hog = options.spawn({
            let scheduler = scheduler.clone();
            async move {
                scheduler.advance(Duration::from_secs(1));
                steps.yields().await;
            }
        });
        hog.join().expect("it ends");
        sleeper.join().expect("it ends");
        waits.assert_within(1, |_| FAIRNESS + 1);
    }
}

#[test]
fn a_machine_that_continues_for_ever_lets_others_run() {
    struct Restless(Steps);
    impl Process for Restless {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            _: &mut Events<()>,
            _: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
            self.0.note();
            Ok(if self.0.go_on() { Status::Continue } else { Status::Wait(WaitingFor::Messages) })
        }
    }
    let (steps, scheduler) = (Steps::default(), driven());
    let machine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Restless(steps.clone()), "", ())
        .expect("it accepts everything");
    let other = scheduler.spawn({
        let steps = steps.clone();
        async move {
            for _ in 0..100 {
                yield_now().await;
            }
            steps.stop();
            steps.made()
        }
    });
    let made = other.join().expect("it ends");
    assert!((50..=200).contains(&made), "{made} steps beside 100");
    drop(machine);
}

#[test]
fn what_is_queued_behind_a_long_step_is_run_by_others() {
    let scheduler: Scheduler = threaded(2);
    for _ in 0..100 {
        // The step ends only after the process that it spawned has run, and the one that this
        // spawned, too.
        let long = scheduler.spawn(async {
            let (tell, told) = mpsc::channel();
            drop(procession::spawn(async move {
                drop(procession::spawn(async move { tell.send(()) }));
            }));
            soon(&told);
        });
        assert_eq!(long.join(), Ok(()));
    }
}

#[test]
fn what_has_yielded_is_run_by_others_during_a_long_step() {
    let scheduler = threaded(2);
    for _ in 0..100 {
        let (tell, told) = mpsc::channel();
        let handles = scheduler.block_on(async {
            procession::spawn(async move {
                let yields = procession::spawn(async move {
                    for _ in 0..10 {
                        yield_now().await;
                    }
                    tell.send(()).expect("the other waits");
                });
                let waits = procession::spawn(async move {
                    yield_now().await;
                    soon(&told);
                });
                [yields, waits]
            })
            .await
        });
        for handle in handles.expect("it ends") {
            assert_eq!(handle.join(), Ok(()));
        }
    }
}

#[test]
fn a_process_that_awaits_what_is_there_already_yields() {
    const HANDLES: usize = 1000;
    let scheduler = driven();
    let finished: Vec<_> = (0..HANDLES).map(|n| scheduler.spawn(async move { n })).collect();
    scheduler.run_until_idle();
    let awaited = Arc::new(AtomicU64::new(0));
    let awaits = scheduler.spawn({
        let awaited = Arc::clone(&awaited);
        async move {
            for (n, handle) in finished.into_iter().enumerate() {
                assert_eq!(handle.await, Ok(n));
                awaited.fetch_add(1, Relaxed);
            }
        }
    });
    let other = scheduler.spawn({
        async move {
            let mut most = 0;
            let mut before = awaited.load(Relaxed);
            while before < HANDLES as u64 {
                yield_now().await;
                let now = awaited.load(Relaxed);
                most = most.max(now - before);
                before = now;
            }
            most
        }
    });
    let most = other.join().expect("it ends");
    assert!(most <= 128, "{most} in one step, the budget is 128");
    awaits.join().expect("it ends");
}

#[test]
fn what_a_caller_leaves_in_its_lifo_slot_is_run_by_others() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    for _ in 0..100 {
        let (tell, told) = mpsc::channel();
        let woken = scheduler.start(move |mut cx: Context<()>| async move {
            cx.recv().await;
            tell.send(()).expect("the test waits");
        });
        scheduler.run_until_idle();
        let address = woken.address().clone();
        // This thread runs it, and leaves as soon as it has ended.
        let wakes = SpawnOptions::new()
            .on(&scheduler)
            .affinity(0)
            .spawn(async move { address.send(()).is_ok() });
        assert_eq!(wakes.join(), Ok(true));
        soon(&told);
    }
}
