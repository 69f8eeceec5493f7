//! The metrics.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use procession::{Context, Scheduler, SpawnOptions, sleep, start};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::openmetrics::{self, Samples};
use super::{Folder, Scene};
use procession::door::Observe;

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
    let scene = Scene::threaded(|observe| observe);
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
        ("procession_processes_ended_total", r#"by="other""#, Some(1.0)),
        ("procession_processes_ended_total", r#"by="panic""#, Some(0.0)),
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
    let scene = Scene::threaded(|observe| observe);
    let ends = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let ends = Arc::clone(&ends);
        drop(scene.scheduler.spawn(async move {
            while !ends.load(Relaxed) {
                let child = start(|mut cx: Context<()>| async move { cx.recv().await });
                // Ignored: the process may end before the second message comes.
                let _ = (child.send(()), child.send(()));
                let _ = child.await;
            }
        }));
    }
    let mut before = scrape(&scene);
    for _ in 0..200 {
        let now = scrape(&scene);
        let counters = before.iter().filter(|(series, _)| series.contains("_total{"));
        for (series, old) in counters {
            let new = now.get(series).unwrap_or_else(|| panic!("{series} is gone"));
            assert!(new >= old, "{series} fell from {old} to {new}");
        }
        before = now;
    }
    let ended = of(&before, &scene.scheduler, "procession_processes_ended_total", r#"by="other""#);
    assert!(ended > Some(0.0), "something ran meanwhile");
    ends.store(true, Relaxed);
}

#[test]
fn a_name_is_escaped() {
    let folder = Folder::new();
    let builder = Scheduler::builder().name("a\"b\\c\nd").worker_threads(1);
    let observe = Observe::default().directory(&folder.0);
    let scheduler = builder.observe(observe).build().expect("a name may be anything");
    let scene = Scene { scheduler, folder };
    assert!(scene.get("/metrics").body.contains(r#"name="a\"b\\c\nd""#));
    scrape(&scene);
}

#[test]
fn the_document_lists_all_families() {
    let scene = Scene::threaded(|observe| observe);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/METRICS.md");
    let document = fs::read_to_string(path).expect("the document is here");
    let answer = scene.get("/metrics");
    let mut lines = answer.body.lines().peekable();
    let (mut written, mut type_of) = (Vec::new(), String::new());
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            type_of = rest.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("it has a text");
            let of_name = |line: &&&str| line.starts_with(name);
            let labels = lines.peek().filter(of_name).map_or_else(String::new, |sample| {
                let inner = sample.split_once('{').map_or("", |(_, labels)| labels);
                let names = inner.split("\",").filter_map(|label| label.split('=').next());
                names.skip(1).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            });
            written.push(format!("| `{name}` | {type_of} | {labels} | {help} |"));
        }
    }
    let documented: Vec<_> =
        document.lines().filter(|line| line.starts_with("| `procession")).collect();
    // A family without a series now has no labels here.
    let without =
        |line: &str| line.split('|').map(str::trim).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(written.len(), documented.len(), "written:\n{}", written.join("\n"));
    for (written, documented) in written.iter().zip(&documented) {
        let (written, documented) = (without(written), without(documented));
        let same = |at: usize| written[at] == documented[at];
        assert!(same(1) && same(2) && same(4), "{written:?} against {documented:?}");
        assert!(same(3) || written[3].is_empty(), "{written:?} against {documented:?}");
    }
}
