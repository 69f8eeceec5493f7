//! Processes that can never continue are reported, and nothing else is.
//!
//! Method: programs with planted leaks, or with waits that only look like leaks, on the test clock.
//! The processes are told apart by their labels, because a PID that was asked for may be sent to.
//! `procession-sim` has random programs.

use std::future::{Future, pending, poll_fn};
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::observe::{Leak, LeakCause, LeakSign, Leaks, WaitReason};
use procession::scheduler::Builder;
use procession::sync::{Mutex, Notify, RwLock, channel, oneshot};
use procession::{
    Address, Child, Context, JoinHandle, Reply, Scheduler, SpawnOptions, coroutine, sleep, timeout,
};

const SECOND: Duration = Duration::from_secs(1);

struct Scene(Scheduler);

impl Scene {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(set: impl FnOnce(Builder) -> Builder) -> Self {
        let builder = set(Scheduler::builder().worker_threads(1).test_clock());
        Self(builder.build().expect("it is valid"))
    }

    fn options(&self, label: &str) -> SpawnOptions {
        SpawnOptions::new().on(&self.0).label(label)
    }

    fn spawn<T: Send + 'static>(
        &self,
        label: &str,
        body: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.options(label).spawn(body)
    }

    /// Starts a process that receives until its end.
    fn server(&self, label: &str) -> Child<u8, ()> {
        self.options(label)
            .start(|mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} })
    }

    /// Starts a watcher, which waits for the end of a server that it has started. Returns what
    /// `keep` takes of the server.
    fn watched<T: Send + 'static>(
        &self,
        keep: impl FnOnce(Child<u8, Option<u8>>) -> T + Send + 'static,
    ) -> T {
        let (sender, kept) = oneshot::channel();
        drop(self.options("watcher").start(|mut cx: Context<u8>| async move {
            let server = SpawnOptions::new()
                .label("server")
                .monitor()
                .start(|mut cx: Context<u8>| async move { cx.recv().await });
            let monitor = server.monitor_ref().expect("it was asked for");
            drop(sender.send(keep(server)));
            cx.down(monitor).await;
        }));
        self.0.run_until_idle();
        self.0.block_on(kept).expect("it was sent")
    }

    fn leaks(&self) -> Leaks {
        self.0.run_until_idle();
        self.0.leaks()
    }

    /// Checks that the processes with these labels are leaked, and no others.
    #[track_caller]
    fn check(&self, expected: &[(&str, WaitReason, LeakCause)]) -> Vec<Leak> {
        let leaks = self.leaks();
        let label = |leak: &Leak| leak.label.clone().unwrap_or_default();
        let mut found: Vec<_> =
            leaks.leaked.iter().map(|leak| (label(leak), leak.reason, leak.cause)).collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let expected: Vec<_> = expected
            .iter()
            .map(|&(label, reason, cause)| (label.to_owned(), reason, cause))
            .collect();
        assert_eq!(found, expected, "{leaks}");
        assert_eq!(leaks.leaked_total, expected.len() as u64);
        leaks.leaked
    }
}

const LOST: LeakCause = LeakCause::Unreachable;

#[test]
fn a_process_that_nobody_can_send_to_is_leaked() {
    let scene = Scene::new();
    let server = scene.server("server");
    scene.check(&[]);
    let (address, handle) = server.into_parts();
    handle.detach();
    scene.check(&[]);
    let another = address.clone();
    drop(address);
    scene.check(&[]);
    drop(another);
    let leaked = scene.check(&[("server", WaitReason::Message, LOST)]);
    assert_eq!(leaked[0].other, None);
    let text = leaked[0].to_string();
    assert!(text.contains(" (server) waits at ") && text.contains("leaks.rs:"), "{text}");
    assert!(text.ends_with(" for a message, and nothing refers to it"), "{text}");
    scene.0.advance(SECOND);
    assert!(scene.check(&[("server", WaitReason::Message, LOST)])[0].at_least >= SECOND / 2);
    procession::process::kill(leaked[0].pid);
    scene.check(&[]);
}

#[test]
fn a_handle_that_is_kept_may_still_cancel() {
    let scene = Scene::new();
    let (address, handle) = scene.server("server").into_parts();
    drop(address);
    scene.check(&[]);
    drop(handle);
    scene.check(&[("server", WaitReason::Message, LOST)]);
}

