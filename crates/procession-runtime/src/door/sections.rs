//! Sections of libraries, as JSON and as metrics.

use std::fmt::Write;

use procession_protocols::util::sorted_map::{SortedMap, SortedSet};

use super::answers::object;
use super::json::Json;
use super::labels::{write_escaped, write_labels};
use super::response::{RESPONSE_BYTES_MAX, Response};
use crate::observe::metrics::{FAMILIES, FamilyType};
use crate::observe::section::{DoorSection, Figure, FigureKind, SectionRow, Sections};
use crate::scheduler::enter::within;
use crate::scheduler::shared::Shared;

/// The length of the metrics at which the rest of the sections is left out.
const METRICS_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 2;

/// Answers `GET /NAME` if a section has the name.
pub(super) fn section(shared: &Shared, name: &str) -> Option<Response> {
    let section = within(shared.id(), || Sections::of(shared).read_one(name))??;
    Some(object(|json| write(json, &section)))
}

/// Writes all sections, each as a member of `sections`.
pub(super) fn all(json: &mut Json, shared: &Shared) {
    json.name("sections").object(|json| {
        for (name, section) in read(shared) {
            json.name(name).object(|json| write(json, &section));
        }
    });
}

/// Reads all sections in their scheduler, because their functions belong to its program. The door
/// runs in another scheduler.
fn read(shared: &Shared) -> SortedMap<&'static str, DoorSection> {
    within(shared.id(), || Sections::of(shared).read()).unwrap_or_default()
}

/// Writes the tables of a section, each a list.
fn write(json: &mut Json, section: &DoorSection) {
    let mut tables = SortedMap::<_, Vec<_>>::new();
    for (table, row) in section.rows() {
        tables.get_or_default(*table).push(row);
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

/// A family: what its figures are, and its series, each with the labels of a row.
struct FamilyText<'a> {
    figure: &'a Figure,
    series: Vec<(&'a SectionRow, u64)>,
}

impl Figure {
    /// Returns the name and the type of its family.
    fn family(&self, section: &str, table: &str) -> (String, FamilyType) {
        let name = format!("procession_{section}_{table}_{}", self.name);
        match self.of {
            FigureKind::Counter => (name, FamilyType::Counter),
            FigureKind::Gauge => (name, FamilyType::Gauge),
            FigureKind::Time => (name + "_seconds", FamilyType::Gauge),
        }
    }
}

/// Writes the figures of all sections as OpenMetrics text. A figure without a value has no series.
/// If several rows have the same labels, the first row is written. If several families have the
/// same name, or the same name of their samples, one family is written; families of the runtime
/// take precedence.
pub(super) fn metrics(text: &mut String, shared: &Shared) {
    let sections = read(shared);
    let mut families = SortedMap::<_, FamilyText<'_>>::new();
    for (section, found) in &sections {
        for (table, row) in found.rows() {
            for figure in row.figures() {
                let family = families.get_or_insert_with(figure.family(section, table), || {
                    FamilyText { figure, series: Vec::new() }
                });
                family.series.extend(figure.value.map(|value| (row, value)));
            }
        }
    }
    let mut taken: SortedSet<_> = FAMILIES
        .iter()
        .flat_map(|family| {
            [family.name.to_owned(), format!("{}{}", family.name, family.of.suffix())]
        })
        .collect();
    for ((name, of), family) in families {
        let sample = format!("{name}{}", of.suffix());
        if taken.contains(&name) || taken.contains(&sample) {
            continue;
        }
        write_family(text, shared.id(), &name, of, &family);
        taken.extend([name, sample]);
    }
}

fn write_family(
    text: &mut String,
    scheduler: u32,
    name: &str,
    of: FamilyType,
    FamilyText { figure, series }: &FamilyText<'_>,
) {
    if text.len() > METRICS_BYTES_MAX {
        return;
    }
    // Ignored, here and below: a string takes everything.
    let _ = writeln!(text, "# TYPE {name} {}", of.name());
    if figure.of == FigureKind::Time {
        let _ = writeln!(text, "# UNIT {name} seconds");
    }
    let _ = write!(text, "# HELP {name} ");
    write_escaped(text, figure.help);
    text.push('\n');
    let mut written = SortedSet::new();
    for (row, value) in series {
        let mut labels = String::new();
        let pairs = row.labels().iter().map(|(name, value)| (*name, &**value));
        write_labels(&mut labels, scheduler, pairs);
        if text.len() > METRICS_BYTES_MAX || written.contains(&labels) {
            continue;
        }
        let _ = write!(text, "{name}{}{labels}", of.suffix());
        written.insert(labels);
        let _ = match figure.of {
            FigureKind::Time => writeln!(text, " {}", *value as f64 / 1e6),
            _ => writeln!(text, " {value}"),
        };
    }
}
