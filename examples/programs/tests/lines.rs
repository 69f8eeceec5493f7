//! No program needs more than 120 % of the code lines of its counterpart.

use std::fs::read_to_string;
use std::path::Path;

/// Each program, and its counterpart.
const PROGRAMS: &[(&str, &str)] = &[
    ("src/bin/accounts.rs", "peers/accounts.exs"),
    ("src/bin/chat.rs", "peers/chat.rs"),
    ("src/bin/crawler.rs", "peers/crawler.rs"),
    ("src/bin/gather.rs", "peers/gather/main.go"),
    ("src/bin/index.rs", "peers/index.rs"),
    ("src/bin/jobs.rs", "peers/jobs.rs"),
    ("src/bin/notes.rs", "peers/notes.rs"),
    ("src/bin/proxy.rs", "peers/proxy.rs"),
];

/// Counts the lines that are neither blank nor a comment.
fn code_lines(name: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let comment = if name.ends_with(".exs") { "#" } else { "//" };
    let text = read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
}

#[test]
fn no_program_is_much_longer_than_its_counterpart() {
    for (program, peer) in PROGRAMS {
        let (ours, theirs) = (code_lines(program), code_lines(peer));
        println!("{program}: {ours} lines, {peer}: {theirs}");
        assert!(ours * 100 <= theirs * 120, "{program}: {ours} lines, {peer}: {theirs}");
    }
}
