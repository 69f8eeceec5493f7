//! A model of a store of leases, as hosts reach it: it is slow, does not answer for a while, and
//! ends leases early.

use std::sync::Arc;
use std::time::Duration;

use procession::sync::oneshot;
use procession::{sleep, spawn};
use procession_cluster::exclusive::{
    Answer, Changes, Claimed, Fence, Known, Lease, LeaseId, LeaseStore, StoreError,
};
use procession_sim::Sim;
use procession_sync::Mutex;

use crate::checker::Defect;
use crate::rows::Rows;

/// How much sooner a lease may end by the clock of a node than by the clock of the store, in
/// hundredths. The names promise something if that is less than 30.
const SOONER_MAX: u64 = 10;
/// How often a request looks whether the store answers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// The store elects a leader. Requests wait.
    Elects,
    /// The disk is slow. A request takes up to this many milliseconds.
    Slow(u64),
    /// Requests are answered by an error, some of them after they have had their effect.
    Fails,
}

/// The store. Hosts keep clones, and crash.
#[derive(Clone, Debug)]
pub(crate) struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sim: Sim,
    rows: Mutex<Rows>,
    trouble: Mutex<Trouble>,
    defect: Option<Defect>,
}

impl Leases {
    pub(crate) fn new(sim: &Sim, defect: Option<Defect>) -> Self {
        let (sim, rows, trouble) = (sim.clone(), Mutex::default(), Mutex::new(Trouble::None));
        Self(Arc::new(Shared { sim, rows, trouble, defect }))
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        *self.0.trouble.lock() = trouble;
    }

    fn trouble(&self) -> Trouble {
        *self.0.trouble.lock()
    }

    /// Looks at the store, or changes it, at this moment.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Rows) -> T) -> T {
        let mut rows = self.0.rows.lock();
        rows.expire();
        look(&mut rows)
    }

    /// Returns the fence of the holder of a name.
    pub(crate) fn fence(&self, name: &str) -> Option<u64> {
        self.with(|rows| rows.by_name.get(name).map(|(row, _)| row.fence.get()))
    }

    /// Ends the lease of the holder of a name.
    pub(crate) fn end_early(&self, name: &str) -> bool {
        self.with(|rows| {
            let lease = rows.by_name.get(name).map(|(_, lease)| *lease);
            lease.is_some_and(|lease| rows.revoke(lease))
        })
    }

    /// Waits as long as a request takes in one direction.
    async fn pass(&self) {
        let most = match self.trouble() {
            Trouble::Slow(most) => most,
            _ => 20,
        };
        sleep(Duration::from_millis(self.0.sim.choose(0..most))).await;
        while self.trouble() == Trouble::Elects {
            sleep(LOOK_EVERY).await;
        }
    }

    /// A request is a process, since it may arrive after its sender has given it up.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Rows) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'static, T> {
        let (store, (answers, answer)) = (self.clone(), oneshot::channel());
        spawn(async move {
            store.pass().await;
            let fails = store.trouble() == Trouble::Fails;
            let is_done = !fails || store.0.sim.choose(0..2) == 0;
            let mut result = if is_done { store.with(question) } else { Err(failed()) };
            if fails {
                result = Err(failed());
            }
            store.pass().await;
            // Ignored: nobody may wait any more.
            let _ = answers.send(result);
        })
        .detach();
        Box::pin(async move { answer.await.map_err(StoreError::new)? })
    }
}

fn failed() -> StoreError {
    StoreError::new("the store has failed")
}

impl LeaseStore for Leases {
    fn grant(&self, lasts: Duration) -> Answer<'_, Lease> {
        let sooner = self.0.sim.choose(0..SOONER_MAX + 1);
        let by_node = lasts * (100 - sooner as u32) / 100;
        self.ask(move |rows| Ok(Lease { id: rows.grant(by_node), lasts }))
    }

    fn renew(&self, lease: LeaseId) -> Answer<'_, bool> {
        let renews = self.0.defect != Some(Defect::RenewNothing);
        self.ask(move |rows| Ok(!renews || rows.renew(lease).is_some()))
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.ask(move |rows| {
            rows.revoke(lease);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, Claimed> {
        let (name, holder, defect) = (name.to_owned(), holder.to_owned(), self.0.defect);
        self.ask(move |rows| {
            if defect == Some(Defect::GiveTwice) {
                rows.free(|other, row, _| other == name && row.holder != holder);
            }
            let claimed = rows.claim(&name, &holder, lease);
            let claimed = claimed.ok_or_else(|| StoreError::new("the lease has ended"))?;
            Ok(match claimed {
                Claimed::Won(_) if defect == Some(Defect::OldFence) => Claimed::Won(Fence::new(1)),
                claimed => claimed,
            })
        })
    }

    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> Answer<'a, ()> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.ask(move |rows| {
            rows.release(&name, &holder);
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, holder: &'a str, _: LeaseId) -> Answer<'a, ()> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.ask(move |rows| {
            rows.withdraw(&name, &holder);
            Ok(())
        })
    }

    fn holder<'a>(&'a self, name: &'a str) -> Answer<'a, Known> {
        let name = name.to_owned();
        self.ask(move |rows| Ok(rows.known(&name)))
    }

    fn changes(&self, after: u64) -> Answer<'_, Changes> {
        Box::pin(async move {
            let found = loop {
                let found = self.with(|rows| rows.changes_after(after));
                if !found.is_empty() && self.trouble() != Trouble::Elects {
                    break found;
                }
                sleep(LOOK_EVERY).await;
            };
            if self.trouble() == Trouble::Fails {
                return Err(failed());
            }
            let mut changes = Changes::default();
            for change in found {
                changes.revision = change.revision;
                let Changes { freed, claimed, .. } = &mut changes;
                let list = if change.is_claim { claimed } else { freed };
                list.push(change.name);
            }
            Ok(changes)
        })
    }
}
