//! The memory of a simulated x86-64 machine, as its threads see it.
//!
//! Each thread has a *store buffer*: a queue of stores that the other threads do not see yet. They
//! become visible in order, one at a time. A thread sees its own stores immediately. This is the
//! model x86-TSO of Sewell, Sarkar, Owens, Nardelli and Myreen (CACM 2010).
//!
//! An atomic contains the value that was stored last. If the *visible* value of an atomic is
//! another value, this module remembers it. Atomics are named by their addresses.

use std::collections::{BTreeMap, VecDeque};

use procession_sync::simulated::Loaded;

/// The number of stores that a buffer holds. With one more, the oldest becomes visible. Processors
/// have some 50 places; a protocol with more than a few stores in a row behaves alike.
const STORES_MAX: usize = 8;

/// An atomic of which the visible value is not known to be its content.
struct Shown {
    visible: u64,
    /// The content of the atomic.
    content: u64,
    /// The number of stores in buffers.
    stores: u32,
}

/// The memory and the store buffers.
#[derive(Default)]
pub(super) struct Buffers {
    /// The buffer of each thread: addresses and values.
    buffers: Vec<VecDeque<(usize, u64)>>,
    shown: BTreeMap<usize, Shown>,
}

impl Buffers {
    /// Returns `true` if each atomic contains its visible value.
    pub(super) fn is_plain(&self) -> bool {
        self.shown.is_empty()
    }

    /// Returns the number of stores in a thread's buffer.
    pub(super) fn stores(&self, thread: usize) -> u32 {
        self.buffers.get(thread).map_or(0, |buffer| buffer.len() as u32)
    }

    /// Returns the threads with stores in their buffers, other than `thread`.
    pub(super) fn others(&self, thread: usize) -> impl Iterator<Item = usize> {
        (0..self.buffers.len()).filter(move |&other| other != thread && self.stores(other) > 0)
    }

    pub(super) fn load(&mut self, thread: usize, address: usize) -> Loaded {
        if !self.shown.contains_key(&address) {
            return Loaded::Memory;
        }
        let own = self.buffers.get(thread).into_iter().flatten().rfind(|one| one.0 == address);
        match own {
            Some(&(_, value)) => Loaded::Older(value),
            None => self.peek(address),
        }
    }

    /// Returns the visible value of an atomic.
    pub(super) fn peek(&mut self, address: usize) -> Loaded {
        let Some(shown) = self.shown.get(&address) else { return Loaded::Memory };
        let visible = shown.visible;
        if shown.stores > 0 {
            return Loaded::Older(visible);
        }
        self.shown.remove(&address);
        Loaded::Settled(visible)
    }

    /// Stores a value. `before` is the content of the atomic until now.
    pub(super) fn store(&mut self, thread: usize, address: usize, before: u64, value: u64) {
        while self.buffers.len() <= thread {
            self.buffers.push(VecDeque::new());
        }
        if self.buffers[thread].len() == STORES_MAX {
            self.reveal(thread, 1);
        }
        let new = Shown { visible: before, content: before, stores: 0 };
        let shown = self.shown.entry(address).or_insert(new);
        (shown.content, shown.stores) = (value, shown.stores + 1);
        self.buffers[thread].push_back((address, value));
    }

    /// Stores a value by a locked instruction.
    pub(super) fn exchange(&mut self, thread: usize, address: usize, value: u64) {
        self.drain(thread);
        self.written(address, value);
    }

    /// Makes the oldest stores of a thread visible.
    pub(super) fn reveal(&mut self, thread: usize, stores: u32) {
        for _ in 0..stores {
            let oldest = self.buffers.get_mut(thread).and_then(VecDeque::pop_front);
            let Some((address, value)) = oldest else { return };
            let Some(shown) = self.shown.get_mut(&address) else { continue };
            (shown.visible, shown.stores) = (value, shown.stores - 1);
            if shown.stores == 0 && shown.content == value {
                self.shown.remove(&address);
            }
        }
    }

