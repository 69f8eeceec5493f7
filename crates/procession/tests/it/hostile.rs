//! User code in awkward places: it panics in drops, in twos, while a panic unwinds, or while the
//! locals of a thread are destroyed; or it is forgotten.
//!
//! The rule is in `process/body.rs`, *User code*. `panics.rs` has the places where user code is
//! called. These are the places where it is dropped:
//!
//! | what | dropped by | test |
//! |---|---|---|
//! | wakers left in a last step | the end of the process | `two_wakers_left_in_a_last_step` |
//! | wakers of a handle | the next poll, the end, the handle | `wakers_of_a_handle` |
//! | messages of forgotten senders | the last reference | `messages_of_forgotten_senders` |
//! | messages after a request to end | the next receive | `messages_that_come_too_late` |
//! | a sender, a sleep, a shutdown, a call | an unwinding | `futures_that_go_in_an_unwinding` |
//! | what the builder was given | the last reference | `what_a_scheduler_was_given` |
//! | values of locals | the scope, the last heir | `values_of_locals` |
//! | what a description was given | its supervisor, the last copy | `what_a_supervisor_was_given` |
//! | the entries of a refused process | the spawn | `entries_of_a_refused_process` |
//! | an entry that is gone already | the spawn | `an_entry_that_goes_before_its_process_runs` |
//! | a scheduler | a thread-local | `a_scheduler_in_a_thread_local` |
//! | a future of `block_on` | a thread-local | `waits_in_a_destructor_of_a_thread_local` |
//!
//! Expected panics print nothing. Where the rule is broken, most of these tests abort the program.

use crate::home::{mpsc, thread};
use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Task, Wake, Waker};
use std::time::Duration;

use procession::machine::{
    CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor, Yields,
};
use procession::mailbox::WhenFull;
use procession::mailbox::relay::{Parcel, Relay, RelayCause, RelayError};
use procession::process::{ProcessLocal, Registry, send_exit};
use procession::scheduler::Builder;
use procession::supervisor::{ChildSpec, Stop, Supervisor, Template};
use procession::{Context, Exit, Reply, Scheduler, SpawnOptions, blocking, sleep, spawn};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use crate::scene::{TIMEOUT, assert_conserved, driven, panic_quietly, soon, threaded};

const HOUR: Duration = Duration::from_secs(3600);

/// Counts its drop and panics in it.
struct Bomb(Arc<AtomicU32>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic_quietly("a bomb was dropped");
    }
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}

/// A source of bombs, and the number of those that have gone off.
#[derive(Clone, Default)]
struct Bombs(Arc<AtomicU32>);

impl Bombs {
    fn one(&self) -> Bomb {
        Bomb(Arc::clone(&self.0))
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::new(self.one()))
    }

    /// Polls with a waker that goes off when it is dropped. If the future keeps it, that is the
    /// only one.
    fn poll<F: Future>(&self, future: Pin<&mut F>) -> bool {
        let waker = self.waker();
        let ready = future.poll(&mut Task::from_waker(&waker)).is_ready();
        // If the future did not keep it, this is the last one.
        drop(catch_unwind(AssertUnwindSafe(|| drop(waker))));
        ready
    }

    #[track_caller]
    fn assert_gone_off(&self, count: u32) {
        assert_eq!(self.0.load(SeqCst), count, "each was dropped, once");
    }
}

/// Drops `value` while the thread panics.
fn drop_in_an_unwinding(value: impl Any) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _value = value;
        panic_quietly("the first panic")
    }));
    let payload = unwound.err().and_then(|payload| payload.downcast::<String>().ok());
    assert_eq!(payload.as_deref().map(String::as_str), Some("the first panic"), "it goes on");
}

#[track_caller]
fn assert_works(scheduler: &Scheduler) {
    assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1), "every worker goes on");
    assert_conserved(scheduler);
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.spawned, snapshot.processes.len()), (snapshot.ended, 0), "all have ended");
}

#[test]
fn two_wakers_left_in_a_last_step() {
    for scheduler in [driven(), threaded(1)] {
        let bombs = Bombs::default();
        let own = bombs.clone();
        let child = scheduler.start(move |mut cx: Context<()>| async move {
            for _ in 0..2 {
                assert!(!own.poll(pin!(cx.recv())));
            }
            assert!(!own.poll(pin!(cx.cancelled())));
        });
        assert_eq!(child.join(), Ok(()));
        assert_works(&scheduler);
        bombs.assert_gone_off(3);
    }
}

