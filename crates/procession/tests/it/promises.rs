//! The promises of the engine: nothing is lost or doubled, no process starves, and the same seed
//! gives the same run.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::time::interval;
use procession::{Context, Pid, Scheduler, SpawnOptions, sleep, spawn, start, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::home::Barrier;
use crate::scene::{assert_conserved, driven, threaded};

/// A program in which everything happens: spawns, messages between random neighbours, yields,
/// sleeps and ends.
async fn traffic(seed: u64, note: impl Fn(Pid) + Clone + Send + 'static) -> u64 {
    let mut generator = fastrand::Rng::with_seed(seed);
    let mut children = Vec::new();
    for _ in 0..20 {
        let note = note.clone();
        let seed = generator.u64(..);
        children.push(start(move |mut cx: Context<u64>| async move {
            let mut generator = fastrand::Rng::with_seed(seed);
            let mut sum = 0;
            while let Some(message) = cx.recv().await {
                note(cx.pid());
                sum += message;
                match generator.u32(0..4) {
                    0 => yield_now().await,
                    1 => sleep(Duration::from_micros(generator.u64(0..50))).await,
                    _ => {}
                }
            }
            sum
        }));
    }
    let mut sent = 0;
    for round in 0..200 {
        let child = generator.usize(0..children.len());
        children[child].send(round).expect("it lives until it is cancelled");
        sent += round;
        if generator.bool() {
            sleep(Duration::from_micros(generator.u64(0..20))).await;
        }
    }
    let mut received = 0;
    for child in children {
        child.cancel();
        received += child.await.expect("it ends");
    }
    assert_eq!(received, sent);
    received
}

fn trace_of(seed: u64, shuffled: bool) -> Vec<String> {
    let builder = Scheduler::builder().worker_threads(1).test_clock().seed(seed);
    let scheduler =
        if shuffled { builder.shuffled() } else { builder }.build().expect("it starts no thread");
    let trace = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&trace);
    let own = scheduler.id();
    // The numbers of two schedulers differ, so they are left out.
    let note = move |pid: Pid| {
        let text = pid.to_string();
        noted.lock().push(text.replacen(&own.to_string(), "", 1));
    };
    let root = scheduler.spawn(traffic(7, note));
    root.join().expect("it ends");
    assert_conserved(&scheduler);
    let trace = trace.lock().clone();
    assert_eq!(trace.len(), 200, "each message was received once");
    trace
}

#[test]
fn the_same_seed_makes_the_same_dispatches() {
    for shuffled in [false, true] {
        assert_eq!(trace_of(1, shuffled), trace_of(1, shuffled));
    }
}

#[test]
fn shuffling_changes_the_order_with_the_seed() {
    let first = trace_of(1, true);
    assert!(
        (2..12).any(|seed| trace_of(seed, true) != first),
        "ten seeds, ten times the same order"
    );
}

/// Counts the dispatches of a one-worker scheduler until `victim_runs` is set, while other
/// processes keep themselves ready.
fn dispatches_until(victim_runs: &AtomicBool, scheduler: &Scheduler) -> u64 {
    let before = scheduler.snapshot().workers[0].dispatches;
    scheduler.block_on(async {
        while !victim_runs.load(Relaxed) {
            yield_now().await;
        }
    });
    scheduler.snapshot().workers[0].dispatches - before
}

#[test]
fn a_flood_of_new_processes_does_not_starve_an_old_one() {
    let scheduler = driven();
    let (ran, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let victim = Arc::clone(&ran);
    // The oldest of the deque: everything that follows is newer, and each process keeps the deque
    // busy by spawning the next.
    drop(scheduler.spawn({
        let (ran, stop) = (Arc::clone(&ran), Arc::clone(&stop));
        async move {
            drop(spawn(async move { ran.store(true, Relaxed) }));
            for _ in 0..3 {
                drop(spawn(successors(Arc::clone(&stop))));
            }
        }
    }));
    let dispatches = dispatches_until(&victim, &scheduler);
    stop.store(true, Relaxed);
    assert!(dispatches <= 4 * 61, "{dispatches} dispatches, though it was the oldest");
    scheduler.run_until_idle();
}

/// A process that spawns its own successor, without an end.
fn successors(stop: Arc<AtomicBool>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if !stop.load(Relaxed) {
            drop(spawn(successors(stop)));
        }
    })
}

