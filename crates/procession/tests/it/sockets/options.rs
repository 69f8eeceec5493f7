//! Options of sockets, and the features of datagrams.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::time::Duration;

use procession::net::{
    SocketOptions, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use procession::spawn;
use rustix::net::sockopt::ipv6_v6only;

use super::{HERE, SHORT, connected};
use crate::scene::{driven, threaded};

#[test]
fn options_are_those_of_the_system() -> io::Result<()> {
    threaded(1).block_on(async {
        let (client, _server) = connected().await;
        client.set_nodelay(true)?;
        client.set_ttl(9)?;
        client.set_keepalive(Some(Duration::from_secs(77)))?;
        client.set_linger(Some(Duration::from_secs(3)))?;
        client.set_recv_buffer_size(20_000)?;
        client.set_send_buffer_size(30_000)?;
        assert_eq!((client.nodelay()?, client.ttl()?), (true, 9));
        assert_eq!(client.keepalive()?, Some(Duration::from_secs(77)));
        assert_eq!(client.linger()?, Some(Duration::from_secs(3)));
        assert_eq!(client.buffer_sizes()?, (40_000, 60_000));
        client.set_keepalive_probes(Duration::from_secs(3), 5)?;
        assert_eq!(client.keepalive_probes()?, (Duration::from_secs(3), 5));
        client.set_keepalive_probes(Duration::from_secs(3), 0).expect_err("that would be no probe");
        assert_eq!(client.user_timeout()?, None);
        client.set_user_timeout(Some(Duration::from_millis(1500)))?;
        assert_eq!(client.user_timeout()?, Some(Duration::from_millis(1500)));
        for wrong in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            let error = client.set_user_timeout(Some(wrong)).expect_err("it is out of range");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        client.set_user_timeout(None)?;
        assert_eq!(client.user_timeout()?, None);
        client.set_quick_ack(false)?;
        assert!(!client.quick_ack()?);
        client.set_quick_ack(true)?;
        assert!(client.quick_ack()?);
        client.set_keepalive(None)?;
        client.set_linger(None)?;
        assert_eq!((client.keepalive()?, client.linger()?), (None, None));
        assert!(client.take_error()?.is_none());
        let listener = TcpListener::bind(HERE).await?;
        listener.set_ttl(5)?;
        assert_eq!(listener.ttl()?, 5);
        assert!(listener.take_error()?.is_none());
        Ok(())
    })
}

#[test]
fn options_of_datagrams_are_those_of_the_system() -> io::Result<()> {
    threaded(1).block_on(async {
        let socket = UdpSocket::bind(HERE).await?;
        socket.set_ttl(6)?;
        assert!(!socket.broadcast()?);
        socket.set_broadcast(true)?;
        assert_eq!((socket.ttl()?, socket.broadcast()?), (6, true));
        assert_eq!((socket.multicast_loop_v4()?, socket.multicast_ttl_v4()?), (true, 1));
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_ttl_v4(3)?;
        assert_eq!((socket.multicast_loop_v4()?, socket.multicast_ttl_v4()?), (false, 3));
        assert_eq!(socket.multicast_if_v4()?, Ipv4Addr::UNSPECIFIED);
        socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
        assert_eq!(socket.multicast_if_v4()?, Ipv4Addr::LOCALHOST);
        socket.set_recv_buffer_size(20_000)?;
        socket.set_send_buffer_size(30_000)?;
        assert_eq!(socket.buffer_sizes()?, (40_000, 60_000));
        socket.set_read_timeout(Some(SHORT))?;
        socket.set_write_timeout(Some(SHORT))?;
        assert_eq!((socket.read_timeout(), socket.write_timeout()), (Some(SHORT), Some(SHORT)));
        assert!(socket.take_error()?.is_none());
        let (one, _other) = UnixDatagram::pair()?;
        one.set_send_buffer_size(30_000)?;
        assert_eq!(one.buffer_sizes()?.1, 60_000);
        assert!(one.take_error()?.is_none());
        Ok(())
    })
}

/// Binds a socket on IPv6, which not every machine has.
async fn on_ipv6() -> Option<UdpSocket> {
    match UdpSocket::bind("[::1]:0").await {
        Ok(socket) => Some(socket),
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported),
                "{error}"
            );
            None
        }
    }
}

#[test]
fn options_of_ipv6_are_those_of_the_system() -> io::Result<()> {
    threaded(1).block_on(async {
        let Some(socket) = on_ipv6().await else { return Ok(()) };
        assert!(socket.multicast_loop_v6()?);
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_hops_v6(4)?;
        socket.set_multicast_if_v6(1)?;
        assert!(!socket.multicast_loop_v6()?);
        assert_eq!((socket.multicast_hops_v6()?, socket.multicast_if_v6()?), (4, 1));
        for only in [false, true] {
            let listener = SocketOptions::new().only_v6(only).listen("[::]:0").await?;
            assert_eq!(ipv6_v6only(&listener)?, only);
            let port = listener.local_addr()?.port();
            assert_eq!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err(), only);
        }
        Ok(())
    })
}

