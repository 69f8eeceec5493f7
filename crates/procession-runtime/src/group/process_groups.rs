//! Process groups, as `pg` of OTP has them.

use std::any::type_name;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use crate::Pid;
use crate::group::table::{KeyTable, RowEvent, TableListener};
use crate::mailbox::fan_out::{FannedOut, send_each};
use crate::mailbox::send_error::SendCause;
use crate::relations::names::{RegisterError, TableEntry};
use crate::scheduler::placed::placed;
use crate::util::exclusive::Exclusive;
use crate::util::recv_error::RecvError;

/// A scope of process groups: names under which any number of processes can be reached together.
///
/// A group exists while it has members. A process may be in many groups, and several times in one.
/// When it ends, it leaves all groups before other processes learn of the end. Clones are handles
/// of the same scope. Scopes have nothing in common, so several parts of a program can use the same
/// names of groups.
///
/// The members may belong to any scheduler of the program. Groups name them by PID and keep nothing
/// alive.
///
/// ```
/// use procession::process::Groups;
/// use procession::{Context, start};
///
/// procession::run(async {
///     let rooms = Groups::new();
///     let listen = |mut cx: Context<&'static str>| async move { cx.recv().await };
///     let (ann, ben) = (start(listen), start(listen));
///     rooms.join("lobby", ann.pid())?;
///     rooms.join("lobby", ben.pid())?;
///     assert_eq!(rooms.members("lobby"), [ann.pid(), ben.pid()]);
///     assert_eq!(rooms.broadcast("lobby", "hello")?, 2);
///     assert_eq!((ann.await, ben.await), (Ok(Some("hello")), Ok(Some("hello"))));
///     assert!(rooms.groups().is_empty(), "both have ended");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Groups(Arc<KeyTable<()>>);

impl Groups {
    /// Creates a scope without groups.
    pub fn new() -> Self {
        Self(KeyTable::new())
    }

    /// Adds a process to a group. A process that is a member already becomes a member once more.
    ///
    /// # Errors
    /// [`RegisterError::NoMember`]: the process has ended, or belongs to another node.
    pub fn join(&self, group: impl Into<Arc<str>>, pid: Pid) -> Result<(), RegisterError> {
        let group = group.into();
        self.0.insert(&group, pid, (), false).map_err(|_| RegisterError::NoMember { group, pid })
    }

    /// Adds a process of another node to a group. Returns `false` if it belongs to this node.
    ///
    /// It is for crates that connect programs, such as `procession-cluster`: its `share_groups`
    /// makes one scope of the groups of several nodes. The scope does not learn of the end of the
    /// process, so the code that adds it also [removes](Self::leave) it.
    ///
    /// ```
    /// use procession::mailbox::relay::{
    ///     NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal,
    /// };
    /// use procession::process::Groups;
    ///
    /// /// A node that cannot be reached.
    /// struct OutOfReach;
    ///
    /// impl Relay for OutOfReach {
    ///     fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
    ///         Err(parcel.refused(RelayCause::NoConnection))
    ///     }
    /// }
    ///
    /// impl NodeRelay for OutOfReach {
    ///     fn signal(&self, _: RemoteSignal) {}
    /// }
    ///
    /// let node = RemoteNode::join(OutOfReach).expect("not all numbers are taken");
    /// let (rooms, far) = (Groups::new(), node.pid(7, 0));
    /// assert!(rooms.join_remote("lobby", far));
    /// assert_eq!(rooms.members("lobby"), [far]);
    /// assert!(rooms.local_members("lobby").is_empty());
    /// assert!(rooms.leave("lobby", far));
    /// ```
    pub fn join_remote(&self, group: impl Into<Arc<str>>, pid: Pid) -> bool {
        let is_remote = pid.remote_parts().is_some();
        if is_remote {
            self.0.insert_remote(&group.into(), pid, ());
        }
        is_remote
    }

