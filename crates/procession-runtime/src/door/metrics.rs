//! The metrics of a scheduler, as OpenMetrics text.

use std::fmt::Write;

use super::labels::write_labels;
use super::sections;
use crate::observe::metrics::{Family, Labels, MetricSink, MetricsReader};
use crate::scheduler::shared::Shared;

/// A text to which metrics are written.
struct MetricsText {
    text: String,
    scheduler: u32,
}

impl MetricsText {
    /// Writes a sample. `suffix` follows the name of the family.
    fn sample(&mut self, family: &Family, suffix: &str, labels: &Labels<'_>, value: f64) {
        let Self { text, scheduler } = self;
        // Ignored, here and below: a string takes everything.
        let _ = write!(text, "{}{suffix}", family.name);
        write_labels(text, *scheduler, labels.iter().copied());
        let _ = writeln!(text, " {value}");
    }
}

impl MetricSink for MetricsText {
    fn family(&mut self, family: &Family) {
        let _ = writeln!(self.text, "# TYPE {} {}", family.name, family.of.name());
        if family.name.ends_with("_seconds") {
            let _ = writeln!(self.text, "# UNIT {} seconds", family.name);
        }
        let _ = writeln!(self.text, "# HELP {} {}", family.name, family.help);
    }

    fn value(&mut self, family: &Family, labels: &Labels<'_>, value: f64) {
        self.sample(family, family.of.suffix(), labels, value);
    }

    fn histogram(&mut self, family: &Family, buckets: &[(Option<u64>, u64)], sum: u64) {
        let mut count = 0;
        for (bound, more) in buckets {
            count += more;
            let bound = bound.map(|bound| (bound as f64 / 1e9).to_string());
            let bound = bound.unwrap_or_else(|| "+Inf".to_owned());
            self.sample(family, "_bucket", &[("le", &bound)], count as f64);
        }
        self.sample(family, "_count", &[], count as f64);
        self.sample(family, "_sum", &[], sum as f64 / 1e9);
    }
}

/// Returns the metrics of a scheduler as OpenMetrics text.
pub(super) fn text(shared: &Shared, reader: &MetricsReader) -> String {
    let mut text = MetricsText { text: String::with_capacity(16 << 10), scheduler: shared.id() };
    reader.read(shared, &mut text);
    sections::metrics(&mut text.text, shared);
    text.text.push_str("# EOF\n");
    text.text
}
