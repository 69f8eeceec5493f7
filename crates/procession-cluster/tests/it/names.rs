//! Names that several nodes share.

use procession::mailbox::Event;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::time::system_time;
use procession::{Child, Context, Exit, Pid, start};
use procession_cluster::{ClaimError, Node, RegisterError, SharedNames};

use crate::{connect, listens, run, until};

/// A node with names that it shares.
struct Naming {
    node: Node,
    names: SharedNames,
}

impl Naming {
    async fn start(name: &str) -> Self {
        let node = listens(name).start().await.expect("it starts");
        let names = node.share_names("names").expect("the name is free");
        Self { node, names }
    }

    /// Waits until the owner of a name is a process of a node.
    async fn has(&self, name: &str, owner: Option<(&Node, Pid)>) {
        let owner = owner.map(|(node, pid)| {
            self.node.pid(&node.node_pid(pid).expect("it is a process of that node"))
        });
        until(|| self.names.owner(name) == owner).await;
    }
}

/// Starts a process that waits until it ends.
fn waits() -> Child<(), ()> {
    start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} })
}

/// Starts two nodes, and a process of the first that has the name `counter`. Its claim is older
/// than all later claims.
async fn with_an_owner() -> ([Naming; 2], Child<(), ()>) {
    let nodes = [Naming::start("a@127.0.0.1").await, Naming::start("b@127.0.0.1").await];
    let owner = waits();
    assert_eq!(nodes[0].names.claim("counter", owner.pid()), Ok(()));
    later().await;
    (nodes, owner)
}

/// Lets the clock show a later microsecond.
async fn later() {
    let before = system_time();
    until(|| system_time().duration_since(before).is_ok_and(|time| time.as_micros() > 1)).await;
}

#[test]
fn a_name_belongs_to_one_process_of_all_nodes() {
    run(async {
        let [a, b] = [Naming::start("a@127.0.0.1").await, Naming::start("b@127.0.0.1").await];
        connect(&a.node, &b.node).await;
        let (first, second, far) = (waits(), waits(), waits());
        assert_eq!(a.names.claim("counter", first.pid()), Ok(()));
        let taken = Err(ClaimError::Taken(first.pid()));
        assert_eq!(a.names.claim("counter", second.pid()), taken);
        assert_eq!(a.names.claim("counter", first.pid()), taken);
        b.has("counter", Some((&a.node, first.pid()))).await;
        let owner = b.names.owner("counter").expect("it has one");
        assert_eq!(b.names.claim("counter", far.pid()), Err(ClaimError::Taken(owner)));
        assert!(!b.names.release("counter", owner), "it is a name of the other node");

        // A name is free when its process has ended, or gives it back.
        first.cancel();
        assert_eq!(first.await, Ok(()));
        assert_eq!(a.names.claim("counter", second.pid()), Ok(()));
        // Otherwise this claim may arrive after the next one, which is later and would lose.
        b.has("counter", Some((&a.node, second.pid()))).await;
        assert!(a.names.release("counter", second.pid()));
        assert!(!a.names.release("counter", second.pid()));
        b.has("counter", None).await;
        assert_eq!(b.names.claim("counter", far.pid()), Ok(()));
        a.has("counter", Some((&b.node, far.pid()))).await;

        // A name that is another term for nodes of the BEAM.
        assert_eq!(b.names.claim("{room,7}", far.pid()), Ok(()));
        a.has("{room,7}", Some((&b.node, far.pid()))).await;
        let owners = a.names.owners();
        let names: Vec<_> = owners.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["counter", "{room,7}"]);
        assert_eq!(a.names.owner("lobby"), None);

        let long = "x".repeat(256);
        assert_eq!(a.names.claim(&long, second.pid()), Err(ClaimError::TooLong(long.clone())));
        assert_eq!(a.names.claim("lobby", Pid::NOBODY), Err(ClaimError::Ended(Pid::NOBODY)));
        assert_eq!(a.names.claim("lobby", owner), Err(ClaimError::Ended(owner)));
    });
}

/// Goal: the names of the nodes do not decide, because each node that starts claims its names
/// before it is connected.
#[test]
fn the_oldest_claim_wins_whichever_node_has_it() {
    run(async {
        for older in [0, 1] {
            let [a, b] = [Naming::start("a@127.0.0.1").await, Naming::start("b@127.0.0.1").await];
            let nodes = [&a, &b];
            let (old, new) = (nodes[older], nodes[1 - older]);
            let (first, second) = (waits(), waits());
            assert_eq!(old.names.claim("counter", first.pid()), Ok(()));
            later().await;
            assert_eq!(new.names.claim("counter", second.pid()), Ok(()));
            assert_eq!(new.names.claim("alone", second.pid()), Ok(()));
            connect(&a.node, &b.node).await;
            assert_eq!(second.await, Err(Exit::NameLost("counter".into())));
            for node in nodes {
                node.has("counter", Some((&old.node, first.pid()))).await;
                node.has("alone", None).await;
            }
            // A node that is out of reach takes its names along, and brings them back.
            a.node.disconnect(b.node.name().as_str());
            new.has("counter", None).await;
            connect(&a.node, &b.node).await;
            new.has("counter", Some((&old.node, first.pid()))).await;
            first.cancel();
            assert_eq!(first.await, Ok(()), "an owner is not notified");
        }
    });
}

