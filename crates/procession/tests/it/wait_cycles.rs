//! Cycles of waits are reported, each once, and nothing else is.
//!
//! Method: programs with a planted cycle, or with waits that only look like one, on the test clock,
//! which reports as soon as nothing can run. `procession-sim` has random programs.

use std::future::{Future, pending, poll_fn};
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession::mailbox::{CallCause, WhenFull};
use procession::observe::{WaitCycle, WaitReason};
use procession::pool::Pool;
use procession::process::MonitorRef;
use procession::scheduler::Builder;
use procession::sync::{Mutex, RwLock, Semaphore, oneshot};
use procession::{
    Address, CallError, Context, Exit, Pid, Reply, Scheduler, SpawnOptions, coroutine, sleep,
    spawn, timeout, yield_now,
};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::SeqCst;

use crate::home::mpsc;

const LONG: Duration = Duration::from_secs(3600);

fn builder() -> Builder {
    Scheduler::builder().worker_threads(1).test_clock()
}

/// A scheduler, and the cycles that it reports.
struct Scene {
    scheduler: Scheduler,
    reports: mpsc::Receiver<WaitCycle>,
}

impl Scene {
    fn new() -> Self {
        Self::with(builder())
    }

    fn with(builder: Builder) -> Self {
        let (sender, reports) = mpsc::channel();
        let builder = builder.on_wait_cycle(move |cycle| drop(sender.send(cycle.clone())));
        Self { scheduler: builder.build().expect("it is valid"), reports }
    }

    fn spawn(&self, label: &str, body: impl Future<Output = ()> + Send + 'static) -> Pid {
        let handle = SpawnOptions::new().on(&self.scheduler).label(label).spawn(body);
        let pid = handle.pid();
        handle.detach();
        pid
    }

    /// Runs until nothing can run, and returns the reports.
    fn reports(&self) -> Vec<WaitCycle> {
        self.scheduler.run_until_idle();
        self.reports.try_iter().collect()
    }

    /// Runs, and checks that there is one report, of these waits. Each waits for the next one.
    #[track_caller]
    fn check(&self, waits: &[(Pid, WaitReason)]) -> WaitCycle {
        let mut reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        let cycle = reports.remove(0);
        let mut known = waits.to_vec();
        let first = known.iter().position(|wait| wait.0 == cycle.waits[0].pid);
        known.rotate_left(first.expect("the first process is one of them"));
        let found: Vec<_> = cycle.waits.iter().map(|wait| (wait.pid, wait.reason)).collect();
        assert_eq!(found, known);
        let targets: Vec<_> = cycle.waits.iter().map(|wait| wait.target).collect();
        known.rotate_left(1);
        assert_eq!(targets, known.iter().map(|wait| wait.0).collect::<Vec<_>>());
        assert!(self.reports().is_empty(), "it is reported once");
        assert_eq!(self.scheduler.snapshot().wait_cycles, 1);
        assert_eq!(self.scheduler.wait_cycles().len(), 1);
        cycle
    }
}

/// The line in which `cross` waits.
const WAITS: u32 = line!() + 6;

/// Locks `first`, lets the others run, and then waits for `second`.
async fn cross(first: Arc<Mutex<()>>, second: Arc<Mutex<()>>) {
    let _first = first.lock().await;
    yield_now().await;
    let _second = second.lock().await;
}

fn locks<const N: usize>() -> [Arc<Mutex<()>>; N] {
    std::array::from_fn(|_| Arc::default())
}

#[test]
fn crossed_locks_are_reported_with_labels_and_lines() {
    let scene = Scene::new();
    let [one, two] = locks();
    let a = scene.spawn("a", cross(Arc::clone(&one), Arc::clone(&two)));
    let b = scene.spawn("b", cross(two, one));
    let cycle = scene.check(&[(a, WaitReason::Lock), (b, WaitReason::Lock)]);
    for wait in &cycle.waits {
        assert_eq!(wait.location.map(Location::line), Some(WAITS));
        assert_eq!(wait.spawned_at.file(), file!());
    }
    let text = cycle.to_string();
    assert!(text.contains(&format!("{a} (a) waits for a lock of {b} at ")), "{text}");
    assert!(text.contains(&format!("{b} (b) waits for a lock of {a} at ")), "{text}");
}

