//! The process that learns which names have become free.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::{sleep, timeout};

use super::table::{Names, Stage};

/// The time after which a watch that has reported nothing is made again, because a connection that
/// was cut in silence reports nothing either.
const WATCH_TIME: Duration = Duration::from_secs(30);

/// Tells claims that their names are free, as long as claims wait.
pub(super) async fn watch(names: Arc<Names>) {
    while let Some(after) = names.watched().await {
        let freed = timeout(WATCH_TIME, names.store.freed(after)).await;
        match freed {
            Ok(Ok(freed)) => names.tell_freed(&freed.names, freed.revision.max(after)),
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
    /// Makes sure that a name that was taken at this revision of the store is watched. Returns
    /// `false` if it may have become free since.
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
            let (mut begun, mut stops) =
                (pin!(self.watches.notified()), pin!(self.until(Stage::Stops)));
            poll_fn(|task| {
                let is_ready =
                    begun.as_mut().poll(task).is_ready() || stops.as_mut().poll(task).is_ready();
                if is_ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    fn tell_freed(&self, freed: &[String], revision: u64) {
        let mut table = self.table.lock();
        let mut waiting = table.claims.values().filter(|claim| !claim.is_held()).peekable();
        let is_watched = waiting.peek().is_some();
        for claim in waiting.filter(|claim| freed.iter().any(|name| **name == *claim.name)) {
            claim.freed.notify_one();
        }
        table.watched = is_watched.then_some(revision);
    }
}
