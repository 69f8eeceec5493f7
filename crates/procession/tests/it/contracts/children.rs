//! Children that are started at run time: they give addresses, and what is refused comes back.

use crate::home::mpsc::{Sender, channel};
use std::time::Duration;

use procession::mailbox::call;
use procession::process::{Named, exit};
use procession::supervisor::{
    ChildError, ChildSpec, OnceSpec, Restart, Running, SpecError, Supervisor, SupervisorRef,
    Template,
};
use procession::{Context, Exit, Reply, Scheduler, coroutine, yield_now};

use super::HOUR;
use crate::scene::{alive, assert_conserved, driven, panic_quietly, threaded};

const SECOND: Duration = Duration::from_secs(1);

/// A value that cannot be cloned, and that reports its drop.
#[derive(Debug)]
struct Connection(u32, Sender<u32>);

impl Drop for Connection {
    fn drop(&mut self) {
        // Ignored: the test may have ended.
        let _ = self.1.send(self.0);
    }
}

fn dynamic(scheduler: &Scheduler) -> Running {
    scheduler.block_on(Supervisor::dynamic().try_start()).expect("it starts")
}

async fn serve(mut cx: Context<Reply<u32>>, connection: Connection) {
    while let Some(reply) = cx.recv().await {
        reply.send(connection.0);
    }
}

#[test]
fn a_connection_moves_into_its_child_and_is_dropped_with_it() {
    let scheduler = driven();
    let tree = dynamic(&scheduler);
    let (drops, dropped) = channel();
    scheduler.block_on(async {
        let template = Template::new(serve).label("connection");
        for number in 0..10 {
            let connection = Connection(number, drops.clone());
            let child = match number % 2 {
                0 => tree.add_another(&template, connection).await.expect("it starts"),
                _ => {
                    let serve = move |cx| serve(cx, connection);
                    tree.add_once(OnceSpec::new(serve)).await.expect("it starts")
                }
            };
            assert_eq!(child.call(|reply| reply, SECOND).await.ok(), Some(number));
            assert!(dropped.try_recv().is_err(), "the child has it");
            assert_eq!(tree.terminate_child(child.pid()).await, Ok(()));
            assert_eq!(dropped.try_recv(), Ok(number), "it is dropped once, with its child");
        }
    });
    assert_eq!(scheduler.block_on(tree.count()).expect("it is there").children, 0);
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert!(dropped.try_recv().is_err());
    assert_conserved(&scheduler);
}

#[test]
fn an_ended_child_of_a_value_is_not_restarted_and_a_cloned_argument_is() {
    let scheduler = driven();
    let tree = Supervisor::dynamic().intensity(10, SECOND);
    let tree = scheduler.block_on(tree.try_start()).expect("it starts");
    let (starts, started) = channel();
    let fails = move |_: Context<()>, number: u32| {
        let starts = starts.clone();
        async move {
            starts.send(number).expect("the test waits for it");
            exit(Exit::failed("it always fails"))
        }
    };
    let once = Template::new(fails.clone());
    scheduler.block_on(tree.add_another(&once, 1)).expect("it starts");
    scheduler.run_until_idle();
    assert_eq!(started.try_iter().collect::<Vec<_>>(), [1]);
    assert!(tree.is_alive());
    let again = Template::new(fails).restart(Restart::Transient);
    let first = scheduler.block_on(tree.add_another(&again, 2)).expect("it starts");
    scheduler.run_until_idle();
    // The first start and ten restarts. After one more failure, the supervisor gives up.
    assert_eq!(started.try_iter().collect::<Vec<_>>(), [2; 11]);
    assert!(!first.is_alive(), "an address is that of the process that was started");
    let gave_up = "a child needs more than 10 restarts in 1 s; it failed: it always fails";
    assert_eq!(tree.join(), Exit::GaveUp(gave_up.into()));
}

/// Asserts that a refused argument and a refused closure come back.
#[track_caller]
fn assert_comes_back(scheduler: &Scheduler, tree: &SupervisorRef, expected: &str) {
    let (drops, dropped) = channel();
    let template = Template::new(serve);
    let connection = Connection(7, drops.clone());
    let refused = scheduler.block_on(tree.add_another(&template, connection));
    let (connection, cause) = refused.expect_err("it is refused").into_parts();
    assert_eq!(cause.to_string(), expected);
    let connection = connection.expect("no process has it");
    let process = move |cx| serve(cx, connection);
    let refused = scheduler.block_on(tree.add_once(OnceSpec::new(process)));
    let refused = refused.expect_err("it is refused");
    assert_eq!(refused.cause(), &cause);
    assert_eq!(dropped.try_recv().ok(), None, "the error has it");
    drop(refused.into_inner());
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [7]);
}

