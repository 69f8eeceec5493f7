//! A connection to another node, as its users see it: the queue of what is sent, and the relations
//! between processes on its two sides.
//!
//! The relations end exactly once: by the signal of the other node, or by the end of the
//! connection, which closes the tables and notifies all that is still in them. A late operation
//! finds the tables closed. It uses the next connection, or immediately ends with
//! [`Exit::NoConnection`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use procession::mailbox::Recipient;
use procession::mailbox::relay::{self, RemoteSignal};
use procession::process::MonitorRef;
use procession::sync::oneshot;
use procession::time::Instant;
use procession::{Address, Exit, Pid};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::grants::Permitted;
use crate::guarded::Guarded;
use crate::handshake::{Introduction, flags};
use crate::letter::{Letter, RemoteDown, post};
use crate::outbound::{Outbound, Unqueued};
use crate::reason;
use crate::release::{Release, UNSTATED};
use crate::remote::Remote;
use crate::remotes::Held;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, Target};

/// A monitor of a process on the other side.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) process: Remote,
    /// The number of the process that watches.
    pub(crate) watcher: u64,
    pub(crate) teller: Teller,
}

/// How the end is reported to a monitor.
#[derive(Debug)]
pub(crate) enum Teller {
    /// By a letter.
    Letter(Guarded<Recipient<Letter>>),
    /// By the signal that answers the monitor of a [`Pid`].
    Signal {
        /// The monitored process.
        from: Pid,
        to: Pid,
        monitor: MonitorRef,
        /// Keeps a process known that is monitored by its name.
        #[expect(dead_code, reason = "held for its drop")]
        held: Option<Held>,
    },
    /// To the caller of a function, by the whole reason.
    Apply(oneshot::Sender<ApplyResult>),
}

/// The result of a call: the reply, or the end of the called process.
pub(crate) type CallResult = Result<Term, Exit>;

/// A call that waits for its reply. It monitors the process that it calls.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) from: NodePid,
    pub(crate) target: Target,
    pub(crate) waits: Waits,
}

/// The side of a call that waits.
pub(crate) enum Waits {
    /// [`Node::call`](crate::Node::call).
    Call(oneshot::Sender<CallResult>),
    /// A reply in a message.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "its messages need serde"))]
    Reply(Box<dyn AwaitedReply>),
}

/// A right to reply in a message to another node, which sends the reply.
pub(crate) trait AwaitedReply: Send {
    /// Returns `true` if nobody waits any more.
    #[cfg(feature = "serde")]
    fn is_abandoned(&self) -> bool;

    /// Hands the result to the caller. It runs code of the user.
    fn end(self: Box<Self>, result: CallResult);
}

impl Waits {
    /// Hands the result to the caller. It may run code of the user.
    pub(crate) fn end(self, result: CallResult) {
        match self {
            // Ignored: the caller may have given up.
            Self::Call(caller) => drop(caller.send(result)),
            Self::Reply(reply) => reply.end(result),
        }
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call(_) => "Call",
            Self::Reply(_) => "Reply",
        })
    }
}

/// What waits for the answer to a request to start a process on the other node.
#[derive(Debug)]
pub(crate) enum Asker {
    Start {
        /// The process that asks, if it is one.
        owner: Option<(u64, Pid)>,
        asked: Relations,
        caller: oneshot::Sender<StartResult>,
    },
    /// A call of a function.
    Apply(oneshot::Sender<ApplyResult>),
}

impl Asker {
    pub(crate) fn refuse(self, why: StartRefusal) {
        // Ignored: the caller may have given up.
        match self {
            Self::Start { caller, .. } => drop(caller.send(Err(why))),
            Self::Apply(caller) => drop(caller.send(Err(why))),
        }
    }
}

/// The relation that a process asks for with the process that it starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relations {
    pub(crate) links: bool,
    pub(crate) monitors: bool,
}

/// The result of a request to start a process: the process, and its monitor if it has one.
pub(crate) type StartResult = Result<(NodePid, Option<MonitorRef>), StartRefusal>;

