//! What a model of a store of leases has, also in the simulated cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use procession::time::Instant;
use procession_cluster::exclusive::{Claimed, Fence, Known, LeaseId, Row};

/// A name that was claimed or has become free.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) name: String,
    pub(crate) is_claim: bool,
}

/// What a store has.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) revision: u64,
    leases: BTreeMap<LeaseId, (Duration, Instant)>,
    last_lease: u64,
    pub(crate) by_name: BTreeMap<String, (Row, LeaseId)>,
    changes: Vec<Change>,
    /// The holders that have withdrawn their claims, which must not succeed any more.
    pub(crate) withdrawn: BTreeSet<String>,
}

impl Rows {
    pub(crate) fn grant(&mut self, lasts: Duration) -> LeaseId {
        self.last_lease += 1;
        self.leases.insert(LeaseId(self.last_lease), (lasts, Instant::now() + lasts));
        LeaseId(self.last_lease)
    }

    pub(crate) fn renew(&mut self, lease: LeaseId) -> Option<Duration> {
        let (lasts, end) = self.leases.get_mut(&lease)?;
        *end = Instant::now() + *lasts;
        Some(*lasts)
    }

    pub(crate) fn revoke(&mut self, lease: LeaseId) -> bool {
        self.free(|_, _, by| by == lease);
        self.leases.remove(&lease).is_some()
    }

    /// `None` without the lease.
    pub(crate) fn claim(&mut self, name: &str, holder: &str, lease: LeaseId) -> Option<Claimed> {
        Some(match self.by_name.get(name) {
            Some((row, by)) if row.holder == holder && *by == lease => Claimed::Won(row.fence),
            Some(_) => Claimed::Taken(self.revision),
            None if !self.leases.contains_key(&lease) => return None,
            None if self.withdrawn.contains(holder) => Claimed::Taken(self.revision),
            None => {
                self.revision += 1;
                let (revision, name) = (self.revision, name.to_owned());
                self.changes.push(Change { revision, name: name.clone(), is_claim: true });
                let fence = Fence::new(self.revision);
                let row = Row { holder: holder.to_owned(), fence };
                self.by_name.insert(name, (row, lease));
                Claimed::Won(fence)
            }
        })
    }

    pub(crate) fn release(&mut self, name: &str, holder: &str) {
        self.free(|other, row, _| other == name && row.holder == holder);
    }

    pub(crate) fn withdraw(&mut self, name: &str, holder: &str) {
        self.release(name, holder);
        self.withdrawn.insert(holder.to_owned());
    }

    pub(crate) fn known(&self, name: &str) -> Known {
        let row = self.by_name.get(name).map(|(row, _)| row.clone());
        Known { row, revision: self.revision }
    }

    /// Makes the names free that are meant. Those of one change have one revision.
    pub(crate) fn free(&mut self, is_meant: impl Fn(&str, &Row, LeaseId) -> bool) -> bool {
        let revision = self.revision + 1;
        let before = self.changes.len();
        let changes = &mut self.changes;
        self.by_name.retain(|name, (row, lease)| {
            let goes = is_meant(name, row, *lease);
            if goes {
                changes.push(Change { revision, name: name.clone(), is_claim: false });
            }
            !goes
        });
        let is_changed = changes.len() > before;
        self.revision += u64::from(is_changed);
        is_changed
    }

    /// Ends the leases that have expired, and returns when the next lease ends.
    pub(crate) fn expire(&mut self) -> Instant {
        let now = Instant::now();
        let over: Vec<_> =
            self.leases.iter().filter(|(_, (_, end))| *end <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.revoke(lease);
        }
        self.leases.values().map(|(_, end)| *end).min().unwrap_or(Instant::NEVER)
    }

    pub(crate) fn changes_after(&self, after: u64) -> Vec<Change> {
        self.changes.iter().filter(|change| change.revision > after).cloned().collect()
    }
}
