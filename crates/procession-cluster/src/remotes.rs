//! What this node knows of other nodes, so that their processes have PIDs in this program.
//!
//! An entry is needed as long as its node is connected, an address leads to it, or a monitor by its
//! name stands. Any other entry is only remembered: it may be from the address in a message, so
//! another node decides how many there are. The entries that were used last are kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use procession::Pid;
use procession::mailbox::relay::RemoteNode;

use crate::remote::Remote;
use crate::term::{Atom, NodePid};

/// The number of unneeded entries that are kept, of nodes and of names each.
pub(crate) const REMEMBERED: usize = 1024;

/// Another node, as a place of processes: one incarnation of the node, or any incarnation, with
/// processes that are known by their names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) node: Atom,
    pub(crate) creation: Option<u32>,
}

/// Keeps the entries of a process of another node.
#[derive(Clone, Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "held for its count")] [Arc<()>; 2]);

/// The use of an entry.
#[derive(Debug, Default)]
struct Usage {
    holders: Arc<()>,
    last: u64,
}

/// The other nodes with processes that have PIDs here.
#[derive(Default)]
pub(crate) struct Remotes {
    places: HashMap<Place, (RemoteNode, Usage)>,
    by_number: HashMap<u32, Place>,
    /// The names of processes that have PIDs here, by number. The two numbers of such a PID are the
    /// halves of that.
    names: HashMap<u64, (Atom, Usage)>,
    name_numbers: HashMap<Atom, u64>,
    last_name: u64,
    uses: u64,
    /// The incarnations that are connected.
    connected: HashMap<Atom, u32>,
    /// The number of entries at which the table is searched for unneeded entries.
    sweep_at: usize,
}

impl Remotes {
    /// Returns the PID of a process, and what keeps its entries. `join` returns a number for a node
    /// without a number. Returns `None` if `join` does.
    pub(crate) fn enter(
        &mut self,
        process: &Remote,
        join: impl FnOnce() -> Option<RemoteNode>,
    ) -> Option<(&RemoteNode, [u32; 2], Held)> {
        self.uses += 1;
        let last = self.uses;
        let (creation, numbers, name) = match process {
            Remote::Pid(pid) => (Some(pid.creation), [pid.id, pid.serial], None),
            Remote::Name { name, .. } => {
                let number = *self.name_numbers.entry(name.clone()).or_insert_with(|| {
                    self.last_name += 1;
                    self.names.insert(self.last_name, (name.clone(), Usage::default()));
                    self.last_name
                });
                let usage = self.names.get_mut(&number).map(|(_, usage)| usage);
                (None, [number as u32, (number >> 32) as u32], usage)
            }
        };
        let place = Place { node: process.node().clone(), creation };
        if !self.places.contains_key(&place) {
            let remote = join()?;
            self.by_number.insert(remote.number(), place.clone());
            self.places.insert(place.clone(), (remote, Usage::default()));
        }
        let (remote, usage) = self.places.get_mut(&place)?;
        usage.last = last;
        let holder = Arc::clone(&usage.holders);
        let of_name = name.map(|usage| {
            usage.last = last;
            Arc::clone(&usage.holders)
        });
        let held = Held([of_name.unwrap_or_else(|| Arc::clone(&holder)), holder]);
        Some((remote, numbers, held))
    }

    /// Returns the process that is known here by a PID, and what keeps its entries.
    pub(crate) fn find(&mut self, pid: Pid) -> Option<(Remote, Held)> {
        let (id, serial) = pid.remote_parts()?;
        let place = self.by_number.get(&pid.node())?;
        let node = place.node.clone();
        let process = match place.creation {
            Some(creation) => Remote::Pid(NodePid { node, id, serial, creation }),
            None => {
                let (name, _) = self.names.get(&(u64::from(serial) << 32 | u64::from(id)))?;
                Remote::Name { name: name.clone(), node }
            }
        };
        let (_, _, held) = self.enter(&process, || None)?;
        Some((process, held))
    }

    /// Notes a connection, and forgets the other incarnations of the node, which never return.
    /// Returns what is to be dropped outside of the lock.
    #[must_use]
    pub(crate) fn connected(&mut self, node: &Atom, creation: u32) -> Vec<RemoteNode> {
        self.connected.insert(node.clone(), creation);
        let is_gone = |place: &Place| {
            place.node == *node && place.creation.is_some_and(|other| other != creation)
        };
        let gone: Vec<_> = self.places.keys().filter(|place| is_gone(place)).cloned().collect();
        self.remove(gone)
    }

    /// Notes that a node is connected no more.
    pub(crate) fn disconnected(&mut self, node: &Atom) {
        self.connected.remove(node);
    }

    /// Forgets the entries that nothing needs, if there may be many. Returns what is to be dropped
    /// outside of the lock.
    #[must_use]
    pub(crate) fn sweep(&mut self) -> Vec<RemoteNode> {
        if self.len() < self.sweep_at.max(4 * REMEMBERED) {
            return Vec::new();
        }
        let Self { places, names, connected, .. } = self;
        let is_connected = |place: &Place| {
            let current = connected.get(&place.node);
            current.is_some_and(|current| place.creation.is_none_or(|own| own == *current))
        };
        let idle = places.iter().filter(|(place, _)| !is_connected(place));
        let gone = forgotten(idle.map(|(place, (_, usage))| (place, usage)));
        for number in forgotten(names.iter().map(|(number, (_, usage))| (number, usage))) {
            if let Some((name, _)) = self.names.remove(&number) {
                self.name_numbers.remove(&name);
            }
        }
        let gone = self.remove(gone);
        self.sweep_at = 2 * self.len();
        gone
    }

    fn remove(&mut self, places: impl IntoIterator<Item = Place>) -> Vec<RemoteNode> {
        let removed = places.into_iter().filter_map(|place| self.places.remove(&place));
        let gone: Vec<_> = removed.map(|(remote, _)| remote).collect();
        for remote in &gone {
            self.by_number.remove(&remote.number());
        }
        gone
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.places.len() + self.names.len()
    }
}

/// Returns the entries that nobody holds, except for the last used entries.
fn forgotten<'a, K: Clone + Eq + Hash + 'a>(
    entries: impl Iterator<Item = (&'a K, &'a Usage)>,
) -> Vec<K> {
    // New holders appear under the lock, or are copies of others.
    let idle = entries.filter(|(_, usage)| Arc::strong_count(&usage.holders) == 1);
    let mut idle: Vec<_> = idle.collect();
    idle.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.last));
    idle.into_iter().skip(REMEMBERED).map(|(key, _)| key.clone()).collect()
}
