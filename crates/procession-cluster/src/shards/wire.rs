//! What the routers of two nodes say to each other, as terms. Each begins with a word, the router
//! that speaks, and whether it takes no shards any more.

use std::collections::BTreeMap;

use super::error::Refusal;
use super::limits::{HOPS_MAX, KEY_MAX};
use super::slot::{Envelope, Key};
use crate::term::{NodePid, Term};

const MESSAGE: &str = "message";
const ASK: &str = "ask";
const LEAVE: &str = "leave";
const MOVED: &str = "moved";
const GIVEN: &str = "given";
const STATE: &str = "state";
const REFUSED: &str = "refused";
const DONE: &str = "done";

/// What another router says.
#[derive(Debug)]
pub(super) enum Word {
    Message {
        shard: u32,
        origin: NodePid,
        order: u64,
        call: u64,
        hops: u8,
        key: Key,
        content: Term,
    },
    Ask(u32),
    Leave(u32),
    Moved(u32),
    Given {
        shard: u32,
        other: Option<NodePid>,
        latest: Vec<(NodePid, u64)>,
    },
    State {
        shard: u32,
        hops: u8,
        key: Key,
        state: Term,
    },
    Refused {
        call: u64,
        why: Refusal,
        key: Key,
        content: Term,
    },
    Done(u64),
}

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

/// Returns the router that speaks, whether it takes no shards any more, and what it says. Reads no
/// shard beyond their number, and no other number beyond its limit.
pub(super) fn read(term: Term, shards: u32) -> Option<(NodePid, bool, Word)> {
    let Term::Tuple(mut parts) = term else { return None };
    let last = parts.pop()?;
    let [Term::Atom(word), Term::Pid(via), leaves, rest @ ..] = &*parts else { return None };
    let shard = |term: &Term| {
        let shard = u32::try_from(term.as_integer()?).ok()?;
        (shard < shards).then_some(shard)
    };
    let word = match (word.as_str(), rest) {
        (ASK, []) => Word::Ask(shard(&last)?),
        (LEAVE, []) => Word::Leave(shard(&last)?),
        (MOVED, []) => Word::Moved(shard(&last)?),
        (GIVEN, [number, other]) => {
            let Term::List(latest) = last else { return None };
            let latest = latest.iter().filter_map(|entry| match entry.as_tuple() {
                Some([Term::Pid(origin), order]) => Some((origin.clone(), count(order)?)),
                _ => None,
            });
            let (shard, other) = (shard(number)?, other.as_pid().cloned());
            Word::Given { shard, other, latest: latest.collect() }
        }
        (DONE, []) => Word::Done(count(&last)?),
        (STATE, [number, hops, key]) => {
            let (shard, hops, key) = (shard(number)?, hop_count(hops)?, key_of(key)?);
            Word::State { shard, hops, key, state: last }
        }
        (REFUSED, [call, Term::Atom(why), key]) => {
            let (call, why, key) = (count(call)?, Refusal::of_word(why.as_str()), key_of(key)?);
            Word::Refused { call, why, key, content: last }
        }
        (MESSAGE, [number, Term::Pid(origin), order, call, hops, key]) => Word::Message {
            shard: shard(number)?,
            origin: origin.clone(),
            order: count(order)?,
            call: count(call)?,
            hops: hop_count(hops)?,
            key: key_of(key)?,
            content: last,
        },
        _ => return None,
    };
    Some((via.clone(), leaves.is_atom("true"), word))
}

fn count(term: &Term) -> Option<u64> {
    u64::try_from(term.as_integer()?).ok()
}

fn hop_count(term: &Term) -> Option<u8> {
    u8::try_from(term.as_integer()?).ok().filter(|hops| *hops <= HOPS_MAX)
}

fn key_of(term: &Term) -> Option<Key> {
    term.as_bytes().filter(|key| key.len() <= KEY_MAX).map(Key::from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{ask, done, given, leave, message, moved, read, refused, state};
    use crate::release::corpus::{self, pid};
    use crate::shards::error::Refusal;
    use crate::shards::slot::{Envelope, Key};
    use crate::term::Term;

    #[test]
    fn words_of_routers_are_those_of_the_protocol() {
        let (own, key) = (pid(1), Key::from(&b"key"[..]));
        let (stays, leaves) = ((&own, false), (&own, true));
        let (origin, via) = (pid(2), pid(3));
        let (number, request) = (17, None);
        let envelope = Envelope { origin, number, call: 18, hops: 2, via, request, message: () };
        let content = || Term::atom("content");
        let words = [
            message(stays, (5, &key), &envelope, 17, content()),
            ask(stays, 5),
            leave(leaves, 5),
            moved(stays, 5),
            given(leaves, 5, None, &BTreeMap::new()),
            given(stays, 5, Some(&pid(4)), &BTreeMap::from([(pid(2), 17)])),
            state(leaves, 5, 2, &key, content()),
            refused(stays, &key, 18, Refusal::QueueFull, content()),
            done(stays, 64),
        ];
        let reads = |word| read(word, 8).is_some_and(|(via, ..)| via == own);
        corpus::check("shards", &words, reads);
        let beyond = |word| read(word, 5).is_none();
        assert!(beyond(ask(stays, 5)) && beyond(state(stays, 4, 9, &key, content())));
    }
}
