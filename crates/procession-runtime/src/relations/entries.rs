//! The relations of a process, as entries in its slot, and the lists of processes that people see.

use std::fmt;
use std::sync::{Arc, Weak};

use procession_protocols::relations::remote_links::RemoteLink;
use procession_protocols::util::sorted_map::{SortedMap, SortedSet};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::unwind::drop_guarded;
use crate::relations::signal::MonitorRef;
use crate::{Exit, Pid};

/// The number of one link. Both sides store it, so that removing one link does not remove half of a
/// later link between the same two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

impl LinkId {
    const LEAST: Self = Self(0);

    pub(crate) fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The peer of each link. If two processes call `link` concurrently, each for the other, they have
/// two links.
#[derive(Debug, Default)]
pub(crate) struct Links(pub(crate) SortedSet<(Pid, LinkId)>);

impl Links {
    pub(crate) fn insert(&mut self, peer: Pid, link: LinkId) {
        self.0.insert((peer, link));
    }

    pub(crate) fn remove(&mut self, peer: Pid, link: LinkId) -> bool {
        self.0.remove(&(peer, link))
    }

    pub(crate) fn has(&self, peer: Pid, link: LinkId) -> bool {
        self.0.contains(&(peer, link))
    }

    pub(crate) fn is_with(&self, peer: Pid) -> bool {
        self.0.range((peer, LinkId::LEAST)..).next().is_some_and(|&(other, _)| other == peer)
    }

    /// Removes all links with `peer`, and returns their numbers.
    pub(crate) fn take(&mut self, peer: Pid) -> Vec<LinkId> {
        let mut taken = Vec::new();
        while let Some(&(other, link)) = self.0.range((peer, LinkId::LEAST)..).next()
            && other == peer
        {
            self.0.remove(&(other, link));
            taken.push(link);
        }
        taken
    }
}

/// A table that has rows of processes.
pub(crate) trait Membership: Send + Sync {
    /// Returns the number of the table ([`Memberships::draw`]).
    fn number(&self) -> u64;

    /// Removes the rows of a process that ends. Called without locks.
    fn forget(&self, pid: Pid);

    /// Returns the processes that have rows.
    #[cfg(feature = "sim")]
    fn processes(&self) -> Vec<Pid>;
}

/// The number of tables up to which a process does not look for tables that are gone.
const TABLES_KEPT: usize = 8;

/// The tables that have rows of a process, or had some.
#[derive(Default)]
pub(crate) struct Memberships {
    /// By the numbers of the tables, so that a process that has been in many joins one as fast as
    /// the first, and so that its end visits them in an order that does not vary.
    tables: SortedMap<u64, Weak<dyn Membership>>,
    /// The number of tables that remained after the last removal of tables that are gone.
    swept: usize,
}

impl Memberships {
    /// Draws the number of a new table.
    pub(crate) fn draw() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        LAST.fetch_add(1, Relaxed) + 1
    }

    /// Adds a table, unless it is there.
    pub(crate) fn insert(&mut self, table: &Arc<dyn Membership>) {
        // Only once their number has doubled, so that each table is looked at twice on average.
        if self.tables.len() >= TABLES_KEPT.max(2 * self.swept) {
            self.tables.retain(|_, other| other.strong_count() > 0);
            self.swept = self.tables.len();
        }
        self.tables.get_or_insert_with(table.number(), || Arc::downgrade(table));
    }

    /// Removes a table. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, table: &Arc<dyn Membership>) -> bool {
        self.tables.remove(&table.number()).is_some()
    }

    /// Returns the tables.
    #[cfg(feature = "sim")]
    pub(crate) fn tables(&self) -> Vec<Arc<dyn Membership>> {
        self.tables.values().filter_map(Weak::upgrade).collect()
    }

    /// Removes the rows of a process from all tables.
    pub(crate) fn forget(self, pid: Pid) {
        for table in self.tables.into_values().filter_map(|table| table.upgrade()) {
            table.forget(pid);
            // The last handle may have gone since, and the values of other rows belong to users.
            drop_guarded(table);
        }
    }
}

impl fmt::Debug for Memberships {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memberships").field(&self.tables.len()).finish()
    }
}

/// The entries of a process. Each side of a relation names the other side.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// Set if exit signals are delivered as events instead of ending the process.
    pub(crate) traps: bool,
    pub(crate) links: Links,
    /// The links with processes of other nodes, and the links that are about to be over.
    pub(crate) remote_links: SortedMap<Pid, RemoteLink>,
    /// The processes that monitor this one.
    pub(crate) watchers: SortedMap<MonitorRef, Pid>,
    /// The processes that this one monitors, until it has received their downs.
    pub(crate) watched: SortedMap<MonitorRef, Pid>,
    /// The processes that are cancelled when this one ends.
    pub(crate) scope: SortedSet<Pid>,
    /// The process that has this one in its scope.
    pub(crate) scope_of: Option<Pid>,
    /// The process that stops this one at a shutdown.
    pub(crate) supervisor: Option<Pid>,
    /// The name under which the process is registered.
    pub(crate) name: Option<Arc<str>>,
    /// The groups and registries that have rows of the process.
    pub(crate) memberships: Memberships,
    /// Set once the process ends and has left its name and these tables. From then on, it enters no
    /// tables.
    pub(crate) names_released: bool,
    /// The exit that the process ends with, if an exit signal ends it.
    pub(crate) doom: Option<Exit>,
    /// Set if that exit is a failure of the process itself.
    pub(crate) dooms_itself: bool,
}

impl Relations {
    /// Accesses the link with a process of another node.
    pub(crate) fn remote_link<R>(
        &mut self,
        other: Pid,
        access: impl FnOnce(&mut RemoteLink) -> R,
    ) -> R {
        let link = self.remote_links.get_or_default(other);
        let result = access(link);
        if link.is_over() {
            self.remote_links.remove(&other);
        }
        result
    }
}

/// Returns the processes of other nodes that are linked.
pub(crate) fn linked(links: &SortedMap<Pid, RemoteLink>) -> impl Iterator<Item = Pid> {
    links.iter().filter(|(_, link)| link.is_linked()).map(|(&other, _)| other)
}

pub(crate) type Entries = Option<Box<Relations>>;

/// The largest number of processes in one list.
pub(crate) const LISTED_MAX: usize = 16;

/// The first processes of a list, and the length of the whole list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PidList {
    /// The first 16 processes of the list.
    pub first: Vec<Pid>,
    /// The number of processes in the whole list.
    pub total: usize,
}

impl PidList {
    /// Returns the list of these processes.
    pub(crate) fn of(pids: impl Iterator<Item = Pid>) -> Self {
        let mut list = Self::default();
        for pid in pids {
            if list.first.len() < LISTED_MAX {
                list.first.push(pid);
            }
            list.total += 1;
        }
        list
    }
}
