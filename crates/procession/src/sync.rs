//! Synchronisation between processes: locks, semaphores, conditions, barriers and channels.
//!
//! | channel | each message goes to |
//! |---|---|
//! | [`channel`] | one of several receivers |
//! | [`oneshot`] | one receiver, once |
//! | [`broadcast`] | all receivers |
//! | [`watch`] | all receivers, which see the last one only |
//! | [`Notify`] | one waiter or all, without a value |
//!
//! ```
//! use std::sync::Arc;
//! use procession::sync::{Mutex, WaitGroup};
//!
//! procession::run(async {
//!     let (total, group) = (Arc::new(Mutex::new(0)), WaitGroup::new());
//!     for n in 1..=3 {
//!         let (total, job) = (total.clone(), group.job());
//!         drop(procession::spawn(async move {
//!             *total.lock().await += n;
//!             drop(job);
//!         }));
//!     }
//!     group.wait().await;
//!     assert_eq!(*total.lock().await, 6);
//! });
//! ```
//!
//! All kinds of processes can use these types, and plain threads can use them with the trait
//! [`Wait`](crate::coroutine::Wait). Waiting suspends the process and not its worker, and a guard
//! may be held across an `.await`.
//!
//! Waiters are served in the order in which they began to wait. If a waiter is dropped after it was
//! served, the next waiter is served instead. A panic poisons nothing, because the guard is dropped
//! together with the process.
//!
//! # Streams and sinks
//! With the feature `stream`, types implement the traits of the crates `futures-core` and
//! `futures-sink`. A type is a `Stream` itself if it receives by `&mut self`:
//! [`Context`](crate::Context), the mailbox of a process; [`Interval`](crate::time::Interval);
//! [`broadcast::Receiver`]; and, with their features, `fs::ReadDir`, `signal::Signal`,
//! `process::JoinSet`, `process::GroupMonitor` and `process::RegistryListener`. Other types are
//! turned into streams: [`channel::Receiver`] and [`watch::Receiver`] by `into_stream`, and
//! listeners by `incoming`. `channel::Sender::into_sink` makes a `Sink`.
//!
//! ```
//! use futures_lite::StreamExt;
//! use procession::sync::channel;
//!
//! # #[cfg(feature = "stream")]
//! procession::run(async {
//!     let (sender, receiver) = channel::bounded(2);
//!     procession::spawn(async move {
//!         for n in 1..=10 {
//!             sender.send(n).await?;
//!         }
//!         Ok::<_, procession::sync::SendError<u32>>(())
//!     });
//!     let even: Vec<_> = receiver.into_stream().filter(|n| n % 2 == 0).collect().await;
//!     assert_eq!(even, [2, 4, 6, 8, 10]);
//! });
//! ```
//!
//! A stream keeps its place among the waiters while it is pending, whatever becomes of the future
//! that polled it, and loses nothing. The place is given up when the stream is dropped.

#[doc(inline)]
pub use procession_runtime::Select;
#[doc(inline)]
pub use procession_runtime::sync::{
    AcquireError, Barrier, CancellationToken, Condvar, DropGuard, Job, Mutex, MutexGuard, Notified,
    Notify, OnceCell, OwnedMutexGuard, OwnedNotified, OwnedPermits, OwnedRwLockReadGuard,
    OwnedRwLockWriteGuard, Permits, RecvError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore, SendError, WaitGroup, broadcast, channel, oneshot, watch,
};

#[cfg(feature = "stream")]
#[doc(inline)]
pub use procession_runtime::stream::{ReceiverStream, SenderSink, WatchStream};
