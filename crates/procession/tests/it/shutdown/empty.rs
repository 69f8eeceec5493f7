//! Waits until a scheduler has no process, which end none.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::scheduler::MisplacedCall;
use procession::{Context, Exit, Scheduler, sleep, spawn, spawn_blocking, timeout};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use super::{AMPLE, scheduler, shut_down};
use crate::home::{mpsc, thread};
use crate::scene::soon;

/// The answer to a process of the scheduler.
const REFUSED: Result<(), MisplacedCall> = Err(MisplacedCall::InsideScheduler);

const SECOND: Duration = Duration::from_secs(1);

/// Waits on this thread, but not forever.
#[track_caller]
fn wait(scheduler: &Scheduler) {
    let waited = scheduler.block_on(timeout(AMPLE, scheduler.wait_until_empty()));
    assert_eq!(waited, Ok(Ok(())));
}

/// Starts a process that counts itself, and has `left` descendants, one after the other.
fn chain(count: Arc<AtomicU32>, left: u32) {
    drop(spawn(async move {
        procession::yield_now().await;
        if left > 0 {
            chain(Arc::clone(&count), left - 1);
        }
        count.fetch_add(1, SeqCst);
    }));
}

#[test]
fn a_wait_lasts_until_all_processes_have_ended_by_themselves() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        wait(&scheduler);
        let count = Arc::new(AtomicU32::new(0));
        for round in 1..=20 {
            let begins = Arc::clone(&count);
            let root = scheduler.spawn(async move { chain(begins, 9) });
            wait(&scheduler);
            assert_eq!(count.load(SeqCst), round * 10, "width {width}");
            assert_eq!(root.join(), Ok(()), "no process was ended");
        }
        let snapshot = scheduler.snapshot();
        assert_eq!((snapshot.spawned, snapshot.ended), (20 * 11, 20 * 11));
        assert!(shut_down(&scheduler).is_empty());
        wait(&scheduler);
    }
}

#[test]
fn a_wait_that_is_given_up_ends_nothing_and_disturbs_no_other() {
    let scheduler = scheduler(0);
    let begin = scheduler.now();
    let sleeper = scheduler.spawn(sleep(10 * SECOND));
    let waits = scheduler.block_on(async {
        let mut first = Box::pin(scheduler.wait_until_empty());
        let second = timeout(SECOND, scheduler.wait_until_empty()).await;
        // The second one has gone, and the first one was not even begun.
        let again = timeout(SECOND, first.as_mut()).await;
        assert!(second.is_err() && again.is_err());
        first.await
    });
    assert_eq!((waits, scheduler.now() - begin), (Ok(()), 10 * SECOND));
    assert_eq!(sleeper.join(), Ok(()));
}

#[test]
fn a_process_of_the_scheduler_is_refused_wherever_it_asks() {
    for width in [0, 2] {
        let scheduler = scheduler(width);
        let own = scheduler.clone();
        let asks = scheduler.spawn(async move { own.wait_until_empty().await });
        assert_eq!(asks.join(), Ok(REFUSED), "width {width}");

        // A job of a process, which waits for the job.
        let own = scheduler.clone();
        let asks = scheduler.spawn(async move {
            let job = move || own.block_on(own.wait_until_empty());
            spawn_blocking(job).await
        });
        assert_eq!(asks.join(), Ok(Ok(REFUSED)), "width {width}");
    }
    let scheduler = scheduler(2);
    let own = scheduler.clone();
    let asks = scheduler.spawn(async move { own.block_on(own.wait_until_empty()) });
    assert_eq!(asks.join(), Ok(REFUSED));
    wait(&scheduler);
}

#[test]
fn a_process_of_another_scheduler_may_wait() {
    for width in [0, 1, 2] {
        let (waited_for, own) = (scheduler(width), scheduler(1));
        let waits = {
            let waited_for = waited_for.clone();
            own.spawn(async move { waited_for.wait_until_empty().await })
        };
        let (asks, asked) = mpsc::channel();
        let child = waited_for.start(|mut cx: Context<()>| async move {
            asks.send(()).expect("the test listens");
            cx.recv().await
        });
        if width == 0 {
            waited_for.run_until_idle();
        }
        soon(&asked);
        child.send(()).expect("it receives");
        wait(&waited_for);
        assert_eq!(child.join(), Ok(Some(())));
        assert_eq!(waits.join(), Ok(Ok(())), "width {width}");
    }
}

#[test]
fn a_wait_goes_on_through_a_shutdown() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let forever = scheduler.spawn(pending::<()>());
        let (begins, begun) = mpsc::channel();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                scheduler.block_on(async {
                    begins.send(()).expect("the test listens");
                    scheduler.wait_until_empty().await
                })
            });
            soon(&begun);
            assert!(shut_down(&scheduler).is_empty());
            let waited = waits.join().expect("it does not panic");
            assert_eq!(waited, Ok(()), "width {width}");
        });
        assert_eq!(forever.join(), Err(Exit::Shutdown));
    }
}

/// Processes end while threads begin to wait and give up.
#[test]
fn no_end_is_missed_beside_waits_that_begin_and_are_given_up() {
    for width in [1, 2] {
        let scheduler = scheduler(width);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let given_up = timeout(Duration::ZERO, scheduler.wait_until_empty());
                        let _ = scheduler.block_on(given_up);
                        wait(&scheduler);
                    }
                });
            }
            for _ in 0..50 {
                (0..5).for_each(|_| drop(scheduler.spawn(procession::yield_now())));
                wait(&scheduler);
            }
        });
        let snapshot = scheduler.snapshot();
        assert_eq!((snapshot.spawned, snapshot.ended), (250, 250));
    }
}
