//! Functions of Lua's libraries that loop in C, where nothing can end them: each call is bounded,
//! or its process can be terminated.

use std::time::Duration;

use procession::{Scheduler, SpawnOptions};
use procession_lua::{Program, Value};

/// Longer than any call takes, also in a build without optimizations on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls in a process. Returns how it ended.
fn ended(call: &str) -> String {
    ended_within(call, 15_000)
}

/// Calls in a process that is terminated after some milliseconds.
fn ended_within(call: &str, patience: u32) -> String {
    let source = format!(
        "function calls(main)
           process.receive()
           process.send(main, 'begins')
           ;{call}
           error('the call returned')
         end
         function main()
           local pid = process.spawn('calls', process.self())
           process.monitor(pid)
           process.send(pid, 'begin')
           assert(process.receive() == 'begins')
           local down = process.receive({patience})
           if not down then
             process.exit(pid, 'kill')
             down = process.receive()
           end
           return down.reason
         end"
    );
    let program = Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {call}"));
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    // If a call never ends, its scheduler cannot end either.
    let scheduler = Box::leak(Box::new(scheduler));
    let main = program.spawn_with(SpawnOptions::new().on(scheduler), "main", []);
    let main = main.expect("the program has main");
    match main.join_timeout(TIMEOUT) {
        Ok(Ok(Value::String(reason))) => String::from_utf8_lossy(&reason).into_owned(),
        Ok(other) => panic!("{call}: {other:?}"),
        Err(_) => panic!("{call}: it does not end"),
    }
}

#[test]
fn a_range_has_a_bound_in_each_form_of_a_number() {
    for range in [
        "'1', '4000000000000000000'",
        "' 0x1p0 ', ' 4e18 '",
        "1, 2^53",
        "1.0, 0x1p62",
        "-(1 << 61), 1 << 61",
        "'-4000000000000000000', 1",
    ] {
        for call in ["table.move({}, RANGE, 1)", "table.concat(setmetatable({}, {}), '', RANGE)"] {
            let call = call.replace("RANGE", range);
            let reason = ended(&call);
            assert!(reason.contains("a range of more than 4194304 entries"), "{call}: {reason}");
        }
        let reason = ended(&format!("table.unpack({{}}, {range})"));
        assert!(reason.contains("too many results to unpack"), "{range}: {reason}");
    }
    for range in ["{}, 1", "'x', 1", "1, 1.5", "1, 0/0", "1, '1e'"] {
        let reason = ended(&format!("table.move({{}}, {range}, 1)"));
        assert!(reason.contains("bad argument #"), "{range}: {reason}");
    }
    let huge = "table.move({}, math.mininteger, math.maxinteger, 1)";
    assert!(ended(huge).contains("a range of more than"), "{}", ended(huge));
}

/// A program can change the metatable of texts, so that Lua's own functions take them for lists.
#[test]
fn a_text_is_no_list() {
    let endless = "local m, rep = getmetatable(''), string.rep
        m.__len, m.__index, m.__newindex = true, function() end, {} ";
    for call in [
        "table.concat('', '', 1, 4000000)",
        "table.insert(rep('x', 30 << 20), 1, nil)",
        "table.remove(rep('x', 30 << 20), 1)",
        "table.move('', 1, 4000000, 1, {})",
        "table.move({}, 1, 4000000, 1, '')",
        "table.sort(rep('x', 30 << 20), rawequal)",
    ] {
        let reason = ended(&format!("{endless} {call}"));
        assert!(reason.contains("table expected, got string"), "{call}: {reason}");
    }
    for call in ["insert(1, 1)", "remove()", "concat(print)", "move({}, 1, 1, 1, 1)", "sort(true)"]
    {
        let reason = ended(&format!("table.{call}"));
        assert!(reason.contains("table expected, got "), "{call}: {reason}");
    }
    let wide = "table.unpack(setmetatable({}, {}), math.mininteger, math.maxinteger)";
    assert!(ended(wide).contains("a range of more than"), "{}", ended(wide));
    // Lua's own function takes anything with an index.
    assert!(ended("assert(select('#', table.unpack('abc')) == 3)").contains("returned"));
}

