use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{AsyncPool, JobError, OnFull, Pool, Queue, WaitError};
use procession::time::Instant;
use procession::{Scheduler, sleep, spawn, yield_now};
use procession_sync::Mutex;

use super::assert_sums;
use crate::scene::{TIMEOUT, alive, driven, panic_quietly, threaded};

fn of(scheduler: &Scheduler, capacity: usize, queue: Queue) -> AsyncPool {
    Pool::builder()
        .capacity(capacity)
        .queue(queue)
        .on(scheduler)
        .build_async()
        .expect("it starts no process yet")
}

async fn end(pool: &AsyncPool) {
    pool.close();
    pool.ended().await.expect("its jobs end");
    let stats = pool.stats();
    assert_eq!((stats.live, stats.queued), (0, 0));
    assert_sums(&stats);
}

#[test]
fn no_more_jobs_run_at_once_than_the_capacity() {
    let scheduler = driven();
    let pool = of(&scheduler, 10, Queue::HandOff);
    scheduler.block_on(async {
        let start = Instant::now();
        let mut handles = Vec::new();
        for n in 0..100 {
            let job = async move {
                sleep(Duration::from_millis(10)).await;
                n
            };
            handles.push(pool.submit(job).await.expect("it is open"));
            assert_sums(&pool.stats());
        }
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.await, Ok(n));
        }
        assert_eq!(Instant::now() - start, Duration::from_millis(100), "ten at a time");
        assert_eq!(pool.stats().peak, 10);
        end(&pool).await;
    });
}

#[test]
fn idle_workers_end_on_the_schedulers_clock_and_a_trickle_keeps_one() {
    let scheduler = driven();
    let pool = Pool::builder()
        .capacity(8)
        .keep_alive(Duration::from_secs(10))
        .on(&scheduler)
        .build_async();
    let pool = pool.expect("valid");
    scheduler.block_on(async {
        for _ in 0..8 {
            pool.execute(sleep(Duration::from_secs(1))).await.expect("it is open");
        }
        pool.idle().await.expect("they end");
        assert_eq!((pool.stats().live, pool.stats().idle), (8, 8));
        for _ in 0..12 {
            pool.submit(sleep(Duration::from_millis(1)))
                .await
                .expect("it is open")
                .await
                .expect("it returns");
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(pool.stats().live, 1);
        sleep(Duration::from_secs(11)).await;
        assert_eq!(pool.stats().live, 0);
        end(&pool).await;
    });
}

#[test]
fn an_idle_worker_has_no_process_and_its_hooks_frame_its_life() {
    let scheduler = driven();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |what: &'static str| {
        let told = Arc::clone(&told);
        move || told.lock().push(what)
    };
    let builder = Pool::builder().capacity(2).prestart(1).keep_alive(Duration::from_secs(10));
    let builder = builder.on_worker_start(tell("start")).on_worker_stop(tell("stop"));
    let pool = builder.on(&scheduler).build_async().expect("valid");
    let job = |pool: AsyncPool| async move {
        pool.submit(sleep(Duration::from_secs(1))).await.expect("it is open")
    };
    scheduler.block_on(async {
        assert_eq!((pool.stats().live, pool.stats().idle), (1, 1));
        for _ in 0..3 {
            job(pool.clone()).await.await.expect("it returns");
        }
        pool.idle().await.expect("nothing runs");
        assert_eq!(*told.lock(), ["start"], "the same worker ran all of them");
        let both = [job(pool.clone()).await, job(pool.clone()).await];
        assert_eq!(alive(&scheduler.snapshot()).count(), 2);
        for handle in both {
            handle.await.expect("it returns");
        }
        pool.idle().await.expect("nothing runs");
        assert_eq!((pool.stats().live, pool.stats().idle), (2, 2));
        assert_eq!(alive(&scheduler.snapshot()).count(), 0);
        sleep(Duration::from_secs(11)).await;
        assert_eq!((pool.stats().live, pool.stats().workers_retired), (0, 2));
        assert_eq!(*told.lock(), ["start", "start", "stop", "stop"]);
        // A process that was never begun has nothing to stop. A close waits for the hooks of the
        // others.
        pool.set_keep_alive(Duration::MAX);
        job(pool.clone()).await.await.expect("it returns");
        end(&pool).await;
        assert_eq!(told.lock().len(), 6);
    });
}

