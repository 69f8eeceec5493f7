//! A port mapper that ends, or never answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use procession::blocking;
use procession::time::Instant;
use procession_cluster::{ConnectError, Node, PingError};

use crate::{PATIENCE, cookie, listens, run};

/// Answers a registration as EPMD does. It ends when the stream is dropped. Also returns the port
/// and the word.
fn registers(epmd: &TcpListener) -> (TcpStream, u16, String) {
    let (mut stream, _) = epmd.accept().expect("a node comes");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("it has a length");
    let mut request = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut request).expect("it is whole");
    assert_eq!(request[0], 120);
    stream.write_all(&[121, 0, 0, 1]).expect("it reads");
    let word = 11..11 + usize::from(u16::from_be_bytes([request[9], request[10]]));
    let word = String::from_utf8(request[word].to_vec()).expect("it is a text");
    (stream, u16::from_be_bytes([request[1], request[2]]), word)
}

/// Goal: a node that EPMD forgets because EPMD ends is registered again.
#[test]
fn a_node_is_registered_again_when_epmd_ends() {
    run(async {
        let epmd = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let at = epmd.local_addr().expect("it is bound");
        let starts = procession::spawn(listens("a@127.0.0.1").epmd(at).register().start());
        let mut registration = blocking(|| registers(&epmd));
        let node = starts.await.expect("it ends").expect("it is registered");
        let port = node.local_addr().expect("it listens").port();
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!((registration.1, &*registration.2), (port, "a"));
            drop(registration);
            registration = blocking(|| registers(&epmd));
        }
        // The waits double from 100 ms on, and a pause is at least half of its wait: an EPMD that
        // closes each registration is asked less and less.
        assert!(Instant::now() - start >= Duration::from_millis(3100 / 2));
        // A node that stops is registered no more.
        let (mut stream, ..) = registration;
        node.stop();
        let read = blocking(|| stream.read(&mut [0]));
        // A reset is also an end: the node may not have read the answer by then.
        let is_closed = match &read {
            Ok(count) => *count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{read:?}");
    });
}

/// Goal: the time limit of a ping covers connecting.
#[test]
fn a_ping_has_a_time_limit_while_it_connects() {
    run(async {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let epmd = silent.local_addr().expect("it is bound");
        let a = Node::builder("a@127.0.0.1").cookie(cookie()).epmd(epmd);
        let a = a.start().await.expect("it starts");
        let failed = a.ping("b@127.0.0.1", Duration::from_millis(50)).await;
        assert!(matches!(failed, Err(PingError::Connect(ConnectError::TimedOut))), "{failed:?}");
    });
}
