//! Starting processes on other nodes, finding these, and asking whether they are there.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use procession::mailbox::Event;
use procession::{Context, Exit, Scheduler, start};
use procession_cluster::{
    Find, Found, Grants, Letter, Node, PingError, SendTermCause, StartError, StartTermError, Term,
};
use procession_sync::Mutex;

use crate::{PATIENCE, connect, cookie, listens, next, run, seen_by, until};

const SHOP: &str = "shop@127.0.0.1";

/// Starts a node that exports functions, and a node that may start them.
async fn shop_and_till() -> (Node, Node) {
    let grants = Grants::new().spawn("shop", "worker").spawn("shop", "fails").exits();
    let shop = listens(SHOP).grant("till@127.0.0.1", grants).start().await.expect("it starts");
    shop.export("shop", "worker", 1, |mut cx: Context<Letter>, arguments| async move {
        match next(&mut cx).await {
            Letter::Message { term, .. } => Exit::failed(format!("{} {term}", arguments[0])),
            other => panic!("{other:?} came"),
        }
    });
    shop.export("shop", "fails", 0, |_: Context<Letter>, _| async { Exit::failed("at once") });
    shop.export("shop", "secret", 0, |_: Context<Letter>, _| async {});
    let till = Node::builder("till@127.0.0.1").cookie(cookie()).start().await.expect("it starts");
    connect(&till, &shop).await;
    seen_by(&shop, &till).await;
    (shop, till)
}

#[test]
fn a_process_is_started_alone_linked_or_monitored() {
    run(async {
        let (_shop, till) = shop_and_till().await;
        let process = start(move |mut cx: Context<()>| async move {
            cx.trap_exits(true);
            let arguments = || vec![Term::from(7)];
            let alone =
                till.spawn(SHOP, "shop", "worker", arguments(), PATIENCE).await.expect("it may");
            let monitor = cx.monitor(till.pid(&alone));
            till.send(alone, Term::from(1)).expect("it is connected");
            let down = cx.down(monitor).await.expect("it is told");
            assert_eq!(down.exit, Exit::failed("7 1"));
            let (monitored, monitor) = till
                .spawn_monitor(SHOP, "shop", "worker", arguments(), PATIENCE)
                .await
                .expect("it may");
            till.send(&monitored, Term::from(2)).expect("it is connected");
            let down = cx.down(monitor).await.expect("it is told");
            assert_eq!((down.pid, down.exit), (till.pid(&monitored), Exit::failed("7 2")));
            let linked = till
                .spawn_link(SHOP, "shop", "worker", arguments(), PATIENCE)
                .await
                .expect("it may");
            till.send(&linked, Term::from(3)).expect("it is connected");
            match cx.recv_event().await {
                Some(Event::Exit(exit)) => {
                    assert_eq!(exit.from, Some(till.pid(&linked)));
                    assert_eq!(exit.exit, Exit::failed("7 3"));
                }
                other => panic!("{other:?} came"),
            }
            // The monitor is from the start on, so the reason of a process that ends immediately is
            // known.
            let (_, monitor) =
                till.spawn_monitor(SHOP, "shop", "fails", vec![], PATIENCE).await.expect("it may");
            let down = cx.down(monitor).await.expect("it is told");
            assert_eq!(down.exit, Exit::failed("at once"));
            // A monitor that was ended reports nothing.
            let (process, monitor) = till
                .spawn_monitor(SHOP, "shop", "worker", arguments(), PATIENCE)
                .await
                .expect("it may");
            assert!(cx.demonitor(monitor));
            let again = cx.monitor(till.pid(&process));
            till.send(&process, Term::from(4)).expect("it is connected");
            assert!(cx.down(again).await.is_some());
            assert!(cx.recv_timeout(Duration::from_millis(1)).await.is_err());
        });
        process.await.expect("it ends");
    });
}

