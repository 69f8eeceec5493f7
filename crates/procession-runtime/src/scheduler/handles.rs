//! The way from a scheduler back to its handles.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::scheduler::owner;
use crate::scheduler::owner::{Owner, Scheduler};
use crate::scheduler::part::Part;

/// What the handles of a scheduler share, as far as a handle is left.
#[derive(Default)]
pub(crate) struct Handles(OnceLock<Weak<Owner>>);

impl Part for Handles {}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handles(..)")
    }
}

impl Handles {
    /// Notes the first handle of a scheduler that has just been built.
    pub(crate) fn note(first: &Scheduler) {
        if let Some(Self(owner)) = first.shared().parts.get() {
            owner.get_or_init(|| Arc::downgrade(&first.0));
        }
    }
}

impl Scheduler {
    /// Returns a handle of the scheduler that [`spawn`](crate::spawn()) uses here: the scheduler of
    /// the calling process, or the one that the thread [has entered](Self::enter), or else the
    /// [default](Self::global) scheduler. Returns `None` if its last handle has been dropped,
    /// because the scheduler then terminates its processes.
    ///
    /// The new handle keeps the scheduler alive like any other. So a process that keeps a handle of
    /// its own scheduler must end by itself, because the drop of all other handles no longer ends
    /// it.
    ///
    /// ```
    /// use std::thread;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().name("service").worker_threads(1).build()?;
    /// let asks = scheduler.spawn(async {
    ///     let own = Scheduler::current().expect("`main` has a handle");
    ///     // A thread that a library starts belongs to no scheduler.
    ///     let callback = thread::spawn(move || (own.name().to_owned(), own.spawn(async { 42 })));
    ///     let (name, process) = callback.join().expect("it does not panic");
    ///     Ok::<_, procession::Exit>((name, process.await?))
    /// });
    /// assert_eq!(scheduler.block_on(asks)??, ("service".to_owned(), 42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current() -> Option<Self> {
        let here = owner::here();
        let Handles(owner) = here.parts.get()?;
        owner.get()?.upgrade().map(Self)
    }
}
