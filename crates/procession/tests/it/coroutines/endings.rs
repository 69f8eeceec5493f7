//! Cancels, kills and shutdowns of coroutines.

use crate::home::mpsc;
use crate::home::thread::ThreadId;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use procession::Exit;
use procession::sync::channel;

use super::{Noted, coroutine, driven, this_thread, threaded};
use crate::scene::{TIMEOUT, assert_conserved, panic_quietly, soon, soon_closed};

#[test]
fn a_cancel_unwinds_where_the_coroutine_waits() {
    for scheduler in [driven(), threaded(2)] {
        let (noted, notes) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let sleeps = coroutine(&scheduler, move |_| {
            let _noted = Noted(noted);
            ready.send(this_thread()).expect("the test waits");
            coroutine::sleep(Duration::from_secs(3600));
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
    let receives = coroutine(&scheduler, move |_| {
        let first = coroutine::wait(receiver.recv());
        let second = catch_unwind(AssertUnwindSafe(|| coroutine::wait(receiver.recv())));
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
    let cleans = coroutine(&scheduler, |_| {
        let mut steps = Vec::new();
        let waits = catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(10))));
        steps.push(waits.is_err());
        coroutine::shield(|| coroutine::sleep(Duration::from_secs(1)));
        steps.push(catch_unwind(AssertUnwindSafe(coroutine::yield_now)).is_err());
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
        assert!(procession::process::kill(waits.pid()));
        assert_eq!(waits.join(), Err(Exit::Killed));
        assert!(soon(&notes));
        soon_closed(&notes);
    }
}

#[test]
fn a_coroutine_that_swallows_its_unwinding_a_few_times_ends_well() {
    let scheduler = driven();
    let stubborn = coroutine(&scheduler, |_| {
        let mut caught = 0;
        while caught < 10 {
            caught += u32::from(
                catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(1))))
                    .is_err(),
            );
        }
        caught
    });
    scheduler.run_until_idle();
    stubborn.cancel();
    assert_eq!(stubborn.join(), Ok(10));
    let stubborn = coroutine(&scheduler, |_| {
        for _ in 0..10 {
            assert!(
                catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(1))))
                    .is_err()
            );
        }
    });
    scheduler.run_until_idle();
    procession::process::kill(stubborn.pid());
    assert_eq!(stubborn.join(), Err(Exit::Killed));
}

#[test]
fn a_coroutine_that_swallows_its_unwinding_for_ever_ends_without_its_stack() {
    for terminate in [false, true] {
        // A scheduler of its own, since its thread never ends.
        let scheduler = threaded(1);
        let (ready, is_ready) = mpsc::channel();
        let stuck = coroutine(&scheduler, move |_| {
            ready.send(()).expect("the test waits");
            loop {
                let _ =
                    catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(3600))));
            }
        });
        soon(&is_ready);
        if terminate {
            procession::process::kill(stuck.pid());
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
    for has_threads in [false, true] {
        let scheduler = if has_threads { threaded(2) } else { driven() };
        let (noted, notes) = mpsc::channel();
        let (begins, begun) = mpsc::channel();
        let children: Vec<_> = (0..20)
            .map(|number| {
                let (noted, begins) = (noted.clone(), begins.clone());
                coroutine(&scheduler, move |mut cx| {
                    let _noted = Noted(noted);
                    begins.send(()).expect("the test listens");
                    match number % 4 {
                        0 => drop(cx.recv()),
                        1 => coroutine::sleep(Duration::from_secs(3600)),
                        2 => loop {
                            coroutine::yield_now();
                        },
                        // Shielded from a cancel, but not from being terminated.
                        _ => coroutine::shield(|| coroutine::sleep(Duration::from_secs(3600))),
                    }
                })
            })
            .collect();
        if has_threads {
            (0..20).for_each(|_| soon(&begun));
        }
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(2)));
        // On a busy machine, the last 100 ms may be too short to unwind all of them.
        assert!(has_threads || unfinished.processes.is_empty(), "{unfinished:?}");
        assert!(scheduler.block_on(scheduler.shutdown(TIMEOUT)).is_empty());
        drop(noted);
        assert_eq!(notes.iter().count(), 20);
        let exits: Vec<_> =
            children.into_iter().map(|child| format!("{:?}", child.join())).collect();
        let killed = exits.iter().filter(|exit| *exit == "Err(Killed)").count();
        let exits: BTreeSet<_> = exits.iter().map(String::as_str).collect();
        let expected = BTreeSet::from(["Err(Killed)", "Err(Shutdown)", "Ok(())"]);
        if has_threads {
            // Some of those that had not ended may have begun to end by themselves.
            let most = unfinished.terminated.len() + unfinished.processes.len();
            assert!((5..=most).contains(&killed), "{killed} were killed: {unfinished}");
            assert!(exits.is_subset(&expected), "{exits:?}");
        } else {
            assert_eq!(unfinished.terminated.len(), killed, "{unfinished}");
            assert_eq!(exits, expected);
        }
    }
}

#[test]
fn dropping_the_scheduler_unwinds_all_coroutines() {
    for scheduler in [driven(), threaded(2)] {
        let (noted, notes) = mpsc::channel();
        for _ in 0..10 {
            // Dropped whether the coroutine has begun or not.
            let noted = Noted(noted.clone());
            drop(coroutine(&scheduler, move |_| {
                let _noted = noted;
                coroutine::sleep(Duration::from_secs(3600));
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
    let child = coroutine(&scheduler, |_| {
        let _fails = Fails;
        if catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(1)))).is_err() {
            panic_quietly("instead")
        }
    });
    scheduler.run_until_idle();
    child.cancel();
    assert_eq!(child.join(), Err(Exit::Panicked("instead".into())));
}
