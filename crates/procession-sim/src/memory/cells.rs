//! Accesses of cells that nothing orders.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

use super::view::View;

/// An access of a cell: whether it writes, and its place in the source.
pub(crate) type CellAccess = (bool, &'static Location<'static>);

/// An access by a thread, in one of its periods.
#[derive(Clone, Copy)]
struct Access {
    thread: usize,
    period: u32,
    access: CellAccess,
}

/// The accesses of a cell that a later access may have to be ordered after.
#[derive(Default)]
struct Cell {
    write: Option<Access>,
    /// The last read of each thread since the last write.
    reads: Vec<Access>,
}

/// The cells that were accessed, by address.
#[derive(Default)]
pub(super) struct Cells(BTreeMap<usize, Cell>);

impl Cells {
    /// Notes an access. Returns an earlier one that conflicts with it, and that the thread does not
    /// know.
    pub(super) fn access(
        &mut self,
        (thread, view): (usize, &View),
        address: usize,
        access: CellAccess,
    ) -> Option<CellAccess> {
        let cell = self.0.entry(address).or_default();
        let (is_write, _) = access;
        let reads = cell.reads.iter().filter(|_| is_write);
        let unknown = cell
            .write
            .iter()
            .chain(reads)
            .find(|one| one.thread != thread && one.period > view.period(one.thread));
        let conflict = unknown.map(|one| one.access);
        let own = Access { thread, period: view.period(thread), access };
        if is_write {
            cell.reads.clear();
            cell.write = Some(own);
        } else {
            cell.reads.retain(|one| one.thread != thread);
            cell.reads.push(own);
        }
        conflict
    }

    pub(super) fn forget(&mut self, address: usize) {
        self.0.remove(&address);
    }

    pub(super) fn forget_all(&mut self, memory: &Range<usize>) {
        self.0.retain(|address, _| !memory.contains(address));
    }
}
