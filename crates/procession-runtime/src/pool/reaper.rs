//! The timers of a pool: for resting workers that leave, and for workers that could not be started.
//!
//! What is not generic here is compiled once, and not again for each kind of job.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Waker};

use procession_protocols::pool::state::outcome::Wakes;
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::Relaxed;

use super::engine::Inner;
use super::job_handle::AnyPool;
use crate::scheduler::inherit::within::Within;
use crate::scheduler::shared::Shared;
use crate::time::action::{Action, Armed};
use crate::time::arm::arm_function;
use crate::time::sleep_on;
use crate::{OnCancel, SpawnOptions};

/// The nanoseconds after which the pool tries again to start a worker, if the scheduler had no
/// room.
const RETRY: u64 = 10_000_000;

/// Has the pool called at the time `when`, unless it is gone by then. Returns `None` if no timer is
/// left.
fn call_at(
    shared: &Shared,
    when: u64,
    pool: Weak<dyn AnyPool>,
    call: fn(&dyn AnyPool),
) -> Option<Armed> {
    let call = move || {
        if let Some(pool) = pool.upgrade() {
            call(&*pool);
        }
    };
    arm_function(shared, when, None, Action::Call(Arc::new(call))).ok()
}

/// Has the pool reaped at the time `when` by a process that waits for a timer, because none is left
/// at present. Returns `false` if there is no room for the process either.
#[cold]
fn reap_later(shared: &Arc<Shared>, when: u64, pool: Weak<dyn AnyPool>) -> bool {
    let sleep = sleep_on(Arc::clone(shared), when);
    let _within = Within::enter_any(None);
    let reaper = SpawnOptions::new().on_shared(Arc::clone(shared)).expendable();
    let reaper = reaper.try_spawn(async move {
        sleep.await;
        if let Some(pool) = pool.upgrade() {
            pool.reap();
        }
    });
    reaper.is_ok()
}

/// Resting workers that leave. Once this value is dropped, all these workers have left.
struct Leavers {
    pool: Arc<dyn AnyPool>,
    count: usize,
}

impl Leavers {
    /// Runs the stop hooks, and counts the workers as gone.
    fn run(&mut self) {
        while self.count > 0 {
            self.count -= 1;
            self.pool.leave(true);
        }
    }

    /// Runs the stop hooks in a process.
    fn run_in(mut self, shared: &Arc<Shared>) {
        let run = async move { self.run() };
        // The hooks work for no submitter.
        let _within = Within::enter_any(None);
        // Asked, not dropped, so that the hooks run in a shutdown as well.
        let options = SpawnOptions::new().on_shared(Arc::clone(shared)).on_cancel(OnCancel::Ask);
        if let Err(refused) = options.try_spawn(run) {
            // Runs the hooks on this thread instead. The future waits for nothing, so one poll
            // suffices.
            let mut run = pin!(refused.into_inner());
            let _ = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
        }
    }
}

impl Drop for Leavers {
    fn drop(&mut self) {
        // The process was terminated, so the remaining hooks do not run.
        for _ in 0..self.count {
            self.pool.leave(false);
        }
    }
}

impl<J: Send + 'static> Inner<J> {
    fn weak(&self) -> Weak<dyn AnyPool> {
        Weak::<Self>::clone(&self.me)
    }

    pub(super) fn stop_reaper(&self) {
        self.delete(self.change_reaper(Option::take));
    }

    fn delete(&self, reaper: Option<(u64, Armed)>) {
        if let (Some((_, armed)), Some(shared)) = (reaper, &self.scheduler) {
            drop(armed.delete(shared));
        }
    }

    fn change_reaper<R>(&self, change: impl FnOnce(&mut Option<(u64, Armed)>) -> R) -> R {
        change(&mut self.reaper.lock())
    }

    pub(super) fn prestart(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        let until = self.rest_until();
        let reap_at =
            self.step(|core, start| (core.prestart(wanted, until, start), Wakes::default()))?;
        self.reap_at(reap_at);
        Ok(())
    }

    /// Returns the time until which a worker rests that begins to rest now.
    pub(super) fn rest_until(&self) -> u64 {
        // Threads and coroutines read the clock when they park.
        let Some(shared) = self.scheduler.as_ref().filter(|_| self.rests()) else {
            return NEVER;
        };
        // Relaxed: a change takes effect from about now on.
        match self.keep_alive.load(Relaxed) {
            NEVER => NEVER,
            idle => shared.world.now().saturating_add(idle),
        }
    }

    /// Sets a timer that reaps resting workers at the time `when`.
    pub(super) fn reap_at(&self, when: Option<u64>) {
        let (Some(when), Some(shared)) = (when, &self.scheduler) else {
            return;
        };
        let now = shared.world.now();
        let replaced = self.change_reaper(|reaper| {
            if reaper.is_some_and(|(before, _)| now < before && before <= when) {
                // Another worker was faster, and has arranged an earlier reap.
                return Some(None);
            }
            let armed = call_at(shared, when, self.weak(), |pool| pool.reap())?;
            Some(reaper.replace((when, armed)))
        });
        match replaced {
            // Outside the lock, because deleting a timer may wake the process that waits for it.
            Some(before) => self.delete(before),
            None if reap_later(shared, when, self.weak()) => {}
            // The next worker that rests tries again.
            None => self.core.forget_reaper(),
        }
    }

    /// Arranges that workers are started for queued jobs for which none could be started now.
    pub(super) fn retry_later(&self) {
        let Some(shared) = &self.scheduler else { return };
        let when = shared.world.now().saturating_add(RETRY);
        if call_at(shared, when, self.weak(), |pool| pool.retry()).is_none() {
            // The job is left to the next worker that finishes, or to the next submit.
            self.core.forget_retry();
        }
    }

    /// Runs the stop hooks of this number of resting workers that leave, and counts the workers as
    /// gone.
    pub(super) fn dismiss(&self, count: usize) {
        if let Some(shared) = &self.scheduler {
            Leavers { pool: self.arc(), count }.run_in(shared);
        }
    }
}
