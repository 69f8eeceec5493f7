//! Jobs that end themselves, and workers that are killed.

use std::any::Any;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{AsyncPool, Builder, CoPool, JobError, JobHandle, Pool, PoolStats, Queue};
use procession::process::{current_pid, exit, kill};
use procession::sync::{Barrier, oneshot};
use procession::{Exit, Pid, Scheduler, coroutine, sleep, timeout};

use super::assert_sums;
use crate::scene::soon;

const HOUR: Duration = Duration::from_secs(3600);

/// A pool of processes of either kind.
#[derive(Clone)]
pub(super) enum Processes {
    Async(AsyncPool, Key),
    Coroutines(CoPool, Key),
}

/// The key of the jobs, if they have one.
type Key = Option<&'static str>;

impl Processes {
    /// Returns a pool of each kind, each with a scheduler of its own.
    pub(super) fn of_each_kind(capacity: usize) -> [(Scheduler, Self); 2] {
        Self::with_queue(capacity, Queue::Unbounded)
    }

    /// Returns a pool of each kind with this queue, each with a scheduler of its own.
    pub(super) fn with_queue(capacity: usize, queue: Queue) -> [(Scheduler, Self); 2] {
        Self::of(|| Pool::builder().capacity(capacity).queue(queue))
    }

    /// Returns a pool of each kind, each with a scheduler of its own.
    pub(super) fn of(builder: impl Fn() -> Builder) -> [(Scheduler, Self); 2] {
        let [first, second] = [driven(), driven()];
        let asynchronous = builder().on(&first).build_async().expect("valid");
        let coroutines = builder().on(&second).build_coroutines().expect("valid");
        [(first, Self::Async(asynchronous, None)), (second, Self::Coroutines(coroutines, None))]
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: impl Future<Output = T> + Send + 'static,
    ) -> JobHandle<T> {
        let submitted = match self {
            Self::Async(pool, None) => pool.job(job).try_submit().map_err(drop),
            Self::Async(pool, Some(key)) => pool.job(job).key(key).try_submit().map_err(drop),
            Self::Coroutines(pool, key) => {
                let job = pool.job(move || coroutine::wait(job));
                let job = if let Some(key) = key { job.key(key) } else { job };
                job.try_submit().map_err(drop)
            }
        };
        submitted.expect("it is open")
    }

    /// Runs an empty job once there is a place. If the wait is refused, returns whether the reason
    /// was a deadlock.
    pub(super) async fn execute(&self) -> Result<(), bool> {
        match self {
            Self::Async(pool, _) => {
                pool.execute(async {}).await.map_err(|error| error.is_deadlock())
            }
            Self::Coroutines(pool, _) => {
                pool.execute(|| {}).await.map_err(|error| error.is_deadlock())
            }
        }
    }

    /// Returns a handle to each member.
    pub(super) fn members(&self) -> Vec<Self> {
        match self {
            Self::Async(pool, key) => {
                pool.members().into_iter().map(|member| Self::Async(member, *key)).collect()
            }
            Self::Coroutines(pool, key) => {
                pool.members().into_iter().map(|member| Self::Coroutines(member, *key)).collect()
            }
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        match self {
            Self::Async(pool, _) => pool.stats(),
            Self::Coroutines(pool, _) => pool.stats(),
        }
    }

    /// Returns a handle to the pool for jobs of this key.
    pub(super) fn with_key(&self, key: &'static str) -> Self {
        match self {
            Self::Async(pool, _) => Self::Async(pool.clone(), Some(key)),
            Self::Coroutines(pool, _) => Self::Coroutines(pool.clone(), Some(key)),
        }
    }

    /// Submits a job without an end. Returns the process that runs it.
    async fn submit_endless(&self) -> (JobHandle<()>, Pid) {
        let (tell, told) = oneshot::channel();
        let handle = self.submit(async move {
            tell.send(current_pid().expect("it is a process")).expect("the test listens");
            pending().await
        });
        (handle, told.await.expect("it runs"))
    }

    pub(super) async fn end(&self) {
        match self {
            Self::Async(pool, _) => {
                pool.close();
                pool.ended().await.expect("its jobs end");
            }
            Self::Coroutines(pool, _) => {
                pool.close();
                pool.ended().await.expect("its jobs end");
            }
        }
        let stats = self.stats();
        assert_sums(&stats);
        assert_eq!((stats.live, stats.queued), (0, 0));
    }
}

fn driven() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: no test keeps a pointer to a thread-local across a suspension.
    unsafe { builder.enable_coroutines() }.build().expect("it starts no thread")
}

#[track_caller]
fn killed(pid: Pid) {
    assert!(kill(pid), "it was alive");
}

/// Goal: the place of a worker that is killed is given to a queued job, although another worker is
/// busy. Method: the busy one waits for the queued job.
#[test]
fn the_place_of_a_killed_worker_goes_to_a_queued_job() {
    for (scheduler, pool) in Processes::of_each_kind(2) {
        scheduler.block_on(async {
            let (endless, pid) = pool.submit_endless().await;
            let (release, released) = oneshot::channel();
            let waits = pool.submit(async move { released.await.is_ok() });
            let queued = pool.submit(async move { release.send(()).is_ok() });
            killed(pid);
            assert_eq!(timeout(HOUR, queued).await, Ok(Ok(true)));
            assert_eq!(waits.await, Ok(true));
            assert_eq!(endless.await, Err(JobError::Cancelled));
            pool.end().await;
        });
    }
}

