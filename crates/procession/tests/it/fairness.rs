//! No ready process waits forever, whatever keeps other processes ready beside it.
//!
//! Method: one worker. A future around the code of each process counts all steps. A test records
//! how many steps of others ran between the moment when a process became ready and its turn. It
//! compares that with the bound in the documentation of the worker.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::WhenFull;
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::scene::{driven, soon, threaded};

/// Number of dispatches between two looks at the oldest of a queue. This is the documented bound
/// for a process with nothing older before it.
const FAIRNESS: u64 = 61;

/// The number of steps so far, and the flag that stops the hogs.
#[derive(Clone, Default)]
struct Steps(Arc<(AtomicU64, AtomicBool)>);

impl Steps {
    fn made(&self) -> u64 {
        self.0.0.load(Relaxed)
    }

    fn note(&self) -> u64 {
        self.0.0.fetch_add(1, Relaxed)
    }

    /// Counts each step of `future`.
    async fn count<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|task| {
            self.note();
            future.as_mut().poll(task)
        })
        .await
    }

    fn stop(&self) {
        self.0.1.store(true, Relaxed);
    }

    fn go_on(&self) -> bool {
        // A bound far beyond all tested bounds, so that a starved process fails its test instead of
        // hanging.
        !self.0.1.load(Relaxed) && self.made() < 100_000
    }

    /// A process that spawns its successor, and so on, so that the deque always has something
    /// newer.
    fn flood(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let steps = self.clone();
        Box::pin(async move {
            steps.note();
            if steps.go_on() {
                drop(procession::spawn(steps.flood()));
            }
        })
    }

    /// A process that is always ready.
    async fn yields(self) {
        let steps = self.clone();
        self.count(async move {
            while steps.go_on() {
                yield_now().await;
            }
        })
        .await;
    }
}

/// The waits of processes: number, and steps of others.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<(usize, u64)>>>);

impl Waits {
    fn note(&self, who: usize, steps: u64) {
        self.0.lock().push((who, steps));
    }

    #[track_caller]
    fn assert_within(&self, count: usize, bound: impl Fn(usize) -> u64) {
        let waits = self.0.lock();
        assert_eq!(waits.len(), count, "all had their turn");
        for &(who, steps) in &*waits {
            assert!(
                steps <= bound(who),
                "number {who} had to wait for {steps} steps of others: {waits:?}"
            );
        }
    }
}

#[test]
fn old_processes_in_the_deque_run_beside_a_flood_of_new_ones() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..10 {
                let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move { waits.note(who, steps.note() - ready) }));
            }
            for _ in 0..3 {
                drop(procession::spawn(steps.flood()));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
}

#[test]
fn a_deque_that_overflows_keeps_the_bound() {
    // The flood is so broad that the old processes move to the global queue, before everything that
    // overflows later.
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..10 {
                let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move { waits.note(who, steps.note() - ready) }));
            }
            for _ in 0..1000 {
                drop(procession::spawn(steps.flood()));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
}

#[test]
fn a_process_that_yielded_runs_beside_a_flood_of_new_ones() {
    const TURNS: usize = 20;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            drop(procession::spawn(steps.flood()));
            for turn in 0..TURNS {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
        }
    });
    root.join().expect("it ends");
    waits.assert_within(TURNS, |_| FAIRNESS);
    let waited = waits.0.lock().iter().map(|wait| wait.1).sum::<u64>();
    assert!(waited > TURNS as u64, "the flood ran, too");
}

#[test]
fn the_global_queue_is_served_beside_hogs() {
    let hogs: [fn(Steps); 3] = [
        |steps| drop(procession::spawn(steps.flood())),
        |steps| drop(procession::spawn(steps.yields())),
        |steps| drop(SpawnOptions::new().affinity(0).spawn(steps.yields())),
    ];
    for hog in hogs {
        let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
        let root = scheduler.spawn({
            let (steps, waits, scheduler) = (steps.clone(), waits.clone(), scheduler.clone());
            async move {
                hog(steps.clone());
                hog(steps.clone());
                // Lets the hogs begin.
                yield_now().await;
                // A process that another thread spawns goes through the global queue.
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for who in 0..10 {
                            let (steps, waits, ready) =
                                (steps.clone(), waits.clone(), steps.made());
                            drop(
                                scheduler
                                    .spawn(async move { waits.note(who, steps.note() - ready) }),
                            );
                        }
                    });
                });
            }
        });
        root.join().expect("it ends");
        scheduler.run_until_idle();
        waits.assert_within(10, |who| FAIRNESS * (who as u64 + 1));
    }
}

