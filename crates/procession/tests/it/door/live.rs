//! Looks that are sent without being asked for again, and the pictures that they have.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use procession::pool::Pool;
use procession::time::Instant;
use procession::{Scheduler, SpawnOptions};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use serde_json::Value;

use super::{Scene, connect, since, wait_until};
use crate::home::net::UnixStream;
use crate::home::others_may_run;
use crate::scene::TIMEOUT;

/// A connection that follows.
pub(super) struct Events(BufReader<UnixStream>);

impl Events {
    /// Asks for events. Returns the status and the connection.
    fn ask(scene: &Scene, parameters: &str) -> (u16, Self) {
        let mut stream = connect(&scene.socket());
        stream.set_read_timeout(Some(TIMEOUT)).expect("it is not zero");
        write!(stream, "GET /live?{parameters} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("the door reads");
        let mut events = Self(BufReader::new(stream));
        let status = events.line().split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a response has a status"), events)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the door writes");
        line
    }

    /// Skips the head, which has to say that events follow.
    pub(super) fn begin(scene: &Scene, parameters: &str) -> Self {
        let (status, mut events) = Self::ask(scene, parameters);
        assert_eq!(status, 200);
        let mut head = String::new();
        loop {
            match events.line() {
                line if line == "\r\n" => break,
                line => head += &line,
            }
        }
        assert!(head.contains("Content-Type: text/event-stream\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        events
    }

    pub(super) fn next(&mut self) -> Value {
        let line = self.line();
        let data = line.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {line:?}"));
        assert_eq!(self.line(), "\n", "an empty line ends an event");
        serde_json::from_str(data).expect("it is JSON")
    }
}

#[test]
fn looks_come_at_most_four_times_a_second() {
    // With a watchdog, threads that take over from slow steps would count as workers, too.
    let builder = Scheduler::builder().worker_threads(2).watchdog(false);
    let scene = Scene::new(builder, |options| options);
    let waits = SpawnOptions::new().on(&scene.scheduler).label("waits");
    let waits = waits.spawn(std::future::pending::<()>());
    let begin = Instant::now();
    let mut events = Events::begin(&scene, "interval=1&label=waits");
    let first = events.next();
    assert_eq!(first["version"], 1);
    assert_eq!(first["view"]["rows"][0]["pid"], waits.pid().to_string());
    assert!(first["view"]["window_ms"].is_null(), "there is no event before");
    assert_eq!(first["workers"]["workers"].as_array().map(Vec::len), Some(2));
    assert!(first["latest_crash"].is_null());
    for _ in 0..4 {
        let event = events.next();
        assert!(event["interval_ms"].as_u64() >= Some(250), "{event}");
        assert!(event["share"].as_f64() <= Some(0.0101), "{event}");
        assert!(event["view"]["window_ms"].as_u64() >= Some(240), "since the event before");
    }
    assert!(since(begin) >= Duration::from_millis(980), "four intervals have passed");
}

#[test]
fn four_follow_at_once_and_one_that_leaves_makes_room() {
    let scene = Scene::threaded(|options| options);
    let mut followers: Vec<_> = (0..4).map(|_| Events::begin(&scene, "interval=60000")).collect();
    for follower in &mut followers {
        follower.next();
    }
    let (status, mut refused) = Events::ask(&scene, "");
    assert_eq!(status, 503);
    let mut text = String::new();
    refused.0.read_to_string(&mut text).expect("the door writes");
    assert!(text.ends_with("the door has 4 followers at once\n"), "{text}");
    followers.pop();
    // The door notices soon, and not at the next event.
    wait_until(|| Events::ask(&scene, "").0 == 200);
}

#[test]
fn a_follower_that_asks_for_nonsense_is_told() {
    let scene = Scene::threaded(|options| options);
    for (parameters, reason) in [
        ("with=tree,soup", "with is a list of crashes, pools, sections, timeline and tree"),
        ("interval=soon", "interval must be a number of milliseconds"),
        ("since=1x", "since"),
        ("sort=soup", "sort"),
        ("soup=1", "unknown parameter"),
        ("ms=10001", "ms must be a whole number from 1 to 10000"),
        ("ms=0", "ms must be a whole number from 1 to 10000"),
    ] {
        let (status, mut events) = Events::ask(&scene, parameters);
        let mut text = String::new();
        events.0.read_to_string(&mut text).expect("the door writes");
        assert!(status == 400 && text.contains(reason), "{parameters}: {status} {text}");
    }
    let head = "HEAD /live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(super::ask(&scene.socket(), head).status, 405, "it would never end");
}

/// Returns the first event.
pub(super) fn first(scene: &Scene, parameters: &str) -> Value {
    Events::begin(scene, parameters).next()
}

#[test]
fn an_event_has_the_parts_that_were_asked_for() {
    let scene = Scene::threaded(|options| options);
    scene.scheduler.block_on(async {
        let fails =
            procession::spawn(async { procession::process::exit(procession::Exit::failed("so")) });
        drop(fails.await);
    });
    let event = Events::begin(&scene, "with=crashes,pools,timeline,tree&top=0").next();
    assert_eq!(event["crashes"][0]["exit"], "the process failed: so");
    assert_eq!(event["latest_crash"], event["crashes"][0]);
    assert!(event["pools"].is_array() && event["tree"]["nodes"].is_array());
    assert_eq!(event["timeline"]["columns"], 300);
    let event = Events::begin(&scene, "").next();
    assert!(event.get("crashes").is_none() && event.get("timeline").is_none());
}

#[test]
fn the_timeline_shows_the_location_that_was_busy() {
    let builder = Scheduler::builder().name("busy").worker_threads(1);
    let scene = Scene::new(builder, |options| options);
    let ends = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&ends);
    let location = format!("{}:{}", file!(), line!() + 1);
    let busy = scene.scheduler.spawn(async move {
        while !stop.load(Relaxed) {
            std::hint::spin_loop();
            others_may_run();
        }
    });
    let timeline = || -> Value {
        let answer = scene.get("/timeline?ms=100");
        assert_eq!(answer.status, 200);
        serde_json::from_str(&answer.body).expect("it is JSON")
    };
    let mut found = Value::Null;
    wait_until(|| {
        found = timeline()["timeline"].take();
        found["workers"].as_array().into_iter().flatten().any(|worker| {
            // One step takes all 300 columns.
            worker["slices"][0] == serde_json::json!([0, 300, 0, 100, busy.pid().to_string()])
        })
    });
    assert_eq!(found["locations"][0]["location"], location);
    assert!(found["locations"][0]["us"].as_u64() >= Some(99_000), "{found}");
    ends.store(true, Relaxed);
}

#[test]
fn pools_are_listed_by_name() {
    let scene = Scene::threaded(|options| options);
    // The list is of the whole program, and has the sums of pools that have ended.
    let name = format!("listed {}", scene.scheduler.id());
    let pool = Pool::builder().name(&*name).capacity(7).build().expect("the settings are fine");
    pool.submit(|| ()).expect("it is open").join().expect("it returns");
    // A job is counted after its result is there.
    pool.wait_idle(None).expect("its only job has ended");
    let answer: Value = serde_json::from_str(&scene.get("/pools").body).expect("it is JSON");
    let pools = answer["pools"].as_array().expect("it is a list");
    let listed = pools.iter().find(|pool| pool["name"] == *name).expect("it is there");
    assert_eq!((&listed["capacity"], &listed["completed"]), (&7.into(), &1.into()));
}
