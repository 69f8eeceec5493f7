//! What is drawn before a run begins.

use crate::chance::Chance;
use crate::faults::Faults;
#[cfg(procession_sim)]
use crate::memory::Processor;
use crate::time::US;

/// Nanoseconds of a step. Each run draws one of these.
const STEPS: [u64; 4] = [200, 20, 5 * US, 300 * US];

/// The choices that were made for a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    /// The classes of faults that exist in the run.
    pub(crate) faults: Faults,
    /// The classes that the check allows.
    pub(crate) allowed: Faults,
    pub(super) step_ns: u64,
    pub(super) draws_budgets: bool,
    /// Set if schedulers may write files.
    pub(crate) keeps_files: bool,
    /// Set if each operation of an atomic is a point.
    #[cfg(procession_sim)]
    pub(crate) at_atomics: bool,
    /// The processor that a run with such points simulates.
    #[cfg(procession_sim)]
    pub(crate) processor: Processor,
}

impl Setup {
    /// Draws a set-up. All its values are decisions on the tape.
    pub(crate) fn draw(
        chance: &mut Chance,
        workers: (usize, usize),
        allowed: Faults,
        may_draw_budgets: bool,
    ) -> Self {
        let workers = workers.0 + chance.setup((workers.1 - workers.0 + 1) as u32) as usize;
        let threads = workers + [4, 1, 0, 16][chance.setup(4) as usize];
        let step_ns = STEPS[chance.setup(STEPS.len() as u32) as usize];
        let draws_budgets = may_draw_budgets && chance.setup(2) == 1;
        let faults = allowed
            .iter()
            .filter(|fault| !fault.is_of_calls() && chance.setup(2) == 1)
            .fold(Faults::none(), Faults::with);
        Self {
            workers,
            threads,
            faults,
            allowed,
            step_ns,
            draws_budgets,
            keeps_files: false,
            #[cfg(procession_sim)]
            at_atomics: false,
            #[cfg(procession_sim)]
            processor: Processor::default(),
        }
    }

    /// Makes each operation of an atomic a point, on this processor.
    #[cfg(procession_sim)]
    pub(crate) fn at_atomics(self, processor: Processor) -> Self {
        Self { at_atomics: true, processor, ..self }
    }
}
