//! Programs with planted leaks, at random. Each process that can never continue is reported, and
//! nothing else is.

use std::collections::BTreeSet;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use procession::sync::{Mutex, oneshot};
use procession::{Address, Child, Context, JoinHandle, Reply, Scheduler, SpawnOptions};
use procession_sim::Sim;

use super::cycles::together;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any workload here takes.
const LONG: Duration = Duration::from_secs(3600);

/// What a process does while it holds its own lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Waits for a message.
    Receive,
    /// Waits for a waker that nobody has.
    Pend,
    /// Waits for the lock of another process.
    Lock,
    /// Waits for the end of another process, whose handle it has.
    Join,
    /// Waits for the reply to a call.
    Call,
    /// Waits for the down of another process.
    Down,
    /// As `Lock`, but for a limited time.
    Limited,
    /// As `Lock`, or for something else.
    Either,
    /// Forgets its guard, and ends.
    Forget,
    /// Ends.
    End,
}

const ACTS: [Act; 10] = [
    Act::Receive,
    Act::Pend,
    Act::Lock,
    Act::Join,
    Act::Call,
    Act::Down,
    Act::Limited,
    Act::Either,
    Act::Forget,
    Act::End,
];

/// The ways in which a process can still be reached.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// The program has kept an address.
    address: bool,
    /// The program has kept the handle.
    handle: bool,
    /// The program knows the PID.
    pid: bool,
}

/// What a process is told.
struct Order {
    act: Act,
    lock: Arc<Mutex<()>>,
    handle: Option<JoinHandle<()>>,
    address: Option<Address<Reply<()>>>,
}

async fn obey(mut cx: Context<Reply<()>>, own: Arc<Mutex<()>>, ordered: oneshot::Receiver<Order>) {
    let guard = own.lock().await;
    let Ok(Order { act, lock, handle, address }) = ordered.await else { return };
    match (act, handle, address) {
        (Act::Receive, ..) => drop(cx.recv().await),
        (Act::Pend, ..) => {
            drop(cx);
            pending().await
        }
        (Act::Join, Some(handle), _) => drop(handle.await),
        (Act::Call, _, Some(address)) => {
            drop(address.call(|reply| reply, Duration::MAX).await);
        }
        (Act::Down, _, Some(address)) => {
            let monitor = cx.monitor(address.pid());
            cx.down(monitor).await;
        }
        (Act::Limited, ..) => drop(lock.lock_timeout(LONG).await),
        (Act::Either, ..) => {
            let (_kept, never) = oneshot::channel::<()>();
            together(lock.lock(), never, false).await;
        }
        (Act::Forget, ..) => mem::forget(guard),
        (Act::End, ..) => {}
        (Act::Lock | Act::Join | Act::Call | Act::Down, ..) => drop(lock.lock().await),
    }
}

/// A process as the workload knows it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    act: Act,
    target: usize,
    reach: Reach,
}

/// Returns the processes that can never continue: the largest set in which each waits for nothing,
/// or only for members of the set.
fn leaked(plans: &[Plan]) -> BTreeSet<usize> {
    let owner = |at| plans.iter().position(|plan| (plan.act, plan.target) == (Act::Join, at));
    let waits = [Act::Receive, Act::Pend, Act::Lock, Act::Join, Act::Call, Act::Down];
    // It is not known that a process is never told of its own end.
    let is_known = |&at: &usize| plans[at].act != Act::Down || plans[at].target != at;
    let mut set: BTreeSet<_> =
        (0..plans.len()).filter(|&at| waits.contains(&plans[at].act)).filter(is_known).collect();
    loop {
        let stays = |&at: &usize| {
            let Plan { act, target, reach } = plans[at];
            match act {
                Act::Lock => plans[target].act == Act::Forget || set.contains(&target),
                Act::Join | Act::Call | Act::Down => set.contains(&target),
                _ => {
                    let is_owned = owner(at).map_or(reach.handle, |by| !set.contains(&by));
                    !(reach.address || reach.pid || is_owned)
                }
            }
        };
        let next: BTreeSet<_> = set.iter().copied().filter(stays).collect();
        if next == set {
            return set;
        }
        set = next;
    }
}

/// Plants processes, and drops what can reach some of them.
pub(super) async fn leaks(sim: Sim) {
    sim.heal();
    let builder = Scheduler::builder().worker_threads(sim.choose(1..4) as usize);
    let Ok(scheduler) = builder.on_wait_cycle(|_| {}).build() else { return };
    let count = sim.choose(1..7) as usize;
    let (mut children, mut orders, mut locks) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..count {
        let lock = Arc::new(Mutex::new(()));
        let own = Arc::clone(&lock);
        let (order, ordered) = oneshot::channel();
        let options = SpawnOptions::new().on(&scheduler).label(at.to_string());
        let child: Child<_, ()> = options.start(|cx| obey(cx, own, ordered));
        let (address, handle) = child.into_parts();
        children.push((address, Some(handle)));
        orders.push(order);
        locks.push(lock);
    }
    // Each has its own lock.
    procession::sleep(SECOND).await;
    let mut plans = Vec::new();
    for at in 0..count {
        let acts = if sim.choose(0..4) == 0 { ACTS.len() } else { 6 };
        let target = match sim.choose(0..3) {
            0 => sim.choose(0..count as u64) as usize,
            _ => (at + 1) % count,
        };
        let reach = match sim.choose(0..6) {
            0 => Reach { address: true, ..Reach::default() },
            1 => Reach { handle: true, ..Reach::default() },
            2 => Reach { pid: true, ..Reach::default() },
            _ => Reach::default(),
        };
        plans.push(Plan { act: ACTS[sim.choose(0..acts as u64) as usize], target, reach });
    }
    // There is one handle, and a process that receives would reply.
    let mut is_joined = vec![false; count];
    for at in 0..count {
        let Plan { act, target, .. } = plans[at];
        let is_taken = act == Act::Join && mem::replace(&mut is_joined[target], true);
        let is_answered = act == Act::Call
            && !matches!(plans[target].act, Act::Lock | Act::Join | Act::Call | Act::Down);
        if is_taken || is_answered {
            plans[at].act = Act::Lock;
        }
        // To monitor a process, a program must know its PID.
        plans[target].reach.pid |= plans[at].act == Act::Down;
    }
    let mut told = Vec::new();
    for plan in &plans {
        let (address, handle) = &mut children[plan.target];
        told.push(Order {
            act: plan.act,
            lock: Arc::clone(&locks[plan.target]),
            handle: if plan.act == Act::Join { handle.take() } else { None },
            address: matches!(plan.act, Act::Call | Act::Down).then(|| address.clone()),
        });
    }
    drop(locks);
    let mut kept = Vec::new();
    for (plan, (address, handle)) in plans.iter().zip(children) {
        if plan.reach.pid {
            let _known = address.pid();
        }
        kept.push((plan.reach.address.then_some(address), handle.filter(|_| plan.reach.handle)));
    }
    for (order, told) in orders.into_iter().zip(told) {
        drop(order.send(told));
    }
    procession::sleep(SECOND).await;
    let known: BTreeSet<_> = leaked(&plans).into_iter().map(|at| at.to_string()).collect();
    let found = scheduler.leaks().leaked;
    let found: BTreeSet<_> = found.into_iter().filter_map(|leak| leak.label).collect();
    sim.always("each leaked process is reported", known.is_subset(&found));
    sim.always("nothing but leaked processes is reported", found.is_subset(&known));
    drop(kept);
    for process in scheduler.snapshot().processes {
        procession::process::kill(process.pid);
    }
    scheduler.shutdown(LONG).await;
}
