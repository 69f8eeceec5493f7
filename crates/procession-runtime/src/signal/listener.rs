//! Listeners to signals.

use std::ffi::c_int;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::wait_list::Place;

use super::relay;
use super::relay::SignalRelay;
use crate::scheduler::budget;
use crate::scheduler::listener::{leave, look_or_wait};

/// The signals that cannot be listened to. The kernel delivers the first two to no handler. The
/// remaining signals report a fault of the program, which would repeat after the handler.
const FORBIDDEN: [c_int; 6] =
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGBUS];

/// The signals with a name.
const NAMES: &[(c_int, &str)] = &[
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    #[cfg(target_os = "linux")]
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGCHLD, "SIGCHLD"),
    (libc::SIGCONT, "SIGCONT"),
    (libc::SIGSTOP, "SIGSTOP"),
    (libc::SIGTSTP, "SIGTSTP"),
    (libc::SIGTTIN, "SIGTTIN"),
    (libc::SIGTTOU, "SIGTTOU"),
    (libc::SIGURG, "SIGURG"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGWINCH, "SIGWINCH"),
    (libc::SIGIO, "SIGIO"),
    #[cfg(target_os = "linux")]
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGSYS, "SIGSYS"),
];

/// A kind of signal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignalKind(c_int);

impl SignalKind {
    /// Returns the signal with this number. [`signal`] refuses a number that is none.
    pub const fn from_raw(number: c_int) -> Self {
        Self(number)
    }

    /// Returns the number of the signal.
    pub const fn as_raw(self) -> c_int {
        self.0
    }

    /// SIGINT, which Ctrl-C sends.
    pub const fn interrupt() -> Self {
        Self(libc::SIGINT)
    }

    /// SIGTERM, which asks a program to end.
    pub const fn terminate() -> Self {
        Self(libc::SIGTERM)
    }

    /// SIGHUP, which the end of a terminal sends, and which asks many services to read their
    /// configuration again.
    pub const fn hangup() -> Self {
        Self(libc::SIGHUP)
    }

    /// SIGQUIT, which Ctrl-\ sends.
    pub const fn quit() -> Self {
        Self(libc::SIGQUIT)
    }

    /// SIGUSR1, for the use of programs.
    pub const fn user_defined1() -> Self {
        Self(libc::SIGUSR1)
    }

    /// SIGUSR2, for the use of programs.
    pub const fn user_defined2() -> Self {
        Self(libc::SIGUSR2)
    }

    /// SIGCHLD, which reports the end of a child process of the operating system.
    pub const fn child() -> Self {
        Self(libc::SIGCHLD)
    }

    /// SIGWINCH, which reports a new size of the terminal.
    pub const fn window_change() -> Self {
        Self(libc::SIGWINCH)
    }
}

impl fmt::Display for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalKind({self})")
    }
}

/// Listens to a signal from now on.
///
/// # Errors
/// Returns `InvalidInput`, with the name of the signal, for SIGKILL, SIGSTOP, SIGSEGV, SIGFPE,
/// SIGILL and SIGBUS, and for a number that is no signal that can be handled. Returns the system's
/// error if it has no descriptor or no thread left.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    if FORBIDDEN.contains(&kind.0) {
        let text = format!("cannot listen to {kind}: no program can go on after it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let relay = relay::listen(kind.0).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen to {kind}: {error}"))
    })?;
    Ok(Signal::new(relay, kind))
}

/// A listener to a signal, made by [`signal`].
///
/// Signals that come between two calls of [`recv`](Self::recv) are not lost, but count as one,
/// since the system itself does not count them.
#[derive(Debug)]
#[must_use = "a listener hears only the signals that come while it exists"]
pub struct Signal {
    relay: Arc<SignalRelay>,
    kind: SignalKind,
    /// How often the signal had been heard when this listener last looked.
    seen: u64,
    place: Option<Place>,
}

impl Signal {
    /// Creates a listener to a signal that has a handler.
    pub(super) fn new(relay: Arc<SignalRelay>, kind: SignalKind) -> Self {
        let seen = relay.bells[kind.0 as usize].change(|ringing| ringing.about.count);
        Self { relay, kind, seen, place: None }
    }

    pub(super) fn relay(&self) -> &Arc<SignalRelay> {
        &self.relay
    }

    /// Returns the signal that this listens to.
    pub fn kind(&self) -> SignalKind {
        self.kind
    }

    /// Waits for the next signal since the last signal that this listener has heard. Returns `None`
    /// if no signal can arrive any more, because other code of the program has closed the
    /// descriptors through which signals arrive.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no signal is lost.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = Option<()>> {
        crate::scheduler::placed::placed(async move {
            let hearing = Hearing(self);
            poll_fn(|task| hearing.0.poll_recv(task)).await
        })
    }

    pub(crate) fn poll_recv(&mut self, task: &mut TaskContext<'_>) -> Poll<Option<()>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        let Self { relay, kind, seen, place } = self;
        look_or_wait(&relay.bells[kind.0 as usize], place, task, |heard| {
            if heard.count != *seen {
                *seen = heard.count;
                return Some(Some(()));
            }
            heard.closed.then_some(None)
        })
    }

    fn leave(&mut self) {
        leave(&self.relay.bells[self.kind.0 as usize], &mut self.place);
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A call of [`Signal::recv`], which waits no longer when it is dropped.
struct Hearing<'a>(&'a mut Signal);

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Waits for SIGINT, which Ctrl-C sends. It listens from the call on, not from the first poll.
///
/// # Errors
/// See [`signal`].
pub fn ctrl_c() -> impl Future<Output = io::Result<()>> + Send {
    once(SignalKind::interrupt())
}

/// Waits for SIGTERM. It listens from the call on, not from the first poll.
///
/// # Errors
/// See [`signal`].
pub fn terminate() -> impl Future<Output = io::Result<()>> + Send {
    once(SignalKind::terminate())
}

fn once(kind: SignalKind) -> impl Future<Output = io::Result<()>> + Send {
    let listener = signal(kind);
    async move {
        listener?.recv().await.ok_or_else(|| {
            io::Error::other(format!("cannot listen to {kind}: its descriptors were closed"))
        })
    }
}
