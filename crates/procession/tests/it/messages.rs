//! Sending, receiving, calling; mailboxes of threads.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::Duration;

use procession::snapshot::ProcessSnapshot;
use procession::time::Elapsed;
use procession::{Address, CallError, Child, Context, Exit, Reply, Scheduler};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Release};

use crate::scene::{assert_conserved, driven, panic_quietly, soon, threaded};

const HOUR: Duration = Duration::from_secs(3600);

/// Polls `future` once, and drops it.
async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}

/// Returns the snapshot of the only process.
fn only(scheduler: &Scheduler) -> ProcessSnapshot {
    let mut processes = scheduler.snapshot().processes;
    assert_eq!(processes.len(), 1);
    processes.remove(0)
}

/// Starts a process that collects everything that it receives.
fn collector<M: Send + 'static>(scheduler: &Scheduler) -> Child<M, Vec<M>> {
    scheduler.start(|mut cx: Context<M>| async move {
        let mut received = Vec::new();
        while let Some(message) = cx.recv().await {
            received.push(message);
        }
        received
    })
}

#[test]
fn messages_of_one_sender_arrive_in_their_order() {
    const SENDERS: u32 = 8;
    const EACH: u32 = 2000;
    for width in [1, 2, 4] {
        for builder in [
            Scheduler::builder(),
            Scheduler::builder().shuffled(),
            Scheduler::builder().callers_drive(),
        ] {
            let scheduler = builder.worker_threads(width).build().expect("the system has threads");
            let receiver = collector::<(u32, u32)>(&scheduler);
            let send_some = |sender, address: Address<(u32, u32)>| {
                for n in 0..EACH {
                    if n % 2 == 0 {
                        address.send((sender, n)).expect("it lives");
                    } else {
                        procession::mailbox::send(address.pid(), (sender, n)).expect("it lives");
                    }
                }
            };
            let inside: Vec<_> = (0..SENDERS / 2)
                .map(|sender| {
                    let address = receiver.address().clone();
                    scheduler.spawn(async move {
                        for n in 0..EACH {
                            address.send((sender, n)).expect("it lives");
                            if n % 100 == 0 {
                                procession::yield_now().await;
                            }
                        }
                    })
                })
                .collect();
            std::thread::scope(|scope| {
                for sender in SENDERS / 2..SENDERS {
                    let address = receiver.address().clone();
                    scope.spawn(move || send_some(sender, address));
                }
                for handle in inside {
                    handle.join().expect("it ends");
                }
            });
            receiver.cancel();
            let mut next = [0; SENDERS as usize];
            for (sender, n) in receiver.join().expect("it ends") {
                assert_eq!(n, next[sender as usize], "sender {sender}");
                next[sender as usize] += 1;
            }
            assert_eq!(next, [EACH; SENDERS as usize]);
        }
    }
}

#[test]
fn a_message_to_an_ended_process_comes_back() {
    let scheduler = driven();
    let child = scheduler.start(|_: Context<String>| async {});
    let (address, handle) = child.into_parts();
    assert_eq!(handle.join(), Ok(()));
    let pid = address.pid();
    for error in [
        address.send("by address".into()).expect_err("it has ended"),
        address.clone().send("by another address".into()).expect_err("it has ended"),
        procession::mailbox::send(pid, String::from("by PID")).expect_err("it has ended"),
    ] {
        assert!(error.is_ended() && !error.is_wrong_type());
        assert!(error.message().starts_with("by"), "{}", error.message());
        assert_eq!(error.to_string(), format!("cannot send to {pid}: the process has ended"));
    }
    // The type does not matter any more.
    assert!(procession::mailbox::send(pid, 1_u8).expect_err("it has ended").is_ended());
    assert_eq!(scheduler.snapshot().messages_sent, 0);
}

#[test]
fn a_message_of_another_type_comes_back() {
    let scheduler = driven();
    let child = collector::<u32>(&scheduler);
    let plain = scheduler.spawn(async { std::future::pending::<()>().await });
    for pid in [child.pid(), plain.pid()] {
        let error = procession::mailbox::send(pid, String::from("text"))
            .expect_err("it does not receive text");
        assert!(error.is_wrong_type() && !error.is_ended());
        let text = error.to_string();
        assert_eq!(error.into_inner(), "text");
        assert!(
            text.starts_with(&format!(
                "cannot send to {pid}: the message is of type alloc::string::String, but"
            )),
            "{text}"
        );
    }
    // Types that look alike are still different types.
    assert!(
        procession::mailbox::send(child.pid(), 1_i32)
            .expect_err("it receives u32")
            .to_string()
            .ends_with("receives u32")
    );
    procession::mailbox::send(child.pid(), 1_u32).expect("it receives u32");
    child.cancel();
    assert_eq!(child.join(), Ok(vec![1]));
}

