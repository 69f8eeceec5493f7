//! Connections that a node ends: what was accepted arrives.

use std::time::Duration;

use procession::{Child, Context, Scheduler, start};
use procession_cluster::{Letter, Node, Remote, SendTermCause, Term};

use crate::{PATIENCE, connect, listens, run, seen_by, until};

const MANY: usize = 1000;

/// Starts a process that subscribes to the connections of a node, and counts the messages that
/// arrive by the first connection.
fn counter(node: &Node) -> Child<Letter, usize> {
    let of_node = node.clone();
    let counter = start(|mut cx: Context<Letter>| async move {
        let mut count = 0;
        loop {
            match cx.recv_timeout(PATIENCE).await {
                Ok(Some(Letter::Message { .. })) => count += 1,
                Ok(Some(Letter::NodeDown { .. })) => return count,
                Ok(Some(Letter::NodeUp { .. })) => {}
                other => panic!("{other:?} came after {count}"),
            }
        }
    });
    let recipient = counter.address().map(|letter| letter);
    let member = of_node.attach(&recipient);
    of_node.register("counter", &member).expect("the name is free");
    of_node.subscribe(&recipient);
    counter
}

/// Sends more messages than the system can take at a time.
fn send_many(from: &Node, to: &Node) {
    send(MANY, from, to);
}

fn send(count: usize, from: &Node, to: &Node) {
    let counter = Remote::named("counter", to.name().as_str());
    for n in 0..count {
        from.send(counter.clone(), Term::from(vec![n as u8; 1000])).expect("there is room");
    }
}

async fn two() -> (Node, Node) {
    let a = listens("a@127.0.0.1").start().await.expect("it starts");
    let b = listens("b@127.0.0.1").start().await.expect("it starts");
    connect(&a, &b).await;
    seen_by(&b, &a).await;
    (a, b)
}

#[test]
fn what_was_accepted_arrives_before_a_stop() {
    run(async {
        for _ in 0..5 {
            let (a, b) = two().await;
            let counter = counter(&b);
            send_many(&a, &b);
            let stopping = a.stop();
            let counter_of_b = Remote::named("counter", "b@127.0.0.1");
            let refused = a.send(counter_of_b, Term::from(1)).expect_err("it has stopped");
            assert_eq!(refused.cause(), SendTermCause::NoConnection);
            assert_eq!(stopping.await, 0);
            assert_eq!(counter.await.expect("it ends"), MANY);
            assert_eq!(a.status().ends, [("this node has stopped".to_owned(), 1)]);
            assert_eq!(a.status().lost, 0);
            b.stop().await;
        }
    });
}

#[test]
fn what_was_accepted_arrives_before_a_disconnect() {
    run(async {
        let (a, b) = two().await;
        let counter = counter(&b);
        send_many(&a, &b);
        assert!(a.disconnect("b@127.0.0.1"));
        let counter_of_b = Remote::named("counter", "b@127.0.0.1");
        let refused = a.send(counter_of_b.clone(), Term::from(1)).expect_err("it is ending");
        assert_eq!(refused.cause(), SendTermCause::NoConnection);
        // The next connection is another one, although the first one may still send.
        connect(&a, &b).await;
        assert_eq!(a.peers()[0].connection, 2);
        assert_eq!(counter.await.expect("it ends"), MANY);
        assert_eq!((a.status().lost, a.status().ends.len()), (0, 1));
    });
}

#[test]
fn what_was_accepted_arrives_before_a_shutdown() {
    let builder = Scheduler::builder().worker_threads(1);
    let theirs = builder.build().expect("it can be built");
    run(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let counter = counter(&b);
        let address = b.local_addr().expect("it listens");
        let to = b.clone();
        let sends = theirs.spawn(async move {
            let a = listens("a@127.0.0.1").start().await.expect("it starts");
            a.connect_at("b@127.0.0.1", address).await.expect("it accepts");
            send_many(&a, &to);
            a
        });
        let a = sends.await.expect("it ends");
        assert!(theirs.shutdown(PATIENCE).await.is_empty());
        assert_eq!(counter.await.expect("it ends"), MANY);
        assert_eq!(a.status().ends, [("this node is shutting down".to_owned(), 1)]);
        assert_eq!(a.status().lost, 0);
    });
}

