//! Nodes that leave the cluster in order.

use std::net::SocketAddr;
use std::time::Duration;

use procession::process::Groups;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::oneshot;
use procession::{Child, Context, Exit, JoinHandle, Scheduler, sleep, spawn, start, timeout};
use procession_cluster::{
    CallTermError, Letter, Node, Remote, SendTermCause, StartTermError, Term, TermReply,
};

use crate::{PATIENCE, connect, listens, next, run, until};

/// Starts two nodes that are connected and know that the other is of this crate.
async fn two() -> (Node, Node) {
    let a = listens("a@127.0.0.1").start().await.expect("it starts");
    let b = listens("b@127.0.0.1").start().await.expect("it starts");
    connect(&a, &b).await;
    for node in [&a, &b] {
        until(|| node.peers().iter().any(|peer| peer.unconfirmed.is_some())).await;
    }
    (a, b)
}

/// Starts a process that holds calls until it receives `None`, and answers calls from then on.
fn holds(node: &Node) -> Child<Option<Letter>, ()> {
    let server = start(|mut cx: Context<Option<Letter>>| async move {
        let mut held = Some(Vec::<TermReply>::new());
        while let Some(message) = cx.recv().await {
            match (message, &mut held) {
                (Some(Letter::Call { reply, .. }), Some(held)) => held.push(reply),
                (Some(Letter::Call { reply, .. }), None) => answer(reply),
                (Some(_), _) => {}
                (None, held) => held.take().into_iter().flatten().for_each(answer),
            }
        }
    });
    let member = node.attach(&server.address().map(Some));
    node.register("server", &member).expect("the name is free");
    server
}

fn answer(reply: TermReply) {
    reply.send(Term::from(7)).expect("its node still takes replies");
}

/// Calls the server of node b, and waits until the call is accepted.
async fn call(a: &Node) -> JoinHandle<Result<Term, CallTermError>> {
    let (calls, own) = (a.peers()[0].calls, a.clone());
    let called = spawn(async move {
        own.call(Remote::named("server", "b@127.0.0.1"), Term::atom("next"), PATIENCE).await
    });
    until(|| a.peers()[0].calls > calls).await;
    called
}

/// Starts a process that returns how the server of node b has ended, and why its connection has.
fn watch(a: &Node) -> Child<Letter, (Exit, String)> {
    let watch = start(|mut cx: Context<Letter>| async move {
        let mut ended = None;
        loop {
            match next(&mut cx).await {
                Letter::Down(down) => ended = Some(down.exit),
                Letter::NodeDown { why, .. } => return (ended.expect("it is told first"), why),
                _ => {}
            }
        }
    });
    let recipient = watch.address().map(|letter| letter);
    a.attach(&recipient).monitor(Remote::named("server", "b@127.0.0.1"));
    a.subscribe(&recipient);
    watch
}

#[test]
fn a_node_that_leaves_answers_what_it_has_accepted_and_takes_nothing_new() {
    run(async {
        let (a, b) = two().await;
        let (here, there) = (Groups::new(), Groups::new());
        a.share_groups("pg", &here).expect("the name is free");
        b.share_groups("pg", &there).expect("the name is free");
        let names = [&a, &b].map(|node| node.share_names("names").expect("the name is free"));
        let server = holds(&b);
        there.join("servers", server.pid()).expect("it runs");
        names[1].claim("server", server.pid()).expect("the name is free");
        until(|| here.members("servers").len() == 1 && names[0].owner("server").is_some()).await;
        let (watch, called) = (watch(&a), call(&a).await);

        let leaves = b.clone();
        let drained = spawn(async move { leaves.drain(10 * PATIENCE).await });
        // The node refuses a start, and then the start is not even sent.
        let start = || a.spawn("b@127.0.0.1", "shop", "worker", Vec::new(), PATIENCE);
        let refused =
            async { while start().await != Err(StartTermError::Send(SendTermCause::Leaving)) {} };
        timeout(PATIENCE, refused).await.expect("it is told");
        until(|| here.members("servers").is_empty() && names[0].owner("server").is_none()).await;
        let again = a.call(Remote::named("server", "b@127.0.0.1"), Term::from(1), PATIENCE).await;
        match again {
            Err(CallTermError::Send(error)) => assert_eq!(error.cause(), SendTermCause::Leaving),
            other => panic!("{other:?} came"),
        }
        assert!(a.send(Remote::named("server", "b@127.0.0.1"), Term::from(1)).is_ok());
        assert!(b.share_groups("other", &there).is_err(), "it leaves");
        let c = listens("c@127.0.0.1").start().await.expect("it starts");
        assert!(c.connect_at("b@127.0.0.1", address(&b)).await.is_err(), "it leaves");

        server.send(None).expect("it runs");
        assert_eq!(called.await.expect("it ends").expect("it is answered"), Term::from(7));
        let drained = timeout(PATIENCE, drained).await;
        assert_eq!(drained.expect("before its deadline"), Ok(0));
        let why = "it has left the cluster".to_owned();
        assert_eq!(watch.await, Ok((Exit::Left, why)));
        assert_eq!(there.local_members("servers"), [server.pid()]);
        server.cancel();
        assert_eq!(server.await, Ok(()), "it was not told");
    });
}

fn address(node: &Node) -> SocketAddr {
    node.local_addr().expect("it listens")
}

#[test]
fn a_drain_ends_at_its_deadline() {
    run(async {
        let (a, b) = two().await;
        let _server = holds(&b);
        let (watch, called) = (watch(&a), call(&a).await);
        assert_eq!(b.drain(Duration::from_millis(1)).await, 0);
        let ended = called.await.expect("it ends");
        assert!(matches!(ended, Err(CallTermError::Ended(Exit::Left))), "{ended:?}");
        assert!(matches!(watch.await, Ok((Exit::Left, _))));
        // Nothing waits without a connection.
        assert_eq!(a.drain(PATIENCE).await, 0);
    });
}

