//! A spent budget changes neither the result of an operation nor the order in which callers are
//! served.
//!
//! Method: one worker. A process spends a part of its budget, starts another process, and then
//! polls an operation for the first time; the other process polls the same one afterwards. Each
//! says what it got. Whatever the first process has spent, both say the same.
//!
//! An operation that answers `Pending` because of the budget has done nothing that its drop does
//! not undo. Method: one step performs the operation more often than its budget allows, polls it
//! once each time, and compares its answer with what has happened.

use std::fmt::Debug;
use std::future::{Future, poll_fn, ready};
use std::net::Shutdown;
use std::os::unix::net::{SocketAddr, UnixListener as StdUnixListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use futures_lite::AsyncWriteExt;
use procession::fs::{self, File};
use procession::io::copy_bidirectional;
use procession::mailbox::{WhenFull, call_all};
use procession::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use procession::os_process::Command;
use procession::pool::{OnFull, Pool, Queue};
use procession::process::{JoinSet, cancelled, until_cancelled};
use procession::sync::channel::{self, Receiver, Sender};
use procession::sync::{
    Barrier, CancellationToken, Condvar, Mutex, Notify, OnceCell, RwLock, Select, Semaphore,
    WaitGroup, broadcast, oneshot, watch,
};
use procession::time::Instant;
use procession::{Address, Context, Reply, SpawnOptions, sleep, spawn, start, timeout, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::{driven, panic_quietly};

/// A step may spend this much, by default.
const BUDGET: usize = 128;

const SHORT: Duration = Duration::from_millis(1);

/// Spends a part of the budget of the running step.
fn spend(operations: usize) {
    let none = Semaphore::new(0);
    (0..operations).for_each(|_| assert!(none.try_acquire(1).is_err()));
}

/// Asserts that `scene` has the same outcome whatever was spent before.
#[track_caller]
fn check<F, R>(name: &str, scene: impl Fn(usize) -> F)
where
    F: Future<Output = R> + Send + 'static,
    R: Debug + PartialEq + Send + 'static,
{
    let run = |spent| driven().block_on(scene(spent));
    let expected = run(0);
    for spent in BUDGET - 20..BUDGET + 4 {
        assert_eq!(run(spent), expected, "{name}: after {spent} operations");
    }
}

/// Lets `A` do something after it has spent a part of its budget, and then `B`; once both have
/// begun, does `later`. Returns what `A` and `B` got.
async fn both<F, R>(
    spent: usize,
    act: impl Fn(char) -> F + Send + 'static,
    later: impl Future,
) -> (R, R)
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let first = spawn(async move {
        spend(spent);
        let second = spawn(act('B'));
        (act('A').await, second)
    });
    sleep(SHORT).await;
    later.await;
    let (a, second) = first.await.expect("it does not panic");
    (a, second.await.expect("it does not panic"))
}

/// Counts those that were served.
#[derive(Clone, Default)]
struct Turns(Arc<AtomicUsize>);

impl Turns {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Relaxed)
    }
}

#[test]
fn locks_serve_in_the_order_of_the_calls() {
    for is_held in [false, true] {
        check("mutex", move |spent| async move {
            let (lock, turns) = (Arc::new(Mutex::new(())), Turns::default());
            let held = if is_held { Some(lock.clone().lock_owned().await) } else { None };
            let act = move |_| {
                let (lock, turns) = (lock.clone(), turns.clone());
                async move {
                    let _guard = lock.lock().await;
                    turns.next()
                }
            };
            both(spent, act, async { drop(held) }).await
        });
        check("write", move |spent| async move {
            let (lock, turns) = (Arc::new(RwLock::new(())), Turns::default());
            let held = if is_held { Some(lock.clone().read_owned().await) } else { None };
            let act = move |_| {
                let (lock, turns) = (lock.clone(), turns.clone());
                async move {
                    let _guard = lock.write().await;
                    turns.next()
                }
            };
            both(spent, act, async { drop(held) }).await
        });
        check("read before write", move |spent| async move {
            let (lock, turns) = (Arc::new(RwLock::new(())), Turns::default());
            let held = if is_held { Some(lock.clone().write_owned().await) } else { None };
            let act = move |who| {
                let (lock, turns) = (lock.clone(), turns.clone());
                async move {
                    if who == 'A' {
                        let _guard = lock.read().await;
                        turns.next()
                    } else {
                        let _guard = lock.write().await;
                        turns.next()
                    }
                }
            };
            both(spent, act, async { drop(held) }).await
        });
        check("semaphore", move |spent| async move {
            let (permits, turns) = (Arc::new(Semaphore::new(2)), Turns::default());
            let held = if is_held { permits.clone().acquire_owned(1).await.ok() } else { None };
            let act = move |who| {
                let (permits, turns) = (permits.clone(), turns.clone());
                async move {
                    let _got = permits.acquire(if who == 'A' { 2 } else { 1 }).await;
                    turns.next()
                }
            };
            both(spent, act, async { drop(held) }).await
        });
        check("mutex in a select", move |spent| async move {
            let (lock, turns) = (Arc::new(Mutex::new(())), Turns::default());
            let held = if is_held { Some(lock.clone().lock_owned().await) } else { None };
            let act = move |_| {
                let (lock, turns) = (lock.clone(), turns.clone());
                async move {
                    let locks = async {
                        let _guard = lock.lock().await;
                        turns.next()
                    };
                    Select::new().wait_for(locks, |turn| turn).await
                }
            };
            both(spent, act, async { drop(held) }).await
        });
    }
    check("once cell", |spent| async move {
        let cell = Arc::new(OnceCell::new());
        let act = move |who| {
            let cell = cell.clone();
            async move { *cell.get_or_init(ready(who)).await }
        };
        both(spent, act, ready(())).await
    });
    check("closed semaphore", |spent| async move {
        let permits = Arc::new(Semaphore::new(0));
        permits.close();
        let act = move |_| {
            let permits = permits.clone();
            async move { permits.acquire(1).await.is_err() }
        };
        both(spent, act, ready(())).await
    });
}