#[test]
fn after_a_cancel_the_mailbox_is_drained_before_receive_ends() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let mut received = Vec::new();
        let own = cx.address();
        while let Some(message) = cx.recv().await {
            received.push((message, cx.is_cancelled()));
            if message == 3 {
                // The process lives, so its mailbox is open.
                own.send(5).expect("it lives");
            }
        }
        assert_eq!(cx.recv().await, None, "and again");
        assert_eq!(cx.try_recv(), None);
        // A message that comes after the end of a receive goes to the next one.
        own.send(6).expect("it lives");
        (received, cx.recv().await)
    });
    scheduler.run_until_idle();
    for n in 1..=3 {
        child.send(n).expect("it lives");
    }
    child.cancel();
    child.send(4).expect("it lives");
    let received = vec![(1, true), (2, true), (3, true), (4, true), (5, true)];
    assert_eq!(child.join(), Ok((received, Some(6))));
    assert_conserved(&scheduler);
}

/// A context may leave its process as part of the result.
#[test]
fn a_context_knows_of_the_cancel_after_the_end() {
    let scheduler = driven();
    let process = scheduler.start(|cx: Context<()>| async move {
        cx.cancelled().await;
        cx
    });
    process.cancel();
    let cx = process.join().expect("it ends by itself");
    assert!(cx.is_cancelled());
    scheduler.block_on(cx.cancelled());
}

#[test]
fn a_cancel_wakes_a_receive_and_the_waiters_for_it() {
    let scheduler = driven();
    let receives = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let matches = scheduler.start(|mut cx: Context<u8>| async move {
        let wanted = cx.recv_matching(|&n| n == 9).await;
        (wanted, cx.try_recv())
    });
    let waits = scheduler.start(|cx: Context<()>| async move {
        cx.cancelled().await;
        cx.cancelled().await;
        cx.is_cancelled()
    });
    matches.send(1).expect("it lives");
    scheduler.run_until_idle();
    receives.cancel();
    assert!(scheduler.cancel(matches.pid()));
    assert!(scheduler.cancel(waits.pid()));
    assert_eq!(receives.join(), Ok(None));
    assert_eq!(matches.join(), Ok((None, Some(1))), "what is not wanted is left");
    assert_eq!(waits.join(), Ok(true));
}

#[test]
fn a_cancel_before_the_first_step_is_not_lost() {
    let scheduler = driven();
    let child = collector::<u8>(&scheduler);
    child.send(1).expect("it lives");
    child.cancel();
    child.cancel();
    assert_eq!(child.join(), Ok(vec![1]));
}

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
        assert_eq!(more, None);
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
        cx.try_recv()
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
fn a_receive_out_of_patience_leaves_the_mailbox_as_it_was() {
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
    assert_eq!(child.join(), Ok((None, Some(2), Some(1), None)));
}

