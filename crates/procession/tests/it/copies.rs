//! Copies between streams: partial transfers, ends, errors and flushes.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncWrite};
use procession::io::{copy, copy_bidirectional};
use procession::net::UnixStream;
use procession::time::Sleep;
use procession::{Scheduler, sleep, spawn, yield_now};
use procession_sync::Mutex;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::scene::{driven, threaded};

const SECOND: Duration = Duration::from_secs(1);

const SHORT: Duration = Duration::from_millis(5);

/// What one poll of a scripted stream does.
#[derive(Clone, Debug)]
enum Act {
    /// Transfers at most this many bytes.
    Some(usize),
    /// Waits, and is woken at once.
    Wait,
    Fail(ErrorKind),
}

/// A stream with reads, writes, flushes and close by a script. Beyond its end, everything
/// succeeds.
#[derive(Default)]
struct Scripted {
    input: Vec<u8>,
    reads: VecDeque<Act>,
    writes: VecDeque<Act>,
    written: Arc<Mutex<Vec<u8>>>,
    flushed: Arc<Mutex<usize>>,
    closed: usize,
}

fn act(script: &mut VecDeque<Act>, room: usize, task: &Context<'_>) -> Poll<io::Result<usize>> {
    match script.pop_front() {
        Some(Act::Wait) => {
            task.waker().wake_by_ref();
            Poll::Pending
        }
        Some(Act::Fail(kind)) => Poll::Ready(Err(kind.into())),
        Some(Act::Some(count)) => Poll::Ready(Ok(count.min(room))),
        None => Poll::Ready(Ok(room)),
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = buffer.len().min(self.input.len());
        act(&mut self.reads, room, task).map_ok(|count| {
            buffer[..count].copy_from_slice(&self.input[..count]);
            self.input.drain(..count);
            count
        })
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        act(&mut self.writes, bytes.len(), task).map_ok(|count| {
            self.written.lock().extend_from_slice(&bytes[..count]);
            count
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self.flushed.lock() = self.written.lock().len();
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed += 1;
        Poll::Ready(Ok(()))
    }
}

/// A stream that has a byte after each second until there are no more, and then waits forever. It
/// takes everything.
struct Slow {
    bytes: usize,
    next: Sleep,
}

impl Slow {
    fn new(bytes: usize) -> Self {
        Self { bytes, next: sleep(SECOND) }
    }
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.bytes == 0 || Pin::new(&mut self.next).poll(task).is_pending() {
            return Poll::Pending;
        }
        self.bytes -= 1;
        self.next = sleep(SECOND);
        Poll::Ready(Ok(1))
    }
}

impl AsyncWrite for Slow {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn script() -> impl Strategy<Value = VecDeque<Act>> {
    let act = prop_oneof![
        (1..9_usize).prop_map(Act::Some),
        Just(Act::Wait),
        Just(Act::Fail(ErrorKind::Interrupted)),
    ];
    prop::collection::vec(act, 0..40).prop_map(VecDeque::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(crate::home::seed()), ..Default::default() })]

    #[test]
    fn every_byte_is_copied_once_in_both_directions(
        there in prop::collection::vec(any::<u8>(), 0..200),
        back in prop::collection::vec(any::<u8>(), 0..200),
        scripts in prop::array::uniform4(script()),
    ) {
        let [reads_a, writes_a, reads_b, writes_b] = scripts;
        let stream = |input: &Vec<u8>, reads, writes| Scripted {
            input: input.clone(),
            reads,
            writes,
            ..Default::default()
        };
        let mut a = stream(&there, reads_a, writes_a);
        let mut b = stream(&back, reads_b, writes_b);
        let copied = driven().block_on(copy_bidirectional(&mut a, &mut b)).expect("none fails");
        prop_assert_eq!(copied, (there.len() as u64, back.len() as u64));
        prop_assert_eq!(&*b.written.lock(), &there);
        prop_assert_eq!(&*a.written.lock(), &back);
        prop_assert_eq!((a.closed, b.closed), (1, 1));
        prop_assert_eq!((*a.flushed.lock(), *b.flushed.lock()), (back.len(), there.len()));
    }
}

