//! The requests to processes and their answers: what a process shows of itself, the stacks of a
//! step, and the headers of messages.

use std::sync::{Arc, Weak};
use std::time::Duration;

use procession_protocols::process::request_table::{RequestTable, TableRequest};
use procession_sync::Mutex;

use crate::Pid;
use crate::mailbox::header::RequestId;
use crate::process::inspection::Inspection;
#[cfg(feature = "door")]
use crate::process::stack_notes::StackNotes;
use crate::time::action::Armed;

/// The answer to a request to inspect. The error is the text of a panic.
pub(crate) type InspectAnswer = Box<dyn FnOnce(Result<Inspection, String>) + Send>;

/// The requests of all processes. `E` is the entry of a ready process.
pub(crate) type ProcessRequests<E> = RequestTable<ProcessRequest, E, Armed>;

/// A request, with the function that takes the answer. It must not block or panic.
pub(crate) enum ProcessRequest {
    /// To note the stacks of the next step that waits.
    #[cfg(feature = "door")]
    Stack(StackRequest),
    /// To show what the process shows of itself.
    Inspect(InspectAnswer),
    /// To trace the headers of the messages, in each step until the trace is over.
    Trace(TraceRequest),
}

/// A request for the headers of messages. Its drop notifies the caller that the trace is over.
pub(crate) struct TraceRequest {
    pub(crate) log: Arc<MessageLog>,
    /// Refers to something while the caller waits for the end of the trace.
    pub(crate) caller: Weak<()>,
}

impl TraceRequest {
    /// Returns `true` if the trace is over.
    pub(crate) fn is_over(&self) -> bool {
        self.caller.strong_count() == 0 || self.log.is_full()
    }
}

impl Drop for TraceRequest {
    fn drop(&mut self) {
        self.log.finish();
    }
}

/// A request for the stacks of a step.
#[cfg(feature = "door")]
pub(crate) struct StackRequest {
    /// Takes the stacks.
    pub(crate) answer: Box<dyn FnOnce(StackNotes) + Send>,
    /// Refers to something while the caller waits for the answer.
    pub(crate) caller: Weak<()>,
}

#[cfg(feature = "door")]
impl StackRequest {
    /// Returns `true` if the caller has given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.caller.strong_count() == 0
    }
}

impl TableRequest for ProcessRequest {
    fn waits_for_step(&self) -> bool {
        match self {
            #[cfg(feature = "door")]
            Self::Stack(_) => true,
            Self::Trace(_) => true,
            Self::Inspect(_) => false,
        }
    }
}

/// The direction of a message, as the traced process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageDirection {
    /// The process has received the message.
    Received,
    /// The process has sent the message.
    Sent,
}

impl MessageDirection {
    /// Returns `received` or `sent`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Sent => "sent",
        }
    }
}

/// What a trace shows of a message. See
/// [`Scheduler::trace_messages`](crate::Scheduler::trace_messages).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedMessage {
    /// The time since the beginning of the trace.
    pub after: Duration,
    /// Its direction.
    pub direction: MessageDirection,
    /// The sender of a received message, if a process has sent it; the receiver of a sent one.
    pub other: Option<Pid>,
    /// The name of its type.
    pub type_name: &'static str,
    /// The size of its type in bytes. Memory that the message owns on the heap does not count.
    pub bytes: usize,
    /// The [request](crate::request) that it belongs to, if ids of requests travel.
    pub request: Option<RequestId>,
}

/// Calls this when the trace is over.
type TraceDone = Box<dyn FnOnce() + Send>;

/// The messages that a trace has recorded.
pub(crate) struct MessageLog {
    /// The time on the clock of the scheduler at which the trace began.
    began: u64,
    max: usize,
    messages: Mutex<Vec<TracedMessage>>,
    done: Mutex<Option<TraceDone>>,
}

impl MessageLog {
    /// Creates a log of at most `max` messages. `done` must not panic.
    pub(crate) fn new(began: u64, max: usize, done: TraceDone) -> Self {
        let messages = Mutex::new(Vec::with_capacity(max));
        Self { began, max, messages, done: Mutex::new(Some(done)) }
    }

    /// Records a message that is received or sent at the time `now`, unless the log is full.
    pub(crate) fn record(&self, now: u64, mut message: TracedMessage) {
        message.after = Duration::from_nanos(now.saturating_sub(self.began));
        let is_full = {
            let mut messages = self.messages.lock();
            if messages.len() < self.max {
                messages.push(message);
            }
            messages.len() == self.max
        };
        if is_full {
            self.finish();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.messages.lock().len() == self.max
    }

    /// Notifies the caller that nothing more will be recorded.
    pub(crate) fn finish(&self) {
        let done = self.done.lock().take();
        if let Some(done) = done {
            done();
        }
    }

    /// Takes the messages.
    pub(crate) fn take(&self) -> Vec<TracedMessage> {
        std::mem::take(&mut *self.messages.lock())
    }
}
