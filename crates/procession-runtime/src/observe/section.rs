//! State that a library shows in addition to the processes: sections of a door.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::process::unwind::{DropGuarded, drop_each, guarded};
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::util::bounded_text::bounded_text;

/// The maximum number of rows of a section.
const ROWS_MAX: usize = 1000;
/// The maximum number of labels and figures of a row.
const CELLS_MAX: usize = 32;
/// The maximum length of the value of a label in bytes.
const LABEL_BYTES_MAX: usize = 512;

/// A part of the state of a program, which a library shows in the
/// [door](crate::Builder::door) of the scheduler. See
/// [`Context::show_section`](crate::Context::show_section).
///
/// It is a list of rows, each in a table. A door shows it as JSON at the path of its name, and its
/// figures among the metrics. For example, the figures of the table `peer` in the section `cluster`
/// are `procession_cluster_peer_NAME`, with the labels of their rows. A name consists of lower-case
/// letters, digits and `_`, and begins with a letter.
///
/// A section has at most 1000 rows, a row 32 labels and figures, and the value of a label 512
/// bytes. The rest is left out.
#[derive(Debug, Default)]
pub struct DoorSection {
    rows: Vec<(&'static str, SectionRow)>,
    is_truncated: bool,
}

/// A row of a [`DoorSection`]: figures, and labels that name their subject.
#[derive(Debug, Default)]
pub struct SectionRow {
    labels: Vec<(&'static str, String)>,
    figures: Vec<Figure>,
    is_truncated: bool,
}

/// A figure of a row.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "door"), expect(dead_code, reason = "a door reads it"))]
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
    assert!(
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(is_name),
        "{name:?} is no name for a metric: it must consist of lower-case letters, digits and _, \
         and begin with a letter"
    );
}

impl DoorSection {
    /// Adds a row to a table.
    ///
    /// # Panics
    /// If the name does not consist of lower-case letters, digits and `_`, or does not begin with a
    /// letter. A door leaves out what a section that panics would show.
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
    #[cfg(feature = "door")]
    pub(crate) fn rows(&self) -> &[(&'static str, SectionRow)] {
        &self.rows
    }

    #[cfg(feature = "door")]
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

impl SectionRow {
    /// Adds a label.
    ///
    /// # Panics
    /// If the name does not consist of lower-case letters, digits and `_`, does not begin with a
    /// letter, already names a label or a figure of the row, or is `scheduler`, which is a label of
    /// every metric.
    pub fn label(&mut self, name: &'static str, value: impl fmt::Display) -> &mut Self {
        assert!(name != "scheduler", "every metric has a label of the name scheduler");
        self.check_new(name);
        if self.has_room() {
            let (value, is_whole) = bounded_text(value, LABEL_BYTES_MAX);
            self.is_truncated |= !is_whole;
            self.labels.push((name, value));
        }
        self
    }

    /// Adds a number that only grows. `help` is a sentence about it.
    ///
    /// # Panics
    /// If the name does not consist of lower-case letters, digits and `_`, does not begin with a
    /// letter, or already names a label or a figure of the row.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) -> &mut Self {
        self.figure(Figure { name, help, of: FigureKind::Counter, value: Some(value) })
    }

    /// Adds a number that rises and falls. `None` means that the number is not known.
    ///
    /// # Panics
    /// Like [`counter`](Self::counter).
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: impl Into<Option<u64>>,
    ) -> &mut Self {
        self.figure(Figure { name, help, of: FigureKind::Gauge, value: value.into() })
    }

    /// Adds a time. `None` means that the time is not known. The JSON has it in microseconds, as
    /// `NAME_us`, and the metrics in seconds, as `NAME_seconds`.
    ///
    /// # Panics
    /// Like [`counter`](Self::counter).
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
        self.check_new(figure.name);
        if self.has_room() {
            self.figures.push(figure);
        }
        self
    }

    /// Panics unless a name is one of a metric, and new in the row.
    fn check_new(&self, name: &str) {
        check_name(name);
        let mut names =
            self.labels.iter().map(|label| label.0).chain(self.figures.iter().map(|f| f.name));
        assert!(names.all(|other| other != name), "the row has two columns of the name {name}");
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.labels.len() + self.figures.len() < CELLS_MAX;
        self.is_truncated |= !has_room;
        has_room
    }

