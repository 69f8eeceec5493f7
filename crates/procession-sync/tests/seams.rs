//! Goal: code cannot use a primitive that models do not see. Method: read every source file of the
//! workspace, and search it for the names that only `procession-sync` may use.
#![cfg(not(procession_loom))]

use std::fs;
use std::path::{Path, PathBuf};

/// Each name, with the files that may use it. Files are given by the end of their path, and folders
/// by a part of the path that ends with a slash.
const SEAMS: [(&str, &[&str]); 11] = [
    (
        "std::sync::atomic",
        &["procession-sync/src/lib.rs", "procession-sync/src/simulated/atomic.rs"],
    ),
    ("core::sync::atomic", &[]),
    (
        "std::cell::UnsafeCell",
        &[
            "procession-sync/src/cell/plain.rs",
            "procession-sync/src/simulated/cell.rs",
            "procession-hook/src/hooks/names.rs",
        ],
    ),
    ("std::sync::Mutex", &["procession-sync/src/lib.rs"]),
    ("std::sync::Condvar", &[]),
    ("std::sync::RwLock", &[]),
    (
        "loom::sync",
        &[
            "procession-sync/src/lib.rs",
            "procession-sync/src/mutex.rs",
            "procession-sync/src/rw_lock.rs",
        ],
    ),
    ("loom::cell", &["procession-sync/src/lib.rs"]),
    ("loom::thread", &["procession-sync/src/lib.rs"]),
    ("loom::model", &["procession-sync/src/lib.rs"]),
    ("procession_sync::host", &["procession-sim/", "procession/tests/it/simulated.rs"]),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the workspace can be read") {
        let path = entry.expect("the workspace can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn is_in(path: &str, home: &str) -> bool {
    if home.ends_with('/') { path.contains(home) } else { path.ends_with(home) }
}

/// Returns a message for each line of `source` that uses a name of [`SEAMS`] where it may not.
fn violations(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (name, homes) in SEAMS {
            if code.contains(name) && !homes.iter().any(|home| is_in(path, home)) {
                found.push(format!("{path}:{}: {name} belongs to procession-sync", number + 1));
            }
        }
    }
    found
}

#[test]
fn primitives_are_named_in_their_home_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder");
    let mut paths = Vec::new();
    sources(crates, &mut paths);
    let this_file = Path::new(file!()).file_name().expect("a file has a name");
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| path.file_name() != Some(this_file)) {
        let source = fs::read_to_string(path).expect("the workspace can be read");
        found.extend(violations(&path.to_string_lossy(), &source));
    }
    assert!(paths.len() > 5, "the workspace was found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_foreign_name_is_found() {
    assert_eq!(violations("crates/x/src/lib.rs", "use std::sync::atomic::AtomicU8;").len(), 1);
    assert_eq!(violations("crates/x/src/lib.rs", "use std::cell::UnsafeCell;").len(), 1);
    assert_eq!(
        violations("crates/x/src/lib.rs", "use procession_sync::cell::UnsafeCell;").len(),
        0
    );
    assert_eq!(
        violations("crates/procession-sim/src/lib.rs", "use procession_sync::host::Mutex;").len(),
        0
    );
    assert_eq!(violations("crates/x/src/lib.rs", "use procession_sync::host::Mutex;").len(), 1);
    assert_eq!(
        violations("crates/x/src/lib.rs", "// std::sync::atomic is not named here").len(),
        0
    );
}
