//! Typical mistakes, with the messages that the compiler prints for them.
//!
//! `docs/FIRST_ERRORS.md` and `mistakes.md` have the programs and the messages. Each program must
//! not compile, and the compiler must print the lines of its message, in their order, perhaps with
//! more around them. The programs are compiled with the library that was built for this test, so
//! they cost no further build.
//!
//! If the block of a program names a feature, as in `rust,without=serve`, the program is tried only
//! if the library was built without that feature. `.ci/run features` tries these programs: it sets
//! [`BARE`], so that the test takes the library that `cargo check --no-default-features` has left
//! beside it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The features that programs name, with an item of each.
const FEATURES: &[(&str, bool, &str)] = &[
    ("look", cfg!(feature = "look"), "observe::View"),
    ("macros", cfg!(feature = "macros"), "main"),
    ("serve", cfg!(feature = "serve"), "http::Server"),
    ("signal", cfg!(feature = "signal"), "signal"),
    ("supervision", cfg!(feature = "supervision"), "supervisor"),
    ("tokio", cfg!(feature = "tokio"), "io::compat"),
];

/// The variable of the environment that asks for a library without features.
const BARE: &str = "MISTAKES_WITHOUT_FEATURES";

/// Returns `true` if the library has a feature for which this test was built with `enabled`.
fn is_on(enabled: bool) -> bool {
    enabled && env::var_os(BARE).is_none()
}

/// A mistake of the document.
struct Mistake {
    title: String,
    conditions: String,
    program: String,
    message: String,
}

impl Mistake {
    /// Returns `true` if the library has, or lacks, the features that the program names.
    fn is_tried(&self) -> bool {
        self.conditions.split(',').skip(1).all(|condition| {
            let (verb, feature) = condition.split_once('=').expect("it names a feature");
            let named = FEATURES.iter().find(|(name, ..)| *name == feature);
            is_on(named.expect("it is a feature").1) == (verb == "with")
        })
    }
}

/// Reads the headings of the third level, each with its first two blocks.
fn mistakes() -> Vec<Mistake> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["../../docs/FIRST_ERRORS.md", "tests/mistakes.md"]
        .map(|page| fs::read_to_string(folder.join(page)).expect("the document is here"));
    pages
        .iter()
        .flat_map(|text| text.split("\n### ").skip(1))
        .map(|section| {
            let mut parts = section.split("```");
            let title = parts.next().unwrap_or_default().lines().next().unwrap_or_default();
            let program = parts.next().expect("a program");
            let message = parts.nth(1).expect("a message");
            let (conditions, program) = program.split_once('\n').expect("it has lines");
            Mistake {
                title: title.to_owned(),
                conditions: conditions.to_owned(),
                program: program.to_owned(),
                message: message.strip_prefix("text\n").expect("it is a text").to_owned(),
            }
        })
        .collect()
}

/// Compiles a program with `library`. Returns whether that succeeded, and what was printed.
fn compile(library: &Path, program: &str) -> (bool, String) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("mistake.rs");
    fs::write(&source, program).expect("it can be written");
    let mut extern_ = std::ffi::OsString::from("procession=");
    extern_.push(library);
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        // The library was compiled there, so the compiler finds its source, and shows it.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["--edition", "2024", "--emit", "metadata", "--out-dir"])
        .arg(&folder)
        .arg("-L")
        .arg(library.parent().expect("it is in a folder"))
        .arg("--extern")
        .arg(extern_)
        .arg(&source)
        .output()
        .expect("the compiler runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the latest build of the library with the features that are on.
fn library() -> PathBuf {
    let extension = if env::var_os(BARE).is_some() { ".rmeta" } else { ".rlib" };
    let test = env::current_exe().expect("a test knows itself");
    let folder = test.parent().expect("it is in a folder");
    let mut builds: Vec<_> = fs::read_dir(folder)
        .expect("it can be listed")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libprocession-") && name.ends_with(extension)
        })
        .collect();
    builds.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    let uses = |library: &Path, item: &str| {
        compile(library, &format!("use procession::{item} as _;\nfn main() {{}}")).0
    };
    let has_features = |library: &PathBuf| {
        uses(library, "spawn")
            && FEATURES.iter().all(|(_, enabled, item)| uses(library, item) == is_on(*enabled))
    };
    builds.into_iter().rev().find(has_features).expect("the library is beside the test")
}

#[test]
fn each_mistake_has_a_message_that_says_what_to_do() {
    let library = library();
    let (mut tried, mut wrong) = (0, String::new());
    for mistake in mistakes().iter().filter(|mistake| mistake.is_tried()) {
        tried += 1;
        let (compiled, printed) = compile(&library, &mistake.program);
        let mut lines = printed.lines();
        let wanted = mistake.message.lines().map(str::trim).filter(|line| !line.is_empty());
        let missing = wanted.into_iter().find(|wanted| !lines.any(|line| line.contains(wanted)));
        if compiled || missing.is_some() {
            wrong += &format!("{}: {missing:?} is not in\n{printed}\n", mistake.title);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(tried >= 20, "only {tried} mistakes are in the document");
}
