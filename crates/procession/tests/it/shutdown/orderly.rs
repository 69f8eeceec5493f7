//! Shutdowns in which all processes end by themselves.

use crate::home::mpsc;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession::machine::{CommandId, Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::process::current_pid;
use procession::time::{Elapsed, Instant};
use procession::{
    Context, Exit, Pid, SpawnOptions, sleep, spawn, spawn_blocking, start, timeout, yield_now,
};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use super::{AMPLE, mortal, scheduler, shut_down};
use crate::scene::{assert_conserved, panic_quietly, soon, soon_closed};

const MOMENT: Duration = Duration::from_millis(1);

/// The worker that ends the last process wakes the waker of the thread that waits for the end. The
/// slot of that process may belong to another process by then.
#[test]
fn a_waker_that_is_woken_by_the_end_is_in_no_process() {
    struct Asks(mpsc::Sender<Option<Pid>>);

    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            // Ignored: the test has ended.
            let _ = self.0.send(current_pid());
        }
    }

    for known in [false, true] {
        let scheduler = scheduler(1);
        let process = scheduler.start(|cx: Context<()>| async move { cx.cancelled().await });
        let process = known.then_some(process);
        let (asks, answers) = mpsc::channel();
        let waker = Waker::from(Arc::new(Asks(asks)));
        let mut shutdown = pin!(scheduler.shutdown(AMPLE));
        while shutdown.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending() {
            assert_eq!(soon(&answers), None);
        }
        drop(process);
    }
}

/// Goal: a closure without a handle is awaited, and counted if it stays. Method: the test
/// lets the closure end once the shutdown has begun to wait, or after the shutdown.
#[test]
fn a_shutdown_waits_for_closures_and_counts_those_that_it_leaves() {
    for ends_in_time in [false, true] {
        let scheduler = scheduler(1);
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let submits = scheduler.spawn(async move {
            drop(spawn_blocking(move || {
                ended.recv().expect("the test sends");
                tell.send(()).expect("the test listens");
            }));
        });
        submits.join().expect("it returns");
        let unfinished = scheduler.block_on(async {
            let deadline = if ends_in_time { AMPLE } else { 20 * MOMENT };
            let mut shutdown = pin!(scheduler.shutdown(deadline));
            let begun = poll_fn(|task| Poll::Ready(shutdown.as_mut().poll(task))).await;
            assert!(begun.is_pending(), "the closure runs");
            if ends_in_time {
                end.send(()).expect("it waits");
            }
            shutdown.await
        });
        assert_eq!(
            (unfinished.jobs, unfinished.is_empty()),
            (usize::from(!ends_in_time), ends_in_time)
        );
        if ends_in_time {
            told.try_recv().expect("the closure has returned");
        } else {
            assert_eq!(unfinished.to_string(), "1 closure of `spawn_blocking` had not returned");
            assert!(shut_down(&scheduler).is_empty(), "it is reported once");
            end.send(()).expect("it waits");
            soon(&told);
        }
    }
}

#[test]
fn a_shutdown_in_a_closure_does_not_wait_for_the_closure() {
    let scheduler = scheduler(1);
    let inside = scheduler.clone();
    let submits = scheduler.spawn(async move { spawn_blocking(move || shut_down(&inside)) });
    let unfinished = submits.join().expect("it returns").join().expect("it returns");
    assert!(unfinished.is_empty(), "{unfinished}");
}

