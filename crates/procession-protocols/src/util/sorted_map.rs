//! A map and a set in the order of their keys, which are quick to compile.
//!
//! The compiler translates the generic code of a `BTreeMap`, about a thousand lines, again for each
//! type of keys and values. For the forty such types of the runtime, two fifths of its code were
//! `BTreeMap`. This map has a few short generic functions instead: it is a list of chunks, and each
//! chunk is a sorted vector.
//!
//! # Costs
//! A chunk has at most 64 entries, and 4 KiB if these are large, but room for eight entries of any
//! size. A search is two binary searches. An insertion or a removal moves the entries behind its
//! place within one chunk. About one change in half a chunk creates or removes a chunk, and moves
//! the list of chunks behind it, which has 24 bytes for each chunk. For example, a map of a million
//! small entries moves at most 0.8 MB then. Chunks that are nearly empty are joined to their
//! neighbours. A new map holds no memory.

use std::borrow::Borrow;
use std::fmt;
use std::iter::{Flatten, Map};
use std::ops::{Bound, Index, RangeBounds};
use std::vec;

#[cfg(test)]
mod tests;

/// A map in the order of its keys. The [module](self) says what its operations cost.
#[derive(Clone)]
pub struct SortedMap<K, V> {
    /// No chunk is empty, and all keys of a chunk are before the keys of the next chunk.
    chunks: Vec<Vec<(K, V)>>,
}

/// The place of an entry, or the place where an entry would be inserted.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Place {
    chunk: usize,
    index: usize,
}

impl Place {
    fn next(self) -> Self {
        Self { index: self.index + 1, ..self }
    }
}

