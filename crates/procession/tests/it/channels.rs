//! Channels between processes and plain threads.

use crate::home::mpsc;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, Semaphore, SendError, channel};
use procession::time::Instant;
use procession::{sleep, spawn, timeout, yield_now};

use crate::scene::{driven, panic_quietly, soon_closed, threaded};

/// Polls a future once, with a waker that does nothing.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// A waker that looks at one end of a channel, or at a semaphore, when it is woken and when it is
/// dropped.
struct Looking<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Looking<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

impl<F: Fn() + Send + Sync> Drop for Looking<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Polls a future three times, each time with a new waker, so that the one before is dropped. Calls
/// `then` before the third poll.
fn poll_with_new_wakers<F: Future>(
    future: F,
    look: impl Fn() + Send + Sync + Copy + 'static,
    then: impl FnOnce(),
) -> F::Output {
    let mut future = pin!(future);
    let mut poll = || {
        let waker = Waker::from(Arc::new(Looking(look)));
        future.as_mut().poll(&mut TaskContext::from_waker(&waker))
    };
    assert!(poll().is_pending() && poll().is_pending());
    then();
    match poll() {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it was served"),
    }
}

#[test]
fn wakers_may_use_what_they_are_left_at() {
    let (done, is_done) = mpsc::channel();
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that takes its own lock again waits forever, so no test can wait for it"
    )]
    crate::home::thread::spawn(move || {
        let (sender, receiver): &(channel::Sender<u8>, channel::Receiver<u8>) =
            Box::leak(Box::new(channel::bounded(0)));
        let length = move || assert_eq!(receiver.len(), 0);
        let received = poll_with_new_wakers(receiver.recv(), length, || {
            sender.try_send(7).expect("it is awaited")
        });
        assert_eq!(received, Some(7));
        let sent =
            poll_with_new_wakers(sender.send(8), length, || assert_eq!(receiver.try_recv(), Ok(8)));
        assert_eq!(sent, Ok(()));
        let semaphore: &'static Semaphore = Box::leak(Box::new(Semaphore::new(1)));
        let permit = semaphore.try_acquire(1).expect("it is free");
        let available = move || assert_eq!(semaphore.available_permits(), 0);
        let acquired = poll_with_new_wakers(semaphore.acquire(1), available, || drop(permit));
        assert!(acquired.is_ok());
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("no lock is held while wakers go");
}

#[test]
fn messages_come_in_the_order_of_their_sender() {
    for capacity in [0, 1, 3, usize::MAX] {
        for width in [1, 3] {
            threaded(width).block_on(async {
                let (sender, receiver) = channel::bounded(capacity);
                let senders: Vec<_> = (0..4_u32)
                    .map(|from| {
                        let sender = sender.clone();
                        spawn(async move {
                            for n in 0..300_u32 {
                                sender.send((from, n)).await.expect("the receiver is there");
                            }
                        })
                    })
                    .collect();
                drop(sender);
                let mut next = [0; 4];
                while let Some((from, n)) = receiver.recv().await {
                    assert_eq!(n, next[from as usize], "of sender {from}, capacity {capacity}");
                    next[from as usize] += 1;
                }
                assert_eq!(next, [300; 4], "capacity {capacity}");
                for sender in senders {
                    sender.await.expect("it does not panic");
                }
            });
        }
    }
}

#[test]
fn each_message_goes_to_one_receiver() {
    let (sender, receiver) = channel::bounded(2);
    threaded(3).block_on(async {
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(async move {
                    let mut own = Vec::new();
                    while let Some(n) = receiver.recv().await {
                        own.push(n);
                    }
                    own
                })
            })
            .collect();
        for n in 0..1000 {
            sender.send(n).await.expect("they are there");
        }
        drop(sender);
        let mut all = BTreeSet::new();
        for receiver in receivers {
            for n in receiver.await.expect("it does not panic") {
                assert!(all.insert(n), "{n} came twice");
            }
        }
        assert_eq!(all.len(), 1000);
    });
}

#[test]
fn trying_never_waits() {
    let (sender, receiver) = channel::bounded(1);
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Err(SendError::Full(2)));
    assert_eq!((sender.len(), sender.capacity()), (1, Some(1)));
    assert_eq!(receiver.try_recv(), Ok(1));
    sender.try_send(3).expect("there is room");
    receiver.close();
    assert_eq!(sender.try_send(4), Err(SendError::Closed(4)));
    assert_eq!(receiver.try_recv(), Ok(3), "what it holds is received");
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    let (sender, receiver) = channel::bounded(0);
    assert_eq!(sender.try_send(5), Err(SendError::Full(5)), "there is no receiver");
    let mut receiving = pin!(receiver.recv());
    assert!(poll_once(receiving.as_mut()).is_pending());
    assert_eq!(sender.try_send(6), Ok(()));
    assert_eq!(poll_once(receiving.as_mut()), Poll::Ready(Some(6)));
    assert_eq!(sender.try_send(7), Err(SendError::Full(7)));
    sender.close();
    assert_eq!(sender.try_send(8), Err(SendError::Closed(8)));
    assert_eq!((sender.capacity(), receiver.try_recv()), (Some(0), Err(RecvError::Closed)));
    assert_eq!(channel::unbounded::<u32>().0.capacity(), None);
}

