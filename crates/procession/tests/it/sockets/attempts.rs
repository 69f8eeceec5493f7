//! Connecting to hosts with several addresses.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::time::Duration;

use procession::net::{SocketOptions, TcpListener, TcpStream};
use procession::timeout;

use super::{HERE, LONG};
use crate::scene::threaded;

/// Returns an address at which nothing listens.
async fn closed() -> SocketAddr {
    let listener = TcpListener::bind(HERE).await.expect("there are free ports");
    listener.local_addr().expect("it is bound")
}

#[test]
fn an_address_that_refuses_is_passed_over() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let good = listener.local_addr().expect("it is bound");
        let addresses = [closed().await, closed().await, good, closed().await];
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
    let mut held = Vec::new();
    while let Ok(stream) = StdTcpStream::connect_timeout(&address, Duration::from_millis(50)) {
        held.push(stream);
        assert!(held.len() < 100, "the backlog fills up");
    }
    (listener, held)
}

#[test]
fn an_address_that_does_not_answer_is_passed_over() {
    let (silent, _held) = full();
    let silent = silent.local_addr().expect("it is bound");
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let good = listener.local_addr().expect("it is bound");
        for addresses in [[silent, silent, good], [silent, closed().await, good]] {
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
