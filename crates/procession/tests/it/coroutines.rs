//! Processes that are coroutines.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use procession::coroutine::{Wait, spawn_coroutine, wait};
use procession::sync::Mutex;
use procession::sync::channel;
use procession::time::Instant;
use procession::{
    Builder, Exit, Outcome, Reply, Scheduler, Select, SpawnOptions, coroutine, sleep, spawn, start,
    yield_now,
};

use crate::scene::{assert_conserved, panic_quietly, soon, soon_closed};

mod crash;
mod poll;
mod sockets;

fn enabled(builder: Builder) -> Scheduler {
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    unsafe { builder.enable_coroutines() }.build().expect("the system has threads and memory")
}

fn driven() -> Scheduler {
    enabled(Scheduler::builder().worker_threads(1).test_clock())
}

fn threaded(width: usize) -> Scheduler {
    enabled(Scheduler::builder().worker_threads(width))
}

/// Starts a coroutine that receives nothing.
#[track_caller]
fn coroutine<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> procession::Child<(), T> {
    scheduler.spawn_coroutine(function).expect("coroutines are enabled")
}

fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// Reports its drop.
struct Noted(mpsc::Sender<()>);

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Goal: the thread of a coroutine that drives another scheduler, or is in a blocking section,
/// belongs to that until it is over. Method: the coroutine waits there, in blocking style, while
/// another process of its own scheduler runs.
#[test]
fn a_coroutine_is_not_suspended_while_it_drives_another_scheduler_or_in_a_section() {
    let scheduler = threaded(1);
    for nested in [true, false] {
        let (begun, begins) = mpsc::channel();
        let (sends, received) = channel::bounded::<u32>(1);
        let waits = move || {
            begun.send(()).expect("the test listens");
            (received.recv().wait(), coroutine::may_suspend())
        };
        let child = coroutine(&scheduler, move |_| {
            let waited = if nested {
                let inner = Scheduler::builder()
                    .worker_threads(1)
                    .callers_drive()
                    .build()
                    .expect("it starts no thread");
                inner.block_on(async { waits() })
            } else {
                procession::blocking(waits)
            };
            // The coroutine is current again.
            (waited, coroutine::may_suspend())
        });
        soon(&begins);
        let pid =
            scheduler.spawn(async { procession::current_pid() }).join().expect("it does not panic");
        assert_eq!(pid.map(|pid| pid.scheduler()), Some(child.pid().scheduler()));
        sends.try_send(7).expect("there is room");
        assert_eq!(child.join(), Ok(((Some(7), false), true)));
    }
}

#[test]
fn what_a_coroutine_drives_runs_outside_of_it() {
    static OWN: coroutine::Local<Cell<u32>> = coroutine::Local::new(|| Cell::new(0));
    let scheduler = threaded(1);
    let ended = coroutine(&scheduler, |_| {
        OWN.with(|own| own.set(1));
        let inner = enabled(Scheduler::builder().worker_threads(1).callers_drive());
        let process = inner.spawn(async { (coroutine::is_coroutine(), OWN.with(Cell::get)) });
        let theirs = coroutine(&inner, |_| {
            coroutine::yield_now();
            OWN.with(|own| own.replace(2))
        });
        let future =
            async { (coroutine::is_coroutine(), coroutine::may_suspend(), OWN.with(Cell::get)) };
        let driven = inner.block_on(async { (future.await, process.await, theirs.await) });
        (driven, OWN.with(Cell::get), coroutine::may_suspend())
    });
    assert_eq!(ended.join(), Ok((((true, false, 1), Ok((false, 0)), Ok(0)), 1, true)));
}

#[test]
fn a_coroutine_that_wakes_itself_goes_on() {
    let scheduler = driven();
    let (told, tells) = mpsc::channel();
    let process = scheduler.spawn_coroutine(move |mut cx: coroutine::Context<u32>| {
        for _ in 0..3 {
            let mut woken = false;
            wait(poll_fn(|task| {
                if std::mem::replace(&mut woken, true) {
                    return Poll::Ready(());
                }
                let waker: Waker = task.waker().clone();
                waker.wake();
                Poll::Pending
            }));
        }
        told.send(()).expect("the test listens");
        cx.recv()
    });
    let process = process.expect("coroutines are enabled");
    scheduler.run_until_idle();
    soon(&tells);
    process.send(7).expect("it waits");
    assert_eq!(process.join(), Ok(Some(7)));
}

