//! Jobs that wait for other jobs of their own pool of processes.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::pool::{Balance, JobError, JobHandle, Pool, Queue};
use procession::process::{current_pid, kill};
use procession::sync::{Barrier, oneshot};
use procession::{Scheduler, sleep, timeout, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::deaths::Processes;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

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

/// Pools of two members, each for one job.
fn of_two_members() -> [(Scheduler, Processes); 2] {
    let builder = || Pool::builder().capacity(1).members(2, Balance::RoundRobin);
    Processes::of(|| builder().queue(Queue::Unbounded))
}

fn two_members(pool: &Processes) -> [Processes; 2] {
    <[Processes; 2]>::try_from(pool.members()).map_err(drop).expect("it has two")
}

/// Goal: jobs of two members that await jobs queued on the other member go on, and jobs in the lent
/// places, too, back to the first member.
#[test]
fn jobs_wait_for_jobs_of_the_other_member() {
    fn between(members: [Processes; 2], depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
        Box::pin(async move {
            let [own, other] = members;
            if depth == 0 {
                return 0;
            }
            let inner = other.submit(between([other.clone(), own], depth - 1));
            1 + inner.await.expect("it returns")
        })
    }
    for (scheduler, pool) in of_two_members() {
        let [first, second] = two_members(&pool);
        let both = Arc::new(Barrier::new(2));
        let outer = [[&first, &second], [&second, &first]].map(|[own, other]| {
            let (members, both) = ([own.clone(), other.clone()], Arc::clone(&both));
            own.submit(async move {
                both.wait().await;
                between(members, 20).await
            })
        });
        scheduler.block_on(async {
            for handle in outer {
                assert_eq!(timeout(HOUR, handle).await, Ok(Ok(20)));
            }
            pool.end().await;
        });
        assert!(pool.stats().peak <= 42, "{:?}", pool.stats());
    }
}

/// Goal: a place that a job lends to another member is given back when the awaited job has ended,
/// also if the lending job has given up or was killed before.
#[test]
fn a_place_that_is_lent_to_another_member_is_given_back() {
    for is_killed in [false, true] {
        for (scheduler, pool) in of_two_members() {
            let [first, second] = two_members(&pool);
            scheduler.block_on(async {
                let (end, ended) = oneshot::channel::<()>();
                let busy = second.submit(ended);
                let inside = second.clone();
                let (tell, told) = oneshot::channel();
                let outer = first.submit(async move {
                    let inner = inside.submit(sleep(60 * SECOND));
                    tell.send(current_pid()).expect("the test waits");
                    timeout(10 * SECOND, inner).await.is_err()
                });
                let pid = told.await.expect("it is told").expect("it is a process");
                sleep(SECOND).await;
                assert_eq!((second.stats().busy, second.stats().queued), (2, 0), "it began");
                if is_killed {
                    assert!(kill(pid), "it is alive");
                    outer.await.expect_err("it was killed");
                } else {
                    assert_eq!(outer.await, Ok(true), "it gives up");
                }
                let next = second.submit(async {});
                sleep(100 * SECOND).await;
                assert_eq!((second.stats().busy, second.stats().queued), (1, 1), "it has ended");
                end.send(()).expect("it waits");
                assert_eq!((busy.await, next.await), (Ok(Ok(())), Ok(())));
                pool.end().await;
            });
        }
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
                    let lender = procession::process::current_pid().expect("it is a process");
                    let (pass, passed) = oneshot::channel();
                    let inner = inside.submit(async move {
                        pass.send(procession::process::current_pid()).expect("it waits");
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
                assert!(procession::process::kill(if kills_lender { lender } else { borrower }));
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

fn submit_long(pool: &Processes, running: &Arc<Running>) -> JobHandle<()> {
    let counts = Arc::clone(running);
    pool.submit(async move {
        counts.begin();
        sleep(SECOND).await;
        counts.end();
    })
}

async fn give_up(pool: &Processes, running: &Arc<Running>) {
    let long = submit_long(pool, running);
    assert!(timeout(Duration::from_millis(1), long).await.is_err());
}

/// Goal: a job lends its place to one job at a time, even if it gives each of them up. Method: it
/// gives up 20 jobs. They run themselves, or each leaves another one behind that does.
#[test]
fn a_job_that_gives_up_again_and_again_shares_its_place_with_one_other() {
    for leaves_another in [false, true] {
        for (scheduler, pool) in Processes::of_each_kind(1) {
            let running = Arc::new(Running::default());
            let (inside, counts) = (pool.clone(), Arc::clone(&running));
            let outer = pool.submit(async move {
                for _ in 0..20 {
                    if leaves_another {
                        let (within, counts) = (inside.clone(), Arc::clone(&counts));
                        let between = inside.submit(async move { give_up(&within, &counts).await });
                        between.await.expect("it returns");
                    } else {
                        give_up(&inside, &counts).await;
                    }
                }
            });
            scheduler.block_on(async {
                assert_eq!(timeout(HOUR, outer).await, Ok(Ok(())));
                pool.end().await;
            });
            assert_eq!(running.most.load(SeqCst), 1);
            assert!(pool.stats().peak <= 3);
        }
    }
}

/// Goal: a job lends its place to one job of another member at a time. Method: it gives up 20 jobs
/// of the other member, one after another, or polls the handles of all before it awaits them.
#[test]
fn a_job_shares_its_place_with_one_job_of_the_other_member() {
    for polls_all in [false, true] {
        for (scheduler, pool) in of_two_members() {
            let [first, second] = two_members(&pool);
            let running = Arc::new(Running::default());
            let (inside, counts) = (second.clone(), Arc::clone(&running));
            let outer = first.submit(async move {
                if !polls_all {
                    for _ in 0..20 {
                        give_up(&inside, &counts).await;
                    }
                    return;
                }
                let mut handles: Vec<_> = (0..20).map(|_| submit_long(&inside, &counts)).collect();
                poll_fn(|task| {
                    let mut polls = handles.iter_mut().map(|handle| Pin::new(handle).poll(task));
                    assert!(polls.all(|poll| poll.is_pending()));
                    Poll::Ready(())
                })
                .await;
                for handle in handles {
                    handle.await.expect("it returns");
                }
            });
            scheduler.block_on(async {
                assert_eq!(timeout(HOUR, outer).await, Ok(Ok(())));
                pool.end().await;
            });
            assert_eq!(running.most.load(SeqCst), 2, "one in the own place, one in the lent place");
            assert_eq!(second.stats().peak, 2);
        }
    }
}

/// Goal: a job that awaits a job of a key goes on, whatever comes before that one. Method: in a
/// pool for one job, it awaits the last one of a key first, or cancels the one before.
#[test]
fn a_place_is_lent_to_the_jobs_that_hold_the_awaited_one() {
    for (scheduler, pool) in Processes::of_each_kind(1) {
        let inside = pool.with_key("key");
        let outer = pool.submit(async move {
            let [first, second, third] = [1, 2, 3].map(|n| inside.submit(async move { n }));
            let last = third.await;
            (first.await, second.await, last)
        });
        let inside = pool.with_key("key");
        let cancels = pool.submit(async move {
            let first = inside.submit(async { 1 });
            let mut second = inside.submit(async { 2 });
            let mut polled = false;
            poll_fn(|task| {
                polled |= Pin::new(&mut second).poll(task).is_ready();
                Poll::Ready(())
            })
            .await;
            assert!(!polled);
            first.cancel();
            second.await
        });
        scheduler.block_on(async {
            assert_eq!(timeout(HOUR, outer).await, Ok(Ok((Ok(1), Ok(2), Ok(3)))));
            assert_eq!(timeout(HOUR, cancels).await, Ok(Ok(Ok(2))));
            pool.end().await;
        });
    }
}

/// Goal: a job that its key has held begins if a worker is idle, although the worker that ends the
/// earlier job of the key leaves. Method: the earlier job runs in a lent place, and its lender
/// waits for the held one by other means.
#[test]
fn a_job_that_its_key_held_gets_the_idle_worker() {
    for (scheduler, pool) in Processes::of_each_kind(2) {
        scheduler.block_on(async {
            let (end, ended) = oneshot::channel::<()>();
            let other = pool.submit(ended);
            let (inside, (tell, told)) = (pool.with_key("key"), oneshot::channel::<()>());
            let lender = pool.submit(async move {
                let earlier = inside.submit(sleep(SECOND));
                (earlier.await, told.await)
            });
            sleep(SECOND / 2).await;
            let held = pool.with_key("key").submit(async { tell.send(()).expect("it waits") });
            end.send(()).expect("it waits");
            assert_eq!(other.await, Ok(Ok(())));
            assert_eq!(timeout(HOUR, lender).await, Ok(Ok((Ok(()), Ok(())))));
            assert_eq!(held.await, Ok(()));
            pool.end().await;
        });
    }
}

/// Goal: a pool outlives a job that runs in a lent place, has lent its own place, and is killed.
/// Method: another worker is idle, and the key of the job holds another one.
#[test]
fn a_killed_job_between_two_others_leaves_its_place_to_the_last() {
    for (scheduler, pool) in Processes::of_each_kind(2) {
        scheduler.block_on(async {
            let (end, ended) = oneshot::channel::<()>();
            let other = pool.submit(ended);
            let (tell, told) = oneshot::channel();
            let inside = pool.clone();
            let first = pool.submit(async move {
                let within = inside.clone();
                let between = inside.with_key("key").submit(async move {
                    let (tell_last, told) = oneshot::channel();
                    let mut last = within.submit(async move {
                        tell_last.send(current_pid()).expect("it waits");
                        pending::<()>().await;
                    });
                    // It lends its place, and then leaves the handle to the test.
                    poll_fn(|task| {
                        assert!(Pin::new(&mut last).poll(task).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    let pids = (current_pid(), told.await.expect("it runs"));
                    assert!(tell.send((last, pids)).is_ok(), "the test waits");
                    pending::<()>().await;
                });
                between.await
            });
            let (last, pids) = told.await.expect("it is told");
            let (Some(between), Some(last_pid)) = pids else { panic!("both are processes") };
            let held = pool.with_key("key").submit(async { 3 });
            end.send(()).expect("it waits");
            assert_eq!(other.await, Ok(Ok(())));
            assert!(kill(between), "it is alive");
            assert_eq!(timeout(HOUR, held).await, Ok(Ok(3)));
            assert_eq!(timeout(HOUR, first).await, Ok(Ok(Err(JobError::Cancelled))));
            assert!(kill(last_pid), "it runs on");
            assert_eq!(last.await, Err(JobError::Cancelled));
            pool.end().await;
        });
    }
}

/// Goal: a submit to the own full pool is refused if the other jobs wait for that one. Method: one
/// job awaits the other one before or after that one waits for a place.
#[test]
fn a_submit_is_refused_if_all_other_jobs_await_its_job() {
    for awaits_late in [false, true] {
        for (scheduler, pool) in Processes::with_queue(2, Queue::Bounded(1)) {
            let [first, second] = [pool.clone(), pool.clone()];
            let outer = pool.submit(async move {
                let submits = first.submit(async move {
                    sleep(SECOND).await;
                    (second.execute().await, second.execute().await)
                });
                if awaits_late {
                    sleep(2 * SECOND).await;
                }
                submits.await
            });
            scheduler.block_on(async {
                assert_eq!(timeout(HOUR, outer).await, Ok(Ok(Ok((Ok(()), Err(true))))));
                pool.end().await;
            });
        }
    }
}

/// Like the test before, where the other job awaits a queued one, and has given up the one that
/// submits.
#[test]
fn a_submit_is_refused_if_the_place_of_its_job_is_awaited() {
    for awaits_late in [false, true] {
        for (scheduler, pool) in Processes::with_queue(1, Queue::Bounded(2)) {
            let [first, second] = [pool.clone(), pool.clone()];
            let outer = pool.submit(async move {
                let (tell, told) = oneshot::channel();
                let submits = first.submit(async move {
                    sleep(SECOND).await;
                    tell.send(second.execute().await).expect("the other job waits");
                });
                assert!(timeout(SECOND / 2, submits).await.is_err());
                let queued = first.submit(async { 1 });
                if awaits_late {
                    sleep(2 * SECOND).await;
                }
                (queued.await, told.await)
            });
            scheduler.block_on(async {
                assert_eq!(timeout(HOUR, outer).await, Ok(Ok((Ok(1), Ok(Err(true))))));
                pool.end().await;
            });
        }
    }
}
