//! What the simulation finds in programs, and what a report says.

use procession_sync::atomic::Ordering::Relaxed;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use procession_sim::{Check, Faults, Sim, Strategy};
use procession_sync::atomic::{AtomicBool, AtomicU32};
use procession_sync::host;

use crate::counters;

/// Returns the report of a check that must fail.
fn report<P: Future<Output = ()> + 'static>(
    check: Check,
    program: impl Fn(Sim) -> P + Send + Sync + 'static,
) -> String {
    check.try_run(program).expect_err("the program is wrong")
}

/// Two processes that read, yield, and write: the first program of `docs/SIMULATION.md`.
async fn deposits(sim: Sim) {
    let account = Arc::new(AtomicU32::new(0));
    let deposits = [(); 2].map(|()| {
        let account = Arc::clone(&account);
        sim.spawn(async move {
            let balance = account.load(Relaxed);
            procession::yield_now().await;
            account.store(balance + 1, Relaxed);
        })
    });
    for deposit in deposits {
        deposit.await.expect("it ends");
    }
    sim.always("no deposit is lost", account.load(Relaxed) == 2);
}

/// Returns the tape that a report names.
fn tape(report: &str) -> &str {
    let (_, line) = report.split_once("PROCESSION_SIM=").expect("the report has a tape");
    line.split(' ').next().expect("the tape ends")
}

#[test]
fn a_lost_update_is_found_made_short_and_replayed() {
    let found = report(Check::new(), deposits);
    // As the guide shows it, in this order.
    let mut rest = found.as_str();
    for part in [
        "seed ",
        " failed: no deposit is lost (",
        " of virtual time\nshrunk from ",
        " decisions to 2, in ",
        "\nworkers: 2; classes of faults: none\n  1  at ",
        " is preempted after a step of process 0.",
        " runs\nreplay:  PROCESSION_SIM=2-r",
        " cargo test found::a_lost_update",
    ] {
        (_, rest) = rest.split_once(part).unwrap_or_else(|| panic!("no {part:?} in {found}"));
    }
    let replayed = report(Check::new().replay(tape(&found)), deposits);
    assert!(replayed.starts_with("the replay failed: no deposit is lost ("), "{replayed}");
    // The tamest run is right.
    Check::new().replay("2").run(deposits);
}

#[test]
fn a_lock_order_inversion_is_found_and_the_report_says_what_each_process_waits_for() {
    let found = report(Check::new(), |sim| async move {
        let locks = [(); 2].map(|()| Arc::new(procession::sync::Mutex::new(())));
        let philosophers = [(0, 1), (1, 0)].map(|(first, second)| {
            let (first, second) = (Arc::clone(&locks[first]), Arc::clone(&locks[second]));
            sim.spawn(async move {
                let _first = first.lock().await;
                procession::checkpoint().await;
                let _second = second.lock().await;
            })
        });
        for philosopher in philosophers {
            philosopher.await.expect("it ends");
        }
    });
    assert!(found.contains("deadlock: all processes wait"), "{found}");
    assert_eq!(found.matches("waits for lock").count(), 2, "{found}");
}

#[test]
fn a_panic_of_a_process_is_a_failure_unless_it_is_allowed() {
    let program = |sim: Sim| async move {
        let child = sim.spawn(async { panic!("no such account") });
        assert!(child.await.is_err(), "it panics");
    };
    let found = report(Check::new(), program);
    assert!(found.contains("failed: panicked: no such account ("), "{found}");
    Check::new().seeds(0..20).allow_panics().run(program);
}

#[test]
fn a_panic_of_the_program_itself_is_a_failure() {
    let found = report(Check::new().allow_panics().seeds(0..1), |_| async { panic!("wrong") });
    assert!(found.contains("failed: panicked: wrong ("), "{found}");
}

