//! The processes of `spawn` that a shutdown drops, because nobody has said what else to do.

use std::future::pending;

use procession::process::{OnCancel, cancelled};
use procession::{Context, Scheduler, SpawnOptions, spawn};

use super::{scheduler, shut_down};

/// Accepts two clients that never leave. The loop itself ends in order.
fn accept(scheduler: &Scheduler) -> u32 {
    drop(scheduler.start(|_: Context<()>| async {
        for _ in 0..2 {
            drop(spawn(pending::<()>()));
        }
        cancelled().await;
    }));
    line!() - 4
}

#[test]
fn processes_that_a_shutdown_drops_by_default_are_counted_by_the_place_of_their_spawn() {
    for width in [0, 2] {
        let scheduler = scheduler(width);
        let clients = accept(&scheduler);
        drop(scheduler.spawn(pending::<()>()));
        let ticker = line!() - 1;
        // These are no loss: one may be dropped, one ends by itself, one has ended, and the program
        // has cancelled one.
        drop(SpawnOptions::new().on(&scheduler).on_cancel(OnCancel::Drop).spawn(pending::<()>()));
        drop(scheduler.start(|_: Context<()>| cancelled()));
        assert_eq!(scheduler.spawn(async {}).join(), Ok(()));
        let cancelled = scheduler.spawn(pending::<()>());
        cancelled.cancel();

        let unfinished = shut_down(&scheduler);
        assert!(unfinished.is_empty(), "it says what was dropped, and is no failure");
        let mut dropped: Vec<_> = unfinished
            .dropped
            .iter()
            .map(|dropped| (dropped.location.file(), dropped.location.line(), dropped.count))
            .collect();
        dropped.sort_unstable();
        assert_eq!(dropped, [(file!(), clients, 2), (file!(), ticker, 1)]);
        let text = unfinished.to_string();
        let lines: Vec<_> = text.lines().collect();
        let [two, one, advice] = lines[..] else { panic!("{text}") };
        assert!(two.starts_with("2 processes were dropped before the end, spawned at "), "{text}");
        assert!(one.starts_with("1 process was dropped before the end, spawned at "), "{text}");
        assert!(advice.contains("`SpawnOptions::on_cancel`"), "{text}");
    }
}

#[test]
fn a_process_that_waits_for_its_parent_until_the_deadline_is_counted() {
    let scheduler = scheduler(0);
    drop(scheduler.start(|_: Context<()>| async {
        drop(spawn(pending::<()>()));
        pending::<()>().await;
    }));
    let unfinished = shut_down(&scheduler);
    assert_eq!(unfinished.terminated.len(), 1);
    assert_eq!(unfinished.dropped.iter().map(|dropped| dropped.count).sum::<u64>(), 1);
}
