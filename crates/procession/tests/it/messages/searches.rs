//! Searches of a mailbox that holds more than a step may look at.
//!
//! A search that its step has cut short has not found out that anything is absent. Method: all that
//! a process looks for is in its mailbox before it looks, behind more entries than a few budgets.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::{Urgent, WhenFull};
use procession::process::MonitorRef;
use procession::sync::{Notify, Select};
use procession::time::Elapsed;
use procession::{Context, SpawnOptions, spawn, timeout, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::driven;

/// A step may spend this much, by default.
const BUDGET: u32 = 128;

/// How many entries are in front.
const COUNTS: [u32; 4] = [BUDGET, 150, 500, 10_000];

/// Monitors processes that have ended by the time this returns.
async fn monitor_ended(cx: &mut Context<u32>, count: u32) -> Vec<MonitorRef> {
    let mut monitors = Vec::new();
    for _ in 0..count {
        let process = spawn(async {});
        monitors.push(cx.monitor(process.pid()));
        process.await.expect("it does not panic");
    }
    monitors
}

#[test]
fn a_message_behind_many_is_not_absent() {
    for count in COUNTS {
        let check = |options: fn() -> SpawnOptions| {
            driven().block_on(async {
                let child = options().start(move |mut cx: Context<u32>| async move {
                    let select = Select::new()
                        .wait_for(cx.recv_matching(|n| *n == count), Some)
                        .or_else(|| None);
                    let first = select.await.flatten();
                    let wanted = cx.recv_matching(|n| *n == count + 1);
                    (first, timeout(Duration::ZERO, wanted).await, cx.recv().await)
                });
                (0..count + 2).for_each(|n| child.send(n).expect("there is room"));
                let found = child.await.expect("it does not panic");
                assert_eq!(found, (Some(count), Ok(Some(count + 1)), Some(0)));
            });
            driven().block_on(async {
                let child = options().start(move |mut cx: Context<u32>| async move {
                    timeout(Duration::ZERO, cx.recv_matching(|n| *n == count)).await
                });
                (0..=count).for_each(|n| child.send(n).expect("there is room"));
                assert_eq!(child.await.expect("it does not panic"), Ok(Some(count)));
            });
        };
        check(SpawnOptions::new);
        check(|| SpawnOptions::new().mailbox(20_000, WhenFull::Reject));
        check(|| SpawnOptions::new().urgent(Urgent::messages()));
    }
}

#[test]
fn a_message_or_a_down_behind_many_downs_is_not_absent() {
    for count in [150, 500, 5000] {
        let found = driven().block_on(async {
            let child = procession::start(move |mut cx: Context<u32>| async move {
                let monitors = monitor_ended(&mut cx, count).await;
                let last = timeout(Duration::ZERO, cx.down(monitors[count as usize - 1])).await;
                let found = last.map(|down| down.is_some());
                monitor_ended(&mut cx, count).await;
                cx.address().send(7).expect("it is alive");
                (found, cx.recv_timeout(Duration::ZERO).await)
            });
            child.await
        });
        assert_eq!(found, Ok((Ok(true), Ok(Some(7)))), "behind {count}");
    }
}

#[test]
fn a_down_behind_many_messages_is_not_absent() {
    for (before, count) in [(0, 500), (100, 500), (100, 10_000)] {
        let found = driven().block_on(async {
            let child = procession::start(move |mut cx: Context<u32>| async move {
                (0..before).for_each(|n| cx.address().send(n).expect("it is alive"));
                let gate = Arc::new(Notify::new());
                let opens = gate.clone();
                let ends = spawn(async move { gate.notified().await });
                let monitor = cx.monitor(ends.pid());
                (0..count).for_each(|n| cx.address().send(n).expect("it is alive"));
                opens.notify_one();
                ends.await.expect("it does not panic");
                timeout(Duration::ZERO, cx.down(monitor)).await.map(|down| down.is_some())
            });
            child.await
        });
        assert_eq!(found, Ok(Ok(true)), "behind {count}");
    }
}

/// Waits for the first of many.
async fn first<F: Future<Output = ()>>(mut waits: Vec<Pin<Box<F>>>) {
    poll_fn(|task| {
        let polls = waits.iter_mut().map(|wait| wait.as_mut().poll(task));
        polls.fold(Poll::Pending, Poll::min)
    })
    .await;
}

/// What needs more than a budget for each poll counts as absent, because it might do so forever.
#[test]
fn a_timeout_over_more_waits_than_a_step_may_poll_is_over() {
    let ended = driven().block_on(async {
        let process = spawn(async {
            let none = Notify::new();
            let waits = (0..2 * BUDGET).map(|_| Box::pin(none.notified())).collect();
            let mut first = pin!(first(waits));
            let in_time = timeout(Duration::ZERO, first.as_mut()).await;
            (in_time, Select::new().wait_for(first, |()| true).or_else(|| false).await)
        });
        process.await
    });
    assert_eq!(ended, Ok((Err(Elapsed), false)));
}

#[test]
fn a_loop_over_what_was_left_lets_others_run() {
    const COUNT: u32 = 10 * BUDGET;
    let has_run = |flag: &Arc<AtomicBool>| flag.swap(false, Relaxed);
    let outcomes = driven().block_on(async move {
        let child = procession::start(move |mut cx: Context<u32>| async move {
            let flag = Arc::new(AtomicBool::new(false));
            let other = || {
                let flag = flag.clone();
                spawn(async move { flag.store(true, Relaxed) }).detach();
            };
            (0..=COUNT).for_each(|n| cx.address().send(n).expect("it is alive"));
            assert_eq!(cx.recv_matching(|n| *n == COUNT).await, Some(COUNT));
            yield_now().await;
            other();
            for n in 0..COUNT {
                assert_eq!(cx.recv_matching(|_| true).await, Some(n));
            }
            let by_messages = has_run(&flag);
            let monitors = monitor_ended(&mut cx, COUNT).await;
            cx.address().send(0).expect("it is alive");
            assert_eq!(cx.recv().await, Some(0));
            yield_now().await;
            other();
            for monitor in monitors {
                assert!(cx.down(monitor).await.is_some());
            }
            (by_messages, has_run(&flag))
        });
        child.await
    });
    assert_eq!(outcomes, Ok((true, true)));
}