#[test]
fn wakers_of_a_handle() {
    for scheduler in [driven(), threaded(1)] {
        let bombs = Bombs::default();
        let (go, goes) = mpsc::channel::<()>();
        let mut handle = scheduler.spawn(async move {
            let _ = blocking(|| goes.recv());
        });
        for _ in 0..3 {
            assert!(!bombs.poll(pin!(&mut handle)));
        }
        bombs.assert_gone_off(2);
        drop_in_an_unwinding(handle);
        bombs.assert_gone_off(3);
        drop(go);
        assert_works(&scheduler);
    }
}

#[test]
fn messages_of_forgotten_senders() {
    let scheduler = threaded(1);
    let bombs = Bombs::default();
    let (go, goes) = mpsc::channel::<()>();
    let child = SpawnOptions::new().on(&scheduler).mailbox(1, WhenFull::Wait).start(
        |cx: Context<Bomb>| async move {
            let _ = blocking(|| goes.recv());
            drop(cx);
        },
    );
    let address = child.detach();
    address.send(bombs.one()).expect("there is room");
    for _ in 0..2 {
        let mut waits = Box::pin(address.send_wait(bombs.one()));
        assert!(waits.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
        std::mem::forget(waits);
    }
    drop(address);
    drop(go);
    assert_works(&scheduler);
    bombs.assert_gone_off(3);
}

#[test]
fn messages_that_come_too_late() {
    for when_full in [None, Some(WhenFull::Reject)] {
        let scheduler = threaded(1);
        let bombs = Bombs::default();
        let (begins, begun) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let options = SpawnOptions::new().on(&scheduler);
        let options = match when_full {
            Some(when_full) => options.mailbox(4, when_full),
            None => options,
        };
        let child = options.start(move |mut cx: Context<Bomb>| async move {
            begins.send(()).expect("the test waits for it");
            let _ = goes.recv();
            drop(cx.recv().await);
        });
        soon(&begun);
        assert!(send_exit(child.pid(), Exit::failed("unwanted")), "it lives");
        for _ in 0..3 {
            child.send(bombs.one()).expect("the mailbox is open as long as the step runs");
        }
        drop(go);
        assert_eq!(child.join(), Err(Exit::failed("unwanted")));
        assert_works(&scheduler);
        bombs.assert_gone_off(3);
    }
}

#[test]
fn futures_that_go_in_an_unwinding() {
    let scheduler = driven();
    let bombs = Bombs::default();

    let mut slept = Box::pin(scheduler.block_on(async { sleep(HOUR) }));
    assert!(!bombs.poll(slept.as_mut()));
    drop_in_an_unwinding(slept);
    bombs.assert_gone_off(1);

    let full = SpawnOptions::new().on(&scheduler).mailbox(1, WhenFull::Wait);
    let full = full.start(|cx: Context<Option<Bomb>>| async move { cx.cancelled().await });
    let address: &'static _ = Box::leak(Box::new(full.address().clone()));
    address.send(None).expect("there is room");
    let mut waits = Box::pin(address.send_wait(Some(bombs.one())));
    assert!(!bombs.poll(waits.as_mut()));
    drop_in_an_unwinding(waits);
    bombs.assert_gone_off(3);
    full.cancel();
    assert_eq!(full.join(), Ok(()));

    let keeps = scheduler.start(|mut cx: Context<Reply<()>>| async move {
        let reply = cx.recv().await;
        cx.cancelled().await;
        drop(reply);
    });
    let address: &'static _ = Box::leak(Box::new(keeps.address().clone()));
    let mut call = Box::pin(address.call(|reply| reply, HOUR));
    assert!(!bombs.poll(call.as_mut()));
    drop_in_an_unwinding(call);
    // The reply and the timeout hold one each.
    let before = bombs.0.load(SeqCst);
    assert!(before > 3, "what it left is dropped");
    keeps.cancel();
    assert_eq!(keeps.join(), Ok(()));

    let stays = scheduler.start(|_: Context<()>| std::future::pending::<()>());
    let owned: &'static Scheduler = Box::leak(Box::new(scheduler.clone()));
    let mut shutdown = Box::pin(owned.shutdown(HOUR));
    assert!(!bombs.poll(shutdown.as_mut()));
    drop_in_an_unwinding(shutdown);
    assert!(bombs.0.load(SeqCst) > before, "what it left is dropped");
    procession::process::kill(stays.pid());
    assert_eq!(stays.join(), Err(Exit::Killed));
}

struct Carries(Bomb);

impl Relay for Carries {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        assert_eq!(self.0.0.load(SeqCst), 0, "it is there");
        Err(parcel.refused(RelayCause::Refused))
    }
}

