//! The floors of the crate: what has no I/O, the queue and the tables of a connection, the node,
//! the process of a connection, and what joins a cluster.

#[path = "../../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../../procession/tests/it/layers/imports.rs"]
mod imports;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &[
    "carrier chance epmd guarded term",
    "cookie pulse reason release wire",
    "handshake remote tls",
    "grants outbound remotes",
    "error",
    "letter",
    "link",
    "node",
    "connection exclusive groups serialize",
    "fuzzing joining names shards",
];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}
