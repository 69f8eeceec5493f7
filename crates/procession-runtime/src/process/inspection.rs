//! What a process shows of itself, and the closures that async processes show themselves by.

use std::fmt;
use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::util::bounded_text::{bounded_text, cut};

/// The maximum number of fields.
const FIELDS_MAX: usize = 64;
/// The maximum length of a name in bytes.
const NAME_MAX: usize = 64;
/// The maximum length of a value in bytes.
pub(crate) const VALUE_MAX: usize = 1024;

/// The fields that a process shows of itself. See
/// [`Scheduler::inspect`](crate::Scheduler::inspect).
///
/// It has at most 64 fields, with names of at most 64 bytes and values of at most 1024 bytes. The
/// rest is cut off.
///
/// ```
/// use procession::observe::Inspection;
///
/// let mut shown = Inspection::default();
/// shown.field("balance", 120).field("owner", format_args!("{:?}", "ann"));
/// let fields: Vec<_> = shown.fields().collect();
/// assert_eq!(fields, [("balance", "120"), ("owner", "\"ann\"")]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    fields: Vec<(String, String)>,
    truncated: bool,
}

impl crate::Outcome for Inspection {}

impl Inspection {
    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        if self.fields.len() == FIELDS_MAX {
            self.truncated = true;
            return self;
        }
        let (text, is_whole) = bounded_text(value, VALUE_MAX);
        let short = cut(name, NAME_MAX);
        self.truncated |= !is_whole || short.len() < name.len();
        self.fields.push((short.to_owned(), text));
        self
    }

    /// Returns the fields, each a name and a value, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns `true` if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns `true` if something was cut off.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// A closure that shows a process.
pub(crate) type Inspector = Arc<dyn Fn(&mut Inspection) + Send + Sync>;

/// The closures of all processes, by slot and generation.
#[derive(Default)]
pub(crate) struct Inspectors(Mutex<InspectorTable>);

#[derive(Default)]
struct InspectorTable {
    /// In the order in which they were added.
    by_process: SortedMap<(u32, u32, u64), Inspector>,
    last: u64,
}

impl Inspectors {
    /// Adds a closure of a process. Returns its number.
    pub(crate) fn add(&self, slot: u32, generation: u32, inspector: Inspector) -> u64 {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.by_process.insert((slot, generation, number), inspector);
        number
    }

    /// Takes a closure out, to be dropped.
    pub(crate) fn remove(&self, slot: u32, generation: u32, number: u64) -> Option<Inspector> {
        self.0.lock().by_process.remove(&(slot, generation, number))
    }

    /// Returns the closures of a process.
    pub(crate) fn of(&self, slot: u32, generation: u32) -> Vec<Inspector> {
        let table = self.0.lock();
        let range = (slot, generation, 0)..=(slot, generation, u64::MAX);
        table.by_process.range(range).map(|(_, inspector)| Arc::clone(inspector)).collect()
    }

    /// Takes all closures out, to be dropped.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Inspector> + use<> {
        std::mem::take(&mut self.0.lock().by_process).into_values()
    }
}
