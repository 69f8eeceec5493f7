//! The form of calls, as `gen_server:call` makes them: `{'$gen_call', {Pid, Tag}, Request}`.

use crate::term::decode::Reader;
use crate::term::{Reference, Term};

/// Returns the reference in the tag of a call, if it has one as it should.
pub(crate) fn reference_of(tag: &Term) -> Option<&Reference> {
    match tag {
        Term::Reference(reference) => Some(reference),
        tag => alias_of(tag),
    }
}

/// Returns the alias at which a caller asks for the reply. A caller that stops waiting withdraws
/// the alias.
pub(crate) fn alias_of(tag: &Term) -> Option<&Reference> {
    match tag {
        Term::Improper(items, tail) => match (&**items, &**tail) {
            ([word], Term::Reference(alias)) if word.is_atom("alias") => Some(alias),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the reference of a call, of which only the request has no room. See
/// [`sort`](crate::letter::sort).
pub(super) fn call_of(mut reader: Reader<'_>) -> Option<Reference> {
    let is_call = reader.tuple_of(3) && reader.term().ok()?.is_atom("$gen_call");
    if !is_call || !reader.tuple_of(2) || !matches!(reader.term(), Ok(Term::Pid(_))) {
        return None;
    }
    reference_of(&reader.term().ok()?).cloned()
}

/// Returns the last item of a tuple that has items.
pub(crate) fn last(term: Term) -> Term {
    match term {
        Term::Tuple(mut items) => items.pop().unwrap_or(Term::Tuple(items)),
        other => other,
    }
}
