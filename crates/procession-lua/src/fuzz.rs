//! Random programs: whatever they do, their host and its processes live, and all of their own
//! processes can be ended.
//!
//! A program is made of statements that loop, nest functions in one another, and call the functions
//! of Lua and of the library with values that are unusual. Each seed makes one program.
//! `FUZZ_SECONDS` sets the time (3 by default), and `FUZZ_FIRST` the first seed.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use procession::supervisor::{ChildSpec, Supervisor};
use procession::time::Instant;
use procession::{Context, Pid, Scheduler, SpawnOptions};

use crate::account;
use crate::message::Message;
use crate::output::Output;
use crate::permissions::Permissions;
use crate::program::Program;
use crate::reference::{LUA, signatures};

const SECONDS: u64 = 3;
/// The time that a program runs before it is ended.
const RUNS_FOR: Duration = Duration::from_millis(30);
/// Longer than the end of any process takes.
const TIMEOUT: Duration = Duration::from_secs(30);
const MEMORY_BYTES: usize = 2 << 20;
const PROCESSES_MAX: u32 = 64;
/// The depth of statements in statements, and their number in one body.
const DEPTH_MAX: usize = 4;
const STATEMENTS_MAX: usize = 5;

const VALUES: &[&str] = &[
    "nil",
    "true",
    "0",
    "-1",
    "1 << 62",
    "0/0",
    "1e308",
    "''",
    "'a'",
    "'main'",
    "'f'",
    "('ab'):rep(1000)",
    "('x'):rep(1 << 18)",
    "'%'",
    "'a-b?(c*)%1'",
    "'^(.-)(.-)(.-)$'",
    "('a?'):rep(30)",
    "{}",
    "{ 3, 1, 2 }",
    "'while true do end'",
    "'/dev/zero'",
    "'/'",
    "'127.0.0.1:0'",
    "'[1,{\"a\":null}]'",
    "('[1,'):rep(1000)",
    "process.self()",
    "'host'",
    "'tree'",
    "process.whereis('host')",
    "process.whereis('tree')",
    "process.whereis('child')",
    "print",
    "coroutine.create(f)",
    "coroutine.running()",
    "shared",
    "shared.x",
    "setmetatable({}, { __index = function(t, k) return k end, __len = function() return 1 << 40 end })",
    "setmetatable({}, { __index = shared, __newindex = shared, __tostring = f, __lt = f, __eq = f, __concat = f })",
    "function(...) return ... end",
    "function() error({}) end",
    "f",
    "{ from = process.self(), tag = 1 }",
    "{ from = process.whereis('host'), tag = 1 }",
    "3",
    "100",
];

const FRAMES: &[(&str, &str)] = &[
    ("pcall(function() ", " end)"),
    ("for i = 1, 1000 do ", " end"),
    ("while true do ", " end"),
    ("for k, v in pairs(_G) do ", " end"),
    ("xpcall(error, function() ", " end)"),
    ("pcall(coroutine.wrap(function() ", " end))"),
    ("table.sort({ 3, 1, 2 }, function(a, b) ", " return a < b end)"),
    ("string.gsub('abc', '.', function() ", " end)"),
    ("load(function() ", " end)"),
    ("tostring(setmetatable({}, { __tostring = function() ", " return '' end }))"),
    ("do local x <close> = setmetatable({}, { __close = function() ", " end }) end"),
    ("local function g(...) ", " end pcall(g) process.spawn('f')"),
];

/// A generator of random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Returns the functions that programs may call.
fn functions() -> Vec<String> {
    let lua = LUA.iter().flat_map(|(table, fields)| {
        let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
        fields.split(' ').map(move |field| format!("{prefix}{field}"))
    });
    // Methods have a colon.
    let library = signatures().map(|signature| signature.name.to_owned());
    lua.chain(library.filter(|name| !name.contains(':'))).collect()
}

