//! The same seed gives the same run: with one worker and the test clock, everything depends on the
//! program and the seed alone.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields,
};
use procession::mailbox::Event;
use procession::scheduler::Builder;
use procession::time::Instant;
use procession::{CallError, Context, Reply, Scheduler};
use procession_sync::Mutex;

use crate::scene::assert_conserved;

const ECHO: CommandId = CommandId::new(256);

/// The process that ran a step, and the time.
pub(crate) type Step = (String, Duration);

#[derive(Clone)]
pub(crate) struct Trace {
    steps: Arc<Mutex<Vec<Step>>>,
    begin: Instant,
}

impl Trace {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        Self { steps: Arc::default(), begin: scheduler.now() }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.lock().clone()
    }

    pub(crate) fn note(&self) {
        let pid =
            procession::process::current_pid().expect("a process notes its own steps").to_string();
        // Without the number of the scheduler, which differs in each run.
        let (_, slot_and_generation) = pid.split_once('.').expect("a PID has three numbers");
        let step = (slot_and_generation.to_owned(), Instant::now() - self.begin);
        self.steps.lock().push(step);
    }

    /// Records each step of `future`.
    pub(crate) async fn each<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|task| {
            self.note();
            future.as_mut().poll(task)
        })
        .await
    }
}

/// A machine that yields commands and sleeps by chance, a hundred times.
struct Machine {
    chance: fastrand::Rng,
    trace: Trace,
    rounds: u32,
    outstanding: usize,
}

impl Process for Machine {
    type Input = ();
    type Message = u64;
    type Output = u64;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u64>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u64>, Box<dyn Error + Send + Sync>> {
        self.trace.note();
        self.outstanding -=
            events.filter(|event| matches!(event, Event::Completion { .. })).count();
        self.rounds += 1;
        if self.rounds == 100 {
            return Ok(Status::Done(1));
        }
        for tag in 0..self.chance.u64(0..3) {
            self.outstanding += 1;
            match self.chance.bool() {
                true => yields.command(ECHO, tag, tag),
                false => yields.command(
                    CommandId::SLEEP,
                    tag,
                    Duration::from_nanos(self.chance.u64(..100)),
                ),
            }
        }
        Ok(if self.outstanding > 0 {
            Status::Wait(WaitingFor::Completions)
        } else {
            Status::Continue
        })
    }
}

enum Work {
    Add(u64),
    Ask(Reply<u64>),
}

/// A process that works, sleeps, yields and spawns by chance.
async fn worker(mut cx: Context<Work>, mut chance: fastrand::Rng, trace: Trace) -> u64 {
    let mut sum = 0;
    while let Some(work) = cx.recv().await {
        match work {
            Work::Add(n) => sum += n,
            Work::Ask(reply) => reply.send(sum),
        }
        match chance.u32(0..6) {
            0 => procession::yield_now().await,
            1 => procession::sleep(Duration::from_nanos(chance.u64(0..200))).await,
            2 => {
                let traced = trace.clone().each(async { procession::yield_now().await });
                procession::spawn(traced).await.expect("it ends");
            }
            _ => {}
        }
    }
    sum
}

/// Runs the traffic of one program, whatever the seed of its scheduler. All messages sent are
/// received.
pub(crate) async fn program(trace: Trace) -> u64 {
    let mut chance = fastrand::Rng::with_seed(42);
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let (chance, trace) = (chance.fork(), trace.clone());
            procession::start(move |cx| trace.clone().each(worker(cx, chance, trace)))
        })
        .collect();
    let machines: Vec<_> = (0..8)
        .map(|_| Machine { chance: chance.fork(), trace: trace.clone(), rounds: 0, outstanding: 0 })
        .map(|machine| {
            procession::SpawnOptions::new()
                .try_start_machine(machine, "", ())
                .expect("it accepts everything")
        })
        .collect();
    let mut sent = 0;
    for n in 0..500 {
        let worker = &workers[chance.usize(0..workers.len())];
        match chance.u32(0..8) {
            0 => procession::yield_now().await,
            1 => procession::sleep(Duration::from_nanos(chance.u64(0..50))).await,
            2 => {
                let timeout = Duration::from_nanos(chance.u64(0..300));
                // It may have taken too long, which depends on the seed.
                let _: Result<u64, CallError<Work>> = worker.call(Work::Ask, timeout).await;
            }
            _ => {
                sent += n;
                worker.send(Work::Add(n)).expect("it lives");
            }
        }
    }
    let mut received = 0;
    for worker in workers {
        worker.cancel();
        received += worker.await.expect("it ends");
    }
    for machine in machines {
        assert_eq!(machine.await, Ok(1));
    }
    assert_eq!(received, sent, "nothing is lost");
    sent
}

