//! Shutdowns that some processes do not obey: which ones are terminated, when, and which are
//! reported.

use crate::home::{mpsc, thread};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::observe::ProcessState;
use procession::process::{OnCancel, Outcome};
use procession::time::Instant;
use procession::{Context, Exit, Scheduler, SpawnOptions, sleep, spawn, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::hint;

use super::{builder, mortal, mortal_of, scheduler, shut_down};
use crate::scene::{soon, soon_closed};

/// Far more than a shutdown may need beyond its deadline. A stuck process stays stuck until the
/// test releases it.
const SLACK: Duration = Duration::from_secs(30);

/// Reports the time of its drop.
struct Dropped(mpsc::Sender<Instant>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send(Instant::now()).expect("the test listens");
    }
}

/// Its drop returns when the sender is dropped.
struct Stuck(mpsc::Receiver<()>);

impl Outcome for Stuck {}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.recv().expect_err("nothing is sent");
    }
}

#[test]
fn a_process_that_swallows_the_cancel_is_terminated_shortly_before_the_deadline() {
    let milliseconds = Duration::from_millis;
    // A tenth is kept back for terminating, at most 100 ms.
    let cases = [(10_000, 9_900), (1_000, 900), (500, 450), (10, 9), (0, 0)];
    for (deadline, terminated) in
        cases.map(|(deadline, terminated)| (milliseconds(deadline), milliseconds(terminated)))
    {
        let scheduler = scheduler(0);
        let begin = scheduler.now();
        let (dropped, drops) = mpsc::channel();
        let sleeper = Dropped(dropped.clone());
        let sleeper = scheduler.start(|_: Context<()>| async move {
            sleep(Duration::from_secs(3600)).await;
            drop(sleeper);
        });
        let waiter = Dropped(dropped);
        let waiter = scheduler.start(|mut cx: Context<()>| async move {
            cx.recv().await;
            pending::<()>().await;
            drop(waiter);
        });
        let unfinished = scheduler.block_on(scheduler.shutdown(deadline));
        if deadline > Duration::ZERO {
            assert!(unfinished.processes.is_empty(), "{unfinished:?}");
            let pids = unfinished.terminated.iter().map(|process| process.pid);
            assert!(pids.eq([sleeper.pid(), waiter.pid()]), "{unfinished:?}");
            assert_eq!(
                scheduler.now() - begin,
                terminated,
                "all have ended, so it waits no longer"
            );
        } else {
            assert_eq!(unfinished.processes.len(), 2, "there was no time");
        }
        assert_eq!(sleeper.join(), Err(Exit::Killed));
        assert_eq!(waiter.join(), Err(Exit::Killed));
        assert!(drops.iter().map(|moment| moment - begin).eq([terminated; 2]));
    }
}