#[test]
fn a_pair_that_hands_over_to_each_other_does_not_starve_a_third() {
    let scheduler = driven();
    let hops = Arc::new(AtomicU64::new(0));
    let third = Arc::new(AtomicU64::new(0));
    scheduler.block_on(async {
        let (counted, pong_counted) = (Arc::clone(&hops), Arc::clone(&hops));
        let pong = start(move |mut cx: Context<procession::Address<()>>| async move {
            while let Some(ping) = cx.recv().await {
                pong_counted.fetch_add(1, Relaxed);
                drop(ping.send(()));
            }
        });
        let to = pong.address().clone();
        let ping = start(move |mut cx: Context<()>| async move {
            let own = cx.address();
            to.send(own.clone()).expect("it lives");
            while cx.recv().await.is_some() {
                counted.fetch_add(1, Relaxed);
                drop(to.send(own.clone()));
            }
        });
        let turns = Arc::clone(&third);
        spawn(async move {
            for _ in 0..100 {
                turns.fetch_add(1, Relaxed);
                yield_now().await;
            }
        })
        .await
        .expect("it ends, though the pair never rests");
        ping.cancel();
        pong.cancel();
    });
    let hops = hops.load(Relaxed);
    assert!(hops >= 100, "the pair ran, too: {hops}");
    assert!(
        hops <= 100 * 8,
        "at most three hand-overs in a row, or a budget, between two turns: {hops}"
    );
}

#[test]
fn a_process_that_yields_forever_starves_neither_the_global_queue_nor_timers() {
    let scheduler = threaded(1);
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = Arc::clone(&stop);
        scheduler.spawn(async move {
            while !stop.load(Relaxed) {
                yield_now().await;
            }
        })
    };
    // Spawned by this thread, so it goes through the global queue.
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
    let ticked = scheduler.spawn(async {
        let mut ticks = interval(Duration::from_millis(1));
        for _ in 0..3 {
            ticks.tick().await;
        }
    });
    assert_eq!(ticked.join(), Ok(()));
    stop.store(true, Relaxed);
    assert_eq!(hog.join(), Ok(()));
}

#[test]
fn work_that_one_worker_queues_is_done_by_all() {
    // Each process waits until all others have started. If one of them could not be reached by
    // other workers, they would wait forever.
    let scheduler = threaded(4);
    let barrier = Arc::new(Barrier::new(4));
    let handles = scheduler.block_on(async {
        spawn(async move {
            let wait = |barrier: Arc<Barrier>| spawn(async move { barrier.wait().is_leader() });
            (0..4).map(|_| wait(Arc::clone(&barrier))).collect::<Vec<_>>()
        })
        .await
        .expect("it ends")
    });
    let leaders = handles.into_iter().map(|handle| handle.join().expect("it ends"));
    assert_eq!(leaders.filter(|&leads| leads).count(), 1, "all four were there at once");
}

#[test]
fn nothing_is_lost_or_doubled_under_stress() {
    for (width, shuffled) in [(1, false), (2, false), (4, false), (2, true)] {
        let builder = Scheduler::builder().worker_threads(width);
        let scheduler = if shuffled { builder.shuffled() } else { builder }
            .build()
            .expect("the system has threads");
        let runs: Vec<_> = (0..20).map(|seed| scheduler.spawn(traffic(seed, |_| {}))).collect();
        let sum: u64 = runs.into_iter().map(|run| run.join().expect("it ends")).sum();
        assert_eq!(sum, 20 * (199 * 200 / 2));
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.spawned, 20 * 21);
        let timers = snapshot.timers;
        assert_eq!(timers.armed, timers.fired + timers.cancelled + timers.pending);
        assert_eq!(timers.pending, 0);
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_million_are_spawned_messaged_and_ended() {
    let scheduler = threaded(2);
    let received = Arc::new(AtomicU32::new(0));
    let refused = scheduler.block_on(async {
        let received = Arc::clone(&received);
        let work = move |_| {
            let received = Arc::clone(&received);
            async move {
                let mut refused = 0;
                for batch in 0..500 {
                    let children: Vec<_> = (0..1000)
                        .map(|_| {
                            let received = Arc::clone(&received);
                            start(move |mut cx: Context<u32>| async move {
                                received.fetch_add(cx.recv().await.unwrap_or_default(), Relaxed);
                            })
                        })
                        .collect();
                    for child in children {
                        // Each child receives one message. The second one comes too late or is
                        // discarded.
                        child.send(1).expect("it waits for it");
                        refused += u32::from(child.send(1).is_err());
                    }
                    if batch % 16 == 0 {
                        yield_now().await;
                    }
                }
                refused
            }
        };
        let halves = [0, 1].map(|half| spawn(work(half)));
        let mut refused = 0;
        for half in halves {
            refused += half.await.expect("it ends");
        }
        refused
    });
    scheduler.run_until_idle();
    assert_eq!(received.load(Relaxed), 1_000_000);
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.spawned, snapshot.ended), (1_000_002, 1_000_002));
    assert_eq!(snapshot.messages_sent, 2_000_000 - u64::from(refused), "sent = all - returned");
    assert_eq!(snapshot.messages_sent, snapshot.messages_received + snapshot.messages_discarded);
}

