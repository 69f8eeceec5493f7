//! A reader of imports, for the test of the layers of each crate: which module imports which.
//!
//! The reader understands `use` statements and paths that begin with `crate::`, and leaves out the
//! code of tests. Other crates include this file by its path. A `source` is the folder with the
//! source of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The imports of each module or room.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Files that only declare modules and the public face, and files of tests.
const LEFT_OUT: &[&str] = &["lib", "main", "api", "models", "tests"];

/// Returns the modules of a crate with their code, without comments and without tests.
pub(crate) fn modules(source: &str) -> BTreeMap<String, String> {
    fn read(folder: &Path, prefix: &str, modules: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("the source is here") {
            let path = entry.expect("the source is here").path();
            let is_rust = path.extension().is_some_and(|ending| ending == "rs");
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .expect("names are plain")
                .to_owned();
            let module = if prefix.is_empty() { name.clone() } else { format!("{prefix}::{name}") };
            if path.is_dir() {
                read(&path, &module, modules);
            } else if is_rust && !LEFT_OUT.contains(&name.as_str()) {
                let text = fs::read_to_string(&path).expect("the source is text");
                let lines = text.lines().collect::<Vec<_>>();
                let is_for_tests = |line: &str| {
                    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
                };
                // `mod tests;` may come before the code, `mod tests {` comes after it.
                let end = (0..lines.len())
                    .find(|&at| {
                        is_for_tests(lines[at])
                            && lines.get(at + 1).is_some_and(|item| !item.ends_with(';'))
                    })
                    .unwrap_or(lines.len());
                let code = lines[..end]
                    .iter()
                    .map(|line| line.split("//").next().unwrap_or(""))
                    .collect::<Vec<_>>()
                    .join("\n");
                modules.insert(module, code);
            }
        }
    }
    let mut modules = BTreeMap::new();
    read(Path::new(source), "", &mut modules);
    modules
}

/// Returns the paths of a tree such as `a::{b, c::{d, e}}` at the beginning of `text`.
pub(crate) fn paths(text: &str) -> Vec<String> {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let Some(group) = rest.strip_prefix('{') else { return vec![head.to_owned()] };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.extend(
                    paths(group[start..at].trim()).into_iter().map(|path| format!("{head}{path}")),
                );
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Returns the modules that each module imports.
pub(crate) fn imports(source: &str) -> Graph {
    let modules = modules(source);
    let resolve = |path: &str| {
        let mut path = path.trim_end_matches(':');
        loop {
            if modules.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let above = |module: &str| module.rsplit_once("::").map_or("", |(above, _)| above).to_owned();
    let mut graph = Graph::new();
    for (module, code) in &modules {
        let mut found = BTreeSet::new();
        for (marker, place) in [
            ("crate::", String::new()),
            ("use super::", above(module)),
            ("use self::", module.clone()),
        ] {
            for (at, _) in code.match_indices(marker) {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                if code[..at].chars().next_back().is_some_and(is_word) {
                    continue;
                }
                let (mut place, mut rest) = (place.clone(), &code[at + marker.len()..]);
                while let Some(higher) = rest.strip_prefix("super::") {
                    (place, rest) = (above(&place), higher);
                }
                for path in paths(rest) {
                    let whole = if place.is_empty() { path } else { format!("{place}::{path}") };
                    found.extend(resolve(&whole).filter(|other| other != module));
                }
            }
        }
        graph.insert(module.clone(), found);
    }
    graph
}

/// Returns all modules that `from` imports, directly or not.
fn reach<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let others = graph.get(module).into_iter().flatten().map(String::as_str);
        next.extend(others.filter(|&other| reached.insert(other)));
    }
    reached
}

/// Returns the circles of a graph: each is a set of modules or rooms that all import each other,
/// directly or not.
pub(crate) fn circles(graph: &Graph) -> BTreeSet<Vec<&str>> {
    let reached: BTreeMap<_, _> =
        graph.keys().map(|module| (module.as_str(), reach(graph, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let back = |other: &&&str| reached.get(*other).is_some_and(|all| all.contains(module));
        if others.contains(module) {
            circles.insert(others.iter().filter(back).copied().collect());
        }
    }
    circles
}

/// Returns the room of a module: the first part of its path.
fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

/// Returns the imports between rooms that `rooms` does not allow. `rooms` has each room with the
/// rooms that it may import besides itself.
///
/// # Panics
///
/// If a module is in none of the `rooms`.
pub(crate) fn forbidden(graph: &Graph, rooms: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        rooms.iter().map(|(room, others)| (*room, others.split_whitespace().collect())).collect();
    let mut wrong = BTreeSet::new();
    for (module, others) in graph {
        let from = room(module);
        let may = allowed.get(from).unwrap_or_else(|| panic!("{from} is in no layer"));
        wrong.extend(
            others
                .iter()
                .filter(|other| room(other) != from && !may.contains(room(other)))
                .map(|other| (module.clone(), room(other).to_owned())),
        );
    }
    wrong
}
