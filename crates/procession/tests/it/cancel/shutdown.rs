//! The order in which a shutdown cancels.

use crate::home::mpsc;
use std::future::pending;
use std::time::Duration;

use procession::process::OnCancel;
use procession::{
    Context, Exit, JoinHandle, Scheduler, SpawnOptions, sleep, spawn, start, yield_now,
};

use super::{HOUR, Reports, asked, scheduler};

fn shut_down(scheduler: &Scheduler) {
    let unfinished = scheduler.block_on(scheduler.shutdown(HOUR));
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

#[test]
fn a_thousand_sleepers_cost_a_shutdown_no_time() {
    let scheduler = scheduler(0);
    let sleepers: Vec<_> = (0..1000).map(|_| scheduler.spawn(sleep(HOUR))).collect();
    scheduler.run_until_idle();
    let begin = scheduler.now();
    shut_down(&scheduler);
    assert_eq!(scheduler.now(), begin);
    for sleeper in sleepers {
        assert_eq!(sleeper.join(), Err(Exit::Shutdown));
    }
}

#[test]
fn on_the_real_clock_a_shutdown_of_sleepers_does_not_wait_for_its_deadline() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("there are threads");
    (0..1000).for_each(|_| drop(scheduler.spawn(sleep(HOUR))));
    let begin = scheduler.now();
    shut_down(&scheduler);
    // The deadline is an hour. This takes milliseconds.
    assert!(scheduler.now() - begin < Duration::from_secs(60));
}

#[test]
fn a_clean_up_may_await_its_helper() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let handler = scheduler.start(|cx: Context<()>| async move {
            // One helper from before, and one from the clean-up, each with a helper of its own.
            let helper = |number: u32| {
                spawn(async move {
                    sleep(Duration::from_secs(1)).await;
                    spawn(async move { sleep(Duration::from_secs(1)).await }).await?;
                    Ok::<_, Exit>(number)
                })
            };
            let before = helper(1);
            cx.cancelled().await;
            (before.await, helper(2).await)
        });
        let idle = scheduler.spawn(pending::<()>());
        scheduler.run_until_idle();
        shut_down(&scheduler);
        assert_eq!(handler.join(), Ok((Ok(Ok(1)), Ok(Ok(2)))), "width {width}");
        assert_eq!(idle.join(), Err(Exit::Shutdown));
    }
}

#[test]
fn a_helper_that_is_left_behind_is_dropped_after_its_parent() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let (drops, dropped) = mpsc::channel();
        let parent = scheduler.start(move |cx: Context<()>| async move {
            let helper = |name, parent: &mpsc::Sender<_>| {
                let reports = Reports(name, parent.clone());
                drop(spawn(async move {
                    let _reports = reports;
                    pending::<()>().await;
                }));
            };
            helper("before", &drops);
            yield_now().await;
            cx.cancelled().await;
            helper("late", &drops);
            sleep(Duration::from_secs(5)).await;
            drops.send("parent").expect("the test listens");
        });
        scheduler.run_until_idle();
        let begin = scheduler.now();
        shut_down(&scheduler);
        assert_eq!(scheduler.now() - begin, Duration::from_secs(5), "width {width}");
        assert_eq!(parent.join(), Ok(()));
        let mut order: Vec<_> = dropped.iter().collect();
        assert_eq!(order.remove(0), "parent", "width {width}");
        order.sort_unstable();
        assert_eq!(order, ["before", "late"]);
    }
}

fn chain(left: u32) -> JoinHandle<()> {
    spawn(async move {
        let _next = (left > 0).then(|| chain(left - 1));
        pending().await
    })
}

#[test]
fn a_deep_chain_is_dropped_link_by_link() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let root = scheduler.spawn(async {
            let _chain = chain(20_000);
            pending::<()>().await;
        });
        scheduler.run_until_idle();
        let begin = scheduler.now();
        shut_down(&scheduler);
        assert_eq!(scheduler.now(), begin, "width {width}");
        assert_eq!(root.join(), Err(Exit::Shutdown));
    }
}

#[test]
fn a_parent_with_very_many_children_is_followed_by_all_of_them() {
    let scheduler = scheduler(2);
    let parent = scheduler.start(|cx: Context<()>| async move {
        (0..100_000).for_each(|_| drop(spawn(pending::<()>())));
        asked(cx).await
    });
    scheduler.run_until_idle();
    let begin = scheduler.now();
    shut_down(&scheduler);
    assert_eq!(scheduler.now(), begin);
    assert_eq!(parent.join(), Ok("asked"));
}

#[test]
fn a_helper_whose_parent_stays_is_terminated_in_the_reserve() {
    let scheduler = scheduler(0);
    let (gives, given) = mpsc::channel();
    let parent = scheduler.start(|_: Context<()>| async move {
        gives.send(spawn(pending::<()>())).expect("the test listens");
        pending::<()>().await;
    });
    scheduler.run_until_idle();
    let begin = scheduler.now();
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(10)));
    assert!(unfinished.processes.is_empty(), "{unfinished:?}");
    // The helper would have been dropped in any case, so nothing of it is lost.
    assert!(unfinished.terminated.iter().map(|process| process.pid).eq([parent.pid()]));
    assert_eq!(scheduler.now() - begin, Duration::from_millis(9900));
    assert_eq!(parent.join(), Err(Exit::Killed));
    assert_eq!(given.recv().expect("it was given").join(), Err(Exit::Killed));
}

