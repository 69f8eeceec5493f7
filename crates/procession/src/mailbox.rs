//! Messages: what a mailbox does when it is full, calls to several processes, recipients of one
//! type of message, and the mailbox of a plain thread.
//!
//! [`Context`](crate::Context) is the mailbox of a process, [`Address`](crate::Address) is its
//! other end, and [`Reply`](crate::Reply) answers a call. They are in the root of the crate, with
//! their errors.
//!
//! For example, [`call_all`] asks several processes concurrently how much they have stored. A
//! [`Recipient`] of that question hides what else its process receives, and
//! [`Address::map`](crate::Address::map) makes it:
//!
//! ```
//! use std::time::Duration;
//! use procession::mailbox::{Recipient, call_all};
//! use procession::{Context, Reply, start};
//!
//! enum Cache {
//!     Stored(Reply<u64>),
//! }
//!
//! procession::run(async {
//!     let caches = [1, 2, 3].map(|n| {
//!         start(move |mut cx: Context<Cache>| async move {
//!             while let Some(Cache::Stored(reply)) = cx.recv().await {
//!                 reply.send(n);
//!             }
//!         })
//!     });
//!     let addresses = caches.each_ref().map(|cache| cache.address().clone());
//!     let second = Duration::from_secs(1);
//!     let stored = call_all(&addresses, Cache::Stored, second).await;
//!     assert_eq!(stored.into_iter().flatten().sum::<u64>(), 6);
//!
//!     let first: Recipient<Reply<u64>> = addresses[0].map(Cache::Stored);
//!     assert_eq!(first.call(|reply| reply, second).await?, 1);
//!     Ok::<(), procession::CallError<Reply<u64>>>(())
//! })?;
//! # Ok::<(), procession::CallError<procession::Reply<u64>>>(())
//! ```

#[doc(inline)]
pub use procession_runtime::mailbox::{
    CallCause, Event, Recipient, Recv, SendCause, SendWait, ThreadMailbox, Urgent, WhenFull, call,
    call_all, send, send_urgent,
};
#[doc(inline)]
pub use procession_runtime::{relay, request};
