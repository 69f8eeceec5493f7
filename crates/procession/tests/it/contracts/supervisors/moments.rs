//! A tree of three children at each awkward moment, and everything that can befall it there: one
//! product of moments, events, ends and strategies, so that no transition is left out.

use std::sync::Arc;
use std::time::Duration;

use procession::process::send_exit;
use procession::supervisor::{
    ChildSpec, ChildStatus, Started, Stop, Strategy, Supervisor, SupervisorRef,
};
use procession::sync::CancellationToken;
use procession::{Context, Exit, JoinHandle, Scheduler, SpawnOptions, sleep, timeout};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::SECOND;
use crate::contracts::HOUR;
use crate::scene::{alive, assert_conserved};

/// Creates a scheduler that this thread drives, and that prints no restarts.
fn quiet() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock().on_supervisor(|_| {});
    builder.build().expect("it starts no thread")
}

/// A place that the process of one child does not pass while it is closed.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Option<(&'static str, CancellationToken)>>>);

impl Gate {
    fn close(&self, id: &'static str) {
        *self.0.lock() = Some((id, CancellationToken::new()));
    }

    fn open(&self) {
        if let Some((_, token)) = self.0.lock().take() {
            token.cancel();
        }
    }

    async fn pass(&self, id: &'static str) {
        let closed = self.0.lock().clone().filter(|(closed, _)| *closed == id);
        if let Some((_, token)) = closed {
            token.cancelled().await;
        }
    }
}

/// What the tree does when it is struck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// It starts, and the second child does not report yet.
    Starts,
    Runs,
    /// The second child waits for its restart.
    BacksOff,
    /// The second child is started again, and does not report yet.
    Restarts,
    /// The second child was asked to stop, and cleans up.
    Stops,
    /// The first child has failed, and if the others stop, too, the third one cleans up.
    Recycles,
    /// The third child has failed often, and waits long for its restart.
    Flaps,
}

