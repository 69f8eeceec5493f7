//! The cases that the tests of libgo's hooks and of socket_wrapper have. Each is run on a plain
//! thread and in a coroutine, and the results must be the same.

use std::ffi::c_int;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use std::{mem, ptr};

use super::{
    Answer, answer, coroutine, file, foreign_thread, one_thread, poll, read, sockets, write,
};

/// A number that is never open.
const NOT_OPEN: c_int = 1_000_000;
const PARTS: usize = 10;

fn same<R: procession::process::Outcome + PartialEq + std::fmt::Debug + Send + 'static>(
    case: impl Fn() -> R + Send + 'static,
) {
    let plain = case();
    assert_eq!(coroutine(&one_thread(), case).join(), Ok(plain));
}

/// Asks about descriptors. Returns the answer and the reports.
fn ask(entries: &[(c_int, i16)], timeout: c_int) -> (Answer, Vec<i16>) {
    let entry = |&(fd, events)| libc::pollfd { fd, events, revents: 0 };
    let mut entries: Vec<_> = entries.iter().map(entry).collect();
    let answer = poll(&mut entries, timeout);
    (answer, entries.iter().map(|entry| entry.revents).collect())
}

/// libgo, `hook/poll.cpp`: timeouts of zero, of some time and without end; descriptors that are
/// ready, that are not, that are negative, not open or files; errors and hang-ups.
#[test]
fn poll_has_the_rules_of_the_source() {
    const IN: i16 = libc::POLLIN;
    const OUT: i16 = libc::POLLOUT;
    same(|| {
        let mut log = Vec::new();
        let ((one, other), (file, _same)) = (sockets(libc::SOCK_STREAM), file());
        let (a, b, file) = (one.as_raw_fd(), other.as_raw_fd(), file.as_raw_fd());
        let cases: [&[(c_int, i16)]; 13] = [
            &[],
            &[(a, IN)],
            &[(a, OUT)],
            &[(a, 0)],
            &[(a, IN), (b, IN)],
            &[(a, OUT), (b, OUT)],
            &[(a, IN), (b, OUT)],
            &[(a, IN), (a, OUT)],
            &[(-1, OUT)],
            &[(-1, OUT), (b, IN | OUT)],
            &[(file, IN), (a, IN)],
            &[(NOT_OPEN, IN)],
            &[(NOT_OPEN, IN), (a, IN), (-1, IN)],
        ];
        let mut ask_all = || {
            for case in cases {
                let (answer, reports) = ask(case, 0);
                log.push((answer, reports));
                log.push(ask(case, 3));
                // It would not return otherwise.
                if answer.0 > 0 {
                    log.push(ask(case, -1));
                }
            }
        };
        ask_all();
        assert_eq!(write(a, b"!"), (1, 0));
        ask_all();
        // SAFETY: it has no preconditions.
        unsafe { libc::shutdown(a, libc::SHUT_RDWR) };
        ask_all();
        drop(one);
        log.push(ask(&[(b, IN | OUT | libc::POLLRDHUP)], -1));
        log.push(ask(&[(b, 0)], -1));
        log
    });
}

/// libgo, `hook/select.cpp`.
#[test]
fn select_has_the_rules_of_the_source() {
    type Set = Option<libc::fd_set>;
    fn set_of(numbers: &[c_int]) -> Set {
        // SAFETY: a set is plain memory.
        let mut set: libc::fd_set = unsafe { mem::zeroed() };
        for number in numbers {
            // SAFETY: the number is small.
            unsafe { libc::FD_SET(*number, &mut set) };
        }
        (!numbers.is_empty()).then_some(set)
    }
    same(|| {
        let (one, other) = sockets(libc::SOCK_STREAM);
        let (a, b) = (one.as_raw_fd(), other.as_raw_fd());
        // The tests do not open so many.
        let closed = libc::FD_SETSIZE as c_int - 1;
        let cases: [(&[c_int], &[c_int]); 6] = [
            (&[], &[]),
            (&[a], &[]),
            (&[a, b], &[]),
            (&[], &[a, b]),
            (&[a], &[b]),
            (&[closed], &[]),
        ];
        let mut log = Vec::new();
        for (reads, writes) in cases {
            for ms in [0, 3] {
                let (mut reading, mut writing) = (set_of(reads), set_of(writes));
                let mut time = libc::timeval { tv_sec: 0, tv_usec: ms * 1000 };
                let at = |set: &mut Set| set.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
                let (reading_at, writing_at) = (at(&mut reading), at(&mut writing));
                let count = libc::FD_SETSIZE as c_int;
                // SAFETY: the sets and the time are there.
                let answer = answer(unsafe {
                    libc::select(count, reading_at, writing_at, ptr::null_mut(), &raw mut time)
                });
                // SAFETY: the numbers are small.
                let has =
                    |set: &Set, fd| set.is_some_and(|set| unsafe { libc::FD_ISSET(fd, &set) });
                let found = [a, b].map(|fd| (has(&reading, fd), has(&writing, fd)));
                log.push((answer, found.to_vec()));
            }
        }
        log
    });
}

