//! The text of reports: one line, escaped and bounded.

use std::fmt;
use std::fmt::Write as _;

use crate::Exit;

/// The maximum length of a label, a name or an id in a report, in bytes.
pub(crate) const NAME_MAX: usize = 80;

/// The maximum length of the reason of a failure in a report, in bytes.
pub(crate) const REASON_MAX: usize = 640;

/// The character that stands for text that was cut.
const ELLIPSIS: char = '…';

/// A text in one line, of at most so many bytes. Control characters, and characters that change the
/// direction of text, are escaped. If the text is longer, it ends with an ellipsis.
pub(crate) struct Escaped<'a>(pub(crate) &'a str, pub(crate) usize);

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.1;
        for c in self.0.chars() {
            let length = if is_unsafe(c) { c.escape_default().count() } else { c.len_utf8() };
            let Some(rest) = left.checked_sub(length) else { return f.write_char(ELLIPSIS) };
            left = rest;
            if is_unsafe(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// A label, a name or an id, in quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(self.0, NAME_MAX))
    }
}

/// The end of a process as the predicate of a sentence, with the place of its panic if that is
/// known.
pub(crate) struct EndedText<'a>(pub(crate) &'a Exit, pub(crate) Option<&'a str>);

impl fmt::Display for EndedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Exit::Panicked(text) = self.0 {
            f.write_str("panicked")?;
            if let Some(place) = self.1 {
                write!(f, " at {place}")?;
            }
            write!(f, ": {}", Escaped(text, REASON_MAX))?;
            return match advice_for(text) {
                Some(advice) => write!(f, "; {advice}"),
                None => Ok(()),
            };
        }
        match (self.0, self.1) {
            (Exit::Failed(text), _) => write!(f, "failed: {}", Escaped(text, REASON_MAX)),
            (Exit::Disconnected(text), _) => {
                write!(f, "lost its connection: {}", Escaped(text, REASON_MAX))
            }
            (Exit::GaveUp(text), _) => write!(f, "gave up: {}", Escaped(text, REASON_MAX)),
            (Exit::NameLost(name), _) => write!(f, "lost its name: {}", Escaped(name, REASON_MAX)),
            (Exit::Normal, _) => f.write_str("ended normally"),
            (Exit::Shutdown, _) => f.write_str("was shut down"),
            (Exit::Killed, _) => f.write_str("was terminated"),
            (Exit::WaitsForNothing, _) => {
                f.write_str("ended: it waits for completions, but none is outstanding")
            }
            (Exit::MailboxFull, _) => f.write_str("ended: its mailbox was full"),
            (exit, _) => write!(f, "ended: {exit}"),
        }
    }
}

/// Returns what to do about a panic, if it is one of tokio's because a scheduler has no tokio
/// runtime: the text of that panic names no way to get one.
pub(crate) fn advice_for(panic: &str) -> Option<&'static str> {
    const TEXTS: [&str; 3] =
        ["there is no reactor running", "requires a Tokio context", "context of a Tokio 1.x"];
    let is_about_tokio = TEXTS.iter().any(|text| panic.contains(text));
    is_about_tokio.then_some(if cfg!(feature = "tokio") {
        "this scheduler has no tokio runtime: let `Builder::tokio_threads` be more than 0, \
         in a test with `#[test(tokio_threads = 1)]`"
    } else {
        "enable the feature `tokio` of procession, which gives each scheduler a tokio runtime"
    })
}

#[cfg(test)]
mod tests {
    use super::{EndedText, Escaped};
    use crate::Exit;
    use crate::sys::stderr::line_of;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_kept() {
        let text = Escaped("a\x1b[31m\r\n\t\0\u{202e}\u{9b}é\"\\", 100).to_string();
        assert_eq!(text, "a\\u{1b}[31m\\r\\n\\t\\u{0}\\u{202e}\\u{9b}é\"\\");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(Escaped("ééé", 6).to_string(), "ééé");
        assert_eq!(Escaped("ééé", 5).to_string(), "éé…");
        assert_eq!(Escaped("a\n", 2).to_string(), "a…");
        assert_eq!(Escaped("", 0).to_string(), "");
    }

    #[test]
    fn a_long_reason_leaves_room_for_what_follows() {
        let exit = Exit::failed("\n".repeat(5000));
        let line = line_of(&format_args!("{} (restart 1 of 2)", EndedText(&exit, None)));
        assert!(line.ends_with("\\n… (restart 1 of 2)\n"), "{line}");
    }
}
