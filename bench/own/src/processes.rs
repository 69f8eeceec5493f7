//! The workloads of starting, ending and yielding.

use std::array;
use std::future::Future;

use super::latch::Latch;
use super::meter::now;
use super::rt::{self, JoinHandle};
use super::workload::{
    Failed, Outcome, SKYNET_CHILDREN, SKYNET_LEAVES, SPAWN_COUNT, STEP_COUNT, Scale, YIELD_COUNT,
    YIELD_PROCESSES, check, each,
};

pub(super) async fn spawn(scale: Scale) -> Outcome {
    static ENDED: Latch = Latch::new();
    let count = scale.of(SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        rt::detach(rt::spawn(async { ENDED.count_down() }));
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

pub(super) async fn skynet(scale: Scale) -> Outcome {
    let leaves = scale.of(SKYNET_LEAVES);
    let start = now();
    let sum = node(0, leaves).await?;
    let outcome = vec![each(start, leaves)];
    check("the sum of the leaves' numbers", leaves * (leaves - 1) / 2, sum)?;
    Ok(outcome)
}

/// Starts a process that returns the sum of the numbers of the leaves below it.
fn node(first: u64, leaves: u64) -> JoinHandle<u64> {
    if leaves == 1 {
        return rt::spawn(async move { first });
    }
    rt::spawn(async move {
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

pub(super) async fn yields(scale: Scale) -> Outcome {
    let processes = scale.of(YIELD_PROCESSES);
    let count = scale.of(YIELD_COUNT);
    let start = now();
    let spawn = |_| {
        rt::spawn(async move {
            let mut yields_done = 0;
            while yields_done < count {
                rt::yield_now().await;
                yields_done += 1;
            }
            yields_done
        })
    };
    let handles: Vec<_> = (0..processes).map(spawn).collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await?;
    }
    let outcome = vec![each(start, processes * count)];
    check("the yields", processes * count, sum)?;
    Ok(outcome)
}

/// Starts processes that end with their number, each after the previous one has ended.
pub(super) async fn one_by_one<H, E>(
    scale: Scale,
    start: impl Fn(u64) -> Result<H, Failed>,
) -> Outcome
where
    H: Future<Output = Result<u64, E>>,
    Failed: From<E>,
{
    let count = scale.of(STEP_COUNT);
    let begun = now();
    let mut sum = 0;
    for number in 0..count {
        sum += start(number)?.await?;
    }
    let outcome = vec![each(begun, count)];
    check("the sum of the results", count * (count - 1) / 2, sum)?;
    Ok(outcome)
}