    /// Makes all stores of a thread visible.
    pub(super) fn drain(&mut self, thread: usize) {
        self.reveal(thread, self.stores(thread));
    }

    /// Makes all stores visible.
    pub(super) fn drain_all(&mut self) {
        (0..self.buffers.len()).for_each(|thread| self.drain(thread));
    }

    /// Begins a read-modify-write. Returns the visible value, if the atomic may contain another
    /// value.
    pub(super) fn settle(&mut self, thread: usize, address: usize) -> Option<u64> {
        self.drain(thread);
        self.shown.get(&address).map(|shown| shown.visible)
    }

    /// Ends a read-modify-write, after which the atomic contains `value`.
    pub(super) fn written(&mut self, address: usize, value: u64) {
        if let Some(shown) = self.shown.get_mut(&address) {
            (shown.visible, shown.content) = (value, value);
            if shown.stores == 0 {
                self.shown.remove(&address);
            }
        }
    }

    /// Forgets an atomic that no thread uses any more.
    pub(super) fn forget(&mut self, address: usize) {
        if self.shown.remove(&address).is_some_and(|shown| shown.stores > 0) {
            for buffer in &mut self.buffers {
                buffer.retain(|one| one.0 != address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use procession_sync::simulated::Loaded;

    use super::{Buffers, STORES_MAX};

    /// The addresses of two atomics, which contain 0 at first.
    const X: usize = 8;
    const Y: usize = 16;

    #[test]
    fn a_thread_sees_its_own_stores_and_others_do_not_yet() {
        let mut memory = Buffers::default();
        memory.store(0, X, 0, 1);
        memory.store(0, X, 1, 2);
        assert_eq!(memory.load(0, X), Loaded::Older(2));
        assert_eq!(memory.load(1, X), Loaded::Older(0));
        memory.reveal(0, 1);
        assert_eq!(memory.load(1, X), Loaded::Older(1));
        memory.drain(0);
        assert!(memory.is_plain());
        assert_eq!(memory.load(1, X), Loaded::Memory);
    }

    #[test]
    fn stores_become_visible_in_order_and_the_oldest_of_too_many_does() {
        let mut memory = Buffers::default();
        memory.store(0, X, 0, 1);
        for value in 1..=STORES_MAX as u64 {
            memory.store(0, Y, value - 1, value);
        }
        assert_eq!(memory.stores(0), STORES_MAX as u32);
        assert_eq!((memory.load(1, X), memory.load(1, Y)), (Loaded::Memory, Loaded::Older(0)));
        memory.reveal(0, 2);
        assert_eq!(memory.load(1, Y), Loaded::Older(2));
    }

    /// The store that becomes visible last wins, even if it was made first.
    #[test]
    fn the_last_store_to_become_visible_stays() {
        let mut memory = Buffers::default();
        memory.store(0, X, 0, 1);
        memory.store(1, X, 1, 2);
        memory.drain(1);
        memory.drain(0);
        assert_eq!(memory.load(2, X), Loaded::Settled(1));
        assert_eq!(memory.load(2, X), Loaded::Memory);
    }

    #[test]
    fn a_read_modify_write_makes_own_stores_visible_and_acts_on_what_is_visible() {
        let mut memory = Buffers::default();
        memory.store(0, X, 0, 1);
        memory.store(1, Y, 0, 5);
        assert_eq!(memory.settle(1, X), Some(0));
        assert_eq!(memory.load(0, Y), Loaded::Memory);
        memory.written(X, 10);
        assert_eq!((memory.load(0, X), memory.load(1, X)), (Loaded::Older(1), Loaded::Older(10)));
        memory.drain(0);
        assert_eq!(memory.load(1, X), Loaded::Settled(1));
    }

    #[test]
    fn nothing_is_left_of_an_atomic_that_is_dropped() {
        let mut memory = Buffers::default();
        memory.store(0, X, 0, 1);
        memory.store(0, Y, 0, 1);
        memory.forget(X);
        // A new atomic at the same address.
        assert_eq!(memory.load(1, X), Loaded::Memory);
        memory.drain_all();
        assert!(memory.is_plain());
    }
}
