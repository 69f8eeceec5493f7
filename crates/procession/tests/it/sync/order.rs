//! Processes that are woken together run in the order in which they began to wait, no matter which
//! thread wakes them.

use crate::home::thread;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use procession::Scheduler;
use procession::sync::{
    Barrier, CancellationToken, Condvar, Mutex, Notify, RwLock, Semaphore, WaitGroup, broadcast,
    channel, watch,
};
use procession::time::run_after;

use crate::scene::driven;

const WAITERS: usize = 8;

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes the waits, and what ends all of them together.
type Make = fn() -> (Vec<Waiting>, Box<dyn FnOnce() + Send>);

fn waits<F: Future<Output = ()> + Send + 'static>(mut wait: impl FnMut() -> F) -> Vec<Waiting> {
    (0..WAITERS).map(|_| Box::pin(wait()) as Waiting).collect()
}

const TOGETHER: &[(&str, Make)] = &[
    ("Notify::notify_waiters", || {
        let notify = Arc::new(Notify::new());
        let all = waits(|| {
            let notify = Arc::clone(&notify);
            async move { notify.notified().await }
        });
        (all, Box::new(move || notify.notify_waiters()))
    }),
    ("Semaphore::add_permits", || {
        let permits = Arc::new(Semaphore::new(0));
        let all = waits(|| {
            let permits = Arc::clone(&permits);
            async move { permits.acquire(1).await.expect("it is open").forget() }
        });
        (all, Box::new(move || permits.add_permits(WAITERS)))
    }),
    ("Semaphore::close", || {
        let permits = Arc::new(Semaphore::new(0));
        let all = waits(|| {
            let permits = Arc::clone(&permits);
            async move { assert!(permits.acquire(1).await.is_err()) }
        });
        (all, Box::new(move || permits.close()))
    }),
    ("Condvar::notify_all", || {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let all = waits(|| {
            let shared = Arc::clone(&shared);
            async move { drop(shared.1.wait(shared.0.lock().await).await) }
        });
        (all, Box::new(move || shared.1.notify_all()))
    }),
    ("CancellationToken::cancel", || {
        let token = CancellationToken::new();
        let all = waits(|| token.clone().cancelled_owned());
        (all, Box::new(move || token.cancel()))
    }),
    ("the last job of a WaitGroup", || {
        let group = Arc::new(WaitGroup::new());
        let job = group.job();
        let all = waits(|| {
            let group = Arc::clone(&group);
            async move { group.wait().await }
        });
        (all, Box::new(move || drop(job)))
    }),
    ("the end of a write lock", || {
        let lock = Arc::new(RwLock::new(()));
        let held = Arc::clone(&lock).try_write_owned().expect("it is free");
        let all = waits(|| {
            let lock = Arc::clone(&lock);
            async move { drop(lock.read().await) }
        });
        (all, Box::new(move || drop(held)))
    }),
    ("the end of a channel's senders", || {
        let (sender, receiver) = channel::bounded::<()>(1);
        let all = waits(|| {
            let receiver = receiver.clone();
            async move { assert_eq!(receiver.recv().await, None) }
        });
        (all, Box::new(move || drop(sender)))
    }),
    ("the end of a channel's receivers", || {
        let (sender, receiver) = channel::bounded(0);
        let all = waits(|| {
            let sender = sender.clone();
            async move { assert!(sender.send(()).await.is_err()) }
        });
        (all, Box::new(move || drop(receiver)))
    }),
    ("a broadcast", || {
        let (sender, receiver) = broadcast::channel(1);
        let all = waits(|| {
            let mut receiver = receiver.resubscribe();
            async move { assert_eq!(receiver.recv().await, Ok(7)) }
        });
        (all, Box::new(move || assert!(sender.send(7).is_ok())))
    }),
    ("a change of a watch", || {
        let (sender, receiver) = watch::channel(0);
        let all = waits(|| {
            let mut receiver = receiver.clone();
            async move { assert!(receiver.changed().await.is_ok()) }
        });
        (all, Box::new(move || assert!(sender.send(7).is_ok())))
    }),
];

/// Where the code runs that wakes.
#[derive(Clone, Copy, Debug)]
enum Place {
    ThisThread,
    AnotherThread,
    BlockOn,
    BlockOnOfAnotherScheduler,
    AnotherScheduler,
    Step,
    Timer,
}

impl Place {
    const ALL: [Self; 7] = [
        Self::ThisThread,
        Self::AnotherThread,
        Self::BlockOn,
        Self::BlockOnOfAnotherScheduler,
        Self::AnotherScheduler,
        Self::Step,
        Self::Timer,
    ];

    fn run(self, scheduler: &Scheduler, wake: Box<dyn FnOnce() + Send>) {
        match self {
            Self::ThisThread => wake(),
            Self::AnotherThread => thread::scope(|scope| {
                scope.spawn(wake);
            }),
            Self::BlockOn => scheduler.block_on(async { wake() }),
            Self::BlockOnOfAnotherScheduler => driven().block_on(async { wake() }),
            Self::AnotherScheduler => {
                assert_eq!(driven().spawn(async { wake() }).join(), Ok(()));
            }
            Self::Step => assert_eq!(scheduler.spawn(async { wake() }).join(), Ok(())),
            Self::Timer => {
                let sets = scheduler.spawn(async move {
                    let mut wake = Some(wake);
                    let timer = run_after(crate::scene::TIMEOUT, move || {
                        if let Some(wake) = wake.take() {
                            wake();
                        }
                    });
                    assert!(timer.is_ok(), "the limit is not reached");
                });
                assert_eq!(sets.join(), Ok(()));
                scheduler.advance(crate::scene::TIMEOUT);
            }
        }
    }
}

#[test]
fn what_is_woken_together_runs_in_the_order_of_the_waits() {
    for &(name, make) in TOGETHER {
        for from in Place::ALL {
            let scheduler = driven();
            let (all, wake) = make();
            let ran = Arc::new(procession_sync::Mutex::new(Vec::new()));
            for (number, wait) in all.into_iter().enumerate() {
                let ran = Arc::clone(&ran);
                let waits = scheduler.spawn(async move {
                    wait.await;
                    ran.lock().push(number);
                });
                waits.detach();
                scheduler.run_until_idle();
            }
            from.run(&scheduler, wake);
            scheduler.run_until_idle();
            let expected: Vec<_> = (0..WAITERS).collect();
            assert_eq!(*ran.lock(), expected, "{name}, from {from:?}");
        }
    }
}

/// The last to come does not wait, and runs on. The others follow in their order.
#[test]
fn those_at_a_barrier_run_in_the_order_in_which_they_came() {
    for from in Place::ALL {
        let scheduler = driven();
        let barrier = Arc::new(Barrier::new(WAITERS + 1));
        let ran = Arc::new(procession_sync::Mutex::new(Vec::new()));
        for number in 0..WAITERS {
            let (barrier, ran) = (Arc::clone(&barrier), Arc::clone(&ran));
            let waits = scheduler.spawn(async move {
                barrier.wait().await;
                ran.lock().push(number);
            });
            waits.detach();
            scheduler.run_until_idle();
        }
        let last = Box::new(move || {
            let mut waits = std::pin::pin!(barrier.wait());
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waits.as_mut().poll(&mut task).is_ready());
        });
        from.run(&scheduler, last);
        scheduler.run_until_idle();
        let expected: Vec<_> = (0..WAITERS).collect();
        assert_eq!(*ran.lock(), expected, "from {from:?}");
    }
}
