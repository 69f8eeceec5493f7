//! The tools for programs in Lua: `check`, `test`, `repl`, `annotations`, and `run --watch`.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{check, procession};

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Ignored: in most cases there is nothing left of an earlier run.
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("the folder can be made");
        let folder = Self(path);
        files.iter().for_each(|(name, source)| folder.write(name, source));
        folder
    }

    /// Writes a file elsewhere and moves it, so that nobody reads a part of the file.
    fn write(&self, name: &str, source: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("it can be made");
        let written = path.with_extension("written");
        fs::write(&written, source).expect("the file can be written");
        fs::rename(written, path).expect("it can be moved");
    }

    /// Runs the command in the folder, and returns its output, its errors and its exit code.
    fn run(&self, arguments: &str, input: &str) -> (String, String, i32) {
        let mut command = procession(arguments);
        command.current_dir(&self.0).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command can be started");
        let stdin = child.stdin.take().expect("it is piped");
        // Ignored: the command need not read.
        drop({ stdin }.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("it is text");
        let code = output.status.code().expect("it was not killed");
        (text(output.stdout), text(output.stderr), code)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignored: the folder is in the folder of the build.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn check_prints_the_mistakes_of_all_files() {
    let folder = Folder::new(
        "check",
        &[
            ("good.lua", "function main() print(process.self()) end"),
            ("bad.lua", "function main()\n  process.sned(1, x)\nend"),
            ("broken.lua", "function main("),
        ],
    );
    assert_eq!(folder.run("check good.lua", ""), (String::new(), String::new(), 0));
    let (out, err, code) = folder.run("check good.lua bad.lua broken.lua", "");
    let expected = "bad.lua:2:3: `process` has no function `sned`\n\
                    bad.lua:2:19: the global `x` is not defined\n\
                    cannot load broken.lua: ";
    assert!(out.starts_with(expected), "{out}");
    assert_eq!((err.as_str(), code), ("procession: 3 mistakes found\n", 1));
    let (_, err, code) = folder.run("check missing.lua", "");
    assert!(err.starts_with("procession: cannot read missing.lua: "), "{err}");
    assert_eq!(code, 1);
    check("check", "procession: no file given: see --help\nexit code: 2\n");
}

#[test]
fn test_runs_the_tests_of_a_folder() {
    let folder = Folder::new(
        "test",
        &[
            ("a_test.lua", "function test_one() time.sleep(1e6) end function test_two() end"),
            ("inner/b_test.lua", "function test_three() print('seen') error('broken') end"),
            ("main.lua", "error('it is no test')"),
        ],
    );
    let (out, err, code) = folder.run("test --timeout 2000 .", "");
    let expected = "./a_test.lua: test_one ... ok\n./a_test.lua: test_two ... ok\n\
                    ./inner/b_test.lua: test_three ... FAILED\nseen\n\
                    runtime error: ./inner/b_test.lua:1: broken\nstack traceback:\n";
    assert!(out.starts_with(expected), "{out}");
    assert_eq!((err.as_str(), code), ("procession: 1 of 3 tests failed with the seed 0\n", 1));
    let passed = "a_test.lua: test_two ... ok\n1 passed\n".to_owned();
    assert_eq!(folder.run("test a_test.lua --filter two", ""), (passed, String::new(), 0));
    let (out, _, code) = folder.run("test a_test.lua --filter one", "");
    assert!(out.contains("it did not end within 60s") && code == 1, "{out}");
    let (_, err, code) = folder.run("test main.lua a_test.lua --filter none", "");
    assert_eq!((err.as_str(), code), ("procession: 1 of 1 tests failed with the seed 0\n", 1));
    let none = "procession: there are no tests: see test --help\n".to_owned();
    assert_eq!(folder.run("test a_test.lua --filter none", ""), (String::new(), none, 1));
}

#[test]
fn a_test_has_the_same_outcome_in_every_run() {
    let source = "
      function child(parent) time.sleep(math.random(5)) process.send(parent, process.self()) end
      function test_order()
        local t = {}
        for i = 1, 5 do t[process.spawn('child', process.self())] = math.random() end
        for i = 1, 5 do local pid = process.receive() print(pid, t[pid]) end
        for pid, number in pairs(t) do print(pid, number) end
        error('shown')
      end";
    let folder = Folder::new("outcome", &[("order_test.lua", source)]);
    let first = folder.run("test --seed 7 order_test.lua", "");
    assert!(first.0.contains("shown") && first.1.contains("with the seed 7"), "{first:?}");
    for _ in 0..10 {
        assert_eq!(folder.run("test --seed 7 order_test.lua", ""), first);
    }
    assert_ne!(folder.run("test --seed 8 order_test.lua", "").0, first.0);
}

#[test]
fn repl_evaluates_lines() {
    let folder = Folder::new("repl", &[("lib.lua", "function double(n) return 2 * n end")]);
    let input = "1 + 1\n\
                 x = double(21)\n\
                 x, 'text', { 1, 2, a = { b = 'c' }, [2.5] = true }\n\
                 for i = 1, 2 do\n  print(i)\nend\n\
                 error('broken')\n\
                 )\n\
                 process.send(process.self(), 'hello')\n\
                 process.receive()\n\
                 string, table, pcall, type, tostring = nil\n\
                 getmetatable('').__index = nil\n\
                 { a = 'b' }\n\
                 function late() return 1";
    let (out, err, code) = folder.run("repl lib.lua", input);
    let expected = "2\n42\ttext\t{ 1, 2, [2.5] = true, a = { b = \"c\" } }\n1\n2\n\
                    error: repl:1: broken\nerror: repl:1: unexpected symbol near ')'\ntrue\nhello\n\
                    { a = \"b\" }\n";
    assert_eq!((out.as_str(), err.as_str(), code), (expected, "", 0));
    assert_eq!(folder.run("repl", "return 1 < 2\n").0, "true\n");
}

#[test]
fn repl_goes_on_after_what_it_cannot_print() {
    let folder = Folder::new("repl_prints", &[]);
    let input = "x = setmetatable({}, { __tostring = function() error('broken') end })\n\
                 error(x)\n\
                 { { { { x } } } }\n\
                 ('x'):rep(20 << 20), 7\n\
                 error(('x'):rep(20 << 20), 0)\n\
                 1 + 1\n";
    let (out, err, code) = folder.run("repl", input);
    let long = "x".repeat(1 << 16);
    let none = "error: it cannot be shown\n".repeat(2);
    let expected = format!("{none}{long}...\t7\nerror: {long}...\n2\n");
    assert!(out == expected, "{} bytes: {:.300}", out.len(), out);
    assert_eq!((err.as_str(), code), ("", 0));
}

#[test]
fn repl_goes_on_when_it_cannot_print() {
    let folder = Folder::new("repl_mute", &[]);
    let input = "getmetatable('').__tostring = function() error('broken') end\n\
                 'mute'\n\
                 error('mute')\n\
                 )\n\
                 getmetatable('').__tostring = nil\n\
                 t = {} while true do t[#t + 1] = #t end\n\
                 t = nil\n\
                 1 + 1\n";
    let (out, err, code) = folder.run("repl", input);
    assert!(out.ends_with("\n2\n"), "{out}");
    assert_eq!((err.as_str(), code), ("", 0));
}

#[test]
fn annotations_are_lua() {
    let folder = Folder::new("annotations", &[]);
    let (out, err, code) = folder.run("annotations", "");
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.starts_with("---@meta\n") && out.contains("---@return pid?\n"), "{out}");
    folder.write("procession.lua", &out);
    assert_eq!(folder.run("check procession.lua", ""), (String::new(), String::new(), 0));
}

/// A program under `run --watch`, killed at the end.
struct Watched(Child, BufReader<ChildStdout>, BufReader<ChildStderr>);

impl Watched {
    fn start(folder: &Folder, arguments: &str) -> Self {
        let mut command = procession(arguments);
        command.current_dir(&folder.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command can be started");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let err = BufReader::new(child.stderr.take().expect("it is piped"));
        Self(child, out, err)
    }

    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("it is text");
        assert_eq!(line, expected);
    }

    fn reports(&mut self, expected: &str) {
        let mut line = String::new();
        self.2.read_line(&mut line).expect("it is text");
        assert!(line.contains(expected), "{line}");
    }

    /// Skips the lines before, for example a stack traceback.
    fn comes_to_report(&mut self, expected: &str) {
        let found =
            self.2.by_ref().lines().any(|line| line.expect("it is text").contains(expected));
        assert!(found, "no line contains {expected:?}");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn watch_starts_the_program_again_when_its_file_changes() {
    let version = |n| format!("function main() print('version {n}') process.receive() end");
    let folder = Folder::new("watch", &[("main.lua", &version(1))]);
    let mut watched = Watched::start(&folder, "run --watch main.lua");
    watched.says("version 1\n");
    folder.write("other.lua", "it is another file");
    folder.write("main.lua", &version(2));
    watched.says("version 2\n");
    // An invalid version is reported. The program continues.
    folder.write("main.lua", "function");
    watched.reports("cannot load main.lua");
    // Makes the command look at the invalid version again, which is not reported again.
    folder.write("other.lua", "it is still another file");
    folder.write(
        "main.lua",
        "print('at once') function main() print('version 3') error('broken') end",
    );
    watched.says("at once\n");
    watched.says("version 3\n");
    watched.reports("main of main.lua failed: runtime error: main.lua:1: broken");
    // A version that cannot start is reported, and the command waits for another one.
    folder.write("main.lua", "");
    watched.comes_to_report("cannot start main of main.lua");
    // Written in place, which is noticed once the writer closes it.
    fs::write(folder.0.join("main.lua"), version(4)).expect("the file can be written");
    watched.says("version 4\n");
    // A change may add modules. Their files are watched from then on.
    folder.write("lib/part.lua", "return 'version 5'");
    folder.write(
        "main.lua",
        "local part = require 'lib.part' function main() print(part) process.receive() end",
    );
    watched.says("version 5\n");
    folder.write("lib/part.lua", "return 'version 6'");
    watched.says("version 6\n");
    kill_process(Pid::from_child(&watched.0), Signal::TERM).expect("it runs");
    assert_eq!(watched.0.wait().expect("it is a child").code(), Some(0));
}

#[test]
fn watch_upgrades_a_program_that_can_be_upgraded() {
    let version = |n| {
        format!(
            "function main(state)
               print('version {n}', process.self(), type(state))
               process.receive()
             end
             function upgrade() return {{}} end
             resume_main = main"
        )
    };
    let folder = Folder::new("watch_upgrade", &[("main.lua", &version(1))]);
    let mut watched = Watched::start(&folder, "run --watch main.lua");
    watched.says("version 1\tp1.0.1\tnil\n");
    folder.write("main.lua", &version(2));
    watched.says("version 2\tp1.0.1\ttable\n");
    watched.reports("procession: upgraded 1 processes\n");
    folder.write("main.lua", "function resume_main() error('broken') end");
    watched.reports("main cannot be upgraded to ");
    let mut line = String::new();
    while !line.contains("upgraded 0 processes, 1 failed") {
        line.clear();
        assert!(watched.2.read_line(&mut line).expect("it is text") > 0, "the report comes");
    }
    folder.write("main.lua", &version(3));
    watched.says("version 3\tp1.0.1\ttable\n");
}

/// Without the signal, the upgrade would end after five seconds, and report that.
#[test]
fn watch_ends_by_a_signal_amid_an_upgrade() {
    let source = "function main() print('begins') process.receive() end
                  function upgrade() end ";
    let folder = Folder::new("watch_signal", &[("main.lua", source)]);
    let mut watched = Watched::start(&folder, "run --watch main.lua");
    watched.says("begins\n");
    let waits = "function selftest() print('tests') while true do process.receive() end end";
    folder.write("main.lua", &format!("{source}{waits}"));
    watched.says("tests\n");
    kill_process(Pid::from_child(&watched.0), Signal::TERM).expect("it runs");
    let mut reports = String::new();
    watched.2.read_to_string(&mut reports).expect("it is text");
    assert_eq!(reports, "");
    assert_eq!(watched.0.wait().expect("it is a child").code(), Some(0));
}

#[test]
fn test_simulates_many_seeds_and_prints_a_line_that_replays() {
    let folder = Folder::new(
        "simulated",
        &[(
            "deposits_test.lua",
            "balance = 0
             function account()
               while true do
                 local wanted, call = process.receive()
                 if call then process.reply(call, balance) else balance = wanted end
               end
             end
             function deposits(account, parent)
               process.send(account, process.call(account, 'balance') + 1)
               process.send(parent, 'done')
             end
             function test_deposits()
               assert(os.getenv('HOME') ~= '')
               local account = process.spawn('account')
               for _ = 1, 2 do process.spawn('deposits', account, process.self()) end
               for _ = 1, 2 do process.receive() end
               assert(process.call(account, 'balance') == 2, 'a deposit is lost')
             end
             function test_deposits_pass() end",
        )],
    );
    let (_, errors, code) = folder.run("test --seeds 3 .", "");
    assert_eq!((&*errors, code), ("procession: --seeds needs --sim: see test --help\n", 2));
    let (said, errors, code) =
        folder.run("test --sim --seeds 20 --allow-env=HOME deposits_test.lua", "");
    if cfg!(not(feature = "sim")) {
        let wanted =
            "procession: this command was built without the feature sim, which --sim needs\n";
        assert_eq!((&*errors, code), (wanted, 1));
        return;
    }
    assert_eq!((&*errors, code), ("procession: 1 of 2 tests failed\n", 1), "{said}");
    assert!(said.contains("test_deposits_pass ... ok\n"), "{said}");
    assert!(said.contains("a deposit is lost"), "{said}");
    let replay = said.lines().find_map(|line| line.strip_prefix("replay:  PROCESSION_SIM="));
    let (tape, command) = replay.and_then(|line| line.split_once(' ')).expect("there is a line");
    let arguments = command.strip_prefix("procession ").expect("it is this command");
    let mut again = procession(arguments);
    let again = again.current_dir(&folder.0).env("PROCESSION_SIM", tape).output();
    let again = again.expect("it can be started");
    let said = String::from_utf8(again.stdout).expect("it is text");
    assert!(said.contains("the replay failed: runtime error: deposits_test.lua:17"), "{said}");
    assert!(said.contains("a deposit is lost") && !said.contains("test_deposits_pass"), "{said}");
}
