//! Waits for descriptors below frames that cannot be unwound.

use crate::home::mpsc;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use procession::coroutine::{
    Context, FdWait, Interest, Interrupted, no_suspend, shield, try_wait, wait_fd,
};
use procession::time::Instant;
use procession::{Exit, SpawnOptions};

use super::{coroutine, threaded};
use crate::scene::{assert_conserved, soon};

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("the system has sockets")
}

/// A frame as of C: to unwind it aborts the program.
extern "C" fn below_c<F: FnMut()>(call: &mut F) {
    call();
}

fn through_c<R>(call: impl FnOnce() -> R) -> R {
    let (mut call, mut result) = (Some(call), None);
    below_c(&mut || result = call.take().map(|call| call()));
    result.expect("it was called")
}

fn in_coroutine(stream: &UnixStream, interest: Interest, timeout: Option<Duration>) -> FdWait {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    through_c(|| wait_fd(stream.as_fd(), interest, deadline))
}

#[test]
fn a_wait_for_a_descriptor_leaves_its_worker_to_others() {
    let scheduler = threaded(1);
    let (mut writer, mut reader) = pair();
    let reads = coroutine(&scheduler, move |_| {
        let writes = procession::spawn(async move { writer.write_all(b"hello").map(|()| writer) });
        let waited = in_coroutine(&reader, Interest::Read, None);
        let count = reader.read(&mut [0; 8]).expect("it is ready");
        drop(writes);
        (waited, count, in_coroutine(&reader, Interest::Write, None))
    });
    assert_eq!(reads.join(), Ok((FdWait::Ready, 5, FdWait::Ready)));
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
    assert_conserved(&scheduler);
}

#[test]
fn a_deadline_ends_the_wait_and_leaves_nothing_registered() {
    // The test clock stands still while a descriptor is waited for.
    let scheduler = threaded(1);
    let (mut writer, reader) = pair();
    let waits = coroutine(&scheduler, move |_| {
        let begun = Instant::now();
        let limit = Duration::from_millis(2);
        let first = in_coroutine(&reader, Interest::Read, Some(limit));
        let in_time = Instant::now() - begun >= limit;
        writer.write_all(b"!").expect("it is connected");
        (first, in_time, in_coroutine(&reader, Interest::Read, Some(Duration::from_secs(3600))))
    });
    assert_eq!(waits.join(), Ok((FdWait::TimedOut, true, FdWait::Ready)));
    assert_eq!(scheduler.snapshot().descriptors.registered, 0);
    assert_conserved(&scheduler);
}

/// Goal: a descriptor that is ready is in time, although nothing has noted its event. Method: the
/// only worker comes to the wait after the deadline.
#[test]
fn what_is_ready_at_the_deadline_is_in_time() {
    let scheduler = threaded(1);
    let (mut writer, reader) = pair();
    writer.write_all(b"!").expect("it is connected");
    let waits = coroutine(&scheduler, move |_| {
        let wait = |stream| in_coroutine(stream, Interest::Read, Some(Duration::ZERO));
        (wait(&reader), wait(&writer))
    });
    assert_eq!(waits.join(), Ok((FdWait::Ready, FdWait::TimedOut)));
    assert_conserved(&scheduler);
}

#[test]
fn a_cancel_ends_each_wait_and_unwinds_nothing() {
    let scheduler = threaded(1);
    let (_writer, reader) = pair();
    let (begun, begins) = mpsc::channel();
    let waits = coroutine(&scheduler, move |_| {
        begun.send(()).expect("the test listens");
        let first = in_coroutine(&reader, Interest::Read, None);
        let second = in_coroutine(&reader, Interest::Read, Some(Duration::from_secs(9)));
        // What is ready is had all the same.
        let ready = through_c(|| try_wait(async { 7 }));
        (first, second, ready, through_c(|| try_wait(std::future::pending::<()>())))
    });
    soon(&begins);
    waits.cancel();
    let expected = (FdWait::Cancelled, FdWait::Cancelled, Ok(7), Err(Interrupted::Cancelled));
    assert_eq!(waits.join(), Ok(expected));
    assert_conserved(&scheduler);
}

/// Goal: if a coroutine is cancelled in a step that has spent its budget, the next step reports the
/// cancel. Method: the coroutine sends until the budget is spent, and then waits for a descriptor
/// that never becomes ready.
#[test]
fn a_cancel_ends_the_wait_of_a_step_without_budget() {
    let scheduler = threaded(1);
    let (_writer, reader) = pair();
    let counts = scheduler
        .start(|mut cx: procession::Context<()>| async move { while cx.recv().await.is_some() {} });
    let address = counts.address().clone();
    let waits = coroutine(&scheduler, move |mut cx| {
        assert_eq!(cx.recv(), None, "it is cancelled");
        for _ in 0..1000 {
            address.send(()).expect("it lives");
        }
        in_coroutine(&reader, Interest::Read, None)
    });
    waits.cancel();
    assert_eq!(waits.join(), Ok(FdWait::Cancelled));
    drop(counts);
}

