//! Headers of messages: the request that a message belongs to, and its sender.

mod text;

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use crate::Pid;

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

/// The flags of the version 00 that have a meaning: sampled, and that the trace id is random.
const FLAGS: u8 = 0b11;
/// The caller may have recorded the request.
const SAMPLED: u8 = 0b01;

/// A request, as other programs know it: its id, and optionally a
/// [W3C trace context](https://www.w3.org/TR/trace-context/).
///
/// The id is the `trace-id`. This type is made of a [`RequestId`], or by parsing a `traceparent`:
///
/// ```
/// use procession::mailbox::request::{self, RequestContext};
///
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = header.parse::<RequestContext>()?.with_state("vendor=opaque");
/// request::with(context, || {
///     let context = request::context().expect("it is set");
///     assert_eq!(context.id().to_string(), "0af7651916cd43dd8448eb211c80319c");
///     assert_eq!(context.traceparent(), header);
///     assert_eq!(context.state(), Some("vendor=opaque"));
/// });
/// assert!(header.replace("00-", "ff-").parse::<RequestContext>().is_err());
/// # Ok::<(), procession::process::ParseError>(())
/// ```
///
/// A clone is cheap. The runtime passes a context on as it came, because it records no spans with
/// ids of their own: a new `parent-id` would name a span that no backend knows. A program that
/// records such spans sets its own context with [`new`](Self::new).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestContext {
    id: RequestId,
    trace: Option<Arc<TraceFields>>,
}

/// The parts of a trace context other than the trace id.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TraceFields {
    parent: NonZeroU64,
    flags: u8,
    state: Box<str>,
}

impl RequestContext {
    /// Returns a trace context with this trace id, parent id and flags, and without a state.
    ///
    /// Flags without a meaning in the version 00 are cleared, as the specification demands.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    ///
    /// use procession::mailbox::request::{RequestContext, RequestId};
    ///
    /// let id = RequestId::new(7).expect("it is not 0");
    /// let context = RequestContext::new(id, NonZeroU64::MIN, 0xff);
    /// let header = "00-00000000000000000000000000000007-0000000000000001-03";
    /// assert_eq!(context.traceparent(), header);
    /// ```
    pub fn new(id: RequestId, parent: NonZeroU64, flags: u8) -> Self {
        let fields = TraceFields { parent, flags: flags & FLAGS, state: Box::default() };
        Self { id, trace: Some(Arc::new(fields)) }
    }

    /// Returns the id of the request, which is the trace id.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the parent id, unless the context consists of only an id.
    pub fn parent_id(&self) -> Option<NonZeroU64> {
        self.trace.as_ref().map(|trace| trace.parent)
    }

    /// Returns `true` if the caller may have recorded the request.
    pub fn is_sampled(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.flags & SAMPLED != 0)
    }

    /// Returns the value for the header `tracestate`, if there is one.
    pub fn state(&self) -> Option<&str> {
        self.trace.as_ref().map(|trace| &*trace.state).filter(|state| !state.is_empty())
    }
}

impl From<RequestId> for RequestContext {
    fn from(id: RequestId) -> Self {
        Self { id, trace: None }
    }
}

/// The id of a request: a number of 128 bits that is not 0, as the trace ids of W3C Trace Context
/// and OpenTelemetry, or a UUID.
///
/// It prints as 32 hexadecimal digits. When it is parsed, fewer digits and the hyphens of a UUID
/// are accepted as well.
///
/// ```
/// use procession::mailbox::request::RequestId;
///
/// let id: RequestId = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse()?;
/// assert_eq!(id.to_string(), "67e5504410b1426f9247bb680e5fe0c8");
/// assert_eq!(RequestId::new(7), "7".parse().ok());
/// assert!("0".parse::<RequestId>().is_err());
/// assert!("seven".parse::<RequestId>().is_err());
/// # Ok::<(), procession::process::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    // Two words, since a `u128` would align all entries of mailboxes to 16 bytes.
    high: u64,
    low: u64,
}

impl RequestId {
    /// Returns the id with this number, or `None` for 0.
    pub const fn new(number: u128) -> Option<Self> {
        if number == 0 {
            return None;
        }
        Some(Self { high: (number >> 64) as u64, low: number as u64 })
    }

    /// Returns the number.
    pub const fn get(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl From<NonZeroU128> for RequestId {
    fn from(number: NonZeroU128) -> Self {
        Self { high: (number.get() >> 64) as u64, low: number.get() as u64 }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}
