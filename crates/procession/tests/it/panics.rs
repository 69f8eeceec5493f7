//! Panics in everything that the user hands to the runtime. They end one process or none. All other
//! processes go on, and the counts stay right.
//!
//! Method: [`survives`] runs a provocation amid independent processes, with one worker and with
//! several, and looks at what is left. Expected panics print nothing, except for one that `panic!`
//! makes.

mod machines;
mod wakers;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use procession::{Context, Exit, Reply, Scheduler};

use crate::scene::{assert_conserved, driven, panic_quietly, threaded};

const HOUR: Duration = Duration::from_secs(3600);

/// Panics when it is dropped, if armed.
struct Bomb(bool);

const BOMB: Bomb = Bomb(true);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 {
            panic_quietly("a bomb was dropped");
        }
    }
}

fn panicked<T>(text: &str) -> Result<T, Exit> {
    Err(Exit::Panicked(text.into()))
}

/// Runs `provoke` beside independent processes. `panics` processes must be counted as panicked.
#[track_caller]
fn survives(panics: u64, provoke: impl Fn(&Scheduler)) {
    for scheduler in [driven(), threaded(1), threaded(2)] {
        let partner = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
            let mut replied = 0;
            while let Some(reply) = cx.recv().await {
                replied += 1;
                reply.send(replied);
            }
            replied
        });
        let address = partner.address().clone();
        let innocent = scheduler.spawn(async move {
            let mut sum = 0;
            for _ in 0..50 {
                sum += address.call(|reply| reply, HOUR).await.expect("it replies");
                procession::yield_now().await;
            }
            sum
        });
        provoke(&scheduler);
        assert_eq!(innocent.join(), Ok(50 * 51 / 2));
        partner.cancel();
        assert_eq!(partner.join(), Ok(50));
        assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1), "every worker goes on");
        assert_conserved(&scheduler);
        let snapshot = scheduler.snapshot();
        assert_eq!(snapshot.panicked, panics);
        assert_eq!(snapshot.spawned, snapshot.ended, "all have ended");
        assert_eq!(snapshot.timers.pending, 0);
        assert_eq!(snapshot.processes.len(), 0, "all slots are free");
    }
}

#[test]
fn a_poll_panics() {
    survives(3, |scheduler| {
        let plain = scheduler.spawn(async { panic!("by the macro, as {}", "usual") });
        let plain: procession::JoinHandle<()> = plain;
        assert_eq!(plain.join(), panicked("by the macro, as usual"));
        let after_a_wait = scheduler.spawn(async {
            procession::sleep(Duration::from_nanos(1)).await;
            panic_quietly("after a wait")
        });
        let after_a_wait: procession::JoinHandle<()> = after_a_wait;
        assert_eq!(after_a_wait.join(), panicked("after a wait"));
        // No handle waits for it.
        drop::<procession::JoinHandle<()>>(scheduler.spawn(async { panic_quietly("unheard") }));
    });
}