/// Goal: a batch from outside runs in the order of age, whatever its first process spawns above it.
#[test]
fn the_oldest_of_a_batch_from_outside_does_not_run_last() {
    const BATCH: usize = 17;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits, scheduler) = (steps.clone(), waits.clone(), scheduler.clone());
        async move {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for who in 0..BATCH {
                        let (steps, waits, ready) = (steps.clone(), waits.clone(), steps.made());
                        drop(scheduler.spawn(async move {
                            if who == 0 {
                                drop(procession::spawn(steps.flood()));
                                drop(procession::spawn(steps.flood()));
                            }
                            waits.note(who, steps.note() - ready);
                        }));
                    }
                });
            });
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(BATCH, |who| FAIRNESS + 2 * (who as u64 + 1));
}

/// Goal: the same holds for what a thief takes. Method: two workers. The first is held in a step
/// until the second has a batch in its deque, and then steals half of it. The second is held in its
/// step until all stolen processes have run. The oldest one floods the thief.
#[test]
fn the_oldest_of_a_stolen_half_does_not_run_last() {
    const BATCH: usize = 32;
    const STOLEN: usize = BATCH / 2;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), threaded(2));
    let (enters, entered) = mpsc::channel();
    let (releases, released) = mpsc::channel::<()>();
    let thief = scheduler.spawn(async move {
        enters.send(()).expect("the test waits");
        soon(&released);
    });
    soon(&entered);
    let (tells, told) = mpsc::channel();
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..BATCH {
                let (steps, waits, tells) = (steps.clone(), waits.clone(), tells.clone());
                drop(procession::spawn(async move {
                    if who == 0 {
                        drop(procession::spawn(steps.flood()));
                        drop(procession::spawn(steps.flood()));
                    }
                    let made = steps.note();
                    if who < STOLEN {
                        waits.note(who, made);
                        tells.send(()).expect("the batch is waited for");
                    }
                }));
            }
            releases.send(()).expect("it waits");
            (0..STOLEN).for_each(|_| soon(&told));
            steps.stop();
        }
    });
    root.join().expect("it ends");
    thief.join().expect("it ends");
    waits.assert_within(STOLEN, |who| FAIRNESS + 4 * (who as u64 + 1));
}

#[test]
fn a_process_that_was_woken_runs_next_whatever_else_is_ready() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let woken = scheduler.start({
        let (steps, waits) = (steps.clone(), waits.clone());
        move |mut cx: Context<u64>| async move {
            for turn in 0..100 {
                let sent = cx.recv().await.expect("it is not cancelled");
                waits.note(turn, steps.note() - sent);
            }
            steps.stop();
        }
    });
    scheduler.run_until_idle();
    let address = woken.address().clone();
    let root = scheduler.spawn({
        let steps = steps.clone();
        async move {
            drop(procession::spawn(steps.flood()));
            drop(procession::spawn(steps.clone().yields()));
            drop(SpawnOptions::new().affinity(0).spawn(steps.clone().yields()));
            while steps.go_on() {
                // Ignored: the receiver ends before this process does.
                drop(address.send(steps.made()));
                yield_now().await;
            }
        }
    });
    root.join().expect("it ends");
    woken.join().expect("it ends");
    // Three steps, and a fairness tick.
    waits.assert_within(100, |_| 4);
}

#[test]
fn two_processes_that_wake_each_other_let_a_third_run() {
    const TURNS: usize = 100;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    // Each process receives a ball and sends it back.
    let [left, right] = [(); 2].map(|()| {
        let steps = steps.clone();
        scheduler.start(move |mut cx: Context<Pid>| {
            steps.clone().count(async move {
                while let Some(other) = cx.recv().await {
                    // Ignored: the other process may have ended first.
                    if !steps.go_on() || procession::mailbox::send(other, cx.pid()).is_err() {
                        break;
                    }
                }
            })
        })
    });
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        let (left, right) = (left.address().clone(), right.pid());
        async move {
            left.send(right).expect("it lives");
            for turn in 0..TURNS {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
            steps.made()
        }
    });
    let made = root.join().expect("it ends");
    assert!(made >= TURNS as u64, "the pair played on: {made} steps");
    // The pair's turn in the ring, and three more in the LIFO slot.
    waits.assert_within(TURNS, |_| 4);
    left.cancel();
    right.cancel();
}

