//! The workloads of sending and receiving.

use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::meter::{block, now};
use crate::workload::{
    FANIN_MESSAGES, FANIN_SENDERS, Failed, Outcome, PINGPONG_ROUND_TRIPS, RING_HOPS,
    RING_PROCESSES, Scale, WAKE_COUNT, WAKE_PAUSE, check, each, percentiles,
};

pub(crate) async fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let ping = async move {
        let (to_ping, mut at_ping) = mpsc::unbounded_channel();
        let (to_pong, mut at_pong) = mpsc::unbounded_channel();
        let pong = tokio::spawn(async move {
            while let Some(number) = at_pong.recv().await {
                to_ping.send(number + 1)?;
            }
            Ok::<(), Failed>(())
        });
        let start = now();
        let mut number = 0;
        for _ in 0..round_trips {
            to_pong.send(number)?;
            number = at_ping.recv().await.expect("the other task sends until this one ends");
        }
        let outcome = vec![each(start, round_trips)];
        drop(to_pong);
        pong.await??;
        check("the additions", round_trips, number)?;
        Ok(outcome)
    };
    tokio::spawn(ping).await?
}

/// The number counts down at each hop. Once it is zero, it goes round once more, and all processes
/// end.
pub(crate) async fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let first = async move {
        let (mut next, mut here) = mpsc::unbounded_channel();
        let mut others = Vec::with_capacity(RING_PROCESSES - 1);
        for _ in 1..RING_PROCESSES {
            let (address, mailbox) = mpsc::unbounded_channel();
            others.push(tokio::spawn(link(mailbox, next)));
            next = address;
        }
        let start = now();
        next.send(hops)?;
        let mut made = 0;
        loop {
            let number = here.recv().await.expect("the ring is closed");
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
    tokio::spawn(first).await?
}

/// Passes numbers on until a zero comes. Returns how many were passed on.
async fn link(
    mut mailbox: UnboundedReceiver<u64>,
    next: UnboundedSender<u64>,
) -> Result<u64, Failed> {
    let mut passed = 0;
    while let Some(number) = mailbox.recv().await
        && pass_on(number, &next)?
    {
        passed += 1;
    }
    Ok(passed)
}

/// Passes a number on. Returns `true` if that was a hop that counts.
fn pass_on(number: u64, next: &UnboundedSender<u64>) -> Result<bool, Failed> {
    match next.send(number.saturating_sub(1)) {
        // At the end of the last round, the next process has ended.
        Err(_) if number == 0 => Ok(false),
        sent => Ok(sent.map(|()| number > 0)?),
    }
}

pub(crate) async fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let receiver = async move {
        let (to_here, mut here) = mpsc::unbounded_channel();
        let start = now();
        let senders: Vec<_> = (0..FANIN_SENDERS)
            .map(|sender| {
                let receiver = to_here.clone();
                tokio::spawn(async move {
                    let first = sender * share;
                    (first..first + share).try_for_each(|number| receiver.send(number))
                })
            })
            .collect();
        let mut sum = 0;
        for _ in 0..messages {
            sum += here.recv().await.expect("a sender is kept here");
        }
        let outcome = vec![each(start, messages)];
        for sender in senders {
            sender.await??;
        }
        check("the sum of the messages", messages * (messages - 1) / 2, sum)?;
        Ok(outcome)
    };
    tokio::spawn(receiver).await?
}

/// How long messages to a task that waits take, while nothing else runs.
pub(crate) fn wake(runtime: &Runtime, scale: Scale) -> Outcome {
    let count = scale.of(WAKE_COUNT);
    let (address, mut mailbox) = mpsc::unbounded_channel::<Instant>();
    let sleeper = runtime.spawn(async move {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.extend(mailbox.recv().await.map(|sent| sent.elapsed()));
        }
        waits
    });
    for _ in 0..count {
        block(WAKE_PAUSE);
        address.send(now())?;
    }
    Ok(percentiles(runtime.block_on(sleeper)?, [500, 990, 999]).to_vec())
}
