//! Nodes of `procession-cluster` on a simulated network: 3 to 7 hosts that send messages to other
//! hosts while the network is cut and hosts crash. A checker sees all that is accepted, delivered
//! and reported.

mod checker;
mod exclusive;
mod groups;
mod leases;
mod ledger;
mod names;
mod peers;
mod program;
mod relations;
#[path = "../../../procession-cluster/tests/it/exclusive/rows.rs"]
mod rows;
mod shards;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use procession_sim::{Check, Fault, Faults, Sim};

use self::checker::{Broken, Defect, Planted};
use self::peers::Ailment;
use self::program::Traffic;

/// Returns the seeds: 100, or as many as `SIM_CLUSTER_SEEDS` says, from `SIM_FIRST` on. An
/// unoptimised build is ten times slower, so these tests are for optimised builds, which have
/// assertions in `.ci/run`.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first: u64 = number("SIM_FIRST").unwrap_or(0);
    first..first + number("SIM_CLUSTER_SEEDS").unwrap_or(100)
}

/// Returns an eighth of the seeds, and at least two.
fn few() -> Range<u64> {
    let Range { start, end } = seeds();
    start..start + ((end - start) / 8).max(2)
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
    check.run(|sim| program::run(sim, Traffic::Small, None));
}

/// Returns a check of a cluster with large messages. The network passes on whole segments: if it
/// were a byte at a time, each would be a step of the run.
fn check_of_large(seeds: Range<u64>) -> Check {
    let check = Check::new().seeds(seeds).jobs(2).time_limit(Duration::from_secs(3600));
    check.workers(1..=2).faults(Faults::all().without(Fault::SmallReads))
}

/// In plain text and by TLS.
#[test]
fn large_messages_come_whole_and_in_order() {
    for traffic in [Traffic::Large, Traffic::Secure] {
        let check = check_of_large(few()).expect_sometimes([
            "a message comes in parts",
            "a message is lost with its connection",
        ]);
        check.run(move |sim| program::run(sim, traffic, None));
    }
}

/// Goal: a failure can be looked at again. The random bytes of TLS are others each time, and their
/// lengths are the same.
#[test]
fn a_seed_is_the_same_run_each_time() {
    // Two seeds meet what some are to meet.
    for traffic in [Traffic::Secure, Traffic::Large, Traffic::Small] {
        let run = || {
            let check = check_of_large(0..2);
            check.run(move |sim| program::run(sim, traffic, None)).hash
        };
        assert_eq!(run(), run(), "{traffic:?}");
    }
}

/// Starts, links, monitors, exits and PIDs in messages, in a cluster that is disturbed.
#[test]
fn relations_across_nodes_keep_their_promises() {
    let check = Check::new().seeds(seeds()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).expect_sometimes([
        "a link ends",
        "a connection ends a relation",
        "a process is started",
        "a start is not known",
        "the reason of a process is told",
        "a message comes by a PID of a message",
    ]);
    check.run(|sim| relations::run(sim, None));
}

#[test]
fn planted_defects_of_relations_are_seen() {
    for (defect, law) in [
        (Defect::DropDown, "each monitor tells an end"),
        (Defect::DoubleDown, "a monitor tells one end"),
        (Defect::DropExit, "each link tells an end"),
        (Defect::DoubleExit, "a link tells one end"),
        (Defect::StartTwice, "a request starts one process at most"),
        (Defect::OtherProcess, "a PID in a message leads to its process, and once"),
        (Defect::WrongReason, "an end is told with its reason"),
        (Defect::FalseNoConnection, "noconnection is told when the connection has ended"),
    ] {
        let check = Check::new().seeds(0..2).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, relations::run);
    }
}

/// Groups with members on all nodes, in a cluster that is disturbed.
#[test]
fn groups_across_nodes_agree() {
    let check = Check::new().seeds(seeds()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).expect_sometimes([
        "a process joins a group",
        "nodes agree on groups with members",
        "a node has ended and is another one",
    ]);
    check.run(|sim| groups::run(sim, None));
}

#[test]
fn planted_defects_of_groups_are_seen() {
    let agreement = "groups agree within 2 s of quiet";
    for (defect, law) in [
        (Defect::LoseJoin, agreement),
        (Defect::LoseLeave, agreement),
        (Defect::HideEvent, "the events of groups add up to their members"),
    ] {
        let check = Check::new().seeds(0..2).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, groups::run);
    }
}

/// Names that are claimed on all nodes, also before they are connected, in a cluster that is
/// disturbed.
#[test]
fn names_across_nodes_have_one_owner() {
    let check = Check::new().seeds(seeds()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).expect_sometimes([
        "a name is released",
        "a process has lost its name",
        "nodes agree on an owner",
        "a node has ended and is another one",
    ]);
    check.run(|sim| names::run(sim, None));
}

#[test]
fn planted_defects_of_names_are_seen() {
    let told_once = "a loser is told once that it has lost its name";
    for (defect, law) in [
        (Defect::FalseClaim, "nodes agree on the owners of names within 2 s of quiet"),
        (Defect::TellOwner, "an owner is never told that it has lost its name"),
        (Defect::HideLoss, told_once),
        (Defect::TellLossTwice, told_once),
    ] {
        let check = Check::new().seeds(0..2).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, names::run);
    }
}

/// Names that processes hold by leases, in a cluster that is disturbed, with a store that has
/// troubles. Without leaps of the clock: a process may do one step before it learns of a leap.
#[test]
fn an_exclusive_name_has_one_holder() {
    let check = Check::new().seeds(few()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).faults(Faults::all().without(Fault::ClockLeap));
    let check = check.expect_sometimes([
        "a name has another holder",
        "a lease ends early",
        "a write by an old fence is refused",
        "a node has ended and is another one",
    ]);
    check.run(|sim| exclusive::run(sim, None));
}

