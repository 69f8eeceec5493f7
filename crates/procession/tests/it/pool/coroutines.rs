//! Pools of coroutines.

use crate::home::mpsc;
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{CoPool, JobError, OnFull, Pool, PoolError, WaitError};
use procession::process::{current_pid, kill};
use procession::{Scheduler, SpawnOptions, coroutine, spawn, spawn_blocking};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::{assert_sums, gated};
use crate::scene::{driven, panic_quietly, soon, soon_closed};

fn scheduler(width: usize) -> Scheduler {
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    unsafe { Scheduler::builder().worker_threads(width).enable_coroutines() }
        .build()
        .expect("the system has threads and memory")
}

fn of(scheduler: &Scheduler, capacity: usize) -> CoPool {
    Pool::builder()
        .capacity(capacity)
        .on(scheduler)
        .build_coroutines()
        .expect("it starts no coroutine yet")
}

async fn end(pool: &CoPool) {
    pool.close();
    pool.ended().await.expect("its jobs end");
    let stats = pool.stats();
    assert_eq!((stats.live, stats.queued), (0, 0));
    assert_sums(&stats);
}

#[test]
fn jobs_wait_in_straight_line_code_and_no_more_at_once_than_the_capacity() {
    for width in [1, 3] {
        let scheduler = scheduler(width);
        let pool = of(&scheduler, 10);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        scheduler.block_on(async {
            let mut handles = Vec::new();
            for n in 0..200 {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                let job = move || {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    assert!(coroutine::may_suspend());
                    coroutine::sleep(Duration::from_micros(100));
                    now.fetch_sub(1, SeqCst);
                    n
                };
                handles.push(pool.submit(job).await.expect("it is open"));
            }
            for (n, handle) in handles.into_iter().enumerate() {
                assert_eq!(handle.await, Ok(n));
            }
            assert!(most.load(SeqCst) <= 10 && pool.stats().peak <= 10);
            end(&pool).await;
        });
    }
}

#[test]
fn a_panic_goes_to_the_handle_and_the_worker_goes_on() {
    let scheduler = scheduler(1);
    let (reports, reported) = mpsc::channel();
    let reports = procession_sync::Mutex::new(reports);
    let report = move |payload: Box<dyn std::any::Any + Send>| {
        let text = payload.downcast_ref::<String>().cloned().unwrap_or_default();
        reports.lock().send(text).expect("the test listens");
    };
    let pool = Pool::builder()
        .capacity(1)
        .on_panic(report)
        .on(&scheduler)
        .build_coroutines()
        .expect("valid");
    scheduler.block_on(async {
        let panics = pool.submit(|| panic_quietly("one")).await.expect("it is open");
        assert!(matches!(panics.await, Err(JobError::Panicked(text)) if &*text == "one"));
        pool.execute(|| panic_quietly("two")).await.expect("it is open");
        assert_eq!(pool.submit(|| 3).await.expect("it is open").await, Ok(3));
        let stats = pool.stats();
        assert_eq!((stats.panicked, stats.workers_started), (2, 1));
        // The workers of the pool can run futures, too.
        assert_eq!(
            pool.submit(|| coroutine::wait(async { 4 })).await.expect("it is open").await,
            Ok(4)
        );
        end(&pool).await;
    });
    assert_eq!(soon(&reported), "two");
}

#[test]
fn what_is_refused_comes_back_and_the_end_of_the_scheduler_unwinds_jobs() {
    let scheduler = scheduler(2);
    let builder = Pool::builder().capacity(1).on_full(OnFull::Refuse);
    let pool = builder.on(&scheduler).build_coroutines().expect("valid");
    let (held, holds) = mpsc::channel::<()>();
    let (starts, started) = mpsc::channel();
    let job = move || {
        let _held = held;
        starts.send(()).expect("the test listens");
        coroutine::wait(std::future::pending::<()>());
    };
    let handle = pool.job(job).try_submit().expect("there is room");
    soon(&started);
    let refused = pool.job(|| 5).try_submit().expect_err("it is full");
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), 5);
    drop(scheduler);
    soon_closed(&holds);
    assert_eq!(handle.join(), Err(JobError::Cancelled));
    let refused = pool.job(|| 6).try_submit().expect_err("the scheduler has ended");
    assert_eq!(refused.into_inner()(), 6);
    assert_sums(&pool.stats());
}

#[test]
fn a_setting_without_an_effect_on_the_workers_is_refused() {
    let scheduler = scheduler(1);
    let builder = || Pool::builder().on(&scheduler);
    let refused = [
        ("on", builder().build().err()),
        ("on", builder().build_function(|()| ()).err()),
        ("stack_size", builder().stack_size(1 << 20).build_async().err()),
        ("on_full(CallerRuns)", builder().on_full(OnFull::CallerRuns).build_async().err()),
        ("on_full(CallerRuns)", builder().on_full(OnFull::CallerRuns).build_coroutines().err()),
    ];
    for (expected, error) in refused {
        let error = error.expect("it is refused");
        assert!(matches!(error, PoolError::Unused { setting, .. } if setting == expected));
        assert!(error.to_string().contains(&format!("{expected} has no effect")), "{error}");
    }
    assert!(builder().stack_size(1 << 20).build_coroutines().is_ok());
}

