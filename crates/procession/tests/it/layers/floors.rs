//! The floors of a crate, for the test of its layers.
//!
//! Other crates include this file by its path, beside `imports.rs`, and list their floors. A crate
//! with floors has no circle: neither among its modules nor among its rooms.

use std::collections::BTreeSet;

use super::imports::{circles, forbidden, imports};

/// Checks that a room imports only rooms of the floors below its own, and that no modules import
/// each other in a circle. `floors` has the rooms of each floor, from the ground up.
pub(crate) fn check(source: &str, floors: &[&str]) {
    let graph = imports(source);
    assert_eq!(circles(&graph), BTreeSet::new(), "the circles of imports");
    let (mut rooms, mut below) = (Vec::new(), String::new());
    for floor in floors {
        rooms.extend(floor.split_whitespace().map(|room| (room, below.clone())));
        below = format!("{below} {floor}");
    }
    let is_there = |room: &str| graph.keys().any(|module| module.split("::").next() == Some(room));
    let gone: Vec<_> = rooms.iter().map(|(room, _)| *room).filter(|room| !is_there(room)).collect();
    assert!(gone.is_empty(), "these rooms are not there: {gone:?}");
    let rooms: Vec<_> = rooms.iter().map(|(room, below)| (*room, below.as_str())).collect();
    let upward = forbidden(&graph, &rooms);
    assert!(upward.is_empty(), "these imports do not go down: {upward:?}");
}
