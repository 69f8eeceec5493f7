//! The floors of the crate: which rooms may import which, and that only a few modules import one
//! another.
//!
//! The test reads the source of the crate.
//!
//! - `limits`, `owner`, `account`: what a process and all processes below it may use; the program
//!   and the limits that a process belongs to; the room in its mailbox.
//! - `source`, `check`, `reference`, `lazy`, `pattern`: compiled sources; mistakes in them; the
//!   table of the functions; the tables of the library; Lua's patterns, with a bound.
//! - `permissions`, `net`, `stream`, `tls`: files and addresses that a process may use, its
//!   sockets, and their bytes.
//! - `value`, `arguments`, `entry`: values outside of Lua, and their copies; the arguments of a
//!   call; the function that a new process calls, with its bounds.
//! - `budget`, `interrupt`, `protect`: when a step ends; the hook that asks it; the call of the
//!   function of a process.
//! - `output`, `http`, `inbox`: a buffer and the thread that writes it; messages of HTTP; messages
//!   that a program has not received.
//! - `program`, `message`, `ends`: what the processes of a program have in common, with its
//!   versions; messages and how they are sent; which processes a guest may end.
//! - `cluster`: the node of a program, and values as terms.
//! - `library`, `supervisors`, `host`: the functions that never wait, supervisors, and the trait
//!   by which both start guests.
//! - `guest`: the state machine: `state`, `waits`, `operations`, `running`, `upgrade`; `start` has
//!   the methods of a program that start guests.
//! - `deployment`, `testing`, `simulation`: new versions; tests on the test clock, and in a
//!   simulation.
//!
//! Streams lie below values, because a program sends sockets in messages. A program lies below
//! messages, because a request to upgrade is a message with a program. The library needs two
//! functions of the floor above, which the trait `Host` has: a spawn, and the child of a
//! supervisor.

#[path = "../../procession/tests/it/layers/imports.rs"]
mod imports;

use std::collections::{BTreeMap, BTreeSet};

use imports::{Graph, circles, forbidden, imports};

/// The source of the crate.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// The floors from the lowest to the highest, each with its rooms, and the rooms that each of these
/// may import besides itself. A room imports only rooms of its floor and of lower floors.
const FLOORS: &[(&str, &[(&str, &str)])] = &[
    (
        "texts, sources, limits and accounts",
        &[
            ("account", "limits owner"),
            ("check", "failure reference source"),
            ("failure", ""),
            ("lazy", "source"),
            ("limits", ""),
            ("owner", "limits"),
            ("pattern", ""),
            ("reference", ""),
            ("repeatable", ""),
            ("secured", ""),
            ("source", "failure"),
            ("version", ""),
            ("watch", ""),
        ],
    ),
    (
        "permissions and streams",
        &[
            ("datagrams", "limits net permissions"),
            ("net", "account limits permissions secured stream tls"),
            ("no_tls", "account secured"),
            ("permissions", "limits"),
            ("stream", "account tls"),
            ("tls", "account secured"),
        ],
    ),
    (
        "values",
        &[
            ("arguments", "datagrams net secured value"),
            ("budget", "inbox interrupt"),
            ("entry", "failure limits permissions value"),
            ("fs", "permissions value"),
            ("groups", "arguments value"),
            ("http", "account net value"),
            ("inbox", "account value"),
            ("information", "account value"),
            ("input", "net value"),
            ("interrupt", ""),
            ("modules", "check failure permissions source version"),
            ("output", "value"),
            ("protect", "interrupt"),
            ("value", "account datagrams lazy net watch"),
        ],
    ),
    (
        "programs and their messages",
        &[
            ("cluster", "account arguments message permissions program value watch"),
            ("ends", "account owner permissions program"),
            ("json", "cluster value watch"),
            ("message", "account arguments program value"),
            ("messages", "account arguments budget message program value"),
            ("no_cluster", "arguments permissions program value"),
            (
                "program",
                "account failure limits modules output owner permissions repeatable source tls version",
            ),
        ],
    ),
    (
        "the library, over a host",
        &[
            ("host", "entry program value"),
            (
                "library",
                "account arguments budget ends entry failure groups host information interrupt json lazy message messages output pattern permissions program value watch",
            ),
            (
                "supervisors",
                "account arguments ends entry failure host limits owner permissions program value",
            ),
        ],
    ),
    (
        "guests, tests and deployments",
        &[
            ("deployment", "failure message program version"),
            ("fuzz", "account message output permissions program reference"),
            (
                "guest",
                "account arguments budget datagrams ends entry failure fs host http inbox input interrupt library limits message net output permissions program protect source supervisors value",
            ),
            ("simulation", "output repeatable testing"),
            ("testing", "failure output program repeatable"),
        ],
    ),
];

/// The modules that import one another, each with the reason.
const CIRCLES: &[(&[&str], &str)] = &[
    (&["http", "http::client", "http::server"], "both sides share the reader of messages"),
    (
        &["permissions", "permissions::addresses", "permissions::files"],
        "permissions are lists of addresses and places, which are looked up in permissions",
    ),
    (&["program", "program::versions"], "a program refers to its deployment, which has programs"),
    (&["value", "value::erlang"], "values of Lua and of Erlang contain each other"),
];

#[test]
fn rooms_import_only_rooms_of_their_own_floor_and_below() {
    let rooms: Vec<_> = FLOORS.iter().flat_map(|(_, rooms)| rooms.iter().copied()).collect();
    let imports = imports(SOURCE);
    assert!(imports.len() > 50, "the source was found: {} modules", imports.len());
    let wrong = forbidden(&imports, &rooms);
    assert!(wrong.is_empty(), "these imports are not allowed: {wrong:?}");

    let floor = |room: &str| {
        let is_there = |(_, rooms): &(_, &[(&str, &str)])| rooms.iter().any(|row| row.0 == room);
        FLOORS.iter().position(is_there).unwrap_or_else(|| panic!("{room} is on no floor"))
    };
    for (room, others) in rooms {
        for other in others.split(' ').filter(|other| !other.is_empty()) {
            assert!(floor(other) <= floor(room), "{room} may not import {other}, which is above");
        }
    }
}

#[test]
fn no_rooms_import_each_other() {
    let rooms = FLOORS.iter().flat_map(|(_, rooms)| rooms.iter());
    let others = |others: &str| others.split_whitespace().map(str::to_owned).collect();
    let graph: Graph = rooms.map(|(room, all)| ((*room).to_owned(), others(all))).collect();
    assert_eq!(circles(&graph), BTreeSet::new(), "the circles of rooms");
}

#[test]
fn no_modules_import_each_other_but_those_that_are_listed() {
    let graph = imports(SOURCE);
    let known: BTreeSet<_> = CIRCLES.iter().map(|(circle, _)| circle.to_vec()).collect();
    assert_eq!(circles(&graph), known, "the circles of modules, and those that are known");
}

/// A room that is gone, and an arrow that is gone, leave the list.
#[test]
fn the_list_of_floors_is_that_of_the_source() {
    let room = |module: &str| module.split("::").next().map(str::to_owned);
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for (module, others) in imports(SOURCE) {
        let others = others.iter().filter_map(|other| room(other));
        found.entry(room(&module)).or_default().extend(others);
    }
    for (name, others) in FLOORS.iter().flat_map(|(_, rooms)| rooms.iter()) {
        let known = found.get(&Some((*name).to_owned()));
        let known = known.unwrap_or_else(|| panic!("there is no room {name}"));
        for other in others.split_whitespace() {
            assert!(known.contains(other), "{name} does not import {other}");
        }
    }
}
