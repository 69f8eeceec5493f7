//! Every panic in a program with the panic hook of the runtime is printed, wherever it is caught.
//!
//! Method: each place of the table panics once, with its name, in a child process of its own. The
//! child prints the name exactly once. The rule is that of `report/panics.rs`.

use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Wake, Waker};
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::observe::install_panic_hook;
use procession::pool::{ObjectPool, Pool};
use procession::process::{Outcome, catch_panic, kill};
use procession::sync::{CancellationToken, oneshot};
use procession::time::run_after;
use procession::{
    Context, Exit, Reply, Scheduler, SpawnOptions, coroutine, sleep, spawn, spawn_blocking, start,
};

use super::{child, enabled, is_child};

fn fails(text: &'static str) {
    panic!("{text}");
}

/// A place where user code panics with the text.
type Place = fn(&'static str) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Panics with its text when it is dropped.
struct Bomb(&'static str);

impl Outcome for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        std::mem::forget(Arc::clone(&self));
        panic!("{}", self.0);
    }
}

/// A machine that panics in `init`.
struct Unready(&'static str);

impl Process for Unready {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        panic!("{}", self.0);
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        unreachable!("it does not start")
    }
}

/// Returns what a table entry does, as a process.
macro_rules! place {
    (|$text:ident| $body:block) => {
        (|$text: &'static str| {
            let body: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { $body });
            body
        }) as Place
    };
}

