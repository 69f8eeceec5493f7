//! Wrong uses of the attributes: the compiler's message, and the place that it names.
//!
//! Each program is compiled with the crate of the attributes that was built for this test. It needs
//! nothing else, because the errors come before any path is resolved.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each use, with the place of the error, as line and column, and its message.
const MISUSES: &[(&str, &str, &str)] = &[
    (
        "#[main]\nfn main() {}",
        "2:1",
        "`#[procession::main]` is for functions of the form `async fn`",
    ),
    (
        "#[test]\nstruct Test;\nfn main() {}",
        "2:1",
        "`#[procession::testing::test]` is for functions of the form `async fn`",
    ),
    (
        "#[test]\npub const async fn name() {}\nfn main() {}",
        "2:5",
        "`#[procession::testing::test]` is for functions of the form `async fn`",
    ),
    (
        "#[main]\nasync fn main(arguments: u32) {}",
        "2:14",
        "a function with `#[procession::main]` has no parameters",
    ),
    (
        "#[test]\nasync fn name<T>() {}\nfn main() {}",
        "2:10",
        "a function with `#[procession::testing::test]` cannot be generic",
    ),
    (
        "#[test]\nasync fn name() -> u32 where u32: Copy { 1 }\nfn main() {}",
        "2:24",
        "a function with `#[procession::testing::test]` has no `where` clause",
    ),
    (
        "trait Trait {\n#[test]\nasync fn name();\n}\nfn main() {}",
        "3:10",
        "the function has no body",
    ),
    (
        "#[test]\n#[core::prelude::v1::test]\nasync fn name() {}\nfn main() {}",
        "2:2",
        "the function has two attributes that make a test: remove one",
    ),
    (
        "#[test(seed = 1, seed = 2)]\nasync fn name() {}\nfn main() {}",
        "1:18",
        "`seed` is given twice",
    ),
    (
        "#[main(worker_threads(2))]\nasync fn main() {}",
        "1:8",
        "an option has the form `name`, `name = value` or `unsafe(name)`; for a method with several \
         parameters, use the builder",
    ),
    (
        "#[main(on_exit = drop::<Vec<u8>, u8>)]\nasync fn main() {}",
        "1:34",
        "an option has the form `name`, `name = value` or `unsafe(name)`; a value with commas needs \
         parentheses",
    ),
    (
        "#[main(worker_threads =)]\nasync fn main() {}",
        "1:8",
        "an option has the form `name`, `name = value` or `unsafe(name)`",
    ),
    (
        "#[main(\"tokio\")]\nasync fn main() {}",
        "1:8",
        "an option has the form `name`, `name = value` or `unsafe(name)`",
    ),
    ("#[main(tokio,,)]\nasync fn main() {}", "1:8", "an option is missing before a comma"),
    (
        "#[main(run_until_signal)]\nasync fn main() {}",
        "1:8",
        "`run_until_signal` needs a value, as in `run_until_signal = value`",
    ),
    (
        "#[main(crate)]\nasync fn main() {}",
        "1:8",
        "`crate` takes the path of procession, as in `crate = path`",
    ),
];

/// Returns the library of this crate that was built last.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a test knows itself");
    let folder = test.parent().expect("it is in a folder");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libprocession_macros-") && name.ends_with(env::consts::DLL_SUFFIX)
    };
    fs::read_dir(folder)
        .expect("it can be listed")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(is_library)
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
        .expect("the library is beside the test")
}

/// Compiles a program, and returns the errors of the compiler.
fn errors(library: &Path, folder: &Path, name: &str, program: &str) -> String {
    let source = folder.join(name);
    fs::write(&source, program).expect("it can be written");
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--emit", "metadata", "--error-format", "short", "--out-dir"])
        .arg(folder)
        .arg("--extern")
        .arg(format!("attributes={}", library.display()))
        .arg(&source)
        .output()
        .expect("the compiler runs");
    assert!(!output.status.success(), "it must not compile:\n{program}");
    String::from_utf8(output.stderr).expect("it is text")
}

#[test]
fn each_misuse_is_told_at_its_place() {
    let library = library();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("misuse");
    fs::create_dir_all(&folder).expect("it can be made");
    for (number, (program, place, message)) in MISUSES.iter().enumerate() {
        let name = format!("misuse_{number}.rs");
        // On the first line, so that the lines of the program are counted from the second.
        let attribute = if program.contains("#[main") { "main" } else { "test" };
        let whole = format!("use attributes::{attribute};\n{program}");
        let (line, column) = place.split_once(':').expect("a line and a column");
        let line = line.parse::<u32>().expect("it is a number") + 1;
        let expected = format!("{name}:{line}:{column}: error: {message}\n");
        let errors = errors(&library, &folder, &name, &whole);
        assert!(errors.contains(&expected), "{expected} is not in\n{errors}of\n{program}");
    }
}
