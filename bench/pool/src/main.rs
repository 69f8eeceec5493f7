//! The workload `pool_threads` of `procession-bench` on other pools of threads. The first argument
//! selects the pool.

#[expect(dead_code, reason = "one workload needs little of it")]
#[path = "../../own/src/meter.rs"]
mod meter;
#[expect(dead_code, reason = "pools of threads have a width of their own, and wait by themselves")]
#[path = "../../peer.rs"]
mod peer;
#[expect(dead_code, reason = "it defines the other workloads, too")]
#[path = "../../own/src/workload.rs"]
mod workload;

use std::env;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Relaxed};

use meter::{compute, now};
use peer::Peer;
use workload::{
    Failed, Outcome, POOL_THREADS, POOL_THREADS_JOBS, POOL_TINY, Scale, Workload, check, each,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs closures on [`POOL_THREADS`] threads.
trait Pool: Sized + 'static {
    const NAME: &'static str;

    fn start() -> io::Result<Self>;
    fn execute(&self, job: impl FnOnce() + Send + 'static);
}

/// A pool as a peer.
struct Measured<P>(P);

impl<P: Pool> Peer for Measured<P> {
    const NAME: &'static str = P::NAME;

    const WORKLOADS: &'static [Workload<Self>] = &[Workload {
        definition: &workload::POOL_THREADS_EMPTY,
        run: |pool, scale| jobs(&pool.0, scale),
    }];

    fn start(_: &[&'static str]) -> io::Result<Self> {
        P::start().map(Self)
    }
}

fn jobs(pool: &impl Pool, scale: Scale) -> Outcome {
    let jobs = scale.of(POOL_THREADS_JOBS);
    let mut outcome = Vec::new();
    for tiny in [false, true] {
        let left = Arc::new(AtomicU64::new(jobs));
        let done = Arc::new(AtomicU64::new(0));
        let (ends, ended) = mpsc::sync_channel(1);
        let start = now();
        for _ in 0..jobs {
            let (left, done, ends) = (Arc::clone(&left), Arc::clone(&done), ends.clone());
            pool.execute(move || {
                if tiny {
                    compute(POOL_TINY);
                }
                done.fetch_add(1, Relaxed);
                // Not all pools report the end of all jobs, so the last job does.
                if left.fetch_sub(1, AcqRel) == 1 {
                    ends.send(()).expect("the main thread waits");
                }
            });
        }
        ended.recv().map_err(Failed::error)?;
        outcome.push(each(start, jobs));
        check("the jobs done", jobs, done.load(Relaxed))?;
    }
    Ok(outcome)
}

impl Pool for rayon::ThreadPool {
    const NAME: &'static str = "rayon";

    fn start() -> io::Result<Self> {
        rayon::ThreadPoolBuilder::new().num_threads(POOL_THREADS).build().map_err(io::Error::other)
    }

    fn execute(&self, job: impl FnOnce() + Send + 'static) {
        self.spawn(job);
    }
}

impl Pool for threadpool::ThreadPool {
    const NAME: &'static str = "threadpool";

    fn start() -> io::Result<Self> {
        Ok(Self::new(POOL_THREADS))
    }

    fn execute(&self, job: impl FnOnce() + Send + 'static) {
        Self::execute(self, job);
    }
}

impl Pool for rusty_pool::ThreadPool {
    const NAME: &'static str = "rusty_pool";

    fn start() -> io::Result<Self> {
        Ok(rusty_pool::Builder::new().core_size(POOL_THREADS).max_size(POOL_THREADS).build())
    }

    fn execute(&self, job: impl FnOnce() + Send + 'static) {
        Self::execute(self, job);
    }
}

impl Pool for tokio::runtime::Runtime {
    const NAME: &'static str = "spawn_blocking";

    fn start() -> io::Result<Self> {
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(POOL_THREADS).build()
    }

    fn execute(&self, job: impl FnOnce() + Send + 'static) {
        drop(self.spawn_blocking(job));
    }
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some("rayon") => peer::main::<Measured<rayon::ThreadPool>>(arguments),
        Some("threadpool") => peer::main::<Measured<threadpool::ThreadPool>>(arguments),
        Some("rusty_pool") => peer::main::<Measured<rusty_pool::ThreadPool>>(arguments),
        Some("spawn_blocking") => peer::main::<Measured<tokio::runtime::Runtime>>(arguments),
        _ => {
            #[expect(clippy::print_stderr, reason = "it is the program's interface")]
            {
                eprintln!(
                    "usage: pool-bench rayon|threadpool|rusty_pool|spawn_blocking [--rounds N] [--json] [--tiny]"
                );
            }
            ExitCode::from(2)
        }
    }
}
