//! The order of the levels on a worker: which level has the next turn.

use std::cell::Cell;

use super::mutation;

/// The maximum number of steps of high processes in a row while another process waits at the
/// worker. A pool bounds the overtaking of its jobs by the same number.
pub const HIGH_IN_A_ROW: u32 = 8;

/// A worker takes a batch process in this many dispatches while one waits: about as rarely as it
/// serves the queues that all workers share.
pub const BATCH_EVERY: u32 = 64;

/// The level that has the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LevelTurn {
    /// The oldest high process.
    High,
    /// The oldest batch process.
    Batch,
    /// The rings. If they have nothing, the other levels follow in their order.
    Normal,
}

/// The turns that a worker has given to the levels.
#[derive(Debug, Default)]
pub struct LevelTurns {
    /// The number of high processes that ran in a row.
    in_a_row: Cell<u32>,
    /// The number of dispatches since a batch process that waits has had a turn.
    unbatched: Cell<u32>,
}

impl LevelTurns {
    /// Decides the next turn. `high` and `batch` say whether such a process waits here, and
    /// `may_batch` whether a permit for a batch process is left.
    pub fn next(&self, high: bool, batch: bool, may_batch: bool) -> LevelTurn {
        let is_starved = self.unbatched.get() + 1 >= BATCH_EVERY
            && !mutation::is(mutation::BUILT, mutation::BATCH_WITHOUT_TURN);
        if batch && may_batch && is_starved {
            return LevelTurn::Batch;
        }
        // Not counted beyond, so that the sum above never overflows.
        let unbatched = if batch { (self.unbatched.get() + 1).min(BATCH_EVERY) } else { 0 };
        self.unbatched.set(unbatched);
        let may_go_on = self.in_a_row.get() < HIGH_IN_A_ROW
            || mutation::is(mutation::BUILT, mutation::HIGH_WITHOUT_END);
        if high && may_go_on {
            self.in_a_row.set(self.in_a_row.get().saturating_add(1));
            return LevelTurn::High;
        }
        self.in_a_row.set(0);
        LevelTurn::Normal
    }

    /// Notes that no process of these levels waits here, so that a normal process has its turn.
    pub fn rest(&self) {
        self.in_a_row.set(0);
        self.unbatched.set(0);
    }

    /// Notes that a batch process has its turn now. High processes go on with their row after it,
    /// because normal processes have had no turn.
    pub fn note_batch(&self) {
        self.unbatched.set(0);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{BATCH_EVERY, HIGH_IN_A_ROW, LevelTurn, LevelTurns};

    fn turns(high: bool, may_batch: bool, count: u32) -> Vec<LevelTurn> {
        let turns = LevelTurns::default();
        (0..5).for_each(|_| assert_ne!(turns.next(high, false, false), LevelTurn::Batch));
        (0..count)
            .map(|_| {
                let turn = turns.next(high, true, may_batch);
                if turn == LevelTurn::Batch {
                    turns.note_batch();
                }
                turn
            })
            .collect()
    }

    #[test]
    fn high_processes_that_do_not_wait_together_have_no_row() {
        let turns = LevelTurns::default();
        for _ in 0..3 * HIGH_IN_A_ROW {
            assert_eq!(turns.next(true, false, false), LevelTurn::High);
            turns.rest();
        }
    }

    fn longest_without(turns: &[LevelTurn], turn: LevelTurn) -> usize {
        turns.split(|&one| one == turn).map(<[_]>::len).max().unwrap_or_default()
    }

    #[test]
    fn no_level_waits_for_more_than_its_bound() {
        for high in [true, false] {
            let turns = turns(high, true, 10_000);
            let batch = longest_without(&turns, LevelTurn::Batch);
            assert_eq!(batch as u32, BATCH_EVERY - 1, "high: {high}");
            // A batch process may have its turn in between, wherever its count begins.
            let others = longest_without(&turns, LevelTurn::Normal);
            assert!(others as u32 <= if high { HIGH_IN_A_ROW + 1 } else { 1 }, "high: {high}");
        }
    }

    #[test]
    fn without_a_permit_batch_delays_nobody_and_keeps_its_turn() {
        let turns = turns(true, false, 1000);
        assert!(!turns.contains(&LevelTurn::Batch));
        assert_eq!(longest_without(&turns, LevelTurn::Normal) as u32, HIGH_IN_A_ROW);
        let waits = LevelTurns::default();
        assert!((0..1000).all(|_| waits.next(true, true, false) != LevelTurn::Batch));
        assert_eq!(waits.next(true, true, true), LevelTurn::Batch);
    }
}
