//! A model of a store of leases, and of the lines between it and the nodes, with their faults. Also
//! the ledger that the holders of a name write to.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use procession::sync::{Notify, oneshot};
use procession::time::{Instant, sleep_until};
use procession::{sleep, spawn, timeout};
use procession_cluster::exclusive::{
    Answer, Changes, Claimed, Known, Lease, LeaseId, LeaseStore, StoreError,
};
use procession_sync::Mutex;

use super::rows::{Change, Rows};

/// A store that ends each lease in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<Rows>,
    /// Notified after each change.
    changed: Notify,
}

impl Model {
    /// Creates a store in the running scheduler.
    pub(crate) fn start() -> Self {
        let model = Self::default();
        spawn(model.clone().expire()).detach();
        model
    }

    /// Ends leases when their time is over.
    async fn expire(self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (is_changed, next) = {
                let mut rows = self.0.rows.lock();
                let before = rows.revision;
                let next = rows.expire();
                (rows.revision != before, next)
            };
            if is_changed {
                self.0.changed.notify_waiters();
            }
            // Ignored: it looks again in either case.
            let _ = timeout(next.duration_since(Instant::now()), changed).await;
        }
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Rows) -> T) -> T {
        let result = {
            let mut rows = self.0.rows.lock();
            rows.expire();
            change(&mut rows)
        };
        self.0.changed.notify_waiters();
        result
    }

    /// Ends the lease of a name early, as etcd has done when the disk of its leader was slow.
    pub(crate) fn end_lease_of(&self, name: &str) {
        self.with(|rows| rows.revoke(rows.by_name[name].1));
    }

    /// Waits for changes after a revision.
    pub(crate) async fn changes(&self, after: u64) -> Vec<Change> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let changes = self.0.rows.lock().changes_after(after);
            if !changes.is_empty() {
                return changes;
            }
            changed.await;
        }
    }

    /// Returns a new line to the store, for one node.
    pub(crate) fn line(&self) -> Line {
        Line(Arc::new(LineState { model: self.clone(), ..LineState::default() }))
    }
}

/// What a line does to requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Requests arrive when the fault is over, even if nobody waits any more.
    Silent,
    /// Each way takes this time.
    Slow(Duration),
    /// Requests arrive, and their answers do not.
    LosesAnswers,
    /// Requests are refused.
    Refuses,
    /// The code of the line panics: at the request, or while it waits for the answer.
    Panics,
    /// Claims arrive after this time.
    DelaysClaims(Duration),
    /// A defect: renewals are answered, and not made.
    RenewsNothing,
    /// A defect: leases are said to last longer than they do.
    GrantsTooMuch,
    /// A defect: a claim takes the name from its holder.
    GivesTwice,
}

/// The line of a node to a store.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<LineState>);

#[derive(Debug, Default)]
struct LineState {
    model: Model,
    fault: Mutex<Fault>,
    changed: Notify,
}

impl Line {
    pub(crate) fn set(&self, fault: Fault) {
        *self.0.fault.lock() = fault;
        self.0.changed.notify_waiters();
    }

    fn fault(&self) -> Fault {
        *self.0.fault.lock()
    }

    fn panic(&self) {
        assert_ne!(self.fault(), Fault::Panics, "the code of a user");
    }

    /// Waits until the line passes something on.
    async fn pass(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            match self.fault() {
                Fault::Silent => changed.await,
                Fault::Slow(time) => return sleep(time).await,
                _ => return,
            }
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Rows) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'static, T> {
        self.ask_later(Duration::ZERO, question)
    }

    /// A request is a process, since it may arrive after its sender has given it up.
    fn ask_later<T: Send + 'static>(
        &self,
        delay: Duration,
        question: impl FnOnce(&mut Rows) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'static, T> {
        let (line, (answers, answer)) = (self.clone(), oneshot::channel());
        line.panic();
        spawn(async move {
            sleep(delay).await;
            line.pass().await;
            let result = match line.fault() {
                Fault::Refuses => Err(StoreError::new("refused")),
                _ => line.0.model.with(question),
            };
            if line.fault() == Fault::LosesAnswers {
                return drop(answers.send(Err(StoreError::new("the answer is lost"))));
            }
            line.pass().await;
            // Ignored: nobody may wait any more.
            let _ = answers.send(result);
        })
        .detach();
        Box::pin(async move { answer.await.map_err(StoreError::new)? })
    }
}

impl LeaseStore for Line {
    fn grant(&self, lasts: Duration) -> Answer<'_, Lease> {
        let factor = if self.fault() == Fault::GrantsTooMuch { 6 } else { 1 };
        self.ask(move |rows| Ok(Lease { id: rows.grant(lasts), lasts: lasts * factor }))
    }

    fn renew(&self, lease: LeaseId) -> Answer<'_, bool> {
        let renews = self.fault() != Fault::RenewsNothing;
        self.ask(move |rows| Ok(!renews || rows.renew(lease).is_some()))
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.ask(move |rows| {
            rows.revoke(lease);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, Claimed> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        let gone = || StoreError::new("the lease has ended");
        let delay = match self.fault() {
            Fault::DelaysClaims(delay) => delay,
            _ => Duration::ZERO,
        };
        let is_taken = self.fault() == Fault::GivesTwice;
        self.ask_later(delay, move |rows| {
            rows.free(|other, row, _| is_taken && other == name && row.holder != holder);
            rows.claim(&name, &holder, lease).ok_or_else(gone)
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
            let changes = self.0.model.changes(after).await;
            self.panic();
            self.pass().await;
            let revision = changes.last().map_or(after, |change| change.revision);
            let (claimed, freed) = changes.into_iter().partition::<Vec<_>, _>(|it| it.is_claim);
            let [freed, claimed] =
                [freed, claimed].map(|all| all.into_iter().map(|change| change.name).collect());
            Ok(Changes { freed, claimed, revision })
        })
    }
}

/// What the holders of a name write to: it takes no write with a fence that is less than one that
/// it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Written>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    newest: u64,
    /// The fences that were taken, when each was new and when it was seen last.
    pub(crate) taken: Vec<(u64, Instant, Instant)>,
    pub(crate) refused: usize,
}

impl Ledger {
    pub(crate) fn write(&self, fence: u64) {
        let mut written = self.0.lock();
        let now = Instant::now();
        if fence < written.newest {
            written.refused += 1;
        } else if fence > written.newest {
            written.newest = fence;
            written.taken.push((fence, now, now));
        } else if let Some((_, _, last)) = written.taken.last_mut() {
            *last = now;
        }
    }

    pub(crate) fn written(&self) -> Written {
        self.0.lock().clone()
    }

    /// Waits for a write of another holder than those before.
    pub(crate) async fn next(&self, count: usize) -> u64 {
        loop {
            if let Some((fence, ..)) = self.0.lock().taken.get(count) {
                return *fence;
            }
            sleep_until(Instant::now() + Duration::from_millis(10)).await;
        }
    }
}
