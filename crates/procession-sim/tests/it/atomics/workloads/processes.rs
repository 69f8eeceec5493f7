//! Workloads about one process that others message, end, suspend, inspect or await.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession::mailbox::WhenFull;
use procession::observe::AskError;
use procession::process::kill;
use procession::time::Instant;
use procession::{Context, Reply, Scheduler, SpawnOptions};
use procession_sim::Sim;
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::host::atomic::{AtomicBool, AtomicU32};

use super::{MICROSECOND, MILLISECOND, bound, scheduler, shut_down};

/// A process is terminated, and then gets one more message, which it must not receive.
pub(super) async fn last_words(sim: &Sim) {
    for _ in 0..12 {
        let target = procession::start(|mut cx: Context<bool>| async move {
            let mut is_last = false;
            while !is_last {
                let Some(received) = cx.recv().await else { return };
                is_last = received;
            }
            // Nobody reads the result of a process that was terminated.
            panic!("a message was received that was sent after the terminate");
        });
        let address = target.address().clone();
        let killer = sim.spawn(async move {
            procession::yield_now().await;
            // The target is in its step now, or about to begin it.
            let _ = address.send(false);
            kill(address.pid());
            let _ = address.send(true);
        });
        for _ in 0..sim.choose(0..3) {
            let _ = target.send(false);
            procession::yield_now().await;
        }
        killer.await.expect("it ends");
        drop(target.await);
    }
}

/// Processes are suspended by one worker, and ended by another at the same time.
pub(super) async fn ends_of_suspended(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..10 {
        let target =
            other.start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} });
        let pid = target.pid();
        let begun = other.now();
        let suspends = other.clone();
        let suspends = other.spawn(async move {
            for _ in 0..3 {
                // It may have ended, or be about to end.
                let _ = suspends.suspend(pid);
                procession::yield_now().await;
            }
        });
        let is_terminated = sim.choose(0..2) == 1;
        let ends = other.spawn(async move {
            procession::yield_now().await;
            if is_terminated {
                procession::process::kill(pid)
            } else {
                procession::process::cancel(pid)
            }
        });
        suspends.await.expect("it ends");
        ends.await.expect("it ends");
        drop(target.await);
        // The suspension would take 5 s.
        let is_soon = other.now() - begun < 1000 * MILLISECOND;
        sim.always("a suspended process ends at once", is_soon);
    }
    shut_down(sim, &other).await;
}

/// Two processes inspect a third one at the same time, which is suspended in between.
pub(super) async fn inspections(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    let (is_held, is_shown) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, begun, own) = (Arc::clone(&is_held), Arc::clone(&is_shown), sim.clone());
    let target = other.start(move |mut cx: Context<()>| async move {
        let _shown = cx.inspect_with(|shown| {
            shown.field("it", "answers");
        });
        begun.store(true, Relaxed);
        while cx.recv().await.is_some() {
            own.always("a suspended process stands still", !held.load(Relaxed));
        }
    });
    // Until then, it shows nothing. Its worker may be preempted.
    while !is_shown.load(Relaxed) {
        procession::sleep(MILLISECOND).await;
    }
    let pid = target.pid();
    let inspect = |scheduler: &Scheduler, own: &Sim| {
        let (scheduler, own) = (scheduler.clone(), own.clone());
        async move {
            for _ in 0..5 {
                procession::sleep(5 * own.choose(1..6) as u32 * MICROSECOND).await;
                let shown = scheduler.inspect(pid).await;
                own.always("a process answers each inspection", shown.is_ok());
            }
        }
    };
    for round in 0..4 {
        let is_suspended = round % 2 == 1;
        if is_suspended {
            other.suspend(pid).expect("it lives");
            // From its answer on, it stands still.
            let shown = other.inspect(pid).await;
            sim.always("a suspended process answers", shown.is_ok());
            is_held.store(true, Relaxed);
            target.send(()).expect("it lives");
        }
        let pair = [(); 2].map(|()| other.spawn(inspect(&other, sim)));
        for one in pair {
            one.await.expect("it ends");
        }
        is_held.store(false, Relaxed);
        if is_suspended {
            sim.always("it was suspended until now", other.resume(pid));
        }
    }
    target.cancel();
    target.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// A handle leaves one waker after the other while its process ends.
pub(super) async fn joins(sim: &Sim) {
    for _ in 0..12 {
        let yields = sim.choose(0..4);
        let mut handle = sim.spawn(async move {
            for _ in 0..yields {
                procession::yield_now().await;
            }
        });
        let mut looks = sim.choose(1..6);
        let ended = poll_fn(|task| {
            for waker in [Waker::noop(), task.waker()] {
                let ended = Pin::new(&mut handle).poll(&mut TaskContext::from_waker(waker));
                if ended.is_ready() {
                    return ended;
                }
            }
            if looks > 0 {
                looks -= 1;
                task.waker().wake_by_ref();
            }
            Poll::Pending
        });
        ended.await.expect("it ends");
    }
}

