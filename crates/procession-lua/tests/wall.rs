//! Programs that would harm their host: each ends one process, or is refused.

use std::time::Duration;

use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Permissions, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn run(program: &Program) -> Result<Value, Exit> {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    run_on(&scheduler, program)
}

fn run_on(scheduler: &Scheduler, program: &Program) -> Result<Value, Exit> {
    let main = program.spawn_with(SpawnOptions::new().on(scheduler), "main", []);
    let main = main.expect("the program has main");
    main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"))
}

fn load(source: &str) -> Program {
    Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {source}"))
}

fn text(result: Result<Value, Exit>) -> String {
    match result {
        Ok(Value::String(bytes)) => String::from_utf8(bytes.to_vec()).expect("it is text"),
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

#[test]
fn a_long_repetition_gives_what_lua_gives() {
    let source = "
        function main()
          for _, text in ipairs { '', 'a', 'abc', ('x'):rep(70), 12 } do
            for _, separator in ipairs { '', '-', ', ', 7 } do
              for _, count in ipairs { 65536, 65537, 70000, 70000.0, '70001' } do
                local pieces = {}
                for i = 1, tonumber(count) // 1 | 0 do pieces[i] = text end
                local wanted = table.concat(pieces, separator)
                assert(string.rep(text, count, separator) == wanted, text .. separator .. count)
              end
            end
          end
          assert(string.rep('a', -1 << 40) == '' and string.rep('', 1 << 40) == '')
          for _, call in ipairs {
            { nil, 70000 }, { 'a' }, { 'a', 70000.5 }, { 'a', 70000, {} }, { 'a', 1 << 62 },
          } do
            assert(not pcall(string.rep, table.unpack(call, 1, 3)))
          end
          return 'equal'
        end";
    assert_eq!(text(run(&load(source))), "equal");
}

#[test]
fn a_mailbox_is_bounded_and_the_sender_is_told() {
    let source = "
        function flood(to, make)
          local count = 0
          while true do
            local sent, cause = process.send(to, make(count))
            if not sent then return count, cause end
            count = count + 1
          end
        end
        function asks(to, main) process.send(main, select(2, process.call(to, 'x'))) end
        -- Replies once it was told to.
        function gate()
          while true do
            local _, one = process.receive()
            local _, other = process.receive()
            process.reply(one or other, 'go')
          end
        end
        -- Receives only while the gate is open.
        function holder(main, gate)
          while true do
            process.call(gate, 'open?')
            local count = 0
            while process.receive(20) do count = count + 1 end
            process.send(main, count)
          end
        end
        function main()
          local gate = process.spawn('gate')
          local holder = process.spawn('holder', process.self(), gate)
          local count, cause = flood(holder, function(n) return n end)
          assert(count == 1000, count)
          process.spawn('asks', holder, process.self())
          local asked = process.receive()
          process.send(gate, 'open')
          assert(process.receive() == 1000)
          -- There is room again, now for fewer messages with more bytes.
          local large = ('x'):rep(1 << 16)
          local more, again = flood(holder, function() return large end)
          assert(more > 10 and more < 100, more)
          process.send(gate, 'open')
          assert(process.receive() == more)
          return cause .. '; ' .. asked .. '; ' .. again
        end";
    let program = load(source).mailbox_limit(1000).memory_limit(8 << 20);
    let full = "the mailbox of the process is full";
    assert_eq!(text(run(&program)), [full, full, full].join("; "));
}

#[test]
fn what_the_host_holds_for_a_process_counts_against_its_memory() {
    let many = "local text, many = ('x'):rep(1 << 20), {} for i = 1, 100000 do many[i] = text end";
    for (call, cause) in [
        ("process.send(process.self(), many)", "too large for the memory"),
        ("process.spawn('main', many)", "too large for the memory"),
        (
            "process.spawn('main', text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text)",
            "too large for the memory",
        ),
        ("error(select(2, process.call(process.self(), many, 1)), 0)", "too large for the memory"),
        ("json.encode(many)", "too large for the memory"),
        (
            "error(select(2, json.decode('[' .. ('1,'):rep(1 << 18) .. '1]')), 0)",
            "the value of this JSON needs",
        ),
        ("process.register(text)", "has more than 65536 bytes"),
        ("process.exit(process.self(), text)", "has more than 65536 bytes"),
        ("group.join(('x'):rep(255)) group.join(('x'):rep(256))", "has more than 255 bytes"),
        ("for _ = 1, 1 << 20 do process.monitor(process.self()) end", "65536 monitors at a time"),
    ] {
        let source = format!(
            "function main()
               {many}
               local ok, cause = pcall(function() {call} end)
               assert(not ok)
               return tostring(cause)
             end"
        );
        let refused = text(run(&load(&source).memory_limit(16 << 20)));
        assert!(refused.contains(cause), "{call}: {refused}");
    }
}

/// A receiver that has used up nearly all of its memory still gets what others send.
#[test]
fn a_message_does_not_end_its_receiver() {
    let source = "
        function holder(main)
          local held = {}
          for i = 1, 12 do held[i] = ('x'):rep((1 << 20) - i) end
          process.send(main, process.self())
          local message = process.receive()
          local size = #message
          held, message = nil, nil
          process.send(main, size)
        end
        function main()
          process.trap_exits(true)
          process.spawn_link('holder', process.self())
          local holder = process.receive()
          assert(process.send(holder, ('y'):rep(6 << 20)))
          local size = process.receive()
          return tostring(size)
        end";
    assert_eq!(text(run(&load(source).memory_limit(17 << 20))), (6 << 20).to_string());
}

#[test]
fn a_read_of_a_pipe_waits_for_its_writer_and_can_be_ended() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = std::env::temp_dir().join(format!("procession-wall-{}", std::process::id()));
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the folder is there");
    let source = format!(
        "local path = {path:?}
         function reads(main) process.send(main, 'begins') process.send(main, fs.read(path)) end
         function main()
           local killed = process.spawn('reads', process.self())
           assert(process.receive() == 'begins')
           process.monitor(killed)
           time.sleep(20)
           process.exit(killed, 'kill')
           assert(process.receive().down == killed)
           process.spawn('reads', process.self())
           assert(process.receive() == 'begins')
           process.send('test', 'write')
           return process.receive() .. fs.read(path, 0, 0)
         end"
    );
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let to = path.clone();
    let writer =
        scheduler.start(move |mut cx: procession::Context<procession_lua::Message>| async move {
            cx.recv().await.expect("the program asks");
            // Opens and writes in parts. Opening waits for the reader.
            procession::spawn_blocking(move || {
                use std::io::Write as _;
                let mut pipe = std::fs::File::options().write(true).open(to).expect("it is there");
                pipe.write_all(b"one ").and_then(|()| pipe.write_all(b"two")).expect("it is read");
            })
            .await
            .expect("it does not panic");
        });
    scheduler.register("test", writer.pid()).expect("the name is free");
    let program = load(&source).permissions(Permissions::none().read());
    let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    let main = main.expect("the program has main");
    let result = main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"));
    assert_eq!(text(result), "one two");
    std::fs::remove_file(path).expect("it is there");
}

/// What a coroutine yields after a read goes to its resumer, and what it waits for to the runtime.
#[test]
fn a_coroutine_reads_and_yields_in_turns() {
    let source = "
        function reads()
          local read = coroutine.wrap(function()
            for i = 1, 3 do
              local text, cause = fs.read('Cargo.toml', 1, 7)
              assert(text == 'package', cause)
              process.yield()
              coroutine.yield(i, text)
            end
            return 'read', fs.read('nothing')
          end)
          for i = 1, 3 do
            local number, text = read()
            assert(number == i and text == 'package')
            process.yield()
          end
          local last, none, cause = read()
          assert(last == 'read' and none == nil, cause)
          return cause
        end
        function main()
          local inside = coroutine.wrap(reads)()
          return inside == reads() and inside
        end";
    let result = text(run(&load(source).permissions(Permissions::none().read())));
    assert!(result.contains("cannot read nothing"), "{result}");
}

#[test]
fn json_of_a_large_table_ends_soon_after_a_kill() {
    let source = "
        function encodes(main)
          local large = {}
          for i = 1, 1 << 18 do large['key ' .. i] = i end
          local start = time.now()
          json.encode(large)
          process.send(main, time.now() - start)
          while true do json.encode(large) end
        end
        function main()
          local pid = process.spawn('encodes', process.self())
          local whole = process.receive()
          process.monitor(pid)
          -- It is in the middle of the next one.
          time.sleep(whole / 4)
          local start = time.now()
          process.exit(pid, 'kill')
          assert(process.receive().down == pid)
          return (time.now() - start) / whole
        end";
    // The system may let one of two measured times wait for others, but not in each of ten runs.
    let shares = (0..10).map(|_| match run(&load(source).memory_limit(1 << 30)) {
        Ok(Value::Float(share)) => share,
        other => panic!("the program must return a number, but: {other:?}"),
    });
    let mut seen = Vec::new();
    let is_soon = shares.inspect(|share| seen.push(*share)).any(|share| share < 0.5);
    assert!(is_soon, "it took these parts of the whole: {seen:?}");
}

/// A read of some bytes ends once they have arrived, and does not wait for the end of the pipe.
#[test]
fn a_read_of_a_pipe_ends_with_its_last_byte() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = std::env::temp_dir().join(format!("procession-part-{}", std::process::id()));
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the folder is there");
    // It never closes the pipe. Opened like this, it does not wait for a reader.
    let mut pipe =
        std::fs::File::options().read(true).write(true).open(&path).expect("it is there");
    std::io::Write::write_all(&mut pipe, b"one two").expect("there is room");
    let source =
        format!("function main() return fs.read({path:?}, 0, 3) .. fs.read({path:?}, 0, 4) end");
    assert_eq!(text(run(&load(&source).permissions(Permissions::none().read()))), "one two");
    std::fs::remove_file(path).expect("it is there");
}

