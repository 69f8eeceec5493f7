//! The commands that look into a program. The program is this test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use procession::observe::DoorOptions;
use procession::{Context, Scheduler, SpawnOptions};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::thread;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

/// Far longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A directory for one test. Dropping this removes it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("procession-see-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0).expect("it is new");
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignored: the system clears the directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A scheduler with a door, and a process with a mailbox.
pub(crate) struct Scene {
    pub(crate) scheduler: Scheduler,
    teller: procession::Child<u32, ()>,
    pub(crate) folder: Folder,
}

impl Scene {
    pub(crate) fn new(settings: impl FnOnce(DoorOptions) -> DoorOptions) -> Self {
        let folder = Folder::new();
        let options = settings(DoorOptions::default().directory(folder.0.join("procession")));
        let builder = Scheduler::builder().name("bank").worker_threads(2).on_exit(|_| {});
        let scheduler = builder.door(options).build().expect("the directory is new");
        let teller = SpawnOptions::new()
            .on(&scheduler)
            .label("teller \u{1b}[2J")
            .start(|mut cx: Context<u32>| async move { while cx.recv().await.is_some() {} });
        scheduler.run_until_idle();
        Self { scheduler, teller, folder }
    }

    fn socket(&self) -> PathBuf {
        self.scheduler.door().expect("it was asked for").socket().to_owned()
    }

