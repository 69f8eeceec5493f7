//! Timeouts, and clients that are slow, silent or reset.

use std::future::Future;
use std::io;
use std::io::{ErrorKind, Write};
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use procession::net::TcpStream;
use procession::observe::ProcessState;
use procession::{Scheduler, sleep, spawn, timeout};

use super::{LONG, SHORT, connected, echo_server, says_back, waits};
use crate::scene::threaded;

#[test]
fn timeouts_end_waits_and_nothing_else() {
    threaded(1).block_on(async {
        let (mut client, server) = connected().await;
        client.set_read_timeout(Some(Duration::ZERO)).expect_err("std refuses it, too");
        assert_eq!(client.read_timeout(), None);
        client.set_read_timeout(Some(SHORT)).expect("it is not zero");
        client.set_write_timeout(Some(SHORT)).expect("it is not zero");
        assert_eq!((client.read_timeout(), client.write_timeout()), (Some(SHORT), Some(SHORT)));
        let kind = |result: io::Result<usize>| result.expect_err("it waits in vain").kind();
        for _ in 0..3 {
            assert_eq!(kind(client.read(&mut [0]).await), ErrorKind::TimedOut);
            assert_eq!(kind(AsyncReadExt::read(&mut client, &mut [0]).await), ErrorKind::TimedOut);
        }
        let full = loop {
            if let Err(error) = AsyncWriteExt::write(&mut client, &[0; 4096]).await {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::TimedOut);
        server.write_all(b"!").await.expect("it is connected");
        assert_eq!(client.read(&mut [0]).await.expect("it is connected"), 1);
    });
}

#[test]
fn the_time_of_a_read_that_was_given_up_ends_with_it() {
    threaded(1).block_on(async {
        let (client, server) = connected().await;
        client.set_read_timeout(Some(SHORT)).expect("it is not zero");
        let (mut reads, mut writes) = client.into_split();
        let mut buffer = [0];
        let mut given_up = Box::pin(reads.read(&mut buffer));
        assert!(waits(given_up.as_mut()).await);
        drop(given_up);
        sleep(2 * SHORT).await;
        // The timeout of this read begins now.
        let mut next = Box::pin(reads.read(&mut buffer));
        assert!(waits(next.as_mut()).await);
        drop(next);
        writes.write_all(b"?").await.expect("it is connected");
        assert_eq!(server.read(&mut [0]).await.expect("it is connected"), 1);
    });
}

/// Goal: a timeout that is taken back limits no read any more. Method: reads through the traits,
/// which keep their timer between their polls, and of which some are abandoned.
#[test]
fn a_timeout_that_is_taken_back_ends() {
    async fn begin<'a>(
        mut client: &'a TcpStream,
        limit: Duration,
        buffer: &'a mut [u8],
    ) -> Pin<Box<impl Future<Output = io::Result<usize>> + 'a>> {
        client.set_read_timeout(Some(limit)).expect("it is not zero");
        let mut read = Box::pin(async move { AsyncReadExt::read(&mut client, buffer).await });
        assert!(waits(read.as_mut()).await, "there is nothing, and its time has just begun");
        read
    }
    threaded(1).block_on(async {
        let (client, server) = connected().await;
        let mut buffer = [0];
        for _ in 0..2 {
            let read = begin(&client, SHORT, &mut buffer).await;
            client.set_read_timeout(None).expect("it is no limit");
            assert_eq!(client.read_timeout(), None);
            server.write_all(b"!").await.expect("it is connected");
            assert_eq!(read.await.expect("it is there"), 1);
            sleep(2 * SHORT).await;
            let read = begin(&client, LONG, &mut buffer).await;
            server.write_all(b"!").await.expect("it is connected");
            assert_eq!(read.await.expect("it is there"), 1);
        }
        for is_abandoned in [false, true] {
            let read = begin(&client, SHORT, &mut buffer).await;
            client.set_read_timeout(None).expect("it is no limit");
            if is_abandoned {
                drop(read);
            } else {
                assert!(timeout(2 * SHORT, read).await.is_err(), "it has no timeout any more");
            }
            sleep(2 * SHORT).await;
            let mut reader = &client;
            let read = AsyncReadExt::read(&mut reader, &mut buffer);
            assert!(timeout(2 * SHORT, read).await.is_err(), "it has no timeout");
        }
    });
}

