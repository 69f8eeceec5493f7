//! The runs of all seeds, on one or several threads.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use procession_sync::host::Mutex;

use crate::chance::{Chance, Strategy};
use crate::program::{Rules, Run, run};
use crate::story::Story;

/// The first seed and one in so many run twice, to find what the seed does not decide. The second
/// run replays the tape of the first and records its story, as the replay of a report does.
const TWICE_EVERY: u64 = 20;

/// A seed that ends the search.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) seed: u64,
    pub(crate) ran: Run,
    /// The replay of the run, if it differs.
    pub(crate) again: Option<Run>,
}

/// The result of a check in which no run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The number of seeds that ran.
    pub seeds: u64,
    /// The number of points, where another thread could run.
    pub points: u64,
    /// A digest of the decisions of all runs. It is the same each time that the same program runs
    /// with the same seeds.
    pub hash: u64,
    /// What happened between points.
    #[cfg(procession_sim)]
    pub counts: crate::engine::buffers::OperationCounts,
}

struct Progress {
    /// The seeds that no thread has taken.
    seeds: Range<u64>,
    outcome: Outcome,
    finding: Option<Finding>,
}

struct Search<'a> {
    rules: &'a Rules,
    strategy: Strategy,
    first: u64,
    began: Instant,
    limit: Duration,
    progress: Mutex<Progress>,
}

/// Runs the seeds in order, `jobs` at a time, until a seed fails or the time is over. At least one
/// seed runs. Returns the lowest seed that failed.
///
/// A thread finishes the seed that it has taken. So all seeds below the failing seed have run, and
/// the result does not depend on how fast the threads are.
pub(crate) fn explore(
    rules: &Rules,
    seeds: Range<u64>,
    strategy: Strategy,
    jobs: usize,
    limit: Duration,
) -> Result<Outcome, Box<Finding>> {
    let outcome = Outcome {
        seeds: 0,
        points: 0,
        hash: 0,
        #[cfg(procession_sim)]
        counts: Default::default(),
    };
    let first = seeds.start;
    let count = usize::try_from(seeds.end - first).unwrap_or(usize::MAX);
    let progress = Mutex::new(Progress { seeds, outcome, finding: None });
    let search = Search { rules, strategy, first, began: now(), limit, progress };
    thread::scope(|scope| {
        for job in 1..jobs.min(count) {
            let job = thread::Builder::new().name(format!("job-{job}"));
            // If the system refuses the thread, the other threads do its work.
            if job.spawn_scoped(scope, || search.work()).is_err() {
                break;
            }
        }
        search.work();
    });
    let progress = search.progress.into_inner();
    progress.finding.map_or(Ok(progress.outcome), |finding| Err(Box::new(finding)))
}

#[expect(clippy::disallowed_methods, reason = "a check is limited in real time")]
fn now() -> Instant {
    Instant::now()
}

impl Search<'_> {
    /// Runs seeds until none is left.
    fn work(&self) {
        while let Some(seed) = self.take() {
            let ran = run(self.rules, Chance::drawn(seed, self.strategy), Story::default());
            let replay = || run(self.rules, Chance::replayed(ran.tape.clone()), Story::told());
            let is_chosen = seed == self.first || seed % TWICE_EVERY == 0;
            let twice = ran.failure.is_none() && is_chosen;
            let again = twice.then(replay).filter(|again| again.hash != ran.hash);
            self.note(Finding { seed, ran, again });
        }
    }

    fn take(&self) -> Option<u64> {
        let mut progress = self.progress.lock();
        let is_late = progress.outcome.seeds > 0 && self.began.elapsed() >= self.limit;
        if is_late || progress.finding.is_some() {
            return None;
        }
        let seed = progress.seeds.next()?;
        progress.outcome.seeds += 1;
        Some(seed)
    }

    fn note(&self, result: Finding) {
        let mut progress = self.progress.lock();
        let outcome = &mut progress.outcome;
        outcome.points += result.ran.points;
        #[cfg(procession_sim)]
        {
            outcome.counts += result.ran.counts;
        }
        // A sum, because the seeds end in any order.
        let mixed = (result.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ result.ran.hash)
            .wrapping_mul(0x0000_0100_0000_01b3);
        outcome.hash = outcome.hash.wrapping_add(mixed);
        let is_first = progress.finding.as_ref().is_none_or(|found| result.seed < found.seed);
        if is_first && (result.ran.failure.is_some() || result.again.is_some()) {
            progress.finding = Some(result);
        }
    }
}
