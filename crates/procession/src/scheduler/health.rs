//! Whether a program should get work: what health checks ask.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::scheduler::owner;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;

/// The reason that a program gives from the request to end it on.
const ENDING: &str = "the program is ending";

/// The state behind a [`Health`].
#[derive(Debug, Default)]
pub(crate) struct HealthState {
    is_ending: AtomicBool,
    /// The reasons why the program is not ready, by the numbers of their guards.
    reasons: Mutex<BTreeMap<u64, Arc<str>>>,
    last: AtomicU64,
}

impl HealthState {
    /// Makes the program not ready from now on.
    pub(crate) fn end(&self) {
        // Ordering: Release pairs with the Acquire in `is_ending`: who sees this sees the request
        // to end the program.
        self.is_ending.store(true, Release);
    }

    fn is_ending(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `end`.
        self.is_ending.load(Acquire)
    }
}

/// Tells whether the program that a scheduler runs is ready for new work.
///
/// A load balancer sends requests to programs that are ready. Three things make a program not
/// ready:
/// - A signal has asked it to end ([`run_until_signal`][until]), or a
///   [shutdown](Scheduler::shutdown) has begun. This never changes back.
/// - Some part of it has said so ([`not_ready`](Self::not_ready)), for example because it still
///   fills a cache.
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
    /// one.
    pub fn here() -> Self {
        Self(Arc::clone(&owner::here()))
    }

    /// Returns `true` if the program is ready for new work.
    pub fn is_ready(&self) -> bool {
        let state = self.state();
        !state.is_ending() && state.reasons.lock().is_empty()
    }

    /// Returns why the program is not ready, the oldest reason first. Returns no reason if it is
    /// ready.
    pub fn reasons(&self) -> Vec<Arc<str>> {
        let state = self.state();
        let ending = state.is_ending().then(|| Arc::from(ENDING));
        ending.into_iter().chain(state.reasons.lock().values().cloned()).collect()
    }

    /// Makes the program not ready until the guard is dropped. If there are several guards, it is
    /// ready once all of them are dropped.
    pub fn not_ready(&self, reason: impl Into<Arc<str>>) -> NotReady {
        let state = self.state();
        // Relaxed: only distinct numbers matter.
        let number = state.last.fetch_add(1, Relaxed);
        state.reasons.lock().insert(number, reason.into());
        NotReady { health: self.clone(), number }
    }

    fn state(&self) -> &HealthState {
        &self.0.lifetime.health
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
        let reason = self.health.state().reasons.lock().remove(&self.number);
        drop(reason);
    }
}

impl Scheduler {
    /// Returns whether the program that this scheduler runs is ready for new work.
    pub fn health(&self) -> Health {
        Health(Arc::clone(self.shared()))
    }
}
