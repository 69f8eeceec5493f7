//! Whether a program should get work: what health checks ask.

pub(crate) mod state;

use std::fmt;
use std::sync::Arc;

use crate::scheduler::health::state::HealthState;
use crate::scheduler::owner;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;

/// The reason of a program that is not ready because it was asked to end.
const ENDING: &str = "the program is ending";

/// Shows whether the program that a scheduler runs is ready for new work.
///
/// A load balancer sends requests to programs that are ready. Three things make a program not
/// ready:
/// - A signal has asked it to end ([`run_until_signal`][until]), or a
///   [shutdown](Scheduler::shutdown) has begun. This never changes back.
/// - Some part of the program has said so ([`not_ready`](Self::not_ready)), for example because it
///   still fills a cache.
///
/// `http::HealthChecks` (feature `serve`) answers the checks over HTTP. Other servers, for example
/// of gRPC, ask [`is_ready`](Self::is_ready) for their own checks.
///
/// [until]: Scheduler#method.run_until_signal
///
/// ```
/// use procession::Scheduler;
/// use procession::scheduler::Health;
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let health = Health::here();
///     let warming = health.not_ready("the cache is cold");
///     assert_eq!(health.reasons(), ["the cache is cold".into()]);
///     drop(warming);
///     assert!(health.is_ready());
/// });
/// scheduler.block_on(scheduler.shutdown(std::time::Duration::from_secs(1)));
/// assert!(!scheduler.health().is_ready());
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Health(Arc<Shared>);

impl Health {
    /// Returns the health of the scheduler of the calling process or thread, or else of the default
    /// scheduler.
    pub fn here() -> Self {
        Self(Arc::clone(&owner::here()))
    }

    /// Returns `true` if the program is ready for new work.
    pub fn is_ready(&self) -> bool {
        self.state().is_ready()
    }

    /// Returns `true` once the program was asked to end. This never changes back.
    ///
    /// ```
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let _warming = scheduler.health().not_ready("the cache is cold");
    /// assert!(!scheduler.health().is_ending());
    /// scheduler.block_on(scheduler.shutdown(std::time::Duration::from_secs(1)));
    /// assert!(scheduler.health().is_ending());
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    pub fn is_ending(&self) -> bool {
        self.state().is_ending()
    }

    /// Returns why the program is not ready, the oldest reason first. Returns no reason if it is
    /// ready.
    pub fn reasons(&self) -> Vec<Arc<str>> {
        let state = self.state();
        let ending = state.is_ending().then(|| Arc::from(ENDING));
        ending.into_iter().chain(state.reasons()).collect()
    }

    /// Makes the program not ready until the guard is dropped. If there are several guards, the
    /// program is ready once all guards are dropped.
    pub fn not_ready(&self, reason: impl Into<Arc<str>>) -> NotReady {
        let number = self.state().add(reason.into());
        NotReady { health: self.clone(), number }
    }

    fn state(&self) -> &HealthState {
        HealthState::of(&self.0)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("reasons", &self.reasons()).finish()
    }
}

/// Makes a program not ready until this is dropped. See [`Health::not_ready`].
#[derive(Debug)]
#[must_use = "dropping it makes the program ready again"]
pub struct NotReady {
    health: Health,
    number: u64,
}

impl Drop for NotReady {
    fn drop(&mut self) {
        self.health.state().remove(self.number);
    }
}

impl Scheduler {
    /// Returns whether the program that this scheduler runs is ready for new work.
    pub fn health(&self) -> Health {
        Health(Arc::clone(self.shared()))
    }
}
