//! The labels of samples in OpenMetrics text.

use std::fmt::Write;

/// The maximum number of characters of a label's value.
const LABEL_MAX: usize = 120;

/// Writes the labels of a sample, with that of the scheduler in front.
pub(super) fn write_labels<'a>(
    text: &mut String,
    scheduler: u32,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
) {
    // Ignored, here and below: a string takes everything.
    let _ = write!(text, "{{scheduler=\"{scheduler}\"");
    for (name, value) in labels {
        let _ = write!(text, ",{name}=\"");
        for c in value.chars().take(LABEL_MAX) {
            match c {
                '\\' | '"' => text.extend(['\\', c]),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text.push('}');
}
