//! Typed messages with processes of the BEAM, and processes that are started there.

use procession::mailbox::Event;
use procession::{Context, Exit, Reply, Scheduler, start};
use procession_cluster::{Cookie, Grants, Node, Remote, StartTermError, Term};
use serde::{Deserialize, Serialize};

use super::{Beam, LIMIT, connect, start_epmd};

const BEAM: &str = "beam_typed@127.0.0.1";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    Add(u32, u32, #[serde(with = "procession_cluster::serialize::reply")] Reply<Added>),
    Note(String),
}

/// The echo of the BEAM returns the request.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Added(String, u32, u32);

/// Adds, and returns the notes after the last of two.
async fn adder(mut cx: Context<Job>) -> Vec<String> {
    let mut notes = Vec::new();
    while notes.len() < 2 {
        match cx.recv().await {
            Some(Job::Add(a, b, reply)) => reply.send(Added("sum".into(), a, b)),
            Some(Job::Note(text)) => notes.push(text),
            None => break,
        }
    }
    notes
}

/// Runs a test with a node of the BEAM that has its echo, and one of this crate.
fn with_beam<F: Future<Output = ()> + Send>(test: impl FnOnce(Node) -> F + Send) {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    let _beam = Beam::start(BEAM, "");
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    scheduler.block_on(async move {
        let node = Node::builder("typed@127.0.0.1")
            .cookie(Cookie::new("secret").expect("it has a text"))
            .listen((std::net::Ipv4Addr::LOCALHOST, 0).into())
            .register()
            .grant("*", Grants::new().exits())
            .start()
            .await
            .expect("it starts");
        connect(&node, BEAM).await;
        node.ping(BEAM, LIMIT).await.expect("it answers");
        test(node.clone()).await;
        node.stop();
    });
}

#[test]
fn typed_messages_and_starts_on_a_node_of_the_beam() {
    with_beam(|node| async move {
        let process = start(move |cx: Context<()>| async move {
            calls_a_server(&node).await;
            is_called(&node).await;
            starts(cx, &node).await;
        });
        process.await.expect("it ends");
    });
}

async fn calls_a_server(node: &Node) {
    let echo = node.address::<Job>(Remote::named("echo", BEAM));
    let added = loop {
        // It may not have its name yet.
        match echo.call(|reply| Job::Add(3, 4, reply), LIMIT).await {
            Ok(added) => break added,
            Err(error) => assert!(error.is_no_reply(), "{error:#}"),
        }
    };
    assert_eq!(added, Added("add".into(), 3, 4));
    let long = "x".repeat(1 << 20);
    echo.send_wait(Job::Note(long)).await.expect("it is connected");
}

/// A server of the BEAM calls a typed process, and casts to it.
async fn is_called(node: &Node) {
    let adder = start(adder);
    node.register("adder", &node.attach_as(adder.address())).expect("the name is free");
    let to = || Term::tuple([Term::atom("adder"), node.name().clone().into()]);
    let request = Term::tuple([Term::atom("add"), 3.into(), 4.into()]);
    let call = vec![to(), request];
    let caller = start({
        let node = node.clone();
        move |mut cx: Context<()>| async move {
            // It ends as usual only if its call has an answer.
            let started = node.spawn_monitor(BEAM, "gen_server", "call", call, LIMIT).await;
            let (_, monitor) = started.expect("it is started");
            cx.down(monitor).await.map(|down| down.exit)
        }
    });
    assert_eq!(caller.await, Ok(Some(Exit::Normal)));
    let note = |text: &str| Term::tuple([Term::atom("note"), Term::from(text)]);
    let limit = LIMIT;
    let cast = vec![to(), note("a cast")];
    node.spawn(BEAM, "gen_server", "cast", cast, limit).await.expect("it is started");
    let sent = vec![to(), note("a message")];
    node.spawn(BEAM, "erlang", "send", sent, limit).await.expect("it is started");
    let mut notes = adder.await.expect("it ends");
    notes.sort();
    assert_eq!(notes, ["a cast", "a message"]);
}

async fn starts(mut cx: Context<()>, node: &Node) {
    cx.trap_exits(true);
    let shutdown = || vec![Term::atom("shutdown")];
    let started = node.spawn_monitor(BEAM, "procession", "worker", shutdown(), LIMIT).await;
    let (process, monitor) = started.expect("it is started");
    let down = cx.down(monitor).await.expect("it is told");
    assert_eq!((down.pid, down.exit), (node.pid(&process), Exit::Shutdown));
    let linked = node.spawn_link(BEAM, "procession", "worker", shutdown(), LIMIT).await;
    let linked = linked.expect("it is started");
    match cx.recv_event().await {
        Some(Event::Exit(exit)) => {
            assert_eq!((exit.from, exit.exit), (Some(node.pid(&linked)), Exit::Shutdown));
        }
        other => panic!("{other:?} came"),
    }
    let started = node.spawn_monitor(BEAM, "procession", "nothing", vec![], LIMIT).await;
    let (_, monitor) = started.expect("its process is started, and fails");
    let down = cx.down(monitor).await.expect("it is told");
    assert!(matches!(&down.exit, Exit::Failed(why) if why.contains("undef")), "{}", down.exit);
    let waits = vec![Term::atom("wait")];
    let waits = node.spawn(BEAM, "procession", "worker", waits, LIMIT).await;
    let stop = Term::tuple([Term::atom("stop"), Term::atom("normal")]);
    node.send(waits.expect("it is started"), stop).expect("it is connected");
    let late = node.spawn("nobody@127.0.0.1", "a", "b", vec![], LIMIT).await;
    assert!(matches!(late, Err(StartTermError::Send(_))), "{late:?}");
}