/// The pool wakes only the wait for its job, so it may have the process's own waker.
#[test]
fn a_wait_for_a_job_hides_no_later_wait() {
    async fn job_and_cross(first: Arc<Mutex<()>>, second: Arc<Mutex<()>>) {
        let pool = Pool::builder().capacity(1).build_async().expect("it starts nothing yet");
        let job = pool.submit(yield_now()).await.expect("it is open");
        job.await.expect("it does not panic");
        cross(first, second).await;
    }
    let scene = Scene::new();
    let [one, two] = locks();
    let a = scene.spawn("a", job_and_cross(Arc::clone(&one), Arc::clone(&two)));
    let b = scene.spawn("b", job_and_cross(two, one));
    scene.check(&[(a, WaitReason::Lock), (b, WaitReason::Lock)]);
}

#[test]
fn a_chain_of_three_kinds_is_reported() {
    let scene = Scene::new();
    let [lock] = locks();
    let (sender, address) = oneshot::channel::<Address<u8>>();
    let sends = scene.scheduler.spawn(async move {
        let address = address.await.expect("it is sent");
        drop(address.send_wait(1).await);
    });
    let sends_pid = sends.pid();
    let held = Arc::clone(&lock);
    let joins = scene.spawn("joins", async move {
        let _guard = held.lock().await;
        drop(sends.await);
    });
    assert!(scene.reports().is_empty());
    let options = SpawnOptions::new().on(&scene.scheduler).mailbox(1, WhenFull::Wait);
    let receiver = options.start(|cx: Context<u8>| async move {
        drop(sender.send(cx.address()));
        drop(lock.lock().await);
        drop(cx);
    });
    receiver.send(0).expect("there is room for one");
    scene.check(&[
        (joins, WaitReason::Process),
        (sends_pid, WaitReason::Room),
        (receiver.pid(), WaitReason::Lock),
    ]);
}

type Callee = Address<Reply<()>>;

/// Starts a process that calls the process that it is sent the address of, without a timeout.
fn calls(scene: &Scene) -> (oneshot::Sender<Callee>, Callee) {
    let (sender, other) = oneshot::channel::<Callee>();
    let callee = scene.scheduler.start(|cx: Context<Reply<()>>| async move {
        let other = other.await.expect("it is sent");
        drop(other.call(|reply| reply, Duration::MAX).await);
        drop(cx);
    });
    (sender, callee.detach())
}

#[test]
fn calls_that_nobody_receives_are_reported() {
    let scene = Scene::new();
    let (senders, callees): (Vec<_>, Vec<_>) = (0..3).map(|_| calls(&scene)).unzip();
    for (at, sender) in senders.into_iter().enumerate() {
        sender.send(callees[(at + 1) % 3].clone()).expect("it lives");
    }
    let waits: Vec<_> = callees.iter().map(|callee| (callee.pid(), WaitReason::Reply)).collect();
    scene.check(&waits);
}

#[test]
fn a_process_that_waits_for_itself_is_a_cycle() {
    let scene = Scene::new();
    let twice = scene.spawn("twice", async {
        let lock = Mutex::new(());
        let _guard = lock.lock().await;
        drop(lock.lock().await);
    });
    scene.check(&[(twice, WaitReason::Lock)]);
    let scene = Scene::new();
    let writes = scene.spawn("writes", async {
        let lock = RwLock::new(());
        let _guard = lock.write().await;
        drop(lock.read().await);
    });
    scene.check(&[(writes, WaitReason::Lock)]);
}

/// Starts a process that holds `own`, monitors the process that it is sent the address of, and
/// waits for its down.
fn watches(
    scene: &Scene,
    label: &str,
    own: Arc<Mutex<()>>,
) -> (oneshot::Sender<Pid>, Address<Reply<()>>) {
    let (sender, other) = oneshot::channel::<Pid>();
    let options = SpawnOptions::new().on(&scene.scheduler).label(label);
    let watcher = options.start(|mut cx: Context<Reply<()>>| async move {
        let _own = own.lock().await;
        let monitor = cx.monitor(other.await.expect("it is sent"));
        cx.down(monitor).await;
    });
    (sender, watcher.detach())
}