#[test]
fn processes_clean_up_with_all_that_the_runtime_has() {
    const WORKERS: u32 = 20;
    for width in [0, 1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        let begin = scheduler.now();
        let ledger = scheduler.start(|mut cx: Context<u32>| async move {
            let mut entries = Vec::new();
            while entries.len() < WORKERS as usize {
                match cx.recv().await {
                    Some(entry) => entries.push(entry),
                    // Cancelled, but the others have not reported yet.
                    None => sleep(MOMENT).await,
                }
            }
            assert!(cx.is_cancelled());
            entries
        });
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let ledger = ledger.address().clone();
                scheduler.start(move |cx: Context<()>| async move {
                    cx.cancelled().await;
                    for _ in 0..3 {
                        yield_now().await;
                    }
                    sleep(MOMENT * number).await;
                    assert_eq!(timeout(MOMENT, std::future::pending::<()>()).await, Err(Elapsed));
                    let helper = start(|mut cx: Context<u32>| async move {
                        let number =
                            cx.recv().await.expect("it is sent one before it could be cancelled");
                        spawn(async move { number }).await.expect("it ends")
                    });
                    helper.send(number).expect("it waits");
                    ledger.send(helper.await.expect("it ends")).expect("it waits for all");
                })
            })
            .collect();
        assert!(shut_down(&scheduler).is_empty(), "width {width}");
        assert!(scheduler.now() - begin < AMPLE);
        for worker in workers {
            assert_eq!(worker.join(), Ok(()));
        }
        let mut entries = ledger.join().expect("it ends by itself");
        entries.sort_unstable();
        assert!(entries.into_iter().eq(0..WORKERS));
        assert_conserved(&scheduler);
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn a_shutdown_takes_as_long_as_the_slowest_and_no_longer() {
    let scheduler = scheduler(0);
    let begin = scheduler.now();
    for delay in [1, 3, 2] {
        drop(scheduler.start(move |cx: Context<()>| async move {
            cx.cancelled().await;
            sleep(Duration::from_secs(delay)).await;
        }));
    }
    assert!(shut_down(&scheduler).is_empty());
    assert_eq!(scheduler.now() - begin, Duration::from_secs(3));
}

#[test]
fn a_shutdown_of_nobody_is_over_at_once() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let begin = scheduler.now();
        assert!(shut_down(&scheduler).is_empty());
        assert!(scheduler.now() - begin < AMPLE / 2);
        if width == 0 {
            assert_eq!(scheduler.now(), begin);
        }
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn messages_that_came_first_are_received_first() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let children: Vec<_> = (0..10)
            .map(|_| {
                scheduler.start(|mut cx: Context<u32>| async move {
                    let mut received = Vec::new();
                    while let Some(message) = cx.recv().await {
                        received.push(message);
                        yield_now().await;
                    }
                    received
                })
            })
            .collect();
        for child in &children {
            (0..100).for_each(|message| child.send(message).expect("it is alive"));
        }
        assert!(shut_down(&scheduler).is_empty());
        for child in children {
            assert!(child.join().expect("it ends by itself").into_iter().eq(0..100));
        }
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_process_that_has_not_run_yet_sees_the_cancel_in_its_first_step() {
    let scheduler = scheduler(0);
    let child = scheduler.start(|cx: Context<()>| async move { cx.is_cancelled() });
    assert!(shut_down(&scheduler).is_empty());
    assert_eq!(child.join(), Ok(true));
}

/// A machine that sleeps once more when it is cancelled.
struct Machine {
    cancels: u32,
}

impl Process for Machine {
    type Input = ();
    type Message = ();
    type Output = u32;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
        for event in events {
            match event {
                Event::Cancel => {
                    self.cancels += 1;
                    yields.command(CommandId::SLEEP, 0, MOMENT);
                }
                Event::Completion { result, .. } => {
                    result?;
                    return Ok(Status::Done(self.cancels));
                }
                other => unreachable!("{other:?}"),
            }
        }
        Ok(Status::Wait(WaitingFor::Either))
    }
}

#[test]
fn a_state_machine_cleans_up_after_one_cancel() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let machine = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(Machine { cancels: 0 }, "", ())
            .expect("it accepts all");
        assert!(shut_down(&scheduler).is_empty());
        assert_eq!(machine.join(), Ok(1));
    }
}

#[test]
fn a_panic_in_the_clean_up_ends_that_process_alone() {
    let scheduler = scheduler(2);
    let children = [true, false].map(|panics| {
        scheduler.start(move |cx: Context<()>| async move {
            cx.cancelled().await;
            sleep(MOMENT).await;
            if panics {
                panic_quietly("in the clean-up");
            }
        })
    });
    assert!(shut_down(&scheduler).is_empty());
    let [panicking, other] = children.map(|child| child.join());
    assert_eq!(panicking, Err(Exit::Panicked("in the clean-up".into())));
    assert_eq!(other, Ok(()));
}

