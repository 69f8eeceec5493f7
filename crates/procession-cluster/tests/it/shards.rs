//! Processes that are found by keys, on nodes that come and go.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::observe::DoorOptions;
use procession::sync::Notify;
use procession::{Child, Context, JoinHandle, Reply, Scheduler, sleep, spawn, timeout, yield_now};
use procession_cluster::shards::{
    CallKeyError, KeyContext, Refusal, Refused, Shards, ShardsBuilder, ShardsStatus,
};
use procession_cluster::{Grants, Letter, Member, Node, NodePid, RegisterError, Remote, Term};
use procession_sync::Mutex;
use serde::{Deserialize, Serialize};

use crate::section::ask;
use crate::{PATIENCE, connect, cookie, listens, run, until};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    /// The message of a sender with this number.
    Note(u32, u64),
    /// Returns how many notes the process and its predecessors have received.
    Count(#[serde(with = "procession_cluster::serialize::reply")] Reply<u64>),
    /// Waits until the test lets it go on.
    Hold,
    /// Ends before the next message.
    Leave,
    Fail,
}

/// What the processes of all nodes have in common in a test.
#[derive(Default)]
struct World {
    /// The numbers of the notes that were received, by sender and key.
    received: Mutex<BTreeMap<(u32, u32), Vec<u64>>>,
    /// The processes of a key that run, and the most that ever ran at a time.
    running: Mutex<BTreeMap<u32, (usize, usize)>>,
    returned: Mutex<Vec<(u32, Refusal)>>,
    holds: Mutex<usize>,
    goes_on: Notify,
}

/// A process that runs.
struct Running(Arc<World>, u32);

impl Running {
    fn begin(world: &Arc<World>, key: u32) -> Self {
        let mut running = world.running.lock();
        let (now, most) = running.entry(key).or_default();
        *now += 1;
        *most = (*most).max(*now);
        Self(Arc::clone(world), key)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().get_mut(&self.1).expect("it has begun").0 -= 1;
    }
}

async fn work(world: Arc<World>, mut cx: KeyContext<u32, Job, u64>) -> Option<u64> {
    let key = *cx.key();
    let _running = Running::begin(&world, key);
    let mut count = cx.take_state().unwrap_or(0);
    while let Some(job) = cx.recv().await {
        match job {
            Job::Note(sender, number) => {
                count += 1;
                world.received.lock().entry((sender, key)).or_default().push(number);
            }
            Job::Count(reply) => reply.send(count),
            Job::Hold => {
                *world.holds.lock() += 1;
                world.goes_on.notified().await;
            }
            Job::Leave => break,
            Job::Fail => procession::process::exit(procession::Exit::failed("as it was asked to")),
        }
    }
    Some(count)
}

impl World {
    fn start(
        self: &Arc<Self>,
        node: &Node,
        set: impl FnOnce(ShardsBuilder<u32, Job>) -> ShardsBuilder<u32, Job>,
    ) -> Shards<u32, Job> {
        let (world, own) = (Arc::clone(self), Arc::clone(self));
        let builder = Shards::builder("jobs").shards(32).on_returned(move |key, refused| {
            let refused: Refused<Job> = refused;
            own.returned.lock().push((key, refused.why()));
        });
        set(builder).start(node, move |cx| work(Arc::clone(&world), cx)).expect("the name is free")
    }

    fn most(&self) -> usize {
        self.running.lock().values().map(|(_, most)| *most).max().unwrap_or(0)
    }

    fn received(&self) -> u64 {
        self.received.lock().values().map(|numbers| numbers.len() as u64).sum()
    }

    /// Checks that each sender was received in order.
    fn check_order(&self) {
        for (of, numbers) in &*self.received.lock() {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{of:?}: {numbers:?}");
        }
    }
}

/// A node with shards.
struct Host {
    node: Node,
    jobs: Shards<u32, Job>,
}

async fn host(world: &Arc<World>, name: &str) -> Host {
    let node = listens(name).start().await.expect("it starts");
    let jobs = world.start(&node, |builder| builder);
    Host { node, jobs }
}

/// Connects a node to others, and waits until all have agreed on the homes.
async fn join(new: &Host, others: &[&Host]) {
    for other in others {
        connect(&new.node, &other.node).await;
    }
    let all: Vec<_> = others.iter().copied().chain([new]).collect();
    agree(&all).await;
}

async fn agree(hosts: &[&Host]) {
    until(|| {
        let homes = hosts.iter().map(|host| host.jobs.status().shards);
        homes.sum::<usize>() == 32 && hosts.iter().all(|host| host.jobs.status().shards < 32)
    })
    .await;
}