#[test]
fn a_process_that_shuts_down_does_not_keep_its_own_children() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let own = scheduler.clone();
        let caller = scheduler.spawn(async move {
            let child = spawn(async {
                let _grandchild = spawn(pending::<()>());
                pending::<()>().await;
            });
            yield_now().await;
            let begin = own.now();
            assert!(own.shutdown(HOUR).await.is_empty());
            (child.await, own.now() - begin)
        });
        assert_eq!(caller.join(), Ok((Err(Exit::Shutdown), Duration::ZERO)), "width {width}");
    }
}

#[test]
fn a_shutdown_that_is_given_up_still_drops_helpers_after_their_parents() {
    let scheduler = scheduler(0);
    let (gives, given) = mpsc::channel();
    let parent = scheduler.start(|cx: Context<()>| async move {
        gives.send(spawn(pending::<()>())).expect("the test listens");
        cx.cancelled().await;
        sleep(Duration::from_secs(5)).await;
    });
    scheduler.run_until_idle();
    let given_up = procession::timeout(Duration::from_secs(1), scheduler.shutdown(HOUR));
    assert!(scheduler.block_on(given_up).is_err());
    let helper = given.recv().expect("it was given");
    assert_eq!(parent.join(), Ok(()));
    assert_eq!(helper.join(), Err(Exit::Shutdown));
}

/// Parents end, and new children come, while a shutdown walks over the slots.
#[test]
fn parents_that_end_meanwhile_leave_no_child_behind() {
    for round in 0..300 {
        let scheduler = Scheduler::builder().worker_threads(2).build().expect("there are threads");
        let parents = scheduler.spawn(async move {
            for number in 0..40_u64 {
                drop(start(move |cx: Context<()>| async move {
                    drop(spawn(pending::<()>()));
                    if number % 2 == 0 {
                        yield_now().await;
                    } else {
                        cx.cancelled().await;
                    }
                    drop(spawn(async { drop(spawn(pending::<()>()).await) }));
                }));
                if number % 8 == round % 8 {
                    yield_now().await;
                }
            }
        });
        if round % 3 == 0 {
            drop(parents.join());
        }
        let begin = scheduler.now();
        shut_down(&scheduler);
        assert!(scheduler.now() - begin < Duration::from_secs(60), "round {round}");
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.spawned, snapshot.ended, "round {round}");
    }
}

#[test]
fn a_drop_that_spawns_cancels_and_panics_in_a_shutdown_harms_nobody() {
    struct Wild(Option<JoinHandle<()>>);
    impl Drop for Wild {
        fn drop(&mut self) {
            drop(spawn(pending::<()>()));
            if let Some(other) = self.0.take() {
                other.cancel();
            }
            crate::scene::panic_quietly("in a drop");
        }
    }
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let processes: Vec<_> = (0..20)
            .map(|_| {
                scheduler.spawn(async {
                    let wild = Wild(Some(spawn(pending::<()>())));
                    pending::<()>().await;
                    drop(wild);
                })
            })
            .collect();
        scheduler.run_until_idle();
        let begin = scheduler.now();
        shut_down(&scheduler);
        assert_eq!(scheduler.now(), begin);
        for process in processes {
            assert_eq!(process.join(), Err(Exit::Shutdown), "the first reason stands");
        }
    }
}

#[test]
fn a_process_with_a_context_may_be_dropped_and_a_plain_one_may_be_asked() {
    let scheduler = scheduler(0);
    let options = |on_cancel| SpawnOptions::new().on(&scheduler).on_cancel(on_cancel);
    let dropped = options(OnCancel::Drop).start(|mut cx: Context<u32>| async move {
        while cx.recv().await.is_some() {}
        "it went on"
    });
    let asked = options(OnCancel::Ask).spawn(async {
        procession::process::cancelled().await;
        sleep(Duration::from_secs(1)).await;
        "it cleaned up"
    });
    scheduler.run_until_idle();
    shut_down(&scheduler);
    assert_eq!(dropped.join(), Err(Exit::Shutdown));
    assert_eq!(asked.join(), Ok("it cleaned up"));
}

#[test]
fn a_process_that_a_clean_up_starts_is_asked_after_its_parent_has_ended() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let (told, ends) = mpsc::channel();
        let parent = scheduler.start(move |cx: Context<()>| async move {
            cx.cancelled().await;
            let asked = |name: &'static str| {
                let told = told.clone();
                async move {
                    procession::process::cancelled().await;
                    told.send(name).expect("the test waits");
                }
            };
            let (plain, other) = (asked("plain"), asked("with a mailbox"));
            drop(SpawnOptions::new().on_cancel(OnCancel::Ask).spawn(plain));
            drop(start(|_: Context<()>| other));
            // The helper is not asked while its parent needs it.
            let helper = start(|mut cx: Context<u32>| async move { cx.recv().await });
            sleep(Duration::from_secs(1)).await;
            helper.send(7).expect("it waits for a message");
            told.send("parent").expect("the test waits");
            helper.await
        });
        scheduler.run_until_idle();
        let begin = scheduler.now();
        shut_down(&scheduler);
        assert_eq!(scheduler.now() - begin, Duration::from_secs(1), "width {width}");
        assert_eq!(parent.join(), Ok(Ok(Some(7))));
        let mut ended: Vec<_> = ends.iter().collect();
        assert_eq!(ended.remove(0), "parent");
        ended.sort_unstable();
        assert_eq!(ended, ["plain", "with a mailbox"]);
    }
}
