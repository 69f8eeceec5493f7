//! The state of a process that handles messages with headers.

use std::sync::Arc;

use crate::mailbox::header::RequestId;
use crate::mailbox::message_log::MessageLog;

/// The state of a process that handles messages with headers.
#[derive(Default)]
pub(crate) struct Handling {
    /// The request that the process works for.
    pub(crate) request: Option<RequestId>,
    /// Records the messages of the process, while they are traced.
    pub(crate) trace: Option<Arc<MessageLog>>,
    /// Set if the process has a span, so that each request gets one.
    #[cfg(feature = "tracing")]
    pub(crate) is_traced: bool,
    /// The span of the request. It is entered while the process runs a step.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
}
