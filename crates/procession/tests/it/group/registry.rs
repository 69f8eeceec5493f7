//! Registries. The semantics are those of Elixir's `registry_test.exs`.

use std::sync::Arc;

use procession::coroutine::Wait;
use procession::process::{Registry, RegistryEvent};
use procession::sync::RecvError;
use procession::{Context, Exit, Pid, Reply, SpawnOptions};
use procession_sync::Mutex;

use super::idle;
use crate::scene::{TIMEOUT, assert_conserved, driven, panic_quietly, threaded};

fn names(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

fn entries<V: Copy + Send + Sync + 'static>(registry: &Registry<V>, key: &str) -> Vec<(Pid, V)> {
    registry.lookup(key).iter().map(|(pid, value)| (*pid, **value)).collect()
}

#[test]
fn a_unique_key_has_one_owner() {
    driven().block_on(async {
        let registry = Registry::unique();
        let ((own, handle), (other, _other)) = (idle(), idle());
        registry.register("hello", own, 1).expect("it is free");
        registry.register("world", own, 2).expect("it is free");
        for pid in [own, other] {
            let refused = registry.register("hello", pid, 3).expect_err("it is taken");
            assert_eq!((refused.key(), refused.owner()), ("hello", Some(own)));
            let text = format!("cannot register {pid}: the key `hello` is taken by {own}");
            assert_eq!((refused.to_string(), *refused.into_inner()), (text, 3));
        }
        assert_eq!(names(&registry.keys(own)), ["hello", "world"]);
        assert_eq!((entries(&registry, "hello"), registry.len()), (vec![(own, 1)], 2));
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        assert!(registry.is_empty() && registry.lookup("hello").is_empty());
        registry.register("hello", other, 4).expect("it is free again");
        let refused = registry.register("new", own, 5).expect_err("it has ended");
        let text = format!("cannot register {own} under `new`: there is no such process");
        assert_eq!((refused.owner(), refused.to_string()), (None, text));
    });
}

#[test]
fn a_duplicate_key_has_many_entries_also_of_one_process() {
    driven().block_on(async {
        let registry = Registry::duplicate();
        let ((own, _own), (other, handle)) = (idle(), idle());
        for (key, pid, value) in
            [("hello", own, 1), ("hello", other, 2), ("hello", own, 3), ("world", other, 4)]
        {
            registry.register(key, pid, value).expect("it is alive");
        }
        assert_eq!(entries(&registry, "hello"), [(own, 1), (other, 2), (own, 3)]);
        assert_eq!(names(&registry.keys(own)), ["hello", "hello"]);
        assert_eq!(registry.values("hello", own), [1.into(), 3.into()]);
        let before = registry.lookup("hello");
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        assert_eq!(entries(&registry, "hello"), [(own, 1), (own, 3)]);
        assert_eq!(before.len(), 3, "a list that was looked up stays as it is");
        assert_eq!(registry.unregister_if("hello", own, |value| *value > 1), 1);
        assert_eq!(entries(&registry, "hello"), [(own, 1)]);
        assert_eq!((registry.unregister("hello", own), registry.unregister("hello", own)), (1, 0));
        assert!(registry.is_empty());
    });
}

#[test]
fn a_dispatch_is_for_keys_with_entries_and_may_use_the_registry() {
    driven().block_on(async {
        let registry = Registry::duplicate();
        assert!(!registry.dispatch("hello", |_| unreachable!("there are no entries")));
        let (own, _own) = idle();
        registry.register("hello", own, 1).expect("it is alive");
        registry.register("hello", own, 2).expect("it is alive");
        let dispatched = registry.dispatch("hello", |entries| {
            let values: Vec<_> = entries.iter().map(|(_, value)| **value).collect();
            assert_eq!((values, registry.unregister("hello", own)), (vec![1, 2], 2));
        });
        assert!(dispatched && registry.is_empty());
    });
}

#[test]
fn a_value_is_updated_where_its_process_has_the_key() {
    driven().block_on(async {
        let registry = Registry::unique();
        let ((own, _own), (other, _other)) = (idle(), idle());
        assert_eq!(registry.update_value("hello", own, |_| unreachable!("no entry")), None);
        registry.register("hello", other, 1).expect("it is free");
        assert_eq!(registry.update_value("hello", own, |_| unreachable!("no entry")), None);
        let looked_up = registry.lookup("hello");
        let updated = registry.update_value("hello", other, |value| value + 1);
        assert_eq!(updated, Some((2.into(), 1.into())));
        assert_eq!((entries(&registry, "hello"), *looked_up[0].1), (vec![(other, 2)], 1));
        let mut runs = 0;
        let updated = registry.update_value("hello", other, |value| {
            runs += 1;
            if runs == 1 {
                registry.update_value("hello", other, |value| value * 10);
            }
            value + 1
        });
        assert_eq!((updated, runs), (Some((21.into(), 20.into())), 2));
    });
}

