//! The scheduler's bounds in time, and equal shares (`scheduler/worker.rs`, *Bounds*).
//!
//! Method: one worker on the test clock. Every step of a hog moves the clock by its duration, as a
//! computing step would. So each delay is exact and the same in every run.

mod busy;
mod shares;

use crate::home::thread;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procession::time::Instant;
use procession::{Address, Context, Scheduler, SpawnOptions, sleep, spawn, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32};

use crate::scene::driven;

const MS: Duration = Duration::from_millis(1);

/// Durations of steps, each below the threshold at which the watchdog calls a step stalled.
const STEPS: [Duration; 4] =
    [Duration::from_micros(20), Duration::from_micros(100), MS, Duration::from_millis(9)];

const HOGS: [u32; 4] = [1, 2, 4, 50];

/// Number of measurements of each delay.
const ROUNDS: u32 = 60;

const NO_TIME: Duration = Duration::ZERO;

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
