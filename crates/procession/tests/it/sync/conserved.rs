//! Nothing is lost and nothing is doubled, whatever is cancelled, and whenever.
//!
//! Each test runs a number of operations. Many of them are cancelled after a random number of
//! polls. `CONSERVED_OPERATIONS` sets the number, and `CONSERVED_SEED` the choices.

use std::collections::BTreeMap;
use std::env;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession::process::{self, GroupEvent, Groups, JoinSet, Registry, RegistryEvent};
use procession::sync::{
    Mutex, Notify, RecvError, RwLock, Semaphore, broadcast, channel, oneshot, watch,
};
use procession::{Exit, JoinHandle, Pid, Scheduler, spawn, yield_now};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::SeqCst;

use crate::scene::{driven, threaded};

const PROCESSES: u64 = 4;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the number of operations of each process.
fn operations() -> u64 {
    number("CONSERVED_OPERATIONS", 8_000) / PROCESSES
}

fn generator(process: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(number("CONSERVED_SEED", 7) * 1000 + process)
}

/// Awaits `future` for a random number of polls, with a pause in between. Returns `None` if it is
/// cancelled.
async fn perhaps<F: Future>(chance: &mut fastrand::Rng, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..chance.u32(1..4) {
        let polled = poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

/// Runs a scene on the test clock, and on two threads.
fn on_both(scene: impl Fn(&Scheduler)) {
    scene(&driven());
    scene(&threaded(2));
}

fn join_all<T: Send + 'static>(scheduler: &Scheduler, processes: Vec<JoinHandle<T>>) -> Vec<T> {
    scheduler.block_on(async {
        let mut outputs = Vec::new();
        for process in processes {
            outputs.push(process.await.expect("it does not panic"));
        }
        outputs
    })
}

/// Each message is received once, or comes back to its sender, with reservations, takes of many
/// messages and waits that are cancelled.
#[test]
fn messages_of_a_channel_are_conserved() {
    for capacity in [0, 1, 3, usize::MAX] {
        on_both(|scheduler| {
            let (sender, receiver) = channel::bounded::<u64>(capacity);
            let senders = (0..PROCESSES).map(|process| {
                let sender = sender.clone();
                scheduler.spawn(async move {
                    let (mut chance, mut sent) = (generator(process), Vec::new());
                    for operation in 0..operations() {
                        let message = process << 32 | operation;
                        if chance.bool() && capacity > 0 {
                            if let Some(permit) = perhaps(&mut chance, sender.reserve()).await {
                                permit.expect("it is open").send(message);
                                sent.push(message);
                            }
                            continue;
                        }
                        let mut sending = sender.send(message);
                        // Ignored: `take_back` tells what has become of the message.
                        let _ = perhaps(&mut chance, &mut sending).await;
                        if sending.take_back().is_none() {
                            sent.push(message);
                        }
                    }
                    sent
                })
            });
            let senders: Vec<_> = senders.collect();
            let receivers = (0..PROCESSES).map(|process| {
                let receiver = receiver.clone();
                scheduler.spawn(async move {
                    let (mut chance, mut received) = (generator(100 + process), Vec::new());
                    loop {
                        let many = chance.bool();
                        let limit = if many { chance.usize(1..5) } else { 1 };
                        let count = received.len();
                        let came = if many {
                            perhaps(&mut chance, receiver.recv_many(&mut received, limit)).await
                        } else {
                            let came = perhaps(&mut chance, receiver.recv()).await;
                            came.map(|message| {
                                received.extend(message);
                                received.len() - count
                            })
                        };
                        match came {
                            Some(0) => return received,
                            Some(came) => assert!(came <= limit && received.len() == count + came),
                            None => assert_eq!(received.len(), count),
                        }
                    }
                })
            });
            let receivers: Vec<_> = receivers.collect();
            drop((sender, receiver));
            let mut sent = join_all(scheduler, senders).concat();
            let mut received = join_all(scheduler, receivers).concat();
            sent.sort_unstable();
            received.sort_unstable();
            assert!(sent == received, "{} sent, {} received", sent.len(), received.len());
        });
    }
}

#[test]
fn permits_and_locks_are_conserved() {
    on_both(|scheduler| {
        let semaphore = Arc::new(Semaphore::new(3));
        let (mutex, lock) = (Arc::new(Mutex::new(0_u64)), Arc::new(RwLock::new(0_u64)));
        let processes = (0..PROCESSES).map(|process| {
            let (semaphore, mutex, lock) = (semaphore.clone(), mutex.clone(), lock.clone());
            scheduler.spawn(async move {
                let (mut chance, mut added) = (generator(process), [0, 0]);
                for _ in 0..operations() {
                    match chance.u32(0..5) {
                        0 => {
                            let owned = semaphore.clone().acquire_owned(chance.usize(1..4));
                            if let Some(Ok(mut permits)) = perhaps(&mut chance, owned).await {
                                let part = permits.split(1);
                                yield_now().await;
                                drop((permits, part));
                            }
                        }
                        1 => drop(perhaps(&mut chance, semaphore.acquire(1)).await),
                        2 => {
                            let owned = mutex.clone().lock_owned();
                            if let Some(mut value) = perhaps(&mut chance, owned).await {
                                let before = *value;
                                yield_now().await;
                                *value = before + 1;
                                added[0] += 1;
                            }
                        }
                        3 => {
                            let owned = lock.clone().write_owned();
                            if let Some(mut value) = perhaps(&mut chance, owned).await {
                                *value += 1;
                                added[1] += 1;
                                let now = *value;
                                let reads = value.downgrade();
                                yield_now().await;
                                assert_eq!(*reads, now, "no writer comes in between");
                            }
                        }
                        _ => drop(perhaps(&mut chance, lock.read()).await),
                    }
                }
                added
            })
        });
        let added = join_all(scheduler, processes.collect());
        let sum = |kind: usize| added.iter().map(|added| added[kind]).sum::<u64>();
        assert_eq!(semaphore.available_permits(), 3);
        assert_eq!(*mutex.try_lock().expect("it is free"), sum(0));
        assert_eq!(*lock.try_write().expect("it is free"), sum(1));
    });
}

/// One notification goes round. A process that gets it notifies the next. It is never lost, so all
/// processes come to their end.
#[test]
fn a_notification_is_conserved() {
    on_both(|scheduler| {
        let notify = Arc::new(Notify::new());
        let (held, rounds) = (Arc::new(AtomicU64::new(0)), operations());
        let processes = (0..PROCESSES).map(|process| {
            let (notify, held) = (notify.clone(), held.clone());
            scheduler.spawn(async move {
                let (mut chance, mut got) = (generator(process), 0);
                while got < rounds {
                    let notified = perhaps(&mut chance, notify.notified()).await;
                    if notified.is_some() {
                        assert_eq!(held.fetch_add(1, SeqCst), 0, "there is one notification");
                        got += 1;
                        held.fetch_sub(1, SeqCst);
                        if chance.bool() { notify.notify_one() } else { notify.notify_last() }
                    }
                }
            })
        });
        let processes = processes.collect();
        notify.notify_one();
        join_all(scheduler, processes);
        scheduler.block_on(notify.notified());
    });
}

/// A value that counts its drops.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn values_of_oneshots_are_conserved() {
    on_both(|scheduler| {
        let dropped = Arc::new(AtomicU64::new(0));
        let processes = (0..PROCESSES).map(|process| {
            let dropped = dropped.clone();
            scheduler.spawn(async move {
                let (mut chance, mut ends) = (generator(process), [0_u64; 3]);
                for _ in 0..operations() {
                    let (sender, mut receiver) = oneshot::channel();
                    let value = Counted(dropped.clone());
                    let pauses = chance.u32(0..3);
                    let sends = procession::spawn(async move {
                        for _ in 0..pauses {
                            yield_now().await;
                        }
                        sender.send(value).is_ok()
                    });
                    let received = perhaps(&mut chance, &mut receiver).await;
                    if chance.bool() {
                        receiver.close();
                    }
                    let is_received = match received {
                        Some(received) => received.is_ok(),
                        None => receiver.try_recv().is_ok(),
                    };
                    drop(receiver);
                    let is_sent = sends.await.expect("it does not panic");
                    assert!(is_sent || !is_received, "what is received was sent");
                    ends[usize::from(is_sent) + usize::from(is_received)] += 1;
                }
                ends.iter().sum::<u64>()
            })
        });
        let made: u64 = join_all(scheduler, processes.collect()).iter().sum();
        assert_eq!((made, dropped.load(SeqCst)), (operations() * PROCESSES, made));
    });
}

