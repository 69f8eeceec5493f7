//! Traces of the headers of messages.

use std::sync::Arc;
use std::time::Duration;

use crate::observe::ask::{AskError, find, leave};
use crate::process::request::{MessageLog, ProcessRequest, TraceRequest, TracedMessage};
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::sync::oneshot;
use crate::time;
use crate::{Pid, Scheduler};

/// The maximum number of messages of a trace.
pub(crate) const TRACED_MAX: usize = 1000;
/// The maximum length of a trace.
const TRACE_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Available with the crate feature `look`.
impl Scheduler {
    /// Traces the headers of the messages that a process receives and sends: when, which type, from
    /// or to which process. Never the messages themselves.
    ///
    /// The trace ends after `count` messages, after `limit`, or with the process, and returns what
    /// it has recorded. `count` is at most 1000, and `limit` is at most 60 s by the clock of the
    /// caller's scheduler; greater values count as the maximum. Only one trace of a scheduler can
    /// run at a time.
    ///
    /// A process that waits is woken once without need. Three kinds of messages are not recorded:
    /// messages that were sent to the process before it has begun the trace, messages that it sends
    /// to other nodes, and messages that it sends by a [`Relay`](crate::relay::Relay).
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::observe::MessageDirection;
    /// use procession::{Context, Reply, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let server = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
    ///     while let Some(reply) = cx.recv().await {
    ///         reply.send(7);
    ///     }
    /// });
    /// let (pid, address) = (server.pid(), server.address().clone());
    /// let _calls = scheduler.spawn(async move {
    ///     while address.call(|reply| reply, Duration::from_secs(9)).await.is_ok() {}
    /// });
    /// let traced = scheduler.block_on(scheduler.trace_messages(pid, 3, Duration::from_secs(9)))?;
    /// assert_eq!(traced.len(), 3);
    /// assert!(traced.iter().all(|message| message.direction == MessageDirection::Received));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AskError::Ended`], [`AskError::Itself`], or [`AskError::Busy`] if another trace is
    /// running.
    ///
    /// # Cancellation
    /// If the future is dropped, the trace is over.
    pub async fn trace_messages(
        &self,
        pid: Pid,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<TracedMessage>, AskError> {
        trace(self.shared(), pid, count, limit).await
    }
}

/// Traces the headers of the messages of a process.
pub(crate) async fn trace(
    shared: &Shared,
    pid: Pid,
    count: usize,
    limit: Duration,
) -> Result<Vec<TracedMessage>, AskError> {
    let caller = Arc::new(());
    let (log, receiver) = {
        let slot = find(shared, pid)?;
        if current::is_current(&slot) {
            return Err(AskError::Itself);
        }
        {
            let mut tracer = shared.processes.tracer.lock();
            if tracer.strong_count() > 0 {
                return Err(AskError::Busy);
            }
            *tracer = Arc::downgrade(&caller);
        }
        let (sender, receiver) = oneshot::channel::<()>();
        let done = Box::new(move || {
            // Ignored: a caller that has given up.
            let _ = sender.send(());
        });
        let log = Arc::new(MessageLog::new(shared.world.now(), count.min(TRACED_MAX), done));
        let request = TraceRequest { log: Arc::clone(&log), caller: Arc::downgrade(&caller) };
        leave(&slot, ProcessRequest::Trace(request))?;
        (log, receiver)
    };
    // Ignored: whether it is full, the time is over, or the process has ended.
    let _ = time::timeout(limit.min(TRACE_TIMEOUT_MAX), receiver).await;
    Ok(log.take())
}