#[test]
fn the_snapshot_shows_the_mailbox() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u8>| async move {
        for _ in 0..3 {
            cx.recv().await;
        }
        std::future::pending::<()>().await;
    });
    for n in 0..5 {
        child.send(n).expect("it lives");
    }
    let before = only(&scheduler);
    assert_eq!(
        (before.mailbox, before.mailbox_high_water, before.received, before.steps),
        (5, 5, 0, 0)
    );
    scheduler.run_until_idle();
    child.send(9).expect("it lives");
    let after = only(&scheduler);
    assert_eq!(
        (after.mailbox, after.mailbox_high_water, after.received, after.steps),
        (3, 5, 3, 1)
    );
    scheduler.terminate(child.pid());
    assert_eq!(child.join(), Err(Exit::Killed));
    let snapshot = scheduler.snapshot();
    let counts = (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
    assert_eq!(counts, (6, 3, 3), "also those that it had taken out of the mailbox");
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

#[test]
fn a_call_is_replied_to() {
    let scheduler = driven();
    let doubler = scheduler.start(|mut cx: Context<(u32, Reply<u32>)>| async move {
        while let Some((n, reply)) = cx.recv().await {
            assert!(!reply.is_abandoned());
            reply.send(n * 2);
        }
    });
    // From a block-on future, from a process, and through another process.
    assert_eq!(scheduler.block_on(doubler.call(|reply| (1, reply), HOUR)).ok(), Some(2));
    let address = doubler.address().clone();
    let inside = scheduler.spawn(async move { address.call(|reply| (2, reply), HOUR).await });
    assert_eq!(inside.join().expect("it ends").ok(), Some(4));
    let address = doubler.address().clone();
    let front = scheduler.start(move |mut cx: Context<Reply<u32>>| async move {
        if let Some(reply) = cx.recv().await {
            address.send((3, reply)).expect("it lives");
        }
    });
    assert_eq!(scheduler.block_on(front.call(|reply| reply, HOUR)).ok(), Some(6));
    assert_eq!(scheduler.now() - procession::time::Instant::NEVER, Duration::ZERO);
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn a_call_without_a_reply_says_why() {
    let scheduler = driven();
    let drops = scheduler
        .start(|mut cx: Context<Reply<u32>>| async move { while cx.recv().await.is_some() {} });
    assert!(matches!(scheduler.block_on(drops.call(|reply| reply, HOUR)), Err(CallError::NoReply)));

    let ends = scheduler.start(|mut cx: Context<Option<Reply<u32>>>| async move {
        // The reply is in the mailbox behind this message, and is never received.
        cx.recv().await;
    });
    let (address, handle) = ends.into_parts();
    address.send(None).expect("it lives");
    assert!(
        matches!(scheduler.block_on(address.call(Some, HOUR)), Err(CallError::NoReply)),
        "it ended"
    );
    assert_eq!(handle.join(), Ok(()));
    assert!(matches!(scheduler.block_on(address.call(Some, HOUR)), Err(CallError::Refused(_))));

    let panics = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        let _reply = cx.recv().await;
        panic_quietly("with the reply in hand")
    });
    assert!(
        matches!(scheduler.block_on(panics.call(|reply| reply, HOUR)), Err(CallError::NoReply)),
        "it panicked"
    );

    let keeps = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        let _reply = cx.recv().await;
        std::future::pending::<()>().await;
    });
    let pid = keeps.pid();
    let terminator = scheduler.clone();
    drop(scheduler.spawn(async move {
        procession::sleep(Duration::from_secs(1)).await;
        terminator.terminate(pid);
    }));
    assert!(
        matches!(scheduler.block_on(keeps.call(|reply| reply, HOUR)), Err(CallError::NoReply)),
        "it was terminated"
    );
    let texts = [CallError::<()>::NoReply, CallError::Elapsed].map(|error| error.to_string());
    assert_eq!(texts, ["the process gave no reply", "no reply came in time"]);
    let refused = scheduler.block_on(keeps.call(|reply| reply, HOUR)).expect_err("it has ended");
    assert_eq!(refused.to_string(), "cannot call: the message was refused");
    let CallError::Refused(error) = refused else { unreachable!("it was refused") };
    assert!(error.to_string().ends_with("the process has ended"), "{error}");
    assert_eq!(error.into_inner().try_send(1), Err(1), "the message is there, its caller is not");
}

#[test]
fn a_late_reply_is_discarded() {
    let scheduler = driven();
    let slow = scheduler.start(|mut cx: Context<Reply<String>>| async move {
        let reply = cx.recv().await.expect("a call");
        procession::sleep(HOUR * 2).await;
        let abandoned = reply.is_abandoned();
        (abandoned, reply.try_send("too late".into()))
    });
    let (address, handle) = slow.into_parts();
    let before = scheduler.now();
    assert!(matches!(
        scheduler.block_on(address.call(|reply| reply, HOUR)),
        Err(CallError::Elapsed)
    ));
    assert_eq!(scheduler.now() - before, HOUR, "not earlier, and on the test clock not later");
    assert_eq!(handle.join(), Ok((true, Err("too late".into()))), "the reply comes back");
}

