//! Waiting costs nothing. The workers count their wake-ups, and the system counts those of their
//! threads.

use crate::home::{mpsc, thread};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use procession::net::Readiness;
use procession::time::{Instant, interval, run_after, run_every};
use procession::{Context, Scheduler, sleep, spawn, yield_now};

use crate::scene::{alone, soon};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the threads of the schedulers with names that begin with `name`, by number: their
/// states, and how often they gave up the processor.
fn threads_of(name: &str) -> BTreeMap<String, (String, String)> {
    // The system's list may leave some out while threads of other tests come and go.
    let mut threads = listed_threads_of(name);
    loop {
        let again = listed_threads_of(name);
        let is_whole = threads.keys().eq(again.keys());
        threads = again;
        if is_whole {
            return threads;
        }
    }
}

fn listed_threads_of(name: &str) -> BTreeMap<String, (String, String)> {
    let mut threads = BTreeMap::new();
    for thread in fs::read_dir("/proc/self/task").expect("this is Linux") {
        let thread = thread.expect("the list of threads can be read").path();
        // Threads of other tests come and go meanwhile.
        let read = |file| fs::read_to_string(thread.join(file)).unwrap_or_default();
        if read("comm").starts_with(name) {
            let status = read("status");
            let field = |name| {
                let value = status.lines().find_map(|line| line.strip_prefix(name));
                value.map(|value| value.trim().to_owned()).unwrap_or_default()
            };
            let number = thread
                .file_name()
                .expect("it is named by its number")
                .to_string_lossy()
                .into_owned();
            threads.insert(number, (field("State:"), field("voluntary_ctxt_switches:")));
        }
    }
    threads
}

/// Returns the counts that show each wake-up: the parks and searches of the workers.
fn wake_ups(schedulers: &[Scheduler]) -> Vec<(u64, u64, u64)> {
    let workers = schedulers.iter().flat_map(|scheduler| scheduler.snapshot().workers);
    workers.map(|worker| (worker.parks, worker.searches, worker.dispatches)).collect()
}

/// Creates a scheduler of `width` workers, with a thousand processes that wait for messages and a
/// thousand with far timers.
fn crowded(width: usize) -> Scheduler {
    let builder = alone().name(format!("silent{width}")).worker_threads(width);
    // On a busy machine, a worker may have been replaced. The thread that is left over has ended
    // before the silence begins.
    let builder = builder.keep_alive(Duration::from_millis(10));
    let scheduler = builder.build().expect("the system has threads");
    for n in 0..1000 {
        drop(scheduler.spawn(async move { sleep(HOUR + Duration::from_millis(n)).await }));
        drop(scheduler.start(|mut cx: Context<()>| async move { cx.recv().await }));
    }
    scheduler
}

/// Makes it work on all workers, so that it is idle again after much parking and waking.
fn stir(scheduler: &Scheduler) {
    let stirred: Vec<_> = (0..100)
        .map(|n| {
            scheduler.spawn(async move {
                for _ in 0..10 {
                    yield_now().await;
                    sleep(Duration::from_micros(n * 7)).await;
                    spawn(async {}).await.expect("it ends");
                }
            })
        })
        .collect();
    for process in stirred {
        process.join().expect("it ends");
    }
}

