//! Other nodes that misbehave once they are connected.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender};
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::Event;
use procession::mailbox::relay::{self, RemoteSignal};
use procession::process::{link, unlink};
use procession::time::Instant;
use procession::{Context, Exit, Scheduler};

use super::relations::RELATIONS_MAX;
use crate::grants::Reach;
use crate::handshake::{Handshake, Introduction, Progress, flags};
use crate::node::start::STARTS_MAX;
use crate::pulse;
use crate::release::{OLDEST, Release, Statement, UNSTATED};
use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, NodePid, Reference};
use crate::wire::names::{GRANTS_NAME, PULSE, STATUS_NAME};
use crate::{
    ApplyError, CallTermError, ConnectError, Cookie, Grants, Letter, Node, PeerInfo, Remote,
    SendTermCause, StartTermError, Term,
};

fn cookie() -> Cookie {
    Cookie::new("secret").expect("it has a text")
}

/// The limit of messages, which a test exceeds.
const MESSAGE_LIMIT: usize = 20 << 20;

async fn listens(patience: u64) -> Node {
    let node = Node::builder("a@127.0.0.1").cookie(cookie()).message_limit(MESSAGE_LIMIT);
    let node = node.patience(Duration::from_secs(patience));
    node.listen((Ipv4Addr::LOCALHOST, 0).into()).start().await.expect("it starts")
}

/// Returns a scheduler with a node that listens.
fn listening(patience: u64) -> (Scheduler, Node) {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let node = scheduler.block_on(listens(patience));
    (scheduler, node)
}

/// Waits until a connection of a node has ended.
fn until_ended(scheduler: &Scheduler, node: &Node) {
    scheduler.block_on(async {
        while node.status().ends.is_empty() {
            procession::yield_now().await;
        }
    });
}

/// Connects as the node `b@127.0.0.1`, by hand.
fn connect(node: &Node, flags: u64) -> TcpStream {
    connect_as("b@127.0.0.1", node, flags)
}

/// Connects as another node, by hand.
fn connect_as(name: &str, node: &Node, flags: u64) -> TcpStream {
    let mut stream =
        TcpStream::connect(node.local_addr().expect("it listens")).expect("it listens");
    let name = Atom::new(name).expect("it is short");
    let own = Introduction { name, creation: 7, flags };
    let mut out = Vec::new();
    let mut handshake = Handshake::initiator(own, cookie(), 5, node.name().clone(), 2, &mut out);
    let mut come = Vec::new();
    loop {
        stream.write_all(&out).expect("it reads");
        out.clear();
        match handshake.take(&mut come, &mut out).expect("it agrees") {
            Progress::Done(_) => break,
            _ if !out.is_empty() => {}
            _ => {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("it answers");
                come.extend(byte);
            }
        }
    }
    stream
}

fn pid() -> NodePid {
    NodePid { node: Atom::known("b@127.0.0.1"), id: 9, serial: 0, creation: 7 }
}

/// The exit that a monitor of a process of the other node reports, once `spoil` has been called.
fn told_after(
    patience: u64,
    flags: u64,
    spoil: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> Exit {
    let (scheduler, node) = listening(patience);
    let mut stream = connect(&node, flags);
    let (sender, monitored) = std::sync::mpsc::channel();
    let watcher = scheduler.start(move |mut cx: Context<Letter>| async move {
        let own = node.attach(&cx.address().map(|letter| letter));
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        own.monitor(pid());
        sender.send(()).expect("it waits");
        match cx.recv().await {
            Some(Letter::Down(down)) => down.exit,
            other => panic!("{other:?} came"),
        }
    });
    monitored.recv().expect("it is connected");
    spoil(&mut stream);
    // It stays open during the test.
    watcher.join().expect("it ends")
}

#[test]
fn a_node_that_is_silent_is_given_up() {
    assert_eq!(told_after(1, flags::OWN, |_| {}), Exit::NoConnection);
}

/// Reads a frame that is not a tick.
fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("it sends");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).expect("it sends");
        if !frame.is_empty() {
            return frame;
        }
    }
}

/// Writes an operation with what it carries.
fn write(stream: &mut TcpStream, terms: &[&Term]) {
    let mut bytes = vec![131, 68, 0];
    for term in terms {
        Writer::new(&mut bytes).term(term).expect("it is right");
    }
    let length = (bytes.len() as u32).to_be_bytes();
    stream.write_all(&[&length[..], &bytes].concat()).expect("it reads");
}

/// Reads operations until one has this number, and returns its elements. Parts of large messages
/// are left out.
fn read_operation(stream: &mut TcpStream, number: i64) -> Vec<Term> {
    loop {
        let frame = read_frame(stream);
        if frame[1] != 68 {
            continue;
        }
        let operation = Reader::new(&frame[3..], &[], 1 << 16).term().expect("it is an operation");
        let Term::Tuple(items) = operation else { panic!("{operation} came") };
        if items[0] == Term::from(number) {
            return items;
        }
    }
}

/// Reads operations until one has this number, and returns the reason behind it.
fn read_reason(stream: &mut TcpStream, number: i64) -> Term {
    loop {
        let frame = read_frame(stream);
        let mut reader = Reader::new(&frame[3..], &[], 1 << 17);
        let operation = reader.term().expect("it is an operation");
        if operation.as_tuple().is_some_and(|items| items[0] == Term::from(number)) {
            return reader.term().expect("it has a reason");
        }
    }
}

/// Answers the next question whether the node is there, by an operation that has this reason.
fn answer_question(stream: &mut TcpStream, reason: &Term) {
    loop {
        let frame = read_frame(stream);
        let mut reader = Reader::new(&frame[3..], &[], 1 << 17);
        let request = reader.term().expect("it is an operation");
        let items = request.as_tuple().expect("it is a tuple");
        if items[0] != Term::from(19) || !items[2].is_atom(PULSE) {
            continue;
        }
        return answer(stream, items, reason);
    }
}

/// Answers a question, by an operation that has this reason.
fn answer(stream: &mut TcpStream, question: &[Term], reason: &Term) {
    let [_, from, to, monitor] = question else { panic!("it has other items") };
    let answer = [Term::from(21), to.clone(), from.clone(), monitor.clone(), reason.clone()];
    write(stream, &[&Term::tuple(answer)]);
}

/// Goal: a node of the BEAM that ticks rarely stays, because it answers, until it stops to answer.
#[test]
fn a_node_that_answers_is_kept_although_it_never_ticks() {
    let (answered, answers) = std::sync::mpsc::channel();
    let told = told_after(1, flags::OWN, move |stream| {
        // Each arrives after a quarter of a second. Without them, five are the end.
        for _ in 0..8 {
            answer_question(stream, &Term::atom("noproc"));
        }
        answered.send(()).expect("the test waits");
    });
    answers.try_recv().expect("it was kept until then");
    assert_eq!(told, Exit::NoConnection);
}

/// A node that confirms two messages of five, and stops.
#[test]
fn the_end_tells_the_number_of_unconfirmed_messages() {
    let (scheduler, node) = listening(1);
    let (sender, subscribed) = std::sync::mpsc::channel();
    let subscriber = scheduler.start({
        let node = node.clone();
        move |mut cx: Context<Letter>| async move {
            node.subscribe(&cx.address().map(|letter| letter));
            sender.send(()).expect("the test waits");
            loop {
                match cx.recv().await {
                    Some(Letter::NodeUp { .. }) => {
                        for n in 0..5 {
                            node.send(pid(), Term::from(n)).expect("it has room");
                        }
                    }
                    Some(Letter::NodeDown { unconfirmed, .. }) => return unconfirmed,
                    other => panic!("{other:?} came"),
                }
            }
        }
    });
    subscribed.recv().expect("it subscribes");
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::tuple([Term::atom("received"), Term::from(0)]));
    answer_question(&mut stream, &Term::tuple([Term::atom("received"), Term::from(2)]));
    assert_eq!(subscriber.join().expect("it ends"), Some(3));
}

