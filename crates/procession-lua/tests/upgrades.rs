//! Tests of programs that are replaced while their processes live.

use std::time::Duration;

use procession::scheduler::Builder;
use procession::{Child, Exit, JoinHandle, Pid, Scheduler, SpawnOptions};
use procession_lua::{Deployment, Error, Message, Output, Program, Replaced, Rolling, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A process that keeps what it receives, and answers `"all"` with it. `VERSION` is replaced.
const KEEPER: &str = "
  function keeper(kept)
    list = kept or {}
    while true do
      local message, call = process.receive()
      if call then
        process.reply(call, { version = VERSION, all = list })
      elseif message == 'fail' then
        error('told to')
      else
        list[#list + 1] = message
      end
    end
  end
  function upgrade() return list end
  resume_keeper = keeper
  function ask(pid) return process.call(pid, 'all', 10000) end
";

fn load(source: &str) -> Program {
    let silent = Output::new(std::io::sink());
    let program = Program::load("test", source).expect("the source is valid Lua");
    program.output(silent.clone(), silent)
}

fn keeper(version: u32) -> Program {
    load(&KEEPER.replace("VERSION", &version.to_string()))
}

/// Runs a test on a scheduler with two workers.
fn run(test: impl AsyncFnOnce() -> Result<(), Error>) {
    run_on(Scheduler::builder().worker_threads(2), test);
}

fn run_on(builder: Builder, test: impl AsyncFnOnce() -> Result<(), Error>) {
    let scheduler = builder.on_exit(|_| {}).build().expect("the system has threads");
    let tested = scheduler.block_on(async { procession::timeout(TIMEOUT, test()).await });
    tested.expect("it ends in time").expect("no process fails");
}

fn spawn(deployment: &Deployment, function: &str) -> Result<Pid, Error> {
    Ok(deployment.program().spawn(function, [])?.detach().pid())
}

fn send(pid: Pid, value: impl Into<Value>) {
    procession::mailbox::send(pid, Message::Plain(value.into())).expect("it is alive");
}

/// Asks a keeper for its version and what it has received.
async fn ask(deployment: &Deployment, pid: Pid) -> Result<(i64, Vec<i64>), Error> {
    let answer = deployment.program().spawn("ask", [pid.into()])?.await?;
    let integer = |value: &Value| match value {
        Value::Integer(integer) => *integer,
        other => panic!("an integer, and not {other:?}"),
    };
    let Some(Value::Table(all)) = answer.get("all") else { panic!("an answer: {answer:?}") };
    let mut all: Vec<_> = all.iter().map(|(key, value)| (integer(key), integer(value))).collect();
    all.sort_unstable();
    let version = integer(answer.get("version").expect("it has a version"));
    Ok((version, all.into_iter().map(|(_, value)| value).collect()))
}

/// Waits until all members of a deployment have begun and wait.
async fn settle(deployment: &Deployment, members: usize) {
    while deployment.versions().values().sum::<usize>() < members {
        procession::yield_now().await;
    }
}

/// Replaces the program of a deployment, and waits for its processes as long as a test may take,
/// because a busy machine may need more than the usual second for an upgrade that computes.
async fn replace_patiently(deployment: &Deployment, new: Program) -> Result<Replaced, Error> {
    let mut pace = Rolling::default();
    pace.patience = TIMEOUT;
    deployment.replace_with(new, pace).await
}

/// Begins to replace the program of a deployment. Returns once a process has registered `name`.
async fn replace_until(
    deployment: &Deployment,
    new: Program,
    name: &str,
) -> JoinHandle<Result<Replaced, Error>> {
    let deployment = deployment.clone();
    let replaced = procession::spawn(async move { replace_patiently(&deployment, new).await });
    while procession::process::whereis(name).is_none() {
        procession::yield_now().await;
    }
    replaced
}

#[test]
fn no_message_is_lost_or_received_twice_in_an_upgrade_under_load() {
    const PROCESSES: usize = 100;
    const MESSAGES: i64 = 300;
    run(async || {
        let deployment = Deployment::new(keeper(1));
        let pids: Vec<Pid> =
            (0..PROCESSES).map(|_| spawn(&deployment, "keeper")).collect::<Result<_, _>>()?;
        settle(&deployment, PROCESSES).await;
        let receivers = pids.clone();
        let sender = procession::spawn(async move {
            for number in 1..=MESSAGES {
                receivers.iter().for_each(|&pid| send(pid, number));
                procession::yield_now().await;
            }
        });
        for version in 2..=4 {
            let replaced = replace_patiently(&deployment, keeper(version)).await?;
            assert_eq!((replaced.upgraded, replaced.failed), (PROCESSES, vec![]));
        }
        sender.await.expect("no panic");
        let expected: Vec<i64> = (1..=MESSAGES).collect();
        for pid in pids {
            assert_eq!(ask(&deployment, pid).await?, (4, expected.clone()));
        }
        Ok(())
    });
}

/// Replaces a keeper that has received a 7 by a program, and checks that it continues as it was.
async fn refuses(new: &str, expected: &str) -> Result<(), Error> {
    let deployment = Deployment::new(keeper(1));
    let pid = spawn(&deployment, "keeper")?;
    settle(&deployment, 1).await;
    send(pid, 7);
    let replaced = replace_patiently(&deployment, load(new).memory_limit(2 << 20)).await?;
    let [(failed, cause)] = &replaced.failed[..] else { panic!("{new}: {replaced:?}") };
    assert!(*failed == pid && cause.contains(expected), "{new}: {cause}");
    assert_eq!(deployment.version_of(pid), Some(keeper(1).version()));
    send(pid, 8);
    // The function that asks is in the old program.
    deployment.rollback().await?;
    assert_eq!(ask(&deployment, pid).await?, (1, vec![7, 8]), "{new}");
    Ok(())
}

#[test]
fn a_new_program_that_fails_leaves_the_process_as_it_was() {
    run(async || {
        refuses("function resume_keeper() error('broken') end", "test:1: broken").await?;
        refuses("x = 1", "it has no method \"resume_keeper\"").await?;
        refuses("function resume_keeper() while true do end end", "it did not wait in time")
            .await?;
        let hungry = "function resume_keeper() local t = {} while true do t[#t + 1] = {} end end";
        refuses(hungry, "not enough memory").await?;
        let late = "function resume_keeper(list) print('begins') process.send(process.self(), 0)
                      error('broken') end";
        let deployment = Deployment::new(keeper(1));
        let pid = spawn(&deployment, "keeper")?;
        settle(&deployment, 1).await;
        assert_eq!(replace_patiently(&deployment, load(late)).await?.failed.len(), 1);
        deployment.rollback().await?;
        // What the new program has sent, has been sent.
        assert_eq!(ask(&deployment, pid).await?, (1, vec![0]));
        Ok(())
    });
}

/// The new state replaces the old state. Until then, the limit counts the memory of the old state.
#[test]
fn a_process_that_uses_most_of_its_limit_is_upgraded() {
    run(async || {
        let source = "
          function holder()
            many = {}
            for i = 1, 63 do many[i] = ('x'):rep(60000 + i) end
            while true do
              local _, call = process.receive()
              process.reply(call, 'ready')
            end
          end
          function upgrade() return table.move(many, 1, 15, 1, {}) end
          function resume_holder(kept)
            while true do
              local _, call = process.receive()
              process.reply(call, #kept)
            end
          end
          function start()
            local holder = process.spawn({ 'holder', limits = { memory = 4 << 20 } })
            -- The memory counts after each step.
            for _ = 1, 2 do process.call(holder, 'ready?', 10000) end
            assert(process.info(holder).memory > 0.9 * (4 << 20), process.info(holder).memory)
            return holder
          end
          function ask(holder) return process.call(holder, 'how many?', 10000) end";
        let deployment = Deployment::new(load(source));
        let holder = deployment.program().spawn("start", [])?.await?;
        let replaced = replace_patiently(&deployment, load(&format!("{source} -- new"))).await?;
        assert_eq!((replaced.upgraded, replaced.failed), (1, vec![]));
        assert_eq!(deployment.program().spawn("ask", [holder])?.await?, Value::Integer(15));
        Ok(())
    });
}

#[test]
fn a_failure_after_the_first_wait_is_that_of_the_process() {
    run(async || {
        let deployment = Deployment::new(keeper(1));
        let child = deployment.program().spawn("keeper", [])?;
        settle(&deployment, 1).await;
        let new = "function resume_keeper() process.receive() error('later') end";
        assert_eq!(replace_patiently(&deployment, load(new)).await?.upgraded, 1);
        child.send(Value::Nil.into()).expect("it is alive");
        let exit = child.await.expect_err("it fails");
        assert!(exit.to_string().contains("later"), "{exit}");
        assert!(deployment.versions().is_empty(), "it left the deployment");
        Ok(())
    });
}

#[test]
fn an_old_program_that_cannot_give_its_state_stays() {
    let cases = [
        ("error('no state')", "no state"),
        ("process.receive()", "upgrade cannot wait"),
        ("while true do end", "upgrade computed for too long"),
        ("return { a = { print } }", ".a[1] cannot be copied: it is a function"),
        (
            "tostring(setmetatable({}, { __tostring = function() while true do end end }))",
            "computed for too long where it cannot be suspended",
        ),
    ];
    run(async || {
        for (upgrade, expected) in cases {
            let source = KEEPER.replace("return list", upgrade).replace("VERSION", "1");
            let deployment = Deployment::new(load(&source));
            let pid = spawn(&deployment, "keeper")?;
            settle(&deployment, 1).await;
            send(pid, 7);
            let replaced = replace_patiently(&deployment, keeper(2)).await?;
            assert!(replaced.failed[0].1.contains(expected), "{replaced:?}");
            // It computes more than the instructions between two calls of a hook.
            (1..1000).for_each(|_| send(pid, 7));
            assert_eq!(ask(&deployment, pid).await?, (1, vec![7; 1000]), "{upgrade}");
        }
        Ok(())
    });
}

/// Replaces a keeper with this `upgrade` and this answer to `'fail'`.
async fn replace(
    upgrade: &str,
    answer: &str,
) -> Result<(Deployment, Child<Message, Value>, Replaced), Error> {
    let source = KEEPER.replace("return list", upgrade).replace("error('told to')", answer);
    let deployment = Deployment::new(load(&source.replace("VERSION", "1")));
    let child = deployment.program().spawn("keeper", [])?;
    settle(&deployment, 1).await;
    let replaced = replace_patiently(&deployment, keeper(2)).await?;
    Ok((deployment, child, replaced))
}

/// Calls a function where it cannot be suspended.
const WITHIN: &str = "
    local function within(f) tostring(setmetatable({}, { __tostring = f })) end
    local function spin() while true do end end ";

/// The process continues, and may close what has failed.
#[test]
fn an_upgrade_that_fails_leaves_nothing_that_runs_without_end() {
    let body = "
        local function body()
          local x <close> = setmetatable({}, { __close = spin })
          within(spin)
        end ";
    let close = "assert(coroutine.status(co) ~= 'running') coroutine.close(co) list = { 1 }";
    run(async || {
        for function in ["body", "function() coroutine.wrap(body)() end"] {
            let upgrade =
                format!("{WITHIN}{body} co = coroutine.create({function}) coroutine.resume(co)");
            let (deployment, child, replaced) = replace(&upgrade, close).await?;
            assert_eq!(replaced.failed[0].1, "upgrade computed for too long");
            send(child.pid(), "fail");
            assert_eq!(ask(&deployment, child.detach().pid()).await?, (1, vec![1]));
        }
        Ok(())
    });
}

#[test]
fn an_upgrade_that_fails_leaves_its_variables_as_they_are() {
    let upgrade = "
        local outer <close> = setmetatable({}, { __close = function() closed = (closed or 0) + 1 end })
        within(function(...)
          local a, b, c, d = 1, 2, 3, 4
          shared = function() return { a, b, c, d, closed } end
          local inner <close> = outer
          while true do d = 4 end
        end)";
    let look = "list = shared()";
    run(async || {
        // A variable may be in any place of the frame.
        for before in ["", "local _ ", "local _ <close>, e = nil "] {
            let upgrade = upgrade.replace("local a,", &format!("{before}local a,"));
            let (deployment, child, replaced) =
                replace(&format!("{WITHIN}{upgrade}"), look).await?;
            let cause = &replaced.failed[0].1;
            assert!(
                cause.contains("computed for too long where it cannot be suspended"),
                "{cause}"
            );
            assert!(cause.contains("in function 'upgrade'"), "{cause}");
            send(child.pid(), "fail");
            let (_, found) = ask(&deployment, child.detach().pid()).await?;
            assert_eq!(found, [1, 2, 3, 4, 2], "{before}");
        }
        Ok(())
    });
}

#[test]
fn an_upgrade_may_catch_that_it_computed_for_too_long_once() {
    let cases = [
        ("local ok, cause = pcall(within, spin) assert(cause:find('too long')) return list", None),
        (
            "local ok, cause = xpcall(within, function(cause) spin() end, spin)
             assert(cause:find('too long')) return list",
            None,
        ),
        ("assert(not coroutine.resume(coroutine.create(within), spin)) return list", None),
        ("pcall(within, spin) error('ordinary')", Some("ordinary")),
    ];
    run(async || {
        for (upgrade, expected) in cases {
            let (_, child, replaced) = replace(&format!("{WITHIN}{upgrade}"), "").await?;
            let cause = replaced.failed.first().map(|(_, cause)| cause.as_str());
            match expected {
                None => assert_eq!((cause, replaced.upgraded), (None, 1), "{upgrade}"),
                Some(expected) => assert!(cause.is_some_and(|cause| cause.contains(expected))),
            }
            child.detach();
        }
        Ok(())
    });
}

#[test]
fn an_upgrade_that_goes_on_after_its_error_ends_the_process() {
    let cases = [
        "pcall(within, spin) within(spin)",
        "while true do pcall(within, spin) end",
        "within(function() pcall(spin) spin() end)",
        "within(function()
           pcall(function()
             local x <close> = setmetatable({}, { __close = spin })
             spin()
           end)
         end)",
    ];
    run(async || {
        for upgrade in cases {
            let (deployment, child, replaced) = replace(&format!("{WITHIN}{upgrade}"), "").await?;
            let cause = &replaced.failed[0].1;
            let expected = "upgrade went on after it had failed";
            assert!(cause.contains(expected), "{upgrade}: {cause}");
            let exit = child.await.expect_err("it ends").to_string();
            assert!(exit.contains(expected), "{upgrade}: {exit}");
            assert!(exit.contains("computed for too long where it cannot be suspended"), "{exit}");
            assert!(deployment.versions().is_empty(), "it left the deployment");
        }
        Ok(())
    });
}

#[test]
fn processes_without_an_upgrade_keep_their_version_and_new_ones_get_the_new() {
    run(async || {
        let old = "function serve() while true do
                     local _, call = process.receive()
                     process.reply(call, process.spawn('child', process.self()))
                   end end
                   function child() process.receive() end
                   function ask(pid) return process.call(pid, 1) end";
        let deployment = Deployment::new(load(old));
        let pid = spawn(&deployment, "serve")?;
        settle(&deployment, 1).await;
        let new = load(&format!("{old} -- new"));
        let replaced = replace_patiently(&deployment, new.clone()).await?;
        assert_eq!((replaced.kept, replaced.upgraded), (1, 0));
        let answer = deployment.program().spawn("ask", [pid.into()])?.await?;
        let Value::Pid(child) = answer else { panic!("a PID, and not {answer:?}") };
        while deployment.version_of(child).is_none() {
            procession::yield_now().await;
        }
        assert_eq!(deployment.version_of(child), Some(new.version()));
        assert_eq!(deployment.version_of(pid), Some(load(old).version()));
        assert_eq!(deployment.versions().len(), 2);
        Ok(())
    });
}

#[test]
fn a_call_that_is_out_gets_its_answer_and_a_timer_stays() {
    run(async || {
        let source = "
          function caller(to)
            answer = process.call(to, 'all')
            process.receive()
          end
          function upgrade() return answer end
          function resume_caller(answer)
            local nothing, why = process.receive(20)
            assert(nothing == nil and why == 'timeout')
            return answer.version
          end";
        let keepers = Deployment::new(keeper(5));
        let to = spawn(&keepers, "keeper")?;
        let deployment = Deployment::new(load(source));
        let child = deployment.program().spawn("caller", [to.into()])?;
        settle(&deployment, 1).await;
        let replaced = replace_patiently(&deployment, load(&format!("{source} -- new"))).await?;
        assert_eq!((replaced.upgraded, replaced.failed), (1, vec![]));
        assert_eq!(child.await?, Value::Integer(5));
        Ok(())
    });
}

#[test]
fn a_process_that_does_not_receive_is_upgraded_later() {
    run(async || {
        let source = "
          function busy() time.sleep(3600 * 1000) return process.receive() end
          function upgrade() return 'state' end
          function resume_busy(state) process.receive() return state end";
        let deployment = Deployment::new(load(source));
        let child = deployment.program().spawn("busy", [])?;
        settle(&deployment, 1).await;
        let mut pace = Rolling::default();
        pace.patience = Duration::from_millis(1);
        let replaced = deployment.replace_with(load(&format!("{source} -- new")), pace).await?;
        assert_eq!((replaced.pending, replaced.upgraded), (1, 0));
        // It ends the sleep, and later the receive of the new version.
        child.cancel();
        assert_eq!(child.await?, "state".into());
        Ok(())
    });
}

#[test]
fn a_version_that_is_withdrawn_is_not_taken_up_later() {
    run(async || {
        let source = "
          function busy() time.sleep(3600 * 1000) return process.receive() end
          function upgrade() return 'state' end
          function resume_busy(state) return state end";
        let deployment = Deployment::new(load(source));
        let child = deployment.program().spawn("busy", [])?;
        settle(&deployment, 1).await;
        let mut pace = Rolling::default();
        pace.patience = Duration::from_millis(1);
        let replaced = deployment.replace_with(load(&format!("{source} -- new")), pace).await?;
        assert_eq!(replaced.pending, 1);
        assert_eq!(deployment.rollback().await?, Replaced::default());
        // It ends the sleep and the receive.
        child.cancel();
        assert_eq!(child.await?, Value::Nil);
        Ok(())
    });
}

#[test]
fn a_process_that_enters_a_withdrawn_version_leaves_it() {
    run_on(Scheduler::builder().worker_threads(1).test_clock(), async || {
        let deployment = Deployment::new(keeper(1));
        let pid = spawn(&deployment, "keeper")?;
        settle(&deployment, 1).await;
        let slow = "
          function resume_keeper(kept)
            process.register('enters')
            while not process.whereis('withdrawn') do end
            return keeper(kept)
          end";
        let new = load(&format!("{KEEPER} {slow}").replace("VERSION", "2"));
        let replaced = replace_until(&deployment, new, "enters").await;
        assert_eq!(deployment.rollback().await?, Replaced::default());
        let mark = load("function mark() process.register('withdrawn') process.receive() end");
        mark.spawn("mark", [])?.detach();
        assert_eq!(replaced.await.expect("no panic")?.upgraded, 1);
        assert_eq!(ask(&deployment, pid).await?.0, 1);
        Ok(())
    });
}

#[test]
fn a_version_that_is_withdrawn_during_the_upgrade_is_not_entered() {
    run_on(Scheduler::builder().worker_threads(1).test_clock(), async || {
        let slow = "
          function upgrade()
            process.register('saves')
            while not process.whereis('withdrawn') do end
            return list
          end";
        let deployment = Deployment::new(load(&format!("{KEEPER} {slow}").replace("VERSION", "1")));
        let pid = spawn(&deployment, "keeper")?;
        settle(&deployment, 1).await;
        let new = "
          function resume_keeper(kept)
            process.register('entered')
            return keeper(kept)
          end";
        let new = load(&format!("{KEEPER} {new}").replace("VERSION", "2"));
        let replaced = replace_until(&deployment, new, "saves").await;
        assert_eq!(deployment.rollback().await?, Replaced::default());
        let mark = load("function mark() process.register('withdrawn') process.receive() end");
        mark.spawn("mark", [])?.detach();
        let replaced = replaced.await.expect("no panic")?;
        assert_eq!((replaced.upgraded, replaced.superseded), (0, 1));
        assert_eq!(ask(&deployment, pid).await?.0, 1);
        // Its registration would end only with the process.
        assert_eq!(procession::process::whereis("entered"), None);
        Ok(())
    });
}

/// Goal: the newest version wins, although a slower replacement asks processes after it. Method:
/// the first process that the slower one asks is held in a call.
#[test]
fn a_replacement_asks_nobody_once_another_one_has_followed() {
    // One worker: a replacement asks the first process in the step that makes its version current.
    run_on(Scheduler::builder().worker_threads(1), async || {
        let held = KEEPER.replace("error('told to')", "process.call('gate', 1)");
        let version = |number: u32| load(&held.replace("VERSION", &number.to_string()));
        let deployment = Deployment::new(version(1));
        let mut pids: Vec<Pid> =
            (0..3).map(|_| spawn(&deployment, "keeper")).collect::<Result<_, _>>()?;
        pids.sort();
        settle(&deployment, 3).await;
        let gate = load(
            "function gate()
               process.register('gate')
               local _, call = process.receive()
               process.spawn('held')
               process.receive()
               process.reply(call, 1)
             end
             function held() process.register('held') process.receive() end",
        );
        let gate = gate.spawn("gate", [])?.detach().pid();
        while procession::process::whereis("gate").is_none() {
            procession::yield_now().await;
        }
        send(pids[0], "fail");
        while procession::process::whereis("held").is_none() {
            procession::yield_now().await;
        }
        let replace = |number, at_once| {
            let (deployment, new) = (deployment.clone(), version(number));
            let mut pace = Rolling::default();
            (pace.at_once, pace.patience) = (at_once, TIMEOUT);
            procession::spawn(async move { deployment.replace_with(new, pace).await })
        };
        let slow = replace(2, 1);
        while deployment.program().version() != version(2).version() {
            procession::yield_now().await;
        }
        let fast = replace(3, 100);
        let newest = version(3).version();
        while deployment.versions().get(&newest) != Some(&2) {
            procession::yield_now().await;
        }
        send(gate, 1);
        let counts = |replaced: &Replaced| (replaced.upgraded, replaced.superseded);
        let slow = slow.await.expect("no panic")?;
        assert_eq!((counts(&slow), slow.ended), ((0, 3), 0));
        assert_eq!(counts(&fast.await.expect("no panic")?), (3, 0));
        assert_eq!(deployment.versions(), [(newest, 3)].into());
        Ok(())
    });
}

#[test]
fn the_time_of_a_process_goes_on_in_an_upgrade() {
    run_on(Scheduler::builder().worker_threads(1).test_clock(), async || {
        let source = "
          function waits() time.sleep(1000) process.receive() end
          function upgrade() return time.now() end
          function resume_waits(before) return time.now() - before end";
        let deployment = Deployment::new(load(source));
        let child = deployment.program().spawn("waits", [])?;
        settle(&deployment, 1).await;
        let replaced = replace_patiently(&deployment, load(&format!("{source} -- new"))).await?;
        assert_eq!(replaced.upgraded, 1);
        assert_eq!(child.await?, Value::Float(0.0));
        Ok(())
    });
}

#[test]
fn the_mailbox_of_an_upgraded_process_has_the_new_limit() {
    run(async || {
        let source = "
          function holder() process.receive() time.sleep(3600 * 1000) end
          function upgrade() end
          resume_holder = holder
          function fill(holder)
            local count = 0
            while process.send(holder, count) do count = count + 1 end
            return count
          end";
        let deployment = Deployment::new(load(source).mailbox_limit(10));
        let holder = spawn(&deployment, "holder")?;
        settle(&deployment, 1).await;
        let new = load(&format!("{source} -- new")).mailbox_limit(50);
        assert_eq!(replace_patiently(&deployment, new).await?.upgraded, 1);
        // It may have received the first message when the last one is refused.
        let count = deployment.program().spawn("fill", [holder.into()])?.await?;
        assert!(count == Value::Integer(50) || count == Value::Integer(51), "{count:?}");
        Ok(())
    });
}

#[test]
fn replacements_may_overlap_and_be_rolled_back() {
    run(async || {
        let deployment = Deployment::new(keeper(1));
        let pids: Vec<Pid> =
            (0..20).map(|_| spawn(&deployment, "keeper")).collect::<Result<_, _>>()?;
        settle(&deployment, 20).await;
        let others: Vec<_> = (2..6)
            .map(|version| {
                let deployment = deployment.clone();
                procession::spawn(
                    async move { replace_patiently(&deployment, keeper(version)).await },
                )
            })
            .collect();
        for other in others {
            let replaced = other.await.expect("no panic")?;
            assert!(replaced.failed.is_empty(), "{replaced:?}");
        }
        let current = deployment.program().version();
        let last = replace_patiently(&deployment, keeper(9)).await?;
        assert_eq!(last.upgraded, 20);
        assert_eq!(deployment.rollback().await?.upgraded, 20);
        assert_eq!(deployment.program().version(), current);
        assert_eq!(deployment.versions(), [(current, 20)].into());
        for pid in pids {
            assert_eq!(ask(&deployment, pid).await?.1, [0_i64; 0]);
        }
        let fresh = Deployment::new(keeper(1));
        let error = fresh.rollback().await.expect_err("there is none").to_string();
        assert_eq!(error, "cannot load test: there is no version before the current one");
        Ok(())
    });
}

#[test]
fn a_self_test_that_fails_changes_nothing() {
    run_on(Scheduler::builder().worker_threads(1).test_clock(), async || {
        let deployment = Deployment::new(keeper(1));
        let pid = spawn(&deployment, "keeper")?;
        settle(&deployment, 1).await;
        for (test, expected) in [("error('unfit')", "unfit"), ("process.receive()", "5s")] {
            let new = format!("function selftest() {test} end {KEEPER}").replace("VERSION", "2");
            let error = replace_patiently(&deployment, load(&new))
                .await
                .expect_err("it is unfit")
                .to_string();
            assert!(error.contains("cannot start selftest of test: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(deployment.program().version(), keeper(1).version());
        assert_eq!(ask(&deployment, pid).await?.0, 1);
        let fit = format!("function selftest() return 1 end {KEEPER}").replace("VERSION", "2");
        assert_eq!(replace_patiently(&deployment, load(&fit)).await?.upgraded, 1);
        Ok(())
    });
}

#[test]
fn a_replacement_stops_after_too_many_failures_and_counts_what_ends() {
    run(async || {
        let deployment = Deployment::new(keeper(1));
        for _ in 0..50 {
            spawn(&deployment, "keeper")?;
        }
        settle(&deployment, 50).await;
        let mut pace = Rolling::default();
        (pace.at_once, pace.max_failures) = (4, 5);
        let bad = load("function resume_keeper() error('broken') end");
        let replaced = deployment.replace_with(bad, pace).await?;
        assert!((5..=8).contains(&replaced.failed.len()), "{replaced:?}");
        assert_eq!(replaced.not_asked, 50 - replaced.failed.len());
        assert_eq!(deployment.versions()[&keeper(1).version()], 50);
        Ok(())
    });
}

#[test]
fn processes_may_be_killed_at_any_time_of_an_upgrade() {
    run(async || {
        let mut upgraded_in_all = 0;
        for delay in 0..40 {
            let deployment = Deployment::new(keeper(1));
            let pids: Vec<Pid> =
                (0..10).map(|_| spawn(&deployment, "keeper")).collect::<Result<_, _>>()?;
            settle(&deployment, 10).await;
            let killer = procession::spawn(async move {
                // Not to wait for something, but to kill at another time in each round.
                procession::sleep(Duration::from_micros(50 * delay * delay)).await;
                for pid in pids {
                    procession::process::send_exit(pid, Exit::Killed);
                }
            });
            let Replaced { upgraded, ended, failed, pending, .. } =
                replace_patiently(&deployment, keeper(2)).await?;
            assert_eq!((failed, pending), (vec![], 0));
            assert!(upgraded + ended <= 10, "each process counts once");
            upgraded_in_all += upgraded;
            killer.await.expect("no panic");
            while !deployment.versions().is_empty() {
                procession::yield_now().await;
            }
        }
        assert!(upgraded_in_all > 0, "the last rounds kill late");
        Ok(())
    });
}

#[test]
fn a_process_that_starts_during_a_replacement_is_upgraded() {
    // One worker: the process takes its first step after the replacement.
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    let scheduler = scheduler.expect("it starts no thread");
    let deployment = Deployment::new(keeper(1));
    let options = SpawnOptions::new().on(&scheduler);
    let child = deployment.program().spawn_with(options, "keeper", []).expect("it starts");
    scheduler.block_on(async {
        let replaced = replace_patiently(&deployment, keeper(2)).await.expect("it is valid");
        assert_eq!(replaced, Replaced::default());
    });
    scheduler.run_until_idle();
    let version = keeper(2).version().to_string();
    let label = scheduler.snapshot().processes[0].label.clone();
    assert_eq!(label, Some(format!("keeper {}", &version[..8])), "its version is shown");
    assert_eq!(deployment.version_of(child.pid()), Some(keeper(2).version()));
}