#[test]
fn a_coroutine_is_a_process_in_blocking_style() {
    let scheduler = driven();
    let hour = Duration::from_secs(3600);
    let seen = scheduler.block_on(async {
        let adds = spawn_coroutine(|mut cx: coroutine::Context<Reply<u32>>| {
            let mut calls = 0;
            while let Some(reply) = cx.recv() {
                calls += 1;
                reply.send(calls);
            }
            calls
        })
        .expect("coroutines are enabled");
        let address = adds.address().clone();
        let asks = spawn_coroutine(move |mut cx: coroutine::Context<&'static str>| {
            assert_eq!(procession::current_pid(), Some(cx.pid()));
            let begun = Instant::now();
            cx.sleep(Duration::from_secs(5));
            assert_eq!(Instant::now() - begun, Duration::from_secs(5));
            assert!(cx.recv_timeout(Duration::from_secs(1)).is_err());
            let child = spawn(async { 7 });
            let own = cx.address();
            drop(spawn_coroutine(move |cx: coroutine::Context<()>| {
                cx.yield_now();
                own.send("other").and_then(|()| own.send("wanted"))
            }));
            let wanted = cx.recv_matching(|text| *text == "wanted");
            let other = cx.recv();
            let calls = cx.call(&address, |reply| reply, Duration::from_secs(1));
            (cx.wait(child), wanted, other, calls.ok())
        })
        .expect("coroutines are enabled");
        assert!(asks.address().is_alive());
        let asked = asks.await;
        adds.cancel();
        (asked, adds.await, procession::timeout(hour, yield_now()).await)
    });
    assert_eq!(seen.0, Ok((Ok(7), Some("wanted"), Some("other"), Some(1))));
    assert_eq!(seen.1, Ok(1), "its receive ended, so it did");
    assert_conserved(&scheduler);
    assert!(scheduler.snapshot().processes.is_empty());
}

#[test]
fn every_way_to_end_has_its_exit() {
    for scheduler in [driven(), threaded(2)] {
        let failed = coroutine(&scheduler, |_| panic_quietly("why")).join();
        let failed: Result<(), _> = failed;
        assert_eq!(failed, Err(Exit::Panicked("why".into())));
        let after: Result<(), _> = coroutine(&scheduler, |cx| {
            cx.yield_now();
            procession::exit(Exit::failed("so"))
        })
        .join();
        assert_eq!(after, Err(Exit::failed("so")));
        assert_eq!(
            coroutine(&scheduler, |_| vec![1; 10_000]).join().map(|result| result.len()),
            Ok(10_000)
        );
        assert_conserved(&scheduler);
    }
}

#[test]
fn without_the_promise_a_coroutine_is_refused_and_comes_back() {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    let Err(error) = scheduler.spawn_coroutine(|_: coroutine::Context<()>| 7) else {
        panic!("it is not enabled")
    };
    assert!(error.is_without_coroutines());
    assert_eq!(
        error.to_string(),
        "cannot start a process: it is a coroutine, and its scheduler was built without Builder::enable_coroutines"
    );
    let _function = error.into_inner();
    assert_conserved(&scheduler);
}

#[test]
fn a_coroutine_stays_on_the_thread_that_began_it() {
    let scheduler = threaded(3);
    let coroutines: Vec<_> = (0..30)
        .map(|_| {
            coroutine(&scheduler, |cx| {
                // Neither this value nor a guard of std may go to another thread.
                let own = Rc::new(Cell::new(0));
                let before = this_thread();
                for round in 0..50 {
                    own.set(own.get() + 1);
                    match round % 3 {
                        0 => cx.yield_now(),
                        1 => cx.sleep(Duration::from_nanos(1)),
                        _ => cx.wait(spawn(async {})).expect("it does not panic"),
                    }
                    assert_eq!(this_thread(), before);
                }
                own.get()
            })
        })
        .collect();
    for coroutine in coroutines {
        assert_eq!(coroutine.join(), Ok(50));
    }
}

#[test]
fn coroutines_are_spread_before_they_begin() {
    let scheduler = threaded(2);
    let (gate, open) = channel::bounded::<()>(0);
    let (begun, begins) = mpsc::channel();
    let spawns = coroutine(&scheduler, move |_| {
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (open, begun) = (open.clone(), begun.clone());
                spawn_coroutine(move |cx: coroutine::Context<()>| {
                    begun.send(this_thread()).expect("the test counts");
                    cx.wait(open.recv())
                })
                .expect("they are enabled")
            })
            .collect();
        all.into_iter().for_each(|child| assert_eq!(wait(child), Ok(None)));
    });
    let threads: Vec<_> = (0..100).map(|_| soon(&begins)).collect();
    let here = threads.iter().filter(|&&thread| thread == threads[0]).count();
    assert!((30..=70).contains(&here), "{here} of 100 on one of two threads");
    drop(gate);
    assert_eq!(spawns.join(), Ok(()));
}

#[test]
fn a_new_coroutine_is_left_to_others_for_a_while_only() {
    // One worker is busy, and no other thread takes its place.
    let scheduler = enabled(Scheduler::builder().worker_threads(2).max_threads(2));
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let blocks = scheduler.spawn(async move {
        ready.send(()).expect("the test waits");
        goes_on.recv()
    });
    soon(&is_ready);
    let turns = coroutine(&scheduler, |cx| {
        let (begun, begins) = mpsc::channel();
        let other =
            spawn_coroutine(move |_: coroutine::Context<()>| begun.send(this_thread()).is_ok());
        let mut turns = 0;
        let thread = loop {
            match begins.try_recv() {
                Ok(thread) => break thread,
                Err(_) => turns += 1,
            }
            cx.yield_now();
        };
        assert_eq!(thread, this_thread(), "the only one");
        assert_eq!(cx.wait(other.expect("they are enabled")), Ok(true));
        turns
    });
    let turns = turns.join().expect("it does not panic");
    assert!((10..=100).contains(&turns), "it was put off for {turns} turns");
    drop(go_on);
    assert!(blocks.join().expect("it does not panic").is_err());
}