/// Each receiver of a broadcast receives each message in order, or is told that it has missed it.
#[test]
fn broadcasts_are_conserved() {
    on_both(|scheduler| {
        let (sender, receiver) = broadcast::channel(8);
        let receivers = (0..PROCESSES).map(|process| {
            let mut receiver = receiver.resubscribe();
            scheduler.spawn(async move {
                let (mut chance, mut next) = (generator(process), 0);
                loop {
                    match perhaps(&mut chance, receiver.recv()).await {
                        Some(Ok(message)) => {
                            assert_eq!(message, next, "in order, without a gap");
                            next += 1;
                        }
                        Some(Err(RecvError::Lagged(missed))) => next += missed,
                        Some(Err(_)) => return next,
                        None => {}
                    }
                }
            })
        });
        let receivers = receivers.collect();
        drop(receiver);
        let messages = operations();
        let sends = scheduler.spawn(async move {
            let mut chance = generator(99);
            for message in 0..messages {
                sender.send(message).expect("there are receivers");
                // Sometimes slower than the receivers, and sometimes faster.
                for _ in 0..chance.u32(0..3) {
                    yield_now().await;
                }
            }
        });
        assert_eq!(join_all(scheduler, receivers), [messages; PROCESSES as usize]);
        join_all(scheduler, vec![sends]);
    });
}

