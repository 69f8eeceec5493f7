//! Tests in Lua on a simulated system.

use std::thread;

use procession_lua::{Program, TestReport, Tests};

fn tests(source: &str) -> Tests {
    Tests::find(&Program::load("t", source).expect("the source is valid Lua")).expect("it runs")
}

fn simulate(source: &str, seeds: u64) -> TestReport {
    tests(source).simulate("test_x", 0..seeds, "procession test")
}

/// Two processes add to a balance that a third one has.
const DEPOSITS: &str = "
  balance = 0
  function account()
    while true do
      local wanted, call = process.receive()
      if call then process.reply(call, balance) else balance = wanted end
    end
  end
  function deposits(account, parent)
    process.send(account, process.call(account, 'balance') + 1)
    process.send(parent, 'done')
  end
  function test_x()
    local account = process.spawn('account')
    for _ = 1, 2 do process.spawn('deposits', account, process.self()) end
    for _ = 1, 2 do process.receive() end
    local balance = process.call(account, 'balance')
    print(balance)
    assert(balance == 2, 'a deposit is lost')
  end";

#[test]
fn a_lost_update_between_two_processes_is_found_and_told() {
    let report = simulate(DEPOSITS, 100);
    let failure = report.failure.expect("there is a mistake");
    assert!(failure.contains("failed: runtime error: t:19: a deposit is lost"), "{failure}");
    assert_eq!(report.output, b"1\n", "the output is that of the run that is told");
    let replay = failure.lines().last().expect("it has lines");
    assert!(replay.starts_with("replay:  PROCESSION_SIM="), "{failure}");
    assert!(replay.ends_with(" procession test"), "{failure}");
    assert!(failure.contains("stack traceback") && !failure.contains("simulation.rs"), "{failure}");
    // The same seeds give the same report.
    assert_eq!(simulate(DEPOSITS, 100).failure.map(without_times), Some(without_times(failure)));
}

/// Shrinking takes other times on other days.
fn without_times(report: String) -> String {
    report.lines().filter(|line| !line.starts_with("shrunk")).collect()
}

#[test]
fn a_failure_without_a_text_is_a_failure() {
    for end in [
        "error('', 0)",
        "error('\\n', 0)",
        "error()",
        "process.exit(process.self(), '') process.receive()",
    ] {
        let report = simulate(&format!("function test_x() {end} end"), 1);
        assert!(report.failure.is_some(), "{end}");
    }
}

#[test]
fn an_order_that_few_schedules_have_is_found() {
    let source = "
      function says(parent, n)
        for _ = 1, 3 do process.yield() end
        process.send(parent, n)
      end
      function test_x()
        for n = 1, 3 do process.spawn('says', process.self(), n) end
        local order = {}
        for _ = 1, 3 do order[#order + 1] = process.receive() end
        assert(table.concat(order) ~= '213', 'a rare order')
      end";
    assert_eq!(tests(source).run("test_x").failure, None, "one worker keeps the order");
    let failure = simulate(source, 2000).failure.expect("some seed has it");
    assert!(failure.contains("a rare order"), "{failure}");
}

/// How often the runs of a seed are compared. `.ci/deep` does so in an optimised build.
const AGAIN: u32 = if cfg!(debug_assertions) { 50 } else { 500 };

/// What a process prints differs from seed to seed, and is the same for one.
#[test]
fn a_seed_has_one_outcome_each_time() {
    let source = "
      function racer(parent, n)
        for i = 1, 2 do
          time.sleep(math.random(1, 3))
          process.send(parent, n * 10 + i)
        end
      end
      function test_x()
        for n = 1, 3 do process.spawn('racer', process.self(), n) end
        for _ = 1, 6 do print(process.receive(), math.random(100)) end
      end";
    let tests = tests(source);
    let of = |seed| tests.simulate("test_x", seed..seed + 1, "").output;
    let first = [of(0), of(1)];
    assert_ne!(first[0], first[1]);
    let again = |seed: u64| {
        for run in 1..AGAIN {
            assert_eq!(of(seed), first[seed as usize], "run {run} of seed {seed}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| again(0));
        again(1);
    });
}

#[test]
fn a_correct_program_passes_with_all_seeds() {
    let source = "
      function worker(parent, n)
        time.sleep(math.random(0, 3))
        process.send(parent, { n = n, random = math.random(10) })
      end
      function test_x()
        local start = time.now()
        local seen = {}
        for n = 1, 4 do process.monitor(process.spawn('worker', process.self(), n)) end
        for _ = 1, 8 do
          local message = process.receive()
          if message.n then seen[message.n] = true end
        end
        assert(#seen == 4)
        time.sleep(30 * 1000)
        assert(time.now() - start >= 30 * 1000)
        process.spawn('worker', process.self(), 5)
      end";
    assert_eq!(simulate(source, 100).failure, None);
}

#[test]
fn processes_that_never_end_do_not_keep_a_run() {
    let source = "
      function waits() while true do process.receive() end end
      function sleeps() while true do time.sleep(1000) end end
      function computes() while true do end end
      function test_x()
        for _, name in ipairs { 'waits', 'sleeps', 'computes' } do process.spawn(name) end
        time.sleep(1)
      end";
    assert_eq!(simulate(source, 20).failure, None);
    let report = simulate("function test_x() process.receive() end", 3);
    let failure = report.failure.expect("it does not end");
    assert!(failure.contains("it did not end within 60s"), "{failure}");
}