#[test]
fn a_cancel_unwinds_where_the_coroutine_waits() {
    for scheduler in [driven(), threaded(2)] {
        let (noted, notes) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let sleeps = coroutine(&scheduler, move |cx| {
            let _noted = Noted(noted);
            ready.send(this_thread()).expect("the test waits");
            cx.sleep(Duration::from_secs(3600));
        });
        if scheduler.snapshot().workers.len() == 1 {
            scheduler.run_until_idle();
        }
        soon(&is_ready);
        sleeps.cancel();
        assert_eq!(sleeps.join(), Err(Exit::Shutdown));
        soon(&notes);
        assert_conserved(&scheduler);
    }
}

#[test]
fn what_is_ready_is_had_before_a_cancel_unwinds() {
    let scheduler = driven();
    let (sender, receiver) = channel::bounded(0);
    let receives = coroutine(&scheduler, move |cx| {
        let first = cx.wait(receiver.recv());
        let second = catch_unwind(AssertUnwindSafe(|| cx.wait(receiver.recv())));
        assert!(coroutine::is_unwinding(&*second.expect_err("it was cancelled")));
        first
    });
    scheduler.run_until_idle();
    sender.try_send(7).expect("it waits");
    receives.cancel();
    assert_eq!(receives.join(), Ok(Some(7)));
}

#[test]
fn a_shield_holds_a_cancel_back() {
    let scheduler = driven();
    let cleans = coroutine(&scheduler, |cx| {
        let mut steps = Vec::new();
        let waits = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(10))));
        steps.push(waits.is_err());
        coroutine::shield(|| cx.sleep(Duration::from_secs(1)));
        steps.push(catch_unwind(AssertUnwindSafe(|| cx.yield_now())).is_err());
        steps
    });
    scheduler.run_until_idle();
    cleans.cancel();
    assert_eq!(cleans.join(), Ok(vec![true, true]));
    assert_eq!(scheduler.now(), scheduler.now());
}

#[test]
fn a_terminated_coroutine_is_unwound_on_its_thread() {
    for scheduler in [driven(), threaded(2)] {
        let (noted, notes) = mpsc::channel();
        struct OnThread(ThreadId, mpsc::Sender<bool>);
        impl Drop for OnThread {
            fn drop(&mut self) {
                let _ = self.1.send(self.0 == this_thread() && coroutine::is_coroutine());
            }
        }
        let (ready, is_ready) = mpsc::channel();
        let waits = coroutine(&scheduler, move |mut cx| {
            let _on_thread = OnThread(this_thread(), noted);
            ready.send(()).expect("the test waits");
            cx.recv();
        });
        if scheduler.snapshot().workers.len() == 1 {
            scheduler.run_until_idle();
        }
        soon(&is_ready);
        assert!(scheduler.terminate(waits.pid()));
        assert_eq!(waits.join(), Err(Exit::Killed));
        assert!(soon(&notes));
        soon_closed(&notes);
    }
}

#[test]
fn a_coroutine_that_swallows_its_unwinding_a_few_times_ends_well() {
    let scheduler = driven();
    let stubborn = coroutine(&scheduler, |cx| {
        let mut caught = 0;
        while caught < 10 {
            caught += u32::from(
                catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(1)))).is_err(),
            );
        }
        caught
    });
    scheduler.run_until_idle();
    stubborn.cancel();
    assert_eq!(stubborn.join(), Ok(10));
    let stubborn = coroutine(&scheduler, |cx| {
        for _ in 0..10 {
            assert!(catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(1)))).is_err());
        }
    });
    scheduler.run_until_idle();
    scheduler.terminate(stubborn.pid());
    assert_eq!(stubborn.join(), Err(Exit::Killed));
}

#[test]
fn a_coroutine_that_swallows_its_unwinding_for_ever_ends_without_its_stack() {
    for terminate in [false, true] {
        // A scheduler of its own, since its thread never ends.
        let scheduler = threaded(1);
        let (ready, is_ready) = mpsc::channel();
        let stuck = coroutine(&scheduler, move |cx| {
            ready.send(()).expect("the test waits");
            loop {
                let _ = catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(3600))));
            }
        });
        soon(&is_ready);
        if terminate {
            scheduler.terminate(stuck.pid());
        } else {
            stuck.cancel();
        }
        let exit: Result<(), _> = stuck.join();
        assert_eq!(exit, Err(Exit::Killed));
        assert_eq!(coroutine(&scheduler, |_| 1).join(), Ok(1), "its worker goes on");
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_shutdown_unwinds_all_coroutines_in_time() {
    let scheduler = threaded(2);
    let (noted, notes) = mpsc::channel();
    let children: Vec<_> = (0..20)
        .map(|number| {
            let noted = noted.clone();
            coroutine(&scheduler, move |mut cx| {
                let _noted = Noted(noted);
                match number % 4 {
                    0 => drop(cx.recv()),
                    1 => cx.sleep(Duration::from_secs(3600)),
                    2 => loop {
                        cx.yield_now();
                    },
                    // Shielded from a cancel, but not from being terminated.
                    _ => coroutine::shield(|| cx.sleep(Duration::from_secs(3600))),
                }
            })
        })
        .collect();
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(2)));
    assert!(unfinished.is_empty(), "{unfinished:?}");
    drop(noted);
    assert_eq!(notes.iter().count(), 20);
    let exits: BTreeSet<_> =
        children.into_iter().map(|child| format!("{:?}", child.join())).collect();
    assert_eq!(exits.into_iter().collect::<Vec<_>>(), ["Err(Killed)", "Err(Shutdown)", "Ok(())"]);
}