#[test]
fn a_node_that_breaks_the_protocol_is_given_up() {
    let frames: [&[u8]; 6] = [
        // A frame beyond the limit, a frame without a version, and a fragment of nothing.
        &[255, 255, 255, 255],
        &[0, 0, 0, 2, 1, 2],
        &[0, 0, 0, 18, 131, 70, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        // An operation that is none, an unknown operation, and an operation with an extra term.
        &[0, 0, 0, 4, 131, 68, 0, 106],
        &[0, 0, 0, 7, 131, 68, 0, 104, 1, 97, 99],
        &[0, 0, 0, 9, 131, 68, 0, 104, 1, 97, 7, 106, 106],
    ];
    for frame in frames {
        let told = told_after(60, flags::OWN, move |stream| {
            stream.write_all(frame).expect("it reads");
            // It is closed immediately, long before the patience ends.
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        });
        assert_eq!(told, Exit::NoConnection, "{frame:?}");
    }
}

/// The request of the node made by hand to start a process, with its reference.
fn spawn_request(function: &str, id: u32, options: Vec<Term>) -> (Term, Term) {
    let reference = Reference::new(Atom::known("b@127.0.0.1"), 7, &[id]);
    let reference = Term::from(reference.expect("it has a word"));
    let what = [Term::atom("shop"), Term::atom(function), Term::from(0)];
    let request = [
        Term::from(29),
        reference.clone(),
        pid().into(),
        pid().into(),
        Term::tuple(what),
        Term::List(options),
    ];
    (reference, Term::tuple(request))
}

/// Goal: a process hears that it was started before it hears of the end, whatever waits for the
/// node.
#[test]
fn a_start_is_told_before_the_end_of_the_process() {
    let (_scheduler, node) = listening(60);
    let grants = Grants::new().spawn("shop", "worker");
    node.grant("b@127.0.0.1", grants).expect("it names a node");
    node.export("shop", "worker", 0, async |_: Context<Letter>, _| {});
    let mut stream = connect(&node, flags::OWN);
    while node.peers().is_empty() {
        std::thread::yield_now();
    }
    // More than the system takes from a node while nobody reads.
    for _ in 0..14 {
        node.send(pid(), Term::Binary(vec![7; 1 << 20].into())).expect("there is room");
    }
    let (_, request) = spawn_request("worker", 1, vec![Term::atom("monitor")]);
    write(&mut stream, &[&request, &Term::List(Vec::new())]);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let frame = read_frame(&mut stream);
        if frame[1] != 68 {
            continue;
        }
        let operation = Reader::new(&frame[3..], &[], 1 << 16).term().expect("it is an operation");
        let items = operation.as_tuple().expect("it is a tuple");
        seen.extend([28, 31].into_iter().find(|&number| items[0] == Term::from(number)));
    }
    assert_eq!(seen, [31, 28]);
}

/// A node that links a process which has started another one there, and has not asked for a link.
#[test]
fn a_start_makes_only_the_relations_that_were_asked_for() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    let starter = scheduler.start(move |mut cx: Context<Letter>| async move {
        let _own = node.attach(&cx.address().map(|letter| letter));
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        let limit = Duration::from_secs(60);
        let started = node.spawn("b@127.0.0.1", "m", "f", Vec::new(), limit).await;
        assert_eq!(started.expect("it is answered"), pid());
        matches!(cx.recv().await, Some(Letter::Message { .. }))
    });
    let request = read_operation(&mut stream, 29);
    let (id, from) = (request[1].clone(), request[2].clone());
    let reply = [Term::from(31), id, from.clone(), Term::from(3), pid().into()];
    let exit = [Term::from(3), pid().into(), from.clone(), Term::atom("boom")];
    let send = [Term::from(2), Term::atom(""), from];
    write(&mut stream, &[&Term::tuple(reply)]);
    write(&mut stream, &[&Term::tuple(exit)]);
    write(&mut stream, &[&Term::tuple(send), &Term::from(7)]);
    assert_eq!(starter.join(), Ok(true));
}

/// Goal: a node that permits only what is granted checks each message where it arrives, whatever
/// the other node knows. It drops and counts messages without a grant, even to the latest receiver.
#[test]
fn messages_need_a_grant_where_they_arrive() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let builder = Node::builder("a@127.0.0.1").cookie(cookie()).grants_only();
    let builder = builder.grant("b@127.0.0.1", Grants::new().send("open"));
    let node = scheduler.block_on(builder.listen((Ipv4Addr::LOCALHOST, 0).into()).start());
    let node = node.expect("it starts");
    let (sender, came) = std::sync::mpsc::channel();
    let receiver = scheduler.start(move |mut cx: Context<Letter>| async move {
        while let Some(Letter::Message { term, .. }) = cx.recv().await {
            sender.send(term).expect("the test waits");
        }
    });
    let member = node.attach(&receiver.address().map(|letter| letter));
    node.register("open", &member).expect("the name is free");
    node.register("closed", &member).expect("the name is free");
    let mut stream = connect(&node, flags::OWN);
    let mut send = |to: &str, number: i64| {
        let control = [Term::from(6), pid().into(), Term::atom(""), Term::atom(to)];
        write(&mut stream, &[&Term::tuple(control), &Term::from(number)]);
    };
    let wait_for = |denied: u64| {
        while node.peers().first().is_none_or(|peer| peer.denied < denied) {
            std::thread::yield_now();
        }
    };
    send("closed", 1);
    send("nobody", 2);
    send("open", 3);
    send("open", 4);
    assert_eq!([(); 2].map(|()| came.recv()), [Ok(Term::from(3)), Ok(Term::from(4))]);
    wait_for(2);
    node.grant("b@127.0.0.1", Grants::new().send("closed")).expect("it names a node");
    send("open", 5);
    send("closed", 6);
    assert_eq!(came.recv(), Ok(Term::from(6)));
    wait_for(3);
    let info = &node.peers()[0];
    assert_eq!((info.denied, info.received, info.undelivered), (3, 6, 0));
    receiver.cancel();
}

/// Goal: a node learns what it may send after the answer to its first question, by a signal that an
/// older node ignores because it is about an unknown monitor.
#[test]
fn grants_are_told_behind_the_first_answer() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let builder = Node::builder("a@127.0.0.1").cookie(cookie()).grants_only();
    let node = scheduler.block_on(builder.listen((Ipv4Addr::LOCALHOST, 0).into()).start());
    let node = node.expect("it starts");
    let mut stream = connect(&node, flags::OWN);
    let question = Reference::new(Atom::known("b@127.0.0.1"), 7, &[5]).expect("it has a word");
    let question = Term::from(question);
    let control = [Term::from(19), pid().into(), Term::atom(PULSE), question.clone()];
    let ask = |stream: &mut TcpStream| write(stream, &[&Term::tuple(control.clone())]);
    ask(&mut stream);
    let [release, answer, told] = [(); 3].map(|()| read_operation(&mut stream, 28));
    assert!(release[1].is_atom(PULSE) && release[3] != question, "{release:?}");
    assert!(answer[1].is_atom(PULSE) && answer[3] == question, "{answer:?}");
    assert!(told[1].is_atom(GRANTS_NAME) && told[3] != question, "{told:?}");
    // What concerns others, and no sends, is not told.
    node.grant("c@127.0.0.1", Grants::new().send("open")).expect("it names a node");
    node.grant("*", Grants::new().exits()).expect("it names nodes");
    for _ in 0..2 {
        ask(&mut stream);
        let again = read_operation(&mut stream, 28);
        assert!(again[1].is_atom(PULSE), "it is told once: {again:?}");
    }
    node.grant("*", Grants::new().send("open")).expect("it names nodes");
    let told = read_operation(&mut stream, 28);
    assert!(told[1].is_atom(GRANTS_NAME), "{told:?}");
}

/// Goal: if the grants of a node change often, the node sends each connection one statement at a
/// time, so that a connection without a reader does not end.
#[test]
fn many_changes_of_grants_keep_a_connection() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let builder = Node::builder("a@127.0.0.1").cookie(cookie()).grants_only();
    let builder = builder.patience(Duration::from_secs(60));
    let node = scheduler.block_on(builder.listen((Ipv4Addr::LOCALHOST, 0).into()).start());
    let node = node.expect("it starts");
    let mut stream = connect(&node, flags::OWN);
    let question = Reference::new(Atom::known("b@127.0.0.1"), 7, &[5]).expect("it has a word");
    let question = [Term::from(19), pid().into(), Term::atom(PULSE), question.into()];
    write(&mut stream, &[&Term::tuple(question)]);
    read_operation(&mut stream, 28);
    // The statements on all connections take some 50 MB.
    let names = (0..250).map(|n| format!("{n:0200}"));
    let grants = names.fold(Grants::new(), |grants, name| grants.send(&name));
    for n in 0..1000 {
        let grants = grants.clone().send(&n.to_string());
        node.grant("b@127.0.0.1", grants).expect("it names a node");
        // A tick, so that the process of the connection has a turn.
        let received = node.peers()[0].bytes_received;
        stream.write_all(&[0; 4]).expect("it reads");
        while node.peers().first().is_some_and(|peer| peer.bytes_received == received) {
            std::thread::yield_now();
        }
        assert!(node.peers()[0].queued_bytes < 1 << 17, "one statement waits at most");
    }
    node.grant("b@127.0.0.1", Grants::new().send("last")).expect("it names a node");
    let last = node.reach_of(&Atom::known("b@127.0.0.1"));
    while Reach::from_term(&read_reason(&mut stream, 28)) != last {}
}

/// Goal: the end of a process that has the name of the statements is reported to its monitors.
#[test]
fn a_statement_has_a_reference_of_the_node_that_tells() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    let name = Remote::named(GRANTS_NAME, "b@127.0.0.1");
    let watcher = scheduler.start(move |mut cx: Context<Letter>| async move {
        let own = node.attach(&cx.address().map(|letter| letter));
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        own.monitor(name);
        match cx.recv().await {
            Some(Letter::Down(down)) => down.exit,
            other => panic!("{other:?} came"),
        }
    });
    let monitor = loop {
        let items = read_operation(&mut stream, 19);
        if items[2].is_atom(GRANTS_NAME) {
            break items;
        }
    };
    let [_, watching, name, reference] = &monitor[..] else { panic!("{monitor:?} came") };
    let down = [Term::from(21), name.clone(), watching.clone(), reference.clone()];
    let down = down.into_iter().chain([Term::atom("shutdown")]);
    write(&mut stream, &[&Term::tuple(down)]);
    assert_eq!(watcher.join(), Ok(Exit::Shutdown));
}

