//! The commands that look into a running program through its door.

mod door;
pub(crate) mod format;
mod list;
pub(crate) mod own;
mod screen;
mod sections;
mod top;

use std::fmt;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use procession::look::{GroupKey, SortKey};
use serde_json::{Value, json};

use crate::run::Failure;
use door::DoorFile;

/// The time between the two looks of a command that shows one window.
const WINDOW: Duration = Duration::from_secs(1);
const TOP_DEFAULT: usize = 50;

/// A command that looks into a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verb {
    #[default]
    Top,
    Ps,
    Tree,
    Crashes,
    Stack,
    Inspect,
    Trace,
    Dump,
    Suspend,
    Resume,
    Kill,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::Ps => "ps",
            Self::Tree => "tree",
            Self::Crashes => "crashes",
            Self::Stack => "stack",
            Self::Inspect => "inspect",
            Self::Trace => "trace",
            Self::Dump => "dump",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Kill => "kill",
        }
    }

    /// Returns the words after the command, as the help shows them.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Top | Self::Ps | Self::Tree | Self::Crashes => " [TARGET]",
            Self::Dump => " FILE [TARGET]",
            Self::Stack
            | Self::Inspect
            | Self::Trace
            | Self::Suspend
            | Self::Resume
            | Self::Kill => " PID [TARGET]",
        }
    }

    /// Returns the number of words that have to be there.
    pub(crate) fn words_min(self) -> usize {
        match self {
            Self::Top | Self::Ps | Self::Tree | Self::Crashes => 0,
            _ => 1,
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Top => {
                "\
Shows which processes of a running program use the processor, which wait, and for what. It
looks again every second, or as seldom as it takes to use less than 1 % of the processors.
Press h for the keys. If standard output is no terminal, prints one look and ends.
"
            }
            Self::Ps => {
                "\
Lists the processes of a running program, with their shares of a processor in the last
second.
"
            }
            Self::Tree => "Shows the supervisors of a running program and their children.\n",
            Self::Crashes => {
                "Lists the last 64 processes that failed, the latest first, and the reasons.\n"
            }
            Self::Stack => {
                "\
Prints the stacks of a process of a running program: where it waits, or what its step does.
"
            }
            Self::Inspect => {
                "\
Prints what a process of a running program shows of itself. The program decides what that is,
by Process::inspect and Context::inspect_with.
"
            }
            Self::Trace => {
                "\
Prints the headers of the next messages that a process of a running program receives and sends:
when, from or to which process, and of which type. What is in them is not shown.
"
            }
            Self::Suspend => {
                "\
Stops a process of a running program after its present step, for a time. Its mailbox still
takes messages. The program must allow it by Observe::allow_actions.
"
            }
            Self::Resume => {
                "\
Lets a process that is suspended go on. The program must allow it by Observe::allow_actions.
"
            }
            Self::Dump => {
                "\
Writes the latest events of a running program to FILE, for the viewer at
https://ui.perfetto.dev. FILE must not exist yet; - is standard output.
"
            }
            Self::Kill => {
                "\
Terminates a process of a running program between two of its steps. The program must allow
it by Observe::allow_actions.
"
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct SeeArgs {
    pub(crate) verb: Verb,
    pub(crate) words: Vec<String>,
    pub(crate) json: bool,
    pub(crate) once: bool,
    pub(crate) sort: SortKey,
    pub(crate) group: Option<GroupKey>,
    pub(crate) top: usize,
    /// Names and values of filters, which the door checks.
    pub(crate) filters: Vec<(String, String)>,
    pub(crate) seconds: Option<u64>,
    /// The number of messages to trace.
    pub(crate) count: Option<u64>,
    /// The number of a report.
    pub(crate) number: Option<u64>,
    pub(crate) cancel: bool,
}

impl Default for SeeArgs {
    fn default() -> Self {
        Self {
            verb: Verb::Top,
            words: Vec::new(),
            json: false,
            once: false,
            sort: SortKey::Samples,
            group: None,
            top: TOP_DEFAULT,
            filters: Vec::new(),
            seconds: None,
            count: None,
            number: None,
            cancel: false,
        }
    }
}

/// The error of a look into another program.
#[derive(Debug)]
pub(crate) enum SeeError {
    /// No program has a door in this directory.
    NoDoor(PathBuf),
    /// No door fits the word.
    Unknown(String, Vec<String>),
    /// Several doors fit.
    Several(Vec<String>),
    Connection(PathBuf, io::Error),
    /// Something else listens at the socket.
    NoAnswer(PathBuf),
    /// The door refused the request. Holds its reason.
    Refused(String),
    File(String, io::Error),
    Terminal(io::Error),
}

impl fmt::Display for SeeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed =
            |doors: &[String]| doors.iter().map(|door| format!("\n  {door}")).collect::<String>();
        match self {
            Self::NoDoor(directory) => write!(
                f,
                "no program has a door in {}: start it with PROCESSION_OBSERVE=1, or call Builder::observe",
                directory.display()
            ),
            Self::Unknown(word, doors) => {
                write!(f, "no door fits '{word}'; these are open:{}", listed(doors))
            }
            Self::Several(doors) => {
                write!(f, "several doors are open; choose one by a word:{}", listed(doors))
            }
            Self::Connection(path, error) => {
                write!(f, "cannot look through {}: {error}", path.display())
            }
            Self::NoAnswer(path) => {
                write!(f, "{} gives no answer that makes sense", path.display())
            }
            Self::Refused(reason) => write!(f, "the program refused: {reason}"),
            Self::File(path, error) => write!(f, "cannot write {path}: {error}"),
            Self::Terminal(error) => write!(f, "the terminal failed: {error}"),
        }
    }
}

impl From<SeeError> for Failure {
    fn from(error: SeeError) -> Self {
        Self::See(error)
    }
}

/// Waits. There is nothing to wait for but time.
fn pause(duration: Duration) {
    let (sender, receiver) = mpsc::channel::<()>();
    // Ignored: nothing is sent, so this is the timeout.
    let _ = receiver.recv_timeout(duration);
    drop(sender);
}

pub(crate) fn run(args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
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
        Verb::Stack => show(&door, &process_target(args, "stack"), args, out, list::stacks),
        Verb::Inspect => show(&door, &process_target(args, "inspect"), args, out, list::fields),
        Verb::Trace => show(&door, &process_target(args, "messages"), args, out, list::messages),
        Verb::Dump => dump(&door, args, out),
        Verb::Suspend => act(&door, args, "suspend"),
        Verb::Resume => act(&door, args, "resume"),
        Verb::Kill => act(&door, args, if args.cancel { "cancel" } else { "terminate" }),
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

/// Returns the target of a look.
fn view_target(args: &SeeArgs, since: Option<&Value>) -> String {
    let mut target = format!("/view?sort={}&top={}", args.sort.name(), args.top);
    if let Some(key) = args.group {
        target.push_str(&format!("&group={}", key.name()));
    }
    for (name, value) in &args.filters {
        target.push_str(&format!("&{}={}", door::encode(name), door::encode(value)));
    }
    if let Some(number) = since.and_then(Value::as_u64) {
        target.push_str(&format!("&since={number}"));
    }
    target
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
    let mut file = fs::File::create_new(path).map_err(error)?;
    file.write_all(&bytes).map_err(error)?;
    Ok(())
}
