//! Failures that were reported of other runtimes. `.ci/mutants` plants the defects that take the
//! defences away. Each workload has a test of its own, so that it meets its defect in every run.
//!
//! The laws are about times, and about what has happened by a time. So they hold only where no
//! thread loses its turn between two operations of atomics, because that may take 5 ms at a time.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::observe::WaitCycle;
use procession::pool::{Pool, Queue};
use procession::sync::{Mutex, RwLock, Semaphore, channel, oneshot};
use procession::time::Instant;
use procession::{Context, JoinHandle, Pid, Reply, Scheduler, SpawnOptions, start};
use procession_sim::Sim;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::check;
use super::cycles::wait_cycles;
use super::leaks::leaks;

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Longer than anything here takes once the faults are over.
const LONG: Duration = Duration::from_secs(10);

/// Longer than a process that can run takes to run.
const SETTLED: Duration = Duration::from_millis(100);

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

/// Returns a scheduler that keeps its reports of cycles of waits, which it makes after a second.
fn reporting(sim: &Sim) -> Option<Scheduler> {
    sim.heal();
    let builder = Scheduler::builder().worker_threads(sim.choose(1..4) as usize);
    builder.wait_cycle_after(SECOND).on_wait_cycle(|_| {}).build().ok()
}

/// Returns the processes of each cycle of waits that was reported.
fn reported(scheduler: &Scheduler) -> Vec<Vec<Pid>> {
    let pids = |cycle: &WaitCycle| cycle.waits.iter().map(|wait| wait.pid).collect();
    scheduler.wait_cycles().iter().map(|cycle| pids(cycle)).collect()
}

/// A process keeps a future that waits for a lock, polls it no more, and waits for the same lock.
async fn futurelock(sim: Sim) {
    let Some(scheduler) = reporting(&sim) else { return };
    let lock = Arc::new(Mutex::new(()));
    let (guard, forgets) = (Arc::clone(&lock), sim.choose(0..3) > 0);
    let (release, released) = oneshot::channel::<()>();
    let holder = scheduler.spawn(async move {
        let _guard = guard.lock().await;
        let _ = released.await;
    });
    procession::sleep(SETTLED).await;
    let before = (0..sim.choose(0..3)).map(|_| {
        let lock = Arc::clone(&lock);
        scheduler.spawn(async move { drop(lock.lock().await) })
    });
    let before: Vec<_> = before.collect();
    procession::sleep(SETTLED).await;
    let waits = scheduler.spawn(async move {
        let mut forgotten = pin!(lock.lock());
        poll_fn(|task| match forgets {
            true => Poll::Ready(forgotten.as_mut().poll(task).is_pending()),
            false => Poll::Ready(true),
        })
        .await;
        drop(lock.lock().await);
    });
    procession::sleep(MILLISECOND * sim.choose(1..100) as u32).await;
    drop(release);
    procession::sleep(LONG).await;
    let known = if forgets { vec![vec![waits.pid()]] } else { Vec::new() };
    sim.always("a futurelock is reported, and nothing else", reported(&scheduler) == known);
    sim.always("a lock is released", holder.is_finished());
    let is_free = |other: &JoinHandle<()>| other.is_finished();
    sim.always("who was in line before has had the lock", before.iter().all(is_free));
    sim.always("the lock is free without a futurelock", waits.is_finished() != forgets);
    waits.kill();
    scheduler.shutdown(LONG).await;
}

/// A reader reads once more, while a writer waits.
async fn recursive_read(sim: Sim) {
    let Some(scheduler) = reporting(&sim) else { return };
    let lock = Arc::new(RwLock::new(()));
    let (shared, other) = (Arc::clone(&lock), Arc::clone(&lock));
    let (sender, again) = oneshot::channel::<()>();
    let reader = scheduler.spawn(async move {
        let _guard = shared.read().await;
        let _ = again.await;
        drop(shared.read().await);
    });
    let (gives_up, has_other) = (sim.choose(0..3) == 0, sim.choose(0..3) == 0);
    let other = has_other.then(|| {
        scheduler.spawn(async move {
            let _guard = other.read().await;
            pending::<()>().await;
        })
    });
    procession::sleep(SETTLED).await;
    let writer = scheduler.spawn(async move {
        match gives_up {
            true => drop(lock.write_timeout(3 * LONG).await),
            false => drop(lock.write().await),
        }
    });
    procession::sleep(SETTLED).await;
    drop(sender);
    // A watchdog finds a cycle up to 5 s later in an idle program.
    procession::sleep(LONG).await;
    let mut known = Vec::new();
    if !gives_up && !has_other {
        let mut cycle = vec![reader.pid(), writer.pid()];
        cycle.sort();
        known.push(cycle);
    }
    let mut found = reported(&scheduler);
    found.iter_mut().for_each(|cycle| cycle.sort());
    sim.always("a reader that waits for itself is reported, and nothing else", found == known);
    procession::sleep(3 * LONG).await;
    sim.always("a writer that gives up lets readers in", reader.is_finished() == gives_up);
    for process in [Some(reader), Some(writer), other].into_iter().flatten() {
        process.kill();
    }
    scheduler.shutdown(LONG).await;
}

