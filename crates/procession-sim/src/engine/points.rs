//! Points: where a thread passes its turn on to another thread.

use std::sync::Arc;

use procession::sim::WaitSource;
use procession_sync::host::MutexGuard;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::{BUSY_MAX, Engine, Held, ME, POINTS_MAX, State, Status};
use crate::engine::quiet::Quiet;
use crate::faults::Fault;
use crate::time::{MS, US, duration};
use crate::turn::Why;

/// By how much a step or a wait is longer at most. See [`BUSY_MAX`].
const LONGER_MAX: u64 = 10 * US;
/// For how long a thread may be preempted. The first one is no fault.
const STALLS: [u64; 6] = [0, MS, 5 * MS, 20 * MS, 100 * MS, 500 * MS];

impl Engine {
    /// Passes a point: decides which thread runs, and waits for the caller's next turn.
    pub(super) fn pass(&self, number: u32, why: Why) {
        let me = number as usize - 1;
        // Relaxed: the monitor only looks whether it grows.
        self.points.fetch_add(1, Relaxed);
        self.reads.store(0, Relaxed);
        if why.can_call() {
            self.note_panics();
            self.note_livelock();
        }
        #[cfg(procession_sim)]
        let _muted = procession_sync::simulated::mute();
        #[cfg(procession_sim)]
        self.end_turn(&mut self.state(), me, why);
        loop {
            let mut state = self.state();
            if state.is_abandoned {
                drop(state);
                return self.rest(me, why);
            }
            if self.points.load(Relaxed) > 2 * POINTS_MAX {
                let left = state.alive();
                drop(state);
                self.stop(left);
                return self.rest(me, why);
            }
            state.pump(self.time());
            if state.poll_sources(self.time()) {
                // The kernel orders what was stored before an event.
                #[cfg(procession_sim)]
                self.order_threads();
            }
            let length = self.time() - state.point_at;
            state.bounds.note_step(length);
            state.point_at = self.time();
            let ready = state.ready(me, why, self.time());
            #[cfg(procession_sim)]
            let ready = self.ready_instead(&mut state, me, why, ready);
            if !ready.is_empty() {
                return self.switch(state, me, why, &ready);
            }
            #[cfg(procession_sim)]
            {
                drop(state);
                self.note_panics();
                state = self.state();
            }
            match self.go_on_quietly(state) {
                // The time that has passed is no step.
                Quiet::GoesOn => self.state().point_at = self.time(),
                Quiet::Stopped => return self.rest(me, why),
            }
        }
    }

    /// Lets more time pass if no thread has waited for the clock for long.
    pub(super) fn note_busy(&self) {
        let mut state = self.state();
        state.busy += 1;
        let longer = state.busy.saturating_sub(BUSY_MAX).min(LONGER_MAX);
        // Relaxed: the turn orders it.
        self.now.fetch_add(longer, Relaxed);
    }

    /// Waits forever, unless the thread has ended: the run is over, and it cannot continue.
    pub(super) fn rest(&self, me: usize, why: Why) {
        if why != Why::End {
            let turn = Arc::clone(&self.state().threads[me].turn);
            turn.take();
        }
    }