/// The result of a call of a function: the reason with which its process has ended.
pub(crate) type ApplyResult = Result<Term, StartRefusal>;

/// Why the other node has started no process.
#[derive(Debug)]
pub(crate) enum StartRefusal {
    /// It says why.
    Refused(Atom),
    NoConnection,
}

/// The relations across a connection.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    is_closed: bool,
    pub(crate) watches: BTreeMap<Reference, Watch>,
    pub(crate) calls: BTreeMap<Reference, Caller>,
    /// The number of calls at which the table is searched for replies that nobody awaits.
    #[cfg(feature = "serde")]
    sweep_at: usize,
    pub(crate) starts: BTreeMap<Reference, Asker>,
    /// The references of the monitors in `watches` that receive letters, by the numbers of the
    /// processes that watch.
    pub(crate) by_watcher: HashMap<u64, BTreeSet<Reference>>,
    /// The references of the monitors in `watches` that receive a signal.
    pub(crate) references: HashMap<MonitorRef, Reference>,
    /// The links: the number of a process on this side, and a process on the other. The process on
    /// this side knows it as a link to a [`Pid`].
    pub(crate) links: BTreeSet<(u64, NodePid)>,
    /// The unlinks that the other side has not acknowledged, by their numbers.
    pub(crate) unlinks: BTreeMap<u64, (u64, NodePid)>,
    /// The links of `unlinks` that the process of this side has not made again, with the number of
    /// the last unlink. Until the answer, the process ignores links of the other process.
    pub(crate) unlinking: BTreeMap<(u64, NodePid), u64>,
}

/// The calls that may wait before the table is searched for abandoned calls.
#[cfg(feature = "serde")]
const SWEEP_MIN: usize = 64;

impl Tables {
    /// Takes out the calls by replies that nobody awaits any more, if there may be many. Their
    /// messages are gone, so nothing else ends them while the called process lives.
    #[cfg(feature = "serde")]
    pub(crate) fn take_abandoned(&mut self) -> Vec<(Reference, Caller)> {
        if self.calls.len() < self.sweep_at.max(SWEEP_MIN) {
            return Vec::new();
        }
        let is_abandoned = |caller: &Caller| match &caller.waits {
            Waits::Call(_) => false,
            Waits::Reply(reply) => reply.is_abandoned(),
        };
        let calls = std::mem::take(&mut self.calls).into_iter();
        let (gone, left): (Vec<_>, Vec<_>) = calls.partition(|(_, caller)| is_abandoned(caller));
        self.calls = left.into_iter().collect();
        self.sweep_at = 2 * self.calls.len();
        gone
    }

    /// Enters a monitor that receives letters.
    pub(crate) fn watch_by_letter(&mut self, monitor: Reference, watch: Watch) {
        self.by_watcher.entry(watch.watcher).or_default().insert(monitor.clone());
        self.watches.insert(monitor, watch);
    }

    /// Removes a monitor.
    pub(crate) fn take_watch(&mut self, monitor: &Reference) -> Option<Watch> {
        let watch = self.watches.remove(monitor)?;
        match &watch.teller {
            Teller::Letter(_) => {
                if let Some(all) = self.by_watcher.get_mut(&watch.watcher) {
                    all.remove(monitor);
                    if all.is_empty() {
                        self.by_watcher.remove(&watch.watcher);
                    }
                }
            }
            Teller::Signal { monitor, .. } => drop(self.references.remove(monitor)),
            Teller::Apply(_) => {}
        }
        Some(watch)
    }

    /// Removes the monitors of a process that receive letters.
    pub(crate) fn take_watches_of(&mut self, watcher: u64) -> Vec<(Reference, Watch)> {
        let all = self.by_watcher.remove(&watcher).unwrap_or_default();
        let taken = all.into_iter().filter_map(|monitor| {
            let watch = self.watches.remove(&monitor)?;
            Some((monitor, watch))
        });
        taken.collect()
    }
}

