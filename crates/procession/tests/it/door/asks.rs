//! Stacks, inspections and suspensions through a door.

use std::future::pending;
use std::time::Duration;

use procession::Context;
use procession::observe::{DoorOptions, ProcessState};
use serde_json::Value;

use super::{Answer, Scene};
use crate::home::{mpsc, thread};
use crate::scene::panic_quietly;

/// One stack is taken at a time in a program, and tests run at the same time. Other programs may
/// keep a process from its answer for the second that it has.
fn ask(scene: &Scene, target: &str) -> Answer {
    loop {
        let answer = scene.get(target);
        let is_late = answer.status == 503 && answer.body.contains("did not answer in time");
        if answer.status != 429 && !is_late {
            return answer;
        }
        thread::yield_now();
    }
}

fn parsed(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let value: Value = serde_json::from_str(&answer.body).expect("the answer is JSON");
    assert_eq!(value["version"], 1);
    value
}

async fn waits_deep_inside() {
    pending::<()>().await;
    procession::sleep(Duration::from_secs(3600)).await;
}

async fn waits_for_an_hour() {
    procession::sleep(Duration::from_secs(3600)).await;
}

#[test]
fn the_stack_of_a_process_names_its_functions() {
    let scene = Scene::threaded(|options| options);
    let waits = scene.scheduler.spawn(waits_for_an_hour());
    let (pid, target) = (waits.pid().to_string(), format!("/process/{}/stack", waits.pid()));
    scene.scheduler.run_until_idle();
    // On a slow machine, a step that notes its stack lasts long, and looks like one that computes.
    let value = loop {
        let value = parsed(&ask(&scene, &target));
        if value["source"] != "step" {
            break value;
        }
    };
    assert_eq!((&value["pid"], &value["source"]), (&pid.into(), &"wait".into()));
    assert_eq!(value["truncated"], false);
    let frames = value["stacks"][0].as_array().expect("there is a stack");
    let is_its =
        |frame: &&Value| frame["file"].as_str().is_some_and(|file| file.ends_with("door/asks.rs"));
    let own = frames.iter().find(is_its).unwrap_or_else(|| panic!("{value}"));
    assert!(own["line"].is_u64() && own["address"].as_str().is_some_and(|at| at.starts_with("0x")));
    for seconds in ["0", "11", "x"] {
        let answer = scene.get(&format!("{target}?seconds={seconds}"));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains("a whole number from 1 to 10"), "{answer:?}");
    }
}

#[test]
fn a_process_that_cannot_answer_is_a_conflict_and_one_that_ended_is_not_found() {
    let scene = Scene::threaded(|options| options);
    let other = Scene::threaded(|options| options);
    let silent = scene.scheduler.spawn(waits_deep_inside());
    let panics = scene.scheduler.start(|mut cx: Context<()>| async move {
        let _inspecting = cx.inspect_with(|_| panic_quietly("no luck"));
        cx.recv().await;
    });
    let foreign = other.scheduler.spawn(pending::<()>());
    let ended = scene.scheduler.spawn(async {});
    let ended_pid = ended.pid();
    assert_eq!(ended.join(), Ok(()));
    scene.scheduler.run_until_idle();
    let inspect = |pid| ask(&scene, &format!("/process/{pid}/inspect"));
    let answer = inspect(silent.pid());
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.body.contains("shows nothing"), "{answer:?}");
    let answer = inspect(panics.pid());
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("no luck"), "{answer:?}");
    for pid in [ended_pid, foreign.pid()] {
        assert_eq!(inspect(pid).status, 404);
        assert_eq!(ask(&scene, &format!("/process/{pid}/stack")).status, 404);
    }
    assert_eq!(scene.get("/process/nonsense/inspect").status, 400);
    assert_eq!(scene.get(&format!("/process/{}/nonsense", silent.pid())).status, 404);
    assert_eq!(scene.post(&format!("/process/{}/inspect", silent.pid())).status, 404);
}

#[test]
fn a_process_shows_its_fields() {
    let scene = Scene::threaded(|options| options);
    let shows = scene.scheduler.start(|mut cx: Context<()>| async move {
        let _inspecting = cx.inspect_with(|shown| {
            shown.field("balance", 120).field("owner", "\"ann\"").field("long", "x".repeat(2000));
        });
        cx.recv().await;
    });
    scene.scheduler.run_until_idle();
    let value = parsed(&ask(&scene, &format!("/process/{}/inspect", shows.pid())));
    assert_eq!(value["fields"][0], serde_json::json!({ "name": "balance", "value": "120" }));
    assert_eq!(value["fields"][1]["value"], "\"ann\"");
    assert_eq!(value["fields"][2]["value"].as_str().map(str::len), Some(1024));
    assert_eq!(value["truncated"], true);
}