#[test]
fn planted_defects_of_exclusive_names_are_seen() {
    for (defect, law) in [
        (Defect::GiveTwice, "a process ends before its lease does"),
        (Defect::GiveTwice, "a store that checks fences refuses nothing"),
        (Defect::OldFence, "fences never go back"),
        (Defect::RenewNothing, "a process ends before its lease does"),
    ] {
        let check = Check::new().seeds(0..2).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, exclusive::run);
    }
}

/// Keys move between the nodes of a cluster that is disturbed.
#[test]
fn keys_across_nodes_have_one_process() {
    let check = Check::new().seeds(few()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).expect_sometimes([
        "a message is received",
        "a key moves with its state",
        "a node has ended and is another one",
    ]);
    check.run(|sim| shards::run(sim, None));
}

/// Keys move between the nodes of a cluster that drain, stop, crash and return, and agree on which
/// nodes there are, because no connection between two nodes is lost.
#[test]
fn keys_have_one_process_while_nodes_come_and_go() {
    let faults = [Fault::LateWake, Fault::EarlyWake, Fault::Events, Fault::ShortWrite];
    let faults = faults.into_iter().fold(Faults::none(), Faults::with);
    let check = Check::new().seeds(few()).jobs(2).time_limit(Duration::from_secs(3600));
    let check = check.workers(1..=2).faults(faults).expect_sometimes([
        "a key moves with its state",
        "two nodes leave together",
        "a node crashes while another one leaves",
        "a node has ended and is another one",
    ]);
    check.run(|sim| shards::run_agreeing(sim, None));
}

#[test]
fn planted_defects_of_keys_that_move_are_seen() {
    for (defect, law) in [
        (Defect::StartTwice, "a key has one process while the nodes agree"),
        (Defect::LoseState, "a state is taken by the next process, or counted"),
    ] {
        let check = Check::new().seeds(0..4).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, shards::run_agreeing);
    }
}

#[test]
fn planted_defects_of_keys_are_seen() {
    for (defect, law) in [
        (Defect::DropOne, "each key is reached within 2 s of quiet"),
        (Defect::DoubleOne, "a message is received once"),
        (Defect::StartTwice, "a key has one process at quiet"),
        (Defect::HoldUp, "the messages of a sender to a key come in order"),
    ] {
        let check = Check::new().seeds(0..2).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, shards::run);
    }
}

/// What a peer that does not answer costs, and how soon the node reports it, for each way in which
/// the peer may not answer.
#[test]
fn ill_peers_are_told_in_time() {
    for ailment in Ailment::ALL {
        // Only one thread of the peer can run, so that a thread that stands still is not replaced.
        check_of_one(few()).run(move |sim| peers::run(sim, ailment, None));
    }
    check_of_one(few()).run(|sim| peers::run_mute(sim, None));
}

fn check_of_one(seeds: Range<u64>) -> Check {
    let check = Check::new().seeds(seeds).jobs(2).workers(1..=1).faults(Faults::none());
    check.scheduler(|builder| builder.max_threads(1))
}

#[test]
fn planted_defects_of_ill_peers_are_seen() {
    let bound = "a silent peer is told within its bound";
    for (ailment, defect, law) in [
        (Ailment::Frozen, Defect::TellLate, bound),
        (Ailment::Unasked, Defect::TellLate, bound),
        (Ailment::Silent, Defect::DropDown, "each monitor tells one end"),
        (Ailment::Deaf, Defect::DoubleDown, "each monitor tells one end"),
        (Ailment::Slow, Defect::DropOne, "all that was accepted comes once and in order"),
        (Ailment::Paused, Defect::HoldUp, "a peer that is ill holds up no other"),
    ] {
        is_seen(check_of_one(0..1), defect, law, move |sim, planted| {
            peers::run(sim, ailment, planted)
        });
    }
    let law = "a mute host is told within its bound";
    is_seen(check_of_one(0..1), Defect::TellLate, law, peers::run_mute);
}

/// Checks that a program that has a defect breaks a law.
fn is_seen<P>(
    check: Check,
    defect: Defect,
    law: &str,
    program: impl Fn(Sim, Planted) -> P + Send + Sync + 'static,
) where
    P: Future<Output = ()> + 'static,
{
    let broken = Broken::default();
    let seen = Arc::clone(&broken);
    check.run(move |sim| program(sim, Some((defect, Arc::clone(&seen)))));
    assert!(broken.lock().contains(law), "{defect:?}: {:?}", broken.lock());
}

/// Each defect breaks one promise, and the checker sees it. The defect is between a node and the
/// process that receives, so that the node itself is the shipped node.
#[test]
fn planted_defects_are_seen() {
    let seeds = 3;
    for (defect, law) in [
        (Defect::DropOne, "messages come in order, and without a gap"),
        (Defect::DoubleOne, "messages come in order, and without a gap"),
        (Defect::DeliverAfterDown, "nothing of a connection comes after its end"),
        (Defect::DoubleDown, "a monitor tells one end"),
        (Defect::DropDown, "each monitor tells an end"),
        (Defect::LoseLast, "what was sent was delivered, came back, or is told as lost"),
        (Defect::HideRefusal, "what was sent was delivered, came back, or is told as lost"),
        (Defect::HideEnd, "each end of a connection is told"),
    ] {
        let check = Check::new().seeds(0..seeds).workers(1..=2).faults(Faults::none());
        is_seen(check, defect, law, |sim, planted| program::run(sim, Traffic::Small, planted));
    }
}
