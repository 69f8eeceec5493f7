//! The options of the tools for programs in Lua.

use std::time::Duration;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Takes, key, seconds};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        long: "watch",
        short: None,
        help: "upgrade or restart the program when its files change",
        of: &[Command::Run],
        takes: Takes::Nothing(|parsed| parsed.run.watch = true),
    },
    Flag {
        long: "seed",
        short: None,
        help: "choose the order of processes and the random numbers by N (0)",
        of: &[Command::Test],
        takes: Takes::Value("N", |parsed, value| {
            parsed.test.seed = key("--seed", value)?;
            Ok(())
        }),
    },
    Flag {
        long: "timeout",
        short: None,
        help: "let a test take N seconds of the test clock (60)",
        of: &[Command::Test],
        takes: Takes::Value("N", |parsed, value| {
            parsed.test.timeout = Duration::from_secs(seconds("--timeout", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "sim",
        short: None,
        help: "run each test in a simulation, with many seeds, workers and faults of the system",
        of: &[Command::Test],
        takes: Takes::Nothing(|parsed| parsed.simulates = true),
    },
    Flag {
        long: "seeds",
        short: None,
        help: "run N simulations of each test, with the seeds from --seed on (100)",
        of: &[Command::Test],
        takes: Takes::Value("N", |parsed, value| {
            parsed.seeds = Some(key("--seeds", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "filter",
        short: None,
        help: "run only tests of which the names contain TEXT",
        of: &[Command::Test],
        takes: Takes::Value("TEXT", |parsed, value| {
            parsed.test.filter = key("--filter", value)?;
            Ok(())
        }),
    },
    Flag {
        long: "exact",
        short: None,
        help: "run only tests of which the name is the TEXT of --filter",
        of: &[Command::Test],
        takes: Takes::Nothing(|parsed| parsed.test.is_exact = true),
    },
];
