//! Names that one process of the cluster holds, and children that run once, on a store that is
//! slow, silent, and wrong.

#[cfg(feature = "etcd")]
mod gateway;
mod model;
mod rows;
#[cfg(feature = "etcd")]
mod stopped;

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use procession::observe::DoorOptions;
use procession::process::kill;
use procession::supervisor::{Running, Supervisor};
use procession::sync::oneshot;
use procession::time::Instant;
use procession::{Context, Exit, JoinHandle, Scheduler, SpawnOptions, sleep, spawn, timeout};
use procession_cluster::Node;
use procession_cluster::exclusive::{
    ClaimError, Claimed, EmbeddedLeases, ExclusiveNames, Fence, Holder, LeaseStore, Singleton,
};

use self::model::{Fault, Ledger, Line, Model};
use crate::section::ask;
use crate::{cookie, until};

const LEASE: Duration = Duration::from_secs(10);
/// The time that a scheduler may take for something beyond the time that it is to take.
const SOON: Duration = Duration::from_millis(200);

/// Runs a test on the test clock.
fn run<F>(test: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    scheduler.expect("it can be built").block_on(test)
}

async fn node(name: &str) -> Node {
    Node::builder(name).cookie(cookie()).start().await.expect("it starts")
}

async fn names(name: &str, store: impl LeaseStore) -> (Node, ExclusiveNames) {
    let node = node(name).await;
    let names = ExclusiveNames::builder(&node).store(store).lease_time(LEASE).start();
    (node, names)
}

/// Starts a process that claims a name, tells its fence, and holds the name until it is cancelled.
async fn hold(names: &ExclusiveNames, name: &str) -> (JoinHandle<Fence>, Fence) {
    let (names, name) = (names.clone(), name.to_owned());
    let (tells, fence) = oneshot::channel();
    let holds = spawn(async move {
        let held = names.claim(name).await.expect("it runs");
        tells.send(held.fence()).expect("the test waits");
        pending::<()>().await;
        held.fence()
    });
    let fence = fence.await.expect("it gets the name");
    (holds, fence)
}

/// Writes to a ledger with the fence of a name, as often as the process can.
async fn write(names: ExclusiveNames, ledger: Ledger) {
    let held = names.claim("ledger").await.expect("it runs");
    write_with(held.fence(), &ledger).await;
}

async fn write_with(fence: Fence, ledger: &Ledger) {
    loop {
        ledger.write(fence.get());
        sleep(Duration::from_millis(50)).await;
    }
}

/// What each store must do.
async fn a_name_has_one_holder<S: LeaseStore>(store: impl Fn() -> S) {
    let (a, of_a) = names("a@127.0.0.1", store()).await;
    let (b, of_b) = names("b@127.0.0.1", store()).await;
    let (first, first_fence) = hold(&of_a, "bills").await;
    let (other, other_fence) = hold(&of_b, "letters").await;
    assert!(other_fence > first_fence);
    let holder = of_b.holder("bills").await.expect("it answers").expect("there is one");
    assert_eq!((&holder.pid.node, holder.fence), (a.name(), first_fence));
    assert_eq!(a.pid(&holder.pid), first.pid());
    assert_eq!(of_b.holder("nothing").await.expect("it answers"), None);

    // It waits for the end of the first, and no longer.
    let (from_b, from_a) = (of_b.clone(), of_a.clone());
    let waits = spawn(async move { from_b.claim("bills").await.expect("it runs").fence() });
    let gives_up = spawn(async move { timeout(SOON, from_a.claim("bills")).await.is_err() });
    assert_eq!(gives_up.await, Ok(true), "the name is taken");
    assert!(!waits.is_finished());
    let ended = Instant::now();
    first.cancel();
    assert_eq!(first.await, Err(Exit::Shutdown));
    let second_fence = waits.await.expect("it gets the name");
    assert!(second_fence > other_fence);
    assert!(ended.elapsed() < Duration::from_secs(2), "{:?}", ended.elapsed());
    // The process has ended, and so has its claim.
    let (third, third_fence) = hold(&of_a, "bills").await;
    assert!(third_fence > second_fence);
    // The node takes its names along, and a process that ends itself is not cancelled.
    third.cancel();
    assert_eq!((a.stop().await, b.stop().await), (0, 0));
    of_a.stop().await;
    of_b.stop().await;
    assert_eq!(other.await, Err(Exit::Shutdown));
}

