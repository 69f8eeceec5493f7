//! One future that needs tokio, in a process of any scheduler.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use procession_sync::Mutex;
use tokio::runtime::{Handle, Runtime};

use super::runtime::{enter_by, start};
use crate::scheduler::current;

/// Wraps a future that needs tokio, so that a process can await it on any scheduler.
///
/// The future runs in the context of a tokio runtime: the wrapper enters it for each poll, and when
/// the future is dropped. The future still belongs to the process. It is cancelled and terminated
/// with the process, and each poll charges the budget of the step.
///
/// The runtime is the runtime that the calling thread has entered. If there is none, it is a
/// runtime with one thread, which the program starts the first time and keeps. Most schedulers have
/// a tokio runtime ([`Builder::tokio_threads`](crate::Builder::tokio_threads)), and need no
/// wrapper.
///
/// All schedulers share this runtime, so the tasks that a future starts in it by `tokio::spawn`
/// belong to no scheduler. A [`spawn`](crate::spawn()) in such a task means the [default
/// scheduler](crate::Scheduler::global), unless the task [enters](crate::Scheduler::enter) another
/// scheduler.
///
/// ```
/// use std::time::Duration;
/// use procession::io::compat;
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().tokio_threads(0).build()?;
/// let process = scheduler.spawn(async {
///     // Call `sleep` inside the future: it looks for tokio's runtime as soon as it is called.
///     let sleeps = compat(async { tokio::time::sleep(Duration::from_millis(1)).await })?;
///     sleeps.await;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>("slept in tokio")
/// });
/// assert_eq!(process.join()?.map_err(|error| error.to_string())?, "slept in tokio");
///
/// // On a test clock without a runtime, the future comes back in the error.
/// let test = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// let refused = test.block_on(async { compat(async { 42 }).unwrap_err() });
/// assert!(refused.is_test_clock());
/// assert_eq!(test.block_on(refused.into_inner()), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`CompatError`], which contains the future, in two cases. First, the scheduler has a
/// [test clock](crate::Builder::test_clock) and no tokio runtime, so that the clock would jump over
/// everything that waits for tokio. Second, the system refuses the thread of the runtime.
///
/// # Cancellation
/// Dropping the wrapper drops the future.
pub fn compat<F: Future>(future: F) -> Result<Compat<F>, CompatError<F>> {
    if current::here()
        .is_some_and(|shared| shared.world.is_test() && shared.parts.paused().is_none())
    {
        return Err(CompatError { future, cause: CompatCause::TestClock });
    }
    let handle = match Handle::try_current() {
        Ok(handle) => handle,
        Err(_) => match of_the_program() {
            Ok(handle) => handle,
            Err(error) => return Err(CompatError { future, cause: CompatCause::Thread(error) }),
        },
    };
    Ok(Compat { future: Some(Box::pin(future)), handle })
}

/// Returns the runtime for futures that are in no other runtime's context.
fn of_the_program() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let started = start("procession", 1, || {})?;
    Ok(runtime.insert(started).handle().clone())
}

/// A future in the context of tokio; see [`compat()`].
#[must_use = "futures do nothing unless awaited"]
pub struct Compat<F> {
    /// Present until the drop.
    future: Option<Pin<Box<F>>>,
    handle: Handle,
}

impl<F: Future> Future for Compat<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Self { future, handle } = &mut *self;
        let _context = enter_by(handle);
        future.as_mut().expect("present until the drop").as_mut().poll(task)
    }
}

impl<F> Drop for Compat<F> {
    fn drop(&mut self) {
        let _context = enter_by(&self.handle);
        self.future = None;
    }
}

impl<F> fmt::Debug for Compat<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compat(..)")
    }
}

/// The error of [`compat()`]. It contains the future.
pub struct CompatError<F> {
    future: F,
    cause: CompatCause,
}

#[derive(Debug)]
enum CompatCause {
    TestClock,
    Thread(io::Error),
}

impl<F> CompatError<F> {
    /// Returns the future.
    pub fn into_inner(self) -> F {
        self.future
    }

    /// Returns `true` if the scheduler has a test clock, and `false` if the system refused the
    /// thread of the runtime.
    pub fn is_test_clock(&self) -> bool {
        matches!(self.cause, CompatCause::TestClock)
    }
}

impl<F> fmt::Debug for CompatError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompatError").field(&self.cause).finish()
    }
}

impl<F> fmt::Display for CompatError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            CompatCause::TestClock => f.write_str(
                "cannot wait for tokio on the test clock: tokio goes by the real clock, and the \
                 test clock would jump over all that waits for it",
            ),
            CompatCause::Thread(cause) => write!(f, "cannot start a runtime of tokio: {cause}"),
        }
    }
}

impl<F> Error for CompatError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            CompatCause::TestClock => None,
            CompatCause::Thread(error) => Some(error),
        }
    }
}
