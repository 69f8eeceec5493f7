//! The shared cache lines of a run: which processors have a copy, and until when each is in use.
//!
//! A processor that reads a line without a copy fetches it from the processor that wrote it last. A
//! processor that writes a line while another one has a copy fetches it, too, and takes the copies
//! away from all others. The line then *moves*, and who else wants it waits until it has come. So a
//! line that all processors write moves once for each write, however many there are.
//!
//! The request for a line travels for half of that time. Until it arrives, the processor that has
//! the line goes on with it.
//!
//! A compare-and-swap follows a read. If another processor wrote the line just before, or has it
//! already asked for, it writes in between, too: the compare-and-swap fails once.

use std::collections::{BTreeMap, HashMap};

use procession::sim::{Access, SharedLine};

use super::machine::{Machine, picoseconds};

/// The processors beyond this number count as this one.
pub(super) const PROCESSORS: u32 = 128;

/// The time in picoseconds for which a line that has moved counts as wanted by several.
const WANTED: u64 = 20_000_000;

#[derive(Clone, Copy)]
struct LineState {
    /// The processor that wrote the line last, or is about to.
    writer: u32,
    /// A bit for each processor that has a copy, the writer included.
    copies: u128,
    /// The time at which the writer has the line, and at which its lock is free.
    free_at: u64,
    /// The time at which the line moved last.
    moved_at: u64,
    /// The time at which the writer used it last.
    used_at: u64,
    /// The processor that the line leaves, and when.
    leaving: (u32, u64),
}

/// What all lines of one kind have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) transfers: u64,
    pub(super) moving: u64,
    pub(super) waiting: u64,
    /// Compare-and-swaps that another thread's write made fail.
    pub(super) failed: u64,
    /// Locks that were held.
    pub(super) contended: u64,
}

/// The lines of a run.
pub(super) struct Lines {
    machine: Machine,
    states: HashMap<SharedLine, LineState>,
    pub(super) spent: BTreeMap<&'static str, Spent>,
}

/// The result of an access.
pub(super) struct Touched {
    /// The time at which the thread goes on.
    pub(super) until: u64,
    /// The time for which the line has moved.
    pub(super) moved: u64,
}

impl Lines {
    pub(super) fn new(machine: Machine) -> Self {
        Self { machine, states: HashMap::new(), spent: BTreeMap::new() }
    }

    /// Returns `true` if the access needs no other processor, and no other has wanted the line for
    /// a while.
    pub(super) fn is_private(
        &self,
        line: SharedLine,
        access: Access,
        processor: u32,
        now: u64,
    ) -> bool {
        self.states.get(&line).is_none_or(|state| {
            state.is_own(access, processor) && now > state.moved_at.saturating_add(WANTED)
        })
    }

    /// Uses a line at `now`.
    pub(super) fn touch(
        &mut self,
        line: SharedLine,
        access: Access,
        processor: u32,
        now: u64,
    ) -> Touched {
        let hold = if access == Access::Lock { picoseconds(self.machine.hold) } else { 0 };
        let state = self.states.entry(line).or_insert_with(|| LineState::new(processor, now));
        if state.is_own(access, processor) {
            if access != Access::Read {
                (state.writer, state.used_at) = (processor, now);
                state.free_at = state.free_at.max(now + hold);
            }
            return Touched { until: now + hold, moved: 0 };
        }
        if state.leaving.0 == processor && now < state.leaving.1 && access != Access::Lock {
            return Touched { until: now, moved: 0 };
        }
        let begin = now.max(state.free_at);
        let moved = picoseconds(state.distance(&self.machine, access, processor));
        let spent = self.spent.entry(kind(line)).or_default();
        spent.transfers += 1;
        spent.moving += moved;
        spent.waiting += begin - now;
        let mut until = begin + moved;
        state.moved_at = until;
        if access == Access::Read {
            state.copies |= 1 << processor;
            return Touched { until, moved };
        }
        let is_wanted = begin > now || now < state.used_at.saturating_add(moved);
        match access {
            Access::Exchange if is_wanted => {
                spent.failed += 1;
                spent.moving += moved;
                until += moved;
            }
            Access::Lock if begin > now => spent.contended += 1,
            _ => {}
        }
        *state = LineState {
            leaving: (state.writer, begin + moved / 2),
            moved_at: until,
            ..LineState::new(processor, until + hold)
        };
        Touched { until: until + hold, moved }
    }

    /// Keeps a line in use until then.
    pub(super) fn keep(&mut self, line: SharedLine, until: u64) {
        if let Some(state) = self.states.get_mut(&line) {
            state.free_at = state.free_at.max(until);
        }
    }
}

impl LineState {
    /// Returns the state of a line that the processor uses for the first time.
    fn new(processor: u32, now: u64) -> Self {
        Self {
            writer: processor,
            copies: 1 << processor,
            free_at: now,
            moved_at: 0,
            used_at: now,
            leaving: (processor, 0),
        }
    }

    fn is_own(&self, access: Access, processor: u32) -> bool {
        let own = 1 << processor;
        if access == Access::Read { self.copies & own != 0 } else { self.copies == own }
    }

    /// Returns the time in nanoseconds that the access takes: the distance to the last writer, and
    /// for a write also to the farthest copy.
    fn distance(&self, machine: &Machine, access: Access, processor: u32) -> f64 {
        let fetch = machine.transfer(self.writer, processor);
        if access == Access::Read {
            return fetch;
        }
        let copies = (0..PROCESSORS).filter(|other| self.copies & 1 << other != 0);
        copies.map(|other| machine.transfer(other, processor)).fold(fetch, f64::max)
    }
}

/// Returns the name of a kind of lines.
fn kind(line: SharedLine) -> &'static str {
    match line {
        SharedLine::Idle => "idle word",
        SharedLine::Global => "global queue",
        SharedLine::Overflow => "overflow queue",
        SharedLine::Slots => "free slots",
        SharedLine::Deque(_) => "deques",
        SharedLine::Woken(_) => "woken rings",
        SharedLine::Continued(_) => "continued rings",
        SharedLine::LifoSlot(_) => "LIFO slots",
        SharedLine::Timers(_) => "timers",
        SharedLine::Deadline(_) => "deadlines",
        SharedLine::Process(_) | SharedLine::Birth(_) => "processes",
        SharedLine::Program(_) => "program",
        _ => "others",
    }
}
