//! Tests of messages that are received while others are there.

use std::time::Duration;

use procession::mailbox::relay::DeadCause;
use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Deployment, Message, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn run(program: &Program) -> Result<Value, Exit> {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let options = SpawnOptions::new().on(&scheduler);
    let main = program.spawn_with(options, "main", []).expect("the program has main");
    main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"))
}

fn load(source: &str) -> Program {
    Program::load("test", source).expect("the source is valid Lua")
}

#[test]
fn items_of_all_kinds_are_received_in_their_order() {
    let program = load(
        "
        function nothing() end
        function caller(to) return process.call(to, 'request') end
        function received(n)
          for i = 1, n do
            local got = table.pack(process.receive(i % 3 == 0 and 1000 or nil))
            assert(got.n == 1 and got[1] == i, got[1])
          end
        end
        function main()
          local own = process.self()
          -- More than a step takes.
          for _, receive in ipairs { received, coroutine.wrap(received) } do
            for i = 1, 1000 do process.send(own, i) end
            receive(1000)
            assert(select('#', process.receive(0)) == 2, 'nothing is left')
          end
          process.send(own, 'first')
          process.spawn('caller', own)
          process.monitor(process.spawn('nothing'))
          process.send(own, nil)
          process.send(own, { 'last' })
          local plain, seen = {}, {}
          for _ = 1, 5 do
            local item, call = process.receive()
            if call then
              seen.request = item == 'request' and process.reply(call, 1)
            elseif type(item) == 'table' and item.down then
              seen.down = true
            else
              plain[#plain + 1] = type(item) == 'table' and item[1] or tostring(item)
            end
          end
          assert(table.concat(plain, ' ') == 'first nil last', table.concat(plain, ' '))
          assert(seen.request and seen.down)
        end",
    );
    assert_eq!(run(&program), Ok(Value::Nil));
}

/// The sender no longer waits for the result, so nobody else would learn of the refusal.
#[test]
fn a_message_for_later_that_finds_no_room_is_a_dead_letter() {
    let program = load(
        "
        function main()
          local own = process.self()
          process.send_after(1, own, 'first')
          process.send_after(2, own, 'second')
          time.sleep(3)
          assert(process.receive(0) == 'first' and process.receive(0) == nil)
        end",
    );
    let (sender, receiver) = std::sync::mpsc::channel();
    let scheduler = Scheduler::builder().worker_threads(1).test_clock();
    let scheduler = scheduler.on_dead_letter(move |letter| {
        let message = letter.message.downcast_ref::<Message>().cloned();
        sender.send((letter.cause, message)).expect("the test waits");
    });
    let scheduler = scheduler.build().expect("it starts no thread");
    let options = SpawnOptions::new().on(&scheduler);
    let main = program.mailbox_limit(1).spawn_with(options, "main", []);
    assert_eq!(main.expect("the program has main").join(), Ok(Value::Nil));
    let dead: Vec<_> = receiver.try_iter().collect();
    assert_eq!(dead, [(DeadCause::Late, Some(Message::Plain("second".into())))]);
}

/// The answer and the end may arrive together. The end then belongs to the call, and is no message.
#[test]
fn a_process_that_answers_and_ends_leaves_no_message() {
    let program = load(
        "
        function answers()
          local _, call = process.receive()
          process.reply(call, 'answer')
        end
        function main()
          for _ = 1, 1000 do
            assert(process.call(process.spawn('answers'), 1) == 'answer')
            assert(process.receive(0) == nil)
          end
          process.yield()
          assert(process.receive(1) == nil)
        end",
    );
    assert_eq!(run(&program), Ok(Value::Nil));
}

#[test]
fn nothing_is_received_where_a_process_cannot_wait() {
    let program = load(
        "
        function main()
          for i = 1, 4 do process.send(process.self(), i) end
          assert(process.receive() == 1 and process.receive() == 2)
          local receives = setmetatable({}, { __tostring = function() return process.receive() end })
          local ok, cause = pcall(tostring, receives)
          assert(not ok and cause:find('yield across'), cause)
          ok, cause = pcall(process.receive, 'soon')
          assert(not ok and cause:find('milliseconds'), cause)
          assert(process.receive() == 3 and process.receive() == 4)
        end",
    );
    assert_eq!(run(&program), Ok(Value::Nil));
}

#[test]
fn a_message_takes_no_room_once_it_is_received() {
    let program = load(
        "
        function sink(from)
          while true do process.send(from, process.receive() + process.receive() + process.receive()) end
        end
        function main()
          local sink = process.spawn_link('sink', process.self())
          for i = 1, 500 do
            for _ = 1, 3 do assert(process.send(sink, i)) end
            assert(process.receive() == 3 * i)
          end
        end",
    );
    assert_eq!(run(&program.mailbox_limit(3)), Ok(Value::Nil));
}

/// The function `upgrade` runs in the state of the process, but may not take its messages.
#[test]
fn an_upgrade_receives_nothing() {
    let source = "
        function upgrade() return process.receive() end
        function resume_main() end
        function main()
          local sum, seen = 0, 0
          while true do
            local n = process.receive()
            if n == 0 then return sum end
            sum = sum + n
            -- Many steps, in which the upgrade arrives.
            for _ = 1, 20000 do seen = seen + 1 end
          end
        end";
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let deployment = Deployment::new(load(source));
    let options = SpawnOptions::new().on(&scheduler);
    let main = deployment.program().spawn_with(options, "main", []).expect("it has main");
    for _ in 0..200 {
        main.send(Value::Integer(1).into()).expect("it is alive");
    }
    let replaced = scheduler.block_on(async {
        // It joins in its first step.
        while deployment.versions().is_empty() {
            procession::yield_now().await;
        }
        deployment.replace(load(&format!("{source} -- new"))).await
    });
    let failed: Vec<String> =
        replaced.expect("it is loaded").failed.into_iter().map(|(_, cause)| cause).collect();
    assert_eq!(failed, ["upgrade cannot wait"]);
    main.send(Value::Integer(0).into()).expect("it is alive");
    assert_eq!(main.join(), Ok(Value::Integer(200)));
}
