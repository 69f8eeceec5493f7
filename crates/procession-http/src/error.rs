//! The error of connections.

use std::fmt;
use std::io;

/// The error of a connection, of the body of a request, or of an attempt to connect.
///
/// The alternate form `{:#}` of its text includes the cause. So a process that returns the error of
/// a connection that its client has reset ends with
/// [`Exit::Disconnected`](procession_runtime::Exit::Disconnected).
pub struct Error(HttpErrorKind);

enum HttpErrorKind {
    /// What did not happen within its time.
    #[cfg(feature = "serve")]
    TimedOut(&'static str),
    #[cfg(feature = "serve")]
    Hyper(hyper::Error),
    Io {
        act: &'static str,
        cause: io::Error,
    },
}

impl Error {
    #[cfg(feature = "serve")]
    pub(super) fn timed_out(what: &'static str) -> Self {
        Self(HttpErrorKind::TimedOut(what))
    }

    pub(super) fn io(act: &'static str, cause: io::Error) -> Self {
        Self(HttpErrorKind::Io { act, cause })
    }

    /// Returns `true` if a time limit was reached: a limit of the [`Server`](super::Server), or a
    /// limit of a socket.
    pub fn is_timeout(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "serve")]
            HttpErrorKind::TimedOut(_) => true,
            #[cfg(feature = "serve")]
            HttpErrorKind::Hyper(error) => error.is_timeout() || caused_by_timeout(error),
            HttpErrorKind::Io { cause, .. } => cause.kind() == io::ErrorKind::TimedOut,
        }
    }
}

/// Returns `true` if a write has exceeded its time limit, which hyper reports as the error of a
/// write.
#[cfg(feature = "serve")]
fn caused_by_timeout(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

#[cfg(feature = "serve")]
impl From<hyper::Error> for Error {
    fn from(error: hyper::Error) -> Self {
        Self(HttpErrorKind::Hyper(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "serve")]
            HttpErrorKind::TimedOut(what) => write!(f, "{what} within the time limit"),
            #[cfg(feature = "serve")]
            HttpErrorKind::Hyper(error) => {
                write!(f, "the connection failed: {error}")?;
                match std::error::Error::source(error).filter(|_| f.alternate()) {
                    Some(cause) => write!(f, ": {cause}"),
                    None => Ok(()),
                }
            }
            HttpErrorKind::Io { act, cause } => write!(f, "cannot {act}: {cause}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "serve")]
            HttpErrorKind::TimedOut(what) => f.debug_tuple("TimedOut").field(what).finish(),
            #[cfg(feature = "serve")]
            HttpErrorKind::Hyper(error) => error.fmt(f),
            HttpErrorKind::Io { act, cause } => {
                f.debug_tuple("Io").field(act).field(cause).finish()
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            #[cfg(feature = "serve")]
            HttpErrorKind::TimedOut(_) => None,
            #[cfg(feature = "serve")]
            HttpErrorKind::Hyper(error) => Some(error),
            HttpErrorKind::Io { cause, .. } => Some(cause),
        }
    }
}
