//! Measures the queues of `procession-queue` beside their peers. `README.md` describes each
//! scenario.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of the command line")]

mod contended;
mod deques;
mod one_thief;
mod owner;
mod report;
mod scenario;
mod steal_half;

use std::process::ExitCode;
use std::{env, fs};

use scenario::{Family, Scale};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: queue-bench [--rounds N] [--tiny] [--markdown FILE] [SCENARIO]...

  --rounds N       measure each queue N times (15; with --tiny 2)
  --tiny           do a thousandth of the work, to test that everything runs
  --markdown FILE  write the tables to FILE too, below what they were measured on
  SCENARIO         run only scenarios with one of these words in their name";

const ROUNDS: usize = 15;
const ROUNDS_TINY: usize = 2;

struct Options {
    rounds: usize,
    scale: Scale,
    markdown: Option<String>,
    words: Vec<String>,
}

/// Parses the arguments. Returns `None` for a request for help.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut rounds = None;
    let mut options =
        Options { rounds: ROUNDS, scale: Scale::Full, markdown: None, words: Vec::new() };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--tiny" => options.scale = Scale::Tiny,
            "--rounds" => rounds = Some(arguments.next().ok_or("--rounds wants a number")?),
            "--markdown" => {
                options.markdown = Some(arguments.next().ok_or("--markdown wants a file")?)
            }
            _ if argument.starts_with('-') => return Err(format!("unknown option {argument}")),
            _ => options.words.push(argument),
        }
    }
    options.rounds = match rounds {
        Some(text) => {
            text.parse().ok().filter(|n| *n > 0).ok_or("--rounds wants a number above 0")?
        }
        None if options.scale == Scale::Tiny => ROUNDS_TINY,
        None => ROUNDS,
    };
    Ok(Some(options))
}

/// Returns all families, without the scenarios that `words` leave out.
fn selected(words: &[String]) -> Result<Vec<Family>, String> {
    let mut families = vec![owner::family(), steal_half::family(), one_thief::family()];
    families.extend(contended::families());
    for family in &mut families {
        family.scenarios.retain(|scenario| {
            words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
        });
    }
    families.retain(|family| !family.scenarios.is_empty());
    if families.is_empty() {
        Err(format!("no scenario is called {}", words.join(" or ")))
    } else {
        Ok(families)
    }
}

fn run(options: &Options) -> Result<(), String> {
    let families = selected(&options.words)?;
    println!("{}\n", report::legend(options.rounds));
    let mut tables = String::new();
    for family in &families {
        let table = report::table(family, options.rounds, options.scale);
        println!("{table}");
        tables.push('\n');
        tables.push_str(&table);
    }
    match &options.markdown {
        Some(file) => fs::write(file, report::head(&families, options.rounds) + &tables)
            .map_err(|error| format!("cannot write {file}: {error}")),
        None => Ok(()),
    }
}

fn main() -> ExitCode {
    let outcome = match parse(env::args().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{USAGE}");
            Ok(())
        }
        Err(error) => Err(format!("{error}\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue-bench: {error}");
            ExitCode::from(2)
        }
    }
}
