//! The floors of the crate: what hyper needs of a runtime, TLS, and what speaks HTTP.

#[path = "../../procession/tests/it/layers/floors.rs"]
mod floors;
#[path = "../../procession/tests/it/layers/imports.rs"]
mod imports;

/// The rooms of each floor, from the ground up.
const FLOORS: &[&str] = &["error health rt trace", "tls", "client server", "missing_features"];

#[test]
fn rooms_import_only_the_floors_below() {
    floors::check(concat!(env!("CARGO_MANIFEST_DIR"), "/src"), FLOORS);
}
