//! Scopes that wait for all processes that were started in them.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::bell::Bell;
use procession_protocols::sync::wait_list::Place;

use crate::group::join_set::JoinSet;
use crate::process::async_body::AsyncBody;
use crate::process::served::WakeServed;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::listener;
use crate::scheduler::owner::caller;
use crate::scheduler::placed::placed;
use crate::spawn::join_handle::JoinHandle;
use crate::spawn::options::SpawnOptions;
use crate::sync::Semaphore;
use crate::{Exit, Pid};

/// The processes of a scope that its future has not seen.
struct Newcomers<E: Send + 'static> {
    handles: Vec<JoinHandle<Result<(), E>>>,
    /// The number of processes that are being started.
    starting: usize,
    /// If there is a limit, as many permits as processes may run concurrently.
    turns: Option<Arc<Semaphore>>,
    phase: ScopePhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopePhase {
    /// Takes processes.
    Open,
    /// Takes only processes that are being started already.
    Closing,
    /// The future of the scope is gone.
    Over,
}

/// Starts processes in a [scope](scope()).
///
/// Clones are handles of the same scope, so a process of the scope can start others in it. A handle
/// that outlives its scope starts nothing.
pub struct Scope<E: Send + 'static>(Arc<Bell<Newcomers<E>>>);

