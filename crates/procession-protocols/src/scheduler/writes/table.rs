//! The table of the writes that helper threads and connections have accepted.
//!
//! # Accepted writes
//!
//! ## Problem
//! A write of a file returns when a helper thread has a copy of the data. If the scheduler or the
//! program ends before the helper has run, the data is lost, although its writer has ended in
//! order. A connection to another node accepts messages in the same way, until its process has
//! written them. A closure of `spawn_blocking` may write as well, after its handle was dropped.
//!
//! ## Owner
//! A write belongs to the scheduler on which it was accepted, or to no scheduler, and to the
//! program. A scheduler that shuts down waits for its own writes, and the end of the program waits
//! for all. So one table has the writes of the whole program, each with its scheduler. Only a
//! shutdown waits for closures, because a closure may wait without end for what `main` does not
//! do any more. A shutdown within a closure does not wait for that closure.
//!
//! ## Steps
//! Writer: `Accept` enters a number into the table, before the job is submitted.
//!
//! Helper: `Settle` removes the number, after the call has returned and whatever its result is, and
//! wakes the waits for which it was the last one.
//!
//! Waiter: `Enlist` notes how many of its writes are in the table. Writes that are accepted later
//! do not prolong its wait. `Look` leaves a waker if a noted write is left. A shutdown that stops
//! waiting takes the numbers out of the table (`GiveUp`). So each write is reported once, and the
//! end of the program does not wait for it again. A `block_on` that stops waiting (`Expire`) marks
//! its writes as overdue: the end of the program does not wait for them either, and reports them.
//!
//! The deadline of a wait is kept by its scheduler, or by a thread once the scheduler has ended,
//! because timers of the scheduler have no thread then. The thread takes the waker of the wait
//! after the deadline. A poll looks at the table, which leaves the waker, and then at the clock. So
//! either the thread finds the waker, or the look at the clock finds the deadline.
//!
//! Each step is one critical section of the lock of the table. Wakers are cloned, woken and dropped
//! outside of this lock, because they are the user's code.
//!
//! ## Losses
//! The next operation on a file returns the error of a failed write. Until then the write counts as
//! lost, in the step in which it leaves the table. If there is no next operation, because the file
//! was dropped, the end of the scheduler or of the program reports the loss. A connection that ends
//! in order and leaves messages reports their number in the same way. If a shutdown no longer waits
//! for a connection, it reports the process of the connection with the other processes that are
//! left.
//!
//! ## Why it works
//! - `Settle` counts and takes the waker in one step. `Look` finds a count of 0, or leaves its
//!   waker before the step that makes it 0.
//! - A write that `GiveUp` has removed is out of the table, so the `Settle` of its helper finds
//!   nothing to count. `GiveUp` removes in the step that counts, so it removes no loss that it has
//!   not counted.
//!
//! ## Allowed
//! Each scheduler knows the number of its last write without the lock
//! (`Lifetime::last_write`). A reader may
//! miss a write that does not happen before its look.
//!
//! ## Rejected
//! One number of the last write for the whole program, without the lock. The end of a `block_on`
//! then waits because another scheduler has accepted a write. In a simulation that is a decision
//! that the seed does not know.
//!
//! ## Checked by
//! `models::*`: the last write against a wait; a failed write against the end of a shutdown. The
//! tests of `scheduler/writes.rs`, and `tests/it/files/ends.rs`.

use std::ops::Range;
use std::task::Waker;

use procession_sync::Mutex;

