//! The writes that helper threads and connections have accepted, until the system has their data.
//!
//! # Accepted writes
//!
//! ## Problem
//! A write of a file returns when a helper thread has a copy of the data. If the scheduler or the
//! program ends before the helper has run, the data is lost, although its writer has ended in
//! order. A connection to another node accepts messages in the same way, until its process has
//! written them.
//!
//! ## Owner
//! A write belongs to the scheduler on which it was accepted, or to no scheduler, and to the
//! program. A scheduler that shuts down waits for its own writes, and the end of the program waits
//! for all. So one table has the writes of the whole program, each with its scheduler.
//!
//! ## Steps
//! Writer: `Accept` enters a number into the table, before the job is submitted.
//!
//! Helper: `Settle` removes the number, after the call has returned and whatever its result is, and
//! wakes the waits for which it was the last one.
//!
//! Waiter: notes how many of its writes are in the table. Writes that are accepted later do not
//! prolong its wait. A shutdown that gives up takes the numbers out of the table. So each write is
//! reported once, and the end of the program does not wait for it again.
//!
//! ## Losses
//! The next operation on a file returns the error of a failed write. Until then the write counts as
//! lost, in the step in which it leaves the table. If there is no next operation, because the file
//! was dropped, the end of the scheduler or of the program reports the loss. A connection that
//! ends in order and leaves messages reports their number in the same way. If a shutdown gives up a
//! connection, the process of the connection is one of those that it reports.
//!
//! ## Allowed
//! A reader of the count of accepted writes may miss a write that does not happen before its look.
//!
//! ## Checked by
//! The tests below, and `tests/it/files/ends.rs`. Everything else is plain data under one lock.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::io::stderr;
use std::ops::Range;
use std::pin::Pin;
use std::process;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Pid;
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::current;
use crate::sys::{World, os};

/// The longest time for which the end of the program, and a `block_on` on a plain thread, waits for
/// writes. It is above the time that a busy disk takes for some MiB, and below the patience of
/// most service managers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

static WRITES: Mutex<Writes> = Mutex::new(Writes::new());
/// Wakes the thread that ends the program.
static PROGRESS: Condvar = Condvar::new();
/// The number of writes that were accepted, which is the number of the last one.
static ACCEPTED: AtomicU64 = AtomicU64::new(0);

/// What a write consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    /// The data of one operation.
    Data,
    /// The messages that wait in a connection.
    Messages,
}

/// Where a write was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WriteOrigin {
    content: Content,
    scheduler: Option<u32>,
    /// `false` in a simulated program, whose end is not that of this program.
    is_real: bool,
}

struct Writes {
    /// The writes that have not ended, by number.
    pending: BTreeMap<u64, WriteOrigin>,
    /// The writes that failed, while their errors can still be received.
    failed: BTreeMap<u64, WriteOrigin>,
    /// The number of writes that failed and whose errors nobody has received, or of messages that
    /// connections have left.
    lost: BTreeMap<WriteOrigin, u64>,
    waits: BTreeMap<u64, WriteWait>,
    last_wait: u64,
}

struct WriteWait {
    scheduler: u32,
    numbers: Range<u64>,
    /// The number of its writes that have not ended.
    left: usize,
    waker: Option<Waker>,
}

impl Writes {
    const fn new() -> Self {
        Self {
            pending: BTreeMap::new(),
            failed: BTreeMap::new(),
            lost: BTreeMap::new(),
            waits: BTreeMap::new(),
            last_wait: 0,
        }
    }

    /// Returns the accepted writes of this program up to a number.
    fn pending_until(&self, last: u64) -> impl Iterator<Item = WriteOrigin> {
        self.pending.range(..=last).map(|(_, origin)| *origin).filter(|origin| origin.is_real)
    }
}

/// Returns the number of writes that this program has accepted so far.
#[inline]
pub(crate) fn accepted() -> u64 {
    // Relaxed: a thread that was told of a write sees it counted, and others need not.
    ACCEPTED.load(Relaxed)
}

/// A write that was accepted. Dropping it says that its call has returned.
#[derive(Debug)]
pub(crate) struct AcceptedWrite {
    number: u64,
    origin: WriteOrigin,
    has_failed: bool,
    /// The messages that are lost.
    lost: u64,
}

