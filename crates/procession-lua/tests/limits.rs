//! The limits that a process gives to those below it, and those that all processes have.
#![cfg(not(procession_loom))]

use std::time::Duration;

use procession::{Scheduler, SpawnOptions};
use procession_lua::{Permissions, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program, and returns the text that it returns.
fn run(source: &str, permissions: Permissions) -> String {
    let program = Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {source}"));
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let options = SpawnOptions::new().on(&scheduler);
    let main = program.permissions(permissions).spawn_with(options, "main", []);
    let main = main.expect("the program has main");
    match main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end")) {
        Ok(Value::String(bytes)) => String::from_utf8(bytes.to_vec()).expect("it is text"),
        other => panic!("the program must return a text, but: {other:?}: {source}"),
    }
}

/// Each process begins limits inside of those of the one before.
#[test]
fn limits_are_nested_up_to_a_bound_and_an_empty_table_is_none() {
    let chain = |limits: &str, count: u32| {
        let source = format!(
            "function deeper(main, left)
               if left == 0 then return process.send(main, 'done') end
               local ok, cause = pcall(process.spawn, {{ 'deeper', limits = {{ {limits} }} }}, main, left - 1)
               if not ok then process.send(main, left .. ': ' .. cause) end
             end
             function main()
               deeper(process.self(), {count})
               return process.receive(20000)
             end"
        );
        run(&source, Permissions::none())
    };
    assert_eq!(chain("", 100), "done");
    assert_eq!(chain("timers = 1", 32), "done");
    let refused = chain("timers = 1", 34);
    let cause =
        "`limits` may be inside of one another 32 times: so many already count this process";
    assert!(refused.starts_with("2: ") && refused.contains(cause), "{refused}");
}
