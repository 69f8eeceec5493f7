//! The groups of a scope in the status of the node, and in the door of its scheduler.

use procession::observe::DoorSection;
use procession::process::Groups;

use crate::node::parts::{GroupInfo, LISTED_MAX, Lists, NameInfo, Part};
use crate::term::Atom;

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

/// Shows the groups of a scope, or the names, in the door of the scheduler.
pub(super) fn show(node: &Atom, part: &dyn Part, section: &mut DoorSection) {
    let mut lists = Lists::default();
    part.list(&mut lists);
    for GroupInfo { scope, name, members, local } in &lists.groups {
        section.row("group", |row| {
            row.label("node", node.as_str()).label("scope", scope).label("group", name);
            row.gauge("members", "Members of the group on all nodes.", *members as u64);
            row.gauge("local", "Members of the group on the node.", *local as u64);
        });
    }
    for NameInfo { scope, name, owner } in &lists.shared_names {
        section.row("name", |row| {
            row.label("node", node.as_str()).label("scope", scope).label("name", name);
            row.label("owner", owner);
            let is_local = owner.node == *node;
            row.gauge("local", "1 if the owner is a process of the node.", u64::from(is_local));
        });
    }
}
