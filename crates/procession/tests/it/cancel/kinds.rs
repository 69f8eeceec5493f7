//! Every kind of process in every kind of wait, ended in every way from outside: one product, so
//! that no pair of kind and wait is left out.

use crate::home::mpsc;
use std::error::Error;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procession::coroutine::{self, Wait};
use procession::machine::{CommandId, Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::{Event, WhenFull};
use procession::net::UnixStream;
use procession::process::{JoinSet, OnCancel, send_exit, until_cancelled};
use procession::sync::{
    Barrier, CancellationToken, Condvar, Mutex, Notify, OnceCell, RwLock, Semaphore, WaitGroup,
    broadcast, channel, oneshot, watch,
};
use procession::{
    Context, Exit, JoinHandle, Reply, Scheduler, SpawnOptions, sleep, spawn, start, timeout,
};

use super::Reports;
use crate::scene::assert_conserved;

/// Never over. With more than one worker, the test clock moves between two looks of the test.
const FOREVER: Duration = Duration::MAX;

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A wait that does not end by itself.
type MakeWait = fn() -> Waiting;

const WAITS: &[(&str, MakeWait)] = &[
    ("nothing", || Box::pin(pending())),
    ("a sleep", || Box::pin(sleep(FOREVER))),
    ("a timeout", || {
        Box::pin(async {
            let _ = timeout(FOREVER, pending::<()>()).await;
        })
    }),
    ("a lock", || {
        Box::pin(async {
            let lock = Mutex::new(());
            let _held = lock.lock().await;
            drop(lock.lock().await);
        })
    }),
    ("a read lock", || {
        Box::pin(async {
            let lock = RwLock::new(());
            let _held = lock.write().await;
            drop(lock.read().await);
        })
    }),
    ("a write lock", || {
        Box::pin(async {
            let lock = RwLock::new(());
            let _held = lock.read().await;
            drop(lock.write().await);
        })
    }),
    ("a permit", || Box::pin(async { drop(Semaphore::new(0).acquire(1).await) })),
    ("a condition", || {
        Box::pin(async {
            let (lock, condition) = (Mutex::new(()), Condvar::new());
            drop(condition.wait(lock.lock().await).await);
        })
    }),
    ("a cell", || {
        Box::pin(async {
            let cell: OnceCell<()> = OnceCell::new();
            cell.get_or_init(pending()).await;
        })
    }),
    ("a group of jobs", || {
        Box::pin(async {
            let group = WaitGroup::new();
            let _job = group.job();
            group.wait().await;
        })
    }),
    ("a barrier", || {
        Box::pin(async {
            let _ = Barrier::new(2).wait().await;
        })
    }),
    ("a notice", || Box::pin(async { Notify::new().notified().await })),
    ("a token", || Box::pin(async { CancellationToken::new().cancelled().await })),
    ("a channel's message", || {
        Box::pin(async {
            let (_sender, receiver) = channel::bounded::<()>(1);
            let _ = receiver.recv().await;
        })
    }),
    ("a channel's room", || {
        Box::pin(async {
            let (sender, _receiver) = channel::bounded(0);
            let _ = sender.send(()).await;
        })
    }),
    ("a reserved place", || {
        Box::pin(async {
            let (sender, _receiver) = channel::bounded::<()>(0);
            drop(sender.reserve().await);
        })
    }),
    ("a broadcast", || {
        Box::pin(async {
            let (_sender, mut receiver) = broadcast::channel::<()>(1);
            let _ = receiver.recv().await;
        })
    }),
    ("a change", || {
        Box::pin(async {
            let (_sender, mut receiver) = watch::channel(());
            let _ = receiver.changed().await;
        })
    }),
    ("one value", || {
        Box::pin(async {
            let (_sender, receiver) = oneshot::channel::<()>();
            let _ = receiver.await;
        })
    }),
    ("the end of another", || Box::pin(async { drop(spawn(pending::<()>()).await) })),
    ("the next end of a set", || {
        Box::pin(async {
            let mut set = JoinSet::new();
            set.insert(spawn(pending::<()>()));
            drop(set.join_next().await);
        })
    }),
    ("a reply", || {
        Box::pin(async {
            let mute = start(|mut cx: Context<Reply<()>>| async move {
                let _reply = cx.recv().await;
                pending::<()>().await;
            });
            drop(mute.call(|reply| reply, FOREVER).await);
        })
    }),
    ("room in a mailbox", || {
        Box::pin(async {
            let options = SpawnOptions::new().mailbox(1, WhenFull::Wait);
            let full = options.start(|_: Context<()>| pending::<()>());
            full.send(()).expect("it has room for one");
            drop(full.send_wait(()).await);
        })
    }),
    ("a descriptor", || {
        Box::pin(async {
            let (reads, _writes) = UnixStream::pair().expect("the system has descriptors");
            let _ = reads.read(&mut [0]).await;
        })
    }),
];

/// A wait of a process with a context, for its own mailbox. It ends without a message if the
/// process is asked to end.
type MakeReceive = fn(Context<()>) -> Waiting;

const RECEIVES: &[(&str, MakeReceive)] = &[
    ("recv", |mut cx| Box::pin(async move { assert_eq!(cx.recv().await, None) })),
    ("recv_timeout", |mut cx| {
        Box::pin(async move { assert_eq!(cx.recv_timeout(FOREVER).await, Ok(None)) })
    }),
    ("recv_event", |mut cx| Box::pin(async move { assert!(cx.recv_event().await.is_none()) })),
    ("recv_matching", |mut cx| {
        Box::pin(async move { assert_eq!(cx.recv_matching(|()| true).await, None) })
    }),
    ("cancelled", |cx| Box::pin(async move { cx.cancelled().await })),
];

async fn endless(wait: MakeWait, reports: Reports) -> Ended {
    wait().await;
    drop(reports);
    Ended::ByItself
}

async fn until_asked(wait: MakeWait, reports: Reports) -> Ended {
    let waited = until_cancelled(wait()).await;
    drop(reports);
    if waited.is_some() { Ended::ByItself } else { Ended::Asked }
}

async fn received(receive: Waiting, reports: Reports) -> Ended {
    receive.await;
    drop(reports);
    Ended::Asked
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Local,
    Dropped,
    DroppedLocal,
    DroppedCoroutine,
    Asked,
    AskedLocal,
    AskedCoroutine,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Local,
        Self::Dropped,
        Self::DroppedLocal,
        Self::DroppedCoroutine,
        Self::Asked,
        Self::AskedLocal,
        Self::AskedCoroutine,
    ];

    /// Returns `true` if a cancel asks the process to end, and does not drop it.
    fn is_asked(self) -> bool {
        matches!(self, Self::Asked | Self::AskedLocal | Self::AskedCoroutine)
    }

    fn options(self, scheduler: &Scheduler) -> SpawnOptions {
        let options = SpawnOptions::new().on(scheduler);
        if self.is_asked() { options } else { options.on_cancel(OnCancel::Drop) }
    }

    fn waits(self, scheduler: &Scheduler, wait: MakeWait, reports: Reports) -> JoinHandle<Ended> {
        let options = self.options(scheduler);
        let child = match self {
            Self::Plain => return options.spawn(endless(wait, reports)),
            Self::Local => return options.spawn_local(move || endless(wait, reports)),
            Self::Dropped => options.start(move |_: Context<()>| endless(wait, reports)),
            Self::DroppedLocal => options.start_local(move |_: Context<()>| endless(wait, reports)),
            Self::Asked => options.start(move |_: Context<()>| until_asked(wait, reports)),
            Self::AskedLocal => {
                options.start_local(move |_: Context<()>| until_asked(wait, reports))
            }
            Self::DroppedCoroutine | Self::AskedCoroutine => {
                let begun = options.try_start_coroutine(move |_: coroutine::Context<()>| {
                    let _reports = reports;
                    if self.is_asked() {
                        let waited = until_cancelled(wait()).wait();
                        return if waited.is_some() { Ended::ByItself } else { Ended::Asked };
                    }
                    wait().wait();
                    Ended::ByItself
                });
                begun.expect("coroutines are enabled")
            }
        };
        child.into_parts().1
    }

    /// Returns `true` if the process has a [`Context`].
    fn has_context(self) -> bool {
        matches!(self, Self::Dropped | Self::DroppedLocal | Self::Asked | Self::AskedLocal)
    }

    fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::DroppedLocal | Self::AskedLocal)
    }

    fn receives(
        self,
        scheduler: &Scheduler,
        receive: MakeReceive,
        reports: Reports,
    ) -> JoinHandle<Ended> {
        let options = self.options(scheduler);
        let received = move |cx| received(receive(cx), reports);
        let child =
            if self.is_local() { options.start_local(received) } else { options.start(received) };
        child.into_parts().1
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    ByItself,
    Asked,
}

