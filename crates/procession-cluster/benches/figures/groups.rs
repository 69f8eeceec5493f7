//! A node that comes up in a group with many members on three nodes, each in a program of its own.
//! `bench/cluster/beam.escript` has the same for `pg`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use procession::process::{GroupEvent, Groups};
use procession::time::Instant;
use procession::{Context, Scheduler, start};
use procession_cluster::{Letter, Node};

use crate::{Failed, Server, builder, percentile, print, until_input_ends};

const ROOM: &str = "room";
/// The group of the first two nodes, once they know each other's members.
const PAIR: &str = "pair";
/// The group of the first two nodes, once they know all members.
const FULL: &str = "full";

/// Returns the name of the first or the second node.
fn name(is_second: bool) -> &'static str {
    if is_second { "second@127.0.0.1" } else { "first@127.0.0.1" }
}

fn share(node: &Node, members: usize) -> Result<Groups, Failed> {
    let groups = Groups::new();
    node.share_groups("figures", &groups)?;
    (0..members).try_for_each(|_| join(node, &groups, ROOM))?;
    Ok(groups)
}

/// Lets a new process join a group.
fn join(node: &Node, groups: &Groups, group: &str) -> Result<(), Failed> {
    let waits = start(|mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} });
    node.attach(&waits.address().map(|letter| letter));
    Ok(groups.join(group, waits.pid())?)
}

/// Waits until a group has so many members.
async fn has(groups: &Groups, group: &str, count: usize) {
    let (members, mut changes) = groups.monitor(group);
    let mut known = members.len();
    while known < count {
        match changes.recv().await {
            GroupEvent::Join { .. } => known += 1,
            GroupEvent::Leave { .. } => known -= 1,
            _ => {}
        }
    }
}

/// Runs the first node, or the second one, which connects to it.
pub(crate) async fn serve(
    own: usize,
    total: usize,
    first: Option<SocketAddr>,
) -> Result<(), Failed> {
    let listens = builder(name(first.is_some()), false)?.listen((Ipv4Addr::LOCALHOST, 0).into());
    let node = listens.start().await?;
    let groups = share(&node, own)?;
    if let Some(first) = first {
        node.connect_at(name(false), first).await?;
    }
    let (joins, known) = (node.clone(), groups.clone());
    let told = procession::spawn(async move {
        for (group, count) in [(PAIR, 2 * own), (FULL, total)] {
            has(&known, ROOM, count).await;
            join(&joins, &known, group).map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    });
    if first.is_some() {
        has(&groups, PAIR, 2).await;
    }
    until_input_ends(&node).await?;
    drop(told);
    Ok(())
}

/// Brings a third node up, and returns how long it takes until all three know all members.
async fn come_up(total: usize) -> Result<Duration, Failed> {
    let own = total / 3;
    let node = builder("third@127.0.0.1", false)?.start().await?;
    let groups = share(&node, total - 2 * own)?;
    let numbers = ["--members".to_owned(), own.to_string(), total.to_string()];
    let (_first, first) = Server::start_with(&numbers)?;
    let (_second, second) = Server::start_with(&[&numbers[..], &[first.to_string()]].concat())?;
    node.connect_at(name(false), first).await?;
    let begin = Instant::now();
    node.connect_at(name(true), second).await?;
    has(&groups, ROOM, total).await;
    has(&groups, FULL, 2).await;
    let took = Instant::now() - begin;
    node.stop().await;
    Ok(took)
}

pub(crate) fn measure(scheduler: &Scheduler, total: usize, rounds: usize) -> Result<(), Failed> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push(scheduler.block_on(come_up(total))?);
    }
    all.sort();
    let what = |which| format!("group of {total} up, {which}");
    for (which, part) in [("least", 0.0), ("median", 0.5), ("most", 1.0)] {
        print(false, &what(which), percentile(&all, part) / 1000.0, "ms");
    }
    Ok(())
}
