//! The metrics of a scheduler, through the facade of the crate `metrics`.

use std::fmt;
use std::sync::{Arc, Weak};

use ::metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
};

use procession_protocols::util::sorted_map::SortedMap;

use crate::Scheduler;
use crate::observe::metrics::{FAMILIES, Family, FamilyType, Labels, MetricSink, MetricsReader};
use crate::scheduler::shared::Shared;

/// Hands the metrics of one scheduler to the recorder of the crate [`metrics`](::metrics), and so
/// to the exporter that the program has installed.
///
/// The names, labels and meanings are the same as in the OpenMetrics text, which `docs/METRICS.md`
/// of the repository lists. Each metric has the name of its samples: the name of a counter ends in
/// `_total`, and the name of an info, which is a gauge of 1, ends in `_info`. The times of a
/// histogram are recorded with the bounds of its buckets as their values, at most 17 s, each twice
/// the previous bound. So a quantile is at most twice as large as the true value.
///
/// Nothing is recorded between two calls of [`publish`](Self::publish). Call it as often as the
/// exporter is read, for example every ten seconds. One call reads all processes once, which takes
/// milliseconds for a million processes, and stops no process.
///
/// ```
/// use std::time::Duration;
///
/// use procession::observe::MetricsPublisher;
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().test_clock().build()?;
/// // The program has installed an exporter, such as that of `metrics-exporter-prometheus`.
/// let mut publisher = MetricsPublisher::new(&scheduler);
/// let publishes = scheduler.spawn(async move {
///     let mut ticks = procession::time::interval(Duration::from_secs(10));
///     loop {
///         ticks.tick().await;
///         if !publisher.publish() {
///             break;
///         }
///     }
/// });
/// # scheduler.run_until_idle();
/// # drop(publishes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MetricsPublisher {
    /// The scheduler is not kept alive.
    shared: Weak<Shared>,
    reader: MetricsReader,
    /// The counts of buckets that were published, by family.
    published: SortedMap<&'static str, Vec<u64>>,
    is_described: bool,
}

impl MetricsPublisher {
    /// Creates a publisher of the metrics of a scheduler. It does not keep the scheduler alive.
    pub fn new(scheduler: &Scheduler) -> Self {
        Self {
            shared: Arc::downgrade(scheduler.shared()),
            reader: MetricsReader::default(),
            published: SortedMap::new(),
            is_described: false,
        }
    }

    /// Sets all metrics to their values of now. The first call also describes them. Returns
    /// `false`, and sets nothing, if the scheduler is gone.
    ///
    /// # Panics
    /// Panics if the recorder panics.
    pub fn publish(&mut self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        if !std::mem::replace(&mut self.is_described, true) {
            FAMILIES.iter().for_each(describe);
        }
        let scheduler = shared.id().to_string();
        let published = &mut self.published;
        self.reader.read(&shared, &mut FacadeSink { scheduler, published });
        true
    }
}

impl fmt::Debug for MetricsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsPublisher")
            .field("scheduler", &self.shared.upgrade())
            .finish_non_exhaustive()
    }
}

/// Returns the name of the samples of a family.
fn sample_name(family: &Family) -> String {
    format!("{}{}", family.name, family.of.suffix())
}

fn describe(family: &Family) {
    let name = sample_name(family);
    let unit = match family.name.ends_with("_seconds") {
        true => Unit::Seconds,
        false => Unit::Count,
    };
    match family.of {
        FamilyType::Counter => describe_counter!(name, unit, family.help),
        FamilyType::Gauge | FamilyType::Info => describe_gauge!(name, unit, family.help),
        FamilyType::Histogram => describe_histogram!(name, unit, family.help),
    }
}

/// The recorder of this thread or of the program.
struct FacadeSink<'a> {
    scheduler: String,
    published: &'a mut SortedMap<&'static str, Vec<u64>>,
}

impl FacadeSink<'_> {
    fn labels(&self, labels: &Labels<'_>) -> Vec<Label> {
        let own = [Label::new("scheduler", self.scheduler.clone())];
        let others = labels.iter().map(|&(name, value)| Label::new(name, value.to_owned()));
        own.into_iter().chain(others).collect()
    }
}

impl MetricSink for FacadeSink<'_> {
    fn family(&mut self, _: &Family) {}

    fn value(&mut self, family: &Family, labels: &Labels<'_>, value: f64) {
        let (name, labels) = (sample_name(family), self.labels(labels));
        match family.of {
            // The facade has whole numbers only, so a counter of seconds is cut.
            FamilyType::Counter => counter!(name, labels).absolute(value as u64),
            _ => gauge!(name, labels).set(value),
        }
    }

    fn histogram(&mut self, family: &Family, buckets: &[(Option<u64>, u64)], _: u64) {
        let recorded = ::metrics::histogram!(sample_name(family), self.labels(&[]));
        let before = self.published.get_or_default(family.name);
        before.resize(buckets.len(), 0);
        let mut last_bound = 0.0;
        for (&(bound, count), before) in buckets.iter().zip(before) {
            // What is above all bounds counts as twice the last one.
            last_bound = bound.map_or(last_bound * 2.0, |bound| bound as f64 / 1e9);
            let new = count.saturating_sub(*before);
            *before = count;
            if new > 0 {
                recorded.record_many(last_bound, usize::try_from(new).unwrap_or(usize::MAX));
            }
        }
    }
}