/// Goal: a link without the grant tells the other node of the end of the process, and ends nothing
/// here. Each signal that is refused counts.
#[test]
fn links_without_a_grant_end_nothing_here() {
    let (scheduler, node) = listening(60);
    let process =
        scheduler.start(async |mut cx: Context<Letter>| while cx.recv().await.is_some() {});
    let own = node.attach(&process.address().map(|letter| letter)).pid();
    let nobody = NodePid { id: own.id + 1000, ..own.clone() };
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let mut signal = |operation: i64, to: &NodePid, reason: Option<&str>| {
        let items = [Term::from(operation), pid().into(), to.clone().into()].into_iter();
        write(&mut stream, &[&Term::tuple(items.chain(reason.map(Term::atom)))]);
        until_done(&mut stream);
        node.peers()[0].denied
    };
    assert_eq!(signal(8, &own, Some("boom")), 1, "an exit signal");
    assert_eq!(signal(1, &own, None), 1, "a link");
    assert_eq!(signal(3, &own, Some("boom")), 2, "the end of the linked process");
    assert_eq!(signal(3, &own, Some("boom")), 2, "it is linked no more");
    // The second link is the same.
    signal(1, &own, None);
    assert_eq!(signal(1, &own, None), 2);
    process.cancel();
    process.join().expect("it was not ended");
    assert!(read_reason(&mut stream, 24).is_atom("normal"));
    write(&mut stream, &[&Term::tuple([Term::from(1), pid().into(), nobody.into()])]);
    assert!(read_reason(&mut stream, 24).is_atom("noproc"));
}

/// Goal: without a grant to monitor, a link tells nothing of the processes.
#[test]
fn a_link_of_a_node_that_may_not_monitor_is_refused() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let builder = Node::builder("a@127.0.0.1").cookie(cookie()).grants_only();
    let builder = builder.listen((Ipv4Addr::LOCALHOST, 0).into());
    let node = scheduler.block_on(builder.start()).expect("it starts");
    let process =
        scheduler.start(async |mut cx: Context<Letter>| while cx.recv().await.is_some() {});
    let own = node.attach(&process.address().map(|letter| letter)).pid();
    let nobody = NodePid { id: own.id + 1000, ..own.clone() };
    let mut stream = connect(&node, flags::OWN);
    for (to, denied) in [(own, 1), (nobody, 2)] {
        write(&mut stream, &[&Term::tuple([Term::from(1), pid().into(), to.into()])]);
        assert!(read_reason(&mut stream, 24).is_atom("not_allowed"));
        assert_eq!(node.peers()[0].denied, denied);
    }
    process.cancel();
    process.join().expect("it was not ended");
}

/// Goal: a link of the other node without the grant is not refused if the process here has made the
/// same link. A refusal would take it away on the other side only.
#[test]
fn a_link_that_is_there_is_not_refused() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let far = node.pid(&pid());
    let process = scheduler.start(async move |mut cx: Context<Letter>| {
        link(far);
        while cx.recv().await.is_some() {}
        Exit::failed("its own reason")
    });
    let own = read_operation(&mut stream, 1)[1].clone();
    write(&mut stream, &[&Term::tuple([Term::from(1), pid().into(), own])]);
    until_done(&mut stream);
    assert_eq!(node.peers()[0].denied, 0);
    process.cancel();
    drop(process.join());
    let told = read_reason(&mut stream, 24);
    assert!(told.to_string().contains("its own reason"), "{told}");
}

/// Goal: a link that a process makes while the other process unlinks is forgotten when the process
/// has answered. Otherwise the other node could end the process without the grant.
#[test]
fn a_link_that_has_crossed_an_unlink_is_forgotten() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let far = node.pid(&pid());
    let process = scheduler.start(async move |mut cx: Context<()>| {
        link(far);
        while cx.recv().await.is_some() {}
    });
    let own = read_operation(&mut stream, 1)[1].clone();
    // As if the connection had looked for the link before that was carried.
    relay::receive(RemoteSignal::Unlink { from: far, to: process.address().pid(), id: 7 });
    read_operation(&mut stream, 36);
    write(&mut stream, &[&Term::tuple([Term::from(1), pid().into(), own.clone()])]);
    write(&mut stream, &[&Term::tuple([Term::from(3), pid().into(), own, Term::atom("boom")])]);
    until_done(&mut stream);
    assert_eq!(node.peers()[0].denied, 1, "it was half a link");
    process.cancel();
    process.join().expect("it was not linked");
}

/// Goal: a link of the other node that a process ignores, because it has unlinked, is not entered.
#[test]
fn a_link_that_is_ignored_is_not_entered() {
    let (scheduler, node) = listening(60);
    node.grant("b@127.0.0.1", Grants::new().exits()).expect("it names a node");
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let far = node.pid(&pid());
    let process = scheduler.start(async move |mut cx: Context<()>| {
        link(far);
        unlink(far);
        while cx.recv().await.is_some() {
            link(far);
        }
    });
    let own = read_operation(&mut stream, 1)[1].clone();
    let links = [Term::from(1), pid().into(), own.clone()];
    let links = Term::tuple(links);
    let number = read_operation(&mut stream, 35)[1].clone();
    write(&mut stream, &[&links]);
    write(&mut stream, &[&Term::tuple([Term::from(36), number, pid().into(), own])]);
    until_done(&mut stream);
    let entered = || {
        let link = node.link_of(&pid().into()).expect("it is connected");
        link.tables(|tables| (tables.links.len(), tables.unlinking.len())).expect("it is connected")
    };
    assert_eq!(entered(), (0, 0));
    // The next one is entered, and ends with the process.
    process.address().send(()).expect("it waits");
    read_operation(&mut stream, 1);
    assert_eq!(entered(), (1, 0));
    write(&mut stream, &[&links]);
    until_done(&mut stream);
    assert_eq!(entered(), (1, 0));
    process.cancel();
    process.join().expect("it was not ended");
    read_reason(&mut stream, 24);
}

/// Goal: an exported function is called for nodes that have the grant, and for no others.
#[test]
fn starts_need_a_grant() {
    let (_scheduler, node) = listening(60);
    node.export("shop", "worker", 0, async |_: Context<Letter>, _| {});
    let mut stream = connect(&node, flags::OWN);
    let mut ask = |function: &str, id: u32| {
        let (reference, request) = spawn_request(function, id, Vec::new());
        write(&mut stream, &[&request, &Term::List(Vec::new())]);
        let items = read_operation(&mut stream, 31);
        assert_eq!(items[1], reference);
        items[4].clone()
    };
    assert!(ask("worker", 1).is_atom("not_allowed"));
    // What is not exported is not told apart.
    assert!(ask("other", 6).is_atom("not_allowed"));
    node.grant("b@127.0.0.1", Grants::new().spawn("shop", "other")).expect("it names a node");
    assert!(ask("worker", 2).is_atom("not_allowed"));
    assert!(ask("other", 3).is_atom("undef"));
    node.grant("b@127.0.0.1", Grants::new().spawn("shop", "worker")).expect("it names a node");
    assert!(matches!(ask("worker", 4), Term::Pid(_)));
    assert!(node.revoke("b@127.0.0.1"));
    assert!(ask("worker", 5).is_atom("not_allowed"));
    assert_eq!(node.peers()[0].denied, 5);
}

/// Goal: requests that a node does not answer take a bounded number of entries.
#[test]
fn starts_without_an_answer_are_bounded() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let other_side = stream.try_clone().expect("there is a descriptor");
    // It reads, and answers nothing.
    let reads = procession::spawn_blocking(move || {
        let mut bytes = vec![0; 1 << 16];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    });
    let full = scheduler.spawn(async move {
        let link = node.link_of(&pid().into()).expect("it is connected");
        let waiting = || link.tables(|tables| tables.starts.len()).expect("it is connected");
        let start = async |monitors: bool| {
            let (peer, limit) = ("b@127.0.0.1", Duration::ZERO);
            let started = match monitors {
                true => node.spawn_monitor(peer, "m", "f", Vec::new(), limit).await.err(),
                false => node.spawn(peer, "m", "f", Vec::new(), limit).await.err(),
            };
            started.expect("there is no answer")
        };
        for _ in 0..10 {
            assert_eq!(start(false).await, StartTermError::TimedOut);
        }
        assert_eq!(waiting(), 0);
        while waiting() < STARTS_MAX {
            match start(true).await {
                StartTermError::TimedOut => {}
                // The queue is full, and is read now.
                StartTermError::Send(SendTermCause::Full) => procession::yield_now().await,
                other => panic!("{other}"),
            }
        }
        while link.outbound.bytes() > 0 {
            procession::yield_now().await;
        }
        let full = [start(false).await, start(true).await];
        assert_eq!(waiting(), STARTS_MAX);
        full
    });
    let expected = [(); 2].map(|()| StartTermError::Send(SendTermCause::Full));
    assert_eq!(full.join(), Ok(expected));
    // It ends with the connection.
    other_side.shutdown(Shutdown::Both).expect("it is open");
    scheduler.block_on(reads).expect("it does not panic");
}

