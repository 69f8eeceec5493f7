//! Halves, std's sockets, datagrams and paths.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read};
use std::net::TcpStream as StdTcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::{env, io};

use futures_lite::AsyncReadExt;
use procession::net::{
    ReadHalf, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use procession::spawn;
use procession::sync::oneshot;

use super::{HERE, SHORT, connected, echo, waits};
use crate::scene::threaded;

#[test]
fn halves_work_at_once_and_make_one_again() {
    let scheduler = threaded(2);
    scheduler.block_on(async {
        let (client, server) = connected().await;
        let server = spawn(echo(server));
        let (mut reads, mut writes) = client.into_split();
        let reader = spawn(async move {
            let mut received = Vec::new();
            AsyncReadExt::read_to_end(&mut reads, &mut received).await.expect("it is connected");
            (reads, received.len())
        });
        for _ in 0..100 {
            writes.write_all(&[1; 10_000]).await.expect("it is connected");
        }
        writes.shutdown().await.expect("it is connected");
        let (reads, received) = reader.await.expect("it does not panic");
        assert_eq!(received, 1_000_000);
        server.await.expect("it does not panic").expect("the client behaved");
        let other: ReadHalf<Arc<TcpStream>> = connected().await.0.into_split().0;
        let error = other.reunite(writes).expect_err("they are of two streams");
        assert_eq!(error.to_string(), "cannot reunite halves of two streams");
        let stream = reads.reunite(error.into_inner().1).expect("they are of one stream");
        assert_eq!(stream.read(&mut [0]).await.expect("it was closed in order"), 0);

        let (client, server) = connected().await;
        let (mut reads, mut writes) = client.split();
        writes.write_all(b"a").await.expect("it is connected");
        assert_eq!(server.read(&mut [0]).await.expect("it is connected"), 1);
        server.write_all(b"b").await.expect("it is connected");
        assert_eq!(reads.read(&mut [0]).await.expect("it is connected"), 1);
        assert!(std::ptr::eq(reads.stream(), writes.stream()));
    });
}

#[test]
fn sockets_come_from_std_and_go_back() -> io::Result<()> {
    threaded(1).block_on(async {
        let listener = std::net::TcpListener::bind(HERE)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::try_from(listener)?;
        let client = TcpStream::try_from(StdTcpStream::connect(address)?)?;
        let (server, _) = listener.accept().await?;
        let mut blocking = StdTcpStream::try_from(server)?;
        client.write_all(b"ab").await?;
        let mut bytes = [0; 2];
        blocking.read_exact(&mut bytes)?;
        assert_eq!(&bytes, b"ab");
        let again = TcpStream::try_from(blocking)?;
        again.write_all(b"c").await?;
        assert_eq!(client.read(&mut bytes).await?, 1);
        assert!(format!("{client:?}").contains(&address.port().to_string()));
        Ok(())
    })
}

#[test]
fn datagrams_stay_whole() -> io::Result<()> {
    threaded(1).block_on(async {
        let (one, other) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
        let mut buffer = [0; 64];
        assert_eq!(
            one.try_recv_from(&mut buffer).expect_err("there is none").kind(),
            ErrorKind::WouldBlock
        );
        let to = other.local_addr()?;
        let waits = spawn(async move {
            let mut buffer = [0; 64];
            let (count, from) = other.peek_from(&mut buffer).await?;
            assert_eq!(other.peek(&mut buffer).await?, count);
            assert_eq!(other.recv_from(&mut buffer).await?, (count, from));
            other.connect(from).await?;
            other.send(&buffer[..count]).await?;
            assert_eq!(other.peer_addr()?, from);
            other.set_read_timeout(Some(SHORT))?;
            Ok::<_, io::Error>(other.recv(&mut buffer).await.map_err(|error| error.kind()))
        });
        one.send_to(b"first", to).await?;
        assert_eq!(one.recv_from(&mut buffer).await?, (5, to));
        assert_eq!(&buffer[..5], b"first");
        assert_eq!(waits.await.expect("it does not panic")?, Err(ErrorKind::TimedOut));
        Ok(())
    })
}

/// Goal: the error of a connected socket wakes a process that receives, although no datagram comes.
/// Method: the peer keeps its port, so that no other socket gets the port. The peer is connected
/// to itself, so it takes no datagrams of others.
#[test]
fn a_refused_datagram_wakes_the_receiver_of_its_sender() -> io::Result<()> {
    threaded(1).block_on(async {
        let peer = UdpSocket::bind(HERE).await?;
        peer.connect(peer.local_addr()?).await?;
        let socket = Arc::new(UdpSocket::bind(HERE).await?);
        socket.connect(peer.local_addr()?).await?;
        let own = Arc::clone(&socket);
        let (waiting, waits) = oneshot::channel();
        let receiver = spawn(async move {
            let (mut buffer, mut waiting) = ([0; 8], Some(waiting));
            let mut received = pin!(own.recv(&mut buffer));
            poll_fn(|task| {
                let polled = received.as_mut().poll(task);
                // After this poll, nothing but a wake polls again.
                if polled.is_pending()
                    && let Some(waiting) = waiting.take()
                {
                    waiting.send(()).expect("the test waits");
                }
                polled
            })
            .await
        });
        waits.await.expect("nothing has come yet");
        socket.send(b"refused").await?;
        let refused = receiver.await.expect("it does not panic");
        assert_eq!(refused.expect_err("no datagram comes").kind(), ErrorKind::ConnectionRefused);
        // The error was returned once. The socket can be used afterwards.
        assert_eq!(socket.send(b"refused").await?, 7);
        Ok(())
    })
}

#[test]
fn unix_sockets_are_named_by_paths() -> io::Result<()> {
    let folder = env::temp_dir().join(format!("procession-sockets-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (stream, datagram) = (folder.join("stream"), folder.join("datagram"));
    threaded(2).block_on(async {
        let listener = UnixListener::bind(&stream)?;
        assert_eq!(listener.local_addr()?.as_pathname(), Some(&*stream));
        let server = spawn(async move {
            let (stream, _) = listener.accept().await?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            stream.write_all(&bytes).await
        });
        let client = UnixStream::connect(&stream).await?;
        assert_eq!(client.peer_addr()?.as_pathname(), Some(&*stream));
        client.write_all(b"path").await?;
        let mut back = [0; 4];
        client.read_exact(&mut back).await?;
        server.await.expect("it does not panic")?;

        let receiver = UnixDatagram::bind(&datagram)?;
        let sender = UnixDatagram::unbound()?;
        // More datagrams than the receiver's queue can hold.
        let count = 1000_u32;
        let sends = spawn({
            let datagram = datagram.clone();
            async move {
                for number in 0..count {
                    sender.send_to(&number.to_ne_bytes(), &datagram).await?;
                }
                sender.connect(&datagram)?;
                sender.send(b"last").await
            }
        });
        for number in 0..count {
            assert_eq!(receiver.recv(&mut back).await?, 4);
            assert_eq!(u32::from_ne_bytes(back), number);
        }
        receiver.recv_from(&mut back).await?;
        assert_eq!(&back, b"last");
        sends.await.expect("it does not panic")?;
        // Shorter than the pause between two attempts.
        let another = UnixDatagram::unbound()?;
        another.set_write_timeout(Some(SHORT / 2))?;
        while another.send_to(b"full", &datagram).await.is_ok() {}
        let mut send = pin!(another.send_to(b"full", &datagram));
        assert!(waits(send.as_mut()).await);
        receiver.recv(&mut back).await?;
        assert_eq!(send.await?, 4, "there was room in time");
        while receiver.try_recv_from(&mut back).is_ok() {}
        receiver.set_read_timeout(Some(SHORT))?;
        assert_eq!(
            receiver.recv(&mut back).await.expect_err("there is none").kind(),
            ErrorKind::TimedOut
        );
        Ok::<(), io::Error>(())
    })?;
    std::fs::remove_dir_all(&folder)
}
