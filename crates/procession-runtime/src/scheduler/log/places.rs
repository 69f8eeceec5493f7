//! The places in the program where processes are spawned, by number.
//!
//! A word about the end of a process has no room for the address of its place, so the places have
//! numbers. Each worker remembers the last few that it used, and takes the lock of the table only
//! for others.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

type SpawnPlace = &'static Location<'static>;

/// The number of places that a worker remembers. If more places are in use, and their processes end
/// all the time, the worker takes a lock for some places.
const REMEMBERED: usize = 64;

/// Numbers fit into the argument of a word. 0 is no place.
const NUMBERS: usize = 1 << 24;

#[derive(Default)]
pub(crate) struct PlaceTable(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    numbers: SortedMap<usize, u32>,
    places: Vec<SpawnPlace>,
}

impl PlaceTable {
    /// Returns the number of a place, and assigns a number if the place does not have one yet.
    /// Returns 0 if all numbers are taken.
    #[cold]
    fn number(&self, place: SpawnPlace) -> u32 {
        let mut numbered = self.0.lock();
        let Numbered { numbers, places } = &mut *numbered;
        if places.len() + 1 >= NUMBERS {
            return numbers.get(&address(place)).copied().unwrap_or(0);
        }
        *numbers.get_or_insert_with(address(place), || {
            places.push(place);
            places.len() as u32
        })
    }

    /// Returns all places; the first has the number 1.
    pub(crate) fn all(&self) -> Vec<SpawnPlace> {
        self.0.lock().places.clone()
    }
}

fn address(place: SpawnPlace) -> usize {
    ptr::from_ref(place).addr()
}

/// The places that a worker used last.
pub(crate) struct PlaceCache(Box<[Cell<(usize, u32)>; REMEMBERED]>);

impl Default for PlaceCache {
    fn default() -> Self {
        Self(Box::new([const { Cell::new((0, 0)) }; REMEMBERED]))
    }
}

impl PlaceCache {
    #[inline]
    pub(crate) fn number(&self, table: &PlaceTable, place: SpawnPlace) -> u32 {
        let address = address(place);
        // Locations are aligned to words, and each takes three words.
        let remembered = &self.0[(address >> 3) % REMEMBERED];
        let (known, number) = remembered.get();
        if known == address {
            return number;
        }
        let number = table.number(place);
        remembered.set((address, number));
        number
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::{PlaceCache, PlaceTable};

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn places_keep_their_numbers() {
        let (table, one, two) =
            (PlaceTable::default(), PlaceCache::default(), PlaceCache::default());
        let places = [here(), here(), here()];
        for _ in 0..2 {
            for (at, place) in places.into_iter().enumerate() {
                assert_eq!(one.number(&table, place), at as u32 + 1);
                assert_eq!(two.number(&table, place), at as u32 + 1);
            }
        }
        assert_eq!(table.all(), places);
    }
}
