//! A map and a set in the order of their keys, which are quick to compile.
//!
//! A `BTreeMap` is a thousand lines of generic code, which the compiler translates for each type of
//! keys and values. With forty such maps, a third of the code of the runtime would be `BTreeMap`.
//! This map is two levels of vectors: chunks of entries, and in each a sorted run. It has a few
//! short generic functions.
//!
//! # Costs
//! A chunk has at most 64 entries. A search is two binary searches. An insertion or a
//! removal moves the entries behind its place within one chunk, and if a chunk appears or
//! disappears, which happens after some 32 changes at the earliest, also the list of chunks behind
//! it: 24 bytes for each. Chunks that are nearly empty are joined to their neighbours. A new map
//! holds no memory.

use std::borrow::Borrow;
use std::fmt;
use std::iter::{Flatten, Map};
use std::ops::{Bound, Index, RangeBounds};
use std::slice::Iter;
use std::vec;

#[cfg(test)]
mod tests;

/// The number of entries in a full chunk.
const CHUNK: usize = 64;
/// A chunk with fewer entries is joined to a neighbour, if they fit into half a chunk.
const SPARSE: usize = CHUNK / 4;

/// A map in the order of its keys. The [module](self) says what its operations cost.
#[derive(Clone)]
pub struct SortedMap<K, V> {
    /// No chunk is empty, and all keys of a chunk are before those of the next one.
    chunks: Vec<Vec<(K, V)>>,
}

/// The place of an entry, or the one where an entry would be inserted.
#[derive(Clone, Copy)]
struct Place {
    chunk: usize,
    index: usize,
}

impl<K, V> SortedMap<K, V> {
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
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        self.chunks.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// Returns the keys in their order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.chunks.iter().flatten().map(|(key, _)| key)
    }

    /// Returns the values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.chunks.iter().flatten().map(|(_, value)| value)
    }

    /// Returns the values in the order of their keys.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.chunks.iter_mut().flatten().map(|(_, value)| value)
    }

    /// Returns the values in the order of their keys.
    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
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
        match chunk.len() {
            0 => drop(self.chunks.remove(at)),
            1..SPARSE if self.chunks.len() > 1 => self.join(at),
            _ => {}
        }
        entry
    }

    /// Joins a sparse chunk to a neighbour, if both are short enough.
    fn join(&mut self, at: usize) {
        // The last one has none behind it.
        let first = at.min(self.chunks.len() - 2);
        if self.chunks[first].len() + self.chunks[first + 1].len() <= CHUNK / 2 {
            let mut second = self.chunks.remove(first + 1);
            self.chunks[first].append(&mut second);
        }
    }

    /// Inserts an entry at the place that a search has returned.
    fn put(&mut self, Place { chunk: at, index }: Place, entry: (K, V)) -> Place {
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.reserve_exact(1);
            self.chunks.push(vec![entry]);
            return Place { chunk: at, index: 0 };
        };
        if chunk.len() < CHUNK {
            chunk.insert(index, entry);
            return Place { chunk: at, index };
        }
        // Keys that only grow fill each chunk.
        let middle = if index == CHUNK { CHUNK } else { CHUNK / 2 };
        let behind = chunk.split_off(middle);
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

    /// Returns the first place whose key is not `before` what is looked for. A place at the end of
    /// a chunk is that of an insertion.
    fn partition(&self, before: impl Fn(&K) -> bool) -> Place {
        // The chunk before the first one that begins with a greater key.
        let chunk = self.chunks.partition_point(|chunk| before(&chunk[0].0)).saturating_sub(1);
        let index = self
            .chunks
            .get(chunk)
            .map_or(0, |entries| entries.partition_point(|(key, _)| before(key)));
        Place { chunk, index }
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns the place of a key, or where it would be inserted.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        let place = self.partition(|other| <K as Borrow<Q>>::borrow(other) < key);
        let found = |place: Place| {
            let entry = self.chunks.get(place.chunk).and_then(|chunk| chunk.get(place.index));
            entry.is_some_and(|(other, _)| <K as Borrow<Q>>::borrow(other) == key)
        };
        if found(place) {
            return Ok(place);
        }
        // The first key of the next chunk is not before the key, and may be equal to it.
        let next = Place { chunk: place.chunk + 1, index: 0 };
        if found(next) { Ok(next) } else { Err(place) }
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
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes the entry of a key.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|place| self.take(place))
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
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let start = match keys.start_bound() {
            Bound::Unbounded => Place { chunk: 0, index: 0 },
            Bound::Included(first) => self.partition(|key| key < first),
            Bound::Excluded(before) => self.partition(|key| key <= before),
        };
        let end = match keys.end_bound() {
            Bound::Unbounded => Place { chunk: self.chunks.len(), index: 0 },
            Bound::Included(last) => self.partition(|key| key <= last),
            Bound::Excluded(behind) => self.partition(|key| key < behind),
        };
        let chunks = self.chunks.iter().enumerate().take(end.chunk + 1).skip(start.chunk);
        let entries = chunks.flat_map(move |(at, chunk)| {
            let first = if at == start.chunk { start.index } else { 0 };
            let behind = if at == end.chunk { end.index } else { chunk.len() };
            &chunk[first..behind.max(first)]
        });
        entries.map(|(key, value)| (key, value))
    }

    /// Keeps the entries that are `wanted`.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) {
        for chunk in &mut self.chunks {
            chunk.retain_mut(|(key, value)| wanted(key, value));
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
    }

    /// Removes the entries that are `wanted`, and returns them.
    pub fn take_if(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) -> Vec<(K, V)> {
        let mut taken = Vec::new();
        for chunk in &mut self.chunks {
            taken.extend(chunk.extract_if(.., |(key, value)| wanted(key, value)));
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
        taken
    }

    /// Moves all entries of another map into this one.
    pub fn append(&mut self, other: &mut Self) {
        self.extend(std::mem::take(other));
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
    type IntoIter = Map<Flatten<Iter<'a, Vec<(K, V)>>>, fn(&'a (K, V)) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.chunks.iter().flatten().map(|(key, value)| (key, value))
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
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &K> {
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
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = &K> {
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
    type IntoIter =
        Map<<&'a SortedMap<K, ()> as IntoIterator>::IntoIter, fn((&'a K, &'a ())) -> &'a K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(key, ())| key)
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
