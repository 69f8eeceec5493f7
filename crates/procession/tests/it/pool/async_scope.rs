//! Scopes of async processes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::home::mpsc;
use procession::pool::{AsyncPool, JobError, OnFull, Pool, Queue, WaitError};
use procession::time::Instant;
use procession::{Scheduler, sleep, spawn, spawn_blocking, yield_now};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::SeqCst;

use super::assert_sums;
use crate::scene::{driven, panic_quietly, soon, threaded};

fn of(scheduler: &Scheduler, capacity: usize, queue: Queue) -> AsyncPool {
    Pool::builder()
        .capacity(capacity)
        .queue(queue)
        .on(scheduler)
        .build_async()
        .expect("it starts no process yet")
}

/// Reports its drop.
struct Dropped<'a>(&'a AtomicU64);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn futures_borrow_wait_and_add_futures() {
    let words: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    for scheduler in [driven(), threaded(1), threaded(3)] {
        for queue in [Queue::HandOff, Queue::Bounded(2), Queue::Unbounded] {
            let pool = of(&scheduler, 4, queue);
            let mut lengths = vec![0; words.len()];
            let sum = AtomicU64::new(0);
            let last = pool.scope(async |scope| {
                for (word, length) in words.iter().zip(&mut lengths) {
                    let job = async {
                        sleep(Duration::from_micros(100)).await;
                        *length = word.len();
                    };
                    scope.execute(job).await.expect("it is open");
                }
                let sum = &sum;
                let outer = async move {
                    let inner = scope.submit(async { sum.fetch_add(1, SeqCst) }).await;
                    inner.expect("it is open").await.expect("it returns")
                };
                // A handle that is forgotten detaches its job.
                std::mem::forget(scope.submit(outer).await.expect("it is open"));
                let last = async { words.last().map(String::as_str) };
                scope.submit(last).await.expect("it is open").await
            });
            assert_eq!(last, Ok(Ok(Some("99"))));
            assert!(words.iter().zip(&lengths).all(|(word, &length)| word.len() == length));
            assert_eq!(sum.load(SeqCst), 1);
            pool.close();
            scheduler.block_on(pool.ended()).expect("its jobs end");
            assert_eq!(pool.stats().completed, 103);
            assert_sums(&pool.stats());
        }
    }
}

#[test]
fn a_scope_waits_on_the_clock_of_its_scheduler_even_if_its_body_panics() {
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::HandOff);
    let start = scheduler.block_on(async { Instant::now() });
    let ended = AtomicU64::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.scope(async |scope| {
            for _ in 0..3 {
                let job = async {
                    sleep(Duration::from_secs(1)).await;
                    ended.fetch_add(1, SeqCst);
                    panic_quietly("in a job")
                };
                scope.execute(job).await.expect("it is open");
            }
            panic_quietly("in the body")
        })
    }));
    let payload = result.expect_err("the body panicked");
    assert_eq!(*payload.downcast::<String>().expect("it is the text"), "in the body");
    assert_eq!(ended.load(SeqCst), 3, "its jobs have ended");
    let now = scheduler.block_on(async { Instant::now() });
    assert_eq!(now - start, Duration::from_secs(3), "one after another");
}

#[test]
fn the_end_of_the_scheduler_drops_what_a_scope_of_processes_borrows() {
    let scheduler = threaded(2);
    let pool = of(&scheduler, 2, Queue::Unbounded);
    let (dropped, (begin, begun)) = (AtomicU64::new(0), mpsc::channel());
    pool.scope(async |scope| {
        for n in 0..4 {
            let (guard, begin) = (Dropped(&dropped), begin.clone());
            let job = async move {
                let _guard = guard;
                begin.send(()).expect("the test looks");
                sleep(Duration::MAX).await;
            };
            scope.execute(job).await.expect("it is open");
            if n < 2 {
                soon(&begun);
            }
        }
        drop(scheduler);
    })
    .expect("the caller is a plain thread");
    assert_eq!(dropped.load(SeqCst), 4, "what the jobs borrowed is released");
}

#[test]
fn what_is_cancelled_or_refused_is_dropped_before_the_scope_of_processes_returns() {
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::Unbounded);
    let dropped = AtomicU64::new(0);
    pool.scope(async |scope| {
        scope.execute(sleep(Duration::from_secs(1))).await.expect("it is open");
        let one = Dropped(&dropped);
        let cancelled = scope.submit(async move { drop(one) }).await.expect("it is open");
        assert!(cancelled.cancel() && cancelled.is_finished());
        let mut others = Vec::new();
        for _ in 0..5 {
            let one = Dropped(&dropped);
            // A result that borrows, with a handle that may be gone.
            others.push(scope.submit(async move { one }).await.expect("it is open"));
        }
        assert_eq!(pool.shutdown_now(), 5);
        for other in others {
            assert!(matches!(other.await, Err(JobError::Cancelled)));
        }
        let one = Dropped(&dropped);
        let refused = scope.execute(async move { drop(one) }).await.expect_err("it is closed");
        assert!(refused.is_closed());
        drop(refused.into_inner());
    })
    .expect("the caller is a plain thread");
    assert_eq!(dropped.load(SeqCst), 7);
    scheduler.block_on(pool.ended()).expect("its jobs end");
    pool.reopen().expect("it has ended");
    // The handle is dropped at once, so the process drops the result.
    pool.scope(async |scope| {
        drop(scope.submit(async { Dropped(&dropped) }).await.expect("it is open"));
    })
    .expect("the caller is a plain thread");
    assert_eq!(dropped.load(SeqCst), 8);
}