/// What a monitor sees, with each store.
async fn a_monitor_sees_the_last_holder<S: LeaseStore>(store: impl Fn() -> S) {
    let (a, of_a) = names("a@127.0.0.1", store()).await;
    let (b, of_b) = names("b@127.0.0.1", store()).await;
    let mut holder = of_b.monitor("bills").await.expect("it answers");
    let mut again = of_b.monitor("bills").await.expect("it answers");
    let begun = Instant::now();
    assert_eq!(*holder.borrow(), None);
    let (first, first_fence) = hold(&of_a, "bills").await;
    let (others, _) = hold(&of_a, "letters").await;
    for holder in [&mut holder, &mut again] {
        let fence_of = |holder: &Option<Holder>| holder.as_ref().map(|it| it.fence);
        drop(holder.wait_for(|it| fence_of(it) == Some(first_fence)).await.expect("it runs"));
        assert_eq!(holder.borrow().as_ref().map(|it| a.pid(&it.pid)), Some(first.pid()));
    }
    first.cancel();
    assert_eq!(first.await, Err(Exit::Shutdown));
    drop(holder.wait_for(Option::is_none).await.expect("it runs"));
    // Each monitor has a process as long as somebody has it.
    drop((holder, again));
    let mut holder = of_b.monitor("bills").await.expect("it answers");
    let (second, fence) = hold(&of_b, "bills").await;
    holder.changed().await.expect("it runs");
    assert_eq!(holder.borrow_and_update().as_ref().map(|it| it.fence), Some(fence));
    // Without a message of the store, they would ask again after 30 s.
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    second.cancel();
    assert_eq!((a.stop().await, b.stop().await), (0, 0));
    while holder.changed().await.is_ok() {}
    of_b.stop().await;
    let mut holder = of_b.monitor("bills").await.expect("the store answers");
    holder.changed().await.expect_err("the node has stopped");
    of_a.stop().await;
    assert_eq!(others.await, Err(Exit::Shutdown));
}

#[test]
fn a_monitor_of_a_program_sees_the_last_holder() {
    run(async {
        let store = EmbeddedLeases::new();
        a_monitor_sees_the_last_holder(|| store.clone()).await;
    });
}

/// Goal: what happens while the store cannot be reached is seen later. Method: a line that refuses,
/// and a holder that changes meanwhile.
#[test]
fn a_monitor_outlasts_a_store_that_cannot_be_reached() {
    run(async {
        let model = Model::start();
        a_monitor_sees_the_last_holder(|| model.line()).await;
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let line = model.line();
        let (_b, of_b) = names("b@127.0.0.1", line.clone()).await;
        let mut holder = of_b.monitor("bills").await.expect("it answers");
        line.set(Fault::Refuses);
        of_b.monitor("bills").await.expect_err("it is refused");
        let (holds, fence) = hold(&of_a, "bills").await;
        sleep(LEASE).await;
        assert_eq!(*holder.borrow_and_update(), None, "it is as it was known");
        line.set(Fault::None);
        holder.changed().await.expect("it runs");
        assert_eq!(holder.borrow_and_update().as_ref().map(|it| it.fence), Some(fence));
        holds.cancel();
    });
}

#[test]
fn the_store_of_a_program_gives_a_name_to_one_process() {
    run(async {
        let store = EmbeddedLeases::after(Fence::new(7));
        a_name_has_one_holder(|| store.clone()).await;
        assert_eq!(format!("{store:?}"), "EmbeddedLeases {}");
    });
}

#[test]
fn a_store_with_leases_gives_a_name_to_one_process() {
    run(async {
        let model = Model::start();
        a_name_has_one_holder(|| model.line()).await;
        model.with(|rows| assert!(rows.by_name.is_empty(), "{rows:?}"));
    });
}