#[test]
fn from_the_first_moment_nobody_else_can_spawn_and_what_is_refused_comes_back() {
    for width in [1, 2] {
        let (closing, other) = (scheduler(width), scheduler(1));
        let (began, begins) = mpsc::channel();
        let release = Arc::new(AtomicBool::new(false));
        let child = closing.start({
            let release = Arc::clone(&release);
            move |cx: Context<()>| async move {
                cx.cancelled().await;
                began.send(()).expect("the test listens");
                while !release.load(Relaxed) {
                    yield_now().await;
                }
                spawn(async { "its own" }).await
            }
        });
        crate::home::thread::scope(|scope| {
            let (closing, other) = (&closing, &other);
            let shutting_down = scope.spawn(move || shut_down(closing));
            soon(&begins);
            let on_closing = || SpawnOptions::new().on(closing);

            let refused = on_closing().try_spawn(async { 1 }).expect_err("it is closing");
            assert!(refused.is_closing() && !refused.is_limit());
            assert_eq!(
                refused.to_string(),
                "cannot start a process: the scheduler is shutting down"
            );
            assert_eq!(other.spawn(refused.into_inner()).join(), Ok(1), "the future is whole");

            let refused = on_closing()
                .try_start(|cx: Context<u32>| async move { cx.pid() })
                .expect_err("it is closing");
            assert!(other.start(refused.into_inner()).join().is_ok(), "the closure is whole");

            let machine = Machine { cancels: 7 };
            let refused = SpawnOptions::new()
                .on(closing)
                .try_start_machine(machine, "", ())
                .expect_err("it is closing");
            assert!(refused.is_closing());
            assert_eq!(refused.into_inner().cancels, 7);

            assert_eq!(closing.spawn(async { 1 }).join(), Err(Exit::Refused));
            let nobody = closing.start(|mut cx: Context<u32>| async move { cx.recv().await });
            assert_eq!(
                nobody.send(5).map_err(|error| (error.is_ended(), error.into_inner())),
                Err((true, 5))
            );
            assert_eq!(nobody.join(), Err(Exit::Refused));

            // Neither a future that a thread waits for, nor a process of another scheduler, is one
            // of its processes.
            assert_eq!(closing.block_on(async { spawn(async { 1 }).await }), Err(Exit::Refused));
            let stranger = closing.clone();
            let strange = other.spawn(async move { stranger.spawn(async { 1 }).await });
            assert_eq!(strange.join(), Ok(Err(Exit::Refused)));

            release.store(true, Relaxed);
            assert!(shutting_down.join().expect("it does not panic").is_empty());
        });
        assert_eq!(child.join(), Ok(Ok("its own")), "a process that cleans up may spawn");
    }
}

#[test]
fn a_process_may_shut_its_own_scheduler_down() {
    for width in [0, 1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        let others: Vec<_> = (0..10)
            .map(|_| {
                scheduler.start(|cx: Context<()>| async move {
                    cx.cancelled().await;
                    sleep(MOMENT).await;
                })
            })
            .collect();
        let own = scheduler.clone();
        let caller = scheduler.start(move |mut cx: Context<u32>| async move {
            assert!(own.shutdown(AMPLE).await.is_empty());
            assert!(!cx.is_cancelled(), "the caller is excluded");
            for other in others {
                assert_eq!(other.await, Ok(()));
            }
            // The process goes on as before, but cannot spawn.
            sleep(MOMENT).await;
            cx.address().send(3).expect("it is alive");
            assert_eq!(cx.recv().await, Some(3));
            assert_eq!(spawn(async {}).await, Err(Exit::Refused));
            let snapshot = own.snapshot();
            assert_eq!((snapshot.spawned, snapshot.ended), (11, 10));
            drop(own);
            yield_now().await;
        });
        assert_eq!(caller.join(), Ok(()), "width {width}");
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn the_last_scheduler_may_be_dropped_by_the_process_that_shut_it_down() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let (told, tells) = mpsc::channel();
        let own = scheduler.clone();
        let caller = scheduler.spawn(async move {
            let unfinished = own.shutdown(AMPLE).await;
            told.send(unfinished.processes.len()).expect("the test listens");
            drop(own);
        });
        drop(scheduler);
        let result = caller.join();
        assert!(result == Ok(()) || result == Err(Exit::Killed), "{result:?}");
        assert_eq!(soon(&tells), 0);
        soon_closed(&freed);
    }
}

