//! Processes: the state word, the slot and the references that keep it, and the body.

#[expect(unsafe_code, reason = "futures are pinned in the body's box")]
pub(crate) mod async_body;
pub(crate) mod binding;
pub(crate) mod body;
pub(crate) mod cancel;
pub(crate) mod exit;
pub(crate) mod handling;
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
pub(crate) mod kind;
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
pub(crate) mod life;
#[expect(unsafe_code, reason = "a future that is not `Send` is in a body that is")]
pub(crate) mod local_body;
pub(crate) mod pid;
pub(crate) mod priority;
pub(crate) mod reporting;
#[cfg_attr(not(feature = "look"), expect(unreachable_pub, reason = "`look` names its items"))]
pub(crate) mod request;
pub(crate) mod residence;
pub(crate) mod served;
pub(crate) mod shown_waits;
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
pub(crate) mod slot;
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
pub(crate) mod slot_ref;
#[cfg(feature = "tracing")]
pub(crate) mod span;
#[cfg(feature = "door")]
pub(crate) mod stack_notes;
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
pub(crate) mod table;
#[expect(unsafe_code, reason = "a slot has no type parameter")]
pub(crate) mod typed;
pub(crate) mod unwind;
pub(crate) mod wait_edge;
pub(crate) mod wait_reason;
pub(crate) mod wake;
#[expect(unsafe_code, reason = "wakers are raw")]
pub(crate) mod waker;

pub use self::exit::Returns;
pub use self::priority::{Priority, priority, set_priority};
pub use crate::util::parse_error::ParseError;
