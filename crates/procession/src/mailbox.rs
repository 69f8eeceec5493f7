//! Messages: addresses and contexts, bounded mailboxes, calls and their replies, dead letters,
//! relays.

pub(crate) mod address;
pub(crate) mod answer;
pub(crate) mod bounded;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod dead_letter;
pub(crate) mod deliver;
pub(crate) mod event;
pub(crate) mod parcel;
pub(crate) mod relay;
pub(crate) mod reply;
pub(crate) mod thread;
