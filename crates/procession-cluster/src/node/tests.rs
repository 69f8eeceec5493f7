//! The entries of other nodes, and what is told of them.

use procession::{Address, Context, Scheduler, start};

use super::Node;
use super::peers::{Dial, Event, Peers, Side};
use crate::handshake::{Introduction, Status, flags};
use crate::link::{Link, Order};
use crate::term::{Atom, Term};
use crate::{Cookie, Letter};

/// This node in these tests. One of the others has a smaller name, and one a greater one.
fn own() -> Atom {
    Atom::known("m@127.0.0.1")
}

fn smaller() -> Atom {
    Atom::known("a@127.0.0.1")
}

fn greater() -> Atom {
    Atom::known("z@127.0.0.1")
}

/// Runs a test with the address of a process that takes the orders for connections.
fn run(test: impl AsyncFnOnce(Address<Order>)) {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
    scheduler.block_on(async {
        let process =
            start(|mut cx: Context<Order>| async move { while cx.recv().await.is_some() {} });
        test(process.address().clone()).await;
        process.cancel();
    });
}

/// Makes the connection of an attempt.
fn link(peer: &Atom, attempt: u64, orders: &Address<Order>) -> impl FnOnce(u64) -> Link + use<> {
    let peer = Introduction { name: peer.clone(), creation: 7, flags: flags::OWN };
    let orders = orders.clone();
    move |number| Link::new(peer, number, attempt, orders)
}

fn begin(peers: &mut Peers, peer: &Atom) -> u64 {
    match peers.dial(peer, false) {
        Dial::Begin(attempt) => attempt,
        other => panic!("{other:?} came"),
    }
}

#[test]
fn an_attempt_that_was_accepted_is_waited_for() {
    run(async |orders| {
        let mut peers = Peers::default();
        let (status, accepted) = peers.decide(&own(), &smaller());
        assert_eq!(status, Status::Ok);
        assert_eq!(peers.dial(&smaller(), false), Dial::Wait);
        // One that takes too long is not: it may be by anybody.
        let Dial::Begin(dialed) = peers.dial(&smaller(), true) else { panic!("it is impatient") };
        // Then it is given up, since this node has the greater name.
        let attempt = (Side::Other, accepted);
        let made = peers.admit(&own(), &smaller(), attempt, link(&smaller(), accepted, &orders));
        assert!(made.is_err());
        let attempt = (Side::Own, dialed);
        let made = peers.admit(&own(), &smaller(), attempt, link(&smaller(), dialed, &orders));
        assert!(made.is_ok_and(|(_, replaced)| replaced.is_none()));
        assert_eq!(peers.dial(&smaller(), false), Dial::Connected);
    });
}

#[test]
fn of_two_attempts_that_of_the_greater_name_is_kept() {
    run(async |orders| {
        for (peer, status) in [(smaller(), Status::Nok), (greater(), Status::OkSimultaneous)] {
            let mut peers = Peers::default();
            let dialed = begin(&mut peers, &peer);
            let (decided, accepted) = peers.decide(&own(), &peer);
            assert_eq!(decided, status);
            let is_kept = status == Status::OkSimultaneous;
            let attempt = (Side::Other, accepted);
            let other = peers.admit(&own(), &peer, attempt, link(&peer, accepted, &orders));
            assert_eq!(other.is_ok(), is_kept);
            // In whichever order they come to their ends.
            let attempt = (Side::Own, dialed);
            let made = peers.admit(&own(), &peer, attempt, link(&peer, dialed, &orders));
            assert_eq!(made.is_err(), is_kept);
        }
    });
}

#[test]
fn an_older_attempt_replaces_no_connection() {
    run(async |orders| {
        let mut peers = Peers::default();
        let (_, first) = peers.decide(&own(), &greater());
        let (_, second) = peers.decide(&own(), &greater());
        let mut admit = |number| {
            let made = link(&greater(), number, &orders);
            peers.admit(&own(), &greater(), (Side::Other, number), made).map(|(_, old)| old)
        };
        assert!(admit(second).is_ok_and(|old| old.is_none()));
        assert!(admit(first).is_err());
    });
}

