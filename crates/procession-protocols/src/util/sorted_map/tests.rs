//! Random operations, beside a `BTreeMap`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::{SortedMap, SortedSet};

const CHUNK: usize = SortedMap::<u64, u64>::CHUNK;

/// Numbers that differ from run to run of a loop, and not from run to run of the tests.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

fn check(map: &SortedMap<u64, u64>, expected: &BTreeMap<u64, u64>) {
    assert!(map.chunks.iter().all(|chunk| (1..=CHUNK).contains(&chunk.len())));
    assert!(map.iter().eq(expected));
    assert!(map.keys().eq(expected.keys()));
    assert_eq!(map.len(), expected.len());
    assert_eq!(map.is_empty(), expected.is_empty());
    assert_eq!(map.first_key_value(), expected.first_key_value());
}

#[test]
fn does_what_a_b_tree_does() {
    for (seed, keys) in [(1, 3), (2, 70), (3, 1000), (4, 4000)] {
        let mut numbers = Numbers(seed);
        let (mut map, mut expected) = (SortedMap::new(), BTreeMap::new());
        for step in 0..20_000_u64 {
            let key = numbers.below(keys);
            // Grows and shrinks in turns.
            let grows = (step / 5000).is_multiple_of(2);
            match numbers.below(if grows { 6 } else { 9 }) {
                0..=2 => assert_eq!(map.insert(key, step), expected.insert(key, step)),
                3 => assert_eq!(
                    map.get_or_insert_with(key, || step),
                    expected.entry(key).or_insert_with(|| step)
                ),
                4 => assert_eq!(map.get(&key), expected.get(&key)),
                5 => assert_eq!(map.get_key_value(&key), expected.get_key_value(&key)),
                6 => assert_eq!(map.pop_first(), expected.pop_first()),
                7 => assert_eq!(map.pop_last(), expected.pop_last()),
                _ => assert_eq!(map.remove(&key), expected.remove(&key)),
            }
            if let Some(value) = map.get_mut(&key) {
                *value += 1;
                *expected.get_mut(&key).expect("it is in both") += 1;
            }
            assert_eq!(map.contains_key(&key), expected.contains_key(&key));
            if step % 97 == 0 {
                check(&map, &expected);
                let end = key + numbers.below(keys);
                assert!(map.range(key..end).eq(expected.range(key..end)));
                assert!(map.range(key..=end).eq(expected.range(key..=end)));
                assert!(map.range(..=end).eq(expected.range(..=end)));
                assert!(map.range(key..).eq(expected.range(key..)));
                assert!(map.range_mut(&key).eq(expected.range_mut(key..)));
                let behind = (Bound::Excluded(key), Bound::Unbounded);
                assert!(map.range(behind).eq(expected.range(behind)));
            }
        }
        let (taken, left): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|(key, _)| key % 2 == 1);
        expected = left.into_iter().collect();
        assert_eq!(map.take_if(|key, _| key % 2 == 1), taken);
        check(&map, &expected);
        map.retain(|key, _| key % 3 == 0);
        expected.retain(|key, _| key % 3 == 0);
        check(&map, &expected);
        let (mut more, mut also) = (SortedMap::new(), BTreeMap::new());
        more.extend(taken.iter().copied());
        also.extend(taken);
        map.append(&mut more);
        expected.append(&mut also);
        check(&map, &expected);
        assert!(more.is_empty());
        assert!(map.clone().into_iter().eq(expected.clone()));
        assert!(map.values().eq(expected.values()));
        map.clear();
        check(&map, &BTreeMap::new());
    }
}

#[test]
fn keys_that_grow_fill_their_chunks() {
    let map: SortedMap<_, _> = (0..CHUNK * 10).map(|key| (key, ())).collect();
    assert_eq!(map.chunks.len(), 10);
}

#[test]
fn changes_between_full_chunks_seldom_change_the_list_of_chunks() {
    let mut map: SortedMap<_, _> = (0..CHUNK * 10).map(|key| (key * 2, ())).collect();
    let between = CHUNK * 10 - 1;
    let before = map.chunks.len();
    for _ in 0..100 {
        map.insert(between, ());
        assert_eq!(map.chunks.len(), before + 1);
        map.remove(&between);
        assert_eq!(map.chunks.len(), before + 1);
    }
}

#[test]
fn chunks_that_are_nearly_empty_are_joined() {
    let mut map: SortedMap<_, _> = (0..CHUNK * 100).map(|key| (key, ())).collect();
    for key in (0..CHUNK * 100).filter(|key| key % CHUNK != 0) {
        map.remove(&key);
    }
    assert_eq!(map.len(), 100);
    assert!(map.chunks.len() <= 20, "{} chunks", map.chunks.len());
    let mut map: SortedMap<_, _> = (0..CHUNK * 100).map(|key| (key, ())).collect();
    map.retain(|key, ()| key.is_multiple_of(CHUNK));
    assert_eq!(map.len(), 100);
    assert!(map.chunks.len() <= 4, "{} chunks", map.chunks.len());
}

#[test]
fn large_entries_have_short_chunks() {
    assert_eq!(CHUNK, 64);
    assert_eq!(SortedMap::<u64, [u64; 31]>::CHUNK, 16);
    assert_eq!(SortedMap::<u64, [u64; 1000]>::CHUNK, 8);
    let mut map: SortedMap<_, _> = (0..100).map(|key| (key, [key; 1000])).collect();
    map.retain(|key, _| key % 3 == 0);
    assert!(map.keys().copied().eq((0..100).filter(|key| key % 3 == 0)));
    assert_eq!(map[&99][999], 99);
}

#[test]
fn a_closure_that_panics_leaves_a_map_that_works() {
    for takes in [false, true] {
        let mut map: SortedMap<_, _> = (0..CHUNK * 3).map(|key| (key, ())).collect();
        let wanted = |key: &usize, (): &mut ()| {
            assert!(*key < CHUNK * 2, "as planned");
            takes
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if takes { drop(map.take_if(wanted)) } else { map.retain(wanted) }
        }));
        result.expect_err("the closure panics");
        assert!(map.keys().copied().eq(CHUNK * 2..CHUNK * 3));
        assert!(map.contains_key(&(CHUNK * 2)) && !map.contains_key(&0));
    }
}

#[test]
fn a_set_is_ordered_and_has_each_key_once() {
    let (mut set, mut expected) = (SortedSet::new(), BTreeSet::new());
    let mut numbers = Numbers(5);
    for _ in 0..2000 {
        let key = numbers.below(500);
        assert_eq!(set.insert(key), expected.insert(key));
        let other = numbers.below(500);
        assert_eq!(set.remove(&other), expected.remove(&other));
        assert_eq!(set.contains(&other), expected.contains(&other));
    }
    assert!(set.iter().eq(&expected));
    assert_eq!(set.len(), expected.len());
    assert!(set.range(100..200).eq(expected.range(100..200)));
    set.retain(|key| key % 2 == 0);
    expected.retain(|key| key % 2 == 0);
    assert_eq!(set.first(), expected.first());
    assert_eq!(set.pop_first(), expected.pop_first());
    assert_eq!(set.pop_last(), expected.pop_last());
    assert!(set.into_iter().eq(expected));
}
