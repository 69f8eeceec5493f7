//! The workloads of starting, ending and yielding.

use std::array;

use tokio::task::{self, JoinHandle};

use crate::latch::Latch;
use crate::meter::now;
use crate::workload::{
    Outcome, SKYNET_CHILDREN, SKYNET_LEAVES, SPAWN_COUNT, STEP_COUNT, Scale, YIELD_COUNT,
    YIELD_PROCESSES, check, each,
};

pub(crate) async fn spawn(scale: Scale) -> Outcome {
    static ENDED: Latch = Latch::new();
    let count = scale.of(SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        drop(tokio::spawn(async { ENDED.count_down() }));
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

pub(crate) async fn skynet(scale: Scale) -> Outcome {
    let leaves = scale.of(SKYNET_LEAVES);
    let start = now();
    let sum = node(0, leaves).await?;
    let outcome = vec![each(start, leaves)];
    check("the sum of the leaves' numbers", leaves * (leaves - 1) / 2, sum)?;
    Ok(outcome)
}

fn node(first: u64, leaves: u64) -> JoinHandle<u64> {
    if leaves == 1 {
        return tokio::spawn(async move { first });
    }
    tokio::spawn(async move {
        let below = leaves / SKYNET_CHILDREN as u64;
        let children: [_; SKYNET_CHILDREN] =
            array::from_fn(|child| node(first + child as u64 * below, below));
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("a child ends with its sum");
        }
        sum
    })
}

pub(crate) async fn yields(scale: Scale) -> Outcome {
    let tasks = scale.of(YIELD_PROCESSES);
    let count = scale.of(YIELD_COUNT);
    let start = now();
    let spawn = |_| {
        tokio::spawn(async move {
            let mut given_way = 0;
            while given_way < count {
                task::yield_now().await;
                given_way += 1;
            }
            given_way
        })
    };
    let handles: Vec<_> = (0..tasks).map(spawn).collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await?;
    }
    let outcome = vec![each(start, tasks * count)];
    check("the yields", tasks * count, sum)?;
    Ok(outcome)
}

pub(crate) async fn step(scale: Scale) -> Outcome {
    let count = scale.of(STEP_COUNT);
    let start = now();
    let mut sum = 0;
    for number in 0..count {
        sum += tokio::spawn(async move { number }).await?;
    }
    let outcome = vec![each(start, count)];
    check("the sum of the results", count * (count - 1) / 2, sum)?;
    Ok(outcome)
}