#[test]
fn sockets_are_made_with_options() -> io::Result<()> {
    threaded(1).block_on(async {
        let shares = SocketOptions::new().reuse_port(true);
        let first = shares.clone().listen(HERE).await?;
        let address = first.local_addr()?;
        let second = shares.listen(address).await?;
        let refused = TcpListener::bind(address).await.expect_err("it does not share");
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        let taken = [first, second].map(|listener| {
            spawn(async move {
                let mut count = 0;
                while let Ok((stream, _)) = listener.accept().await {
                    count += 1;
                    stream.write_all(b"!").await.expect("it is connected");
                }
                count
            })
        });
        for _ in 0..20 {
            TcpStream::connect(address).await?.read_exact(&mut [0]).await?;
        }
        drop(taken);

        let listener = SocketOptions::new()
            .recv_buffer_size(30_000)
            .send_buffer_size(20_000)
            .listen(HERE)
            .await?;
        let from = SocketAddr::from(([127, 0, 0, 2], 0));
        let client = SocketOptions::new().local_addr(from).connect(listener.local_addr()?).await?;
        let (server, peer) = listener.accept().await?;
        assert_eq!((peer, peer.ip()), (client.local_addr()?, from.ip()));
        assert_eq!(server.buffer_sizes()?, (60_000, 40_000), "it is inherited");
        let socket = SocketOptions::new().recv_buffer_size(25_000).bind(HERE).await?;
        assert_eq!(socket.buffer_sizes()?.0, 50_000);
        let nowhere = SocketOptions::new().local_addr(SocketAddr::from(([192, 0, 2, 1], 0)));
        let refused =
            nowhere.connect(listener.local_addr()?).await.expect_err("it is not of this machine");
        assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
        Ok(())
    })
}

/// Goal: members of a group get what is sent to it, until they have left. Method: all of them are
/// on the loopback interface.
#[test]
fn datagrams_reach_the_members_of_a_group() -> io::Result<()> {
    threaded(1).block_on(async {
        let (group, here) = (Ipv4Addr::new(239, 255, 77, 7), Ipv4Addr::LOCALHOST);
        let shares = SocketOptions::new().reuse_address(true);
        let one = shares.clone().bind("0.0.0.0:0").await?;
        let port = one.local_addr()?.port();
        let other = shares.bind(("0.0.0.0", port)).await?;
        let sender = UdpSocket::bind(HERE).await?;
        sender.set_multicast_if_v4(&here)?;
        for member in [&one, &other] {
            member.join_multicast_v4(&group, &here)?;
        }
        sender.send_to(b"to all", (group, port)).await?;
        let mut bytes = [0; 16];
        for member in [&one, &other] {
            assert_eq!(member.recv_from(&mut bytes).await?, (6, sender.local_addr()?));
        }
        for member in [&one, &other] {
            member.leave_multicast_v4(&group, &here)?;
        }
        sender.send_to(b"to nobody", (group, port)).await?;
        sender.send_to(b"last", (here, port)).await?;
        // The system delivers it to the socket that was bound last, or to the other one.
        one.set_read_timeout(Some(SHORT))?;
        other.set_read_timeout(Some(SHORT))?;
        let counts = [one.recv(&mut bytes).await.ok(), other.recv(&mut bytes).await.ok()];
        assert_eq!(counts.iter().flatten().collect::<Vec<_>>(), [&4]);
        Ok(())
    })
}