/// Returns a builder with everything that it accepts, and the number of bombs in it.
fn given(bombs: &Bombs) -> (Builder, u32) {
    fn keep<A: ?Sized>(bomb: Bomb) -> impl Fn(&A) + Send + Sync {
        move |_| assert!(Arc::strong_count(&bomb.0) > 0, "it is there")
    }
    let handler = |bomb: Bomb| {
        move |_: Value, completion: Completion| {
            assert!(Arc::strong_count(&bomb.0) > 0, "it is there");
            drop(completion);
        }
    };
    let hook = |bomb: Bomb| move || assert!(Arc::strong_count(&bomb.0) > 0, "it is there");
    let stall = keep(bombs.one());
    let letter = bombs.one();
    let builder = Scheduler::builder()
        .worker_threads(1)
        .handler(CommandId::new(300), handler(bombs.one()))
        .handler(CommandId::new(301), handler(bombs.one()))
        .on_dead_letter(move |_| assert!(Arc::strong_count(&letter.0) > 0, "it is there"))
        .on_stall(stall)
        .on_thread_start(hook(bombs.one()))
        .on_thread_stop(hook(bombs.one()))
        .relay(Carries(bombs.one()));
    (builder, 7)
}

#[test]
fn what_a_scheduler_was_given() {
    // Dropped by a thread of the user.
    let bombs = Bombs::default();
    let (builder, count) = given(&bombs);
    let scheduler = builder.test_clock().build().expect("it starts no thread");
    drop_in_an_unwinding(scheduler);
    bombs.assert_gone_off(count);

    // Dropped with the last address of one of its processes, by a worker of another scheduler.
    let bombs = Bombs::default();
    let (builder, count) = given(&bombs);
    let scheduler = builder.test_clock().build().expect("it starts no thread");
    let address = scheduler.start(|_: Context<()>| async {}).detach();
    scheduler.run_until_idle();
    drop(scheduler);
    bombs.assert_gone_off(0);
    let other = threaded(1);
    assert_eq!(other.spawn(async move { drop(address) }).join(), Ok(()), "it is not its panic");
    bombs.assert_gone_off(count);
    assert_works(&other);
}

static OWN: ProcessLocal<Bomb> = ProcessLocal::new();
static ONE: ProcessLocal<Bomb> = ProcessLocal::inherited();
static OTHER: ProcessLocal<Bomb> = ProcessLocal::inherited();

#[test]
fn values_of_locals() {
    let bombs = Bombs::default();
    drop_in_an_unwinding(OWN.scope(bombs.one(), async {}));
    let unwinds = || OWN.within(bombs.one(), || panic_quietly("the first panic"));
    assert!(catch_unwind(AssertUnwindSafe(unwinds)).is_err());
    bombs.assert_gone_off(2);
    for scheduler in [driven(), threaded(1)] {
        let bombs = Bombs::default();
        let spawn = || scheduler.spawn(sleep(Duration::from_millis(1)));
        let heir = ONE.within(bombs.one(), || OTHER.within(bombs.one(), spawn));
        assert_eq!(heir.join(), Ok(()));
        assert_works(&scheduler);
        bombs.assert_gone_off(2);
    }
}

/// Waits for messages.
struct Waits;

