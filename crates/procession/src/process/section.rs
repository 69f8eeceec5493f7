//! What a library shows of its own state beside the processes: sections of a door.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::Mutex;

use crate::process::unwind::guarded;

/// The maximum number of rows of a section.
const ROWS_MAX: usize = 1000;
/// The maximum number of labels and figures of a row.
const CELLS_MAX: usize = 32;

/// A part of the state of a program, which a library shows in the
/// [door](crate::Builder::observe) of the scheduler. See
/// [`Context::show_section`](crate::Context::show_section).
///
/// It is a list of rows, each in a table. A door shows it as JSON at the path of its name, and its
/// figures among the metrics: those of the table `peer` in the section `cluster` are
/// `procession_cluster_peer_NAME`, with the labels of their rows. Names consist of lower-case
/// letters, digits and `_`.
///
/// A section has at most 1000 rows, and a row 32 labels and figures. The rest is left out.
#[derive(Debug, Default)]
pub struct DoorSection {
    rows: Vec<(&'static str, SectionRow)>,
    is_truncated: bool,
}

/// A row of a [`DoorSection`]: labels, which say what it is about, and figures.
#[derive(Debug, Default)]
pub struct SectionRow {
    labels: Vec<(&'static str, String)>,
    figures: Vec<Figure>,
    is_truncated: bool,
}

/// A figure of a row.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "observe"), expect(dead_code, reason = "a door reads it"))]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) of: FigureKind,
    /// `None` if it is not known.
    pub(crate) value: Option<u64>,
}

/// The meaning of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureKind {
    Counter,
    Gauge,
    /// A gauge in microseconds.
    Time,
}

/// Panics unless a name is one of a metric.
fn check_name(name: &str) {
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    assert!(!name.is_empty() && name.bytes().all(is_name), "{name:?} is no name for a metric");
}

impl DoorSection {
    /// Adds a row to a table.
    ///
    /// # Panics
    /// If a name has other characters than lower-case letters, digits and `_`. A door leaves out
    /// what a section that panics would show.
    pub fn row(&mut self, table: &'static str, write: impl FnOnce(&mut SectionRow)) -> &mut Self {
        check_name(table);
        if self.rows.len() == ROWS_MAX {
            self.is_truncated = true;
            return self;
        }
        let mut row = SectionRow::default();
        write(&mut row);
        self.is_truncated |= row.is_truncated;
        self.rows.push((table, row));
        self
    }

    /// Returns the rows, each with the name of its table.
    #[cfg(feature = "observe")]
    pub(crate) fn rows(&self) -> &[(&'static str, SectionRow)] {
        &self.rows
    }

    #[cfg(feature = "observe")]
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

impl SectionRow {
    /// Adds a label.
    pub fn label(&mut self, name: &'static str, value: impl fmt::Display) -> &mut Self {
        check_name(name);
        if self.has_room() {
            self.labels.push((name, value.to_string()));
        }
        self
    }

    /// Adds a number that only grows. `help` is a sentence about it.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) -> &mut Self {
        self.figure(Figure { name, help, of: FigureKind::Counter, value: Some(value) })
    }

    /// Adds a number that rises and falls. `None` is that it is not known.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: impl Into<Option<u64>>,
    ) -> &mut Self {
        self.figure(Figure { name, help, of: FigureKind::Gauge, value: value.into() })
    }

    /// Adds a time. `None` is that it is not known. The JSON has it in microseconds, as `NAME_us`,
    /// and the metrics in seconds, as `NAME_seconds`.
    pub fn time(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: impl Into<Option<Duration>>,
    ) -> &mut Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let value = value.into().map(micros);
        self.figure(Figure { name, help, of: FigureKind::Time, value })
    }

    fn figure(&mut self, figure: Figure) -> &mut Self {
        check_name(figure.name);
        if self.has_room() {
            self.figures.push(figure);
        }
        self
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.labels.len() + self.figures.len() < CELLS_MAX;
        self.is_truncated |= !has_room;
        has_room
    }

    #[cfg(feature = "observe")]
    pub(crate) fn labels(&self) -> &[(&'static str, String)] {
        &self.labels
    }

    #[cfg(feature = "observe")]
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }
}

/// A closure that shows a section.
pub(crate) type ShowSection = Arc<dyn Fn(&mut DoorSection) + Send + Sync>;

/// The sections of a scheduler, by name, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Sections(Mutex<SectionTable>);

#[derive(Default)]
struct SectionTable {
    by_name: BTreeMap<(&'static str, u64), ShowSection>,
    last: u64,
}

impl Sections {
    /// Adds a section. Returns its number.
    pub(crate) fn add(&self, name: &'static str, show: ShowSection) -> u64 {
        check_name(name);
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.by_name.insert((name, number), show);
        number
    }

    /// Takes a section out, to be dropped.
    pub(crate) fn remove(&self, name: &'static str, number: u64) -> Option<ShowSection> {
        self.0.lock().by_name.remove(&(name, number))
    }

    /// Takes all out, to be dropped.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = ShowSection> + use<> {
        std::mem::take(&mut self.0.lock().by_name).into_values()
    }

    /// Returns the names.
    #[cfg(feature = "observe")]
    pub(crate) fn names(&self) -> std::collections::BTreeSet<&'static str> {
        self.0.lock().by_name.keys().map(|(name, _)| *name).collect()
    }

    /// Reads all sections. Those of one name are one.
    #[cfg_attr(not(feature = "observe"), expect(dead_code, reason = "a door reads them"))]
    pub(crate) fn read(&self) -> BTreeMap<&'static str, DoorSection> {
        let all: Vec<_> = {
            let table = self.0.lock();
            table.by_name.iter().map(|((name, _), show)| (*name, Arc::clone(show))).collect()
        };
        let mut sections = BTreeMap::<_, DoorSection>::new();
        for (name, show) in all {
            let section = sections.entry(name).or_default();
            // A panic of it is not one of the door.
            section.is_truncated |= guarded(|| show(section)).is_err();
        }
        sections
    }
}
