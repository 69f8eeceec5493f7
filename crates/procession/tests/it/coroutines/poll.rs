//! `poll` on several descriptors: the same rules as the system's, inside and outside of coroutines.

use crate::home::mpsc;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{PollFd, PollFlags, poll};
use procession::sync::channel;
use procession::time::Instant;
use procession::{Exit, SpawnOptions, spawn};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::{coroutine, driven, threaded};
use crate::scene::soon;

const FOREVER: Option<Duration> = None;
const HOUR: Duration = Duration::from_secs(3600);

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("the system has sockets")
}

fn asks(stream: &UnixStream, events: PollFlags) -> PollFd {
    PollFd::new(stream.as_raw_fd(), events)
}

/// The result of a call: the total, and the flags of each descriptor.
type Answers = (Result<usize, io::ErrorKind>, Vec<PollFlags>);

fn answers(mut asked: Vec<PollFd>, timeout: Option<Duration>) -> Answers {
    let count = poll(&mut asked, timeout).map_err(|error| error.kind());
    (count, asked.iter().map(PollFd::answer).collect())
}

#[test]
fn answers_and_counts_are_those_of_a_plain_thread() {
    let (mut writer, readable) = pair();
    writer.write_all(b"!").expect("it is connected");
    let (gone, hung_up) = pair();
    drop(gone);
    let (_quiet, silent) = pair();
    let file = File::open("/proc/self/exe").expect("the program is a file");
    let bad = i32::MAX;
    let cases: Vec<Vec<PollFd>> = vec![
        vec![asks(&readable, PollFlags::IN)],
        vec![asks(&readable, PollFlags::IN | PollFlags::OUT), asks(&silent, PollFlags::IN)],
        vec![asks(&silent, PollFlags::OUT), asks(&silent, PollFlags::IN)],
        vec![asks(&hung_up, PollFlags::EMPTY), PollFd::new(-1, PollFlags::IN)],
        vec![asks(&hung_up, PollFlags::IN | PollFlags::RDHUP)],
        vec![PollFd::new(bad, PollFlags::IN), asks(&silent, PollFlags::IN)],
        vec![PollFd::new(bad, PollFlags::EMPTY), asks(&readable, PollFlags::IN)],
        vec![PollFd::new(file.as_raw_fd(), PollFlags::IN)],
    ];
    let expected: Vec<_> = cases.iter().map(|case| answers(case.clone(), FOREVER)).collect();
    assert_eq!(expected[5], (Ok(1), vec![PollFlags::NVAL, PollFlags::EMPTY]));
    let scheduler = threaded(1);
    for timeout in [FOREVER, Some(HOUR), Some(Duration::ZERO)] {
        let cases = cases.clone();
        let seen = coroutine(&scheduler, move |_| {
            cases.into_iter().map(|case| answers(case, timeout)).collect::<Vec<_>>()
        });
        assert_eq!(seen.join(), Ok(expected.clone()), "{timeout:?}");
    }
}

extern "C" fn ignore(_: libc::c_int) {}

/// Goal: a signal interrupts no coroutine. Method: signals come all the time.
#[test]
fn a_signal_does_not_end_a_poll() {
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let scheduler = threaded(1);
    let (begun, begins) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let polls = coroutine(&scheduler, move |_| {
        // SAFETY: it has no preconditions.
        begun.send(unsafe { libc::pthread_self() }).expect("the test listens");
        let (_quiet, silent) = pair();
        let waits = || answers(vec![asks(&silent, PollFlags::IN)], Some(Duration::from_millis(1)));
        let is_quiet = (0..200).all(|_| waits().0 == Ok(0));
        ends.store(true, Relaxed);
        is_quiet
    });
    let thread = soon(&begins);
    while !is_over.load(Relaxed) {
        // SAFETY: the thread is there until the scheduler is dropped.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        crate::home::thread::yield_now();
    }
    assert_eq!(polls.join(), Ok(true));
}

