//! What relations between processes of two nodes leave behind.

use std::future::{pending, poll_fn};
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use procession::process::{kill, link, unlink};
use procession::sync::oneshot;
use procession::{Context, Pid, Scheduler, start, timeout};

use super::super::Node;
use crate::term::{NodePid, Term};
use crate::{Cookie, Grants, Letter};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A relation of a process with one of another node.
#[derive(Clone, Copy, Debug)]
enum Relation {
    Letter,
    Monitor,
    Link,
    Call,
}

/// What ends the relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Undone,
    NearEnds,
    FarEnds,
}

/// Waits for a condition.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waits = async {
        while !condition() {
            procession::yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("{what} does not come true"));
}

/// Returns the number of entries about processes in the tables of the connections of a node.
fn entries(node: &Node) -> usize {
    let links: Vec<_> = node.0.peers.lock().links().cloned().collect();
    let count = |link: std::sync::Arc<crate::link::Link>| {
        link.tables(|tables| {
            let monitors = tables.watches.len() + tables.references.len() + tables.calls.len();
            let links = tables.links.len() + tables.unlinks.len() + tables.unlinking.len();
            monitors + tables.by_watcher.len() + links + tables.starts.len()
        })
    };
    links.into_iter().filter_map(count).sum()
}

/// Has a relation with a process until a message asks to end it. Then it waits.
async fn relate(
    mut cx: Context<Letter>,
    node: Node,
    other: NodePid,
    relation: Relation,
    mut told: oneshot::Receiver<()>,
) {
    cx.trap_exits(true);
    let own = node.attach(&cx.address().map(|letter| letter));
    let there = node.pid(&other);
    match relation {
        Relation::Letter => {
            let monitor = own.monitor(other.clone());
            if told.await.is_ok() {
                own.demonitor(other, &monitor);
            }
        }
        Relation::Monitor => {
            let monitor = cx.monitor(there);
            if told.await.is_ok() {
                cx.demonitor(monitor);
            }
        }
        Relation::Link => {
            assert!(link(there));
            if told.await.is_ok() {
                unlink(there);
            }
        }
        Relation::Call => {
            let mut call = pin!(own.call(other, Term::from(1), PATIENCE));
            poll_fn(|task| match call.as_mut().poll(task) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => Pin::new(&mut told).poll(task).map(drop),
            })
            .await;
        }
    }
    pending().await
}

/// Goal: once a relation has ended, by whatever, no table of either node has it. Method: each
/// relation with each cause of its end. The node itself monitors each of the two processes.
#[test]
fn a_relation_that_has_ended_leaves_nothing() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let details = scheduler.clone();
    let related = move |pid: Pid| {
        details
            .detail(pid)
            .and_then(|found| found.relations)
            .map_or(0, |relations| relations.links.total + relations.monitors.total)
    };
    scheduler.block_on(async move {
        let [a, b] = ["a@127.0.0.1", "b@127.0.0.1"].map(|name| {
            let builder = Node::builder(name).cookie(Cookie::new("secret").expect("it has a text"));
            builder
                .listen((Ipv4Addr::LOCALHOST, 0).into())
                .grant("*@127.0.0.1", Grants::new().exits())
                .start()
        });
        let (a, b) = (a.await.expect("it starts"), b.await.expect("it starts"));
        let address = b.local_addr().expect("it listens");
        a.connect_at("b@127.0.0.1", address).await.expect("it accepts");
        until("the connection", || !b.peers().is_empty()).await;
        for relation in [Relation::Letter, Relation::Monitor, Relation::Link, Relation::Call] {
            for cause in [Cause::Undone, Cause::NearEnds, Cause::FarEnds] {
                let case = format!("{relation:?}, {cause:?}");
                let far = start(|mut cx: Context<Letter>| {
                    cx.trap_exits(true);
                    pending::<()>()
                });
                let other = b.attach(&far.address().map(|letter| letter)).pid();
                let (tell, told) = oneshot::channel();
                let near = {
                    let node = a.clone();
                    start(move |cx| relate(cx, node, other, relation, told))
                };
                until(&case, || related(far.pid()) == 2 && entries(&a) > 0).await;
                match cause {
                    Cause::Undone => tell.send(()).expect("it waits"),
                    Cause::NearEnds => drop(kill(near.pid())),
                    Cause::FarEnds => drop(kill(far.pid())),
                }
                let left = |pid, ends: Cause| usize::from(cause != ends).abs_diff(related(pid));
                until(&format!("the end of {case}"), || {
                    let of_processes =
                        left(near.pid(), Cause::NearEnds) + left(far.pid(), Cause::FarEnds);
                    of_processes + entries(&a) + entries(&b) == 0
                })
                .await;
                near.cancel();
                far.cancel();
            }
        }
    });
}
