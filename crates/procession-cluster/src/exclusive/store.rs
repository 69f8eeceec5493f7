//! What exclusive names need of a store, and the store of a single program.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use procession::sync::Notify;
use procession_sync::Mutex;

/// The latest changes that are remembered by [`EmbeddedLeases`]. A program that looks at them
/// rarely asks again for all the names that it waits for or watches.
const CHANGES_MAX: usize = 1024;

/// The number of a claim that was successful: greater than those of all successful claims before.
///
/// A process that holds an exclusive name passes its fence to whatever it writes to, with each
/// write. A store that remembers the greatest fence so far, and refuses a lesser one, takes no
/// write of a process that has lost its name. See the [module](crate::exclusive#fences).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    /// Makes a fence of the number that a store has given.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, which is what is written beside the data.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl procession::process::Outcome for Fence {}

/// The number of a lease, which the store chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// A lease that a store has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its number.
    pub id: LeaseId,
    /// How long it lasts without a renewal. [`Duration::MAX`] if it never ends by itself.
    pub lasts: Duration,
}

/// The answer of a store to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The name is held for the holder that has claimed it.
    Won(Fence),
    /// Another holder has the name, at this revision of the store.
    Taken(u64),
}

/// The row of a name in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The text that the claim was made with.
    pub holder: String,
    /// The fence of the claim.
    pub fence: Fence,
}

/// The row of a name at a revision of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The row. `None` if the name is free.
    pub row: Option<Row>,
    /// The revision.
    pub revision: u64,
}

/// The names that have become free, and the names that have got a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The names that have become free. Some of them may have a new holder already.
    pub freed: Vec<String>,
    /// The names that have got a holder. Some of them may be free again already.
    pub claimed: Vec<String>,
    /// The revision of the store up to which these lists are complete.
    pub revision: u64,
}

/// The answer of a [`LeaseStore`], which arrives later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that several nodes share, and that decides which process holds a name.
///
/// [`EmbeddedLeases`] is one for the nodes of a single program, and [`Etcd`](super::Etcd) one for
/// nodes anywhere. Implement it to use another store. All methods must be linearizable: an answer
/// takes into account whatever was answered before the question was asked. The answer of a change
/// may get lost on its way, and then the change may have been made, or may be made later. A panic
/// counts as such an error.
///
/// The store has a revision, which is a number that each change makes greater.
pub trait LeaseStore: fmt::Debug + Send + Sync + 'static {
    /// Grants a lease that lasts for at least `time`, from the moment of the grant.
    fn grant(&self, time: Duration) -> Answer<'_, Lease>;

    /// Makes a lease last for its whole time again, from the moment of the renewal. Returns `false`
    /// if it has ended.
    fn renew(&self, lease: LeaseId) -> Answer<'_, bool>;

    /// Ends a lease, if it has not ended. All names that are held by it become free.
    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()>;

    /// Gives a name to `holder` if it is free, until the lease ends. The holder has the name only
    /// if the answer is [`Claimed::Won`].
    ///
    /// The fence is the revision that the claim has made. If the same holder already has the name
    /// by the same lease, because the answer to the same claim got lost, it is the fence of that
    /// claim. If the lease has ended, this is an error.
    fn claim<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, Claimed>;

    /// Makes a name free, if `holder` has it.
    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> Answer<'a, ()>;

    /// Makes a name free like [`release`](Self::release), after a claim of `holder` by this lease
    /// that was not answered. If the claim arrives later, it does not succeed. Otherwise nobody
    /// would know of it, and the name would be taken as long as the lease is renewed.
    fn withdraw<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, ()>;

    /// Returns what is known of a name.
    fn holder<'a>(&'a self, name: &'a str) -> Answer<'a, Known>;

    /// Waits until names have become free or were claimed after a revision, and returns them. It
    /// may also return none, so that the next call begins at a later revision.
    ///
    /// If the store does not remember all changes after the revision, this is an error.
    fn changes(&self, after: u64) -> Answer<'_, Changes>;
}

/// Why a store has not answered.
#[derive(Debug)]
pub struct StoreError(Box<dyn Error + Send + Sync>);

