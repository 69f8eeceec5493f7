//! The number of threads, the width, and hooks.

use crate::home::{mpsc, thread};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use procession::{Scheduler, SpawnOptions, blocking, sleep, spawn, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::{Blocked, is_served, sockets_are_served};
use crate::scene::{TIMEOUT, meet, soon, soon_closed, threaded, unwatched};

#[test]
fn processes_bound_to_a_worker_run_whichever_workers_have_the_permits() {
    let scheduler = threaded(2);
    let on = |worker| SpawnOptions::new().on(&scheduler).affinity(worker);
    let mut blocked = Blocked::enter(&scheduler, 2);
    // Keeps two extra workers busy for as long as this test lasts.
    let stop = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..2)
        .map(|_| {
            let stop = Arc::clone(&stop);
            scheduler.spawn(async move {
                while stop.load(SeqCst) == 0 {
                    yield_now().await;
                }
            })
        })
        .collect();
    blocked.release();
    for _ in 0..50 {
        for worker in 0..2 {
            on(worker).spawn(async { yield_now().await }).join().expect("it ends");
        }
    }
    stop.store(1, SeqCst);
    hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
    // Also if the width was lowered since: the bound processes take turns.
    scheduler.set_worker_threads(1).expect("it is in range");
    for worker in [0, 1, 1, 0] {
        on(worker).spawn(async { yield_now().await }).join().expect("it ends");
    }
}

#[test]
fn the_width_can_be_changed_a_thousand_times_under_load() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_threads(8)
        .build()
        .expect("the system has threads");
    let stop = Arc::new(AtomicUsize::new(0));
    let (gets_on, got_on) = mpsc::channel();
    let load: Vec<_> = (0..32)
        .map(|n| {
            let (stop, gets_on) = (Arc::clone(&stop), gets_on.clone());
            scheduler.spawn(async move {
                while stop.load(SeqCst) == 0 {
                    match n % 4 {
                        0 => yield_now().await,
                        1 => sleep(Duration::from_micros(50)).await,
                        2 => blocking(thread::yield_now),
                        _ => spawn(async {}).await.expect("it ends"),
                    }
                    yield_now().await;
                    // Ignored: the test has heard of this process before, and has gone on.
                    let _ = gets_on.send(n);
                }
            })
        })
        .collect();
    for turn in 0..1000_usize {
        scheduler.set_worker_threads(turn * 5 % 8 + 1).expect("it is in range");
        thread::yield_now();
    }
    for width in [1, 8, 3] {
        scheduler.set_worker_threads(width).expect("it is in range");
        assert_eq!(scheduler.worker_threads(), width);
    }
    is_served(&scheduler);
    // Each process makes progress.
    let mut waited_for: BTreeSet<_> = (0..32).collect();
    while !waited_for.is_empty() {
        waited_for.remove(&soon(&got_on));
    }
    drop(got_on);
    stop.store(1, SeqCst);
    load.into_iter().for_each(|process| process.join().expect("it ends"));
    meet(&scheduler, 3);
    let refused =
        scheduler.set_worker_threads(9).expect_err("it is more than there may be threads");
    assert_eq!(refused.to_string(), "worker_threads is 9, but must be from 1 to 8");
    assert!(scheduler.set_worker_threads(0).is_err());
}

#[test]
fn no_more_steps_run_at_once_than_the_scheduler_is_wide() {
    let scheduler = unwatched(2);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // There are extra threads, and every permit changes hands often.
    Blocked::enter(&scheduler, 6).release();
    let processes: Vec<_> = (0..64)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            scheduler.spawn(async move {
                for _ in 0..200 {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    running.fetch_sub(1, SeqCst);
                    yield_now().await;
                }
            })
        })
        .collect();
    processes.into_iter().for_each(|process| process.join().expect("it ends"));
    assert!(most.load(SeqCst) <= 2, "{} steps ran at once", most.load(SeqCst));
}

