//! Names and entries of children: there as soon as a start returns, and again after each restart.

use std::sync::Arc;
use std::time::Duration;

use procession::behaviour::{
    Server, ServerContext, Statem, StatemContext, StatemEvent, Transition,
};
use procession::mailbox::send;
use procession::process::{Groups, Registry};
use procession::supervisor::{ChildSpec, OnceSpec, Restart, Supervisor, Template};
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, sleep};

use super::{SECOND, start};
use crate::contracts::HOUR;
use crate::scene::{assert_conserved, driven, panic_quietly};

/// Where the children of a test are found.
#[derive(Clone)]
struct Places {
    keys: Registry<&'static str>,
    topics: Registry<u32>,
    rooms: Groups,
}

impl Places {
    fn new() -> Self {
        Self { keys: Registry::unique(), topics: Registry::duplicate(), rooms: Groups::new() }
    }

    /// Returns the process with the key and the name, which is also a member and has both topics.
    fn find(&self, scheduler: &Scheduler, key: &str) -> Option<Pid> {
        let [(pid, value)] = &*self.keys.lookup(key) else { return None };
        assert_eq!((**value, scheduler.whereis(key)), ("value", Some(*pid)));
        assert_eq!((self.rooms.members(key), self.topics.values(key, *pid).len()), (vec![*pid], 2));
        Some(*pid)
    }

    fn are_empty(&self) -> bool {
        self.keys.is_empty() && self.topics.is_empty() && self.rooms.groups().is_empty()
    }
}

/// Adds the name and all entries to a template of children with texts as arguments.
fn placed<M: Send + 'static>(
    template: Template<String, M>,
    places: &Places,
) -> Template<String, M> {
    let [one, two, three, four] = [(); 4].map(|()| places.clone());
    template
        .name(|key: &String| key.clone())
        .enter(move |key: &String| one.keys.entry(key.as_str(), "value"))
        .enter(move |key: &String| two.topics.entry(key.as_str(), 1))
        .enter(move |key: &String| three.topics.entry(key.as_str(), 2))
        .enter(move |key: &String| four.rooms.entry(key.as_str()))
}

async fn fails(mut cx: Context<()>, _: String) {
    if cx.recv().await.is_some() {
        panic_quietly("told to");
    }
}

struct Idle;

impl Server for Idle {
    type Message = ();

    async fn handle(&mut self, (): (), _: &mut ServerContext<Self>) {}
}

impl Statem for Idle {
    type State = ();
    type Message = ();

    async fn handle(&mut self, _: StatemEvent<()>, _: &mut StatemContext<Self>) -> Transition<()> {
        Transition::Keep
    }
}