/// Goal: a socket may have data that its recorded readiness does not show yet. Method: nothing
/// polls the kernel for the socket's scheduler, which its callers drive.
#[test]
fn a_wait_tries_once_more_after_its_timeout() {
    let asleep = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .build()
        .expect("it starts no thread");
    let (client, server) = asleep.block_on(connected());
    let mut server = StdTcpStream::try_from(server).expect("it is a socket");
    threaded(1).block_on(async {
        let mut buffer = [0; 2];
        assert!(timeout(SHORT, client.read(&mut buffer)).await.is_err(), "there is nothing");
        server.write_all(b"!").expect("it is connected");
        let read = timeout(SHORT, client.read(&mut buffer)).await;
        assert_eq!(read.expect("it is there").expect("it is connected"), 1);
        server.write_all(b"!").expect("it is connected");
        timeout(SHORT, client.readable()).await.expect("it is there").expect("it is connected");
        assert_eq!(client.try_read(&mut buffer).expect("it is there"), 1);
        assert!(timeout(SHORT, client.readable()).await.is_err(), "there is nothing");
    });
}

#[test]
fn a_reset_is_an_error_of_its_connection_alone() {
    let scheduler = threaded(2);
    let (address, _server) = echo_server(&scheduler);
    scheduler.block_on(async {
        let well = TcpStream::connect(address).await.expect("the listener is open");
        let (client, server) = connected().await;
        let waits = spawn(async move { server.read(&mut [0]).await.map_err(|error| error.kind()) });
        client.set_linger(Some(Duration::ZERO)).expect("it is a socket");
        assert_eq!(client.linger().expect("it is a socket"), Some(Duration::ZERO));
        drop(client);
        assert_eq!(waits.await.expect("it does not panic"), Err(ErrorKind::ConnectionReset));
        let (client, server) = connected().await;
        drop(server);
        // If the end came first, a reset answers the first byte. Then writing fails, and ends no
        // process.
        let broken = loop {
            if let Err(error) = client.write(b"?").await {
                break error.kind();
            }
        };
        assert!(matches!(broken, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{broken}");
        says_back(&well, b"unharmed").await;
    });
}

/// Goal: a peer that never reads costs the buffers of the kernel, and one waiting process. Method:
/// a writer without an end.
#[test]
fn a_reader_that_never_reads_holds_up_its_own_writer_only() {
    let scheduler = threaded(2);
    let (address, _server) = echo_server(&scheduler);
    let (silent, writes) = scheduler.block_on(async {
        let (client, server) = connected().await;
        server.set_send_buffer_size(1 << 16).expect("it is a socket");
        client.set_recv_buffer_size(1 << 16).expect("it is a socket");
        let writer = spawn(async move {
            let mut written = 0;
            while server.write_all(&[7; 4096]).await.is_ok() {
                written += 4096;
            }
            written
        });
        (client, writer)
    });
    let pid = writes.pid();
    let is_full = || {
        let snapshot = scheduler.snapshot();
        let writer =
            snapshot.processes.iter().find(|process| process.pid == pid).expect("it is alive");
        writer.state == ProcessState::Blocked && writer.waiting.for_writable()
    };
    while !is_full() {
        scheduler.run_until_idle();
    }
    scheduler.block_on(async {
        let well = TcpStream::connect(address).await.expect("the listener is open");
        for _ in 0..100 {
            says_back(&well, b"unharmed").await;
        }
    });
    assert!(is_full(), "it still waits");
    drop(silent);
    let written = writes.join().expect("it does not panic");
    assert!(written < 16 << 20, "{written} bytes went into the buffers");
}

#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    let scheduler = threaded(1);
    let (address, _server) = echo_server(&scheduler);
    let silent: Vec<_> = (0..50)
        .map(|_| crate::home::net::TcpStream::connect(address).expect("the listener is open"))
        .collect();
    scheduler.block_on(async {
        let slow = TcpStream::connect(address).await.expect("the listener is open");
        let quick = TcpStream::connect(address).await.expect("the listener is open");
        for byte in b"slow" {
            sleep(Duration::from_millis(2)).await;
            slow.write_all(&[*byte]).await.expect("it is connected");
            says_back(&quick, b"quick").await;
        }
        let mut back = [0; 4];
        slow.read_exact(&mut back).await.expect("it is connected");
        assert_eq!(&back, b"slow");
    });
    drop(silent);
}
