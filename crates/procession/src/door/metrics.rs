//! The metrics of a scheduler, as OpenMetrics text.
//!
//! `docs/METRICS.md` lists the families. Their names and labels are stable. No label is a PID or a
//! label of a process, so the number of series does not grow with the number of processes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use procession_sync::Mutex;

use crate::observe::census::{self, Census};
use crate::observe::snapshot::{self, Snapshot, WorkerSnapshot};
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyType {
    Counter,
    Gauge,
    Info,
}

/// A metric family: all series of one name.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) of: FamilyType,
    pub(super) help: &'static str,
    read: fn(&Reading<'_>, &mut Series<'_>),
}

/// What a scrape reads.
struct Reading<'a> {
    snapshot: &'a Snapshot,
    census: &'a Census,
    floors: &'a Floors,
    width: usize,
    name: &'a str,
    took: Duration,
}

/// The least values that sums may have from now on. A sum over counters of many threads, some of
/// which move from one place to another meanwhile, could otherwise fall.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<BTreeMap<&'static str, u64>>);

impl Floors {
    fn raise(&self, name: &'static str, value: u64) -> u64 {
        let mut floors = self.0.lock();
        let floor = floors.entry(name).or_default();
        *floor = value.max(*floor);
        *floor
    }
}

/// Writes the series of one family.
struct Series<'a> {
    out: &'a mut String,
    family: &'static str,
    suffix: &'static str,
    scheduler: u32,
}

impl Series<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let Self { out, family, suffix, scheduler } = self;
        // Ignored, here and below: a string takes everything.
        let _ = write!(out, "{family}{suffix}{{scheduler=\"{scheduler}\"");
        for (name, value) in labels {
            let _ = write!(out, ",{name}=\"");
            for c in value.chars().take(120) {
                match c {
                    '\\' | '"' => out.extend(['\\', c]),
                    '\n' => out.push_str("\\n"),
                    c => out.push(c),
                }
            }
            out.push('"');
        }
        let _ = writeln!(out, "}} {value}");
    }

    fn one(&mut self, value: u64) {
        self.add(&[], value as f64);
    }

    /// Adds a series for each worker.
    fn workers(&mut self, reading: &Reading<'_>, of: impl Fn(&WorkerSnapshot) -> u64) {
        for (worker, snapshot) in reading.snapshot.workers.iter().enumerate() {
            self.add(&[("worker", &worker.to_string())], of(snapshot) as f64);
        }
    }

    /// Adds a series for each of several values of one label.
    fn by(&mut self, label: &str, values: &[(&str, u64)]) {
        for (name, value) in values {
            self.add(&[(label, name)], *value as f64);
        }
    }
}

macro_rules! families {
    ($($name:literal $of:ident $help:literal $read:expr;)*) => {
        &[$(Family { name: $name, of: FamilyType::$of, help: $help, read: $read }),*]
    };
}

