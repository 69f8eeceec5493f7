//! The form of calls, as `gen_server:call` makes them: `{'$gen_call', {Pid, Tag}, Request}`, and of
//! the requests that OTP makes of any process.

use crate::term::{NodePid, Reference, Term};

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

/// Returns the last item of a tuple that has items.
pub(crate) fn last(term: Term) -> Term {
    match term {
        Term::Tuple(mut items) => items.pop().unwrap_or(Term::Tuple(items)),
        other => other,
    }
}

/// A request to a process that is not for its mailbox as it is.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) caller: NodePid,
    pub(crate) tag: Term,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A request of `sys`.
    System(Term),
    /// An event for the mailbox, and the caller waits until the mailbox has it.
    Event(Term),
}

impl Request {
    /// Reads `{system, {Caller, Tag}, Request}` and `{Caller, {Caller, Tag}, {sync_notify,
    /// Event}}`. Any other term is returned.
    pub(crate) fn read(term: Term) -> Result<Self, Term> {
        let Some([head, Term::Tuple(from), request]) = term.as_tuple() else { return Err(term) };
        let [Term::Pid(caller), tag] = &**from else { return Err(term) };
        let is_system = head.is_atom("system");
        let is_event = head.as_pid() == Some(caller)
            && matches!(request.as_tuple(), Some([word, _]) if word.is_atom("sync_notify"));
        if !is_system && !is_event {
            return Err(term);
        }
        let (caller, tag) = (caller.clone(), tag.clone());
        let request = last(term);
        let kind = match is_system {
            true => Kind::System(request),
            false => Kind::Event(Term::tuple([Term::atom("notify"), last(request)])),
        };
        Ok(Self { caller, tag, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Request};
    use crate::term::{Atom, NodePid, Reference, Term};

    #[test]
    fn only_requests_of_otp_are_taken_for_them() {
        let caller = NodePid { node: Atom::known("b@127.0.0.1"), id: 9, serial: 0, creation: 7 };
        let other = NodePid { id: 10, ..caller.clone() };
        let tag = Reference::new(caller.node.clone(), 7, &[1]).expect("it has a word");
        let from = Term::tuple([caller.clone().into(), tag.into()]);
        let with = |head: Term, request: Term| Term::tuple([head, from.clone(), request]);
        let notify = Term::tuple([Term::atom("sync_notify"), Term::from(7)]);
        let system = Request::read(with(Term::atom("system"), Term::atom("get_state")));
        assert!(
            matches!(system, Ok(Request { kind: Kind::System(word), .. }) if word.is_atom("get_state"))
        );
        let event = Request::read(with(caller.clone().into(), notify.clone()));
        let told = Term::tuple([Term::atom("notify"), Term::from(7)]);
        assert!(matches!(event, Ok(Request { kind: Kind::Event(event), .. }) if event == told));
        for term in [
            with(Term::atom("$gen_call"), notify.clone()),
            with(other.into(), notify),
            with(caller.into(), Term::atom("which_handlers")),
            Term::tuple([Term::atom("system"), Term::from(1), Term::from(2)]),
            Term::atom("system"),
        ] {
            assert_eq!(Request::read(term.clone()).err(), Some(term));
        }
    }
}
