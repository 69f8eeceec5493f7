//! Failures that were reported of other runtimes. `.ci/mutants` plants the defects that take the
//! defences away. Each workload has a test of its own, so that it meets its defect in every run.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::pool::{Pool, Queue};
use procession::sync::{Mutex, Semaphore, channel};
use procession::time::Instant;
use procession::{Context, Reply, Scheduler, SpawnOptions, start};
use procession_sim::Sim;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::check;
use super::cycles::wait_cycles;
use super::leaks::leaks;

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Longer than anything here takes once the faults are over.
const LONG: Duration = Duration::from_secs(10);

/// The default budget of a step.
const BUDGET: u64 = 128;

/// Returns a scheduler with one worker and no watchdog, or `None` if the system refuses a thread.
fn one_worker(sim: &Sim) -> Option<Scheduler> {
    sim.heal();
    Scheduler::builder().worker_threads(1).max_threads(1).build().ok()
}

/// Each receive of a process finds a message. Another process has the same worker.
async fn ready_loop(sim: Sim) {
    let Some(scheduler) = one_worker(&sim) else { return };
    let messages = BUDGET * sim.choose(2..6);
    let process = scheduler.spawn(async move {
        let had_turn = Arc::new(AtomicBool::new(false));
        let has_turn = Arc::clone(&had_turn);
        let other = procession::spawn(async move { has_turn.store(true, Relaxed) });
        let (sender, receiver) = channel::unbounded();
        for number in 0..messages {
            sender.try_send(number).expect("it is open");
        }
        for _ in 0..messages {
            receiver.recv().await;
        }
        let had_turn = had_turn.load(Relaxed);
        other.await.map(|()| had_turn)
    });
    sim.always("what is always ready lets others run", process.await == Ok(Ok(true)));
    scheduler.shutdown(LONG).await;
}

/// A process that has spent most of its budget waits for a lock, and after it another process.
async fn overtaken(sim: Sim) {
    let Some(scheduler) = one_worker(&sim) else { return };
    let spent = BUDGET - sim.choose(0..4);
    let process = scheduler.spawn(async move {
        let lock = Arc::new(Mutex::new(Vec::new()));
        let held = lock.lock().await;
        let in_line = |name| {
            let lock = Arc::clone(&lock);
            async move { lock.lock().await.push(name) }
        };
        let (first, second) = (in_line(1), in_line(2));
        let first = procession::spawn(async move {
            let none = Semaphore::new(0);
            (0..spent).for_each(|_| drop(none.try_acquire(1)));
            let second = procession::spawn(second);
            first.await;
            second.await
        });
        procession::sleep(MILLISECOND).await;
        drop(held);
        first.await.and_then(|second| second)?;
        Ok::<_, procession::Exit>(lock.lock().await.clone())
    });
    let line = process.await.and_then(|line| line);
    sim.always("a lock is handed over in the order of the calls", line == Ok(vec![1, 2]));
    scheduler.shutdown(LONG).await;
}

/// A process spends its budget in each step before it polls its timer.
async fn spent_budget(sim: Sim) {
    let Some(scheduler) = one_worker(&sim) else { return };
    let rounds = sim.choose(1..50);
    let process = scheduler.spawn(async move {
        let (none, begun) = (Semaphore::new(0), Instant::now());
        let mut timer = pin!(procession::sleep(MILLISECOND));
        let mut late = 0;
        poll_fn(|task| {
            if begun.elapsed() >= MILLISECOND {
                (0..=BUDGET).for_each(|_| drop(none.try_acquire(1)));
                late += 1;
            }
            match timer.as_mut().poll(task) {
                Poll::Pending if late > rounds => Poll::Ready(false),
                polled => polled.map(|()| true),
            }
        })
        .await
    });
    sim.always("a timer that has fired is seen", process.await == Ok(true));
    scheduler.shutdown(LONG).await;
}

