//! The metric families.

use super::reading::{Family, FamilyType};
use crate::observe::snapshot::WorkerSnapshot;

macro_rules! families {
    ($($name:literal $of:ident $help:literal $read:expr;)*) => {
        &[$(Family { name: $name, of: FamilyType::$of, help: $help, read: $read }),*]
    };
}

/// All families, in the order of the text.
pub(crate) const FAMILIES: &[Family] = families! {
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
    "procession_worker_busy_seconds" Counter
        "Time in which a worker was in steps, by samples." |r, s| {
        s.each_worker(r.busy.iter().map(|busy| busy.total));
    };
    "procession_worker_busy_ratio" Gauge
        "Part of the last seconds in which a worker was in steps, by samples." |r, s| {
        s.each_worker(r.busy.iter().map(|busy| busy.ratio));
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
    "procession_worker_queue_age_seconds" Gauge
        "The least time for which nothing was taken from a queue of a worker that holds something."
        |r, s| s.each_worker(r.ages.iter().copied());
    "procession_global_queue_length" Gauge "Ready processes that no worker holds." |r, s| {
        s.one(r.snapshot.global_queue as u64);
    };
    "procession_global_queue_age_seconds" Gauge
        "The least time for which nothing was taken from a queue of no worker that holds something."
        |r, s| s.add(&[], r.global_age);
    "procession_wake_to_run_seconds" Histogram
        "Times from the wake-ups of processes to the steps that followed, by samples."
        |r, s| s.histogram(&r.wake_to_run);
    "procession_ready_processes" Gauge "Ready processes, by priority." |r, s| {
        let queued = |worker: &WorkerSnapshot| {
            worker.deque + worker.fifo + worker.bound + usize::from(worker.lifo_slot)
        };
        let workers: usize = r.snapshot.workers.iter().map(queued).sum();
        let levels = r.snapshot.levels;
        s.by("priority", &[
            ("high", levels.high as u64),
            ("normal", (workers + r.snapshot.global_queue) as u64),
            ("batch", levels.batch as u64),
        ]);
    };
    "procession_batch_workers" Gauge "Workers that run batch processes." |r, s| {
        s.one(r.snapshot.levels.batch_workers.into());
    };
    "procession_processes" Gauge "Processes by state and kind." |r, s| {
        for ((state, kind), count) in &r.census.processes {
            s.add(&[("state", state), ("kind", kind)], *count as f64);
        }
    };
    "procession_processes_spawned" Counter "Processes started." |r, s| {
        s.one(r.floors.raise("spawned", r.snapshot.spawned));
    };
    "procession_processes_ended" Counter "Processes ended, by their exits." |r, s| {
        let ends = &r.ends;
        let others = [ends.shutdown, ends.panicked, ends.killed, ends.disconnected, ends.failed];
        let normal = r.snapshot.ended.saturating_sub(others.iter().sum());
        s.by("reason", &[
            ("normal", r.floors.raise("normal", normal)),
            ("shutdown", r.floors.raise("shutdown", ends.shutdown)),
            ("panicked", r.floors.raise("panicked", ends.panicked)),
            ("killed", r.floors.raise("killed", ends.killed)),
            ("disconnected", r.floors.raise("disconnected", ends.disconnected)),
            ("failed", r.floors.raise("failed", ends.failed)),
        ]);
    };
    "procession_messages" Counter
        "Messages put into mailboxes, received, discarded, and returned to their senders." |r, s| {
        let received = r.snapshot.messages_received + r.census.received;
        s.by("what", &[
            ("sent", r.floors.raise("sent", r.snapshot.messages_sent)),
            ("received", r.floors.raise("received", received)),
            ("discarded", r.floors.raise("discarded", r.snapshot.messages_discarded)),
            ("refused", r.floors.raise("refused", r.returned)),
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
    "procession_timer_lateness_seconds" Histogram
        "Times between the deadlines of timers and their firings." |r, s| s.histogram(&r.lateness);
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
    "procession_wait_cycles" Counter "Cycles of waits that were reported." |r, s| {
        s.one(r.snapshot.wait_cycles);
    };
    "procession_blocking_sections" Counter "Blocking sections that workers entered." |r, s| {
        s.one(r.snapshot.blocking_sections);
    };
    "procession_supervisor_restarts" Counter
        "Restarts of children, by the label of the supervisor." |r, s| {
        for (label, counts) in &r.restarts {
            s.add(&[("supervisor", label)], counts.restarts as f64);
        }
    };
    "procession_supervisor_gave_up" Counter
        "Supervisors that gave up, by their label." |r, s| {
        for (label, counts) in &r.restarts {
            s.add(&[("supervisor", label)], counts.gave_up as f64);
        }
    };
    "procession_pool_capacity" Gauge "The most workers of a pool." |r, s| {
        s.each_pool(r, |pool| pool.capacity as u64);
    };
    "procession_pool_workers" Gauge "Workers of a pool, with and without a job." |r, s| {
        for (name, pool) in &r.pools {
            s.add(&[("pool", name), ("state", "busy")], pool.busy as f64);
            s.add(&[("pool", name), ("state", "idle")], pool.idle as f64);
        }
    };
    "procession_pool_queue_length" Gauge "Jobs that wait for a worker of a pool." |r, s| {
        s.each_pool(r, |pool| pool.queued as u64);
    };
    "procession_pool_submitters_waiting" Gauge "Submitters that wait for a place in a pool."
        |r, s| s.each_pool(r, |pool| pool.waiting as u64);
    "procession_pool_jobs" Counter "Jobs of a pool that are over, by their outcome." |r, s| {
        for (name, pool) in &r.pools {
            for (outcome, count) in [
                ("completed", pool.completed),
                ("panicked", pool.panicked),
                ("cancelled", pool.cancelled),
                ("refused", pool.refused),
            ] {
                s.add(&[("pool", name), ("outcome", outcome)], count as f64);
            }
        }
    };
    "procession_pool_workers_started" Counter "Workers that a pool started." |r, s| {
        s.each_pool(r, |pool| pool.workers_started);
    };
    "procession_recorder_bytes" Gauge "Size of the rings of the flight recorder." |r, s| {
        s.one(r.snapshot.recorder.bytes);
    };
    "procession_recorder_dumps" Counter "Files that the flight recorder wrote, or could not write."
        |r, s| {
        let recorder = &r.snapshot.recorder;
        s.by("result", &[("written", recorder.dumps), ("failed", recorder.dumps_failed)]);
    };
    "procession_slots_lost" Gauge "Slots that are never used again, because references leaked."
        |r, s| s.one(r.snapshot.slots_lost.into());
    "procession_look_seconds" Gauge "The time that reading these figures took." |r, s| {
        s.add(&[], r.took.as_secs_f64());
    };
};
