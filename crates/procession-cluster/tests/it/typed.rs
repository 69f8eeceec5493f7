//! Addresses of processes of other nodes, processes that receive a type of their own, and replies
//! and addresses in messages.

use std::time::Duration;

use procession::mailbox::relay::RelayCause;
use procession::mailbox::{Event, Recipient};
use procession::{Address, CallError, Child, Context, Exit, Pid, Reply, process, start, yield_now};
use procession_cluster::serialize::message;
use procession_cluster::{CallTermError, Letter, Node, Remote, Term};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use serde::{Deserialize, Serialize};

use crate::{PATIENCE, attach, listens, next, pair, run, until};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    Add(u32, u32, #[serde(with = "procession_cluster::serialize::reply")] Reply<u32>),
    Next(#[serde(with = "procession_cluster::serialize::reply")] Reply<Result<u32, String>>),
    /// Drops its reply.
    Forget(#[serde(with = "procession_cluster::serialize::reply")] Reply<u32>),
    /// Keeps its reply.
    Keep(#[serde(with = "procession_cluster::serialize::reply")] Reply<u32>),
    Tell(#[serde(with = "procession_cluster::serialize::address")] Address<Told>, u32),
    Note(String),
    Trap(Trap),
    End,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Told {
    Number(u32),
    Back(#[serde(with = "procession_cluster::serialize::address")] Address<Told>),
}

/// Panics when it is read.
#[derive(Debug, Serialize)]
struct Trap(u32);

impl<'de> Deserialize<'de> for Trap {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        std::panic::resume_unwind(Box::new("in the code of a type"))
    }
}

/// Does the jobs. Returns the notes.
async fn works(mut cx: Context<Job>) -> Vec<String> {
    let (mut count, mut kept, mut notes) = (0, Vec::new(), Vec::new());
    while let Some(job) = cx.recv().await {
        match job {
            Job::Add(a, b, reply) => reply.send(a + b),
            Job::Next(reply) => {
                count += 1;
                reply.send(if count < 3 { Ok(count) } else { Err("enough".into()) });
            }
            Job::Forget(reply) => drop(reply),
            Job::Keep(reply) => kept.push(reply),
            Job::Tell(to, number) => {
                to.send(Told::Number(number)).expect("it is connected");
                to.send(Told::Back(to.clone())).expect("it is connected");
            }
            Job::Note(text) => notes.push(text),
            Job::Trap(_) => {}
            Job::End => break,
        }
    }
    notes
}

/// Starts a worker on the second node, under the name `works`. Returns its address for the first
/// one.
fn worker(a: &Node, b: &Node) -> (Child<Job, Vec<String>>, Address<Job>) {
    let worker = start(works);
    let member = b.attach_as(worker.address());
    b.register("works", &member).expect("the name is free");
    let address = a.address(Remote::named("works", b.name().as_str()));
    assert_eq!(
        address.pid().node(),
        a.pid_of_remote(&Remote::named("works", "b@127.0.0.1")).node()
    );
    (worker, address)
}

#[test]
fn a_typed_process_is_called_by_name_by_pid_and_as_a_server() {
    run(async {
        let (a, b) = pair().await;
        let (worker, named) = worker(&a, &b);
        let by_pid = a.address::<Job>(b.attach_as(worker.address()).pid());
        assert_ne!(named, by_pid);
        for address in [&named, &by_pid] {
            let sum = address.call(|reply| Job::Add(3, 4, reply), PATIENCE).await;
            assert_eq!(sum.expect("it replies"), 7);
        }
        let near: Address<Job> = b.address(Remote::named("works", "b@127.0.0.1"));
        assert_eq!(near, *worker.address(), "it is of this node");
        let of_all = Recipient::from(named.clone());
        assert_eq!(of_all.call(Job::Next, PATIENCE).await.expect("it replies"), Ok(1));
        // As programs in Erlang call it.
        let works = Remote::named("works", "b@127.0.0.1");
        let next = a.call(works.clone(), Term::atom("next"), PATIENCE).await;
        let ok = |number: i64| Term::tuple([Term::atom("ok"), number.into()]);
        assert_eq!(next.expect("it replies"), ok(2));
        let three = [Term::atom("add"), 1.into(), 2.into()];
        let sum = a.call(works.clone(), Term::tuple(three), PATIENCE).await;
        assert_eq!(sum.expect("it replies"), Term::from(3));
        let note = Term::tuple([Term::atom("note"), Term::from("a cast")]);
        let cast = Term::tuple([Term::atom("$gen_cast"), note]);
        a.send(works, cast).expect("it is connected");
        let enough = by_pid.call(Job::Next, PATIENCE).await.expect("it replies");
        assert_eq!(enough, Err("enough".into()));
        by_pid.send(Job::Note("a message".into())).expect("it is connected");
        by_pid.send_wait(Job::End).await.expect("it is connected");
        assert_eq!(worker.await, Ok(vec!["a cast".into(), "a message".into()]));
    });
}

#[test]
fn a_server_of_letters_gets_typed_calls_as_calls() {
    run(async {
        let (a, b) = pair().await;
        let server = start({
            let b = b.clone();
            move |mut cx: Context<Letter>| async move {
                let member = attach(&b, &cx);
                b.register("server", &member).expect("the name is free");
                let mut requests = Vec::new();
                for _ in 0..3 {
                    match next(&mut cx).await {
                        Letter::Call { request, reply } => {
                            requests.push(request.to_string());
                            let answer = Term::tuple([Term::atom("error"), Term::from("no")]);
                            let number = Term::from(8);
                            let is_next = request.is_atom("next");
                            reply.send(if is_next { answer } else { number }).expect("it is there");
                        }
                        Letter::Message { term, .. } => requests.push(term.to_string()),
                        other => panic!("{other:?} came"),
                    }
                }
                requests
            }
        });
        until(|| !b.status().names.is_empty()).await;
        let address = a.address::<Job>(Remote::named("server", "b@127.0.0.1"));
        let sum = address.call(|reply| Job::Add(3, 4, reply), PATIENCE).await;
        assert_eq!(sum.expect("it replies"), 8);
        let next = address.call(Job::Next, PATIENCE).await;
        assert_eq!(next.expect("it replies"), Err("no".into()));
        address.send(Job::Note("text".into())).expect("it is connected");
        let requests = server.await.expect("it ends");
        assert_eq!(requests, ["{add,3,4}", "next", r#"{note,<<"text">>}"#]);
    });
}

#[test]
fn addresses_travel_and_come_home() {
    run(async {
        let (a, b) = pair().await;
        let (worker, address) = worker(&a, &b);
        let near = start(move |mut cx: Context<Told>| async move {
            address.send(Job::Tell(cx.address(), 7)).expect("it is connected");
            assert_eq!(cx.recv().await, Some(Told::Number(7)));
            match cx.recv().await {
                Some(Told::Back(own)) => own == cx.address() && own.is_alive(),
                other => panic!("{other:?} came"),
            }
        });
        assert_eq!(near.await, Ok(true), "it is its own address again");
        worker.send(Job::End).expect("it waits");
        worker.await.expect("it ends");
    });
}

#[test]
fn a_refused_message_comes_back_with_its_reply() {
    run(async {
        let (a, b) = pair().await;
        let (_worker, address) = worker(&a, &b);
        let nowhere = a.address::<Job>(Remote::named("works", "nobody@127.0.0.1"));
        let server = start(move |mut cx: Context<Reply<u32>>| async move {
            let reply = cx.recv().await.expect("a call comes");
            let error = nowhere.send(Job::Add(1, 2, reply)).expect_err("it is not connected");
            assert_eq!(error.relay_cause(), Some(RelayCause::NoConnection));
            match error.into_inner() {
                Job::Add(a, b, reply) => reply.send(a + b),
                other => panic!("{other:?} came"),
            }
        });
        let sum = server.call(|reply| reply, PATIENCE).await;
        assert_eq!(sum.expect("the right to reply came back"), 3);
        let long = "x".repeat(17 << 20);
        let error = address.send(Job::Note(long.clone())).expect_err("it is too long");
        assert_eq!(error.relay_cause(), Some(RelayCause::TooLong));
        assert!(matches!(error.into_inner(), Job::Note(text) if text == long));
        let trapped = Term::tuple([Term::atom("trap"), 1.into()]);
        a.send(Remote::named("works", "b@127.0.0.1"), trapped).expect("it is connected");
        address.send(Job::Trap(Trap(1))).expect("it is connected");
        a.send(Remote::named("works", "b@127.0.0.1"), Term::from(9)).expect("it is connected");
        until(|| b.peers()[0].undelivered == 3).await;
        // The connection continues.
        let sum = address.call(|reply| Job::Add(3, 4, reply), PATIENCE).await;
        assert_eq!(sum.expect("it replies"), 7);
    });
}

#[test]
fn large_messages_wait_for_room() {
    run(async {
        let (a, b) = pair().await;
        let (worker, address) = worker(&a, &b);
        for number in 0..8_u8 {
            let text = char::from(b'a' + number).to_string().repeat(9 << 20);
            address.send_wait(Job::Note(text)).await.expect("it is connected");
        }
        address.send_wait(Job::End).await.expect("it is connected");
        let notes = worker.await.expect("it ends");
        let first: String = notes.iter().map(|note| &note[..1]).collect();
        assert_eq!(first, "abcdefgh");
        assert!(notes.iter().all(|note| note.len() == 9 << 20));
    });
}

/// Counts how often it is written.
#[derive(Deserialize)]
struct Counted(String);

static WRITTEN: AtomicU64 = AtomicU64::new(0);

impl Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WRITTEN.fetch_add(1, Relaxed);
        self.0.serialize(serializer)
    }
}

/// Goal: a sender that waits for room writes its message once for each try, and not once more to
/// learn how much room it needs.
#[test]
fn a_message_that_waits_is_written_once_for_each_try() {
    run(async {
        let (a, b) = pair().await;
        let receiver = start(|mut cx: Context<Counted>| async move {
            let mut lengths = Vec::new();
            while lengths.len() < 4 {
                lengths.push(cx.recv().await.expect("it comes").0.len());
            }
            lengths
        });
        let address = a.address::<Counted>(b.attach_as(receiver.address()).pid());
        for _ in 0..4 {
            let message = Counted("x".repeat(9 << 20));
            address.send_wait(message).await.expect("it is connected");
        }
        assert_eq!(receiver.await, Ok(vec![9 << 20; 4]));
        let refused = a.peers()[0].refused;
        assert!(refused > 0, "two of them have no room");
        assert_eq!(WRITTEN.load(Relaxed), 4 + refused);
    });
}

#[test]
fn a_call_that_gets_no_reply_says_why() {
    run(async {
        let (a, b) = pair().await;
        let (worker, address) = worker(&a, &b);
        // Each node knows the kind of the other.
        until(|| b.peers()[0].unconfirmed.is_some()).await;
        let forgotten = address.call(Job::Forget, PATIENCE).await;
        assert!(matches!(forgotten, Err(CallError::NoReply)), "{forgotten:?}");
        let works = Remote::named("works", "b@127.0.0.1");
        let forgotten = a.call(works, Term::atom("forget"), PATIENCE).await;
        assert!(matches!(forgotten, Err(CallTermError::NoReply)), "{forgotten:?}");
        let late = address.call(Job::Keep, Duration::ZERO).await;
        assert!(matches!(late, Err(CallError::Elapsed)), "{late:?}");
        let ends = {
            let address = address.clone();
            start(move |_: Context<()>| async move { address.call(Job::Keep, PATIENCE).await })
        };
        until(|| a.peers()[0].sent >= 4).await;
        worker.send(Job::End).expect("it waits");
        worker.await.expect("it ends");
        let ended = ends.await.expect("it returns");
        assert!(matches!(ended, Err(CallError::NoReply)), "its process ended: {ended:?}");
        until(|| b.status().names.is_empty()).await;
        let (_worker, address) = self::worker(&a, &b);
        let before = b.peers()[0].received;
        let lost = {
            let address = address.clone();
            start(move |_: Context<()>| async move { address.call(Job::Keep, PATIENCE).await })
        };
        until(|| b.peers()[0].received > before).await;
        b.stop();
        let lost = lost.await.expect("it returns");
        assert!(lost.as_ref().is_err_and(CallError::is_no_connection), "{lost:?}");
        until(|| a.peers().is_empty()).await;
        let refused = address.call(Job::Keep, PATIENCE).await.expect_err("it is not connected");
        assert!(refused.is_refused() && refused.is_no_connection());
        assert!(matches!(refused.into_inner(), Some(Job::Keep(_))));
    });
}

#[test]
fn replies_that_nobody_awaits_are_forgotten() {
    run(async {
        let (a, b) = pair().await;
        let (worker, address) = worker(&a, &b);
        for _ in 0..300 {
            let late = address.call(Job::Keep, Duration::ZERO).await;
            assert!(matches!(late, Err(CallError::Elapsed)), "{late:?}");
        }
        let sum = address.call(|reply| Job::Add(3, 4, reply), PATIENCE).await;
        assert_eq!(sum.expect("it replies"), 7);
        assert!(b.peers()[0].received > 300);
        // Without that, there are 300.
        assert!(a.status().peers[0].calls < 130, "{} calls", a.status().peers[0].calls);
        worker.send(Job::End).expect("it waits");
        worker.await.expect("it ends");
    });
}

#[test]
fn a_name_is_monitored_and_not_linked_to() {
    run(async {
        let (a, b) = pair().await;
        let (worker, address) = worker(&a, &b);
        let far: Pid = address.pid();
        assert_eq!(a.node_pid(far), None);
        let near = start(move |mut cx: Context<()>| async move {
            cx.trap_exits(true);
            let monitor = cx.monitor(far);
            process::link(far);
            match cx.recv_event().await {
                Some(Event::Exit(exit)) => {
                    assert_eq!((exit.from, exit.exit), (Some(far), Exit::NoProcess));
                }
                other => panic!("{other:?} came"),
            }
            address.send(Job::End).expect("it is connected");
            cx.down(monitor).await.map(|down| (down.pid == far, down.exit))
        });
        assert_eq!(near.await, Ok(Some((true, Exit::Normal))));
        worker.await.expect("it ends");
    });
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OrderV1(String);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[test]
fn messages_with_versions_have_addresses() {
    run(async {
        let (a, b) = pair().await;
        let orders =
            message::<Order>("shop.order", 2).older(1, |OrderV1(item)| Order { item, count: 1 });
        let shop = start(|mut cx: Context<Order>| async move {
            let mut got = Vec::new();
            while got.len() < 2 {
                got.extend(cx.recv().await);
            }
            got
        });
        let member = orders.attach(&b, shop.address());
        let old = message::<OrderV1>("shop.order", 1).address(&a, member.pid());
        let new = orders.address(&a, member.pid());
        let newer = message::<Order>("shop.order", 3).address(&a, member.pid());
        old.send(OrderV1("tea".into())).expect("it is connected");
        newer.send(Order { item: "milk".into(), count: 9 }).expect("it is connected");
        new.send(Order { item: "sugar".into(), count: 2 }).expect("it is connected");
        let order = |item: &str, count| Order { item: item.into(), count };
        assert_eq!(shop.await, Ok(vec![order("tea", 1), order("sugar", 2)]));
        assert_eq!(b.peers()[0].undelivered, 1, "of the version that is not known");
    });
}

#[test]
fn a_reply_is_only_converted_in_a_message_between_nodes() {
    use procession_cluster::serialize::{from_term, to_term};
    run(async {
        let node = listens("alone@127.0.0.1").start().await.expect("it starts");
        let server = start(|mut cx: Context<Reply<u32>>| async move {
            let reply = cx.recv().await.expect("a call comes");
            let job = Job::Add(1, 2, reply);
            let error = to_term(&job).expect_err("it goes nowhere");
            assert!(error.to_string().contains("only in a message"), "{error}");
            if let Job::Add(a, b, reply) = job {
                reply.send(a + b);
            }
        });
        assert_eq!(server.call(|reply| reply, PATIENCE).await.ok(), Some(3));
        let from = Term::tuple([
            node.attach(&server.address().map(|_| unreachable!())).pid().into(),
            1.into(),
        ]);
        let term = Term::tuple([Term::atom("forget"), from]);
        let error = from_term::<Job>(term).expect_err("it comes from nowhere");
        assert!(error.to_string().contains("typed process"), "{error}");
        yield_now().await;
    });
}
