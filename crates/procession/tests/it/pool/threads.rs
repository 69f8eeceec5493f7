mod size;

use crate::home::mpsc::channel;
use crate::home::{Barrier, thread};
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{Balance, JobError, OnFull, Pool, PoolError, Queue, WaitError};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::{assert_sums, gated};
use crate::scene::{driven, panic_quietly, soon, soon_closed};

fn of(capacity: usize, queue: Queue, on_full: OnFull) -> Pool {
    Pool::builder()
        .capacity(capacity)
        .queue(queue)
        .on_full(on_full)
        .build()
        .expect("it starts no thread yet")
}

fn ended(pool: &Pool) {
    pool.close();
    pool.wait(Some(Duration::from_secs(60))).expect("its jobs end");
    let stats = pool.stats();
    assert_eq!((stats.live, stats.queued, stats.inline), (0, 0, 0));
    assert_sums(&stats);
}

#[test]
fn a_job_has_a_result_and_a_panic_harms_only_its_handle() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let handles: Vec<_> = (0..100)
        .map(|n| {
            pool.submit(move || if n % 2 == 0 { n } else { panic_quietly("odd") })
                .expect("it is open")
        })
        .collect();
    for (n, handle) in handles.into_iter().enumerate() {
        let result = handle.join();
        match n % 2 {
            0 => assert_eq!(result, Ok(n)),
            _ => assert_eq!(result, Err(JobError::Panicked("odd".into()))),
        }
    }
    ended(&pool);
    let stats = pool.stats();
    assert_eq!(
        (stats.completed, stats.panicked, stats.workers_started),
        (50, 50, 1),
        "the worker survived them all"
    );
}

/// Goal: a job of one member that joins a job queued on another member runs that job. Method: the
/// only worker of each member waits for a job behind the other one.
#[test]
fn a_job_that_joins_a_job_of_another_member_runs_it() {
    let builder = Pool::builder().capacity(1).members(2, Balance::RoundRobin);
    let pool = builder.queue(Queue::Unbounded).build().expect("it starts no thread yet");
    let members = pool.members();
    let both = Arc::new(Barrier::new(2));
    let outer = [0, 1].map(|n| {
        let (other, both) = (members[1 - n].clone(), Arc::clone(&both));
        let job = move || {
            both.wait();
            other.submit(move || n).expect("it is open").join()
        };
        members[n].submit(job).expect("it is open")
    });
    for (n, handle) in outer.into_iter().enumerate() {
        let joined = handle.join_timeout(Duration::from_secs(60));
        assert_eq!(joined.expect("it returns"), Ok(Ok(n)));
    }
    ended(&pool);
}

#[test]
fn the_handler_is_given_what_a_job_without_a_handle_panicked_with() {
    let (report, reports) = channel();
    let handler = move |payload: Box<dyn std::any::Any + Send>| {
        report
            .send(*payload.downcast::<String>().expect("it is the text"))
            .expect("the test looks");
        panic_quietly("the handler, too");
    };
    let pool = Pool::builder().capacity(1).on_panic(handler).build().expect("valid");
    for n in 0..3 {
        pool.execute(move || panic_quietly(&n.to_string())).expect("it is open");
        assert_eq!(soon(&reports), n.to_string());
    }
    ended(&pool);
    assert_eq!((pool.stats().panicked, pool.stats().workers_started), (3, 1));
}

#[test]
fn a_full_pool_gives_the_closure_back() {
    for (queue, more) in [(Queue::HandOff, 0), (Queue::Bounded(2), 2)] {
        let pool = of(1, queue, OnFull::Refuse);
        let (gate, job) = gated();
        pool.execute(job).expect("there is room");
        gate.wait_for_job();
        for _ in 0..more {
            pool.execute(|| ()).expect("there is room in the queue");
        }
        let refused = pool.submit(|| "still mine").expect_err("it is full");
        assert!(refused.is_full() && !refused.is_closed());
        assert_eq!(refused.to_string(), "cannot submit to the pool: it is full");
        assert_eq!(refused.into_inner()(), "still mine");
        assert_sums(&pool.stats());
        gate.open();
        ended(&pool);
        assert_eq!(pool.stats().refused, 1);
    }
}

