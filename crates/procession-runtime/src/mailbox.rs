//! Messages: addresses and contexts, bounded mailboxes, calls and replies, dead letters, relays.

pub(crate) mod address;
pub(crate) mod bounds;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod dead_letter;
mod delayed;
pub(crate) mod deliver;
pub(crate) mod fan_out;
pub(crate) mod header;
pub(crate) mod parcel;
pub(crate) mod recipient;
pub(crate) mod relay;
mod remote_address;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod send_error;
pub(crate) mod thread;

pub use self::address::{Address, SendWait, send, send_urgent};
pub use self::bounds::{Urgent, WhenFull};
pub use self::call::{CallCause, CallError, call, call_all};
pub use self::context::{Context, Event, Recv};
pub use self::recipient::Recipient;
pub use self::reply::Reply;
pub use self::send_error::{SendCause, SendError};
pub use self::thread::ThreadMailbox;
