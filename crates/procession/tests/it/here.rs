//! The scheduler that code belongs to, wherever the runtime calls it.

use crate::home::{mpsc, thread};
use std::mem::forget;
use std::time::Duration;

use procession::pool::{OnFull, Pool, Queue};
use procession::process::{current_pid, link, register, whereis};
use procession::time::{Instant, run_after, run_every};
use procession::{
    Context, Pid, Scheduler, SpawnOptions, coroutine, sleep, spawn, spawn_blocking, start,
    yield_now,
};

use crate::scene::{driven, panic_quietly, soon, threaded};

/// The scheduler and the process that the calling code belongs to.
fn here() -> (u32, Option<Pid>) {
    (spawn(async {}).pid().scheduler(), current_pid())
}

fn own_pid() -> Pid {
    current_pid().expect("this is a process")
}

/// Creates schedulers that run processes on all kinds of threads.
fn all_kinds() -> [Scheduler; 3] {
    let driven_by_callers = Scheduler::builder().worker_threads(2).callers_drive();
    [driven(), threaded(2), driven_by_callers.build().expect("the system has threads")]
}

#[test]
fn a_blocking_job_is_on_the_scheduler_of_its_submitter() {
    for scheduler in all_kinds() {
        scheduler.block_on(async {
            let named = start(|mut cx: Context<()>| async move { cx.recv().await });
            register("a process", named.pid()).expect("the name is free");
            let process = spawn(async {
                let job = spawn_blocking(|| {
                    assert!(!link(own_pid()), "a job is no step of the process");
                    (here(), whereis("a process"))
                });
                (own_pid(), job.await.expect("it does not panic"))
            });
            let (pid, (place, found)) = process.await.expect("it does not panic");
            assert_eq!(place, (scheduler.id(), Some(pid)));
            assert_eq!(found, Some(named.pid()));
            // A block-on future is no process.
            assert_eq!(spawn_blocking(here).await, Ok((scheduler.id(), None)));
        });
    }
}

#[test]
fn the_current_scheduler_is_the_one_that_a_spawn_uses() {
    let current = || Scheduler::current().map(|own| own.id());
    for scheduler in all_kinds() {
        let id = Some(scheduler.id());
        let seen = scheduler.block_on(async move {
            let process = spawn(async move { (current(), spawn_blocking(current).await) });
            (current(), process.await.expect("it does not panic"))
        });
        assert_eq!(seen, (id, (id, Ok(id))));
        let other = threaded(1);
        let _entered = other.enter();
        assert_eq!(current(), Some(other.id()));
    }
}

#[test]
fn a_scheduler_whose_last_handle_is_gone_has_no_current_handle() {
    let scheduler = threaded(1);
    let (tells, told) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let job = scheduler.spawn(async move {
        tells.send(Scheduler::current().is_some()).expect("the test listens");
        soon(&goes);
        tells.send(Scheduler::current().is_some()).expect("the test listens");
    });
    assert!(soon(&told));
    drop(scheduler);
    go.send(()).expect("the process listens, because nothing ends a step");
    assert!(!soon(&told));
    drop(job);
}

#[test]
fn a_job_of_each_kind_of_pool_is_on_the_scheduler_of_its_submitter() {
    let pool = Pool::builder().capacity(2).build().expect("in range");
    let function = Pool::builder().build_function(|()| here()).expect("in range");
    for scheduler in all_kinds() {
        let (pool, function) = (pool.clone(), function.clone());
        let process = scheduler.spawn(async move {
            let (tells, told) = mpsc::channel();
            let mut places = vec![
                pool.submit(here).expect("it is open").await,
                function.submit(()).expect("it is open").await,
                pool.reserve().await.expect("it is open").submit(here).expect("it is open").await,
            ];
            pool.execute(move || tells.send(here()).expect("the test listens")).expect("open");
            places.push(spawn_blocking(move || soon(&told)).await);
            let mut scoped = None;
            pool.scope(|scope| {
                scope.execute(|| scoped = Some(here())).expect("it is open");
            })
            .expect("this is no job");
            places.push(Ok(scoped.expect("the scope has ended")));
            (own_pid(), places)
        });
        let (pid, places) = scheduler.block_on(process).expect("it does not panic");
        for place in places {
            assert_eq!(place, Ok((scheduler.id(), Some(pid))));
        }
    }
    // A thread that belongs to no scheduler submits to the default one, even after all these.
    let place = pool.submit(here).expect("it is open").join();
    assert_eq!(place, Ok((Scheduler::global().id(), None)));
}

