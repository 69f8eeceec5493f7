//! Granting to other nodes, and looking whether something is granted.

use std::sync::Arc;

use crate::grants::{GrantError, Grants, Reach};
use crate::link::Link;
use crate::node::Node;
use crate::term::Atom;
use crate::wire::control::{SpawnRequest, Target};

impl Node {
    /// Grants permissions to nodes from now on, in place of earlier grants to the same `nodes`: one
    /// node (`till@front.example`), the nodes of a host (`*@front.example`), or all nodes that can
    /// connect (`*`). A node has the grants of all three together.
    ///
    /// With [TLS](crate::NodeBuilder::tls), a certificate proves the host, and not the word before
    /// it: nodes that share a host can claim one another's names. Without it, every node that knows
    /// the cookie can claim every name.
    ///
    /// # Errors
    /// [`GrantError`]: `nodes` names no nodes.
    pub fn grant(&self, nodes: &str, grants: Grants) -> Result<(), GrantError> {
        self.0.grants.lock().set(nodes, grants)?;
        self.grants_changed();
        Ok(())
    }

    /// Takes back what was granted to these `nodes`, which are named as for [`grant`](Self::grant).
    /// Returns `false` if they had no grants. Links and monitors that were made before stay.
    pub fn revoke(&self, nodes: &str) -> bool {
        let had_grants = self.0.grants.lock().remove(nodes);
        if had_grants {
            self.grants_changed();
        }
        had_grants
    }

    /// Lets the connections send a statement to the nodes to which a change may matter.
    fn grants_changed(&self) {
        if self.0.grants_only {
            // What was found before may not be permitted any more.
            self.note_loss();
            let links: Vec<Arc<Link>> = self.0.peers.lock().links().cloned().collect();
            for link in links {
                link.permitted.make_due();
                link.outbound.filled.notify_one();
            }
        }
    }

    /// Returns the statement for a node of this crate: the processes to which it may send. `None`
    /// means that it may send to all, whatever is granted.
    pub(crate) fn reach_of(&self, node: &Atom) -> Option<Reach> {
        self.0.grants_only.then(|| {
            let mut reach = Reach::default();
            self.0.grants.lock().of(node).for_each(|grants| reach.add(&grants.reach));
            reach
        })
    }

    pub(crate) fn permits_send(&self, node: &Atom, to: &Target) -> bool {
        !self.0.grants_only || self.0.grants.lock().permits(node, |grants| grants.reach.permits(to))
    }

    pub(crate) fn permits_monitor(&self, node: &Atom, process: &Target) -> bool {
        let permits = |grants: &Grants| grants.monitors || grants.reach.permits(process);
        !self.0.grants_only || self.0.grants.lock().permits(node, permits)
    }

    pub(crate) fn permits_exits(&self, node: &Atom) -> bool {
        self.0.grants.lock().permits(node, |grants| grants.exits)
    }

    pub(crate) fn permits_looks(&self, node: &Atom) -> bool {
        self.0.grants.lock().permits(node, |grants| grants.looks)
    }

    pub(crate) fn permits_spawn(&self, node: &Atom, request: &SpawnRequest) -> bool {
        let (module, function) = (request.module.as_str(), request.function.as_str());
        self.0.grants.lock().permits(node, |grants| grants.permits_spawn(module, function))
    }
}
