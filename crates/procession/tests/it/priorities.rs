//! Priorities: which process runs first, the bounds in both directions, and the limit for batch
//! processes.
//!
//! Method: one worker on the test clock, and processes that record their turns, so that the order
//! is the same in every run. The limit for batch processes needs threads; its tests count how many
//! steps run at the same time.

mod lending;

use std::error::Error;
use std::sync::Arc;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::pool::{Pool, PoolError};
use procession::process::{Priority, current_pid, priority, set_priority};
use procession::{Context, JoinHandle, Scheduler, SpawnOptions, blocking, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::home::mpsc::channel;
use crate::home::{Barrier, others_may_run};
use crate::scene::{alone, assert_conserved, driven, threaded};

/// The turns of processes, in their order.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<Vec<Priority>>>);

impl Turns {
    fn note(&self, priority: Priority) {
        self.0.lock().push(priority);
    }

    /// Starts a process that has this many turns in a row, each at the end of its queue.
    fn takes(&self, scheduler: &Scheduler, priority: Priority, turns: u32) -> JoinHandle<()> {
        let this = self.clone();
        SpawnOptions::new().on(scheduler).priority(priority).spawn(async move {
            for _ in 0..turns {
                this.note(priority);
                yield_now().await;
            }
        })
    }

    /// Returns the greatest number of turns of others before a turn of this priority.
    fn longest_wait(&self, priority: Priority) -> usize {
        let turns = self.0.lock();
        let last = turns.iter().rposition(|&turn| turn == priority).expect("it had a turn");
        turns[..last].split(|&turn| turn == priority).map(<[_]>::len).max().unwrap_or_default()
    }
}

#[test]
fn high_runs_first_and_no_level_starves() {
    let scheduler = driven();
    let turns = Turns::default();
    for priority in Priority::ALL {
        // Of each priority, some wait at any time while the first 200 turns pass.
        drop([(); 3].map(|()| turns.takes(&scheduler, priority, 400)));
    }
    scheduler.run_until_idle();
    let order = turns.0.lock().clone();
    assert_eq!(order.len(), 3 * 3 * 400);
    assert_eq!(order[..8], [Priority::High; 8], "they run first");
    assert_eq!(order[8], Priority::Normal, "at most 8 in a row");
    assert!(turns.longest_wait(Priority::Normal) <= 9, "8 of high, and perhaps one of batch");
    assert!(turns.longest_wait(Priority::Batch) <= 63);
    let ends = |priority| order.iter().rposition(|&turn| turn == priority);
    assert!(ends(Priority::High) < ends(Priority::Normal));
    assert!(ends(Priority::Normal) < ends(Priority::Batch));
    assert_conserved(&scheduler);
}

#[test]
fn many_high_processes_overtake_one_of_each_other_priority_within_the_bounds() {
    let scheduler = driven();
    let turns = Turns::default();
    for _ in 0..10_000 {
        drop(turns.takes(&scheduler, Priority::High, 1));
    }
    drop(turns.takes(&scheduler, Priority::Normal, 1));
    drop(turns.takes(&scheduler, Priority::Batch, 1));
    scheduler.run_until_idle();
    let at = |priority| turns.0.lock().iter().position(|&turn| turn == priority).expect("it ran");
    assert!(at(Priority::Normal) <= 9, "{}", at(Priority::Normal));
    assert!(at(Priority::Batch) <= 63, "{}", at(Priority::Batch));
}

/// Changes the priority of a queued process, beside a high and a normal process. Returns the order
/// of their turns, with the changed process as a batch process.
fn order_after(changes: &[Priority]) -> Vec<Priority> {
    let scheduler = driven();
    let turns = Turns::default();
    let first = turns.takes(&scheduler, Priority::Batch, 1);
    drop(turns.takes(&scheduler, Priority::High, 1));
    drop(turns.takes(&scheduler, Priority::Normal, 1));
    for &priority in changes {
        assert!(first.set_priority(priority));
        assert_eq!(procession::process::priority(first.pid()), Some(priority));
    }
    scheduler.run_until_idle();
    assert!(!first.set_priority(Priority::High), "it has ended");
    assert_conserved(&scheduler);
    turns.0.lock().clone()
}

#[test]
fn a_queued_process_moves_to_its_new_level() {
    use Priority::{Batch, High, Normal};
    assert_eq!(order_after(&[High, Batch, High]), [High, Batch, Normal]);
    assert_eq!(order_after(&[High, Batch]), [High, Normal, Batch]);
    // It has its present turn as a normal process once it has been one.
    assert_eq!(order_after(&[Normal, High, Batch, High]), [High, Normal, Batch]);
}

/// A machine that waits for a message, and ends with its priority.
struct Waits;

impl Process for Waits {
    type Input = ();
    type Message = ();
    type Output = Option<Priority>;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Self::Output>, Box<dyn Error + Send + Sync>> {
        Ok(match events.next() {
            None => Status::Wait(WaitingFor::Messages),
            Some(_) => Status::Done(priority(yields.pid())),
        })
    }
}

#[test]
fn a_slot_that_is_used_again_has_no_priority() {
    let scheduler = driven();
    let high = SpawnOptions::new().on(&scheduler).priority(Priority::High).spawn(async {});
    scheduler.run_until_idle();
    let before = high.pid();
    assert_eq!(priority(before), None);
    drop(high);
    let own = || async { priority(current_pid().expect("it is a process")) };
    let child = SpawnOptions::new().on(&scheduler).priority(Priority::High).spawn(async move {
        let own_first = own().await;
        let child = procession::spawn(own()).await;
        set_priority(current_pid().expect("it is a process"), Priority::Batch);
        yield_now().await;
        (own_first, child, own().await)
    });
    let expected = (Some(Priority::High), Ok(Some(Priority::Normal)), Some(Priority::Batch));
    assert_eq!(child.join(), Ok(expected), "nothing is inherited");
}

/// Returns a scheduler with coroutines.
fn with_coroutines(width: usize, max_batch: usize) -> Scheduler {
    #[expect(unsafe_code, reason = "coroutines are tested here")]
    // SAFETY: nothing here keeps a reference to a thread-local across a suspension.
    let builder = unsafe { alone().enable_coroutines() };
    builder.worker_threads(width).max_batch(max_batch).build().expect("the system has threads")
}

#[test]
fn every_kind_of_process_has_priorities() {
    let scheduler = with_coroutines(2, 1);
    for level in Priority::ALL {
        let options = || SpawnOptions::new().on(&scheduler).priority(level);
        let machine = options().try_start_machine(Waits, "", ()).expect("it starts");
        let asyncs = options().start(|mut cx: Context<()>| async move {
            cx.recv().await;
            priority(cx.pid())
        });
        let coroutine =
            options().try_start_coroutine(|mut cx: procession::coroutine::Context<()>| {
                for _ in 0..100 {
                    procession::coroutine::yield_now();
                }
                cx.recv();
                priority(cx.pid())
            });
        let coroutine = coroutine.expect("they are enabled");
        let local = options().spawn_local(|| async {
            for _ in 0..100 {
                yield_now().await;
            }
            priority(current_pid().expect("it is a process"))
        });
        let placed = options().affinity(1).spawn(async {
            yield_now().await;
            priority(current_pid().expect("it is a process"))
        });
        for address in [machine.address(), asyncs.address(), coroutine.address()] {
            address.send(()).expect("it waits for it");
        }
        for ended in [machine.join(), asyncs.join(), coroutine.join(), local.join(), placed.join()]
        {
            assert_eq!(ended, Ok(Some(level)));
        }
    }
    assert_conserved(&scheduler);
}

/// Counts how many steps run at the same time.
#[derive(Default)]
struct Together {
    now: AtomicU32,
    most: AtomicU32,
}

impl Together {
    fn step(&self) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
        self.now.fetch_sub(1, SeqCst);
    }
}

