//! Messages and calls.

use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::{Context, Exit, SpawnOptions, start};
use procession_cluster::{CallTermError, Letter, Remote, SendTermCause, Term};
use procession_sync::atomic::{AtomicUsize, Ordering};

use crate::{PATIENCE, attach, next, pair, run, until};

const A: &str = "a@127.0.0.1";

/// Answers each call with its request, until it is cancelled.
async fn echo(mut cx: Context<Letter>) {
    while let Some(letter) = cx.recv().await {
        if let Letter::Call { request, reply } = letter {
            reply.send(request).expect("the caller is connected");
        }
    }
}

#[test]
fn messages_arrive_in_order_with_their_sender() {
    run(async {
        const MANY: u32 = 10_000;
        let (a, b) = pair().await;
        let receives = start(|mut cx: Context<Letter>| async move {
            let mut come = Vec::new();
            while come.len() < MANY as usize {
                match next(&mut cx).await {
                    Letter::Message { from, term } => come.push((from, term)),
                    other => panic!("{other:?} came"),
                }
            }
            come
        });
        let receiver = b.attach(&receives.address().map(|letter| letter));
        b.register("sink", &receiver).expect("the name is free");
        let sends_of = a.clone();
        let sends = start(move |cx: Context<Letter>| async move {
            let own = attach(&a, &cx);
            let sink = Remote::named("sink", "b@127.0.0.1");
            for n in 0..MANY {
                let term = match n % 1000 {
                    // Longer than a fragment.
                    0 => Term::tuple([n.into(), Term::from(vec![n as u8; 200_000])]),
                    _ => Term::tuple([n.into()]),
                };
                own.send_wait(sink.clone(), term).await.expect("it is connected");
            }
            own.pid()
        });
        let sender = sends.await.expect("it ends");
        let come = receives.await.expect("it ends");
        assert_ne!(sender.node, receiver.pid().node);
        // The other node confirms all messages.
        until(|| sends_of.peers()[0].unconfirmed == Some(0)).await;
        let peer = &sends_of.peers()[0];
        assert_eq!(peer.sent, u64::from(MANY));
        assert!(peer.round_trip.is_some());
        for (n, (from, term)) in come.iter().enumerate() {
            assert_eq!(from.as_ref(), Some(&sender));
            let items = term.as_tuple().expect("it is a tuple");
            assert_eq!(items[0], Term::from(n as u32));
            if let Some(Term::Binary(bytes)) = items.get(1) {
                assert!(bytes.len() == 200_000 && bytes.iter().all(|&byte| byte == n as u8));
            }
        }
    });
}

#[test]
fn calls_are_answered_in_both_directions() {
    run(async {
        let (a, b) = pair().await;
        let servers = [&a, &b].map(|node| {
            let server = start(echo);
            let member = node.attach(&server.address().map(|letter| letter));
            node.register("echo", &member).expect("the name is free");
            server
        });
        for (node, name) in [(&a, "b@127.0.0.1"), (&b, A)] {
            let request = Term::list([Term::atom("are"), Term::from("you"), Term::from(1.5)]);
            let reply = node.call(Remote::named("echo", name), request.clone(), PATIENCE).await;
            assert_eq!(reply.expect("it replies"), request);
        }
        servers.iter().for_each(|server| server.cancel());
    });
}

#[cfg(feature = "serde")]
#[test]
fn calls_have_requests_and_replies_of_rust_types() {
    use procession_cluster::serialize::{CallError, from_term};

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Job {
        Add(u32, u32),
        Fail { why: String },
    }

    run(async {
        let (a, b) = pair().await;
        let server = start(|mut cx: Context<Letter>| async move {
            while let Some(letter) = cx.recv().await {
                let Letter::Call { request, reply } = letter else { continue };
                let sum = match from_term(request).expect("it is a job") {
                    Job::Add(one, other) => Ok(one + other),
                    Job::Fail { why } => Err(why),
                };
                reply.send_as(&sum).expect("the caller is connected");
            }
        });
        let adder = b.attach(&server.address().map(|letter| letter)).pid();
        let ask = async |job: &Job| a.call_as::<Result<u32, String>>(&adder, job, PATIENCE).await;
        assert_eq!(ask(&Job::Add(3, 4)).await.expect("it replies"), Ok(7));
        let failed = ask(&Job::Fail { why: "no".into() }).await;
        assert_eq!(failed.expect("it replies"), Err("no".to_owned()));
        // The reply returns if it is of another type.
        let wrong = a.call_as::<String>(&adder, &Job::Add(1, 1), PATIENCE).await;
        let Err(CallError::Reply(_, reply)) = wrong else { panic!("{wrong:?}") };
        assert_eq!(reply, Term::tuple([Term::atom("ok"), Term::from(2)]));
        server.cancel();
    });
}

