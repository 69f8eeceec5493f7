//! Before a call waits, other processes of its thread run.

use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession::time::Instant;
use procession::{Exit, Pid, Scheduler};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::waits::kinds;
use super::{
    coroutine, limit_waits, one_thread, read, recv, set_nonblocking, sockets, soon, told, write,
};

/// Goal: a call that lets other processes run before it waits continues with its own file. Method:
/// one of these processes makes the number of the descriptor refer to another file, which has
/// something to read.
#[test]
fn a_call_that_lets_others_run_keeps_its_file() {
    let scheduler = one_thread();
    for (kind, (here, there)) in kinds() {
        let (other, other_there) = sockets(libc::SOCK_STREAM);
        assert_eq!(write(other_there.as_raw_fd(), b"wrong"), (5, 0));
        let (told, tells) = told();
        let number = here.as_raw_fd();
        let begins = coroutine(&scheduler, move || {
            let neighbour = procession::spawn(async move {
                // SAFETY: both are open, and `here` is not used any more.
                assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), here.as_raw_fd()) }, number);
                assert_eq!(write(there.as_raw_fd(), b"right"), (5, 0));
                drop(there);
                here
            });
            told.send((read(number, 8), neighbour)).expect("the test listens");
        });
        begins.join().expect("it does not panic");
        let (got, neighbour) = soon(&tells);
        drop(neighbour.join().expect("it does not panic"));
        assert_eq!(got, ((5, 0), b"right".to_vec()), "{kind}");
    }
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
}

/// Starts a coroutine that is always ready, until the result is dropped. It runs `act` once each
/// time the result is set to 1.
fn neighbour(scheduler: &Scheduler, act: impl Fn() + Send + 'static) -> Arc<AtomicU32> {
    let told = Arc::new(AtomicU32::new(0));
    let tells = Arc::downgrade(&told);
    drop(coroutine(scheduler, move || {
        while let Some(told) = tells.upgrade() {
            if told.swap(0, Relaxed) == 1 {
                act();
            }
            drop(told);
            procession::coroutine::yield_now();
        }
    }));
    told
}

/// Goal: a time limit begins with the call, and not once others have run. Method: another coroutine
/// computes longer than the limit. On a busy machine a call may be late, but not each of 20.
#[test]
fn a_time_limit_includes_the_steps_of_others() {
    let scheduler = one_thread();
    let limit = Duration::from_millis(50);
    let computes = neighbour(&scheduler, move || {
        let begun = Instant::now();
        while Instant::now() - begun < limit {
            std::hint::spin_loop();
        }
    });
    let waits = coroutine(&scheduler, move || {
        let (here, _there) = sockets(libc::SOCK_STREAM);
        limit_waits(&here, libc::SO_RCVTIMEO, limit);
        (0..20).any(|_| {
            computes.store(1, Relaxed);
            let begun = Instant::now();
            assert_eq!(recv(here.as_raw_fd(), 1, 0).0, (-1, libc::EAGAIN));
            Instant::now() - begun < limit + limit / 2
        })
    });
    assert_eq!(waits.join(), Ok(true));
}

/// Goal: a call keeps the mode that the descriptor had when the call began. Method: a coroutine
/// that is ready changes it, and later writes.
#[test]
fn a_call_keeps_the_mode_in_which_it_began() {
    let scheduler = one_thread();
    let (here, there) = sockets(libc::SOCK_STREAM);
    let (number, turns) = (here.as_raw_fd(), AtomicU32::new(0));
    let changes = neighbour(&scheduler, move || match turns.fetch_add(1, Relaxed) {
        0 => set_nonblocking(number, true),
        _ => assert_eq!(write(there.as_raw_fd(), b"late"), (4, 0)),
    });
    let reads = coroutine(&scheduler, move || {
        let writes = Arc::clone(&changes);
        changes.store(1, Relaxed);
        drop(procession::spawn(async move {
            // By then the call waits.
            procession::sleep(Duration::from_millis(5)).await;
            writes.store(1, Relaxed);
        }));
        let got = read(number, 8);
        drop((here, changes));
        got
    });
    assert_eq!(reads.join(), Ok(((4, 0), b"late".to_vec())));
}

/// Goal: a coroutine that is cancelled while others run before its wait does not wait.
#[test]
fn an_end_that_comes_while_others_run_ends_the_call() {
    for terminates in [false, true] {
        let scheduler = one_thread();
        let reader: Arc<OnceLock<Pid>> = Arc::default();
        let pid = Arc::clone(&reader);
        let ends = neighbour(&scheduler, move || {
            let pid = *pid.get().expect("it is known");
            if terminates {
                procession::process::kill(pid);
            } else {
                procession::process::cancel(pid);
            }
        });
        let (here, _there) = sockets(libc::SOCK_STREAM);
        let (answer, answered) = told();
        let known = Arc::clone(&reader);
        let reads = coroutine(&scheduler, move || {
            while known.get().is_none() {
                procession::coroutine::yield_now();
            }
            ends.store(1, Relaxed);
            answer.send(read(here.as_raw_fd(), 8)).expect("the test listens");
        });
        reader.set(reads.pid()).expect("it is set once");
        assert_eq!(soon(&answered).0, (-1, libc::ECANCELED));
        assert_eq!(reads.join(), if terminates { Err(Exit::Killed) } else { Ok(()) });
        assert_eq!(scheduler.snapshot().descriptors.registered, 0);
    }
}