impl AcceptedWrite {
    /// Accepts a write for the scheduler of this thread.
    pub(crate) fn begin() -> Self {
        Self::of(Content::Data, current::here().map(|shared| shared.id()))
    }

    fn of(content: Content, scheduler: Option<u32>) -> Self {
        let origin = WriteOrigin { content, scheduler, is_real: os::here().is_none() };
        if origin.is_real {
            wait_at_exit();
        }
        let mut writes = WRITES.lock();
        // Relaxed: the lock orders the numbers.
        let number = ACCEPTED.load(Relaxed) + 1;
        ACCEPTED.store(number, Relaxed);
        writes.pending.insert(number, origin);
        Self { number, origin, has_failed: false, lost: 0 }
    }

    /// Ends a write that the system has refused.
    pub(crate) fn fail(mut self) -> LostWrite {
        self.has_failed = true;
        LostWrite(self.number)
    }
}

impl Drop for AcceptedWrite {
    fn drop(&mut self) {
        let mut writes = WRITES.lock();
        if writes.pending.remove(&self.number).is_none() {
            // Given up.
            return;
        }
        if self.has_failed {
            writes.failed.insert(self.number, self.origin);
        }
        if self.lost > 0 {
            *writes.lost.entry(self.origin).or_default() += self.lost;
        }
        let mut woken = Vec::new();
        for wait in writes.waits.values_mut() {
            if self.origin.scheduler == Some(wait.scheduler) && wait.numbers.contains(&self.number)
            {
                wait.left -= 1;
                if wait.left == 0 {
                    woken.extend(wait.waker.take());
                }
            }
        }
        drop(writes);
        PROGRESS.notify_all();
        for waker in woken {
            drop(guarded(|| waker.wake()));
        }
    }
}

/// A write that failed. It counts as lost until its error is returned to its writer.
#[derive(Debug)]
pub(crate) struct LostWrite(u64);

impl LostWrite {
    /// Notes that the writer has received the error.
    pub(crate) fn returned(self) {
        WRITES.lock().failed.remove(&self.0);
    }
}

impl Drop for LostWrite {
    fn drop(&mut self) {
        let mut writes = WRITES.lock();
        if let Some(origin) = writes.failed.remove(&self.0) {
            *writes.lost.entry(origin).or_default() += 1;
        }
    }
}

/// Messages that a connection to another node has accepted and has not sent. Dropping it says that
/// the system has all of them.
///
/// It is for crates that connect programs, such as `procession-cluster`. While it exists, an
/// orderly end [waits](crate::fs#at-the-end), as it does for writes of files: a
/// [shutdown](crate::Scheduler::shutdown) of the connection's scheduler, a
/// [`block_on`](crate::Scheduler::block_on) that ends on a plain thread, and the end of the
/// program.
///
/// ```
/// use std::time::Duration;
/// use procession::relay::Outgoing;
/// use procession::{Scheduler, sleep};
///
/// let scheduler = Scheduler::builder().build()?;
/// let connection = scheduler.spawn(async { sleep(Duration::from_secs(60)).await });
/// let outgoing = Outgoing::accept(connection.pid());
/// // The connection has to end before it has sent all.
/// outgoing.lose(2);
/// let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(1)));
/// assert_eq!(unfinished.messages, 2);
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Outgoing(AcceptedWrite);

impl Outgoing {
    /// Notes that messages wait in a connection, which is a process of this program.
    pub fn accept(connection: Pid) -> Self {
        Self(AcceptedWrite::of(Content::Messages, Some(connection.scheduler())))
    }

    /// Says that the connection has ended and that some messages may be lost. The shutdown of its
    /// scheduler returns their number, or the end of the program prints it.
    pub fn lose(mut self, messages: u64) {
        self.0.lost = messages;
    }
}

/// What the end of a scheduler leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unwritten {
    /// Writes that are not done or lost.
    pub(crate) writes: usize,
    /// Messages to other nodes that are lost.
    pub(crate) messages: u64,
}