/// Drains a node. This also returns at its deadline, which is later than the test waits.
async fn drain(host: &Host) {
    let drained = timeout(PATIENCE, host.node.drain(10 * PATIENCE)).await;
    assert_eq!(drained.ok(), Some(0), "before its deadline");
}

async fn drain_together(a: &Host, b: &Host) {
    let drains = [a, b].map(|host| {
        let host = Host { node: host.node.clone(), jobs: host.jobs.clone() };
        spawn(async move { drain(&host).await })
    });
    for drained in drains {
        drained.await.expect("it ends");
    }
}

fn sum(hosts: &[&Host]) -> ShardsStatus {
    let mut all = hosts[0].jobs.status();
    for host in &hosts[1..] {
        let status = host.jobs.status();
        all.keys += status.keys;
        all.sent += status.sent;
        all.handled += status.handled;
        all.forwarded += status.forwarded;
        all.returned += status.returned;
        all.dead += status.dead;
        all.lost += status.lost;
        all.states_dropped += status.states_dropped;
        all.waiting += status.waiting;
    }
    all
}

/// Waits until each message has ended in some way.
async fn quiet(hosts: &[&Host]) {
    let is_quiet = || {
        let all = sum(hosts);
        all.sent == all.handled + all.returned + all.dead + all.lost
    };
    let waits = async {
        while !is_quiet() {
            yield_now().await;
        }
    };
    let is_over = timeout(PATIENCE, waits).await.is_ok();
    let all: Vec<_> = hosts.iter().map(|host| host.jobs.status()).collect();
    assert!(is_over, "{:?} of {all:?}", sum(hosts));
}

async fn count(host: &Host, key: u32) -> Result<u64, CallKeyError<Job>> {
    host.jobs.call(&key, Job::Count, PATIENCE).await
}

/// Goal: a message that comes when the process ends because it was idle is not lost. Method: on the
/// test clock, the idle time and the pauses of the sender are equal, or differ by a moment.
#[test]
fn an_idle_process_ends_and_loses_no_message() {
    const IDLE: Duration = Duration::from_secs(1);
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    scheduler.expect("it can be built").block_on(async {
        let world = Arc::<World>::default();
        let node = Node::builder("a@127.0.0.1").cookie(cookie()).start().await.expect("it starts");
        let jobs = world.start(&node, |builder| builder.idle(IDLE));
        for number in 0..300 {
            jobs.send(&7, Job::Note(1, number)).expect("it is its home");
            let moment = Duration::from_nanos(number % 3);
            sleep(IDLE + moment - Duration::from_nanos(1)).await;
            for _ in 0..number % 5 {
                yield_now().await;
            }
        }
        until(|| world.received() == 300).await;
        assert_eq!(world.received.lock()[&(1, 7)], (0..300).collect::<Vec<_>>());
        assert_eq!(world.most(), 1);
        sleep(2 * IDLE).await;
        assert_eq!(jobs.status().keys, 0, "it was idle");
    });
}

#[test]
fn a_process_that_returns_or_fails_has_a_successor() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        a.jobs.send(&7, Job::Hold).expect("it is its home");
        until(|| *world.holds.lock() == 1).await;
        for job in [Job::Note(1, 1), Job::Leave, Job::Note(1, 2)] {
            a.jobs.send(&7, job).expect("it is its home");
        }
        world.goes_on.notify_one();
        assert_eq!(count(&a, 7).await.ok(), Some(2), "the state is handed on");
        a.jobs.send(&7, Job::Hold).expect("it is its home");
        until(|| *world.holds.lock() == 2).await;
        for job in [Job::Fail, Job::Note(1, 3)] {
            a.jobs.send(&7, job).expect("it is its home");
        }
        let own = a.jobs.clone();
        let called = spawn(async move { own.call(&7, Job::Count, PATIENCE).await });
        until(|| a.jobs.status().sent == 9).await;
        world.goes_on.notify_one();
        let refused = called.await.expect("it ends");
        assert!(
            matches!(&refused, Err(CallKeyError::Refused(why)) if why.why() == Refusal::Failed),
            "{refused:?}"
        );
        assert_eq!(*world.returned.lock(), [(7, Refusal::Failed)]);
        assert_eq!(count(&a, 7).await.ok(), Some(0), "its successor begins anew");
        quiet(&[&a]).await;
    });
}

#[test]
fn all_nodes_reach_the_same_process_of_a_key() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        for key in 0..100 {
            for (at, host) in [&a, &b, &a].into_iter().enumerate() {
                host.jobs.send(&key, Job::Note(0, at as u64)).expect("it is connected");
                // In order although two nodes have sent them.
                assert_eq!(count(host, key).await.expect("it replies"), at as u64 + 1);
            }
        }
        assert_eq!(world.most(), 1);
        let (of_a, of_b) = (a.jobs.status().keys, b.jobs.status().keys);
        assert!(of_a + of_b == 100 && of_a > 10 && of_b > 10, "{of_a} and {of_b}");
        quiet(&[&a, &b]).await;
        assert_eq!(sum(&[&a, &b]).returned + sum(&[&a, &b]).lost, 0);
    });
}

