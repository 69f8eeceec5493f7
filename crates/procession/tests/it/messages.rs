//! Sending, receiving, calling; mailboxes of threads.

mod calls;
mod receives;
mod searches;
mod urgent;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::observe::ProcessInfo;
use procession::sync::RecvError;
use procession::time::Elapsed;
use procession::{Address, Child, Context, Exit, Scheduler};

use crate::home::Barrier;
use crate::scene::{assert_conserved, driven, threaded};

const HOUR: Duration = Duration::from_secs(3600);

/// Polls `future` once, and drops it.
async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}

/// Returns the snapshot of the only process.
fn only(scheduler: &Scheduler) -> ProcessInfo {
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
            crate::home::thread::scope(|scope| {
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
        assert_eq!(cx.try_recv(), Err(RecvError::Closed));
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
    assert!(procession::process::cancel(matches.pid()));
    assert!(procession::process::cancel(waits.pid()));
    assert_eq!(receives.join(), Ok(None));
    assert_eq!(matches.join(), Ok((None, Ok(1))), "what is not wanted is left");
    assert_eq!(waits.join(), Ok(true));
}

#[test]
fn a_look_into_an_empty_mailbox_says_whether_the_process_was_cancelled() {
    let scheduler = driven();
    let looks = scheduler.start(|mut cx: Context<u8>| async move {
        let before = cx.try_recv();
        cx.cancelled().await;
        (before, cx.try_recv(), cx.try_recv())
    });
    scheduler.run_until_idle();
    looks.send(1).expect("it lives");
    looks.cancel();
    let closed = Err(RecvError::Closed);
    assert_eq!(looks.join(), Ok((Err(RecvError::Empty), Ok(1), closed)));
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
    procession::process::kill(child.pid());
    assert_eq!(child.join(), Err(Exit::Killed));
    let snapshot = scheduler.snapshot();
    let counts = (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
    assert_eq!(counts, (6, 3, 3), "also those that it had taken out of the mailbox");
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
        crate::home::thread::scope(|scope| {
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
fn a_cancel_closes_the_mailbox_of_a_thread() {
    for scheduler in [driven(), threaded(1)] {
        let mut inbox = scheduler.attach::<u32>();
        let pid = inbox.pid();
        inbox.address().send(1).expect("the thread is there");
        crate::home::thread::scope(|scope| {
            let cancels = scope.spawn(|| procession::process::cancel(pid));
            // The cancel comes before the wait, or wakes it.
            assert_eq!(inbox.recv(), Some(1), "what has come is received");
            assert_eq!(inbox.recv(), None);
            assert!(cancels.join().expect("it does not panic"), "there was a mailbox");
        });
        // The process behind the mailbox closes it in its last step.
        scheduler.run_until_idle();
        inbox.address().send(2).expect_err("it is closed");
        assert!(!procession::process::cancel(pid), "it has ended");
    }
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