#[test]
fn a_listener_receives_registrations_and_removals() {
    driven().block_on(async {
        let registry = Registry::duplicate();
        let (own, handle) = idle();
        registry.register("before", own, 0).expect("it is alive");
        let mut listener = registry.listen();
        registry.register("hello", own, 1).expect("it is alive");
        let hello: Arc<str> = "hello".into();
        let register =
            RegistryEvent::Register { key: Arc::clone(&hello), pid: own, value: 1.into() };
        assert_eq!(listener.recv().await, register);
        registry.unregister("hello", own);
        let unregister = RegistryEvent::Unregister { key: hello, pid: own, value: 1.into() };
        assert_eq!(listener.recv().await, unregister);
        assert_eq!(listener.try_recv(), Err(RecvError::Empty));
        handle.cancel();
        let gone = RegistryEvent::Unregister { key: "before".into(), pid: own, value: 0.into() };
        assert_eq!(listener.recv().await, gone);
    });
}

/// Looks at its registry, and counts, when it is dropped.
struct Looks(Registry<Looks>, Arc<Mutex<u32>>);

impl Drop for Looks {
    fn drop(&mut self) {
        let _ = self.0.len();
        *self.1.lock() += 1;
    }
}

#[test]
fn values_are_dropped_outside_of_the_lock() {
    driven().block_on(async {
        let registry = Registry::duplicate();
        let drops = Arc::new(Mutex::new(0));
        let (own, handle) = idle();
        let value = || Looks(registry.clone(), Arc::clone(&drops));
        (0..3).for_each(|_| registry.register("hello", own, value()).expect("it is alive"));
        let looked_up = registry.lookup("hello");
        drop(looked_up);
        registry.update_value("hello", own, |_| value());
        assert_eq!(*drops.lock(), 1);
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        assert_eq!(*drops.lock(), 4);
    });
}

/// A value that drops a registry, or panics, when it is dropped.
struct Keeps(Option<Registry<Keeps>>);

impl Drop for Keeps {
    fn drop(&mut self) {
        match self.0.take() {
            Some(registry) => drop(registry),
            None => panic_quietly("a value"),
        }
    }
}

/// The end of the process drops the registry, and so the values of other processes.
#[test]
fn the_end_of_a_process_that_drops_a_registry_survives_its_values() {
    let scheduler = driven();
    for bombs in [1, 2] {
        let registry = Registry::duplicate();
        let wait = || scheduler.spawn(std::future::pending::<()>());
        let (last, other) = (wait(), wait());
        for _ in 0..bombs {
            registry.register("other", other.pid(), Keeps(None)).expect("it is alive");
        }
        // The list has the last references to the values, if nothing drops it first.
        assert_eq!(registry.lookup("other").len(), bombs);
        let holder = Keeps(Some(registry.clone()));
        registry.register("last", last.pid(), holder).expect("it is alive");
        drop(registry);
        for process in [last, other] {
            process.cancel();
            let joined = process.join_timeout(TIMEOUT).expect("its handle resolves");
            assert_eq!(joined, Err(Exit::Shutdown));
        }
        assert_conserved(&scheduler);
    }
}

/// Any number of tables cost a process as much as one: what grows is the time of its end.
#[test]
fn the_end_of_a_process_reaches_all_tables_that_are_left() {
    let scheduler = driven();
    let process = scheduler.spawn(std::future::pending::<()>());
    let pid = process.pid();
    let mut kept = Vec::new();
    for round in 0..1000 {
        let registry = Registry::duplicate();
        registry.register("left", pid, ()).expect("it is alive");
        assert_eq!(registry.unregister("left", pid), 1);
        for key in ["a", "b"] {
            registry.register(key, pid, ()).expect("it is alive");
        }
        // Most are gone before the process is.
        if round % 7 == 0 {
            kept.push(registry);
        }
    }
    process.cancel();
    assert_eq!(process.join(), Err(Exit::Shutdown));
    assert!(kept.iter().all(Registry::is_empty));
}

