//! Transfers in parts: what a call returns after a part, and what the next call finds.

use std::cell::Cell;
use std::ffi::c_int;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use procession::yield_now;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::waits::while_waiting;
use super::{
    Answer, answer, coroutine, limit_waits, one_thread, read, recv, send, set_nonblocking,
    set_option, sockets, tcp, write,
};

const LARGE: usize = 8 << 20;

/// Closes a connection of TCP so that its peer gets a reset.
fn reset(there: OwnedFd) {
    set_option(&there, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
    drop(there);
}

fn is_part(sent: Answer) -> bool {
    (1..LARGE as i64).contains(&sent.0)
}

#[test]
fn a_reset_after_a_part_is_the_error_of_the_next_call() {
    let scheduler = one_thread();
    let (here, there) = tcp();
    let got = while_waiting(
        &scheduler,
        move || {
            let all = recv(here.as_raw_fd(), 8, libc::MSG_WAITALL);
            (all, recv(here.as_raw_fd(), 8, 0).0)
        },
        move || {
            assert_eq!(send(there.as_raw_fd(), b"hello", 0), (5, 0));
            reset(there);
        },
    );
    assert_eq!(got, (((5, 0), b"hello".to_vec()), (-1, libc::ECONNRESET)));
    for calls_send in [true, false] {
        let (here, there) = tcp();
        let sent = while_waiting(
            &scheduler,
            move || {
                let (fd, bytes) = (here.as_raw_fd(), vec![1; LARGE]);
                let part = if calls_send { send(fd, &bytes, 0) } else { write(fd, &bytes) };
                (is_part(part), write(fd, b"!"))
            },
            move || reset(there),
        );
        assert_eq!(sent, (true, (-1, libc::ECONNRESET)), "send: {calls_send}");
    }
}

thread_local! {
    /// Number of times that SIGPIPE was raised on this thread.
    static PIPED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn count_pipe(_: c_int) {
    PIPED.set(PIPED.get() + 1);
}

#[test]
fn a_call_that_returns_a_count_raises_no_signal() {
    let handler: extern "C" fn(c_int) = count_pipe;
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGPIPE, handler as libc::sighandler_t) };
    let scheduler = one_thread();
    for calls_send in [true, false] {
        let (here, there) = sockets(libc::SOCK_STREAM);
        let sent = while_waiting(
            &scheduler,
            move || {
                let (fd, bytes, before) = (here.as_raw_fd(), vec![1; LARGE], PIPED.get());
                let part = if calls_send { send(fd, &bytes, 0) } else { write(fd, &bytes) };
                let raised = PIPED.get() - before;
                (is_part(part), raised, write(fd, b"!"), PIPED.get() - before)
            },
            move || drop(there),
        );
        assert_eq!(sent, (true, 0, (-1, libc::EPIPE), 1), "send: {calls_send}");
    }
}

fn message_of(part: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: no address and no length are what zeroes say.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message
}

