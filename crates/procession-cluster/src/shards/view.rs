//! The nodes that have shards, and which of them is the home of a shard.

use std::collections::{BTreeMap, BTreeSet};

use procession::Pid;

use crate::term::{Atom, NodePid};

/// Returns a hash that is the same in each process, on each platform and in each release, because
/// nodes must agree on it: FNV-1a, and the last step of SplitMix64 to spread it.
pub(super) fn stable_hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash =
        bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    spread(hash)
}

fn spread(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the shard of a key.
pub(super) fn shard_of(key: &[u8], count: u32) -> u32 {
    (stable_hash(key) % u64::from(count)) as u32
}

/// The weight of a node for a shard. The node with the greatest weight is the home. It depends on
/// the name of the node and not on its incarnation, so a node that returns gets its shards back.
fn weight(node: &NodePid, shard: u32) -> u64 {
    spread(stable_hash(node.node.as_str().as_bytes()) ^ spread(u64::from(shard)))
}

/// The routers that this node knows, one for each node.
#[derive(Debug)]
pub(super) struct View {
    pub(super) own: NodePid,
    /// `false` once this node gives its shards away.
    pub(super) takes: bool,
    pub(super) members: BTreeSet<NodePid>,
    /// All other routers that have not ended, members or not, and their PIDs here.
    pub(super) known: BTreeMap<NodePid, Pid>,
    /// The last routers of nodes that have none now, as far as is known, and whether they have
    /// ended for good. Their words may still arrive, and other nodes may still name them.
    gone: Vec<(NodePid, bool)>,
}

/// The routers that are remembered after they are gone, at most.
const GONE_MAX: usize = 1024;

/// Returns `true` for a node itself, which stands for its router until it has said which that is.
pub(super) fn is_node(router: &NodePid) -> bool {
    router.number() == 0
}

impl View {
    pub(super) fn new(own: NodePid) -> Self {
        let (members, known, gone) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        Self { own, takes: true, members, known, gone }
    }

    /// Returns the home of a shard. Without any other node, that is this node.
    pub(super) fn home(&self, shard: u32) -> &NodePid {
        let own = self.takes.then_some(&self.own);
        let all = self.members.iter().chain(own);
        all.max_by_key(|node| (weight(node, shard), *node)).unwrap_or(&self.own)
    }

    pub(super) fn is_known(&self, router: &NodePid) -> bool {
        self.known.contains_key(router)
    }

    /// Returns the router of a node.
    pub(super) fn of_node(&self, node: &Atom) -> Option<&NodePid> {
        self.known.keys().find(|known| known.node == *node)
    }

    /// Returns the router that has a PID here.
    pub(super) fn of_pid(&self, pid: Pid) -> Option<&NodePid> {
        self.known.iter().find(|(_, own)| **own == pid).map(|(router, _)| router)
    }

    /// Notes that a router has joined. Returns `true` if it was not known.
    pub(super) fn enter(&mut self, router: &NodePid, pid: Pid) -> bool {
        self.gone.retain(|(other, _)| other.node != router.node);
        self.known.insert(router.clone(), pid).is_none()
    }

    /// Notes that a router has ended, or else cannot be reached.
    pub(super) fn forget(&mut self, router: &NodePid, has_ended: bool) {
        self.known.remove(router);
        self.gone.retain(|(other, _)| other.node != router.node);
        if self.gone.len() >= GONE_MAX {
            self.gone.remove(0);
        }
        self.gone.push((router.clone(), has_ended));
    }

    pub(super) fn has_ended(&self, router: &NodePid) -> bool {
        self.gone.iter().any(|(other, has_ended)| *has_ended && other == router)
    }

    /// Returns `true` for a router that is known, or was.
    pub(super) fn has_met(&self, router: &NodePid) -> bool {
        self.is_known(router) || self.gone.iter().any(|(other, _)| other == router)
    }
}

#[cfg(test)]
mod tests {
    use super::{View, shard_of, stable_hash};
    use crate::term::{Atom, NodePid};

    fn router(node: &str) -> NodePid {
        NodePid { node: Atom::new(node).expect("it is short"), id: 1, serial: 0, creation: 1 }
    }

    fn view(members: &[&str]) -> View {
        let members = members.iter().map(|node| router(node)).collect();
        View { members, ..View::new(router("a@h")) }
    }

    /// Nodes of other releases compute the same.
    #[test]
    fn hashes_never_change() {
        assert_eq!(stable_hash(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(stable_hash(b"account 7"), 0x7d76_5fe7_d63d_0971);
        assert_eq!(shard_of(b"account 7", 256), 113);
    }

    #[test]
    fn a_node_that_joins_takes_its_share_and_moves_nothing_else() {
        let (two, three) = (view(&["b@h"]), view(&["b@h", "c@h"]));
        let mut moved = 0;
        for shard in 0..1000 {
            if two.home(shard) != three.home(shard) {
                assert_eq!(three.home(shard).node.as_str(), "c@h");
                moved += 1;
            }
        }
        assert!((250..420).contains(&moved), "{moved} of 1000 shards moved");
    }

    #[test]
    fn a_node_that_leaves_is_no_home_unless_it_is_alone() {
        let (mut two, mut alone) = (view(&["b@h"]), view(&[]));
        (two.takes, alone.takes) = (false, false);
        assert!((0..100).all(|shard| two.home(shard).node.as_str() == "b@h"));
        assert!((0..100).all(|shard| alone.home(shard) == &alone.own));
    }
}
