//! Groups of several nodes.

use std::sync::Arc;

use procession::process::{GroupEvent, GroupMonitor, Groups};
use procession::{Child, Context, Pid, start, timeout};
use procession_cluster::{
    Letter, Member, Node, NodePid, RegisterError, Remote, SharedGroups, Term,
};

use crate::{PATIENCE, attach, connect, listens, next, pair, run, until};

/// A node with groups that it shares.
struct Sharing {
    node: Node,
    groups: Groups,
    scope: SharedGroups,
}

fn share(node: Node) -> Sharing {
    let groups = Groups::new();
    let scope = node.share_groups("pg", &groups).expect("the name is free");
    Sharing { node, groups, scope }
}

impl Sharing {
    async fn start(name: &str) -> Self {
        share(listens(name).start().await.expect("it starts"))
    }

    /// Starts a process, and adds it to a group.
    fn member(&self, group: &str) -> (Child<Term, Vec<Term>>, NodePid) {
        let process = start(|mut cx: Context<Term>| async move {
            let mut come = Vec::new();
            while let Some(term) = cx.recv().await.filter(|term| !term.is_atom("stop")) {
                come.push(term);
            }
            come
        });
        let member = self.node.attach(&process.address().map(|letter| match letter {
            Letter::Message { term, .. } => term,
            other => panic!("{other:?} came"),
        }));
        self.groups.join(group, process.pid()).expect("it runs");
        (process, member.pid())
    }

    /// Returns the members of a group by the names that all nodes know, in their order.
    fn members(&self, group: &str) -> Vec<NodePid> {
        let members = self.groups.members(group).into_iter();
        let mut members: Vec<_> = members.filter_map(|pid| self.node.node_pid(pid)).collect();
        members.sort();
        members
    }

    async fn has(&self, group: &str, members: &[&NodePid]) {
        let mut members: Vec<_> = members.iter().map(|pid| (*pid).clone()).collect();
        members.sort();
        until(|| self.members(group) == members).await;
    }
}

async fn change(monitor: &mut GroupMonitor) -> (bool, Pid) {
    match timeout(PATIENCE, monitor.recv()).await.expect("it comes in time") {
        GroupEvent::Join { pid, .. } => (true, pid),
        GroupEvent::Leave { pid, .. } => (false, pid),
        other => panic!("{other:?} came"),
    }
}

#[test]
fn nodes_know_the_members_of_all_connected_nodes() {
    run(async {
        let [a, b] = [Sharing::start("a@127.0.0.1").await, Sharing::start("b@127.0.0.1").await];
        let (first, first_pid) = a.member("lobby");
        let (_, mut monitor) = b.groups.monitor("lobby");
        connect(&a.node, &b.node).await;
        b.has("lobby", &[&first_pid]).await;
        let far = b.node.pid(&first_pid);
        assert_eq!(change(&mut monitor).await, (true, far));
        assert!(b.groups.local_members("lobby").is_empty());
        // After the nodes know one another.
        let (second, second_pid) = b.member("lobby");
        assert!(change(&mut monitor).await.0);
        a.has("lobby", &[&first_pid, &second_pid]).await;
        // A process that joins twice leaves once.
        a.groups.join("lobby", first.pid()).expect("it runs");
        b.has("lobby", &[&first_pid, &first_pid, &second_pid]).await;
        assert!(a.groups.leave("lobby", first.pid()));
        b.has("lobby", &[&first_pid, &second_pid]).await;
        assert_eq!(
            (change(&mut monitor).await, change(&mut monitor).await),
            ((true, far), (false, far))
        );
        // A group that is another term for nodes of the BEAM.
        a.groups.join("{room,7}", first.pid()).expect("it runs");
        b.has("{room,7}", &[&first_pid]).await;

        assert_eq!(b.groups.broadcast("lobby", Term::from(7)).expect("it has members"), 2);
        b.node.send(first_pid, Term::atom("stop")).expect("it is connected");
        assert_eq!(first.await, Ok(vec![Term::from(7)]));
        b.has("lobby", &[&second_pid]).await;
        assert_eq!(change(&mut monitor).await, (false, far));
        b.has("{room,7}", &[]).await;
        second.send(Term::atom("stop")).expect("it waits");
        assert_eq!(second.await, Ok(vec![Term::from(7)]));
    });
}

