//! Processes that are found by keys: a call of one on the other node beside a call of any process
//! there, and what many keys on three nodes of this program cost, until a fourth node has joined
//! and drained.

use std::net::Ipv4Addr;
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Reply, checkpoint, sleep, start};
use procession_cluster::shards::{KeyContext, Refusal, Shards, ShardsStatus};
use procession_cluster::{Node, Remote};
use serde::{Deserialize, Serialize};

use crate::{Failed, Job, LIMIT, PAYLOAD, SERVER, builder, percentile, print, processor_time};

/// The rounds of calls, in each of which a call of a key follows each other call.
const ROUNDS: usize = 10;
/// The keys that are looked for until one is at home on the other node.
const TRIES: u64 = 1 << 20;
/// The time without a change after which all keys are where they stay.
const QUIET: Duration = Duration::from_millis(300);
/// The keys of which the state is asked for in the end.
const ASKED: u64 = 1000;

/// Starts shards with the processes that are called. `answers` tells the node that is measured: the
/// processes of the other one answer with 0.
pub(crate) fn serve(node: &Node, answers: bool) -> Result<Shards<u64, Job>, Failed> {
    let echo = move |mut cx: KeyContext<u64, Job, ()>| async move {
        while let Some(Job::Echo(bytes, reply)) = cx.recv().await {
            reply.send(if answers { bytes.len() as u64 } else { 0 });
        }
        None
    };
    Ok(Shards::builder("figures").start(node, echo)?)
}