#[test]
fn a_call_that_is_dropped_is_abandoned() {
    let scheduler = driven();
    let (tell, told) = mpsc::channel();
    let child = scheduler.start(|mut cx: Context<Reply<u8>>| async move {
        let reply = cx.recv().await.expect("a call");
        tell.send(reply.is_abandoned()).expect("the test waits");
        reply.try_send(1)
    });
    let address = child.address().clone();
    let polled =
        scheduler.block_on(async move { poll_once(address.call(|reply| reply, HOUR)).await });
    assert!(polled.is_pending());
    assert_eq!(child.join(), Ok(Err(1)));
    assert!(soon(&told));
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn callers_and_repliers_on_all_workers_agree() {
    for width in [1, 2, 4] {
        let scheduler = threaded(width);
        let server = scheduler.start(|mut cx: Context<(u64, Reply<u64>)>| async move {
            while let Some((n, reply)) = cx.recv().await {
                // Some replies are given elsewhere.
                if n % 3 == 0 {
                    drop(procession::spawn(async move { reply.send(n + 1) }));
                } else if n % 3 == 1 {
                    reply.send(n + 1);
                }
            }
        });
        let callers: Vec<_> = (0..16_u64)
            .map(|_| {
                let address = server.address().clone();
                scheduler.spawn(async move {
                    for n in 0..200 {
                        match address.call(|reply| (n, reply), HOUR).await {
                            Ok(reply) => assert_eq!(reply, n + 1),
                            Err(error) => assert!(n % 3 == 2 && error.is_no_reply()),
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join(), Ok(()));
        }
        server.cancel();
        assert_eq!(server.join(), Ok(()));
    }
}

#[test]
fn a_thread_has_a_mailbox() {
    for scheduler in [driven(), threaded(2)] {
        let mut inbox = scheduler.attach::<u32>();
        let (address, pid) = (inbox.address().clone(), inbox.pid());
        for n in 0..100 {
            let address = address.clone();
            assert_eq!(scheduler.spawn(async move { address.send(n).is_ok() }).join(), Ok(true));
        }
        procession::mailbox::send(pid, 100_u32).expect("the thread is there");
        assert!((0..=100).all(|n| inbox.recv() == Some(n)));
        assert_eq!(inbox.recv_timeout(Duration::from_nanos(1)), Err(Elapsed));
        address.send(7).expect("the thread is there");
        assert_eq!(inbox.recv_timeout(HOUR), Ok(Some(7)));
        // A call to the thread, and back.
        drop(inbox);
        scheduler.run_until_idle();
        assert_eq!(address.send(8).expect_err("the thread has gone").into_inner(), 8);
    }
}

#[test]
fn threads_talk_to_each_other_through_their_mailboxes() {
    const ROUNDS: u32 = 300;
    for scheduler in [driven(), threaded(1), threaded(2)] {
        let begin = Barrier::new(2);
        let [mut left, mut right] = [scheduler.attach::<u32>(), scheduler.attach::<u32>()];
        let (to_left, to_right) = (left.address().clone(), right.address().clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                for n in 0..ROUNDS {
                    assert_eq!(right.recv(), Some(n));
                    to_left.send(n + 1).expect("the other thread is there");
                }
            });
            begin.wait();
            let mut n = 0;
            while n < ROUNDS {
                to_right.send(n).expect("the other thread is there");
                n = left.recv().expect("the scheduler is there");
            }
        });
    }
}

#[test]
fn the_mailbox_of_a_thread_ends_with_its_scheduler() {
    let scheduler = threaded(1);
    let mut inbox = scheduler.attach::<u32>();
    inbox.address().send(1).expect("the thread is there");
    let unfinished = scheduler.block_on(scheduler.shutdown(HOUR));
    assert!(unfinished.is_empty());
    assert_eq!(inbox.recv(), Some(1), "what has come is received");
    assert_eq!(inbox.recv(), None);
    assert_eq!(inbox.recv_timeout(HOUR), Ok(None));
}

#[test]
fn messages_cross_between_schedulers() {
    let [one, two] = [driven(), threaded(2)];
    let echo = two.start(|mut cx: Context<(u32, Address<u32>)>| async move {
        while let Some((n, back)) = cx.recv().await {
            back.send(n).expect("it lives");
        }
    });
    let to = echo.address().clone();
    let from = one.attach::<u32>();
    let back = from.address().clone();
    let mut from = from;
    for n in 0..200 {
        to.send((n, back.clone())).expect("it lives");
        assert_eq!(from.recv(), Some(n));
    }
    echo.cancel();
    assert_eq!(echo.join(), Ok(()));
}

#[test]
fn what_is_skipped_and_taken_is_discarded_at_the_end() {
    let scheduler = driven();
    let alive = Arc::new(());
    let child = scheduler.start(|mut cx: Context<(u32, Arc<()>)>| async move {
        // Two messages are skipped, one is received, one stays behind it in the batch, and one
        // comes later.
        let found = cx.recv_matching(|message| message.0 == 2).await.map(|message| message.0);
        cx.address().send((9, Arc::new(()))).expect("it lives");
        found
    });
    for n in 0..4 {
        child.send((n, Arc::clone(&alive))).expect("it lives");
    }
    let (address, handle) = child.into_parts();
    assert_eq!(handle.join(), Ok(Some(2)));
    assert_eq!(Arc::strong_count(&alive), 1, "all were dropped with the process");
    assert!(!address.is_alive());
    assert_conserved(&scheduler);
}

#[test]
fn a_long_backlog_is_dropped_without_a_long_stack() {
    let scheduler = driven();
    let child = scheduler.start(|_: Context<VecDeque<u8>>| async {});
    for _ in 0..200_000 {
        child.send(VecDeque::new()).expect("it lives");
    }
    assert_eq!(child.join(), Ok(()));
    assert_eq!(scheduler.snapshot().messages_discarded, 200_000);
}

#[test]
fn a_long_backlog_is_received_in_order() {
    let scheduler = driven();
    let child = collector::<u32>(&scheduler);
    for n in 0..200_000 {
        child.send(n).expect("it lives");
    }
    child.cancel();
    assert!(child.join().expect("it ends").into_iter().eq(0..200_000));
    let ended = scheduler.snapshot();
    assert_eq!((ended.messages_sent, ended.messages_received), (200_000, 200_000));
}
