//! Searches of all schedules within a bound.

use std::sync::Arc;

use procession_sim::{Bound, Check, Faults, Threads};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

fn check() -> Check {
    Check::new().at_atomics().faults(Faults::none()).workers(2..=2)
}

/// Two threads that each add one in two steps.
fn lost_update(threads: &Threads<'_>) {
    let sum = Arc::new(AtomicU32::new(0));
    for _ in 0..2 {
        let sum = Arc::clone(&sum);
        threads.spawn(move || {
            let before = sum.load(Relaxed);
            sum.store(before + 1, Relaxed);
        });
    }
    threads.join_all();
    threads.sim().always("no update is lost", sum.load(Relaxed) == 2);
}

#[test]
fn the_smallest_bound_that_shows_a_defect_finds_it() {
    let bound = |deviations| Bound { deviations, runs: u64::MAX };
    let searched = check().try_all_of_threads(bound(0), lost_update).expect("they take turns");
    assert!(searched.is_complete && searched.runs == 1, "{searched:?}");
    let found = check().try_all_of_threads(bound(1), lost_update).expect_err("one is preempted");
    assert!(found.contains("no update is lost"), "{found}");
    let (_, tape) = found.split_once("PROCESSION_SIM=").expect("it can be replayed");
    let tape = tape.split(' ').next().expect("the tape is there").to_owned();
    let again = check().replay(tape).try_threads(lost_update);
    assert!(again.expect_err("it fails again").contains("no update is lost"));
}

/// Runs a small program on two workers in all schedules with so many deviations.
fn search(deviations: u32, runs: u64) {
    let searched = check()
        .try_all(Bound { deviations, runs }, |sim| async move {
            let child = sim.spawn(async {
                procession::yield_now().await;
                1
            });
            sim.always("the child ends", child.await.is_ok_and(|one| one == 1));
        })
        .unwrap_or_else(|report| panic!("{report}"));
    #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
    {
        println!("{deviations} deviations: {} schedules passed", searched.runs);
    }
    assert!(searched.is_complete, "{searched:?}");
}

#[test]
fn a_small_program_ends_well_in_all_schedules_without_and_with_one_deviation() {
    search(0, 1000);
    search(1, 50_000);
}