/// A process that is being started.
struct Starting<'a, E: Send + 'static>(&'a Bell<Newcomers<E>>);

impl<E: Send + 'static> Starting<'_, E> {
    /// Hands the process to the scope. Returns its PID.
    fn note(self, handle: JoinHandle<Result<(), E>>) -> Pid {
        let pid = handle.pid();
        let too_late = self.0.change(|ringing| {
            if ringing.about.phase == ScopePhase::Over {
                return Some(handle);
            }
            ringing.about.handles.push(handle);
            None
        });
        if let Some(handle) = too_late {
            handle.cancel();
        }
        pid
    }
}

impl<E: Send + 'static> Drop for Starting<'_, E> {
    fn drop(&mut self) {
        self.0
            .ring_all_if(|newcomers| {
                newcomers.starting -= 1;
                true
            })
            .wake();
    }
}

impl<E: Send + 'static> Scope<E> {
    /// Limits how many of the processes that are started from now on run concurrently, as Go's
    /// `errgroup.Group.SetLimit` does. 0 counts as 1. By default there is no limit.
    ///
    /// [`add_in_turn`](Self::add_in_turn) waits until there is room for the process, as Go's
    /// `Go` does. [`add`](Self::add) never waits: a process beyond the limit exists, and waits
    /// before the first poll of its future until another process ends. The order in which waiting
    /// processes begin is not specified. A process that waits takes memory, so a body that starts
    /// processes without end should use `add_in_turn`.
    ///
    /// ```
    /// use procession::process::scope;
    /// use procession::sync::channel;
    ///
    /// procession::run(async {
    ///     let (started, starts) = channel::unbounded();
    ///     let fetched = scope(|scope| async move {
    ///         scope.set_limit(2);
    ///         for page in 0..10 {
    ///             let started = started.clone();
    ///             // At most two pages are fetched at once.
    ///             scope.add(async move { started.try_send(page).map_err(|_| "no receiver") });
    ///         }
    ///         Ok(())
    ///     });
    ///     assert_eq!(fetched.await, Ok(()));
    ///     assert_eq!(std::iter::from_fn(|| starts.try_recv().ok()).count(), 10);
    /// });
    /// ```
    pub fn set_limit(&self, limit: usize) {
        let turns = Some(Arc::new(Semaphore::new(limit.max(1))));
        let before = self.0.change(|ringing| mem::replace(&mut ringing.about.turns, turns));
        // Not the last reference, if processes wait for its turns.
        drop(before);
    }

    /// Starts a process that runs `future`, like [`spawn`](crate::spawn()), in the scope. Returns
    /// its PID.
    ///
    /// If the scope is over or about to end, or the scheduler takes no more processes, the future
    /// is dropped, and the PID is [`Pid::NOBODY`]. A refusal by the scheduler ends the scope with
    /// [`Exit::Refused`].
    #[track_caller]
    pub fn add<F>(&self, future: F) -> Pid
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let body: Box<AsyncBody<F>> = Box::new(AsyncBody::Runs(future));
        let Some((starting, turns)) = self.begin() else { return Pid::NOBODY };
        let handle = match turns {
            None => SpawnOptions::new().spawn_body(body),
            Some(turns) => SpawnOptions::new().spawn(async move {
                // Given back after the future was dropped.
                let _turn = turns.acquire_owned(1).await;
                run(body).await
            }),
        };
        starting.note(handle)
    }

    /// Waits until fewer processes of the scope run than its [limit](Self::set_limit) permits, and
    /// then starts a process that runs `future`, like [`add`](Self::add). Without a limit, it
    /// starts the process immediately. Calls are served in their order.
    ///
    /// So a body that starts processes in a loop is no faster than the processes end, and each
    /// waiting body holds one future:
    ///
    /// ```
    /// use procession::process::scope;
    ///
    /// procession::run(async {
    ///     let fetched = scope(|scope| async move {
    ///         scope.set_limit(2);
    ///         for page in 0..1_000_u32 {
    ///             let fetch = async move { page.checked_add(1).map(drop).ok_or(page) };
    ///             scope.add_in_turn(fetch).await;
    ///         }
    ///         Ok(())
    ///     });
    ///     assert_eq!(fetched.await, Ok(()));
    /// });
    /// ```
    ///
    /// A process that runs in its own turn and waits here may wait for itself. For example, with a
    /// limit of 1, a process of the scope that starts another process in turn waits until the scope
    /// is dropped.
    ///
    /// # Cancellation
    /// If the returned future is dropped before it completes, `future` is dropped, and no process
    /// is started.
    #[track_caller]
    pub fn add_in_turn<F>(&self, future: F) -> impl Future<Output = Pid>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let location = caller();
        let body: Box<AsyncBody<F>> = Box::new(AsyncBody::Runs(future));
        placed(async move {
            let turns = self.0.change(|ringing| ringing.about.turns.clone());
            let turn = match turns {
                Some(turns) => turns.acquire_owned(1).await.ok(),
                None => None,
            };
            let Some((starting, _)) = self.begin() else { return Pid::NOBODY };
            let handle = SpawnOptions::new().called_at(location).spawn(async move {
                let _turn = turn;
                run(body).await
            });
            starting.note(handle)
        })
    }

    /// Begins to start a process, unless the scope is over or about to end. Also returns the turns
    /// of the processes, if there is a limit.
    fn begin(&self) -> Option<(Starting<'_, E>, Option<Arc<Semaphore>>)> {
        let turns = self.0.change(|ringing| {
            let is_open = ringing.about.phase == ScopePhase::Open;
            ringing.about.starting += usize::from(is_open);
            is_open.then(|| ringing.about.turns.clone())
        })?;
        Some((Starting(&self.0), turns))
    }
}

/// Runs the future of a body in another process. An async block that awaits a future of its
/// surroundings would have room for two of it.
async fn run<F: Future>(body: Box<AsyncBody<F>>) -> F::Output {
    let mut body = Box::into_pin(body);
    poll_fn(|task| body.as_mut().pinned().expect("nothing ends the body").poll(task)).await
}

impl<E: Send + 'static> Clone for Scope<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Send + 'static> fmt::Debug for Scope<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope(..)")
    }
}

/// The first failure in a [scope](scope()).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeError<E> {
    /// The body or a process returned this error.
    Failed(E),
    /// A process ended without an output.
    Ended {
        /// The process.
        pid: Pid,
        /// How it ended.
        exit: Exit,
    },
}

