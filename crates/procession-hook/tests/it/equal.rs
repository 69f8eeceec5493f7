//! Scripts of calls have the same results in a coroutine as on a plain thread.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use fastrand::Rng;
use procession::time::Instant;

use super::{
    Answer, Ends, coroutine, errno, file, flags, foreign_thread, limit_waits, one_thread, pipe,
    poll, read, recv, send, set_nonblocking, sockets, tcp, terminal, write,
};

/// One call, or what another thread does while it waits.
#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Recv(usize, c_int),
    Write(usize),
    Send(usize, c_int),
    Poll(i16, c_int),
    Nonblocking(bool),
    /// The other end writes so many bytes, before the next step.
    Arrives(usize),
    /// The other end writes so many bytes while the next step waits.
    ArrivesLater(usize),
    /// The other end reads all that is there.
    Drained,
    Closed,
    /// Whether calls give up after a while.
    Limit(bool),
}

/// A defect that a hook might have, planted into the calls of a script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// The error number of a call in between.
    LostErrno,
    /// The descriptor stays in the mode in which it was asked.
    FlippedMode,
}

impl Defect {
    /// Does what the defect does after a call.
    fn strike(self, fd: c_int) {
        match self {
            // SAFETY: it is this thread's own.
            Self::LostErrno => unsafe { errno().write(libc::EAGAIN) },
            Self::FlippedMode => set_nonblocking(fd, true),
        }
    }
}

const LIMIT: Duration = Duration::from_millis(2);

type Log = Vec<(Answer, Vec<u8>, i32)>;

fn ends(kind: u8) -> Ends {
    match kind {
        0 => sockets(libc::SOCK_STREAM),
        1 => sockets(libc::SOCK_DGRAM),
        2 => sockets(libc::SOCK_SEQPACKET),
        3 => tcp(),
        // The script reads.
        4 => pipe(),
        5 => {
            let (reads, writes) = pipe();
            (writes, reads)
        }
        BYTES => terminal(false),
        LINES => terminal(true),
        _ => file(),
    }
}

/// A terminal that is read byte by byte, a terminal that is read line by line, and a regular file.
const BYTES: u8 = 6;
const LINES: u8 = 7;
const FILE: u8 = 8;

fn is_terminal(kind: u8) -> bool {
    matches!(kind, BYTES | LINES)
}

/// What the other end writes.
fn arriving(kind: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![if kind == LINES { b'a' } else { size as u8 }; size];
    if kind == LINES {
        bytes[size - 1] = b'\n';
    }
    bytes
}

fn script(kind: u8, rng: &mut Rng) -> Vec<Step> {
    let is_socket = kind < 4;
    let mut steps = Vec::new();
    if is_socket {
        // No call of a script waits forever.
        steps.push(Step::Limit(true));
    } else {
        steps.push(Step::Nonblocking(true));
    }
    let mut flags = || {
        let all = [0, 0, libc::MSG_DONTWAIT, libc::MSG_PEEK];
        all[rng.usize(..all.len())]
    };
    let flag = [flags(), flags(), flags()];
    for number in 0..rng.usize(2..8) {
        // What arrives at a terminal is there immediately only if it is small: all of a script has
        // to fit into one buffer of 256 bytes, or a read may happen between two buffers.
        let size = rng.usize(1..if is_terminal(kind) { 32 } else { 2000 });
        match rng.u8(..12) {
            0 | 1 if is_socket => steps.push(Step::Recv(size, flag[number % 3])),
            2 if is_socket => steps.push(Step::Send(size, flag[number % 3] & !libc::MSG_PEEK)),
            3 => steps.push(Step::Read(size)),
            4 => steps.push(Step::Write(size)),
            5 => steps.push(Step::Poll(
                [libc::POLLIN, libc::POLLOUT, libc::POLLIN | libc::POLLOUT][rng.usize(..3)],
                [0, 1][rng.usize(..2)],
            )),
            6 if is_socket => steps.push(Step::Nonblocking(rng.bool())),
            7 => steps.push(Step::Arrives(size)),
            8 if is_socket => {
                steps.extend([Step::Nonblocking(false), Step::Drained, Step::Limit(false)]);
                steps.push(Step::ArrivesLater(size));
                steps.push(if rng.bool() { Step::Read(size) } else { Step::Recv(size, 0) });
                steps.push(Step::Limit(true));
            }
            8 if is_terminal(kind) => {
                steps.extend([Step::Nonblocking(false), Step::ArrivesLater(size)]);
                // A part, and then the rest of what has arrived.
                let part = rng.usize(1..=size);
                steps.push(Step::Read(part));
                if part < size {
                    steps.push(Step::Read(size));
                }
                steps.push(Step::Nonblocking(true));
            }
            9 => steps.push(Step::Drained),
            10 if number > 3 => steps.push(Step::Closed),
            _ => steps.push(Step::Poll(libc::POLLIN, 0)),
        }
    }
    steps
}

