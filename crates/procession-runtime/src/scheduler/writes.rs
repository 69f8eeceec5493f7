//! The writes that helper threads and connections have accepted, until the system has their data.
//! The protocol is on the page of [`table`].

use std::cell::Cell;
use std::fmt::Display;
use std::future::Future;
use std::io::stderr;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession_protocols::scheduler::writes::table::mutation::SOUND;
use procession_protocols::scheduler::writes::table::{
    AwaitedJobs, Content, Unwritten, UnwrittenAtExit, WriteEnd, WriteOrigin, WriteTable, Writes,
    give_up, settle,
};
use procession_sync::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Pid;
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::current;
use crate::scheduler::current::Hold;
use crate::scheduler::reach::reach;
use crate::scheduler::shared::Shared;
use crate::sys::{World, os};

/// The longest time for which the end of the program, and a `block_on` on a plain thread, waits for
/// writes. It is above the time that a busy disk takes for some MiB, and below the patience of
/// most service managers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

static WRITES: WriteTable = Mutex::new(Writes::new());
/// Wakes the thread that ends the program.
static PROGRESS: Condvar = Condvar::new();

/// A write that was accepted. Dropping it says that its call has returned.
#[derive(Debug)]
pub(crate) struct AcceptedWrite {
    number: u64,
    origin: WriteOrigin,
    end: WriteEnd,
}

impl AcceptedWrite {
    /// Accepts a write for the scheduler of this thread.
    pub(crate) fn begin() -> Self {
        let here = current::here();
        let scheduler = here.as_ref().map(|shared| shared.id());
        Self::of(Content::Data, scheduler, here)
    }

    /// Accepts a write for a scheduler, which may be gone.
    fn of(content: Content, scheduler: Option<u32>, shared: Option<Hold>) -> Self {
        let origin = WriteOrigin { content, scheduler, is_real: os::here().is_none() };
        let is_job = content == Content::Job;
        if origin.is_real && !is_job {
            wait_at_exit();
        }
        let number = WRITES.lock().accept(origin);
        if let Some(shared) = shared.filter(|_| !is_job) {
            shared.lifetime.note_write(number);
        }
        Self { number, origin, end: WriteEnd::default() }
    }

    /// Ends a write that the system has refused.
    pub(crate) fn fail(mut self) -> LostWrite {
        self.end.has_failed = true;
        LostWrite(self.number)
    }
}

impl Drop for AcceptedWrite {
    fn drop(&mut self) {
        let woken = settle::<SOUND>(&WRITES, self.number, self.origin, self.end);
        // The end of the program waits for no closure.
        match self.origin.content {
            Content::Job => wake_all(woken),
            _ => announce(woken),
        }
    }
}

thread_local! {
    /// The closure that runs on this thread.
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A closure for which the shutdown of a scheduler waits. Dropping it says that the closure has
/// returned or will not run.
#[derive(Debug)]
pub(crate) struct AcceptedJob(AcceptedWrite);

impl AcceptedJob {
    /// Accepts a closure for the scheduler of this thread, if there is one.
    pub(crate) fn begin() -> Option<Self> {
        let here = current::here()?;
        Some(Self(AcceptedWrite::of(Content::Job, Some(here.id()), Some(here))))
    }

    /// Notes that the closure runs on this thread until the returned value is dropped.
    pub(crate) fn run(self) -> RunningJob {
        let before = RUNNING.replace(Some(self.0.number));
        RunningJob { before, _job: self }
    }
}

/// A closure that runs on this thread.
#[must_use]
pub(crate) struct RunningJob {
    before: Option<u64>,
    _job: AcceptedJob,
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

/// Wakes the waiters of the entries that have left the table. Their wakers are the user's code.
fn announce(wakers: Vec<Waker>) {
    PROGRESS.notify_all();
    wake_all(wakers);
}

fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// A write that failed. It counts as lost until the writer has received the error.
#[derive(Debug)]
pub(crate) struct LostWrite(u64);

impl LostWrite {
    /// Notes that the writer has received the error.
    pub(crate) fn returned(self) {
        WRITES.lock().returned(self.0);
    }
}

impl Drop for LostWrite {
    fn drop(&mut self) {
        WRITES.lock().lose(self.0);
    }
}

/// Messages that a connection to another node has accepted and has not sent. Dropping it states
/// that the system has taken all these messages.
///
/// It is for crates that connect programs, such as `procession-cluster`. While it exists, an
/// orderly end [waits](crate::fs#at-the-end), as it does for writes of files: a
/// [shutdown](crate::Scheduler::shutdown) of the connection's scheduler, a
/// [`block_on`](crate::Scheduler::block_on) that ends on a plain thread, and the end of the
/// program.
///
/// ```
/// use std::time::Duration;
/// use procession::mailbox::relay::Outgoing;
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
        let scheduler = connection.scheduler();
        Self(AcceptedWrite::of(Content::Messages, Some(scheduler), reach(scheduler)))
    }

    /// Says that the connection has ended and that some messages may be lost. The shutdown of its
    /// scheduler returns their number, or the end of the program prints it.
    pub fn lose(mut self, messages: u64) {
        self.0.end.lost = messages;
    }
}

