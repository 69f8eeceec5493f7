//! Tests of guests through the public interface, and of the examples in `docs/LUA.md`.

use std::time::Duration;

use procession::machine::{CommandId, Completion};
use procession::mailbox::WhenFull;
use procession::net::TcpStream;
use procession::process::{Named, whereis};
use procession::supervisor::{ChildSpec, Stop, Supervisor};
use procession::{Exit, Pid, Scheduler, SpawnOptions, yield_now};
use procession_lua::{Guest, Message, Permissions, Program, Value};

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
    let outside = Permissions::none().connect().listen().read().write().env();
    run_on(&scheduler(), &program.permissions(outside))
}

fn failure(source: &str) -> String {
    match run(source) {
        Err(Exit::Failed(text)) => text.to_string(),
        other => panic!("the program must fail, but: {other:?}"),
    }
}

#[test]
fn the_examples_of_the_reference_hold() {
    let text = include_str!("../../../docs/LUA.md");
    let examples: Vec<&str> = text
        .split("```lua\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a part"))
        .collect();
    assert!(examples.len() >= 8, "only {} examples were found", examples.len());
    let has_nodes = cfg!(feature = "cluster");
    for example in examples.into_iter().filter(|text| has_nodes || !text.contains("node.")) {
        assert_eq!(run(example), Ok(Value::Nil), "{example}");
    }
}

#[test]
fn values_come_back_as_they_went() {
    let echo =
        Program::load("echo", "function echo(v) return v end").expect("the source is valid Lua");
    let scheduler = scheduler();
    for value in [
        Value::Nil,
        true.into(),
        i64::MIN.into(),
        0.5.into(),
        Value::string(b"\0\xff\n"),
        Value::Table(vec![(1.into(), Value::Table(vec![]))]),
        Value::Table(vec![(Value::string("k"), "v".into())]),
    ] {
        let child = echo
            .spawn_with(SpawnOptions::new().on(&scheduler), "echo", [value.clone()])
            .expect("the program has echo");
        assert_eq!(child.join(), Ok(value));
    }
}

#[test]
fn a_failure_has_the_traceback() {
    let text = failure("local function deep() error('broken') end\nfunction main() deep() end");
    assert!(text.contains("test:1: broken") && text.contains("stack traceback"), "{text}");
    assert!(text.contains("test:2: in function 'main'"), "{text}");
    let text = failure("function main() tonumber() end");
    assert!(text.contains("bad argument #1 to 'tonumber'"), "{text}");
}

#[test]
fn a_program_that_is_not_lua_or_lacks_the_function_is_refused_by_name() {
    let error =
        Program::load("test", "function").expect_err("the source is not valid Lua").to_string();
    assert!(error.starts_with("cannot load test: ") && error.contains("test:1:"), "{error}");
    let program = Program::load("test", "x = 1").expect("the source is valid Lua");
    let error = program.spawn("main", []).expect_err("the program has no main").to_string();
    assert_eq!(error, "cannot start main of test: it has no method \"main\"");
    let program = Program::load("test", "error('at once')").expect("the source is valid Lua");
    let error = program.spawn("main", []).expect_err("the program fails first").to_string();
    assert!(error.contains("at once"), "{error}");
}

#[test]
fn too_much_memory_is_an_error_in_lua() {
    let program =
        Program::load("test", "function main() local t = {} for i = 1, 1e9 do t[i] = {} end end");
    let program = program.expect("the source is valid Lua").memory_limit(1 << 20);
    let exit = run_on(&scheduler(), &program).expect_err("the program exceeds the limit");
    assert!(exit.to_string().contains("not enough memory"), "{exit}");
    let caught = "function main() local ok, e = pcall(string.rep, 'x', 1 << 40) return not ok end";
    assert_eq!(run(caught), Ok(true.into()));
}