#[test]
fn conditions_serve_in_the_order_of_the_calls() {
    for is_ready in [false, true] {
        check("notify", move |spent| async move {
            let (notify, turns) = (Arc::new(Notify::new()), Turns::default());
            if is_ready {
                notify.notify_one();
            }
            let act = {
                let notify = notify.clone();
                move |_| {
                    let (notify, turns) = (notify.clone(), turns.clone());
                    async move {
                        notify.notified().await;
                        turns.next()
                    }
                }
            };
            let later = async {
                for _ in 0..2 {
                    notify.notify_one();
                    sleep(SHORT).await;
                }
            };
            both(spent, act, later).await
        });
    }
    check("condition", |spent| async move {
        let shared = Arc::new((Mutex::new(()), Condvar::new(), Turns::default()));
        let act = {
            let shared = shared.clone();
            move |_| {
                let shared = shared.clone();
                async move {
                    let guard = shared.0.lock().await;
                    let _guard = shared.1.wait(guard).await;
                    shared.2.next()
                }
            }
        };
        let later = async {
            for _ in 0..2 {
                shared.1.notify_one();
                sleep(SHORT).await;
            }
        };
        both(spent, act, later).await
    });
    check("barrier", |spent| async move {
        let barrier = Arc::new(Barrier::new(2));
        let act = move |_| {
            let barrier = barrier.clone();
            async move { barrier.wait().await }
        };
        both(spent, act, ready(())).await
    });
    check("wait group", |spent| async move {
        let group = WaitGroup::new();
        let act = {
            let group = group.clone();
            move |who| {
                let group = group.clone();
                async move {
                    // The job begins after the first caller has seen none.
                    let _job = (who == 'B').then(|| group.job());
                    timeout(2 * SHORT, group.wait()).await.is_ok()
                }
            }
        };
        both(spent, act, ready(())).await
    });
}

type Ends = (Sender<u32>, Receiver<u32>);

/// Two callers at the ends of a channel. `later` gets the ends.
fn of_channel<F, R, L>(
    name: &str,
    capacity: usize,
    messages: u32,
    act: impl Fn(char, Ends) -> F + Clone + Send + Sync + 'static,
    later: impl Fn(Ends) -> L + Clone + Send + Sync + 'static,
) where
    F: Future<Output = R> + Send + 'static,
    R: Debug + PartialEq + Send + 'static,
    L: Future<Output = Vec<u32>> + Send + 'static,
{
    check(name, |spent| {
        let (act, later) = (act.clone(), later.clone());
        async move {
            let ends = channel::bounded(capacity);
            (0..messages).for_each(|n| ends.0.try_send(n).expect("there is room"));
            let act = {
                let ends = ends.clone();
                move |who| act(who, ends.clone())
            };
            let mut order = Vec::new();
            let got = both(spent, act, async { order = later(ends).await }).await;
            (got, order)
        }
    });
}

/// Sends two messages.
async fn send_two((sender, _): Ends) -> Vec<u32> {
    for n in 10..12 {
        sender.send(n).await.expect("it is open");
        sleep(SHORT).await;
    }
    Vec::new()
}

/// Receives all messages that come.
async fn receive_all((_, receiver): Ends) -> Vec<u32> {
    let mut all = Vec::new();
    while let Ok(message) = receiver.recv_timeout(SHORT).await {
        all.extend(message);
    }
    all
}

async fn nothing(_: Ends) -> Vec<u32> {
    Vec::new()
}

async fn close((sender, _): Ends) -> Vec<u32> {
    sender.close();
    Vec::new()
}

#[test]
fn channels_serve_in_the_order_of_the_calls() {
    async fn recv(_: char, (_, receiver): Ends) -> Option<u32> {
        receiver.recv().await
    }
    async fn recv_in_select(_: char, (_, receiver): Ends) -> Option<u32> {
        Select::new().recv(&receiver, |message| message).await
    }
    async fn recv_or_else(_: char, (_, receiver): Ends) -> Option<u32> {
        Select::new().recv(&receiver, |message| message).or_else(|| Some(99)).await
    }
    // Of several messages, only the first is received in turn: the others are those that are left
    // in the step that returns them.
    async fn many(_: char, (_, receiver): Ends) -> Option<u32> {
        let mut messages = Vec::new();
        receiver.recv_many(&mut messages, 1).await;
        messages.first().copied()
    }
    async fn send(who: char, (sender, _): Ends) -> bool {
        sender.send(u32::from(who)).await.is_ok()
    }
    async fn send_in_select(who: char, (sender, _): Ends) -> bool {
        Select::new().send(&sender, u32::from(who), |sent| sent.is_ok()).await
    }
    async fn reserve(who: char, (sender, _): Ends) -> bool {
        let permit = sender.reserve().await;
        permit.map(|permit| permit.send(u32::from(who))).is_ok()
    }
    for messages in [0, 1, 2] {
        of_channel("recv", 4, messages, recv, send_two);
        of_channel("select, recv", 4, messages, recv_in_select, send_two);
        of_channel("recv_many", 4, messages, many, send_two);
        of_channel("recv at the end", 4, messages, recv, close);
        of_channel("select, recv at the end", 4, messages, recv_in_select, close);
        of_channel("select, recv, or_else", 4, messages, recv_or_else, nothing);
        of_channel("send", 2, messages, send, receive_all);
        of_channel("select, send", 2, messages, send_in_select, receive_all);
        of_channel("send at the end", 2, messages, send, close);
        of_channel("select, send at the end", 2, messages, send_in_select, close);
        of_channel("reserve", 3, messages, reserve, move |ends| async move {
            let mut all = receive_all(ends).await;
            if messages < 2 {
                // Both have room, and each sends when it likes.
                all.sort_unstable();
            }
            all
        });
        of_channel("reserve at the end", 3, messages, reserve, close);
    }
    of_channel("reserve, full", 1, 1, reserve, receive_all);
    of_channel("rendezvous, recv", 0, 0, recv, send_two);
    of_channel("rendezvous, send", 0, 0, send, receive_all);
    of_channel("rendezvous, select, send", 0, 0, send_in_select, receive_all);
}