    /// Runs the command among the doors of the scene. Returns the exit code and both outputs.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run(&self.folder.0, arguments)
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_procession"));
    command.args(arguments).env("XDG_RUNTIME_DIR", directory);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = command(directory, arguments).output().expect("the command can be started");
    let text = |bytes| String::from_utf8(bytes).expect("the output is text");
    let code = output.status.code().expect("it was not killed");
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn processes_are_listed() {
    let scene = Scene::new(|options| options);
    let (code, out, err) =
        scene.run(&["ps", "bank", "--sort", "mailbox", "--filter", "state=idle"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let mut lines = out.lines();
    assert!(lines.next().is_some_and(|head| head.starts_with("PID ")), "{out}");
    let line = lines.next().expect("there is a process");
    assert!(line.contains(&scene.teller.pid().to_string()) && line.contains("message"), "{out}");
    assert!(line.contains("teller \\u{1b}[2J") && !out.contains('\u{1b}'), "{out}");
    assert_eq!(lines.next(), None, "{out}");
}

#[test]
fn one_look_is_json_for_programs_and_text_for_people() {
    let scene = Scene::new(|options| options);
    for arguments in [&["top", "bank", "--json"][..], &["top", "bank", "--once", "--json"]] {
        let (code, out, err) = scene.run(arguments);
        assert_eq!((code, err.as_str()), (0, ""));
        let value: Value = serde_json::from_str(&out).expect("it is JSON");
        assert_eq!(value["about"]["name"], "bank");
        // A late worker may have been replaced.
        assert!(value["workers"]["workers"].as_array().is_some_and(|all| all.len() >= 2), "{out}");
        assert_eq!(value["view"]["rows"][0]["pid"], scene.teller.pid().to_string());
        assert!(value["view"]["window_ms"].as_u64().is_some_and(|window| window >= 1000), "{out}");
    }
    let (code, out, _) = scene.run(&["top", "bank", "--group", "state"]);
    assert_eq!(code, 0);
    assert!(out.contains("scheduler bank: ") && out.contains(" workers, 1 processes"), "{out}");
    assert!(out.contains("worker 0: ") && out.contains("PROCESSES"), "{out}");
}

#[test]
fn trees_crashes_and_events_are_shown() {
    let scene = Scene::new(|options| options);
    let panics = async { std::panic::resume_unwind(Box::new("no disk")) };
    let ended: Result<(), _> = scene.scheduler.spawn(panics).join();
    ended.expect_err("it panics");
    assert_eq!(scene.run(&["tree", "bank"]), (0, "no supervisors\n".into(), String::new()));
    let none = String::from("no processes have waited for one another\n");
    assert_eq!(scene.run(&["cycles", "bank"]), (0, none, String::new()));
    let none = String::from("no process is known to be leaked\n");
    assert_eq!(scene.run(&["leaks", "bank"]), (0, none, String::new()));
    let options = SpawnOptions::new().on(&scene.scheduler).label("lost");
    drop(options.start(|mut cx: Context<u8>| async move { cx.recv().await }));
    // It has to wait before it can be leaked.
    let text = loop {
        let (code, out, _) = scene.run(&["leaks", "bank"]);
        assert_eq!(code, 0);
        if out.starts_with("1 leaked:\n") {
            break out;
        }
    };
    assert!(text.contains(" (lost) waits at "), "{text}");
    assert!(text.ends_with(" for a message, and nothing refers to it\n"), "{text}");
    let (code, out, _) = scene.run(&["crashes", "bank"]);
    assert!(code == 0 && out.contains("no disk"), "{out}");
    let file = scene.folder.0.join("events");
    let path = file.to_str().expect("it is text");
    assert_eq!(scene.run(&["dump", path, "bank"]), (0, String::new(), String::new()));
    let found = fs::metadata(&file).expect("it was written");
    assert!(found.len() > 0);
    assert_eq!(found.permissions().mode() & 0o777, 0o600, "labels may contain secrets");
    let (code, _, err) = scene.run(&["dump", path, "bank"]);
    assert!(code == 1 && err.contains("File exists"), "a file is not written over: {err}");
}

#[inline(never)]
fn fails_deep_inside() {
    panic!("no disk");
}

#[test]
fn the_report_of_a_panic_has_its_backtrace_if_the_program_keeps_it() {
    procession::observe::install_panic_hook();
    let folder = Folder::new();
    for keep in [true, false] {
        let options = DoorOptions::default().directory(folder.0.join("procession"));
        let builder = Scheduler::builder().name("kept").worker_threads(1).on_exit(|_| {});
        let scheduler = builder.door(options).panic_backtraces(keep).build().expect("it is new");
        let ended: Result<(), _> = scheduler.spawn(async { fails_deep_inside() }).join();
        ended.expect_err("it panics");
        let (code, out, err) = run(&folder.0, &["crashes", "kept", "--number", "1"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("no disk") && out.contains("; report 1"), "{out}");
        assert_eq!(out.contains("fails_deep_inside"), keep, "{out}");
        let functions: Vec<_> = out.lines().skip(3).collect();
        let begins = functions.first().is_some_and(|line| line.contains("fails_deep_inside"));
        assert_eq!(begins, keep, "the functions that begin a panic are left out: {out}");
        let (code, _, err) = run(&folder.0, &["crashes", "kept", "--number", "2"]);
        assert!(code == 1 && err.contains("there is no report 2"), "{err}");
        let (_, out, _) = run(&folder.0, &["crashes", "kept", "--json"]);
        let value: Value = serde_json::from_str(&out).expect("it is JSON");
        assert_eq!(value["crashes"][0]["has_backtrace"], keep);
    }
}

#[test]
fn a_process_is_killed_only_with_leave() {
    let scene = Scene::new(|options| options);
    let pid = scene.teller.pid().to_string();
    let (code, _, err) = scene.run(&["kill", &pid, "bank"]);
    assert!(code == 1 && err.starts_with("procession: the program refused: "), "{err}");
    assert!(scene.teller.send(1).is_ok(), "it lives");
    let scene = Scene::new(DoorOptions::allow_actions);
    let pid = scene.teller.pid().to_string();
    assert_eq!(scene.run(&["kill", &pid, "bank", "--cancel"]), (0, String::new(), String::new()));
    scene.scheduler.run_until_idle();
    let (code, _, err) = scene.run(&["kill", &pid, "bank"]);
    assert!(code == 1 && err.contains("has ended"), "{err}");
}

#[test]
fn a_process_is_looked_into() {
    let scene = Scene::new(|options| options);
    let shows = scene.scheduler.start(|mut cx: Context<u32>| async move {
        let _inspecting = cx.inspect_with(|shown| {
            shown.field("balance", 120).field("owner", "ann \u{1b}[2J");
        });
        cx.recv().await;
    });
    scene.scheduler.run_until_idle();
    let (teller, shows) = (scene.teller.pid().to_string(), shows.pid().to_string());
    let (code, out, err) = scene.run(&["stack", &teller, "bank", "--seconds", "10"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with(&format!("{teller} waits\n\n")), "{out}");
    assert!(out.contains("tests/it/see.rs:"), "{out}");
    let (_, out, _) = scene.run(&["stack", &teller, "bank", "--json"]);
    let value: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!((&value["pid"], &value["source"]), (&teller.as_str().into(), &"wait".into()));
    let (code, _, err) = scene.run(&["stack", &teller, "bank", "--seconds", "11"]);
    assert!(code == 1 && err.contains("from 1 to 10"), "{err}");
    let (code, out, err) = scene.run(&["inspect", &shows, "bank"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, format!("{shows} shows\n\nbalance: 120\nowner: ann \\u{{1b}}[2J\n"));
    let (code, _, err) = scene.run(&["inspect", &teller, "bank"]);
    assert!(code == 1 && err.contains("shows nothing of itself"), "{err}");
    let (code, _, err) = scene.run(&["stack", "p1.9999.1", "bank"]);
    assert_eq!(code, 1, "{err}");
    let (code, _, err) = scene.run(&["stack"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn a_trace_shows_the_headers_of_the_next_messages() {
    let scene = Scene::new(|options| options);
    let address = scene.teller.address().clone();
    let client = scene.scheduler.spawn(async move {
        while address.send(7).is_ok() {
            procession::sleep(Duration::from_millis(1)).await;
        }
    });
    let pid = scene.teller.pid().to_string();
    let (code, out, err) = scene.run(&["trace", &pid, "bank", "-n", "3"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].trim_start().starts_with("SECONDS"), "{out}");
    let client = client.pid().to_string();
    for line in &lines[1..] {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1..], ["from", client.as_str(), "4", "-", "u32"], "{out}");
    }
    let (code, _, err) = scene.run(&["trace", &pid, "bank", "-n", "1001"]);
    assert!(code == 1 && err.contains("from 1 to 1000"), "{err}");
}

#[test]
fn a_process_is_suspended_only_with_leave() {
    let nothing = || (0, String::new(), String::new());
    let scene = Scene::new(|options| options);
    let pid = scene.teller.pid().to_string();
    let (code, _, err) = scene.run(&["suspend", &pid, "bank"]);
    assert!(code == 1 && err.starts_with("procession: the program refused: "), "{err}");
    let scene = Scene::new(DoorOptions::allow_actions);
    let pid = scene.teller.pid().to_string();
    let is_suspended =
        || scene.scheduler.detail(scene.teller.pid()).expect("it is there").suspended;
    let (code, _, err) = scene.run(&["resume", &pid, "bank"]);
    assert!(code == 1 && err.contains("is not suspended"), "{err}");
    let (code, _, err) = scene.run(&["suspend", &pid, "bank", "--seconds", "61"]);
    assert!(code == 1 && err.contains("from 1 to 60"), "{err}");
    assert!(!is_suspended());
    assert_eq!(scene.run(&["suspend", &pid, "bank", "--seconds", "60"]), nothing());
    assert!(is_suspended());
    assert_eq!(scene.run(&["resume", &pid, "bank"]), nothing());
    assert!(!is_suspended());
}

#[test]
fn doors_are_chosen_by_words() {
    let scene = Scene::new(|options| options);
    let socket = scene.socket();
    let path = socket.to_str().expect("it is text");
    let number = std::process::id().to_string();
    for target in [Some("bank"), Some(path), Some(number.as_str()), None] {
        let arguments: Vec<_> = ["tree"].into_iter().chain(target).collect();
        assert_eq!(scene.run(&arguments).0, 0, "{target:?}");
    }
    let (code, _, err) = scene.run(&["tree", "post office"]);
    assert!(code == 1 && err.contains("no door fits 'post office'"), "{err}");
    assert!(err.contains(path), "{err}");
    let builder = Scheduler::builder().name("branch").worker_threads(1);
    let options = DoorOptions::default().directory(scene.folder.0.join("procession"));
    let other = builder.door(options).build().expect("the directory is there");
    let (code, _, err) = scene.run(&["tree"]);
    assert!(code == 1 && err.contains("several doors are open"), "{err}");
    assert_eq!(scene.run(&["tree", "branch"]).0, 0);
    drop(other);
}

#[test]
fn without_a_door_the_reason_and_the_remedy_are_told() {
    let folder = Folder::new();
    let (code, _, err) = run(&folder.0, &["ps", "--sort", "steps"]);
    assert_eq!(code, 1);
    assert!(err.contains("no program has a door in") && err.contains("PROCESSION_DOOR=1"), "{err}");
    for (arguments, said) in [
        (&["ps", "--sort", "beauty"][..], "invalid value 'beauty' of option '--sort'"),
        (&["ps", "--filter", "beauty"], "invalid value 'beauty' of option '--filter'"),
        (&["kill"], "too few words: it is kill PID [TARGET]"),
        (&["tree", "--once"], "the option '--once' belongs to another command"),
        (&["ps", "one", "two"], "unexpected word 'two'"),
    ] {
        let (code, _, err) = run(&folder.0, arguments);
        assert!(code == 2 && err.contains(said), "{arguments:?}: {err}");
    }
}

#[test]
fn the_help_tells_keys_and_targets() {
    let folder = Folder::new();
    for verb in
        ["top", "ps", "tree", "crashes", "cycles", "leaks", "dump", "record", "trace", "kill"]
    {
        let (code, out, _) = run(&folder.0, &[verb, "--help"]);
        assert!(code == 0 && out.contains("[TARGET]") && out.contains("Exit codes:"), "{out}");
        assert!(out.lines().all(|line| line.len() <= 100), "{out}");
    }
}

/// The questions of `docs/OPERATING.md` have commands that exist. Without a door they fail, and not
/// for their words.
#[test]
fn the_commands_of_the_guide_are_understood() {
    let folder = Folder::new();
    let guide = include_str!("../../../../docs/OPERATING.md");
    let mut count = 0;
    // In the code of the text, or on a separate line with a comment.
    let code = guide.split('`').filter(|code| !code.contains('\n'));
    let lines = guide.lines().map(|line| line.split('#').next().unwrap_or_default());
    for command in code.chain(lines).filter(|code| code.starts_with("procession ")) {
        let arguments: Vec<_> = command.split_whitespace().skip(1).collect();
        // These run programs and measurements.
        if ["bench", "run", "trial"].contains(&arguments[0]) {
            continue;
        }
        count += 1;
        let expected = if arguments.contains(&"--help") { 0 } else { 1 };
        let (code, _, err) = run(&folder.0, &arguments);
        assert_eq!(code, expected, "{command}: {err}");
    }
    assert!(count >= 25, "{count} commands");
}

/// Reads a pseudo-terminal until a text arrives.
fn await_text(chunks: &mpsc::Receiver<Vec<u8>>, seen: &mut String, text: &str) {
    while !seen.contains(text) {
        let chunk = chunks.recv_timeout(TIMEOUT);
        let chunk =
            chunk.unwrap_or_else(|error| panic!("{text:?} never comes ({error}): {seen:?}"));
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// `procession top` on a separate terminal.
struct Top {
    child: Child,
    terminal: File,
    chunks: mpsc::Receiver<Vec<u8>>,
    seen: String,
    /// The settings of the terminal before.
    before: Termios,
}

impl Top {
    fn start(scene: &Scene) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let name = PathBuf::from(name.to_str().expect("it is plain"));
        tcsetwinsize(&master, size(80, 24)).expect("it is a terminal");
        let before = tcgetattr(&master).expect("it is a terminal");
        let slave = || {
            let file = File::options().read(true).write(true).open(&name).expect("it is unlocked");
            Stdio::from(file)
        };
        // The signal about a new size goes to the session of the terminal, so the command has its
        // own. `setsid` of a child that leads no group becomes the command, with the same number.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_procession"), "top"])
            .arg(scene.socket())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("the command can be started");
        let terminal = File::from(master);
        let mut reader = terminal.try_clone().expect("there are descriptors");
        let (sends, chunks) = mpsc::channel();
        #[expect(clippy::disallowed_methods, reason = "no scheduler takes part")]
        let reads = thread::Builder::new().spawn(move || {
            let mut buffer = [0; 4096];
            // The terminal fails once the command has closed it.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sends.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        reads.expect("the system has threads");
        Self { child, terminal, chunks, seen: String::new(), before }
    }

    fn await_text(&mut self, text: &str) {
        await_text(&self.chunks, &mut self.seen, text);
    }

    /// Awaits the end of the command, which restores the terminal.
    fn ends(mut self) {
        self.await_text("\u{1b}[?1049l");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {:?}", self.seen);
        let after = tcgetattr(&self.terminal).expect("it is a terminal");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
    }
}

#[test]
fn top_runs_on_a_terminal_that_changes_its_size() {
    let scene = Scene::new(|options| options);
    let mut top = Top::start(&scene);
    top.await_text("teller");
    assert!(!top.seen.contains("GROWTH"), "a narrow screen leaves columns out");
    tcsetwinsize(&top.terminal, size(140, 40)).expect("it is a terminal");
    top.await_text("GROWTH");
    top.terminal.write_all(b"5").expect("it reads keys");
    // Only what has changed is drawn, so the text has no space.
    top.await_text("run:");
    top.terminal.write_all(b"q").expect("it reads keys");
    top.ends();
}

#[test]
fn top_restores_the_terminal_when_a_signal_ends_it() {
    let scene = Scene::new(|options| options);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut top = Top::start(&scene);
        top.await_text("teller");
        let raw = tcgetattr(&top.terminal).expect("it is a terminal");
        assert!(
            !raw.local_modes.contains(LocalModes::ICANON),
            "the signal comes to a raw terminal"
        );
        let pid = Pid::from_child(&top.child);
        kill_process(pid, signal).expect("it runs");
        top.ends();
    }
}
