//! The files that the recorder writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::process::OnCancel;
use procession::scheduler::Builder;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Exit, Scheduler, SpawnOptions};

use super::decoded::decode;
use crate::home::{mpsc, thread};
use crate::scene::panic_quietly;

/// A directory that is removed with its files.
struct Folder(PathBuf);

impl Folder {
    /// Returns the path of a directory that is not there yet.
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("procession-{test}-{}", std::process::id()));
        // Of an earlier run with the same number.
        drop(fs::remove_dir_all(&path));
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("it can be read").file_name().into_string().expect("names are plain")
        };
        entries.map(name).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn build(folder: &Folder, options: impl FnOnce(Builder) -> Builder) -> Scheduler {
    let builder = Scheduler::builder().name("files").dump_directory(folder.path());
    options(builder.worker_threads(2)).build().expect("the system has threads")
}

/// Waits until a dump was tried.
fn dumped(scheduler: &Scheduler) {
    while {
        let recorder = scheduler.snapshot().recorder;
        recorder.dumps + recorder.dumps_failed == 0
    } {
        thread::yield_now();
    }
}

/// Asserts that there is one file, for this cause, and returns it.
#[track_caller]
fn only_file(folder: &Folder, cause: &str) -> Vec<u8> {
    use std::os::unix::fs::PermissionsExt;
    let names = folder.names();
    let [name] = &names[..] else { panic!("there is one file: {names:?}") };
    let end = format!("-{cause}.procession.pftrace");
    assert!(name.starts_with("files-") && name.ends_with(&end), "{name}");
    let path = folder.path().join(name);
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "only its owner can read it");
    fs::read(path).expect("it can be read")
}

#[test]
fn a_stalled_step_writes_one_file_that_names_it() {
    let folder = Folder::new("stall");
    let scheduler = build(&folder, |builder| builder);
    let stall = |label: &str| {
        let (gate, waits) = mpsc::channel::<()>();
        let process = SpawnOptions::new().on(&scheduler).label(label).spawn(async move {
            waits.recv().unwrap_or_default();
        });
        (gate, process)
    };
    let (gate, process) = stall("culprit");
    dumped(&scheduler);
    drop(gate);
    process.join().expect("it ends");
    // The next one comes within 60 seconds.
    let before = scheduler.stalls().blocked;
    let (gate, process) = stall("another");
    while scheduler.stalls().blocked == before {
        thread::yield_now();
    }
    drop(gate);
    process.join().expect("it ends");
    assert_eq!(scheduler.snapshot().recorder.dumps, 1);
    let decoded = decode(&only_file(&folder, "stall"));
    assert!(decoded.names["culprit"] == 1, "{decoded:?}");
    assert!(decoded.names.keys().any(|name| name.ends_with("is stalled")), "{decoded:?}");
}

#[test]
fn a_supervisor_that_gives_up_writes_a_file() {
    let folder = Folder::new("give-up");
    let scheduler = build(&folder, |builder| builder.on_exit(|_| {}).on_supervisor(|_| {}));
    scheduler.block_on(async {
        let fails = ChildSpec::new("fails", |_: Context<()>| async { panic_quietly("always") });
        let tree = Supervisor::one_for_one().intensity(1, Duration::from_secs(5)).child(fails);
        let ended = tree.try_start().await.expect("it starts").await;
        assert!(matches!(ended, Exit::GaveUp(_)), "{ended}");
    });
    dumped(&scheduler);
    assert!(decode(&only_file(&folder, "give-up")).names.contains_key("failed"));
}

#[test]
fn a_shutdown_that_terminates_processes_writes_a_file_first() {
    let folder = Folder::new("shutdown");
    let scheduler = build(&folder, |builder| builder);
    let stays = SpawnOptions::new().on(&scheduler).on_cancel(OnCancel::Ask);
    let process = stays.label("stays").spawn(std::future::pending::<()>());
    // Those that have not ended within the last tenth of it are returned.
    drop(scheduler.block_on(scheduler.shutdown(Duration::from_millis(500))));
    assert_eq!(process.join(), Err(Exit::Killed));
    dumped(&scheduler);
    only_file(&folder, "shutdown");
}

#[test]
fn an_orderly_end_writes_no_file() {
    let folder = Folder::new("none");
    let scheduler = build(&folder, |builder| builder);
    scheduler.spawn(async {}).join().expect("it ends");
    assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(60))).is_empty());
    assert_eq!(scheduler.snapshot().recorder.dumps, 0);
    assert!(!folder.path().exists());
}

#[test]
fn a_file_that_cannot_be_written_is_counted() {
    let folder = Folder::new("refused");
    fs::write(folder.path(), "").expect("it can be written");
    let scheduler = build(&folder, |builder| builder.on_exit(|_| {}).on_supervisor(|_| {}));
    scheduler.block_on(async {
        let fails = ChildSpec::new("fails", |_: Context<()>| async { panic_quietly("always") });
        let tree = Supervisor::one_for_one().intensity(0, Duration::from_secs(5)).child(fails);
        drop(tree.try_start().await.expect("it starts").await);
    });
    dumped(&scheduler);
    assert_eq!(scheduler.snapshot().recorder.dumps_failed, 1);
    fs::remove_file(folder.path()).expect("it is ours");
}