#[test]
fn updates_of_threads_are_all_made() {
    let scheduler = threaded(2);
    let registry = Registry::unique();
    let owner = scheduler.spawn(std::future::pending::<()>());
    let pid = owner.pid();
    registry.register("count", pid, 0).expect("it is free");
    let adders: Vec<_> = (0..4)
        .map(|_| {
            let registry = registry.clone();
            scheduler.spawn(async move {
                for _ in 0..500 {
                    registry.update_value("count", pid, |count| count + 1).expect("it is alive");
                    procession::checkpoint().await;
                }
            })
        })
        .collect();
    for adder in adders {
        let added = procession::timeout(TIMEOUT, adder).wait();
        assert_eq!(added, Ok(Ok(())));
    }
    assert_eq!(entries(&registry, "count"), [(pid, 2000)]);
}

#[test]
fn a_unique_key_passes_from_owner_to_owner() {
    let scheduler = threaded(2);
    let registry = Registry::unique();
    for round in 0..500 {
        let owners: Vec<_> = (0..3)
            .map(|_| {
                let registry = registry.clone();
                scheduler.start(move |cx: procession::Context<()>| async move {
                    registry.register("key", cx.pid(), round).is_ok()
                })
            })
            .collect();
        let results = owners.into_iter().map(|owner| owner.join().expect("it returns"));
        assert!(results.filter(|is_owner| *is_owner).count() >= 1, "the key was free");
        assert!(registry.is_empty());
    }
}

/// What happens after the drop of a listener is kept for nobody.
#[test]
fn a_dropped_listener_keeps_nothing() {
    driven().block_on(async {
        let registry = Registry::duplicate();
        let (own, _handle) = idle();
        let [read, unread] = [registry.listen(), registry.listen()];
        let before = Arc::new(());
        registry.register("hello", own, Arc::clone(&before)).expect("it is alive");
        registry.unregister("hello", own);
        assert!(Arc::strong_count(&before) > 1, "the events wait for their receivers");
        drop((read, unread));
        assert_eq!(Arc::strong_count(&before), 1, "nobody receives them");
        let after = Arc::new(());
        registry.register("hello", own, Arc::clone(&after)).expect("it is alive");
        registry.unregister("hello", own);
        assert_eq!(Arc::strong_count(&after), 1, "nobody listens");
    });
}

#[test]
fn a_key_is_called_and_sent_to_like_a_name() {
    let scheduler = driven();
    scheduler.block_on(async {
        let keys = Registry::duplicate();
        let echo = || {
            let options = SpawnOptions::new().enter(keys.entry("echo", ()));
            options.start(|mut cx: Context<(u32, Reply<u32>)>| async move {
                let (number, reply) = cx.recv().await.expect("the test sends");
                reply.send(number);
                cx.recv().await.map(|(number, _)| number)
            })
        };
        let (first, second) = (echo(), echo());
        let asked = keys.call("echo", |reply: Reply<u32>| (1_u32, reply), TIMEOUT).await;
        assert_eq!(asked.ok(), Some(1));
        // The process ends before it replies to the second message.
        let unanswered = keys.call("echo", |reply: Reply<u32>| (2_u32, reply), TIMEOUT).await;
        assert!(unanswered.is_err_and(|error| error.is_no_reply()));
        assert_eq!(first.await, Ok(Some(2)), "the oldest entry received both");
        let asked = keys.call("echo", |reply: Reply<u32>| (3_u32, reply), TIMEOUT).await;
        assert_eq!(asked.ok(), Some(3));
        second.cancel();
        assert_eq!(second.await, Ok(None));

        let unknown = keys.send("echo", 4).expect_err("nobody has it");
        let text = "cannot send: no process is registered as `echo`";
        assert_eq!((unknown.to_string().as_str(), unknown.into_inner()), (text, 4));
        let unknown = keys.call("echo", |reply: Reply<u32>| (5, reply), TIMEOUT).await;
        let unknown = unknown.expect_err("nobody has it");
        assert!(unknown.to_string().contains(text), "{unknown}");
        assert!(unknown.into_inner().is_some_and(|(number, _)| number == 5));
        let other = SpawnOptions::new().enter(keys.entry("text", ()));
        let other = other.start(|mut cx: Context<String>| async move { cx.recv().await });
        let wrong = keys.send("text", 6).expect_err("it is of another type").to_string();
        assert!(wrong.contains("`text`") && wrong.contains("String"), "{wrong}");
        let wrong = keys.call("text", |reply: Reply<u32>| (6, reply), TIMEOUT).await;
        assert!(wrong.expect_err("it is of another type").to_string().contains("`text`"));
        other.cancel();
        assert_eq!(other.await, Ok(None));
    });
    assert_conserved(&scheduler);
}