#[test]
fn a_refused_value_comes_back_at_the_limit_and_after_the_end() {
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().max_processes(8).build().unwrap();
    let tree = dynamic(&scheduler);
    let mut others = Vec::new();
    while let Ok(other) =
        procession::SpawnOptions::new().on(&scheduler).try_spawn(std::future::pending::<()>())
    {
        others.push(other);
    }
    let limit = "the child did not start: cannot start a process: \
                 the scheduler has reached its limit of processes";
    assert_comes_back(&scheduler, &tree, limit);
    assert!(tree.is_alive());
    tree.cancel();
    scheduler.run_until_idle();
    assert_comes_back(&scheduler, &tree, "the supervisor has ended, or is ending");
    for other in others {
        procession::process::kill(other.pid());
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_refused_value_comes_back_from_a_supervisor_that_needs_ids() {
    let scheduler = driven();
    let tree = scheduler.block_on(Supervisor::one_for_one().try_start()).expect("it starts");
    let no_id = SpecError::NoId(0).to_string();
    assert_comes_back(&scheduler, &tree, &no_id);
    let named = OnceSpec::new(|mut cx: Context<()>| async move { cx.recv().await });
    let named = named.id("one").name("one").stop(procession::supervisor::Stop::Kill);
    let address = scheduler.block_on(tree.add_once(named)).expect("it has an id");
    assert_eq!(scheduler.whereis("one"), Some(address.pid()));
}

#[test]
fn a_value_comes_back_from_a_supervisor_that_ends_in_the_middle() {
    // The supervisor is killed, or cancelled, while the requests lie in its mailbox or wait for
    // their turn.
    for round in 0..200 {
        let scheduler = threaded(2);
        let tree = Supervisor::rest_for_one();
        let tree = scheduler.block_on(tree.try_start()).expect("it starts");
        let (drops, dropped) = channel();
        let askers: Vec<_> = (0..4)
            .map(|number| {
                let (tree, drops) = (tree.reference().clone(), drops.clone());
                scheduler.spawn(async move {
                    let connection = Connection(number, drops);
                    let process = move |cx| serve(cx, connection);
                    let spec = OnceSpec::new(process).id(number.to_string());
                    tree.add_once(spec).await.map_err(|refused| drop(refused.into_inner()))
                })
            })
            .collect();
        match round % 2 {
            0 => drop(procession::process::kill(tree.pid())),
            _ => tree.cancel(),
        }
        // Each child ends with its supervisor, and each refused closure is dropped by its asker.
        for asker in askers {
            drop(asker.join().expect("it gets its closure back, and does not panic"));
        }
        drop(tree.join());
        scheduler.block_on(scheduler.shutdown(HOUR));
        let mut numbers: Vec<_> = dropped.try_iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3], "each is dropped once");
    }
}

