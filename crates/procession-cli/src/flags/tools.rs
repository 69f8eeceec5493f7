//! The options of the tools for programs in Lua.

use std::time::Duration;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, key, seconds};

pub(super) const FLAGS: &[Flag] = &[
    Flag::plain(
        "watch",
        "upgrade or restart the program when its files change",
        &[Command::Run],
        |parsed| parsed.run.watch = true,
    ),
    Flag::value(
        "seed",
        "N",
        "choose the order of processes and the random numbers by N (0)",
        &[Command::Test],
        |parsed, value| key("--seed", value).map(|it| parsed.test.seed = it),
    ),
    Flag::value(
        "timeout",
        "N",
        "let a test take N seconds of the test clock (60)",
        &[Command::Test],
        |parsed, value| {
            seconds("--timeout", value).map(|it| parsed.test.timeout = Duration::from_secs(it))
        },
    ),
    Flag::plain(
        "sim",
        "run each test in a simulation, with many seeds, workers and faults of the system",
        &[Command::Test],
        |parsed| parsed.simulates = true,
    ),
    Flag::value(
        "seeds",
        "N",
        "run N simulations of each test, with the seeds from --seed on (100)",
        &[Command::Test],
        |parsed, value| key("--seeds", value).map(|it| parsed.seeds = Some(it)),
    ),
    Flag::value(
        "filter",
        "TEXT",
        "run only tests of which the names contain TEXT",
        &[Command::Test],
        |parsed, value| key("--filter", value).map(|it| parsed.test.filter = it),
    ),
    Flag::plain(
        "exact",
        "run only tests of which the name is the TEXT of --filter",
        &[Command::Test],
        |parsed| parsed.test.is_exact = true,
    ),
];