/// An older kind of node: no headers, and no reasons behind the operations.
#[test]
fn a_node_without_headers_is_understood() {
    let down = {
        let mut bytes = vec![b'p', 131, 104, 5, 97, 21];
        let mut writer = Writer::new(&mut bytes);
        writer.pid(&pid());
        bytes
    };
    let flags = flags::REQUIRED | flags::DIST_MONITOR_NAME;
    let told = told_after(60, flags, move |stream| {
        // The reference of the request to monitor is the last of its elements.
        let items = loop {
            let frame = read_frame(stream);
            let mut reader = Reader::new(&frame[2..], &[], 1 << 16);
            let request = reader.term().expect("it is a request");
            let Term::Tuple(items) = request else { panic!("{request} came") };
            if !items[2].is_atom(PULSE) {
                break items;
            }
        };
        assert_eq!(items[0], Term::from(19));
        let mut down = down;
        let mut writer = Writer::new(&mut down);
        for term in [&items[1], &items[3], &Term::atom("shutdown")] {
            writer.term(term).expect("it is right");
        }
        let length = (down.len() as u32).to_be_bytes();
        stream.write_all(&[&length[..], &down].concat()).expect("it reads");
    });
    assert_eq!(told, Exit::Shutdown);
}

/// Connects from an address of this machine, and says nothing.
fn silent(node: &Node, last: u8) -> TcpStream {
    let address = node.local_addr().expect("it listens");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("there is a descriptor");
    let own = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(&own.into()).expect("it is of this machine");
    socket.connect(&address.into()).expect("it listens");
    TcpStream::from(socket)
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it is a socket");
    let read = stream.read(&mut [0]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Goal: machines that connect and say nothing do not keep others out: not one with many sockets,
/// and not as many machines as there are places.
#[test]
fn silent_sockets_keep_no_node_out() {
    for is_one_address in [true, false] {
        let scheduler = Scheduler::builder().worker_threads(2).on_exit(|_| {}).build();
        let scheduler = scheduler.expect("it can be built");
        let node = scheduler.block_on(listens(60));
        let own = |at: u8| if is_one_address { 2 } else { 2 + at };
        let mut all: Vec<_> = (0..40).map(|at| silent(&node, own(at))).collect();
        let mut stream = connect(&node, flags::OWN);
        until_done(&mut stream);
        // They are accepted in turn, and the oldest connections have made room.
        for made_room in &mut all[..9] {
            assert!(!matches!(made_room.read(&mut [0]), Ok(1..)));
        }
        assert!(all[9..].iter_mut().all(is_open));
        // A refusal is counted after its socket was closed.
        scheduler.block_on(async {
            while node.status().refusals.first().is_none_or(|(_, count)| *count < 9) {
                procession::yield_now().await;
            }
        });
        assert_eq!(node.status().refusals, [("displaced".to_owned(), 9)]);
    }
}

/// Goal: a node that ends a connection in order says what it could not deliver: it counts the
/// messages, and the process of the connection fails with their number.
#[test]
fn messages_that_are_left_at_the_end_are_reported() {
    let (reports, reported) = std::sync::mpsc::channel();
    let builder = Scheduler::builder().worker_threads(2);
    let builder = builder.on_exit(move |report| drop(reports.send(report.to_string())));
    let scheduler = builder.build().expect("it can be built");
    let node = scheduler.block_on(listens(1));
    // It confirms none of five messages, and never answers again.
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::tuple([Term::atom("received"), Term::from(0)]));
    scheduler.block_on(async {
        while node.peers().first().is_none_or(|peer| peer.unconfirmed != Some(0)) {
            procession::yield_now().await;
        }
        for n in 0..5 {
            node.send(pid(), Term::from(n)).expect("it has room");
        }
        assert_eq!(node.stop().await, 5);
        assert_eq!(node.stop().await, 5, "it is the same end");
    });
    assert_eq!(node.status().ends, [("this node has stopped".to_owned(), 1)]);
    let report = reported.recv().expect("it is reported");
    assert!(report.contains("this node has stopped, and 5 messages to b@127.0.0.1"), "{report}");
    assert_eq!(node.status().lost, 5);
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(60)));
    assert_eq!((unfinished.processes.len(), unfinished.messages), (0, 5));
    assert_eq!(unfinished.to_string(), "5 messages to other nodes may be lost");
    drop(stream);
}

/// Goal: an end in order takes one patience, however much the other node talks. Method: the other
/// node ticks all the time, and never answers the last question.
#[test]
fn an_end_in_order_has_a_time_limit() {
    let (scheduler, node) = listening(1);
    let mut stream = connect(&node, flags::OWN);
    scheduler.block_on(async {
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        node.stop();
    });
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("it is a time");
    let latest = Instant::now() + Duration::from_secs(30);
    let is_over = |read: io::Result<usize>| match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    };
    while stream.write_all(&[0; 4]).is_ok() && !is_over(stream.read(&mut [0; 1024])) {
        assert!(Instant::now() < latest, "the connection goes on");
    }
}

/// Answers each question with a number of messages, until the node says that it has sent
/// everything, or closes the connection.
fn answer_all(stream: &mut TcpStream, received: i64) {
    let received = Term::tuple([Term::atom("received"), Term::from(received)]);
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).expect("it is whole");
        // Neither a tick nor a part of a large message.
        if frame.get(1) != Some(&68) {
            continue;
        }
        let mut reader = Reader::new(&frame[3..], &[], 1 << 17);
        let operation = reader.term().expect("it is an operation");
        let items = operation.as_tuple().expect("it is a tuple");
        if items[0] == Term::from(28) && reader.term().is_ok_and(|reason| reason.is_atom("done")) {
            return;
        }
        if items[0] == Term::from(19) && items[2].is_atom(PULSE) {
            answer(stream, items, &received);
        }
    }
}

/// Goal: a node that has nothing more to send takes the messages of the other node, and confirms
/// them.
#[test]
fn a_node_that_ends_reads_and_answers_until_the_other_node_ends() {
    let (scheduler, node) = listening(60);
    let (letters, told) = std::sync::mpsc::channel();
    let sink = scheduler.start(async move |mut cx: Context<Letter>| {
        while let Some(letter) = cx.recv().await {
            if let Letter::Message { term, .. } = letter {
                letters.send(term).expect("the test waits");
            }
        }
    });
    let sink = node.attach(&sink.detach().map(|letter| letter));
    node.register("sink", &sink).expect("the name is free");
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    assert!(node.disconnect("b@127.0.0.1"));
    answer_all(&mut stream, 0);
    for n in 0..10 {
        let send = [Term::from(6), pid().into(), Term::atom(""), Term::atom("sink")];
        write(&mut stream, &[&Term::tuple(send), &Term::from(n)]);
        assert_eq!(told.recv(), Ok(Term::from(n)));
        until_done(&mut stream);
    }
    assert!(node.status().ends.is_empty());
    drop(stream);
    until_ended(&scheduler, &node);
    assert_eq!(node.status().ends, [("it was disconnected by this node".to_owned(), 1)]);
    assert_eq!(node.status().lost, 0);
}

/// Goal: a node that learns of the end from the other node sends what it has accepted.
#[test]
fn a_node_sends_what_it_has_when_the_other_node_ends() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::tuple([Term::atom("received"), Term::from(0)]));
    until_done(&mut stream);
    // More than the system takes from a node while nobody reads.
    for _ in 0..14 {
        node.send(pid(), Term::Binary(vec![7; 1 << 20].into())).expect("there is room");
    }
    state(&mut stream, &Term::atom("done"));
    answer_all(&mut stream, 14);
    until_ended(&scheduler, &node);
    assert_eq!(node.status().ends, [("it has closed the connection".to_owned(), 1)]);
    assert_eq!(node.status().lost, 0);
}

/// Goal: `connect` keeps its time limit while a connection ends to a node that answers nothing.
#[test]
fn a_connect_after_a_disconnect_has_its_time_limit() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    assert!(node.disconnect("b@127.0.0.1"));
    scheduler.block_on(async {
        let connects = node.connect_at("b@127.0.0.1", (Ipv4Addr::LOCALHOST, 1).into());
        let connected = procession::timeout(Duration::from_secs(40), connects).await;
        assert!(matches!(connected, Ok(Err(ConnectError::TimedOut))), "{connected:?}");
        // The connection still waits for the answer.
        assert!(node.status().ends.is_empty());
        drop(stream);
    });
}

