//! The edges: cancel, terminate, fork, a signal handler, masks, and places without suspension.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use procession::{Exit, coroutine as co};
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::{AtomicBool, AtomicU32};

use super::{
    answer, coroutine, foreign_thread, one_thread, poll, read, several_threads, sockets, soon,
    told, write,
};

/// The calls that wait, each with a descriptor that is never ready.
fn waiting_calls(fd: i32) -> Vec<(i64, i32)> {
    let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let time = libc::timespec { tv_sec: 60, tv_nsec: 0 };
    vec![
        read(fd, 8).0,
        poll(&mut entry, -1),
        // SAFETY: the time is there.
        answer(unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }),
        // SAFETY: it has no preconditions.
        answer(unsafe { libc::usleep(60_000_000) }),
    ]
}

#[test]
fn a_cancelled_coroutine_fails_each_call_that_would_wait() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let (begun, begins) = told();
    let waits = coroutine(&scheduler, move || {
        begun.send(()).expect("the test listens");
        let mut answers = waiting_calls(here.as_raw_fd());
        // SAFETY: it has no preconditions.
        answers.push((i64::from(unsafe { libc::sleep(60) }), 0));
        // What is there is had.
        assert_eq!(write(there.as_raw_fd(), b"!"), (1, 0));
        answers.push(read(here.as_raw_fd(), 8).0);
        answers
    });
    soon(&begins);
    waits.cancel();
    let refused = (-1, libc::ECANCELED);
    let expected = vec![refused, refused, refused, refused, (60, 0), (1, 0)];
    assert_eq!(waits.join(), Ok(expected));
}

#[test]
fn a_terminated_coroutine_fails_them_too_and_ends_killed() {
    let scheduler = one_thread();
    let (here, _there) = sockets(libc::SOCK_STREAM);
    let ((begun, begins), (done, does)) = (told(), told());
    let waits = coroutine(&scheduler, move || {
        begun.send(()).expect("the test listens");
        done.send(waiting_calls(here.as_raw_fd())).expect("the test listens");
    });
    soon(&begins);
    procession::process::kill(waits.pid());
    assert_eq!(soon(&does), [(-1, libc::ECANCELED); 4]);
    assert_eq!(waits.join(), Err(Exit::Killed));
    assert!(scheduler.snapshot().stuck_coroutines.is_empty());
}

#[test]
fn a_library_that_retries_forever_is_given_up() {
    let scheduler = one_thread();
    let (here, _there) = sockets(libc::SOCK_STREAM);
    let (begun, begins) = told();
    let waits = coroutine(&scheduler, move || {
        begun.send(()).expect("the test listens");
        while read(here.as_raw_fd(), 8).0.0 < 0 {}
    });
    let pid = waits.pid();
    soon(&begins);
    waits.cancel();
    assert_eq!(waits.join(), Err(Exit::Killed));
    let stuck = scheduler.snapshot().stuck_coroutines;
    assert_eq!(stuck.iter().map(|stuck| stuck.pid).collect::<Vec<_>>(), [pid]);
}

