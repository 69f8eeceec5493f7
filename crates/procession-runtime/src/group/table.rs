//! Tables of keys and processes, which forget a process when it ends.
//!
//! A table is under the lock of a bell, which rings for the listeners of the table. The values of
//! users are cloned and dropped outside of that lock; under it they are only moved, or cloned as an
//! `Arc`.
//!
//! A row is made before the table is entered with its process (`relations/on_exit.rs`). If the
//! process ends between the two, either its end or the thread that made the row removes the row.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::relations::on_exit::Left;
use procession_protocols::sync::bell::Bell;
use procession_protocols::sync::wait_list::Place;
use procession_protocols::util::block_queue::BlockQueue;
use procession_protocols::util::sorted_map::{SortedMap, SortedSet};

use crate::Pid;
use crate::process::served::WakeServed;
use crate::process::unwind::drop_each;
use crate::relations::entries::{Membership, Memberships};
use crate::relations::links;
use crate::scheduler::budget;
use crate::scheduler::listener;
use crate::scheduler::reach::find;
use crate::util::recv_error::RecvError;

/// The rows of a key, in the order in which they were made.
pub(crate) type KeyRows<V> = Arc<[(Pid, V)]>;

/// A change of a table.
#[derive(Clone, Debug)]
pub(crate) struct RowEvent<V> {
    pub(crate) key: Arc<str>,
    pub(crate) pid: Pid,
    pub(crate) value: V,
    /// Whether the row was removed. If not, it is new.
    pub(crate) is_removed: bool,
}

/// The reason why a row was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowRefused {
    /// The key is unique, and this process has it.
    Taken(Pid),
    /// There is no such process in this program.
    NoProcess,
}

#[derive(Debug)]
struct KeyEntry<V> {
    /// By the number of the row.
    rows: SortedMap<u64, (Pid, V)>,
    /// The same rows, if they were asked for since the last change.
    list: Option<KeyRows<V>>,
}

#[derive(Debug)]
struct ListenerQueue<V> {
    /// The key that it listens to, or `None` for all.
    key: Option<Arc<str>>,
    events: BlockQueue<RowEvent<V>>,
}

/// What is under the lock of a table.
#[derive(Debug)]
struct Rows<V> {
    keys: SortedMap<Arc<str>, KeyEntry<V>>,
    of_process: SortedMap<Pid, SortedSet<(Arc<str>, u64)>>,
    listeners: SortedMap<u64, ListenerQueue<V>>,
    /// The last number of a row or a listener.
    last: u64,
}

/// Values that are dropped outside the lock.
struct Removed<V> {
    values: Vec<V>,
    lists: Vec<KeyRows<V>>,
    is_heard: bool,
}