/// A part of the library that was not loaded for lack of memory is loaded later.
#[test]
fn the_library_is_whole_again_once_there_is_memory() {
    let source = "
        function main()
          local pcall, rep, held = pcall, string.rep, {}
          -- A list that never grows in here.
          for i = 1, 4096 do held[i] = false end
          local count = 0
          for _, size in ipairs { 1 << 16, 1 << 12, 1 << 8, 16 } do
            while count < 4096 and pcall(function() held[count + 1] = rep('x', size - 8) .. count end) do
              count = count + 1
            end
          end
          local function use() return os.date('%F', 0), coroutine.wrap(table.concat)({ 'a', 'b' }) end
          local ok, cause = pcall(use)
          held = nil
          local date, text = use()
          return tostring(ok) .. ' ' .. tostring(cause) .. ' ' .. date .. ' ' .. text
        end";
    let found = text(run(&load(source).memory_limit(1 << 20)));
    assert!(found.starts_with("false ") && found.contains("not enough memory"), "{found}");
    assert!(found.ends_with(" 1970-01-01 ab"), "{found}");
}

#[test]
fn a_function_with_any_name_has_a_label_that_is_safe_to_show() {
    let source = "
        _G['\\27[2J'] = function() process.receive() error('\\27[2J') end
        function main()
          local pid = process.spawn('\\27[2J')
          process.monitor(pid)
          process.send(pid, 'fail')
          return process.receive().reason
        end";
    let reason = text(run(&load(source)));
    assert!(!reason.contains('\x1b') && reason.contains("\\u{1b}[2J"), "{reason}");
    assert!(!reason.contains("[C]") && !reason.contains("\t?:"), "{reason}");
    // The same for a program that fails before its function is called.
    let refused = load("error('\\27[2J')").spawn("main", []).expect_err("it fails").to_string();
    assert!(
        refused.ends_with("test:1: \\u{1b}[2J\nstack traceback:\n\ttest:1: in main chunk"),
        "{refused}"
    );
}