#[test]
fn a_process_is_suspended_and_resumed_with_leave() {
    let scene = Scene::threaded(DoorOptions::allow_actions);
    let waits = scene.scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let post = |action: &str| scene.post(&format!("/process/{}/{action}", waits.pid()));
    let is_suspended =
        || parsed(&scene.get(&format!("/process/{}", waits.pid())))["process"]["suspended"].clone();
    assert_eq!(is_suspended(), false);
    let answer = post("resume");
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.body.contains("is not suspended"), "{answer:?}");
    for seconds in ["0", "61", "x"] {
        assert_eq!(post(&format!("suspend?seconds={seconds}")).status, 400);
    }
    assert_eq!(is_suspended(), false);
    assert_eq!(scene.get(&format!("/process/{}/suspend", waits.pid())).status, 404, "GET is safe");
    assert_eq!(post("suspend?seconds=60").status, 200);
    assert_eq!(is_suspended(), true);
    waits.send(7).expect("its mailbox is open");
    scene.scheduler.run_until_idle();
    let state = scene.scheduler.detail(waits.pid()).map(|detail| detail.state);
    assert_eq!(state, Some(ProcessState::Ready), "it stands still");
    assert_eq!(post("resume").status, 200);
    let pid = waits.pid();
    assert_eq!(waits.join(), Ok(Some(7)));
    for action in ["suspend", "resume"] {
        let answer = scene.post(&format!("/process/{pid}/{action}"));
        assert_eq!(answer.status, 404, "{answer:?}");
        assert!(answer.body.contains("has ended"), "{answer:?}");
    }
    let cleans_up = scene.scheduler.start(|mut cx: Context<u32>| async move {
        cx.cancelled().await;
        while cx.recv().await.is_some() {}
        pending::<()>().await;
    });
    assert!(procession::process::cancel(cleans_up.pid()));
    let answer = scene.post(&format!("/process/{}/suspend", cleans_up.pid()));
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(procession::process::kill(cleans_up.pid()));
}

#[test]
fn one_stack_is_taken_at_a_time_and_others_are_served_meanwhile() {
    let scene = Scene::threaded(DoorOptions::allow_actions);
    let waits = scene.scheduler.spawn(waits_for_an_hour());
    scene.scheduler.run_until_idle();
    let change =
        |what| assert_eq!(scene.post(&format!("/process/{}/{what}", waits.pid())).status, 200);
    let target = format!("/process/{}/stack?seconds=10", waits.pid());
    let served = thread::scope(|scope| {
        loop {
            change("suspend?seconds=60");
            let (to, from) = mpsc::channel();
            for _ in 0..2 {
                let to = to.clone();
                let (scene, target) = (&scene, &target);
                scope.spawn(move || to.send(scene.get(target)));
            }
            assert_eq!(from.recv().expect("one is refused").status, 429);
            assert_eq!(scene.get("/about").status, 200);
            change("resume");
            let other = from.recv().expect("the other one is answered, too");
            // Otherwise a test that runs at the same time has had the turn.
            if other.status != 429 {
                break other;
            }
        }
    });
    assert_eq!(parsed(&served)["stacks"].as_array().map(Vec::len), Some(1), "{served:?}");
}

#[test]
fn the_headers_of_messages_are_shown_and_never_their_contents() {
    let scene = Scene::threaded(|options| options);
    let server = scene
        .scheduler
        .start(|mut cx: Context<String>| async move { while cx.recv().await.is_some() {} });
    let (pid, address) = (server.pid(), server.address().clone());
    let client = scene.scheduler.spawn(async move {
        while address.send(String::from("secret")).is_ok() {
            procession::sleep(Duration::from_millis(1)).await;
        }
    });
    let target = format!("/process/{pid}/messages");
    let answer = scene.get(&format!("{target}?count=2"));
    let value = parsed(&answer);
    assert_eq!((&value["pid"], &value["complete"]), (&pid.to_string().into(), &true.into()));
    let messages = value["messages"].as_array().expect("it is a list");
    assert_eq!(messages.len(), 2);
    for message in messages {
        assert_eq!(message["direction"], "received");
        assert_eq!(message["other"], client.pid().to_string());
        assert_eq!(message["type"], "alloc::string::String");
        assert_eq!((&message["bytes"], &message["request"]), (&24.into(), &Value::Null));
        assert!(message["after_us"].is_u64(), "{message}");
    }
    assert!(!answer.body.contains("secret"), "{answer:?}");
    for parameter in ["count=0", "count=1001", "count=x", "seconds=11"] {
        let answer = scene.get(&format!("{target}?{parameter}"));
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(scene.post(&target).status, 404, "it is no action");
    assert_eq!(scene.get("/process/p1.9999.1/messages").status, 404);
}