/// Starts a thread that sends everything back which one connection sends.
fn tcp_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let address = listener.local_addr().expect("it is bound");
    foreign_thread(move || {
        let (stream, _) = listener.accept().expect("one comes");
        let copied = std::io::copy(&mut &stream, &mut &stream);
        assert!(copied.is_ok(), "{copied:?}");
    });
    address
}

/// socket_wrapper, `test_echo_tcp_writev_readv.c`.
#[test]
fn vectors_come_back_over_tcp() {
    same(|| {
        let stream = TcpStream::connect(tcp_echo()).expect("it listens");
        let fd = stream.as_raw_fd();
        let mut log = Vec::new();
        for count in 1..PARTS {
            let bytes = |part| format!("packet.{part}").into_bytes();
            let mut sent: Vec<_> = (0..count).map(bytes).collect();
            let total = sent.concat().len();
            let mut got = vec![vec![0_u8; 8]; count];
            let vector = |bytes: &mut [u8]| libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            let from: Vec<_> = sent.iter_mut().map(|bytes| vector(bytes)).collect();
            let to: Vec<_> = got.iter_mut().map(|bytes| vector(bytes)).collect();
            // SAFETY: the vectors are there.
            let written = unsafe { libc::writev(fd, from.as_ptr(), count as c_int) };
            // All is there before it is read, so that one call reads all.
            let mut peeked = vec![0_u8; total];
            let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
            // SAFETY: there is room.
            unsafe { libc::recv(fd, peeked.as_mut_ptr().cast(), total, flags) };
            // SAFETY: the vectors are there.
            let read = unsafe { libc::readv(fd, to.as_ptr(), count as c_int) };
            assert_eq!(got.concat(), sent.concat());
            log.push((written, read));
        }
        log
    });
}

/// socket_wrapper, `test_echo_udp_sendmsg_recvmsg.c` and `test_echo_udp_sendto_recvfrom.c`.
#[test]
fn datagrams_come_back_with_their_address() {
    same(|| {
        let server = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
        let address = server.local_addr().expect("it is bound");
        let echo = foreign_thread(move || {
            let mut bytes = [0; 64];
            for _ in 0..PARTS {
                let (count, from) = server.recv_from(&mut bytes).expect("one comes");
                server.send_to(&bytes[..count], from).expect("it is sent");
            }
        });
        let socket = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
        for number in 0..PARTS {
            let text = format!("packet.{number}");
            // `sendto` and `recvfrom`.
            let sent = socket.send_to(text.as_bytes(), address).expect("it is sent");
            let mut bytes = [0_u8; 64];
            if number % 2 == 0 {
                let got = socket.recv_from(&mut bytes).expect("it comes back");
                assert_eq!(got, (sent, address));
            } else {
                // SAFETY: an address is plain memory.
                let mut from: libc::sockaddr_in = unsafe { mem::zeroed() };
                let mut part =
                    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
                let mut message = message_of(&mut part);
                message.msg_name = (&raw mut from).cast();
                message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
                // SAFETY: the message has room for the bytes and the address.
                let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
                assert_eq!((count, u16::from_be(from.sin_port)), (sent as isize, address.port()));
            }
            assert_eq!(&bytes[..sent], text.as_bytes());
        }
        echo.join().expect("it does not panic");
    });
}