/// Goal: the end of a connection is told before the next one, which may be there before all
/// processes have been told of the end.
#[test]
fn nodes_are_told_in_order() {
    run(async |orders| {
        let mut peers = Peers::default();
        let mut links = Vec::new();
        for _ in 0..3 {
            let (_, attempt) = peers.decide(&own(), &greater());
            let made = link(&greater(), attempt, &orders);
            let made = peers.admit(&own(), &greater(), (Side::Other, attempt), made);
            links.push(made.expect("it is newer").0);
        }
        for which in [1, 0, 2] {
            peers.forget(&links[which]);
            peers.ended(&links[which], "it ends".to_owned());
        }
        let mut told = Vec::new();
        while let Some(Event::Changed(event)) = peers.next_event() {
            told.push(match event.letter() {
                Letter::NodeUp { connection, .. } => (connection, true),
                Letter::NodeDown { connection, .. } => (connection, false),
                other => panic!("{other:?} came"),
            });
        }
        assert_eq!(told, [1, 2, 3].map(|n| [(n, true), (n, false)]).concat());
    });
}

/// Goal: a process that subscribes when a node is there already hears of it, and of its end.
#[test]
fn a_late_subscriber_is_told_what_is_connected() {
    run(async |orders| {
        let cookie = Cookie::new("secret").expect("it has a text");
        let node = Node::builder("m@127.0.0.1").cookie(cookie).start().await;
        let node = node.expect("it starts");
        let made = {
            let mut peers = node.0.peers.lock();
            let (_, attempt) = peers.decide(&own(), &greater());
            let made = link(&greater(), attempt, &orders);
            peers.admit(&own(), &greater(), (Side::Other, attempt), made)
        };
        let (made, _) = made.expect("it is the only one");
        node.publish();
        let subscriber = start({
            let node = node.clone();
            |mut cx: Context<Letter>| async move {
                // The second time it is told nothing.
                for _ in 0..2 {
                    node.subscribe(&cx.address().map(|letter| letter));
                }
                let up = cx.recv().await;
                node.disconnected(&made, "it ends".to_owned());
                (up, cx.recv().await)
            }
        });
        let (up, down) = subscriber.await.expect("it ends");
        assert!(matches!(up, Some(Letter::NodeUp { node, .. }) if node == greater()));
        assert!(matches!(down, Some(Letter::NodeDown { node, .. }) if node == greater()));
    });
}

#[test]
fn a_subscriber_that_ends_is_forgotten() {
    run(async |_| {
        let cookie = Cookie::new("secret").expect("it has a text");
        let node = Node::builder("m@127.0.0.1").cookie(cookie).start().await;
        let node = node.expect("it starts");
        let subscriber = start(|mut cx: Context<Letter>| async move { cx.recv().await.is_some() });
        let count = || node.0.locals.lock().subscribers.len();
        node.subscribe(&subscriber.address().map(|letter| letter));
        assert_eq!(count(), 1);
        subscriber.cancel();
        assert_eq!(subscriber.await, Ok(false));
        let gone = async {
            while count() > 0 {
                procession::yield_now().await;
            }
        };
        procession::timeout(std::time::Duration::from_secs(30), gone).await.expect("it is noticed");
    });
}

/// Goal: of two nodes that connect to each other, one keeps the connection of the other, although
/// its own attempt finds that one connected already.
#[test]
fn an_attempt_does_not_replace_the_one_that_this_node_has_agreed_to() {
    run(async |orders| {
        let mut peers = Peers::default();
        let dialed = begin(&mut peers, &greater());
        assert!(peers.may_replace(&greater()), "the other node knows one that has ended");
        let (status, accepted) = peers.decide(&own(), &greater());
        assert_eq!(status, Status::OkSimultaneous);
        assert!(!peers.may_replace(&greater()));
        let made = link(&greater(), accepted, &orders);
        peers.admit(&own(), &greater(), (Side::Other, accepted), made).expect("it is wanted");
        assert!(!peers.is_connecting(&greater(), dialed));
        assert!(!peers.may_replace(&greater()));
    });
}

