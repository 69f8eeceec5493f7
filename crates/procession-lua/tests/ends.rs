//! A guest ends no process of its host or of another program.

use std::time::Duration;

use procession::process::link;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, observe};
use procession_lua::{Deployment, Message, Permissions, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn load(source: &str) -> Program {
    Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {source}"))
}

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(2).build().expect("the system has threads")
}

/// Runs a program, and returns its result.
fn run(scheduler: &Scheduler, program: &Program, given: &[Value]) -> Result<Value, Exit> {
    let options = SpawnOptions::new().on(scheduler);
    let main = program.spawn_with(options, "main", given.to_vec());
    let main = main.expect("the program has main");
    main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"))
}

fn text(result: Result<Value, Exit>) -> String {
    match result {
        Ok(Value::String(bytes)) => String::from_utf8(bytes.to_vec()).expect("it is text"),
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

/// Starts a process of the host that receives until it is ended. It traps exits or not.
fn host(scheduler: &Scheduler, traps: bool) -> Pid {
    let child = scheduler.start(move |mut cx: Context<Message>| async move {
        cx.trap_exits(traps);
        while cx.recv_event().await.is_some() {}
    });
    child.detach().pid()
}

fn is_alive(pid: Pid) -> bool {
    observe::detail(pid).is_some()
}

/// What ends a process, or leads to that, and what a refusal calls it.
const CALLS: &[(&str, &str)] = &[
    ("process.exit(to)", "end"),
    ("process.exit(to, 'normal')", "end"),
    ("process.exit(to, 'kill')", "end"),
    ("process.exit(to, 'broken')", "end"),
    ("process.exit('host', 'kill')", "end"),
    ("process.cancel(to)", "cancel"),
    ("process.link(to) error('so it fails, too')", "link"),
    ("group.join('g', to)", "change the groups of"),
    ("group.leave('g', to)", "change the groups of"),
];

/// A program that does something with a process, and returns the cause of its failure.
fn tries(call: &str) -> Program {
    load(&format!(
        "function waits(traps) process.trap_exits(traps) while true do process.receive() end end
         function main(to)
           local ok, cause = pcall(function() {call} end)
           return tostring(ok or cause)
         end"
    ))
}

fn refusal(act: &str, to: Pid) -> String {
    format!(
        "cannot {act} {to}, a process of the host or of another program: it needs --allow-exits"
    )
}

#[test]
fn no_process_of_the_host_or_of_another_program_is_ended() {
    for traps in [false, true] {
        let scheduler = scheduler();
        let host = host(&scheduler, traps);
        scheduler.register("host", host).expect("the name is free");
        let options = SpawnOptions::new().on(&scheduler);
        let guest = tries("").spawn_with(options, "waits", [traps.into()]);
        let guest = guest.expect("the program has it").detach().pid();
        for to in [host, guest] {
            for (call, act) in CALLS.iter().filter(|(call, _)| to == host || !call.contains("host"))
            {
                let refused = text(run(&scheduler, &tries(call), &[to.into()]));
                assert!(refused.ends_with(&refusal(act, to)), "{call}: {refused}");
            }
            assert!(is_alive(to));
            // These end no process.
            for call in ["process.monitor(to)", "process.unlink(to)", "process.send(to, 1)"] {
                assert_eq!(text(run(&scheduler, &tries(call), &[to.into()])), "true", "{call}");
            }
        }
    }
}

#[test]
fn the_permission_is_for_all_processes_and_can_be_taken_away() {
    for (call, _) in CALLS.iter().filter(|(call, _)| !call.contains("host")) {
        let scheduler = scheduler();
        // It traps exits, so that it is there for the next call.
        let host = host(&scheduler, true);
        let permitted = tries(call).permissions(Permissions::none().exits());
        let result = text(run(&scheduler, &permitted, &[host.into()]));
        assert!(!result.contains("--allow-exits"), "{call}: {result}");
    }
    let scheduler = scheduler();
    let host = host(&scheduler, false);
    let program = load(
        "function ends(main, to) process.send(main, { select(2, pcall(process.exit, to, 'kill')) }) end
         function main(to)
           process.spawn({ 'ends', allow = { exits = false } }, process.self(), to)
           local refused = process.receive()[1]
           process.monitor(to)
           process.spawn({ 'ends', limits = { processes = 1 } }, process.self(), to)
           while not process.receive().down do end
           return refused
         end",
    );
    let program = program.permissions(Permissions::none().exits());
    assert_eq!(text(run(&scheduler, &program, &[host.into()])), refusal("end", host));
}

/// A process may end what belongs to its program, however that was started and named.
#[test]
fn a_program_may_end_its_own_processes() {
    let program = load(
        "function waits() process.receive() end
         -- As soon as the process begins, another one may end it.
         function begins(main) process.send(main, process.self()) process.receive() end
         function ended(pid)
           process.monitor(pid)
           return process.receive().reason
         end
         function main(from_host)
           process.trap_exits()
           local causes = {}
           for _, pid in ipairs { from_host, process.spawn('waits'), process.spawn_link('waits') } do
             assert(process.link(pid) and group.join('all', pid) and group.leave('all', pid))
             process.unlink(pid)
             assert(process.exit(pid))
             ended(pid)
           end
           local pid = process.spawn('waits')
           assert(process.cancel(pid))
           ended(pid)
           -- A process that has ended is none of the host.
           assert(not process.exit(pid) and not process.cancel(pid) and process.link(pid))
           assert(process.receive().exit == pid)
           local tree = assert(supervisor.start { strategy = 'dynamic', children = {
             { id = 'nested', supervisor = { name = 'nested', intensity = 9, children = {
               { id = 'a', start = 'begins', args = { process.self() } },
             } } },
           } })
           local nested, child = process.whereis('nested'), process.receive()
           for _, above in ipairs { tree, nested } do
             assert(process.unlink(above) and process.link(above))
           end
           -- It is started again each time.
           for _ = 1, 2 do
             assert(process.exit(child))
             child = process.receive()
           end
           assert(supervisor.start_child(nested, { id = 'b', start = 'waits' }))
           assert(supervisor.terminate_child(nested, 'b') and supervisor.restart_child(nested, 'b'))
           assert(supervisor.terminate_child(nested, 'b') and supervisor.delete_child(nested, 'b'))
           process.unlink(nested)
           assert(process.exit(nested, 'kill'))
           assert(process.receive() ~= child)
           process.monitor(tree)
           assert(process.cancel(tree))
           while not process.receive().down do end
           return 'all'
         end",
    );
    let scheduler = scheduler();
    let options = SpawnOptions::new().on(&scheduler);
    let other = program.spawn_with(options, "waits", []).expect("the program has it");
    assert_eq!(text(run(&scheduler, &program, &[other.pid().into()])), "all");
}

/// Processes end others while these end anyway. Each is one of the program until it is gone.
#[test]
fn a_process_that_ends_anyway_is_still_one_of_the_program() {
    let program = load(
        "function short() end
         function main()
           for _ = 1, 2000 do
             local pid = process.spawn('short')
             for _ = 1, 20 do process.exit(pid, 'shutdown') end
           end
           return 'ended'
         end",
    );
    assert_eq!(text(run(&scheduler(), &program, &[])), "ended");
}

/// The owner of a process is forgotten some time after its end, which changes nothing.
#[test]
fn a_process_of_another_program_that_has_ended_is_as_one_that_never_was() {
    let scheduler = scheduler();
    let other = load("function short() end");
    let options = SpawnOptions::new().on(&scheduler);
    let child = other.spawn_with(options, "short", []).expect("the program has it");
    let ended = child.pid();
    child.join_timeout(TIMEOUT).expect("it ends in time").expect("it does not fail");
    let tries = || {
        for call in ["process.exit(to) == false", "process.cancel(to) == false"] {
            let program = tries(&format!("assert({call})"));
            assert_eq!(text(run(&scheduler, &program, &[ended.into()])), "true", "{call}");
        }
    };
    tries();
    // So many that the owners of ended processes are removed.
    let many = "function short() end
                function main() for _ = 1, 300 do process.spawn('short') end return 'done' end";
    assert_eq!(text(run(&scheduler, &load(many), &[])), "done");
    tries();
}

/// The children of a supervisor run before the last child has started.
#[test]
fn a_child_uses_its_supervisor_while_that_starts() {
    // With one worker, a child runs before the next one starts.
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    let program = load(
        "function waits() while true do process.receive() end end
         function manager(main, name)
           for number, tree in ipairs { 'tree', name } do
             local ok, cause = pcall(function()
               process.link(tree)
               assert(supervisor.start_child(tree, { id = name .. number, start = 'waits' }))
             end)
             process.send(main, ok or cause)
           end
           waits()
         end
         function main()
           local own, many = process.self(), {}
           for i = 1, 20 do many[i] = { id = 'child ' .. i, start = 'waits' } end
           local function managed(name)
             return {
               { id = 'manager', start = 'manager', args = { own, name } }, table.unpack(many),
             }
           end
           local children = managed('tree')
           table.insert(children, 1, {
             id = 'inner', supervisor = { name = 'inner', children = managed('inner') },
           })
           assert(supervisor.start { name = 'tree', children = children })
           local results = {}
           for i = 1, 4 do results[i] = tostring(process.receive()) end
           return table.concat(results, '; ')
         end",
    );
    assert_eq!(text(run(&scheduler, &program, &[])), "true; true; true; true");
}

#[test]
fn a_process_with_limits_ends_only_what_the_limits_count() {
    let program = load(
        "function waits() while true do process.receive() end end
         function below(main, outside)
           local own = process.spawn('waits')
           process.monitor(own)
           assert(process.exit(own, 'kill') and process.receive().down == own)
           local inner = process.spawn({ 'waits', limits = { timers = 1 } })
           process.monitor(inner)
           assert(process.exit(inner, 'kill') and process.receive().down == inner)
           for _, pid in ipairs { outside, main } do
             local ok, cause = pcall(process.exit, pid, 'kill')
             process.send(main, cause)
           end
           process.receive()
         end
         function main()
           local outside = process.spawn('waits')
           local limits = { processes = 5 }
           local child = process.spawn({ 'below', limits = limits }, process.self(), outside)
           local causes = { process.receive(), process.receive() }
           assert(causes[1] == 'cannot end ' .. tostring(outside) .. ', a process outside of the limits of `below`: it needs --allow-exits')
           assert(causes[2]:find('outside of the limits', 1, true))
           process.monitor(child)
           process.exit(child)
           assert(process.receive().down == child)
           return 'kept'
         end",
    );
    assert_eq!(text(run(&scheduler(), &program, &[])), "kept");
}

#[test]
fn the_children_of_a_supervisor_of_the_host_stay_as_they_are() {
    let scheduler = scheduler();
    let waits =
        ChildSpec::new(
            "waits",
            |mut cx: Context<()>| async move { while cx.recv().await.is_some() {} },
        );
    let tree = scheduler.block_on(Supervisor::one_for_one().child(waits).try_start());
    let tree = tree.expect("the child starts");
    for call in [
        "supervisor.start_child(to, { id = 'new', start = 'waits' })",
        "supervisor.terminate_child(to, 'waits')",
        "supervisor.restart_child(to, 'waits')",
        "supervisor.delete_child(to, 'waits')",
    ] {
        let program = tries(&format!("error(select(2, {call}), 0)"));
        let refused = text(run(&scheduler, &program, &[tree.pid().into()]));
        assert_eq!(refused, refusal("change the children of", tree.pid()), "{call}");
    }
    let child = scheduler.block_on(tree.which()).expect("it lives")[0].status.pid();
    let child = child.expect("it runs");
    let asks = tries("error(supervisor.which(to)[1].pid, 0)");
    let known = text(run(&scheduler, &asks, &[tree.pid().into()]));
    assert_eq!(known, child.to_string());
    let refused = text(run(&scheduler, &tries("process.exit(to)"), &[child.into()]));
    assert!(refused.ends_with(&refusal("end", child)), "{refused}");
}

/// A host that links a guest to one of its processes wants to share its end.
#[test]
fn a_link_that_the_host_makes_holds() {
    let scheduler = scheduler();
    let program = load("function fails() process.receive() error('broken') end");
    let linked = scheduler.start(move |mut cx: Context<Message>| async move {
        let guest = program.spawn("fails", []).expect("the program has it");
        link(guest.pid());
        guest.send(Value::Nil.into()).expect("it waits");
        cx.recv().await.map(drop)
    });
    let exit = linked.join().expect_err("the guest fails");
    assert!(exit.to_string().contains("broken"), "{exit}");
}

#[test]
fn versions_of_a_program_are_one_program() {
    let source = "function waits() while true do process.receive() end end
        function main(to)
          process.monitor(to)
          process.exit(to, 'kill')
          return process.receive().reason
        end";
    let scheduler = scheduler();
    scheduler.block_on(async {
        let deployment = Deployment::new(load(source));
        let old = deployment.program().spawn("waits", []).expect("the program has it");
        let old = old.detach().pid();
        deployment.replace(load(&format!("{source} -- new"))).await.expect("it can be loaded");
        let main = deployment.program().spawn("main", [old.into()]).expect("the program has it");
        assert_eq!(text(main.await), Exit::Killed.to_string());
    });
}

/// As `exit(Pid, kill)` of OTP.
#[test]
fn a_kill_cannot_be_trapped_and_links_can_trap_that_it_was_one() {
    let program = load(
        "function stubborn(main)
           process.trap_exits()
           process.send(main, 'traps')
           while true do process.send(main, process.receive().reason) end
         end
         function main()
           process.trap_exits()
           local pid = process.spawn_link('stubborn', process.self())
           assert(process.receive() == 'traps')
           process.exit(pid, 'please')
           assert(process.receive() == 'the process failed: please')
           process.exit(pid, 'kill')
           local exit, _, reports = process.receive()
           assert(exit.exit == pid and reports == 'exit')
           process.spawn('ends_itself', process.self())
           assert(process.receive() == 'begins')
           return exit.reason
         end
         function ends_itself(main)
           process.trap_exits()
           process.send(main, 'begins')
           process.exit(process.self(), 'kill')
           while true do process.send(main, 'goes on') end
         end",
    );
    assert_eq!(text(run(&scheduler(), &program, &[])), Exit::Killed.to_string());
}

/// A guest sees the numbers of the calls that it receives, and could count on to the calls that
/// others receive.
#[test]
fn a_call_of_the_host_is_answered_only_by_a_process_that_knows_it() {
    let scheduler = scheduler();
    let program = load(
        "function answers(forges)
           local request, call = process.receive()
           local from = request == 'first' and call.from or request
           for tag = 1, 3 do
             assert(not process.reply({ from = from, tag = tag }, 'forged'))
             assert(not process.reply({ from = from, tag = tag, proof = call.proof }, 'forged') or tag == call.tag)
           end
           -- Whoever was sent the call may answer it.
           process.spawn('other', call)
           process.receive()
         end
         function other(call) process.reply(call, 'answered') end",
    );
    let host = scheduler.start(move |mut cx: Context<Message>| async move {
        let guest = program.spawn("answers", []).expect("the program has it").detach();
        let call = Message::Call { from: cx.pid(), tag: 2, value: "first".into() };
        guest.send(call).expect("it receives");
        let mut answers = Vec::new();
        while answers.len() < 2
            && let Some(Message::Answer { tag, value }) = cx.recv().await
        {
            answers.push((tag, value));
        }
        answers
    });
    let answers = host.join().expect("it ends");
    // The one for its own call is no forgery.
    assert_eq!(answers, [(2, "forged".into()), (2, "answered".into())]);
}

#[test]
fn the_report_of_an_end_cannot_be_forged() {
    let program = load(
        "function liar(main, pid)
           process.send(main, { down = pid, reason = 'a lie' })
           process.send(main, { exit = pid, reason = 'a lie' })
         end
         function main()
           process.trap_exits()
           local pid = process.spawn_link('liar', process.self(), process.self())
           process.monitor(pid)
           local told = {}
           for i = 1, 4 do
             local message, call, reports = process.receive()
             assert(call == nil)
             told[i] = reports or message.reason
           end
           table.sort(told)
           return table.concat(told, ', ')
         end",
    );
    assert_eq!(text(run(&scheduler(), &program, &[])), "a lie, a lie, down, exit");
}

#[test]
fn a_name_that_the_host_keeps_is_not_taken() {
    let scheduler = scheduler();
    let source = "
        function waits() process.receive() end
        function main()
          local causes = {
            select(2, pcall(process.register, 'database')),
            select(2, supervisor.start { name = 'database' }),
            select(2, supervisor.start { children = { { start = 'waits', name = 'database' } } }),
          }
          assert(process.register('another'))
          assert(process.whereis('database') == nil)
          return table.concat(causes, '; ')
        end";
    let program = load(source).reserve_name("database");
    let refused = "the name `database` belongs to the host";
    let result = text(run(&scheduler, &program, &[]));
    assert_eq!(result.matches(refused).count(), 3, "{result}");
}
