//! Supervisors, groups, timers, dates, folders and datagrams of guests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Output, Permissions, Program, Value};

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
        function broken(owner)
          process.send(owner, process.self())
          process.receive()
          error('as told')
        end
        function owner()
          process.receive()
          local children = { { start = 'broken', args = { process.self() } } }
          supervisor.start { intensity = 2, children = children }
          -- It is linked now, and has not given up yet.
          while true do process.send(process.receive(), 'fail') end
        end
        function main()
          local owner = process.spawn('owner')
          process.monitor(owner)
          process.send(owner, 'begin')
          return process.receive().reason
        end";
    match run(source) {
        Ok(Value::String(reason)) => {
            let reason = String::from_utf8_lossy(&reason).into_owned();
            assert!(reason.contains("the supervisor gave up"), "{reason}");
        }
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
fn a_message_for_later_takes_memory_of_its_sender_until_its_time_has_come() {
    let source = "
        function nothing() end
        function main()
          local own, timers, text = process.self(), {}, ('x'):rep(1 << 18)
          for i = 1, 7 do timers[i] = process.send_after(60000, own, text) end
          local sent, cause = pcall(process.send_after, 60000, own, text)
          assert(not sent and cause:find('may hold 2097152 bytes'), cause)
          -- They take no room in the mailbox yet.
          for i = 1, 10 do assert(process.send(own, i)) end
          assert(process.send(own, 11) == false)
          for i = 1, 10 do assert(process.receive() == i) end
          for i = 1, 6 do assert(process.cancel_timer(timers[i])) end
          for i = 1, 200 do process.send_after(0, own, text) process.receive() end
          -- At its time, a message without room is dropped.
          for i = 1, 10 do assert(process.send(own, i)) end
          assert(process.send_after(0, own, 'lost'))
          time.sleep(5)
          for i = 1, 10 do assert(process.receive() == i) end
          assert(select(2, process.receive(5)) == 'timeout')
          local ended = process.spawn('nothing')
          while process.info(ended) do process.yield() end
          local refused = process.send_after(1, ended, text)
          assert(refused == false and process.cancel_timer(refused) == false)
          return process.cancel_timer(timers[7])
        end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.mailbox_limit(10).memory_limit(4 << 20);
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
          assert(not pcall(group.send, 'g', print))
          assert(group.send('g', 'end') == 2 and group.send('none', 'end') == 0)
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

/// The library has no line information, and a program should not see a place that is none.
#[test]
fn errors_in_functions_of_the_library_have_no_false_place() {
    let source = "
        function main(how)
          local function act() table.sort({ {}, {} }) end
          local expected = 'attempt to compare two table values'
          local function check(ok, cause) assert(not ok and cause == expected, cause) end
          check(pcall(act))
          check(pcall(table.sort, { {}, {} }))
          check(coroutine.resume(coroutine.create(act)))
          check(pcall(coroutine.wrap(act)))
          local handled
          assert(not xpcall(act, function(cause) handled = cause end))
          assert(handled == expected, handled)
          check(pcall(string.gsub, 'a', 'a', setmetatable({}, { __index = function() act() end })))
          act()
        end";
    match run(source) {
        Err(Exit::Failed(text)) => {
            let expected = "runtime error: attempt to compare two table values\nstack traceback:";
            assert!(text.starts_with(expected), "{text}");
        }
        other => panic!("the program must fail: {other:?}"),
    }
}

/// Starts a server of HTTP in Lua, and connects to it.
fn connected(scheduler: &Scheduler) -> TcpStream {
    let source = "
        function answer(request) return 'body' end
        function serve(listener) http.serve(listener, 'answer', 60000) end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          process.spawn('serve', listener)
          return listener:address()
        end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.permissions(Permissions::all());
    let main = program.spawn_with(SpawnOptions::new().on(scheduler), "main", []);
    match main.expect("the program has main").join_timeout(TIMEOUT).expect("it ends") {
        Ok(Value::String(address)) => {
            let address = std::str::from_utf8(&address).expect("it is text");
            TcpStream::connect(address).expect("it listens")
        }
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

/// A connection that is closed while something is unread is reset, and what was written last is
/// lost.
#[test]
fn a_client_that_has_sent_more_than_was_read_reads_the_answer() {
    let scheduler = scheduler();
    let refused = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n";
    let mut client = connected(&scheduler);
    client.write_all(refused.as_bytes()).expect("it reads");
    client.write_all(&vec![b'x'; 8 << 20]).expect("it reads what it does not want");
    let mut got = String::new();
    client.read_to_string(&mut got).expect("the connection ends in order");
    assert!(got.starts_with("HTTP/1.1 413 ") && got.ends_with("Content Too Large\n"), "{got}");

    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut client = connected(&scheduler);
    client.write_all(last.as_bytes()).expect("it reads");
    // Most of this arrives while the answer is on its way.
    client.write_all(&vec![b'x'; 8 << 20]).expect("it reads what it does not want");
    let mut got = String::new();
    client.read_to_string(&mut got).expect("the connection ends in order");
    assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("body"), "{got}");

    // There is an end to its patience.
    let mut client = connected(&scheduler);
    client.write_all(refused.as_bytes()).expect("it reads");
    let part = vec![b'x'; 1 << 20];
    assert!((0..64).any(|_| client.write_all(&part).is_err()), "it must close the connection");
}

/// Sends bytes to a server of HTTP in Lua, which answers with the method, the path, the header
/// `x-seen` and the body, and returns the whole answer.
fn talk(parts: &[&str]) -> String {
    let source = "
        function answer(request)
          if request.path == '/none' then return { status = 204, body = 'no' } end
          if request.path == '/bye' then return { headers = { Connection = 'Close' }, body = 'bye' } end
          if request.path == '/hidden' then
            error(setmetatable({}, { __tostring = function() error('broken') end }))
          end
          if request.path == '/wrong' then return { headers = { ['a b'] = 1 } } end
          return { headers = { ['content-length'] = 7 },
            body = table.concat({ request.method, request.path, request.headers.host or '-',
              request.headers['x-seen'] or '-', request.body }, ' ') }
        end
        function serve(listener) http.serve(listener, 'answer', 200) end
        function main(...)
          local listener = assert(net.listen('127.0.0.1:0'))
          process.spawn('serve', listener)
          local client, got = assert(net.connect(listener:address())), ''
          for _, part in ipairs { ... } do
            if part == '?' then got = client:read() else client:write(part) end
          end
          while true do
            local bytes = client:read(65536, 5000)
            if not bytes then return got end
            got = got .. bytes
          end
        end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.permissions(Permissions::all());
    let scheduler = scheduler();
    let given = parts.iter().map(Value::string);
    let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", given);
    let main = main.expect("the program has main");
    match main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end")) {
        Ok(Value::String(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

fn ok(body: &str, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
}

#[test]
fn the_http_server_follows_the_protocol() {
    let close = "Connection: close\r\n";
    // The last request asks for the end of the connection.
    let end = "GET /e HTTP/1.1\r\nHost: h\r\nConnection: foo,  Close\r\n\r\n";
    let last = ok("GET /e h - ", close);
    let failed =
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 22\r\n\r\nInternal Server Error\n";
    for (sent, expected) in [
        ("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"),
        ("GET /none HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET http://other:81?q HTTP/1.1\r\nHost: h\r\n\r\n", &ok("GET / other:81 - ", "")),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", &ok("OPTIONS * h - ", "")),
        (
            "\r\nGET /a HTTP/1.1\r\nHost: h\r\nX-Seen: 1\r\nx-seen:2\r\n\r\n",
            &ok("GET /a h 1, 2 ", ""),
        ),
        (
            "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
            &ok("GET /a - - ", "Connection: keep-alive\r\n"),
        ),
        (
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: 1\r\n\r\n",
            &ok("POST /a h - abcde", ""),
        ),
        ("GET /wrong HTTP/1.1\r\nHost: h\r\n\r\n", failed),
        ("GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n", failed),
    ] {
        assert_eq!(talk(&[sent, end]), format!("{expected}{last}"), "{sent}");
    }
    // The client sends the body once it was told to.
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-Continue\r\nConnection: close\r\n\r\n";
    let told = format!("HTTP/1.1 100 Continue\r\n\r\n{}", ok("POST /a h - body", close));
    assert_eq!(talk(&[head, "?", "body"]), told);
    for (sent, expected) in [
        ("GET /a HTTP/1.0\r\n\r\n", ok("GET /a - - ", close)),
        ("GET /bye HTTP/1.1\r\nHost: h\r\n\r\n", ok("bye", close)),
    ] {
        assert_eq!(talk(&[sent]), expected, "{sent}");
    }
    let chunked = |rest: &str| {
        format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{rest}")
    };
    let long = "x".repeat(6000);
    for (sent, status) in [
        // The two ends might see different ends of these.
        ("POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", "400"),
        ("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: \u{c}0\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: else\r\n\r\n",
            "400",
        ),
        (&chunked("3\nabc\r\n0\r\n\r\n"), "400"),
        (&chunked("3;x\ry\r\nabc\r\n0\r\n\r\n"), "400"),
        (&chunked("\u{c}3\r\nabc\r\n0\r\n\r\n"), "400"),
        (&chunked(&format!("{}1\r\na\r\n0\r\n\r\n", "0".repeat(16))), "400"),
        (&chunked(&format!("{}0\r\n\r\n", format!("1;{long}\r\na\r\n").repeat(3))), "400"),
        (&chunked(&format!("0\r\n{}\r\n", format!("T: {long}\r\n").repeat(3))), "431"),
        (
            &format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", format!("T: {long}\r\n").repeat(11)),
            "431",
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET nothing HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", "505"),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
        ("G\"T / HTTP/1.1\r\nHost: h\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\u{1}b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nExpect: else\r\n\r\n", "417"),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", "413"),
        // The time is for the whole head.
        ("GET / HTTP/1.1\r\nHost: h\r\n", "408"),
    ] {
        let found = talk(&[sent]);
        assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{sent}: {found}");
        assert!(found.contains(close), "{found}");
    }
}

#[test]
fn the_http_client_reads_all_kinds_of_bodies() {
    let source = "
        local ANSWERS = {
          ['/length'] = 'HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nabc',
          ['/chunked'] = 'HTTP/1.1 100 Continue\\r\\n\\r\\nHTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n1\\r\\na\\r\\n2\\r\\nbc\\r\\n0\\r\\n\\r\\n',
          ['/close'] = 'HTTP/1.0 200 OK\\r\\n\\r\\nabc',
          ['/empty'] = 'HTTP/1.1 204 No Content\\r\\nContent-Length: 3\\r\\n\\r\\n',
          ['/short'] = 'HTTP/1.1 200 OK\\r\\nContent-Length: 30\\r\\n\\r\\nabc',
          ['/other'] = 'SSH-2.0-x\\r\\n',
          ['/interim'] = ('HTTP/1.1 103 Early Hints\\r\\n\\r\\n'):rep(17) .. 'HTTP/1.0 200 OK\\r\\n\\r\\nabc',
          ['/old'] = 'HTTP/1.0 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n',
        }
        function answer(connection)
          local reader = net.reader(connection)
          local path = reader.line():match('^GET (%S+)')
          repeat until reader.line() == ''
          if ANSWERS[path] then connection:write(ANSWERS[path]) else process.receive(60000) end
          connection:close()
        end
        function serve(listener) net.serve(listener, 'answer') end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          process.spawn('serve', listener)
          local base, found = 'http://' .. listener:address(), {}
          for _, path in ipairs { '/length', '/chunked', '/close', '/empty', '/short', '/other', '/interim', '/old', '/silent' } do
            local response, cause = http.get(base .. path .. '#part', path == '/silent' and 5 or 5000)
            found[#found + 1] = response and response.status .. ' ' .. response.body or cause
          end
          for _, url in ipairs { 'https://', 'ftp://a', 'http://', 'http://a b', 'http://me@a/' } do
            local response, cause = http.get(url)
            assert(response == nil and cause:find('not valid'), url)
          end
          local long, cause = http.request { url = base .. '/length', body_max = 2 }
          found[#found + 1] = tostring(long) .. ' ' .. cause
          assert(not pcall(http.request, { url = base, headers = { a = 'b\\r\\nc' } }))
          for _, field in ipairs { 'method', 'body' } do
            local ok, cause = pcall(http.request, { url = base, [field] = {} })
            assert(not ok and cause:find('the ' .. field .. ' of a request must be a string', 1, true), cause)
          end
          return table.concat(found, '; ')
        end";
    let expected = "200 abc; 200 abc; 200 abc; 204 ; the connection has ended within the answer; the answer is not HTTP; the answer is not HTTP; the answer is not HTTP; timeout; nil the body is too long";
    assert_eq!(run(source), Ok(Value::string(expected)));
}

#[test]
fn a_program_may_replace_and_add_functions_of_the_library() {
    let source = "
        local original = process.self
        function process.self() return original() end
        function process.own() return process.self() end
        function string.trim(text) return text:match('^%s*(.-)%s*$') end
        function json.encode() return 'replaced' end
        function main()
          local count = 0
          for name, value in pairs(process) do
            assert(type(value) == 'function' and process[name] == value, name)
            count = count + 1
          end
          assert(count == 21, count)
          assert(json.encode(1) == 'replaced' and json.decode('1') == 1)
          for _ in pairs(json) do end
          assert(json.encode(1) == 'replaced' and json.nothing == nil and fs.nothing == nil)
          assert(process.own() == original() and process.send == process.send)
          return (' x '):trim() .. ('y'):upper()
        end";
    assert_eq!(run(source), Ok(Value::string("xY")));
}

#[test]
fn a_table_of_the_library_is_like_any_other_table() {
    let source = "
        -- The first of these is made alone, the second with others, the third when it is first used.
        process.send, string.rep, process.info = nil, nil, nil
        rawset(process, 'link', nil)
        function main()
          assert(process.send == nil and string.rep == nil and rawget(process, 'info') == nil)
          assert(process.link == nil and process.self() == process.self())
          -- A function that was used and then removed.
          process.self, json.decode = nil, nil
          assert(process.self == nil and json.decode == nil and json.encode(1) == '1')
          process.whereis = 1
          process.whereis = nil
          local found = {}
          for name, value in next, process do found[name] = value end
          assert(found.spawn == process.spawn and type(found.exit) == 'function')
          for _, name in ipairs { 'send', 'info', 'link', 'self', 'whereis' } do
            assert(found[name] == nil and process[name] == nil, name)
          end
          assert(type(rawget(math, 'floor')) == 'function' and next(utf8) ~= nil and getmetatable(fs) == nil)
          rawset(time, 'now', 'mine')
          assert(time.now == 'mine' and type(time.sleep) == 'function')
          setmetatable(table, { __index = { more = 1 } })
          assert(table.more == 1 and table.concat({ 'a' }) == 'a')
          local count = 0
          for _ in pairs(net) do count = count + 1 end
          assert(count == 5, count)
          return next({ x = 1 })
        end";
    assert_eq!(run(source), Ok(Value::string("x")));
}

#[test]
fn a_server_of_a_closed_listener_is_an_error() {
    let source = "
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          listener:close()
          listener:close()
          local ok, cause = pcall(net.serve, listener, 'main')
          local http_ok, http_cause = pcall(http.serve, listener, 'main')
          assert(not ok and not http_ok and http_cause:find('closed or forgot'), http_cause)
          return cause
        end";
    let Ok(Value::String(cause)) = run(source) else { panic!("it returns the cause") };
    assert!(String::from_utf8_lossy(&cause).contains("closed or forgot"));
}

/// While a server waits for a connection, it receives nothing.
#[test]
fn a_server_with_a_full_mailbox_serves() {
    let source = "
        function answer(connection) connection:write(connection:read() .. '!') connection:close() end
        function respond() return { body = 'there' } end
        function serve(listener) net.serve(listener, 'answer') end
        function serve_http(listener) http.serve(listener, 'respond') end
        local function flood(pid, most)
          local count = 0
          while count < most and process.send(pid, count) do count = count + 1 end
          return count
        end
        function floods(pid) while true do flood(pid, 1e9) process.yield() end end
        function main()
          for _, name in ipairs { 'serve', 'serve_http' } do
            local listener = assert(net.listen('127.0.0.1:0'))
            local pid = process.spawn(name, listener)
            process.monitor(pid)
            local function use()
              if name == 'serve_http' then
                return assert(http.get('http://' .. listener:address())).body
              end
              local connection = assert(net.connect(listener:address()))
              assert(connection:write('here'))
              local text = assert(connection:read())
              connection:close()
              return text
            end
            local wanted = name == 'serve' and 'here!' or 'there'
            assert(flood(pid, 1e9) >= 1000)
            for _ = 1, 3 do assert(use() == wanted) end
            -- It may also come all the time.
            local one = process.spawn('floods', pid)
            for _ = 1, 20 do assert(use() == wanted) end
            process.exit(one, 'kill')
            process.cancel(pid)
            local down = process.receive()
            assert(down.down == pid and down.reason == 'the process ended normally', down.reason)
          end
          return 'serves'
        end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.mailbox_limit(1000).permissions(Permissions::all());
    assert_eq!(run_on(&scheduler(), &program), Ok(Value::string("serves")));
}

/// Goal: a client that the system has accepted is served, although the server was cancelled before
/// it could accept the client.
#[test]
fn a_cancelled_server_serves_the_connections_that_wait() {
    let source = "
        function answer(connection)
          connection:write(connection:read() .. '!')
          connection:close()
        end
        function respond() return { body = 'there' } end
        function serve(name, listener)
          assert(select(2, process.receive()) == 'cancelled')
          if name == 'net' then net.serve(listener, 'answer') else http.serve(listener, 'respond') end
        end
        function main()
          local found = {}
          for _, name in ipairs { 'net', 'http' } do
            local listener = assert(net.listen('127.0.0.1:0'))
            local address, clients = listener:address(), {}
            for i = 1, 3 do
              clients[i] = assert(net.connect(address))
              assert(clients[i]:write(name == 'net' and 'here' or 'GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n'))
            end
            local pid = process.spawn('serve', name, listener)
            listener:forget()
            process.monitor(pid)
            process.cancel(pid)
            for _, client in ipairs(clients) do
              local text = ''
              repeat
                local bytes = client:read()
                text = text .. (bytes or '')
              until not bytes
              found[#found + 1] = text:match('%S+$')
            end
            assert(process.receive().reason == 'the process ended normally')
          end
          return table.concat(found, ' ')
        end";
    assert_eq!(run(source), Ok(Value::string("here! here! here! there there there")));
}

/// How a server answers, and a function that cancels a server which is monitored, and returns what
/// each client receives until its end.
const CANCELLED: &str = "
        function answer(connection)
          connection:write('hello ')
          connection:write(connection:read() or 'bye')
          connection:close()
        end
        function cancelled(pid, clients)
          process.cancel(pid)
          local found = {}
          for i, client in ipairs(clients) do
            found[i] = ''
            repeat
              local bytes = client:read()
              found[i] = found[i] .. (bytes or '')
            until not bytes
          end
          assert(process.receive().reason == 'the process ended normally')
          return table.concat(found, ', ')
        end";

/// Goal: the connections that a limit keeps waiting are served after a cancel.
#[test]
fn a_cancelled_server_without_room_serves_the_connections_that_wait() {
    let source = "
        function serve(listener) net.serve(listener, 'answer') end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          local pid = process.spawn({ 'serve', limits = { sockets = 2 } }, listener)
          process.monitor(pid)
          local clients = {}
          for i = 1, 2 do
            clients[i] = assert(net.connect(listener:address()))
            assert(clients[i]:read() == 'hello ')
          end
          for i = 3, 4 do
            clients[i] = assert(net.connect(listener:address()))
            assert(clients[i]:write('here'))
          end
          listener:forget()
          return cancelled(pid, clients)
        end";
    assert_eq!(
        run(&[source, CANCELLED].concat()),
        Ok(Value::string("bye, bye, hello here, hello here"))
    );
}

/// Goal: the connections that wait are also served if each needs the process of another one.
#[test]
fn a_cancelled_server_waits_for_room_for_its_processes() {
    let source = "
        function serve(listener)
          assert(select(2, process.receive()) == 'cancelled')
          net.serve(listener, 'answer')
        end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          local clients = {}
          for i = 1, 4 do
            clients[i] = assert(net.connect(listener:address()))
            if i > 2 then assert(clients[i]:write('here')) end
          end
          local pid = process.spawn({ 'serve', limits = { processes = 3 } }, listener)
          listener:forget()
          process.monitor(pid)
          return cancelled(pid, clients)
        end";
    let found = "hello bye, hello bye, hello here, hello here";
    assert_eq!(run(&[source, CANCELLED].concat()), Ok(Value::string(found)));
}

/// Goal: a server that drains ends although new clients come all the time.
#[test]
fn a_cancelled_server_serves_no_client_that_comes_later() {
    let source = "
        function answer(connection)
          connection:write('hello')
          connection:read()
          connection:close()
        end
        function serve(listener) net.serve(listener, 'answer') end
        function load(address, main)
          local served, client = 0, assert(net.connect(address))
          process.send(main, 'connected')
          while client do
            if client:read() == 'hello' then served = served + 1 end
            client:close()
            client = net.connect(address)
          end
          process.send(main, served)
        end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          local pid = process.spawn({ 'serve', limits = { sockets = 1 } }, listener)
          process.monitor(pid)
          local holds = assert(net.connect(listener:address()))
          assert(holds:read() == 'hello')
          for _ = 1, 3 do process.spawn('load', listener:address(), process.self()) end
          for _ = 1, 3 do assert(process.receive() == 'connected') end
          listener:forget()
          process.cancel(pid)
          local served = 0
          for _ = 1, 4 do
            local message = process.receive()
            served = served + (math.type(message) and message or 0)
          end
          return served
        end";
    assert_eq!(run(source), Ok(3.into()));
}

/// Goal: clients wait while a limit leaves no room for their processes.
#[test]
fn a_server_without_room_for_a_process_drops_no_client() {
    let source = "
        function answer(connection)
          connection:write('hello ')
          connection:write(connection:read())
          connection:close()
        end
        function serve(listener) net.serve(listener, 'answer') end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          process.spawn({ 'serve', limits = { processes = 2 } }, listener)
          local clients, found = {}, {}
          for i = 1, 3 do clients[i] = assert(net.connect(listener:address())) end
          for i, client in ipairs(clients) do
            found[i] = client:read()
            client:write('here')
            found[i] = (found[i] or 'nothing') .. (client:read() or '')
          end
          return table.concat(found, ', ')
        end";
    assert_eq!(run(source), Ok(Value::string("hello here, hello here, hello here")));
}

/// Goal: what a server logs while it has no room does not grow with the number of its tries.
/// Method: no process waits for a socket, so that the test clock moves.
#[test]
fn a_server_without_room_logs_a_line_per_second() {
    let source = "
        function answer() process.receive() end
        function serve(listener) net.serve(listener, 'answer') end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          process.spawn({ 'serve', limits = { sockets = 1 } }, listener)
          local clients = {}
          for i = 1, 2 do clients[i] = assert(net.connect(listener:address())) end
          time.sleep(10000)
        end";
    let (mut reader, writer) = std::io::pipe().expect("there are descriptors");
    let program = Program::load("test", source).expect("the source is valid Lua");
    let program = program.permissions(Permissions::all());
    let program = program.output(Output::new(std::io::sink()), Output::new(writer));
    let scheduler =
        Scheduler::builder().test_clock().build().expect("the test clock needs no threads");
    let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    assert_eq!(scheduler.block_on(main.expect("it has main")), Ok(Value::Nil));
    drop((scheduler, program));
    let mut log = String::new();
    reader.read_to_string(&mut log).expect("it is text");
    let lines = log.lines().filter(|line| line.contains("cannot accept")).count();
    assert!((5..=11).contains(&lines), "{lines} lines: {log}");
}

/// The globals of the library are made when they are first used. A program does not see that.
#[test]
fn the_table_of_the_globals_is_like_any_other_table() {
    let source = "
        -- The first is removed before it is made, the second afterwards, the third once it was replaced.
        os = nil
        assert(json.encode(1) == '1')
        json = nil
        function log() end
        log = nil
        print = 1
        function main()
          assert(os == nil and json == nil and log == nil and print == 1 and nothing == nil)
          assert(getmetatable(_G) == nil and type(rawget(_G, 'fs')) == 'table' and rawget(_G, 'os') == nil)
          local found = {}
          for name, value in next, _G do found[name] = value end
          for _, name in ipairs { 'os', 'json', 'log' } do assert(found[name] == nil, name) end
          for _, name in ipairs { 'coroutine', 'fs', 'math', 'process', 'string', 'table', 'time', 'utf8' } do
            assert(type(found[name]) == 'table' and found[name] == _G[name], name)
          end
          for _, name in ipairs {
            'getmetatable', 'load', 'next', 'pcall', 'rawget', 'rawset', 'require', 'setmetatable', 'xpcall',
          } do assert(type(found[name]) == 'function' and found[name] == _G[name], name) end
          for _, name in ipairs { 'collectgarbage', 'debug', 'dofile', 'loadfile', 'warn' } do
            assert(found[name] == nil, name)
          end
          setmetatable(_G, { __index = function(_, name) return 'no ' .. name end })
          assert(os == 'no os' and fs == found.fs and require('string') == string)
          assert(('x'):rep(2) == 'xx' and getmetatable('').__index == string)
          return missing
        end";
    assert_eq!(run(source), Ok(Value::string("no missing")));
    let strict = "
        setmetatable(_G, { __newindex = function(_, name) error('a new global ' .. name, 2) end })
        function late() end";
    let refused = Program::load("strict", strict).expect("it is Lua").spawn("main", []);
    assert!(refused.expect_err("it fails").to_string().contains("a new global late"));
}

#[test]
fn a_reader_takes_time_in_proportion_to_the_bytes_and_limits_the_whole_call() {
    let source = "
        function drip(connection)
          for _ = 1, 300 do
            if not connection:write('x') then return end
            time.sleep(1)
          end
        end
        function main()
          local listener = assert(net.listen('127.0.0.1:0'))
          local client = assert(net.connect(listener:address()))
          process.spawn('drip', assert(listener:accept()))
          local reader = net.reader(client)
          -- Each byte comes in time, but the line does not.
          local none, cause = reader.line(1000, 50)
          assert(none == nil and cause == 'timeout' and reader.buffered() > 0)
          local text = assert(reader.exactly(200, 60000))
          assert(text == ('x'):rep(200) and reader.wait(60000) == true)
          none, cause = reader.line(5, 60000)
          return cause
        end";
    assert_eq!(run(source), Ok(Value::string("too long")));
}

#[test]
fn a_process_starts_none_above_its_own_priority() {
    let source = r#"
        function child(main) process.send(main, process.info().priority) end
        function start(priority)
          process.spawn({ "child", priority = priority }, process.self())
          return process.receive()
        end
        function batch(main)
          local normal, cause = pcall(process.spawn, { "child", priority = "normal" }, main)
          assert(not normal and cause:find("a process that is batch cannot start a process that is normal"))
          process.spawn("child", main)
        end
        function main()
          assert(process.info().priority == "normal")
          assert(start("batch") == "batch" and start("normal") == "normal" and start() == "normal")
          assert(not pcall(start, "high") and not pcall(start, "low") and not pcall(start, 1))
          process.spawn({ "batch", priority = "batch" }, process.self())
          assert(process.receive() == "batch", "a batch process starts batch processes")
        end"#;
    assert_eq!(run(source), Ok(Value::Nil));
}
