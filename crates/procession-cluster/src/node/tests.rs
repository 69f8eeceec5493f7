//! The entries of other nodes, and what subscribers learn about these nodes.

mod relations;

use std::sync::Arc;

use procession::{Address, Context, Scheduler, start};

use super::Node;
use super::peers::{Admission, Dial, Event, Peers, Side};
use crate::handshake::{Introduction, Status, flags};
use crate::link::{Link, Order};
use crate::term::{Atom, Term};
use crate::{Cookie, Letter};

/// This node in these tests. One of the other nodes has a smaller name, and one has a greater name.
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
    move |number| Link::new(peer, number, attempt, orders, 1 << 20)
}

/// Admits an attempt.
fn admit(
    peers: &mut Peers,
    peer: &Atom,
    (side, attempt): (Side, u64),
    orders: &Address<Order>,
) -> Admission {
    peers.admit(&own(), peer, (side, attempt), link(peer, attempt, orders))
}

fn made(admission: Admission) -> Arc<Link> {
    match admission {
        Admission::Made(link) => link,
        other => panic!("{other:?} came"),
    }
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
        // An attempt beyond its time limit is not: it may be by anybody.
        let Dial::Begin(dialed) = peers.dial(&smaller(), true) else { panic!("it is impatient") };
        // Then it is given up, because this node has the greater name.
        let other = admit(&mut peers, &smaller(), (Side::Other, accepted), &orders);
        assert!(matches!(other, Admission::Unwanted(_)), "{other:?}");
        made(admit(&mut peers, &smaller(), (Side::Own, dialed), &orders));
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
            let other = admit(&mut peers, &peer, (Side::Other, accepted), &orders);
            assert_eq!(matches!(other, Admission::Made(_)), is_kept, "{other:?}");
            // In whichever order they come to their ends.
            let made = admit(&mut peers, &peer, (Side::Own, dialed), &orders);
            assert_eq!(matches!(made, Admission::Unwanted(_)), is_kept, "{made:?}");
        }
    });
}

#[test]
fn an_older_attempt_replaces_no_connection() {
    run(async |orders| {
        let mut peers = Peers::default();
        let (_, first) = peers.decide(&own(), &greater());
        let (_, second) = peers.decide(&own(), &greater());
        made(admit(&mut peers, &greater(), (Side::Other, second), &orders));
        let older = admit(&mut peers, &greater(), (Side::Other, first), &orders);
        assert!(matches!(older, Admission::Unwanted(_)), "{older:?}");
    });
}

/// Goal: a connection is admitted once everybody has been notified of the end of its predecessor,
/// and a newer connection also waits for that.
#[test]
fn a_connection_waits_for_the_end_of_the_one_before() {
    run(async |orders| {
        let mut peers = Peers::default();
        let mut told = Vec::new();
        let mut tell = |peers: &mut Peers| {
            while let Some(Event::Changed(event)) = peers.next_event() {
                told.push(match event.letter() {
                    Letter::NodeUp { connection, .. } => (connection, true),
                    Letter::NodeDown { connection, .. } => (connection, false),
                    other => panic!("{other:?} came"),
                });
                peers.was_told(&event);
            }
        };
        let (_, first) = peers.decide(&own(), &greater());
        let first = made(admit(&mut peers, &greater(), (Side::Other, first), &orders));
        let (_, second) = peers.decide(&own(), &greater());
        let (_, third) = peers.decide(&own(), &greater());
        let (second, third) = ((Side::Other, second), (Side::Other, third));
        match admit(&mut peers, &greater(), second, &orders) {
            Admission::Waits(Some(replaced)) => assert!(Arc::ptr_eq(&replaced, &first)),
            other => panic!("{other:?} came"),
        }
        // It is to end already.
        assert!(peers.link(&greater()).is_none());
        assert_eq!(peers.dial(&greater(), false), Dial::Wait);
        let waits = |peers: &mut Peers| {
            let admission = admit(peers, &greater(), third, &orders);
            assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
            // The other node has given it up.
            let older = admit(peers, &greater(), second, &orders);
            assert!(matches!(older, Admission::Unwanted(_)), "{older:?}");
        };
        tell(&mut peers);
        waits(&mut peers);
        peers.forget(&first);
        waits(&mut peers);
        peers.ended(&first, "it ends".to_owned());
        waits(&mut peers);
        tell(&mut peers);
        // Even if it arrives first when everybody has been notified.
        let unwanted = |peers: &mut Peers| {
            let older = admit(peers, &greater(), second, &orders);
            assert!(matches!(older, Admission::Unwanted(_)), "{older:?}");
        };
        unwanted(&mut peers);
        let number = third.1;
        let third = made(admit(&mut peers, &greater(), third, &orders));
        peers.end(&greater(), number);
        unwanted(&mut peers);
        // An attempt of this node also waits.
        peers.forget(&third);
        let own = (Side::Own, begin(&mut peers, &greater()));
        let admission = admit(&mut peers, &greater(), own, &orders);
        assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        peers.ended(&third, "it ends".to_owned());
        tell(&mut peers);
        made(admit(&mut peers, &greater(), own, &orders));
        tell(&mut peers);
        assert_eq!(told, [(1, true), (1, false), (2, true), (2, false), (3, true)]);
    });
}