#[test]
fn the_drop_of_a_future_panics() {
    /// A future that returns `Some` at its second poll, or is never ready.
    struct Fragile(Option<u32>, u32, #[expect(dead_code, reason = "its drop panics")] Bomb);
    impl Future for Fragile {
        type Output = u32;
        fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<u32> {
            self.1 += 1;
            task.waker().wake_by_ref();
            self.0.filter(|_| self.1 > 1).map_or(Poll::Pending, Poll::Ready)
        }
    }
    survives(2, |scheduler| {
        let ready = scheduler.spawn(Fragile(Some(1), 0, BOMB));
        assert_eq!(ready.join(), panicked("a bomb was dropped"), "its result is not to be had");
        drop(scheduler.spawn(Fragile(Some(1), 0, BOMB)));
        let terminated = scheduler.spawn(Fragile(None, 0, BOMB));
        procession::process::kill(terminated.pid());
        assert_eq!(terminated.join(), Err(Exit::Killed), "it had been killed before");
    });
}

#[test]
fn the_drops_of_messages_panic() {
    survives(2, |scheduler| {
        // Some messages stay in the mailbox, some are taken out of it, some are skipped.
        let receive_some = |then_panic: bool| {
            move |mut cx: Context<(u32, Bomb)>| async move {
                let own = cx.address();
                for _ in 0..2 {
                    let received = cx.recv_matching(|message| message.0 % 3 == 2).await;
                    std::mem::forget(received);
                }
                for n in 0..3 {
                    assert!(own.send((n, BOMB)).is_ok());
                }
                if then_panic {
                    panic_quietly("with bombs in the mailbox");
                }
            }
        };
        for then_panic in [false, true] {
            let child = scheduler.start(receive_some(then_panic));
            for n in 0..8 {
                // With several workers it may have ended by now. A bomb that comes back belongs to
                // the sender.
                child.send((n, BOMB)).unwrap_or_else(std::mem::forget);
            }
            let expected = if then_panic { panicked("with bombs in the mailbox") } else { Ok(()) };
            assert_eq!(child.join(), expected);
        }
        // A process that never looks at its messages.
        let child = scheduler.start(|_: Context<Bomb>| async { procession::yield_now().await });
        for _ in 0..3 {
            child.send(BOMB).unwrap_or_else(std::mem::forget);
        }
        assert_eq!(child.join(), Ok(()));
        let child = scheduler.start(|cx: Context<Bomb>| async move {
            std::future::pending::<()>().await;
            drop(cx);
        });
        for _ in 0..3 {
            assert!(child.send(BOMB).is_ok());
        }
        procession::process::kill(child.pid());
        assert_eq!(child.join(), Err(Exit::Killed));
        // A message that the process receives and drops is its own fault.
        let child = scheduler.start(|mut cx: Context<Bomb>| async move { drop(cx.recv().await) });
        assert!(child.send(BOMB).is_ok());
        assert_eq!(child.join(), panicked("a bomb was dropped"));
    });
}

#[test]
fn the_drop_of_an_output_panics() {
    survives(0, |scheduler| {
        drop(scheduler.spawn(async { BOMB }));
        // Dropped after the end.
        let handle = scheduler.spawn(async { BOMB });
        scheduler.run_until_idle();
        drop(handle);
        // Dropped by a process that holds the handle when it ends, and by one that is terminated.
        let keeper = scheduler.spawn(async {
            let kept = procession::spawn(async { BOMB });
            procession::yield_now().await;
            drop(kept);
        });
        assert_eq!(keeper.join(), Ok(()));
    });
}

/// Panics when it is dropped, with a payload that panics in turn, as many times as the number says.
struct Russian(u32);

impl Drop for Russian {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::resume_unwind(Box::new(Russian(self.0 - 1)));
        }
    }
}

#[test]
fn the_drop_of_a_panics_payload_panics() {
    survives(5, |scheduler| {
        for depth in 0..5 {
            let handle =
                scheduler.spawn(async move { std::panic::resume_unwind(Box::new(Russian(depth))) });
            let handle: procession::JoinHandle<()> = handle;
            assert_eq!(handle.join(), panicked("a value that is no text"));
            // The same where no process is at fault.
            drop(scheduler.spawn(async move { Russian(depth) }));
        }
    });
}

#[test]
fn a_predicate_panics() {
    survives(2, |scheduler| {
        for skip in [0, 3] {
            let child = scheduler.start(move |mut cx: Context<u32>| async move {
                let caught = cx
                    .recv_matching(|&n| if n == skip { panic_quietly("choosy") } else { false })
                    .await;
                assert_eq!(caught, None);
            });
            for n in 0..5 {
                // Ignored: with several workers it may have ended by now.
                drop(child.send(n));
            }
            assert_eq!(child.join(), panicked("choosy"));
        }
    });
}