    #[cfg(feature = "door")]
    pub(crate) fn labels(&self) -> &[(&'static str, String)] {
        &self.labels
    }

    #[cfg(feature = "door")]
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
    by_name: SortedMap<(&'static str, u64), ShowSection>,
    last: u64,
}

impl Part for Sections {}

impl Drop for Sections {
    fn drop(&mut self) {
        drop_each(self.take_all());
    }
}

impl Sections {
    /// Returns the sections of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

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
    fn take_all(&self) -> impl Iterator<Item = ShowSection> + use<> {
        std::mem::take(&mut self.0.lock().by_name).into_values()
    }

    /// Returns the names.
    #[cfg(feature = "door")]
    pub(crate) fn names(&self) -> procession_protocols::util::sorted_map::SortedSet<&'static str> {
        self.0.lock().by_name.keys().map(|(name, _)| *name).collect()
    }

    /// Reads all sections. Sections with the same name become one section.
    #[cfg_attr(not(feature = "door"), expect(dead_code, reason = "a door reads them"))]
    pub(crate) fn read(&self) -> SortedMap<&'static str, DoorSection> {
        self.read_some(|_| true)
    }

    /// Reads the section of a name. `None` if there is none.
    #[cfg_attr(not(feature = "door"), expect(dead_code, reason = "a door reads it"))]
    pub(crate) fn read_one(&self, name: &str) -> Option<DoorSection> {
        self.read_some(|other| other == name).into_values().next()
    }

    /// Reads the sections if `is_asked` accepts their names.
    fn read_some(&self, is_asked: impl Fn(&str) -> bool) -> SortedMap<&'static str, DoorSection> {
        // If its guard has gone, a section may be dropped here by its last owner. A panic of that
        // drop is not a panic of the door.
        let asked: Vec<_> = {
            let table = self.0.lock();
            let asked = table.by_name.iter().filter(|((name, _), _)| is_asked(name));
            asked.map(|((name, _), show)| (*name, DropGuarded::new(Arc::clone(show)))).collect()
        };
        let mut sections = SortedMap::<_, DoorSection>::new();
        for (name, show) in asked {
            let section = sections.get_or_default(name);
            section.is_truncated |= guarded(|| show(section)).is_err();
        }
        sections
    }
}

#[cfg(all(test, feature = "door"))]
mod tests {
    use std::sync::Arc;

    use super::{DoorSection, LABEL_BYTES_MAX, SectionRow, Sections};
    use crate::process::unwind::{drop_guarded, guarded};

    fn is_refused(write: impl FnOnce(&mut SectionRow)) -> bool {
        guarded(|| write(&mut SectionRow::default())).is_err()
    }

    #[test]
    fn names_that_no_metric_can_have_are_refused() {
        for name in ["", "a b", "A", "é", "1st", "_a", "scheduler"] {
            assert!(is_refused(|row| _ = row.label(name, 1)), "{name}");
        }
        assert!(is_refused(|row| _ = row.gauge("1st", "A figure.", 1)));
        assert!(is_refused(|row| _ = row.label("a", 1).label("a", 2)));
        assert!(is_refused(|row| _ = row.label("a", 1).counter("a", "A figure.", 2)));
        assert!(!is_refused(|row| _ = row.label("a_1", 1).counter("b", "A figure.", 2)));
    }

    #[test]
    fn a_long_label_is_cut() {
        let mut section = DoorSection::default();
        section.row("row", |row| _ = row.label("a", "b".repeat(LABEL_BYTES_MAX)));
        assert!(!section.is_truncated());
        section.row("row", |row| _ = row.label("a", "b".repeat(1 << 20)));
        assert!(section.is_truncated());
        assert_eq!(section.rows()[1].1.labels()[0].1.len(), LABEL_BYTES_MAX);
    }

    #[test]
    fn a_reader_survives_the_drop_of_a_closure_that_goes_meanwhile() {
        struct PanicsOnDrop;

        impl Drop for PanicsOnDrop {
            fn drop(&mut self) {
                panic!("the drop of a closure");
            }
        }

        let sections = Arc::new(Sections::default());
        let (own, bomb) = (Arc::downgrade(&sections), PanicsOnDrop);
        let show = move |section: &mut DoorSection| {
            let _kept = &bomb;
            section.row("row", |_| {});
            // The guard is dropped during the read, so that the reader is the last owner.
            let sections = own.upgrade().expect("it is being read");
            drop_guarded(sections.remove("short", 1));
        };
        assert_eq!(sections.add("short", Arc::new(show)), 1);
        assert_eq!(sections.read().len(), 1);
        assert!(sections.read_one("short").is_none());
    }
}
