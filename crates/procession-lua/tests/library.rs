//! Supervisors, groups, timers, dates, folders and datagrams of guests.
#![cfg(not(procession_loom))]

use std::time::Duration;

use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Permissions, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(2).build().expect("the system has threads")
}

fn run_on(scheduler: &Scheduler, program: &Program) -> Result<Value, Exit> {
    let main = program
        .spawn_with(SpawnOptions::new().on(scheduler), "main", [])
        .expect("the program has main");
    main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"))
}

fn run(source: &str) -> Result<Value, Exit> {
    let program = Program::load("test", source).expect("the source is valid Lua");
    run_on(&scheduler(), &program.permissions(Permissions::all()))
}

#[test]
fn a_supervisor_ends_with_the_process_that_started_it() {
    let source = "
        function worker(name) process.register(name) process.receive() end
        function owner(main)
          local tree = assert(supervisor.start {
            name = 'tree',
            children = {
              { id = 'inner', supervisor = { children = { { start = 'worker', args = { 'w' } } } } },
            },
          })
          process.send(main, tree)
          if process.receive() == 'break' then error('broken') end
        end
        function main()
          for _, order in ipairs { 'break', 'end', 'kill' } do
            local owner = process.spawn('owner', process.self())
            local tree = process.receive()
            process.monitor(tree)
            assert(process.whereis('tree') == tree)
            while not process.whereis('w') do process.yield() end
            if order == 'kill' then process.exit(owner, 'kill') else process.send(owner, order) end
            assert(process.receive().down == tree)
            assert(not process.whereis('w') and not process.info(tree))
          end
        end";
    assert_eq!(run(source), Ok(Value::Nil));
}

#[test]
fn a_supervisor_that_gives_up_ends_the_process_that_is_linked_to_it() {
    let source = "
        function broken() error('at once') end
        function owner()
          supervisor.start { intensity = 2, children = { { start = 'broken' } } }
          process.receive()
        end
        function main()
          process.monitor(process.spawn('owner'))
          return process.receive().reason
        end";
    match run(source) {
        Ok(Value::String(reason)) => assert!(reason.ends_with(b"shut down"), "{reason:?}"),
        other => panic!("the owner must end, but: {other:?}"),
    }
}

#[test]
fn mistakes_in_a_description_name_the_key() {
    let source = "
        function worker() end
        function main()
          local causes = {}
          for _, description in ipairs {
            { stratgy = 'one_for_all' }, { strategy = 'all' }, { children = { { start = 'worker', x = 1 } } },
            { children = { {} } }, { intensity = -1 }, { children = { a = 1 } }, { back_off = { 1 } },
            { children = { { start = 'worker', shutdown = 'later' } } },
          } do
            local none, cause = supervisor.start(description)
            assert(none == nil)
            causes[#causes + 1] = cause
          end
          return table.concat(causes, '; ')
        end";
    let expected = [
        "a supervisor has no `stratgy`",
        "`strategy` must be one of \"one_for_one\", \"one_for_all\", \"rest_for_one\", \"dynamic\"",
        "a child has no `x`",
        "a child has either a `start` or a `supervisor`",
        "`intensity` must be a number of restarts",
        "`children` must be a list",
        "`back_off` must be a list of two times",
        "`shutdown` must be one of \"kill\", \"wait\", or milliseconds",
    ];
    assert_eq!(run(source), Ok(Value::string(expected.join("; "))));
}

#[test]
fn the_process_of_a_child_has_the_permissions_of_its_supervisor_or_fewer() {
    let source = "
        function reads(parent) process.send(parent, select(2, fs.kind('.')) or 'permitted') process.receive() end
        function main()
          local own = process.self()
          supervisor.start { children = {
            { start = 'reads', args = { own } },
            { start = { 'reads', allow = { read = false } }, args = { own } },
          } }
          local found = { process.receive(), process.receive() }
          table.sort(found)
          return table.concat(found, '; ')
        end";
    let refused = "cannot get the kind of .: it needs --allow-read=.; permitted";
    assert_eq!(run(source), Ok(Value::string(refused)));
}

#[test]
fn a_message_for_later_takes_room_in_the_mailbox_from_the_beginning() {
    let source = "
        function main()
          local own, timers = process.self(), {}
          for i = 1, 10 do timers[i] = process.send_after(60000, own, i) end
          local sent, cause = pcall(process.send_after, 60000, own, 11)
          assert(not sent and cause:find('mailbox of the process is full'), cause)
          assert(process.send(own, 'x') == false)
          for i = 1, 9 do assert(process.cancel_timer(timers[i])) end
          assert(process.send(own, 'x') == true and process.receive() == 'x')
          for i = 1, 200 do process.send_after(0, own, i) process.receive() end
          return process.cancel_timer(timers[10])
        end";
    let program = Program::load("test", source).expect("the source is valid Lua").mailbox_limit(10);
    assert_eq!(run_on(&scheduler(), &program), Ok(true.into()));
}

#[test]
fn groups_forget_processes_that_end() {
    let source = "
        function member() group.join('g') process.receive() end
        function main()
          local pids = {}
          for i = 1, 3 do pids[i] = process.spawn('member') end
          while #group.members('g') < 3 do process.yield() end
          assert(group.join('g', pids[1]) == false and group.join('g') == true)
          assert(group.leave('g') == true and group.leave('g') == false)
          process.monitor(pids[2])
          process.exit(pids[2])
          process.receive()
          assert(#group.members('g') == 2)
          local joined, cause = pcall(group.join, 'g', pids[2])
          assert(not joined and cause:find('there is no such process'), cause)
          assert(group.send('g', 'end') == 2 and group.send('none', 'end') == 0)
          assert(not pcall(group.send, 'g', print))
          while #group.members('g') > 0 do process.yield() end
        end";
    assert_eq!(run(source), Ok(Value::Nil));
}

#[test]
fn dates_are_those_of_the_calendar() {
    let source = "
        function main()
          for _, case in ipairs {
            { 0, '1970-01-01 00:00:00 4 001' }, { 951782400, '2000-02-29 00:00:00 2 060' },
            { 4107542400, '2100-03-01 00:00:00 1 060' }, { -1, '1969-12-31 23:59:59 3 365' },
            { -62135596800, '1-01-01 00:00:00 1 001' },
          } do
            local text = os.date('%Y-%m-%d %H:%M:%S %w %j', case[1])
            assert(text == case[2], text)
            assert(os.time(os.date('*t', case[1])) == case[1])
          end
          local date = { year = 2023, month = 14, day = -1, hour = 25 }
          assert(os.date('%F %R', os.time(date)) == '2024-01-31 01:00' and date.month == 1)
          assert(os.date('!%I %p %b %e %D %%', 1709208000) == '12 PM Feb 29 02/29/24 %')
          for _, wrong in ipairs { 'x', 1.5, 1 << 60, 0/0 } do assert(not pcall(os.date, '%F', wrong)) end
          assert(not pcall(os.time, { year = 2024 }) and not pcall(os.date, '%Q'))
          assert(math.abs(os.time() - time.since_epoch() / 1000) < 2)
        end";
    assert_eq!(run(source), Ok(Value::Nil));
}
