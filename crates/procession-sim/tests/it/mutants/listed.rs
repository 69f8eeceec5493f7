//! Each defect that a canary of a model plants in a protocol of the scheduler is also planted in
//! the whole scheduler (`.ci/mutants`), or `DEFECTS.md` has the reason why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The headings of the tables of the document: of defects, and of modules.
const DEFECTS: &str = "| not planted | why |";
const MODULES: &str = "| module | why its defects are not planted |";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Calls `look` with the path and the text of each source file below a directory.
fn each_source(directory: &Path, look: &mut dyn FnMut(&Path, &str)) {
    let entries = fs::read_dir(directory).expect("the sources are there");
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            each_source(&path, look);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            look(&path, &read(&path));
        }
    }
}

/// Returns the text between two marks.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split_once(to)?.0)
}

/// The defects of the sources, such as `driver:4`, and the modules with defects that cannot be
/// planted.
fn defects_of_sources() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut defects, mut modules) = (BTreeSet::new(), BTreeSet::new());
    let sources = ["crates/procession-protocols/src", "crates/procession-runtime/src"];
    let mut look = |sources: &Path, path: &Path, text: &str| {
        let own = path.strip_prefix(sources).expect("it is below").display().to_string();
        let body = match own.ends_with("/mutation.rs") {
            true => text,
            false => match between(text, "mod mutation {", "\n}") {
                Some(body) => body,
                None => return,
            },
        };
        let Some(protocol) = between(body, "planted(\"", "\"") else {
            modules.insert(own);
            return;
        };
        let numbers = body.lines().filter_map(|line| {
            let number = line.trim().strip_suffix(';')?.split_once(": u8 = ")?.1;
            number.parse::<u8>().ok().filter(|&number| number > 0)
        });
        defects.extend(numbers.map(|number| format!("{protocol}:{number}")));
    };
    for sources in sources.map(|sources| root().join(sources)) {
        each_source(&sources, &mut |path, text| look(&sources, path, text));
    }
    (defects, modules)
}

/// Returns the words in backticks in the first column of a table of the document.
fn column(heading: &str) -> BTreeSet<String> {
    let text = read("crates/procession-sim/tests/it/mutants/DEFECTS.md");
    let (_, table) = text.split_once(heading).expect("the document has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn each_defect_is_planted_or_has_a_reason() {
    let (defects, modules) = defects_of_sources();
    assert!(defects.len() > 60, "the sources are read: {defects:?}");
    let script = read(".ci/mutants");
    let lists = script.split("mutants=(").skip(1).filter_map(|list| list.split_once(')'));
    let planted: BTreeSet<_> = lists
        .flat_map(|(list, _)| list.split_whitespace())
        .filter(|word| word.contains(':'))
        .map(|word| word.split('@').next().unwrap_or(word).to_owned())
        .collect();
    let excused = column(DEFECTS);
    let both: Vec<_> = planted.intersection(&excused).collect();
    assert!(both.is_empty(), "planted, although there is a reason why not: {both:?}");
    let all: BTreeSet<_> = planted.union(&excused).cloned().collect();
    let missing: Vec<_> = defects.difference(&all).collect();
    assert!(missing.is_empty(), "neither planted nor excused: {missing:?}");
    let unknown: Vec<_> = all.difference(&defects).collect();
    assert!(unknown.is_empty(), "there are no such defects: {unknown:?}");
    assert_eq!(modules, column(MODULES), "the modules with defects that are not planted");
}
