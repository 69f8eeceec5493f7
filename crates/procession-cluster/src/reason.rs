//! Exits of processes as the terms that BEAM nodes expect, and back.
//!
//! A failure has a text. If that is a term in the notation of Erlang, the term is the reason, so
//! that reasons pass through this node as they are.

use std::fmt::{self, Write};

use procession::Exit;

use crate::term::Term;

/// The longest text of a foreign reason, in bytes.
const TEXT_MAX: usize = 4096;

/// Returns the reason of an exit.
pub(crate) fn to_term(exit: &Exit) -> Term {
    let word = match exit {
        Exit::Normal => "normal",
        Exit::Shutdown => "shutdown",
        Exit::Killed => "killed",
        Exit::NoProcess => "noproc",
        Exit::NoConnection => "noconnection",
        Exit::Panicked(text) => return Term::tuple([Term::atom("panicked"), Term::from(&**text)]),
        Exit::Failed(text) => return failure(text),
        Exit::Disconnected(text) => {
            return Term::tuple([Term::atom("disconnected"), Term::from(&**text)]);
        }
        Exit::GaveUp(text) => return Term::tuple([Term::atom("gave_up"), Term::from(&**text)]),
        Exit::NameLost(name) => return Term::tuple([Term::atom("name_lost"), Term::from(&**name)]),
        Exit::Left => return Term::tuple([Term::atom("nodedown"), Term::atom("left")]),
        other => return Term::tuple([Term::atom("failed"), Term::from(other.to_string())]),
    };
    Term::atom(word)
}

/// Returns the reason of a failure: the term in its text, unless that means another exit.
fn failure(text: &str) -> Term {
    let is_same = |term: &Term| matches!(to_exit(term), Exit::Failed(again) if *again == *text);
    let term = text.parse().ok().filter(is_same);
    term.unwrap_or_else(|| Term::tuple([Term::atom("failed"), Term::from(text)]))
}

/// Returns the exit that a reason means. A reason without a matching exit becomes a failure with
/// its text.
pub(crate) fn to_exit(reason: &Term) -> Exit {
    match reason {
        Term::Atom(word) => match word.as_str() {
            "normal" => return Exit::Normal,
            "shutdown" => return Exit::Shutdown,
            "killed" | "kill" => return Exit::Killed,
            "noproc" => return Exit::NoProcess,
            "noconnection" => return Exit::NoConnection,
            _ => {}
        },
        Term::Tuple(items) => {
            if let [Term::Atom(word), detail] = &**items {
                match (word.as_str(), detail.to_text()) {
                    ("shutdown", _) => return Exit::Shutdown,
                    ("nodedown", _) if detail.is_atom("left") => return Exit::Left,
                    ("panicked", Some(text)) => return Exit::Panicked(text.into()),
                    ("failed", Some(text)) => return Exit::failed(text),
                    ("disconnected", Some(text)) => return Exit::disconnected(text),
                    ("gave_up", Some(text)) => return Exit::GaveUp(text.into()),
                    ("name_lost", Some(text)) => return Exit::NameLost(text.into()),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Exit::failed(bounded(reason))
}

/// Returns the text of a value, cut at the limit.
pub(crate) fn bounded(value: impl fmt::Display) -> String {
    text_within(TEXT_MAX, value).unwrap_or_else(|start| start)
}

/// Returns the text of a value, or the start of it if it has more bytes than `most`. It takes no
/// more memory either.
pub(crate) fn text_within(most: usize, value: impl fmt::Display) -> Result<String, String> {
    struct Bounded {
        text: String,
        most: usize,
    }

    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let mut end = text.len().min(self.most - self.text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            self.text.push_str(&text[..end]);
            if end < text.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }

    let mut out = Bounded { text: String::new(), most };
    match write!(out, "{value}") {
        Ok(()) => Ok(out.text),
        Err(fmt::Error) => Err(out.text),
    }
}

#[cfg(test)]
mod tests {
    use super::{TEXT_MAX, bounded, to_exit, to_term};
    use crate::term::Term;
    use procession::Exit;

    #[test]
    fn exits_come_back_as_they_were() {
        for exit in [
            Exit::Normal,
            Exit::Shutdown,
            Exit::Killed,
            Exit::NoProcess,
            Exit::NoConnection,
            Exit::failed("no room"),
            Exit::failed("boom"),
            Exit::failed("normal"),
            Exit::failed("{shutdown,7}"),
            Exit::failed("{ not,canonical}"),
            Exit::Panicked("index 7".into()),
            Exit::disconnected("connection reset"),
            Exit::GaveUp("too often".into()),
            Exit::NameLost("counter".into()),
            Exit::Left,
        ] {
            assert_eq!(to_exit(&to_term(&exit)), exit);
        }
    }

    /// Goal: a process that ends because of a foreign reason ends with that reason for others.
    #[test]
    fn foreign_reasons_pass_through() {
        for text in ["boom", "{badmatch,7}", "{error,<<\"no room\">>}", "[1.5,#{a => 'B c'}|-7]"] {
            let reason: Term = text.parse().expect("it is a term");
            let exit = to_exit(&reason);
            assert_eq!(exit, Exit::failed(text));
            assert_eq!(to_term(&exit), reason);
        }
        for text in ["no room", "normal", "kill", "{shutdown,7}", "{failed,<<\"x\">>}", "{ a}"] {
            let reason = Term::tuple([Term::atom("failed"), Term::from(text)]);
            assert_eq!(to_term(&Exit::failed(text)), reason);
        }
    }

    #[test]
    fn a_foreign_reason_becomes_text_of_limited_length() {
        let long = Term::from("ä".repeat(TEXT_MAX));
        let text = bounded(&long);
        assert!(text.len() <= TEXT_MAX && text.len() > TEXT_MAX - 4);
    }
}