#[test]
fn a_worker_cannot_wait_for_a_scope_of_processes_but_a_blocking_job_can() {
    for scheduler in [driven(), threaded(1)] {
        let pool = of(&scheduler, 1, Queue::HandOff);
        let refused = |pool: &AsyncPool| {
            let refused = pool.scope(async |_| unreachable!("the body is not run"));
            assert_eq!(refused, Err::<(), _>(WaitError::OnWorker));
        };
        scheduler.block_on(async {
            let own = pool.clone();
            let job = pool.submit(async move { refused(&own) }).await.expect("it is open");
            assert_eq!(job.await, Ok(()));
            let other = pool.clone();
            assert_eq!(spawn(async move { refused(&other) }).await, Ok(()));
            let blocking = spawn_blocking(move || {
                let words = [String::from("one"), String::from("three")];
                let total = AtomicU64::new(0);
                pool.scope(async |scope| {
                    for word in &words {
                        let job = async {
                            yield_now().await;
                            total.fetch_add(word.len() as u64, SeqCst);
                        };
                        scope.execute(job).await.expect("it is open");
                    }
                })
                .map(|()| total.into_inner())
            });
            assert_eq!(blocking.await, Ok(Ok(8)));
        });
    }
}

/// Submitters, panics, cancellations, resizes, closes and reopens at once: each job runs, is
/// cancelled, or comes back, and the sums agree.
#[test]
fn nothing_of_a_scope_of_processes_is_lost_amid_resizes_panics_and_closes() {
    const SUBMITTERS: u64 = 3;
    const JOBS: u64 = 300;
    const CAPACITY_MOST: usize = 4;
    let scheduler = threaded(2);
    let pool = Pool::builder().capacity(1).queue(Queue::Bounded(3)).on_full(OnFull::Wait);
    let pool = pool.on(&scheduler).build_async().expect("valid");
    let [ran, back, cancelled, running, most] = [const { AtomicU64::new(0) }; 5];
    let submitting = AtomicU64::new(SUBMITTERS);
    crate::home::thread::scope(|threads| {
        for _ in 0..SUBMITTERS {
            threads.spawn(|| {
                let result = pool.scope(async |scope| {
                    for n in 0..JOBS {
                        let (ran, running, most) = (&ran, &running, &most);
                        let job = async move {
                            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                            yield_now().await;
                            running.fetch_sub(1, SeqCst);
                            ran.fetch_add(1, SeqCst);
                            if n % 7 == 0 {
                                panic_quietly("one of seven");
                            }
                        };
                        match scope.submit(job).await {
                            Ok(handle) if n % 3 == 0 => match handle.await {
                                Ok(()) => assert_ne!(n % 7, 0),
                                Err(JobError::Panicked(_)) => assert_eq!(n % 7, 0),
                                Err(error) => {
                                    assert_eq!(error, JobError::Cancelled);
                                    cancelled.fetch_add(1, SeqCst);
                                }
                            },
                            Ok(handle) if handle.cancel() => {
                                cancelled.fetch_add(1, SeqCst);
                            }
                            Ok(handle) => drop(handle),
                            Err(error) => {
                                assert!(error.is_closed());
                                back.fetch_add(1, SeqCst);
                            }
                        }
                    }
                });
                submitting.fetch_sub(1, SeqCst);
                assert_eq!(result, Ok(()));
            });
        }
        for round in 0.. {
            pool.resize(1 + round % CAPACITY_MOST).expect("in range");
            assert_sums(&pool.stats());
            if round % 16 == 15 {
                pool.close();
                scheduler.block_on(pool.ended()).expect("its jobs end");
                pool.reopen().expect("it has ended");
            }
            if submitting.load(SeqCst) == 0 {
                break;
            }
            crate::home::thread::yield_now();
        }
    });
    pool.close();
    scheduler.block_on(pool.ended()).expect("its jobs end");
    let (ran, back, cancelled) = (ran.load(SeqCst), back.load(SeqCst), cancelled.load(SeqCst));
    assert_eq!(
        ran + back + cancelled,
        SUBMITTERS * JOBS,
        "{ran} ran, {back} came back, {cancelled} were cancelled"
    );
    assert!(most.load(SeqCst) <= CAPACITY_MOST as u64);
    let stats = pool.stats();
    assert_sums(&stats);
    assert_eq!((stats.completed + stats.panicked, stats.cancelled), (ran, cancelled));
}

/// Many scopes at once on a crowded pool: no job outlives its scope.
#[test]
fn no_job_runs_once_its_scope_has_returned() {
    let scheduler = threaded(2);
    let pool = of(&scheduler, 3, Queue::Unbounded);
    crate::home::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for round in 0..50_u64 {
                    let left = AtomicU64::new(0);
                    pool.scope(async |scope| {
                        for n in 0..round % 5 {
                            left.fetch_add(1, SeqCst);
                            let guard = Dropped(&left);
                            let job = async move {
                                let left = guard.0;
                                let _guard = guard;
                                for _ in 0..n {
                                    yield_now().await;
                                }
                                left.fetch_sub(2, SeqCst);
                            };
                            scope.execute(job).await.expect("it is open");
                        }
                    })
                    .expect("the caller is a plain thread");
                    assert_eq!(left.into_inner(), 0, "in round {round}");
                }
            });
        }
    });
}
