//! Notifications, watches, broadcasts and oneshot channels, with waits that are cancelled at
//! random.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::sync::{Notify, RecvError, broadcast, oneshot, watch};
use procession_sim::{Check, Sim};

/// Awaits `future` for a few polls, with a pause in between. Returns `None` if it is cancelled.
async fn perhaps<F: Future>(sim: &Sim, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..sim.choose(1..4) {
        let polled = poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        // A sleep, because a process that only yields keeps the other processes from running in
        // some strategies.
        procession::sleep(Duration::from_micros(sim.choose(1..100))).await;
    }
    None
}

/// One notification goes round, and is never lost.
async fn notification(sim: &Sim) {
    let notify = Arc::new(Notify::new());
    let processes: Vec<_> = (0..3)
        .map(|_| {
            let (own, notify) = (sim.clone(), Arc::clone(&notify));
            sim.spawn(async move {
                let mut rounds = 0;
                while rounds < 6 {
                    if perhaps(&own, notify.notified()).await.is_some() {
                        rounds += 1;
                        notify.notify_one();
                    }
                }
            })
        })
        .collect();
    notify.notify_one();
    for process in processes {
        process.await.expect("it ends");
    }
    notify.notified().await;
}

/// Every receiver accounts for every message, and sees the last value.
async fn messages(sim: &Sim) {
    const MESSAGES: u64 = 12;
    let (sender, receiver) = broadcast::channel(3);
    let (sets, sees) = watch::channel(0);
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let (own, mut receiver, mut sees) = (sim.clone(), receiver.resubscribe(), sees.clone());
            sim.spawn(async move {
                let (mut next, mut last) = (0, 0);
                loop {
                    match perhaps(&own, receiver.recv()).await {
                        Some(Ok(message)) => {
                            own.always("messages come in order", message == next);
                            next += 1;
                        }
                        Some(Err(RecvError::Lagged(missed))) => next += missed,
                        Some(Err(_)) => break,
                        None => {}
                    }
                }
                while perhaps(&own, sees.changed()).await.is_none_or(|changed| changed.is_ok()) {
                    last = *sees.borrow();
                }
                (next, last)
            })
        })
        .collect();
    drop(receiver);
    for message in 0..MESSAGES {
        sender.send(message).expect("there are receivers");
        sets.send_replace(message);
        if sim.choose(0..2) == 0 {
            procession::sleep(Duration::from_micros(30)).await;
        }
    }
    drop((sender, sets));
    for receiver in receivers {
        let ends = receiver.await.expect("it ends");
        sim.always("each message and the last value are known", ends == (MESSAGES, MESSAGES - 1));
    }
}

/// A value is received, or returns to its sender.
async fn values(sim: &Sim) {
    for value in 0..8 {
        let (sender, mut receiver) = oneshot::channel();
        let sends = sim.spawn(async move { sender.send(value).is_ok() });
        let mut received = perhaps(sim, &mut receiver).await.map(|received| received.is_ok());
        receiver.close();
        let is_sent = sends.await.expect("it ends");
        if received.is_none() {
            received = Some(receiver.try_recv().is_ok());
        }
        sim.always("what is sent is received", received == Some(is_sent));
    }
}

#[test]
fn nothing_is_lost_in_any_order() {
    Check::new().seeds(0..60).run(|sim| async move {
        match sim.choose(0..3) {
            0 => notification(&sim).await,
            1 => messages(&sim).await,
            _ => values(&sim).await,
        }
    });
}
