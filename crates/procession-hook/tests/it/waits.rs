//! Calls that wait suspend the coroutine, and others run on its thread during the wait.

use std::ffi::{CStr, CString, c_int};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Duration;

use procession::observe::ProcessState;
use procession::time::Instant;
use procession::{Scheduler, yield_now};
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU32, AtomicUsize};

use super::{
    Answer, Ends, answer, coroutine, flags, foreign_thread, one_thread, pipe, poll, read, recv,
    send, set_nonblocking, several_threads, sockets, soon, tcp, told, write,
};

/// Runs `waits` in a coroutine, and `wakes` in another process of the same thread, which begins
/// once the first one has been suspended.
pub(super) fn while_waiting<R: Send + 'static>(
    scheduler: &Scheduler,
    waits: impl FnOnce() -> R + Send + 'static,
    wakes: impl FnOnce() + Send + 'static,
) -> R {
    let (told, tells) = told();
    let waiter = coroutine(scheduler, move || {
        told.send(waits()).expect("the test listens");
    });
    let pid = waiter.pid();
    let inner = scheduler.clone();
    let waker = scheduler.spawn(async move {
        loop {
            let snapshot = inner.snapshot();
            let process = snapshot.processes.iter().find(|process| process.pid == pid);
            if process.is_none_or(|process| {
                matches!(process.state, ProcessState::Blocked | ProcessState::Idle)
            }) {
                return wakes();
            }
            yield_now().await;
        }
    });
    waker.join().expect("it does not panic");
    waiter.join().expect("it does not panic");
    soon(&tells)
}

pub(super) fn kinds() -> Vec<(&'static str, Ends)> {
    vec![
        ("stream", sockets(libc::SOCK_STREAM)),
        ("datagrams", sockets(libc::SOCK_DGRAM)),
        ("packets", sockets(libc::SOCK_SEQPACKET)),
        ("pipe", pipe()),
        ("tcp", tcp()),
    ]
}

#[test]
fn a_read_leaves_the_thread_to_others() {
    let scheduler = one_thread();
    for (kind, (here, there)) in kinds() {
        let mode = flags(here.as_raw_fd());
        let got = while_waiting(
            &scheduler,
            move || (read(here.as_raw_fd(), 8), flags(here.as_raw_fd())),
            move || assert_eq!(write(there.as_raw_fd(), b"hello"), (5, 0)),
        );
        assert_eq!(got, (((5, 0), b"hello".to_vec()), mode), "{kind}");
    }
    assert_eq!(scheduler.snapshot().blocking_sections, 0);
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
}

#[test]
fn a_write_that_finds_no_room_writes_all_in_the_end() {
    let scheduler = one_thread();
    for (kind, (here, there)) in kinds() {
        // A pipe is written at its other end. Datagrams of this size do not fit.
        let (from, to) = if kind == "pipe" { (there, here) } else { (here, there) };
        let size = if kind == "datagrams" || kind == "packets" { 1000 } else { 8_000_000 };
        if size == 1000 {
            set_nonblocking(from.as_raw_fd(), true);
            while send(from.as_raw_fd(), &[1; 1000], 0).0 == 1000 {}
            set_nonblocking(from.as_raw_fd(), false);
        }
        let written = while_waiting(
            &scheduler,
            move || (write(from.as_raw_fd(), &vec![7; size]), from),
            move || {
                // On a separate thread, so that the writer continues during the call.
                foreign_thread(move || {
                    let mut total = 0;
                    while total < size {
                        let ((count, _), bytes) = read(to.as_raw_fd(), 100_000);
                        assert!(count > 0);
                        total += bytes.iter().filter(|byte| **byte == 7).count();
                    }
                });
            },
        );
        assert_eq!(written.0, (size as i64, 0), "{kind}");
    }
    assert_eq!(scheduler.snapshot().blocking_sections, 0);
}

#[test]
fn a_receive_of_all_waits_for_all() {
    let scheduler = one_thread();
    let (here, there) = tcp();
    let got = while_waiting(
        &scheduler,
        move || recv(here.as_raw_fd(), 6, libc::MSG_WAITALL),
        move || {
            assert_eq!(send(there.as_raw_fd(), b"abc", 0), (3, 0));
            assert_eq!(send(there.as_raw_fd(), b"def", 0), (3, 0));
        },
    );
    assert_eq!(got, ((6, 0), b"abcdef".to_vec()));
}

