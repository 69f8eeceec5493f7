//! The groups of a scope in the status of the node.

use procession::process::Groups;

use crate::node::parts::{GroupInfo, LISTED_MAX, Lists, Part};

/// The groups of a scope.
pub(super) struct Listed {
    pub(super) scope: String,
    pub(super) groups: Groups,
}

impl Part for Listed {
    fn list(&self, lists: &mut Lists) {
        for group in self.groups.groups().into_iter().take(LISTED_MAX) {
            lists.groups.push(GroupInfo {
                scope: self.scope.clone(),
                members: self.groups.members(&group).len(),
                local: self.groups.local_members(&group).len(),
                name: group.to_string(),
            });
        }
    }
}