#[test]
fn dropping_the_scheduler_unwinds_all_coroutines() {
    for scheduler in [driven(), threaded(2)] {
        let (noted, notes) = mpsc::channel();
        for _ in 0..10 {
            // Dropped whether the coroutine has begun or not.
            let noted = Noted(noted.clone());
            drop(coroutine(&scheduler, move |cx| {
                let _noted = noted;
                cx.sleep(Duration::from_secs(3600));
            }));
        }
        if scheduler.snapshot().workers.len() == 1 {
            scheduler.run_until_idle();
        }
        drop(noted);
        drop(scheduler);
        for _ in 0..10 {
            soon(&notes);
        }
        soon_closed(&notes);
    }
}

#[test]
fn a_panic_in_a_destructor_of_an_unwound_coroutine_harms_nobody() {
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            let inner = catch_unwind(|| resume_unwind(Box::new("inside")));
            assert!(inner.is_err());
        }
    }
    let scheduler = driven();
    let child = coroutine(&scheduler, |cx| {
        let _fails = Fails;
        if catch_unwind(AssertUnwindSafe(|| cx.sleep(Duration::from_secs(1)))).is_err() {
            panic_quietly("instead")
        }
    });
    scheduler.run_until_idle();
    child.cancel();
    assert_eq!(child.join(), Err(Exit::Panicked("instead".into())));
}

#[test]
fn where_a_coroutine_cannot_be_suspended_its_thread_blocks() {
    struct Waits(channel::Receiver<u32>, mpsc::Sender<(bool, Option<u32>)>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.1.send((coroutine::may_suspend(), wait(self.0.recv()))).expect("the test looks");
        }
    }
    let scheduler = threaded(2);
    let (sender, receiver) = channel::bounded(0);
    let (seen, sees) = mpsc::channel();
    let child = coroutine(&scheduler, move |cx| {
        let before = this_thread();
        let quiet = coroutine::no_suspend(|| {
            assert!(coroutine::is_coroutine() && !coroutine::may_suspend());
            cx.wait(receiver.recv())
        });
        assert_eq!((quiet, this_thread()), (Some(1), before));
        // In the poll of another future.
        let nested =
            cx.wait(poll_fn(|_| Poll::Ready((coroutine::may_suspend(), wait(receiver.recv())))));
        assert_eq!(nested, (false, Some(2)));
        assert!(coroutine::may_suspend());
        let _waits = Waits(receiver, seen);
        panic_quietly("with a destructor that waits")
    });
    for n in 1..=3 {
        sender.send(n).wait().expect("it receives");
    }
    assert_eq!(soon(&sees), (false, Some(3)));
    let exit: Result<(), _> = child.join();
    assert!(exit.is_err_and(|exit| exit.is_panic()));
}

#[test]
fn a_suspension_is_ended_by_its_own_token_only() {
    let scheduler = driven();
    let minute = Duration::from_secs(60);
    let child = coroutine(&scheduler, move |_| {
        let first = coroutine::token()?;
        assert!(first.wake(), "before it is suspended");
        assert!(!first.wake(), "it was woken");
        assert!(coroutine::suspend(None)?);
        assert!(!first.wake(), "it is over");

        let begun = Instant::now();
        let late = coroutine::token()?;
        assert!(!coroutine::suspend(Some(minute))?);
        assert_eq!(Instant::now() - begun, minute);
        assert!(!late.wake());

        let token = coroutine::token()?;
        drop(spawn(async move {
            sleep(Duration::from_secs(5)).await;
            assert!(token.wake());
        }));
        assert!(coroutine::suspend(Some(minute))?);
        assert_eq!(Instant::now() - begun, minute + Duration::from_secs(5));
        coroutine::token()
    });
    let token = child.join().expect("it does not panic").expect("it is a coroutine");
    assert!(token.wake(), "the token harms nothing");
    assert_eq!(coroutine::suspend(None), Err(coroutine::NoCoroutine));
    assert_eq!(coroutine::token().expect_err("no coroutine").to_string(), "no coroutine runs here");
}

#[test]
fn tokens_and_timeouts_race_without_a_loss() {
    let scheduler = threaded(2);
    let (tokens, to_wake) = mpsc::channel::<coroutine::Token>();
    let sleeper = coroutine(&scheduler, move |_| {
        let mut woken = 0;
        for round in 0..300 {
            tokens.send(coroutine::token()?).expect("the test wakes it");
            let patience = (round % 2 == 0).then_some(Duration::from_micros(round % 7));
            woken += u32::from(coroutine::suspend(patience)?);
        }
        Ok::<_, coroutine::NoCoroutine>(woken)
    });
    let woke = to_wake.iter().map(|token| u32::from(token.wake())).sum::<u32>();
    assert_eq!(sleeper.join(), Ok(Ok(woke)), "a token that reports a wake-up caused one");
}

