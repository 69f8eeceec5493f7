//! The scheduler's bounds in time, and equal shares (`scheduler/worker.rs`, *Bounds*).
//!
//! Method: one worker on the test clock. Every step of a hog moves the clock by its duration, as a
//! computing step would. So each delay is exact and the same in every run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use procession::sync::channel;
use procession::time::Instant;
use procession::{Address, Context, Pid, Reply, Scheduler, SpawnOptions, sleep, spawn, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32};

use crate::scene::{PATIENCE, driven, soon, threaded};

const MS: Duration = Duration::from_millis(1);
/// Durations of steps, each below the threshold at which the watchdog calls a step stalled.
const STEPS: [Duration; 4] =
    [Duration::from_micros(20), Duration::from_micros(100), MS, Duration::from_millis(9)];
const HOGS: [u32; 4] = [1, 2, 4, 50];
/// Number of measurements of each delay.
const ROUNDS: u32 = 60;

type Process = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A program on the test clock.
#[derive(Clone)]
struct Program {
    scheduler: Scheduler,
    /// Later than the end of every test, so that a starved process fails its test instead of
    /// hanging.
    end: Instant,
    over: Arc<AtomicBool>,
    /// The times at which each of its hogs had its turns.
    turns: Arc<Mutex<BTreeMap<u32, Vec<Instant>>>>,
    /// The longest delay that was recorded.
    longest: Arc<Mutex<Duration>>,
}

impl Program {
    fn new() -> Self {
        Self::on(driven())
    }

    fn on(scheduler: Scheduler) -> Self {
        let end = scheduler.now() + Duration::from_secs(500);
        Self {
            scheduler,
            end,
            over: Arc::default(),
            turns: Arc::default(),
            longest: Arc::default(),
        }
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Relaxed) && self.scheduler.now() < self.end
    }

    /// Records the delay of something that was due at `due`.
    fn note_delay(&self, due: Instant) {
        let delay = self.scheduler.now() - due;
        let mut longest = self.longest.lock();
        *longest = delay.max(*longest);
    }

    /// Records a turn of the hog with this number.
    fn turn(&self, who: u32, step: Duration) {
        self.turns.lock().entry(who).or_default().push(self.scheduler.now());
        self.scheduler.advance(step);
    }

    /// Computes for `step` and yields, until the program ends.
    fn hog(&self, who: u32, step: Duration) -> Process {
        let this = self.clone();
        Box::pin(async move {
            while this.goes_on() {
                this.turn(who, step);
                yield_now().await;
            }
        })
    }

    /// Runs `main` until it ends, and then until everything else has ended, too.
    fn run(&self, main: impl Future<Output = ()> + Send + 'static) {
        let over = Arc::clone(&self.over);
        let main = self.scheduler.spawn(async move {
            main.await;
            over.store(true, Relaxed);
        });
        main.join().expect("it ends");
        self.scheduler.run_until_idle();
    }
}

/// Asserts that `main` records no delay above the bound for woken processes, beside all kinds of
/// hogs.
#[track_caller]
fn assert_woken_in_time<F>(main: impl Fn(Program, Duration) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for step in STEPS {
        for count in HOGS {
            let program = Program::new();
            let main = main(program.clone(), step);
            let hogs = program.clone();
            program.run(async move {
                (0..count).for_each(|who| drop(spawn(hogs.hog(who, step))));
                // The hogs begin, and the worker learns how long their steps are.
                sleep(10 * MS + 3 * count * step).await;
                main.await;
            });
            let longest = *program.longest.lock();
            assert!(longest <= 2 * step + MS, "beside {count} steps of {step:?}: {longest:?}");
            let turns = program.turns.lock();
            assert!(turns.len() == count as usize && turns[&0].len() > 5, "the hogs ran beside it");
        }
    }
}

#[test]
fn a_timer_is_served_in_time() {
    assert_woken_in_time(|program, _| async move {
        for _ in 0..ROUNDS {
            let due = Instant::now() + MS;
            sleep(MS).await;
            program.note_delay(due);
        }
    });
}

/// Calls `act` on another thread, in the middle of a step.
async fn in_the_middle_of_steps(program: &Program, step: Duration, act: impl Fn() + Sync) {
    for _ in 0..ROUNDS {
        program.scheduler.advance(step / 2);
        thread::scope(|scope| {
            scope.spawn(&act);
        });
        program.scheduler.advance(step / 2);
        yield_now().await;
    }
}

#[test]
fn a_process_spawned_from_outside_is_served_in_time() {
    assert_woken_in_time(|program, step| async move {
        in_the_middle_of_steps(&program, step, || {
            let (due, this) = (program.scheduler.now(), program.clone());
            drop(program.scheduler.spawn(async move { this.note_delay(due) }));
        })
        .await;
    });
}