#[test]
fn a_loser_that_traps_exits_is_told_once() {
    run(async {
        let ([a, b], first) = with_an_owner().await;
        let names = b.names.clone();
        let second = start(|mut cx: Context<()>| async move {
            cx.trap_exits(true);
            assert_eq!(names.claim("counter", cx.pid()), Ok(()));
            let mut lost = Vec::new();
            while let Some(event) = cx.recv_event().await {
                match event {
                    Event::Exit(signal) => lost.push(signal.exit),
                    Event::Message(()) => break,
                    _ => {}
                }
            }
            lost
        });
        until(|| b.names.owner("counter") == Some(second.pid())).await;
        for _ in 0..3 {
            connect(&a.node, &b.node).await;
            b.has("counter", Some((&a.node, first.pid()))).await;
            a.node.disconnect("b@127.0.0.1");
            b.has("counter", None).await;
        }
        second.send(()).expect("it waits");
        assert_eq!(second.await, Ok(vec![Exit::NameLost("counter".into())]));
        first.cancel();
        assert_eq!(first.await, Ok(()));
    });
}

#[test]
fn a_supervisor_does_not_restart_a_loser() {
    run(async {
        let ([a, b], first) = with_an_owner().await;
        let names = b.names.clone();
        let child = ChildSpec::new("counter", move |mut cx: Context<()>| {
            let names = names.clone();
            async move {
                names.claim("counter", cx.pid()).expect("the name is free");
                while cx.recv().await.is_some() {}
            }
        });
        let tree = Supervisor::one_for_one().child(child).try_start().await.expect("it starts");
        until(|| b.names.owner("counter").is_some()).await;
        connect(&a.node, &b.node).await;
        b.has("counter", Some((&a.node, first.pid()))).await;
        while tree.count().await.expect("it goes on").running > 0 {}
        tree.cancel();
        assert_eq!(tree.await, Exit::Shutdown, "it has restarted nothing");
    });
}

/// Goal: a monitor has the last owner, whatever has happened to the name.
#[test]
fn a_monitor_has_the_last_owner() {
    run(async {
        let [a, b] = [Naming::start("a@127.0.0.1").await, Naming::start("b@127.0.0.1").await];
        let (mut here, mut there) = (a.names.monitor("counter"), b.names.monitor("counter"));
        let mut other = a.names.monitor("other");
        assert_eq!((*here.borrow(), *there.borrow()), (None, None));
        let (first, second) = (waits(), waits());
        assert_eq!(a.names.claim("counter", first.pid()), Ok(()));
        here.changed().await.expect("it is shared");
        assert_eq!(*here.borrow_and_update(), Some(first.pid()));
        later().await;
        assert_eq!(b.names.claim("counter", second.pid()), Ok(()));
        drop(there.wait_for(|owner| *owner == Some(second.pid())).await.expect("it is shared"));

        // The older claim wins. A receiver that looks late misses the owners in between.
        connect(&a.node, &b.node).await;
        assert_eq!(second.await, Err(Exit::NameLost("counter".into())));
        let far = b.node.pid(&a.node.node_pid(first.pid()).expect("it runs"));
        drop(there.wait_for(|owner| *owner == Some(far)).await.expect("it is shared"));
        assert_eq!(*b.names.monitor("counter").borrow(), Some(far));
        assert_eq!(here.has_changed(), Ok(false));
        first.cancel();
        for owner in [&mut here, &mut there] {
            drop(owner.wait_for(|owner| owner.is_none()).await.expect("it is shared"));
        }
        assert_eq!(other.has_changed(), Ok(false));
        a.names.stop();
        other.changed().await.expect_err("the names are no longer shared");
        a.names.monitor("counter").changed().await.expect_err("the same");
    });
}

#[test]
fn names_end_with_their_scope() {
    run(async {
        let ([a, b], first) = with_an_owner().await;
        connect(&a.node, &b.node).await;
        b.has("counter", Some((&a.node, first.pid()))).await;
        let again = a.node.share_names("names").map(drop);
        assert_eq!(again, Err(RegisterError::Taken("names".into())));
        a.names.stop();
        b.has("counter", None).await;
        until(|| a.names.claim("lobby", first.pid()) == Err(ClaimError::Stopped)).await;
        assert_eq!(a.names.owner("counter"), None);
        a.node.stop().await;
        assert!(a.node.share_names("names").is_err(), "the node has stopped");
        first.cancel();
        assert_eq!(first.await, Ok(()), "nobody was notified");
    });
}
