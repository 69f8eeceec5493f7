//! The figures that metric families read, and the way to a sink.

use std::time::Duration;

use procession_protocols::pool::state::outcome::PoolStats;
use procession_protocols::util::histogram::{Histogram, LatenessHistogram, WaitHistogram};
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use super::busy::{BusyTime, BusyWindow};
use crate::observe::census::{self, Census};
use crate::observe::pool_figures::{PoolRegistry, THREAD_POOLS};
use crate::observe::snapshot::{self, Snapshot, WorkerSnapshot};
use crate::report::kept::Reports;
use crate::report::supervision::RestartCounts;
use crate::scheduler::seat::Seat;
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FamilyType {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl FamilyType {
    /// Returns its name in OpenMetrics.
    #[cfg(feature = "door")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// Returns the end of the names of samples.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }
}

/// A metric family: all series of one name.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) of: FamilyType,
    pub(crate) help: &'static str,
    pub(super) read: fn(&Reading<'_>, &mut Series<'_>),
}

/// The labels of a series, without the label of the scheduler.
pub(crate) type Labels<'a> = [(&'static str, &'a str)];

/// A receiver of metrics.
pub(crate) trait MetricSink {
    /// Begins a family.
    fn family(&mut self, family: &Family);

    /// Takes the value of one series.
    fn value(&mut self, family: &Family, labels: &Labels<'_>, value: f64);

    /// Takes the histogram of a family without further labels: the number of times in each bucket,
    /// with the bound of the bucket, and the sum of all times, both in nanoseconds.
    fn histogram(&mut self, family: &Family, buckets: &[(Option<u64>, u64)], sum: u64);
}

/// Passes the series of one family on.
pub(super) struct Series<'a> {
    pub(super) sink: &'a mut dyn MetricSink,
    pub(super) family: &'a Family,
}

impl Series<'_> {
    pub(super) fn add(&mut self, labels: &Labels<'_>, value: f64) {
        self.sink.value(self.family, labels, value);
    }

    pub(super) fn one(&mut self, value: u64) {
        self.add(&[], value as f64);
    }

    /// Adds a series for each worker.
    pub(super) fn each_worker(&mut self, values: impl Iterator<Item = f64>) {
        for (worker, value) in values.enumerate() {
            self.add(&[("worker", &worker.to_string())], value);
        }
    }

    /// Adds a series for each worker, of what its snapshot has.
    pub(super) fn workers(&mut self, reading: &Reading<'_>, of: impl Fn(&WorkerSnapshot) -> u64) {
        self.each_worker(reading.snapshot.workers.iter().map(|worker| of(worker) as f64));
    }

    /// Adds a series for each pool.
    pub(super) fn each_pool(&mut self, reading: &Reading<'_>, of: impl Fn(&PoolStats) -> u64) {
        for (name, pool) in &reading.pools {
            self.add(&[("pool", name)], of(pool) as f64);
        }
    }

    /// Adds a series for each of several values of one label.
    pub(super) fn by(&mut self, label: &'static str, values: &[(&str, u64)]) {
        for (name, value) in values {
            self.add(&[(label, name)], *value as f64);
        }
    }

    pub(super) fn histogram<const FIRST: u32, const LEN: usize>(
        &mut self,
        histogram: &Histogram<FIRST, LEN>,
    ) {
        let buckets: Vec<_> = histogram.buckets().collect();
        self.sink.histogram(self.family, &buckets, histogram.sum);
    }
}

/// The numbers of processes that ended with exits that are not normal.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndTotals {
    pub(super) shutdown: u64,
    pub(super) panicked: u64,
    pub(super) killed: u64,
    pub(super) disconnected: u64,
    pub(super) failed: u64,
}

/// The figures of one reading.
pub(super) struct Reading<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) census: Census,
    pub(super) ends: EndTotals,
    /// Messages that went back to their senders.
    pub(super) returned: u64,
    pub(super) lateness: LatenessHistogram,
    pub(super) wake_to_run: WaitHistogram,
    pub(super) busy: Vec<BusyTime>,
    /// For each worker, the seconds for which nothing was taken from a queue that holds something.
    pub(super) ages: Vec<f64>,
    pub(super) global_age: f64,
    pub(super) restarts: SortedMap<String, RestartCounts>,
    pub(super) pools: SortedMap<String, PoolStats>,
    pub(super) floors: &'a Floors,
    pub(super) width: usize,
    pub(super) name: &'a str,
    pub(super) took: Duration,
}

/// The least values that sums may have from now on. Without them, a sum could fall, because it adds
/// counters of many threads while some counts move from one counter to another.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<SortedMap<&'static str, u64>>);

impl Floors {
    pub(super) fn raise(&self, name: &'static str, value: u64) -> u64 {
        let mut floors = self.0.lock();
        let floor = floors.get_or_default(name);
        *floor = value.max(*floor);
        *floor
    }
}

/// The state of a reader between its readings.
#[derive(Debug, Default)]
pub(crate) struct MetricsReader {
    floors: Floors,
    busy: Mutex<BusyWindow>,
}

impl MetricsReader {
    pub(super) fn take<'a>(&'a self, shared: &'a Shared) -> Reading<'a> {
        let begin = World::real_now();
        // In this order: messages of a process that ends in between are missed once, and not
        // counted twice. The same holds for its end: exits that are not normal are counted first,
        // and read last. The floors hide the difference.
        let snapshot = snapshot::take_without_processes(shared);
        let census = census::take(shared);
        let ends = EndTotals {
            shutdown: shared.totals(|stats| &stats.stopped),
            panicked: shared.totals(|stats| &stats.panics),
            killed: shared.totals(|stats| &stats.killed),
            disconnected: shared.totals(|stats| &stats.disconnected),
            failed: shared.totals(|stats| &stats.failed),
        };
        let now = shared.world.now();
        let busy: Vec<_> = shared.workforce.all_seats().map(|seat| seat.stats.busy.get()).collect();
        let busy = self.busy.lock().times(now, &busy);
        let mut pools = SortedMap::new();
        THREAD_POOLS.add_to(&mut pools);
        PoolRegistry::of(shared).add_to(&mut pools);
        Reading {
            ends,
            returned: shared.totals(|stats| &stats.returned),
            lateness: snapshot::lateness(shared),
            wake_to_run: shared.processes.waits.all(),
            busy,
            ages: shared.workforce.all_seats().map(|seat| age(seat, now)).collect(),
            global_age: global_age(shared, now),
            restarts: Reports::of(shared).restarts.all(),
            pools,
            floors: &self.floors,
            width: shared.workforce.width(),
            name: shared.name(),
            took: Duration::from_nanos(World::real_now().saturating_sub(begin)),
            snapshot,
            census,
        }
    }
}

/// Returns the seconds since a time of the watchdog's, or 0 if the queue is empty now.
fn seconds_since(since: u64, now: u64, is_empty: bool) -> f64 {
    if since == 0 || is_empty { 0.0 } else { now.saturating_sub(since) as f64 / 1e9 }
}

fn age(seat: &Seat, now: u64) -> f64 {
    let is_empty = seat.queues.are_empty() && seat.bound.is_empty();
    // Relaxed: statistics.
    seconds_since(seat.stats.queued_since.load(Relaxed), now, is_empty)
}

fn global_age(shared: &Shared, now: u64) -> f64 {
    // Relaxed: statistics.
    let since = shared.stats.outside.queued_since.load(Relaxed);
    seconds_since(since, now, shared.workforce.queues.are_empty())
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
