//! What a thread of a weak processor knows.

/// The number of atomics of which old values are kept at a time.
pub(super) const SLOTS: usize = 64;

/// Chooses among as many values as it is called with. 0 is the usual choice.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(u32) -> u32;

/// What a thread knows, or what one thread tells another by a store.
///
/// An order between two threads exists as far as the view of one was joined to the view of the
/// other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// By slot: the stamp of the oldest value that may still be read. Stamps only grow, so the
    /// stamp of an atomic that had the slot before has no effect.
    seen: Vec<u64>,
    /// By thread: the last of its periods that is known. The thread ends a period each time that
    /// it may tell others what it has done.
    periods: Vec<u32>,
}

/// Raises each number of the first list to the number in the second.
fn raise<N: Copy + Default + Ord>(own: &mut Vec<N>, other: &[N]) {
    if own.len() < other.len() {
        own.resize(other.len(), N::default());
    }
    for (own, &other) in own.iter_mut().zip(other) {
        *own = (*own).max(other);
    }
}

/// Returns `true` if no number of the second list is larger than the number in the first.
fn includes<N: Copy + Default + Ord>(own: &[N], other: &[N]) -> bool {
    let number = |at| own.get(at).copied().unwrap_or_default();
    other.iter().enumerate().all(|(at, &other)| other <= number(at))
}

impl View {
    /// Returns the stamp of the oldest value that may be read of the atomic with this slot.
    pub(super) fn seen(&self, slot: usize) -> u64 {
        self.seen.get(slot).copied().unwrap_or(0)
    }

    /// Notes that older values than this one may not be read any more.
    pub(super) fn see(&mut self, slot: usize, stamp: u64) {
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, 0);
        }
        self.seen[slot] = self.seen[slot].max(stamp);
    }

    /// Returns the last period of a thread that is known.
    pub(super) fn period(&self, thread: usize) -> u32 {
        self.periods.get(thread).copied().unwrap_or(0)
    }

    /// Begins the next period of a thread.
    pub(super) fn begin_period(&mut self, thread: usize) {
        if self.periods.len() <= thread {
            self.periods.resize(thread + 1, 0);
        }
        self.periods[thread] += 1;
    }

    pub(super) fn includes(&self, other: &Self) -> bool {
        includes(&self.seen, &other.seen) && includes(&self.periods, &other.periods)
    }

    pub(super) fn join(&mut self, other: &Self) {
        raise(&mut self.seen, &other.seen);
        raise(&mut self.periods, &other.periods);
    }

    /// Joins what values another view has seen, and no order.
    pub(super) fn join_seen(&mut self, other: &Self) {
        raise(&mut self.seen, &other.seen);
    }
}