/// Goal: a job runs for its submitter, also on the thread of another process. Method: the only
/// worker of the pool waits for a job that it helps with, which another scheduler's process has
/// submitted.
#[test]
fn a_job_that_a_waiter_runs_itself_is_still_on_the_scheduler_of_its_submitter() {
    let pool = Pool::builder().capacity(1).queue(Queue::Unbounded).build().expect("in range");
    let (one, other) = (threaded(1), threaded(1));
    let ((begins, begun), (gives, given)) = (mpsc::channel(), mpsc::channel());
    let helps = one.spawn({
        let pool = pool.clone();
        async move {
            let job = pool.submit(move || {
                begins.send(()).expect("the test listens");
                let job: procession::pool::JobHandle<_> = soon(&given);
                (job.join(), here())
            });
            (own_pid(), job.expect("it is open").await)
        }
    });
    soon(&begun);
    let submits = other.spawn(async move {
        gives.send(pool.submit(here).expect("it is open")).expect("the job waits");
        own_pid()
    });
    let submitter = submits.join().expect("it does not panic");
    let (pid, places) = helps.join().expect("it does not panic");
    let (helped, own) = places.expect("it does not panic");
    assert_eq!(helped, Ok((other.id(), Some(submitter))));
    assert_eq!(own, (one.id(), Some(pid)), "it is back");
}

#[test]
fn a_job_that_its_submitter_runs_itself_is_part_of_the_submitter() {
    let builder = Pool::builder().capacity(1).on_full(OnFull::CallerRuns);
    let pool = builder.build().expect("in range");
    let ((begins, begun), (ends, ended)) = (mpsc::channel(), mpsc::channel::<()>());
    let busy = pool.submit(move || {
        begins.send(()).expect("the test listens");
        soon(&ended);
    });
    soon(&begun);
    for scheduler in all_kinds() {
        let pool = pool.clone();
        let process = scheduler.spawn(async move {
            let job = pool.submit(|| (here(), link(own_pid())));
            (own_pid(), job.expect("it is open").await)
        });
        let (pid, place) = scheduler.block_on(process).expect("it does not panic");
        assert_eq!(place, Ok(((scheduler.id(), Some(pid)), true)));
    }
    ends.send(()).expect("the job waits");
    assert_eq!(busy.expect("it is open").join(), Ok(()));
}

#[test]
fn blocking_code_of_a_coroutine_is_on_its_scheduler() {
    // SAFETY: the coroutine holds nothing across a wait.
    let builder = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads");
    let child =
        SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| {
            let thread = thread::current().id();
            let (elsewhere, place) =
                coroutine::blocking(move || (thread::current().id() != thread, here()))
                    .unwrap_or_else(|_| panic_quietly("the system has threads"));
            (own_pid(), elsewhere, place)
        });
    let (pid, elsewhere, place) = child.expect("they are enabled").join().expect("it ends well");
    assert!(elsewhere, "it ran on a helper");
    assert_eq!(place, (scheduler.id(), Some(pid)));
}

