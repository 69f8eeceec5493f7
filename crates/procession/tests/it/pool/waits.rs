//! Waits for a pool that ends or becomes idle.

use std::time::Duration;

use procession::pool::{Balance, Pool};
use procession::{sleep, spawn, timeout};

use crate::scene::driven;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_waiter_learns_of_the_end_of_a_pool_that_another_one_reopens() {
    let scheduler = driven();
    let pool = Pool::builder().capacity(1).on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        pool.execute(sleep(Duration::from_secs(1))).await.expect("it is open");
        pool.close();
        let waiters = [(); 3].map(|()| {
            let pool = pool.clone();
            spawn(async move {
                let ended = pool.ended().await;
                // The first one opens the pool for the others.
                drop(pool.reopen());
                ended
            })
        });
        for waiter in waiters {
            assert_eq!(timeout(HOUR, waiter).await, Ok(Ok(Ok(()))));
        }
        assert!(!pool.is_closed());
    });
}

#[test]
fn a_waiter_learns_of_an_idle_pool_that_another_one_uses_again() {
    let scheduler = driven();
    let pool = Pool::builder().capacity(1).on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        pool.execute(sleep(Duration::from_secs(1))).await.expect("it is open");
        let waiters = [(); 3].map(|()| {
            let pool = pool.clone();
            spawn(async move {
                let idle = pool.idle().await;
                drop(pool.job(std::future::pending()).try_execute());
                idle
            })
        });
        for waiter in waiters {
            assert_eq!(timeout(HOUR, waiter).await, Ok(Ok(Ok(()))));
        }
        assert_eq!(pool.stats().busy, 1);
    });
}

#[test]
fn a_waiter_for_several_pools_learns_of_one_that_is_reopened_before_the_last_ends() {
    let scheduler = driven();
    let builder = Pool::builder().capacity(1).members(2, Balance::RoundRobin);
    let pools = builder.on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        for (member, seconds) in pools.members().iter().zip([2, 1]) {
            member.execute(sleep(Duration::from_secs(seconds))).await.expect("it is open");
        }
        pools.close();
        let short = pools.members()[1].clone();
        let reopens = spawn(async move {
            short.ended().await.expect("it is closed");
            short.reopen().expect("it has ended");
        });
        assert_eq!(timeout(HOUR, pools.ended()).await, Ok(Ok(())));
        reopens.await.expect("it returns");
    });
}

#[test]
fn a_reopen_that_one_member_was_not_ready_for_can_be_repeated() {
    let scheduler = driven();
    let builder = Pool::builder().capacity(1).members(2, Balance::RoundRobin);
    let pools = builder.on(&scheduler).build_async().expect("valid");
    scheduler.block_on(async {
        let late = pools.members()[1].clone();
        late.execute(sleep(Duration::from_secs(1))).await.expect("it is open");
        pools.close();
        assert!(pools.reopen().is_err(), "the job runs");
        late.ended().await.expect("it is closed");
        pools.reopen().expect("both have ended, and one is open");
        assert!(pools.members().iter().all(|member| !member.is_closed()));
        assert!(pools.reopen().is_err(), "both are open");
    });
}
