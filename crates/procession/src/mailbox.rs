//! Messages: what a mailbox does when it is full, calls to several processes, recipients of one
//! type of message, and the mailbox of a plain thread.
//!
//! [`Context`](crate::Context) is the mailbox of a process, [`Address`](crate::Address) is its
//! other end, and [`Reply`](crate::Reply) answers a call. They are in the root of the crate, with
//! their errors.

#[doc(inline)]
pub use procession_runtime::mailbox::{
    CallCause, Event, Recipient, Recv, SendCause, SendWait, ThreadMailbox, Urgent, WhenFull, call,
    call_all, send, send_urgent,
};
#[doc(inline)]
pub use procession_runtime::{relay, request};