#[test]
fn functions_of_timers_and_hooks_of_threads_are_on_their_scheduler() {
    let (starts, hooked) = mpsc::channel();
    let stops = starts.clone();
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        // On a busy machine, a further thread would start and stop at any moment.
        .max_threads(1)
        .on_thread_start(move || starts.send(("start", here())).expect("the test listens"))
        .on_thread_stop(move || {
            // The scheduler has ended, so the process is refused, here and not elsewhere.
            let refused = SpawnOptions::new().try_spawn(async {}).expect_err("it has ended");
            assert!(refused.is_closing());
            stops.send(("stop", (0, current_pid()))).expect("the test listens");
        })
        .build()
        .expect("the system has threads");
    assert_eq!(soon(&hooked), ("start", (scheduler.id(), None)));
    let (once, told) = mpsc::channel();
    let every = once.clone();
    scheduler.block_on(async {
        let short = Duration::from_micros(1);
        let fires = run_after(short, move || once.send(("once", here())).expect("it listens"));
        fires.expect("there is room");
        let told = spawn_blocking(move || (soon(&told), told)).await.expect("it comes");
        assert_eq!(told.0, ("once", (scheduler.id(), None)));
        let fires = run_every(short, move || every.send(("every", here())).unwrap_or_default());
        let timer = fires.expect("there is room");
        let told = told.1;
        let told = spawn_blocking(move || (soon(&told), told)).await.expect("it comes");
        assert_eq!(told.0, ("every", (scheduler.id(), None)));
        timer.cancel();
    });
    drop(scheduler);
    assert_eq!(soon(&hooked), ("stop", (0, None)));
}

/// Goal: the hook for stalls, and functions of timers that only the watchdog can fire, are on the
/// scheduler that is watched. Method: the only thread blocks.
#[test]
fn the_watchdog_is_on_its_scheduler() {
    let (stalls, stalled) = mpsc::channel();
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_threads(2)
        .on_stall(move |_| stalls.send(here()).unwrap_or_default())
        .build()
        .expect("the system has threads");
    let (fires, fired) = mpsc::channel();
    let blockers: Vec<_> = (0..2).map(|_| mpsc::channel::<()>()).collect();
    let (ends, waits): (Vec<_>, Vec<_>) = blockers.into_iter().unzip();
    let guard = scheduler.enter();
    let both: Vec<_> =
        waits.into_iter().map(|wait| spawn(async move { wait.recv().is_err() })).collect();
    assert_eq!(soon(&stalled), (scheduler.id(), None));
    run_after(Duration::from_millis(1), move || fires.send(here()).expect("it listens"))
        .expect("there is room");
    assert_eq!(soon(&fired), (scheduler.id(), None));
    drop((guard, ends));
    for process in both {
        assert_eq!(process.join(), Ok(true));
    }
}

#[test]
fn a_job_inside_a_job_keeps_the_test_clock_still() {
    let scheduler = driven();
    let elapsed = scheduler.block_on(async {
        let begun = Instant::now();
        let ((goes_on, waits), (tells, told)) = (mpsc::channel::<()>(), mpsc::channel());
        let outer = spawn_blocking(move || {
            let inner = spawn_blocking(move || {
                soon(&waits);
                // Still before the sleep has ended.
                tells.send(Instant::now()).expect("the test listens");
            });
            drop(inner);
        });
        outer.await.expect("it does not panic");
        goes_on.send(()).expect("the job waits");
        sleep(Duration::from_secs(1)).await;
        soon(&told) - begun
    });
    assert_eq!(elapsed, Duration::ZERO);
}

#[test]
fn a_job_that_outlives_its_scheduler_starts_nothing_anywhere() {
    let ((ends, ended), (frees, freed)) = (mpsc::channel(), mpsc::channel::<()>());
    let builder = Scheduler::builder().worker_threads(1);
    let scheduler = builder
        .on_dead_letter(move |_| frees.send(()).expect("it listens"))
        .build()
        .expect("in range");
    let job = scheduler.block_on(async {
        spawn_blocking(move || {
            soon(&ended);
            let refused = SpawnOptions::new().try_spawn(async {}).expect_err("it has ended");
            (refused.is_closing(), whereis("nobody"))
        })
    });
    drop(scheduler);
    ends.send(()).expect("the job waits");
    assert_eq!(job.join(), Ok((true, None)));
    // The job held the scheduler's memory, and has given it up.
    crate::scene::soon_closed(&freed);
}

