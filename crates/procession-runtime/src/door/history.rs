//! The last ten minutes of a scheduler, as points from which its plots are made.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession_sync::Mutex;

use super::json::Json;
use crate::observe::snapshot;
use crate::report::kept::Reports;
use crate::scheduler::shared::Shared;
use crate::time::sleep;

/// The time between two points. Making one takes some 20 us.
const EVERY: Duration = Duration::from_secs(2);
/// The number of points: ten minutes.
const POINTS: usize = 300;
/// The maximum number of workers with a figure of their own, so that all points have 500 KiB at
/// most.
const WORKERS_MAX: usize = 64;

/// The points, the oldest first, each with its time in microseconds and as JSON.
#[derive(Default)]
pub(super) struct History(Mutex<VecDeque<(u64, String)>>);

impl History {
    /// Adds a point.
    fn add(&self, at: u64, point: String) {
        let mut points = self.0.lock();
        if points.len() >= POINTS {
            points.pop_front();
        }
        points.push_back((at, point));
    }

    /// Writes the points after a time in microseconds.
    pub(super) fn write(&self, json: &mut Json, after: u64) {
        json.name("every_ms").literal(EVERY.as_millis());
        json.name("points").array(|json| {
            for (_, point) in self.0.lock().iter().filter(|(at, _)| *at > after) {
                json.literal(point);
            }
        });
    }
}

/// Keeps the history of a scheduler until the scheduler has ended.
pub(super) async fn keep(of: Weak<Shared>, history: Arc<History>) {
    while let Some(shared) = of.upgrade() {
        let mut json = Json::default();
        let at = point(&mut json, &shared);
        drop(shared);
        history.add(at, json.into_text());
        sleep(EVERY).await;
    }
}

/// Writes the present point. Returns its time in microseconds. All but `ready` count from the start
/// of the scheduler.
pub(super) fn point(json: &mut Json, shared: &Shared) -> u64 {
    let found = snapshot::take_without_processes(shared);
    let at = shared.world.now() / 1000;
    let queue = |worker: &snapshot::WorkerSnapshot| {
        worker.deque + worker.fifo + worker.bound + usize::from(worker.lifo_slot)
    };
    let ready = found.global_queue + found.workers.iter().map(queue).sum::<usize>();
    let restarts = Reports::of(shared).restarts.all();
    let restarts: u64 = restarts.values().map(|counts| counts.restarts).sum();
    json.object(|json| {
        json.name("at_us").literal(at);
        json.name("busy_us").array(|json| {
            for seat in shared.workforce.all_seats().take(WORKERS_MAX) {
                json.literal(seat.stats.busy.get() / 1000);
            }
        });
        for (name, value) in [
            ("ready", ready as u64),
            ("spawned", found.spawned),
            ("ended", found.ended),
            ("messages", found.messages_sent),
            ("timers", found.timers.fired),
            ("stalls", found.stalls.computing + found.stalls.blocked),
            ("restarts", restarts),
        ] {
            json.name(name).literal(value);
        }
        // The number of wake-ups in each bucket of `wake_to_run`.
        json.name("wake").array(|json| {
            for (_, count) in shared.processes.waits.all().buckets() {
                json.literal(count);
            }
        });
    });
    at
}

#[cfg(test)]
mod tests {
    use super::{History, POINTS};
    use crate::door::json::Json;

    #[test]
    fn the_last_points_are_kept_and_the_new_ones_are_told() {
        let history = History::default();
        for at in 1..=POINTS as u64 + 5 {
            history.add(at, format!("{{\"at_us\":{at}}}"));
        }
        let written = |after: u64| {
            let mut json = Json::default();
            json.object(|json| history.write(json, after));
            json.into_text()
        };
        assert_eq!(written(0).matches("at_us").count(), POINTS);
        assert!(written(0).contains("[{\"at_us\":6},"), "the oldest are gone");
        let last = POINTS as u64 + 5;
        let expected = format!("{{\"every_ms\":2000,\"points\":[{{\"at_us\":{last}}}]}}");
        assert_eq!(written(last - 1), expected);
    }
}