impl procession::process::Outcome for Ended {}

/// A way to end a process from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    Cancel,
    Terminate,
    Signal,
    /// A cancel while the process is suspended.
    CancelSuspended,
}

impl Blow {
    const ALL: [Self; 4] = [Self::Cancel, Self::Terminate, Self::Signal, Self::CancelSuspended];

    fn strike(self, scheduler: &Scheduler, pid: procession::Pid) {
        match self {
            Self::Cancel => assert!(procession::process::cancel(pid)),
            Self::Terminate => assert!(procession::process::kill(pid)),
            Self::Signal => assert!(send_exit(pid, Exit::failed("signal"))),
            Self::CancelSuspended => {
                scheduler.suspend(pid).expect("it lives");
                scheduler.run_until_idle();
                assert!(procession::process::cancel(pid));
            }
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Cancel | Self::CancelSuspended => Exit::Shutdown,
            Self::Terminate => Exit::Killed,
            Self::Signal => Exit::failed("signal"),
        }
    }
}

/// Creates a scheduler with coroutines on the test clock, which this thread drives for a width of
/// 0.
fn scheduler(width: usize) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(width.max(1)).test_clock();
    let builder = if width == 0 { builder.callers_drive() } else { builder };
    // SAFETY: no coroutine here keeps a thread-local pointer across a suspension.
    #[expect(unsafe_code, reason = "coroutines are enabled by a promise")]
    let builder = unsafe { builder.enable_coroutines() };
    builder.build().expect("there are threads")
}