use crate::util::sorted_map::{SortedMap, SortedSet};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Settle` takes the wakers, and counts in a second step.
    pub const SETTLE_IN_TWO: u8 = 1;
    /// `GiveUp` counts what is left, and removes it in a second step.
    pub const GIVE_UP_IN_TWO: u8 = 2;
}

/// What a write consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// The data of one operation.
    Data,
    /// The messages that wait in a connection.
    Messages,
    /// What a closure does.
    Job,
}

/// The closures that a wait includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedJobs {
    /// No closure.
    None,
    /// All closures except the one in which the waiter runs, if that is one.
    AllBut(Option<u64>),
}

/// Where a write was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteOrigin {
    /// What the write consists of.
    pub content: Content,
    /// The scheduler on which the write was accepted, if there is one.
    pub scheduler: Option<u32>,
    /// `false` in a simulated program, because its end is not the end of this program.
    pub is_real: bool,
}

/// How a write has ended. By default, the system has all the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteEnd {
    /// `true` if the write has failed.
    pub has_failed: bool,
    /// The messages that are lost.
    pub lost: u64,
}

/// What the end of a scheduler leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Writes that are not done or lost.
    pub writes: usize,
    /// Messages to other nodes that are lost.
    pub messages: u64,
    /// Closures that have not returned.
    pub jobs: usize,
}

/// What the end of the program has to leave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnwrittenAtExit {
    /// Writes that have not ended.
    pub left: u64,
    /// Writes that have failed.
    pub lost: u64,
    /// Connections to other nodes that have not sent all messages.
    pub connections: u64,
    /// Messages that connections have left.
    pub messages: u64,
}

/// The lock of the table. The functions of this module are its steps.
pub type WriteTable = Mutex<Writes>;

/// The accepted writes of the program.
#[derive(Debug)]
pub struct Writes {
    /// The number of writes that were accepted, which is the number of the last one.
    accepted: u64,
    /// The writes that have not ended, by number.
    pending: SortedMap<u64, WriteOrigin>,
    /// The pending writes that a `block_on` has awaited as long as the end of the program would.
    overdue: SortedSet<u64>,
    /// The writes that failed, while their errors can still be received.
    failed: SortedMap<u64, WriteOrigin>,
    /// The number of failed writes with errors that nobody has received, or of messages that
    /// connections have left.
    lost: SortedMap<WriteOrigin, u64>,
    waits: SortedMap<u64, WriteWait>,
    last_wait: u64,
}

/// A wait for accepted writes.
#[derive(Debug)]
pub struct WriteWait {
    scheduler: u32,
    numbers: Range<u64>,
    jobs: AwaitedJobs,
    /// The number of its writes that have not ended.
    left: usize,
    waker: Option<Waker>,
}

impl WriteWait {
    fn is_of(&self, origin: WriteOrigin) -> bool {
        origin.scheduler == Some(self.scheduler)
    }

    fn is_for(&self, number: u64, origin: WriteOrigin) -> bool {
        let includes = match (origin.content, self.jobs) {
            (Content::Job, AwaitedJobs::None) => false,
            (Content::Job, AwaitedJobs::AllBut(own)) => own != Some(number),
            (Content::Data | Content::Messages, _) => true,
        };
        includes && self.is_of(origin) && self.numbers.contains(&number)
    }
}

impl Writes {
    /// Creates an empty table.
    pub const fn new() -> Self {
        Self {
            accepted: 0,
            pending: SortedMap::new(),
            overdue: SortedSet::new(),
            failed: SortedMap::new(),
            lost: SortedMap::new(),
            waits: SortedMap::new(),
            last_wait: 0,
        }
    }

    /// Returns the number of the last write.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// `Accept`. Returns the number of the write.
    pub fn accept(&mut self, origin: WriteOrigin) -> u64 {
        self.accepted += 1;
        self.pending.insert(self.accepted, origin);
        self.accepted
    }

    /// Removes a write after its writer has received the error.
    pub fn returned(&mut self, number: u64) {
        self.failed.remove(&number);
    }

    /// Counts a write as lost, unless its error was received or it was reported.
    pub fn lose(&mut self, number: u64) {
        if let Some(origin) = self.failed.remove(&number) {
            *self.lost.get_or_default(origin) += 1;
        }
    }

    /// `Enlist`, for the writes of a scheduler after the write with the number `before`. Returns
    /// the number of the wait.
    pub fn enlist(&mut self, scheduler: u32, before: u64, jobs: AwaitedJobs) -> u64 {
        let numbers = before + 1..self.accepted.max(before) + 1;
        let mut wait = WriteWait { scheduler, numbers, jobs, left: 0, waker: None };
        wait.left = self.left_of(&wait).len();
        self.last_wait += 1;
        self.waits.insert(self.last_wait, wait);
        self.last_wait
    }

    /// Returns `true` if nothing is left of a wait.
    pub fn is_settled(&self, wait: u64) -> bool {
        self.waits[&wait].left == 0
    }

    /// `Look`. Returns whether nothing is left, and a waker to be dropped outside the lock.
    pub fn look(&mut self, wait: u64, waker: Waker) -> (bool, Option<Waker>) {
        let wait = self.waits.get_mut(&wait).expect("its drop removes it");
        if wait.left == 0 { (true, Some(waker)) } else { (false, wait.waker.replace(waker)) }
    }

    /// `Expire`.
    pub fn note_overdue(&mut self, wait: u64) {
        let left = self.left_of(&self.waits[&wait]);
        self.overdue.extend(left);
    }

    /// Removes a wait, to be dropped outside the lock.
    pub fn leave(&mut self, wait: u64) -> Option<WriteWait> {
        self.waits.remove(&wait)
    }

    /// Removes a write, for `Settle` or `GiveUp`. Returns the wakers of the waits that have nothing
    /// left, or `None` if the write was removed before.
    fn remove(&mut self, number: u64) -> Option<Vec<Waker>> {
        let origin = self.pending.remove(&number)?;
        self.overdue.remove(&number);
        let mut woken = Vec::new();
        for wait in self.waits.values_mut().filter(|wait| wait.is_for(number, origin)) {
            wait.left -= 1;
            if wait.left == 0 {
                woken.extend(wait.waker.take());
            }
        }
        Some(woken)
    }

    /// Returns the writes of a wait that have not ended.
    fn left_of(&self, wait: &WriteWait) -> Vec<u64> {
        let pending = self.pending.range(wait.numbers.clone());
        let left = pending.filter(|(number, origin)| wait.is_for(**number, **origin));
        left.map(|(number, _)| *number).collect()
    }

    /// Returns what is left of a wait, with the losses of its scheduler.
    fn unwritten_of(&self, wait: &WriteWait) -> Unwritten {
        let writes = self.failed.values().filter(|origin| wait.is_of(**origin)).count();
        let mut unwritten = Unwritten { writes, messages: 0, jobs: 0 };
        for number in self.left_of(wait) {
            match self.pending[&number].content {
                Content::Data => unwritten.writes += 1,
                // The connection is one of the processes that are left.
                Content::Messages => {}
                Content::Job => unwritten.jobs += 1,
            }
        }
        for (origin, lost) in self.lost.iter().filter(|(origin, _)| wait.is_of(**origin)) {
            match origin.content {
                Content::Data => unwritten.writes += *lost as usize,
                Content::Messages => unwritten.messages += lost,
                Content::Job => {}
            }
        }
        unwritten
    }

    /// Returns `true` if a write of this program up to the `last` one has not ended, and the end of
    /// the program is to wait for it.
    pub fn is_awaited_until(&self, last: u64) -> bool {
        let mut pending = self.pending.range(..=last);
        pending.any(|(number, origin)| {
            origin.is_real && origin.content != Content::Job && !self.overdue.contains(number)
        })
    }

    /// Takes the losses of this program. Returns them with the number of writes up to `last` that
    /// have not ended.
    pub fn take_losses(&mut self, last: u64) -> UnwrittenAtExit {
        let mut found = UnwrittenAtExit::default();
        for origin in self.pending.range(..=last).map(|(_, origin)| origin) {
            match origin.content {
                _ if !origin.is_real => {}
                Content::Data => found.left += 1,
                Content::Messages => found.connections += 1,
                Content::Job => {}
            }
        }
        found.lost = self.failed.values().filter(|origin| origin.is_real).count() as u64;
        for (origin, lost) in self.lost.take_if(|origin, _| origin.is_real) {
            match origin.content {
                Content::Data => found.lost += lost,
                Content::Messages => found.messages += lost,
                Content::Job => {}
            }
        }
        found
    }

    /// Returns `true` if no write of this origin is remembered.
    pub fn has_none_of(&self, origin: WriteOrigin) -> bool {
        let mut written = self.pending.values().chain(self.failed.values());
        !self.lost.contains_key(&origin) && !written.any(|at| *at == origin)
    }
}

/// `Settle`. Returns the wakers of the waits that have nothing left.
pub fn settle<const MUTATION: u8>(
    table: &WriteTable,
    number: u64,
    origin: WriteOrigin,
    end: WriteEnd,
) -> Vec<Waker> {
    let mut writes = table.lock();
    if MUTATION == mutation::SETTLE_IN_TWO {
        let last = writes.waits.values_mut().filter(|wait| wait.left == 1);
        let woken = last.filter_map(|wait| wait.waker.take()).collect();
        drop(writes);
        table.lock().remove(number);
        return woken;
    }
    let Some(woken) = writes.remove(number) else {
        return Vec::new();
    };
    if end.has_failed {
        writes.failed.insert(number, origin);
    }
    if end.lost > 0 {
        *writes.lost.get_or_default(origin) += end.lost;
    }
    woken
}

/// `GiveUp`. Removes the wait, and returns the number of its writes that are not done or lost, each
/// of which is reported only once. Also returns the wakers of other waits, because these waits do
/// not wait for such writes any more.
pub fn give_up<const MUTATION: u8>(table: &WriteTable, wait: u64) -> (Unwritten, Vec<Waker>) {
    let mut writes = table.lock();
    let Some(wait) = writes.waits.remove(&wait) else {
        return (Unwritten::default(), Vec::new());
    };
    let left = writes.left_of(&wait);
    let unwritten = writes.unwritten_of(&wait);
    if MUTATION == mutation::GIVE_UP_IN_TWO {
        drop(writes);
        writes = table.lock();
    }
    let mut wakers = Vec::new();
    for number in left {
        wakers.extend(writes.remove(number).into_iter().flatten());
    }
    writes.failed.retain(|_, origin| !wait.is_of(*origin));
    writes.lost.retain(|origin, _| !wait.is_of(*origin));
    wakers.extend(wait.waker);
    (unwritten, wakers)
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::sync::Arc as StdArc;
    use std::task::{Wake, Waker};

    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{
        AwaitedJobs, Content, WriteEnd, WriteOrigin, WriteTable, Writes, give_up, mutation, settle,
    };

    const OWN: WriteOrigin =
        WriteOrigin { content: Content::Data, scheduler: Some(7), is_real: true };
    const FAILED: WriteEnd = WriteEnd { has_failed: true, lost: 0 };

    /// A waker that records that it was woken.
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: StdArc<Self>) {
            // Relaxed: the model reads it after it has joined the thread.
            self.0.store(true, Relaxed);
        }
    }

    fn table() -> Arc<WriteTable> {
        Arc::new(Mutex::new(Writes::new()))
    }

    /// The last write of a scheduler ends as the scheduler begins to wait for it.
    fn settle_against_look<const MUTATION: u8>() {
        explore(|| {
            let table = table();
            let number = table.lock().accept(OWN);
            let helper = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let woken = settle::<MUTATION>(&table, number, OWN, WriteEnd::default());
                    woken.into_iter().for_each(Waker::wake);
                })
            };
            let wait = table.lock().enlist(7, 0, AwaitedJobs::None);
            let woken = StdArc::new(Woken(AtomicBool::new(false)));
            let waker = Waker::from(StdArc::clone(&woken));
            let (is_settled, old) = table.lock().look(wait, waker);
            drop(old);
            helper.join().expect("it does not panic");
            // Relaxed: the join orders it.
            assert!(is_settled || woken.0.load(Relaxed), "a wait misses its last write");
            assert!(table.lock().is_settled(wait));
            drop(table.lock().leave(wait));
        });
    }

    #[test]
    fn the_last_write_against_a_wait() {
        settle_against_look::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a wait misses its last write")]
    fn canary_settle_in_two() {
        settle_against_look::<{ mutation::SETTLE_IN_TWO }>();
    }

    /// A write fails while a shutdown executes `GiveUp`. The wait of the shutdown includes the
    /// write or not.
    fn fail_against_give_up<const MUTATION: u8>(is_awaited: bool) {
        explore(move || {
            let table = table();
            let early = is_awaited.then(|| table.lock().accept(OWN));
            let wait = table.lock().enlist(7, 0, AwaitedJobs::None);
            let number = early.unwrap_or_else(|| table.lock().accept(OWN));
            let shutdown = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let (count, wakers) = give_up::<MUTATION>(&table, wait);
                    drop(wakers);
                    count.writes
                })
            };
            drop(settle::<MUTATION>(&table, number, OWN, FAILED));
            table.lock().lose(number);
            let first = shutdown.join().expect("it does not panic");
            let rest = table.lock().enlist(7, 0, AwaitedJobs::None);
            let (second, wakers) = give_up::<MUTATION>(&table, rest);
            drop(wakers);
            assert_eq!(first + second.writes, 1, "a lost write is reported once");
        });
    }

    #[test]
    fn a_failed_write_against_the_end_of_a_shutdown() {
        for is_awaited in [false, true] {
            fail_against_give_up::<{ mutation::SOUND }>(is_awaited);
        }
    }

    #[test]
    #[should_panic(expected = "a lost write is reported once")]
    fn canary_give_up_in_two() {
        fail_against_give_up::<{ mutation::GIVE_UP_IN_TWO }>(false);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use procession_sync::Mutex;

    use super::{
        AwaitedJobs, Content, UnwrittenAtExit, WriteEnd, WriteOrigin, Writes, mutation, settle,
    };

    const OWN: WriteOrigin =
        WriteOrigin { content: Content::Data, scheduler: Some(7), is_real: true };

    #[test]
    fn the_first_write_of_all_is_not_awaited_by_an_earlier_wait() {
        let table = Mutex::new(Writes::new());
        let wait = table.lock().enlist(7, 0, AwaitedJobs::None);
        let number = table.lock().accept(OWN);
        drop(settle::<{ mutation::SOUND }>(&table, number, OWN, WriteEnd::default()));
        assert!(table.lock().is_settled(wait));
    }

    #[test]
    fn the_end_of_the_program_reports_overdue_writes_and_waits_for_others() {
        let mut writes = Writes::new();
        let early = writes.accept(OWN);
        let wait = writes.enlist(7, 0, AwaitedJobs::None);
        let late = writes.accept(OWN);
        writes.note_overdue(wait);
        drop(writes.leave(wait));
        assert!(!writes.is_awaited_until(early));
        assert!(writes.is_awaited_until(late), "the wait began before this write");
        let table = Mutex::new(writes);
        drop(settle::<{ mutation::SOUND }>(&table, late, OWN, WriteEnd::default()));
        let mut writes = table.lock();
        assert!(!writes.is_awaited_until(late));
        assert_eq!(writes.take_losses(late), UnwrittenAtExit { left: 1, ..Default::default() });
    }
}