#[test]
fn mailboxes_and_pools_serve_in_the_order_of_the_calls() {
    for room in [1, 4] {
        check("send_wait", move |spent| async move {
            let options = SpawnOptions::new().mailbox(room, WhenFull::Wait);
            let child = options.start(|mut cx: Context<char>| async move {
                sleep(3 * SHORT).await;
                let mut all = Vec::new();
                while let Ok(message) = timeout(SHORT, cx.recv()).await {
                    all.extend(message);
                }
                all
            });
            child.send('0').expect("there is room");
            let address = child.address().clone();
            let act = move |who| {
                let address = address.clone();
                async move { address.send_wait(who).await.is_ok() }
            };
            let got = both(spent, act, ready(())).await;
            (got, child.await.expect("it does not panic"))
        });
        check("pool, submit", move |spent| async move {
            let pool = Pool::builder()
                .capacity(1)
                .queue(Queue::Bounded(room as usize))
                .build_async()
                .expect("it starts nothing yet");
            let (order, turns) = (channel::unbounded(), Turns::default());
            let gate = Arc::new(Semaphore::new(0));
            let waits = gate.clone();
            let holds = pool.submit(async move { drop(waits.acquire(1).await) }).await;
            let act = move |who| {
                let (pool, sender, turns) = (pool.clone(), order.0.clone(), turns.clone());
                async move {
                    let job = pool.submit(async move { sender.send(who).await.is_ok() }).await;
                    let _ = job.expect("the pool is open").await;
                    turns.next()
                }
            };
            let got = both(spent, act, async { gate.add_permits(1) }).await;
            drop(holds);
            let mut all = Vec::new();
            while let Ok(who) = order.1.try_recv() {
                all.push(who);
            }
            (got, all)
        });
    }
}

/// A single process does something after it has spent a part of its budget.
fn alone<F, R>(name: &str, act: impl Fn() -> F + Clone + Send + 'static)
where
    F: Future<Output = R> + Send + 'static,
    R: Debug + PartialEq + Send + 'static,
{
    check(name, |spent| {
        let act = act.clone();
        async move {
            let process = spawn(async move {
                let prepared = act();
                spend(spent);
                prepared.await
            });
            process.await.expect("it does not panic")
        }
    });
}

/// Returns what a future returns if it is ready, by a select that does not wait.
async fn now<F>(future: F) -> Option<F::Output>
where
    F: Future<Output: Send> + Send,
{
    Select::new().wait_for(future, Some).or_else(|| None).await
}

#[test]
fn what_is_ready_is_ready_for_a_select_that_does_not_wait() {
    alone("lock", || {
        let lock = Mutex::new(1);
        async move { now(async { *lock.lock().await }).await }
    });
    alone("permits", || {
        let permits = Semaphore::new(3);
        async move { now(async { permits.acquire(3).await.is_ok() }).await }
    });
    alone("two locks", || {
        let (a, b) = (Mutex::new(1), RwLock::new(2));
        async move { now(async { (*a.lock().await, *b.read().await) }).await }
    });
    alone("notify", || {
        let notify = Notify::new();
        notify.notify_one();
        async move { now(notify.notified()).await }
    });
    alone("channel", || {
        let (sender, receiver) = channel::bounded(2);
        async move {
            let sent = now(sender.send(7)).await;
            let kept = now(async { sender.reserve().await.is_ok() }).await;
            (sent, kept, now(receiver.recv()).await, now(receiver.recv()).await)
        }
    });
    alone("oneshot", || {
        let (sender, receiver) = oneshot::channel();
        sender.send(7).expect("it is open");
        now(receiver)
    });
    alone("watch", || {
        let (sender, mut receiver) = watch::channel(1);
        sender.send(2).expect("there is a receiver");
        async move { now(receiver.changed()).await }
    });
    alone("watch, closed", || {
        let (sender, receiver) = watch::channel(1);
        drop(receiver);
        async move { now(sender.closed()).await }
    });
    alone("broadcast", || {
        let (sender, mut receiver) = broadcast::channel(4);
        sender.send(2).expect("there is a receiver");
        async move { (now(receiver.recv()).await, now(receiver.recv()).await) }
    });
    alone("broadcast, closed", || {
        let (sender, receiver) = broadcast::channel::<u32>(4);
        drop(receiver);
        async move { now(sender.closed()).await }
    });
    alone("handle", || async {
        let ended = spawn(async { 1 });
        yield_now().await;
        now(ended).await
    });
    alone("set", || async {
        let mut set = JoinSet::new();
        set.insert(spawn(async { 1 }));
        yield_now().await;
        now(set.join_next()).await
    });
    alone("token", || {
        let token = CancellationToken::new();
        token.cancel();
        async move { now(token.cancelled()).await }
    });
    alone("sleep", || async {
        let slept = sleep(Duration::ZERO);
        yield_now().await;
        now(slept).await
    });
    alone("select", || {
        let (sender, receiver) = channel::bounded(1);
        sender.try_send(7).expect("there is room");
        async move { now(Select::new().recv(&receiver, |message| message)).await }
    });
    alone("group", || {
        let group = WaitGroup::new();
        async move { now(group.wait()).await }
    });
    alone("a job", || async {
        let pool = Pool::builder().capacity(1).build_async().expect("it starts nothing yet");
        let job = now(pool.submit(async { 1 })).await.map(|job| job.expect("the pool is open"));
        match job {
            Some(job) => Some(job.await.expect("it does not panic")),
            None => None,
        }
    });
    check("mailbox", |spent| async move {
        let child = start(move |mut cx: Context<u32>| async move {
            spend(spent);
            (now(cx.recv()).await, now(cx.recv_event()).await.is_some(), now(cx.recv()).await)
        });
        // It begins when this process waits.
        (0..2).for_each(|n| child.send(n).expect("it is alive"));
        child.await.expect("it does not panic")
    });
}

#[test]
fn what_is_ready_is_in_time() {
    alone("lock", || {
        let lock = Mutex::new(1);
        async move { timeout(Duration::ZERO, lock.lock()).await.map(|guard| *guard) }
    });
    alone("channel", || {
        let (sender, receiver) = channel::bounded(1);
        async move {
            let sent = sender.send_timeout(7, Duration::ZERO).await;
            (sent, receiver.recv_timeout(Duration::ZERO).await)
        }
    });
    alone("select", || {
        let (sender, receiver) = channel::bounded(1);
        sender.try_send(7).expect("there is room");
        async move {
            let receives = Select::new().recv(&receiver, |message| message);
            receives.timeout(SHORT, || None).await
        }
    });
}

/// Spends the budget of each step before it polls the future.
async fn greedily<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|task| {
        spend(BUDGET + 1);
        future.as_mut().poll(task)
    })
    .await
}

