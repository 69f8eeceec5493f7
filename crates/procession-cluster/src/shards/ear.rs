//! The way of terms of other nodes to a router. It believes only what the node of the router that
//! speaks has sent, and reads no numbers beyond its limits.

use std::sync::Arc;

use procession::process::catch_panic;

use super::error::Refusal;
use super::limits::{HOPS_MAX, KEY_MAX};
use super::router::{Portable, Router};
use super::slot::{Envelope, Key};
use super::wire::{ASK, DONE, GIVEN, LEAVE, MESSAGE, MOVED, REFUSED, STATE};
use crate::node::{Node, TypedInlet};
use crate::term::{Atom, NodePid, Term};

/// The way of terms of other nodes to a router.
pub(super) struct Ear<M>(pub(super) Arc<Router<M>>);

impl<M: Portable> TypedInlet for Ear<M> {
    fn take(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> bool {
        // A message that is dropped may panic, here in the process of the connection.
        catch_panic(|| self.hear(node, own, sender, term)).flatten().is_some()
    }
}

impl<M: Portable> Ear<M> {
    fn shard(&self, term: &Term) -> Option<u32> {
        let shard = u32::try_from(term.as_integer()?).ok()?;
        (shard < self.0.count()).then_some(shard)
    }

    fn hear(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> Option<()> {
        let Term::Tuple(mut parts) = term else { return None };
        let content = parts.pop()?;
        let [Term::Atom(word), Term::Pid(via), leaves, rest @ ..] = &*parts else { return None };
        if via.node != *sender {
            return None;
        }
        let via = via.clone();
        match leaves.is_atom("true") {
            true => self.0.left(&via),
            false => self.0.met(&via),
        }
        match (word.as_str(), rest) {
            (ASK, []) => self.0.asked(&via, self.shard(&content)?),
            // That the router leaves was heard before.
            (LEAVE, []) => self.0.leaves(&via, self.shard(&content)?),
            (MOVED, []) => self.0.moved(&via, self.shard(&content)?),
            (GIVEN, [shard, other]) => {
                let Term::List(latest) = content else { return None };
                let latest = latest.iter().filter_map(|entry| match entry.as_tuple() {
                    Some([Term::Pid(origin), order]) => Some((origin, count(order)?)),
                    _ => None,
                });
                self.0.given(&via, self.shard(shard)?, other.as_pid(), latest);
            }
            (DONE, []) => self.0.done(&via, count(&content)?),
            (STATE, [shard, hops, key]) => {
                let (shard, hops, key) = (self.shard(shard)?, hop_count(hops)?, key_of(key)?);
                self.0.restore(shard, hops, &key, content);
            }
            (REFUSED, [call, Term::Atom(why), key]) => {
                let (call, key, why) = (count(call)?, key_of(key)?, Refusal::of_word(why.as_str()));
                let Some(message) = node.read_converted(own, sender, content) else {
                    self.0.unreadable(&via);
                    return None;
                };
                self.0.settle(&via);
                self.0.returned(&key, call, message, why);
            }
            (MESSAGE, [shard, Term::Pid(origin), order, call, hops, key]) => {
                let (shard, key) = (self.shard(shard)?, key_of(key)?);
                let (order, call) = (count(order)?, count(call)?);
                let (origin, hops) = (origin.clone(), hop_count(hops)?);
                let Some(message) = node.read_converted(own, sender, content) else {
                    self.0.unreadable(&via);
                    return None;
                };
                let envelope = Envelope { origin, number: order, call, hops, via, message };
                self.0.arrive(shard, key, envelope);
            }
            _ => return None,
        }
        Some(())
    }
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