#[test]
fn a_pool_with_a_full_scheduler_gives_jobs_back_and_goes_on_later() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .callers_drive()
        .max_processes(2)
        .build()
        .expect("valid");
    let pool = of(&scheduler, 2, Queue::HandOff);
    scheduler.block_on(async {
        pool.submit(async {}).await.expect("it is open").await.expect("it returns");
        assert_eq!(pool.stats().idle, 1);
        let others = [spawn(sleep(Duration::from_secs(1))), spawn(sleep(Duration::from_secs(1)))];
        let refused =
            pool.submit(async { 1 }).await.expect_err("there are as many processes as may be");
        assert!(refused.is_no_worker(), "{refused:?}");
        assert_eq!((pool.stats().live, pool.stats().idle, pool.stats().refused), (1, 1, 1));
        for other in others {
            other.await.expect("it returns");
        }
        assert_eq!(pool.submit(refused.into_inner()).await.expect("there is room").await, Ok(1));
        end(&pool).await;
    });
}

#[test]
fn a_job_that_found_no_room_for_its_worker_is_run_as_soon_as_there_is_some() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .callers_drive()
        .max_processes(2)
        .build()
        .expect("valid");
    let pool = of(&scheduler, 2, Queue::Bounded(1));
    scheduler.block_on(async {
        let (first, second) = (pool.submit(async {}).await, pool.submit(async {}).await);
        drop((first.expect("it is open").await, second.expect("it is open").await));
        assert_eq!(pool.stats().idle, 2);
        let other = spawn(sleep(Duration::from_secs(1)));
        let long = pool.submit(sleep(Duration::from_secs(3600))).await.expect("it is open");
        let waits = pool.submit(async { 1 }).await.expect("one is busy");
        assert_eq!((pool.stats().queued, pool.stats().idle), (1, 1));
        let begin = Instant::now();
        other.await.expect("it returns");
        assert_eq!(waits.await, Ok(1));
        assert!(
            Instant::now() - begin < Duration::from_secs(2),
            "it does not wait for the other job"
        );
        assert!(!long.is_finished());
    });
}

#[test]
fn a_larger_pool_starts_as_many_workers_as_there_is_room_for_and_the_others_later() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .callers_drive()
        .max_processes(3)
        .build()
        .expect("valid");
    let pool = of(&scheduler, 1, Queue::Bounded(3));
    scheduler.block_on(async {
        let job =
            || pool.job(sleep(Duration::from_secs(60))).try_submit().expect("there is a place");
        let begin = Instant::now();
        let other = spawn(sleep(Duration::from_secs(1)));
        let handles: Vec<_> = (0..4).map(|_| job()).collect();
        assert_eq!(pool.resize(4).expect("it is open"), 1);
        assert_eq!(
            (pool.stats().busy, pool.stats().queued),
            (2, 2),
            "there is room for one more process"
        );
        assert_sums(&pool.stats());
        other.await.expect("it returns");
        sleep(Duration::from_secs(1)).await;
        assert_eq!((pool.stats().busy, pool.stats().queued), (3, 1), "and now for another");
        for handle in handles {
            assert_eq!(handle.await, Ok(()));
        }
        assert!(
            Instant::now() - begin < Duration::from_secs(123),
            "the last begins as soon as one has ended"
        );
        let stats = pool.stats();
        assert_sums(&stats);
        assert_eq!((stats.completed, stats.workers_started), (4, 3));
        end(&pool).await;
    });
}

#[test]
fn a_stop_hook_is_called_also_where_no_process_can_be_started() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .callers_drive()
        .max_processes(1)
        .build()
        .expect("valid");
    let stops = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&stops);
    let builder = Pool::builder().on_worker_stop(move || *counted.lock() += 1);
    let pool = builder.on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        pool.submit(async {}).await.expect("it is open").await.expect("it returns");
        let other = spawn(sleep(Duration::from_secs(1)));
        end(&pool).await;
        assert_eq!(*stops.lock(), 1);
        other.await.expect("it returns");
    });
}

#[test]
fn panics_go_to_handles_or_the_handler_and_the_worker_goes_on() {
    let scheduler = driven();
    let (report, reports) = crate::home::mpsc::channel();
    let handler = move |payload: Box<dyn std::any::Any + Send>| {
        report
            .send(*payload.downcast::<String>().expect("it is the text"))
            .expect("the test looks");
    };
    let pool =
        Pool::builder().capacity(1).on_panic(handler).on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        let job = async {
            yield_now().await;
            if true {
                panic_quietly("held");
            }
        };
        assert_eq!(
            pool.submit(job).await.expect("open").await,
            Err(JobError::Panicked("held".into()))
        );
        pool.execute(async { panic_quietly("loose") }).await.expect("open");
        assert_eq!(pool.submit(async { 1 }).await.expect("open").await, Ok(1));
        end(&pool).await;
    });
    assert_eq!(reports.recv().as_deref(), Ok("loose"));
    assert_eq!((pool.stats().panicked, pool.stats().workers_started), (2, 1));
}

