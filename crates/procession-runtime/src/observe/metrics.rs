//! The metrics of a scheduler: what is read, and under which names.
//!
//! `docs/METRICS.md` lists the families. Their names and labels are stable. No label is a PID. The
//! labels that a program chooses, which are the labels of pools and of supervisors, are bounded in
//! number. So the number of series does not grow with the number of processes.

mod busy;
mod families;
mod reading;

pub(crate) use self::families::FAMILIES;
#[cfg(any(feature = "metrics", feature = "door"))]
pub(crate) use self::reading::FamilyType;
use self::reading::Series;
pub(crate) use self::reading::{Family, Labels, MetricSink, MetricsReader};
use crate::scheduler::shared::Shared;

impl MetricsReader {
    /// Reads all metrics, and passes them to a sink.
    pub(crate) fn read(&self, shared: &Shared, sink: &mut dyn MetricSink) {
        let reading = self.take(shared);
        for family in FAMILIES {
            sink.family(family);
            (family.read)(&reading, &mut Series { sink, family });
        }
    }
}
