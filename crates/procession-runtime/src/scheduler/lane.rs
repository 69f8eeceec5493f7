//! A ring and the queue behind it: one FIFO queue of processes of one class.
//!
//! A worker owns the ring, and thieves may take from it. The queue behind the ring has no bound,
//! and all workers share it. A process that finds no room in the ring goes to the tail of the
//! queue, and so does every later process until the worker has found the queue empty. So no process
//! overtakes a process that was queued at this worker before it. The worker refills the ring at
//! each service.
//!
//! # Rejected
//! - To move the oldest half of a full ring to the tail of the queue, as a deque does: the oldest
//!   of 300 processes waited for all 299 before it. Of 3000 that yield, some had twice the turns of
//!   others.
//! - To push into the ring again as soon as there is room: then processes in the ring take turns,
//!   and processes in the queue never find room.

use std::cell::Cell;

use procession_queue::{Full, Global, Steal, fifo};

/// The worker's side of a ring, and whether the queue behind the ring is in use.
#[derive(Debug)]
pub(crate) struct Lane<T, const CAPACITY: usize> {
    ring: fifo::Owner<T, CAPACITY>,
    overflows: Cell<bool>,
}

impl<T, const CAPACITY: usize> Lane<T, CAPACITY> {
    pub(crate) fn new() -> (Self, fifo::Stealer<T, CAPACITY>) {
        let (ring, stealer) = fifo::new();
        (Self { ring, overflows: Cell::new(false) }, stealer)
    }

    /// Queues an item behind all that this worker has queued.
    #[inline]
    pub(crate) fn push(&self, item: T, behind: &Global<T>) {
        if self.overflows.get() {
            return behind.push(item);
        }
        if let Err(Full(item)) = self.ring.push(item) {
            self.overflows.set(true);
            behind.push(item);
        }
    }

    /// Queues items like [`push`](Self::push), in their order, and leaves `items` empty.
    pub(crate) fn push_all(&self, items: &mut Vec<T>, behind: &Global<T>) {
        if !self.overflows.get() {
            let count = items.len().min(self.ring.room());
            items.drain(..count).for_each(|item| self.refill(item));
            self.overflows.set(!items.is_empty());
        }
        if !items.is_empty() {
            behind.push_all(items);
        }
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        self.ring.pop()
    }

    /// Steals half of another ring. Returns the oldest item.
    pub(crate) fn steal_half<const VICTIM: usize>(
        &self,
        victim: &fifo::Stealer<T, VICTIM>,
    ) -> Steal<T> {
        self.ring.steal_half(victim)
    }

    /// Returns the number of items for which the ring has room.
    pub(crate) fn room(&self) -> usize {
        self.ring.room()
    }

    /// Moves an item of the queue into the ring, which must have [`room`](Self::room) for it.
    pub(crate) fn refill(&self, item: T) {
        assert!(
            self.ring.push(item).is_ok(),
            "only the owner adds to a ring, and it has asked for room"
        );
    }

    /// Ends a refill: decides whether later items go to the ring or to the queue.
    pub(crate) fn note_refilled(&self, behind: &Global<T>) {
        if behind.is_empty() {
            self.overflows.set(false);
        } else if self.ring.room() == 0 {
            self.overflows.set(true);
        }
    }

    /// Sends all later items to the queue, until the worker has found it empty.
    pub(crate) fn close(&self) {
        self.overflows.set(true);
    }

    /// Returns `true` if items go to the queue and not into the ring.
    #[inline]
    pub(crate) fn overflows(&self) -> bool {
        self.overflows.get()
    }

    /// Returns the number of items in the ring.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Returns `true` if the ring is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use procession_queue::Global;

    use super::Lane;

    /// Takes as many items as the ring has room for.
    fn refill(lane: &Lane<u32, 4>, behind: &Global<u32>) {
        behind.pop_share(1, lane.room()).for_each(|item| lane.refill(item));
        lane.note_refilled(behind);
    }

    #[test]
    fn nothing_overtakes_what_the_ring_had_no_room_for() {
        let (lane, _) = Lane::<_, 4>::new();
        let behind = Global::new();
        (0..6).for_each(|item| lane.push(item, &behind));
        assert_eq!((lane.len(), behind.len()), (4, 2));
        let mut out = vec![lane.pop().expect("it is full")];
        lane.push(6, &behind);
        assert_eq!(behind.len(), 3, "there is room, but older ones wait for it");
        let mut next = 7;
        while out.len() < 40 {
            refill(&lane, &behind);
            out.extend(lane.pop());
            lane.push(next, &behind);
            next += 1;
        }
        assert!(out.iter().copied().eq(0..40), "{out:?}");
    }

    #[test]
    fn items_that_come_together_keep_their_order() {
        let (lane, _) = Lane::<_, 4>::new();
        let behind = Global::new();
        let mut next = 0;
        let mut out = Vec::new();
        for count in [0, 1, 2, 3, 7, 0, 2, 1] {
            let mut items: Vec<u32> = (next..next + count).collect();
            next += count;
            lane.push_all(&mut items, &behind);
            assert!(items.is_empty());
            out.extend(lane.pop());
            refill(&lane, &behind);
        }
        while let Some(item) = lane.pop() {
            out.push(item);
            refill(&lane, &behind);
        }
        assert!(out.iter().copied().eq(0..next), "{out:?}");
    }

    #[test]
    fn the_ring_is_used_again_once_the_queue_is_empty() {
        let (lane, _) = Lane::<_, 4>::new();
        let behind = Global::new();
        (0..5).for_each(|item| lane.push(item, &behind));
        assert!(lane.overflows());
        assert_eq!((lane.pop(), lane.pop()), (Some(0), Some(1)));
        refill(&lane, &behind);
        assert!(!lane.overflows());
        lane.push(5, &behind);
        assert_eq!((lane.len(), behind.len()), (4, 0));
        behind.push(9);
        refill(&lane, &behind);
        assert!(lane.overflows(), "what others have queued waits for room, too");
        behind.pop();
        refill(&lane, &behind);
        lane.pop();
        lane.close();
        lane.push(10, &behind);
        assert_eq!(behind.pop(), Some(10), "the ring was closed");
    }
}
