//! The exclusive names of a node, as programs use them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession::process::{OnCancel, Priority, current_pid};
use procession::sync::{Notify, oneshot, watch};
use procession::{SpawnOptions, sleep};
use procession_sync::Mutex;

use super::claim::{ClaimError, ExclusiveName, Registered};
use super::lease;
use super::store::{EmbeddedLeases, Known, LeaseStore, Row, StoreError};
use super::table::{Holder, Names, Stage};
use super::watch::run;
use crate::node::Node;
use crate::node::refusals::Refusals;
use crate::term::{Atom, NodePid};

/// The default time of a lease. A shorter one moves names sooner from a node that has died, and
/// takes names from nodes that are only slow.
const LEASE_TIME: Duration = Duration::from_secs(10);
/// The shortest time of a lease. etcd grants none that is shorter than one and a half of the time
/// in which it elects a leader.
const LEASE_TIME_MIN: Duration = Duration::from_secs(2);

/// The exclusive names of a node.
///
/// Clones are the same names. See the [module](super) for an example and for what is promised.
#[derive(Clone)]
pub struct ExclusiveNames(Arc<Names>);

/// Makes the [`ExclusiveNames`] of a node. [`ExclusiveNames::builder`] returns it.
#[derive(Debug)]
#[must_use = "it does nothing until it is started"]
pub struct ExclusiveNamesBuilder {
    node: Node,
    store: Arc<dyn LeaseStore>,
    lease_time: Duration,
}

impl ExclusiveNamesBuilder {
    /// Sets the store. Nodes with the same store share their names. The default is a new
    /// [`EmbeddedLeases`], which shares the names with no other node.
    pub fn store(mut self, store: impl LeaseStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Sets how long a lease lasts without a renewal, 2 seconds or longer. The default is 10
    /// seconds, and a fraction of a second counts as a second.
    ///
    /// If a node dies, its names are free after this time. If the store cannot be reached, the
    /// processes of a node that hold names are killed after 7 tenths of it.
    pub fn lease_time(mut self, time: Duration) -> Self {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        self.lease_time = Duration::from_secs(seconds).max(LEASE_TIME_MIN);
        self
    }

    /// Starts the processes that renew the lease. They end when the node stops, or with the
    /// scheduler in which the node was started.
    pub fn start(self) -> ExclusiveNames {
        let Self { node, store, lease_time } = self;
        let names = Arc::new(Names {
            node,
            store,
            lease_time,
            table: Mutex::default(),
            changed: Notify::new(),
            watches: Notify::new(),
            reports: Refusals::default(),
        });
        let part = Arc::downgrade(&names);
        names.node.add_part(part);
        let begin = || {
            let label = format!("lease of {}", names.node.name());
            // It has to be in time.
            let options = SpawnOptions::new().label(label).priority(Priority::High);
            let kept = Arc::clone(&names);
            let kept = options.try_start(move |cx| lease::keep(cx, kept)).is_ok();
            let label = format!("watch of the names of {}", names.node.name());
            let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
            kept && options.try_spawn(run(Arc::clone(&names))).is_ok()
        };
        if names.within_node(begin) != Some(true) {
            names.table.lock().stage = Stage::Over;
        }
        ExclusiveNames(names)
    }
}

impl ExclusiveNames {
    /// Returns a builder for the names of a node.
    pub fn builder(node: &Node) -> ExclusiveNamesBuilder {
        ExclusiveNamesBuilder {
            node: node.clone(),
            store: Arc::new(EmbeddedLeases::new()),
            lease_time: LEASE_TIME,
        }
    }

    /// Waits until the running process holds a name, and returns the name with its
    /// [`Fence`](super::Fence).
    ///
    /// It waits as long as another process has the name, as long as the store cannot be reached,
    /// and as long as the scheduler of the node has no room for the process that asks the store.
    /// Processes that wait for one name get it in any order.
    ///
    /// # Errors
    /// [`ClaimError`]: the node has stopped, no process is running, or it holds the name already.
    ///
    /// # Cancellation
    /// If the future is dropped, the claim is taken back.
    pub async fn claim(&self, name: impl Into<Arc<str>>) -> Result<ExclusiveName, ClaimError> {
        self.claim_as(name.into(), false).await
    }

