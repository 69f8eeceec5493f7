//! The program from outside: arguments go in; standard output, standard error and the exit code
//! come out.

use std::collections::BTreeSet;
use std::io::pipe;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_procession-bench"));
    command.args(arguments.split_whitespace());
    command
}

/// Runs the program, and compares all of its output.
fn check(arguments: &str, expected: &str) {
    let output = bench(arguments).output().expect("the program can be started");
    let said = format!(
        "{}{}exit code: {}\n",
        String::from_utf8(output.stdout).expect("the output is text"),
        String::from_utf8(output.stderr).expect("the errors are text"),
        output.status.code().expect("it was not killed"),
    );
    assert_eq!(said, expected, "{arguments}, which said:\n{said}");
}

#[test]
fn help_tells_options_and_workloads() {
    check("--help", include_str!("snapshots/help.txt"));
    check("--rounds 3 ring -h", include_str!("snapshots/help.txt"));
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    for word in ["--seconds", "--round", "-x", "--tiny=3", "foo"] {
        check(
            &format!("spawn {word}"),
            &format!(
                "procession-bench: unknown workload or option {word}: see --help\nexit code: 2\n"
            ),
        );
    }
}

#[test]
fn a_number_of_rounds_is_checked() {
    for rounds in ["0", "1001", "-1", "many", ""] {
        check(
            &format!("--tiny --rounds {rounds}"),
            "procession-bench: --rounds wants a number from 1 to 1000: see --help\nexit code: 2\n",
        );
    }
}

