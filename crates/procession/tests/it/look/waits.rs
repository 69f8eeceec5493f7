//! Every wait of the runtime, each at a known line.

use std::future::pending;
use std::net::Ipv4Addr;
use std::panic::Location;
use std::sync::Arc;

use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields, command,
};
use procession::mailbox::WhenFull;
use procession::net::{TcpListener, TcpStream};
use procession::observe::{ProcessState, Query, WaitReason};
use procession::pool::Pool;
use procession::process::cancelled;
use procession::sync::{Mutex, Notify, RwLock, Semaphore, broadcast, channel, oneshot, watch};
use procession::{
    Child, Context, JoinHandle, Pid, Reply, Scheduler, SpawnOptions, coroutine, sleep, timeout,
};

use super::{LONG, row};
use crate::home::{mpsc, thread};

/// The number of coroutines of the program that have stacks.
const STACKS: usize = 3;

/// A command that is never completed.
const HELD: CommandId = CommandId::new(256);

/// A wait that a process was made for.
struct Known {
    pid: Pid,
    reasons: Vec<WaitReason>,
    line: Option<u32>,
    target: Option<Pid>,
}

impl Known {
    fn new(pid: Pid, reason: WaitReason, line: u32) -> Self {
        Self { pid, reasons: vec![reason], line: Some(line), target: None }
    }

    /// The process waits for another one.
    fn on(self, target: Pid) -> Self {
        Self { target: Some(target), ..self }
    }

    /// The place of the wait is not known.
    fn nowhere(self) -> Self {
        Self { line: None, ..self }
    }

    /// The process waits for something else, too.
    fn or(mut self, reason: WaitReason) -> Self {
        self.reasons.push(reason);
        self
    }
}

/// Returns what a look says of a process, if that is not what is known.
fn mistake(scheduler: &Scheduler, known: &Known) -> Option<String> {
    let row = row(scheduler, known.pid);
    let Some(wait) = &row.wait else { return Some(format!("{:?} does not wait", row.label)) };
    let mut reasons = known.reasons.clone();
    reasons.sort_unstable();
    let is_right = wait.reasons.reasons().eq(reasons)
        && wait.location.map(Location::line) == known.line
        && wait.location.is_none_or(|location| location.file() == file!())
        && wait.target == known.target
        && !wait.in_cycle
        && known.reasons.iter().all(|&reason| {
            let by_reason = Query::new().waiting_for(reason).top(1000);
            scheduler.look(&by_reason).rows.iter().any(|found| found.pid == known.pid)
        });
    (!is_right).then(|| format!("{:?}: {wait:?}, but line {:?}", row.label, known.line))
}

/// Waits until a process waits.
fn settle(scheduler: &Scheduler, pid: Pid) {
    let waits = [ProcessState::Blocked, ProcessState::Idle];
    while !waits.contains(&row(scheduler, pid).state) {
        thread::yield_now();
    }
}

/// Starts a process that waits in the given way. The wait is on the line of the macro's call.
macro_rules! waits {
    ($scheduler:expr, $reason:ident, $wait:expr) => {{
        let options = SpawnOptions::new().on($scheduler).label(stringify!($wait));
        let handle = options.spawn(async move {
            let _kept = $wait.await;
        });
        let pid = handle.pid();
        handle.detach();
        Known::new(pid, WaitReason::$reason, line!())
    }};
}

/// A state machine that waits for a message, and then for a command.
struct Machine;

impl Process for Machine {
    type Input = ();
    type Message = bool;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<bool>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        if events.count() == 0 {
            return Ok(Status::Wait(WaitingFor::Messages));
        }
        yields.command(HELD, 1, ());
        Ok(Status::Wait(WaitingFor::Completions))
    }
}

/// What processes wait for, and what keeps them waiting.
struct Scene {
    scheduler: Scheduler,
    /// Keeps requests, and answers none.
    silent: Child<Reply<u32>, ()>,
    /// Has a message in a mailbox for one.
    full: Child<u8, ()>,
    /// Holds a lock.
    holder: JoinHandle<()>,
    lock: Arc<Mutex<()>>,
}

