//! The state of a process that handles messages with headers.

use crate::mailbox::header::RequestId;

/// The state of a process that handles messages with headers.
#[derive(Default)]
pub(crate) struct Handling {
    /// The request that the process works for.
    pub(crate) request: Option<RequestId>,
    /// Set if the process has a span, so that each request gets one.
    #[cfg(feature = "tracing")]
    pub(crate) is_traced: bool,
    /// The span of the request. It is entered while the process runs a step.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
}