#[test]
fn a_claim_that_cannot_succeed_is_refused() {
    run(async {
        let (node, names) = names("a@127.0.0.1", EmbeddedLeases::new()).await;
        assert_eq!(names.claim("bills").await.unwrap_err(), ClaimError::NoProcess);
        let (of_names, of_node) = (names.clone(), node.clone());
        let claims = spawn(async move {
            let long = "x".repeat(1025);
            assert_eq!(of_names.claim(&*long).await.unwrap_err(), ClaimError::Name(long));
            let empty = String::new();
            assert_eq!(of_names.claim("").await.unwrap_err(), ClaimError::Name(empty));
            let held = of_names.claim("bills").await.expect("it is free");
            let again = of_names.claim("bills").await.unwrap_err();
            assert_eq!(again, ClaimError::Held("bills".into()));
            let fence = held.fence();
            drop(held);
            let held = of_names.claim("bills").await.expect("it is free again");
            assert!(held.fence() > fence);
            assert_eq!(held.name(), "bills");
            drop(held);
            of_node.stop().await;
            assert_eq!(of_names.claim("bills").await.unwrap_err(), ClaimError::Stopped);
        });
        assert_eq!(claims.await, Ok(()));
        names.stop().await;
    });
}

/// Goal: without assumptions about the store but its clock, the ledger refuses nothing. Method: the
/// line of the holder falls silent, so that its lease is not renewed.
#[test]
fn a_holder_ends_before_its_lease_does() {
    run(async {
        let (model, ledger) = (Model::start(), Ledger::default());
        let (line, line_of_b) = (model.line(), model.line());
        let (_a, of_a) = names("a@127.0.0.1", line.clone()).await;
        let (_b, of_b) = names("b@127.0.0.1", line_of_b).await;
        let writes = spawn(write(of_a, ledger.clone()));
        let first = ledger.next(0).await;
        let waits = spawn(write(of_b, ledger.clone()));
        sleep(LEASE * 5).await;
        line.set(Fault::Silent);
        let silent = Instant::now();
        assert_eq!(writes.await, Err(Exit::Killed));
        let second = ledger.next(1).await;
        assert!(second > first);
        let written = ledger.written();
        let [(_, _, last), (_, next, _)] = *written.taken else { panic!("{written:?}") };
        // The last renewal was sent up to a third of the lease before.
        assert!(last.duration_since(silent) >= LEASE * 7 / 10 - LEASE / 3 - SOON, "{last:?}");
        assert!(last.duration_since(silent) <= LEASE * 7 / 10, "{last:?}");
        assert!(next.duration_since(silent) <= LEASE + SOON, "{next:?}");
        assert!(next.duration_since(last) >= LEASE * 3 / 10 - SOON, "{written:?}");
        assert_eq!(written.refused, 0);
        waits.cancel();
    });
}

/// Goal: an answer that waited while the program did not run extends nothing. Method: each way of
/// the line takes so long that the lease is over when the answer arrives.
#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    run(async {
        let (model, ledger) = (Model::start(), Ledger::default());
        let line = model.line();
        let (_a, of_a) = names("a@127.0.0.1", line.clone()).await;
        let writes = spawn(write(of_a, ledger.clone()));
        ledger.next(0).await;
        // Two of these round trips are within 7 tenths of the lease.
        line.set(Fault::Slow(Duration::from_millis(1700)));
        sleep(LEASE * 10).await;
        assert!(!writes.is_finished());
        line.set(Fault::Slow(Duration::from_millis(3600)));
        let slow = Instant::now();
        assert_eq!(writes.await, Err(Exit::Killed));
        assert!(slow.elapsed() <= LEASE * 7 / 10, "{:?}", slow.elapsed());
    });
}

/// Goal: the ledger is safe from a store that ends leases early, and the old holder is killed soon.
#[test]
fn a_lease_that_ends_early_leaves_the_ledger_whole() {
    run(async {
        let (model, ledger) = (Model::start(), Ledger::default());
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let (_b, of_b) = names("b@127.0.0.1", model.line()).await;
        let writes = spawn(write(of_a.clone(), ledger.clone()));
        let first = ledger.next(0).await;
        let waits = spawn(write(of_b, ledger.clone()));
        sleep(LEASE / 30).await;
        model.end_lease_of("ledger");
        let early = Instant::now();
        assert!(ledger.next(1).await > first);
        assert!(early.elapsed() <= SOON, "{:?}", early.elapsed());
        assert_eq!(writes.await, Err(Exit::Killed));
        assert!(early.elapsed() <= LEASE / 3 + SOON, "{:?}", early.elapsed());
        let written = ledger.written();
        assert!((1..100).contains(&written.refused), "{}", written.refused);
        assert_eq!(written.taken.len(), 2);
        waits.cancel();
    });
}