/// Goal: what a program sends last, without an end in order, is in the system when `block_on`
/// returns.
#[test]
fn what_was_accepted_is_written_when_block_on_returns() {
    let [ours, theirs] = [(); 2].map(|()| Scheduler::builder().worker_threads(1).build());
    let (ours, theirs) = (ours.expect("it can be built"), theirs.expect("it can be built"));
    let b = ours.block_on(listens("b@127.0.0.1").start()).expect("it starts");
    let counter = {
        let _entered = ours.enter();
        counter(&b)
    };
    let address = b.local_addr().expect("it listens");
    let a = theirs.block_on(async {
        let a = listens("a@127.0.0.1").start().await.expect("it starts");
        a.connect_at("b@127.0.0.1", address).await.expect("it accepts");
        send_many(&a, &b);
        a
    });
    assert_eq!(a.peers()[0].queued_bytes, 0);
    // The end of a stop is awaited in the same way.
    theirs.block_on(async { drop(a.stop()) });
    assert_eq!(a.status().ends, [("this node has stopped".to_owned(), 1)]);
    assert_eq!(counter.join().expect("it ends"), MANY);
}

/// Goal: two nodes that end at the same time do not wait for one another's answers, and the node
/// that has less to send takes what the other node sends.
#[test]
fn two_nodes_stop_at_the_same_time() {
    run(async {
        for count in [1, 10, 100, MANY, MANY] {
            let [a, b] = ["a@127.0.0.1", "b@127.0.0.1"]
                .map(|name| listens(name).patience(Duration::from_secs(60)));
            let a = a.start().await.expect("it starts");
            let b = b.start().await.expect("it starts");
            connect(&a, &b).await;
            seen_by(&b, &a).await;
            let [of_a, of_b] = [counter(&a), counter(&b)];
            send(count, &a, &b);
            send_many(&b, &a);
            a.stop();
            b.stop();
            // Long before the patience ends.
            assert_eq!(of_a.await.expect("it ends"), MANY);
            assert_eq!(of_b.await.expect("it ends"), count);
            until(|| [&a, &b].iter().all(|node| !node.status().ends.is_empty())).await;
            assert_eq!((a.status().lost, b.status().lost), (0, 0));
        }
    });
}

#[test]
fn two_nodes_disconnect_at_the_same_time() {
    run(async {
        for _ in 0..5 {
            let (a, b) = two().await;
            let [of_a, of_b] = [counter(&a), counter(&b)];
            send(10, &a, &b);
            send(300, &b, &a);
            // One node may have ended it already.
            let _ = (a.disconnect("b@127.0.0.1"), b.disconnect("a@127.0.0.1"));
            assert_eq!(of_a.await.expect("it ends"), 300);
            assert_eq!(of_b.await.expect("it ends"), 10);
            assert_eq!((a.status().lost, b.status().lost), (0, 0));
            drop((a.stop(), b.stop()));
        }
    });
}

/// Goal: a node that stops also takes what the other node has accepted before it learns of the
/// stop.
#[test]
fn what_the_other_node_has_accepted_arrives_before_a_stop() {
    run(async {
        let (a, b) = two().await;
        let of_a = counter(&a);
        send_many(&b, &a);
        a.stop();
        assert_eq!(of_a.await.expect("it ends"), MANY);
        until(|| !b.status().ends.is_empty()).await;
        assert_eq!((a.status().lost, b.status().lost), (0, 0));
        assert_eq!(b.status().ends, [("it has closed the connection".to_owned(), 1)]);
    });
}
