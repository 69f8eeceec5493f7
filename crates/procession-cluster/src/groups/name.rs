//! What a group is called here and on other nodes.

use std::sync::Arc;

use crate::reason::text_within;
use crate::term::encode::Writer;
use crate::term::{Atom, Term};

/// The longest name of a group that nodes share, in bytes.
const NAME_MAX: usize = 4096;

/// Returns the name that a group of the BEAM has in [`Groups`](procession::process::Groups): the
/// text of an atom, and the notation of any other term.
///
/// ```
/// use procession_cluster::{Term, group_name};
///
/// assert_eq!(&*group_name(&Term::atom("lobby")), "lobby");
/// assert_eq!(&*group_name(&Term::tuple([Term::atom("room"), Term::from(7)])), "{room,7}");
/// ```
pub fn group_name(group: &Term) -> Arc<str> {
    match group {
        Term::Atom(atom) => atom.as_str().into(),
        other => other.to_string().into(),
    }
}

/// Returns the group that a name means on other nodes. `None` if there is none: an atom has at most
/// 255 characters.
pub(crate) fn group_of(name: &str) -> Option<Term> {
    match name.parse::<Term>() {
        Ok(term)
            if !matches!(term, Term::Atom(_))
                && *group_name(&term) == *name
                && is_sendable(name, &term) =>
        {
            Some(term)
        }
        _ => Atom::new(name).map(Term::Atom),
    }
}

/// Returns `true` if a group can be sent in each message. Otherwise, for example, a map has a key
/// twice.
fn is_sendable(name: &str, group: &Term) -> bool {
    // The levels around a group in a `sync`.
    let message = (0..4).fold(group.clone(), |inner, _| Term::tuple([inner]));
    name.len() <= NAME_MAX && Writer::new(&mut Vec::new()).term(&message).is_ok()
}

/// Returns the name of a group of another node. `None` if it is longer than allowed.
pub(super) fn known_name(group: &Term) -> Option<Arc<str>> {
    match group {
        Term::Atom(atom) => Some(atom.as_str().into()),
        other => text_within(NAME_MAX, other).ok().map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::{NAME_MAX, group_name, group_of, known_name};
    use crate::term::Term;

    #[test]
    fn a_group_has_the_same_name_on_all_nodes() {
        for text in ["lobby", "{room,7}", "<<\"room\">>", "[1,2]", "7", "'Elixir.Shop.PubSub'"] {
            let group: Term = text.parse().expect("it is a term");
            assert_eq!(group_of(&group_name(&group)), Some(group));
        }
        for name in ["lobby", "no room", "Lobby", "{ room,7}", ""] {
            assert_eq!(group_of(name), Some(Term::atom(name)));
        }
        assert_eq!(group_of(&"x".repeat(256)), None);
        // What cannot be sent in all messages, and what is too long.
        let deep = |levels| format!("{}7{}", "{".repeat(levels), "}".repeat(levels));
        assert_eq!(group_of(&deep(123)), deep(123).parse().ok());
        for name in [&deep(124), "#{a => 1,a => 2}"] {
            assert!(name.parse::<Term>().is_ok());
            assert_eq!(group_of(name), Some(Term::atom(name)));
        }
        let long = |count| format!("[{}1]", "1,".repeat(count));
        assert!(group_of(&long(2046)).is_some() && group_of(&long(2047)).is_none());
        let binary = |count| Term::from(vec![0; count]);
        assert_eq!(known_name(&binary(1000)), Some(group_name(&binary(1000))));
        assert_eq!(known_name(&binary(NAME_MAX)), None);
    }
}
