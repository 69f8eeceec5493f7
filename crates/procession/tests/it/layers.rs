//! The layers of the crate: which rooms may import which, that state never imports verbs, and that
//! no two types share a name.
//!
//! The test reads the source, as `seams.rs` of `procession-sync` does. It understands `use`
//! statements and paths that begin with `crate::`, and leaves out the code of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The state that refers to itself in a circle: a slot names its scheduler, the scheduler has the
/// table of slots and the seats of workers, and the handler of a command gets a completion, which
/// names a slot. All other modules are free of import cycles.
const KERNEL: &[&str] = &[
    "machine::completion",
    "machine::registry",
    "process::body",
    "process::slot",
    "process::slot_ref",
    "process::table",
    "scheduler::core",
    "scheduler::root",
    "scheduler::seat",
    "scheduler::shared",
];

/// Small cycles between neighbours in one room.
const NEIGHBOURS: &[&[&str]] = &[&["net::options", "net::tcp", "net::udp"]];

/// The rooms that each room may import besides itself. `io` and `sys` may not import `net`, and
/// only the public face imports `http`, `os_process`, `stream` or `supervisor`.
const ROOMS: &[(&str, &str)] = &[
    ("behaviour", "mailbox relations scheduler time"),
    ("bridge", "process scheduler sys"),
    ("coroutine", "io mailbox spawn process relations scheduler sys time variance"),
    ("door", "mailbox net observe process recorder relations report scheduler sys time util"),
    ("fs", "coroutine pool scheduler"),
    ("group", "mailbox process relations scheduler spawn sync util"),
    ("http", "net process scheduler spawn sync sys time"),
    ("io", "process scheduler stdio sys time util"),
    ("machine", "mailbox process relations scheduler sys time util variance"),
    ("mailbox", "machine observe process relations scheduler sys time util variance"),
    ("missing_features", "http scheduler"),
    ("net", "coroutine io pool process scheduler sys time"),
    ("observe", "mailbox process recorder relations report scheduler sync sys time util watchdog"),
    ("os_process", "coroutine fs net pool process scheduler sys time"),
    ("pool", "coroutine observe process scheduler spawn sync sys time util"),
    ("process", "machine mailbox relations scheduler time util variance"),
    ("recorder", "observe process report scheduler sys time util"),
    ("relations", "mailbox process scheduler util variance"),
    ("report", "observe process recorder relations scheduler sys time util"),
    (
        "scheduler",
        "bridge coroutine door io machine mailbox observe process recorder relations report spawn sys time util watchdog",
    ),
    ("serialize", "mailbox observe process recorder relations time watchdog"),
    ("signal", "observe process recorder scheduler sync sys time"),
    ("spawn", "coroutine machine mailbox observe process relations scheduler time util variance"),
    ("stdio", "coroutine fs pool process scheduler"),
    ("stream", "fs group mailbox net process scheduler signal sync time"),
    (
        "supervisor",
        "behaviour coroutine machine mailbox process relations report scheduler spawn sys time util variance",
    ),
    ("sync", "process scheduler time util"),
    ("sys", "io scheduler util"),
    ("testing", "observe process report scheduler time"),
    ("time", "process scheduler sync sys util"),
    ("util", ""),
    ("variance", ""),
    ("watchdog", "io observe process recorder scheduler sys util"),
];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the modules of the crate with their source, without comments and without tests.
fn modules() -> BTreeMap<String, String> {
    fn read(folder: &Path, prefix: &str, modules: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("the source is here") {
            let path = entry.expect("the source is here").path();
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .expect("names are plain")
                .to_owned();
            let module = if prefix.is_empty() { name.clone() } else { format!("{prefix}::{name}") };
            if path.is_dir() {
                read(&path, &module, modules);
            } else if !["lib", "api", "models", "tests"].contains(&name.as_str()) {
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
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut modules);
    modules
}

/// Returns the paths of a tree such as `a::{b, c::{d, e}}` at the beginning of `text`.
fn paths(text: &str) -> Vec<String> {
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

fn imports() -> Graph {
    let modules = modules();
    let resolve = |path: &str| {
        let mut path = path.trim_end_matches(':');
        loop {
            if modules.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let mut graph = Graph::new();
    for (module, code) in &modules {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let mut found = BTreeSet::new();
        for (marker, prefix) in
            [("crate::", ""), ("use super::", parent), ("use self::", module.as_str())]
        {
            for (at, _) in code.match_indices(marker) {
                let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                if code[..at].chars().next_back().is_some_and(is_word) {
                    continue;
                }
                for path in paths(&code[at + marker.len()..]) {
                    let whole = if prefix.is_empty() { path } else { format!("{prefix}::{path}") };
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
        let new = graph[module].iter().map(String::as_str).filter(|&other| reached.insert(other));
        next.extend(new);
    }
    reached
}

#[test]
fn no_modules_import_each_other_but_those_of_the_kernel() {
    let graph = imports();
    assert!(graph.len() > 100, "the source was found: {} modules", graph.len());
    let reached: BTreeMap<_, _> =
        graph.keys().map(|module| (module.as_str(), reach(&graph, module))).collect();
    let mut cycles = BTreeSet::new();
    for (module, others) in &reached {
        if others.contains(module) {
            cycles.insert(
                others
                    .iter()
                    .copied()
                    .filter(|other| reached[other].contains(module))
                    .collect::<Vec<_>>(),
            );
        }
    }
    let mut known: BTreeSet<_> = NEIGHBOURS.iter().map(|cycle| cycle.to_vec()).collect();
    known.insert(KERNEL.to_vec());
    assert_eq!(cycles, known, "the cycles of imports, and those that are known");
}

#[test]
fn rooms_import_only_what_they_may() {
    let room = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ROOMS.iter().map(|(room, others)| (*room, others.split_whitespace().collect())).collect();
    let mut wrong = BTreeSet::new();
    for (module, others) in imports() {
        let from = room(&module);
        let may = allowed.get(from.as_str()).unwrap_or_else(|| panic!("{from} is in no layer"));
        wrong.extend(
            others
                .iter()
                .map(|other| (module.clone(), room(other)))
                .filter(|(_, to)| *to != from && !may.contains(to.as_str())),
        );
    }
    assert!(wrong.is_empty(), "these imports are not allowed: {wrong:?}");
}

#[test]
fn the_reader_of_imports_knows_groups() {
    assert_eq!(paths("a::b::C;"), ["a::b::C"]);
    assert_eq!(paths("a::{b, c::{D, self}, e};"), ["a::b", "a::c::D", "a::c::self", "a::e"]);
}

/// The names that several types of the crate have, each with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Builder", "public: each module has one thing to build"),
    ("Child", "public: a process here and one of the system, as in std; and a supervisor's"),
    ("Command", "public: of a state machine, and of the system, as in std"),
    ("Context", "public: that of a coroutine extends that of a process"),
    ("Permit", "public: a reserved place, in a channel or in a pool"),
    ("Receiver", "public: one for each kind of channel, as in tokio"),
    ("Recv", "public: the receive of a mailbox and that of a broadcast channel"),
    ("RecvError", "public: one for each kind of channel, as in tokio"),
    ("Scope", "public: of jobs of a pool, which may borrow, and of processes, which own"),
    ("SendError", "public: a mailbox's, a channel's and a broadcast's, as in std and tokio"),
    ("Sender", "public: one for each kind of channel, as in tokio"),
    ("Server", "public: of calls and casts, as in OTP, and of HTTP"),
    (
        "Signal",
        "public: a listener to signals of the system; and OTP's word for what processes send",
    ),
    ("Timer", "public: `http::Timer` implements the trait of that name of hyper"),
    ("TryRecvError", "public: that of a broadcast channel also tells of a lag, as in tokio"),
    ("WeakSender", "public: of a channel and of a broadcast channel, as in tokio"),
];

/// Returns the name of the type that the line defines. An indented `type` belongs to a trait.
fn defined_type(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => code.strip_prefix("pub ").unwrap_or(code),
    };
    let code = code.strip_prefix("unsafe ").unwrap_or(code);
    let (keyword, rest) = code.split_once(' ')?;
    let defines = matches!(keyword, "struct" | "enum" | "trait" | "union")
        || (keyword == "type" && !line.starts_with(' '));
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    (defines && end > 0).then(|| &rest[..end])
}

#[test]
fn no_two_types_have_one_name() {
    let modules = modules();
    let mut defined = BTreeMap::<&str, Vec<&str>>::new();
    for (module, code) in &modules {
        for name in code.lines().filter_map(defined_type) {
            defined.entry(name).or_default().push(module);
        }
    }
    assert!(defined.len() > 400, "the types were found: {}", defined.len());
    defined.retain(|_, places| places.len() > 1);
    let known: Vec<_> = SHARED_NAMES.iter().map(|&(name, _)| name).collect();
    let shared: Vec<_> = defined.keys().copied().collect();
    assert_eq!(shared, known, "the names that types share, and the list: {defined:?}");
}

#[test]
fn the_reader_of_types_knows_visibilities() {
    assert_eq!(defined_type("pub(crate) struct Slot {"), Some("Slot"));
    assert_eq!(defined_type("    enum Next<T> {"), Some("Next"));
    assert_eq!(defined_type("pub unsafe trait Body {"), Some("Body"));
    assert_eq!(defined_type("type Hook = Arc<dyn Fn()>;"), Some("Hook"));
    assert_eq!(defined_type("    type Output = T;"), None);
    assert_eq!(defined_type("let structure = enumeration;"), None);
}

/// The modules with unsafe code. `ARCHITECTURE.md` lists them by room.
const ISLANDS: &[&str] = &[
    "coroutine",
    "coroutine::blocking",
    "coroutine::body",
    "coroutine::foreign",
    "coroutine::frame",
    "coroutine::migratable",
    "net::credentials",
    "pool::scope",
    "process::async_body",
    "process::join_waker",
    "process::kind",
    "process::life",
    "process::local_body",
    "process::route",
    "process::slot",
    "process::table",
    "process::typed",
    "process::wake",
    "process::waker",
    "scheduler::builder",
    "scheduler::core",
    "scheduler::current",
    "scheduler::run",
    "signal::relay",
    "sync::mutex",
    "sync::rw_lock",
    "sys::at_exit",
    "sys::cycles",
    "sys::poll",
    "sys::read_buf",
    "sys::thread_clock",
    "sys::thread_stack",
    "sys::unwind_tables",
    "time::timers",
    "time::timers::slot",
    "util::biased_lock",
    "util::exclusive",
    "util::prefetch",
    "util::shares",
    "util::twin",
];

#[test]
fn unsafe_code_is_in_the_islands_and_nowhere_else() {
    let is_unsafe = |code: &str| {
        ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|begin| code.contains(begin))
    };
    let found: Vec<_> = modules()
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
