//! The workloads of notifications, oneshot channels, watches and broadcasts.

use std::sync::Arc;

use super::latch::Latch;
use super::meter::now;
use super::rt::{self, Notify, broadcast, oneshot, watch};
use super::workload::{
    BROADCAST_AT_ONCE, BROADCAST_BATCHES, BROADCAST_CAPACITY, BROADCAST_RECEIVERS, Failed,
    NOTIFY_ROUND_TRIPS, ONESHOT_COUNT, Outcome, Scale, WATCH_CHANGES, WATCH_RECEIVERS, check, each,
};

pub(super) async fn notify(scale: Scale) -> Outcome {
    let round_trips = scale.of(NOTIFY_ROUND_TRIPS);
    let both = Arc::new([Notify::new(), Notify::new()]);
    let [ping, pong] = &*both;
    let other = Arc::clone(&both);
    let start = now();
    let answers = rt::spawn(async move {
        let [ping, pong] = &*other;
        for _ in 0..round_trips {
            ping.notified().await;
            pong.notify_one();
        }
    });
    for _ in 0..round_trips {
        ping.notify_one();
        pong.notified().await;
    }
    let outcome = vec![each(start, round_trips)];
    answers.await?;
    Ok(outcome)
}

pub(super) async fn oneshots(scale: Scale) -> Outcome {
    let count = scale.of(ONESHOT_COUNT);
    let (start, mut sum) = (now(), 0);
    for number in 0..count {
        let (sender, receiver) = oneshot::channel();
        check("the values sent", 1, u64::from(sender.send(number).is_ok()))?;
        sum += receiver.await.map_err(Failed::error)?;
    }
    let alone = each(start, count);
    let start = now();
    for number in 0..count {
        let (sender, receiver) = oneshot::channel();
        rt::detach(rt::spawn(async move { sender.send(number).ok() }));
        sum += receiver.await.map_err(Failed::error)?;
    }
    let spawned = each(start, count);
    check("the sum of the values", count * (count - 1), sum)?;
    Ok(vec![alone, spawned])
}

pub(super) async fn watch(scale: Scale) -> Outcome {
    static UNSEEN: Latch = Latch::new();
    let changes = scale.of(WATCH_CHANGES);
    let (sender, receiver) = watch::channel(0);
    let watchers: Vec<_> = (0..WATCH_RECEIVERS)
        .map(|_| {
            let mut receiver = receiver.clone();
            rt::spawn(async move {
                let mut sum = 0;
                while receiver.changed().await.is_ok() {
                    sum += *receiver.borrow_and_update();
                    UNSEEN.count_down();
                }
                sum
            })
        })
        .collect();
    let start = now();
    for change in 1..=changes {
        UNSEEN.set(WATCH_RECEIVERS);
        sender.send_replace(change);
        UNSEEN.wait().await;
    }
    let outcome = vec![each(start, changes * WATCH_RECEIVERS)];
    drop(sender);
    for watcher in watchers {
        check("the sum of the values", changes * (changes + 1) / 2, watcher.await?)?;
    }
    Ok(outcome)
}

pub(super) async fn broadcast(scale: Scale) -> Outcome {
    static BEHIND: Latch = Latch::new();
    let batches = scale.of(BROADCAST_BATCHES);
    let messages = batches * BROADCAST_AT_ONCE;
    let (sender, first) = broadcast::channel(BROADCAST_CAPACITY);
    let receivers: Vec<_> = (0..BROADCAST_RECEIVERS)
        .map(|_| {
            let mut receiver = sender.subscribe();
            rt::spawn(async move {
                let mut sum = 0;
                for _ in 0..batches {
                    for _ in 0..BROADCAST_AT_ONCE {
                        sum += receiver.recv().await.map_err(Failed::error)?;
                    }
                    BEHIND.count_down();
                }
                Ok::<u64, Failed>(sum)
            })
        })
        .collect();
    drop(first);
    let start = now();
    for batch in 0..batches {
        BEHIND.set(BROADCAST_RECEIVERS);
        for message in 0..BROADCAST_AT_ONCE {
            sender.send(batch * BROADCAST_AT_ONCE + message).map_err(Failed::error)?;
        }
        BEHIND.wait().await;
    }
    let outcome = vec![each(start, messages * BROADCAST_RECEIVERS)];
    for receiver in receivers {
        check("the sum of the messages", messages * (messages - 1) / 2, receiver.await??)?;
    }
    Ok(outcome)
}