impl<V: Clone> Rows<V> {
    fn draw(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Queues the event for each listener of its key. Returns `true` if there is such a listener.
    fn tell(&mut self, event: &RowEvent<V>) -> bool {
        let mut is_heard = false;
        for listener in self.listeners.values_mut() {
            if listener.key.as_ref().is_none_or(|key| *key == event.key) {
                listener.events.push_back(event.clone());
                is_heard = true;
            }
        }
        is_heard
    }

    /// Adds a row. Returns `true` if listeners were informed, and the list that is out of date.
    fn insert(&mut self, key: Arc<str>, pid: Pid, value: V) -> (bool, Option<KeyRows<V>>) {
        let number = self.draw();
        let entry = self.keys.get_or_insert_with(Arc::clone(&key), || KeyEntry {
            rows: SortedMap::new(),
            list: None,
        });
        let list = entry.list.take();
        entry.rows.insert(number, (pid, value.clone()));
        self.of_process.get_or_default(pid).insert((Arc::clone(&key), number));
        (self.tell(&RowEvent { key, pid, value, is_removed: false }), list)
    }

    /// Removes rows of one process.
    fn remove(&mut self, pid: Pid, rows: impl IntoIterator<Item = (Arc<str>, u64)>) -> Removed<V> {
        let mut removed = Removed { values: Vec::new(), lists: Vec::new(), is_heard: false };
        for (key, number) in rows {
            let Some(entry) = self.keys.get_mut(&key) else { continue };
            let Some((_, value)) = entry.rows.remove(&number) else { continue };
            removed.values.push(value.clone());
            removed.lists.extend(entry.list.take());
            if entry.rows.is_empty() {
                self.keys.remove(&key);
            }
            if let Some(own) = self.of_process.get_mut(&pid) {
                own.remove(&(Arc::clone(&key), number));
                if own.is_empty() {
                    self.of_process.remove(&pid);
                }
            }
            removed.is_heard |= self.tell(&RowEvent { key, pid, value, is_removed: true });
        }
        removed
    }

    /// Returns the numbers of the rows that a process has for a key, the oldest first.
    fn numbers(&self, key: &str, pid: Pid) -> impl Iterator<Item = u64> {
        let of_key = self.keys.get_key_value(key);
        let own = self.of_process.get(&pid).zip(of_key).map(|(own, (key, _))| {
            let rows = (Arc::clone(key), 0)..=(Arc::clone(key), u64::MAX);
            own.range(rows).map(|&(_, number)| number)
        });
        own.into_iter().flatten()
    }
}

/// A table of keys and processes.
#[derive(Debug)]
pub(crate) struct KeyTable<V> {
    rows: Bell<Rows<V>>,
    number: u64,
}

/// The last handle of a table may be dropped by the end of a process, or while a thread unwinds. So
/// a value that panics when it is dropped must neither keep the remaining values from being dropped
/// nor end the program.
impl<V> Drop for KeyTable<V> {
    fn drop(&mut self) {
        let (keys, listeners) = self.rows.change(|ringing| {
            let rows = &mut ringing.about;
            (std::mem::take(&mut rows.keys), std::mem::take(&mut rows.listeners))
        });
        let events = listeners.into_values().flat_map(|listener| listener.events);
        drop_each(events);
        for KeyEntry { rows, list } in keys.into_values() {
            // First, so that no list has the last reference to several values.
            drop_each(list);
            drop_each(rows.into_values());
        }
    }
}

impl<V: Clone + Send + Sync + 'static> KeyTable<V> {
    pub(crate) fn new() -> Arc<Self> {
        let rows = Rows {
            keys: SortedMap::new(),
            of_process: SortedMap::new(),
            listeners: SortedMap::new(),
            last: 0,
        };
        Arc::new(Self { rows: Bell::new(rows), number: Memberships::draw() })
    }

    /// Adds a row. If `is_unique`, there must be none for this key.
    pub(crate) fn insert(
        self: &Arc<Self>,
        key: &Arc<str>,
        pid: Pid,
        value: V,
        is_unique: bool,
    ) -> Result<(), RowRefused> {
        budget::spend();
        let slot = find(pid).ok_or(RowRefused::NoProcess)?;
        let (old, woken) = self.rows.change(|ringing| {
            let rows = &mut ringing.about;
            let owner = rows.keys.get(key).and_then(|entry| entry.rows.first_key_value());
            if let Some((_, &(owner, _))) = owner.filter(|_| is_unique) {
                return Err(RowRefused::Taken(owner));
            }
            let (is_heard, list) = rows.insert(Arc::clone(key), pid, value);
            Ok((list, is_heard.then(|| ringing.ring_all())))
        })?;
        drop_each(old);
        if let Some(woken) = woken {
            woken.wake();
        }
        let table: Arc<dyn Membership> = Arc::<Self>::clone(self);
        match links::enter_table(&slot, &table) {
            Left::There => Ok(()),
            Left::TooLate => {
                self.forget(pid);
                Err(RowRefused::NoProcess)
            }
        }
    }

    /// Adds a row of a process of another node. The table does not learn of the end of that
    /// process.
    pub(crate) fn insert_remote(&self, key: &Arc<str>, pid: Pid, value: V) {
        budget::spend();
        let (old, woken) = self.rows.change(|ringing| {
            let (is_heard, list) = ringing.about.insert(Arc::clone(key), pid, value);
            (list, is_heard.then(|| ringing.ring_all()))
        });
        drop_each(old);
        if let Some(woken) = woken {
            woken.wake();
        }
    }

