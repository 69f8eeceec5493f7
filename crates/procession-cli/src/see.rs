//! The commands that look into a running program through its door.

pub(crate) mod args;
mod door;
mod error;
mod list;
mod record;
mod screen;
mod sections;
mod sparks;
mod top;
mod trace_file;

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::see::args::{SeeArgs, Verb, view_target};
use crate::see::door::DoorFile;
use crate::see::error::SeeError;

/// The time between the two looks of a command that shows one window.
const WINDOW: Duration = Duration::from_secs(1);

/// Waits. There is nothing to wait for but time.
fn pause(duration: Duration) {
    let (sender, receiver) = mpsc::channel::<()>();
    // Ignored: nothing is sent, so this is the timeout.
    let _ = receiver.recv_timeout(duration);
    drop(sender);
}

pub(crate) fn run(args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
    if let (Verb::Trace, [path]) = (args.verb, &args.words[..])
        && Path::new(path).is_file()
    {
        out.write_all(trace_file::summary(path, args.json)?.as_bytes())?;
        return Ok(());
    }
    let target = args.words.get(args.verb.words_min()).map(String::as_str);
    let door = door::find(target)?;
    match args.verb {
        Verb::Top if !args.once && !args.json && io::stdout().is_terminal() => {
            top::run(&door, args).map_err(Failure::from)
        }
        Verb::Top => once(&door, args, out),
        Verb::Ps => ps(&door, args, out),
        Verb::Tree => show(&door, "/tree", args, out, list::tree),
        Verb::Crashes => match args.number {
            None => show(&door, "/crashes", args, out, list::crashes),
            Some(number) => show(&door, &format!("/crash/{number}"), args, out, list::crash),
        },
        Verb::Cycles => show(&door, "/cycles", args, out, list::cycles),
        Verb::Leaks => show(&door, "/leaks", args, out, list::leaks),
        Verb::Stack => show(&door, &process_target(args, "stack"), args, out, list::stacks),
        Verb::Inspect => show(&door, &process_target(args, "inspect"), args, out, list::fields),
        Verb::Trace => show(&door, &process_target(args, "messages"), args, out, list::messages),
        Verb::Dump => dump(&door, args, out),
        Verb::Record => record::run(&door, args, out),
        Verb::Suspend => act(&door, args, "suspend"),
        Verb::Resume => act(&door, args, "resume"),
        Verb::Kill => act(&door, args, if args.cancel { "cancel" } else { "kill" }),
    }
}

/// Returns the target of a request to the process that the first word names.
fn process_target(args: &SeeArgs, request: &str) -> String {
    let pid = door::encode(&args.words[0]);
    let parameters = [("seconds", args.seconds), ("count", args.count)];
    let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let given: Vec<_> = given.map(|(name, value)| format!("{name}={value}")).collect();
    let mark = if given.is_empty() { "" } else { "?" };
    format!("/process/{pid}/{request}{mark}{}", given.join("&"))
}

fn act(door: &DoorFile, args: &SeeArgs, action: &str) -> Result<(), Failure> {
    door.post(&process_target(args, action))?;
    Ok(())
}

fn show(
    door: &DoorFile,
    target: &str,
    args: &SeeArgs,
    out: &mut impl Write,
    write: fn(&Value) -> String,
) -> Result<(), Failure> {
    let answer = door.get_json(target)?;
    if args.json {
        writeln!(out, "{answer}")?;
    } else {
        out.write_all(write(&answer).as_bytes())?;
    }
    Ok(())
}

/// Looks twice, and returns what happened in between.
fn window(door: &DoorFile, args: &SeeArgs) -> Result<Value, SeeError> {
    let before = door.get_json(&view_target(args, None))?;
    pause(WINDOW);
    door.get_json(&view_target(args, before.get("view")))
}

fn ps(door: &DoorFile, args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let view = window(door, args)?;
    if args.json {
        writeln!(out, "{view}")?;
    } else {
        out.write_all(list::view(&view).as_bytes())?;
    }
    Ok(())
}

/// Prints what `top` shows, once.
fn once(door: &DoorFile, args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let view = window(door, args)?;
    let (about, workers) = (door.get_json("/about")?, door.get_json("/workers")?);
    let sections = sections::all(door, &about)?;
    if args.json {
        writeln!(
            out,
            "{}",
            json!({
                "version": 1, "about": about, "workers": workers, "view": view,
                "sections": sections,
            })
        )?;
    } else {
        let mut text = list::head(&about, &workers, &view) + &list::view(&view);
        for line in sections::lines(&sections) {
            text += &(line + "\n");
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn dump(door: &DoorFile, args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let seconds = args.seconds.map_or(String::new(), |seconds| format!("?seconds={seconds}"));
    let bytes = door.get(&format!("/trace{seconds}"))?;
    let path = &args.words[0];
    if path == "-" {
        out.write_all(&bytes)?;
        return Ok(());
    }
    let error = |error| SeeError::File(path.clone(), error);
    let mut file = create(Path::new(path)).map_err(error)?;
    if let Err(cause) = file.write_all(&bytes) {
        // A part of a trace looks like a trace. Ignored: the first error is the cause.
        let _ = fs::remove_file(path);
        return Err(error(cause).into());
    }
    Ok(())
}

/// Creates a file that only its owner can read, because labels may contain secrets.
fn create(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
