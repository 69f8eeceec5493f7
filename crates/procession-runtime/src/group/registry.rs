//! Registries of processes by keys, as Elixir's `Registry`.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crate::group::table::{KeyTable, RowEvent, RowRefused, TableListener};
use crate::mailbox::call::{call_by_name, send_by_name};
use crate::process::unwind::drop_guarded;
use crate::relations::names::{RegisterError, TableEntry};
use crate::scheduler::placed::placed;
use crate::util::recv_error::RecvError;
use crate::{CallError, Pid, Reply, SendError};

/// A table of keys, processes, and a value for each pair.
///
/// In a [unique](Self::unique) registry, a key belongs to one process. In a
/// [duplicate](Self::duplicate) registry, a key belongs to any number of processes, and a process
/// may have it several times. When a process ends, its entries are removed before other processes
/// learn of the end. Clones are handles of the same registry.
///
/// A [name](crate::relations::register) is simpler, if a process needs only one name and no value.
///
/// ```
/// use procession::mailbox::send;
/// use procession::process::Registry;
/// use procession::{Context, start};
///
/// procession::run(async {
///     let topics = Registry::duplicate();
///     let reader = start(|mut cx: Context<String>| async move { cx.recv().await });
///     topics.register("news", reader.pid(), "short").expect("it is alive");
///     topics.dispatch("news", |entries| {
///         for (pid, style) in entries {
///             send(*pid, format!("a {style} text")).expect("it is alive");
///         }
///     });
///     assert_eq!(reader.await, Ok(Some("a short text".into())));
///     assert!(topics.lookup("news").is_empty());
/// });
/// ```
///
/// Keys are texts, because then no code of the caller runs while the registry is locked, and
/// because a key means the same to every program.
pub struct Registry<V> {
    table: Arc<KeyTable<Arc<V>>>,
    is_unique: bool,
}

/// The entries of one key, in the order in which they were made.
pub type RegistryEntries<V> = Arc<[(Pid, Arc<V>)]>;

