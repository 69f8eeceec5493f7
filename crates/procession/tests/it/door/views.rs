//! Looks, lists, trees, crashes and traces, as a door answers them.

use std::time::Duration;

use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::Mutex;
use procession::{Context, Scheduler, SpawnOptions};
use serde_json::Value;

use super::Scene;
use crate::home::thread;

fn json(scene: &Scene, target: &str) -> Value {
    let answer = scene.get(target);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    let value: Value = serde_json::from_str(&answer.body).expect("the answer is JSON");
    assert_eq!(value["version"], 1);
    value
}

/// Starts processes that wait for messages, with the label `waits`.
fn waiting(scheduler: &Scheduler, count: u32) -> Vec<procession::Child<u32, ()>> {
    let options = || SpawnOptions::new().on(scheduler).label("waits");
    let start = |_| {
        options().start(|mut cx: Context<u32>| async move { while cx.recv().await.is_some() {} })
    };
    let children = (0..count).map(start).collect();
    scheduler.run_until_idle();
    children
}

#[test]
fn a_view_is_filtered_sorted_and_grouped() {
    let scene = Scene::threaded(|options| options);
    let children = waiting(&scene.scheduler, 3);
    let view = json(&scene, "/view?state=idle&waiting=message&sort=mailbox&top=2&group=location");
    assert_eq!((&view["processes"], &view["matched"]), (&3.into(), &3.into()));
    assert_eq!(view["rows"].as_array().map(Vec::len), Some(2));
    let row = &view["rows"][0];
    assert_eq!((&row["label"], &row["state"]), (&"waits".into(), &"idle".into()));
    assert_eq!(row["wait"]["reasons"][0], "message");
    assert!(
        row["location"].as_str().is_some_and(|location| location.contains("views.rs:")),
        "{row}"
    );
    assert_eq!(view["groups"][0]["processes"], 3);
    assert_eq!(json(&scene, "/view?label=other")["matched"], 0);
    assert_eq!(json(&scene, "/view?location=views.rs")["matched"], 3);
    drop(children);
}

#[test]
fn a_window_begins_with_an_earlier_view() {
    let scene = Scene::threaded(|options| options);
    let children = waiting(&scene.scheduler, 1);
    let before = json(&scene, "/view");
    assert_eq!(before["window_ms"], Value::Null);
    for n in 0..7 {
        children[0].send(n).expect("it lives");
    }
    scene.scheduler.run_until_idle();
    let since = format!("/view?since={}", before["view"]);
    let after = json(&scene, &since);
    assert!(after["window_ms"].is_number());
    assert_eq!(after["rows"][0]["received_in_window"], 7);
    for _ in 0..16 {
        json(&scene, "/view?top=0");
    }
    assert_eq!(json(&scene, &since)["window_ms"], Value::Null, "the view is forgotten");
}

#[test]
fn parameters_that_mean_nothing_are_refused() {
    let scene = Scene::threaded(|options| options);
    for (target, text) in [
        ("/view?sort=beauty", "cannot parse \"beauty\""),
        ("/view?sort=mailbox&tops=3", "unknown parameter \"tops\""),
        ("/view?top=many", "top: "),
        ("/view?pid=p1", "cannot parse \"p1\": expected a PID"),
        ("/processes?skip=-1", "skip must be a number"),
        ("/trace?seconds=11", "a whole number from 1 to 10"),
        ("/trace?seconds=x", "a whole number from 1 to 10"),
    ] {
        let answer = scene.get(target);
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.body.contains(text), "{target}: {}", answer.body);
    }
}

#[test]
fn the_list_comes_in_parts() {
    let scene = Scene::threaded(|options| options);
    let children = waiting(&scene.scheduler, 2500);
    let mut seen = std::collections::BTreeSet::new();
    for skip in [0, 1000, 2000, 3000] {
        let part = json(&scene, &format!("/processes?skip={skip}&count=5000"));
        assert_eq!(part["processes"], 2500);
        let rows = part["rows"].as_array().expect("it is a list");
        seen.extend(rows.iter().filter_map(|row| row["pid"].as_str().map(str::to_owned)));
    }
    assert_eq!(seen.len(), 2500);
    assert!(children.iter().all(|child| seen.contains(&child.pid().to_string())));
}

#[test]
fn an_answer_has_at_most_four_mebibytes() {
    let scene = Scene::threaded(|options| options);
    let label = "\u{1}".repeat(120);
    let options = || SpawnOptions::new().on(&scene.scheduler).label(label.as_str());
    let children: Vec<_> = (0..8000)
        .map(|_| options().start(|mut cx: Context<()>| async move { cx.recv().await }))
        .collect();
    let supervised = scene.get("/view?top=1000");
    assert!(supervised.body.len() < 4 << 20);
    let list = scene.get("/processes?count=1000");
    assert!(list.body.len() < 4 << 20 && list.body.contains("\"truncated\":false"));
    drop(children);
}

