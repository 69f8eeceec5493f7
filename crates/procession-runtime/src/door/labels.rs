//! The labels of samples and other texts in OpenMetrics text.

use std::fmt::Write;

/// The maximum number of characters of a label's value.
const LABEL_MAX: usize = 120;

/// Writes the labels of a sample. The label of the scheduler is the first.
pub(super) fn write_labels<'a>(
    text: &mut String,
    scheduler: u32,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
) {
    // Ignored, here and below: a string takes everything.
    let _ = write!(text, "{{scheduler=\"{scheduler}\"");
    for (name, value) in labels {
        let _ = write!(text, ",{name}=\"");
        let end = value.char_indices().nth(LABEL_MAX).map_or(value.len(), |(at, _)| at);
        write_escaped(text, &value[..end]);
        text.push('"');
    }
    text.push('}');
}

/// Writes the value of a label or the help of a family.
pub(super) fn write_escaped(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' | '"' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}