#[test]
fn keys_move_with_their_states() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        for key in 0..200 {
            for number in 0..u64::from(key) % 5 {
                a.jobs.send(&key, Job::Note(0, number)).expect("it is its home");
            }
        }
        join(&b, &[&a]).await;
        for key in 0..200 {
            for host in [&a, &b] {
                let count = count(host, key).await.expect("it replies");
                assert_eq!(count, u64::from(key) % 5, "of key {key}");
            }
        }
        assert!(b.jobs.status().keys > 20);
        // Back again, by a drain.
        drain(&b).await;
        for key in 0..200 {
            assert_eq!(count(&a, key).await.expect("it replies"), u64::from(key) % 5);
        }
        assert_eq!(world.most(), 1);
        assert_eq!(sum(&[&a, &b]).states_dropped, 0);
        quiet(&[&a, &b]).await;
    });
}

/// Goal: a node drains although another one has found a new home for its shards before, of which
/// the node knows nothing, and so changes no home when it sees the node leave.
#[test]
fn a_node_drains_that_does_not_know_the_next_home() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        let before = a.jobs.status().shards;
        let c = host(&world, "c@127.0.0.1").await;
        connect(&c.node, &a.node).await;
        until(|| a.jobs.status().shards < before && c.jobs.status().shards < 32).await;
        drain(&b).await;
        agree(&[&a, &c]).await;
    });
}

/// Goal: of two nodes that leave together, each may hand keys to the other first, and the third one
/// gets all of them.
#[test]
fn nodes_that_drain_together_lose_no_state() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        let c = host(&world, "c@127.0.0.1").await;
        join(&b, &[&a]).await;
        join(&c, &[&a, &b]).await;
        for key in 0..200 {
            a.jobs.send(&key, Job::Note(0, 1)).expect("it is connected");
        }
        until(|| world.received() == 200).await;
        drain_together(&a, &b).await;
        for key in 0..200 {
            assert_eq!(count(&c, key).await.expect("it replies"), 1, "of key {key}");
        }
        assert_eq!((world.most(), sum(&[&a, &b, &c]).states_dropped), (1, 0));
    });
}

/// Goal: nodes that leave together say nothing more to each other if there is nothing to hand over,
/// and none of them waits for the other.
#[test]
fn nodes_without_keys_drain_together() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        quiet(&[&a, &b]).await;
        drain_together(&a, &b).await;
    });
}

/// Sends notes to keys until it is told to stop. Returns how many were accepted.
fn send_notes(host: &Host, sender: u32, stops: &Arc<Mutex<bool>>) -> JoinHandle<u64> {
    let (jobs, stops) = (host.jobs.clone(), Arc::clone(stops));
    spawn(async move {
        let mut accepted = 0;
        for number in 0.. {
            if *stops.lock() {
                break;
            }
            let key = (number % 40) as u32;
            accepted += u64::from(jobs.send(&key, Job::Note(sender, number)).is_ok());
            // So that the processes keep up.
            sleep(Duration::from_micros(200)).await;
        }
        accepted
    })
}

/// Calls keys until it is told to stop. Returns how many calls were answered, and the errors that
/// are no refusals.
fn call_keys(host: &Host, stops: &Arc<Mutex<bool>>) -> JoinHandle<(u64, Vec<CallKeyError<Job>>)> {
    let (jobs, stops) = (host.jobs.clone(), Arc::clone(stops));
    spawn(async move {
        let (mut answered, mut lost) = (0, Vec::new());
        for key in (0..40).cycle() {
            if *stops.lock() {
                break;
            }
            match jobs.call(&key, Job::Count, PATIENCE).await {
                Ok(_) => answered += 1,
                Err(CallKeyError::Refused(_)) => yield_now().await,
                Err(error) => lost.push(error),
            }
        }
        (answered, lost)
    })
}

