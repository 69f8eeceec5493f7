//! Handles and the results of processes.

use crate::home::mpsc;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use procession::{Context, Exit, Pid, Scheduler, SpawnOptions};

use super::{Held, for_ever, machine};
use crate::scene::{driven, panic_quietly, soon_closed, threaded};

#[test]
fn a_result_is_awaited_or_joined() {
    let scheduler = threaded(2);
    assert_eq!(scheduler.block_on(async { procession::spawn(async { 1 }).await }), Ok(1));
    assert_eq!(scheduler.spawn(async { 2 }).join(), Ok(2));
    let child = scheduler.start(|cx: Context<()>| async move { cx.pid() });
    let pid = child.pid();
    assert_eq!(child.join(), Ok(pid));
    // Joined by a thread that does not belong to the scheduler, long after the end.
    let handle = scheduler.spawn(async { 3 });
    scheduler.run_until_idle();
    assert!(handle.is_finished());
    assert_eq!(
        crate::home::thread::scope(|scope| scope.spawn(|| handle.join()).join()).expect("no panic"),
        Ok(3)
    );
}

#[test]
fn the_exit_of_a_process_becomes_an_io_error_that_has_it() {
    async fn joined(fails: bool) -> io::Result<u32> {
        Ok(procession::spawn(async move { if fails { panic_quietly("no disk") } else { 1 } })
            .await?)
    }
    let scheduler = driven();
    assert_eq!(scheduler.block_on(joined(false)).expect("it returns"), 1);
    let error = scheduler.block_on(joined(true)).expect_err("it panics");
    let exit = error.get_ref().and_then(|cause| cause.downcast_ref());
    assert_eq!(
        (error.kind(), exit),
        (io::ErrorKind::Other, Some(&Exit::Panicked("no disk".into())))
    );
}

#[test]
fn a_join_that_times_out_gives_the_handle_back() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let (address, handle) = child.into_parts();
    let before = scheduler.now();
    let handle =
        handle.join_timeout(Duration::from_secs(3600)).expect_err("nobody has sent anything");
    assert_eq!(scheduler.now() - before, Duration::from_secs(3600));
    let handle = handle.join_timeout(Duration::ZERO).expect_err("nobody has sent anything yet");
    address.send(7).expect("it lives");
    let result = handle.join_timeout(Duration::from_secs(1)).expect("the message has come");
    assert_eq!(result, Ok(Some(7)));
    assert_eq!(scheduler.now() - before, Duration::from_secs(3600), "nothing was waited for");
}

#[test]
fn dropping_a_handle_detaches_the_process() {
    for scheduler in [driven(), threaded(2)] {
        let (held, ends) = mpsc::channel();
        let (address, handle) = scheduler
            .start(move |mut cx: Context<Held>| async move {
                let output = cx.recv().await;
                procession::yield_now().await;
                output
            })
            .into_parts();
        drop(handle);
        scheduler.run_until_idle();
        assert!(address.is_alive(), "it waits for its message still");
        address.send(Held(held)).expect("it lives");
        scheduler.run_until_idle();
        soon_closed(&ends);
        assert!(!address.is_alive());
        drop(address);
        assert_eq!(scheduler.snapshot().processes.len(), 0, "the result is not waited for");
    }
}

#[test]
fn a_handle_that_cancels_does_so_when_it_is_dropped_and_not_when_it_is_detached() {
    for scheduler in [driven(), threaded(2)] {
        let (held, ends) = mpsc::channel();
        let waits = scheduler.spawn(async move {
            let _held = Held(held);
            for_ever().await
        });
        let pid = waits.pid();
        let waits = waits.cancel_on_drop();
        assert_eq!((waits.pid(), waits.is_finished()), (pid, false));
        let waits = waits.detach().cancel_on_drop();
        scheduler.run_until_idle();
        assert!(!waits.is_finished(), "it was detached, so it goes on");
        drop(waits);
        scheduler.run_until_idle();
        soon_closed(&ends);
        let ended = scheduler.spawn(async { 7 }).cancel_on_drop();
        assert_eq!(scheduler.block_on(ended), Ok(7));
        // A process that was started is asked, and ends in its own way.
        let (address, handle) = scheduler
            .start(|mut cx: Context<()>| async move { assert_eq!(cx.recv().await, None) })
            .into_parts();
        drop(handle.cancel_on_drop());
        scheduler.run_until_idle();
        drop(address);
    }
}

