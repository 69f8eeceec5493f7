//! The closures that async processes show themselves by.

use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::process::inspection::Inspection;

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
