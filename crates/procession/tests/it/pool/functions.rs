//! Pools that run one function, with every kind of worker, alone and several as one.

use std::time::Duration;

use procession::Scheduler;
use procession::pool::{AsyncFnPool, Balance, Builder, JobError, OnFull, Pool, PoolError, Queue};
use procession::{coroutine, sleep};

use super::assert_sums;
use crate::scene::{driven, panic_quietly};

/// The function of each pool here, after its wait.
fn doubled(n: u32) -> u32 {
    if n == 13 { panic_quietly("13") } else { n * 2 }
}

fn with_coroutines() -> Scheduler {
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    unsafe { Scheduler::builder().worker_threads(1).test_clock().enable_coroutines() }
        .build()
        .expect("the system has memory")
}

type BuildOn = fn(Builder, &Scheduler) -> Result<AsyncFnPool<u32, u32>, PoolError>;

/// Returns both kinds of process, each with a scheduler for it.
fn both() -> [(Scheduler, BuildOn); 2] {
    let async_processes: BuildOn = |builder, scheduler| {
        builder.on(scheduler).build_async_function(|n| async move {
            sleep(Duration::from_micros(10)).await;
            doubled(n)
        })
    };
    let coroutines: BuildOn = |builder, scheduler| {
        builder.on(scheduler).build_coroutine_function(|n| {
            coroutine::sleep(Duration::from_micros(10));
            doubled(n)
        })
    };
    [(driven(), async_processes), (with_coroutines(), coroutines)]
}

#[test]
fn a_function_runs_in_processes_and_coroutines_and_arguments_come_back() {
    for (scheduler, build) in both() {
        let builder = Pool::builder().capacity(2).queue(Queue::Bounded(1)).on_full(OnFull::Refuse);
        let pool = build(builder, &scheduler).expect("valid");
        scheduler.block_on(async {
            let handles = [1, 13, 2].map(|n| pool.job(n).try_submit().expect("there is room"));
            assert_eq!(pool.submit(3).await.expect_err("it is full").into_inner(), 3);
            assert_eq!(pool.job(4).try_execute().expect_err("it is full").into_inner(), 4);
            let [one, thirteen, two] = handles;
            assert_eq!((one.await, two.await), (Ok(2), Ok(4)));
            assert_eq!(thirteen.await, Err(JobError::Panicked("13".into())));
            let permit = pool.reserve().await.expect("it is open");
            assert_eq!(permit.submit(5).expect("the place is there").await, Ok(10));
            pool.try_reserve().expect("there is room").execute(6).expect("the place is there");
            assert_eq!(
                pool.job(7)
                    .timeout(Duration::from_secs(60))
                    .submit()
                    .await
                    .expect("there is room")
                    .await,
                Ok(14)
            );
            pool.idle().await.expect("it comes to rest");
            pool.close();
            assert_eq!(pool.execute(8).await.expect_err("it is closed").into_inner(), 8);
            pool.ended().await.expect("its workers leave");
        });
        let stats = pool.stats();
        assert_sums(&stats);
        assert_eq!((stats.completed, stats.panicked, stats.refused), (5, 1, 3));
    }
}

#[test]
fn a_panic_of_a_call_without_a_handle_goes_to_the_handler() {
    for (scheduler, build) in both() {
        let (tell, told) = crate::home::mpsc::channel();
        let builder = Pool::builder().capacity(1).on_panic(move |payload| {
            tell.send(payload.downcast::<String>().ok()).expect("the test listens");
        });
        let pool = build(builder, &scheduler).expect("valid");
        scheduler.block_on(async {
            pool.execute(13).await.expect("open");
            assert_eq!(pool.submit(1).await.expect("open").await, Ok(2), "the worker goes on");
        });
        assert_eq!(
            told.try_recv()
                .expect("the handler ran before the next job")
                .as_deref()
                .map(String::as_str),
            Some("13")
        );
        assert_eq!(pool.stats().workers_started, 1);
    }
}

