//! Many of everything at once, on the real clock: nothing is lost, doubled, leaked or left behind.

mod schedulers;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::{Address, Context, Exit, Pid, Scheduler, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::home::Barrier;
use crate::scene::{assert_conserved, driven, panic_quietly, threaded};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn messages_are_conserved_while_receivers_end_in_every_way() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 10_000;
    for (width, shuffled) in [(1, false), (2, false), (4, false), (2, true)] {
        let builder = Scheduler::builder().worker_threads(width);
        let scheduler = if shuffled { builder.shuffled() } else { builder }
            .build()
            .expect("the system has threads");
        // There are always sixteen receivers, since each one that ends is replaced. Some are idle,
        // some slow, some end by themselves.
        let receivers: Vec<Mutex<Address<u64>>> =
            (0..16).map(|number| Mutex::new(receiver(&scheduler, number))).collect();
        // The first message to it is refused, however slow the workers are.
        procession::process::kill(receivers[0].lock().pid());
        scheduler.run_until_idle();
        let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        crate::home::thread::scope(|scope| {
            for seed in 0..SENDERS {
                let (scheduler, receivers, accepted, refused) =
                    (&scheduler, &receivers, &accepted, &refused);
                scope.spawn(move || {
                    let mut chance = fastrand::Rng::with_seed(seed);
                    for n in 0..EACH {
                        let place = chance.usize(0..receivers.len());
                        let address = receivers[place].lock().clone();
                        let sent = if chance.bool() {
                            address.send(n)
                        } else {
                            procession::mailbox::send(address.pid(), n)
                        };
                        match sent {
                            Ok(()) => accepted.fetch_add(1, Relaxed),
                            Err(error) => {
                                assert_eq!(error.into_inner(), n, "it comes back");
                                refused.fetch_add(1, Relaxed)
                            }
                        };
                        match chance.u32(0..400) {
                            0 => drop(procession::process::kill(address.pid())),
                            1 => drop(procession::process::cancel(address.pid())),
                            2..20 => {
                                let mut place = receivers[place].lock();
                                if !place.is_alive() {
                                    *place = receiver(scheduler, chance.u64(..));
                                }
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        let (accepted, refused) = (accepted.into_inner(), refused.into_inner());
        assert_eq!(accepted + refused, SENDERS * EACH);
        assert!(refused > 0, "one was dead from the beginning");
        for address in &receivers {
            procession::process::kill(address.lock().pid());
        }
        assert_conserved(&scheduler);
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.messages_sent, accepted);
        assert_eq!(
            snapshot.messages_received + snapshot.messages_discarded,
            accepted,
            "all receivers have ended"
        );
        assert_eq!(snapshot.spawned, snapshot.ended);
    }
}

/// Starts a receiver of some kind.
fn receiver(scheduler: &Scheduler, kind: u64) -> Address<u64> {
    let child = scheduler.start(move |mut cx: Context<u64>| async move {
        let mut received = 0_u64;
        loop {
            match kind % 4 {
                0 => drop(cx.recv_matching(|n| n % 3 == 0).await),
                1 => drop(cx.recv_timeout(Duration::from_nanos(100)).await),
                2 => procession::yield_now().await,
                _ => {}
            }
            if cx.recv().await.is_none() {
                return;
            }
            received += 1;
            match (kind / 4 % 4, received) {
                (0, 100) => return,
                (1, 100) => panic_quietly("as it happens"),
                _ => {}
            }
        }
    });
    child.into_parts().0
}

#[test]
fn two_hundred_thousand_are_alive_at_once() {
    const THREADS: u32 = 2;
    const EACH: u32 = 100_000;
    let scheduler = threaded(2);
    let sum = AtomicU64::new(0);
    crate::home::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (scheduler, sum) = (&scheduler, &sum);
            scope.spawn(move || {
                let children: Vec<_> = (0..EACH)
                    .map(|_| scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await }))
                    .collect();
                for (n, child) in (0..).zip(&children) {
                    child.send(thread * EACH + n).expect("it lives");
                }
                let results = children
                    .into_iter()
                    .map(|child| child.join().expect("it ends").expect("a message"));
                sum.fetch_add(results.map(u64::from).sum(), Relaxed);
            });
        }
    });
    let all = u64::from(THREADS * EACH);
    assert_eq!(sum.into_inner(), all * (all - 1) / 2);
    assert_conserved(&scheduler);
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.spawned, snapshot.ended, snapshot.messages_received), (all, all, all));
    assert_eq!(snapshot.processes.len(), 0);
}

