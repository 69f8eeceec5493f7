//! Standard input.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Mutex, MutexGuard};
use rustix::event::PollFlags;

use crate::coroutine::wait;
use crate::fs::buffered::until_done;
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

/// State that all handles share, so that data that one handle has begun to read is not lost for
/// another handle.
struct Input {
    ahead: Vec<u8>,
    taken: usize,
    /// The end of the input, or an error, for the next read.
    result: Option<io::Result<()>>,
    /// `true` while a helper reads.
    is_read: bool,
    /// The wakers of the handles that wait, each with the number of its handle.
    waiting: Vec<(u64, Waker)>,
}

/// Standard input. Made by [`stdin`].
///
/// It implements the traits for reading of `futures-io`, std and, with the feature `tokio-io`,
/// tokio. Clones and further calls of [`stdin`] refer to the same input. A handle wakes the last
/// task that has polled it, so tasks that read at the same time need handles of their own.
pub struct Stdin {
    /// The number of this handle among all handles. While the handle waits, its waker has this
    /// number.
    number: u64,
}

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
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number, which publishes nothing.
    Stdin { number: NEXT.fetch_add(1, Relaxed) }
}

impl Clone for Stdin {
    fn clone(&self) -> Self {
        stdin()
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        let mut input = INPUT.lock();
        let place = input.waiting.iter().position(|waiter| waiter.0 == self.number);
        let waiter = place.map(|place| input.waiting.swap_remove(place));
        drop(input);
        drop(waiter);
    }
}

impl Stdin {
    /// Reads available input into `buffer`, and returns the number of bytes. Waits if there is
    /// none. Zero bytes is the end, unless `buffer` is empty. A terminal may have more input after
    /// its end.
    ///
    /// # Errors
    /// Returns the system's error, or an error if the system has no thread for the call.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no input is lost.
    #[track_caller]
    pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        placed(poll_fn(move |task| self.poll_bytes(task, buffer)))
    }

    fn poll_bytes(&self, task: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let waker = crate::process::waker::another(task.waker());
        let mut input = INPUT.lock();
        if let Some(result) = take(&mut input, buffer) {
            drop(input);
            return Poll::Ready(result);
        }
        let own = input.waiting.iter_mut().find(|waiter| waiter.0 == self.number);
        let before = match own {
            Some(waiter) => Some(mem::replace(&mut waiter.1, waker)),
            None => {
                input.waiting.push((self.number, waker));
                None
            }
        };
        let starts = !mem::replace(&mut input.is_read, true);
        drop(input);
        drop(before);
        if starts && READER.submit(read_some).map(drop).is_err() {
            give(|input| input.is_read = false);
            return Poll::Ready(Err(io::Error::other(JobError::Refused)));
        }
        current::note_waiting(Waiting::JOB);
        Poll::Pending
    }
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
    let waiting = mem::take(&mut input.waiting);
    drop(input);
    for (_, waker) in waiting {
        drop(guarded(|| waker.wake()));
    }
}

/// Reads once, on a helper.
fn read_some() {
    let mut buffer = vec![0; SIZE];
    let read = until_done(&io::stdin(), PollFlags::IN, || io::stdin().read(&mut buffer));
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
        self.poll_bytes(task, buffer)
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
        self.poll_bytes(task, unfilled).map_ok(|count| buffer.advance(count))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};

    use super::{INPUT, stdin};

    /// A task that is not the same as any other.
    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    fn wakers_of(number: u64) -> usize {
        INPUT.lock().waiting.iter().filter(|waiter| waiter.0 == number).count()
    }

    #[test]
    fn a_handle_keeps_one_waker_and_takes_it_along() {
        // No helper reads the input of the tests.
        INPUT.lock().is_read = true;
        let handle = stdin();
        let number = handle.number;
        let tasks = [(); 3].map(|()| Arc::new(Task));
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            let polled = handle.poll_bytes(&mut Context::from_waker(&waker), &mut [0; 1]);
            assert!(polled.is_pending());
        }
        assert_eq!(wakers_of(number), 1);
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1, 2], "the last one is woken");
        drop(handle);
        assert_eq!(wakers_of(number), 0);
        INPUT.lock().is_read = false;
    }
}