/// Goal: under load, nodes that join and drain lose no message and no call, and change no order.
#[test]
fn nodes_come_and_go_under_load() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        let stops = Arc::new(Mutex::new(false));
        let senders: Vec<_> = [(&a, 1), (&a, 2), (&b, 3)]
            .map(|(host, sender)| send_notes(host, sender, &stops))
            .into_iter()
            .collect();
        let callers = [&a, &b].map(|host| call_keys(host, &stops));
        let mut gone = Vec::new();
        for _ in 0..2 {
            let before = world.received();
            until(|| world.received() > before + 500).await;
            let c = host(&world, "c@127.0.0.1").await;
            join(&c, &[&a, &b]).await;
            let own = send_notes(&c, 4 + gone.len() as u32, &stops);
            until(|| c.jobs.status().handled > 100).await;
            own.cancel();
            drain(&c).await;
            agree(&[&a, &b]).await;
            gone.push(c);
        }
        *stops.lock() = true;
        let mut accepted = 0;
        for sender in senders {
            accepted += sender.await.expect("it ends");
        }
        let mut answered = 0;
        for caller in callers {
            let (own, lost) = caller.await.expect("it ends");
            assert!(own > 0 && lost.is_empty(), "{own} were answered, and not {lost:?}");
            answered += own;
        }
        let all: Vec<_> = [&a, &b].into_iter().chain(&gone).collect();
        quiet(&all).await;
        world.check_order();
        let status = sum(&all);
        assert!(status.handled > 1000 && accepted > 0, "{status:?}");
        assert_eq!(status.handled, world.received() + answered);
        assert_eq!((status.lost, status.dead, status.states_dropped), (0, 0, 0), "{status:?}");
        assert_eq!(world.most(), 1);
    });
}

/// Goal: the end of a node without a drain is survived, and what it had is counted.
#[test]
fn what_a_lost_node_had_is_counted() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        // A key of b with a busy process.
        let key = (0..1000).find(|key| {
            a.jobs.send(key, Job::Hold).expect("it is connected");
            a.jobs.status().keys < u64::from(*key) + 1
        });
        let key = key.expect("b has shards");
        until(|| *world.holds.lock() == key as usize + 1).await;
        for number in 0..10 {
            a.jobs.send(&key, Job::Note(1, number)).expect("it is connected");
        }
        // The process that holds has received its message, and a knows that.
        until(|| a.jobs.status().outstanding == 10).await;
        b.node.stop().await;
        until(|| a.jobs.status().lost > 0).await;
        assert_eq!(a.jobs.status().lost, 10);
        a.jobs.send(&key, Job::Note(1, 10)).expect("it is its home now");
        until(|| world.received.lock().get(&(1, key)).is_some_and(|all| all.contains(&10))).await;
        world.goes_on.notify_waiters();
    });
}

/// Goal: each limit refuses with its name.
#[test]
fn a_message_beyond_a_limit_is_refused_by_the_name_of_the_limit() {
    run(async {
        let world = Arc::<World>::default();
        let limits = |builder: ShardsBuilder<u32, Job>| builder.queue_limit(3).key_limit(2);
        let node = listens("a@127.0.0.1").start().await.expect("it starts");
        let jobs = world.start(&node, limits);
        let a = Host { node, jobs };
        let why = |refused: Result<(), Refused<Job>>| refused.map_err(|refused| refused.why());
        a.jobs.send(&1, Job::Hold).expect("it is its home");
        until(|| *world.holds.lock() == 1).await;
        let notes = (0..4).map(|number| why(a.jobs.send(&1, Job::Note(1, number))));
        assert_eq!(notes.collect::<Vec<_>>(), [Ok(()), Ok(()), Ok(()), Err(Refusal::QueueFull)]);
        let keys = [2, 3].map(|key| why(a.jobs.send(&key, Job::Note(1, 0))));
        assert_eq!(keys, [Ok(()), Err(Refusal::Keys)]);
        let names = Shards::<String, Job>::builder("names");
        let names = names.start(&a.node, async |_: KeyContext<String, Job, ()>| None);
        let names = names.expect("the name is free");
        let long = names.send(&"x".repeat(1100), Job::Hold);
        assert_eq!(long.map_err(|refused| refused.why()), Err(Refusal::Key));
        let again = Shards::<String, Job>::builder("names");
        let again = again.start(&a.node, async |_: KeyContext<String, Job, ()>| None);
        assert!(matches!(again, Err(RegisterError::Taken(_))));
        world.goes_on.notify_one();
        quiet(&[&a]).await;
        a.node.stop().await;
        until(|| why(a.jobs.send(&1, Job::Hold)) == Err(Refusal::Stopped)).await;
    });
}