    /// Describes a membership that a new process gets before it runs. See
    /// [`SpawnOptions::enter`](crate::SpawnOptions::enter).
    ///
    /// ```
    /// use procession::process::Groups;
    /// use procession::{Context, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let rooms = Groups::new();
    ///     let options = SpawnOptions::new().enter(rooms.entry("lobby"));
    ///     let ann = options.start(|mut cx: Context<&str>| async move { cx.recv().await });
    ///     assert_eq!(rooms.broadcast("lobby", "hello")?, 1);
    ///     assert_eq!(ann.await, Ok(Some("hello")));
    ///     Ok::<(), procession::process::BroadcastError<&str>>(())
    /// })?;
    /// # Ok::<(), procession::process::BroadcastError<&str>>(())
    /// ```
    pub fn entry(&self, group: impl Into<Arc<str>>) -> TableEntry {
        let (group, groups) = (group.into(), self.clone());
        TableEntry::new(Arc::clone(&group), move |pid| groups.join(Arc::clone(&group), pid))
    }

    /// Removes a process from a group, once. Returns `true` if it was a member.
    pub fn leave(&self, group: &str, pid: Pid) -> bool {
        self.0.remove(group, pid, 1) > 0
    }

    /// Returns the members of a group in the order in which they joined. A process that joined
    /// several times is in the list that many times.
    pub fn members(&self, group: &str) -> Vec<Pid> {
        self.0.lookup(group).iter().map(|&(pid, ())| pid).collect()
    }

    /// Returns the members that belong to this node, like [`members`](Self::members).
    pub fn local_members(&self, group: &str) -> Vec<Pid> {
        let mut members = self.members(group);
        members.retain(|pid| pid.node() == 0);
        members
    }

    /// Returns `true` if a process is a member of a group. However many members there are, this
    /// takes about the same time.
    ///
    /// ```
    /// use procession::process::Groups;
    ///
    /// procession::run(async {
    ///     let rooms = Groups::new();
    ///     let ann = procession::spawn(std::future::pending::<()>());
    ///     rooms.join("lobby", ann.pid())?;
    ///     assert!(rooms.is_member("lobby", ann.pid()));
    ///     assert!(!rooms.is_member("kitchen", ann.pid()));
    ///     ann.cancel();
    ///     Ok::<(), procession::process::RegisterError>(())
    /// })?;
    /// # Ok::<(), procession::process::RegisterError>(())
    /// ```
    pub fn is_member(&self, group: &str, pid: Pid) -> bool {
        self.0.contains(group, pid)
    }

    /// Returns the names of the groups that have members, in their order.
    pub fn groups(&self) -> Vec<Arc<str>> {
        self.0.keys()
    }

    /// Returns the groups of a process, in their order. A group that the process joined several
    /// times is in the list that many times.
    pub fn groups_of(&self, pid: Pid) -> Vec<Arc<str>> {
        self.0.keys_of(pid)
    }

