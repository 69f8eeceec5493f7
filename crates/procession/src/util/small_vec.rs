//! Some things, most often one.

use std::collections::VecDeque;
use std::fmt;
use std::iter;

/// Things in the order in which they came, of which the first needs no memory of its own.
pub(crate) struct Few<T> {
    first: Option<T>,
    more: VecDeque<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: VecDeque::new() }
    }
}

impl<T> Few<T> {
    #[inline]
    pub(crate) fn push(&mut self, thing: T) {
        if self.is_empty() {
            self.first = Some(thing);
        } else {
            self.more.push_back(thing);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// The first of them.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.first.take().or_else(|| self.more.pop_front())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        drop(self.first.take_if(|first| !keep(first)));
        self.more.retain(keep);
    }

    /// Gives the memory back, if it is for more than `kept` things beside the first, of which there are none.
    #[inline]
    pub(crate) fn shrink(&mut self, kept: usize) {
        if self.more.is_empty() && self.more.capacity() > kept {
            self.more = VecDeque::new();
        }
    }

    /// Hands them out, one by one: moving them as a whole, even if there are none, waits for the stores that have just made them.
    #[inline]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<'_, T> {
        iter::from_fn(|| self.pop())
    }
}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.first).entries(&self.more).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn they_keep_their_order_whoever_leaves() {
        let mut few = Few::default();
        for thing in 0..6 {
            few.push(thing);
        }
        assert_eq!(few.pop(), Some(0));
        few.push(6);
        few.retain(|thing| thing % 2 == 0);
        assert_eq!((few.len(), format!("{few:?}")), (3, String::from("[2, 4, 6]")));
        few.shrink(0);
        assert!(few.drain().eq([2, 4, 6]), "only what is empty gives its memory back");
        few.shrink(0);
        few.push(7);
        few.retain(|_| false);
        assert!(few.is_empty());
    }
}