#[test]
fn a_rendezvous_waits_for_its_receiver() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(0);
        let sends = spawn(async move {
            let begun = Instant::now();
            sender.send(1).await.expect("it comes");
            Instant::now() - begun
        });
        sleep(Duration::from_secs(3)).await;
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(sends.await, Ok(Duration::from_secs(3)));
    });
}

#[test]
fn waiters_are_served_first_come_first_served() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded::<u32>(0);
        let receivers: Vec<_> = (0..5)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(async move { receiver.recv().await })
            })
            .collect();
        // In the order of the run queue, which is newest first.
        sleep(Duration::from_nanos(1)).await;
        for n in 0..5 {
            sender.send(n).await.expect("they wait");
        }
        let mut got = Vec::new();
        for receiver in receivers {
            got.push(receiver.await.expect("it does not panic").expect("it is not closed"));
        }
        assert!(got.is_sorted() || got.iter().rev().is_sorted(), "{got:?}");
    });
}

#[test]
fn closing_gives_waiting_senders_their_messages_back() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        sender.send(0).await.expect("there is room");
        let waits: Vec<_> = (1..4)
            .map(|n| {
                let sender = sender.clone();
                spawn(async move { sender.send(n).await })
            })
            .collect();
        sleep(Duration::from_nanos(1)).await;
        receiver.close();
        for (n, waits) in (1..4).zip(waits) {
            assert_eq!(waits.await.map(|sent| sent.map_err(SendError::into_inner)), Ok(Err(n)));
        }
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(0), None));
        assert!(sender.is_closed());
    });
}

#[test]
fn the_last_end_closes_the_channel() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(4);
        let second = sender.clone();
        let waits = spawn(async move { (receiver.recv().await, receiver.recv().await) });
        second.send(1).await.expect("it waits");
        drop(sender);
        sleep(Duration::from_nanos(1)).await;
        assert!(!second.is_closed(), "one is left");
        drop(second);
        assert_eq!(waits.await, Ok((Some(1), None)));

        let (sender, receiver) = channel::bounded(4);
        let (noted, notes) = mpsc::channel::<()>();
        sender.send(noted).await.expect("there is room");
        let other = receiver.clone();
        drop(receiver);
        assert!(!sender.is_closed());
        drop(other);
        soon_closed(&notes);
        assert!(sender.send(mpsc::channel().0).await.is_err());
    });
}

#[test]
fn a_message_handed_to_a_dropped_receiver_goes_to_the_next() {
    let (sender, receiver) = channel::bounded(0);
    let mut first = Box::pin(receiver.recv());
    let mut second = pin!(receiver.recv());
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    sender.try_send(1).expect("two wait");
    drop(first);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Some(1)));

    let mut alone = Box::pin(receiver.recv());
    assert!(poll_once(alone.as_mut()).is_pending());
    sender.try_send(2).expect("one waits");
    drop(alone);
    assert_eq!(sender.try_send(3), Err(SendError::Full(3)));
    assert_eq!(receiver.try_recv(), Ok(2), "it went back to the front");
}

/// The receiver that was handed the last message may pass it on, so no other is told the end yet.
#[test]
fn the_end_comes_after_a_message_that_was_handed_over() {
    driven().block_on(async {
        for is_dropped in [true, false] {
            let (sender, receiver) = channel::bounded(1);
            let mut handed = Box::pin(receiver.recv());
            assert!(poll_once(handed.as_mut()).is_pending());
            let other = receiver.clone();
            let waits = spawn(async move { other.recv().await });
            sleep(Duration::from_nanos(1)).await;
            sender.try_send(1).expect("two wait");
            drop(sender);
            sleep(Duration::from_nanos(1)).await;
            assert!(!waits.is_finished());
            assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
            if is_dropped {
                drop(handed);
            } else {
                assert_eq!(poll_once(handed.as_mut()), Poll::Ready(Some(1)));
            }
            assert_eq!(waits.await, Ok(is_dropped.then_some(1)));
            assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
        }
    });
}

