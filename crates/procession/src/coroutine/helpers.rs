//! Threads that run what blocks, on behalf of coroutines.
//!
//! A thread that has nothing to do stays for a while, the one that was used last on top, so that
//! the crowd of a burst goes and a trickle keeps one. Beyond the most threads, jobs wait in turn.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use procession_sync::Mutex;

use crate::sys::{Parker, World};

/// Threads at most: as many as tokio has for the same purpose.
const THREADS_MAX: usize = 512;
/// How long a thread without a job stays, in nanoseconds: ten seconds, as everywhere.
const STAY: u64 = 10_000_000_000;

/// What a helper is given to do. It does not panic.
pub(crate) trait Job: Send + Sync {
    fn run(&self);
}

/// The helpers of one scheduler. They end with it.
#[derive(Default)]
pub(crate) struct Helpers(Arc<Mutex<Crowd>>);

#[derive(Default)]
struct Crowd {
    jobs: VecDeque<Arc<dyn Job>>,
    /// Those who wait for a job, the last to have one last.
    idle: Vec<Arc<Helper>>,
    threads: usize,
    closed: bool,
}

#[derive(Default)]
struct Helper {
    parker: Parker,
}

impl Helpers {
    fn change<R>(crowd: &Mutex<Crowd>, change: impl FnOnce(&mut Crowd) -> R) -> R {
        change(&mut crowd.lock())
    }

    /// Runs a job on a thread of its own, sooner or later.
    ///
    /// # Errors
    /// The system refused the first thread, so that nobody would run it. It was not run, and is
    /// given up.
    pub(crate) fn run(&self, world: &World, name: &str, job: Arc<dyn Job>) -> io::Result<()> {
        enum Next {
            Wake(Arc<Helper>),
            Start,
            Queued,
        }
        let next = Self::change(&self.0, |crowd| {
            crowd.jobs.push_back(Arc::clone(&job));
            match crowd.idle.pop() {
                Some(helper) => Next::Wake(helper),
                None if crowd.threads < THREADS_MAX => {
                    crowd.threads += 1;
                    Next::Start
                }
                None => Next::Queued,
            }
        });
        match next {
            Next::Wake(helper) => helper.parker.unpark(),
            Next::Queued => {}
            Next::Start => {
                let crowd = Arc::clone(&self.0);
                let started = world.start_thread(format!("{name}-helper"), move || help(&crowd));
                if let Err(error) = started {
                    let given_up = Self::change(&self.0, |crowd| {
                        crowd.threads -= 1;
                        // Others get to it, if there are any and they have not already.
                        let alone = crowd.threads == 0;
                        let place = crowd
                            .jobs
                            .iter()
                            .position(|other| Arc::ptr_eq(other, &job))
                            .filter(|_| alone);
                        place.and_then(|place| crowd.jobs.remove(place)).is_some()
                    });
                    if given_up {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let idle = Self::change(&self.0, |crowd| {
            crowd.closed = true;
            std::mem::take(&mut crowd.idle)
        });
        idle.iter().for_each(|helper| helper.parker.unpark());
    }
}

/// What a helper's thread does.
fn help(crowd: &Mutex<Crowd>) {
    // The real clock, also for a scheduler with a test clock: how long a thread stays is nobody's
    // event.
    let world = World::real(Some(0));
    let own = Arc::new(Helper::default());
    loop {
        let job = Helpers::change(crowd, |crowd| {
            let job = crowd.jobs.pop_front();
            if job.is_none() && !crowd.closed {
                crowd.idle.push(Arc::clone(&own));
            } else if job.is_none() {
                crowd.threads -= 1;
            }
            (job, crowd.closed)
        });
        match job {
            (Some(job), _) => job.run(),
            (None, true) => return,
            (None, false) => {
                world.park(&own.parker, world.now().saturating_add(STAY));
                // Still in the list: nobody has a job for it.
                let leaves = Helpers::change(crowd, |crowd| {
                    let place = crowd.idle.iter().position(|helper| Arc::ptr_eq(helper, &own));
                    let leaves = place.map(|place| crowd.idle.remove(place)).is_some();
                    crowd.threads -= usize::from(leaves);
                    leaves
                });
                if leaves {
                    return;
                }
            }
        }
    }
}
