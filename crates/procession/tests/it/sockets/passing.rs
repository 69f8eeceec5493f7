//! Descriptors and credentials on Unix sockets, and datagrams that are too long.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use procession::net::{UdpSocket, UnixDatagram, UnixStream};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::sockopt::set_socket_passcred;

use super::{HERE, SHORT};
use crate::scene::threaded;

/// Returns the ends of a pipe: what is written to the second is read from the first.
fn pipe() -> (File, OwnedFd) {
    let (reads, writes) = std::io::pipe().expect("there are descriptors");
    (OwnedFd::from(reads).into(), writes.into())
}

#[test]
fn descriptors_pass_through_unix_sockets() {
    threaded(1).block_on(async {
        let (one, other) = UnixStream::pair().expect("it is allowed");
        let (first, second) = (pipe(), pipe());
        let fds = [first.1.as_fd(), second.1.as_fd()];
        assert_eq!(one.send_fds(b"two", &fds).await.expect("there is room"), 3);
        let mut buffer = [0; 8];
        let received = other.recv_fds(&mut buffer).await.expect("it was sent");
        assert_eq!((&buffer[..received.len], received.fds.len()), (&b"two"[..], 2));
        assert!(!received.fds_lost);
        drop((first.1, second.1));
        // In the order in which they were sent, and closed at `exec`.
        for (fd, (mut reads, text)) in
            received.fds.into_iter().zip([(first.0, "1"), (second.0, "2")])
        {
            assert_eq!(fcntl_getfd(&fd).expect("it is open"), FdFlags::CLOEXEC);
            File::from(fd).write_all(text.as_bytes()).expect("it is open");
            let mut read = String::new();
            reads.read_to_string(&mut read).expect("all writers are closed");
            assert_eq!(read, text);
        }

        let (one, other) = UnixDatagram::pair().expect("it is allowed");
        let (mut reads, writes) = pipe();
        one.send_fds(b"x", &[writes.as_fd()]).await.expect("there is room");
        drop(writes);
        // A receive of bytes alone closes them.
        assert_eq!(other.recv(&mut buffer).await.expect("it was sent"), 1);
        assert_eq!(reads.read(&mut buffer).expect("the writer is closed"), 0);
        one.send_fds(b"none", &[]).await.expect("there is room");
        let received = other.recv_fds(&mut buffer).await.expect("it was sent");
        assert_eq!((received.len, received.fds.len()), (4, 0));
    });
}

#[test]
fn what_cannot_be_passed_is_refused() {
    threaded(1).block_on(async {
        let (one, other) = UnixStream::pair().expect("it is allowed");
        let (_reads, writes) = pipe();
        let nothing = one.send_fds(b"", &[writes.as_fd()]).await.expect_err("no byte carries it");
        assert_eq!(nothing.kind(), ErrorKind::InvalidInput);
        let many = vec![writes.as_fd(); 254];
        let too_many = one.send_fds(b"x", &many).await.expect_err("the kernel has a limit");
        assert_eq!(too_many.kind(), ErrorKind::InvalidInput);
        assert!(too_many.to_string().contains("254"), "{too_many}");
        assert_eq!(one.send_fds(b"x", &many[..253]).await.expect("there is room"), 1);
        let received = other.recv_fds(&mut [0; 1]).await.expect("it was sent");
        assert_eq!((received.fds.len(), received.fds_lost), (253, false));
        // The kernel sends the credentials along, which take space of their own.
        set_socket_passcred(other.as_fd(), true).expect("it is a Unix socket");
        assert_eq!(one.send_fds(b"x", &many[..253]).await.expect("there is room"), 1);
        let received = other.recv_fds(&mut [0; 1]).await.expect("it was sent");
        assert_eq!((received.fds.len(), received.fds_lost), (253, false));
        other.set_read_timeout(Some(SHORT)).expect("it is not zero");
        let late = other.recv_fds(&mut [0; 1]).await.expect_err("nothing was sent");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        drop(one);
        let end = other.recv_fds(&mut [0; 1]).await.expect("it was closed in order");
        assert_eq!((end.len, end.fds.len()), (0, 0));
    });
}

#[test]
fn a_peer_has_credentials() {
    threaded(1).block_on(async {
        let (one, _other) = UnixStream::pair().expect("it is allowed");
        let peer = one.peer_cred().expect("it is connected");
        assert_eq!(peer.pid(), Some(std::process::id()));
        assert_eq!(peer.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid(), rustix::process::getegid().as_raw());
        let unbound = UnixDatagram::unbound().expect("it is allowed");
        // The kernel has no user for it.
        assert_eq!(unbound.peer_cred().expect("it is a Unix socket").pid(), None);
    });
}

#[test]
fn the_end_of_a_long_datagram_is_told() {
    threaded(1).block_on(async {
        let socket = UdpSocket::bind(HERE).await.expect("there are free ports");
        let here = socket.local_addr().expect("it is bound");
        let (one, other) = UnixDatagram::pair().expect("it is allowed");
        for (length, room, truncated) in
            [(5, 5, false), (6, 5, true), (900, 5, true), (0, 5, false)]
        {
            let bytes = vec![7; length];
            let mut buffer = vec![0; room];
            // The portable side knows only that there was more.
            let told = if cfg!(procession_portable) { length.min(room + 1) } else { length };
            socket.send_to(&bytes, here).await.expect("there is room");
            let datagram = socket.recv_datagram(&mut buffer).await.expect("it was sent");
            assert_eq!((datagram.len, datagram.full_len), (length.min(room), told));
            assert_eq!((datagram.is_truncated(), datagram.sender), (truncated, here));
            assert!(buffer[..datagram.len].iter().all(|&byte| byte == 7));

            one.send(&bytes).await.expect("there is room");
            let datagram = other.recv_datagram(&mut buffer).await.expect("it was sent");
            assert_eq!((datagram.len, datagram.full_len), (length.min(room), told));
            assert_eq!(datagram.is_truncated(), truncated);
            assert!(datagram.sender.is_unnamed());
        }
    });
}