/// Runs steps of more batch processes than there are workers, and returns how many ran at the same
/// time. Every second one stays on its worker.
fn most_together(scheduler: &Scheduler) -> u32 {
    let together = Arc::new(Together::default());
    let batch = |number: u32| {
        let together = Arc::clone(&together);
        let options = SpawnOptions::new().on(scheduler).priority(Priority::Batch);
        let options = if number.is_multiple_of(2) { options } else { options.affinity(number % 4) };
        options.spawn(async move {
            for _ in 0..300 {
                together.step();
                yield_now().await;
            }
        })
    };
    let all: Vec<_> = (0..8).map(batch).collect();
    // Others come and go meanwhile.
    for _ in 0..100 {
        scheduler.spawn(async {}).join().expect("it ends");
    }
    all.into_iter().for_each(|process| process.join().expect("it ends"));
    together.most.load(Relaxed)
}

#[test]
fn batch_processes_leave_a_worker_to_others() {
    // Without a watchdog, which takes the permit of a worker that the system does not let run.
    let build = |max_batch: Option<usize>| {
        let builder = alone().worker_threads(4).watchdog(false);
        let builder = match max_batch {
            Some(most) => builder.max_batch(most),
            None => builder,
        };
        builder.build().expect("the system has threads")
    };
    assert!(most_together(&build(None)) <= 3, "one of four is for others");
    assert_eq!(most_together(&build(Some(1))), 1);
    assert!(most_together(&build(Some(2))) <= 2);
}

