//! What the routers of two nodes say to each other, as terms. Each begins with a word, the router
//! that speaks, and whether it takes no shards any more.

use std::collections::BTreeMap;

use super::error::Refusal;
use super::slot::{Envelope, Key};
use crate::term::{NodePid, Term};

pub(super) const MESSAGE: &str = "message";
pub(super) const ASK: &str = "ask";
pub(super) const LEAVE: &str = "leave";
pub(super) const MOVED: &str = "moved";
pub(super) const GIVEN: &str = "given";
pub(super) const STATE: &str = "state";
pub(super) const REFUSED: &str = "refused";
pub(super) const DONE: &str = "done";

/// The router that speaks, and whether it takes no shards any more.
pub(super) type Speaker<'a> = (&'a NodePid, bool);

fn say(word: &str, (own, leaves): Speaker<'_>, parts: impl IntoIterator<Item = Term>) -> Term {
    let head = [Term::atom(word), own.clone().into(), Term::from(leaves)];
    Term::tuple(head.into_iter().chain(parts))
}

fn number(value: u64) -> Term {
    Term::from(i64::try_from(value).unwrap_or(i64::MAX))
}

fn bytes(key: &Key) -> Term {
    Term::from(key.to_vec())
}

/// Returns the term of a message with this number.
pub(super) fn message<M>(
    own: Speaker<'_>,
    (shard, key): (u32, &Key),
    envelope: &Envelope<M>,
    order: u64,
    content: Term,
) -> Term {
    let Envelope { origin, call, hops, .. } = envelope;
    let head = [Term::from(shard), origin.clone().into(), number(order), number(*call)];
    say(MESSAGE, own, head.into_iter().chain([Term::from(*hops), bytes(key), content]))
}

/// Asks the router of an earlier home for a shard.
pub(super) fn ask(own: Speaker<'_>, shard: u32) -> Term {
    say(ASK, own, [Term::from(shard)])
}

/// Asks a router that may send messages of a shard to this node, which leaves, to send no more.
pub(super) fn leave(own: Speaker<'_>, shard: u32) -> Term {
    say(LEAVE, own, [Term::from(shard)])
}

/// Says to a router that leaves that this node sends the messages of a shard elsewhere.
pub(super) fn moved(own: Speaker<'_>, shard: u32) -> Term {
    say(MOVED, own, [Term::from(shard)])
}

/// Says that this node has nothing left of a shard. `other` is a third node that may have processes
/// of it, and `latest` are the messages that no earlier message may follow.
pub(super) fn given(
    own: Speaker<'_>,
    shard: u32,
    other: Option<&NodePid>,
    latest: &BTreeMap<NodePid, u64>,
) -> Term {
    let other = other.map_or_else(|| Term::atom("none"), |other| other.clone().into());
    let latest =
        latest.iter().map(|(origin, order)| Term::tuple([origin.clone().into(), number(*order)]));
    say(GIVEN, own, [Term::from(shard), other, Term::list(latest)])
}

/// Hands the state of a key over.
pub(super) fn state(own: Speaker<'_>, shard: u32, hops: u8, key: &Key, state: Term) -> Term {
    say(STATE, own, [Term::from(shard), Term::from(hops), bytes(key), state])
}

pub(super) fn is_state(term: &Term) -> bool {
    matches!(term.as_tuple(), Some([word, ..]) if word.is_atom(STATE))
}

/// Returns a message to its origin.
pub(super) fn refused(own: Speaker<'_>, key: &Key, call: u64, why: Refusal, content: Term) -> Term {
    say(REFUSED, own, [number(call), Term::atom(why.word()), bytes(key), content])
}

/// Says how many messages of a router have been received by processes, or passed on.
pub(super) fn done(own: Speaker<'_>, count: u64) -> Term {
    say(DONE, own, [number(count)])
}
