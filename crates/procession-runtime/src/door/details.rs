//! One process, the list of all processes, the supervision tree, and failed processes, as JSON.

use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;

use super::json::Json;
use super::response::RESPONSE_BYTES_MAX;
use super::views::{LOCATION_MAX, each, location, milliseconds, row};
use crate::observe::census;
use crate::observe::leaks::{Leak, Leaks, Suspicion, search};
use crate::observe::look::detail;
use crate::observe::process_info::{self, ProcessInfo, current_label};
use crate::observe::wait_cycle::{CyclicWait, WaitCycle};
use crate::process::slot::Slot;
use crate::relations::entries::PidList;
use crate::relations::links;
use crate::report::kept::Reports;
use crate::report::{CrashReport, SupervisorAnswer};
use crate::scheduler::shared::Shared;
use crate::watchdog::cycles::WaitCycles;
use crate::{Exit, Pid};

/// The maximum number of processes in one part of the list.
const COUNT_MAX: usize = 1000;
/// The maximum number of processes in the supervision tree.
const TREE_MAX: usize = 10_000;
/// The maximum length of the text of an exit.
const EXIT_MAX: usize = 1024;
/// The maximum length of the name of a type.
pub(super) const TYPE_MAX: usize = 300;

/// Writes one process. Returns `None` if it does not exist.
pub(super) fn process(json: &mut Json, shared: &Shared, pid: Pid) -> Option<()> {
    let found = detail::of(shared, pid)?;
    let relations = found.relations.as_deref()?;
    json.name("process").object(|json| {
        row(json, &found);
        json.name("name").text_or_null(relations.name.as_deref());
        json.name("message").long_text(relations.message, TYPE_MAX);
        for (name, list) in [
            ("links", &relations.links),
            ("monitors", &relations.monitors),
            ("monitored", &relations.monitored),
            ("scope", &relations.scope),
        ] {
            pids(json.name(name), list);
        }
        json.name("supervisor").text_or_null(relations.supervisor);
        let children = census::each(shared).filter(|slot| slot.seen_parent() == Some(pid));
        let children: Vec<_> = children.map(|slot| slot.seen_pid()).collect();
        pids(json.name("children"), &PidList::of(children.into_iter()));
    });
    Some(())
}

fn pids(json: &mut Json, list: &PidList) {
    json.object(|json| {
        json.name("first").array(|json| list.first.iter().for_each(|pid| json.text(pid)));
        json.name("total").literal(list.total);
    });
}

fn label(json: &mut Json, slot: &Slot) {
    json.name("label").text_or_null(current_label(slot).as_deref());
    json.name("location").long_text(location(slot.location()), LOCATION_MAX);
}

/// Writes a part of the list of all processes, in the order of their slots.
pub(super) fn list(json: &mut Json, shared: &Shared, skip: usize, count: usize) {
    let (mut total, count) = (0, count.min(COUNT_MAX));
    let in_steps = process_info::in_steps(shared);
    let mut truncated = false;
    json.name("rows").array(|json| {
        for slot in census::each(shared) {
            total += 1;
            if total <= skip || total > skip + count {
                continue;
            }
            if json.is_over(RESPONSE_BYTES_MAX) {
                truncated = true;
                continue;
            }
            let found =
                ProcessInfo::of(&slot, process_info::state(&slot, slot.state.see(), &in_steps));
            json.object(|json| {
                json.name("pid").text(found.pid);
                label(json, &slot);
                json.name("kind").text(found.kind);
                json.name("priority").text(found.priority);
                json.name("state").text(found.state.name());
                json.name("suspended").literal(process_info::is_suspended(&slot));
                json.name("mailbox").literal(found.mailbox);
                json.name("steps").literal(found.steps);
            });
        }
    });
    json.name("skipped").literal(skip.min(total));
    json.name("processes").literal(total);
    json.name("truncated").literal(truncated);
}