#[test]
fn processes_that_yield_take_turns() {
    const PROCESSES: usize = 50;
    const TURNS: usize = 20;
    let scheduler = driven();
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let root = scheduler.spawn(async move {
        let turns = |who| {
            let order = Arc::clone(&noted);
            async move {
                for _ in 0..TURNS {
                    order.lock().push(who);
                    yield_now().await;
                }
            }
        };
        let handles: Vec<_> = (0..PROCESSES).map(|who| procession::spawn(turns(who))).collect();
        for handle in handles {
            handle.await.expect("it ends");
        }
    });
    root.join().expect("it ends");
    let order = order.lock();
    assert_eq!(order.len(), PROCESSES * TURNS);
    // Once all have begun, and until the first one ends, they come round in one order.
    for (turn, who) in order.iter().enumerate().take((TURNS - 2) * PROCESSES).skip(2 * PROCESSES) {
        assert_eq!(*who, order[turn + PROCESSES], "turn {turn}");
    }
}

#[test]
fn what_a_full_ring_has_put_off_comes_back_in_time() {
    const PROCESSES: usize = 1000;
    // Of four rounds, three begin with one process of the global queue, and one with 17.
    const BOUND: u64 = PROCESSES as u64 * 4 * FAIRNESS / 20;
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let root = scheduler.spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            for who in 0..PROCESSES {
                let (steps, waits, mut ready) = (steps.clone(), waits.clone(), steps.made());
                drop(procession::spawn(async move {
                    let mut longest = 0;
                    while steps.go_on() {
                        longest = longest.max(steps.note() - ready);
                        ready = steps.made();
                        yield_now().await;
                    }
                    // Also if the process ends because the others finished without it.
                    waits.note(who, longest.max(steps.made() - ready));
                }));
            }
        }
    });
    root.join().expect("it ends");
    scheduler.run_until_idle();
    waits.assert_within(PROCESSES, |_| BOUND);
}

#[test]
fn a_bound_process_that_is_always_ready_takes_every_other_turn() {
    let (steps, scheduler) = (Steps::default(), driven());
    let turns = Arc::new(AtomicU64::new(0));
    let bound = SpawnOptions::new().on(&scheduler).affinity(0).spawn(steps.clone().yields());
    let root = scheduler.spawn({
        let (turns, steps) = (Arc::clone(&turns), steps.clone());
        async move {
            for _ in 0..200 {
                let before = steps.made();
                yield_now().await;
                turns.fetch_max(steps.made() - before, Relaxed);
            }
            steps.stop();
        }
    });
    root.join().expect("it ends");
    bound.join().expect("it ends");
    assert_eq!(turns.load(Relaxed), 1, "turns of the bound one between two of another");
}

#[test]
fn a_bound_process_has_its_turn_beside_a_flood() {
    let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
    let bound = SpawnOptions::new().on(&scheduler).affinity(0).spawn({
        let (steps, waits) = (steps.clone(), waits.clone());
        async move {
            drop(procession::spawn(steps.flood()));
            drop(procession::spawn(steps.clone().yields()));
            for turn in 0..100 {
                let ready = steps.made();
                yield_now().await;
                waits.note(turn, steps.made() - ready);
            }
            steps.stop();
        }
    });
    bound.join().expect("it ends");
    // The same bound as for every process that continues.
    waits.assert_within(100, |_| FAIRNESS + 4);
}

#[test]
fn a_backlog_of_messages_is_received_in_portions() {
    const MESSAGES: u64 = 10_000;
    let scheduler = driven();
    let received = Arc::new(AtomicU64::new(0));
    let child = scheduler.start({
        let received = Arc::clone(&received);
        move |mut cx: Context<()>| async move {
            while cx.recv().await.is_some() {
                received.fetch_add(1, Relaxed);
            }
        }
    });
    for _ in 0..MESSAGES {
        child.send(()).expect("it lives");
    }
    child.cancel();
    let other = scheduler.spawn({
        let received = Arc::clone(&received);
        async move {
            let mut most = 0;
            let mut before = received.load(Relaxed);
            while before < MESSAGES {
                yield_now().await;
                let now = received.load(Relaxed);
                most = most.max(now - before);
                before = now;
            }
            most
        }
    });
    let most = other.join().expect("it ends");
    assert!((1..=128).contains(&most), "{most} messages in one step, the budget is 128");
    child.join().expect("it ends");
}

