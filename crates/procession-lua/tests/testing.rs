//! Tests of the test runner for programs.

use std::thread;
use std::time::Duration;

use procession_lua::{Program, TestReport, Tests};

fn tests(source: &str) -> Tests {
    Tests::find(&Program::load("t", source).expect("the source is valid Lua")).expect("it runs")
}

/// Runs the only test of a program.
fn run(source: &str) -> TestReport {
    let tests = tests(source);
    let [name] = tests.names() else { panic!("one test, and not {:?}", tests.names()) };
    tests.run(name)
}

fn failure(source: &str) -> String {
    run(source).failure.expect("the test fails")
}

#[test]
fn a_failure_has_the_place_and_the_traceback() {
    let text = failure("local function deep() error('broken') end\nfunction test_x() deep() end");
    assert!(text.contains("t:1: broken") && text.contains("stack traceback"), "{text}");
    assert!(text.contains("t:2"), "{text}");
}

#[test]
fn tests_share_nothing() {
    let source = "
      n = 0
      function test_a() n = n + 1 process.register('one') assert(n == 1) end
      function test_b() n = n + 1 process.register('one') assert(n == 1) end
      not_a_test, test_nor_this = print, 1";
    let tests = tests(source);
    assert_eq!(tests.names(), ["test_a", "test_b"]);
    for name in tests.names() {
        assert_eq!(tests.run(name).failure, None);
    }
}

#[test]
fn a_test_that_does_not_end_fails() {
    let text = failure("function test_x() process.receive() end");
    assert_eq!(text, "it did not end within 60s");
    let text = failure("function test_x() while true do time.sleep(1000) end end");
    assert_eq!(text, "it did not end within 60s");
    let endless = "function test_x() process.spawn('other') process.receive() end
                   function other() while true do end end";
    let report = tests(endless).max_steps(100).run("test_x");
    let text = report.failure.expect("the test fails");
    // The process that computes fails, and the test waits for it in vain.
    assert!(text.contains("did not end") || text.contains("too many steps"), "{text}");
    let report = tests("function test_x() while true do end end").max_steps(100).run("test_x");
    let text = report.failure.expect("the test fails");
    assert!(text.contains("too many steps"), "{text}");
}

#[test]
fn output_is_kept_and_bounded() {
    let report = run("function child() log.info('b') end
                      function test_x() print('a') process.monitor(process.spawn('child')) process.receive() end");
    let text = String::from_utf8(report.output).expect("it is text");
    assert!(text.starts_with("a\ninfo p") && text.ends_with(" b\n"), "{text}");
    assert_eq!(report.failure, None);
    let report = run("function test_x() for i = 1, 3000 do print(string.rep('x', 1000)) end end");
    assert_eq!(report.failure, None);
    assert!((1 << 20..(1 << 20) + 2000).contains(&report.output.len()), "{}", report.output.len());
}

#[test]
fn a_program_that_fails_at_once_has_no_tests() {
    let program = Program::load("t", "error('at once')").expect("the source is valid Lua");
    let error = Tests::find(&program).expect_err("it fails").to_string();
    assert!(
        error.starts_with("cannot start the tests of t: ") && error.contains("at once"),
        "{error}"
    );
}

/// Does everything of which the order could differ: processes that race, random numbers, tables
/// with keys of all kinds, timers, and more output than an output holds.
const RACES: &str = "
  function racer(parent, name)
    for i = 1, 3 do
      time.sleep(math.random(1, 3))
      process.send(parent, { name = name, n = i, r = math.random(1000) })
    end
  end
  function crowd(parent) process.send(parent, math.random()) end
  function test_races()
    local pids = {}
    for i = 1, 3 do pids[process.spawn('racer', process.self(), 'racer' .. i)] = i end
    for i = 1, 9 do
      local message = process.receive()
      local line = {}
      for key, value in pairs(message) do line[#line + 1] = key .. '=' .. tostring(value) end
      print(time.now(), table.concat(line, ' '))
    end
    for pid, i in pairs(pids) do print(i) end
    local keys = { [1] = 1, [2.5] = 2, [true] = 3, [false] = 4 }
    for i = 1, 20 do keys['key' .. math.random(1000)] = i end
    for key, value in next, keys do print(key, value) end
    for i = 1, 3 do process.spawn('crowd', process.self()) end
    for i = 1, 3 do print(process.receive()) end
    for i = 1, 100 do print(string.rep('x', 1000)) end
  end";

/// How often each of two threads runs a seed. `.ci/deep` does so in an optimised build.
const AGAIN: u32 = if cfg!(debug_assertions) { 50 } else { 500 };

#[test]
fn one_seed_has_one_outcome_each_time() {
    let tests = tests(RACES);
    let first = tests.run("test_races");
    assert_eq!(first.failure, None);
    let again = || {
        for _ in 0..AGAIN {
            let report = tests.run("test_races");
            assert!(report == first, "{}", String::from_utf8_lossy(&report.output));
        }
    };
    thread::scope(|scope| {
        scope.spawn(again);
        again();
    });
    let other = tests.seed(1).run("test_races");
    assert_ne!(other.output, first.output, "another seed gives other numbers");
}

#[test]
fn a_traversal_sees_each_key_once_and_may_clear_entries() {
    let report = run("function test_x()
      local t = { 10, 20, 30, a = 1, b = 2 }
      local seen = {}
      for key in pairs(t) do seen[#seen + 1] = tostring(key) t[key] = nil end
      assert(table.concat(seen, ' ') == '1 2 3 a b', table.concat(seen, ' '))
      assert(next(t) == nil and not pcall(next, t, 'missing'))
      for key in next, { x = 1, y = 2 } do seen[#seen + 1] = key end
      assert(table.concat(seen, ' ') == '1 2 3 a b x y')
      local fields = setmetatable({}, { __pairs = function() return next, { z = 1 }, nil end })
      for key in pairs(fields) do assert(key == 'z') end
      assert(not pcall(next, nil) and not pcall(function() for _ in pairs(nil) do end end))
      assert(next({ 5 }, 1.0) == nil)
    end");
    assert_eq!(report.failure, None);
}

#[test]
fn the_test_clock_costs_no_time() {
    let source = "function test_x() time.sleep(7200 * 1000) end";
    let tests = tests(source).timeout(Duration::from_secs(8000));
    assert_eq!(tests.run("test_x").failure, None);
}
