//! Runs of one seed that should be the same: in this process, and in another process.

use std::fmt::Write;
use std::process::Command;

use crate::chance::{Chance, Strategy};
use crate::program::{Rules, Run, run};
use crate::story::Story;
use crate::time::{START, duration};

/// The environment variable of a child process: the place of the check that is to run there.
const CHILD: &str = "PROCESSION_SIM_CHILD";
/// What the lines of a child begin with that its parent reads.
const MARK: &str = "procession-sim-run: ";
pub(crate) const CAUSES: &str = "Something decides that the seed does not know: a HashMap, a random number, the \
                      real clock, a thread of the program, an address, or a static that an earlier \
                      run has changed.";

/// Runs a seed once more, and returns its events and decisions in lines.
fn told(rules: &Rules, seed: u64, strategy: Strategy) -> Vec<String> {
    lines_of(&run(rules, Chance::drawn(seed, strategy), Story::told()))
}

/// Returns the events and decisions of a run in lines.
fn lines_of(ran: &Run) -> Vec<String> {
    let events = ran.story.events.iter().map(|(at, event)| {
        let at = duration(at.saturating_sub(START));
        format!("at {at}  {}", event.replace('\n', " "))
    });
    let end = format!("the end, after {} decisions, with hash {:x}", ran.tape.len(), ran.hash);
    events.chain([end]).collect()
}

/// Adds the first line in which two runs differ, if there is one.
fn add_difference(text: &mut String, names: [&str; 2], one: &[String], other: &[String]) {
    let length = one.len().max(other.len());
    let Some(at) = (0..length).find(|&at| one.get(at) != other.get(at)) else { return };
    let _ = write!(text, "\nThe first difference is in event {}:", at + 1);
    for (name, lines) in names.into_iter().zip([one, other]) {
        let line = lines.get(at).map_or("nothing more", |line| line.as_str());
        let _ = write!(text, "\n  {name}  {line}");
    }
}

/// Reports a run of a seed, and its replay, that differ.
pub(crate) fn differing(
    rules: &Rules,
    seed: u64,
    strategy: Strategy,
    one: &Run,
    other: &Run,
) -> String {
    let (decisions, again) = (one.tape.len(), other.tape.len());
    let mut text = format!("seed {seed} ran twice and differed");
    if let Some((purpose, at)) = one.tape.first_difference(&other.tape) {
        let _ = write!(text, ", at decision {at} about {}", purpose.name());
    }
    let _ = write!(text, ", with {decisions} and {again} decisions.\n{CAUSES}");
    // This repeats the first run, now with its story. It differs from the replay as before.
    let [one, other] = [told(rules, seed, strategy), lines_of(other)];
    add_difference(&mut text, ["one run: ", "the next:"], &one, &other);
    text
}

/// Returns `true` if this process is a child that was started for the check at this place.
pub(crate) fn is_child_of(place: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|wanted| wanted == place)
}

/// Runs a seed in the child process, prints its story for the parent, and ends the process.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn run_in_child(rules: &Rules, seed: u64, strategy: Strategy) -> ! {
    for line in told(rules, seed, strategy) {
        println!("{MARK}{line}");
    }
    std::process::exit(0)
}

/// Runs a seed here and in a child process, which runs the same test. Does nothing unless the
/// calling thread has the name of a test.
///
/// # Errors
/// The report, if the runs differ, or if there is no run in the child.
pub(crate) fn compare_with_child(
    rules: &Rules,
    seed: u64,
    strategy: Strategy,
    place: &str,
) -> Result<(), String> {
    let thread = std::thread::current();
    let Some(test) = thread.name().filter(|&name| name != "main") else { return Ok(()) };
    let failed = |what: String| format!("seed {seed} cannot run again in a child process: {what}");
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let child = Command::new(program)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(CHILD, place)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let output = String::from_utf8_lossy(&child.stdout);
    // The harness writes the name of the test in front of the first line.
    let lines = output.lines().filter_map(|line| Some(line.split_once(MARK)?.1.to_owned()));
    let there: Vec<_> = lines.collect();
    if there.is_empty() {
        return Err(failed(format!("the test {test} did not come to the check at {place} there")));
    }
    let here = told(rules, seed, strategy);
    if here == there {
        return Ok(());
    }
    let mut text = format!("seed {seed} ran here and in a child process, and differed.\n{CAUSES}");
    add_difference(&mut text, ["here:        ", "in the child:"], &here, &there);
    Err(text)
}