/// Jobs of a pool wait for further jobs of the same pool.
async fn nested_jobs(sim: Sim) {
    sim.heal();
    let width = sim.choose(1..3) as usize;
    let pool = Pool::builder().capacity(width).queue(Queue::Unbounded).build_async();
    let pool = pool.expect("it is in range");
    let mut outer = Vec::new();
    for number in 0..4_u64 {
        let inside = pool.clone();
        let job = async move {
            let inner = inside.submit(async move { number }).await.ok()?;
            inner.await.ok()
        };
        let Ok(job) = pool.submit(job).await else {
            return sim.always("an open pool takes a job", false);
        };
        outer.push(job);
    }
    for (number, job) in (0..).zip(outer) {
        let ended = procession::timeout(LONG, job).await;
        sim.always("jobs that wait for jobs end", ended == Ok(Ok(Some(number))));
    }
    pool.close();
}

/// Processes yield without end beside a process that sleeps.
async fn yield_loop(sim: Sim) {
    let Some(scheduler) = one_worker(&sim) else { return };
    let (own, step) = (sim.clone(), 100 * MICROSECOND * sim.choose(1..4) as u32);
    let process = scheduler.spawn(async move {
        let is_over = Arc::new(AtomicBool::new(false));
        let yielding: Vec<_> = (0..2)
            .map(|_| {
                let (own, is_over) = (own.clone(), Arc::clone(&is_over));
                procession::spawn(async move {
                    for _ in 0..200 {
                        if is_over.load(Relaxed) {
                            break;
                        }
                        own.compute(step);
                        procession::yield_now().await;
                    }
                })
            })
            .collect();
        let begun = Instant::now();
        procession::sleep(MILLISECOND).await;
        let slept = begun.elapsed();
        is_over.store(true, Relaxed);
        for process in yielding {
            process.await?;
        }
        Ok::<_, procession::Exit>(slept)
    });
    let slept = process.await.and_then(|slept| slept).unwrap_or(LONG);
    // With a coarse clock it takes 9 ms. If a worker that runs processes does not look at its
    // timers, it takes until all turns have ended, 40 to 120 ms.
    sim.always("a timer is served beside what yields", slept < 20 * MILLISECOND);
    scheduler.shutdown(LONG).await;
}

/// Two processes call each other, and each waits for the other.
async fn call_circle(sim: Sim) {
    enum Message {
        Next(procession::Address<Message>),
        Ask(Reply<()>),
    }
    sim.heal();
    let patience = MILLISECOND * sim.choose(1..20) as u32;
    let asked = move |mut cx: Context<Message>| async move {
        let mut next = None;
        while let Some(message) = cx.recv().await {
            match message {
                Message::Next(address) => next = Some(address),
                Message::Ask(reply) => {
                    let Some(next) = &next else { return false };
                    let ended = next.call(Message::Ask, patience).await;
                    drop(reply);
                    return ended.is_err();
                }
            }
        }
        false
    };
    let (one, other) = (start(asked), start(asked));
    for (of, next) in [(&one, &other), (&other, &one)] {
        of.send(Message::Next(next.address().clone())).expect("it lives");
    }
    let begun = Instant::now();
    let answer = one.call(Message::Ask, LONG).await;
    sim.always("a circle of calls is no answer", answer.is_err());
    let is_in_time = begun.elapsed() < patience + 100 * MILLISECOND;
    sim.always("a circle of calls ends at its time limit", is_in_time);
    sim.always("each call of the circle fails", one.await == Ok(true) && other.await == Ok(true));
}

