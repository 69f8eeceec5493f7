//! `procession cluster status`: the state of a node.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use procession::Scheduler;
use procession_cluster::{
    Atom, EndedConnection, ExclusiveNameInfo, GroupInfo, NameInfo, NodeStatus, PeerInfo, ShardsInfo,
};
use serde_json::{Value, json};

use super::{NodeArgs, NodeError, Peer, connect};
use crate::failure::Failure;

/// The time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The ended connections that are listed, the latest first.
const LISTED: usize = 10;

/// Asks a node for its state, and prints it.
pub(crate) fn status(args: &NodeArgs, peer: &Peer, out: &mut impl Write) -> Result<(), Failure> {
    let scheduler = Scheduler::builder().worker_threads(1).build().map_err(NodeError::Scheduler)?;
    let status = scheduler.block_on(ask(args, peer))?;
    if args.json {
        writeln!(out, "{}", as_json(&status))?;
    } else {
        out.write_all(as_text(&status).as_bytes())?;
    }
    Ok(())
}

async fn ask(args: &NodeArgs, peer: &Peer) -> Result<NodeStatus, NodeError> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.tls_cert.is_some() => return Err(NodeError::NoName),
        None => format!("status-{}@127.0.0.1", std::process::id()),
    };
    let builder = args.builder(&name, false)?;
    let node = builder.start().await.map_err(NodeError::Start)?;
    let connected = connect(&node, peer).await;
    connected.map_err(|error| NodeError::Connect(peer.name.clone(), error))?;
    let status = node.status_of(&peer.name, ANSWER_TIMEOUT).await;
    node.stop().await;
    status.map_err(|error| NodeError::Status(peer.name.clone(), error))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn as_json(status: &NodeStatus) -> Value {
    let peer = |peer: &PeerInfo| {
        json!({
            "name": peer.name.as_str(), "creation": peer.creation, "connection": peer.connection,
            "release": peer.release, "protocol": peer.protocol,
            "age_us": micros(peer.age), "queued_bytes": peer.queued_bytes,
            "oldest_wait_us": peer.oldest_wait.map(micros), "sent": peer.sent,
            "received": peer.received, "refused": peer.refused,
            "not_allowed": peer.not_allowed,
            "undelivered": peer.undelivered, "denied": peer.denied,
            "bytes_sent": peer.bytes_sent, "bytes_received": peer.bytes_received,
            "round_trip_us": peer.round_trip.map(micros), "unconfirmed": peer.unconfirmed,
            "calls": peer.calls,
        })
    };
    let cause = |(cause, count): &(String, u64)| json!({ "cause": cause, "count": count });
    let ended = |ended: &EndedConnection| {
        json!({
            "name": ended.name.as_str(), "connection": ended.connection,
            "age_us": micros(ended.age), "ago_us": micros(ended.ago), "why": ended.why,
            "unconfirmed": ended.unconfirmed,
        })
    };
    let group = |group: &GroupInfo| {
        json!({
            "scope": group.scope, "name": group.name, "members": group.members,
            "local": group.local,
        })
    };
    let shared = |name: &NameInfo| json!({ "scope": name.scope, "name": name.name, "owner": name.owner.to_string() });
    let exclusive = |name: &ExclusiveNameInfo| {
        json!({
            "name": name.name, "pid": name.pid.to_string(), "fence": name.fence,
            "singleton": name.is_singleton,
        })
    };
    let home =
        |(node, shards): &(Atom, Vec<u32>)| json!({ "node": node.as_str(), "shards": shards });
    let shards = |shards: &ShardsInfo| {
        json!({
            "name": shards.name, "keys": shards.keys, "waiting": shards.waiting,
            "moves": shards.moves, "homes": shards.homes.iter().map(home).collect::<Vec<_>>(),
        })
    };
    json!({
        "version": 1,
        "name": status.name.as_str(), "creation": status.creation, "release": status.release,
        "protocol": status.protocol, "attached": status.attached,
        "names": status.names.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
        "ends": status.ends.iter().map(cause).collect::<Vec<_>>(), "lost": status.lost,
        "ended": status.ended.iter().map(ended).collect::<Vec<_>>(),
        "refusals": status.refusals.iter().map(cause).collect::<Vec<_>>(),
        "groups": status.groups.iter().map(group).collect::<Vec<_>>(),
        "shared_names": status.shared_names.iter().map(shared).collect::<Vec<_>>(),
        "exclusive_names": status.exclusive_names.iter().map(exclusive).collect::<Vec<_>>(),
        "shards": status.shards.iter().map(shards).collect::<Vec<_>>(),
    })
}

/// Returns a text of another node without control characters, which could act on a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