impl Moment {
    const ALL: [Self; 7] = [
        Self::Starts,
        Self::Runs,
        Self::BacksOff,
        Self::Restarts,
        Self::Stops,
        Self::Recycles,
        Self::Flaps,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    Nothing,
    /// A child fails, by an exit signal.
    Fails(&'static str),
    Killed(&'static str),
    Terminate(&'static str),
    Restart,
    Delete,
    StartAnother,
}

impl Blow {
    const ALL: [Self; 11] = [
        Self::Nothing,
        Self::Fails("a"),
        Self::Fails("b"),
        Self::Fails("c"),
        Self::Killed("b"),
        Self::Terminate("a"),
        Self::Terminate("b"),
        Self::Terminate("c"),
        Self::Restart,
        Self::Delete,
        Self::StartAnother,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// All that was held up goes on, and the tree is cancelled later.
    GoesOn,
    Cancel,
    Kill,
    Shutdown,
}

impl End {
    const ALL: [Self; 4] = [Self::GoesOn, Self::Cancel, Self::Kill, Self::Shutdown];
}

const STRATEGIES: [Strategy; 4] =
    [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic];

/// The failures of a child that flaps. The last one is followed by a wait of 64 s at least.
const FLAPS: u32 = 8;

/// A tree on its way.
struct Run {
    strategy: Strategy,
    scheduler: Scheduler,
    begin: Gate,
    clean_up: Gate,
    /// Waits for the start of the tree, and then for its end.
    keeper: JoinHandle<bool>,
    /// The requests to the tree.
    requests: Vec<JoinHandle<()>>,
}

impl Run {
    fn new(strategy: Strategy, moment: Moment) -> Self {
        let (scheduler, begin, clean_up) = (quiet(), Gate::default(), Gate::default());
        if moment == Moment::Starts {
            begin.close("b");
        }
        let tree = ["a", "b", "c"].into_iter().fold(
            // No restart is one too many.
            Supervisor::new(strategy).intensity(1000, HOUR).back_off(SECOND, HOUR),
            |tree, id| tree.child(child(id, &begin, &clean_up)),
        );
        let starts = tree.try_start_with(SpawnOptions::new().on(&scheduler).name("tree"));
        let keeper = scheduler.spawn(async move {
            match starts.await {
                Ok(running) => running.await == Exit::Shutdown,
                Err(_) => false,
            }
        });
        scheduler.run_until_idle();
        Self { strategy, scheduler, begin, clean_up, keeper, requests: Vec::new() }
    }

    fn tree(&self) -> Option<SupervisorRef> {
        self.scheduler.whereis("tree").and_then(SupervisorRef::of)
    }

    /// Asks the tree for something, without waiting for the answer.
    fn ask<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        ask: impl FnOnce(SupervisorRef) -> F,
    ) {
        if let Some(tree) = self.tree() {
            self.requests.push(self.scheduler.spawn(ask(tree)));
            self.scheduler.run_until_idle();
        }
    }

    fn fail(&self, id: &str) {
        if let Some(pid) = self.scheduler.whereis(id) {
            assert!(send_exit(pid, Exit::failed("struck")));
            self.scheduler.run_until_idle();
        }
    }

    fn reach(&mut self, moment: Moment) {
        match moment {
            Moment::Starts | Moment::Runs => {}
            Moment::BacksOff => self.fail("b"),
            Moment::Restarts => {
                self.begin.close("b");
                self.fail("b");
                self.scheduler.advance(2 * SECOND);
                self.scheduler.run_until_idle();
            }
            Moment::Stops => {
                self.clean_up.close("b");
                self.strike(Blow::Terminate("b"));
            }
            Moment::Recycles => {
                self.clean_up.close("c");
                self.fail("a");
            }
            Moment::Flaps => {
                for failures in 0..FLAPS {
                    // The longest wait after the failures so far.
                    self.scheduler.advance(SECOND * (1 << failures));
                    self.scheduler.run_until_idle();
                    self.fail("c");
                }
            }
        }
        let expected = match moment {
            Moment::Starts | Moment::Restarts => "Starting",
            Moment::BacksOff => "Waiting",
            Moment::Stops => "Stopping",
            Moment::Flaps if self.strategy == Strategy::OneForAll => "Waiting",
            Moment::Runs | Moment::Recycles | Moment::Flaps => "Running",
        };
        let tree = self.tree().expect("it lives");
        let status = self.scheduler.block_on(tree.status("b")).expect("it answers");
        assert!(format!("{status:?}").starts_with(expected), "{moment:?}: {status:?}");
    }

    fn strike(&mut self, blow: Blow) {
        match blow {
            Blow::Nothing => {}
            Blow::Fails(id) => self.fail(id),
            Blow::Killed(id) => {
                if let Some(pid) = self.scheduler.whereis(id) {
                    assert!(procession::process::kill(pid));
                    self.scheduler.run_until_idle();
                }
            }
            Blow::Terminate(id) => {
                self.ask(async move |tree| drop(tree.terminate_child(id).await));
            }
            Blow::Restart => self.ask(async |tree| drop(tree.restart_child("b").await)),
            Blow::Delete => self.ask(async |tree| drop(tree.delete_child("b").await)),
            Blow::StartAnother => {
                let another = ["b", "d"].map(|id| child(id, &self.begin, &self.clean_up));
                for child in another {
                    self.ask(async move |tree| drop(tree.add_child(child).await));
                }
            }
        }
    }

    /// Asserts that the tree and all its children have ended.
    fn assert_ended(self) {
        self.scheduler.run_until_idle();
        for request in &self.requests {
            assert!(request.is_finished(), "a request has no answer");
        }
        assert!(self.keeper.is_finished(), "the tree has not ended");
        let living: Vec<_> =
            alive(&self.scheduler.snapshot()).map(|one| one.label.clone()).collect();
        assert!(living.is_empty(), "they outlive the tree: {living:?}");
        assert_conserved(&self.scheduler);
    }

    /// Lets everything that was held up go on, and asserts that each child is where the requests
    /// have left it.
    fn goes_on(&mut self, may_be_gone: &[&str]) {
        self.begin.open();
        self.clean_up.open();
        let scheduler = self.scheduler.clone();
        scheduler.block_on(sleep(10 * SECOND));
        if let Some(tree) = self.tree()
            && self.strategy != Strategy::OneForAll
        {
            // They do not wait for the third child.
            for id in ["a", "b"] {
                let status = scheduler.block_on(tree.status(id));
                let is_up = matches!(status, Ok(ChildStatus::Running(_)));
                assert!(is_up || may_be_gone.contains(&id), "{id} is {status:?}");
            }
        }
        scheduler.block_on(sleep(SECOND * (1 << FLAPS)));
        for request in &self.requests {
            assert!(request.is_finished(), "a request has no answer");
        }
        let Some(tree) = self.tree() else { return };
        let infos = scheduler.block_on(timeout(SECOND, tree.which()));
        let infos = infos.expect("it answers in time").expect("it answers");
        let mut running = 0;
        for id in ["a", "b", "c", "d"] {
            let info = infos.iter().find(|info| info.id.as_deref() == Some(id));
            let status = info.map(|info| info.status);
            match status {
                Some(ChildStatus::Running(pid)) => {
                    running += 1;
                    assert_eq!(scheduler.whereis(id), Some(pid), "{id}");
                }
                None if id == "d" => {}
                Some(ChildStatus::Stopped) | None if may_be_gone.contains(&id) => {}
                other => panic!("{id} is {other:?}"),
            }
        }
        let counts = scheduler.block_on(tree.count()).expect("it answers");
        assert_eq!(counts.running, running);
        // The tree and its keeper.
        let living = alive(&scheduler.snapshot()).count();
        assert_eq!(living, running + 2, "one process for each child");
    }

    fn end(mut self, end: End, may_be_gone: &[&str]) {
        let scheduler = self.scheduler.clone();
        let before = scheduler.now();
        // Each of four children is held up until its deadline.
        let longest = 12 * SECOND;
        match end {
            End::GoesOn => {
                self.goes_on(may_be_gone);
                if let Some(tree) = self.tree() {
                    tree.cancel();
                    scheduler.run_until_idle();
                    assert!(self.keeper.is_finished(), "nothing holds the tree up");
                }
            }
            End::Cancel => {
                if let Some(tree) = self.tree() {
                    tree.cancel();
                    let ended = scheduler.block_on(timeout(HOUR, async {
                        while self.tree().is_some() {
                            sleep(SECOND).await;
                        }
                    }));
                    assert!(ended.is_ok(), "the tree does not end");
                }
            }
            End::Kill => {
                if let Some(tree) = self.tree() {
                    assert!(procession::process::kill(tree.pid()));
                }
            }
            End::Shutdown => {
                let unfinished = scheduler.block_on(scheduler.shutdown(HOUR));
                assert!(unfinished.is_empty(), "{unfinished:?}");
            }
        }
        if end != End::GoesOn {
            let took = scheduler.now().saturating_duration_since(before);
            assert!(took <= longest, "the end takes {took:?}");
        }
        self.assert_ended();
    }
}

fn child(id: &'static str, begin: &Gate, clean_up: &Gate) -> ChildSpec<procession::Address<()>> {
    let (begin, clean_up) = (begin.clone(), clean_up.clone());
    let child = ChildSpec::with_init(id, move |mut cx: Context<()>, started: Started| {
        let (begin, clean_up) = (begin.clone(), clean_up.clone());
        async move {
            begin.pass(id).await;
            started.ready();
            while cx.recv().await.is_some() {}
            clean_up.pass(id).await;
        }
    });
    child.name(id).stop(Stop::Within(3 * SECOND))
}

/// Prints the case if it fails.
struct Case(String);

impl Drop for Case {
    #[expect(clippy::print_stderr, reason = "the harness of tests shows it with the failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}

fn check(strategy: Strategy, moment: Moment, blows: &[Blow], end: End) {
    let _case = Case(format!("{strategy:?}, {moment:?}, {blows:?}, {end:?}"));
    let mut run = Run::new(strategy, moment);
    run.reach(moment);
    let mut may_be_gone = Vec::new();
    if moment == Moment::Stops {
        may_be_gone.push("b");
    }
    for &blow in blows {
        run.strike(blow);
        match blow {
            Blow::Terminate(id) => may_be_gone.push(id),
            Blow::Delete => may_be_gone.push("b"),
            _ => {}
        }
    }
    run.end(end, &may_be_gone);
}

#[test]
fn one_event_at_each_moment_leaves_a_whole_tree_or_none() {
    for strategy in STRATEGIES {
        for moment in Moment::ALL {
            for blow in Blow::ALL {
                for end in End::ALL {
                    check(strategy, moment, &[blow], end);
                }
            }
        }
    }
}

#[test]
fn two_events_at_each_moment_leave_a_whole_tree_or_none() {
    for moment in Moment::ALL {
        for first in Blow::ALL {
            for second in Blow::ALL {
                check(Strategy::RestForOne, moment, &[first, second], End::GoesOn);
            }
        }
    }
}

/// What a report of an earlier process of the child says.
#[derive(Clone, Copy, Debug)]
enum Late {
    Ready,
    Fails,
    Dropped,
}

#[test]
fn a_report_of_an_earlier_process_is_not_one_of_the_next() {
    for late in [Late::Ready, Late::Fails, Late::Dropped] {
        let scheduler = quiet();
        // The first process reports in time, so that the tree starts. The others keep their
        // reports.
        let (kept, count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
        let keeps = Arc::clone(&kept);
        let child = ChildSpec::with_init("b", move |mut cx: Context<()>, started: Started| {
            if count.fetch_add(1, Relaxed) == 0 {
                started.ready();
            } else {
                keeps.lock().push(started);
            }
            async move { while cx.recv().await.is_some() {} }
        });
        let tree = Supervisor::one_for_one().intensity(10, HOUR).child(child.name("b"));
        let tree = super::start(&scheduler, tree);
        let status = || scheduler.block_on(tree.status("b")).expect("it answers");
        let fail = || {
            let pid = scheduler.whereis("b").expect("it has a process");
            assert!(send_exit(pid, Exit::failed("struck")));
            scheduler.run_until_idle();
            scheduler.whereis("b").expect("it has another process")
        };
        let second = fail();
        assert_eq!(status(), ChildStatus::Starting(second));
        let third = fail();
        assert_eq!(status(), ChildStatus::Starting(third));
        assert_eq!(kept.lock().len(), 2);
        let report = kept.lock().remove(0);
        match late {
            Late::Ready => report.ready(),
            Late::Fails => report.fail("late"),
            Late::Dropped => drop(report),
        }
        scheduler.run_until_idle();
        assert_eq!(status(), ChildStatus::Starting(third), "{late:?} was of another process");
        kept.lock().pop().expect("it keeps its own").ready();
        scheduler.run_until_idle();
        assert_eq!(status(), ChildStatus::Running(third), "{late:?}");
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}

/// Returns how long the child is down after it fails.
fn wait_after_failure(scheduler: &Scheduler) -> Duration {
    let pid = scheduler.whereis("b").expect("it runs");
    assert!(send_exit(pid, Exit::failed("struck")));
    let before = scheduler.now();
    let again = scheduler.block_on(timeout(HOUR, async {
        while scheduler.whereis("b").is_none_or(|next| next == pid) {
            sleep(Duration::from_millis(1)).await;
        }
    }));
    assert!(again.is_ok(), "it is started again");
    scheduler.now().saturating_duration_since(before)
}

#[test]
fn a_back_off_begins_again_after_a_long_run_and_only_then() {
    let slack = Duration::from_millis(2);
    for (runs_for, is_long) in
        [(Duration::ZERO, false), (8 * SECOND, false), (8 * SECOND + slack, true), (HOUR, true)]
    {
        let (scheduler, gate) = (quiet(), Gate::default());
        let tree = Supervisor::one_for_one().intensity(1000, SECOND).back_off(SECOND, 8 * SECOND);
        let tree = super::start(&scheduler, tree.child(child("b", &gate, &gate)));
        let between = |wait: Duration, most: Duration| {
            assert!(
                (most / 2..=most + slack).contains(&wait),
                "{wait:?} of {most:?}, {runs_for:?}"
            );
        };
        for most in [1, 2, 4, 8, 8] {
            between(wait_after_failure(&scheduler), most * SECOND);
        }
        // Twice, so that a reset is one of the count and not of one wait.
        for _ in 0..2 {
            if !runs_for.is_zero() {
                scheduler.block_on(sleep(runs_for - slack / 2));
            }
            let mosts = if is_long { [1, 2, 4, 8] } else { [8; 4] };
            for most in mosts {
                between(wait_after_failure(&scheduler), most * SECOND);
            }
        }
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}