/// A process sends to a channel that is full, and its receivers leave.
async fn abandoned_send(sim: Sim) {
    sim.heal();
    let (room, receivers) = (sim.choose(1..4) as usize, sim.choose(1..4));
    let (sender, receiver) = channel::bounded(room);
    let sends = procession::spawn(async move {
        let mut sent = 0;
        while sender.send(sent).await.is_ok() {
            sent += 1;
        }
        sent
    });
    for _ in 0..receivers {
        let (receiver, taken) = (receiver.clone(), sim.choose(0..4));
        procession::spawn(async move {
            for _ in 0..taken {
                receiver.recv().await;
            }
        })
        .detach();
    }
    procession::sleep(MILLISECOND * sim.choose(0..3) as u32).await;
    drop(receiver);
    let ended = procession::timeout(LONG, sends).await;
    sim.always("a send to receivers that have left ends", matches!(ended, Ok(Ok(_))));
}

/// A process waits for a message that only it could send.
async fn suspected(sim: Sim) {
    sim.heal();
    let builder = Scheduler::builder().worker_threads(sim.choose(1..4) as usize);
    let Ok(scheduler) = builder.suspect_after(SECOND).build() else { return };
    let count = sim.choose(1..4);
    for _ in 0..count {
        let waits = async {
            let (_to_itself, receiver) = channel::bounded::<()>(1);
            receiver.recv().await;
        };
        SpawnOptions::new().on(&scheduler).label("waits").spawn(waits).detach();
    }
    let timed = procession::timeout(LONG, pending::<()>());
    SpawnOptions::new().on(&scheduler).label("timed").spawn(timed).detach();
    // The first look knows only that they wait.
    procession::sleep(MILLISECOND).await;
    let first = scheduler.leaks();
    sim.always("a short wait is not suspected", first.suspected.is_empty());
    procession::sleep(2 * SECOND).await;
    let leaks = scheduler.leaks();
    let found: Vec<_> =
        leaks.suspected.iter().map(|group| (group.label.as_deref(), group.count)).collect();
    sim.always("long waits without an end are suspected", found == [(Some("waits"), count)]);
    sim.always("what is only suspected is not called leaked", leaks.is_empty());
    scheduler.snapshot().processes.iter().for_each(|process| {
        procession::process::kill(process.pid);
    });
    scheduler.shutdown(LONG).await;
}

/// More processes compute than the watchdog lets others run beside, but not at the same time.
async fn many_hogs(sim: Sim) {
    sim.heal();
    let limit = sim.choose(1..3) as usize;
    let builder = Scheduler::builder().worker_threads(1).max_computing(limit).max_threads(8);
    let Ok(scheduler) = builder.build() else { return };
    let hog = |time: Duration| {
        let own = sim.clone();
        scheduler.spawn(async move { own.compute(time) })
    };
    for _ in 0..3 {
        let hogs: Vec<_> = (0..limit).map(|_| hog(50 * MILLISECOND)).collect();
        for hog in hogs {
            sim.always("a computation ends", hog.await.is_ok());
        }
    }
    let (last, begun) = (hog(SECOND), Instant::now());
    procession::sleep(MILLISECOND).await;
    let woken = scheduler.spawn(async {}).await;
    let late = begun.elapsed();
    sim.always("others run beside a computation", woken.is_ok() && late < SECOND / 2);
    sim.always("a computation ends", last.await.is_ok());
    scheduler.shutdown(LONG).await;
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
    futurelock,
    recursive_read,
    abandoned_send,
    suspected,
    many_hogs,
}