#[test]
fn what_is_ready_is_in_time_although_each_step_spends_its_budget() {
    driven().block_on(async {
        let child = start(|mut cx: Context<u32>| async move {
            let lock = Mutex::new(1);
            let locked = greedily(timeout(Duration::ZERO, lock.lock())).await.map(|guard| *guard);
            let permits = Semaphore::new(1);
            let permit = greedily(permits.acquire_timeout(1, Duration::ZERO)).await;
            let (sender, receiver) = channel::bounded(1);
            let sent = greedily(sender.send_timeout(2, Duration::ZERO)).await;
            let received = greedily(receiver.recv_timeout(Duration::ZERO)).await;
            let ended = spawn(async { 3 });
            while !ended.is_finished() {
                yield_now().await;
            }
            cx.address().send(4).expect("it is alive");
            let joined = greedily(timeout(Duration::ZERO, ended)).await;
            let message = greedily(cx.recv_timeout(Duration::ZERO)).await;
            (locked, permit.map(|got| got.count()), sent, received, joined, message)
        });
        let got = child.await.expect("it does not panic");
        assert_eq!(got, (Ok(1), Ok(1), Ok(()), Ok(Some(2)), Ok(Ok(3)), Ok(Some(4))));
    });
}

/// Data that is there is no silence, although each step of the copy spends its budget elsewhere.
#[test]
fn what_can_be_copied_is_in_time_although_each_step_spends_its_budget() {
    let copied = driven().block_on(async {
        let pair = || UnixStream::pair().expect("there are descriptors");
        let ((client, mut ours), (mut theirs, server)) = (pair(), pair());
        client.write_all(b"one").await.expect("it is connected");
        for end in [&client, &server] {
            end.shutdown(Shutdown::Write).expect("it is connected");
        }
        let process = spawn(async move {
            let copies = copy_bidirectional(&mut ours, &mut theirs).idle_timeout(Duration::ZERO);
            greedily(copies).await.map_err(|error| error.kind())
        });
        process.await
    });
    assert_eq!(copied, Ok(Ok((3, 0))));
}

#[test]
fn a_timer_that_has_fired_is_not_refused() {
    const ROUNDS_MAX: usize = 100;
    let is_seen = driven().block_on(async {
        let process = spawn(async {
            let begun = Instant::now();
            let mut timer = pin!(sleep(SHORT));
            let mut rounds = 0;
            poll_fn(|task| {
                if begun.elapsed() >= SHORT {
                    spend(BUDGET + 1);
                    rounds += 1;
                }
                match timer.as_mut().poll(task) {
                    Poll::Pending if rounds > ROUNDS_MAX => Poll::Ready(false),
                    polled => polled.map(|()| true),
                }
            })
            .await
        });
        process.await
    });
    assert_eq!(is_seen, Ok(true));
}

/// A future that tells whether it was polled.
fn noting(polled: &AtomicUsize) -> impl Future<Output = ()> + Send {
    poll_fn(|_| {
        polled.fetch_add(1, Relaxed);
        Poll::Ready(())
    })
}

