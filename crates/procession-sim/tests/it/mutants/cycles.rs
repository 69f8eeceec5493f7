//! Programs whose processes wait for one another, at random. Each cycle of waits that nothing else
//! ends is reported, and nothing else is.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::sync::{Mutex, oneshot};
use procession::{Address, Child, Context, JoinHandle, Pid, Reply, Scheduler, SpawnOptions};
use procession_sim::Sim;

/// The time after which a cycle is reported.
const AFTER: Duration = Duration::from_secs(2);
/// Longer than the watchdog takes to find a cycle.
const LATE: Duration = Duration::from_secs(30);
/// Longer than any workload here takes.
const LONG: Duration = Duration::from_secs(3600);

/// What a process waits for, while it holds its own lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The lock of another process.
    Lock,
    /// The end of another process.
    Join,
    /// The down of another process.
    Down,
    /// The reply to a call, or room for its message in a mailbox that is full.
    Call,
    /// As `Lock`, but twice at the same time.
    Twice,
    /// As `Lock`, or something else.
    Either,
    /// As `Lock`, but for a limited time.
    Limited,
    /// Nothing.
    Nothing,
}

const WAITS: [Wait; 8] = [
    Wait::Lock,
    Wait::Join,
    Wait::Call,
    Wait::Down,
    Wait::Twice,
    Wait::Either,
    Wait::Limited,
    Wait::Nothing,
];

/// What a process is told.
struct Order {
    wait: Wait,
    lock: Arc<Mutex<()>>,
    handle: Option<JoinHandle<()>>,
    address: Address<Reply<()>>,
}

