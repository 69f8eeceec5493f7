//! The layers of the runtime: which rooms may import which, that state never imports verbs, and
//! that no two types share a name.
//!
//! The test reads the source, as `seams.rs` of `procession-sync` does. The tests of the layers of
//! other crates share the reader, [`imports`].

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use imports::{circles, forbidden, imports, modules, paths};

/// The source of the runtime.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../procession-runtime/src");

/// The sources of the crates around the runtime. The public face has their items, too.
const CRATES_AROUND: &[&str] = &[concat!(env!("CARGO_MANIFEST_DIR"), "/../procession-http/src")];

/// The state that refers to itself in a circle: the scheduler has parts, and knows the threads that
/// wait for it, and all of these name the scheduler.
const KERNEL: &[&str] = &["scheduler::part", "scheduler::root", "scheduler::shared"];

/// Small cycles between neighbours in one room. All other modules are free of import cycles.
const NEIGHBOURS: &[&[&str]] =
    &[&["net::options", "net::tcp", "net::udp"], &["process::body", "process::slot"]];

/// The rooms that each room may import besides itself. The rooms of the kernel import no guest, and
/// only the public face imports `inner`, `os_process`, `stream` or `supervisor`.
const ROOMS: &[(&str, &str)] = &[
    ("assembly", "bridge door observe process recorder report scheduler watchdog"),
    ("behaviour", "mailbox relations scheduler time"),
    ("bridge", "process scheduler sys util"),
    ("coroutine", "process reactor relations scheduler sys time"),
    ("door", "mailbox net observe process recorder relations report scheduler sys time watchdog"),
    ("fs", "coroutine pool scheduler sys"),
    ("group", "mailbox process relations scheduler spawn sync util"),
    ("inner", "net process scheduler sys time"),
    ("io", "process scheduler stdio time"),
    ("machine", "mailbox process relations scheduler sys time util"),
    ("mailbox", "machine process relations scheduler sys time util"),
    ("missing_features", "pool"),
    ("net", "coroutine pool process reactor scheduler sys time"),
    ("observe", "mailbox process recorder relations report scheduler sync sys time util"),
    ("os_process", "coroutine net pool scheduler sys time"),
    ("pool", "coroutine observe process scheduler spawn sys time util"),
    ("process", "machine mailbox relations scheduler sys time util"),
    ("reactor", "process scheduler sys"),
    ("recorder", "observe process scheduler sys time util"),
    ("relations", "mailbox process scheduler"),
    ("report", "observe process recorder relations scheduler sys time util"),
    ("scheduler", "machine mailbox process relations sys time util"),
    ("serialize", "mailbox observe process recorder relations scheduler time"),
    ("signal", "observe process recorder scheduler sync sys time"),
    ("spawn", "coroutine machine mailbox process relations scheduler time"),
    ("stdio", "coroutine fs pool process scheduler"),
    ("stream", "fs group mailbox net process signal sync time"),
    (
        "supervisor",
        "behaviour coroutine machine mailbox process relations report scheduler sys time util",
    ),
    ("sync", "process scheduler time util"),
    ("sys", "util"),
    ("testing", "observe process report scheduler time"),
    ("time", "process scheduler sys util"),
    ("util", ""),
    ("variance", ""),
    ("watchdog", "observe process recorder scheduler sys"),
];

/// The rooms of the kernel, which an engineer reads without the rest.
const KERNEL_ROOMS: &[&str] = &[
    "coroutine",
    "machine",
    "mailbox",
    "process",
    "reactor",
    "relations",
    "scheduler",
    "spawn",
    "sync",
    "sys",
    "time",
    "util",
    "variance",
];

/// The rooms of the guests: what is built around the kernel.
const GUEST_ROOMS: &[&str] = &[
    "assembly",
    "behaviour",
    "bridge",
    "door",
    "fs",
    "group",
    "inner",
    "io",
    "missing_features",
    "net",
    "observe",
    "os_process",
    "pool",
    "recorder",
    "report",
    "serialize",
    "signal",
    "stdio",
    "stream",
    "supervisor",
    "testing",
    "watchdog",
];

/// The crates that only guests use.
const GUEST_CRATES: &[&str] = &["hyper", "hyper_util", "metrics", "rustls", "serde", "tokio"];

#[test]
fn no_modules_import_each_other_but_those_of_the_kernel() {
    let graph = imports(SOURCE);
    assert!(graph.len() > 100, "the source was found: {} modules", graph.len());
    let mut known: BTreeSet<_> = NEIGHBOURS.iter().map(|cycle| cycle.to_vec()).collect();
    known.insert(KERNEL.to_vec());
    assert_eq!(circles(&graph), known, "the cycles of imports, and those that are known");
}

#[test]
fn rooms_import_only_what_they_may() {
    let wrong = forbidden(&imports(SOURCE), ROOMS);
    assert!(wrong.is_empty(), "these imports are not allowed: {wrong:?}");
}

