//! Programs in Lua that would harm their host, each in a separate process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::procession;

fn written(name: impl AsRef<Path>, source: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, source).expect("the folder is there");
    path
}

/// Runs a program. Returns what it printed, what it reported, and its exit code, which is `None` if
/// a signal ended it.
fn run(name: &str, source: &str) -> (String, String, Option<i32>) {
    output_of(procession("run").arg(written(name, source)))
}

fn output_of(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.output().expect("the command can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// The search for the function of a process may call `__index` of the program, still on the stack
/// of the spawner.
#[test]
fn a_spawn_during_the_search_for_a_function_is_refused() {
    for (looked_up, wanted) in [("_G", "nothing"), ("part", "part.nothing")] {
        let source = format!(
            "part = {{}}
             setmetatable({looked_up}, {{ __index = function() process.spawn('{wanted}') end }})
             function main() print(pcall(process.spawn, '{wanted}')) end"
        );
        let (out, err, code) = run("search.lua", &source);
        assert_eq!((err.as_str(), code), ("", Some(0)), "{wanted}");
        assert!(out.starts_with("false\t"), "{wanted}: {out}");
        assert!(out.contains("the process has not started yet"), "{wanted}: {out}");
    }
}

/// Bodies of functions that never end by themselves, with an empty line between two. They keep Lua
/// and the library in loops of C, in functions that C calls, and in work on megabytes. The example
/// `endless` of `procession-lua` measures how long their ends take.
const ENDLESS_BODIES: &str = include_str!("../../../procession-lua/examples/endless.txt");

/// Goal: a process can be ended wherever it computes. Method: each is killed once it computes.
#[test]
fn an_endless_process_ends_wherever_it_computes() {
    for body in ENDLESS_BODIES.split("\n\n") {
        let ready = if body.contains("ready()") { "" } else { "ready()" };
        let source = format!(
            "function nothing() end
             function endless(main)
               local many = ('ab'):rep(1 << 20)
               local function ready() process.send(main, 'begins') end
               {ready}
               {body}
             end
             function main()
               local pid = process.spawn('endless', process.self())
               process.monitor(pid)
               assert(process.receive() == 'begins')
               time.sleep(20)
               process.exit(pid, 'kill')
               print(process.receive().reason)
             end"
        );
        let (out, err, code) = run_limited("endless_process.lua", &source);
        assert_eq!(code, Some(0), "{body}: {err}");
        assert!(out.contains("terminated"), "{body}: {out}");
    }
}

/// Each of these processes exceeds a limit, and fails by that alone.
#[test]
fn a_process_that_exceeds_a_limit_fails_alone() {
    let memory = "not enough memory";
    for (body, cause) in [
        ("local t = {} while true do t[#t + 1] = ('x'):rep(1 << 20) .. #t end", memory),
        ("local t = {} for i = 1, 1 << 30 do t[i] = string.format('%099d', i) end", memory),
        ("local t = {} for i = 1, 1 << 21 do t[i] = 'twenty bytes of text' end table.concat(t)", memory),
        ("local s = 'x' while true do s = s .. s end", memory),
        ("pcall(string.rep, 'x', 1 << 40) string.rep('x', 1 << 30)", memory),
        ("local t = {} while true do t = { t, coroutine.create(print) } end", memory),
        ("local function deep() return 1 + deep() end deep()", memory),
        ("assert(fs.read('/dev/zero'))", "has more than"),
        ("assert(fs.read('/dev/zero', 0, 1 << 40))", "has more than"),
        (
            "local me, text = process.self(), ('x'):rep(1 << 20)
             while true do assert(process.send(me, text)) end",
            "the mailbox of the process is full",
        ),
        (
            "local other, text = process.spawn('waits'), ('x'):rep(1 << 20)
             while true do assert(process.send(other, text)) end",
            "the mailbox of the process is full",
        ),
        (
            "table.sort({ 1, 2 }, setmetatable({}, { __call = function() end }))",
            "function expected",
        ),
        (
            "tostring(setmetatable({}, { __tostring = function() while true do end end }))",
            "where it cannot be suspended",
        ),
        (
            "local function computes() while true do end end
             local t = setmetatable({}, { __tostring = function() while true do pcall(computes) end end })
             while true do pcall(tostring, t) end",
            "where it cannot be suspended",
        ),
    ] {
        let source = format!(
            "function waits() time.sleep(1e9) end
             function fails() process.receive() {body} end
             function main()
               local pid = process.spawn('fails')
               process.monitor(pid)
               process.send(pid, 'go')
               print(process.receive().reason)
             end"
        );
        let (out, err, code) = run_limited("fails_alone.lua", &source);
        assert_eq!(code, Some(0), "{body}: {err}");
        assert!(out.contains(cause), "{body}: {out}");
    }
}

/// Runs a program with at most 2 GiB of address space.
fn run_limited(name: &str, source: &str) -> (String, String, Option<i32>) {
    run_limited_with(name, source, "--allow-read=/dev/zero")
}

fn run_limited_with(name: &str, source: &str, option: &str) -> (String, String, Option<i32>) {
    let mut command = Command::new("sh");
    let run = procession("run");
    command.args(["-c", "ulimit -v 2097152; exec \"$0\" \"$@\""]).arg(run.get_program());
    output_of(command.args(run.get_args()).arg(option).arg(written(name, source)))
}

/// What a process does to others, and to the host through them.
#[test]
fn the_other_processes_and_the_host_go_on() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wall_pipe");
    if !path.exists() {
        assert!(Command::new("mkfifo").arg(&path).status().expect("the system has it").success());
    }
    let pipe = format!(
        "function reads(main) process.send(main, 'begins') fs.read({path:?}) end
         function main()
           local pid = process.spawn('reads', process.self())
           process.receive()
           process.monitor(pid)
           process.exit(pid, 'kill')
           assert(process.receive().down == pid)
           print('held')
         end"
    );
    for source in [
        // Each process would start the next one while its program is loaded.
        "local ok = pcall(process.spawn, 'main') function main() print(not ok and 'held') end",
        // The receiver has used up its memory.
        "function holder(main)
           local held = {}
           pcall(function() for i = 1, 1 << 20 do held[i] = ('x'):rep(1 << 16) .. i end end)
           process.send(main, 'full')
           local message, why = process.receive()
           held = nil
           process.send(main, message and #message or why)
         end
         function main()
           local pid = process.spawn({ 'holder', limits = { memory = 4 << 20 } }, process.self())
           assert(process.receive() == 'full' and process.send(pid, ('y'):rep(1 << 20)))
           assert(process.receive() == 1 << 20)
           print('held')
         end",
        // Many processes flood a process that does not receive.
        "function flood(to, main)
           local text = ('x'):rep(1 << 16)
           repeat local sent = process.send(to, text) until not sent
           process.send(main, 'told')
         end
         function waits() time.sleep(1e9) end
         function main()
           local to = process.spawn('waits')
           for _ = 1, 20 do process.spawn('flood', to, process.self()) end
           for _ = 1, 20 do assert(process.receive() == 'told') end
           assert(process.info(to).state)
           print('held')
         end",
        // Messages for later, monitors, timers and the ends of processes take memory of the host.
        "function brief() end
         function main()
           local text = ('x'):rep(1 << 20)
           local ok = true
           while ok do ok = pcall(process.send_after, 1e9, process.self(), text) end
           local pid, count = process.spawn('brief'), 0
           while pcall(process.monitor, pid) do count = count + 1 end
           assert(count > 100 and count <= 65536, count)
           print('held')
         end",
        // Answers and reports of others.
        "function bank(main)
           local _, call = process.receive()
           process.send(main, 'asked')
           process.receive()
           process.reply(call, 'true answer')
         end
         function client(main, bank) process.send(main, process.call(bank, 'how much')) end
         function main()
           local bank = process.spawn('bank', process.self())
           local client = process.spawn('client', process.self(), bank)
           assert(process.receive() == 'asked')
           for tag = 0, 100 do process.reply({ from = client, tag = tag }, 'forged') end
           process.send(client, { down = bank, reason = 'forged' })
           process.send(bank, 'go on')
           assert(process.receive() == 'true answer')
           print('held')
         end",
        // Texts that control a terminal, in a name and a failure.
        "_G['\\27[2J'] = function() error('\\27[2J') end
         function main()
           process.monitor(process.spawn('\\27[2J'))
           process.receive()
           print('held')
         end",
        // Supervisors and their children, without an end.
        "function child() supervisor.start { children = { { start = 'child' } } } end
         function main()
           process.spawn({ 'child', limits = { processes = 50, memory = 4 << 20 } })
           time.sleep(200)
           print('held')
         end",
        &pipe,
    ] {
        let (out, err, code) = run_limited_with("others.lua", source, "--allow-read");
        // Children without an end may have to be terminated, which is a failure of their program.
        let is_well = match code {
            Some(1) => err.contains("had to be terminated"),
            code => code == Some(0),
        };
        assert!(out == "held\n" && is_well, "{source}: {code:?}, {out}: {err}");
        assert!(!err.contains('\x1b') && !err.contains("panicked"), "{source}: {err}");
    }
}

#[test]
fn what_is_copied_out_of_a_process_counts_against_its_memory() {
    let texts =
        "local text, many = string.rep('x', 1 << 24), {} for i = 1, 1000 do many[i] = text end";
    for (name, call) in [
        ("send", "process.send(process.self(), many)"),
        ("encode", "json.encode(many)"),
        ("spawn", "process.spawn('main', many)"),
    ] {
        let source = format!("function main() {texts} print(pcall(function() {call} end)) end");
        let (out, err, code) = run_limited("copied.lua", &source);
        assert_eq!((err.as_str(), code), ("", Some(0)), "{name}");
        assert!(out.starts_with("false\t") && out.contains("too large for the memory"), "{out}");
    }
    let source = "function main()
        print(json.decode('[' .. string.rep('1,', 1 << 22) .. '1]'))
        print(#json.decode('[\"' .. string.rep(',', 1 << 21) .. '\"]')[1])
    end";
    let (out, err, code) = run_limited("decoded.lua", source);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert!(out.starts_with("nil\tthe value of this JSON needs "), "{out}");
    assert!(out.ends_with("\n2097152\n"), "{out}");
}

#[test]
fn a_program_may_use_what_an_option_permits() {
    let path = written(
        "permitted.lua",
        "function main()
           local listener, cause = net.listen('127.0.0.1:0')
           print(listener ~= nil, cause)
           print(fs.size('/dev/null'))
           print(fs.size('/dev/zero'))
           print(pcall(os.getenv, 'PERMITTED'))
           if listener then print(net.connect(listener:address()) ~= nil) end
         end",
    );
    let run = |options: &str| {
        let mut command = procession(&format!("run {options}"));
        output_of(command.env("PERMITTED", "seen").arg(&path))
    };
    let refused = "false\tcannot listen at 127.0.0.1:0: it needs --allow-listen\n\
                   nil\tcannot get the size of /dev/null: it needs --allow-read=/dev/null\n\
                   nil\tcannot get the size of /dev/zero: it needs --allow-read=/dev/zero\n\
                   false\tcannot read a variable: it needs --allow-env=PERMITTED\n";
    assert_eq!(run(""), (refused.to_owned(), String::new(), Some(0)));
    let given = "true\tnil\n0\n0\ntrue\tseen\ntrue\n";
    for options in [
        "--allow-all",
        "--allow-listen --allow-read --allow-env --allow-net",
        "--allow-listen --allow-read=/dev --allow-env=PERMITTED --allow-net=127.0.0.1",
        "--allow-listen --allow-read=/dev/null --allow-read=/dev/zero --allow-env=A --allow-env=PERMITTED --allow-net",
    ] {
        assert_eq!(run(options), (given.to_owned(), String::new(), Some(0)), "{options}");
    }
    let none = "nil\tcannot get the size of /dev/zero: it needs --allow-read=/dev/zero\n";
    assert!(run("--allow-read=/dev/null").0.contains(none));
    for (option, cause) in [
        ("--allow-net=:1", "cannot permit connections to \":1\": "),
        ("--allow-read=/no/such/folder", "cannot permit reads below /no/such/folder: "),
        ("--allow-listen=1", "unexpected argument"),
    ] {
        let (out, err, code) = run(option);
        assert!(out.is_empty() && err.contains(cause), "{option}: {err}");
        assert!(matches!(code, Some(1 | 2)), "{option}: {code:?}");
    }
}

#[test]
fn a_program_may_come_from_standard_input() {
    let mut command = procession("run - one");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command can be started");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"function main(word) print(word) error('ends') end").expect("it is read");
    drop(input);
    let output = child.wait_with_output().expect("it is a child");
    let err = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!((&*output.stdout, output.status.code()), (&b"one\n"[..], Some(1)));
    assert!(err.starts_with("procession: main of - failed: runtime error: -:1: ends\n"), "{err}");
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("there is a device that is always full")
}

/// Prints and logs without an end, and ends at a cancel.
const ENDLESS: &str = "function main()
    while not process.cancelled() do print('out') log.info('err') time.sleep(1) end
end";

#[test]
fn a_reader_that_goes_away_ends_an_endless_program() {
    let path = written("endless_pipe.lua", ENDLESS);
    for is_out in [true, false] {
        let (mut reader, writer) = io::pipe().expect("the system gives a pipe");
        let mut command = procession("run");
        command.arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        match is_out {
            true => command.stdout(writer),
            false => command.stderr(writer),
        };
        let mut child = command.spawn().expect("the command can be started");
        drop(command);
        reader.read_exact(&mut [0]).expect("the program prints");
        drop(reader);
        assert_eq!(child.wait().expect("it is a child").code(), Some(0), "{is_out}");
    }
}

#[test]
fn an_output_that_is_full_ends_an_endless_program_and_is_reported() {
    let path = written("endless_full.lua", ENDLESS);
    let output = procession("run").arg(&path).stdout(full()).stderr(Stdio::piped()).spawn();
    let output =
        output.and_then(|child| child.wait_with_output()).expect("the command can be started");
    let report =
        "procession: cannot write to standard output: No space left on device (os error 28)\n";
    let text = String::from_utf8(output.stderr).expect("it is text");
    assert!(text.ends_with(report), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_log_that_is_full_is_a_failure() {
    for source in ["function main() log.info('once') end", ENDLESS] {
        let path = written("full_log.lua", source);
        let mut command = procession("run");
        let status = command.arg(&path).stdout(Stdio::null()).stderr(full()).status();
        assert_eq!(status.expect("the command can be started").code(), Some(1), "{source}");
    }
}

#[test]
fn paths_and_arguments_are_bytes() {
    let path = written(
        OsStr::from_bytes(b"path\xff_test.lua"),
        "function main(word) print(#word, word:byte(1, -1)) end function test_it() end",
    );
    for (command, arguments, expected) in [
        ("run", &[&b"\xfe"[..]][..], "1\t254\n"),
        ("check", &[], ""),
        ("test", &[], "test_it ... ok\n1 passed\n"),
        ("repl", &[], ""),
    ] {
        let mut started = procession(command);
        started.arg(&path).args(arguments.iter().map(|word| OsStr::from_bytes(word)));
        let output = started.stdin(Stdio::null()).output().expect("the command can be started");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
        assert_eq!(output.status.code(), Some(0), "{command}");
        let out = String::from_utf8(output.stdout).expect("names are shown as text");
        assert!(out.ends_with(expected), "{command}: {out}");
    }
}