/// A wait for the writes of a scheduler that are accepted by now.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct SettledWrites {
    scheduler: u32,
    number: u64,
}

impl SettledWrites {
    /// Returns a wait for the writes after the first `before` of the program.
    pub(crate) fn of(scheduler: u32, before: u64) -> Self {
        let mut writes = WRITES.lock();
        let numbers = before + 1..accepted().max(before) + 1;
        let of_this = writes.pending.range(numbers.clone());
        let left = of_this.filter(|(_, origin)| origin.scheduler == Some(scheduler)).count();
        writes.last_wait += 1;
        let number = writes.last_wait;
        writes.waits.insert(number, WriteWait { scheduler, numbers, left, waker: None });
        Self { scheduler, number }
    }

    /// Returns `true` if nothing is left to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        WRITES.lock().waits[&self.number].left == 0
    }

    /// Gives up what is left. Returns the number of writes that are not done or lost, each of which
    /// is reported only once.
    pub(crate) fn give_up(self) -> Unwritten {
        let mut writes = WRITES.lock();
        let Self { scheduler, number } = self;
        let numbers = writes.waits[&number].numbers.clone();
        let is_own = |origin: &WriteOrigin| origin.scheduler == Some(scheduler);
        let given_up = writes.pending.extract_if(numbers, |_, origin| is_own(origin));
        let is_data = |(_, origin): &(u64, WriteOrigin)| origin.content == Content::Data;
        let mut left = Unwritten { writes: given_up.filter(is_data).count(), messages: 0 };
        left.writes += writes.failed.extract_if(.., |_, origin| is_own(origin)).count();
        for (origin, lost) in writes.lost.extract_if(.., |origin, _| is_own(origin)) {
            match origin.content {
                Content::Data => left.writes += lost as usize,
                Content::Messages => left.messages += lost,
            }
        }
        left
    }
}

impl Future for SettledWrites {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        // Cloned and dropped outside the lock: both are the user's code.
        let waker = task.waker().clone();
        let mut writes = WRITES.lock();
        let wait = writes.waits.get_mut(&self.number).expect("its drop removes it");
        let is_settled = wait.left == 0;
        let old = if is_settled { Some(waker) } else { wait.waker.replace(waker) };
        drop(writes);
        drop_guarded(old);
        if is_settled { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for SettledWrites {
    fn drop(&mut self) {
        let removed = WRITES.lock().waits.remove(&self.number);
        drop_guarded(removed);
    }
}

/// Lets the end of the program wait for writes.
fn wait_at_exit() {
    /// The program that registered the function. A child of `fork` has no helpers to wait for.
    static PROGRAM: OnceLock<u32> = OnceLock::new();

    extern "C" fn wait() {
        if PROGRAM.get() != Some(&process::id()) {
            return;
        }
        let last = accepted();
        let (mut writes, _) = PROGRESS.wait_timeout_while(WRITES.lock(), PATIENCE, |writes| {
            writes.pending_until(last).next().is_some()
        });
        let mut found = UnwrittenAtExit::default();
        for origin in writes.pending_until(last) {
            match origin.content {
                Content::Data => found.left += 1,
                Content::Messages => found.connections += 1,
            }
        }
        found.lost = writes.failed.values().filter(|origin| origin.is_real).count() as u64;
        for (origin, lost) in std::mem::take(&mut writes.lost) {
            match origin.content {
                _ if !origin.is_real => {}
                Content::Data => found.lost += lost,
                Content::Messages => found.messages += lost,
            }
        }
        drop(writes);
        if found != UnwrittenAtExit::default() {
            tell(&found);
        }
    }

    PROGRAM.get_or_init(|| {
        World::at_exit(wait);
        process::id()
    });
}

/// Writes a line to standard error, unless that would wait. A helper may hold the lock of std.
fn tell(line: &dyn Display) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_ready = poll(&mut [PollFd::new(&stderr(), PollFlags::OUT)], Some(&now));
    if is_ready == Ok(1) {
        // Ignored: a standard error that is closed has no reader.
        let _ = rustix::io::write(stderr(), format!("{line}\n").as_bytes());
    }
}

/// What the end of the program has to leave, in words.
#[derive(Default, PartialEq, Eq)]
struct UnwrittenAtExit {
    /// Writes that have not ended.
    left: u64,
    /// Writes that have failed.
    lost: u64,
    /// Connections to other nodes that have not sent all messages.
    connections: u64,
    /// Messages that connections have left.
    messages: u64,
}

impl Display for UnwrittenAtExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { left, lost, connections, messages } = self;
        let in_time = format!("did not end within {} s", PATIENCE.as_secs());
        let parts = [
            (*left, "write", &*in_time),
            (*lost, "write", "failed, and nobody asked for the error"),
            (*connections, "connection", "had messages left"),
            (*messages, "message", "to other nodes may be lost"),
        ];
        f.write_str("procession: the program ends and data is lost: ")?;
        let mut comma = "";
        for (count, noun, what) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            let plural = if count == 1 { "" } else { "s" };
            write!(f, "{comma}{count} {noun}{plural} {what}")?;
            comma = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::{AcceptedWrite, Content, Outgoing, SettledWrites, Unwritten};
    use super::{WRITES, WriteOrigin, accepted};
    use crate::Scheduler;