/// Returns the state of another process, as the system shows it.
fn state_of(process: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Goal: a child process does not use the runtime that it inherited. Method: it makes a call that
/// waits, and its parent's thread writes.
#[test]
fn a_forked_child_makes_the_plain_call() {
    let scheduler = several_threads();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let ends = coroutine(&scheduler, move || {
        // SAFETY: the name ends with a zero.
        let file = unsafe { libc::memfd_create(c"child".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the child only makes system calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0_u8;
            // SAFETY: there is room for one byte.
            let count = unsafe { libc::read(here.as_raw_fd(), (&raw mut byte).cast(), 1) };
            // A regular file, which has no readiness.
            // SAFETY: the byte is there.
            let written = unsafe { libc::write(file, (&raw const byte).cast(), 1) };
            let is_well = count == 1 && written == 1;
            // SAFETY: it ends the child.
            unsafe { libc::_exit(if is_well { i32::from(byte) } else { 1 }) };
        }
        // The child waits first.
        while state_of(child) != Some('S') {
            co::yield_now();
        }
        assert_eq!(write(there.as_raw_fd(), b"*"), (1, 0));
        let mut status = 0;
        // SAFETY: there is room for the status.
        let ended = procession::blocking(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
        (ended == child, libc::WIFEXITED(status), libc::WEXITSTATUS(status))
    });
    assert_eq!(ends.join(), Ok((true, true, i32::from(b'*'))));
}

/// The PID that everything in this program sees, or 0.
static SEEN_PID: AtomicU32 = AtomicU32::new(0);

/// Stands in for the function of the C library.
#[unsafe(no_mangle)]
extern "C" fn getpid() -> libc::pid_t {
    match SEEN_PID.load(SeqCst) {
        // SAFETY: it has no preconditions.
        0 => (unsafe { libc::syscall(libc::SYS_getpid) }) as libc::pid_t,
        seen => seen.cast_signed(),
    }
}

/// Goal: a child process is known by more than its PID. Each of two processes may be the first of
/// its PID namespace. Method: the child sees the PID of its parent.
#[test]
fn a_child_with_the_pid_of_its_parent_is_told_from_it() {
    let scheduler = several_threads();
    let forks = coroutine(&scheduler, || {
        let may_suspend = co::may_suspend_foreign();
        // SAFETY: it has no preconditions.
        SEEN_PID.store(unsafe { libc::getpid() }.cast_unsigned(), SeqCst);
        // SAFETY: the child only makes system calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(co::may_suspend_foreign())) };
        }
        SEEN_PID.store(0, SeqCst);
        let mut status = 0;
        // SAFETY: there is room for the status.
        let ended = procession::blocking(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
        (may_suspend, ended == child, libc::WIFEXITED(status), libc::WEXITSTATUS(status))
    });
    assert_eq!(forks.join(), Ok((true, true, true, 0)));
}

#[test]
fn with_other_signals_blocked_the_thread_blocks_and_is_replaced() {
    let scheduler = several_threads();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let reads = coroutine(&scheduler, move || {
        // SAFETY: a set is plain memory.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is there.
        unsafe { libc::sigaddset(&raw mut mask, libc::SIGPIPE) };
        let mut before = mask;
        // SAFETY: the sets are there.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, &raw mut before) };
        let got = read(here.as_raw_fd(), 8);
        // SAFETY: the set is there.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
        got
    });
    // Another thread of the scheduler does it, once the watchdog has seen that this one is blocked.
    scheduler.spawn(async move { write(there.as_raw_fd(), b"!") }).join().expect("it runs");
    assert_eq!(reads.join(), Ok(((1, 0), b"!".to_vec())));
}

/// The descriptor that the handler reads, and the number of the thread on which it does.
static HANDLED: AtomicU32 = AtomicU32::new(u32::MAX);
static HANDLER: AtomicU32 = AtomicU32::new(0);
/// What the handler has read.
static READ: AtomicU32 = AtomicU32::new(0);

extern "C" fn read_in_handler(_: libc::c_int) {
    let mut byte = 0_u8;
    // SAFETY: it has no preconditions.
    HANDLER.store(unsafe { libc::gettid() }.cast_unsigned(), SeqCst);
    // SAFETY: there is room for one byte.
    let count =
        unsafe { libc::read(HANDLED.load(SeqCst).cast_signed(), (&raw mut byte).cast(), 1) };
    READ.store(if count == 1 { byte.into() } else { u32::MAX }, SeqCst);
}

/// Goal: nothing else runs on a thread in the middle of a signal handler. Method: the handler
/// reads, while another process is ready to run on the thread.
#[test]
fn a_signal_handler_makes_the_plain_call() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    HANDLED.store(here.as_raw_fd().cast_unsigned(), SeqCst);
    let writes = foreign_thread(move || {
        // The handler waits first.
        while HANDLER.load(SeqCst) == 0 || state_of(HANDLER.load(SeqCst).cast_signed()) != Some('S')
        {
            procession_sync::thread::yield_now();
        }
        write(there.as_raw_fd(), b"*")
    });
    let inner = scheduler.clone();
    let raises = coroutine(&scheduler, move || {
        let handler: extern "C" fn(libc::c_int) = read_in_handler;
        // SAFETY: an action is plain memory.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        // SAFETY: the handler only makes system calls.
        unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) };
        let has_run = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&has_run);
        let other = inner.spawn(async move { runs.store(true, SeqCst) });
        // SAFETY: it has no preconditions.
        unsafe { libc::raise(libc::SIGUSR2) };
        let ran_meanwhile = has_run.load(SeqCst);
        drop(other);
        ran_meanwhile
    });
    assert_eq!(raises.join(), Ok(false));
    assert_eq!(READ.load(SeqCst), u32::from(b'*'));
    assert_eq!(writes.join().expect("it does not panic"), (1, 0));
    drop(here);
}

fn with_both(call: impl Fn(i32) -> (i64, i32), there: &OwnedFd, here: &OwnedFd) -> (i64, i32) {
    assert_eq!(write(there.as_raw_fd(), b"!"), (1, 0));
    call(here.as_raw_fd())
}

#[test]
fn elsewhere_the_plain_call_is_made() {
    let (here, there) = sockets(libc::SOCK_STREAM);
    assert_eq!(with_both(|fd| read(fd, 8).0, &there, &here), (1, 0));
    let scheduler = several_threads();
    let (told, tells) = told();
    let quiet = coroutine(&scheduler, move || {
        let no_suspend = co::no_suspend(|| with_both(|fd| read(fd, 8).0, &there, &here));
        let helper = co::blocking(|| with_both(|fd| read(fd, 8).0, &there, &here)).ok();
        told.send((here, there)).expect("the test listens");
        (no_suspend, helper)
    });
    assert_eq!(quiet.join(), Ok(((1, 0), Some((1, 0)))));
    let (here, there) = soon(&tells);
    let process = scheduler.spawn(async move { with_both(|fd| read(fd, 8).0, &there, &here) });
    assert_eq!(process.join(), Ok((1, 0)));
}