#[test]
fn a_backlog_is_searched_and_what_was_skipped_received_in_portions() {
    const MESSAGES: u32 = 10_000;
    // As many looks as receives.
    const STEPS: u32 = 2 * MESSAGES / 128;
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let last = cx.recv_matching(|&n| n == MESSAGES).await;
        for n in 0..MESSAGES {
            assert_eq!(cx.recv().await, Some(n));
        }
        last
    });
    for n in 0..=MESSAGES {
        child.send(n).expect("it lives");
    }
    let address = child.address().clone();
    let other = scheduler.spawn(async move {
        let mut turns = 0;
        while address.is_alive() {
            turns += 1;
            yield_now().await;
        }
        turns
    });
    assert_eq!(child.join(), Ok(Some(MESSAGES)));
    let turns: u32 = other.join().expect("it ends");
    assert!(turns >= STEPS, "others had {turns} turns meanwhile, but the budget is 128");
}

#[test]
fn a_timer_fires_beside_a_process_that_is_always_ready() {
    for bound in [false, true] {
        let (steps, waits, scheduler) = (Steps::default(), Waits::default(), driven());
        let sleeper = scheduler.spawn({
            let (steps, waits) = (steps.clone(), waits.clone());
            async move {
                procession::sleep(Duration::from_secs(1)).await;
                waits.note(0, steps.made());
                steps.stop();
            }
        });
        scheduler.run_until_idle();
        let options = SpawnOptions::new().on(&scheduler);
        let options = if bound { options.affinity(0) } else { options };
        let hog = options.spawn({
            let scheduler = scheduler.clone();
            async move {
                scheduler.advance(Duration::from_secs(1));
                steps.yields().await;
            }
        });
        hog.join().expect("it ends");
        sleeper.join().expect("it ends");
        waits.assert_within(1, |_| FAIRNESS + 1);
    }
}

#[test]
fn a_machine_that_continues_for_ever_lets_others_run() {
    struct Restless(Steps);
    impl Process for Restless {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            _: &mut Events<()>,
            _: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
            self.0.note();
            Ok(if self.0.go_on() { Status::Continue } else { Status::Wait(WaitingFor::Messages) })
        }
    }
    let (steps, scheduler) = (Steps::default(), driven());
    let machine =
        scheduler.spawn_machine(Restless(steps.clone()), "", ()).expect("it accepts everything");
    let other = scheduler.spawn({
        let steps = steps.clone();
        async move {
            for _ in 0..100 {
                yield_now().await;
            }
            steps.stop();
            steps.made()
        }
    });
    let made = other.join().expect("it ends");
    assert!((50..=200).contains(&made), "{made} steps beside 100");
    drop(machine);
}

#[test]
fn a_block_on_future_and_processes_take_turns() {
    let (steps, scheduler) = (Steps::default(), driven());
    let hog = scheduler.spawn(steps.clone().yields());
    // The block-on future's own turn comes between two dispatches.
    let most = scheduler.block_on(async {
        let mut most = 0;
        for _ in 0..100 {
            let before = steps.made();
            yield_now().await;
            most = most.max(steps.made() - before);
        }
        most
    });
    assert_eq!(most, 1);
    steps.stop();
    hog.join().expect("it ends");
}

#[test]
fn what_is_queued_behind_a_long_step_is_run_by_others() {
    let scheduler: Scheduler = threaded(2);
    for _ in 0..100 {
        // The step ends only after the process that it spawned has run, and the one that this
        // spawned, too.
        let long = scheduler.spawn(async {
            let (tell, told) = mpsc::channel();
            drop(procession::spawn(async move {
                drop(procession::spawn(async move { tell.send(()) }));
            }));
            soon(&told);
        });
        assert_eq!(long.join(), Ok(()));
    }
}

#[test]
fn what_has_yielded_is_run_by_others_during_a_long_step() {
    let scheduler = threaded(2);
    for _ in 0..100 {
        let (tell, told) = mpsc::channel();
        let handles = scheduler.block_on(async {
            procession::spawn(async move {
                let yields = procession::spawn(async move {
                    for _ in 0..10 {
                        yield_now().await;
                    }
                    tell.send(()).expect("the other waits");
                });
                let waits = procession::spawn(async move {
                    yield_now().await;
                    soon(&told);
                });
                [yields, waits]
            })
            .await
        });
        for handle in handles.expect("it ends") {
            assert_eq!(handle.join(), Ok(()));
        }
    }
}

