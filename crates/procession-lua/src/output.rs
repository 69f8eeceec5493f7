//! Buffered output of guests.
//!
//! # Output protocol
//!
//! ## Problem
//! If the reader of a pipe is slow, a write to the pipe blocks its thread. On a worker, that would
//! hold up every process that the worker runs, and the shutdown.
//!
//! ## Steps
//! Guest: `Append` under the lock, appends the line to the buffer if the buffer has room and no
//! guest waits. Otherwise `Queue` puts the line and a completion at the end of the queue.
//!
//! Writer thread: `Take` under the lock, takes the buffer and refills it from the queue · `Release`
//! without the lock, completes the commands of the guests with lines that were moved · `Write`
//! without the lock, writes what was taken · `Settle` under the lock, counts what was written and
//! collects the completions that waited for it.
//!
//! Killed guest: `Withdraw` under the lock, removes its line from the queue.
//!
//! ## Why it works
//! Lines reach the buffer in the order in which they were appended or queued. They reach the sink
//! in the order of the buffer, because only one thread at a time has the sink. A guest with a
//! queued line is suspended until `Release`, so each guest's lines keep their order.
//!
//! The buffer is empty only if the queue is: `Take` refills the buffer, and `Queue` happens only
//! while it is full. The writer therefore sleeps only if nothing is left to write.
//!
//! ## Allowed
//! The buffer may exceed its capacity by one line. A guest that cannot be suspended may exceed it
//! up to [`RESERVE`].
//!
//! If the system refuses the thread, the guest that appends writes to the sink itself. It then
//! blocks its worker as long as the reader is slow.
//!
//! ## Rejected
//! - Waking every waiting guest to try again: the guests overtake one another, and each written
//!   line wakes all guests.
//! - Waiting with `BlockingWork`: each waiting guest takes a thread.
//!
//! ## Checked by
//! `tests/output.rs`. Everything shared is under one lock, so there is no model.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;
use std::time::Duration;

use procession::machine::Completion;
use procession::process::catch_panic;
use procession::sync::CancellationToken;
use procession_sync::{Arc, Condvar, Mutex, MutexGuard, thread};

use crate::value::Value;

/// The buffer has room while it holds fewer bytes than this.
const CAPACITY: usize = 64 * 1024;
/// Guests that cannot be suspended may append while the buffer holds fewer bytes than this.
const RESERVE: usize = 1024 * 1024;
/// A buffer that has grown beyond this size in bytes is freed.
const KEPT: usize = 4 * CAPACITY;

/// A bounded buffer, and a thread that writes it to a sink.
///
/// A guest that prints appends a line to the buffer. If the buffer is full, the guest is suspended
/// until the sink has taken enough. Other processes do not wait. The order of lines is kept.
///
/// The thread is started when it is first needed, and sleeps while there is nothing to write. It
/// ends after the last clone of the output is dropped and everything is written.
///
/// If the sink refuses a write, the bytes of that write are lost, and the guests continue.
/// [`flush`](Self::flush) returns the error, and [`failed`](Self::failed) notifies the host
/// immediately.
///
/// ```
/// use std::io::{self, Write};
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use procession_lua::{Output, Program};
///
/// struct Lines(mpsc::Sender<Vec<u8>>);
///
/// impl Write for Lines {
///     fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
///         self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
///         Ok(bytes.len())
///     }
///
///     fn flush(&mut self) -> io::Result<()> {
///         Ok(())
///     }
/// }
///
/// let (sender, lines) = mpsc::channel();
/// let output = Output::new(Lines(sender));
/// let program = Program::load("greet", "function main() print('hello') end")?;
/// let program = program.output(output.clone(), output.clone());
/// procession::run(async {
///     program.spawn("main", [])?.await.map_err(procession_lua::Error::from)
/// })?;
/// output.flush(Duration::from_secs(1)).expect("the sink takes all");
/// assert_eq!(lines.recv().as_deref(), Ok(&b"hello\n"[..]));
/// # Ok::<(), procession_lua::Error>(())
/// ```
#[derive(Clone)]
pub struct Output(Arc<Handle>);

/// Closes the output when the last clone is dropped. The writer thread keeps only the inner part
/// alive.
struct Handle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes the writer thread.
    work: Condvar,
    /// Wakes threads in [`Output::flush`].
    progress: Condvar,
    /// Cancelled, without the lock, once the sink has refused a write.
    failed: CancellationToken,
}