#[test]
fn locals_are_each_coroutines_own_and_go_with_it() {
    static NAMES: coroutine::Local<RefCell<Vec<String>>> =
        coroutine::Local::new(|| RefCell::new(Vec::new()));
    static NOTED: coroutine::Local<RefCell<Option<Noted>>> =
        coroutine::Local::new(|| RefCell::new(None));
    let add = |name: &str| {
        NAMES.with(|names| {
            names.borrow_mut().push(name.to_owned());
            names.borrow().len()
        })
    };
    let scheduler = driven();
    let (noted, notes) = mpsc::channel();
    let children: Vec<_> = (0..3)
        .map(|_| {
            let noted = noted.clone();
            coroutine(&scheduler, move |cx| {
                NOTED.with(|slot| *slot.borrow_mut() = Some(Noted(noted)));
                add("a");
                cx.yield_now();
                add("b")
            })
        })
        .collect();
    drop(noted);
    for child in children {
        assert_eq!(child.join(), Ok(2));
        soon(&notes);
    }
    soon_closed(&notes);
    assert_eq!((add("x"), add("y")), (1, 2), "of the thread");
    let (noted, notes) = mpsc::channel();
    let killed = coroutine(&scheduler, move |mut cx| {
        NOTED.with(|slot| *slot.borrow_mut() = Some(Noted(noted)));
        cx.recv()
    });
    scheduler.run_until_idle();
    scheduler.terminate(killed.pid());
    assert_eq!(killed.join(), Err(Exit::Killed));
    soon(&notes);
}

#[test]
fn blocking_lends_what_it_borrows_and_frees_the_worker() {
    let scheduler = threaded(1);
    let (go, may_go) = mpsc::channel::<()>();
    let blocks = coroutine(&scheduler, move |_| {
        let (own, before) = (vec![1, 2, 3], this_thread());
        let borrowed = &own;
        let sum = coroutine::blocking(move || {
            may_go.recv().expect("the other sends");
            (borrowed.iter().sum::<u32>(), this_thread())
        });
        let (sum, thread) = sum.ok().expect("the system has threads");
        assert!(thread != before && this_thread() == before);
        sum + own[0]
    });
    let others = coroutine(&scheduler, move |cx| {
        cx.yield_now();
        go.send(()).expect("it waits");
    });
    assert_eq!((others.join(), blocks.join()), (Ok(()), Ok(7)));
    let fails = coroutine(&scheduler, |_| {
        coroutine::blocking(|| panic_quietly("over there")).is_ok_and(|never: bool| never)
    });
    let fails = fails.join();
    assert_eq!(fails, Err(Exit::Panicked("over there".into())));
    assert_eq!(
        coroutine::blocking(this_thread).ok(),
        Some(this_thread()),
        "a plain thread does it itself"
    );
}

#[test]
fn nothing_unwinds_a_coroutine_while_its_blocking_function_runs() {
    for terminate in [false, true] {
        let scheduler = threaded(2);
        let (go, may_go) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (seen, sees) = mpsc::channel();
        let child = coroutine(&scheduler, move |cx| {
            let own = String::from("here");
            let own = &own;
            let done = coroutine::blocking(move || {
                begun.send(()).expect("the test waits");
                may_go.recv().expect("the test sends");
                seen.send(own.clone()).expect("the test looks");
            });
            assert!(done.is_ok());
            cx.yield_now();
        });
        soon(&begins);
        if terminate {
            scheduler.terminate(child.pid());
        } else {
            child.cancel();
        }
        let child = child.join_timeout(Duration::from_millis(20)).expect_err("it is lent");
        go.send(()).expect("it waits");
        assert_eq!(soon(&sees), "here");
        assert_eq!(child.join(), Err(if terminate { Exit::Killed } else { Exit::Shutdown }));
    }
}

#[test]
fn a_coroutine_waits_for_all_that_others_await() {
    let scheduler = threaded(1);
    let own = scheduler.clone();
    let child = coroutine(&scheduler, move |cx| {
        // With one worker, anything that blocked its thread would wait forever.
        let joined = own.spawn(async { 1 }).join().expect("it does not panic");
        let ran = own.block_on(async {
            yield_now().await;
            spawn(async { 2 }).await.expect("it does not panic")
        });
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock().wait();
        let other = Arc::clone(&lock);
        let adds = start(move |_: procession::Context<()>| async move { *other.lock().await += 1 });
        cx.yield_now();
        drop(guard);
        cx.wait(adds).expect("it does not panic");
        let (sender, receiver) = channel::bounded(0);
        drop(spawn(async move { sender.send(3).await }));
        let selected =
            Select::new().recv(&receiver, |n| n).timeout(Duration::from_secs(20), || None).wait();
        let second =
            Scheduler::builder().worker_threads(1).build().expect("the system has threads");
        let elsewhere =
            second.block_on(async { spawn(async { 4 }).await.expect("it does not panic") });
        (joined, ran, *lock.lock().wait(), selected, elsewhere)
    });
    assert_eq!(child.join(), Ok((1, 2, 1, Some(3), 4)));
}

#[test]
fn a_scheduler_driven_inside_a_coroutine_has_coroutines_of_its_own() {
    let scheduler = threaded(1);
    let child = coroutine(&scheduler, |cx| {
        let inner = driven();
        let sum = inner.block_on(async {
            let one = spawn_coroutine(|cx: coroutine::Context<()>| {
                cx.sleep(Duration::from_secs(3600));
                coroutine::may_suspend()
            });
            one.expect("they are enabled").await
        });
        assert_eq!(sum, Ok(true));
        assert!(coroutine::may_suspend());
        cx.yield_now();
        "outside again"
    });
    assert_eq!(child.join(), Ok("outside again"));
}

