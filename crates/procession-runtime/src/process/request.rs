//! The requests to processes, and their answers.

use std::sync::{Arc, Weak};

use procession_protocols::process::request_table::{RequestTable, TableRequest};

use crate::mailbox::message_log::MessageLog;
use crate::process::inspection::Inspection;
#[cfg(feature = "door")]
use crate::process::stack_notes::StackNotes;
use crate::time::armed::Armed;

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
