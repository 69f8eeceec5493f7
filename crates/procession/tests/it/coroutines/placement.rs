//! Where coroutines begin and run, and what they share.

use crate::home::mpsc;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use procession::coroutine::wait;
use procession::scheduler::Builder;
use procession::sync::channel;
use procession::{JoinHandle, Scheduler, SpawnOptions, spawn};

use super::stacks::steps;
use super::{coroutine, enabled, this_thread, threaded};
use crate::scene::{SpreadBegins, assert_conserved, soon};

#[test]
fn a_coroutine_stays_on_the_thread_that_began_it() {
    let scheduler = threaded(3);
    let coroutines: Vec<_> = (0..30)
        .map(|_| {
            coroutine(&scheduler, |_| {
                // Neither this value nor a guard of std may go to another thread.
                let own = Rc::new(Cell::new(0));
                let before = this_thread();
                for round in 0..50 {
                    own.set(own.get() + 1);
                    match round % 3 {
                        0 => coroutine::yield_now(),
                        1 => coroutine::sleep(Duration::from_nanos(1)),
                        _ => wait(spawn(async {})).expect("it does not panic"),
                    }
                    assert_eq!(this_thread(), before);
                }
                own.get()
            })
        })
        .collect();
    for coroutine in coroutines {
        assert_eq!(coroutine.join(), Ok(50));
    }
}

#[test]
fn coroutines_are_spread_before_they_begin() {
    let scheduler = enabled(Scheduler::builder().worker_threads(2).watchdog(false));
    let (gate, open) = channel::bounded::<()>(0);
    let spread = Arc::new(SpreadBegins::default());
    let (begun, begins) = mpsc::channel();
    let notes = Arc::clone(&spread);
    let spawns = coroutine(&scheduler, move |_| {
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (open, begun, notes) = (open.clone(), begun.clone(), Arc::clone(&notes));
                SpawnOptions::new()
                    .try_start_coroutine(move |_: coroutine::Context<()>| {
                        notes.note();
                        begun.send(()).expect("the test waits");
                        wait(open.recv())
                    })
                    .expect("they are enabled")
            })
            .collect();
        all.into_iter().for_each(|child| assert_eq!(wait(child), Ok(None)));
    });
    (0..100).for_each(|_| soon(&begins));
    assert!(spread.is_spread(), "one of two workers has begun most of them");
    drop(gate);
    assert_eq!(spawns.join(), Ok(()));
}

/// Keeps one of two workers busy until the sender is dropped. No other thread takes its place.
fn half_busy(builder: Builder) -> (Scheduler, mpsc::Sender<()>, JoinHandle<bool>) {
    let scheduler = enabled(builder.worker_threads(2).max_threads(2));
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let blocks = scheduler.spawn(async move {
        ready.send(()).expect("the test waits");
        goes_on.recv().is_err()
    });
    soon(&is_ready);
    (scheduler, go_on, blocks)
}

#[test]
fn a_new_coroutine_is_left_to_others_for_a_while_only() {
    let (scheduler, go_on, blocks) = half_busy(Scheduler::builder());
    let turns = coroutine(&scheduler, |_| {
        let (begun, begins) = mpsc::channel();
        let other = SpawnOptions::new().try_start_coroutine(move |_: coroutine::Context<()>| {
            begun.send(this_thread()).is_ok()
        });
        let mut turns = 0;
        let thread = loop {
            match begins.try_recv() {
                Ok(thread) => break thread,
                Err(_) => turns += 1,
            }
            coroutine::yield_now();
        };
        assert_eq!(thread, this_thread(), "the only one");
        assert_eq!(wait(other.expect("they are enabled")), Ok(true));
        turns
    });
    let turns = turns.join().expect("it does not panic");
    assert!((10..=100).contains(&turns), "it was put off for {turns} turns");
    drop(go_on);
    assert_eq!(blocks.join(), Ok(true));
}

/// Goal: a coroutine chooses its worker when it begins, even if it has waited for its stack.
/// Method: two others have all stacks. One lets the other end, and is ready from then on.
#[test]
fn a_coroutine_that_is_handed_a_stack_is_left_to_others_for_a_while() {
    let (scheduler, go_on, blocks) = half_busy(Scheduler::builder().max_stacks(2));
    let (gate, open) = channel::bounded::<()>(0);
    let (go, goes) = channel::bounded::<()>(0);
    let (ready, is_ready) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    let notes = ready.clone();
    let ends = coroutine(&scheduler, move |_| {
        notes.send(()).expect("the test waits");
        wait(open.recv())
    });
    soon(&is_ready);
    let turns = coroutine(&scheduler, move |_| {
        ready.send(()).expect("the test waits");
        wait(goes.recv());
        drop(gate);
        let mut turns = 0;
        while begins.try_recv().is_err() {
            turns += 1;
            coroutine::yield_now();
        }
        turns
    });
    soon(&is_ready);
    let waits = coroutine(&scheduler, move |_| begun.send(()).is_ok());
    while steps(&scheduler, waits.pid()) == 0 {
        crate::home::thread::yield_now();
    }
    drop(go);
    let turns = turns.join().expect("it does not panic");
    assert!((10..=100).contains(&turns), "it was put off for {turns} turns");
    assert_eq!((ends.join(), waits.join()), (Ok(None), Ok(true)));
    drop(go_on);
    assert_eq!(blocks.join(), Ok(true));
}