/// Goal: work that calls other nodes goes on in a program that ends. The calls take longer than the
/// node needs to end.
#[test]
fn a_program_that_ends_calls_other_nodes_as_long_as_it_holds_its_node() {
    // Its scheduler is dropped on this thread.
    let _ended = run(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let server = holds(&b);
        server.send(None).expect("it runs");
        let (scheduler, at) = (Scheduler::builder().worker_threads(1).build(), address(&b));
        let scheduler = scheduler.expect("it can be built");
        let (begins, begun) = oneshot::channel();
        let work = scheduler.start(move |cx: Context<()>| async move {
            let a = listens("a@127.0.0.1").start().await.expect("it starts");
            a.connect_at("b@127.0.0.1", at).await.expect("it accepts");
            let _held = a.hold();
            begins.send(()).expect("the test waits");
            cx.cancelled().await;
            for _ in 0..50 {
                sleep(Duration::from_millis(1)).await;
                let server = Remote::named("server", "b@127.0.0.1");
                a.call(server, Term::atom("next"), PATIENCE).await.expect("it is answered");
            }
        });
        begun.await.expect("it begins");
        let unfinished = scheduler.shutdown(PATIENCE).await;
        assert!(unfinished.is_empty(), "{unfinished}");
        assert_eq!(work.await, Ok(()));
        scheduler
    });
}

/// A program with a node that has a server in the group `servers`. Its tree stops the node first.
struct Program {
    scheduler: Scheduler,
    address: SocketAddr,
}

impl Program {
    async fn start(name: String) -> Self {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
        let started = scheduler.spawn(async move {
            let node = listens(&name).start().await.expect("it starts");
            let groups = Groups::new();
            node.share_groups("pg", &groups).expect("the name is free");
            let of_server = node.clone();
            let server = ChildSpec::new("server", move |mut cx: Context<Letter>| {
                let (node, groups) = (of_server.clone(), groups.clone());
                async move {
                    // First, so that it can be reached when it is known.
                    node.attach(&cx.address().map(|letter| letter));
                    groups.join("servers", cx.pid()).expect("it runs");
                    while let Some(letter) = cx.recv().await {
                        if let Letter::Call { reply, .. } = letter {
                            answer(reply);
                        }
                    }
                }
            });
            let leaves = node.clone();
            let drains = ChildSpec::new("node", move |cx: Context<()>| {
                let node = leaves.clone();
                async move {
                    cx.cancelled().await;
                    node.drain(PATIENCE).await;
                }
            });
            let tree = Supervisor::rest_for_one().child(server).child(drains);
            drop(tree.try_start().await.expect("it starts"));
            address(&node)
        });
        let address = started.await.expect("it ends");
        Self { scheduler, address }
    }
}

/// Starts a program, and connects to it. `count` is the number of servers then.
async fn join(node: &Node, servers: &Groups, name: &str, count: usize) -> Program {
    let program = Program::start(name.to_owned()).await;
    node.connect_at(name, program.address).await.expect("it accepts");
    until(|| servers.members("servers").len() == count).await;
    // A node learns of the kind of another one by the first answer.
    until(|| node.peers().iter().all(|peer| peer.unconfirmed.is_some())).await;
    program
}

/// Calls the servers in turn, until there are none. Returns the calls that were answered and the
/// calls that were accepted and are lost.
async fn client(node: Node, servers: Groups, from: usize) -> (usize, Vec<CallTermError>) {
    let (mut answered, mut lost) = (0, Vec::new());
    for at in from.. {
        let members = servers.members("servers");
        if members.is_empty() {
            break;
        }
        let server = node.node_pid(members[at % members.len()]);
        match node.call(server.expect("its node is known"), Term::atom("next"), PATIENCE).await {
            Ok(_) => answered += 1,
            // It was not accepted: another server may be there.
            Err(CallTermError::Send(_)) => procession::yield_now().await,
            Err(error) => lost.push(error),
        }
    }
    (answered, lost)
}

/// Goal: three programs that are shut down and started again, one after the other, lose no call of
/// 100 clients. At last all are shut down.
#[test]
fn a_rolling_restart_loses_no_call_that_was_accepted() {
    // Their schedulers are dropped on this thread.
    let _ended = run(async {
        let (node, servers) = (listens("clients@127.0.0.1").start().await, Groups::new());
        let node = node.expect("it starts");
        node.share_groups("pg", &servers).expect("the name is free");
        let names = ["a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1"];
        let (mut programs, mut ended) = (Vec::new(), Vec::new());
        for (count, name) in (1..).zip(names) {
            programs.push(join(&node, &servers, name, count).await);
        }
        let clients: Vec<_> =
            (0..100).map(|at| spawn(client(node.clone(), servers.clone(), at))).collect();
        for (at, name) in names.into_iter().enumerate() {
            let unfinished = programs[at].scheduler.shutdown(PATIENCE).await;
            assert!(unfinished.is_empty(), "{unfinished}");
            until(|| servers.members("servers").len() == 2).await;
            let next = join(&node, &servers, name, 3).await;
            ended.push(std::mem::replace(&mut programs[at], next));
        }
        for program in &programs {
            let unfinished = program.scheduler.shutdown(PATIENCE).await;
            assert!(unfinished.is_empty(), "{unfinished}");
        }
        for client in clients {
            let (answered, lost) = client.await.expect("it ends");
            assert!(answered > 0 && lost.is_empty(), "{answered} were answered, and not {lost:?}");
        }
        ended.extend(programs);
        ended
    });
}