#[test]
fn a_claim_whose_answer_is_lost_is_found_again() {
    run(async {
        let model = Model::start();
        let line = model.line();
        let (_a, of_a) = names("a@127.0.0.1", line.clone()).await;
        // So that there is a lease.
        let (first, _) = hold(&of_a, "first").await;
        line.set(Fault::LosesAnswers);
        let claims = spawn(async move { of_a.claim("bills").await.expect("it runs").fence() });
        sleep(LEASE / 20).await;
        let fence = model.with(|rows| rows.by_name["bills"].0.fence);
        line.set(Fault::None);
        assert_eq!(claims.await, Ok(fence));
        assert!(!first.is_finished());
        first.cancel();
        sleep(LEASE).await;
        model.with(|rows| assert!(rows.by_name.is_empty(), "{rows:?}"));
    });
}

#[test]
fn a_claim_that_was_given_up_is_taken_back() {
    run(async {
        let model = Model::start();
        let line = model.line();
        let (_a, of_a) = names("a@127.0.0.1", line.clone()).await;
        let (first, _) = hold(&of_a, "first").await;
        line.set(Fault::Slow(SOON));
        let gives_up = spawn(async move { timeout(SOON, of_a.claim("bills")).await.is_err() });
        assert_eq!(gives_up.await, Ok(true));
        sleep(SOON * 3 / 2).await;
        model.with(|rows| assert!(rows.by_name.contains_key("bills"), "it had arrived"));
        sleep(4 * SOON).await;
        model.with(|rows| assert!(!rows.by_name.contains_key("bills"), "{rows:?}"));
        assert!(!first.is_finished());
    });
}

/// Goal: a claim that arrives after it was given up does not take the name as long as its node
/// runs. Method: claims arrive so late that the node has sent the next one.
#[test]
fn a_claim_that_arrives_late_does_not_succeed() {
    run(async {
        let model = Model::start();
        let line = model.line();
        let (_a, of_a) = names("a@127.0.0.1", line.clone()).await;
        let (first, _) = hold(&of_a, "first").await;
        line.set(Fault::DelaysClaims(LEASE * 3 / 2));
        let late = LEASE + SOON;
        let gives_up = spawn(async move { timeout(late, of_a.claim("bills")).await.is_err() });
        assert_eq!(gives_up.await, Ok(true));
        sleep(LEASE / 2).await;
        model.with(|rows| assert!(rows.by_name.contains_key("bills"), "the first has arrived"));
        sleep(LEASE * 2).await;
        model.with(|rows| assert!(!rows.by_name.contains_key("bills"), "{rows:?}"));
        assert!(!first.is_finished(), "the lease is the same");
    });
}

/// Kills the process with this label.
fn kill_labelled(label: &str) {
    let processes = Scheduler::current().expect("it runs here").snapshot().processes;
    let found = processes.iter().find(|process| process.label.as_deref() == Some(label));
    assert!(kill(found.expect("it runs").pid));
}

/// Goal: no holder is left that nobody watches, and no name that nobody makes free.
#[test]
fn a_holder_ends_with_the_process_of_its_claim() {
    run(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let (_b, of_b) = names("b@127.0.0.1", model.line()).await;
        let (holds, fence) = hold(&of_a, "bills").await;
        let (first, _) = hold(&of_a, "first").await;
        kill_labelled("claim of bills");
        assert_eq!(holds.await, Err(Exit::Killed));
        let (_next, next) = timeout(LEASE, hold(&of_b, "bills")).await.expect("it is free");
        assert!(next > fence);
        assert!(!first.is_finished(), "the lease is the same");
    });
}

/// Goal: only the end of the names ends a claim. Method: the scheduler has no room for the process
/// of the claim, and then this process is killed.
#[test]
fn a_claim_goes_on_without_its_process() {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().max_processes(16).build();
    scheduler.expect("it can be built").block_on(async {
        let store = EmbeddedLeases::new();
        let (_a, of_a) = names("a@127.0.0.1", store.clone()).await;
        let lease = store.grant(LEASE).await.expect("it answers").id;
        store.claim("bills", "somebody", lease).await.expect("it answers");
        let (begins, begun) = oneshot::channel();
        let claims = spawn(async move {
            begun.await.expect("the test begins");
            of_a.claim("bills").await.map(|held| held.fence())
        });
        let mut others = Vec::new();
        while let Ok(other) = SpawnOptions::new().try_spawn(pending::<()>()) {
            others.push(other);
        }
        begins.send(()).expect("it waits");
        sleep(LEASE).await;
        assert!(!claims.is_finished(), "it waits for room");
        others.into_iter().for_each(|other| other.cancel());
        sleep(LEASE).await;
        kill_labelled("claim of bills");
        sleep(LEASE).await;
        assert!(!claims.is_finished(), "the name is taken");
        store.release("bills", "somebody").await.expect("it answers");
        assert!(matches!(claims.await, Ok(Ok(_))));
    });
}

