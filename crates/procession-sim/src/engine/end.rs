//! The end of a run.

use super::Engine;
#[cfg(procession_sim)]
use super::ME;
use crate::chance::Chance;
use crate::story::{Failure, Story};
#[cfg(procession_sim)]
use crate::turn::Why;

impl Engine {
    /// Ends the part of the run in which anything is to be found out.
    pub(crate) fn finish(&self) {
        self.note_panics();
        self.set_faults(false);
        self.stop_hosts();
        let mut state = self.state();
        #[cfg(procession_sim)]
        self.end_turn(&mut state, ME.get() as usize - 1, Why::Wait);
        state.is_over = true;
        // What was planned for the rest of the turn does not happen.
        #[cfg(procession_sim)]
        self.begin_turn(&mut state);
        // The wakers keep their scheduler, and its world keeps this engine.
        let wakers = (state.root.take(), std::mem::take(&mut state.settling));
        drop(state);
        drop(wakers);
    }

    /// Drops the values that the program of a host keeps in its system.
    pub(crate) fn drop_locals(&self, home: usize) {
        let mut locals = self.locals.lock();
        let all = std::mem::take(&mut *locals).into_iter();
        let (dropped, left): (Vec<_>, Vec<_>) = all.partition(|(place, _)| place.0 == home);
        locals.extend(left);
        drop(locals);
        drop(dropped);
    }

    /// Returns the failure, the decisions and the story.
    pub(crate) fn outcome(&self) -> (Option<Failure>, Chance, Story) {
        let mut state = self.state();
        let chance = std::mem::replace(&mut state.chance, Chance::replayed(Default::default()));
        let (failure, story) = (state.failure.take(), std::mem::take(&mut state.story));
        // The programs of hosts may keep this engine.
        let net = state.net.take();
        drop(state);
        drop(net);
        (failure, chance, story)
    }

    /// The check waits no longer for the threads of this run.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        (state.is_over, state.is_abandoned) = (true, true);
    }
}
