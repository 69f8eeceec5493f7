//! Nodes of `procession-cluster` on a simulated network: 3 to 7 hosts that send to each other while
//! the network is cut and hosts crash. A checker sees all that is accepted, delivered and told.

mod checker;
mod program;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use procession_sim::{Check, Faults};

use self::checker::{Broken, Defect};

/// Returns the seeds: 200, or as many as `SIM_CLUSTER_SEEDS` says. An unoptimised build is ten
/// times slower, and runs 5.
fn seeds() -> Range<u64> {
    let wanted = std::env::var("SIM_CLUSTER_SEEDS").ok();
    let wanted = wanted.map(|text| text.parse().expect("SIM_CLUSTER_SEEDS is a number"));
    0..wanted.unwrap_or(if cfg!(debug_assertions) { 5 } else { 200 })
}

#[test]
fn a_cluster_keeps_its_promises() {
    let check = Check::new().seeds(seeds()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).expect_sometimes([
        "a node is told of an end",
        "a message is lost with its connection",
        "messages of an ended connection were confirmed",
        "a node has ended and is another one",
    ]);
    check.run(|sim| program::run(sim, None));
}

/// Each defect breaks one promise, and the checker sees it. It is between a node and the process
/// that receives, so that the node itself is the one that ships.
#[test]
fn planted_defects_are_seen() {
    let seeds = if cfg!(debug_assertions) { 1 } else { 3 };
    for (defect, law) in [
        (Defect::DropOne, "messages come in order, and without a gap"),
        (Defect::DoubleOne, "messages come in order, and without a gap"),
        (Defect::DeliverAfterDown, "nothing of a connection comes after its end"),
        (Defect::DoubleDown, "a monitor tells one end"),
        (Defect::DropDown, "each monitor tells an end"),
    ] {
        let broken = Broken::default();
        let seen = Arc::clone(&broken);
        let check = Check::new().seeds(0..seeds).workers(1..=2).faults(Faults::none());
        check.run(move |sim| program::run(sim, Some((defect, Arc::clone(&seen)))));
        assert!(broken.lock().contains(law), "{defect:?}: {:?}", broken.lock());
    }
}