/// Goal: a message that this node cannot take is not lost on a connection that continues.
#[test]
fn a_message_beyond_a_limit_ends_the_connection_with_the_reason() {
    let nested = |term: &mut Vec<u8>| {
        // Tuples with one item each, and the empty list.
        term.extend([104, 1].repeat(1000));
        term.push(106);
    };
    let wide = |term: &mut Vec<u8>| {
        // Small integers, which take more memory than bytes.
        let count = MESSAGE_LIMIT / 24;
        term.push(108);
        term.extend((count as u32).to_be_bytes());
        term.extend([97, 7].repeat(count));
        term.push(106);
    };
    for (is_deep, why) in
        [(true, "a message has more than 128 levels"), (false, "a message takes more than")]
    {
        let (scheduler, node) = listening(60);
        let mut stream = connect(&node, flags::OWN);
        until_done(&mut stream);
        let mut bytes = vec![131, 68, 0];
        let send = [Term::from(6), pid().into(), Term::atom(""), Term::atom("server")];
        Writer::new(&mut bytes).term(&Term::tuple(send)).expect("it is right");
        if is_deep {
            nested(&mut bytes);
        } else {
            wide(&mut bytes);
        }
        let length = (bytes.len() as u32).to_be_bytes();
        stream.write_all(&[&length[..], &bytes].concat()).expect("it reads");
        until_ended(&scheduler, &node);
        let ends = node.status().ends;
        assert!(ends[0].0.starts_with(why), "{ends:?}");
    }
}

/// Goal: to a node that cannot be asked, a connection that ends in order sends what it has, and
/// ends its side of the socket.
#[test]
fn a_node_that_takes_no_monitors_gets_what_was_accepted() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::REQUIRED);
    let sends = node.clone();
    let stopped = scheduler.spawn(async move {
        while sends.peers().is_empty() {
            procession::yield_now().await;
        }
        for n in 0..100 {
            sends
                .send(pid(), Term::tuple([Term::from(n), Term::from(vec![7; 10_000])]))
                .expect("it has room");
        }
        sends.stop().await
    });
    let mut come = Vec::new();
    stream.read_to_end(&mut come).expect("it is not reset");
    let payload = [7; 10_000];
    assert_eq!(come.windows(10_000).filter(|part| *part == payload).count(), 100);
    drop(stream);
    assert_eq!(stopped.join(), Ok(0));
    assert_eq!(node.status().lost, 0);
}

/// Erlang's library for C takes no monitors. To it, they are errors.
#[test]
fn a_node_that_takes_no_monitors_gets_none() {
    let (scheduler, node) = listening(1);
    let mut stream = connect(&node, flags::REQUIRED);
    drop(scheduler.spawn(async move {
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        // There is no reply.
        drop(node.call(Remote::from(pid()), Term::from(7), Duration::from_secs(60)).await);
    }));
    let frame = read_frame(&mut stream);
    let mut reader = Reader::new(&frame[2..], &[], 1 << 16);
    let control = reader.term().expect("it is an operation");
    // A send, and neither the question of a connection nor the monitor of a call.
    assert_eq!(control.as_tuple().map(|items| &items[0]), Some(&Term::from(2)), "{control}");
}

/// Goal: a node that does not read holds up no sender and takes little memory.
#[test]
fn a_node_that_never_reads_makes_sends_fail() {
    let (scheduler, node) = listening(60);
    let stream = connect(&node, flags::OWN);
    let refused = scheduler.spawn({
        let node = node.clone();
        async move {
            while node.peers().is_empty() {
                procession::yield_now().await;
            }
            let to = Remote::from(pid());
            loop {
                // It writes to nobody in particular, so the other side never has to answer.
                if let Err(refused) = node.send(to.clone(), Term::from(vec![7; 60_000])) {
                    break (refused.cause(), node.peers().first().map(|peer| peer.queued_bytes));
                }
            }
        }
    });
    let (cause, queued) = refused.join().expect("it ends");
    assert_eq!(cause, SendTermCause::Full);
    assert!(queued.is_some_and(|queued| queued <= 4 << 20));
    drop(stream);
}

/// Asks the node whether it is there, and reads the answer: all that was written before is done.
fn until_done(stream: &mut TcpStream) {
    let question = Reference::new(Atom::known("b@127.0.0.1"), 7, &[999]).expect("it has a word");
    let question = Term::from(question);
    let ask = [Term::from(19), pid().into(), Term::atom(PULSE), question.clone()];
    write(stream, &[&Term::tuple(ask)]);
    while read_operation(stream, 28)[3] != question {}
}

/// Makes a statement about the connection.
fn state(stream: &mut TcpStream, statement: &Term) {
    let number = Reference::new(Atom::known("b@127.0.0.1"), 7, &[5]).expect("it has a word");
    let to = NodePid { node: Atom::known("a@127.0.0.1"), id: 0, serial: 0, creation: 1 };
    let down = [Term::from(28), Term::atom(PULSE), to.into(), number.into()];
    write(stream, &[&Term::tuple(down), statement]);
}

/// Reads until the node makes a statement about the connection. Returns the numbers of the
/// operations before it, or 0 for the end of a large message.
fn until_stated(stream: &mut TcpStream, statement: &str) -> Vec<i64> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    let mut before = Vec::new();
    loop {
        let frame = read_frame(stream);
        if frame[1] != 68 {
            // The number of a fragment counts down.
            before.extend((frame[10..18] == 1_u64.to_be_bytes()).then_some(0));
            continue;
        }
        let mut reader = Reader::new(&frame[3..], &[], 1 << 17);
        let operation = reader.term().expect("it is an operation");
        let number = operation.as_tuple().and_then(|items| items[0].as_integer());
        if reader.term().is_ok_and(|reason| reason.is_atom(statement)) {
            return before;
        }
        before.extend(number);
    }
}

/// A call of what answers at each node.
fn write_call(stream: &mut TcpStream, name: &str, (to, tag): (NodePid, Term), request: Term) {
    let control = [Term::from(6), pid().into(), Term::atom(""), Term::atom(name)];
    let call = [Term::atom("$gen_call"), Term::tuple([to.into(), tag]), request];
    write(stream, &[&Term::tuple(control), &Term::tuple(call)]);
}

/// Goal: what a node answers without a grant goes to the node that asks, and to no other. Otherwise
/// a node would send to third nodes with the grants of this node.
#[test]
fn a_node_is_answered_itself() {
    let (_scheduler, node) = listening(60);
    let mut b = connect(&node, flags::OWN);
    let mut c = connect_as("c@127.0.0.1", &node, flags::OWN);
    while node.peers().len() < 2 {
        std::thread::yield_now();
    }
    let far = NodePid { node: Atom::known("c@127.0.0.1"), ..pid() };
    let reference = |node: &'static str| {
        Term::from(Reference::new(Atom::known(node), 7, &[8]).expect("it has a word"))
    };
    let (own, other) = (reference("b@127.0.0.1"), reference("c@127.0.0.1"));
    let alias = |tag: &Term| Term::Improper(vec![Term::atom("alias")], Box::new(tag.clone()));
    let foreign = [
        (far.clone(), Term::atom("$gen_cast")),
        (far.clone(), own.clone()),
        (far.clone(), alias(&own)),
        (pid(), Term::atom("$gen_cast")),
        (pid(), other.clone()),
        (pid(), alias(&other)),
    ];
    let is_auth = || Term::tuple([Term::atom("is_auth"), Term::atom("b@127.0.0.1")]);
    for (name, request) in [("net_kernel", is_auth()), (STATUS_NAME, Term::atom("status"))] {
        for call in &foreign {
            write_call(&mut b, name, call.clone(), request.clone());
        }
    }
    for tag in [own.clone(), alias(&own)] {
        write_call(&mut b, "net_kernel", (pid(), tag), is_auth());
    }
    let [_, _, to] = &read_operation(&mut b, 22)[..] else { panic!("it has other items") };
    assert_eq!(*to, Term::from(pid()));
    let [_, _, to] = &read_operation(&mut b, 33)[..] else { panic!("it has other items") };
    assert_eq!(*to, own);
    until_done(&mut b);
    let [of_b, of_c] = &node.peers()[..] else { panic!("two are connected") };
    assert_eq!((of_b.denied, of_b.undelivered), (12, 0));
    assert_eq!(of_c.sent, 0);
    // It is in the lane of the replies.
    node.send(far, Term::atom("marker")).expect("there is room");
    loop {
        let frame = read_frame(&mut c);
        let mut reader = Reader::new(&frame[3..], &[], 1 << 16);
        let operation = reader.term().expect("it is an operation");
        match operation.as_tuple() {
            Some([number, _, name, _]) if *number == Term::from(19) && name.is_atom(PULSE) => {}
            _ => break assert!(reader.term().is_ok_and(|term| term.is_atom("marker"))),
        }
    }
}

/// Makes a process monitor one of the other node. Returns what says that it is about to take the
/// end, which holds up all others that are to be told, and what lets it go on.
fn monitor_slowly(scheduler: &Scheduler, node: &Node) -> (Receiver<()>, Sender<()>) {
    let watcher =
        scheduler.start(async |mut cx: Context<Letter>| while cx.recv().await.is_some() {});
    let (begins, begun) = std::sync::mpsc::channel();
    let (goes_on, waits) = std::sync::mpsc::channel();
    let waits = procession_sync::Mutex::new(waits);
    let slow = node.attach(&watcher.address().map(move |letter| {
        begins.send(()).expect("the test waits");
        waits.lock().recv().expect("the test says so");
        letter
    }));
    slow.monitor(pid());
    (begun, goes_on)
}

/// Waits until the node has closed a connection.
fn until_closed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    let closed = stream.read(&mut [0]);
    let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(matches!(closed, Ok(0)) || closed.as_ref().is_err_and(is_reset), "{closed:?}");
}