/// Returns how many of the first numbers are `before`, of which all others are behind. Shorter to
/// compile than the same method of a slice.
fn partition(numbers: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, numbers);
    while low < high {
        let middle = usize::midpoint(low, high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<K, V> SortedMap<K, V> {
    /// The number of entries in a full chunk.
    const CHUNK: usize = match 4096_usize.checked_div(size_of::<(K, V)>()) {
        Some(few @ 8..64) => few,
        Some(0..8) => 8,
        Some(64..) | None => 64,
    };
    /// A chunk with fewer entries is joined to a neighbour, if they fit into half a chunk.
    const SPARSE: usize = Self::CHUNK / 4;

    /// Creates an empty map.
    pub const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Returns the number of entries, which takes a look at each chunk.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Returns `true` if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        drop(std::mem::take(self));
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }

    /// Returns the entries in the order of their keys.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.chunks.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// Returns the keys in their order.
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns the values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the values in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// Returns the values in the order of their keys.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    /// Returns the entry of the least key.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        let (key, value) = self.chunks.first()?.first()?;
        Some((key, value))
    }

    /// Removes the entry of the least key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        if self.chunks.is_empty() { None } else { Some(self.take(Place { chunk: 0, index: 0 })) }
    }

    /// Removes the entry of the greatest key.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let chunk = self.chunks.len().checked_sub(1)?;
        let index = self.chunks[chunk].len() - 1;
        Some(self.take(Place { chunk, index }))
    }

    /// Removes an entry that is there.
    fn take(&mut self, Place { chunk: at, index }: Place) -> (K, V) {
        let chunk = &mut self.chunks[at];
        let entry = chunk.remove(index);
        if chunk.is_empty() {
            drop(self.chunks.remove(at));
        } else if chunk.len() < Self::SPARSE {
            self.join(at);
        }
        entry
    }

    /// Joins a sparse chunk to the chunk before or behind it, if both are short enough.
    fn join(&mut self, at: usize) {
        for first in [at.wrapping_sub(1), at] {
            if let Some([chunk, next]) = self.chunks.get_mut(first..first.wrapping_add(2))
                && chunk.len() + next.len() <= Self::CHUNK / 2
            {
                chunk.append(next);
                self.chunks.remove(first + 1);
                return;
            }
        }
    }

    /// Joins the chunks that are nearly empty, and removes the empty chunks.
    fn tidy(&mut self) {
        self.chunks.retain(|chunk| !chunk.is_empty());
        self.chunks.dedup_by(|next, chunk| {
            let joins = chunk.len() + next.len() <= Self::CHUNK / 2;
            if joins {
                chunk.append(next);
            }
            joins
        });
    }

    /// Inserts an entry at the place that a search has returned.
    fn put(&mut self, Place { chunk: at, index }: Place, entry: (K, V)) -> Place {
        if self.chunks.is_empty() {
            self.chunks.reserve_exact(1);
            self.chunks.push(Vec::with_capacity(1));
        }
        let chunk = &mut self.chunks[at];
        if chunk.len() < Self::CHUNK {
            chunk.insert(index, entry);
            return Place { chunk: at, index };
        }
        // Keys that only grow fill each chunk. Elsewhere both parts have room, so that many changes
        // pass until the list of chunks changes again.
        let is_last = at + 1 == self.chunks.len();
        let middle = if is_last && index == Self::CHUNK { Self::CHUNK } else { Self::CHUNK / 2 };
        let behind = self.chunks[at].split_off(middle);
        let place = if index < middle {
            Place { chunk: at, index }
        } else {
            Place { chunk: at + 1, index: index - middle }
        };
        self.chunks.insert(at + 1, behind);
        self.chunks[place.chunk].insert(place.index, entry);
        place
    }

    fn at(&self, place: Place) -> &(K, V) {
        &self.chunks[place.chunk][place.index]
    }

    fn at_mut(&mut self, place: Place) -> &mut V {
        &mut self.chunks[place.chunk][place.index].1
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns the place of a key, or where it would be inserted.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        // The last chunk that does not begin behind the key.
        let begins = |chunk: usize| self.chunks[chunk][0].0.borrow() <= key;
        let chunk = partition(self.chunks.len(), begins).saturating_sub(1);
        let Some(entries) = self.chunks.get(chunk) else { return Err(Place { chunk, index: 0 }) };
        let index = partition(entries.len(), |index| entries[index].0.borrow() < key);
        let is_found = entries.get(index).is_some_and(|(other, _)| other.borrow() == key);
        if is_found { Ok(Place { chunk, index }) } else { Err(Place { chunk, index }) }
    }

    /// Returns `true` if there is an entry of this key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Returns the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// Returns the entry of a key.
    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.at(self.find(key).ok()?);
        Some((key, value))
    }

    /// Returns the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| self.at_mut(place))
    }

    /// Inserts an entry. Returns the value that the key had before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(place) => Some(std::mem::replace(self.at_mut(place), value)),
            Err(place) => {
                self.put(place, (key, value));
                None
            }
        }
    }

    /// Removes the entry of a key, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| self.take(place).1)
    }

    /// Returns the value of a key, which is made first if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.find(&key) {
            Ok(place) => place,
            Err(place) => self.put(place, (key, make())),
        };
        self.at_mut(place)
    }

    /// Returns the value of a key, which is the default one if there is none.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Returns the entries of a range of keys.
    pub fn range(&self, keys: impl RangeBounds<K>) -> Entries<'_, K, V> {
        let (Ok(before) | Err(before)) = match keys.start_bound() {
            Bound::Unbounded => Err(Place { chunk: 0, index: 0 }),
            Bound::Included(first) => self.find(first),
            Bound::Excluded(before) => self.find(before).map(Place::next),
        };
        let (Ok(end) | Err(end)) = match keys.end_bound() {
            Bound::Unbounded => Err(Place { chunk: self.chunks.len(), index: 0 }),
            Bound::Included(last) => self.find(last).map(Place::next),
            Bound::Excluded(end) => self.find(end),
        };
        Entries { chunks: &self.chunks, next: before, end }
    }

    /// Returns the entries from a key on.
    pub fn range_mut<'a, Q: Ord + ?Sized>(
        &'a mut self,
        first: &Q,
    ) -> impl Iterator<Item = (&'a K, &'a mut V)> + use<'a, Q, K, V>
    where
        K: Borrow<Q>,
    {
        let (Ok(Place { chunk, index }) | Err(Place { chunk, index })) = self.find(first);
        let entries = self.chunks[chunk..].iter_mut().flatten().skip(index);
        entries.map(|(key, value)| (&*key, value))
    }

    /// Keeps the entries that are `wanted`.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) {
        let map = Tidied(self);
        for chunk in &mut map.0.chunks {
            chunk.retain_mut(|(key, value)| wanted(key, value));
        }
    }

    /// Removes the entries that are `wanted`, and returns them.
    pub fn take_if(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) -> Vec<(K, V)> {
        let mut taken = Vec::new();
        let map = Tidied(self);
        for chunk in &mut map.0.chunks {
            taken.extend(chunk.extract_if(.., |(key, value)| wanted(key, value)));
        }
        taken
    }

    /// Moves all entries of another map into this one.
    pub fn append(&mut self, other: &mut Self) {
        self.extend(std::mem::take(other));
    }
}