/// The kernel is complete without its guests. They learn what they must not miss through
/// `scheduler/part.rs`.
#[test]
fn the_kernel_names_no_guest() {
    let room = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let (modules, graph) = (modules(SOURCE), imports(SOURCE));
    let known: BTreeSet<_> =
        KERNEL_ROOMS.iter().chain(GUEST_ROOMS).map(|&room| room.to_owned()).collect();
    let found: BTreeSet<_> = modules.keys().map(|module| room(module)).collect();
    assert_eq!(found, known, "the rooms, and those that are listed as kernel and as guests");
    let is_kernel = |module: &str| KERNEL_ROOMS.contains(&room(module).as_str());
    let mut wrong = BTreeSet::new();
    for (module, code) in modules.iter().filter(|(module, _)| is_kernel(module)) {
        let guests = graph[module].iter().filter(|other| !is_kernel(other));
        wrong.extend(guests.map(|guest| format!("{module} imports {guest}")));
        for name in GUEST_CRATES {
            let path = format!("{name}::");
            let begins = |at: usize| {
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
            };
            if code.match_indices(&path).any(|(at, _)| begins(at)) {
                wrong.insert(format!("{module} uses the crate {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "the kernel names its guests: {wrong:#?}");
}

/// The crates of the project, each with the crates of the project that it may use.
const CRATES: &[(&str, &str)] = &[
    ("procession", "http macros runtime"),
    ("procession-cli", "procession cluster lua sync trial"),
    ("procession-cluster", "procession sync"),
    ("procession-coroutine", "sync"),
    ("procession-hook", "procession sync"),
    ("procession-http", "runtime sync"),
    ("procession-lua", "procession cluster sim sync"),
    ("procession-macros", ""),
    ("procession-protocols", "queue sync"),
    ("procession-queue", "sync"),
    ("procession-runtime", "coroutine macros protocols queue sync"),
    ("procession-sim", "procession sync"),
    ("procession-sim-attribute", ""),
    ("procession-sync", ""),
    ("procession-trial", "procession sync"),
];

#[test]
fn crates_use_only_what_they_may() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the crates are here") {
        let path = entry.expect("the crates are here").path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let (_, after) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
        let used: Vec<_> = after
            .lines()
            .take_while(|line| !line.starts_with('['))
            .filter(|line| line.starts_with("procession"))
            .filter_map(|line| line.split(['.', ' ']).next())
            .map(|name| name.trim_start_matches("procession-"))
            .collect();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        found.insert(name, used.join(" "));
    }
    let known: BTreeMap<_, _> =
        CRATES.iter().map(|&(name, used)| (name.to_owned(), used.to_owned())).collect();
    assert_eq!(found, known, "the crates that each crate uses, and those that it may use");
}

/// A crate around the runtime sees no more of it than its public items and the module `inner`. The
/// face has no code: it only shows a reader which crate an item is in.
#[test]
fn the_public_face_has_no_code() {
    let face = modules(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let is_code = |line: &&str| {
        ["fn ", "impl", "struct ", "enum ", "trait ", "macro_rules"]
            .iter()
            .any(|word| line.trim_start().trim_start_matches("pub ").starts_with(word))
    };
    let code: Vec<_> = face.values().flat_map(|code| code.lines()).filter(is_code).collect();
    assert!(!face.is_empty() && code.is_empty(), "the public face has code: {code:?}");
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
    ("Scope", "public: of jobs of a pool, which may borrow, and of processes, which own"),
    ("SendError", "public: a mailbox's and a channel's, as in std and tokio"),
    ("Sender", "public: one for each kind of channel, as in tokio"),
    ("Server", "public: of calls and casts, as in OTP, and of HTTP"),
    (
        "Signal",
        "public: a listener to signals of the system; and OTP's word for what processes send",
    ),
    ("Timer", "public: `http::Timer` implements the trait of that name of hyper"),
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
    let mut modules = modules(SOURCE);
    let around = CRATES_AROUND.iter().flat_map(|source| self::modules(source));
    modules.extend(around.map(|(module, code)| (format!("around::{module}"), code)));
    // One of `sys/linux` and `sys/portable` is compiled. Both have the same items.
    modules.retain(|module, _| !module.starts_with("sys::portable::"));
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
    "coroutine::migratable",
    "net::read_buf",
    "pool::scope",
    "process::async_body",
    "process::kind",
    "process::life",
    "process::local_body",
    "process::slot",
    "process::slot_ref",
    "process::table",
    "process::typed",
    "process::wake",
    "process::waker",
    "scheduler::builder",
    "scheduler::core",
    "scheduler::current",
    "scheduler::frame",
    "scheduler::run",
    "signal::relay",
    "sync::mutex",
    "sync::rw_lock",
    "sys::at_exit",
    "sys::cycles",
    "sys::linux::peer",
    "sys::linux::poll",
    "sys::linux::tcp",
    "sys::linux::thread_clock",
    "sys::own_process",
    "sys::portable::peer",
    "sys::portable::poll",
    "sys::portable::program",
    "sys::thread_stack",
    "sys::unwind_tables",
    "util::exclusive",
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