/// What a process of this node asks of the process of a connection.
#[derive(Debug)]
pub(crate) enum Order {
    /// Ends the connection in order: what was accepted is sent first.
    End(String),
    /// Ends the connection immediately, because it is not used any more.
    Close(String),
    /// Ends a call of the other node, which gets no reply for this reason.
    Refuse(Reference, &'static str),
}

/// A connection, which may have ended.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Introduction,
    /// The number of the connection to this node. Later connections have greater numbers.
    pub(crate) number: u64,
    /// The number of the attempt that has made it. Later attempts have greater numbers.
    pub(crate) attempt: u64,
    pub(crate) since: Instant,
    pub(crate) outbound: Outbound,
    pub(crate) orders: Address<Order>,
    tables: Mutex<Tables>,
    pub(crate) counts: Counts,
    pub(crate) permitted: Permitted,
    answers: Mutex<Answers>,
    /// What the other node has stated of its release.
    pub(crate) release: OnceLock<Release>,
    /// Set once the other node was told that this one leaves. Only nodes of this crate are.
    pub(crate) told_leaving: OnceLock<()>,
    /// Set once all calls and starts have come that the other node had accepted when it was told.
    pub(crate) settled: OnceLock<()>,
    /// Set once everybody but the subscribers has been notified of the end: the messages that are
    /// lost, at most.
    pub(crate) left: OnceLock<u64>,
}

/// What was sent and received.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Messages for this node, including messages without a receiver.
    pub(crate) received: AtomicU64,
    /// Messages for processes that do not exist or did not accept them.
    pub(crate) undelivered: AtomicU64,
    pub(crate) denied: AtomicU64,
    /// Messages that the other node does not permit.
    pub(crate) not_allowed: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
}

/// What the other node has answered.
#[derive(Debug, Default)]
struct Answers {
    round_trip: Option<Duration>,
    /// The messages that it has received, if it is a node that reports this.
    confirmed: Option<u64>,
}

