//! The definitions of the workloads, the same for all runtimes.

// By path: the peers in `bench/` include this file by its path, too.
#[path = "workload/exchange.rs"]
mod exchange;
#[path = "workload/files.rs"]
mod files;
#[path = "workload/groups.rs"]
mod groups;
#[path = "workload/measure.rs"]
mod measure;

use std::time::Duration;

pub(crate) use self::exchange::*;
pub(crate) use self::files::*;
pub(crate) use self::groups::*;
pub(crate) use self::measure::*;

/// The description of a workload.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// The description in the help text.
    pub(crate) what: &'static str,
    pub(crate) figures: &'static [Figure],
}

/// A number that a workload measures.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) per: &'static str,
}

pub(crate) const SPAWN: Definition = Definition {
    name: "spawn",
    what: "1 M empty processes are spawned by one, until all have ended",
    figures: &[Figure { name: "spawn", unit: "ns", per: "process" }],
};
pub(crate) const SPAWN_COUNT: u64 = 1_000_000;

pub(crate) const SKYNET: Definition = Definition {
    name: "skynet",
    what: "each process spawns ten, down to 1 M leaves; they add up the leaves' numbers",
    figures: &[Figure { name: "skynet", unit: "ns", per: "leaf" }],
};
/// A power of [`SKYNET_CHILDREN`].
pub(crate) const SKYNET_LEAVES: u64 = 1_000_000;
pub(crate) const SKYNET_CHILDREN: usize = 10;

pub(crate) const PINGPONG: Definition = Definition {
    name: "pingpong",
    what: "two processes send each other a number, 1 M times there and back",
    figures: &[Figure { name: "pingpong", unit: "ns", per: "round trip" }],
};
pub(crate) const PINGPONG_ROUND_TRIPS: u64 = 1_000_000;

pub(crate) const RING: Definition = Definition {
    name: "ring",
    what: "503 processes in a ring pass a number on, 2 M times",
    figures: &[Figure { name: "ring", unit: "ns", per: "hop" }],
};
pub(crate) const RING_PROCESSES: usize = 503;
pub(crate) const RING_HOPS: u64 = 2_000_000;

pub(crate) const FANIN: Definition = Definition {
    name: "fanin",
    what: "8 processes send 4 M messages to one, whose mailbox is unbounded",
    figures: &[Figure { name: "fanin", unit: "ns", per: "message" }],
};
pub(crate) const FANIN_SENDERS: u64 = 8;
pub(crate) const FANIN_MESSAGES: u64 = 4_000_000;

pub(crate) const YIELD: Definition = Definition {
    name: "yield",
    what: "1000 processes yield 1000 times each",
    figures: &[Figure { name: "yield", unit: "ns", per: "yield" }],
};
pub(crate) const YIELD_PROCESSES: u64 = 1000;
pub(crate) const YIELD_COUNT: u64 = 1000;

pub(crate) const STEP: Definition = Definition {
    name: "step",
    what: "processes of one step are started and joined, one after the other, 1 M times",
    figures: &[Figure { name: "step", unit: "ns", per: "process" }],
};
pub(crate) const STEP_COUNT: u64 = 1_000_000;

pub(crate) const STEP_YIELD: Definition = Definition {
    name: "step_yield",
    what: "the same with a command before the result, which its handler completes at once",
    figures: &[Figure { name: "step_yield", unit: "ns", per: "process" }],
};

pub(crate) const IDLE_MEM: Definition = Definition {
    name: "idle_mem",
    what: "100 k processes wait for messages in a fresh program; their addresses are kept",
    figures: &[Figure { name: "idle_mem", unit: "bytes", per: "process" }],
};
pub(crate) const IDLE_MEM_PROCESSES: u64 = 100_000;