/// Goal: while a process of the old home does not end, messages wait at the new home up to the
/// limits, and then go back to the node that has sent them. Its key continues after that.
#[test]
fn messages_wait_for_a_move_up_to_its_limits() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        for key in 0..40 {
            a.jobs.send(&key, Job::Hold).expect("it is its home");
        }
        until(|| *world.holds.lock() == 40).await;
        let node = listens("b@127.0.0.1").start().await.expect("it starts");
        let limit = Duration::from_secs(3);
        let jobs = world.start(&node, |builder| builder.move_limit(4, limit));
        let b = Host { node, jobs };
        join(&b, &[&a]).await;
        // By the new home itself, and by the old one.
        let at_b = |key: &u32| {
            let waiting = b.jobs.status().waiting;
            b.jobs.send(key, Job::Note(1, 0)).is_ok() && b.jobs.status().waiting > waiting
        };
        let key = (0..40).find(at_b).expect("b has shards");
        for number in 1..10 {
            // Ignored: it may be refused immediately.
            drop(b.jobs.send(&key, Job::Note(1, number)));
        }
        assert_eq!(b.jobs.status().waiting, 4);
        let full = b.jobs.send(&key, Job::Note(1, 10)).expect_err("four wait");
        assert_eq!(full.why(), Refusal::MoveFull);
        let called = a.jobs.call(&key, Job::Count, PATIENCE).await;
        assert!(
            matches!(&called, Err(CallKeyError::Refused(why)) if why.why() == Refusal::MoveFull),
            "{called:?}"
        );
        until(|| world.returned.lock().len() == 4).await;
        assert!(world.returned.lock().iter().all(|why| *why == (key, Refusal::MoveElapsed)));
        let late = b.jobs.send(&key, Job::Note(1, 11)).expect_err("it takes too long");
        assert_eq!(late.why(), Refusal::MoveElapsed);
        world.goes_on.notify_waiters();
        until(|| b.jobs.send(&key, Job::Note(1, 12)).is_ok()).await;
        until(|| world.received.lock().contains_key(&(1, key))).await;
        quiet(&[&a, &b]).await;
        assert_eq!(world.most(), 1);
    });
}

#[test]
fn shards_that_stop_hand_their_keys_over() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        for key in 0..100 {
            a.jobs.send(&key, Job::Note(1, 1)).expect("it is connected");
        }
        until(|| world.received() == 100).await;
        b.jobs.stop();
        until(|| a.jobs.status().shards == 32 && a.jobs.status().keys == 100).await;
        for key in 0..100 {
            assert_eq!(count(&a, key).await.expect("it replies"), 1);
        }
        until(|| b.jobs.send(&1, Job::Hold).is_err_and(|why| why.why() == Refusal::Stopped)).await;
        assert_eq!(world.most(), 1);
    });
}

#[test]
fn the_door_shows_shards() {
    let folder = std::env::temp_dir().join(format!("procession-shards-{}", std::process::id()));
    let options = DoorOptions::default().directory(&folder);
    let builder = Scheduler::builder().worker_threads(2).door(options).on_exit(|_| {});
    let scheduler = builder.build().expect("the directory is new");
    let socket = scheduler.door().expect("it was asked for").socket().to_owned();
    scheduler.block_on(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        a.jobs.send(&7, Job::Note(1, 1)).expect("it is its home");
        let row = [
            r#"{"node":"a@127.0.0.1","shards":"jobs","homes":32,"keys":1,"waiting":0,"sent":1,"#,
            r#""handled":1,"forwarded":0,"outstanding":0,"returned":0,"dead":0,"lost":0,"moves":0,"states_dropped":0}"#,
        ];
        until(|| ask(&socket, "/shards").contains(&row.concat())).await;
        let metrics = ask(&socket, "/metrics");
        assert!(metrics.contains("procession_shards_node_handled_total{"), "{metrics}");
    });
    drop(scheduler);
    // Ignored: another test may use it.
    drop(std::fs::remove_dir_all(&folder));
}

/// Goal: each node can be asked where the shards are, and how often they have moved.
#[test]
fn the_status_lists_homes_and_moves() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        let own = |host: &Host| host.node.status().shards;
        let [alone] = &own(&a)[..] else { panic!("it has shards of one name") };
        assert_eq!(alone.homes, [(a.node.name().clone(), (0..32).collect())]);
        assert_eq!((&*alone.name, alone.moves), ("jobs", 0));
        let b = listens("b@127.0.0.1").grant("a@127.0.0.1", Grants::new().look());
        let b = b.start().await.expect("it starts");
        let b = Host { jobs: world.start(&b, |builder| builder), node: b };
        join(&b, &[&a]).await;
        let [of_a] = &own(&a)[..] else { panic!("it has shards of one name") };
        let asked = a.node.status_of("b@127.0.0.1", PATIENCE).await.expect("it permits it");
        let [of_b] = &asked.shards[..] else { panic!("it has shards of one name") };
        assert_eq!(of_a.homes, of_b.homes);
        let mut all = of_a.homes.iter().flat_map(|(_, shards)| shards.clone()).collect::<Vec<_>>();
        all.sort_unstable();
        assert_eq!(all, (0..32).collect::<Vec<_>>());
        let of_node = |host: &Host| of_a.homes.iter().find(|(node, _)| node == host.node.name());
        let count = of_node(&b).map(|(_, shards)| shards.len() as u64);
        assert_eq!((Some(of_a.moves), Some(of_b.moves)), (count, count.map(|b| 32 - b)));
        a.jobs.stop();
        until(|| own(&a).is_empty()).await;
    });
}