#[test]
fn endless_loops_yield_wherever_they_are() {
    for endless in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "local co = coroutine.create(function() while true do coroutine.yield() end end) while true do coroutine.resume(co) end",
        "table.sort({2, 1}, function() while true do end end)",
        "string.gsub('a', 'a', function() while true do end end)",
        "load(function() while true do end end)",
    ] {
        let source = format!(
            "function endless() {endless} end
             function main()
               local pid = process.spawn('endless')
               process.monitor(pid)
               time.sleep(1)
               process.exit(pid, 'kill')
               return process.receive().down == pid
             end"
        );
        let alone = Scheduler::builder()
            .worker_threads(1)
            .max_threads(1)
            .build()
            .expect("the system has threads");
        assert_eq!(
            run_on(&alone, &Program::load("test", source).expect("the source is valid Lua")),
            Ok(true.into()),
            "{endless}"
        );
    }
}

#[test]
fn code_that_cannot_be_suspended_ends_and_cannot_catch_that() {
    for endless in [
        "tostring(setmetatable({}, { __tostring = function() while true do end end }))",
        "tostring(setmetatable({}, { __tostring = function() while true do pcall(function() while true do end end) end end }))",
        "string.format('%s', setmetatable({}, { __tostring = function() coroutine.wrap(function() while true do end end)() end }))",
        "tostring(setmetatable({}, { __tostring = function() while true do coroutine.wrap(function() for _ = 1, 100 do end end)() end end }))",
        "tostring(setmetatable({}, { __tostring = function() while true do xpcall(error, function() while true do end end) end end }))",
    ] {
        let text = failure(&format!(
            "function main() while true do pcall(function() {endless} end) end end"
        ));
        assert!(text.contains("computed for too long where it cannot be suspended"), "{text}");
    }
    let program = Program::load("test", "while true do end").expect("the source is valid Lua");
    assert!(program.spawn("main", []).is_err());
}

#[test]
fn a_cancel_ends_a_wait_and_allows_limited_waits_for_cleaning_up() {
    let source =
        "function helper() local asked, call = process.receive() process.reply(call, asked) end
    function main()
      local helper = process.spawn('helper')
      assert(time.sleep(1e9) == false and process.cancelled())
      -- A wait with a limit may follow. A wait without one ends immediately.
      assert(time.sleep(2) and select(2, process.receive(2)) == 'timeout')
      local m, why = process.receive()
      local udp = assert(net.udp('127.0.0.1:0'))
      assert(select(2, udp:receive_from(2)) == 'timeout')
      assert(select(2, udp:receive_from()) == 'cancelled')
      return { why, process.call(helper, false) }
    end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.permissions(Permissions::all());
    let scheduler = scheduler();
    let child = program
        .spawn_with(SpawnOptions::new().on(&scheduler), "main", [])
        .expect("the program has main");
    // A cancel that arrives before the first wait ends that wait.
    child.cancel();
    let both = Value::Table(vec![(1.into(), "cancelled".into()), (2.into(), false.into())]);
    assert_eq!(child.join(), Ok(both));
}

/// Goal: if a wait returns what has just arrived, and not the cancel that came with it, the cancel
/// ends the next wait, and no other wait with a limit of time.
#[test]
fn a_cancel_ends_one_limited_wait_even_if_bytes_arrive_with_it() {
    let source = "
        function reads(main, connection)
          process.send(main, 'waits')
          local bytes = assert(connection:read(10, 1e9))
          process.send(main, { bytes, time.sleep(20000), time.sleep(1) })
        end
        function receives(main)
          local udp = assert(net.udp('127.0.0.1:0'))
          process.send(main, 'waits')
          local none, cause = udp:receive_from(1e9)
          process.send(main, { cause, time.sleep(1) })
        end
        function cancelled(pid, before)
          assert(process.receive() == 'waits')
          for _ = 1, 10 do process.yield() end
          before()
          process.cancel(pid)
          return process.receive()
        end
        function main()
          local me, listener = process.self(), assert(net.listen('127.0.0.1:0'))
          local client = assert(net.connect(listener:address()))
          local reader = process.spawn('reads', me, listener:accept())
          local read = cancelled(reader, function() client:write('bytes') end)
          assert(read[1] == 'bytes' and read[2] == false and read[3] == true)
          local received = cancelled(process.spawn('receives', me), function() end)
          assert(received[1] == 'cancelled' and received[2] == true)
        end";
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    let program = Program::load("test", source).expect("the source is valid Lua");
    assert_eq!(run_on(&scheduler, &program.permissions(Permissions::all())), Ok(Value::Nil));
}