impl<E> ScopeError<E> {
    /// Returns the error that the body or a process returned, if one did.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Ended { .. } => None,
        }
    }

    /// Returns the error in a box, for a function that returns `Box<dyn Error + Send + Sync>`. The
    /// box contains the error that the body or a process returned, so that a downcast finds it.
    ///
    /// If the `E` of a scope is itself such a box, this method replaces a bare `?`, because
    /// `Box<dyn Error>` does not implement [`Error`].
    ///
    /// ```
    /// use procession::process::{ScopeError, scope};
    ///
    /// type Failure = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// async fn sum() -> Result<(), Failure> {
    ///     let parsed = scope(|scope| async move {
    ///         scope.add(async { Ok::<(), Failure>(drop("seven".parse::<u32>()?)) });
    ///         Ok(())
    ///     });
    ///     parsed.await.map_err(ScopeError::into_boxed)
    /// }
    ///
    /// let failed = procession::run(sum()).unwrap_err();
    /// assert!(failed.is::<std::num::ParseIntError>());
    /// ```
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            Self::Failed(error) => error.into(),
            Self::Ended { pid, exit } => ScopeError::<Infallible>::Ended { pid, exit }.into(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for ScopeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Ended { pid, exit } => {
                write!(f, "{pid} of a scope ended without a result: {exit}")
            }
        }
    }
}

impl<E: Error + 'static> Error for ScopeError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Ended { exit, .. } => Some(exit),
        }
    }
}