#[test]
fn a_predicate_that_panics_loses_no_message() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let mut choosy =
            Box::pin(cx.recv_matching(|&n| if n == 2 { panic_quietly("choosy") } else { false }));
        let caught = poll_fn(|task| {
            Poll::Ready(catch_unwind(AssertUnwindSafe(|| choosy.as_mut().poll(task))).is_err())
        })
        .await;
        drop(choosy);
        let mut rest = Vec::new();
        while let Some(message) = cx.recv().await {
            rest.push(message);
        }
        (caught, rest)
    });
    for n in 0..5 {
        child.send(n).expect("it lives");
    }
    child.cancel();
    assert_eq!(child.join(), Ok((true, vec![0, 1, 2, 3, 4])));
}

#[test]
fn timer_functions_panic() {
    survives(0, |scheduler| {
        let nap = Duration::from_nanos(10);
        let mut inbox = scheduler.attach::<&str>();
        let (once, again) = (inbox.address().clone(), inbox.address().clone());
        let every = scheduler.block_on(async {
            let panics = move || {
                once.send("once").expect("the test waits");
                panic_quietly("in a function of a timer")
            };
            procession::time::run_after(nap, panics).expect("there is room");
            let bomb = BOMB;
            procession::time::run_after(nap, move || drop(bomb)).expect("there is room");
            let panics = move || {
                // Ignored: the test receives enough of them.
                drop(again.send("again"));
                panic_quietly("in a function of a timer")
            };
            procession::time::run_every(nap, panics).expect("there is room")
        });
        let mut heard = Vec::new();
        while !heard.contains(&"once")
            || heard.iter().filter(|heard| **heard == "again").count() < 3
        {
            heard.extend(inbox.recv());
        }
        assert_eq!(heard.iter().filter(|heard| **heard == "once").count(), 1);
        every.cancel();
    });
}

#[test]
fn a_delayed_message_that_nobody_takes_panics() {
    survives(0, |scheduler| {
        let child = scheduler.start(|cx: Context<Bomb>| async move { cx.cancelled().await });
        let nap = Duration::from_millis(2);
        let (address, handle) = child.into_parts();
        assert!(address.send_after(nap, BOMB).is_ok());
        // The process ends before the message comes, or at least without receiving it.
        handle.cancel();
        assert_eq!(handle.join(), Ok(()));
        scheduler.block_on(procession::sleep(nap * 2));
        drop(address);
        scheduler.run_until_idle();
    });
}

#[test]
fn a_block_on_future_panics() {
    for scheduler in [driven(), threaded(1)] {
        // The child lives until the cancel, so that each round finds it alive.
        let child = scheduler.start(|mut cx: Context<u32>| async move {
            let mut sum = 0;
            while let Some(message) = cx.recv().await {
                sum += message;
            }
            sum
        });
        for _ in 0..3 {
            let address = child.address().clone();
            let root = async move {
                procession::spawn(async {}).await.expect("it ends");
                address.send(1).expect("it lives");
                panic_quietly("in the root")
            };
            let caught = catch_unwind(AssertUnwindSafe(|| scheduler.block_on(root)));
            let text = caught
                .expect_err("it panics")
                .downcast::<String>()
                .expect("the text comes through");
            assert_eq!(*text, "in the root");
            assert_eq!(procession::process::current_pid(), None);
            // The seat is free for other threads.
            assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
        }
        assert!(child.is_alive());
        child.cancel();
        assert_eq!(child.join(), Ok(3));
        assert_conserved(&scheduler);
    }
}

#[test]
fn the_closure_of_a_call_panics() {
    survives(1, |scheduler| {
        let server =
            scheduler.start(|mut cx: Context<Reply<u32>>| async move { cx.recv().await.is_none() });
        let address = server.address().clone();
        let caller = scheduler.spawn(async move {
            address.call(|_: Reply<u32>| panic_quietly("at the phone"), HOUR).await
        });
        assert_eq!(caller.join().map(drop), panicked("at the phone"));
        server.cancel();
        assert_eq!(server.join(), Ok(true));
    });
}