/// Goal: a store that panics has not answered, and nothing else ends.
#[test]
fn names_outlive_panics_of_their_store() {
    run(async {
        let (model, ledger) = (Model::start(), Ledger::default());
        let (_b, of_b) = names("b@127.0.0.1", model.line()).await;
        let (holds, _) = hold(&of_b, "ledger").await;
        let a = host("a@127.0.0.1", &model, &ledger).await;
        sleep(LEASE).await;
        // The watch of the node panics when the name becomes free.
        a.line.set(Fault::Panics);
        holds.cancel();
        assert_eq!(holds.await, Err(Exit::Shutdown));
        sleep(SOON).await;
        a.line.set(Fault::None);
        let fence = timeout(LEASE, ledger.next(0)).await.expect("it gets the name");
        // Its renewals and claims panic, and its grants.
        a.line.set(Fault::Panics);
        sleep(LEASE * 3).await;
        a.line.set(Fault::None);
        let next = timeout(LEASE, ledger.next(1)).await.expect("it gets the name again");
        assert!(next > fence);
        a.tree.cancel();
        assert_eq!(a.tree.await, Exit::Shutdown);
    });
}

#[test]
fn a_claim_goes_on_without_a_watch() {
    run(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let (_b, of_b) = names("b@127.0.0.1", model.line()).await;
        let (holds, fence) = hold(&of_b, "bills").await;
        let claims = spawn(async move { of_a.claim("bills").await.map(|held| held.fence()) });
        sleep(LEASE).await;
        kill_labelled("watch of the names of 'a@127.0.0.1'");
        holds.cancel();
        let claimed = timeout(LEASE * 7, claims).await.expect("it asks again");
        assert!(matches!(claimed, Ok(Ok(next)) if next > fence), "{claimed:?}");
    });
}

/// Goal: a name ends with its process, even if something keeps what the process was given.
#[test]
fn a_name_ends_with_its_process() {
    run(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let names = of_a.clone();
        let (keeps, kept) = oneshot::channel();
        let claims = spawn(async move {
            let held = names.claim("bills").await.expect("it is free");
            keeps.send(held).expect("the test waits");
        });
        assert_eq!(claims.await, Ok(()));
        let kept = kept.await.expect("it is sent");
        let (next, fence) = timeout(SOON, hold(&of_a, "bills")).await.expect("it is free again");
        assert!(fence > kept.fence());
        drop(kept);
        sleep(LEASE).await;
        assert!(!next.is_finished());
        timeout(LEASE, of_a.stop()).await.expect("nothing is left");
        assert_eq!(next.await, Err(Exit::Shutdown));
    });
}

/// Goal: the names of a node differ by their claims, even if there are several of them.
#[test]
fn claims_of_one_process_by_two_names_are_two_claims() {
    run(async {
        let model = Model::start();
        let (a, first) = names("a@127.0.0.1", model.line()).await;
        let second = ExclusiveNames::builder(&a).store(model.line()).lease_time(LEASE).start();
        let claims = spawn(async move {
            let held = first.claim("bills").await.expect("it is free");
            assert!(timeout(LEASE, second.claim("bills")).await.is_err(), "it is held");
            sleep(SOON).await;
            model.with(|rows| assert!(rows.by_name.contains_key("bills"), "{rows:?}"));
            let fence = held.fence();
            drop(held);
            assert!(second.claim("bills").await.expect("it is free again").fence() > fence);
        });
        assert_eq!(claims.await, Ok(()));
    });
}