#[test]
fn late_sends_by_pid_reach_nobody_else() {
    // A few slots, which processes of different types use in turn, while threads keep references to
    // their earlier processes.
    for width in [1, 2] {
        let builder = Scheduler::builder().worker_threads(width).max_processes(24);
        let scheduler = builder.build().expect("the system has threads");
        let pids: Mutex<Vec<Pid>> = Mutex::default();
        let over = AtomicBool::new(false);
        crate::home::thread::scope(|scope| {
            for seed in 0..2 {
                let (scheduler, pids, over) = (&scheduler, &pids, &over);
                scope.spawn(move || {
                    let mut chance = fastrand::Rng::with_seed(seed);
                    while !over.load(Relaxed) {
                        let pid = {
                            let pids = pids.lock();
                            if pids.is_empty() {
                                continue;
                            }
                            pids[chance.usize(0..pids.len())]
                        };
                        // A message contains the PID of its receiver, so that each process knows
                        // its own messages.
                        let named = pid.to_string();
                        match chance.u32(0..4) {
                            0 => drop(procession::mailbox::send(pid, named)),
                            1 => drop(procession::mailbox::send(pid, named.into_bytes())),
                            2 => drop(procession::mailbox::send(pid, named.into_boxed_str())),
                            _ => drop(scheduler.snapshot()),
                        }
                    }
                });
            }
            let mut chance = fastrand::Rng::with_seed(9);
            for round in 0..3000 {
                let started = match round % 3 {
                    0 => listener(&scheduler, |named: &String| named.clone()),
                    1 => listener(&scheduler, |named: &Vec<u8>| {
                        String::from_utf8_lossy(named).into_owned()
                    }),
                    _ => listener(&scheduler, |named: &Box<str>| named.to_string()),
                };
                // A refusal leaves some time to the others.
                let Some(pid) = started else { continue };
                let mut pids = pids.lock();
                if pids.len() < 64 {
                    pids.push(pid);
                } else {
                    let place = chance.usize(0..64);
                    pids[place] = pid;
                }
            }
            over.store(true, Relaxed);
        });
        assert_conserved(&scheduler);
        assert_eq!(scheduler.snapshot().panicked, 0, "no process received the message of another");
    }
}

/// Starts a process that lives for a few steps, and panics if it receives a message for another
/// process.
fn listener<M: Send + 'static>(scheduler: &Scheduler, name: fn(&M) -> String) -> Option<Pid> {
    let started =
        SpawnOptions::new().on(scheduler).try_start(move |mut cx: Context<M>| async move {
            let own = cx.pid().to_string();
            for _ in 0..3 {
                while let Ok(message) = cx.try_recv() {
                    assert_eq!(name(&message), own);
                }
                procession::yield_now().await;
            }
        });
    started.ok().map(|child| child.pid())
}

#[test]
fn spurious_wake_ups_change_nothing() {
    for width in [1, 2, 4] {
        let scheduler = threaded(width);
        let wakers: Mutex<Vec<Waker>> = Mutex::default();
        let wakers = Arc::new(wakers);
        let over = AtomicBool::new(false);
        crate::home::thread::scope(|scope| {
            for seed in 0..2 {
                let (wakers, over) = (&wakers, &over);
                scope.spawn(move || {
                    let mut chance = fastrand::Rng::with_seed(seed);
                    while !over.load(Relaxed) {
                        crate::home::others_may_run();
                        let waker = {
                            let wakers = wakers.lock();
                            if wakers.is_empty() {
                                continue;
                            }
                            wakers[chance.usize(0..wakers.len())].clone()
                        };
                        match chance.bool() {
                            true => waker.wake_by_ref(),
                            false => waker.wake(),
                        }
                    }
                });
            }
            let players: Vec<_> = (0..8_u32)
                .map(|_| {
                    let wakers = Arc::clone(&wakers);
                    scheduler.start(move |mut cx: Context<(u32, Address<u32>)>| async move {
                        let own = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
                        wakers.lock().push(own);
                        let mut served = 0;
                        while let Some((n, back)) = cx.recv().await {
                            procession::sleep(Duration::from_nanos(u64::from(n) % 3)).await;
                            back.send(n + 1).expect("it waits");
                            served += 1;
                        }
                        served
                    })
                })
                .collect();
            let rounds: Vec<_> = players
                .iter()
                .map(|player| {
                    let address = player.address().clone();
                    let wakers = Arc::clone(&wakers);
                    scheduler.start(move |mut cx: Context<u32>| async move {
                        let own = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
                        wakers.lock().push(own);
                        let mut n = 0;
                        while n < 500 {
                            address.send((n, cx.address())).expect("it serves");
                            let reply = cx.recv().await.expect("it is not cancelled");
                            assert_eq!(reply, n + 1);
                            n = reply;
                        }
                        n
                    })
                })
                .collect();
            for round in rounds {
                assert_eq!(round.join(), Ok(500));
            }
            for player in players {
                player.cancel();
                assert_eq!(player.join(), Ok(500));
            }
            over.store(true, Relaxed);
        });
        assert_conserved(&scheduler);
        // Wakers of processes that have ended.
        for waker in wakers.lock().drain(..) {
            waker.wake();
        }
        assert_eq!(scheduler.snapshot().processes.len(), 0);
    }
}

