//! Cancels of single processes, and the waits for them.

use crate::home::mpsc;
use std::future::{IntoFuture, Ready, pending, poll_fn, ready};
use std::task::Poll;
use std::time::Duration;

use futures_lite::future::zip;
use procession::coroutine::{self, Wait};
use procession::process::{OnCancel, cancelled, until_cancelled};
use procession::sync::{CancellationToken, Select};
use procession::{Context, Exit, Scheduler, SpawnOptions, sleep, spawn, start, yield_now};

use super::{HOUR, Reports, asked, scheduler};

#[test]
fn a_plain_process_is_dropped_where_it_waits_and_others_are_asked() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let (drops, dropped) = mpsc::channel();
        let reports = Reports("dropped", drops);
        let plain = scheduler.spawn(async move {
            pending::<()>().await;
            drop(reports);
        });
        let with_context = scheduler.start(asked);
        scheduler.run_until_idle();
        plain.cancel();
        assert!(procession::process::cancel(with_context.pid()));
        assert_eq!(plain.join(), Err(Exit::Shutdown));
        assert_eq!(dropped.recv(), Ok("dropped"));
        assert_eq!(with_context.join(), Ok("asked"));
    }
}

#[test]
fn a_process_that_is_cancelled_before_its_first_step_never_runs() {
    let scheduler = scheduler(0);
    let (drops, dropped) = mpsc::channel();
    let reports = Reports("dropped", drops);
    let process = scheduler.spawn(async move {
        drop(reports);
        panic!("it ran");
    });
    process.cancel();
    assert_eq!(process.join(), Err(Exit::Shutdown) as Result<(), _>);
    assert_eq!(dropped.recv(), Ok("dropped"));
    // Without a handle.
    let (runs, ran) = mpsc::channel();
    let forgotten = scheduler.spawn(async move { runs.send(()) });
    assert!(procession::process::cancel(forgotten.pid()));
    drop(forgotten);
    assert!(scheduler.run_until_idle().is_empty());
    assert!(ran.recv().is_err(), "it never ran");
}

#[test]
fn a_step_that_ends_the_process_wins_over_a_cancel() {
    let scheduler = scheduler(0);
    let process = scheduler.spawn(async move {
        let pid = procession::process::current_pid().expect("it is a process");
        assert!(procession::process::cancel(pid));
        "its result"
    });
    assert_eq!(process.join(), Ok("its result"));
}

#[test]
fn the_first_of_a_cancel_and_a_signal_decides_the_exit() {
    use procession::process::{kill, send_exit};
    let scheduler = scheduler(0);
    let late = |first: &dyn Fn(procession::Pid)| {
        let process = scheduler.spawn(pending::<()>());
        scheduler.run_until_idle();
        let pid = process.pid();
        first(pid);
        procession::process::cancel(pid);
        kill(pid);
        send_exit(pid, Exit::MailboxFull);
        process.join()
    };
    assert_eq!(late(&|_| {}), Err(Exit::Shutdown));
    assert_eq!(late(&|pid| assert!(kill(pid))), Err(Exit::Killed));
    assert_eq!(late(&|pid| assert!(send_exit(pid, Exit::failed("x")))), Err(Exit::failed("x")));
}

#[test]
fn a_kill_cannot_be_trapped_but_its_echo_can() {
    use procession::process::{kill, link, send_exit};
    let scheduler = scheduler(0);
    let stubborn = scheduler.start(|mut cx: Context<()>| async move {
        cx.trap_exits(true);
        while cx.recv_event().await.is_some() {}
    });
    let (_, stubborn) = stubborn.into_parts();
    let pid = stubborn.pid();
    let (gives, given) = mpsc::channel();
    let linked = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        assert!(link(pid));
        gives.send(cx.recv_event().await).expect("the test listens");
    });
    scheduler.run_until_idle();
    assert!(send_exit(pid, Exit::Killed), "that is a signal, and trapped");
    scheduler.run_until_idle();
    assert!(!stubborn.is_finished());
    assert!(kill(pid));
    assert_eq!(stubborn.join(), Err(Exit::Killed));
    assert_eq!(linked.join(), Ok(()));
    match given.recv().expect("it was told") {
        Some(procession::mailbox::Event::Exit(signal)) => assert_eq!(signal.exit, Exit::Killed),
        other => panic!("{other:?}"),
    }
    assert!(!kill(pid), "it has ended");
}

#[test]
fn every_wait_for_the_cancel_of_one_process_completes() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let process = scheduler.start(|cx: Context<()>| async move {
            let nested = zip(cancelled(), until_cancelled(pending::<()>()));
            let again = zip(cx.cancelled(), nested);
            let ((), ((), none)) = again.await;
            // And again, at once.
            cancelled().await;
            let polled = until_cancelled(poll_fn(|_| -> Poll<()> { panic!("it was polled") }));
            (none, polled.await)
        });
        scheduler.run_until_idle();
        process.cancel();
        assert_eq!(process.join(), Ok((None, None)));
    }
}

#[test]
fn a_future_that_is_faster_than_the_cancel_gives_its_output() {
    let scheduler = scheduler(0);
    let process = scheduler.start(|_: Context<()>| async {
        let output = until_cancelled(async {
            yield_now().await;
            3
        });
        output.await
    });
    assert_eq!(process.join(), Ok(Some(3)));
    assert_eq!(scheduler.block_on(until_cancelled(async { 4 })), Some(4), "outside of processes");
}