#[test]
fn a_coroutine_of_a_driven_scheduler_waits_for_its_thread() {
    let scheduler = driven();
    let (sender, receiver) = channel::bounded(0);
    let child = coroutine(&scheduler, move |cx| {
        let before = this_thread();
        let message = cx.wait(receiver.recv());
        (message, this_thread() == before)
    });
    scheduler.run_until_idle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Wakes the coroutine, but must not run it.
            scheduler.block_on(async { sender.send(7).await }).expect("it waits");
            assert_eq!(scheduler.snapshot().workers[0].bound, 1);
        });
    });
    assert_eq!(child.join(), Ok((Some(7), true)));
}

#[test]
fn beyond_the_limit_of_stacks_coroutines_wait_before_they_begin() {
    for width in [1, 3] {
        let scheduler = enabled(Scheduler::builder().worker_threads(width).max_stacks(4));
        let children: Vec<_> = (0..200_u32)
            .map(|number| {
                coroutine(&scheduler, move |cx| {
                    for _ in 0..3 {
                        cx.yield_now();
                    }
                    number
                })
            })
            .collect();
        let sum: u32 =
            children.into_iter().map(|child| child.join().expect("it does not panic")).sum();
        assert_eq!(sum, 199 * 100);
    }
    let scheduler = enabled(Scheduler::builder().worker_threads(1));
    let huge = SpawnOptions::new()
        .on(&scheduler)
        .stack_size(usize::MAX)
        .spawn_coroutine(|_: coroutine::Context<()>| ());
    let exit =
        huge.expect("it is refused when it begins").join().expect_err("nothing is that large");
    assert!(
        exit.to_string().starts_with("the process failed: no stack of 18446744073709551615 bytes"),
        "{exit}"
    );
}