/// All families, in the order of the text.
pub(super) const FAMILIES: &[Family] = families! {
    "procession" Info "The version of the runtime and the name of the scheduler." |r, s| {
        s.add(&[("version", env!("CARGO_PKG_VERSION")), ("name", r.name)], 1.0);
    };
    "procession_workers" Gauge "Workers that may run at once." |r, s| s.one(r.width as u64);
    "procession_workers_in_step" Gauge "Workers that are in a step of a process." |r, s| {
        s.one(r.snapshot.workers.iter().filter(|worker| worker.step_age.is_some()).count() as u64);
    };
    "procession_threads_started" Counter "Threads started for workers." |r, s| {
        s.one(r.snapshot.threads_started.into());
    };
    "procession_threads_refused" Counter "Threads that the system refused." |r, s| {
        s.one(r.snapshot.threads_refused.into());
    };
    "procession_worker_steps" Counter "Steps that a worker ran." |r, s| {
        s.workers(r, |worker| worker.dispatches);
    };
    "procession_worker_step_age_seconds" Gauge
        "The least time that the current step of a worker has lasted; 0 if it is in none." |r, s| {
        for (worker, snapshot) in r.snapshot.workers.iter().enumerate() {
            let age = snapshot.step_age.unwrap_or_default().as_secs_f64();
            s.add(&[("worker", &worker.to_string())], age);
        }
    };
    "procession_worker_steals" Counter "Times a worker took work from another worker." |r, s| {
        s.workers(r, |worker| worker.steals);
    };
    "procession_worker_parks" Counter "Times a worker parked." |r, s| {
        s.workers(r, |worker| worker.parks);
    };
    "procession_worker_searches" Counter "Times a worker looked at the queues of all others."
        |r, s| s.workers(r, |worker| worker.searches);
    "procession_worker_queue_length" Gauge "Ready processes in the queues of a worker." |r, s| {
        s.workers(r, |worker| {
            (worker.deque + worker.fifo + worker.bound + usize::from(worker.lifo_slot)) as u64
        });
    };
    "procession_global_queue_length" Gauge "Ready processes that no worker holds." |r, s| {
        s.one(r.snapshot.global_queue as u64);
    };
    "procession_processes" Gauge "Processes by state and kind." |r, s| {
        for ((state, kind), count) in &r.census.processes {
            s.add(&[("state", state), ("kind", kind)], *count as f64);
        }
    };
    "procession_processes_spawned" Counter "Processes started." |r, s| {
        s.one(r.floors.raise("spawned", r.snapshot.spawned));
    };
    "procession_processes_ended" Counter "Processes ended, by a panic or otherwise." |r, s| {
        let panicked = r.floors.raise("panicked", r.snapshot.panicked);
        let others = r.snapshot.ended.saturating_sub(r.snapshot.panicked);
        s.by("by", &[("panic", panicked), ("other", r.floors.raise("ended", others))]);
    };
    "procession_messages" Counter
        "Messages put into mailboxes, received, and left when their processes ended." |r, s| {
        let received = r.snapshot.messages_received + r.census.received;
        s.by("what", &[
            ("sent", r.floors.raise("sent", r.snapshot.messages_sent)),
            ("received", r.floors.raise("received", received)),
            ("discarded", r.floors.raise("discarded", r.snapshot.messages_discarded)),
        ]);
    };
    "procession_mailbox_messages" Gauge "Messages that wait in mailboxes." |r, s| {
        s.one(r.census.waiting);
    };
    "procession_mailbox_longest" Gauge "The number of messages in the longest mailbox." |r, s| {
        s.one(r.census.longest.into());
    };
    "procession_timers" Counter "Timers set, fired for the last time, and cancelled." |r, s| {
        let timers = &r.snapshot.timers;
        s.by("what", &[
            ("armed", r.floors.raise("armed", timers.armed)),
            ("fired", r.floors.raise("fired", timers.fired)),
            ("cancelled", r.floors.raise("cancelled", timers.cancelled)),
        ]);
    };
    "procession_timers_pending" Gauge "Timers that have not fired yet." |r, s| {
        s.one(r.snapshot.timers.pending);
    };
    "procession_descriptors" Gauge "Descriptors that are registered." |r, s| {
        s.one(r.snapshot.descriptors.registered as u64);
    };
    "procession_polls" Counter "Polls of the kernel for events of descriptors." |r, s| {
        s.one(r.snapshot.descriptors.polls);
    };
    "procession_poll_events" Counter "Events of descriptors that the kernel reported." |r, s| {
        s.one(r.snapshot.descriptors.events);
    };
    "procession_accepts_put_off" Counter
        "Times a listener had no free descriptor for a connection." |r, s| {
        s.one(r.snapshot.descriptors.accepts_put_off);
    };
    "procession_stalls" Counter "Stalled steps, by what the thread did." |r, s| {
        let stalls = &r.snapshot.stalls;
        s.by("kind", &[("blocked", stalls.blocked), ("computing", stalls.computing)]);
    };
    "procession_rescues" Counter "Times the permit of a stalled worker was given to another."
        |r, s| s.one(r.snapshot.stalls.replaced);
    "procession_blocking_sections" Counter "Blocking sections that workers entered." |r, s| {
        s.one(r.snapshot.blocking_sections);
    };
    "procession_slots_lost" Gauge "Slots that are never used again, because references leaked."
        |r, s| s.one(r.snapshot.slots_lost.into());
    "procession_look_seconds" Gauge "The time that reading these figures took." |r, s| {
        s.add(&[], r.took.as_secs_f64());
    };
};

/// Returns the metrics of a scheduler as OpenMetrics text.
pub(super) fn text(shared: &Shared, floors: &Floors) -> String {
    let begin = World::real_now();
    // In this order: messages of a process that ends in between are missed once, and not counted
    // twice. The floors hide the difference.
    let snapshot = snapshot::take_without_processes(shared);
    let census = census::take(shared);
    let took = Duration::from_nanos(World::real_now().saturating_sub(begin));
    let (width, name) = (shared.width(), shared.name());
    let reading = Reading { snapshot: &snapshot, census: &census, floors, width, name, took };
    let mut out = String::with_capacity(8 << 10);
    for family in FAMILIES {
        let (word, suffix) = match family.of {
            FamilyType::Counter => ("counter", "_total"),
            FamilyType::Gauge => ("gauge", ""),
            FamilyType::Info => ("info", "_info"),
        };
        let _ = writeln!(out, "# TYPE {} {word}", family.name);
        if family.name.ends_with("_seconds") {
            let _ = writeln!(out, "# UNIT {} seconds", family.name);
        }
        let _ = writeln!(out, "# HELP {} {}", family.name, family.help);
        let mut series =
            Series { out: &mut out, family: family.name, suffix, scheduler: shared.id() };
        (family.read)(&reading, &mut series);
    }
    out.push_str("# EOF\n");
    out
}

#[cfg(test)]
mod tests {
    use super::Floors;

    #[test]
    fn a_sum_that_is_read_too_small_does_not_fall() {
        let floors = Floors::default();
        let raised = [7, 5, 8, 0].map(|value| floors.raise("sent", value));
        assert_eq!(raised, [7, 7, 8, 8]);
        assert_eq!(floors.raise("ended", 1), 1, "each has its own");
    }
}
