//! Resting workers that leave, and those that could not be started: the timers of their pool.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Waker};

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::Relaxed;

use super::engine::Inner;
use crate::scheduler::shared::Shared;
use crate::time::action::Action;
use crate::time::armed::Armed;
use crate::time::{arm, sleep_on};
use crate::{OnCancel, SpawnOptions};

impl<J: Send + 'static> Inner<J> {
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
        let reap_at = self.core.prestart(wanted, until, &mut || self.start())?;
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
        let me = Weak::clone(&self.me);
        let reap = move || {
            if let Some(inner) = me.upgrade() {
                inner.reap();
            }
        };
        let now = shared.world.now();
        let replaced = self.change_reaper(|reaper| {
            if reaper.is_some_and(|(before, _)| now < before && before <= when) {
                // Another worker was faster, and has arranged an earlier reap.
                return Some(None);
            }
            let armed = arm(shared, when, None, Action::Call(Arc::new(reap))).ok()?;
            Some(reaper.replace((when, armed)))
        });
        match replaced {
            // Outside the lock, because deleting a timer may wake the process that waits for it.
            Some(before) => self.delete(before),
            None => self.reap_later(shared, when),
        }
    }

    /// Like `reap_at`, if no timer is left at present. A process waits for one.
    #[cold]
    fn reap_later(&self, shared: &Arc<Shared>, when: u64) {
        let me = Weak::clone(&self.me);
        let sleep = sleep_on(Arc::clone(shared), when);
        let reaper = SpawnOptions::new().on_shared(Arc::clone(shared)).expendable();
        let reaper = reaper.try_spawn(async move {
            sleep.await;
            if let Some(inner) = me.upgrade() {
                inner.reap();
            }
        });
        if reaper.is_err() {
            // The next worker that rests tries again.
            self.core.forget_reaper();
        }
    }

    /// Arranges that workers are started for queued jobs for which none could be started now.
    pub(super) fn retry_later(&self) {
        let Some(shared) = &self.scheduler else { return };
        let when = shared.world.now().saturating_add(RETRY);
        let me = Weak::clone(&self.me);
        let retry = move || {
            if let Some(inner) = me.upgrade() {
                inner.step(|core, start| ((), core.retry(start)));
            }
        };
        if arm(shared, when, None, Action::Call(Arc::new(retry))).is_err() {
            // The job is left to the next worker that finishes, or to the next submit.
            self.core.forget_retry();
        }
    }

    /// Runs the stop hooks of this number of resting workers that leave, and counts the workers as
    /// gone.
    pub(super) fn dismiss(&self, count: usize) {
        let Some(shared) = &self.scheduler else { return };
        let mut leavers = Leavers { inner: self.arc(), count };
        let run = async move { leavers.run() };
        // Asked, not dropped, so that the hooks run in a shutdown as well.
        let options = SpawnOptions::new().on_shared(Arc::clone(shared)).on_cancel(OnCancel::Ask);
        if let Err(refused) = options.try_spawn(run) {
            // Runs the hooks on this thread instead. The future waits for nothing, so one poll
            // suffices.
            let mut run = pin!(refused.into_inner());
            let _ = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
        }
    }

    fn reap(&self) {
        if let Some(shared) = &self.scheduler {
            let next = self.woken(self.core.reap(shared.world.now()));
            self.reap_at(next);
        }
    }
}

/// The nanoseconds after which the pool tries again to start a worker, if the scheduler had no
/// room.
const RETRY: u64 = 10_000_000;

/// Resting workers that leave. Once they are dropped, all of them have left.
struct Leavers<J: Send + 'static> {
    inner: Arc<Inner<J>>,
    count: usize,
}

impl<J: Send + 'static> Leavers<J> {
    fn run(&mut self) {
        while self.count > 0 {
            self.inner.hooks.run_stop();
            self.count -= 1;
            self.inner.left();
        }
    }
}

impl<J: Send + 'static> Drop for Leavers<J> {
    fn drop(&mut self) {
        // The process was terminated, so the remaining hooks do not run.
        for _ in 0..self.count {
            self.inner.left();
        }
    }
}