#[test]
fn the_caller_runs_what_the_pool_has_no_room_for() {
    let pool = of(1, Queue::HandOff, OnFull::CallerRuns);
    let (gate, job) = gated();
    pool.execute(job).expect("there is room");
    gate.wait_for_job();
    let caller = thread::current().id();
    let ran_by = pool.submit(|| thread::current().id()).expect("it runs here").join();
    assert_eq!(ran_by, Ok(caller));
    gate.open();
    ended(&pool);
}

#[test]
fn a_wait_for_a_place_ends_with_its_time_and_gives_the_closure_back() {
    let pool = of(1, Queue::HandOff, OnFull::Wait);
    let (gate, job) = gated();
    pool.execute(job).expect("there is room");
    let refused =
        pool.job(|| 7).timeout(Duration::from_millis(1)).submit().expect_err("it stays full");
    assert!(refused.is_timeout());
    assert_eq!(refused.into_inner()(), 7);
    assert_eq!(pool.stats().waiting, 0);
    gate.open();
    ended(&pool);
}

#[test]
fn waiters_are_served_first_come_first_served_and_only_so_many_wait() {
    let pool = Pool::builder().capacity(1).waiting(3).build().expect("valid");
    let (gate, job) = gated();
    pool.execute(job).expect("there is room");
    let (ran, order) = channel();
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let (submitter, ran) = (pool.clone(), ran.clone());
            let body =
                move || submitter.execute(move || ran.send(n).expect("the test looks")).is_ok();
            #[expect(clippy::disallowed_methods, reason = "plain threads are what is tested")]
            let thread = thread::spawn(body);
            while pool.stats().waiting <= n {
                thread::yield_now();
            }
            thread
        })
        .collect();
    let refused = pool.execute(|| ()).expect_err("three wait");
    assert!(refused.is_full());
    gate.open();
    assert_eq!((soon(&order), soon(&order), soon(&order)), (0, 1, 2));
    assert!(threads.into_iter().all(|thread| thread.join().expect("it does not panic")));
    ended(&pool);
}

#[test]
fn closing_gives_waiters_their_closures_back_and_runs_what_is_queued() {
    let pool = of(1, Queue::Bounded(1), OnFull::Wait);
    let (gate, job) = gated();
    pool.execute(job).expect("there is room");
    let queued = pool.submit(|| 1).expect("there is room in the queue");
    let waiting = {
        let pool = pool.clone();
        #[expect(clippy::disallowed_methods, reason = "a plain thread is what is tested")]
        thread::spawn(move || pool.submit(|| 2).map(drop))
    };
    while pool.stats().waiting == 0 {
        thread::yield_now();
    }
    assert_eq!(pool.wait(None), Err(WaitError::Open));
    assert!(pool.close() && !pool.close(), "it is closed once");
    let refused = waiting.join().expect("it does not panic").expect_err("the pool was closed");
    assert!(refused.is_closed());
    assert_eq!(refused.into_inner()(), 2);
    assert!(pool.submit(|| 3).expect_err("it is closed").is_closed());
    assert_eq!(pool.wait(Some(Duration::ZERO)), Err(WaitError::TimedOut));
    gate.open();
    assert_eq!(queued.join(), Ok(1));
    assert_eq!(pool.wait(None), Ok(()), "a wait can be repeated");
    assert_eq!(pool.wait(None), Ok(()));
    ended(&pool);
}

#[test]
fn shutdown_now_resolves_every_handle() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let (gate, job) = gated();
    let running = pool.submit(job).expect("it is open");
    gate.wait_for_job();
    let queued: Vec<_> = (0..50).map(|n| pool.submit(move || n).expect("it is open")).collect();
    assert_eq!(pool.shutdown_now(), 50);
    for handle in queued {
        assert!(handle.is_finished());
        assert_eq!(handle.join(), Err(JobError::Cancelled));
    }
    gate.open();
    assert_eq!(running.join(), Ok(()));
    ended(&pool);
    assert_eq!(pool.stats().cancelled, 50);
}

#[test]
fn only_a_pool_at_rest_is_opened_again() {
    let pool = of(2, Queue::HandOff, OnFull::Wait);
    assert!(matches!(pool.reopen(), Err(PoolError::NotDrained)), "it is open");
    let stale = pool.try_reserve().expect("there is a place");
    let (gate, job) = gated();
    pool.execute(job).expect("there is room");
    pool.close();
    assert!(matches!(pool.reopen(), Err(PoolError::NotDrained)), "a job runs");
    gate.open();
    pool.wait(None).expect("it ends");
    pool.reopen().expect("it has ended");
    assert!(stale.submit(|| ()).expect_err("the place was of before").is_closed());
    assert_eq!(pool.stats().reserved, 0);
    assert_eq!(pool.submit(|| 5).expect("it is open").join(), Ok(5));
    ended(&pool);
}

