//! Locks, permits, conditions and barriers, between processes and plain threads.

mod broadcast;
mod conserved;
mod notify;
mod oneshot;
mod order;
mod owned;
mod probe;
mod reserve;
#[cfg(feature = "stream")]
mod streams;
mod watch;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{
    AcquireError, Barrier, Condvar, Mutex, OnceCell, RwLock, Semaphore, WaitGroup,
};
use procession::{sleep, spawn, timeout, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::{driven, panic_quietly, threaded};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

#[test]
fn what_is_made_of_locks_may_pass_a_panic() {
    fn passes<T: std::panic::UnwindSafe>() {}
    passes::<procession::sync::channel::Sender<std::cell::Cell<u8>>>();
    passes::<&Semaphore>();
}

#[test]
fn a_mutex_lets_one_in_at_a_time() {
    for width in [1, 3] {
        let scheduler = threaded(width);
        let shared = Arc::new((Mutex::new(0_u32), procession_sync::Mutex::new(())));
        let processes: Vec<_> = (0..8)
            .map(|_| {
                let shared = Arc::clone(&shared);
                scheduler.spawn(async move {
                    for _ in 0..100 {
                        let mut count = shared.0.lock().await;
                        let before = *count;
                        assert!(shared.1.try_lock().is_some(), "alone");
                        yield_now().await;
                        *count = before + 1;
                    }
                })
            })
            .collect();
        // A plain thread takes part, too.
        for _ in 0..100 {
            *shared.0.lock().wait() += 1;
        }
        for process in processes {
            process.join().expect("it does not panic");
        }
        assert_eq!(*shared.0.try_lock().expect("it is free"), 900);
    }
}

#[test]
fn a_failed_try_takes_nothing() {
    let mutex = Mutex::new(1);
    let held = mutex.try_lock().expect("it is free");
    let refused = Some(AcquireError::WouldBlock);
    assert_eq!([mutex.try_lock().err(), mutex.try_lock().err()], [refused; 2]);
    drop(held);
    let _held = mutex.try_lock().expect("it is free");
    assert!(mutex.try_lock().is_err());
    let lock = RwLock::new(1);
    let reads = lock.try_read().expect("there is no writer");
    assert!(lock.try_write().is_err());
    drop(reads);
    let writes = lock.try_write().expect("it is free");
    assert_eq!([lock.try_read().err(), lock.try_write().err()], [refused; 2]);
    drop(writes);
    let semaphore = Semaphore::new(1);
    let one = semaphore.try_acquire(1);
    assert!(one.is_ok());
    assert_eq!(semaphore.try_acquire(1).err(), refused);
    drop(one);
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn locks_are_made_of_values_and_guards_show_the_values() {
    driven().block_on(async {
        let (mutex, lock) = (Arc::new(Mutex::from(7)), Arc::new(RwLock::from(8)));
        assert_eq!(format!("{0} {0:?}", mutex.lock().await), "7 7");
        assert_eq!(format!("{0} {0:?}", mutex.clone().lock_owned().await), "7 7");
        assert_eq!(format!("{0} {0:?}", lock.read().await), "8 8");
        assert_eq!(format!("{0} {0:?}", lock.write().await), "8 8");
        assert_eq!(format!("{0} {0:?}", lock.clone().read_owned().await), "8 8");
        assert_eq!(format!("{0} {0:?}", lock.clone().write_owned().await), "8 8");
        assert_eq!(*OnceCell::from(9).get_or_init(async { 10 }).await, 9);
        assert_eq!(
            (Mutex::<u8>::default().into_inner(), RwLock::<u8>::default().into_inner()),
            (0, 0)
        );
    });
}

#[test]
fn a_lock_is_handed_to_the_longest_waiter() {
    let mutex = Mutex::new(());
    let held = mutex.try_lock().expect("it is free");
    let mut first = Box::pin(mutex.lock());
    let mut second = Box::pin(mutex.lock());
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    drop(held);
    assert!(mutex.try_lock().is_err(), "it belongs to the first waiter, which has not looked yet");
    assert!(poll_once(second.as_mut()).is_pending());
    drop(first);
    let Poll::Ready(guard) = poll_once(second.as_mut()) else {
        panic!("the first went, so it is the second's")
    };
    drop(guard);
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn a_panic_unlocks() {
    let scheduler = threaded(1);
    let mutex = Arc::new(Mutex::new(1));
    let own = Arc::clone(&mutex);
    let fails = scheduler.spawn(async move {
        let mut value = own.lock().await;
        *value = 2;
        panic_quietly("with the lock")
    });
    let exit: Result<(), _> = fails.join();
    assert!(exit.is_err());
    assert_eq!(*mutex.lock().wait(), 2);
}

#[test]
fn writers_do_not_starve_and_readers_share() {
    let lock = RwLock::new(0);
    let reads = lock.try_read().expect("there is no writer");
    let more = lock.try_read().expect("readers share");
    let mut writes = Box::pin(lock.write());
    assert!(poll_once(writes.as_mut()).is_pending());
    assert!(lock.try_read().is_err(), "behind the waiting writer");
    let mut late = Box::pin(lock.read());
    assert!(poll_once(late.as_mut()).is_pending());
    drop((reads, more));
    let Poll::Ready(mut guard) = poll_once(writes.as_mut()) else {
        panic!("the readers have gone")
    };
    *guard = 5;
    drop(guard);
    let Poll::Ready(guard) = poll_once(late.as_mut()) else { panic!("the writer has gone") };
    assert_eq!(*guard, 5);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let lock = RwLock::new(0);
    let reads = lock.try_read().expect("there is no writer");
    let mut writes = Box::pin(lock.write());
    assert!(poll_once(writes.as_mut()).is_pending());
    let mut late = Box::pin(lock.read());
    assert!(poll_once(late.as_mut()).is_pending());
    drop(writes);
    assert!(poll_once(late.as_mut()).is_ready());
    drop(reads);
}

#[test]
fn permits_are_counted() {
    driven().block_on(async {
        let semaphore = Arc::new(Semaphore::new(3));
        let two = semaphore.acquire(2).await.expect("it is open");
        assert_eq!((two.count(), semaphore.available_permits()), (2, 1));
        let own = Arc::clone(&semaphore);
        let wants_two = spawn(async move { own.acquire(2).await.map(|permits| permits.count()) });
        sleep(Duration::from_nanos(1)).await;
        assert!(semaphore.try_acquire(1).is_err(), "a waiter wants more");
        assert!(timeout(Duration::from_secs(1), semaphore.acquire(1)).await.is_err());
        drop(two);
        assert_eq!(wants_two.await, Ok(Ok(2)));
        semaphore.acquire(3).await.expect("it is open").forget();
        assert_eq!(semaphore.available_permits(), 0);
        semaphore.add_permits(1);
        assert!(semaphore.try_acquire(1).is_ok());
    });
}

#[test]
fn a_closed_semaphore_also_refuses_its_waiters() {
    driven().block_on(async {
        let semaphore = Arc::new(Semaphore::new(0));
        let own = Arc::clone(&semaphore);
        let waits = spawn(async move { own.acquire(1).await.err() });
        sleep(Duration::from_nanos(1)).await;
        semaphore.close();
        let closed = Some(AcquireError::Closed);
        assert_eq!(waits.await, Ok(closed));
        semaphore.add_permits(1);
        assert!(semaphore.is_closed());
        assert_eq!(semaphore.acquire(1).await.err(), closed);
        assert_eq!(semaphore.try_acquire(1).err(), closed);
        assert_eq!(semaphore.acquire_timeout(1, Duration::from_secs(1)).await.err(), closed);
    });
}

#[test]
fn a_semaphore_stays_closed_whatever_becomes_of_its_permits() {
    let semaphore = Arc::new(Semaphore::new(5));
    let mut permits = semaphore.try_acquire(3).expect("there are five");
    let mut owned = Arc::clone(&semaphore).try_acquire_owned(2).expect("two are left");
    semaphore.close();
    let returned = (permits.split(1), owned.split(1));
    let is_closed = || semaphore.is_closed() && semaphore.try_acquire(1).is_err();
    permits.forget();
    assert!(is_closed());
    owned.forget();
    assert!(is_closed());
    drop(returned);
    assert!(is_closed());
    assert_eq!(semaphore.available_permits(), 2, "three are forgotten");
}

#[test]
fn no_permit_is_lost_by_waiters_that_give_up() {
    threaded(3).block_on(async {
        let semaphore = Arc::new(Semaphore::new(2));
        let processes: Vec<_> = (0..6)
            .map(|number| {
                let semaphore = Arc::clone(&semaphore);
                spawn(async move {
                    for _ in 0..200 {
                        let wanted = 1 + number % 2;
                        if let Ok(Ok(permits)) =
                            timeout(Duration::from_micros(2), semaphore.acquire(wanted)).await
                        {
                            yield_now().await;
                            drop(permits);
                        }
                    }
                })
            })
            .collect();
        for process in processes {
            process.await.expect("it does not panic");
        }
        assert_eq!(semaphore.available_permits(), 2);
    });
}

#[test]
fn a_notice_reaches_one_or_all() {
    driven().block_on(async {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        shared.1.notify_one(); // No process waits, so the notice is lost.
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(async move {
                    let guard = shared.0.lock().await;
                    let mut guard = shared.1.wait(guard).await;
                    *guard += 1;
                })
            })
            .collect();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(*shared.0.lock().await, 0);
        shared.1.notify_one();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(*shared.0.lock().await, 1);
        shared.1.notify_all();
        for waiter in waiters {
            waiter.await.expect("it does not panic");
        }
        assert_eq!(*shared.0.lock().await, 4);
        let guard = shared.0.lock().await;
        let (guard, notified) = shared.1.wait_timeout(guard, Duration::from_secs(5)).await;
        assert!(!notified && *guard == 4);
    });
}

#[test]
fn a_notice_to_a_waiter_that_gave_up_goes_to_the_next() {
    let (mutex, condition) = (Mutex::new(()), Condvar::new());
    let mut first = Box::pin(condition.wait(mutex.try_lock().expect("it is free")));
    assert!(poll_once(first.as_mut()).is_pending());
    let mut second = Box::pin(condition.wait(mutex.try_lock().expect("it was unlocked")));
    assert!(poll_once(second.as_mut()).is_pending());
    condition.notify_one();
    drop(first);
    assert!(poll_once(second.as_mut()).is_ready());
}

#[test]
fn a_value_is_made_once_even_if_its_maker_fails() {
    driven().block_on(async {
        let once = Arc::new(OnceCell::<u32>::new());
        let own = Arc::clone(&once);
        let fails = spawn(async move {
            own.get_or_init(async {
                sleep(Duration::from_secs(1)).await;
                panic_quietly("no value")
            })
            .await
            .to_owned()
        });
        sleep(Duration::from_nanos(1)).await;
        let own = Arc::clone(&once);
        let makes = spawn(async move { *own.get_or_init(async { 7 }).await });
        assert!(fails.await.is_err());
        assert_eq!(makes.await, Ok(7));
        assert_eq!((once.get(), *once.get_or_init(async { 8 }).await), (Some(&7), 7));
    });
}

#[test]
fn a_group_waits_for_jobs_however_they_end() {
    let scheduler = threaded(2);
    let group = WaitGroup::new();
    for number in 0..20 {
        let job = group.job();
        drop(scheduler.spawn(async move {
            let _job = job;
            yield_now().await;
            if number % 3 == 0 {
                panic_quietly("a job");
            }
        }));
    }
    group.wait().wait();
    assert_eq!(group.jobs(), 0);
    group.wait().wait();
}

#[test]
fn a_barrier_lets_all_go_at_once_and_one_is_the_last() {
    threaded(2).block_on(async {
        let barrier = Arc::new(Barrier::new(4));
        let processes: Vec<_> = (0..4)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                spawn(async move {
                    let mut last = 0;
                    for _ in 0..50 {
                        last += u32::from(barrier.wait().await);
                    }
                    last
                })
            })
            .collect();
        let mut last = 0;
        for process in processes {
            last += process.await.expect("it does not panic");
        }
        assert_eq!(last, 50);
    });
}