#[test]
fn a_process_that_awaits_what_is_there_already_yields() {
    const HANDLES: usize = 1000;
    let scheduler = driven();
    let finished: Vec<_> = (0..HANDLES).map(|n| scheduler.spawn(async move { n })).collect();
    scheduler.run_until_idle();
    let awaited = Arc::new(AtomicU64::new(0));
    let awaits = scheduler.spawn({
        let awaited = Arc::clone(&awaited);
        async move {
            for (n, handle) in finished.into_iter().enumerate() {
                assert_eq!(handle.await, Ok(n));
                awaited.fetch_add(1, Relaxed);
            }
        }
    });
    let other = scheduler.spawn({
        async move {
            let mut most = 0;
            let mut before = awaited.load(Relaxed);
            while before < HANDLES as u64 {
                yield_now().await;
                let now = awaited.load(Relaxed);
                most = most.max(now - before);
                before = now;
            }
            most
        }
    });
    let most = other.join().expect("it ends");
    assert!(most <= 128, "{most} in one step, the budget is 128");
    awaits.join().expect("it ends");
}

#[test]
fn what_a_caller_leaves_in_its_lifo_slot_is_run_by_others() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    for _ in 0..100 {
        let (tell, told) = mpsc::channel();
        let woken = scheduler.start(move |mut cx: Context<()>| async move {
            cx.recv().await;
            tell.send(()).expect("the test waits");
        });
        scheduler.run_until_idle();
        let address = woken.address().clone();
        // This thread runs it, and leaves as soon as it has ended.
        let wakes = SpawnOptions::new()
            .on(&scheduler)
            .affinity(0)
            .spawn(async move { address.send(()).is_ok() });
        assert_eq!(wakes.join(), Ok(true));
        soon(&told);
    }
}

/// Goal: exit signals, which need no room in a bounded mailbox, cannot keep a process from its
/// steps or from its messages. Method: threads send them until the process has had several steps
/// with them.
#[test]
fn a_flood_of_signals_leaves_a_process_its_steps() {
    const STEPS: u32 = 20;
    struct Trapping {
        trapping: bool,
        steps: u32,
        tells: mpsc::Sender<()>,
    }
    impl Process for Trapping {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            events: &mut Events<()>,
            yields: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
            if !self.trapping {
                yields.trap_exits(true);
                self.trapping = true;
                self.tells.send(())?;
            }
            self.steps += u32::from(events.len() > 0);
            if self.steps == STEPS {
                self.tells.send(())?;
                return Ok(Status::Done(()));
            }
            Ok(Status::Wait(WaitingFor::Messages))
        }
    }
    let scheduler = threaded(1);
    let options = SpawnOptions::new().on(&scheduler).mailbox(4, WhenFull::Reject);
    let (tells, told) = mpsc::channel();
    let machine = options.spawn_machine(Trapping { trapping: false, steps: 0, tells }, "", ());
    let machine = machine.expect("it accepts");
    // The first signal before it traps exits would end it.
    soon(&told);
    flood_until(machine.pid(), || soon(&told));
}

#[test]
fn a_flood_of_signals_leaves_a_process_its_messages() {
    const MESSAGES: u32 = 4;
    let scheduler = threaded(1);
    let options = SpawnOptions::new().on(&scheduler).mailbox(MESSAGES, WhenFull::Wait);
    let (tells, told) = mpsc::channel();
    let receiver = options.start(move |mut cx: Context<u32>| async move {
        cx.trap_exits(true);
        tells.send(()).expect("the test waits");
        for n in 0..MESSAGES {
            assert_eq!(cx.recv().await, Some(n));
        }
        tells.send(()).expect("the test waits");
    });
    soon(&told);
    let address = receiver.address().clone();
    let beside = scheduler.spawn(async { yield_now().await });
    flood_until(receiver.pid(), || {
        // Another process has its turns meanwhile.
        beside.join().expect("it ends");
        (0..MESSAGES).for_each(|n| address.send(n).expect("there is room"));
        soon(&told);
    });
    receiver.join().expect("it ends");
}

/// Sends exit signals from several threads until `wait` returns.
fn flood_until(pid: Pid, wait: impl FnOnce()) {
    /// Stops the threads even if the test fails. Otherwise the scope would wait for them.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    procession::relations::send_exit(pid, Exit::Shutdown);
                }
            });
        }
        wait();
    });
}