impl Scene {
    fn new() -> Self {
        let builder = Scheduler::builder().worker_threads(2).max_stacks(STACKS);
        let builder = builder.handler(HELD, |_: Value, completion: Completion| {
            // It is never completed.
            std::mem::forget(completion);
        });
        // SAFETY: the coroutines of this test use little of their stacks.
        let scheduler = unsafe { builder.enable_coroutines() }.build().expect("it has threads");
        let silent = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
            let mut kept = Vec::new();
            while let Some(reply) = cx.recv().await {
                kept.push(reply);
            }
        });
        let full: Child<u8, ()> = SpawnOptions::new()
            .on(&scheduler)
            .mailbox(1, WhenFull::Wait)
            .start(|cx: Context<u8>| async move { cx.cancelled().await });
        full.send(1).expect("there is room for one");
        let lock = Arc::new(Mutex::new(()));
        let holder = {
            let lock = Arc::clone(&lock);
            scheduler.spawn(async move {
                let _guard = lock.lock().await;
                sleep(LONG).await;
            })
        };
        settle(&scheduler, holder.pid());
        Self { scheduler, silent, full, holder, lock }
    }

    /// Processes that wait for others, and for nothing of the runtime.
    fn processes(&self) -> Vec<Known> {
        let Self { scheduler, silent, full, holder, lock } = self;
        let (callee, full_pid) = (silent.pid(), full.pid());
        let never = scheduler.spawn(async { sleep(LONG).await });
        let (never_pid, spawned_at) = (never.pid(), line!() - 1);
        let message = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
        let message_line = line!() - 1;
        let (one, two) = (Arc::clone(lock), Arc::clone(lock));
        let first = waits!(scheduler, Lock, one.lock()).on(holder.pid());
        settle(scheduler, first.pid);
        let second = waits!(scheduler, Lock, two.lock()).on(holder.pid());
        let (silent, full) = (silent.address().clone(), full.address().clone());
        vec![
            Known::new(message.pid(), WaitReason::Message, message_line),
            first,
            second,
            waits!(scheduler, Reply, silent.call(|reply| reply, LONG))
                .or(WaitReason::Timer)
                .on(callee),
            waits!(scheduler, Room, full.send_wait(2)).on(full_pid),
            Known { line: Some(spawned_at), ..waits!(scheduler, Process, never).on(never_pid) },
            waits!(scheduler, Waker, pending::<()>()).nowhere(),
            waits!(scheduler, Completion, command(HELD, ())),
        ]
    }

    /// Processes that wait for time, channels and permits. What they wait for is leaked, so that
    /// they wait until the end.
    fn primitives(&self) -> Vec<Known> {
        let scheduler = &self.scheduler;
        let (sender, receiver) = channel::bounded::<u8>(1);
        sender.try_send(0).expect("there is room for one");
        let (kept, empty) = channel::bounded::<u8>(1);
        let other = empty.clone();
        let (oneshot_kept, value) = oneshot::channel::<u8>();
        // A future that is awaited itself does not know where. Its channel knows where it was made.
        let oneshot_line = line!() - 2;
        let (watch_kept, mut changing) = watch::channel(0);
        let (broadcast_kept, mut heard) = broadcast::channel::<u8>(1);
        let semaphore = Semaphore::new(0);
        let notify = Notify::new();
        let written = Arc::new(RwLock::new(()));
        std::mem::forget(Arc::clone(&written).try_write_owned().expect("nothing holds it"));
        std::mem::forget((receiver, kept, oneshot_kept, watch_kept, broadcast_kept));
        vec![
            waits!(scheduler, Timer, sleep(LONG)),
            waits!(scheduler, Cancel, cancelled()),
            waits!(scheduler, Channel, sender.send(1)),
            waits!(scheduler, Channel, empty.recv()),
            waits!(scheduler, Channel, changing.changed()),
            waits!(scheduler, Channel, heard.recv()),
            Known { line: Some(oneshot_line), ..waits!(scheduler, Channel, value) },
            waits!(scheduler, Channel, timeout(LONG, other.recv())).or(WaitReason::Timer),
            waits!(scheduler, Lock, semaphore.acquire(1)),
            waits!(scheduler, Lock, notify.notified()),
            waits!(scheduler, Lock, written.read()),
        ]
    }

    /// Coroutines, of which the last one has no stack, and state machines.
    fn other_kinds(&self) -> Vec<Known> {
        let scheduler = &self.scheduler;
        let never = scheduler.spawn(async { sleep(LONG).await });
        let never_pid = never.pid();
        let coroutine = |run: Box<dyn FnOnce() + Send>| {
            let begun = SpawnOptions::new()
                .on(scheduler)
                .try_start_coroutine(move |_: coroutine::Context<()>| run());
            let begun = begun.expect("they are enabled");
            let pid = begun.pid();
            settle(scheduler, pid);
            begun.detach();
            pid
        };
        let joins = coroutine(Box::new(|| drop(coroutine::wait(never))));
        let joins = Known::new(joins, WaitReason::Process, line!() - 1).on(never_pid);
        let sleeps = coroutine(Box::new(|| coroutine::sleep(LONG)));
        let sleeps = Known::new(sleeps, WaitReason::Timer, line!() - 1);
        let token = coroutine(Box::new(|| assert!(coroutine::suspend(None).is_ok())));
        let token = Known::new(token, WaitReason::Token, line!() - 1);
        assert!(row(scheduler, token.pid).memory.is_some_and(|memory| memory.stack > 0));
        let stack = Known::new(coroutine(Box::new(|| ())), WaitReason::Stack, 0).nowhere();
        let machine = || {
            SpawnOptions::new()
                .on(scheduler)
                .try_start_machine(Machine, "", ())
                .expect("it takes any input")
        };
        let (idle, performs) = (machine(), machine());
        performs.send(true).expect("it lives");
        let known = [(idle, WaitReason::Message), (performs, WaitReason::Completion)];
        let known = known.map(|(machine, reason)| {
            let known = Known::new(machine.pid(), reason, 0).nowhere();
            machine.detach();
            known
        });
        [joins, sleeps, token, stack].into_iter().chain(known).collect()
    }

    /// Processes that wait for sockets.
    fn sockets(&self) -> Vec<Known> {
        let scheduler = &self.scheduler;
        let sockets = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let stream = TcpStream::connect(listener.local_addr()?).await?;
            let (peer, _) = listener.accept().await?;
            Ok::<_, std::io::Error>((listener, stream, peer))
        };
        let (listener, stream, peer) = scheduler.block_on(sockets).expect("the loopback works");
        // It reads nothing.
        std::mem::forget(peer);
        let all = vec![0; 64 << 20];
        vec![
            waits!(scheduler, Readable, listener.accept()),
            waits!(scheduler, Writable, stream.write_all(&all)),
        ]
    }
}

#[test]
fn every_wait_is_told_with_its_line_and_its_target() {
    let scene = Scene::new();
    let scheduler = &scene.scheduler;
    let pool = Pool::builder().capacity(1).build().expect("the system has threads");
    let (gate, opened) = mpsc::channel::<()>();
    let job = pool.submit(move || opened.recv().is_err()).expect("the pool is open");
    let idle = pool.clone();
    let pools = [waits!(scheduler, Pool, idle.idle()), waits!(scheduler, Pool, job).nowhere()];
    let mut all = Vec::from(pools);
    all.extend(scene.processes());
    all.extend(scene.primitives());
    all.extend(scene.other_kinds());
    all.extend(scene.sockets());
    all.iter().for_each(|known| settle(scheduler, known.pid));
    let mistakes: Vec<_> = all.iter().filter_map(|known| mistake(scheduler, known)).collect();
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    for reason in WaitReason::ALL {
        assert!(all.iter().any(|known| known.reasons.contains(&reason)), "{reason} is not shown");
    }
    drop(gate);
}
