//! Threads of the user that enter a scheduler.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::scheduler::current;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::reach::reach;

impl Scheduler {
    /// Makes this the scheduler of the calling thread until the guard is dropped.
    ///
    /// [`spawn`](crate::spawn()), [`start`](crate::start()), names, timers and sockets then mean
    /// this scheduler, as they do in [`block_on`](Self::block_on). Use it on threads that the
    /// program starts itself. The runtime enters its own scheduler wherever it calls the program:
    ///
    /// - Processes and timer functions have the scheduler on which they were started.
    /// - The future in `block_on` has the scheduler that was called.
    /// - A job of [`spawn_blocking`](crate::spawn_blocking), of a pool of threads, or of
    ///   [`coroutine::blocking`](crate::coroutine::blocking) has the scheduler in which it was
    ///   submitted.
    /// - The functions of [`on_thread_start`](crate::Builder::on_thread_start),
    ///   [`on_thread_stop`](crate::Builder::on_thread_stop) and
    ///   [`on_stall`](crate::Builder::on_stall) have the scheduler that calls them.
    /// - A function of [`show_section`](crate::Context::show_section) has the scheduler of its
    ///   process.
    /// - A task of the tokio runtime of a scheduler (feature `tokio`) has that scheduler.
    /// - Everything else has the [default](Self::global) scheduler.
    ///
    /// Guards nest, and may be dropped in any order: the latest guard that exists counts. The guard
    /// keeps this handle borrowed, and therefore the scheduler alive. If the scheduler has ended
    /// otherwise, a spawn is refused with [`is_closing`](crate::SpawnError::is_closing). It never
    /// goes to another scheduler instead.
    ///
    /// The guard changes nothing else. In a process, [`current_pid`](crate::current_pid()), links
    /// and waits still belong to the process.
    ///
    /// A guard counts only until the code that made it returns to the runtime. If it is held across
    /// an `.await` in `block_on` or across a suspension of a coroutine, or is leaked there, it has
    /// no effect on what runs afterwards. Elsewhere, a leaked guard counts as long as its thread
    /// lives.
    ///
    /// ```
    /// use std::thread;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().name("jobs").worker_threads(1).build()?;
    /// let id = thread::scope(|scope| {
    ///     let entered = scope.spawn(|| {
    ///         let _guard = scheduler.enter();
    ///         procession::spawn(async {}).pid().scheduler()
    ///     });
    ///     entered.join().expect("it does not panic")
    /// });
    /// assert_eq!(id, scheduler.id());
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    ///
    /// It stays on its thread:
    ///
    /// ```compile_fail,E0277
    /// let guard = procession::Scheduler::global().enter();
    /// std::thread::spawn(move || drop(guard));
    /// ```
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard { number: current::add_entry(Arc::clone(self.shared())), stays: PhantomData }
    }
}

/// Calls a function in the scheduler with this [number](Scheduler::id), as
/// [`Scheduler::enter`] does. Returns `None` if no scheduler has this number any more.
///
/// A crate that connects programs uses this if it calls code of a program on a thread that may
/// belong to another scheduler. It needs no handle, which would keep the scheduler alive.
///
/// ```
/// use procession::mailbox::relay;
/// use procession::process::{register, registered};
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().worker_threads(1).build()?;
/// let waits = scheduler.spawn(std::future::pending::<()>());
/// scheduler.register("waits", waits.pid())?;
/// let id = scheduler.id();
/// assert_eq!(relay::within(id, registered), Some(vec!["waits".into()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn within<R>(scheduler: u32, call: impl FnOnce() -> R) -> Option<R> {
    let shared = Arc::clone(&*reach(scheduler)?);
    let _entered = EnterGuard { number: current::add_entry(shared), stays: PhantomData };
    Some(call())
}

/// Ends the effect of [`Scheduler::enter`] when it is dropped.
#[must_use = "dropping the guard leaves the scheduler"]
pub struct EnterGuard<'a> {
    number: u64,
    /// The guard belongs to its thread, and borrows a handle.
    stays: PhantomData<(&'a Scheduler, *const ())>,
}

impl Drop for EnterGuard<'_> {
    fn drop(&mut self) {
        current::remove_entry(self.number);
    }
}

impl fmt::Debug for EnterGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterGuard").finish_non_exhaustive()
    }
}