/// Parents end when their scheduler shuts down, and their children after them.
pub(super) async fn helpers(sim: &Sim) {
    for _ in 0..4 {
        let Some(other) = scheduler(2, 2) else { return };
        for _ in 0..4 {
            let parent = other.start(|cx: Context<()>| async move {
                procession::spawn(pending::<()>()).detach();
                cx.cancelled().await;
            });
            drop(parent);
        }
        procession::sleep(sim.choose(1..20) as u32 * 5 * MICROSECOND).await;
        shut_down(sim, &other).await;
    }
}

/// Senders wait for room in a mailbox. Some give up, and the receiver ends.
pub(super) async fn full_mailboxes(sim: &Sim) {
    for _ in 0..6 {
        let rounds = sim.choose(0..5);
        let options = SpawnOptions::new().mailbox(1, WhenFull::Wait);
        let receiver = options.start(move |mut cx: Context<u64>| async move {
            for _ in 0..rounds {
                cx.recv().await;
            }
        });
        let senders: Vec<_> = (0..3)
            .map(|number| {
                let (address, own) = (receiver.address().clone(), sim.clone());
                sim.spawn(async move {
                    for _ in 0..3 {
                        let sent = address.send_wait(number);
                        if number == 0 {
                            let limit = 5 * own.choose(0..4) as u32 * MICROSECOND;
                            drop(procession::timeout(limit, sent).await);
                        } else if sent.await.is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        drop(receiver.await);
        for sender in senders {
            sender.await.expect("it ends");
        }
    }
}

/// The only threads of two schedulers begin to wait for one another's scheduler. No thread stalls
/// here, because a thread that asks stops asking if another thread stalls for long
/// (`scheduler/wait_cycle.rs`, "Allowed").
pub(super) async fn circles(sim: &Sim) {
    sim.heal();
    let (Some(one), Some(two)) = (scheduler(1, 1), scheduler(1, 1)) else { return };
    for _ in 0..10 {
        let begin = Instant::now() + 40 * MICROSECOND;
        let wait_for = |own: &Scheduler, other: &Scheduler| {
            let (other, sim) = (other.clone(), sim.clone());
            own.spawn(async move {
                sim.compute(begin.saturating_duration_since(Instant::now()));
                other.try_block_on(other.spawn(async {})).is_ok()
            })
        };
        let pair = [wait_for(&one, &two), wait_for(&two, &one)];
        let mut refused = 0;
        for one in pair {
            refused += u32::from(!one.await.expect("it ends"));
        }
        sim.always("one of the waits is not refused", refused < 2);
    }
    shut_down(sim, &one).await;
    shut_down(sim, &two).await;
}

/// Processes end at the moment at which others begin to watch them. A monitor that is made after
/// the end reports the end immediately.
pub(super) async fn watched_ends(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..12 {
        let yields = sim.choose(0..3);
        let target = other.spawn(async move {
            for _ in 0..yields {
                procession::yield_now().await;
            }
        });
        let pid = target.pid();
        let watchers = [(); 2].map(|()| {
            other.start(move |mut cx: Context<()>| async move {
                let monitor = cx.monitor(pid);
                cx.down(monitor).await.is_some()
            })
        });
        for watcher in watchers {
            let told = procession::timeout(10_000 * MILLISECOND, watcher).await;
            sim.always("a monitor tells of the end", matches!(told, Ok(Ok(true))));
        }
        target.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}

/// Calls are answered by two processes, each with a right to do so, of which one may give its right
/// up. Some callers do not wait for that long.
pub(super) async fn shared_replies(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    let answers = |reply: Reply<u32>, own: Sim, gives_up: bool| async move {
        procession::sleep(5 * own.choose(0..4) as u32 * MICROSECOND).await;
        match gives_up {
            true => drop(reply),
            false => reply.send(7),
        }
    };
    let (first, second) = (sim.clone(), sim.clone());
    let server = other.start(move |mut cx: Context<Reply<u32>>| async move {
        while let Some(reply) = cx.recv().await {
            let gives_up = first.choose(0..2) == 1;
            if let Some(share) = reply.share() {
                procession::spawn(answers(share, first.clone(), gives_up)).detach();
            }
            procession::spawn(answers(reply, first.clone(), false)).detach();
        }
    });
    for _ in 0..10 {
        let (address, limit) = (server.address().clone(), second.choose(0..2));
        let call = other.spawn(async move {
            let limit = if limit == 0 { 10_000 * MILLISECOND } else { 10 * MICROSECOND };
            let start = Instant::now();
            (address.call(|reply| reply, limit).await, limit, start.elapsed())
        });
        let (answer, limit, took) = call.await.expect("it ends");
        let is_short = limit < MILLISECOND;
        sim.always("a call is answered by one of two", is_short || matches!(answer, Ok(7)));
        // A caller that no answer wakes finds the answer when its time is over.
        sim.always("an answer wakes its caller", is_short || took < limit);
    }
    server.cancel();
    server.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// A process is suspended while it has something to do, and others inspect it at the moment at
/// which its worker sets it aside. It stands still.
pub(super) async fn set_aside(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    let (is_held, own) = (Arc::new(AtomicBool::new(false)), sim.clone());
    let held = Arc::clone(&is_held);
    let options = SpawnOptions::new().on(&other).affinity(0);
    let target = options.start(move |mut cx: Context<()>| async move {
        while cx.recv().await.is_some() {
            own.always("a suspended process stands still", !held.load(Relaxed));
        }
    });
    let pid = target.pid();
    let is_answer = |shown| matches!(shown, Err(AskError::ShowsNothing));
    for _ in 0..8 {
        other.suspend(pid).expect("it lives");
        // From its answer on, it stands still.
        let shown = other.inspect(pid).await;
        sim.always("a suspended process answers", is_answer(shown));
        is_held.store(true, Relaxed);
        target.send(()).expect("it lives");
        let pair = [1, 2].map(|worker| {
            let (scheduler, own) = (other.clone(), sim.clone());
            bound(&other, worker).spawn(async move {
                own.compute(10 * MICROSECOND);
                // One request right after the other. There is room for 16 requests.
                let mut asks: Vec<_> = (0..6).map(|_| Box::pin(scheduler.inspect(pid))).collect();
                poll_fn(|task| {
                    asks.retain_mut(|ask| match ask.as_mut().poll(task) {
                        Poll::Ready(shown) => {
                            own.always("a process answers each inspection", is_answer(shown));
                            false
                        }
                        Poll::Pending => true,
                    });
                    if asks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            })
        });
        for one in pair {
            one.await.expect("it ends");
        }
        is_held.store(false, Relaxed);
        sim.always("it was suspended until now", other.resume(pid));
    }
    target.cancel();
    target.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// A message is made in the place that it has in a bounded mailbox while the process of the mailbox
/// ends; or the message is not made after all, while another sender waits for its place.
pub(super) async fn made_messages(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(3, 3) else { return };
    for _ in 0..8 {
        let gives_up = sim.choose(0..2) == 1;
        let options = bound(&other, 0).mailbox(1, WhenFull::Wait);
        let (own, waits) = (sim.clone(), sim.choose(0..3));
        let receiver = options.start(move |mut cx: Context<Option<Reply<()>>>| async move {
            own.compute(5 * waits as u32 * MICROSECOND);
            if gives_up {
                while cx.recv().await.is_some() {}
            }
        });
        let own = sim.clone();
        let makes = receiver.map(move |reply| {
            own.compute(10 * MICROSECOND);
            if gives_up {
                // No panic of a process: nothing prints it, and it is caught.
                resume_unwind(Box::new(()));
            }
            Some(reply)
        });
        let own = sim.clone();
        let calls = bound(&other, 1).spawn(async move {
            let call = makes.call(|reply| reply, 1_000_000 * MILLISECOND);
            let call = procession::timeout(10_000 * MILLISECOND, call);
            let called = caught(call).await;
            own.always("a call to a process that has ended ends", called.is_none_or(|ended| ended));
        });
        let address = receiver.address().clone();
        let sends = bound(&other, 2).spawn(async move {
            if gives_up {
                let sent = address.send_wait(None);
                let is_sent = procession::timeout(10_000 * MILLISECOND, sent).await;
                return is_sent.is_ok();
            }
            true
        });
        calls.await.expect("it ends");
        sim.always("a sender gets the room that is free", sends.await.expect("it ends"));
        receiver.cancel();
        receiver.await.expect("it ends");
    }
    shut_down(sim, &other).await;
}

/// Polls a future in steps, and catches the panic of a step. Returns `true` if it ends in time, and
/// `None` if a step panics.
async fn caught<T, E>(call: impl Future<Output = Result<T, E>>) -> Option<bool> {
    let mut call = std::pin::pin!(call);
    poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(task))) {
        Ok(polled) => polled.map(|ended| Some(ended.is_ok())),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// A thread asks whether all is idle while a worker that is about to park finds the process that
/// was started last.
pub(super) async fn idle_looks(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(1, 1) else { return };
    let other = Arc::new(other);
    let (own, looked) = (sim.clone(), Arc::clone(&other));
    let looks = procession::spawn_blocking(move || {
        for _ in 0..40 {
            let ended = Arc::new(AtomicU32::new(0));
            let start = || {
                let (ended, own) = (Arc::clone(&ended), own.clone());
                let ends = async move {
                    // All seems idle to a thread that has seen the worker parked, and looks now.
                    own.compute(5 * MICROSECOND);
                    ended.fetch_add(1, Relaxed);
                };
                looked.spawn(ends).detach();
            };
            start();
            for _ in 0..200 {
                if ended.load(Relaxed) > 0 {
                    break;
                }
                own.block(MICROSECOND);
            }
            own.block(own.choose(0..20) as u32 * MICROSECOND / 4);
            start();
            looked.run_until_idle();
            own.always("all is idle once each process has ended", ended.load(Relaxed) == 2);
        }
    });
    // The system may refuse the thread.
    drop(looks.await);
    shut_down(sim, &other).await;
}