impl<V: Send + Sync + 'static> Registry<V> {
    /// Creates a registry in which each key belongs to at most one process.
    pub fn unique() -> Self {
        Self { table: KeyTable::new(), is_unique: true }
    }

    /// Creates a registry in which a key can have any number of entries.
    pub fn duplicate() -> Self {
        Self { table: KeyTable::new(), is_unique: false }
    }

    /// Registers a process under a key, with a value.
    ///
    /// # Errors
    /// Returns [`RegistryError`], which holds the value, if the key is taken or the process has
    /// ended or belongs to another node.
    pub fn register(
        &self,
        key: impl Into<Arc<str>>,
        pid: Pid,
        value: V,
    ) -> Result<(), RegistryError<V>> {
        let (key, value) = (key.into(), Arc::new(value));
        let refused = self.table.insert(&key, pid, Arc::clone(&value), self.is_unique);
        refused.map_err(|refused| RegistryError { key, pid, refused, value })
    }

    /// Describes an entry that a new process gets before it runs, so that the key finds the process
    /// as soon as anybody can know the process. See
    /// [`SpawnOptions::enter`](crate::SpawnOptions::enter).
    ///
    /// If the process is restarted, the new process gets the same entry with the same value.
    ///
    /// ```
    /// use procession::process::Registry;
    /// use procession::{Context, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let rooms = Registry::unique();
    ///     let options = || SpawnOptions::new().enter(rooms.entry("lobby", "ground floor"));
    ///     let lobby = options().start(|mut cx: Context<()>| async move { cx.recv().await });
    ///     let entries = rooms.lookup("lobby");
    ///     assert_eq!((entries[0].0, *entries[0].1), (lobby.pid(), "ground floor"));
    ///
    ///     // The key is taken, so a second process is refused.
    ///     let refused = options().try_start(|_: Context<()>| async {}).unwrap_err();
    ///     let owner = refused.register_error().and_then(|error| error.owner());
    ///     assert_eq!(owner, Some(lobby.pid()));
    /// });
    /// ```
    pub fn entry(&self, key: impl Into<Arc<str>>, value: V) -> TableEntry {
        let (key, value, registry) = (key.into(), Arc::new(value), self.clone());
        TableEntry::new(Arc::clone(&key), move |pid| {
            let made = registry.table.insert(&key, pid, Arc::clone(&value), registry.is_unique);
            made.map_err(|refused| {
                let name = Arc::clone(&key);
                match refused {
                    RowRefused::Taken(owner) => RegisterError::Taken { name, owner },
                    RowRefused::NoProcess => RegisterError::Ended { name, pid },
                }
            })
        })
    }

    /// Removes all entries of a process for a key. Returns their number.
    pub fn unregister(&self, key: &str, pid: Pid) -> usize {
        self.table.remove(key, pid, usize::MAX)
    }

    /// Removes the entries of a process for a key with values that `wanted` accepts. Returns their
    /// number.
    pub fn unregister_if(&self, key: &str, pid: Pid, mut wanted: impl FnMut(&V) -> bool) -> usize {
        self.table.remove_if(key, pid, |value| wanted(value))
    }

    /// Returns the entries of a key. The list is empty if no process has the key.
    ///
    /// The list is shared until the next change, so repeated lookups copy nothing.
    pub fn lookup(&self, key: &str) -> RegistryEntries<V> {
        self.table.lookup(key)
    }

    /// Sends to the process that has a key now. If several processes have the key, the message goes
    /// to the process with the oldest entry. To send to all processes with the key, use
    /// [`dispatch`](Self::dispatch).
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::process::Registry;
    /// use procession::{Context, Reply, SpawnOptions};
    ///
    /// enum Account {
    ///     Deposit(u32),
    ///     Balance(Reply<u32>),
    /// }
    ///
    /// async fn account(mut cx: Context<Account>) {
    ///     let mut balance = 0;
    ///     while let Some(message) = cx.recv().await {
    ///         match message {
    ///             Account::Deposit(amount) => balance += amount,
    ///             Account::Balance(reply) => reply.send(balance),
    ///         }
    ///     }
    /// }
    ///
    /// procession::run(async {
    ///     let accounts = Registry::unique();
    ///     SpawnOptions::new().enter(accounts.entry("ann", ())).start(account).detach();
    ///     accounts.send("ann", Account::Deposit(7))?;
    ///     let balance = accounts.call("ann", Account::Balance, Duration::from_secs(1));
    ///     assert_eq!(balance.await?, 7);
    ///     let error = accounts.send("bob", Account::Deposit(1)).unwrap_err();
    ///     assert_eq!(error.to_string(), "cannot send: no process is registered as `bob`");
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError`] returns the message if no process has the key, the process receives another
    /// type, or its mailbox refuses the message. The text of the error has the key.
    pub fn send<M: Send + 'static>(&self, key: &str, message: M) -> Result<(), SendError<M>> {
        send_by_name(&key.into(), self.oldest(key), message)
    }

    /// Calls the process that has a key at the first poll. See [`send`](Self::send) for the process
    /// that is chosen, and [`Address::call`](crate::Address::call).
    ///
    /// # Errors
    /// Returns [`CallError`], for example if no process has the key, or the process receives
    /// messages of another type.
    ///
    /// # Cancellation
    /// See [`Address::call`](crate::Address::call).
    #[track_caller]
    pub fn call<M: Send + 'static, T: Send + 'static>(
        &self,
        key: &str,
        message: impl FnOnce(Reply<T>) -> M,
        timeout: Duration,
    ) -> impl Future<Output = Result<T, CallError<M>>> {
        placed(async move { call_by_name(&key.into(), self.oldest(key), message, timeout).await })
    }

    fn oldest(&self, key: &str) -> Option<Pid> {
        Some(self.lookup(key).first()?.0)
    }

    /// Returns the values of a process for a key.
    pub fn values(&self, key: &str, pid: Pid) -> Vec<Arc<V>> {
        self.table.own_rows(key, pid).into_iter().map(|(_, value)| value).collect()
    }

    /// Returns the keys of a process, in their order. A key with several entries is in the list
    /// that many times.
    pub fn keys(&self, pid: Pid) -> Vec<Arc<str>> {
        self.table.keys_of(pid)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `dispatch` with the entries of a key, unless there are none. Returns `true` if it was
    /// called.
    ///
    /// It runs on the calling thread and without locks, so it may use the registry.
    pub fn dispatch(&self, key: &str, dispatch: impl FnOnce(&[(Pid, Arc<V>)])) -> bool {
        let entries = self.lookup(key);
        let is_any = !entries.is_empty();
        if is_any {
            dispatch(&entries);
        }
        is_any
    }

    /// Replaces the value of the oldest entry of a process for a key by what `update` returns for
    /// it. Returns the new value and the old value, or `None` if there is no such entry.
    ///
    /// `update` runs without locks. If another thread replaces the value while `update` runs,
    /// `update` is called again with the new value.
    ///
    /// ```
    /// use procession::process::Registry;
    ///
    /// procession::run(async {
    ///     let counts = Registry::unique();
    ///     let process = procession::spawn(std::future::pending::<()>());
    ///     counts.register("hits", process.pid(), 1).expect("it is alive");
    ///     let updated = counts.update_value("hits", process.pid(), |hits| hits + 1);
    ///     assert_eq!(updated, Some((2.into(), 1.into())));
    ///     assert_eq!(counts.update_value("misses", process.pid(), |_| unreachable!()), None);
    /// });
    /// ```
    pub fn update_value(
        &self,
        key: &str,
        pid: Pid,
        mut update: impl FnMut(&V) -> V,
    ) -> Option<(Arc<V>, Arc<V>)> {
        loop {
            let (number, old) = self.table.own_rows(key, pid).into_iter().next()?;
            let new = Arc::new(update(&old));
            let replaced =
                self.table.replace(key, number, Arc::clone(&new), |own| Arc::ptr_eq(own, &old));
            match replaced {
                Some((_, true)) => return Some((new, old)),
                Some((own, false)) => drop_guarded(own),
                None => {}
            }
        }
    }

    /// Listens to the registry. From now on, the listener receives each new entry and each removed
    /// entry.
    pub fn listen(&self) -> RegistryListener<V> {
        RegistryListener(self.table.listen_to_all().1)
    }
}