/// A map that is tidied when this is dropped, because a closure that panics leaves empty chunks.
struct Tidied<'a, K, V>(&'a mut SortedMap<K, V>);

impl<K, V> Drop for Tidied<'_, K, V> {
    fn drop(&mut self) {
        self.0.tidy();
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q: Ord + ?Sized, K: Borrow<Q> + Ord, V> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    /// Returns the value of a key.
    ///
    /// # Panics
    /// The key has no value.
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key has a value")
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = Flatten<vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.chunks.into_iter().flatten()
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Entries<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        let end = Place { chunk: self.chunks.len(), index: 0 };
        Entries { chunks: &self.chunks, next: Place { chunk: 0, index: 0 }, end }
    }
}

/// The keys of some entries.
pub type Keys<'a, K, V> = Map<Entries<'a, K, V>, fn((&'a K, &'a V)) -> &'a K>;

/// Entries of a map in the order of their keys.
pub struct Entries<'a, K, V> {
    chunks: &'a [Vec<(K, V)>],
    next: Place,
    end: Place,
}

impl<'a, K, V> Iterator for Entries<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.end {
            if let Some((key, value)) = self.chunks[self.next.chunk].get(self.next.index) {
                self.next.index += 1;
                return Some((key, value));
            }
            self.next = Place { chunk: self.next.chunk + 1, index: 0 };
        }
        None
    }
}

impl<K, V> fmt::Debug for Entries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

/// A set in the order of its keys. The [module](self) says what its operations cost.
#[derive(Clone)]
pub struct SortedSet<K>(SortedMap<K, ()>);

impl<K> SortedSet<K> {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self(SortedMap::new())
    }

    /// Returns the number of keys, which takes a look at each chunk.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the keys in their order.
    pub fn iter(&self) -> Keys<'_, K, ()> {
        self.0.keys()
    }

    /// Returns the least key.
    pub fn first(&self) -> Option<&K> {
        self.0.first_key_value().map(|(key, ())| key)
    }

    /// Removes the least key.
    pub fn pop_first(&mut self) -> Option<K> {
        self.0.pop_first().map(|(key, ())| key)
    }

    /// Removes the greatest key.
    pub fn pop_last(&mut self) -> Option<K> {
        self.0.pop_last().map(|(key, ())| key)
    }
}

impl<K: Ord> SortedSet<K> {
    /// Returns `true` if the set has this key.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Inserts a key. Returns `false` if the set has it already.
    pub fn insert(&mut self, key: K) -> bool {
        match self.0.find(&key) {
            Ok(_) => false,
            Err(place) => {
                self.0.put(place, (key, ()));
                true
            }
        }
    }

    /// Removes a key. Returns `false` if the set does not have it.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.remove(key).is_some()
    }

    /// Returns the keys of a range.
    pub fn range(&self, keys: impl RangeBounds<K>) -> Keys<'_, K, ()> {
        self.0.range(keys).map(|(key, ())| key)
    }

    /// Keeps the keys that are `wanted`.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K) -> bool) {
        self.0.retain(|key, ()| wanted(key));
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug> fmt::Debug for SortedSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<K> IntoIterator for SortedSet<K> {
    type Item = K;
    type IntoIter = Map<<SortedMap<K, ()> as IntoIterator>::IntoIter, fn((K, ())) -> K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(key, ())| key)
    }
}

impl<'a, K> IntoIterator for &'a SortedSet<K> {
    type Item = &'a K;
    type IntoIter = Keys<'a, K, ()>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord> Extend<K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        self.0.extend(keys.into_iter().map(|key| (key, ())));
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key, ())).collect())
    }
}
