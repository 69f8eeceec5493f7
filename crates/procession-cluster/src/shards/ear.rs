//! The way of terms of other nodes to a router. It believes only what the node of the router that
//! speaks has sent.

use std::sync::Arc;

use procession::mailbox::request::context;
use procession::process::catch_panic;

use super::router::{Portable, Router};
use super::slot::Envelope;
use super::wire::{self, Word};
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
    fn hear(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> Option<()> {
        let heard = wire::read(term, self.0.count());
        let (via, leaves, word) = heard.filter(|(via, ..)| via.node == *sender)?;
        match leaves {
            true => self.0.left(&via),
            false => self.0.met(&via),
        }
        let message = |content| {
            let message = node.read_converted(own, sender, content);
            if message.is_none() {
                self.0.unreadable(&via);
            }
            message
        };
        match word {
            Word::Ask(shard) => self.0.asked(&via, shard),
            // That the router leaves was heard before.
            Word::Leave(shard) => self.0.leaves(&via, shard),
            Word::Moved(shard) => self.0.moved(&via, shard),
            Word::Given { shard, other, latest } => {
                let latest = latest.iter().map(|(origin, order)| (origin, *order));
                self.0.given(&via, shard, other.as_ref(), latest);
            }
            Word::Done(count) => self.0.done(&via, count),
            Word::State { shard, hops, key, state } => self.0.restore(shard, hops, &key, state),
            Word::Refused { call, why, key, content } => {
                let message = message(content)?;
                self.0.settle(&via);
                self.0.returned(&key, call, message, why);
            }
            Word::Message { shard, origin, order, call, hops, key, content } => {
                let message = message(content)?;
                let (number, request) = (order, context());
                let envelope = Envelope { origin, number, call, hops, via, request, message };
                self.0.arrive(shard, key, envelope);
            }
        }
        Some(())
    }
}
