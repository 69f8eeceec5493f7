//! Tests of the output of guests with readers that are slow, never read, or go away.
//!
//! Method: the sink is a pipe, and the test controls its reader.

use std::io::{self, BufRead, BufReader, ErrorKind, PipeReader, Read, Write, pipe};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use procession::{Child, Exit, Scheduler, SpawnOptions};
use procession_lua::{Deployment, Message, Output, Program, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More lines than a pipe and the buffers of an output hold.
const LINES: usize = 300;

const PRINTERS: &str = "
    local rest = string.rep('x', 1000)
    function noisy(name, count) for i = 1, count do print(name, i, rest) end end
    function echo() while true do process.send(process.receive(), 'echo') end end
    function ticker(count)
      local echo = process.spawn('echo')
      for i = 1, count do
        process.send(echo, process.self())
        assert(process.receive() == 'echo')
      end
      process.exit(echo)
      return count
    end";

/// Creates a scheduler with one worker and no other thread. A step that blocked would stop
/// everything.
fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(1).max_threads(1).build().expect("the system has threads")
}

/// Creates an output that has no reader yet, and returns it with the end to read from.
fn unread() -> (Output, PipeReader) {
    let (reader, writer) = pipe().expect("the system has pipes");
    (Output::new(writer), reader)
}

fn program(source: &str, output: &Output) -> Program {
    Program::load("test", source)
        .expect("the source is valid Lua")
        .output(output.clone(), output.clone())
}

fn spawn(
    scheduler: &Scheduler,
    program: &Program,
    function: &str,
    arguments: impl IntoIterator<Item = Value>,
) -> Child<Message, Value> {
    program
        .spawn_with(SpawnOptions::new().on(scheduler), function, arguments)
        .expect("the program has this function")
}

fn join(child: Child<Message, Value>) -> Result<Value, Exit> {
    child.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the process must end"))
}

/// Waits until `count` guests are suspended.
fn wait_for_suspended(output: &Output, count: usize) {
    while !format!("{output:?}").contains(&format!("suspended: {count},")) {
        std::thread::yield_now();
    }
}

/// Reads until every clone of the output is dropped.
fn read_all(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("the output is UTF-8");
    text
}

/// Returns the numbers of the lines that begin with `name`, in their order.
fn numbers(text: &str, name: &str) -> Vec<usize> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    lines
        .map(|line| {
            line.split('\t').next().and_then(|number| number.parse().ok()).expect("a number")
        })
        .collect()
}

#[test]
fn a_reader_that_does_not_read_suspends_only_the_printers() {
    const PRINTER_COUNT: usize = 20;
    let ((output, reader), scheduler) = (unread(), scheduler());
    let program = program(PRINTERS, &output);
    let names: Vec<String> = (0..PRINTER_COUNT).map(|n| format!("printer {n}")).collect();
    let printer = |name: &String| {
        spawn(&scheduler, &program, "noisy", [Value::string(name), (LINES as i64).into()])
    };
    let printers: Vec<_> = names.iter().map(printer).collect();
    wait_for_suspended(&output, PRINTER_COUNT);
    assert_eq!(join(spawn(&scheduler, &program, "ticker", [1000.into()])), Ok(1000.into()));
    wait_for_suspended(&output, PRINTER_COUNT);

    let text = std::thread::scope(|scope| {
        let text = scope.spawn(|| read_all(reader));
        printers.into_iter().for_each(|printer| assert_eq!(join(printer), Ok(Value::Nil)));
        drop((program, output));
        text.join().expect("the reader reads to the end")
    });
    for name in &names {
        assert!(numbers(&text, name).into_iter().eq(1..=LINES), "of {name}");
    }
    assert_eq!(text.lines().count(), PRINTER_COUNT * LINES);
    assert!(text.lines().all(|line| line.ends_with(&"x".repeat(1000))), "lines are in one piece");
}

#[test]
fn a_killed_printer_loses_the_line_that_it_waits_with() {
    let ((output, reader), scheduler) = (unread(), scheduler());
    let program = program(PRINTERS, &output);
    let printer =
        |name: &str| spawn(&scheduler, &program, "noisy", [name.into(), (LINES as i64).into()]);
    let (killed, cancelled, other) = (printer("killed"), printer("cancelled"), printer("other"));
    wait_for_suspended(&output, 3);
    procession::process::kill(killed.pid());
    assert_eq!(join(killed), Err(Exit::Killed));
    wait_for_suspended(&output, 2);
    // The process has begun to print, so a cancel does not end the wait.
    cancelled.cancel();
    assert_eq!(join(spawn(&scheduler, &program, "ticker", [100.into()])), Ok(100.into()));
    wait_for_suspended(&output, 2);

    let text = std::thread::scope(|scope| {
        let text = scope.spawn(|| read_all(reader));
        for printer in [cancelled, other] {
            assert_eq!(join(printer), Ok(Value::Nil));
        }
        drop((program, output));
        text.join().expect("the reader reads to the end")
    });
    let killed = numbers(&text, "killed");
    assert!(
        !killed.is_empty() && killed.len() < LINES && killed.iter().copied().eq(1..=killed.len()),
        "{killed:?}"
    );
    for name in ["cancelled", "other"] {
        assert!(numbers(&text, name).into_iter().eq(1..=LINES), "of {name}");
    }
}

