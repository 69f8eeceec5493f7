//! The attributes `main` and `test`.
//!
//! `crates/procession-macros/tests/misuse.rs` has their errors.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Termination};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use procession::sync::{Mutex, channel};
use procession::testing::Test;
use procession::time::Instant;
use procession::{Context, Exit, Scheduler, start};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the scheduler of a process that it starts.
async fn scheduler_of_a_process() -> u32 {
    let process = procession::spawn(async { procession::process::current_pid() });
    process.await.expect("it does not panic").expect("it is one").scheduler()
}

/// Returns the message of the panic of `test`.
fn panic_message(test: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(test)).expect_err("the test fails");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("it is a text")).to_owned(),
    }
}

/// Runs a test again in a program of its own. Returns what that program prints on standard error,
/// or `None` in that program.
fn printed(test: &str) -> Option<String> {
    const CHILD: &str = "PROCESSION_TEST_ATTRIBUTES";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("a test knows itself"));
    let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output();
    let output = output.expect("there is room for a process");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    Some(errors)
}

#[procession::main]
async fn plain_main() -> u32 {
    scheduler_of_a_process().await
}

#[procession::main(name = "own", worker_threads = 1 + 2, seed = 7, callers_drive)]
async fn main_with_options() -> Vec<String> {
    let local = Rc::new(1);
    procession::yield_now().await;
    let scheduler = scheduler_of_a_process().await;
    assert_ne!(scheduler, Scheduler::global().id(), "the program has its own");
    assert_eq!(*local, 1, "the future need not be `Send`");
    let name = procession::spawn(async { std::thread::current().name().map(str::to_owned) });
    name.await.into_iter().flatten().collect()
}

mod renamed {
    pub(crate) use procession as other;
}

#[procession::main(crate = renamed::other, worker_threads = 1)]
async fn main_of_a_renamed_crate() -> Result<(), Exit> {
    Err(Exit::failed("as it is"))
}

#[procession::main(unsafe(enable_coroutines))]
async fn main_with_coroutines() -> Result<u32, Exit> {
    let coroutine = procession::SpawnOptions::new()
        .try_start_coroutine(|_: procession::coroutine::Context<()>| 3);
    coroutine.expect("they are enabled").await
}

#[procession::main(max_processes = 0)]
async fn main_with_a_wrong_option() {}

#[test]
fn a_main_function_runs_on_the_default_scheduler_unless_it_has_options() {
    assert_eq!(plain_main(), Scheduler::global().id());
    main_with_options();
    assert_eq!(main_of_a_renamed_crate(), Err(Exit::failed("as it is")));
    assert_eq!(main_with_coroutines(), Ok(3));
}

#[procession::main(run_until_signal = Duration::from_secs(30))]
async fn main_of_a_service() -> Result<(), Exit> {
    assert_eq!(scheduler_of_a_process().await, Scheduler::global().id());
    Ok(())
}

#[procession::main(
    name = "own",
    test_clock,
    worker_threads = 1,
    run_until_signal = Duration::from_secs(30)
)]
async fn main_that_loses_a_process() {
    let late = procession::SpawnOptions::new().label("late");
    drop(late.start(|_: Context<()>| std::future::pending::<()>()));
}

/// In a program of its own, because the default scheduler has ended then.
#[test]
fn a_main_function_of_a_service_ends_its_scheduler_and_fails_if_something_is_lost() {
    let Some(errors) =
        printed("a_main_function_of_a_service_ends_its_scheduler_and_fails_if_something_is_lost")
    else {
        assert_eq!(main_of_a_service().report(), ExitCode::SUCCESS);
        assert!(!Scheduler::global().health().is_ready(), "it was shut down");
        assert_eq!(main_that_loses_a_process().report(), ExitCode::FAILURE);
        return;
    };
    assert!(errors.contains("late (p"), "{errors}");
}

#[cfg(feature = "tokio")]
async fn needs_tokio() {
    tokio::time::sleep(Duration::ZERO).await;
}

#[cfg(feature = "tokio")]
#[procession::main(worker_threads = 1, callers_drive, tokio_threads = 0)]
async fn main_without_tokio() {
    needs_tokio().await;
}

