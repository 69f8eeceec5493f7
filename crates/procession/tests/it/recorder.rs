//! The flight recorder: its events are what happened, its traces are what a viewer can read, and
//! its files come when something has gone wrong.

mod decoded;
mod files;

use std::collections::BTreeSet;
use std::time::Duration;

use procession::observe::{Trace, TraceError, TraceEvent, TraceEventKind};
use procession::{Context, Pid, Reply, Scheduler, SpawnOptions};

use self::decoded::decode;
use crate::scene::{driven, threaded};
use crate::seeded;

/// Returns the processes of the recorded steps.
fn steps(trace: &Trace) -> Vec<Pid> {
    let step = |event: TraceEvent| match event.kind {
        TraceEventKind::Step(pid) => Some(pid),
        _ => None,
    };
    trace.events().filter_map(step).collect()
}

/// Runs the program of the seeded test. Returns the steps that it noted itself, those that were
/// recorded, and the number of dispatches.
fn run(events: usize) -> (Vec<String>, Vec<String>, u64) {
    let scheduler =
        seeded::builder(3).recorder_events(events).build().expect("it starts no thread");
    let noted = seeded::Trace::new(&scheduler);
    let program = noted.clone().each(seeded::program(noted.clone()));
    scheduler.spawn(program).join().expect("it ends");
    let dispatches = scheduler.snapshot().workers[0].dispatches;
    let recorded: Vec<_> = steps(&scheduler.dump()).iter().map(ToString::to_string).collect();
    let (begin, _) = recorded[0].split_once('.').expect("a PID has three numbers");
    let noted = noted.steps().into_iter().map(|(pid, _)| format!("{begin}.{pid}")).collect();
    (noted, recorded, dispatches)
}

#[test]
fn the_recorded_steps_are_the_dispatches() {
    let (noted, recorded, dispatches) = run(1 << 16);
    assert_eq!(recorded.len() as u64, dispatches);
    assert_eq!(recorded, noted);
}

#[test]
fn a_small_ring_loses_only_the_beginning() {
    let (noted, recorded, _) = run(1 << 10);
    assert!(recorded.len() > 100 && recorded.len() < noted.len(), "{}", recorded.len());
    assert_eq!(recorded, noted[noted.len() - recorded.len()..]);
}

/// Runs a process that calls another one, which waits, and returns both.
fn call(scheduler: &Scheduler) -> (Pid, Pid) {
    let server = SpawnOptions::new().on(scheduler).label("server").start(
        |mut cx: Context<Reply<u32>>| async move {
            while let Some(reply) = cx.recv().await {
                procession::sleep(Duration::from_millis(1)).await;
                reply.send(7);
            }
        },
    );
    scheduler.run_until_idle();
    let (called, address) = (server.pid(), server.address().clone());
    let caller = SpawnOptions::new().on(scheduler).label("caller").spawn(async move {
        let answer = address.call(|reply| reply, Duration::from_secs(1)).await;
        assert_eq!(answer.expect("the server answers"), 7);
    });
    let calling = caller.pid();
    scheduler.block_on(caller).expect("it does not panic");
    drop(server);
    (calling, called)
}

#[test]
fn a_call_is_recorded_as_it_happened() {
    use TraceEventKind::{Called, Ended, Parked, Spawned, Step, TimersFired, Unparked, Woke};
    let scheduler = driven();
    let (caller, server) = call(&scheduler);
    let trace = scheduler.dump();
    let events: Vec<_> = trace.events().collect();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.clone()).collect();
    let from = kinds.iter().position(|kind| *kind == Step(caller)).expect("it has run");
    let after: Vec<_> = kinds[from..]
        .iter()
        .filter(|kind| !matches!(kind, Parked | Unparked | TraceEventKind::Searched))
        .collect();
    let expected = [
        Step(caller),
        Called(server),
        Woke(server),
        Step(server),
        // The timer of the server.
        Woke(server),
        TimersFired(1),
        Step(server),
        Woke(caller),
        Step(caller),
        Ended { failed: false },
    ];
    assert_eq!(after[..expected.len()], expected.iter().collect::<Vec<_>>());
    assert!(!kinds.contains(&Spawned(caller)), "no worker has spawned it");
    // The clock has moved by the millisecond of the timer.
    let at = |kind: &TraceEventKind| {
        events.iter().rfind(|event| event.kind == *kind).expect("it is there").at
    };
    assert_eq!(at(&Step(caller)) - at(&Called(server)), Duration::from_millis(1));
    assert!(events.iter().all(|event| event.worker == Some(0) && !event.follows_gap));

    let decoded = decode(&trace.with_tracks([caller, server]).to_bytes());
    let tracks: BTreeSet<_> = decoded.tracks.iter().map(String::as_str).collect();
    let own = [format!("caller {caller}"), format!("server {server}")];
    // The caller has ended, and with it its label.
    assert!(tracks.contains("worker 0") && tracks.contains(own[1].as_str()), "{tracks:?}");
    assert_eq!((decoded.names["server"], decoded.names["call server"]), (3, 1), "{decoded:?}");
    assert_eq!(decoded.names["timers fired"], 1);
    assert_eq!((decoded.flows, decoded.backwards), (3, 0));
}