/// Adds to a counter. Relaxed: the numbers are for people.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Link {
    pub(crate) fn new(
        peer: Introduction,
        number: u64,
        attempt: u64,
        orders: Address<Order>,
        message_max: usize,
    ) -> Self {
        let common = peer.flags & flags::OWN;
        Self {
            peer,
            number,
            attempt,
            since: Instant::now(),
            outbound: Outbound::new(common, orders.pid(), message_max),
            orders,
            tables: Mutex::new(Tables::default()),
            counts: Counts::default(),
            permitted: Permitted::default(),
            answers: Mutex::new(Answers::default()),
            release: OnceLock::new(),
            told_leaving: OnceLock::new(),
            settled: OnceLock::new(),
            left: OnceLock::new(),
        }
    }

    /// Notes an answer of the other node.
    pub(crate) fn answered(&self, round_trip: Duration, confirmed: Option<u64>) {
        *self.answers.lock() = Answers { round_trip: Some(round_trip), confirmed };
    }

    /// Returns the time that the latest answer took.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.answers.lock().round_trip
    }

    /// Returns the number of messages of which it is not known whether they have arrived. `None` if
    /// the other node does not report it.
    pub(crate) fn unconfirmed(&self) -> Option<u64> {
        let confirmed = self.answers.lock().confirmed?;
        Some(self.outbound.accepted().saturating_sub(confirmed))
    }

    /// Returns how many messages are lost at most if the connection ends now: all unconfirmed
    /// messages, or, if the other node confirms none, the messages that were not sent.
    pub(crate) fn lost(&self) -> u64 {
        self.unconfirmed().unwrap_or_else(|| self.outbound.unsent())
    }

    /// Returns `true` if the other node is one of this crate, as far as is known.
    pub(crate) fn is_of_own_kind(&self) -> bool {
        self.answers.lock().confirmed.is_some()
    }

    /// Returns the protocol of the other node, if that is one of this crate, as far as is known.
    pub(crate) fn protocol(&self) -> u16 {
        self.release.get().map_or(UNSTATED, |release| release.protocol)
    }

    /// Returns `true` if the other node is of this crate, or may be, because it has not answered
    /// yet.
    pub(crate) fn may_be_of_own_kind(&self) -> bool {
        let answers = self.answers.lock();
        self.takes_monitors() && (answers.confirmed.is_some() || answers.round_trip.is_none())
    }

    /// Returns `true` if the other node would confirm messages.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.unconfirmed().is_some_and(|count| count > 0)
    }

    /// Looks whether the other node permits messages to a process, as far as is known. Counts a
    /// message that it does not permit.
    pub(crate) fn check_permitted(&self, to: &Target) -> Result<(), Unqueued> {
        if self.permitted.permits(to) {
            return Ok(());
        }
        count(&self.counts.not_allowed, 1);
        Err(Unqueued::NotAllowed)
    }

    /// Returns the PID of the other node itself.
    pub(crate) fn peer_pid(&self) -> NodePid {
        let Introduction { name, creation, .. } = &self.peer;
        NodePid { node: name.clone(), id: 0, serial: 0, creation: *creation }
    }

    /// Returns the process that is meant by a PID of the other node. A PID of an earlier
    /// incarnation means none.
    pub(crate) fn is_of_peer(&self, remote: &Remote) -> bool {
        match remote {
            Remote::Pid(pid) => pid.creation == self.peer.creation && pid.node == self.peer.name,
            Remote::Name { node, .. } => *node == self.peer.name,
        }
    }

    /// Returns `true` if the other node takes monitors of processes by name. Programs in C with
    /// Erlang's library do not: to them, a monitor is an error.
    pub(crate) fn takes_monitors(&self) -> bool {
        self.outbound.flags() & flags::DIST_MONITOR_NAME != 0
    }

    /// Removes a monitor from a process of the other node. The signal is in the lane of the
    /// process, so it follows the monitor.
    pub(crate) fn tell_demonitor(&self, from: &NodePid, to: &Target, monitor: &Reference) {
        if self.takes_monitors() {
            let (from, to, monitor) = (from.clone(), to.clone(), monitor.clone());
            let lane = from.number();
            self.outbound.signal(lane, &Control::Demonitor { from, to, monitor }, None);
        }
    }

    /// Accesses the tables. Returns `None` if the connection has ended.
    pub(crate) fn tables<R>(&self, access: impl FnOnce(&mut Tables) -> R) -> Option<R> {
        let mut tables = self.tables.lock();
        (!tables.is_closed).then(|| access(&mut tables))
    }

    /// Sends a signal with a reason, which stands behind it if the other node can read that.
    pub(crate) fn tell(
        &self,
        lane: u64,
        reason: Term,
        signal: impl FnOnce(Option<Term>) -> Control,
    ) {
        if self.outbound.flags() & flags::EXIT_PAYLOAD != 0 {
            self.outbound.signal(lane, &signal(None), Some(&reason));
        } else {
            self.outbound.signal(lane, &signal(Some(reason)), None);
        }
    }

    /// Closes the tables and returns what was in them.
    pub(crate) fn close(&self) -> Tables {
        let closed = Tables { is_closed: true, ..Tables::default() };
        std::mem::replace(&mut self.tables.lock(), closed)
    }
}

impl Watch {
    /// Sends the watching process the reason why the other process has ended.
    pub(crate) fn tell_reason(self, monitor: Reference, reason: Term) {
        match self.teller {
            // Ignored: the caller may have given up.
            Teller::Apply(caller) => drop(caller.send(Ok(reason))),
            _ => self.tell(monitor, reason::to_exit(&reason)),
        }
    }

    /// Notifies the watching process.
    pub(crate) fn tell(self, monitor: Reference, exit: Exit) {
        match self.teller {
            Teller::Letter(recipient) => {
                let down = RemoteDown { monitor, process: self.process, exit };
                // Ignored: a process that has ended or takes no more learns nothing.
                drop(post(&recipient, Letter::Down(down)));
            }
            Teller::Signal { from, to, monitor, .. } => {
                relay::receive(RemoteSignal::Down { from, to, monitor, exit });
            }
            // Ignored: the caller may have given up.
            Teller::Apply(caller) => drop(caller.send(Err(StartRefusal::NoConnection))),
        }
    }
}
