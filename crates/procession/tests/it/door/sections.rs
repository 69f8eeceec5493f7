//! Sections that libraries show.

use std::sync::Arc;

use procession::{Context, start};
use procession_sync::atomic::{AtomicUsize, Ordering::Relaxed};
use serde_json::{Value, json};

use super::Scene;
use super::openmetrics;

/// Shows a section until it is cancelled.
async fn shows(mut cx: Context<()>) {
    let _shown = cx.show_section("cache", |section| {
        section.row("shard", |row| {
            row.label("shard", "<\"a\\\n").counter("hits", "Answered.", 7);
            row.gauge("size", "Entries.", 3).gauge("unknown", "Not known.", None);
            row.time("age", "Since the last.", std::time::Duration::from_millis(1500));
        });
    });
    let _more = cx.show_section("cache", |section| {
        for _ in 0..2000 {
            section.row("entry", |row| {
                row.gauge("size", "Bytes.", 1);
            });
        }
    });
    let _fails = cx.show_section("fails", |section| {
        section.row("no name", |_| {});
    });
    while cx.recv().await.is_some() {}
}

fn json(scene: &Scene, target: &str) -> Value {
    serde_json::from_str(&scene.get(target).body).expect("it is JSON")
}

#[test]
fn a_section_is_shown_as_long_as_its_guard_lives() {
    let scene = Scene::threaded(|options| options);
    assert_eq!(scene.get("/cache").status, 404);
    let child = scene.scheduler.block_on(async { start(shows) });
    super::wait_until(|| scene.get("/fails").status == 200);
    assert_eq!(json(&scene, "/about")["sections"], json!(["cache", "fails"]));
    let cache = json(&scene, "/cache");
    let shard = json!({
        "shard": "<\"a\\\n", "hits": 7, "size": 3, "unknown": null, "age_us": 1_500_000,
    });
    assert_eq!(cache["shard"], json!([shard]));
    assert_eq!(cache["entry"].as_array().map(Vec::len), Some(999), "1000 rows in all");
    assert_eq!(cache["truncated"], true);
    assert_eq!(json(&scene, "/fails")["truncated"], true, "it has panicked");
    let event = super::live::first(&scene, "with=sections&top=0");
    assert_eq!(event["sections"]["cache"]["shard"][0]["hits"], 7);
    child.cancel();
    child.join().expect("it ends");
    super::wait_until(|| scene.get("/cache").status == 404);
}

#[test]
fn the_figures_of_a_section_are_metrics() {
    let scene = Scene::threaded(|options| options);
    let child = scene.scheduler.block_on(async { start(shows) });
    super::wait_until(|| scene.get("/fails").status == 200);
    let text = scene.get("/metrics").body;
    openmetrics::parse(&text);
    let labels = format!("{{scheduler=\"{}\",shard=\"<\\\"a\\\\\\n\"}}", child.pid().scheduler());
    for (name, value) in [("hits_total", "7"), ("size", "3"), ("age_seconds", "1.5")] {
        let line = format!("procession_cache_shard_{name}{labels} {value}");
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains("# TYPE procession_cache_shard_hits counter\n"));
    assert!(!text.contains("procession_cache_shard_unknown{"));
    child.cancel();
    child.join().expect("it ends");
}

#[test]
fn a_request_for_something_else_reads_no_section() {
    let scene = Scene::threaded(|options| options);
    let read = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&read);
    let child = scene.scheduler.block_on(async {
        start(|mut cx: Context<()>| async move {
            let _shown = cx.show_section("counted", move |_| _ = counts.fetch_add(1, Relaxed));
            while cx.recv().await.is_some() {}
        })
    });
    super::wait_until(|| scene.get("/counted").status == 200);
    assert_eq!(read.load(Relaxed), 1);
    assert_eq!(scene.get("/nothing").status, 404);
    assert_eq!(scene.get("/about").status, 200);
    assert_eq!(read.load(Relaxed), 1);
    child.cancel();
    child.join().expect("it ends");
}

#[test]
fn families_of_one_name_are_written_once() {
    let scene = Scene::threaded(|options| options);
    let child = scene.scheduler.block_on(async {
        start(|mut cx: Context<()>| async move {
            // Its family is one of the runtime.
            let _own = cx.show_section("worker", |section| {
                section.row("queue", |row| _ = row.gauge("length", "Not this one.", 1));
            });
            let _twice = cx.show_section("twice", |section| {
                section.row("a_b", |row| _ = row.gauge("c", "A text\nof \\ two \"lines\".", 1));
                section.row("a", |row| _ = row.label("row", 2).gauge("b_c", "The other.", 2));
                section.row("a", |row| _ = row.counter("x", "Its sample ends in total.", 3));
                section.row("a", |row| _ = row.gauge("x_total", "It looks like that one.", 4));
                section.row("a", |row| _ = row.gauge("x", "Of another type.", 5));
            });
            let _last = cx.show_section("last", |_| {});
            while cx.recv().await.is_some() {}
        })
    });
    super::wait_until(|| scene.get("/last").status == 200);
    let text = scene.get("/metrics").body;
    openmetrics::parse(&text);
    let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("# TYPE procession_worker_queue_length "), 1);
    assert!(!text.contains("Not this one"));
    assert!(
        text.contains(r#"# HELP procession_twice_a_b_c A text\nof \\ two \"lines\"."#),
        "{text}"
    );
    assert_eq!(count("procession_twice_a_b_c{"), 2);
    assert_eq!(count("procession_twice_a_x_total{"), 1);
    child.cancel();
    child.join().expect("it ends");
}
