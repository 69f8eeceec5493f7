//! Failures of programs and processes, and their texts, as others see them.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use procession::Exit;

/// A failure of the function of a process.
pub(crate) type Failure = Box<dyn StdError + Send + Sync>;

/// The number of bytes of a text that are kept.
const BYTES_MAX: usize = 64 * 1024;
const TRACEBACK: &str = "stack traceback:";
/// How `mlua` begins the text of an error.
const RUNTIME_ERROR: &str = "runtime error: ";
/// The place of an error that Lua itself raises in a function of the library, which has no line
/// information. Errors of functions in C have no place either.
pub(crate) const NOWHERE: &str = "?:-1: ";

/// Returns the text of an error without the frames of the library and of functions in C, and
/// without characters that control a terminal.
pub(crate) fn cleaned(text: &str) -> String {
    let (message, traceback) = match text.rfind(TRACEBACK) {
        Some(at) => (text[..at].trim_end_matches('\n'), &text[at + TRACEBACK.len()..]),
        None => (text, ""),
    };
    let kind = if message.starts_with(RUNTIME_ERROR) { RUNTIME_ERROR } else { "" };
    let message = &message[kind.len()..];
    let message = message.strip_prefix(NOWHERE).unwrap_or(message);
    let mut cleaned = kind.to_owned() + &printable(message);
    let frames = frames(traceback);
    if !frames.is_empty() {
        cleaned.push('\n');
        cleaned += TRACEBACK;
        for frame in frames {
            cleaned.push('\n');
            cleaned += &printable(frame);
        }
    }
    cleaned
}

/// Returns the lines of a traceback that are about the program.
fn frames(traceback: &str) -> Vec<&str> {
    let mut frames = Vec::new();
    let mut is_hosts = true;
    for line in traceback.lines().filter(|line| !line.is_empty()) {
        // A tail call belongs to the frame before it.
        if !line.starts_with("\t(...tail") {
            is_hosts = ["\t[C]: in ", "\t?: in ", "\tprocession:"]
                .iter()
                .any(|prefix| line.starts_with(prefix));
        }
        if !is_hosts {
            frames.push(line);
        }
    }
    frames
}

/// Returns a text in which characters that control a terminal are escaped, and the end of a very
/// long one is left out.
fn printable(text: &str) -> String {
    let is_kept = |next: char| !next.is_control() || next == '\n' || next == '\t';
    let fits = |&(start, next): &(usize, char)| start + next.len_utf8() <= BYTES_MAX;
    let mut printable = String::with_capacity(text.len().min(BYTES_MAX));
    for (_, next) in text.char_indices().take_while(fits) {
        match is_kept(next) {
            true => printable.push(next),
            false => printable.extend(next.escape_default()),
        }
    }
    if text.len() > BYTES_MAX {
        printable += "...";
    }
    printable
}

/// Returns the name of a function as it is shown. A program may choose any bytes.
pub(crate) fn label(function: &str) -> String {
    printable(function).replace(['\n', '\t'], " ")
}

/// The error of a program that did not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file of the program cannot be read.
    Read {
        /// The path of the file.
        program: String,
        /// The cause.
        cause: io::Error,
    },
    /// The source is not valid Lua.
    Load {
        /// The name of the program.
        program: String,
        /// The error in the source, with its line.
        cause: String,
    },
    /// A process of the program was not started.
    Start {
        /// The name of the program.
        program: String,
        /// The function that it should call.
        function: String,
        /// The cause.
        cause: String,
    },
    /// A process ended without a result.
    Ended(Exit),
}

impl From<Exit> for Error {
    fn from(exit: Exit) -> Self {
        Self::Ended(exit)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { program, cause } => {
                write!(f, "cannot read {}: {cause}", label(program))
            }
            Self::Load { program, cause } => {
                write!(f, "cannot load {}: {cause}", label(program))
            }
            Self::Start { program, function, cause } => {
                let (program, function) = (label(program), label(function));
                write!(f, "cannot start {function} of {program}: {cause}")
            }
            Self::Ended(exit) => exit.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            Self::Ended(exit) => Some(exit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, cleaned, printable};

    #[test]
    fn only_frames_of_the_program_are_left() {
        let text = "runtime error: main:1: broken\nstack traceback:\n\t[C]: in function 'error'\n\t?: in function <?:263>\n\t(...tail calls...)\n\tmain:1: in upvalue 'deep'\n\t(...tail calls...)\n\tmain:2: in function 'main'";
        let expected = "runtime error: main:1: broken\nstack traceback:\n\tmain:1: in upvalue 'deep'\n\t(...tail calls...)\n\tmain:2: in function 'main'";
        assert_eq!(cleaned(text), expected);
        assert_eq!(cleaned("broken\nstack traceback:\n\t[C]: in ?"), "broken");
        assert_eq!(cleaned("runtime error: ?:-1: broken"), "runtime error: broken");
        assert_eq!(cleaned("?:-1: a ?:-1: b"), "a ?:-1: b");
    }

    #[test]
    fn controls_are_escaped_and_long_texts_are_cut() {
        assert_eq!(printable("a\x1b[2J\u{9b}\tb\n"), "a\\u{1b}[2J\\u{9b}\tb\n");
        assert_eq!(printable(&"\u{e9}".repeat(BYTES_MAX)).len(), BYTES_MAX + 3);
    }
}