#[test]
fn what_is_cancelled_is_not_polled() {
    alone("token", || {
        let token = CancellationToken::new();
        token.cancel();
        async move {
            let polled = AtomicUsize::new(0);
            let ended = token.run_until_cancelled(noting(&polled)).await;
            (ended, polled.into_inner())
        }
    });
    check("process", |spent| async move {
        let child = start(move |_: Context<()>| async move {
            cancelled().await;
            spend(spent);
            let polled = AtomicUsize::new(0);
            let ended = until_cancelled(noting(&polled)).await;
            (ended, polled.into_inner())
        });
        child.cancel();
        child.await.expect("it does not panic")
    });
}

/// Polls a future once, and drops it. Returns `true` if it was ready.
async fn once(future: impl Future) -> bool {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_ready())).await
}

/// What an operation has taken in a step that is over is given back if the operation is dropped.
#[test]
fn what_is_kept_over_the_end_of_a_step_is_given_back() {
    alone("locks", || {
        let (lock, permits) = (Mutex::new(()), Semaphore::new(2));
        async move {
            once(lock.lock()).await;
            once(permits.acquire(2)).await;
            (lock.try_lock().is_ok(), permits.available_permits())
        }
    });
    alone("notification", || {
        let notify = Notify::new();
        notify.notify_one();
        async move {
            let is_first = once(notify.notified()).await;
            yield_now().await;
            is_first || once(notify.notified()).await
        }
    });
    alone("message", || {
        let (sender, receiver) = channel::bounded(2);
        (0..2).for_each(|n| sender.try_send(n).expect("there is room"));
        async move {
            let took = [
                once(receiver.recv()).await,
                once(Select::new().recv(&receiver, |message| message)).await,
            ];
            let taken = took.iter().filter(|&&took| took).count() as i32;
            let left: Vec<i32> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
            left == (taken..2).collect::<Vec<_>>()
        }
    });
    alone("room", || {
        let (sender, _receiver) = channel::bounded(1);
        async move {
            once(sender.reserve()).await;
            sender.try_send(1).is_ok()
        }
    });
    alone("a message that was sent", || {
        let (sender, receiver) = channel::bounded(1);
        async move {
            let mut sending = sender.send(1);
            once(&mut sending).await;
            (sending.take_back(), receiver.try_recv())
        }
    });
}

/// Performs an operation in one step, which overdraws its budget. `act` polls it once, and returns
/// whether it was ready and whether it has acted.
async fn rounds<F: Future<Output = (bool, bool)>>(act: impl Fn() -> F) -> Vec<(bool, bool)> {
    let mut outcomes = Vec::new();
    for _ in 0..2 * BUDGET {
        outcomes.push(act().await);
    }
    outcomes
}

/// Runs rounds in a process.
#[track_caller]
fn agree(name: &str, scene: impl Future<Output = Vec<(bool, bool)>> + Send + 'static) {
    let outcomes = driven().block_on(async { spawn(scene).await }).expect("it does not panic");
    let differs = outcomes.iter().position(|(is_ready, has_acted)| is_ready != has_acted);
    assert_eq!(differs.map(|round| (round, outcomes[round])), None, "{name}");
    assert!(outcomes.iter().any(|(is_ready, _)| *is_ready), "{name}: it never acts");
    assert!(outcomes.iter().any(|(is_ready, _)| !is_ready), "{name}: it is never refused");
}

#[test]
fn what_is_dropped_while_it_is_pending_has_not_acted() {
    agree("send", async {
        let (sender, receiver) = channel::unbounded();
        rounds(|| async { (once(sender.send(1)).await, receiver.try_recv().is_ok()) }).await
    });
    agree("select, send", async {
        let (sender, receiver) = channel::unbounded();
        let select = || Select::new().send(&sender, 1, drop);
        rounds(|| async { (once(select()).await, receiver.try_recv().is_ok()) }).await
    });
    agree("select, recv", async {
        let (sender, receiver) = channel::unbounded();
        let select = || Select::new().recv(&receiver, drop);
        rounds(|| async {
            sender.try_send(1).expect("it is open");
            (once(select()).await, receiver.try_recv().is_err())
        })
        .await
    });
    agree("select, or_else", async {
        let ran = AtomicUsize::new(0);
        let select = || Select::new().or_else(|| ran.store(1, Relaxed));
        rounds(|| async { (once(select()).await, ran.swap(0, Relaxed) == 1) }).await
    });
    agree("barrier", async {
        let barrier = Barrier::new(2);
        rounds(|| async {
            let mut first = pin!(barrier.wait());
            assert!(!once(first.as_mut()).await, "it has arrived alone");
            (once(barrier.wait()).await, once(first.as_mut()).await)
        })
        .await
    });
    agree("send_wait", async {
        let options = SpawnOptions::new().mailbox(3 * BUDGET as u32, WhenFull::Wait);
        let receives = options.start(|mut cx: Context<usize>| async move {
            let mut all = Vec::new();
            while let Some(n) = cx.recv().await {
                all.push(n);
            }
            all
        });
        let mut were_ready = Vec::new();
        for n in 0..2 * BUDGET {
            were_ready.push(once(receives.send_wait(n)).await);
        }
        receives.cancel();
        let received = receives.await.expect("it does not panic");
        were_ready.into_iter().enumerate().map(|(n, is)| (is, received.contains(&n))).collect()
    });
    for on_full in [OnFull::Wait, OnFull::Refuse] {
        agree("a job", async move {
            let pool = Pool::builder()
                .capacity(1)
                .queue(Queue::Bounded(3 * BUDGET))
                .on_full(on_full)
                .build_async()
                .expect("it starts nothing yet");
            let (sender, receiver) = channel::unbounded();
            let mut were_ready = Vec::new();
            for n in 0..2 * BUDGET {
                let sender = sender.clone();
                let job = async move { sender.try_send(n).expect("it is open") };
                were_ready.push(once(pool.execute(job)).await);
            }
            drop(sender);
            let mut ran = Vec::new();
            sleep(SHORT).await;
            while let Ok(n) = receiver.try_recv() {
                ran.push(n);
            }
            were_ready.into_iter().enumerate().map(|(n, is)| (is, ran.contains(&n))).collect()
        });
    }
}