#[test]
fn what_is_refused_comes_back() {
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::HandOff);
    let hurried = Pool::builder()
        .capacity(1)
        .on_full(OnFull::Refuse)
        .on(&scheduler)
        .build_async()
        .expect("valid");
    scheduler.block_on(async {
        pool.execute(sleep(Duration::from_secs(5))).await.expect("there is room");
        assert!(pool.job(async { 1 }).try_submit().expect_err("it is full").is_full());
        let late = pool
            .job(async { 2 })
            .timeout(Duration::from_secs(1))
            .submit()
            .await
            .expect_err("it stays full");
        assert!(late.is_timeout());
        assert_eq!(late.into_inner().await, 2);
        let waited = pool.submit(async { Instant::now() }).await.expect("it waits");
        assert_eq!(waited.await.expect("it returns") - Instant::now(), Duration::ZERO);

        hurried.execute(sleep(Duration::from_secs(1))).await.expect("there is room");
        assert!(hurried.submit(async { 1 }).await.expect_err("it is full").is_full());
        end(&hurried).await;
        let closed = hurried.submit(async { 4 }).await.expect_err("it is closed");
        assert!(closed.is_closed());
        assert_eq!(closed.into_inner().await, 4);
        hurried.reopen().expect("it has ended");
        assert_eq!(hurried.submit(async { 5 }).await.expect("it is open").await, Ok(5));
        end(&pool).await;
    });
}

#[test]
fn a_submit_to_ones_own_full_pool_is_an_error() {
    let scheduler = driven();
    let pool = of(&scheduler, 2, Queue::HandOff);
    scheduler.block_on(async {
        let mut handles = Vec::new();
        for _ in 0..2 {
            let inside = pool.clone();
            let job = async move {
                yield_now().await;
                inside.execute(async {}).await.map_err(|error| error.is_deadlock())
            };
            handles.push(pool.submit(job).await.expect("there is room"));
        }
        let mut results = Vec::new();
        for handle in handles {
            results.push(handle.await.expect("it returns"));
        }
        results.sort();
        assert_eq!(results, [Ok(()), Err(true)]);
        let inside = pool.clone();
        let waits = async move { (inside.ended().await, inside.idle().await) };
        let waits = pool.submit(waits).await.expect("there is room").await;
        assert_eq!(waits, Ok((Err(WaitError::Open), Err(WaitError::Inside))));
        end(&pool).await;
    });
}

#[test]
fn the_end_of_the_scheduler_resolves_every_handle() {
    for has_threads in [false, true] {
        let scheduler = if has_threads { threaded(1) } else { driven() };
        let pool = of(&scheduler, 2, Queue::Unbounded);
        let handles: Vec<_> = (0..20)
            .map(|_| pool.job(std::future::pending::<()>()).try_submit().expect("it is open"))
            .collect();
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(500)));
        // On a busy machine, 50 ms may be too short to end all of them.
        assert!(has_threads || unfinished.processes.is_empty(), "{unfinished}");
        let count = unfinished.terminated.len() + unfinished.processes.len();
        assert!(count > 0, "jobs were under way");
        assert!(scheduler.block_on(scheduler.shutdown(TIMEOUT)).is_empty());
        for handle in handles {
            assert!(handle.is_finished());
            assert!(!handle.cancel(), "it has ended");
        }
        let stats = pool.stats();
        assert_sums(&stats);
        assert_eq!((stats.live, stats.cancelled), (0, 20));
        let refused = pool.job(async { 7 }).try_submit().expect_err("nobody can run it");
        assert!(refused.is_no_worker());
    }
}

#[test]
fn a_worker_that_is_terminated_before_its_first_step_cancels_its_job_and_another_runs_the_next() {
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::Bounded(1));
    let job = || pool.job(async { 1 }).try_submit().expect("there is a place");
    let (first, second) = (job(), job());
    for process in scheduler.snapshot().processes {
        assert!(procession::process::kill(process.pid));
    }
    assert_eq!(scheduler.block_on(second), Ok(1));
    assert_eq!(scheduler.block_on(first), Err(JobError::Cancelled));
    let stats = pool.stats();
    assert_sums(&stats);
    assert_eq!((stats.completed, stats.cancelled, stats.workers_started), (1, 1, 2));
}

