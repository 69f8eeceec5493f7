//! The process of a router: it follows the group of the shards, and repeats what had no room.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::Event;
use procession::observe::DoorSection;
use procession::process::{GroupEvent, GroupMonitor, Groups};
use procession::scheduler::Health;
use procession::time::{Instant, sleep_until};
use procession::{Context, Exit, Pid};

use super::router::{Portable, Router};
use super::status::ShardsStatus;
use crate::groups::SharedGroups;
use crate::node::NoMessage;
use crate::remote::Remote;
use crate::term::NodePid;

/// The time between two looks at what is left to do.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The group of the routers.
pub(super) struct Membership {
    pub(super) scope: SharedGroups,
    pub(super) groups: Groups,
    pub(super) group: Arc<str>,
    /// The nodes that were connected when the shards were started.
    pub(super) nodes: Vec<NodePid>,
}

/// What the process waits for.
enum Next {
    Down(Pid, Exit),
    Changed(GroupEvent),
    Cancelled,
    /// There is something to look at, a moment later.
    Woken,
    Look,
}

/// Ends with the process of the router.
struct Closes<M: Portable>(Arc<Router<M>>, Membership);

impl<M: Portable> Drop for Closes<M> {
    fn drop(&mut self) {
        self.1.scope.stop();
        self.0.close();
    }
}

/// Runs until the shards stop: until the process is cancelled, or the node stops, and until other
/// nodes have got all keys, if there are other nodes.
pub(super) async fn keep<M: Portable>(
    mut cx: Context<NoMessage>,
    router: Arc<Router<M>>,
    membership: Membership,
) {
    let (groups, mut changes) = membership.groups.monitor_all();
    let own = Closes(Arc::clone(&router), membership);
    let shown = Arc::clone(&router);
    let _shown = cx.show_section("shards", move |section| show(&shown, section));
    // A node that drains waits until its keys have moved.
    let mut open = Some(router.node.open_call());
    // A node with such a scope tells its routers, and a node without the scope has none.
    let mut nodes: BTreeMap<Pid, NodePid> = BTreeMap::new();
    for node in &own.1.nodes {
        let scope = Remote::named(&router.name, node.node.as_str());
        let scope = router.node.pid_of_remote(&scope);
        nodes.insert(scope, node.clone());
        cx.monitor(scope);
    }
    for (group, members) in groups {
        members.into_iter().for_each(|pid| joined(&router, &own.1, &group, pid));
    }
    let scope = own.1.scope.pid();
    cx.monitor(scope);
    let (mut looks_at, mut is_waiting, mut is_cancelled) = (Instant::now(), true, false);
    let mut news = None;
    loop {
        let leaves = is_cancelled || router.is_ending();
        if leaves {
            // First, because others ask once they see it leave the group.
            router.leave();
            own.1.groups.leave(&own.1.group, cx.pid());
            if open.is_some() && router.has_left() {
                // From now on, nothing is owed to others for long.
                router.look();
                open = None;
            }
        }
        let has_left = open.is_none();
        let is_over = match is_cancelled && Health::here().is_ending() {
            // A shutdown drains the node, and others send to it until they know.
            true => {
                router.node.leave();
                router.node.is_idle()
            }
            false => is_cancelled,
        };
        if router.node.is_stopped() {
            router.look();
            return;
        }
        if has_left && is_over {
            router.look();
            // This node sends nothing more of its own, so that the queues become empty.
            router.close();
            if router.has_left() && !router.has_unsent() {
                return;
            }
        }
        let until = if is_waiting || leaves { looks_at } else { Instant::NEVER };
        match next(&mut cx, &router, (&mut changes, &mut news), until, is_cancelled).await {
            // Without a scope, nobody finds this router.
            Next::Down(pid, _) if pid == scope => is_cancelled |= !router.is_ending(),
            Next::Down(pid, exit) => match nodes.remove(&pid) {
                Some(node) => router.heard(&node),
                None => router.gone_pid(pid, !matches!(exit, Exit::NoConnection | Exit::Left)),
            },
            Next::Changed(GroupEvent::Join { group, pid }) => joined(&router, &own.1, &group, pid),
            // The members also leave when the scope of this node ends, before its keys have moved.
            Next::Changed(GroupEvent::Leave { pid, .. }) if !router.is_ending() => {
                router.left_group(pid);
            }
            Next::Changed(_) => {}
            Next::Cancelled => is_cancelled = true,
            Next::Woken => is_waiting = true,
            Next::Look => {
                is_waiting = router.look();
                looks_at = Instant::now() + LOOK_EVERY;
            }
        }
    }
}