#[test]
fn programs_call_commands_of_rust() {
    const DOUBLE: CommandId = CommandId::FIRST_FREE;
    let double = |input: procession::machine::Value, completion: Completion| {
        let doubled = match input.downcast::<Value>().as_deref() {
            Ok(Value::Integer(n)) => Value::Integer(2 * n),
            _ => return,
        };
        completion.complete(Ok(Box::new(doubled)));
    };
    let scheduler =
        Scheduler::builder().handler(DOUBLE, double).build().expect("the system has threads");
    let source = "function main() local v, cause = command.double('x') return { command.double(21), cause } end";
    let program =
        Program::load("test", source).expect("the source is valid Lua").command("double", DOUBLE);
    let both = vec![(1.into(), 42.into()), (2.into(), "the handler dropped the completion".into())];
    assert_eq!(run_on(&scheduler, &program), Ok(Value::Table(both)));
}

#[test]
fn rust_sends_to_guests() {
    let program =
        Program::load("test", "function main() return process.receive() + process.receive() end");
    let scheduler = scheduler();
    let child = program
        .expect("the source is valid Lua")
        .spawn_with(SpawnOptions::new().on(&scheduler), "main", [])
        .expect("the program has main");
    for n in [1, 2] {
        child.send(Message::from(Value::Integer(n))).expect("the process waits");
    }
    assert_eq!(child.join(), Ok(3.into()));
}

#[test]
fn waits_of_all_lengths_share_one_timer() {
    let source = "function echo() while true do process.send(process.receive(), 1) end end
    function main()
      local echo = process.spawn('echo')
      for i = 1, 50 do
        process.send(echo, process.self())
        assert(process.receive(3600000 - 1000 * i) == 1)
      end
      process.receive()
    end";
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .build()
        .expect("the test clock needs no threads");
    let program = Program::load("test", source).expect("the source is valid Lua");
    let child = program
        .spawn_with(SpawnOptions::new().on(&scheduler), "main", [])
        .expect("the program has main");
    scheduler.run_until_idle();
    assert_eq!(scheduler.snapshot().timers.pending, 1);
    child.cancel();
    assert_eq!(scheduler.block_on(child), Ok(Value::Nil));
}

#[test]
fn a_bounded_mailbox_is_refused() {
    let program = Program::load("test", "function main() end").expect("the source is valid Lua");
    let options = SpawnOptions::new().mailbox(8, WhenFull::Reject);
    let error = program
        .spawn_with(options, "main", [])
        .expect_err("a bounded mailbox is refused")
        .to_string();
    assert!(
        error.starts_with("cannot start main of test: the mailbox of a guest cannot be bounded"),
        "{error}"
    );
}

#[test]
fn on_the_test_clock_sleeps_take_no_time() {
    let scheduler =
        Scheduler::builder().test_clock().build().expect("the test clock needs no threads");
    let source = "function main()
      for _ = 1, 100 do assert(select(2, process.receive(60000)) == 'timeout') end
      time.sleep(3600000)
      return 1
    end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let child = program
        .spawn_with(SpawnOptions::new().on(&scheduler), "main", [])
        .expect("the program has main");
    assert_eq!(scheduler.block_on(child), Ok(1.into()));
}

