//! Requests to processes of a running scheduler: what they show of themselves, suspensions, and
//! stacks.
//!
//! Method: most schedulers are driven by the test, on a test clock, so that a time that is over is
//! over at once.

mod messages;
#[cfg(feature = "door")]
mod stacks;

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::observe::{AskError, Inspection, ProcessState};
use procession::process::{OnCancel, cancel, kill};
use procession::sync::oneshot;
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, sleep, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::{AtomicBool, AtomicU32};

use crate::home::mpsc::{Sender, channel};
use crate::home::thread;
use crate::scene::{driven, panic_quietly, soon, threaded};

const LONG: Duration = Duration::from_secs(3600);

/// Inspects on a thread of the scheduler. Asks again if other programs keep the process from its
/// answer for the second that it has.
fn inspect(scheduler: &Scheduler, pid: Pid) -> Result<Inspection, AskError> {
    let ask = || scheduler.block_on(scheduler.inspect(pid));
    std::iter::repeat_with(ask)
        .find(|asked| !matches!(asked, Err(AskError::TimedOut)))
        .expect("it asks until it is answered")
}

#[track_caller]
fn fields(shown: &Inspection) -> Vec<(String, String)> {
    shown.fields().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Adds numbers, and shows their sum.
struct Sum(u64);

impl Process for Sum {
    type Input = bool;
    type Message = u64;
    type Output = ();

    fn init(&mut self, _: &str, _: bool) -> Result<(), InitError> {
        Ok(())
    }

    fn inspect(&self, shown: &mut Inspection) {
        assert!(self.0 != 13, "no luck");
        shown.field("sum", self.0);
    }

    fn step(
        &mut self,
        events: &mut Events<u64>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
        for event in events {
            if let Event::Message(number) = event {
                self.0 += number;
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn a_state_machine_shows_itself_ahead_of_its_messages() {
    let scheduler = driven();
    let sum = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Sum(5), "", true)
        .expect("it takes any input");
    scheduler.run_until_idle();
    sum.send(2).expect("it lives");
    assert_eq!(
        fields(&inspect(&scheduler, sum.pid()).expect("it answers")),
        [("sum".into(), "5".into())]
    );
    scheduler.run_until_idle();
    let shown = inspect(&scheduler, sum.pid()).expect("it answers");
    assert_eq!(fields(&shown), [("sum".into(), "7".into())]);
    sum.send(6).expect("it lives");
    scheduler.run_until_idle();
    let panicked = inspect(&scheduler, sum.pid()).expect_err("13 is no luck");
    assert!(matches!(&panicked, AskError::Panicked(text) if text.contains("no luck")));
    sum.send(1).expect("the panic has not ended it");
    scheduler.run_until_idle();
    let shown = inspect(&scheduler, sum.pid()).expect("it answers again");
    assert_eq!(fields(&shown), [("sum".into(), "14".into())]);
}

#[test]
fn an_async_process_shows_what_its_closures_add_while_their_guards_live() {
    let scheduler = driven();
    let shows = scheduler.start(|mut cx: Context<()>| async move {
        let first = cx.inspect_with(|shown| {
            shown.field("first", 1);
        });
        let _second = cx.inspect_with(|shown| {
            shown.field("second", "x".repeat(2000));
        });
        cx.recv().await;
        drop(first);
        cx.recv().await;
    });
    scheduler.run_until_idle();
    let shown = inspect(&scheduler, shows.pid()).expect("it answers");
    let found = fields(&shown);
    assert_eq!(found[0], ("first".into(), "1".into()));
    assert_eq!((&*found[1].0, found[1].1.len()), ("second", 1024), "long values are cut");
    assert!(shown.is_truncated());
    shows.send(()).expect("it lives");
    scheduler.run_until_idle();
    let names: Vec<_> = fields(&inspect(&scheduler, shows.pid()).expect("it answers"));
    assert_eq!(names.len(), 1, "the guard of the other is gone");
    shows.send(()).expect("it lives");
    scheduler.run_until_idle();
    assert_eq!(inspect(&scheduler, shows.pid()), Err(AskError::Ended));
}

/// Goal: if a closure panics, and its captures panic when they are dropped, the program does not
/// end. Method: the closure removes itself, so that its caller is its last owner.
#[test]
fn a_closure_that_removes_itself_and_panics_is_dropped_after_its_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_quietly("a bomb was dropped");
        }
    }
    let scheduler = driven();
    let shows = scheduler.start(|mut cx: Context<()>| async move {
        let own = Arc::new(Mutex::new(None));
        let (bomb, removed) = (Bomb, Arc::clone(&own));
        let inspecting = cx.inspect_with(move |_| {
            let _kept = &bomb;
            drop(removed.lock().take());
            panic_quietly("no luck");
        });
        *own.lock() = Some(inspecting);
        cx.recv().await
    });
    scheduler.run_until_idle();
    let panicked = inspect(&scheduler, shows.pid()).expect_err("it panics");
    assert!(matches!(&panicked, AskError::Panicked(text) if text.contains("no luck")));
    assert_eq!(inspect(&scheduler, shows.pid()), Err(AskError::ShowsNothing));
    shows.send(()).expect("it lives");
    assert_eq!(shows.join(), Ok(Some(())));
}

#[test]
fn what_cannot_answer_says_why() {
    let scheduler = driven();
    let silent = scheduler.spawn(pending::<()>());
    scheduler.run_until_idle();
    assert_eq!(inspect(&scheduler, silent.pid()), Err(AskError::ShowsNothing));
    let other = driven();
    assert_eq!(inspect(&other, silent.pid()), Err(AskError::Ended));
    let own = scheduler.clone();
    let itself = scheduler.start(move |cx: Context<()>| async move { own.inspect(cx.pid()).await });
    assert_eq!(itself.join(), Ok(Err(AskError::Itself)));
}

#[test]
fn a_process_in_an_endless_step_is_given_up() {
    let scheduler = threaded(1);
    let (begun, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let flags = (Arc::clone(&begun), Arc::clone(&ends));
    let endless = scheduler.spawn(async move {
        flags.0.store(true, SeqCst);
        while !flags.1.load(SeqCst) {
            thread::yield_now();
        }
    });
    while !begun.load(SeqCst) {
        thread::yield_now();
    }
    // The second passes on the clock of the scheduler of the caller.
    let asked = driven().block_on(scheduler.inspect(endless.pid()));
    assert_eq!(asked, Err(AskError::TimedOut));
    ends.store(true, SeqCst);
    assert_eq!(endless.join(), Ok(()));
}

#[test]
fn a_suspended_process_stands_still_until_its_time_is_over() {
    let scheduler = driven();
    let begin = scheduler.now();
    let own = scheduler.clone();
    let counts = scheduler.start(move |mut cx: Context<u32>| async move {
        cx.recv().await;
        own.now()
    });
    scheduler.suspend(counts.pid()).expect("it lives");
    counts.send(1).expect("its mailbox is open");
    scheduler.block_on(sleep(Duration::from_millis(4_900)));
    let detail = scheduler.detail(counts.pid()).expect("it is there");
    assert!(detail.suspended);
    assert_eq!((detail.state, detail.mailbox), (ProcessState::Ready, 1));
    let received = counts.join().expect("it goes on by itself");
    assert_eq!(received - begin, Duration::from_secs(5));
}

/// Goal: a process that is suspended in a blocking section stands still after the section.
/// Method: the section itself waits until another thread has suspended the process.
#[test]
fn a_process_that_is_suspended_in_a_blocking_section_stands_still_after_it() {
    let scheduler = driven();
    let begin = scheduler.now();
    let passed = Arc::new(AtomicU32::new(0));
    let (own, passes) = (scheduler.clone(), Arc::clone(&passed));
    let blocks = scheduler.start(move |cx: Context<()>| async move {
        let suspended = procession::blocking(|| {
            thread::scope(|scope| {
                let suspends = scope.spawn(|| own.suspend_for(cx.pid(), LONG));
                suspends.join().expect("it does not panic")
            })
        });
        passes.fetch_add(1, SeqCst);
        yield_now().await;
        passes.fetch_add(1, SeqCst);
        suspended
    });
    scheduler.run_until_idle();
    assert_eq!(passed.load(SeqCst), 1, "the step of the section goes on, and no other begins");
    assert!(scheduler.detail(blocks.pid()).expect("it is there").suspended);
    assert!(scheduler.resume(blocks.pid()));
    assert_eq!(blocks.join(), Ok(Ok(())));
    assert_eq!(scheduler.now(), begin, "no timer was waited for");
}

#[test]
fn a_resume_ends_a_suspension_and_a_second_suspension_replaces_the_first() {
    let scheduler = driven();
    let waits =
        scheduler.start(|mut cx: Context<u32>| async move { while cx.recv().await != Some(9) {} });
    let pid = waits.pid();
    assert!(!scheduler.resume(pid), "it is not suspended");
    scheduler.suspend_for(pid, LONG).expect("it lives");
    scheduler.suspend_for(pid, Duration::from_secs(1)).expect("it lives");
    scheduler.run_until_idle();
    assert!(scheduler.detail(pid).expect("it is there").suspended);
    scheduler.block_on(sleep(Duration::from_secs(2)));
    assert!(!scheduler.detail(pid).expect("it is there").suspended, "the second time counts");
    scheduler.suspend_for(pid, LONG).expect("it lives");
    waits.send(9).expect("its mailbox is open");
    scheduler.run_until_idle();
    let begin = scheduler.now();
    assert!(scheduler.resume(pid) && !scheduler.resume(pid));
    assert_eq!(waits.join(), Ok(()));
    assert_eq!(scheduler.now(), begin, "no timer was waited for");
}

#[test]
fn a_suspension_takes_a_minute_at_most() {
    let scheduler = driven();
    let waits = scheduler.spawn(async {});
    let begin = scheduler.now();
    scheduler.suspend_for(waits.pid(), LONG).expect("it has not begun");
    assert_eq!(waits.join(), Ok(()));
    assert_eq!(scheduler.now() - begin, Duration::from_secs(60));
}

#[test]
fn a_suspended_process_can_be_ended_and_inspected() {
    let scheduler = driven();
    let begin = scheduler.now();
    let sum = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Sum(4), "", true)
        .expect("it takes any input");
    scheduler.run_until_idle();
    scheduler.suspend(sum.pid()).expect("it lives");
    scheduler.run_until_idle();
    sum.send(1).expect("its mailbox is open");
    let shown = inspect(&scheduler, sum.pid()).expect("it answers");
    assert_eq!(fields(&shown), [("sum".into(), "4".into())]);
    assert!(scheduler.detail(sum.pid()).expect("it is there").suspended, "it is suspended again");
    assert!(kill(sum.pid()));
    assert_eq!(sum.join(), Err(Exit::Killed));
    let asked = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    scheduler.run_until_idle();
    scheduler.suspend(asked.pid()).expect("it lives");
    scheduler.run_until_idle();
    assert!(cancel(asked.pid()));
    assert_eq!(asked.join(), Ok(None));
    assert_eq!(scheduler.now(), begin, "no time has passed");
}

#[test]
fn suspended_processes_do_not_keep_a_scheduler_from_its_end() {
    let scheduler = threaded(2);
    let all: Vec<_> = (0..100).map(|_| scheduler.spawn(pending::<()>())).collect();
    for process in &all {
        scheduler.suspend_for(process.pid(), LONG).expect("it lives");
    }
    let left = scheduler.block_on(scheduler.shutdown(Duration::from_secs(60)));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_process_that_was_told_to_end_is_not_suspended() {
    let scheduler = driven();
    let begin = scheduler.now();
    let (finish, is_clean) = oneshot::channel();
    let cleans_up = scheduler.start(|cx: Context<u32>| async move {
        cx.cancelled().await;
        is_clean.await
    });
    scheduler.run_until_idle();
    assert!(cancel(cleans_up.pid()));
    scheduler.run_until_idle();
    assert_eq!(scheduler.suspend_for(cleans_up.pid(), LONG), Err(AskError::Ending));
    let dropped = SpawnOptions::new().on(&scheduler).on_cancel(OnCancel::Drop);
    let dropped = dropped.spawn(pending::<()>());
    assert!(cancel(dropped.pid()));
    assert_eq!(scheduler.suspend_for(dropped.pid(), LONG), Err(AskError::Ending));
    assert_eq!(dropped.join(), Err(Exit::Shutdown));
    finish.send(7).expect("it waits for that");
    assert_eq!(cleans_up.join(), Ok(Ok(7)));
    assert_eq!((scheduler.now(), scheduler.snapshot().timers.pending), (begin, 0));
}

/// Sends when it is dropped.
struct SendsAtEnd(Sender<()>);

impl Drop for SendsAtEnd {
    fn drop(&mut self) {
        // Ignored: the test may have failed.
        let _ = self.0.send(());
    }
}

#[test]
fn processes_that_are_cancelled_as_they_are_suspended_end_at_once() {
    let scheduler = threaded(2);
    let (ended, ends) = channel();
    for round in 0..600 {
        let guard = SendsAtEnd(ended.clone());
        let process = scheduler.start(move |cx: Context<()>| async move {
            let _guard = guard;
            cx.cancelled().await;
        });
        let pid = process.pid();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..=round % 3 {
                    if let Err(error) = scheduler.suspend_for(pid, LONG) {
                        assert!([AskError::Ended, AskError::Ending].contains(&error), "{error}");
                    }
                }
            });
            scope.spawn(|| {
                if round % 2 == 0 {
                    cancel(pid)
                } else {
                    kill(pid)
                };
            });
        });
        soon(&ends);
    }
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().timers.pending, 0, "suspensions leave no timers");
}