#[test]
fn a_send_can_be_taken_back() {
    let (sender, receiver) = channel::bounded(0);
    let mut sending = sender.send(7);
    assert!(poll_once(pin!(&mut sending)).is_pending());
    assert_eq!(sending.take_back(), Some(7));
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    let mut sending = sender.send(8);
    assert!(poll_once(pin!(&mut sending)).is_pending());
    assert_eq!(receiver.try_recv(), Ok(8));
    assert_eq!(sending.take_back(), None, "it was sent");
}

#[test]
fn a_timeout_ends_a_wait_and_loses_nothing() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        let hour = Duration::from_secs(3600);
        assert!(receiver.recv_timeout(hour).await.is_err());
        assert_eq!(sender.send_timeout(1, hour).await, Ok(()));
        assert_eq!(sender.send_timeout(2, hour).await, Err(SendError::Elapsed(2)));
        assert_eq!(receiver.recv_timeout(hour).await, Ok(Some(1)));
        receiver.close();
        assert_eq!(sender.send_timeout(3, hour).await, Err(SendError::Closed(3)));
    });
}

#[test]
fn every_message_survives_receivers_that_give_up() {
    const MESSAGES: u32 = 500;
    threaded(2).block_on(async {
        for capacity in [0, 2] {
            let (sender, receiver) = channel::bounded(capacity);
            let receivers: Vec<_> = (0..3)
                .map(|_| {
                    let receiver = receiver.clone();
                    spawn(async move {
                        let mut own = Vec::new();
                        loop {
                            // Elapses at its first wait or soon after, often with the message on
                            // its way.
                            match timeout(Duration::from_micros(3), receiver.recv()).await {
                                Ok(Some(n)) => own.push(n),
                                Ok(None) => return own,
                                Err(_) => yield_now().await,
                            }
                        }
                    })
                })
                .collect();
            for n in 0..MESSAGES {
                sender.send(n).await.expect("they are there");
                if n % 7 == 0 {
                    yield_now().await;
                }
            }
            drop(sender);
            let mut all = Vec::new();
            for receiver in receivers {
                all.extend(receiver.await.expect("it does not panic"));
            }
            all.sort_unstable();
            assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
        }
    });
}

#[test]
fn threads_and_processes_meet_in_a_channel() {
    let scheduler = threaded(2);
    let (to, from) = channel::bounded(0);
    let (back, result) = channel::bounded(0);
    let doubles = scheduler.spawn(async move {
        while let Some(n) = from.recv().await {
            back.send(n * 2_u64).await.expect("the test receives");
        }
    });
    crate::home::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..200 {
                to.send(n).wait().expect("it receives");
            }
        });
        for n in 0..200 {
            assert_eq!(result.recv().wait(), Some(n * 2));
        }
        assert_eq!(result.recv().wait(), None);
    });
    assert_eq!(doubles.join(), Ok(()));
}

#[test]
fn a_process_that_panics_or_is_killed_leaves_its_channel_in_order() {
    let scheduler = threaded(2);
    let (sender, receiver) = channel::bounded::<u32>(0);
    let fails = receiver.clone();
    let fails = scheduler.spawn(async move {
        fails.recv().await;
        panic_quietly("after its first message")
    });
    let waits = receiver.clone();
    let waits = scheduler.spawn(async move { waits.recv().await });
    sender.send(1).wait().expect("they wait");
    sender.send(2).wait().expect("one waits");
    let _exit: Result<(), _> = fails.join();
    assert!(waits.join().expect("it does not panic").is_some());
    let killed = scheduler.spawn(async move { receiver.recv().await });
    let pid = killed.pid();
    procession::process::kill(pid);
    assert!(killed.join().is_err());
    assert_eq!(sender.try_send(3), Err(SendError::Closed(3)), "no receiver is left");
}

#[test]
fn waiting_shows_in_the_snapshot() {
    let scheduler = driven();
    let (_sender, receiver) = channel::bounded::<u32>(0);
    drop(scheduler.spawn(async move { receiver.recv().await }));
    let waiting = scheduler.run_until_idle();
    assert_eq!(waiting.len(), 1);
    assert!(waiting[0].waiting.for_channel());
    assert_eq!(waiting[0].waiting.to_string(), "channel");
}

#[test]
fn sending_yields_once_the_budget_is_spent() {
    driven().block_on(async {
        let (sender, receiver) = channel::unbounded();
        let seen = Arc::new(procession_sync::Mutex::new(Vec::new()));
        let (one, other) = (Arc::clone(&seen), Arc::clone(&seen));
        let sends = spawn(async move {
            for n in 0..1000 {
                sender.send(n).await.expect("it receives");
            }
            one.lock().push("sent");
        });
        let looks = spawn(async move {
            other.lock().push("ran");
        });
        sends.await.expect("it does not panic");
        looks.await.expect("it does not panic");
        assert_eq!(*seen.lock(), ["ran", "sent"]);
        assert_eq!(receiver.len(), 1000);
    });
}
