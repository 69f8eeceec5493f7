//! Threads of a simulated program, with the interface of [`std::thread`].
//!
//! A thread that is started here takes turns with the other threads of the simulation. Outside of a
//! simulation, these are threads of std.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::thread as real;

use crate::engine::Held;
use crate::engine::threads::{self, Enlisted};
use crate::engine::wait::{publish, wait_until};

pub use procession_sync::thread::{Thread, ThreadId, current, panicking};
pub use std::thread::Result;

/// The virtual time for which [`yield_now`] lets others run.
const YIELD_NS: u64 = 20_000;

/// The right to wait for a thread to end.
#[derive(Debug)]
pub struct JoinHandle<T>(real::JoinHandle<Result<T>>, Arc<AtomicBool>);

impl<T> JoinHandle<T> {
    /// Waits for the thread to end, and returns its result.
    ///
    /// # Errors
    /// Returns the payload of the panic that ended the thread.
    pub fn join(self) -> Result<T> {
        wait_until(None, || self.1.load(Relaxed));
        self.0.join().and_then(|result| result)
    }

    /// Returns `true` if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.1.load(Relaxed) || self.0.is_finished()
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        self.0.thread()
    }
}

/// Runs the body of a thread, as a virtual one if it was enlisted.
fn run<T>(
    enlisted: Option<Enlisted>,
    over: Arc<AtomicBool>,
    body: impl FnOnce() -> T,
) -> Result<T> {
    let Some(enlisted) = enlisted else {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        over.store(true, Relaxed);
        return result;
    };
    // Nothing runs between this and the end of the virtual thread, so the real one ends without a
    // turn, and may be waited for.
    enlisted.run(body, move |engine| {
        // Relaxed: the turn orders it.
        over.store(true, Relaxed);
        engine.notify_waiting();
    })
}

fn enlist() -> Option<Enlisted> {
    publish();
    threads::current().map(|engine| engine.enlist("thread".into()))
}

/// Starts a thread.
///
/// # Panics
/// Panics if the system has no thread.
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (enlisted, over) = (enlist(), Arc::new(AtomicBool::new(false)));
    let (own, is_over) = (enlisted.clone(), Arc::clone(&over));
    #[expect(clippy::disallowed_methods, reason = "this is the home of the program's threads")]
    let handle = real::spawn(move || run(own, is_over, body));
    if let Some(enlisted) = enlisted {
        enlisted.started(handle.thread().clone());
    }
    JoinHandle(handle, over)
}

/// A scope in which threads may borrow, as in [`std::thread::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    real: &'scope std::thread::Scope<'scope, 'env>,
    threads: procession_sync::host::Mutex<Vec<Arc<AtomicBool>>>,
}

/// The right to wait for a thread of a scope.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T>(
    std::thread::ScopedJoinHandle<'scope, Result<T>>,
    Arc<AtomicBool>,
);

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread to end, and returns its result.
    ///
    /// # Errors
    /// Returns the payload of the panic that ended the thread.
    pub fn join(self) -> Result<T> {
        wait_until(None, || self.1.load(Relaxed));
        self.0.join().and_then(|result| result)
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        self.0.thread()
    }

    /// Returns `true` if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.1.load(Relaxed) || self.0.is_finished()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread of the scope.
    ///
    /// # Panics
    /// Panics if the system has no thread.
    pub fn spawn<F, T>(&self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (enlisted, over) = (enlist(), Arc::new(AtomicBool::new(false)));
        let (own, is_over) = (enlisted.clone(), Arc::clone(&over));
        let handle = self.real.spawn(move || run(own, is_over, body));
        if let Some(enlisted) = enlisted {
            enlisted.started(handle.thread().clone());
        }
        self.threads.lock().push(Arc::clone(&over));
        ScopedJoinHandle(handle, over)
    }
}

/// Runs `body` with a scope, and waits for the threads that it starts there.
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
{
    std::thread::scope(|real| {
        let scope = Scope { real, threads: procession_sync::host::Mutex::new(Vec::new()) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&scope)));
        let are_over = || scope.threads.lock().iter().all(|over| over.load(Relaxed));
        wait_until(None, are_over);
        result.unwrap_or_else(|panic: Box<dyn Any + Send>| std::panic::resume_unwind(panic))
    })
}

/// Lets other threads run.
pub fn yield_now() {
    match threads::current() {
        Some(engine) => engine.hold(YIELD_NS, Held::Computes),
        None => real::yield_now(),
    }
}

/// Waits for a time, which is virtual in a simulation.
pub fn sleep(duration: Duration) {
    match threads::current() {
        Some(engine) => engine.hold(crate::time::nanoseconds(duration), Held::Blocks),
        #[expect(clippy::disallowed_methods, reason = "outside of a simulation it is std's")]
        None => std::thread::sleep(duration),
    }
}
