//! Equal processes get equal shares.

use crate::home::{mpsc, thread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use procession::sync::channel;
use procession::time::Instant;
use procession::{Context, Pid, Reply, SpawnOptions, spawn, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32};

use super::{MS, NO_TIME, Program};
use crate::scene::{TIMEOUT, driven, soon, unwatched};

/// Asserts that the hogs 0 to `count` get equal shares, within a tenth, over the longer of 100 ms
/// and 50 rounds.
#[track_caller]
fn assert_equal_shares(start: fn(&Program, u32)) {
    for step in [Duration::from_micros(100), MS] {
        for count in [2, 3, 9, 50] {
            let program = Program::new();
            let this = program.clone();
            program.run(async move {
                (0..count).for_each(|who| start(&this, who));
                // The hogs begin.
                while this.turns.lock().len() < count as usize {
                    this.scheduler.advance(step);
                    yield_now().await;
                }
                this.turns.lock().clear();
                let (mut rounds, until) = (0, Instant::now() + 100 * MS);
                while rounds < 50 || Instant::now() < until {
                    // The step of every process that continues moves the clock, and so does this
                    // one.
                    this.scheduler.advance(step);
                    rounds += 1;
                    yield_now().await;
                }
            });
            let turns = program.turns.lock();
            let mut shares: Vec<_> = turns.values().map(Vec::len).collect();
            shares.sort_unstable();
            let (least, most) = (shares[0], shares[shares.len() - 1]);
            // One turn more or less depends on when the measurement ended.
            assert!(
                most * 10 <= least * 11 + 40,
                "{count} with {step:?}: from {least} to {most}: {shares:?}"
            );
            assert_eq!(shares.len(), count as usize, "each had turns");
        }
    }
}

#[test]
fn processes_that_yield_get_equal_shares() {
    assert_equal_shares(|program, who| drop(spawn(program.hog(who, NO_TIME))));
}

#[test]
fn bound_and_other_processes_get_equal_shares() {
    assert_equal_shares(|program, who| {
        let hog = program.hog(who, NO_TIME);
        match who % 2 {
            0 => drop(spawn(hog)),
            _ => drop(SpawnOptions::new().affinity(0).spawn(hog)),
        }
    });
}

#[test]
fn pairs_that_exchange_messages_get_equal_shares() {
    assert_equal_shares(|program, who| {
        let [left, right] = [(); 2].map(|()| {
            let this = program.clone();
            program.scheduler.start(move |mut cx: Context<Pid>| async move {
                while let Some(other) = cx.recv().await {
                    this.turn(who, NO_TIME);
                    // Ignored: the other process may have ended first.
                    if !this.goes_on() || procession::mailbox::send(other, cx.pid()).is_err() {
                        break;
                    }
                }
            })
        });
        left.send(right.pid()).expect("it lives");
        // Ends the process that waits for the last message.
        drop((left, right));
    });
}

#[test]
fn pairs_of_caller_and_server_get_equal_shares() {
    assert_equal_shares(|program, who| {
        let server = program.scheduler.start(|mut cx: Context<Reply<()>>| async move {
            while let Some(reply) = cx.recv().await {
                reply.send(());
            }
        });
        let this = program.clone();
        drop(spawn(async move {
            while this.goes_on() {
                this.turn(who, NO_TIME);
                server.call(|reply| reply, Duration::from_secs(1000)).await.expect("it answers");
            }
            server.cancel();
        }));
    });
}

#[test]
fn pairs_over_rendezvous_channels_get_equal_shares() {
    assert_equal_shares(|program, who| {
        let (sender, receiver) = channel::bounded(0);
        let this = program.clone();
        drop(spawn(async move {
            while this.goes_on() && sender.send(()).await.is_ok() {
                this.turn(who, NO_TIME);
            }
        }));
        drop(spawn(async move { while receiver.recv().await.is_some() {} }));
    });
}

#[test]
fn more_that_yield_than_a_ring_holds_get_equal_shares() {
    for hogs in [1000, 1500, 3000] {
        for step in [NO_TIME, Duration::from_micros(20)] {
            let scheduler = driven();
            let made = Arc::new(AtomicU32::new(0));
            let turns: Arc<[AtomicU32]> = (0..hogs).map(|_| AtomicU32::new(0)).collect();
            for who in 0..hogs {
                let (that, made, turns) =
                    (scheduler.clone(), Arc::clone(&made), Arc::clone(&turns));
                drop(scheduler.spawn(async move {
                    let mut before = 0;
                    // Ten rounds that do not count, and then a hundred that do.
                    while before < 110 * hogs {
                        before = made.fetch_add(1, Relaxed);
                        turns[who as usize].fetch_add((before >= 10 * hogs).into(), Relaxed);
                        that.advance(step);
                        yield_now().await;
                    }
                }));
            }
            scheduler.run_until_idle();
            let turns = turns.iter().map(|turns| turns.load(Relaxed));
            let (least, most) = (
                turns.clone().min().expect("there are some"),
                turns.max().expect("there are some"),
            );
            assert!(
                most * 10 <= least * 11 + 40,
                "{hogs} with steps of {step:?}: from {least} to {most}"
            );
        }
    }
}

/// Goal: a worker that always has work takes over continued processes of another that has more.
/// Method: two workers that never park. A process on one of them spawns many processes, which are
/// all there at first.
#[test]
fn a_busy_worker_takes_over_from_one_that_has_more() {
    const PROCESSES: usize = 20;
    let (scheduler, over) = (unwatched(2), Arc::new(AtomicBool::new(false)));
    let hog = |over: Arc<AtomicBool>| async move {
        while !over.load(Relaxed) {
            yield_now().await;
        }
    };
    let busy: Vec<_> = (0..2)
        .map(|worker| {
            SpawnOptions::new().on(&scheduler).affinity(worker).spawn(hog(Arc::clone(&over)))
        })
        .collect();
    let (tells, told) = mpsc::channel();
    drop(scheduler.spawn({
        let over = Arc::clone(&over);
        async move {
            for who in 0..PROCESSES {
                let (tells, over) = (tells.clone(), Arc::clone(&over));
                drop(spawn(async move {
                    let mut last = None;
                    while !over.load(Relaxed) {
                        let here = thread::current().id();
                        if last.replace(here) != Some(here) {
                            tells.send((who, here)).expect("the test listens");
                        }
                        yield_now().await;
                    }
                }));
            }
        }
    }));
    // Both workers run several of the processes.
    let mut seen = BTreeMap::<_, BTreeSet<_>>::new();
    while seen.len() < 2 || seen.values().any(|processes| processes.len() < PROCESSES / 4) {
        let (who, place) = soon(&told);
        seen.entry(format!("{place:?}")).or_default().insert(who);
    }
    over.store(true, Relaxed);
    busy.into_iter().for_each(|hog| hog.join().expect("it ends"));
    scheduler.run_until_idle();
}

/// A process that computes until the test ends it.
#[derive(Default)]
struct Computes {
    /// The thread on which it ran last, and the number of times in a row.
    place: Mutex<(Option<thread::ThreadId>, u32)>,
    ends: AtomicBool,
}

impl Computes {
    async fn run(self: Arc<Self>) {
        while !self.ends.load(Relaxed) {
            {
                let mut place = self.place.lock();
                let (before, here) = (place.0, Some(thread::current().id()));
                *place = (here, if before == here { place.1 + 1 } else { 1 });
            }
            // Each worker is in a step nearly all of the time.
            let until = Instant::now() + 4 * MS;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            yield_now().await;
        }
    }

    fn place(&self) -> (Option<thread::ThreadId>, u32) {
        *self.place.lock()
    }
}

/// Goal: a difference of two processes is levelled, and then no process moves to and fro. Method:
/// two workers that never park, on which processes compute. All of them end, except `few` on one
/// worker and `more` on the other.
#[test]
fn a_difference_of_two_is_made_even() {
    const STAYS: u32 = 10;
    for (few, more) in [(1, 3), (1, 3), (2, 4), (3, 5)] {
        let scheduler = unwatched(2);
        let until = scheduler.now() + TIMEOUT;
        let all: Vec<_> =
            (0..2 * (few + more) + 8).map(|_| Arc::new(Computes::default())).collect();
        all.iter().for_each(|process| drop(scheduler.spawn(Arc::clone(process).run())));
        let on_first = |all: &[Arc<Computes>]| {
            all.iter().filter(|process| process.place().0 == all[0].place().0).count()
        };
        let is_even = |all: &[Arc<Computes>]| {
            all.iter().all(|process| process.place().1 >= STAYS)
                && on_first(all).abs_diff(all.len() - on_first(all)) <= 1
        };
        while !is_even(&all) {
            assert!(
                scheduler.now() < until,
                "{} of {} are on one worker",
                on_first(&all),
                all.len()
            );
            thread::yield_now();
        }
        let (first, mut left, mut kept) = (all[0].place().0, [few, more], Vec::new());
        for process in all {
            let left = &mut left[usize::from(process.place().0 != first)];
            if *left > 0 {
                *left -= 1;
                kept.push(process);
            } else {
                process.ends.store(true, Relaxed);
            }
        }
        assert_eq!(kept.len(), few + more);
        while !is_even(&kept) {
            assert!(
                scheduler.now() < until,
                "{few} and {more}: {} of {} are on one worker",
                on_first(&kept),
                kept.len()
            );
            thread::yield_now();
        }
        kept.iter().for_each(|process| process.ends.store(true, Relaxed));
        scheduler.run_until_idle();
    }
}
