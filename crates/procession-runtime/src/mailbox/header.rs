//! Headers of messages: the request that a message belongs to, and its sender.

use crate::Pid;
use crate::mailbox::request_context::RequestContext;

/// The header of a message.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The request that the message belongs to.
    pub(crate) request: Option<RequestContext>,
    /// The process that sent the message, if it was sent in a step of a process.
    pub(crate) sender: Option<Pid>,
    /// Set if a simulated system looks at the order of messages.
    #[cfg(feature = "sim")]
    pub(crate) number: Option<crate::sys::os::MessageNumber>,
}
