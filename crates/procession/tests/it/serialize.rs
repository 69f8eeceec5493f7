//! The representations of PIDs, exits, snapshots and views, in JSON.

use procession::mailbox::WhenFull;
use procession::observe::{GroupKey, Query};
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions};
use serde_json::{Value, json};

#[test]
fn a_pid_is_its_text() {
    for text in ["p1.42.7", "p3@1.42.7"] {
        let pid: Pid = text.parse().expect("it is a PID");
        let written = serde_json::to_value(pid).expect("it can be written");
        assert_eq!(written, json!(text));
        assert_eq!(serde_json::from_value::<Pid>(written).expect("it can be read"), pid);
    }
    let error = serde_json::from_value::<Pid>(json!("p1.42")).expect_err("it is none");
    assert_eq!(error.to_string(), "cannot parse \"p1.42\": expected a PID such as p1.42.7");
    let error = serde_json::from_value::<Pid>(json!(7)).expect_err("it is none");
    assert!(error.to_string().contains("expected the text of a PID"), "{error}");
}

#[test]
fn what_is_no_exit_is_refused_by_name() {
    let message = |value: Value| {
        serde_json::from_value::<Exit>(value).expect_err("it is no exit").to_string()
    };
    assert!(message(json!("Normal")).starts_with("unknown variant `Normal`, expected one of"));
    assert!(message(json!({ "killed": "text" })).contains("expected unit"));
    assert!(message(json!("failed")).contains("expected newtype"));
    assert!(message(json!({ "failed": 3 })).contains("expected a string"));
}

/// Builds a scheduler with one process that waits for a message or a timer, and returns both.
fn scene() -> (Scheduler, procession::Child<u32, ()>) {
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let waits = SpawnOptions::new()
        .on(&scheduler)
        .label("waits \"here\"")
        .mailbox(3, WhenFull::DropOldest)
        .start(|mut cx: Context<u32>| async move {
            let _ = cx.recv_timeout(std::time::Duration::from_secs(9)).await;
        });
    scheduler.run_until_idle();
    (scheduler, waits)
}

#[test]
fn a_snapshot_is_an_object_with_its_fields() {
    let (scheduler, waits) = scene();
    let written = serde_json::to_value(scheduler.snapshot()).expect("it can be written");
    assert_eq!(written["spawned"], 1);
    assert_eq!(written["timers"], json!({ "armed": 1, "fired": 0, "cancelled": 0, "pending": 1 }));
    assert_eq!(written["workers"].as_array().map(Vec::len), Some(1));
    let process = &written["processes"][0];
    let place = process["location"].as_str().expect("it is a text");
    assert!(place.contains("procession/tests/it/serialize.rs:"), "{place}");
    assert_eq!(
        *process,
        json!({
            "pid": waits.pid().to_string(),
            "parent": null,
            "label": "waits \"here\"",
            "location": place,
            "kind": "async",
            "priority": "normal",
            "state": "idle",
            "cancelled": false,
            "suspended": false,
            "waiting": ["message", "timer"],
            "mailbox": 0,
            "mailbox_high_water": 0,
            "received": 0,
            "bounded": {
                "capacity": 3, "when_full": "drop_oldest", "waiting": 0, "refused": 0, "dropped": 0,
            },
            "steps": 1,
            // A snapshot has neither figures nor relations.
            "wait": null,
            "growth": 0,
            "received_in_window": null,
            "steps_in_window": null,
            "samples": null,
            "memory": null,
            "relations": null,
        })
    );
    let row = scheduler.process(waits.pid()).expect("it waits");
    assert_eq!(serde_json::to_value(row).expect("it can be written"), *process);
    let waiting = serde_json::to_value(scheduler.run_until_idle()).expect("it can be written");
    assert_eq!(waiting[0]["pid"], process["pid"]);
}

#[test]
fn a_view_and_a_detail_are_objects_with_their_fields() {
    let (scheduler, waits) = scene();
    let query = Query::new().top(5).group_by(GroupKey::State);
    let view = serde_json::to_value(scheduler.look(&query)).expect("it can be written");
    assert_eq!((&view["processes"], &view["window"]), (&json!(1), &Value::Null));
    assert_eq!(view["at"], json!({ "secs": 0, "nanos": 0 }));
    assert!(view.get("baseline").is_none(), "it is private");
    let group = &view["groups"][0];
    assert_eq!((&group["state"], &group["processes"]), (&json!("idle"), &json!(1)));
    let row = &view["rows"][0];
    assert_eq!(row["pid"], json!(waits.pid()));
    assert_eq!(row["wait"]["reasons"], json!(["message", "timer"]));
    assert_eq!(row["memory"]["stack"], 0);
    let detail = scheduler.detail(waits.pid()).expect("it waits");
    let detail = serde_json::to_value(detail).expect("it can be written");
    assert_eq!(detail["pid"], row["pid"]);
    assert_eq!(
        (&detail["relations"]["message"], &detail["relations"]["name"]),
        (&json!("u32"), &Value::Null)
    );
    assert_eq!(detail["relations"]["links"], json!({ "first": [], "total": 0 }));
}
