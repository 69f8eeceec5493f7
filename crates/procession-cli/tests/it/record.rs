//! Recordings of a program for hours. The program is this test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use procession::observe::DoorOptions;
use procession::{JoinHandle, SpawnOptions, yield_now};
use procession_sync::hint;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::see::Scene;

/// A scene with a process that computes.
fn busy() -> (Scene, JoinHandle<()>) {
    let scene = Scene::new(|options: DoorOptions| options);
    let computing = SpawnOptions::new().on(&scene.scheduler).label("hash").spawn(async {
        loop {
            (0..10_000).for_each(|_| hint::spin_loop());
            yield_now().await;
        }
    });
    (scene, computing)
}

/// Starts a recording of the scene, after a command of the shell.
fn record(scene: &Scene, before: &str, arguments: &[&str]) -> (Child, PathBuf) {
    let directory = scene.folder.0.join("traces");
    let child = Command::new("sh")
        .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_procession"))
        .args(["record", "bank", "--seconds", "1", "--directory"])
        .arg(&directory)
        .args(arguments)
        .env("XDG_RUNTIME_DIR", &scene.folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    (child, directory)
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).expect("it is our child");
}

fn names(directory: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it was made");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("it is text");
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("it can be read"))).collect();
    names.sort();
    names
}

#[test]
fn a_recording_keeps_its_last_files_and_ends_in_order() {
    let (scene, computing) = busy();
    let (mut child, directory) = record(&scene, "", &["--rotate", "1B", "--keep", "2"]);
    let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    // Each window has a file, because a file is larger than one byte.
    let complete: Vec<String> =
        (0..3).map(|_| out.next().expect("a file is complete").expect("it is text")).collect();
    terminate(&child);
    let last: Vec<String> = out.map(|line| line.expect("it is text")).collect();
    let status = child.wait().expect("it is our child");
    let mut err = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut err).expect("it is text");
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
    assert!(last.last().is_some_and(|line| line.starts_with("2 files in ")), "{last:?}");
    let kept = names(&directory);
    assert!(kept.len() == 2 && kept.iter().all(|name| name.ends_with(".pftrace")), "{kept:?}");
    assert!(!fs::exists(&complete[0]).expect("it can be asked"), "the oldest is gone");

    let file = directory.join(&kept[0]);
    let file = file.to_str().expect("it is text");
    let (code, out, err) = scene.run(&["trace", file]);
    assert_eq!((code, err.as_str()), (0, ""));
    let row = out.lines().nth(2).expect("something computes");
    assert!(row.contains("hash at ") && row.contains("tests/it/record.rs:"), "{out}");
    let (_, out, _) = scene.run(&["trace", file, "--json"]);
    let value: Value = serde_json::from_str(&out).expect("it is JSON");
    assert!(value["steps"].as_u64().is_some_and(|steps| steps > 0), "{out}");
    let (code, _, err) = scene.run(&["trace", env!("CARGO_BIN_EXE_procession")]);
    assert!(code == 1 && err.contains("is no trace"), "{err}");
    computing.cancel();
}

/// A limit of the size of files stands for a full disk: a part of a write arrives, then an error.
#[test]
fn a_full_disk_is_told_and_survived() {
    let (scene, computing) = busy();
    let (mut child, directory) = record(&scene, "trap '' XFSZ; ulimit -f 1;", &[]);
    let mut err = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let said = err.next().expect("it says something").expect("it is text");
    assert!(said.contains("cannot write") && said.contains("os error"), "{said}");
    assert!(said.contains(".part: ") && said.contains("the recording goes on"), "{said}");
    terminate(&child);
    let status = child.wait().expect("it is our child");
    assert_eq!(status.code(), Some(0));
    assert_eq!(err.map(|line| line.expect("it is text")).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(names(&directory), Vec::<String>::new(), "no part is left behind");
    computing.cancel();
}

#[test]
fn a_dump_that_does_not_fit_leaves_no_file() {
    let (scene, computing) = busy();
    let file = scene.folder.0.join("events");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_procession"))
        .arg("dump")
        .arg(&file)
        .args(["bank", "--seconds", "1"])
        .env("XDG_RUNTIME_DIR", &scene.folder.0)
        .output()
        .expect("the command can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot write"), "{output:?}");
    assert!(!file.exists(), "a part of a trace is left behind");
    computing.cancel();
}
