//! Common parts of many tests.

use crate::home::mpsc::{Receiver, channel};
use crate::home::thread::{self, ThreadId};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::observe::{ProcessInfo, ProcessState, Snapshot, detail};
use procession::scheduler::Builder;
use procession::time::Instant as Now;
use procession::{Pid, Scheduler};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

/// Only a hang takes longer, so this decides only how soon a hang is reported.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Creates a scheduler with one worker, which is the calling thread, and a clock that moves when
/// nothing else can.
pub(crate) fn driven() -> Scheduler {
    Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread")
}

/// Returns a builder of schedulers without a tokio runtime, for tests that count threads, or that
/// take threads or descriptors away.
pub(crate) fn alone() -> Builder {
    let builder = Scheduler::builder();
    #[cfg(feature = "tokio")]
    let builder = builder.tokio_threads(0);
    builder
}

/// Creates a scheduler with workers on their own threads, and the real clock.
pub(crate) fn threaded(width: usize) -> Scheduler {
    alone().worker_threads(width).build().expect("the system has threads")
}

/// Creates a scheduler like [`threaded`], without a watchdog, for tests that look at which worker
/// runs what. The watchdog hands the worker of a slow step to another thread, and on a busy machine
/// any step can be slow.
pub(crate) fn unwatched(width: usize) -> Scheduler {
    let builder = alone().worker_threads(width).watchdog(false);
    builder.build().expect("the system has threads")
}

/// Returns the next value that another thread sends.
#[track_caller]
pub(crate) fn soon<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(TIMEOUT).expect("it comes soon")
}

/// Waits until every sender is gone.
#[track_caller]
pub(crate) fn soon_closed<T: Debug>(from: &Receiver<T>) {
    let end = from.recv_timeout(TIMEOUT);
    assert_eq!(
        end.expect_err("nothing more is sent").to_string(),
        "channel is empty and sending half is closed"
    );
}

/// Shows that `width` steps run at the same time: each waits, without a section, for all others to
/// have begun.
pub(crate) fn meet(scheduler: &Scheduler, width: usize) {
    let here = Arc::new(AtomicUsize::new(0));
    let (meets, met) = channel();
    for _ in 0..width {
        let (here, meets) = (Arc::clone(&here), meets.clone());
        drop(scheduler.spawn(async move {
            here.fetch_add(1, SeqCst);
            while here.load(SeqCst) < width {
                thread::yield_now();
            }
            meets.send(()).expect("the test listens");
        }));
    }
    (0..width).for_each(|_| soon(&met));
}

/// Shows that processes of one worker begin on two. A worker that has begun [`ENOUGH`] of them
/// stays in its step until another worker has begun as many. So the result does not depend on how
/// soon the system lets a worker run.
///
/// [`ENOUGH`]: Self::ENOUGH
#[derive(Default)]
pub(crate) struct SpreadBegins(Mutex<Vec<(ThreadId, u32)>>);

impl SpreadBegins {
    const ENOUGH: u32 = 30;

    /// Notes that a process begins on this thread.
    pub(crate) fn note(&self) {
        let here = thread::current().id();
        let begun = {
            let mut begun = self.0.lock();
            if !begun.iter().any(|(thread, _)| *thread == here) {
                begun.push((here, 0));
            }
            let own = begun.iter_mut().find(|(thread, _)| *thread == here);
            own.map_or(0, |own| {
                own.1 += 1;
                own.1
            })
        };
        let end = Now::now() + TIMEOUT;
        while begun == Self::ENOUGH && !self.is_spread() && Now::now() < end {
            thread::yield_now();
        }
    }

    /// Returns `true` if two threads have begun enough.
    pub(crate) fn is_spread(&self) -> bool {
        self.0.lock().iter().filter(|begun| begun.1 >= Self::ENOUGH).count() == 2
    }
}

/// Panics like `panic!`, but prints nothing.
pub(crate) fn panic_quietly(text: &str) -> ! {
    std::panic::resume_unwind(Box::new(text.to_owned()))
}

/// Returns the processes that have not ended.
pub(crate) fn alive(snapshot: &Snapshot) -> impl Iterator<Item = &ProcessInfo> {
    snapshot.processes.iter().filter(|process| process.state != ProcessState::Complete)
}

/// Asserts that processes and messages are conserved, and that no process has a relation with one
/// that has ended, once nothing runs: an end is counted after the handle was woken for it.
#[track_caller]
pub(crate) fn assert_conserved(scheduler: &Scheduler) {
    scheduler.run_until_idle();
    let snapshot = scheduler.snapshot();
    let living: Vec<_> = alive(&snapshot).collect();
    assert_eq!(snapshot.spawned, snapshot.ended + living.len() as u64, "spawned = ended + alive");
    let theirs: u64 =
        living.iter().map(|process| u64::from(process.received) + u64::from(process.mailbox)).sum();
    let accounted = snapshot.messages_received + snapshot.messages_discarded + theirs;
    assert_eq!(snapshot.messages_sent, accounted, "sent = received + discarded + in mailboxes");
    // A process of another scheduler may be about to settle its relations.
    let settled = (0..1000).any(|_| {
        let is_whole = broken_relation(scheduler).is_none();
        if !is_whole {
            thread::yield_now();
            scheduler.run_until_idle();
        }
        is_whole
    });
    assert!(settled, "{}", broken_relation(scheduler).unwrap_or_default());
}

/// Returns a relation of a process with one that has ended, if there is any. The processes that it
/// monitors are left out, because it has yet to receive their downs.
fn broken_relation(scheduler: &Scheduler) -> Option<String> {
    let has_ended = |pid: &Pid| {
        let is_alive = |detail: ProcessInfo| detail.state != ProcessState::Complete;
        pid.node() == 0 && !detail(*pid).is_some_and(is_alive)
    };
    alive(&scheduler.snapshot()).find_map(|process| {
        let pid = process.pid;
        let detail = scheduler.detail(pid)?.relations?;
        let lists = [
            ("is linked with", &detail.links),
            ("is monitored by", &detail.monitors),
            ("has in its scope", &detail.scope),
        ];
        let dead = lists.into_iter().find_map(|(relation, list)| {
            let dead = list.first.iter().find(|pid| has_ended(pid))?;
            Some(format!("{pid} {relation} {dead}, which has ended"))
        });
        let name = detail.name.filter(|name| scheduler.whereis(name) != Some(pid));
        dead.or_else(|| name.map(|name| format!("{pid} has the name {name:?}, which is not its")))
    })
}

/// Waits until the system knows no process with this number, not even a zombie.
#[track_caller]
pub(crate) fn gone(id: u32) {
    let path = format!("/proc/{id}");
    #[expect(clippy::disallowed_methods, reason = "another program does not see the test clock")]
    let end = Instant::now() + TIMEOUT;
    while Path::new(&path).exists() {
        #[expect(clippy::disallowed_methods, reason = "as above")]
        let now = Instant::now();
        assert!(now < end, "process {id} stays");
        thread::yield_now();
    }
}
