//! The times since which processes wait.
//!
//! A process reads no clock when it waits. The first look that finds it in a wait, of the watchdog
//! or of the program, stores the time for its slot. A later look finds the same wait by the
//! generation of the slot and the number of steps. So a time is always a lower bound, which is
//! exact to the interval of the looks. The watchdog visits [`VISITS`] slots at each of its looks,
//! one after the other, and [`VISITS_QUIET`] if no worker runs.

use procession_protocols::process::state::ProcessPhase;

use crate::process::slot::Slot;
use crate::scheduler::shared::ProcessIndex;

/// The number of slots that the watchdog visits at a look while a worker runs: 25 600 in a second.
pub(crate) const VISITS: u32 = 64;
/// The number of slots that the watchdog visits at a look while no worker runs.
pub(crate) const VISITS_QUIET: u32 = 4096;
/// Nanoseconds in the unit of a stamp. 32 bits of this unit are a year.
const TICK: u64 = 8_000_000;

/// Tells the wait of a step that blocks from other waits, in a mark.
const BLOCKED_BIT: u32 = 1 << 31;

/// A wait of a process, and when it was first seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WaitStamp {
    /// Mixed from the generation and the number of steps. Two waits of one slot have the same mark
    /// once in 2^32 times.
    mark: u32,
    tick: u32,
}

impl WaitStamp {
    fn from_bits(bits: u64) -> Self {
        Self { mark: (bits >> 32) as u32, tick: bits as u32 }
    }

    fn bits(self) -> u64 {
        u64::from(self.mark) << 32 | u64::from(self.tick)
    }

    /// Returns the nanoseconds since the stamp at least.
    fn age(self, now: u64) -> u64 {
        let ticks = ((now / TICK) as u32).wrapping_sub(self.tick);
        // A stamp is rounded up, so it can be later than now.
        if ticks > u32::MAX / 2 { 0 } else { u64::from(ticks) * TICK }
    }
}

impl ProcessIndex {
    /// Returns for how many nanoseconds a process has waited at least, and leaves a stamp if there
    /// is none. Returns `None` if it does not wait. The slot need not be pinned.
    pub(crate) fn stamp(&self, slot: &Slot, now: u64) -> Option<u64> {
        let phases = [ProcessPhase::Blocked, ProcessPhase::Idle];
        let mark = || {
            let (generation, wait) = self.wait_number(slot, &phases)?;
            let wait = wait as u32 ^ ((wait >> 1) as u32 & BLOCKED_BIT);
            Some((generation.wrapping_mul(0x9e37_79b1) ^ wait).max(1))
        };
        let before = mark()?;
        if mark() != Some(before) {
            return Some(0);
        }
        let stamps = &self.stamps;
        let stamp = WaitStamp::from_bits(stamps.get(slot.index()));
        if stamp.mark == before {
            return Some(stamp.age(now));
        }
        let stamp = WaitStamp { mark: before, tick: now.div_ceil(TICK) as u32 };
        stamps.set(slot.index(), self.table.limit(), stamp.bits());
        Some(0)
    }

    /// Visits `count` slots, beginning at `cursor` and going on with the first behind the last, or
    /// all if there are fewer. Calls `visit` with each process that waits, and the nanoseconds for
    /// which it has waited at least. Returns where the next visit begins.
    pub(crate) fn stamp_some(
        &self,
        cursor: u32,
        count: u32,
        now: u64,
        mut visit: impl FnMut(&Slot, u64),
    ) -> u32 {
        let used = self.table.used();
        let begin = if cursor < used { cursor } else { 0 };
        let count = count.min(used);
        let end = used.min(begin.saturating_add(count));
        let again = count - (end - begin);
        for slot in (begin..end).chain(0..again).filter_map(|index| self.table.slot(index)) {
            if let Some(age) = self.stamp(slot, now) {
                visit(slot, age);
            }
        }
        if again > 0 { again } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::{TICK, WaitStamp};

    #[test]
    fn an_age_is_a_lower_bound() {
        for (stamped, now) in [(0, 0), (1, TICK), (TICK, TICK + 1), (5 * TICK + 1, 9 * TICK)] {
            let stamp = WaitStamp { mark: 1, tick: u64::div_ceil(stamped, TICK) as u32 };
            let age = WaitStamp::from_bits(stamp.bits()).age(now);
            assert!(
                age <= now - stamped && now - stamped <= age + 2 * TICK,
                "{stamped} {now} {age}"
            );
        }
    }

    #[test]
    fn an_age_outlives_the_range_of_the_ticks() {
        let stamp = WaitStamp { mark: 1, tick: u32::MAX };
        assert_eq!(stamp.age((u64::from(u32::MAX) + 3) * TICK), 3 * TICK);
    }
}