/// Goal: nodes that come and go under new names leave nothing, and no connection gets the number of
/// an earlier one.
#[test]
fn nodes_that_were_connected_once_are_forgotten() {
    run(async |orders| {
        let mut peers = Peers::default();
        let mut connect = |name: &Atom| {
            let (_, attempt) = peers.decide(&own(), name);
            let made = link(name, attempt, &orders);
            let made = peers.admit(&own(), name, (Side::Other, attempt), made);
            let (link, _) = made.expect("it is the only one");
            peers.forget(&link);
            peers.ended(&link, "it ends".to_owned());
            while peers.next_event().is_some() {}
            (link.number, peers.remembered())
        };
        assert_eq!(connect(&greater()).0, 1);
        assert_eq!(connect(&greater()).0, 2);
        let mut most = 0;
        for number in 0..20_000 {
            let name = format!("n{number}@127.0.0.1");
            most = most.max(connect(&Atom::new(&*name).expect("it is short")).1);
        }
        assert!(most < 5000, "{most} entries");
        assert!(connect(&greater()).0 > 2);
    });
}

/// Goal: what other nodes name takes memory only as long as it is of use.
#[cfg(feature = "serde")]
#[test]
fn processes_that_nothing_leads_to_are_forgotten() {
    use super::remotes::REMEMBERED;
    use crate::{NodePid, Remote};

    run(async |_| {
        let cookie = Cookie::new("secret").expect("it has a text");
        let node = Node::builder("m@127.0.0.1").cookie(cookie).start().await;
        let node = node.expect("it starts");
        let by_name = |number| {
            let (name, place) = (format!("name{number}"), format!("n{number}@127.0.0.1"));
            Remote::named(&name, &place)
        };
        let by_pid =
            |creation| Remote::Pid(NodePid { node: greater(), id: 1, serial: 0, creation });
        let kept = [by_name(0), by_pid(0)].map(|process| node.address::<u8>(process));
        let dropped = [by_name(1), by_pid(1)].map(|process| node.address::<u8>(process).pid());
        let mut most = 0;
        for number in 2..10 * REMEMBERED as u32 {
            for process in [by_name(number), by_pid(number)] {
                drop(node.address::<u8>(process));
                most = most.max(node.0.remotes.lock().len());
            }
        }
        assert!(most <= 6 * REMEMBERED + 4, "{most} entries");
        assert_eq!(
            kept.map(|address| node.remote_of(address.pid())),
            [by_name(0), by_pid(0)].map(Some)
        );
        assert_eq!(dropped.map(|pid| node.remote_of(pid)), [None, None]);
        let last = node.pid_of_remote(&by_name(10 * REMEMBERED as u32 - 1));
        assert_eq!(node.remote_of(last), Some(by_name(10 * REMEMBERED as u32 - 1)));
    });
}

/// Goal: each process has a number of its own, however many processes the node has had.
#[test]
fn a_number_is_never_used_again() {
    let nodes = async || {
        let node = |name: &'static str| {
            Node::builder(name).cookie(Cookie::new("secret").expect("it has a text"))
        };
        let a = node("a@127.0.0.1").start().await.expect("it starts");
        let b = node("b@127.0.0.1").listen(([127, 0, 0, 1], 0).into()).start().await;
        let b = b.expect("it starts");
        let address = b.local_addr().expect("it listens");
        a.connect_at("b@127.0.0.1", address).await.expect("it accepts");
        (a, b)
    };
    run(async |_| {
        let (a, b) = nodes().await;
        let receive = || {
            start(|mut cx: Context<Letter>| async move {
                match cx.recv().await {
                    Some(Letter::Message { term, .. }) => term,
                    other => panic!("{other:?} came"),
                }
            })
        };
        let mut receivers = Vec::new();
        for number in 0..5_i64 {
            if number == 1 {
                b.0.locals.lock().last = (u32::MAX - 1).into();
            }
            let receiver = receive();
            let pid = b.attach(&receiver.address().map(|letter| letter)).pid();
            assert_ne!(pid, b.pid_of(0));
            assert_eq!(b.pid(&pid), receiver.pid());
            assert_eq!(a.node_pid(a.pid(&pid)), Some(pid.clone()));
            receivers.push((number, pid, receiver));
        }
        for (number, pid, _) in &receivers {
            a.send(pid, Term::from(*number)).expect("it is connected");
        }
        for (number, _, receiver) in receivers {
            assert_eq!(receiver.await, Ok(Term::from(number)));
        }
    });
}