#[test]
fn a_scheduler_that_cannot_be_built_is_a_failure() {
    let check = || Check::new().allow_panics().seeds(0..1);
    let panics = report(check().scheduler(|_| panic!("no scheduler")), |_| async {});
    assert!(panics.contains("failed: panicked: no scheduler ("), "{panics}");
    let refused = report(check().scheduler(|builder| builder.max_timers(0)), |_| async {});
    assert!(refused.contains("failed: the scheduler cannot be built: "), "{refused}");
}

/// Goal: the result does not depend on which run ends first. Method: a program that fails in two
/// ways, of which one takes long.
#[test]
fn of_several_runs_at_a_time_the_lowest_seed_that_fails_is_reported() {
    let found = |jobs, slow| {
        let found = report(Check::new().jobs(jobs).faults(Faults::none()), move |sim| async move {
            let chosen = sim.choose(0..8);
            let yields = if chosen == slow { 20_000 } else { 0 };
            for _ in 0..yields {
                procession::yield_now().await;
            }
            sim.always("the choice is low", chosen < 6);
        });
        let (seed, _) = found.split_once(" failed: ").expect("a run fails");
        seed.to_owned()
    };
    let one = found(1, 0);
    for slow in [6, 7] {
        assert_eq!(found(20, slow), one, "a choice of {slow} takes long");
    }
}

#[test]
fn at_least_one_seed_runs_however_short_the_time() {
    let outcome = Check::new().time_limit(Duration::ZERO).run(|_| async {});
    assert_eq!(outcome.seeds, 1);
}

#[test]
#[should_panic = "cannot check without seeds"]
fn a_check_without_seeds_is_refused() {
    drop(Check::new().seeds(5..5));
}

#[test]
fn a_program_without_an_end_is_found() {
    let check = || Check::new().seeds(0..1);
    let waits = report(check(), |_| pending());
    assert!(waits.contains("deadlock: all processes wait"), "{waits}");
    let yields = report(check(), |sim| async move {
        sim.spawn(pending::<()>()).detach();
        let yields = sim.spawn(async {
            loop {
                procession::yield_now().await;
            }
        });
        yields.await.expect("it does not fail");
    });
    assert!(yields.contains("livelock: no end after"), "{yields}");
    // The report says which process runs, and what the other processes wait for.
    assert!(yields.contains("\n     sim-0, with process "), "{yields}");
    let is_state = |line: &&str| line.ends_with(" can run") || line.contains(" waits for ");
    let states = yields.lines().filter(|line| line.contains(" (found.rs:")).filter(is_state);
    assert_eq!(states.count(), 2, "{yields}");
    assert!(yields.contains(") waits for "), "{yields}");
}

