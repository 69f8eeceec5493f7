//! A queue that usually holds a single element.

use std::collections::VecDeque;
use std::fmt;
use std::iter;

/// Elements in the order in which they were pushed. The first one is stored inline, without an
/// allocation.
pub struct SmallVec<T> {
    first: Option<T>,
    more: VecDeque<T>,
}

impl<T> Default for SmallVec<T> {
    fn default() -> Self {
        Self { first: None, more: VecDeque::new() }
    }
}

impl<T> SmallVec<T> {
    /// Creates an empty vector with room for `count` elements.
    pub fn with_capacity(count: usize) -> Self {
        Self { first: None, more: VecDeque::with_capacity(count.saturating_sub(1)) }
    }

    /// Adds an element at the end.
    #[inline]
    pub fn push(&mut self, element: T) {
        if self.is_empty() {
            self.first = Some(element);
        } else {
            self.more.push_back(element);
        }
    }

    /// Returns `true` if the vector has no element.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// Returns the number of elements that fit without an allocation.
    #[cfg(all(test, not(procession_loom)))]
    pub fn capacity(&self) -> usize {
        1 + self.more.capacity()
    }

    /// Removes and returns the first element.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.first.take().or_else(|| self.more.pop_front())
    }

    /// Returns the elements in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    /// Removes the elements that `keep` does not want, and keeps the order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        drop(self.first.take_if(|first| !keep(first)));
        self.more.retain(keep);
    }

    /// Frees the memory for further elements if it has room for more than `kept`. Does nothing
    /// while such elements are present.
    #[inline]
    pub fn shrink(&mut self, kept: usize) {
        if self.more.is_empty() && self.more.capacity() > kept {
            self.more = VecDeque::new();
        }
    }

    /// Removes all elements, one by one. Moving the collection as a whole would have to wait for
    /// the stores that have just written it, even if it is empty.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<'_, T> {
        iter::from_fn(|| self.pop())
    }
}

impl<T: fmt::Debug> fmt::Debug for SmallVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.first).entries(&self.more).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::SmallVec;

    #[test]
    fn elements_keep_their_order_when_others_leave() {
        let mut vec = SmallVec::default();
        for thing in 0..6 {
            vec.push(thing);
        }
        assert_eq!(vec.pop(), Some(0));
        vec.push(6);
        vec.retain(|thing| thing % 2 == 0);
        assert_eq!((vec.len(), format!("{vec:?}")), (3, String::from("[2, 4, 6]")));
        vec.shrink(0);
        assert!(vec.drain().eq([2, 4, 6]), "only an empty queue frees its memory");
        vec.shrink(0);
        vec.push(7);
        vec.retain(|_| false);
        assert!(vec.is_empty());
    }
}