fn as_text(status: &NodeStatus) -> String {
    let mut text = String::new();
    let mut line = |parts: std::fmt::Arguments<'_>| {
        text.write_fmt(parts).expect("a string has room");
        text.push('\n');
    };
    let names: Vec<_> = status.names.iter().map(|name| plain(name.as_str())).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let name = plain(status.name.as_str());
    let of_own = release(status.release.as_deref(), Some(status.protocol));
    let attached = status.attached;
    line(format_args!("{name}: release {of_own}, {attached} processes attached, names: {names}"));
    line(format_args!(
        "{:<28} {:>9} {:>9} {:>10} {:>9} {:>10} {:>10} {:>8} {:>7} {:>10} {:>11}",
        "node",
        "release",
        "connected",
        "queued",
        "oldest",
        "sent",
        "received",
        "refused",
        "denied",
        "round trip",
        "unconfirmed"
    ));
    let optional = |time: Option<Duration>| time.map_or("-".to_owned(), short);
    for peer in &status.peers {
        line(format_args!(
            "{:<28} {:>9} {:>9} {:>10} {:>9} {:>10} {:>10} {:>8} {:>7} {:>10} {:>11}",
            plain(peer.name.as_str()),
            release(peer.release.as_deref(), peer.protocol),
            short(peer.age),
            format!("{} B", peer.queued_bytes),
            optional(peer.oldest_wait),
            peer.sent,
            peer.received,
            peer.refused,
            peer.denied,
            optional(peer.round_trip),
            peer.unconfirmed.map_or("?".to_owned(), |count| count.to_string()),
        ));
    }
    if status.ends.is_empty() {
        line(format_args!("no connection has ended"));
    }
    for (cause, count) in &status.ends {
        line(format_args!("{count} connections ended: {}", plain(cause)));
    }
    for ended in status.ended.iter().rev().take(LISTED) {
        line(format_args!(
            "{} ago, {} after {}: {}",
            short(ended.ago),
            plain(ended.name.as_str()),
            short(ended.age),
            plain(&ended.why)
        ));
    }
    if status.lost > 0 {
        line(format_args!("{} messages may be lost with them", status.lost));
    }
    for (cause, count) in &status.refusals {
        line(format_args!("{count} handshakes refused: {}", plain(cause)));
    }
    for GroupInfo { scope, name, members, local, .. } in &status.groups {
        let (scope, name) = (plain(scope), plain(name));
        line(format_args!("group {name} of {scope}: {members} members, {local} of this node"));
    }
    for NameInfo { scope, name, owner, .. } in &status.shared_names {
        let (scope, name) = (plain(scope), plain(name));
        line(format_args!("name {name} of {scope}: {}", plain(&owner.to_string())));
    }
    for ExclusiveNameInfo { name, pid, fence, is_singleton, .. } in &status.exclusive_names {
        let kind = if *is_singleton { "singleton" } else { "exclusive name" };
        let fence = fence.map_or("waits".to_owned(), |fence| format!("has it with fence {fence}"));
        line(format_args!("{kind} {}: {} {fence}", plain(name), plain(&pid.to_string())));
    }
    for ShardsInfo { name, keys, waiting, moves, homes, .. } in &status.shards {
        let homes: Vec<_> = homes
            .iter()
            .map(|(node, shards)| format!("{} of {}", shards.len(), plain(node.as_str())))
            .collect();
        let (name, homes) = (plain(name), homes.join(", "));
        line(format_args!(
            "shards {name}: {homes}; {keys} keys, {waiting} messages wait, {moves} moves"
        ));
    }
    text
}

/// Formats the version of a release and its protocol. A node of the BEAM has neither.
fn release(version: Option<&str>, protocol: Option<u16>) -> String {
    let Some(protocol) = protocol else { return "-".to_owned() };
    format!("{}/{protocol}", version.map_or("?".to_owned(), plain))
}

/// Formats a time in a unit that fits.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time < Duration::from_millis(1) => format!("{} us", time.as_micros()),
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{plain, release, short};

    #[test]
    fn times_have_a_unit_that_fits() {
        let times = [(40, "40 us"), (1500, "1 ms"), (90_000_000, "90 s"), (300_000_000, "5 min")];
        for (micros, text) in times {
            assert_eq!(short(Duration::from_micros(micros)), text);
        }
        assert_eq!(plain("a\x1b[2Jb"), "a?[2Jb");
        let releases = [(Some("0.1.0"), Some(2)), (None, Some(1)), (None, None)];
        let texts = releases.map(|(version, protocol)| release(version, protocol));
        assert_eq!(texts, ["0.1.0/2", "?/1", "-"]);
    }
}