#[test]
fn the_end_of_the_asking_process_ends_the_linked_one() {
    run(async {
        let (shop, till) = shop_and_till().await;
        let asks = start(move |_: Context<()>| async move {
            let arguments = vec![Term::from(7)];
            let linked = till.spawn_link(SHOP, "shop", "worker", arguments, PATIENCE).await;
            assert!(linked.is_ok(), "{linked:?}");
            Exit::failed("enough")
        });
        // Ignored: how it ends is known.
        drop(asks.await);
        until(|| shop.status().attached == 0).await;
    });
}

#[test]
fn a_start_that_is_refused_says_why() {
    run(async {
        let (shop, till) = shop_and_till().await;
        let refused = |why: &str| Err(StartTermError::Refused(why_atom(why)));
        let start = |function: &'static str, arguments: Vec<Term>| {
            let till = till.clone();
            async move { till.spawn(SHOP, "shop", function, arguments, PATIENCE).await }
        };
        assert_eq!(start("worker", vec![]).await, refused("undef"), "it has another arity");
        // Whether it is exported or not.
        for function in ["secret", "nothing"] {
            assert_eq!(start(function, vec![]).await, refused("not_allowed"));
        }
        let linked = till.spawn_link(SHOP, "shop", "fails", vec![], PATIENCE).await;
        assert_eq!(linked, Err(StartTermError::NoProcess), "nothing runs here");
        let long = "x".repeat(256);
        let named = till.spawn(SHOP, "shop", &long, vec![], PATIENCE).await;
        assert_eq!(named, Err(StartTermError::Name(long)));
        assert_eq!(shop.peers()[0].denied, 3);
        // Requests are no messages, so all are confirmed.
        until(|| till.peers()[0].unconfirmed == Some(0)).await;
        shop.stop();
        until(|| till.peers().is_empty()).await;
        let gone = StartTermError::Send(SendTermCause::NoConnection);
        assert_eq!(start("fails", vec![]).await, Err(gone));
    });
}

fn why_atom(why: &str) -> procession_cluster::Atom {
    procession_cluster::Atom::new(why).expect("it is short")
}

/// Returns a free port of an address that no other test has, so that it stays free.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 1, 2, 3), 0)).expect("a port is free");
    listener.local_addr().expect("it is bound")
}

async fn is_connected(node: &Node, name: &str) {
    until(|| node.peers().iter().any(|peer| peer.name.as_str() == name)).await;
}

#[test]
fn a_node_connects_to_what_is_found_and_again_when_that_is_lost() {
    run(async {
        let port = free_port();
        let found = Arc::new(Mutex::new(Vec::new()));
        let looks = Arc::new(());
        let find = {
            let (found, looks) = (Arc::clone(&found), Arc::clone(&looks));
            Find::by(move || {
                let _ = &looks;
                let nodes = found.lock().clone();
                async move { Ok(nodes) }
            })
        };
        let seeks = listens("seeks@127.0.0.1");
        let find = find.every(Duration::from_millis(100));
        let seeks = seeks.find(find).start().await.expect("it starts");
        // Nobody listens there yet, and the node itself is among what is found. A node may have
        // several addresses.
        let refuses = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let addresses = vec![refuses.local_addr().expect("it is bound"), port];
        let named = |name: &str| Found { name: name.into(), addresses: addresses.clone() };
        *found.lock() = vec![named("seeks@127.0.0.1"), named("late@127.0.0.1")];
        // Two attempts come and are closed, so it tries again.
        refuses.set_nonblocking(true).expect("it is a socket");
        let mut attempts = 0;
        until(|| {
            attempts += u32::from(refuses.accept().is_ok());
            attempts == 2
        })
        .await;
        drop(refuses);
        let late = || Node::builder("late@127.0.0.1").cookie(cookie()).listen(port);
        let first = late().start().await.expect("it starts");
        is_connected(&seeks, "late@127.0.0.1").await;
        // The called node is connected a little later.
        until(|| first.disconnect("seeks@127.0.0.1")).await;
        until(|| seeks.peers().first().is_some_and(|peer| peer.connection == 2)).await;
        first.stop();
        until(|| seeks.peers().is_empty()).await;
        let second = loop {
            // The port is free once the first one has let go.
            match late().start().await {
                Ok(node) => break node,
                Err(_) => procession::yield_now().await,
            }
        };
        until(|| seeks.peers().first().is_some_and(|peer| peer.connection == 3)).await;
        seeks.stop();
        until(|| second.peers().is_empty()).await;
        // A node that has stopped seeks nothing: what looks is dropped.
        until(|| Arc::strong_count(&looks) == 1).await;
    });
}

