//! Waits that neither poll nor are interrupted.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use procession::observe::ProcessState;
use procession::{Scheduler, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::waits::while_waiting;
use super::{
    Answer, answer, coroutine, foreign_thread, limit_waits, one_thread, poll, read, recv, send,
    sockets, soon, tcp, told,
};

/// Long enough for many waits in a row.
const LIMIT: Duration = Duration::from_millis(200);

/// Returns how often the scheduler has woken a process because of a descriptor or a timer.
fn wakes(scheduler: &Scheduler) -> u64 {
    let snapshot = scheduler.snapshot();
    snapshot.descriptors.events + snapshot.timers.fired
}

fn select(sets: [Option<&mut libc::fd_set>; 3], limit: Duration) -> Answer {
    let [read, write, except] =
        sets.map(|set| set.map_or(std::ptr::null_mut(), std::ptr::from_mut));
    let mut time = libc::timeval { tv_sec: 0, tv_usec: limit.as_micros() as i64 };
    // SAFETY: the sets and the time are there.
    answer(unsafe { libc::select(1024, read, write, except, &raw mut time) })
}

fn set_of(fd: c_int) -> libc::fd_set {
    // SAFETY: a set is plain memory.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: the number is small.
    unsafe { libc::FD_SET(fd, &mut set) };
    set
}

/// Goal: a peer cannot make a coroutine poll by what its call does not ask for. Method: one urgent
/// byte, or a hang-up, and calls that wait until their time limit.
#[test]
fn a_wait_for_something_else_stands_still() {
    let scheduler = one_thread();
    let (here, there) = tcp();
    limit_waits(&here, libc::SO_RCVTIMEO, LIMIT);
    assert_eq!(send(there.as_raw_fd(), b"!", libc::MSG_OOB), (1, 0));
    let (hung_up, peer) = sockets(libc::SOCK_STREAM);
    drop(peer);
    let calls: [fn([c_int; 2]) -> Answer; 5] = [
        |[urgent, _]| {
            let entry = libc::pollfd { fd: urgent, events: libc::POLLIN, revents: 0 };
            poll(&mut [entry], LIMIT.as_millis() as c_int)
        },
        |[urgent, _]| {
            let entry = libc::pollfd { fd: urgent, events: libc::POLLIN, revents: 0 };
            poll(&mut [entry; 2], LIMIT.as_millis() as c_int)
        },
        |[urgent, _]| recv(urgent, 8, libc::MSG_PEEK).0,
        |[urgent, _]| read(urgent, 8).0,
        |[_, hung_up]| select([None, None, Some(&mut set_of(hung_up))], LIMIT),
    ];
    let fds = [here.as_raw_fd(), hung_up.as_raw_fd()];
    for (number, call) in calls.into_iter().enumerate() {
        let inner = scheduler.clone();
        let waits = coroutine(&scheduler, move || {
            let before = wakes(&inner);
            let answer = call(fds);
            (answer, wakes(&inner) - before)
        });
        let (answer, woken) = waits.join().expect("it does not panic");
        assert!(matches!(answer, (0, 0) | (-1, libc::EAGAIN)), "call {number}: {answer:?}");
        assert!(woken < 20, "call {number}: {woken} times");
    }
}

#[test]
fn urgent_data_ends_a_wait_that_asks_for_it() {
    let scheduler = one_thread();
    let (here, there) = tcp();
    let peer = there.as_raw_fd();
    let got = while_waiting(
        &scheduler,
        move || {
            let events = libc::POLLIN | libc::POLLPRI;
            let mut entry = [libc::pollfd { fd: here.as_raw_fd(), events, revents: 0 }];
            (poll(&mut entry, -1), entry[0].revents)
        },
        move || assert_eq!(send(peer, b"!", libc::MSG_OOB), (1, 0)),
    );
    assert_eq!(got, ((1, 0), libc::POLLPRI));
    drop(there);
}

extern "C" fn ignore(_: c_int) {}

/// Goal: no call that suspends its coroutine is interrupted. Method: signals come all the time.
#[test]
fn a_signal_interrupts_no_wait() {
    let handler: extern "C" fn(c_int) = ignore;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let scheduler = one_thread();
    let (told, tells) = told();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let waits = coroutine(&scheduler, move || {
        // SAFETY: it has no preconditions.
        told.send(unsafe { libc::pthread_self() }).expect("the test listens");
        let ((one, _there), (other, _peer)) =
            (sockets(libc::SOCK_STREAM), sockets(libc::SOCK_STREAM));
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let entries = [entry(one.as_raw_fd()), entry(other.as_raw_fd())];
        let mut answers = Vec::new();
        for _ in 0..200 {
            answers.push(poll(&mut [entries[0]], 1));
            answers.push(poll(&mut entries.clone(), 1));
            let reads = &mut set_of(one.as_raw_fd());
            answers.push(select([Some(reads), None, None], Duration::from_millis(1)));
        }
        ends.store(true, Relaxed);
        answers.retain(|answer| *answer != (0, 0));
        answers
    });
    let thread = soon(&tells);
    let signals = foreign_thread(move || {
        while !is_over.load(Relaxed) {
            // SAFETY: the thread is there until the scheduler is dropped.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            procession_sync::thread::yield_now();
        }
    });
    assert_eq!(waits.join(), Ok(vec![]));
    signals.join().expect("it does not panic");
}

thread_local! {
    /// Seconds by which this thread sees the clock of the system set forward.
    static AHEAD: Cell<i64> = const { Cell::new(0) };
}

/// Stands in for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut libc::timespec) -> c_int {
    // SAFETY: by the caller.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if clock == libc::CLOCK_REALTIME {
        // SAFETY: by the caller.
        unsafe { (*time).tv_sec += AHEAD.get() };
    }
    result as c_int
}

/// Goal: an absolute sleep ends when its clock is set forward. Method: a clock that the test sets.
#[test]
fn a_clock_that_is_set_forward_ends_a_sleep() {
    let scheduler = one_thread();
    let (told, tells) = told();
    let sleeps = coroutine(&scheduler, move || {
        let clock = libc::CLOCK_REALTIME;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for the time.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec += 3600;
        let (flags, none) = (libc::TIMER_ABSTIME, std::ptr::null_mut());
        // SAFETY: the time is there.
        let slept = unsafe { libc::clock_nanosleep(clock, flags, &raw const time, none) };
        told.send(slept).expect("the test listens");
    });
    let (pid, inner) = (sleeps.pid(), scheduler.clone());
    drop(scheduler.spawn(async move {
        while !inner.snapshot().processes.iter().any(|process| {
            process.pid == pid
                && matches!(process.state, ProcessState::Blocked | ProcessState::Idle)
        }) {
            yield_now().await;
        }
        AHEAD.set(7200);
    }));
    assert_eq!(soon(&tells), 0);
}
