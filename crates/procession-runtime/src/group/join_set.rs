//! Sets of processes, which return results in the order of the ends.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker, ready};

use procession_protocols::sync::bell::Bell;
use procession_protocols::sync::wait_list::Place;
use procession_protocols::util::block_queue::BlockQueue;

use crate::process::served::WakeServed;
use crate::process::wait_reason::Waiting;
use crate::scheduler::listener;
use crate::scheduler::placed::placed;
use crate::scheduler::{budget, current};
use crate::spawn::join_handle::JoinHandle;
use crate::spawn::options::SpawnOptions;
use crate::{Exit, Pid};

/// The places of the processes that have ended, in the order of their ends. It rings for each.
type Ends = Bell<BlockQueue<usize>>;

/// The waker that a set leaves with the process at a place.
struct EndOf {
    place: usize,
    ends: Arc<Ends>,
}

impl EndOf {
    fn note(&self) {
        self.ends
            .ring_all_if(|ended| {
                ended.push_back(self.place);
                true
            })
            .wake();
    }
}

impl Wake for EndOf {
    fn wake(self: Arc<Self>) {
        self.note();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note();
    }
}

/// A set of processes with outputs of one type. It returns the results in the order in which the
/// processes end, whatever the order of the starts.
///
/// Dropping the set cancels all its processes. A process of [`spawn`](crate::spawn()) is then
/// dropped at its next suspension; see [`OnCancel`](crate::OnCancel) for other processes. The drop
/// does not wait for their ends. To wait, use [`shutdown`](Self::shutdown).
///
/// ```
/// use std::time::Duration;
/// use procession::process::JoinSet;
/// use procession::sleep;
///
/// procession::run(async {
///     let mut set = JoinSet::new();
///     for n in [3, 1, 2] {
///         set.insert(procession::spawn(async move {
///             sleep(Duration::from_millis(10 * n)).await;
///             n
///         }));
///     }
///     let first = set.join_next().await.expect("three processes were started")?;
///     assert_eq!(first, 1);
///     // The rest is not needed.
///     set.shutdown().await;
///     assert!(set.is_empty());
///     Ok::<(), procession::Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
pub struct JoinSet<T: Send + 'static> {
    members: Vec<Member<T>>,
    /// The places without a process.
    free: Vec<usize>,
    ends: Arc<Ends>,
    /// The oldest ends, which were taken out of `ends` under one lock.
    taken: BlockQueue<usize>,
    /// The place of the waiter in the bell, while a join waits.
    waiter: Option<Place>,
}

/// The number of free places, beyond the number of processes, at which a free place keeps its
/// waker. The wakers of these take about 16 KiB.
const SPARE_MAX: usize = 256;

/// A place in a set.
struct Member<T: Send + 'static> {
    handle: Option<JoinHandle<T>>,
    /// Serves all processes at this place, one after the other: a process wakes it once, before its
    /// result is taken.
    /// `None` at a free place, if many are free.
    end: Option<Waker>,
}

