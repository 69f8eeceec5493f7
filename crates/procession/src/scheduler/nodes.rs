//! The other nodes that processes of this program can reach, by number.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use procession_sync::{Mutex, MutexGuard};

use crate::mailbox::parcel::NodeRelay;
use crate::process::unwind::{drop_guarded, guarded};
use crate::relations::signal::RemoteSignal;
use crate::{Exit, Pid};

/// The nodes that have joined.
static NODES: Mutex<Nodes> = Mutex::new(Nodes { last: 0, relays: BTreeMap::new() });

struct Nodes {
    /// The last number that was given.
    last: u32,
    relays: BTreeMap<u32, Arc<dyn NodeRelay>>,
}

/// Another node, as this program sees it: a number, which the PIDs of its processes have, and the
/// relay that carries messages and signals to them.
///
/// It is for crates that connect programs, such as `procession-cluster`. A PID of the node can be
/// used like one of this program: [`send`](crate::mailbox::send) by PID, links, monitors and exit
/// signals go to the relay. What comes from the node is handed to
/// [`receive`](crate::relay::receive).
///
/// Dropping it takes the node away: its processes cannot be reached any more. A send to one fails,
/// and a link or a monitor is answered with [`Exit::NoConnection`](crate::Exit::NoConnection). The
/// number is not given to another node.
///
/// ```
/// use procession::mailbox::send;
/// use procession::relay::{NodeRelay, Parcel, Relay, RelayCause, RelayError};
/// use procession::relay::{RemoteNode, RemoteSignal, receive};
/// use procession::{Context, Exit, start};
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
///     fn signal(&self, signal: RemoteSignal) {
///         signal.answer(Exit::NoConnection).map(receive);
///     }
/// }
///
/// let node = RemoteNode::join(OutOfReach).expect("not all numbers are taken");
/// let far = node.pid(7, 0);
/// procession::run(async move {
///     assert!(send(far, "hello").unwrap_err().is_no_connection());
///     let watches = start(move |mut cx: Context<()>| async move {
///         let monitor = cx.monitor(far);
///         cx.down(monitor).await.map(|down| down.exit)
///     });
///     assert_eq!(watches.await, Ok(Some(Exit::NoConnection)));
/// });
/// ```
#[must_use = "the node is out of reach as soon as this is dropped"]
pub struct RemoteNode {
    number: NonZeroU32,
}

impl RemoteNode {
    /// Gives a number to another node, and makes its processes reachable by this relay. Returns
    /// `None` if all numbers were given: a program can know 4 294 967 295 nodes in its life.
    pub fn join(relay: impl NodeRelay) -> Option<Self> {
        let relay: Arc<dyn NodeRelay> = Arc::new(relay);
        let mut nodes = NODES.lock();
        let Some(number) = nodes.last.checked_add(1).and_then(NonZeroU32::new) else {
            drop(nodes);
            drop_guarded(relay);
            return None;
        };
        nodes.last = number.get();
        nodes.relays.insert(number.get(), relay);
        Some(Self { number })
    }

    /// Returns the number of the node: [`Pid::node`] of its processes.
    pub fn number(&self) -> u32 {
        self.number.get()
    }

    /// Returns the PID of the process that the node knows by these two numbers.
    pub fn pid(&self, id: u32, serial: u32) -> Pid {
        Pid::remote(self.number.get(), id, serial)
    }
}

impl Drop for RemoteNode {
    fn drop(&mut self) {
        let relay = NODES.lock().relays.remove(&self.number.get());
        // Not under the lock, since it is code of the user.
        drop_guarded(relay);
    }
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteNode").field(&self.number).finish()
    }
}

/// Signals to other nodes, in their order.
static QUEUE: Mutex<VecDeque<RemoteSignal>> = Mutex::new(VecDeque::new());
/// Held by the thread that hands signals to relays.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// Set while this thread has the turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Queues a signal. If it tells of a change of a process's relations, this is called while they are
/// locked, so that another change by another thread is told behind it. The caller
/// [flushes](flush) the queue when it has let go.
pub(crate) fn queue(signal: RemoteSignal) {
    QUEUE.lock().push_back(signal);
}

/// Hands the queued signals to their relays. When it returns, those that this thread has queued
/// have been handed over, so that a message that it sends comes behind them. Only within a relay, a
/// signal may be left to the thread that has the turn.
///
/// `answered` carries out the answer to a signal of a node that has not joined.
pub(crate) fn flush(answered: fn(RemoteSignal)) {
    /// Gives the turn back, also if `answered` panics.
    struct RelayTurn<'a>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'a, ()>);
    impl Drop for RelayTurn<'_> {
        fn drop(&mut self) {
            HAS_TURN.set(false);
        }
    }

    if HAS_TURN.get() {
        return;
    }
    let turn = RelayTurn(TURN.lock());
    HAS_TURN.set(true);
    loop {
        let Some(signal) = QUEUE.lock().pop_front() else { break };
        match relay_to(signal.to()) {
            Some(relay) => {
                // A panic of it does not concern the sender.
                drop(guarded(|| relay.signal(signal)));
                drop_guarded(relay);
            }
            None => {
                if let Some(answer) = signal.answer(Exit::NoConnection) {
                    answered(answer);
                }
            }
        }
    }
    drop(turn);
}

/// Returns `true` if the node of a process has joined.
pub(crate) fn is_known(pid: Pid) -> bool {
    NODES.lock().relays.contains_key(&pid.node())
}

/// Returns the relay to the node of a process, or `None` if it is of this node or of one that has
/// not joined.
pub(crate) fn relay_to(pid: Pid) -> Option<Arc<dyn NodeRelay>> {
    if pid.node() == 0 {
        return None;
    }
    NODES.lock().relays.get(&pid.node()).map(Arc::clone)
}
