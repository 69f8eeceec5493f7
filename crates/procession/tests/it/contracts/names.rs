//! Names: each has one owner, and is free before any process learns of the owner's end.

use crate::home::{others_may_run, thread};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::process::{Named, RegisterError, Registry, kill, register, whereis};
use procession::time::Instant;
use procession::{
    Address, CallError, Context, Pid, Reply, Scheduler, SpawnOptions, start, yield_now,
};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::{HOUR, waits};
use crate::scene::{driven, panic_quietly, threaded};

#[test]
fn a_name_has_one_owner_and_a_process_one_name() {
    let scheduler = driven();
    let (one, two) = (waits(&scheduler), waits(&scheduler));
    let (one, two) = (one.pid(), two.pid());
    assert_eq!(scheduler.register("a", one), Ok(()));
    let name: Arc<str> = "a".into();
    for pid in [one, two] {
        let taken = RegisterError::Taken { name: Arc::clone(&name), owner: one };
        assert_eq!(scheduler.register("a", pid), Err(taken));
    }
    let second = scheduler.register("b", one).expect_err("it has a name");
    assert_eq!(second.to_string(), format!("cannot register {one} as `b`: it has a name already"));
    assert_eq!(scheduler.whereis("b"), None, "the refused name is free");
    assert_eq!(scheduler.register("b", two), Ok(()));
    assert_eq!(scheduler.unregister("a"), Some(one));
    assert_eq!(scheduler.unregister("a"), None);
    assert_eq!(scheduler.register("c", one), Ok(()), "it may have another now");
    assert_eq!((scheduler.whereis("c"), scheduler.whereis("b")), (Some(one), Some(two)));
}

#[test]
fn a_name_is_of_its_scheduler() {
    let (one, two) = (driven(), driven());
    let pid = waits(&one).pid();
    assert!(matches!(two.register("a", pid), Err(RegisterError::Ended { .. })));
    assert_eq!(one.register("a", pid), Ok(()));
    assert_eq!((one.whereis("a"), two.whereis("a")), (Some(pid), None));
}

#[test]
fn a_name_is_free_when_its_end_is_told() {
    let scheduler = threaded(2);
    let keeper = scheduler.start(|mut cx: Context<()>| async move {
        cx.trap_exits(true);
        for round in 0..500 {
            let child =
                SpawnOptions::new().monitor().link().start(move |mut cx: Context<()>| async move {
                    cx.recv().await;
                    if round % 2 == 0 {
                        panic_quietly("as it happens");
                    }
                });
            register("worker", child.pid()).expect("the process that had it has ended");
            child.send(()).expect("it waits");
            if round % 3 == 0 {
                // The handle reports the end.
                drop(child.await);
                assert_eq!(whereis("worker"), None);
            } else {
                let monitor = child.monitor_ref().expect("it was asked for");
                cx.down(monitor).await.expect("it is not cancelled");
                assert_eq!(whereis("worker"), None);
            }
        }
    });
    assert_eq!(keeper.join(), Ok(()));
}

#[test]
fn a_process_that_has_ended_gets_no_name() {
    let scheduler = threaded(2);
    for _ in 0..2000 {
        let child = scheduler.spawn(async {});
        let pid = child.pid();
        // The process ends meanwhile, or has ended before.
        let registered = scheduler.register("brief", pid);
        assert!(matches!(registered, Ok(()) | Err(RegisterError::Ended { .. })), "{registered:?}");
        assert_eq!(child.join(), Ok(()));
        assert_eq!(scheduler.whereis("brief"), None);
    }
}

enum Cache {
    Get(Reply<u32>),
    Break,
}

async fn cache(mut cx: Context<Cache>, value: u32) {
    while let Some(message) = cx.recv().await {
        match message {
            Cache::Get(reply) => reply.send(value),
            Cache::Break => panic_quietly("asked to"),
        }
    }
}