    fn scheduler() -> Scheduler {
        Scheduler::builder().worker_threads(1).build().expect("the system has threads")
    }

    /// Accepts a write on a scheduler.
    fn accept(scheduler: &Scheduler) -> AcceptedWrite {
        let _entered = scheduler.enter();
        AcceptedWrite::begin()
    }

    fn is_settled(wait: &mut SettledWrites) -> bool {
        let mut task = Context::from_waker(Waker::noop());
        Future::poll(Pin::new(wait), &mut task).is_ready()
    }

    #[test]
    fn a_scheduler_waits_for_its_own_writes_and_for_those_of_its_time() {
        let (own, other) = (scheduler(), scheduler());
        let early = accept(&own);
        let before = accepted();
        let (write, foreign) = (accept(&own), accept(&other));
        let mut all = SettledWrites::of(own.id(), 0);
        let mut since = SettledWrites::of(own.id(), before);
        let late = accept(&own);
        assert!(!is_settled(&mut all) && !is_settled(&mut since));
        drop(write);
        assert!(!is_settled(&mut all) && is_settled(&mut since));
        drop(early);
        assert!(is_settled(&mut all), "neither the foreign write nor the late one counts");
        drop((foreign, late));
    }

    #[test]
    fn the_next_write_is_not_awaited_by_an_earlier_wait() {
        let own = scheduler();
        let mut wait = SettledWrites::of(own.id(), accepted());
        drop(accept(&own));
        assert!(is_settled(&mut wait));
    }

    #[test]
    fn what_is_given_up_or_lost_is_reported_once() {
        let own = scheduler();
        let (slow, told) = (accept(&own), accept(&own));
        let (failed, kept) = (accept(&own), accept(&own));
        drop(failed.fail());
        told.fail().returned();
        let kept = kept.fail();
        assert_eq!(SettledWrites::of(own.id(), 0).give_up().writes, 3);
        drop(kept);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up().writes, 0);
        drop(slow);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up().writes, 0);
        let own = WriteOrigin { content: Content::Data, scheduler: Some(own.id()), is_real: true };
        let writes = WRITES.lock();
        assert!(!writes.lost.contains_key(&own));
        assert!(!writes.pending.values().chain(writes.failed.values()).any(|at| *at == own));
    }

    #[test]
    fn messages_are_awaited_and_counted_apart() {
        let own = scheduler();
        let connection = own.spawn(std::future::pending::<()>()).pid();
        let [sent, cut] = [(); 2].map(|()| Outgoing::accept(connection));
        let mut wait = SettledWrites::of(own.id(), 0);
        drop(sent);
        assert!(!is_settled(&mut wait));
        cut.lose(5);
        assert!(is_settled(&mut wait));
        assert_eq!(wait.give_up(), Unwritten { writes: 0, messages: 5 });
        // A connection that is given up is one of the processes.
        let stuck = Outgoing::accept(connection);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up(), Unwritten::default());
        stuck.lose(1);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up(), Unwritten::default());
    }
}
