//! Receives: dropped, with a filter, with a timeout, and in combinators.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::Duration;

use procession::Context;
use procession::sync::RecvError;
use procession::time::Elapsed;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Release};

use super::{HOUR, poll_once};
use crate::scene::{assert_conserved, driven, threaded};

#[test]
fn a_receive_that_is_dropped_loses_nothing() {
    const MESSAGES: u32 = 3000;
    for scheduler in [driven(), threaded(1), threaded(4)] {
        let child = scheduler.start(|mut cx: Context<u32>| async move {
            let mut received = Vec::new();
            let mut dropped = 0;
            while received.len() < MESSAGES as usize {
                // A select with an arm that is ready immediately. Every other time, with a receive
                // that skips some messages.
                let polled = if dropped % 2 == 0 {
                    poll_once(cx.recv()).await
                } else {
                    poll_once(cx.recv_matching(|n| n % 3 == 0)).await
                };
                match polled {
                    Poll::Ready(message) => received.extend(message),
                    Poll::Pending => {
                        dropped += 1;
                        procession::yield_now().await;
                    }
                }
            }
            (received, cx.try_recv(), dropped)
        });
        for half in 0..2 {
            for n in MESSAGES / 2 * half..MESSAGES / 2 * (half + 1) {
                child.send(n).expect("it lives");
            }
        }
        let (mut received, more, dropped) = child.join().expect("it ends");
        assert_eq!(more, Err(RecvError::Empty));
        assert!(dropped > 0, "the case was not met");
        received.sort_unstable();
        assert!(received.into_iter().eq(0..MESSAGES));
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_receive_that_was_dropped_wakes_nobody() {
    let scheduler = driven();
    let (release, gate) =
        scheduler.start(|mut cx: Context<()>| async move { cx.recv().await }).into_parts();
    let child = scheduler.start(move |mut cx: Context<u8>| async move {
        assert!(poll_once(cx.recv()).await.is_pending());
        // The process waits for something else now.
        gate.await.expect("it ends");
        cx.try_recv().ok()
    });
    scheduler.run_until_idle();
    let steps = || {
        let snapshot = scheduler.snapshot();
        snapshot
            .processes
            .iter()
            .find(|process| process.pid == child.pid())
            .expect("it lives")
            .steps
    };
    let before = steps();
    child.send(1).expect("it lives");
    scheduler.run_until_idle();
    assert_eq!(steps(), before, "a message that is not waited for is queued without a step");
    release.send(()).expect("it lives");
    assert_eq!(child.join(), Ok(Some(1)));
}

#[test]
fn receive_matching_keeps_the_order_of_what_it_skips() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let mut order = Vec::new();
        order.extend(cx.recv_matching(|n| n % 10 == 0).await);
        order.extend(cx.recv_matching(|n| n % 10 == 5).await);
        order.extend(cx.recv_matching(|_| true).await);
        order.extend(cx.try_recv());
        order.extend(cx.recv_matching(|&n| n == 30).await);
        // Then all the rest, old before new.
        while let Some(message) = cx.recv().await {
            order.push(message);
        }
        order
    });
    for n in [1, 2, 10, 3, 15, 4, 20] {
        child.send(n).expect("it lives");
    }
    scheduler.run_until_idle();
    for n in [30, 6] {
        child.send(n).expect("it lives");
    }
    child.cancel();
    assert_eq!(child.join(), Ok(vec![10, 15, 1, 2, 30, 3, 4, 20, 6]));
    assert_conserved(&scheduler);
}

#[test]
fn receive_matching_looks_at_each_message_once() {
    const MESSAGES: usize = 100_000;
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<usize>| async move {
        let mut looks = 0;
        let counted = |wanted: usize| {
            move |n: &usize, looks: &mut usize| {
                *looks += 1;
                *n == wanted
            }
        };
        let wanted = counted(MESSAGES);
        let first = cx.recv_matching(|n| wanted(n, &mut looks)).await;
        let first_looks = looks;
        let wanted = counted(MESSAGES + 1);
        let second = cx.recv_matching(|n| wanted(n, &mut looks)).await;
        let second_looks = looks - first_looks;
        let oldest = cx.recv().await;
        (first, first_looks, second, second_looks, oldest)
    });
    // The messages come in portions, so that the receive is woken again and again.
    for n in 0..=MESSAGES {
        child.send(n).expect("it lives");
        if n % 1000 == 0 {
            scheduler.run_until_idle();
        }
    }
    scheduler.run_until_idle();
    child.send(MESSAGES + 1).expect("it lives");
    let all = MESSAGES + 1;
    let expected = (Some(MESSAGES), all, Some(MESSAGES + 1), all, Some(0));
    assert_eq!(child.join(), Ok(expected));
}

