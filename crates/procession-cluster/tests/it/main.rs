//! Two nodes in one program, over loopback.

mod drain;
mod ends;
mod epmd;
mod exclusive;
mod functions;
mod grants;
mod groups;
mod layers;
mod names;
mod panics;
mod pids;
mod relations;
#[cfg(all(feature = "postcard", feature = "message-pack"))]
mod releases;
mod requests;
mod section;
mod security;
#[cfg(feature = "serde")]
mod shards;
mod start;
mod system;
mod tls;
mod traffic;
#[cfg(feature = "serde")]
mod typed;

use std::net::Ipv4Addr;
use std::time::Duration;

use procession::{Context, Scheduler, timeout};
use procession_cluster::{Cookie, Grants, Letter, Member, Node, NodeBuilder};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

const MESSAGE_LIMIT: usize = 16 << 20;

fn cookie() -> Cookie {
    Cookie::new("secret").expect("it has a text")
}

/// Builds a node that listens at a free port. Its messages are short, so that tests can exceed
/// their limit.
fn listens(name: &str) -> NodeBuilder {
    let builder = Node::builder(name).cookie(cookie()).message_limit(MESSAGE_LIMIT);
    builder.listen((Ipv4Addr::LOCALHOST, 0).into())
}

async fn connect(from: &Node, to: &Node) {
    let address = to.local_addr().expect("it listens");
    from.connect_at(to.name().as_str(), address).await.expect("it accepts");
}

/// Starts two nodes and connects the first to the second.
async fn pair() -> (Node, Node) {
    let a = listens("a@127.0.0.1").start().await.expect("it starts");
    let b = listens("b@127.0.0.1")
        .grant("a@127.0.0.1", Grants::new().exits())
        .start()
        .await
        .expect("it starts");
    connect(&a, &b).await;
    seen_by(&b, &a).await;
    (a, b)
}

/// Waits until a node knows of its connection to another one.
async fn seen_by(node: &Node, other: &Node) {
    until(|| node.peers().iter().any(|peer| peer.name == *other.name())).await;
}

/// Waits for a condition.
async fn until(mut condition: impl FnMut() -> bool) {
    let waits = async {
        while !condition() {
            procession::yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it comes true");
}

/// Runs a test on two workers.
fn run<F>(test: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    scheduler.block_on(test)
}

/// Attaches a process to a node.
fn attach(node: &Node, cx: &Context<Letter>) -> Member {
    node.attach(&cx.address().map(|letter| letter))
}

async fn next(cx: &mut Context<Letter>) -> Letter {
    cx.recv_timeout(PATIENCE).await.expect("it comes in time").expect("it is not cancelled")
}
