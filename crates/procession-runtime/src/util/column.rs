//! A number for each slot of a table, kept outside of the table.

use std::sync::OnceLock;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

/// The number of entries that are allocated together: 32 KiB.
const PIECE: usize = 4096;

/// A piece, made when one of its entries is first set.
type Piece = OnceLock<Box<[AtomicU64]>>;

/// A number for each slot of a table, 0 at first. It takes memory only near slots that were
/// ever set. Numbers stand for themselves: nothing is published with them.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pieces: OnceLock<Box<[Piece]>>,
}

impl Column {
    /// Returns the number of a slot.
    pub(crate) fn get(&self, index: u32) -> u64 {
        let piece = self.pieces.get().and_then(|pieces| pieces.get(index as usize / PIECE)?.get());
        // Relaxed: the number stands for itself.
        piece.map_or(0, |piece| piece[index as usize % PIECE].load(Relaxed))
    }

    /// Returns `true` if some number was ever set.
    pub(crate) fn is_set(&self) -> bool {
        self.pieces.get().is_some()
    }

    /// Sets the number of a slot of a table that has at most `slots`.
    pub(crate) fn set(&self, index: u32, slots: u32, number: u64) {
        // Relaxed: as in `get`.
        self.entry(index, slots).store(number, Relaxed);
    }

    /// Sets the number of a slot to 0.
    pub(crate) fn clear(&self, index: u32) {
        if let Some(piece) =
            self.pieces.get().and_then(|pieces| pieces.get(index as usize / PIECE)?.get())
        {
            // Relaxed: as in `get`.
            piece[index as usize % PIECE].store(0, Relaxed);
        }
    }

    /// Returns the entry of a slot of a table that has at most `slots`.
    pub(crate) fn entry(&self, index: u32, slots: u32) -> &AtomicU64 {
        let pieces = self
            .pieces
            .get_or_init(|| (0..(slots as usize).div_ceil(PIECE)).map(|_| Piece::new()).collect());
        let make = || (0..PIECE).map(|_| AtomicU64::new(0)).collect();
        let piece = pieces[index as usize / PIECE].get_or_init(make);
        &piece[index as usize % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, PIECE};

    #[test]
    fn a_number_is_0_until_it_is_set() {
        let column = Column::default();
        let slots = 2 * PIECE as u32 + 1;
        assert_eq!(column.get(7), 0);
        column.set(7, slots, 1);
        column.set(slots - 1, slots, 2);
        let set: Vec<_> =
            (0..slots + 1).map(|index| (index, column.get(index))).filter(|at| at.1 > 0).collect();
        assert_eq!(set, [(7, 1), (slots - 1, 2)]);
    }
}
