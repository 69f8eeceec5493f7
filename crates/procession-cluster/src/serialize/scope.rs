//! The conversion that this thread carries out for a message. Addresses and replies in the message
//! become terms, and the reverse, with the node of the conversion.

use std::cell::RefCell;

use crate::link::AwaitedReply;
use crate::node::Node;
use crate::term::{Atom, NodePid, Reference};

/// The replies in a message, and the references by which they arrive.
pub(super) type Replies = Vec<(Reference, Box<dyn AwaitedReply>)>;

pub(super) struct Scope {
    pub(super) node: Node,
    /// The process of this node that sends or receives the message.
    pub(super) own: NodePid,
    /// The node that has sent the message, if the message is read for a process.
    pub(super) sender: Option<Atom>,
    pub(super) replies: Replies,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Converts a message of a process of this node, or a message of the node `sender` to such a
/// process. Also returns the replies that were written.
pub(super) fn within<R>(
    node: &Node,
    own: &NodePid,
    sender: Option<&Atom>,
    convert: impl FnOnce() -> R,
) -> (R, Replies) {
    /// Restores the conversion that this conversion has interrupted, even if it panics.
    struct Restore(Option<Scope>);
    impl Drop for Restore {
        fn drop(&mut self) {
            // Dropped outside of the borrow, because the replies in it have code of the user.
            drop(replace(self.0.take()));
        }
    }

    let (sender, replies) = (sender.cloned(), Vec::new());
    let scope = Scope { node: node.clone(), own: own.clone(), sender, replies };
    let restore = Restore(replace(Some(scope)));
    let converted = convert();
    let replies = with(|scope| std::mem::take(&mut scope.replies)).unwrap_or_default();
    drop(restore);
    (converted, replies)
}

/// Accesses the conversion. Returns `None` outside of one. `access` runs no code of the user.
pub(super) fn with<R>(access: impl FnOnce(&mut Scope) -> R) -> Option<R> {
    SCOPE.try_with(|scope| scope.borrow_mut().as_mut().map(access)).ok().flatten()
}

/// In a destructor of the thread, there is no conversion.
fn replace(scope: Option<Scope>) -> Option<Scope> {
    SCOPE.try_with(|cell| cell.replace(scope)).ok().flatten()
}