#[test]
fn a_process_is_shown_with_its_relations() {
    let scene = Scene::threaded(|options| options);
    let child = scene.scheduler.start(|mut cx: Context<()>| async move {
        let inner = SpawnOptions::new().link().start(|mut cx: Context<()>| async move {
            cx.recv().await;
        });
        cx.recv().await;
        drop(inner);
    });
    scene.scheduler.run_until_idle();
    let found = json(&scene, &format!("/process/{}", child.pid()));
    let process = &found["process"];
    assert_eq!(process["pid"], child.pid().to_string());
    assert_eq!(process["children"]["total"], 1);
    assert_eq!(process["links"]["first"], process["children"]["first"]);
    assert_eq!(process["message"], "()");
    assert_eq!(scene.get("/process/p1").status, 400);
    let pid = child.pid();
    procession::process::kill(pid);
    scene.scheduler.run_until_idle();
    drop(child);
    assert_eq!(scene.get(&format!("/process/{pid}")).status, 404);
}

#[test]
fn the_tree_and_the_crashes_are_shown() {
    let builder = Scheduler::builder().worker_threads(2).on_exit(|_| {}).on_supervisor(|_| {});
    let scene = Scene::new(builder, |options| options);
    let child = ChildSpec::new("fails <b>", |_: Context<()>| async {
        std::panic::resume_unwind(Box::new("\u{1b}[2J on purpose"));
    });
    let tree = scene.scheduler.block_on(async {
        Supervisor::one_for_one()
            .intensity(1, Duration::from_secs(60))
            .child(child)
            .try_start()
            .await
    });
    drop(tree);
    scene.scheduler.run_until_idle();
    let crashes = json(&scene, "/crashes");
    let crashes = crashes["crashes"].as_array().expect("it is a list");
    assert!(crashes.len() >= 2, "{crashes:?}");
    let text = scene.get("/crashes").body;
    assert!(!text.contains('\u{1b}') && !text.contains("<b>"), "{text}");

    let waits =
        ChildSpec::new("waits", |_: Context<()>| async { procession::process::cancelled().await });
    let tree = scene
        .scheduler
        .block_on(async { Supervisor::one_for_one().child(waits).try_start().await });
    scene.scheduler.run_until_idle();
    let shown = json(&scene, "/tree");
    let nodes = shown["nodes"].as_array().expect("it is a list");
    assert_eq!(nodes.len(), 2, "{shown}");
    let root = nodes.iter().find(|node| node["supervisor"].is_null()).expect("it has a root");
    let leaf = nodes.iter().find(|node| !node["supervisor"].is_null()).expect("it has a leaf");
    assert_eq!(leaf["supervisor"], root["pid"]);
    drop(tree);
}

#[test]
fn leaks_are_shown() {
    let scene = Scene::new(Scheduler::builder().worker_threads(1).test_clock(), |options| options);
    assert_eq!(json(&scene, "/leaks")["leaked_total"], 0);
    let options = SpawnOptions::new().on(&scene.scheduler).label("lost");
    drop(options.start(|mut cx: Context<u8>| async move { cx.recv().await }));
    scene.scheduler.run_until_idle();
    let shown = json(&scene, "/leaks");
    assert_eq!(shown["leaked_total"], 1);
    let leak = &shown["leaked"][0];
    assert_eq!((&leak["label"], &leak["reason"]), (&Value::from("lost"), &Value::from("message")));
    assert_eq!((&leak["cause"], &leak["other"]), (&Value::from("unreachable"), &Value::Null));
    assert!(leak["text"].as_str().is_some_and(|text| text.ends_with("nothing refers to it")));
    assert_eq!(shown["suspected"], Value::Array(Vec::new()));
}

#[test]
fn cycles_of_waits_are_shown() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    let scene = Scene::new(builder.on_wait_cycle(|_| {}), |options| options);
    assert_eq!(json(&scene, "/cycles")["cycles"], Value::Array(Vec::new()));
    let twice = SpawnOptions::new().on(&scene.scheduler).label("<b>").spawn(async {
        let lock = Mutex::new(());
        let _guard = lock.lock().await;
        drop(lock.lock().await);
    });
    scene.scheduler.run_until_idle();
    let shown = json(&scene, "/cycles");
    let wait = &shown["cycles"][0]["waits"][0];
    let pid = twice.pid().to_string();
    assert_eq!((&wait["pid"], &wait["target"]), (&pid.as_str().into(), &pid.as_str().into()));
    assert_eq!((&wait["reason"], &wait["label"]), (&"lock".into(), &"<b>".into()));
    let text = wait["text"].as_str().expect("it is text");
    assert!(text.contains("waits for a lock of") && text.contains("views.rs:"), "{text}");
    assert_eq!(json(&scene, &format!("/process/{pid}"))["process"]["wait"]["in_cycle"], true);
}

#[test]
fn traces_run_one_at_a_time_and_hold_nobody_up() {
    let scene = Scene::threaded(|options| options);
    let socket = scene.socket();
    let latest = super::bytes(&socket, "GET /trace HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(latest.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&latest));
    thread::scope(|scope| {
        let long = scope.spawn(|| {
            super::bytes(&socket, "GET /trace?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        });
        let mut refused = false;
        while !long.is_finished() {
            let head = "GET /trace HTTP/1.1\r\nHost: localhost\r\n\r\n";
            refused |= super::bytes(&socket, head).starts_with(b"HTTP/1.1 429 ");
            assert_eq!(scene.get("/about").status, 200, "the door goes on serving");
        }
        // One of the short ones may have come first, and was served alone.
        let long = long.join().expect("it does not panic");
        assert!(
            refused && long.starts_with(b"HTTP/1.1 200 ") || long.starts_with(b"HTTP/1.1 429 ")
        );
    });
}