#[test]
fn poll_and_select_wait_for_several() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let (quiet, _other) = sockets(libc::SOCK_STREAM);
    let number = there.as_raw_fd();
    let got = while_waiting(
        &scheduler,
        move || {
            let asked = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let mut entries = [
                asked(quiet.as_raw_fd(), libc::POLLIN),
                asked(-1, libc::POLLIN),
                asked(here.as_raw_fd(), libc::POLLIN),
                asked(here.as_raw_fd(), libc::POLLPRI),
            ];
            let polled = poll(&mut entries, -1);
            (polled, entries.map(|entry| entry.revents), here, quiet)
        },
        move || assert_eq!(write(number, b"!"), (1, 0)),
    );
    assert_eq!((got.0, got.1), ((1, 0), [0, 0, libc::POLLIN, 0]));
    let (here, quiet) = (got.2, got.3);
    assert_eq!(read(here.as_raw_fd(), 8).0, (1, 0));
    let selected = while_waiting(
        &scheduler,
        move || {
            // SAFETY: a set is plain memory.
            let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
            for fd in [&here, &quiet] {
                // SAFETY: the number is small.
                unsafe { libc::FD_SET(fd.as_raw_fd(), &mut set) };
            }
            let mut timeout = libc::timeval { tv_sec: 60, tv_usec: 0 };
            let none = std::ptr::null_mut();
            // SAFETY: the set and the time are there.
            let count =
                answer(unsafe { libc::select(1024, &raw mut set, none, none, &raw mut timeout) });
            // SAFETY: the numbers are small.
            let has = |fd| unsafe { libc::FD_ISSET(fd, &set) };
            (count, has(here.as_raw_fd()), has(quiet.as_raw_fd()), timeout.tv_sec)
        },
        move || assert_eq!(write(number, b"!"), (1, 0)),
    );
    // The call returns the time that is left.
    assert!((0..60).contains(&selected.3), "{selected:?}");
    assert_eq!((selected.0, selected.1, selected.2), ((1, 0), true, false));
    assert_eq!(scheduler.snapshot().blocking_sections, 0);
    drop(there);
}

#[test]
fn an_epoll_descriptor_of_the_library_is_waited_for() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let got = while_waiting(
        &scheduler,
        move || {
            // SAFETY: it has no preconditions.
            let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
            // SAFETY: the event is there.
            unsafe {
                libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, here.as_raw_fd(), &raw mut event)
            };
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
            // SAFETY: there is room for four.
            let count = answer(unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 4, -1) });
            // SAFETY: it is open, and nothing else has it.
            unsafe { libc::close(epoll) };
            (count, events[0].u64)
        },
        move || assert_eq!(write(there.as_raw_fd(), b"!"), (1, 0)),
    );
    assert_eq!(got, ((1, 0), 7));
}

#[test]
fn sleeps_are_sleeps_of_the_coroutine() {
    let scheduler = one_thread();
    static ASLEEP: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let many: Vec<_> = (0..50)
        .map(|number| {
            coroutine(&scheduler, move || {
                let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                MOST.fetch_max(ASLEEP.fetch_add(1, Relaxed) + 1, Relaxed);
                let begun = Instant::now();
                let none = std::ptr::null_mut();
                let slept = match number % 3 {
                    // SAFETY: the time is there.
                    0 => unsafe { libc::nanosleep(&raw const time, none) },
                    // SAFETY: it has no preconditions.
                    1 => unsafe { libc::usleep(20_000) },
                    // SAFETY: the time is there.
                    _ => unsafe {
                        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, none)
                    },
                };
                ASLEEP.fetch_sub(1, Relaxed);
                slept == 0 && (Instant::now() - begun) >= Duration::from_millis(20)
            })
        })
        .collect();
    for sleeper in many {
        assert_eq!(sleeper.join(), Ok(true));
    }
    // A sleep that kept the only thread would be alone.
    assert!(MOST.load(Relaxed) > 1);
    // An absolute time, which has passed.
    let past = coroutine(&scheduler, || {
        let time = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        let flags = libc::TIMER_ABSTIME;
        // SAFETY: the time is there.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_REALTIME,
                flags,
                &raw const time,
                std::ptr::null_mut(),
            )
        }
    });
    assert_eq!(past.join(), Ok(0));
}