#[test]
fn a_shield_holds_a_cancel_back_from_a_wait() {
    let scheduler = threaded(1);
    let (mut writer, reader) = pair();
    let (begun, begins) = mpsc::channel();
    let waits = coroutine(&scheduler, move |_| {
        begun.send(()).expect("the test listens");
        shield(|| in_coroutine(&reader, Interest::Read, None))
    });
    soon(&begins);
    waits.cancel();
    writer.write_all(b"!").expect("it is connected");
    assert_eq!(waits.join(), Ok(FdWait::Ready));
}

#[test]
fn a_terminated_coroutine_goes_on_below_c_and_is_unwound_above_it() {
    for dropped in [false, true] {
        let scheduler = threaded(1);
        let (_writer, reader) = pair();
        let ((begun, begins), (told, tells)) = (mpsc::channel(), mpsc::channel());
        let waits = coroutine(&scheduler, move |_| {
            begun.send(()).expect("the test listens");
            let first = in_coroutine(&reader, Interest::Read, None);
            let second = in_coroutine(&reader, Interest::Read, None);
            let unwound =
                catch_unwind(AssertUnwindSafe(|| coroutine::sleep(Duration::from_secs(9))));
            told.send((first, second, unwound.is_err())).expect("the test listens");
        });
        soon(&begins);
        if dropped {
            drop(scheduler);
        } else {
            procession::process::kill(waits.pid());
        }
        assert_eq!(soon(&tells), (FdWait::Terminated, FdWait::Terminated, true));
        assert_eq!(waits.join(), Err(Exit::Killed));
    }
}

#[test]
fn a_result_or_panic_after_the_termination_changes_nothing() {
    for panics in [false, true] {
        let scheduler = threaded(1);
        let (_writer, reader) = pair();
        let (begun, begins) = mpsc::channel();
        let waits = coroutine(&scheduler, move |_| {
            begun.send(()).expect("the test listens");
            let waited = in_coroutine(&reader, Interest::Read, None);
            if panics {
                crate::scene::panic_quietly("late");
            }
            waited
        });
        soon(&begins);
        procession::process::kill(waits.pid());
        assert_eq!(waits.join(), Err(Exit::Killed));
        assert!(scheduler.snapshot().stuck_coroutines.is_empty());
        assert_conserved(&scheduler);
    }
}

/// Goal: code that waits again whatever it is told ends all the same. Method: a loop below a frame
/// of C that retries forever.
#[test]
fn a_coroutine_that_always_waits_again_is_listed_as_stuck() {
    for terminated in [false, true] {
        let scheduler = threaded(1);
        let (_writer, reader) = pair();
        let (begun, begins) = mpsc::channel();
        let waits = SpawnOptions::new()
            .on(&scheduler)
            .try_start_coroutine(move |_: Context<()>| {
                begun.send(()).expect("the test listens");
                through_c(
                    || while wait_fd(reader.as_fd(), Interest::Read, None) != FdWait::Ready {},
                )
            })
            .expect("coroutines are enabled");
        let pid = waits.pid();
        soon(&begins);
        if terminated {
            procession::process::kill(waits.pid());
        } else {
            waits.cancel();
        }
        assert_eq!(waits.join(), Err(Exit::Killed));
        let stuck = scheduler.snapshot().stuck_coroutines;
        assert_eq!(stuck.iter().map(|one| one.pid).collect::<Vec<_>>(), [pid]);
        assert!(stuck[0].location.file().ends_with("foreign.rs"));
        // The worker goes on.
        assert_eq!(scheduler.spawn(async { 7 }).join(), Ok(7));
    }
}

/// Goal: a function on a helper thread is run to its end, so it is no refused wait, of which a
/// coroutine has a hundred.
#[test]
fn a_terminated_coroutine_may_block_as_often_as_it_likes() {
    let scheduler = threaded(1);
    let (_writer, reader) = pair();
    let ((begun, begins), (told, tells)) = (mpsc::channel(), mpsc::channel());
    let blocks = coroutine(&scheduler, move |_| {
        begun.send(()).expect("the test listens");
        let waited = in_coroutine(&reader, Interest::Read, None);
        // Long enough that the coroutine waits for it.
        let computes = || {
            let begun = Instant::now();
            while Instant::now() - begun < Duration::from_micros(200) {}
        };
        let all_run = (0..300)
            .all(|_| through_c(|| procession::coroutine::blocking_foreign(computes)).is_ok());
        told.send((waited, all_run)).expect("the test listens");
    });
    soon(&begins);
    procession::process::kill(blocks.pid());
    assert_eq!(soon(&tells), (FdWait::Terminated, true));
    assert_eq!(blocks.join(), Err(Exit::Killed));
    assert!(scheduler.snapshot().stuck_coroutines.is_empty());
}

