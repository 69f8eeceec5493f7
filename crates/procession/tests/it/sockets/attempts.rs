//! Connecting to hosts with several addresses.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use procession::net::{SocketOptions, TcpListener, TcpStream};
use procession::timeout;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use super::{HERE, LONG};
use crate::scene::threaded;

/// Returns an address at which nothing listens, and the socket that keeps others from its port.
fn closed() -> (OwnedFd, SocketAddr) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("there are sockets");
    let any: SocketAddr = HERE.parse().expect("it is an address");
    bind(&socket, &any).expect("there are free ports");
    let address = getsockname(&socket).expect("it is bound").try_into().expect("it is of IPv4");
    (socket, address)
}

#[test]
fn an_address_that_refuses_is_passed_over() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let good = listener.local_addr().expect("it is bound");
        let closed = [closed(), closed(), closed()];
        let addresses = [closed[0].1, closed[1].1, good, closed[2].1];
        let stream = TcpStream::connect(&addresses[..]).await.expect("one listens");
        assert_eq!(stream.peer_addr().expect("it is connected"), good);
        let refused = TcpStream::connect(&addresses[..2]).await.expect_err("none listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let none = TcpStream::connect(&addresses[..0]).await.expect_err("there is no address");
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
    });
}

/// Fills the backlog of a listener, so that the kernel drops further attempts.
fn full() -> (StdTcpListener, Vec<StdTcpStream>) {
    let listener = StdTcpListener::bind(HERE).expect("there are free ports");
    rustix::net::listen(&listener, 1).expect("it is bound");
    let address = listener.local_addr().expect("it is bound");
    let (mut held, mut dropped) = (Vec::new(), 0);
    // One attempt may take so long because this thread did not run.
    while dropped < 3 {
        match StdTcpStream::connect_timeout(&address, Duration::from_millis(50)) {
            Ok(stream) => {
                held.push(stream);
                dropped = 0;
            }
            Err(_) => dropped += 1,
        }
        assert!(held.len() < 100, "the backlog fills up");
    }
    (listener, held)
}

#[test]
fn an_address_that_does_not_answer_is_passed_over() {
    let (silent, _held) = full();
    let silent = silent.local_addr().expect("it is bound");
    let (_socket, closed) = closed();
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let good = listener.local_addr().expect("it is bound");
        for addresses in [[silent, silent, good], [silent, closed, good]] {
            let connected = timeout(LONG, TcpStream::connect(&addresses[..])).await;
            let stream = connected.expect("minutes do not pass").expect("one listens");
            assert_eq!(stream.peer_addr().expect("it is connected"), good);
            // The connections that were given up are gone: nothing but this one was accepted.
            let (_, peer) = listener.accept().await.expect("there is a connection");
            assert_eq!(peer, stream.local_addr().expect("it is connected"));
        }
        let options = SocketOptions::new().local_addr(SocketAddr::from(([127, 0, 0, 1], 0)));
        let connected = timeout(LONG, options.connect(&[silent, good][..])).await;
        connected.expect("minutes do not pass").expect("one listens");
    });
}