#[test]
fn a_node_takes_its_members_along_and_brings_them_back() {
    run(async {
        let [a, b] = [Sharing::start("a@127.0.0.1").await, Sharing::start("b@127.0.0.1").await];
        let ((one, one_pid), (other, other_pid)) = (a.member("lobby"), b.member("lobby"));
        for _ in 0..3 {
            connect(&a.node, &b.node).await;
            a.has("lobby", &[&one_pid, &other_pid]).await;
            b.has("lobby", &[&one_pid, &other_pid]).await;
            a.node.disconnect("b@127.0.0.1");
            a.has("lobby", &[&one_pid]).await;
            b.has("lobby", &[&other_pid]).await;
        }
        // A scope that is stopped leaves, and another one may follow.
        connect(&a.node, &b.node).await;
        b.has("lobby", &[&one_pid, &other_pid]).await;
        a.scope.stop();
        b.has("lobby", &[&other_pid]).await;
        a.has("lobby", &[&one_pid]).await;
        let scope = loop {
            match a.node.share_groups("pg", &a.groups) {
                Ok(scope) => break scope,
                Err(RegisterError::Taken(_)) => procession::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        b.has("lobby", &[&one_pid, &other_pid]).await;
        assert!(a.node.share_groups("pg", &a.groups).is_err(), "the name is taken");
        drop(scope);
        a.node.stop().await;
        assert!(a.node.share_groups("other", &a.groups).is_err(), "it has stopped");
        b.has("lobby", &[&other_pid]).await;
        a.has("lobby", &[&one_pid]).await;
        one.cancel();
        other.cancel();
    });
}

/// Goal: a scope that finds no room for its messages brings the other node up to date later.
#[test]
fn changes_without_room_are_made_up_for() {
    run(async {
        let [a, b] = [Sharing::start("a@127.0.0.1").await, Sharing::start("b@127.0.0.1").await];
        connect(&a.node, &b.node).await;
        let (last, last_pid) = a.member("last");
        b.has("last", &[&last_pid]).await;
        let nobody = Remote::named("nobody", "b@127.0.0.1");
        let part = Term::from(vec![0; 60_000]);
        for n in 0..50 {
            // The sender is the scope, so its own messages find no room.
            for _ in 0..1000 {
                if a.scope.member().send(nobody.clone(), part.clone()).is_err() {
                    break;
                }
            }
            a.groups.join(format!("group {n}"), last.pid()).expect("it runs");
            procession::yield_now().await;
            a.groups.leave(&format!("group {}", n - 1), last.pid());
        }
        b.has("group 49", &[&last_pid]).await;
        until(|| b.groups.groups() == [Arc::<str>::from("group 49"), "last".into()]).await;
        last.cancel();
        b.has("last", &[]).await;
    });
}

/// Goal: a scope that lacks room brings the other node up to date although changes go on.
#[test]
fn a_node_catches_up_while_groups_change() {
    run(async {
        let [a, b] = [Sharing::start("a@127.0.0.1").await, Sharing::start("b@127.0.0.1").await];
        connect(&a.node, &b.node).await;
        let (member, pid) = a.member("first");
        b.has("first", &[&pid]).await;
        let nobody = Remote::named("nobody", "b@127.0.0.1");
        let part = Term::from(vec![0; 60_000]);
        let changes = || {
            a.groups.join("changes", member.pid()).expect("it runs");
            assert!(a.groups.leave("changes", member.pid()));
        };
        let mut own = 0;
        until(|| {
            // The sender is the scope, so its own messages find no room, which counts as well.
            let send = || a.scope.member().send(nobody.clone(), part.clone());
            own += u64::from((0..1000).any(|_| send().is_err()));
            changes();
            a.node.peers()[0].refused > own
        })
        .await;
        a.groups.join("second", member.pid()).expect("it runs");
        until(|| {
            changes();
            b.members("second") == [pid.clone()]
        })
        .await;
    });
}

/// Returns two nodes, and a process of the first one that is in groups so often that the second one
/// cannot be told of them in one message.
async fn crowded() -> (Sharing, Sharing, (Child<Term, Vec<Term>>, NodePid)) {
    const LEAST: usize = 1 << 20;
    let start = async |name| {
        let node = listens(name).message_limit(LEAST).start().await;
        share(node.expect("it starts"))
    };
    let [a, b] = [start("a@127.0.0.1").await, start("b@127.0.0.1").await];
    let member = a.member("crowd");
    for n in 0..8000 {
        a.groups.join(format!("group {n}"), member.0.pid()).expect("it runs");
        a.groups.join("crowd", member.0.pid()).expect("it runs");
    }
    connect(&a.node, &b.node).await;
    let crowd = || b.groups.members("crowd").len();
    until(|| b.groups.groups().len() == 8001 && crowd() == 8001).await;
    (a, b, member)
}

/// Goal: all members arrive although they take more memory than a message may.
#[test]
fn more_members_than_a_message_holds_arrive() {
    run(async {
        let (a, b, (_member, pid)) = crowded().await;
        // A change behind them.
        let (_other, other_pid) = a.member("last");
        b.has("last", &[&other_pid]).await;
        assert_eq!(b.members("group 7999"), [pid]);
        assert!(b.node.status().ends.is_empty());
    });
}

/// Goal: a further `sync` takes no member away that is still there, although not all have room.
#[test]
fn members_stay_while_they_are_told_again() {
    run(async {
        let (a, b, _member) = crowded().await;
        // A node learns of the kind of another one by the first answer.
        until(|| a.node.peers()[0].unconfirmed.is_some()).await;
        let (_, mut changes) = b.groups.monitor_all();
        let before = b.node.peers()[0].received;
        let discover = Term::tuple([Term::atom("discover"), b.scope.member().pid().into()]);
        b.scope.member().send(Remote::named("pg", "a@127.0.0.1"), discover).expect("it has room");
        // So many joins follow the `sync`.
        until(|| b.node.peers()[0].received > before + 30).await;
        // A change behind them.
        let (_last, last) = a.member("last");
        b.has("last", &[&last]).await;
        assert_eq!(change(&mut changes).await, (true, b.node.pid(&last)));
        assert!(changes.try_recv().is_err(), "something else has changed");
    });
}

/// Goal: what a `sync` and the joins behind it do not name is taken away after them.
#[test]
fn members_that_are_not_told_again_leave() {
    run(async {
        let (a, b) = pair().await;
        let b = share(b);
        let (_, mut changes) = b.groups.monitor_all();
        let speaks = start(move |cx: Context<Letter>| async move {
            let own = attach(&a, &cx);
            let to = Remote::named("pg", "b@127.0.0.1");
            let send = |term: Term| own.send(to.clone(), term).expect("it is connected");
            let says = |word: &str, parts: &[Term]| {
                let head = [Term::atom(word), own.pid().into()];
                Term::tuple(head.iter().chain(parts).cloned())
            };
            let join = |group: &str| {
                send(says("join", &[Term::atom(group), own.pid().into()]));
            };
            send(says("discover", &[]));
            ["first", "second", "third", "twice", "twice"].into_iter().for_each(join);
            let once = |group| Term::tuple([Term::atom(group), Term::list([own.pid().into()])]);
            let groups = Term::list([once("first"), once("twice")]);
            let sync = says("sync", &[groups, Term::atom("partial")]);
            send(Term::tuple([Term::atom("$gen_cast"), sync]));
            ["third", "fourth"].into_iter().for_each(join);
            send(says("synced", &[]));
            ["third", "twice", "last"].into_iter().for_each(join);
            procession::process::cancelled().await;
        });
        for expected in [
            (true, "first"),
            (true, "second"),
            (true, "third"),
            (true, "twice"),
            (true, "twice"),
            (true, "fourth"),
            (false, "second"),
            (false, "twice"),
            (true, "third"),
            (true, "twice"),
            (true, "last"),
        ] {
            let came = match timeout(PATIENCE, changes.recv()).await.expect("it comes in time") {
                GroupEvent::Join { group, .. } => (true, group),
                GroupEvent::Leave { group, .. } => (false, group),
                other => panic!("{other:?} came"),
            };
            assert_eq!((came.0, &*came.1), expected);
        }
        speaks.cancel();
    });
}

/// Goal: a node that stops and starts its scope has one, and cannot take memory by naming more.
#[test]
fn a_node_has_one_scope() {
    run(async {
        let (a, b) = pair().await;
        let b = share(b);
        let speaks = start(move |cx: Context<Letter>| async move {
            let first = attach(&a, &cx);
            let process = start(|mut cx: Context<Letter>| async move {
                let mut questions = 0;
                while questions < 2 {
                    // The rest is the members of the other node.
                    if let Letter::Message { .. } = next(&mut cx).await {
                        questions += 1;
                    }
                }
            });
            let second = a.attach(&process.address().map(|letter| letter));
            let to = Remote::named("pg", "b@127.0.0.1");
            let says = |own: &Member, word: &str, parts: &[Term]| {
                let head = [Term::atom(word), own.pid().into()];
                let term = Term::tuple(head.iter().chain(parts).cloned());
                own.send(to.clone(), term).expect("it is connected");
            };
            let join = |own: &Member| {
                says(own, "join", &[Term::atom("lobby"), own.pid().into()]);
            };
            says(&first, "discover", &[]);
            join(&first);
            b.has("lobby", &[&first.pid()]).await;
            says(&second, "discover", &[]);
            join(&second);
            b.has("lobby", &[&second.pid()]).await;
            // A late message of the first one. The other one is not known then.
            says(&first, "discover", &[]);
            join(&first);
            b.has("lobby", &[&first.pid()]).await;
            join(&second);
            a.register("pg", &second).expect("the name is free");
            (b, process)
        });
        let (b, second) = speaks.await.expect("it ends");
        // The end of the first one, which has taken the place of the second, leads to a question.
        b.has("lobby", &[]).await;
        assert_eq!(second.await, Ok(()));
    });
}

/// Goal: a node speaks for its own processes, and only through a scope.
#[test]
fn a_node_cannot_speak_for_others() {
    run(async {
        let (c, a) = pair().await;
        let a = share(a);
        let b = Sharing::start("c@127.0.0.1").await;
        connect(&b.node, &a.node).await;
        let (third, third_pid) = b.member("lobby");
        a.has("lobby", &[&third_pid]).await;
        let third_scope = b.scope.member().pid();
        let speaks = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&c, &cx);
            let (to, lobby) = (Remote::named("pg", "b@127.0.0.1"), Term::atom("lobby"));
            let send = |word: &str, parts: &[Term]| {
                let parts = parts.iter().cloned();
                let term = Term::tuple([Term::atom(word)].into_iter().chain(parts));
                own.send(to.clone(), term).expect("it is connected");
            };
            let pid = Term::from(own.pid());
            send("join", &[pid.clone(), lobby.clone(), pid.clone()]);
            send("discover", std::slice::from_ref(&pid));
            assert!(matches!(next(&mut cx).await, Letter::Cast(_)), "it is a sync");
            let Letter::Message { term, .. } = next(&mut cx).await else { panic!("it asks") };
            let [_, scope] = term.as_tuple().expect("it is a question") else { panic!("{term}") };
            assert_eq!(scope.as_pid().map(|pid| pid.node.as_str()), Some("b@127.0.0.1"));
            let third = Term::from(third_pid);
            send("join", &[pid.clone(), lobby.clone(), third.clone()]);
            let sync =
                Term::tuple([Term::atom("sync"), third_scope.into(), Term::List(Vec::new())]);
            let cast = Term::tuple([Term::atom("$gen_cast"), sync]);
            own.send(to.clone(), cast).expect("it is connected");
            send("leave", &[pid.clone(), third, Term::list([lobby.clone()])]);
            send("join", &[pid.clone(), lobby, Term::list([pid.clone(), pid])]);
            until(|| a.members("lobby").len() == 3).await;
            own.pid()
        });
        let own = speaks.await.expect("it ends");
        assert_eq!(own.node.as_str(), "a@127.0.0.1");
        third.cancel();
    });
}