/// Goal: a terminated coroutine waits for its function on a helper thread even if its own thread is
/// the only one of its scheduler. To refuse the wait would unwind the frame of C.
#[test]
fn a_terminated_coroutine_blocks_the_last_thread() {
    let builder = procession::Scheduler::builder().worker_threads(1).max_threads(1);
    let scheduler = super::enabled(builder);
    let ((begun, begins), (release, released)) = (mpsc::channel(), mpsc::channel());
    let (told, tells) = mpsc::channel();
    let blocks = coroutine(&scheduler, move |_| {
        let lent = move || {
            begun.send(()).expect("the test listens");
            released.recv().is_ok()
        };
        let result = through_c(|| procession::coroutine::blocking_foreign(lent));
        told.send(result.ok()).expect("the test listens");
    });
    soon(&begins);
    procession::process::kill(blocks.pid());
    while scheduler.snapshot().blocking_sections == 0 {
        crate::home::thread::yield_now();
    }
    release.send(()).expect("the helper waits");
    assert_eq!(soon(&tells), Some(true));
    assert_eq!(blocks.join(), Err(Exit::Killed));
}

/// Gives the number of `closed` to `other`.
fn replace(closed: OwnedFd, other: &impl AsFd) -> RawFd {
    let number = closed.as_raw_fd();
    // The library's `dup2` closes the old file and takes its number in one step, so no other test
    // gets the number.
    let mut closed = closed;
    rustix::io::dup2(other, &mut closed).expect("both are open");
    std::mem::forget(closed);
    number
}

#[test]
fn a_number_that_is_closed_and_used_again_loses_no_wake_up() {
    let scheduler = threaded(1);
    let ((mut old_writer, old), (mut new_writer, new)) = (pair(), pair());
    let old = OwnedFd::from(old);
    let number = old.as_raw_fd();
    let wait = move || {
        // SAFETY: the number stays open until the end of the test.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        through_c(|| wait_fd(fd, Interest::Read, None))
    };
    let inner = scheduler.clone();
    let ends = coroutine(&scheduler, move |_| {
        let first = SpawnOptions::new()
            .try_start_coroutine(move |_: Context<()>| wait())
            .expect("coroutines are enabled");
        while inner.snapshot().descriptors.registered < 1 {
            coroutine::yield_now();
        }
        assert_eq!(replace(old, &new), number);
        let second = SpawnOptions::new()
            .try_start_coroutine(move |_: Context<()>| wait())
            .expect("coroutines are enabled");
        while inner.snapshot().descriptors.registered < 2 {
            coroutine::yield_now();
        }
        // The first wait is for the old file, which it holds; its end leaves the other alone.
        old_writer.write_all(b"!").expect("the wait holds the other end");
        let first = coroutine::wait(first);
        new_writer.write_all(b"!").expect("it is connected");
        (first, coroutine::wait(second))
    });
    assert_eq!(ends.join(), Ok((Ok(FdWait::Ready), Ok(FdWait::Ready))));
}

#[test]
fn a_descriptor_of_the_scheduler_can_be_waited_for() {
    let scheduler = threaded(1);
    let (mut writer, reader) = pair();
    let waits = coroutine(&scheduler, move |_| {
        let own = procession::net::Readiness::new(reader).expect("there are descriptors");
        writer.write_all(b"!").expect("it is connected");
        let waited = through_c(|| wait_fd(own.as_fd(), Interest::Read, None));
        let count = coroutine::wait(own.read_with(|mut stream| stream.read(&mut [0; 8])));
        (waited, count.ok(), through_c(|| wait_fd(own.as_fd(), Interest::Write, None)))
    });
    assert_eq!(waits.join(), Ok((FdWait::Ready, Some(1), FdWait::Ready)));
}

#[test]
fn files_and_wrong_numbers_are_ready_so_that_the_call_tells_more() {
    let scheduler = threaded(1);
    let waits = coroutine(&scheduler, |_| {
        let file = std::fs::File::open("/proc/self/exe").expect("the program is a file");
        // SAFETY: nothing is done with the number, which cannot be open.
        let wrong = unsafe { std::os::fd::BorrowedFd::borrow_raw(i32::MAX) };
        let wait = |fd| through_c(|| wait_fd(fd, Interest::Read, None));
        (wait(file.as_fd()), wait(wrong))
    });
    assert_eq!(waits.join(), Ok((FdWait::Ready, FdWait::Ready)));
}

#[test]
fn where_nothing_can_be_suspended_the_thread_blocks() {
    let (mut writer, reader) = pair();
    let soon_over = || Some(Instant::now() + Duration::from_millis(1));
    assert_eq!(wait_fd(reader.as_fd(), Interest::Read, soon_over()), FdWait::TimedOut);
    writer.write_all(b"!").expect("it is connected");
    assert_eq!(wait_fd(reader.as_fd(), Interest::Read, None), FdWait::Ready);
    let scheduler = threaded(1);
    let quiet =
        coroutine(&scheduler, move |_| no_suspend(|| in_coroutine(&reader, Interest::Read, None)));
    assert_eq!(quiet.join(), Ok(FdWait::Ready));
    assert_eq!(try_wait(async { 7 }), Ok(7));
}