/// Goal: the only stack comes back just as another coroutine finds none, and that coroutine gets
/// it. Method: pairs of coroutines on two workers, where nothing else would wake the one that
/// waits.
#[test]
fn a_coroutine_that_waits_for_the_last_stack_gets_it() {
    const PAIRS: u32 = 20_000;
    let scheduler = enabled(Scheduler::builder().worker_threads(2).max_stacks(1));
    let (ended, ends) = mpsc::channel();
    for _ in 0..PAIRS {
        for seat in 0..2 {
            let ended = ended.clone();
            let options = SpawnOptions::new().on(&scheduler).affinity(seat);
            let child = options.spawn_coroutine(move |_: coroutine::Context<()>| {
                ended.send(()).expect("the test listens")
            });
            drop(child.expect("coroutines are enabled"));
        }
        soon(&ends);
        soon(&ends);
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_stack_is_as_large_as_was_asked() {
    fn deep(levels: usize) -> usize {
        let frame = std::hint::black_box([levels as u8; 1024]);
        if levels == 0 { 0 } else { deep(levels - 1) + usize::from(frame[7] == levels as u8) }
    }
    let scheduler = threaded(1);
    let child = SpawnOptions::new()
        .on(&scheduler)
        .stack_size(8 << 20)
        .spawn_coroutine(|_: coroutine::Context<()>| deep(3000));
    assert_eq!(child.expect("they are enabled").join(), Ok(3000));
}

#[test]
fn migratable_coroutines_run_wherever_there_is_room() {
    let scheduler = threaded(3);
    let children: Vec<_> = (0..20)
        .map(|_| {
            let options = SpawnOptions::new().on(&scheduler);
            // SAFETY: nothing but numbers lives on its stack while it waits.
            let child = unsafe {
                options.spawn_migratable(|mut cx: coroutine::Context<u32>| {
                    let mut sum = 0;
                    while let Some(n) = cx.recv() {
                        sum += n;
                        cx.yield_now();
                    }
                    sum
                })
            };
            child.expect("they are enabled")
        })
        .collect();
    for child in &children {
        (1..=100).for_each(|n| child.send(n).expect("it receives"));
    }
    for child in children {
        while scheduler
            .snapshot()
            .processes
            .iter()
            .any(|other| other.pid == child.pid() && other.mailbox > 0)
        {
            std::thread::yield_now();
        }
        child.cancel();
        assert!(child.join().is_ok_and(|sum| sum == 5050) || scheduler.snapshot().panicked == 0);
    }
}

#[test]
fn coroutines_async_processes_and_channels_mix_under_load() {
    let scheduler = threaded(3);
    let (sender, receiver) = channel::bounded(3);
    let producers: Vec<_> = (0..20_u64)
        .map(|from| {
            let sender = sender.clone();
            coroutine(&scheduler, move |cx| {
                for n in 0..50 {
                    cx.wait(sender.send(from * 50 + n)).expect("they receive");
                }
            })
        })
        .collect();
    drop(sender);
    let consumers: Vec<_> = (0..4)
        .map(|number| {
            let receiver = receiver.clone();
            if number % 2 == 0 {
                coroutine(&scheduler, move |cx| {
                    std::iter::from_fn(|| cx.wait(receiver.recv())).sum::<u64>()
                })
                .into_parts()
                .1
            } else {
                scheduler.spawn(async move {
                    let mut sum = 0;
                    while let Some(n) = receiver.recv().await {
                        sum += n;
                    }
                    sum
                })
            }
        })
        .collect();
    for producer in producers {
        assert_eq!(producer.join(), Ok(()));
    }
    let sum: u64 =
        consumers.into_iter().map(|consumer| consumer.join().expect("it does not panic")).sum();
    assert_eq!(sum, 999 * 500);
    assert_conserved(&scheduler);
}

#[test]
fn the_same_seed_makes_the_same_dispatches() {
    let run = || {
        let scheduler =
            enabled(Scheduler::builder().worker_threads(1).test_clock().seed(5).shuffled());
        scheduler.block_on(async {
            let (sender, receiver) = channel::unbounded();
            let children: Vec<_> = (0..20_u64)
                .map(|number| {
                    let sender = sender.clone();
                    spawn_coroutine(move |cx: coroutine::Context<()>| {
                        for round in 0..5 {
                            cx.sleep(Duration::from_nanos(number % 3));
                            sender.try_send((number, round)).expect("it is unbounded");
                            cx.yield_now();
                        }
                    })
                    .expect("they are enabled")
                })
                .collect();
            for child in children {
                child.await.expect("it does not panic");
            }
            drop(sender);
            let mut trace = Vec::new();
            while let Some(step) = receiver.recv().await {
                trace.push(step);
            }
            trace
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn the_snapshot_shows_coroutines_and_what_they_wait_for() {
    let scheduler = driven();
    let waits = coroutine(&scheduler, |_| coroutine::suspend(None));
    scheduler.run_until_idle();
    let snapshot = scheduler.snapshot();
    assert_eq!(
        (snapshot.processes[0].kind, snapshot.processes[0].waiting.for_token()),
        ("coroutine", true)
    );
    waits.cancel();
    assert_eq!(waits.join(), Err(Exit::Shutdown));
}

#[test]
fn outside_of_coroutines_the_functions_do_what_comes_nearest() {
    assert!(!coroutine::is_coroutine() && !coroutine::may_suspend());
    coroutine::yield_now();
    coroutine::sleep(Duration::from_nanos(1));
    assert_eq!(
        (coroutine::no_suspend(|| 1), coroutine::shield(|| 2), coroutine::wait(async { 3 })),
        (1, 2, 3)
    );
    let scheduler = threaded(2);
    // In an async process they block its worker.
    let blocks = scheduler.spawn(async {
        coroutine::sleep(Duration::from_nanos(1));
        let mut receives = pin!(async { coroutine::is_coroutine() });
        receives.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
    });
    assert_eq!(blocks.join(), Ok(Poll::Ready(false)));
}

/// One worker, which is the thread that calls, and the real clock.
fn driven_by_callers() -> Scheduler {
    enabled(Scheduler::builder().worker_threads(1).callers_drive())
}

/// Runs a function on a thread that has ended afterwards, with all its locals.
fn until_it_ends<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    // A scope does not wait for the locals of its threads, but a join does.
    std::thread::scope(|scope| scope.spawn(function).join().expect("it does not panic"))
}

/// A thread that drives `scheduler` until a coroutine that runs `function` has begun on it.
fn begin_and_end<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> procession::Child<(), T> {
    until_it_ends(|| {
        let child = coroutine(scheduler, function);
        scheduler.run_until_idle();
        child
    })
}

#[test]
fn a_callers_thread_that_ends_unwinds_its_coroutines() {
    for scheduler in [driven_by_callers(), driven()] {
        let (noted, notes) = mpsc::channel();
        let first = begin_and_end(&scheduler, move |mut cx| {
            let _noted = Noted(noted);
            cx.recv()
        });
        notes.try_recv().expect("it is unwound before the thread has ended");
        // Others drive, and joins complete.
        assert_eq!(scheduler.block_on(async { spawn(async { 1 }).await }), Ok(1));
        assert_eq!(first.join(), Err(Exit::ThreadEnded));
        assert_eq!(coroutine(&scheduler, |_| 2).join(), Ok(2));
        assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(20))).is_empty());
    }
}

#[test]
fn a_thread_that_ends_wakes_a_caller_that_waits_for_its_coroutines() {
    let scheduler = driven_by_callers();
    let (tells, waits) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    std::thread::scope(|scope| {
        let own = &scheduler;
        let owner = scope.spawn(move || {
            let child = coroutine(own, |mut cx| cx.recv());
            own.run_until_idle();
            begun.send(()).expect("the test listens");
            soon(&waits);
            child
        });
        soon(&begins);
        // It is polled on a thread that has no seat, and so nothing runs for it.
        let ran = scheduler.block_on(async {
            let runs = spawn(async { 1 });
            tells.send(()).expect("the owner listens");
            runs.await
        });
        assert_eq!(ran, Ok(1));
        let child = owner.join().expect("it ends");
        assert_eq!(child.join(), Err(Exit::ThreadEnded));
    });
}

/// Goal: what a coroutine's frame has lent of a thread-local is still there while its thread ends.
#[test]
fn a_thread_local_outlives_the_coroutines_that_its_thread_unwinds() {
    struct Lent(procession_sync::atomic::AtomicBool);
    impl Drop for Lent {
        fn drop(&mut self) {
            self.0.store(false, procession_sync::atomic::Ordering::SeqCst);
        }
    }
    thread_local! {
        static LENT: Lent = const { Lent(procession_sync::atomic::AtomicBool::new(true)) };
    }
    let scheduler = driven_by_callers();
    let (seen, sees) = mpsc::channel();
    let child = begin_and_end(&scheduler, move |cx| {
        LENT.with(|lent| {
            struct AtEnd<'a>(&'a Lent, mpsc::Sender<bool>);
            impl Drop for AtEnd<'_> {
                fn drop(&mut self) {
                    let lives = self.0.0.load(procession_sync::atomic::Ordering::SeqCst);
                    self.1.send(lives).expect("the test listens");
                }
            }
            let _at_end = AtEnd(lent, seen);
            cx.sleep(Duration::from_secs(3600));
        });
    });
    assert!(soon(&sees), "it is destroyed while a frame refers to it");
    assert_eq!(child.join(), Err(Exit::ThreadEnded));
}

