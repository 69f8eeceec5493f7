//! The workloads of switching, yielding, beginning and ending, and the memory of a waiting
//! coroutine.

use corosensei::{Coroutine, CoroutineResult};
use generator::Gn;
use may::coroutine::yield_now;
use may::sync::mpsc;

use crate::latch::Latch;
use crate::meter::{now, page_tables, resident};
use crate::work;
use crate::workload::{
    CO_ALIVE_COROUTINES, CO_SKEW_COROUTINES, CO_SPAWN_COUNT, CO_SWITCH_COUNT, CO_YIELD_COUNT,
    Failed, Outcome, Scale, YIELD_COUNT, YIELD_PROCESSES, check, each,
};
use crate::{join, peer, spawn, wait};

/// Switches with `generator`, on which may's coroutines are built.
pub(crate) fn switch_of_generator(scale: Scale) -> Outcome {
    let count = scale.of(CO_SWITCH_COUNT);
    let mut generator = Gn::<u64>::new_scoped(|mut scope| {
        let mut left = scope.get_yield().unwrap_or(0);
        while left > 0 {
            left = scope.yield_(left).unwrap_or(0);
        }
        0
    });
    let start = now();
    let mut left = count;
    while let Some(number @ 1..) = generator.raw_send(Some(left)) {
        left = number - 1;
    }
    let outcome = vec![each(start, count)];
    check("what is left", 0, left)?;
    Ok(outcome)
}

pub(crate) fn switch_of_corosensei(scale: Scale) -> Outcome {
    let count = scale.of(CO_SWITCH_COUNT);
    let mut coroutine = Coroutine::new(|yielder, mut left: u64| {
        while left > 0 {
            left = yielder.suspend(left);
        }
    });
    let start = now();
    let mut left = count;
    while let CoroutineResult::Yield(number) = coroutine.resume(left) {
        left = number - 1;
    }
    let outcome = vec![each(start, count)];
    check("what is left", 0, left)?;
    Ok(outcome)
}

/// Returns the time for each yield, in nanoseconds.
fn give_way(coroutines: u64, each_yields: u64) -> Result<f64, Failed> {
    let start = now();
    let run = move |_| {
        spawn(move || {
            let mut given_way = 0;
            while given_way < each_yields {
                yield_now();
                given_way += 1;
            }
            given_way
        })
    };
    let children: Vec<_> = (0..coroutines).map(run).collect();
    let sum = children.into_iter().map(join).sum();
    let figure = each(start, coroutines * each_yields);
    check("the yields", coroutines * each_yields, sum)?;
    Ok(figure)
}

pub(crate) fn yields(scale: Scale) -> Outcome {
    Ok(vec![give_way(scale.of(YIELD_PROCESSES), scale.of(YIELD_COUNT))?])
}

pub(crate) fn co_yields(scale: Scale) -> Outcome {
    let count = scale.of(CO_YIELD_COUNT);
    [1, 1000]
        .map(|coroutines| give_way(coroutines, (count / coroutines).max(1)))
        .into_iter()
        .collect()
}

pub(crate) fn spawns(scale: Scale) -> Outcome {
    static ENDED: Latch = Latch::new();
    let count = scale.of(CO_SPAWN_COUNT);
    let start = now();
    let mut left = count;
    while left > 0 {
        // A coroutine has its stack from the spawn on, and more of them cannot exist at once.
        let some = left.min(ALIVE_MAX);
        ENDED.set(some);
        for _ in 0..some {
            drop(spawn(|| ENDED.count_down()));
        }
        wait(ENDED.wait());
        left -= some;
    }
    Ok(vec![each(start, count)])
}

/// Maximum number of coroutines. Each has its own mapping and guard. Beyond about 32 k of them, the
/// system refuses more, and the program dies.
const ALIVE_MAX: u64 = 30_000;

/// Returns the arguments with which a fresh program runs [`alive`].
pub(crate) fn alive_arguments(scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec!["--coroutine-memory-here"];
    if scale == Scale::Tiny {
        arguments.push("--tiny");
    }
    arguments
}

pub(crate) fn alive(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let count = scale.of(CO_ALIVE_COROUTINES).min(ALIVE_MAX);
    LEFT.set(count);
    let before = resident()? + page_tables()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (address, mailbox) = mpsc::channel::<()>();
        drop(spawn(move || {
            LEFT.count_down();
            if mailbox.recv().is_ok() {
                LEFT.count_down();
            }
        }));
        addresses.push(address);
    }
    wait(LEFT.wait());
    let after = resident()? + page_tables()?;
    // All of them exist, and wait.
    LEFT.set(count);
    for address in addresses {
        address.send(()).map_err(Failed::error)?;
    }
    wait(LEFT.wait());
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}

pub(crate) fn skew(scale: Scale) -> Outcome {
    let alone = work::alone(scale);
    let start = now();
    let run = move |number| {
        spawn(move || {
            for _ in 0..10 {
                work::do_tenth(number, scale);
                yield_now();
            }
        })
    };
    let children: Vec<_> = (0..CO_SKEW_COROUTINES).map(run).collect();
    children.into_iter().for_each(join);
    Ok(vec![start.elapsed().as_secs_f64() * peer::width() as f64 / alone.as_secs_f64() * 100.0])
}