#[test]
fn a_datagram_is_made_of_parts_and_falls_into_parts() -> io::Result<()> {
    for scheduler in [threaded(1), driven()] {
        scheduler.block_on(async {
            let (one, other) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
            let parts = [IoSlice::new(b"wh"), IoSlice::new(b""), IoSlice::new(b"ole")];
            assert_eq!(one.send_vectored_to(&parts, other.local_addr()?).await?, 5);
            let (mut first, mut second) = ([0; 4], [0; 8]);
            let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(other.recv_vectored_from(buffers).await?, (5, one.local_addr()?));
            assert_eq!((&first, second[0]), (b"whol", b'e'));
            other.connect(one.local_addr()?).await?;
            assert_eq!(other.send_vectored(&parts).await?, 5);
            let waits = spawn(async move {
                let mut small = [0; 3];
                one.readable().await?;
                assert_eq!(
                    one.recv_vectored(&mut [IoSliceMut::new(&mut small)]).await?,
                    3,
                    "the rest is discarded"
                );
                one.recv(&mut small).await?;
                Ok::<_, io::Error>(small)
            });
            assert_eq!(other.try_send(b"two")?, 3);
            assert_eq!(&waits.await.expect("it does not panic")?, b"two");
            assert_eq!(
                other.try_recv(&mut second).expect_err("there is none").kind(),
                ErrorKind::WouldBlock
            );
            let many = vec![IoSlice::new(b"x"); 1025];
            other.send_vectored(&many).await.expect_err("the system takes 1024 at most");
            Ok::<(), io::Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn datagrams_between_paths_and_names_are_looked_at_and_taken() -> io::Result<()> {
    let name = |what: &str| {
        UnixAddress::from_abstract_name(format!("procession-{what}-{}", std::process::id()))
    };
    let (named, full, stream) = (name("named")?, name("full")?, name("stream")?);
    let folder = std::env::temp_dir().join(format!("procession-options-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("sender");
    threaded(1).block_on(async {
        let receiver = UnixDatagram::bind_addr(&named)?;
        let (bound, unbound) = (UnixDatagram::bind(&path)?, UnixDatagram::unbound()?);
        let mut bytes = [0; 8];
        assert_eq!(
            receiver.try_recv_from(&mut bytes).expect_err("there is none").kind(),
            ErrorKind::WouldBlock
        );
        let waits = spawn(async move {
            let mut bytes = [0; 8];
            let mut from = Vec::new();
            for _ in 0..3 {
                let (count, peeked) = receiver.peek_from(&mut bytes).await?;
                assert_eq!(
                    receiver.peek(&mut bytes[..2]).await?,
                    2,
                    "no more than there is room for"
                );
                let (again, taken) = receiver.recv_from(&mut bytes).await?;
                assert_eq!((again, format!("{taken:?}")), (count, format!("{peeked:?}")));
                from.push((peeked, bytes[..count].to_vec()));
            }
            Ok::<_, io::Error>((receiver, from))
        });
        bound.send_to_addr(b"path", &named).await?;
        unbound.send_to_addr(b"none", &named).await?;
        let abstracted = UnixDatagram::bind_addr(&full)?;
        abstracted.connect_addr(&named)?;
        assert_eq!(abstracted.peer_addr()?.as_abstract_name(), named.as_abstract_name());
        abstracted.send_vectored(&[IoSlice::new(b"na"), IoSlice::new(b"me")]).await?;
        let (receiver, from) = waits.await.expect("it does not panic")?;
        assert_eq!((from[0].0.as_pathname(), &*from[0].1), (Some(&*path), &b"path"[..]));
        assert!(from[1].0.is_unnamed(), "{:?}", from[1].0);
        assert_eq!(
            (from[2].0.as_abstract_name(), &*from[2].1),
            (full.as_abstract_name(), &b"name"[..])
        );

        // Nothing takes the datagrams, so the queue is soon full, and the error shows that in one
        // of two ways.
        unbound.set_write_timeout(Some(SHORT))?;
        abstracted.set_write_timeout(Some(SHORT))?;
        let late = loop {
            if let Err(error) = unbound.send_to_addr(b"more", &named).await {
                break error;
            }
        };
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(
            abstracted.send(b"more").await.expect_err("it is full").kind(),
            ErrorKind::TimedOut
        );
        assert_eq!(
            abstracted.try_send(b"more").expect_err("it is full").kind(),
            ErrorKind::WouldBlock
        );
        let mut count = 0;
        while receiver.try_recv_from(&mut bytes).is_ok() {
            count += 1;
        }
        assert!(count > 0);
        abstracted.writable().await?;
        abstracted.send(b"room").await?;
        bound.send_vectored_to(&[IoSlice::new(b"a"), IoSlice::new(b"b")], &path).await?;
        assert_eq!(bound.recv_vectored(&mut [IoSliceMut::new(&mut bytes)]).await?, 2);
        abstracted.shutdown(std::net::Shutdown::Write)?;
        assert_eq!(
            abstracted.send(b"no").await.expect_err("it was ended").kind(),
            ErrorKind::BrokenPipe
        );

        let listener = UnixListener::bind_addr(&stream)?;
        assert!(listener.take_error()?.is_none());
        let client = UnixStream::connect_addr(&stream).await?;
        let (server, _) = listener.accept().await?;
        server.write_all(b"welcome").await?;
        client.readable().await?;
        assert_eq!(client.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)])?, 7);
        assert_eq!(client.try_write_vectored(&[IoSlice::new(b"x"), IoSlice::new(b"y")])?, 2);
        Ok::<(), io::Error>(())
    })?;
    std::fs::remove_dir_all(&folder)
}