/// A program may send by PID, so a process with a PID that it knows is not leaked.
#[test]
fn a_process_with_a_known_pid_is_not_leaked() {
    let scene = Scene::new();
    let by_handle = scene.server("by handle");
    let pid = by_handle.pid();
    drop(by_handle);
    let own = scene.options("own").start(|mut cx: Context<u8>| async move {
        let _pid = cx.pid();
        cx.recv().await
    });
    drop(own);
    let current = scene.options("current").start(|mut cx: Context<u8>| async move {
        assert!(procession::process::current_pid().is_some());
        cx.recv().await
    });
    drop(current);
    let parent = scene.options("parent").start(|mut cx: Context<u8>| async move {
        let child = procession::start(|cx: Context<u8>| async move { cx.parent() });
        assert!(child.await.is_ok_and(|parent| parent.is_some()));
        cx.recv().await
    });
    drop(parent);
    drop(
        scene
            .options("named")
            .name("named")
            .start(|mut cx: Context<u8>| async move { cx.recv().await }),
    );
    let later = scene.server("later");
    later.send_after(SECOND, 1).expect("it lives");
    drop(later);
    scene.check(&[]);
    procession::mailbox::send(pid, 7_u8).expect("it lives");
    scene.check(&[]);
}

/// A look at a process makes its PID known to no sender.
#[test]
fn a_look_makes_no_pid_known() {
    let scene = Scene::new();
    drop(scene.server("server"));
    scene.0.run_until_idle();
    assert_eq!(scene.0.snapshot().processes.len(), 1);
    assert_eq!(scene.0.look(&procession::observe::Query::default()).rows.len(), 1);
    scene.check(&[("server", WaitReason::Message, LOST)]);
}

#[test]
fn a_wait_with_another_end_is_no_leak() {
    let scene = Scene::new();
    drop(scene.options("timeout").start(|mut cx: Context<u8>| async move {
        while cx.recv_timeout(SECOND).await.is_err() {}
    }));
    drop(scene.options("own address").start(|mut cx: Context<u8>| async move {
        let _own = cx.address();
        cx.recv().await
    }));
    let (sender, receiver) = oneshot::channel::<()>();
    drop(scene.options("either").start(|mut cx: Context<u8>| async move {
        let mut receiver = receiver;
        poll_fn(|task| {
            let told = std::pin::Pin::new(&mut receiver).poll(task).is_ready();
            if told { Poll::Ready(()) } else { std::pin::pin!(cx.recv()).poll(task).map(drop) }
        })
        .await;
    }));
    drop(scene.spawn("sleeper", sleep(SECOND)));
    let (notify, bell) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let rung = Arc::clone(&bell);
    drop(scene.spawn("notified", async move { rung.notified().await }));
    let (ends, end) = channel::bounded::<u8>(1);
    drop(scene.spawn("channel", async move { end.recv().await }));
    let locked = Arc::new(Mutex::new(()));
    let (kept, held) = (Arc::clone(&locked), Arc::clone(&notify));
    drop(scene.spawn("holder", async move {
        let _guard = kept.lock().await;
        held.notified().await;
    }));
    drop(scene.spawn("waiter", async move { drop(locked.lock().await) }));
    scene.check(&[]);
    drop((sender, ends, notify, bell));
}

