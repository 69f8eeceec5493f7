//! Mailboxes for plain threads.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession_protocols::util::block_queue::BlockQueue;
use procession_sync::Mutex;

use crate::mailbox::address::Address;
use crate::mailbox::context::Context;
use crate::scheduler::block_on;
use crate::scheduler::owner::Scheduler;
use crate::time;
use crate::time::Elapsed;
use crate::{Child, Pid, SpawnOptions};

/// A PID and a mailbox for a plain thread. See [`Scheduler::attach`].
///
/// ```
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().worker_threads(1).build()?;
/// let mut inbox = scheduler.attach::<&str>();
/// let address = inbox.address().clone();
/// drop(scheduler.spawn(async move { address.send("hello") }));
/// assert_eq!(inbox.recv(), Some("hello"));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub struct ThreadMailbox<M> {
    scheduler: Scheduler,
    /// Passes on the messages of its mailbox. It ends with this value.
    process: Child<M, ()>,
    queue: Arc<Mutex<ThreadQueue<M>>>,
}

struct ThreadQueue<M> {
    messages: BlockQueue<M>,
    waker: Option<Waker>,
    closed: bool,
}

impl Scheduler {
    /// Creates a PID and a mailbox for the calling thread, or for any thread that the value is
    /// moved to.
    #[track_caller]
    pub fn attach<M: Send + 'static>(&self) -> ThreadMailbox<M> {
        let queue = Arc::new(Mutex::new(ThreadQueue {
            messages: BlockQueue::new(),
            waker: None,
            closed: false,
        }));
        let passed_on = QueueCloser(Arc::clone(&queue));
        let process = SpawnOptions::new().on(self).label("thread").start(
            move |mut cx: Context<M>| async move {
                while let Some(message) = cx.recv().await {
                    passed_on.push(message);
                }
                drop(passed_on);
            },
        );
        ThreadMailbox { scheduler: self.clone(), process, queue }
    }
}

/// Closes the queue when the process ends, whatever the exit.
struct QueueCloser<M>(Arc<Mutex<ThreadQueue<M>>>);

impl<M> QueueCloser<M> {
    fn push(&self, message: M) {
        self.change(|queue| queue.messages.push_back(message));
    }

    fn change(&self, change: impl FnOnce(&mut ThreadQueue<M>)) {
        let mut queue = self.0.lock();
        change(&mut queue);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<M> Drop for QueueCloser<M> {
    fn drop(&mut self) {
        self.change(|queue| queue.closed = true);
    }
}

impl<M: Send + 'static> ThreadMailbox<M> {
    /// Returns the PID of the mailbox.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns the address of the mailbox.
    pub fn address(&self) -> &Address<M> {
        self.process.address()
    }

    /// Receives the oldest message. Returns `None` once the mailbox is empty and no message can
    /// come any more, because the scheduler is shutting down or the mailbox was
    /// [cancelled](crate::relations::cancel()).
    ///
    /// # Blocking
    /// Blocks the thread.
    pub fn recv(&mut self) -> Option<M> {
        block_on::block_on(self.scheduler.shared(), poll_fn(|task| self.poll_receive(task.waker())))
    }

    /// Receives the oldest message, waiting for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`] if no message came in time.
    ///
    /// # Blocking
    /// Blocks the thread.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<M>, Elapsed> {
        let shared = Arc::clone(self.scheduler.shared());
        block_on::block_on(&shared, async {
            time::timeout(timeout, poll_fn(|task| self.poll_receive(task.waker()))).await
        })
    }

    fn poll_receive(&self, waker: &Waker) -> Poll<Option<M>> {
        let new = waker.clone();
        let mut queue = self.queue.lock();
        if let Some(message) = queue.messages.pop_front() {
            return Poll::Ready(Some(message));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        let old = queue.waker.replace(new);
        drop(queue);
        drop(old);
        Poll::Pending
    }
}

impl<M> Drop for ThreadMailbox<M> {
    fn drop(&mut self) {
        // The process exists, unless it was terminated before.
        crate::relations::kill(self.process.pid());
    }
}

impl<M> fmt::Debug for ThreadMailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ThreadMailbox").field(&self.process).finish()
    }
}