#[test]
fn a_wait_that_moves_to_another_process_is_refused() {
    let scheduler = scheduler(0);
    let (gives, given) = mpsc::channel();
    let first = scheduler.start(|_: Context<()>| async move {
        let mut wait = Box::pin(cancelled());
        assert!(futures_lite::future::poll_once(&mut wait).await.is_none());
        gives.send(wait).expect("the test listens");
    });
    assert_eq!(first.join(), Ok(()));
    let wait = given.recv().expect("it was sent");
    let refused = "a process waits for its own cancel only";
    match scheduler.start(|_: Context<()>| wait).join() {
        Err(Exit::Panicked(text)) => assert!(text.contains(refused), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_that_is_dropped_is_not_told() {
    let scheduler = scheduler(0);
    let process = scheduler.spawn(async {
        let told = zip(cancelled(), until_cancelled(sleep(HOUR)));
        told.await.1
    });
    scheduler.run_until_idle();
    process.cancel();
    assert_eq!(process.join(), Err(Exit::Shutdown));
}

#[test]
fn a_scope_drops_its_plain_processes() {
    let scheduler = scheduler(0);
    let (gives, given) = mpsc::channel();
    let parent = scheduler.start(|_: Context<()>| async move {
        let scoped = || SpawnOptions::new().scoped();
        let plain = scoped().spawn(sleep(HOUR));
        let with_context = scoped().start(asked);
        gives.send((plain, with_context)).expect("the test listens");
    });
    assert_eq!(parent.join(), Ok(()));
    let (plain, with_context) = given.recv().expect("they were sent");
    assert_eq!(plain.join(), Err(Exit::Shutdown));
    assert_eq!(with_context.join(), Ok("asked"));
}

#[test]
fn a_drop_that_blocks_holds_only_its_own_process() {
    struct Blocks(mpsc::Receiver<()>);
    impl Drop for Blocks {
        fn drop(&mut self) {
            // Until the test lets go.
            let _ = procession::blocking(|| self.0.recv());
        }
    }
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("there are threads");
    let (release, released) = mpsc::channel();
    let blocks = Blocks(released);
    let stuck = scheduler.spawn(async move {
        pending::<()>().await;
        drop(blocks);
    });
    scheduler.run_until_idle();
    stuck.cancel();
    let other = scheduler.spawn(pending::<()>());
    other.cancel();
    assert_eq!(other.join(), Err(Exit::Shutdown));
    assert!(!stuck.is_finished());
    drop(release);
    assert_eq!(stuck.join(), Err(Exit::Shutdown));
}

fn with_coroutines() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: no coroutine here keeps a thread-local pointer across a suspension.
    #[expect(unsafe_code, reason = "coroutines are enabled by a promise")]
    let builder = unsafe { builder.enable_coroutines() };
    builder.build().expect("there are threads")
}

#[test]
fn a_coroutine_is_told_by_a_wait_for_its_cancel() {
    let scheduler = with_coroutines();
    let told =
        SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| {
            cancelled().wait();
            "told"
        });
    let told = told.expect("they are enabled");
    scheduler.run_until_idle();
    told.cancel();
    assert_eq!(told.join(), Ok("told"));
}

#[test]
fn a_coroutine_that_is_to_be_dropped_unwinds_from_its_receive() {
    let scheduler = with_coroutines();
    let (drops, dropped) = mpsc::channel();
    let options = SpawnOptions::new().on(&scheduler).on_cancel(OnCancel::Drop);
    let reports = Reports("unwound", drops);
    let receives = options.try_start_coroutine(move |mut cx: coroutine::Context<()>| {
        let _reports = reports;
        while cx.recv().is_some() {}
        "it returned"
    });
    let receives = receives.expect("they are enabled");
    scheduler.run_until_idle();
    receives.cancel();
    assert_eq!(receives.join(), Err(Exit::Shutdown));
    assert_eq!(dropped.recv(), Ok("unwound"));
}

/// More messages than a step may receive come before the cancel.
#[test]
fn a_cancelled_coroutine_receives_all_messages_that_came_before() {
    let scheduler = with_coroutines();
    let counts = SpawnOptions::new().on(&scheduler).try_start_coroutine(
        |mut cx: coroutine::Context<u32>| {
            let mut count = 0;
            while cx.recv().is_some() {
                count += 1;
            }
            count
        },
    );
    let counts = counts.expect("they are enabled");
    (0..1000).for_each(|number| counts.send(number).expect("it is alive"));
    counts.cancel();
    assert_eq!(counts.join(), Ok(1000));
}

#[test]
fn a_handle_that_is_awaited_learns_of_the_drop() {
    let scheduler = scheduler(0);
    let joined = scheduler.start(|_: Context<()>| async {
        let helper = spawn(sleep(HOUR));
        yield_now().await;
        helper.cancel();
        let nested = start(|cx: Context<()>| async move {
            cx.cancelled().await;
            sleep(Duration::from_secs(1)).await;
        });
        nested.cancel();
        (helper.await, nested.await)
    });
    assert_eq!(joined.join(), Ok((Err(Exit::Shutdown), Ok(()))));
}

/// Something that becomes a future, like the builder of a request.
struct Request(u32);

impl IntoFuture for Request {
    type Output = u32;
    type IntoFuture = Ready<u32>;

    fn into_future(self) -> Ready<u32> {
        ready(self.0)
    }
}

#[test]
fn what_becomes_a_future_is_awaited_wherever_a_future_is() {
    let token = CancellationToken::new();
    scheduler(1).block_on(async {
        assert_eq!(until_cancelled(Request(1)).await, Some(1));
        assert_eq!(token.run_until_cancelled(Request(2)).await, Some(2));
        assert_eq!(token.clone().run_until_cancelled_owned(Request(3)).await, Some(3));
        assert_eq!(Select::new().wait_for(Request(4), |n| n).await, 4);
        token.cancel();
        assert_eq!(token.run_until_cancelled(Request(5)).await, None);
    });
}