#[test]
fn threads_and_processes_crowd_one_thread_mailbox() {
    const EACH: u32 = 2000;
    for scheduler in [driven(), threaded(1), threaded(2)] {
        let mut inbox = scheduler.attach::<(u32, u32)>();
        crate::home::thread::scope(|scope| {
            for sender in 0..4 {
                let address = inbox.address().clone();
                if sender % 2 == 0 {
                    scope.spawn(move || {
                        (0..EACH)
                            .for_each(|n| address.send((sender, n)).expect("the thread is there"))
                    });
                } else {
                    drop(scheduler.spawn(async move {
                        for n in 0..EACH {
                            procession::mailbox::send(address.pid(), (sender, n))
                                .expect("the thread is there");
                            if n % 64 == 0 {
                                procession::yield_now().await;
                            }
                        }
                    }));
                }
            }
            let mut next = [0; 4];
            for _ in 0..4 * EACH {
                let (sender, n) = inbox.recv().expect("the scheduler is there");
                assert_eq!(n, next[sender as usize], "sender {sender}");
                next[sender as usize] += 1;
            }
        });
        drop(inbox);
        assert_conserved(&scheduler);
    }
}

#[test]
fn spawning_against_a_shutdown_loses_nobody() {
    for round in 0..300 {
        let scheduler = if round % 3 == 0 { driven() } else { threaded(round % 3) };
        let begin = Barrier::new(2);
        crate::home::thread::scope(|scope| {
            let spawner = scope.spawn(|| {
                begin.wait();
                (0..30).map(|n| scheduler.spawn(async move { n })).collect::<Vec<_>>()
            });
            begin.wait();
            assert!(scheduler.block_on(scheduler.shutdown(HOUR)).is_empty());
            let handles = spawner.join().expect("no panic");
            for (n, handle) in (0..).zip(handles) {
                let result = handle
                    .join_timeout(Duration::from_secs(60))
                    .expect("it has ended, or was refused");
                assert!(
                    result == Ok(n)
                        || matches!(result, Err(Exit::Shutdown | Exit::Killed | Exit::Refused)),
                    "{result:?}"
                );
            }
        });
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.spawned, snapshot.ended, "in round {round}");
    }
}

#[test]
fn handles_that_are_dropped_joined_or_polled_race_with_the_end() {
    for width in [1, 2] {
        let scheduler = threaded(width);
        let drops = Arc::new(AtomicU64::new(0));
        /// Counts its drop.
        struct Output(Arc<AtomicU64>);
        impl Drop for Output {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        const ROUNDS: u64 = 4000;
        for round in 0..ROUNDS {
            let output = Output(Arc::clone(&drops));
            let mut handle = scheduler.spawn(async move {
                if round % 3 == 0 {
                    procession::yield_now().await;
                }
                output
            });
            match round % 4 {
                0 => drop(handle),
                1 => assert!(handle.join().is_ok()),
                2 => drop(handle.join_timeout(Duration::from_nanos(1))),
                _ => {
                    let polled = Pin::new(&mut handle)
                        .poll(&mut std::task::Context::from_waker(Waker::noop()));
                    drop((polled, handle));
                }
            }
        }
        assert_conserved(&scheduler);
        assert_eq!(drops.load(Relaxed), ROUNDS, "each output is dropped once");
        assert_eq!(scheduler.snapshot().processes.len(), 0);
    }
}

#[test]
fn a_handle_that_was_polled_and_dropped_keeps_nobodys_slot() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_processes(64)
        .build()
        .expect("it starts no thread");
    // Each parent polls the handle of its child, and ends before the child does.
    let children: Vec<_> = (0..30)
        .map(|_| {
            let parent = scheduler.spawn(async move {
                let mut child =
                    procession::start(|mut cx: Context<()>| async move { cx.recv().await });
                poll_fn(|task| Poll::Ready(Pin::new(&mut child).poll(task).is_pending()))
                    .await
                    .then_some(child.pid())
            });
            parent.join().expect("it ends").expect("its child waits")
        })
        .collect();
    assert_eq!(scheduler.snapshot().processes.len(), 30, "the parents' slots are free");
    for child in children {
        procession::mailbox::send(child, ()).expect("it lives");
    }
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().processes.len(), 0);
}

#[test]
fn callers_and_threads_share_a_scheduler() {
    // The first seat belongs to the waiting threads, one after the other. Some processes run only
    // there.
    for width in [1, 2, 4] {
        let scheduler = Scheduler::builder()
            .worker_threads(width)
            .callers_drive()
            .build()
            .expect("the system has threads");
        crate::home::thread::scope(|scope| {
            for caller in 0..3_u32 {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    for n in 0..300 {
                        let options = SpawnOptions::new().on(scheduler);
                        let options = if n % 2 == 0 { options.affinity(0) } else { options };
                        let echo = options.start(|mut cx: Context<Address<u32>>| async move {
                            let back = cx.recv().await.expect("it is not cancelled");
                            procession::yield_now().await;
                            back.send(7).expect("it waits")
                        });
                        let to = echo.address().clone();
                        let waits = SpawnOptions::new()
                            .on(scheduler)
                            .affinity(caller % width as u32)
                            .start(|mut cx: Context<u32>| async move {
                                to.send(cx.address()).expect("it waits");
                                cx.recv().await
                            });
                        assert_eq!(waits.join(), Ok(Some(7)));
                        assert_eq!(echo.join(), Ok(()));
                    }
                });
            }
        });
        assert_conserved(&scheduler);
    }
}