/// The last value of a watch is seen by all, and none is seen after a later one.
#[test]
fn the_last_value_of_a_watch_is_seen() {
    on_both(|scheduler| {
        let (sender, receiver) = watch::channel(0);
        let watchers = (0..PROCESSES).map(|process| {
            let mut receiver = receiver.clone();
            scheduler.spawn(async move {
                let (mut chance, mut last) = (generator(process), 0);
                loop {
                    match perhaps(&mut chance, receiver.changed()).await {
                        Some(Ok(())) => {
                            let value = *receiver.borrow();
                            assert!(value >= last, "values do not go back");
                            last = value;
                        }
                        Some(Err(_)) => return last,
                        None => {}
                    }
                }
            })
        });
        let watchers = watchers.collect();
        let changes = operations();
        let sends = scheduler.spawn(async move {
            let mut chance = generator(99);
            for value in 1..=changes {
                sender.send(value).expect("there are receivers");
                if chance.bool() {
                    yield_now().await;
                }
            }
        });
        assert_eq!(join_all(scheduler, watchers), [changes; PROCESSES as usize]);
        join_all(scheduler, vec![sends]);
    });
}

/// Starts a process that ends after a few steps, and cancels some.
fn short(chance: &mut fastrand::Rng) -> JoinHandle<()> {
    let pauses = chance.u32(0..4);
    let process = spawn(async move {
        for _ in 0..pauses {
            yield_now().await;
        }
    });
    if chance.u32(0..8) == 0 {
        process.cancel();
    }
    process
}

/// The joins or entries that were tried.
struct Tries {
    made: u64,
    refused: u64,
}

impl Tries {
    fn of(tries: &[[u64; 2]]) -> Self {
        let sum = |kind: usize| tries.iter().map(|tries| tries[kind]).sum();
        Self { made: sum(0), refused: sum(1) }
    }

    /// All that were made are heard. One that is refused because its process ends at this moment
    /// may be heard, too, and is then removed.
    fn assert_heard(&self, heard: u64) {
        let Self { made, refused } = *self;
        assert!((made..=made + refused).contains(&heard), "{made} made, {heard} heard");
    }
}

/// Each process of a set gives one result, and what it owns is dropped once.
#[test]
fn results_of_a_join_set_are_conserved() {
    on_both(|scheduler| {
        let dropped = Arc::new(AtomicU64::new(0));
        let processes = (0..PROCESSES).map(|process| {
            let dropped = dropped.clone();
            scheduler.spawn(async move {
                let (mut chance, mut set) = (generator(process), JoinSet::new());
                let mut running = BTreeMap::new();
                for operation in 0..operations() {
                    let (pauses, value) = (chance.u32(0..4), Counted(dropped.clone()));
                    let pid = set.insert(spawn(async move {
                        for _ in 0..pauses {
                            yield_now().await;
                        }
                        drop(value);
                        operation
                    }));
                    let is_cancelled = chance.u32(0..8) == 0 && process::cancel(pid);
                    assert_eq!(running.insert(pid, (operation, is_cancelled)), None);
                    while let Some(Some((pid, result))) =
                        perhaps(&mut chance, set.join_next_with_pid()).await
                    {
                        let (output, is_cancelled) =
                            running.remove(&pid).expect("it is there once");
                        let is_own = result == Ok(output);
                        assert!(is_own || is_cancelled && result == Err(Exit::Shutdown));
                    }
                    assert_eq!(set.len(), running.len());
                    if chance.u32(0..64) == 0 {
                        set.shutdown().await;
                        assert!(set.is_empty());
                        running.clear();
                    }
                }
                while let Some((pid, _)) = set.join_next_with_pid().await {
                    running.remove(&pid).expect("it is there once");
                }
                assert!(running.is_empty(), "each process has a result");
            })
        });
        join_all(scheduler, processes.collect());
        assert_eq!(dropped.load(SeqCst), operations() * PROCESSES);
    });
}