#[test]
fn a_connect_and_an_accept_wait() {
    let scheduler = several_threads();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let address = listener.local_addr().expect("it is bound");
    let accepts = coroutine(&scheduler, move || {
        let (mut stream, _) = listener.accept().expect("one comes");
        std::io::Write::write_all(&mut stream, b"welcome").expect("it is connected");
    });
    let connects = coroutine(&scheduler, move || {
        let stream = std::net::TcpStream::connect(address).expect("it listens");
        let fd = stream.as_raw_fd();
        (flags(fd) & libc::O_NONBLOCK, recv(fd, 7, libc::MSG_WAITALL))
    });
    assert_eq!(connects.join(), Ok((0, ((7, 0), b"welcome".to_vec()))));
    assert_eq!(accepts.join(), Ok(()));
}

#[test]
fn a_refused_connection_has_its_error_number() {
    let scheduler = one_thread();
    let refused = coroutine(&scheduler, || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        std::net::TcpStream::connect(address).expect_err("nobody listens").raw_os_error()
    });
    assert_eq!(refused.join(), Ok(Some(libc::ECONNREFUSED)));
}

/// Goal: a send that connects first waits for the connection. Method: the system knows no cookie of
/// the listener, so no byte goes out before the connection is there.
#[test]
fn a_send_that_connects_waits() {
    let scheduler = several_threads();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let port = listener.local_addr().expect("it is bound").port();
    let sends = coroutine(&scheduler, move || {
        [false, true].map(|several| {
            // SAFETY: all zeros are an address without a family.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
            let mut part =
                libc::iovec { iov_base: c"hello".as_ptr().cast_mut().cast(), iov_len: 5 };
            // SAFETY: all zeros are a message without address and parts.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_name = (&raw mut address).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            message.msg_hdr.msg_iov = &raw mut part;
            message.msg_hdr.msg_iovlen = 1;
            // SAFETY: it has no preconditions.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
            let sent = if several {
                // SAFETY: there is one message.
                answer(unsafe { libc::sendmmsg(fd, &raw mut message, 1, libc::MSG_FASTOPEN) })
            } else {
                // SAFETY: the message is there.
                answer(unsafe { libc::sendmsg(fd, &raw const message.msg_hdr, libc::MSG_FASTOPEN) }
                    as i64)
            };
            // SAFETY: it was just opened.
            unsafe { libc::close(fd) };
            sent
        })
    });
    assert_eq!(sends.join(), Ok([(5, 0), (1, 0)]));
    drop(listener);
}

/// Connects a socket twice: to a listener, or to a port at which nobody listens. Returns what the
/// two calls answer.
fn connects_twice(is_refused: bool) -> [Answer; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let port = listener.local_addr().expect("it is bound").port();
    let _listener = (!is_refused).then_some(listener);
    // SAFETY: all zeros are an address without a family.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
    // SAFETY: it has no preconditions.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let connect = || {
        // SAFETY: the address is there.
        answer(unsafe { libc::connect(fd, (&raw const address).cast(), length) })
    };
    let answers = [connect(), connect()];
    // SAFETY: it was just opened.
    unsafe { libc::close(fd) };
    answers
}

/// Goal: the second call on a socket has the answer that it has without hooks: the socket is
/// connected, or it is refused once more.
#[test]
fn a_second_connect_has_the_answer_of_the_system() {
    let scheduler = one_thread();
    for (is_refused, expected) in [
        (false, [(0, 0), (-1, libc::EISCONN)]),
        (true, [(-1, libc::ECONNREFUSED), (-1, libc::ECONNREFUSED)]),
    ] {
        assert_eq!(connects_twice(is_refused), expected, "without hooks");
        let hooked = coroutine(&scheduler, move || connects_twice(is_refused));
        assert_eq!(hooked.join(), Ok(expected), "refused: {is_refused}");
    }
}