pub(crate) const DOWNS: Definition = Definition {
    name: "downs",
    what: "200 k monitored processes are killed at once, 5 times in a fresh program; bytes held, kept, lost each time",
    figures: &[
        Figure { name: "downs", unit: "ns", per: "process" },
        Figure { name: "downs_held", unit: "bytes", per: "process" },
        Figure { name: "downs_kept", unit: "bytes", per: "process" },
        Figure { name: "downs_lost", unit: "bytes", per: "process" },
    ],
};
pub(crate) const DOWNS_PROCESSES: u64 = 200_000;
pub(crate) const DOWNS_AGAIN: u64 = 4;
/// Allocators return memory to the system with a delay.
pub(crate) const DOWNS_PAUSE: Duration = Duration::from_millis(200);

pub(crate) const TIMERS_CANCEL: Definition = Definition {
    name: "timers_cancel",
    what: "2 processes with 32 k timers each set one more and cancel that of 1000 before; 2 ways",
    figures: &[
        Figure { name: "timers_cancel", unit: "ns", per: "arm and cancel" },
        Figure { name: "timers_cancel_yields", unit: "ns", per: "arm and cancel" },
    ],
};
/// The number of forms: the fastest, and one with a yield after each [`TIMERS_BETWEEN_YIELDS`].
pub(crate) const TIMERS_CANCEL_FORMS: u64 = 2;
pub(crate) const TIMERS_CANCEL_PROCESSES: u64 = 2;
pub(crate) const TIMERS_CANCEL_LIVE: u64 = 32_768;
pub(crate) const TIMERS_CANCEL_DELAYED: usize = 1000;
pub(crate) const TIMERS_CANCEL_COUNT: u64 = 1_000_000;
/// The range of the random durations, in milliseconds.
pub(crate) const TIMERS_CANCEL_AFTER_MS: std::ops::Range<u64> = 1_000..30_000;

pub(crate) const TIMERS_FIRE: Definition = Definition {
    name: "timers_fire",
    what: "1 M processes are spawned, sleep for up to 1 s, and are joined; also in CPU time",
    figures: &[
        Figure { name: "timers_fire", unit: "ns", per: "firing" },
        Figure { name: "timers_fire_cpu", unit: "ns", per: "firing" },
    ],
};
pub(crate) const TIMERS_FIRE_COUNT: u64 = 1_000_000;
/// The maximum of the random durations, in microseconds. Scaled with the count.
pub(crate) const TIMERS_FIRE_WITHIN_US: u64 = 1_000_000;

pub(crate) const TIMERS_RESET: Definition = Definition {
    name: "timers_reset",
    what: "a pending sleep is set to 30 s from now and polled, 1 M times",
    figures: &[Figure { name: "timers_reset", unit: "ns", per: "reset and poll" }],
};
pub(crate) const TIMERS_RESET_COUNT: u64 = 1_000_000;
pub(crate) const TIMERS_RESET_AFTER: Duration = Duration::from_secs(30);

pub(crate) const SLEEP_50US: Definition = Definition {
    name: "sleep_50us",
    what: "a process sleeps for 50 us, 5 k times; the median",
    figures: &[Figure { name: "sleep_50us", unit: "us", per: "sleep" }],
};
pub(crate) const SLEEP_50US_COUNT: u64 = 5000;

pub(crate) const TIMER_BEHIND_HOG: Definition = Definition {
    name: "timer_behind_hog",
    what: "a process ticks every 1 ms for 1 s, beside one that computes for 10 ms and sleeps for 1",
    figures: &[
        Figure { name: "timer_behind_hog", unit: "us", per: "tick, its lateness" },
        Figure { name: "timer_behind_hog_max", unit: "us", per: "latest tick" },
    ],
};
pub(crate) const TIMER_BEHIND_HOG_TICKS: u64 = 1000;
pub(crate) const TIMER_BEHIND_HOG_PERIOD: Duration = Duration::from_millis(1);
pub(crate) const TIMER_BEHIND_HOG_COMPUTES: Duration = Duration::from_millis(10);

