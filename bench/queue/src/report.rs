//! Measurements as Markdown.

use std::fmt::Write;
use std::process::Command;
use std::{fs, thread};

use crate::scenario::{Family, Scale, Spread, Unit};

pub(crate) fn legend(rounds: usize) -> String {
    format!(
        "Cells: median [minimum–maximum] of {rounds} rounds. Ratio: procession to its best peer, less is better."
    )
}

/// Returns the head of the report: the machine, and the definitions of the scenarios.
pub(crate) fn head(families: &[Family], rounds: usize) -> String {
    let mut text = format!(
        "# Queue benchmarks\n\n\
         - Machine: {}\n- OS: {}\n- Compiler: {}\n- Commit: {}\n- Date: {}\n\
         - {}\n\n",
        machine(),
        kernel(),
        output("rustc", &["--version"]),
        output(
            "git",
            &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude=*"]
        ),
        output("date", &["-u", "+%F"]),
        legend(rounds),
    );
    for (name, sentence) in families.iter().flat_map(|family| family.definitions) {
        writeln!(text, "- `{name}`: {sentence}").expect("a string has room");
    }
    text
}

/// Measures a family, and returns its table.
pub(crate) fn table(family: &Family, rounds: usize, scale: Scale) -> String {
    let mut text = format!("| scenario | unit | {} | ratio |\n", family.rivals.join(" | "));
    text += &format!("|---|---|{}---:|\n", "---:|".repeat(family.rivals.len()));
    for scenario in &family.scenarios {
        for (unit, spreads) in scenario.units.iter().zip(scenario.measure(rounds, scale)) {
            let cells: Vec<String> = spreads.iter().copied().map(cell).collect();
            let (label, ratio) = match unit {
                Unit::Cost(label) => (label, ratio(family.rivals, &spreads)),
                Unit::Fact(label) => (label, String::new()),
            };
            writeln!(text, "| {} | {label} | {} | {ratio} |", scenario.name, cells.join(" | "))
                .expect("a string has room");
        }
    }
    text
}

fn cell(spread: Spread) -> String {
    format!("{} [{}–{}]", number(spread.median), number(spread.min), number(spread.max))
}

/// Formats a number with about three digits.
fn number(value: f64) -> String {
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Returns the ratio of the first rival's median to that of the best rival which is not another
/// form of the first.
fn ratio(rivals: &[&str], spreads: &[Spread]) -> String {
    let peers = rivals.iter().zip(spreads).filter(|(rival, _)| !rival.starts_with(rivals[0]));
    let best = peers.map(|(_, spread)| spread.median).fold(f64::INFINITY, f64::min);
    format!("{:.2}", spreads[0].median / best)
}

fn machine() -> String {
    let description = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        description.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores =
        thread::available_parallelism().map_or("unknown".to_owned(), |cores| cores.to_string());
    let kind = if description.contains(" hypervisor") { " of a virtual machine" } else { "" };
    format!("{}, {cores} cores{kind}", model.unwrap_or("unknown"))
}

fn kernel() -> String {
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", read("ostype").trim(), read("osrelease").trim())
}

/// Returns what a command prints, or "unknown": a table without its compiler is still useful.
fn output(program: &str, arguments: &[&str]) -> String {
    let printed = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success());
    printed.map_or("unknown".to_owned(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}
