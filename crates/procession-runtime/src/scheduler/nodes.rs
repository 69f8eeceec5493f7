//! The other nodes that processes of this program can reach, by number.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::sync::Arc;

use procession_protocols::util::block_queue::BlockQueue;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::mailbox::parcel::NodeRelay;
use crate::process::unwind::{drop_guarded, guarded};
use crate::relations::signal::RemoteSignal;
use crate::{Exit, Pid};

/// The nodes that have joined.
static NODES: Mutex<Nodes> =
    Mutex::new(Nodes { last: 0, ways: SortedMap::new(), lost: BlockQueue::new() });

struct Nodes {
    /// The last number that was given.
    last: u32,
    ways: SortedMap<u32, Arc<NodeWay>>,
    /// Signals to nodes that have not joined, or have left since.
    lost: BlockQueue<RemoteSignal>,
}

/// The way to a node. Each way has a separate queue, so the relay of one node delays no other node.
/// Programs that share nothing else, for example simulations that run at the same time, carry no
/// signals for other programs.
struct NodeWay {
    relay: Arc<dyn NodeRelay>,
    /// Signals to the node, in their order.
    queue: Mutex<BlockQueue<RemoteSignal>>,
    /// Held by the thread that hands signals to the relay.
    turn: Mutex<()>,
}

/// Another node, as this program sees it: a number, which is a part of the PIDs of its processes,
/// and the relay that carries messages and signals to them.
///
/// It is for crates that connect programs, such as `procession-cluster`. A PID of the node can be
/// used like a PID of this program: [`send`](crate::mailbox::send) by PID, links, monitors and exit
/// signals go to the relay. Signals from the node are handed to [`receive`](crate::relay::receive).
///
/// Dropping it takes the node away: its processes cannot be reached any more. A send to one fails,
/// and a link or a monitor is answered with [`Exit::NoConnection`](crate::Exit::NoConnection). The
/// number is not given to another node.
///
/// ```
/// use procession::mailbox::send;
/// use procession::mailbox::relay::{
///     NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, receive,
/// };
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
    /// Assigns a number to another node, and makes its processes reachable by this relay. Returns
    /// `None` if all numbers are taken: a program can know 4 294 967 295 nodes in its life.
    pub fn join(relay: impl NodeRelay) -> Option<Self> {
        let relay: Arc<dyn NodeRelay> = Arc::new(relay);
        let mut nodes = NODES.lock();
        let Some(number) = nodes.last.checked_add(1).and_then(NonZeroU32::new) else {
            drop(nodes);
            drop_guarded(relay);
            return None;
        };
        nodes.last = number.get();
        let way = NodeWay { relay, queue: Mutex::new(BlockQueue::new()), turn: Mutex::new(()) };
        nodes.ways.insert(number.get(), Arc::new(way));
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
        let way = {
            let mut nodes = NODES.lock();
            let way = nodes.ways.remove(&self.number.get());
            if let Some(way) = &way {
                // The threads that have queued these signals are about to flush them.
                nodes.lost.extend(std::mem::take(&mut *way.queue.lock()));
            }
            way
        };
        // Not under the lock, since it is code of the user.
        drop_guarded(way);
    }
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteNode").field(&self.number).finish()
    }
}

thread_local! {
    /// The nodes to which a thread that has a turn is yet to hand signals. `None` if the thread has
    /// no turn. Without a destructor, so that it is there while the thread ends.
    static LEFT: RefCell<Option<ManuallyDrop<Vec<u32>>>> = const { RefCell::new(None) };
}

/// Queues a signal. If the signal reports a change of a process's relations, this is called while
/// the relations are locked, so that the signal of a later change by another thread is queued
/// behind it. The caller [flushes](flush) the queue when it has unlocked them.
pub(crate) fn queue(signal: RemoteSignal) {
    let mut nodes = NODES.lock();
    // Under the lock, so that a node that leaves takes nothing along.
    match nodes.ways.get(&signal.to().node()) {
        Some(way) => way.queue.lock().push_back(signal),
        None => nodes.lost.push_back(signal),
    }
}

/// Hands the signals that are queued for the node of a process to its relay. When it returns, the
/// signals that this thread has queued have been handed over, so that a later message of this
/// thread is behind them. Only within a relay, a signal may be left to the turn that this thread
/// has.
///
/// `answered` carries out the answer to a signal of a node that has not joined.
pub(crate) fn flush(to: Pid, answered: fn(RemoteSignal)) {
    /// Ends the turns of the thread, even if `answered` panics.
    struct Turns;
    impl Drop for Turns {
        fn drop(&mut self) {
            LEFT.take().map(ManuallyDrop::into_inner);
        }
    }

    let mut node = to.node();
    let is_within_relay = LEFT.with_borrow_mut(|left| match left {
        // One turn at a time, so that two threads never wait, each for the turn of the other.
        Some(left) => {
            left.push(node);
            true
        }
        None => {
            *left = Some(ManuallyDrop::new(Vec::new()));
            false
        }
    });
    if is_within_relay {
        return;
    }
    let _turns = Turns;
    loop {
        let way = NODES.lock().ways.get(&node).map(Arc::clone);
        if let Some(way) = way {
            way.carry();
            drop_guarded(way);
        }
        answer_lost(node, answered);
        let left = LEFT.with_borrow_mut(|left| left.as_mut().and_then(|left| left.pop()));
        match left {
            Some(next) => node = next,
            None => break,
        }
    }
}

impl NodeWay {
    /// Hands the queued signals to the relay.
    fn carry(&self) {
        let _turn = self.turn.lock();
        loop {
            let Some(signal) = self.queue.lock().pop_front() else { break };
            // A panic of the relay does not concern the sender.
            drop(guarded(|| self.relay.signal(signal)));
        }
    }
}

/// Answers the signals to a node that has not joined.
fn answer_lost(node: u32, answered: fn(RemoteSignal)) {
    let next = || NODES.lock().lost.remove_first(|signal| signal.to().node() == node);
    while let Some(signal) = next() {
        if let Some(answer) = signal.answer(Exit::NoConnection) {
            answered(answer);
        }
    }
}

/// Returns `true` if the node of a process has joined.
pub(crate) fn is_known(pid: Pid) -> bool {
    NODES.lock().ways.contains_key(&pid.node())
}

/// Returns the relay to the node of a process, or `None` if that is this node, or a node that has
/// not joined.
pub(crate) fn relay_to(pid: Pid) -> Option<Arc<dyn NodeRelay>> {
    if pid.node() == 0 {
        return None;
    }
    NODES.lock().ways.get(&pid.node()).map(|way| Arc::clone(&way.relay))
}