#[test]
fn names_are_looked_up_beside_the_worker() {
    let scheduler = one_thread();
    let looks = coroutine(&scheduler, || {
        let name = CString::new("localhost").expect("it has no zero");
        let mut found = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: the name ends with a zero, and there is room for the answer.
        let result =
            unsafe { libc::getaddrinfo(name.as_ptr(), std::ptr::null(), none, &raw mut found) };
        if result == 0 {
            // SAFETY: it was just made.
            unsafe { libc::freeaddrinfo(found) };
        }
        let wrong = CString::new("no such name.invalid").expect("it has no zero");
        // SAFETY: as above.
        let failed =
            unsafe { libc::getaddrinfo(wrong.as_ptr(), std::ptr::null(), none, &raw mut found) };
        (result, failed != 0)
    });
    assert_eq!(looks.join(), Ok((0, true)));
    unsafe extern "C" {
        fn gethostbyname(name: *const libc::c_char) -> *mut libc::hostent;
    }
    let answered = Arc::new(AtomicU32::new(0));
    let two: Vec<_> = ["127.0.0.1", "127.0.0.2"]
        .map(|name| {
            let answered = Arc::clone(&answered);
            coroutine(&scheduler, move || {
                let text = CString::new(name).expect("it has no zero");
                // SAFETY: the name ends with a zero.
                let host = unsafe { gethostbyname(text.as_ptr()) };
                answered.fetch_add(1, Relaxed);
                // Both have their answers before either looks at its own.
                while answered.load(Relaxed) < 2 {
                    procession::coroutine::yield_now();
                }
                // SAFETY: the answer is the coroutine's own.
                let list = unsafe { (*host).h_addr_list };
                // SAFETY: the list has an address.
                let address = unsafe { *list };
                // SAFETY: it has four bytes.
                unsafe { *address.cast::<[u8; 4]>() }
            })
        })
        .into();
    let two: Vec<_> = two.into_iter().map(|one| one.join()).collect();
    assert_eq!(two, [Ok([127, 0, 0, 1]), Ok([127, 0, 0, 2])]);
}

/// Looks up an address, into local buffers.
fn looked_up(name: &CStr) -> [u8; 4] {
    unsafe extern "C" {
        fn gethostbyname_r(
            name: *const libc::c_char,
            found: *mut libc::hostent,
            buffer: *mut libc::c_char,
            count: usize,
            result: *mut *mut libc::hostent,
            error: *mut c_int,
        ) -> c_int;
    }
    // SAFETY: it is plain memory.
    let mut found: libc::hostent = unsafe { std::mem::zeroed() };
    let (mut buffer, mut result, mut error) = ([0; 1024], std::ptr::null_mut(), 0);
    let (name, room, count) = (name.as_ptr(), buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the name ends with a zero, and the room is as large as is said.
    let number = unsafe {
        gethostbyname_r(name, &raw mut found, room, count, &raw mut result, &raw mut error)
    };
    assert_eq!((number, result), (0, &raw mut found));
    // SAFETY: the answer has a list of addresses.
    let address = unsafe { *found.h_addr_list };
    // SAFETY: the list has one, of four bytes.
    unsafe { *address.cast() }
}

/// Method: a process that is ready runs at the latest during the thousandth question. The helper
/// may answer a question before the coroutine waits.
#[test]
fn a_lookup_into_the_callers_buffer_leaves_the_thread_to_others() {
    let scheduler = one_thread();
    let looks = coroutine(&scheduler, move || {
        let runs = Arc::new(AtomicU32::new(0));
        let ran = Arc::clone(&runs);
        drop(procession::spawn(async move { ran.store(1, Relaxed) }));
        for _ in 0..1000 {
            assert_eq!(looked_up(c"127.0.0.3"), [127, 0, 0, 3]);
            if runs.load(Relaxed) == 1 {
                return true;
            }
        }
        false
    });
    assert_eq!(looks.join(), Ok(true));
}

/// Goal: a call that waits keeps its file, as in the kernel. Method: during the wait, another
/// process of the same thread puts another file in the place of its descriptor.
#[test]
fn a_descriptor_that_is_used_again_does_not_disturb_a_wait() {
    let scheduler = one_thread();
    let ((here, there), (other, its_peer)) =
        (sockets(libc::SOCK_STREAM), sockets(libc::SOCK_STREAM));
    let (number, peer) = (here.into_raw_fd(), its_peer.as_raw_fd());
    let got = while_waiting(
        &scheduler,
        move || read(number, 8),
        move || {
            // SAFETY: nothing else uses the number.
            assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
            assert_eq!(write(peer, b"theirs"), (6, 0));
            assert_eq!(write(there.as_raw_fd(), b"own"), (3, 0));
        },
    );
    assert_eq!(got, ((3, 0), b"own".to_vec()));
    // The number is the other file's now.
    assert_eq!(read(number, 8), ((6, 0), b"theirs".to_vec()));
    // The file of the wait was closed at its end.
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
}

#[test]
fn several_messages_are_received_within_a_time_of_which_the_rest_is_told() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_DGRAM);
    let got = while_waiting(
        &scheduler,
        move || {
            let mut bytes = [[0_u8; 8]; 2];
            let mut parts = bytes.each_mut().map(|bytes| libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            });
            let mut messages = parts.each_mut().map(|part| {
                // SAFETY: no address and no length are what zeroes say.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            });
            let mut time = libc::timespec { tv_sec: 60, tv_nsec: 0 };
            let start = messages.as_mut_ptr();
            // SAFETY: the messages and the time are there.
            let count =
                answer(unsafe { libc::recvmmsg(here.as_raw_fd(), start, 2, 0, &raw mut time) });
            (count, messages.map(|message| message.msg_len), time.tv_sec)
        },
        move || {
            assert_eq!(send(there.as_raw_fd(), b"ab", 0), (2, 0));
            assert_eq!(send(there.as_raw_fd(), b"cde", 0), (3, 0));
        },
    );
    assert_eq!((got.0, got.1), ((2, 0), [2, 3]));
    assert!((0..60).contains(&got.2), "{got:?}");
}