/// Goal: a job that runs in the process of another job, and that process, are killed like any
/// others. Method: the process of two jobs is terminated in the second one, which panics in its
/// drop, while a third is queued. The second job sleeps without an end, and does so by the time the
/// clock has moved.
#[test]
fn a_worker_that_is_terminated_in_its_second_job_cancels_that_and_another_runs_the_next() {
    struct Dropped(Arc<Mutex<u32>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            *self.0.lock() += 1;
            panic_quietly("on its way out");
        }
    }
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::Bounded(2));
    let drops = Arc::new(Mutex::new(0));
    let dropped = Dropped(Arc::clone(&drops));
    let first = pool.job(async { 1 }).try_submit().expect("there is a place");
    let second = pool
        .job(async move {
            yield_now().await;
            let _dropped = dropped;
            sleep(Duration::MAX).await;
            2
        })
        .try_submit();
    let second = second.expect("there is a place");
    assert_eq!(scheduler.block_on(first), Ok(1));
    let third = pool.job(async { 3 }).try_submit().expect("there is a place");
    scheduler.block_on(sleep(Duration::from_secs(1)));
    assert!(!second.is_finished());
    assert_eq!(pool.stats().workers_started, 1, "the second job runs where the first did");
    for process in scheduler.snapshot().processes {
        assert!(procession::process::kill(process.pid));
    }
    assert_eq!(scheduler.block_on(third), Ok(3));
    assert_eq!(scheduler.block_on(second), Err(JobError::Cancelled));
    assert_eq!(*drops.lock(), 1);
    let stats = pool.stats();
    assert_sums(&stats);
    assert_eq!((stats.completed, stats.cancelled, stats.workers_started), (2, 1, 2));
}

#[test]
fn a_dropped_submit_leaves_the_queue_and_passes_its_place_on() {
    let scheduler = driven();
    let pool = Arc::new(of(&scheduler, 1, Queue::HandOff));
    scheduler.block_on(async {
        pool.execute(sleep(Duration::from_secs(1))).await.expect("there is room");
        let first = procession::timeout(Duration::from_millis(1), pool.submit(async { 1 })).await;
        assert!(first.is_err());
        assert_eq!(pool.stats().waiting, 0);
        let (one, two) = (Arc::clone(&pool), Arc::clone(&pool));
        let impatient = procession::spawn(async move { one.execute(async {}).await.is_ok() });
        let patient =
            procession::spawn(async move { two.submit(async { 2 }).await.expect("open").await });
        yield_now().await;
        impatient.cancel();
        assert_eq!(patient.await, Ok(Ok(2)));
        drop(impatient);
        end(&pool).await;
    });
}

#[test]
fn many_submitters_on_many_workers_lose_nothing() {
    let scheduler = threaded(2);
    let pool = of(&scheduler, 7, Queue::Bounded(3));
    let sum = scheduler.block_on(async {
        let submitters: Vec<_> = (0..16_u64)
            .map(|n| {
                let pool = pool.clone();
                procession::spawn(async move {
                    let mut sum = 0;
                    for k in 0..100 {
                        let job = async move {
                            if k % 3 == 0 {
                                yield_now().await;
                            }
                            n * k
                        };
                        let handle = pool.submit(job).await.expect("it is open");
                        sum += handle.await.expect("it returns");
                    }
                    sum
                })
            })
            .collect();
        let mut sum = 0;
        for submitter in submitters {
            sum += submitter.await.expect("it returns");
        }
        end(&pool).await;
        sum
    });
    assert_eq!(sum, (0..16).sum::<u64>() * (0..100).sum::<u64>());
    assert!(pool.stats().peak <= 7);
}

/// Goal: a submitter can be a process, whatever it submits. Method: this compiles; jobs with trait
/// objects and borrows of statics run.
#[test]
fn a_process_submits_whatever_can_be_sent() {
    let scheduler = driven();
    let pool = of(&scheduler, 1, Queue::HandOff);
    let submitted = pool.clone();
    let submitter = scheduler.spawn(async move {
        let (name, length): (&'static str, Box<dyn Fn(&str) -> usize + Send>) =
            ("job", Box::new(str::len));
        let boxed: Pin<Box<dyn Future<Output = usize> + Send>> = Box::pin(async { 4 });
        let first = submitted.submit(boxed).await.expect("it is open");
        let second = submitted.submit(async move { length(name) }).await.expect("it is open");
        submitted.execute(std::future::ready(())).await.expect("it is open");
        (first.await, second.await)
    });
    assert_eq!(scheduler.block_on(submitter), Ok((Ok(4), Ok(3))));
}