#[test]
fn processes_that_wait_for_the_downs_of_one_another_are_reported_once() {
    let scene = Scene::new();
    let [one, two] = locks();
    let (to_a, a) = watches(&scene, "a", one);
    let (to_b, b) = watches(&scene, "b", two);
    to_a.send(b.pid()).expect("it lives");
    to_b.send(a.pid()).expect("it lives");
    let cycle = scene.check(&[(a.pid(), WaitReason::Process), (b.pid(), WaitReason::Process)]);
    let place = cycle.waits[0].location.expect("it is known");
    assert!(place.file() == file!() && place.line() > WAITS, "{place}");
    // A message ends no wait for a down, although the process looks at the message.
    for address in [&a, &b, &a] {
        address.send(Reply::from_fn(|_| ())).expect("it lives");
        assert!(scene.reports().is_empty(), "it is the same cycle");
    }
    assert_eq!(scene.scheduler.wait_cycles().len(), 1);
}

#[test]
fn a_down_is_in_a_chain_with_a_lock_and_a_call() {
    let scene = Scene::new();
    let [lock, other] = locks();
    let (to_watcher, watcher) = watches(&scene, "watcher", Arc::clone(&lock));
    let locks = scene.spawn("locks", async move { drop(lock.lock().await) });
    assert!(scene.reports().is_empty());
    to_watcher.send(locks).expect("it lives");
    scene.check(&[(watcher.pid(), WaitReason::Process), (locks, WaitReason::Lock)]);
    // The process that waits looks at the call, and leaves it for a later receive.
    let scene = Scene::new();
    let (to_watcher, watcher) = watches(&scene, "watcher", other);
    let called = watcher.clone();
    let calls = scene.spawn("calls", async move {
        sleep(Duration::from_secs(1)).await;
        drop(called.call(|reply| reply, Duration::MAX).await);
    });
    to_watcher.send(calls).expect("it lives");
    assert!(scene.reports().is_empty());
    scene.scheduler.advance(Duration::from_secs(1));
    scene.check(&[(watcher.pid(), WaitReason::Process), (calls, WaitReason::Reply)]);
}

/// A process that takes messages out of their order may have received a call before older messages.
#[test]
fn a_call_that_was_received_before_older_messages_is_in_no_cycle() {
    let scene = Scene::new();
    let (sender, caller) = oneshot::channel::<Pid>();
    let server = scene.scheduler.start(|mut cx: Context<(u8, Option<Reply<()>>)>| async move {
        let received = cx.recv_matching(|message| message.0 == 1).await;
        // Another process replies, after this one has begun to wait.
        spawn(async move {
            sleep(LONG).await;
            drop(received);
        })
        .detach();
        let monitor = cx.monitor(caller.await.expect("it is sent"));
        cx.down(monitor).await.map(|down| down.pid)
    });
    server.send((0, None)).expect("it lives");
    let address = server.address().clone();
    let calls = scene.spawn("calls", async move {
        drop(address.call(|reply| (1, Some(reply)), Duration::MAX).await);
    });
    sender.send(calls).expect("it lives");
    assert!(scene.reports().is_empty());
    scene.scheduler.advance(LONG);
    assert_eq!(scene.scheduler.block_on(server), Ok(Some(calls)));
}

/// The wait of a process that holds `lock` and monitors `other` is in no cycle.
#[track_caller]
fn is_no_wait_for_a_down<F: Future<Output = ()> + Send + 'static>(
    wait: impl FnOnce(Context<u8>, MonitorRef) -> F + Send + 'static,
) {
    let scene = Scene::new();
    let [lock] = locks();
    let held = Arc::clone(&lock);
    let (sender, other) = oneshot::channel::<Pid>();
    let watcher = scene.scheduler.start(|mut cx: Context<u8>| async move {
        let _guard = held.lock().await;
        let monitor = cx.monitor(other.await.expect("it is sent"));
        wait(cx, monitor).await;
    });
    let waits = scene.spawn("waits", async move { drop(lock.lock().await) });
    sender.send(waits).expect("it lives");
    let reports = scene.reports();
    assert!(reports.is_empty(), "{reports:?}");
    assert!(scene.scheduler.leaks().is_empty());
    drop(watcher);
}

