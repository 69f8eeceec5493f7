//! Stacks on demand.

#[cfg(all(
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod steps;

use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::observe::{AskError, ProcessStack, StackFrame, StackSource};
use procession::process::cancelled;
use procession::sync::{Mutex, Notify, Semaphore, channel, oneshot};
use procession::time::Instant;
use procession::{Context, JoinHandle, Pid, Reply, Scheduler, SpawnOptions, coroutine, sleep};

use super::{LONG, Sum};
use crate::home::{mpsc, thread};
use crate::scene::{TIMEOUT, driven};

/// One stack is taken at a time in a program, and tests run at the same time.
fn stack(scheduler: &Scheduler, pid: Pid) -> Result<ProcessStack, AskError> {
    stack_by(scheduler, scheduler, pid)
}

/// Asks from a thread of the scheduler `caller`.
fn stack_by(caller: &Scheduler, scheduler: &Scheduler, pid: Pid) -> Result<ProcessStack, AskError> {
    loop {
        match caller.block_on(scheduler.stack_timeout(pid, Duration::from_secs(10))) {
            Err(AskError::Busy) => thread::yield_now(),
            taken => return taken,
        }
    }
}

/// Returns the lines of this file on each stack, the innermost first.
///
/// The names of functions depend on how much debug information the tests are built with.
fn lines(taken: &ProcessStack) -> Vec<Vec<u32>> {
    let is_here = |frame: &&StackFrame| {
        frame.file.as_ref().is_some_and(|file| file.ends_with("requests/stacks.rs"))
    };
    let of = |stack: &Vec<StackFrame>| {
        stack.iter().filter(is_here).filter_map(|frame| frame.line).collect()
    };
    taken.stacks().iter().map(of).collect()
}

/// Asserts that the process waits on one stack, with these lines of this file in this order, and
/// that neither the steps of the runtime nor the taking of the stack are shown.
#[track_caller]
fn check(scheduler: &Scheduler, pid: Pid, expected: &[u32]) {
    let taken = stack(scheduler, pid).unwrap_or_else(|error| panic!("{expected:?}: {error}"));
    assert_eq!((taken.pid(), taken.source()), (pid, StackSource::Wait));
    let found = lines(&taken);
    let [found] = &found[..] else { panic!("one wait, at {expected:?}\n{taken}") };
    let mut found = found.iter();
    assert!(expected.iter().all(|line| found.any(|found| found == line)), "{expected:?}\n{taken}");
    let text = taken.to_string();
    assert!(!text.contains("scheduler/run.rs") && !text.contains("stack_notes.rs"), "{taken}");
}

const LEAF: u32 = line!() + 11;

/// A future of another author, which keeps the waker that it is polled with if it is another one.
async fn foreign_leaf() {
    let mut kept: Option<Waker> = None;
    poll_fn(|task| -> Poll<()> {
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(task.waker())) {
            kept = Some(task.waker().clone());
        }
        Poll::Pending
    })
    .await;
}

async fn middle() {
    foreign_leaf().await;
}
const MIDDLE: u32 = line!() - 2;

#[test]
fn a_stack_leads_from_the_leaf_through_the_futures_that_contain_it() {
    let scheduler = driven();
    let waits = scheduler.spawn(async { middle().await });
    scheduler.run_until_idle();
    check(&scheduler, waits.pid(), &[LEAF, MIDDLE]);
    // Again: the futures have another waker by now.
    check(&scheduler, waits.pid(), &[LEAF, MIDDLE]);
    assert_eq!(stack(&scheduler, waits.pid()).map(|taken| taken.stacks().len()), Ok(1));
}

/// What processes wait in.
async fn known_wait<F: IntoFuture>(wait: F) {
    let _kept = wait.await;
}
const KNOWN_WAIT: u32 = line!() - 2;

#[test]
fn every_wait_of_the_runtime_has_a_stack() {
    ask_each_wait(false);
}

/// Its first step is one that notes its stacks, and leaves the waker of such a step.
#[test]
fn every_wait_that_begins_as_it_is_asked_has_a_stack_again() {
    ask_each_wait(true);
}