#[test]
fn a_queued_job_can_be_cancelled_and_makes_room() {
    let pool = of(1, Queue::Bounded(1), OnFull::Refuse);
    let (gate, job) = gated();
    let running = pool.submit(job).expect("there is room");
    gate.wait_for_job();
    let held = Arc::new(());
    let queued = {
        let held = Arc::clone(&held);
        pool.submit(move || drop(held)).expect("there is room in the queue")
    };
    assert!(queued.cancel() && !queued.cancel(), "it is cancelled once");
    assert_eq!(Arc::strong_count(&held), 1, "what it held is dropped at once");
    assert!(!running.cancel(), "it runs");
    let next = pool.submit(|| 3).expect("there is room again");
    assert_eq!(queued.join(), Err(JobError::Cancelled));
    gate.open();
    assert_eq!((running.join(), next.join()), (Ok(()), Ok(3)));
    ended(&pool);
}

#[test]
fn a_submit_that_could_only_deadlock_is_refused() {
    for capacity in [1, 8] {
        let pool = of(capacity, Queue::HandOff, OnFull::Wait);
        let refused = Arc::new(AtomicUsize::new(0));
        let barrier = Arc::new(Barrier::new(capacity));
        let (done, jobs) = channel::<()>();
        for _ in 0..capacity {
            let (inside, refused, barrier, done) =
                (pool.clone(), Arc::clone(&refused), Arc::clone(&barrier), done.clone());
            pool.execute(move || {
                // All workers are busy before the first of them submits.
                barrier.wait();
                if let Err(error) = inside.execute(|| ()) {
                    assert!(error.is_deadlock());
                    refused.fetch_add(1, SeqCst);
                }
                drop(done);
            })
            .expect("there is room");
        }
        drop(done);
        soon_closed(&jobs);
        ended(&pool);
        assert!(
            refused.load(SeqCst) >= 1,
            "the last to wait is refused, and its end lets another go on"
        );
        assert_eq!(pool.stats().refused, refused.load(SeqCst) as u64);
    }
}

#[test]
fn a_job_that_joins_a_queued_one_runs_it_and_one_that_joins_for_ever_is_told() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    fn fibonacci(pool: &Pool, n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let inside = pool.clone();
        let left = pool.submit(move || fibonacci(&inside, n - 1)).expect("it is open");
        fibonacci(pool, n - 2) + left.join().expect("it returns")
    }
    let inside = pool.clone();
    assert_eq!(pool.submit(move || fibonacci(&inside, 12)).expect("it is open").join(), Ok(144));

    let (send, receive) = channel::<procession::pool::JobHandle<()>>();
    let own = pool
        .submit(move || {
            let own = receive.recv().expect("it is sent");
            assert_eq!(own.join(), Err(JobError::WouldDeadlock));
        })
        .expect("it is open");
    send.send(own).expect("the job waits for it");
    ended(&pool);
    assert_eq!(pool.stats().panicked, 0);
}

#[test]
fn a_job_may_close_its_pool_but_not_wait_for_it() {
    let pool = of(2, Queue::HandOff, OnFull::Wait);
    let inside = pool.clone();
    let job = pool
        .submit(move || (inside.close(), inside.wait(None), inside.wait_idle(None)))
        .expect("it is open");
    assert_eq!(job.join(), Ok((true, Err(WaitError::Inside), Err(WaitError::Inside))));
    ended(&pool);
}

#[test]
fn a_permit_is_a_place_until_it_is_dropped() {
    let pool = of(1, Queue::HandOff, OnFull::Refuse);
    let permit = pool.try_reserve().expect("there is a place");
    assert_eq!((pool.stats().reserved, pool.stats().free), (1, 0));
    assert!(pool.execute(|| ()).expect_err("the place is reserved").is_full());
    assert!(pool.try_reserve().expect_err("the place is reserved").is_full());
    drop(permit);
    assert_eq!(
        pool.try_reserve().expect("there is a place").submit(|| 1).expect("it is open").join(),
        Ok(1)
    );
    procession::run(async {
        let permit = pool.reserve().await.expect("there is a place");
        let mut waiting = Box::pin(pool.reserve());
        assert!(futures_poll(&mut waiting).await.is_none(), "the place is reserved");
        assert_eq!(pool.stats().waiting, 1);
        drop(permit);
        // The waiter was given the place without being polled. When it is dropped, it passes the
        // place on.
        assert_eq!((pool.stats().waiting, pool.stats().reserved), (0, 1));
        drop(waiting);
        assert_eq!(pool.stats().reserved, 0);
    });
    ended(&pool);
}