/// Goal: what another node may send by the protocol of shards harms nothing.
#[test]
fn terms_that_no_router_sends_are_dropped() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b] = [host(&world, "a@127.0.0.1").await, host(&world, "b@127.0.0.1").await];
        join(&b, &[&a]).await;
        let router = a.jobs.member().pid();
        let own = Term::from(b.jobs.member().pid());
        let third = Term::from(router.clone());
        let number = |value: i64| Term::Integer(value);
        let (key, flag) = (|| Term::from(vec![97, 7]), || Term::from(false));
        let words = [
            vec![Term::atom("message")],
            vec![Term::atom("ask"), own.clone(), flag(), number(32)],
            vec![Term::atom("ask"), own.clone(), flag(), number(-1)],
            vec![Term::atom("ask"), third.clone(), flag(), number(1)],
            vec![Term::atom("given"), own.clone(), flag(), number(1), third.clone(), flag()],
            vec![Term::atom("done"), own.clone(), flag(), number(-7)],
            vec![Term::atom("state"), own.clone(), flag(), number(1), number(5), key(), number(7)],
            vec![Term::atom("state"), own.clone(), flag(), number(1), number(0), flag(), number(7)],
        ];
        let count = words.len() as u64;
        for parts in words {
            b.node.send(Remote::from(&router), Term::tuple(parts)).expect("it is connected");
        }
        let message = |number: i64, hops: i64, content: Term| {
            let word = Term::atom("message");
            let numbers = [Term::Integer(number), Term::Integer(0), Term::Integer(hops)];
            let head = [word, own.clone(), flag(), Term::Integer(1), own.clone()].into_iter();
            Term::tuple(head.chain(numbers).chain([key(), content]))
        };
        let note = || Term::tuple([Term::atom("note"), number(9), number(1)]);
        for term in [message(1, 5, note()), message(1, 0, Term::atom("nothing"))] {
            b.node.send(Remote::from(&router), term).expect("it is connected");
        }
        until(|| a.node.peers()[0].undelivered == count + 2).await;
        for key in 0..40 {
            assert_eq!(self::count(&b, key).await.expect("it replies"), 0);
        }
    });
}

/// Goal: a node that restarts starts its shards once it is connected, and its first messages find
/// the processes of the other node, although the two routers do not know each other yet.
#[test]
fn the_first_message_of_a_node_waits_for_the_other_nodes() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        for key in 0..100 {
            a.jobs.send(&key, Job::Note(0, 1)).expect("it is its home");
        }
        until(|| world.received() == 100).await;
        let node = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&node, &a.node).await;
        let b = Host { jobs: world.start(&node, |builder| builder), node };
        for key in 0..100 {
            b.jobs.send(&key, Job::Note(1, 1)).expect("it waits, or is sent");
        }
        for key in 0..100 {
            assert_eq!(count(&b, key).await.expect("it replies"), 2, "of key {key}");
        }
        assert_eq!((world.most(), sum(&[&a, &b]).states_dropped), (1, 0));
    });
}

/// Goal: a node without such shards holds up no message, nor does a node with another number.
#[test]
fn shards_do_not_wait_for_nodes_without_them() {
    run(async {
        let world = Arc::<World>::default();
        let [a, b, c] = ["a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1"];
        let [a, b, c] = [a, b, c].map(|name| async { listens(name).start().await });
        let [a, b, c] = [a.await, b.await, c.await].map(|node| node.expect("it starts"));
        for other in [&b, &c] {
            connect(&a, other).await;
        }
        let _other = world.start(&b, |builder| builder.shards(7));
        let jobs = world.start(&a, |builder| builder.move_limit(100, 100 * PATIENCE));
        let a = Host { node: a, jobs };
        for key in 0..100 {
            assert_eq!(count(&a, key).await.expect("it replies"), 0, "of key {key}");
        }
        drop(c);
    });
}