/// Writes the supervision tree: each process that has a supervisor, and the supervisors without
/// one.
pub(super) fn tree(json: &mut Json, shared: &Shared) {
    let in_steps = process_info::in_steps(shared);
    let mut nodes = SortedMap::new();
    let mut truncated = false;
    for slot in census::each(shared) {
        if let Some(supervisor) = links::overview(&slot).supervisor {
            truncated |= nodes.len() >= TREE_MAX;
            if truncated {
                break;
            }
            nodes.insert(slot.seen_pid(), Some(supervisor));
            nodes.get_or_insert_with(supervisor, || None);
        }
    }
    json.name("nodes").array(|json| {
        for (pid, supervisor) in &nodes {
            let Some(slot) = shared.table().pin(pid.slot(), pid.generation()) else { continue };
            if json.is_over(RESPONSE_BYTES_MAX) {
                truncated = true;
                break;
            }
            let state = process_info::state(&slot, slot.state.see(), &in_steps);
            json.object(|json| {
                json.name("pid").text(pid);
                json.name("supervisor").text_or_null(*supervisor);
                json.name("name").text_or_null(links::registered_name(&slot).as_deref());
                label(json, &slot);
                json.name("kind").text(slot.kind().name);
                json.name("state").text(state.name());
                json.name("mailbox").literal(slot.mailbox_length());
            });
        }
    });
    json.name("truncated").literal(truncated);
}

/// The reports of failed processes at one moment.
pub(super) struct Crashes {
    /// The oldest first.
    reports: Vec<Arc<CrashReport>>,
    now: u64,
}

impl Crashes {
    pub(super) fn of(shared: &Shared) -> Self {
        Self { reports: Reports::of(shared).crashes.all(), now: shared.world.now() }
    }

    /// Writes all reports, the latest first.
    pub(super) fn write_all(&self, json: &mut Json) {
        json.name("crashes").array(|json| {
            for report in self.reports.iter().rev() {
                json.object(|json| crash(json, report, self.now));
            }
        });
    }

    /// Writes the latest report, or `null`.
    pub(super) fn write_latest(&self, json: &mut Json) {
        match self.reports.last() {
            None => json.literal("null"),
            Some(report) => json.object(|json| crash(json, report, self.now)),
        }
    }
}

/// Writes the cycles of waits, the latest first.
pub(super) fn cycles(json: &mut Json, shared: &Shared) {
    write_cycles(json, &WaitCycles::of(shared).kept());
}

fn write_cycles(json: &mut Json, cycles: &[Arc<WaitCycle>]) {
    let (mut lacks_cycles, mut lacks_waits) = (false, false);
    json.name("cycles").array(|json| {
        lacks_cycles = each(json, cycles.iter().rev(), |json, cycle| {
            json.name("at_least_ms").literal(milliseconds(cycle.at_least()));
            json.name("waits").array(|json| lacks_waits |= each(json, &cycle.waits, cyclic_wait));
        });
    });
    json.name("truncated").literal(lacks_cycles || lacks_waits);
}

fn cyclic_wait(json: &mut Json, wait: &CyclicWait) {
    json.name("pid").text(wait.pid);
    json.name("label").text_or_null(wait.label.as_deref());
    json.name("spawned_at").long_text(location(wait.spawned_at), LOCATION_MAX);
    json.name("reason").text(wait.reason);
    match wait.location {
        None => json.name("location").literal("null"),
        Some(at) => json.name("location").long_text(location(at), LOCATION_MAX),
    }
    json.name("target").text(wait.target);
    json.name("at_least_ms").literal(milliseconds(wait.at_least));
    json.name("text").long_text(wait, 2 * LOCATION_MAX);
}

/// Writes the leaks.
pub(super) fn leaks(json: &mut Json, shared: &Shared) {
    let Leaks { leaked, leaked_total, suspected } = search::leaks(shared);
    json.name("leaked_total").literal(leaked_total);
    let mut truncated = false;
    json.name("leaked").array(|json| truncated |= each(json, &leaked, write_leak));
    json.name("suspected").array(|json| truncated |= each(json, &suspected, suspicion));
    json.name("truncated").literal(truncated);
}

