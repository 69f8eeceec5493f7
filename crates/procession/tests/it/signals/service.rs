//! The end of a service by a signal: readiness, the delay, and the exit code.

use std::future::pending;
use std::io;
use std::process::{ExitCode, Termination};
use std::time::Duration;

use procession::process::JoinSet;
use procession::signal::{ShutdownOptions, SignalKind};
use procession::{Context, SpawnOptions, sleep, spawn, start};

use super::{Service, child, in_child, raise};
use crate::home::mpsc;
use crate::scene::{driven, threaded};

/// Goal: a program that something else can ask is out of the load balancer before its listener is
/// closed.
#[test]
fn a_program_is_not_ready_for_the_delay_before_its_future_is_dropped() {
    in_child("service::a_program_is_not_ready_for_the_delay_before_its_future_is_dropped", || {
        let scheduler = driven();
        let health = scheduler.health();
        let second = Duration::from_secs(1);
        let (tells, told) = mpsc::channel();
        let own = scheduler.clone();
        let shutdown = ShutdownOptions::within(second * 30).delay(second * 5);
        let begun = scheduler.now();
        let stopped = scheduler.run_until_signal(shutdown, async {
            let health = own.health();
            assert!(health.is_ready());
            let late = start(|mut cx: Context<()>| async move {
                cx.recv().await;
                sleep(Duration::from_secs(60)).await;
            });
            drop(late);
            raise(SignalKind::terminate());
            loop {
                sleep(second).await;
                let passed = own.now().saturating_duration_since(begun);
                tells.send((passed, health.is_ready())).expect("the test listens");
            }
        });
        let stopped = stopped.expect("the system has descriptors");
        assert_eq!(stopped.signal(), Some(SignalKind::terminate()));
        let told: Vec<_> = told.try_iter().collect();
        let not_ready: Vec<_> = told.iter().filter(|(_, is_ready)| !is_ready).collect();
        assert!((4..=5).contains(&not_ready.len()), "{told:?}");
        assert_eq!(stopped.unfinished().terminated.len(), 1);
        assert!(!health.is_ready());
        assert_eq!(health.reasons().len(), 1);
        // The clock of the test may have moved while the signal was on its way.
        let signalled = told.iter().filter(|(_, is_ready)| *is_ready).count() as u32;
        let ended = scheduler.now().saturating_duration_since(begun);
        let least = second * 30 - Duration::from_millis(100);
        assert!((least..=least + second * (signalled + 1)).contains(&ended), "{ended:?}");
    });
}

#[test]
fn a_future_that_completes_in_the_delay_ends_it() {
    in_child("service::a_future_that_completes_in_the_delay_ends_it", || {
        let scheduler = threaded(1);
        let day = Duration::from_secs(24 * 60 * 60);
        let shutdown = ShutdownOptions::within(day * 2).delay(day);
        let own = scheduler.health();
        let stopped = scheduler.run_until_signal(shutdown, async move {
            raise(SignalKind::interrupt());
            while own.is_ready() {
                sleep(Duration::from_millis(1)).await;
            }
            ExitCode::from(3)
        });
        let stopped = stopped.expect("the system has descriptors");
        assert_eq!(stopped.signal(), Some(SignalKind::interrupt()));
        assert_eq!(stopped.output(), Some(&ExitCode::from(3)));
        assert_eq!(stopped.report(), ExitCode::from(3));
    });
}

#[test]
fn a_second_signal_ends_a_program_in_its_delay() {
    let Some(child) = child("service::a_second_signal_ends_a_program_in_its_delay") else {
        let day = Duration::from_secs(24 * 60 * 60);
        let shutdown = ShutdownOptions::within(day * 2).delay(day);
        let scheduler = threaded(1);
        let health = scheduler.health();
        #[expect(clippy::print_stdout, reason = "the test reads it")]
        let stopped = scheduler.run_until_signal(shutdown, async move {
            println!("ready");
            while health.is_ready() {
                sleep(Duration::from_millis(1)).await;
            }
            println!("not any more");
            pending::<()>().await;
        });
        drop(stopped);
        return;
    };
    let mut service = Service::new(child);
    service.signal(rustix::process::Signal::TERM);
    service.until("not any more");
    service.signal(rustix::process::Signal::TERM);
    assert_eq!(service.0.wait().expect("it ends").code(), Some(143));
}

#[test]
fn a_delay_that_is_not_shorter_than_the_deadline_is_an_error() {
    let second = Duration::from_secs(1);
    for delay in [second, second * 2] {
        let shutdown = ShutdownOptions::within(second).delay(delay);
        let error = threaded(1).run_until_signal(shutdown, async {}).expect_err("it cannot be");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with("leaves nothing of the deadline of 1s"), "{error}");
    }
}

/// The output of the future says more than what was lost after it.
#[test]
fn a_program_that_loses_a_process_fails_and_reports_its_output_too() {
    let name = "service::a_program_that_loses_a_process_fails_and_reports_its_output_too";
    let Some(child) = child(name) else {
        for output in [Ok(()), Err("no disk")] {
            let scheduler = driven();
            let stopped = scheduler.run_until_signal(Duration::from_secs(30), async move {
                let options = SpawnOptions::new().label("late");
                drop(options.start(|_: Context<()>| pending::<()>()));
                output
            });
            let stopped = stopped.expect("the system has descriptors");
            assert_eq!(stopped.report(), ExitCode::FAILURE);
        }
        return;
    };
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr);
    let ends = "was terminated before it had ended, although it had been asked to end";
    assert_eq!(text.matches(ends).count(), 2, "{text}");
    assert!(text.contains("late (p") && text.contains("Error: \"no disk\""), "{text}");
}

/// A test with a child that ends by a signal in `main`, and names three dropped processes.
fn names_the_dropped<F: Future<Output = ()>>(test: &str, main: impl FnOnce() -> F) {
    let Some(child) = child(test) else {
        let stopped = driven().run_until_signal(Duration::from_secs(30), main());
        let stopped = stopped.expect("the system has descriptors");
        assert_eq!(stopped.report(), ExitCode::SUCCESS);
        return;
    };
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("stopped by SIGTERM\n3 processes were dropped before the end"), "{text}");
    assert!(text.contains(file!()), "{text}");
}

/// Goal: a program that spawns a process for each connection, and says nothing about the end, does
/// not lose its connections in silence.
#[test]
fn a_program_that_drops_what_it_has_spawned_says_so() {
    names_the_dropped("service::a_program_that_drops_what_it_has_spawned_says_so", || async {
        for _ in 0..3 {
            drop(spawn(pending::<()>()));
        }
        raise(SignalKind::terminate());
        pending::<()>().await;
    });
}

/// Goal: the processes of a set that the main function owns are named as well, although the set
/// cancels them when the future of the main function is dropped.
#[test]
fn a_program_names_the_processes_that_its_main_function_owned() {
    let test = "service::a_program_names_the_processes_that_its_main_function_owned";
    names_the_dropped(test, || async {
        let mut set = JoinSet::new();
        for _ in 0..3 {
            set.insert(spawn(pending::<()>()));
        }
        raise(SignalKind::terminate());
        drop(set.join_next().await);
    });
}