#[test]
fn a_call_without_a_callee_fails_at_once() {
    run(async {
        let (a, _b) = pair().await;
        let nobody = Remote::named("nobody", "b@127.0.0.1");
        let failed = a.call(nobody, Term::from(1), PATIENCE).await.expect_err("there is none");
        let CallTermError::Ended(exit) = failed else { panic!("{failed}") };
        assert_eq!(exit, procession::Exit::NoProcess);
        // A node that is not connected returns the request.
        let far = Remote::named("echo", "c@127.0.0.1");
        let failed = a.call(far, Term::from(7), PATIENCE).await.expect_err("it is not connected");
        let CallTermError::Send(refused) = failed else { panic!("{failed}") };
        assert_eq!(refused.cause(), SendTermCause::NoConnection);
        assert_eq!(refused.into_inner(), Term::from(7));
    });
}

#[test]
fn a_late_reply_is_dropped() {
    run(async {
        let (a, b) = pair().await;
        let server = start(|mut cx: Context<Letter>| async move {
            let Letter::Call { reply, .. } = next(&mut cx).await else { panic!("it is a call") };
            // The caller has given up by now.
            let Letter::Cast(_) = next(&mut cx).await else { panic!("it is a cast") };
            reply.send(Term::from(1)).expect("the node is connected");
        });
        let member = b.attach(&server.address().map(|letter| letter));
        let client = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&a, &cx);
            let late = own.call(member.pid(), Term::from(0), Duration::from_millis(1)).await;
            assert!(matches!(late, Err(CallTermError::TimedOut)));
            let cast = Term::tuple([Term::atom("$gen_cast"), Term::from(0)]);
            own.send(member.pid(), cast).expect("it is connected");
            server.await.expect("it ends");
            // The reply has been sent. Nothing arrives but what follows it.
            let echo = start(echo);
            let there = member.node().attach(&echo.address().map(|letter| letter));
            own.call(there.pid(), Term::from(2), PATIENCE).await.expect("it replies");
            echo.cancel();
            assert!(cx.try_recv().is_err());
        });
        client.await.expect("it ends");
    });
}

#[test]
fn a_message_that_cannot_be_sent_comes_back() {
    run(async {
        let (a, _b) = pair().await;
        let to = Remote::named("sink", "b@127.0.0.1");
        let twice = Term::Map(vec![(1.into(), 1.into()), (1.into(), 2.into())]);
        let refused = a.send(to.clone(), twice.clone()).expect_err("a key is there twice");
        assert!(matches!(refused.cause(), SendTermCause::NotPortable(_)));
        assert_eq!(refused.into_inner(), twice);
        let long = Term::Binary(Arc::from(vec![0; (16 << 20) + 1]));
        let refused = a.send(to, long).expect_err("it is too long");
        assert_eq!(refused.cause(), SendTermCause::TooLong);
    });
}

#[test]
fn small_messages_pass_large_ones_of_others() {
    run(async {
        let (a, b) = pair().await;
        let server = start(echo);
        let member = b.attach(&server.address().map(|letter| letter));
        let large = Term::from(vec![7; 15 << 20]);
        a.send(member.pid(), large).expect("the queue is empty");
        let client = start({
            let (a, member) = (a.clone(), member.clone());
            move |cx: Context<Letter>| async move {
                let own = attach(&a, &cx);
                own.call(member.pid(), Term::from(1), PATIENCE).await.expect("it replies");
                // The large one still waits, in part.
                a.peers()[0].queued_bytes
            }
        });
        // How much of the message waits depends on the speed of the sockets. The test only checks
        // that it returned, with fragments of another message around it.
        client.await.expect("it ends");
        server.cancel();
    });
}

