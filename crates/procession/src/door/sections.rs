//! Sections of libraries, as JSON and as metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::answers::object;
use super::json::Json;
use super::labels::write_labels;
use super::response::{RESPONSE_BYTES_MAX, Response};
use crate::process::section::{DoorSection, Figure, FigureKind, SectionRow};
use crate::scheduler::shared::Shared;

/// Answers `GET /NAME` if a section has the name.
pub(super) fn section(shared: &Shared, name: &str) -> Option<Response> {
    let sections = shared.extensions.sections.read();
    sections.get(name).map(|section| object(|json| write(json, section)))
}

/// Writes all sections, each as a member of `sections`.
pub(super) fn all(json: &mut Json, shared: &Shared) {
    json.name("sections").object(|json| {
        for (name, section) in shared.extensions.sections.read() {
            json.name(name).object(|json| write(json, &section));
        }
    });
}

/// Writes the tables of a section, each a list.
fn write(json: &mut Json, section: &DoorSection) {
    let mut tables = BTreeMap::<_, Vec<_>>::new();
    for (table, row) in section.rows() {
        tables.entry(*table).or_default().push(row);
    }
    let mut is_truncated = section.is_truncated();
    for (table, rows) in tables {
        json.name(table).array(|json| {
            for row in rows {
                if json.is_over(RESPONSE_BYTES_MAX) {
                    is_truncated = true;
                    break;
                }
                json.object(|json| write_row(json, row));
            }
        });
    }
    json.name("truncated").literal(is_truncated);
}

fn write_row(json: &mut Json, row: &SectionRow) {
    for (name, value) in row.labels() {
        json.name(name).text(value);
    }
    for Figure { name, of, value, .. } in row.figures() {
        match of {
            FigureKind::Time => json.name(&format!("{name}_us")).literal_or_null(*value),
            _ => json.name(name).literal_or_null(*value),
        }
    }
}

/// The series of a family: the labels of each, and its value.
struct FamilyText<'a> {
    figure: &'a Figure,
    series: Vec<(&'a SectionRow, u64)>,
}

/// Writes the figures of all sections as OpenMetrics text. What is not known has no series, and
/// rows with the same labels have that of the first.
pub(super) fn metrics(text: &mut String, shared: &Shared) {
    let sections = shared.extensions.sections.read();
    for (section, found) in &sections {
        let mut families = BTreeMap::<_, FamilyText<'_>>::new();
        for (table, row) in found.rows() {
            for figure in row.figures() {
                let family = families
                    .entry((*table, figure.name))
                    .or_insert_with(|| FamilyText { figure, series: Vec::new() });
                family.series.extend(figure.value.map(|value| (row, value)));
            }
        }
        for ((table, name), FamilyText { figure, series }) in families {
            if text.len() > RESPONSE_BYTES_MAX / 2 {
                return;
            }
            let mut name = format!("procession_{section}_{table}_{name}");
            let (kind, suffix) = match figure.of {
                FigureKind::Counter => ("counter", "_total"),
                FigureKind::Gauge => ("gauge", ""),
                FigureKind::Time => {
                    name.push_str("_seconds");
                    ("gauge", "")
                }
            };
            // Ignored, here and below: a string takes everything.
            let _ = writeln!(text, "# TYPE {name} {kind}");
            if figure.of == FigureKind::Time {
                let _ = writeln!(text, "# UNIT {name} seconds");
            }
            let _ = writeln!(text, "# HELP {name} {}", figure.help);
            let mut written = BTreeSet::new();
            for (row, value) in series {
                let mut labels = String::new();
                let pairs = row.labels().iter().map(|(name, value)| (*name, &**value));
                write_labels(&mut labels, shared.id(), pairs);
                if written.contains(&labels) {
                    continue;
                }
                let _ = write!(text, "{name}{suffix}{labels}");
                written.insert(labels);
                let _ = match figure.of {
                    FigureKind::Time => writeln!(text, " {}", value as f64 / 1e6),
                    _ => writeln!(text, " {value}"),
                };
            }
        }
    }
}
