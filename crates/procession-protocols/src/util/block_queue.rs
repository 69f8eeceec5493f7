//! A queue that uses memory in proportion to its length.

use std::collections::VecDeque;
use std::fmt;

/// Size of a block. A queue keeps at most two blocks beyond its elements: the block that is being
/// emptied and the block that is being filled. The system would map and unmap a much larger block
/// of the allocator each time.
const BLOCK_BYTES: usize = 16 * 1024;

/// Elements in the order in which they were pushed, in blocks of the same number of elements.
///
/// Up to one block, the queue is a `VecDeque`. Beyond, no element is moved to make room for others,
/// so no push takes longer in a longer queue. A block is freed when its last element is popped.
pub struct BlockQueue<T> {
    first: VecDeque<T>,
    /// The blocks behind the first one. All but the last are full, and none is empty.
    #[expect(clippy::box_collection, reason = "small, since few queues have a second block")]
    more: Option<Box<VecDeque<VecDeque<T>>>>,
}

impl<T> BlockQueue<T> {
    /// Number of elements of a block.
    const BLOCK: usize = {
        let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
        if BLOCK_BYTES / size > 4 { BLOCK_BYTES / size } else { 4 }
    };

    /// Creates an empty queue, which allocates nothing.
    pub const fn new() -> Self {
        Self { first: VecDeque::new(), more: None }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.first.len() + self.behind()
    }

    /// Returns the number of elements behind the first block.
    fn behind(&self) -> usize {
        self.more.as_ref().map_or(0, |more| {
            more.back().map_or(0, |last| (more.len() - 1) * Self::BLOCK + last.len())
        })
    }

    /// Returns `true` if the queue has no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Adds an element at the back.
    #[inline]
    pub fn push_back(&mut self, element: T) {
        if self.more.is_none() && self.first.len() < Self::BLOCK {
            self.first.push_back(element);
        } else {
            self.push_behind(element);
        }
    }

    #[cold]
    fn push_behind(&mut self, element: T) {
        let more = self.more.get_or_insert_default();
        match more.back_mut().filter(|last| last.len() < Self::BLOCK) {
            Some(last) => last.push_back(element),
            None => {
                let mut block = VecDeque::with_capacity(Self::BLOCK);
                block.push_back(element);
                more.push_back(block);
            }
        }
    }

    /// Pushes an element in front of all others.
    pub fn push_front(&mut self, element: T) {
        self.make_room();
        self.first.push_front(element);
    }

    /// Begins a new first block if the first one is full.
    fn make_room(&mut self) {
        if self.first.len() >= Self::BLOCK {
            let full = std::mem::replace(&mut self.first, VecDeque::with_capacity(Self::BLOCK));
            self.more.get_or_insert_default().push_front(full);
        }
    }

    /// Removes the first element.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let element = self.first.pop_front();
        if self.first.is_empty() && self.more.is_some() {
            self.next_block();
        }
        element
    }

    #[cold]
    fn next_block(&mut self) {
        if let Some(more) = &mut self.more {
            self.first = more.pop_front().unwrap_or_default();
            if more.is_empty() {
                self.more = None;
            }
        }
    }

    /// Removes the first element that is `wanted`.
    pub fn remove_first(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.iter().position(wanted)?;
        self.remove(index)
    }

    /// Inserts an element in front of the element at this index. Moves elements of one block, and
    /// one element of each block in front of that one.
    pub fn insert(&mut self, index: usize, element: T) {
        self.make_room();
        let Some(behind) = index.checked_sub(self.first.len() + 1) else {
            return self.first.insert(index, element);
        };
        let more = self.more.get_or_insert_default();
        let last = behind / Self::BLOCK;
        for block in 0..=last {
            let moved = more[block].pop_front();
            let before = if block == 0 { &mut self.first } else { &mut more[block - 1] };
            before.extend(moved);
        }
        more[last].insert(behind % Self::BLOCK, element);
    }

    /// Removes the element at this index. Moves as many elements as [`insert`](Self::insert).
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let removed = match index.checked_sub(self.first.len()) {
            None => self.first.remove(index),
            Some(behind) => {
                let more = self.more.as_mut()?;
                let last = behind / Self::BLOCK;
                let removed = more.get_mut(last)?.remove(behind % Self::BLOCK);
                for block in (0..=last).rev().filter(|_| removed.is_some()) {
                    let before = if block == 0 { &mut self.first } else { &mut more[block - 1] };
                    let moved = before.pop_back();
                    moved.into_iter().for_each(|moved| more[block].push_front(moved));
                }
                removed
            }
        };
        if self.first.is_empty() {
            self.next_block();
        }
        removed
    }

    /// Returns the number of the first elements that are `before`, of which all others are behind.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let is_behind_first = self.first.back().is_some_and(&before);
        match &self.more {
            Some(more) if is_behind_first => {
                let ends_before = |block: &VecDeque<T>| block.back().is_some_and(&before);
                let blocks = more.partition_point(ends_before);
                let rest = more.get(blocks).map_or(0, |block| block.partition_point(&before));
                // All but the last block are full, and the last one has no rest if it ends before.
                let full = if blocks < more.len() { blocks * Self::BLOCK } else { self.behind() };
                self.first.len() + full + rest
            }
            _ => self.first.partition_point(before),
        }
    }

    /// Returns the first element.
    pub fn front(&self) -> Option<&T> {
        self.first.front()
    }

    /// Returns the element at this index, counted from the front.
    pub fn get(&self, index: usize) -> Option<&T> {
        let Some(behind) = index.checked_sub(self.first.len()) else {
            return self.first.get(index);
        };
        self.more.as_ref()?.get(behind / Self::BLOCK)?.get(behind % Self::BLOCK)
    }

    /// Returns the element at this index, counted from the front.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let Some(behind) = index.checked_sub(self.first.len()) else {
            return self.first.get_mut(index);
        };
        self.more.as_mut()?.get_mut(behind / Self::BLOCK)?.get_mut(behind % Self::BLOCK)
    }

    /// Returns the elements, from front to back.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter().flatten()))
    }

    /// Returns the elements, from front to back.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let more = self.more.iter_mut().flat_map(|more| more.iter_mut().flatten());
        self.first.iter_mut().chain(more)
    }
}