/// A connection remembers the receiver of its latest message. Goal: a name that has another process
/// leads to that one, however it came about.
#[test]
fn a_name_is_followed_from_process_to_process() {
    run(async {
        let (a, b) = pair().await;
        /// Returns its number to each caller.
        fn numbered(number: i64) -> procession::Child<Letter, ()> {
            start(move |mut cx: Context<Letter>| async move {
                while let Some(letter) = cx.recv().await {
                    if let Letter::Call { reply, .. } = letter {
                        reply.send(Term::from(number)).expect("the caller is connected");
                    }
                }
            })
        }
        let call = async |name: &str| {
            let name = Remote::named(name, "b@127.0.0.1");
            let limit = PATIENCE;
            a.call(name, Term::atom("who"), limit).await.map(|term| term.as_integer())
        };
        let processes = [1, 2, 3].map(numbered);
        let addresses = processes.each_ref().map(|process| process.address().clone());
        let recipients = addresses.each_ref().map(|address| address.map(|letter| letter));
        let members = recipients.each_ref().map(|recipient| b.attach(recipient));
        b.register("one", &members[0]).expect("the name is free");
        assert_eq!(call("one").await.expect("it replies"), Some(1));
        assert_eq!(call("one").await.expect("it replies"), Some(1));
        // It is unregistered, and registered for another.
        assert!(b.unregister("one"));
        b.register("one", &members[1]).expect("the name is free");
        assert_eq!(call("one").await.expect("it replies"), Some(2));
        // Its process ends.
        processes[1].cancel();
        until(|| !addresses[1].is_alive()).await;
        until(|| b.status().attached == 2).await;
        call("one").await.expect_err("no process has the name");
        b.register("one", &members[2]).expect("the name is free");
        assert_eq!(call("one").await.expect("it replies"), Some(3));
        // A function finds another process each time.
        let turn = AtomicUsize::new(0);
        let found = [recipients[0].clone(), recipients[2].clone()];
        b.find_names_with(move |_| {
            Some(found[turn.fetch_add(1, Ordering::Relaxed) / 2 % 2].clone())
        });
        // A call asks for the monitor and for the message.
        for expected in [1, 3, 1, 3] {
            assert_eq!(call("found").await.expect("it replies"), Some(expected));
        }
    });
}

/// The caller would otherwise wait for its time limit.
#[test]
fn a_call_that_finds_no_room_fails() {
    run(async {
        let (a, b) = pair().await;
        let full = SpawnOptions::new().mailbox(1, WhenFull::Reject);
        let full = full.start(|cx: Context<Letter>| async move { cx.cancelled().await });
        full.send(Letter::Cast(Term::from(1))).expect("there is room");
        let member = b.attach(&full.address().map(|letter| letter));
        b.register("full", &member).expect("the name is free");
        let called = a.call(Remote::named("full", "b@127.0.0.1"), Term::from(2), PATIENCE).await;
        match called {
            Err(CallTermError::Ended(exit)) => assert_eq!(exit, Exit::failed("system_limit")),
            other => panic!("the call must be refused: {other:?}"),
        }
        assert_eq!(b.peers()[0].undelivered, 1);
        full.cancel();
        full.await.expect("it ends");
    });
}

/// Goal: the counters of two nodes agree. Method: what one has sent, the other has received, and
/// both have sent a message.
#[test]
fn two_nodes_count_the_same() {
    run(async {
        let (a, b) = pair().await;
        for (from, to) in [(&a, &b), (&b, &a)] {
            let nobody = Remote::named("nobody", to.name().as_str());
            from.send(nobody, Term::from(vec![7; 10_000])).expect("it is connected");
        }
        for (from, to) in [(&a, &b), (&b, &a)] {
            until(|| {
                let (from, to) = (&from.peers()[0], &to.peers()[0]);
                let is_same = from.sent == to.received && from.bytes_sent == to.bytes_received;
                is_same && to.undelivered == 1 && to.bytes_received > 10_000
            })
            .await;
        }
    });
}