/// Returns the objects that a tiny run prints, one on each line.
fn json(arguments: &str) -> Vec<Value> {
    let output =
        bench(arguments).stderr(Stdio::inherit()).output().expect("the program can be started");
    assert!(output.status.success(), "{arguments}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("the output is text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

#[test]
fn every_workload_runs_and_prints_its_figures_as_json() {
    // Two programs at a time, since many workloads wait.
    let help = include_str!("snapshots/help.txt");
    let (_, workloads) = help.split_once("none is named):\n").expect("the help has a list");
    let names = workloads.lines().map_while(|line| line.split_whitespace().next());
    let (one, other): (Vec<_>, Vec<_>) = names.enumerate().partition(|(at, _)| at % 2 == 0);
    let run = |names: Vec<(usize, &str)>| {
        let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
        json(&format!("--tiny --rounds 1 --json {}", names.join(" ")))
    };
    let figures: Vec<_> = thread::scope(|scope| {
        let one = scope.spawn(|| run(one));
        let other = run(other);
        one.join().expect("the workloads run").into_iter().chain(other).collect()
    });
    for figure in &figures {
        let keys: BTreeSet<_> =
            figure.as_object().expect("a figure is an object").keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(["workload", "runtime", "value", "unit"]));
        assert_eq!(figure["runtime"], "procession");
        assert!(figure["value"].as_f64().is_some_and(|value| value >= 0.0), "{figure}");
    }
    let units: BTreeSet<_> = figures
        .iter()
        .map(|figure| (figure["workload"].as_str(), figure["unit"].as_str()))
        .collect();
    let expected = [
        ("spawn", "ns"),
        ("skynet", "ns"),
        ("pingpong", "ns"),
        ("ring", "ns"),
        ("fanin", "ns"),
        ("yield", "ns"),
        ("step", "ns"),
        ("step_yield", "ns"),
        ("idle_mem", "bytes"),
        ("downs", "ns"),
        ("downs_held", "bytes"),
        ("downs_kept", "bytes"),
        ("downs_lost", "bytes"),
        ("timers_cancel", "ns"),
        ("timers_cancel_yields", "ns"),
        ("timers_fire", "ns"),
        ("timers_fire_cpu", "ns"),
        ("sleep_50us", "us"),
        ("timer_behind_hog", "us"),
        ("timer_behind_hog_max", "us"),
        ("echo_50", "ns"),
        ("echo_50_cpu", "ns"),
        ("echo_200", "ns"),
        ("echo_200_cpu", "ns"),
        ("echo_1000", "ns"),
        ("echo_1000_cpu", "ns"),
        ("http", "ns"),
        ("http_cpu", "ns"),
        ("timers_reset", "ns"),
        ("rescue", "us"),
        ("rescue_worst", "us"),
        ("rescue_declared", "us"),
        ("rescue_decl_worst", "us"),
        ("mixed", "us"),
        ("mixed_p99", "us"),
        ("pingpong_off", "ns"),
        ("yield_off", "ns"),
        ("idle_wakes", "wake-ups"),
        ("tick_block_0.1_1", "ms"),
        ("tick_block_0.1_2", "ms"),
        ("tick_block_0.1_4", "ms"),
        ("tick_block_0.1_50", "ms"),
        ("tick_block_1_1", "ms"),
        ("tick_block_1_2", "ms"),
        ("tick_block_1_4", "ms"),
        ("tick_block_1_50", "ms"),
        ("tick_block_9_1", "ms"),
        ("tick_block_9_2", "ms"),
        ("tick_block_9_4", "ms"),
        ("tick_block_9_50", "ms"),
        ("tick_compute_0.1_1", "ms"),
        ("tick_compute_0.1_2", "ms"),
        ("tick_compute_0.1_4", "ms"),
        ("tick_compute_0.1_50", "ms"),
        ("tick_compute_1_1", "ms"),
        ("tick_compute_1_2", "ms"),
        ("tick_compute_1_4", "ms"),
        ("tick_compute_1_50", "ms"),
        ("tick_compute_9_1", "ms"),
        ("tick_compute_9_2", "ms"),
        ("tick_compute_9_4", "ms"),
        ("tick_compute_9_50", "ms"),
        ("shares_messages", "most/least"),
        ("shares_channels", "most/least"),
        ("shares_yields", "most/least"),
        ("shares_messages_2", "most/least"),
        ("shares_channels_2", "most/least"),
        ("shares_yields_2", "most/least"),
        ("idle_after", "wake-ups"),
        ("idle_after_nothing", "wake-ups"),
        ("idle_after_block", "wake-ups"),
        ("idle_after_compute", "wake-ups"),
        ("idle_after_declared", "wake-ups"),
        ("idle_after_sockets", "wake-ups"),
        ("idle_after_timers", "wake-ups"),
        ("wake", "us"),
        ("wake_p99", "us"),
        ("wake_p999", "us"),
        ("load_50", "us"),
        ("load_50_p99", "us"),
        ("load_50_p999", "us"),
        ("load_80", "us"),
        ("load_80_p99", "us"),
        ("load_80_p999", "us"),
        ("population_10", "ns"),
        ("population_1k", "ns"),
        ("population_100k", "ns"),
        ("population_1m", "ns"),
        ("population_10m", "ns"),
        ("population_left", "bytes"),
        ("notify", "ns"),
        ("oneshot", "ns"),
        ("oneshot_spawn", "ns"),
        ("watch", "ns"),
        ("broadcast", "ns"),
        ("joinset", "ns"),
        ("group_broadcast", "ns"),
        ("fs_read", "ns"),
        ("fs_read_many", "ns"),
        ("fs_read_part", "ns"),
        ("pool", "ms"),
        ("pool_cpu", "ms"),
        ("pool_peak", "MiB"),
        ("pool_many", "ms"),
        ("pool_many_cpu", "ms"),
        ("pool_many_peak", "MiB"),
        ("pool_large", "ms"),
        ("pool_large_cpu", "ms"),
        ("pool_large_peak", "MiB"),
        ("pool_large_many", "ms"),
        ("pool_large_many_cpu", "ms"),
        ("pool_large_many_peak", "MiB"),
        ("pool_co", "ms"),
        ("pool_co_cpu", "ms"),
        ("pool_co_peak", "MiB"),
        ("pool_threads", "ns"),
        ("pool_threads_tiny", "ns"),
        ("pool_burst", "threads"),
        ("pool_trickle", "threads"),
        ("pool_silence", "threads"),
        ("objects", "ns"),
        ("objects_allocated", "ns"),
        ("co_switch", "ns"),
        ("co_yield_1", "ns"),
        ("co_yield_1000", "ns"),
        ("co_channel_0", "ns"),
        ("co_channel_1", "ns"),
        ("co_channel_10000", "ns"),
        ("co_apart", "ns"),
        ("co_spawn", "ns"),
        ("co_alive", "bytes"),
        ("co_skew", "%"),
    ];
    assert_eq!(figures.len(), expected.len(), "{units:?}");
    assert_eq!(units, expected.map(|(name, unit)| (Some(name), Some(unit))).into());
}

#[test]
fn workloads_run_in_the_order_given() {
    let figures = json("--rounds 2 ring --tiny yield ring --json");
    let names: Vec<_> = figures.iter().map(|figure| figure["workload"].as_str()).collect();
    assert_eq!(names, [Some("ring"), Some("yield"), Some("ring")]);
}

#[test]
fn people_get_the_median_and_the_range() {
    let output = bench("pingpong --tiny").output().expect("the program can be started");
    let text = String::from_utf8(output.stdout).expect("the output is text");
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(
        (words[0], &words[2..6]),
        ("pingpong", &["ns", "per", "round", "trip"][..]),
        "{text}"
    );
    let (min, max) = words[6].split_once("..").expect("the range is two numbers");
    let [min, median, max] =
        [min, words[1], max].map(|number| number.parse::<f64>().expect("a figure is a number"));
    assert!(min <= median && median <= max, "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in ["--help", "--tiny --rounds 1 ring yield"] {
        let (reader, writer) = pipe().expect("the system gives a pipe");
        drop(reader);
        let output = bench(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let output =
            output.and_then(|child| child.wait_with_output()).expect("the program can be started");
        assert!(output.status.success(), "{arguments}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
    }
}