#[test]
fn a_wait_for_a_down_or_something_else_is_in_no_cycle() {
    is_no_wait_for_a_down(|mut cx, monitor| async move {
        drop(timeout(LONG, cx.down(monitor)).await);
    });
    is_no_wait_for_a_down(|mut cx, monitor| async move {
        let (_kept, ends) = oneshot::channel::<()>();
        either(cx.down(monitor), ends).await;
    });
    // A message ends the wait.
    is_no_wait_for_a_down(|mut cx, monitor| async move {
        drop(timeout(Duration::ZERO, cx.down(monitor)).await);
        cx.recv().await;
    });
    is_no_wait_for_a_down(|mut cx, monitor| async move {
        poll_fn(|task| Poll::Ready(pin!(cx.down(monitor)).poll(task).is_pending())).await;
        cx.recv().await;
    });
    is_no_wait_for_a_down(|mut cx, _| async move { drop(cx.recv_event().await) });
    // A monitor that was ended.
    is_no_wait_for_a_down(|mut cx, monitor| async move {
        cx.demonitor(monitor);
        drop(cx.down(monitor).await);
    });
}

/// A reader waits for its turn behind a writer, which waits for this reader.
#[test]
fn a_reader_that_reads_once_more_behind_a_writer_is_reported() {
    let scene = Scene::new();
    let lock = Arc::new(RwLock::new(()));
    let (again, reads) = oneshot::channel::<()>();
    let shared = Arc::clone(&lock);
    let reader = scene.spawn("reader", async move {
        let _first = shared.read().await;
        reads.await.expect("it is sent");
        drop(shared.read().await);
    });
    assert!(scene.reports().is_empty());
    let writer = scene.spawn("writer", async move { drop(lock.write().await) });
    assert!(scene.reports().is_empty());
    again.send(()).expect("it lives");
    scene.check(&[(reader, WaitReason::Lock), (writer, WaitReason::Lock)]);
}

#[test]
fn a_reader_that_wants_to_write_waits_for_itself() {
    let scene = Scene::new();
    let upgrades = scene.spawn("upgrades", async {
        let lock = RwLock::new(());
        let _reads = lock.write().await.downgrade();
        let _again = lock.try_read().expect("nobody waits");
        drop(lock.write().await);
    });
    scene.check(&[(upgrades, WaitReason::Lock)]);
}

/// The other readers, or a writer that gives up, end the wait.
#[test]
fn a_reader_beside_others_is_in_no_cycle() {
    // How the writer waits, whether there is another reader, and whether the guard may move.
    for (gives_up, has_other, moves) in
        [(true, false, false), (false, true, false), (false, false, true)]
    {
        let scene = Scene::new();
        let lock = Arc::new(RwLock::new(()));
        let (again, reads) = oneshot::channel::<()>();
        let (shared, other) = (Arc::clone(&lock), Arc::clone(&lock));
        scene.spawn("reader", async move {
            let borrowed = if moves { None } else { Some(shared.read().await) };
            let owned = if moves { Some(Arc::clone(&shared).read_owned().await) } else { None };
            reads.await.expect("it is sent");
            drop(shared.read().await);
            drop((borrowed, owned));
        });
        if has_other {
            scene.spawn("other", async move {
                let _guard = other.read().await;
                pending::<()>().await;
            });
        }
        assert!(scene.reports().is_empty());
        scene.spawn("writer", async move {
            match gives_up {
                true => drop(lock.write_timeout(LONG).await),
                false => drop(lock.write().await),
            }
        });
        assert!(scene.reports().is_empty());
        again.send(()).expect("it lives");
        let reports = scene.reports();
        assert!(reports.is_empty(), "{gives_up} {has_other} {moves}: {reports:?}");
        if gives_up {
            scene.scheduler.advance(LONG);
            assert!(scene.reports().is_empty());
            assert!(scene.scheduler.snapshot().processes.is_empty(), "the writer has given up");
        }
    }
}

