//! Links, monitors, exit signals and names, with the semantics of Erlang/OTP.
//!
//! A *link* ties two processes together: when one ends abnormally, the other gets an exit signal
//! and ends as well, unless it [traps exits](crate::Context::trap_exits). A *monitor* is one-sided:
//! the process that [monitors](crate::Context::monitor) receives a [`Down`] when the other ends. By
//! its name, any process can find another process ([`register`], [`whereis`], [`Named`]).
//!
//! ```
//! use procession::{Context, spawn, start};
//!
//! procession::run(async {
//!     let fails = spawn(async { panic!("out of order") });
//!     let pid = fails.pid();
//!     let watches = start(move |mut cx: Context<()>| async move {
//!         let monitor = cx.monitor(pid);
//!         cx.down(monitor).await.map(|down| down.pid)
//!     });
//!     assert_eq!(watches.await, Ok(Some(pid)));
//! });
//! ```
//!
//! Relations name processes by [`Pid`](crate::Pid). They keep neither a process nor its scheduler
//! alive, and reach from one scheduler to another.

mod address;
pub(crate) mod entries;
pub(crate) mod links;
pub(crate) mod monitors;
pub(crate) mod named;
pub(crate) mod names;
pub(crate) mod remote;
pub(crate) mod signal;

pub use self::links::{cancel, kill, link, send_exit, unlink};
pub use self::named::Named;
pub use self::names::{RegisterError, register, registered, whereis};
pub use self::signal::{Down, ExitSignal, MonitorRef};
