//! Other nodes that misbehave once they are connected.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use procession::{Context, Exit, Scheduler};

use crate::handshake::{Handshake, Introduction, Progress, flags};
use crate::term::{Atom, NodePid};
use crate::{Cookie, Letter, Node, Remote, SendTermCause, Term};

fn cookie() -> Cookie {
    Cookie::new("secret").expect("it has a text")
}

async fn listens(patience: u64) -> Node {
    let node = Node::builder("a@127.0.0.1").cookie(cookie());
    let node = node.patience(Duration::from_secs(patience));
    node.listen((Ipv4Addr::LOCALHOST, 0).into()).start().await.expect("it starts")
}

/// Connects as the node `b@127.0.0.1`, by hand.
fn connect(node: &Node, flags: u64) -> TcpStream {
    let mut stream =
        TcpStream::connect(node.local_addr().expect("it listens")).expect("it listens");
    let name = Atom::new("b@127.0.0.1").expect("it is short");
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

/// The exit that a monitor of a process of the other node tells, once `spoil` has been called.
fn told_after(
    patience: u64,
    flags: u64,
    spoil: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> Exit {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let node = scheduler.block_on(listens(patience));
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
    // It stays open meanwhile.
    watcher.join().expect("it ends")
}

#[test]
fn a_node_that_is_silent_is_given_up() {
    assert_eq!(told_after(1, flags::OWN, |_| {}), Exit::NoConnection);
}

#[test]
fn a_node_that_breaks_the_protocol_is_given_up() {
    let frames: [&[u8]; 6] = [
        // A frame that is too long, one without a version, and a fragment of nothing.
        &[255, 255, 255, 255],
        &[0, 0, 0, 2, 1, 2],
        &[0, 0, 0, 18, 131, 70, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        // An operation that is none, one that is unknown, and one with a term too many.
        &[0, 0, 0, 4, 131, 68, 0, 106],
        &[0, 0, 0, 7, 131, 68, 0, 104, 1, 97, 99],
        &[0, 0, 0, 9, 131, 68, 0, 104, 1, 97, 7, 106, 106],
    ];
    for frame in frames {
        let told = told_after(60, flags::OWN, move |stream| {
            stream.write_all(frame).expect("it reads");
            // It is closed at once, long before the patience ends.
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        });
        assert_eq!(told, Exit::NoConnection, "{frame:?}");
    }
}

/// An older kind of node, such as Ericsson's library for C: no headers, and no reasons behind the
/// operations.
#[test]
fn a_node_without_headers_is_understood() {
    let down = {
        let mut bytes = vec![b'p', 131, 104, 5, 97, 21];
        let mut writer = crate::term::Writer::new(&mut bytes);
        writer.pid(&pid());
        bytes
    };
    let told = told_after(60, flags::REQUIRED, move |stream| {
        // The request to monitor comes first: its reference is the last of its elements.
        let mut length = [0; 4];
        let mut frame = Vec::new();
        while frame.is_empty() {
            stream.read_exact(&mut length).expect("it sends");
            frame = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut frame).expect("it sends");
        }
        let mut reader = crate::term::Reader::new(&frame[2..], &[], 1 << 16);
        let request = reader.term().expect("it is a request");
        let items = request.as_tuple().expect("it is a tuple");
        assert_eq!(items[0], Term::from(19));
        let mut down = down;
        let mut writer = crate::term::Writer::new(&mut down);
        for term in [&items[1], &items[3], &Term::atom("shutdown")] {
            writer.term(term).expect("it is right");
        }
        let length = (down.len() as u32).to_be_bytes();
        stream.write_all(&[&length[..], &down].concat()).expect("it reads");
    });
    assert_eq!(told, Exit::Shutdown);
}

/// Goal: a node that does not read holds up no sender and takes little memory.
#[test]
fn a_node_that_never_reads_makes_sends_fail() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let node = scheduler.block_on(listens(60));
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
