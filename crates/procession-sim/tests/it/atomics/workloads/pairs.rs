//! Workloads of two workers that come to one word at the same moment of virtual time. Processes are
//! bound to them.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use procession::sync::channel;
use procession::time::Instant;
use procession::{Child, Context, Scheduler};
use procession_sim::Sim;

use super::{MICROSECOND, MILLISECOND, bound, linger, scheduler, shut_down};

/// Two processes lock the core of one channel at the same time. If a process waits for the lock and
/// is not notified, it waits forever: the core is locked again only after both have ended.
pub(super) async fn meetings(sim: &Sim) {
    const ROUNDS: usize = 24;
    // Nothing makes a process late from here on.
    sim.heal();
    let Some(other) = scheduler(2, 2) else { return };
    let (sender, receiver) = channel::bounded::<u32>(2 * ROUNDS);
    for _ in 0..ROUNDS {
        let pair = [0, 1].map(|worker| {
            let (own, sender) = (sim.clone(), sender.clone());
            bound(&other, worker).spawn(async move {
                own.compute(10 * own.choose(1..4) as u32 * MICROSECOND);
                sender.try_send(worker).expect("there is room");
                linger();
            })
        });
        for one in pair {
            let ended = procession::timeout(10_000 * MILLISECOND, one).await;
            sim.always("a process gets a lock that is free", ended.is_ok());
        }
    }
    drop(sender);
    let mut sum = 0;
    while let Some(worker) = receiver.recv().await {
        sum += worker as usize;
    }
    sim.always("each message arrives", sum == ROUNDS);
    shut_down(sim, &other).await;
}

/// A step sets timers, each due before the timer that was set before. At that moment its scheduler
/// gets fewer workers, which takes the permit of this worker, and the other worker parks. The step
/// continues for longer than the timers last, so the other worker must wake for them.
pub(super) async fn taken_permits(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(2, 2) else { return };
    for _ in 0..12 {
        other.set_worker_threads(2).expect("there are two threads");
        let begin = Instant::now() + 50 * MICROSECOND;
        let until_begin = move || begin.saturating_duration_since(Instant::now());
        let (own, count) = (sim.clone(), sim.choose(1..3) as u32);
        // If a timer is due within 10 ms, the step notifies others immediately.
        let latest = 100 * sim.choose(120..160) as u32;
        // The permit of the second worker is taken first.
        let setter = bound(&other, 1).spawn(async move {
            own.compute(until_begin());
            let lengths = (1..=count).map(|nth| (latest - 300 * nth) * MICROSECOND);
            let mut sleeps: Vec<_> =
                lengths.map(|length| Box::pin(procession::sleep(length))).collect();
            poll_fn(|task| {
                for sleep in &mut sleeps {
                    let _ = sleep.as_mut().poll(task);
                    linger();
                }
                own.block(20 * MILLISECOND);
                Poll::Ready(())
            })
            .await;
        });
        let (own, longer) = (sim.clone(), sim.choose(0..3) as u32 * 5 * MICROSECOND);
        // Not bound to the other worker, which would wait for the next process that is, and pause
        // so often that the first one gets its turn. That one is in its step.
        sim.compute(20 * MICROSECOND);
        let parks = other.spawn(async move { own.compute(until_begin() + longer) });
        sim.compute(until_begin());
        other.set_worker_threads(1).expect("one is enough");
        parks.await.expect("it ends");
        setter.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}

/// Starts a process on each of two workers, which blocks for as long as each message says.
fn that_block(sim: &Sim, scheduler: &Scheduler) -> [Child<Duration, ()>; 2] {
    [0, 1].map(|worker| {
        let own = sim.clone();
        bound(scheduler, worker).start(move |mut cx: Context<Duration>| async move {
            while let Some(length) = cx.recv().await {
                own.block(length);
            }
        })
    })
}

/// One worker has a short step and parks, at the moment at which the other worker begins a longer
/// step, or at which the watchdog looks. It sleeps before.
pub(super) async fn short_steps(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(2, 2) else { return };
    let pair = that_block(sim, &other);
    for _ in 0..32 {
        // After two looks that find nothing, it sleeps, and continues to sleep if all steps are
        // short.
        procession::sleep([1, 10, 20][sim.choose(0..3) as usize] * MILLISECOND).await;
        // The first look is 1 ms after a worker became awake.
        let is_looked_at = sim.choose(0..4) == 0;
        let first = if is_looked_at { MILLISECOND } else { Duration::ZERO };
        pair[0].send(first).expect("it lives");
        sim.compute(first + sim.choose(0..24) as u32 * MICROSECOND / 4);
        let second = [300, 3000][sim.choose(0..2) as usize] * MICROSECOND;
        pair[1].send(second).expect("it lives");
    }
    for one in pair {
        one.cancel();
        one.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}

/// While the watchdog sleeps, one worker wakes for a moment and parks, and the other begins a step
/// before the first one has put the alarm off. Each round ends before the watchdog looks.
pub(super) async fn short_wakes(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(2, 2) else { return };
    let pair = that_block(sim, &other);
    for _ in 0..4 {
        // After two looks that find nothing, it sleeps.
        procession::sleep(20 * MILLISECOND).await;
        for _ in 0..8 {
            let first = sim.choose(0..2) as usize;
            pair[first].send(Duration::ZERO).expect("it lives");
            // Longer than the first worker takes to park. If the first worker is preempted in this
            // time, the whole time passes in one move.
            sim.compute(20 * sim.choose(3..8) as u32 * MICROSECOND);
            pair[1 - first].send(250 * MICROSECOND).expect("it lives");
            procession::sleep(300 * MICROSECOND).await;
        }
    }
    for one in pair {
        one.cancel();
        one.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}