/// Goal: while an attempt of the other node waits, this node makes no other one, which the other
/// node would take for the newer one.
#[test]
fn no_attempt_begins_while_one_of_the_other_node_waits() {
    run(async |orders| {
        let mut peers = Peers::default();
        let (_, first) = peers.decide(&own(), &greater());
        let first = made(admit(&mut peers, &greater(), (Side::Other, first), &orders));
        // The other node has noticed the end, and this one has not.
        let (status, second) = peers.decide(&own(), &greater());
        assert_eq!(status, Status::Alive);
        peers.forget(&first);
        let second = (Side::Other, second);
        let admission = admit(&mut peers, &greater(), second, &orders);
        assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        for is_impatient in [false, true] {
            assert_eq!(peers.dial(&greater(), is_impatient), Dial::Wait);
        }
        peers.ended(&first, "it ends".to_owned());
        while let Some(Event::Changed(event)) = peers.next_event() {
            peers.was_told(&event);
        }
        made(admit(&mut peers, &greater(), second, &orders));
        assert_eq!(peers.dial(&greater(), false), Dial::Connected);
    });
}

/// Goal: an attempt that has made way for a newer attempt never becomes the connection, even if the
/// newer attempt ends before the older attempt learns that.
#[test]
fn an_older_attempt_gives_way_for_good() {
    run(async |orders| {
        let mut peers = Peers::default();
        let attempt = |peers: &mut Peers| (Side::Other, peers.decide(&own(), &greater()).1);
        let tell = |peers: &mut Peers, link: &Arc<Link>| {
            peers.forget(link);
            peers.ended(link, "it ends".to_owned());
            while let Some(Event::Changed(event)) = peers.next_event() {
                peers.was_told(&event);
            }
        };
        let first = attempt(&mut peers);
        let first = made(admit(&mut peers, &greater(), first, &orders));
        let (older, newer) = (attempt(&mut peers), attempt(&mut peers));
        peers.forget(&first);
        for waits in [older, newer] {
            let admission = admit(&mut peers, &greater(), waits, &orders);
            assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        }
        peers.end(&greater(), newer.1);
        let unwanted = admit(&mut peers, &greater(), older, &orders);
        assert!(matches!(unwanted, Admission::Unwanted(_)), "{unwanted:?}");
        peers.end(&greater(), older.1);
        // The newer attempt arrives when there is nothing to wait for any more.
        let (older, newer) = (attempt(&mut peers), attempt(&mut peers));
        let admission = admit(&mut peers, &greater(), older, &orders);
        assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        tell(&mut peers, &first);
        let second = made(admit(&mut peers, &greater(), newer, &orders));
        tell(&mut peers, &second);
        let unwanted = admit(&mut peers, &greater(), older, &orders);
        assert!(matches!(unwanted, Admission::Unwanted(_)), "{unwanted:?}");
        peers.end(&greater(), older.1);
        let third = attempt(&mut peers);
        made(admit(&mut peers, &greater(), third, &orders));
    });
}