#[test]
fn late_sends_never_reach_a_stranger() {
    // A small table, so that slots are reused immediately, and senders that hold only PIDs.
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_processes(64)
        .build()
        .expect("the system has threads");
    let pids: Arc<Mutex<Vec<(u64, Pid)>>> = Arc::default();
    let stop = AtomicBool::new(false);
    crate::home::thread::scope(|scope| {
        for seed in 0..2 {
            let (pids, stop) = (&pids, &stop);
            scope.spawn(move || {
                let mut generator = fastrand::Rng::with_seed(seed);
                while !stop.load(Relaxed) {
                    let picked = {
                        let pids = pids.lock();
                        if pids.is_empty() {
                            None
                        } else {
                            Some(pids[generator.usize(0..pids.len())])
                        }
                    };
                    // Ignored: the race is about whether it has ended.
                    let _ = picked.map(|(number, pid)| procession::mailbox::send(pid, number));
                }
            });
        }
        let mut generator = fastrand::Rng::with_seed(3);
        for number in 0..20_000_u64 {
            let started = SpawnOptions::new().on(&scheduler).try_start(
                move |mut cx: Context<u64>| async move {
                    for _ in 0..2 {
                        if let Ok(message) = cx.try_recv() {
                            assert_eq!(message, number, "a message for another");
                        }
                        yield_now().await;
                    }
                },
            );
            let Ok(child) = started else {
                continue;
            };
            let mut pids = pids.lock();
            if pids.len() < 32 {
                pids.push((number, child.pid()));
            } else {
                let place = generator.usize(0..32);
                pids[place] = (number, child.pid());
            }
        }
        stop.store(true, Relaxed);
    });
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().panicked, 0, "a message reached a stranger");
}

#[test]
fn schedulers_reach_each_other_by_address_and_pid() {
    let (one, two) = (threaded(1), threaded(1));
    let echo = one.start(|mut cx: Context<(u32, procession::Address<u32>)>| async move {
        while let Some((number, reply)) = cx.recv().await {
            reply.send(number + 1).expect("it waits for it");
        }
    });
    let pid = echo.pid();
    let asked = two.start(move |mut cx: Context<u32>| async move {
        echo.send((1, cx.address())).expect("it lives");
        let by_address = cx.recv().await;
        procession::mailbox::send(pid, (10_u32, cx.address())).expect("it lives");
        (by_address, cx.recv().await)
    });
    assert_eq!(asked.join(), Ok((Some(2), Some(11))));
}

#[test]
fn run_until_idle_returns_what_each_process_waits_for() {
    let scheduler = driven();
    let _kept = [
        SpawnOptions::new()
            .on(&scheduler)
            .label("reader")
            .start(|mut cx: Context<()>| async move { cx.recv().await.is_some() }),
        SpawnOptions::new().on(&scheduler).label("both").start(|mut cx: Context<()>| async move {
            cx.recv_timeout(Duration::from_secs(1)).await.is_ok()
        }),
    ];
    let sleeper =
        SpawnOptions::new().on(&scheduler).label("sleeper").spawn(sleep(Duration::from_secs(2)));
    let _waiter = SpawnOptions::new().on(&scheduler).label("waiter").spawn(sleeper);
    let _lost = SpawnOptions::new().on(&scheduler).label("lost").spawn(pending::<()>());
    let told: Vec<_> = scheduler
        .run_until_idle()
        .into_iter()
        .map(|process| (process.label.unwrap_or_default(), process.waiting.to_string()))
        .collect();
    let told: Vec<_> =
        told.iter().map(|(label, waiting)| (label.as_str(), waiting.as_str())).collect();
    let expected = [
        ("reader", "message"),
        ("both", "message, timer"),
        ("sleeper", "timer"),
        ("waiter", "end of a process"),
        ("lost", "a waker"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn the_test_clock_stops_at_every_timer() {
    // With two workers, one may read the deadlines while the other sets an earlier timer and parks.
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .test_clock()
        .build()
        .expect("the system has threads");
    scheduler.block_on(async {
        let far = spawn(sleep(Duration::from_secs(1_000_000_000)));
        for round in 0..5000_u32 {
            let before = procession::time::Instant::now();
            let other = SpawnOptions::new().affinity(1).spawn(async move {
                for _ in 0..(round * 7 % 400) {
                    std::hint::spin_loop();
                }
                sleep(Duration::from_secs(1)).await;
            });
            assert_eq!(other.await, Ok(()));
            assert_eq!(
                procession::time::Instant::now() - before,
                Duration::from_secs(1),
                "round {round}"
            );
        }
        drop(far);
    });
}
