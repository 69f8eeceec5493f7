//! Supervisors. The outcomes are those of Erlang/OTP's `supervisor`.

mod entries;
mod kept;
mod moments;
mod starts;
mod stops;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::machine::{InitError, Process, Status, WaitingFor};
use procession::mailbox::Event;
use procession::process::{Named, exit, whereis};
use procession::supervisor::{
    AutoShutdown, ChildError, ChildSpec, ChildStatus, Restart, Running, SpecError, StartError,
    Strategy, Supervisor, SupervisorRef, Template,
};
use procession::{Address, Context, Exit, Reply, Scheduler, SpawnOptions, sleep, yield_now};

use super::HOUR;
use crate::scene::{alive, assert_conserved, driven, panic_quietly, threaded};

const SECOND: Duration = Duration::from_secs(1);

/// A log of the children, in order: `+a` starts, `-a` stops because it is asked to, `!a` ends by
/// itself.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, mark: char, id: &str) {
        self.0.lock().expect("no test panics under it").push(format!("{mark}{id}"));
    }

    /// Returns what was logged since the last call.
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().expect("no test panics under it")).join(" ")
    }
}

/// The way in which a child should end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Normal,
    Shutdown,
    LosesName,
    Fails,
    Panics,
}

/// A child that ends in the way that it is sent.
fn worker(log: &Log, id: &'static str) -> ChildSpec<Address<End>> {
    let log = log.clone();
    // It has started when it reports that: the first steps of processes run in any order.
    ChildSpec::with_init(id, move |mut cx: Context<End>, started| {
        let log = log.clone();
        async move {
            log.note('+', id);
            started.ready();
            let Some(end) = cx.recv().await else { return log.note('-', id) };
            log.note('!', id);
            match end {
                End::Normal => {}
                End::Shutdown => exit(Exit::Shutdown),
                End::LosesName => exit(Exit::NameLost("counter".into())),
                End::Fails => exit(Exit::failed("told to")),
                End::Panics => panic_quietly("told to"),
            }
        }
    })
    .name(id)
}

fn start(scheduler: &Scheduler, supervisor: Supervisor) -> Running {
    let running = scheduler.block_on(supervisor.try_start()).expect("it starts");
    scheduler.run_until_idle();
    running
}

fn tell(scheduler: &Scheduler, id: &str, end: End) {
    Named::on(scheduler, id).send(end).expect("it is there");
    scheduler.run_until_idle();
}

fn three(log: &Log, strategy: Strategy, restart: Restart) -> Supervisor {
    ["a", "b", "c"]
        .into_iter()
        .fold(Supervisor::new(strategy), |tree, id| tree.child(worker(log, id).restart(restart)))
}

#[test]
fn each_strategy_restarts_what_it_says_in_its_order() {
    use Strategy::{Dynamic, OneForAll, OneForOne, RestForOne};
    for (strategy, victim, expected) in [
        (OneForOne, "a", "!a +a"),
        (OneForOne, "b", "!b +b"),
        (OneForOne, "c", "!c +c"),
        (Dynamic, "b", "!b +b"),
        (OneForAll, "a", "!a -c -b +a +b +c"),
        (OneForAll, "b", "!b -c -a +a +b +c"),
        (OneForAll, "c", "!c -b -a +a +b +c"),
        (RestForOne, "a", "!a -c -b +a +b +c"),
        (RestForOne, "b", "!b -c +b +c"),
        (RestForOne, "c", "!c +c"),
    ] {
        for end in [End::Fails, End::Panics, End::Normal, End::Shutdown] {
            let (scheduler, log) = (driven(), Log::default());
            let tree = start(&scheduler, three(&log, strategy, Restart::Permanent));
            assert_eq!(log.take(), "+a +b +c");
            tell(&scheduler, victim, end);
            assert_eq!(log.take(), expected, "{strategy:?}, {victim}, {end:?}");
            tree.cancel();
            assert_eq!(tree.join(), Exit::Shutdown);
            if strategy == Dynamic {
                // All children stop at once.
                assert_eq!(log.take().len(), "-c -b -a".len());
            } else {
                assert_eq!(log.take(), "-c -b -a");
            }
            assert_conserved(&scheduler);
            assert_eq!(alive(&scheduler.snapshot()).count(), 0);
        }
    }
}

