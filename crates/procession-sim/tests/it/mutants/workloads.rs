//! What the scheduler does: timers, messages, steps that block, descriptors.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use procession_sim::Sim;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

/// Timers of several lengths, set while others wait, by processes that block now and then.
pub(super) async fn sleepers(sim: &Sim) {
    let sleepers: Vec<_> = (0..6)
        .map(|_| {
            let (own, rounds) = (sim.clone(), sim.choose(1..5));
            let lengths: Vec<_> = (0..rounds).map(|_| sim.choose(0..5)).collect();
            sim.spawn(async move {
                for length in lengths {
                    procession::sleep(Duration::from_micros(90 * 7u64.pow(length as u32))).await;
                    if length == 3 {
                        own.block(Duration::from_millis(1));
                    } else if length == 4 {
                        procession::blocking(|| own.block(Duration::from_millis(3)));
                    }
                }
            })
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await.expect("it ends");
    }
}

/// Processes that wake one another while the woken process is still in its step.
pub(super) async fn bells(sim: &Sim) {
    let channels: Vec<_> = (0..3).map(|_| procession::sync::channel::bounded::<u32>(1)).collect();
    let rung = Arc::new(AtomicU32::new(0));
    let ends: Vec<_> = (0..3)
        .map(|at| {
            let (sender, receiver) = (channels[(at + 1) % 3].0.clone(), channels[at].1.clone());
            let (own, rung, holds) = (sim.clone(), Arc::clone(&rung), sim.choose(0..3));
            sim.spawn(async move {
                for round in 0..6 {
                    if round % 3 == holds {
                        own.block(Duration::from_micros(300));
                    }
                    sender.send(1).await.expect("the receiver lives");
                    // Others may ring between the look and the end of the step.
                    let mut next = pin!(receiver.recv());
                    let arrived = poll_fn(|task| {
                        let looked = next.as_mut().poll(task);
                        if looked.is_pending() && holds == 1 {
                            own.block(Duration::from_micros(100));
                        }
                        looked
                    });
                    if arrived.await.is_some() {
                        rung.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    for end in ends {
        end.await.expect("it ends");
    }
    sim.always("each message arrives", rung.load(Relaxed) == 18);
}

/// A thread that is no worker makes the first descriptor known, while all workers are parked.
pub(super) async fn descriptor_from_outside(sim: &Sim) {
    let (ours, mut theirs) = UnixStream::pair().expect("the system has descriptors");
    let own = sim.clone();
    let writer = procession::spawn_blocking(move || {
        own.block(Duration::from_millis(1));
        theirs.write_all(b"x").expect("it is open");
        theirs
    });
    sim.settle().await;
    let stream = procession::net::UnixStream::try_from(ours).expect("it is a stream");
    let read = stream.read(&mut [0; 1]).await.expect("it is open");
    sim.always("the byte arrives, or no thread was there to write it", read <= 1);
    drop(writer.await);
}

/// A worker sets a timer, and blocks. Another one is the driver for a later timer.
pub(super) async fn timers_of_blocked(sim: &Sim) {
    let later = sim.spawn(procession::sleep(Duration::from_millis(20)));
    let rounds = sim.choose(1..4);
    for _ in 0..rounds {
        let (own, pause) = (sim.clone(), sim.choose(0..4));
        let blocker = sim.spawn(async move {
            let own = &own;
            let sleeper = procession::spawn(procession::sleep(Duration::from_millis(2)));
            procession::sleep(Duration::from_micros(300 * pause)).await;
            procession::blocking(|| own.block(Duration::from_millis(8)));
            sleeper.await.expect("it ends");
        });
        blocker.await.expect("it ends");
    }
    later.await.expect("it ends");
}

/// Steps that block without a word, while others wait for their workers.
pub(super) async fn stalls(sim: &Sim) {
    for _ in 0..3 {
        procession::sleep(Duration::from_millis(sim.choose(0..6) * 30)).await;
        let own = sim.clone();
        let stalled = sim.spawn(async move {
            procession::spawn(async {}).detach();
            own.block(Duration::from_secs(2));
        });
        let woken = sim.spawn(procession::sleep(Duration::from_millis(1)));
        woken.await.expect("it ends");
        stalled.await.expect("it ends");
    }
}

/// A descriptor that becomes the scheduler's first while all else waits.
pub(super) async fn descriptor(sim: &Sim) {
    let (ours, mut theirs) = UnixStream::pair().expect("the system has descriptors");
    let reader = sim.spawn(async move {
        let stream = procession::net::UnixStream::try_from(ours).expect("it is a stream");
        let mut byte = [0; 1];
        stream.read(&mut byte).await.expect("it is open");
        stream.write_all(&byte).await.expect("it is open");
    });
    procession::sleep(Duration::from_millis(1)).await;
    theirs.write_all(b"x").expect("it is open");
    reader.await.expect("it ends");
    let mut byte = [0; 1];
    theirs.read_exact(&mut byte).expect("it was written");
}