impl Process for Waits {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

/// Returns a closure that holds a bomb.
fn hostile<T, R>(bombs: &Bombs, function: fn(T) -> R) -> impl Fn(T) -> R + Send + Sync + use<T, R> {
    let bomb = bombs.one();
    move |argument| {
        let _ = &bomb;
        function(argument)
    }
}

async fn waits(mut cx: Context<()>) {
    while cx.recv().await.is_some() {}
}

#[test]
fn what_a_supervisor_was_given() {
    for scheduler in [driven(), threaded(1)] {
        let (bombs, registry) = (Bombs::default(), Registry::duplicate());
        let machine = {
            let (process, input) = (hostile(&bombs, |()| Waits), hostile(&bombs, |()| ()));
            ChildSpec::machine("machine", move || process(()), "go", move || input(()))
        };
        let machine = machine.stop(Stop::Kill);
        let child = ChildSpec::new("child", hostile(&bombs, waits));
        let child = child.enter(registry.entry("a", bombs.one()));
        let child = child.enter(registry.entry("b", bombs.one()));
        let inner = Supervisor::one_for_one().child(machine).keep(bombs.one()).keep(bombs.one());
        let outer = Supervisor::one_for_one().child(child).keep(bombs.one());
        let outer = outer.child(ChildSpec::supervisor("inner", inner));
        let tree = scheduler.block_on(outer.try_start()).expect("all children start");
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
        assert_works(&scheduler);
        bombs.assert_gone_off(8);
    }
    let (bombs, registry) = (Bombs::default(), Registry::<()>::duplicate());
    let process = hostile(&bombs, |(cx, ())| waits(cx));
    let name = hostile(&bombs, |(): ()| "name");
    let entry = hostile(&bombs, move |registry: Registry<()>| registry.entry("key", ()));
    let template = Template::new(move |cx: Context<()>, ()| process((cx, ())));
    let template = template.name(move |(): &()| name(()));
    drop_in_an_unwinding(template.enter(move |(): &()| entry(registry.clone())));
    bombs.assert_gone_off(3);
}

#[test]
fn entries_of_a_refused_process() {
    let (bombs, registry) = (Bombs::default(), Registry::unique());
    for scheduler in [driven(), threaded(1)] {
        let entries = ["one", "other", "one"].map(|key| registry.entry(key, bombs.one()));
        let options = entries.into_iter().fold(SpawnOptions::new(), SpawnOptions::enter);
        let refused = options.on(&scheduler).try_spawn(async {}).err();
        assert!(refused.is_some_and(|error| error.register_error().is_some()));
        assert_works(&scheduler);
    }
    bombs.assert_gone_off(6);
}

/// Listens to a registry, until it removes the first process that is entered.
struct Removes {
    registry: Registry<Bomb>,
    listening: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Wake for Removes {
    fn wake(self: Arc<Self>) {
        drop(self.listening.lock().take());
        let pid = self.registry.lookup("key")[0].0;
        assert_eq!(self.registry.unregister("key", pid), 1);
    }
}

/// Goal: the spawn has the last reference to the value, and queues the process nevertheless.
#[test]
fn an_entry_that_goes_before_its_process_runs() {
    for scheduler in [driven(), threaded(1)] {
        let (bombs, registry) = (Bombs::default(), Registry::duplicate());
        let mut listener = registry.listen();
        let mut listening: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { drop(listener.recv().await) });
        let removes = Removes { registry: registry.clone(), listening: Mutex::new(None) };
        let removes = Arc::new(removes);
        let waker = Waker::from(Arc::clone(&removes));
        assert!(listening.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
        *removes.listening.lock() = Some(listening);
        let options = SpawnOptions::new().on(&scheduler).enter(registry.entry("key", bombs.one()));
        assert_eq!(options.spawn(async { 1 }).join(), Ok(1));
        assert_works(&scheduler);
        bombs.assert_gone_off(1);
    }
}

#[test]
fn a_scheduler_in_a_thread_local() {
    thread_local! {
        static OWN: RefCell<Option<Scheduler>> = const { RefCell::new(None) };
    }
    struct Ends(mpsc::Sender<()>);
    impl Drop for Ends {
        fn drop(&mut self) {
            // Runs on a thread that is about to end, in a scheduler that is about to end.
            drop(spawn(async {}));
            self.0.send(()).expect("the test waits for it");
        }
    }
    let (ends, ended) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let scheduler = driven();
            let ends = Ends(ends);
            drop(scheduler.spawn(async move {
                let _ends = ends;
                std::future::pending::<()>().await;
            }));
            scheduler.run_until_idle();
            OWN.set(Some(scheduler));
        });
    });
    // A scope does not wait for the locals of its threads.
    soon(&ended);
}

#[test]
fn waits_in_a_destructor_of_a_thread_local() {
    struct AtEnd(RefCell<Option<(Scheduler, mpsc::Sender<u32>)>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let (scheduler, answers) = self.0.take().expect("it was set");
            let own = scheduler.clone();
            let sum = scheduler.block_on(async move {
                sleep(Duration::from_millis(1)).await;
                own.spawn(async { 1 }).await.expect("it ends") + 1
            });
            answers.send(sum).expect("the test waits for it");
        }
    }
    thread_local! {
        static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
    }
    for scheduler in [driven(), threaded(1)] {
        let (answers, answer) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                AT_END.with(|at_end| *at_end.0.borrow_mut() = Some((scheduler.clone(), answers)));
                // The runtime's own locals are made after this one, and so are destroyed before it.
                scheduler.block_on(async {});
            });
        });
        assert_eq!(soon(&answer), 2);
        let handle = scheduler.spawn(async { 3 });
        assert_eq!(handle.join_timeout(TIMEOUT).expect("the seat for callers is free"), Ok(3));
        assert_works(&scheduler);
    }
}