/// Polls a future once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|task| match std::pin::Pin::new(&mut *future).poll(task) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[test]
fn the_last_handle_closes_the_pool_and_what_is_queued_still_runs() {
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let (ran, runs) = channel();
    for n in 0..10 {
        let ran = ran.clone();
        pool.execute(move || ran.send(n).expect("the test looks")).expect("it is open");
    }
    drop((pool, ran));
    assert_eq!(runs.iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_drop_that_panics_harms_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic_quietly("a drop");
            }
        }
    }
    let pool = of(1, Queue::Unbounded, OnFull::Wait);
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    drop(pool.submit(|| Bomb).expect("it is open"));
    let held = Bomb;
    drop(pool.submit(move || drop(held)).expect("it is open"));
    gate.open();
    pool.wait_idle(None).expect("nothing runs");
    assert_eq!(pool.submit(|| 1).expect("it is open").join(), Ok(1));
    assert_eq!(pool.stats().workers_started, 1);
    let (gate, job) = gated();
    pool.execute(job).expect("it is open");
    gate.wait_for_job();
    let held = Bomb;
    let queued = pool.submit(move || held).expect("it is open");
    assert_eq!(pool.shutdown_now(), 1);
    assert!(matches!(queued.join(), Err(JobError::Cancelled)));
    gate.open();
    ended(&pool);
}

#[test]
fn the_test_clock_stands_still_while_a_blocking_closure_runs() {
    let scheduler = driven();
    let slept = scheduler.block_on(async {
        let before = procession::time::Instant::now();
        let blocking = procession::spawn_blocking(|| {
            // Long enough for the clock to jump if it did not stand still. The outcome does not
            // depend on it.
            for _ in 0..1000 {
                thread::yield_now();
            }
        });
        let raced = procession::timeout(Duration::from_secs(3600), blocking).await;
        assert_eq!(raced, Ok(Ok(())), "the timeout cannot come first");
        procession::time::Instant::now() - before
    });
    assert_eq!(slept, Duration::ZERO);
}

#[test]
fn a_function_pool_gives_arguments_back() {
    let pool = Pool::builder()
        .capacity(1)
        .on_full(OnFull::Refuse)
        .build_function(|n: u32| if n == 13 { panic_quietly("13") } else { n * 2 })
        .expect("valid");
    assert_eq!(pool.submit(21).expect("it is open").join(), Ok(42));
    pool.wait_idle(None).expect("nothing runs");
    assert_eq!(pool.submit(13).expect("it is open").join(), Err(JobError::Panicked("13".into())));
    pool.wait_idle(None).expect("nothing runs");
    pool.execute(13).expect("it is open");
    pool.close();
    assert_eq!(pool.execute(8).expect_err("it is closed").into_inner(), 8);
    pool.wait(None).expect("it ends");
    let stats = pool.stats();
    assert_eq!((stats.completed, stats.panicked, stats.workers_started), (1, 2, 1));
}

#[test]
fn many_threads_submit_to_a_pool_that_never_exceeds_its_capacity() {
    const CAPACITY: usize = 3;
    let pool = of(CAPACITY, Queue::Bounded(4), OnFull::Wait);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread_scope(8, |_| {
        for _ in 0..200 {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let job = move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                running.fetch_sub(1, SeqCst);
            };
            pool.execute(job).expect("it is open");
            assert_sums(&pool.stats());
        }
    });
    ended(&pool);
    let stats = pool.stats();
    assert_eq!(stats.completed, 1600);
    assert!(stats.peak <= CAPACITY && most.load(SeqCst) <= CAPACITY, "{stats:?}");
}

fn thread_scope(threads: usize, body: impl Fn(usize) + Sync) {
    crate::home::thread::scope(|scope| {
        for n in 0..threads {
            let body = &body;
            scope.spawn(move || body(n));
        }
    });
}