/// A wait for a scheduler is not shown as a wait for the process that was waited for before.
#[test]
fn a_wait_for_a_scheduler_is_no_wait_for_a_process() {
    let (scene, other) = (Scene::new(), builder().build().expect("it is valid"));
    let kept = other.spawn(pending::<()>());
    let [lock] = locks();
    let ends = other.clone();
    let owner = scene.spawn("owner", async move {
        let guard = lock.lock().await;
        let waits = Arc::clone(&lock);
        let mut child = spawn(async move { drop(waits.lock().await) });
        assert!(timeout(Duration::from_secs(1), &mut child).await.is_err());
        ends.wait_until_empty().await.expect("it is another scheduler");
        drop(guard);
    });
    assert!(scene.reports().is_empty());
    scene.scheduler.advance(Duration::from_secs(1));
    assert!(scene.reports().is_empty(), "the end of the other scheduler ends the wait");
    let wait = scene.scheduler.detail(owner).and_then(|process| process.wait).expect("it waits");
    assert!(wait.reasons.for_process() && wait.target.is_none(), "{wait:?}");
    kept.kill();
}

/// A future that the process no longer polls is granted the lock that the process waits for.
#[test]
fn a_futurelock_is_reported() {
    let scene = Scene::new();
    let [lock] = locks();
    let held = Arc::clone(&lock);
    let holder = scene.spawn("holder", async move {
        let _guard = held.lock().await;
        sleep(Duration::from_secs(1)).await;
    });
    let waits = scene.spawn("waits", async move {
        let mut forgotten = pin!(lock.lock());
        let first = poll_fn(|task| Poll::Ready(forgotten.as_mut().poll(task).is_pending())).await;
        assert!(first, "the lock is held");
        drop(lock.lock().await);
    });
    assert!(scene.reports().is_empty(), "the lock is held");
    scene.scheduler.advance(Duration::from_secs(1));
    scene.check(&[(waits, WaitReason::Lock)]);
    assert!(scene.scheduler.process(holder).is_none());
}

#[test]
fn a_coroutine_is_in_a_cycle() {
    // SAFETY: the coroutine of this test uses little of its stack.
    let scene = Scene::with(unsafe { builder().enable_coroutines() });
    let [one, two] = locks();
    let (first, second) = (Arc::clone(&two), Arc::clone(&one));
    let a = scene.spawn("a", cross(one, two));
    let options = SpawnOptions::new().on(&scene.scheduler);
    let b = options.try_start_coroutine(move |_: coroutine::Context<()>| {
        let _first = coroutine::wait(first.lock());
        coroutine::yield_now();
        drop(coroutine::wait(second.lock()));
    });
    let b = b.expect("coroutines are enabled");
    scene.check(&[(a, WaitReason::Lock), (b.pid(), WaitReason::Lock)]);
}