    /// Sends a clone of a message to each member of a group, in the order in which they joined.
    /// Returns the number of members that accepted it. A process that joined several times gets as
    /// many clones.
    ///
    /// Members that have just ended do not accept it. If the mailbox of a member is full, its
    /// [policy](crate::mailbox::WhenFull) decides, as for a [send](crate::mailbox::send). For
    /// example, [`WhenFull::Kill`](crate::mailbox::WhenFull::Kill) ends a member that reads so
    /// slowly that its mailbox is full, and all other members have the message. A broadcast never
    /// blocks. Like all sends by PID, it passes the [`Relay`](crate::relay::Relay) of the scheduler
    /// for members of other schedulers.
    ///
    /// The cost grows with the number of members, and the calling process pays the whole cost in
    /// one step. Messages are cloned 64 at a time, before the first clone is sent. If there are
    /// eight or more clones of up to 48 bytes, they share memory: a message that a slow member has
    /// not received keeps 512 bytes.
    ///
    /// # Errors
    /// Returns [`BroadcastError`] if the group has no members, or if a member receives messages of
    /// another type. In the second case all other members have the message, and the error counts
    /// them.
    ///
    /// ```
    /// use procession::process::Groups;
    /// use procession::{Context, start};
    ///
    /// procession::run(async {
    ///     let rooms = Groups::new();
    ///     let error = rooms.broadcast("lobby", 1).unwrap_err();
    ///     let text = "cannot broadcast a message of type i32 to the group `lobby`: it has no \
    ///                 members";
    ///     assert_eq!(error.to_string(), text);
    ///
    ///     let ann = start(|mut cx: Context<u64>| async move { cx.recv().await });
    ///     rooms.join("lobby", ann.pid())?;
    ///     let error = rooms.broadcast("lobby", 1).unwrap_err();
    ///     let text = format!(
    ///         "cannot broadcast to the group `lobby`: cannot send to {}: the message is of type \
    ///          i32, but the process receives u64",
    ///         ann.pid(),
    ///     );
    ///     assert_eq!(error.to_string(), text);
    ///     assert_eq!(error.into_inner(), Some(1));
    ///     Ok::<(), procession::process::RegisterError>(())
    /// })?;
    /// # Ok::<(), procession::process::RegisterError>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the `Clone` of the message panics. Members that were served before the panic have
    /// the message.
    pub fn broadcast<M: Clone + Send + 'static>(
        &self,
        group: &str,
        message: M,
    ) -> Result<usize, BroadcastError<M>> {
        let mut message = Some(message);
        let sent = self.send_each(group, |is_last| {
            let copy = if is_last { message.take() } else { message.clone() };
            copy.expect("the message itself goes to the last member")
        });
        sent.map_err(|error| BroadcastError {
            message: Exclusive::new(error.message.into_inner().or(message)),
            ..error
        })
    }

    /// Sends a message that `make` makes to each member of a group, like
    /// [`broadcast`](Self::broadcast). The messages need no `Clone`, and each may differ.
    ///
    /// `make` is called once for each member. It is called for 64 members before the first of these
    /// messages is sent.
    ///
    /// ```
    /// use procession::process::Groups;
    /// use procession::sync::channel;
    /// use procession::{Context, start};
    ///
    /// procession::run(async {
    ///     let workers = Groups::new();
    ///     for _ in 0..2 {
    ///         // A message that cannot be cloned.
    ///         let worker = start(|mut cx: Context<Box<dyn FnOnce() + Send>>| async move {
    ///             while let Some(job) = cx.recv().await {
    ///                 job();
    ///             }
    ///         });
    ///         workers.join("all", worker.pid())?;
    ///     }
    ///     let (done, dones) = channel::unbounded();
    ///     let told = workers.broadcast_with("all", || -> Box<dyn FnOnce() + Send> {
    ///         let done = done.clone();
    ///         Box::new(move || drop(done.try_send("done")))
    ///     })?;
    ///     assert_eq!(told, 2);
    ///     assert_eq!((dones.recv().await, dones.recv().await), (Some("done"), Some("done")));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`broadcast`](Self::broadcast).
    ///
    /// # Panics
    /// Panics if `make` panics. Members that were served before the panic have their messages.
    pub fn broadcast_with<M: Send + 'static>(
        &self,
        group: &str,
        mut make: impl FnMut() -> M,
    ) -> Result<usize, BroadcastError<M>> {
        self.send_each(group, |_| make())
    }

    fn send_each<M: Send + 'static>(
        &self,
        group: &str,
        make: impl FnMut(bool) -> M,
    ) -> Result<usize, BroadcastError<M>> {
        let members = self.0.lookup(group);
        let FannedOut { accepted, wrong_type } = send_each(&members, make);
        if wrong_type.is_none() && !members.is_empty() {
            return Ok(accepted);
        }
        let (message, cause) = wrong_type.map(|error| error.into_parts()).unzip();
        Err(BroadcastError {
            group: group.into(),
            message: Exclusive::new(message),
            accepted,
            cause,
        })
    }

    /// Monitors a group. Returns its present members, and a monitor that receives each join and
    /// leave from then on.
    ///
    /// ```
    /// use procession::process::{GroupEvent, Groups, RegisterError};
    ///
    /// procession::run(async {
    ///     let groups = Groups::new();
    ///     let (members, mut monitor) = groups.monitor("workers");
    ///     assert!(members.is_empty());
    ///     let worker = procession::spawn(std::future::pending::<()>());
    ///     let pid = worker.pid();
    ///     groups.join("workers", pid)?;
    ///     worker.cancel();
    ///     assert_eq!(monitor.recv().await, GroupEvent::Join { group: "workers".into(), pid });
    ///     assert_eq!(monitor.recv().await, GroupEvent::Leave { group: "workers".into(), pid });
    ///     Ok::<(), RegisterError>(())
    /// })?;
    /// # Ok::<(), procession::process::RegisterError>(())
    /// ```
    pub fn monitor(&self, group: impl Into<Arc<str>>) -> (Vec<Pid>, GroupMonitor) {
        let (members, listener) = self.0.listen_to(group.into());
        (members, GroupMonitor(listener))
    }

    /// Monitors all groups of the scope, like [`monitor`](Self::monitor).
    pub fn monitor_all(&self) -> (BTreeMap<Arc<str>, Vec<Pid>>, GroupMonitor) {
        let (members, listener) = self.0.listen_to_all();
        (members, GroupMonitor(listener))
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Groups").field(&self.groups()).finish()
    }
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// A process joined. If it ends at this moment, its leave follows, and the call may be refused.
    Join {
        /// The name of the group.
        group: Arc<str>,
        /// The process.
        pid: Pid,
    },
    /// A process left, or ended.
    Leave {
        /// The name of the group.
        group: Arc<str>,
        /// The process.
        pid: Pid,
    },
}