impl<V> Clone for Registry<V> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table), is_unique: self.is_unique }
    }
}

impl<V> fmt::Debug for Registry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("is_unique", &self.is_unique).finish_non_exhaustive()
    }
}

/// A change of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryEvent<V> {
    /// An entry was made. If its process ends at this moment, its removal follows, and the call may
    /// be refused.
    Register {
        /// The key.
        key: Arc<str>,
        /// The process.
        pid: Pid,
        /// The value.
        value: Arc<V>,
    },
    /// An entry was removed, by a call or because its process has ended.
    Unregister {
        /// The key.
        key: Arc<str>,
        /// The process.
        pid: Pid,
        /// The value that the entry had.
        value: Arc<V>,
    },
}

impl<V> RegistryEvent<V> {
    fn of(event: RowEvent<Arc<V>>) -> Self {
        let RowEvent { key, pid, value, is_removed } = event;
        if is_removed {
            Self::Unregister { key, pid, value }
        } else {
            Self::Register { key, pid, value }
        }
    }
}

/// Receives the changes of a registry. Made by [`Registry::listen`].
///
/// Events wait for their receiver in memory with their values, without a limit. Dropping the
/// listener ends it.
#[derive(Debug)]
#[must_use = "dropping the listener ends it"]
pub struct RegistryListener<V: Send + Sync + 'static>(TableListener<Arc<V>>);

impl<V: Send + Sync + 'static> RegistryListener<V> {
    /// Receives the next event.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no event is lost.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = RegistryEvent<V>> {
        let waits = Listening(self);
        placed(async move { poll_fn(|task| waits.0.poll_recv(task)).await })
    }

    /// Receives the next event if there is one, without waiting.
    ///
    /// # Errors
    /// [`RecvError::Empty`]: there is no event now.
    pub fn try_recv(&mut self) -> Result<RegistryEvent<V>, RecvError> {
        self.0.try_recv().map(RegistryEvent::of)
    }

    /// Polls for the next event. While it is pending, the listener keeps the waker.
    pub(crate) fn poll_recv(&mut self, task: &TaskContext<'_>) -> Poll<RegistryEvent<V>> {
        self.0.poll_recv(task).map(RegistryEvent::of)
    }
}

/// A wait for an event. Its drop removes the waker.
struct Listening<'a, V: Send + Sync + 'static>(&'a mut RegistryListener<V>);

impl<V: Send + Sync + 'static> Drop for Listening<'_, V> {
    fn drop(&mut self) {
        self.0.0.stop_waiting();
    }
}

/// The error of a refused registration. It holds the value.
pub struct RegistryError<V> {
    key: Arc<str>,
    pid: Pid,
    refused: RowRefused,
    value: Arc<V>,
}

impl<V> RegistryError<V> {
    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the process that has the key, if the key is taken.
    pub fn owner(&self) -> Option<Pid> {
        match self.refused {
            RowRefused::Taken(owner) => Some(owner),
            RowRefused::NoProcess => None,
        }
    }

    /// Returns the value. It is shared if a lookup has returned it just before the process ended.
    pub fn into_inner(self) -> Arc<V> {
        self.value
    }
}

impl<V> fmt::Debug for RegistryError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryError")
            .field("key", &self.key)
            .field("pid", &self.pid)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Display for RegistryError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, pid) = (self.key.escape_debug(), self.pid);
        match self.refused {
            RowRefused::Taken(owner) => {
                write!(f, "cannot register {pid}: the key `{key}` is taken by {owner}")
            }
            RowRefused::NoProcess => {
                write!(f, "cannot register {pid} under `{key}`: there is no such process")
            }
        }
    }
}

impl<V> Error for RegistryError<V> {}
