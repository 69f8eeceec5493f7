//! What a process keeps of its relations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::relations::signal::MonitorRef;
use crate::{Exit, Pid};

/// One link: both sides have it under the same number, so that who ends one does not take half of
/// the next between the same two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

impl LinkId {
    const LEAST: Self = Self(0);

    pub(crate) fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only that they differ matters.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The other side of each link. If two link themselves to each other at once, they have two.
#[derive(Debug, Default)]
pub(crate) struct Links(pub(crate) BTreeSet<(Pid, LinkId)>);

impl Links {
    pub(crate) fn insert(&mut self, peer: Pid, link: LinkId) {
        self.0.insert((peer, link));
    }

    pub(crate) fn remove(&mut self, peer: Pid, link: LinkId) -> bool {
        self.0.remove(&(peer, link))
    }

    pub(crate) fn is_with(&self, peer: Pid) -> bool {
        self.0.range((peer, LinkId::LEAST)..).next().is_some_and(|&(other, _)| other == peer)
    }

    /// Takes out all links with `peer`.
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

/// The entries of a process. Those on both sides of a relation name each other.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// Whether exit signals are told instead of ending the process.
    pub(crate) traps: bool,
    pub(crate) links: Links,
    /// Who monitors this process.
    pub(crate) watchers: BTreeMap<MonitorRef, Pid>,
    /// Whom this process monitors, and has not been told of yet.
    pub(crate) watched: BTreeMap<MonitorRef, Pid>,
    /// Who is cancelled when this process ends.
    pub(crate) scope: BTreeSet<Pid>,
    /// Whose scope this process is in.
    pub(crate) scope_of: Option<Pid>,
    /// Who stops this process when all are to end.
    pub(crate) supervisor: Option<Pid>,
    /// The name it is registered by.
    pub(crate) name: Option<Arc<str>>,
    /// How it is to end, if an exit signal ends it.
    pub(crate) doom: Option<Exit>,
}

pub(crate) type Entries = Option<Box<Relations>>;