fn write_leak(json: &mut Json, leak: &Leak) {
    json.name("pid").text(leak.pid);
    json.name("label").text_or_null(leak.label.as_deref());
    json.name("spawned_at").long_text(location(leak.spawned_at), LOCATION_MAX);
    json.name("reason").text(leak.reason);
    match leak.location {
        None => json.name("location").literal("null"),
        Some(at) => json.name("location").long_text(location(at), LOCATION_MAX),
    }
    json.name("cause").text(leak.cause.name());
    json.name("other").text_or_null(leak.other);
    json.name("at_least_ms").literal(milliseconds(leak.at_least));
    json.name("text").long_text(leak, 2 * LOCATION_MAX);
}

fn suspicion(json: &mut Json, group: &Suspicion) {
    json.name("label").text_or_null(group.label.as_deref());
    json.name("spawned_at").long_text(location(group.spawned_at), LOCATION_MAX);
    json.name("sign").text(group.sign.name());
    json.name("count").literal(group.count);
    json.name("before").literal(group.before);
    json.name("waiting").text_or_null(group.waiting);
    json.name("since_ms").literal(milliseconds(group.since));
    json.name("text").long_text(group, 2 * LOCATION_MAX);
}

pub(super) fn crash(json: &mut Json, report: &CrashReport, now: u64) {
    let exit = &report.exit;
    json.name("number").literal(report.number);
    json.name("age_ms").literal(now.saturating_sub(report.at) / 1_000_000);
    json.name("pid").text(exit.pid);
    json.name("label").text_or_null(exit.label.as_deref());
    json.name("name").text_or_null(exit.name.as_deref());
    json.name("kind").text(exit.kind);
    json.name("location").long_text(location(exit.location), LOCATION_MAX);
    json.name("parent").text_or_null(exit.parent);
    json.name("panicked").literal(matches!(exit.exit, Exit::Panicked(_)));
    json.name("exit").long_text(&exit.exit, EXIT_MAX);
    json.name("panicked_at").text_or_null(exit.panicked_at.as_deref());
    json.name("has_backtrace").literal(!report.panic_stack.is_empty());
    json.name("steps").literal(exit.steps);
    json.name("received").literal(exit.received);
    json.name("waiting").literal(report.waiting);
    json.name("message").long_text(report.message, TYPE_MAX);
    json.name("ancestors").array(|json| report.ancestors.iter().for_each(|pid| json.text(pid)));
    pids(json.name("links"), &report.links);
    pids(json.name("monitors"), &report.monitors);
    json.name("supervisor").text_or_null(report.supervisor);
    json.name("answer").text_or_null(report.answer.map(|answer| match answer {
        SupervisorAnswer::Restarts { restart, intensity, .. } => {
            format!("restart {restart} of at most {intensity}")
        }
        SupervisorAnswer::GaveUp => String::from("gave up"),
    }));
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;
    use std::time::Duration;

    use super::write_cycles;
    use crate::Pid;
    use crate::door::json::Json;
    use crate::door::response::RESPONSE_BYTES_MAX;
    use crate::observe::wait_cycle::{CyclicWait, WaitCycle};
    use crate::process::shown_waits::WaitReason;

    #[test]
    fn a_cycle_of_any_length_fits_into_an_answer() {
        let wait = CyclicWait {
            pid: Pid::local(1, 2, 3),
            label: None,
            spawned_at: Location::caller(),
            reason: WaitReason::Lock,
            location: None,
            target: Pid::local(1, 2, 3),
            at_least: Duration::ZERO,
        };
        for (count, is_cut) in [(10, false), (50_000, true)] {
            let cycle = Arc::new(WaitCycle { waits: vec![wait.clone(); count] });
            let mut json = Json::default();
            json.object(|json| write_cycles(json, &[Arc::clone(&cycle), cycle]));
            let text = json.into_text();
            assert!(text.len() <= RESPONSE_BYTES_MAX, "{count}");
            assert!(text.ends_with(&format!("\"truncated\":{is_cut}}}")), "{count}");
            assert_eq!(text.matches("\"pid\"").count() == 2 * count, !is_cut);
        }
    }
}
