//! Selects over channels, timers, the mailbox and other futures.

use std::future::Future;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, Select, SendError, channel};
use procession::{Context, sleep, spawn, start};

use crate::scene::{driven, threaded};

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

#[test]
fn one_arm_acts_and_the_others_are_untouched() {
    let (a, from_a) = channel::bounded(1);
    let (b, from_b) = channel::bounded(1);
    let (c, _from_c) = channel::bounded(1);
    let mut seen = [0; 3];
    for _ in 0..300 {
        let _ = (a.try_send(1), b.try_send(2));
        let chosen = Select::new()
            .recv(&from_a, |n| n.expect("it is open"))
            .recv(&from_b, |n| n.expect("it is open"))
            .send(&c, 3, |sent| sent.map(|()| 3).expect("it is open"))
            .wait();
        seen[chosen - 1] += 1;
        let held = [from_a.len(), from_b.len(), _from_c.len()];
        let expected =
            [usize::from(chosen != 1), usize::from(chosen != 2), usize::from(chosen == 3)];
        assert_eq!(held, expected);
        let _ = _from_c.try_recv();
    }
    assert!(seen.iter().all(|&times| times > 50), "the choice is fair: {seen:?}");
}

/// Goal: ready arms are chosen with equal chance, whatever arms are between them. Method: two of
/// six arms are ready. A search that begins anywhere and goes on in order would find the second one
/// four times as often.
#[test]
fn chance_does_not_depend_on_the_place_of_an_arm() {
    const ROUNDS: u32 = 600;
    let (never, from_never) = channel::bounded::<u32>(1);
    let (a, from_a) = channel::bounded(1);
    let (b, from_b) = channel::bounded(1);
    let mut first = 0;
    for _ in 0..ROUNDS {
        let _ = (a.try_send(1), b.try_send(0));
        let mut select = Select::new().recv(&from_a, |n| n).recv(&from_b, |n| n);
        for _ in 0..4 {
            select = select.recv(&from_never, |n| n);
        }
        first += select.wait().expect("they are open");
    }
    // By chance, even odds miss this once in 10^20.
    assert!((ROUNDS * 3 / 10..ROUNDS * 7 / 10).contains(&first), "{first} of {ROUNDS}");
    drop(never);
}

#[test]
fn arms_that_wait_for_one_channel_are_served_with_equal_chance() {
    const ROUNDS: usize = 600;
    let (receives, sends) = (channel::bounded(0), channel::bounded(0));
    let mut seen = [[0; 3]; 2];
    for _ in 0..ROUNDS {
        let mut waits = Select::new();
        for arm in 0..3 {
            waits = waits.recv(&receives.1, move |_| arm);
        }
        let mut waits = pin!(waits);
        assert!(poll_once(waits.as_mut()).is_pending());
        receives.0.try_send(()).expect("it waits");
        let Poll::Ready(arm) = poll_once(waits.as_mut()) else { panic!("it was served") };
        seen[0][arm] += 1;
        let mut waits = Select::new();
        for arm in 0..3 {
            waits = waits.send(&sends.0, arm, |sent| sent.expect("it is open"));
        }
        let mut waits = pin!(waits);
        assert!(poll_once(waits.as_mut()).is_pending());
        seen[1][sends.1.try_recv().expect("it waits")] += 1;
        assert!(poll_once(waits.as_mut()).is_ready());
    }
    // By chance, even odds miss this once in 10^9.
    assert!(seen.iter().flatten().all(|&times| times > ROUNDS / 5), "{seen:?}");
}

#[test]
fn a_select_with_a_default_does_not_wait() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        let mut ticks = pin!(sleep(Duration::from_secs(1)));
        let mut looks = async || {
            Select::new()
                .recv(&receiver, |n: Option<u32>| format!("{n:?}"))
                .wait_for(ticks.as_mut(), |()| "tick".to_owned())
                .or_else(|| "nothing".to_owned())
                .or_else(|| "the second is never asked".to_owned())
                .await
        };
        assert_eq!(looks().await, "nothing");
        sender.try_send(1).expect("there is room");
        assert_eq!(looks().await, "Some(1)");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(looks().await, "tick");
        assert_eq!(Select::new().or_else(|| 7).await, 7, "it needs no arm");
        sender.try_send(2).expect("it has left no place in a list");
        assert_eq!(receiver.try_recv(), Ok(2));
    });
}

#[test]
fn a_select_that_waits_is_served_by_one() {
    let (a, from_a) = channel::bounded(0);
    let (b, from_b) = channel::bounded(0);
    let mut select = pin!(Select::new().recv(&from_a, |n| (0, n)).recv(&from_b, |n| (1, n)));
    assert!(poll_once(select.as_mut()).is_pending());
    assert_eq!(b.try_send(7), Ok(()));
    assert_eq!(a.try_send(8), Err(SendError::Full(8)), "it has chosen");
    assert_eq!(b.try_send(9), Err(SendError::Full(9)));
    assert_eq!(poll_once(select.as_mut()), Poll::Ready((1, Some(7))));
    assert!(poll_once(select.as_mut()).is_pending(), "it is over");
}

#[test]
fn a_select_that_is_dropped_loses_nothing() {
    let (a, from_a) = channel::bounded(0);
    let (b, from_b) = channel::bounded(0);
    let mut select = Box::pin(Select::new().recv(&from_a, |_| ()).recv(&from_b, |_| ()));
    assert!(poll_once(select.as_mut()).is_pending());
    a.try_send(1).expect("it waits");
    drop(select);
    assert_eq!(from_a.try_recv(), Ok(1));
    assert_eq!(b.try_send(2), Err(SendError::Full(2)), "the select does not wait there any more");
    assert_eq!(from_b.try_recv(), Err(RecvError::Empty));
    let mut select = Box::pin(Select::new().send(&a, 3, |_| ()).send(&b, 4, |_| ()));
    assert!(poll_once(select.as_mut()).is_pending());
    assert_eq!(from_b.try_recv(), Ok(4));
    assert_eq!(from_a.try_recv(), Err(RecvError::Empty), "it has chosen");
    assert!(poll_once(select.as_mut()).is_ready());
}