/// A receiver that is dropped before it has the budget for its message leaves it to another one.
#[test]
fn a_channel_does_not_end_while_the_budget_withholds_a_message() {
    let outcome = driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        let other = receiver.clone();
        let first = spawn(async move {
            let mut recv = pin!(receiver.recv());
            assert!(!once(recv.as_mut()).await, "nothing was sent");
            sleep(4 * SHORT).await;
            spend(BUDGET - 1);
            assert!(!once(recv.as_mut()).await, "its step has spent the budget");
            sleep(SHORT).await;
        });
        sleep(SHORT).await;
        let second = spawn(async move { other.recv().await });
        sleep(SHORT).await;
        sender.try_send(7).expect("the first one waits");
        sender.close();
        first.await.expect("it does not panic");
        second.await
    });
    assert_eq!(outcome, Ok(Some(7)));
}

#[test]
fn a_panic_in_a_poll_with_a_fresh_budget_leaves_no_budget_behind() {
    let outcome = driven().block_on(async {
        let child = start(|mut cx: Context<usize>| async move {
            sleep(SHORT).await;
            spend(BUDGET - 2);
            let panics = poll_fn(|_| -> Poll<()> { panic_quietly("in a poll") });
            let mut select = pin!(Select::new().wait_for(panics, drop).or_else(|| ()));
            let unwound = poll_fn(|task| {
                let poll = || select.as_mut().poll(task).is_ready();
                Poll::Ready(catch_unwind(AssertUnwindSafe(poll)).is_err())
            });
            assert!(unwound.await);
            let mut seen = 0;
            let count = |_: &usize| {
                seen += 1;
                false
            };
            assert!(!once(cx.recv_matching(count)).await, "nothing is wanted");
            seen
        });
        (0..3 * BUDGET).for_each(|n| child.send(n).expect("it is alive"));
        child.await
    });
    assert!(outcome.expect("it does not panic") < BUDGET);
}

/// Counts the wake-ups of a task.
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Each refusal wakes the task. So the number of wake-ups in a step bounds the number of calls that
/// the step has polled although the budget was spent.
#[test]
fn a_call_to_many_does_not_go_on_after_the_budget_is_spent() {
    const CALLS: usize = 10_000;
    let outcome = driven().block_on(async {
        let server = start(|mut cx: Context<Reply<u32>>| async move {
            while let Some(reply) = cx.recv().await {
                reply.send(7);
            }
        });
        let addresses = vec![server.address().clone(); CALLS];
        let process = spawn(async move {
            let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
            let waker = Waker::from(wakes.clone());
            let mut calls = pin!(call_all(&addresses, |reply| reply, Duration::MAX));
            let mut most = 0;
            loop {
                let before = wakes.0.load(Relaxed);
                let polled = calls.as_mut().poll(&mut TaskContext::from_waker(&waker));
                most = most.max(wakes.0.load(Relaxed) - before);
                if let Poll::Ready(answers) = polled {
                    break (
                        most,
                        answers.into_iter().filter(|answer| matches!(answer, Ok(7))).count(),
                    );
                }
                yield_now().await;
            }
        });
        process.await
    });
    let (most, answered) = outcome.expect("it does not panic");
    assert_eq!(answered, CALLS);
    assert!(most < 8, "{most} wake-ups in one step");
}

#[test]
fn a_select_over_the_mailbox_loses_no_message() {
    let received = driven().block_on(async {
        let child = start(|mut cx: Context<usize>| async move {
            let mut all = Vec::new();
            for _ in 0..2 * BUDGET {
                let select = Select::new().wait_for(cx.recv(), |message| all.extend(message));
                once(select).await;
            }
            while let Some(message) = now(cx.recv()).await {
                all.extend(message);
            }
            all
        });
        (0..2 * BUDGET).for_each(|n| child.send(n).expect("it is alive"));
        child.await
    });
    assert_eq!(received, Ok((0..2 * BUDGET).collect()));
}

#[test]
fn what_acts_is_in_time_although_each_step_spends_its_budget_elsewhere() {
    let outcomes = driven().block_on(async {
        let ended = start(|_: Context<Reply<u32>>| async {});
        let callee = ended.address().clone();
        ended.await.expect("it does not panic");
        let process = spawn(async move {
            let call = greedily(callee.call(|reply| reply, Duration::ZERO)).await;
            let (sender, receiver) = channel::bounded(1);
            let sent = greedily(sender.send_timeout(1, Duration::ZERO)).await;
            let pool = Pool::builder().capacity(1).build_async().expect("it starts nothing yet");
            let job = greedily(pool.job(async { 2 }).timeout(Duration::ZERO).submit()).await;
            let job = match job {
                Ok(job) => job.await.ok(),
                Err(_) => None,
            };
            (call.is_err_and(|error| error.is_refused()), sent, receiver.try_recv(), job)
        });
        process.await
    });
    assert_eq!(outcomes, Ok((true, Ok(()), Ok(1), Some(2))));
}