/// Runs `body`, which may start processes in a [`Scope`], and waits until all these processes have
/// ended. Returns the output of the body.
///
/// The body runs in the caller, so it may borrow. The processes own their values, because they may
/// run on other workers, and a future that is dropped or forgotten could not wait for them.
///
/// ```
/// use procession::process::{ScopeError, scope};
/// use procession::Exit;
///
/// procession::run(async {
///     let pages = [1, 2, 3];
///     let (sender, sizes) = procession::sync::channel::unbounded();
///     let count = scope(|scope| async move {
///         for &page in &pages {
///             let sender = sender.clone();
///             scope.add(async move { sender.try_send(page * 10).map_err(|_| "no receiver") });
///         }
///         Ok(pages.len())
///     });
///     assert_eq!(count.await, Ok(3));
///     let mut sizes: Vec<_> = std::iter::from_fn(|| sizes.try_recv().ok()).collect();
///     sizes.sort();
///     assert_eq!(sizes, [10, 20, 30]);
///
///     let failed = scope(|scope| async move {
///         scope.add(std::future::pending());
///         scope.add(async { Err("no such page") });
///         Ok(())
///     });
///     assert_eq!(failed.await, Err(ScopeError::Failed("no such page")));
/// });
/// ```
///
/// # Errors
/// Returns the first failure: the error that the body or a process returned, or the exit of a
/// process that ended without an output. The body is then dropped where it waits, the other
/// processes are cancelled, and the scope waits for their ends. Later failures are dropped.
///
/// # Cancellation
/// If the future is dropped, the body is dropped and the processes are cancelled, but nothing waits
/// for their ends, because a drop cannot wait. So a [`timeout`](crate::timeout()) around a scope
/// returns while its processes may still run. To bound the time of a scope that waits, put the
/// timeout into its processes. The first that is late fails, and the scope ends as after any
/// failure:
///
/// ```
/// use std::time::Duration;
/// use procession::process::{ScopeError, scope};
/// use procession::{Scheduler, sleep, timeout};
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let fetched = scope(|scope| async move {
///         for seconds in [1, 60] {
///             let fetch = sleep(Duration::from_secs(seconds));
///             let fetch = timeout(Duration::from_secs(5), fetch);
///             scope.add(async { fetch.await.map_err(|_| "late") });
///         }
///         Ok(())
///     });
///     assert_eq!(fetched.await, Err(ScopeError::Failed("late")));
///     assert!(scheduler.snapshot().processes.is_empty(), "nothing runs any more");
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[track_caller]
pub fn scope<T, E, B, F>(body: B) -> impl Future<Output = Result<T, ScopeError<E>>>
where
    E: Send + 'static,
    B: FnOnce(Scope<E>) -> F,
    F: Future<Output = Result<T, E>>,
{
    placed(async move {
        let newcomers =
            Newcomers { handles: Vec::new(), starting: 0, turns: None, phase: ScopePhase::Open };
        let bell = Arc::new(Bell::new(newcomers));
        let mut run = ScopeRun { bell: &bell, place: None, set: JoinSet::new(), output: None };
        let mut body = pin!(Some(body(Scope(Arc::clone(&bell)))));
        poll_fn(|task| run.poll(body.as_mut(), task)).await;
        run.output.take().expect("a scope ends with its body or with a failure")
    })
}

/// A scope that runs. Its drop ends the scope.
struct ScopeRun<'a, T, E: Send + 'static> {
    bell: &'a Bell<Newcomers<E>>,
    /// The place of the waiter in the bell.
    place: Option<Place>,
    set: JoinSet<Result<(), E>>,
    /// The output of the body, or the first failure.
    output: Option<Result<T, ScopeError<E>>>,
}

impl<T, E: Send + 'static> ScopeRun<'_, T, E> {
    fn poll<F: Future<Output = Result<T, E>>>(
        &mut self,
        mut body: Pin<&mut Option<F>>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        if let Some(running) = body.as_mut().as_pin_mut()
            && let Poll::Ready(output) = running.poll(task)
        {
            body.set(None);
            match output {
                Ok(output) => self.output = Some(Ok(output)),
                Err(error) => self.fail(body.as_mut(), ScopeError::Failed(error)),
            }
        }
        loop {
            let waits = body.is_some() || !self.set.is_empty();
            if let Poll::Ready(newcomers) = self.poll_newcomers(waits, task) {
                if newcomers.is_empty() {
                    return Poll::Ready(());
                }
                self.take_in(newcomers);
                continue;
            }
            let failure = match self.set.poll_join_next(task) {
                Poll::Ready(Some((_, Ok(Ok(()))))) => continue,
                Poll::Ready(Some((_, Ok(Err(error))))) => ScopeError::Failed(error),
                Poll::Ready(Some((pid, Err(exit)))) => ScopeError::Ended { pid, exit },
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            };
            self.fail(body.as_mut(), failure);
        }
    }

    /// Returns the processes that were started. If there are none, none is being started, and the
    /// scope `waits` for nothing else, it takes no more, and the list is empty.
    fn poll_newcomers(
        &mut self,
        waits: bool,
        task: &TaskContext<'_>,
    ) -> Poll<Vec<JoinHandle<Result<(), E>>>> {
        let looked = listener::look_or_enlist(self.bell, &mut self.place, task, |newcomers| {
            if newcomers.handles.is_empty() && (waits || newcomers.starting > 0) {
                return None;
            }
            if newcomers.handles.is_empty() {
                newcomers.phase = ScopePhase::Over;
            }
            Some(mem::take(&mut newcomers.handles))
        });
        if looked.is_pending() && !waits {
            current::note_waiting_for_some(Waiting::PROCESS);
        }
        looked
    }

    fn take_in(&mut self, newcomers: Vec<JoinHandle<Result<(), E>>>) {
        let is_failing = matches!(self.output, Some(Err(_)));
        for handle in newcomers {
            if is_failing {
                handle.cancel();
            }
            self.set.insert(handle);
        }
    }

    /// Ends the body and all processes, if this is the first failure.
    fn fail<F>(&mut self, mut body: Pin<&mut Option<F>>, error: ScopeError<E>) {
        if matches!(self.output, Some(Err(_))) {
            return;
        }
        self.bell.change(|ringing| ringing.about.phase = ScopePhase::Closing);
        self.set.cancel_all();
        let output = self.output.replace(Err(error));
        // Last, since these run code of the user, which may panic.
        drop(output);
        body.set(None);
    }
}

impl<T, E: Send + 'static> Drop for ScopeRun<'_, T, E> {
    fn drop(&mut self) {
        listener::leave(self.bell, &mut self.place);
        let handles = self.bell.change(|ringing| {
            ringing.about.phase = ScopePhase::Over;
            mem::take(&mut ringing.about.handles)
        });
        handles.iter().for_each(JoinHandle::cancel);
    }
}