#[test]
fn a_shutdown_keeps_its_deadline_beside_a_reader_that_never_reads() {
    let ((output, _reader), scheduler) = (unread(), scheduler());
    let program = program(PRINTERS, &output);
    let printers = [1, 2, 3]
        .map(|name| spawn(&scheduler, &program, "noisy", [name.into(), (LINES as i64).into()]));
    wait_for_suspended(&output, 3);
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(2)));
    // On a busy machine, the last 100 ms may not suffice to end all processes.
    let count = unfinished.terminated.len() + unfinished.processes.len();
    assert_eq!(count, 3, "{unfinished:?}");
    assert!(scheduler.block_on(scheduler.shutdown(TIMEOUT)).is_empty());
    printers.into_iter().for_each(|printer| assert_eq!(join(printer), Err(Exit::Killed)));
    let error = output.flush(Duration::ZERO).expect_err("the output has no reader");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_reader_that_has_gone_suspends_no_process() {
    let ((output, reader), scheduler) = (unread(), scheduler());
    let program = program(PRINTERS, &output);
    let printer = spawn(&scheduler, &program, "noisy", ["printer".into(), (LINES as i64).into()]);
    wait_for_suspended(&output, 1);
    drop(reader);
    assert_eq!(join(printer), Ok(Value::Nil));
    let error = output.flush(TIMEOUT).expect_err("the output has no reader");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(output.flush(TIMEOUT).is_ok(), "an error is returned once");
    scheduler.block_on(output.failed());
}

/// A sink that waits for a permit before each write, until the permits are dropped.
struct Gate {
    entered: mpsc::Sender<()>,
    permits: mpsc::Receiver<()>,
    taken: mpsc::Sender<Vec<u8>>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Ignored: the test receives only the first of these, and only the writes that it needs.
        let _ = self.entered.send(());
        let _ = self.permits.recv();
        let _ = self.taken.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a full output. Returns it with the sender of permits and the receiver of the bytes that
/// the sink takes.
fn full() -> (Output, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
    let ((entered, enters), (permit, permits), (taken, takes)) =
        (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let output = Output::new(Gate { entered, permits, taken });
    assert!(output.try_write(b"-\n"));
    enters.recv().expect("the writer has taken the line");
    while output.try_write(b"--------------------------------\n") {}
    (output, permit, takes)
}

/// Returns the lines that the sink takes until the output ends, without the lines of [`full`].
fn lines(takes: &mpsc::Receiver<Vec<u8>>) -> Vec<String> {
    let text = String::from_utf8(takes.iter().flatten().collect()).expect("the output is UTF-8");
    text.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect()
}

#[test]
fn code_that_cannot_be_suspended_still_prints() {
    let ((output, permit, takes), scheduler) = (full(), scheduler());
    let source = "
        print('first')
        function main()
          -- A metamethod that a function in C calls cannot be suspended.
          local function in_c(f) tostring(setmetatable({}, { __tostring = function() f() return '' end })) end
          in_c(function()
            print('in C')
            coroutine.wrap(function() print('inside') end)()
          end)
          print('returned')
          local large, ok, cause = string.rep('y', 1 << 20), true, nil
          in_c(function() while ok do ok, cause = pcall(print, large) end end)
          return cause
        end";
    let program = program(source, &output);
    let child = spawn(&scheduler, &program, "main", []);
    wait_for_suspended(&output, 1);
    // The second write takes the buffer, which makes room for the line of the suspended process.
    permit.send(()).expect("the writer waits for a permit");
    let Ok(Value::String(cause)) = join(child) else { panic!("the process must return the cause") };
    let cause = String::from_utf8_lossy(&cause).into_owned();
    assert!(
        cause.contains("the reader of the output is too slow, and the process cannot wait here"),
        "{cause}"
    );
    drop((program, output, permit));
    let printed = lines(&takes);
    let [first, in_c @ .., returned, large] = &printed[..] else {
        panic!("too few lines: {printed:?}")
    };
    assert_eq!((&**first, &**returned, large.len()), ("first", "returned", 1 << 20));
    assert!(!in_c.is_empty() && in_c.chunks(2).all(|pair| pair == ["in C", "inside"]), "{in_c:?}");
}

#[test]
fn a_process_that_fails_waits_with_its_report_and_ends_as_it_would() {
    let ((output, permit, takes), scheduler) = (full(), scheduler());
    let source = format!("{PRINTERS} function fails() error('broken') end");
    let program = program(&source, &output).report_failures();
    let fails = spawn(&scheduler, &program, "fails", []);
    let pid = fails.pid();
    wait_for_suspended(&output, 1);
    assert_eq!(join(spawn(&scheduler, &program, "ticker", [100.into()])), Ok(100.into()));
    wait_for_suspended(&output, 1);
    drop(permit);
    assert!(matches!(join(fails), Err(Exit::Failed(text)) if text.contains("broken")));
    drop((program, output));
    let printed = lines(&takes);
    assert!(
        printed[0].starts_with(&format!("{pid} fails failed: ")) && printed[0].contains("broken"),
        "{printed:?}"
    );
}

#[test]
fn the_test_clock_waits_for_an_output() {
    let (output, reader) = unread();
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .build()
        .expect("the test clock needs no threads");
    let source = format!(
        "{PRINTERS}
        function prints(parent) noisy('printer', {LINES}) process.send(parent, 'printed') end
        function main()
          process.spawn('prints', process.self())
          return process.receive(3600000)
        end"
    );
    let program = program(&source, &output);
    let main = spawn(&scheduler, &program, "main", []);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            wait_for_suspended(&output, 1);
            BufReader::new(reader).lines().take(LINES).count()
        });
        assert_eq!(scheduler.block_on(main), Ok("printed".into()));
        assert_eq!(read.join().expect("the reader reads"), LINES);
    });
}

