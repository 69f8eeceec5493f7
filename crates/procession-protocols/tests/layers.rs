//! The layers of the crate: which rooms may import which, that there is no circle of imports among
//! modules, and which modules have unsafe code.
//!
//! The test reads the source with the same reader as the test of `procession`.

#[path = "../../procession/tests/it/layers/imports.rs"]
mod imports;

use std::fs;
use std::path::Path;

use imports::{circles, forbidden, imports, modules};

/// The source of the crate.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// The rooms that each room may import besides itself.
const ROOMS: &[(&str, &str)] = &[
    ("io", "util"),
    ("mailbox", "util"),
    ("pool", "process scheduler sync util"),
    ("process", "util"),
    ("recorder", ""),
    ("relations", "process util"),
    ("scheduler", "process util"),
    ("signal", ""),
    ("sync", "process util"),
    ("sys", ""),
    ("time", "util"),
    ("util", ""),
    ("watchdog", "util"),
];

#[test]
fn no_modules_import_each_other() {
    let graph = imports(SOURCE);
    assert!(graph.len() > 50, "the source was found: {} modules", graph.len());
    assert!(circles(&graph).is_empty(), "the circles of imports: {:?}", circles(&graph));
}

#[test]
fn rooms_import_only_what_they_may() {
    let wrong = forbidden(&imports(SOURCE), ROOMS);
    assert!(wrong.is_empty(), "these imports are not allowed: {wrong:?}");
}

/// Because a protocol has no I/O and calls no code of the user, these are its only crates.
#[test]
fn protocols_name_no_other_crate() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let manifest = manifest.expect("the manifest is here");
    let (_, after) = manifest.split_once("[dependencies]\n").expect("there are dependencies");
    let (dependencies, _) = after.split_once("\n\n").expect("other sections follow");
    let names: Vec<_> =
        dependencies.lines().filter_map(|line| line.split(['.', ' ']).next()).collect();
    assert_eq!(names, ["procession-queue", "procession-sync", "rustix"]);
    // The fences are a system call, which no protocol sees as I/O.
    let with_system: Vec<_> = modules(SOURCE)
        .into_iter()
        .filter(|(_, code)| code.contains("rustix"))
        .map(|(m, _)| m)
        .collect();
    assert_eq!(with_system, ["util::membarrier"]);
}

/// The modules with unsafe code. `ARCHITECTURE.md` lists them by room.
const ISLANDS: &[&str] = &[
    "process::join_waker",
    "time::timers",
    "time::timers::slot",
    "util::biased_lock",
    "util::prefetch",
    "util::shares",
    "util::twin",
];

#[test]
fn unsafe_code_is_in_the_islands_and_nowhere_else() {
    let is_unsafe = |code: &str| {
        ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|begin| code.contains(begin))
    };
    let found: Vec<_> = modules(SOURCE)
        .into_iter()
        .filter(|(_, code)| is_unsafe(code))
        .map(|(module, _)| module)
        .collect();
    assert_eq!(found, ISLANDS, "the modules with unsafe code, and the list");
    let architecture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(architecture).expect("the document is here");
    let unnamed: Vec<_> = ISLANDS
        .iter()
        .filter(|island| !text.contains(&format!("`{}`", island.replace("::", "/"))))
        .collect();
    assert!(unnamed.is_empty(), "ARCHITECTURE.md does not name {unnamed:?}");
}