/// Goal: a connection that waits for the end of its predecessor ends with its other side, and makes
/// way for a newer connection of the other node. Neither is reported. What arrives during the wait
/// is kept.
#[test]
fn a_connection_that_waits_looks_at_its_socket() {
    let scheduler = Scheduler::builder().worker_threads(3).build().expect("it can be built");
    let builder = Node::builder("a@127.0.0.1").cookie(cookie()).patience(Duration::from_secs(60));
    let builder = builder.connect_timeout(Duration::from_secs(60));
    let node = scheduler.block_on(builder.listen((Ipv4Addr::LOCALHOST, 0).into()).start());
    let node = node.expect("it starts");
    let (letters, told) = std::sync::mpsc::channel();
    let subscriber = scheduler.start(async move |mut cx: Context<Letter>| {
        while let Some(letter) = cx.recv().await {
            let shown = match letter {
                Letter::NodeUp { connection, .. } => (connection, "is up"),
                Letter::NodeDown { connection, .. } => (connection, "is down"),
                Letter::Message { term, .. } => {
                    (0, if term.as_bytes().is_some() { "long" } else { "end" })
                }
                other => panic!("{other:?} came"),
            };
            // Ignored: the test may be over.
            let _ = letters.send(shown);
        }
    });
    let recipient = subscriber.address().map(|letter| letter);
    node.register("sink", &node.attach(&recipient)).expect("the name is free");
    node.subscribe(&recipient);
    let mut first = connect(&node, flags::OWN);
    until_done(&mut first);
    let (begun, goes_on) = monitor_slowly(&scheduler, &node);
    drop(first);
    begun.recv().expect("the connection has ended");
    let mut given_up = connect(&node, flags::OWN);
    given_up.write_all(&[0; 4]).expect("it reads");
    given_up.shutdown(Shutdown::Write).expect("it is open");
    until_closed(&mut given_up);
    let mut older = connect(&node, flags::OWN);
    let mut newer = connect(&node, flags::OWN);
    until_closed(&mut older);
    // More than it keeps, and more than the system holds of a connection on which nobody reads.
    let mut writer = newer.try_clone().expect("the system has descriptors");
    let writes = procession::spawn_blocking(move || {
        let send = Term::tuple([Term::from(6), pid().into(), Term::atom(""), Term::atom("sink")]);
        let long = Term::Binary(vec![7; 1 << 20].into());
        for _ in 0..16 {
            write(&mut writer, &[&send, &long]);
        }
        write(&mut writer, &[&send, &Term::atom("end")]);
    });
    goes_on.send(()).expect("it waits");
    writes.join().expect("it is read");
    until_done(&mut newer);
    let told: Vec<_> = told.iter().take(20).collect();
    let mut expected = vec![(1, "is up"), (1, "is down"), (2, "is up")];
    expected.extend([(0, "long"); 16]);
    expected.push((0, "end"));
    assert_eq!(told, expected);
}

/// Goal: a connection is admitted once everybody has been notified of the end of its predecessor.
/// Otherwise these notifications would end relations of the new connection on one side only, and
/// messages would arrive before `NodeDown`.
#[test]
fn a_connection_waits_for_the_end_of_the_one_before() {
    let scheduler = Scheduler::builder().worker_threads(3).build().expect("it can be built");
    let node = scheduler.block_on(listens(60));
    node.grant("b@127.0.0.1", Grants::new().exits()).expect("it names a node");
    let (exits, exited) = std::sync::mpsc::channel();
    let linked = scheduler.start(async move |mut cx: Context<Letter>| {
        cx.trap_exits(true);
        while let Some(event) = cx.recv_event().await {
            let Event::Exit(signal) = event else { panic!("{event:?} came") };
            exits.send(signal.exit).expect("the test waits");
        }
    });
    let own = node.attach(&linked.address().map(|letter| letter)).pid();
    let (letters, told) = std::sync::mpsc::channel();
    let subscriber = scheduler.start(async move |mut cx: Context<Letter>| {
        while let Some(letter) = cx.recv().await {
            let shown = match letter {
                Letter::NodeUp { node, connection } => {
                    format!("{}: {connection} is up", &node.as_str()[..1])
                }
                Letter::NodeDown { node, connection, .. } => {
                    format!("{}: {connection} is down", &node.as_str()[..1])
                }
                Letter::Message { term, .. } => term.to_string(),
                other => panic!("{other:?} came"),
            };
            // Ignored: the test may be over.
            drop(letters.send(shown));
        }
    });
    let recipient = subscriber.address().map(|letter| letter);
    let sink = node.attach(&recipient);
    node.register("sink", &sink).expect("the name is free");
    let mut c = connect_as("c@127.0.0.1", &node, flags::OWN);
    until_done(&mut c);
    node.subscribe(&recipient);
    let mut b = connect(&node, flags::OWN);
    let link = Term::tuple([Term::from(1), pid().into(), own.into()]);
    write(&mut b, &[&link]);
    until_done(&mut b);
    let (begun, goes_on) = monitor_slowly(&scheduler, &node);
    drop(b);
    begun.recv().expect("the connection has ended");
    let mut b = connect(&node, flags::OWN);
    write(&mut b, &[&link]);
    let send = [Term::from(6), pid().into(), Term::atom(""), Term::atom("sink")];
    write(&mut b, &[&Term::tuple(send), &Term::atom("marker")]);
    // Others are served meanwhile, and all that has come would be, too.
    for _ in 0..100 {
        until_done(&mut c);
    }
    let is_connected = |peer: &PeerInfo| peer.name.as_str().starts_with('b');
    assert!(!node.peers().iter().any(is_connected));
    goes_on.send(()).expect("it waits");
    assert_eq!(exited.recv(), Ok(Exit::NoConnection));
    until_done(&mut b);
    let told: Vec<_> = told.iter().take(5).collect();
    let expected = ["c: 1 is up", "b: 1 is up", "b: 1 is down", "b: 2 is up", "marker"];
    assert_eq!(told, expected);
    linked.cancel();
    b.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    read_reason(&mut b, 24);
}

/// Goal: while a signal is answered because there is no connection, none is admitted. Otherwise the
/// answer to a link would come when the other process has linked by the new connection, and end
/// that on this side only.
#[test]
fn a_connection_waits_for_what_is_refused() {
    let scheduler = Scheduler::builder().worker_threads(3).build().expect("it can be built");
    let node = scheduler.block_on(listens(60));
    node.grant("b@127.0.0.1", Grants::new().exits()).expect("it names a node");
    let mut c = connect_as("c@127.0.0.1", &node, flags::OWN);
    until_done(&mut c);
    let is_connected = |peer: &PeerInfo| peer.name.as_str().starts_with('b');
    for other_links in [false, true] {
        let (told, tells) = std::sync::mpsc::channel();
        let far = node.pid(&pid());
        let linked = scheduler.start(async move |mut cx: Context<Letter>| {
            cx.trap_exits(true);
            told.send("links").expect("the test waits");
            link(far);
            // Behind a refusal.
            let mark = Letter::Message { from: None, term: Term::atom("mark") };
            cx.address().send(mark).expect("it has room");
            while let Some(event) = cx.recv_event().await {
                let event = match event {
                    Event::Exit(signal) if signal.exit == Exit::NoConnection => "is refused",
                    Event::Message(_) => "has linked",
                    other => panic!("{other:?} came"),
                };
                told.send(event).expect("the test waits");
            }
        });
        let refusal = node.refuse(&pid().into()).expect("it is not connected");
        let own = node.attach(&linked.address().map(|letter| letter)).pid();
        assert_eq!(tells.recv(), Ok("links"));
        let mut b = connect(&node, flags::OWN);
        if other_links {
            let link = Term::tuple([Term::from(1), pid().into(), own.into()]);
            write(&mut b, &[&link]);
        }
        // Others are served meanwhile, and all that has come would be, too.
        for _ in 0..100 {
            until_done(&mut c);
        }
        assert!(!node.peers().iter().any(is_connected));
        drop(refusal);
        until_done(&mut b);
        // The link was refused, or carried by the new connection. The end of this process is
        // reported if one of the two has linked by the new connection.
        let was_refused = tells.recv() == Ok("is refused");
        assert_eq!(was_refused.then(|| tells.recv()), was_refused.then_some(Ok("has linked")));
        linked.cancel();
        linked.join().expect("it ends by itself");
        if other_links || !was_refused {
            b.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
            read_reason(&mut b, 24);
        }
        drop(b);
        while node.peers().iter().any(is_connected) {
            std::thread::yield_now();
        }
    }
}