fn message_of(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: no address and no length are what zeroes say.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// socket_wrapper, `test_sendmsg_recvmsg_fd.c`: a descriptor is sent while its receiver waits.
#[test]
fn a_descriptor_is_passed() {
    same(|| {
        let (here, there) = sockets(libc::SOCK_STREAM);
        let sender = foreign_thread(move || {
            let zero = std::fs::File::open("/dev/zero").expect("the system has it");
            let mut byte = *b"!";
            let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
            let mut room = [0_u64; 4];
            let message = with_descriptor(&mut part, &mut room, Some(zero.as_raw_fd()));
            // SAFETY: the message is there.
            unsafe { libc::sendmsg(there.as_raw_fd(), &raw const message, 0) }
        });
        let mut byte = [0_u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut room = [0_u64; 4];
        let mut message = with_descriptor(&mut part, &mut room, None);
        // SAFETY: the message has room for the byte and the descriptor.
        let count = unsafe { libc::recvmsg(here.as_raw_fd(), &raw mut message, 0) };
        // SAFETY: the system has filled the header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        assert!(!header.is_null());
        // SAFETY: it only computes.
        let passed = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
        // SAFETY: the header has one descriptor.
        let passed = unsafe { passed.read_unaligned() };
        let got = read(passed, 8);
        // SAFETY: nothing else has the descriptor.
        unsafe { libc::close(passed) };
        (count, got, sender.join().expect("it does not panic"))
    });
}

/// Returns a message with room for a descriptor, or with a descriptor.
fn with_descriptor(
    part: &mut libc::iovec,
    room: &mut [u64; 4],
    passed: Option<c_int>,
) -> libc::msghdr {
    let mut message = message_of(part);
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: it only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
    if let Some(passed) = passed {
        // SAFETY: it only computes.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: there is room for a header.
        let header = unsafe { &mut *header };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: it only computes.
        header.cmsg_len = unsafe { libc::CMSG_LEN(4) } as usize;
        // SAFETY: it only computes.
        let place = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
        // SAFETY: there is room for one number.
        unsafe { place.write_unaligned(passed) };
    }
    message
}

/// libgo, `hook/dup.cpp`, and socket_wrapper, `test_tcp_dup2.c`.
#[test]
fn duplicates_are_the_same_file() {
    same(|| {
        let (one, other) = sockets(libc::SOCK_STREAM);
        let crosses = |from: &OwnedFd, to: &OwnedFd| {
            let (number, fd) = (to.as_raw_fd(), from.as_raw_fd());
            let later = foreign_thread(move || write(fd, b"a"));
            let got = read(number, 1);
            (got, later.join().expect("it does not panic"))
        };
        let mut log = vec![crosses(&one, &other)];
        let duplicate = one.try_clone().expect("there are descriptors");
        log.push(crosses(&duplicate, &other));
        log.push(crosses(&other, &duplicate));
        // SAFETY: this is the number of the duplicate.
        let moved = unsafe { libc::dup2(other.as_raw_fd(), duplicate.as_raw_fd()) };
        assert_eq!(moved, duplicate.as_raw_fd());
        log.push(crosses(&duplicate, &one));
        log.push(crosses(&one, &duplicate));
        log
    });
}

/// libgo, `hook/io_timed.cpp`: time limits of sockets, and none in non-blocking mode.
#[test]
fn limits_of_sockets_end_waits() {
    same(|| {
        let (here, there) = sockets(libc::SOCK_STREAM);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            super::limit_waits(&here, option, Duration::from_millis(3));
        }
        let fd = here.as_raw_fd();
        let mut log = vec![read(fd, 8).0];
        // Until there is no room: a part, and then nothing.
        log.push(write(fd, &vec![1; 4 << 20]));
        log.push(write(fd, &[1]));
        super::set_nonblocking(fd, true);
        log.extend([read(fd, 8).0, write(fd, &[1])]);
        drop(there);
        log
    });
}