/// Runs a script. `later` is the thread at the other end.
fn run(kind: u8, steps: &[Step], later: &Sender<(c_int, Vec<u8>)>, defect: Option<Defect>) -> Log {
    let (here, there) = ends(kind);
    let mut there = Some(there);
    let fd = here.as_raw_fd();
    let mut log = Log::new();
    let arrives = |there: &OwnedFd, size: usize| {
        let bytes = arriving(kind, size);
        // At most what there is room for.
        if kind < 4 {
            send(there.as_raw_fd(), &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        } else if kind == 4 {
            set_nonblocking(there.as_raw_fd(), true);
            write(there.as_raw_fd(), &bytes);
        } else if kind == FILE {
            write(there.as_raw_fd(), &bytes);
        }
        // A terminal takes a moment, so that a read that does not wait may miss what was written.
    };
    for step in steps {
        // A success leaves the number as it was.
        // SAFETY: it is this thread's own.
        unsafe { errno().write(77) };
        let (answer, bytes) = match step {
            Step::Read(size) => read(fd, *size),
            Step::Recv(size, flags) => recv(fd, *size, *flags),
            Step::Write(size) => (write(fd, &vec![5; *size]), Vec::new()),
            Step::Send(size, flags) => {
                (send(fd, &vec![3; *size], flags | libc::MSG_NOSIGNAL), Vec::new())
            }
            Step::Poll(events, timeout) => {
                let mut entry = [libc::pollfd { fd, events: *events, revents: 0 }];
                (poll(&mut entry, *timeout), entry[0].revents.to_ne_bytes().to_vec())
            }
            Step::Nonblocking(on) => {
                set_nonblocking(fd, *on);
                continue;
            }
            Step::Arrives(size) => {
                if let Some(there) = &there {
                    arrives(there, *size);
                }
                continue;
            }
            Step::ArrivesLater(size) => {
                if let Some(there) = &there {
                    let bytes = arriving(kind, *size);
                    later.send((there.as_raw_fd(), bytes)).expect("the thread is there");
                }
                continue;
            }
            Step::Drained => {
                if there.is_some() {
                    while recv(fd, 100_000, libc::MSG_DONTWAIT).0.0 > 0 {}
                }
                continue;
            }
            Step::Closed => {
                there = None;
                continue;
            }
            Step::Limit(on) => {
                // Without a peer, nothing else would end the wait.
                let limit = if *on || there.is_none() { LIMIT } else { Duration::ZERO };
                for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                    limit_waits(&here, option, limit);
                }
                continue;
            }
        };
        if let Some(defect) = defect {
            defect.strike(fd);
        }
        // SAFETY: it is this thread's own.
        let number = unsafe { errno().read() };
        log.push((answer, bytes, number));
        log.push(((i64::from(flags(fd)), 0), Vec::new(), 0));
    }
    log
}

/// Compares so many scripts. The calls in coroutines have the defect.
fn compare(count: u64, defect: Option<Defect>) {
    let (later, comes) = channel::<(c_int, Vec<u8>)>();
    let other_end = foreign_thread(move || {
        for (fd, bytes) in comes {
            let sent = send(fd, &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            if sent == (-1, libc::ENOTSOCK) {
                write(fd, &bytes);
            }
        }
    });
    let scheduler = one_thread();
    for seed in 0..count {
        let mut rng = Rng::with_seed(seed);
        let kind = rng.u8(..=FILE);
        let steps = script(kind, &mut rng);
        let plain = run(kind, &steps, &later, None);
        let (its_steps, its_later) = (steps.clone(), later.clone());
        let seen = coroutine(&scheduler, move || run(kind, &its_steps, &its_later, defect));
        assert_eq!(seen.join(), Ok(plain), "seed {seed}, kind {kind}: {steps:?}");
    }
    drop(later);
    other_end.join().expect("it does not panic");
}

#[test]
fn scripts_have_the_same_results_in_and_out_of_coroutines() {
    let count = std::env::var("HOOK_SCRIPTS").ok().and_then(|count| count.parse().ok());
    compare(count.unwrap_or(1000), None);
}

#[test]
#[should_panic(expected = "seed")]
fn canary_a_lost_error_number() {
    compare(20, Some(Defect::LostErrno));
}

#[test]
#[should_panic(expected = "seed")]
fn canary_a_flipped_mode() {
    compare(20, Some(Defect::FlippedMode));
}

/// The calls that may wait for a time, each given a limit in milliseconds.
fn limited_calls(here: &OwnedFd) -> [Box<dyn Fn(c_int) + '_>; 5] {
    let fd = here.as_raw_fd();
    let limited = move |limit: c_int| {
        limit_waits(here, libc::SO_RCVTIMEO, Duration::from_millis(limit as u64));
    };
    let entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    [
        Box::new(move |limit| {
            limited(limit);
            assert_eq!(read(fd, 1).0, (-1, libc::EAGAIN));
        }),
        Box::new(move |limit| {
            limited(limit);
            assert_eq!(recv(fd, 1, 0).0, (-1, libc::EAGAIN));
        }),
        Box::new(move |limit| assert_eq!(poll(&mut [entry], limit), (0, 0))),
        Box::new(move |limit| assert_eq!(poll(&mut [entry, entry], limit), (0, 0))),
        // SAFETY: it has no preconditions.
        Box::new(|limit| assert_eq!(unsafe { libc::usleep(limit as u32 * 1000) }, 0)),
    ]
}

/// Compares the time of each call with its limit of 40 ms. The calls get `times` times as much.
///
/// A call is never early. On a busy machine it may be late, but not each of 20.
fn compare_limits(times: c_int) {
    let scheduler = one_thread();
    let waits = coroutine(&scheduler, move || {
        let (here, _there) = sockets(libc::SOCK_STREAM);
        for (number, call) in limited_calls(&here).iter().enumerate() {
            let took = || {
                let begun = Instant::now();
                call(40 * times);
                Instant::now() - begun
            };
            let in_time = (0..20).map(|_| took()).find(|took| *took < Duration::from_millis(60));
            assert!(in_time.is_some(), "call {number} exceeds its limit");
            assert!(in_time >= Some(Duration::from_millis(40)), "call {number} is early");
        }
    });
    waits.join().expect("it does not panic");
}

#[test]
fn each_call_gives_up_at_its_limit() {
    compare_limits(1);
}

#[test]
#[should_panic(expected = "exceeds its limit")]
fn canary_a_doubled_limit() {
    compare_limits(2);
}
