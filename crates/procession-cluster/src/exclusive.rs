//! Names that at most one process of the cluster holds, by leases.
//!
//! Some work must be done once in the cluster: to number orders, to send a bill, to compact a file.
//! Nodes that only ask one another cannot agree on the node for the work, because a node that does
//! not answer may be dead, cut off, or slow. So they ask a store, and the store gives each name to
//! one holder, by a lease: unless the lease is renewed, it ends after a while, and the name is free
//! again.
//!
//! ```
//! use procession::{Context, start};
//! use procession_cluster::exclusive::{ClaimError, ExclusiveNames};
//! use procession_cluster::{Cookie, Node};
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # fn main() -> Result<(), Error> {
//! procession::run(async {
//!     let cookie = Cookie::random()?;
//!     let node = Node::builder("shop@127.0.0.1").cookie(cookie).start().await?;
//!     let names = ExclusiveNames::builder(&node).start();
//!     let bills = start(move |_: Context<()>| async move {
//!         // Waits as long as another process has the name.
//!         let held = names.claim("bills").await?;
//!         // What is written is written with the fence, and the name is free after that.
//!         Ok::<_, ClaimError>(held.fence())
//!     });
//!     assert!(bills.await??.get() > 0);
//!     Ok::<(), Error>(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! Without a store, the names are those of one program ([`EmbeddedLeases`]), so that it needs no
//! other program. With the feature `etcd`, [`Etcd`] makes them the names of all nodes that use it.
//! A [`Singleton`] is a child of a supervisor that runs on one node at a time. The names of
//! [`Node::share_names`](crate::Node::share_names) need no store, and may have several owners while
//! nodes are not connected.
//!
//! # What is promised
//!
//! | promise | as long as |
//! |---|---|
//! | Each successful claim has a greater [`Fence`] than all before it. | the store keeps its data |
//! | A store that checks fences takes no write of a holder after one of the next holder. | always |
//! | A process that holds a name ends before another one gets it. | the next three hold |
//!
//! 1. The store ends no lease early.
//! 2. While the store measures 10 seconds, this node measures 7 or more.
//! 3. The process ends within 3 tenths of the [lease time](ExclusiveNamesBuilder::lease_time) after
//!    it is killed: it is killed between two of its steps, so no step may take longer, and the
//!    machine must have time to run it.
//!
//! The third promise is the reason to use names, and the second is the reason to trust them.
//!
//! # The lease
//!
//! A node has one lease for all its names, 10 seconds long by default. It is renewed after each
//! third of its time. By its own clock, the node counts from the moment at which it *sent* the last
//! renewal that succeeded, because the store has counted from a later moment. When 7 tenths of the
//! time have passed, the node kills each of its processes that hold a name. It also does so when
//! the store answers that the lease has ended. Then it asks for the next lease, and the processes
//! that a supervisor has restarted wait for their names again.
//!
//! So if the store cannot be reached, names stay with their holders for 7 to 10 seconds, and from
//! then on nobody holds any until the store answers.
//!
//! The clock is the monotonic clock of the scheduler. What follows from that:
//!
//! - *The program is stopped* (SIGSTOP, or no processor): the clock goes on. When the program runs
//!   again after more than 7 seconds, its processes are killed as soon as a worker looks at its
//!   timers. A process that such a worker runs before that may do one step, with its old fence.
//! - *The machine is suspended*, or a virtual machine is: the monotonic clock stands still. The
//!   node learns from its next renewal that the lease has ended. That is within a third of the
//!   lease time if the store can be reached, and within 7 tenths if not.
//! - *The clock of the machine is set*: nothing happens.
//!
//! # Fences
//!
//! No clock tells a process that it was stopped between looking at the clock and writing. And etcd
//! has ended leases early, for example when the disk of its leader was slow. Therefore each write
//! needs the fence: in a database, a column that only grows.
//!
//! ```sql
//! UPDATE ledger SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//! ```
//!
//! If this changes no row, the writer has lost its name. A store that cannot compare fences is
//! protected by the lease only, under the three assumptions above.
//!
//! A store of leases that is restored from a copy may begin again with fences that it has given
//! before. A node hands out no fence that is not greater than all that it had handed out when it
//! asked the store. A node that was started since cannot know them, so do not restore the store
//! while processes run. When a program changes from [`EmbeddedLeases`] to etcd, set the fences in
//! its data to zero.
//!
//! # At the end
//!
//! A name is free again as soon as its [`ExclusiveName`] is dropped, at the latest when its process
//! ends, and waiting processes on all nodes are told. If a node [drains](crate::Node::drain) or
//! stops, its processes that hold names are cancelled. If the scheduler or the program ends in
//! order, supervisors end them as always, and the lease is renewed until they have ended. If a node
//! dies, its names are free once its lease has ended.
//!
//! # Seeing it
//!
//! [`ExclusiveNames::monitor`] notifies a process of each new holder of a name, so that the process
//! need not ask the store again and again.
//!
//! The [door](procession::observe) of the scheduler has a section `exclusive`: the names that
//! processes of the node hold, with their fences, how many processes wait, and how often a lease
//! was lost. The figures are also metrics, such as `procession_exclusive_name_fence`.
//!
//! # Rejected
//!
//! - *The crate `etcd-client`*: etcd's protocol is gRPC, so the crate needs tonic, prost and tower.
//!   That is 61 crates more than this one has without it, and they run on tokio's runtime. The JSON
//!   gateway of etcd takes the same requests by HTTP/1.1. With hyper, which Procession's client has
//!   already, the feature `etcd` adds 27 crates, and no runtime.
//! - *A lease for each name*: each would be renewed by itself. A thousand names would be 300
//!   requests a second, and a node that is slow would lose some of its names and not others.
//! - *Asking the store before each write instead of a fence*: the answer is old when the write is
//!   made.

mod claim;
#[cfg(feature = "etcd")]
mod etcd;
mod lease;
mod monitor;
mod names;
mod singleton;
mod store;
mod table;
mod watch;

pub use self::claim::{ClaimError, ExclusiveName};
#[cfg(feature = "etcd")]
#[cfg_attr(docsrs, doc(cfg(feature = "etcd")))]
pub use self::etcd::Etcd;
pub use self::names::{ExclusiveNames, ExclusiveNamesBuilder};
pub use self::singleton::Singleton;
pub use self::store::{
    Answer, Changes, Claimed, EmbeddedLeases, Fence, Known, Lease, LeaseId, LeaseStore, Row,
    StoreError,
};
pub use self::table::Holder;