#[test]
fn processes_that_end_as_they_are_suspended_leave_no_timers() {
    let scheduler = threaded(2);
    for _ in 0..2_000 {
        let process = scheduler.spawn(async {});
        match scheduler.suspend_for(process.pid(), LONG) {
            // It stands still, or has ended before its next step.
            Ok(()) => drop(scheduler.resume(process.pid())),
            Err(error) => assert_eq!(error, AskError::Ended),
        }
        assert_eq!(process.join(), Ok(()));
    }
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

/// Threads suspend, resume, inspect and message processes that must still receive everything.
#[test]
fn no_message_is_lost_beside_suspensions_and_requests() {
    const MESSAGES: u64 = 2_000;
    let scheduler = threaded(2);
    let sums: Vec<_> = (0..4)
        .map(|_| {
            SpawnOptions::new()
                .on(&scheduler)
                .try_start_machine(Sum(1 << 20), "", true)
                .expect("it takes any input")
        })
        .collect();
    let begun = AtomicBool::new(true);
    thread::scope(|scope| {
        for sum in &sums {
            scope.spawn(|| {
                for _ in 0..MESSAGES {
                    sum.send(1).expect("it lives");
                }
            });
            let (scheduler, begun) = (&scheduler, &begun);
            scope.spawn(move || {
                for round in 0..200 {
                    scheduler.suspend(sum.pid()).expect("it lives");
                    if round % 3 == 0 {
                        inspect(scheduler, sum.pid()).expect("it answers");
                    }
                    assert!(begun.load(SeqCst) && scheduler.resume(sum.pid()));
                }
            });
        }
    });
    scheduler.run_until_idle();
    for sum in &sums {
        let shown = inspect(&scheduler, sum.pid()).expect("it answers");
        let expected = (1_u64 << 20) + MESSAGES;
        assert_eq!(fields(&shown), [("sum".into(), expected.to_string())]);
    }
}