/// Two workers run batch processes without pause, and a third one finds nothing that it may run.
#[test]
fn a_smaller_width_leaves_a_worker_to_others() {
    let scheduler = alone().worker_threads(3).watchdog(false).build().expect("it builds");
    let over = Arc::new(AtomicU32::new(0));
    let batch = || {
        let over = Arc::clone(&over);
        SpawnOptions::new().on(&scheduler).priority(Priority::Batch).spawn(async move {
            while over.load(Relaxed) == 0 {
                yield_now().await;
            }
        })
    };
    let all = [(); 4].map(|()| batch());
    let workers = || scheduler.snapshot().levels.batch_workers;
    while workers() < 2 {
        others_may_run();
    }
    scheduler.set_worker_threads(2).expect("it is in range");
    for _ in 0..100 {
        assert!(workers() <= 1, "one of two is for others");
        scheduler.spawn(async {}).join().expect("it ends");
    }
    over.store(1, Relaxed);
    all.into_iter().for_each(|process| process.join().expect("it ends"));
}

/// The only permit is held by a process that blocks without saying so, until another batch process
/// has run.
#[test]
fn a_batch_process_that_blocks_undeclared_lets_another_run() {
    for width in [1, 2] {
        let scheduler = Scheduler::builder().worker_threads(width).max_batch(1).build();
        let scheduler = scheduler.expect("the system has threads");
        let batch = || SpawnOptions::new().on(&scheduler).priority(Priority::Batch);
        let (sender, receiver) = channel();
        let (begun, has_begun) = channel();
        let first = batch().spawn(async move {
            begun.send(()).expect("the test waits");
            receiver.recv()
        });
        has_begun.recv().expect("it begins");
        let second = batch().spawn(async move { sender.send(7) });
        assert_eq!((first.join(), second.join()), (Ok(Ok(7)), Ok(Ok(()))));
    }
}

#[test]
fn batch_processes_that_are_bound_and_others_alternate() {
    let scheduler = driven();
    let order: Arc<Mutex<Vec<bool>>> = Arc::default();
    let takes = |is_bound: bool| {
        let order = Arc::clone(&order);
        let options = SpawnOptions::new().on(&scheduler).priority(Priority::Batch);
        let options = if is_bound { options.affinity(0) } else { options };
        options.spawn(async move {
            for _ in 0..100 {
                order.lock().push(is_bound);
                yield_now().await;
            }
        })
    };
    drop([false, true].map(takes));
    scheduler.run_until_idle();
    let order = order.lock();
    for pair in order[..200].chunks(2) {
        assert_ne!(pair[0], pair[1], "each has every second turn");
    }
}

/// Worker 1 has the only permit. Worker 0 has a batch process of its own, and so gives up a turn.
#[test]
fn a_turn_of_batch_without_a_permit_goes_to_others() {
    let scheduler = alone().worker_threads(2).max_batch(1).watchdog(false).build();
    let scheduler = scheduler.expect("the system has threads");
    let own = |worker| SpawnOptions::new().on(&scheduler).affinity(worker);
    let (begun, has_begun) = channel();
    let (sender, receiver) = channel();
    let holder = own(1).priority(Priority::Batch).spawn(async move {
        begun.send(()).expect("the test waits");
        receiver.recv().expect("the test sends");
    });
    has_begun.recv().expect("it begins");
    let batch = own(0).priority(Priority::Batch).spawn(async {});
    let normal = own(0).spawn(async {
        let high = || {
            let options = SpawnOptions::new().affinity(0).priority(Priority::High);
            options.spawn(async {})
        };
        let (mut runs, mut waited) = (None, 0);
        for turn in 0..10_000 {
            if turn == 1000 {
                runs = Some(high());
            }
            waited += u32::from(runs.as_ref().is_some_and(|runs| !runs.is_finished()));
            yield_now().await;
        }
        waited
    });
    let waited = normal.join().expect("it ends");
    assert!(waited <= 2, "{waited} turns of a normal process before a high one");
    sender.send(()).expect("it waits");
    holder.join().and(batch.join()).expect("they end");
}

/// Worker 0 waits for the only permit, for a process of its own, when a step of another priority
/// blocks it. The step waits for a batch process that worker 1 can run.
#[test]
fn a_worker_that_is_blocked_keeps_no_place_for_a_permit() {
    let scheduler = alone().worker_threads(2).max_batch(1).build();
    let scheduler = scheduler.expect("the system has threads");
    let options = || SpawnOptions::new().on(&scheduler);
    let (begun, has_begun) = channel();
    let (sender, receiver) = channel();
    let is_over = Arc::new(AtomicU32::new(0));
    let may_end = Arc::clone(&is_over);
    let holder = options().affinity(1).priority(Priority::Batch).spawn(async move {
        begun.send(()).expect("the test waits");
        while may_end.load(SeqCst) == 0 {
            others_may_run();
        }
    });
    has_begun.recv().expect("it begins");
    let own = options().affinity(0).priority(Priority::Batch).spawn(async {});
    let other = options().priority(Priority::Batch).spawn(async move { sender.send(7) });
    let normal = options().affinity(0).spawn(async move {
        // Worker 0 has tried to get the permit meanwhile.
        for _ in 0..200 {
            yield_now().await;
        }
        is_over.store(1, SeqCst);
        receiver.recv()
    });
    assert_eq!((normal.join(), other.join()), (Ok(Ok(7)), Ok(Ok(()))));
    holder.join().and(own.join()).expect("they end");
}