#[test]
fn a_receive_that_times_out_leaves_the_mailbox_as_it_was() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u8>| async move {
        let before = procession::time::Instant::now();
        let none = cx.recv_timeout(HOUR).await;
        let waited = procession::time::Instant::now() - before;
        cx.address().send(1).expect("it lives");
        cx.address().send(2).expect("it lives");
        let matched = procession::timeout(HOUR, cx.recv_matching(|&n| n == 9)).await;
        let rest = (cx.recv_timeout(Duration::ZERO).await, cx.recv_timeout(Duration::MAX).await);
        (none, waited, matched, rest)
    });
    assert_eq!(child.join(), Ok((Err(Elapsed), HOUR, Err(Elapsed), (Ok(Some(1)), Ok(Some(2))))));
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn try_receive_takes_what_is_there() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u8>| async move {
        let own = cx.address();
        let empty = cx.try_recv();
        own.send(1).expect("it lives");
        own.send(2).expect("it lives");
        let matched = cx.recv_matching(|&n| n == 2).await;
        (empty, matched, cx.try_recv(), cx.try_recv())
    });
    let empty = Err(RecvError::Empty);
    assert_eq!(child.join(), Ok((empty, Some(2), Ok(1), empty)));
}

#[test]
#[should_panic(expected = "a context receives in its own process only")]
fn a_context_does_not_receive_for_another_process() {
    let scheduler = driven();
    let mut cx = scheduler.start(|cx: Context<u8>| async move { cx }).join().expect("it ends");
    scheduler.block_on(cx.recv());
}

/// Two futures, each polled only if its own waker was woken.
struct Both<A: Future, B: Future> {
    first: Option<(Pin<Box<A>>, Arc<Own>)>,
    second: Option<(Pin<Box<B>>, Arc<Own>)>,
    outputs: (Option<A::Output>, Option<B::Output>),
}

struct Own {
    woken: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Release);
        let parent = self.parent.lock().clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

impl Own {
    fn poll<F: Future>(
        child: &mut Option<(Pin<Box<F>>, Arc<Self>)>,
        output: &mut Option<F::Output>,
        task: &mut Task<'_>,
    ) {
        let Some((future, own)) = child else { return };
        *own.parent.lock() = Some(task.waker().clone());
        if own.woken.swap(false, Acquire)
            && let Poll::Ready(ready) =
                future.as_mut().poll(&mut Task::from_waker(&Waker::from(Arc::clone(own))))
        {
            *output = Some(ready);
            *child = None;
        }
    }
}

impl<A: Future, B: Future> Both<A, B> {
    fn new(first: A, second: B) -> Self {
        let own = || Arc::new(Own { woken: AtomicBool::new(true), parent: Mutex::new(None) });
        Self {
            first: Some((Box::pin(first), own())),
            second: Some((Box::pin(second), own())),
            outputs: (None, None),
        }
    }
}

impl<A: Future<Output: Unpin>, B: Future<Output: Unpin>> Future for Both<A, B> {
    type Output = (A::Output, B::Output);

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let both = self.get_mut();
        Own::poll(&mut both.first, &mut both.outputs.0, task);
        Own::poll(&mut both.second, &mut both.outputs.1, task);
        match (both.outputs.0.take(), both.outputs.1.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            outputs => {
                both.outputs = outputs;
                Poll::Pending
            }
        }
    }
}

#[test]
fn a_receive_in_a_combinator_is_woken_by_messages_and_by_a_cancel() {
    for scheduler in [driven(), threaded(1), threaded(2)] {
        // Each message comes when the process waits, or all of them come before.
        for step_by_step in [true, false] {
            let gate = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
            let (release, gate) = gate.into_parts();
            let child = scheduler.start(|mut cx: Context<u32>| async move {
                let receives = async {
                    let mut received = Vec::new();
                    while let Some(message) = cx.recv().await {
                        received.push(message);
                    }
                    received
                };
                let received = Both::new(gate, receives).await.1;
                (received, Both::new(cx.recv(), async {}).await.0)
            });
            for n in 1..=3 {
                if step_by_step {
                    scheduler.run_until_idle();
                }
                child.send(n).expect("it lives");
            }
            scheduler.run_until_idle();
            let snapshot = scheduler.snapshot();
            let process = snapshot
                .processes
                .iter()
                .find(|process| process.pid == child.pid())
                .expect("it lives");
            assert_eq!((process.received, process.mailbox), (3, 0));
            assert!(process.steps <= 8, "it runs on and on: {} steps", process.steps);
            child.cancel();
            scheduler.run_until_idle();
            release.send(()).expect("it lives");
            assert_eq!(child.join(), Ok((vec![1, 2, 3], None)));
        }
    }
}

#[test]
fn a_wait_for_a_cancel_in_a_combinator_is_woken() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let cancelled = poll_once(cx.cancelled()).await.is_ready();
        let own = cx.address();
        // Two waits for the same thing, each with its own waker, and then a third that is dropped.
        Both::new(cx.cancelled(), async { cx.cancelled().await }).await;
        own.send(1).expect("it lives");
        (cancelled, poll_once(cx.cancelled()).await.is_ready(), cx.recv().await)
    });
    scheduler.run_until_idle();
    child.cancel();
    assert_eq!(child.join(), Ok((false, true, Some(1))));
}
