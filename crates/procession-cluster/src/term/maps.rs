//! Maps with atoms as keys, which nodes of this crate exchange for the questions of people.

use crate::term::{Atom, Term};

/// A map with atoms as keys.
pub(crate) fn map(pairs: impl IntoIterator<Item = (&'static str, Term)>) -> Term {
    Term::Map(pairs.into_iter().map(|(key, value)| (Term::atom(key), value)).collect())
}

pub(crate) fn get<'a>(map: &'a Term, key: &str) -> Option<&'a Term> {
    let Term::Map(pairs) = map else { return None };
    pairs.iter().find(|(word, _)| word.is_atom(key)).map(|(_, value)| value)
}

pub(crate) fn get_atom(map: &Term, key: &str) -> Option<Atom> {
    match get(map, key)? {
        Term::Atom(atom) => Some(atom.clone()),
        _ => None,
    }
}

pub(crate) fn get_number<T: TryFrom<i64>>(map: &Term, key: &str) -> Option<T> {
    T::try_from(get(map, key)?.as_integer()?).ok()
}

/// Reads a text, which is a binary.
pub(crate) fn get_text(map: &Term, key: &str) -> Option<String> {
    String::from_utf8(get(map, key)?.as_bytes()?.to_vec()).ok()
}

/// Reads a list of at most so many items. A longer one is not read at all: what a few bytes of the
/// other node refer to may be long once it is copied.
pub(crate) fn get_list<T>(
    map: &Term,
    key: &str,
    most: usize,
    item: impl FnMut(&Term) -> Option<T>,
) -> Option<Vec<T>> {
    let Term::List(items) = get(map, key)? else { return None };
    if items.len() > most {
        return None;
    }
    items.iter().map(item).collect()
}

/// A number that is for people, so that its highest bit may be lost.
pub(crate) fn number(value: impl TryInto<i64>) -> Term {
    Term::Integer(value.try_into().unwrap_or(i64::MAX))
}

pub(crate) fn optional(value: Option<impl TryInto<i64>>) -> Term {
    value.map_or(Term::atom("undefined"), number)
}

pub(crate) fn optional_text(value: Option<&str>) -> Term {
    value.map_or(Term::atom("undefined"), Term::from)
}