#[test]
fn functions_of_lua_that_loop_by_themselves_are_bounded() {
    for (call, refused) in [
        ("string.rep('', 1 << 60)", ""),
        ("(''):rep(1 << 60, '')", ""),
        ("string.rep('ab', 3, ',') == 'ab,ab,ab' or error('no')", ""),
        ("string.rep('x', 1 << 60)", "resulting string too large"),
        ("string.rep('x', 1 << 30)", "not enough memory"),
        ("table.concat({}, 'x', 1, 1 << 60)", "a range of more than"),
        ("table.move({}, 1, 1 << 60, 2)", "a range of more than"),
        ("table.unpack({}, 1, 1 << 60)", "too many results"),
        (
            "table.sort(setmetatable({}, { __len = function() return 1 << 60 end }))",
            "a table of more than",
        ),
        (
            "table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 1)",
            "a table of more than",
        ),
    ] {
        match run(&format!("function main() local _ = {call} end")) {
            Ok(_) if refused.is_empty() => {}
            Err(exit) if !refused.is_empty() && exit.to_string().contains(refused) => {}
            other => panic!("{call}: {other:?}"),
        }
    }
}

#[test]
fn errors_of_the_library_name_the_line_of_the_call() {
    for call in [
        "process.send(1, 2)",
        "process.monitor('unknown')",
        "time.sleep('long')",
        "table.move({}, 1, 1 << 40, 2)",
    ] {
        let text = failure(&format!("function main()\n\n  {call}\n  return 1\nend"));
        assert!(text.starts_with("runtime error: test:3: "), "{text}");
    }
}

/// Goal: only the process that was called can answer. Method: the program tries the tags of the
/// first calls, before the answer is due.
#[test]
fn the_answer_to_the_call_of_another_cannot_be_forged() {
    let source = "
        function bank()
          local go, call = process.receive()
          process.receive()
          process.reply(call, 'balance 5')
        end
        function client(main, bank) process.send(main, process.call(bank, 'balance')) end
        function main()
          local bank = process.spawn('bank')
          local client = process.spawn('client', process.self(), bank)
          time.sleep(20)
          for tag = 0, 1000 do process.reply({ from = client, tag = tag }, 'balance 1000000') end
          process.send(bank, 'reply')
          return (process.receive())
        end
    ";
    assert_eq!(run(source), Ok(Value::string(b"balance 5")));
}

/// A program is loaded once for each process, in the step of the process that spawns it. What it
/// does outside of its functions must not be taken for what that one does.
#[test]
fn a_program_that_is_being_loaded_is_no_process_yet() {
    for call in [
        "process.spawn('child')",
        "process.spawn_link('child')",
        "process.self()",
        "process.register('up')",
        "process.exit(process.whereis('host'), 'kill')",
    ] {
        let source = format!("function child() end function main() end {call}");
        let program = Program::load("test", source).expect("the source is valid Lua");
        let scheduler = scheduler();
        let options = SpawnOptions::new().on(&scheduler).name("host");
        let refused = program.spawn_with(options, "main", []).expect_err("it calls");
        let text = refused.to_string();
        assert!(text.contains("the process has not started yet"), "{call}: {text}");
        // The same in a child: its spawner runs.
        let source = format!(
            "function child() end \
             function main() process.register('up') \
               local done, cause = pcall(process.spawn, 'child') \
               return tostring(done) .. ' ' .. tostring(cause) end \
             if process.whereis('up') then {call} end"
        );
        let Ok(Value::String(answer)) = run(&source) else { panic!("{call}: it goes on") };
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("false"), "{call}: {answer}");
        assert!(answer.contains("the process has not started yet"), "{call}: {answer}");
    }
}

/// A store that answers a request on demand, and a server that asks the store.
const SERVICE: &str = "
    function store()
      process.register('store')
      local asked, call = process.receive()
      process.send('test', 'asked')
      process.receive()
      process.reply(call, asked)
      process.receive()
    end
    function answer(request)
      if request.path == '/plain' then return 'plain' end
      return assert(process.call('store', 'kept'))
    end
    function server()
      process.register('server')
      local listener = assert(net.listen('127.0.0.1:0'))
      process.send('test', listener:address())
      http.serve(listener, 'answer', 3600000)
    end";