#[test]
fn a_bound_process_that_is_spawned_from_outside_is_served_in_time() {
    assert_woken_in_time(|program, step| async move {
        in_the_middle_of_steps(&program, step, || {
            let (due, this) = (program.scheduler.now(), program.clone());
            drop(
                SpawnOptions::new()
                    .on(&program.scheduler)
                    .affinity(0)
                    .spawn(async move { this.note_delay(due) }),
            );
        })
        .await;
    });
}

/// A process that records the delay between the send and the receive of each message.
fn listener(program: &Program) -> Address<Instant> {
    let this = program.clone();
    let listener = program.scheduler.start(move |mut cx: Context<Instant>| async move {
        while let Some(due) = cx.recv().await {
            this.note_delay(due);
        }
    });
    listener.address().clone()
}

#[test]
fn a_message_from_outside_is_received_in_time() {
    assert_woken_in_time(|program, step| async move {
        let listener = listener(&program);
        sleep(MS + 3 * step).await;
        let now = || program.scheduler.now();
        in_the_middle_of_steps(&program, step, || listener.send(now()).expect("it listens")).await;
    });
}

#[test]
fn a_message_from_a_process_is_received_in_time() {
    assert_woken_in_time(|program, step| async move {
        let listeners = [listener(&program), listener(&program)];
        sleep(MS + 3 * step).await;
        for round in 0..ROUNDS {
            program.scheduler.advance(step / 2);
            // With two messages, one process is displaced from the LIFO slot.
            for listener in &listeners[..1 + (round % 2) as usize] {
                listener.send(program.scheduler.now()).expect("it listens");
            }
            program.scheduler.advance(step / 2);
            yield_now().await;
        }
    });
}

#[test]
fn a_descriptor_is_served_in_time() {
    assert_woken_in_time(|program, step| async move {
        let (mut near, far) = UnixStream::pair().expect("the system has sockets");
        let sent = Arc::new(Mutex::new(Instant::NEVER));
        let reader = spawn({
            let (this, sent) = (program.clone(), Arc::clone(&sent));
            async move {
                let far = procession::net::UnixStream::try_from(far).expect("it is registered");
                while far.read(&mut [0]).await.is_ok_and(|count| count == 1) {
                    this.note_delay(*sent.lock());
                }
            }
        });
        for _ in 0..ROUNDS {
            // The last byte is read by then.
            sleep(MS + 3 * step).await;
            program.scheduler.advance(step / 2);
            *sent.lock() = program.scheduler.now();
            near.write_all(b"x").expect("there is room");
            program.scheduler.advance(step / 2);
        }
        drop(near);
        reader.await.expect("it ends with its stream");
    });
}

#[test]
fn a_process_that_continues_has_its_turn_in_time() {
    for step in STEPS {
        for count in HOGS {
            let program = Program::new();
            let hogs = program.clone();
            program.run(async move {
                (0..count).for_each(|who| drop(spawn(hogs.hog(who, step))));
                sleep(60 * count * step + 100 * MS).await;
            });
            let turns = program.turns.lock();
            for (who, turns) in &*turns {
                let gaps = turns.windows(2).map(|pair| pair[1] - pair[0]);
                let longest = gaps.max().expect("it had several turns");
                assert!(
                    longest <= count * step + 2 * step + MS,
                    "{who} of {count}, {step:?}: {longest:?}"
                );
            }
            assert_eq!(turns.len(), count as usize, "each had turns");
        }
    }
}

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

const NO_TIME: Duration = Duration::ZERO;

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

/// The wait of each process, by its number in the order in which they became ready.
type Waits = Arc<Mutex<Vec<(u32, Duration)>>>;

/// Records that process `n` became ready at `due` and runs now, and computes.
fn note_wait(program: &Program, waits: &Waits, n: u32, due: Instant, step: Duration) {
    waits.lock().push((n, program.scheduler.now() - due));
    program.scheduler.advance(step);
}

/// Waits until `count` processes have run, and asserts that each waited only for those before it.
async fn assert_age_is_kept(waits: Waits, count: u32, step: Duration) {
    while waits.lock().len() < count as usize {
        sleep(10 * MS).await;
    }
    let waits = waits.lock();
    let late: Vec<_> =
        waits.iter().filter(|&&(n, wait)| wait > 2 * step + MS + 2 * step * n).collect();
    assert!(
        late.is_empty(),
        "{} of {count} with steps of {step:?} are late, first {:?}",
        late.len(),
        late[0]
    );
}

