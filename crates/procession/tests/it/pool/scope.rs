use crate::home::mpsc::channel;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use procession::pool::{JobError, OnFull, Pool, Priority, Queue, WaitError};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use super::{assert_sums, gated};
use crate::scene::panic_quietly;

fn of(capacity: usize, queue: Queue, on_full: OnFull) -> Pool {
    Pool::builder()
        .capacity(capacity)
        .queue(queue)
        .on_full(on_full)
        .build()
        .expect("it starts no thread yet")
}

/// Reports its drop.
struct Dropped<'a>(&'a AtomicU64);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn jobs_borrow_and_have_ended_when_the_scope_returns() {
    for (queue, on_full) in [
        (Queue::HandOff, OnFull::Wait),
        (Queue::Bounded(2), OnFull::CallerRuns),
        (Queue::Unbounded, OnFull::Wait),
    ] {
        let pool = of(3, queue, on_full);
        let words: Vec<_> = (0..200).map(|n| n.to_string()).collect();
        let mut lengths = vec![0; words.len()];
        let last = pool.scope(|scope| {
            for (word, length) in words.iter().zip(&mut lengths) {
                scope.execute(move || *length = word.len()).expect("it is open");
            }
            scope.submit(|| words.last().map(String::as_str)).expect("it is open").join()
        });
        assert_eq!(last, Ok(Ok(Some("199"))));
        assert!(words.iter().zip(&lengths).all(|(word, &length)| word.len() == length));
        pool.close();
        pool.wait(None).expect("it ends");
        assert_eq!(pool.stats().completed, 201);
        assert_sums(&pool.stats());
    }
}

#[test]
fn jobs_of_a_scope_have_priorities_keys_and_timeouts() {
    let pool = of(1, Queue::Bounded(3), OnFull::Refuse);
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    gate.wait_for_job();
    let order = Mutex::new(Vec::new());
    pool.scope(|scope| {
        let order = &order;
        for (priority, name) in [(Priority::Batch, "batch"), (Priority::High, "high")] {
            let job = scope.job(move || order.lock().push(name));
            job.priority(priority).key(name).execute().expect("there is room");
        }
        let middle = scope.submit(|| order.lock().push("middle"));
        let late = scope.job(|| order.lock().len());
        let refused = late.timeout(Duration::from_millis(1)).submit().expect_err("it is full");
        assert!(refused.is_timeout());
        let refused = scope.job(refused.into_inner()).try_submit().expect_err("it is full");
        assert!(refused.is_full());
        gate.open();
        middle.expect("there is room").join().expect("it returns");
    })
    .expect("the caller is no job");
    assert_eq!(order.into_inner(), ["high", "middle", "batch"]);
    assert_sums(&pool.stats());
}

#[test]
fn jobs_of_a_scope_add_jobs_to_it() {
    let pool = of(2, Queue::Unbounded, OnFull::Wait);
    let sum = AtomicU64::new(0);
    pool.scope(|scope| {
        let sum = &sum;
        for n in 1..=10 {
            let job = move || {
                let add = move || {
                    sum.fetch_add(n, SeqCst);
                };
                scope.execute(add).expect("it is open");
                let own = scope.submit(move || n * 100).expect("it is open");
                sum.fetch_add(own.join().expect("it returns"), SeqCst);
            };
            scope.execute(job).expect("it is open");
        }
    })
    .expect("the caller is not a job of the pool");
    assert_eq!(sum.load(SeqCst), 55 + 5500);
}

#[test]
fn a_scope_with_a_body_that_panics_waits_for_its_jobs_first() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let ended = AtomicBool::new(false);
    let (gate, job) = gated();
    let gate = OpensOnDrop::new(gate);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.scope(|scope| {
            scope.execute(job).expect("it is open");
            scope.execute(|| ended.store(true, SeqCst)).expect("it is open");
            // The unwinding opens it, before the scope waits.
            let _gate = gate;
            panic_quietly("in the body")
        })
    }));
    assert_eq!(
        *result.expect_err("it panicked").downcast::<String>().expect("it is the text"),
        "in the body"
    );
    assert!(ended.load(SeqCst), "its jobs have ended");
}

/// Opens its gate when it is dropped.
struct OpensOnDrop(Option<super::Gate>);

impl OpensOnDrop {
    fn new(gate: super::Gate) -> Self {
        Self(Some(gate))
    }
}

impl Drop for OpensOnDrop {
    fn drop(&mut self) {
        self.0.take().expect("it is dropped once").open();
    }
}