#[test]
fn a_copy_without_data_for_the_idle_timeout_ends() {
    let scheduler = driven();
    let begin = scheduler.now();
    let copied = scheduler.block_on(async {
        let (mut a, mut b) = (Slow::new(5), Slow::new(3));
        copy_bidirectional(&mut a, &mut b).idle_timeout(10 * SECOND).await
    });
    assert_eq!(copied.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    assert_eq!(scheduler.now() - begin, 15 * SECOND, "ten seconds after the last byte");
}

/// Goal: data that came in time is copied, and lets the time begin anew, although nothing has noted
/// its event. Method: nothing polls the kernel for the scheduler of the streams, which its callers
/// drive.
#[test]
fn data_that_was_not_noted_is_no_silence() {
    let builder = Scheduler::builder().worker_threads(1).callers_drive();
    let asleep = builder.build().expect("it starts no thread");
    let pair = || asleep.block_on(async { UnixStream::pair().expect("it is allowed") });
    let ((client, mut ours), (mut theirs, server)) = (pair(), pair());
    let mut client = StdUnixStream::try_from(client).expect("it is a socket");
    threaded(1).block_on(async {
        let silent = copy_bidirectional(&mut ours, &mut theirs).idle_timeout(SHORT);
        assert_eq!(silent.await.expect_err("nothing comes").kind(), ErrorKind::TimedOut);
        client.write_all(b"a question").expect("there is room");
        let copied = copy_bidirectional(&mut ours, &mut theirs).idle_timeout(SHORT);
        assert_eq!(copied.await.expect_err("no more comes").kind(), ErrorKind::TimedOut);
    });
    assert_eq!(server.try_read(&mut [0; 16]).expect("it was copied"), 10);
}

#[test]
fn an_error_ends_a_copy() {
    let failing = |reads: &[Act], writes: &[Act]| {
        let mut reader = Scripted { input: vec![1; 50], ..Default::default() };
        reader.reads.extend(reads.iter().cloned());
        let mut writer = Scripted::default();
        writer.writes.extend(writes.iter().cloned());
        let error = driven().block_on(copy(&mut reader, &mut writer)).expect_err("it fails");
        assert_eq!(writer.closed, 0, "a copy closes nothing");
        (error.kind(), writer.written.lock().len())
    };
    let reset = Act::Fail(ErrorKind::ConnectionReset);
    assert_eq!(failing(&[Act::Some(7), reset.clone()], &[]), (ErrorKind::ConnectionReset, 7));
    assert_eq!(failing(&[], &[Act::Some(3), reset]), (ErrorKind::ConnectionReset, 3));
    assert_eq!(failing(&[], &[Act::Some(3), Act::Some(0)]), (ErrorKind::WriteZero, 3));
}

#[test]
fn a_reader_that_has_nothing_for_now_has_the_writer_flushed() {
    let scheduler = driven();
    let (ours, mut theirs) = UnixStream::pair().expect("it is allowed");
    let mut writer = Scripted::default();
    let flushed = Arc::clone(&writer.flushed);
    let copies = scheduler.spawn(async move { copy(&mut theirs, &mut writer).await });
    scheduler.block_on(async {
        ours.write_all(b"a question").await.expect("there is room");
        while *flushed.lock() < 10 {
            yield_now().await;
        }
        drop(ours);
        assert_eq!(copies.await.expect("it does not panic").expect("none fails"), 10);
    });
}

#[test]
fn an_endless_copy_in_memory_lets_others_run() {
    let scheduler = driven();
    let mut endless = Endless(Arc::default());
    let copies =
        scheduler.spawn(async move { copy(&mut endless, &mut futures_lite::io::sink()).await });
    scheduler.block_on(async { spawn(async {}).await.expect("it runs beside the copy") });
    copies.cancel();
    assert!(scheduler.block_on(copies).is_err(), "it was dropped");
}

/// A stream that never waits, and counts its reads.
struct Endless(Arc<Mutex<usize>>);

impl AsyncRead for Endless {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        *self.0.lock() += 1;
        Poll::Ready(Ok(buffer.len()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn both_directions_move_although_neither_waits() {
    driven().block_on(async {
        let counts = [(); 2].map(|()| Arc::new(Mutex::new(0)));
        let [mut one, mut other] = counts.clone().map(Endless);
        let copies = spawn(async move { copy_bidirectional(&mut one, &mut other).await });
        for _ in 0..20 {
            yield_now().await;
        }
        copies.cancel();
        assert!(copies.await.is_err(), "it was dropped");
        let [one, other] = counts.map(|count| *count.lock());
        assert!(one > 500 && one.abs_diff(other) <= 128, "{one} and {other} reads");
    });
}