/// Goal: the end of shards is not told before their last states have come. Method: the states are
/// large, so that other lanes of the connection pass them. `ends` ends the shards of a program.
fn hand_large_states_over<P>(
    ends: impl FnOnce(Arc<Scheduler>, Shards<u32, ()>) -> P + Send + 'static,
) where
    P: Future<Output = ()> + Send + 'static,
{
    const LENGTH: usize = 1 << 20;
    let theirs = Scheduler::builder().worker_threads(1).build().expect("it can be built");
    let theirs = Arc::new(theirs);
    run(async {
        // The keys that have begun, and the lengths of the states that they had.
        let begun = Arc::new(Mutex::new(Vec::new()));
        let start = |node: &Node| {
            let begun = Arc::clone(&begun);
            let work = move |mut cx: KeyContext<u32, (), String>| {
                let state = cx.take_state().unwrap_or_default();
                begun.lock().push((*cx.key(), state.len()));
                async move {
                    while cx.recv().await.is_some() {}
                    Some("x".repeat(LENGTH))
                }
            };
            Shards::builder("large").shards(32).start(node, work).expect("the name is free")
        };
        let a = listens("a@127.0.0.1").start().await.expect("it starts");
        let b = theirs.spawn(async { listens("b@127.0.0.1").start().await.expect("it starts") });
        let b = b.await.expect("it ends");
        connect(&a, &b).await;
        let (of_a, of_b): (Shards<u32, ()>, Shards<u32, ()>) = (start(&a), start(&b));
        let homes = || (of_a.status().shards, of_b.status().shards);
        until(|| homes().0 + homes().1 == 32 && homes().0 < 32).await;
        for key in 0..40 {
            of_a.send(&key, ()).expect("it is connected");
        }
        until(|| of_a.status().keys + of_b.status().keys == 40 && begun.lock().len() == 40).await;
        let moved = of_b.status().keys as usize;
        let ending = spawn(ends(Arc::clone(&theirs), of_b.clone()));
        until(|| homes().0 == 32).await;
        for key in 0..40 {
            of_a.send(&key, ()).expect("it is its home");
        }
        until(|| begun.lock().len() == 40 + moved).await;
        let begun = begun.lock().split_off(40);
        assert!(begun.iter().all(|(_, length)| *length == LENGTH), "{begun:?}");
        assert_eq!((of_a.status().states_dropped, of_b.status().states_dropped), (0, 0));
        ending.await.expect("it ends");
    });
}

#[test]
fn shards_that_stop_hand_large_states_over() {
    hand_large_states_over(async |_, shards| shards.stop());
}

#[test]
fn a_shutdown_hands_large_states_over() {
    hand_large_states_over(async |scheduler, _| {
        let unfinished = scheduler.shutdown(PATIENCE).await;
        assert!(unfinished.is_empty(), "{unfinished}");
    });
}

/// Goal: a message that comes back while the caller gives up is not lost without a word.
#[test]
fn a_refused_message_of_a_dropped_call_is_returned() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        a.jobs.send(&7, Job::Hold).expect("it is its home");
        until(|| *world.holds.lock() == 1).await;
        a.jobs.send(&7, Job::Fail).expect("it is its home");
        {
            let mut called = pin!(count(&a, 7));
            let is_pending = poll_fn(|task| Poll::Ready(called.as_mut().poll(task).is_pending()));
            assert!(is_pending.await);
            a.jobs.send(&7, Job::Note(1, 1)).expect("it is its home");
            world.goes_on.notify_one();
            // The message of the call comes back before it.
            until(|| world.returned.lock().len() == 1).await;
        }
        assert_eq!(*world.returned.lock(), [(7, Refusal::Failed); 2]);
        quiet(&[&a]).await;
    });
}

/// A process without shards that speaks as a router does.
struct Speaker {
    member: Member,
    process: Child<(), ()>,
    heard: Arc<Mutex<Vec<Term>>>,
}

impl Speaker {
    fn start(node: &Node) -> Self {
        let process =
            procession::start(
                |mut cx: Context<()>| async move { while cx.recv().await.is_some() {} },
            );
        let heard = Arc::<Mutex<Vec<Term>>>::default();
        let own = Arc::clone(&heard);
        let member = node.attach(&process.address().map(move |letter| {
            if let Letter::Message { term, .. } = letter {
                own.lock().push(term);
            }
        }));
        Self { member, process, heard }
    }

    /// Says something to a router, in the lane of the node, which outlives the process.
    fn say(&self, to: &NodePid, word: &str, parts: impl IntoIterator<Item = Term>) {
        let head = [Term::atom(word), self.member.pid().into(), Term::from(false)];
        let term = Term::tuple(head.into_iter().chain(parts));
        self.member.node().send(Remote::from(to), term).expect("it is connected");
    }

    /// Sends a message to key 7 in each of the 32 shards.
    fn send_to_all(&self, to: &NodePid, content: &Term) {
        for shard in 0..32 {
            let numbers = [1, 0, 0].map(Term::Integer);
            let head = [Term::Integer(shard), self.member.pid().into()].into_iter();
            let key = Term::from(vec![97, 7]);
            self.say(to, "message", head.chain(numbers).chain([key, content.clone()]));
        }
    }