#[test]
fn each_kind_of_child_is_restarted_after_the_ends_that_it_says() {
    use Restart::{Permanent, Temporary, Transient};
    let (again, stays, gone) = (Some(true), Some(false), None);
    for (restart, end, expected) in [
        (Permanent, End::Normal, again),
        (Permanent, End::Shutdown, again),
        (Permanent, End::LosesName, stays),
        (Permanent, End::Fails, again),
        (Transient, End::Normal, stays),
        (Transient, End::Shutdown, stays),
        (Transient, End::LosesName, stays),
        (Transient, End::Fails, again),
        (Transient, End::Panics, again),
        (Temporary, End::Normal, gone),
        (Temporary, End::Shutdown, gone),
        (Temporary, End::LosesName, gone),
        (Temporary, End::Fails, gone),
        (Temporary, End::Panics, gone),
    ] {
        for strategy in
            [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic]
        {
            let (scheduler, log) = (driven(), Log::default());
            // A child that needs no restart needs no intensity.
            let intensity = u32::from(expected == again);
            let tree = start(&scheduler, three(&log, strategy, restart).intensity(intensity, HOUR));
            tell(&scheduler, "b", end);
            let status = scheduler.block_on(tree.status("b"));
            let seen = status.ok().map(|status| status.pid().is_some());
            let expected =
                if strategy == Strategy::Dynamic && expected == stays { gone } else { expected };
            assert_eq!(seen, expected, "{restart:?}, {end:?}, {strategy:?}");
            assert!(tree.is_alive());
        }
    }
}

#[test]
fn a_child_that_is_restarted_with_another_is_forgotten_if_temporary_and_started_if_stopped() {
    let (scheduler, log) = (driven(), Log::default());
    let tree = Supervisor::one_for_all()
        .child(worker(&log, "a"))
        .child(worker(&log, "b").restart(Restart::Temporary))
        .child(worker(&log, "c").restart(Restart::Transient));
    let tree = start(&scheduler, tree);
    tell(&scheduler, "c", End::Normal);
    assert_eq!(log.take(), "+a +b +c !c");
    tell(&scheduler, "a", End::Fails);
    assert_eq!(log.take(), "!a -b +a +c");
    assert_eq!(scheduler.block_on(tree.status("b")), Err(ChildError::NotFound));
}

#[test]
fn the_window_of_restarts_slides_and_ends_exactly() {
    // The times in milliseconds at which the child fails, and the failure after which the
    // supervisor gives up. Two in 1000 ms are allowed.
    for (fails, gives_up) in [
        (&[0, 999, 999][..], Some(3)),
        (&[0, 500, 1000, 1499], Some(4)),
        (&[0, 500, 1000, 1500, 2000, 2500], None),
        (&[0, 1, 1001, 1002, 2002, 2003], None),
        (&[0, 0, 0], Some(3)),
        (&[700, 800, 1699], Some(3)),
        (&[700, 800, 1700], None),
    ] {
        let (scheduler, log) = (driven(), Log::default());
        let tree = Supervisor::one_for_one().intensity(2, SECOND).child(worker(&log, "a"));
        let tree = start(&scheduler, tree);
        let (mut now, mut failed) = (0, 0);
        for &moment in fails {
            scheduler.advance(Duration::from_millis(moment - now));
            now = moment;
            tell(&scheduler, "a", End::Fails);
            failed += 1;
            if !tree.is_alive() {
                break;
            }
        }
        let given_up = (!tree.is_alive()).then_some(failed);
        assert_eq!(given_up, gives_up, "{fails:?}");
    }
}

