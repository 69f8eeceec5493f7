//! What coroutines wait for: tokens, blocking functions, futures and other schedulers.

use crate::home::{mpsc, thread};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::coroutine::{Wait, wait};
use procession::observe::{ProcessInfo, ProcessState};
use procession::scheduler::MisplacedCall;
use procession::sync::{Mutex, Notify, Select, channel};
use procession::time::Instant;
use procession::{Exit, Scheduler, SpawnOptions, sleep, spawn, start, yield_now};

use super::{Noted, coroutine, driven, this_thread, threaded};
use crate::scene::{panic_quietly, soon, soon_closed};

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
    let child = coroutine(&scheduler, move |_| {
        let before = this_thread();
        let quiet = coroutine::no_suspend(|| {
            assert!(coroutine::is_coroutine() && !coroutine::may_suspend());
            wait(receiver.recv())
        });
        assert_eq!((quiet, this_thread()), (Some(1), before));
        // In the poll of another future.
        let nested =
            wait(poll_fn(|_| Poll::Ready((coroutine::may_suspend(), wait(receiver.recv())))));
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
    assert_eq!(coroutine::suspend(None), Err(MisplacedCall::OutsideCoroutine));
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
            let timeout = (round % 2 == 0).then_some(Duration::from_micros(round % 7));
            woken += u32::from(coroutine::suspend(timeout)?);
        }
        Ok::<_, MisplacedCall>(woken)
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
            coroutine(&scheduler, move |_| {
                NOTED.with(|slot| *slot.borrow_mut() = Some(Noted(noted)));
                add("a");
                coroutine::yield_now();
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
    procession::process::kill(killed.pid());
    assert_eq!(killed.join(), Err(Exit::Killed));
    soon(&notes);
}

/// Goal: the end of a blocking function does not wake a coroutine that is suspended, and the test
/// clock goes on. Method: the function waits until its coroutine has no step, and then suspends the
/// coroutine.
#[test]
fn a_coroutine_that_is_suspended_while_its_function_blocks_stands_still_after_it() {
    let scheduler = driven();
    let begin = scheduler.now();
    let (passes, passed) = mpsc::channel();
    let own = scheduler.clone();
    let blocks = coroutine(&scheduler, move |cx| {
        let pid = cx.pid();
        let suspended = coroutine::blocking(|| {
            let waits = |detail: ProcessInfo| detail.state == ProcessState::Blocked;
            while !own.detail(pid).is_some_and(waits) {
                thread::yield_now();
            }
            own.suspend(pid)
        });
        let suspended = suspended.ok();
        passes.send(suspended).expect("the test listens");
    });
    scheduler.run_until_idle();
    assert!(passed.try_recv().is_err(), "it stands still");
    assert_eq!(scheduler.now(), begin);
    assert_eq!(blocks.join(), Ok(()));
    assert_eq!(passed.try_recv(), Ok(Some(Ok(()))));
    assert_eq!(scheduler.now() - begin, Duration::from_secs(5), "the suspension ends by itself");
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
    let others = coroutine(&scheduler, move |_| {
        coroutine::yield_now();
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
        let child = coroutine(&scheduler, move |_| {
            let own = String::from("here");
            let own = &own;
            let done = coroutine::blocking(move || {
                begun.send(()).expect("the test waits");
                may_go.recv().expect("the test sends");
                seen.send(own.clone()).expect("the test looks");
            });
            assert!(done.is_ok());
            coroutine::yield_now();
        });
        soon(&begins);
        if terminate {
            procession::process::kill(child.pid());
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
    let child = coroutine(&scheduler, move |_| {
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
        coroutine::yield_now();
        drop(guard);
        wait(adds).expect("it does not panic");
        let (sender, receiver) = channel::bounded(0);
        drop(spawn(async move { sender.send(3).await }));
        let selected =
            Select::new().recv(&receiver, |n| n).timeout(Duration::from_secs(60), || None).wait();
        let second =
            Scheduler::builder().worker_threads(1).build().expect("the system has threads");
        let elsewhere =
            second.block_on(async { spawn(async { 4 }).await.expect("it does not panic") });
        (joined, ran, *lock.lock().wait(), selected, elsewhere)
    });
    assert_eq!(child.join(), Ok((1, 2, 1, Some(3), 4)));
}

/// Each poll needs more than the budget of a step, so each step would ask for another one.
#[test]
fn a_cancel_ends_a_wait_for_more_than_a_step_may_poll() {
    const POLLS_MAX: u32 = 20;
    fn many(none: &Notify) -> impl Future<Output = ()> {
        let mut waits: Vec<_> = (0..1000).map(|_| Box::pin(none.notified())).collect();
        let mut polls = 0;
        poll_fn(move |task| {
            polls += 1;
            let is_ready = waits.iter_mut().any(|wait| wait.as_mut().poll(task).is_ready());
            if is_ready || polls > POLLS_MAX { Poll::Ready(()) } else { Poll::Pending }
        })
    }
    let scheduler = driven();
    let unwinds = coroutine(&scheduler, |_| wait(many(&Notify::new())));
    let returns = coroutine(&scheduler, |_| coroutine::try_wait(many(&Notify::new())));
    unwinds.cancel();
    returns.cancel();
    assert_eq!(unwinds.join(), Err(Exit::Shutdown));
    assert_eq!(returns.join(), Ok(Err(coroutine::Interrupted::Cancelled)));
}

#[test]
fn a_scheduler_driven_inside_a_coroutine_has_coroutines_of_its_own() {
    let scheduler = threaded(1);
    let child = coroutine(&scheduler, |_| {
        let inner = driven();
        let sum = inner.block_on(async {
            let one = SpawnOptions::new().try_start_coroutine(|_: coroutine::Context<()>| {
                coroutine::sleep(Duration::from_secs(3600));
                coroutine::may_suspend()
            });
            one.expect("they are enabled").await
        });
        assert_eq!(sum, Ok(true));
        assert!(coroutine::may_suspend());
        coroutine::yield_now();
        "outside again"
    });
    assert_eq!(child.join(), Ok("outside again"));
}

#[test]
fn a_coroutine_of_a_driven_scheduler_waits_for_its_thread() {
    let scheduler = driven();
    let (sender, receiver) = channel::bounded(0);
    let child = coroutine(&scheduler, move |_| {
        let before = this_thread();
        let message = wait(receiver.recv());
        (message, this_thread() == before)
    });
    scheduler.run_until_idle();
    crate::home::thread::scope(|scope| {
        scope.spawn(|| {
            // Wakes the coroutine, but must not run it.
            scheduler.block_on(async { sender.send(7).await }).expect("it waits");
            assert_eq!(scheduler.snapshot().workers[0].bound, 1);
        });
    });
    assert_eq!(child.join(), Ok((Some(7), true)));
}