/// The elements of a queue, by value.
#[derive(Debug)]
pub struct IntoIter<T>(BlockQueue<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

impl<T> IntoIterator for BlockQueue<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Default for BlockQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Extend<T> for BlockQueue<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push_back(element));
    }
}

impl<T> fmt::Debug for BlockQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::BlockQueue;

    /// So large that a block has four.
    type Large = [usize; 512];

    fn blocks(queue: &BlockQueue<Large>) -> usize {
        queue.more.as_ref().map_or(0, |more| more.len())
    }

    #[test]
    fn it_does_what_a_deque_does() {
        let (mut queue, mut deque) = (BlockQueue::<Large>::new(), VecDeque::new());
        for round in 0..4000_usize {
            let element = [round; 512];
            match (round * 7919) % 11 {
                0..4 => {
                    queue.push_back(element);
                    deque.push_back(element);
                }
                4 => {
                    queue.push_front(element);
                    deque.push_front(element);
                }
                5 => {
                    let wanted = |element: &Large| element[0].is_multiple_of(5);
                    let place = deque.iter().position(wanted);
                    assert_eq!(queue.remove_first(wanted), place.and_then(|at| deque.remove(at)));
                }
                6 if round % 1000 > 500 => {
                    let index = round % (deque.len() + 1);
                    assert_eq!(queue.get(index), deque.get(index));
                    assert_eq!(queue.get_mut(index), deque.get_mut(index));
                    assert!(queue.iter().eq(deque.iter()));
                    assert!(queue.iter_mut().eq(deque.iter_mut()));
                }
                6 => {
                    let index = round % (deque.len() + 1);
                    queue.insert(index, element);
                    deque.insert(index, element);
                }
                7 if round % 3 == 0 => {
                    let index = round % (deque.len() + 1);
                    assert_eq!(queue.remove(index), deque.remove(index));
                }
                _ if round % 1000 > 500 => assert_eq!(queue.pop_front(), deque.pop_front()),
                _ => queue.extend(deque.back().copied().inspect(|&last| deque.push_back(last))),
            }
            assert_eq!((queue.len(), queue.is_empty()), (deque.len(), deque.is_empty()));
        }
        assert!(queue.into_iter().eq(deque));
    }

    #[test]
    fn the_place_of_an_element_in_an_ordered_queue_is_found() {
        for length in 0..20 {
            for popped in 0..=length {
                let mut queue = BlockQueue::<Large>::new();
                queue.extend((0..length).map(|number| [2 * number; 512]));
                (0..popped).for_each(|_| assert!(queue.pop_front().is_some()));
                for number in 0..=2 * length {
                    let place = queue.partition_point(|element| element[0] < number);
                    assert_eq!(place, number.div_ceil(2).max(popped) - popped);
                }
            }
        }
    }

    #[test]
    fn what_is_put_back_in_front_is_in_blocks_too() {
        let mut queue = BlockQueue::new();
        (0..50).for_each(|round| queue.push_front([round; 512]));
        assert_eq!((blocks(&queue), queue.first.capacity()), (12, 4));
        // The last one is found behind all others.
        assert_eq!(queue.remove_first(|element| element[0] == 0), Some([0; 512]));
        assert_eq!((queue.len(), queue.first.capacity()), (49, 4));
        while queue.pop_front().is_some() {}
        assert_eq!((blocks(&queue), queue.first.capacity()), (0, 4));
    }

    #[test]
    fn blocks_are_freed_as_they_are_emptied() {
        let mut queue = BlockQueue::new();
        for round in 0..100 {
            queue.push_back([round; 512]);
        }
        assert_eq!(blocks(&queue), 24);
        for _ in 0..50 {
            queue.pop_front();
        }
        assert_eq!(blocks(&queue), 12);
        while queue.pop_front().is_some() {}
        assert_eq!((blocks(&queue), queue.first.capacity()), (0, 4));
    }
}
