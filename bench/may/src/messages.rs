//! The workloads of sending and receiving.

use std::sync::Arc;

use may::sync::Semphore;
use may::sync::mpsc::{self, Receiver, Sender};

use crate::meter::now;
use crate::workload::{
    CO_CHANNEL_ITEMS, FANIN_MESSAGES, FANIN_SENDERS, Failed, Outcome, PINGPONG_ROUND_TRIPS,
    RING_HOPS, RING_PROCESSES, Scale, check, each,
};
use crate::{join, spawn};

pub(crate) fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let (to_ping, at_ping) = mpsc::channel();
    let (to_pong, at_pong) = mpsc::channel();
    let pong = spawn(move || {
        while let Ok(number) = at_pong.recv() {
            to_ping.send(number + 1).map_err(Failed::error)?;
        }
        Ok::<(), Failed>(())
    });
    let start = now();
    let mut number = 0;
    for _ in 0..round_trips {
        to_pong.send(number).map_err(Failed::error)?;
        number = at_ping.recv().map_err(Failed::error)?;
    }
    let outcome = vec![each(start, round_trips)];
    drop(to_pong);
    join(pong)?;
    check("the additions", round_trips, number)?;
    Ok(outcome)
}

/// The number counts down at each hop. Once it is zero, it goes round once more, and all processes
/// end.
pub(crate) fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let (mut next, here) = mpsc::channel();
    let mut others = Vec::with_capacity(RING_PROCESSES - 1);
    for _ in 1..RING_PROCESSES {
        let (address, mailbox) = mpsc::channel();
        let after = std::mem::replace(&mut next, address);
        others.push(spawn(move || link(&mailbox, &after)));
    }
    let start = now();
    next.send(hops).map_err(Failed::error)?;
    let mut made = link(&here, &next)?;
    let outcome = vec![each(start, hops)];
    for other in others {
        made += join(other)?;
    }
    check("the hops", hops, made)?;
    Ok(outcome)
}

/// Passes numbers on until a zero comes. Returns how many were passed on.
fn link(mailbox: &Receiver<u64>, next: &Sender<u64>) -> Result<u64, Failed> {
    let mut passed = 0;
    while let Ok(number) = mailbox.recv()
        && pass_on(number, next)?
    {
        passed += 1;
    }
    Ok(passed)
}

/// Passes a number on. Returns `true` if that was a hop that counts.
fn pass_on(number: u64, next: &Sender<u64>) -> Result<bool, Failed> {
    match next.send(number.saturating_sub(1)) {
        // At the end of the last round, the next process has ended.
        Err(_) if number == 0 => Ok(false),
        sent => Ok(sent.map(|()| number > 0).map_err(Failed::error)?),
    }
}

pub(crate) fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let (to_here, here) = mpsc::channel();
    let start = now();
    let senders: Vec<_> = (0..FANIN_SENDERS)
        .map(|sender| {
            let receiver = to_here.clone();
            spawn(move || {
                let first = sender * share;
                (first..first + share).try_for_each(|number| receiver.send(number))
            })
        })
        .collect();
    let mut sum = 0;
    for _ in 0..messages {
        sum += here.recv().map_err(Failed::error)?;
    }
    let outcome = vec![each(start, messages)];
    for sender in senders {
        join(sender).map_err(Failed::error)?;
    }
    check("the sum of the messages", messages * (messages - 1) / 2, sum)?;
    Ok(outcome)
}

/// may's channels have no bound, so a semaphore holds the sender back. With a capacity, it waits
/// for room; with none, it waits until the item was taken.
pub(crate) fn channels(scale: Scale) -> Outcome {
    let items = scale.of(CO_CHANNEL_ITEMS);
    let mut outcome = Vec::new();
    for capacity in [0, 1, 10_000] {
        let (sender, receiver) = mpsc::channel();
        let room = Arc::new(Semphore::new(capacity));
        let start = now();
        let sends = {
            let room = Arc::clone(&room);
            spawn(move || {
                for item in 0..items {
                    if capacity > 0 {
                        room.wait();
                    }
                    sender.send(item).map_err(Failed::error)?;
                    if capacity == 0 {
                        room.wait();
                    }
                }
                Ok::<(), Failed>(())
            })
        };
        let receives = spawn(move || {
            let mut sum = 0;
            while let Ok(item) = receiver.recv() {
                room.post();
                sum += item;
            }
            sum
        });
        let sum = join(receives);
        outcome.push(each(start, items));
        join(sends)?;
        check("the sum of the items", items * (items - 1) / 2, sum)?;
    }
    Ok(outcome)
}