#[test]
fn many_from_outside_wait_for_none_but_those_before_them() {
    for step in [Duration::from_micros(10), Duration::from_micros(100), MS, 9 * MS] {
        for count in [100, 300, 1000, 5000] {
            let (program, waits) = (Program::new(), Waits::default());
            let this = program.clone();
            program.run(async move {
                (0..2).for_each(|who| drop(spawn(this.hog(who, step))));
                sleep(200 * MS).await;
                let spawn = |n| {
                    let (that, waits, due) =
                        (this.clone(), Arc::clone(&waits), this.scheduler.now());
                    drop(
                        this.scheduler.spawn(async move { note_wait(&that, &waits, n, due, step) }),
                    );
                };
                thread::scope(|scope| {
                    scope.spawn(|| (0..count).for_each(spawn));
                });
                assert_age_is_kept(waits, count, step).await;
            });
        }
    }
}

#[test]
fn many_sleepers_that_are_due_at_once_wait_for_none_but_those_before_them() {
    for (step, count) in [(MS, 200), (MS, 1000), (MS, 5000), (Duration::from_micros(100), 5000)] {
        let (program, waits) = (Program::new(), Waits::default());
        let this = program.clone();
        program.run(async move {
            let (due, armed) = (Instant::now() + 100 * MS, Arc::new(Mutex::new(0)));
            for _ in 0..count {
                let (this, waits, armed) = (this.clone(), Arc::clone(&waits), Arc::clone(&armed));
                drop(spawn(async move {
                    let n = {
                        let mut armed = armed.lock();
                        *armed += 1;
                        *armed - 1
                    };
                    sleep(due - Instant::now()).await;
                    note_wait(&this, &waits, n, due, step);
                }));
            }
            sleep(50 * MS).await;
            (0..2).for_each(|who| drop(spawn(this.hog(who, step))));
            assert_age_is_kept(waits, count, step).await;
        });
    }
}