struct State {
    /// `None` while a thread writes.
    sink: Option<Box<dyn Write + Send>>,
    buffer: Vec<u8>,
    /// The lines of suspended guests, oldest first, each with the completion that resumes its
    /// guest.
    queue: BTreeMap<u64, (Vec<u8>, Completion)>,
    /// Guests that wait until a number of bytes is written, with that number.
    settling: BTreeMap<u64, (u64, Completion)>,
    /// The number of the last turn.
    turns: u64,
    /// The number of bytes that have reached the buffer, and the number that the sink has taken or
    /// refused.
    accepted: u64,
    written: u64,
    has_thread: bool,
    /// `true` while the writer thread waits for work and has not been notified.
    sleeps: bool,
    flushing: usize,
    closed: bool,
    /// The first error since the last flush.
    error: Option<io::Error>,
    /// If `true`, the buffer keeps what is written to it, up to [`RESERVE`], and has no thread.
    captures: bool,
}

/// The turn of a suspended guest. If it is dropped, the guest's line is withdrawn, unless it is in
/// the buffer already.
pub(crate) struct Turn {
    output: Output,
    number: u64,
}

impl Output {
    /// Creates an output that writes to `sink`, in a separate thread. It flushes `sink` after each
    /// write.
    pub fn new(sink: impl Write + Send + 'static) -> Self {
        let state = State {
            sink: Some(Box::new(sink)),
            buffer: Vec::new(),
            queue: BTreeMap::new(),
            settling: BTreeMap::new(),
            turns: 0,
            accepted: 0,
            written: 0,
            has_thread: false,
            sleeps: false,
            flushing: 0,
            closed: false,
            error: None,
            captures: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            failed: CancellationToken::new(),
        };
        Self(Arc::new(Handle(Arc::new(shared))))
    }

    /// Creates an output that keeps the first [`RESERVE`] bytes or a little more, and drops the
    /// rest. It always has room.
    pub(crate) fn captured() -> Self {
        let output = Self::new(io::sink());
        output.shared().lock().captures = true;
        output
    }

    /// Takes what a captured output has kept.
    pub(crate) fn take_captured(&self) -> Vec<u8> {
        std::mem::take(&mut self.shared().lock().buffer)
    }

    /// Returns the outputs for standard output and standard error. They are the same in the whole
    /// program.
    ///
    /// If both streams are the same file, such as a terminal, the two are one output, so that the
    /// order of lines is kept across both.
    pub fn standard() -> (Self, Self) {
        static STANDARD: LazyLock<(Output, Output)> = LazyLock::new(|| {
            let out = Output::new(io::stdout());
            let is_same = is_same_file(io::stdout(), io::stderr()).unwrap_or(false);
            let err = if is_same { out.clone() } else { Output::new(io::stderr()) };
            (out, err)
        });
        STANDARD.clone()
    }

    /// Appends `bytes` in one piece, behind everything that was printed before. Returns `false` if
    /// the buffer has no room.
    pub fn try_write(&self, bytes: &[u8]) -> bool {
        self.append(self.shared().lock(), bytes, true).is_none()
    }

    /// Appends `bytes` like [`try_write`](Self::try_write), for a guest that cannot be suspended.
    pub(crate) fn try_write_reserve(&self, bytes: &[u8]) -> bool {
        self.append(self.shared().lock(), bytes, false).is_none()
    }

    /// Appends `line`. If the buffer has no room, queues the line and calls `completion`. The
    /// completion that this returns is completed once the line has reached the buffer.
    pub(crate) fn write(
        &self,
        line: &[u8],
        completion: impl FnOnce() -> Completion,
    ) -> Option<Turn> {
        let mut state = self.append(self.shared().lock(), line, true)?;
        let number = state.turn();
        state.queue.insert(number, (line.to_vec(), completion()));
        drop(state);
        Some(Turn { output: self.clone(), number })
    }