#[test]
fn a_named_address_survives_a_restart() {
    let scheduler = driven();
    let named: Named<Cache> = Named::on(&scheduler, "cache");
    assert!(named.send(Cache::Break).expect_err("there is none").is_ended());
    for value in [1, 2, 3] {
        let child = scheduler.start(move |cx| cache(cx, value));
        scheduler.register("cache", child.pid()).expect("the name is free");
        assert_eq!(named.pid(), Some(child.pid()));
        let asked = scheduler.block_on(named.call(Cache::Get, HOUR));
        assert_eq!(asked.ok(), Some(value));
        named.send(Cache::Break).expect("it is there");
        assert!(child.join().expect_err("it breaks").is_panic());
    }
    assert!(
        scheduler.block_on(named.call(Cache::Get, HOUR)).expect_err("there is none").is_refused()
    );
    // A child of another type under the same name is refused.
    let other = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    scheduler.register("cache", other.pid()).expect("the name is free");
    assert!(named.send(Cache::Break).expect_err("it receives numbers").is_wrong_type());
    assert!(named.address().expect_err("it receives numbers").is_wrong_type());
}

#[test]
fn an_error_by_name_has_the_name_the_process_and_both_types() {
    let scheduler = driven();
    let options = || SpawnOptions::new().on(&scheduler);
    let bounded = options().mailbox(1, WhenFull::Reject).name("w");
    let worker = bounded.start(|mut cx: Context<u64>| async move { cx.recv().await });
    let idle = options().name("idle").spawn(std::future::pending::<()>());
    let (pid, idle_pid) = (worker.pid(), idle.pid());
    let wrong = format!(
        "cannot send to `w` ({pid}): the message is of type i32, but the process receives u64"
    );
    let named: Named<i32> = Named::on(&scheduler, "w");
    let refused = named.send(1).expect_err("it receives u64");
    assert_eq!((refused.to_string(), refused.name()), (wrong.clone(), Some("w")));
    assert!(refused.is_wrong_type() && refused.pid() == pid);
    assert_eq!(named.address().expect_err("it receives u64").to_string(), wrong);
    let called = scheduler.block_on(named.call(|_: Reply<()>| 1, HOUR)).expect_err("the same");
    let CallError::Refused(refused) = called else { panic!("{called:?}") };
    assert_eq!((refused.to_string(), refused.into_inner()), (wrong, 1));

    let none: Named<i32> = Named::on(&scheduler, "idle");
    let text = format!(
        "cannot send to `idle` ({idle_pid}): the message is of type i32, but the process receives \
         no messages"
    );
    assert_eq!(none.send(1).expect_err("it has no mailbox").to_string(), text);

    let right: Named<u64> = Named::on(&scheduler, "w");
    right.send(1).expect("there is room");
    let full = format!("cannot send to `w` ({pid}): its mailbox is full");
    assert_eq!(right.send(2).expect_err("it is full").to_string(), full);
    assert_eq!(worker.join(), Ok(Some(1)));
    let error = right.send(3).expect_err("it has ended");
    assert_eq!(error.to_string(), "cannot send: no process is registered as `w`");
    assert_eq!((error.name(), error.is_ended()), (Some("w"), true));
}

#[test]
fn names_are_of_the_running_process_scheduler() {
    let scheduler = driven();
    let inside = scheduler.spawn(async {
        let child = start(|mut cx: Context<()>| async move { cx.recv().await });
        register("child", child.pid()).expect("the name is free");
        let found = whereis("child") == Some(child.pid());
        let named: Named<()> = Named::new("child");
        named.send(()).expect("it is there");
        yield_now().await;
        (found, child.await)
    });
    assert_eq!(inside.join(), Ok((true, Ok(Some(())))));
    assert_eq!(scheduler.whereis("child"), None);
}