#[test]
fn the_library_calls_no_function_that_the_program_replaced() {
    // With these, the functions of `table` would loop in C over tables that never end.
    let source = "
        for _, name in ipairs { 'getmetatable', 'type', 'select', 'tostring', 'error', 'math' } do
          _G[name] = nil
        end
        function getmetatable() end
        function type() return 'table' end
        math = { type = function() return 'integer' end }
        function endless(act)
          local t = setmetatable({}, { __len = function() return 1 << 40 end, __index = rawlen })
          if act == 'insert' then table.insert(t, 1, 1) end
          if act == 'unpack' then table.unpack(t) end
          if act == 'concat' then table.concat(t, '', 1, 1 << 40) end
          table.remove(t, 1)
        end
        function main()
          local causes = {}
          for _, act in ipairs { 'insert', 'unpack', 'concat', 'remove' } do
            local pid = process.spawn('endless', act)
            process.monitor(pid)
            process.exit(pid, 'kill')
            assert(process.receive(10000), act)
          end
          return 'ended'
        end";
    assert_eq!(text(run(&load(source))), "ended");
}

/// Lua's own libraries have functions that loop in C. They are opened when a program runs.
#[test]
fn a_program_never_sees_the_libraries_of_lua_itself() {
    let source = "
        function main()
          local own, seen = {}, {}
          for _, name in ipairs { 'coroutine', 'math', 'string', 'table', 'utf8' } do
            own[name], _G[name] = _G[name], nil
          end
          setmetatable(_G, { __newindex = function(_, name, value) seen[#seen + 1] = name end })
          -- Each of these opens a library.
          assert(own.coroutine.wrap(function() return 1 end)() == 1)
          assert(own.math.floor(1.5) == 1 and own.utf8.len('x') == 1)
          assert(own.string.rep('x', 2) == 'xx' and own.table.concat({ 'y' }) == 'y')
          for name in next, own do assert(rawget(_G, name) == nil) end
          return own.table.concat(seen, ' ')
        end";
    assert_eq!(text(run(&load(source))), "");
}

#[test]
fn the_library_needs_nothing_that_the_program_can_replace() {
    let dir = std::env::temp_dir().join(format!("procession-own-{}", std::process::id()));
    std::fs::write(&dir, "one\ntwo").expect("the folder is there");
    let source = format!(
        "local path, result = {dir:?}, {{}}
         function handle(request) return request.path .. request.body end
         function served(listener) _G.log = nil http.serve(listener, 'handle') end
         function main()
           local assert, select, unpack = assert, select, table.unpack
           local lib = {{}}
           for _, name in ipairs {{
             'coroutine', 'fs', 'http', 'log', 'math', 'net', 'os', 'package', 'process', 'string', 'table', 'time',
           }} do lib[name] = _G[name] end
           local load, xpcall, require, print, setmetatable = load, xpcall, require, print, setmetatable
           local getmetatable_of_text = getmetatable('')
           local function wrong() error('a function of the program was called', 0) end
           local all = _G
           for name in pairs(all) do
             if name ~= 'handle' and name ~= 'served' and name ~= 'error' then all[name] = nil end
           end
           getmetatable_of_text.__index = wrong
           setmetatable(all, {{ __index = wrong }})
           local long = '--' .. lib.string.rep('x', 2000) .. '\\nreturn 7'
           assert(load(long)() == 7)
           local served = false
           assert(load(function()
             if served then return nil end
             served = true
             return 'return 8'
           end)() == 8)
           assert(select(2, xpcall(wrong, function(cause) return cause end)) == 'a function of the program was called')
           assert(require('string') == lib.package.loaded.string)
           print('x')
           lib.log.info('y')
           local lines = {{}}
           for line in lib.fs.lines(path) do lines[#lines + 1] = line end
           assert(lib.table.concat(lines, ' ') == 'one two')
           assert(lib.os.date('%F', 0) == '1970-01-01' and lib.os.time() > 0)
           assert(lib.string.gsub('a1', '%d', function(digit) return digit .. digit end) == 'a11')
           lib.table.sort({{ 3, 1, 2 }}, function(a, b) return a < b end)
           local listener = assert(lib.net.listen('127.0.0.1:0'))
           local server = lib.process.spawn('served', listener)
           local answer = assert(lib.http.post('http://' .. listener:address() .. '/p', 'b'))
           assert(answer.body == '/pb')
           return 'whole'
         end"
    );
    let program = load(&source).permissions(Permissions::all());
    assert_eq!(text(run(&program)), "whole");
    std::fs::remove_file(dir).expect("it is there");
}

#[test]
fn limits_count_for_a_process_and_all_below_it() {
    let run_limited = |limits: &str, child: &str, rest: &str| {
        let source = format!(
            "function child(main) process.receive() {child} end
             {rest}
             function main()
               local pid = process.spawn({{ 'child', limits = {{ {limits} }} }}, process.self())
               process.monitor(pid)
               process.send(pid, 'go')
               while true do
                 local found = process.receive(20000)
                 if type(found) ~= 'table' then return tostring(found) end
                 if found.down == pid then return found.reason end
               end
             end"
        );
        text(run(&load(&source).permissions(Permissions::all())))
    };
    let below = |what: &str| format!("`child` and all processes below it may have {what}");
    // Each process is started by the one before.
    let chain = run_limited(
        "processes = 5",
        "process.spawn('chain', main) process.receive()",
        "function chain(main)
           local ok, cause = pcall(process.spawn, 'chain', main)
           if not ok then process.send(main, cause) end
           process.receive()
         end",
    );
    assert!(chain.contains(&below("5 processes")), "{chain}");
    let steps = run_limited("steps = 50", "while true do process.yield() end", "");
    assert!(steps.contains(&below("50 steps")), "{steps}");
    let sockets = run_limited(
        "sockets = 3",
        "local kept = {}
         repeat
           local socket, cause = net.udp('127.0.0.1:0')
           kept[#kept + 1] = socket
         until not socket
         assert(#kept == 3)
         kept[1]:close()
         assert(net.listen('127.0.0.1:0'))
         process.send(main, cause or select(2, net.udp('127.0.0.1:0')))",
        "",
    );
    assert_eq!(sockets, below("3 sockets").replace("`child`", "cannot bind 127.0.0.1:0: `child`"));
    let timers = run_limited(
        "timers = 2",
        "local timer = process.send_after(60000, main, 1)
         process.send_after(60000, main, 2)
         local ok, cause = pcall(process.send_after, 60000, main, 3)
         assert(not ok and process.cancel_timer(timer) and process.send_after(60000, main, 4))
         process.send(main, cause)",
        "",
    );
    assert!(timers.ends_with(&below("2 timers")), "{timers}");
    let mailbox = run_limited(
        "mailbox = 4000",
        "local other = process.spawn('idle')
         local count = 0
         while process.send(other, ('x'):rep(100)) do count = count + 1 end
         process.send(main, count .. ' ' .. tostring(process.send(process.self(), ('x'):rep(100))))",
        "function idle() time.sleep(60000) end",
    );
    let count: u32 = mailbox.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((10..40).contains(&count) && mailbox.ends_with("false"), "{mailbox}");
    // The children of one process take 1 MiB each, and together no more than 4 MiB.
    let memory = run_limited(
        "memory = 4 << 20",
        "for i = 1, 100 do
           local pid = process.spawn_link('big', process.self())
           if process.receive() ~= 'big' then break end
         end",
        "function big(parent) kept = ('x'):rep(1 << 20) process.send(parent, 'big') process.receive() end",
    );
    assert!(memory.contains("not enough memory") || memory.contains(&below("4194304")), "{memory}");
}

/// The ends of processes wait like messages, with the texts of their reasons.
/// Where a process cannot be suspended, one of its steps has the work of many.
#[test]
fn a_limit_of_steps_bounds_what_its_processes_compute() {
    let source = "
        local function compute(n) for _ = 1, n do end end
        compute(process.whereis('spawns') and LOAD_WORK or 0)
        function idle() process.receive() end
        function unsuspended(main)
          local t = setmetatable({}, { __tostring = function() compute(3000000) return '' end })
          while true do tostring(t) process.send(main, 'computed') process.yield() end
        end
        function searches(main)
          local text = ('a'):rep(1 << 16)
          while true do
            pcall(string.find, text, '.-.-b')
            process.send(main, 'computed')
          end
        end
        function spawns(main)
          process.register('spawns')
          while true do
            pcall(process.spawn, 'idle')
            process.send(main, 'computed')
          end
        end
        function main(name)
          process.monitor((process.spawn({ name, limits = { steps = STEPS } }, process.self())))
          local count = 0
          while true do
            local message = process.receive()
            if message ~= 'computed' then return count .. ': ' .. message.reason end
            count = count + 1
          end
        end";
    for (name, steps, load_work, least, most) in [
        ("unsuspended", 1000, 0, 3, 5),
        ("searches", 150, 0, 1, 3),
        ("spawns", 1000, 3_000_000, 1, 5),
        ("spawns", 1000, 30_000_000, 0, 3),
    ] {
        let source = source.replace("LOAD_WORK", &load_work.to_string());
        let source = source.replace("STEPS", &steps.to_string());
        let program = load(&source);
        let scheduler = Scheduler::builder().worker_threads(2).build().expect("there are threads");
        let options = SpawnOptions::new().on(&scheduler);
        let main = program.spawn_with(options, "main", [Value::string(name)]);
        let main = main.expect("the program has main");
        let ended = text(main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it must end")));
        let (count, reason) = ended.split_once(": ").expect("it has a count");
        assert!(reason.contains(&format!("may have {steps} steps")), "{name}: {reason}");
        let count: u32 = count.parse().expect("it is a number");
        assert!((least..=most).contains(&count), "{name}: {count}");
    }
}

#[test]
fn ends_of_processes_take_room_until_they_are_received() {
    let attack = |limit: usize, source: &str| {
        let program = load(source).memory_limit(4 << 20).mailbox_limit(limit);
        text(run(&program))
    };
    let monitors = attack(
        1 << 20,
        "function nothing() end
         function main()
           local pid, count = process.spawn('nothing'), 0
           while process.info(pid) do process.yield() end
           local ok, cause
           repeat
             ok, cause = pcall(process.monitor, pid)
             count = count + 1
             if count % 64 == 0 then process.yield() end
           until not ok or count == 100000
           assert(process.receive().down == pid)
           assert(pcall(process.monitor, pid))
           return cause
         end",
    );
    let own_full = "the mailbox of this process is full";
    assert!(monitors.ends_with(own_full) || monitors.contains("monitors at a time"), "{monitors}");
    let cap = attack(
        1 << 20,
        "function waits() process.receive() end
         function main()
           local pid = process.spawn('waits')
           for _ = 1, 65536 do process.monitor(pid) end
           process.exit(pid)
           while process.info(pid) do process.yield() end
           -- They have arrived, and were not received.
           time.sleep(1)
           local refused = select(2, pcall(process.monitor, pid))
           for _ = 1, 65536 do assert(process.receive().down == pid) end
           for _ = 1, 100 do process.monitor(pid) end
           return refused
         end",
    );
    assert!(cap.contains("monitors at a time"), "{cap}");
    // Each reason has 64 KiB, so 2 MiB have room for some 30.
    let exits = attack(
        1 << 20,
        "function traps(main)
           process.trap_exits()
           process.send(main, 'traps')
           time.sleep(60000)
         end
         function main()
           local pid = process.spawn('traps', process.self())
           process.receive()
           local reason, count, ok, cause = ('x'):rep(65536), 0
           repeat
             ok, cause = pcall(process.exit, pid, reason)
             count = count + 1
           until not ok or count == 1000
           assert(count > 25 and count < 35, count)
           -- There is still room for less.
           while pcall(process.exit, pid, 'x') do end
           local linked, again = pcall(process.link, pid)
           assert(not linked and again == cause and process.info(pid))
           return cause
         end",
    );
    assert!(exits.ends_with("the mailbox of the process is full"), "{exits}");
    let received = attack(
        1 << 20,
        "function main()
           process.trap_exits()
           local own, count = process.self(), 0
           while pcall(process.exit, own, ('x'):rep(65536)) do count = count + 1 end
           for _ = 1, count do
             local message = process.receive()
             assert(message.exit == own and #message.reason > 65536)
           end
           assert(process.exit(own, 'normal') and process.receive().exit == own)
           return tostring(process.receive(0))
         end",
    );
    assert_eq!(received, "nil");
    let linked = attack(
        1 << 20,
        "function fails() error(('x'):rep(65536), 0) end
         function main()
           process.trap_exits()
           local count, ok, cause = 0
           repeat
             ok, cause = pcall(process.spawn_link, 'fails')
             count = count + 1
             if ok then while process.info(cause) do process.yield() end end
           until not ok or count == 1000
           assert(count < 1000, count)
           local started, again = supervisor.start { children = {} }
           assert(not started and again == cause)
           return cause
         end",
    );
    assert!(linked.ends_with(own_full), "{linked}");
    let dead = attack(
        100,
        "function nothing() end
         function main()
           local pid, count, ok, cause = process.spawn('nothing'), 0
           while process.info(pid) do process.yield() end
           process.trap_exits()
           repeat
             ok, cause = pcall(process.link, pid)
             count = count + 1
             if count % 10 == 0 then process.yield() end
           until not ok or count == 1000
           assert(count < 120, count)
           return cause
         end",
    );
    assert!(dead.ends_with(own_full), "{dead}");
}

/// The mailbox of a process is no larger than its limits, and a message that does not fit in what
/// others have left of its memory is an error that the program sees.
#[test]
fn a_message_does_not_end_a_receiver_with_limits() {
    let source = "
        function sink(main)
          process.send(main, #process.receive())
          process.receive()
        end
        function main()
          local sink = process.spawn({ 'sink', limits = { memory = 1 << 20 } }, process.self())
          process.monitor(sink)
          local sent, cause = process.send(sink, ('x'):rep(3 << 20))
          assert(sent == false)
          assert(process.send(sink, ('x'):rep(500 << 10)))
          assert(process.receive() == 500 << 10)
          return cause
        end";
    assert_eq!(text(run(&load(source))), "the mailbox of the process is full");
    let source = "
        function hog(parent)
          kept = {}
          for i = 1, 170 do kept[i] = ('x'):rep(10000) .. i end
          process.send(parent, 'full')
          process.receive()
        end
        function sink(main)
          process.spawn_link('hog', process.self())
          process.receive()
          process.send(main, 'ready')
          for _ = 1, 2 do
            local message, cause = process.receive()
            assert(message == nil)
            process.send(main, cause)
          end
          local answer, cause = process.call(main, 'large')
          assert(answer == nil)
          process.send(main, cause)
          process.receive()
        end
        function main()
          local sink = process.spawn({ 'sink', limits = { memory = 2 << 20 } }, process.self())
          process.monitor(sink)
          assert(process.receive() == 'ready')
          local large = ('x'):rep(900 << 10)
          assert(process.send(sink, large))
          local causes = { process.receive() }
          local none, cause = process.call(sink, large)
          assert(none == nil)
          causes[2], causes[3] = cause, process.receive()
          local request, call = process.receive()
          assert(request == 'large' and process.reply(call, large))
          causes[4] = process.receive()
          for i, cause in ipairs(causes) do causes[i] = tostring(type(cause) == 'table' and cause.reason or cause) end
          return table.concat(causes, '; ')
        end";
    let lost = "not enough memory for the message";
    let expected = [
        lost,
        "the process has no memory for the request",
        lost,
        "not enough memory for the result",
    ];
    assert_eq!(text(run(&load(source))), expected.join("; "));
}

/// Supervisors are processes, and keep the arguments of their children for restarts.
#[test]
fn supervisors_and_what_they_keep_count() {
    let source = "
        function starts(main)
          local first, cause = supervisor.start { children = {} }
          assert(first, cause)
          local count = 0
          repeat
            local started
            started, cause = supervisor.start {
              strategy = 'dynamic', children = { { id = 'nested', supervisor = { children = {} } } },
            }
            count = count + 1
          until not started or count == 100
          assert(count == 2, count)
          process.unlink(first)
          process.exit(first)
          -- The second one has a nested one, so two more would be one too many.
          local again
          repeat
            process.yield()
            again = supervisor.start { children = {} }
          until again
          assert(not supervisor.start { children = {} })
          process.send(main, cause)
        end
        function main()
          local limits = { processes = 4, memory = 1 << 20 }
          process.monitor((process.spawn({ 'starts', limits = limits }, process.self())))
          local found = process.receive()
          return type(found) == 'table' and found.reason or found
        end";
    let refused = text(run(&load(source)));
    assert_eq!(refused, "`starts` and all processes below it may have 4 processes");
    let source = "
        function idle() end
        function main()
          local tree, large, count = assert(supervisor.start { children = {} }), ('x'):rep(8 << 20), 0
          local function start(id)
            return supervisor.start_child(
              tree, { id = id, start = 'idle', args = { large }, restart = 'transient' })
          end
          local started, cause
          repeat
            count = count + 1
            started, cause = start('child ' .. count)
          until not started or count == 100
          assert(count == 4, count)
          while process.info(supervisor.which(tree)[1].pid or process.self()) == nil do process.yield() end
          supervisor.terminate_child(tree, 'child 1')
          assert(supervisor.delete_child(tree, 'child 1'))
          assert(start('again'))
          return cause
        end";
    assert_eq!(text(run(&load(source))), "the host may hold 33554432 bytes for the process");
}

/// A limit of a process bounds what is copied out of the process, as the limit of its program does.
#[test]
fn a_limit_of_memory_bounds_copies_json_and_files() {
    let file = std::env::temp_dir().join(format!("procession-large-{}", std::process::id()));
    std::fs::write(&file, vec![b'x'; 4 << 20]).expect("it can be written");
    let source = format!(
        "function limited(main)
           local text, many = ('x'):rep(1 << 16), {{}}
           for i = 1, 64 do many[i] = text end
           local causes = {{
             select(2, pcall(process.send, main, many)),
             select(2, pcall(json.encode, many)),
             select(2, fs.read({file:?})),
             select(2, pcall(process.spawn, 'limited', many)),
           }}
           process.send(main, table.concat(causes, '; '))
           -- A result is a copy, too.
           return many
         end
         function main()
           process.trap_exits()
           process.spawn_link({{ 'limited', limits = {{ memory = 2 << 20 }} }}, process.self())
           return process.receive() .. '; ' .. process.receive().reason
         end"
    );
    let refused = text(run(&load(&source).permissions(Permissions::none().read())));
    std::fs::remove_file(file).expect("it is there");
    assert_eq!(refused.matches("too large for the memory").count(), 4, "{refused}");
    assert_eq!(refused.matches("cannot read").count(), 1, "{refused}");
}

/// A program that uses much memory when it is loaded is also bounded by the limit of its process.
#[test]
fn a_limit_of_memory_bounds_the_program_while_it_is_loaded() {
    let source = "
        many = {}
        for i = 1, 1 << 18 do many[i] = i end
        function idle() process.receive() end
        function main()
          many = nil
          local limits = { memory = 1 << 20 }
          return select(2, pcall(process.spawn, { 'idle', limits = limits }))
        end";
    let refused = text(run(&load(source)));
    assert!(refused.contains("not enough memory"), "{refused}");
}

/// A process of the host has no account, and may receive more slowly than others send.
#[test]
fn a_process_of_the_host_is_not_flooded() {
    let source = "
        function main(sizes)
          local counts = {}
          for _, size in ipairs { 1 << 20, 1 << 12 } do
            local text, count, cause = ('x'):rep(size), 0
            while cause == nil do
              local sent
              sent, cause = process.send('host', text)
              count = count + (sent and 1 or 0)
              assert(sent or cause, 'it receives')
            end
            counts[#counts + 1] = count .. ' ' .. cause
          end
          -- One message for later at a time, each sent at once.
          for _ = 1, 100 do
            process.send_after(0, 'host', ('x'):rep(1 << 20))
            process.send_after(0, process.self(), 'sent')
            process.receive()
          end
          return table.concat(counts, '; ')
        end";
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let host = scheduler.start(|cx: procession::Context<procession_lua::Message>| async move {
        std::future::pending::<()>().await;
        drop(cx);
    });
    scheduler.register("host", host.pid()).expect("the name is free");
    let main = load(source).spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    let main = main.expect("the program has main");
    let counts = main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"));
    let waiting = scheduler.detail(host.pid()).expect("it lives").mailbox;
    let full = "the mailbox of the process is full";
    let (large, small) = (32, waiting - 32);
    assert_eq!(text(counts), format!("{large} {full}; {small} {full}"));
    // The larger messages take 32 MiB, and count as the smaller messages here.
    assert!((7000..8300).contains(&waiting), "{waiting}");
}

/// What a sender may do is decided for each message, whatever it or others have sent before.
#[test]
fn a_process_of_the_host_is_not_flooded_by_turns() {
    let source = "
        function one(main, to, text) process.send(main, (process.send(to, text))) end
        -- Sends a text to a process in each round, and then a smaller one to another one, until the
        -- first is refused.
        function rounds(main, to, other)
          local text, small, count = ('x'):rep(60000), ('x'):rep(6000), 0
          while count < 600 and process.send(to, text) do
            count = count + 1
            process.send(other, small)
          end
          process.send(main, count)
        end
        function main()
          local dead = process.spawn('one', process.self(), process.self(), 1)
          process.monitor(dead)
          for _ = 1, 3 do process.receive() end
          local counts = {}
          for i, given in ipairs { { 'host 1', 'host 2' }, { 'host 3', dead }, { 'host 4', 'host 4' } } do
            process.spawn('rounds', process.self(), given[1], given[2])
            counts[i] = process.receive()
          end
          local text, last = ('x'):rep(60000), 0
          repeat
            process.spawn('one', process.self(), 'host 5', text)
            local sent = process.receive()
            last = last + (sent and 1 or 0)
          until not sent or last == 600
          return table.concat(counts, ' ') .. ' ' .. last
        end";
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let hosts = [1, 2, 3, 4, 5].map(|number| {
        let host = scheduler.start(|cx: procession::Context<procession_lua::Message>| async move {
            std::future::pending::<()>().await;
            drop(cx);
        });
        scheduler.register(format!("host {number}"), host.pid()).expect("the name is free");
        host
    });
    let main = load(source).spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    let main = main.expect("the program has main");
    let counts = main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"));
    // 559 times 60 000 bytes are 32 MiB. The small messages count as the large messages.
    assert_eq!(text(counts), "559 559 280 559");
    drop(hosts);
}

/// The host waits for answers to its calls, so they have as much room again, as the answers of
/// guests.
#[test]
fn an_answer_to_a_process_of_the_host_has_room_of_its_own() {
    use procession_lua::Message;
    let program = load(
        "function main(host)
           local text = ('x'):rep(1 << 20)
           local _, call = process.receive()
           local count = 0
           while process.send(host, text) do count = count + 1 end
           local forged, proof = process.reply({ from = call.from, tag = 7 }, text), call.proof
           return count .. ' ' .. tostring(forged) .. ' ' .. tostring(process.reply(call, text))
         end",
    );
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let host = scheduler.start(move |mut cx: procession::Context<Message>| async move {
        let main = program.spawn("main", [cx.pid().into()]).expect("the program has main");
        let call = Message::Call { from: cx.pid(), tag: 7, value: Value::Nil };
        main.address().send(call).expect("it receives");
        let counts = main.await;
        let mut last = None;
        for _ in 0..33 {
            last = cx.recv().await;
        }
        assert!(matches!(last, Some(Message::Answer { tag: 7, .. })), "the last is the answer");
        counts
    });
    let counts = host.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it must end"));
    assert_eq!(text(counts.expect("it does not panic")), "32 false true");
}

/// Each process begins limits inside of the limits of its predecessor.
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
        text(run(&load(&source)))
    };
    assert_eq!(chain("", 100), "done");
    assert_eq!(chain("timers = 1", 32), "done");
    let refused = chain("timers = 1", 34);
    let cause =
        "`limits` may be inside of one another 32 times: so many already count this process";
    assert!(refused.starts_with("2: ") && refused.contains(cause), "{refused}");
}

/// Timers fire after their process has ended, so they count until then, whichever process set them.
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
    let found = |source: &str| {
        let scheduler =
            Scheduler::builder().worker_threads(2).build().expect("the system has threads");
        let main = run_on(&scheduler, &load(source));
        // The timers of the host are still served.
        let sleeps = SpawnOptions::new().on(&scheduler).spawn(async {
            procession::sleep(Duration::from_millis(1)).await;
        });
        sleeps.join_timeout(TIMEOUT).expect("it ends").expect("it does not fail");
        text(main)
    };
    let limited = found(&fill("{ 'rounds', limits = { processes = 2 } }", 1 << 16, 1));
    let cause = "`rounds` and all processes below it may have 67108864 bytes of messages for later";
    assert!(limited.starts_with("2: ") && limited.contains(cause), "{limited}");
    assert!(limited.ends_with("; true"), "others have room: {limited}");
    let all = found(&fill("'rounds'", 31, 1 << 20));
    let cause =
        "all processes of the program together may have 268435456 bytes of messages for later";
    assert!(all.starts_with("9: ") && all.contains(cause), "{all}");
}
