//! Supervisors: processes that start others, watch them, start them again when they fail, and end them in order. The semantics are
//! those of Erlang/OTP's `supervisor`; what differs is at the end.
//!
//! A [`Supervisor`] describes a tree: a [`Strategy`], limits, and a [`ChildSpec`] for each child, which may be a supervisor itself. It is a
//! value; [`Supervisor::start`] makes it run, and answers a [`Running`], which dereferences to a [`SupervisorRef`].
//!
//! ```
//! use std::time::Duration;
//! use procession::supervisor::{ChildSpec, Supervisor};
//! use procession::{Context, Named, Reply};
//!
//! enum Count {
//!     Next(Reply<u32>),
//!     Break,
//! }
//!
//! let scheduler = procession::Scheduler::builder().width(1).test_clock().build()?;
//! scheduler.block_on(async {
//!     let counter = ChildSpec::new("counter", |mut cx: Context<Count>| async move {
//!         let mut n = 0;
//!         while let Some(message) = cx.receive().await {
//!             match message {
//!                 Count::Next(reply) => { n += 1; reply.send(n) }
//!                 Count::Break => procession::exit(procession::Exit::failed("broken")),
//!             }
//!         }
//!     });
//!     let tree = Supervisor::one_for_one().child(counter.name("counter")).start().await?;
//!     let address = Named::new("counter");
//!     let patience = Duration::from_secs(1);
//!     assert_eq!(address.call(Count::Next, patience).await?, 1);
//!     assert_eq!(address.call(Count::Next, patience).await?, 2);
//!     address.send(Count::Break)?;
//!     // The call is behind that message, so it is not answered; the next one finds the name with the restarted child.
//!     assert!(address.call(Count::Next, patience).await.is_err());
//!     while tree.count().await?.running == 0 || address.pid().is_none() {
//!         procession::yield_now().await;
//!     }
//!     assert_eq!(address.call(Count::Next, patience).await?, 1);
//!     tree.cancel();
//!     assert_eq!(tree.await, procession::Exit::Shutdown);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Defaults
//!
//! | what | default | for a supervisor as child |
//! |---|---|---|
//! | [`intensity`](Supervisor::intensity) | 1 restart in 5 s | |
//! | [`auto_shutdown`](Supervisor::auto_shutdown) | [`Never`](AutoShutdown::Never) | |
//! | [`back_off`](Supervisor::back_off) | none: a restart is tried at once | |
//! | [`restart`](ChildSpec::restart) | [`Permanent`](Restart::Permanent) | likewise |
//! | [`stop`](ChildSpec::stop) | [`Within`](Stop::Within) 5 s | [`Wait`](Stop::Wait) |
//! | [`significant`](ChildSpec::significant) | no | likewise |
//! | [`name`](ChildSpec::name), bounded mailbox, worker | none | a name |
//! | [`label`](ChildSpec::label) | the id | likewise |
//!
//! # Restarts
//!
//! | the child ended | permanent | transient | temporary |
//! |---|---|---|---|
//! | with [`Exit::Normal`] or [`Exit::Shutdown`] | restarts | stays, stopped | is forgotten |
//! | otherwise | restarts | restarts | is forgotten |
//! | because the strategy ends it with another | restarts | restarts | is forgotten |
//! | by [`terminate_child`](SupervisorRef::terminate_child) | stays, stopped | stays, stopped | is forgotten |
//!
//! In a [dynamic](Strategy::Dynamic) supervisor a child that stays is forgotten, too. A restart of one for all and of rest for one starts those
//! that were stopped as well. A restarted child is a new process with a new PID and an empty mailbox: what was in the old one's is discarded, as
//! at every end. Others reach it by its [name](ChildSpec::name) ([`Named`](crate::Named)).
//!
//! Each restart counts, also one whose start fails. If there are more than `intensity` within the last `period`, the supervisor gives up: it stops
//! its children and ends with [`Exit::Shutdown`], and its own supervisor decides. The window slides on the scheduler's clock:
//! a restart counts until exactly `period` after it.
//!
//! # Order
//!
//! Children start in the order in which they were given, each when the one before has started; they stop in reverse, each when the one behind has ended.
//! Those of a dynamic supervisor stop all at once. A child has started as soon as it is a process that is linked to its supervisor, and registered; a child
//! made by [`ChildSpec::with_init`] when it says so. Of others the first steps run in any order: what a child needs of one before it is to be said by that one.
//!
//! If a start fails in [`Supervisor::start`], the children before are stopped in reverse, and the error names the child. If it fails in a restart, that
//! counts as one more restart, and is tried again as the [back-off](Supervisor::back_off) says. Meanwhile the supervisor answers: to wait for a child,
//! for its deadline, or for the next attempt, is to wait for events.
//!
//! # Stopping
//!
//! [`Stop::Within`] cancels the child, which is cooperative: its `receive` ends, and it does what it has to do. What has not ended after the time is terminated.
//! A child that never looks whether it is cancelled uses all of its time; [`Stop::Signal`] ends such a child at once, as OTP does.
//!
//! [`Scheduler::shutdown`](crate::Scheduler::shutdown) goes through the trees: it cancels supervisors, and leaves their children to them. If it is called by a
//! supervised process, that one is released by its supervisor. A supervisor that is terminated takes its children with it by their links; children that trap exits
//! must look after themselves.
//!
//! # Invalid combinations
//!
//! They are errors of the start ([`SpecError`]), which name the child: two children with one id or one name; a child without an id in a supervisor that is not
//! dynamic; a template in one that is not dynamic; a significant child that is permanent, or whose supervisor's `auto_shutdown` is `Never`; a period or a back-off of
//! zero, or a back-off that begins above its end; a mailbox for no message; a bounded mailbox for a supervisor. A nested supervisor is checked with the tree.
//!
//! # Mistakes in tuning
//!
//! * *An intensity for each child.* The limit is for the whole supervisor. A burst of restarts that is fine for one child among ten is fine for ten among a
//!   hundred only with ten times the intensity, or a [dynamic](Strategy::Dynamic) supervisor for each group.
//! * *A long period.* With intensity 10 and an hour, a child that fails every ten minutes never escalates, and one with ten failures at midnight escalates at the
//!   next one. What is meant is most often a rate: a small number in a few seconds.
//! * *Nested limits multiply.* A tree of three levels with intensity 2 tries (2 + 1)³ times before the root gives up.
//! * *A back-off longer than the period.* If fewer than `intensity` retries fit into a period, a child that never starts is tried for ever, and nobody is told.
//!   That may be wanted, for what depends on something far away; then watch [`ChildStatus::Waiting`].
//! * *[`Stop::Wait`] for a worker.* It is allowed, and one worker that does not end keeps the whole tree, up to the deadline of the scheduler's shutdown. Anything
//!   else than `Wait` for a supervisor cuts the orderly end of its children short: they are killed by their links.
//! * *Permanent children that end normally.* They are restarted, and soon the supervisor gives up; use transient.
//!
//! # What differs from OTP
//!
//! Ids are strings. A stop is a cancel first ([`Stop::Signal`] is OTP's). The window is exact, where OTP's is coarse. A supervisor answers while a child starts or
//! stops. Back-off is an extra. There is no change of code.

mod advance;
mod child;
mod description;
mod error;
mod events;
mod policy;
mod reference;
mod requests;
mod start;
mod status;
mod supervise;
mod tree;

pub use self::description::{ChildSpec, Started, Supervisor};
pub use self::error::{ChildError, SpecError, StartError, SupervisorGone};
pub use self::policy::{AutoShutdown, BackOff, Restart, Stop, Strategy};
pub use self::reference::{Running, SupervisorRef};
pub use self::status::{ChildInfo, ChildKey, ChildStatus, Counts};

#[cfg(doc)]
use crate::Exit;