/// Goal: a fence belongs to the lease that it was given by.
#[test]
fn a_holder_with_another_lease_is_another_holder() {
    run(async {
        let store = EmbeddedLeases::new();
        let [first, second] = [store.grant(LEASE).await, store.grant(LEASE).await]
            .map(|lease| lease.expect("it answers").id);
        let won = Claimed::Won(Fence::new(1));
        for _ in 0..2 {
            assert_eq!(store.claim("bills", "me", first).await.expect("it answers"), won);
        }
        let other = store.claim("bills", "me", second).await.expect("it answers");
        assert_eq!(other, Claimed::Taken(1));
    });
}

/// Goal: a process that has waited for long gets no fence that is less than one of its node.
/// Method: the store forgets all that it had while the process waits.
#[test]
fn a_fence_that_goes_back_is_not_given_to_a_process_that_waits() {
    run(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let (_b, of_b) = names("b@127.0.0.1", model.line()).await;
        let (holds, _) = hold(&of_b, "bills").await;
        let from_a = of_a.clone();
        let waits = spawn(async move { from_a.claim("bills").await.expect("it runs").fence() });
        sleep(SOON).await;
        let mut last = Fence::new(0);
        for _ in 0..5 {
            let (other, fence) = hold(&of_a, "letters").await;
            other.cancel();
            assert_eq!(other.await, Err(Exit::Shutdown));
            last = fence;
        }
        model.with(|rows| *rows = Default::default());
        assert_eq!(holds.await, Err(Exit::Killed));
        let fence = waits.await.expect("it gets the name");
        assert!(fence > last, "{fence} comes after {last}");
    });
}

/// Goal: fences never go back. Method: the store forgets all that it had, as after it was restored
/// from a copy.
#[test]
fn a_fence_that_goes_back_is_not_given_to_a_process() {
    run(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        for _ in 0..5 {
            let (holds, _) = hold(&of_a, "bills").await;
            holds.cancel();
            assert_eq!(holds.await, Err(Exit::Shutdown));
        }
        let (holds, last) = hold(&of_a, "bills").await;
        model.with(|rows| *rows = Default::default());
        assert_eq!(holds.await, Err(Exit::Killed));
        // Each attempt makes the revision greater, so that it succeeds in the end.
        let (_, fence) = hold(&of_a, "bills").await;
        assert!(fence > last, "{fence} comes after {last}");
    });
}