/// Goal: a node cannot answer the calls of a second one by what a third one answers to anybody.
#[test]
fn calls_of_a_third_node_are_not_answered_for_it() {
    let (scheduler, node) = listening(60);
    let third = Node::builder("c@127.0.0.1").cookie(cookie());
    let third = scheduler.block_on(third.start()).expect("it starts");
    let address = node.local_addr().expect("it listens");
    scheduler.block_on(third.connect_at("a@127.0.0.1", address)).expect("it connects");
    let (sender, called) = std::sync::mpsc::channel();
    let server = scheduler.start(move |mut cx: Context<Letter>| async move {
        let Some(Letter::Call { reply, .. }) = cx.recv().await else { panic!("another one came") };
        sender.send(reply).expect("the test waits");
        cx.recv().await;
    });
    let server = node.attach(&server.address().map(|letter| letter)).pid();
    let call = scheduler.spawn({
        let third = third.clone();
        async move { third.call(server, Term::from(7), Duration::from_secs(60)).await }
    });
    let reply = called.recv().expect("it is called");
    let mut b = connect(&node, flags::OWN);
    // The reference of the call is the tag, which anybody could guess.
    let request = Term::tuple([Term::atom("is_auth"), Term::atom("b@127.0.0.1")]);
    let guess = (reply.caller().clone(), reply.tag.clone());
    write_call(&mut b, "net_kernel", guess, request);
    until_done(&mut b);
    reply.send(Term::atom("right")).expect("there is room");
    let reply = call.join().expect("it ends");
    assert_eq!(reply.expect("it is answered"), Term::atom("right"));
}

/// A node that sends in the name of a process of a third node.
#[test]
fn only_processes_of_the_other_node_are_senders() {
    let (scheduler, node) = listening(60);
    let receiver = scheduler.start(async |mut cx: Context<Letter>| {
        let mut senders = Vec::new();
        while senders.len() < 2
            && let Some(Letter::Message { from, .. }) = cx.recv().await
        {
            senders.push(from);
        }
        senders
    });
    let own = node.attach(&receiver.address().map(|letter| letter)).pid();
    let mut stream = connect(&node, flags::OWN);
    let third = NodePid { node: Atom::known("c@127.0.0.1"), ..pid() };
    for from in [third, pid()] {
        let send = Term::tuple([Term::from(22), from.into(), own.clone().into()]);
        write(&mut stream, &[&send, &Term::atom("hello")]);
    }
    assert_eq!(receiver.join().expect("it ends"), [None, Some(pid())]);
}

/// Goal: a node cannot end the connection between two other nodes by calls with replies to that
/// connection. Replies without room are refused.
#[cfg(feature = "serde")]
#[test]
fn replies_to_a_third_node_do_not_overrun_it() {
    #[derive(serde::Deserialize)]
    struct Ask(
        #[expect(dead_code, reason = "the request of the call")] Term,
        #[serde(with = "crate::serialize::reply")] procession::Reply<Term>,
    );

    let (scheduler, node) = listening(60);
    let server = scheduler.start(async |mut cx: Context<Ask>| {
        while let Some(Ask(_, reply)) = cx.recv().await {
            reply.send(Term::Binary(vec![7; 1 << 19].into()));
        }
    });
    let member = node.attach_as(server.address());
    node.register("server", &member).expect("the name is free");
    let mut b = connect(&node, flags::OWN);
    // It reads nothing.
    let c = connect_as("c@127.0.0.1", &node, flags::OWN);
    while node.peers().len() < 2 {
        std::thread::yield_now();
    }
    let far = NodePid { node: Atom::known("c@127.0.0.1"), ..pid() };
    let reference = Reference::new(Atom::known("c@127.0.0.1"), 7, &[8]).expect("it has a word");
    let from = (far, Term::from(reference));
    for _ in 0..200 {
        write_call(&mut b, "server", from.clone(), Term::atom("ask"));
    }
    let of_c = || node.peers().into_iter().find(|peer| peer.name.as_str() == "c@127.0.0.1");
    loop {
        let of_c = of_c().expect("it is connected");
        if of_c.sent + of_c.refused == 200 {
            assert!(of_c.refused > 0 && of_c.queued_bytes <= 32 << 20, "{of_c:?}");
            break;
        }
        std::thread::yield_now();
    }
    drop(c);
    server.cancel();
}

/// A node that monitors on behalf of a third one, or with a reference of one: both have names that
/// would be kept here.
#[test]
fn only_processes_of_the_other_node_monitor() {
    let (scheduler, node) = listening(60);
    let watched =
        scheduler.start(async |mut cx: Context<Letter>| while cx.recv().await.is_some() {});
    let member = node.attach(&watched.address().map(|letter| letter));
    let mut stream = connect(&node, flags::OWN);
    let foreign = NodePid { node: Atom::known("c@127.0.0.1"), ..pid() };
    let reference = |node, id| {
        let reference = Reference::new(Atom::known(node), 7, &[id]);
        Term::from(reference.expect("it has a word"))
    };
    let own = reference("b@127.0.0.1", 3);
    let monitors = [
        (foreign, reference("b@127.0.0.1", 1)),
        (pid(), reference("c@127.0.0.1", 2)),
        (pid(), own.clone()),
    ];
    for (watcher, reference) in monitors {
        let monitor = [Term::from(19), watcher.into(), member.pid().into(), reference];
        write(&mut stream, &[&Term::tuple(monitor)]);
    }
    let ask = [Term::from(19), pid().into(), Term::atom(PULSE), own.clone()];
    write(&mut stream, &[&Term::tuple(ask)]);
    // All that was written before is done.
    read_operation(&mut stream, 28);
    watched.cancel();
    let told = read_operation(&mut stream, 28);
    assert_eq!(told[3], own);
    assert_eq!(node.peers()[0].denied, 2);
}

/// Goal: a caller that stops waiting before the process of its call is known leaves no monitor of
/// that process.
#[test]
fn a_call_that_was_given_up_ends_its_monitor() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    let late = scheduler.block_on(async {
        while node.peers().is_empty() {
            procession::yield_now().await;
        }
        node.apply("b@127.0.0.1", "m", "f", Vec::new(), Duration::ZERO).await
    });
    assert_eq!(late, Err(ApplyError::TimedOut));
    let request = read_operation(&mut stream, 29);
    let (id, from) = (request[1].clone(), request[2].clone());
    let reply = [Term::from(31), id.clone(), from.clone(), Term::from(2), pid().into()];
    write(&mut stream, &[&Term::tuple(reply)]);
    let ended = read_operation(&mut stream, 20);
    assert_eq!(ended[1..], [from, pid().into(), id]);
}

/// A node that calls a function with a tag that takes memory, which is kept until the end of the
/// call. Nodes of the BEAM and of this crate have a reference there.
#[test]
fn the_tag_of_a_call_is_a_reference_of_the_caller() {
    let (_scheduler, node) = listening(60);
    node.grant("b@127.0.0.1", Grants::new().spawn_all()).expect("it names a node");
    node.export_function("shop", "worker", 0, async |_| Ok(Term::from(7)));
    let mut stream = connect(&node, flags::OWN);
    let reference = |node: &'static str| {
        Term::from(Reference::new(Atom::known(node), 7, &[8]).expect("it has a word"))
    };
    let tags = [
        (Term::from(vec![7; 1 << 16]), false),
        (reference("c@127.0.0.1"), false),
        (reference("b@127.0.0.1"), true),
    ];
    for (id, (tag, is_right)) in (1..).zip(tags) {
        let (id, mut request) = spawn_request("worker", id, vec![Term::atom("monitor")]);
        let Term::Tuple(items) = &mut request else { panic!("it is a tuple") };
        items[4] = Term::tuple([Term::atom("erpc"), Term::atom("execute_call"), Term::from(4)]);
        let call = [tag, Term::atom("shop"), Term::atom("worker"), Term::List(Vec::new())];
        write(&mut stream, &[&request, &Term::list(call)]);
        let items = read_operation(&mut stream, 31);
        assert_eq!(items[1], id);
        assert_eq!(matches!(items[4], Term::Pid(_)), is_right, "{}", items[4]);
    }
}

/// Goal: another node has as many relations with processes of this one as may be, and no more.
/// Method: one more monitor, and one more link, than the limit of a test.
#[test]
fn the_relations_of_a_node_are_bounded() {
    let (scheduler, node) = listening(60);
    node.grant("b@127.0.0.1", Grants::new().exits()).expect("it names a node");
    let process = scheduler
        .start(|mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} });
    let to = Term::from(node.attach(&process.address().map(|letter| letter)).pid());
    let mut stream = connect(&node, flags::OWN);
    for n in 0..=RELATIONS_MAX as u32 {
        let reference = Reference::new(Atom::known("b@127.0.0.1"), 7, &[n + 1]);
        let reference = Term::from(reference.expect("it has a word"));
        let monitor = [Term::from(19), pid().into(), to.clone(), reference];
        write(&mut stream, &[&Term::tuple(monitor)]);
        let from = NodePid { id: 100 + n, ..pid() };
        write(&mut stream, &[&Term::tuple([Term::from(1), from.into(), to.clone()])]);
    }
    let refused = (read_reason(&mut stream, 28), read_reason(&mut stream, 24));
    assert_eq!(refused, (Term::atom("system_limit"), Term::atom("system_limit")));
    process.cancel();
}