/// The length of a table with holes is any of its borders.
#[test]
fn a_table_that_claims_to_be_long_is_none() {
    let long = "local t = {} for i = 0, 62 do t[1 << i] = 1 end t[5], t[9] = 1, 1 ";
    for call in ["insert(t, 1, nil)", "remove(t, 1)", "sort(t)"] {
        let reason = ended(&format!("{long} table.{call}"));
        assert!(reason.contains("a table of more than 4194304 entries"), "{call}: {reason}");
    }
    let ends = "table.insert(t, 'x') assert(table.remove(t) == 'x')";
    assert!(ended(&format!("{long} {ends}")).contains("the call returned"));
}

#[test]
fn a_call_does_no_more_than_its_texts_are_long() {
    let call = "local text, all = ('x'):rep(20 << 20), {}
        for i = 1, 100000 do all[i] = text end
        string.format(('%.1s'):rep(100000), table.unpack(all))";
    let reason = ended(call);
    assert!(reason.contains("too many or too long arguments for 'format'"), "{reason}");
    let call = "local named, all = setmetatable({}, { __name = ('x'):rep(8 << 20) }), {}
        for i = 1, 100000 do all[i] = named end
        string.format(('%.0s'):rep(100000), table.unpack(all))";
    let reason = ended(call);
    assert!(reason.contains("too many or too long arguments for 'format'"), "{reason}");
    let call = "local number, all = ('0'):rep(8 << 20), {}
        for i = 1, 100000 do all[i] = number end
        string.pack(('b'):rep(100000), table.unpack(all))";
    let reason = ended(call);
    assert!(reason.contains("too many or too long arguments for 'pack'"), "{reason}");
    for call in [
        "('a b'):rep(500000):gsub('(%f[b])b', ('%1'):rep(5 << 20))",
        "(('x'):rep(2000)):find('%f[' .. ('a'):rep(8 << 20) .. ']')",
        "(('x'):rep(2000)):find('y?%f[^' .. ('a'):rep(8 << 20) .. ']')",
        "while true do (''):find('[' .. ('a'):rep(8 << 20) .. ']') end",
    ] {
        let reason = ended_within(call, 100);
        assert!(reason.contains("terminated"), "{call}: {reason}");
    }
    let once = "assert(('aa'):gsub('a', function() return 'b' end, '1') == 'ba')";
    assert!(ended(once).contains("the call returned"));
    let texts = "assert(string.format(('%s'):rep(20), table.unpack({}, 1, 20)) == ('nil'):rep(20))
        local named = setmetatable({}, { __name = 'point', __metatable = 'hidden' })
        local shown = string.format(('%s '):rep(20), named, table.unpack({}, 1, 19))
        assert(shown:find('^point: 0x%x+ nil '), shown)
        local bytes = { 65, '66', 67 }
        for i = 4, 20 do bytes[i] = i end
        assert(string.pack(('b'):rep(20), table.unpack(bytes)):sub(1, 3) == 'ABC')";
    assert!(ended(texts).contains("the call returned"));
}