/// Measures calls of a typed process and of a key on the other node, in turns.
pub(crate) async fn calls(node: &Node, count: usize, is_secure: bool) -> Result<(), Failed> {
    let typed = node.address::<Job>(Remote::named("typed", SERVER));
    let shards = serve(node, false)?;
    let call_key = async |key| {
        let job = |reply| Job::Echo(vec![7; PAYLOAD], reply);
        shards.call(&key, job, LIMIT).await.map_err(|error| error.to_string())
    };
    let mut key = 0;
    while call_key(key).await? == 0 {
        key += 1;
        if key == TRIES {
            return Err("no key is at home on the other node".into());
        }
    }
    let (mut plain, mut by_key, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut of_plain, mut of_key) = (Vec::new(), Vec::new());
        for _ in 0..count / ROUNDS {
            let begin = Instant::now();
            let called = typed.call(|reply| Job::Echo(vec![7; PAYLOAD], reply), LIMIT).await;
            let middle = Instant::now();
            let lengths = [called.map_err(|error| error.cause())?, call_key(key).await?];
            of_key.push(Instant::now() - middle);
            of_plain.push(middle - begin);
            if lengths != [PAYLOAD as u64; 2] {
                return Err("another length came".into());
            }
        }
        of_plain.sort();
        of_key.sort();
        ratios.push(percentile(&of_key, 0.5) / percentile(&of_plain, 0.5));
        plain.extend(of_plain);
        by_key.extend(of_key);
    }
    shards.stop();
    for (what, mut all) in [("typed call", plain), ("call of a key", by_key)] {
        all.sort();
        print(is_secure, &format!("{what} p50"), percentile(&all, 0.5), "us");
        print(is_secure, &format!("{what} p99"), percentile(&all, 0.99), "us");
    }
    ratios.sort_by(f64::total_cmp);
    for (which, at) in [("least", 0), ("median", ROUNDS / 2), ("most", ROUNDS - 1)] {
        print(is_secure, &format!("beside a typed call, {which}"), 100.0 * ratios[at], "%");
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Count {
    Add(u64),
    Sum(#[serde(with = "procession_cluster::serialize::reply")] Reply<u64>),
}

async fn count(mut cx: KeyContext<u64, Count, u64>) -> Option<u64> {
    let mut sum = cx.take_state().unwrap_or_default();
    while let Some(message) = cx.recv().await {
        match message {
            Count::Add(amount) => sum += amount,
            Count::Sum(reply) => reply.send(sum),
        }
    }
    Some(sum)
}

struct Member {
    node: Node,
    shards: Shards<u64, Count>,
}

impl Member {
    async fn start(others: &[Self]) -> Result<Self, Failed> {
        let listens = builder(&format!("keys{}@127.0.0.1", others.len()), false)?;
        let node = listens.listen((Ipv4Addr::LOCALHOST, 0).into()).start().await?;
        for Self { node: other, .. } in others {
            let address = other.local_addr().ok_or("it does not listen")?;
            node.connect_at(other.name().as_str(), address).await?;
        }
        // No process ends because it is idle.
        let shards = Shards::builder("keys").idle(Duration::from_secs(3600)).start(&node, count)?;
        Ok(Self { node, shards })
    }

    fn sent(&self) -> u64 {
        self.node.peers().iter().map(|peer| peer.sent).sum()
    }
}

fn sum<T: std::iter::Sum>(all: &[Member], value: impl Fn(&Member) -> T) -> T {
    all.iter().map(value).sum()
}

/// Returns the sum of a number of all nodes.
fn held(all: &[Member], number: impl Fn(&ShardsStatus) -> u64) -> u64 {
    sum(all, |member| number(&member.shards.status()))
}

/// Waits until all keys are where they stay. Returns since when, and the messages that nodes have
/// sent by then.
async fn settled(all: &[Member], keys: u64) -> Result<(Instant, u64), Failed> {
    let mut last = (Vec::new(), Instant::now());
    loop {
        let homes = |member: &Member| {
            let status = member.shards.status();
            (status.shards, status.keys, status.waiting)
        };
        let now: Vec<_> = all.iter().map(homes).collect();
        // Each shard has one home.
        let is_whole = now.iter().map(|(shards, ..)| shards).sum::<usize>() == 256
            && now.iter().map(|(_, keys, _)| keys).sum::<u64>() == keys
            && now.iter().all(|(_, _, waiting)| *waiting == 0);
        if now != last.0 {
            last = (now, Instant::now());
        }
        let unchanged = Instant::now() - last.1;
        if is_whole && unchanged >= QUIET {
            return Ok((last.1, sum(all, Member::sent)));
        }
        if unchanged >= LIMIT {
            return Err(format!("the keys do not settle: {:?}", last.0).into());
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Sends each key its first message.
async fn send_all(
    shards: Shards<u64, Count>,
    keys: impl Iterator<Item = u64>,
) -> Result<(), String> {
    for key in keys {
        let mut message = Count::Add(1);
        while let Err(refused) = shards.send(&key, message) {
            if refused.why() != Refusal::ConnectionFull {
                return Err(refused.to_string());
            }
            message = refused.into_inner();
            sleep(Duration::from_millis(1)).await;
        }
        checkpoint().await;
    }
    Ok(())
}

/// Returns the resident memory of this program in bytes.
fn resident() -> Result<f64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no such line")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// The beginning of something that is measured.
struct Watch {
    begin: Instant,
    used: Duration,
}

impl Watch {
    fn start() -> Result<Self, Failed> {
        Ok(Self { begin: Instant::now(), used: processor_time(std::process::id())? })
    }

    /// Prints the time until `end`, and the processor time of each of the keys.
    fn print(&self, what: &str, end: Instant, keys: u64) -> Result<(), Failed> {
        let used = processor_time(std::process::id())? - self.used;
        let took = (end - self.begin).as_nanos() as f64 / 1e6;
        let each = used.as_nanos() as f64 / 1000.0 / keys as f64;
        print(false, &format!("{what}: keys"), keys as f64, "");
        print(false, &format!("{what}: time"), took, "ms");
        print(false, &format!("{what}: processor time"), each, "us for a key");
        Ok(())
    }
}

/// Measures many keys on three nodes of this program, and a fourth node that joins and drains.
pub(crate) async fn measure(keys: u64) -> Result<(), Failed> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(Member::start(&all).await?);
    }
    settled(&all, 0).await?;
    let (before, watch) = (resident()?, Watch::start()?);
    let senders: Vec<_> = (0..3)
        .map(|at| {
            let shards = all[at].shards.clone();
            start(move |_: Context<()>| send_all(shards, (at as u64..keys).step_by(3)))
        })
        .collect();
    for sender in senders {
        sender.await??;
    }
    while held(&all, |status| status.handled) < keys {
        sleep(Duration::from_millis(2)).await;
    }
    watch.print("start", Instant::now(), keys)?;
    let (_, sent) = settled(&all, keys).await?;
    print(false, "memory of a key", (resident()? - before) / keys as f64, "bytes");

    let watch = Watch::start()?;
    all.push(Member::start(&all).await?);
    let (end, sent_after) = settled(&all, keys).await?;
    let moved = all[3].shards.status().keys;
    watch.print("join", end, moved)?;
    print(false, "join: messages", (sent_after - sent) as f64, "");

    let (watch, node) = (Watch::start()?, all[3].node.clone());
    let mut drains = start(move |_: Context<()>| async move { node.drain(LIMIT).await });
    // The counts of a connection end with it, so these miss what is sent in the last millisecond.
    let mut sent = sent_after;
    while drains.address().is_alive() {
        sent = sent.max(sum(&all, Member::sent));
        sleep(Duration::from_millis(1)).await;
    }
    let (end, lost) = (Instant::now(), (&mut drains).await?);
    watch.print("drain", end, moved)?;
    print(false, "drain: messages", (sent - sent_after) as f64, "");
    all.truncate(3);
    settled(&all, keys).await?;

    let gone = held(&all, |status| status.states_dropped + status.dead + status.lost);
    if lost + gone > 0 {
        return Err(format!("{lost} messages of the node and {gone} of keys are lost").into());
    }
    for key in (0..keys).step_by((keys / ASKED).max(1) as usize) {
        let sum = all[0].shards.call(&key, Count::Sum, LIMIT).await;
        if sum.map_err(|error| error.to_string())? != 1 {
            return Err("the state of a key is lost".into());
        }
    }
    for Member { node, .. } in all {
        node.stop().await;
    }
    Ok(())
}
