//! Standard input.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use procession_sync::{Mutex, MutexGuard};
use rustix::event::PollFlags;

use super::wait_until_ready;
use crate::coroutine::wait;
use crate::pool::JobError;
use crate::pool::program::ProgramPool;
use crate::process::unwind::guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::placed::placed;
use crate::scheduler::{budget, current};

/// The most that one call reads.
const SIZE: usize = 8 << 10;

static INPUT: Mutex<Input> = Mutex::new(Input {
    ahead: Vec::new(),
    taken: 0,
    result: None,
    is_read: false,
    waiting: Vec::new(),
});

/// The thread that reads. It is apart from other helpers, since a read may never end.
static READER: ProgramPool = ProgramPool::new("stdin");

/// What all handles share, so that what one has begun to read is not lost for the others.
struct Input {
    ahead: Vec<u8>,
    taken: usize,
    /// The end of the input, or an error, for the next read.
    result: Option<io::Result<()>>,
    /// `true` while a helper reads.
    is_read: bool,
    waiting: Vec<Waker>,
}

/// Standard input. Made by [`stdin`].
///
/// It implements the traits for reading of `futures-io`, std and, with the feature `tokio-io`,
/// tokio. Clones and further calls of [`stdin`] refer to the same input.
#[derive(Clone)]
pub struct Stdin(());

/// Returns the standard input of the program.
///
/// A helper thread reads, from the buffer of [`std::io::stdin`], so both can be used in turn. What
/// it has read and nobody has taken stays for the next read through any handle; std does not see
/// that part. A helper that waits for input does not keep the program from ending.
///
/// ```no_run
/// use futures_lite::io::BufReader;
/// use futures_lite::{AsyncBufReadExt, StreamExt};
///
/// procession::run(async {
///     let mut lines = BufReader::new(procession::io::stdin()).lines();
///     while let Some(line) = lines.next().await {
///         println!("{}", line?);
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # On the test clock
/// The clock stands still while a helper waits for input.
pub fn stdin() -> Stdin {
    Stdin(())
}

impl Stdin {
    /// Reads available input into `buffer`, and returns the number of bytes. Waits if there is
    /// none. Zero bytes is the end, unless `buffer` is empty. A terminal may have more input after
    /// its end.
    ///
    /// # Errors
    /// Returns the system's error, and an error if the system gives no thread.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no input is lost.
    #[track_caller]
    pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        placed(poll_fn(move |task| poll_read(task, buffer)))
    }
}

fn poll_read(task: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    if buffer.is_empty() {
        return Poll::Ready(Ok(0));
    }
    if !budget::charge(task) {
        return Poll::Pending;
    }
    let waker = task.waker().clone();
    let mut input = INPUT.lock();
    if let Some(result) = take(&mut input, buffer) {
        drop(input);
        return Poll::Ready(result);
    }
    let known = input.waiting.iter().any(|other| other.will_wake(&waker));
    let known = if known {
        Some(waker)
    } else {
        input.waiting.push(waker);
        None
    };
    let starts = !std::mem::replace(&mut input.is_read, true);
    drop(input);
    drop(known);
    if starts && READER.submit(read_some).map(drop).is_err() {
        give(|input| input.is_read = false);
        return Poll::Ready(Err(io::Error::other(JobError::Refused)));
    }
    current::note_waiting(Waiting::JOB);
    Poll::Pending
}

/// Takes what was read, into `buffer`.
fn take(input: &mut MutexGuard<'_, Input>, buffer: &mut [u8]) -> Option<io::Result<usize>> {
    let ahead = &input.ahead[input.taken..];
    if ahead.is_empty() {
        return input.result.take().map(|result| result.map(|()| 0));
    }
    let count = ahead.len().min(buffer.len());
    buffer[..count].copy_from_slice(&ahead[..count]);
    input.taken += count;
    Some(Ok(count))
}

/// Changes the input, and wakes all that wait for it.
fn give(change: impl FnOnce(&mut Input)) {
    let mut input = INPUT.lock();
    change(&mut input);
    let waiting = std::mem::take(&mut input.waiting);
    drop(input);
    for waker in waiting {
        drop(guarded(|| waker.wake()));
    }
}

/// Reads once, on a helper.
fn read_some() {
    let mut buffer = vec![0; SIZE];
    let read = loop {
        match io::stdin().read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_until_ready(&io::stdin(), PollFlags::IN);
            }
            read => break read,
        }
    };
    give(|input| {
        input.is_read = false;
        match read {
            Ok(0) => input.result = Some(Ok(())),
            Ok(count) => {
                buffer.truncate(count);
                (input.ahead, input.taken) = (buffer, 0);
            }
            Err(error) => input.result = Some(Err(error)),
        }
    });
}

impl futures_io::AsyncRead for Stdin {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        poll_read(task, buffer)
    }
}

#[cfg(feature = "tokio-io")]
impl tokio::io::AsyncRead for Stdin {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unfilled = buffer.initialize_unfilled();
        poll_read(task, unfilled).map_ok(|count| buffer.advance(count))
    }
}

/// Reads in blocking style. A coroutine is suspended while it waits, and a plain thread is parked.
impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait(Stdin::read(self, buffer))
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stdin")
    }
}
