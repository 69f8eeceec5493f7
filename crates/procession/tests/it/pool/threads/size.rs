//! How pools of threads grow, shrink, and end their workers.

use crate::home::thread;
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{OnFull, Pool, PoolError, Queue, UNLIMITED};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::{ended, of};
use crate::pool::{assert_sums, gated};
use crate::scene::panic_quietly;

#[test]
fn a_larger_pool_lets_waiters_in_and_a_smaller_one_sends_workers_away() {
    let pool = of(1, Queue::HandOff, OnFull::Wait);
    let (gates, jobs): (Vec<_>, Vec<_>) = (0..4).map(|_| gated()).unzip();
    let threads: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let pool = pool.clone();
            #[expect(clippy::disallowed_methods, reason = "plain threads are what is tested")]
            thread::spawn(move || pool.execute(job).is_ok())
        })
        .collect();
    while pool.stats().waiting < 3 {
        thread::yield_now();
    }
    assert_eq!(pool.stats().busy, 1);
    assert_eq!(pool.resize(4).expect("it is in range"), 1);
    for gate in &gates {
        gate.wait_for_job();
    }
    assert!(threads.into_iter().all(|thread| thread.join().expect("it does not panic")));
    assert_eq!(pool.resize(2).expect("it is in range"), 4);
    assert_eq!(pool.stats().free, 0);
    let mut gates = gates.into_iter();
    gates.by_ref().take(2).for_each(|gate| gate.open());
    while pool.stats().live > 2 {
        thread::yield_now();
    }
    gates.for_each(|gate| gate.open());
    pool.wait_idle(None).expect("nothing runs");
    assert_eq!(pool.stats().live, 2, "they are idle, and may stay");
    assert!(matches!(pool.resize(0), Err(PoolError::OutOfRange(_))));
    pool.resize(UNLIMITED).expect("it is in range");
    ended(&pool);
    assert_eq!(pool.stats().peak, 4);
}

#[test]
fn a_pool_shrinks_under_a_trickle_of_work() {
    let pool =
        Pool::builder().capacity(16).keep_alive(Duration::from_millis(20)).build().expect("valid");
    let (gates, jobs): (Vec<_>, Vec<_>) = (0..16).map(|_| gated()).unzip();
    jobs.into_iter().for_each(|job| pool.execute(job).expect("there is room"));
    gates.iter().for_each(|gate| gate.wait_for_job());
    assert_eq!(pool.stats().live, 16);
    gates.into_iter().for_each(|gate| gate.open());
    // The trickle never stops, and one worker is enough for it.
    while pool.stats().live > 1 {
        pool.submit(|| ()).expect("there is room").join().expect("it returns");
    }
    ended(&pool);
    assert!(pool.stats().workers_retired >= 16);
}

#[test]
fn kept_workers_stay() {
    let pool = Pool::builder()
        .capacity(4)
        .keep(2)
        .prestart(4)
        .keep_alive(Duration::ZERO)
        .build()
        .expect("valid");
    while pool.stats().live > 2 {
        thread::yield_now();
    }
    pool.submit(|| ()).expect("there is room").join().expect("it returns");
    assert_eq!((pool.stats().live, pool.stats().workers_started), (2, 4));
    ended(&pool);
}

#[test]
fn the_system_refusing_threads_gives_jobs_back() {
    // No system has an address space of that size.
    let pool = Pool::builder().stack_size(1 << 60).build().expect("it starts no thread yet");
    let refused = pool.submit(|| 3).expect_err("no thread can be started");
    assert!(refused.is_no_worker());
    assert!(std::error::Error::source(&refused).is_some());
    assert_eq!(refused.into_inner()(), 3);
    assert_eq!(pool.stats().workers_refused, 1);
    assert_sums(&pool.stats());
    let built = Pool::builder().stack_size(1 << 60).prestart(1).build();
    assert!(matches!(built, Err(PoolError::Worker(_))));
    assert!(matches!(Pool::builder().capacity(0).build(), Err(PoolError::OutOfRange(_))));
    assert!(matches!(Pool::builder().name("a\0b").build(), Err(PoolError::Name(_))));
}

#[test]
fn hooks_frame_the_life_of_each_worker_and_a_wait_includes_them() {
    let living = Arc::new(AtomicUsize::new(0));
    let stopped = Arc::new(AtomicUsize::new(0));
    let (start, live, stop) = (Arc::clone(&living), Arc::clone(&living), Arc::clone(&stopped));
    let pool = Pool::builder()
        .capacity(3)
        .on_worker_start(move || {
            start.fetch_add(1, SeqCst);
        })
        .on_worker_stop(move || {
            live.fetch_sub(1, SeqCst);
            stop.fetch_add(1, SeqCst);
            panic_quietly("it ends here");
        })
        .prestart(3)
        .build()
        .expect("the system has threads");
    let seen = Arc::clone(&living);
    assert!(
        pool.submit(move || seen.load(SeqCst)).expect("it is open").join().expect("it returns")
            >= 1
    );
    ended(&pool);
    assert_eq!((living.load(SeqCst), stopped.load(SeqCst)), (0, 3));
}