impl GroupEvent {
    fn of(event: RowEvent<()>) -> Self {
        let RowEvent { key: group, pid, value: (), is_removed } = event;
        if is_removed { Self::Leave { group, pid } } else { Self::Join { group, pid } }
    }
}

/// Receives the changes of groups. Made by [`Groups::monitor`].
///
/// Events wait for their receiver in memory, without a limit. Dropping the monitor ends it.
#[derive(Debug)]
#[must_use = "dropping the monitor ends it"]
pub struct GroupMonitor(TableListener<()>);

impl GroupMonitor {
    /// Receives the next event.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no event is lost.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = GroupEvent> {
        let waits = Monitoring(self);
        placed(async move { poll_fn(|task| waits.0.poll_recv(task)).await })
    }

    /// Receives the next event if there is one, without waiting.
    ///
    /// # Errors
    /// [`RecvError::Empty`]: there is no event now.
    pub fn try_recv(&mut self) -> Result<GroupEvent, RecvError> {
        self.0.try_recv().map(GroupEvent::of)
    }

    /// Polls for the next event. While it is pending, the monitor keeps the waker.
    pub(crate) fn poll_recv(&mut self, task: &TaskContext<'_>) -> Poll<GroupEvent> {
        self.0.poll_recv(task).map(GroupEvent::of)
    }
}

/// A wait for an event. Its drop removes the waker.
struct Monitoring<'a>(&'a mut GroupMonitor);

impl Drop for Monitoring<'_> {
    fn drop(&mut self) {
        self.0.0.stop_waiting();
    }
}

/// The error of a broadcast to a group without members, or to a member that receives messages of
/// another type.
pub struct BroadcastError<M> {
    group: Arc<str>,
    message: Exclusive<Option<M>>,
    accepted: usize,
    /// `None` if the group has no members.
    cause: Option<SendCause>,
}

impl<M> BroadcastError<M> {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the number of members that accepted the message.
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Returns the cause at the first member that receives messages of another type, or `None` if
    /// the group has no members.
    pub fn cause(&self) -> Option<&SendCause> {
        self.cause.as_ref()
    }

    /// Returns the refused message, or the message itself if the group has no members. Returns
    /// `None` for [`Groups::broadcast_with`] and a group without members, because no message was
    /// made.
    pub fn into_inner(self) -> Option<M> {
        self.message.into_inner()
    }
}

impl<M> fmt::Debug for BroadcastError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastError")
            .field("group", &self.group)
            .field("accepted", &self.accepted)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for BroadcastError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.group.escape_debug();
        match &self.cause {
            Some(cause) => write!(f, "cannot broadcast to the group `{group}`: {cause}"),
            None => {
                let message = type_name::<M>();
                write!(f, "cannot broadcast a message of type {message} to the group `{group}`: ")?;
                f.write_str("it has no members")
            }
        }
    }
}

impl<M> Error for BroadcastError<M> {}