pub(crate) const ECHO: Definition = Definition {
    name: "echo",
    what: "64 bytes go over TCP and back, 200 k times, on 50, 200 and 1000 connections; also in CPU time",
    figures: &[
        Figure { name: "echo_50", unit: "ns", per: "round trip" },
        Figure { name: "echo_50_cpu", unit: "ns", per: "round trip" },
        Figure { name: "echo_200", unit: "ns", per: "round trip" },
        Figure { name: "echo_200_cpu", unit: "ns", per: "round trip" },
        Figure { name: "echo_1000", unit: "ns", per: "round trip" },
        Figure { name: "echo_1000_cpu", unit: "ns", per: "round trip" },
    ],
};
pub(crate) const ECHO_CONNECTIONS: [u64; 3] = [50, 200, 1000];
pub(crate) const ECHO_ROUND_TRIPS: u64 = 200_000;
pub(crate) const ECHO_BYTES: usize = 64;

pub(crate) const HTTP: Definition = Definition {
    name: "http",
    what: "hyper, a process for each of 50 connections, answers 200 k requests; also in CPU time",
    figures: &[
        Figure { name: "http", unit: "ns", per: "request" },
        Figure { name: "http_cpu", unit: "ns", per: "request" },
    ],
};
pub(crate) const HTTP_CONNECTIONS: u64 = 50;
pub(crate) const HTTP_REQUESTS: u64 = 200_000;
pub(crate) const HTTP_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
pub(crate) const HTTP_BODY: &str = "Hello, World!";

pub(crate) const RESCUE: Definition = Definition {
    name: "rescue",
    what: "work waits behind a process that blocks for 50 ms, undeclared and declared",
    figures: &[
        Figure { name: "rescue", unit: "us", per: "block" },
        Figure { name: "rescue_worst", unit: "us", per: "block" },
        Figure { name: "rescue_declared", unit: "us", per: "block" },
        Figure { name: "rescue_decl_worst", unit: "us", per: "block" },
    ],
};
pub(crate) const RESCUE_COUNT: u64 = 40;
pub(crate) const BLOCK: Duration = Duration::from_millis(50);

pub(crate) const MIXED: Definition = Definition {
    name: "mixed",
    what: "32 clients make short requests; every 40th blocks for 50 ms, undeclared",
    figures: &[
        Figure { name: "mixed", unit: "us", per: "request" },
        Figure { name: "mixed_p99", unit: "us", per: "short request" },
    ],
};
pub(crate) const MIXED_CLIENTS: u64 = 32;
pub(crate) const MIXED_REQUESTS: u64 = 4000;
pub(crate) const MIXED_BLOCKS_EVERY: u64 = 40;
/// The time for which a short request computes.
pub(crate) const MIXED_SHORT: Duration = Duration::from_micros(20);

pub(crate) const UNWATCHED: Definition = Definition {
    name: "unwatched",
    what: "pingpong and yield again, without a watchdog",
    figures: &[
        Figure { name: "pingpong_off", unit: "ns", per: "round trip" },
        Figure { name: "yield_off", unit: "ns", per: "yield" },
    ],
};

pub(crate) const IDLE_WAKES: Definition = Definition {
    name: "idle_wakes",
    what: "1000 processes wait for far timers: how often any thread wakes",
    figures: &[Figure { name: "idle_wakes", unit: "wake-ups", per: "second" }],
};
pub(crate) const IDLE_WAKES_PROCESSES: u64 = 1000;
/// The time for which a runtime may come to rest, and the time for which it is watched.
pub(crate) const IDLE_WAKES_REST: Duration = Duration::from_millis(500);
pub(crate) const IDLE_WAKES_WATCHED: Duration = Duration::from_secs(1);

