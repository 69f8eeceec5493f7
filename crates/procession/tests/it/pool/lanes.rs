//! Jobs with priorities and keys.

use crate::home::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{Balance, JobError, OnFull, Pool, Priority, Queue};
use procession::yield_now;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::{assert_sums, gated};
use crate::scene::{driven, panic_quietly};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

fn threads(capacity: usize, queue: Queue, on_full: OnFull) -> Pool {
    let builder = Pool::builder().capacity(capacity).queue(queue).on_full(on_full);
    builder.build().expect("it starts no thread yet")
}

#[test]
fn priorities_order_the_queue_and_none_starves() {
    let pool = threads(1, Queue::Unbounded, OnFull::Wait);
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    gate.wait_for_job();
    let (report, reports) = channel();
    for (priority, jobs) in [(Priority::Batch, 2), (Priority::Normal, 2), (Priority::High, 20)] {
        for n in 0..jobs {
            let report = report.clone();
            let job = pool.job(move || report.send((priority, n)).expect("the test looks"));
            job.priority(priority).execute().expect("the queue has no bound");
        }
    }
    drop(report);
    gate.open();
    let order: Vec<_> = reports.iter().collect();
    let mut expected: Vec<_> = (0..8).map(|n| (Priority::High, n)).collect();
    expected.extend([(Priority::Batch, 0), (Priority::Normal, 0)]);
    // The turn of the normal job counts against the low ones.
    expected.extend((8..15).map(|n| (Priority::High, n)));
    expected.extend([(Priority::Batch, 1), (Priority::High, 15), (Priority::Normal, 1)]);
    expected.extend((16..20).map(|n| (Priority::High, n)));
    assert_eq!(order, expected);
}

#[test]
fn a_pool_without_a_queue_refuses_a_priority_and_returns_the_job() {
    let pool = threads(1, Queue::HandOff, OnFull::Wait);
    for priority in [Priority::Batch, Priority::High] {
        let refused = pool.job(|| 7).priority(priority).submit().expect_err("nothing is queued");
        assert!(refused.is_no_queue() && refused.to_string().ends_with("without a queue"));
        assert_eq!(refused.into_inner()(), 7);
    }
    assert_eq!(pool.stats().refused, 2);
    let normal = pool.job(|| 8).priority(Priority::Normal).submit().expect("it is the default");
    assert_eq!(normal.join(), Ok(8));
    assert_sums(&pool.stats());
}

#[test]
fn jobs_of_a_key_run_in_order_one_at_a_time_even_if_some_panic() {
    let scheduler = driven();
    let builder = Pool::builder().capacity(4).queue(Queue::Unbounded);
    let pool = builder.on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        let begun: Arc<[AtomicUsize; 3]> = Arc::default();
        let ended: Arc<[AtomicUsize; 3]> = Arc::default();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut handles = Vec::new();
        for n in 0..60 {
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let key = n % 3;
            let job = async move {
                assert_eq!(begun[key].fetch_add(1, SeqCst), n / 3, "in order");
                assert_eq!(ended[key].load(SeqCst), n / 3, "one at a time");
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                yield_now().await;
                now.fetch_sub(1, SeqCst);
                ended[key].fetch_add(1, SeqCst);
                if n % 7 == 0 {
                    panic_quietly("it is to panic")
                }
            };
            handles.push(pool.job(job).key(&key).submit().await.expect("it is open"));
        }
        for (n, handle) in handles.into_iter().enumerate() {
            let expected =
                if n % 7 == 0 { Err(JobError::Panicked("it is to panic".into())) } else { Ok(()) };
            assert_eq!(handle.await, expected);
        }
        assert_eq!(most.load(SeqCst), 3, "keys do not hold up each other");
        pool.close();
        pool.ended().await.expect("it ends");
        assert_sums(&pool.stats());
    });
}