#[test]
fn a_start_whose_caller_gives_up_drops_its_value_once() {
    let scheduler = driven();
    let tree = dynamic(&scheduler);
    let (drops, dropped) = channel();
    scheduler.block_on(async {
        let template = Template::new(serve);
        let start = tree.add_another(&template, Connection(1, drops.clone()));
        // Polled once, so that the request is in the mailbox.
        assert!(procession::timeout(Duration::ZERO, start).await.is_err());
        while tree.count().await.expect("it is there").running == 0 {
            yield_now().await;
        }
        assert!(dropped.try_recv().is_err(), "the child has started, and has it");
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn each_kind_of_description_gives_what_its_type_says() {
    let scheduler = driven();
    let tree = dynamic(&scheduler);
    scheduler.block_on(async {
        let answers = |mut cx: Context<Reply<u32>>| async move {
            while let Some(reply) = cx.recv().await {
                reply.send(1);
            }
        };
        let address = tree.add_child(ChildSpec::new("a", answers)).await.expect("it starts");
        assert_eq!(address.call(|reply| reply, SECOND).await.ok(), Some(1));
        let pid = tree.add_child(ChildSpec::new("b", answers).untyped()).await;
        let pid = pid.expect("it starts");
        assert_eq!(call(pid, |reply: Reply<u32>| reply, SECOND).await.ok(), Some(1));
        let inner = ChildSpec::supervisor("inner", Supervisor::dynamic());
        let inner: SupervisorRef = tree.add_child(inner).await.expect("it starts");
        let nested = inner.add_child(ChildSpec::anonymous(answers)).await.expect("it starts");
        assert_eq!(nested.call(|reply| reply, SECOND).await.ok(), Some(1));
        // A child that ends at once still has its address.
        let brief = ChildSpec::anonymous(|_: Context<()>| async {}).restart(Restart::Temporary);
        let brief = tree.add_child(brief).await.expect("it starts");
        while brief.is_alive() {
            yield_now().await;
        }
        assert!(brief.send(()).expect_err("it has ended").is_ended());
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
}

#[test]
fn coroutines_are_made_from_values_too() {
    // SAFETY: the functions below hold nothing across a suspension that refers to their thread.
    let scheduler =
        unsafe { Scheduler::builder().worker_threads(1).test_clock().enable_coroutines() };
    let scheduler = scheduler.build().expect("it starts no thread");
    let tree = dynamic(&scheduler);
    let (drops, dropped) = channel();
    let answer = |mut cx: coroutine::Context<Reply<u32>>, connection: Connection| {
        while let Some(reply) = cx.recv() {
            reply.send(connection.0);
        }
    };
    scheduler.block_on(async {
        let template = Template::coroutine(answer);
        let connection = Connection(1, drops.clone());
        let one = tree.add_another(&template, connection).await.expect("it starts");
        let connection = Connection(2, drops.clone());
        let two = OnceSpec::coroutine(move |cx| answer(cx, connection));
        let two = tree.add_once(two).await.expect("it starts");
        assert_eq!(one.call(|reply| reply, SECOND).await.ok(), Some(1));
        assert_eq!(two.call(|reply| reply, SECOND).await.ok(), Some(2));
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_eq!(dropped.try_iter().count(), 2);
    // Without coroutines, the value comes back.
    let without = driven();
    let tree = dynamic(&without);
    let template = Template::coroutine(answer);
    let refused = without.block_on(tree.add_another(&template, Connection(3, drops)));
    let refused = refused.expect_err("there are no coroutines");
    assert!(matches!(refused.cause(), ChildError::Start(_)));
    assert_eq!(refused.into_inner().expect("no process has it").0, 3);
}

#[derive(Debug)]
struct Hostile {
    clone_panics: bool,
}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        if self.clone_panics {
            panic_quietly("in clone");
        }
        Self { clone_panics: false }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if !crate::home::thread::panicking() {
            panic_quietly("in drop");
        }
    }
}

#[test]
fn hostile_arguments_harm_no_supervisor() {
    let scheduler = driven();
    let tree = dynamic(&scheduler);
    scheduler.block_on(async {
        let waits = |mut cx: Context<()>, held: Hostile| async move {
            cx.recv().await;
            std::mem::forget(held);
        };
        let template = Template::new(waits).restart(Restart::Transient);
        let refused = tree.add_another(&template, Hostile { clone_panics: true }).await;
        let (held, cause) = refused.expect_err("the clone panics").into_parts();
        assert_eq!(cause.to_string(), "the child did not start: the process panicked: in clone");
        std::mem::forget(held);
        let hostile = Hostile { clone_panics: false };
        let child = tree.add_another(&template, hostile).await.expect("it starts");
        child.send(()).expect("it waits");
        // It ends, and the supervisor drops the argument that it kept for restarts.
        while tree.count().await.expect("it is there").children > 0 {
            yield_now().await;
        }
        let captured = Hostile { clone_panics: false };
        let spec = ChildSpec::new("twice", move |_: Context<()>| {
            let _captured = &captured;
            async {}
        });
        let spec = spec.restart(Restart::Temporary);
        drop(tree.add_child(spec).await.expect("it starts"));
        while tree.count().await.expect("it is there").children > 0 {
            yield_now().await;
        }
    });
    assert!(tree.is_alive(), "the drops panicked in the supervisor");
}

#[test]
fn a_call_by_name_names_what_is_wrong() {
    let scheduler = driven();
    let named: Named<Reply<u32>> = Named::on(&scheduler, "audit\n");
    let error = scheduler.block_on(named.call(|reply| reply, HOUR)).expect_err("there is none");
    let procession::mailbox::CallCause::Refused(cause) = error.cause() else {
        panic!("it was sent to no process")
    };
    assert_eq!(cause.to_string(), "cannot send: no process is registered as `audit\\n`");
    assert_eq!(cause.name(), Some("audit\n"));
    assert!(cause.is_ended() && error.into_inner().is_some());
    let other = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    scheduler.register("audit\n", other.pid()).expect("the name is free");
    let error = scheduler.block_on(named.call(|reply| reply, HOUR)).expect_err("of another type");
    let procession::mailbox::CallCause::Refused(cause) = error.cause() else {
        panic!("it receives numbers")
    };
    assert!(cause.is_wrong_type() && cause.name() == Some("audit\n"));
    assert!(cause.to_string().ends_with("but the process receives u8"), "{cause}");
    let taken = scheduler.register("audit\n", other.pid()).expect_err("it is taken");
    assert_eq!((taken.name(), taken.owner()), ("audit\n", Some(other.pid())));
    assert_eq!(taken.to_string(), format!("`audit\\n` is taken by {}", other.pid()));
}