    /// Appends `bytes`. If there is no room, returns the lock.
    fn append<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        bytes: &[u8],
        can_wait: bool,
    ) -> Option<MutexGuard<'a, State>> {
        if state.captures {
            if state.buffer.len() < RESERVE {
                state.buffer.extend_from_slice(bytes);
            }
            return None;
        }
        if !state.has_room(can_wait) {
            return Some(state);
        }
        if !bytes.is_empty() {
            state.buffer.extend_from_slice(bytes);
            state.accepted += bytes.len() as u64;
            self.ensure_written(state);
        }
        None
    }

    /// Waits until everything accepted so far is written.
    ///
    /// If something is not written yet, calls `completion`. The completion that this returns is
    /// completed once everything is written.
    pub(crate) fn settle(&self, completion: impl FnOnce() -> Completion) -> Option<Turn> {
        let mut state = self.shared().lock();
        if state.written == state.accepted {
            return None;
        }
        let (number, target) = (state.turn(), state.accepted);
        state.settling.insert(number, (target, completion()));
        Some(Turn { output: self.clone(), number })
    }

    /// Waits until everything printed so far is written, for at most `timeout`.
    ///
    /// # Errors
    /// If `timeout` is over first, returns [`io::ErrorKind::TimedOut`]. Otherwise returns the first
    /// error of the sink since the last call, if there was one.
    ///
    /// # Blocking
    /// Blocks the calling thread. Call it after the scheduler has shut down, or in
    /// [`spawn_blocking`](procession::spawn_blocking).
    pub fn flush(&self, timeout: Duration) -> io::Result<()> {
        let mut state = self.shared().lock();
        let target = state.accepted;
        state.flushing += 1;
        let waited = self
            .shared()
            .progress
            .wait_timeout_while(state, timeout, |state| state.written < target);
        let (mut state, _) = waited;
        state.flushing -= 1;
        let error = state.error.take();
        if state.written < target {
            // Kept for the next call.
            state.error = error;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "its reader did not take everything in time",
            ));
        }
        error.map_or(Ok(()), Err)
    }

    /// Waits until the sink has refused a write, now or before. [`flush`](Self::flush) returns the
    /// error. Dropping the future has no effect.
    pub async fn failed(&self) {
        self.shared().failed.cancelled().await;
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Wakes or starts the writer thread.
    fn ensure_written(&self, mut state: MutexGuard<'_, State>) {
        if state.has_thread {
            state.wake_writer(self.shared());
            return;
        }
        state.has_thread = true;
        drop(state);
        let shared = Arc::clone(self.shared());
        let builder = thread::Builder::new().name("procession-output".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "the world of a scheduler ends before its output"
        )]
        let started = builder.spawn(move || shared.write_until_closed());
        if started.is_err() {
            // The slower path: this thread writes. The next line tries to start the thread again.
            self.shared().lock().has_thread = false;
            self.shared().write_all();
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buffered, suspended) = {
            let state = self.shared().lock();
            (state.buffer.len(), state.queue.len())
        };
        f.debug_struct("Output")
            .field("buffered", &buffered)
            .field("suspended", &suspended)
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.wake_writer(&self.0);
    }
}

impl State {
    fn has_room(&self, can_wait: bool) -> bool {
        match can_wait {
            true => self.buffer.len() < CAPACITY && self.queue.is_empty(),
            false => self.buffer.len() < RESERVE,
        }
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn wake_writer(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.sleeps) {
            shared.work.notify_one();
        }
    }

    /// Moves lines of suspended guests into the buffer, and returns the completions that resume
    /// them.
    fn refill(&mut self) -> Vec<Completion> {
        let mut moved = Vec::new();
        while self.buffer.len() < CAPACITY
            && let Some((_, (line, completion))) = self.queue.pop_first()
        {
            self.buffer.extend_from_slice(&line);
            self.accepted += line.len() as u64;
            moved.push(completion);
        }
        moved
    }

    /// Returns the completions of guests that waited for bytes that are written now.
    fn settled(&mut self) -> Vec<Completion> {
        let mut settled = Vec::new();
        while let Some(first) = self.settling.first_entry()
            && first.get().0 <= self.written
        {
            settled.push(first.remove().1);
        }
        settled
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The body of the writer thread.
    fn write_until_closed(&self) {
        loop {
            self.write_all();
            let mut state = self.lock();
            while state.buffer.is_empty() || state.sink.is_none() {
                if state.closed {
                    return;
                }
                state.sleeps = true;
                state = self.work.wait(state);
                state.sleeps = false;
            }
        }
    }

    /// Writes until the buffer is empty. If another thread is already writing, leaves that to it.
    fn write_all(&self) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.lock();
            if state.buffer.is_empty() {
                return;
            }
            let Some(mut sink) = state.sink.take() else { return };
            std::mem::swap(&mut state.buffer, &mut batch);
            let moved = state.refill();
            drop(state);
            moved.into_iter().for_each(resume);

            let result = catch_panic(|| sink.write_all(&batch).and_then(|()| sink.flush()));
            let mut error =
                result.unwrap_or_else(|| Err(io::Error::other("the sink panicked"))).err();
            let mut state = self.lock();
            state.sink = Some(sink);
            state.written += batch.len() as u64;
            let has_failed = error.is_some();
            state.error = state.error.take().or_else(|| error.take());
            let settled = state.settled();
            if state.flushing > 0 {
                self.progress.notify_all();
            }
            drop(state);
            if has_failed {
                self.failed.cancel();
            }
            settled.into_iter().for_each(resume);
            batch.clear();
            if batch.capacity() > KEPT {
                batch = Vec::new();
            }
        }
    }
}

fn resume(completion: Completion) {
    completion.complete(Ok(Box::new(Value::Nil)));
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.number).finish()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.output.shared().lock();
        let withdrawn = (state.queue.remove(&self.number), state.settling.remove(&self.number));
        // Without the lock: a completion that is dropped notifies its process.
        drop(state);
        drop(withdrawn);
    }
}

fn is_same_file(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let file = |stream: &dyn AsFd| {
        let metadata = File::from(stream.as_fd().try_clone_to_owned()?).metadata()?;
        Ok::<_, io::Error>((metadata.dev(), metadata.ino()))
    };
    Ok(file(&one)? == file(&other)?)
}