pub(crate) fn builder(seed: u64) -> Builder {
    Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .seed(seed)
        .handler(ECHO, |input: Value, completion: Completion| completion.complete(Ok(input)))
}

#[track_caller]
fn trace_of(builder: Builder) -> Vec<Step> {
    let scheduler = builder.build().expect("it starts no thread");
    let trace = Trace::new(&scheduler);
    let traced = trace.clone().each(program(trace.clone()));
    scheduler.spawn(traced).join().expect("it ends");
    assert_conserved(&scheduler);
    let snapshot = scheduler.snapshot();
    assert_eq!(
        snapshot.timers.armed,
        snapshot.timers.fired + snapshot.timers.cancelled + snapshot.timers.pending
    );
    let steps = trace.steps();
    assert_eq!(steps.len() as u64, snapshot.workers[0].dispatches, "each dispatch is in the trace");
    steps
}

#[track_caller]
fn assert_same(left: &[Step], right: &[Step], what: &str) {
    let first = left.iter().zip(right).position(|(left, right)| left != right);
    let context = first.map(|first| (first, &left[first], &right[first]));
    assert_eq!(context, None, "{what}: the first step that differs");
    assert_eq!(left.len(), right.len(), "{what}");
}

#[test]
fn seeded_runs_make_the_same_steps_at_the_same_times() {
    for seed in 0..5 {
        let plain = trace_of(builder(seed));
        assert!(plain.len() > 1000, "the program has some steps: {}", plain.len());
        assert!(plain.last().is_some_and(|last| last.1 > Duration::ZERO), "and the clock moves");
        assert_same(&plain, &trace_of(builder(seed)), "plain");
        let shuffled = trace_of(builder(seed).shuffled());
        assert_same(&shuffled, &trace_of(builder(seed).shuffled()), "shuffled");
    }
}

#[test]
fn seeded_runs_are_the_same_whatever_other_schedulers_do() {
    let alone = trace_of(builder(7).shuffled());
    let over = procession_sync::atomic::AtomicBool::new(false);
    crate::home::thread::scope(|scope| {
        let noise = crate::scene::threaded(2);
        let over = &over;
        scope.spawn(move || {
            while !over.load(procession_sync::atomic::Ordering::Relaxed) {
                assert_eq!(noise.spawn(async { procession::yield_now().await }).join(), Ok(()));
            }
        });
        let beside: Vec<_> =
            (0..2).map(|_| scope.spawn(|| trace_of(builder(7).shuffled()))).collect();
        for beside in beside {
            assert_same(&alone, &beside.join().expect("no panic"), "in another thread");
        }
        over.store(true, procession_sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn seeded_shuffling_tries_other_orders() {
    let traces: std::collections::BTreeSet<_> =
        (0..8).map(|seed| trace_of(builder(seed).shuffled())).collect();
    assert!(traces.len() >= 7, "{} different runs with 8 seeds", traces.len());
    assert!(!traces.contains(&trace_of(builder(0))), "and another than without shuffling");
}

#[test]
fn seeded_schedulers_tell_their_seed() {
    assert_eq!(builder(9).build().expect("it starts no thread").seed(), 9);
    assert_eq!(crate::scene::driven().seed(), 0, "that of a test clock, unless one is given");
    let drawn: std::collections::BTreeSet<_> =
        (0..4).map(|_| crate::scene::threaded(1).seed()).collect();
    assert!(drawn.len() > 1, "drawn anew for each: {drawn:?}");
}