#[test]
fn a_process_that_is_busy_with_swallowing_the_cancel_is_terminated_between_two_steps() {
    for width in [1, 2] {
        let (scheduler, freed) = mortal(width);
        let yielding = scheduler.start(|_: Context<()>| async {
            loop {
                yield_now().await;
            }
        });
        let receiving = scheduler.start(|mut cx: Context<()>| async move {
            loop {
                // Returns immediately once cancelled. Each call charges the budget.
                cx.recv().await;
            }
        });
        let waiting = scheduler.start(|cx: Context<()>| async move {
            loop {
                cx.cancelled().await;
                // Ignored: the spawned process may be terminated before this one.
                drop(spawn(async {}).await);
            }
        });
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(200)));
        // On a slow machine, 20 ms may be too short to end all of them, but then they are reported.
        assert!(unfinished.processes.iter().all(|process| process.state != ProcessState::Complete));
        let results: [Result<(), Exit>; 3] = [yielding.join(), receiving.join(), waiting.join()];
        assert!(results.iter().all(|result| *result == Err(Exit::Killed)), "{results:?}");
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn a_step_that_does_not_return_is_reported_by_the_deadline() {
    for width in [1, 2, 4] {
        // After the release, the process ends by itself, or is ended between two steps.
        for ends in [true, false] {
            let (scheduler, freed) = mortal(width);
            let release = Arc::new(AtomicBool::new(false));
            let (began, begins) = mpsc::channel();
            let released = Arc::clone(&release);
            let options = SpawnOptions::new().on(&scheduler).label("stuck");
            let line = line!() + 1;
            let stuck = options.on_cancel(OnCancel::Ask).spawn(async move {
                began.send(()).expect("the test listens");
                while !released.load(Relaxed) {
                    hint::spin_loop();
                    crate::home::others_may_run();
                }
                if !ends {
                    pending::<()>().await;
                }
                "done"
            });
            soon(&begins);
            let begin = scheduler.now();
            let deadline = Duration::from_millis(100);
            let unfinished = scheduler.block_on(scheduler.shutdown(deadline));
            let took = scheduler.now() - begin;
            assert!(deadline <= took && took < deadline + SLACK, "{took:?}");
            let [process] = &unfinished.processes[..] else { unreachable!("{unfinished:?}") };
            assert_eq!(process.pid, stuck.pid());
            assert_eq!(
                (process.label.as_deref(), process.state),
                (Some("stuck"), ProcessState::Running)
            );
            assert_eq!((process.location.file(), process.location.line()), (file!(), line));
            release.store(true, Relaxed);
            assert_eq!(stuck.join(), if ends { Ok("done") } else { Err(Exit::Killed) });
            drop(scheduler);
            soon_closed(&freed);
        }
    }
}

#[test]
fn a_process_behind_a_stuck_step_is_reported_too() {
    // With a watchdog, nothing would be stuck there for long.
    let (scheduler, freed) = mortal_of(builder(1).watchdog(false));
    let release = Arc::new(AtomicBool::new(false));
    let (began, begins) = mpsc::channel();
    let released = Arc::clone(&release);
    let stuck = scheduler.spawn(async move {
        began.send(()).expect("the test listens");
        while !released.load(Relaxed) {
            hint::spin_loop();
            crate::home::others_may_run();
        }
    });
    soon(&begins);
    let behind = [(); 3].map(|()| scheduler.spawn(async {}));
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(50)));
    let pids: Vec<_> = unfinished.processes.iter().map(|process| process.pid).collect();
    assert_eq!(unfinished.processes.len(), 4);
    assert!(
        pids.contains(&stuck.pid()) && behind.iter().all(|process| pids.contains(&process.pid()))
    );
    let running =
        unfinished.processes.iter().filter(|process| process.state == ProcessState::Running);
    assert!(running.map(|process| process.pid).eq([stuck.pid()]));
    release.store(true, Relaxed);
    assert_eq!(stuck.join(), Ok(()));
    for process in behind {
        assert_eq!(process.join(), Err(Exit::Shutdown), "it was dropped before its first step");
    }
    drop(scheduler);
    soon_closed(&freed);
}

#[test]
fn a_drop_that_does_not_return_is_reported_by_the_deadline() {
    #[derive(Clone, Copy, Debug)]
    enum Of {
        Future,
        DetachedResult,
        Message,
    }
    for width in [1, 2] {
        for of in [Of::Future, Of::DetachedResult, Of::Message] {
            let (scheduler, freed) = mortal(width);
            let (release, released) = mpsc::channel::<()>();
            let stuck = Stuck(released);
            let pid = match of {
                Of::Future => {
                    let process = scheduler.spawn(async move {
                        pending::<()>().await;
                        drop(stuck);
                    });
                    process.pid()
                }
                Of::DetachedResult => {
                    let process = scheduler.start(|cx: Context<()>| async move {
                        cx.cancelled().await;
                        stuck
                    });
                    process.pid()
                }
                Of::Message => {
                    let process = scheduler.start(|_: Context<Stuck>| pending::<()>());
                    process.send(stuck).unwrap_or_else(|_| unreachable!("it is alive"));
                    process.pid()
                }
            };
            let begin = scheduler.now();
            let deadline = Duration::from_millis(100);
            let unfinished = scheduler.block_on(scheduler.shutdown(deadline));
            let took = scheduler.now() - begin;
            assert!(deadline <= took && took < deadline + SLACK, "{took:?}");
            assert!(
                unfinished.processes.iter().map(|process| process.pid).eq([pid]),
                "{of:?} {unfinished:?}"
            );
            drop(release);
            drop(scheduler);
            soon_closed(&freed);
        }
    }
}