/// Goal: a waiting attempt of this node makes way for a later attempt of the other node, and
/// nothing takes the place of that attempt. When it ends without a connection, other attempts may
/// be made.
#[test]
fn an_attempt_of_this_node_gives_way_to_one_that_waits() {
    run(async |orders| {
        let mut peers = Peers::default();
        let (_, first) = peers.decide(&own(), &greater());
        let first = made(admit(&mut peers, &greater(), (Side::Other, first), &orders));
        peers.forget(&first);
        let dialed = begin(&mut peers, &greater());
        let admission = admit(&mut peers, &greater(), (Side::Own, dialed), &orders);
        assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        let (status, accepted) = peers.decide(&own(), &greater());
        assert_eq!(status, Status::OkSimultaneous);
        let admission = admit(&mut peers, &greater(), (Side::Other, accepted), &orders);
        assert!(matches!(admission, Admission::Waits(None)), "{admission:?}");
        let unwanted = admit(&mut peers, &greater(), (Side::Own, dialed), &orders);
        assert!(matches!(unwanted, Admission::Unwanted(_)), "{unwanted:?}");
        peers.end(&greater(), dialed);
        assert_eq!(peers.dial(&greater(), true), Dial::Wait);
        peers.end(&greater(), accepted);
        assert!(matches!(peers.dial(&greater(), false), Dial::Begin(_)));
    });
}

/// Goal: an attempt of this node that has given way to one of the other node frees nothing.
#[test]
fn an_attempt_that_was_agreed_to_outlives_the_one_that_gave_way() {
    let mut peers = Peers::default();
    let dialed = begin(&mut peers, &greater());
    let (status, agreed) = peers.decide(&own(), &greater());
    assert_eq!(status, Status::OkSimultaneous);
    assert!(!peers.may_replace(&greater()));
    peers.end(&greater(), dialed);
    assert_eq!(peers.dial(&greater(), false), Dial::Wait);
    peers.end(&greater(), agreed);
    assert!(matches!(peers.dial(&greater(), false), Dial::Begin(_)));
}

/// Goal: a process that subscribes when a node is already connected receives the connection, and
/// its end.
#[test]
fn a_late_subscriber_is_told_what_is_connected() {
    run(async |orders| {
        let cookie = Cookie::new("secret").expect("it has a text");
        let node = Node::builder("m@127.0.0.1").cookie(cookie).start().await;
        let node = node.expect("it starts");
        let made = {
            let mut peers = node.0.peers.lock();
            let (_, attempt) = peers.decide(&own(), &greater());
            made(admit(&mut peers, &greater(), (Side::Other, attempt), &orders))
        };
        node.publish();
        let subscriber = start({
            let node = node.clone();
            |mut cx: Context<Letter>| async move {
                // The second time it receives nothing.
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

/// Goal: of two nodes that connect at the same time, one keeps the connection of the other node,
/// although its own attempt finds that node connected already.
#[test]
fn an_attempt_does_not_replace_the_one_that_this_node_has_agreed_to() {
    run(async |orders| {
        let mut peers = Peers::default();
        let dialed = begin(&mut peers, &greater());
        assert!(peers.may_replace(&greater()), "the other node knows one that has ended");
        let (status, accepted) = peers.decide(&own(), &greater());
        assert_eq!(status, Status::OkSimultaneous);
        assert!(!peers.may_replace(&greater()));
        made(admit(&mut peers, &greater(), (Side::Other, accepted), &orders));
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
            let link = made(admit(&mut peers, name, (Side::Other, attempt), &orders));
            peers.forget(&link);
            peers.ended(&link, "it ends".to_owned());
            while let Some(Event::Changed(event)) = peers.next_event() {
                peers.was_told(&event);
            }
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
    use crate::remotes::REMEMBERED;
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

/// Goal: each process has another number, however many processes the node has had.
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

/// Goal: another node cannot fill the memory with reasons for which its connections end.
#[test]
fn reasons_without_end_are_counted_together() {
    run(async |orders| {
        let mut peers = Peers::default();
        for n in 0..40 {
            let (_, attempt) = peers.decide(&own(), &greater());
            let link = made(admit(&mut peers, &greater(), (Side::Other, attempt), &orders));
            peers.forget(&link);
            peers.ended(&link, format!("reason {n}"));
            while let Some(Event::Changed(event)) = peers.next_event() {
                peers.was_told(&event);
            }
        }
        let ends = peers.ends();
        assert_eq!(ends.len(), 33);
        assert!(ends.contains(&("another reason".to_owned(), 8)), "{ends:?}");
    });
}
