//! The timers of a pool with resting workers: reaping and retrying.

use std::io;
use std::sync::{Arc, Weak};

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::Relaxed;

use super::engine::Inner;
use crate::SpawnOptions;
use crate::scheduler::shared::Shared;
use crate::time::action::Action;
use crate::time::armed::Armed;
use crate::time::{arm, sleep_on};

impl<J> Inner<J> {
    pub(super) fn stop_reaper(&self) {
        self.delete(self.change_reaper(Option::take));
    }

    fn delete(&self, reaper: Option<(u64, Armed)>) {
        if let (Some((_, armed)), Some(shared)) = (reaper, self.engine.scheduler()) {
            drop(armed.delete(shared));
        }
    }

    fn change_reaper<R>(&self, change: impl FnOnce(&mut Option<(u64, Armed)>) -> R) -> R {
        change(&mut self.reaper.lock())
    }
}

impl<J: Send + 'static> Inner<J> {
    pub(super) fn prestart(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        let until = self.rest_until();
        let reap_at = self.core.prestart(wanted, until, &mut || self.start())?;
        self.reap_at(reap_at);
        Ok(())
    }

    /// Returns the time until which a worker rests that begins to rest now.
    pub(super) fn rest_until(&self) -> u64 {
        // Threads and coroutines read the clock when they park.
        let Some(shared) = self.engine.scheduler().filter(|_| self.engine.rests()) else {
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
        let (Some(when), Some(shared)) = (when, self.engine.scheduler()) else {
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

    pub(super) fn forget_retry(&self) {
        self.core.forget_retry();
    }

    /// Starts workers for queued jobs for which none could be started before.
    pub(super) fn retry(self: &Arc<Self>) {
        self.step(|core, start| ((), core.retry(start)));
    }

    fn reap(&self) {
        if let Some(shared) = self.engine.scheduler() {
            let next = self.woken(self.core.reap(shared.world.now()));
            self.reap_at(next);
        }
    }
}