fn vector_of(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Goal: an error that comes after the first message is the error of the next call. Method: the
/// second message never comes, because its port is closed.
#[test]
fn an_error_after_a_message_is_left_to_the_next_call() {
    let scheduler = one_thread();
    let [here, peer] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("there are ports"));
    here.connect(peer.local_addr().expect("it is bound")).expect("it is an address");
    let address = here.local_addr().expect("it is bound");
    assert_eq!(peer.send_to(b"ab", address).ok(), Some(2));
    let here = OwnedFd::from(here);
    // An error that is lost would be waited for.
    limit_waits(&here, libc::SO_RCVTIMEO, Duration::from_secs(5));
    let fd = here.as_raw_fd();
    let got = while_waiting(
        &scheduler,
        move || {
            let mut bytes = [[0_u8; 8]; 2];
            let mut parts = bytes.each_mut().map(|bytes| vector_of(bytes));
            let mut messages = parts.each_mut().map(message_of);
            let (start, none) = (messages.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the messages are there.
            let count = answer(unsafe { libc::recvmmsg(fd, start, 2, 0, none) });
            (count, messages[0].msg_len, recv(fd, 8, 0).0)
        },
        move || {
            drop(peer);
            assert_eq!(send(fd, b"!", 0), (1, 0));
        },
    );
    assert_eq!(got, ((1, 0), 2, (-1, libc::ECONNREFUSED)));
}

/// Goal: a message does not follow a part of another one. Method: another process makes room as
/// soon as the first message was given up.
#[test]
fn a_part_of_a_message_is_the_last() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    limit_waits(&here, libc::SO_SNDTIMEO, Duration::from_millis(20));
    // Where the length of the first message will be.
    let place = Arc::new(AtomicUsize::new(0));
    let (shows, seen) = (Arc::clone(&place), Arc::downgrade(&place));
    drop(scheduler.spawn(async move {
        while let Some(place) = seen.upgrade() {
            let place = place.load(Relaxed) as *const u32;
            // SAFETY: it is on the stack of the coroutine, which runs on the same thread.
            if !place.is_null() && unsafe { place.read_volatile() } > 0 {
                while recv(there.as_raw_fd(), 100_000, libc::MSG_DONTWAIT).0.0 > 0 {}
            }
            yield_now().await;
        }
    }));
    drop(place);
    let sends = coroutine(&scheduler, move || {
        let (mut large, mut small) = (vec![1; LARGE], *b"!");
        let mut parts = [vector_of(&mut large), vector_of(&mut small)];
        let mut messages = parts.each_mut().map(message_of);
        let start = messages.as_mut_ptr();
        // SAFETY: it is in bounds.
        let length = unsafe { &raw mut (*start).msg_len };
        shows.store(length as usize, Relaxed);
        // SAFETY: the messages are there.
        let count = answer(unsafe { libc::sendmmsg(here.as_raw_fd(), start, 2, 0) });
        shows.store(0, Relaxed);
        (count, is_part((messages[0].msg_len.into(), 0)), messages[1].msg_len)
    });
    assert_eq!(sends.join(), Ok(((1, 0), true, 0)));
}

/// The calls that receive.
const RECEIVES: [fn(c_int, usize) -> Answer; 4] = [
    |fd, room| read(fd, room).0,
    |fd, room| recv(fd, room, 0).0,
    |fd, room| {
        let mut bytes = vec![0; room];
        let part = vector_of(&mut bytes);
        // SAFETY: the vector is there.
        answer(unsafe { libc::readv(fd, &raw const part, 1) } as i64)
    },
    |fd, room| {
        let mut bytes = vec![0; room];
        let mut part = vector_of(&mut bytes);
        let mut message = message_of(&mut part);
        // SAFETY: the message is there.
        answer(unsafe { libc::recvmsg(fd, &raw mut message.msg_hdr, 0) } as i64)
    },
];

#[test]
fn a_receive_waits_for_as_much_as_the_socket_asks_for() {
    let scheduler = one_thread();
    for (number, receive) in RECEIVES.into_iter().enumerate() {
        {
            let (here, there) = tcp();
            set_option(&here, libc::SO_RCVLOWAT, &16);
            let (fd, peer) = (here.as_raw_fd(), there.as_raw_fd());
            assert_eq!(send(peer, b"four", 0), (4, 0));
            let got = while_waiting(
                &scheduler,
                move || receive(fd, 32),
                move || assert_eq!(send(peer, b"and twelve..", 0), (12, 0)),
            );
            assert_eq!(got, (16, 0), "call {number}");
            // No more than the call has room for, or than comes in time.
            limit_waits(&here, libc::SO_RCVTIMEO, Duration::from_millis(5));
            assert_eq!(send(peer, b"fourfour", 0), (8, 0));
            let few = coroutine(&scheduler, move || [receive(fd, 4), receive(fd, 32)]);
            assert_eq!(few.join(), Ok([(4, 0), (4, 0)]), "call {number}");
            assert_eq!(send(peer, b"four", 0), (4, 0));
            set_nonblocking(fd, true);
            let at_once = coroutine(&scheduler, move || [receive(fd, 32), receive(fd, 32)]);
            assert_eq!(at_once.join(), Ok([(4, 0), (-1, libc::EAGAIN)]), "call {number}");
            set_nonblocking(fd, false);
            limit_waits(&here, libc::SO_RCVTIMEO, Duration::ZERO);
            assert_eq!(send(peer, b"last", 0), (4, 0));
            let end = while_waiting(
                &scheduler,
                move || [receive(fd, 32), receive(fd, 32)],
                move || drop(there),
            );
            assert_eq!(end, [(4, 0), (0, 0)], "call {number}");
        }
    }
}