#[test]
fn a_step_without_an_end_is_found() {
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let check = Check::new().seeds(0..1).workers(2..=2).step_limit(Duration::from_millis(200));
    let found = report(check, move |sim| {
        let seen = Arc::clone(&seen);
        async move {
            let child = sim.spawn(async move {
                while !seen.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            child.await.expect("it ends");
        }
    });
    is_over.store(true, Relaxed);
    let (_, stuck) = found.split_once("a step does not end: ").expect("it is stuck");
    assert!(stuck.starts_with("no point was passed for 200ms of real time, on sim-"), "{found}");
    assert!(stuck.contains(", with process 0.") && stuck.contains(" (found.rs:"), "{found}");
}

#[test]
fn an_event_that_never_happens_fails_the_check() {
    let found = report(Check::new().seeds(1..6), |sim| async move {
        sim.sometimes("the program begins", true);
        sim.sometimes("the moon is blue", false);
    });
    let missing = "no run of 5 did what some should: the moon is blue (asked 5 times)";
    assert!(found.contains(missing), "{found}");
}

#[test]
fn an_event_that_nobody_asks_about_fails_the_check_that_names_it() {
    let check = Check::new().seeds(0..5).expect_sometimes(["the sun is out", "the moon is blue"]);
    let found = report(check, |sim| async move {
        sim.sometimes("the sun is out", sim.choose(0..2) == 1);
    });
    let missing = "did what some should: the moon is blue (never asked)\n";
    assert!(found.contains(missing), "{found}");
}

#[test]
fn a_run_that_the_seed_does_not_decide_is_found() {
    let runs = AtomicU32::new(0);
    let found = report(Check::new(), move |sim| {
        let run = runs.fetch_add(1, Relaxed);
        async move {
            for _ in 0..run {
                sim.choose(0..10);
            }
        }
    });
    assert!(found.contains("ran twice and differed"), "{found}");
    assert!(found.contains("The first difference is in event"), "{found}");
}

/// The number of the process decides, which only another process shows.
#[test]
fn a_run_that_differs_in_another_process_is_found() {
    let check = || Check::new().seeds(3..8).again_in_child();
    let found = report(check(), |sim| async move {
        sim.note(format!("this is process {}", std::process::id()));
    });
    let parts = ["seed 3 ran here and in a child process", "The first difference is in event 1:"];
    for part in parts.into_iter().chain(["\n  here:", "\n  in the child:", "this is process"]) {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn a_run_that_is_the_same_in_another_process_passes() {
    let outcome = Check::new().seeds(0..3).again_in_child().try_run(|sim| async move {
        sim.note(format!("the program chooses {}", sim.choose(0..1000)));
    });
    assert!(outcome.is_ok_and(|outcome| outcome.seeds == 3));
}

/// A second check at one place is a different check, even in the child process.
#[test]
fn checks_at_one_place_are_compared_with_themselves() {
    for name in ["one", "the other"] {
        let check = Check::new().seeds(0..2).again_in_child();
        check.run(move |sim| async move { sim.note(name) });
    }
}

/// Some shrunk tapes, and a run that has failed, decide nothing more for such a program.
#[test]
fn a_program_that_chooses_until_it_gets_another_number_ends() {
    let found = report(Check::new().faults(Faults::none()), |sim| async move {
        for _ in 0..50 {
            let first = sim.choose(0..5);
            let mut second = first;
            while second == first {
                second = sim.choose(0..5);
            }
            procession::yield_now().await;
            sim.always("the first is not 3", first != 3);
        }
    });
    assert!(found.contains(" failed: the first is not 3 ("), "{found}");
    let replayed = report(Check::new().replay(tape(&found)), |sim| async move {
        let (mut second, mut times) = (0, 0);
        while second == 0 {
            second = sim.choose(0..2);
            times += 1;
        }
        sim.always("it ends", times == 0);
    });
    assert!(replayed.contains("the replay failed: it ends ("), "{replayed}");
}

/// The hook of the program is the outermost hook, and reports no panic to the simulation. The hook
/// belongs to the whole test program, so this runs in a separate program.
#[test]
fn a_panic_is_found_whatever_hook_the_program_installs() {
    const CHILD: &str = "PROCESSION_SIM_HOOKED";
    if std::env::var_os(CHILD).is_some() {
        let hooks: [fn(); 2] =
            [procession::observe::install_panic_hook, || std::panic::set_hook(Box::new(|_| {}))];
        for install in hooks {
            let check = Check::new().seeds(0..1).faults(Faults::none());
            let found = check.try_run_threads(move |_| {
                install();
                procession::run(async {
                    procession::spawn(async { panic!("on purpose") }).detach();
                    procession::sleep(Duration::from_secs(1)).await;
                });
            });
            let found = found.expect_err("a process panics");
            assert!(found.contains("on purpose"), "{found}");
        }
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().expect("Linux tells it"))
        .args(["--exact", "found::a_panic_is_found_whatever_hook_the_program_installs"])
        .env(CHILD, "1")
        .output()
        .expect("it is this program");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_panic_that_is_resumed_is_found() {
    let program = |resumes: bool| {
        move |_: Sim| async move {
            let child = procession::spawn(async move {
                if resumes {
                    std::panic::resume_unwind(Box::new("again"));
                }
            });
            drop(child.await);
        }
    };
    let check = || Check::new().seeds(0..1).faults(Faults::none());
    let found = report(check(), program(true));
    assert!(found.contains("again"), "{found}");
    check().allow_panics().run(program(true));
    check().run(program(false));
}

/// A wait that is polled by one process and then by another one wakes the last.
#[test]
fn a_wait_for_a_quiet_point_can_be_moved() {
    Check::new().seeds(0..20).run(|sim| async move {
        let one = sim.clone();
        let mut settles = Box::pin(async move { one.settle().await });
        std::future::poll_fn(|task| {
            let polled = settles.as_mut().poll(task);
            std::task::Poll::Ready(polled.is_ready())
        })
        .await;
        sim.spawn(settles).await.expect("it settles");
    });
}

#[test]
#[should_panic(expected = "cannot give a step no time")]
fn a_step_without_time_is_refused() {
    drop(Check::new().step_limit(Duration::ZERO));
}

#[test]
#[should_panic(expected = "run_threads has none")]
fn without_a_scheduler_there_is_nothing_to_inspect() {
    Check::new().inspect(|_, _| {}).run_threads(|_| {});
}

#[test]
fn any_number_of_jobs_and_any_stall_is_allowed() {
    let outcome = Check::new().seeds(0..3).jobs(usize::MAX).run(|_| async {});
    assert_eq!(outcome.seeds, 3);
    Check::new().seeds(0..10).run(|sim| async move {
        for number in 0..4 {
            sim.stall(&format!("sim-{number}"), Duration::MAX);
        }
        let waits = [(); 4].map(|()| sim.spawn(procession::sleep(Duration::from_millis(5))));
        procession::yield_now().await;
        sim.heal();
        for wait in waits {
            wait.await.expect("it ends");
        }
    });
}

/// Returns the numbers of the line that says how a failure was made short: the decisions before and
/// after, and the runs.
fn shrunk(report: &str) -> [u32; 3] {
    let line =
        report.lines().find(|line| line.starts_with("shrunk from ")).expect("a line says it");
    let mut numbers = line.split([' ', ',']).filter_map(|word| word.parse().ok());
    [(); 3].map(|()| numbers.next().expect("the line has three numbers"))
}

/// A static of the program decides, which the first run has changed.
#[test]
fn a_failure_that_does_not_come_again_is_told_as_such() {
    static RUNS: host::atomic::AtomicU32 = host::atomic::AtomicU32::new(0);
    let found = report(Check::new().seeds(0..1), |sim| async move {
        sim.always("it has run before", RUNS.fetch_add(1, Relaxed) > 0);
    });
    assert!(
        found.contains("This run does not fail, although the seed decides the same."),
        "{found}"
    );
}

/// Goal: a failure of thousands of decisions becomes a short story in few runs. Method: three
/// choices that lie far apart are needed, and nothing else.
#[test]
fn choices_among_thousands_of_decisions_become_a_short_story() {
    let check = Check::new().workers(4..=4).strategy(Strategy::Uniform);
    let found = report(check, |sim| async move {
        let mut unusual = 0;
        for _ in 0..12 {
            counters(&sim, 8, 12).await;
            unusual += u32::from(sim.choose(0..3) == 2);
        }
        sim.always("no more than two choices are unusual", unusual < 3);
    });
    let [before, after, runs] = shrunk(&found);
    assert!(before >= 2000, "{found}");
    assert!(after <= 4 && runs <= 100, "{found}");
}

#[test]
fn the_choices_of_a_program_are_made_small() {
    let found = report(Check::new(), |sim| async move {
        let (one, other) = (sim.choose(0..1000), sim.choose(5..1000));
        sim.always("the sum is small", one + other < 300);
    });
    let chosen = |line: &str| {
        let (_, number) = line.split_once("the program chooses ")?;
        number.split(' ').next()?.parse::<u64>().ok()
    };
    let sum: u64 = found.lines().filter_map(chosen).sum();
    // A choice is not told if it is the lowest: 0 or 5.
    assert!([300, 295].contains(&sum), "{sum}: {found}");
}
