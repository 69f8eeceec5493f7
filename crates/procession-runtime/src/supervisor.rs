//! Supervisors: processes that start child processes, watch them, restart them when they fail, and
//! end them in order.
//!
//! A process that fails loses its state. Most failures are transient, so a fresh process from a
//! known state is a good remedy, if another process notices the end and starts it. That is the task
//! of a supervisor. The semantics are taken from Erlang/OTP's `supervisor`; [the last
//! section](#differences-from-otp) lists the differences.
//!
//! A [`Supervisor`] is a value that describes a tree: a [`Strategy`], limits, and a [`ChildSpec`]
//! for each child. A child may be a supervisor itself. [`Supervisor::try_start`] runs the tree and
//! returns a [`Running`], which dereferences to a [`SupervisorRef`].
//!
//! ```
//! use std::time::Duration;
//! use procession::process::Named;
//! use procession::supervisor::{ChildSpec, Supervisor};
//! use procession::{Context, Reply};
//!
//! enum Count {
//!     Next(Reply<u32>),
//!     Break,
//! }
//!
//! let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
//! scheduler.block_on(async {
//!     let counter = ChildSpec::new("counter", |mut cx: Context<Count>| async move {
//!         let mut n = 0;
//!         while let Some(message) = cx.recv().await {
//!             match message {
//!                 Count::Next(reply) => { n += 1; reply.send(n) }
//!                 Count::Break => procession::process::exit(procession::Exit::failed("broken")),
//!             }
//!         }
//!     });
//!     let tree = Supervisor::one_for_one().child(counter.name("counter")).try_start().await?;
//!     let address = Named::new("counter");
//!     let timeout = Duration::from_secs(1);
//!     assert_eq!(address.call(Count::Next, timeout).await?, 1);
//!     assert_eq!(address.call(Count::Next, timeout).await?, 2);
//!     address.send(Count::Break)?;
//!     // This call is behind the message in the old mailbox, so it gets no answer.
//!     assert!(address.call(Count::Next, timeout).await.is_err());
//!     while tree.count().await?.running == 0 || address.pid().is_none() {
//!         procession::yield_now().await;
//!     }
//!     assert_eq!(address.call(Count::Next, timeout).await?, 1);
//!     tree.cancel();
//!     assert_eq!(tree.await, procession::Exit::Shutdown);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Children at run time
//!
//! A [dynamic](Supervisor::dynamic) supervisor begins without children, or with few, and more
//! children are added while it runs. For example, a server starts a process for each connection:
//!
//! ```
//! use std::convert::Infallible;
//! use procession::net::{TcpListener, TcpStream};
//! use procession::supervisor::{Supervisor, Template};
//! use procession::{Context, Exit};
//!
//! async fn greet(_: Context<Infallible>, mut stream: TcpStream) {
//!     // Ignored: an error of a connection concerns only its client.
//!     let _ = stream.write_all(b"hello").await;
//! }
//!
//! procession::run(async {
//!     let connections = Supervisor::dynamic().try_start().await?;
//!     let template = Template::new(greet).label("connection");
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let mut client = TcpStream::connect(listener.local_addr()?).await?;
//!     let (stream, _) = listener.accept().await?;
//!     // If it is refused, the error gives the stream back.
//!     connections.add_another(&template, stream).await?;
//!     let mut text = [0; 5];
//!     client.read_exact(&mut text).await?;
//!     assert_eq!(&text, b"hello");
//!     connections.cancel();
//!     assert_eq!(connections.await, Exit::Shutdown);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what | started by | restarts | returns if refused |
//! |---|---|---|---|
//! | [`ChildSpec`]: one child | [`add_child`] | as described | the cause |
//! | [`Template`]: many of one kind | [`add_another`] | none, or with a clone | the argument |
//! | [`OnceSpec`]: a closure that runs once | [`add_once`] | none | the closure |
//!
//! [`add_child`]: SupervisorRef::add_child
//! [`add_another`]: SupervisorRef::add_another
//! [`add_once`]: SupervisorRef::add_once
//!
//! A child has its name and its [entries](ChildSpec::enter) in registries and groups before it
//! runs, so it can be looked up as soon as its start has returned. A [`Template`] makes the name
//! and the entries from the argument of each child.
//!
//! If the `init` of a behaviour fails, the value has already moved into the process, so the error
//! cannot return the value.
//!
//! Each of these methods returns the [`Address`](crate::Address) of the child. Other supervisors
//! also accept children at run time. They take no templates, because each of their children needs
//! an id.
//!
//! # Defaults
//!
//! | setting of a supervisor | default |
//! |---|---|
//! | [`intensity`] | 1 restart in 5 s |
//! | [`auto_shutdown`] | [`Never`](AutoShutdown::Never) |
//! | [`back_off`] | none: a restart is tried immediately |
//!
//! | setting of a child | default | default if the child is a supervisor |
//! |---|---|---|
//! | [`restart`] | [`Permanent`]; [`Temporary`] for a [`Template`] or [`OnceSpec`] | the same |
//! | [`stop`] | [`Graceful`](Stop::Graceful), see [below](#stopping) | [`Wait`](Stop::Wait) |
//! | [`significant`] | no | the same |
//! | [`name`], [`enter`] | no name, no entries | the same |
//! | [`mailbox`], [`keep_mailbox`] | no bound, and a new mailbox for each process | cannot be set |
//! | [`priority`], [`affinity`] | [`Normal`], any worker | the same |
//! | [`label`] | the id | the same |
//!
//! [`Normal`]: crate::process::Priority::Normal
//! [`mailbox`]: ChildSpec::mailbox
//! [`keep_mailbox`]: ChildSpec::keep_mailbox
//! [`priority`]: ChildSpec::priority
//! [`affinity`]: ChildSpec::affinity
//! [`Permanent`]: Restart::Permanent
//! [`Temporary`]: Restart::Temporary
//! [`enter`]: ChildSpec::enter
//!
//! [`intensity`]: Supervisor::intensity
//! [`auto_shutdown`]: Supervisor::auto_shutdown
//! [`back_off`]: Supervisor::back_off
//! [`restart`]: ChildSpec::restart
//! [`stop`]: ChildSpec::stop
//! [`significant`]: ChildSpec::significant
//! [`name`]: ChildSpec::name
//! [`label`]: ChildSpec::label
//!
//! # Restarts
//!
//! | the child ended | permanent | transient | temporary |
//! |---|---|---|---|
//! | with [`Normal`], [`Shutdown`] or [`GaveUp`] | restarts | is stopped | is forgotten |
//! | with [`NameLost`] | is stopped | is stopped | is forgotten |
//! | with any other exit | restarts | restarts | is forgotten |
//! | because the strategy ended it with another child | restarts | restarts | is forgotten |
//! | by [`terminate_child`] | is stopped | is stopped | is forgotten |
//! | with a failure, and its name is taken | restarts, and fails | is stopped | is forgotten |
//!
//! In the last row, another process has taken the name or the unique key of the child since. The
//! restart of a permanent child then fails, and counts. A transient child is stopped with a report;
//! if it is significant, this counts as an exit by itself.
//!
//! [`Normal`]: Exit::Normal
//! [`Shutdown`]: Exit::Shutdown
//! [`GaveUp`]: Exit::GaveUp
//! [`NameLost`]: Exit::NameLost
//! [`terminate_child`]: SupervisorRef::terminate_child
//!
//! A stopped child stays known to its supervisor and can be started again. A
//! [dynamic](Strategy::Dynamic) supervisor forgets stopped children. A restart of one for all or of
//! rest for one also starts the stopped children that it covers.
//!
//! A restarted child is a new process, with a new PID and an empty mailbox. The messages in the old
//! mailbox are discarded, as at every end, unless the child [keeps](ChildSpec::keep_mailbox) its
//! mailbox. An address of the old process stays an address of the old process. Other processes
//! reach the child by its [name](ChildSpec::name), through
//! [`Named`](crate::relations::named::Named).
//!
//! Each restart counts, even if the start fails. If there are more than `intensity` restarts within
//! the last `period`, the supervisor stops its children and ends with [`Exit::GaveUp`], and its own
//! supervisor decides what to do. The window slides with the scheduler's clock: a restart counts
//! until exactly `period` after it.
//!
//! # Order
//!
//! Children start in the order in which they were given. Each child starts once the previous child
//! has started. They stop in reverse: each child stops once the next child has ended, as in OTP. A
//! child may need the children before it until it has ended, even if it can be restarted without
//! them. For example, a web server needs the database to answer its last requests. A dynamic
//! supervisor stops all its children at the same time, and so does a supervisor with
//! [`stop_together`](Supervisor::stop_together) when it ends.
//!
//! A child has started as soon as its process is linked to the supervisor and registered by its
//! name. The first steps of such children run in any order, so a child that others depend on should
//! report its start:
//!
//! | made by | has started when |
//! |---|---|
//! | [`ChildSpec::with_init`] | it reports that |
//! | [`ChildSpec::server`], [`Template::server`], [`OnceSpec::server`] | [`init`] has succeeded |
//! | [`ChildSpec::statem`], [`Template::statem`] | [`enter`][first] has returned once |
//! | [`OnceSpec::statem`] | the same |
//! | [`ChildSpec::machine`] | [`Process::init`] has succeeded, in the supervisor |
//! | [`ChildSpec::supervisor`] | all its children have started |
//!
//! [`init`]: crate::behaviour::Server::init
//! [first]: crate::behaviour::Statem::enter
//! [`Process::init`]: crate::machine::Process::init
//!
//! If a start fails in [`Supervisor::try_start`], the children before it are stopped in reverse,
//! and the error names the child. If a restart fails, that counts as one more restart, and is tried
//! again after the [back-off](Supervisor::back_off). Until then, the supervisor answers requests,
//! because it never blocks on a child, a deadline or the next attempt: it waits for their events.
//! With rest for one, the children behind a child that waits for its restart wait for it as well.
//! With one for all, so do the children before it.
//!
//! # Stopping
//!
//! A stop begins with a cancel, which is cooperative: the `recv` of the child ends, and the child
//! can clean up. A child that has not ended in time is terminated. The [`Stop`] of the child says
//! how long it has:
//!
//! | [`Stop`] | in a shutdown of the scheduler | if only the supervisor stops it |
//! |---|---|---|
//! | [`Graceful`](Stop::Graceful), the default | until the deadline of the shutdown | 5 s |
//! | [`Within(time)`], [`Signal(time)`] | `time`, and at most until the deadline | `time` |
//! | [`Wait`](Stop::Wait) | until the deadline of the shutdown | any time |
//! | [`Kill`](Stop::Kill) | none | none |
//!
//! [`Within(time)`]: Stop::Within
//! [`Signal(time)`]: Stop::Signal
//!
//! A child that never checks whether it is cancelled uses all this time. [`Stop::Signal`] ends such
//! a child immediately, as OTP does.
//!
//! [`Scheduler::shutdown`](crate::Scheduler::shutdown) works through the trees: it cancels the
//! supervisors and leaves their children to them. A child that the deadline ends is
//! [lost](crate::snapshot::Unfinished::terminated), and so is the orderly end of the children that
//! would have been stopped after it. For example, a server that does not finish its requests by the
//! deadline takes the store before it along. A child that its own `Stop` ends earlier is no loss,
//! because the program has asked for that.
//!
//! If a supervised process calls `shutdown`, the supervisor releases that process. A supervisor
//! that is terminated takes its children with it by their links, except for children that trap
//! exits.
//!
//! # Invalid combinations
//!
//! They are errors of the start ([`SpecError`]), which name the child:
//! - two children with one id or one name
//! - a child without an id in a supervisor that is not dynamic
//! - a significant child that is permanent
//! - a significant child of a supervisor with [`AutoShutdown::Never`]
//! - a period of zero, a back-off of zero, or a back-off that begins above its end
//! - a mailbox without room for a message
//! - a bounded or kept mailbox for a supervisor
//!
//! A nested supervisor is checked with the tree.
//!
//! # Common mistakes in tuning
//!
//! - *An intensity for each child.* The limit is for the whole supervisor. A burst of restarts that
//!   is fine for one child among ten is fine for ten among a hundred only with ten times the
//!   intensity, or with a supervisor for each group.
//! - *A long period.* With an intensity of 10 and a period of an hour, a child that fails every ten
//!   minutes never escalates. A child with ten failures at midnight escalates at the next failure.
//!   A small number in a few seconds is closer to the rate that is usually meant.
//! - *Nested limits multiply.* A tree of three levels with intensity 2 tries (2 + 1)³ times before
//!   the root ends with [`Exit::GaveUp`].
//! - *Permanent or transient children that are started on demand under a name or a key.* From the
//!   end of such a child until its restart, the name is free. If your program starts another child
//!   under the name in that moment, for example because a client asks for it, each restart fails,
//!   and in the end the supervisor fails as well. Start such children on demand only, and leave
//!   them [`Temporary`](Restart::Temporary), which is the default of a [`Template`].
//! - *A back-off longer than the period.* If fewer than `intensity` retries fit into a period, a
//!   child that never starts is tried forever, and no supervisor above notices. If the child
//!   depends on something remote, that may be intended. Watch for [`ChildStatus::Waiting`] then.
//! - *[`Stop::Wait`] for a worker.* One worker that does not end holds up the whole tree, up to the
//!   deadline of the scheduler's shutdown. For a supervisor, any other policy than `Wait` cuts the
//!   orderly end of its children short: their links kill them.
//! - *Permanent children that end normally.* They are restarted until the limit of restarts ends
//!   the supervisor. Use [`Restart::Transient`].
//!
//! # Differences from OTP
//!
//! - Ids are strings.
//! - A [`Template`] is a value of the program and not a part of the supervisor, so that the
//!   compiler checks its argument.
//! - A stop begins with a cancel. [`Stop::Signal`] is OTP's way.
//! - By default, a stop waits as long as the shutdown does, because a program knows how long it may
//!   take to end, and its children do not.
//! - The window of the intensity is exact. OTP's is coarse.
//! - A supervisor that exceeds its restart limit ends with [`Exit::GaveUp`] and states the reason.
//!   In OTP it ends with `shutdown`, as if it had been asked to end. If such a supervisor is itself
//!   a transient child, it is not restarted, as in OTP.
//! - A supervisor answers requests while a child starts or stops.
//! - Back-off is an addition, and so is a mailbox that survives a restart.
//! - Code cannot be changed at run time.

mod advance;
mod child;
mod description;
mod error;
mod events;
mod moved;
mod policy;
mod reference;
mod requests;
mod start;
mod status;
mod supervise;
mod tree;

pub use self::description::{ChildSpec, Started, Supervisor};
pub use self::error::{ChildError, RefusedChild, SpecError, StartError, StartReason};
pub use self::moved::{OnceSpec, Template};
pub use self::policy::{AutoShutdown, BackOff, Restart, Stop, Strategy};
pub use self::reference::{Running, SupervisorRef};
pub use self::status::{ChildInfo, ChildKey, ChildStatus, Counts};

#[cfg(doc)]
use crate::Exit;
