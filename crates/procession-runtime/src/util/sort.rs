//! A sort that is quick to compile.
//!
//! The compiler translates a sort of the standard library again for each type and comparison,
//! which adds 20 kB to a program without optimisation each time. Here it translates one sort, of
//! places in a list, which calls the comparison through a pointer. That takes longer, so this sort
//! is for what a look, an export or a search sorts, and not for each step.

use std::cmp::Ordering;

/// Sorts a list. Equal values stay in their order.
pub(crate) fn sort<T: Ord>(values: &mut [T]) {
    sort_by(values, T::cmp);
}

/// Sorts a list by a key. Values with equal keys stay in their order.
pub(crate) fn sort_by_key<T, K: Ord>(values: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(values, |one, other| key(one).cmp(&key(other)));
}

fn sort_by<T>(values: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let places = sorted(values.len(), &|one, other| compare(&values[one], &values[other]));
    arrange(places, &mut |one, other| values.swap(one, other));
}

/// Returns the places of a list in the order of their values.
fn sorted(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<_> = (0..len).collect();
    places.sort_by(|&one, &other| compare(one, other));
    places
}

/// Moves the values of a list so that each place gets the value of the place that `places` has
/// there.
fn arrange(mut places: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for first in 0..places.len() {
        // The places of a cycle lead from one to the next, and back to the first.
        let mut place = first;
        while places[place] != first {
            let next = std::mem::replace(&mut places[place], place);
            swap(place, next);
            place = next;
        }
        places[place] = place;
    }
}

#[cfg(test)]
mod tests {
    use super::{sort, sort_by_key};

    #[test]
    fn a_list_is_sorted_as_the_standard_library_sorts_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..200 {
            let list: Vec<_> = (0..len).map(|place| (random.usize(..=len / 2), place)).collect();
            let (mut by_key, mut expected) = (list.clone(), list.clone());
            sort_by_key(&mut by_key, |value| value.0);
            expected.sort_by_key(|value| value.0);
            assert_eq!(by_key, expected, "values with equal keys stay in their order");
            let mut whole: Vec<_> = list.iter().map(|value| value.0).collect();
            sort(&mut whole);
            assert!(whole.is_sorted());
        }
    }
}