#[test]
fn a_message_is_received_in_time_beside_more_that_continue_than_a_ring_holds() {
    for hogs in [500, 1100, 4000] {
        for step in [NO_TIME, Duration::from_micros(20)] {
            let program = Program::new();
            let (this, made) = (program.clone(), Arc::new(AtomicU32::new(0)));
            program.run(async move {
                let (that, counted) = (this.clone(), Arc::clone(&made));
                let listener =
                    this.scheduler.start(move |mut cx: Context<(Instant, u32)>| async move {
                        while let Some((due, before)) = cx.recv().await {
                            that.note_delay(due);
                            let waited = counted.load(Relaxed) - before;
                            assert!(
                                waited <= 2 * 61,
                                "it waited for {waited} dispatches beside {hogs}"
                            );
                        }
                    });
                // This process waits for messages from here on.
                yield_now().await;
                for _ in 0..hogs {
                    let (this, made) = (this.clone(), Arc::clone(&made));
                    drop(spawn(async move {
                        while this.goes_on() {
                            made.fetch_add(1, Relaxed);
                            this.scheduler.advance(step);
                            yield_now().await;
                        }
                    }));
                }
                for _ in 0..20 {
                    let message = (this.scheduler.now(), made.load(Relaxed));
                    thread::scope(|scope| {
                        scope.spawn(|| listener.send(message).expect("it listens"));
                    });
                    for _ in 0..10 {
                        yield_now().await;
                    }
                }
                listener.cancel();
                listener.await.expect("every message came in time");
            });
            let longest = *program.longest.lock();
            assert!(longest <= 2 * step + MS, "beside {hogs} steps of {step:?}: {longest:?}");
        }
    }
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
    let (scheduler, over) = (threaded(2), Arc::new(AtomicBool::new(false)));
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

/// Starts a process that yields until `over` is set. Returns after its first turn.
fn yields_until(
    over: &Arc<AtomicBool>,
    tells: &mpsc::Sender<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let (over, tells) = (Arc::clone(over), tells.clone());
    async move {
        tells.send(()).expect("the test waits");
        while !over.load(Relaxed) {
            yield_now().await;
        }
    }
}

/// Starts a process that reports when a message has come.
fn tells_of_message(scheduler: &Scheduler, tells: &mpsc::Sender<()>) -> Address<()> {
    let tells = tells.clone();
    let process = scheduler.start(move |mut cx: Context<()>| async move {
        cx.recv().await.expect("it is not cancelled");
        tells.send(()).expect("the test waits");
    });
    process.into_parts().0
}

#[test]
fn what_a_replaced_worker_wakes_and_leaves_behind_runs_beside_a_hog() {
    let scheduler = threaded(1);
    let over = Arc::new(AtomicBool::new(false));
    let ((begins, begun), (tells, told)) = (mpsc::channel(), mpsc::channel());
    let receivers: Vec<_> = (0..8).map(|_| tells_of_message(&scheduler, &tells)).collect();
    let hog = yields_until(&over, &begins);
    let blocks = scheduler.spawn(async move {
        drop(spawn(hog));
        // It runs once the watchdog has replaced this worker, and holds the only permit from then
        // on.
        begun.recv().expect("the hog tells");
        for receiver in &receivers {
            receiver.send(()).expect("it waits");
        }
    });
    (0..8).for_each(|_| soon(&told));
    over.store(true, Relaxed);
    blocks.join().expect("it ends");
}

#[test]
fn what_is_queued_behind_a_blocking_section_runs_beside_a_hog() {
    let scheduler = threaded(1);
    let over = Arc::new(AtomicBool::new(false));
    let ((begins, begun), (tells, told)) = (mpsc::channel(), mpsc::channel());
    let receivers: Vec<_> = (0..8).map(|_| tells_of_message(&scheduler, &tells)).collect();
    let hog = yields_until(&over, &begins);
    let hog = scheduler.start(|mut cx: Context<()>| async move {
        cx.recv().await.expect("it is not cancelled");
        hog.await;
    });
    let hog = hog.into_parts().0;
    let (leaves, left) = mpsc::channel::<()>();
    let blocks = scheduler.spawn(async move {
        // The hog is the oldest that waits, so another worker takes it first, with half of the
        // rest.
        hog.send(()).expect("it waits");
        for receiver in &receivers {
            receiver.send(()).expect("it waits");
        }
        procession::blocking(|| {
            begun.recv().expect("the hog tells");
            left.recv().expect("the test tells");
        });
    });
    (0..8).for_each(|_| soon(&told));
    over.store(true, Relaxed);
    leaves.send(()).expect("it waits");
    blocks.join().expect("it ends");
}

/// Starts processes that yield until `over` is set. Each reports once when it has run on a thread
/// other than `home`.
fn yield_away_from(
    home: thread::ThreadId,
    count: usize,
    over: &Arc<AtomicBool>,
    tells: &mpsc::Sender<usize>,
) {
    for who in 0..count {
        let (over, tells) = (Arc::clone(over), tells.clone());
        drop(spawn(async move {
            let mut told = false;
            while !over.load(Relaxed) {
                if thread::current().id() != home && !told {
                    told = true;
                    tells.send(who).expect("the test listens");
                }
                yield_now().await;
            }
        }));
    }
}

#[test]
fn what_a_caller_leaves_in_its_seat_has_turns_beside_a_worker_that_is_busy() {
    const PROCESSES: usize = 10;
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    let (over, (tells, told)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let home = thread::current().id();
    scheduler.block_on(async {
        yield_away_from(home, PROCESSES, &over, &tells);
        // Until the other worker has some of them, and the caller has others.
        while told.try_recv().is_err() {
            yield_now().await;
        }
    });
    // Each process reports once, and the first report was taken above.
    let seen: BTreeSet<_> = (1..PROCESSES).map(|_| soon(&told)).collect();
    assert_eq!(seen.len(), PROCESSES - 1);
    over.store(true, Relaxed);
    scheduler.block_on(async {});
    scheduler.run_until_idle();
}

/// Goal: the timers of a worker without a permit fire in time, although the only other worker is
/// never idle.
#[test]
fn a_timer_of_a_worker_in_a_blocking_section_is_served_in_time() {
    // The first two step durations do not count as slow.
    for step in [1, 10].map(Duration::from_micros).into_iter().chain(STEPS) {
        let builder = Scheduler::builder().worker_threads(1).max_threads(2).test_clock();
        let program = Program::on(builder.build().expect("it starts no thread yet"));
        let (this, (begins, begun)) = (program.clone(), mpsc::channel());
        program.run(async move {
            let (wakes, woken) = mpsc::channel();
            let that = this.clone();
            drop(spawn(async move {
                let due = Instant::now() + 100 * MS;
                sleep(100 * MS).await;
                that.note_delay(due);
                wakes.send(()).expect("it is waited for");
            }));
            // The process sets its timer on this worker.
            yield_now().await;
            let hog = this.hog(0, step);
            drop(spawn(async move {
                begins.send(()).expect("it is waited for");
                hog.await;
            }));
            procession::blocking(|| {
                // Another worker runs the hog from now on.
                soon(&begun);
                soon(&woken);
            });
        });
        let longest = *program.longest.lock();
        assert!(longest <= 2 * step + MS, "beside steps of {step:?}: {longest:?}");
    }
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
        let scheduler = threaded(2);
        let until = scheduler.now() + PATIENCE;
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