#[test]
fn a_closed_channel_is_a_ready_arm() {
    let (a, from_a) = channel::bounded::<u32>(0);
    let (b, from_b) = channel::bounded::<u32>(0);
    let mut select =
        pin!(Select::new().recv(&from_a, |n| n.is_none()).send(&b, 1, |sent| sent.is_err()));
    assert!(poll_once(select.as_mut()).is_pending());
    drop(a);
    drop(from_b);
    assert_eq!(poll_once(select.as_mut()), Poll::Ready(true));
}

#[test]
fn a_select_never_meets_itself() {
    let (sender, receiver) = channel::bounded(0);
    let mut select = pin!(Select::new().recv(&receiver, |n| n).send(&sender, 1, |_| None));
    assert!(poll_once(select.as_mut()).is_pending());
    assert_eq!(receiver.try_recv(), Ok(1), "another can");
    assert_eq!(poll_once(select.as_mut()), Poll::Ready(None));
}

#[test]
fn two_selects_meet() {
    for width in [1, 3] {
        threaded(width).block_on(async {
            let (to, from) = channel::bounded(0);
            let (other_to, other_from) = channel::bounded::<u32>(0);
            let one = spawn(async move {
                let mut met = Vec::new();
                for n in 0..500 {
                    let select = Select::new()
                        .send(&to, n, |sent| sent.is_ok().then_some(("to", n)))
                        .recv(&other_from, |n| n.map(|n| ("from", n)))
                        .timeout(Duration::from_secs(60), || None);
                    met.push(select.await.expect("they meet"));
                }
                met
            });
            let mut met = Vec::new();
            for n in 0..500 {
                let select = Select::new()
                    .recv(&from, |n| n.map(|n| ("to", n)))
                    .send(&other_to, n, |sent| sent.is_ok().then_some(("from", n)))
                    .timeout(Duration::from_secs(60), || None);
                met.push(select.await.expect("they meet"));
            }
            assert_eq!(one.await, Ok(met), "in the same channel each time");
        });
    }
}

#[test]
fn a_timer_ends_a_select() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(0);
        let silence = Select::new()
            .recv(&receiver, |_: Option<u32>| false)
            .timeout(Duration::from_secs(5), || true)
            .await;
        assert!(silence);
        let sends = spawn(async move {
            sleep(Duration::from_secs(1)).await;
            sender.send(1).await
        });
        let message =
            Select::new().recv(&receiver, |n| n).timeout(Duration::from_secs(5), || None).await;
        assert_eq!(message, Some(1));
        assert_eq!(sends.await, Ok(Ok(())));
    });
}

#[test]
fn the_mailbox_and_the_end_of_a_process_are_arms() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(0);
        let child = start(move |mut cx: Context<&'static str>| async move {
            let mut seen = Vec::new();
            let ends = spawn(async { sleep(Duration::from_secs(10)).await });
            let mut ends = Some(ends);
            while seen.len() < 4 {
                let mut select = Select::new()
                    .recv(&receiver, |n: Option<u32>| format!("{n:?}"))
                    .wait_for(cx.recv(), |message| format!("{message:?}"));
                if let Some(handle) = &mut ends {
                    select = select.wait_for(handle, |ended| format!("{ended:?}"));
                }
                let what = select.await;
                if what == "Ok(())" {
                    ends = None;
                }
                seen.push(what);
            }
            seen
        });
        sleep(Duration::from_secs(1)).await;
        child.send("one").expect("it is there");
        sleep(Duration::from_secs(1)).await;
        sender.send(2).await.expect("it waits");
        sleep(Duration::from_secs(60)).await;
        child.send("three").expect("it is there");
        let seen = child.await.expect("it does not panic");
        assert_eq!(seen, ["Some(\"one\")", "Some(2)", "Ok(())", "Some(\"three\")"]);
    });
}

#[test]
fn many_selects_share_channels_and_lose_nothing() {
    const MESSAGES: u32 = 300;
    threaded(3).block_on(async {
        let channels: Vec<_> = (0..3).map(channel::bounded::<u32>).collect();
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let from: Vec<_> = channels.iter().map(|(_, receiver)| receiver.clone()).collect();
                spawn(async move {
                    let mut own = Vec::new();
                    let mut ended = [false; 3];
                    while !ended.iter().all(|&ended| ended) {
                        let mut select = Select::new();
                        for (number, from) in
                            from.iter().enumerate().filter(|&(number, _)| !ended[number])
                        {
                            select = select.recv(from, move |n| (number, n));
                        }
                        match select.await {
                            (_, Some(n)) => own.push(n),
                            (number, None) => ended[number] = true,
                        }
                    }
                    own
                })
            })
            .collect();
        let senders: Vec<_> = channels
            .into_iter()
            .enumerate()
            .map(|(number, (sender, _))| {
                spawn(async move {
                    for n in 0..MESSAGES {
                        sender.send(number as u32 * MESSAGES + n).await.expect("they are there");
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.expect("it does not panic");
        }
        let mut all = Vec::new();
        for receiver in receivers {
            all.extend(receiver.await.expect("it does not panic"));
        }
        all.sort_unstable();
        assert_eq!(all, (0..3 * MESSAGES).collect::<Vec<_>>());
    });
}