#[test]
fn a_pool_whose_workers_are_killed_keeps_its_capacity() {
    for (scheduler, pool) in Processes::of_each_kind(4) {
        scheduler.block_on(async {
            let mut pids = Vec::new();
            for _ in 0..3 {
                pids.push(pool.submit_endless().await.1);
            }
            let (gate, opened) = oneshot::channel::<()>();
            let long = pool.submit(async move { opened.await.is_ok() });
            let meeting = Arc::new(Barrier::new(3));
            let meets = (0..3).map(|_| {
                let meeting = Arc::clone(&meeting);
                pool.submit(async move { meeting.wait().await })
            });
            let meets: Vec<_> = meets.collect();
            for pid in pids {
                killed(pid);
            }
            for job in meets {
                assert!(timeout(HOUR, job).await.is_ok(), "three run beside the long one");
            }
            assert!(!long.is_finished());
            gate.send(()).expect("it waits");
            assert_eq!(long.await, Ok(true));
            pool.end().await;
        });
    }
}

#[test]
fn a_killed_worker_passes_the_turn_of_its_key_on() {
    for (scheduler, pool) in Processes::of_each_kind(8) {
        scheduler.block_on(async {
            let (_other, other) = pool.submit_endless().await;
            let keyed = pool.with_key("key");
            let (_first, first) = keyed.submit_endless().await;
            let second = keyed.submit(async { 2 });
            killed(first);
            assert_eq!(timeout(HOUR, second).await, Ok(Ok(2)));
            killed(other);
            pool.end().await;
        });
    }
}

/// Goal: a worker that is killed in a scheduler without room for another process is replaced once
/// there is room, and the queued job does not wait for the busy worker.
#[test]
fn a_killed_worker_is_replaced_once_there_is_room() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().max_processes(2);
    // SAFETY: as in `driven`.
    let scheduler = unsafe { builder.enable_coroutines() }.build().expect("it starts no thread");
    let pool =
        Pool::builder().capacity(2).queue(Queue::Unbounded).on(&scheduler).build_coroutines();
    let pool = Processes::Coroutines(pool.expect("valid"), None);
    scheduler.block_on(async {
        let (_first, first) = pool.submit_endless().await;
        let (_second, second) = pool.submit_endless().await;
        let queued = pool.submit(async { 3 });
        killed(first);
        assert_eq!(timeout(HOUR, queued).await, Ok(Ok(3)));
        killed(second);
        pool.end().await;
    });
}

fn leaves<T>() -> T {
    exit(Exit::failed("no disk"))
}

#[test]
fn the_exit_of_a_job_reaches_its_handle_in_every_kind_of_pool() {
    let scheduler = driven();
    let builder = || Pool::builder().capacity(1);
    let threads = builder().build().expect("valid");
    let function = builder().build_function(|()| leaves()).expect("valid");
    let asynchronous = builder().on(&scheduler).build_async().expect("valid");
    let async_function = builder().on(&scheduler).build_async_function(|()| async { leaves() });
    let async_function = async_function.expect("valid");
    let coroutines = builder().on(&scheduler).build_coroutines().expect("valid");
    let co_function = builder().on(&scheduler).build_coroutine_function(|()| leaves());
    let co_function = co_function.expect("valid");
    let handles = scheduler.block_on(async {
        [
            ("threads", threads.submit(leaves).expect("open")),
            ("a function", function.submit(()).expect("open")),
            ("async", asynchronous.submit(async { leaves() }).await.expect("open")),
            ("an async function", async_function.submit(()).await.expect("open")),
            ("coroutines", coroutines.submit(leaves).await.expect("open")),
            ("a function in coroutines", co_function.submit(()).await.expect("open")),
            ("spawn_blocking", procession::spawn_blocking(leaves::<u32>)),
        ]
    });
    let exited = || Err(JobError::Exited(Exit::failed("no disk")));
    for (kind, handle) in handles {
        assert_eq!(handle.join(), exited(), "{kind}");
    }
    threads
        .scope(|scope| assert_eq!(scope.submit(leaves).expect("open").join(), exited()))
        .expect("it is no job");
    // The workers go on, and the ends are counted.
    scheduler.block_on(async {
        assert_eq!(coroutines.submit(|| 1).await.expect("open").await, Ok(1));
        assert_eq!(asynchronous.submit(async { 1 }).await.expect("open").await, Ok(1));
    });
    let stats = [asynchronous.stats(), coroutines.stats()];
    assert_eq!(stats.map(|stats| (stats.panicked, stats.workers_started)), [(1, 1); 2]);
    let error = JobError::Exited(Exit::failed("no disk"));
    let text = Exit::from_error(&error).to_string();
    assert!(text.ends_with("the job ended itself: the process failed: no disk"), "{text}");
}

#[test]
fn the_exit_of_a_job_without_a_handle_reaches_the_handler() {
    let scheduler = driven();
    let (report, reports) = crate::home::mpsc::channel();
    let handler = move |payload: Box<dyn Any + Send>| {
        report.send(*payload.downcast::<Exit>().expect("an exit")).expect("the test listens");
    };
    let builder = Pool::builder().capacity(1).on_panic(handler);
    let threads = builder.clone().build().expect("valid");
    let asynchronous = builder.clone().on(&scheduler).build_async().expect("valid");
    let coroutines = builder.on(&scheduler).build_coroutines().expect("valid");
    scheduler.block_on(async {
        asynchronous.execute(async { leaves() }).await.expect("open");
        coroutines.execute(leaves).await.expect("open");
        sleep(HOUR).await;
    });
    threads.execute(leaves).expect("open");
    for _ in 0..3 {
        assert_eq!(soon(&reports), Exit::failed("no disk"));
    }
}
