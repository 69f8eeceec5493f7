//! Where a door is, when it is there, and when it answers.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;
use std::sync::Arc;

use procession::observe::{DoorError, DoorOptions};
use procession::scheduler::BuildError;
use procession::time::Instant;
use procession::{Scheduler, run};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use rustix::process::geteuid;

use super::{Folder, Scene, since};
use crate::home::net::UnixStream;
use crate::home::{mpsc, others_may_run};
use crate::scene::TIMEOUT;

/// Tries to open a door in a directory, and returns why it was refused.
fn refusal(folder: &Folder) -> DoorError {
    let options = DoorOptions::default().directory(&folder.0);
    match Scheduler::builder().worker_threads(1).door(options).build() {
        Err(BuildError::Door(error)) => error,
        other => panic!("the door was not refused: {other:?}"),
    }
}

#[test]
fn a_door_says_what_it_belongs_to() {
    let scene = Scene::threaded(|options| options);
    let answer = scene.get("/about");
    assert_eq!(answer.status, 200);
    let id = scene.scheduler.id();
    for member in [
        String::from("\"version\":1"),
        String::from("\"name\":\"seen\""),
        String::from("\"workers\":2"),
        String::from("\"actions\":false"),
        format!("\"system_pid\":{}", std::process::id()),
        format!("\"scheduler\":{id}"),
    ] {
        assert!(answer.body.contains(&member), "{member} in {}", answer.body);
    }
    assert_eq!(scene.get("/nothing/<b>").status, 404);
}

#[test]
fn a_door_is_private_to_its_user() {
    let scene = Scene::threaded(|options| options);
    let mode = |path| fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
    assert_eq!(mode(scene.folder.0.as_path()).ok(), Some(0o700));
    assert_eq!(mode(scene.socket().as_path()).ok(), Some(0o600));
}

#[test]
fn a_door_is_closed_with_the_last_handle() {
    let Scene { scheduler, folder } = Scene::threaded(|options| options);
    let door = scheduler.door().expect("it was asked for");
    let socket = door.socket();
    let other = scheduler.clone();
    drop(scheduler);
    assert!(socket.exists() && UnixStream::connect(socket).is_ok());
    drop(other);
    assert!(!socket.exists(), "{socket:?} is still there");
    drop(folder);
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let folder = Folder::new();
    fs::create_dir(&folder.0).expect("it is new");
    fs::set_permissions(&folder.0, Permissions::from_mode(0o750)).expect("it is ours");
    assert!(matches!(refusal(&folder), DoorError::OpenToOthers(_, mode) if mode & 0o777 == 0o750));
    assert!(refusal(&folder).to_string().contains("has the mode 0750, and must have 0700"));
    fs::remove_dir(&folder.0).expect("it is empty");

    let target = Folder::new();
    fs::create_dir(&target.0).expect("it is new");
    fs::set_permissions(&target.0, Permissions::from_mode(0o700)).expect("it is ours");
    symlink(&target.0, &folder.0).expect("it is new");
    assert!(matches!(refusal(&folder), DoorError::NoDirectory(_)), "a link");
    fs::remove_file(&folder.0).expect("it is a link");

    fs::write(&folder.0, "").expect("it is new");
    assert!(matches!(refusal(&folder), DoorError::NoDirectory(_)), "a file");
    fs::remove_file(&folder.0).expect("it is a file");

    fs::create_dir(&folder.0).expect("it is new");
    fs::set_permissions(&folder.0, Permissions::from_mode(0o700)).expect("it is ours");
    // Only root can give a directory away.
    if chown(&folder.0, Some(65534), None).is_ok() {
        assert!(matches!(refusal(&folder), DoorError::OtherOwner(_, 65534)));
    }
}

#[test]
fn an_address_beyond_this_machine_is_refused() {
    let folder = Folder::new();
    let address = ([0, 0, 0, 0], 0).into();
    let options = DoorOptions::default().directory(&folder.0).tcp_at(address);
    let error = Scheduler::builder().worker_threads(1).door(options).build().unwrap_err();
    assert!(matches!(&error, BuildError::Door(DoorError::NotLoopback(_))), "{error:?}");
    assert!(!folder.0.exists(), "nothing was opened");
}

/// Runs a test of this file again, in a child process.
fn child(test: &str, folder: &Folder) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows itself"));
    command.args(["--exact", "--nocapture", &format!("door::life::{test}")]);
    command.env("PROCESSION_TEST_DOOR", "").env("XDG_RUNTIME_DIR", &folder.0);
    command
}

/// Returns the names of this program's threads that belong to doors.
fn door_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("the system has /proc");
    let names =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("procession-door")).count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("the system has /proc").count()
}

#[test]
fn the_variable_opens_a_door_and_nothing_else_does() {
    if std::env::var_os("PROCESSION_TEST_DOOR").is_none() {
        for value in ["1", "0", ""] {
            let folder = Folder::new();
            fs::create_dir(&folder.0).expect("it is new");
            let mut child = child("the_variable_opens_a_door_and_nothing_else_does", &folder);
            let output = child.env("PROCESSION_DOOR", value).output().expect("it runs");
            assert!(output.status.success(), "{value:?}: {output:?}");
        }
        return;
    }
    let is_wanted = std::env::var_os("PROCESSION_DOOR").is_some_and(|value| value == "1");
    let before = descriptors();
    // It starts no thread before it has something to do.
    let build = || crate::scene::alone().worker_threads(1).watchdog(false);
    let scheduler = build().build().expect("it has the defaults");
    let door = scheduler.door();
    assert_eq!(door.is_some(), is_wanted);
    if let Some(door) = door {
        assert_eq!(door.tcp(), None, "the variable never opens TCP");
        let answer = super::ask(
            door.socket(),
            "POST /process/p1.0.1/cancel HTTP/1.1\r\nHost: localhost\r\n\r\n",
        );
        assert_eq!(answer.status, 403, "the variable never allows actions");
        assert_eq!(door_threads(), 1);
        assert!(build().no_door().build().expect("it is plain").door().is_none());
        assert!(build().test_clock().build().expect("it is plain").door().is_none());
    } else {
        assert_eq!((door_threads(), descriptors()), (0, before), "a thread or a descriptor");
    }
}