#[test]
fn guards_nest_and_the_latest_of_those_that_exist_counts() {
    let [one, two] = [threaded(1), threaded(1)];
    let id = || here().0;
    let first = one.enter();
    assert_eq!(id(), one.id());
    let second = two.enter();
    assert_eq!(id(), two.id());
    // In the wrong order.
    drop(first);
    assert_eq!(id(), two.id());
    let third = one.enter();
    assert_eq!(two.block_on(async { id() }), two.id(), "within `block_on` that one counts");
    // Dropped where it does not count.
    two.block_on(async move { drop(third) });
    assert_eq!(id(), two.id());
    drop(second);
    assert_eq!(id(), Scheduler::global().id());
}

#[test]
fn a_process_that_enters_another_scheduler_stays_what_it_is() {
    let other = threaded(1);
    for scheduler in all_kinds() {
        let theirs = other.clone();
        let process = scheduler.spawn(async move {
            let guard = theirs.enter();
            let (place, links) = (here(), link(own_pid()));
            let job = spawn_blocking(here);
            drop(guard);
            yield_now().await;
            (own_pid(), place, links, job.await, here())
        });
        let (pid, place, links, job, after) =
            scheduler.block_on(process).expect("it does not panic");
        assert_eq!(place, (other.id(), Some(pid)));
        assert!(links, "it is a process as before");
        assert_eq!(job, Ok(place), "the job was submitted there");
        assert_eq!(after, (scheduler.id(), Some(pid)));
    }
}

/// Goal: a guard that is held or leaked where it should not be reaches no other process. Method:
/// processes that begin on the same thread afterwards.
#[test]
fn a_guard_that_outlives_its_turn_reaches_nobody() {
    let other = threaded(1);
    // SAFETY: the coroutine holds a guard across a wait, which is no pointer to its frame.
    let builder = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
    let driven = builder.test_clock().build().expect("it starts no thread");
    driven.block_on(async {
        let held = other.enter();
        assert_eq!(here().0, other.id());
        let theirs = other.clone();
        let leaks = driven.spawn(async move {
            forget(theirs.enter());
            let within = here().0;
            yield_now().await;
            (within, here().0)
        });
        assert_eq!(leaks.await, Ok((other.id(), driven.id())));
        let theirs = other.clone();
        let suspends =
            SpawnOptions::new().on(&driven).try_start_coroutine(move |_: coroutine::Context<()>| {
                let _held = theirs.enter();
                let within = here().0;
                coroutine::sleep(Duration::from_secs(1));
                (within, here().0)
            });
        let beside = driven.spawn(async { here().0 });
        assert_eq!(beside.await, Ok(driven.id()));
        assert_eq!(suspends.expect("enabled").await, Ok((other.id(), driven.id())));
        assert_eq!(here().0, driven.id(), "the guard of this future was held across an await");
        drop(held);
        let again = other.enter();
        assert_eq!(here().0, other.id());
        drop(again);
        assert_eq!(here().0, driven.id());
    });
}

#[test]
fn a_thread_that_has_entered_an_ended_scheduler_starts_nothing() {
    let scheduler = threaded(1);
    assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(60))).is_empty());
    let guard = scheduler.enter();
    let refused = SpawnOptions::new().try_spawn(async {}).expect_err("it has ended");
    assert!(refused.is_closing());
    drop(guard);
    assert_eq!(spawn(async { 1 }).join(), Ok(1));
}

#[test]
fn coroutines_of_a_pool_are_processes_of_their_own() {
    // SAFETY: the coroutine holds nothing across a wait.
    let builder = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads");
    let (pid, job) = scheduler
        .block_on(scheduler.spawn(async {
            drop(
                SpawnOptions::new()
                    .try_start_coroutine(|_: coroutine::Context<()>| ())
                    .expect("they are enabled"),
            );
            let pool = Pool::builder().build_coroutines().expect("they are enabled");
            (own_pid(), pool.submit(here).await.expect("it is open").await)
        }))
        .expect("it does not panic");
    let (id, worker) = job.expect("it does not panic");
    assert_eq!(id, scheduler.id());
    assert!(worker.is_some_and(|worker| worker != pid), "the worker is a process of its own");
}