/// Goal: an idle scheduler wakes no thread, whatever waits in it. Method: schedulers of several
/// kinds, all idle for ten seconds. These seconds are what is measured.
#[test]
fn what_waits_wakes_nobody_for_ten_seconds() {
    let schedulers = [1, 2, 4].map(crowded);
    schedulers.iter().for_each(stir);
    for scheduler in &schedulers {
        // Timers of all other kinds: with functions, periodic, cancelled, reset, and set by a
        // thread that is not a worker.
        scheduler.block_on(async {
            run_after(HOUR, || {})
                .map(drop)
                .unwrap_or_else(|_| unreachable!("the limit is not reached"));
            run_every(HOUR, || {}).map(drop).expect("the limit is not reached");
            let soon = Duration::from_secs(1);
            let timer =
                run_after(soon, || {}).unwrap_or_else(|_| unreachable!("the limit is not reached"));
            assert!(timer.cancel());
            let timer =
                run_after(soon, || {}).unwrap_or_else(|_| unreachable!("the limit is not reached"));
            assert!(timer.reset(Instant::now() + HOUR));
        });
        drop(scheduler.spawn(async {
            let mut slept = Box::pin(sleep(Duration::from_secs(2)));
            std::future::poll_fn(|task| {
                assert!(slept.as_mut().poll(task).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            slept.as_mut().reset(Instant::now() + HOUR);
            slept.await;
        }));
        drop(scheduler.spawn(async {
            let mut ticks = interval(HOUR);
            ticks.tick().await;
            ticks.tick().await
        }));
        // With a descriptor, the driver waits for it in the kernel.
        drop(scheduler.spawn(async {
            let (_here, there) = UnixStream::pair().expect("the system has descriptors");
            let there = Readiness::new(there).expect("it is a socket");
            there.read_with(|mut there| there.read(&mut [0])).await.expect("it is connected")
        }));
    }
    // A thread that waits for a process waits in the kernel, too.
    let last = schedulers[2].spawn(async { sleep(Duration::from_secs(1200)).await });
    let pid = last.pid();
    crate::home::thread::scope(|scope| {
        scope.spawn(move || last.join().expect_err("it is terminated"));
        for scheduler in &schedulers {
            scheduler.run_until_idle();
        }
        // The workers are parked by their own account, and asleep a moment later. The keys of
        // cancelled and reset timers may cost one wake-up each.
        let (_silent, silence) = mpsc::channel::<()>();
        assert!(silence.recv_timeout(Duration::from_secs(3)).is_err());
        while threads_of("silent").values().any(|(state, _)| !state.starts_with('S')) {
            thread::yield_now();
        }
        let before = (wake_ups(&schedulers), threads_of("silent"));
        let is_silent = silence.recv_timeout(Duration::from_secs(10)).is_err();
        let after = (wake_ups(&schedulers), threads_of("silent"));
        // First, since the scope waits for the thread that joins the process.
        assert!(procession::process::kill(pid));
        assert!(is_silent);
        assert_eq!(after, before);
        assert!((1 + 2 + 4) >= before.1.len() && before.1.len() >= 3, "the threads were found");
    });
}

/// Goal: no kind of work leaves a scheduler restless. Method: 40 schedulers, each with more threads
/// than it keeps, a step that stalled, sleepers and a caller. Then the wake-ups of all their
/// threads are counted, including the watchdogs.
#[test]
fn forty_schedulers_are_silent_after_work_of_every_kind() {
    const ALL: usize = 40;
    let schedulers: Vec<_> = (0..ALL)
        .map(|n| {
            let builder = alone().name(format!("forty{n}")).worker_threads(1 + n % 3);
            builder.keep_alive(Duration::from_millis(10)).build().expect("the system has threads")
        })
        .collect();
    for scheduler in &schedulers {
        let (opens, gate) = mpsc::channel::<()>();
        let gate = std::sync::Arc::new(procession_sync::Mutex::new(gate));
        let blocked: Vec<_> = (0..4)
            .map(|_| {
                let gate = std::sync::Arc::clone(&gate);
                scheduler.spawn(async move {
                    // The gate opens when its other side is dropped.
                    let opened = procession::blocking(|| gate.lock().recv());
                    opened.expect_err("nothing is sent");
                })
            })
            .collect();
        let (found, finds) = mpsc::channel();
        let stalls = scheduler.spawn(async move {
            drop(spawn(async move { found.send(()) }));
            // Only another worker runs the process that reports.
            soon(&finds);
        });
        stir(scheduler);
        scheduler.block_on(sleep(Duration::from_millis(1)));
        drop(opens);
        stalls.join().expect("it ends");
        blocked.into_iter().for_each(|process| process.join().expect("it ends"));
        scheduler.run_until_idle();
    }
    let switches = || [threads_of("forty"), threads_of("watch-forty")];
    let (_silent, silence) = mpsc::channel::<()>();
    // Threads retire, and the watchdogs doze. Each looks once more 5 s after work that was too
    // short for a look.
    assert!(silence.recv_timeout(Duration::from_secs(6)).is_err());
    let before = (wake_ups(&schedulers), switches());
    assert!(silence.recv_timeout(Duration::from_secs(5)).is_err());
    assert_eq!((wake_ups(&schedulers), switches()), before);
    assert_eq!(before.1[1].len(), ALL, "each has its watchdog");
}

/// Goal: a short step that a timer starts wakes its worker, and not the watchdog as well. Method: a
/// process that sleeps for 100 ms, 40 times.
#[test]
fn a_short_step_does_not_wake_the_watchdog() {
    const ROUNDS: u64 = 40;
    let builder = alone().name("short").worker_threads(2);
    let scheduler = builder.build().expect("the system has threads");
    scheduler.spawn(async { sleep(Duration::from_millis(500)).await }).join().expect("it ends");
    let looks = || scheduler.snapshot().stalls.looks;
    let looked = |rounds| {
        let before = looks();
        let ticks = scheduler.spawn(async move {
            for _ in 0..rounds {
                sleep(Duration::from_millis(100)).await;
            }
        });
        ticks.join().expect("it ends");
        looks() - before
    };
    // If other programs keep the worker waiting, a step is not short. So the least disturbed of
    // several rounds counts. The watchdog looks at most once for all of them together, and twice
    // more if the first step was not short.
    let fewest = (0..5).map(|_| looked(ROUNDS / 5)).min().expect("there are some");
    assert!(fewest <= 3, "{fewest} looks for {} short steps", ROUNDS / 5);
}

/// Goal: a step after a rest wakes one worker, although it is not short enough to count as short.
/// Method: a process that computes for 100 us every 50 ms.
#[test]
fn a_step_after_a_rest_wakes_one_worker() {
    const ROUNDS: u64 = 10;
    let scheduler = alone().worker_threads(2).build().expect("the system has threads");
    let fewest = (0..5).map(|_| {
        let before = parks(&scheduler);
        let ticks = scheduler.spawn(async {
            for _ in 0..ROUNDS {
                sleep(Duration::from_millis(50)).await;
                let start = Instant::now();
                while Instant::now() - start < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
            }
        });
        ticks.join().expect("it ends");
        parks(&scheduler) - before
    });
    // One for each step, and some for the start and the end.
    let fewest = fewest.min().expect("there are some");
    assert!(fewest <= ROUNDS + 6, "{fewest} parks for {ROUNDS} steps");
}

fn parks(scheduler: &Scheduler) -> u64 {
    scheduler.run_until_idle();
    scheduler.snapshot().workers.iter().map(|worker| worker.parks).sum()
}

/// Maximum number of parks for each message or timer. They come one after the other. Each finds all
/// workers parked and needs one, which wakes another to search in its place.
const WAKE_UPS: u64 = 4;

#[test]
fn a_message_wakes_few_of_many_workers() {
    const MESSAGES: u64 = 40;
    let scheduler = crowded(8);
    stir(&scheduler);
    let echo = scheduler.start(|mut cx: Context<mpsc::Sender<()>>| async move {
        while let Some(reply) = cx.recv().await {
            reply.send(()).expect("the test listens");
        }
    });
    // If other programs keep a worker waiting, another is woken in its place. So the least
    // disturbed of several rounds counts.
    let fewest = (0..5).map(|_| {
        let before = parks(&scheduler);
        for _ in 0..MESSAGES {
            let (reply, replied) = mpsc::channel();
            echo.send(reply).expect("it is alive");
            soon(&replied);
            scheduler.run_until_idle();
        }
        parks(&scheduler) - before
    });
    let fewest = fewest.min().expect("there are some");
    // A worker that has not parked yet when a message comes saves a park.
    assert!((1..=WAKE_UPS * MESSAGES).contains(&fewest), "{fewest} parks for {MESSAGES} messages");
}

#[test]
fn a_timer_wakes_few_of_many_workers() {
    const TIMERS: u64 = 200;
    let scheduler = crowded(8);
    stir(&scheduler);
    // If other programs keep a worker waiting, others take its timers over. So the least disturbed
    // of several rounds counts.
    let fewest =
        (0..5).map(|_| parks_for_sleepers(&scheduler, TIMERS)).min().expect("there are some");
    assert!(fewest <= WAKE_UPS * TIMERS + 100, "{fewest} parks for {TIMERS} timers");
}

/// Counts the parks of workers while `count` processes sleep for 1 ms, 2 ms and so on.
fn parks_for_sleepers(scheduler: &Scheduler, count: u64) -> u64 {
    let before = parks(scheduler);
    let sleepers: Vec<_> = (1..=count)
        .map(|n| scheduler.spawn(async move { sleep(Duration::from_millis(n)).await }))
        .collect();
    let (told, tells) = mpsc::channel();
    drop(scheduler.spawn(async move {
        for sleeper in sleepers {
            sleeper.await.expect("it ends");
        }
        told.send(()).expect("the test listens");
    }));
    soon(&tells);
    parks(scheduler) - before
}

#[test]
fn the_threads_of_a_dropped_scheduler_leave() {
    for width in [1, 4] {
        let name = format!("leaving{width}");
        let scheduler =
            alone().name(&*name).worker_threads(width).build().expect("the system has threads");
        stir(&scheduler);
        // The system's list may leave some threads out while those of other tests come and go. If
        // they are not there, this hangs.
        while threads_of(&name).is_empty() {
            thread::yield_now();
        }
        drop(scheduler);
        // If they stay, this hangs.
        while !threads_of(&name).is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn the_threads_of_a_scheduler_that_was_shut_down_leave() {
    for width in [1, 4] {
        let name = format!("ended{width}");
        let scheduler =
            alone().name(&*name).worker_threads(width).build().expect("the system has threads");
        stir(&scheduler);
        assert!(scheduler.block_on(scheduler.shutdown(HOUR)).is_empty());
        while !threads_of(&name).is_empty() {
            thread::yield_now();
        }
        // Nothing brings the threads back.
        scheduler.spawn(async {}).join().expect_err("it is refused");
        scheduler.block_on(async { sleep(Duration::from_millis(1)).await });
        assert!(threads_of(&name).is_empty());
    }
}

#[test]
fn a_driven_scheduler_of_one_worker_starts_no_thread() {
    for test_clock in [true, false] {
        let builder = alone().name("driven-only").worker_threads(1);
        let builder = if test_clock { builder.test_clock() } else { builder.callers_drive() };
        let scheduler = builder.build().expect("it starts no thread");
        let before_it_is_driven = scheduler.spawn(async {});
        assert!(!before_it_is_driven.is_finished());
        stir(&scheduler);
        assert!(before_it_is_driven.is_finished());
        assert!(threads_of("driven-only").is_empty());
        assert_eq!(scheduler.snapshot().threads_started, 0);
    }
}