pub(crate) const TICK_BESIDE_STEPS: Definition = Definition {
    name: "tick_beside_steps",
    what: "1, 2, 4, 50 processes block or compute for 0.1, 1, 9 ms and yield; the latest tick beside them",
    figures: &[
        lateness("tick_block_0.1_1"),
        lateness("tick_block_0.1_2"),
        lateness("tick_block_0.1_4"),
        lateness("tick_block_0.1_50"),
        lateness("tick_block_1_1"),
        lateness("tick_block_1_2"),
        lateness("tick_block_1_4"),
        lateness("tick_block_1_50"),
        lateness("tick_block_9_1"),
        lateness("tick_block_9_2"),
        lateness("tick_block_9_4"),
        lateness("tick_block_9_50"),
        lateness("tick_compute_0.1_1"),
        lateness("tick_compute_0.1_2"),
        lateness("tick_compute_0.1_4"),
        lateness("tick_compute_0.1_50"),
        lateness("tick_compute_1_1"),
        lateness("tick_compute_1_2"),
        lateness("tick_compute_1_4"),
        lateness("tick_compute_1_50"),
        lateness("tick_compute_9_1"),
        lateness("tick_compute_9_2"),
        lateness("tick_compute_9_4"),
        lateness("tick_compute_9_50"),
    ],
};
/// The names give the kind of the steps, their duration in milliseconds, and the number of
/// processes.
const fn lateness(name: &'static str) -> Figure {
    Figure { name, unit: "ms", per: "latest tick" }
}
/// Durations of the steps, in microseconds. Scaled with the time.
pub(crate) const TICK_STEPS_US: [u64; 3] = [100, 1000, 9000];
pub(crate) const TICK_PROCESSES: [u64; 4] = [1, 2, 4, 50];
pub(crate) const TICK_PERIOD: Duration = Duration::from_millis(1);
/// The time for which each combination of duration and number is watched.
pub(crate) const TICK_TIME_US: u64 = 750_000;

/// Returns the cells of `tick_beside_steps`, in the order of its figures: whether the steps
/// compute, their duration, and the number of processes.
pub(crate) fn tick_cells(scale: Scale) -> impl Iterator<Item = (bool, Duration, u64)> {
    let cell =
        move |computes, us, processes| (computes, Duration::from_micros(scale.of(us)), processes);
    [false, true].into_iter().flat_map(move |computes| {
        let steps = TICK_STEPS_US.into_iter();
        steps.flat_map(move |us| {
            TICK_PROCESSES.into_iter().map(move |processes| cell(computes, us, processes))
        })
    })
}

pub(crate) const SHARES: Definition = Definition {
    name: "shares",
    what: "9 equal pairs or processes on 1 worker, then 8 on 2, run for 300 ms: the most turns to the least",
    figures: &[
        Figure { name: "shares_messages", unit: "most/least", per: "pair" },
        Figure { name: "shares_channels", unit: "most/least", per: "pair" },
        Figure { name: "shares_yields", unit: "most/least", per: "process" },
        Figure { name: "shares_messages_2", unit: "most/least", per: "pair" },
        Figure { name: "shares_channels_2", unit: "most/least", per: "pair" },
        Figure { name: "shares_yields_2", unit: "most/least", per: "process" },
    ],
};
/// The numbers of workers, each with the number of pairs or processes that share them.
pub(crate) const SHARES_AMONG: [(usize, u64); 2] = [(1, 9), (2, 8)];
pub(crate) const SHARES_TIME_US: u64 = 300_000;

/// Returns the ratio of the most turns to the least. A pair without a turn counts as one with one
/// turn.
pub(crate) fn most_to_least(turns: &[u64]) -> f64 {
    let most = turns.iter().max().map_or(1, |most| *most);
    let least = turns.iter().min().map_or(1, |least| *least);
    most.max(1) as f64 / least.max(1) as f64
}