#[test]
fn without_coroutines_there_is_no_pool_of_them() {
    let refused =
        Pool::builder().on(&driven()).build_coroutines().expect_err("they are not enabled");
    assert!(
        matches!(&refused, PoolError::NoCoroutines { .. })
            && refused.to_string().contains("enable_coroutines"),
        "{refused}"
    );
}

#[test]
fn jobs_of_a_scope_borrow_wait_and_add_jobs() {
    for width in [1, 3] {
        let scheduler = scheduler(width);
        let pool = of(&scheduler, 4);
        let words: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let mut lengths = vec![0; words.len()];
        let sum = AtomicUsize::new(0);
        let last = pool.scope(|scope| {
            for (word, length) in words.iter().zip(&mut lengths) {
                let job = || {
                    coroutine::sleep(Duration::from_micros(100));
                    *length = word.len();
                };
                scope.execute(job).expect("it is open");
            }
            let sum = &sum;
            let outer = move || {
                let inner = scope.submit(|| sum.fetch_add(1, SeqCst)).expect("it is open");
                inner.join().expect("it returns")
            };
            // A handle that is forgotten detaches its job.
            std::mem::forget(scope.submit(outer).expect("it is open"));
            scope.submit(|| words.last().map(String::as_str)).expect("it is open").join()
        });
        assert_eq!(last, Ok(Ok(Some("99"))));
        assert!(words.iter().zip(&lengths).all(|(word, &length)| word.len() == length));
        assert_eq!(sum.load(SeqCst), 1);
        scheduler.block_on(end(&pool));
    }
}

#[test]
fn a_scope_of_coroutines_waits_even_if_its_body_panics() {
    let scheduler = scheduler(1);
    let pool = of(&scheduler, 1);
    let ended = AtomicUsize::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.scope(|scope| {
            for _ in 0..3 {
                let job = || {
                    coroutine::sleep(Duration::from_millis(1));
                    ended.fetch_add(1, SeqCst);
                    panic_quietly("in a job")
                };
                scope.execute(job).expect("it is open");
            }
            panic_quietly("in the body")
        })
    }));
    let payload = result.expect_err("the body panicked");
    assert_eq!(*payload.downcast::<String>().expect("it is the text"), "in the body");
    assert_eq!(ended.load(SeqCst), 3, "its jobs have ended");
}

#[test]
fn a_scope_outlives_its_scheduler_and_its_jobs_are_unwound() {
    struct Dropped<'a>(&'a AtomicUsize);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let scheduler = scheduler(2);
    let pool = of(&scheduler, 2);
    let (dropped, (begin, begun)) = (AtomicUsize::new(0), mpsc::channel());
    pool.scope(|scope| {
        for _ in 0..2 {
            let (guard, begin) = (Dropped(&dropped), begin.clone());
            let job = move || {
                let _guard = guard;
                begin.send(()).expect("the test looks");
                coroutine::sleep(Duration::MAX);
            };
            scope.execute(job).expect("it is open");
            soon(&begun);
        }
        drop(scheduler);
    })
    .expect("the caller is a plain thread");
    assert_eq!(dropped.load(SeqCst), 2, "what the jobs borrowed is released");
}

#[test]
fn a_process_cannot_wait_for_a_scope_of_coroutines_but_a_blocking_job_can() {
    let scheduler = scheduler(1);
    let pool = of(&scheduler, 1);
    let refused = |pool: &CoPool| {
        let refused = pool.scope(|_| unreachable!("the body is not run"));
        assert_eq!(refused, Err::<(), _>(WaitError::OnWorker));
    };
    scheduler.block_on(async {
        let own = pool.clone();
        let job = pool.submit(move || refused(&own)).await.expect("it is open");
        assert_eq!(job.await, Ok(()));
        let other = pool.clone();
        assert_eq!(spawn(async move { refused(&other) }).await, Ok(()));
        let blocking = spawn_blocking(move || {
            let word = String::from("three");
            pool.scope(|scope| scope.submit(|| word.len()).expect("it is open").join())
        });
        assert_eq!(blocking.await, Ok(Ok(Ok(5))));
    });
}

/// Goal: a pool of threads ends although a coroutine is ended in a job that it runs itself. Method:
/// the only worker is busy, and the coroutine is killed while the job sleeps.
#[test]
fn a_coroutine_that_is_ended_in_a_job_that_it_runs_itself_leaves_nothing_behind() {
    let scheduler = scheduler(1);
    let pool = Pool::builder().capacity(1).on_full(OnFull::CallerRuns).build().expect("in range");
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    gate.wait_for_job();
    let (tell, told) = mpsc::channel();
    let caller = pool.clone();
    let runs = move |_: coroutine::Context<()>| {
        let job = move || {
            tell.send(current_pid()).expect("the test listens");
            coroutine::sleep(Duration::from_secs(3600));
        };
        caller.execute(job).expect("it is open");
    };
    let child = SpawnOptions::new().on(&scheduler).try_start_coroutine(runs);
    let child = child.expect("there is room");
    assert!(kill(soon(&told).expect("a coroutine is a process")));
    gate.open();
    pool.close();
    pool.wait(Some(Duration::from_secs(60))).expect("no job is left");
    assert_eq!((pool.stats().cancelled, pool.stats().completed), (1, 1));
    assert_sums(&pool.stats());
    drop(child);
}