/// Asks twice for the stack of each wait: after its first step, or before it.
fn ask_each_wait(at_once: bool) {
    let scheduler = driven();
    let ask = |name: &str, process: &JoinHandle<()>| {
        for _ in 0..2 {
            let taken = stack(&scheduler, process.pid()).unwrap_or_else(|error| {
                panic!("{name}: {error}");
            });
            let known = lines(&taken).iter().filter(|lines| lines.contains(&KNOWN_WAIT)).count();
            assert!(known > 0, "{name}\n{taken}");
        }
        assert!(!process.is_finished(), "{name} still waits");
    };
    let callee = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        let mut kept = Vec::new();
        while let Some(reply) = cx.recv().await {
            kept.push(reply);
        }
    });
    let full: procession::Child<u8, ()> = SpawnOptions::new()
        .on(&scheduler)
        .mailbox(1, WhenFull::Wait)
        .start(|cx: Context<u8>| async move { cx.cancelled().await });
    full.send(1).expect("there is room for one");
    let lock = Arc::new(Mutex::new(()));
    let held = lock.try_lock().expect("nothing has it");
    let (sender, _receiver) = channel::bounded::<u8>(1);
    sender.try_send(0).expect("there is room for one");
    let (_sender, empty) = channel::bounded::<u8>(1);
    let (_oneshot, value) = oneshot::channel::<u8>();
    let notify = Notify::new();
    let semaphore = Arc::new(Semaphore::new(0));
    let never = scheduler.spawn(pending::<()>());
    let mut waits = Vec::new();
    let mut begin = |name, future: StdPin<Box<dyn Future<Output = ()> + Send>>| {
        let process = scheduler.spawn(future);
        if at_once {
            ask(name, &process);
        }
        waits.push((name, process));
    };
    begin("sleep", Box::pin(known_wait(sleep(LONG))));
    begin("cancelled", Box::pin(known_wait(cancelled())));
    begin("send", Box::pin(async move { known_wait(sender.send(1)).await }));
    begin("channel", Box::pin(async move { known_wait(empty.recv()).await }));
    begin("oneshot", Box::pin(known_wait(value)));
    begin("notify", Box::pin(async move { known_wait(notify.notified()).await }));
    begin("permit", Box::pin(async move { known_wait(semaphore.acquire(1)).await }));
    let contended = Arc::clone(&lock);
    begin("lock", Box::pin(async move { known_wait(contended.lock()).await }));
    begin("call", Box::pin(async move { known_wait(callee.call(|reply| reply, LONG)).await }));
    begin("room", Box::pin(async move { known_wait(full.send_wait(2)).await }));
    begin("join", Box::pin(known_wait(never)));
    let receives =
        scheduler.start(|mut cx: Context<u8>| async move { known_wait(cx.recv()).await });
    scheduler.run_until_idle();
    waits.iter().for_each(|(name, process)| ask(name, process));
    check(&scheduler, receives.pid(), &[KNOWN_WAIT]);
    drop(held);
}

#[test]
fn each_branch_that_waits_has_a_stack() {
    let scheduler = driven();
    let (left, right) = (known_wait(sleep(LONG)), middle());
    let joins = scheduler.spawn(async { futures_lite::future::zip(left, right).await });
    scheduler.run_until_idle();
    let taken = stack(&scheduler, joins.pid()).expect("it waits");
    let found = lines(&taken);
    let with = |line| found.iter().filter(|lines| lines.contains(&line)).count();
    assert_eq!((found.len(), with(KNOWN_WAIT), with(MIDDLE)), (2, 1, 1), "{taken}");
}