#[test]
fn a_function_that_panics_before_its_future_is_there_harms_only_its_handle() {
    let scheduler = driven();
    let function = |n: u32| {
        let n = doubled(n);
        async move { n }
    };
    let pool =
        Pool::builder().capacity(1).on(&scheduler).build_async_function(function).expect("valid");
    scheduler.block_on(async {
        let (bad, good) =
            (pool.submit(13).await.expect("open"), pool.submit(1).await.expect("open"));
        assert_eq!((bad.await, good.await), (Err(JobError::Panicked("13".into())), Ok(2)));
    });
    assert_eq!(pool.stats().workers_started, 1);
}

#[test]
fn several_function_pools_share_the_work_and_give_arguments_back() {
    let builder = || Pool::builder().capacity(1).on_full(OnFull::Refuse);
    for balance in [Balance::RoundRobin, Balance::LeastLoaded] {
        let threads = builder()
            .members(3, balance)
            .build_function(|gate: crate::home::mpsc::Receiver<u32>| gate.recv().unwrap_or(0));
        let threads = threads.expect("valid");
        let (gates, handles): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (open, gate) = crate::home::mpsc::channel();
                (open, threads.submit(gate).expect("one of them is free"))
            })
            .unzip();
        assert!(threads.members().iter().all(|member| member.stats().busy == 1));
        let (open, gate) = crate::home::mpsc::channel();
        let refused = threads.execute(gate).expect_err("all are full");
        open.send(7).expect("the gate came back");
        assert_eq!(refused.into_inner().recv(), Ok(7));
        (1..).zip(gates).for_each(|(n, gate)| gate.send(n).expect("the job waits"));
        let sum: u32 = handles.into_iter().map(|handle| handle.join().expect("it returns")).sum();
        assert_eq!(sum, 6);
        threads.close();
        threads.wait(None).expect("they end");

        for (scheduler, build) in both() {
            let pools = build(builder().members(3, balance), &scheduler).expect("valid");
            scheduler.block_on(async {
                let mut handles = Vec::new();
                for n in 0..3 {
                    handles.push(pools.submit(n).await.expect("one of them is free"));
                }
                let stats = pools.stats();
                assert_eq!((stats.capacity, stats.busy), (3, 3));
                assert_eq!(pools.execute(9).await.expect_err("all are full").into_inner(), 9);
                let mut sum = 0;
                for handle in handles {
                    sum += handle.await.expect("it returns");
                }
                assert_eq!(sum, 6);
                pools.close();
                pools.ended().await.expect("they end");
                pools.reopen().expect("they have ended");
                assert_eq!(pools.resize(2).expect("in range"), 1);
                assert_eq!(pools.stats().capacity, 6);
            });
        }
    }
}

#[test]
fn several_pools_of_coroutines_wait_for_the_chosen_one() {
    let scheduler = with_coroutines();
    let pools = Pool::builder()
        .capacity(1)
        .members(2, Balance::LeastLoaded)
        .on(&scheduler)
        .build_coroutines()
        .expect("valid");
    let sum = scheduler.block_on(async {
        let mut handles = Vec::new();
        for n in 0..20_u32 {
            let job = move || {
                coroutine::sleep(Duration::from_micros(10));
                doubled(n.min(12))
            };
            handles.push(pools.submit(job).await.expect("they are open"));
        }
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.expect("it returns");
        }
        sum
    });
    assert_eq!(sum, 2 * ((0..12).sum::<u32>() + 8 * 12));
    assert!(
        pools
            .members()
            .iter()
            .all(|member| member.stats().peak == 1 && member.stats().completed > 0)
    );
    // A result is available a moment before its worker is free.
    scheduler.run_until_idle();
    let members = pools.members();
    let permit = members[0].try_reserve().expect("nothing runs");
    assert_eq!(
        scheduler.block_on(permit.submit(|| doubled(4)).expect("the place is there")),
        Ok(8)
    );
}