    /// Passes the turn to one of the threads that are ready.
    fn switch(&self, mut state: MutexGuard<'_, State>, me: usize, why: Why, ready: &[u32]) {
        let chosen = if state.is_over { 0 } else { state.choose_next(why, ready) };
        let next = ready[chosen as usize] as usize;
        if chosen != 0 || why.preempts() && next != me {
            let (now, is_preempted) = (self.time(), why.preempts() || ready[0] as usize == me);
            let (from, to) = (state.threads[me].name.clone(), state.threads[next].name.clone());
            let place = state.story.place.take();
            state.story.tell(now, || match is_preempted {
                true => format!("{from} is preempted{}, and {to} runs", place.unwrap_or_default()),
                false => format!("{to} runs before others that could"),
            });
        }
        state.in_a_row = if next == me { state.in_a_row + 1 } else { 0 };
        let now = self.time();
        if next != me {
            if let Some(since) = state.threads[next].ready_since() {
                state.bounds.note_delay(now.saturating_sub(since));
            }
            state.threads[me].left_at = (state.threads[me].status == Status::Ready).then_some(now);
            state.threads[next].left_at = None;
        }
        state.threads[next].losing = 0;
        state.point_at = now;
        state.threads[next].status = Status::Ready;
        state.story.running = Some(next);
        let place = state.threads[next].place;
        state.chance.begin_turn(place);
        let hash = self.time();
        state.chance.digest(hash ^ (next as u64) << 56);
        if next == me {
            #[cfg(procession_sim)]
            self.begin_turn(&mut state);
            return;
        }
        #[cfg(procession_sim)]
        self.keep_stores(&mut state, me);
        if why == Why::End {
            state.threads[next].ended = state.threads[me].handle.take();
        }
        let (given, own) =
            (Arc::clone(&state.threads[next].turn), Arc::clone(&state.threads[me].turn));
        drop(state);
        given.give();
        if why == Why::End {
            return;
        }
        own.take();
        let mut state = self.state();
        #[cfg(procession_sim)]
        self.begin_turn(&mut state);
        let ended = state.threads[me].ended.take();
        drop(state);
        if let Some(ended) = ended {
            // Its thread-locals are destroyed before anything else runs.
            drop(ended.join());
        }
    }

    pub(super) fn wait(&self, source: Option<Arc<dyn WaitSource>>, deadline: u64) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        self.note_busy();
        let mut state = self.state();
        let early = state.fault(Fault::EarlyWake, &[0, 1]).is_some();
        let now = self.time();
        let at = me as usize - 1;
        if early {
            let name = state.threads[at].name.clone();
            state.story.tell(now, || format!("{name} wakes without a reason"));
        }
        state.come_to(at, |thread| thread.mark);
        let thread = &mut state.threads[at];
        thread.computed = 0;
        if !std::mem::take(&mut thread.has_token) && !early {
            thread.status = Status::Parked { until: self.visible(deadline), is_woken: false };
            thread.source = source;
        }
        let why = if thread.status == Status::Ready { Why::Point } else { Why::Wait };
        drop(state);
        self.pass(me, why);
        #[cfg(procession_sim)]
        self.order_woken(at);
        let mut state = self.state();
        let thread = &mut state.threads[at];
        (thread.has_token, thread.source) = (false, None);
    }

    /// Holds the calling thread up.
    pub(crate) fn hold(&self, for_ns: u64, how: Held) {
        let me = ME.get();
        if me == 0 {
            return;
        }
        let now = self.time();
        let until = now.saturating_add(for_ns);
        let is_in_step = procession::process::current_pid().is_some();
        {
            let mut state = self.state();
            let State { threads, bounds, .. } = &mut *state;
            let thread = &mut threads[me as usize - 1];
            thread.status = Status::Held { until, since: now, how };
            match how {
                Held::Preempted => {}
                Held::Computes if is_in_step => {
                    let before = thread.computed;
                    thread.computed = before.saturating_add(for_ns);
                    bounds.note_computing(before, thread.computed);
                }
                Held::Computes | Held::Blocks | Held::Late => bounds.note_step(for_ns),
            }
        }
        self.pass(me, Why::Wait);
        if how == Held::Computes {
            self.state().threads[me as usize - 1].used += for_ns;
        }
    }

    /// Draws whether the calling thread is preempted for long.
    pub(super) fn stall(&self, me: u32) {
        let mut state = self.state();
        let wanted = state.take_stall(me as usize - 1);
        let Some(stall) = wanted.or_else(|| state.fault(Fault::Stall, &STALLS)) else { return };
        let (now, place) = (self.time(), state.story.place.clone());
        let name = state.threads[me as usize - 1].name.clone();
        state.story.tell(now, || {
            format!("{name} does not run for {}{}", duration(stall), place.unwrap_or_default())
        });
        state.note_late(me as usize - 1, stall);
        drop(state);
        self.hold(stall, Held::Preempted);
    }
}