fn joined<M: Portable>(router: &Arc<Router<M>>, own: &Membership, group: &str, pid: Pid) {
    // A node that is not known any more has left.
    match router.node.node_pid(pid) {
        Some(other) if *group == *own.group => router.joined(pid, &other),
        // Its node has another number of shards.
        Some(other) => router.heard(&other),
        None => {}
    }
}

/// Waits for the next event. It looks at `until`. `news` keeps a change of the group that was read
/// and is not returned yet.
async fn next<M: Portable>(
    cx: &mut Context<NoMessage>,
    router: &Router<M>,
    (changes, news): (&mut GroupMonitor, &mut Option<GroupEvent>),
    until: Instant,
    is_cancelled: bool,
) -> Next {
    let mut node_changed = pin!(router.node.0.changed.notified());
    node_changed.as_mut().enable();
    let mut woken = pin!(router.changed.notified());
    let mut changed = pin!(changes.recv());
    let mut time = pin!(sleep_until(until));
    let mut event = pin!(async {
        loop {
            match cx.recv_event().await {
                Some(Event::Down(down)) => return Next::Down(down.pid, down.exit),
                Some(Event::Cancel) | None if !is_cancelled => return Next::Cancelled,
                None => std::future::pending().await,
                Some(_) => {}
            }
        }
    });
    poll_fn(|task| {
        if news.is_none()
            && let Poll::Ready(change) = changed.as_mut().poll(task)
        {
            *news = Some(change);
        }
        // A router that returns joins after its former connection has ended. By now, the end is in
        // the mailbox, and comes first.
        if let Poll::Ready(next) = event.as_mut().poll(task) {
            return Poll::Ready(next);
        }
        if let Some(change) = news.take() {
            return Poll::Ready(Next::Changed(change));
        }
        if node_changed.as_mut().poll(task).is_ready() || time.as_mut().poll(task).is_ready() {
            return Poll::Ready(Next::Look);
        }
        woken.as_mut().poll(task).map(|()| Next::Woken)
    })
    .await
}

/// Shows the shards in the door of the scheduler.
fn show<M: Portable>(router: &Router<M>, section: &mut DoorSection) {
    let status = ShardsStatus::of(router);
    section.row("node", |row| {
        row.label("node", router.node.name().as_str())
            .label("shards", &router.name)
            .gauge("homes", "Shards whose home is the node.", status.shards as u64)
            .gauge("keys", "Keys of the node.", status.keys)
            .gauge("waiting", "Messages that wait while their shard moves.", status.waiting as u64)
            .counter("sent", "Messages that the node has accepted for keys.", status.sent)
            .counter("handled", "Messages that processes of keys have received.", status.handled)
            .counter("forwarded", "Messages that were passed on to the home.", status.forwarded)
            .gauge("outstanding", "Messages that other nodes still have.", status.outstanding)
            .counter("returned", "Accepted messages that came back.", status.returned)
            .counter("dead", "Messages that could not come back.", status.dead)
            .counter("lost", "Messages that ended nodes had, at most.", status.lost)
            .counter("moves", "Shards that have moved to the node or away.", status.moves)
            .counter("states_dropped", "States that no process got.", status.states_dropped);
    });
}
