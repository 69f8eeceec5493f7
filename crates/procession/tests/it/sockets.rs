//! TCP, UDP and Unix sockets, with peers that behave and peers that do not.

mod attempts;
mod few;
mod gone;
mod kinds;
mod options;
mod passing;
mod slow;

use std::future::{Future, poll_fn};
use std::io;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use procession::net::{Host, TcpListener, TcpStream, UnixStream};
use procession::{JoinHandle, Scheduler, spawn, timeout};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::scene::{driven, threaded};

const HERE: &str = "127.0.0.1:0";

/// Long enough not to pass. A hang is reported after this time.
const LONG: Duration = Duration::from_secs(60);

const SHORT: Duration = Duration::from_millis(5);

/// Returns the two ends of a connection.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).await.expect("there are free ports");
    let client = TcpStream::connect(listener.local_addr().expect("it is bound"))
        .await
        .expect("the listener is open");
    let (server, peer) = listener.accept().await.expect("there is a connection");
    assert_eq!(peer, client.local_addr().expect("it is connected"));
    (client, server)
}

/// Polls once. Returns `true` if the future waits.
async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_pending())).await
}

/// Sends everything back, until the end.
async fn echo(stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}

/// Starts a server on that scheduler that sends everything back to all clients.
fn echo_server(scheduler: &Scheduler) -> (SocketAddr, JoinHandle<()>) {
    let listener = scheduler.block_on(TcpListener::bind(HERE)).expect("there are free ports");
    let address = listener.local_addr().expect("it is bound");
    let server = scheduler.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("it listens");
            drop(spawn(echo(stream)));
        }
    });
    (address, server)
}

async fn says_back(stream: &TcpStream, text: &[u8]) {
    stream.write_all(text).await.expect("it is connected");
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.expect("it is connected");
    assert_eq!(back, text);
}