/// tokio's own text names no way to get a runtime.
#[cfg(feature = "tokio")]
#[test]
fn a_function_that_lacks_tokio_is_told_how_to_get_it() {
    let Some(errors) = printed("a_function_that_lacks_tokio_is_told_how_to_get_it") else {
        panic_message(|| Test::new("test").run(needs_tokio));
        panic_message(main_without_tokio);
        return;
    };
    let advice: Vec<_> = errors.lines().filter(|line| line.starts_with("procession: ")).collect();
    assert_eq!(advice.len(), 2, "{errors}");
    for line in advice {
        assert!(line.contains("let `Builder::tokio_threads` be more than 0"), "{line}");
        assert!(line.ends_with("in a test with `#[test(tokio_threads = 1)]`"), "{line}");
    }
}

#[test]
fn a_scheduler_that_cannot_be_built_is_a_panic_that_says_why() {
    let message = panic_message(main_with_a_wrong_option);
    assert!(message.contains("cannot build the scheduler of the main function"), "{message}");
    assert!(message.contains("max_processes"), "{message}");
}

#[procession::testing::test]
async fn the_default_is_one_worker_on_the_test_clock() {
    let begin = Instant::now();
    procession::sleep(DAY).await;
    // Only on the test clock, a sleep wakes up exactly at its deadline.
    assert_eq!(Instant::now() - begin, DAY);
    let workers = procession::spawn(async { std::thread::current().id() }).await;
    assert_eq!(workers, Ok(std::thread::current().id()), "this thread is the worker");
}

#[procession::testing::test(time_limit = 100 * DAY, worker_threads = 2, max_processes = 100)]
async fn a_limit_and_the_methods_of_the_builder_are_options() {
    procession::sleep(99 * DAY).await;
    let refused = (0..200).filter(|_| {
        procession::spawn(std::future::pending::<()>()).pid() == procession::Pid::NOBODY
    });
    assert!(refused.count() >= 100);
}

#[procession::testing::test(real_clock, time_limit = Duration::from_secs(3600))]
#[expect(clippy::disallowed_methods, reason = "a thread that the scheduler does not know")]
async fn the_real_clock_waits_for_other_threads() {
    let (sender, receiver) = channel::bounded(1);
    let (begins, begun) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        begun.recv().expect("the test sends");
        procession::coroutine::wait(sender.send(5)).expect("the test receives");
    });
    begins.send(()).expect("the thread receives");
    assert_eq!(receiver.recv().await, Some(5));
    thread.join().expect("it does not panic");
}

#[procession::testing::test]
#[should_panic(expected = "as it is")]
async fn other_attributes_stay() {
    panic!("as it is");
}

#[procession::testing::test]
#[should_panic(expected = "the test returned an error")]
async fn an_error_fails_the_test() -> Result<(), Exit> {
    Err(Exit::failed("no disk"))
}

/// Returns the order in which eight processes run that one process wakes in one step.
async fn order() -> Vec<usize> {
    let mut collects = start(|mut cx: Context<usize>| async move {
        let mut order = Vec::new();
        while order.len() < 8 {
            order.extend(cx.recv().await);
        }
        order
    });
    let sleepers: Vec<_> = (0..8)
        .map(|number| {
            let to = collects.address().clone();
            start(move |mut cx: Context<()>| async move {
                cx.recv().await.map(|()| to.send(number).is_ok())
            })
        })
        .collect();
    // The clock moves once all of them wait.
    procession::sleep(Duration::from_millis(1)).await;
    let wakes = procession::spawn(async move {
        let sent = sleepers.iter().filter(|sleeper| sleeper.send(()).is_ok()).count();
        (sent, sleepers)
    });
    let (sent, _sleepers) = wakes.await.expect("it does not panic");
    assert_eq!(sent, 8);
    (&mut collects).await.expect("it does not panic")
}

/// Returns the order of each run of a test.
fn orders(test: Test) -> Vec<Vec<usize>> {
    let orders = RefCell::new(Vec::new());
    test.run(|| async {
        let order = order().await;
        orders.borrow_mut().push(order);
    });
    orders.into_inner()
}

#[test]
fn repeats_have_different_orders_and_each_seed_has_one() {
    let all = orders(Test::new("orders").repeats(20).seed(100));
    assert_eq!(all.len(), 20);
    assert!(all.iter().any(|order| order != &all[0]), "they are shuffled: {:?}", all[0]);
    assert_eq!(all, orders(Test::new("orders").repeats(20).seed(100)));
    assert_eq!(all[3..], orders(Test::new("orders").repeats(17).seed(103)));
}