pub(crate) const IDLE_AFTER: Definition = Definition {
    name: "idle_after",
    what: "how often any thread wakes in an idle program after steps, sockets or timers; the most, and each",
    figures: &[
        wake_ups("idle_after"),
        wake_ups("idle_after_nothing"),
        wake_ups("idle_after_block"),
        wake_ups("idle_after_compute"),
        wake_ups("idle_after_declared"),
        wake_ups("idle_after_sockets"),
        wake_ups("idle_after_timers"),
    ],
};
const fn wake_ups(name: &'static str) -> Figure {
    Figure { name, unit: "wake-ups", per: "second" }
}
/// Puts the maximum of the wake-ups per second before those of each load.
pub(crate) fn most_and_each(wake_ups: Vec<f64>) -> Vec<f64> {
    let most = wake_ups.iter().copied().fold(0.0, f64::max);
    [vec![most], wake_ups].concat()
}
/// The number of processes, and the number of steps of each.
pub(crate) const IDLE_AFTER_PROCESSES: u64 = 8;
pub(crate) const IDLE_AFTER_STEPS: u64 = 3;
/// The duration of a step that blocks or computes, in microseconds. Scaled.
pub(crate) const IDLE_AFTER_STEP_US: u64 = 25_000;
/// The pause between two steps.
pub(crate) const IDLE_AFTER_PAUSE: Duration = Duration::from_millis(1);
/// The number of bytes that each connection sends back and forth, one at a time.
pub(crate) const IDLE_AFTER_BYTES: u64 = 1000;
/// The number of processes that each sleep for up to 100 ms.
pub(crate) const IDLE_AFTER_SLEEPERS: u64 = 1000;
pub(crate) const IDLE_AFTER_SLEEP_US: u64 = 100_000;
/// The time for which a runtime keeps an idle thread, where that can be set.
pub(crate) const IDLE_AFTER_KEEP_ALIVE: Duration = Duration::from_millis(100);
/// The time for which a runtime may come to rest, and the time for which it is watched. Scaled.
pub(crate) const IDLE_AFTER_REST_US: u64 = 600_000;
pub(crate) const IDLE_AFTER_WATCHED_US: u64 = 500_000;

pub(crate) const WAKE: Definition = Definition {
    name: "wake",
    what: "a thread wakes an idle process of an idle runtime, 5 k times, 200 us apart",
    figures: &[
        Figure { name: "wake", unit: "us", per: "wake-up, median" },
        Figure { name: "wake_p99", unit: "us", per: "wake-up" },
        Figure { name: "wake_p999", unit: "us", per: "wake-up" },
    ],
};
pub(crate) const WAKE_COUNT: u64 = 5000;
pub(crate) const WAKE_PAUSE: Duration = Duration::from_micros(200);

pub(crate) const LOAD: Definition = Definition {
    name: "load",
    what: "a thread spawns requests of 100 us at random, for 50 and 80 % of two workers",
    figures: &[
        Figure { name: "load_50", unit: "us", per: "request, median" },
        Figure { name: "load_50_p99", unit: "us", per: "request" },
        Figure { name: "load_50_p999", unit: "us", per: "request" },
        Figure { name: "load_80", unit: "us", per: "request, median" },
        Figure { name: "load_80_p99", unit: "us", per: "request" },
        Figure { name: "load_80_p999", unit: "us", per: "request" },
    ],
};
pub(crate) const LOAD_REQUESTS: u64 = 20_000;
pub(crate) const LOAD_REQUEST: Duration = Duration::from_micros(100);
/// The mean pause between two requests, at loads of 50 and 80 %.
pub(crate) const LOAD_PAUSES: [Duration; 2] =
    [Duration::from_nanos(100_000), Duration::from_nanos(62_500)];