    pub(super) async fn claim_as(
        &self,
        name: Arc<str>,
        is_singleton: bool,
    ) -> Result<ExclusiveName, ClaimError> {
        let pid = current_pid().ok_or(ClaimError::NoProcess)?;
        let names = &self.0;
        loop {
            let claim = Registered::new(names, &name, (pid, is_singleton))?;
            let (told, held) = oneshot::channel();
            let begin = || {
                let label = format!("claim of {name}");
                let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Ask);
                options.try_spawn(claim.pursue(told)).is_ok()
            };
            if names.within_node(begin) == Some(true)
                && let Ok(held) = held.await
            {
                return Ok(held);
            }
            if names.refuses() {
                return Err(ClaimError::Stopped);
            }
            // The scheduler had no room for the process of the claim, or the process was killed.
            sleep(names.pause()).await;
        }
    }

    /// Asks the store which process holds a name.
    ///
    /// The process may have lost the name when the answer arrives. A process that does not want the
    /// requests of others after that passes its fence along with its answers.
    ///
    /// # Errors
    /// [`StoreError`]: the store has not answered.
    pub async fn holder(&self, name: &str) -> Result<Option<Holder>, StoreError> {
        holder_of(name, self.0.ask(|store| store.holder(name)).await?)
    }

    /// Watches which process holds a name. The receiver has the present holder, and is notified
    /// when the holder changes.
    ///
    /// The receiver keeps only the latest holder. So a slow process may miss holders in between,
    /// but always sees the last one. As long as the store cannot be reached, the receiver has the
    /// holder that was known last. When the node leaves, waiting for a change fails.
    ///
    /// ```
    /// use procession::{Context, start};
    /// use procession_cluster::exclusive::{ClaimError, ExclusiveNames};
    /// use procession_cluster::{Cookie, Node};
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # fn main() -> Result<(), Error> {
    /// procession::run(async {
    ///     let node = Node::builder("shop@127.0.0.1").cookie(Cookie::random()?).start().await?;
    ///     let names = ExclusiveNames::builder(&node).start();
    ///     let mut holder = names.monitor("bills").await?;
    ///     assert_eq!(*holder.borrow_and_update(), None);
    ///     let bills = start(move |cx: Context<()>| async move {
    ///         let held = names.claim("bills").await?;
    ///         cx.cancelled().await;
    ///         Ok::<_, ClaimError>(held.fence())
    ///     });
    ///     holder.changed().await?;
    ///     let pid = holder.borrow_and_update().as_ref().map(|holder| node.pid(&holder.pid));
    ///     assert_eq!(pid, Some(bills.pid()));
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StoreError`]: the store has not answered.
    pub async fn monitor(
        &self,
        name: impl Into<Arc<str>>,
    ) -> Result<watch::Receiver<Option<Holder>>, StoreError> {
        let name = name.into();
        let present = self.holder(&name).await?;
        Ok(self.0.monitor(name, present))
    }

    /// Stops: no process of the node gets a name any more, and the processes that hold names are
    /// cancelled. Returns when they have ended. What has not ended after the
    /// [lease time](ExclusiveNamesBuilder::lease_time) is killed.
    ///
    /// [`Node::drain`] and [`Node::stop`] have the same effect, and do not wait for that.
    pub async fn stop(&self) {
        self.0.stop();
        self.0.until(Stage::Over).await;
    }
}

/// Returns the process in the row of a name.
pub(super) fn holder_of(name: &str, known: Known) -> Result<Option<Holder>, StoreError> {
    let Some(Row { holder, fence }) = known.row else { return Ok(None) };
    let pid = parse_holder(&holder).ok_or_else(|| {
        StoreError::new(format!("the holder of {name:?} is not a process: {holder:?}"))
    })?;
    Ok(Some(Holder { pid, fence }))
}

fn parse_holder(text: &str) -> Option<NodePid> {
    let mut words = text.rsplitn(5, ' ').skip(1);
    let creation = words.next()?.parse().ok()?;
    let serial = words.next()?.parse().ok()?;
    let id = words.next()?.parse().ok()?;
    let node = words.next()?;
    Some(NodePid { node: Atom::new(node)?, id, serial, creation })
}

impl fmt::Debug for ExclusiveNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExclusiveNames").field(self.0.node.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_holder;
    use crate::exclusive::claim::holder_text;
    use crate::term::{Atom, NodePid};

    #[test]
    fn a_store_knows_a_process_by_a_text() {
        for node in ["shop@10.0.0.5", "a b@c"] {
            let node = Atom::new(node).expect("it is short");
            let pid = NodePid { node, id: 7, serial: 1, creation: u32::MAX };
            assert_eq!(parse_holder(&holder_text(&pid, u64::MAX)), Some(pid));
        }
        for text in ["", "a", "a@b 1 2 3", "a@b 1 2 3 4 5x 6", "a@b 1 2 4294967296 4"] {
            assert_eq!(parse_holder(text), None, "{text:?}");
        }
    }
}
