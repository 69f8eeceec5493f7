//! The metrics through the facade of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};
use procession::Scheduler;
use procession::observe::MetricsPublisher;
use procession_sync::Mutex;

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the last value of each counter and gauge, and the number of values of each histogram.
#[derive(Clone, Default)]
struct Kept {
    values: Values,
    described: Values,
}

struct Cell(Values, String);

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        panic!("counters are absolute");
    }

    fn absolute(&self, value: u64) {
        self.0.lock().insert(self.1.clone(), value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("gauges are absolute");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are absolute");
    }

    fn set(&self, value: f64) {
        self.0.lock().insert(self.1.clone(), value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        let name = format!("{} {value}", self.1);
        *self.0.lock().entry(name).or_default() += 1.0;
    }
}

impl Kept {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        Arc::new(Cell(Arc::clone(&self.values), format!("{} {}", key.name(), labels.join(" "))))
    }

    fn describe(&self, name: &KeyName) {
        *self.described.lock().entry(name.as_str().to_owned()).or_default() += 1.0;
    }

    fn get(&self, scheduler: &Scheduler, name: &str, labels: &str) -> Option<f64> {
        let name = format!("{name} scheduler={}{labels}", scheduler.id());
        self.values.lock().get(&name).copied()
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

#[test]
fn the_facade_gets_the_same_names_and_figures() {
    let scheduler = Scheduler::builder()
        .name("told")
        .worker_threads(1)
        .test_clock()
        .build()
        .expect("it is small");
    let mut publisher = MetricsPublisher::new(&scheduler);
    let kept = Kept::default();
    let ends = |count: usize| {
        let sleep = || scheduler.spawn(procession::sleep(Duration::from_millis(5)));
        let sleepers: Vec<_> = (0..count).map(|_| sleep()).collect();
        for sleeper in sleepers {
            scheduler.block_on(sleeper).expect("it sleeps");
        }
    };
    ends(2);
    assert!(with_local_recorder(&kept, || publisher.publish()));
    let normal = "procession_processes_ended_total";
    assert_eq!(kept.get(&scheduler, normal, " reason=normal"), Some(2.0));
    assert_eq!(kept.get(&scheduler, "procession_workers", ""), Some(1.0));
    let info = format!(" version={} name=told", env!("CARGO_PKG_VERSION"));
    assert_eq!(kept.get(&scheduler, "procession_info", &info), Some(1.0));
    let lateness = "procession_timer_lateness_seconds";
    assert_eq!(kept.get(&scheduler, lateness, " 0.000016384"), Some(2.0));

    ends(3);
    assert!(with_local_recorder(&kept, || publisher.publish()));
    assert_eq!(kept.get(&scheduler, normal, " reason=normal"), Some(5.0));
    assert_eq!(kept.get(&scheduler, lateness, " 0.000016384"), Some(5.0), "each once");
    let described = kept.described.lock();
    assert!(described.len() > 40 && described.values().all(|&times| times == 1.0));
    drop(described);

    let before = kept.values.lock().clone();
    drop(scheduler);
    assert!(!with_local_recorder(&kept, || publisher.publish()), "the scheduler is gone");
    assert_eq!(*kept.values.lock(), before, "nothing was set");
}