/// Polls both futures with the same waker until both are complete, or until one is.
pub(super) async fn together(one: impl Future, two: impl Future, both: bool) {
    let (mut one, mut two) = (pin!(one), pin!(two));
    let (mut first, mut second) = (false, false);
    poll_fn(|task| {
        first = first || one.as_mut().poll(task).is_ready();
        second = second || two.as_mut().poll(task).is_ready();
        let is_over = if both { first && second } else { first || second };
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn obey(mut cx: Context<Reply<()>>, order: Order) {
    let Order { wait, lock, handle, address } = order;
    match (wait, handle) {
        (Wait::Down, _) => {
            let monitor = cx.monitor(address.pid());
            cx.down(monitor).await;
        }
        (Wait::Join, Some(handle)) => drop(handle.await),
        (Wait::Lock | Wait::Join, _) => drop(lock.lock().await),
        (Wait::Call, _) => drop(address.call(|reply| reply, Duration::MAX).await),
        (Wait::Twice, _) => together(lock.lock(), lock.lock(), true).await,
        (Wait::Either, _) => {
            let (_kept, never) = oneshot::channel::<()>();
            together(lock.lock(), never, false).await;
        }
        (Wait::Limited, _) => drop(lock.lock_timeout(LONG).await),
        (Wait::Nothing, _) => {}
    }
}

/// A process that has its lock and waits for its order.
struct Planted {
    pid: Pid,
    address: Address<Reply<()>>,
    handle: Option<JoinHandle<()>>,
    lock: Arc<Mutex<()>>,
    order: oneshot::Sender<Order>,
    /// Its mailbox is full.
    is_full: bool,
}

async fn plant(scheduler: &Scheduler, is_full: bool) -> Planted {
    let lock = Arc::new(Mutex::new(()));
    let own = Arc::clone(&lock);
    let (ready, is_ready) = oneshot::channel();
    let (order, ordered) = oneshot::channel();
    let options = SpawnOptions::new().on(scheduler);
    let options = if is_full { options.mailbox(1, WhenFull::Wait) } else { options };
    let child: Child<_, ()> = options.start(|cx: Context<Reply<()>>| async move {
        let _own = own.lock().await;
        let _ = ready.send(());
        if let Ok(order) = ordered.await {
            obey(cx, order).await;
        }
    });
    if is_full {
        drop(child.send(Reply::from_fn(|_: Option<()>| ())));
    }
    is_ready.await.expect("it has its lock");
    let (address, handle) = child.into_parts();
    Planted { pid: handle.pid(), address, handle: Some(handle), lock, order, is_full }
}

/// Returns the cycles of a graph in which each node has at most one edge, each cycle from its
/// lowest node.
fn cycles_of(edges: &[Option<usize>]) -> Vec<Vec<usize>> {
    let from = |first: usize| {
        let mut cycle = vec![first];
        loop {
            match edges[*cycle.last()?]? {
                next if next == first => return Some(cycle),
                next if next < first || cycle.len() == edges.len() => return None,
                next => cycle.push(next),
            }
        }
    };
    (0..edges.len()).filter_map(from).collect()
}

/// Plants processes, of which one may end just before a cycle would be reported.
pub(super) async fn wait_cycles(sim: Sim) {
    sim.heal();
    let builder = Scheduler::builder().worker_threads(sim.choose(1..4) as usize);
    let Ok(scheduler) = builder.wait_cycle_after(AFTER).on_wait_cycle(|_| {}).build() else {
        return;
    };
    let count = sim.choose(1..7) as usize;
    let mut planted = Vec::new();
    for _ in 0..count {
        planted.push(plant(&scheduler, sim.choose(0..2) == 0).await);
    }
    let pids: Vec<_> = planted.iter().map(|process| process.pid).collect();
    let (mut edges, mut orders) = (Vec::new(), Vec::new());
    for at in 0..count {
        // Mostly in a row, so that long cycles are likely.
        let target = match sim.choose(0..3) {
            0 => sim.choose(0..count as u64) as usize,
            _ => (at + 1) % count,
        };
        // Mostly what can be in a cycle.
        let kinds = if sim.choose(0..4) == 0 { WAITS.len() } else { 4 };
        let wait = WAITS[sim.choose(0..kinds as u64) as usize];
        let process = &mut planted[target];
        let handle = if wait == Wait::Join { process.handle.take() } else { None };
        // A process does not wait for room in its own mailbox, and is not told of its own end.
        let is_refused =
            target == at && (wait == Wait::Call && process.is_full || wait == Wait::Down);
        let is_edge =
            matches!(wait, Wait::Lock | Wait::Join | Wait::Call | Wait::Down) && !is_refused;
        edges.push(is_edge.then_some(target));
        let (lock, address) = (Arc::clone(&process.lock), process.address.clone());
        orders.push(Order { wait, lock, handle, address });
    }
    let killed = (sim.choose(0..2) == 0).then(|| sim.choose(0..count as u64) as usize);
    let senders = planted.into_iter().map(|process| process.order);
    for (sender, order) in senders.zip(orders) {
        drop(sender.send(order));
    }
    if let Some(killed) = killed {
        // No wait of it has lasted for `AFTER` yet.
        procession::sleep(AFTER - Duration::from_millis(sim.choose(1..100))).await;
        procession::process::kill(pids[killed]);
        edges[killed] = None;
    }
    procession::sleep(LATE).await;
    let known = cycles_of(&edges);
    let known: Vec<Vec<_>> =
        known.into_iter().map(|cycle| cycle.into_iter().map(|at| pids[at]).collect()).collect();
    let found = scheduler.wait_cycles();
    let found: Vec<Vec<_>> =
        found.iter().map(|cycle| cycle.waits.iter().map(|wait| wait.pid).collect()).collect();
    let same = |one: &Vec<Pid>, other: &Vec<Pid>| {
        // Both are in the order of the waits, from any of them on.
        one.len() == other.len()
            && (0..one.len()).any(|by| {
                let mut turned = one.clone();
                turned.rotate_left(by);
                turned == *other
            })
    };
    let each = known.iter().all(|cycle| found.iter().any(|other| same(cycle, other)));
    sim.always("each cycle of waits is reported", each);
    let nothing_else = found.iter().all(|cycle| known.iter().any(|other| same(cycle, other)));
    sim.always("nothing but cycles of waits is reported", nothing_else);
    sim.always("a cycle of waits is reported once", known.len() == found.len());
    for pid in pids {
        procession::process::kill(pid);
    }
    scheduler.shutdown(LONG).await;
}