    /// Returns how many of its messages were received or passed on, as it was told.
    fn done(&self) -> i64 {
        let done = |term: &Term| match term.as_tuple() {
            Some([word, .., Term::Integer(count)]) if word.is_atom("done") => *count,
            _ => 0,
        };
        self.heard.lock().iter().map(done).sum()
    }
}

/// Goal: a late word of a router that has ended does not make it a member again, so that no shard
/// moves to it.
#[test]
fn a_router_that_has_ended_does_not_return() {
    run(async {
        let world = Arc::<World>::default();
        let a = host(&world, "a@127.0.0.1").await;
        let node = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&node, &a.node).await;
        let (speaker, to) = (Speaker::start(&node), a.jobs.member().pid());
        speaker.say(&to, "done", [Term::Integer(0)]);
        until(|| a.jobs.status().shards < 32).await;
        speaker.process.cancel();
        until(|| a.jobs.status().shards == 32).await;
        let note = Term::tuple([Term::atom("note"), Term::Integer(9), Term::Integer(1)]);
        speaker.send_to_all(&to, &note);
        until(|| world.received() == 32).await;
        assert_eq!((a.jobs.status().forwarded, a.jobs.status().shards), (0, 32));
    });
}

/// Goal: a home waits for no router that is gone, although another node has not learned of that,
/// and names the router.
#[test]
fn a_home_does_not_wait_for_a_router_that_is_gone() {
    run(async {
        let world = Arc::<World>::default();
        let node = listens("a@127.0.0.1").start().await.expect("it starts");
        let jobs = world.start(&node, |builder| builder.move_limit(100, 100 * PATIENCE));
        let a = Host { node, jobs };
        let to = a.jobs.member().pid();
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let c = listens("c@127.0.0.1").start().await.expect("it starts");
        connect(&b, &a.node).await;
        connect(&c, &a.node).await;
        let [stays, goes] = [&b, &c].map(Speaker::start);
        goes.say(&to, "done", [Term::Integer(0)]);
        until(|| a.jobs.status().shards < 32).await;
        c.stop().await;
        until(|| a.jobs.status().shards == 32).await;
        for shard in 0..32 {
            let third = goes.member.pid().into();
            stays.say(&to, "given", [Term::Integer(shard), third, Term::list([])]);
        }
        until(|| a.jobs.status().shards < 32).await;
        for key in 0..40 {
            a.jobs.send(&key, Job::Note(1, 1)).expect("it is connected");
        }
        until(|| world.received() > 0).await;
    });
}

/// Goal: a router that takes the place of another one of its node, which has not ended as far as is
/// known, is told what became of its messages.
#[test]
fn a_router_that_follows_another_is_paid() {
    run(async {
        let world = Arc::<World>::default();
        let node = listens("a@127.0.0.1").start().await.expect("it starts");
        let jobs = world.start(&node, |builder| builder.move_limit(100, Duration::ZERO));
        let a = Host { node, jobs };
        let node = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&node, &a.node).await;
        let [former, next] = [Speaker::start(&node), Speaker::start(&node)];
        let to = a.jobs.member().pid();
        former.say(&to, "done", [Term::Integer(0)]);
        let note = Term::tuple([Term::atom("note"), Term::Integer(9), Term::Integer(1)]);
        next.send_to_all(&to, &note);
        until(|| next.done() == 32).await;
        // A late word of the former one changes nothing.
        former.say(&to, "done", [Term::Integer(0)]);
        next.send_to_all(&to, &note);
        until(|| next.done() == 64).await;
    });
}

/// A message that can be sent once: it cannot be written after it was read.
struct Fragile(bool);

impl Serialize for Fragile {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(!self.0, "as the test wants it");
        serializer.serialize_u8(1)
    }
}

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).map(|_| Self(true))
    }
}

/// Goal: a message with code that panics while it is forwarded is dead, and its sender learns that
/// it is not outstanding.
#[test]
fn a_message_that_panics_when_it_is_forwarded_is_paid() {
    run(async {
        let a = listens("a@127.0.0.1").start().await.expect("it starts");
        let builder = Shards::builder("fragile").shards(32).move_limit(100, Duration::ZERO);
        let work = async |mut cx: KeyContext<u32, Fragile, ()>| {
            while cx.recv().await.is_some() {}
            None
        };
        let jobs: Shards<u32, Fragile> = builder.start(&a, work).expect("the name is free");
        let node = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&node, &a).await;
        let speaker = Speaker::start(&node);
        speaker.send_to_all(&jobs.member().pid(), &Term::Integer(1));
        until(|| speaker.done() == 32).await;
        assert_eq!((jobs.status().dead, jobs.status().forwarded), (32, 0));
    });
}