/// Goal: the variable is ignored in a program with more rights than its caller. Method: a copy of
/// this program belongs to another user, and runs with that user's rights (set-user-ID).
#[test]
#[expect(clippy::print_stdout, reason = "the test reads it")]
fn the_variable_is_ignored_with_the_rights_of_another_user() {
    const OTHER: u32 = 65534;
    let name = "the_variable_is_ignored_with_the_rights_of_another_user";
    if std::env::var_os("PROCESSION_TEST_DOOR").is_some() {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it is plain");
        println!("user {}, door {}", geteuid().as_raw(), scheduler.door().is_some());
        return;
    }
    // Only root can give a file away.
    if !geteuid().is_root() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(&folder.0).expect("it is new");
    let program = folder.0.join("program");
    fs::copy(std::env::current_exe().expect("a test knows itself"), &program)
        .expect("there is room");
    let run = |user: u32, mode: u32| {
        let runtime = folder.0.join(user.to_string());
        fs::create_dir(&runtime).expect("it is new");
        fs::set_permissions(&runtime, Permissions::from_mode(0o700)).expect("it is ours");
        chown(&runtime, Some(user), None).expect("root may");
        chown(&program, Some(user), None).expect("root may");
        fs::set_permissions(&program, Permissions::from_mode(mode)).expect("it is ours");
        let output = Command::new(&program)
            .args(["--exact", "--nocapture", &format!("door::life::{name}")])
            .env("PROCESSION_TEST_DOOR", "")
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("PROCESSION_DOOR", "1")
            .output()
            .expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    let plain = run(0, 0o755);
    assert!(plain.contains("user 0, door true"), "{plain}");
    let other = run(OTHER, 0o4755);
    // The file system may be mounted without set-user-ID.
    if !other.contains("user 0,") {
        assert!(other.contains(&format!("user {OTHER}, door false")), "{other}");
        assert!(!other.contains("cannot open a door"), "it is not even tried: {other}");
    }
}

#[test]
fn a_door_that_cannot_be_opened_for_the_variable_is_reported() {
    if std::env::var_os("PROCESSION_TEST_DOOR").is_none() {
        let folder = Folder::new();
        fs::create_dir(&folder.0).expect("it is new");
        fs::write(folder.0.join("procession"), "").expect("it is new");
        let test = "a_door_that_cannot_be_opened_for_the_variable_is_reported";
        let output = child(test, &folder).env("PROCESSION_DOOR", "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("cannot open a door: "), "{said}");
        assert!(said.contains("is no directory"), "{said}");
        return;
    }
    assert_eq!(run(async { 1 }), 1, "the program goes on");
    let done = Scheduler::global();
    drop(done.block_on(done.shutdown(TIMEOUT)));
}

#[test]
fn the_end_of_a_program_removes_the_socket_of_the_default_scheduler() {
    if std::env::var_os("PROCESSION_TEST_DOOR").is_none() {
        let folder = Folder::new();
        fs::create_dir(&folder.0).expect("it is new");
        let test = "the_end_of_a_program_removes_the_socket_of_the_default_scheduler";
        let output = child(test, &folder).env("PROCESSION_DOOR", "1").output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let left = fs::read_dir(folder.0.join("procession")).expect("the child has made it");
        assert_eq!(left.count(), 0, "a socket is left");
        return;
    }
    // Nothing drops this scheduler.
    let door = Scheduler::global().door().expect("the variable asks for it");
    assert!(door.socket().exists());
}

#[test]
fn a_door_answers_while_all_workers_compute() {
    let builder = Scheduler::builder().worker_threads(2).max_threads(2);
    let scene = Scene::new(builder, |options| options);
    let ends = Arc::new(AtomicBool::new(false));
    let (begins, begun) = mpsc::channel();
    let endless: Vec<_> = (0..2)
        .map(|_| {
            let (ends, begins) = (Arc::clone(&ends), begins.clone());
            scene.scheduler.spawn(async move {
                begins.send(()).expect("the test listens");
                while !ends.load(Relaxed) {
                    std::hint::spin_loop();
                    others_may_run();
                }
            })
        })
        .collect();
    for _ in 0..2 {
        begun.recv_timeout(TIMEOUT).expect("both workers are free");
    }
    let stuck = scene.scheduler.spawn(async {});
    let answer = scene.get("/metrics");
    assert_eq!(answer.status, 200);
    let id = scene.scheduler.id();
    let in_step = format!("procession_workers_in_step{{scheduler=\"{id}\"}} 2\n");
    assert!(answer.body.contains(&in_step), "{}", answer.body);
    for target in ["/", "/view", "/workers", "/timeline", "/pools", "/tree"] {
        let begin = Instant::now();
        assert_eq!(scene.get(target).status, 200, "{target}");
        // The system may let the door wait for as long as others compute. A door that needed a
        // worker would never answer.
        let took = since(begin);
        assert!(took < TIMEOUT, "{target} took {took:?}");
    }
    assert!(!stuck.is_finished(), "no worker was free meanwhile");
    ends.store(true, Relaxed);
    for process in endless {
        process.join().expect("it ends");
    }
}
