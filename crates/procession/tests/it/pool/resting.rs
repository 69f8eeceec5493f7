//! The workers of a pool of processes that have no job, against a list of the times at which they
//! leave.

use std::time::Duration;

use procession::pool::Pool;
use procession::sleep;

use crate::scene::driven;

/// The length of a job. All other times are much longer, so that no two moments are close.
const JOB: Duration = Duration::from_millis(1);

const KEEP_ALIVES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::MAX];

const CAPACITY: usize = 8;

/// The idle workers, by the times at which they leave. The last one takes the next job.
#[derive(Debug, Default)]
struct Model {
    now: Duration,
    idle: Vec<Duration>,
}

impl Model {
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.idle.retain(|&until| until > self.now);
    }

    /// Runs jobs that begin and end together.
    fn run(&mut self, jobs: usize, keep_alive: Duration) {
        self.idle.truncate(self.idle.len().saturating_sub(jobs));
        self.pass(JOB);
        let until = self.now.saturating_add(keep_alive);
        self.idle.extend((0..jobs).map(|_| until));
    }

    /// Returns `true` if no worker leaves at about this moment.
    fn is_clear(&self) -> bool {
        self.idle.iter().all(|&until| until.saturating_sub(self.now) > 10 * JOB)
    }
}

#[test]
fn each_idle_worker_stays_for_the_time_that_held_when_it_became_idle() {
    for seed in 0..200 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let scheduler = driven();
        let mut keep_alive = KEEP_ALIVES[2];
        let pool = Pool::builder().capacity(CAPACITY).keep_alive(keep_alive);
        let pool = pool.on(&scheduler).build_async().expect("the settings are in range");
        let (mut model, mut history) = (Model::default(), Vec::new());
        scheduler.block_on(async {
            for _ in 0..30 {
                match chance.u32(0..4) {
                    0 => {
                        keep_alive = KEEP_ALIVES[chance.usize(0..KEEP_ALIVES.len())];
                        pool.set_keep_alive(keep_alive);
                        history.push(format!("keep alive for {keep_alive:?}"));
                    }
                    1 | 2 => {
                        let jobs = chance.usize(1..=CAPACITY);
                        history.push(format!("{jobs} jobs"));
                        for _ in 0..jobs {
                            pool.execute(sleep(JOB)).await.expect("it is open");
                        }
                        pool.idle().await.expect("it stays open");
                        model.run(jobs, keep_alive);
                    }
                    _ => {
                        // In seventeenths, so that no sum of them is a keep-alive.
                        let time = Duration::from_secs(chance.u64(1..60)) / 17;
                        history.push(format!("{time:?} pass"));
                        sleep(time).await;
                        model.pass(time);
                    }
                }
                if !model.is_clear() {
                    // It is not known whether that one has left.
                    return;
                }
                let (live, expected) = (pool.stats().live, model.idle.len());
                assert_eq!(live, expected, "seed {seed}, {model:?} after {history:#?}");
            }
        });
    }
}
