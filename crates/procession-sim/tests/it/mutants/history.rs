//! What went wrong in other runtimes: permits, hand-overs, idle counters, refused threads, quiet
//! timers and readiness; and the promises of mailboxes, monitors and shares.

use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::net::Readiness;
use procession::pool::Pool;
use procession::time::Instant;
use procession::{Context, Scheduler, SpawnOptions};
use procession_sim::Sim;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32};

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Processes that sleep, compute and block in any order, so that threads wake for deadlines while
/// there is no permit for them.
pub(super) async fn mixture(sim: &Sim) {
    let processes: Vec<_> = (0..4)
        .map(|_| {
            let (own, script) = (sim.clone(), [(); 6].map(|()| sim.choose(0..8)));
            sim.spawn(async move {
                for part in script {
                    match part {
                        0..3 => procession::sleep(150 * MICROSECOND * (1 << part)).await,
                        3 => procession::yield_now().await,
                        4 => own.compute(400 * MICROSECOND),
                        5 => own.compute(2 * MILLISECOND),
                        6 => procession::blocking(|| own.block(300 * MICROSECOND)),
                        _ => procession::blocking(|| own.block(3 * MILLISECOND)),
                    }
                }
            })
        })
        .collect();
    for process in processes {
        process.await.expect("it ends");
    }
}

/// A process wakes another, and then blocks without a word or computes: the other is in its
/// worker's LIFO slot.
pub(super) async fn hand_over(sim: &Sim) {
    let woken = procession::start(|mut cx: Context<()>| async move {
        let mut received = 0;
        while cx.recv().await.is_some() {
            received += 1;
        }
        received
    });
    for _ in 0..3 {
        let (own, address, how) = (sim.clone(), woken.address().clone(), sim.choose(0..3));
        let waker = sim.spawn(async move {
            procession::sleep(100 * MICROSECOND).await;
            address.send(()).expect("it lives");
            match how {
                0 => own.block(60 * MILLISECOND),
                1 => own.compute(5 * MILLISECOND),
                _ => own.block(300 * MICROSECOND),
            }
        });
        waker.await.expect("it ends");
    }
    woken.cancel();
    let received = woken.await.expect("it ends");
    sim.always("each message arrives", received == 3);
}