/// A monitor receives each join once, and afterwards the leave, although waits are cancelled and
/// members end at any time.
#[test]
fn memberships_are_conserved() {
    on_both(|scheduler| {
        let groups = Groups::new();
        let mut monitor = groups.monitor_all().1;
        let watches = scheduler.spawn(async move {
            let (mut chance, mut members, mut joins) = (generator(99), BTreeMap::new(), 0_u64);
            let mut is_last = false;
            while !is_last || members.values().any(|&times| times != 0_u64) {
                match perhaps(&mut chance, monitor.recv()).await {
                    Some(GroupEvent::Join { group, .. }) if &*group == "last" => is_last = true,
                    Some(GroupEvent::Join { group, pid }) => {
                        joins += 1;
                        *members.entry((pid, group)).or_insert(0) += 1;
                    }
                    Some(GroupEvent::Leave { group, pid }) if &*group != "last" => {
                        let times = members.get_mut(&(pid, group)).expect("it has joined");
                        *times = times.checked_sub(1).expect("it has joined");
                    }
                    _ => {}
                }
                members.retain(|_, times| *times > 0);
            }
            assert_eq!(monitor.try_recv().into_iter().count(), 0);
            joins
        });
        let processes = (0..PROCESSES).map(|process| {
            let groups = groups.clone();
            scheduler.spawn(async move {
                let (mut chance, mut joins) = (generator(process), [0, 0]);
                for _ in 0..operations() {
                    let member = short(&mut chance);
                    for _ in 0..chance.u32(1..4) {
                        let group = ["a", "b", "c"][chance.usize(0..3)];
                        joins[usize::from(groups.join(group, member.pid()).is_err())] += 1;
                        if chance.bool() {
                            groups.leave(group, member.pid());
                        }
                    }
                    // Ignored: the member may be running, or it was cancelled.
                    let _ = perhaps(&mut chance, member).await;
                }
                joins
            })
        });
        let joins = Tries::of(&join_all(scheduler, processes.collect()));
        let last = scheduler.spawn(std::future::pending::<()>());
        groups.join("last", last.pid()).expect("it is alive");
        joins.assert_heard(join_all(scheduler, vec![watches])[0]);
        assert_eq!(groups.groups().len(), 1);
        last.cancel();
    });
}

/// A unique key has one owner at a time, each entry is removed once, and each value is dropped
/// once.
#[test]
fn entries_of_a_registry_are_conserved() {
    on_both(|scheduler| {
        let (registry, dropped) = (Registry::unique(), Arc::new(AtomicU64::new(0)));
        let mut listener = registry.listen();
        let watches = scheduler.spawn(async move {
            let (mut chance, mut entries) = (generator(99), 0_u64);
            let mut owners = BTreeMap::<Arc<str>, Pid>::new();
            let mut is_last = false;
            while !is_last || !owners.is_empty() {
                match perhaps(&mut chance, listener.recv()).await {
                    Some(RegistryEvent::Register { key, .. }) if &*key == "last" => is_last = true,
                    Some(RegistryEvent::Register { key, pid, .. }) => {
                        entries += 1;
                        assert_eq!(owners.insert(key, pid), None, "a key has one owner");
                    }
                    Some(RegistryEvent::Unregister { key, pid, .. }) => {
                        assert_eq!(owners.remove(&key), Some(pid), "an entry is removed once");
                    }
                    _ => {}
                }
            }
            entries
        });
        let processes = (0..PROCESSES).map(|process| {
            let (registry, dropped) = (registry.clone(), dropped.clone());
            scheduler.spawn(async move {
                let (mut chance, mut entries) = (generator(process), [0, 0]);
                for _ in 0..operations() {
                    let owner = short(&mut chance);
                    let key = ["a", "b", "c"][chance.usize(0..3)];
                    let value = Counted(dropped.clone());
                    let refused = registry.register(key, owner.pid(), value).err();
                    entries[usize::from(refused.is_some())] += 1;
                    drop(refused);
                    if chance.bool() {
                        registry.unregister(key, owner.pid());
                    }
                    // Ignored: the owner may be running, or it was cancelled.
                    let _ = perhaps(&mut chance, owner).await;
                }
                entries
            })
        });
        let entries = Tries::of(&join_all(scheduler, processes.collect()));
        let last = scheduler.spawn(std::future::pending::<()>());
        let value = Counted(dropped.clone());
        assert!(registry.register("last", last.pid(), value).is_ok(), "it is alive");
        entries.assert_heard(join_all(scheduler, vec![watches])[0]);
        assert_eq!((registry.len(), dropped.load(SeqCst)), (1, operations() * PROCESSES));
        last.cancel();
    });
}