/// A child that has not made its first step is found, whatever its kind.
#[test]
fn a_child_of_a_template_is_found_as_soon_as_it_has_started() {
    let kinds = [
        Template::new(fails),
        Template::server(|_: String| Idle),
        Template::statem(|_: String| (Idle, ())),
    ];
    for kind in kinds {
        let (scheduler, places) = (driven(), Places::new());
        let tree = start(&scheduler, Supervisor::dynamic());
        let template = placed(kind, &places);
        let children = scheduler.block_on(async {
            let mut children = Vec::new();
            for key in ["a", "b"] {
                let child = tree.add_another(&template, key.to_owned()).await.expect("it starts");
                assert_eq!(places.find(&scheduler, key), Some(child.pid()));
                children.push(child.pid());
            }
            children
        });
        procession::process::kill(children[0]);
        scheduler.run_until_idle();
        assert_eq!(places.find(&scheduler, "a"), None);
        assert_eq!(places.find(&scheduler, "b"), Some(children[1]));
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
        assert!(places.are_empty());
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_child_whose_name_or_key_is_taken_is_refused_and_leaves_nothing() {
    let (scheduler, places) = (driven(), Places::new());
    let tree = start(&scheduler, Supervisor::dynamic());
    let owner = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let template = placed(Template::new(fails), &places);
    scheduler.register("name", owner.pid()).expect("it is free");
    places.keys.register("key", owner.pid(), "other").expect("it is free");
    scheduler.block_on(async {
        for taken in ["name", "key"] {
            let refused = tree.add_another(&template, taken.to_owned()).await;
            let (argument, cause) = refused.expect_err("it is taken").into_parts();
            assert_eq!((argument.as_deref(), cause.owner()), (Some(taken), Some(owner.pid())));
            let text = format!(
                "the child did not start: cannot start a process: `{taken}` is taken by {}",
                owner.pid()
            );
            assert_eq!(cause.to_string(), text);
        }
        assert_eq!(tree.count().await.map(|counts| counts.children), Ok(0));
    });
    assert_eq!(scheduler.whereis("key"), None, "the refused child had the name before the key");
    assert!(places.topics.is_empty() && places.rooms.groups().is_empty());
    assert_eq!(places.keys.len(), 1);
    drop(owner);
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

#[test]
fn a_restarted_child_has_its_name_and_its_entries_again() {
    let (scheduler, places) = (driven(), Places::new());
    let tree = start(&scheduler, Supervisor::dynamic().intensity(10, HOUR));
    let template = placed(Template::new(fails).restart(Restart::Permanent), &places);
    let spec = ChildSpec::new("spec", |cx: Context<()>| fails(cx, String::new()))
        .name("spec")
        .enter(places.keys.entry("spec", "value"))
        .enter(places.topics.entry("spec", 1))
        .enter(places.topics.entry("spec", 2))
        .enter(places.rooms.entry("spec"));
    scheduler.block_on(async {
        tree.add_child(spec).await.expect("it starts");
        tree.add_another(&template, "another".to_owned()).await.expect("it starts");
        for key in ["spec", "another"] {
            let value = Arc::clone(&places.keys.lookup(key)[0].1);
            for _ in 0..3 {
                let old = places.find(&scheduler, key).expect("it runs");
                send(old, ()).expect("it waits");
                sleep(SECOND).await;
                let new = places.find(&scheduler, key).expect("it runs again");
                assert_ne!(old, new);
                assert!(Arc::ptr_eq(&value, &places.keys.lookup(key)[0].1));
            }
        }
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert!(places.are_empty());
}

#[test]
fn a_restart_waits_until_its_key_is_free() {
    let (scheduler, places) = (driven(), Places::new());
    let supervisor = Supervisor::dynamic().intensity(1_000, HOUR);
    let tree = start(&scheduler, supervisor.back_off(SECOND, SECOND));
    let once = OnceSpec::new(|mut cx: Context<()>| async move { cx.recv().await });
    let child = ChildSpec::new("child", |cx: Context<()>| fails(cx, String::new()));
    let child = child.enter(places.keys.entry("key", "value"));
    scheduler.block_on(async {
        let first = tree.add_child(child).await.expect("it starts");
        first.send(()).expect("it waits");
        // The child waits for its restart, so that another one gets its key.
        sleep(Duration::from_millis(100)).await;
        let second = tree.add_once(once.enter(places.keys.entry("key", "other"))).await;
        let second = second.expect("the key is free");
        sleep(10 * SECOND).await;
        assert_eq!(places.keys.lookup("key")[0].0, second.pid());
        assert_eq!(tree.count().await.map(|counts| counts.running), Ok(1));
        second.send(()).expect("it waits");
        sleep(2 * SECOND).await;
        assert_eq!(*places.keys.lookup("key")[0].1, "value");
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert!(places.are_empty());
}

/// A process that hears of an entry can send to the entry's process, although the new process has
/// not begun.
#[test]
fn a_listener_reaches_a_process_that_has_not_begun() {
    let scheduler = driven();
    let rooms = Groups::new();
    scheduler.block_on(async {
        let (_, mut monitor) = rooms.monitor("room");
        let options = SpawnOptions::new().enter(rooms.entry("room"));
        let child = options.start(|mut cx: Context<u32>| async move { cx.recv().await });
        assert!(monitor.try_recv().is_ok());
        assert_eq!(rooms.broadcast("room", 7_u32).ok(), Some(1));
        assert_eq!(child.await, Ok(Some(7)));
    });
    assert_conserved(&scheduler);
}

/// Goal: between the end of a child and its restart, another process may take the key. That ends
/// neither the supervisor nor its other children.
#[test]
fn a_transient_child_whose_key_was_taken_before_its_restart_is_stopped() {
    let (scheduler, places) = (driven(), Places::new());
    let back_off = Supervisor::dynamic().back_off(SECOND, SECOND);
    let tree = start(&scheduler, back_off);
    let keys = places.keys.clone();
    let template = Template::new(fails).enter(move |key: &String| keys.entry(key.as_str(), "own"));
    let template = template.restart(Restart::Transient);
    let owner = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    scheduler.block_on(async {
        let child = tree.add_another(&template, "key".to_owned()).await.expect("it is free");
        let other = tree.add_another(&template, "other".to_owned()).await.expect("it is free");
        child.send(()).expect("it is alive");
        // Less than the least wait before a restart.
        sleep(SECOND / 10).await;
        places.keys.register("key", owner.pid(), "taken").expect("its owner has ended");
        sleep(HOUR).await;
        assert_eq!(tree.count().await.map(|counts| counts.children), Ok(1));
        assert_eq!(places.keys.lookup("other")[0].0, other.pid());
        assert_eq!(places.keys.lookup("key")[0].0, owner.pid());
    });
    drop(owner);
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}
