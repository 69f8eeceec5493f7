//! The workloads of coroutines: switching, yielding, channels, beginning and ending, and the memory
//! of a waiting coroutine.

use procession::sync::channel;
use procession::{Child, SpawnOptions, coroutine};
use procession_coroutine::{Coroutine, Resumed, Stacks, Suspender};

use super::latch::Latch;
use super::meter::{now, page_tables, resident};
use super::work;
use super::workload::{
    CO_ALIVE_COROUTINES, CO_ALIVE_STACK, CO_APART_ITEMS, CO_CHANNEL_ITEMS, CO_SKEW_COROUTINES,
    CO_SPAWN_COUNT, CO_SWITCH_COUNT, CO_YIELD_COUNT, Failed, Outcome, Scale, check, each,
};

/// Switches to a coroutine and back, without a scheduler.
pub(super) fn switch(scale: Scale) -> Outcome {
    let count = scale.of(CO_SWITCH_COUNT);
    let stack = Stacks::new().and_then(|stacks| stacks.take(64 << 10)).map_err(Failed::error)?;
    let counts = |suspender: &Suspender<'_, u64, u64>, mut left: u64| {
        while left > 0 {
            left = suspender.suspend(left);
        }
    };
    // SAFETY: when it suspends, the function holds a number and nothing else.
    #[expect(unsafe_code, reason = "a promise about code that no type can check")]
    let mut coroutine = unsafe { Coroutine::new(stack, counts) };
    let start = now();
    let mut left = count;
    while let Resumed::Suspended(number) = coroutine.resume(left) {
        left = number - 1;
    }
    let outcome = vec![each(start, count)];
    check("what is left", 0, left)?;
    Ok(outcome)
}

fn spawn<T: procession::process::Outcome + Send + 'static>(
    run: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> Result<Child<(), T>, Failed> {
    spawn_as(SpawnOptions::new(), run)
}

fn spawn_as<T: procession::process::Outcome + Send + 'static>(
    options: SpawnOptions,
    run: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> Result<Child<(), T>, Failed> {
    options.try_start_coroutine(run).map_err(|error| Failed::Runtime(error.to_string().into()))
}

/// One coroutine alone yields, and then a thousand do.
pub(super) async fn yields(scale: Scale) -> Outcome {
    let count = scale.of(CO_YIELD_COUNT);
    let mut outcome = Vec::new();
    for coroutines in [1, 1000] {
        let each_yields = (count / coroutines).max(1);
        let start = now();
        let run = move |_| {
            spawn(move |_| {
                let mut yields_done = 0;
                while yields_done < each_yields {
                    coroutine::yield_now();
                    yields_done += 1;
                }
                yields_done
            })
        };
        let mut sum = 0;
        for child in (0..coroutines).map(run).collect::<Result<Vec<_>, _>>()? {
            sum += child.await?;
        }
        outcome.push(each(start, coroutines * each_yields));
        check("the yields", coroutines * each_yields, sum)?;
    }
    Ok(outcome)
}

/// One coroutine sends, another receives.
pub(super) async fn channels(scale: Scale) -> Outcome {
    let mut outcome = Vec::new();
    for capacity in [0, 1, 10_000] {
        let options = [SpawnOptions::new(), SpawnOptions::new()];
        outcome.push(one_channel(scale.of(CO_CHANNEL_ITEMS), capacity, options).await?);
    }
    Ok(outcome)
}

/// Runs `channels` with the two coroutines on different workers, if there is more than one.
pub(super) async fn apart(scale: Scale, width: usize) -> Outcome {
    let options = [0, width as u32 - 1].map(|worker| SpawnOptions::new().affinity(worker));
    Ok(vec![one_channel(scale.of(CO_APART_ITEMS), 0, options).await?])
}

async fn one_channel(
    items: u64,
    capacity: usize,
    options: [SpawnOptions; 2],
) -> Result<f64, Failed> {
    let (sender, receiver) = channel::bounded(capacity);
    let [sends, receives] = options;
    let start = now();
    let sends = spawn_as(sends, move |_| {
        (0..items).try_for_each(|item| coroutine::wait(sender.send(item))).map_or(0, |()| items)
    })?;
    let receives = spawn_as(receives, move |_| {
        let mut sum = 0;
        while let Some(item) = coroutine::wait(receiver.recv()) {
            sum += item;
        }
        sum
    })?;
    let sum = receives.await?;
    let spent = each(start, items);
    check("the items sent", items, sends.await?)?;
    check("the sum of the items", items * (items - 1) / 2, sum)?;
    Ok(spent)
}

/// One process spawns coroutines, which run and end.
pub(super) async fn spawns(scale: Scale) -> Outcome {
    static ENDED: Latch = Latch::new();
    let count = scale.of(CO_SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        drop(spawn(|_| ENDED.count_down())?);
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

/// Measures waiting coroutines. The memory includes the addresses that their owner keeps, and the
/// page tables of the stacks.
pub(super) async fn alive(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let count = scale.of(CO_ALIVE_COROUTINES);
    LEFT.set(count);
    let before = resident()? + page_tables()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let run = |mut cx: coroutine::Context<()>| {
            LEFT.count_down();
            if cx.recv().is_some() {
                LEFT.count_down();
            }
        };
        let child = SpawnOptions::new().stack_size(CO_ALIVE_STACK).try_start_coroutine(run);
        let child = child.map_err(|error| Failed::Runtime(error.to_string().into()))?;
        addresses.push(child.detach());
    }
    LEFT.wait().await;
    let after = resident()? + page_tables()?;
    // All coroutines exist, and wait.
    LEFT.set(count);
    for address in addresses {
        address.send(()).map_err(Failed::error)?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}

/// Measures how much longer long-lived coroutines of unequal work, which stay where they began,
/// take than if the work were shared evenly.
pub(super) async fn skew(scale: Scale, width: usize) -> Outcome {
    let alone = work::alone(scale);
    let start = now();
    let run = move |number| {
        spawn(move |_| {
            for _ in 0..10 {
                work::do_tenth(number, scale);
                coroutine::yield_now();
            }
        })
    };
    for child in (0..CO_SKEW_COROUTINES).map(run).collect::<Result<Vec<_>, _>>()? {
        child.await?;
    }
    Ok(vec![start.elapsed().as_secs_f64() * width as f64 / alone.as_secs_f64() * 100.0])
}