#[test]
fn a_sink_that_panics_is_an_error_and_no_more() {
    struct Panics;

    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::panic::resume_unwind(Box::new("no output"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let (output, scheduler) = (Output::new(Panics), scheduler());
    let program = program(PRINTERS, &output);
    let printer = spawn(&scheduler, &program, "noisy", ["printer".into(), (LINES as i64).into()]);
    assert_eq!(join(printer), Ok(Value::Nil));
    assert_eq!(
        output.flush(TIMEOUT).expect_err("the sink panics").to_string(),
        "the sink panicked"
    );
}

/// Set for the child process of the test below.
const CHILD: &str = "PROCESSION_LUA_OUTPUT_CHILD";

#[test]
fn a_host_that_exits_after_a_process_loses_nothing_of_it() {
    /// Together with the pipe, the buffer of the output holds as many, and the pipe alone does not.
    const LINES: usize = 100;
    if let Some(how) = std::env::var_os(CHILD) {
        let source = format!(
            "{PRINTERS}
             function main(count) noisy('printer', count) process.receive() end
             function upgrade() end
             function resume_main() process.receive() end"
        );
        let load = |source| Program::load("test", source).expect("the source is valid Lua");
        let deployment = Deployment::new(load(source.clone()));
        let scheduler = scheduler();
        let printer = spawn(&scheduler, &deployment.program(), "main", [(LINES as i64).into()]);
        if how == "upgraded" {
            // A process that begins later is upgraded as well, and is not counted.
            while deployment.version_of(printer.pid()).is_none() {
                std::thread::yield_now();
            }
            let new = load(format!("{source} -- new"));
            let replaced = scheduler.block_on(deployment.replace(new)).expect("it is valid");
            assert_eq!(replaced.upgraded, 1);
        }
        printer.send(Value::Nil.into()).expect("it waits");
        assert_eq!(join(printer), Ok(Value::Nil));
        std::process::exit(0);
    }
    let this = std::env::current_exe().expect("the path of the test is known");
    let test = "a_host_that_exits_after_a_process_loses_nothing_of_it";
    for how in ["as it began", "upgraded"] {
        let mut child = Command::new(&this);
        child.args([test, "--exact", "--nocapture"]).env(CHILD, how);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the child starts");
        // If it exits, its standard error is closed.
        let exits = child.stderr.as_ref().expect("it has a pipe");
        let mut exits = [PollFd::new(exits, PollFlags::empty())];
        let limit = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        assert_eq!(poll(&mut exits, Some(&limit)), Ok(0), "{how}: it waits for its reader");
        let mut text = String::new();
        let reader = child.stdout.as_mut().expect("it has a pipe");
        reader.read_to_string(&mut text).expect("the output is UTF-8");
        assert!(child.wait().expect("it runs").success(), "{how}");
        assert!(numbers(&text, "printer").into_iter().eq(1..=LINES), "{how}: {text}");
    }
}
