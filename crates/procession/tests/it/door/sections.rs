//! Sections that libraries show.

use procession::{Context, start};
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
    let scene = Scene::threaded(|observe| observe);
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
    let scene = Scene::threaded(|observe| observe);
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
