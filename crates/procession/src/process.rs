//! What a process is to others: its exit, its links, monitors and names, and the sets, groups and
//! registries in which a process finds other processes.
//!
//! | to | use |
//! |---|---|
//! | learn of the end of a process | [`Context::monitor`], which sends a [`Down`] |
//! | end with another process, or learn of its end if exits are trapped | [`link`] |
//! | end a process by its PID | [`cancel`], [`send_exit`], [`kill`] |
//! | find a process by a name | [`register`], [`whereis`], [`Named`] |
//! | find processes by keys, with a value for each | [`Registry`] |
//! | send to every process that has joined a group | [`Groups`] |
//! | collect results as they come, and cancel the rest | [`JoinSet`] |
//! | wait for all processes that a function starts, and stop at the first failure | [`scope()`] |
//! | have a value that is visible to all code of a future | [`ProcessLocal`] |
//! | choose what a cancel does | [`OnCancel`] |
//! | run before or behind others | [`Priority`], [`set_priority`] |
//!
//! [`Context::monitor`]: crate::Context::monitor
//!
//! Links, monitors, exit signals and names have the semantics of Erlang/OTP. A *link* ties two
//! processes together: when one ends abnormally, the other gets an exit signal and also ends,
//! unless it [traps exits](crate::Context::trap_exits). A *monitor* is one-sided: the process that
//! monitors receives a [`Down`] when the other ends.
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
//! Relations, groups and registries name processes by [`Pid`](crate::Pid). They forget a process
//! when it ends, keep neither a process nor its scheduler alive, and may have processes of several
//! schedulers.

#[doc(inline)]
pub use procession_runtime::local::{ProcessLocal, ProcessLocalScope};
#[doc(inline)]
pub use procession_runtime::process::{ParseError, Priority, Returns, priority, set_priority};
#[doc(inline)]
pub use procession_runtime::relations::{
    Down, ExitSignal, MonitorRef, Named, RegisterError, cancel, kill, link, register, registered,
    send_exit, unlink, whereis,
};
#[doc(inline)]
pub use procession_runtime::report::catch_panic;
#[doc(inline)]
pub use procession_runtime::scheduler::SpawnCause;
#[doc(inline)]
pub use procession_runtime::{
    CancelOnDrop, OnCancel, Outcome, SpawnError, cancelled, current_pid, exit, until_cancelled,
};

#[cfg(feature = "supervision")]
#[doc(inline)]
pub use procession_runtime::group::{
    BroadcastError, GroupEvent, GroupMonitor, Groups, JoinSet, Registry, RegistryEntries,
    RegistryError, RegistryEvent, RegistryListener, Scope, ScopeError, TableEntry, scope,
};
