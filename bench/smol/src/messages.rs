//! The workloads of sending and receiving.

use smol::channel::{self, Receiver, Sender};

use crate::meter::now;
use crate::rt;
use crate::workload::{
    FANIN_MESSAGES, FANIN_SENDERS, Failed, Outcome, PINGPONG_ROUND_TRIPS, RING_HOPS,
    RING_PROCESSES, Scale, check, each,
};

pub(crate) async fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let ping = async move {
        let (to_ping, at_ping) = channel::unbounded();
        let (to_pong, at_pong) = channel::unbounded();
        let pong = rt::spawn(async move {
            while let Ok(number) = at_pong.recv().await {
                to_ping.try_send(number + 1)?;
            }
            Ok::<(), Failed>(())
        });
        let start = now();
        let mut number = 0;
        for _ in 0..round_trips {
            to_pong.try_send(number)?;
            number = at_ping.recv().await.expect("the other task sends until this one ends");
        }
        let outcome = vec![each(start, round_trips)];
        drop(to_pong);
        pong.await??;
        check("the additions", round_trips, number)?;
        Ok(outcome)
    };
    rt::spawn(ping).await?
}

/// The number counts down at each hop. Once it is zero, it goes round once more, and all processes
/// end.
pub(crate) async fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let first = async move {
        let (mut next, here) = channel::unbounded();
        let mut others = Vec::with_capacity(RING_PROCESSES - 1);
        for _ in 1..RING_PROCESSES {
            let (address, mailbox) = channel::unbounded();
            others.push(rt::spawn(link(mailbox, next)));
            next = address;
        }
        let start = now();
        next.try_send(hops)?;
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
    rt::spawn(first).await?
}

/// Passes numbers on until a zero comes. Returns how many were passed on.
async fn link(mailbox: Receiver<u64>, next: Sender<u64>) -> Result<u64, Failed> {
    let mut passed = 0;
    while let Ok(number) = mailbox.recv().await
        && pass_on(number, &next)?
    {
        passed += 1;
    }
    Ok(passed)
}

/// Passes a number on. Returns `true` if that was a hop that counts.
fn pass_on(number: u64, next: &Sender<u64>) -> Result<bool, Failed> {
    match next.try_send(number.saturating_sub(1)) {
        // At the end of the last round, the next process has ended.
        Err(_) if number == 0 => Ok(false),
        sent => Ok(sent.map(|()| number > 0)?),
    }
}

pub(crate) async fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let receiver = async move {
        let (to_here, here) = channel::unbounded();
        let start = now();
        let senders: Vec<_> = (0..FANIN_SENDERS)
            .map(|sender| {
                let receiver = to_here.clone();
                rt::spawn(async move {
                    let first = sender * share;
                    (first..first + share).try_for_each(|number| receiver.try_send(number))
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
    rt::spawn(receiver).await?
}