#[test]
fn a_coroutine_has_the_stack_that_it_waits_on() {
    let (waits_at, deeper_at) = (line!() + 4, line!() + 6);
    #[inline(never)]
    fn waits_deep(depth: u32) {
        if depth == 0 {
            coroutine::sleep(LONG);
        } else {
            waits_deep(depth - 1);
        }
        std::hint::black_box(depth);
    }
    // SAFETY: the coroutines of this test use little of their stacks.
    let builder =
        unsafe { Scheduler::builder().worker_threads(1).test_clock().enable_coroutines() };
    let scheduler = builder.build().expect("it starts no thread");
    let sleeps = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(|_: coroutine::Context<()>| waits_deep(3))
        .expect("they are enabled");
    let token = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(|_: coroutine::Context<()>| coroutine::suspend(None))
        .expect("they are enabled");
    let suspends_at = line!() - 2;
    scheduler.run_until_idle();
    check(&scheduler, sleeps.pid(), &[waits_at, deeper_at, deeper_at, deeper_at]);
    check(&scheduler, token.pid(), &[suspends_at]);
}

#[test]
fn what_has_no_stack_says_why() {
    let scheduler = driven();
    let machine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Sum(0), "", true)
        .expect("it takes any input");
    let ended = scheduler.spawn(async {});
    scheduler.run_until_idle();
    assert_eq!(stack(&scheduler, machine.pid()).err(), Some(AskError::NoStack));
    assert_eq!(stack(&scheduler, ended.pid()).err(), Some(AskError::Ended));
}

#[test]
fn a_process_that_waits_and_ends_in_the_same_step_is_told_to_have_ended() {
    let scheduler = driven();
    let mut polls = 0;
    // The step that is to note its stack ends it instead.
    let ends = scheduler.spawn(poll_fn(move |_| {
        polls += 1;
        if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
    }));
    scheduler.run_until_idle();
    assert_eq!(stack(&scheduler, ends.pid()).err(), Some(AskError::Ended));
}

#[test]
fn a_stack_leaves_the_reports_of_cycles_as_they_were() {
    let (reports, reported) = mpsc::channel();
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .on_wait_cycle(move |cycle| drop(reports.send(cycle.clone())))
        .build()
        .expect("it is valid");
    let [one, two] = [(); 2].map(|()| Arc::new(Mutex::new(())));
    let gate = Arc::new(Notify::new());
    let (held, wanted, opened) = (two.clone(), one.clone(), gate.clone());
    scheduler
        .spawn(async move {
            let _held = held.lock().await;
            opened.notified().await;
            let _wanted = wanted.lock().await;
        })
        .detach();
    scheduler.run_until_idle();
    let waits = scheduler.spawn(async move {
        let _held = one.lock().await;
        let _wanted = two.lock().await;
    });
    scheduler.run_until_idle();
    assert_eq!(stack(&scheduler, waits.pid()).map(|taken| taken.stacks().len()), Ok(1));
    gate.notify_one();
    scheduler.run_until_idle();
    assert_eq!(reported.try_iter().map(|cycle| cycle.waits.len()).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_stack_leaves_the_reports_of_leaks_as_they_were() {
    let scheduler = driven();
    drop(scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await }));
    let leaked = || {
        scheduler.run_until_idle();
        let leaks = scheduler.leaks();
        leaks.leaked.iter().map(|leak| leak.pid).collect::<Vec<_>>()
    };
    let before = leaked();
    assert_eq!(before.len(), 1);
    assert_eq!(stack(&scheduler, before[0]).map(|taken| taken.stacks().len()), Ok(1));
    assert_eq!(leaked(), before);
}

#[test]
fn requests_that_were_given_up_leave_room() {
    let scheduler = driven();
    let waits = scheduler.spawn(pending::<()>());
    scheduler.suspend_for(waits.pid(), Duration::from_secs(60)).expect("it lives");
    let timeout = Duration::from_millis(100);
    for _ in 0..40 {
        let begin = Instant::now();
        let taken = loop {
            // Others of this program take stacks as well, each for a moment.
            match scheduler.block_on(scheduler.stack_timeout(waits.pid(), timeout)) {
                Err(AskError::Busy)
                    if Instant::now().saturating_duration_since(begin) < TIMEOUT =>
                {
                    thread::yield_now()
                }
                taken => break taken,
            }
        };
        assert_eq!(taken.err(), Some(AskError::TimedOut), "it stands still");
    }
}
