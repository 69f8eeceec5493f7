//! The metrics.

use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::pool::Pool;
use procession::process::exit;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Exit, Scheduler, SpawnOptions, sleep, start};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use crate::home::others_may_run;

use super::openmetrics::{self, Samples};
use super::{Folder, Scene, wait_until};
use procession::observe::DoorOptions;

fn scrape(scene: &Scene) -> Samples {
    let answer = scene.get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    openmetrics::parse(&answer.body)
}

fn of(samples: &Samples, scheduler: &Scheduler, name: &str, labels: &str) -> Option<f64> {
    let id = scheduler.id();
    let separator = if labels.is_empty() { "" } else { "," };
    samples.get(&format!("{name}{{scheduler=\"{id}\"{separator}{labels}}}")).copied()
}

#[test]
fn the_figures_are_those_of_the_program() {
    let scene = Scene::threaded(|options| options);
    let scheduler = &scene.scheduler;
    let receiver = scheduler.start(|mut cx: Context<u32>| async move {
        for _ in 0..3 {
            cx.recv().await;
        }
        cx.cancelled().await;
    });
    for n in 0..5 {
        receiver.send(n).expect("it lives");
    }
    let waits = scheduler.spawn(sleep(Duration::from_secs(3600)));
    scheduler.block_on(async {
        SpawnOptions::new().spawn(async {}).await.expect("it does nothing");
    });
    scheduler.run_until_idle();
    let samples = scrape(&scene);
    for (name, labels, value) in [
        ("procession_workers", "", Some(2.0)),
        ("procession_processes", r#"state="blocked",kind="async""#, Some(2.0)),
        ("procession_processes", r#"state="ready",kind="async""#, None),
        ("procession_processes_spawned_total", "", Some(3.0)),
        ("procession_processes_ended_total", r#"reason="normal""#, Some(1.0)),
        ("procession_processes_ended_total", r#"reason="panicked""#, Some(0.0)),
        ("procession_messages_total", r#"what="sent""#, Some(5.0)),
        ("procession_messages_total", r#"what="received""#, Some(3.0)),
        ("procession_mailbox_messages", "", Some(2.0)),
        ("procession_mailbox_longest", "", Some(2.0)),
        ("procession_timers_pending", "", Some(1.0)),
        (
            "procession_info",
            &format!(r#"version="{}",name="seen""#, env!("CARGO_PKG_VERSION")),
            Some(1.0),
        ),
    ] {
        assert_eq!(of(&samples, scheduler, name, labels), value, "{name}{{{labels}}}");
    }
    drop((receiver, waits));
}

#[test]
fn counters_never_fall() {
    let scene = Scene::threaded(|options| options);
    let ends = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let ends = Arc::clone(&ends);
        drop(scene.scheduler.spawn(async move {
            while !ends.load(Relaxed) {
                let child = start(|mut cx: Context<()>| async move { cx.recv().await });
                // Ignored: the process may end before the second message comes.
                let _ = (child.send(()), child.send(()));
                let _ = child.await;
                sleep(Duration::from_micros(20)).await;
                let pool =
                    Pool::builder().name("short").build().expect("the defaults are in range");
                let _ = pool.submit(|| ()).expect("it is open").await;
            }
        }));
    }
    let mut before = scrape(&scene);
    let is_counter = |series: &str| {
        ["_total{", "_bucket{", "_count{", "_sum{"].iter().any(|end| series.contains(end))
    };
    for _ in 0..1000 {
        let now = scrape(&scene);
        let counters = before.iter().filter(|(series, _)| is_counter(series));
        for (series, old) in counters {
            let new = now.get(series).unwrap_or_else(|| panic!("{series} is gone"));
            assert!(new >= old, "{series} fell from {old} to {new}");
        }
        before = now;
    }
    let ended =
        of(&before, &scene.scheduler, "procession_processes_ended_total", r#"reason="normal""#);
    assert!(ended > Some(0.0), "something ran meanwhile");
    ends.store(true, Relaxed);
}

/// Ends processes in all ways, and sends messages to all fates.
async fn keep_a_ledger() {
    for _ in 0..3 {
        drop(SpawnOptions::new().spawn(async { exit(Exit::Shutdown) }).await);
    }
    for _ in 0..4 {
        drop(SpawnOptions::new().spawn(async { resume_unwind(Box::new("on purpose")) }).await);
    }
    for _ in 0..5 {
        let waits = procession::spawn(std::future::pending::<()>());
        procession::process::kill(waits.pid());
        drop(waits.await);
    }
    for _ in 0..6 {
        drop(SpawnOptions::new().spawn_fallible(async { Err::<(), _>(Exit::failed("no")) }).await);
    }
    for _ in 0..2 {
        let lost = async { Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionReset)) };
        drop(SpawnOptions::new().spawn_fallible(lost).await);
    }
    for _ in 0..7 {
        procession::spawn(async {}).await.expect("it does nothing");
    }
    let receiver = start(|mut cx: Context<u8>| async move {
        cx.recv().await;
        cx.recv().await;
    });
    (0..2).for_each(|n| receiver.send(n).expect("it waits"));
    let address = receiver.address().clone();
    receiver.await.expect("it returns");
    (0..9).for_each(|n| assert!(address.send(n).is_err(), "it has ended"));
    let bounded = SpawnOptions::new().mailbox(1, WhenFull::Reject);
    let full = bounded.start(|cx: Context<u8>| async move { cx.cancelled().await });
    full.send(0).expect("there is room");
    (0..2).for_each(|n| assert!(full.send(n).is_err(), "it is full"));
    full.cancel();
    full.await.expect("it returns");
}

#[test]
fn the_sums_agree_with_a_ledger() {
    let scene = Scene::threaded(|options| options);
    let scheduler = &scene.scheduler;
    scheduler.block_on(async { procession::spawn(keep_a_ledger()).await.expect("it returns") });
    scheduler.run_until_idle();
    let samples = scrape(&scene);
    for (name, label, value, expected) in [
        ("procession_processes_spawned_total", "", "", 30.0),
        // With the process of the ledger, and the two that receive.
        ("procession_processes_ended_total", "reason", "normal", 10.0),
        ("procession_processes_ended_total", "reason", "shutdown", 3.0),
        ("procession_processes_ended_total", "reason", "panicked", 4.0),
        ("procession_processes_ended_total", "reason", "killed", 5.0),
        ("procession_processes_ended_total", "reason", "disconnected", 2.0),
        ("procession_processes_ended_total", "reason", "failed", 6.0),
        ("procession_messages_total", "what", "sent", 3.0),
        ("procession_messages_total", "what", "received", 2.0),
        ("procession_messages_total", "what", "discarded", 1.0),
        ("procession_messages_total", "what", "refused", 11.0),
    ] {
        let labels = if label.is_empty() { String::new() } else { format!("{label}=\"{value}\"") };
        assert_eq!(of(&samples, scheduler, name, &labels), Some(expected), "{name}{{{labels}}}");
    }
}

#[test]
fn busy_workers_and_waiting_queues_are_seen() {
    let builder = Scheduler::builder().name("busy").worker_threads(1).max_computing(0);
    let scene = Scene::new(builder, |options| options);
    let ends = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&ends);
    // The only worker computes, and another process waits behind it.
    drop(scene.scheduler.spawn(async move {
        drop(procession::spawn(async {}));
        drop(procession::spawn(async {}));
        while !stop.load(Relaxed) {
            std::hint::spin_loop();
            others_may_run();
        }
    }));
    // Another worker takes the place of the first if the system lets that one begin too late.
    let largest = |name: &str| {
        let series = format!("{name}{{scheduler=\"{}\"", scene.scheduler.id());
        let samples = scrape(&scene);
        let values = samples.iter().filter(|(key, _)| key.starts_with(&series));
        values.map(|(_, value)| *value).reduce(f64::max).expect("it is there")
    };
    wait_until(|| largest("procession_worker_busy_seconds_total") > 0.1);
    wait_until(|| largest("procession_worker_busy_ratio") > 0.5);
    let oldest = || {
        let own = largest("procession_worker_queue_age_seconds");
        own.max(largest("procession_global_queue_age_seconds"))
    };
    wait_until(|| oldest() > 0.05);
    ends.store(true, Relaxed);
    scene.scheduler.run_until_idle();
    assert_eq!(oldest(), 0.0);
}

#[test]
fn late_timers_are_in_the_histogram() {
    let folder = Folder::new();
    let options = DoorOptions::default().directory(&folder.0);
    let scheduler = Scheduler::builder().test_clock().door(options).build();
    let scene = Scene { scheduler: scheduler.expect("the directory is new"), folder };
    for _ in 0..3 {
        let sleeper = scene.scheduler.spawn(sleep(Duration::from_millis(10)));
        scene.scheduler.block_on(sleeper).expect("it sleeps");
    }
    let samples = scrape(&scene);
    let name = "procession_timer_lateness_seconds";
    let figure = |end: &str, labels: &str| {
        of(&samples, &scene.scheduler, &format!("{name}{end}"), labels).expect("it is there")
    };
    assert_eq!(figure("_count", ""), 3.0);
    assert_eq!(figure("_bucket", r#"le="+Inf""#), 3.0);
    assert_eq!(figure("_bucket", r#"le="0.000016384""#), 3.0, "a test clock is never late");
    assert_eq!(figure("_sum", ""), 0.0);
}

#[test]
fn pools_and_restarts_are_counted_by_name() {
    let scene = Scene::threaded(|options| options);
    scene.scheduler.block_on(async {
        let pool = Pool::builder().name("metrics-test").capacity(3);
        let processes = pool.build_async().expect("the settings are in range");
        for _ in 0..2 {
            processes.submit(async {}).await.expect("it is open").await.expect("it returns");
        }
        // A job is counted after its result is there.
        processes.idle().await.expect("its jobs have ended");
        let failing = ChildSpec::new("failing", |_: Context<()>| async {
            exit(Exit::failed("always"));
        });
        let supervisor = Supervisor::one_for_one().intensity(2, Duration::from_secs(60));
        let label = SpawnOptions::new().label("gives up");
        let tree = supervisor.child(failing).try_start_with(label).await.expect("its child starts");
        assert!(!tree.await.is_normal(), "it gives up");
        let samples = scrape(&scene);
        let figure = |name: &str, labels: &str| of(&samples, &scene.scheduler, name, labels);
        let pool = r#"pool="metrics-test""#;
        assert_eq!(figure("procession_pool_capacity", pool), Some(3.0));
        let completed = format!(r#"{pool},outcome="completed""#);
        assert_eq!(figure("procession_pool_jobs_total", &completed), Some(2.0));
        let labelled = r#"supervisor="gives up""#;
        assert_eq!(figure("procession_supervisor_restarts_total", labelled), Some(2.0));
        assert_eq!(figure("procession_supervisor_gave_up_total", labelled), Some(1.0));
    });
}

#[test]
fn a_name_is_escaped() {
    let folder = Folder::new();
    let builder = Scheduler::builder().name("a\"b\\c\nd").worker_threads(1);
    let options = DoorOptions::default().directory(&folder.0);
    let scheduler = builder.door(options).build().expect("a name may be anything");
    let scene = Scene { scheduler, folder };
    assert!(scene.get("/metrics").body.contains(r#"name="a\"b\\c\nd""#));
    scrape(&scene);
}

#[test]
fn the_document_lists_all_families() {
    let scene = Scene::threaded(|options| options);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/METRICS.md");
    let document = fs::read_to_string(path).expect("the document is here");
    let answer = scene.get("/metrics");
    let mut lines = answer.body.lines().peekable();
    let (mut written, mut type_of) = (Vec::new(), "");
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            type_of = rest.split(' ').nth(1).unwrap_or_default();
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("it has a text");
            let of_name = |line: &&&str| line.starts_with(name);
            let labels = lines.peek().filter(of_name).map_or_else(String::new, |sample| {
                let inner = sample.split_once('{').map_or("", |(_, labels)| labels);
                let names = inner.split("\",").filter_map(|label| label.split('=').next());
                names.skip(1).collect::<Vec<_>>().join(",")
            });
            written.push((name, labels, type_of, help));
        }
    }
    let rows = document.lines().filter(|line| line.starts_with("| `procession"));
    let documented: Vec<_> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let family = cells[1].trim_matches('`').trim_end_matches('}');
            let (name, labels) = family.split_once('{').unwrap_or((family, ""));
            (name, labels.to_owned(), cells[2], cells[3])
        })
        .collect();
    // A family without a series now has no labels here.
    for ((_, labels, ..), (_, documented, ..)) in written.iter_mut().zip(&documented) {
        if labels.is_empty() {
            labels.clone_from(documented);
        }
    }
    assert_eq!(written, documented);
}