impl StoreError {
    /// Makes an error of its cause, or of a text.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of leases has not answered: {}", self.0)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// The store of a single program: nodes of the program that share a clone of it share its names.
///
/// A lease never ends by itself, because its node stops with the store. So if one of
/// several schedulers is dropped without an orderly end, the names of its nodes stay taken. Fences
/// grow as long as the program runs, and begin anew with it. If fences are written to something
/// that lasts longer, begin [after](Self::after) the greatest fence in it.
#[derive(Clone, Default)]
pub struct EmbeddedLeases(Arc<Embedded>);

#[derive(Default)]
struct Embedded {
    table: Mutex<Table>,
    /// Notified when the holder of a name changes.
    changed: Notify,
}

#[derive(Default)]
struct Table {
    revision: u64,
    last_lease: u64,
    leases: BTreeSet<LeaseId>,
    rows: BTreeMap<String, (Row, LeaseId)>,
    /// The oldest are forgotten.
    changes: VecDeque<Change>,
    /// The revision of the last change that was forgotten.
    forgotten: u64,
}

struct Change {
    revision: u64,
    name: String,
    /// Otherwise, the name has become free.
    is_claim: bool,
}

impl EmbeddedLeases {
    /// Creates a store without names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a store that gives only fences greater than `fence`.
    pub fn after(fence: Fence) -> Self {
        let store = Self::default();
        store.0.table.lock().revision = fence.get();
        store
    }

    fn answer<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Table) -> Result<T, StoreError>,
    ) -> Answer<'static, T> {
        let (answer, is_changed) = {
            let mut table = self.0.table.lock();
            let before = table.revision;
            let answer = question(&mut table);
            (answer, table.revision != before)
        };
        if is_changed {
            self.0.changed.notify_waiters();
        }
        Box::pin(std::future::ready(answer))
    }
}

impl Table {
    fn free(&mut self, is_meant: impl Fn(&str, &Row, LeaseId) -> bool) {
        let mut gone = Vec::new();
        self.rows.retain(|name, (row, lease)| {
            let stays = !is_meant(name, row, *lease);
            if !stays {
                gone.push(name.clone());
            }
            stays
        });
        for name in gone {
            self.change(name, false);
        }
    }

    fn change(&mut self, name: String, is_claim: bool) {
        self.revision += 1;
        self.changes.push_back(Change { revision: self.revision, name, is_claim });
        if self.changes.len() > CHANGES_MAX
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = oldest.revision;
        }
    }
}

impl LeaseStore for EmbeddedLeases {
    fn grant(&self, _: Duration) -> Answer<'_, Lease> {
        self.answer(|table| {
            table.last_lease += 1;
            let id = LeaseId(table.last_lease);
            table.leases.insert(id);
            Ok(Lease { id, lasts: Duration::MAX })
        })
    }

    fn renew(&self, lease: LeaseId) -> Answer<'_, bool> {
        self.answer(|table| Ok(table.leases.contains(&lease)))
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        self.answer(|table| {
            table.leases.remove(&lease);
            table.free(|_, _, by| by == lease);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, Claimed> {
        self.answer(|table| match table.rows.get(name) {
            Some((row, by)) if row.holder == holder && *by == lease => Ok(Claimed::Won(row.fence)),
            Some(_) => Ok(Claimed::Taken(table.revision)),
            None if !table.leases.contains(&lease) => Err(StoreError::new("the lease has ended")),
            None => {
                table.change(name.to_owned(), true);
                let fence = Fence(table.revision);
                let row = Row { holder: holder.to_owned(), fence };
                table.rows.insert(name.to_owned(), (row, lease));
                Ok(Claimed::Won(fence))
            }
        })
    }

    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> Answer<'a, ()> {
        self.answer(|table| {
            table.free(|other, row, _| other == name && row.holder == holder);
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, holder: &'a str, _: LeaseId) -> Answer<'a, ()> {
        // A claim is made when it is asked for.
        self.release(name, holder)
    }

    fn holder<'a>(&'a self, name: &'a str) -> Answer<'a, Known> {
        self.answer(|table| {
            let row = table.rows.get(name).map(|(row, _)| row.clone());
            Ok(Known { row, revision: table.revision })
        })
    }

    fn changes(&self, after: u64) -> Answer<'_, Changes> {
        Box::pin(async move {
            loop {
                let mut changed = pin!(self.0.changed.notified());
                changed.as_mut().enable();
                {
                    let table = self.0.table.lock();
                    if after < table.forgotten {
                        return Err(StoreError::new("changes were forgotten"));
                    }
                    let mut changes = Changes { revision: table.revision, ..Changes::default() };
                    for change in table.changes.iter().filter(|change| change.revision > after) {
                        let Changes { freed, claimed, .. } = &mut changes;
                        let list = if change.is_claim { claimed } else { freed };
                        list.push(change.name.clone());
                    }
                    if !changes.freed.is_empty() || !changes.claimed.is_empty() {
                        return Ok(changes);
                    }
                }
                changed.await;
            }
        })
    }
}

impl fmt::Debug for EmbeddedLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.table.lock();
        let rows = table.rows.iter().map(|(name, (row, _))| (name, row));
        f.write_str("EmbeddedLeases ")?;
        f.debug_map().entries(rows).finish()
    }
}