#[test]
fn every_way_to_end_has_its_exit() {
    let cases: [(Result<u32, Exit>, &str, fn(&Scheduler) -> Result<u32, Exit>); 9] = [
        (Ok(1), "", |scheduler| scheduler.spawn(async { 1 }).join()),
        (Ok(2), "", |scheduler| {
            let child = machine(scheduler);
            child.send(Ok(2)).expect("it lives");
            child.join()
        }),
        (
            Err(Exit::Panicked("out of cheese".into())),
            "the process panicked: out of cheese",
            |scheduler| scheduler.spawn(async { panic_quietly("out of cheese") }).join(),
        ),
        (
            Err(Exit::Panicked("in the closure".into())),
            "the process panicked: in the closure",
            |scheduler| {
                let child = scheduler.start(|_: Context<()>| {
                    panic_quietly("in the closure");
                    #[expect(unreachable_code, reason = "it names the type")]
                    for_ever()
                });
                child.join()
            },
        ),
        (Err(Exit::Killed), "the process was terminated", |scheduler| {
            let handle = scheduler.spawn(for_ever());
            scheduler.run_until_idle();
            assert!(procession::process::kill(handle.pid()));
            handle.join()
        }),
        (Err(Exit::Failed("no cheese".into())), "the process failed: no cheese", |scheduler| {
            let child = machine(scheduler);
            child.send(Err("no cheese".into())).expect("it lives");
            child.join()
        }),
        (
            Err(Exit::WaitsForNothing),
            "the process waits for completions, but none is outstanding",
            |scheduler| {
                let child = machine(scheduler);
                child.send(Ok(0)).expect("it lives");
                child.join()
            },
        ),
        (Err(Exit::Killed), "the process was terminated", |scheduler| {
            // Before its first step.
            let (release, gate) = mpsc::channel::<()>();
            let in_the_way = SpawnOptions::new()
                .on(scheduler)
                .affinity(0)
                .spawn(async move { gate.recv().is_err() });
            let handle = SpawnOptions::new()
                .on(scheduler)
                .affinity(0)
                .spawn(async { panic_quietly("it has run") });
            procession::process::kill(handle.pid());
            drop(release);
            assert_eq!(in_the_way.join(), Ok(true));
            handle.join()
        }),
        (Err(Exit::Refused), "the scheduler takes no more processes", |scheduler| {
            SpawnOptions::new().on(scheduler).affinity(1000).spawn(async { 1 }).join()
        }),
    ];
    for (expected, text, end) in cases {
        for scheduler in [driven(), threaded(1), threaded(2)] {
            let result = end(&scheduler);
            assert_eq!(result, expected);
            assert_eq!(result.map_or_else(|exit| exit.to_string(), |_| String::new()), text);
        }
    }
}

#[test]
fn a_refused_process_is_nobody() {
    let scheduler = driven();
    let child = SpawnOptions::new()
        .on(&scheduler)
        .affinity(1)
        .start(|mut cx: Context<u8>| async move { cx.recv().await });
    assert!(!child.is_alive());
    assert_eq!(child.pid().to_string(), "p0.0.1");
    let error = child.send(3).expect_err("nobody is there");
    assert!(error.is_ended());
    assert_eq!(error.into_inner(), 3);
    child.cancel();
    let (_, handle) = child.into_parts();
    assert!(handle.is_finished());
    assert_eq!(handle.pid(), Pid::NOBODY);
    assert_eq!(handle.join_timeout(Duration::ZERO).expect("it has ended"), Err(Exit::Refused));
    assert_eq!(scheduler.snapshot().spawned, 0);
}

#[test]
fn a_handle_gives_its_result_once() {
    let scheduler = driven();
    let mut handle = scheduler.spawn(async { 1 });
    let pid = handle.pid();
    assert!(pid != Pid::NOBODY && !handle.is_finished());
    assert_eq!(scheduler.block_on(&mut handle), Ok(1));
    assert_eq!((handle.pid(), handle.is_finished()), (pid, true));
    let again = catch_unwind(AssertUnwindSafe(|| scheduler.block_on(&mut handle)));
    let text = again.expect_err("it has given it");
    assert_eq!(
        text.downcast_ref::<String>().map(String::as_str),
        Some("a `JoinHandle` was used after its result was taken")
    );
    assert!(!procession::process::kill(pid));
}

#[test]
fn a_handle_that_moves_between_tasks_wakes_the_last_one() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let (address, mut handle) = child.into_parts();
    // Polled by one process, which goes on without it, and then by another.
    let (first, mut handle) = scheduler
        .block_on(async move {
            procession::spawn(async move {
                let pending =
                    poll_fn(|task| Poll::Ready(Pin::new(&mut handle).poll(task).is_pending()))
                        .await;
                (pending, handle)
            })
            .await
        })
        .expect("it ends");
    assert!(first);
    let second = scheduler.spawn(async move { (&mut handle).await });
    scheduler.run_until_idle();
    address.send(()).expect("it lives");
    assert_eq!(scheduler.block_on(second), Ok(Ok(Some(()))));
}
