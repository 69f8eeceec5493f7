//! What a process works for: the request of its message, and the values that it inherits.

use std::sync::Arc;

use crate::mailbox::message_log::MessageLog;
use crate::mailbox::request_context::RequestContext;
use crate::process::inherited::Inherited;

/// The state of a process that handles messages with headers, or that inherits values.
#[derive(Default)]
pub(crate) struct Handling {
    /// The values of the locals that are inherited from the process.
    pub(crate) inherited: Option<Inherited>,
    /// The request that the process works for.
    pub(crate) request: Option<RequestContext>,
    /// Records the messages of the process, while they are traced.
    pub(crate) trace: Option<Arc<MessageLog>>,
    /// Set if the process has a span, so that each request gets one.
    #[cfg(feature = "tracing")]
    pub(crate) is_traced: bool,
    /// The span of the request. It is entered while the process runs a step.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
}