/// Two processes that wake one another all the time, and some that only want a turn.
pub(super) async fn chain(sim: &Sim) {
    let (to, from) = procession::sync::channel::bounded::<u32>(1);
    let (back, answer) = procession::sync::channel::bounded::<u32>(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let (own, over) = (sim.clone(), Arc::clone(&is_over));
    let first = sim.spawn(async move {
        for round in 0..400 {
            own.compute(100 * MICROSECOND);
            if over.load(Relaxed) || to.send(round).await.is_err() || answer.recv().await.is_none()
            {
                break;
            }
        }
    });
    let second = sim.spawn(async move {
        while let Some(round) = from.recv().await {
            if back.send(round).await.is_err() {
                break;
            }
        }
    });
    let others: Vec<_> = (0..2)
        .map(|_| {
            sim.spawn(async {
                for _ in 0..3 {
                    procession::yield_now().await;
                }
            })
        })
        .collect();
    for other in others {
        other.await.expect("it ends");
    }
    is_over.store(true, Relaxed);
    first.await.expect("it ends");
    second.await.expect("it ends");
}

/// Jobs for a pool with threads that are about to end, or refused.
pub(super) async fn jobs(sim: &Sim) {
    let keep_alive = 2 * MILLISECOND;
    let pool = Pool::builder().capacity(2).keep_alive(keep_alive).build().expect("it is in range");
    for _ in 0..4 {
        let jobs: Vec<_> = (0..sim.choose(1..4))
            .map(|_| {
                let (own, length) = (sim.clone(), sim.choose(0..3));
                pool.submit(move || own.block(MILLISECOND * length as u32))
            })
            .collect();
        for job in jobs.into_iter().flatten() {
            job.await.expect("it ends");
        }
        let pause = match sim.choose(0..3) {
            0 => keep_alive,
            1 => keep_alive - 10 * MICROSECOND,
            _ => MICROSECOND,
        };
        procession::sleep(pause).await;
    }
    pool.close();
}

/// Threads that are no workers set timers while a worker waits for a later one.
pub(super) async fn quiet_timers(sim: &Sim) {
    let later = sim.spawn(procession::sleep(100 * MILLISECOND));
    let receiver = procession::start(|mut cx: Context<Instant>| async move {
        let mut late = 0;
        while let Some(due) = cx.recv().await {
            late += u32::from(Instant::now() < due);
        }
        late
    });
    for _ in 0..sim.choose(1..4) {
        let (own, address, delay) = (sim.clone(), receiver.address().clone(), sim.choose(1..5));
        let job = procession::spawn_blocking(move || {
            own.block(MILLISECOND);
            let delay = MILLISECOND * delay as u32;
            address.send_after(delay, Instant::now() + delay).is_ok()
        });
        // The system may refuse the thread.
        drop(job.await);
        procession::sleep(7 * MILLISECOND).await;
    }
    later.await.expect("it ends");
    receiver.cancel();
    let early = receiver.await.expect("it ends");
    sim.always("a timer is never early", early == 0);
}

/// A read finds nothing and takes long, while the bytes come.
pub(super) async fn slow_reads(sim: &Sim) {
    let (ours, theirs) = UnixStream::pair().expect("the system has descriptors");
    let (own, rounds) = (sim.clone(), 3);
    let reader = sim.spawn(async move {
        let readiness = Readiness::new(ours).expect("the system has descriptors");
        for round in 0..rounds {
            let read = readiness.read_with(|mut stream| {
                let read = stream.read(&mut [0; 1]);
                if matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock) {
                    own.block(MILLISECOND * (round + 1));
                }
                read
            });
            read.await.expect("it is open");
        }
    });
    let pause = sim.choose(1..6) as u32;
    let writer = sim.spawn(async move {
        for _ in 0..rounds {
            procession::sleep(pause * 300 * MICROSECOND).await;
            (&theirs).write_all(b"x").expect("it is open");
        }
        theirs
    });
    let theirs = writer.await.expect("it ends");
    reader.await.expect("it ends");
    drop(theirs);
}

