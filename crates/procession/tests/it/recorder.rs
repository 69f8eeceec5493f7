//! The flight recorder: its events are what happened, and its traces are what Perfetto reads.

use procession::recorder::{Trace, TraceEventKind};

use crate::seeded;

/// The steps in a trace, with their times, in the order of one worker.
fn steps(trace: &Trace) -> Vec<String> {
    trace
        .events()
        .filter_map(|event| match event.kind {
            TraceEventKind::Step(pid) => Some(pid.to_string()),
            _ => None,
        })
        .collect()
}

/// Runs the program of the seeded test, and returns what it noted of itself, and the recorded
/// steps.
fn run(events: usize) -> (Vec<String>, Vec<String>, u64) {
    let scheduler =
        seeded::builder(3).recorder_events(events).build().expect("it starts no thread");
    let noted = seeded::Trace::new(&scheduler);
    let program = noted.clone().each(seeded::program(noted.clone()));
    scheduler.spawn(program).join().expect("it ends");
    let dispatches = scheduler.snapshot().workers[0].dispatches;
    let recorded = steps(&scheduler.dump());
    let prefix = recorded[0].split('.').next().expect("a PID has three numbers").to_owned();
    let noted = noted.steps().into_iter().map(|(pid, _)| format!("{prefix}.{pid}")).collect();
    (noted, recorded, dispatches)
}

#[test]
fn the_recorded_steps_are_the_dispatches() {
    let (noted, recorded, dispatches) = run(1 << 16);
    assert_eq!(recorded.len() as u64, dispatches);
    assert_eq!(recorded, noted);
}

#[test]
fn a_small_ring_loses_only_the_beginning() {
    let (noted, recorded, _) = run(1 << 10);
    assert!(recorded.len() > 100 && recorded.len() < noted.len(), "{}", recorded.len());
    assert_eq!(recorded, noted[noted.len() - recorded.len()..]);
}