#[test]
fn a_coroutine_that_polls_leaves_its_worker_to_others() {
    // With one worker, anything that blocked its thread would wait forever.
    let scheduler = threaded(1);
    let (first, mut writes) = pair();
    let (second, _silent) = pair();
    let polls = coroutine(&scheduler, move |_| {
        let writer = spawn(async move { writes.write_all(b"!").map(|()| writes) });
        let file = File::open("/proc/self/exe").expect("the program is a file");
        // One descriptor is given twice, and has two answers. A file that is asked for nothing
        // never has one.
        let asked = vec![
            asks(&second, PollFlags::IN),
            asks(&first, PollFlags::IN),
            PollFd::new(-7, PollFlags::IN),
            asks(&first, PollFlags::PRI),
            asks(&first, PollFlags::IN),
            PollFd::new(file.as_raw_fd(), PollFlags::EMPTY),
        ];
        let answered = answers(asked, FOREVER);
        drop(coroutine::wait(writer));
        answered
    });
    let (none, is_in) = (PollFlags::EMPTY, PollFlags::IN);
    assert_eq!(polls.join(), Ok((Ok(2), vec![none, is_in, none, none, is_in, none])));
}

#[test]
fn a_socket_of_ours_can_be_polled_by_several_at_once() {
    let scheduler = threaded(2);
    let (gate, open) = channel::bounded::<()>(0);
    let polls = coroutine(&scheduler, move |_| {
        let (ours, peer) = procession::net::UnixStream::pair().expect("the system has sockets");
        let descriptor = std::os::fd::AsFd::as_fd(&ours).as_raw_fd();
        let all: Vec<_> = (0..3)
            .map(|_| {
                let gate = gate.clone();
                SpawnOptions::new()
                    .try_start_coroutine(move |_: coroutine::Context<()>| {
                        drop(gate);
                        answers(vec![PollFd::new(descriptor, PollFlags::IN)], FOREVER)
                    })
                    .expect("they are enabled")
            })
            .collect();
        drop(gate);
        coroutine::wait(open.recv());
        coroutine::wait(peer.write_all(b"!")).expect("it is connected");
        let answered: Vec<_> = all.into_iter().map(coroutine::wait).collect();
        drop(ours);
        answered
    });
    assert_eq!(polls.join(), Ok(vec![Ok((Ok(1), vec![PollFlags::IN])); 3]));
}

#[test]
fn negative_descriptors_alone_are_a_sleep() {
    // On the test clock: an hour of the real clock would be noticed.
    let scheduler = driven();
    for asked in [vec![], vec![PollFd::new(-1, PollFlags::IN), PollFd::new(-2, PollFlags::OUT)]] {
        let count = asked.len();
        let slept = coroutine(&scheduler, move |_| {
            let begun = Instant::now();
            (answers(asked, Some(HOUR)), Instant::now() - begun)
        });
        assert_eq!(slept.join(), Ok(((Ok(0), vec![PollFlags::EMPTY; count]), HOUR)));
    }
}

#[test]
fn a_poll_that_times_out_answers_none() {
    let scheduler = threaded(1);
    let (silent, _peer) = pair();
    let timeout = Duration::from_millis(2);
    let polls = coroutine(&scheduler, move |_| {
        let begun = Instant::now();
        (answers(vec![asks(&silent, PollFlags::IN)], Some(timeout)), Instant::now() - begun)
    });
    let (answered, took) = polls.join().expect("it does not panic");
    assert_eq!(answered, (Ok(0), vec![PollFlags::EMPTY]));
    assert!(took >= timeout, "early, after {took:?}");
}

#[test]
fn a_poll_that_cannot_suspend_blocks_its_thread() {
    let scheduler = threaded(1);
    let (ready, is_ready) = mpsc::channel();
    let (reads, mut writes) = pair();
    let polls = coroutine(&scheduler, move |_| {
        coroutine::no_suspend(|| {
            ready.send(()).expect("the test waits");
            answers(vec![asks(&reads, PollFlags::IN)], FOREVER)
        })
    });
    soon(&is_ready);
    writes.write_all(b"!").expect("it is connected");
    assert_eq!(polls.join(), Ok((Ok(1), vec![PollFlags::IN])));
}

#[test]
fn a_cancelled_poll_is_unwound_and_leaves_nothing_registered() {
    let scheduler = threaded(1);
    let (ready, is_ready) = mpsc::channel();
    let (silent, _peer) = pair();
    let polls = coroutine(&scheduler, move |_| {
        ready.send(()).expect("the test waits");
        answers(vec![asks(&silent, PollFlags::IN)], FOREVER)
    });
    soon(&is_ready);
    polls.cancel();
    assert_eq!(polls.join(), Err(Exit::Shutdown));
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
}