/// Processes that are bound to workers, woken from everywhere.
pub(super) async fn affinity(sim: &Sim) {
    let bound: Vec<_> = (0..3)
        .map(|_| {
            // Worker 0 is there in each run.
            let options = SpawnOptions::new().affinity(0);
            options.start(|mut cx: Context<()>| async move {
                let mut received = 0;
                while cx.recv().await.is_some() {
                    received += 1;
                    procession::yield_now().await;
                }
                received
            })
        })
        .collect();
    let senders: Vec<_> = (0..3)
        .map(|sender| {
            let addresses: Vec<_> = bound.iter().map(|one| one.address().clone()).collect();
            let (own, pause) = (sim.clone(), sim.choose(0..4));
            sim.spawn(async move {
                for round in 0..6 {
                    addresses[(sender + round) % 3].send(()).expect("it lives");
                    match pause {
                        0 => procession::yield_now().await,
                        1 => own.compute(100 * MICROSECOND),
                        _ => procession::sleep(pause as u32 * 60 * MICROSECOND).await,
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("it ends");
    }
    let mut sum = 0;
    for process in bound {
        process.cancel();
        sum += process.await.expect("it ends");
    }
    sim.always("each message arrives at its worker", sum == 18);
}

/// Processes that monitor others, which end by themselves, are killed, or panic.
pub(super) async fn monitors(sim: &Sim) {
    let targets: Vec<_> = (0..3)
        .map(|_| match sim.choose(0..3) {
            0 => sim.spawn(procession::sleep(150 * MICROSECOND)),
            1 => sim.spawn(async { procession::yield_now().await }),
            _ => sim.spawn(pending()),
        })
        .collect();
    let pids: Vec<_> = targets.iter().map(procession::JoinHandle::pid).collect();
    let watchers: Vec<_> = (0..2)
        .map(|_| {
            let pids = pids.clone();
            let pause = sim.choose(0..4);
            procession::start(move |mut cx: Context<()>| async move {
                procession::sleep(60 * MICROSECOND * pause as u32).await;
                let monitors: Vec<_> = pids.iter().map(|&pid| cx.monitor(pid)).collect();
                let withdrawn = cx.demonitor(monitors[0]);
                let mut downs = u32::from(withdrawn);
                for &monitor in &monitors[1..] {
                    downs += u32::from(cx.down(monitor).await.is_some());
                }
                downs
            })
        })
        .collect();
    procession::sleep(120 * MICROSECOND).await;
    for target in &targets {
        sim.kill(target.pid());
    }
    for watcher in watchers {
        let downs = watcher.await.expect("it ends");
        sim.always("each monitor tells once, or is ended", downs == 3);
    }
    for target in targets {
        drop(target.await);
    }
}

/// The messages of a sender arrive in their order, by address, by PID, and with a wait for room.
pub(super) async fn order(sim: &Sim) {
    const SENDERS: usize = 3;
    let is_bounded = sim.choose(0..2) == 1;
    let options = SpawnOptions::new();
    let options = if is_bounded { options.mailbox(2, WhenFull::Wait) } else { options };
    let receiver = options.start(|mut cx: Context<(usize, u32)>| async move {
        let mut next = [0; SENDERS];
        while let Some((sender, number)) = cx.recv().await {
            if next[sender] != number {
                return false;
            }
            next[sender] += 1;
            if number % 4 == 1 {
                procession::yield_now().await;
            }
        }
        next == [8; SENDERS]
    });
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let address = receiver.address().clone();
            sim.spawn(async move {
                for number in 0..8 {
                    if is_bounded || number % 2 == 0 {
                        address.send_wait((sender, number)).await.expect("it lives");
                    } else {
                        procession::mailbox::send(address.pid(), (sender, number))
                            .expect("it lives");
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("it ends");
    }
    receiver.cancel();
    let is_ordered = receiver.await.expect("it ends");
    sim.always("the messages of each sender arrive in order", is_ordered);
}

/// Processes that do the same get equal shares of their worker, within a tenth, over more than
/// 100 ms and 50 rounds.
pub(super) async fn shares(sim: &Sim) {
    const ROUNDS: u32 = 60;
    let scheduler = Scheduler::builder().worker_threads(1).max_threads(1).build();
    // The system may refuse the thread.
    let Ok(scheduler) = scheduler else { return };
    let count = sim.choose(2..5) as usize;
    let turns: Arc<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
    let (is_over, step) = (Arc::new(AtomicBool::new(false)), MILLISECOND);
    let hogs: Vec<_> = (0..count)
        .map(|number| {
            let (turns, is_over, own) = (Arc::clone(&turns), Arc::clone(&is_over), sim.clone());
            scheduler.spawn(async move {
                while !is_over.load(Relaxed) {
                    if turns[number].fetch_add(1, Relaxed) >= ROUNDS {
                        is_over.store(true, Relaxed);
                    }
                    own.compute(step);
                    procession::yield_now().await;
                }
            })
        })
        .collect();
    for hog in hogs {
        hog.await.expect("it ends");
    }
    let least = turns.iter().map(|turns| turns.load(Relaxed)).min().unwrap_or(0);
    // A tenth, and the turns while the first processes begin.
    sim.always("equal processes have equal shares", least * 11 + 80 >= ROUNDS * 10);
    scheduler.shutdown(Duration::from_secs(60)).await;
}

/// A worker computes with much queued behind it, while others come and go.
pub(super) async fn bystander(sim: &Sim) {
    let own = sim.clone();
    let hog = sim.spawn(async move {
        for _ in 0..3 {
            let children: Vec<_> = (0..4)
                .map(|_| {
                    let own = own.clone();
                    procession::spawn(async move {
                        own.compute(50 * MICROSECOND);
                        procession::sleep(50 * MICROSECOND).await;
                    })
                })
                .collect();
            own.compute(3 * MILLISECOND);
            procession::blocking(|| own.block(MILLISECOND));
            for child in children {
                child.await.expect("it ends");
            }
        }
    });
    hog.await.expect("it ends");
}

/// A worker fires the timer of another worker, which is late, and then sets a later timer itself.
pub(super) async fn overtakes(sim: &Sim) {
    for _ in 0..5 {
        let sleeper = sim.spawn(procession::sleep(MILLISECOND));
        let (own, steps, length) = (sim.clone(), sim.choose(3..7), sim.choose(1..4));
        let other = sim.spawn(async move {
            for _ in 0..steps {
                own.compute(length as u32 * 150 * MICROSECOND);
                procession::yield_now().await;
            }
            procession::sleep(2 * MILLISECOND).await;
        });
        other.await.expect("it ends");
        sleeper.await.expect("it ends");
    }
}

/// Computes without a point, so that no other thread runs.
fn spin(length: Duration) {
    let until = Instant::now() + length;
    while Instant::now() < until {}
}

/// Two threads for one permit: one thread wakes for a deadline while the other runs. Now and then
/// the other thread has fired that timer already, and the next timer is far.
pub(crate) async fn one_permit(sim: &Sim) {
    let scheduler = Scheduler::builder().worker_threads(1).max_threads(3).build();
    // The system may refuse the thread.
    let Ok(scheduler) = scheduler else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let (pause, over) = (sim.choose(0..3) as u32, Arc::clone(&is_over));
    let sleeper = scheduler.spawn(async move {
        for _ in 0..20 {
            procession::sleep(MILLISECOND).await;
            procession::yield_now().await;
            procession::yield_now().await;
            procession::sleep(10 * pause * MILLISECOND).await;
        }
        over.store(true, Relaxed);
    });
    let own = sim.clone();
    let later = scheduler.spawn(procession::sleep(1000 * MILLISECOND));
    let hog = scheduler.spawn(async move {
        while !is_over.load(Relaxed) {
            // During this wait, the other thread parks until the next deadline.
            procession::blocking(|| own.block(200 * MICROSECOND));
            let length = own.choose(1..5) as u32 * 300 * MICROSECOND;
            if own.choose(0..2) == 0 {
                own.compute(length);
            } else {
                spin(length);
            }
            procession::yield_now().await;
            procession::sleep(own.choose(1..5) as u32 * 300 * MICROSECOND).await;
        }
    });
    sleeper.await.expect("it ends");
    hog.await.expect("it ends");
    later.await.expect("it ends");
    scheduler.shutdown(Duration::from_secs(60)).await;
}

/// A process starts others one right after the other, so that the worker that is woken for the
/// first is relied on for the rest; and then computes. That worker may be late.
pub(super) async fn late_helpers(sim: &Sim) {
    let scheduler = Scheduler::builder().worker_threads(3).max_threads(4).build();
    // The system may refuse the thread.
    let Ok(scheduler) = scheduler else { return };
    let own = sim.clone();
    let starter = scheduler.spawn(async move {
        for _ in 0..10 {
            let children: Vec<_> =
                (0..own.choose(1..4)).map(|_| procession::spawn(procession::yield_now())).collect();
            own.compute(6 * MILLISECOND);
            for child in children {
                child.await.expect("it ends");
            }
            // During this sleep, all workers park.
            procession::sleep(20 * MILLISECOND).await;
        }
    });
    starter.await.expect("it ends");
    scheduler.shutdown(Duration::from_secs(60)).await;
}

/// Processes that block, for one permit and threads that come and go. Each start of a thread may be
/// refused, while a thread that was blocked parks.
pub(super) async fn refusals(sim: &Sim) {
    let builder = Scheduler::builder().worker_threads(1).max_threads(5);
    let scheduler = builder.keep_alive(MILLISECOND).build();
    // The system may refuse the thread.
    let Ok(scheduler) = scheduler else { return };
    let blockers: Vec<_> = (0..4)
        .map(|_| {
            let own = sim.clone();
            scheduler.spawn(async move {
                for _ in 0..20 {
                    let child = procession::spawn(procession::yield_now());
                    let length = own.choose(1..4) as u32 * MILLISECOND;
                    procession::blocking(|| own.block(length));
                    child.await.expect("it ends");
                    procession::sleep(own.choose(0..3) as u32 * 4 * MILLISECOND).await;
                }
            })
        })
        .collect();
    for blocker in blockers {
        blocker.await.expect("it ends");
    }
    scheduler.shutdown(Duration::from_secs(60)).await;
}