#[test]
fn a_held_job_uses_a_place_and_a_refused_one_comes_back() {
    let pool = threads(2, Queue::HandOff, OnFull::Refuse);
    let (gate, job) = gated();
    pool.job(job).key("account").execute().expect("it is open");
    gate.wait_for_job();
    let held = pool.job(|| 1).key("account").submit().expect("the other worker's place is free");
    let refused = pool.job(|| 2).key("account").submit().expect_err("all places are used");
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), 2);
    assert_eq!((pool.stats().busy, pool.stats().queued, pool.stats().free), (1, 1, 0));
    assert!(held.cancel());
    assert_eq!(held.join(), Err(JobError::Cancelled));
    let other = pool.job(|| 3).key("other").submit().expect("the place is free again");
    assert_eq!(other.join(), Ok(3), "another key is not held up");
    gate.open();
    pool.wait_idle(TIMEOUT).expect("nothing runs");
    assert_eq!(pool.job(|| 4).key("account").submit().expect("it is open").join(), Ok(4));
    assert_sums(&pool.stats());
}

#[test]
fn a_full_pool_never_runs_a_job_with_a_key_in_its_submitter() {
    let pool = threads(1, Queue::HandOff, OnFull::CallerRuns);
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    gate.wait_for_job();
    let here = std::thread::current().id();
    let id = || std::thread::current().id();
    assert_eq!(pool.submit(id).expect("it runs here").join(), Ok(here));
    let timed_out = pool.job(id).key("key").timeout(Duration::ZERO).submit();
    let timed_out = timed_out.expect_err("it does not run here");
    assert!(timed_out.is_timeout());
    let ran = crate::home::thread::scope(|scope| {
        let submitter =
            scope.spawn(|| pool.job(id).key("key").submit().expect("it is open").join());
        while pool.stats().waiting == 0 {
            crate::home::thread::yield_now();
        }
        gate.open();
        submitter.join().expect("it does not panic").expect("it returns")
    });
    assert_ne!(ran, here);
    assert_eq!(pool.stats().inline, 0);
}

#[test]
fn the_end_of_a_pool_runs_or_cancels_what_is_held() {
    for cancels in [false, true] {
        let pool = threads(2, Queue::Unbounded, OnFull::Wait);
        let (gate, job) = gated();
        pool.job(job).key(&7).execute().expect("it is open");
        gate.wait_for_job();
        let held: Vec<_> =
            (0..5).map(|n| pool.job(move || n).key(&7).submit().expect("it is open")).collect();
        if cancels {
            assert_eq!(pool.shutdown_now(), 5);
        } else {
            pool.close();
        }
        gate.open();
        for (n, handle) in held.into_iter().enumerate() {
            assert_eq!(handle.join(), if cancels { Err(JobError::Cancelled) } else { Ok(n) });
        }
        pool.wait(TIMEOUT).expect("it ends");
        assert_sums(&pool.stats());
    }
}

#[test]
fn a_join_of_a_later_job_of_ones_own_key_is_an_error() {
    let pool = threads(2, Queue::Unbounded, OnFull::Wait);
    let inner = pool.clone();
    let outer = pool.job(move || {
        let later = inner.job(|| 1).key("key").submit().expect("it is open");
        later.join()
    });
    let outer = outer.key("key").submit();
    assert_eq!(outer.expect("it is open").join(), Ok(Err(JobError::WouldDeadlock)));
    pool.wait_idle(TIMEOUT).expect("the later job has run");
    assert_eq!(pool.stats().completed, 2);
}

#[test]
fn several_pools_give_all_jobs_of_a_key_to_one_of_them() {
    for balance in [Balance::RoundRobin, Balance::LeastLoaded] {
        let builder = Pool::builder().capacity(1).queue(Queue::Bounded(3)).on_full(OnFull::Refuse);
        let pools = builder.members(3, balance).build().expect("valid");
        let (gate, job) = gated();
        pools.job(job).key("key").execute().expect("it is open");
        gate.wait_for_job();
        let (report, reports) = channel();
        for n in 0..3 {
            let report = report.clone();
            let job = move || report.send(n).expect("the test looks");
            // By turns, the places are in each member.
            let permit = pools.try_reserve().expect("each member has room");
            permit.job(job).key("key").try_execute().expect("the queue of the member has room");
        }
        let refused = pools.job(|| 4).key("key").submit().expect_err("the member is full");
        assert_eq!((refused.is_full(), refused.into_inner()()), (true, 4));
        assert_eq!(pools.members().iter().filter(|member| member.stats().busy > 0).count(), 1);
        let other = pools.submit(|| 5).expect("the other members have room");
        assert_eq!(other.join(), Ok(5));
        drop(report);
        gate.open();
        assert!(reports.iter().eq(0..3));
    }
}