impl<T: Send + 'static> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self {
            members: Vec::new(),
            free: Vec::new(),
            ends: Arc::new(Bell::new(BlockQueue::new())),
            taken: BlockQueue::new(),
            waiter: None,
        }
    }

    /// Returns the number of processes in the set. An ended process counts until its result is
    /// taken.
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Returns `true` if the set has no processes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a process to the set. Returns its PID, with which it can be
    /// [cancelled](crate::relations::cancel()).
    ///
    /// If the scheduler has refused the process, the PID is [`Pid::NOBODY`], and the set returns
    /// [`Exit::Refused`] for it.
    ///
    /// ```
    /// use procession::process::JoinSet;
    /// use procession::{Exit, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let mut set = JoinSet::new();
    ///     set.insert(SpawnOptions::new().label("loader").spawn(async { 1 }));
    ///     set.insert(procession::start(|_: procession::Context<()>| async { 2 }).into_parts().1);
    ///     assert_eq!(set.join_all().await?.iter().sum::<i32>(), 3);
    ///     Ok::<(), Exit>(())
    /// })?;
    /// # Ok::<(), Exit>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the result was taken before, by polling the handle.
    pub fn insert(&mut self, mut handle: JoinHandle<T>) -> Pid {
        let pid = handle.pid();
        let free = self.free.last().copied();
        let place = free.unwrap_or(self.members.len());
        let end = match free.and_then(|place| self.members[place].end.take()) {
            Some(end) => end,
            None => Waker::from(Arc::new(EndOf { place, ends: Arc::clone(&self.ends) })),
        };
        note_end(&mut handle, &end);
        let member = Member { handle: Some(handle), end: Some(end) };
        if free.is_some() {
            self.members[place] = member;
            self.free.pop();
        } else {
            self.members.push(member);
        }
        pid
    }

    /// Waits for the next process to end, and returns its result. Returns `None` if the set is
    /// empty. The result is an `Err` if the process ended without an output.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no result is lost.
    #[track_caller]
    pub fn join_next(&mut self) -> impl Future<Output = Option<Result<T, Exit>>> {
        let joining = Joining(self);
        placed(async move { joining.next().await.map(|(_, result)| result) })
    }

    /// Waits for the next process to end, like [`join_next`](Self::join_next), and returns its PID
    /// with its result.
    ///
    /// ```
    /// use procession::process::JoinSet;
    ///
    /// procession::run(async {
    ///     let mut set = JoinSet::new();
    ///     let pid = set.insert(procession::spawn(async { 7 }));
    ///     assert_eq!(set.join_next_with_pid().await, Some((pid, Ok(7))));
    ///     assert_eq!(set.join_next_with_pid().await, None);
    /// });
    /// ```
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no result is lost.
    #[track_caller]
    pub fn join_next_with_pid(&mut self) -> impl Future<Output = Option<(Pid, Result<T, Exit>)>> {
        placed(Joining(self).next())
    }

    /// Polls for the result of the next process that ends, like
    /// [`join_next_with_pid`](Self::join_next_with_pid).
    ///
    /// While it is pending, the set keeps the waker of the last poll.
    pub fn poll_join_next(
        &mut self,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<(Pid, Result<T, Exit>)>> {
        if self.is_empty() {
            return Poll::Ready(None);
        }
        if !budget::charge(task) {
            return Poll::Pending;
        }
        let Self { ends, taken, waiter, .. } = self;
        let place = match taken.pop_front() {
            Some(place) => place,
            None => {
                let looked = listener::look_or_enlist(ends, waiter, task, |ends| next(taken, ends));
                if looked.is_pending() {
                    current::note_waiting_for_some(Waiting::PROCESS);
                }
                ready!(looked)
            }
        };
        Poll::Ready(Some(self.take(place)))
    }

    /// Returns the result of a process that has ended, without waiting. Returns `None` if no
    /// process has ended, or if the set is empty.
    #[doc(alias = "try_join_next")]
    pub fn next_ended(&mut self) -> Option<Result<T, Exit>> {
        self.next_ended_with_pid().map(|(_, result)| result)
    }

    /// Returns the result of a process that has ended, like [`next_ended`](Self::next_ended), with
    /// its PID.
    pub fn next_ended_with_pid(&mut self) -> Option<(Pid, Result<T, Exit>)> {
        budget::spend();
        let Self { ends, taken, .. } = self;
        let place =
            taken.pop_front().or_else(|| ends.change(|ringing| next(taken, &mut ringing.about)))?;
        Some(self.take(place))
    }

    fn take(&mut self, place: usize) -> (Pid, Result<T, Exit>) {
        let member = &mut self.members[place];
        let mut handle = member.handle.take().expect("a place that has ended is not free");
        self.free.push(place);
        if self.free.len() > SPARE_MAX {
            self.give_back(place);
        }
        (handle.pid(), handle.take_result())
    }

    /// Gives back what the set has for many more processes than are in it.
    #[cold]
    fn give_back(&mut self, place: usize) {
        if self.is_empty() {
            self.free = Vec::new();
            self.members = Vec::new();
        } else if self.free.len() > SPARE_MAX + self.len() {
            // The waker of this place, and another unused one: each process that is taken from the
            // set drops two wakers, so few are left when the set is small again.
            for free in [place, self.free[self.len()]] {
                self.members[free].end = None;
            }
        }
    }

    /// Waits for all processes, and returns their outputs in the order in which the processes
    /// ended.
    ///
    /// # Errors
    /// If a process ends without an output, cancels the remaining processes, waits for their ends,
    /// and returns its [`Exit`].
    ///
    /// # Cancellation
    /// If the future is dropped, the set is dropped, which cancels its processes.
    pub async fn join_all(mut self) -> Result<Vec<T>, Exit> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next().await {
            match result {
                Ok(output) => outputs.push(output),
                Err(exit) => {
                    self.shutdown().await;
                    return Err(exit);
                }
            }
        }
        Ok(outputs)
    }

    /// Cancels all processes of the set. They stay in the set until their results are taken.
    pub fn cancel_all(&mut self) {
        self.handles().for_each(JoinHandle::cancel);
    }

    /// Cancels all processes, waits for their ends, and drops their results.
    ///
    /// # Cancellation
    /// If the future is dropped, the processes that have not ended stay in the set, cancelled.
    pub async fn shutdown(&mut self) {
        self.cancel_all();
        while self.join_next().await.is_some() {}
    }

    /// Removes all processes from the set without cancelling them. They continue, and their results
    /// are dropped when they end.
    pub fn detach_all(&mut self) {
        self.stop_waiting();
        // The ends of the detached processes are noted where nothing reads them.
        self.ends = Arc::new(Bell::new(BlockQueue::new()));
        self.taken = BlockQueue::new();
        self.free = Vec::new();
        self.members = Vec::new();
    }

    fn handles(&self) -> impl Iterator<Item = &JoinHandle<T>> {
        self.members.iter().filter_map(|member| member.handle.as_ref())
    }

    fn stop_waiting(&mut self) {
        listener::leave(&self.ends, &mut self.waiter);
    }
}

/// Leaves the waker with the process, or wakes it if the process has ended.
fn note_end<T: Send + 'static>(handle: &mut JoinHandle<T>, end: &Waker) {
    if handle.leave_waker(end) {
        end.wake_by_ref();
    }
}

/// Takes all ends in one step, by swapping them with the empty `taken`, and returns the oldest end.
fn next(taken: &mut BlockQueue<usize>, ends: &mut BlockQueue<usize>) -> Option<usize> {
    mem::swap(taken, ends);
    taken.pop_front()
}

impl<T: Send + 'static> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.stop_waiting();
        self.cancel_all();
    }
}

impl<T: Send + 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handles().map(JoinHandle::pid)).finish()
    }
}

/// Starts a process for each future, like [`spawn`](crate::spawn()).
impl<T, F> Extend<F> for JoinSet<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.insert(SpawnOptions::new().spawn(future));
        }
    }
}

/// Starts a process for each future, like [`spawn`](crate::spawn()).
impl<T, F> FromIterator<F> for JoinSet<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

/// A wait for the next end. Its drop removes the waker.
struct Joining<'a, T: Send + 'static>(&'a mut JoinSet<T>);

impl<T: Send + 'static> Joining<'_, T> {
    async fn next(self) -> Option<(Pid, Result<T, Exit>)> {
        poll_fn(|task| self.0.poll_join_next(task)).await
    }
}

impl<T: Send + 'static> Drop for Joining<'_, T> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}