#[test]
fn a_name_that_is_freed_as_it_is_registered_leaves_nothing_with_its_process() {
    // Beside other tests the two threads may share a processor, where a round takes milliseconds.
    const ROUNDS: u32 = 5_000;
    const ROUNDS_MIN: u32 = 200;
    let limit = Instant::now() + Duration::from_secs(2);
    let scheduler = threaded(1);
    let process = waits(&scheduler);
    let pid = process.pid();
    let stops = AtomicBool::new(false);
    let free_again = crate::home::thread::scope(|scope| {
        scope.spawn(|| {
            while !stops.load(Relaxed) {
                // Usually there is no such name.
                let _freed = scheduler.unregister("a");
                others_may_run();
            }
        });
        let mut rounds =
            (0..ROUNDS).take_while(|&round| round < ROUNDS_MIN || Instant::now() < limit);
        let free_again = rounds.all(|_| {
            let registered = scheduler.register("a", pid).is_ok();
            while scheduler.whereis("a").is_some() {
                thread::yield_now();
            }
            registered
                && scheduler.register("b", pid).is_ok()
                && scheduler.unregister("b") == Some(pid)
        });
        stops.store(true, Relaxed);
        free_again
    });
    assert!(free_again, "it has no name any more, and may have another");
    procession::process::kill(pid);
    assert!(process.join().is_err());
    assert_eq!((scheduler.whereis("a"), scheduler.whereis("b")), (None, None));
}

/// Looks at a process when it is woken, and tries to name it again.
struct Looks {
    process: Address<()>,
    scheduler: Scheduler,
    registry: Registry<()>,
    seen: Mutex<Vec<(bool, Option<Pid>, bool)>>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let seen = (self.process.is_alive(), self.scheduler.whereis("a"));
        let pid = self.process.pid();
        let named = self.scheduler.register("b", pid);
        let refused = named == Err(RegisterError::Ended { name: "b".into(), pid })
            && self.registry.register("b", pid, ()).is_err();
        self.seen.lock().push((seen.0, seen.1, refused));
    }
}

/// A process leaves all tables before anybody can see that it has ended. The waker of a listener
/// runs in the middle of that, and so sees the order.
#[test]
fn a_process_has_left_all_tables_before_it_counts_as_ended() {
    for by_signal in [false, true] {
        let (scheduler, registry) = (driven(), Registry::unique());
        let process = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
        scheduler.run_until_idle();
        scheduler.register("a", process.pid()).expect("it is free");
        registry.register("a", process.pid(), ()).expect("it is free");
        let mut listener = registry.listen();
        let looks = Arc::new(Looks {
            process: process.address().clone(),
            scheduler: scheduler.clone(),
            registry: registry.clone(),
            seen: Mutex::default(),
        });
        let waker = Waker::from(Arc::clone(&looks));
        let mut task = std::task::Context::from_waker(&waker);
        let mut event = pin!(listener.recv());
        assert!(event.as_mut().poll(&mut task).is_pending());
        if by_signal {
            assert!(kill(process.pid()))
        } else {
            process.cancel()
        }
        scheduler.run_until_idle();
        assert!(!process.is_alive());
        assert_eq!(
            *looks.seen.lock(),
            [(true, None, true)],
            "it lives, has left, and enters no more"
        );
        assert_eq!((scheduler.whereis("b"), registry.lookup("b").len()), (None, 0));
    }
}

#[test]
fn no_thread_finds_the_name_of_a_process_that_has_ended() {
    let scheduler = threaded(2);
    for round in 0..2000 {
        let process = scheduler.start(|_: Context<()>| async {
            for _ in 0..3 {
                yield_now().await;
            }
        });
        let address = process.address().clone();
        if scheduler.register("a", process.pid()).is_err() {
            // It was faster.
            continue;
        }
        // Half of the processes have a handle.
        let _kept = (round % 2 == 0).then_some(process);
        while address.is_alive() {
            others_may_run();
        }
        assert_eq!(scheduler.whereis("a"), None, "round {round}");
    }
}