type Odd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A process holds a lock and waits for another lock in an odd way, and the holder of that lock
/// waits for the first.
#[track_caller]
fn is_no_cycle(wait: impl FnOnce(Arc<Mutex<()>>) -> Odd + Send + 'static) {
    let scene = Scene::new();
    let [one, two] = locks();
    let (first, second) = (Arc::clone(&one), Arc::clone(&two));
    scene.spawn("odd", async move {
        let _first = first.lock().await;
        yield_now().await;
        wait(second).await;
    });
    scene.spawn("other", cross(two, one));
    let reports = scene.reports();
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn several_waits_are_no_cycle() {
    is_no_cycle(|lock| {
        Box::pin(async move {
            both(lock.lock(), lock.lock()).await;
        })
    });
    is_no_cycle(|lock| {
        Box::pin(async move {
            let (_kept, ends) = oneshot::channel::<()>();
            either(lock.lock(), ends).await;
        })
    });
    is_no_cycle(|lock| {
        Box::pin(async move {
            // Code outside of the runtime can wake it.
            let mut lent = Vec::new();
            either(
                lock.lock(),
                poll_fn(move |task| {
                    lent.push(task.waker().clone());
                    Poll::<()>::Pending
                }),
            )
            .await;
        })
    });
    is_no_cycle(|lock| {
        Box::pin(async move {
            // A combinator with wakers of its own, which polls only what these name.
            let mut locks = pin!(lock.lock());
            poll_fn(|task| {
                let waker = Waker::from(Arc::new(Through(task.waker().clone())));
                locks.as_mut().poll(&mut TaskContext::from_waker(&waker)).map(drop)
            })
            .await;
        })
    });
}

/// The waker of a combinator.
struct Through(Waker);

impl Wake for Through {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

/// Polls both futures with the same waker until both are complete.
async fn both(one: impl Future, two: impl Future) {
    let (mut one, mut two) = (pin!(one), pin!(two));
    poll_fn(|task| {
        let first = one.as_mut().poll(task).is_ready();
        if two.as_mut().poll(task).is_ready() && first { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Polls both futures with the same waker until one is complete.
async fn either(one: impl Future, two: impl Future) {
    let (mut one, mut two) = (pin!(one), pin!(two));
    poll_fn(|task| {
        let first = one.as_mut().poll(task).is_ready();
        if two.as_mut().poll(task).is_ready() || first { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn a_wait_with_a_timeout_is_no_cycle() {
    is_no_cycle(|lock| Box::pin(async move { drop(timeout(LONG, lock.lock()).await) }));
    is_no_cycle(|lock| Box::pin(async move { drop(lock.lock_timeout(LONG).await) }));
}

/// The program moves what it waits for into another process.
#[test]
fn what_moves_is_no_cycle() {
    let scene = Scene::new();
    let [lock] = locks();
    scene.spawn("moves", async move {
        let guard = Arc::clone(&lock).lock_owned().await;
        spawn(async move {
            sleep(LONG).await;
            drop(guard);
        })
        .detach();
        drop(lock.lock().await);
    });
    let semaphore = Arc::new(Semaphore::new(1));
    scene.spawn("permits", async move {
        let _permit = semaphore.acquire(1).await;
        drop(semaphore.acquire(1).await);
    });
    let (sender, caller) = oneshot::channel::<Address<Reply<()>>>();
    let server = scene.scheduler.start(|mut cx: Context<Reply<()>>| async move {
        let reply = cx.recv().await.expect("it is called");
        // Another process replies, after the server has called its caller.
        spawn(async move {
            sleep(LONG).await;
            reply.send(());
        })
        .detach();
        let caller = caller.await.expect("it is sent");
        drop(caller.call(|reply| reply, Duration::MAX).await);
    });
    let server = server.detach();
    let client = scene.scheduler.start(move |mut cx: Context<Reply<()>>| async move {
        drop(sender.send(cx.address()));
        drop(server.call(|reply| reply, Duration::MAX).await);
        cx.recv().await.expect("the server calls").send(());
    });
    let reports = scene.reports();
    assert!(reports.is_empty(), "{reports:?}");
    scene.scheduler.advance(LONG);
    assert!(scene.reports().is_empty());
    assert_eq!(scene.scheduler.block_on(client), Ok(()), "it has gone on");
}

#[test]
fn a_cycle_may_end_and_another_one_begin() {
    let scene = Scene::new();
    let [one, two] = locks();
    let a = scene.spawn("a", cross(Arc::clone(&one), Arc::clone(&two)));
    let b = scene.spawn("b", cross(Arc::clone(&two), Arc::clone(&one)));
    assert_eq!(scene.reports().len(), 1);
    assert!(procession::process::kill(a));
    assert!(scene.reports().is_empty(), "the other has gone on");
    assert!(scene.scheduler.process(b).is_none());
    let c = scene.spawn("c", cross(Arc::clone(&one), Arc::clone(&two)));
    let d = scene.spawn("d", cross(two, one));
    let pids: Vec<_> = scene.reports()[0].waits.iter().map(|wait| wait.pid).collect();
    assert!(pids.contains(&c) && pids.contains(&d), "{pids:?}");
    assert_eq!(scene.scheduler.wait_cycles().len(), 2);
}

#[test]
fn a_hook_may_panic_and_the_search_may_be_off() {
    let scheduler = builder().on_wait_cycle(|_| panic!("no")).build().expect("it is valid");
    let off = Scene::with(builder().wait_cycle_after(None));
    for scheduler in [&scheduler, &off.scheduler] {
        let [one, two] = locks();
        let (first, second) = (Arc::clone(&one), Arc::clone(&two));
        scheduler.spawn(cross(first, second)).detach();
        scheduler.spawn(cross(two, one)).detach();
        scheduler.run_until_idle();
    }
    assert_eq!(scheduler.wait_cycles().len(), 1);
    assert_eq!(scheduler.block_on(scheduler.spawn(async { 1 })), Ok(1));
    assert!(off.reports().is_empty() && off.scheduler.wait_cycles().is_empty());
}

/// On the real clock, the watchdog finds it.
#[test]
fn the_watchdog_reports() {
    let (sender, reports) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .wait_cycle_after(Duration::from_millis(50))
        .on_wait_cycle(move |cycle| {
            over.store(true, SeqCst);
            drop(sender.send(cycle.clone()));
        })
        .build()
        .expect("the system has threads");
    // It keeps the program awake, and with it the watchdog.
    let works = scheduler.spawn(async move {
        while !is_over.load(SeqCst) {
            yield_now().await;
        }
    });
    let (first, second) = {
        let [one, two] = locks();
        let both = (Arc::clone(&one), Arc::clone(&two));
        // Both hold their lock before one waits for the other.
        let (ready, begins) = oneshot::channel::<()>();
        let (holds, is_held) = oneshot::channel::<()>();
        let first = scheduler.spawn(async move {
            let _one = one.lock().await;
            let _ = holds.send(());
            begins.await.expect("the other has begun");
            drop(two.lock().await);
        });
        let second = scheduler.spawn(async move {
            let _two = both.1.lock().await;
            let _ = ready.send(());
            is_held.await.expect("the other has begun");
            drop(both.0.lock().await);
        });
        (first, second)
    };
    let cycle = reports.recv().expect("it is reported");
    let pids: Vec<_> = cycle.waits.iter().map(|wait| wait.pid).collect();
    assert!(pids.len() == 2 && pids.contains(&first.pid()) && pids.contains(&second.pid()));
    assert!(cycle.at_least() >= Duration::from_millis(50), "{cycle}");
    assert_eq!(scheduler.block_on(works), Ok(()));
    assert!(first.kill());
    let ends = scheduler.block_on(async { (first.await, second.await) });
    assert_eq!(ends, (Err(Exit::Killed), Ok(())));
}

/// Goal: a step that blocks its thread on a future is in a cycle, unless other code may end its
/// wait. Method: two processes, of which the first blocks, and then a plain cycle that is reported
/// later, because it begins later and has higher slots.
#[test]
fn a_step_that_blocks_on_a_future_is_in_a_cycle() {
    for is_odd in [false, true] {
        let (sender, reports) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let scheduler = Scheduler::builder()
            .worker_threads(2)
            .wait_cycle_after(Duration::from_millis(50))
            .on_wait_cycle(move |cycle| drop(sender.send(cycle.clone())))
            .build()
            .expect("the system has threads");
        let [one, two] = locks();
        let (first, second) = (Arc::clone(&two), Arc::clone(&one));
        let (ready, begins) = oneshot::channel::<()>();
        let (holds, is_held) = oneshot::channel::<()>();
        let own = scheduler.clone();
        let blocks = scheduler.spawn(async move {
            let _one = one.lock().await;
            let _ = holds.send(());
            begins.await.expect("the other has begun");
            let mut kept = Vec::new();
            let other_end = poll_fn(move |task| {
                if is_odd {
                    kept.push(task.waker().clone());
                }
                Poll::<()>::Pending
            });
            own.block_on(either(two.lock(), other_end));
        });
        let waits = scheduler.spawn(async move {
            let _two = first.lock().await;
            let _ = ready.send(());
            is_held.await.expect("the other has begun");
            drop(second.lock().await);
        });
        let over = Arc::clone(&is_over);
        let marker = scheduler.spawn(async move {
            // It keeps the program awake, and with it the watchdog.
            let works = spawn(async move {
                while !over.load(SeqCst) {
                    yield_now().await;
                }
            });
            sleep(Duration::from_millis(50)).await;
            let lock = Mutex::new(());
            let _guard = lock.lock().await;
            drop((lock.lock().await, works));
        });
        let mut found = Vec::new();
        loop {
            let cycle = reports.recv().expect("the marker is reported");
            let mut pids: Vec<_> = cycle.waits.iter().map(|wait| wait.pid).collect();
            pids.sort();
            if pids == [marker.pid()] {
                break;
            }
            assert!(cycle.waits.iter().all(|wait| wait.reason == WaitReason::Lock), "{cycle}");
            found.push(pids);
        }
        let mut both = vec![blocks.pid(), waits.pid()];
        both.sort();
        assert_eq!(found, if is_odd { vec![] } else { vec![both] });
        is_over.store(true, SeqCst);
        // The step goes on, and the process has no wait of that time.
        assert!(waits.kill() && marker.kill());
        assert_eq!(scheduler.block_on(blocks), Ok(()));
    }
}

#[test]
fn a_coroutine_that_blocks_on_a_future_is_in_a_cycle() {
    // SAFETY: the coroutine of this test uses little of its stack.
    let scene = Scene::with(unsafe { builder().enable_coroutines() });
    let [one, two] = locks();
    let (first, second) = (Arc::clone(&two), Arc::clone(&one));
    let a = scene.spawn("a", cross(one, two));
    let (own, options) = (scene.scheduler.clone(), SpawnOptions::new().on(&scene.scheduler));
    let b = options.try_start_coroutine(move |_: coroutine::Context<()>| {
        let _first = own.block_on(first.lock());
        coroutine::yield_now();
        drop(own.block_on(second.lock()));
    });
    let b = b.expect("coroutines are enabled");
    scene.check(&[(a, WaitReason::Lock), (b.pid(), WaitReason::Lock)]);
}

/// Goal: a process that calls itself and receives the call in another part gets its reply. So the
/// call is refused only if the program says that no process answers its own calls.
#[test]
fn a_process_may_answer_its_own_call() {
    for is_refused in [false, true] {
        let scheduler = builder().refuse_call_cycles(is_refused).build().expect("it is valid");
        let process = scheduler.start(move |mut cx: Context<Reply<u32>>| async move {
            let own = cx.address();
            let begun = procession::time::Instant::now();
            let answers = async {
                let received = timeout(LONG, cx.recv()).await.ok().flatten();
                received.map(|reply| reply.send(7)).is_some()
            };
            let calls = own.call(|reply| reply, 2 * LONG);
            let (called, is_answered) = futures_lite::future::zip(calls, answers).await;
            assert_eq!(is_answered, !is_refused);
            let alone = own.call(|reply| reply, LONG).await.expect_err("nothing receives");
            assert_eq!(alone.is_cycle(), is_refused);
            assert!(alone.is_cycle() || begun.elapsed() == LONG, "{alone}");
            called.map_err(|error| error.cause())
        });
        let expected = if is_refused { Err(CallCause::Cycle) } else { Ok(7) };
        assert_eq!(scheduler.block_on(process), Ok(expected));
    }
}

/// A process that calls the address that it is called with.
type Back = (Reply<CallCause>, Vec<Address<Call>>);

enum Call {
    Back(Back),
}

#[test]
fn a_call_that_would_close_a_cycle_is_refused() {
    for is_refused in [true, false] {
        let scene = Scene::with(builder().refuse_call_cycles(is_refused));
        let server = || {
            let child = scene.scheduler.start(|mut cx: Context<Call>| async move {
                while let Some(Call::Back((reply, mut route))) = cx.recv().await {
                    let next = route.pop().expect("the route is longer");
                    let called = next.call(|reply| Call::Back((reply, route)), LONG).await;
                    if let Err(error @ CallError::Cycle(_)) = called {
                        let cause = error.cause();
                        assert!(error.into_inner().is_some(), "the message comes back");
                        reply.send(cause);
                    } else {
                        reply.send(called.unwrap_or_else(|error| error.cause()));
                    }
                }
            });
            child.detach()
        };
        let [a, b, c] = std::array::from_fn(|_| server());
        let route = vec![a.clone(), a.clone(), c, b];
        let asks = scene.scheduler.spawn(async move {
            let called = a.call(|reply| Call::Back((reply, route)), 2 * LONG).await;
            called.map_err(|error| error.cause())
        });
        let known = if is_refused { CallCause::Cycle } else { CallCause::Elapsed };
        let found = scene.scheduler.block_on(asks).expect("it ends");
        assert_eq!(found, Ok(known));
        assert!(scene.reports().is_empty(), "each call has a timeout");
    }
}

#[test]
fn processes_that_wait_for_no_other_are_in_no_cycle() {
    let scene = Scene::new();
    scene.spawn("never", pending());
    scene.spawn("sleeps", sleep(LONG));
    let waits = scene.scheduler.spawn(pending::<()>());
    scene.spawn("joins", async move { drop(waits.await) });
    assert!(scene.reports().is_empty());
}