/// Goal: a thread that ends leaves to others what has not begun on it, also if that is bound to the
/// callers' worker, and what a coroutine's destructor starts.
#[test]
fn a_thread_that_ends_leaves_other_processes_to_the_next_caller() {
    let scheduler = driven_by_callers();
    let (tells, told) = mpsc::channel();
    let bound = SpawnOptions::new().on(&scheduler).affinity(0);
    let waits = bound.start(|mut cx: procession::Context<u32>| async move { cx.recv().await });
    let address = waits.address().clone();
    struct Starts(procession::Address<u32>, mpsc::Sender<procession::JoinHandle<ThreadId>>);
    impl Drop for Starts {
        fn drop(&mut self) {
            self.0.send(7).expect("it waits");
            self.1.send(spawn(async { this_thread() })).expect("the test listens");
        }
    }
    let own = begin_and_end(&scheduler, move |cx| {
        let _starts = Starts(address, tells);
        cx.sleep(Duration::from_secs(3600));
    });
    let started = soon(&told);
    assert_eq!(started.join(), Ok(this_thread()), "not on the thread that ended");
    assert_eq!((waits.join(), own.join()), (Ok(Some(7)), Err(Exit::ThreadEnded)));
    assert_conserved(&scheduler);
}

/// Goal: no coroutine is left behind by a thread that has already destroyed its thread locals.
#[test]
fn a_coroutine_that_begins_while_its_thread_ends_ends_with_the_drive() {
    struct AtEnd(RefCell<Option<(Scheduler, mpsc::Sender<procession::Child<(), ()>>)>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let (scheduler, children) = self.0.take().expect("it was set");
            let child = coroutine(&scheduler, |cx| cx.sleep(Duration::from_secs(3600)));
            scheduler.run_until_idle();
            children.send(child).expect("the test listens");
        }
    }
    thread_local! {
        static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
    }
    let scheduler = driven_by_callers();
    let (children, begun) = mpsc::channel();
    let first = until_it_ends(|| {
        // Before the runtime's own locals, and so destroyed after them.
        AT_END.with(|at_end| *at_end.0.borrow_mut() = Some((scheduler.clone(), children)));
        let child = coroutine(&scheduler, |cx| cx.sleep(Duration::from_secs(3600)));
        scheduler.run_until_idle();
        child
    });
    assert_eq!(first.join(), Err(Exit::ThreadEnded));
    assert_eq!(soon(&begun).join(), Err(Exit::ThreadEnded));
}

/// Goal: the end of the thread also ends a scheduler without any owner.
#[test]
fn a_scheduler_whose_owner_has_gone_ends_with_its_callers_thread() {
    let scheduler = driven_by_callers();
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let (noted, notes) = mpsc::channel();
    std::thread::scope(|scope| {
        let own = scheduler.clone();
        let owner = scope.spawn(move || {
            let child = coroutine(&own, move |mut cx| {
                let _noted = Noted(noted);
                cx.recv()
            });
            own.run_until_idle();
            drop(own);
            begun.send(child).expect("the test listens");
            soon(&goes);
        });
        let child = soon(&begins);
        drop(scheduler);
        assert!(notes.try_recv().is_err(), "it stays on its thread");
        go.send(()).expect("it waits");
        owner.join().expect("it ends");
        soon(&notes);
        assert_eq!(child.join(), Err(Exit::Killed));
    });
}

/// Goal: a coroutine that was sent to the callers' worker, and has not begun there, does not
/// reserve the seat. Method: the caller sits there in a poll, until the other worker has sent it
/// one.
#[test]
fn a_coroutine_that_has_not_begun_does_not_keep_the_callers_seat() {
    let builder = Scheduler::builder().worker_threads(2).callers_drive().watchdog(false);
    let scheduler = enabled(builder);
    let children = scheduler.block_on(async {
        let children: Vec<_> =
            (0..40).map(|_| coroutine(&scheduler, |mut cx| (cx.recv(), this_thread()).1)).collect();
        while scheduler.snapshot().workers[0].bound == 0 {
            std::thread::yield_now();
        }
        children
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for child in children {
                child.cancel();
                assert!(child.join().is_ok());
            }
        });
    });
    assert_conserved(&scheduler);
}