#[test]
fn the_first_run_that_fails_ends_the_test_with_its_own_panic() {
    let runs = Cell::new(0);
    let message = panic_message(|| {
        Test::new("fails").repeats(10).run(|| {
            runs.set(runs.get() + 1);
            async { assert!(runs.get() < 4, "it is the fourth") }
        });
    });
    assert_eq!((message.as_str(), runs.get()), ("it is the fourth", 4));
}

#[test]
fn a_test_whose_processes_wait_for_each_other_fails_at_once() {
    let message = panic_message(|| {
        Test::new("waits").run(|| async {
            let waits = procession::SpawnOptions::new()
                .label("waits")
                .start(|mut cx: Context<()>| async move { cx.recv().await });
            waits.await.map(drop)
        });
    });
    let [first, second] = &message.lines().collect::<Vec<_>>()[..] else { panic!("{message}") };
    assert_eq!(*first, "the test has not ended within 30 days of its scheduler's clock");
    assert!(second.starts_with("waits (p") && second.contains("waits for message"), "{second}");
    assert!(second.contains("spawned at crates/procession/tests/attributes.rs:"), "{second}");
}

/// Returns the lines of the failure of a test, of which there are as many.
fn lines_of_failure<const LINES: usize>(test: impl FnOnce()) -> [String; LINES] {
    let message = panic_message(test);
    let lines = message.lines().map(str::to_owned).collect::<Vec<_>>();
    lines.try_into().unwrap_or_else(|_| panic!("{message}"))
}

#[test]
fn a_deadlock_names_who_holds_the_lock() {
    let lock = || Arc::new(Mutex::new(()));
    let [_, waits] = lines_of_failure(|| {
        Test::new("held by the body").run(|| async {
            let held = lock();
            let _guard = Arc::clone(&held).lock_owned().await;
            procession::spawn(async move { drop(held.lock().await) }).await
        });
    });
    assert!(waits.contains("waits for lock at crates/procession/tests/attributes.rs:"), "{waits}");
    assert!(waits.ends_with(", which it gets after the test function"), "{waits}");
    let [_, first, second] = lines_of_failure(|| {
        Test::new("crossed").run(|| async {
            let (left, right) = (lock(), lock());
            let crossed = |label, one: Arc<Mutex<()>>, two: Arc<Mutex<()>>| {
                procession::SpawnOptions::new().label(label).spawn(async move {
                    let _one = one.lock().await;
                    procession::yield_now().await;
                    let _two = two.lock().await;
                })
            };
            let left_first = crossed("ann", Arc::clone(&left), Arc::clone(&right));
            let right_first = crossed("bob", right, left);
            left_first.await.and(right_first.await)
        });
    });
    assert!(first.contains(", which it gets after bob (p") && first.starts_with("ann"), "{first}");
    assert!(second.contains("after ann (p") && second.ends_with("waits for itself"), "{second}");
}

/// Returns a process that has panicked, while its handle exists.
async fn panicked() -> procession::JoinHandle<()> {
    let fails = procession::spawn(async { panic!("on its own") });
    procession::sleep(DAY).await;
    fails
}

#[test]
fn a_panic_that_nobody_has_seen_fails_the_test() {
    let lines = [
        || {
            Test::new("detached").run(|| async {
                drop(procession::spawn(async { panic!("on its own") }));
                procession::sleep(DAY).await;
            });
        },
        || Test::new("not awaited").run(|| async { drop(panicked().await) }),
    ]
    .map(lines_of_failure);
    for [first, second] in lines {
        assert_eq!(first, "a process panicked, and nobody has awaited or monitored it");
        assert!(second.ends_with(": on its own"), "{second}");
    }
    // With the reason for which the test has waited in vain.
    let [_, second, third, ..] = lines_of_failure::<4>(|| {
        Test::new("waits in vain").run(|| async {
            drop(procession::spawn(async { panic!("on its own") }));
            procession::spawn(std::future::pending::<()>()).await
        });
    });
    assert!(second.ends_with(": on its own"), "{second}");
    assert_eq!(third, "the test has not ended within 30 days of its scheduler's clock");
}