#[test]
fn a_process_that_shuts_down_is_told_of_others_but_not_of_itself() {
    let scheduler = scheduler(2);
    let release = Arc::new(AtomicBool::new(false));
    let (began, begins) = mpsc::channel();
    let released = Arc::clone(&release);
    let stuck = scheduler.spawn(async move {
        began.send(()).expect("the test listens");
        while !released.load(Relaxed) {
            hint::spin_loop();
            crate::home::others_may_run();
        }
    });
    soon(&begins);
    let own = scheduler.clone();
    let caller = scheduler.spawn(async move { own.shutdown(Duration::from_millis(100)).await });
    let unfinished = caller.join().expect("it is not terminated");
    assert!(
        unfinished.processes.iter().map(|process| process.pid).eq([stuck.pid()]),
        "{unfinished:?}"
    );
    release.store(true, Relaxed);
    assert_eq!(stuck.join(), Ok(()));
}

#[test]
fn without_any_time_everybody_is_terminated_and_reported() {
    for width in [1, 2] {
        let (scheduler, freed) = mortal(width);
        let processes: Vec<_> =
            (0..100).map(|_| scheduler.start(|_: Context<()>| pending::<()>())).collect();
        scheduler.run_until_idle();
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::ZERO));
        assert!(unfinished.processes.len() <= 100, "some may have ended already");
        for process in processes {
            assert_eq!(process.join(), Err(Exit::Killed));
        }
        assert!(shut_down(&scheduler).is_empty());
        drop(scheduler);
        soon_closed(&freed);
    }
}

#[test]
fn a_second_shutdown_reports_what_is_still_there() {
    let scheduler = scheduler(2);
    let (release, released) = mpsc::channel();
    let stuck = Stuck(released);
    let (drops, dropped) = mpsc::channel::<()>();
    let process = scheduler.spawn(async move {
        // Dropped in the reverse order.
        let _stuck = stuck;
        let _drops = drops;
        pending::<()>().await;
    });
    scheduler.run_until_idle();
    // A shutdown terminates what is not being dropped by then, and the exit is another one.
    process.cancel();
    soon_closed(&dropped);
    for _ in 0..2 {
        let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(20)));
        assert!(unfinished.processes.iter().map(|process| process.pid).eq([process.pid()]));
    }
    drop(release);
    assert!(shut_down(&scheduler).is_empty());
    assert_eq!(process.join(), Err(Exit::Shutdown));
}

/// Its `init` reports that it has begun, waits until it may end, and gives the clock a chance to
/// move.
struct LongBegun {
    begun: mpsc::Sender<()>,
    scheduler: Scheduler,
}

impl Process for LongBegun {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        self.begun.send(()).expect("the test listens");
        let refused = || {
            SpawnOptions::new()
                .on(&self.scheduler)
                .try_spawn(async {})
                .is_err_and(|refused| refused.is_closing())
        };
        while !refused() {
            hint::spin_loop();
            crate::home::others_may_run();
        }
        (0..1000).for_each(|_| thread::yield_now());
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Status::Done(()))
    }
}

#[test]
fn the_test_clock_stands_still_while_a_thread_starts_a_process() {
    let scheduler = scheduler(0);
    let (begun, begins) = mpsc::channel();
    let process = LongBegun { begun, scheduler: scheduler.clone() };
    crate::home::thread::scope(|scope| {
        scope.spawn(|| {
            SpawnOptions::new()
                .on(&scheduler)
                .try_start_machine(process, "", ())
                .map(drop)
                .expect("it came before the shutdown")
        });
        begins.recv().expect("it begins");
        assert!(shut_down(&scheduler).is_empty(), "nothing was left to wait for");
    });
}