fn program(dice: &mut Dice, functions: &[String]) -> String {
    let mut source = "shared = {} ".to_owned();
    for name in ["f", "g", "main"] {
        write!(source, "function {name}(...) ").expect("a string has room");
        body(dice, functions, 0, &mut source);
        source += "end\n";
    }
    source
}

fn body(dice: &mut Dice, functions: &[String], depth: usize, source: &mut String) {
    for _ in 0..1 + dice.below(STATEMENTS_MAX) {
        if depth < DEPTH_MAX && dice.below(3) == 0 {
            let (open, close) = dice.pick(FRAMES);
            *source += open;
            body(dice, functions, depth + 1, source);
            *source += close;
        } else {
            let function = &functions[dice.below(functions.len())];
            let count = dice.below(4);
            let arguments: Vec<&str> = (0..count).map(|_| dice.pick(VALUES)).collect();
            let arguments = arguments.join(", ");
            let is_caught = dice.below(4) > 0;
            let (open, between) = if is_caught { ("pcall(", ", ") } else { ("", "(") };
            let between = if is_caught && count == 0 { "" } else { between };
            write!(source, "shared.x = {open}{function}{between}{arguments})")
                .expect("a string has room");
        }
        *source += "\n";
    }
}

/// Starts a process and a supervisor of the host, and returns them with the child of that.
fn host(scheduler: &Scheduler) -> [Pid; 3] {
    let waits = |mut cx: Context<Message>| async move { while cx.recv().await.is_some() {} };
    let host = scheduler.start(waits).detach().pid();
    let tree = Supervisor::one_for_one().child(ChildSpec::new("child", waits).name("child"));
    let tree = scheduler.block_on(tree.try_start()).expect("the child starts").pid();
    for (name, pid) in [("host", host), ("tree", tree)] {
        scheduler.register(name, pid).expect("the name is free");
    }
    [host, tree, scheduler.whereis("child").expect("the child has it")]
}

/// Everything but writes of files, and ends of processes of others.
fn permissions() -> Permissions {
    Permissions::none().connect().listen().read().env()
}

/// Runs a program, and ends all of its processes.
fn run(source: &str, seed: u64) {
    let program = match Program::load("fuzz", source) {
        Ok(program) => program.memory_limit(MEMORY_BYTES).permissions(permissions()),
        Err(error) => panic!("seed {seed}: {error}\n{source}"),
    };
    let (out, err) = (Output::new(io::sink()), Output::new(io::sink()));
    let program = program.output(out, err);
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .max_processes(PROCESSES_MAX)
        .seed(seed)
        .on_exit(|_| {})
        .build()
        .expect("the system has threads");
    let host = host(&scheduler);
    if let Ok(main) = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []) {
        // Most programs do not end by themselves.
        drop(main.join_timeout(RUNS_FOR));
    }
    let has_ended: Vec<&Pid> =
        host.iter().filter(|pid| scheduler.detail(**pid).is_none()).collect();
    assert!(has_ended.is_empty(), "seed {seed}: {has_ended:?} of the host ended:\n{source}");
    let unfinished = scheduler.block_on(async {
        // Processes that a cancel does not end are terminated.
        drop(scheduler.shutdown(Duration::from_millis(5)).await);
        scheduler.shutdown(TIMEOUT).await
    });
    let snapshot = scheduler.snapshot();
    assert!(unfinished.is_empty(), "seed {seed}: {unfinished:?} did not end:\n{source}");
    assert_eq!(snapshot.spawned, snapshot.ended, "seed {seed}");
    assert_eq!(snapshot.panicked, 0, "seed {seed}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
}

#[test]
fn no_program_harms_its_host() {
    let functions = functions();
    let (first, seconds) = (number("FUZZ_FIRST", 0), number("FUZZ_SECONDS", SECONDS));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = first;
    while Instant::now() < end {
        run(&program(&mut Dice(seed), &functions), seed);
        assert_eq!(account::count(), 0, "seed {seed}: the accounts of ended processes are removed");
        seed += 1;
    }
    let count = seed - first;
    assert!(count > 5 * seconds, "only {count} programs ran in {seconds} s");
}
