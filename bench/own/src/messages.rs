//! The workloads of sending and receiving.

use std::time::Instant;

use procession::{Address, Context, Scheduler};

use super::meter::{block, now};
use super::workload::{
    FANIN_MESSAGES, FANIN_SENDERS, Failed, Outcome, PINGPONG_ROUND_TRIPS, RING_HOPS,
    RING_PROCESSES, Scale, WAKE_COUNT, WAKE_PAUSE, check, each, percentiles,
};

pub(super) async fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let ping = move |mut cx: Context<u64>| async move {
        let home = cx.address();
        let pong = procession::start(|mut cx: Context<u64>| async move {
            while let Some(number) = cx.recv().await {
                home.send(number + 1)?;
            }
            Ok::<(), Failed>(())
        });
        let start = now();
        let mut number = 0;
        for _ in 0..round_trips {
            pong.send(number)?;
            number = cx.recv().await.expect("the workload is not cancelled");
        }
        let outcome = vec![each(start, round_trips)];
        pong.cancel();
        pong.await??;
        check("the additions", round_trips, number)?;
        Ok(outcome)
    };
    procession::start(ping).await?
}

/// Sends a number round a ring. It counts down at each hop. Once it is zero, it goes round once
/// more, and all processes end.
pub(super) async fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let first = move |mut cx: Context<u64>| async move {
        let mut next = cx.address();
        let mut others = Vec::with_capacity(RING_PROCESSES - 1);
        for _ in 1..RING_PROCESSES {
            let (address, handle) = procession::start(move |cx| link(cx, next)).into_parts();
            others.push(handle);
            next = address;
        }
        let start = now();
        next.send(hops)?;
        let mut made = 0;
        loop {
            let number = cx.recv().await.expect("the workload is not cancelled");
            if !pass_on(number, &next)? {
                break;
            }
            made += 1;
        }
        let outcome = vec![each(start, hops)];
        for handle in others {
            made += handle.await??;
        }
        check("the hops", hops, made)?;
        Ok(outcome)
    };
    procession::start(first).await?
}

/// Passes numbers on until a zero comes. Returns the number of counted hops.
async fn link(mut cx: Context<u64>, next: Address<u64>) -> Result<u64, Failed> {
    let mut passed = 0;
    while let Some(number) = cx.recv().await
        && pass_on(number, &next)?
    {
        passed += 1;
    }
    Ok(passed)
}

/// Passes a number on. Returns `true` if that was a hop that counts.
fn pass_on(number: u64, next: &Address<u64>) -> Result<bool, Failed> {
    match next.send(number.saturating_sub(1)) {
        // At the end of the last round, the next process has ended.
        Err(_) if number == 0 => Ok(false),
        sent => Ok(sent.map(|()| number > 0)?),
    }
}

pub(super) async fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let receiver = move |mut cx: Context<u64>| async move {
        let start = now();
        let senders: Vec<_> = (0..FANIN_SENDERS)
            .map(|sender| {
                let receiver = cx.address();
                procession::spawn(async move {
                    let first = sender * share;
                    (first..first + share).try_for_each(|number| receiver.send(number))
                })
            })
            .collect();
        let mut sum = 0;
        for _ in 0..messages {
            sum += cx.recv().await.expect("the workload is not cancelled");
        }
        let outcome = vec![each(start, messages)];
        for sender in senders {
            sender.await??;
        }
        check("the sum of the messages", messages * (messages - 1) / 2, sum)?;
        Ok(outcome)
    };
    procession::start(receiver).await?
}

/// Measures the delay of messages to a waiting process, while nothing else runs.
pub(super) fn wake(scheduler: &Scheduler, scale: Scale) -> Outcome {
    let count = scale.of(WAKE_COUNT);
    let sleeper = scheduler.start(move |mut cx: Context<Instant>| async move {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.extend(cx.recv().await.map(|sent| sent.elapsed()));
        }
        waits
    });
    for _ in 0..count {
        block(WAKE_PAUSE);
        sleeper.send(now())?;
    }
    Ok(percentiles(sleeper.join()?, [500, 990, 999]).to_vec())
}