#[test]
fn a_waiter_that_leaves_a_barrier_has_not_come() {
    let barrier = Barrier::new(2);
    let mut first = Box::pin(barrier.wait());
    assert!(poll_once(first.as_mut()).is_pending());
    drop(first);
    let mut second = pin!(barrier.wait());
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(poll_once(pin!(barrier.wait())), Poll::Ready(true));
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(false));
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_waiter_that_is_released_and_dropped_releases_none_of_the_next_round() {
    // A wait group.
    let group = WaitGroup::new();
    let job = group.job();
    let mut released = Box::pin(group.wait());
    assert!(poll_once(released.as_mut()).is_pending());
    drop(job);
    let next_job = group.job();
    let mut next = pin!(group.wait());
    assert!(poll_once(next.as_mut()).is_pending());
    drop(released);
    assert!(poll_once(next.as_mut()).is_pending(), "a job is left");
    drop(next_job);
    assert!(poll_once(next.as_mut()).is_ready());
    // A barrier: no waiter is let through alone, and none stays behind.
    let barrier = Barrier::new(2);
    let mut released = Box::pin(barrier.wait());
    assert!(poll_once(released.as_mut()).is_pending());
    assert_eq!(poll_once(pin!(barrier.wait())), Poll::Ready(true));
    let mut third = pin!(barrier.wait());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(third.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
    drop(released);
    assert_eq!(woken.0.load(Relaxed), 0);
    assert!(third.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending(), "it is alone");
    assert_eq!(poll_once(pin!(barrier.wait())), Poll::Ready(true));
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(poll_once(third.as_mut()), Poll::Ready(false));
}

#[test]
fn a_condition_reports_no_notice_that_was_not_given() {
    driven().block_on(async {
        for notifies in [Condvar::notify_one, Condvar::notify_all] {
            let (mutex, condition) = (Mutex::new(()), Condvar::new());
            let mut notified = Box::pin(condition.wait(mutex.lock().await));
            assert!(poll_once(notified.as_mut()).is_pending());
            notifies(&condition);
            // It begins to wait after the notice, which the first waiter has not seen yet.
            let guard = mutex.lock().await;
            let mut later = pin!(condition.wait_timeout(guard, Duration::from_secs(1)));
            assert!(poll_once(later.as_mut()).is_pending());
            drop(notified);
            let (_, was_notified) = later.await;
            assert!(!was_notified);
        }
    });
}

#[test]
fn a_notice_is_passed_on_by_a_waiter_that_is_dropped_before_it_has_the_lock() {
    let (mutex, condition) = (Mutex::new(()), Condvar::new());
    let mut first = Box::pin(condition.wait(mutex.try_lock().expect("it is free")));
    assert!(poll_once(first.as_mut()).is_pending());
    let mut second = Box::pin(condition.wait(mutex.try_lock().expect("it was unlocked")));
    assert!(poll_once(second.as_mut()).is_pending());
    let held = mutex.try_lock().expect("it was unlocked");
    condition.notify_one();
    assert!(
        poll_once(first.as_mut()).is_pending(),
        "it has seen the notice, and waits for the lock"
    );
    drop(first);
    drop(held);
    assert!(poll_once(second.as_mut()).is_ready());
}

#[test]
fn permits_that_cannot_be_counted_are_dropped() {
    let semaphore = Semaphore::new(usize::MAX);
    let most = semaphore.available_permits();
    let held = semaphore.try_acquire(3).expect("they are there");
    for _ in 0..20 {
        semaphore.add_permits(usize::MAX);
    }
    drop(held);
    assert_eq!(semaphore.available_permits(), most);
    assert!(semaphore.try_acquire(most + 1).is_err());
    assert_eq!(semaphore.try_acquire(most).map(|permits| permits.count()), Ok(most));
}

#[test]
fn waiting_for_a_lock_shows_in_the_snapshot() {
    let scheduler = driven();
    let mutex = Arc::new(Mutex::new(()));
    let _held = mutex.try_lock().expect("it is free");
    let own = Arc::clone(&mutex);
    drop(scheduler.spawn(async move { drop(own.lock().await) }));
    let waiting = scheduler.run_until_idle();
    assert!(waiting[0].waiting.for_lock());
}