/// A wait for the writes of a scheduler that are accepted by now.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct SettledWrites {
    number: u64,
}

impl SettledWrites {
    /// Returns a wait for the writes of a scheduler after the one with the number `before`.
    pub(crate) fn of(scheduler: u32, before: u64) -> Self {
        Self { number: WRITES.lock().enlist(scheduler, before, AwaitedJobs::None) }
    }

    /// Returns a wait for all writes and closures of a scheduler, except the closure that waits. On
    /// a test clock, which would stand still until a closure returns, it leaves closures out.
    pub(crate) fn of_shutdown(shared: &Shared) -> Self {
        let is_limited = !shared.world.is_test();
        let jobs = if is_limited { AwaitedJobs::AllBut(RUNNING.get()) } else { AwaitedJobs::None };
        Self { number: WRITES.lock().enlist(shared.id(), 0, jobs) }
    }

    /// Returns `true` if nothing is left to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        WRITES.lock().is_settled(self.number)
    }

    /// Notes that what is left was waited for as long as the end of the program would.
    pub(crate) fn note_overdue(self) {
        WRITES.lock().note_overdue(self.number);
        PROGRESS.notify_all();
    }

    /// Abandons the remaining writes. Returns the number of writes that are not done or lost, each
    /// of which is reported only once.
    pub(crate) fn give_up(self) -> Unwritten {
        let (count, wakers) = give_up::<SOUND>(&WRITES, self.number);
        announce(wakers);
        count
    }
}

impl Future for SettledWrites {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        // Cloned and dropped outside the lock: both are the user's code.
        let waker = crate::process::waker::another(task.waker());
        let (is_settled, old) = WRITES.lock().look(self.number, waker);
        drop_guarded(old);
        if is_settled { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for SettledWrites {
    fn drop(&mut self) {
        let removed = WRITES.lock().leave(self.number);
        drop_guarded(removed);
    }
}

/// Lets the end of the program wait for writes.
fn wait_at_exit() {
    static REGISTERED: OnceLock<()> = OnceLock::new();

    fn wait() {
        let writes = WRITES.lock();
        let last = writes.accepted();
        let (mut writes, _) =
            PROGRESS.wait_timeout_while(writes, PATIENCE, |writes| writes.is_awaited_until(last));
        let found = writes.take_losses(last);
        drop(writes);
        if found != UnwrittenAtExit::default() {
            tell(&LostAtExit(found));
        }
    }

    REGISTERED.get_or_init(|| World::at_exit(wait));
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

/// What the end of the program leaves, as one line.
struct LostAtExit(UnwrittenAtExit);

impl Display for LostAtExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let UnwrittenAtExit { left, lost, connections, messages } = &self.0;
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

    use super::{AcceptedJob, AcceptedWrite, Content, Outgoing, SettledWrites, Unwritten};
    use super::{WRITES, WriteOrigin};
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
        let before = own.shared().lifetime.last_write();
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
        let last = WRITES.lock().accepted();
        let mut wait = SettledWrites::of(own.id(), last);
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
        assert!(WRITES.lock().has_none_of(own));
    }

    /// Two waits of one scheduler. The first wait abandons the write of both.
    #[test]
    fn a_write_that_was_given_up_holds_up_no_other_wait() {
        let own = scheduler();
        let write = accept(&own);
        let first = SettledWrites::of(own.id(), 0);
        let mut second = SettledWrites::of(own.id(), 0);
        assert!(!is_settled(&mut second));
        assert_eq!(first.give_up().writes, 1);
        assert!(is_settled(&mut second), "nothing is left to wait for");
        drop(write);
        assert_eq!(second.give_up().writes, 0);
    }

    #[test]
    fn only_a_shutdown_waits_for_closures_and_not_for_its_own() {
        let own = scheduler();
        let entered = own.enter();
        let [first, second] = [(); 2].map(|()| AcceptedJob::begin().expect("it is entered"));
        drop(entered);
        assert!(is_settled(&mut SettledWrites::of(own.id(), 0)));
        let running = first.run();
        let mut all = SettledWrites::of_shutdown(own.shared());
        assert!(!is_settled(&mut all));
        drop(second);
        assert!(is_settled(&mut all));
        drop(running);
        assert_eq!(all.give_up(), Unwritten::default());
        let _entered = own.enter();
        let _left = AcceptedJob::begin();
        assert_eq!(SettledWrites::of_shutdown(own.shared()).give_up().jobs, 1);
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
        assert_eq!(wait.give_up(), Unwritten { messages: 5, ..Unwritten::default() });
        // A connection that is given up is one of the processes.
        let stuck = Outgoing::accept(connection);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up(), Unwritten::default());
        stuck.lose(1);
        assert_eq!(SettledWrites::of(own.id(), 0).give_up(), Unwritten::default());
    }
}