/// Goal: code of the user that panics ends one look, and not all of them.
#[test]
fn a_node_looks_again_after_a_panic() {
    type Look = Pin<Box<dyn Future<Output = io::Result<Vec<Found>>> + Send>>;

    struct Bomb;
    impl Future for Bomb {
        type Output = io::Result<Vec<Found>>;

        fn poll(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(Ok(Vec::new()))
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the drop of a look");
        }
    }

    run(async {
        let far = listens("far@127.0.0.1").start().await.expect("it starts");
        let addresses = vec![far.local_addr().expect("it listens")];
        let looks = Mutex::new(0);
        let find = Find::by(move || {
            let look = {
                let mut looks = looks.lock();
                *looks += 1;
                *looks
            };
            let found = Found { name: "far@127.0.0.1".into(), addresses: addresses.clone() };
            match look {
                1 => panic!("the function that looks"),
                2 => Box::pin(poll_fn(|_| -> Poll<_> { panic!("the future that looks") })) as Look,
                3 => Box::pin(Bomb),
                _ => Box::pin(std::future::ready(Ok(vec![found]))),
            }
        });
        let near = Node::builder("near@127.0.0.1").cookie(cookie());
        let near = near.find(find.every(Duration::from_millis(100))).start().await;
        is_connected(&near.expect("it starts"), "far@127.0.0.1").await;
    });
}

/// Goal: a node has all its processes, or it does not start and leaves nothing behind.
#[test]
fn a_node_that_the_scheduler_has_no_room_for_does_not_start() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let start = async || {
        let node = Node::builder("near@127.0.0.1").cookie(cookie()).listen(address);
        let started = node.find(Find::nodes(["far@127.0.0.1"])).start().await;
        match &started {
            Ok(node) => drop(node.stop().await),
            Err(_) => drop(TcpListener::bind(address).expect("the address is free again")),
        }
        started.map(drop)
    };
    let with_room_for = |processes| {
        let scheduler = Scheduler::builder().worker_threads(1).max_processes(processes).build();
        scheduler.expect("it can be built").block_on(start())
    };
    let refused: Vec<_> = (1..8).map(with_room_for).take_while(Result::is_err).collect();
    // The last one of these had room for all its processes but the finder.
    assert!((1..7).contains(&refused.len()), "{refused:?}");
    for refused in refused {
        assert!(matches!(refused, Err(StartError::Process(_))), "{refused:?}");
    }
}

#[test]
fn the_addresses_of_a_host_are_found() {
    run(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let b = Node::builder("b@127.0.0.1").cookie(cookie()).listen(any);
        let b = b.start().await.expect("it starts");
        let port = b.local_addr().expect("it listens");
        let by_service = Find::dns("b", "localhost", port.port());
        let one = Node::builder("one@127.0.0.1").cookie(cookie()).find(by_service);
        let one = one.start().await.expect("it starts");
        is_connected(&one, "b@127.0.0.1").await;
        let by_name = Find::nodes_at(["b@127.0.0.1", "c@does-not-exist.invalid"], port.port());
        let two = Node::builder("two@127.0.0.1").cookie(cookie()).find(by_name);
        let two = two.start().await.expect("it starts");
        is_connected(&two, "b@127.0.0.1").await;
    });
}

#[test]
fn a_ping_is_answered() {
    run(async {
        let (_shop, till) = shop_and_till().await;
        let took = till.ping(SHOP, PATIENCE).await.expect("it answers");
        assert!(took < PATIENCE);
        let nobody = till.ping("nobody@127.0.0.1.invalid", PATIENCE).await;
        assert!(matches!(nobody, Err(PingError::Connect(_))), "{nobody:?}");
    });
}