#[test]
fn threads_beyond_the_width_retire_and_come_back() {
    let (starts, events) = mpsc::channel();
    let (starts, stops) = (Mutex::new(starts.clone()), Mutex::new(starts));
    let name = || thread::current().name().expect("it has a name").to_owned();
    let scheduler = Scheduler::builder()
        .name("retiring")
        .worker_threads(1)
        .keep_alive(Duration::from_millis(1))
        .on_thread_start(move || starts.lock().send((name(), 1)).expect("the test listens"))
        .on_thread_stop(move || stops.lock().send((name(), -1)).expect("the test listens"))
        .build()
        .expect("the system has threads");
    assert_eq!(soon(&events), ("retiring-0".to_owned(), 1));
    let mut threads = 1;
    // On a busy machine more threads than needed may come: the system can let one wait for so long
    // that it is rescued.
    let mut until = |enough: fn(i32) -> bool| {
        while !enough(threads) {
            let (name, change) = soon(&events);
            assert!(name.starts_with("retiring-"), "{name}");
            threads += change;
        }
    };
    for _ in 0..5 {
        let mut blocked = Blocked::enter(&scheduler, 3);
        meet(&scheduler, 1);
        until(|threads| threads >= 4);
        blocked.release();
        until(|threads| threads == 1);
        is_served(&scheduler);
    }
    scheduler.block_on(scheduler.shutdown(Duration::from_secs(60)));
    drop(scheduler);
    while let Ok((_, change)) = events.recv_timeout(TIMEOUT) {
        threads += change;
    }
    assert_eq!(threads, 0);
    soon_closed(&events);
}

#[test]
fn threads_that_retire_beside_those_that_block_leave_one_to_keep_the_time() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .keep_alive(Duration::from_millis(1))
        .build()
        .expect("the system has threads");
    let (tells, told) = mpsc::channel();
    let sleeps = || {
        let tells = tells.clone();
        drop(scheduler.spawn(async move {
            sleep(Duration::from_millis(20)).await;
            tells.send(()).expect("the test listens");
        }));
    };
    // Only the driver is left, and it could retire.
    sleeps();
    let mut first = Blocked::enter(&scheduler, 1);
    soon(&told);
    // The driver retires, and the other worker, which comes back, does not know that.
    sleeps();
    let mut others = Blocked::enter(&scheduler, 2);
    first.release();
    soon(&told);
    sockets_are_served(&scheduler);
    others.release();
}

#[test]
fn hooks_that_panic_harm_nobody() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .on_thread_start(|| crate::scene::panic_quietly("at the start"))
        .on_thread_stop(|| crate::scene::panic_quietly("at the end"))
        .build()
        .expect("the system has threads");
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
}

#[test]
fn threads_run_on_the_processors_that_were_named() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("this is Linux");
    let last = (0..1024).rev().find(|&cpu| allowed.is_set(cpu)).expect("this runs somewhere");
    let scheduler = Scheduler::builder().cpus([last]).build().expect("the system has threads");
    assert_eq!(scheduler.worker_threads(), 1, "by default as wide as they are many");
    let where_to =
        scheduler.spawn(async { rustix::thread::sched_getaffinity(None).expect("this is Linux") });
    let where_to = where_to.join().expect("it ends");
    assert!(where_to.is_set(last) && where_to.count() == 1);
    let absent = (0..1024).find(|&cpu| !allowed.is_set(cpu)).expect("no machine has that many");
    let refused = |builder: procession::scheduler::Builder| {
        builder.build().expect_err("it is out of range").to_string()
    };
    let text = format!(
        "cannot build a scheduler: cpus is [{absent}], and this program may use none of them"
    );
    assert_eq!(refused(Scheduler::builder().cpus([absent])), text);
    let text = "cannot build a scheduler: cpus is 1024, but must be from 0 to 1023";
    assert_eq!(refused(Scheduler::builder().cpus([0, 1024])), text);
    for threads in [1, 4096] {
        let text = format!(
            "cannot build a scheduler: max_threads is {threads}, but must be from 2 to 4095"
        );
        assert_eq!(refused(Scheduler::builder().worker_threads(2).max_threads(threads)), text);
    }
}
