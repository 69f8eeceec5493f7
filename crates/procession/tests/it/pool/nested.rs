//! Jobs that wait for other jobs of their own pool of processes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::pool::JobHandle;
use procession::sync::oneshot;
use procession::{sleep, timeout, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::deaths::Processes;

const HOUR: Duration = Duration::from_secs(3600);

/// Counts the jobs that do not wait for others.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Running {
    fn begin(&self) {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, SeqCst);
    }
}

#[test]
fn jobs_that_wait_for_their_own_jobs_all_end_and_no_more_run_than_the_capacity() {
    for (scheduler, pool) in Processes::of_each_kind(4) {
        let running = Arc::new(Running::default());
        scheduler.block_on(async {
            let outer: Vec<_> = (0..100)
                .map(|n| {
                    let (inside, running) = (pool.clone(), Arc::clone(&running));
                    pool.submit(async move {
                        running.begin();
                        let mut sum = 0;
                        for k in 0..10 {
                            let counts = Arc::clone(&running);
                            let handle = inside.submit(async move {
                                counts.begin();
                                yield_now().await;
                                counts.end();
                                n * k
                            });
                            running.end();
                            sum += handle.await.expect("it returns");
                            running.begin();
                        }
                        running.end();
                        sum
                    })
                })
                .collect();
            for (n, handle) in outer.into_iter().enumerate() {
                assert_eq!(timeout(HOUR, handle).await, Ok(Ok(n * 45)));
            }
            pool.end().await;
        });
        assert_eq!(running.most.load(SeqCst), 4);
    }
}

/// Goal: a job that awaits several jobs in any order goes on. Method: it polls all handles once,
/// and then awaits the last one first.
#[test]
fn a_lent_place_is_passed_on_among_the_jobs_that_are_awaited() {
    for (scheduler, pool) in Processes::of_each_kind(1) {
        scheduler.block_on(async {
            let inside = pool.clone();
            let outer = pool.submit(async move {
                let mut handles: Vec<_> =
                    (0..20).map(|n| inside.submit(async move { n })).collect();
                poll_fn(|task| {
                    let mut polls = handles.iter_mut().map(|handle| Pin::new(handle).poll(task));
                    assert!(polls.all(|poll| poll.is_pending()));
                    Poll::Ready(())
                })
                .await;
                let mut sum = 0;
                while let Some(handle) = handles.pop() {
                    sum += handle.await.expect("it returns");
                }
                sum
            });
            assert_eq!(timeout(HOUR, outer).await, Ok(Ok(190)));
            pool.end().await;
        });
    }
}

fn nested(pool: Processes, depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            return 0;
        }
        let inner = pool.submit(nested(pool.clone(), depth - 1));
        1 + inner.await.expect("it returns")
    })
}

#[test]
fn jobs_wait_for_each_other_to_any_depth() {
    for (scheduler, pool) in Processes::of_each_kind(1) {
        let outer = pool.submit(nested(pool.clone(), 100));
        assert_eq!(scheduler.block_on(timeout(HOUR, outer)), Ok(Ok(100)));
        scheduler.block_on(pool.end());
    }
}

#[test]
fn a_job_that_gives_up_takes_its_place_back() {
    for (scheduler, pool) in Processes::of_each_kind(1) {
        scheduler.block_on(async {
            let inside = pool.clone();
            let (pass, passed) = oneshot::channel::<JobHandle<()>>();
            let outer = pool.submit(async move {
                let mut long = inside.submit(sleep(Duration::from_secs(60)));
                assert!(timeout(Duration::from_secs(1), &mut long).await.is_err());
                pass.send(long).expect("the test waits");
            });
            outer.await.expect("it returns");
            let long = passed.await.expect("it is passed");
            // The long job has the only place now.
            let next = pool.submit(async {});
            assert_eq!(pool.stats().queued, 1);
            long.await.expect("it returns");
            next.await.expect("it returns");
            assert_eq!(pool.stats().peak, 2);
            pool.end().await;
        });
    }
}

/// Goal: the place of a killed job that waits, and that of a killed job that is waited for, are
/// used again.
#[test]
fn a_killed_lender_and_a_killed_borrower_leave_the_capacity_as_it_was() {
    for kills_lender in [false, true] {
        for (scheduler, pool) in Processes::of_each_kind(1) {
            scheduler.block_on(async {
                let inside = pool.clone();
                let (tell, told) = oneshot::channel();
                let outer = pool.submit(async move {
                    let lender = procession::current_pid().expect("it is a process");
                    let (pass, passed) = oneshot::channel();
                    let inner = inside.submit(async move {
                        pass.send(procession::current_pid()).expect("it waits");
                        sleep(HOUR).await;
                    });
                    let borrower = procession::spawn(async move { passed.await });
                    let told = procession::spawn(async move {
                        let borrower = borrower.await.expect("it returns").expect("it is passed");
                        tell.send((lender, borrower.expect("it is a process"))).ok();
                    });
                    told.detach();
                    inner.await.is_ok()
                });
                let (lender, borrower) = told.await.expect("it is told");
                assert!(scheduler.terminate(if kills_lender { lender } else { borrower }));
                if kills_lender {
                    outer.await.expect_err("it was killed");
                } else {
                    assert_eq!(outer.await, Ok(false));
                }
                let next = pool.submit(async { 1 });
                assert_eq!(timeout(HOUR + HOUR, next).await, Ok(Ok(1)));
                pool.end().await;
            });
        }
    }
}

/// Goal: a job that its key has held begins in the place of the job that awaits it. Method: the
/// worker that ends the earlier job of the key takes an older job, which waits for the held one.
#[test]
fn a_job_that_its_key_held_begins_in_the_lent_place() {
    for (scheduler, pool) in Processes::of_each_kind(2) {
        scheduler.block_on(async {
            let keyed = pool.with_key("key");
            let (end, ended) = oneshot::channel::<()>();
            let first = keyed.submit(ended);
            let (pass, passed) = oneshot::channel::<JobHandle<()>>();
            let lender = pool.submit(async { passed.await.expect("it is passed").await });
            let (tell, told) = oneshot::channel::<()>();
            let older = pool.submit(told);
            let held = keyed.submit(async { tell.send(()).expect("the older job waits") });
            assert!(pass.send(held).is_ok(), "the lender waits");
            sleep(Duration::from_secs(1)).await;
            end.send(()).expect("the first job waits");
            assert_eq!(timeout(HOUR, lender).await, Ok(Ok(Ok(()))));
            assert_eq!(older.await, Ok(Ok(())));
            assert_eq!(first.await, Ok(Ok(())));
            pool.end().await;
        });
    }
}