pub(crate) const POPULATION: Definition = Definition {
    name: "population",
    what: "messages to random ones of 10 to 10 M processes, 1000 at once; what 1 M leave behind",
    figures: &[
        Figure { name: "population_10", unit: "ns", per: "message" },
        Figure { name: "population_1k", unit: "ns", per: "message" },
        Figure { name: "population_100k", unit: "ns", per: "message" },
        Figure { name: "population_1m", unit: "ns", per: "message" },
        Figure { name: "population_10m", unit: "ns", per: "message" },
        Figure { name: "population_left", unit: "bytes", per: "process" },
    ],
};
pub(crate) const POPULATIONS: [u64; 5] = [10, 1000, 100_000, 1_000_000, 10_000_000];
/// The population after which the memory is measured.
pub(crate) const POPULATION_LEFT: u64 = 1_000_000;
pub(crate) const POPULATION_MESSAGES: u64 = 1_000_000;
pub(crate) const POPULATION_AT_ONCE: u64 = 1000;
pub(crate) const POPULATION_SEED: u64 = 1;
/// Allocators return memory to the system with a delay.
pub(crate) const POPULATION_PAUSE: Duration = Duration::from_millis(500);

pub(crate) const POOL: Definition = Definition {
    name: "pool",
    what: "1 M async jobs of 10 ms, 50 k at once, from one submitter; CPU time, peak memory",
    figures: &[
        Figure { name: "pool", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_cpu", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_peak", unit: "MiB", per: "program" },
    ],
};
pub(crate) const POOL_MANY: Definition = Definition {
    name: "pool_many",
    what: "the same from 1000 submitters",
    figures: &[
        Figure { name: "pool_many", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_many_cpu", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_many_peak", unit: "MiB", per: "program" },
    ],
};
pub(crate) const POOL_LARGE: Definition = Definition {
    name: "pool_large",
    what: "the same, 200 k at once, from one submitter",
    figures: &[
        Figure { name: "pool_large", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_large_cpu", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_large_peak", unit: "MiB", per: "program" },
    ],
};
pub(crate) const POOL_LARGE_MANY: Definition = Definition {
    name: "pool_large_many",
    what: "the same, 200 k at once, from 1000 submitters",
    figures: &[
        Figure { name: "pool_large_many", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_large_many_cpu", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_large_many_peak", unit: "MiB", per: "program" },
    ],
};
pub(crate) const POOL_CO: Definition = Definition {
    name: "pool_co",
    what: "the same on coroutines, 50 k at once, from one submitter",
    figures: &[
        Figure { name: "pool_co", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_co_cpu", unit: "ms", per: "1 M jobs" },
        Figure { name: "pool_co_peak", unit: "MiB", per: "program" },
    ],
};
pub(crate) const POOL_JOBS: u64 = 1_000_000;
pub(crate) const POOL_JOB: Duration = Duration::from_millis(10);
pub(crate) const POOL_CAPACITY: u64 = 50_000;
pub(crate) const POOL_CAPACITY_LARGE: u64 = 200_000;
pub(crate) const POOL_SUBMITTERS: u64 = 1000;

pub(crate) const POOL_THREADS_EMPTY: Definition = Definition {
    name: "pool_threads",
    what: "200 k closures on 2 threads, from one submitter: empty ones, and ones of 1 us",
    figures: &[
        Figure { name: "pool_threads", unit: "ns", per: "job" },
        Figure { name: "pool_threads_tiny", unit: "ns", per: "job" },
    ],
};
pub(crate) const POOL_TINY: Duration = Duration::from_micros(1);
pub(crate) const POOL_THREADS_JOBS: u64 = 200_000;
pub(crate) const POOL_THREADS: usize = 2;

pub(crate) const POOL_TRICKLE: Definition = Definition {
    name: "pool_trickle",
    what: "threads after a burst of 100 jobs, a trickle of one each 10 ms for 2 s, and silence",
    figures: &[
        Figure { name: "pool_burst", unit: "threads", per: "pool" },
        Figure { name: "pool_trickle", unit: "threads", per: "pool" },
        Figure { name: "pool_silence", unit: "threads", per: "pool" },
    ],
};
pub(crate) const POOL_TRICKLE_BURST: u64 = 100;
pub(crate) const POOL_TRICKLE_PAUSE: Duration = Duration::from_millis(10);
pub(crate) const POOL_TRICKLE_PAUSES: u64 = 200;
pub(crate) const POOL_TRICKLE_KEEP_ALIVE_MS: u64 = 500;

pub(crate) const OBJECTS: Definition = Definition {
    name: "objects",
    what: "a buffer of 256 KiB is got from an object pool and given back; allocated and freed",
    figures: &[
        Figure { name: "objects", unit: "ns", per: "buffer" },
        Figure { name: "objects_allocated", unit: "ns", per: "buffer" },
    ],
};
pub(crate) const OBJECTS_COUNT: u64 = 1_000_000;
pub(crate) const OBJECTS_BYTES: usize = 256 << 10;

/// Polls of a timer between two yields: less than the operations that a step may perform in
/// Procession, and a task in tokio (128). A poll beyond them would not set the timer.
pub(crate) const TIMERS_BETWEEN_YIELDS: u64 = 64;

pub(crate) const CO_SWITCH: Definition = Definition {
    name: "co_switch",
    what: "a coroutine is resumed and suspends itself, 50 M times, without a scheduler",
    figures: &[Figure { name: "co_switch", unit: "ns", per: "round trip" }],
};
pub(crate) const CO_SWITCH_COUNT: u64 = 50_000_000;

pub(crate) const CO_YIELD: Definition = Definition {
    name: "co_yield",
    what: "1 coroutine, then 1000, yield 1 M times together",
    figures: &[
        Figure { name: "co_yield_1", unit: "ns", per: "yield" },
        Figure { name: "co_yield_1000", unit: "ns", per: "yield" },
    ],
};
pub(crate) const CO_YIELD_COUNT: u64 = 1_000_000;

pub(crate) const CO_CHANNEL: Definition = Definition {
    name: "co_channel",
    what: "a coroutine sends 1 M items to another, by channels that hold 0, 1 and 10000",
    figures: &[
        Figure { name: "co_channel_0", unit: "ns", per: "item" },
        Figure { name: "co_channel_1", unit: "ns", per: "item" },
        Figure { name: "co_channel_10000", unit: "ns", per: "item" },
    ],
};
pub(crate) const CO_CHANNEL_ITEMS: u64 = 1_000_000;

pub(crate) const CO_APART: Definition = Definition {
    name: "co_apart",
    what: "the same, 200 k items, by one that holds 0, between two that stay on different workers",
    figures: &[Figure { name: "co_apart", unit: "ns", per: "item" }],
};
pub(crate) const CO_APART_ITEMS: u64 = 200_000;

pub(crate) const CO_SPAWN: Definition = Definition {
    name: "co_spawn",
    what: "1 M empty coroutines are spawned by one, until all have ended",
    figures: &[Figure { name: "co_spawn", unit: "ns", per: "coroutine" }],
};
pub(crate) const CO_SPAWN_COUNT: u64 = 1_000_000;

pub(crate) const CO_ALIVE: Definition = Definition {
    name: "co_alive",
    what: "1 M coroutines wait for messages in a fresh program, page tables included",
    figures: &[Figure { name: "co_alive", unit: "bytes", per: "coroutine" }],
};
pub(crate) const CO_ALIVE_COROUTINES: u64 = 1_000_000;
/// Small stacks have smaller page tables.
pub(crate) const CO_ALIVE_STACK: usize = 16 << 10;

pub(crate) const CO_SKEW: Definition = Definition {
    name: "co_skew",
    what: "64 coroutines of unequal work, the last 64 times the first, on all workers",
    figures: &[Figure { name: "co_skew", unit: "%", per: "even share" }],
};
pub(crate) const CO_SKEW_COROUTINES: u64 = 64;
pub(crate) const CO_SKEW_WORK: u64 = 100_000;