#[test]
fn beyond_the_limit_of_stacks_coroutines_wait_before_they_begin() {
    for width in [1, 3] {
        let scheduler = enabled(Scheduler::builder().worker_threads(width).max_stacks(4));
        let children: Vec<_> = (0..200_u32)
            .map(|number| {
                coroutine(&scheduler, move |_| {
                    for _ in 0..3 {
                        coroutine::yield_now();
                    }
                    number
                })
            })
            .collect();
        let sum: u32 =
            children.into_iter().map(|child| child.join().expect("it does not panic")).sum();
        assert_eq!(sum, 199 * 100);
    }
    let scheduler = enabled(Scheduler::builder().worker_threads(1));
    let huge = SpawnOptions::new()
        .on(&scheduler)
        .stack_size(usize::MAX)
        .try_start_coroutine(|_: coroutine::Context<()>| ());
    let exit =
        huge.expect("it is refused when it begins").join().expect_err("nothing is that large");
    assert!(
        exit.to_string().starts_with("the process failed: no stack of 18446744073709551615 bytes"),
        "{exit}"
    );
}

/// Goal: the only stack comes back just as another coroutine finds none, and that coroutine gets
/// it. Method: pairs of coroutines on two workers, where nothing else would wake the one that
/// waits.
#[test]
fn a_coroutine_that_waits_for_the_last_stack_gets_it() {
    const PAIRS: u32 = 20_000;
    let scheduler = enabled(Scheduler::builder().worker_threads(2).max_stacks(1));
    let (ended, ends) = mpsc::channel();
    for _ in 0..PAIRS {
        for seat in 0..2 {
            let ended = ended.clone();
            let options = SpawnOptions::new().on(&scheduler).affinity(seat);
            let child = options.try_start_coroutine(move |_: coroutine::Context<()>| {
                ended.send(()).expect("the test listens")
            });
            drop(child.expect("coroutines are enabled"));
        }
        soon(&ends);
        soon(&ends);
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_stack_is_as_large_as_was_asked() {
    fn deep(levels: usize) -> usize {
        let frame = std::hint::black_box([levels as u8; 1024]);
        if levels == 0 { 0 } else { deep(levels - 1) + usize::from(frame[7] == levels as u8) }
    }
    let scheduler = threaded(1);
    let child = SpawnOptions::new()
        .on(&scheduler)
        .stack_size(8 << 20)
        .try_start_coroutine(|_: coroutine::Context<()>| deep(3000));
    assert_eq!(child.expect("they are enabled").join(), Ok(3000));
}

#[test]
fn migratable_coroutines_run_wherever_there_is_room() {
    let scheduler = threaded(3);
    let children: Vec<_> = (0..20)
        .map(|_| {
            let options = SpawnOptions::new().on(&scheduler);
            // SAFETY: nothing but numbers lives on its stack while it waits.
            let child = unsafe {
                options.try_start_migratable(|mut cx: coroutine::Context<u32>| {
                    let mut sum = 0;
                    while let Some(n) = cx.recv() {
                        sum += n;
                        coroutine::yield_now();
                    }
                    sum
                })
            };
            child.expect("they are enabled")
        })
        .collect();
    for child in &children {
        (1..=100).for_each(|n| child.send(n).expect("it receives"));
    }
    for child in children {
        while scheduler
            .snapshot()
            .processes
            .iter()
            .any(|other| other.pid == child.pid() && other.mailbox > 0)
        {
            crate::home::thread::yield_now();
        }
        child.cancel();
        assert!(child.join().is_ok_and(|sum| sum == 5050) || scheduler.snapshot().panicked == 0);
    }
}

#[test]
fn coroutines_async_processes_and_channels_mix_under_load() {
    let scheduler = threaded(3);
    let (sender, receiver) = channel::bounded(3);
    let producers: Vec<_> = (0..20_u64)
        .map(|from| {
            let sender = sender.clone();
            coroutine(&scheduler, move |_| {
                for n in 0..50 {
                    wait(sender.send(from * 50 + n)).expect("they receive");
                }
            })
        })
        .collect();
    drop(sender);
    let consumers: Vec<_> = (0..4)
        .map(|number| {
            let receiver = receiver.clone();
            if number % 2 == 0 {
                coroutine(&scheduler, move |_| {
                    std::iter::from_fn(|| wait(receiver.recv())).sum::<u64>()
                })
                .into_parts()
                .1
            } else {
                scheduler.spawn(async move {
                    let mut sum = 0;
                    while let Some(n) = receiver.recv().await {
                        sum += n;
                    }
                    sum
                })
            }
        })
        .collect();
    for producer in producers {
        assert_eq!(producer.join(), Ok(()));
    }
    let sum: u64 =
        consumers.into_iter().map(|consumer| consumer.join().expect("it does not panic")).sum();
    assert_eq!(sum, 999 * 500);
    assert_conserved(&scheduler);
}

#[test]
fn the_same_seed_makes_the_same_dispatches() {
    let run = || {
        let scheduler =
            enabled(Scheduler::builder().worker_threads(1).test_clock().seed(5).shuffled());
        scheduler.block_on(async {
            let (sender, receiver) = channel::unbounded();
            let children: Vec<_> = (0..20_u64)
                .map(|number| {
                    let sender = sender.clone();
                    SpawnOptions::new()
                        .try_start_coroutine(move |_: coroutine::Context<()>| {
                            for round in 0..5 {
                                coroutine::sleep(Duration::from_nanos(number % 3));
                                sender.try_send((number, round)).expect("it is unbounded");
                                coroutine::yield_now();
                            }
                        })
                        .expect("they are enabled")
                })
                .collect();
            for child in children {
                child.await.expect("it does not panic");
            }
            drop(sender);
            let mut trace = Vec::new();
            while let Some(step) = receiver.recv().await {
                trace.push(step);
            }
            trace
        })
    };
    assert_eq!(run(), run());
}
