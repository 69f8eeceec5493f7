//! Panics of wakers.

use crate::home::mpsc;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as Task, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use procession::{Context, Reply};

use super::{HOUR, survives};
use crate::scene::{panic_quietly, soon};

/// Creates a waker with one function that panics, chosen by its number: clone, wake, wake by
/// reference, drop.
fn faulty<const PANICS: u8>() -> Waker {
    fn check<const PANICS: u8>(function: u8) {
        if PANICS == function {
            panic_quietly("a faulty waker");
        }
    }
    fn clone<const PANICS: u8>(_: *const ()) -> RawWaker {
        check::<PANICS>(0);
        RawWaker::new(
            std::ptr::null(),
            const {
                &RawWakerVTable::new(
                    clone::<PANICS>,
                    check_wake::<PANICS>,
                    check_by_ref::<PANICS>,
                    check_drop::<PANICS>,
                )
            },
        )
    }
    fn check_wake<const PANICS: u8>(_: *const ()) {
        check::<PANICS>(1);
    }
    fn check_by_ref<const PANICS: u8>(_: *const ()) {
        check::<PANICS>(2);
    }
    fn check_drop<const PANICS: u8>(_: *const ()) {
        check::<PANICS>(3);
    }
    let waker = const {
        &RawWakerVTable::new(
            clone::<PANICS>,
            check_wake::<PANICS>,
            check_by_ref::<PANICS>,
            check_drop::<PANICS>,
        )
    };
    // SAFETY: the functions touch no data, and may be called by any thread.
    unsafe { Waker::new(std::ptr::null(), waker) }
}

const FAULTY: [fn() -> Waker; 4] = [faulty::<0>, faulty::<1>, faulty::<2>, faulty::<3>];

/// Polls with a faulty waker. Returns `None` if that panicked.
fn poll_faulty<F: Future>(future: Pin<&mut F>, waker: fn() -> Waker) -> Option<Poll<F::Output>> {
    // Never dropped: its drop is the poller's own fault.
    let waker = std::mem::ManuallyDrop::new(waker());
    catch_unwind(AssertUnwindSafe(|| future.poll(&mut Task::from_waker(&waker)))).ok()
}

#[test]
fn the_waker_given_to_a_handle_panics() {
    survives(0, |scheduler| {
        for waker in FAULTY {
            let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
            let (address, mut handle) = child.into_parts();
            for _ in 0..2 {
                let polled = poll_faulty(Pin::new(&mut handle), waker);
                assert!(polled.is_none_or(|polled| polled.is_pending()));
            }
            // Replaced by another waker, which drops this one.
            let polled = poll_faulty(Pin::new(&mut handle), || Waker::noop().clone());
            assert!(polled.is_none_or(|polled| polled.is_pending()));
            let polled = poll_faulty(Pin::new(&mut handle), waker);
            assert!(polled.is_none_or(|polled| polled.is_pending()));
            address.send(()).expect("it lives");
            scheduler.run_until_idle();
            assert_eq!(handle.join(), Ok(Some(())));

            // Dropped with the handle, before the end and after it.
            for end_first in [false, true] {
                let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
                let (address, mut handle) = child.into_parts();
                let polled = poll_faulty(Pin::new(&mut handle), waker);
                assert!(polled.is_none_or(|polled| polled.is_pending()));
                if end_first {
                    address.send(()).expect("it lives");
                    scheduler.run_until_idle();
                }
                drop(catch_unwind(AssertUnwindSafe(|| drop(handle))));
                if !end_first {
                    address.send(()).expect("it lives");
                    scheduler.run_until_idle();
                }
            }
        }
    });
}

#[test]
fn the_waker_of_a_caller_panics() {
    survives(0, |scheduler| {
        for waker in FAULTY {
            for reply_at_all in [true, false] {
                // The server replies when it is told to, so that the caller waits.
                let server =
                    scheduler.start(move |mut cx: Context<Option<Reply<u32>>>| async move {
                        let mut kept = Vec::new();
                        while let Some(Some(reply)) = cx.recv().await {
                            kept.push(reply);
                        }
                        let served = kept.len();
                        if reply_at_all {
                            kept.into_iter().for_each(|reply| reply.send(1));
                        } else {
                            drop(kept);
                        }
                        cx.recv().await;
                        served
                    });
                let address = server.address().clone();
                let mut call = Box::pin(async move { address.call(Some, HOUR).await });
                let polled = scheduler.block_on(async { poll_faulty(call.as_mut(), waker) });
                assert!(polled.is_none_or(|polled| polled.is_pending()));
                server.send(None).expect("it lives");
                server.cancel();
                assert_eq!(server.join(), Ok(1), "it is not its fault");
                drop(catch_unwind(AssertUnwindSafe(|| drop(call))));
            }
        }
    });
}

#[test]
fn the_waker_of_a_sleep_panics() {
    survives(0, |scheduler| {
        for waker in FAULTY {
            let (tell, told) = mpsc::channel();
            let sleeper = scheduler.spawn(async move {
                let nap = Duration::from_nanos(1);
                let mut sleep = Box::pin(procession::sleep(nap));
                let polled = poll_faulty(sleep.as_mut(), waker);
                procession::sleep(nap * 2).await;
                // The poller's own fault, too: its waker is in its sleep.
                drop(catch_unwind(AssertUnwindSafe(|| drop(sleep))));
                tell.send(polled.is_none_or(|polled| polled.is_pending() || polled.is_ready()))
                    .expect("the test waits");
            });
            assert_eq!(sleeper.join(), Ok(()));
            assert!(soon(&told));
        }
    });
}

#[test]
fn the_waker_of_a_combinator_panics_when_a_message_comes() {
    for waker in [FAULTY[1], FAULTY[2]] {
        survives(0, |scheduler| {
            let child = scheduler.start(move |mut cx: Context<u32>| async move {
                for _ in 0..3 {
                    let polled = poll_faulty(Box::pin(cx.recv()).as_mut(), waker);
                    assert!(polled.is_some_and(|polled| polled.is_pending()));
                    procession::yield_now().await;
                }
                cx.recv().await
            });
            scheduler.run_until_idle();
            child.send(1).expect("it lives");
            assert_eq!(child.join(), Ok(Some(1)));
        });
    }
}