#[test]
fn a_second_shutdown_is_over_at_once() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        drop(scheduler.start(|cx: Context<()>| async move { cx.cancelled().await }));
        assert!(shut_down(&scheduler).is_empty());
        let again = scheduler.now();
        assert!(shut_down(&scheduler).is_empty());
        assert!(scheduler.now() - again < AMPLE / 2);
    }
}

#[test]
fn several_threads_may_shut_down_at_once() {
    for width in [1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        for _ in 0..100 {
            drop(scheduler.start(|cx: Context<()>| async move {
                cx.cancelled().await;
                sleep(MOMENT).await;
            }));
        }
        let begin = scheduler.now();
        crate::home::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(shut_down(&scheduler).is_empty()));
            }
        });
        assert!(scheduler.now() - begin < AMPLE / 2);
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn of_two_processes_that_shut_down_the_first_deadline_decides() {
    let scheduler = scheduler(0);
    let begin = scheduler.now();
    let callers = [100, 50].map(|deadline| {
        let own = scheduler.clone();
        scheduler.start(move |_: Context<()>| async move {
            let unfinished = own.shutdown(Duration::from_secs(deadline)).await;
            (unfinished.processes.len(), Instant::now() - begin)
        })
    });
    let [later, sooner] = callers.map(|caller| caller.join());
    assert_eq!(later, Err(Exit::Killed), "for the other shutdown, it has not ended");
    assert_eq!(sooner, Ok((0, Duration::from_millis(49_900))));
}

#[test]
fn a_shutdown_that_is_given_up_can_be_taken_up_again() {
    let scheduler = scheduler(0);
    let begin = scheduler.now();
    let child = scheduler.start(|cx: Context<()>| async move {
        cx.cancelled().await;
        sleep(Duration::from_secs(5)).await;
    });
    scheduler.block_on(async {
        assert!(timeout(Duration::from_secs(1), scheduler.shutdown(AMPLE)).await.is_err());
        assert_eq!(spawn(async {}).await, Err(Exit::Refused), "it goes on closing");
        assert!(scheduler.shutdown(AMPLE).await.is_empty());
    });
    assert_eq!(scheduler.now() - begin, Duration::from_secs(5));
    assert_eq!(child.join(), Ok(()));
}

#[test]
fn with_all_the_time_in_the_world_a_shutdown_ends_with_the_last_process() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let cleaned_up = Arc::new(AtomicBool::new(false));
        let clean_up = Arc::clone(&cleaned_up);
        drop(scheduler.start(|cx: Context<()>| async move {
            cx.cancelled().await;
            sleep(MOMENT).await;
            clean_up.store(true, SeqCst);
        }));
        assert!(scheduler.block_on(scheduler.shutdown(Duration::MAX)).is_empty());
        assert!(cleaned_up.load(SeqCst));
    }
}

/// Goal: a process that is accepted while a shutdown begins is asked to end like the others, and is
/// never left to be terminated. Any other is refused.
#[test]
fn what_is_accepted_at_the_last_moment_is_cancelled() {
    for round in 0..100 {
        let scheduler = scheduler(2);
        crate::home::thread::scope(|scope| {
            let (began, begins) = mpsc::channel();
            let spawning = scope.spawn({
                let scheduler = &scheduler;
                move || {
                    let mut children = Vec::new();
                    let cooperative = || |cx: Context<()>| async move { cx.cancelled().await };
                    while let Ok(child) = SpawnOptions::new().on(scheduler).try_start(cooperative())
                    {
                        children.push(child);
                        crate::home::others_may_run();
                        if children.len() == 10 {
                            began.send(()).expect("the test listens");
                        }
                    }
                    children
                }
            });
            soon(&begins);
            for _ in 0..round * 50 {
                procession_sync::hint::spin_loop();
            }
            assert!(shut_down(&scheduler).is_empty());
            for child in spawning.join().expect("it does not panic") {
                assert_eq!(child.join(), Ok(()), "round {round}");
            }
        });
    }
}