    /// Removes the rows of a process that `choose` returns.
    fn remove_rows(
        &self,
        pid: Pid,
        choose: impl FnOnce(&Rows<V>) -> Vec<(Arc<str>, u64)>,
    ) -> usize {
        let (removed, woken) = self.rows.change(|ringing| {
            let chosen = choose(&ringing.about);
            let removed = ringing.about.remove(pid, chosen);
            let woken = removed.is_heard.then(|| ringing.ring_all());
            (removed, woken)
        });
        if let Some(woken) = woken {
            woken.wake();
        }
        let count = removed.values.len();
        // The lists first, while the values are there: a list that dropped several itself would end
        // the program at the second panic.
        drop_each(removed.lists);
        drop_each(removed.values);
        count
    }

    /// Removes at most `limit` rows that a process has for a key, the oldest first. Returns their
    /// number.
    pub(crate) fn remove(&self, key: &str, pid: Pid, limit: usize) -> usize {
        budget::spend();
        self.remove_rows(pid, |rows| {
            let Some((key, _)) = rows.keys.get_key_value(key) else { return Vec::new() };
            let numbers = rows.numbers(key, pid).take(limit);
            numbers.map(|number| (Arc::clone(key), number)).collect()
        })
    }

    /// Removes the rows that a process has for a key, if `wanted` accepts their values.
    pub(crate) fn remove_if(
        &self,
        key: &str,
        pid: Pid,
        mut wanted: impl FnMut(&V) -> bool,
    ) -> usize {
        let mut chosen = self.own_rows(key, pid);
        chosen.retain(|(_, value)| wanted(value));
        let key: Arc<str> = key.into();
        let numbers = chosen.iter().map(|&(number, _)| (Arc::clone(&key), number)).collect();
        self.remove_rows(pid, |_| numbers)
    }

    /// Returns the rows of a key.
    pub(crate) fn lookup(&self, key: &str) -> KeyRows<V> {
        budget::spend();
        self.rows.change(|ringing| {
            let Some(entry) = ringing.about.keys.get_mut(key) else { return Arc::from([]) };
            let KeyEntry { rows, list } = entry;
            Arc::clone(list.get_or_insert_with(|| rows.values().cloned().collect()))
        })
    }

    /// Returns the rows that a process has for a key, with their numbers.
    pub(crate) fn own_rows(&self, key: &str, pid: Pid) -> Vec<(u64, V)> {
        budget::spend();
        self.rows.change(|ringing| {
            let numbers = ringing.about.numbers(key, pid);
            let Some(entry) = ringing.about.keys.get(key) else { return Vec::new() };
            let row = |number| Some((number, entry.rows.get(&number)?.1.clone()));
            numbers.filter_map(row).collect()
        })
    }

    /// Returns `true` if a process has a row for a key.
    pub(crate) fn contains(&self, key: &str, pid: Pid) -> bool {
        budget::spend();
        self.rows.change(|ringing| ringing.about.numbers(key, pid).next().is_some())
    }

    /// Replaces the value of a row if `is_old` accepts it. Returns the value that is not in the
    /// table afterwards, and `true` if it was replaced. Returns `None` if there is no such row.
    pub(crate) fn replace(
        &self,
        key: &str,
        number: u64,
        value: V,
        is_old: impl FnOnce(&V) -> bool,
    ) -> Option<(V, bool)> {
        let (replaced, list) = self.rows.change(|ringing| {
            let entry = ringing.about.keys.get_mut(key)?;
            let (_, own) = entry.rows.get_mut(&number)?;
            if !is_old(own) {
                return Some(((value, false), None));
            }
            Some(((std::mem::replace(own, value), true), entry.list.take()))
        })?;
        drop_each(list);
        Some(replaced)
    }

    /// Returns the keys of all rows of a process, a key once for each row.
    pub(crate) fn keys_of(&self, pid: Pid) -> Vec<Arc<str>> {
        budget::spend();
        self.rows.change(|ringing| {
            let own = ringing.about.of_process.get(&pid);
            own.into_iter().flatten().map(|(key, _)| Arc::clone(key)).collect()
        })
    }