/// The mailbox of a process is never empty, while a message to itself is due.
async fn flooded_timer(sim: Sim) {
    let Some(scheduler) = one_worker(&sim) else { return };
    let (own, step) = (sim.clone(), 10 * MICROSECOND * sim.choose(4..8) as u32);
    let process = scheduler.start(move |mut cx: Context<bool>| async move {
        let address = cx.address().clone();
        let begun = Instant::now();
        address.send_after(MILLISECOND, true).expect("there is room for a timer");
        address.send(false).expect("it lives");
        for _ in 0..2000 {
            if cx.recv().await != Some(false) {
                break;
            }
            own.compute(step);
            address.send(false).expect("it lives");
        }
        begun.elapsed()
    });
    let late = process.await.unwrap_or(LONG);
    // With a budget of 128 messages a step ends after 10 ms. Without it, the step ends when the
    // process has handled all of its messages, after 80 to 140 ms.
    sim.always("a message is due beside a mailbox that is never empty", late < 40 * MILLISECOND);
    scheduler.shutdown(LONG).await;
}

/// A process waits for room in its own full mailbox.
async fn own_mailbox(sim: Sim) {
    sim.heal();
    let room = sim.choose(1..4) as u32;
    let options = SpawnOptions::new().mailbox(room, WhenFull::Wait);
    let process = options.start(move |cx: Context<u32>| async move {
        for number in 0..room {
            cx.address().send_wait(number).await.expect("there is room");
        }
        procession::timeout(LONG, cx.address().send_wait(room))
            .await
            .is_ok_and(|sent| sent.is_err())
    });
    sim.always("nobody waits for room that only it could make", process.await == Ok(true));
}

/// Each job of a full pool waits for a place in that pool.
async fn own_pool(sim: Sim) {
    sim.heal();
    let width = sim.choose(1..4) as usize;
    let pool = Pool::builder().capacity(width).queue(Queue::HandOff).build_async();
    let pool = pool.expect("it is in range");
    let mut jobs = Vec::new();
    for _ in 0..width {
        let inside = pool.clone();
        let job = async move {
            procession::sleep(MILLISECOND).await;
            procession::timeout(LONG, inside.submit(async {})).await.map(|inner| inner.is_err())
        };
        let Ok(job) = pool.submit(job).await else {
            return sim.always("a pool with a place takes a job", false);
        };
        jobs.push(job);
    }
    let mut refused = 0;
    for job in jobs {
        let Ok(Ok(is_refused)) = job.await else {
            return sim.always("no job waits forever for its own pool", false);
        };
        refused += u32::from(is_refused);
    }
    sim.always("the last wait is refused", refused > 0);
    pool.close();
}

/// A shutdown, beside a step that does not return.
async fn stuck_shutdown(sim: Sim) {
    sim.heal();
    // With a watchdog, because it fires the timers of a worker that is stuck.
    let scheduler = Scheduler::builder().worker_threads(1).max_threads(2).build();
    // The system may refuse the thread.
    let Ok(scheduler) = scheduler else { return };
    let (own, stuck) = (sim.clone(), LONG * sim.choose(3..9) as u32);
    scheduler.spawn(async move { own.block(stuck) }).detach();
    procession::sleep(MILLISECOND).await;
    let (begun, deadline) = (Instant::now(), MILLISECOND * sim.choose(1..1000) as u32);
    let unfinished = scheduler.shutdown(deadline).await;
    let took = begun.elapsed();
    sim.always("a shutdown reports the processes that have not ended", !unfinished.is_empty());
    sim.always("a shutdown ends at its deadline", took < deadline + 100 * MILLISECOND);
}

/// Runs a workload by the portfolio of strategies.
fn keeps_the_laws<P: Future<Output = ()> + 'static>(workload: fn(Sim) -> P) {
    match check(1).try_run(workload) {
        #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
        Ok(outcome) => println!("Portfolio: {} seeds passed", outcome.seeds),
        Err(report) => panic!("\nPortfolio: {report}"),
    }
}

macro_rules! end {
    ($($workload:ident,)*) => {
        $(
            mod $workload {
                #[test]
                fn ends() {
                    super::keeps_the_laws(super::$workload);
                }
            }
        )*
    };
}

end! {
    ready_loop,
    overtaken,
    spent_budget,
    nested_jobs,
    yield_loop,
    call_circle,
    flooded_timer,
    own_mailbox,
    own_pool,
    stuck_shutdown,
    wait_cycles,
    leaks,
}
