//! Signals of the operating system.
//!
//! [`signal`] listens to a signal, [`ctrl_c`] and [`terminate`] wait for one, and
//! [`Scheduler::run_until_signal`](crate::Scheduler::run_until_signal) is the `main` of a service.
//! All these functions work in processes, in coroutines and, with [`Wait`](crate::coroutine::Wait),
//! on plain threads. [`Scheduler::dump_on_signal`](crate::Scheduler::dump_on_signal) writes the
//! flight recorder to a file at each signal.
//!
//! ```
//! use procession::signal::{SignalKind, signal};
//!
//! procession::run(async {
//!     let mut hangup = signal(SignalKind::hangup())?;
//!     let process = procession::spawn(async move { hangup.recv().await });
//!     // In a service, another program does this.
//!     let me = rustix::process::getpid();
//!     rustix::process::kill_process(me, rustix::process::Signal::HUP)?;
//!     assert_eq!(process.await.expect("it does not panic"), Some(()));
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What listening does to the program
//!
//! - The first listener of a signal replaces the effect of that signal for the rest of the program,
//!   even if all listeners are dropped. If SIGINT was listened to once, Ctrl-C alone does not end
//!   the program any more. Handlers that were installed before are still called.
//! - The first listener of the program starts one thread and opens two descriptors, which stay. The
//!   thread sleeps until a signal arrives.
//! - A signal is heard by all listeners that exist, whatever scheduler they are on. A listener
//!   belongs to no scheduler, and outlives the scheduler on which it was made.
//! - A test clock does not wait for signals, which are real events: it moves on while processes
//!   listen.
//! - After a `fork` without an `exec`, the child has no such thread. Its signals are heard by the
//!   parent, so the child must reset them.

mod dump;
mod listener;
#[expect(unsafe_code, reason = "a handler may run at any moment")]
mod relay;
mod request;
mod run;

pub use self::listener::{Signal, SignalKind, ctrl_c, signal, terminate};
pub use self::request::{EndRequest, end_request};
pub use self::run::{ShutdownOptions, Stopped};