/// Goal: the door shows the holder of each name, and the losses.
#[test]
fn the_door_shows_names_and_losses() {
    let folder = std::env::temp_dir().join(format!("procession-names-{}", std::process::id()));
    let options = DoorOptions::default().directory(&folder);
    let builder = Scheduler::builder().worker_threads(2).door(options).on_exit(|_| {});
    let scheduler = builder.build().expect("the directory is new");
    let socket = scheduler.door().expect("it was asked for").socket().to_owned();
    scheduler.block_on(async {
        let model = Model::start();
        let (_a, of_a) = names("a@127.0.0.1", model.line()).await;
        let (holds, fence) = hold(&of_a, "bills").await;
        let waits = spawn(async move { of_a.claim("bills").await.map(drop) });
        let lease = r#"{"node":"a@127.0.0.1","held":1,"waiting":1,"losses":0}"#;
        until(|| ask(&socket, "/exclusive").contains(lease)).await;
        let name = format!(r#""name":"bills","pid":"{}","fence":{fence}"#, holds.pid());
        let json = ask(&socket, "/exclusive");
        assert!(json.contains(&name), "{json}");
        model.end_lease_of("bills");
        assert_eq!(holds.await, Err(Exit::Killed));
        until(|| ask(&socket, "/exclusive").contains(r#""losses":1"#)).await;
        waits.cancel();
    });
    drop(scheduler);
    // Ignored: another test may use it.
    drop(std::fs::remove_dir_all(&folder));
}

/// A node with a singleton that writes to a ledger.
struct Host {
    node: Node,
    line: Line,
    tree: Running,
}

async fn host(name: &str, model: &Model, ledger: &Ledger) -> Host {
    host_with(name, Fault::None, model, ledger).await
}

async fn host_with(name: &str, fault: Fault, model: &Model, ledger: &Ledger) -> Host {
    let line = model.line();
    line.set(fault);
    let (node, names) = names(name, line.clone()).await;
    let ledger = ledger.clone();
    let writes = Singleton::new(&names, "ledger", move |cx: Context<()>, fence| {
        let ledger = ledger.clone();
        async move {
            // It ends when it is asked to.
            let mut until = pin!(cx.cancelled());
            loop {
                ledger.write(fence.get());
                if timeout(Duration::from_millis(50), until.as_mut()).await.is_ok() {
                    return;
                }
            }
        }
    });
    let tree = Supervisor::one_for_one().intensity(0, LEASE).child(writes);
    Host { node, line, tree: tree.try_start().await.expect("it starts") }
}

/// Goal: a singleton runs on one node at a time, whatever happens to its node, and the supervisor
/// above it sees no restart.
#[test]
fn a_singleton_moves_when_its_node_goes() {
    run(async {
        let (model, ledger) = (Model::start(), Ledger::default());
        let a = host("a@127.0.0.1", &model, &ledger).await;
        ledger.next(0).await;
        let b = host("b@127.0.0.1", &model, &ledger).await;
        sleep(LEASE).await;
        assert_eq!(ledger.written().taken.len(), 1);

        // Its supervisor ends.
        a.tree.cancel();
        assert_eq!(a.tree.await, Exit::Shutdown);
        let ended = Instant::now();
        ledger.next(1).await;
        assert!(ended.elapsed() <= SOON, "{:?}", ended.elapsed());

        // Its node cannot reach the store for a while, and is the first to wait then.
        let c = host("c@127.0.0.1", &model, &ledger).await;
        b.line.set(Fault::Silent);
        let silent = Instant::now();
        ledger.next(2).await;
        assert!(silent.elapsed() <= LEASE + SOON, "{:?}", silent.elapsed());
        b.line.set(Fault::None);
        sleep(LEASE).await;
        assert_eq!(ledger.written().taken.len(), 3);

        // The node leaves the cluster.
        let ended = Instant::now();
        c.node.drain(LEASE).await;
        ledger.next(3).await;
        assert!(ended.elapsed() <= SOON, "{:?}", ended.elapsed());
        // The supervisors above have seen no failure.
        for tree in [b.tree, c.tree] {
            tree.cancel();
            assert_eq!(tree.await, Exit::Shutdown);
        }
        assert_eq!(ledger.written().refused, 0);
        drop(b.node);
    });
}

/// Goal: whatever the lines do, no write is refused as long as leases do not end early, and there
/// is a holder again once all is well. Method: faults by chance, on three nodes.
#[test]
fn faults_of_lines_never_let_two_processes_write() {
    for seed in 0..20 {
        run(async move {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (model, ledger) = (Model::start(), Ledger::default());
            let mut hosts = Vec::new();
            for name in ["a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1"] {
                hosts.push(host(name, &model, &ledger).await);
            }
            for _ in 0..60 {
                let fault = match chance.u8(..5) {
                    0 => Fault::Silent,
                    1 => Fault::Slow(Duration::from_millis(chance.u64(1..5000))),
                    2 => Fault::LosesAnswers,
                    3 => Fault::Refuses,
                    _ => Fault::None,
                };
                hosts[chance.usize(..3)].line.set(fault);
                sleep(Duration::from_millis(chance.u64(1..8000))).await;
            }
            hosts.iter().for_each(|host| host.line.set(Fault::None));
            let holders = ledger.written().taken.len();
            sleep(LEASE * 2).await;
            let written = ledger.written();
            assert!(holders > 1, "seed {seed}: nothing happened");
            let (_, _, last) = written.taken.last().expect("there is one");
            assert!(last.elapsed() < Duration::from_millis(100), "seed {seed}: nobody writes");
            assert_eq!(written.refused, 0, "seed {seed}: {written:?}");
            for host in hosts {
                host.tree.cancel();
                assert_eq!(host.tree.await, Exit::Shutdown);
            }
        });
    }
}

/// The ledger sees what a defect in the store, or in what a node believes of it, leads to.
#[test]
fn planted_defects_are_seen() {
    for defect in [Fault::RenewsNothing, Fault::GrantsTooMuch, Fault::GivesTwice] {
        run(async move {
            let (model, ledger) = (Model::start(), Ledger::default());
            let _a = host_with("a@127.0.0.1", defect, &model, &ledger).await;
            ledger.next(0).await;
            let _b = host_with("b@127.0.0.1", defect, &model, &ledger).await;
            sleep(LEASE * 2).await;
            assert!(ledger.written().refused > 0, "{defect:?}");
        });
    }
}