#[test]
fn many_clients_are_served_at_once() {
    for scheduler in [threaded(1), threaded(3)] {
        let (address, server) = echo_server(&scheduler);
        let clients: Vec<_> = (0..100_u8)
            .map(|number| {
                scheduler.spawn(async move {
                    let stream = TcpStream::connect(address).await.expect("the listener is open");
                    stream.set_nodelay(true).expect("it is TCP");
                    for round in 0..20 {
                        says_back(&stream, &[number, round, number ^ round]).await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("it does not panic");
        }
        assert!(procession::process::kill(server.pid()));
        server.join().expect_err("it was terminated");
    }
}

#[test]
fn plain_threads_and_processes_talk_over_tcp() {
    let scheduler = threaded(2);
    let (address, _server) = echo_server(&scheduler);
    let mut stream = crate::home::net::TcpStream::connect(address).expect("the listener is open");
    stream.set_read_timeout(Some(LONG)).expect("it is not zero");
    stream.write_all(b"from a thread").expect("it is connected");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let mut back = String::new();
    stream.read_to_string(&mut back).expect("it is connected");
    assert_eq!(back, "from a thread");
}

#[test]
fn a_driven_scheduler_serves_on_both_clocks() {
    let real = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .build()
        .expect("it starts no thread");
    for scheduler in [driven(), real] {
        scheduler.block_on(async {
            let (client, server) = connected().await;
            let server = spawn(echo(server));
            says_back(&client, b"over the loop").await;
            client.shutdown(Shutdown::Write).expect("it is connected");
            assert_eq!(client.read(&mut [0]).await.expect("it is connected"), 0);
            server.await.expect("it does not panic").expect("the client behaved");
        });
    }
}

#[test]
fn nobody_listens() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let refused = TcpStream::connect(address).await.expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let nowhere =
            UnixStream::connect("/nowhere/at/all").await.expect_err("there is no such path");
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    });
}

/// The kernel lets one or two more connections wait than the backlog says, and does not answer any
/// others.
#[test]
fn a_connect_that_is_not_answered_ends_in_time() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        rustix::net::listen(&listener, 0).expect("it listens");
        let address = listener.local_addr().expect("it is bound");
        let mut connected = Vec::new();
        let late = loop {
            match TcpStream::connect_timeout(address, SHORT).await {
                Ok(stream) => connected.push(stream),
                Err(error) => break error,
            }
            assert!(connected.len() < 10, "the backlog is full");
        };
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn names_are_looked_up() {
    for scheduler in [threaded(1), driven()] {
        scheduler.block_on(async {
            let listener =
                TcpListener::bind("localhost:0").await.expect("every system knows itself");
            let port = listener.local_addr().expect("it is bound").port();
            let lookups: Vec<_> =
                (0..20).map(|_| spawn(Host::from(("localhost", port)).addresses())).collect();
            for lookup in lookups {
                let addresses =
                    lookup.await.expect("it does not panic").expect("every system knows itself");
                assert!(
                    addresses
                        .iter()
                        .all(|address| address.ip().is_loopback() && address.port() == port)
                );
            }
            TcpStream::connect(format!("localhost:{port}")).await.expect("the listener is open");
            TcpStream::connect("no port").await.expect_err("there is no port");
        });
    }
}

/// Otherwise the clock, which finds nothing to run, would jump over the limit.
#[test]
fn the_test_clock_stands_still_while_a_name_is_looked_up() {
    driven().block_on(async {
        let lookup = timeout(LONG, Host::from("localhost:7").addresses());
        let addresses = lookup.await.expect("no time passes").expect("every system knows itself");
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    });
}

#[test]
fn parts_come_whole_and_in_order() {
    let scheduler = threaded(2);
    let (one, other) = scheduler.block_on(connected());
    let sent: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    let writer = scheduler.spawn({
        let sent = sent.clone();
        async move {
            one.set_nodelay(true).expect("it is TCP");
            for byte in sent {
                assert_eq!(one.write(&[byte]).await.expect("it is connected"), 1);
            }
            one
        }
    });
    let received = scheduler.block_on(async {
        let mut received = vec![0; 1000];
        other.read_exact(&mut received).await.expect("it is connected");
        received
    });
    assert_eq!(received, sent);
    drop(writer.join().expect("it does not panic"));
    let error = scheduler.block_on(other.read_exact(&mut [0; 3])).expect_err("that was the end");
    assert_eq!(
        (error.kind(), error.to_string()),
        (
            ErrorKind::UnexpectedEof,
            "the peer has closed the connection, 3 bytes too early".to_owned()
        )
    );
}

#[test]
fn peeking_takes_nothing() {
    threaded(1).block_on(async {
        let (client, server) = connected().await;
        client.write_all(b"twice").await.expect("it is connected");
        let mut buffer = [0; 64];
        for _ in 0..2 {
            let count = server.peek(&mut buffer).await.expect("it is connected");
            assert_eq!(&buffer[..count], b"twice");
        }
        assert_eq!(server.read(&mut buffer[..2]).await.expect("it is connected"), 2);
        let (mut first, mut second) = ([0; 1], [0; 8]);
        let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(server.read_vectored(buffers).await.expect("it is connected"), 3);
        assert_eq!((&first, &second[..2]), (b"i", &b"ce"[..]));
        assert_eq!(
            server.try_read(&mut buffer).expect_err("there is no more").kind(),
            ErrorKind::WouldBlock
        );
        let parts = [IoSlice::new(b"o"), IoSlice::new(b"ne")];
        assert_eq!(server.write_vectored(&parts).await.expect("there is room"), 3);
        assert_eq!(client.read(&mut buffer).await.expect("it is connected"), 3);
    });
}

/// Parts of all sizes: few and small, few and large, more than the system takes at once, and none.
#[test]
fn parts_are_written_and_read_in_their_order() {
    threaded(2).block_on(async {
        for (count, length) in
            [(2, 3), (3, 300), (2, 1000), (1, 5000), (40, 700), (1500, 2), (0, 0), (2, 0)]
        {
            let (client, server) = connected().await;
            let all: Vec<u8> = (0..count * length).map(|n| (n % 251) as u8).collect();
            let sent = all.clone();
            let writer = spawn(async move {
                let mut start = 0;
                let mut parts: Vec<_> = sent.chunks(length.max(1)).map(IoSlice::new).collect();
                parts.resize(count, IoSlice::new(&[]));
                let mut parts = &mut *parts;
                while start < sent.len() {
                    let count = client.write_vectored(parts).await.expect("it is connected");
                    IoSlice::advance_slices(&mut parts, count);
                    start += count;
                }
                assert_eq!(
                    client.write_vectored(parts).await.expect("there is nothing to write"),
                    0
                );
            });
            let mut received = Vec::new();
            loop {
                let mut pieces = [[0; 7]; 1200];
                let mut buffers: Vec<_> =
                    pieces.iter_mut().map(|piece| IoSliceMut::new(piece)).collect();
                let count = server.read_vectored(&mut buffers).await.expect("it is connected");
                received.extend_from_slice(&pieces.as_flattened()[..count]);
                if count == 0 {
                    break;
                }
            }
            writer.await.expect("it does not panic");
            assert!(received == all, "{count} parts of {length}");
        }
        let (one, other) = UnixStream::pair().expect("the system has descriptors");
        drop(other);
        let gone = one
            .write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")])
            .await
            .expect_err("nobody is there");
        assert_eq!(gone.kind(), ErrorKind::BrokenPipe, "and no signal");
    });
}

/// Goal: a short read proves nothing about what is behind it. Method: everything comes in one step
/// of the only worker, so there is one event for all of it.
#[test]
fn a_short_read_of_a_unix_stream_hides_nothing() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    threaded(1).block_on(async {
        let (ours, theirs) =
            std::os::unix::net::UnixStream::pair().expect("the system has descriptors");
        let ours = UnixStream::try_from(ours).expect("it is a socket");
        let reader = spawn(async move {
            let mut seen: Vec<u8> = Vec::new();
            while seen.len() < 4 {
                let mut part = [0; 64];
                let count = timeout(LONG, ours.read(&mut part)).await.expect("it is there")?;
                seen.extend(&part[..count]);
            }
            Ok::<_, io::Error>(seen)
        });
        let sender = spawn(async move {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [theirs.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            sendmsg(&theirs, &[IoSlice::new(b"ab")], &mut control, SendFlags::empty())?;
            (&theirs).write_all(b"cd")?;
            // Nothing else comes: the end would be an event.
            Ok::<_, io::Error>(theirs)
        });
        let _open = sender.await.expect("it does not panic").expect("there is room");
        assert_eq!(reader.await.expect("it does not panic").expect("it is connected"), b"abcd");
    });
}

/// Goal and method are those of the test above.
#[test]
fn urgent_data_hide_nothing_that_comes_behind_them() {
    use rustix::net::{SendFlags, send};

    threaded(1).block_on(async {
        let (client, server) = connected().await;
        let server = StdTcpStream::try_from(server).expect("it is a socket");
        let reader = spawn(async move {
            let mut seen: Vec<u8> = Vec::new();
            while seen.len() < 4 {
                let mut part = [0; 64];
                let count = timeout(LONG, client.read(&mut part)).await.expect("it is there")?;
                seen.extend(&part[..count]);
            }
            Ok::<_, io::Error>(seen)
        });
        let sender = spawn(async move {
            (&server).write_all(b"ab")?;
            send(&server, b"!", SendFlags::OOB)?;
            (&server).write_all(b"cd")?;
            Ok::<_, io::Error>(server)
        });
        let _open = sender.await.expect("it does not panic").expect("there is room");
        assert_eq!(reader.await.expect("it does not panic").expect("it is connected"), b"abcd");
    });
}

/// Asserts that data written in parts arrives in order when it is read in other parts.
fn check_parts(writes: Vec<usize>, reads: Vec<usize>) {
    let total: usize = writes.iter().sum();
    let scheduler = threaded(2);
    let (mut one, mut other) =
        scheduler.block_on(async { UnixStream::pair() }).expect("the system has descriptors");
    let writer = scheduler.spawn(async move {
        let mut next = 0_usize;
        for length in writes {
            let part: Vec<u8> = (next..next + length).map(|n| n as u8).collect();
            AsyncWriteExt::write_all(&mut one, &part).await.expect("it is connected");
            next += length;
        }
    });
    let received = scheduler.block_on(async {
        let mut received: Vec<u8> = Vec::new();
        for length in reads.into_iter().cycle() {
            let mut part = vec![0; length];
            let count = AsyncReadExt::read(&mut other, &mut part).await.expect("it is connected");
            received.extend(&part[..count]);
            if count == 0 {
                break;
            }
        }
        received
    });
    writer.join().expect("it does not panic");
    assert!(
        received.len() == total && received.iter().enumerate().all(|(n, &byte)| byte == n as u8)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(crate::home::seed()), ..ProptestConfig::default() })]
    #[test]
    fn streams_keep_bytes_and_order(
        writes in prop::collection::vec(1_usize..60_000, 1..12),
        reads in prop::collection::vec(1_usize..60_000, 1..12),
    ) {
        check_parts(writes, reads);
    }
}