/// Such a call is one instruction, which would not count as work.
#[test]
fn an_iterator_without_matches_does_not_search_again() {
    let call = "local act = ('x'):rep(9000000):gmatch('y')
        assert(act() == nil)
        local begin = time.now()
        for _ = 1, 200 do assert(act() == nil) end
        assert(time.now() - begin < 2000)
        local found = {}
        for a, b in (('ab'):rep(600) .. 'c'):gmatch('(a)()b') do found[#found + 1] = b end
        assert(#found == 600 and found[600] == 1200)
        for whole in (('x'):rep(2000) .. 'y'):gmatch('x+') do found = whole end
        assert(found == ('x'):rep(2000))";
    let reason = ended(call);
    assert!(reason.contains("the call returned"), "{reason}");
}

/// Few instructions can take long, so that their number is no bound.
#[test]
fn slow_code_that_cannot_be_suspended_ends_after_some_time() {
    let slow = "local one = ('x'):rep(14 << 20)
        local other = ('x'):rep(14 << 20) .. 'y'
        tostring(setmetatable({}, { __tostring = function()
          while true do local _ = one < other end
        end }))";
    // Lua follows all jumps of the chain for each of its parts.
    let chain = "load('return ' .. ('a and '):rep(170000) .. 'a')";
    for call in [slow, chain] {
        let reason = ended(call);
        let wanted = "computed for too long where it cannot be suspended";
        assert!(reason.contains(wanted), "{call}: {reason}");
    }
}

/// Ends the coroutine `co` where it cannot be suspended.
const OVERRUN: &str = "local function spin() while true do end end
    local function overrun() tostring(setmetatable({}, { __tostring = spin })) end ";

/// The error that ends a process cannot be caught by handlers that run because of it, in whatever
/// coroutine.
#[test]
fn handlers_cannot_go_on_in_a_process_that_must_end() {
    for call in [
        // The variables of a coroutine that has ended so, closed by another one.
        "local co = coroutine.create(function()
           local x <close> = setmetatable({}, { __close = spin })
           overrun()
         end)
         pcall(function()
           local function again() coroutine.close(co) end
           local y <close> = setmetatable({}, { __close = again })
           local z <close> = setmetatable({}, { __close = again })
           coroutine.resume(co)
         end)",
        // A tree of handlers around it.
        "local co = coroutine.create(overrun)
         local function burn(d)
           local h = { __close = function() if d > 0 then burn(d - 1) end end }
           local a <close> = setmetatable({}, h)
           local b <close> = setmetatable({}, h)
           spin()
         end
         pcall(function()
           local x <close> = setmetatable({}, { __close = function() burn(60) end })
           coroutine.resume(co)
         end)",
        // A tree of new coroutines.
        "local function grow(d)
           for i = 1, 40 do
             if d % 2 == 0 then coroutine.resume(coroutine.create(grow), d + 1)
             else pcall(coroutine.wrap(grow), d + 1) end
           end
         end
         local co = coroutine.create(overrun)
         pcall(function()
           local x <close> = setmetatable({}, { __close = function() grow(0) end })
           coroutine.resume(co)
         end)",
        // A tree of coroutines that wait to be closed.
        "local function waiting(d)
           return coroutine.wrap(function()
             local below = {}
             for i = 1, d > 0 and 4 or 0 do below[i] = waiting(d - 1) end
             local x <close> = setmetatable({}, { __close = function()
               for i = 1, #below do coroutine.close(below[i]) end
               spin()
             end })
             coroutine.yield(coroutine.running())
           end)()
         end
         local all, co = waiting(5), coroutine.create(overrun)
         pcall(function()
           local x <close> = setmetatable({}, { __close = function() coroutine.close(all) end })
           coroutine.resume(co)
         end)",
    ] {
        let reason = ended(&format!("{OVERRUN}{call}"));
        let wanted = "computed for too long where it cannot be suspended";
        assert!(reason.contains(wanted), "{call}: {reason}");
    }
}

/// The variables of the function that must end, in each place of its frame.
#[test]
fn a_function_that_must_end_ends_although_its_handlers_do_not() {
    let endless = "local function spin() while true do end end
        local endless = setmetatable({}, { __close = spin })
        getmetatable('').__close = spin ";
    for body in [
        "local x <close> = endless while true do end",
        "local a, b, c <close> = 1, nil, endless while true do end",
        "local x <close> = 'text' local y <close> = 'text' while true do end",
        "for _ in spin, nil, nil, endless do end",
        "for _ in function() end, nil, nil, endless do end local x <close> = endless spin()",
        // It has used up its memory.
        "local x <close> = endless
         local all = {}
         for size = 24, 4, -1 do
           while pcall(function() all[#all + 1] = ('x'):rep(1 << size) .. #all end) do end
         end
         while true do end",
        // Then many handlers are called, each of which fails.
        "local all, count, v = {}, 0, setmetatable({}, { __close = spin })
         -- A list that never grows in here.
         for i = 1, 8192 do all[i] = false end
         local function fill()
           for size = 23, 4, -1 do
             while pcall(function() all[count + 1] = ('x'):rep(1 << size) .. count end) do
               count = count + 1
             end
           end
           error('filled')
         end
         local function deep(n)
           local a <close>, b = v
           local c <close> = v local d <close> = v local e <close> = v local f <close> = v
           local g <close> = v local h <close> = v local i <close> = v local j <close> = v
           if n > 0 then local r = deep(n - 1) return r end
           fill()
         end
         pcall(deep, 30000)",
        // Many errors, in many frames.
        "local function deep(n)
           local a <close>, b, c = endless
           local d <close> = endless
           if n > 0 then return (deep(n - 1)) end
           while true do end
         end
         deep(50000)",
    ] {
        let call =
            format!("tostring(setmetatable({{}}, {{ __tostring = function(...) {body} end }}))");
        let wanted = "computed for too long where it cannot be suspended";
        let reason = ended(&format!("{endless} {call}"));
        assert!(reason.contains(wanted), "{body}: {reason}");
        for inside in [
            format!("coroutine.wrap(function() {call} end)()"),
            format!("pcall(function() {call} end)"),
        ] {
            let reason = ended_within(&format!("{endless} {inside}"), 100);
            assert!(reason.contains("terminated") || reason.contains(wanted), "{inside}: {reason}");
        }
    }
}

/// Nothing of the program catches these errors.
#[test]
fn a_function_that_has_failed_calls_its_handlers() {
    let failures = [
        "local y = nil + 1",
        "error('broken')",
        "local function f(n) if n > 0 then f(n - 1) end local y = nil + 1 end f(50000)",
    ];
    let within = |handler: &str, failure: &str| {
        format!("local x <close> = setmetatable({{}}, {{ __close = {handler} }}) {failure}")
    };
    for failure in failures {
        for (handler, expected) in [
            ("function() error('boom') end", "boom"),
            ("function(_, cause) time.sleep(1) error('after ' .. cause) end", "after test:"),
            ("function() error() end", "nil"),
            (
                "function() error(setmetatable({}, { __tostring = function() return 'own' end })) end",
                "own",
            ),
            ("function() error(setmetatable({}, { __tostring = error })) end", ""),
            ("function() error(process.self()) end", "runtime error: p"),
            ("1", "attempt to call"),
        ] {
            let reason = ended(&within(handler, failure));
            assert!(reason.contains(expected), "{handler} {failure}: {reason}");
        }
        let reason = ended_within(&within("function() while true do end end", failure), 50);
        assert!(reason.contains("terminated"), "{failure}: {reason}");
    }
    let endless =
        "local x <close> = setmetatable({}, { __close = function() while true do end end })
        tostring(setmetatable({}, { __tostring = function() local y = nil + 1 end }))";
    assert!(ended_within(endless, 50).contains("terminated"));
    let object = "error(setmetatable({}, { __tostring = function() while true do end end }))";
    assert!(ended(object).contains("computed for too long where it cannot be suspended"));
}

/// If there is no room for calls of C, errors call the handlers of the program in places without
/// hooks.
#[test]
fn a_function_that_must_end_near_the_limit_of_calls_ends() {
    for depth in 180..=200 {
        let call = format!(
            "getmetatable('').__tostring = function() while true do end end
            local function deep(n)
              if n == 0 then while true do end end
              return tostring(setmetatable({{}}, {{ __tostring = function() return deep(n - 1) end }}))
            end
            deep({depth})"
        );
        let reason = ended_within(&call, 100);
        let known = ["terminated", "computed for too long", "stack overflow", "error in error"];
        assert!(known.iter().any(|known| reason.contains(known)), "{depth}: {reason}");
    }
}

#[test]
fn a_coroutine_ends_with_its_error_and_its_variables() {
    let call = "local closed = {}
        local function note(name)
          return setmetatable({}, { __close = function(_, cause) closed[#closed + 1] = name .. tostring(cause) end })
        end
        local co
        co = coroutine.create(function(a, ...)
          local x <close> = note('x')
          assert(coroutine.isyieldable() and coroutine.running() == co)
          assert(select('#', ...) == 2 and coroutine.yield(a) == 'in')
          error(nil)
        end)
        local function results(...) return select('#', ...), ... end
        local count, ok, a = results(coroutine.resume(co, 7, nil, nil))
        assert(count == 2 and ok and a == 7 and coroutine.status(co) == 'suspended')
        count, ok, a = results(coroutine.resume(co, 'in'))
        assert(count == 2 and not ok and a == nil and coroutine.status(co) == 'dead')
        assert(#closed == 1 and closed[1] == 'xnil')
        local ended, cause = coroutine.resume(co)
        assert(not ended and cause == 'cannot resume dead coroutine')
        local value = {}
        co = coroutine.create(function() local y <close> = note('y') error(value) end)
        ok, a = coroutine.resume(co)
        assert(not ok and a == value)
        ok, a = coroutine.close(co)
        assert(not ok and a == value and coroutine.close(co) == true)
        ok, a = pcall(coroutine.wrap(function() local z <close> = note('z') error('text', 0) end))
        assert(not ok and a == 'text' and closed[3] == 'ztext')
        co = coroutine.create(function() local w <close> = note('w') coroutine.yield() end)
        coroutine.resume(co)
        assert(coroutine.close(co) == true and closed[4] == 'wnil')
        assert(results(coroutine.resume(coroutine.create(function() return nil, nil end))) == 3)
        for _, f in ipairs { 'create', 'wrap' } do
          ok, a = pcall(coroutine[f], 1)
          assert(not ok and a:find('bad argument #1 to .' .. f .. '. %(function expected'), a)
        end";
    let reason = ended(call);
    assert!(reason.contains("the call returned"), "{reason}");
}

/// The function of a process is no coroutine of the program.
#[test]
fn only_a_coroutine_can_yield() {
    let call = "local function check(is_inside)
          local co, is_main = coroutine.running()
          assert(type(co) == 'thread' and is_main == not is_inside)
          assert(coroutine.isyieldable() == is_inside and coroutine.isyieldable(co) == is_inside)
        end
        check(false)
        local ok, cause = pcall(coroutine.yield, 1)
        assert(not ok and cause == 'attempt to yield from outside a coroutine', cause)
        assert(not pcall(coroutine.isyieldable, 1) and not pcall(coroutine.isyieldable, nil))
        assert(not pcall(coroutine.resume, 1))
        check(false)
        coroutine.wrap(function()
          check(true)
          time.sleep(1)
          coroutine.wrap(function() coroutine.yield() end)()
          pcall(coroutine.wrap(error))
          check(true)
        end)()
        check(false)
        assert(select('#', coroutine.resume(coroutine.create(function() end))) == 1)
        assert(select('#', coroutine.wrap(function() end)()) == 0)";
    let reason = ended(call);
    assert!(reason.contains("the call returned"), "{reason}");
}

/// Here the host calls code of the program, and its own handler of errors asks for their text.
#[test]
fn a_search_for_a_function_that_computes_for_too_long_ends() {
    let source = "local function spin() while true do end end
        getmetatable('').__tostring = spin
        t = setmetatable({}, { __index = spin })
        function main() return select(2, pcall(process.spawn, 't.f')) end";
    let program = Program::load("test", source).expect("it is Lua");
    let scheduler = Box::leak(Box::new(Scheduler::builder().build().expect("it has threads")));
    let main = program.spawn_with(SpawnOptions::new().on(scheduler), "main", []);
    let ended = main.expect("it has main").join_timeout(TIMEOUT).expect("it ends");
    let Ok(Value::String(cause)) = ended else { panic!("{ended:?}") };
    let cause = String::from_utf8_lossy(&cause);
    assert!(cause.contains("computed for too long where it cannot be suspended"), "{cause}");
}

#[test]
fn many_handlers_that_cannot_be_called_end_fast_in_a_program_with_many_globals() {
    let reason = ended_within(
        "for i = 1, 20000 do _G['g' .. i] = i end
         local handler = setmetatable({}, { __close = 1 })
         local function deep(n)
           local a <close>, a1 = handler
           local b <close>, b1 = handler
           local c <close>, c1 = handler
           local d <close>, d1 = handler
           if n > 0 then local result = deep(n - 1) return result end
           error('start')
         end
         deep(20000)",
        300,
    );
    let is_expected =
        reason.contains("attempt to call a number value") || reason.contains("terminated");
    assert!(is_expected, "{reason}");
}

#[test]
fn an_error_that_is_a_value_of_the_library_is_told_as_its_text() {
    let reason = ended("error(process.self())");
    let text = reason.rsplit_once("runtime error: p").map(|(_, number)| number);
    assert!(
        text.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit())),
        "{reason}"
    );
}