#[test]
fn a_panic_of_a_job_goes_to_its_handle_or_the_handler() {
    let (report, reports) = channel();
    let handler = move |payload: Box<dyn std::any::Any + Send>| {
        report
            .send(*payload.downcast::<String>().expect("it is the text"))
            .expect("the test looks");
    };
    let pool = Pool::builder().capacity(1).on_panic(handler).build().expect("valid");
    pool.scope(|scope| {
        let handle =
            scope.submit(|| -> u32 { panic_quietly("to the handle") }).expect("it is open");
        assert_eq!(handle.join(), Err(JobError::Panicked("to the handle".into())));
        scope.execute(|| panic_quietly("to the handler")).expect("it is open");
    })
    .expect("the caller is not a job of the pool");
    assert_eq!(
        reports.try_recv().as_deref(),
        Ok("to the handler"),
        "it was told before the scope returned"
    );
    pool.wait_idle(None).expect("nothing runs");
    assert_eq!((pool.stats().panicked, pool.stats().workers_started), (2, 1));
}

#[test]
fn what_is_cancelled_or_refused_is_dropped_before_the_scope_returns() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let dropped = AtomicU64::new(0);
    let refused = pool.scope(|scope| {
        let (gate, job) = gated();
        scope.execute(job).expect("it is open");
        gate.wait_for_job();
        let one = Dropped(&dropped);
        let cancelled = scope.submit(move || drop(one)).expect("it is open");
        assert!(cancelled.cancel() && cancelled.is_finished());
        let others: Vec<_> = (0..5)
            .map(|_| {
                let one = Dropped(&dropped);
                // A result that borrows, with a handle that may be gone.
                scope.submit(move || one).expect("it is open")
            })
            .collect();
        assert_eq!(pool.shutdown_now(), 5);
        for other in others {
            assert!(matches!(other.join(), Err(JobError::Cancelled)));
        }
        let one = Dropped(&dropped);
        let refused = scope.execute(move || drop(one)).expect_err("it is closed");
        assert!(refused.is_closed());
        drop(refused.into_inner());
        gate.open();
    });
    assert_eq!((refused, dropped.load(SeqCst)), (Ok(()), 7));
    pool.wait(None).expect("it ends");
    pool.reopen().expect("it has ended");
    // The handle is dropped at once, so the worker drops the result.
    pool.scope(|scope| drop(scope.submit(|| Dropped(&dropped)).expect("it is open")))
        .expect("the caller is not a job of the pool");
    assert_eq!(dropped.load(SeqCst), 8);
}

#[test]
fn a_job_cannot_hold_a_scope_of_its_own_pool() {
    let pool = of(1, Queue::HandOff, OnFull::Wait);
    let inside = pool.clone();
    let result = pool.submit(move || inside.scope(|_| ())).expect("it is open").join();
    assert_eq!(result, Ok(Err(WaitError::Inside)));
}

/// Submitters, panics, cancellations, resizes, closes and reopens at once: each job runs, is
/// cancelled, or comes back, and the sums agree.
#[test]
fn nothing_is_lost_amid_resizes_panics_closes_and_reopens() {
    const SUBMITTERS: u64 = 4;
    const JOBS: u64 = 400;
    const CAPACITY_MOST: usize = 4;
    let pool = of(1, Queue::Bounded(3), OnFull::Wait);
    let [ran, back, cancelled, running, most] = [const { AtomicU64::new(0) }; 5];
    let submitting = AtomicU64::new(SUBMITTERS);
    crate::home::thread::scope(|threads| {
        for _ in 0..SUBMITTERS {
            threads.spawn(|| {
                let results = pool.scope(|scope| {
                    for n in 0..JOBS {
                        let (ran, running, most) = (&ran, &running, &most);
                        let job = move || {
                            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                            running.fetch_sub(1, SeqCst);
                            ran.fetch_add(1, SeqCst);
                            if n % 7 == 0 {
                                panic_quietly("one of seven");
                            }
                        };
                        match scope.submit(job) {
                            Ok(handle) if n % 3 == 0 => match handle.join() {
                                Ok(()) => assert_ne!(n % 7, 0),
                                Err(JobError::Panicked(_)) => assert_eq!(n % 7, 0),
                                Err(error) => {
                                    assert_eq!(error, JobError::Cancelled);
                                    cancelled.fetch_add(1, SeqCst);
                                }
                            },
                            Ok(handle) => {
                                if handle.cancel() {
                                    cancelled.fetch_add(1, SeqCst);
                                } else {
                                    drop(handle);
                                }
                            }
                            Err(error) => {
                                assert!(error.is_closed());
                                back.fetch_add(1, SeqCst);
                            }
                        }
                    }
                });
                submitting.fetch_sub(1, SeqCst);
                assert_eq!(results, Ok(()));
            });
        }
        for round in 0.. {
            pool.resize(1 + round % CAPACITY_MOST).expect("in range");
            assert_sums(&pool.stats());
            assert!(pool.stats().live <= CAPACITY_MOST);
            if round % 16 == 15 {
                pool.close();
                assert!(pool.execute(|| ()).expect_err("it is closed").is_closed());
                pool.wait(Some(Duration::from_secs(60))).expect("its jobs end");
                pool.reopen().expect("it has ended");
            }
            if submitting.load(SeqCst) == 0 {
                break;
            }
            crate::home::thread::yield_now();
        }
    });
    pool.close();
    pool.wait(Some(Duration::from_secs(60))).expect("its jobs end");
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