#[test]
fn processes_that_have_ended_are_named_by_their_places() {
    let scheduler = driven();
    let line = line!() + 1;
    scheduler.spawn(async { procession::yield_now().await }).join().expect("it ends");
    let decoded = decode(&scheduler.dump().to_bytes());
    assert_eq!(decoded.names[&format!("{}:{line}", file!())], 2, "{decoded:?}");
}

#[test]
fn pids_are_right_although_slots_are_reused() {
    let scheduler = driven();
    let mut spawned = Vec::new();
    for _ in 0..300 {
        let process = scheduler.spawn(async {});
        spawned.push(process.pid());
        process.join().expect("it ends");
    }
    assert!(spawned.windows(2).any(|pids| pids[0].to_string().rsplit_once('.').map(|pid| pid.0)
        == pids[1].to_string().rsplit_once('.').map(|pid| pid.0)));
    assert_eq!(steps(&scheduler.dump()), spawned);
}

#[test]
fn all_workers_record_and_every_slice_ends() {
    let scheduler = threaded(2);
    crate::scene::meet(&scheduler, 2);
    let talk = |number: u64| {
        scheduler.spawn(async move {
            for _ in 0..100 {
                procession::sleep(Duration::from_micros(number)).await;
                let child = procession::spawn(async { procession::yield_now().await });
                procession::blocking(|| {});
                child.await.expect("it ends");
            }
        })
    };
    for process in (0..20).map(talk).collect::<Vec<_>>() {
        process.join().expect("it ends");
    }
    let trace = scheduler.dump();
    let workers: BTreeSet<_> = trace
        .events()
        .filter(|event| matches!(event.kind, TraceEventKind::Step(_)))
        .filter_map(|event| event.worker)
        .collect();
    assert!(workers.len() >= 2, "{workers:?}");
    let decoded = decode(&trace.to_bytes());
    assert!(decoded.flows > 1000 && decoded.names["blocking section"] > 0, "{decoded:?}");
}

#[test]
fn a_window_has_exact_times() {
    let scheduler = threaded(2);
    let stop = std::sync::Arc::new(procession_sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let process = scheduler.spawn(async move {
        while !stopped.load(procession_sync::atomic::Ordering::Relaxed) {
            procession::spawn(async {}).await.expect("it ends");
            procession::sleep(Duration::from_micros(50)).await;
        }
    });
    // The system may let no worker run during a window.
    let (begin, trace, end) = loop {
        let begin = scheduler.now();
        let trace = scheduler.trace(Duration::from_millis(5)).expect("nothing else traces");
        let end = scheduler.now();
        if !steps(&trace).is_empty() {
            break (begin, trace, end);
        }
    };
    stop.store(true, procession_sync::atomic::Ordering::Relaxed);
    process.join().expect("it ends");
    // One that was being recorded when the window began may be a little older.
    let first = trace.events().next().expect("there are some");
    assert!(!first.follows_gap, "nothing before the window counts as lost");
    let mut events = trace.events().filter(|event| event.worker.is_some());
    let slack = Duration::from_millis(1);
    assert!(events.all(|event| event.at - begin < end - begin + slack));
    let decoded = decode(&trace.to_bytes());
    assert_eq!(decoded.backwards, 0, "no step begins before the wake-up that led to it");
}

#[test]
fn windows_are_refused_that_cannot_be_recorded() {
    let scheduler = threaded(1);
    let long = Duration::from_secs(61);
    let error = scheduler.trace(long).expect_err("it is too long");
    assert_eq!(error, TraceError::TooLong(long));
    assert!(error.to_string().contains("at most 60s is allowed"), "{error}");
    let off = Scheduler::builder().recorder_events(0).build().expect("the system has threads");
    off.spawn(async {}).join().expect("it ends");
    assert_eq!(off.trace(Duration::ZERO).expect_err("there is no recorder"), TraceError::Off);
    assert_eq!(off.dump().events().count(), 0);
    assert_eq!(off.snapshot().recorder.bytes, 0);
    let error = Scheduler::builder().recorder_events(1 << 25).build().expect_err("it is too large");
    assert!(error.to_string().contains("recorder_events"), "{error}");
}

#[test]
fn the_memory_of_the_recorder_is_counted_once_a_thread_has_run() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .watchdog(false)
        .recorder_events(1000)
        .build()
        .expect("it starts no thread");
    assert_eq!(scheduler.snapshot().recorder.bytes, 0);
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().recorder.bytes, 1024 * 8);
    // The clone of an end counts, too, but the ring is there.
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().recorder.bytes, 1024 * 8);
}
