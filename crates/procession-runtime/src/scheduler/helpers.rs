//! Helpers: threads that run blocking code on behalf of coroutines, and that look names up.
//!
//! An idle helper stays for a while, and the most recently used helper is used first. So the
//! threads of a burst leave, and a trickle of jobs keeps one helper. When the maximum number of
//! threads is reached, jobs wait in a queue.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use procession_sync::Mutex;

use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::sys::{Parker, World};

/// Maximum number of threads, the same as tokio's for the same purpose.
const THREADS_MAX: usize = 512;
/// The keep-alive of a helper in nanoseconds: ten seconds, as everywhere.
const STAY: u64 = 10_000_000_000;

/// A job for a helper. It does not panic.
pub(crate) trait HelperJob: Send + Sync {
    fn run(&self);

    /// Gives the job up, because no helper will run it.
    fn refuse(&self);
}

/// The helpers of one scheduler. They end with it.
#[derive(Default)]
pub(crate) struct Helpers(Arc<Mutex<Crowd>>);

#[derive(Default)]
struct Crowd {
    jobs: VecDeque<Arc<dyn HelperJob>>,
    /// The helpers that wait for a job. The one used last is last.
    idle: Vec<Arc<Helper>>,
    /// The number of helpers, and of helpers that are being started.
    threads: usize,
    closed: bool,
}

#[derive(Default)]
struct Helper {
    parker: Parker,
}

impl Part for Helpers {}

impl Helpers {
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    fn change<R>(crowd: &Mutex<Crowd>, change: impl FnOnce(&mut Crowd) -> R) -> R {
        change(&mut crowd.lock())
    }

    /// Runs a job on a helper, sooner or later. If there is no helper and the system refuses to
    /// start one, all jobs that are queued are refused.
    pub(crate) fn run(&self, world: &World, name: &str, job: Arc<dyn HelperJob>) {
        enum HelperNext {
            Wake(Arc<Helper>),
            Start,
            Queued,
        }
        let next = Self::change(&self.0, |crowd| {
            crowd.jobs.push_back(job);
            match crowd.idle.pop() {
                Some(helper) => HelperNext::Wake(helper),
                None if crowd.threads < THREADS_MAX => {
                    crowd.threads += 1;
                    HelperNext::Start
                }
                None => HelperNext::Queued,
            }
        });
        match next {
            HelperNext::Wake(helper) => helper.parker.unpark(),
            HelperNext::Queued => {}
            HelperNext::Start => {
                let crowd = Arc::clone(&self.0);
                world.point();
                let started = world.start_thread(format!("{name}-helper"), move || help(&crowd));
                if started.is_err() {
                    let refused = Self::change(&self.0, |crowd| {
                        crowd.threads -= 1;
                        // Another helper runs the jobs. Or one is being started, and if that is
                        // refused as well, its caller gives the jobs up.
                        if crowd.threads > 0 { VecDeque::new() } else { mem::take(&mut crowd.jobs) }
                    });
                    refused.iter().for_each(|job| job.refuse());
                }
            }
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let idle = Self::change(&self.0, |crowd| {
            crowd.closed = true;
            mem::take(&mut crowd.idle)
        });
        idle.iter().for_each(|helper| helper.parker.unpark());
    }
}

/// The main function of a helper's thread.
fn help(crowd: &Mutex<Crowd>) {
    // The real clock, also for a scheduler with a test clock: the keep-alive of a thread is no
    // event that a process can see.
    let world = World::current(Some(0));
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
                // Still in the list: no job was given to it.
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