#[test]
fn an_absolute_sleep_ends_on_a_test_clock() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: the coroutine holds no thread-local pointer across a wait.
    let scheduler = unsafe { builder.enable_coroutines() }.build().expect("the system has threads");
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME] {
        let sleeps = coroutine(&scheduler, move || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: there is room for the time.
            unsafe { libc::clock_gettime(clock, &raw mut time) };
            time.tv_sec += 3600;
            let (flags, none) = (libc::TIMER_ABSTIME, std::ptr::null_mut());
            let begun = Instant::now();
            // SAFETY: the time is there.
            let slept = unsafe { libc::clock_nanosleep(clock, flags, &raw const time, none) };
            (slept, (Instant::now() - begun) > Duration::from_secs(3590))
        });
        assert_eq!(sleeps.join(), Ok((0, true)));
    }
}

/// Goal: flags that mean different things for streams and messages keep their meaning.
#[test]
fn a_receive_of_all_takes_one_message_and_small_sets_are_not_overrun() {
    let scheduler = one_thread();
    for kind in [libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        let (here, there) = sockets(kind);
        let got = while_waiting(
            &scheduler,
            move || recv(here.as_raw_fd(), 100, libc::MSG_WAITALL),
            move || assert_eq!(send(there.as_raw_fd(), b"ab", 0), (2, 0)),
        );
        assert_eq!(got, ((2, 0), b"ab".to_vec()));
    }
    let (here, there) = sockets(libc::SOCK_STREAM);
    let got = while_waiting(
        &scheduler,
        move || {
            let fd = here.as_raw_fd();
            let words = fd as usize / 64 + 1;
            // The words that the count covers, and a word that belongs to something else.
            let mut set = vec![0_u64; words + 1];
            set[fd as usize / 64] = 1 << (fd as usize % 64);
            let none = std::ptr::null_mut();
            let count = (words * 64) as i32;
            let set_at = set.as_mut_ptr().cast();
            // SAFETY: the set has all words that the count covers.
            let selected =
                answer(unsafe { libc::select(count, set_at, none, none, std::ptr::null_mut()) });
            (selected, set[words], read(fd, 8).0)
        },
        move || assert_eq!(write(there.as_raw_fd(), b"!"), (1, 0)),
    );
    assert_eq!(got, ((1, 0), 0, (1, 0)));
}