    /// Returns all keys, in their order.
    pub(crate) fn keys(&self) -> Vec<Arc<str>> {
        budget::spend();
        self.rows.change(|ringing| ringing.about.keys.keys().cloned().collect())
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        budget::spend();
        self.rows.change(|ringing| ringing.about.of_process.values().map(SortedSet::len).sum())
    }

    /// Listens to one key or to all. `look` sees the rows in the same critical section.
    fn listen<R>(
        self: &Arc<Self>,
        key: Option<Arc<str>>,
        look: impl FnOnce(&mut Rows<V>) -> R,
    ) -> (R, TableListener<V>) {
        budget::spend();
        let (seen, number) = self.rows.change(|ringing| {
            let rows = &mut ringing.about;
            let seen = look(rows);
            let number = rows.draw();
            rows.listeners.insert(number, ListenerQueue { key, events: BlockQueue::new() });
            (seen, number)
        });
        (seen, TableListener { table: Arc::clone(self), number, place: None })
    }

    /// Listens to one key. Returns the processes that have rows of this key now.
    pub(crate) fn listen_to(self: &Arc<Self>, key: Arc<str>) -> (Vec<Pid>, TableListener<V>) {
        let own = Arc::clone(&key);
        self.listen(Some(key), |rows| {
            let entry = rows.keys.get(&own);
            entry.into_iter().flat_map(|entry| entry.rows.values()).map(|&(pid, _)| pid).collect()
        })
    }

    /// Listens to all keys. Returns each key with the processes that have rows for the key now.
    pub(crate) fn listen_to_all(
        self: &Arc<Self>,
    ) -> (BTreeMap<Arc<str>, Vec<Pid>>, TableListener<V>) {
        self.listen(None, |rows| {
            let pids = |entry: &KeyEntry<V>| entry.rows.values().map(|&(pid, _)| pid).collect();
            rows.keys.iter().map(|(key, entry)| (Arc::clone(key), pids(entry))).collect()
        })
    }
}

impl<V: Clone + Send + Sync + 'static> Membership for KeyTable<V> {
    fn number(&self) -> u64 {
        self.number
    }

    fn forget(&self, pid: Pid) {
        self.remove_rows(pid, |rows| {
            rows.of_process.get(&pid).into_iter().flatten().cloned().collect()
        });
    }

    #[cfg(feature = "sim")]
    fn processes(&self) -> Vec<Pid> {
        self.rows.change(|ringing| ringing.about.of_process.keys().copied().collect())
    }
}

/// A listener to the changes of a table.
#[derive(Debug)]
pub(crate) struct TableListener<V: Clone + Send + Sync + 'static> {
    table: Arc<KeyTable<V>>,
    number: u64,
    /// The place of the waiter in the bell, while it waits.
    place: Option<Place>,
}

impl<V: Clone + Send + Sync + 'static> TableListener<V> {
    pub(crate) fn try_recv(&mut self) -> Result<RowEvent<V>, RecvError> {
        budget::spend();
        let event = self.table.rows.change(|ringing| next(&mut ringing.about, self.number));
        event.ok_or(RecvError::Empty)
    }

    /// Polls for the next event. While it is pending, the waker stays in the table.
    pub(crate) fn poll_recv(&mut self, task: &TaskContext<'_>) -> Poll<RowEvent<V>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        let Self { table, number, place } = self;
        listener::look_or_wait(&table.rows, place, task, |rows| next(rows, *number))
    }

    /// Removes the waker.
    pub(crate) fn stop_waiting(&mut self) {
        listener::leave(&self.table.rows, &mut self.place);
    }
}

fn next<V>(rows: &mut Rows<V>, number: u64) -> Option<RowEvent<V>> {
    rows.listeners.get_mut(&number)?.events.pop_front()
}

impl<V: Clone + Send + Sync + 'static> Drop for TableListener<V> {
    fn drop(&mut self) {
        self.stop_waiting();
        let queue = self.table.rows.change(|ringing| ringing.about.listeners.remove(&self.number));
        drop_each(queue.into_iter().flat_map(|queue| queue.events));
    }
}