#[test]
fn batch_processes_that_wait_for_one_another_in_blocking_sections_come_back() {
    let scheduler = with_coroutines(2, 1);
    for _ in 0..20 {
        let barrier = Arc::new(Barrier::new(3));
        let meets = [(); 3].map(|()| {
            let barrier = Arc::clone(&barrier);
            SpawnOptions::new().on(&scheduler).priority(Priority::Batch).spawn(async move {
                blocking(|| barrier.wait());
                yield_now().await;
            })
        });
        meets.into_iter().for_each(|process| process.join().expect("all have come"));
    }
    assert_conserved(&scheduler);
}

#[test]
fn priorities_change_while_others_run_the_processes() {
    let scheduler = threaded(3);
    let run = |number: u32| {
        SpawnOptions::new().on(&scheduler).spawn(async move {
            let mut turns = 0;
            while turns < 2000 + number {
                turns += 1;
                yield_now().await;
            }
            turns
        })
    };
    let all: Vec<_> = (0..20).map(run).collect();
    for round in 0..200 {
        for (number, process) in all.iter().enumerate() {
            process.set_priority(Priority::ALL[(round + number) % 3]);
        }
    }
    for (number, process) in all.into_iter().enumerate() {
        assert_eq!(process.join(), Ok(2000 + number as u32), "it is never lost");
    }
    assert_conserved(&scheduler);
}

#[test]
fn the_workers_of_a_pool_have_its_priority() {
    let scheduler = with_coroutines(2, 1);
    let own = || priority(current_pid().expect("it is a process"));
    let builder = || Pool::builder().on(&scheduler).worker_priority(Priority::Batch);
    let asyncs = builder().build_async().expect("it is in range");
    let functions = builder().build_async_function(move |()| async move { own() });
    let functions = functions.expect("it is in range");
    let coroutines = builder().build_coroutines().expect("they are enabled");
    let found = scheduler.block_on(async move {
        let first = asyncs.submit(async move { own() }).await.expect("it is open").await;
        let second = functions.submit(()).await.expect("it is open").await;
        let third = coroutines.submit(own).await.expect("it is open").await;
        [first.ok(), second.ok(), third.ok()]
    });
    assert_eq!(found, [Some(Some(Priority::Batch)); 3]);
    let threads = Pool::builder().worker_priority(Priority::High).build();
    assert!(matches!(threads, Err(PoolError::Unused { .. })));
}

/// A high process that a normal one starts, or wakes, is next, although others are always ready.
#[test]
fn a_high_process_that_becomes_ready_is_next() {
    let scheduler = driven();
    let turns = Turns::default();
    for _ in 0..3 {
        drop(turns.takes(&scheduler, Priority::Normal, 2000));
    }
    let (own, before) = (turns.clone(), Arc::new(Mutex::new(Vec::new())));
    let counts = Arc::clone(&before);
    scheduler.spawn(async move {
        for _ in 0..30 {
            let (own, counts) = (own.clone(), Arc::clone(&counts));
            let begun = own.0.lock().len();
            let options = SpawnOptions::new().priority(Priority::High);
            drop(options.spawn(async move { counts.lock().push(own.0.lock().len() - begun) }));
            // More than a worker dispatches between two looks.
            for _ in 0..30 {
                yield_now().await;
            }
        }
    });
    scheduler.run_until_idle();
    assert_eq!(*before.lock(), [0; 30], "the turns of others before it");
}

#[test]
fn snapshots_count_what_is_ready_by_priority() {
    let scheduler = driven();
    for (priority, count) in Priority::ALL.into_iter().zip(1..) {
        for _ in 0..count {
            drop(SpawnOptions::new().on(&scheduler).priority(priority).spawn(async {}));
        }
    }
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.levels.high, snapshot.levels.batch), (3, 1));
    assert_eq!(snapshot.levels.batch_workers, 0);
    let shown = |one| snapshot.processes.iter().filter(|row| row.priority == one).count();
    assert_eq!(Priority::ALL.map(shown), [1, 2, 3]);
}

#[test]
fn the_limit_is_between_1_and_the_width() {
    for (most, is_valid) in [(0, false), (1, true), (2, true), (3, false)] {
        let built = Scheduler::builder().worker_threads(2).max_batch(most).build();
        assert_eq!(built.is_ok(), is_valid, "{most}");
    }
}