#[test]
fn each_kind_of_process_is_ended_in_each_kind_of_wait() {
    for width in [0, 2] {
        for blow in Blow::ALL {
            let scheduler = scheduler(width);
            let (drops, dropped) = mpsc::channel();
            let reports = |name: &'static str| Reports(name, drops.clone());
            let mut all = Vec::new();
            for kind in Kind::ALL {
                for &(name, wait) in WAITS {
                    all.push((kind, name, kind.waits(&scheduler, wait, reports(name))));
                }
                for &(name, receive) in RECEIVES.iter().filter(|_| kind.has_context()) {
                    all.push((kind, name, kind.receives(&scheduler, receive, reports(name))));
                }
            }
            scheduler.run_until_idle();
            assert_eq!(dropped.try_iter().next(), None, "each wait lasts");
            let before = scheduler.now();
            for (kind, name, waits) in &all {
                assert!(!waits.is_finished(), "{kind:?} does not wait for {name}");
                blow.strike(&scheduler, waits.pid());
            }
            scheduler.run_until_idle();
            let count = all.len();
            for (kind, name, waits) in all {
                let case = format!("{kind:?} in a wait for {name}, {blow:?}, width {width}");
                assert!(waits.is_finished(), "{case}: it goes on");
                let is_cancel = matches!(blow, Blow::Cancel | Blow::CancelSuspended);
                let is_told = is_cancel && kind.is_asked();
                let expected = if is_told { Ok(Ended::Asked) } else { Err(blow.exit()) };
                assert_eq!(waits.join(), expected, "{case}");
            }
            assert_eq!(dropped.try_iter().count(), count, "each is dropped: {blow:?}");
            if width == 0 {
                assert_eq!(scheduler.now(), before, "nothing waited for a time");
            }
            assert_conserved(&scheduler);
        }
    }
}

/// A machine that waits with a sleep in flight.
struct Machine(WaitingFor);

impl Process for Machine {
    type Input = ();
    type Message = ();
    type Output = Ended;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Ended>, Box<dyn Error + Send + Sync>> {
        if let Some(event) = events.next() {
            let is_cancel = matches!(event, Event::Cancel);
            return Ok(Status::Done(if is_cancel { Ended::Asked } else { Ended::ByItself }));
        }
        yields.command(CommandId::SLEEP, 0, FOREVER);
        Ok(Status::Wait(self.0))
    }
}

#[test]
fn a_machine_is_ended_whatever_it_waits_for() {
    for width in [0, 2] {
        for waiting in [WaitingFor::Messages, WaitingFor::Completions, WaitingFor::Either] {
            for blow in Blow::ALL {
                let scheduler = scheduler(width);
                let machine =
                    SpawnOptions::new().on(&scheduler).try_start_machine(Machine(waiting), "", ());
                let (_, machine) = machine.expect("it takes any").into_parts();
                scheduler.run_until_idle();
                blow.strike(&scheduler, machine.pid());
                scheduler.run_until_idle();
                let case = format!("{waiting:?}, {blow:?}, width {width}");
                assert!(machine.is_finished(), "{case}: it goes on");
                let is_told = matches!(blow, Blow::Cancel | Blow::CancelSuspended);
                let expected = if is_told { Ok(Ended::Asked) } else { Err(blow.exit()) };
                assert_eq!(machine.join(), expected, "{case}");
                assert_eq!(scheduler.snapshot().timers.pending, 0, "{case}");
            }
        }
    }
}

/// What a wait holds or has asked for goes to the next that waits.
#[test]
fn a_wait_that_is_dropped_takes_nothing_along() {
    let scheduler = scheduler(0);
    let (lock, permits) = (Arc::new(Mutex::new(())), Arc::new(Semaphore::new(0)));
    let held = lock.try_lock().expect("it is free");
    for kind in [OnCancel::Ask, OnCancel::Drop] {
        let waits = || {
            let (lock, permits) = (Arc::clone(&lock), Arc::clone(&permits));
            let options = SpawnOptions::new().on(&scheduler).on_cancel(kind);
            let child = options.start(move |_: Context<()>| async move {
                let both = async {
                    drop(permits.acquire(1).await);
                    drop(lock.lock().await);
                };
                // Ignored: it ends when it is cancelled.
                let _ = until_cancelled(both).await;
            });
            child.into_parts().1
        };
        let [first, second] = [waits(), waits()];
        scheduler.run_until_idle();
        // The permit reaches the first one, which is cancelled before it can use it.
        permits.add_permits(1);
        first.cancel();
        scheduler.run_until_idle();
        assert!(first.is_finished());
        // The permit has gone to the second one, and back.
        assert_eq!(permits.available_permits(), 1, "{kind:?}");
        second.cancel();
        scheduler.run_until_idle();
        assert!(second.is_finished(), "{kind:?}");
        permits.try_acquire(1).expect("it is available").forget();
    }
    drop(held);
    assert!(lock.try_lock().is_ok(), "no wait that was dropped has the lock");
}