/// Acts once more than the budget of the running step allows.
async fn overdraw() {
    let alone = Barrier::new(1);
    while once(alone.wait()).await {}
}

/// In a step that has overdrawn its budget, an operation that has to wait takes its place.
#[test]
fn what_has_to_wait_is_not_overtaken_after_its_step_has_overdrawn_the_budget() {
    /// Lets `A` overdraw the budget and wait, and then `B`. Returns the order of the messages.
    async fn order<F: Future<Output = bool> + Send + 'static>(
        act: impl Fn(char, Sender<u32>) -> F + Clone + Send + 'static,
    ) -> Vec<u32> {
        let (sender, receiver) = channel::bounded(1);
        sender.try_send(0).expect("there is room");
        let ends = (sender.clone(), receiver);
        let overdrawn = move |who| {
            let (act, sender) = (act.clone(), sender.clone());
            async move {
                if who == 'A' {
                    overdraw().await;
                }
                act(who, sender).await
            }
        };
        let mut order = Vec::new();
        let sent = both(0, overdrawn, async { order = receive_all(ends).await }).await;
        assert_eq!(sent, (true, true));
        order
    }
    let sent = driven()
        .block_on(order(|who, sender| async move { sender.send(u32::from(who)).await.is_ok() }));
    let selected = driven().block_on(order(|who, sender| async move {
        Select::new().send(&sender, u32::from(who), |sent| sent.is_ok()).await
    }));
    let received = driven().block_on(async {
        let child = SpawnOptions::new().mailbox(1, WhenFull::Wait).start(
            |mut cx: Context<u32>| async move {
                sleep(2 * SHORT).await;
                [cx.recv().await, cx.recv().await, cx.recv().await].map(Option::unwrap_or_default)
            },
        );
        child.send(0).expect("there is room");
        let address = child.address().clone();
        let act = move |who| {
            let address = address.clone();
            async move {
                if who == 'A' {
                    overdraw().await;
                }
                address.send_wait(u32::from(who)).await.is_ok()
            }
        };
        assert_eq!(both(0, act, ready(())).await, (true, true));
        child.await.expect("it does not panic")
    });
    let expected = [0, u32::from('A'), u32::from('B')];
    assert_eq!((&*sent, &*selected, received), (&expected[..], &expected[..], expected));
}

/// Asserts that a process lets others run although it performs `act` again and again, with what
/// `make` has made.
#[track_caller]
fn lets_others_run<S: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
    name: &str,
    make: impl AsyncFnOnce() -> S,
    act: impl Fn(Arc<S>) -> F + Send + 'static,
) {
    let has_run = driven().block_on(async move {
        let subject = Arc::new(make().await);
        let flag = Arc::new(AtomicUsize::new(0));
        let process = spawn({
            let flag = flag.clone();
            async move {
                let other = flag.clone();
                drop(spawn(async move { other.store(1, Relaxed) }));
                for _ in 0..10 * BUDGET {
                    act(subject.clone()).await;
                }
                flag.load(Relaxed)
            }
        });
        process.await
    });
    assert_eq!(has_run, Ok(1), "{name}");
}

/// A step ends, however much is ready.
#[test]
fn what_is_always_ready_lets_others_run() {
    fn check<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        act: impl Fn() -> F + Send + 'static,
    ) {
        lets_others_run(name, || ready(()), move |_| act());
    }
    let lock = Arc::new(Mutex::new(()));
    check("lock", move || {
        let lock = lock.clone();
        async move { drop(lock.lock().await) }
    });
    let (sender, receiver) = channel::unbounded();
    check("send", {
        let sender = sender.clone();
        move || {
            let sender = sender.clone();
            async move { sender.send(1).await.expect("it is open") }
        }
    });
    check("receive", {
        let receiver = receiver.clone();
        move || {
            let receiver = receiver.clone();
            async move { assert!(receiver.recv().await.is_some()) }
        }
    });
    check("select", move || {
        let sender = sender.clone();
        async move { Select::new().send(&sender, 1, drop).await }
    });
    check("select, or_else", move || async { Select::new().or_else(|| ()).await });
    check("select, ready", move || async { Select::new().wait_for(ready(()), |()| ()).await });
    let token = CancellationToken::new();
    token.cancel();
    check("token", move || {
        let token = token.clone();
        async move { assert!(token.run_until_cancelled(ready(())).await.is_none()) }
    });
    let lock = Arc::new(Mutex::new(()));
    check("lock, in time", move || {
        let lock = lock.clone();
        async move { drop(timeout(Duration::ZERO, lock.lock()).await.expect("it is free")) }
    });
    let (sender, _open) = channel::unbounded();
    check("send, in time", move || {
        let sender = sender.clone();
        async move { sender.send_timeout(1, Duration::ZERO).await.expect("it is open") }
    });
    check("closed channel", || async {
        let (sender, receiver) = channel::unbounded();
        drop(receiver);
        assert!(sender.send(1).await.is_err());
    });
    check("barrier", || async { assert!(Barrier::new(1).wait().await) });
    let full = Arc::new(OnceLock::new());
    check("refused message", move || {
        let full = full.clone();
        async move {
            let address: &Address<u32> = full.get_or_init(|| {
                let waits = SpawnOptions::new().mailbox(1, WhenFull::Reject);
                let address = waits.start(|cx| async move { cx.cancelled().await }).detach();
                address.send(1).expect("there is room");
                address
            });
            assert!(address.send_wait(2).await.is_err());
        }
    });
    check("closed pool", || async {
        let pool = Pool::builder().capacity(1).build_async().expect("it starts nothing yet");
        pool.close();
        assert!(pool.execute(async {}).await.is_err());
    });
    check("no time", move || async {
        assert!(timeout(Duration::ZERO, Notify::new().notified()).await.is_err())
    });
    check("no time, and a future that spends nothing", move || async {
        assert!(timeout(Duration::ZERO, std::future::pending::<()>()).await.is_err())
    });
}