fn child(program: &Program, name: &'static str) -> ChildSpec<procession::Address<Message>> {
    let program = program.clone();
    let input = || Box::new(Vec::<Value>::new()) as procession::machine::Value;
    ChildSpec::machine(name, move || Guest::new(program.clone()), name, input)
}

/// Returns the next value that a guest sends to this process.
async fn received(cx: &mut procession::Context<Message>) -> Value {
    match cx.recv().await {
        Some(Message::Plain(value)) => value,
        other => panic!("guests send values, not {other:?}"),
    }
}

async fn ask(stream: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: me\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the server reads");
}

async fn read_all(stream: &mut TcpStream) -> String {
    let (mut bytes, mut part) = (Vec::new(), [0; 256]);
    while let Ok(count @ 1..) = stream.read(&mut part).await {
        bytes.extend(&part[..count]);
    }
    String::from_utf8(bytes).expect("it is text")
}

#[test]
fn a_server_that_its_supervisor_stops_answers_what_it_began_before_the_store_stops() {
    let program = Program::load("test", SERVICE).expect("the source is valid Lua");
    let program = program.permissions(Permissions::none().listen());
    let scheduler = scheduler();
    let test = scheduler.start(move |mut cx| async move {
        procession::process::register("test", cx.pid()).expect("the name is free");
        let tree = Supervisor::rest_for_one()
            .child(child(&program, "store"))
            .child(child(&program, "server").stop(Stop::Within(TIMEOUT)))
            .try_start()
            .await
            .expect("it starts");
        let address = match received(&mut cx).await {
            Value::String(bytes) => String::from_utf8(bytes.to_vec()).expect("it is text"),
            other => panic!("it is an address: {other:?}"),
        };
        let connect = || TcpStream::connect(address.as_str());
        let (mut asks, mut idle) = (connect().await.unwrap(), connect().await.unwrap());
        // The idle connection is accepted, and may send another request.
        ask(&mut idle, "/plain").await;
        let mut answer = [0; 43];
        idle.read_exact(&mut answer).await.expect("it answers");
        // The store has started, and may have done nothing yet.
        let store = loop {
            if let Some(store) = whereis("store") {
                break store;
            }
            yield_now().await;
        };
        ask(&mut asks, "/store").await;
        assert_eq!(received(&mut cx).await, "asked".into());
        tree.cancel();
        // The idle connection is closed, so the server drains.
        assert_eq!(read_all(&mut idle).await, "");
        // The listener is closed, at the latest when the wait of the server has ended.
        while connect().await.is_ok() {
            yield_now().await;
        }
        assert_eq!(whereis("store"), Some(store), "the store runs as long as the server");
        Named::new("store").send(Message::from(Value::Nil)).expect("it runs");
        let answer = read_all(&mut asks).await;
        assert!(answer.ends_with("\r\n\r\nkept"), "{answer}");
        assert_eq!(tree.await, Exit::Shutdown);
    });
    test.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the drain ends")).expect("it is right");
}

#[test]
fn connections_of_a_server_that_is_killed_are_cancelled() {
    let program = Program::load("test", SERVICE).expect("the source is valid Lua");
    let program = program.permissions(Permissions::none().listen());
    let scheduler = scheduler();
    let test = scheduler.start(move |mut cx| async move {
        procession::process::register("test", cx.pid()).expect("the name is free");
        let server = program.spawn("server", []).expect("it starts");
        let Value::String(address) = received(&mut cx).await else { panic!("it is an address") };
        let address = String::from_utf8(address.to_vec()).expect("it is text");
        let mut idle = TcpStream::connect(address.as_str()).await.expect("it listens");
        ask(&mut idle, "/plain").await;
        let mut answer = [0; 43];
        idle.read_exact(&mut answer).await.expect("it answers");
        let pid: Pid = server.pid();
        procession::process::send_exit(pid, Exit::Killed);
        assert_eq!(read_all(&mut idle).await, "");
        while whereis("server").is_some() {
            yield_now().await;
        }
    });
    test.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it ends")).expect("it is right");
}
