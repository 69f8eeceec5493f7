//! The workers, their steps over time, and the pools, as JSON.

use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;

use super::json::Json;
use super::request::HttpRequest;
use super::response::{HttpStatus, Response};
use super::views::{LOCATION_MAX, each, location};
use crate::observe::pool_figures::{PoolRegistry, THREAD_POOLS};
use crate::observe::snapshot;
use crate::recorder::lanes::{self, COLUMNS};
use crate::scheduler::shared::Shared;

/// The default and the longest window of a timeline.
const WINDOW_MAX: Duration = Duration::from_secs(10);

/// Writes what the watchdog has found.
pub(super) fn stalls(json: &mut Json, shared: &Shared) {
    let counts = shared.workforce.watchdog.counts();
    for (name, count) in [
        ("blocked", counts.blocked),
        ("computing", counts.computing),
        ("replaced", counts.replaced),
        ("lifo_slots", counts.lifo_slots),
        ("unreported", counts.unreported),
        ("late", counts.late),
    ] {
        json.name(name).literal(count);
    }
}

/// Writes the workers and their queues, timers, descriptors and stalls.
pub(super) fn workers(json: &mut Json, shared: &Shared) {
    let found = snapshot::take_without_processes(shared);
    let busy: Vec<_> = shared.workforce.all_seats().map(|seat| seat.stats.busy.get()).collect();
    json.name("workers").array(|json| {
        for (worker, busy) in found.workers.iter().zip(&busy) {
            let queue = worker.deque + worker.fifo + worker.bound + usize::from(worker.lifo_slot);
            json.object(|json| {
                json.name("queue").literal(queue);
                json.name("steps").literal(worker.dispatches);
                json.name("steals").literal(worker.steals);
                json.name("parks").literal(worker.parks);
                json.name("busy_us").literal(busy / 1000);
                let age = worker.step_age.map(|age| age.as_millis());
                json.name("step_age_ms").literal_or_null(age);
            });
        }
    });
    json.name("now_us").literal(shared.world.now() / 1000);
    json.name("global_queue").literal(found.global_queue);
    json.name("levels").object(|json| {
        json.name("high").literal(found.levels.high);
        json.name("batch").literal(found.levels.batch);
        json.name("batch_workers").literal(found.levels.batch_workers);
    });
    for (name, count) in [
        ("spawned", found.spawned),
        ("ended", found.ended),
        ("panicked", found.panicked),
        ("messages_sent", found.messages_sent),
        ("messages_discarded", found.messages_discarded),
        ("blocking_sections", found.blocking_sections),
    ] {
        json.name(name).literal(count);
    }
    // Each bucket: its bound in nanoseconds, and the number of wake-ups.
    json.name("wake_to_run").array(|json| {
        for (bound, count) in shared.processes.waits.all().buckets() {
            json.array(|json| {
                json.literal_or_null(bound);
                json.literal(count);
            });
        }
    });
    json.name("timers").object(|json| {
        json.name("pending").literal(found.timers.pending);
        json.name("armed").literal(found.timers.armed);
        json.name("fired").literal(found.timers.fired);
        json.name("cancelled").literal(found.timers.cancelled);
    });
    json.name("descriptors").object(|json| {
        json.name("registered").literal(found.descriptors.registered);
        json.name("polls").literal(found.descriptors.polls);
        json.name("events").literal(found.descriptors.events);
        json.name("accepts_put_off").literal(found.descriptors.accepts_put_off);
    });
    json.name("stalls").object(|json| stalls(json, shared));
}

/// Writes the pools of the scheduler and the pools of threads, added up by name.
pub(super) fn pools(json: &mut Json, shared: &Shared) {
    let mut pools = SortedMap::new();
    THREAD_POOLS.add_to(&mut pools);
    PoolRegistry::of(shared).add_to(&mut pools);
    let mut truncated = false;
    json.name("pools").array(|json| {
        truncated = each(json, &pools, |json, (name, pool)| {
            json.name("name").text(name);
            for (name, value) in [
                ("capacity", pool.capacity as u64),
                ("busy", pool.busy as u64),
                ("idle", pool.idle as u64),
                ("queued", pool.queued as u64),
                ("waiting", pool.waiting as u64),
                ("completed", pool.completed),
                ("panicked", pool.panicked),
                ("cancelled", pool.cancelled),
                ("refused", pool.refused),
                ("workers_started", pool.workers_started),
            ] {
                json.name(name).literal(value);
            }
        });
    });
    json.name("truncated").literal(truncated);
}

/// Returns the length of the timeline that a request asks for.
pub(super) fn window(request: &HttpRequest) -> Result<Duration, Response> {
    let Some(text) = request.parameter("ms") else { return Ok(WINDOW_MAX) };
    let length = text.parse().ok().map(Duration::from_millis);
    length.filter(|length| !length.is_zero() && *length <= WINDOW_MAX).ok_or_else(|| {
        let text = "ms must be a whole number from 1 to 10000";
        Response::error(HttpStatus::BadRequest, text)
    })
}

/// Writes the steps of each worker over the last seconds.
pub(super) fn timeline(json: &mut Json, shared: &Shared, window: Duration) {
    let lanes = lanes::of_last(shared, window.as_nanos() as u64);
    let microseconds = |time: u64| time.saturating_sub(lanes.from) / 1000;
    json.name("timeline").object(|json| {
        json.name("window_us").literal(microseconds(lanes.to));
        json.name("columns").literal(COLUMNS);
        json.name("locations").array(|json| {
            for (at, time) in &lanes.locations {
                json.object(|json| {
                    match at {
                        None => json.name("location").literal("null"),
                        Some(at) => json.name("location").long_text(location(at), LOCATION_MAX),
                    }
                    json.name("us").literal(time / 1000);
                });
            }
        });
        json.name("workers").array(|json| {
            for lane in &lanes.workers {
                json.object(|json| {
                    json.name("since_us").literal(microseconds(lane.since));
                    // Each slice: first column, number of columns, location, percent, process.
                    json.name("slices").array(|json| {
                        for slice in &lane.slices {
                            json.array(|json| {
                                json.literal(slice.column);
                                json.literal(slice.count);
                                json.literal(slice.location);
                                json.literal(slice.busy);
                                json.text_or_null(slice.pid);
                            });
                        }
                    });
                });
            }
        });
    });
}