const ANY: &str = "127.0.0.1:0";

/// Returns an address for which the system chooses an abstract name.
fn unnamed() -> SocketAddr {
    SocketAddr::from_pathname("").expect("it is valid")
}

#[test]
fn a_socket_that_is_always_ready_lets_others_run() {
    let listener = async || StdUnixListener::bind_addr(&unnamed()).expect("there are names");
    lets_others_run("Unix stream, connected", listener, |listener| async move {
        let address = listener.local_addr().expect("it is bound");
        let _stream = UnixStream::connect_addr(&address).await.expect("it listens");
        listener.accept().expect("one has connected");
    });
    let socket = async || UnixDatagram::bind_addr(&unnamed()).expect("there are names");
    lets_others_run("Unix datagrams", socket, |socket| async move {
        let address = socket.local_addr().expect("it is bound");
        socket.send_to_addr(b"one", &address).await.expect("there is room");
        assert_eq!(socket.try_recv_from(&mut [0; 8]).expect("it has arrived").0, 3);
    });
    let pair = async || UnixStream::pair().expect("there are descriptors");
    lets_others_run("Unix stream, written and read", pair, |pair| async move {
        pair.0.write_all(b"one").await.expect("it is connected");
        pair.1.read_exact(&mut [0; 3]).await.expect("it is connected");
    });
    let listener = async || TcpListener::bind(ANY).await.expect("there are ports");
    lets_others_run("connected and accepted", listener, |listener| async move {
        let address = listener.local_addr().expect("it is bound");
        let _stream = TcpStream::connect(address).await.expect("it listens");
        listener.accept().await.expect("one has connected");
    });
    let socket = async || UdpSocket::bind(ANY).await.expect("there are ports");
    lets_others_run("UDP socket, connected", socket, |socket| async move {
        socket.connect(socket.local_addr().expect("it is bound")).await.expect("it is local");
    });
    lets_others_run("UDP socket, sent and received", socket, |socket| async move {
        let address = socket.local_addr().expect("it is bound");
        socket.send_to(b"one", address).await.expect("it is local");
        assert_eq!(socket.try_recv(&mut [0; 8]).expect("it has arrived"), 3);
    });
    let nothing = async || ();
    lets_others_run("UDP socket, bound", nothing, |_| async {
        drop(UdpSocket::bind(ANY).await.expect("there are ports"));
    });
    lets_others_run("listener, bound", nothing, |_| async {
        drop(TcpListener::bind(ANY).await.expect("there are ports"));
    });
}

/// Like [`lets_others_run`], with a value that `act` has for itself.
#[track_caller]
fn lets_others_run_beside<S: Send + 'static>(
    name: &str,
    make: impl AsyncFnOnce() -> S,
    act: for<'a> fn(&'a mut S) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
) {
    let make = async || procession_sync::Mutex::new(Some(make().await));
    lets_others_run(name, make, move |subject| async move {
        let mut own = subject.lock().take().expect("one process has it");
        act(&mut own).await;
        *subject.lock() = Some(own);
    });
}

#[test]
fn what_has_nothing_to_do_lets_others_run() {
    let file = async || {
        let options = File::options().read(true).write(true).open("/dev/null");
        options.await.expect("each system has it")
    };
    lets_others_run_beside("a flush without data", file, |file| {
        Box::pin(async move { file.flush().await.expect("there is nothing to write") })
    });
    lets_others_run_beside("an empty write", file, |file| {
        Box::pin(async move { assert_eq!(file.write(&[]).await.expect("it is open"), 0) })
    });
    lets_others_run_beside("an empty read", file, |file| {
        Box::pin(async move { assert_eq!(file.read(&mut []).await.expect("it is open"), 0) })
    });
    let stdin = async || procession::io::stdin();
    lets_others_run_beside("an empty read of the input", stdin, |stdin| {
        Box::pin(async move { assert_eq!(stdin.read(&mut []).await.expect("it is open"), 0) })
    });
    let directory = async || {
        let mut entries = fs::read_dir(".").await.expect("it is there");
        while entries.next_entry().await.expect("it can be read").is_some() {}
        entries
    };
    lets_others_run_beside("the end of a directory", directory, |entries| {
        Box::pin(async move { assert!(entries.next_entry().await.expect("it was read").is_none()) })
    });
    let child = async || {
        let mut child = Command::new("true").spawn().expect("each system has it");
        child.wait().await.expect("it can be asked");
        child
    };
    lets_others_run_beside("a child that has ended", child, |child| {
        Box::pin(async move { assert!(child.wait().await.expect("it was asked").success()) })
    });
    let stream = async || UnixStream::pair().expect("there are descriptors").0;
    lets_others_run_beside("a stream that is closed again", stream, |stream| {
        Box::pin(async move { stream.close().await.expect("it was connected") })
    });
}