#[test]
fn a_supervisor_that_gives_up_stops_its_children_and_its_own_supervisor_decides() {
    let (scheduler, log) = (driven(), Log::default());
    let inner = Supervisor::one_for_one()
        .intensity(1, HOUR)
        .child(worker(&log, "x"))
        .child(worker(&log, "y"));
    let middle =
        Supervisor::one_for_one().intensity(1, HOUR).child(ChildSpec::supervisor("inner", inner));
    let outer = Supervisor::one_for_one()
        .intensity(0, HOUR)
        .child(worker(&log, "z"))
        .child(ChildSpec::supervisor("middle", middle));
    let tree = start(&scheduler, outer);
    assert_eq!(log.take(), "+z +x +y");
    for expected in ["!x +x", "!x -y +x +y", "!x +x", "!x -y -z"] {
        tell(&scheduler, "x", End::Fails);
        assert_eq!(log.take(), expected);
    }
    let Exit::GaveUp(reason) = tree.join() else { panic!("it was asked to end") };
    let begin = "\"middle\" needs more than 0 restarts in 3600 s; it gave up: \"inner\" needs more";
    assert!(reason.starts_with(begin) && reason.ends_with("it failed: told to"), "{reason}");
    assert_conserved(&scheduler);
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
}

#[test]
fn a_failed_start_ends_those_before_and_names_the_child() {
    let (scheduler, log) = (driven(), Log::default());
    let fails = || {
        ChildSpec::with_init("f", |_: Context<()>, started| async move {
            sleep(SECOND).await;
            started.fail("nope");
            std::future::pending::<()>().await;
        })
    };
    let tree = || {
        three(&log, Strategy::OneForOne, Restart::Permanent)
            .child(fails())
            .child(worker(&log, "never"))
    };
    let error = scheduler.block_on(tree().try_start()).expect_err("f does not start");
    assert_eq!(error, StartError::Child { id: "f".into(), reason: "nope".into() });
    // A `main` that returns the error prints this.
    let printed = format!("{error:?}");
    assert_eq!(printed, "cannot start the supervisor: child \"f\" did not start: nope");
    assert_eq!(error.to_string(), "cannot start the supervisor: child \"f\" did not start: nope");
    assert_eq!(log.take(), "+a +b +c -c -b -a");
    let outer = Supervisor::one_for_one().child(ChildSpec::supervisor("inner", tree()));
    let error = scheduler.block_on(outer.try_start()).expect_err("f does not start");
    let inner = "child \"inner\" did not start: cannot start the supervisor: child \"f\" did not start: nope";
    assert_eq!(error.to_string(), format!("cannot start the supervisor: {inner}"));
    assert_eq!(log.take(), "+a +b +c -c -b -a");
    scheduler.run_until_idle();
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
}

/// A state machine that refuses to start, or panics.
struct Refuses(bool);