/// The places. The process that runs an entry does not end by its panic, except for the first ones.
const PLACES: &[(&str, Place)] = &[
    ("a process", place!(|text| { fails(text) })),
    (
        "a coroutine",
        place!(|text| {
            let coroutine = SpawnOptions::new()
                .try_start_coroutine(move |_: coroutine::Context<()>| fails(text));
            drop(coroutine.expect("they are enabled").await);
        }),
    ),
    (
        "a job of an async pool, with a handle",
        place!(|text| {
            let pool = Pool::builder().build_async().expect("valid");
            drop(pool.submit(async move { fails(text) }).await.expect("open").await);
        }),
    ),
    (
        "a job of an async pool, without a handle",
        place!(|text| {
            let pool = Pool::builder().build_async().expect("valid");
            pool.execute(async move { fails(text) }).await.expect("open");
            pool.idle().await.expect("it is no job");
        }),
    ),
    (
        "a job of an async pool, with a handler",
        place!(|text| {
            let pool = Pool::builder().on_panic(drop).build_async().expect("valid");
            pool.execute(async move { fails(text) }).await.expect("open");
            pool.idle().await.expect("it is no job");
        }),
    ),
    (
        "the handler of an async pool",
        place!(|text| {
            let pool = Pool::builder().on_panic(move |_| fails(text));
            let pool = pool.build_async().expect("valid");
            let job = async {
                if true {
                    std::panic::resume_unwind(Box::new("quiet"))
                }
            };
            pool.execute(job).await.expect("open");
            pool.idle().await.expect("it is no job");
        }),
    ),
    (
        "the start hook of an async pool",
        place!(|text| {
            let pool = Pool::builder().on_worker_start(move || fails(text));
            let pool = pool.build_async().expect("valid");
            pool.submit(async {}).await.expect("open").await.expect("it returns");
        }),
    ),
    (
        "a job of an async function pool",
        place!(|text| {
            let run = |text: &'static str| async move { fails(text) };
            let pool = Pool::builder().build_async_function(run).expect("valid");
            pool.execute(text).await.expect("open");
            pool.idle().await.expect("it is no job");
        }),
    ),
    (
        "a job of a pool of coroutines",
        place!(|text| {
            let pool = Pool::builder().build_coroutines().expect("valid");
            drop(pool.submit(move || fails(text)).await.expect("open").await);
        }),
    ),
    (
        "a job of a pool of threads",
        place!(|text| {
            let pool = Pool::builder().build().expect("valid");
            drop(pool.submit(move || fails(text)).expect("open").await);
        }),
    ),
    ("spawn_blocking", place!(|text| { drop(spawn_blocking(move || fails(text)).await) })),
    (
        "the drop of a message that is never received",
        place!(|text| {
            let receiver =
                start(|_: Context<Bomb>| async { sleep(Duration::from_millis(1)).await });
            assert!(receiver.send(Bomb(text)).is_ok(), "it lives");
            receiver.await.expect("it returns");
        }),
    ),
    (
        "the function of a reply",
        place!(|text| {
            Reply::from_fn(move |_: Option<u32>| fails(text)).send(1);
        }),
    ),
    (
        "the reset of an object pool",
        place!(|text| {
            let pool = ObjectPool::builder(|| 1)
                .reset(move |_: &mut i32| {
                    fails(text);
                    true
                })
                .build();
            drop(pool.get());
        }),
    ),
    (
        "the function of a timer",
        place!(|text| {
            let _timer = run_after(Duration::ZERO, move || fails(text)).expect("there is room");
            sleep(Duration::from_millis(1)).await;
        }),
    ),
    (
        "a waker",
        place!(|text| {
            let token = CancellationToken::new();
            let mut cancelled = Box::pin(token.clone().cancelled_owned());
            let waker = Waker::from(Arc::new(Bomb(text)));
            assert!(cancelled.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
            std::mem::forget(waker);
            token.cancel();
        }),
    ),
    (
        "the drop of a cancelled future",
        place!(|text| {
            let bomb = Bomb(text);
            let cancelled = spawn(async move {
                let _bomb = bomb;
                pending::<()>().await;
            });
            procession::yield_now().await;
            cancelled.cancel();
            drop(cancelled.await);
        }),
    ),
    (
        "a coroutine that panics as it is terminated",
        place!(|text| {
            let (begin, begun) = oneshot::channel();
            let waits = move |_: coroutine::Context<()>| {
                begin.send(()).expect("the test waits");
                let wait = || coroutine::wait(pending::<()>());
                drop(catch_unwind(AssertUnwindSafe(wait)));
                fails(text);
            };
            let waits = SpawnOptions::new().try_start_coroutine(waits).expect("they are enabled");
            begun.await.expect("it begins");
            assert!(kill(waits.pid()), "it waits");
            drop(waits.await);
        }),
    ),
    (
        "the output of a coroutine that returns as it is terminated",
        place!(|text| {
            let (begin, begun) = oneshot::channel();
            let returns = move |_: coroutine::Context<()>| {
                begin.send(()).expect("the test waits");
                let wait = || coroutine::wait(pending::<()>());
                drop(catch_unwind(AssertUnwindSafe(wait)));
                Bomb(text)
            };
            let returns =
                SpawnOptions::new().try_start_coroutine(returns).expect("they are enabled");
            begun.await.expect("it begins");
            assert!(kill(returns.pid()), "it waits");
            assert_eq!(returns.await.err(), Some(Exit::Killed));
        }),
    ),
    (
        "the function of a crate that calls its users",
        place!(|text| { assert!(catch_panic(|| fails(text)).is_none()) }),
    ),
    (
        "the drop of an output",
        place!(|text| {
            let spawned = spawn(async move {
                procession::yield_now().await;
                Bomb(text)
            });
            drop(spawned);
            sleep(Duration::from_millis(100)).await;
        }),
    ),
    (
        "the init of a machine",
        place!(|text| {
            let machine = SpawnOptions::new().try_start_machine(Unready(text), "", ());
            assert!(machine.is_err());
        }),
    ),
];

/// The dead letter hook, which is set for the whole scheduler.
const DEAD_LETTER: &str = "the hook for dead letters";

/// The closure by which a process shows itself, which needs the scheduler, too.
const INSPECTOR: &str = "the closure of an inspector";

/// The name of the variable that chooses the place.
const PLACE: &str = "PROCESSION_TEST_PLACE";

#[test]
fn every_caught_panic_is_printed_once() {
    if is_child() {
        return fail_at(&std::env::var(PLACE).expect("the test sets it"));
    }
    for text in PLACES.iter().map(|place| place.0).chain([DEAD_LETTER, INSPECTOR]) {
        let mut child = child("catches::every_caught_panic_is_printed_once");
        let output = child.env(PLACE, text).output().expect("the system has processes");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
        let lines = said.lines().filter(|line| line.ends_with(text)).count();
        assert_eq!(lines, 1, "{text}:\n{said}");
    }
}

fn fail_at(chosen: &str) {
    install_panic_hook();
    let builder = Scheduler::builder().worker_threads(1).on_dead_letter(|letter| {
        assert!(!letter.message.is::<u8>(), "{DEAD_LETTER}");
    });
    let scheduler = enabled(builder);
    if let Some((text, place)) = PLACES.iter().find(|place| place.0 == chosen) {
        drop(scheduler.block_on(scheduler.spawn(place(text))));
    }
    scheduler.block_on(async {
        if chosen == DEAD_LETTER {
            let receiver = start(|_: Context<u8>| async { sleep(Duration::from_millis(1)).await });
            receiver.send(1).expect("it lives");
            receiver.await.expect("it returns");
        }
        if chosen == INSPECTOR {
            let (begins, begun) = oneshot::channel();
            let shown = start(move |mut cx: Context<()>| async move {
                let _inspecting = cx.inspect_with(|_| fails(INSPECTOR));
                assert!(begins.send(()).is_ok(), "the test waits");
                cx.recv().await;
            });
            begun.await.expect("it begins");
            let asked = scheduler.inspect(shown.pid()).await;
            assert!(asked.expect_err("it panics").to_string().ends_with(INSPECTOR));
        }
        drop(scheduler.shutdown(Duration::from_secs(10)).await);
    });
}
