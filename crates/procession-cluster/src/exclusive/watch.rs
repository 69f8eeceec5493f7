//! The process that learns which names have changed their holder.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::{sleep, timeout};

use super::store::Changes;
use super::table::{Names, Stage};

/// The time after which a watch that has reported nothing is made again, because a connection that
/// was cut in silence reports nothing either.
pub(super) const WATCH_TIME: Duration = Duration::from_secs(30);

/// Tells claims that their names are free, and monitors that their names have changed, as long as
/// there are any.
pub(super) async fn run(names: Arc<Names>) {
    while let Some(after) = names.watched().await {
        let changes = timeout(WATCH_TIME, names.ask(|store| store.changes(after))).await;
        match changes {
            Ok(Ok(changes)) => names.tell(&changes, changes.revision.max(after)),
            Err(_) => names.tell_all(),
            Ok(Err(_)) => {
                // Ignored: the claims that try again report what is wrong.
                sleep(names.pause()).await;
                names.tell_all();
            }
        }
    }
}

impl Names {
    /// Makes sure that a name is watched that was as it is known at this revision of the store.
    /// Returns `false` if it may have changed since.
    pub(super) fn watch_from(&self, revision: u64) -> bool {
        let from = *self.table.lock().watched.get_or_insert(revision);
        self.watches.notify_one();
        from <= revision
    }

    /// Returns the revision from which names are watched, once somebody waits for one. `None` if
    /// the names are over.
    async fn watched(&self) -> Option<u64> {
        loop {
            let (watched, stage) = {
                let table = self.table.lock();
                (table.watched, table.stage)
            };
            if stage != Stage::Runs || watched.is_some() {
                return watched.filter(|_| stage == Stage::Runs);
            }
            first_of(self.watches.notified(), self.until(Stage::Stops)).await;
        }
    }

    fn tell(&self, changes: &Changes, revision: u64) {
        let Changes { freed, claimed, .. } = changes;
        let mut table = self.table.lock();
        let mut waiting = table.claims.values().filter(|claim| !claim.is_held()).peekable();
        let is_watched = waiting.peek().is_some() || !table.monitored.is_empty();
        for claim in waiting.filter(|claim| freed.iter().any(|name| **name == *claim.name)) {
            claim.freed.notify_one();
        }
        for name in freed.iter().chain(claimed) {
            if let Some(monitored) = table.monitored.get(&**name) {
                monitored.changed.notify_one();
            }
        }
        table.watched = is_watched.then_some(revision);
    }
}

/// Waits until one of two futures is ready.
pub(super) async fn first_of(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|task| {
        let is_ready = one.as_mut().poll(task).is_ready() || other.as_mut().poll(task).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