/// Goal: what waits for an answer of another node learns of the end of the connection before its
/// time limit.
#[test]
fn what_waits_for_an_answer_learns_of_the_end() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let (peer, limit) = ("b@127.0.0.1", Duration::from_secs(30));
    let [calls, starts, applies] = [(); 3].map(|()| node.clone());
    let call = scheduler.spawn(async move { calls.call(pid(), Term::from(1), limit).await });
    let start = scheduler.spawn(async move { starts.spawn(peer, "m", "f", vec![], limit).await });
    let apply = scheduler.spawn(async move { applies.apply(peer, "m", "f", vec![], limit).await });
    let link = node.link_of(&pid().into()).expect("it is connected");
    while link.tables(|tables| (tables.calls.len(), tables.starts.len())) != Some((1, 2)) {
        std::thread::yield_now();
    }
    drop(stream);
    let ended = call.join().expect("it does not panic");
    assert!(matches!(ended, Err(CallTermError::Ended(Exit::NoConnection))), "{ended:?}");
    let ended = start.join().expect("it does not panic");
    assert_ne!(ended, Err(StartTermError::TimedOut));
    let ended = apply.join().expect("it does not panic");
    assert_ne!(ended, Err(ApplyError::TimedOut));
}

/// Goal: a process that has unlinked takes links again once the connection has ended that would
/// have brought the answer.
#[test]
fn an_unlink_without_an_answer_ends_with_its_connection() {
    let (scheduler, node) = listening(60);
    node.grant("b@127.0.0.1", Grants::new().exits()).expect("it names a node");
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let far = node.pid(&pid());
    let process = scheduler.start(async move |mut cx: Context<()>| {
        link(far);
        unlink(far);
        while cx.recv().await.is_some() {}
    });
    let own = read_operation(&mut stream, 1)[1].clone();
    read_operation(&mut stream, 35);
    drop(stream);
    while !node.peers().is_empty() {
        std::thread::yield_now();
    }
    let mut stream = connect(&node, flags::OWN);
    write(&mut stream, &[&Term::tuple([Term::from(1), pid().into(), own])]);
    until_done(&mut stream);
    process.cancel();
    process.join().expect("it was not ended");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a time");
    read_reason(&mut stream, 24);
}

/// Reads operations until a process is monitored. The pulse also asks by a monitor.
fn read_monitor(stream: &mut TcpStream) -> Vec<Term> {
    loop {
        let items = read_operation(stream, 19);
        if items[2] == Term::from(pid()) {
            return items;
        }
    }
}

/// Goal: a late reply is counted.
#[test]
fn a_reply_that_nobody_awaits_is_counted() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    until_done(&mut stream);
    let late = scheduler.block_on(node.call(pid(), Term::from(1), Duration::ZERO));
    assert!(matches!(late, Err(CallTermError::TimedOut)), "{late:?}");
    let monitor = read_monitor(&mut stream);
    let (caller, call) = (monitor[1].clone(), monitor[3].clone());
    let reply = Term::tuple([call, Term::from(5)]);
    write(&mut stream, &[&Term::tuple([Term::from(2), Term::atom(""), caller]), &reply]);
    until_done(&mut stream);
    assert_eq!(node.peers()[0].undelivered, 1);
}

/// Goal: a connection that a shutdown ends accepts nothing while it sends what was accepted before.
/// Method: the other node never answers the last question.
#[test]
fn a_connection_that_ends_accepts_nothing() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::atom("noproc"));
    until_done(&mut stream);
    let ends = scheduler.clone();
    let shutdown = procession::spawn_blocking(move || {
        procession::run(ends.shutdown(Duration::from_secs(60))).is_empty()
    });
    let latest = Instant::now() + Duration::from_secs(30);
    while node.send(pid(), Term::from(1)).is_ok() {
        assert!(Instant::now() < latest, "it goes on");
        std::thread::yield_now();
    }
    assert_eq!(node.peers().len(), 1, "the connection has not ended");
    drop(stream);
    assert_eq!(shutdown.join(), Ok(true), "nothing else holds the shutdown up");
}

/// Goal: a node that leaves is told that it has all calls and starts after they were sent. Method:
/// a call has many fragments, which the statement could pass.
#[test]
fn a_node_that_leaves_is_told_last_that_it_has_all_calls() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::tuple([Term::atom("received"), Term::from(0)]));
    until_done(&mut stream);
    let limit = Duration::from_secs(60);
    // More than the system takes from a node while nobody reads.
    let large = Term::from(vec![7; 14 << 20]);
    scheduler.block_on(async {
        let mut call = pin!(node.call(pid(), large, limit));
        let mut start = pin!(node.spawn("b@127.0.0.1", "m", "f", Vec::new(), limit));
        poll_fn(|task| {
            assert!(
                call.as_mut().poll(task).is_pending() && start.as_mut().poll(task).is_pending()
            );
            Poll::Ready(())
        })
        .await;
    });
    state(&mut stream, &Term::atom("leaving"));
    let leaving = scheduler.block_on(async {
        loop {
            match node.call(pid(), Term::from(1), Duration::ZERO).await {
                Err(CallTermError::Send(error)) => break error.cause(),
                _ => procession::yield_now().await,
            }
        }
    });
    assert_eq!(leaving, SendTermCause::Leaving);
    let before = until_stated(&mut stream, "settled");
    assert!(before.contains(&0) && before.contains(&29), "{before:?}");
}

/// Goal: a node of this crate learns the release before the first answer, so that it knows both.
#[test]
fn the_release_is_stated_before_the_first_answer() {
    let (_scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    let question = Reference::new(Atom::known("b@127.0.0.1"), 7, &[5]).expect("it has a word");
    let ask = [Term::from(19), pid().into(), Term::atom(PULSE), question.into()];
    let asked = read_operation(&mut stream, 19);
    write(&mut stream, &[&Term::tuple(ask)]);
    assert_eq!(read_reason(&mut stream, 28), Statement::release().to_term());
    assert_eq!(read_reason(&mut stream, 28), pulse::received(0));
    assert_eq!(node.peers()[0].protocol, None, "it has not answered");
    // A node without a statement.
    answer(&mut stream, &asked, &pulse::received(0));
    until_done(&mut stream);
    let peer = &node.peers()[0];
    assert_eq!((peer.release.as_deref(), peer.protocol), (None, Some(UNSTATED)));
}

/// Goal: a node of the BEAM sees nothing of releases.
#[test]
fn no_release_is_stated_to_a_node_that_does_not_ask() {
    let (_scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    answer_question(&mut stream, &Term::atom("noproc"));
    let tag = Reference::new(Atom::known("b@127.0.0.1"), 7, &[8]).expect("it has a word");
    let request = Term::tuple([Term::atom("is_auth"), Term::atom("b@127.0.0.1")]);
    write_call(&mut stream, "net_kernel", (pid(), tag.into()), request);
    // A statement would be in front of the reply.
    loop {
        let frame = read_frame(&mut stream);
        let operation = Reader::new(&frame[3..], &[], 1 << 16).term().expect("it is an operation");
        let number = operation.as_tuple().and_then(|items| items[0].as_integer());
        assert_ne!(number, Some(28), "{operation}");
        if number == Some(22) {
            break;
        }
    }
    let peer = &node.peers()[0];
    assert_eq!((peer.release.as_deref(), peer.protocol), (None, None));
}

/// Goal: a node whose release is too old is refused, with the reason and a count.
#[test]
fn a_node_of_an_old_release_is_refused() {
    let (scheduler, node) = listening(60);
    let mut stream = connect(&node, flags::OWN);
    let version = "0.0.1".to_owned();
    let old = Statement::Release(Release { protocol: OLDEST - 1, version });
    state(&mut stream, &old.to_term());
    answer_question(&mut stream, &pulse::received(0));
    until_ended(&scheduler, &node);
    let status = node.status();
    assert_eq!(status.refusals, [("release".to_owned(), 1)]);
    assert!(status.ends[0].0.contains("protocol 0"), "{:?}", status.ends);
}

/// Goal: a node that leaves answers a call that it receives before it knows that the other node is
/// of this crate.
#[test]
fn a_node_that_leaves_waits_until_it_knows_the_other_node() {
    let (scheduler, node) = listening(60);
    let server = scheduler.start(async move |mut cx: Context<Letter>| {
        while let Some(Letter::Call { reply, .. }) = cx.recv().await {
            reply.send(Term::from(7)).expect("its node takes replies");
        }
    });
    let member = node.attach(&server.address().map(|letter| letter));
    node.register("server", &member).expect("the name is free");
    let mut stream = connect(&node, flags::OWN);
    let question = read_operation(&mut stream, 19);
    let (begins, begun) = std::sync::mpsc::channel();
    let leaves = node.clone();
    let drained = scheduler.spawn(async move {
        let mut drains = pin!(leaves.drain(Duration::from_secs(60)));
        let first = poll_fn(|task| Poll::Ready(drains.as_mut().poll(task))).await;
        assert!(first.is_pending());
        begins.send(()).expect("the test waits");
        drains.await
    });
    begun.recv().expect("it begins");
    let tag = Reference::new(Atom::known("b@127.0.0.1"), 7, &[6]).expect("it has a word");
    write_call(&mut stream, "server", (pid(), tag.into()), Term::from(1));
    answer(&mut stream, &question, &Term::tuple([Term::atom("received"), Term::from(0)]));
    until_stated(&mut stream, "leaving");
    state(&mut stream, &Term::atom("settled"));
    answer_all(&mut stream, 1);
    drop(stream);
    assert_eq!(drained.join(), Ok(0));
    server.cancel();
    server.join().expect("it has replied");
}