#[test]
fn a_process_whose_waker_is_gone_is_leaked() {
    let scene = Scene::new();
    drop(scene.spawn("pending", pending::<()>()));
    let kept = scene.spawn("kept", pending::<()>());
    let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
    let others = Arc::clone(&wakers);
    drop(scene.spawn("waker", async move {
        poll_fn(|task| {
            others.try_lock().expect("it is free").push(task.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    }));
    scene.check(&[("pending", WaitReason::Waker, LOST)]);
    wakers.try_lock().expect("it is free").clear();
    drop(kept);
    scene.check(&[
        ("kept", WaitReason::Waker, LOST),
        ("pending", WaitReason::Waker, LOST),
        ("waker", WaitReason::Waker, LOST),
    ]);
}

#[test]
fn a_parent_that_has_all_handles_of_its_child_is_leaked_with_it() {
    let scene = Scene::new();
    let (sender, address) = oneshot::channel();
    drop(scene.spawn("parent", async move {
        let server = SpawnOptions::new()
            .label("server")
            .start(|mut cx: Context<u8>| async move { cx.recv().await });
        let _ = sender.send(server.address().clone());
        drop(server.await);
    }));
    scene.0.run_until_idle();
    let address = scene.0.block_on(address).expect("it was sent");
    scene.check(&[]);
    drop(address);
    let leaked = scene.check(&[
        ("parent", WaitReason::Process, LeakCause::Process),
        ("server", WaitReason::Message, LeakCause::Handle),
    ]);
    let (one, other) = (&leaked[0], &leaked[1]);
    assert_eq!((one.other, other.other), (Some(other.pid), Some(one.pid)));
    // Without the address, the handle alone.
    let scene = Scene::new();
    drop(scene.spawn("parent", async {
        let server = SpawnOptions::new()
            .label("server")
            .start(|mut cx: Context<u8>| async move { cx.recv().await });
        let (address, handle) = server.into_parts();
        drop(address);
        drop(handle.await);
    }));
    scene.check(&[
        ("parent", WaitReason::Process, LeakCause::Process),
        ("server", WaitReason::Message, LeakCause::Handle),
    ]);
}

/// A monitor names its process, and is no way to reach it.
#[test]
fn a_process_that_waits_for_the_down_of_a_leaked_process_is_leaked() {
    let scene = Scene::new();
    let address = scene.watched(Child::detach);
    // The server may get a message and end.
    scene.check(&[]);
    drop(address);
    let leaked = scene.check(&[
        ("server", WaitReason::Message, LOST),
        ("watcher", WaitReason::Process, LeakCause::Process),
    ]);
    // The watcher was started before.
    let (watcher, server) = (&leaked[0], &leaked[1]);
    assert_eq!((watcher.other, server.other), (Some(server.pid), None));
    let ending = format!(" for the end of {}, which is leaked", server.pid);
    assert!(watcher.to_string().ends_with(&ending), "{watcher}");
}

/// A process that has a monitor and the handle of somebody else's child keeps nobody.
#[test]
fn a_handle_beside_a_monitor_may_still_cancel() {
    let scene = Scene::new();
    let handle = scene.watched(|server| server.into_parts().1);
    scene.check(&[]);
    handle.cancel();
    assert_eq!(scene.0.block_on(handle), Ok(None));
    scene.0.run_until_idle();
    assert!(scene.0.snapshot().processes.is_empty(), "the watcher has its down");
}

/// The wait of the handle's owner ends by a timer, and then the owner may cancel.
#[test]
fn a_child_that_is_awaited_for_a_time_is_not_leaked() {
    let scene = Scene::new();
    drop(scene.spawn("parent", async {
        let mut server = procession::start(|mut cx: Context<u8>| async move { cx.recv().await });
        drop(timeout(SECOND, &mut server).await);
        server.cancel();
        drop(server.await);
    }));
    scene.check(&[]);
    scene.0.advance(SECOND);
    scene.0.run_until_idle();
    assert!(scene.0.snapshot().processes.is_empty());
}

#[test]
fn a_lock_that_an_ended_process_holds_leaks_its_waiters() {
    let scene = Scene::new();
    let lock = Arc::new(Mutex::new(()));
    let forgets = Arc::clone(&lock);
    let holder = scene.spawn("holder", async move {
        let guard = forgets.lock().await;
        sleep(SECOND).await;
        mem::forget(guard);
    });
    for label in ["a", "b"] {
        let lock = Arc::clone(&lock);
        drop(scene.spawn(label, async move { drop(lock.lock().await) }));
    }
    let kept = scene.spawn("c", async move { drop(lock.lock().await) });
    scene.check(&[]);
    let pid = holder.pid();
    scene.0.advance(SECOND);
    let causes = ["a", "b", "c"].map(|label| (label, WaitReason::Lock, LeakCause::HolderEnded));
    let leaked = scene.check(&causes);
    assert!(leaked.iter().all(|leak| leak.other == Some(pid)));
    assert!(leaked[0].location.is_some_and(|place| place.file() == file!()));
    let ending = format!(" for a lock of {pid}, which has ended with it");
    assert!(leaked[0].to_string().ends_with(&ending), "{}", leaked[0]);
    // A process that ends in order releases its locks.
    kept.kill();
    drop(holder);
    scene.check(&causes[..2]);
}

/// Those that want to read are behind a writer that is leaked.
#[test]
fn a_read_guard_that_an_ended_process_holds_leaks_the_waiters() {
    let scene = Scene::new();
    let lock = Arc::new(RwLock::new(()));
    let forgets = Arc::clone(&lock);
    drop(scene.spawn("reader", async move { mem::forget(forgets.read().await) }));
    scene.0.run_until_idle();
    let writes = Arc::clone(&lock);
    drop(scene.spawn("writer", async move { drop(writes.write().await) }));
    scene.0.run_until_idle();
    drop(scene.spawn("behind", async move { drop(lock.read().await) }));
    scene.check(&[
        ("behind", WaitReason::Lock, LeakCause::Process),
        ("writer", WaitReason::Lock, LeakCause::HolderEnded),
    ]);
}

/// A guard that moves is not known to be lost.
#[test]
fn an_owned_guard_may_be_anywhere() {
    let scene = Scene::new();
    let lock = Arc::new(Mutex::new(()));
    let (sender, guard) = oneshot::channel();
    let owned = Arc::clone(&lock);
    drop(scene.spawn("holder", async move { drop(sender.send(owned.lock_owned().await)) }));
    drop(scene.spawn("waiter", async move { drop(lock.lock().await) }));
    scene.check(&[]);
    drop(guard);
    scene.check(&[]);
    assert!(scene.0.snapshot().processes.is_empty());
}

#[test]
fn what_waits_for_a_leaked_process_is_leaked() {
    let scene = Scene::new();
    let lock = Arc::new(RwLock::new(()));
    let (held, waited) = (Arc::clone(&lock), Arc::clone(&lock));
    let lost = scene.spawn("lost", async move {
        let _guard = held.write().await;
        pending::<()>().await;
    });
    drop(scene.spawn("reader", async move { drop(waited.read().await) }));
    let joined = scene.spawn("writer", async move { drop(lock.write().await) });
    drop(scene.spawn("joins", async move { drop(joined.await) }));
    // Its owner may cancel it.
    scene.check(&[]);
    drop(lost);
    scene.check(&[
        ("joins", WaitReason::Process, LeakCause::Process),
        ("lost", WaitReason::Waker, LOST),
        ("reader", WaitReason::Lock, LeakCause::Process),
        // The reader is first, and the holder that is known.
        ("writer", WaitReason::Lock, LeakCause::Process),
    ]);
}

#[test]
fn calls_and_sends_to_a_leaked_process_are_leaked() {
    let scene = Scene::new();
    let lock = Arc::new(Mutex::new(()));
    let forgets = Arc::clone(&lock);
    drop(scene.spawn("holder", async move { mem::forget(forgets.lock().await) }));
    scene.0.run_until_idle();
    let options = scene.options("server").mailbox(1, WhenFull::Wait);
    let server = options.start(|cx: Context<Reply<()>>| async move {
        drop(lock.lock().await);
        drop(cx);
    });
    let address: Address<_> = server.detach();
    for label in ["calls", "sends"] {
        let address = address.clone();
        drop(scene.spawn(label, async move {
            drop(address.call(|reply| reply, Duration::MAX).await);
        }));
    }
    let limited = address.clone();
    drop(scene.spawn("limited", async move {
        drop(limited.call(|reply| reply, Duration::from_secs(3600)).await);
    }));
    scene.check(&[
        ("calls", WaitReason::Reply, LeakCause::Process),
        ("sends", WaitReason::Room, LeakCause::Process),
        ("server", WaitReason::Lock, LeakCause::HolderEnded),
    ]);
    drop(address);
}

#[test]
fn processes_that_wait_for_one_another_are_leaked() {
    let scene = Scene::with(|builder| builder.wait_cycle_after(None));
    let [one, two] = [(); 2].map(|()| Arc::new(Mutex::new(())));
    for (label, first, second) in [("a", &one, &two), ("b", &two, &one)] {
        let (first, second) = (Arc::clone(first), Arc::clone(second));
        drop(scene.spawn(label, async move {
            let _first = first.lock().await;
            procession::yield_now().await;
            drop(second.lock().await);
        }));
    }
    drop(scene.spawn("behind", async move { drop(one.lock().await) }));
    let twice = Mutex::new(());
    let twice = scene.spawn("twice", async move {
        let _guard = twice.lock().await;
        drop(twice.lock().await);
    });
    let leaked = scene.check(&[
        ("a", WaitReason::Lock, LeakCause::Process),
        ("b", WaitReason::Lock, LeakCause::Process),
        ("behind", WaitReason::Lock, LeakCause::Process),
        ("twice", WaitReason::Lock, LeakCause::Process),
    ]);
    let own =
        leaked.iter().find(|leak| leak.other == Some(leak.pid)).expect("one waits for itself");
    assert!(own.to_string().ends_with(" for a lock of itself"), "{own}");
    drop(twice);
}

#[test]
fn a_coroutine_can_be_leaked() {
    // SAFETY: the coroutine of this test uses little of its stack.
    let scene = Scene::with(|builder| unsafe { builder.enable_coroutines() });
    let options = scene.options("coroutine");
    let child = options.try_start_coroutine(|mut cx: coroutine::Context<u8>| cx.recv());
    let child = child.expect("coroutines are enabled");
    scene.check(&[]);
    drop(child);
    scene.check(&[("coroutine", WaitReason::Message, LOST)]);
}

#[test]
fn a_suspended_process_is_not_leaked() {
    let scene = Scene::new();
    drop(scene.server("server"));
    let pid = scene.check(&[("server", WaitReason::Message, LOST)])[0].pid;
    scene.0.suspend(pid).expect("it exists");
    scene.check(&[]);
    assert!(scene.0.resume(pid));
    scene.check(&[("server", WaitReason::Message, LOST)]);
}

#[test]
fn long_waits_are_suspected_by_label_and_place() {
    let scene = Scene::with(|builder| builder.suspect_after(10 * SECOND));
    let mut kept = Vec::new();
    for _ in 0..3 {
        let (sender, receiver) = channel::bounded::<u8>(1);
        let own = sender.clone();
        kept.push(sender);
        drop(scene.spawn("worker", async move {
            let _own = own;
            receiver.recv().await
        }));
    }
    let server = scene.server("idle");
    drop(scene.spawn("sleeper", sleep(3600 * SECOND)));
    assert!(scene.leaks().suspected.is_empty());
    scene.0.advance(11 * SECOND);
    let leaks = scene.leaks();
    assert!(leaks.is_empty(), "{leaks}");
    let [group] = &leaks.suspected[..] else { panic!("one group: {leaks}") };
    assert_eq!((group.label.as_deref(), group.count), (Some("worker"), 3));
    assert_eq!(group.sign, LeakSign::LongWait);
    assert!(group.waiting.is_some_and(|waiting| waiting.for_channel()), "{group}");
    assert!(group.since >= 10 * SECOND && group.spawned_at.file() == file!());
    assert!(leaks.to_string().contains("suspected: 3 processes (worker) waiting for channel"));
    drop(server);
}

#[test]
fn growth_is_suspected_by_label_and_place() {
    let scene = Scene::with(|builder| builder.suspect_after(10 * SECOND));
    let (sender, receiver) = channel::bounded::<u8>(1);
    let grow = |label: &str, count: u8| {
        for _ in 0..count {
            let receiver = receiver.clone();
            drop(scene.spawn(label, async move {
                while timeout(5 * SECOND, receiver.recv()).await.is_err() {}
            }));
        }
    };
    grow("same", 5);
    for look in 0..4 {
        grow("more", 2);
        let growth: Vec<_> = scene.leaks().suspected;
        assert_eq!(growth.len(), usize::from(look == 3), "look {look}: {growth:?}");
        for group in growth {
            assert_eq!((group.label.as_deref(), group.sign), (Some("more"), LeakSign::Growth));
            assert_eq!((group.before, group.count), (2, 8));
            assert!(group.since >= 30 * SECOND);
            assert!(group.to_string().ends_with(", 6 more than 30 s ago"), "{group}");
        }
        scene.0.advance(10 * SECOND);
    }
    drop(sender);
}

#[test]
#[should_panic(expected = "1 process is leaked\n  p")]
fn the_check_of_a_test_lists_what_is_leaked() {
    let scene = Scene::new();
    drop(scene.server("server"));
    scene.0.run_until_idle();
    procession::testing::assert_no_leaks(&scene.0);
}