impl Process for Refuses {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, method: &str, (): ()) -> Result<(), InitError> {
        if self.0 { Ok(()) } else { Err(InitError::unknown_method(method)) }
    }

    fn step(
        &mut self,
        _: &mut procession::machine::Events<()>,
        _: &mut procession::machine::Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn children_are_managed_at_run_time() {
    let (scheduler, log) = (driven(), Log::default());
    let tree = start(
        &scheduler,
        three(&log, Strategy::OneForOne, Restart::Permanent).intensity(0, SECOND),
    );
    scheduler.block_on(async {
        let b = whereis("b").expect("it runs");
        assert_eq!(tree.restart_child("b").await, Err(ChildError::Running(b)));
        assert_eq!(tree.delete_child("b").await, Err(ChildError::Running(b)));
        assert_eq!(tree.add_child(worker(&log, "b")).await, Err(ChildError::AlreadyStarted(b)));
        assert_eq!(tree.terminate_child("b").await, Ok(()));
        assert_eq!(tree.terminate_child("b").await, Ok(()));
        assert_eq!(tree.add_child(worker(&log, "b")).await, Err(ChildError::AlreadyPresent));
        let again = tree.restart_child("b").await.expect("it starts");
        assert_eq!(tree.status(again).await, Ok(ChildStatus::Running(again)));
        assert_eq!(tree.terminate_child(again).await, Ok(()));
        assert_eq!(tree.delete_child("b").await, Ok(()));
        for unknown in [
            tree.delete_child("b").await,
            tree.terminate_child("b").await,
            tree.terminate_child(b).await,
        ] {
            assert_eq!(unknown, Err(ChildError::NotFound));
        }
        tree.add_child(worker(&log, "d")).await.expect("it starts");
        let refuses = ChildSpec::machine("e", || Refuses(false), "go", || ());
        assert!(matches!(tree.add_child(refuses).await, Err(ChildError::Start(_))));
        let infos = tree.which().await.expect("it is there");
        let ids: Vec<_> =
            infos.iter().map(|info| info.id.as_deref().expect("all have ids")).collect();
        assert_eq!(ids, ["a", "c", "d"]);
    });
    tree.cancel();
    scheduler.run_until_idle();
    assert_eq!(log.take(), "+a +b +c -b +b -b +d -d -c -a");
    assert_eq!(scheduler.block_on(tree.add_child(worker(&log, "x"))), Err(ChildError::Ended));
    assert!(scheduler.block_on(tree.which()).is_err());
}

#[test]
fn a_dynamic_supervisor_has_any_number_from_a_template() {
    let scheduler = driven();
    let template = Template::new(|mut cx: Context<Reply<u32>>, number: u32| async move {
        if let Some(reply) = cx.recv().await {
            reply.send(number);
        }
    });
    let tree = start(&scheduler, Supervisor::dynamic().intensity(0, SECOND));
    scheduler.block_on(async {
        let mut children = Vec::new();
        for number in 0..1000 {
            children.push(tree.add_another(&template, number).await.expect("it starts"));
        }
        for (number, child) in (0..).zip(&children[..500]) {
            if number % 2 == 0 {
                assert_eq!(tree.terminate_child(child.pid()).await, Ok(()));
            } else {
                assert_eq!(child.call(|reply| reply, SECOND).await.ok(), Some(number));
            }
        }
        yield_now().await;
        while tree.count().await.expect("it is there").children > 500 {
            yield_now().await;
        }
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_conserved(&scheduler);
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
}

#[test]
fn significant_children_end_their_supervisor() {
    use AutoShutdown::{AllSignificant, AnySignificant, Never};
    for (auto, ends, ended) in [
        (Never, &["a", "b"][..], false),
        (AnySignificant, &["a"], true),
        (AnySignificant, &["c"], false),
        (AllSignificant, &["a"], false),
        (AllSignificant, &["a", "c"], false),
        (AllSignificant, &["a", "b"], true),
    ] {
        let (scheduler, log) = (driven(), Log::default());
        let child = |id| {
            let child = worker(&log, id).restart(Restart::Transient);
            if auto == Never || id == "c" { child } else { child.significant() }
        };
        let tree = ["a", "b", "c"]
            .into_iter()
            .fold(Supervisor::one_for_one(), |tree, id| tree.child(child(id)));
        let tree = start(&scheduler, tree.auto_shutdown(auto));
        for id in ends {
            tell(&scheduler, id, End::Normal);
        }
        assert_eq!(!tree.is_alive(), ended, "{auto:?} {ends:?}");
    }
}

#[test]
fn a_significant_child_that_waits_for_its_restart_has_not_ended() {
    let (scheduler, log) = (driven(), Log::default());
    let child = |id| worker(&log, id).restart(Restart::Transient).significant();
    let tree = Supervisor::one_for_one().back_off(SECOND, SECOND).child(child("a"));
    let tree = tree.child(child("b")).auto_shutdown(AutoShutdown::AllSignificant);
    let tree = start(&scheduler, tree);
    tell(&scheduler, "a", End::Fails);
    tell(&scheduler, "b", End::Normal);
    assert!(tree.is_alive());
    scheduler.advance(SECOND);
    scheduler.run_until_idle();
    tell(&scheduler, "a", End::Normal);
    assert!(!tree.is_alive());
    assert_eq!(log.take(), "+a +b !a !b +a !a");
}

/// The result is the same as if the start had failed before the other child ended.
#[test]
fn a_failed_start_leaves_no_tree_without_significant_children() {
    for (stops, ends, ended) in [(false, true, true), (true, false, false), (true, true, false)] {
        let (scheduler, log) = (driven(), Log::default());
        let child = |id| worker(&log, id).restart(Restart::Transient).significant();
        let tree = Supervisor::one_for_one().auto_shutdown(AutoShutdown::AllSignificant);
        let tree = start(&scheduler, tree.child(child("a")).child(child("b")));
        let fails = ChildSpec::with_init("c", |_: Context<()>, started| async move {
            let _started = started;
            sleep(SECOND).await;
            Err::<(), _>("no such file".to_owned())
        });
        let fails = fails.restart(Restart::Transient).significant();
        if stops {
            // What ended before has no effect: the last one did not end by itself.
            if ends {
                tell(&scheduler, "b", End::Normal);
            } else {
                assert_eq!(scheduler.block_on(tree.terminate_child("b")), Ok(()));
            }
            assert_eq!(scheduler.block_on(tree.terminate_child("a")), Ok(()));
        }
        let reference = tree.reference().clone();
        let adds = scheduler.spawn(async move { reference.add_child(fails).await.map(drop) });
        scheduler.run_until_idle();
        if !stops {
            tell(&scheduler, "a", End::Normal);
            tell(&scheduler, "b", End::Normal);
        }
        assert!(tree.is_alive());
        scheduler.advance(SECOND);
        scheduler.run_until_idle();
        let added = adds.join().expect("it does not panic");
        assert_eq!(added, Err(ChildError::Start("the process failed: no such file".into())));
        assert_eq!(!tree.is_alive(), ended, "{stops} {ends}");
    }
}

#[test]
fn a_failed_restart_leaves_no_tree_without_significant_children() {
    let (scheduler, log) = (driven(), Log::default());
    let fails = Arc::new(Mutex::new(false));
    let a = ChildSpec::with_init("a", {
        let fails = fails.clone();
        move |_: Context<()>, started| {
            let fails =
                std::mem::replace(&mut *fails.lock().expect("no test panics under it"), true);
            async move {
                if fails {
                    sleep(SECOND).await;
                    return Err("no such file".to_owned());
                }
                started.ready();
                Ok(())
            }
        }
    });
    let tree = Supervisor::one_for_one().auto_shutdown(AutoShutdown::AllSignificant);
    let tree = tree.child(a.restart(Restart::Transient).significant());
    let b = worker(&log, "b").restart(Restart::Transient).significant();
    let tree = start(&scheduler, tree.child(b));
    let reference = tree.reference().clone();
    let restarts = scheduler.spawn(async move { reference.restart_child("a").await });
    scheduler.run_until_idle();
    tell(&scheduler, "b", End::Normal);
    assert!(tree.is_alive());
    scheduler.advance(SECOND);
    scheduler.run_until_idle();
    assert!(matches!(restarts.join(), Ok(Err(ChildError::Start(_)))));
    assert!(!tree.is_alive());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let log = &Log::default();
    let a = || worker(log, "a");
    fn two(strategy: Strategy, child: impl Into<ChildSpec>) -> Supervisor {
        Supervisor::new(strategy).child(child)
    }
    let anonymous = || ChildSpec::anonymous(|_: Context<()>| async {});
    let transient = || a().restart(Restart::Transient).significant();
    let any = AutoShutdown::AnySignificant;
    let one = Strategy::OneForOne;
    for (tree, expected) in [
        (two(one, a()).child(a()), SpecError::DuplicateId("a".into())),
        (two(one, a()).child(worker(log, "b").name("a")), SpecError::DuplicateName("a".into())),
        (two(one, a()).child(anonymous()), SpecError::NoId(1)),
        (two(one, transient()), SpecError::SignificantForNothing("a".into())),
        (
            two(one, a().significant()).auto_shutdown(any),
            SpecError::SignificantPermanent("a".into()),
        ),
        (two(one, a()).intensity(3, Duration::ZERO), SpecError::ZeroPeriod),
        (two(one, a()).back_off(Duration::ZERO, SECOND), SpecError::BackOff),
        (two(one, a()).back_off(HOUR, SECOND), SpecError::BackOff),
        (
            two(one, a().mailbox(0, procession::mailbox::WhenFull::Reject)),
            SpecError::Mailbox("a".into()),
        ),
        (
            two(one, ChildSpec::supervisor("s", two(one, a()).child(a()))),
            SpecError::Nested {
                child: "s".into(),
                error: Box::new(SpecError::DuplicateId("a".into())),
            },
        ),
    ] {
        let scheduler = driven();
        assert_eq!(tree.check(), Err(expected.clone()));
        let error = scheduler.block_on(tree.try_start()).expect_err("it is wrong");
        assert_eq!(error, StartError::Spec(expected));
        assert_eq!(log.take(), "");
    }
    assert_eq!(two(one, transient()).auto_shutdown(any).check(), Ok(()));
    assert_eq!(two(Strategy::Dynamic, anonymous().untyped()).check(), Ok(()));
}

#[test]
#[expect(unsafe_code, reason = "coroutines are enabled by a promise")]
fn a_coroutine_is_a_child_like_others() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: the coroutine keeps nothing across its suspensions that depends on the thread.
    let scheduler = unsafe { builder.enable_coroutines() }.build().expect("it starts no thread");
    let log = Log::default();
    let child = |log: &Log| {
        let log = log.clone();
        let child =
            ChildSpec::coroutine("co", move |mut cx: procession::coroutine::Context<End>| {
                log.note('+', "co");
                match cx.recv() {
                    Some(End::Fails) => exit(Exit::failed("told to")),
                    Some(_) => log.note('!', "co"),
                    None => log.note('-', "co"),
                }
            });
        child.name("co")
    };
    let tree = start(&scheduler, Supervisor::one_for_one().child(child(&log)));
    tell(&scheduler, "co", End::Fails);
    assert_eq!(log.take(), "+co +co");
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    scheduler.run_until_idle();
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
    assert_eq!(log.take(), "-co");

    let error = driven()
        .block_on(Supervisor::one_for_one().child(child(&log)).try_start())
        .expect_err("it cannot");
    assert!(error.to_string().contains("without Builder::enable_coroutines"), "{error}");
}

#[test]
fn nothing_is_lost_when_children_are_killed_at_random() {
    let scheduler = threaded(2);
    let forever = u32::MAX;
    let leaf = |id: usize| {
        ChildSpec::new(format!("{id}"), |mut cx: Context<u32>| async move {
            while cx.recv().await.is_some() {}
        })
    };
    let group = |strategy| {
        let children = (0..5).map(leaf);
        children.fold(Supervisor::new(strategy).intensity(forever, SECOND), Supervisor::child)
    };
    let tree = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic]
        .into_iter()
        .enumerate()
        .fold(Supervisor::one_for_one().intensity(forever, SECOND), |tree, (n, strategy)| {
            tree.child(ChildSpec::supervisor(format!("group {n}"), group(strategy)))
        });
    let tree = scheduler.block_on(tree.try_start()).expect("it starts");
    let killer = scheduler.clone();
    let root = tree.pid();
    let mut chance = fastrand_like(7);
    let kills = scheduler.spawn(async move {
        for _ in 0..500 {
            let living: Vec<_> = alive(&killer.snapshot()).map(|process| process.pid).collect();
            let victim = living[chance() % living.len()];
            if victim != root && Some(victim) != procession::process::current_pid() {
                let _ = procession::mailbox::send(victim, 1_u32);
                procession::process::kill(victim);
            }
            yield_now().await;
        }
    });
    assert_eq!(kills.join(), Ok(()));
    // All of them come back.
    scheduler.block_on(async {
        loop {
            let groups = tree.which().await.expect("it is there");
            let mut running = 0;
            for group in groups {
                if let Some(group) = group.status.pid().and_then(SupervisorRef::of) {
                    running += group.count().await.map_or(0, |counts| counts.running);
                }
            }
            if running == 20 {
                break;
            }
            yield_now().await;
        }
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    scheduler.run_until_idle();
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
    assert_conserved(&scheduler);
}

/// Numbers that look random.
fn fastrand_like(mut seed: usize) -> impl FnMut() -> usize {
    move || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        seed >> 33
    }
}

#[test]
fn a_name_is_with_the_new_process_before_anybody_is_told_of_the_end() {
    let scheduler = driven();
    let (told, tells) = crate::home::mpsc::channel();
    let refused = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        let first = SpawnOptions::new().link().name("n").spawn(async { sleep(SECOND).await });
        let error = SpawnOptions::new().name("n").try_spawn(async {}).expect_err("it is taken");
        told.send(error.register_error().is_some()).expect("the test listens");
        drop(first);
        let Some(Event::Exit(_)) = cx.recv_event().await else { return false };
        let second = SpawnOptions::new()
            .name("n")
            .spawn(async { whereis("n") == procession::process::current_pid() });
        second.await == Ok(true)
    });
    assert_eq!(refused.join(), Ok(true));
    assert_eq!(tells.try_recv(), Ok(true));
}
