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

/// Timers fire after their process has ended, so they count until then, whoever has set them.
#[test]
fn timers_of_processes_that_have_ended_still_count() {
    let fill = |entry: &str, count: u32, bytes: u32| {
        format!(
            "function fill(to)
               local text = ('x'):rep({bytes})
               local ok, cause = pcall(function()
                 for _ = 1, {count} do process.send_after(1e15, to, text) end
               end)
               process.send(to, ok and 'filled' or cause)
             end
             -- Starts processes until one finds no room.
             function rounds(main)
               for round = 1, 12 do
                 -- The one before may not have ended.
                 while not pcall(process.spawn, 'fill', process.self()) do process.yield() end
                 local found = process.receive()
                 if found ~= 'filled' then return process.send(main, round .. ': ' .. found) end
               end
               process.send(main, 'never')
             end
             function main()
               process.spawn({entry}, process.self())
               local found = process.receive()
               return found .. '; ' .. tostring(pcall(process.send_after, 1e15, process.self(), 1))
             end"
        )
    };
    let program = |source: &str| {
        let scheduler =
            Scheduler::builder().worker_threads(2).build().expect("the system has threads");
        let program = Program::load("test", source).expect("it is Lua");
        let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
        let main = main.expect("it has main").join_timeout(TIMEOUT).expect("it ends");
        // The timers of the host are served beside them.
        let sleeps = SpawnOptions::new().on(&scheduler).spawn(async {
            procession::sleep(Duration::from_millis(1)).await;
        });
        sleeps.join_timeout(TIMEOUT).expect("it ends").expect("it does not fail");
        let Ok(Value::String(text)) = main else { panic!("it must return a text: {main:?}") };
        String::from_utf8_lossy(&text).into_owned()
    };
    let limited = program(&fill("{ 'rounds', limits = { processes = 2 } }", 1 << 16, 1));
    let cause = "`rounds` and all processes below it may have 67108864 bytes of messages for later";
    assert!(limited.starts_with("2: ") && limited.contains(cause), "{limited}");
    assert!(limited.ends_with("; true"), "others have room: {limited}");
    let all = program(&fill("'rounds'", 31, 1 << 20));
    let cause =
        "all processes of the program together may have 268435456 bytes of messages for later";
    assert!(all.starts_with("9: ") && all.contains(cause), "{all}");
}