#[procession::testing::test]
async fn a_panic_that_somebody_sees_fails_no_test() {
    assert_eq!(panicked().await.await, Err(Exit::Panicked("on its own".into())));
    let watched = procession::spawn(async {
        procession::sleep(DAY).await;
        panic!("on its own");
    });
    let watches = start(move |mut cx: Context<()>| async move {
        cx.monitor(watched.pid());
        drop(watched);
        matches!(cx.recv_event().await, Some(procession::mailbox::Event::Down(_)))
    });
    assert_eq!(watches.await, Ok(true));
}

/// Panics in a detached process, in the child of [`the_report_is_captured_with_its_test`].
#[procession::testing::test]
async fn reports_a_panic() {
    if std::env::var_os("PROCESSION_CHILD").is_some() {
        drop(procession::spawn(async { std::panic::resume_unwind(Box::new("on its own")) }));
        procession::yield_now().await;
    }
}

#[test]
fn the_report_is_captured_with_its_test() {
    let mut command = Command::new(std::env::current_exe().expect("a test knows itself"));
    command.args(["--exact", "reports_a_panic", "--test-threads=1"]);
    let output = command.env("PROCESSION_CHILD", "1").output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, printed) = (text(&output.stdout), text(&output.stderr));
    let (_, captured) = shown.split_once("reports_a_panic stdout ----").expect("the test fails");
    assert!(captured.contains("procession: p"), "{shown}");
    assert!(!printed.contains("on its own"), "{printed}");
}

#[test]
fn a_test_that_goes_on_for_ever_reaches_its_limit() {
    let message = panic_message(|| {
        Test::new("goes on").time_limit(Duration::from_secs(2)).run(|| async {
            loop {
                procession::sleep(Duration::from_millis(10)).await;
            }
        });
    });
    assert_eq!(message, "the test has not ended within 2 seconds of its scheduler's clock");
}

#[test]
fn no_run_at_all_is_refused() {
    let message = panic_message(|| Test::new("never").repeats(0).run(|| async {}));
    assert_eq!(message, "`repeats` is 0, so the test never would never run");
}

/// Fails with the order in the environment variable, in the children of
/// [`a_failed_run_is_repeated_by_its_seed`].
#[procession::testing::test(repeats = 50, seed = 1000)]
async fn fails_with_one_order() {
    let wrong = std::env::var("PROCESSION_CHILD").unwrap_or_default();
    assert_ne!(format!("{:?}", order().await), wrong);
}

#[test]
fn a_failed_run_is_repeated_by_its_seed() {
    let orders = orders(Test::new("orders").repeats(50).seed(1000));
    let is_new = |&at: &usize| at > 0 && !orders[..at].contains(&orders[at]);
    let at = (0..orders.len()).rfind(is_new).expect("not all are alike");
    let child = |seed: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().expect("a test knows itself"));
        command.args(["--exact", "fails_with_one_order"]);
        command.env("PROCESSION_CHILD", format!("{:?}", orders[at]));
        command.env_remove("PROCESSION_SEED").envs(seed.map(|seed| ("PROCESSION_SEED", seed)));
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    let seed = (1000 + at).to_string();
    let note = format!(
        "attributes::fails_with_one_order failed with the seed {seed}, in run {} of 50; \
         PROCESSION_SEED={seed} repeats this run alone",
        at + 1
    );
    let (passed, text) = child(None);
    assert!(!passed && text.contains(&note), "{note}: {text}");
    let (passed, text) = child(Some(&seed));
    assert!(!passed && text.contains("assertion `left != right` failed"), "{text}");
    let (passed, text) = child(Some("1000"));
    assert!(passed, "{text}");
    let (passed, text) = child(Some("all"));
    assert!(!passed && text.contains("PROCESSION_SEED is \"all\", which is not"), "{text}");
}

/// The names of the crate leave `#[test]` alone.
mod with_all_names {
    use procession::*;

    #[test]
    fn a_plain_test() {
        assert_eq!(run(async { 1 }), 1);
    }
}

/// With this import, `#[test]` is the attribute of this crate.
mod with_the_attribute {
    use procession::testing::test;

    #[test]
    #[should_panic(expected = "as it should")]
    fn a_plain_function_is_a_plain_test() {
        assert_eq!(procession::process::current_pid(), None);
        panic!("as it should");
    }

    #[test]
    async fn an_async_function_runs_on_the_test_clock() {
        procession::sleep(super::DAY).await;
    }
}
