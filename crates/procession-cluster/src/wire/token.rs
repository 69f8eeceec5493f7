//! The trace contexts of messages and of requests to start a process.
//!
//! A trace context travels as the label of a *trace token*, with which Erlang's `seq_trace` marks
//! messages: `{Flags, Label, Serial, From, Last}`. The label is the `traceparent` as a binary, or a
//! tuple of that and the `tracestate`. The flags are 0, so that a node of the BEAM traces nothing.
//! Its processes pass the token on with what they send, as processes here do with their request,
//! and the function `seq_trace:get_token(label)` returns the label.

use procession::mailbox::request::RequestContext;

use crate::term::{NodePid, Term};

/// The longest part of a label that is read, in bytes. A `tracestate` has at most 32 members, of at
/// most 514 bytes each.
const LABEL_MAX: usize = 1 << 15;

/// Returns the token of a message from `from`.
pub(crate) fn of(request: &RequestContext, from: &NodePid) -> Term {
    let parent = Term::from(request.traceparent());
    let label = match request.state() {
        Some(state) => Term::tuple([parent, Term::from(state)]),
        None => parent,
    };
    Term::tuple([0_i64.into(), label, 0_i64.into(), from.into(), 0_i64.into()])
}

/// Returns the request that a token names. Other programs use labels for other purposes, so a label
/// that is no trace context is ignored.
pub(crate) fn request_of(token: &Term) -> Option<RequestContext> {
    let [_, label, ..] = token.as_tuple()? else { return None };
    let (parent, state) = match label.as_tuple() {
        Some([parent, state]) => (parent, Some(state)),
        Some(_) => return None,
        None => (label, None),
    };
    let context: RequestContext = text_of(parent)?.parse().ok()?;
    Some(match state.and_then(text_of) {
        Some(state) => context.with_state(state),
        None => context,
    })
}

fn text_of(term: &Term) -> Option<&str> {
    let bytes = term.as_bytes().filter(|bytes| bytes.len() <= LABEL_MAX)?;
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use procession::mailbox::request::RequestContext;

    use super::{of, request_of};
    use crate::term::decode::Reader;
    use crate::term::{Atom, NodePid, Reference, Term};
    use crate::wire::control::{Control, SpawnRequest, Target};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context() -> RequestContext {
        PARENT.parse().expect("it is valid")
    }

    #[test]
    fn an_operation_carries_the_request_of_its_message() {
        let pid = |id| NodePid { node: Atom::known("a@b"), id, serial: 0, creation: 3 };
        for to in [Target::Pid(pid(2)), Target::Name(Atom::known("bank"))] {
            for request in [None, Some(context()), Some(context().with_state("a=1,b=2"))] {
                let sent = Control::Send { from: Some(pid(1)), to: to.clone(), request };
                let mut bytes = Vec::new();
                sent.write(&mut bytes).expect("it is short");
                let mut reader = Reader::new(&bytes, &[], 1 << 16);
                assert_eq!(Control::read(&mut reader), Ok(sent));
                reader.end().expect("nothing is behind it");
            }
        }
    }

    #[test]
    fn a_start_carries_the_request_of_its_caller() {
        let from = NodePid { node: Atom::known("a@b"), id: 1, serial: 0, creation: 3 };
        for request in [None, Some(context().with_state("a=1,b=2"))] {
            let sent = Control::Spawn(Box::new(SpawnRequest {
                id: Reference::new(Atom::known("a@b"), 3, &[5]).expect("it has a word"),
                group_leader: Term::from(&from),
                from: from.clone(),
                module: Atom::known("shop"),
                function: Atom::known("worker"),
                arity: 2,
                links: true,
                monitors: false,
                request,
            }));
            let mut bytes = Vec::new();
            sent.write(&mut bytes).expect("it is short");
            let mut reader = Reader::new(&bytes, &[], 1 << 16);
            assert_eq!(Control::read(&mut reader), Ok(sent));
            reader.end().expect("nothing is behind it");
        }
    }

    #[test]
    fn other_tokens_are_ignored() {
        let pid = NodePid { node: Atom::known("a@b"), id: 1, serial: 0, creation: 3 };
        let good = of(&context(), &pid);
        assert_eq!(request_of(&good), Some(context()));
        let labelled = |label: Term| Term::tuple([1_i64.into(), label]);
        for token in [
            Term::atom("undefined"),
            Term::tuple([]),
            labelled(7_i64.into()),
            labelled(Term::from("00-00-00-00")),
            labelled(Term::from(vec![0xff; 55])),
            labelled(Term::tuple([Term::from(PARENT)])),
        ] {
            assert_eq!(request_of(&token), None, "{token:?}");
        }
        let bad_state = labelled(Term::tuple([Term::from(PARENT), Term::from("nothing")]));
        assert_eq!(request_of(&bad_state), Some(context()));
    }
}
